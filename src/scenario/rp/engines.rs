//! An engine that goes to F1, with all of its doorbells.

use crate::scenario::db::power::{state_of, with_components};
use crate::scenario::db::{CONNECTED, MODELS, NOTIFY, RETRY, RingQueue, Room, idle_queue, raw, store};
use crate::scenario::{Played, Scenario, Scene, Stage, same};
use anyhow::{Context, ensure};
use dxgkrnl_model::personality::{Gate, SECOND};
use gpu_wire::packet::Indirect;
use std::time::{Duration, Instant};

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "RP-07",
        title: "an engine that asks for F1: the doorbells of all of its queues are disconnected first, no other engine's, \
                and the next connection brings it back",
        source: "User-mode work submission, engine F-state transitions",
        play: whole_engine,
    },
    Scenario {
        id: "RP-08",
        title: "a ring right before the page of a doorbell is rotated for F1: its work runs, once",
        source: "User-mode work submission, engine F-state transitions; DxgkDdiDisconnectDoorbell",
        play: at_the_rotation,
    },
    Scenario {
        id: "RP-20",
        title: "an engine on its way to F1 gets there before the device goes to D3; a connection brings both back",
        source: "User-mode work submission, engine F-state transitions, engine D-state transitions",
        play: into_d3,
    },
];

const DISCONNECT: &str = "DxgkDdiDisconnectDoorbell";
const STATE: &str = "DxgkDdiSetPowerComponentFState";

/// A queue that runs a buffer without an end, of which the OS is not told.
fn run_for_ever(scene: &Scene, queue: &RingQueue<'_>) -> Played {
    let buffer = queue.room.memory(scene, 4096)?;
    let jump = Indirect { address: buffer.gpu, length: 24 }.to_packet();
    buffer.write(queue.room.raw, 0, jump.as_bytes())?;
    queue.write(jump.as_bytes())?;
    queue.publish()?;
    if queue.ring()? == NOTIFY {
        queue.notify()?;
    }
    Ok(())
}

fn whole_engine(stage: &Stage) -> Played {
    for model in MODELS {
        let play = |scene: &Scene| {
            let (one, two) = (raw(scene)?, raw(scene)?);
            let rooms = [Room::new(&one)?, Room::new(&two)?];
            let busy = RingQueue::connected(scene, &rooms[0], 1, 4096)?;
            run_for_ever(scene, &busy)?;
            let status = busy.status()?;
            // Announced from now on: doorbells that stay connected while the engine sleeps.
            let queues = [idle_queue(scene, &rooms[0], 0)?, idle_queue(scene, &rooms[1], 0)?];
            let memory = [rooms[0].memory(scene, 4096)?, rooms[1].memory(scene, 4096)?];
            let mut before = 0;
            scene.until("two connected doorbells", || {
                before = scene.journal(&[DISCONNECT, STATE]).len();
                queues.iter().try_for_each(|queue| queue.connect())?;
                // Not when the engine went to F1 between the two.
                Ok(queues[0].status()? == NOTIFY && queues[1].status()? == NOTIFY)
            })?;
            let began = scene.journal(&[DISCONNECT, STATE]).split_off(before);
            scene.until("F1", || Ok(state_of(scene, 0)? == 1))?;
            for queue in &queues {
                same("status in F1", queue.status()?, RETRY)?;
            }
            same("the status of the other engine's queue", busy.status()?, status)?;
            let mut calls = scene.journal(&[DISCONNECT, STATE]).split_off(before + began.len());
            // The connections may have found it in F1, and brought it back.
            calls.truncate(3);
            same("the calls on the way to F1", calls, vec![DISCONNECT, DISCONNECT, STATE])?;
            for (queue, memory) in queues.iter().zip(&memory) {
                let progress = queue.submit_through(&[store(memory.gpu, 7)])?;
                queue.wait(scene, progress)?;
                same("memory", queue.room.raw.load(memory.cpu)?, 7)?;
            }
            ensure!(busy.progress()? == 0, "the buffer without an end has one");
            Ok(())
        };
        // By its own watch the OS takes the other engine, of whose work it is not told, for idle behind TdrDelay.
        let setup = with_components(5, model).windows(|windows| windows.tdr.delay = 120 * SECOND);
        stage.play(setup, play).with_context(|| format!("DoorbellModel {model}"))?;
    }
    Ok(())
}

fn into_d3(stage: &Stage) -> Played {
    const SUSPEND: &str = "DxgkDdiSuspendContext";
    let gate = Gate::default();
    let setup = with_components(1, 0).windows(|windows| {
        windows.tdr.delay = 120 * SECOND;
        windows.gates.f1 = Some(gate.clone());
    });
    stage.play(setup, |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let memory = room.memory(scene, 4096)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        let progress = queue.submit_through(&[])?;
        queue.wait(scene, progress)?;
        scene.until("an engine on its way to F1", || Ok(gate.came() >= 1))?;
        let from = scene.journal(&[STATE, SUSPEND]).len();
        std::thread::scope(|scope| {
            let sleep = scope.spawn(|| scene.world.os.put_to_sleep(scene.adapter(), false));
            // Time in which a device that does not wait for the engine would go to D3.
            std::thread::park_timeout(Duration::from_millis(50));
            gate.open(true);
            sleep.join().map_err(|_| anyhow::anyhow!("a panic"))
        })?;
        let calls = scene.journal(&[STATE, SUSPEND]).split_off(from);
        same("F1, and then the way to D3", calls, vec![STATE, SUSPEND])?;
        same("status in D3", queue.status()?, RETRY)?;
        queue.connect()?;
        ensure!(!scene.world.os.is_asleep(scene.adapter()), "the device has no power");
        let progress = queue.submit_through(&[store(memory.gpu, 7)])?;
        queue.wait(scene, progress)?;
        same("memory", raw.load(memory.cpu)?, 7)?;
        scene.until("F1 once more", || Ok(state_of(scene, 0)? == 1))
    })
}

/// The OS has had the driver disconnect the doorbell, and user mode still sees it connected: what is rung then, at one
/// moment after the other, is found by the look that the engine takes last before it is in F1.
fn at_the_rotation(stage: &Stage) -> Played {
    const ROUNDS: u32 = 40;
    /// Rings that must be in front of a rotation. A machine that is busy needs more rounds for them.
    const WANTED: u32 = ROUNDS / 4;
    const MOST: u32 = 8 * ROUNDS;
    /// Submissions in front of each rotation.
    const OFTEN: u32 = 24;
    const ROTATION: Duration = Duration::from_millis(30);
    /// By how much a rotation may be late.
    const SPREAD: Duration = Duration::from_micros(100);
    /// By how much the next ring is earlier behind one that was late.
    const EARLIER: Duration = Duration::from_micros(20);
    // What is rung in front of the rotation is found by the engine's last look, and is not done by then.
    let setup = with_components(1, 0).windows(|windows| {
        windows.disconnect_time = 300_000;
        windows.faults.f1_amid_work = true;
    });
    stage.play(setup, |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        let disconnections = || scene.calls(DISCONNECT);
        // By how much in front of the last moment a ring is: at the edge, wherever that is on a machine that is busy.
        let (mut missed, mut round, mut early) = (0, 0, Duration::ZERO);
        while round < ROUNDS || missed < WANTED {
            ensure!(round < MOST, "{missed} rings in {round} were in front of the rotation");
            // A queue that submits often: one that does not is NOTIFY behind some slow rounds.
            let mut progress = 0;
            for _ in 0..OFTEN {
                progress = queue.submit_through(&[])?;
            }
            queue.wait(scene, progress)?;
            let (progress, mut status) = std::thread::scope(|scope| {
                // Whether or not the driver has let go of it already.
                let before = disconnections();
                scope.spawn(|| scene.world.os.disconnect_doorbells(scene.adapter(), true));
                scene.until_now("a disconnection", || Ok(disconnections() > before))?;
                let begun = Instant::now();
                while begun.elapsed() + early < ROTATION + SPREAD {
                    std::hint::spin_loop();
                }
                queue.submit(&[])
            })?;
            let is_in_front = status == CONNECTED;
            missed += u32::from(is_in_front);
            early = if is_in_front { early * 3 / 4 } else { (early * 3 / 2 + EARLIER).min(ROTATION) };
            while status == RETRY {
                queue.connect()?;
                status = queue.ring()?;
            }
            if status == NOTIFY {
                queue.notify()?;
            }
            // Behind two seconds the OS would look at the queue.
            let rung = Instant::now();
            queue.wait(scene, progress)?;
            ensure!(rung.elapsed() < Duration::from_secs(1), "round {round}: {:?} from ring to end", rung.elapsed());
            round += 1;
        }
        let transitions = scene.calls(STATE);
        ensure!(transitions >= u64::from(round), "{transitions} transitions in {round} rounds");
        Ok(())
    })
}
