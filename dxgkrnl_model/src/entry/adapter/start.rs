//! Starting an adapter, step by step as the transcript says.

use wddm_abi::{
    DXGK_CHILD_DESCRIPTOR, DXGK_FEATURE_ID, DXGK_GPUMMUCAPS, DXGK_PAGE_TABLE_LEVEL_DESC, DXGK_POWER_RUNTIME_COMPONENT,
    DXGK_QUERYADAPTERINFOTYPE, DXGK_START_INFO, DXGK_WDDMVERSION, Plain, ntstatus,
};

use super::polls::Polls;
use super::problem::{ADD_DEVICE, START_DEVICE, StartError};
use crate::entry::interface::InterfaceTable;
use crate::objects::scheduling_log::SchedulingLogSet;
use crate::port::caps::{Caps, Mmu};
use crate::port::ddi::{self, call_ddi};
use crate::port::features::Features;
use crate::port::miniport::{AdapterState, Miniport};
use crate::port::personality::PhysicalAdapterCaps;
use crate::port::power;
use crate::port::power::Power;
use crate::port::query::{Buffer, Query, type_by_name};
use crate::port::rules::caps::CAPS_CHILDREN;
use crate::port::rules::paging::CONTEXT_SEGMENT;
use crate::port::rules::queue::POWER_COMPONENT;
use crate::port::rules::start::{ADD_CONTEXT, QAI_EXPECTED, QAI_PRIVATE, QAI_REQUIRED, START_STATUS};
use crate::port::transcript::{Need, Step};
use crate::sched::interrupt::Interrupts;
use crate::sched::vidsch::VidSch;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A type that no Windows asks for.
const UNKNOWN_TYPE: DXGK_QUERYADAPTERINFOTYPE = DXGK_QUERYADAPTERINFOTYPE(0x7E57);
/// More children or components than this are not asked for.
const MAX_CHILDREN: u32 = 256;

impl Miniport {
    /// Adds (when it is absent) and starts the adapter. On failure it is stopped and removed again.
    ///
    /// IRQL: PASSIVE_LEVEL.
    ///
    /// # Errors
    /// See [`StartError`].
    pub(crate) fn start(self: &Arc<Self>) -> Result<(), StartError> {
        if !matches!(self.state(), AdapterState::Absent | AdapterState::Stopped) {
            return Err(StartError::State(self.state()));
        }
        self.clear_transcript();
        let mut caps = Caps::default();
        let was_added = self.state() == AdapterState::Stopped;
        let display_only = self.driver().is_display_only();
        let steps = if display_only { super::display_only::steps() } else { self.shared().start_steps() };
        let result = steps.iter().try_for_each(|step| {
            if self.rules().is_stopped() {
                return Err(StartError::Stopped);
            }
            match step {
                Step::AddDevice if was_added => Ok(()),
                step => self.step(step, &mut caps),
            }
        });
        let result = if display_only { result.and(Err(StartError::DisplayOnly)) } else { result };
        match result {
            Ok(()) => {
                self.set_state(AdapterState::Started);
                Features::of(self).ask_for_testing(self);
                SchedulingLogSet::of(self).start(self);
                crate::sched::interrupt::probe_foreign_interrupt(self);
                crate::port::calibration::calibrate(self);
                Polls::of(self).start(self);
                Ok(())
            }
            Err(error) => {
                self.abandon_start();
                Err(error)
            }
        }
    }

    fn step(self: &Arc<Self>, step: &Step, caps: &mut Caps) -> Result<(), StartError> {
        match step {
            Step::AddDevice => self.add_device(),
            Step::Query { name, size, need } => self.run_query(name, *size, *need, caps),
            Step::StartDevice => self.start_device(caps),
            Step::Children => self.query_children(caps),
            Step::Features => {
                self.negotiate_features();
                Ok(())
            }
            Step::Nodes => {
                caps.nodes = self.query_nodes(caps.driver.GpuEngineTopology.NbAsymetricProcessingNodes);
                Ok(())
            }
            Step::PowerComponents => self.query_power_components(caps),
            Step::Segments if self.query_segments(caps) => Ok(()),
            Step::Segments => Err(StartError::refused(&QAI_REQUIRED)),
            Step::PageTableLevels => self.query_levels(caps),
            Step::PhysicalAdapter => {
                self.query_physical(caps)?;
                self.query_followers(caps);
                Ok(())
            }
            Step::QueryInterfaces(names) => {
                crate::port::features::display::query(self, names);
                Ok(())
            }
            Step::QueryInterfaceProbe => {
                Features::of(self).probe_query_interface(self);
                Ok(())
            }
            Step::QueryUnknown => {
                self.query_unknown();
                Ok(())
            }
            Step::Judge => {
                self.judge(caps)?;
                caps.name_system_memory();
                self.set_caps(Some(caps.clone()));
                Ok(())
            }
            Step::SystemDevice => {
                self.start_engines()?;
                super::cross::probe(self, caps);
                Ok(())
            }
            Step::PriorityBands => {
                VidSch::of(self).set_priority_bands(self, |_| ());
                Ok(())
            }
        }
    }

    fn add_device(self: &Arc<Self>) -> Result<(), StartError> {
        let mut context = core::ptr::null_mut();
        let pointer = &raw mut context;
        let device_object = self.driver().physical_device_object(self);
        let status = ddi::status(call_ddi!(self, DxgkDdiAddDevice(device_object, pointer)));
        self.note("AddDevice", format!("{status:?}"));
        if !status.is_success() {
            return Err(StartError::Driver { step: ADD_DEVICE.into(), status });
        }
        if !self.rules().check(&ADD_CONTEXT, !context.is_null(), || "success with a NULL context".to_owned()) {
            return Err(StartError::refused(&ADD_CONTEXT));
        }
        self.set_context(context);
        self.set_state(AdapterState::Added);
        self.link()
    }

    fn start_device(self: &Arc<Self>, caps: &mut Caps) -> Result<(), StartError> {
        static LUIDS: AtomicU64 = AtomicU64::new(0x1_0000);
        self.set_state(AdapterState::Starting);
        self.set_luid(LUIDS.fetch_add(0x11, Ordering::Relaxed));
        let handle = self.bind_handle();
        let mut interface = InterfaceTable::new(self, handle);
        let mut info = DXGK_START_INFO::zeroed();
        info.RequiredDmaQueueEntry = self.personality().required_dma_queue_entries;
        info.AdapterGuid = self.guid();
        info.AdapterLuid = self.luid();
        Interrupts::of(self).connect(self);
        let (context, info, table) = (self.context(), &raw mut info, interface.pointer());
        let (sources, children) = (&raw mut caps.sources, &raw mut caps.children);
        let status = ddi::status(call_ddi!(self, DxgkDdiStartDevice(context, info, table, sources, children)));
        // The table was the driver's to copy during the call.
        drop(interface);
        self.note("StartDevice", format!("{status:?}, {} sources, {} children", caps.sources, caps.children));
        // A display-only driver may look for a display.
        let excused = self.driver().is_display_only()
            || self.personality().faults != crate::port::personality::FaultPlan::default();
        if !excused {
            self.rules().check(&START_STATUS, ddi::succeeded(status), || format!("{status:?}"));
        }
        if status.is_success() { Ok(()) } else { Err(StartError::Driver { step: START_DEVICE.into(), status }) }
    }

    /// The model asks for the children, where the driver has said that it has some.
    ///
    /// Source: six starts of render-only drivers were seen, none of which was asked; `Personality::asks_the_childless`.
    fn query_children(&self, caps: &Caps) -> Result<(), StartError> {
        let personality = self.personality();
        if caps.children == 0 && !personality.asks_the_childless && !personality.every_slot {
            return Ok(());
        }
        let count = caps.children.min(MAX_CHILDREN) as usize + 1;
        let size = count * size_of::<DXGK_CHILD_DESCRIPTOR>();
        let mut array = Buffer::new(size, 0);
        let (context, pointer) = (self.context(), array.pointer().cast::<DXGK_CHILD_DESCRIPTOR>());
        // CAST: at most 257 descriptors.
        let status = ddi::status(call_ddi!(self, DxgkDdiQueryChildRelations(context, pointer, size as u32)));
        self.note("QueryChildRelations", format!("{status:?}"));
        let last = &array.bytes()[size - size_of::<DXGK_CHILD_DESCRIPTOR>()..];
        let untouched = last.iter().all(|byte| *byte == 0) && array.overrun().is_none();
        self.rules().check(&CAPS_CHILDREN, untouched, || "the last descriptor was written".to_owned());
        // A driver without children may leave the slot NULL, or say so.
        if status.is_success() || caps.children == 0 {
            return Ok(());
        }
        Err(StartError::Driver { step: "DxgkDdiQueryChildRelations".into(), status })
    }

    fn negotiate_features(&self) {
        for id in [
            DXGK_FEATURE_ID::DXGK_FEATURE_HWSCH,
            DXGK_FEATURE_ID::DXGK_FEATURE_NATIVE_FENCE,
            DXGK_FEATURE_ID::DXGK_FEATURE_USER_MODE_SUBMISSION,
            DXGK_FEATURE_ID::DXGK_FEATURE_KERNEL_MODE_TESTING,
        ] {
            let state = Features::of(self).query(self, id);
            self.note(format!("feature {id:?}"), state.to_string());
        }
    }

    fn run_query(&self, name: &str, size: usize, need: Need, caps: &mut Caps) -> Result<(), StartError> {
        let made = match need {
            Need::Required | Need::Expected | Need::Optional | Need::Nothing => true,
            Need::Mmu => caps.is_gpu_mmu(),
            Need::NativeFence => caps.has_native_fences(),
            Need::UserMode => caps.has_user_mode_submission(),
        };
        let Some(kind) = type_by_name(name).filter(|_| made) else { return Ok(()) };
        // One element for each node.
        let nodes = caps.driver.GpuEngineTopology.NbAsymetricProcessingNodes.clamp(1, MAX_CHILDREN) as usize;
        let per_node = kind == DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_HISTORYBUFFERPRECISION;
        let size = if per_node { size * nodes } else { size };
        let mut output = Buffer::new(size, 0);
        let query = Query { input: input_of(kind), ..Query::of(kind) };
        let status = self.query(&query, &mut output);
        self.note(format!("query {name} ({size} bytes)"), format!("{status:?}"));
        let rule = match need {
            Need::Optional => None,
            Need::Nothing => self.personality().refusals_end_start.then_some(&QAI_REQUIRED),
            Need::Expected => Some(&QAI_EXPECTED),
            Need::Required | Need::Mmu | Need::NativeFence | Need::UserMode => Some(&QAI_REQUIRED),
        };
        let told = || format!("{name}: {status:?}");
        let held = rule.is_none_or(|rule| self.rules().check(rule, status.is_success(), told));
        if !held && need != Need::Expected {
            return Err(StartError::Driver { step: name.to_owned(), status });
        }
        if status.is_success() {
            keep(caps, kind, &output);
        }
        Ok(())
    }

    fn query_power_components(&self, caps: &mut Caps) -> Result<(), StartError> {
        let kind = DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_NUMPOWERCOMPONENTS;
        let (status, count) = self.query_record::<u32>(kind, &[]);
        self.note(
            "query NUMPOWERCOMPONENTS",
            match count {
                Some(count) => format!("{status:?}, {count} components"),
                None => format!("{status:?}"),
            },
        );
        let managed = caps.driver.SupportRuntimePowerManagement != 0;
        let demanded = caps.is_compute_only() || managed || self.personality().power_components_demanded;
        let rule = if demanded { &QAI_REQUIRED } else { &QAI_EXPECTED };
        let answered = self.rules().check(rule, count.is_some(), || format!("NUMPOWERCOMPONENTS: {status:?}"));
        if demanded && !answered {
            return Err(StartError::Driver { step: "NUMPOWERCOMPONENTS".into(), status });
        }
        for index in 0..count.unwrap_or(0).min(MAX_CHILDREN) {
            let kind = DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_POWERCOMPONENTINFO;
            let (status, component) = self.query_record::<DXGK_POWER_RUNTIME_COMPONENT>(kind, &index.to_le_bytes());
            self.note(format!("query POWERCOMPONENTINFO {index}"), format!("{status:?}"));
            let held = self
                .rules()
                .check(&QAI_REQUIRED, component.is_some(), || format!("POWERCOMPONENTINFO {index}: {status:?}"));
            if !held {
                return Err(StartError::Driver { step: "POWERCOMPONENTINFO".into(), status });
            }
            caps.power_components.extend(component);
        }
        let nodes = caps.driver.GpuEngineTopology.NbAsymetricProcessingNodes;
        let wrong = power::wrong_component(&caps.power_components, nodes);
        self.rules().check(&POWER_COMPONENT, wrong.is_none(), || wrong.clone().unwrap_or_default());
        Ok(())
    }

    fn query_levels(&self, caps: &mut Caps) -> Result<(), StartError> {
        let Some(mmu) = &mut caps.mmu else { return Ok(()) };
        for level in 0..mmu.caps.PageTableLevelCount.min(16) {
            // DXGK_QUERYPAGETABLELEVELDESCIN: the level, and the physical adapter's index behind it, 16 bits each.
            let input = level.to_le_bytes();
            let kind = DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_PAGETABLELEVELDESC;
            let (status, description) = self.query_record::<DXGK_PAGE_TABLE_LEVEL_DESC>(kind, &input);
            self.note(format!("query PAGETABLELEVELDESC {level}"), format!("{status:?}"));
            let held = self
                .rules()
                .check(&QAI_REQUIRED, description.is_some(), || format!("PAGETABLELEVELDESC {level}: {status:?}"));
            if !held {
                return Err(StartError::Driver { step: "PAGETABLELEVELDESC".into(), status });
            }
            mmu.levels.extend(description);
        }
        Ok(())
    }

    fn query_physical(&self, caps: &mut Caps) -> Result<(), StartError> {
        let reading = self.personality().physical_adapter_caps;
        if reading == PhysicalAdapterCaps::NotAsked {
            caps.physical = caps.physical_by_driver_caps();
            return Ok(());
        }
        let kind = DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_PHYSICALADAPTERCAPS;
        let (status, physical) = self.query_record(kind, &[0; 4]);
        self.note("query PHYSICALADAPTERCAPS", format!("{status:?}"));
        let held = self.rules().check(&QAI_EXPECTED, physical.is_some(), || format!("PHYSICALADAPTERCAPS: {status:?}"));
        if !held && reading == PhysicalAdapterCaps::Demanded {
            return Err(StartError::Driver { step: "PHYSICALADAPTERCAPS".into(), status });
        }
        caps.is_physical_answered = physical.is_some();
        caps.physical = physical.unwrap_or_else(|| caps.physical_by_driver_caps());
        Ok(())
    }

    /// The model asks for a type that no driver knows, which is to be refused as the page says, and for private data of
    /// several sizes, which are answered or refused within their buffers.
    fn query_unknown(&self) {
        let mut output = Buffer::new(16, 0);
        let status = self.query(&Query::of(UNKNOWN_TYPE), &mut output);
        self.note("query of an unknown type", format!("{status:?}"));
        // User mode has one buffer. No page says whether the driver gets it once, or as input and output.
        let [.., two, one] = [(0, false), (4, false), (256, false), (256, true)].map(|(size, in_place)| {
            let mut output = Buffer::new(size, 0);
            let query = Query { in_place, ..Query::of(DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_UMDRIVERPRIVATE) };
            self.query_unjudged(&query, &mut output)
        });
        let excused = one == ntstatus::STATUS_SYSTEM_SHUTDOWN;
        self.rules().check(&QAI_PRIVATE, excused || one.is_success() == two.is_success(), || {
            format!("256 bytes: {two:?} with an input and an output, {one:?} with one buffer for both")
        });
    }

    /// Nodes, segments, the paging process, the system device and the workers.
    fn start_engines(self: &Arc<Self>) -> Result<(), StartError> {
        let caps = self.known_caps();
        Interrupts::of(self).set_nodes(caps.nodes.len());
        VidSch::of(self).start(self, &caps);
        crate::recovery::begin(self);
        Power::of(self).start(&caps);
        let step = if caps.is_gpu_mmu() { "the system paging process" } else { "the system device" };
        crate::entry::system::start(self, &caps).map_err(|status| StartError::Driver { step: step.into(), status })?;
        match VidSch::of(self).system_context().is_none_or(|context| context.has_segment()) {
            true => Ok(()),
            false => Err(StartError::refused(&CONTEXT_SEGMENT)),
        }
    }
}

/// The input of a query: the physical adapter's index where there is an input structure, otherwise none.
fn input_of(kind: DXGK_QUERYADAPTERINFOTYPE) -> &'static [u8] {
    match kind {
        DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_GPUMMUCAPS
        | DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_HISTORYBUFFERPRECISION => &[0; 4],
        _ => &[],
    }
}

/// Puts an answer where it belongs.
fn keep(caps: &mut Caps, kind: DXGK_QUERYADAPTERINFOTYPE, output: &Buffer) {
    match kind {
        DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_WDDMDEVICECAPS => {
            caps.device_version = output.record::<DXGK_WDDMVERSION>();
        }
        DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_PHYSICAL_MEMORY_CAPS => caps.highest_visible = output.record(),
        DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_DRIVERCAPS => {
            // A shorter structure than ours is complete up to its end.
            let mut driver = wddm_abi::DXGK_DRIVERCAPS::zeroed();
            let size = output.bytes().len().min(size_of_val(&driver));
            driver.as_bytes_mut()[..size].copy_from_slice(&output.bytes()[..size]);
            caps.driver = driver;
        }
        DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_HISTORYBUFFERPRECISION => {
            let elements = output.bytes().chunks_exact(4);
            caps.history_bits = elements.filter_map(u32::from_bytes).collect();
        }
        DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_GPUMMUCAPS => {
            caps.mmu = output.record::<DXGK_GPUMMUCAPS>().map(|caps| Mmu { caps, levels: Vec::new() });
        }
        DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_NATIVE_FENCE_CAPS => caps.native_fence = output.record(),
        DXGK_QUERYADAPTERINFOTYPE::DXGKQAITYPE_USERMODESUBMISSION_CAPS => caps.user_mode = output.record(),
        _ => (),
    }
}
