//! Group TA: the reset of the adapter.

mod counted;
mod kept;
mod limit;
mod lost;
mod stuck;
mod unarmed;

use super::client::{Client, returned};
use super::db::{ABORT, KernelQueue, RingQueue, Room, raw, store};
use super::te::hardware::{ACTIVE, controller, force, recovered, works};
use super::te::{self, Hog};
use super::{Played, Scenario, Scene, Setup, Stage, same};
use anyhow::{Context, ensure};
use dxgkrnl_model::adapter::{PacketEvent, Reason, Step, What};
use dxgkrnl_model::personality::{Gate, MS};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use umd_core::ffi::types::FP_QUEUE_KERNEL_MODE;
use wddm_abi::ntstatus::STATUS_SUCCESS;
use wddm_abi::{D3DKMT_DEVICEEXECUTION_STATE as State, DXGK_PAGE_FAULT_FLAGS};

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "TA-01",
        title: "the adapter's reset, step by step: nobody is in the driver, nothing touches memory until the restart, \
                interrupts may come meanwhile",
        source: "Thread synchronization and TDR; Timeout detection and recovery",
        play: order,
    },
    Scenario {
        id: "TA-03",
        title: "a thread that stays in the driver for longer than TdrDdiDelay, and a reset that fails, are bug check 0x116",
        source: "Testing and debugging TDR, TdrDdiDelay; bug check 0x116, parameters",
        play: stuck::comes_back,
    },
    Scenario {
        id: "TA-04",
        title: "local memory loses its content in the adapter's reset: transfers of no bytes say so, page tables begin \
                anew, and what is made anew works",
        source: "Thread synchronization and TDR; System paging process; docs/settings.md, FaultLoseMemory",
        play: lost::memory,
    },
    Scenario {
        id: "TA-05",
        title: "user-mode queues in an adapter reset: every doorbell is ABORT, and what is made anew works",
        source: "User-mode work submission, doorbell status",
        play: doorbells,
    },
    Scenario {
        id: "TA-06",
        title: "more resets than TdrLimitCount within TdrLimitTime are bug check 0x116, unless limits are off; a process \
                that hangs the adapter is blocked before",
        source: "Testing and debugging TDR, TdrLimitCount, TdrLimitTime; D3DKMT_TDRDBGCTRLTYPE_UNCONDITIONAL; live dump \
                 0x142",
        play: limit::resets,
    },
    Scenario {
        id: "TA-07",
        title: "a process that hangs too often makes no device any more, until it is started again",
        source: "live dump 0x142; WHLK, Multiple TDR Lockout and Recovery",
        play: limit::processes,
    },
    Scenario {
        id: "TA-08",
        title: "adapter resets and D3 at once: one behind the other, and the adapter works in the end",
        source: "DxgkDdiSetPowerState; Thread synchronization and TDR (inferred)",
        play: asleep,
    },
    Scenario {
        id: "TA-10",
        title: "what user mode sees of a reset: a device that is not active, fences that read as passed, waits that end",
        source: "intel/compute-runtime, WDDM; D3DKMTGetDeviceState; D3DKMTWaitForSynchronizationObjectFromCpu",
        play: user_mode,
    },
    Scenario {
        id: "TA-11",
        title: "simulated timeouts, one behind another, beside work that is made anew each time",
        source: "WHLK, Simulate Preemption TDR; D3DKMT_TDRDBGCTRLTYPE",
        play: simulated,
    },
    Scenario {
        id: "TA-12",
        title: "a driver without resets of engines: the whole adapter is reset, for the reason of a timeout, of a fault or \
                of user mode's wish",
        source: "DXGK_TDR_TYPE, PREEMPT_TIMEOUT, PAGE_FAULT, FORCED; DXGK_DRIVERCAPS, SupportPerEngineTDR",
        play: no_engine_resets,
    },
    Scenario {
        id: "TA-13",
        title: "the first preemption behind a reset names what the reset has ended as the last completed fence",
        source: "TDR changes in Windows 8, calling sequence (the last completed fence behind resets)",
        play: watermark,
    },
    Scenario {
        id: "TA-20",
        title: "a thread that never leaves the driver is bug check 0x116 after TdrDdiDelay, with a pointer into the driver, \
                no status and how many threads there are",
        source: "Testing and debugging TDR, TdrDdiDelay; bug check 0x116, parameters",
        play: stuck::never,
    },
    Scenario {
        id: "TA-21",
        title: "one process after another hangs an engine that cannot be reset, and memory is lost with each reset of the \
                adapter: the system stops at the one behind TdrLimitCount",
        source: "Testing and debugging TDR, TdrLimitCount; docs/settings.md, FaultLoseMemory",
        play: limit::again,
    },
    Scenario {
        id: "TA-22",
        title: "the newest id is a preemption's when the adapter is reset: what the driver names as last completed is \
                known, whether preemptions count as submitted or not",
        source: "TDR changes in Windows 8, calling sequence (last submitted); DxgkDdiPreemptCommand, Remarks",
        play: counted::preemptions,
    },
    Scenario {
        id: "TA-23",
        title: "settings that break the GPU on purpose do nothing on a machine that runs no code which is signed for tests, \
                and the driver says so",
        source: "docs/settings.md, Test signing; SYSTEM_CODEINTEGRITY_INFORMATION, CODEINTEGRITY_OPTION_TESTSIGN",
        play: unarmed::faults,
    },
    Scenario {
        id: "TA-24",
        title: "a function of the driver's that keeps the scheduler itself, which would look for what makes no progress: \
                another thread looks, and the system stops with bug check 0x116 and the function's name",
        source: "Testing and debugging TDR, TdrDelay, TdrDdiDelay; bug check 0x116 (which of the OS's threads looks is \
                 not said)",
        play: kept::scheduler,
    },
];

/// Packet nodes spin while the adapter is reset; between the two calls they store nothing.
fn order(stage: &Stage) -> Played {
    let nodes: &[u32] = if stage.rung() == 0 { &[0, 1, 2] } else { &[2] };
    let gate = Gate::default();
    let setup = Setup::default().resets(1).setting("PreemptInBuffers", 1);
    stage.play(setup.windows(|windows| windows.gates.restart = Some(gate.clone())), |scene| {
        let (control, other) = (controller(scene)?, raw(scene)?);
        let hog = Hog::new(scene, &other, nodes)?;
        for (slot, node) in (0..).zip(nodes) {
            hog.spin(*node, slot)?;
            hog.begins(scene, slot)?;
        }
        // Nodes that are scheduled by the hardware are busy as well.
        let room = Room::new(&other)?;
        let hardware = if stage.rung() == 0 { 0..0 } else { 0..2 };
        let queue = |node| -> anyhow::Result<_> {
            let queue = KernelQueue::new(scene, &room, room.context(node)?)?;
            queue.spin(&room, 0, None, 1)?;
            queue.runs(scene, &other)?;
            Ok(queue)
        };
        let queues = hardware.map(queue).collect::<anyhow::Result<Vec<_>>>()?;
        let calls = AtomicU64::new(0);
        std::thread::scope(|scope| -> Played {
            let reset = scope.spawn(|| force(&control, None));
            let stopped = scene.until("the first half of the reset", || Ok(gate.came() == 1)).and_then(|()| {
                // From here on an engine that still ran would store its word again.
                for slot in 0..nodes.len() as u64 {
                    hog.clear(slot)?;
                }
                for queue in &queues {
                    other.store(queue.runs_at()?, 0)?;
                }
                let before: u64 = scene.adapter().ddi_calls().values().sum();
                // An interrupt of another device on the line, and a section at the device's level: both may come.
                scene.world.os.probe_foreign_interrupt(scene.adapter());
                scene.world.os.hold_interrupts(scene.adapter(), || ()).context("no interrupt is connected")?;
                for _ in 0..20 {
                    for slot in 0..nodes.len() as u64 {
                        ensure!(!hog.has_begun(slot)?, "memory is touched before the restart");
                    }
                    for queue in &queues {
                        ensure!(other.load(queue.runs_at()?)? == 0, "a queue touches memory before the restart");
                    }
                    std::thread::yield_now();
                }
                let after: u64 = scene.adapter().ddi_calls().values().sum();
                calls.store(after - before, Ordering::Relaxed);
                Ok(())
            });
            gate.let_through();
            let status = reset.join().map_err(|_| anyhow::anyhow!("a panic"))?;
            stopped?;
            same("the escape", status, STATUS_SUCCESS)
        })?;
        let recovery = recovered(scene, 1)?.remove(0);
        same("what", (recovery.what, recovery.reason), (What::Adapter, Reason::Forced))?;
        let steps = [
            Step::DebugInfo(0x117),
            Step::ThreadsLeft,
            Step::ResetFromTimeout(STATUS_SUCCESS),
            Step::Evicted(0),
            Step::RestartFromTimeout(STATUS_SUCCESS),
            Step::InterruptsEnabled,
        ];
        ensure!(recovery.steps.starts_with(&steps), "{recovery}");
        // The interrupt routine is no gated function: it alone may have been called.
        ensure!(calls.load(Ordering::Relaxed) <= 1, "functions of the driver were called between the halves");
        works(scene)
    })
}

fn doorbells(stage: &Stage) -> Played {
    stage.play(Setup::default().resets(1), |scene| {
        let (control, one, two) = (controller(scene)?, raw(scene)?, raw(scene)?);
        let rooms = [Room::new(&one)?, Room::new(&two)?];
        let mut queues = Vec::new();
        for room in &rooms {
            for node in 0..2 {
                queues.push(RingQueue::connected(scene, room, node, 65536)?);
            }
        }
        same("the escape", force(&control, None), STATUS_SUCCESS)?;
        for (number, queue) in queues.iter().enumerate() {
            // The status page is there still, and says it.
            scene.until("ABORT", || Ok(queue.status()? == ABORT)).with_context(|| format!("queue {number}"))?;
            ensure!(queue.connect().is_err(), "queue {number} connects again");
        }
        for room in &rooms {
            ensure!(!room.is_active()?, "a device is active behind the reset");
        }
        let next = Room::new(&one)?;
        let memory = next.memory(scene, 4096)?;
        let again = RingQueue::connected(scene, &next, 1, 65536)?;
        again.submit_through(&[store(memory.gpu, 9)])?;
        scene.until("work of a new queue", || Ok(one.load(memory.cpu)? == 9))
    })
}

fn asleep(stage: &Stage) -> Played {
    const ROUNDS: u64 = 5;
    let gate = Gate::default();
    let setup = Setup::default().windows(|windows| windows.gates.restart = Some(gate.clone()));
    stage.play(setup.resets(ROUNDS), |scene| {
        let control = controller(scene)?;
        for round in 0..ROUNDS {
            let rig = Client::open(scene, "busy")?;
            let (queue, page) = (rig.queue(0)?, rig.page()?);
            queue.run(|list| list.store(page.at(0), 1))?;
            // Changes of power that are over, and whether one is under way.
            let (changes, amid, is_over) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
            // The last reset stops in its middle until a change of power is under way beside it.
            let stops = round + 1 == ROUNDS;
            gate.open(!stops);
            std::thread::scope(|scope| -> Played {
                let power = scope.spawn(|| {
                    for round in 0.. {
                        amid.store(true, Ordering::Release);
                        scene.world.os.set_adapter_power(scene.adapter(), false);
                        scene.world.os.set_adapter_power(scene.adapter(), true);
                        amid.store(false, Ordering::Release);
                        changes.fetch_add(1, Ordering::Release);
                        if round >= 3 && is_over.load(Ordering::Acquire) {
                            break;
                        }
                    }
                });
                let begun = scene.until("a change of power", || Ok(changes.load(Ordering::Acquire) != 0));
                // The thread is amid changes from here on until the reset is over.
                let reset = scope.spawn(|| force(&control, None));
                let beside = || -> Played {
                    scene.until("the middle of the reset", || Ok(gate.came() == 1))?;
                    scene.until("a change of power beside the reset", || Ok(amid.load(Ordering::Acquire)))
                };
                let beside = if stops { beside() } else { Ok(()) };
                gate.open(true);
                let forced = reset.join();
                is_over.store(true, Ordering::Release);
                power.join().map_err(|_| anyhow::anyhow!("a panic"))?;
                begun?;
                beside?;
                same("the escape", forced.map_err(|_| anyhow::anyhow!("a panic"))?, STATUS_SUCCESS)
            })
            .with_context(|| format!("round {round}"))?;
            works(scene).with_context(|| format!("round {round}"))?;
        }
        Ok(())
    })
}

fn user_mode(stage: &Stage) -> Played {
    stage.play(Setup::default().resets(1), |scene| {
        let control = controller(scene)?;
        let rig = Client::open(scene, "client")?;
        let (queue, fence) = (rig.queue_for(stage.rung() == 3)?, rig.fence(5, true)?);
        let (event, blocked) = (rig.wait(&[(&fence, 9)], false)?, rig.block(&[(&fence, 9)], false)?);
        let other = rig.fence(0, true)?;
        queue.run(|list| list.wait(&other, 1))?;
        same("the escape", force(&control, None), STATUS_SUCCESS)?;
        scene.until("the device's loss", || Ok(rig.device.state()?.execution != ACTIVE))?;
        // All ones: what a waiter in user mode looks for.
        scene.until("the fence's last value", || Ok(rig.value(&fence)? == u64::MAX))?;
        // A wait of a device that is lost ends, with whatever result; one that sets an event may have been another's.
        let _result = returned("a thread that waits", &blocked)?;
        drop(event);
        // The user-mode driver's own wait ends, and says why.
        let ended = queue.wait(0, Some(std::time::Duration::from_secs(20)));
        ensure!(ended.is_err_and(|refused| !format!("{refused:?}").contains("TIMEOUT")), "the wait ended as if well");
        ensure!(queue.run(|list| list.nop(8)).is_err(), "the queue takes work of a lost device");
        works(scene)
    })
}

fn simulated(stage: &Stage) -> Played {
    const ROUNDS: u32 = 3;
    // What comes off by itself may be off at the moment of the reset, which then takes nothing along.
    let setup = Setup::default().resets(u64::from(ROUNDS) * 2).setting("PreemptInBuffers", 0);
    stage.play(setup, |scene: &Scene| {
        let control = controller(scene)?;
        for round in 0..ROUNDS {
            let rig = Client::open(scene, "beside")?;
            let other = rig.device.queue(1, 64 << 10, FP_QUEUE_KERNEL_MODE, 0)?;
            let page = rig.page()?;
            let run = super::te::Loop::new(&rig)?;
            let busy = rig.device.queue(0, 64 << 10, FP_QUEUE_KERNEL_MODE, 0)?;
            busy.run(|list| list.indirect(run.address, run.length))?;
            run.begins(scene)?;
            other.run(|list| list.store(page.at(0), 1))?;
            page.until(scene, "work of the other engine", 0, 1)?;
            same("an engine's timeout", force(&control, Some(0)), STATUS_SUCCESS)?;
            scene.until("the loss of the device that ran", || Ok(rig.device.state()?.execution != ACTIVE))?;
            works(scene).with_context(|| format!("behind the engine's reset, round {round}"))?;
            same("the adapter's", force(&control, None), STATUS_SUCCESS)?;
            works(scene).with_context(|| format!("behind the adapter's reset, round {round}"))?;
        }
        Ok(())
    })
}

fn no_engine_resets(stage: &Stage) -> Played {
    let node = if stage.rung() == 0 { 0 } else { 2 };
    type Cause = fn(&Scene, u32, &Hog<'_>) -> Played;
    let timeout: Cause = |_, node, hog| hog.spin(node, 0);
    let wish: Cause = |scene, node, hog| {
        let control = controller(scene)?;
        hog.spin(node, 0)?;
        hog.begins(scene, 0)?;
        same("the escape", force(&control, Some(node)), STATUS_SUCCESS)
    };
    let fault: Cause = |scene, node, hog| {
        te::faults::ask(scene, DXGK_PAGE_FAULT_FLAGS::DXGK_PAGE_FAULT_ENGINE_RESET_REQUIRED.0);
        hog.stray(node, 0, te::faults::NOWHERE)
    };
    let causes = [
        ("a timeout", timeout, (Reason::NoEngineReset, 2), true),
        ("user mode's wish", wish, (Reason::Forced, 1), true),
        ("a fault", fault, (Reason::AdapterFault, 10), false),
    ];
    for (what, cause, reason, hangs) in causes {
        let setup = if what == causes[0].0 { Setup::default().quick_tdr() } else { Setup::default() };
        let setup = setup.setting("PreemptInBuffers", 0).setting("PerEngineTdr", 0).resets(1);
        let play = |scene: &Scene| {
            let (process, other) = (raw(scene)?, raw(scene)?);
            let (hog, beside) = (Hog::new(scene, &process, &[node])?, Hog::new(scene, &other, &[node])?);
            cause(scene, node, &hog)?;
            scene.until("the loss of the device", || Ok(!hog.is_active()?))?;
            let wanted = if hangs { 2 } else { 1 };
            // A timeout and a wish begin as the engine's.
            let all = recovered(scene, wanted)?;
            let last = all.iter().find(|one| one.what == What::Adapter).context("no adapter reset")?;
            same("the reason", (last.reason, last.reason.tdr_reason()), reason)?;
            same("engine resets", scene.calls("DxgkDdiResetEngine"), 0)?;
            // The one that hangs is told from those that were merely reset.
            let state = |of: &Hog<'_>| Ok::<_, anyhow::Error>(of.state()?.0);
            scene.until("the loss beside it", || Ok(!beside.is_active()?))?;
            same("the device beside it", state(&beside)?, State::D3DKMT_DEVICEEXECUTION_RESET.0)?;
            if hangs {
                same("the device that hangs", state(&hog)?, State::D3DKMT_DEVICEEXECUTION_HUNG.0)?;
            }
            te::faults::ask(scene, 0);
            works(scene)
        };
        stage.play(setup.with_driver(te::faults::asks), play).context(what)?;
    }
    Ok(())
}

/// As many as there may be without the system's stop.
const MOST_RESETS: u64 = 4;

/// A packet runs while its engine, and then the adapter, is reset. The next one is preempted before it completes: the
/// model knows which fence the driver must name.
fn watermark(stage: &Stage) -> Played {
    let node = if stage.rung() == 0 { 0 } else { 2 };
    for engine in [Some(node), None] {
        let setup = Setup::default().quick_tdr().resets_within(1..=MOST_RESETS);
        // A packet is on its engine for most of the time, so that a reset finds it there.
        let setup = setup.windows(|windows| windows.preemption.slice = (15 * MS, 25 * MS));
        stage.play(setup.setting("PreemptInBuffers", 1), |scene| {
            let (control, first, second) = (controller(scene)?, raw(scene)?, raw(scene)?);
            let hog = Hog::new(scene, &first, &[node])?;
            hog.spin(node, 0)?;
            hog.begins(scene, 0)?;
            // A second packet waits behind it, with the driver.
            let given = || scene.adapter().packet_journal(node).iter().filter(|event| is_submission(event)).count();
            let before = given();
            hog.short(node, 1)?;
            scene.until("a second packet with the driver", || Ok(given() > before))?;
            // A reset that finds the packet off the engine, as it is behind each preemption, takes nothing along.
            let resets = || scene.adapter().recoveries().iter().filter(|one| one.is_over).count() as u64;
            while resets() == 0 || hog.is_active()? {
                let before = resets();
                ensure!(before < MOST_RESETS, "the device was not lost by {before} resets");
                same("the escape", force(&control, engine), STATUS_SUCCESS)?;
                scene.until("the reset", || Ok(resets() > before))?;
            }
            let next = Hog::new(scene, &second, &[node])?;
            let answers = || {
                let journal = scene.adapter().packet_journal(node);
                let behind = journal.iter().rev().take_while(|event| !matches!(event, PacketEvent::Reset { .. }));
                behind.filter(|event| matches!(event, PacketEvent::Preempted { .. })).count()
            };
            next.spin(node, 0)?;
            scene.until("a preemption behind the reset", || Ok(answers() != 0))?;
            next.end(0)?;
            scene.until("the end of the packet", || next.has_ended(0))?;
            ensure!(next.is_active()?, "the device behind the reset is lost");
            Ok(())
        })?;
    }
    Ok(())
}

fn is_submission(event: &PacketEvent) -> bool {
    matches!(event, PacketEvent::Submitted { .. })
}
