//! Judgements of a driver's first answers that no single capability decides: flip capabilities of an adapter that never
//! flips, slots by version, and capabilities that promise another slot or a feature.

mod address;

use nt_model::{Details, Rule};
use wddm_abi::{
    DXGK_FEATURE_ID, DXGKDDI_INTERFACE_VERSION_WDDM2_0, DXGKDDI_INTERFACE_VERSION_WDDM2_4, NTSTATUS, ntstatus,
};

use crate::port::caps::{Caps, NodeInfo, Segment};
use crate::port::features::Features;
use crate::port::miniport::Miniport;
use crate::port::rules::caps as rule;
use crate::port::rules::start::FEATURE_UNUSED;

/// A judgement: whether it holds, and what was found.
type Verdict = (&'static Rule, bool, String);

/// Slots that an interface of 2.0 or later must have, whatever is advertised: authors of drivers have seen the OS name
/// them when they were NULL.
const SINCE_2_0: &[&str] = &["DxgkDdiCalibrateGpuClock", "DxgkDdiSetStablePowerState"];
/// The same for the interface that brings the slot, 2.4; what was seen is STATUS_REVISION_MISMATCH, with an interface
/// of 2.6.
const SINCE_2_4: &[&str] = &["DxgkDdiSetVirtualMachineData"];
/// The pair that announces a switch of IOMMU domains: one driver without IoMmuSupported starts with both NULL, and
/// Microsoft's compute-only sample, of 2.6, has both NULL.
const IOMMU: &[&str] = &["DxgkDdiBeginExclusiveAccess", "DxgkDdiEndExclusiveAccess"];

/// Slots that the version of the driver's table asks for, each list with its reason. `table`: `Version`.
pub(super) fn slots_by_version(table: u32, caps: &Caps) -> Vec<(&'static str, &'static [&'static str])> {
    let mut wanted: Vec<(&str, &[&str])> = Vec::new();
    if table >= DXGKDDI_INTERFACE_VERSION_WDDM2_0 {
        wanted.push(("an interface of 2.0 or later", SINCE_2_0));
    }
    if table >= DXGKDDI_INTERFACE_VERSION_WDDM2_4 {
        wanted.push(("an interface of 2.4 or later", SINCE_2_4));
        if caps.is_io_mmu() {
            wanted.push(("IoMmuSupported", IOMMU));
        }
    }
    wanted
}

/// What the start ends with where a slot of those is NULL: STATUS_INVALID_PARAMETER was seen for the slots of 2.0,
/// STATUS_REVISION_MISMATCH for the later ones.
pub(super) fn status_of_null(is_null: impl Fn(&str) -> bool) -> NTSTATUS {
    let older = SINCE_2_0.iter().any(|slot| is_null(slot));
    if older { ntstatus::STATUS_INVALID_PARAMETER } else { ntstatus::STATUS_REVISION_MISMATCH }
}

/// Verdicts without which the adapter does not start.
pub(super) fn judge(adapter: &Miniport, caps: &Caps) -> Vec<Verdict> {
    let asked = adapter.personality().flip_caps_demanded
        && adapter.table().Version >= DXGKDDI_INTERFACE_VERSION_WDDM2_0
        && !caps.is_compute_only();
    let flips = caps.driver.FlipCaps;
    let released = !adapter.is_null("DxgkDdiStopDeviceAndReleasePostDisplayOwnership");
    let mut verdicts = vec![(
        &rule::CAPS_NON_VGA,
        caps.driver.SupportNonVGA == 0 || released,
        "SupportNonVGA is set, DxgkDdiStopDeviceAndReleasePostDisplayOwnership is NULL".to_owned(),
    ) as Verdict];
    let flags = caps.driver.SchedulingCaps;
    if adapter.table().Version >= DXGKDDI_INTERFACE_VERSION_WDDM2_0 {
        verdicts.push((&rule::CAPS_MULTI_ENGINE, flags.MultiEngineAware(), format!("{flags:?}")));
    }
    if asked {
        let text = format!("{flips:?}, MaxQueuedFlipOnVSync {}", caps.driver.MaxQueuedFlipOnVSync);
        verdicts.push((&rule::CAPS_FLIP, flips.FlipOnVSyncMmIo(), text));
    }
    verdicts
}

/// Judges what does not end the start: Windows starts such a driver, and the fault shows later.
pub(super) fn judge_later(adapter: &Miniport, caps: &Caps) {
    let verdicts = judge_segments(caps).into_iter().chain(judge_unused(adapter, caps));
    let verdicts = verdicts.chain(judge_handle(adapter, caps)).chain(address::judge(adapter, caps));
    for (rule, holds, text) in verdicts {
        adapter.rules().check(rule, holds, || Details::new(text));
    }
}

fn judge_segments(caps: &Caps) -> [Verdict; 2] {
    let paging = caps.paging_buffer_segment;
    let seen = |segment: &Segment| segment.descriptor.Flags.CpuVisible();
    let visible = paging == 0 || caps.segment(paging).is_some_and(seen);
    let sound = |segment: &Segment| {
        let flags = segment.descriptor.Flags;
        let both = flags.LocalBudgetGroup() && flags.NonLocalBudgetGroup();
        let populated = segment.is_aperture() && flags.PopulatedFromSystemMemory();
        !both && !populated
    };
    let unsound = caps.segments.iter().find(|segment| !sound(segment));
    [
        (&rule::SEGMENT_PAGING_VISIBLE, visible, format!("segment {paging} does not say CpuVisible")),
        (
            &rule::SEGMENT_BUDGET,
            unsound.is_none(),
            unsound.map_or_else(String::new, |segment| format!("{}: {:?}", segment.id, segment.descriptor.Flags)),
        ),
    ]
}

fn judge_handle(adapter: &Miniport, caps: &Caps) -> Option<Verdict> {
    let (handle, own) = (caps.physical.DxgkPhysicalAdapterHandle, adapter.device_handle());
    let text = format!("{handle:?}, and DeviceHandle is {own:?}");
    caps.is_physical_answered.then_some((&rule::CAPS_ADAPTER_HANDLE, handle == own, text))
}

fn judge_unused(adapter: &Miniport, caps: &Caps) -> Vec<Verdict> {
    let uses = [
        (DXGK_FEATURE_ID::DXGK_FEATURE_HWSCH, caps.has_hardware_scheduling()),
        (DXGK_FEATURE_ID::DXGK_FEATURE_NATIVE_FENCE, caps.has_native_fences()),
        (DXGK_FEATURE_ID::DXGK_FEATURE_USER_MODE_SUBMISSION, caps.has_user_mode_submission()),
        (DXGK_FEATURE_ID::DXGK_FEATURE_KERNEL_MODE_TESTING, caps.nodes.iter().any(NodeInfo::builds_tests)),
    ];
    let unused = |(id, used)| (&FEATURE_UNUSED, used, format!("{id:?} is enabled, and no capability shows it"));
    uses.into_iter().filter(|(id, _)| Features::of(adapter).query(adapter, *id).enabled).map(unused).collect()
}
