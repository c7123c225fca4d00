//! What a driver makes of callbacks that take their time or fail, of DPCs that come late, and of paging operations that
//! evict.

use super::{number, pointer};
use core::ffi::c_void;
use fencepost::wrap::{copy, decorate, own, reaches, record, theirs};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use wddm_abi::DXGK_BUILDPAGINGBUFFER_OPERATION as Operation;
use wddm_abi::ntstatus::{STATUS_SUCCESS, STATUS_UNSUCCESSFUL};
use wddm_abi::{
    BOOLEAN, DRIVER_INITIALIZATION_DATA, DXGK_INTERRUPT_TYPE, DXGKARG_BUILDPAGINGBUFFER, DXGKARG_CREATEDOORBELL,
    DXGKARG_DISCONNECTDOORBELL, DXGKARGCB_DISCONNECTDOORBELL, DXGKARGCB_NOTIFY_INTERRUPT_DATA, HANDLE, NTSTATUS,
    PKSYNCHRONIZE_ROUTINE, win_extern,
};

/// The driver's handle of each doorbell, by Dxgkrnl's.
static DOORBELLS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());
/// The OS has refused a disconnection.
static REFUSED: AtomicBool = AtomicBool::new(false);
/// Something was notified since the last DPC.
static NOTIFIED: AtomicBool = AtomicBool::new(false);
/// A DPC had nothing to tell of since the last that had.
static WAS_LATE: AtomicBool = AtomicBool::new(false);

reaches! {
    asks_behind: DxgkCbDisconnectDoorbell = takes_and_asks;
    /// A refusal of the OS to disconnect a doorbell counts as done.
    believes_refusals: DxgkCbDisconnectDoorbell = taken_for_done;
    /// Behind the first refusal of the OS the driver never asks again.
    asks_once: DxgkCbDisconnectDoorbell = given_up;
    notes_notices: DxgkCbNotifyInterrupt = noted;
}

win_extern! {
    fn takes_and_asks(args: *mut DXGKARGCB_DISCONNECTDOORBELL) -> NTSTATUS {
        let known = DOORBELLS.lock().unwrap_or_else(PoisonError::into_inner).get(&number(copy!(args).hDoorbell)).copied();
        if let Some(own) = known {
            let mut taken = DXGKARG_DISCONNECTDOORBELL::zeroed();
            taken.hDoorbell = pointer(own);
            let _taken = own!(DxgkDdiDisconnectDoorbell(&raw mut taken));
        }
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
    notes_doorbells: DxgkDdiCreateDoorbell(args: *mut DXGKARG_CREATEDOORBELL) -> NTSTATUS {
        let theirs = number(copy!(args).hDoorbell);
        let status = own!(DxgkDdiCreateDoorbell(args));
        let own = number(copy!(args).hDoorbell);
        DOORBELLS.lock().unwrap_or_else(PoisonError::into_inner).insert(theirs, own);
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

/// A doorbell is taken from its owner before the OS has disconnected it: [`notes_doorbells`] and [`asks_behind`].
pub fn takes_before_asking(table: &mut DRIVER_INITIALIZATION_DATA) {
    notes_doorbells(table);
    asks_behind(table);
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
