//! IRQL of the calling thread: raise, lower, and what runs when it drops.
//!
//! A thread at DISPATCH_LEVEL or above stands for a processor. DPCs queued there, and interrupts raised there, wait on
//! the thread until its level drops; [`Machine::lower_irql`] then runs them, as the processor would.

use crate::cpu::{self, PENDING_DPC, PENDING_INTERRUPT};
use crate::kernel::Machine;
use crate::routines::{self, DISPATCH_LEVEL, HIGH_LEVEL};
use crate::rules::Details;
use crate::rules_nt::{NT_IRQL_LOWER, NT_IRQL_LOWER_LOCKED, NT_IRQL_RAISE};

impl Machine {
    /// The calling thread's level.
    ///
    /// IRQL: any.
    #[doc(alias = "KeGetCurrentIrql")]
    #[inline]
    pub fn irql(&self) -> u8 {
        cpu::with(|cpu| cpu.irql.get())
    }

    /// Raises to `new` and returns the old level.
    ///
    /// IRQL: at most `new`. A lower `new` breaks NT-IRQL-RAISE and changes nothing.
    #[doc(alias = "KfRaiseIrql")]
    #[doc(alias = "KeRaiseIrql")]
    #[track_caller]
    pub fn raise_irql(&self, new: u8) -> u8 {
        let _service = self.service(&routines::KF_RAISE_IRQL, [u64::from(new)]);
        let old = self.irql();
        if self.rules.check(&NT_IRQL_RAISE, new >= old && new <= HIGH_LEVEL, || bad_level(old, new)) {
            cpu::with(|cpu| cpu.irql.set(new));
        }
        old
    }

    /// Lowers to `new`, then runs the interrupts and DPCs that waited.
    ///
    /// IRQL: at least `new`. A higher `new` breaks NT-IRQL-LOWER and changes nothing.
    #[doc(alias = "KeLowerIrql")]
    #[track_caller]
    pub fn lower_irql(&self, new: u8) {
        let _service = self.service(&routines::KE_LOWER_IRQL, [u64::from(new)]);
        let old = self.irql();
        if !self.rules.check(&NT_IRQL_LOWER, new <= old, || bad_level(old, new)) {
            return;
        }
        let held = cpu::with(|cpu| cpu.held_count());
        self.rules.check(&NT_IRQL_LOWER_LOCKED, held == 0 || new >= DISPATCH_LEVEL, || {
            Details::new(format!("lowered from {old} to {new} with {held} spin locks held")).params([
                old.into(),
                new.into(),
                0,
            ])
        });
        self.set_irql(new);
    }

    /// Sets the level without checks and runs what it lets through.
    #[inline]
    pub(crate) fn set_irql(&self, new: u8) {
        let pending = cpu::with(|cpu| {
            cpu.irql.set(new);
            cpu.pending.get()
        });
        if pending != 0 {
            self.run_pending(new);
        }
    }

    #[cold]
    fn run_pending(&self, level: u8) {
        if cpu::with(|cpu| cpu.pending.get()) & PENDING_INTERRUPT != 0 {
            self.deliver_pending_interrupts(level);
        }
        if level < DISPATCH_LEVEL && cpu::with(|cpu| cpu.pending.get()) & PENDING_DPC != 0 {
            self.run_own_dpcs();
        }
    }

    /// Runs `f` at `level`, then goes back to the level before. `level` must not be below the current one.
    pub(crate) fn at_irql<R>(&self, level: u8, f: impl FnOnce() -> R) -> R {
        let old = cpu::with(|cpu| cpu.irql.replace(level));
        debug_assert!(old <= level, "at_irql only raises: {old} to {level}");
        let result = f();
        self.set_irql(old);
        result
    }
}

fn bad_level(old: u8, new: u8) -> Details {
    Details::new(format!("current IRQL {old}, requested {new}")).params([old.into(), new.into(), 0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;
    use crate::rules_nt::NT_IRQL;

    #[test]
    fn raise_and_lower_pair() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let old = kernel.raise_irql(DISPATCH_LEVEL);
        assert_eq!((old, kernel.irql()), (0, DISPATCH_LEVEL));
        kernel.lower_irql(old);
        assert_eq!(kernel.irql(), 0);
        assert!(kernel.rules.violations().is_empty());
    }

    #[test]
    fn raising_downwards_is_caught() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        kernel.raise_irql(DISPATCH_LEVEL);
        kernel.raise_irql(1);
        assert!(kernel.rules.was_broken(&NT_IRQL_RAISE));
        assert_eq!(kernel.irql(), DISPATCH_LEVEL);
        kernel.lower_irql(0);
    }

    #[test]
    fn lowering_upwards_is_caught() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        kernel.lower_irql(DISPATCH_LEVEL);
        assert!(kernel.rules.was_broken(&NT_IRQL_LOWER));
        assert_eq!(kernel.irql(), 0);
    }

    #[test]
    fn a_passive_service_at_dispatch_is_caught() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        kernel.raise_irql(DISPATCH_LEVEL);
        kernel.flush_queued_dpcs();
        kernel.lower_irql(0);
        let violations = kernel.rules.violations();
        assert_eq!(violations[0].rule.name, NT_IRQL.name);
        assert_eq!((violations[0].code, violations[0].context.irql), (0xC4, DISPATCH_LEVEL));
        assert_eq!(violations[0].context.call.as_ref().map(|call| call.routine), Some("KeFlushQueuedDpcs"));
    }
}
