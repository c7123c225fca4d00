//! Functions that the table has to have although the toy has nothing to do in them.

use wddm_abi::ntstatus::{
    STATUS_GRAPHICS_CHILD_DESCRIPTOR_NOT_SUPPORTED, STATUS_ILLEGAL_INSTRUCTION, STATUS_INVALID_PARAMETER,
    STATUS_NOT_SUPPORTED, STATUS_SUCCESS, STATUS_UNSUCCESSFUL,
};
use wddm_abi::{
    BOOLEAN, DRIVER_INITIALIZATION_DATA, DXGK_EVENT_TYPE, DXGKARG_DESCRIBEALLOCATION, DXGKARG_FORMATHISTORYBUFFER,
    DXGKARG_PATCH, DXGKARG_RENDER, DXGKARG_RENDERGDI, DXGKARG_UPDATEMONITORLINKINFO, HANDLE, NTSTATUS,
    PDXGK_CHILD_STATUS, PDXGK_DEVICE_DESCRIPTOR, win_extern,
};

use super::{argument, owner};

pub fn fill(table: &mut DRIVER_INITIALIZATION_DATA) {
    table.DxgkDdiQueryChildStatus = Some(child_status);
    table.DxgkDdiQueryDeviceDescriptor = Some(descriptor);
    table.DxgkDdiNotifyAcpiEvent = Some(acpi_event);
    table.DxgkDdiUpdateMonitorLinkInfo = Some(link);
    table.DxgkDdiRender = Some(render);
    table.DxgkDdiRenderKm = Some(render);
    table.DxgkDdiRenderGdi = Some(render_gdi);
    table.DxgkDdiPatch = Some(patch);
    table.DxgkDdiFormatHistoryBuffer = Some(history);
}

/// What a compute-only driver has beside the others, and the model never calls.
pub fn fill_compute_only(table: &mut DRIVER_INITIALIZATION_DATA) {
    table.DxgkDdiResetDevice = Some(reset_device);
    table.DxgkDdiDescribeAllocation = Some(describe);
}

win_extern! {
    fn reset_device(_context: *mut core::ffi::c_void) {}

    fn describe(_context: *mut core::ffi::c_void, _arguments: *mut DXGKARG_DESCRIBEALLOCATION) -> NTSTATUS {
        STATUS_INVALID_PARAMETER
    }

    fn child_status(context: *mut core::ffi::c_void, _status: PDXGK_CHILD_STATUS, _quiet: BOOLEAN) -> NTSTATUS {
        let answers = owner(context).is_some_and(|toy| toy.is("slot-child"));
        if answers { STATUS_SUCCESS } else { STATUS_INVALID_PARAMETER }
    }

    fn descriptor(_context: *mut core::ffi::c_void, _child: u32, _to: PDXGK_DEVICE_DESCRIPTOR) -> NTSTATUS {
        STATUS_GRAPHICS_CHILD_DESCRIPTOR_NOT_SUPPORTED
    }

    fn acpi_event(
        _context: *mut core::ffi::c_void,
        _kind: DXGK_EVENT_TYPE,
        _event: u32,
        _argument: *mut core::ffi::c_void,
        flags: *mut u32,
    ) -> NTSTATUS {
        *argument(flags) = 0;
        STATUS_SUCCESS
    }

    fn link(_adapter: HANDLE, _arguments: *mut DXGKARG_UPDATEMONITORLINKINFO) -> NTSTATUS {
        STATUS_SUCCESS
    }

    fn render(context: HANDLE, arguments: *mut DXGKARG_RENDER) -> NTSTATUS {
        let Some(toy) = owner(context) else { return STATUS_INVALID_PARAMETER };
        let arguments = argument(arguments);
        match toy.options.mutant {
            "slot-render" => STATUS_UNSUCCESSFUL,
            "slot-dma" => {
                arguments.pDmaBuffer = arguments.pDmaBuffer.wrapping_byte_add(arguments.DmaSize as usize + 1);
                STATUS_SUCCESS
            }
            "slot-list" => {
                arguments.pPatchLocationListOut = core::ptr::null_mut();
                STATUS_SUCCESS
            }
            _ => STATUS_ILLEGAL_INSTRUCTION,
        }
    }

    fn render_gdi(context: HANDLE, _arguments: *mut DXGKARG_RENDERGDI) -> NTSTATUS {
        let wrong = owner(context).is_some_and(|toy| toy.is("slot-status"));
        if wrong { STATUS_NOT_SUPPORTED } else { STATUS_SUCCESS }
    }

    fn patch(_adapter: HANDLE, _arguments: *const DXGKARG_PATCH) -> NTSTATUS {
        STATUS_SUCCESS
    }

    fn history(context: HANDLE, arguments: *mut DXGKARG_FORMATHISTORYBUFFER) -> NTSTATUS {
        let arguments = argument(arguments);
        arguments.NumTimestamps = 0;
        arguments.Offset = 0;
        if !owner(context).is_some_and(|toy| toy.is("slot-members")) {
            arguments.Precision.PrecisionBits = 64;
        }
        STATUS_SUCCESS
    }
}

/// Points a slot at data, where no code of the driver lies.
pub fn misplaced(table: &mut DRIVER_INITIALIZATION_DATA) {
    static NOT_CODE: [u64; 2] = [0; 2];
    // SAFETY: a slot is a function pointer or NULL; this one is never called.
    table.DxgkDdiPatch =
        Some(unsafe { core::mem::transmute::<*const u64, wddm_abi::DXGKDDI_PATCH>(NOT_CODE.as_ptr()) });
}
