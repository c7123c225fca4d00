//! Traces of fences, whose logs an interrupt has read, and what a driver and a process are refused.

use super::handle;
use crate::demo::history::Source;
use crate::demo::play::Lane;
use crate::scenario::client::until_idle;
use crate::scenario::db::{RingQueue, Room, raw};
use crate::scenario::stage::PATIENCE;
use crate::scenario::{
    NativeFence, Played, Raw, Scenario, Scene, Setup, Stage, native_fence_log_packet, native_fence_log_records,
    native_fence_logs, same,
};
use crate::timeline::{SpanKind, Timeline, page, perfetto};
use anyhow::{Context, ensure};
use dxgkrnl_model::initiative::LogBuffer;
use gpu_wire::GpuVa;
use gpu_wire::packet::{Encoded, log_operation};
use umd_core::ffi::types::FP_KIND_SYSTEM;
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_NOT_SUPPORTED, STATUS_SUCCESS};
use wddm_abi::{D3DKMT_GETNATIVEFENCELOGDETAIL, DXGK_NATIVE_FENCE_LOG_TYPE, Plain};

const OVERRUN: &str = "Native GPU fence objects, Log buffer overrun is permitted";

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "LB-19",
        title: "overrun under tracing: marked in the timeline, a larger buffer, no overrun any more",
        source: OVERRUN,
        play: overrun,
    },
    Scenario {
        id: "LB-20",
        title: "an array of fences: the logs of their device are read",
        source: "Native GPU fence objects, Future hardware requirements",
        play: of_the_device,
    },
    Scenario {
        id: "LB-21",
        title: "an optimized interrupt without a queue: the logs of the engine are read",
        source: "DXGKARGCB_NOTIFY_INTERRUPT_DATA, NativeFenceSignaled.hHWQueue",
        play: of_the_engine,
    },
    Scenario {
        id: "LB-22",
        title: "a log of a type that does not exist is refused, and the logs stay",
        source: "Native GPU fence objects, Optional and mandatory logging",
        play: unknown_types,
    },
    Scenario {
        id: "LB-23",
        title: "D3DKMTGetNativeFenceLogDetail is refused",
        source: "D3DKMTGetNativeFenceLogDetail (deprecated)",
        play: detail,
    },
];

/// The log of signals of the only queue.
fn signals(scene: &Scene) -> anyhow::Result<LogBuffer> {
    let all = scene.world.os.fence_logs(scene.adapter());
    all.into_iter().find(|log| !log.is_wait_log).context("a log of signals")
}

fn overrun(stage: &Stage) -> Played {
    const MANY: u64 = 200;
    const LATER: u64 = 150;
    for optimized in [0, 1] {
        let setup = Setup::default()
            .setting("OptimizedInterrupt", optimized)
            .setting("MapToGpuSystemProcess", 1)
            .windows(|windows| windows.traced_log_pages = 0);
        stage.play(setup, |scene| {
            let os = &scene.world.os;
            let user = scene.process("client")?;
            let adapter = user.open()?;
            let device = adapter.device()?;
            let begun = os.kernel().query_performance_counter();
            let queue = device.queue(0, 64 << 10, 0, 1024)?;
            let (early, quiet) = (device.fence(0, 0)?, device.fence(0, 0)?);
            os.set_fence_tracing(true);
            let first = signals(scene)?;
            same("entries of the first", first.entries, 84)?;
            std::thread::scope(|scope| -> Played {
                let waiter = scope.spawn(|| early.wait(1, PATIENCE));
                scene.until("the waiter", || Ok(scene.calls("DxgkDdiUpdateMonitoredValues") > 0))?;
                queue.run(|list| {
                    list.signal(&early, 1)?;
                    (1..=MANY).try_for_each(|value| list.signal(&quiet, value))
                })?;
                until_idle(scene, &queue)?;
                waiter.join().map_err(|_| anyhow::anyhow!("the waiter panicked"))??;
                Ok(())
            })?;
            let report = os.report();
            ensure!(report.counts.log_overruns >= 1, "no overrun was seen");
            ensure!(!report.losses.is_empty(), "the loss is not marked");
            let lost: u64 = report.losses.iter().map(|loss| loss.lost).sum();
            // All that was signaled, and the progress fence.
            same("entries, read or lost", lost + report.log.len() as u64, MANY + 2)?;
            for loss in &report.losses {
                let behind = report.log.get(loss.at).context("an entry behind the loss")?;
                ensure!(loss.before == behind.end && loss.after <= loss.before, "{loss:?}, {behind:?}");
            }
            drawn(&report, begun, &user.process.nt().id(), &queue)?;

            scene.until("a larger buffer", || Ok(signals(scene)?.entries > 84))?;
            let larger = signals(scene)?;
            ensure!(larger.cpu != first.cpu && larger.gpu != 0 && larger.system != 0, "{first:?}, {larger:?}");
            let overruns = os.counts().log_overruns;
            queue.run(|list| (1..=LATER).try_for_each(|value| list.signal(&quiet, MANY + value)))?;
            queue.wait(0, PATIENCE)?;
            let found: Vec<_> =
                native_fence_log_records(scene, handle(&quiet)?, false).iter().map(|record| record.value).collect();
            ensure!(found.ends_with(&(MANY + 1..=MANY + LATER).collect::<Vec<_>>()), "{found:?}");
            same("overruns of the larger one", os.counts().log_overruns, overruns)?;
            // The GPU sees all of its pages.
            let now = signals(scene)?;
            ensure!(now.cpu == larger.cpu && now.index > 84, "{now:?}");
            let bytes = 40 + u64::from(now.entries) * 48;
            ensure!(bytes > 4096, "one page");
            let copy = device.allocate(FP_KIND_SYSTEM, bytes.next_multiple_of(4096), 0)?;
            let to = copy.gpu_va()?;
            queue.run(|list| list.copy(now.gpu, to, bytes.next_multiple_of(8)))?;
            queue.wait(0, PATIENCE)?;
            // The last entry before the copy was the progress fence's.
            let last = u64::from(now.index) - 2;
            let value = copy.read_u64(40 + last * 48)?;
            ensure!(40 + last * 48 > 4096, "entry {last} is in the first page");
            same("the last signal, as the GPU sees it", value, MANY + LATER)?;
            os.set_fence_tracing(false);
            drop(queue);
            ensure!(scene.evaluations("DXG-LOG-STALE") >= 2, "the old buffers were not looked at");
            Ok(())
        })?;
    }
    Ok(())
}

/// The timeline shows the gap, as a page and as a trace.
fn drawn(report: &dxgkrnl_model::report::Report, begin: u64, process: &u64, queue: &crate::client::Queue) -> Played {
    let info = queue.info()?;
    let lane = Source::new(report, &[], begin).lane(&Lane {
        process: *process,
        who: "A",
        role: "signals",
        node: info.node,
        handle: info.handle,
        progress_fence: info.progress_fence,
        trace: queue.trace()?.0,
        counters: queue.counters()?,
    });
    let gaps: Vec<_> = lane.spans.iter().filter(|span| span.kind == SpanKind::Lost).cloned().collect();
    same("gaps", gaps.len(), report.losses.len())?;
    let inside = |at: f64| gaps.iter().any(|gap| gap.from < at && at < gap.to);
    ensure!(!lane.marks.iter().any(|mark| mark.detail.starts_with("progress = ") && inside(mark.at)), "{gaps:?}");
    let timeline = Timeline { lanes: vec![lane], ..Timeline::default() };
    ensure!(page(&timeline).contains("events lost"), "the page does not say it");
    let text = perfetto(&timeline).to_string();
    ensure!(text.contains("events lost") && text.contains("\"lost\""), "the trace does not say it");
    Ok(())
}

/// Signals with a log entry, and waits until the queue is done, by looking.
fn logged(scene: &Scene, queue: &RingQueue<'_>, fence: NativeFence, value: u64) -> Played {
    let log = native_fence_log_packet(fence.handle, log_operation::SIGNAL_EXECUTED, value, 0);
    let progress = queue.submit_through(&[Encoded::fence_signal(GpuVa(fence.gpu), value), log])?;
    queue.wait(scene, progress)
}

/// A wait for `value` that `signal` must end; the logs that were flushed, and how often every fence was looked at,
/// until `flushed` logs are.
fn woken(
    scene: &Scene,
    raw: &Raw,
    device: u32,
    fence: NativeFence,
    value: u64,
    flushed: u64,
    signal: impl FnOnce() -> Played,
) -> anyhow::Result<(u64, u64)> {
    let (event, handle) = raw.event();
    raw.wait_cpu(device, &[(fence.handle, value)], false, Some(handle))?;
    let before = scene.world.os.counts();
    signal()?;
    ensure!(raw.wait_event(&event, PATIENCE.unwrap_or_default()), "{value} woke nobody");
    let now = || scene.world.os.counts();
    scene.until("the reading of the logs", || Ok(now().logs_flushed >= before.logs_flushed + flushed))?;
    raw.close(handle);
    Ok((now().logs_flushed - before.logs_flushed, now().fence_scans - before.fence_scans))
}

fn of_the_device(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let (here, elsewhere) = (Room::new(&raw)?, Room::new(&raw)?);
        let queue = RingQueue::connected(scene, &here, 0, 4096)?;
        let sibling = RingQueue::connected(scene, &here, 1, 4096)?;
        let stranger = RingQueue::connected(scene, &elsewhere, 0, 4096)?;
        let (fence, quiet) = (raw.native_fence(here.device, 0)?, raw.native_fence(here.device, 0)?);
        let foreign = raw.native_fence(elsewhere.device, 0)?;
        logged(scene, &sibling, quiet, 1)?;
        logged(scene, &stranger, foreign, 1)?;
        let read = woken(scene, &raw, here.device, fence, 1, 2, || logged(scene, &queue, fence, 1))?;
        same("logs of the device, scans", read, (2, 0))?;
        // Nothing new with its sibling; the other device's is still there.
        let read = woken(scene, &raw, here.device, fence, 2, 1, || logged(scene, &queue, fence, 2))?;
        same("logs with news, scans", read, (1, 0))?;
        let read = woken(scene, &raw, elsewhere.device, foreign, 2, 1, || logged(scene, &stranger, foreign, 2))?;
        same("the other device's", read, (1, 0))?;
        let log = scene.world.os.report().log;
        let order: Vec<_> = log.iter().map(|record| (record.fence, record.value)).collect();
        same(
            "entries of the other device, in the end",
            order.ends_with(&[(foreign.handle, 1), (foreign.handle, 2)]),
            true,
        )
    })
}

fn of_the_engine(stage: &Stage) -> Played {
    let setup = Setup::default().setting("OptimizedInterrupt", 1).setting("NullFenceArray", 1);
    stage.play(setup, |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        let beside = RingQueue::connected(scene, &room, 0, 4096)?;
        let elsewhere = RingQueue::connected(scene, &room, 1, 4096)?;
        let fence = raw.native_fence(room.device, 0)?;
        let quiet = [raw.native_fence(room.device, 0)?, raw.native_fence(room.device, 0)?];
        logged(scene, &beside, quiet[0], 1)?;
        logged(scene, &elsewhere, quiet[1], 1)?;
        let read = woken(scene, &raw, room.device, fence, 1, 2, || logged(scene, &queue, fence, 1))?;
        same("logs of the engine, scans", read, (2, 0))?;
        same(
            "a queue named",
            crate::scenario::client::native_interrupts(scene).iter().any(|one| one.names_queue),
            false,
        )?;
        // A signal that user mode did not log: no log says it, and every fence is looked at.
        let read = woken(scene, &raw, room.device, fence, 2, 0, || {
            let progress = queue.submit_through(&[Encoded::fence_signal(GpuVa(fence.gpu), 2)])?;
            queue.wait(scene, progress)
        })?;
        same("logs without news, scans", read, (0, 1))?;
        let left = scene.world.os.report().log;
        same("the other engine's, in the end", left.last().map(|record| record.fence), Some(quiet[1].handle))
    })
}

fn unknown_types(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let os = &scene.world.os;
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        let fence = raw.native_fence(room.device, 0)?;
        let before = native_fence_logs(scene, queue.queue.handle)?;
        let offer = |kind: i32| os.offer_fence_log(scene.adapter(), before[0].driver, DXGK_NATIVE_FENCE_LOG_TYPE(kind));
        for kind in [0, 3, 4, 0x100, i32::MAX, -1] {
            same(&format!("type {kind}"), offer(kind), Some(STATUS_INVALID_PARAMETER))?;
        }
        let places = |logs: [LogBuffer; 2]| logs.map(|log| (log.cpu, log.entries));
        same("the logs", places(native_fence_logs(scene, queue.queue.handle)?), places(before))?;
        logged(scene, &queue, fence, 1)?;
        same("entries", native_fence_logs(scene, queue.queue.handle)?.map(|log| log.index), [0, 1])?;
        // Those that exist are taken at any time.
        for kind in [1, 2] {
            same(&format!("type {kind}"), offer(kind), Some(STATUS_SUCCESS))?;
        }
        ensure!(places(native_fence_logs(scene, queue.queue.handle)?) != places(before), "the same logs as before");
        logged(scene, &queue, fence, 2)?;
        same("entries then", native_fence_log_records(scene, fence.handle, false).len(), 2)
    })
}

fn detail(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        let before = (scene.adapter().ddi_calls(), native_fence_logs(scene, queue.queue.handle)?);
        let mut record = D3DKMT_GETNATIVEFENCELOGDETAIL::zeroed();
        record.as_bytes_mut().fill(0xA5);
        record.hHwQueue = queue.queue.handle;
        let given = record.as_bytes().to_vec();
        same("status", raw.call(raw.thunks.D3DKMTGetNativeFenceLogDetail, &mut record), STATUS_NOT_SUPPORTED)?;
        ensure!(record.as_bytes() == given, "the record was written");
        let after = (scene.adapter().ddi_calls(), native_fence_logs(scene, queue.queue.handle)?);
        same("calls of the driver, logs", after == before, true)
    })
}
