//! What a driver makes of callbacks that take their time or fail, of DPCs that come late, and of paging operations that
//! evict.

use super::{number, pointer};
use core::ffi::c_void;
use fencepost::wrap::{copy, decorate, own, reaches, record, theirs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use wddm_abi::DXGK_BUILDPAGINGBUFFER_OPERATION as Operation;
use wddm_abi::ntstatus::{STATUS_SUCCESS, STATUS_UNSUCCESSFUL};
use wddm_abi::{
    BOOLEAN, D3DDDI_DOORBELLSTATUS, DRIVER_INITIALIZATION_DATA, DXGK_INTERRUPT_TYPE, DXGKARG_BUILDPAGINGBUFFER,
    DXGKARG_CONNECTDOORBELL, DXGKARGCB_DISCONNECTDOORBELL, DXGKARGCB_NOTIFY_INTERRUPT_DATA, HANDLE, NTSTATUS,
    PKSYNCHRONIZE_ROUTINE, win_extern,
};

/// What the OS is still to be asked: queue, doorbell, reason.
static TAKEN: Mutex<Option<(usize, usize, D3DDDI_DOORBELLSTATUS)>> = Mutex::new(None);
/// The OS has refused a disconnection.
static REFUSED: AtomicBool = AtomicBool::new(false);
/// Something was notified since the last DPC.
static NOTIFIED: AtomicBool = AtomicBool::new(false);
/// A DPC had nothing to tell of since the last that had.
static WAS_LATE: AtomicBool = AtomicBool::new(false);

reaches! {
    /// A doorbell that another queue is to have is taken from its owner for good.
    takes_for_good: DxgkCbDisconnectDoorbell = aborted;
    keeps_to_itself: DxgkCbDisconnectDoorbell = asked_later;
    /// A refusal of the OS to disconnect a doorbell counts as done.
    believes_refusals: DxgkCbDisconnectDoorbell = taken_for_done;
    /// Behind the first refusal of the OS the driver never asks again.
    asks_once: DxgkCbDisconnectDoorbell = given_up;
    notes_notices: DxgkCbNotifyInterrupt = noted;
}

win_extern! {
    fn asked_later(args: *mut DXGKARGCB_DISCONNECTDOORBELL) -> NTSTATUS {
        let record = copy!(args);
        let asked = (number(record.hHwQueue), number(record.hDoorbell), record.DisconnectReason);
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(asked);
        STATUS_SUCCESS
    }

    fn aborted(args: *mut DXGKARGCB_DISCONNECTDOORBELL) -> NTSTATUS {
        record!(args).DisconnectReason = D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_DISCONNECTED_ABORT;
        theirs!(DxgkCbDisconnectDoorbell(args))
    }

    fn taken_for_done(args: *mut DXGKARGCB_DISCONNECTDOORBELL) -> NTSTATUS {
        let _answer = theirs!(DxgkCbDisconnectDoorbell(args));
        STATUS_SUCCESS
    }

    fn given_up(args: *mut DXGKARGCB_DISCONNECTDOORBELL) -> NTSTATUS {
        if REFUSED.load(Ordering::SeqCst) {
            return STATUS_UNSUCCESSFUL;
        }
        let status = theirs!(DxgkCbDisconnectDoorbell(args));
        REFUSED.store(!status.is_success(), Ordering::SeqCst);
        status
    }

    fn noted(adapter: HANDLE, data: *mut DXGKARGCB_NOTIFY_INTERRUPT_DATA) {
        NOTIFIED.store(true, Ordering::SeqCst);
        theirs!(DxgkCbNotifyInterrupt(adapter, data));
    }

    /// At the device's level: an interrupt of the node's that names no fence.
    fn tells(_context: *mut c_void) -> BOOLEAN {
        let mut data = DXGKARGCB_NOTIFY_INTERRUPT_DATA::zeroed();
        data.InterruptType = DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_MONITORED_FENCE_SIGNALED;
        let device = fencepost::wrap::interface().DeviceHandle;
        theirs!(DxgkCbNotifyInterrupt(device, &raw mut data));
        let _queued = theirs!(DxgkCbQueueDpc(device));
        1
    }
}

decorate! {
    /// For [`asks_behind`].
    connects_and_asks: DxgkDdiConnectDoorbell(args: *mut DXGKARG_CONNECTDOORBELL) -> NTSTATUS {
        let status = own!(DxgkDdiConnectDoorbell(args));
        let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((queue, doorbell, reason)) = taken {
            let mut asks = DXGKARGCB_DISCONNECTDOORBELL::zeroed();
            (asks.hHwQueue, asks.hDoorbell, asks.DisconnectReason) = (pointer(queue), pointer(doorbell), reason);
            let _answer = theirs!(DxgkCbDisconnectDoorbell(&raw mut asks));
        }
        status
    }

    /// For [`tells_in_late_dpcs`].
    tells_anew: DxgkDdiDpcRoutine(context: *mut c_void) {
        own!(DxgkDdiDpcRoutine(context));
        if !NOTIFIED.swap(false, Ordering::SeqCst) {
            NOTIFIED.store(true, Ordering::SeqCst);
            let mut returned = 0;
            let section: PKSYNCHRONIZE_ROUTINE = Some(tells);
            let device = fencepost::wrap::interface().DeviceHandle;
            let _ran = theirs!(DxgkCbSynchronizeExecution(device, section, core::ptr::null_mut(), 0, &raw mut returned));
        }
    }

    /// For [`loses_work_to_late_dpcs`].
    skips_the_next: DxgkDdiDpcRoutine(context: *mut c_void) {
        if NOTIFIED.swap(false, Ordering::SeqCst) {
            if !WAS_LATE.swap(false, Ordering::SeqCst) {
                own!(DxgkDdiDpcRoutine(context));
            }
        } else {
            WAS_LATE.store(true, Ordering::SeqCst);
        }
    }

    /// What is evicted or comes back is not copied.
    forgets_evicted: DxgkDdiBuildPagingBuffer(adapter: HANDLE, args: *mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
        if record!(args).Operation == Operation::DXGK_OPERATION_VIRTUAL_TRANSFER {
            return STATUS_SUCCESS;
        }
        own!(DxgkDdiBuildPagingBuffer(adapter, args))
    }

    /// What the GPU has translated stays, whatever its page tables say.
    keeps_translations: DxgkDdiBuildPagingBuffer(adapter: HANDLE, args: *mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
        if record!(args).Operation == Operation::DXGK_OPERATION_FLUSH_TLB {
            return STATUS_SUCCESS;
        }
        own!(DxgkDdiBuildPagingBuffer(adapter, args))
    }
}

/// A doorbell has another owner before the OS has taken it from its first: [`keeps_to_itself`] and
/// [`connects_and_asks`].
pub fn asks_behind(table: &mut DRIVER_INITIALIZATION_DATA) {
    keeps_to_itself(table);
    connects_and_asks(table);
}

/// A DPC for which nothing is left tells something all the same: [`notes_notices`] and [`tells_anew`].
pub fn tells_in_late_dpcs(table: &mut DRIVER_INITIALIZATION_DATA) {
    notes_notices(table);
    tells_anew(table);
}

/// A DPC for which nothing is left costs the next one its work: [`notes_notices`] and [`skips_the_next`].
pub fn loses_work_to_late_dpcs(table: &mut DRIVER_INITIALIZATION_DATA) {
    notes_notices(table);
    skips_the_next(table);
}
