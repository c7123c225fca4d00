//! Mistakes of earlier states of the driver about what it says of itself: slots, queries, features.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use core::ffi::c_void;
use fencepost::wrap::{copy, decorate, own, record};
use std::sync::OnceLock;
use wddm_abi::ntstatus::STATUS_INVALID_PARAMETER;
use wddm_abi::{
    DRIVER_INITIALIZATION_DATA, DXGK_DRIVERCAPS, DXGK_FEATURE_ID as Feature, DXGK_NODEMETADATA,
    DXGK_QUERYADAPTERINFOTYPE as Query, DXGKARG_QUERYADAPTERINFO, DXGKARG_QUERYFEATURESUPPORT,
    DXGKDDI_FEATURE_INTERFACE, DXGKDDI_QUERYFEATURESUPPORT, HANDLE, NTSTATUS, QUERY_INTERFACE, win_extern,
};

/// SetVirtualMachineData was NULL, a slot that Windows wants although the driver does nothing there.
pub fn no_virtual_machine_data(table: &mut DRIVER_INITIALIZATION_DATA) {
    table.DxgkDdiSetVirtualMachineData = None;
}

/// CalibrateGpuClock is NULL, a slot that Windows wants.
pub fn no_gpu_clock(table: &mut DRIVER_INITIALIZATION_DATA) {
    table.DxgkDdiCalibrateGpuClock = None;
}

/// SetStablePowerState is NULL, a slot that Windows wants although the driver does nothing there.
pub fn no_stable_power_state(table: &mut DRIVER_INITIALIZATION_DATA) {
    table.DxgkDdiSetStablePowerState = None;
}

decorate! {
    /// HISTORYBUFFERPRECISION is an array, a record for each node; only the first was filled.
    history_of_the_first_node: DxgkDdiQueryAdapterInfo(
        adapter: HANDLE,
        args: *const DXGKARG_QUERYADAPTERINFO,
    ) -> NTSTATUS {
        let status = own!(DxgkDdiQueryAdapterInfo(adapter, args));
        let asked = copy!(args);
        if status.is_success() && asked.Type == Query::DXGKQAITYPE_HISTORYBUFFERPRECISION && asked.OutputDataSize > 4 {
            // CAST: the size of a buffer.
            let rest = asked.OutputDataSize as usize - 4;
            let second = asked.pOutputData.cast::<u8>().wrapping_add(4);
            // SAFETY: Dxgkrnl's buffer, of OutputDataSize bytes.
            unsafe { second.write_bytes(0, rest) };
        }
        status
    }

    /// Private data whose buffer is input and output in one was refused.
    one_buffer_refused: DxgkDdiQueryAdapterInfo(adapter: HANDLE, args: *const DXGKARG_QUERYADAPTERINFO) -> NTSTATUS {
        let asked = copy!(args);
        let is_one = asked.OutputDataSize != 0 && core::ptr::eq(asked.pInputData, asked.pOutputData);
        if is_one { STATUS_INVALID_PARAMETER } else { own!(DxgkDdiQueryAdapterInfo(adapter, args)) }
    }

    /// A node of a type that is not known had no name, since no node had one.
    no_names: DxgkDdiGetNodeMetadata(adapter: HANDLE, node: u32, metadata: *mut DXGK_NODEMETADATA) -> NTSTATUS {
        let status = own!(DxgkDdiGetNodeMetadata(adapter, node, metadata));
        if status.is_success() {
            record!(metadata).FriendlyName = [0; 32];
        }
        status
    }

    /// A removal was declared survivable, without the bit that makes Windows tell of it.
    survives_removals_unheard: DxgkDdiQueryAdapterInfo(
        adapter: HANDLE,
        args: *const DXGKARG_QUERYADAPTERINFO,
    ) -> NTSTATUS {
        let status = own!(DxgkDdiQueryAdapterInfo(adapter, args));
        let asked = copy!(args);
        // CAST: the size of a record.
        let whole = asked.OutputDataSize as usize >= size_of::<DXGK_DRIVERCAPS>();
        if status.is_success() && asked.Type == Query::DXGKQAITYPE_DRIVERCAPS && whole {
            let caps = record!(asked.pOutputData.cast::<DXGK_DRIVERCAPS>());
            (caps.SupportSurpriseRemoval, caps.SupportSurpriseRemovalInHibernation) = (1, 0);
        }
        status
    }

    /// `AllowExperimental`, which is \[in\], was written.
    experimental_overwritten: DxgkDdiQueryInterface(context: *mut c_void, query: *mut QUERY_INTERFACE) -> NTSTATUS {
        let status = own!(DxgkDdiQueryInterface(context, query));
        put(query, status, overwrites)
    }

    /// Features were answered without regard to the settings, so `MaxRung` did not hold; here every feature is
    /// supported.
    supports_everything: DxgkDdiQueryInterface(context: *mut c_void, query: *mut QUERY_INTERFACE) -> NTSTATUS {
        let status = own!(DxgkDdiQueryInterface(context, query));
        put(query, status, supports)
    }
}

/// The driver's own function that answers about features, noted when [`put`] replaces it.
static FEATURES: OnceLock<DXGKDDI_QUERYFEATURESUPPORT> = OnceLock::new();

/// Puts `instead` into the feature interface that the driver has filled, the only one that it has.
fn put(query: *mut QUERY_INTERFACE, status: NTSTATUS, instead: DXGKDDI_QUERYFEATURESUPPORT) -> NTSTATUS {
    if status.is_success() {
        let asked = copy!(query);
        let interface = record!(asked.Interface.cast::<DXGKDDI_FEATURE_INTERFACE>());
        if let Some(own) = interface.QueryFeatureSupport.replace(instead) {
            FEATURES.get_or_init(|| own);
        }
    }
    status
}

/// What the driver itself answers about a feature.
fn answer(adapter: HANDLE, args: *mut DXGKARG_QUERYFEATURESUPPORT) -> NTSTATUS {
    match FEATURES.get() {
        // SAFETY: Dxgkrnl's arguments, passed on.
        Some(own) => unsafe { own(adapter, args) },
        None => unreachable!("the interface was asked for before"),
    }
}

win_extern! {
    fn overwrites(adapter: HANDLE, args: *mut DXGKARG_QUERYFEATURESUPPORT) -> NTSTATUS {
        let status = answer(adapter, args);
        record!(args).AllowExperimental = 1;
        status
    }

    fn supports(adapter: HANDLE, args: *mut DXGKARG_QUERYFEATURESUPPORT) -> NTSTATUS {
        let status = answer(adapter, args);
        let args = record!(args);
        let ours = [
            Feature::DXGK_FEATURE_HWSCH,
            Feature::DXGK_FEATURE_NATIVE_FENCE,
            Feature::DXGK_FEATURE_USER_MODE_SUBMISSION,
        ];
        if ours.contains(&args.FeatureId) {
            (args.MinSupportedVersion, args.MaxSupportedVersion) = (1, 1);
            (args.SupportedByDriver, args.SupportedOnCurrentConfig) = (1, 1);
        }
        status
    }
}
