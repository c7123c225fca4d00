//! `KeSaveExtendedProcessorState`: vector registers in kernel mode.
//!
//! A thread of the host process has its vector registers to itself, so nothing needs saving; what is checked is that
//! the two calls pair, on one thread.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::kernel::Machine;
use crate::records::{status, status::NtStatus};
use crate::routines;
use crate::rules_nt::NT_XSTATE;

/// Saved states of one machine: where, by which thread.
#[derive(Debug, Default)]
pub(crate) struct ExtendedStates {
    saved: Mutex<HashMap<usize, u64>>,
}

impl Machine {
    /// Notes that the calling thread saved its state at `save` (`XSTATE_SAVE`).
    ///
    /// IRQL: at most DISPATCH_LEVEL. A second save at the same place breaks NT-XSTATE.
    #[doc(alias = "KeSaveExtendedProcessorState")]
    #[track_caller]
    pub fn save_extended_state(&self, mask: u64, save: usize) -> NtStatus {
        let _service = self.service(&routines::KE_SAVE_EXTENDED_PROCESSOR_STATE, [mask, save as u64]);
        if self.memory.must_fail() {
            return status::INSUFFICIENT_RESOURCES;
        }
        let old = self.extended_states.saved.lock().insert(save, self.current_thread_id());
        self.rules.check(&NT_XSTATE, old.is_none(), || format!("{save:#x} is saved to already"));
        status::SUCCESS
    }

    /// Undoes [`save_extended_state`](Self::save_extended_state).
    ///
    /// IRQL: at most DISPATCH_LEVEL. On another thread, or without a save, this breaks NT-XSTATE.
    #[doc(alias = "KeRestoreExtendedProcessorState")]
    #[track_caller]
    pub fn restore_extended_state(&self, save: usize) {
        let _service = self.service(&routines::KE_RESTORE_EXTENDED_PROCESSOR_STATE, [save as u64]);
        let by = self.extended_states.saved.lock().remove(&save);
        let me = self.current_thread_id();
        self.rules.check(&NT_XSTATE, by == Some(me), || match by {
            None => format!("nothing is saved at {save:#x}"),
            Some(by) => format!("thread {by} saved at {save:#x}, thread {me} restores"),
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::kernel::Kernel;
    use crate::rules_nt::NT_XSTATE;

    #[test]
    fn saves_and_restores_pair() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        kernel.save_extended_state(4, 0x1000);
        kernel.restore_extended_state(0x1000);
        assert!(kernel.rules.violations().is_empty());
        kernel.restore_extended_state(0x1000);
        assert!(kernel.rules.was_broken(&NT_XSTATE));
    }
}
