//! Whether what a driver reported fits together, and whether it can do what it advertises.

use nt_model::{Details, Rule};
use wddm_abi::slots::DRIVER_INITIALIZATION_DATA_SLOTS;
use wddm_abi::{
    D3DKMDT_COMPUTE_PREEMPTION_GRANULARITY, D3DKMDT_GRAPHICS_PREEMPTION_GRANULARITY, DXGK_ENGINE_TYPE, DXGK_FEATURE_ID,
    DXGK_MAX_DOORBELL_SIZE_BYTES, DXGK_MAX_PAGE_TABLE_LEVEL_COUNT, DXGK_PAGE_TABLE_LEVEL_DESC,
    DXGK_PAGETABLEUPDATEMODE, Plain,
};

use super::Adapter;
use super::caps::{Caps, Mmu, NodeInfo};
use super::{first, link};
use crate::personality::HwContexts;
use crate::rules::caps as rule;
use crate::rules::start::{
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

/// Rules whose breach ends the start. Of each Windows is known to refuse such a driver, by a document or by what
/// authors of drivers saw (the rule's source says which), or the model cannot go on with such an answer: it has no
/// nodes, no paging buffers, no page tables or no doorbells then. Every other breach is a finding, and the start goes
/// on.
static ENDS_START: &[&Rule] = &[
    &VERSION_AGREES,
    &INIT_SLOT_VERSION,
    &FEATURE_NATIVE_FENCE,
    &FEATURE_HWSCH,
    &FEATURE_USER_MODE,
    &rule::CAPS_PREEMPTION,
    &rule::CAPS_PATCHING,
    &rule::CAPS_CANCEL,
    &rule::CAPS_FLIP,
    &rule::CAPS_HISTORY,
    &rule::CAPS_PAGING_NODE,
    &rule::CAPS_NODES,
    &rule::LINK_NODES,
    &rule::LINK_ADDRESSES,
    &rule::CAPS_USER_MODE,
    &rule::MMU_LEVELS,
    &rule::MMU_TABLE_SIZE,
    &rule::MMU_TABLE_SEGMENT,
    &rule::MMU_UPDATE_MODE,
    &rule::SEGMENT_SHAPE,
    &rule::SEGMENT_PAGING_BUFFER,
    &rule::NATIVE_FENCE_CAPS,
    &rule::USER_MODE_CAPS,
];

/// A judgement: whether it holds, and what was found.
type Verdict = (&'static Rule, bool, String);

impl Adapter {
    /// Judges everything. `Err`: the first rule that was broken of those that [end the start](ENDS_START).
    pub(super) fn judge(&self, caps: &Caps) -> Result<(), &'static Rule> {
        let mut verdicts = self.judge_versions(caps);
        verdicts.extend(self.judge_slots(caps));
        verdicts.extend(judge_scheduling(caps));
        verdicts.extend(judge_memory(caps, self.kernel().highest_physical_address()));
        verdicts.extend(judge_nodes(caps, self.personality().copy_node_demanded));
        verdicts.extend(judge_link(caps));
        verdicts.push(super::removal::judge(self, caps));
        verdicts.extend(super::compute::judge(self, caps));
        if let Some(mmu) = &caps.mmu {
            verdicts.extend(judge_mmu(caps, mmu));
        }
        verdicts.extend(judge_segments(caps));
        verdicts.extend(judge_fences(caps));
        verdicts.extend(self.judge_features(caps));
        verdicts.extend(first::judge(self, caps));
        let mut broken = None;
        for (rule, holds, text) in verdicts {
            if !self.rules().check(rule, holds, || Details::new(text)) {
                broken = broken.or(ENDS_START.iter().copied().find(|ending| std::ptr::eq(*ending, rule)));
            }
        }
        first::judge_later(self, caps);
        self.advise(caps);
        broken.map_or(Ok(()), Err)
    }

    /// Says what is asked of a driver that drivers in the field run without.
    ///
    /// Chosen: advice instead of a rule. The article demands resets of engines of every full-graphics and render-only
    /// driver from WDDM 1.2 on, as a matter of certification, and no older table is known here; but drivers are
    /// known to run without them, by the reset of the adapter alone. Of a compute-only driver [`super::compute`]
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
        let implied = crate::driver::wddm_version(table);
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

    pub(super) fn is_null(&self, slot: &str) -> bool {
        let table = self.table().as_bytes();
        let found = DRIVER_INITIALIZATION_DATA_SLOTS.iter().find(|known| known.member == slot);
        found.is_none_or(|slot| table[slot.offset..slot.offset + 8] == [0; 8])
    }

    fn judge_features(&self, caps: &Caps) -> Vec<Verdict> {
        let strict = self.personality().strict_advertising;
        let enabled = |id| self.feature(id).enabled;
        let testing = caps.nodes.iter().any(NodeInfo::builds_tests);
        let cases: [(&'static Rule, bool, DXGK_FEATURE_ID, bool); 4] = [
            (&FEATURE_NATIVE_FENCE, caps.has_native_fences(), DXGK_FEATURE_ID::DXGK_FEATURE_NATIVE_FENCE, true),
            (&FEATURE_HWSCH, caps.has_hardware_scheduling(), DXGK_FEATURE_ID::DXGK_FEATURE_HWSCH, strict),
            (
                &FEATURE_USER_MODE,
                caps.has_user_mode_submission(),
                DXGK_FEATURE_ID::DXGK_FEATURE_USER_MODE_SUBMISSION,
                strict,
            ),
            (&FEATURE_TESTING, testing, DXGK_FEATURE_ID::DXGK_FEATURE_KERNEL_MODE_TESTING, strict),
        ];
        let cases = cases.into_iter().filter(|(.., judged)| *judged);
        cases
            .map(|(rule, advertised, id, _)| (rule, !advertised || enabled(id), format!("{id:?} is not enabled")))
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

/// The tables of each level, in words.
fn tables(mmu: &Mmu) -> String {
    let level = |(index, level): (usize, &DXGK_PAGE_TABLE_LEVEL_DESC)| {
        let (bits, bytes) = (level.PageTableIndexBitCount, level.PageTableSizeInBytes);
        let (own, paging) = (level.PageTableSegmentId, level.PagingProcessPageTableSegmentId);
        format!("level {index}: {bits} bits, {bytes} bytes in segment {own}, the paging process's in {paging}")
    };
    mmu.levels.iter().enumerate().map(level).collect::<Vec<_>>().join("; ")
}

fn judge_mmu(caps: &Caps, mmu: &Mmu) -> Vec<Verdict> {
    let count = mmu.caps.PageTableLevelCount;
    let bits = 12 + mmu.levels.iter().map(|level| level.PageTableIndexBitCount).sum::<u32>();
    let whole = (2..=DXGK_MAX_PAGE_TABLE_LEVEL_COUNT).contains(&count) && mmu.levels.len() == count as usize;
    // The root of two levels is resizable, so that its bits are only where it begins.
    let bits_agree = count == 2 || bits == mmu.caps.VirtualAddressBitCount;
    let resizable_root = |index: usize| count == 2 && index == 1;
    let is_memory = |id: u32| id == 0 || caps.segment(id).is_some_and(|segment| !segment.is_aperture());
    let mut sizes = true;
    let mut segments = true;
    let mut directories_local = false;
    for (index, level) in mmu.levels.iter().enumerate() {
        let in_system = level.PageTableSegmentId == 0 || level.PagingProcessPageTableSegmentId == 0;
        let fixed = !resizable_root(index);
        sizes &= level.PageTableSizeInBytes.is_multiple_of(4096);
        sizes &= !fixed || level.PageTableSizeInBytes != 0;
        sizes &= !(in_system && fixed) || level.PageTableSizeInBytes == 4096;
        segments &= is_memory(level.PageTableSegmentId) && is_memory(level.PagingProcessPageTableSegmentId);
        directories_local |= index > 0 && level.PageTableSegmentId != 0;
    }
    let mode = mmu.update_mode();
    let known = matches!(
        mode,
        DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_CPU_VIRTUAL
            | DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_GPU_VIRTUAL
            | DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_GPU_PHYSICAL
    );
    let cpu = mode == DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_CPU_VIRTUAL;
    let leaf = mmu.caps.LeafPageTableSizeFor64KPagesInBytes;
    vec![
        (
            &rule::MMU_LEVELS,
            whole && bits_agree,
            format!(
                "{count} levels, {} described, {bits} bits of {}",
                mmu.levels.len(),
                mmu.caps.VirtualAddressBitCount
            ),
        ),
        (&rule::MMU_TABLE_SIZE, sizes, tables(mmu)),
        (&rule::MMU_TABLE_SEGMENT, segments, tables(mmu)),
        (
            &rule::MMU_UPDATE_MODE,
            known && !(cpu && directories_local),
            format!(
                "{mode:?}, page directories {}",
                if directories_local { "in local memory" } else { "in system memory" }
            ),
        ),
        (&rule::MMU_LARGE_LEAF, leaf.is_multiple_of(4096), format!("{leaf} bytes")),
    ]
}

fn judge_segments(caps: &Caps) -> Vec<Verdict> {
    let last = caps.segments.len();
    let sound = caps.segments.iter().all(|segment| {
        let flags = segment.descriptor.Flags;
        let hosted = flags.SupportsCpuHostAperture();
        let visible = flags.CpuVisible() && !segment.is_aperture() && !hosted;
        segment.size() != 0
            && (!hosted || segment.id as usize == last)
            && (!visible || segment.descriptor.CpuTranslatedAddress().QuadPart != 0)
    });
    let paging = caps.paging_buffer_segment;
    let buffer = (paging == 0 || caps.segment(paging).is_some()) && caps.paging_buffer_size != 0;
    let describe = || {
        let one = |segment: &super::caps::Segment| {
            format!("{}: {:?} {:#x}", segment.id, segment.descriptor.Flags, segment.size())
        };
        caps.segments.iter().map(one).collect::<Vec<_>>().join("; ")
    };
    vec![
        (&rule::SEGMENT_SHAPE, sound, describe()),
        (&rule::SEGMENT_PAGING_BUFFER, buffer, format!("segment {paging}, {} bytes", caps.paging_buffer_size)),
    ]
}

fn judge_fences(caps: &Caps) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    if let Some(fence) = &caps.native_fence {
        let stride = fence.MonitoredValueStride;
        let range = fence.MaximumAddress == 0 || fence.MinimumAddress <= fence.MaximumAddress;
        let text = format!("stride {stride}, addresses {:#x} to {:#x}", fence.MinimumAddress, fence.MaximumAddress);
        verdicts.push((&rule::NATIVE_FENCE_CAPS, stride.is_multiple_of(8) && stride <= 4096 && range, text) as Verdict);
    }
    if let Some(user_mode) = &caps.user_mode {
        let sizes = 1..=DXGK_MAX_DOORBELL_SIZE_BYTES;
        let secondary = user_mode.Flags.SecondaryDoorbellSupported();
        let holds = sizes.contains(&user_mode.DoorbellSizeInBytes)
            && (!secondary || sizes.contains(&user_mode.SecondaryDoorbellSizeInBytes));
        let text = format!(
            "{} bytes, secondary {} bytes",
            user_mode.DoorbellSizeInBytes, user_mode.SecondaryDoorbellSizeInBytes
        );
        verdicts.push((&rule::USER_MODE_CAPS, holds, text));
    }
    verdicts
}
