//! Packets that end between the snapshot and the reset.

use super::super::client::Client;
use super::super::{Played, Scene, Stage, same};
use super::held::Awaited;
use super::hog::Loop;
use super::packets::submitted;
use super::{Hog, aborted, client, is_lost, only_reset, packet_nodes, stubborn, victim};
use anyhow::ensure;
use dxgkrnl_model::adapter::{PacketEvent, Step};
use dxgkrnl_model::personality::Gate;
use std::time::Duration;

/// Long enough for a DPC to run, and for whatever must come.
const BRIEF: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(20);

/// The packet ends behind the detection of its timeout, and before the scheduler has noted what it knows.
pub(super) fn emptied(stage: &Stage) -> Played {
    let node = victim(stage);
    let gate = Gate::default();
    stage.play(stubborn().windows(|windows| windows.gates.snapshot = Some(gate.clone())), |scene| {
        let raw = client(scene, "late")?;
        let hog = Hog::new(scene, &raw, &[node])?;
        hog.spin(node, 0)?;
        hog.begins(scene, 0)?;
        scene.until("the timeout", || Ok(gate.came() == 1))?;
        hog.end(0)?;
        scene.until("the report of the packet's end", || Ok(is_reported(scene, node)))?;
        gate.let_through();
        let recovery = only_reset(scene)?;
        let empty = |step: &Step| matches!(step, Step::Snapshot { packets: 0, .. });
        let left = recovery.steps.last() == Some(&Step::Emptied);
        ensure!(left && recovery.has(empty) && recovery.steps.len() == 4, "{recovery}");
        for ddi in ["DxgkDdiResetEngine", "DxgkDdiCollectDbgInfo2", "DxgkDdiQueryDependentEngineGroup"] {
            same(ddi, scene.calls(ddi), 0)?;
        }
        ensure!(hog.is_active()? && hog.has_ended(0)?, "the packet's result is thrown away");
        // The node takes packets as before.
        hog.short(node, 1)?;
        scene.until("the next packet", || hog.has_ended(1))
    })
}

/// The packet ends while the reset is prepared. It is the last that the driver has completed, and by the scheduler's
/// count it was aborted.
pub(super) fn special_case(stage: &Stage) -> Played {
    let node = victim(stage);
    let gate = Gate::default();
    let setup = stubborn().windows(|windows| windows.gates.reset = Some(gate.clone())).resets(1);
    stage.play(setup, |scene| {
        let (raw, next) = (client(scene, "late")?, client(scene, "next")?);
        let (hog, next) = (Hog::new(scene, &raw, &[node])?, Hog::new(scene, &next, &[node])?);
        hog.spin(node, 0)?;
        hog.begins(scene, 0)?;
        scene.until("the preparation", || Ok(gate.came() == 1))?;
        hog.end(0)?;
        scene.until("the end of the packet", || hog.has_ended(0))?;
        gate.let_through();
        is_lost(scene, &hog)?;
        let recovery = only_reset(scene)?;
        let fence = aborted(&recovery)?;
        let outstanding =
            |step: &Step| matches!(step, Step::Snapshot { completed, packets: 1, .. } if *completed != fence);
        ensure!(recovery.has(outstanding), "{recovery}");
        // The next packet's completion is reported; nothing reports the one that the OS took as aborted.
        next.short(node, 0)?;
        scene.until("the next packet", || next.has_ended(0))?;
        scene.until("its report", || {
            let journal = scene.adapter().packet_journal(node);
            let done = journal.iter().rev().find_map(|event| match event {
                PacketEvent::Completed { id } => Some(*id),
                _ => None,
            });
            Ok(done.is_some_and(|id| id != fence))
        })?;
        let journal = scene.adapter().packet_journal(node);
        ensure!(!journal.contains(&PacketEvent::Completed { id: fence }), "the aborted packet was reported");
        ensure!(next.is_active()?, "the device behind it is lost");
        Ok(())
    })
}

/// While one node's reset is prepared, work of another node ends: its interrupt counts, and wakes who waits for it.
pub(super) fn others_count(stage: &Stage) -> Played {
    let node = victim(stage);
    let gate = Gate::default();
    let setup = stubborn().windows(|windows| windows.gates.reset = Some(gate.clone())).resets(1);
    stage.play(setup, |scene| {
        let (raw, works) = (client(scene, "hangs")?, Client::open(scene, "works")?);
        let hog = Hog::new(scene, &raw, &[node])?;
        // Below rung 3 native fences are signaled by the OS.
        let (fence, other) = (works.fence(0, stage.rung() == 3)?, if node == 0 { 1 } else { 0 });
        let queue = works.queue(other)?;
        let run = Loop::new(&works)?;
        let (beside, page) = (works.queue(other)?, works.page()?);
        hog.spin(node, 0)?;
        scene.until("the preemption", || Ok(scene.calls("DxgkDdiPreemptCommand") >= 1))?;
        let waiting = works.wait(&[(&fence, 1)], false)?;
        queue.run(|list| {
            list.indirect(run.address, run.length)?;
            list.signal(&fence, 1)
        })?;
        run.begins(scene)?;
        scene.until("the preparation", || Ok(gate.came() == 1))?;
        run.end()?;
        // Below rung 3 the thread that prepares the reset signals the fence, and hands in the end of a list.
        scene.until("the wake", || Ok(waiting.is_set(&works)))?;
        if packet_nodes(stage).contains(&other) {
            scene.until("the report of a packet beside it", || Ok(is_reported(scene, other)))?;
        }
        // More work, from its beginning.
        beside.run(|list| list.store(page.at(0), 1))?;
        page.until(scene, "work that began beside it", 0, 1)?;
        same("engine resets by then", scene.calls("DxgkDdiResetEngine"), 0)?;
        // For good: what the model looks after next, on a host that was slow meanwhile, does not wait for the case.
        gate.open(true);
        is_lost(scene, &hog)?;
        scene.until("the fence", || Ok(works.value(&fence)? == 1))?;
        same("the device beside it", works.device.state()?.execution, 1)
    })
}

/// A fence is signaled on an engine whose interrupts are ignored: who waits for it is woken when the reset is over, and
/// not before.
pub(super) fn fences(stage: &Stage) -> Played {
    let node = victim(stage);
    let gate = Gate::default();
    let setup = stubborn().windows(|windows| windows.gates.reset = Some(gate.clone())).resets(1);
    stage.play(setup, |scene| {
        let raw = client(scene, "late")?;
        let (hog, awaited) = (Hog::new(scene, &raw, &[node])?, Awaited::new(&raw)?);
        hog.spin_before(node, 0, &[awaited.signal()])?;
        scene.until("the preparation", || Ok(gate.came() == 1))?;
        let interrupts = || scene.callbacks("DxgkCbNotifyInterrupt");
        let before = interrupts();
        hog.end(0)?;
        scene.until("the signal", || Ok(raw.load(awaited.value)? == 1))?;
        scene.until("the interrupt for it", || Ok(interrupts() > before))?;
        ensure!(!raw.wait_event(&awaited.event, BRIEF), "the engine's interrupt was heard while it is being reset");
        gate.let_through();
        is_lost(scene, &hog)?;
        only_reset(scene)?;
        ensure!(raw.wait_event(&awaited.event, LONG), "the fence's waiter sleeps on");
        Ok(())
    })
}

/// Whether the driver has reported the node's newest packet as completed.
fn is_reported(scene: &Scene, node: u32) -> bool {
    let journal = scene.adapter().packet_journal(node);
    let newest = journal.iter().rev().find_map(submitted);
    newest.is_some_and(|(id, ..)| journal.contains(&PacketEvent::Completed { id }))
}
