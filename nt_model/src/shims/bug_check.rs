//! Bug check callbacks.

use crate::bug_check::INSERTED;
use crate::routines;
use crate::shim;
use crate::shims;

/// Offsets in `KBUGCHECK_REASON_CALLBACK_RECORD`.
const ROUTINE: usize = 16;
const COMPONENT: usize = 24;
const REASON: usize = 40;
const STATE: usize = 44;

shims! {
    pub(crate) table BUG_CHECK;

    fn KeRegisterBugCheckReasonCallback(m, record: usize, routine: usize, reason: u32, component: usize) -> u8 {
        let arguments = [record as u64, routine as u64, reason.into(), component as u64];
        let _service = m.service(&routines::KE_REGISTER_BUG_CHECK_REASON_CALLBACK, arguments);
        // A record that KeInitializeCallbackRecord has not touched, or that is registered, is refused.
        if shim::read_bytes(record + STATE, 1) != [0] || !m.register_bug_check_callback(record, routine, reason) {
            return 0;
        }
        shim::write_bytes(record + ROUTINE, &(routine as u64).to_le_bytes());
        shim::write_bytes(record + COMPONENT, &(component as u64).to_le_bytes());
        shim::write_bytes(record + REASON, &reason.to_le_bytes());
        shim::write_bytes(record + STATE, &[INSERTED]);
        1
    }

    fn KeDeregisterBugCheckReasonCallback(m, record: usize) -> u8 {
        let _service = m.service(&routines::KE_DEREGISTER_BUG_CHECK_REASON_CALLBACK, [record as u64]);
        if !m.deregister_bug_check_callback(record) {
            return 0;
        }
        shim::write_bytes(record + STATE, &[0]);
        1
    }
}
