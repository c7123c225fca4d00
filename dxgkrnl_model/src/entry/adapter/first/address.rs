//! Judgements of how a driver says that its GPU addresses memory, and of what it asked the OS before.

use wddm_abi::DXGK_FEATURE_ID;

use super::Verdict;
use crate::port::caps::{Caps, Segment};
use crate::port::features::Features;
use crate::port::miniport::Miniport;
use crate::port::rules::caps::{CAPS_INTERNAL_RANGE, CAPS_PHYSICAL_FLAGS, SEGMENT_APERTURE};
use crate::port::rules::start::FEATURE_OS_CAPS;

/// Verdicts that do not end the start.
pub(super) fn judge(adapter: &Miniport, caps: &Caps) -> Vec<Verdict> {
    let mut verdicts = vec![judge_range(caps)];
    if caps.is_gpu_mmu() {
        let apertures = caps.segments.iter().filter(|segment: &&Segment| segment.is_aperture()).count();
        verdicts.push((&SEGMENT_APERTURE, apertures == 1, format!("{apertures} of {} segments", caps.segments.len())));
    }
    if caps.is_physical_answered {
        let flags = caps.physical.Flags;
        let (said, known) = ((flags.GpuMmuSupported(), flags.IoMmuSupported()), (caps.is_gpu_mmu(), caps.is_io_mmu()));
        let text = format!("GpuMmuSupported, IoMmuSupported are {said:?} here and {known:?} in DRIVERCAPS");
        verdicts.push((&CAPS_PHYSICAL_FLAGS, said == known, text));
    }
    // A driver that was told by the older callback has no such interface to ask for.
    let was_told = Features::of(adapter).told(DXGK_FEATURE_ID::DXGK_FEATURE_NATIVE_FENCE).is_some();
    if caps.has_native_fences() && was_told {
        let asked = adapter.callback_calls().contains_key("DXGKCB_QUERYFEATUREINTERFACE");
        verdicts.push((&FEATURE_OS_CAPS, asked, "QueryFeatureInterface was never called".to_owned()));
    }
    verdicts
}

fn judge_range(caps: &Caps) -> Verdict {
    let (start, end) = (caps.driver.InternalGpuVirtualAddressRangeStart, caps.driver.InternalGpuVirtualAddressRangeEnd);
    let bits = caps.mmu.as_ref().map(|mmu| mmu.caps.VirtualAddressBitCount);
    let within = bits.is_none_or(|bits| 1_u64.checked_shl(bits).is_none_or(|limit| end <= limit));
    let ascends = (caps.is_gpu_mmu() || caps.is_io_mmu()) && start < end && within;
    (&CAPS_INTERNAL_RANGE, (start, end) == (0, 0) || ascends, format!("{start:#x} to {end:#x}, {bits:?} bits"))
}
