//! Thunks about callbacks that trim. What they do: [`crate::objects::process`].
//!
//! Source: DDI pages D3DKMT_REGISTERTRIMNOTIFICATION, D3DKMT_UNREGISTERTRIMNOTIFICATION. Chosen: the LUID is that of
//! the device's adapter, and the callback that is taken back is the one that was registered.

use wddm_abi::{D3DKMT_REGISTERTRIMNOTIFICATION, D3DKMT_UNREGISTERTRIMNOTIFICATION, ntstatus};

use super::adapter::number;
use super::device::device;
use super::{DONE, INVALID, thunks};

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
        let handle = call.process.trims.register(&device, callback, record.Context.expose_provenance());
        record.Handle = core::ptr::with_exposed_provenance_mut(handle.ok_or(ntstatus::STATUS_NO_MEMORY)?);
        DONE
    }

    fn D3DKMTUnregisterTrimNotification(call, record: D3DKMT_UNREGISTERTRIMNOTIFICATION) {
        let (handle, callback) = (record.Handle.expose_provenance(), address!(record.Callback));
        if call.process.trims.unregister(handle, callback) { DONE } else { Err(INVALID) }
    }
}
