//! What VidSch and VidMm know of who uses the GPU: how long its engines ran for which process, and how much memory of
//! which segment each has. D3DKMTQueryStatistics and D3DKMTQueryVideoMemoryInfo hand it out.
//!
//! A node of packets ran a packet from its submission, or the end of the packet before it, until its completion. A node
//! that the GPU schedules says by its scheduling log when a context begins to run and ceases to: work of doorbells is
//! counted like any other, since no page has another source for it. What a fault or a reset ends of packets counts for
//! nothing, nor do entries of a log that were overwritten before they were read. Chosen: all of this.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::counters::Calibration;
use crate::memory::VidMm;
use crate::memory::allocation::{Allocation, Place};
use crate::miniport::Miniport;
use crate::process::ProcessInner;
use crate::scheduling_log::SchedulingLogSet;
use crate::vidsch::VidSch;
use crate::vidsch::packet::Packet;

/// Units of 100 ns in a second.
const SECOND: u128 = 10_000_000;

/// What a process, or all of them, had of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Use {
    /// How long it ran; in which units the collection says.
    pub(crate) time: u64,
    /// How often the node turned to it.
    pub(crate) switches: u32,
}

/// What processes had of a node, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct NodeUse(BTreeMap<u64, Use>);

impl NodeUse {
    /// `process` ran for `time` more, and the node turned to it `switches` times.
    fn add(&mut self, process: u64, time: u64, switches: u32) {
        let of = self.0.entry(process).or_default();
        (of.time, of.switches) = (of.time.saturating_add(time), of.switches.wrapping_add(switches));
    }

    /// What `process` had; all processes together for `None`.
    pub(crate) fn of(&self, process: Option<u64>) -> Use {
        let wanted = self.0.iter().filter(|(number, _)| process.is_none_or(|process| process == **number));
        wanted.fold(Use::default(), |sum, (_, of)| Use {
            time: sum.time.saturating_add(of.time),
            switches: sum.switches.wrapping_add(of.switches),
        })
    }
}

/// Running time of a node of packets, in units of 100 ns.
#[derive(Debug, Default)]
pub(crate) struct PacketUse {
    node: NodeUse,
    /// When the last packet ended.
    free: u64,
    /// The process whose packet ran last.
    last: Option<u64>,
}

impl PacketUse {
    /// `packets` are over at `now`, in the order in which they ran. Of several that one interrupt tells of, each ran
    /// for an equal part of the time.
    pub(crate) fn ended(&mut self, now: u64, packets: &[Packet]) {
        let Some(first) = packets.first() else { return };
        let time = now.saturating_sub(self.free.max(first.since));
        let (part, rest) = (time / packets.len() as u64, time % packets.len() as u64);
        for (index, packet) in packets.iter().enumerate() {
            let process = packet.context.device().process().number();
            let switches = u32::from(self.last != Some(process));
            self.last = Some(process);
            self.node.add(process, part + if index == 0 { rest } else { 0 }, switches);
        }
        self.free = now;
    }
}

/// Running time by a scheduling log, in ticks of the GPU's clock.
#[derive(Debug, Default)]
pub(crate) struct LoggedUse {
    node: NodeUse,
    /// The context that runs: its handle, its process, and since when.
    running: Option<(usize, u64, u64)>,
}

impl LoggedUse {
    /// An entry of `time`: the context `handle` of `process` begins to run, or is in another state.
    pub(crate) fn entry(&mut self, handle: usize, process: u64, runs: bool, time: u64) {
        let ends = |(running, ..): &(usize, u64, u64)| runs || *running == handle;
        if let Some((_, of, since)) = self.running.take_if(|running| ends(running)) {
            self.node.add(of, time.saturating_sub(since), 0);
        }
        if runs {
            self.node.add(process, 0, 1);
            self.running = Some((handle, process, time));
        }
    }

    /// The context `handle` is gone, and may have no last entry.
    pub(crate) fn gone(&mut self, handle: usize) {
        self.running.take_if(|(running, ..)| *running == handle);
    }

    /// Entries are lost: what ran is not known any more.
    pub(crate) fn forget(&mut self) {
        self.running = None;
    }

    /// What `process`, or all, had until `now`, which may be before the last entry.
    fn until(&self, process: Option<u64>, now: u64) -> Use {
        let mut of = self.node.of(process);
        let running = self.running.filter(|(_, owner, _)| process.is_none_or(|process| process == *owner));
        of.time += running.map_or(0, |(_, _, since)| now.saturating_sub(since));
        of
    }
}

/// What `process` had of a node of `adapter`, and all processes for `None`: units of 100 ns, since the adapter started.
/// `None`: there is no such node.
///
/// IRQL: PASSIVE_LEVEL.
pub(crate) fn of_node(adapter: &Arc<Miniport>, node: u32, process: Option<u64>) -> Option<Use> {
    let known = VidSch::of(adapter).node(node)?;
    if !known.is_hardware_scheduled {
        return Some(known.usage.lock().node.of(process));
    }
    let Some(Calibration { frequency, gpu, .. }) = crate::calibration::of_node(adapter, node) else {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_says_who_ran_and_for_how_long() {
        let mut usage = LoggedUse::default();
        usage.entry(0x10, 1, true, 100);
        // The other context becomes ready, and then takes the engine.
        usage.entry(0x20, 2, false, 110);
        usage.entry(0x20, 2, true, 150);
        usage.entry(0x10, 1, false, 151);
        usage.entry(0x20, 2, false, 160);
        assert_eq!(usage.until(Some(1), 500), Use { time: 50, switches: 1 });
        assert_eq!(usage.until(Some(2), 500), Use { time: 10, switches: 1 });
        // What runs now has run until now.
        usage.entry(0x10, 1, true, 400);
        assert_eq!(usage.until(None, 500), Use { time: 160, switches: 3 });
        assert_eq!(usage.until(Some(3), 500), Use::default());
        // One that is gone runs no more, whatever its last entry was.
        usage.gone(0x20);
        assert_eq!(usage.until(None, 500), Use { time: 160, switches: 3 });
        usage.gone(0x10);
        assert_eq!(usage.until(None, 600), Use { time: 60, switches: 3 });
        usage.entry(0x10, 1, true, 700);
        usage.forget();
        assert_eq!(usage.until(None, 800), Use { time: 60, switches: 4 });
    }
}
