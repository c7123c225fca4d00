//! An adapter: one device of one driver, from AddDevice to RemoveDevice.
//!
//! This file is the object and the way into its driver. What happens to it is in the submodules: [`start`] and
//! [`stop`], [`query`] (asking the driver), [`caps`] (what it answered), [`judge`] and [`first`] (whether that is
//! consistent).

mod calls;
pub(crate) mod caps;
pub mod compute;
mod cross;
mod display_only;
mod every_slot;
mod first;
pub(crate) mod judge;
pub(crate) mod link;
pub(crate) mod nodes;
pub(crate) mod query;
mod removal;
pub(crate) mod segments;
pub(crate) mod start;
pub(crate) mod stop;

pub use calls::JOURNAL;

use calls::Calls;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use nt_model::registry::RegistryValue;
use nt_model::{Kernel, Rulebook};
use wddm_abi::{DRIVER_INITIALIZATION_DATA, DXGK_FEATURE_ID, HANDLE, LUID, NTSTATUS};

use crate::alive::make_room;
use crate::ddi::{self, At, Ddi, Level, NoCall};
use crate::device::Device as GpuDevice;
use crate::driver::LoadedDriver;
use crate::features::{FeatureState, Features};
use crate::fence::monitored::FenceState;
use crate::fence::native::FenceOnAdapter;
use crate::handle::{KernelHandle, KernelObject};
use crate::hw_context::HwContext;
use crate::interrupt::Interrupts;
use crate::memory::VidMm;
use crate::os::Shared;
use crate::pci::Device;
use crate::personality::{FeatureSetting, FeatureSettings, Personality};
use crate::power::Power;
use crate::process::ProcessAdapter;
use crate::recovery::Tdr;
use crate::report::AdapterReport;
use crate::rules::paging::DDI_TIME;
use crate::sync::{Admission, Gate, InDriver, Lock, Rank};
use crate::transcript::Line;
use crate::vidsch::VidSch;
use caps::Caps;

pub use crate::interrupt::Notification;
pub use crate::recovery::collect::{DebugBlob, DebugQuestion};
pub use crate::recovery::steps::{Reason, Recovery, Step, What};
pub use crate::vidsch::journal::{PacketEvent, Preemptions};
pub use link::Place;
pub use start::StartError;

/// How the adapter is attached and what its registry says.
#[derive(Clone, Debug, Default)]
pub struct AdapterConfig {
    /// The function on the bus that it is.
    pub device: crate::pci::DeviceConfig,
    /// Feature settings of this adapter; those of the personality hold for the rest.
    pub features: FeatureSettings,
    /// Values under the adapter's software key, by name.
    pub registry: BTreeMap<String, RegistryValue>,
    /// The class that its INF names; `None`: not known, and not judged.
    pub class: Option<compute::DeviceClass>,
    /// Physical adapters that the machine has in the chain that the device leads; 0 and 1: it is alone.
    pub links: u32,
}

/// Where in its life an adapter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AdapterState {
    /// `DxgkDdiAddDevice` has not been called, or `DxgkDdiRemoveDevice` has.
    Absent,
    /// Added, not started.
    Added,
    /// Inside `DxgkDdiStartDevice` or the queries around it.
    Starting,
    /// Working.
    Started,
    /// Inside `DxgkDdiStopDevice`.
    Stopping,
    /// Stopped, not removed.
    Stopped,
}

impl AdapterState {
    fn from_raw(raw: u8) -> Self {
        match raw {
            1 => Self::Added,
            2 => Self::Starting,
            3 => Self::Started,
            4 => Self::Stopping,
            5 => Self::Stopped,
            _ => Self::Absent,
        }
    }
}

/// An adapter.
pub struct Adapter {
    shared: Arc<Shared>,
    driver: Arc<LoadedDriver>,
    config: AdapterConfig,
    /// `DXGKRNL_INTERFACE.DeviceHandle`, fresh at each start.
    handle: Lock<Option<KernelHandle<Adapter>>>,
    /// What `DxgkDdiAddDevice` returned.
    context: AtomicUsize,
    /// Fresh at each start.
    luid: AtomicU64,
    state: AtomicU8,
    /// Physical adapters that act as this one, itself among them.
    engines: AtomicU32,
    caps: Lock<Option<Arc<Caps>>>,
    pub(crate) device: Device,
    pub(crate) features: Features,
    pub(crate) interrupts: Interrupts,
    pub(crate) memory: VidMm,
    pub(crate) scheduler: VidSch,
    pub(crate) scheduling_logs: crate::scheduling_log::SchedulingLogSet,
    pub(crate) tdr: Tdr,
    pub(crate) power: Power,
    pub(crate) resources: crate::interface::memory::DriverMemory,
    /// Everybody who is in the driver, against level three.
    admission: Gate,
    scheduler_class: Gate,
    memory_class: Gate,
    /// Kernel addresses of fence values, for one call each.
    pub(crate) windows: crate::fence::window::Windows,
    /// Storage of fences that were destroyed.
    pub(crate) kept_fences: crate::fence::kept::Kept,
    monitored: Lock<Vec<Weak<FenceState>>>,
    native: Lock<Vec<Weak<FenceOnAdapter>>>,
    /// The driver's handle of the native fence that was destroyed last.
    dead_fence: AtomicUsize,
    affinities: Lock<std::collections::BTreeSet<u32>>,
    transcript: Lock<Vec<Line>>,
    calls: Lock<Calls>,
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adapter")
            .field("luid", &self.luid_number())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl KernelObject for Adapter {
    const KIND: &'static str = "adapter";
}

impl Adapter {
    pub(crate) fn new(shared: &Arc<Shared>, driver: &Arc<LoadedDriver>, config: AdapterConfig) -> Arc<Self> {
        let device = Device::new(shared, &config.device);
        let resources = crate::interface::memory::DriverMemory::new(device.index());
        let registry = shared.kernel().registry();
        registry.set_device_keys(resources.device_object(), &resources.hardware_key(), &resources.key());
        for (name, value) in &config.registry {
            registry.set(&resources.key(), name, value.clone());
        }
        let properties = device.properties(config.class, &resources.key());
        shared.kernel().set_device_properties(resources.device_object(), properties);
        Arc::new(Self {
            shared: shared.clone(),
            driver: driver.clone(),
            config,
            handle: Lock::new(Rank::Log, None),
            context: AtomicUsize::new(0),
            luid: AtomicU64::new(0),
            state: AtomicU8::new(AdapterState::Absent as u8),
            engines: AtomicU32::new(1),
            caps: Lock::new(Rank::Log, None),
            device,
            features: Features::new(),
            interrupts: Interrupts::new(),
            memory: VidMm::new(),
            scheduler: VidSch::new(),
            scheduling_logs: crate::scheduling_log::SchedulingLogSet::new(),
            tdr: Tdr::new(),
            power: Power::new(),
            resources,
            admission: Gate::new(),
            scheduler_class: Gate::new(),
            memory_class: Gate::new(),
            windows: crate::fence::window::Windows::new(),
            kept_fences: crate::fence::kept::Kept::new(),
            monitored: Lock::new(Rank::Registry, Vec::new()),
            native: Lock::new(Rank::Registry, Vec::new()),
            dead_fence: AtomicUsize::new(0),
            affinities: Lock::new(Rank::Log, std::collections::BTreeSet::new()),
            transcript: Lock::new(Rank::Log, Vec::new()),
            calls: Lock::new(Rank::Log, Calls::default()),
        })
    }

    /// What user mode would pass to have a cross-adapter resource of this driver made: the private data of allocation
    /// and resource. `None`: the driver advertises none, or has none.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub fn cross_adapter_data(self: &Arc<Self>) -> Option<[Vec<u8>; 2]> {
        cross::private_data(self)
    }

    /// Changes a value under the adapter's key, as an administrator would. A driver that reads it in
    /// `DxgkDdiStartDevice` sees it from the next start on.
    pub fn set_registry_value(&self, name: &str, value: RegistryValue) {
        self.shared.kernel().registry().set(&self.resources.key(), name, value);
    }

    /// A value under the adapter's key.
    pub fn registry_value(&self, name: &str) -> Option<RegistryValue> {
        self.shared.kernel().registry().get(&self.resources.key(), name)
    }

    /// The machine.
    pub fn kernel(&self) -> &Kernel {
        self.shared.kernel()
    }

    /// What is judged on that machine.
    pub fn rules(&self) -> &Rulebook {
        &self.shared.kernel().rules
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The Windows that the adapter runs under.
    pub fn personality(&self) -> &Personality {
        self.shared.personality()
    }

    /// How it is attached.
    pub fn config(&self) -> &AdapterConfig {
        &self.config
    }

    pub(crate) fn driver(&self) -> &Arc<LoadedDriver> {
        &self.driver
    }

    /// The driver's table, as `DxgkInitialize` copied it.
    pub(crate) fn table(&self) -> &DRIVER_INITIALIZATION_DATA {
        self.driver.table()
    }

    /// The driver's context block.
    pub(crate) fn context(&self) -> HANDLE {
        core::ptr::with_exposed_provenance_mut(self.context.load(Ordering::Acquire))
    }

    pub(crate) fn set_context(&self, context: HANDLE) {
        self.context.store(context.expose_provenance(), Ordering::Release);
    }

    /// `DXGKRNL_INTERFACE.DeviceHandle`; NULL before start.
    pub(crate) fn device_handle(&self) -> HANDLE {
        self.handle.lock().as_ref().map_or(core::ptr::null_mut(), KernelHandle::raw)
    }

    pub(crate) fn set_handle(&self, new: Option<KernelHandle<Self>>) {
        let old = std::mem::replace(&mut *self.handle.lock(), new);
        drop(old);
    }

    /// Locally unique identifier; a new one at each start.
    ///
    /// Chosen: as seen on Windows 11; not documented.
    pub fn luid(&self) -> LUID {
        let number = self.luid_number();
        let mut luid = LUID::zeroed();
        // CAST: low and high half.
        luid.LowPart = number as u32;
        luid.HighPart = (number >> 32) as i32;
        luid
    }

    /// [`luid`](Self::luid) as one number; 0 before the first start.
    pub fn luid_number(&self) -> u64 {
        self.luid.load(Ordering::Acquire)
    }

    /// The name of its device interface, which D3DKMTOpenAdapterFromDeviceName takes in any case of letters: of the
    /// class GUID_DISPLAY_DEVICE_ARRIVAL. Chosen: a compute-only adapter's, too, whose class has a GUID that is not
    /// published.
    ///
    /// Source: *GUID_DISPLAY_DEVICE_ARRIVAL* (the GUID).
    pub fn device_name(&self) -> String {
        format!(r"\\?\ROOT#DISPLAY#{:04}#{{1ca05180-a699-450a-9a0c-de4fbe3ddd89}}", self.device.index())
    }

    pub(crate) fn set_luid(&self, luid: u64) {
        self.luid.store(luid, Ordering::Release);
    }

    /// Where in its life it is.
    pub fn state(&self) -> AdapterState {
        AdapterState::from_raw(self.state.load(Ordering::Acquire))
    }

    pub(crate) fn set_state(&self, state: AdapterState) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// Whether it takes new work.
    pub(crate) fn is_started(&self) -> bool {
        self.state() == AdapterState::Started
    }

    /// Physical adapters that act as this one, itself among them: its engines.
    pub fn engines(&self) -> u32 {
        self.engines.load(Ordering::Acquire).max(1)
    }

    pub(crate) fn set_engines(&self, engines: u32) {
        self.engines.store(engines, Ordering::Release);
    }

    /// What the driver reported at the last start; nothing before the queries.
    pub fn caps(&self) -> Option<Arc<Caps>> {
        self.caps.lock().clone()
    }

    /// [`caps`](Self::caps) of a started adapter.
    pub(crate) fn known_caps(&self) -> Arc<Caps> {
        self.caps().unwrap_or_default()
    }

    pub(crate) fn set_caps(&self, caps: Option<Caps>) {
        *self.caps.lock() = caps.map(Arc::new);
    }

    /// The registry's or the personality's word on a feature.
    pub(crate) fn feature_setting(&self, id: DXGK_FEATURE_ID) -> Option<FeatureSetting> {
        // CAST: the identifier as the 32 bits that it is.
        let id = id.0 as u32;
        self.config.features.get(&id).or_else(|| self.personality().features.get(&id)).copied()
    }

    /// The state of a feature. Asks the driver when nobody has yet.
    pub fn feature(&self, id: DXGK_FEATURE_ID) -> FeatureState {
        self.features.query(self, id)
    }

    /// What was asked and answered at the last start.
    pub fn transcript(&self) -> Vec<Line> {
        self.transcript.lock().clone()
    }

    pub(crate) fn note(&self, step: impl Into<String>, answer: impl Into<String>) {
        self.transcript.lock().push(Line { step: step.into(), answer: answer.into() });
    }

    pub(crate) fn clear_transcript(&self) {
        self.transcript.lock().clear();
    }

    /// What the driver wrote last into the buffer of `DxgkDdiCollectDbgInfo` or `DxgkDdiCollectDbgInfo2`, whole, as a
    /// live dump of Windows has it; empty before the first reset.
    pub fn debug_info(&self) -> Vec<u8> {
        self.tdr.debug_info()
    }

    /// How often each DDI was called.
    pub fn ddi_calls(&self) -> BTreeMap<&'static str, u64> {
        self.calls.lock().ddis.clone()
    }

    /// The DDIs that were called last, in the order in which they were entered: at most [`JOURNAL`].
    pub fn ddi_journal(&self) -> Vec<&'static str> {
        self.calls.lock().journal.iter().copied().collect()
    }

    /// How often the driver called each callback.
    pub fn callback_calls(&self) -> BTreeMap<&'static str, u64> {
        self.calls.lock().callbacks.clone()
    }

    pub(crate) fn count_callback(&self, name: &'static str) {
        *self.calls.lock().callbacks.entry(name).or_default() += 1;
    }

    /// What the fault plan says about this call of a callback.
    pub(crate) fn injected_failure(&self, name: &'static str) -> Option<NTSTATUS> {
        let plan = &self.personality().faults.callbacks;
        let fault = plan.iter().find(|fault| fault.callback == name)?;
        let count = self.calls.lock().callbacks.get(name).copied().unwrap_or(0);
        (fault.nth == 0 || fault.nth == count).then_some(fault.status)
    }

    /// Calls the driver: see [`crate::ddi`].
    ///
    /// # Errors
    /// [`NoCall::Stopped`].
    pub(crate) fn call<R>(&self, ddi: &'static Ddi, f: impl FnOnce() -> R) -> Result<R, NoCall> {
        self.calls.lock().count_ddi(ddi.name);
        let kernel = self.kernel();
        let (result, took) = {
            // The wait for admission is the model's own time.
            let _admission = self.admit(ddi);
            let begun = kernel.now();
            let _watched = self.tdr.watchdog.begin(kernel, ddi);
            let result = ddi::enter(kernel, ddi, f);
            (result, kernel.now().saturating_sub(begun))
        };
        let limit = self.personality().police_ddi;
        if limit != 0 {
            self.rules().check(&DDI_TIME, !ddi::over_limit(limit, took), || {
                format!("{} took {} ms", ddi.name, took / crate::personality::MS)
            });
        }
        result
    }

    /// Takes the place of `ddi` among WDDM's levels for as long as `f` takes, which makes the call, and what must be
    /// true of it when it begins: no reset of the adapter comes in between.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn in_place_of<R>(&self, ddi: &'static Ddi, f: impl FnOnce() -> R) -> R {
        let _admission = self.admit(ddi);
        let _inside = InDriver::new();
        f()
    }

    /// Calls a function that is not in the table, at level zero and PASSIVE_LEVEL.
    ///
    /// # Errors
    /// [`NoCall::Stopped`].
    pub(crate) fn call_named<R>(&self, name: &'static str, f: impl FnOnce() -> R) -> Result<R, NoCall> {
        *self.calls.lock().ddis.entry(name).or_default() += 1;
        crate::sync::assert_free(name);
        let _admission = self.admission.shared(self.kernel());
        let _inside = InDriver::new();
        self.kernel().call_driver(name, f).map_err(|_| NoCall::Stopped)
    }

    fn admit(&self, ddi: &'static Ddi) -> (Option<Admission<'_>>, Option<Admission<'_>>) {
        let kernel = self.kernel();
        // Above PASSIVE_LEVEL nobody waits: DPCs and what they call run during a reset as well.
        if ddi.at == At::Caller || ddi.level == Level::Free || kernel.irql() != 0 {
            return (None, None);
        }
        match ddi.level {
            Level::Third => (Some(self.admission.exclusive(kernel)), None),
            // The class first: who waits for it is not inside yet and does not hold up level three.
            Level::Scheduler => {
                let class = self.scheduler_class.exclusive(kernel);
                (Some(self.admission.shared(kernel)), Some(class))
            }
            Level::Memory => {
                let class = self.memory_class.exclusive(kernel);
                (Some(self.admission.shared(kernel)), Some(class))
            }
            Level::Zero | Level::Free => (Some(self.admission.shared(kernel)), None),
        }
    }

    /// Keeps every other thread out of the driver, waiting for those inside at most `timeout`. The calling thread may
    /// call it.
    pub(crate) fn quiesce(&self, timeout: nt_model::sched::Ticks) -> Option<(Admission<'_>, InDriver)> {
        let admission = self.admission.exclusive_within(self.kernel(), timeout)?;
        Some((admission, InDriver::new()))
    }

    /// Whether its driver can still be called: it is started or being stopped, and the machine runs.
    pub(crate) fn is_working(&self) -> bool {
        matches!(self.state(), AdapterState::Started | AdapterState::Stopping) && !self.rules().is_stopped()
    }

    pub(crate) fn add_monitored_fence(&self, fence: &Arc<FenceState>) {
        let mut list = self.monitored.lock();
        make_room(&mut list);
        if !list.iter().any(|other| core::ptr::eq(other.as_ptr(), Arc::as_ptr(fence))) {
            list.push(Arc::downgrade(fence));
        }
    }

    /// Live monitored fences.
    pub(crate) fn monitored_fences(&self) -> Vec<Arc<FenceState>> {
        self.monitored.lock().iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn add_native_fence(&self, fence: &Arc<FenceOnAdapter>) {
        let mut list = self.native.lock();
        make_room(&mut list);
        list.push(Arc::downgrade(fence));
    }

    /// Live native fences.
    pub(crate) fn native_fences(&self) -> Vec<Arc<FenceOnAdapter>> {
        self.native.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// What each process has of the adapter; the paging process is not among them.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Arc<ProcessAdapter>> {
        let processes = self.shared.processes().into_iter();
        processes.filter_map(|process| process.on_adapter_by(|adapter| core::ptr::eq(adapter, self)))
    }

    /// Every device of every process.
    pub(crate) fn devices(&self) -> Vec<Arc<GpuDevice>> {
        self.parts().flat_map(|part| part.devices()).collect()
    }

    /// Every live hardware context.
    pub(crate) fn hw_contexts(&self) -> Vec<Arc<HwContext>> {
        self.devices().iter().flat_map(|device| device.hw_contexts()).collect()
    }

    pub(crate) fn note_event(&self, text: String) {
        let now = self.kernel().query_performance_counter();
        self.shared.counters.event(now, format!("adapter {:#x}: {text}", self.luid_number()));
    }

    /// What it did so far.
    pub(crate) fn report(&self) -> AdapterReport {
        let interrupts = &self.interrupts;
        AdapterReport {
            luid: self.luid_number(),
            ddis: self.ddi_calls(),
            callbacks: self.callback_calls(),
            interrupts: interrupts.interrupts.load(Ordering::Relaxed),
            raises: self.device.edu().map_or(0, |edu| edu.told()),
            fences_named: interrupts.fences_named(),
            fences_unnamed: interrupts.fences_unnamed(),
            notifications: interrupts.notifications.load(Ordering::Relaxed),
            kinds: interrupts.kinds(),
            dpcs: interrupts.dpcs.load(Ordering::Relaxed),
            overflows: interrupts.overflows.load(Ordering::Relaxed),
            engine_resets: self.tdr.engine_resets.load(Ordering::Relaxed),
            adapter_resets: self.tdr.adapter_resets.load(Ordering::Relaxed),
            innocent_probes: self.tdr.innocent_probes.load(Ordering::Relaxed),
            suspending: self.hw_contexts().iter().filter(|context| context.is_suspending()).count(),
            power_transitions: self.power.transitions(),
            segments: self.memory.manager().map(|manager| manager.segment_usage()).unwrap_or_default(),
        }
    }

    /// The driver's handle of a fence that it destroyed, or 0.
    pub(crate) fn dead_fence(&self) -> usize {
        self.dead_fence.load(Ordering::Relaxed)
    }

    pub(crate) fn note_dead_fence(&self, handle: usize) {
        self.dead_fence.store(handle, Ordering::Relaxed);
    }

    /// Where the values of each native fence lie: segments of CurrentValue and MonitoredValue; 0: system memory. In no
    /// order.
    pub fn native_fence_segments(&self) -> Vec<(u32, u32)> {
        self.native_fences().iter().map(|on| on.slot().segments()).collect()
    }

    /// The numbers that the driver got as `EngineAffinity` of contexts.
    pub fn affinities(&self) -> std::collections::BTreeSet<u32> {
        self.affinities.lock().clone()
    }

    pub(crate) fn note_affinity(&self, affinity: u32) {
        self.affinities.lock().insert(affinity);
    }

    /// Debug information that the driver gave, the newest last; the last 16.
    pub fn debug_blobs(&self) -> Vec<DebugBlob> {
        self.tdr.debug_blobs()
    }

    /// What was recovered, step by step, in order.
    pub fn recoveries(&self) -> Vec<Recovery> {
        self.tdr.journal.recoveries()
    }

    /// What has happened to the packets of a node, in order; empty for a node that is not there.
    pub fn packet_journal(&self, node: u32) -> Vec<PacketEvent> {
        self.scheduler.node(node).map(|node| node.packet.journal()).unwrap_or_default()
    }

    /// How often a packet node was preempted, ever.
    pub fn packet_preemptions(&self, node: u32) -> Preemptions {
        self.scheduler.node(node).map(|node| node.packet.preemptions()).unwrap_or_default()
    }

    /// Threads inside the driver by gated calls.
    pub(crate) fn threads_inside(&self) -> u32 {
        self.admission.inside()
    }

    /// `DXGKRNL_INTERFACE.DeviceHandle` of the last start; NULL before the first.
    pub(crate) fn handle(&self) -> HANDLE {
        self.handle.lock().as_ref().map_or(core::ptr::null_mut(), KernelHandle::raw)
    }

    /// Binds the device handle to this adapter.
    pub(crate) fn bind_handle(self: &Arc<Self>) -> HANDLE {
        let new = KernelHandle::reserve();
        new.bind(self);
        let raw = new.raw();
        self.set_handle(Some(new));
        raw
    }
}
