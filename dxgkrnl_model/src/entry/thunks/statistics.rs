//! `D3DKMTQueryStatistics`, `D3DKMTQueryVideoMemoryInfo`, `D3DKMTChangeVideoMemoryReservation`: what monitors show,
//! from the model's own scheduler and memory manager.
//!
//! Source: `d3dkmthk.h` (the records; no page words them); Wine's tests of D3DKMT, which run on Windows (statuses of
//! D3DKMTQueryVideoMemoryInfo); System Informer and LibreHardwareMonitor (which members are read, and that running time
//! counts units of 100 ns). Chosen: what is not said to be filled here is 0, types without an answer and objects that
//! there are not are STATUS_INVALID_PARAMETER, an adapter has the driver's segments and no others, a segment's number
//! counts from 0 here and from 1 in the driver, what two processes have open counts for each of them, and the budget of
//! a segment group is all of its memory. What a process reserves is told, and nothing else comes of it.

use std::sync::atomic::Ordering;

use wddm_abi::{
    D3DKMT_CHANGEVIDEOMEMORYRESERVATION, D3DKMT_MEMORY_SEGMENT_GROUP, D3DKMT_QUERYSTATISTICS,
    D3DKMT_QUERYSTATISTICS_PROCESS_NODE_INFORMATION, D3DKMT_QUERYSTATISTICS_RESULT,
    D3DKMT_QUERYSTATISTICS_TYPE as Type, D3DKMT_QUERYVIDEOMEMORYINFO, NTSTATUS,
};

use super::process::{MAY_ASK, MAY_SET, named, own_or_named};
use super::{Call, DONE, INVALID, Outcome, thunks};
use crate::entry::statistics::{self, SegmentUse};
use crate::port::caps::Segment;
use crate::port::miniport::Miniport;
use crate::port::place::Place;
use crate::port::tdr::Tdr;
use crate::port::usage::Use;

/// Bytes of the segments of a group: the adapter's own memory, or the system's.
fn size_of_group(adapter: &Miniport, shared: bool) -> u64 {
    let caps = adapter.known_caps();
    caps.segments.iter().filter(|segment| segment.is_aperture() == shared).map(Segment::size).sum()
}

/// Bytes of a segment group that a process can reserve. Chosen: half of it.
fn available(adapter: &Miniport, shared: bool) -> u64 {
    size_of_group(adapter, shared) / 2
}

/// Returns whether a segment group is the system's memory.
///
/// # Errors
/// STATUS_INVALID_PARAMETER for a group that there is not.
fn is_shared(group: D3DKMT_MEMORY_SEGMENT_GROUP) -> Result<bool, NTSTATUS> {
    match group {
        D3DKMT_MEMORY_SEGMENT_GROUP::D3DKMT_MEMORY_SEGMENT_GROUP_LOCAL => Ok(false),
        D3DKMT_MEMORY_SEGMENT_GROUP::D3DKMT_MEMORY_SEGMENT_GROUP_NON_LOCAL => Ok(true),
        _ => Err(INVALID),
    }
}

fn node_information(of: Use) -> D3DKMT_QUERYSTATISTICS_PROCESS_NODE_INFORMATION {
    let mut information = D3DKMT_QUERYSTATISTICS_PROCESS_NODE_INFORMATION::zeroed();
    // The member has the bits of a LARGE_INTEGER.
    information.RunningTime.QuadPart = of.time.cast_signed();
    information.ContextSwitch = of.switches;
    information
}

thunks! {
    /// What monitors ask.
    table THUNKS;

    fn D3DKMTQueryStatistics(call, record: D3DKMT_QUERYSTATISTICS) {
        query(call, record)
    }

    fn D3DKMTQueryVideoMemoryInfo(call, record: D3DKMT_QUERYVIDEOMEMORYINFO) {
        let gpu_process = super::adapter::adapter(call, record.hAdapter)?;
        let adapter = gpu_process.adapter();
        // Only this member is another process's.
        let process = own_or_named(call, record.hProcess, MAY_ASK)?;
        let shared = is_shared(record.MemorySegmentGroup)?;
        if record.PhysicalAdapterIndex >= adapter.known_caps().engines() {
            return Err(INVALID);
        }
        record.Budget = size_of_group(adapter, shared);
        record.CurrentUsage = statistics::of_group(adapter, shared, &process).resident;
        record.CurrentReservation = process.reservations.of(adapter, shared);
        record.AvailableForReservation = available(adapter, shared);
        DONE
    }

    fn D3DKMTChangeVideoMemoryReservation(call, record: D3DKMT_CHANGEVIDEOMEMORYRESERVATION) {
        let gpu_process = super::adapter::adapter(call, record.hAdapter)?;
        let adapter = gpu_process.adapter();
        let process = own_or_named(call, record.hProcess, MAY_SET)?;
        let shared = is_shared(record.MemorySegmentGroup)?;
        let is_there = record.PhysicalAdapterIndex < adapter.known_caps().engines();
        if !is_there || record.Reservation > available(adapter, shared) {
            return Err(INVALID);
        }
        process.reservations.set(adapter, shared, record.Reservation);
        DONE
    }
}

/// What is asked: the type that has one number, the physical adapter, and the number of a segment, group or node. The
/// later types name the physical adapter as well; the earlier ones mean the first.
fn asked(record: &D3DKMT_QUERYSTATISTICS) -> (Type, u32, u32) {
    // Each of the later members has these two, a word each, and nothing else.
    let pair = record.QueryNode2();
    let later = |kind: Type| (kind, pair.PhysicalAdapterIndex.into(), pair.NodeOrdinal.into());
    match record.Type {
        Type::D3DKMT_QUERYSTATISTICS_ADAPTER2 => later(Type::D3DKMT_QUERYSTATISTICS_ADAPTER),
        Type::D3DKMT_QUERYSTATISTICS_PROCESS_ADAPTER2 => later(Type::D3DKMT_QUERYSTATISTICS_PROCESS_ADAPTER),
        Type::D3DKMT_QUERYSTATISTICS_SEGMENT2 => later(Type::D3DKMT_QUERYSTATISTICS_SEGMENT),
        Type::D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT2 => later(Type::D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT),
        Type::D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT_GROUP2 => {
            later(Type::D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT_GROUP)
        }
        Type::D3DKMT_QUERYSTATISTICS_NODE2 => later(Type::D3DKMT_QUERYSTATISTICS_NODE),
        Type::D3DKMT_QUERYSTATISTICS_PROCESS_NODE2 => later(Type::D3DKMT_QUERYSTATISTICS_PROCESS_NODE),
        kind @ (Type::D3DKMT_QUERYSTATISTICS_SEGMENT_USAGE | Type::D3DKMT_QUERYSTATISTICS_SEGMENT_GROUP_USAGE) => {
            later(kind)
        }
        // Each of the earlier ones has one number of 32 bits, or none.
        kind => (kind, 0, record.QueryNode().NodeId),
    }
}

fn query(call: &Call, record: &mut D3DKMT_QUERYSTATISTICS) -> Outcome {
    let adapter = call.shared.adapter_by_luid(super::adapter::number(record.AdapterLuid)).ok_or(INVALID)?;
    let caps = adapter.known_caps();
    let (kind, physical, index) = asked(record);
    if physical >= caps.engines() {
        return Err(INVALID);
    }
    // CAST: a handful of each.
    let counts = (caps.segments.len() as u32, caps.nodes.len() as u32, caps.sources);
    let process = || named(call, record.hProcess, MAY_ASK);
    let segment = || caps.segments.get(index as usize).ok_or(INVALID);
    // CAST: an enumerator's number.
    let group = || is_shared(D3DKMT_MEMORY_SEGMENT_GROUP(index as i32));
    let node = |process: Option<u64>| -> Result<_, NTSTATUS> {
        let node = caps.node_at(Place { node: index, engine: physical }).ok_or(INVALID)?;
        Ok(node_information(statistics::of_node(&adapter, node, process).ok_or(INVALID)?))
    };
    let mut result = D3DKMT_QUERYSTATISTICS_RESULT::zeroed();
    match kind {
        Type::D3DKMT_QUERYSTATISTICS_ADAPTER => {
            let answer = result.AdapterInformation_mut();
            (answer.NbSegments, answer.NodeCount, answer.VidPnSourceCount) = counts;
            let resets = [&Tdr::of(&adapter).engine_resets, &Tdr::of(&adapter).adapter_resets]
                .map(|it| it.load(Ordering::Relaxed));
            // CAST: so many resets.
            answer.TdrDetectedCount = resets.iter().sum::<u64>() as u32;
        }
        Type::D3DKMT_QUERYSTATISTICS_PROCESS => {
            process()?;
            let answer = result.ProcessInformation_mut();
            (_, answer.NodeCount, answer.VidPnSourceCount) = counts;
        }
        Type::D3DKMT_QUERYSTATISTICS_PROCESS_ADAPTER => {
            process()?;
            let answer = result.ProcessAdapterInformation_mut();
            (answer.NbSegments, answer.NodeCount, answer.VidPnSourceCount) = counts;
        }
        Type::D3DKMT_QUERYSTATISTICS_SEGMENT => {
            let segment = segment()?;
            let SegmentUse { resident, allocations } = statistics::of_whole_segment(&adapter, segment.id);
            let answer = result.SegmentInformation_mut();
            (answer.CommitLimit, answer.BytesCommitted, answer.BytesResident) = (segment.size(), resident, resident);
            (answer.Memory.AllocsCommitted, answer.Memory.AllocsResident) = (allocations, allocations);
            answer.Aperture = segment.is_aperture().into();
        }
        Type::D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT => {
            let used = statistics::of_segment(&adapter, segment()?.id, &*process()?);
            result.ProcessSegmentInformation_mut().BytesCommitted = used.resident;
        }
        Type::D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT_GROUP => {
            let (shared, process) = (group()?, process()?);
            let answer = result.ProcessSegmentGroupInformation_mut();
            answer.Budget = size_of_group(&adapter, shared);
            answer.Usage = statistics::of_group(&adapter, shared, &process).resident;
            answer.Requested = answer.Usage;
        }
        Type::D3DKMT_QUERYSTATISTICS_SEGMENT_USAGE => {
            let segment = segment()?;
            let used = statistics::of_whole_segment(&adapter, segment.id).resident;
            let answer = result.SegmentUsageInformation_mut();
            (answer.AllocatedBytes, answer.FreeBytes) = (used, segment.size().saturating_sub(used));
        }
        Type::D3DKMT_QUERYSTATISTICS_SEGMENT_GROUP_USAGE => {
            let shared = group()?;
            let segments = caps.segments.iter().filter(|segment| segment.is_aperture() == shared);
            let used: u64 = segments.map(|segment| statistics::of_whole_segment(&adapter, segment.id).resident).sum();
            let answer = result.SegmentGroupUsageInformation_mut();
            let size = size_of_group(&adapter, shared);
            (answer.AllocatedBytes, answer.FreeBytes) = (used, size.saturating_sub(used));
        }
        Type::D3DKMT_QUERYSTATISTICS_NODE => {
            let (all, system) = (node(None)?, node(Some(0))?);
            let answer = result.NodeInformation_mut();
            (answer.GlobalInformation, answer.SystemInformation) = (all, system);
        }
        Type::D3DKMT_QUERYSTATISTICS_PROCESS_NODE => {
            *result.ProcessNodeInformation_mut() = node(Some(process()?.nt().id()))?;
        }
        _ => return Err(INVALID),
    }
    record.QueryResult = result;
    DONE
}
