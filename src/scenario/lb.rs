//! LB: native fence log buffers. Source of all: *Native GPU fence objects*.
//!
//! | file | holds |
//! |---|---|
//! | `lb.rs` | what is logged, and where |
//! | `lb/reading.rs` | flushing, overrun, other buffers, interrupts that name a queue |
//! | `lb/article.rs` | the article's two examples |
//! | `lb/trace.rs` | tracing, whose logs an interrupt has read, refusals |

mod article;
mod reading;
mod trace;

use super::db::{RingQueue, Room, joined, raw};
use super::stage::PATIENCE;
use super::{
    Played, Scenario, Scene, Setup, Stage, client, native_fence_log_packet, native_fence_log_records,
    native_fence_logs, same,
};
use crate::client::{Fence, Queue};
use crate::fuzz::dice::Dice;
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::personality::LogWakes;
use gpu_wire::GpuVa;
use gpu_wire::packet::{Encoded, FaultKind, log_operation};
use gpu_wire::ring::FAULT_KIND;
use umd_core::ffi::types::{FP_KIND_SYSTEM, FP_QUEUE_KERNEL_MODE};
use wddm_abi::DXGK_NATIVE_FENCE_LOG_OPERATION;

pub(super) const CASES: &[Scenario] = &joined::<
    { OWN.len() + reading::CASES.len() + article::CASES.len() + trace::CASES.len() },
>(&[OWN, reading::CASES, article::CASES, trace::CASES]);

const MECHANISM: &str = "Native GPU fence objects, Log buffer mechanism";

const OWN: &[Scenario] = &[
    Scenario { id: "LB-01", title: "two log buffers a queue, for waits and for signals", source: MECHANISM, play: two },
    Scenario { id: "LB-02", title: "the entry of a signal", source: MECHANISM, play: signal },
    Scenario { id: "LB-03", title: "the entry of a wait that stalled", source: MECHANISM, play: stalled },
    Scenario { id: "LB-04", title: "the entry of a wait that did not", source: MECHANISM, play: unstalled },
    Scenario {
        id: "LB-12",
        title: "timestamps never go backwards and agree with DxgkDdiCalibrateGpuClock",
        source: "Native GPU fence objects, Empty or repeated log buffer timestamps",
        play: timestamps,
    },
    Scenario {
        id: "LB-13",
        title: "a log command with a foreign handle, an index out of range, an unknown operation",
        source: MECHANISM,
        play: hostile,
    },
    Scenario {
        id: "LB-15",
        title: "a kernel-mode queue has no log buffers",
        source: "Native GPU fence objects, Native fence log buffer DDIs",
        play: kernel_mode,
    },
    Scenario {
        id: "LB-24",
        title: "whose value is in the logs is woken, where the OS looks at nothing else",
        source: "Native GPU fence objects, Optimized native fence signaled interrupt",
        play: woken_by_entries,
    },
    Scenario {
        id: "LB-16",
        title: "who is woken by a signal finds its entry in the log",
        source: "Native GPU fence objects, Order of operations on GPU when signaling or unblocking a fence",
        play: entry_before_wake,
    },
];

/// User mode's handle of the only queue that has logs.
fn only_queue(scene: &Scene) -> anyhow::Result<u32> {
    let all = scene.world.os.fence_logs(scene.adapter());
    ensure!(all.len() == 2, "{} log buffers", all.len());
    Ok(all[0].queue)
}

fn handle(fence: &Fence) -> anyhow::Result<u32> {
    Ok(fence.info()?.handle)
}

fn two(stage: &Stage) -> Played {
    for system in [0, 1] {
        stage.play(Setup::default().setting("MapToGpuSystemProcess", system), |scene| {
            let raw = raw(scene)?;
            let room = Room::new(&raw)?;
            let queue = room.queue(0, true)?;
            same("calls", scene.calls("DxgkDdiSetNativeFenceLogBuffer"), 2)?;
            let both = native_fence_logs(scene, queue.handle)?;
            for log in both {
                ensure!(log.cpu != 0 && log.gpu != 0, "{log:?} lacks an address");
                same("a system process's address", log.system != 0, system == 1)?;
                ensure!(u64::from(log.entries) * 48 + 40 <= 4096, "{} entries", log.entries);
                same("empty", (log.index, log.wraps), (0, 0))?;
            }
            ensure!(both[0].cpu != both[1].cpu && both[0].gpu != both[1].gpu, "one buffer for both");
            Ok(())
        })?;
    }
    Ok(())
}

fn signal(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let user = scene.process("client")?;
        let adapter = user.open()?;
        let device = adapter.device()?;
        let queue = device.queue(0, 4096, 0, 0)?;
        let fence = device.fence(0, 0)?;
        let number = only_queue(scene)?;
        let before = native_fence_logs(scene, number)?[1];
        queue.run(|list| list.signal(&fence, 77))?;
        queue.wait(0, PATIENCE)?;
        let after = native_fence_logs(scene, number)?[1];
        // The signal, and the one of the progress fence.
        same("entries", after.index, before.index + 2)?;
        let found = native_fence_log_records(scene, handle(&fence)?, false);
        same("records", found.len(), 1)?;
        let record = found[0];
        same("queue, value", (record.queue, record.value), (number, 77))?;
        let executed = DXGK_NATIVE_FENCE_LOG_OPERATION::DXGK_NATIVE_FENCE_LOG_OPERATION_SIGNAL_EXECUTED;
        same("operation", record.operation(), Some(executed))?;
        ensure!(record.end != 0, "no end timestamp");
        same("waits", native_fence_log_records(scene, handle(&fence)?, true), Vec::new())
    })
}

fn stalled(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let user = scene.process("client")?;
        let adapter = user.open()?;
        let device = adapter.device()?;
        let (waiter, signaller) = (device.queue(0, 4096, 0, 0)?, device.queue(1, 4096, 0, 0)?);
        let fence = device.fence(0, 0)?;
        let begun = scene.world.os.calibrate_gpu_clock(scene.adapter(), 0).context("a calibration")?.gpu;
        let (beside, memory) = (device.queue(0, 4096, 0, 0)?, device.allocate(FP_KIND_SYSTEM, 4096, 0)?);
        let at = memory.gpu_va()?;
        waiter.run(|list| {
            list.store(at, 1)?;
            list.wait(&fence, 5)
        })?;
        // Its node has begun the list; when it runs another queue, it has seen the wait.
        scene.until("the list", || Ok(memory.read_u64(0)? == 1))?;
        beside.run(|list| list.nop(8))?;
        beside.wait(0, PATIENCE)?;
        same("nothing yet", native_fence_log_records(scene, handle(&fence)?, true).len(), 0)?;
        signaller.run(|list| list.signal(&fence, 5))?;
        waiter.wait(0, PATIENCE)?;
        let ended = scene.world.os.calibrate_gpu_clock(scene.adapter(), 0).context("a calibration")?.gpu;
        let waits = native_fence_log_records(scene, handle(&fence)?, true);
        let signals = native_fence_log_records(scene, handle(&fence)?, false);
        same("entries", (waits.len(), signals.len()), (1, 1))?;
        let (wait, signal) = (waits[0], signals[0]);
        let unblocked = DXGK_NATIVE_FENCE_LOG_OPERATION::DXGK_NATIVE_FENCE_LOG_OPERATION_WAIT_UNBLOCKED;
        same("value and operation", (wait.value, wait.operation()), (5, Some(unblocked)))?;
        ensure!(begun <= wait.observed && wait.end <= ended, "{wait:?} outside of {begun}..{ended}");
        ensure!(wait.observed < signal.end && wait.observed <= wait.end, "{wait:?}, {signal:?}");
        Ok(())
    })
}

fn unstalled(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let user = scene.process("client")?;
        let adapter = user.open()?;
        let device = adapter.device()?;
        let queue = device.queue(0, 4096, 0, 0)?;
        let fence = device.fence(9, 0)?;
        queue.run(|list| list.wait(&fence, 5))?;
        queue.wait(0, PATIENCE)?;
        let found = native_fence_log_records(scene, handle(&fence)?, true);
        same("entries", found.len(), 1)?;
        let record = found[0];
        let unblocked = DXGK_NATIVE_FENCE_LOG_OPERATION::DXGK_NATIVE_FENCE_LOG_OPERATION_WAIT_UNBLOCKED;
        same("value and operation", (record.value, record.operation()), (5, Some(unblocked)))?;
        ensure!(record.end != 0 && record.observed <= record.end, "{record:?}");
        Ok(())
    })
}

fn timestamps(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let user = scene.process("client")?;
        let adapter = user.open()?;
        let device = adapter.device()?;
        let queues = [device.queue(0, 4096, 0, 0)?, device.queue(0, 4096, 0, 0)?, device.queue(1, 4096, 0, 0)?];
        let fences = [device.fence(0, 0)?, device.fence(0, 0)?, device.fence(0, 0)?];
        let calibrate = || scene.world.os.calibrate_gpu_clock(scene.adapter(), 0).context("a calibration");
        let before = calibrate()?;
        let mut dice = Dice::new(stage.seed());
        let mut values = [0; 3];
        // Each queue signals its own fence, and waits for values that others are to have by then.
        for _ in 0..150 {
            let at = usize::try_from(dice.below(3))?;
            let other = usize::try_from(dice.below(3))?;
            let (mine, theirs) = (values[at] + 1, values[other]);
            queues[at].run(|list| {
                list.wait(&fences[other], theirs)?;
                list.signal(&fences[at], mine)
            })?;
            values[at] = mine;
        }
        for queue in &queues {
            queue.wait(0, PATIENCE)?;
        }
        let after = calibrate()?;
        ensure!(before.gpu < after.gpu && before.cpu < after.cpu, "{before:?}, {after:?}");
        same("frequency", before.frequency, after.frequency)?;
        let mut last = std::collections::BTreeMap::new();
        let log = scene.world.os.report().log;
        ensure!(log.len() >= 300, "{} entries", log.len());
        for record in log {
            let previous = last.entry((record.queue, record.is_wait_log)).or_insert(before.gpu);
            ensure!(record.end >= *previous && record.end <= after.gpu, "{record:?} after {previous}");
            ensure!(record.observed <= record.end, "{record:?}");
            *previous = record.end;
        }
        Ok(())
    })
}

fn hostile(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let victim = RingQueue::connected(scene, &room, 0, 4096)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        let fence = raw.native_fence(room.device, 0)?;
        let executed = log_operation::SIGNAL_EXECUTED;
        let hints = [0xFFFF_FFFF, 84, 0x8000_0000, 12_345];
        for (index, hint) in (0_u32..).zip(hints) {
            let value = u64::from(index) + 1;
            let progress = queue.submit_through(&[
                Encoded::fence_signal(GpuVa(fence.gpu), value),
                native_fence_log_packet(0xDEAD_0000 + index, executed, value, hint),
            ])?;
            queue.wait(scene, progress)?;
        }
        let own = native_fence_logs(scene, queue.queue.handle)?[1];
        same("where the entries are", (own.index, own.wraps), (4, 0))?;
        let others = native_fence_logs(scene, victim.queue.handle)?;
        same("the other queue's logs", others.map(|log| (log.index, log.wraps)), [(0, 0); 2])?;
        let found: Vec<_> =
            (0..4).flat_map(|index| native_fence_log_records(scene, 0xDEAD_0000 + index, false)).collect();
        same("as user mode had it", found.len(), 4)?;
        // The OS wakes by value, whatever the log says.
        let (progress, _) = queue.submit(&[
            Encoded::fence_signal(GpuVa(fence.gpu), 50),
            native_fence_log_packet(0xDEAD_BEEF, executed, 3, 0),
        ])?;
        let waiting = client::block(&raw, room.device, vec![(fence.handle, 50)], false);
        client::returned("a wait", &waiting)?.context("a wait")?;
        queue.wait(scene, progress)?;
        // An operation that the documents do not name, and a log command that belongs to nothing.
        let unknown = [Encoded::fence_signal(GpuVa(fence.gpu), 60), native_fence_log_packet(1, 7, 60, 0)];
        let stray = [native_fence_log_packet(1, executed, 60, 0)];
        for packets in [&unknown[..], &stray[..]] {
            let other_room = Room::new(&raw)?;
            let bad = RingQueue::connected(scene, &other_room, 1, 4096)?;
            bad.submit(packets)?;
            scene.until("the device's error", || Ok(!other_room.is_active()?))?;
            same("fault", raw.load(bad.control.cpu + FAULT_KIND)?, FaultKind::BadLog.raw().into())?;
        }
        let progress = victim.submit_through(&[])?;
        victim.wait(scene, progress)
    })
}

fn kernel_mode(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let user = scene.process("client")?;
        let adapter = user.open()?;
        let device = adapter.device()?;
        let queue: Queue = device.queue(0, 4096, FP_QUEUE_KERNEL_MODE, 0)?;
        let fence = device.fence(0, 0)?;
        let memory = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
        let at = memory.gpu_va()?;
        queue.run(|list| list.signal(&fence, 1))?;
        queue.run(|list| {
            list.wait(&fence, 2)?;
            list.store(at, 3)
        })?;
        fence.wait(1, PATIENCE)?;
        fence.signal(2)?;
        queue.wait(0, PATIENCE)?;
        same("memory", memory.read_u64(0)?, 3)?;
        same("calls", scene.calls("DxgkDdiSetNativeFenceLogBuffer"), 0)?;
        same("logs", scene.world.os.fence_logs(scene.adapter()).len(), 0)?;
        same("entries", scene.world.os.report().log.len(), 0)
    })?;
    if stage.rung() < 2 {
        return Ok(());
    }
    // The other reading: they have two, as every queue has, by which waits end where logs alone do that.
    for (optimized, wakes) in [(0, LogWakes::Values), (1, LogWakes::Values), (1, LogWakes::Entries)] {
        let setup = Setup::default().setting("OptimizedInterrupt", optimized);
        let with_logs = setup.windows(|windows| (windows.kernel_queue_logs, windows.log_wakes) = (true, wakes));
        stage.play(with_logs, |scene| {
            let rig = client::Client::open(scene, "client")?;
            let queue = rig.device.queue(0, 4096, FP_QUEUE_KERNEL_MODE, 0)?;
            let fence = rig.fence(0, true)?;
            same("logs", scene.world.os.fence_logs(scene.adapter()).len(), 2)?;
            for value in 1..20 {
                let waits = rig.wait(&[(&fence, value)], false)?;
                queue.run(|list| list.signal(&fence, value))?;
                waits.comes(&rig, "a signal of a kernel-mode queue")?;
            }
            let entries = || scene.world.os.report().log.into_iter().filter(|entry| !entry.is_wait_log);
            let all = || Ok((1..20).all(|value| entries().any(|entry| entry.value == value)));
            scene.until("an entry of each signal", all)
        })?;
    }
    Ok(())
}

/// Many signals of two queues of one node, whose turns end anywhere; and a fence that is signaled and set back before
/// the OS reads the logs.
fn woken_by_entries(stage: &Stage) -> Played {
    for shadow in [0, 1] {
        let setup = Setup::default().setting("OptimizedInterrupt", 1).setting("ShadowMonitoredValue", shadow);
        stage.play(setup.windows(|windows| windows.log_wakes = LogWakes::Entries), |scene| {
            let rig = client::Client::open(scene, "client")?;
            let queues = [rig.queue(0)?, rig.queue(0)?, rig.queue(1)?];
            let fences = [rig.fence(0, true)?, rig.fence(0, true)?, rig.fence(0, true)?];
            for round in 0..40_u64 {
                let last = (round + 1) * 8;
                let waits: Vec<_> =
                    fences.iter().map(|fence| rig.wait(&[(fence, last - round % 8)], false)).collect::<Result<_>>()?;
                for (queue, fence) in queues.iter().zip(&fences) {
                    queue.run(|list| (round * 8 + 1..=last).try_for_each(|value| list.signal(fence, value)))?;
                }
                for wait in waits {
                    wait.comes(&rig, &format!("round {round}"))?;
                }
            }
            let fence = rig.fence(0, true)?;
            let five = rig.wait(&[(&fence, 5)], false)?;
            queues[0].run(|list| {
                list.signal(&fence, 5)?;
                list.signal(&fence, 0)
            })?;
            five.comes(&rig, "a value that was signaled and set back")
        })?;
    }
    Ok(())
}

fn entry_before_wake(stage: &Stage) -> Played {
    for optimized in [0, 1] {
        stage.play(Setup::default().setting("OptimizedInterrupt", optimized), |scene| {
            let raw = raw(scene)?;
            let room = Room::new(&raw)?;
            let queue = RingQueue::connected(scene, &room, 0, 4096)?;
            let fence = raw.native_fence(room.device, 0)?;
            let (event, handle) = raw.event();
            for value in 1..=50 {
                // The wait is there before the signal, so it is the interrupt that ends it.
                raw.wait_cpu(room.device, &[(fence.handle, value)], false, Some(handle))?;
                let signal = Encoded::fence_signal(GpuVa(fence.gpu), value);
                let log = native_fence_log_packet(
                    fence.handle,
                    log_operation::SIGNAL_EXECUTED,
                    value,
                    u32::try_from(value)? - 1,
                );
                let progress = queue.submit_through(&[signal, log])?;
                ensure!(raw.wait_event(&event, PATIENCE.unwrap_or_default()), "value {value} woke nobody");
                let log = native_fence_logs(scene, queue.queue.handle)?[1];
                let count = u64::from(log.wraps) * u64::from(log.entries) + u64::from(log.index);
                same("entries at the wake-up", count, value)?;
                queue.wait(scene, progress)?;
            }
            raw.close(handle);
            Ok(())
        })?;
    }
    Ok(())
}
