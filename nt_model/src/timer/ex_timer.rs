//! `ExAllocateTimer` and its kin: a timer and a DPC in one allocation, that calls the driver back.

use std::sync::atomic::Ordering;

use crate::callback;
use crate::io::{allocate, at};
use crate::kernel::Machine;
use crate::pool::PoolUse;
use crate::records::{KDPC, KTIMER};
use crate::routines;
use crate::rules_nt::NT_OBJECT_KIND;
use crate::sched::TICKS_PER_MS;
use crate::shims;

const TAG: u32 = u32::from_le_bytes(*b"ExTm");
const WHAT: &str = "a timer of ExAllocateTimer";
/// Behind the timer: its DPC, then the driver's callback and context.
const DPC: usize = size_of::<KTIMER>();
const CALLBACK: usize = DPC + size_of::<KDPC>();

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
    #[track_caller]
    pub(crate) fn allocate_ex_timer(&self, callback: usize, context: usize) -> usize {
        let _service = self.service(&routines::EX_ALLOCATE_TIMER, [callback as u64, context as u64]);
        if self.memory.must_fail() {
            return 0;
        }
        let Ok(timer) = allocate(&self.memory, self, CALLBACK + 16, TAG, WHAT) else { return 0 };
        self.initialize_timer(at(timer), false);
        self.initialize_dpc(at(timer + DPC), ROUTINES[0].address.get(), timer, false);
        crate::shim::write_bytes(timer + CALLBACK, &callback.to_le_bytes());
        crate::shim::write_bytes(timer + CALLBACK + 8, &context.to_le_bytes());
        timer
    }

    fn is_ex_timer(&self, timer: usize) -> bool {
        let known = self.pool.used_as(timer) == Some(PoolUse::Service(WHAT));
        self.rules.check(&NT_OBJECT_KIND, known, || format!("{timer:#x} is no timer of ExAllocateTimer"))
    }

    #[track_caller]
    pub(crate) fn set_ex_timer(&self, timer: usize, due: i64, period: i64) -> bool {
        // CAST: printed only.
        let _service = self.service(&routines::EX_SET_TIMER, [timer as u64, due as u64, period as u64]);
        // CAST: periods are in 100 ns here and in milliseconds there; rounded up.
        let period = period.unsigned_abs().div_ceil(TICKS_PER_MS) as u32;
        self.is_ex_timer(timer) && self.set_timer(at(timer), due, period, Some(at(timer + DPC)))
    }

    #[track_caller]
    pub(crate) fn cancel_ex_timer(&self, timer: usize) -> bool {
        let _service = self.service(&routines::EX_CANCEL_TIMER, [timer as u64]);
        self.is_ex_timer(timer) && self.cancel_timer(at(timer))
    }

    #[track_caller]
    pub(crate) fn delete_ex_timer(&self, timer: usize, cancel: bool, wait: bool) -> bool {
        let _service = self.service(&routines::EX_DELETE_TIMER, [timer as u64, cancel.into(), wait.into()]);
        if !self.is_ex_timer(timer) {
            return false;
        }
        let cancelled = cancel && self.cancel_timer(at(timer));
        if !cancelled && wait {
            self.flush_queued_dpcs();
        }
        at::<KTIMER>(timer).dpc.store(0, Ordering::Relaxed);
        self.release_pool(timer);
        cancelled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;
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
        let timer = kernel.allocate_ex_timer(CALLBACKS[0].address.get(), context);
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
}
