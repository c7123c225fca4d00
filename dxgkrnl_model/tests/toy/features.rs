//! What a driver asks the OS about features.

use wddm_abi::{
    DXGK_FEATURE_ID, DXGK_FEATURE_INTERFACE, DXGKARGCB_ISFEATUREENABLED2, DXGKARGCB_QUERYFEATUREINTERFACE,
    DXGKCBINT_FEATURE_NATIVEFENCE_1,
};

use super::Toy;

/// Asks the OS whether a feature is on.
pub fn is_enabled(toy: &Toy, interface: &DXGK_FEATURE_INTERFACE, feature: DXGK_FEATURE_ID) -> bool {
    let Some(function) = interface.IsFeatureEnabled else { return false };
    let mut arguments = DXGKARGCB_ISFEATUREENABLED2::zeroed();
    arguments.FeatureId = feature;
    // SAFETY: Dxgkrnl's function with a record of its type.
    let status = unsafe { function(toy.device_handle(), &raw mut arguments) };
    status.is_success() && arguments.Result.Enabled()
}

/// Asks for the interface of native fences as it should, or as a mutant does; whether there is one.
pub fn fence_interface(toy: &Toy, interface: &DXGK_FEATURE_INTERFACE, on: bool) -> bool {
    let (asked, version) = match toy.options.mutant {
        "feature-interface" | "feature-interface-first" => (true, 1),
        "feature-interface-version" => (true, 2),
        "feature-os-caps" => (false, 1),
        _ => (on, 1),
    };
    let Some(function) = interface.QueryFeatureInterface.filter(|_| asked) else { return false };
    let mut table = DXGKCBINT_FEATURE_NATIVEFENCE_1::zeroed();
    let mut arguments = DXGKARGCB_QUERYFEATUREINTERFACE::zeroed();
    arguments.FeatureId = DXGK_FEATURE_ID::DXGK_FEATURE_NATIVE_FENCE;
    arguments.Version = version;
    arguments.InterfaceSize = size_of::<DXGKCBINT_FEATURE_NATIVEFENCE_1>() as u16;
    arguments.Interface = (&raw mut table).cast();
    // SAFETY: Dxgkrnl's function with a record of its type, and room for the table.
    let status = unsafe { function(toy.device_handle(), &raw mut arguments) };
    status.is_success() && table.GetOSCaps.is_some()
}
