//! How soon an engine looks at a write pointer again.
//!
//! Each look takes the pointer's cache line away from the processor that is about to publish more, which costs that
//! processor two ways between the two. Where submissions follow each other, an engine that is faster than who makes
//! them looks behind each one, and most of the time goes into those ways. So it rests between two looks, for as long as
//! that makes the time per submission less, and no longer: where the next submission waits for the end of the one
//! before, a rest is only lost. Which of the two it is, and how long a rest pays, it finds out by trials that become
//! rare where they find nothing.

/// Looks that a rest leaves out, some 30 ns each, by level.
const RESTS: [u32; 4] = [0, 32, 64, 128];
/// Submissions that a look behind a rest finds at least where they follow each other.
const MANY: u32 = 4;
/// Looks of a trial.
const TRIAL: u32 = 4;
/// Looks in front of the first trial; each that finds nothing better doubles it.
const FIRST: u32 = 32;
/// Looks between two trials at most.
const LAST: u32 = 1024;
/// The part of a second between two looks above which the producer paused, and the time says nothing.
const PAUSED: u64 = 3_000;
/// A clock with fewer ticks per second does not tell the time of one submission from that of another.
const FINE: u64 = 100_000_000;

/// What looks saw of the time per submission.
#[derive(Clone, Copy, Default)]
struct Seen {
    looks: u32,
    ticks: u64,
    submissions: u64,
}

impl Seen {
    fn add(&mut self, submissions: u32, ticks: u64) {
        self.looks += 1;
        self.ticks += ticks;
        self.submissions += u64::from(submissions);
        // What is long past counts less and less.
        if self.looks == 4 * TRIAL {
            *self = Self { looks: self.looks / 2, ticks: self.ticks / 2, submissions: self.submissions / 2 };
        }
    }

    /// Returns whether a submission takes less time here than there, by an eighth at least; or not more than that above
    /// it, where `shorter` rests are tried.
    fn is_better(&self, than: &Self, shorter: bool) -> bool {
        let here = self.ticks.saturating_mul(than.submissions);
        let there = than.ticks.saturating_mul(self.submissions);
        if shorter { here <= there.saturating_add(there / 16) } else { here <= there - there / 8 }
    }
}

/// Whether and how long an engine rests between looks at the hot queue's write pointer.
pub(super) struct Pace {
    level: usize,
    seen: Seen,
    /// A trial of another level.
    trial: Option<(usize, Seen)>,
    /// The next trial is of a shorter rest.
    down: bool,
    /// Looks until the next trial.
    until: u32,
    /// Looks between two trials.
    between: u32,
    /// When the last look was.
    last: u64,
    /// Ticks between two looks above which the producer paused; 0: the clock is too coarse for trials.
    paused: u64,
}

impl Pace {
    /// No rests, as far as is known, by a clock of so many ticks per second; one that is too coarse leaves it at that.
    pub fn new(frequency: u64) -> Self {
        let paused = if frequency < FINE { 0 } else { frequency / PAUSED };
        let (seen, between) = (Seen::default(), FIRST);
        Self { level: 0, seen, trial: None, down: false, until: FIRST, between, last: 0, paused }
    }

    /// Returns whether it rests, or tries to.
    pub fn rests(&self) -> bool {
        self.rest() != 0
    }

    /// Looks to leave out before the next.
    pub fn rest(&self) -> u32 {
        let level = self.trial.map_or(self.level, |(level, _)| level);
        RESTS.get(level).copied().unwrap_or(0)
    }

    /// The work that a look found is done: of `submissions`, the last of them at the time `now`.
    pub fn found(&mut self, submissions: u32, now: u64) {
        let ticks = now.saturating_sub(core::mem::replace(&mut self.last, now));
        if submissions == 0 || self.paused == 0 || ticks > self.paused {
            return;
        }
        if self.rests() && submissions < MANY {
            // One by one.
            return self.reject();
        }
        match &mut self.trial {
            Some((level, seen)) => {
                seen.add(submissions, ticks);
                if seen.looks == TRIAL {
                    if seen.is_better(&self.seen, *level < self.level) {
                        self.down = *level < self.level;
                        (self.level, self.seen) = (*level, *seen);
                        self.trial = None;
                        (self.until, self.between) = (TRIAL, FIRST);
                    } else {
                        self.reject();
                    }
                }
            }
            None => {
                self.seen.add(submissions, ticks);
                self.until = self.until.saturating_sub(1);
                if self.until == 0 {
                    let next = if self.down { self.level.checked_sub(1) } else { Some(self.level + 1) };
                    self.trial = next.filter(|level| *level < RESTS.len()).map(|level| (level, Seen::default()));
                    self.down = !self.down;
                    self.until = self.between;
                }
            }
        }
    }

    /// The trial, or the rest where there is none, was no good.
    fn reject(&mut self) {
        if self.trial.take().is_none() {
            (self.level, self.seen) = (0, Seen::default());
        }
        self.between = (self.between * 2).min(LAST);
        self.until = self.between;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGAHERTZ: u64 = 1_000_000_000;

    /// Ticks of a look that finds nothing, or is left out.
    const LOOK: u64 = 100;

    /// A processor that makes submissions.
    struct Producer {
        /// Ticks of a submission.
        makes: u64,
        /// Ticks that a look at the write pointer costs it.
        taken: u64,
        /// It waits for the end of as many before it makes the next; 0: never.
        batch: u64,
        /// Ticks from there to here, and back.
        way: u64,
    }

    /// Plays `looks` with work in them; the time per submission of the last half, and the rest at the end.
    fn play(pace: &mut Pace, producer: &Producer, looks: u32) -> (u64, u32) {
        // When the producer is done with its next, whether a look has taken the line from it, what was made and done.
        let (mut now, mut at, mut stolen, mut made, mut done) = (0, producer.makes, false, 0_u64, 0_u64);
        let (mut half, mut found) = ((0, 0), 0);
        while found < looks {
            now += LOOK * u64::from(1 + pace.rest());
            while at <= now && (producer.batch == 0 || made < done / producer.batch * producer.batch + producer.batch) {
                at += producer.makes + if core::mem::take(&mut stolen) { producer.taken } else { 0 };
                made += 1;
            }
            stolen = true;
            if made == done {
                continue;
            }
            now += 20 * (made - done);
            pace.found((made - done) as u32, now);
            done = made;
            if producer.batch != 0 && done.is_multiple_of(producer.batch) {
                at = now + producer.way + producer.makes;
            }
            found += 1;
            if found == looks / 2 {
                half = (now, done);
            }
        }
        ((now - half.0) / (done - half.1), pace.rest())
    }

    /// One at a time: rests are tried ever more seldom, and cost next to nothing.
    #[test]
    fn single_submissions_are_not_rested_for() {
        let producer = Producer { makes: 60, taken: 300, batch: 1, way: 600 };
        let mut pace = Pace::new(GIGAHERTZ);
        let (time, rest) = play(&mut pace, &producer, 20_000);
        let mut still = Pace { until: u32::MAX, ..Pace::new(GIGAHERTZ) };
        let (alone, _) = play(&mut still, &producer, 20_000);
        assert!(rest == 0 && time <= alone + alone / 50, "{time} {alone} {rest}");
    }

    /// A stream whose maker loses much by each look is left alone for long.
    #[test]
    fn a_stream_that_looks_slow_down_is_rested_for() {
        let producer = Producer { makes: 100, taken: 800, batch: 0, way: 0 };
        let mut pace = Pace::new(GIGAHERTZ);
        let (time, rest) = play(&mut pace, &producer, 5_000);
        let mut still = Pace { until: u32::MAX, ..Pace::new(GIGAHERTZ) };
        let (alone, _) = play(&mut still, &producer, 5_000);
        assert!(rest >= 32 && 2 * time < alone, "{time} {alone} {rest}");
    }

    /// A stream that no look disturbs is not rested for.
    #[test]
    fn a_stream_that_looks_do_not_slow_down_is_not_rested_for() {
        let mut pace = Pace::new(GIGAHERTZ);
        let (_, rest) = play(&mut pace, &Producer { makes: 100, taken: 0, batch: 0, way: 0 }, 5_000);
        assert!(rest <= 32, "{rest}");
    }

    /// Behind a stream come ten at a time, each ten behind the end of the last: no rest is left that they wait for.
    #[test]
    fn rests_end_with_the_stream() {
        let stream = Producer { makes: 100, taken: 800, batch: 0, way: 0 };
        let tens = Producer { makes: 100, taken: 0, batch: 10, way: 300 };
        let mut pace = Pace::new(GIGAHERTZ);
        assert!(play(&mut pace, &stream, 5_000).1 >= 32);
        let (time, rest) = play(&mut pace, &tens, 20_000);
        let mut still = Pace { until: u32::MAX, ..Pace::new(GIGAHERTZ) };
        let (alone, _) = play(&mut still, &tens, 20_000);
        assert!(rest == 0 && time <= alone + alone / 8, "{time} {alone} {rest}");
        // And where they come one by one, at once.
        assert!(play(&mut pace, &stream, 5_000).1 >= 32);
        pace.found(1, pace.last + 500);
        assert_eq!(pace.rest(), 0);
    }

    /// By a clock whose tick is as long as a submission, trials would decide by chance: there are none.
    #[test]
    fn a_coarse_clock_tries_nothing() {
        let mut pace = Pace::new(10_000_000);
        for look in 0..10_000 {
            pace.found(MANY, look);
            assert!(!pace.rests());
        }
    }
}
