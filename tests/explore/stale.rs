//! A driver that names fences which are gone.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use core::ffi::c_void;
use fencepost::wrap::{copy, decorate, own};
use std::sync::{Mutex, PoisonError};
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_SUCCESS};
use wddm_abi::{
    BOOLEAN, DXGK_START_INFO, DXGKARG_DESTROYNATIVEFENCE, DXGKRNL_INTERFACE, HANDLE, NTSTATUS, PKSYNCHRONIZE_ROUTINE,
    win_extern,
};

/// The record of the last call, which the driver has not seen.
static LATER: Mutex<Option<usize>> = Mutex::new(None);

decorate! {
    /// DestroyNativeFence returns before the driver has stopped naming the fence in interrupts: each fence is destroyed
    /// at the next call.
    handle_in_interrupt: DxgkDdiDestroyNativeFence(args: *mut DXGKARG_DESTROYNATIVEFENCE) -> NTSTATUS {
        let fence = copy!(args).hGlobalNativeFence.expose_provenance();
        if let Some(before) = LATER.lock().unwrap_or_else(PoisonError::into_inner).replace(fence) {
            let mut late = DXGKARG_DESTROYNATIVEFENCE::zeroed();
            late.hGlobalNativeFence = core::ptr::with_exposed_provenance_mut(before);
            // One of a machine that is gone names nothing.
            let _late = own!(DxgkDdiDestroyNativeFence(&raw mut late));
        }
        STATUS_SUCCESS
    }

    /// The driver ends a slot without excluding the interrupt routine: the section runs where it is called.
    unlocked_section: DxgkDdiStartDevice(
        context: *mut c_void,
        info: *mut DXGK_START_INFO,
        interface: *mut DXGKRNL_INTERFACE,
        sources: *mut u32,
        children: *mut u32,
    ) -> NTSTATUS {
        let mut mine = copy!(interface);
        mine.DxgkCbSynchronizeExecution = Some(at_once);
        own!(DxgkDdiStartDevice(context, info, &raw mut mine, sources, children))
    }
}

win_extern! {
    fn at_once(
        _device: HANDLE,
        routine: PKSYNCHRONIZE_ROUTINE,
        context: *mut c_void,
        _message: u32,
        result: *mut BOOLEAN,
    ) -> NTSTATUS {
        let Some(routine) = routine else { return STATUS_INVALID_PARAMETER };
        // SAFETY: the driver's routine with the context that it names. That nothing excludes it is what is wrong here.
        let returned = unsafe { routine(context) };
        if !result.is_null() {
            // SAFETY: the driver's variable, valid for the call.
            unsafe { result.write(returned) };
        }
        STATUS_SUCCESS
    }
}
