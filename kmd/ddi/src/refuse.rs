//! Slots that must not be NULL although the adapter has nothing to do there: each refuses with a status that its page
//! lists, or answers success and does nothing where it must not fail. `docs/wddm_map.md` says why.

use core::ffi::c_void;
use wddm_abi::ntstatus::{
    STATUS_GRAPHICS_CHILD_DESCRIPTOR_NOT_SUPPORTED, STATUS_ILLEGAL_INSTRUCTION, STATUS_INVALID_PARAMETER,
    STATUS_NOT_SUPPORTED, STATUS_SUCCESS,
};
use wddm_abi::{
    BOOLEAN, DXGK_EVENT_TYPE, DXGKARG_BEGINEXCLUSIVEACCESS, DXGKARG_DESCRIBEALLOCATION, DXGKARG_ENDEXCLUSIVEACCESS,
    DXGKARG_PRESENT, DXGKARG_RENDER, DXGKARG_RENDERGDI, DXGKARG_SETSTABLEPOWERSTATE, DXGKARG_SETVIRTUALMACHINEDATA,
    DXGKARG_UPDATEMONITORLINKINFO, HANDLE, NTSTATUS, PDXGK_CHILD_STATUS, PDXGK_DEVICE_DESCRIPTOR, VIDEO_REQUEST_PACKET,
    win_extern,
};

win_extern! {
    /// `DxgkDdiDispatchIoRequest`: no video requests.
    pub(crate) fn dispatch_io_request(_c: *mut c_void, _source: u32, _packet: *mut VIDEO_REQUEST_PACKET) -> NTSTATUS {
        STATUS_NOT_SUPPORTED
    }
    /// `DxgkDdiQueryChildStatus`: there are no children.
    pub(crate) fn query_child_status(_c: *mut c_void, _status: PDXGK_CHILD_STATUS, _quiet: BOOLEAN) -> NTSTATUS {
        STATUS_INVALID_PARAMETER
    }
    /// `DxgkDdiQueryDeviceDescriptor`: there are no children, so nothing has a descriptor.
    pub(crate) fn query_device_descriptor(_c: *mut c_void, _child: u32, _descriptor: PDXGK_DEVICE_DESCRIPTOR) -> NTSTATUS {
        STATUS_GRAPHICS_CHILD_DESCRIPTOR_NOT_SUPPORTED
    }
    /// `DxgkDdiNotifyAcpiEvent`: none concern this device.
    pub(crate) fn notify_acpi_event(_c: *mut c_void, _kind: DXGK_EVENT_TYPE, _event: u32, _arg: *mut c_void, flags: *mut u32) -> NTSTATUS {
        if !flags.is_null() {
            // SAFETY: Dxgkrnl's variable, valid for the call.
            unsafe { flags.write(0) };
        }
        STATUS_SUCCESS
    }
    /// `DxgkDdiDescribeAllocation`: for allocations that are displayed.
    pub(crate) fn describe_allocation(_a: HANDLE, _args: *mut DXGKARG_DESCRIBEALLOCATION) -> NTSTATUS {
        STATUS_INVALID_PARAMETER
    }
    /// `DxgkDdiRender` and `DxgkDdiRenderKm`: command buffers are submitted by address; the driver never copies one
    /// from user memory.
    pub(crate) fn render(_context: HANDLE, _args: *mut DXGKARG_RENDER) -> NTSTATUS {
        STATUS_ILLEGAL_INSTRUCTION
    }
    /// `DxgkDdiRenderGdi`: no GDI acceleration. Any status but success is a bug check, so the commands become nothing:
    /// the DMA buffer, its private data and `MultipassOffset` stay as they are.
    pub(crate) fn render_gdi(_context: HANDLE, _args: *mut DXGKARG_RENDERGDI) -> NTSTATUS {
        STATUS_SUCCESS
    }
    /// `DxgkDdiPresent` and `DxgkDdiPresentToHwQueue`: no presents.
    pub(crate) fn present(_context: HANDLE, _args: *mut DXGKARG_PRESENT) -> NTSTATUS {
        STATUS_ILLEGAL_INSTRUCTION
    }
    /// `DxgkDdiUpdateMonitorLinkInfo`: there is no link, so there is nothing to update. Windows calls it on
    /// render-only adapters, too.
    pub(crate) fn update_monitor_link_info(_a: HANDLE, _args: *mut DXGKARG_UPDATEMONITORLINKINFO) -> NTSTATUS {
        STATUS_SUCCESS
    }
    /// `DxgkDdiSetVirtualMachineData`: the adapter is not partitioned, and no virtual machine uses it.
    pub(crate) fn set_virtual_machine_data(_a: HANDLE, _args: *const DXGKARG_SETVIRTUALMACHINEDATA) -> NTSTATUS {
        STATUS_SUCCESS
    }
    /// `DxgkDdiBeginExclusiveAccess`: the engines run on the processor, so none of their accesses passes an IOMMU.
    pub(crate) fn begin_exclusive_access(_a: HANDLE, _args: *mut DXGKARG_BEGINEXCLUSIVEACCESS) -> NTSTATUS {
        STATUS_SUCCESS
    }
    /// `DxgkDdiEndExclusiveAccess`: nothing was stopped for exclusive access, so nothing is restarted.
    pub(crate) fn end_exclusive_access(_a: HANDLE, _args: *mut DXGKARG_ENDEXCLUSIVEACCESS) -> NTSTATUS {
        STATUS_SUCCESS
    }
    /// `DxgkDdiSetStablePowerState`: the engines always run at the processor's speed.
    pub(crate) fn set_stable_power_state(_a: HANDLE, _args: *const DXGKARG_SETSTABLEPOWERSTATE) {}
}
