//! Mistakes of earlier states of the driver: statuses that a page does not list, and outputs that were not filled.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use core::ffi::c_void;
use fencepost::wrap::{copy, decorate, own, record};
use wddm_abi::ntstatus::{
    STATUS_INVALID_PARAMETER, STATUS_NO_MEMORY, STATUS_NOT_SUPPORTED, STATUS_PRIVILEGED_INSTRUCTION, STATUS_SUCCESS,
};
use wddm_abi::{
    DXGK_DEVICE_DESCRIPTOR, DXGK_GPUCLOCKDATA_FLAGS, DXGKARG_CALIBRATEGPUCLOCK, DXGKARG_FORMATHISTORYBUFFER,
    DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA, DXGKARG_PREEMPTCOMMAND, DXGKARG_PRESENT, DXGKARG_RENDER,
    DXGKARG_RENDERGDI, DXGKARG_SETSCHEDULINGLOGBUFFER, DXGKARG_UPDATEHWCONTEXTSTATE, DXGKARG_UPDATEMONITORLINKINFO,
    HANDLE, NTSTATUS,
};

decorate! {
    /// RenderGdi was refused, where any status but success is a bug check.
    render_gdi_refused: DxgkDdiRenderGdi(_context: HANDLE, _args: *mut DXGKARG_RENDERGDI) -> NTSTATUS {
        STATUS_NOT_SUPPORTED
    }

    /// RenderGdi was refused where there is a list of allocations.
    render_gdi_of_allocations_refused: DxgkDdiRenderGdi(context: HANDLE, args: *mut DXGKARG_RENDERGDI) -> NTSTATUS {
        match copy!(args).AllocationListSize {
            0 => own!(DxgkDdiRenderGdi(context, args)),
            _ => STATUS_NOT_SUPPORTED,
        }
    }

    /// Present was refused with a status that its page does not list.
    present_not_supported: DxgkDdiPresent(_context: HANDLE, _args: *mut DXGKARG_PRESENT) -> NTSTATUS {
        STATUS_NOT_SUPPORTED
    }

    /// PresentToHwQueue was refused with a status that its page does not list.
    present_to_queue_not_supported: DxgkDdiPresentToHwQueue(_queue: HANDLE, _args: *mut DXGKARG_PRESENT) -> NTSTATUS {
        STATUS_NOT_SUPPORTED
    }

    /// RenderKm was refused with a status that the page of DxgkDdiRender lists, and its own does not.
    render_km_privileged: DxgkDdiRenderKm(_context: HANDLE, _args: *mut DXGKARG_RENDER) -> NTSTATUS {
        STATUS_PRIVILEGED_INSTRUCTION
    }

    /// QueryDeviceDescriptor was refused with a status that its page does not list.
    descriptor_not_supported: DxgkDdiQueryDeviceDescriptor(
        _context: *mut c_void,
        _child: u32,
        _descriptor: *mut DXGK_DEVICE_DESCRIPTOR,
    ) -> NTSTATUS {
        STATUS_NOT_SUPPORTED
    }

    /// PreemptCommand returned an error, where any is a bug check; here it does so always, after the driver's own
    /// function ran.
    preemption_fails: DxgkDdiPreemptCommand(adapter: HANDLE, args: *const DXGKARG_PREEMPTCOMMAND) -> NTSTATUS {
        let _told = own!(DxgkDdiPreemptCommand(adapter, args));
        STATUS_INVALID_PARAMETER
    }

    /// FormatHistoryBuffer left `Precision` and `Offset` as it found them.
    history_half_formatted: DxgkDdiFormatHistoryBuffer(
        context: HANDLE,
        args: *mut DXGKARG_FORMATHISTORYBUFFER,
    ) -> NTSTATUS {
        let found = copy!(args);
        let status = own!(DxgkDdiFormatHistoryBuffer(context, args));
        let args = record!(args);
        (args.Precision, args.Offset) = (found.Precision, found.Offset);
        status
    }

    /// FormatHistoryBuffer left `Offset` alone as it found it.
    history_offset_left: DxgkDdiFormatHistoryBuffer(
        context: HANDLE,
        args: *mut DXGKARG_FORMATHISTORYBUFFER,
    ) -> NTSTATUS {
        let found = copy!(args).Offset;
        let status = own!(DxgkDdiFormatHistoryBuffer(context, args));
        record!(args).Offset = found;
        status
    }

    /// RenderGdi did nothing, and counted that as a pass.
    render_gdi_counts_a_pass: DxgkDdiRenderGdi(context: HANDLE, args: *mut DXGKARG_RENDERGDI) -> NTSTATUS {
        record!(args).MultipassOffset += 1;
        own!(DxgkDdiRenderGdi(context, args))
    }

    /// SetSchedulingLogBuffer answered success, and nothing was written to the log.
    scheduling_log_ignored: DxgkDdiSetSchedulingLogBuffer(
        _adapter: HANDLE,
        _args: *const DXGKARG_SETSCHEDULINGLOGBUFFER,
    ) -> NTSTATUS {
        STATUS_SUCCESS
    }

    /// UpdateMonitorLinkInfo was refused, although Windows calls it where there is no link.
    link_info_not_supported: DxgkDdiUpdateMonitorLinkInfo(
        _adapter: HANDLE,
        _args: *mut DXGKARG_UPDATEMONITORLINKINFO,
    ) -> NTSTATUS {
        STATUS_NOT_SUPPORTED
    }

    /// UpdateHwContextState answered success, which says that the context is in that state, and did nothing.
    context_state_ignored: DxgkDdiUpdateHwContextState(
        _adapter: HANDLE,
        _args: *const DXGKARG_UPDATEHWCONTEXTSTATE,
    ) -> NTSTATUS {
        STATUS_SUCCESS
    }

    /// GetStandardAllocationDriverData refused what the driver does not serve with a status that its page does not
    /// list.
    standard_allocation_not_supported: DxgkDdiGetStandardAllocationDriverData(
        adapter: HANDLE,
        args: *mut DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA,
    ) -> NTSTATUS {
        match own!(DxgkDdiGetStandardAllocationDriverData(adapter, args)) {
            STATUS_NO_MEMORY => STATUS_NOT_SUPPORTED,
            status => status,
        }
    }

    /// CalibrateGpuClock overwrote the flags, which say whose clock is wanted.
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
