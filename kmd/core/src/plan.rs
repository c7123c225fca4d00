//! The capability plan: what this adapter is on this OS.
//!
//! Decided once, in `DxgkDdiStartDevice`, from what the OS enabled; every cap, node flag and size is a function of it.
//! Advertising what the OS did not enable fails the adapter, so nothing is advertised that the plan does not say.
//!
//! Source: *Native GPU fence object*, "Querying the OS for native fence enablement"; *Querying WDDM feature support*.

use crate::dxgkrnl::{Dxgkrnl, FeatureState};
use crate::features::{Grounds, OURS, VERSIONS};
use crate::irql::Passive;
use crate::service::Form;
use gpu_wire::private::Rung;
use wddm_abi::{DXGK_FEATURE_ID, HANDLE};

/// What the adapter is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Which driver the image is.
    pub form: Form,
    /// How far up it goes.
    pub rung: Rung,
    /// The OS lets drivers have INTRA_GPU fences and fence values in local memory (never on 24H2).
    pub intra_gpu_fences: bool,
    /// Fence interrupts name the hardware queue.
    pub optimized_interrupt: bool,
    /// `MapToGpuSystemProcess`.
    pub map_to_system_process: bool,
    /// `No64BitAtomics`: monitored fences have 32 bits in memory. Never with native fences, whose values have 64 bits
    /// that must not come apart.
    ///
    /// Source: *Native GPU fence object*, "Design": CurrentValue "requires 64-bit writes to be atomic".
    pub no_64_bit_atomics: bool,
    /// Kernel-mode testing: the driver builds command buffers for tests.
    pub testing: bool,
    /// The OS's answer for each feature, in the order of [`OURS`], before settings limit the rung.
    pub granted: [FeatureState; OURS.len()],
}

impl Plan {
    /// The lowest rung: what every OS accepts.
    pub const PACKET: Self = Self {
        form: Form::Render,
        rung: Rung::Packet,
        intra_gpu_fences: false,
        optimized_interrupt: false,
        map_to_system_process: false,
        no_64_bit_atomics: false,
        testing: false,
        granted: [FeatureState { enabled: false, version: 0 }; OURS.len()],
    };

    /// Asks the OS which features it enables, and makes the plan of its answers and of the settings. `adapter` is the
    /// miniport's context, which the setting `FeatureInterfaceHandle` may want as `hAdapter`.
    pub fn negotiate(irql: &Passive, dxgkrnl: &Dxgkrnl, adapter: HANDLE, form: Form, grounds: Grounds<'_>) -> Self {
        let settings = grounds.settings;
        let handle = if settings.feature_interface_handle == 0 { dxgkrnl.device() } else { adapter };
        let Some(features) = dxgkrnl.features(irql, handle) else {
            return Self { form, no_64_bit_atomics: settings.no_64_bit_atomics, ..Self::PACKET };
        };
        let granted = OURS.map(|feature| features.state(irql, feature));
        let [hwsch, fence, submission, testing] = granted;
        // Whatever the OS grants: what the driver does not support is not there.
        let supports_testing = grounds.support(DXGK_FEATURE_ID::DXGK_FEATURE_KERNEL_MODE_TESTING, true).is_some();
        let mut rung = Self::rung(hwsch, fence, submission);
        if rung == Rung::UserModeSubmission && !dxgkrnl.has_disconnect_doorbell() {
            // An interface that is too short: doorbells could never be victimised.
            rung = Rung::NativeFences;
        }
        let rung = rung.min(settings.highest_rung());
        let caps = (rung >= Rung::NativeFences).then(|| features.native_fence_caps(irql, fence.version));
        let (rung, intra) = match caps {
            None => (rung, false),
            Some(Ok(caps)) => (rung, caps.SupportIntraGpuFenceType()),
            // The documents say that this cannot fail; without the OS's caps, better no native fences.
            Some(Err(_)) => (Rung::HardwareQueues, false),
        };
        let fences = rung >= Rung::NativeFences;
        Self {
            form,
            rung,
            intra_gpu_fences: intra,
            optimized_interrupt: fences && settings.optimized_interrupt,
            map_to_system_process: fences && settings.map_to_system_process,
            no_64_bit_atomics: !fences && settings.no_64_bit_atomics,
            testing: supports_testing && is_on(testing),
            granted,
        }
    }

    /// The rung that three answers give. Native fences in a version that the driver does not support count as off.
    /// User-mode queues cannot use monitored fences, so each rung needs the one
    /// below.
    pub fn rung(hwsch: FeatureState, fence: FeatureState, submission: FeatureState) -> Rung {
        match (hwsch.enabled, is_on(fence), submission.enabled) {
            (true, true, true) => Rung::UserModeSubmission,
            (true, true, false) => Rung::NativeFences,
            (true, false, _) => Rung::HardwareQueues,
            (false, _, _) => Rung::Packet,
        }
    }

    /// Whether nodes 0 and 1 are hardware-scheduled.
    pub fn hardware_queues(&self) -> bool {
        self.rung >= Rung::HardwareQueues
    }

    /// Whether native fences are on.
    pub fn native_fences(&self) -> bool {
        self.rung >= Rung::NativeFences
    }

    /// Whether doorbells are.
    pub fn user_mode_submission(&self) -> bool {
        self.rung >= Rung::UserModeSubmission
    }
}

/// Returns whether the OS enabled a feature in a version that the driver supports.
fn is_on(feature: FeatureState) -> bool {
    feature.enabled && VERSIONS.has(feature.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ST-03, ST-04: a missing feature, or a missing dependency, lowers the rung.
    #[test]
    fn every_combination_of_features_gives_the_highest_rung_whose_dependencies_hold() {
        let on = FeatureState { enabled: true, version: 1 };
        let off = FeatureState::default();
        let cases = [
            (off, off, off, Rung::Packet),
            (off, on, on, Rung::Packet),
            (on, off, off, Rung::HardwareQueues),
            (on, off, on, Rung::HardwareQueues),
            (on, on, off, Rung::NativeFences),
            (on, on, on, Rung::UserModeSubmission),
            (on, FeatureState { enabled: true, version: 0 }, on, Rung::HardwareQueues),
            (on, FeatureState { enabled: true, version: 2 }, on, Rung::HardwareQueues),
        ];
        for (h, f, u, want) in cases {
            assert_eq!(Plan::rung(h, f, u), want, "{h:?} {f:?} {u:?}");
        }
    }
}
