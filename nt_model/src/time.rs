//! Clocks: performance counter, interrupt time, system time. All three come from the scheduler's clock.

use crate::kernel::Machine;
use crate::routines;
use crate::sched::TICKS_PER_SECOND;
use crate::thread::Thread;

/// System time when a machine starts: 2025-06-01 00:00 UTC in 100 ns since 1601. Fixed, so that two runs agree.
pub const BOOT_SYSTEM_TIME: u64 = 133_932_096_000_000_000;
/// Time between two clock interrupts, in 100 ns: 15.625 ms, as on x64 Windows.
pub const TIME_INCREMENT: u64 = 156_250;

impl Machine {
    /// The performance counter, which counts 10 MHz.
    ///
    /// IRQL: any.
    #[doc(alias = "KeQueryPerformanceCounter")]
    #[inline]
    pub fn query_performance_counter(&self) -> u64 {
        self.now()
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
        if precise { now } else { now - now % TIME_INCREMENT }
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
        self.now() / TIME_INCREMENT
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
