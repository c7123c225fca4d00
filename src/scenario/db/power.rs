//! Power components: engines that ask for F1, and what brings them back.
//!
//! The OS has told F1, and the driver has completed the transition, when a case sees it: from then on nothing that is
//! rung runs before the doorbell connects again.
#![expect(unsafe_code, reason = "a function of the driver's table is called")]

use super::idle::{MODELS, idle_queue};
use super::{CONNECTED, KernelQueue, NOTIFY, RETRY, RingQueue, Room, raw};
use crate::scenario::client::Client;
use crate::scenario::{ExecutionCount, Played, Scenario, Scene, Setup, Stage, same};
use crate::wrap::own;
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::personality::{Gate, SECOND};
use dxgkrnl_model::process::End;
use gpu_wire::GpuVa;
use gpu_wire::packet::Encoded;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use umd_core::ffi::types::FP_KIND_SYSTEM;
use wddm_abi::DXGK_INTERRUPT_TYPE;

crate::decorate! {
    /// Comes back long behind the time after which an engine asks.
    lingers: DxgkDdiStartDevice(
        context: *mut core::ffi::c_void,
        info: *mut wddm_abi::DXGK_START_INFO,
        interface: *mut wddm_abi::DXGKRNL_INTERFACE,
        sources: *mut u32,
        children: *mut u32,
    ) -> wddm_abi::NTSTATUS {
        let status = own!(DxgkDdiStartDevice(context, info, interface, sources, children));
        #[expect(clippy::disallowed_methods, reason = "a start that takes long is what the case is about")]
        std::thread::sleep(Duration::from_millis(100));
        status
    }
}

/// Slow starts. An interrupt meanwhile breaks a rule: the model knows no nodes yet.
fn starts_slowly(stage: &Stage) -> Played {
    let setup = Setup::default().setting("PowerComponents", 1).setting("IdleMilliseconds", 1).with_driver(lingers);
    stage.play(setup, |scene| {
        let rig = Client::open(scene, "client")?;
        let (queue, page) = (rig.queue(0)?, rig.page()?);
        queue.run(|list| list.store(page.at(0), 1))?;
        page.until(scene, "work", 0, 1)?;
        drop(queue);
        scene.until("F1 of both engines", || Ok(state_of(scene, 0)? == 1 && state_of(scene, 1)? == 1))
    })
}

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "DB-46",
        title: "an engine that sleeps asks for F1: its doorbells are RETRY, and a connection brings it back to F0",
        source: "User-mode work submission, engine F-state transitions; RP-07",
        play: to_f1,
    },
    Scenario {
        id: "DB-47",
        title: "rings while the engine goes to F1: their work runs, once",
        source: "User-mode work submission, engine F-state transitions; RP-08",
        play: ringing_into_f1,
    },
    Scenario {
        id: "DB-75",
        title: "no engine asks for F1 while the device starts; behind it each does",
        source: "DxgkDdiStartDevice; DXGK_INTERRUPT_GPU_ENGINE_STATE_CHANGE: by node",
        play: starts_slowly,
    },
    Scenario {
        id: "DB-53",
        title: "work of the kernel brings an engine back to F0 before it is submitted; behind it the engine asks again",
        source: "User-mode work submission, engine F-state transitions; DXGK_POWER_RUNTIME_COMPONENT",
        play: kernel_work_in_f1,
    },
    Scenario {
        id: "DB-54",
        title: "doorbells that the OS has disconnected, and that are not connected again, keep no engine from F1",
        source: "User-mode work submission, engine F-state transitions; DxgkDdiDisconnectDoorbell",
        play: never_connected_again,
    },
    Scenario {
        id: "DB-55",
        title: "disconnections beside connections of the same doorbell: work runs once, and the engine gets to F1",
        source: "DxgkDdiConnectDoorbell; DxgkDdiDisconnectDoorbell; User-mode work submission, engine F-state transitions",
        play: connected_beside,
    },
    Scenario {
        id: "DB-63",
        title: "an engine that nobody asks F1 for goes there by the OS's own watch, and one with work does not",
        source: "User-mode work submission, engine F-state transitions (the TDR cadence of two seconds)",
        play: unasked,
    },
    Scenario {
        id: "DB-77",
        title: "progress between two looks of the OS keeps an engine in F0, however idle it is at each",
        source: "User-mode work submission, engine F-state transitions (the TDR cadence of two seconds)",
        play: works_between_looks,
    },
    Scenario {
        id: "DB-80",
        title: "a doorbell that is connected on the way to F1: what user mode announces on it in F1 runs",
        source: "User-mode work submission, engine F-state transitions; DxgkDdiNotifyWorkSubmission",
        play: announced_into_f1,
    },
    Scenario {
        id: "DB-70",
        title: "an engine stays in F0 while a queue has not done what is queued; in F1 a notification runs nothing",
        source: "User-mode work submission, engine F-state transitions",
        play: works_in_f0,
    },
];

/// A driver with power components, whose engines let doorbells go after `idle` milliseconds, and ask for F1 after ten
/// times as long.
pub(in crate::scenario) fn with_components(idle: u32, model: u32) -> Setup {
    Setup::default().setting("PowerComponents", 1).setting("IdleMilliseconds", idle).setting("DoorbellModel", model)
}

/// The F-state that the component of `node` was told last.
pub(in crate::scenario) fn state_of(scene: &Scene, node: u32) -> Result<u32> {
    let state = scene.world.os.f_state(scene.adapter(), node);
    state.context("the node has no component")
}

fn to_f1(stage: &Stage) -> Played {
    for model in MODELS {
        stage.play(with_components(5, model), |scene| {
            let raw = raw(scene)?;
            let room = Room::new(&raw)?;
            let queue = idle_queue(scene, &room, 0)?;
            let count = ExecutionCount::new(scene, &room)?;
            // Announced from now on: a doorbell that stays connected while the engine sleeps.
            scene.until("a doorbell that is announced", || {
                // Not when the engine went to F1 between the two.
                queue.connect()?;
                Ok(queue.status()? == NOTIFY)
            })?;
            for round in 1..=3 {
                scene.until("F1", || Ok(state_of(scene, 0)? == 1))?;
                same("status in F1", queue.status()?, RETRY)?;
                let (progress, status) = queue.submit(&count.packets())?;
                same("status of a ring in F1", status, RETRY)?;
                same("executions in F1", count.get(&room)?, round - 1)?;
                let before = scene.calls("DxgkDdiSetPowerComponentFState");
                queue.connect()?;
                ensure!(scene.calls("DxgkDdiSetPowerComponentFState") > before, "the connection left it in F1");
                queue.wait(scene, progress)?;
                same("executions", count.get(&room)?, round)?;
            }
            let names = ["DxgkDdiSetPowerComponentFState", "DxgkDdiConnectDoorbell"];
            let journal = scene.journal(&names);
            let connection = journal.iter().rposition(|name| *name == names[1]).context("no connection")?;
            let before = connection.checked_sub(1).and_then(|at| journal.get(at).copied());
            same("what comes right before the last connection", before, Some(names[0]))
        })?;
    }
    // What wakes an engine that has nothing to do is no reason to ask sooner: paging has every engine flush.
    stage.play(with_components(1_000, MODELS[0]), |scene| {
        let rig = Client::open(scene, "client")?;
        let flushes = scene.calls("DxgkDdiBuildPagingBuffer");
        for _ in 0..20 {
            let memory = rig.device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
            memory.gpu_va()?;
            drop(memory);
            std::thread::park_timeout(Duration::from_millis(5));
        }
        ensure!(scene.calls("DxgkDdiBuildPagingBuffer") > flushes, "nothing was paged");
        same("F-states within the time that an engine sleeps first", scene.calls("DxgkDdiSetPowerComponentFState"), 0)
    })?;
    // Without components no engine asks.
    stage.play(Setup::default().setting("IdleMilliseconds", 5), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        idle_queue(scene, &room, 0)?;
        std::thread::park_timeout(Duration::from_millis(200));
        let kind = DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_GPU_ENGINE_STATE_CHANGE;
        let luid = scene.adapter().luid_number();
        let report = scene.world.os.report();
        let adapter = report.adapters.iter().find(|adapter| adapter.luid == luid).context("the adapter's report")?;
        let asked = adapter.kinds.get(&kind).copied().unwrap_or(0);
        same("interrupts that ask for F1", asked, 0)?;
        same("disconnections", scene.calls("DxgkDdiDisconnectDoorbell"), 0)?;
        same("F-states", scene.calls("DxgkDdiSetPowerComponentFState"), 0)
    })
}

/// A doorbell is connected on the way to F1, behind the disconnections, and user mode announces work on it when the
/// engine is in F1 and not told otherwise yet: the work runs.
fn announced_into_f1(stage: &Stage) -> Played {
    let (f1, f0) = (Gate::default(), Gate::default());
    // A suspension would find lost work, too: it comes to none.
    let setup = with_components(1, MODELS[0]).setting("ConnectNotify", 1).windows(|windows| {
        windows.tdr.delay = 120 * SECOND;
        (windows.gates.f1, windows.gates.f0) = (Some(f1.clone()), Some(f0.clone()));
    });
    stage.play(setup, |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        let count = ExecutionCount::new(scene, &room)?;
        let (progress, _) = queue.submit(&count.packets())?;
        queue.notify()?;
        queue.wait(scene, progress)?;
        scene.until("the disconnections", || Ok(f1.came() == 1))?;
        same("status on the way to F1", queue.status()?, RETRY)?;
        queue.connect()?;
        f1.open(true);
        scene.until("the word that the component is in F1", || Ok(f0.came() == 1))?;
        same("the state", state_of(scene, 0)?, 1)?;
        let (progress, status) = queue.submit(&count.packets())?;
        same("status in F1", status, NOTIFY)?;
        queue.notify()?;
        queue.wait(scene, progress)?;
        same("executions", count.get(&room)?, 2)?;
        f0.open(true);
        scene.until("F0", || Ok(state_of(scene, 0)? == 0))
    })
}

fn ringing_into_f1(stage: &Stage) -> Played {
    for model in MODELS {
        // A suspension would find lost work, too: it comes to none.
        let setup = with_components(1, model).windows(|windows| windows.tdr.delay = 60 * SECOND);
        stage.play(setup, |scene| {
            const ROUNDS: usize = 60;
            const PATIENCE: Duration = Duration::from_secs(20);
            let raw = raw(scene)?;
            let room = Room::new(&raw)?;
            let queue = RingQueue::connected(scene, &room, 0, 4096)?;
            let count = ExecutionCount::new(scene, &room)?;
            let transitions = || scene.calls("DxgkDdiSetPowerComponentFState");
            let end = Instant::now() + PATIENCE;
            // On a loaded host an engine is seldom idle for long enough in so many rounds.
            for round in 1.. {
                let progress = queue.submit_through(&count.packets())?;
                queue.wait(scene, progress).with_context(|| format!("round {round}"))?;
                same("executions", count.get(&room)?, round)?;
                if round >= ROUNDS && transitions() >= 5 {
                    break;
                }
                ensure!(Instant::now() < end, "{} transitions in {round} rounds", transitions());
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_micros(10_000 + round as u64 * 531 % 3900) {
                    std::hint::spin_loop();
                }
            }
            same("suspensions", scene.calls("DxgkDdiSuspendContext"), 0)
        })?;
    }
    Ok(())
}

fn kernel_work_in_f1(stage: &Stage) -> Played {
    stage.play(with_components(5, 0), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        // A doorbell of its own would be what the engine is busy with.
        let queue = room.queue(0, false)?;
        let count = ExecutionCount::new(scene, &room)?;
        let buffer = room.memory(scene, 4096)?;
        for round in 1..=3 {
            scene.until("F1", || Ok(state_of(scene, 0)? == 1))?;
            let signal = Encoded::fence_signal(GpuVa(queue.progress.gpu), round);
            let [there, back] = count.packets();
            let packets: Vec<u8> = [there, back, signal].iter().flat_map(|it| it.as_bytes().to_vec()).collect();
            buffer.write(&raw, 0, &packets)?;
            // CAST: a few packets.
            room.submit(queue.handle, buffer.gpu, packets.len() as u32, round)?;
            scene.until("the work", || Ok(count.get(&room)? == round as usize))?;
        }
        let names = ["DxgkDdiSetPowerComponentFState", "DxgkDdiSubmitCommandToHwQueue"];
        let journal = scene.journal(&names);
        for (index, _) in journal.iter().enumerate().filter(|(_, name)| **name == names[1]) {
            let before = index.checked_sub(1).and_then(|at| journal.get(at).copied());
            same("what comes right before a submission", before, Some(names[0]))?;
        }
        Ok(())
    })
}

fn never_connected_again(stage: &Stage) -> Played {
    for model in MODELS {
        stage.play(with_components(5, model), |scene| {
            let raw = raw(scene)?;
            let room = Room::new(&raw)?;
            let queue = RingQueue::connected(scene, &room, 0, 4096)?;
            let count = ExecutionCount::new(scene, &room)?;
            for round in 1..=10 {
                let progress = queue.submit_through(&[])?;
                queue.wait(scene, progress)?;
                // Nothing of this tells the driver that the page was rotated.
                scene.world.os.disconnect_doorbells(scene.adapter(), false);
                // As soon as it is there: an engine that looks once more behind that finds what is rung here.
                scene.until_now("F1", || Ok(state_of(scene, 0)? == 1))?;
                let (progress, status) = queue.submit(&count.packets())?;
                same("status of a ring in F1", status, RETRY)?;
                std::thread::park_timeout(Duration::from_millis(10));
                same("executions in F1", count.get(&room)?, round - 1)?;
                queue.connect()?;
                queue.wait(scene, progress)?;
                same("executions", count.get(&room)?, round)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn connected_beside(stage: &Stage) -> Played {
    for model in MODELS {
        let setup = with_components(5, model).windows(|windows| windows.faults.disconnects_beside = true);
        stage.play(setup, |scene| {
            const ROUNDS: usize = 300;
            let raw = raw(scene)?;
            let room = Room::new(&raw)?;
            let queue = RingQueue::connected(scene, &room, 0, 4096)?;
            let count = ExecutionCount::new(scene, &room)?;
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| -> Played {
                let disconnecting = scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        scene.world.os.disconnect_doorbells(scene.adapter(), true);
                        std::thread::park_timeout(Duration::from_micros(50));
                    }
                });
                let played = (1..=ROUNDS).try_for_each(|round| {
                    let progress = queue.submit_through(&count.packets())?;
                    queue.wait(scene, progress).with_context(|| format!("round {round}"))?;
                    same("executions", count.get(&room)?, round)
                });
                is_over.store(true, Ordering::Relaxed);
                disconnecting.join().map_err(|_| anyhow::anyhow!("a thread ended by itself")).and(played)
            })?;
            // A connection that came to nothing is one of the driver's, and of no one else.
            scene.until("F1", || Ok(state_of(scene, 0)? == 1))
        })?;
    }
    Ok(())
}

fn unasked(stage: &Stage) -> Played {
    for model in MODELS {
        // Its engines look for rings for ever, and ask for nothing.
        let setup = Setup::default().quick_tdr().setting("PowerComponents", 1).setting("IdleMilliseconds", 0);
        stage.play(setup.setting("DoorbellModel", model), |scene| {
            let raw = raw(scene)?;
            let room = Room::new(&raw)?;
            let queues = [RingQueue::connected(scene, &room, 0, 4096)?, RingQueue::connected(scene, &room, 0, 4096)?];
            let count = ExecutionCount::new(scene, &room)?;
            // Work without an end on the other engine.
            let (busy, fence) = (RingQueue::connected(scene, &room, 1, 4096)?, raw.native_fence(room.device, 0)?);
            let last = busy.submit_through(&[Encoded::fence_wait(GpuVa(fence.gpu), 1)])?;
            for round in 1..=3 {
                scene.until("F1", || Ok(state_of(scene, 0)? == 1))?;
                for queue in &queues {
                    same("status in F1", queue.status()?, RETRY)?;
                }
                let (progress, status) = queues[0].submit(&count.packets())?;
                same("status of a ring in F1", status, RETRY)?;
                same("executions in F1", count.get(&room)?, round - 1)?;
                // Counted: behind TdrDelay the engine is in F1 again. The other one has work, and stays.
                let before = scene.calls("DxgkDdiSetPowerComponentFState");
                queues.iter().try_for_each(RingQueue::connect)?;
                ensure!(scene.calls("DxgkDdiSetPowerComponentFState") > before, "the connections left it in F1");
                queues[0].wait(scene, progress)?;
                same("executions", count.get(&room)?, round)?;
            }
            same("the engine that has work", state_of(scene, 1)?, 0)?;
            raw.signal_cpu(room.device, &[(fence.handle, 1)])?;
            busy.wait(scene, last)?;
            scene.until("F1 of the other engine", || Ok(state_of(scene, 1)? == 1))
        })?;
    }
    // Kernel-mode queues alone: Dxgkrnl knows of all of their work.
    let setup = Setup::default().quick_tdr().setting("PowerComponents", 1).setting("IdleMilliseconds", 0);
    stage.play(setup, |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queue = KernelQueue::new(scene, &room, room.context(0)?)?;
        for round in 1..=3 {
            scene.until("F1 of both engines", || Ok((state_of(scene, 0)?, state_of(scene, 1)?) == (1, 1)))?;
            let before = scene.journal(&UNASKED).len();
            queue.submit(&room, 0, &[], round)?;
            scene.until("the work", || Ok(queue.value(&raw)? == round))?;
            same(
                "what its submission took",
                scene.journal(&UNASKED).split_off(before)[..2].to_vec(),
                UNASKED.to_vec(),
            )?;
        }
        Ok(())
    })
}

/// Of a queue that has done everything at each look, and something between any two.
fn works_between_looks(stage: &Stage) -> Played {
    const DELAY: Duration = Duration::from_secs(1);
    // An engine looks for rings for ever, and asks for nothing.
    let setup = Setup::default().setting("PowerComponents", 1).setting("IdleMilliseconds", 0);
    stage.play(setup.windows(|windows| windows.tdr.delay = SECOND), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        let (mut begun, mut last) = (Instant::now(), Instant::now());
        // Where the host has kept this from working for TdrDelay, the engine was idle.
        while begun.elapsed() < 3 * DELAY {
            let before = Instant::now();
            let (progress, status) = queue.submit(&[])?;
            if status != CONNECTED {
                ensure!(
                    last.elapsed() >= DELAY,
                    "status {status} of an engine that was given work {:?} ago",
                    last.elapsed()
                );
                queue.connect()?;
                begun = Instant::now();
            }
            queue.wait(scene, progress)?;
            last = before;
            let state = state_of(scene, 0)?;
            if before.elapsed() < DELAY {
                same("the state of an engine that has just worked", state, 0)?;
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
        scene.until("F1 without work", || Ok(state_of(scene, 0)? == 1))
    })
}

/// What brings an engine back, and what comes right behind it.
const UNASKED: [&str; 2] = ["DxgkDdiSetPowerComponentFState", "DxgkDdiSubmitCommandToHwQueue"];

fn works_in_f0(stage: &Stage) -> Played {
    for model in MODELS {
        stage.play(with_components(5, model), |scene| {
            let raw = raw(scene)?;
            let room = Room::new(&raw)?;
            let queue = idle_queue(scene, &room, 0)?;
            let count = ExecutionCount::new(scene, &room)?;
            scene.until("F1", || Ok(state_of(scene, 0)? == 1))?;
            // User mode has read RETRY, and connects nothing.
            let (progress, status) = queue.submit(&count.packets())?;
            same("status of a ring in F1", status, RETRY)?;
            queue.notify()?;
            std::thread::park_timeout(Duration::from_millis(20));
            same("the state, and executions in F1", (state_of(scene, 0)?, count.get(&room)?), (1, 0))?;
            queue.connect()?;
            queue.wait(scene, progress)?;
            // The engine sleeps, and its doorbells are gone; the queue waits for a fence.
            let gate = raw.native_fence(room.device, 0)?;
            queue.submit_through(&[Encoded::fence_wait(GpuVa(gate.gpu), 1)])?;
            let progress = queue.submit_through(&count.packets())?;
            scene.until("the doorbell's end", || Ok(queue.status()? == RETRY))?;
            std::thread::park_timeout(Duration::from_millis(300));
            same("the state of an engine whose queue waits", state_of(scene, 0)?, 0)?;
            raw.signal_cpu(room.device, &[(gate.handle, 1)])?;
            queue.wait(scene, progress)?;
            same("executions", count.get(&room)?, 2)?;
            scene.until("F1", || Ok(state_of(scene, 0)? == 1))?;
            // What a process says that it has queued, and has not, costs power for as long as it lives; others run.
            let liar = super::raw(scene)?;
            let its = Room::new(&liar)?;
            let hostile = RingQueue::connected(scene, &its, 0, 4096)?;
            hostile.tell(u64::MAX)?;
            let progress = queue.submit_through(&count.packets())?;
            queue.wait(scene, progress)?;
            scene.until("the doorbells' end", || Ok(queue.status()? == RETRY && hostile.status()? == RETRY))?;
            std::thread::park_timeout(Duration::from_millis(300));
            same("the state beside a queue that is said to have work", state_of(scene, 0)?, 0)?;
            liar.process.finish(End::Terminated);
            scene.until("F1 behind its end", || Ok(state_of(scene, 0)? == 1))
        })?;
    }
    Ok(())
}
