//! Interrupts, power, removal, doorbells and logs of the driver of before.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use crate::wrap::{copy, decorate, own};
use core::cell::Cell;
use core::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use wddm_abi::ntstatus::{STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER, STATUS_SUCCESS};
use wddm_abi::{
    BOOLEAN, DEVICE_POWER_STATE, DRIVER_INITIALIZATION_DATA, DXGK_START_INFO, DXGK_SURPRISE_REMOVAL_TYPE,
    DXGKARG_CONNECTDOORBELL, DXGKARG_QUERYCURRENTFENCE, DXGKARG_SETNATIVEFENCELOGBUFFER, DXGKARGCB_DISCONNECTDOORBELL,
    DXGKARGCB_NOTIFY_INTERRUPT_DATA, DXGKCB_DISCONNECTDOORBELL, DXGKCB_NOTIFY_INTERRUPT, DXGKRNL_INTERFACE, HANDLE,
    NTSTATUS, POWER_ACTION, win_extern,
};

/// `PowerDeviceD0`.
const POWER_DEVICE_D0: i32 = 1;

/// Dxgkrnl's own callbacks: the same for every adapter.
static NOTIFY: OnceLock<DXGKCB_NOTIFY_INTERRUPT> = OnceLock::new();
/// As above.
static DISCONNECT: OnceLock<DXGKCB_DISCONNECTDOORBELL> = OnceLock::new();
/// Doorbells that are being taken from their queues.
static CHANGING: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Whether this thread is in QueryCurrentFence.
    static ASKED: Cell<bool> = const { Cell::new(false) };
}

decorate! {
    /// A removal was heard and forgotten.
    removal_forgotten: DxgkDdiNotifySurpriseRemoval(_context: *mut c_void, _kind: DXGK_SURPRISE_REMOVAL_TYPE) -> NTSTATUS {
        STATUS_SUCCESS
    }

    /// A device that is gone reads as ones, so every interrupt of its line looked like its own.
    claims_when_gone: DxgkDdiInterruptRoutine(context: *mut c_void, message: u32) -> BOOLEAN {
        let _claimed = own!(DxgkDdiInterruptRoutine(context, message));
        1
    }

    /// D0 restored nothing: what had been raised in D3 was not raised again.
    wake_ignored: DxgkDdiSetPowerState(
        context: *mut c_void,
        device: u32,
        state: DEVICE_POWER_STATE,
        action: POWER_ACTION,
    ) -> NTSTATUS {
        match state.0 {
            POWER_DEVICE_D0 => STATUS_SUCCESS,
            _ => own!(DxgkDdiSetPowerState(context, device, state, action)),
        }
    }

    /// A number was answered, and no interrupt told of it.
    fence_answered: DxgkDdiQueryCurrentFence(adapter: HANDLE, args: *mut DXGKARG_QUERYCURRENTFENCE) -> NTSTATUS {
        ASKED.set(true);
        let status = own!(DxgkDdiQueryCurrentFence(adapter, args));
        ASKED.set(false);
        status
    }

    /// What the one above needs.
    hears_notifications: DxgkDdiStartDevice(
        context: *mut c_void,
        info: *mut DXGK_START_INFO,
        interface: *mut DXGKRNL_INTERFACE,
        sources: *mut u32,
        children: *mut u32,
    ) -> NTSTATUS {
        let mut mine = copy!(interface);
        NOTIFY.get_or_init(|| mine.DxgkCbNotifyInterrupt);
        mine.DxgkCbNotifyInterrupt = Some(notify);
        own!(DxgkDdiStartDevice(context, info, &raw mut mine, sources, children))
    }

    /// With every doorbell changing hands there was none to be had.
    no_doorbell_meanwhile: DxgkDdiConnectDoorbell(args: *mut DXGKARG_CONNECTDOORBELL) -> NTSTATUS {
        match CHANGING.load(Ordering::SeqCst) {
            0 => own!(DxgkDdiConnectDoorbell(args)),
            _ => STATUS_INSUFFICIENT_RESOURCES,
        }
    }

    /// What the one above needs.
    hears_disconnections: DxgkDdiStartDevice(
        context: *mut c_void,
        info: *mut DXGK_START_INFO,
        interface: *mut DXGKRNL_INTERFACE,
        sources: *mut u32,
        children: *mut u32,
    ) -> NTSTATUS {
        let mut mine = copy!(interface);
        DISCONNECT.get_or_init(|| mine.DxgkCbDisconnectDoorbell);
        mine.DxgkCbDisconnectDoorbell = Some(disconnect);
        own!(DxgkDdiStartDevice(context, info, &raw mut mine, sources, children))
    }

    /// A log could not be taken away.
    log_kept: DxgkDdiSetNativeFenceLogBuffer(args: *const DXGKARG_SETNATIVEFENCELOGBUFFER) -> NTSTATUS {
        let log = copy!(args);
        if log.LogBufferCpuVa.is_null() || log.NumberOfEntries == 0 {
            return STATUS_INVALID_PARAMETER;
        }
        own!(DxgkDdiSetNativeFenceLogBuffer(args))
    }
}

/// [`fence_answered`], and what it needs.
pub fn fence_not_reported(table: &mut DRIVER_INITIALIZATION_DATA) {
    fence_answered(table);
    hears_notifications(table);
}

/// [`no_doorbell_meanwhile`], and what it needs.
pub fn short_of_doorbells(table: &mut DRIVER_INITIALIZATION_DATA) {
    no_doorbell_meanwhile(table);
    hears_disconnections(table);
}

win_extern! {
    fn notify(adapter: HANDLE, data: *mut DXGKARGCB_NOTIFY_INTERRUPT_DATA) {
        if let (false, Some(Some(own))) = (ASKED.get(), NOTIFY.get()) {
            // SAFETY: the driver's arguments, passed on.
            unsafe { own(adapter, data) };
        }
    }

    fn disconnect(args: *mut DXGKARGCB_DISCONNECTDOORBELL) -> NTSTATUS {
        let Some(Some(own)) = DISCONNECT.get() else { return STATUS_INVALID_PARAMETER };
        CHANGING.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the driver's arguments, passed on.
        let status = unsafe { own(args) };
        CHANGING.fetch_sub(1, Ordering::SeqCst);
        status
    }
}
