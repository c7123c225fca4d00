//! The miniport: the way into one driver for one adapter.
//!
//! [`Miniport`] is what every layer of the model has of an adapter: the machine and its Windows, the driver's table and
//! context, what the driver reported, who is inside it, and what was called. What a layer keeps of an adapter itself
//! lies with that layer, as an *extension*, which is found by its type: [`Miniport::extension`].

pub(crate) mod arguments;
mod calls;
mod watchdog;

pub use arguments::DdiCall;
pub use calls::JOURNAL;

use arguments::Arguments;
use calls::Calls;
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use watchdog::Watchdog;
pub(crate) use watchdog::{is_worker, note_worker};

use nt_model::registry::RegistryValue;
use nt_model::{Details, Kernel, Rulebook};
use wddm_abi::slots::DRIVER_INITIALIZATION_DATA_SLOTS;
use wddm_abi::{DRIVER_INITIALIZATION_DATA, DXGK_FEATURE_ID, GUID, HANDLE, LUID, NTSTATUS, Plain};

use crate::port::caps::Caps;
use crate::port::compute::DeviceClass;
use crate::port::ddi::{self, At, Ddi, Level, NoCall};
use crate::port::driver::LoadedDriver;
use crate::port::extensions::Extensions;
use crate::port::handle::{KernelHandle, KernelObject};
use crate::port::pci::Device;
use crate::port::pci::object::DeviceObject;
use crate::port::personality::{FeatureSetting, FeatureSettings, Gate as PassGate, Personality};
use crate::port::rules::paging::{DDI_TIME, OBJECT_DESTROY};
use crate::port::rules::queue::RESUME_STATUS;
use crate::port::shared::Shared;
use crate::port::sync::{Admission, Gate, InDriver, Lock, Rank};
use crate::port::transcript::Line;

/// How the adapter is attached and what its registry says.
#[derive(Clone, Debug, Default)]
pub struct AdapterConfig {
    /// The function on the bus that it is.
    pub device: crate::port::pci::DeviceConfig,
    /// Feature settings of this adapter; those of the personality hold for the rest.
    pub features: FeatureSettings,
    /// Values under the adapter's software key, by name.
    pub registry: BTreeMap<String, RegistryValue>,
    /// The class that its INF names; `None`: not known, and not judged.
    pub class: Option<DeviceClass>,
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

/// The way into one driver for one adapter.
pub struct Miniport {
    shared: Arc<Shared>,
    driver: Arc<LoadedDriver>,
    config: AdapterConfig,
    /// `DXGKRNL_INTERFACE.DeviceHandle`, fresh at each start.
    handle: Lock<Option<KernelHandle<Miniport>>>,
    /// What `DxgkDdiAddDevice` returned.
    context: AtomicUsize,
    /// Fresh at each start.
    luid: AtomicU64,
    state: AtomicU8,
    /// Physical adapters that act as this one, itself among them.
    engines: AtomicU32,
    caps: Lock<Option<Arc<Caps>>>,
    pub(crate) device: Device,
    /// The physical device object that stands for it, and its keys.
    pub(crate) object: DeviceObject,
    /// The watchdog of calls that the scheduler waits for.
    pub(crate) watchdog: Watchdog,
    /// What other layers keep of the adapter.
    extensions: Extensions,
    /// Everybody who is in the driver, against level three.
    admission: Gate,
    scheduler_class: Gate,
    memory_class: Gate,
    affinities: Lock<std::collections::BTreeSet<u32>>,
    transcript: Lock<Vec<Line>>,
    calls: Lock<Calls>,
}

impl fmt::Debug for Miniport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Miniport")
            .field("luid", &self.luid_number())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl KernelObject for Miniport {
    const KIND: &'static str = "adapter";
}

impl Miniport {
    pub(crate) fn new(shared: &Arc<Shared>, driver: &Arc<LoadedDriver>, config: AdapterConfig) -> Arc<Self> {
        let device = Device::new(shared, &config.device);
        let object = DeviceObject::new(device.index());
        let registry = shared.kernel().registry();
        registry.set_device_keys(object.address(), &object.hardware_key(), &object.key());
        for (name, value) in &config.registry {
            registry.set(&object.key(), name, value.clone());
        }
        let properties = device.properties(config.class, &object.key());
        shared.kernel().set_device_properties(object.address(), properties);
        Arc::new(Self {
            shared: shared.clone(),
            driver: driver.clone(),
            config,
            handle: Lock::new(Rank::Leaf, None),
            context: AtomicUsize::new(0),
            luid: AtomicU64::new(0),
            state: AtomicU8::new(AdapterState::Absent as u8),
            engines: AtomicU32::new(1),
            caps: Lock::new(Rank::Leaf, None),
            device,
            object,
            watchdog: Watchdog::new(),
            extensions: Extensions::new(),
            admission: Gate::new(),
            scheduler_class: Gate::new(),
            memory_class: Gate::new(),
            affinities: Lock::new(Rank::Leaf, std::collections::BTreeSet::new()),
            transcript: Lock::new(Rank::Leaf, Vec::new()),
            calls: Lock::new(Rank::Leaf, Calls::default()),
        })
    }

    /// Changes a value under the adapter's key, as an administrator would. A driver that reads it in
    /// `DxgkDdiStartDevice` sees it from the next start on.
    pub fn set_registry_value(&self, name: &str, value: RegistryValue) {
        self.shared.kernel().registry().set(&self.object.key(), name, value);
    }

    /// A value under the adapter's key.
    pub fn registry_value(&self, name: &str) -> Option<RegistryValue> {
        self.shared.kernel().registry().get(&self.object.key(), name)
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

    /// The GUID by which the driver is started, and which user mode is told; all but its first word are 0.
    ///
    /// Source: DDI page DXGK_START_INFO, AdapterGuid.
    pub fn guid(&self) -> GUID {
        // CAST: the low word, of which each start has another.
        GUID { Data1: self.luid_number() as u32, ..GUID::zeroed() }
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

    /// How often each DDI was called.
    pub fn ddi_calls(&self) -> BTreeMap<&'static str, u64> {
        self.calls.lock().ddis.clone()
    }

    /// The DDIs that were called last, with what is kept of their arguments, in the order in which they were entered:
    /// at most [`JOURNAL`].
    pub fn ddi_journal(&self) -> Vec<DdiCall> {
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
        let mut faults = plan.iter().filter(|fault| fault.callback == name).peekable();
        faults.peek()?;
        let count = self.calls.lock().callbacks.get(name).copied().unwrap_or(0);
        faults.find(|fault| fault.calls.contains(&count)).map(|fault| fault.status)
    }

    /// What the layer of `T` keeps of the adapter; made when it is first asked for.
    pub(crate) fn extension<T: Any + Default + Send + Sync>(&self) -> &T {
        self.extensions.get()
    }

    /// Calls the driver: see [`crate::port::ddi`]. `arguments`: what is kept of each.
    ///
    /// # Errors
    /// [`NoCall::Stopped`].
    pub(crate) fn call<R>(&self, ddi: &'static Ddi, arguments: &Arguments, f: impl FnOnce() -> R) -> Result<R, NoCall> {
        let arguments = arguments.without(self.context().addr() as u64);
        self.calls.lock().count_ddi(ddi.name, arguments);
        let kernel = self.kernel();
        let (result, took) = {
            // The wait for admission is the model's own time.
            let _admission = self.admit(ddi);
            let begun = kernel.now();
            let _watched = self.watchdog.begin(kernel, ddi);
            let result = ddi::enter(kernel, ddi, f);
            (result, kernel.now().saturating_sub(begun))
        };
        let limit = self.personality().police_ddi;
        if limit != 0 {
            self.rules().check(&DDI_TIME, !ddi::over_limit(limit, took), || {
                format!("{} took {} ms", ddi.name, took / crate::port::personality::MS)
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
        crate::port::sync::assert_free(name);
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

    pub(crate) fn note_event(&self, text: String) {
        let now = self.kernel().query_performance_counter();
        self.shared.counters.event(now, format!("adapter {:#x}: {text}", self.luid_number()));
    }

    /// The numbers that the driver got as `EngineAffinity` of contexts.
    pub fn affinities(&self) -> std::collections::BTreeSet<u32> {
        self.affinities.lock().clone()
    }

    pub(crate) fn note_affinity(&self, affinity: u32) {
        self.affinities.lock().insert(affinity);
    }

    /// Threads inside the driver by gated calls.
    pub(crate) fn threads_inside(&self) -> u32 {
        self.admission.inside()
    }

    /// Binds the device handle to this adapter.
    pub(crate) fn bind_handle(self: &Arc<Self>) -> HANDLE {
        let new = KernelHandle::reserve();
        new.bind(self);
        let raw = new.raw();
        self.set_handle(Some(new));
        raw
    }

    /// Stops at a gate, where there is one.
    pub(crate) fn pass(&self, gate: Option<&PassGate>) {
        if let Some(gate) = gate {
            gate.pass(self.kernel());
        }
    }

    /// Returns whether a slot of the driver's table is NULL.
    pub(crate) fn is_null(&self, slot: &str) -> bool {
        let table = self.table().as_bytes();
        let found = DRIVER_INITIALIZATION_DATA_SLOTS.iter().find(|known| known.member == slot);
        found.is_none_or(|slot| table[slot.offset..slot.offset + 8] == [0; 8])
    }

    /// Destruction succeeds.
    pub(crate) fn judge_destroy(&self, ddi: &str, status: NTSTATUS) {
        let fine = ddi::succeeded(status);
        self.rules().check(&OBJECT_DESTROY, fine, || format!("{ddi}: {status:?}"));
    }

    /// Functions that set up or resume scheduling succeed. Returns whether this one did.
    pub(crate) fn judge_resume(&self, ddi: &str, status: NTSTATUS) -> bool {
        let fine = ddi::succeeded(status);
        self.rules().check(&RESUME_STATUS, fine, || format!("{ddi}: {status:?}"));
        status.is_success()
    }

    /// A text with the parameters of bug check 0x116 behind the first: a pointer into the driver; the status of the
    /// function that failed, 0 where none did; and what Windows keeps for itself, here a count.
    ///
    /// Source: bug check 0x116, VIDEO_TDR_ERROR.
    pub(crate) fn bug_check_details(&self, text: String, status: NTSTATUS, count: u64) -> Details {
        let driver = self.table().DxgkDdiResetFromTimeout.map_or(0, |function| function as usize);
        // CAST: an address; sign-extended, as debuggers show it.
        Details::new(text).params([driver as u64, i64::from(status.0) as u64, count])
    }
}
