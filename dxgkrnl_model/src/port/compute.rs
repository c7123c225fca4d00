//! Compute-only adapters: what they must not have, beside what every adapter has.
//!
//! Source: article mcdm-implementation-guidelines. Where the article contradicts itself nothing is judged:
//! DxgkDdiQueryConnectionChange is among the functions that must be there and among those that must not. Nor where it
//! only advises: ParavirtualizationSupported "should" be set by what does not partition its device, but the page of
//! DXGK_VIDMMCAPS and the article gpu-paravirtualization reserve the flag for a driver that serves guests.
//!
//! Of engine types the article has no word. The page of DXGK_ENGINE_TYPE says that every adapter but a display-only one
//! has a 3-D engine (it is older than compute-only adapters), and that a node is of that type if it does the adapter's
//! 3-D work; so of such an adapter only what holds for all is judged, DXG-NODE-3D: not more than one.

use core::mem::offset_of;

use nt_model::Rule;
use wddm_abi::{
    D3DKMDT_COMPUTE_PREEMPTION_GRANULARITY, DXGK_DRIVERCAPS, DXGK_QUERYADAPTERINFOTYPE as Type, DXGK_WDDMVERSION, Plain,
};

use crate::port::caps::Caps;
use crate::port::miniport::Miniport;
use crate::port::query::{Buffer, Query};
use crate::port::rules::compute::{COMPUTE_CAPS, COMPUTE_CLASS, COMPUTE_NEEDED, COMPUTE_QUERY, COMPUTE_SLOT};

/// The class that a device was installed under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceClass {
    /// The device's setup class is Display.
    Display,
    /// The device's setup class is ComputeAccelerator.
    ComputeAccelerator,
}

/// A judgement: whether it holds, and what was found.
type Verdict = (&'static Rule, bool, String);

/// Functions that must not be there.
const PROHIBITED: &[&str] = &[
    "DxgkDdiAcquireSwizzlingRange",
    "DxgkDdiCheckMultiPlaneOverlaySupport",
    "DxgkDdiCheckMultiPlaneOverlaySupport2",
    "DxgkDdiCheckMultiPlaneOverlaySupport3",
    "DxgkDdiCommitVidPn",
    "DxgkDdiControlDiagnosticReporting",
    "DxgkDdiControlInterrupt",
    "DxgkDdiControlInterrupt2",
    "DxgkDdiControlModeBehavior",
    "DxgkDdiCreateOverlay",
    "DxgkDdiCreatePeriodicFrameNotification",
    "DxgkDdiCreateProtectedSession",
    "DxgkDdiDestroyOverlay",
    "DxgkDdiDestroyPeriodicFrameNotification",
    "DxgkDdiDestroyProtectedSession",
    "DxgkDdiDisplayDetectControl",
    "DxgkDdiEnumVidPnCofuncModality",
    "DxgkDdiExchangePreStartInfo",
    "DxgkDdiFlipOverlay",
    "DxgkDdiGetMultiPlaneOverlayCaps",
    "DxgkDdiGetPostCompositionCaps",
    "DxgkDdiGetScanLine",
    "DxgkDdiIsSupportedVidPn",
    "DxgkDdiNotifyAcpiEvent",
    "DxgkDdiNotifyFocusPresent",
    "DxgkDdiPostMultiPlaneOverlayPresent",
    "DxgkDdiPresent",
    "DxgkDdiQueryCurrentFence",
];

/// Functions of WDDM 1.x drivers, which must not be there either.
const OBSOLETE: &[&str] = &[
    "DxgkDdiQueryDiagnosticTypesSupport",
    "DxgkDdiQueryVidPnHWCapability",
    "DxgkDdiRecommendFunctionalVidPn",
    "DxgkDdiRecommendMonitorModes",
    "DxgkDdiRecommendVidPnTopology",
    "DxgkDdiReleaseSwizzlingRange",
    "DxgkDdiRenderGdi",
    "DxgkDdiRenderKm",
    "DxgkDdiSetDisplayPrivateDriverFormat",
    "DxgkDdiSetPalette",
    "DxgkDdiSetPointerPosition",
    "DxgkDdiSetPointerShape",
    "DxgkDdiSetPowerPState",
    "DxgkDdiSetTargetAdjustedColorimetry",
    "DxgkDdiSetTargetAdjustedColorimetry2",
    "DxgkDdiSetTargetAnalogCopyProtection",
    "DxgkDdiSetTargetContentType",
    "DxgkDdiSetTargetGamma",
    "DxgkDdiSetTimingsFromVidPn",
    "DxgkDdiSetVideoProtectedRegion",
    "DxgkDdiSetVidPnSourceAddress",
    "DxgkDdiSetVidPnSourceAddressWithMultiPlaneOverlay",
    "DxgkDdiSetVidPnSourceAddressWithMultiPlaneOverlay2",
    "DxgkDdiSetVidPnSourceAddressWithMultiPlaneOverlay3",
    "DxgkDdiSetVidPnSourceVisibility",
    "DxgkDdiStopCapture",
    "DxgkDdiStopDeviceAndReleasePostDisplayOwnership",
    "DxgkDdiSubmitRender",
    "DxgkDdiSystemDisplayEnable",
    "DxgkDdiSystemDisplayWrite",
    "DxgkDdiUpdateActiveVidPnPresentPath",
    "DxgkDdiUpdateMonitorLinkInfo",
    "DxgkDdiUpdateOverlay",
];

/// Functions that every compute-only driver has.
const NEEDED: &[&str] = &[
    "DxgkDdiAddDevice",
    "DxgkDdiBuildPagingBuffer",
    "DxgkDdiCalibrateGpuClock",
    "DxgkDdiCloseAllocation",
    "DxgkDdiCollectDbgInfo",
    "DxgkDdiCreateAllocation",
    "DxgkDdiCreateContext",
    "DxgkDdiCreateDevice",
    "DxgkDdiDescribeAllocation",
    "DxgkDdiDestroyAllocation",
    "DxgkDdiDestroyContext",
    "DxgkDdiDestroyDevice",
    "DxgkDdiDpcRoutine",
    "DxgkDdiFormatHistoryBuffer",
    "DxgkDdiGetNodeMetadata",
    "DxgkDdiGetStandardAllocationDriverData",
    "DxgkDdiInterruptRoutine",
    "DxgkDdiOpenAllocation",
    "DxgkDdiPreemptCommand",
    "DxgkDdiQueryAdapterInfo",
    "DxgkDdiQueryChildRelations",
    "DxgkDdiQueryChildStatus",
    "DxgkDdiQueryDependentEngineGroup",
    "DxgkDdiQueryDeviceDescriptor",
    "DxgkDdiQueryEngineStatus",
    "DxgkDdiRemoveDevice",
    "DxgkDdiResetDevice",
    "DxgkDdiResetEngine",
    "DxgkDdiResetFromTimeout",
    "DxgkDdiRestartFromTimeout",
    "DxgkDdiSetPowerState",
    "DxgkDdiSetStablePowerState",
    "DxgkDdiSetVirtualMachineData",
    "DxgkDdiStartDevice",
    "DxgkDdiStopDevice",
    "DxgkDdiUnload",
];

/// What GPU virtual addressing, without which there is no such driver, asks for beside them.
const ADDRESSING: &[&str] = &[
    "DxgkDdiCreateProcess",
    "DxgkDdiDestroyProcess",
    "DxgkDdiGetRootPageTableSize",
    "DxgkDdiSetRootPageTable",
    "DxgkDdiSubmitCommandVirtual",
];

/// What hardware scheduling asks for beside them.
const SCHEDULING: &[&str] = &[
    "DxgkDdiCreateHwContext",
    "DxgkDdiCreateHwQueue",
    "DxgkDdiDestroyHwContext",
    "DxgkDdiDestroyHwQueue",
    "DxgkDdiPresentToHwQueue",
    "DxgkDdiResetHwEngine",
    "DxgkDdiResumeContext",
    "DxgkDdiResumeHwEngine",
    "DxgkDdiSetContextSchedulingProperties",
    "DxgkDdiSetSchedulingLogBuffer",
    "DxgkDdiSetupPriorityBands",
    "DxgkDdiSignalMonitoredFence",
    "DxgkDdiSubmitCommandToHwQueue",
    "DxgkDdiSuspendContext",
    "DxgkDdiSwitchToHwContextList",
    "DxgkDdiUpdateHwContextState",
];

/// What isolation by an IOMMU asks for beside them.
const ISOLATION: &[&str] = &["DxgkDdiBeginExclusiveAccess", "DxgkDdiEndExclusiveAccess"];

/// Types of queries that must be refused.
const REFUSED: &[Type] = &[
    Type::DXGKQAITYPE_DEVICE_TYPE_CAPS,
    Type::DXGKQAITYPE_DISPLAY_DRIVERCAPS_EXTENSION,
    Type::DXGKQAITYPE_DISPLAYID_DESCRIPTOR,
    Type::DXGKQAITYPE_INTEGRATED_DISPLAY_DESCRIPTOR,
    Type::DXGKQAITYPE_INTEGRATED_DISPLAY_DESCRIPTOR2,
    Type::DXGKQAITYPE_POWERCOMPONENTPSTATEINFO,
    Type::DXGKQAITYPE_PREFERREDGPUNODE,
    Type::DXGKQAITYPE_QUERYCOLORIMETRYOVERRIDES,
    Type::DXGKQAITYPE_QUERYSEGMENT,
    Type::DXGKQAITYPE_QUERYSEGMENT2,
    Type::DXGKQAITYPE_QUERYSEGMENT3,
    Type::DXGKQAITYPE_UEFIFRAMEBUFFERRANGES,
];

/// Bytes of the buffers, input and output, that a refused type is asked with: more than any of their records has.
const BYTES: usize = 256;

/// Verdicts without which a compute-only adapter does not start, and the one on the class of every adapter.
pub(crate) fn judge(adapter: &Miniport, caps: &Caps) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let compute = caps.is_compute_only();
    if let Some(class) = adapter.config().class {
        let fits = compute == (class == DeviceClass::ComputeAccelerator);
        verdicts.push((&COMPUTE_CLASS, fits, format!("ComputeOnly {compute}, class {class:?}")) as Verdict);
    }
    if !compute {
        return verdicts;
    }
    let there: Vec<_> = PROHIBITED.iter().chain(OBSOLETE).filter(|slot| !adapter.is_null(slot)).collect();
    verdicts.push((&COMPUTE_SLOT, there.is_empty(), format!("not NULL: {there:?}")));
    let memory = caps.driver.MemoryManagementCaps;
    let needed = [
        (true, NEEDED),
        (memory.VirtualAddressingSupported(), ADDRESSING),
        (caps.has_hardware_scheduling(), SCHEDULING),
        (memory.IoMmuSecureModeSupported(), ISOLATION),
    ];
    let needed = needed.iter().filter(|(asked, _)| *asked).flat_map(|(_, slots)| *slots);
    let missing: Vec<_> = needed.filter(|slot| adapter.is_null(slot)).collect();
    verdicts.push((&COMPUTE_NEEDED, missing.is_empty(), format!("NULL: {missing:?}")));
    let wrong = wrong_caps(caps);
    verdicts.push((&COMPUTE_CAPS, wrong.is_empty(), wrong.join(", ")));
    let answered: Vec<_> = REFUSED.iter().filter(|kind| answers(adapter, **kind)).collect();
    verdicts.push((&COMPUTE_QUERY, answered.is_empty(), format!("answered: {answered:?}")));
    verdicts
}

/// Capabilities that are not what they must be.
fn wrong_caps(caps: &Caps) -> Vec<&'static str> {
    let (driver, scheduling) = (&caps.driver, caps.driver.SchedulingCaps);
    let (memory, misc) = (caps.driver.MemoryManagementCaps, caps.driver.MiscCaps);
    let (preemption, version) = (caps.driver.PreemptionCaps.ComputePreemptionGranularity, caps.driver.WDDMVersion);
    let none = D3DKMDT_COMPUTE_PREEMPTION_GRANULARITY::D3DKMDT_COMPUTE_PREEMPTION_NONE;
    let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let flips = driver.MaxQueuedMultiPlaneOverlayFlipVSync;
    let immediate = driver.SupportMultiPlaneOverlayImmediateFlip;
    let holds = [
        (driver.MaxAllocationListSlotId == 0, "MaxAllocationListSlotId"),
        (driver.ApertureSegmentCommitLimit == 0, "ApertureSegmentCommitLimit"),
        (driver.MaxPointerWidth == 0 && driver.MaxPointerHeight == 0, "MaxPointerWidth, MaxPointerHeight"),
        (is_zero(driver.PointerCaps.as_bytes()), "PointerCaps"),
        (driver.NumberOfSwizzlingRanges == 0, "NumberOfSwizzlingRanges"),
        (driver.MaxOverlays == 0 && driver.MaxOverlayPlanes == 0, "MaxOverlays, MaxOverlayPlanes"),
        // GammaRampCaps and ColorTransformCaps are one union.
        (is_zero(&driver.as_bytes()[offset_of!(DXGK_DRIVERCAPS, PresentationCaps) - 4..][..4]), "GammaRampCaps"),
        (is_zero(driver.PresentationCaps.as_bytes()), "PresentationCaps"),
        (driver.MaxQueuedFlipOnVSync == 0, "MaxQueuedFlipOnVSync"),
        (is_zero(driver.FlipCaps.as_bytes()), "FlipCaps"),
        (driver.SupportNonVGA == 0, "SupportNonVGA"),
        (driver.SupportSmoothRotation == 0, "SupportSmoothRotation"),
        (driver.SupportDirectFlip == 0, "SupportDirectFlip"),
        (driver.SupportMultiPlaneOverlay == 0 && immediate == 0, "SupportMultiPlaneOverlay, …ImmediateFlip"),
        (driver.CursorScaledWithMultiPlaneOverlayPlane0 == 0, "CursorScaledWithMultiPlaneOverlayPlane0"),
        (driver.HybridDiscrete == 0 && driver.HybridIntegrated == 0, "HybridDiscrete, HybridIntegrated"),
        (driver.HybridAcpiChainingRequired == 0, "HybridAcpiChainingRequired"),
        (flips == 0, "MaxQueuedMultiPlaneOverlayFlipVSync"),
        (!misc.SupportContextlessPresent(), "SupportContextlessPresent"),
        (!misc.Detachable(), "Detachable"),
        (version.0 >= DXGK_WDDMVERSION::DXGKDDI_WDDMv2_6.0, "WDDMVersion is below 2.6"),
        (preemption.0 != 0 && preemption != none, "ComputePreemptionGranularity is NONE"),
        (driver.SupportPerEngineTDR != 0, "SupportPerEngineTDR is not set"),
        (
            scheduling.MultiEngineAware() && scheduling.PreemptionAware(),
            "MultiEngineAware or PreemptionAware is not set",
        ),
        (!scheduling.VSyncPowerSaveAware(), "VSyncPowerSaveAware"),
        (!scheduling.NoDmaPatching(), "NoDmaPatching"),
        (scheduling.LowIrqlPreemptCommand(), "LowIrqlPreemptCommand is not set"),
        (scheduling.HwQueuePacketCap() == 0, "HwQueuePacketCap"),
        (memory.VirtualAddressingSupported(), "VirtualAddressingSupported is not set"),
        (!memory.OutOfOrderLock(), "OutOfOrderLock"),
        (
            !memory.DedicatedPagingEngine() && !memory.PagingEngineCanSwizzle(),
            "DedicatedPagingEngine, PagingEngineCanSwizzle",
        ),
        (
            !memory.SectionBackedPrimary() && !memory.NonCpuVisiblePrimary(),
            "SectionBackedPrimary, NonCpuVisiblePrimary",
        ),
        (!memory.ReplicateGdiContent(), "ReplicateGdiContent"),
    ];
    holds.iter().filter(|(holds, _)| !holds).map(|(_, name)| *name).collect()
}

/// Returns whether the driver answers a query that it must refuse.
fn answers(adapter: &Miniport, kind: Type) -> bool {
    let mut buffer = Buffer::new(BYTES, 0);
    adapter.query_unjudged(&Query { input: &[0; BYTES], ..Query::of(kind) }, &mut buffer).is_success()
}

#[cfg(test)]
mod tests {
    use super::{ADDRESSING, ISOLATION, NEEDED, OBSOLETE, PROHIBITED, SCHEDULING};
    use std::collections::BTreeSet;
    use wddm_abi::slots::DRIVER_INITIALIZATION_DATA_SLOTS;

    #[test]
    fn the_lists_name_slots_that_there_are_each_once() {
        let mut seen = BTreeSet::new();
        for slot in [PROHIBITED, OBSOLETE, NEEDED, ADDRESSING, SCHEDULING, ISOLATION].into_iter().flatten() {
            assert!(DRIVER_INITIALIZATION_DATA_SLOTS.iter().any(|known| known.member == *slot), "{slot}");
            assert!(seen.insert(slot), "{slot} is there twice");
        }
    }
}
