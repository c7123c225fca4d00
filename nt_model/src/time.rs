//! Clocks: performance counter, interrupt time, system time, and when the time-outs of drivers end. All of them come
//! from the scheduler's clock.
//!
//! Drivers' time-outs end at clock interrupts, 15.625 ms apart. One of a wait or of a timer is counted from the
//! interrupt before, so that it can end early by up to the time between two; that of a delay is counted from now, and
//! never ends early. A high-resolution timer makes the clock interrupt more often while it is set. Other time-outs
//! may end sooner then; here they do not.
//!
//! Source: windows-driver-docs kernel/timer-accuracy and kernel/high-resolution-timers.

use std::sync::atomic::Ordering;

use crate::kernel::Machine;
use crate::routines;
use crate::sched::{TICKS_PER_MS, TICKS_PER_SECOND, Ticks};
use crate::thread::Thread;

/// System time when a machine starts: 2025-06-01 00:00 UTC in 100 ns since 1601. Fixed, so that two runs agree.
pub const BOOT_SYSTEM_TIME: u64 = 133_932_096_000_000_000;
/// Time between two clock interrupts, in 100 ns: 15.625 ms, as on x64 Windows.
pub const TIME_INCREMENT: u64 = 156_250;

/// The clock of a machine, as far as drivers' time-outs show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockOptions {
    /// Time between two clock interrupts, in 100 ns; at least 1.
    pub tick: Ticks,
    /// The same while a high-resolution timer is set, in 100 ns; at least 1. "About 1 millisecond".
    pub finest: Ticks,
    /// The time-out of a wait that is shorter than the rest of the tick ends at once: it "might expire immediately".
    /// Otherwise it ends at the next clock interrupt.
    pub ends_at_once: bool,
}

impl Default for ClockOptions {
    fn default() -> Self {
        Self { tick: TIME_INCREMENT, finest: TICKS_PER_MS, ends_at_once: false }
    }
}

impl ClockOptions {
    /// The clock interrupt at `time`, or the first one after it.
    pub(crate) fn interrupt_at(&self, time: Ticks) -> Ticks {
        time.checked_next_multiple_of(self.tick.max(1)).unwrap_or(Ticks::MAX)
    }

    /// When a time-out of `interval` ends that a wait, or a timer, begins `now`.
    fn end_of_wait(&self, now: Ticks, interval: Ticks) -> Ticks {
        let rest = self.interrupt_at(now.saturating_add(1)) - now;
        if self.ends_at_once && interval < rest {
            return now;
        }
        self.interrupt_at((now - now % self.tick.max(1)).saturating_add(interval))
    }

    /// When a high-resolution timer expires that is set `now`.
    fn end_of_fine(&self, now: Ticks, interval: Ticks) -> Ticks {
        now.saturating_add(interval).checked_next_multiple_of(self.finest.max(1)).unwrap_or(Ticks::MAX)
    }
}

impl Machine {
    /// When the time-out of a driver's wait, or a timer of the default resolution, ends.
    pub(crate) fn end_of_wait(&self, timeout: i64) -> Ticks {
        self.count_short(timeout);
        let clock = &self.config().clock;
        match timeout {
            0 => self.now(),
            ..0 => clock.end_of_wait(self.now(), timeout.unsigned_abs()),
            _ => clock.interrupt_at(self.deadline(timeout)),
        }
    }

    /// When a driver's delay ends.
    pub(crate) fn end_of_delay(&self, interval: i64) -> Ticks {
        self.count_short(interval);
        if interval == 0 { self.now() } else { self.config().clock.interrupt_at(self.deadline(interval)) }
    }

    /// When a high-resolution timer expires that is set now, `interval` from now.
    pub(crate) fn end_of_fine(&self, interval: Ticks) -> Ticks {
        self.config().clock.end_of_fine(self.now(), interval)
    }

    fn count_short(&self, timeout: i64) {
        if timeout < 0 && timeout.unsigned_abs() < self.config().clock.tick {
            self.short_waits.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Relative time-outs of drivers that were shorter than a tick of the clock, so that how they end is no time that
    /// anything can rely on.
    pub fn waits_below_a_tick(&self) -> u64 {
        self.short_waits.load(Ordering::Relaxed)
    }

    /// How often `ExSetTimer` has set a timer. A driver that waits for nothing but events sets none.
    pub fn ex_timers_set(&self) -> u64 {
        self.ex_timers_set.load(Ordering::Relaxed)
    }

    /// The performance counter, which counts 10 MHz.
    ///
    /// IRQL: any.
    #[doc(alias = "KeQueryPerformanceCounter")]
    #[inline]
    pub fn query_performance_counter(&self) -> u64 {
        self.sched.counter()
    }

    /// Frequency of [`query_performance_counter`](Self::query_performance_counter), in hertz.
    pub fn performance_frequency(&self) -> u64 {
        TICKS_PER_SECOND
    }

    /// Time since start in 100 ns, at the resolution of the clock interrupt unless `precise`.
    ///
    /// IRQL: any.
    #[doc(alias = "KeQueryInterruptTime")]
    #[doc(alias = "KeQueryInterruptTimePrecise")]
    pub fn query_interrupt_time(&self, precise: bool) -> u64 {
        let now = self.now();
        if precise { now } else { now - now % self.config().clock.tick.max(1) }
    }

    /// System time in 100 ns since 1601, at the resolution of the clock interrupt unless `precise`.
    ///
    /// IRQL: any.
    #[doc(alias = "KeQuerySystemTime")]
    #[doc(alias = "KeQuerySystemTimePrecise")]
    pub fn query_system_time(&self, precise: bool) -> u64 {
        BOOT_SYSTEM_TIME + self.query_interrupt_time(precise)
    }

    /// Clock interrupts since start.
    ///
    /// IRQL: any.
    #[doc(alias = "KeQueryTickCount")]
    pub fn query_tick_count(&self) -> u64 {
        self.now() / self.config().clock.tick.max(1)
    }

    /// Busy waiting.
    ///
    /// IRQL: any.
    #[doc(alias = "KeStallExecutionProcessor")]
    #[track_caller]
    pub fn stall_execution(&self, microseconds: u32) {
        let _service = self.service(&routines::KE_STALL_EXECUTION_PROCESSOR, [microseconds.into()]);
        self.with_current_thread(|thread: &Thread| self.sched.stall(&thread.slot, u64::from(microseconds) * 10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;

    /// 100 ns after an interrupt; 1 ms before one.
    const EARLY: Ticks = 7 * TIME_INCREMENT + 1;
    const LATE: Ticks = 8 * TIME_INCREMENT - 10_000;

    #[test]
    fn a_time_out_is_counted_from_the_interrupt_before_and_ends_at_one() {
        let clock = ClockOptions::default();
        for now in [EARLY, LATE] {
            assert_eq!(clock.end_of_wait(now, 1), 8 * TIME_INCREMENT);
            assert_eq!(clock.end_of_wait(now, TIME_INCREMENT), 8 * TIME_INCREMENT, "15 ms that may be 1 ms");
            assert_eq!(clock.end_of_wait(now, TIME_INCREMENT + 1), 9 * TIME_INCREMENT);
        }
    }

    #[test]
    fn a_short_time_out_can_end_at_once() {
        let clock = ClockOptions { ends_at_once: true, ..ClockOptions::default() };
        assert_eq!(clock.end_of_wait(EARLY, 100_000), EARLY);
        assert_eq!(clock.end_of_wait(LATE, 9_999), LATE);
        assert_eq!(clock.end_of_wait(LATE, 10_000), 8 * TIME_INCREMENT);
    }

    #[test]
    fn a_driver_that_sleeps_wakes_at_a_clock_interrupt_and_never_early() {
        use crate::sched::seeded::{SeededOptions, SeededScheduler};
        let scheduler = SeededScheduler::new(SeededOptions::new(1));
        let config = crate::KernelConfig { scheduler: Some(scheduler), ..crate::KernelConfig::collecting() };
        let kernel = Kernel::new(config);
        let _in = kernel.enter();
        let event = crate::Event::synchronization(false);
        let slept = |f: &dyn Fn()| {
            let before = kernel.now();
            f();
            (kernel.now() - before, kernel.now() % TIME_INCREMENT)
        };
        // A few ticks of the virtual clock are the services' own.
        for _ in 0..3 {
            let (time, behind) = slept(&|| _ = kernel.delay_by_clock(-1_000));
            assert!((1_000..=TIME_INCREMENT + 20).contains(&time) && behind < 20, "{time}, {behind} behind a tick");
            let (time, behind) = slept(&|| _ = kernel.delay_by_clock(-(TIME_INCREMENT as i64)));
            assert!(time >= TIME_INCREMENT && behind < 20, "{time}, {behind} behind a tick");
            kernel.delay_execution(-70_000);
            let (time, behind) =
                slept(&|| _ = kernel.wait_by_clock(&event.as_kevent().header, Some(-(TIME_INCREMENT as i64))));
            assert!(time < TIME_INCREMENT - 60_000 && behind < 20, "{time}, {behind} behind a tick");
        }
        assert_eq!(kernel.waits_below_a_tick(), 3);
        let (time, _) = slept(&|| _ = kernel.delay_execution(-1_000));
        assert!((1_000..1_020).contains(&time), "the model's own delays end when they say");
    }

    #[test]
    fn clocks_advance_together() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let start = kernel.query_performance_counter();
        kernel.stall_execution(100);
        assert!(kernel.query_performance_counter() - start >= 1000);
        assert!(kernel.query_system_time(true) > BOOT_SYSTEM_TIME);
        assert!(kernel.query_interrupt_time(false) <= kernel.query_interrupt_time(true));
    }
}
