//! Functions that take a process and no record.

use super::{Denied, Raw};
use wddm_abi::{D3DKMT_SCHEDULINGPRIORITYCLASS, HANDLE, NTSTATUS};

/// What GetCurrentProcess returns.
pub const THIS_PROCESS: HANDLE = std::ptr::without_provenance_mut(usize::MAX);

impl Raw {
    /// Sets the scheduling priority of a process, by this process's NT handle.
    pub(in crate::scenario) fn set_class(&self, process: HANDLE, class: i32) -> NTSTATUS {
        let _inside = self.process.enter();
        let set = self.thunks.D3DKMTSetProcessSchedulingPriorityClass;
        // SAFETY: the function takes any handle and any number.
        unsafe { set(process, D3DKMT_SCHEDULINGPRIORITYCLASS(class)) }
    }

    /// The scheduling priority of a process, by this process's NT handle.
    ///
    /// # Errors
    /// The function's status.
    pub(in crate::scenario) fn class(&self, process: HANDLE) -> Result<i32, Denied> {
        let mut class = D3DKMT_SCHEDULINGPRIORITYCLASS(-1);
        let status = self.class_at(process, &raw mut class);
        if status.is_success() { Ok(class.0) } else { Err(Denied(status)) }
    }

    /// Has the scheduling priority of a process stored at `at`, which is live, or such as the function must refuse.
    pub(in crate::scenario) fn class_at(&self, process: HANDLE, at: *mut D3DKMT_SCHEDULINGPRIORITYCLASS) -> NTSTATUS {
        let _inside = self.process.enter();
        let get = self.thunks.D3DKMTGetProcessSchedulingPriorityClass;
        // SAFETY: the function takes any handle, and stores where it can.
        unsafe { get(process, at) }
    }
}
