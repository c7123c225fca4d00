//! The driver's side of the feature interface: what it supports, asked by the OS before it enables anything.
//! Source: *Querying WDDM feature support and enablement*; `DXGKDDI_FEATURE_INTERFACE`; `DXGKARG_QUERYFEATURESUPPORT`.

use crate::settings::Settings;
use gpu_wire::private::Rung;
use wddm_abi::DXGK_FEATURE_ID;

/// The features that this driver knows, in the order of the rungs.
pub const OURS: [DXGK_FEATURE_ID; 3] = [
    DXGK_FEATURE_ID::DXGK_FEATURE_HWSCH,
    DXGK_FEATURE_ID::DXGK_FEATURE_NATIVE_FENCE,
    DXGK_FEATURE_ID::DXGK_FEATURE_USER_MODE_SUBMISSION,
];

/// Versions of a feature that the driver supports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Support {
    /// Lowest version.
    pub min: u16,
    /// Highest version.
    pub max: u16,
}

/// Versions that the driver supports, of each of [`OURS`].
pub const VERSIONS: Support = Support { min: 1, max: 1 };

/// The versions of `feature` that the driver supports; `None` for none. A rung above the setting `MaxRung` is not
/// supported. With the setting `ExperimentalFeatures` no feature is supported under an OS that does not allow
/// experimental support (`allow_experimental`).
pub fn support(settings: &Settings, feature: DXGK_FEATURE_ID, allow_experimental: bool) -> Option<Support> {
    let needs = match feature {
        DXGK_FEATURE_ID::DXGK_FEATURE_HWSCH => Rung::HardwareQueues,
        DXGK_FEATURE_ID::DXGK_FEATURE_NATIVE_FENCE => Rung::NativeFences,
        DXGK_FEATURE_ID::DXGK_FEATURE_USER_MODE_SUBMISSION => Rung::UserModeSubmission,
        _ => return None,
    };
    let allowed = allow_experimental || !settings.experimental_features;
    (allowed && settings.highest_rung() >= needs).then_some(VERSIONS)
}
