//! Answers about the adapter, paging, devices.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use fencepost::wrap::{copy, decorate, own, reaches, record, theirs};
use std::sync::{Mutex, PoisonError};
use wddm_abi::ntstatus::{STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER, STATUS_SUCCESS};
use wddm_abi::{
    DXGK_DRIVERCAPS, DXGK_FEATURE_ID, DXGK_FEATURE_INTERFACE, DXGK_NODEMETADATA, DXGK_QUERYADAPTERINFOTYPE as Type,
    DXGK_QUERYSEGMENTOUT4, DXGK_SERVICES, DXGK_WDDMVERSION, DXGKARG_BUILDPAGINGBUFFER, DXGKARG_QUERYADAPTERINFO,
    DXGKARGCB_ISFEATUREENABLED2, DXGKARGCB_QUERYFEATUREINTERFACE, DXGKCB_ISFEATUREENABLED2,
    DXGKCB_QUERYFEATUREINTERFACE, DXGKCBINT_FEATURE_NATIVEFENCE_1, HANDLE, INTERFACE, NTSTATUS, win_extern,
};

/// Dxgkrnl's own functions about features.
static FEATURES: Mutex<(DXGKCB_ISFEATUREENABLED2, DXGKCB_QUERYFEATUREINTERFACE)> = Mutex::new((None, None));

fn features() -> (DXGKCB_ISFEATUREENABLED2, DXGKCB_QUERYFEATUREINTERFACE) {
    *FEATURES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls Dxgkrnl's own function about features.
macro_rules! feature {
    ($number:tt($($argument:expr),* $(,)?)) => {
        match features().$number {
            // SAFETY: the driver's arguments, or such as it could have passed, with records that live until the call
            // returns.
            Some(own) => unsafe { own($($argument),*) },
            None => STATUS_INVALID_PARAMETER,
        }
    };
}

reaches! {
    /// The interface of native fences is asked for before it is known whether they are on.
    asks_unasked: DxgkCbQueryServices = asked_for;

    /// The interface of native fences is asked for in a version that was not negotiated.
    asks_other_version: DxgkCbQueryServices = version_changed;

    /// The version that was negotiated is not kept: native fences are used in version 1 whatever it is.
    forgets_version: DxgkCbQueryServices = version_forgotten;
}

/// Dxgkrnl's answer to DxgkCbQueryServices, if it is the interface of features.
macro_rules! served {
    ($device:expr, $service:expr, $interface:expr, |$table:ident| $change:expr) => {{
        let status = theirs!(DxgkCbQueryServices($device, $service, $interface));
        if status.is_success() && $service == DXGK_SERVICES::DxgkServicesFeature {
            let $table = record!($interface.cast::<DXGK_FEATURE_INTERFACE>());
            *FEATURES.lock().unwrap_or_else(PoisonError::into_inner) =
                ($table.IsFeatureEnabled, $table.QueryFeatureInterface);
            $change;
        }
        status
    }};
}

win_extern! {
    fn asked_for(device: HANDLE, service: DXGK_SERVICES, interface: *mut INTERFACE) -> NTSTATUS {
        served!(device, service, interface, |_table| {
            let mut table = DXGKCBINT_FEATURE_NATIVEFENCE_1::zeroed();
            let mut args = DXGKARGCB_QUERYFEATUREINTERFACE::zeroed();
            args.FeatureId = DXGK_FEATURE_ID::DXGK_FEATURE_NATIVE_FENCE;
            args.Version = 1;
            args.InterfaceSize = 8;
            args.Interface = (&raw mut table).cast();
            let _whatever = feature!(1(device, &raw mut args));
        })
    }

    fn version_changed(device: HANDLE, service: DXGK_SERVICES, interface: *mut INTERFACE) -> NTSTATUS {
        served!(device, service, interface, |table| table.QueryFeatureInterface = Some(in_version_2))
    }

    fn in_version_2(adapter: HANDLE, args: *mut DXGKARGCB_QUERYFEATUREINTERFACE) -> NTSTATUS {
        record!(args).Version = 2;
        feature!(1(adapter, args))
    }

    fn version_forgotten(device: HANDLE, service: DXGK_SERVICES, interface: *mut INTERFACE) -> NTSTATUS {
        served!(device, service, interface, |table| table.IsFeatureEnabled = Some(as_version_1))
    }

    fn as_version_1(adapter: HANDLE, args: *mut DXGKARGCB_ISFEATUREENABLED2) -> NTSTATUS {
        let status = feature!(0(adapter, args));
        record!(args).Result.Version = 1;
        status
    }
}

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
