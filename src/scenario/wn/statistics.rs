//! What monitors ask: engines, segments, processes, memory.

use crate::monitor::Monitor;
use crate::scenario::GpuReader;
use crate::scenario::db::{Room, raw};
use crate::scenario::{Denied, Played, Raw, Scene, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::process::ProcessRights;
use gpu_wire::private::allocation_kind;
use wddm_abi::ntstatus::{STATUS_ACCESS_DENIED, STATUS_INVALID_HANDLE, STATUS_INVALID_PARAMETER};
use wddm_abi::{
    D3DKMT_MEMORY_SEGMENT_GROUP, D3DKMT_QUERYSTATISTICS_QUERY_NODE, D3DKMT_QUERYSTATISTICS_QUERY_NODE2,
    D3DKMT_QUERYSTATISTICS_QUERY_PROCESS_SEGMENT_GROUP2, D3DKMT_QUERYSTATISTICS_QUERY_SEGMENT,
    D3DKMT_QUERYSTATISTICS_QUERY_SEGMENT_GROUP_USAGE, D3DKMT_QUERYSTATISTICS_QUERY_SEGMENT_USAGE,
    D3DKMT_QUERYSTATISTICS_QUERY_SEGMENT2, D3DKMT_QUERYSTATISTICS_TYPE as Type, D3DKMT_QUERYVIDEOMEMORYINFO, HANDLE,
};

const LOCAL: D3DKMT_MEMORY_SEGMENT_GROUP = D3DKMT_MEMORY_SEGMENT_GROUP::D3DKMT_MEMORY_SEGMENT_GROUP_LOCAL;
const NON_LOCAL: D3DKMT_MEMORY_SEGMENT_GROUP = D3DKMT_MEMORY_SEGMENT_GROUP::D3DKMT_MEMORY_SEGMENT_GROUP_NON_LOCAL;
const INVALID: Denied = Denied(STATUS_INVALID_PARAMETER);
const NOBODY: HANDLE = std::ptr::null_mut();

/// The monitor's handle to the process of `raw`.
fn handle(monitor: &Monitor, raw: &Raw, queries: bool) -> HANDLE {
    let rights = ProcessRights { query: queries, set: false };
    std::ptr::without_provenance_mut(monitor.process().open_process(&raw.process, rights) as usize)
}

pub(super) fn counts(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let monitor = Monitor::open(&scene.world.os, scene.adapter())?;
        let caps = scene.adapter().caps().context("caps")?;
        for kind in [Type::D3DKMT_QUERYSTATISTICS_ADAPTER, Type::D3DKMT_QUERYSTATISTICS_ADAPTER2] {
            let told = monitor.statistics(kind, NOBODY, |_| ()).context("adapter")?;
            let told = told.QueryResult.AdapterInformation();
            let counted = (told.NbSegments as usize, told.NodeCount as usize, told.TdrDetectedCount);
            same("segments, nodes, timeouts", counted, (caps.segments.len(), caps.nodes.len(), 0))?;
        }
        let (segments, nodes) = (caps.segments.len() as u32, caps.nodes.len() as u32);
        for index in 0..=segments {
            let wanted = D3DKMT_QUERYSTATISTICS_QUERY_SEGMENT { SegmentId: index };
            let kind = Type::D3DKMT_QUERYSTATISTICS_SEGMENT;
            let first = monitor.statistics(kind, NOBODY, |record| record.set_QuerySegment(wanted));
            // CAST: a handful.
            let wanted = D3DKMT_QUERYSTATISTICS_QUERY_SEGMENT2 { PhysicalAdapterIndex: 0, SegmentId: index as u16 };
            let kind = Type::D3DKMT_QUERYSTATISTICS_SEGMENT2;
            let later = monitor.statistics(kind, NOBODY, |record| record.set_QuerySegment2(wanted));
            if index == segments {
                same("a segment that there is not", (first.err(), later.err()), (Some(INVALID), Some(INVALID)))?;
                continue;
            }
            for told in [first.context("segment")?, later.context("the later form")?] {
                let told = told.QueryResult.SegmentInformation();
                let known = &caps.segments[index as usize];
                same("its size", told.CommitLimit, known.size())?;
                same("whether it is an aperture", told.Aperture != 0, known.is_aperture())?;
            }
        }
        for node in 0..=nodes {
            let wanted = D3DKMT_QUERYSTATISTICS_QUERY_NODE { NodeId: node };
            let kind = Type::D3DKMT_QUERYSTATISTICS_NODE;
            let first = monitor.statistics(kind, NOBODY, |record| record.set_QueryNode(wanted)).map(|_| ());
            // CAST: three.
            let wanted = D3DKMT_QUERYSTATISTICS_QUERY_NODE2 { PhysicalAdapterIndex: 0, NodeOrdinal: node as u16 };
            let kind = Type::D3DKMT_QUERYSTATISTICS_NODE2;
            let later = monitor.statistics(kind, NOBODY, |record| record.set_QueryNode2(wanted)).map(|_| ());
            let answer = if node == nodes { Err(INVALID) } else { Ok(()) };
            same("a node, by both forms", (first, later), (answer, answer))?;
        }
        let other = D3DKMT_QUERYSTATISTICS_QUERY_NODE2 { PhysicalAdapterIndex: 1, NodeOrdinal: 0 };
        let kind = Type::D3DKMT_QUERYSTATISTICS_NODE2;
        let told = monitor.statistics(kind, NOBODY, |record| record.set_QueryNode2(other)).map(|_| ());
        same("a physical adapter that there is not", told, Err(INVALID))?;
        for kind in [Type::D3DKMT_QUERYSTATISTICS_VIDPNSOURCE, Type(20), Type(-1)] {
            let told = monitor.statistics(kind, NOBODY, |_| ()).map(|_| ());
            same("a type without an answer", (kind, told), (kind, Err(INVALID)))?;
        }
        let told = monitor.statistics(Type::D3DKMT_QUERYSTATISTICS_PROCESS, NOBODY, |_| ()).map(|_| ());
        same("a process that nothing leads to", told, Err(Denied(STATUS_INVALID_HANDLE)))
    })
}

/// Bytes that a process has in each segment, and all together.
fn in_segments(monitor: &Monitor, process: HANDLE, count: u32) -> Result<Vec<(u64, u64)>> {
    let ask = |index| {
        let wanted = D3DKMT_QUERYSTATISTICS_QUERY_SEGMENT { SegmentId: index };
        let kind = Type::D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT;
        let own = monitor.statistics(kind, process, |record| record.set_QueryProcessSegment(wanted))?;
        let kind = Type::D3DKMT_QUERYSTATISTICS_SEGMENT;
        let all = monitor.statistics(kind, NOBODY, |record| record.set_QuerySegment(wanted))?;
        Ok((
            own.QueryResult.ProcessSegmentInformation().BytesCommitted,
            all.QueryResult.SegmentInformation().BytesResident,
        ))
    };
    (0..count).map(ask).collect()
}

pub(super) fn memory(stage: &Stage) -> Played {
    const SIZE: u64 = 1 << 20;
    stage.play(Setup::default(), |scene| {
        let monitor = Monitor::open(&scene.world.os, scene.adapter())?;
        let (user, other) = (raw(scene)?, raw(scene)?);
        let (process, idle) = (handle(&monitor, &user, true), handle(&monitor, &other, true));
        let room = Room::new(&user)?;
        let caps = scene.adapter().caps().context("caps")?;
        let local = caps.segments.iter().position(|segment| !segment.is_aperture()).context("no local segment")?;
        let count = caps.segments.len() as u32;
        let before = in_segments(&monitor, process, count)?;
        let budget = monitor.memory(process, LOCAL).context("local memory")?;
        same("the budget", budget.Budget, caps.segments[local].size())?;
        let allocation = room.create(allocation_kind::LOCAL, SIZE).context("allocation")?;
        room.make_resident(scene, allocation)?;
        let mut now = in_segments(&monitor, process, count)?;
        let grown = (now[local].0 - before[local].0, now[local].1 - before[local].1);
        same("what it has in the local segment, and all have", grown, (SIZE, SIZE))?;
        let elsewhere = |all: &[(u64, u64)]| -> u64 {
            all.iter().enumerate().filter(|(at, _)| *at != local).map(|(_, (own, _))| *own).sum()
        };
        same("what it has in others", elsewhere(&now), elsewhere(&before))?;
        let usage = monitor.memory(process, LOCAL).context("local memory")?.CurrentUsage;
        same("its usage", usage, budget.CurrentUsage + SIZE)?;
        // The other ways to the same numbers.
        let own = D3DKMT_QUERYSTATISTICS_QUERY_PROCESS_SEGMENT_GROUP2::zeroed();
        let kind = Type::D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT_GROUP2;
        let own =
            monitor.statistics(kind, process, |record| record.set_QueryProcessSegmentGroup2(own)).context("group")?;
        let own = own.QueryResult.ProcessSegmentGroupInformation();
        same("its budget and usage, as a group", (own.Budget, own.Usage), (budget.Budget, usage))?;
        let all = D3DKMT_QUERYSTATISTICS_QUERY_SEGMENT_GROUP_USAGE::zeroed();
        let kind = Type::D3DKMT_QUERYSTATISTICS_SEGMENT_GROUP_USAGE;
        let all = monitor.statistics(kind, NOBODY, |record| record.set_QuerySegmentGroupUsage(all)).context("usage")?;
        let all = all.QueryResult.SegmentGroupUsageInformation();
        same(
            "what all have of the group",
            (all.AllocatedBytes, all.AllocatedBytes + all.FreeBytes),
            (now[local].1, budget.Budget),
        )?;
        // CAST: a handful.
        let one = D3DKMT_QUERYSTATISTICS_QUERY_SEGMENT_USAGE { PhysicalAdapterIndex: 0, SegmentId: local as u16 };
        let kind = Type::D3DKMT_QUERYSTATISTICS_SEGMENT_USAGE;
        let one = monitor.statistics(kind, NOBODY, |record| record.set_QuerySegmentUsage(one)).context("usage")?;
        same("what all have of the segment", one.QueryResult.SegmentUsageInformation().AllocatedBytes, now[local].1)?;
        let idle_has = (in_segments(&monitor, idle, count)?[local].0, monitor.memory(idle, LOCAL)?.CurrentUsage);
        same("what a process has that made nothing", idle_has, (0, 0))?;
        let system = monitor.memory(process, NON_LOCAL).context("the system's memory")?.CurrentUsage;
        let memory = room.memory(scene, SIZE)?;
        let filled = in_segments(&monitor, process, count)?;
        ensure!(elsewhere(&filled) >= elsewhere(&before) + SIZE, "the system's memory is in no segment: {filled:?}");
        let with = monitor.memory(process, NON_LOCAL).context("the system's memory")?.CurrentUsage;
        same("the system's memory that it has", with, system + SIZE)?;
        room.destroy(memory.handle).context("destroy")?;
        room.evict(allocation)?;
        room.destroy(allocation).context("destroy")?;
        scene.until("its memory is given back", || {
            now = in_segments(&monitor, process, count)?;
            Ok(now[local].0 == before[local].0)
        })
    })
}

pub(super) fn running_time(stage: &Stage) -> Played {
    for rung in 0..=3 {
        let setup = Setup::default().setting("MaxRung", rung);
        stage.play(setup, runs).with_context(|| format!("rung {rung}"))?;
    }
    Ok(())
}

/// A process works until an engine has run for it for a while; another one does nothing.
fn runs(scene: &Scene) -> Played {
    const WHILE: u64 = 10_000;
    let monitor = Monitor::open(&scene.world.os, scene.adapter())?;
    let (busy, idle) = (scene.process("busy")?, raw(scene)?);
    let open = |raw: &Raw| handle(&monitor, raw, true);
    let process = open(&Raw::open(&busy.process, scene.adapter().luid())?);
    let nothing = open(&idle);
    let nodes = scene.adapter().caps().context("caps")?.nodes.len() as u32;
    let of = |process: Option<HANDLE>| -> Result<Vec<(u64, u32)>, Denied> {
        (0..nodes).map(|node| monitor.engine(node, process)).collect()
    };
    let device = busy.open()?.device()?;
    let probe = GpuReader::new(&device)?;
    let at = probe.memory.gpu_va()? + 64;
    let mut last = of(Some(process))?;
    scene.until("running time", || {
        probe.read(at)?;
        let now = of(Some(process))?;
        ensure!(now.iter().zip(&last).all(|(now, last)| now >= last), "it went back: {now:?} behind {last:?}");
        last = now;
        Ok(last.iter().any(|(time, turns)| *time >= WHILE && *turns != 0))
    })?;
    // In this order, since time goes on: no process has more than all together.
    let (one, all) = (of(Some(process))?, of(None)?);
    ensure!(one.iter().zip(&all).all(|(one, all)| one.0 <= all.0), "{one:?} of {all:?}");
    same("what ran for a process that did nothing", of(Some(nothing))?, vec![(0, 0); nodes as usize])
}

pub(super) fn of_others(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let monitor = Monitor::open(&scene.world.os, scene.adapter())?;
        let user = raw(scene)?;
        let ask = |process: HANDLE, group| monitor.memory(process, group).map(|_| ());
        same("its own", ask(NOBODY, LOCAL), Ok(()))?;
        same("another's", ask(handle(&monitor, &user, true), NON_LOCAL), Ok(()))?;
        let denied = ask(handle(&monitor, &user, false), LOCAL);
        same("without PROCESS_QUERY_INFORMATION", denied, Err(Denied(STATUS_ACCESS_DENIED)))?;
        let bad = std::ptr::without_provenance_mut(0xDEAD_BEEC);
        same("a handle that leads nowhere", ask(bad, LOCAL), Err(Denied(STATUS_INVALID_HANDLE)))?;
        same("a group that there is not", ask(NOBODY, D3DKMT_MEMORY_SEGMENT_GROUP(2)), Err(INVALID))?;
        let mut record = D3DKMT_QUERYVIDEOMEMORYINFO::zeroed();
        (record.hAdapter, record.PhysicalAdapterIndex) = (user.adapter, 1);
        let status = user.call(user.thunks.D3DKMTQueryVideoMemoryInfo, &mut record);
        same("a physical adapter that there is not", status, STATUS_INVALID_PARAMETER)?;
        let mut record = D3DKMT_QUERYVIDEOMEMORYINFO::zeroed();
        record.hAdapter = 0x4000_FF40;
        let status = user.call(user.thunks.D3DKMTQueryVideoMemoryInfo, &mut record);
        same("an adapter that there is not", status, STATUS_INVALID_PARAMETER)
    })
}
