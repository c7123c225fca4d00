//! Answers about the adapter, paging, devices.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use crate::wrap::{copy, decorate, own, record};
use wddm_abi::ntstatus::{STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER, STATUS_SUCCESS};
use wddm_abi::{
    DXGK_DRIVERCAPS, DXGK_NODEMETADATA, DXGK_QUERYADAPTERINFOTYPE as Type, DXGK_QUERYSEGMENTOUT4, DXGK_WDDMVERSION,
    DXGKARG_BUILDPAGINGBUFFER, DXGKARG_QUERYADAPTERINFO, HANDLE, NTSTATUS,
};

/// Changes the answer to DRIVERCAPS.
fn with_caps(args: *const DXGKARG_QUERYADAPTERINFO, status: NTSTATUS, change: impl FnOnce(&mut DXGK_DRIVERCAPS)) {
    let asked = copy!(args);
    if status.is_success() && asked.Type == Type::DXGKQAITYPE_DRIVERCAPS {
        change(record!(asked.pOutputData.cast::<DXGK_DRIVERCAPS>()));
    }
}

decorate! {
    /// The version in DRIVERCAPS differs from the table's.
    wrong_wddm_version: DxgkDdiQueryAdapterInfo(adapter: HANDLE, args: *const DXGKARG_QUERYADAPTERINFO) -> NTSTATUS {
        let status = own!(DxgkDdiQueryAdapterInfo(adapter, args));
        with_caps(args, status, |caps| caps.WDDMVersion = DXGK_WDDMVERSION::DXGKDDI_WDDMv3_1);
        status
    }

    /// NativeGpuFence is advertised although the OS has it off.
    advertises_disabled_fence: DxgkDdiQueryAdapterInfo(
        adapter: HANDLE,
        args: *const DXGKARG_QUERYADAPTERINFO,
    ) -> NTSTATUS {
        let status = own!(DxgkDdiQueryAdapterInfo(adapter, args));
        with_caps(args, status, |caps| caps.SchedulingCaps.set_NativeGpuFence(true));
        status
    }

    /// QUERYSEGMENT4's count probe is refused.
    refuses_segment_probe: DxgkDdiQueryAdapterInfo(adapter: HANDLE, args: *const DXGKARG_QUERYADAPTERINFO) -> NTSTATUS {
        let asked = copy!(args);
        let is_probe = asked.Type == Type::DXGKQAITYPE_QUERYSEGMENT4
            && copy!(asked.pOutputData.cast::<DXGK_QUERYSEGMENTOUT4>()).NbSegment == 0;
        if is_probe { STATUS_INVALID_PARAMETER } else { own!(DxgkDdiQueryAdapterInfo(adapter, args)) }
    }

    /// GetNodeMetadata fails for a node that there is.
    hides_node: DxgkDdiGetNodeMetadata(adapter: HANDLE, node: u32, metadata: *mut DXGK_NODEMETADATA) -> NTSTATUS {
        if node == 1 { STATUS_INVALID_PARAMETER } else { own!(DxgkDdiGetNodeMetadata(adapter, node, metadata)) }
    }

    /// BuildPagingBuffer answers with an unlisted status.
    bad_paging_status: DxgkDdiBuildPagingBuffer(_adapter: HANDLE, _args: *mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
        STATUS_INSUFFICIENT_RESOURCES
    }

    /// Nothing of a device goes with it.
    leaks_with_device: DxgkDdiDestroyDevice(_device: HANDLE) -> NTSTATUS {
        STATUS_SUCCESS
    }
}
