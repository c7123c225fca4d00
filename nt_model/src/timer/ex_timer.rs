//! `ExAllocateTimer` and its kin: a timer and a DPC in one allocation, that calls the driver back. Without a callback a
//! thread waits for the timer itself.
//!
//! Source: wdm.h ExAllocateTimer, ExSetTimer, ExDeleteTimer; windows-driver-docs kernel/high-resolution-timers.

use std::sync::atomic::Ordering;

use crate::callback;
use crate::io::{allocate, at};
use crate::kernel::Machine;
use crate::pool::PoolUse;
use crate::records::{DispatcherHeader, KDPC, KTIMER};
use crate::routines::{self, APC_LEVEL};
use crate::rules::Details;
use crate::rules_nt::{NT_EX_TIMER, NT_IRQL, NT_OBJECT_KIND};
use crate::sched::TICKS_PER_MS;
use crate::shims;
use crate::timer::Arming;

const TAG: u32 = u32::from_le_bytes(*b"ExTm");
const WHAT: &str = "a timer of ExAllocateTimer";
/// Behind the timer: its DPC, then the driver's callback and context.
const DPC: usize = size_of::<KTIMER>();
const CALLBACK: usize = DPC + size_of::<KDPC>();
const ATTRIBUTES: usize = CALLBACK + 16;

/// `EX_TIMER_HIGH_RESOLUTION`: the timer expires within a millisecond or so of its time, not within a clock tick.
pub const EX_TIMER_HIGH_RESOLUTION: u32 = 4;
/// `EX_TIMER_NO_WAKE`.
pub const EX_TIMER_NO_WAKE: u32 = 8;
/// `EX_TIMER_NOTIFICATION`: stays signalled; without it the timer releases one waiter.
pub const EX_TIMER_NOTIFICATION: u32 = 1 << 31;

/// A timer of [`Machine::allocate_ex_timer`], by its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExTimer(usize);

impl ExTimer {
    /// The timer at an address that a driver passed.
    pub(crate) fn of(address: usize) -> Self {
        Self(address)
    }

    /// What a driver knows it by.
    pub fn address(self) -> usize {
        self.0
    }

    /// The dispatcher object, to wait for. Not after the timer was deleted.
    pub fn header(&self) -> &DispatcherHeader {
        &at::<KTIMER>(self.0).header
    }

    fn has(self, attribute: u32) -> bool {
        *at::<u32>(self.0 + ATTRIBUTES) & attribute != 0
    }
}

shims! {
    table ROUTINES;

    // KDEFERRED_ROUTINE; calls EXT_CALLBACK(Timer, Context).
    fn ExpTimerDpc(m, _dpc: usize, timer: usize, _argument1: usize, _argument2: usize) {
        let [callback, context] = *at::<[usize; 2]>(timer + CALLBACK);
        if callback != 0 {
            let _ = m.call_driver("timer callback", || callback::invoke(callback, [timer, context]));
        }
    }
}

impl Machine {
    /// Makes a timer with these `EX_TIMER_` attributes, which is not set. `callback`: an `EXT_CALLBACK` of the
    /// driver's, or 0. `None`: no memory.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "ExAllocateTimer")]
    #[track_caller]
    pub fn allocate_ex_timer(&self, callback: usize, context: usize, attributes: u32) -> Option<ExTimer> {
        let arguments = [callback as u64, context as u64, attributes.into()];
        let _service = self.service(&routines::EX_ALLOCATE_TIMER, arguments);
        let both = EX_TIMER_HIGH_RESOLUTION | EX_TIMER_NO_WAKE;
        self.rules.check(&NT_EX_TIMER, attributes & both != both, || {
            Details::new("EX_TIMER_HIGH_RESOLUTION and EX_TIMER_NO_WAKE exclude each other")
        });
        if self.memory.must_fail() {
            return None;
        }
        let timer = allocate(&self.memory, self, ATTRIBUTES + 8, TAG, WHAT).ok()?;
        self.initialize_timer(at(timer), attributes & EX_TIMER_NOTIFICATION == 0);
        if callback != 0 {
            self.initialize_dpc(at(timer + DPC), ROUTINES[0].address.get(), timer, false);
        }
        crate::shim::write_bytes(timer + CALLBACK, &callback.to_le_bytes());
        crate::shim::write_bytes(timer + CALLBACK + 8, &context.to_le_bytes());
        crate::shim::write_bytes(timer + ATTRIBUTES, &attributes.to_le_bytes());
        Some(ExTimer(timer))
    }

    fn is_ex_timer(&self, timer: ExTimer) -> bool {
        let known = self.pool.used_as(timer.0) == Some(PoolUse::Service(WHAT));
        self.rules.check(&NT_OBJECT_KIND, known, || format!("{:#x} is no timer of ExAllocateTimer", timer.0))
    }

    /// Sets `timer` to expire at `due` (NT time, that of a high-resolution timer relative) and then every `period`
    /// units of 100 ns (0: once). Returns whether it was set before. A high-resolution timer expires at the next
    /// interrupt of the clock at its finest; any other as [`set_timer`](Self::set_timer) says.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "ExSetTimer")]
    #[track_caller]
    pub fn set_ex_timer(&self, timer: ExTimer, due: i64, period: i64) -> bool {
        // CAST: printed only.
        let _service = self.service(&routines::EX_SET_TIMER, [timer.0 as u64, due as u64, period as u64]);
        if !self.is_ex_timer(timer) {
            return false;
        }
        self.ex_timers_set.fetch_add(1, Ordering::Relaxed);
        let fine = timer.has(EX_TIMER_HIGH_RESOLUTION);
        let relative = self.rules.check(&NT_EX_TIMER, !fine || due < 0, || {
            Details::new("a high-resolution timer is set to an absolute time")
        });
        let due = if fine && relative { self.end_of_fine(due.unsigned_abs()) } else { self.end_of_wait(due) };
        // CAST: periods are in 100 ns here and in milliseconds there; rounded up.
        let period = period.unsigned_abs().div_ceil(TICKS_PER_MS) as u32;
        let calls = *at::<usize>(timer.0 + CALLBACK) != 0;
        let dpc = if calls { timer.0 + DPC } else { 0 };
        self.arm_timer(at(timer.0), Arming { due, period, dpc, fine })
    }

    /// Stops `timer`. Returns whether it was set. Its callback may still be about to run.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "ExCancelTimer")]
    #[track_caller]
    pub fn cancel_ex_timer(&self, timer: ExTimer) -> bool {
        let _service = self.service(&routines::EX_CANCEL_TIMER, [timer.0 as u64]);
        self.is_ex_timer(timer) && self.cancel_timer(at(timer.0))
    }

    /// Deletes `timer`. With `cancel` it is stopped before; with `wait`, which goes with `cancel`, its callback has
    /// ended when this returns. Returns whether it was stopped.
    ///
    /// IRQL: at most DISPATCH_LEVEL, with `wait` at most APC_LEVEL.
    #[doc(alias = "ExDeleteTimer")]
    #[track_caller]
    pub fn delete_ex_timer(&self, timer: ExTimer, cancel: bool, wait: bool) -> bool {
        let _service = self.service(&routines::EX_DELETE_TIMER, [timer.0 as u64, cancel.into(), wait.into()]);
        let irql = self.irql();
        self.rules.check(&NT_IRQL, !wait || irql <= APC_LEVEL, || {
            Details::new(format!("ExDeleteTimer with Wait called at IRQL {irql}")).params([irql.into(), 0, 0])
        });
        self.rules.check(&NT_EX_TIMER, cancel || !wait, || Details::new("ExDeleteTimer with Wait and without Cancel"));
        if !self.is_ex_timer(timer) {
            return false;
        }
        let cancelled = cancel && self.cancel_timer(at(timer.0));
        if !cancelled && wait {
            self.flush_queued_dpcs();
        }
        at::<KTIMER>(timer.0).dpc.store(0, Ordering::Relaxed);
        self.release_pool(timer.0);
        cancelled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Kernel, KernelConfig};
    use crate::records::status;
    use crate::sched::seeded::{SeededOptions, SeededScheduler};
    use crate::time::TIME_INCREMENT;
    use crate::{Event, In};

    shims! {
        table CALLBACKS;
        fn SetsEvent(m, _timer: usize, event: In<crate::records::KEVENT>) {
            assert_eq!(m.irql(), routines::DISPATCH_LEVEL);
            m.set_event(event.get(), false);
        }
    }

    #[test]
    fn it_calls_back_until_deleted() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let event = Event::synchronization(false);
        let context = core::ptr::from_ref(event.as_kevent()).expose_provenance();
        let timer = kernel.allocate_ex_timer(CALLBACKS[0].address.get(), context, 0).unwrap();
        assert!(!kernel.set_ex_timer(timer, -10_000, 10_000));
        for _ in 0..3 {
            assert_eq!(kernel.wait_for_event(&event, None), 0);
        }
        assert!(kernel.delete_ex_timer(timer, true, true));
        kernel.flush_queued_dpcs();
        assert!(kernel.rules.violations().is_empty(), "{:?}", kernel.rules.violations());
        kernel.cancel_ex_timer(timer);
        assert!(kernel.rules.was_broken(&NT_OBJECT_KIND));
    }

    /// A machine with a virtual clock.
    fn virtual_clock() -> Kernel {
        let scheduler = SeededScheduler::new(SeededOptions::new(1));
        Kernel::new(KernelConfig { scheduler: Some(scheduler), ..KernelConfig::collecting() })
    }

    #[test]
    fn a_high_resolution_timer_ends_a_wait_within_a_millisecond_of_its_time() {
        let kernel = virtual_clock();
        let _in = kernel.enter();
        let event = Event::synchronization(false);
        let fine = kernel.allocate_ex_timer(0, 0, EX_TIMER_HIGH_RESOLUTION).unwrap();
        let coarse = kernel.allocate_ex_timer(0, 0, 0).unwrap();
        let waits = |timer: ExTimer, due: i64| {
            kernel.delay_execution(-(3 * TIME_INCREMENT as i64) + (kernel.now() % TIME_INCREMENT) as i64);
            let before = kernel.now();
            kernel.set_ex_timer(timer, due, 0);
            let ended = kernel.wait_for_objects_by_clock(&[&event.as_kevent().header, timer.header()], false, None);
            assert_eq!(ended, 1, "the timer, not the event");
            kernel.now() - before
        };
        for _ in 0..4 {
            let time = waits(fine, -500);
            assert!((500..10_600).contains(&time), "{time}");
            let time = waits(coarse, -500);
            assert!((150_000..157_000).contains(&time), "{time}");
        }
        // It releases one waiter, once.
        assert_eq!(kernel.wait_for_object(fine.header(), Some(-1_000_000)), status::TIMEOUT);
        for timer in [fine, coarse] {
            assert!(!kernel.delete_ex_timer(timer, true, true));
        }
        assert!(kernel.rules.violations().is_empty(), "{:?}", kernel.rules.violations());
    }

    /// The rules that `f` breaks in a fresh machine.
    fn broken_by(f: impl FnOnce(&Kernel, ExTimer)) -> Vec<&'static str> {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let timer = kernel.allocate_ex_timer(0, 0, EX_TIMER_HIGH_RESOLUTION | EX_TIMER_NOTIFICATION).unwrap();
        assert!(kernel.rules.violations().is_empty());
        f(&kernel, timer);
        kernel.rules.violations().iter().map(|violation| violation.rule.name).collect()
    }

    #[test]
    fn arguments_that_end_in_a_bug_check_are_caught() {
        let broken = broken_by(|kernel, _| {
            kernel.allocate_ex_timer(0, 0, EX_TIMER_HIGH_RESOLUTION | EX_TIMER_NO_WAKE);
        });
        assert_eq!(broken, [NT_EX_TIMER.name]);
        assert_eq!(broken_by(|kernel, timer| _ = kernel.set_ex_timer(timer, 10_000, 0)), [NT_EX_TIMER.name]);
        assert_eq!(broken_by(|kernel, timer| _ = kernel.delete_ex_timer(timer, false, true)), [NT_EX_TIMER.name]);
        let broken = broken_by(|kernel, timer| {
            kernel.set_ex_timer(timer, -10_000_000, 0);
            let old = kernel.raise_irql(routines::DISPATCH_LEVEL);
            kernel.delete_ex_timer(timer, true, true);
            kernel.lower_irql(old);
        });
        assert_eq!(broken, [NT_IRQL.name]);
        let broken = broken_by(|kernel, timer| {
            kernel.delete_ex_timer(timer, true, false);
            kernel.delete_ex_timer(timer, true, false);
        });
        assert_eq!(broken, [NT_OBJECT_KIND.name]);
    }
}
