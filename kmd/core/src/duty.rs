//! How long engines may keep the processors at a real-time priority: `docs/decisions/0004-priority-of-engines.md`.
//!
//! Time is cut into periods of 100 ms, the same for every engine. An engine that has worked in a period pauses in the
//! period's last part, so that all engines that are busy leave the processors to others at the same time. One that has
//! hardly worked goes on, so that short work is not late for the sake of long work.

/// A period, in parts of a second.
const PERIODS_PER_SECOND: u64 = 10;
/// What an engine may work in a period and still not pause, in parts of the period: 4 ms.
const LITTLE: u64 = 25;

/// The periods. Times are values of a counter.
#[derive(Clone, Copy)]
pub(crate) struct Periods {
    length: u64,
    /// The part of each period in which engines work.
    high: u64,
    frequency: u64,
}

impl Periods {
    /// `frequency`: ticks of the counter per second; `share`: percent of each period in which engines work, at most
    /// 100.
    pub fn new(frequency: u64, share: u32) -> Self {
        let length = (frequency / PERIODS_PER_SECOND).max(1);
        let high = length / 100 * u64::from(share) + length % 100 * u64::from(share) / 100;
        Self { length, high, frequency: frequency.max(1) }
    }

    /// The number of the period at `now`, whether its pause has begun, and how long it is until the next pause begins,
    /// in units of 100 ns.
    pub fn pause(&self, now: u64) -> (u64, bool, u64) {
        let at = now % self.length;
        let begun = at >= self.high;
        let left = if begun { self.length - at + self.high } else { self.high - at };
        (now / self.length, begun, self.units(left))
    }

    /// Of a pause that `now` is in, of `parts`: which part, and how long that lasts on, in units of 100 ns.
    pub fn part(&self, now: u64, parts: u64) -> (u64, u64) {
        let into = (now % self.length).saturating_sub(self.high);
        let each = (self.length.saturating_sub(self.high) / parts).max(1);
        (into / each, self.units(each - into % each))
    }

    fn units(&self, ticks: u64) -> u64 {
        // Two tenths of a second at most: nothing overflows below 10^12 ticks per second.
        ticks.saturating_mul(10_000_000).div_ceil(self.frequency)
    }
}

/// The duty of one engine.
pub(crate) struct Duty {
    periods: Periods,
    /// The period that `worked` belongs to.
    number: u64,
    /// Time that the engine did not wait.
    worked: u64,
    /// When the engine was last known to work, or to begin to.
    last: u64,
}

impl Duty {
    /// Of an engine that begins to work `now`.
    pub fn new(periods: Periods, now: u64) -> Self {
        Self { periods, number: 0, worked: 0, last: now }
    }

    /// The engine has worked until `now`. How long it must pause, in units of 100 ns, if it must.
    pub fn worked(&mut self, now: u64) -> Option<u64> {
        let length = self.periods.length;
        let (number, at) = (now / length, now % length);
        if number != self.number {
            (self.number, self.worked) = (number, 0);
        }
        self.worked = self.worked.saturating_add(now.saturating_sub(self.last).min(at));
        self.last = now;
        let pauses = at >= self.periods.high && self.worked >= length / LITTLE;
        pauses.then(|| self.periods.units(length - at))
    }

    /// The engine has waited until `now`.
    pub fn waited(&mut self, now: u64) {
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ticks of 100 ns.
    const FREQUENCY: u64 = 10_000_000;
    const MS: u64 = 10_000;

    /// Plays an engine that works in steps of `step` and is then idle for `idle`, for a second. How long it worked, and
    /// how much of that in the last tenths of periods.
    fn play(step: u64, idle: u64) -> (u64, u64) {
        let (mut now, mut all, mut late) = (123 * MS, 0, 0);
        let mut duty = Duty::new(Periods::new(FREQUENCY, 90), now);
        let end = now + 1000 * MS;
        while now < end {
            late += if now % (100 * MS) >= 90 * MS { step } else { 0 };
            (now, all) = (now + step, all + step);
            let pause = duty.worked(now);
            now += pause.unwrap_or(0) + idle;
            if pause.is_some() || idle != 0 {
                duty.waited(now);
            }
        }
        (all, late)
    }

    #[test]
    fn an_engine_that_never_rests_pauses_for_a_tenth_of_the_time() {
        for step in [MS / 100, MS / 2, MS] {
            let (all, late) = play(step, 0);
            assert!((895..=915).contains(&(all / MS)) && late <= 10 * MS, "{step}: {all}, {late} of them late");
        }
    }

    #[test]
    fn many_short_rests_are_no_way_around_it() {
        let (all, late) = play(MS, MS / 20);
        assert!((840..=900).contains(&(all / MS)) && late <= 10 * MS, "{all}, {late} of them late");
    }

    #[test]
    fn an_engine_with_little_to_do_never_pauses() {
        let (all, late) = play(MS / 50, MS);
        assert!(late * 12 >= all, "{late} of {all}, and not a tenth");
    }

    /// Of a step that reaches over the end of a period, what lies in front of that is not work of the next.
    #[test]
    fn work_counts_in_the_period_that_it_was_done_in() {
        let mut duty = Duty::new(Periods::new(FREQUENCY, 90), 0);
        duty.waited(40 * MS);
        assert_eq!(duty.worked(101 * MS), None);
        duty.waited(191 * MS);
        assert_eq!(duty.worked(192 * MS), None, "it worked for two milliseconds of this period");
    }

    #[test]
    fn a_pause_ends_with_the_period() {
        let mut duty = Duty::new(Periods::new(FREQUENCY, 90), 0);
        assert_eq!(duty.worked(50 * MS), None);
        assert_eq!(duty.worked(93 * MS), Some(7 * MS));
        duty.waited(100 * MS);
        assert_eq!(duty.worked(101 * MS), None);
    }

    #[test]
    fn a_pause_has_parts() {
        let periods = Periods::new(FREQUENCY, 90);
        assert_eq!(periods.part(290 * MS, 4), (0, 25_000));
        assert_eq!(periods.part(294 * MS, 4), (1, 10_000));
        assert_eq!(periods.part(299 * MS, 4), (3, 10_000));
    }

    #[test]
    fn the_next_pause_is_known() {
        let periods = Periods::new(FREQUENCY, 90);
        assert_eq!(periods.pause(250 * MS), (2, false, 40 * MS));
        assert_eq!(periods.pause(290 * MS), (2, true, 100 * MS));
        assert_eq!(periods.pause(299 * MS), (2, true, 91 * MS));
    }
}
