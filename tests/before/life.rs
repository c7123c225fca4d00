//! Mistakes of earlier states of the driver about interrupts, power, removal, doorbells and logs.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use core::cell::Cell;
use core::ffi::c_void;
use fencepost::wrap::{copy, decorate, own, record};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;
use wddm_abi::ntstatus::{STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER, STATUS_SUCCESS};
use wddm_abi::{
    BOOLEAN, DEVICE_POWER_STATE, DRIVER_INITIALIZATION_DATA, DXGK_START_INFO, DXGK_SURPRISE_REMOVAL_TYPE,
    DXGKARG_CONNECTDOORBELL, DXGKARG_CREATEDOORBELL, DXGKARG_DESTROYDOORBELL, DXGKARG_DISCONNECTDOORBELL,
    DXGKARG_NOTIFYWORKSUBMISSION, DXGKARG_QUERYCURRENTFENCE, DXGKARG_RESETENGINE, DXGKARG_SETNATIVEFENCELOGBUFFER,
    DXGKARGCB_DISCONNECTDOORBELL, DXGKARGCB_NOTIFY_INTERRUPT_DATA, DXGKCB_DISCONNECTDOORBELL, DXGKCB_NOTIFY_INTERRUPT,
    DXGKRNL_INTERFACE, HANDLE, NTSTATUS, POWER_ACTION, win_extern,
};

/// `PowerDeviceD0`.
const POWER_DEVICE_D0: i32 = 1;

/// Dxgkrnl's own `DxgkCbNotifyInterrupt`, the same for every adapter; noted at the first start.
static NOTIFY: OnceLock<DXGKCB_NOTIFY_INTERRUPT> = OnceLock::new();
/// Dxgkrnl's own `DxgkCbDisconnectDoorbell`, the same for every adapter; noted at the first start.
static DISCONNECT: OnceLock<DXGKCB_DISCONNECTDOORBELL> = OnceLock::new();
/// How many calls of `DxgkCbDisconnectDoorbell` are under way: doorbells that are being taken from their queues.
static CHANGING: AtomicU32 = AtomicU32::new(0);

/// How many calls of SetPowerState are under way that take a device out of D0.
static LEAVING: AtomicU32 = AtomicU32::new(0);
/// How many interrupts have come meanwhile.
static UNCLAIMED: AtomicU32 = AtomicU32::new(0);
/// Whether a device is being stopped.
static STOPPING: AtomicBool = AtomicBool::new(false);
/// Looks for such an interrupt, a millisecond apart.
const LOOKS: u32 = 5;

/// The driver's handle of the queue of each doorbell, by that of the doorbell.
static QUEUES: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

thread_local! {
    /// Whether this thread is in QueryCurrentFence.
    static ASKED: Cell<bool> = const { Cell::new(false) };
}

decorate! {
    /// A removal was answered with success, and nothing was marked as gone.
    removal_forgotten: DxgkDdiNotifySurpriseRemoval(
        _context: *mut c_void,
        _kind: DXGK_SURPRISE_REMOVAL_TYPE,
    ) -> NTSTATUS {
        STATUS_SUCCESS
    }

    /// A device that is gone reads as ones, so the driver claimed every interrupt of its line.
    claims_when_gone: DxgkDdiInterruptRoutine(context: *mut c_void, message: u32) -> BOOLEAN {
        let _claimed = own!(DxgkDdiInterruptRoutine(context, message));
        1
    }

    /// ResetEngine named a packet that only waited. The driver named the newest; here it is the next behind the one
    /// that ran.
    waiting_packet_aborted: DxgkDdiResetEngine(adapter: HANDLE, args: *mut DXGKARG_RESETENGINE) -> NTSTATUS {
        let status = own!(DxgkDdiResetEngine(adapter, args));
        record!(args).LastAbortedFenceId += 1;
        status
    }

    /// StopDevice took back what was started before it ended the engines: the routine claimed nothing meanwhile.
    withdrawn_first: DxgkDdiStopDevice(context: *mut c_void) -> NTSTATUS {
        STOPPING.store(true, Ordering::SeqCst);
        let status = own!(DxgkDdiStopDevice(context));
        STOPPING.store(false, Ordering::SeqCst);
        status
    }

    /// For [`withdrawn_first`].
    finds_nothing: DxgkDdiInterruptRoutine(context: *mut c_void, message: u32) -> BOOLEAN {
        if STOPPING.load(Ordering::SeqCst) { 0 } else { own!(DxgkDdiInterruptRoutine(context, message)) }
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

    /// Notes that the device leaves D0, for [`unclaimed_on_the_way`].
    leaves_d0: DxgkDdiSetPowerState(
        context: *mut c_void,
        device: u32,
        state: DEVICE_POWER_STATE,
        action: POWER_ACTION,
    ) -> NTSTATUS {
        let leaves = state.0 != POWER_DEVICE_D0;
        let before = UNCLAIMED.load(Ordering::SeqCst);
        LEAVING.fetch_add(leaves.into(), Ordering::SeqCst);
        // Until an interrupt has come, so that the mistake is made in nearly every transition.
        for _ in 0..LOOKS {
            if !leaves || UNCLAIMED.load(Ordering::SeqCst) != before {
                break;
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        let status = own!(DxgkDdiSetPowerState(context, device, state, action));
        LEAVING.fetch_sub(leaves.into(), Ordering::SeqCst);
        status
    }

    /// An interrupt that the device had raised before it left D0 was not claimed.
    unclaimed_on_the_way: DxgkDdiInterruptRoutine(context: *mut c_void, message: u32) -> BOOLEAN {
        match LEAVING.load(Ordering::SeqCst) {
            0 => own!(DxgkDdiInterruptRoutine(context, message)),
            _ => {
                UNCLAIMED.fetch_add(1, Ordering::SeqCst);
                0
            }
        }
    }

    /// QueryCurrentFence answered a fence id, and the completion was not reported by an interrupt. `notify` drops the
    /// reports.
    fence_answered: DxgkDdiQueryCurrentFence(adapter: HANDLE, args: *mut DXGKARG_QUERYCURRENTFENCE) -> NTSTATUS {
        ASKED.set(true);
        let status = own!(DxgkDdiQueryCurrentFence(adapter, args));
        ASKED.set(false);
        status
    }

    /// Puts [`notify`] in front of `DxgkCbNotifyInterrupt`, for [`fence_answered`], and [`disconnect`] in front of
    /// `DxgkCbDisconnectDoorbell`, for [`no_doorbell_meanwhile`]. Without those, both pass everything on.
    hears_callbacks: DxgkDdiStartDevice(
        context: *mut c_void,
        info: *mut DXGK_START_INFO,
        interface: *mut DXGKRNL_INTERFACE,
        sources: *mut u32,
        children: *mut u32,
    ) -> NTSTATUS {
        let mut mine = copy!(interface);
        NOTIFY.get_or_init(|| mine.DxgkCbNotifyInterrupt);
        mine.DxgkCbNotifyInterrupt = Some(notify);
        DISCONNECT.get_or_init(|| mine.DxgkCbDisconnectDoorbell);
        mine.DxgkCbDisconnectDoorbell = Some(disconnect);
        own!(DxgkDdiStartDevice(context, info, &raw mut mine, sources, children))
    }

    /// ConnectDoorbell failed while a doorbell was being taken from its queue.
    no_doorbell_meanwhile: DxgkDdiConnectDoorbell(args: *mut DXGKARG_CONNECTDOORBELL) -> NTSTATUS {
        match CHANGING.load(Ordering::SeqCst) {
            0 => own!(DxgkDdiConnectDoorbell(args)),
            _ => STATUS_INSUFFICIENT_RESOURCES,
        }
    }

    /// DisconnectDoorbell was not passed on, for [`rings_looked_at`].
    stays_connected: DxgkDdiDisconnectDoorbell(_args: *mut DXGKARG_DISCONNECTDOORBELL) -> NTSTATUS {
        STATUS_SUCCESS
    }

    /// Notes the queue of a doorbell, for [`looks_again`].
    notes_queues: DxgkDdiCreateDoorbell(args: *mut DXGKARG_CREATEDOORBELL) -> NTSTATUS {
        let status = own!(DxgkDdiCreateDoorbell(args));
        let made = copy!(args);
        if let (true, Ok(mut queues)) = (status.is_success(), QUEUES.lock()) {
            queues.insert(made.hDoorbell.expose_provenance(), made.hHwQueue.expose_provenance());
        }
        status
    }

    /// The engine looked at the ring of a queue whose doorbell had been taken away, until the doorbell was destroyed.
    looks_again: DxgkDdiDestroyDoorbell(args: *mut DXGKARG_DESTROYDOORBELL) -> NTSTATUS {
        let doorbell = copy!(args).hDoorbell.expose_provenance();
        if let Some(queue) = QUEUES.lock().ok().and_then(|mut queues| queues.remove(&doorbell)) {
            let mut work = DXGKARG_NOTIFYWORKSUBMISSION::zeroed();
            work.hHwQueue = core::ptr::with_exposed_provenance_mut(queue);
            let _looked = own!(DxgkDdiNotifyWorkSubmission(&raw mut work));
            // The engine is a thread of its own.
            std::thread::park_timeout(Duration::from_millis(10));
        }
        own!(DxgkDdiDestroyDoorbell(args))
    }

    /// SetNativeFenceLogBuffer refused a NULL buffer and one of no entries, so a log could not be taken away.
    log_kept: DxgkDdiSetNativeFenceLogBuffer(args: *const DXGKARG_SETNATIVEFENCELOGBUFFER) -> NTSTATUS {
        let log = copy!(args);
        if log.LogBufferCpuVa.is_null() || log.NumberOfEntries == 0 {
            return STATUS_INVALID_PARAMETER;
        }
        own!(DxgkDdiSetNativeFenceLogBuffer(args))
    }
}

/// [`leaves_d0`] and [`unclaimed_on_the_way`].
pub fn sleeps_unclaimed(table: &mut DRIVER_INITIALIZATION_DATA) {
    leaves_d0(table);
    unclaimed_on_the_way(table);
}

/// [`fence_answered`] and [`hears_callbacks`].
pub fn fence_not_reported(table: &mut DRIVER_INITIALIZATION_DATA) {
    fence_answered(table);
    hears_callbacks(table);
}

/// [`stays_connected`], [`notes_queues`] and [`looks_again`].
pub fn rings_looked_at(table: &mut DRIVER_INITIALIZATION_DATA) {
    stays_connected(table);
    notes_queues(table);
    looks_again(table);
}

/// [`no_doorbell_meanwhile`] and [`hears_callbacks`].
pub fn short_of_doorbells(table: &mut DRIVER_INITIALIZATION_DATA) {
    no_doorbell_meanwhile(table);
    hears_callbacks(table);
}

/// [`withdrawn_first`] and [`finds_nothing`].
pub fn halted_last(table: &mut DRIVER_INITIALIZATION_DATA) {
    withdrawn_first(table);
    finds_nothing(table);
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
