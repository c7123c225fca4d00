//! Group TA: the reset of the adapter.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

mod lost;

use super::db::{ABORT, RingQueue, Room, raw, store};
use super::rig::{Rig, returned};
use super::te::Hog;
use super::te::hardware::{ACTIVE, controller, force, recovered, works};
use super::{Denied, Played, Scenario, Scene, Setup, Stage, same};
use crate::wrap::own;
use anyhow::{Context, ensure};
use dxgkrnl_model::adapter::{PacketEvent, Reason, Step, What};
use dxgkrnl_model::driver::Decorator;
use dxgkrnl_model::personality::{Gate, MS};
use nt_model::rules::Violation;
use std::sync::atomic::{AtomicU64, Ordering};
use umd_core::ffi::types::FP_QUEUE_KERNEL_MODE;
use wddm_abi::ntstatus::{STATUS_ACCESS_DENIED, STATUS_SUCCESS, STATUS_UNSUCCESSFUL};
use wddm_abi::{DXGKARG_ESCAPE, HANDLE, NTSTATUS};

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
        play: stuck,
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
        title: "more resets than TdrLimitCount within TdrLimitTime are bug check 0x116, unless limits are off",
        source: "Testing and debugging TDR, TdrLimitCount, TdrLimitTime; D3DKMT_TDRDBGCTRLTYPE_UNCONDITIONAL",
        play: limit,
    },
    Scenario {
        id: "TA-07",
        title: "a process that hangs too often makes no device any more, until it is started again",
        source: "live dump 0x142; WHLK, Multiple TDR Lockout and Recovery",
        play: lockout,
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
        title: "a driver without resets of engines: the whole adapter is reset, for another reason",
        source: "DXGK_TDR_TYPE, PREEMPT_TIMEOUT; DXGK_DRIVERCAPS, SupportPerEngineTDR",
        play: no_engine_resets,
    },
    Scenario {
        id: "TA-13",
        title: "the first preemption behind a reset names what the reset has ended as the last completed fence",
        source: "TDR changes in Windows 8, calling sequence (the last completed fence behind resets)",
        play: watermark,
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
        let calls = AtomicU64::new(0);
        std::thread::scope(|scope| -> Played {
            let reset = scope.spawn(|| force(&control, None));
            let stopped = scene.until("the first half of the reset", || Ok(gate.came() == 1)).and_then(|()| {
                // From here on an engine that still ran would store its word again.
                for slot in 0..nodes.len() as u64 {
                    hog.clear(slot)?;
                }
                let before: u64 = scene.adapter().ddi_calls().values().sum();
                // An interrupt of another device on the line, and a section at the device's level: both may come.
                scene.world.os.probe_foreign_interrupt(scene.adapter());
                scene.world.os.hold_interrupts(scene.adapter(), || ()).context("no interrupt is connected")?;
                for _ in 0..20 {
                    for slot in 0..nodes.len() as u64 {
                        ensure!(!hog.has_begun(slot)?, "memory is touched before the restart");
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

/// In how many plays of the case a thread is to stay in the driver.
static STAYS: AtomicU64 = AtomicU64::new(0);

crate::decorate! {
    /// Comes back when it is let go.
    stays: DxgkDdiEscape(adapter: HANDLE, args: *const DXGKARG_ESCAPE) -> NTSTATUS {
        while STAYS.load(Ordering::Acquire) != 0 {
            std::thread::park_timeout(std::time::Duration::from_millis(1));
        }
        own!(DxgkDdiEscape(adapter, args))
    }

    refuses_reset: DxgkDdiResetFromTimeout(adapter: HANDLE) -> NTSTATUS {
        _ = own!(DxgkDdiResetFromTimeout(adapter));
        STATUS_UNSUCCESSFUL
    }

    refuses_restart: DxgkDdiRestartFromTimeout(adapter: HANDLE) -> NTSTATUS {
        _ = own!(DxgkDdiRestartFromTimeout(adapter));
        STATUS_UNSUCCESSFUL
    }
}

fn stuck(stage: &Stage) -> Played {
    let setup = Setup::default().quick_tdr().resets(1).with_driver(stays).breaks(&["DXG-TDR-DDI-DELAY"]);
    stage.play(setup.windows(|windows| windows.tdr.ddi_delay = 300 * MS), |scene| {
        let (control, caller) = (controller(scene)?, Rig::open(scene, "calls")?);
        STAYS.fetch_add(1, Ordering::AcqRel);
        std::thread::scope(|scope| -> Played {
            let call = scope.spawn(|| crate::demo::counters::read(&caller.user, scene.adapter().luid()).map(|_| ()));
            let inside = scene.until("a thread in the driver", || Ok(scene.calls("DxgkDdiEscape") >= 1));
            let _the_system_stops = force(&control, None);
            STAYS.fetch_sub(1, Ordering::AcqRel);
            let _abandoned = call.join().map_err(|_| anyhow::anyhow!("a panic"))?;
            inside
        })?;
        let all = scene.world.os.kernel().rules.violations();
        let found = all.iter().find(|one| one.rule.name == "DXG-TDR-DDI-DELAY").context("no violation")?;
        stopped(found, 1)?;
        ensure!(scene.world.os.kernel().rules.is_stopped(), "the machine runs on");
        same("resets", scene.calls("DxgkDdiResetFromTimeout"), 0)
    })?;
    for (what, driver) in [("the first half", refuses_reset as Decorator), ("the second half", refuses_restart)] {
        let setup = Setup::default().resets(1).with_driver(driver).breaks(&["DXG-TDR-ADAPTER"]);
        let play = |scene: &Scene| {
            let control = controller(scene)?;
            let _the_system_stops = force(&control, None);
            let all = scene.world.os.kernel().rules.violations();
            let found = all.iter().find(|one| one.rule.name == "DXG-TDR-ADAPTER").context("no violation")?;
            // As debuggers show it.
            let status = i64::from(STATUS_UNSUCCESSFUL.0).cast_unsigned();
            same("bug check and status", (found.code, found.params[2]), (0x116, status))?;
            ensure!(found.params[1] != 0, "no pointer into the driver");
            Ok(())
        };
        stage.play(setup, play).with_context(|| format!("{what} fails"))?;
    }
    Ok(())
}

/// Bug check 0x116, a pointer into the driver, no status of a function that failed, and `count`.
fn stopped(found: &Violation, count: u64) -> Played {
    let [_, driver, status, counted] = found.params;
    same("bug check, status and count", (found.code, status, counted), (0x116, 0, count))?;
    ensure!(driver != 0, "no pointer into the driver");
    Ok(())
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

fn limit(stage: &Stage) -> Played {
    // Six within the time: the system stops at the sixth.
    let setup = Setup::default().resets(6).breaks(&["DXG-TDR-LIMIT"]);
    stage.play(setup, |scene| {
        let control = controller(scene)?;
        for _ in 0..6 {
            let _the_last_stops_the_system = force(&control, None);
        }
        let all = scene.world.os.kernel().rules.violations();
        let found = all.iter().find(|one| one.rule.name == "DXG-TDR-LIMIT").context("no violation")?;
        stopped(found, 6)?;
        ensure!(scene.world.os.kernel().rules.is_stopped(), "the machine runs on");
        Ok(())
    })?;
    // Five, and ten without the condition.
    for (count, unconditional) in [(5, false), (10, true)] {
        stage.play(Setup::default().resets(count), |scene| {
            let control = controller(scene)?;
            if unconditional {
                same("the escape", super::te::unconditional(&control), STATUS_SUCCESS)?;
            }
            for _ in 0..count {
                same("the escape", force(&control, None), STATUS_SUCCESS)?;
            }
            works(scene)
        })?;
    }
    Ok(())
}

/// A process hangs as often as it may, and once more.
fn lockout(stage: &Stage) -> Played {
    const LIMIT: u32 = 2;
    let node = if stage.rung() == 0 { 0 } else { 2 };
    let setup = Setup::default().quick_tdr().setting("PreemptInBuffers", 0).resets(u64::from(LIMIT) + 1);
    stage.play(setup.windows(|windows| windows.tdr.process_limit = LIMIT), |scene| {
        let process = raw(scene)?;
        for round in 0..=LIMIT {
            ensure!(!process.process.is_blocked(), "blocked after {round} hangs");
            let hog = Hog::new(scene, &process, &[node])?;
            hog.spin(node, 0)?;
            scene.until("the loss of the device", || Ok(!hog.is_active()?))?;
        }
        scene.until("the block", || Ok(process.process.is_blocked()))?;
        let blocked = |event: &str| event.contains("0x142");
        let report = scene.world.os.report();
        ensure!(report.events.iter().any(|event| blocked(&event.text)), "0x142 is not reported");
        same("a device of the blocked process", process.device(), Err(Denied(STATUS_ACCESS_DENIED)))?;
        // The application is started again: another process.
        let again = raw(scene)?;
        let hog = Hog::new(scene, &again, &[node])?;
        hog.short(node, 0)?;
        scene.until("work of the process that was started again", || hog.has_ended(0))?;
        works(scene)
    })
}

fn asleep(stage: &Stage) -> Played {
    const ROUNDS: u64 = 5;
    stage.play(Setup::default().resets(ROUNDS), |scene| {
        let control = controller(scene)?;
        for round in 0..ROUNDS {
            let rig = Rig::open(scene, "busy")?;
            let (queue, page) = (rig.queue(0)?, rig.page()?);
            queue.run(|list| list.store(page.at(0), 1))?;
            std::thread::scope(|scope| -> Played {
                let power = scope.spawn(|| {
                    for _ in 0..3 {
                        scene.world.os.set_adapter_power(scene.adapter(), false);
                        scene.world.os.set_adapter_power(scene.adapter(), true);
                    }
                });
                let forced = force(&control, None);
                power.join().map_err(|_| anyhow::anyhow!("a panic"))?;
                same("the escape", forced, STATUS_SUCCESS)
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
        let rig = Rig::open(scene, "client")?;
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
            let rig = Rig::open(scene, "beside")?;
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
    let setup = Setup::default().quick_tdr().setting("PreemptInBuffers", 0).setting("PerEngineTdr", 0).resets(1);
    stage.play(setup, |scene| {
        let process = raw(scene)?;
        let hog = Hog::new(scene, &process, &[node])?;
        hog.spin(node, 0)?;
        scene.until("the loss of the device", || Ok(!hog.is_active()?))?;
        let all = recovered(scene, 2)?;
        let last = all.iter().find(|one| one.what == What::Adapter).context("no adapter reset")?;
        same("the reason", (last.reason, last.reason.tdr_reason()), (Reason::NoEngineReset, 2))?;
        same("engine resets", scene.calls("DxgkDdiResetEngine"), 0)?;
        works(scene)
    })
}

/// A packet runs while its engine, and then the adapter, is reset. The next one is preempted before it completes: the
/// model knows which fence the driver must name.
fn watermark(stage: &Stage) -> Played {
    let node = if stage.rung() == 0 { 0 } else { 2 };
    for engine in [Some(node), None] {
        stage.play(Setup::default().quick_tdr().resets(1).setting("PreemptInBuffers", 1), |scene| {
            let (control, first, second) = (controller(scene)?, raw(scene)?, raw(scene)?);
            let hog = Hog::new(scene, &first, &[node])?;
            hog.spin(node, 0)?;
            hog.begins(scene, 0)?;
            // A second packet waits behind it, with the driver.
            let given = || scene.adapter().packet_journal(node).iter().filter(|event| is_submission(event)).count();
            let before = given();
            hog.short(node, 1)?;
            scene.until("a second packet with the driver", || Ok(given() > before))?;
            same("the escape", force(&control, engine), STATUS_SUCCESS)?;
            scene.until("the loss of the device", || Ok(!hog.is_active()?))?;
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
