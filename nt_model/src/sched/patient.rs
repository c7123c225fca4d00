//! Operating-system threads, and a clock that stands still while the host does.
//!
//! A machine under test shares its host with others, and may itself be the guest of one that runs it only now and
//! then. Where every thread stands still for a tenth of a second, that is no time in which an engine failed to answer.
//! A thread of this process, the *beat*, wakes up every [`BEAT`]; of the time between two beats at most [`MOST`]
//! counts. What one thread alone waits for a processor counts like any other time.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use super::{RealScheduler, Scheduler, Slot, Ticks};

/// Time between two beats.
const BEAT: Duration = Duration::from_millis(5);
/// How much of the time between two beats counts at most, in nanoseconds. More than the time by which a thread is late
/// that shares its processor with a few others.
const MOST: u64 = 25_000_000;

/// The time that counts, in nanoseconds, as a count of beats and of what was counted up to the last one.
struct Lived {
    /// Even while the two below belong together.
    version: AtomicU64,
    /// Time of the last beat.
    beat: AtomicU64,
    /// What counts of the time before it.
    counted: AtomicU64,
}

impl Lived {
    const fn new() -> Self {
        Self { version: AtomicU64::new(0), beat: AtomicU64::new(0), counted: AtomicU64::new(0) }
    }

    /// A beat at `time`. One thread alone calls this.
    fn beat(&self, time: u64) {
        let counted = self.at(time);
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.beat.store(time, Ordering::Relaxed);
        self.counted.store(counted, Ordering::Relaxed);
        self.version.store(version + 2, Ordering::Release);
    }

    /// What counts of the time up to `time`.
    fn at(&self, time: u64) -> u64 {
        loop {
            let before = self.version.load(Ordering::Acquire);
            let (beat, counted) = (self.beat.load(Ordering::Relaxed), self.counted.load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == before {
                return counted + time.saturating_sub(beat).min(MOST);
            }
            std::hint::spin_loop();
        }
    }
}

/// The time that counts in this process, in nanoseconds from some moment on.
fn lived() -> u64 {
    static LIVED: Lived = Lived::new();
    static BEGUN: OnceLock<Instant> = OnceLock::new();
    // CAST: 584 years.
    let since = |begun: &Instant| begun.elapsed().as_nanos() as u64;
    let begun = BEGUN.get_or_init(|| {
        let begun = Instant::now();
        let beats = move || {
            loop {
                #[expect(clippy::disallowed_methods, reason = "the beat is what other waits are measured by")]
                std::thread::sleep(BEAT);
                LIVED.beat(since(&begun));
            }
        };
        // Without the thread the clock would stand still.
        let thread = std::thread::Builder::new().name("beat".to_owned()).spawn(beats);
        // PANIC: a test machine that cannot start a thread cannot test anything.
        drop(thread.expect("the operating system starts a thread"));
        begun
    });
    LIVED.at(since(begun))
}

/// As [`RealScheduler`], but that the time in which the whole process did not run hardly counts.
#[derive(Debug)]
pub struct PatientScheduler {
    /// The same threads, and the performance counter.
    threads: RealScheduler,
    /// [`lived`] when the machine was started.
    boot: u64,
}

impl PatientScheduler {
    /// Time begins now.
    pub fn new() -> Self {
        Self::aged(Duration::ZERO)
    }

    /// Time began `age` ago.
    pub fn aged(age: Duration) -> Self {
        // The counter begins first, so that it is never behind the clock.
        let now = Instant::now();
        // The beat has begun long before: below its beginning there is no time.
        let boot = lived().wrapping_sub(u64::try_from(age.as_nanos()).unwrap_or(0));
        Self { threads: RealScheduler::since(now.checked_sub(age).unwrap_or(now)), boot }
    }
}

impl Default for PatientScheduler {
    fn default() -> Self {
        Self::new()
    }
}

impl Scheduler for PatientScheduler {
    #[inline]
    fn now(&self) -> Ticks {
        lived().wrapping_sub(self.boot) / 100
    }

    #[inline]
    fn counter(&self) -> Ticks {
        self.threads.now()
    }

    fn park(&self, slot: &Slot, deadline: Option<Ticks>) -> bool {
        let Some(deadline) = deadline else { return slot.wait_token(None) };
        loop {
            let left = deadline.saturating_sub(self.now());
            let left = Duration::from_micros(left / 10) + Duration::from_nanos(left % 10 * 100);
            // A deadline that the clock does not reach is none.
            let until = Instant::now().checked_add(left);
            if slot.wait_token(until) {
                return true;
            }
            if self.now() >= deadline {
                return false;
            }
        }
    }

    fn unpark(&self, slot: &Slot) {
        self.threads.unpark(slot);
    }

    fn spin(&self, slot: &Slot, word: usize, round: u32) {
        self.threads.spin(slot, word, round);
    }

    fn stall(&self, _slot: &Slot, ticks: Ticks) {
        let until = self.now() + ticks;
        while self.now() < until {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::TICKS_PER_MS;

    const MS: u64 = 1_000_000;

    #[test]
    fn of_the_time_between_two_beats_a_little_counts() {
        let lived = Lived::new();
        assert_eq!(lived.at(3 * MS), 3 * MS);
        lived.beat(5 * MS);
        assert_eq!(lived.at(9 * MS), 9 * MS);
        // The process stands still for a second: a reader before the next beat sees no more than one behind it.
        assert_eq!(lived.at(1005 * MS), 5 * MS + MOST);
        lived.beat(1005 * MS);
        assert_eq!(lived.at(1005 * MS), 5 * MS + MOST);
        assert_eq!(lived.at(1006 * MS), 6 * MS + MOST);
    }

    #[test]
    fn the_clock_never_goes_back() {
        let lived = Lived::new();
        let mut last = 0;
        for time in (0..400).map(|step| step * step * MS / 7) {
            if time % 3 != 0 {
                lived.beat(time);
            }
            let now = lived.at(time);
            assert!(now >= last && now <= time, "{now} after {last}, at {time}");
            last = now;
        }
    }

    #[test]
    fn the_counter_is_never_behind_the_clock() {
        let sched = PatientScheduler::aged(Duration::from_secs(5));
        let now = sched.now();
        assert!(now >= 5_000 * TICKS_PER_MS);
        assert!((now..now + 5_000 * TICKS_PER_MS).contains(&sched.counter()));
    }
}
