//! What is done wrong with kernel-mode queues.

use super::{number, pointer};
use core::ffi::c_void;
use fencepost::wrap::{copy, decorate, own, reaches, theirs};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use wddm_abi::DXGK_INTERRUPT_TYPE as Type;
use wddm_abi::ntstatus::{STATUS_PENDING, STATUS_SUCCESS};
use wddm_abi::{
    BOOLEAN, DRIVER_INITIALIZATION_DATA, DXGKARG_CREATECONTEXT, DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES,
    DXGKARG_SUBMITCOMMANDTOHWQUEUE, DXGKARG_SUSPENDCONTEXT, DXGKARGCB_NOTIFY_INTERRUPT_DATA, HANDLE, NTSTATUS,
    PKSYNCHRONIZE_ROUTINE, win_extern,
};

/// Dxgkrnl's handle of each context, by the driver's.
static CONTEXTS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());
/// The suspension that is answered: Dxgkrnl's handle of the context, and the fence.
static ANSWERED: Mutex<(usize, u64)> = Mutex::new((0, 0));
/// Submissions that came.
static SUBMISSIONS: AtomicU32 = AtomicU32::new(0);

reaches! {
    hears_interrupts: DxgkCbNotifyInterrupt = as_it_is;
}

win_extern! {
    fn as_it_is(adapter: HANDLE, data: *mut DXGKARGCB_NOTIFY_INTERRUPT_DATA) {
        theirs!(DxgkCbNotifyInterrupt(adapter, data));
    }

    /// At the device's level: a context is suspended.
    fn answers(_context: *mut c_void) -> BOOLEAN {
        let (context, fence) = *ANSWERED.lock().unwrap_or_else(PoisonError::into_inner);
        let mut data = DXGKARGCB_NOTIFY_INTERRUPT_DATA::zeroed();
        data.InterruptType = Type::DXGK_INTERRUPT_SUSPEND_CONTEXT_COMPLETED;
        let part = data.SuspendContextCompleted_mut();
        (part.hContext, part.ContextSuspendFence) = (pointer(context), fence);
        let device = fencepost::wrap::interface().DeviceHandle;
        theirs!(DxgkCbNotifyInterrupt(device, &raw mut data));
        theirs!(DxgkCbQueueDpc(device));
        1
    }
}

decorate! {
    /// Notes both handles of a context.
    notes_contexts: DxgkDdiCreateContext(device: HANDLE, args: *mut DXGKARG_CREATECONTEXT) -> NTSTATUS {
        let theirs = number(copy!(args).hContext);
        let status = own!(DxgkDdiCreateContext(device, args));
        CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner).insert(number(copy!(args).hContext), theirs);
        status
    }

    /// Says that a context is suspended, and lets it run on.
    answers_at_once: DxgkDdiSuspendContext(_adapter: HANDLE, args: *const DXGKARG_SUSPENDCONTEXT) -> NTSTATUS {
        let asked = copy!(args);
        let contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        let context = contexts.get(&number(asked.hContext)).copied().unwrap_or_default();
        drop(contexts);
        *ANSWERED.lock().unwrap_or_else(PoisonError::into_inner) = (context, asked.contextSuspendFence);
        let (mut returned, at) = (0, core::ptr::null_mut());
        let section: PKSYNCHRONIZE_ROUTINE = Some(answers);
        let device = fencepost::wrap::interface().DeviceHandle;
        let _ran = theirs!(DxgkCbSynchronizeExecution(device, section, at, 0, &raw mut returned));
        STATUS_PENDING
    }

    /// Takes how a context is scheduled, and leaves it as it was.
    keeps_properties: DxgkDdiSetContextSchedulingProperties(
        _adapter: HANDLE,
        _args: *const DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES,
    ) -> NTSTATUS {
        STATUS_SUCCESS
    }

    /// Forgets each third buffer of a kernel-mode queue.
    forgets_buffers: DxgkDdiSubmitCommandToHwQueue(
        adapter: HANDLE,
        args: *const DXGKARG_SUBMITCOMMANDTOHWQUEUE,
    ) -> NTSTATUS {
        match SUBMISSIONS.fetch_add(1, Ordering::SeqCst) % 3 {
            2 => STATUS_SUCCESS,
            _ => own!(DxgkDdiSubmitCommandToHwQueue(adapter, args)),
        }
    }
}

/// A context is said to be suspended while it runs.
pub fn suspends_nothing(table: &mut DRIVER_INITIALIZATION_DATA) {
    hears_interrupts(table);
    notes_contexts(table);
    answers_at_once(table);
}
