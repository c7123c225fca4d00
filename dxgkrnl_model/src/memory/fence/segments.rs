//! Which segments the driver wants the values of native fences in.
//!
//! Asked by `DxgkDdiGetStandardAllocationDriverData` when an adapter is started whose OS supports values in local
//! memory; a driver on 24H2 is never asked. CurrentValue of a default fence is in system memory always.
//!
//! | type | value | segments |
//! |---|---|---|
//! | DEFAULT | MonitoredValue | system memory (apertures), or such as the CPU sees: it is written there |
//! | INTRA_GPU | both | local ones that the CPU does not see |
//!
//! Source: DDI page D3DKMDT_FENCESTORAGESURFACEDATA; DXGKARGCB_FEATURE_NATIVEFENCE_CAPS_1; D3DKMTCreateNativeFence,
//! Remarks.
//!
//! Chosen: once for each type and value, at start. A driver that has no memory for an answer, or refuses, gets system
//! memory.

use std::sync::Arc;

use wddm_abi::{
    D3DDDI_NATIVEFENCE_TYPE, D3DKMDT_FENCESTORAGESURFACEDATA, D3DKMDT_STANDARDALLOCATION_TYPE, DXGK_ALLOCATIONINFO,
    DXGKARG_FENCESTORAGEVALUETYPE, DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA, ntstatus,
};

use crate::memory::allocation::preferred_segments;
use crate::port::caps::{Caps, Segment};
use crate::port::ddi::{self, call_ddi};
use crate::port::miniport::Miniport;
use crate::port::poison;
use crate::port::rules::fence::{NF_STORAGE_SEGMENT, NF_STORAGE_STATUS};

/// Local segments, best first. An empty list: system memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct FenceSegments {
    /// CurrentValue of intra-GPU fences.
    pub(crate) intra_current: Vec<u32>,
    /// MonitoredValue of those.
    pub(crate) intra_monitored: Vec<u32>,
    /// MonitoredValue of default fences.
    pub(crate) default_monitored: Vec<u32>,
}

impl FenceSegments {
    /// Asks the driver.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn ask(adapter: &Arc<Miniport>, caps: &Caps) -> Self {
        use D3DDDI_NATIVEFENCE_TYPE as Type;
        use DXGKARG_FENCESTORAGEVALUETYPE as Value;
        let offers = adapter.personality().native_fence_os_caps;
        let mut segments = Self::default();
        if !caps.has_native_fences() {
            return segments;
        }
        let ask = |kind, value| ask(adapter, caps, kind, value);
        if offers.intra_gpu {
            let kind = Type::D3DDDI_NATIVEFENCE_TYPE_INTRA_GPU;
            segments.intra_current = ask(kind, Value::D3DKARG_FENCESTORAGETYPE_CURRENTVALUE);
            segments.intra_monitored = ask(kind, Value::D3DKARG_FENCESTORAGETYPE_MONITOREDVALUE);
        }
        if offers.optimized_default {
            let kind = Type::D3DDDI_NATIVEFENCE_TYPE_DEFAULT;
            segments.default_monitored = ask(kind, Value::D3DKARG_FENCESTORAGETYPE_MONITOREDVALUE);
        }
        segments
    }
}

fn ask(
    adapter: &Arc<Miniport>,
    caps: &Caps,
    kind: D3DDDI_NATIVEFENCE_TYPE,
    value: DXGKARG_FENCESTORAGEVALUETYPE,
) -> Vec<u32> {
    // No bytes of private data, at an address that is not NULL all the same.
    let mut private = [poison::BYTE; 16];
    let mut data = D3DKMDT_FENCESTORAGESURFACEDATA::zeroed();
    data.FenceStorageValueType = value;
    data.FenceStorageType = kind;
    data.pPrivateDriverData = private.as_mut_ptr();
    let mut arguments = DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA::zeroed();
    arguments.StandardAllocationType = D3DKMDT_STANDARDALLOCATION_TYPE::D3DKMDT_STANDARDALLOCATION_FENCESTORAGE;
    arguments.set_pCreateFenceStorageData(&raw mut data);
    let (context, pointer) = (adapter.context(), &raw mut arguments);
    let status = ddi::status(call_ddi!(adapter, DxgkDdiGetStandardAllocationDriverData(context, pointer)));
    let listed = status.is_success() || matches!(status, ntstatus::STATUS_NO_MEMORY | ntstatus::STATUS_SYSTEM_SHUTDOWN);
    let alone = data.PrivateDriverDataSize == 0 && private == [poison::BYTE; 16];
    adapter.rules().check(&NF_STORAGE_STATUS, listed && alone, || {
        format!("{kind:?}, {value:?}: {status:?}, {} bytes of private data", data.PrivateDriverDataSize)
    });
    if !status.is_success() {
        return Vec::new();
    }
    let is_intra = kind == D3DDDI_NATIVEFENCE_TYPE::D3DDDI_NATIVEFENCE_TYPE_INTRA_GPU;
    let (set, fine) = wanted(caps, &data.AllocationInfo, |segment| {
        if is_intra {
            !segment.is_aperture() && !segment.is_cpu_visible()
        } else {
            segment.is_aperture() || segment.is_cpu_visible()
        }
    });
    adapter.rules().check(&NF_STORAGE_SEGMENT, fine, || {
        let info = &data.AllocationInfo;
        format!(
            "{kind:?}, {value:?}: write set {:#x}, preferred {set:?}, eviction set {:#x}",
            info.SupportedWriteSegmentSet, info.EvictionSegmentSet
        )
    });
    // An aperture stands for system memory: what is behind it in the list is not needed.
    let is_local = |id: &u32| caps.segment(*id).is_some_and(|segment| !segment.is_aperture());
    if fine { set.into_iter().take_while(is_local).collect() } else { Vec::new() }
}

/// The segments of an answer, best first, and whether each exists and suits.
fn wanted(caps: &Caps, info: &DXGK_ALLOCATIONINFO, suits: impl Fn(&Segment) -> bool) -> (Vec<u32>, bool) {
    let ids = |set: u32| (0..32).filter(move |bit| set & (1 << bit) != 0).map(|bit| bit + 1);
    let set: Vec<_> = ids(info.SupportedWriteSegmentSet).collect();
    let mut best = preferred_segments(info.PreferredSegment.Value);
    let eviction = ids(info.EvictionSegmentSet).all(|id| caps.segment(id).is_some_and(Segment::is_aperture));
    let fine = !set.is_empty()
        && best.iter().all(|id| set.contains(id))
        && set.iter().all(|id| caps.segment(*id).is_some_and(&suits))
        && eviction;
    best.extend(set.into_iter().filter(|id| !best.contains(id)).collect::<Vec<_>>());
    (best, fine)
}
