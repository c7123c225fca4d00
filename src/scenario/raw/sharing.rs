//! Sharing, and what native fences have beyond the usual.

use super::{Denied, NativeFence, Raw};
use anyhow::{Context, Result};
use dxgkrnl_model::process::Process;
use wddm_abi::{
    D3DDDI_SYNC_OBJECT_ALL_ACCESS, D3DKMT_HANDLE, D3DKMT_OPENNATIVEFENCEFROMNTHANDLE,
    D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2, HANDLE,
};

/// `STANDARD_RIGHTS_READ`, without which a shared object is inaccessible.
pub const READ: u32 = 0x0002_0000;
/// What a process asks for that means to wait and to signal.
pub const ALL: u32 = READ | D3DDDI_SYNC_OBJECT_ALL_ACCESS;

/// Duplicates an NT handle of one process into another: what `DuplicateHandle` does.
///
/// # Errors
/// When it is not open.
pub fn duplicate(handle: HANDLE, from: &Process, to: &Process) -> Result<HANDLE> {
    let object = from.nt().handle_any(handle.expose_provenance() as u64).context("the NT handle is not open")?;
    Ok(std::ptr::with_exposed_provenance_mut(to.nt().insert_handle(object) as usize))
}

/// [`duplicate`] for handles as the user-mode driver has them.
///
/// # Errors
/// As [`duplicate`].
pub fn duplicate_number(handle: u64, from: &Process, to: &Process) -> Result<u64> {
    let object = from.nt().handle_any(handle).context("the NT handle is not open")?;
    Ok(to.nt().insert_handle(object))
}

impl Raw {
    /// The same process and adapter, for another thread.
    pub fn again(&self) -> Self {
        Self { process: self.process.clone(), thunks: self.thunks, adapter: self.adapter }
    }

    /// A record that opens a native fence.
    pub fn open_record(device: D3DKMT_HANDLE, nt_handle: HANDLE) -> D3DKMT_OPENNATIVEFENCEFROMNTHANDLE {
        let mut record = D3DKMT_OPENNATIVEFENCEFROMNTHANDLE::zeroed();
        record.hNtHandle = nt_handle;
        record.hDevice = device;
        record.Flags.set_Shared(true);
        record.Flags.set_NtSecuritySharing(true);
        record
    }

    /// Opens a monitored fence.
    ///
    /// # Errors
    /// The function's status.
    pub fn open_monitored_fence(&self, device: D3DKMT_HANDLE, nt_handle: HANDLE) -> Result<NativeFence, Denied> {
        let mut record = D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2::zeroed();
        record.hNtHandle = nt_handle;
        record.hDevice = device;
        record.Flags.set_Shared(true);
        record.Flags.set_NtSecuritySharing(true);
        self.ok(self.thunks.D3DKMTOpenSyncObjectFromNtHandle2, &mut record)?;
        let part = record.MonitoredFence();
        Ok(NativeFence {
            handle: record.hSyncObject,
            cpu: part.FenceValueCPUVirtualAddress.expose_provenance(),
            gpu: part.FenceValueGPUVirtualAddress,
            monitored: 0,
        })
    }
}
