//! WDDM features: what the OS supports, what the driver supports, what is therefore enabled.
//!
//! The first question about a feature, by user mode or the driver, makes the OS ask the driver through
//! `DXGKDDI_FEATURE_INTERFACE`; the answer stands until the adapter is stopped. A feature is enabled when the OS knows
//! and supports it, the driver supports it on this configuration in a common version, and every dependency is enabled.
//!
//! Source: article querying-wddm-feature-support-and-enablement; DDI pages `DXGK_ISFEATUREENABLED_RESULT`,
//! `DXGKARG_QUERYFEATURESUPPORT`.
//!
//! Chosen: the articles name features that have dependencies, not which. `NATIVE_FENCE` needs `HWSCH` ("stage 2" of
//! hardware scheduling), `USER_MODE_SUBMISSION` needs both (user-mode queues cannot use monitored fences); `HWSCH`
//! needs nothing that a driver sees. The driver's interface is asked for when first needed, which may be inside its own
//! `DxgkDdiStartDevice`, since the query "may originate from any source". `Available` says that the OS supports the
//! feature. Without the interface a driver is taken at its word by the callbacks that the interface replaced.

pub(crate) mod display;
pub(crate) mod testing;

use std::collections::BTreeMap;
use std::fmt;

use wddm_abi::{
    DXGK_FEATURE_ID, DXGK_ISFEATUREENABLED_RESULT, DXGKARG_QUERYFEATURESUPPORT, DXGKDDI_BUILDTESTCOMMANDBUFFER,
    DXGKDDI_FEATURE_INTERFACE, GUID, GUID_WDDM_INTERFACE_FEATURE, NTSTATUS, QUERY_INTERFACE, ntstatus,
};

use crate::port::ddi::{self, call_ddi};
use crate::port::miniport::Miniport;
use crate::port::personality::FeatureSetting;
use crate::port::poison;
use crate::port::rules::start::{FEATURE_INPUT, FEATURE_SUPPORT, QUERY_INTERFACE as QUERY_INTERFACE_RULE};
use crate::port::sync::{Lock, Rank};

/// What the OS knows about a feature.
#[derive(Debug)]
struct Known {
    id: DXGK_FEATURE_ID,
    /// Needs the driver.
    driver: bool,
    /// Has no adapter.
    global: bool,
    /// OS support of a retail build, when the personality says nothing.
    default: FeatureSetting,
    depends_on: &'static [DXGK_FEATURE_ID],
    /// Known before 24H2, so that the older callbacks answer for it.
    legacy: bool,
}

const ON: FeatureSetting = FeatureSetting::ON;
const OFF: FeatureSetting = FeatureSetting::OFF;

const fn driver(id: DXGK_FEATURE_ID, default: FeatureSetting, depends_on: &'static [DXGK_FEATURE_ID]) -> Known {
    Known { id, driver: true, global: false, default, depends_on, legacy: false }
}

const fn legacy(id: DXGK_FEATURE_ID, default: FeatureSetting, depends_on: &'static [DXGK_FEATURE_ID]) -> Known {
    Known { legacy: true, ..driver(id, default, depends_on) }
}

const fn os(id: DXGK_FEATURE_ID, default: FeatureSetting) -> Known {
    Known { id, driver: false, global: false, default, depends_on: &[], legacy: false }
}

/// The list of the article's `!feature list`, with the OS side switched on where the article shows it, and the OS and
/// bug fix features of the headers.
static KNOWN: &[Known] = &[
    legacy(DXGK_FEATURE_ID::DXGK_FEATURE_HWSCH, ON, &[]),
    legacy(DXGK_FEATURE_ID::DXGK_FEATURE_HWFLIPQUEUE, ON, &[DXGK_FEATURE_ID::DXGK_FEATURE_HWSCH]),
    legacy(DXGK_FEATURE_ID::DXGK_FEATURE_LDA_GPUPV, ON, &[]),
    legacy(DXGK_FEATURE_ID::DXGK_FEATURE_KMD_SIGNAL_CPU_EVENT, ON, &[]),
    legacy(
        DXGK_FEATURE_ID::DXGK_FEATURE_USER_MODE_SUBMISSION,
        ON,
        &[DXGK_FEATURE_ID::DXGK_FEATURE_HWSCH, DXGK_FEATURE_ID::DXGK_FEATURE_NATIVE_FENCE],
    ),
    legacy(DXGK_FEATURE_ID::DXGK_FEATURE_SHARE_BACKING_STORE_WITH_KMD, ON, &[]),
    driver(DXGK_FEATURE_ID::DXGK_FEATURE_PAGE_BASED_MEMORY_MANAGER, OFF, &[]),
    driver(DXGK_FEATURE_ID::DXGK_FEATURE_KERNEL_MODE_TESTING, ON, &[]),
    os(DXGK_FEATURE_ID::DXGK_FEATURE_64K_PT_DEMOTION_FIX, ON),
    os(DXGK_FEATURE_ID::DXGK_FEATURE_GPUPV_PRESENT_HWQUEUE, ON),
    Known { global: true, ..os(DXGK_FEATURE_ID::DXGK_FEATURE_GPUVAIOMMU, OFF) },
    driver(DXGK_FEATURE_ID::DXGK_FEATURE_NATIVE_FENCE, ON, &[DXGK_FEATURE_ID::DXGK_FEATURE_HWSCH]),
    os(DXGK_FEATURE_ID::DXGK_FEATURE_QUERYSTATISTICS_EXTENSIONS, OFF),
    os(DXGK_FEATURE_ID::DXGK_FEATURE_RESERVE_GPUVA_ZERO_BASE_ADDRESS, ON),
    os(DXGK_FEATURE_ID::DXGK_FEATURE_PER_PTE_PAGE_SIZE, OFF),
    os(DXGK_FEATURE_ID::DXGK_FEATURE_FENCE_SIGNAL_FROM_SWS_NODE, ON),
];

fn known(id: DXGK_FEATURE_ID) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.id == id)
}

/// The answer about one feature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeatureState {
    /// It may be used.
    pub enabled: bool,
    /// Negotiated version, 0 unless enabled.
    pub version: u16,
    /// The OS knows it.
    pub known: bool,
    /// The driver supports it.
    pub by_driver: bool,
    /// It works on this configuration.
    pub on_configuration: bool,
    /// The OS supports it.
    pub available: bool,
    /// It is there because experimental support is allowed.
    pub experimental: bool,
}

impl fmt::Display for FeatureState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.enabled {
            let kind = if self.experimental { ", experimental" } else { "" };
            return write!(f, "enabled, version {}{kind}", self.version);
        }
        let lacks = [
            (self.known, "the OS does not know it"),
            (self.available, "the OS does not support it"),
            (self.by_driver, "the driver does not support it"),
            (self.on_configuration, "it does not work on this configuration"),
        ];
        let why: Vec<_> = lacks.iter().filter(|(has, _)| !has).map(|(_, why)| *why).collect();
        write!(f, "not enabled{}{}", if why.is_empty() { "" } else { ": " }, why.join(", "))
    }
}

impl FeatureState {
    /// As the callbacks and thunks return it.
    pub(crate) fn result(self) -> DXGK_ISFEATUREENABLED_RESULT {
        let mut result = DXGK_ISFEATUREENABLED_RESULT::zeroed();
        result.Version = self.version;
        result.set_Enabled(self.enabled);
        result.set_KnownFeature(self.known);
        result.set_SupportedByDriver(self.by_driver);
        result.set_SupportedOnCurrentConfig(self.on_configuration);
        result.set_Available(self.available);
        result.set_Experimental(self.experimental);
        result
    }
}

/// Whether the driver has `DXGKDDI_FEATURE_INTERFACE`.
#[derive(Clone, Copy, Debug, Default)]
enum DriverInterface {
    #[default]
    NotAsked,
    None,
    Some(DXGKDDI_FEATURE_INTERFACE),
}

#[derive(Debug, Default)]
struct State {
    interface: DriverInterface,
    answers: BTreeMap<i32, FeatureState>,
    /// What the driver said through `DxgkCbQueryFeatureSupport`.
    legacy_support: BTreeMap<i32, u32>,
    /// Features that `IsFeatureEnabled` last told the driver are on, with the version that it told.
    told: BTreeMap<i32, u16>,
    /// The driver's function for kernel-mode tests.
    build_test: Option<DXGKDDI_BUILDTESTCOMMANDBUFFER>,
}

/// Feature negotiation of one adapter, from start to stop.
#[derive(Debug)]
pub(crate) struct Features {
    state: Lock<State>,
}

#[expect(
    unsafe_code,
    reason = "DXGKDDI_FEATURE_INTERFACE has raw pointers, which are the driver's and only handed back to it"
)]
// SAFETY: the record is plain data that is copied out under the lock; what its pointers lead to is the driver's
// business.
unsafe impl Send for State {}

impl Default for Features {
    fn default() -> Self {
        Self::new()
    }
}

impl Features {
    /// That of an adapter.
    pub(crate) fn of(adapter: &Miniport) -> &Self {
        adapter.extension()
    }

    fn new() -> Self {
        Self { state: Lock::new(Rank::Object, State::default()) }
    }

    /// Forgets everything: the adapter was stopped. Gives the driver's interface back.
    pub(crate) fn reset(&self, adapter: &Miniport) {
        let old = std::mem::take(&mut *self.state.lock());
        if let DriverInterface::Some(interface) = old.interface {
            reference(adapter, &interface, false);
        }
    }

    /// The state of a feature, for whoever asks.
    ///
    /// IRQL: PASSIVE_LEVEL. Calls the driver when nobody has asked before.
    pub(crate) fn query(&self, adapter: &Miniport, id: DXGK_FEATURE_ID) -> FeatureState {
        if let Some(answer) = self.state.lock().answers.get(&id.0) {
            return *answer;
        }
        let answer = self.negotiate(adapter, id);
        let experimental_pending = matches!(self.state.lock().interface, DriverInterface::None) && !answer.by_driver;
        if !experimental_pending {
            self.state.lock().answers.insert(id.0, answer);
        }
        answer
    }

    /// Whether a feature is enabled.
    pub(crate) fn is_enabled(&self, adapter: &Miniport, id: DXGK_FEATURE_ID) -> bool {
        self.query(adapter, id).enabled
    }

    /// `IsFeatureEnabled`: what the driver is told, which is remembered.
    pub(crate) fn tell(&self, adapter: &Miniport, id: DXGK_FEATURE_ID) -> FeatureState {
        let mut answer = self.query(adapter, id);
        let other = adapter.personality().faults.fence_version;
        if let Some(other) = other.filter(|_| answer.enabled && id == DXGK_FEATURE_ID::DXGK_FEATURE_NATIVE_FENCE) {
            answer.version = other;
        }
        let mut state = self.state.lock();
        if answer.enabled {
            state.told.insert(id.0, answer.version);
        } else {
            state.told.remove(&id.0);
        }
        answer
    }

    /// The version in which the driver was told that the feature is on.
    pub(crate) fn told(&self, id: DXGK_FEATURE_ID) -> Option<u16> {
        self.state.lock().told.get(&id.0).copied()
    }

    /// `DxgkCbQueryFeatureSupport`: the driver says how it supports a feature and learns whether it may be on.
    pub(crate) fn legacy_support(&self, adapter: &Miniport, id: DXGK_FEATURE_ID, support: u32) -> bool {
        {
            let mut state = self.state.lock();
            state.legacy_support.insert(id.0, support);
            state.answers.remove(&id.0);
        }
        known(id).is_some_and(|known| known.legacy) && self.is_enabled(adapter, id)
    }

    /// `DxgkCbIsFeatureEnabled`, whose caller has no other way to say what it supports.
    pub(crate) fn legacy_enabled(&self, adapter: &Miniport, id: DXGK_FEATURE_ID) -> bool {
        const STABLE: u32 = 2;
        let said = self.state.lock().legacy_support.contains_key(&id.0);
        if said { self.is_enabled(adapter, id) } else { self.legacy_support(adapter, id, STABLE) }
    }

    fn negotiate(&self, adapter: &Miniport, id: DXGK_FEATURE_ID) -> FeatureState {
        let Some(known) = known(id) else { return FeatureState::default() };
        let setting = adapter.feature_setting(id).unwrap_or(known.default);
        let mut state = FeatureState { known: true, available: setting.supported, ..FeatureState::default() };
        if known.global && known.driver {
            return state;
        }
        let (min, max) = if known.driver {
            let Some((range, experimental)) = self.ask_driver(adapter, known, setting, &mut state) else {
                return state;
            };
            state.experimental = experimental;
            range
        } else {
            state.on_configuration = true;
            (setting.min_version, setting.max_version)
        };
        let version = max.min(setting.max_version);
        let common = version >= min && version >= setting.min_version;
        let testing_allowed =
            id != DXGK_FEATURE_ID::DXGK_FEATURE_KERNEL_MODE_TESTING || adapter.personality().test_signing;
        let dependencies = known.depends_on.iter().all(|id| self.is_enabled(adapter, *id));
        state.enabled = setting.supported && common && testing_allowed && dependencies && state.on_configuration;
        state.version = if state.enabled { version } else { 0 };
        state
    }

    /// The driver's range of versions. `None`: it does not support the feature.
    fn ask_driver(
        &self,
        adapter: &Miniport,
        known: &Known,
        setting: FeatureSetting,
        state: &mut FeatureState,
    ) -> Option<((u16, u16), bool)> {
        let Some(interface) = self.driver_interface(adapter) else {
            let support = self.state.lock().legacy_support.get(&known.id.0).copied().unwrap_or(0);
            let allowed = match support {
                0 => false,
                1 => setting.allow_experimental,
                _ => true,
            };
            (state.by_driver, state.on_configuration) = (allowed, allowed);
            return allowed.then_some(((1, 1), support == 1));
        };
        // Only the driver knows which of its features are experimental: those that it supports with AllowExperimental
        // alone. So it is asked both ways.
        let mut other: DXGKARG_QUERYFEATURESUPPORT = poison::record();
        other.FeatureId = known.id;
        other.AllowExperimental = (!setting.allow_experimental).into();
        let with_other = query_support(adapter, &interface, &mut other).is_success() && other.SupportedByDriver != 0;
        let mut arguments: DXGKARG_QUERYFEATURESUPPORT = poison::record();
        arguments.FeatureId = known.id;
        arguments.AllowExperimental = setting.allow_experimental.into();
        let status = query_support(adapter, &interface, &mut arguments);
        let asked = (known.id, u8::from(setting.allow_experimental));
        let untouched = (arguments.FeatureId, arguments.AllowExperimental) == asked
            && (other.FeatureId, other.AllowExperimental) == (known.id, u8::from(!setting.allow_experimental));
        let supported = status.is_success() && arguments.SupportedByDriver != 0;
        let range = (arguments.MinSupportedVersion, arguments.MaxSupportedVersion);
        let sound = match status {
            ntstatus::STATUS_INVALID_PARAMETER => true,
            status if status.is_success() => {
                let said = [arguments.SupportedByDriver, arguments.SupportedOnCurrentConfig];
                said.iter().all(|said| *said <= 1) && (!supported || (range.0 != 0 && range.0 <= range.1))
            }
            _ => false,
        };
        adapter.rules().check(&FEATURE_SUPPORT, sound, || {
            format!("{:?}: {status:?}, supported {supported}, versions {} to {}", known.id, range.0, range.1)
        });
        let (without, with) =
            if setting.allow_experimental { (with_other, supported) } else { (supported, with_other) };
        adapter.rules().check(&FEATURE_INPUT, untouched && (with || !without), || {
            format!(
                "{:?}: [in] members {}, supported {without} without and {with} with experimental support",
                known.id,
                if untouched { "unchanged" } else { "changed" }
            )
        });
        state.by_driver = supported && sound;
        state.on_configuration = state.by_driver && arguments.SupportedOnCurrentConfig != 0;
        state.by_driver.then_some((range, with && !without))
    }

    /// The driver's feature interface, asked for at the first need.
    fn driver_interface(&self, adapter: &Miniport) -> Option<DXGKDDI_FEATURE_INTERFACE> {
        match self.state.lock().interface {
            DriverInterface::None => return None,
            DriverInterface::Some(interface) => return Some(interface),
            DriverInterface::NotAsked => (),
        }
        // Marked first: a driver that asks about features inside DxgkDdiQueryInterface gets the legacy answer.
        self.state.lock().interface = DriverInterface::None;
        let interface = ask_for_interface(adapter)?;
        reference(adapter, &interface, true);
        let mut state = self.state.lock();
        state.interface = DriverInterface::Some(interface);
        state.answers.clear();
        Some(interface)
    }

    /// Asks for an interface that no driver has, and for the feature interface with too little room.
    pub(crate) fn probe_query_interface(&self, adapter: &Miniport) {
        let unknown = GUID {
            Data1: 0x6b1d_5e21,
            Data2: 0x0d02,
            Data3: 0x4f7e,
            Data4: [0x9a, 0x33, 0x51, 0x0c, 0x2f, 0x7d, 0x88, 0x10],
        };
        let mut space = Space::new();
        let status = query_interface(adapter, &unknown, &mut space, (Space::SIZE, 1));
        let untouched = space.is_untouched();
        let missing = status == ntstatus::STATUS_SYSTEM_SHUTDOWN;
        let refused = status == ntstatus::STATUS_NOT_SUPPORTED && untouched;
        adapter.rules().check(&QUERY_INTERFACE_RULE, refused || missing, || {
            format!("an unknown interface: {status:?}, buffer {}", if untouched { "untouched" } else { "written" })
        });
    }
}

/// Room for an interface, with a pattern behind it.
#[repr(C, align(8))]
struct Space([u8; Space::MOST as usize + 64]);

impl Space {
    /// Bytes of the feature interface.
    const SIZE: u16 = 48;
    /// Bytes of the largest one.
    const MOST: u16 = 128;
    const PATTERN: u8 = 0xC7;

    fn new() -> Self {
        Self([Self::PATTERN; Self::MOST as usize + 64])
    }

    fn is_untouched(&self) -> bool {
        self.is_untouched_from(0)
    }

    /// Returns whether nothing is written from byte `size` on.
    fn is_untouched_from(&self, size: u16) -> bool {
        self.0.get(size.into()..).is_some_and(|tail| tail.iter().all(|byte| *byte == Self::PATTERN))
    }
}

fn query_interface(adapter: &Miniport, guid: &GUID, space: &mut Space, (size, version): (u16, u16)) -> NTSTATUS {
    let mut query = QUERY_INTERFACE::zeroed();
    query.InterfaceType = guid;
    query.Size = size;
    query.Version = version;
    query.Interface = space.0.as_mut_ptr().cast();
    let context = adapter.context();
    let arguments = &raw mut query;
    ddi::status(call_ddi!(adapter, DxgkDdiQueryInterface(context, arguments)))
}

fn ask_for_interface(adapter: &Miniport) -> Option<DXGKDDI_FEATURE_INTERFACE> {
    use wddm_abi::Plain;
    let mut space = Space::new();
    let status = query_interface(adapter, &GUID_WDDM_INTERFACE_FEATURE, &mut space, (Space::SIZE, 1));
    if !status.is_success() {
        adapter.rules().count(&QUERY_INTERFACE_RULE);
        return None;
    }
    let interface = DXGKDDI_FEATURE_INTERFACE::from_bytes(&space.0)?;
    let sound = space.is_untouched_from(Space::SIZE)
        && interface.Size == Space::SIZE
        && interface.Version == 1
        && interface.QueryFeatureSupport.is_some();
    adapter
        .rules()
        .check(&QUERY_INTERFACE_RULE, sound, || {
            format!(
                "DXGKDDI_FEATURE_INTERFACE came back with Size {}, Version {}{}",
                interface.Size,
                interface.Version,
                if space.is_untouched_from(Space::SIZE) { "" } else { ", and bytes behind it written" }
            )
        })
        .then_some(interface)
}

/// Calls a function that every interface begins with: `InterfaceReference`, or `InterfaceDereference`.
fn reference(adapter: &Miniport, interface: &DXGKDDI_FEATURE_INTERFACE, add: bool) {
    let function = if add { interface.InterfaceReference } else { interface.InterfaceDereference };
    let Some(function) = function else { return };
    let context = interface.Context;
    #[expect(unsafe_code, reason = "a function of the driver's interface is called")]
    let call = move || {
        // SAFETY: the driver put the function there for this call; the context is its own.
        unsafe { function(context) }
    };
    let _ = adapter.call_named("DXGKDDI_FEATURE_INTERFACE.InterfaceReference", call);
}

fn query_support(
    adapter: &Miniport,
    interface: &DXGKDDI_FEATURE_INTERFACE,
    arguments: &mut DXGKARG_QUERYFEATURESUPPORT,
) -> NTSTATUS {
    let Some(function) = interface.QueryFeatureSupport else { return ntstatus::STATUS_NOT_SUPPORTED };
    // The page says that hAdapter is what DxgkDdiAddDevice returned.
    let context = adapter.context();
    let arguments = core::ptr::from_mut(arguments);
    #[expect(unsafe_code, reason = "a function of the driver's interface is called")]
    let call = move || {
        // SAFETY: the driver put the function there for this call; the record is valid for it.
        unsafe { function(context, arguments) }
    };
    ddi::status(adapter.call_named("DxgkDdiQueryFeatureSupport", call))
}
