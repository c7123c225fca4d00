//! Connections and notifications of a room's doorbells, by the records that this Windows has.

use super::Room;
use crate::scenario::{Denied, Raw};
use dxgkrnl_model::thunks::is_exported;
use nt_model::Machine;
use wddm_abi::{D3DKMT_CONNECT_DOORBELL, D3DKMT_HANDLE, D3DKMT_NOTIFY_WORK_SUBMISSION, NTSTATUS, kit_28000};

/// Where gdi32 has this export, a queue owns its doorbell.
const NEWER_DOORBELLS: &str = "D3DKMTCreateHwQueueForUserModeSubmission";

/// Returns whether a queue owns its doorbell, as on the 28000 line.
fn is_newer(raw: &Raw) -> bool {
    let _inside = raw.process.enter();
    Machine::with_current(|machine| machine.is_some_and(|machine| is_exported(machine, NEWER_DOORBELLS)))
}

fn done(status: NTSTATUS) -> Result<(), Denied> {
    if status.is_success() { Ok(()) } else { Err(Denied(status)) }
}

impl Room<'_> {
    /// Connects the doorbell of a queue.
    ///
    /// # Errors
    /// The function's status.
    pub fn connect(&self, queue: D3DKMT_HANDLE, bell: D3DKMT_HANDLE) -> Result<(), Denied> {
        let thunk = self.raw.thunks.D3DKMTConnectDoorbell;
        if is_newer(self.raw) {
            let mut record = kit_28000::D3DKMT_CONNECT_DOORBELL::zeroed();
            record.hHwQueue = queue;
            return done(self.raw.call_at(thunk, core::ptr::from_mut(&mut record).expose_provenance()));
        }
        let mut record = D3DKMT_CONNECT_DOORBELL::zeroed();
        record.hDoorbell = bell;
        self.raw.ok(thunk, &mut record)
    }

    /// Tells the kernel-mode driver of work on a queue.
    ///
    /// # Errors
    /// The function's status.
    pub fn notify(&self, queue: D3DKMT_HANDLE, bell: D3DKMT_HANDLE) -> Result<(), Denied> {
        let thunk = self.raw.thunks.D3DKMTNotifyWorkSubmission;
        if is_newer(self.raw) {
            let mut record = kit_28000::D3DKMT_NOTIFY_WORK_SUBMISSION::zeroed();
            record.hHwQueue = queue;
            return done(self.raw.call_at(thunk, core::ptr::from_mut(&mut record).expose_provenance()));
        }
        let mut record = D3DKMT_NOTIFY_WORK_SUBMISSION::zeroed();
        record.hDoorbell = bell;
        self.raw.ok(thunk, &mut record)
    }
}
