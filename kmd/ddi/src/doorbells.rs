//! Doorbells. All `PASSIVE_LEVEL`.

use crate::arguments::{bytes_mut, object, os};
use crate::thunk::{always, ddi};
use kmd_core::allocation::ring_memory;
use kmd_core::doorbell::{self, Doorbell};
use kmd_core::handle::Handle;
use kmd_core::hw_queue::HwQueue;
use kmd_core::platform::Platform;
use kmd_core::status::of;
use wddm_abi::{
    DXGKARG_CONNECTDOORBELL, DXGKARG_CREATEDOORBELL, DXGKARG_DESTROYDOORBELL, DXGKARG_DISCONNECTDOORBELL,
    DXGKARG_NOTIFYWORKSUBMISSION,
};

ddi! {
    /// `DxgkDdiCreateDoorbell`.
    fn create_doorbell[P: Platform]() at irql: Passive, with args: write *mut DXGKARG_CREATEDOORBELL, answers of {
        let queue = object::<HwQueue<P>>(args.hHwQueue)?;
        let ring = ring_memory::<P>(Handle::from_ptr(args.hRingBuffer))?;
        let control = match args.hRingBufferControl.is_null() {
            true => None,
            false => Some(ring_memory::<P>(Handle::from_ptr(args.hRingBufferControl))?),
        };
        // SAFETY: Dxgkrnl's copy of the private data, of that size, copied back to user mode.
        let private = unsafe { bytes_mut(args.PrivateDriverData, args.PrivateDriverDataSize) }?;
        let resizes = args.Flags.ResizeRingBufferOperation();
        let handle = Doorbell::create(&irql, &queue, os(args.hDoorbell), ring, control, resizes, private)?;
        args.hDoorbell = handle.as_ptr();
        Ok(())
    }

    /// `DxgkDdiConnectDoorbell`.
    fn connect_doorbell[P: Platform]() at irql: Passive, with args: write *mut DXGKARG_CONNECTDOORBELL, answers of {
        let doorbell = object::<Doorbell<P>>(args.hDoorbell)?;
        let connection = doorbell.connect(&irql)?;
        args.KernelCpuVirtualAddress = connection.address.cast();
        // No secondary doorbells: the caps say so.
        args.SecondaryKernelCpuVirtualAddress = core::ptr::null_mut();
        args.Status = connection.status;
        Ok(())
    }

    /// `DxgkDdiDestroyDoorbell`. Must succeed.
    fn destroy_doorbell[P: Platform]() at irql: Passive, with args: read *mut DXGKARG_DESTROYDOORBELL, answers always {
        Doorbell::<P>::destroy(&irql, Handle::from_ptr(args.hDoorbell))
    }

    /// `DxgkDdiDisconnectDoorbell`. Must succeed.
    fn disconnect_doorbell[P: Platform]() at irql: Passive,
        with args: read *mut DXGKARG_DISCONNECTDOORBELL, answers always {
        object::<Doorbell<P>>(args.hDoorbell)?.disconnect(&irql);
        Ok(())
    }

    /// `DxgkDdiNotifyWorkSubmission`. Must succeed.
    fn notify_work_submission[P: Platform]() at irql: Passive,
        with args: read *mut DXGKARG_NOTIFYWORKSUBMISSION, answers always {
        doorbell::notify_work(&irql, &*object::<HwQueue<P>>(args.hHwQueue)?);
        Ok(())
    }
}
