//! What VidSch and VidMm know of who uses the GPU: how long its engines ran for which process, and how much memory of
//! which segment each has. D3DKMTQueryStatistics and D3DKMTQueryVideoMemoryInfo hand it out.
//!
//! A node of packets ran a packet from its submission, or the end of the packet before it, until its completion. A node
//! that the GPU schedules says by its scheduling log when a context begins to run and ceases to: work of doorbells is
//! counted like any other, since no page has another source for it. What a fault or a reset ends of packets counts for
//! nothing, nor do entries of a log that were overwritten before they were read. Chosen: all of this.

use std::sync::Arc;

use crate::memory::VidMm;
use crate::memory::allocation::{Allocation, Place};
use crate::objects::process::ProcessInner;
use crate::objects::scheduling_log::SchedulingLogSet;
use crate::port::counters::Calibration;
use crate::port::miniport::Miniport;
use crate::port::usage::Use;
use crate::sched::vidsch::VidSch;

/// Units of 100 ns in a second.
const SECOND: u128 = 10_000_000;

/// What `process` had of a node of `adapter`, and all processes for `None`: units of 100 ns, since the adapter started.
/// `None`: there is no such node.
///
/// IRQL: PASSIVE_LEVEL.
pub(crate) fn of_node(adapter: &Arc<Miniport>, node: u32, process: Option<u64>) -> Option<Use> {
    let known = VidSch::of(adapter).node(node)?;
    if !known.is_hardware_scheduled {
        return Some(known.usage.lock().of(process));
    }
    let Some(Calibration { frequency, gpu, .. }) = crate::port::calibration::of_node(adapter, node) else {
        return Some(Use::default());
    };
    let had =
        SchedulingLogSet::of(adapter).with_usage(adapter, node, |usage| usage.until(process, gpu)).unwrap_or_default();
    // CAST: ticks of a clock that has not wrapped.
    let time = (u128::from(had.time) * SECOND / u128::from(frequency)) as u64;
    Some(Use { time, ..had })
}

/// Memory of a process, or of all, in a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentUse {
    /// Bytes that lie there.
    pub(crate) resident: u64,
    /// Allocations that do.
    pub(crate) allocations: u32,
}

impl SegmentUse {
    fn and(self, other: Self) -> Self {
        Self { resident: self.resident + other.resident, allocations: self.allocations + other.allocations }
    }
}

/// What `process` has in the segment `id`: allocations that it has open, each once. Memory of the system that the GPU
/// reaches without an aperture segment counts as the first one's.
pub(crate) fn of_segment(adapter: &Arc<Miniport>, id: u32, process: &ProcessInner) -> SegmentUse {
    let caps = adapter.known_caps();
    let is_first = caps.segments.iter().find(|segment| segment.is_aperture()).is_some_and(|first| first.id == id);
    fold(adapter, process, |place, aperture| match place {
        Place::Segment { id: at, .. } => at == id,
        Place::System => aperture.map_or(is_first, |aperture| aperture == id),
        Place::Evicted => false,
    })
}

/// What all processes have in the segment `id`, or what VidMm has taken of it: page tables and other things of the
/// system's own lie there as well, and in an aperture segment nothing needs to.
pub(crate) fn of_whole_segment(adapter: &Arc<Miniport>, id: u32) -> SegmentUse {
    let uses = ProcessInner::all_of(adapter.shared()).into_iter().map(|process| of_segment(adapter, id, &process));
    let all = uses.fold(SegmentUse::default(), SegmentUse::and);
    let taken = VidMm::of(adapter).manager().map(|manager| manager.segment_usage()).unwrap_or_default();
    let taken = taken.iter().find(|(at, ..)| *at == id).map_or(0, |(_, taken, _)| *taken);
    SegmentUse { resident: all.resident.max(taken), ..all }
}

/// What `process` has in memory of the system that the GPU reaches; without `shared`, in memory of the adapter's own.
pub(crate) fn of_group(adapter: &Arc<Miniport>, shared: bool, process: &ProcessInner) -> SegmentUse {
    let caps = adapter.known_caps();
    fold(adapter, process, |place, _| match place {
        Place::System => shared,
        Place::Segment { id, .. } => caps.segment(id).is_some_and(|segment| segment.is_aperture() == shared),
        Place::Evicted => false,
    })
}

fn fold(adapter: &Arc<Miniport>, process: &ProcessInner, is_there: impl Fn(Place, Option<u32>) -> bool) -> SegmentUse {
    let mut allocations: Vec<_> =
        process.allocations_on(adapter).iter().map(|open| open.allocation().clone()).collect();
    allocations.sort_by_key(Arc::as_ptr);
    allocations.dedup_by(|one, other| Arc::ptr_eq(one, other));
    let there = allocations.iter().filter(|allocation| {
        let (place, aperture) = allocation.lies();
        is_there(place, aperture)
    });
    let one = |allocation: &Arc<Allocation>| SegmentUse { resident: allocation.size(), allocations: 1 };
    there.map(one).fold(SegmentUse::default(), SegmentUse::and)
}
