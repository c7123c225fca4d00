//! `D3DKMTQueryStatistics` and `D3DKMTQueryVideoMemoryInfo`: what monitors show, from the model's own scheduler and
//! memory manager.
//!
//! Source: `d3dkmthk.h` (the records; no page words them); Wine's tests of D3DKMT, which run on Windows (statuses of
//! D3DKMTQueryVideoMemoryInfo); System Informer and LibreHardwareMonitor (which members are read, and that running time
//! counts units of 100 ns). Chosen: what is not said to be filled here is 0, types without an answer and objects that
//! there are not are STATUS_INVALID_PARAMETER, an adapter has the driver's segments and no others, a segment's number
//! counts from 0 here and from 1 in the driver, what two processes have open counts for each of them, and the budget of
//! a segment group is all of its memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use wddm_abi::{
    D3DKMT_MEMORY_SEGMENT_GROUP, D3DKMT_QUERYSTATISTICS, D3DKMT_QUERYSTATISTICS_PROCESS_NODE_INFORMATION,
    D3DKMT_QUERYSTATISTICS_TYPE, D3DKMT_QUERYVIDEOMEMORYINFO, HANDLE, NTSTATUS, ntstatus,
};

use super::{Call, DONE, INVALID, Outcome, thunks};
use crate::adapter::caps::Segment;
use crate::adapter::{Adapter, Place};
use crate::process::{OtherProcess, ProcessInner};
use crate::statistics::{self, SegmentUse, Use};

/// What GetCurrentProcess returns.
const THIS_PROCESS: usize = usize::MAX;
const LOCAL: D3DKMT_MEMORY_SEGMENT_GROUP = D3DKMT_MEMORY_SEGMENT_GROUP::D3DKMT_MEMORY_SEGMENT_GROUP_LOCAL;
const NON_LOCAL: D3DKMT_MEMORY_SEGMENT_GROUP = D3DKMT_MEMORY_SEGMENT_GROUP::D3DKMT_MEMORY_SEGMENT_GROUP_NON_LOCAL;

/// The process that a handle of the caller's leads to.
///
/// # Errors
/// STATUS_INVALID_HANDLE; STATUS_ACCESS_DENIED for one that was opened without the right to ask.
fn named(call: &Call, handle: HANDLE) -> Result<Arc<ProcessInner>, NTSTATUS> {
    if handle.addr() == THIS_PROCESS {
        return Ok(call.process.clone());
    }
    let other =
        call.process.nt().handle::<OtherProcess>(handle.addr() as u64).ok_or(ntstatus::STATUS_INVALID_HANDLE)?;
    if other.may_query() { Ok(other.process().clone()) } else { Err(ntstatus::STATUS_ACCESS_DENIED) }
}

/// Bytes of the segments of a group: the adapter's own memory, or the system's.
fn size_of_group(adapter: &Adapter, group: D3DKMT_MEMORY_SEGMENT_GROUP) -> u64 {
    let caps = adapter.known_caps();
    let of_group = caps.segments.iter().filter(|segment| segment.is_aperture() == (group == NON_LOCAL));
    of_group.map(Segment::size).sum()
}

/// What a process has of a group.
fn use_of_group(adapter: &Arc<Adapter>, group: D3DKMT_MEMORY_SEGMENT_GROUP, process: &ProcessInner) -> SegmentUse {
    if group == LOCAL {
        statistics::of_local_memory(adapter, process)
    } else {
        statistics::of_system_memory(adapter, process)
    }
}

/// What all processes have of a group.
fn used_of_group(call: &Call, adapter: &Arc<Adapter>, group: D3DKMT_MEMORY_SEGMENT_GROUP) -> u64 {
    call.shared.processes().iter().map(|process| use_of_group(adapter, group, process).resident).sum()
}

fn is_group(group: D3DKMT_MEMORY_SEGMENT_GROUP) -> Result<D3DKMT_MEMORY_SEGMENT_GROUP, NTSTATUS> {
    if group == LOCAL || group == NON_LOCAL { Ok(group) } else { Err(INVALID) }
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
        let part = super::adapter::adapter(call, record.hAdapter)?;
        let adapter = part.adapter();
        // Only this member is another process's.
        let process = if record.hProcess.is_null() { call.process.clone() } else { named(call, record.hProcess)? };
        let group = is_group(record.MemorySegmentGroup)?;
        if record.PhysicalAdapterIndex >= adapter.known_caps().engines() {
            return Err(INVALID);
        }
        record.Budget = size_of_group(adapter, group);
        record.CurrentUsage = use_of_group(adapter, group, &process).resident;
        record.CurrentReservation = 0;
        // Half of it. Chosen: nothing can be reserved here.
        record.AvailableForReservation = record.Budget / 2;
        DONE
    }
}

fn query(call: &Call, record: &mut D3DKMT_QUERYSTATISTICS) -> Outcome {
    use D3DKMT_QUERYSTATISTICS_TYPE as Type;
    let adapter = call.shared.adapter_by_luid(super::adapter::number(record.AdapterLuid)).ok_or(INVALID)?;
    let caps = adapter.known_caps();
    // CAST: a handful of each.
    let (segments, nodes) = (caps.segments.len() as u32, caps.nodes.len() as u32);
    let process = || named(call, record.hProcess);
    let physical = |index: u32| if index < caps.engines() { Ok(()) } else { Err(INVALID) };
    // Those of the first physical adapter, by one number; the later forms name both.
    let node_of = |node: u32, engine: u32| caps.node_at(Place { node, engine }).ok_or(INVALID);
    let segment_of = |index: u32| caps.segments.get(index as usize).ok_or(INVALID);
    let mut result = wddm_abi::D3DKMT_QUERYSTATISTICS_RESULT::zeroed();
    match record.Type {
        Type::D3DKMT_QUERYSTATISTICS_ADAPTER | Type::D3DKMT_QUERYSTATISTICS_ADAPTER2 => {
            if record.Type == Type::D3DKMT_QUERYSTATISTICS_ADAPTER2 {
                physical(record.QueryAdapter2().PhysicalAdapterIndex.into())?;
            }
            let answer = result.AdapterInformation_mut();
            (answer.NbSegments, answer.NodeCount, answer.VidPnSourceCount) = (segments, nodes, caps.sources);
            let resets = [&adapter.tdr.engine_resets, &adapter.tdr.adapter_resets].map(|it| it.load(Ordering::Relaxed));
            // CAST: so many resets.
            answer.TdrDetectedCount = resets.iter().sum::<u64>() as u32;
        }
        Type::D3DKMT_QUERYSTATISTICS_PROCESS => {
            process()?;
            let answer = result.ProcessInformation_mut();
            (answer.NodeCount, answer.VidPnSourceCount) = (nodes, caps.sources);
        }
        Type::D3DKMT_QUERYSTATISTICS_PROCESS_ADAPTER | Type::D3DKMT_QUERYSTATISTICS_PROCESS_ADAPTER2 => {
            if record.Type == Type::D3DKMT_QUERYSTATISTICS_PROCESS_ADAPTER2 {
                physical(record.QueryProcessAdapter2().PhysicalAdapterIndex.into())?;
            }
            process()?;
            let answer = result.ProcessAdapterInformation_mut();
            (answer.NbSegments, answer.NodeCount, answer.VidPnSourceCount) = (segments, nodes, caps.sources);
        }
        Type::D3DKMT_QUERYSTATISTICS_SEGMENT | Type::D3DKMT_QUERYSTATISTICS_SEGMENT2 => {
            let index = if record.Type == Type::D3DKMT_QUERYSTATISTICS_SEGMENT2 {
                physical(record.QuerySegment2().PhysicalAdapterIndex.into())?;
                record.QuerySegment2().SegmentId.into()
            } else {
                record.QuerySegment().SegmentId
            };
            let segment = segment_of(index)?;
            let SegmentUse { resident, allocations } = statistics::of_whole_segment(&adapter, segment.id);
            let answer = result.SegmentInformation_mut();
            (answer.CommitLimit, answer.BytesCommitted, answer.BytesResident) = (segment.size(), resident, resident);
            (answer.Memory.AllocsCommitted, answer.Memory.AllocsResident) = (allocations, allocations);
            answer.Aperture = segment.is_aperture().into();
        }
        Type::D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT | Type::D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT2 => {
            let index = if record.Type == Type::D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT2 {
                physical(record.QueryProcessSegment2().PhysicalAdapterIndex.into())?;
                record.QueryProcessSegment2().SegmentId.into()
            } else {
                record.QueryProcessSegment().SegmentId
            };
            let used = statistics::of_segment(&adapter, segment_of(index)?.id, &*process()?);
            result.ProcessSegmentInformation_mut().BytesCommitted = used.resident;
        }
        Type::D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT_GROUP | Type::D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT_GROUP2 => {
            let group = if record.Type == Type::D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT_GROUP2 {
                physical(record.QueryProcessSegmentGroup2().PhysicalAdapterIndex.into())?;
                D3DKMT_MEMORY_SEGMENT_GROUP(record.QueryProcessSegmentGroup2().SegmentGroup.into())
            } else {
                record.QueryProcessSegmentGroup()
            };
            let (group, process) = (is_group(group)?, process()?);
            let answer = result.ProcessSegmentGroupInformation_mut();
            answer.Budget = size_of_group(&adapter, group);
            answer.Usage = use_of_group(&adapter, group, &process).resident;
            answer.Requested = answer.Usage;
        }
        Type::D3DKMT_QUERYSTATISTICS_SEGMENT_USAGE => {
            physical(record.QuerySegmentUsage().PhysicalAdapterIndex.into())?;
            let segment = segment_of(record.QuerySegmentUsage().SegmentId.into())?;
            let used = statistics::of_whole_segment(&adapter, segment.id).resident;
            let answer = result.SegmentUsageInformation_mut();
            (answer.AllocatedBytes, answer.FreeBytes) = (used, segment.size().saturating_sub(used));
        }
        Type::D3DKMT_QUERYSTATISTICS_SEGMENT_GROUP_USAGE => {
            physical(record.QuerySegmentGroupUsage().PhysicalAdapterIndex.into())?;
            let group = is_group(D3DKMT_MEMORY_SEGMENT_GROUP(record.QuerySegmentGroupUsage().SegmentGroup.into()))?;
            let (size, used) = (size_of_group(&adapter, group), used_of_group(call, &adapter, group));
            let answer = result.SegmentGroupUsageInformation_mut();
            (answer.AllocatedBytes, answer.FreeBytes) = (used, size.saturating_sub(used));
        }
        Type::D3DKMT_QUERYSTATISTICS_NODE | Type::D3DKMT_QUERYSTATISTICS_NODE2 => {
            let node = if record.Type == Type::D3DKMT_QUERYSTATISTICS_NODE2 {
                let asked = record.QueryNode2();
                node_of(asked.NodeOrdinal.into(), asked.PhysicalAdapterIndex.into())?
            } else {
                record.QueryNode().NodeId
            };
            let all = statistics::of_node(&adapter, node, None).ok_or(INVALID)?;
            let system = statistics::of_node(&adapter, node, Some(0)).ok_or(INVALID)?;
            let answer = result.NodeInformation_mut();
            answer.GlobalInformation = node_information(all);
            answer.SystemInformation = node_information(system);
        }
        Type::D3DKMT_QUERYSTATISTICS_PROCESS_NODE | Type::D3DKMT_QUERYSTATISTICS_PROCESS_NODE2 => {
            let node = if record.Type == Type::D3DKMT_QUERYSTATISTICS_PROCESS_NODE2 {
                let asked = record.QueryProcessNode2();
                node_of(asked.NodeOrdinal.into(), asked.PhysicalAdapterIndex.into())?
            } else {
                record.QueryProcessNode().NodeId
            };
            let had = statistics::of_node(&adapter, node, Some(process()?.nt().id())).ok_or(INVALID)?;
            *result.ProcessNodeInformation_mut() = node_information(had);
        }
        _ => return Err(INVALID),
    }
    record.QueryResult = result;
    DONE
}
