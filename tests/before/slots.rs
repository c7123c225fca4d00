//! What functions of the driver of before returned and filled.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use crate::wrap::{copy, decorate, own, record};
use core::ffi::c_void;
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_NOT_SUPPORTED, STATUS_PRIVILEGED_INSTRUCTION};
use wddm_abi::{
    DXGK_DEVICE_DESCRIPTOR, DXGK_GPUCLOCKDATA_FLAGS, DXGKARG_CALIBRATEGPUCLOCK, DXGKARG_FORMATHISTORYBUFFER,
    DXGKARG_PREEMPTCOMMAND, DXGKARG_PRESENT, DXGKARG_RENDER, DXGKARG_RENDERGDI, HANDLE, NTSTATUS,
};

decorate! {
    /// Refused, which is a bug check.
    render_gdi_refused: DxgkDdiRenderGdi(_context: HANDLE, _args: *mut DXGKARG_RENDERGDI) -> NTSTATUS {
        STATUS_NOT_SUPPORTED
    }

    /// Refused with a status that its page does not list.
    present_not_supported: DxgkDdiPresent(_context: HANDLE, _args: *mut DXGKARG_PRESENT) -> NTSTATUS {
        STATUS_NOT_SUPPORTED
    }

    /// The same.
    present_to_queue_not_supported: DxgkDdiPresentToHwQueue(_queue: HANDLE, _args: *mut DXGKARG_PRESENT) -> NTSTATUS {
        STATUS_NOT_SUPPORTED
    }

    /// Refused with a status that is in the list of its sister.
    render_km_privileged: DxgkDdiRenderKm(_context: HANDLE, _args: *mut DXGKARG_RENDER) -> NTSTATUS {
        STATUS_PRIVILEGED_INSTRUCTION
    }

    /// Refused with a status that its page does not list.
    descriptor_not_supported: DxgkDdiQueryDeviceDescriptor(
        _context: *mut c_void,
        _child: u32,
        _descriptor: *mut DXGK_DEVICE_DESCRIPTOR,
    ) -> NTSTATUS {
        STATUS_NOT_SUPPORTED
    }

    /// Errors came back, where any is a bug check. Asked of a node that has nothing to preempt, the call failed.
    preemption_fails: DxgkDdiPreemptCommand(adapter: HANDLE, args: *const DXGKARG_PREEMPTCOMMAND) -> NTSTATUS {
        let _told = own!(DxgkDdiPreemptCommand(adapter, args));
        STATUS_INVALID_PARAMETER
    }

    /// Two outputs stayed as they were found.
    history_half_formatted: DxgkDdiFormatHistoryBuffer(context: HANDLE, args: *mut DXGKARG_FORMATHISTORYBUFFER) -> NTSTATUS {
        let found = copy!(args);
        let status = own!(DxgkDdiFormatHistoryBuffer(context, args));
        let args = record!(args);
        (args.Precision, args.Offset) = (found.Precision, found.Offset);
        status
    }

    /// The flags, which say whose clock is wanted, were written.
    clock_flags_overwritten: DxgkDdiCalibrateGpuClock(
        adapter: HANDLE,
        node: u32,
        engine: u32,
        args: *mut DXGKARG_CALIBRATEGPUCLOCK,
    ) -> NTSTATUS {
        let status = own!(DxgkDdiCalibrateGpuClock(adapter, node, engine, args));
        let flags = args.wrapping_byte_add(core::mem::offset_of!(DXGKARG_CALIBRATEGPUCLOCK, Flags));
        // SAFETY: a member of Dxgkrnl's record; packed, so it is written unaligned.
        unsafe { flags.cast::<DXGK_GPUCLOCKDATA_FLAGS>().write_unaligned(DXGK_GPUCLOCKDATA_FLAGS::zeroed()) };
        status
    }
}
