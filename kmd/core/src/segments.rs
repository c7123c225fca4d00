//! Memory segments, and which an allocation may use.
//!
//! One segment is an aperture over system memory (page-in target and home of everything that the CPU sees), the other
//! is local memory of our own, not visible to the CPU: its contents move by paging. The aperture is segment 1, unless
//! the setting `LocalSegmentFirst` has it otherwise. Where the documents disagree whether the first segment must be an
//! aperture, authors of other drivers report that a system without one faulted at start.
//!
//! Source: `DXGK_SEGMENTDESCRIPTOR4`, `DXGK_QUERYSEGMENTOUT4`.

use crate::settings::Settings;
use wddm_abi::{D3DDDI_NATIVEFENCE_TYPE, DXGK_SEGMENTDESCRIPTOR4};

/// Segments.
pub const COUNT: u32 = 2;

/// Which segment has which identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    local_first: bool,
}

impl Order {
    /// The order that `settings` say (`LocalSegmentFirst`).
    pub const fn of(settings: &Settings) -> Self {
        Self { local_first: settings.local_segment_first }
    }

    /// The aperture's segment identifier.
    pub const fn aperture(self) -> u32 {
        if self.local_first { 2 } else { 1 }
    }

    /// The local segment's identifier.
    pub const fn local(self) -> u32 {
        if self.local_first { 1 } else { 2 }
    }
}

/// Bytes of a paging buffer.
pub const PAGING_BUFFER_SIZE: u32 = 64 << 10;
/// Bytes of address space of the aperture.
const APERTURE_SIZE: usize = 4 << 30;

/// Bit of a segment in a segment set.
pub const fn set_of(segment: u32) -> u32 {
    1 << (segment - 1)
}

/// Segment for the values of native fences of a type, where the OS supports others than system memory. `None`: there is
/// none that suits, or the setting `FenceStorageSegment` refuses to name one; the values are in system memory then.
///
/// Both values of an intra-GPU fence go to local memory. MonitoredValue of others is written by the CPU, which does not
/// see that; so it stays in system memory.
///
/// Source: `D3DKMDT_FENCESTORAGESURFACEDATA`; `D3DKMTCreateNativeFence`. They disagree about intra-GPU fences: the
/// first wants MonitoredValue where the CPU sees it.
pub fn of_fence(kind: D3DDDI_NATIVEFENCE_TYPE, settings: &Settings) -> Option<u32> {
    let order = Order::of(settings);
    let intra = kind == D3DDDI_NATIVEFENCE_TYPE::D3DDDI_NATIVEFENCE_TYPE_INTRA_GPU;
    match settings.fence_storage_segment {
        // A local segment that says CpuVisible is none for them.
        0 if intra && settings.local_segment_cpu_visible => None,
        0 if intra => Some(order.local()),
        0 | 1 => Some(order.aperture()),
        _ => None,
    }
}

/// CpuTranslatedAddress of the aperture under the setting `ApertureCpuVisible`: an address where there is no memory,
/// so that an access shows.
const APERTURE_CPU_ADDRESS: i64 = 0xFFFF_FFFE_0000_0000u64.cast_signed();
/// CpuTranslatedAddress of the local segment under the setting `LocalSegmentCpuVisible`, as for the aperture: the
/// segment's memory is blocks that do not follow each other, so no address would be that of the whole.
const LOCAL_CPU_ADDRESS: i64 = 0xFFFF_FFF0_0000_0000u64.cast_signed();

/// The descriptor of segment `index + 1`; `None` when there is no such segment. `local_size`: bytes of the local
/// segment.
///
/// Source: `DXGK_SEGMENTFLAGS` (PopulatedFromSystemMemory: the driver allocated the segment's memory during
/// initialization).
pub fn describe(index: u32, local_size: u64, settings: &Settings) -> Option<DXGK_SEGMENTDESCRIPTOR4> {
    let mut d = DXGK_SEGMENTDESCRIPTOR4::zeroed();
    let order = Order::of(settings);
    match index + 1 {
        id if id == order.aperture() => {
            d.Flags.set_Aperture(true);
            d.Flags.set_CacheCoherent(true);
            if settings.aperture_cpu_visible {
                d.Flags.set_CpuVisible(true);
                d.CpuTranslatedAddress_mut().QuadPart = APERTURE_CPU_ADDRESS;
            }
            d.Size = APERTURE_SIZE;
            d.CommitLimit = APERTURE_SIZE;
        }
        id if id == order.local() => {
            if settings.local_segment_cpu_visible {
                d.Flags.set_CpuVisible(true);
                d.CpuTranslatedAddress_mut().QuadPart = LOCAL_CPU_ADDRESS;
            }
            // CAST: the image is 64-bit.
            d.Size = local_size as usize;
            d.CommitLimit = local_size as usize;
            d.Flags.set_PreservedDuringStandby(true);
            d.Flags.set_PopulatedFromSystemMemory(settings.populated_from_system_memory);
            d.Flags.set_ApplicationTarget(settings.application_target);
            d.Flags.set_LocalBudgetGroup(settings.local_segment_budget == 1);
            d.Flags.set_NonLocalBudgetGroup(settings.local_segment_budget == 2);
        }
        _ => return None,
    }
    Some(d)
}
