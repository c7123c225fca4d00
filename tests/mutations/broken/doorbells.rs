//! Doorbells: what is returned for them, and what the driver asks the OS.

use super::{number, pointer};
use fencepost::wrap::{copy, decorate, own, reaches, record};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use wddm_abi::ntstatus::{STATUS_SUCCESS, STATUS_UNSUCCESSFUL};
use wddm_abi::{
    DRIVER_INITIALIZATION_DATA, DXGK_QUERYADAPTERINFOTYPE, DXGK_USERMODESUBMISSION_CAPS, DXGKARG_CONNECTDOORBELL,
    DXGKARG_CREATEDOORBELL, DXGKARG_DISCONNECTDOORBELL, DXGKARG_NOTIFYWORKSUBMISSION, DXGKARG_QUERYADAPTERINFO,
    DXGKARGCB_DISCONNECTDOORBELL, HANDLE, NTSTATUS, win_extern,
};

/// Pages by the driver's handle of the doorbell; that of handle 0 is the first that was connected.
static PAGES: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

fn page(doorbell: usize) -> Option<usize> {
    PAGES.lock().unwrap_or_else(PoisonError::into_inner).get(&doorbell).copied()
}

/// Keeps `page` for `doorbell`; returns the one that is kept already, if any.
fn kept(doorbell: usize, page: usize) -> usize {
    *PAGES.lock().unwrap_or_else(PoisonError::into_inner).entry(doorbell).or_insert(page)
}

reaches! {
    /// The physical doorbell is reused before DxgkCbDisconnectDoorbell returned: it is never called.
    reused_early: DxgkCbDisconnectDoorbell = not_called;
    /// A component completes its transitions, and does not say so.
    completes_silently: DxgkCbCompleteFStateTransition = not_completed;
}

win_extern! {
    fn not_completed(_adapter: HANDLE, _component: u32) {}

    fn not_called(_args: *mut DXGKARGCB_DISCONNECTDOORBELL) -> NTSTATUS {
        STATUS_SUCCESS
    }
}

decorate! {
    /// DisconnectDoorbell fails.
    fails_disconnect: DxgkDdiDisconnectDoorbell(_args: *mut DXGKARG_DISCONNECTDOORBELL) -> NTSTATUS {
        STATUS_UNSUCCESSFUL
    }

    /// NotifyWorkSubmission wakes nothing.
    notified_silently: DxgkDdiNotifyWorkSubmission(_args: *mut DXGKARG_NOTIFYWORKSUBMISSION) -> NTSTATUS {
        STATUS_SUCCESS
    }

    /// CreateDoorbell binds a physical doorbell at once.
    bound_at_create: DxgkDdiCreateDoorbell(args: *mut DXGKARG_CREATEDOORBELL) -> NTSTATUS {
        let status = own!(DxgkDdiCreateDoorbell(args));
        if status.is_success() {
            let mut connect = DXGKARG_CONNECTDOORBELL::zeroed();
            connect.hDoorbell = copy!(args).hDoorbell;
            let _bound = own!(DxgkDdiConnectDoorbell(&raw mut connect));
            kept(number(connect.hDoorbell), number(connect.KernelCpuVirtualAddress));
        }
        status
    }

    /// CreateDoorbell does not read ResizeRingBufferOperation: what is left in the old ring is forgotten.
    old_ring_forgotten: DxgkDdiCreateDoorbell(args: *mut DXGKARG_CREATEDOORBELL) -> NTSTATUS {
        record!(args).Flags.set_ResizeRingBufferOperation(false);
        own!(DxgkDdiCreateDoorbell(args))
    }

    /// For [`no_look_at_connect`]: a doorbell that is bound already is not connected again.
    returns_what_is_bound: DxgkDdiConnectDoorbell(args: *mut DXGKARG_CONNECTDOORBELL) -> NTSTATUS {
        let answer = record!(args);
        let Some(page) = page(number(answer.hDoorbell)) else { return STATUS_UNSUCCESSFUL };
        answer.KernelCpuVirtualAddress = pointer(page);
        answer.Status = wddm_abi::D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_CONNECTED;
        STATUS_SUCCESS
    }

    /// Every queue has the same name in the global doorbell.
    one_token: DxgkDdiCreateDoorbell(args: *mut DXGKARG_CREATEDOORBELL) -> NTSTATUS {
        let status = own!(DxgkDdiCreateDoorbell(args));
        if status.is_success() {
            record!(copy!(args).PrivateDriverData.cast::<u32>()).clone_from(&1);
        }
        status
    }

    /// One page holds every queue's doorbell.
    one_page: DxgkDdiConnectDoorbell(args: *mut DXGKARG_CONNECTDOORBELL) -> NTSTATUS {
        let status = own!(DxgkDdiConnectDoorbell(args));
        let answer = record!(args);
        answer.KernelCpuVirtualAddress = pointer(kept(0, number(answer.KernelCpuVirtualAddress)));
        status
    }

    /// A page still holds what its last owner wrote behind the doorbell.
    page_kept: DxgkDdiConnectDoorbell(args: *mut DXGKARG_CONNECTDOORBELL) -> NTSTATUS {
        let before = page(0).map(|page| copy!(pointer(page).cast::<[u64; 512]>()));
        let status = own!(DxgkDdiConnectDoorbell(args));
        let page = kept(0, number(copy!(args).KernelCpuVirtualAddress));
        if let Some(before) = before {
            record!(pointer(page).cast::<[u64; 512]>())[1..].copy_from_slice(&before[1..]);
        }
        status
    }
}

decorate! {
    /// The capabilities speak of one page, however many a doorbell has.
    says_one_page: DxgkDdiQueryAdapterInfo(adapter: HANDLE, args: *const DXGKARG_QUERYADAPTERINFO) -> NTSTATUS {
        let status = own!(DxgkDdiQueryAdapterInfo(adapter, args));
        let asked = copy!(args);
        if asked.Type == DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_USERMODESUBMISSION_CAPS && status.is_success() {
            record!(asked.pOutputData.cast::<DXGK_USERMODESUBMISSION_CAPS>()).DoorbellSizeInBytes = 4096;
        }
        status
    }
}

/// What was published while the doorbell was disconnected is not looked for: the physical doorbell is bound at
/// creation, and ConnectDoorbell returns it.
pub fn no_look_at_connect(table: &mut DRIVER_INITIALIZATION_DATA) {
    bound_at_create(table);
    returns_what_is_bound(table);
}
