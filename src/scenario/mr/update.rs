//! The two functions that update values.

use super::race::{Dice, dawdle};
use crate::scenario::rig::{Rig, native_interrupts, until_idle};
use crate::scenario::{Played, Scene, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::pci::{DeviceKind, InterruptModel};
use dxgkrnl_model::personality::MS;
use nt_model::InterruptDelivery;

const UPDATE_MONITORED: &str = "DxgkDdiUpdateMonitoredValues";
const UPDATE_CURRENT: &str = "DxgkDdiUpdateCurrentValuesFromCpu";

/// How often a rule was evaluated.
fn evaluations(scene: &Scene, rule: &str) -> u64 {
    scene.world.os.report().rules.iter().find(|report| report.rule.name == rule).map_or(0, |report| report.evaluations)
}

/// Waits and signals in turn, from the CPU and from a queue.
fn exercise(scene: &Scene, rig: &Rig, rounds: u64) -> Played {
    let queue = rig.queue(0)?;
    let fences: Vec<_> = (0..8).map(|_| rig.fence(0, true)).collect::<Result<_>>()?;
    for round in 1..=rounds {
        let waits: Vec<_> = fences.iter().map(|fence| rig.wait(&[(fence, round)], false)).collect::<Result<_>>()?;
        let (by_cpu, by_gpu) = fences.split_at(4);
        queue.run(|list| by_gpu.iter().try_for_each(|fence| list.signal(fence, round)))?;
        let signals: Vec<_> = by_cpu.iter().map(|fence| (fence, round)).collect();
        rig.signal(&signals)?;
        for wait in &waits {
            wait.comes(rig, &format!("round {round}"))?;
        }
        for fence in &fences {
            same("CurrentValue", rig.value(fence)?, round)?;
        }
    }
    until_idle(scene, &queue)
}

pub(super) fn addresses(stage: &Stage) -> Played {
    for map in [0, 1] {
        stage.play(Setup::default().setting("MapToGpuSystemProcess", map), |scene| {
            let rig = Rig::open(scene, "client")?;
            exercise(scene, &rig, 40)?;
            let (calls, looks) = (scene.calls(UPDATE_MONITORED), evaluations(scene, "DXG-NF-ADDRESS-CACHED"));
            ensure!(calls >= 8 * 40, "{calls} updates of MonitoredValue");
            same("batches from the CPU", scene.calls(UPDATE_CURRENT), 40)?;
            // The address is another one each time, and one that is over leads nowhere.
            ensure!(looks >= calls, "{looks} looks at addresses for {calls} calls");
            Ok(())
        })?;
    }
    Ok(())
}

pub(super) fn levels(stage: &Stage) -> Played {
    for model in [InterruptModel::Line, InterruptModel::Message, InterruptModel::SynchronizedOnly] {
        let mut setup = Setup::default().windows(|personality| personality.police_ddi = 250 * MS);
        setup.adapter.device.interrupts = model;
        if model == InterruptModel::SynchronizedOnly {
            setup.adapter.device.kind = DeviceKind::Root;
        }
        let played = stage.play(setup, |scene| {
            let rig = Rig::open(scene, "client")?;
            let before = evaluations(scene, "DXG-DDI-TIME");
            exercise(scene, &rig, 20)?;
            ensure!(scene.calls(UPDATE_MONITORED) >= 8 * 20 && scene.calls(UPDATE_CURRENT) >= 20, "too few updates");
            ensure!(evaluations(scene, "DXG-DDI-TIME") > before, "nobody looked at the clock");
            for rule in ["NT-IRQL", "NT-IRQL-RETURN", "DXG-NF-MONITORED-STATUS", "DXG-NF-CURRENT-STATUS"] {
                ensure!(evaluations(scene, rule) > 0, "{rule} was not looked at");
            }
            Ok(())
        });
        played.with_context(|| format!("{model:?}"))?;
    }
    Ok(())
}

pub(super) fn exclusion(stage: &Stage) -> Played {
    let mut dice = Dice::new(stage.seed());
    let deliveries = [InterruptDelivery::Inline, InterruptDelivery::Remote, InterruptDelivery::Seeded(stage.seed())];
    for delivery in deliveries {
        let setup = Setup::default().quick_tdr().windows(|personality| personality.interrupt_delivery = delivery);
        let seeds = [dice.below(1 << 20), dice.below(1 << 20)];
        let played = stage.play(setup, |scene| concurrent(scene, seeds));
        played.with_context(|| format!("{delivery:?}"))?;
    }
    Ok(())
}

/// Rounds of each of two threads.
const ROUNDS: u64 = 100;

/// Two threads wait for one fence while two engines signal it and others.
fn concurrent(scene: &Scene, seeds: [u64; 2]) -> Played {
    let rig = Rig::open(scene, "client")?;
    let peek = rig.peek()?;
    let shared = rig.fence(0, true)?;
    let side = |thread: usize| -> Played {
        let mut dice = Dice::new(seeds[thread]);
        // CAST: 0 or 1.
        let queue = rig.queue(thread as u32)?;
        let own = rig.fence(0, true)?;
        for round in 1..=ROUNDS {
            let mine = rig.wait(&[(&own, round)], false)?;
            let far = rig.wait(&[(&shared, 1 << 40), (&own, round)], true)?;
            let pause = dice.below(2000);
            queue.run(|list| list.signal(&own, round))?;
            dawdle(pause);
            mine.comes(&rig, &format!("round {round}"))?;
            far.comes(&rig, &format!("round {round}, any of two"))?;
            rig.raw.close(mine.handle);
            rig.raw.close(far.handle);
        }
        until_idle(scene, &queue)
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| side(1));
        side(0).and(other.join().map_err(|_| anyhow::anyhow!("a panic")).flatten())
    })?;
    // Nobody waits any more: MonitoredValue says so, whoever came last.
    peek.becomes(scene, &shared, u64::MAX)?;
    ensure!(!native_interrupts(scene).is_empty(), "no interrupt at all");
    let updates = scene.calls(UPDATE_MONITORED);
    ensure!(updates > ROUNDS, "{updates} updates of MonitoredValue");
    ensure!(evaluations(scene, "DXG-NF-MONITORED-WRITTEN") >= updates, "not every update was looked at");
    Ok(())
}
