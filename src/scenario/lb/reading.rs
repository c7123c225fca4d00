//! Flushing, overrun, other buffers, interrupts that name a queue.

use super::handle;
use crate::scenario::client::{Client, until_idle};
use crate::scenario::db::{RingQueue, Room, raw};
use crate::scenario::stage::PATIENCE;
use crate::scenario::{Played, Scenario, Setup, Stage, native_fence_log_records, native_fence_logs, same};
use anyhow::{Context, ensure};
use std::sync::atomic::{AtomicBool, Ordering};
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_SUCCESS};

const FLUSH: &str = "Native GPU fence objects, Synchronously updating the native fence log";
const OPTIMIZED: &str = "Native GPU fence objects, Optimized native fence signaled interrupt";

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "LB-06",
        title: "entries are complete when DxgkDdiUpdateNativeFenceLogs has returned",
        source: FLUSH,
        play: flush,
    },
    Scenario {
        id: "LB-07",
        title: "several queues flushed at once, one of them gone",
        source: "DxgkDdiUpdateNativeFenceLogs, Return value",
        play: several,
    },
    Scenario {
        id: "LB-09",
        title: "overrun: seen, marked, and nobody sleeps on",
        source: "Native GPU fence objects, Log buffer overrun is permitted",
        play: overrun,
    },
    Scenario {
        id: "LB-10",
        title: "a new log buffer while the queue runs",
        source: "Native GPU fence objects, Log buffer mechanism (destroy and recreate)",
        play: recreate,
    },
    Scenario {
        id: "LB-14",
        title: "an interrupt that names its queue: one log is read",
        source: OPTIMIZED,
        play: one_log,
    },
];

fn flush(stage: &Stage) -> Played {
    for barriers in [1, 2] {
        stage.play(Setup::default().setting("LogBarriers", barriers), |scene| {
            let user = scene.process("client")?;
            let adapter = user.open()?;
            let device = adapter.device()?;
            let queue = device.queue(0, 64 << 10, 0, 0)?;
            let fence = device.fence(0, 0)?;
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| -> Played {
                // A reader beside the interrupts.
                let reader = scope.spawn(|| {
                    while !done.load(Ordering::Acquire) {
                        let _ = scene.world.os.report();
                    }
                });
                let run = || -> Played {
                    for value in 1..=200 {
                        queue.run(|list| list.signal(&fence, value))?;
                        fence.wait(value, PATIENCE)?;
                        if value % 20 == 0 {
                            // The log has room for twice as many.
                            let _ = scene.world.os.report();
                        }
                    }
                    Ok(())
                };
                let result = run();
                done.store(true, Ordering::Release);
                reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))?;
                result
            })?;
            queue.wait(0, PATIENCE)?;
            let found = native_fence_log_records(scene, handle(&fence)?, false);
            let values: Vec<_> = found.iter().map(|record| record.value).collect();
            same("overruns", scene.world.os.counts().log_overruns, 0)?;
            same("values in the log", values, (1..=200).collect())?;
            ensure!(scene.evaluations("DXG-LOG-COMPLETE") >= 200, "entries were not judged");
            ensure!(scene.calls("DxgkDdiUpdateNativeFenceLogs") >= 10, "hardly ever flushed");
            Ok(())
        })?;
    }
    Ok(())
}

fn several(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queues = [
            RingQueue::connected(scene, &room, 0, 4096)?,
            RingQueue::connected(scene, &room, 1, 4096)?,
            RingQueue::connected(scene, &room, 0, 4096)?,
        ];
        let driver = |queue: u32| Ok::<_, anyhow::Error>(native_fence_logs(scene, queue)?[0].driver);
        let all = [driver(queues[0].queue.handle)?, driver(queues[1].queue.handle)?, driver(queues[2].queue.handle)?];
        let os = &scene.world.os;
        same("three", os.flush_fence_logs(scene.adapter(), &all), STATUS_SUCCESS)?;
        same("none", os.flush_fence_logs(scene.adapter(), &[]), STATUS_SUCCESS)?;
        queues[1].destroy_bell()?;
        room.destroy_queue(queues[1].queue.handle)?;
        same("one of them gone", os.flush_fence_logs(scene.adapter(), &all), STATUS_INVALID_PARAMETER)?;
        let wild = os.flush_fence_logs(scene.adapter(), &[all[0], 0, usize::MAX, 0x1000, all[2]]);
        same("no handles at all", wild, STATUS_INVALID_PARAMETER)?;
        // The others work, and the flush that failed has taken nothing from them.
        for queue in [&queues[0], &queues[2]] {
            let progress = queue.submit_through(&[])?;
            queue.wait(scene, progress)?;
        }
        same("the two", os.flush_fence_logs(scene.adapter(), &[all[0], all[2]]), STATUS_SUCCESS)
    })
}

fn overrun(stage: &Stage) -> Played {
    for optimized in [0, 1] {
        let setup = Setup::default().setting("OptimizedInterrupt", optimized).windows(|w| w.log_entries = 8);
        stage.play(setup, |scene| {
            let user = scene.process("client")?;
            let adapter = user.open()?;
            let device = adapter.device()?;
            let queue = device.queue(0, 64 << 10, 0, 0)?;
            let (early, quiet, late) = (device.fence(0, 0)?, device.fence(0, 0)?, device.fence(0, 0)?);
            std::thread::scope(|scope| -> Played {
                let waiter = scope.spawn(|| early.wait(1, PATIENCE));
                scene.until("the waiter", || Ok(scene.calls("DxgkDdiUpdateMonitoredValues") > 0))?;
                // One list: by the time that the OS reads, the entry of the first signal is overwritten.
                queue.run(|list| {
                    list.signal(&early, 1)?;
                    (1..=100).try_for_each(|value| list.signal(&quiet, value))?;
                    list.signal(&late, 1)
                })?;
                late.wait(1, PATIENCE)?;
                waiter.join().map_err(|_| anyhow::anyhow!("the waiter panicked"))??;
                Ok(())
            })?;
            queue.wait(0, PATIENCE)?;
            let counts = scene.world.os.report().counts;
            ensure!(counts.log_overruns >= 1, "no overrun was seen");
            if optimized == 1 {
                ensure!(counts.log_scans >= 1, "the OS did not look at every fence");
            }
            let entries = || -> anyhow::Result<_> {
                let log = scene.world.os.fence_logs(scene.adapter());
                let signals = log.iter().find(|log| !log.is_wait_log).context("a log of signals")?;
                Ok(signals.wraps * signals.entries + signals.index)
            };
            // The last is that of the progress fence. A wait for a plain word can end before the engine has written it.
            scene.until("the last entry", || Ok(entries()? >= 103))?;
            same("entries", entries()?, 103)
        })?;
    }
    Ok(())
}

fn recreate(stage: &Stage) -> Played {
    const VALUES: u64 = 400;
    stage.play(Setup::default(), |scene| {
        let user = scene.process("client")?;
        let adapter = user.open()?;
        let device = adapter.device()?;
        let queue = device.queue(0, 64 << 10, 0, 0)?;
        let fence = device.fence(0, 0)?;
        let first = scene.world.os.fence_logs(scene.adapter());
        std::thread::scope(|scope| -> Played {
            let producer = scope.spawn(|| -> Played {
                for value in 1..=VALUES {
                    queue.run(|list| list.signal(&fence, value))?;
                }
                queue.wait(0, PATIENCE)?;
                Ok(())
            });
            let mut rounds = 0;
            while !producer.is_finished() || rounds < 5 {
                scene.world.os.recreate_fence_logs(scene.adapter());
                rounds += 1;
            }
            producer.join().map_err(|_| anyhow::anyhow!("the producer panicked"))?
        })?;
        let now = scene.world.os.fence_logs(scene.adapter());
        same("buffers", now.len(), 2)?;
        for log in &now {
            ensure!(!first.iter().any(|old| old.cpu == log.cpu), "{log:?} is the first one");
        }
        // What was written after the last replacement is in the new buffer.
        let before = now[1].index;
        queue.run(|list| list.signal(&fence, VALUES + 1))?;
        queue.wait(0, PATIENCE)?;
        same("entries", scene.world.os.fence_logs(scene.adapter())[1].index, before + 2)?;
        let found = native_fence_log_records(scene, handle(&fence)?, false);
        let values: Vec<_> = found.iter().map(|record| record.value).collect();
        ensure!(values.is_sorted(), "{values:?}");
        same("the last", values.last().copied(), Some(VALUES + 1))?;
        drop(queue);
        ensure!(scene.evaluations("DXG-LOG-STALE") >= 2, "the old buffers were not looked at");
        Ok(())
    })
}

fn one_log(stage: &Stage) -> Played {
    stage.play(Setup::default().setting("OptimizedInterrupt", 1), |scene| {
        let caps = scene.adapter().caps().context("caps")?;
        ensure!(caps.has_optimized_interrupt(), "the cap is off");
        let rig = Client::open(scene, "client")?;
        let (rings, other) = (rig.queue(0)?, rig.queue(0)?);
        let (fence, nobody) = (rig.fence(0, true)?, rig.fence(0, true)?);
        // The other queue has news all the time that nobody waits for.
        for value in 1..=20 {
            other.run(|list| list.signal(&nobody, value))?;
            until_idle(scene, &other)?;
            let before = scene.world.os.counts();
            // When the call has returned, the interrupt is what ends the wait.
            let waiting = rig.wait(&[(&fence, value)], false)?;
            rings.run(|list| list.signal(&fence, value))?;
            waiting.comes(&rig, "the waiter")?;
            let after = scene.world.os.counts();
            same("every fence looked at", after.fence_scans, before.fence_scans)?;
            same("logs flushed", after.logs_flushed - before.logs_flushed, 1)?;
            rig.raw.close(waiting.handle);
        }
        Ok(())
    })
}
