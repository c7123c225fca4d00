//! The two functions that update values.

use super::race::dawdle;
use crate::fuzz::dice::Dice;
use crate::scenario::client::{Client, endless, native_interrupts, until_idle};
use crate::scenario::{Played, Scene, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::pci::{DeviceKind, InterruptModel};
use dxgkrnl_model::personality::{Clock, MS, SECOND};
use nt_model::InterruptDelivery;
use nt_model::sched::seeded::SeededOptions;

const UPDATE_MONITORED: &str = "DxgkDdiUpdateMonitoredValues";
const UPDATE_CURRENT: &str = "DxgkDdiUpdateCurrentValuesFromCpu";

/// Waits and signals in turn, from the CPU and from a queue.
fn exercise(scene: &Scene, rig: &Client, rounds: u64) -> Played {
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
            let rig = Client::open(scene, "client")?;
            exercise(scene, &rig, 40)?;
            let (calls, looks) = (scene.calls(UPDATE_MONITORED), scene.evaluations("DXG-NF-ADDRESS-CACHED"));
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
        // A small segment: what StartDevice takes to allocate is the host's.
        let setup = Setup::default().setting("LocalSegmentSize", 16 << 20);
        let mut setup = setup.windows(|personality| personality.police_ddi = 250 * MS);
        setup.adapter.device.interrupts = model;
        if model == InterruptModel::SynchronizedOnly {
            setup.adapter.device.kind = DeviceKind::Root;
        }
        let played = stage.play(setup, |scene| {
            let rig = Client::open(scene, "client")?;
            let before = scene.evaluations("DXG-DDI-TIME");
            exercise(scene, &rig, 20)?;
            ensure!(scene.calls(UPDATE_MONITORED) >= 8 * 20 && scene.calls(UPDATE_CURRENT) >= 20, "too few updates");
            ensure!(scene.evaluations("DXG-DDI-TIME") > before, "nobody looked at the clock");
            for rule in ["NT-IRQL", "NT-IRQL-RETURN", "DXG-NF-MONITORED-STATUS", "DXG-NF-CURRENT-STATUS"] {
                ensure!(scene.evaluations(rule) > 0, "{rule} was not looked at");
            }
            Ok(())
        });
        played.with_context(|| format!("{model:?}"))?;
    }
    // One thread at a time: whoever waited for another one at a raised level would wait for ever.
    for seed in 0..4 {
        let options = SeededOptions { closed: false, ..SeededOptions::new(stage.seed().wrapping_mul(1000) + seed) };
        let setup = Setup::default().windows(|personality| personality.clock = Clock::Seeded(options.clone()));
        let played = stage.play(setup, |scene| exercise(scene, &Client::open(scene, "client")?, 3));
        played.with_context(|| format!("schedule of seed {seed}"))?;
    }
    let setup = Setup::default().resets(2).windows(|personality| personality.tdr.delay = SECOND);
    stage.play(setup, beside_busy_engines).context("engines that come to no end")
}

/// Updates of fences for which queues wait whose engines run a command buffer without an end, until they are reset.
fn beside_busy_engines(scene: &Scene) -> Played {
    let (rig, other) = (Client::open(scene, "client")?, Client::open(scene, "hangs")?);
    let fences: Vec<_> = (0..4).map(|_| rig.fence(0, true)).collect::<Result<_>>()?;
    let page = rig.page()?;
    let mut held = Vec::new();
    for node in 0..2 {
        // Parked, then behind the endless one for good.
        let waits = rig.queue(node)?;
        waits.run(|list| {
            list.store(page.at(u64::from(node)), 1)?;
            fences.iter().try_for_each(|fence| list.wait(fence, 20))?;
            list.store(page.at(2 + u64::from(node)), 1)
        })?;
        page.until(scene, "the mark before the wait", u64::from(node), 1)?;
        let (hangs, (memory, address, length)) = (other.queue(node)?, endless(&other.device)?);
        hangs.run(|list| list.indirect(address, length))?;
        held.push((waits, hangs, memory));
    }
    for value in 1..=20 {
        let signals: Vec<_> = fences.iter().map(|fence| (fence, value)).collect();
        let wait = rig.wait(&signals, false)?;
        rig.signal(&signals)?;
        wait.comes(&rig, "a wait for the CPU")?;
    }
    same("resets by the time the functions returned", scene.world.os.report().counts.resets, 0)?;
    // Behind the resets the queues go on.
    page.until(scene, "the queue of node 0", 2, 1)?;
    page.until(scene, "the queue of node 1", 3, 1)
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

/// Waits for all and for any of eight fences: one call of the driver before each sleeps, one for all that the CPU
/// signals.
pub(super) fn batches(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let rig = Client::open(scene, "client")?;
        let peek = rig.peek()?;
        let eight = || (0..8).map(|_| rig.fence(0, true)).collect::<Result<Vec<_>>>();
        for any in [false, true, false] {
            // Fences of its own: a thread that ended a wait of an earlier round may still bring that round's fences up
            // to date, each in a call of its own.
            let fences = eight()?;
            let all: Vec<_> = fences.iter().zip(100..).collect();
            let before = (scene.calls(UPDATE_MONITORED), scene.calls(UPDATE_CURRENT));
            let wait = rig.wait(&all, any)?;
            same("updates of MonitoredValue for eight waits", scene.calls(UPDATE_MONITORED) - before.0, 1)?;
            rig.signal(&all)?;
            same("updates of CurrentValue for eight signals", scene.calls(UPDATE_CURRENT) - before.1, 1)?;
            wait.comes(&rig, "the wait")?;
            for (fence, value) in &all {
                same("CurrentValue", rig.value(fence)?, *value)?;
                peek.becomes(scene, fence, u64::MAX)?;
            }
        }
        // Each of them, as the driver wrote it.
        let fences = eight()?;
        let all: Vec<_> = fences.iter().zip(1000..).collect();
        let wait = rig.wait(&all, false)?;
        for (fence, value) in &all {
            same("MonitoredValue", peek.monitored(scene, fence)?, value - 1)?;
        }
        rig.signal(&all)?;
        wait.comes(&rig, "the last wait")
    })
}

/// One fence several times in one call, of either function.
pub(super) fn duplicates(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let rig = Client::open(scene, "client")?;
        let (peek, page) = (rig.peek()?, rig.page()?);
        let (fence, other) = (rig.fence(0, true)?, rig.fence(0, true)?);
        let before = scene.calls(UPDATE_MONITORED);
        let wait = rig.wait(&[(&fence, 9), (&fence, 5), (&other, 3), (&fence, 7)], false)?;
        same("updates of MonitoredValue", scene.calls(UPDATE_MONITORED) - before, 1)?;
        same("the least of three", peek.monitored(scene, &fence)?, 4)?;
        same("the other's", peek.monitored(scene, &other)?, 2)?;
        // What stays is the last value, for queues that wait, too.
        let (queue, behind) = (rig.queue(0)?, rig.queue(1)?);
        queue.run(|list| {
            list.wait(&fence, 6)?;
            list.store(page.at(0), 1)
        })?;
        let before = scene.calls(UPDATE_CURRENT);
        rig.signal(&[(&fence, 9), (&other, 3), (&fence, 6)])?;
        same("updates of CurrentValue", scene.calls(UPDATE_CURRENT) - before, 1)?;
        same("CurrentValue", (rig.value(&fence)?, rig.value(&other)?), (6, 3))?;
        page.until(scene, "the queue that waits for 6", 0, 1)?;
        behind.run(|list| {
            list.wait(&fence, 8)?;
            list.store(page.at(1), 1)
        })?;
        wait.still_waits(&rig, "the wait for 9 and 7")?;
        same("MonitoredValue of the rest", peek.monitored(scene, &fence)?, 6)?;
        same("the mark behind a wait for 8", page.word(1)?, 0)?;
        rig.signal(&[(&fence, 8), (&fence, 9)])?;
        page.until(scene, "the queue that waits for 8", 1, 1)?;
        wait.comes(&rig, "the wait")
    })
}

/// Handles among the others that name nothing: the others are carried out, on both sides.
pub(super) fn strays(stage: &Stage) -> Played {
    stage.play(Setup::default().quick_tdr().windows(|windows| windows.faults.stray_fences = true), |scene| {
        let rig = Client::open(scene, "client")?;
        // The first handle that was never one, and then one that was.
        for _ in 0..2 {
            exercise(scene, &rig, 10)?;
            let gone = rig.fence(0, true)?;
            drop(gone);
        }
        let (queue, page, fence) = (rig.queue(1)?, rig.page()?, rig.fence(0, true)?);
        queue.run(|list| {
            list.wait(&fence, 2)?;
            list.store(page.at(0), 1)
        })?;
        rig.signal(&[(&fence, 2)])?;
        page.until(scene, "a queue that waits for the CPU", 0, 1)?;
        for rule in ["DXG-NF-MONITORED-WRITTEN", "DXG-NF-CURRENT-WRITTEN"] {
            ensure!(scene.evaluations(rule) > 20, "{rule} was not looked at");
        }
        Ok(())
    })
}

/// Rounds of each of two threads.
const ROUNDS: u64 = 100;

/// Two threads wait for one fence while two engines signal it and others.
fn concurrent(scene: &Scene, seeds: [u64; 2]) -> Played {
    let rig = Client::open(scene, "client")?;
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
    ensure!(scene.evaluations("DXG-NF-MONITORED-WRITTEN") >= updates, "not every update was looked at");
    Ok(())
}
