//! Memory segments, and which an allocation may use.
//!
//! Segment 1 is an aperture over system memory (page-in target and home of everything that the CPU sees). Segment 2 is
//! local memory of our own, not visible to the CPU: its contents move by paging. Where the documents disagree whether the
//! first segment must be an aperture, authors of other drivers report that a system without one faulted at start.
//!
//! Source: `DXGK_SEGMENTDESCRIPTOR4`, `DXGK_QUERYSEGMENTOUT4`.

use crate::settings::Settings;
use gpu_engine::mutation::{Chosen, Mutation};
use wddm_abi::{D3DDDI_NATIVEFENCE_TYPE, DXGK_SEGMENTDESCRIPTOR4};

/// The aperture's segment identifier.
pub const APERTURE: u32 = 1;
/// The local segment's.
pub const LOCAL: u32 = 2;
/// Segments.
pub const COUNT: u32 = 2;

/// Bytes of a paging buffer.
pub const PAGING_BUFFER_SIZE: u32 = 64 << 10;
/// Bytes of address space of the aperture.
const APERTURE_SIZE: usize = 4 << 30;

/// Bit of a segment in a segment set.
pub const fn set_of(segment: u32) -> u32 {
    1 << (segment - 1)
}

/// Segment for the values of native fences of a type, where the OS supports others than system memory.
///
/// Both values of an intra-GPU fence go to local memory. MonitoredValue of others is written by the CPU, which does not see that; so
/// it stays in system memory.
///
/// Source: `D3DKMDT_FENCESTORAGESURFACEDATA`; `D3DKMTCreateNativeFence`.
pub fn of_fence(kind: D3DDDI_NATIVEFENCE_TYPE, mutation: &Chosen) -> u32 {
    let intra = kind == D3DDDI_NATIVEFENCE_TYPE::D3DDDI_NATIVEFENCE_TYPE_INTRA_GPU;
    if intra && !mutation.is(Mutation::IntraGpuInAperture) { LOCAL } else { APERTURE }
}

/// CpuTranslatedAddress of the aperture under the setting `ApertureCpuVisible`: an address where there is no memory,
/// so that an access shows.
const APERTURE_CPU_ADDRESS: i64 = 0xFFFF_FFFE_0000_0000u64.cast_signed();

/// The descriptor of segment `index + 1`; `None` when there is no such segment. `local_size`: bytes of the local
/// segment.
///
/// Source: `DXGK_SEGMENTFLAGS` (PopulatedFromSystemMemory: the driver allocated the segment's memory during
/// initialization).
pub fn describe(index: u32, local_size: u64, settings: &Settings) -> Option<DXGK_SEGMENTDESCRIPTOR4> {
    let mut d = DXGK_SEGMENTDESCRIPTOR4::zeroed();
    match index + 1 {
        APERTURE => {
            d.Flags.set_Aperture(true);
            d.Flags.set_CacheCoherent(true);
            if settings.aperture_cpu_visible {
                d.Flags.set_CpuVisible(true);
                d.CpuTranslatedAddress_mut().QuadPart = APERTURE_CPU_ADDRESS;
            }
            d.Size = APERTURE_SIZE;
            d.CommitLimit = APERTURE_SIZE;
        }
        LOCAL => {
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
