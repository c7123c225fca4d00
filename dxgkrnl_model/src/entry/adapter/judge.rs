//! Whether what a driver reported fits together, and whether it can do what it advertises.

mod memory;

use memory::{judge_fences, judge_mmu, judge_segments};
use nt_model::{Details, Rule};
use wddm_abi::slots::DRIVER_INITIALIZATION_DATA_SLOTS;
use wddm_abi::{
    D3DKMDT_COMPUTE_PREEMPTION_GRANULARITY, D3DKMDT_GRAPHICS_PREEMPTION_GRANULARITY, DXGK_ENGINE_TYPE, DXGK_FEATURE_ID,
};

use super::problem::{Passed, StartError};
use super::{first, link};
use crate::port::caps::{Caps, NodeInfo};
use crate::port::features::Features;
use crate::port::miniport::Miniport;
use crate::port::personality::HwContexts;
use crate::port::rules::caps as rule;
use crate::port::rules::start::{
    FEATURE_HWSCH, FEATURE_NATIVE_FENCE, FEATURE_TESTING, FEATURE_USER_MODE, INIT_SLOT, INIT_SLOT_VERSION,
    VERSION_AGREES,
};

/// Slots that every render adapter with GPU page tables is called through.
const ALWAYS: &[&str] = &[
    "DxgkDdiInterruptRoutine",
    "DxgkDdiDpcRoutine",
    "DxgkDdiQueryAdapterInfo",
    "DxgkDdiGetNodeMetadata",
    "DxgkDdiSetPowerState",
    "DxgkDdiCreateDevice",
    "DxgkDdiDestroyDevice",
    "DxgkDdiCreateContext",
    "DxgkDdiDestroyContext",
    "DxgkDdiCreateAllocation",
    "DxgkDdiDestroyAllocation",
    "DxgkDdiOpenAllocation",
    "DxgkDdiCloseAllocation",
    "DxgkDdiBuildPagingBuffer",
    "DxgkDdiPreemptCommand",
    "DxgkDdiResetFromTimeout",
    "DxgkDdiRestartFromTimeout",
    "DxgkDdiCollectDbgInfo",
];
/// Slots of GPU virtual addressing.
const GPU_MMU: &[&str] =
    &["DxgkDdiSubmitCommandVirtual", "DxgkDdiCreateProcess", "DxgkDdiDestroyProcess", "DxgkDdiSetRootPageTable"];
/// Slots of hardware scheduling. Source: article mcdm-implementation-guidelines.
const HARDWARE_SCHEDULING: &[&str] = &[
    "DxgkDdiCreateHwQueue",
    "DxgkDdiDestroyHwQueue",
    "DxgkDdiSubmitCommandToHwQueue",
    "DxgkDdiPresentToHwQueue",
    "DxgkDdiSwitchToHwContextList",
    "DxgkDdiResetHwEngine",
    "DxgkDdiResumeHwEngine",
    "DxgkDdiSuspendContext",
    "DxgkDdiResumeContext",
    "DxgkDdiSetContextSchedulingProperties",
    "DxgkDdiSetupPriorityBands",
    "DxgkDdiSetSchedulingLogBuffer",
    "DxgkDdiSignalMonitoredFence",
    "DxgkDdiUpdateHwContextState",
];
/// Slots of the obsolete way to make contexts for hardware queues ([`HwContexts::CreateHwContext`]).
const HARDWARE_CONTEXTS: &[&str] = &["DxgkDdiCreateHwContext", "DxgkDdiDestroyHwContext"];
/// Slots of native fences. Source: article native-gpu-fence-objects.
const NATIVE_FENCE: &[&str] = &[
    "DxgkDdiCreateNativeFence",
    "DxgkDdiDestroyNativeFence",
    "DxgkDdiOpenNativeFence",
    "DxgkDdiCloseNativeFence",
    "DxgkDdiUpdateMonitoredValues",
    "DxgkDdiUpdateCurrentValuesFromCpu",
    "DxgkDdiSetNativeFenceLogBuffer",
    "DxgkDdiUpdateNativeFenceLogs",
];
/// Slots of user-mode submission. Source: article user-mode-work-submission.
const USER_MODE: &[&str] = &[
    "DxgkDdiCreateDoorbell",
    "DxgkDdiConnectDoorbell",
    "DxgkDdiDisconnectDoorbell",
    "DxgkDdiDestroyDoorbell",
    "DxgkDdiNotifyWorkSubmission",
];
/// Slots of per-engine TDR. Source: article tdr-changes-in-windows-8.
const ENGINE_RESET: &[&str] =
    &["DxgkDdiQueryDependentEngineGroup", "DxgkDdiQueryEngineStatus", "DxgkDdiResetEngine", "DxgkDdiCollectDbgInfo"];

/// Rules whose breach ends the start, as it does on Windows or has to here. Every other breach is a finding, and the
/// start goes on.
static ENDS_START: &[&Rule] = &[
    // Documented: article native-gpu-fence-objects; DDI page DXGK_VIDSCHCAPS (the OS halts the initialization of such a
    // driver); article tdr-changes-in-windows-8 (engines have equal numbers of nodes).
    &FEATURE_NATIVE_FENCE,
    &rule::CAPS_PREEMPTION,
    &rule::CAPS_PATCHING,
    &rule::LINK_NODES,
    // Documented as a bug check.
    &rule::MMU_UPDATE_MODE,
    &rule::MMU_TABLE_CPU,
    // The model cannot go on: there are no nodes, page tables, paging buffers, values of fences or doorbells then.
    &rule::CAPS_NODES,
    &rule::CAPS_USER_MODE,
    &rule::MMU_LEVELS,
    &rule::MMU_TABLE_SIZE,
    &rule::MMU_TABLE_SEGMENT,
    &rule::SEGMENT_SHAPE,
    &rule::SEGMENT_PAGING_BUFFER,
    &rule::NATIVE_FENCE_CAPS,
    &rule::USER_MODE_CAPS,
];

/// Further ones, that authors of drivers saw, of some under a switch of the personality's. Nothing that the model does
/// rests on them, so that it can go on past them.
static ENDS_START_AS_SEEN: &[&Rule] = &[
    &VERSION_AGREES,
    &INIT_SLOT_VERSION,
    &rule::CAPS_MULTI_ENGINE,
    &rule::CAPS_FLIP,
    &rule::CAPS_HISTORY,
    &rule::CAPS_PAGING_NODE,
];

/// A judgement: whether it holds, and what was found.
type Verdict = (&'static Rule, bool, String);

impl Miniport {
    /// Judges everything.
    ///
    /// # Errors
    /// [`StartError::Refused`] with the first rule that was broken of those that [end the start](ENDS_START).
    /// Those that were [seen](ENDS_START_AS_SEEN) do not where the personality goes on past them.
    pub(super) fn judge(&self, caps: &Caps) -> Result<(), StartError> {
        let mut verdicts = self.judge_versions(caps);
        verdicts.extend(self.judge_slots(caps));
        verdicts.extend(judge_scheduling(caps));
        verdicts.extend(judge_memory(caps, self.kernel().highest_physical_address()));
        verdicts.extend(judge_nodes(caps, self.personality().copy_node_demanded));
        verdicts.extend(judge_link(caps));
        verdicts.push(super::removal::judge(self, caps));
        verdicts.extend(crate::port::compute::judge(self, caps));
        if let Some(mmu) = &caps.mmu {
            verdicts.extend(judge_mmu(caps, mmu));
        }
        verdicts.extend(judge_segments(caps));
        verdicts.extend(judge_fences(caps));
        verdicts.extend(self.judge_features(caps));
        verdicts.extend(first::judge(self, caps));
        let mut broken = Vec::new();
        for (rule, holds, text) in verdicts {
            if !self.rules().check(rule, holds, || Details::new(text)) {
                let ends = |ending: &&Rule| std::ptr::eq(*ending, rule) && !memory::has_tables_all_the_same(caps, rule);
                broken.extend(ENDS_START.iter().chain(ENDS_START_AS_SEEN).copied().find(ends));
            }
        }
        first::judge_later(self, caps);
        self.advise(caps);
        Passed::of(self).note(None);
        let Some(first) = broken.first().copied() else { return Ok(()) };
        let refusal = if std::ptr::eq(first, &raw const INIT_SLOT_VERSION) {
            StartError::Refused { rule: first, status: first::status_of_null(|slot| self.is_null(slot)) }
        } else {
            StartError::refused(first)
        };
        let is_passable = |rule: &&Rule| ENDS_START_AS_SEEN.iter().any(|seen| std::ptr::eq(*seen, *rule));
        if self.personality().past_refusals && broken.iter().all(is_passable) {
            Passed::of(self).note(Some(refusal));
            return Ok(());
        }
        Err(refusal)
    }

    /// Says what is asked of a driver that drivers in the field run without.
    ///
    /// Chosen: advice instead of a rule. The article demands resets of engines of every full-graphics and render-only
    /// driver from WDDM 1.2 on, as a matter of certification, and no older table is known here; but drivers are
    /// known to run without them, by the reset of the adapter alone. Of a compute-only driver [`crate::port::compute`]
    /// demands them.
    fn advise(&self, caps: &Caps) {
        if !caps.has_engine_reset() {
            let text = "SupportPerEngineTDR is clear: a driver that renders is to reset engines one by one from WDDM \
                        1.2 on (article tdr-changes-in-windows-8)";
            self.note("advice", text);
            self.shared().counters.advise(text.to_owned());
        }
    }

    fn judge_versions(&self, caps: &Caps) -> Vec<Verdict> {
        let table = self.table().Version;
        let (driver, device) = (caps.driver.WDDMVersion, caps.device_version);
        let implied = crate::port::driver::wddm_version(table);
        let nodes_agree = caps.nodes.iter().all(|node| (node.metadata.GpuMmuSupported != 0) == caps.is_gpu_mmu());
        let holds = implied == Some(driver) && device.is_none_or(|device| driver == device) && nodes_agree;
        let text = format!(
            "table {table:#x} ({implied:?}), DRIVERCAPS {driver:?}, WDDMDEVICECAPS {}, GpuMmu {} in DRIVERCAPS and \
             {} in the nodes",
            device.map_or_else(|| "refused".to_owned(), |version| format!("{version:?}")),
            caps.is_gpu_mmu(),
            if nodes_agree { "the same" } else { "otherwise" }
        );
        vec![(&VERSION_AGREES, holds, text)]
    }

    fn judge_slots(&self, caps: &Caps) -> Vec<Verdict> {
        let mut wanted: Vec<(&str, &[&str])> = vec![("a render adapter", ALWAYS)];
        if caps.is_gpu_mmu() {
            wanted.push(("GpuMmuSupported", GPU_MMU));
        }
        if caps.mmu.as_ref().is_some_and(|mmu| mmu.caps.PageTableLevelCount == 2) {
            wanted.push(("two page table levels", &["DxgkDdiGetRootPageTableSize"]));
        }
        if caps.has_hardware_scheduling() {
            wanted.push(("ContextSchedulingSupported", HARDWARE_SCHEDULING));
            if self.personality().hw_contexts == HwContexts::CreateHwContext {
                wanted.push(("contexts by DxgkDdiCreateHwContext", HARDWARE_CONTEXTS));
            }
        }
        if caps.has_native_fences() {
            wanted.push(("NativeGpuFence", NATIVE_FENCE));
        }
        if caps.has_user_mode_submission() {
            wanted.push(("UserModeSubmission", USER_MODE));
        }
        if caps.driver.SchedulingCaps.CancelCommandAware() {
            wanted.push(("CancelCommandAware", &["DxgkDdiCancelCommand"]));
        }
        if !caps.power_components.is_empty() {
            wanted.push(("power components", &["DxgkDdiSetPowerComponentFState"]));
        }
        let by_version = first::slots_by_version(self.table().Version, caps);
        let missing = |wanted: &[(&str, &[&str])]| {
            let all = wanted.iter().flat_map(|(why, slots)| slots.iter().map(move |slot| (*why, *slot)));
            let null = all.filter(|(_, slot)| self.is_null(slot)).map(|(why, slot)| format!("{slot} ({why})"));
            null.collect::<Vec<_>>().join(", ")
        };
        let (missing, missed) = (missing(&wanted), missing(&by_version));
        let engine_reset: Vec<_> = ENGINE_RESET.iter().copied().filter(|slot| self.is_null(slot)).collect();
        let per_engine = !caps.has_engine_reset() || engine_reset.is_empty();
        vec![
            (&INIT_SLOT, missing.is_empty(), format!("NULL: {missing}")),
            (&INIT_SLOT_VERSION, missed.is_empty(), format!("NULL: {missed}")),
            (&rule::CAPS_PER_ENGINE_TDR, per_engine, format!("NULL: {}", engine_reset.join(", "))),
        ]
    }

    /// Slots of the driver's table that are NULL.
    pub fn null_slots(&self) -> Vec<&'static str> {
        let members = DRIVER_INITIALIZATION_DATA_SLOTS.iter().map(|slot| slot.member);
        members.filter(|member| *member != "Version").filter(|member| self.is_null(member)).collect()
    }

    fn judge_features(&self, caps: &Caps) -> Vec<Verdict> {
        let testing = caps.nodes.iter().any(NodeInfo::builds_tests);
        let cases: [(&'static Rule, bool, DXGK_FEATURE_ID); 4] = [
            (&FEATURE_NATIVE_FENCE, caps.has_native_fences(), DXGK_FEATURE_ID::DXGK_FEATURE_NATIVE_FENCE),
            (&FEATURE_HWSCH, caps.has_hardware_scheduling(), DXGK_FEATURE_ID::DXGK_FEATURE_HWSCH),
            (&FEATURE_USER_MODE, caps.has_user_mode_submission(), DXGK_FEATURE_ID::DXGK_FEATURE_USER_MODE_SUBMISSION),
            (&FEATURE_TESTING, testing, DXGK_FEATURE_ID::DXGK_FEATURE_KERNEL_MODE_TESTING),
        ];
        let found = |id: DXGK_FEATURE_ID| format!("{id:?} is not enabled");
        cases
            .into_iter()
            .map(|(rule, says, id)| (rule, !says || Features::of(self).query(self, id).enabled, found(id)))
            .collect()
    }
}

/// Which of these flags are set, and which are clear.
fn named(flags: &[(&str, bool)]) -> String {
    let of = |wanted| {
        let names: Vec<_> = flags.iter().filter(|(_, is)| *is == wanted).map(|(name, _)| *name).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    format!("set: {}; clear: {}", of(true), of(false))
}

fn judge_scheduling(caps: &Caps) -> Vec<Verdict> {
    let flags = caps.driver.SchedulingCaps;
    let multi = flags.MultiEngineAware();
    let preempts = flags.PreemptionAware();
    let text = || {
        let all = [
            ("MultiEngineAware", multi),
            ("PreemptionAware", preempts),
            ("NoDmaPatching", flags.NoDmaPatching()),
            ("CancelCommandAware", flags.CancelCommandAware()),
            ("NativeGpuFence", flags.NativeGpuFence()),
            ("OptimizedNativeFenceSignaledInterrupt", flags.OptimizedNativeFenceSignaledInterrupt()),
            ("No64BitAtomics", flags.No64BitAtomics()),
        ];
        named(&all)
    };
    let preemption = caps.driver.PreemptionCaps;
    let none = (
        D3DKMDT_GRAPHICS_PREEMPTION_GRANULARITY::D3DKMDT_GRAPHICS_PREEMPTION_NONE,
        D3DKMDT_COMPUTE_PREEMPTION_GRANULARITY::D3DKMDT_COMPUTE_PREEMPTION_NONE,
    );
    let granular = [
        preemption.GraphicsPreemptionGranularity.0 != 0 && preemption.GraphicsPreemptionGranularity != none.0,
        preemption.ComputePreemptionGranularity.0 != 0 && preemption.ComputePreemptionGranularity != none.1,
    ];
    let fine_granularity = !preempts || granular == [true; 2];
    let optimized = !flags.OptimizedNativeFenceSignaledInterrupt() || flags.NativeGpuFence();
    let atomics = !flags.NativeGpuFence() || !flags.No64BitAtomics();
    let user_mode = caps.nodes.iter().filter(|node| node.takes_user_mode_work());
    let rungs = user_mode.clone().all(|node| node.is_hardware_scheduled() && caps.has_native_fences());
    let history = !caps.history_bits.is_empty() && caps.history_bits.iter().all(|bits| (32..=64).contains(bits));
    vec![
        (&rule::CAPS_PREEMPTION, !preempts || multi, text()),
        (&rule::CAPS_PATCHING, !flags.NoDmaPatching() || (multi && preempts), text()),
        (&rule::CAPS_CANCEL, !flags.CancelCommandAware() || multi, text()),
        (
            &rule::CAPS_GRANULARITY,
            fine_granularity,
            format!("{:?}, {:?}", preemption.GraphicsPreemptionGranularity, preemption.ComputePreemptionGranularity),
        ),
        (&rule::CAPS_OPTIMIZED, optimized, text()),
        (&rule::CAPS_ATOMICS, atomics, text()),
        (&rule::CAPS_USER_MODE, rungs, format!("{}, {} nodes with UserModeSubmission", text(), user_mode.count())),
        (&rule::CAPS_HISTORY, history, format!("bits by node: {:?}", caps.history_bits)),
    ]
}

fn judge_memory(caps: &Caps, highest: u64) -> Vec<Verdict> {
    let flags = caps.driver.MemoryManagementCaps;
    let one_at_most = !flags.GpuMmuSupported() || !flags.IoMmuSupported();
    let tiers =
        [flags.CrossAdapterResource(), flags.CrossAdapterResourceTexture(), flags.CrossAdapterResourceScanout()];
    let tiers_agree = (tiers[0] || !tiers[1]) && (tiers[1] || !tiers[2]);
    let acceptable = caps.driver.HighestAcceptableAddress.QuadPart.cast_unsigned();
    let visible = caps.highest_visible.unwrap_or(u64::MAX);
    let covers = acceptable >= highest && visible >= highest;
    vec![
        (&rule::CAPS_VIRTUAL, one_at_most, "both are set".to_owned()),
        (
            &rule::CAPS_CROSS_ADAPTER,
            tiers_agree,
            named(&[
                ("CrossAdapterResource", tiers[0]),
                ("CrossAdapterResourceTexture", tiers[1]),
                ("CrossAdapterResourceScanout", tiers[2]),
            ]),
        ),
        (
            &rule::CAPS_HIGHEST_ADDRESS,
            covers,
            format!("memory ends at {highest:#x}, acceptable {acceptable:#x}, visible {visible:#x}"),
        ),
    ]
}

fn judge_nodes(caps: &Caps, copy_node_demanded: bool) -> Vec<Verdict> {
    let topology = caps.driver.GpuEngineTopology.NbAsymetricProcessingNodes;
    let nodes = u32::from(caps.physical.NumExecutionNodes);
    let paging = caps.node(caps.paging_node());
    let copies = |node: &NodeInfo| node.engine_type() == DXGK_ENGINE_TYPE::DXGK_ENGINE_TYPE_COPY;
    let pages = paging.is_some_and(|node| !copy_node_demanded || copies(node));
    vec![
        (
            &rule::CAPS_NODES,
            topology == nodes && nodes != 0,
            format!("{topology} in DRIVERCAPS, {nodes} in PHYSICALADAPTERCAPS"),
        ),
        (
            &rule::CAPS_PAGING_NODE,
            pages,
            format!(
                "PagingNodeIndex is {} of {} nodes, {}",
                caps.paging_node(),
                caps.nodes.len(),
                paging.map_or_else(|| "and there is none".to_owned(), |node| format!("{:?}", node.engine_type()))
            ),
        ),
    ]
}

/// Verdicts on the physical adapters of a link; none for an adapter that is alone.
fn judge_link(caps: &Caps) -> Vec<Verdict> {
    if caps.followers.is_empty() {
        return Vec::new();
    }
    let verdict = |rule, wrong: Option<String>| (rule, wrong.is_none(), wrong.unwrap_or_default()) as Verdict;
    vec![
        verdict(&rule::LINK_NODES, link::unequal_nodes(caps)),
        verdict(&rule::LINK_ADDRESSES, link::unequal_addresses(caps)),
    ]
}
