//! Doorbells of idle engines: they are disconnected, the engine sleeps, and nothing is lost on the way.
//!
//! When a driver disconnects a doorbell of its own accord, and which of the two connected statuses it chooses, is left
//! to it. What is not is what user mode sees: RETRY behind a ring that may be lost, work that runs once, and that a
//! queue is reconnected.

use super::{CONNECTED, NOTIFY, RETRY, RingQueue, Room, raw, unprobed};
use crate::scenario::stage::PATIENCE;
use crate::scenario::{ExecutionCount, Played, Scenario, Scene, Setup, Stage, same};
use anyhow::{Context, Result, bail, ensure};
use dxgkrnl_model::personality::MS;
use gpu_wire::packet::{Indirect, Store};
use std::time::{Duration, Instant};
use umd_core::ffi::types::FP_KIND_SYSTEM;

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "DB-42",
        title: "an idle engine's doorbells are disconnected with RETRY; the next ring connects, and its work runs",
        source: "User-mode work submission, DxgkCbDisconnectDoorbell; D3DDDI_DOORBELLSTATUS",
        play: let_go,
    },
    Scenario {
        id: "DB-43",
        title: "a ring at the moment at which the doorbell goes: its work runs, once",
        source: "User-mode work submission, DxgkCbDisconnectDoorbell",
        play: at_the_moment,
    },
    Scenario {
        id: "DB-44",
        title: "with its doorbells gone an engine sleeps until it is woken, and sets no timer",
        source: "User-mode work submission, engine power state transitions; ExSetTimer",
        play: sleeps,
    },
    Scenario {
        id: "DB-45",
        title: "a queue that submits seldom is CONNECTED_NOTIFY, and CONNECTED again once it announces often",
        source: "User-mode work submission, CONNECTED_NOTIFY; D3DKMTNotifyWorkSubmission",
        play: seldom,
    },
    Scenario {
        id: "DB-49",
        title: "an engine that sleeps, or is about to, acknowledges a suspension at once",
        source: "DxgkDdiSuspendContext; User-mode work submission, TDR",
        play: suspended_asleep,
    },
    Scenario {
        id: "DB-51",
        title: "a ring between DxgkDdiDisconnectDoorbell and the rotation reads CONNECTED, and its work runs",
        source: "User-mode work submission, doorbell disconnection; DxgkDdiDisconnectDoorbell",
        play: rotated_late,
    },
    Scenario {
        id: "DB-52",
        title: "doorbells of an idle engine go; that of a queue on an engine that works stays",
        source: "User-mode work submission, DxgkCbDisconnectDoorbell",
        play: of_its_own_node,
    },
];

/// Both doorbell models.
pub(in crate::scenario) const MODELS: [u32; 2] = [0, 1];

/// Plays `body` in both doorbell models, with a driver that lets doorbells go after `idle` milliseconds.
fn each_model(stage: &Stage, idle: u32, body: impl Fn(&Scene) -> Played) -> Played {
    for model in MODELS {
        let setup = Setup::default().setting("DoorbellModel", model).setting("IdleMilliseconds", idle);
        stage.play(setup, &body).with_context(|| format!("DoorbellModel {model}"))?;
    }
    Ok(())
}

/// A queue that has rung often enough not to be fresh, and whose doorbell has been let go since.
pub(in crate::scenario) fn idle_queue<'a>(scene: &Scene, room: &'a Room<'a>, node: u32) -> Result<RingQueue<'a>> {
    for _ in 0..20 {
        let queue = RingQueue::connected(scene, room, node, 4096)?;
        for _ in 0..3 {
            let progress = queue.submit_through(&[])?;
            queue.wait(scene, progress)?;
        }
        let mut status = CONNECTED;
        scene.until("RETRY", || {
            status = queue.status()?;
            Ok(matches!(status, RETRY | NOTIFY))
        })?;
        if status == RETRY {
            return Ok(queue);
        }
        // Between two rings, on a host that was slow, the doorbell went, and the queue announces from then on.
    }
    bail!("no queue rings three times before its doorbell goes")
}

fn let_go(stage: &Stage) -> Played {
    each_model(stage, 10, |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        // Before it was used, the connection stays for a while.
        let fresh = RingQueue::connected(scene, &room, 1, 4096)?;
        let queue = idle_queue(scene, &room, 0)?;
        same("one that has not rung yet", fresh.status()?, CONNECTED)?;
        let before = scene.callbacks("DxgkCbDisconnectDoorbell");
        ensure!(before >= 1, "the OS was not called");
        same("calls of the driver", scene.calls("DxgkDdiDisconnectDoorbell"), 0)?;
        let count = ExecutionCount::new(scene, &room)?;
        let (progress, status) = queue.submit(&count.packets())?;
        same("status behind a ring", status, RETRY)?;
        queue.connect()?;
        // The connection itself has the work looked at: the ring is not needed for it.
        queue.wait(scene, progress)?;
        same("executions", count.get(&room)?, 1)?;
        queue.destroy_bell().context("the doorbell")?;
        room.destroy_queue(queue.queue.handle).context("the queue")?;
        Ok(())
    })?;
    // With the setting 0 no engine lets go.
    stage.play(Setup::default().setting("IdleMilliseconds", 0), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        for _ in 0..3 {
            let (progress, status) = queue.submit(&[])?;
            same("status", status, CONNECTED)?;
            queue.wait(scene, progress)?;
            std::thread::park_timeout(Duration::from_millis(30));
        }
        same("callbacks", scene.callbacks("DxgkCbDisconnectDoorbell"), 0)
    })
}

fn at_the_moment(stage: &Stage) -> Played {
    // The OS takes its time, so that many rings fall into it.
    for time in [0, MS] {
        for model in MODELS {
            let setup = Setup::default().setting("DoorbellModel", model).setting("IdleMilliseconds", 1);
            stage.play(setup.windows(|windows| windows.disconnect_time = time), around_the_moment)?;
        }
    }
    Ok(())
}

/// Makes the doorbell one that is looked at: announces often enough, where it is one that is announced.
fn looked_at(scene: &Scene, queue: &RingQueue<'_>) -> Played {
    scene.until_now("a doorbell that is looked at", || {
        if queue.status()? == RETRY {
            queue.connect()?;
        }
        let is_connected = queue.status()? == CONNECTED;
        if !is_connected {
            (0..32).try_for_each(|_| queue.notify())?;
        }
        Ok(is_connected)
    })
}

/// Rings at times that move across the moment at which the doorbell goes.
fn around_the_moment(scene: &Scene) -> Played {
    const ROUNDS: usize = 60;
    // On a loaded host the engine's thread may be late for a while: the rounds go on until one ring was too late.
    const MOST: usize = 600;
    // Few enough for a queue that submits seldom: the doorbell of one that submits often stays for longer than a round.
    const FEW: usize = 4;
    let raw = raw(scene)?;
    let room = Room::new(&raw)?;
    let queue = RingQueue::connected(scene, &room, 0, 4096)?;
    let count = ExecutionCount::new(scene, &room)?;
    let (mut retries, mut in_time) = (0, 0);
    for round in 1..=MOST {
        if round > ROUNDS && retries > 0 {
            break;
        }
        if in_time == FEW {
            scene.until("a doorbell that goes", || Ok(queue.status()? != CONNECTED))?;
        }
        if queue.status()? != CONNECTED {
            in_time = 0;
        }
        looked_at(scene, &queue)?;
        for _ in 0..2 {
            let progress = queue.submit_through(&[])?;
            queue.wait(scene, progress)?;
        }
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(600 + round as u64 * 531 % 4900) {
            std::hint::spin_loop();
        }
        let (progress, status) = queue.submit(&count.packets())?;
        match status {
            // Whoever connects has the work looked at: there is nothing to ring again.
            RETRY => {
                retries += 1;
                queue.connect()?;
            }
            NOTIFY => queue.notify()?,
            status => same("status", status, CONNECTED)?,
        }
        in_time += 1;
        queue.wait(scene, progress).with_context(|| format!("round {round}, status {status}"))?;
        same("executions", count.get(&room)?, round)?;
    }
    ensure!(retries > 0, "no ring came late");
    // What is not looked at is found when the scheduler suspends the context because of its silence.
    same("suspensions", scene.calls("DxgkDdiSuspendContext"), 0)?;
    ensure!(scene.callbacks("DxgkCbDisconnectDoorbell") >= 5, "the doorbell hardly went");
    Ok(())
}

fn sleeps(stage: &Stage) -> Played {
    let timers = |scene: &Scene| -> Result<u64> {
        let kernel = scene.world.os.kernel();
        let before = kernel.ex_timers_set();
        std::thread::park_timeout(Duration::from_millis(100));
        Ok(kernel.ex_timers_set() - before)
    };
    let busy = |scene: &Scene| -> Result<_> {
        let user = scene.process("client")?;
        let device = user.open()?.device()?;
        let queues = (0..32).map(|number| device.queue(number % 2, 4096, 0, 0)).collect::<Result<Vec<_>, _>>()?;
        for queue in &queues {
            for _ in 0..20 {
                let progress = queue.run(|list| list.nop(8))?;
                queue.wait(progress, PATIENCE)?;
            }
        }
        Ok((user, device, queues))
    };
    each_model(stage, 10, |scene| {
        let (_user, device, queues) = busy(scene)?;
        // Every engine of user-mode queues comes to rest, and stays there.
        let mut left = u64::MAX;
        scene.until("rest", || {
            left = timers(scene)?;
            Ok(left == 0)
        })?;
        let before = scene.callbacks("DxgkCbDisconnectDoorbell");
        ensure!(before >= 32, "{before} doorbells were let go");
        same("timers", timers(scene)?, 0)?;
        let memory = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
        let at = memory.gpu_va()?;
        for (queue, slot) in queues.iter().zip(0..) {
            let progress = queue.run(|list| list.store(at + slot * 8, slot + 1))?;
            queue.wait(progress, PATIENCE)?;
            same("memory", memory.read_u64(slot * 8)?, slot + 1)?;
        }
        Ok(())
    })?;
    // What the count is worth: an engine that looks at its doorbells for ever sets timers.
    stage.play(Setup::default().setting("IdleMilliseconds", 0), |scene| {
        let _busy = busy(scene)?;
        ensure!(timers(scene)? > 0, "no timer was set, and doorbells are looked at");
        Ok(())
    })
}

fn seldom(stage: &Stage) -> Played {
    each_model(stage, 10, |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queue = idle_queue(scene, &room, 0)?;
        queue.connect()?;
        same("status of a queue that submits seldom", queue.status()?, NOTIFY)?;
        let before = scene.callbacks("DxgkCbDisconnectDoorbell");
        let count = ExecutionCount::new(scene, &room)?;
        for round in 1..=5 {
            std::thread::park_timeout(Duration::from_millis(25));
            let (progress, status) = queue.submit(&count.packets())?;
            same("status", status, NOTIFY)?;
            queue.notify()?;
            queue.wait(scene, progress)?;
            same("executions", count.get(&room)?, round)?;
        }
        same("callbacks", scene.callbacks("DxgkCbDisconnectDoorbell"), before)?;
        unprobed(scene)?;
        // Calls in a row, as fast as they go.
        let mut executions = 5;
        scene.until("a ring of a connected doorbell", || {
            looked_at(scene, &queue)?;
            let (progress, status) = queue.submit(&count.packets())?;
            // Where the host was slow, the doorbell has gone in between.
            match status {
                RETRY => queue.connect()?,
                NOTIFY => queue.notify()?,
                _ => (),
            }
            queue.wait(scene, progress)?;
            executions += 1;
            same("executions", count.get(&room)?, executions)?;
            Ok(status == CONNECTED)
        })
    })
}

/// Long enough for an engine to fall asleep in, if it forgets what it watches.
const LATE: Duration = Duration::from_millis(40);

fn rotated_late(stage: &Stage) -> Played {
    for model in MODELS {
        let setup = Setup::default().setting("DoorbellModel", model).setting("IdleMilliseconds", 5);
        // CAST: a small number.
        let setup = setup.windows(|windows| windows.disconnect_time = 2 * LATE.as_millis() as u64 * MS);
        let play = |scene: &Scene| {
            let raw = raw(scene)?;
            let room = Room::new(&raw)?;
            let queue = RingQueue::connected(scene, &room, 0, 4096)?;
            let count = ExecutionCount::new(scene, &room)?;
            let (os, adapter) = (&scene.world.os, scene.adapter());
            let mut unaware = 0;
            for round in 1..=5 {
                // Not fresh, and not announced: the engine looks for its rings.
                looked_at(scene, &queue)?;
                let before = scene.calls("DxgkDdiDisconnectDoorbell");
                std::thread::scope(|scope| -> Played {
                    scope.spawn(|| os.disconnect_doorbells(adapter, false));
                    scene.until("the call", || Ok(scene.calls("DxgkDdiDisconnectDoorbell") != before))?;
                    std::thread::park_timeout(LATE);
                    let (progress, status) = queue.submit(&count.packets())?;
                    if status == CONNECTED {
                        // User mode does nothing more.
                        unaware += 1;
                    } else {
                        queue.connect()?;
                    }
                    queue.wait(scene, progress).with_context(|| format!("round {round}, status {status}"))
                })?;
                same("executions", count.get(&room)?, round)?;
            }
            ensure!(unaware > 0, "no ring came between the call and the rotation");
            // What is not looked at is found when the scheduler suspends the context because of its silence.
            same("suspensions", scene.calls("DxgkDdiSuspendContext"), 0)
        };
        stage.play(setup, play).with_context(|| format!("DoorbellModel {model}"))?;
    }
    Ok(())
}

/// Rings until the doorbell is connected, and tells the OS where that is asked for. Returns the status behind that.
fn rings(queue: &RingQueue) -> Result<u64> {
    while queue.ring()? == RETRY {
        queue.connect()?;
    }
    if queue.status()? == NOTIFY {
        queue.notify()?;
    }
    queue.status()
}

fn of_its_own_node(stage: &Stage) -> Played {
    each_model(stage, 10, |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let busy = RingQueue::connected(scene, &room, 1, 4096)?;
        // Rings enough not to be fresh, and too few for a queue that submits often.
        for _ in 0..3 {
            let progress = busy.submit_through(&[])?;
            busy.wait(scene, progress)?;
        }
        let buffer = room.memory(scene, 4096)?;
        let begun = Store { address: buffer.gpu + 64, value: 1 }.to_packet();
        let jump = Indirect { address: buffer.gpu, length: 24 }.to_packet();
        buffer.write(&raw, 0, jump.as_bytes())?;
        // The OS is not told of it, and so does not look for its end.
        busy.write(begun.as_bytes())?;
        busy.write(jump.as_bytes())?;
        busy.publish()?;
        rings(&busy)?;
        // The engine may have been idle for long enough when it rang: what was asked for then is over.
        scene.until("the work", || Ok(raw.load(buffer.cpu + 64)? == 1))?;
        let status = rings(&busy)?;
        idle_queue(scene, &room, 0)?;
        same("the doorbell beside which another goes", busy.status()?, status)
    })
}

fn suspended_asleep(stage: &Stage) -> Played {
    const ROUNDS: u64 = 120;
    each_model(stage, 1, |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        let os = &scene.world.os;
        for round in 1..=ROUNDS {
            let progress = queue.submit_through(&[])?;
            queue.wait(scene, progress).with_context(|| format!("round {round}"))?;
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_micros(round * 97 % 4100) {
                std::hint::spin_loop();
            }
            ensure!(os.suspend(scene.adapter(), &raw.process), "round {round}: not acknowledged");
            os.resume(scene.adapter(), &raw.process);
        }
        Ok(())
    })
}
