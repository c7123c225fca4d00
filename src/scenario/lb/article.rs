//! The article's two examples, step by step.

use crate::client::Queue;
use crate::demo::history::Source;
use crate::demo::play::Lane;
use crate::scenario::client::native_interrupts;
use crate::scenario::db::{RingQueue, Room, raw};
use crate::scenario::stage::PATIENCE;
use crate::scenario::{
    Played, Scenario, Setup, Stage, native_fence_log_packet, native_fence_log_records, native_fence_logs, same,
};
use crate::timeline::{MarkKind, SpanKind};
use anyhow::{Context, Result, ensure};
use gpu_wire::GpuVa;
use gpu_wire::packet::{Encoded, log_operation};
use umd_core::ffi::types::{FP_KIND_SYSTEM, FP_TRACE_SIGNAL_QUEUED, FP_TRACE_WAIT_QUEUED, FpTraceEvent};
use wddm_abi::DXGK_NATIVE_FENCE_LOG_OPERATION as Operation;

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "LB-17",
        title: "the article's two queues: a wait on A, its signal on B, four times on one timeline",
        source: "Native GPU fence objects, Log buffer mechanism and CPU timestamps of fence-queued operations",
        play: two_queues,
    },
    Scenario {
        id: "LB-18",
        title: "the article's E1 to E4: one interrupt, four entries",
        source: "Native GPU fence objects, Optimized native fence signaled interrupt, example",
        play: four_entries,
    },
];

/// Ticks of the performance counter in a second.
const FREQUENCY: u64 = 10_000_000;
/// What two clocks that were read one after the other may differ by: 50 us.
const SLACK: u64 = 500;

/// A queue's events as its user-mode driver kept them.
fn traced(queue: &Queue) -> Result<Vec<FpTraceEvent>> {
    let (events, lost) = queue.trace()?;
    same("events lost", lost, 0)?;
    Ok(events)
}

fn two_queues(stage: &Stage) -> Played {
    const V1: u64 = 42;
    stage.play(Setup::default(), |scene| {
        let user = scene.process("client")?;
        let adapter = user.open()?;
        let device = adapter.device()?;
        let (a, b, beside) =
            (device.queue(0, 4096, 0, 64)?, device.queue(1, 4096, 0, 64)?, device.queue(0, 4096, 0, 0)?);
        let (fence, memory) = (device.fence(0, 0)?, device.allocate(FP_KIND_SYSTEM, 4096, 0)?);
        let (f, at) = (fence.info()?.handle, memory.gpu_va()?);
        let clock = || scene.world.os.kernel().query_performance_counter();
        let begun = clock();
        a.run(|list| {
            list.store(at, 1)?;
            list.wait(&fence, V1)
        })?;
        // A has seen the wait when its engine runs another queue.
        scene.until("the list", || Ok(memory.read_u64(0)? == 1))?;
        beside.run(|list| list.nop(8))?;
        beside.wait(0, PATIENCE)?;
        let between = clock();
        b.run(|list| list.signal(&fence, V1))?;
        a.wait(0, PATIENCE)?;
        b.wait(0, PATIENCE)?;
        let ended = clock();

        // The entries, each in the log that it belongs to and in no other.
        let (waits, signals) = (native_fence_log_records(scene, f, true), native_fence_log_records(scene, f, false));
        same("entries", (waits.len(), signals.len()), (1, 1))?;
        let (wait, signal) = (waits[0], signals[0]);
        same("the signal", (signal.queue, signal.fence, signal.value), (b.info()?.handle, f, V1))?;
        let executed = Operation::DXGK_NATIVE_FENCE_LOG_OPERATION_SIGNAL_EXECUTED;
        same("the signal's operation", signal.operation(), Some(executed))?;
        same("the wait", (wait.queue, wait.fence, wait.value), (a.info()?.handle, f, V1))?;
        let unblocked = Operation::DXGK_NATIVE_FENCE_LOG_OPERATION_WAIT_UNBLOCKED;
        same("the wait's operation", wait.operation(), Some(unblocked))?;
        ensure!(signal.end != 0 && wait.observed != 0, "{signal:?}, {wait:?}");
        ensure!(wait.observed < signal.end && signal.end <= wait.end, "{signal:?}, {wait:?}");

        // What the user-mode driver queued when, by the processor's clock.
        let (of_a, of_b) = (traced(&a)?, traced(&b)?);
        let event = |events: &[FpTraceEvent], kind| {
            let mine = |event: &&FpTraceEvent| (event.kind, event.fence, event.value) == (kind, f, V1);
            events.iter().find(mine).copied().context("a queued event")
        };
        let (t1, t2) = (event(&of_a, FP_TRACE_WAIT_QUEUED)?, event(&of_b, FP_TRACE_SIGNAL_QUEUED)?);
        ensure!(begun <= t1.recorded && t1.recorded <= t1.queued && t1.queued <= between, "{begun}, {between}");
        ensure!(between <= t2.recorded && t2.recorded <= t2.queued && t2.queued <= ended, "{between}, {ended}");

        // Every queued event has its entry, and on one clock it was queued before it ended.
        let report = scene.world.os.report();
        let timed = report.timeline(FREQUENCY);
        for (queue, events) in [(&a, &of_a), (&b, &of_b)] {
            let number = queue.info()?.handle;
            ensure!(events.len() >= 2, "no progress fence among {} events", events.len());
            for event in events {
                let is_wait = event.kind == FP_TRACE_WAIT_QUEUED;
                let entries: Vec<_> = timed
                    .iter()
                    .filter(|timed| {
                        let record = &timed.record;
                        (record.queue, record.is_wait_log) == (number, is_wait)
                            && (record.fence, record.value) == (event.fence, event.value)
                    })
                    .collect();
                same("entries of a queued event", entries.len(), 1)?;
                let end = entries[0].cpu_end;
                ensure!(event.queued <= end + SLACK && end <= ended + SLACK, "queued at {}, {end}", event.queued);
            }
        }

        // The picture of it.
        let process = user.process.nt().id();
        let names = [(process, f, "F")];
        let source = Source::new(&report, &names, begun);
        let lane = |queue: &Queue, role, trace: &[FpTraceEvent]| -> Result<_> {
            let info = queue.info()?;
            let (node, handle, progress_fence) = (info.node, info.handle, info.progress_fence);
            let counters = queue.counters()?;
            Ok(source.lane(&Lane {
                process,
                who: "A",
                role,
                node,
                handle,
                progress_fence,
                trace: trace.into(),
                counters,
            }))
        };
        let (row_a, row_b) = (lane(&a, "waits", &of_a)?, lane(&b, "signals", &of_b)?);
        let waited = row_a.spans.iter().find(|span| span.kind == SpanKind::Wait).context("the wait in the picture")?;
        let mark = |row: &crate::timeline::Lane, kind: MarkKind, text: &str| {
            let found = row.marks.iter().find(|mark| mark.kind == kind && mark.detail.contains(text));
            found.map(|mark| mark.at).with_context(|| format!("{text} in the picture"))
        };
        let queued = (mark(&row_a, MarkKind::Queued, "wait for F")?, mark(&row_b, MarkKind::Queued, "signal of F")?);
        let signaled = mark(&row_b, MarkKind::Signal, "F = 42")?;
        let slack = 50.0;
        ensure!(queued.0 <= waited.from + slack && waited.from < waited.to, "{queued:?}, {waited:?}");
        ensure!(queued.1 <= signaled + slack && signaled <= waited.to + slack, "{queued:?}, {signaled}, {waited:?}");
        Ok(())
    })
}

fn four_entries(stage: &Stage) -> Played {
    (0..2).try_for_each(|node| four_entries_of(stage, node))
}

fn four_entries_of(stage: &Stage, node: u32) -> Played {
    const V: [u64; 3] = [11, 12, 13];
    stage.play(Setup::default().setting("OptimizedInterrupt", 1), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let a = RingQueue::connected(scene, &room, node, 4096)?;
        let other = RingQueue::connected(scene, &room, node, 4096)?;
        let (f1, f2, f3) =
            (raw.native_fence(room.device, 0)?, raw.native_fence(room.device, 0)?, raw.native_fence(room.device, 0)?);
        let entry = |queue: &RingQueue<'_>, fence: crate::scenario::NativeFence, value, hint| -> Played {
            let log = native_fence_log_packet(fence.handle, log_operation::SIGNAL_EXECUTED, value, hint);
            let progress = queue.submit_through(&[Encoded::fence_signal(GpuVa(fence.gpu), value), log])?;
            queue.wait(scene, progress)
        };
        // News that the interrupt is not about.
        entry(&other, f3, 1, 0)?;
        // E1, E2, E3: nobody waits.
        entry(&a, f1, V[0], 0)?;
        entry(&a, f1, V[1], 1)?;
        entry(&a, f2, V[2], 2)?;
        same("interrupts for E1 to E3", native_interrupts(scene).len(), 0)?;
        // The same value once more can end a wait only if the fence went back meanwhile: the processor signals 0.
        raw.rewind_cpu(room.device, f2.handle, 0)?;
        let (event, handle) = raw.event();
        raw.wait_cpu(room.device, &[(f2.handle, V[2])], false, Some(handle))?;
        let before = scene.world.os.counts();
        // E4.
        entry(&a, f2, V[2], 3)?;
        ensure!(raw.wait_event(&event, PATIENCE.unwrap_or_default()), "E4 woke nobody");
        let interrupts = native_interrupts(scene);
        same("interrupts", interrupts.len(), 1)?;
        let said = &interrupts[0];
        same("node, queue, fences", (said.node, said.names_queue, said.fences.len()), (node, true, 0))?;
        let after = scene.world.os.counts();
        same("logs read", after.logs_flushed - before.logs_flushed, 1)?;
        let scans = |counts: &dxgkrnl_model::report::Counts| (counts.fence_scans, counts.log_scans);
        same("fences looked at without need", scans(&after), scans(&before))?;
        same("entries in A's log", native_fence_logs(scene, a.queue.handle)?[1].index, 4)?;
        let log = scene.world.os.report().log;
        let number = a.queue.handle;
        let first: Vec<_> = log.iter().take(4).map(|record| (record.queue, record.fence, record.value)).collect();
        let wanted = [(f1.handle, V[0]), (f1.handle, V[1]), (f2.handle, V[2]), (f2.handle, V[2])];
        same("what Dxgkrnl read first", first, wanted.map(|(fence, value)| (number, fence, value)).to_vec())?;
        let left: Vec<_> = log.iter().skip(4).map(|record| (record.queue, record.fence)).collect();
        same("what it read when it was asked for the report", left, vec![(other.queue.handle, f3.handle)])?;
        raw.close(handle);
        Ok(())
    })
}
