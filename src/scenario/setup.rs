//! How the machine of a case differs from the usual: which Windows, which adapters, what it breaks on purpose.

use crate::setting::{Assignment, is_of_service};
use dxgkrnl_model::adapter::AdapterConfig;
use dxgkrnl_model::driver::Decorator;
use dxgkrnl_model::personality::family::members_set;
use dxgkrnl_model::personality::{FeatureSetting, MS, Personality, SECOND};
use nt_model::registry::RegistryValue;
use std::ops::RangeInclusive;
use wddm_abi::DXGK_FEATURE_ID;

/// How the machine of a case differs from the usual.
#[derive(Clone)]
pub struct Setup {
    /// The Windows that the machine runs.
    pub personality: Personality,
    /// Members of it that the case has set, which keep their values under each reading.
    pub(super) chosen: Vec<&'static str>,
    /// Values under the key of the driver's service.
    pub service: Vec<Assignment>,
    /// The device, and settings of the driver.
    pub adapter: AdapterConfig,
    /// How many such adapters.
    pub adapters: usize,
    /// The adapters behind the first, where they differ from it.
    pub others: Option<AdapterConfig>,
    /// Rules that the case breaks on purpose; each must be broken.
    pub breaks: Vec<&'static str>,
    /// Rules that the case may break: whether it does is decided by a race.
    pub may_break: Vec<&'static str>,
    /// The case's own client does something that the model reports as a fault of user mode; it must.
    pub client_errs: bool,
    /// Resets that the case causes: so many must happen, at least and at most.
    pub resets: RangeInclusive<u64>,
    /// What the driver does wrong, at its table.
    pub decorate: Option<Decorator>,
}

impl Default for Setup {
    fn default() -> Self {
        let mut personality = Personality::collecting();
        // A machine for tests.
        personality.tdr.test_mode = true;
        Self {
            personality,
            chosen: Vec::new(),
            service: Vec::new(),
            adapter: AdapterConfig::default(),
            adapters: 1,
            others: None,
            breaks: Vec::new(),
            may_break: Vec::new(),
            client_errs: false,
            resets: 0..=0,
            decorate: None,
        }
    }
}

impl Setup {
    /// With a value under the driver's registry key, or the service's (`docs/settings.md`).
    #[must_use]
    pub fn setting(mut self, name: &str, value: u32) -> Self {
        if is_of_service(name) {
            self.service.push((name.to_owned(), value.into()));
            return self;
        }
        self.adapter.registry.insert(name.to_owned(), RegistryValue::dword(value));
        self
    }

    /// With `feature` not supported by the OS.
    #[must_use]
    pub fn without(mut self, feature: DXGK_FEATURE_ID) -> Self {
        self.personality = self.personality.with_feature(feature, false);
        self
    }

    /// With timeouts of a tenth, so that a hang costs the suite little.
    #[must_use]
    pub fn quick_tdr(mut self) -> Self {
        self.personality.tdr.delay = 200 * MS;
        self.personality.tdr.ddi_delay = 2 * SECOND;
        self
    }

    /// With so many adapters.
    #[must_use]
    pub fn adapters(mut self, count: usize) -> Self {
        self.adapters = count;
        self
    }

    /// With a second adapter that has no native fences.
    #[must_use]
    pub fn without_native_fences_on_the_second(mut self) -> Self {
        let mut other = self.adapter.clone();
        // CAST: the identifier as the 32 bits that it is.
        other.features.insert(DXGK_FEATURE_ID::DXGK_FEATURE_NATIVE_FENCE.0 as u32, FeatureSetting::OFF);
        self.others = Some(other);
        self.adapters(2)
    }

    /// With a value under the driver's registry key of the adapters behind the first.
    #[must_use]
    pub fn setting_of_others(mut self, name: &str, value: u32) -> Self {
        let mut other = self.others.unwrap_or_else(|| self.adapter.clone());
        other.registry.insert(name.to_owned(), RegistryValue::dword(value));
        self.others = Some(other);
        self
    }

    /// The case causes so many resets, by an engine that hangs: it comes off no endless command buffer. Nor does it
    /// pause then: a reset of an engine that does has nothing to cut off.
    #[must_use]
    pub fn resets(self, count: u64) -> Self {
        self.resets_within(count..=count)
    }

    /// As [`resets`](Self::resets), where a race decides how many there are.
    #[must_use]
    pub fn resets_within(mut self, counts: RangeInclusive<u64>) -> Self {
        let hangs = *counts.end() != 0;
        self.resets = counts;
        let setup = self.setting("PreemptInBuffers", u32::from(!hangs));
        if hangs { setup.setting("EngineShare", 100) } else { setup }
    }

    /// With a driver that is wrong on purpose, in functions that stand before those of its table.
    #[must_use]
    pub fn with_driver(mut self, decorate: Decorator) -> Self {
        self.decorate = Some(decorate);
        self
    }

    /// The case makes the model find these rules broken.
    #[must_use]
    pub fn breaks(mut self, rules: &[&'static str]) -> Self {
        self.breaks.extend_from_slice(rules);
        self
    }

    /// The case makes the model find these rules broken, or does not: a race decides.
    #[must_use]
    pub fn may_break(mut self, rules: &[&'static str]) -> Self {
        self.may_break.extend_from_slice(rules);
        self
    }

    /// The case's own client makes a fault of user mode, which the model must report.
    #[must_use]
    pub fn client_errs(mut self) -> Self {
        self.client_errs = true;
        self
    }

    /// With the personality changed. No reading of the stage's Windows sets a member that is set here.
    #[must_use]
    pub fn windows(mut self, change: impl Fn(&mut Personality)) -> Self {
        change(&mut self.personality);
        self.chosen.extend(members_set(change));
        self
    }

    /// The configuration of an adapter.
    pub(super) fn configuration(&self) -> AdapterConfig {
        self.adapter.clone()
    }
}
