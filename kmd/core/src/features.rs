//! The driver's side of the feature interface: what it supports, asked by the OS before it enables anything.
//! Source: *Querying WDDM feature support and enablement*; `DXGKDDI_FEATURE_INTERFACE`; `DXGKARG_QUERYFEATURESUPPORT`;
//! *Kernel mode testing of WDDM features*.

use crate::settings::Settings;
use gpu_wire::private::Rung;
use wddm_abi::DXGK_FEATURE_ID;

/// The features that this driver knows: those of the rungs, in their order, and kernel-mode testing.
pub const OURS: [DXGK_FEATURE_ID; 4] = [
    DXGK_FEATURE_ID::DXGK_FEATURE_HWSCH,
    DXGK_FEATURE_ID::DXGK_FEATURE_NATIVE_FENCE,
    DXGK_FEATURE_ID::DXGK_FEATURE_USER_MODE_SUBMISSION,
    DXGK_FEATURE_ID::DXGK_FEATURE_KERNEL_MODE_TESTING,
];

/// Versions of a feature that the driver supports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Support {
    /// Lowest version.
    pub min: u16,
    /// Highest version.
    pub max: u16,
}

impl Support {
    /// Returns whether `version` is among them.
    pub fn has(self, version: u16) -> bool {
        (self.min..=self.max).contains(&version)
    }
}

/// Versions that the driver supports, of each of [`OURS`].
pub const VERSIONS: Support = Support { min: 1, max: 1 };

/// What the driver's support rests on, beside the OS's `AllowExperimental`.
#[derive(Clone, Copy, Debug)]
pub struct Grounds<'a> {
    /// The adapter's settings.
    pub settings: &'a Settings,
    /// The OS runs code that is signed for tests.
    pub is_test_signing: bool,
}

impl Grounds<'_> {
    /// The versions of `feature` that the driver supports; `None` for none. A rung above the setting `MaxRung` is not
    /// supported. With the setting `ExperimentalFeatures` no rung's feature is supported under an OS that does not
    /// allow experimental support (`allow_experimental`). Kernel-mode testing is supported under test signing alone.
    pub fn support(self, feature: DXGK_FEATURE_ID, allow_experimental: bool) -> Option<Support> {
        let needs = match feature {
            DXGK_FEATURE_ID::DXGK_FEATURE_HWSCH => Rung::HardwareQueues,
            DXGK_FEATURE_ID::DXGK_FEATURE_NATIVE_FENCE => Rung::NativeFences,
            DXGK_FEATURE_ID::DXGK_FEATURE_USER_MODE_SUBMISSION => Rung::UserModeSubmission,
            DXGK_FEATURE_ID::DXGK_FEATURE_KERNEL_MODE_TESTING => {
                return (self.is_test_signing && self.settings.kernel_mode_testing).then_some(VERSIONS);
            }
            _ => return None,
        };
        let allowed = allow_experimental || !self.settings.experimental_features;
        (allowed && self.settings.highest_rung() >= needs).then_some(VERSIONS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_mode_testing_is_supported_under_test_signing_alone() {
        let testing = DXGK_FEATURE_ID::DXGK_FEATURE_KERNEL_MODE_TESTING;
        for (is_test_signing, kernel_mode_testing) in [(true, true), (true, false), (false, true), (false, false)] {
            let settings = Settings { kernel_mode_testing, ..Settings::default() };
            let grounds = Grounds { settings: &settings, is_test_signing };
            assert_eq!(grounds.support(testing, true).is_some(), is_test_signing && kernel_mode_testing);
            // Of the rungs it says nothing.
            assert!(grounds.support(DXGK_FEATURE_ID::DXGK_FEATURE_HWSCH, false).is_some());
        }
    }
}
