//! Mistakes of debug information, resets and power.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use fencepost::wrap::{copy, decorate, own, record};
use wddm_abi::ntstatus::{STATUS_SUCCESS, STATUS_UNSUCCESSFUL};
use wddm_abi::{
    DEVICE_POWER_STATE, DRIVER_INITIALIZATION_DATA, DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT, DXGKARG_BUILDPAGINGBUFFER,
    DXGKARG_CANCELCOMMAND, DXGKARG_COLLECTDBGINFO2, DXGKARG_PREEMPTCOMMAND, DXGKARG_QUERYDEPENDENTENGINEGROUP,
    DXGKARG_QUERYENGINESTATUS, DXGKARG_RESETENGINE, DXGKARG_RESETHWENGINE, DXGKARG_SUBMITCOMMANDVIRTUAL,
    DXGKARG_SUSPENDCONTEXT, HANDLE, NTSTATUS, POWER_ACTION,
};

/// Where the word is that says why a context is guilty: behind signature, head and its own section's head.
const WHY: usize = 8 + 7 * 8 + 8;

/// `PowerDeviceD0`.
const POWER_DEVICE_D0: i32 = 1;

/// Whether a driver with [`tables_stay_lost`] and its like was reset, or without power.
static LOST: AtomicBool = AtomicBool::new(false);

/// Whether a driver with [`refuses_beside`] is between the preparation of a reset and the reset.
static PREPARES: AtomicBool = AtomicBool::new(false);

/// Resets of a driver with [`skips_resets`].
static SKIPPED: AtomicU32 = AtomicU32::new(0);

decorate! {
    /// Debug information takes room for a whole head.
    collect_wants_room: DxgkDdiCollectDbgInfo2(adapter: HANDLE, args: *mut DXGKARG_COLLECTDBGINFO2) -> NTSTATUS {
        if record!(args).BufferSize < 64 {
            return STATUS_UNSUCCESSFUL;
        }
        own!(DxgkDdiCollectDbgInfo2(adapter, args))
    }

    /// Writes a member of the payload that is the OS's.
    writes_payload: DxgkDdiCollectDbgInfo2(adapter: HANDLE, args: *mut DXGKARG_COLLECTDBGINFO2) -> NTSTATUS {
        let status = own!(DxgkDdiCollectDbgInfo2(adapter, args));
        let args = record!(args);
        if !args.TdrPayload.is_null() && args.TdrPayloadSize as usize >= size_of::<DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT>() {
            record!(args.TdrPayload.cast::<DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT>()).NodeOrdinal += 1;
        }
        status
    }

    /// Says of a hang that nothing runs.
    blames_nothing: DxgkDdiCollectDbgInfo2(adapter: HANDLE, args: *mut DXGKARG_COLLECTDBGINFO2) -> NTSTATUS {
        let status = own!(DxgkDdiCollectDbgInfo2(adapter, args));
        let args = record!(args);
        if args.BufferSize >= WHY + 8 {
            *record!(args.pBuffer.cast::<[u8; WHY + 8]>()).last_chunk_mut::<8>().expect("a word") = [0; 8];
        }
        status
    }

    /// One in some resets of a hardware-scheduled engine does nothing, and says that it has.
    skips_resets: DxgkDdiResetHwEngine(adapter: HANDLE, args: *mut DXGKARG_RESETHWENGINE) -> NTSTATUS {
        if SKIPPED.fetch_add(1, Ordering::Relaxed) % 8 == 7 {
            return STATUS_SUCCESS;
        }
        own!(DxgkDdiResetHwEngine(adapter, args))
    }

    /// A packet cannot be cancelled.
    refuses_cancel: DxgkDdiCancelCommand(_adapter: HANDLE, _args: *const DXGKARG_CANCELCOMMAND) -> NTSTATUS {
        STATUS_UNSUCCESSFUL
    }

    prepares: DxgkDdiQueryDependentEngineGroup(adapter: HANDLE, args: *mut DXGKARG_QUERYDEPENDENTENGINEGROUP) -> NTSTATUS {
        PREPARES.store(true, Ordering::Relaxed);
        own!(DxgkDdiQueryDependentEngineGroup(adapter, args))
    }

    refuses: DxgkDdiCollectDbgInfo2(adapter: HANDLE, args: *mut DXGKARG_COLLECTDBGINFO2) -> NTSTATUS {
        if PREPARES.load(Ordering::Relaxed) {
            return STATUS_UNSUCCESSFUL;
        }
        own!(DxgkDdiCollectDbgInfo2(adapter, args))
    }

    resets: DxgkDdiResetFromTimeout(adapter: HANDLE) -> NTSTATUS {
        LOST.store(true, Ordering::Relaxed);
        own!(DxgkDdiResetFromTimeout(adapter))
    }

    sleeps: DxgkDdiSetPowerState(
        context: *mut c_void,
        device: u32,
        state: DEVICE_POWER_STATE,
        action: POWER_ACTION,
    ) -> NTSTATUS {
        if state.0 != POWER_DEVICE_D0 {
            LOST.store(true, Ordering::Relaxed);
        }
        own!(DxgkDdiSetPowerState(context, device, state, action))
    }

    restarts: DxgkDdiRestartFromTimeout(adapter: HANDLE) -> NTSTATUS {
        LOST.store(false, Ordering::Relaxed);
        own!(DxgkDdiRestartFromTimeout(adapter))
    }

    collects_beside: DxgkDdiCollectDbgInfo2(adapter: HANDLE, args: *mut DXGKARG_COLLECTDBGINFO2) -> NTSTATUS {
        if LOST.load(Ordering::Relaxed) { STATUS_UNSUCCESSFUL } else { own!(DxgkDdiCollectDbgInfo2(adapter, args)) }
    }

    initialized_once: DxgkDdiBuildPagingBuffer(adapter: HANDLE, args: *mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
        if record!(args).pDmaBuffer.is_null() && LOST.load(Ordering::Relaxed) {
            return STATUS_SUCCESS;
        }
        own!(DxgkDdiBuildPagingBuffer(adapter, args))
    }
}

/// Takes page tables of the paging process for initialized, although their memory was lost.
pub fn tables_stay_lost(table: &mut DRIVER_INITIALIZATION_DATA) {
    resets(table);
    sleeps(table);
    initialized_once(table);
}

/// Says nothing between the functions of an adapter's reset.
pub fn silent_in_reset(table: &mut DRIVER_INITIALIZATION_DATA) {
    resets(table);
    restarts(table);
    collects_beside(table);
}

/// Says nothing once it was without power.
pub fn silent_asleep(table: &mut DRIVER_INITIALIZATION_DATA) {
    sleeps(table);
    collects_beside(table);
}

/// Answers no question while a reset is prepared.
pub fn refuses_beside(table: &mut DRIVER_INITIALIZATION_DATA) {
    prepares(table);
    refuses(table);
}

/// Does not come back.
fn stays() -> ! {
    loop {
        std::thread::park_timeout(std::time::Duration::from_secs(3600));
    }
}

decorate! {
    /// A command buffer of user mode is never taken.
    stays_in_submit: DxgkDdiSubmitCommandVirtual(
        adapter: HANDLE,
        args: *const DXGKARG_SUBMITCOMMANDVIRTUAL,
    ) -> NTSTATUS {
        if !copy!(args).Flags.Paging() {
            stays();
        }
        own!(DxgkDdiSubmitCommandVirtual(adapter, args))
    }

    stays_in_preempt: DxgkDdiPreemptCommand(_adapter: HANDLE, _args: *const DXGKARG_PREEMPTCOMMAND) -> NTSTATUS {
        stays()
    }

    stays_in_status: DxgkDdiQueryEngineStatus(_adapter: HANDLE, _args: *mut DXGKARG_QUERYENGINESTATUS) -> NTSTATUS {
        stays()
    }

    stays_in_group: DxgkDdiQueryDependentEngineGroup(
        _adapter: HANDLE,
        _args: *mut DXGKARG_QUERYDEPENDENTENGINEGROUP,
    ) -> NTSTATUS {
        stays()
    }

    stays_in_collect: DxgkDdiCollectDbgInfo2(_adapter: HANDLE, _args: *mut DXGKARG_COLLECTDBGINFO2) -> NTSTATUS {
        stays()
    }

    stays_in_reset: DxgkDdiResetEngine(_adapter: HANDLE, _args: *mut DXGKARG_RESETENGINE) -> NTSTATUS {
        stays()
    }

    stays_in_hw_reset: DxgkDdiResetHwEngine(_adapter: HANDLE, _args: *mut DXGKARG_RESETHWENGINE) -> NTSTATUS {
        stays()
    }

    stays_in_suspend: DxgkDdiSuspendContext(_adapter: HANDLE, _args: *const DXGKARG_SUSPENDCONTEXT) -> NTSTATUS {
        stays()
    }
}
