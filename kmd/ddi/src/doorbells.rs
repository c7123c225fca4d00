//! Doorbells. All `PASSIVE_LEVEL`.

use crate::arguments::{bytes_mut, object, os, record, record_mut};
use kmd_core::allocation::ring_memory;
use kmd_core::doorbell::{self, Doorbell};
use kmd_core::handle::Handle;
use kmd_core::hw_queue::HwQueue;
use kmd_core::irql::Passive;
use kmd_core::platform::Platform;
use kmd_core::status::of;
use wddm_abi::ntstatus::STATUS_SUCCESS;
use wddm_abi::{
    DXGKARG_CONNECTDOORBELL, DXGKARG_CREATEDOORBELL, DXGKARG_DESTROYDOORBELL, DXGKARG_DISCONNECTDOORBELL,
    DXGKARG_NOTIFYWORKSUBMISSION, NTSTATUS, win_extern,
};

win_extern! {
    /// `DxgkDdiCreateDoorbell`.
    pub(crate) fn create_doorbell[P: Platform](args: *mut DXGKARG_CREATEDOORBELL) -> NTSTATUS {
        // SAFETY: called at PASSIVE_LEVEL.
        let irql = unsafe { Passive::assume() };
        // SAFETY: Dxgkrnl's record, valid for the call.
        of(unsafe { record_mut(args) }.and_then(|args| {
            let queue = object::<HwQueue<P>>(args.hHwQueue)?;
            let ring = ring_memory::<P>(Handle::from_ptr(args.hRingBuffer))?;
            let control = match args.hRingBufferControl.is_null() {
                true => None,
                false => Some(ring_memory::<P>(Handle::from_ptr(args.hRingBufferControl))?),
            };
            // SAFETY: Dxgkrnl's copy of the private data, of that size, copied back to user mode.
            let private = unsafe { bytes_mut(args.PrivateDriverData, args.PrivateDriverDataSize) }?;
            let handle = Doorbell::create(&irql, &queue, os(args.hDoorbell), ring, control, private)?;
            args.hDoorbell = handle.as_ptr();
            Ok(())
        }))
    }

    /// `DxgkDdiConnectDoorbell`.
    pub(crate) fn connect_doorbell[P: Platform](args: *mut DXGKARG_CONNECTDOORBELL) -> NTSTATUS {
        // SAFETY: called at PASSIVE_LEVEL.
        let irql = unsafe { Passive::assume() };
        // SAFETY: Dxgkrnl's record, valid for the call.
        of(unsafe { record_mut(args) }.and_then(|args| {
            let doorbell = object::<Doorbell<P>>(args.hDoorbell)?;
            let connection = doorbell.connect(&irql)?;
            args.KernelCpuVirtualAddress = connection.address.cast();
            // No secondary doorbells: the caps say so.
            args.SecondaryKernelCpuVirtualAddress = core::ptr::null_mut();
            args.Status = connection.status;
            Ok(())
        }))
    }

    /// `DxgkDdiDisconnectDoorbell`. Must succeed.
    pub(crate) fn disconnect_doorbell[P: Platform](args: *mut DXGKARG_DISCONNECTDOORBELL) -> NTSTATUS {
        // SAFETY: called at PASSIVE_LEVEL.
        let irql = unsafe { Passive::assume() };
        // SAFETY: Dxgkrnl's record, valid for the call.
        let found = unsafe { record(args.cast_const()) }.and_then(|args| object::<Doorbell<P>>(args.hDoorbell));
        if let Ok(doorbell) = found {
            doorbell.disconnect(&irql);
        }
        STATUS_SUCCESS
    }

    /// `DxgkDdiDestroyDoorbell`. Must succeed.
    pub(crate) fn destroy_doorbell[P: Platform](args: *mut DXGKARG_DESTROYDOORBELL) -> NTSTATUS {
        // SAFETY: called at PASSIVE_LEVEL.
        let irql = unsafe { Passive::assume() };
        // SAFETY: Dxgkrnl's record, valid for the call.
        let _gone = unsafe { record(args.cast_const()) }
            .and_then(|args| Doorbell::<P>::destroy(&irql, Handle::from_ptr(args.hDoorbell)));
        STATUS_SUCCESS
    }

    /// `DxgkDdiNotifyWorkSubmission`. Must succeed.
    pub(crate) fn notify_work_submission[P: Platform](args: *mut DXGKARG_NOTIFYWORKSUBMISSION) -> NTSTATUS {
        // SAFETY: called at PASSIVE_LEVEL.
        let irql = unsafe { Passive::assume() };
        // SAFETY: Dxgkrnl's record, valid for the call.
        let queue = unsafe { record(args.cast_const()) }.and_then(|args| object::<HwQueue<P>>(args.hHwQueue));
        if let Ok(queue) = queue {
            doorbell::notify_work(&irql, &queue);
        }
        STATUS_SUCCESS
    }
}
