//! What is told to the OS by `DxgkCbNotifyInterrupt`, and about resets.

use super::{number, pointer};
use core::ffi::c_void;
use fencepost::wrap::{copy, decorate, own, reaches, record, theirs};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use wddm_abi::DXGK_INTERRUPT_TYPE as Type;
use wddm_abi::ntstatus::STATUS_SUCCESS;
use wddm_abi::{
    BOOLEAN, DRIVER_INITIALIZATION_DATA, DXGKARG_CREATENATIVEFENCE, DXGKARG_QUERYCURRENTFENCE, DXGKARG_RESETENGINE,
    DXGKARG_RESETHWENGINE, DXGKARGCB_INVALIDATEHWCONTEXT, DXGKARGCB_NOTIFY_INTERRUPT_DATA, HANDLE, NTSTATUS,
    PKSYNCHRONIZE_ROUTINE, win_extern,
};

/// The driver's handle of each native fence, by Dxgkrnl's.
static FENCES: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());
/// The node that was reset last.
static NODE: AtomicU32 = AtomicU32::new(0);

reaches! {
    /// No interrupt for a native fence is ever reported.
    never: DxgkCbNotifyInterrupt = not_of_fences;
    /// No interrupt for a monitored fence is ever reported.
    monitored_never: DxgkCbNotifyInterrupt = not_of_monitored;
    says_drivers_handle: DxgkCbNotifyInterrupt = with_drivers_handles;
    /// SuspendContext's end is reported with a fence that the OS never issued.
    wrong_suspend_fence: DxgkCbNotifyInterrupt = with_another_fence;
    /// Packets are reported complete before those in front of them: here before they were submitted.
    completes_out_of_order: DxgkCbNotifyInterrupt = with_later_packet;
    /// ResetHwEngine does not name the context that was running.
    reset_without_invalidate: DxgkCbInvalidateHwContext = not_invalidated;
    hears_interrupts: DxgkCbNotifyInterrupt = as_it_is;
}

win_extern! {
    fn as_it_is(adapter: HANDLE, data: *mut DXGKARGCB_NOTIFY_INTERRUPT_DATA) {
        theirs!(DxgkCbNotifyInterrupt(adapter, data));
    }

    fn not_of_fences(adapter: HANDLE, data: *mut DXGKARGCB_NOTIFY_INTERRUPT_DATA) {
        if copy!(data).InterruptType != Type::DXGK_INTERRUPT_NATIVE_FENCE_SIGNALED {
            theirs!(DxgkCbNotifyInterrupt(adapter, data));
        }
    }

    fn not_of_monitored(adapter: HANDLE, data: *mut DXGKARGCB_NOTIFY_INTERRUPT_DATA) {
        if copy!(data).InterruptType != Type::DXGK_INTERRUPT_MONITORED_FENCE_SIGNALED {
            theirs!(DxgkCbNotifyInterrupt(adapter, data));
        }
    }

    fn with_drivers_handles(adapter: HANDLE, data: *mut DXGKARGCB_NOTIFY_INTERRUPT_DATA) {
        let said = copy!(data);
        if said.InterruptType == Type::DXGK_INTERRUPT_NATIVE_FENCE_SIGNALED {
            let signaled = said.NativeFenceSignaled();
            for at in 0..signaled.SignaledNativeFenceCount as usize {
                let fence = record!(signaled.pSignaledNativeFenceArray.wrapping_add(at));
                let fences = FENCES.lock().unwrap_or_else(PoisonError::into_inner);
                *fence = fences.get(&number(*fence)).map_or(*fence, |own| pointer(*own));
            }
        }
        theirs!(DxgkCbNotifyInterrupt(adapter, data));
    }

    fn with_another_fence(adapter: HANDLE, data: *mut DXGKARGCB_NOTIFY_INTERRUPT_DATA) {
        if copy!(data).InterruptType == Type::DXGK_INTERRUPT_SUSPEND_CONTEXT_COMPLETED {
            record!(data).SuspendContextCompleted_mut().ContextSuspendFence += 1000;
        }
        theirs!(DxgkCbNotifyInterrupt(adapter, data));
    }

    fn with_later_packet(adapter: HANDLE, data: *mut DXGKARGCB_NOTIFY_INTERRUPT_DATA) {
        if copy!(data).InterruptType == Type::DXGK_INTERRUPT_DMA_COMPLETED {
            record!(data).DmaCompleted_mut().SubmissionFenceId += 1;
        }
        theirs!(DxgkCbNotifyInterrupt(adapter, data));
    }

    fn not_invalidated(_args: *const DXGKARGCB_INVALIDATEHWCONTEXT) -> NTSTATUS {
        STATUS_SUCCESS
    }

    /// At the device's level: an interrupt of the node's that names no fence.
    fn interrupts(_context: *mut c_void) -> BOOLEAN {
        let mut data = DXGKARGCB_NOTIFY_INTERRUPT_DATA::zeroed();
        data.InterruptType = Type::DXGK_INTERRUPT_NATIVE_FENCE_SIGNALED;
        data.NativeFenceSignaled_mut().NodeOrdinal = NODE.load(Ordering::SeqCst);
        theirs!(DxgkCbNotifyInterrupt(fencepost::wrap::interface().DeviceHandle, &raw mut data));
        1
    }
}

decorate! {
    /// Notes both handles of a fence, for [`drivers_handle`].
    notes_fences: DxgkDdiCreateNativeFence(adapter: HANDLE, args: *mut DXGKARG_CREATENATIVEFENCE) -> NTSTATUS {
        let theirs = number(copy!(args).hGlobalNativeFence);
        let status = own!(DxgkDdiCreateNativeFence(adapter, args));
        let own = number(copy!(args).hGlobalNativeFence);
        FENCES.lock().unwrap_or_else(PoisonError::into_inner).insert(theirs, own);
        status
    }

    /// ResetEngine names the last packet that was completed, not the one that ran.
    reset_names_completed: DxgkDdiResetEngine(adapter: HANDLE, args: *mut DXGKARG_RESETENGINE) -> NTSTATUS {
        let mut completed = DXGKARG_QUERYCURRENTFENCE::zeroed();
        completed.NodeOrdinal = copy!(args).NodeOrdinal;
        let _success = own!(DxgkDdiQueryCurrentFence(adapter, &raw mut completed));
        let status = own!(DxgkDdiResetEngine(adapter, args));
        record!(args).LastAbortedFenceId = completed.CurrentFence;
        status
    }

    /// For [`interrupt_before_resume`].
    resets_and_interrupts: DxgkDdiResetHwEngine(adapter: HANDLE, args: *mut DXGKARG_RESETHWENGINE) -> NTSTATUS {
        let status = own!(DxgkDdiResetHwEngine(adapter, args));
        NODE.store(copy!(args).NodeOrdinal, Ordering::SeqCst);
        let mut returned = 0;
        let device = fencepost::wrap::interface().DeviceHandle;
        let at = core::ptr::null_mut();
        let section: PKSYNCHRONIZE_ROUTINE = Some(interrupts);
        let _ran = theirs!(DxgkCbSynchronizeExecution(device, section, at, 0, &raw mut returned));
        status
    }
}

/// The interrupt carries the driver's handle instead of Dxgkrnl's: [`notes_fences`] and [`says_drivers_handle`].
pub fn drivers_handle(table: &mut DRIVER_INITIALIZATION_DATA) {
    notes_fences(table);
    says_drivers_handle(table);
}

/// An interrupt of the engine between ResetHwEngine and ResumeHwEngine: [`hears_interrupts`], which keeps the
/// interface, and [`resets_and_interrupts`].
pub fn interrupt_before_resume(table: &mut DRIVER_INITIALIZATION_DATA) {
    hears_interrupts(table);
    resets_and_interrupts(table);
}
