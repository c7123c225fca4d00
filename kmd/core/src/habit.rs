//! How a queue submits, and what its doorbell is told when it connects.
//!
//! An engine that is idle lets the doorbells of its queues go, since nobody announces a ring: looking for rings costs a
//! processor. The next ring of each then costs user mode a connection. That is little for a queue that has paused, and
//! much for one that submits now and then, say at each frame: such a queue is connected as CONNECTED_NOTIFY from then
//! on. Its engine looks for no rings, and user mode announces each by a call, which is cheaper than a connection. Where
//! the calls become frequent, the doorbell is let go once more and is CONNECTED behind that.
//!
//! Each change costs calls of its own, so a queue that has announced often does not go back for the first pause: it is
//! treated as one that submits often until a connection of it is used for hardly anything. So a queue that submits ten
//! times at each frame changes once, and not twice a frame.
//!
//! Source: *User-mode work submission* (`DxgkCbDisconnectDoorbell`; D3DDDI_DOORBELLSTATUS: CONNECTED_NOTIFY). When a
//! driver disconnects, and which status it chooses, is left to it.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Rings from which on a queue submits often: its next connection is CONNECTED, and its engine waits longer before the
/// doorbell is let go.
const OFTEN: u64 = 16;
/// For how long an engine must have been idle, as a part of a second: of a queue that submits often.
const LONG: u64 = 10;
/// For how many seconds a connection stays that was used no more than once: a queue is connected by its first
/// submission, and may be about to begin. The OS looks for progress as seldom.
const FRESH: u64 = 2;
/// Announcements within [`BURST`] from which on looking is cheaper.
const MANY: u32 = 8;
/// As a part of a second: 4 ms.
const BURST: u64 = 250;
/// Rings of a connection below which a queue that has announced often submits seldom again.
const FEW: u64 = 4;

/// How a queue submits. Times are ticks of the performance counter.
#[derive(Default)]
pub struct Habit {
    /// User mode announces each ring: the queue is connected as CONNECTED_NOTIFY, or is about to be.
    announces: AtomicBool,
    /// It has submitted seldom when its doorbell was let go.
    is_seldom: AtomicBool,
    /// Its announcements have become frequent.
    is_frequent: AtomicBool,
    /// They have been, and no connection since was used for less than [`FEW`] rings.
    was_frequent: AtomicBool,
    connected_at: AtomicU64,
    /// Rings that were seen when it connected.
    rings: AtomicU64,
    /// Announcements since `since`.
    announced: AtomicU32,
    since: AtomicU64,
}

/// What is known of a queue when its engine is idle.
pub struct Now {
    /// The time.
    pub now: u64,
    /// Ticks per second.
    pub second: u64,
    /// For how long its engine has been idle; 0: it is not, and a queue that announces often is meant.
    pub idle: u64,
    /// Rings of the queue that its engine has ever seen.
    pub rings: u64,
}

impl Habit {
    /// The queue connects, `now`, when `rings` of its rings have been seen. With `notify` it announces whatever it
    /// does. Returns whether it announces.
    pub fn connect(&self, now: u64, rings: u64, notify: bool) -> bool {
        self.connected_at.store(now, Ordering::Relaxed);
        // What it has announced, it would have rung.
        let announced = if self.is_frequent.swap(false, Ordering::Relaxed) { u64::from(MANY) } else { 0 };
        self.rings.store(rings.wrapping_sub(announced), Ordering::Relaxed);
        self.announced.store(0, Ordering::Relaxed);
        let announces = notify || self.is_seldom.load(Ordering::Relaxed);
        self.announces.store(announces, Ordering::Relaxed);
        announces
    }

    /// Returns whether user mode announces each ring, so that no engine looks for them.
    pub fn announces(&self) -> bool {
        self.announces.load(Ordering::Relaxed)
    }

    /// User mode has announced a ring, `now`. Returns whether it has just become so frequent that the doorbell is to be
    /// let go, to be looked at from then on.
    pub fn announced(&self, now: u64, second: u64) -> bool {
        if now.saturating_sub(self.since.load(Ordering::Relaxed)) > second / BURST {
            self.since.store(now, Ordering::Relaxed);
            self.announced.store(0, Ordering::Relaxed);
        }
        let frequent = self.announced.fetch_add(1, Ordering::Relaxed) + 1 == MANY && self.announces();
        if frequent {
            self.is_frequent.store(true, Ordering::Relaxed);
        }
        frequent
    }

    /// Returns whether the queue's doorbell may be let go; if so, it will be, and what the next connection is told is
    /// decided here.
    pub fn may_go(&self, now: &Now) -> bool {
        if self.announces() {
            let goes = self.is_frequent.load(Ordering::Relaxed);
            if goes {
                self.is_seldom.store(false, Ordering::Relaxed);
                self.was_frequent.store(true, Ordering::Relaxed);
            }
            return goes;
        }
        let rings = now.rings.wrapping_sub(self.rings.load(Ordering::Relaxed));
        let was_frequent = self.was_frequent.load(Ordering::Relaxed);
        let often = if was_frequent { FEW } else { OFTEN };
        let goes = now.idle != 0
            && match rings {
                0 | 1 => {
                    now.now.saturating_sub(self.connected_at.load(Ordering::Relaxed))
                        >= now.second.saturating_mul(FRESH)
                }
                _ => rings < often || now.idle >= now.second / LONG,
            };
        if goes {
            self.is_seldom.store(rings < often, Ordering::Relaxed);
            self.was_frequent.store(was_frequent && rings >= often, Ordering::Relaxed);
        }
        goes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1000;

    /// At `now`, with an engine that has been idle for `idle`.
    fn at(now: u64, idle: u64, rings: u64) -> Now {
        Now { now, second: SECOND, idle, rings }
    }

    #[test]
    fn a_fresh_connection_stays_until_it_is_used() {
        let habit = Habit::default();
        assert!(!habit.connect(100, 5, false));
        assert!(!habit.may_go(&at(2000, 10, 5)) && !habit.may_go(&at(2000, 10, 6)));
        assert!(habit.may_go(&at(2100, 10, 6)));
        let habit = Habit::default();
        habit.connect(3000, 5, false);
        assert!(habit.may_go(&at(3001, 10, 7)));
    }

    #[test]
    fn a_queue_that_submits_seldom_announces_and_one_that_submits_often_does_not() {
        let habit = Habit::default();
        habit.connect(0, 0, false);
        assert!(!habit.announces() && habit.may_go(&at(10, 10, OFTEN - 1)));
        assert!(habit.connect(10, 20, false) && habit.announces());
        let habit = Habit::default();
        habit.connect(0, 0, false);
        assert!(!habit.may_go(&at(10, 99, OFTEN)), "it pauses for longer first");
        assert!(habit.may_go(&at(110, 100, OFTEN)));
        assert!(!habit.connect(110, OFTEN, false));
    }

    #[test]
    fn one_that_announces_keeps_its_doorbell_until_it_does_so_often() {
        let habit = Habit::default();
        habit.connect(0, 0, false);
        assert!(habit.may_go(&at(10, 10, 2)) && habit.connect(10, 2, false));
        // One every 5 ms.
        assert!((0..50).all(|number| !habit.announced(100 + number * 5, SECOND)));
        assert!(!habit.may_go(&at(9000, 9000, 2)), "however idle the engine is");
        let asked = (0..12).filter(|_| habit.announced(1000, SECOND)).count();
        assert_eq!(asked, 1, "asked for once");
        assert!(habit.may_go(&at(1000, 0, 2)));
        assert!(!habit.connect(1001, 2, false));
    }

    #[test]
    fn while_the_engine_works_only_those_go_that_announce_often() {
        let [often, other] = [Habit::default(), Habit::default()];
        often.connect(0, 0, false);
        assert!(often.may_go(&at(10, 10, 2)) && often.connect(10, 2, false));
        other.connect(0, 0, false);
        assert!((0..8).any(|_| often.announced(20, SECOND)));
        assert!(often.may_go(&at(20, 0, 2)));
        for rings in [0, 2, OFTEN] {
            assert!(!other.may_go(&at(9000, 0, rings)), "{rings} rings");
        }
    }

    #[test]
    fn where_each_ring_is_announced_by_a_setting_nothing_changes_that() {
        let habit = Habit::default();
        assert!(habit.connect(0, 0, true));
        assert!(!habit.may_go(&at(9000, 9000, 9)));
    }

    /// Plays a queue that submits `each` times, a tenth of a millisecond apart, in each of 200 frames of `frame`
    /// microseconds, with an engine that lets go after 10 ms: connections and announcements behind the first frames.
    fn played(each: u64, frame: u64) -> (u64, u64) {
        const SECOND: u64 = 1_000_000;
        const IDLE: u64 = SECOND / 100;
        let habit = Habit::default();
        let (mut rings, mut last, mut is_connected) = (0, 0, false);
        let (mut connections, mut announcements) = (0, 0);
        for number in 0..200 {
            for submission in 0..each {
                let now = 1 + number * frame + submission * 100;
                // The engine has looked all the while.
                for idle in (IDLE..now - last).step_by(1000) {
                    let known = Now { now: last + idle, second: SECOND, idle, rings };
                    is_connected &= !habit.may_go(&known);
                }
                if !is_connected {
                    habit.connect(now, rings, false);
                    (is_connected, connections) = (true, connections + u64::from(number >= 20));
                }
                if !habit.announces() {
                    rings += 1;
                } else {
                    announcements += u64::from(number >= 20);
                    if habit.announced(now, SECOND) {
                        is_connected = !habit.may_go(&Now { now, second: SECOND, idle: 0, rings });
                    }
                }
                last = now;
            }
        }
        (connections, announcements)
    }

    #[test]
    fn a_queue_that_submits_in_bursts_does_not_change_at_each() {
        // At each frame of 60 in a second, and of 5.
        assert_eq!(played(10, 16_667), (0, 0), "its engine looks");
        assert_eq!(played(10, 200_000), (180, 0), "it is let go in between, and looked at again");
        assert_eq!(played(15, 20_000), (0, 0));
        // Fewer than what counts as often are announced, one by one.
        assert_eq!((played(2, 16_667), played(7, 16_667)), ((0, 360), (0, 1260)));
    }

    #[test]
    fn a_queue_that_has_announced_often_announces_again_when_it_submits_seldom() {
        let habit = Habit::default();
        habit.connect(0, 0, false);
        assert!(habit.may_go(&at(10, 10, 2)) && habit.connect(10, 2, false));
        assert!((0..MANY).any(|_| habit.announced(20, SECOND)) && habit.may_go(&at(20, 0, 2)));
        assert!(!habit.connect(20, 2, false));
        // The burst goes on: it is one that submits often.
        assert!(!habit.may_go(&at(50, 30, 4)) && habit.may_go(&at(200, 100, 4)));
        assert!(!habit.connect(300, 4, false));
        // Three rings, and then nothing.
        assert!(habit.may_go(&at(320, 10, 7)));
        assert!(habit.connect(330, 7, false));
        // From there on as before.
        assert!((0..MANY).any(|_| habit.announced(340, SECOND)) && habit.may_go(&at(340, 0, 7)));
    }
}
