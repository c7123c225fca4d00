//! Compute-only adapters: what they must not have, beside what every adapter has.
//!
//! Source: article mcdm-implementation-guidelines. Where the article contradicts itself nothing is judged:
//! DxgkDdiQueryConnectionChange is among the functions that must be there and among those that must not.

use nt_model::Rule;
use wddm_abi::{DXGK_QUERYADAPTERINFOTYPE as Type, Plain};

use super::Adapter;
use super::caps::Caps;
use super::query::{Buffer, Query};
use crate::rules::compute::{COMPUTE_CAPS, COMPUTE_CLASS, COMPUTE_QUERY, COMPUTE_SLOT};

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
    "DxgkDdiCommitVidPn",
    "DxgkDdiControlInterrupt",
    "DxgkDdiCreateOverlay",
    "DxgkDdiDestroyOverlay",
    "DxgkDdiEnumVidPnCofuncModality",
    "DxgkDdiFlipOverlay",
    "DxgkDdiGetScanLine",
    "DxgkDdiIsSupportedVidPn",
    "DxgkDdiNotifyAcpiEvent",
    "DxgkDdiPresent",
    "DxgkDdiQueryCurrentFence",
    "DxgkDdiQueryVidPnHWCapability",
    "DxgkDdiRecommendFunctionalVidPn",
    "DxgkDdiRecommendMonitorModes",
    "DxgkDdiReleaseSwizzlingRange",
    "DxgkDdiRenderGdi",
    "DxgkDdiRenderKm",
    "DxgkDdiSetPalette",
    "DxgkDdiSetPointerPosition",
    "DxgkDdiSetPointerShape",
    "DxgkDdiSetVidPnSourceAddress",
    "DxgkDdiSetVidPnSourceVisibility",
    "DxgkDdiStopCapture",
    "DxgkDdiStopDeviceAndReleasePostDisplayOwnership",
    "DxgkDdiSystemDisplayEnable",
    "DxgkDdiSystemDisplayWrite",
    "DxgkDdiUpdateActiveVidPnPresentPath",
    "DxgkDdiUpdateMonitorLinkInfo",
    "DxgkDdiUpdateOverlay",
];

/// Types of queries that must be refused.
const REFUSED: &[Type] = &[
    Type::DXGKQAITYPE_DEVICE_TYPE_CAPS,
    Type::DXGKQAITYPE_DISPLAY_DRIVERCAPS_EXTENSION,
    Type::DXGKQAITYPE_QUERYSEGMENT,
    Type::DXGKQAITYPE_QUERYSEGMENT2,
    Type::DXGKQAITYPE_QUERYSEGMENT3,
];

/// Bytes of the buffer that a refused type is asked with.
const BYTES: usize = 64;

/// Verdicts without which a compute-only adapter does not start, and the one on the class of every adapter.
pub(super) fn judge(adapter: &Adapter, caps: &Caps) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let compute = caps.is_compute_only();
    if let Some(class) = adapter.config.class {
        let fits = compute == (class == DeviceClass::ComputeAccelerator);
        verdicts.push((&COMPUTE_CLASS, fits, format!("ComputeOnly {compute}, class {class:?}")) as Verdict);
    }
    if !compute {
        return verdicts;
    }
    let there: Vec<_> = PROHIBITED.iter().filter(|slot| !adapter.is_null(slot)).collect();
    verdicts.push((&COMPUTE_SLOT, there.is_empty(), format!("not NULL: {there:?}")));
    let wrong = wrong_caps(caps);
    verdicts.push((&COMPUTE_CAPS, wrong.is_empty(), wrong.join(", ")));
    let answered: Vec<_> = REFUSED.iter().filter(|kind| answers(adapter, **kind)).collect();
    verdicts.push((&COMPUTE_QUERY, answered.is_empty(), format!("answered: {answered:?}")));
    verdicts
}

/// Capabilities that are not what they must be.
fn wrong_caps(caps: &Caps) -> Vec<&'static str> {
    let (driver, scheduling) = (&caps.driver, caps.driver.SchedulingCaps);
    let unless = |holds: bool, name: &'static str| (!holds).then_some(name);
    let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    [
        unless(is_zero(driver.PointerCaps.as_bytes()) && driver.MaxPointerWidth == 0, "PointerCaps"),
        unless(driver.NumberOfSwizzlingRanges == 0 && driver.MaxOverlays == 0, "MaxOverlays"),
        unless(is_zero(driver.PresentationCaps.as_bytes()), "PresentationCaps"),
        unless(is_zero(driver.FlipCaps.as_bytes()) && driver.MaxQueuedFlipOnVSync == 0, "FlipCaps"),
        unless(driver.SupportNonVGA == 0, "SupportNonVGA"),
        unless(driver.SupportSmoothRotation == 0, "SupportSmoothRotation"),
        unless(driver.SupportDirectFlip == 0, "SupportDirectFlip"),
        unless(driver.SupportMultiPlaneOverlay == 0 && driver.MaxOverlayPlanes == 0, "SupportMultiPlaneOverlay"),
        unless(driver.HybridDiscrete == 0 && driver.HybridIntegrated == 0, "HybridDiscrete, HybridIntegrated"),
        unless(driver.SupportPerEngineTDR != 0, "SupportPerEngineTDR is not set"),
        unless(scheduling.MultiEngineAware() && scheduling.PreemptionAware(), "MultiEngineAware, PreemptionAware"),
        unless(!scheduling.VSyncPowerSaveAware(), "VSyncPowerSaveAware"),
        unless(!scheduling.NoDmaPatching(), "NoDmaPatching"),
        unless(scheduling.LowIrqlPreemptCommand(), "LowIrqlPreemptCommand is not set"),
        unless(scheduling.HwQueuePacketCap() == 0, "HwQueuePacketCap"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns whether the driver answers a query that it must refuse.
fn answers(adapter: &Adapter, kind: Type) -> bool {
    let mut buffer = Buffer::new(BYTES, 0);
    adapter.query_unjudged(&Query::of(kind), &mut buffer).is_success()
}
