//! Thunks about callbacks that trim. What they do: [`crate::entry::trim`].
//!
//! Source: DDI pages D3DKMT_REGISTERTRIMNOTIFICATION, D3DKMT_UNREGISTERTRIMNOTIFICATION. Chosen: the LUID is that of
//! the device's adapter, and the callback that is taken back is the one that was registered.

use wddm_abi::{D3DKMT_REGISTERTRIMNOTIFICATION, D3DKMT_UNREGISTERTRIMNOTIFICATION, ntstatus};

use super::adapter::number;
use super::device::device;
use super::{DONE, INVALID, thunks};
use crate::entry::trim::Trims;

/// The address of a callback; 0: none.
macro_rules! address {
    ($callback:expr) => {
        $callback.map_or(0, |callback| (callback as *const ()).expose_provenance())
    };
}

thunks! {
    /// Callbacks that trim.
    table THUNKS;

    fn D3DKMTRegisterTrimNotification(call, record: D3DKMT_REGISTERTRIMNOTIFICATION) {
        let device = device(call, record.hDevice)?;
        let callback = address!(record.Callback);
        if callback == 0 || number(record.AdapterLuid) != device.adapter().luid_number() {
            return Err(INVALID);
        }
        let told = (callback, record.Context.expose_provenance());
        let handle = Trims::of(&call.shared).register(call.process.nt(), &device, told);
        record.Handle = core::ptr::with_exposed_provenance_mut(handle.ok_or(ntstatus::STATUS_NO_MEMORY)?);
        DONE
    }

    fn D3DKMTUnregisterTrimNotification(call, record: D3DKMT_UNREGISTERTRIMNOTIFICATION) {
        let (handle, callback) = (record.Handle.expose_provenance(), address!(record.Callback));
        let is_known = Trims::of(&call.shared).unregister(call.process.nt(), handle, callback);
        if is_known { DONE } else { Err(INVALID) }
    }
}
