//! Scheduling logs of the nodes that schedule in hardware.

use super::super::client::{Client, PATIENCE, until_idle};
use super::super::{Played, Scene, Setup, Stage, same};
use anyhow::{Context, ensure};
use dxgkrnl_model::initiative::SchedulingRecord;
use dxgkrnl_model::personality::SchedulingLogs;
use std::collections::BTreeMap;
use wddm_abi::DXGK_INTERRUPT_TYPE as Type;
use wddm_abi::DXGK_SCHEDULING_LOG_CONTEXT_STATE as State;

/// Interrupts of scheduling logs that the adapter has reported.
fn interrupts(scene: &Scene) -> u64 {
    let report = scene.world.os.report();
    let kinds = report.adapters.first().map(|adapter| adapter.kinds.clone()).unwrap_or_default();
    kinds.get(&Type::DXGK_INTERRUPT_SCHEDULING_LOG_INTERRUPT).copied().unwrap_or(0)
}

fn records(scene: &Scene) -> Vec<SchedulingRecord> {
    scene.world.os.scheduling_records(scene.adapter())
}

pub(super) fn logs(stage: &Stage) -> Played {
    for entries in [1, 2, 8, 511] {
        let setup = Setup::default().windows(|windows| {
            windows.scheduling_log_entries = entries;
        });
        let play = |scene: &Scene| {
            worked(scene, 20)?;
            scene.world.os.recreate_scheduling_logs(scene.adapter());
            worked(scene, 20)?;
            if scene.adapter().personality().scheduling_logs == SchedulingLogs::None {
                // The stage's Windows gives no scheduling logs.
                return Ok(());
            }
            let due = entries < 40;
            scene.until("the interrupt", || Ok(!due || interrupts(scene) != 0))?;
            // Entries that were overwritten are lost to the model too, so only the large log is judged.
            if entries < 511 { Ok(()) } else { told(scene) }
        };
        stage.play(setup, play).with_context(|| format!("{entries} entries"))?;
    }
    stage.play(Setup::default().windows(|windows| windows.scheduling_logs = SchedulingLogs::None), |scene| {
        worked(scene, 10)?;
        same("calls without a log", scene.calls("DxgkDdiSetSchedulingLogBuffer"), 0)?;
        same("interrupts without a log", interrupts(scene), 0)
    })
}

/// Lets two queues work `rounds` times, one on each of nodes 0 and 1, until both are idle.
fn worked(scene: &Scene, rounds: u64) -> Played {
    let rig = Client::open(scene, "client")?;
    let (queues, fence, page) = ([rig.queue(0)?, rig.queue(1)?], rig.fence(0, true)?, rig.page()?);
    for round in 1..=rounds {
        for (at, queue) in (0..).zip(&queues) {
            queue.run(|list| list.store(page.at(at), round))?;
            page.until(scene, "work", at, round)?;
        }
        queues[0].run(|list| list.signal(&fence, round))?;
        fence.wait(round, Some(PATIENCE))?;
    }
    queues.iter().try_for_each(|queue| until_idle(scene, queue))
}

/// By the log, on each node at least 20 turns were taken, no two contexts ran at once, and every context is idle at the
/// end. There was more work than that, but what comes soon finds the context running.
fn told(scene: &Scene) -> Played {
    let all = records(scene);
    for node in 0..2 {
        let mut states = BTreeMap::new();
        let mut turns = 0;
        for entry in all.iter().filter(|entry| entry.node == node) {
            states.insert(entry.context, entry.state);
            let running = |state: &&i32| **state == State::DXGK_SCHEDULING_LOG_CONTEXT_STATE_RUNNING.0;
            turns += u64::from(running(&&entry.state));
            let at_once = states.values().filter(running).count();
            ensure!(at_once <= 1, "node {node}: {at_once} contexts run at {}", entry.time);
        }
        ensure!(turns >= 20, "node {node}: {turns} turns");
        let idle = states.values().all(|state| *state == State::DXGK_SCHEDULING_LOG_CONTEXT_STATE_IDLE.0);
        ensure!(idle, "node {node}: {states:?} after everything was done");
    }
    Ok(())
}
