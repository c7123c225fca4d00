//! Which ids count as submitted when the adapter is reset.

use crate::decode::decode;
use crate::scenario::db::raw;
use crate::scenario::te::Hog;
use crate::scenario::te::hardware::{controller, force};
use crate::scenario::{Played, Scene, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::adapter::PacketEvent;
use dxgkrnl_model::personality::{Gate, MS, SECOND, Submitted};
use wddm_abi::ntstatus::STATUS_SUCCESS;

/// What is the newest id of a node at the end of `journal`: of a packet, and of anything.
fn newest(journal: &[PacketEvent]) -> (Option<u32>, Option<u32>) {
    let (mut packet, mut any) = (None, None);
    for event in journal {
        match *event {
            PacketEvent::Submitted { id, .. } => (packet, any) = (Some(id), Some(id)),
            PacketEvent::Preempting { request } => any = Some(request),
            _ => {}
        }
    }
    (packet, any)
}

/// A packet comes off for a preemption and does not come again, since its process is gone. Then the adapter is reset,
/// and the next packet is preempted before anything completes.
pub(super) fn preemptions(stage: &Stage) -> Played {
    let node = if stage.rung() == 0 { 0 } else { 2 };
    for submitted in [Submitted::WithPreemptions, Submitted::Packets] {
        let setup = Setup::default().resets(1).setting("PreemptInBuffers", 1).windows(|windows| {
            // Long enough for an engine on a busy machine to come off.
            windows.tdr.delay = 500 * MS;
            // A packet is preempted when it takes TdrDelay, and not before.
            (windows.preemption.in_ordinary_use, windows.preemption.submitted) = (false, submitted);
        });
        stage.play(setup, |scene| play(scene, node, submitted)).with_context(|| format!("{submitted:?}"))?;
        let gate = Gate::default();
        let setup = Setup::default().resets(1).setting("PreemptInBuffers", 0).windows(|windows| {
            (windows.tdr.delay, windows.preemption.submitted) = (10 * SECOND, submitted);
            windows.gates.restart = Some(gate.clone());
        });
        let play = |scene: &Scene| unanswered(scene, node, &gate);
        stage.play(setup, play).with_context(|| format!("a preemption without an answer, {submitted:?}"))?;
    }
    Ok(())
}

/// A packet does not come off for another process's, whose id is older than that of the preemption. The adapter is
/// reset, and by its restart the driver takes everything as completed that the OS has named, on a node that pages, too.
fn unanswered(scene: &Scene, node: u32, gate: &Gate) -> Played {
    let (control, raws) = (controller(scene)?, [raw(scene)?, raw(scene)?]);
    let [runs, waits] = [Hog::new(scene, &raws[0], &[node])?, Hog::new(scene, &raws[1], &[node])?];
    let journal = || scene.adapter().packet_journal(node);
    runs.spin(node, 0)?;
    runs.begins(scene, 0)?;
    waits.short(node, 0)?;
    scene
        .until("a preemption", || Ok(matches!(journal().last(), Some(PacketEvent::Preempting { .. }))))
        .with_context(|| format!("node {node}: {:x?}", journal()))?;
    let (packet, any) = newest(&journal());
    ensure!(packet.is_some() && packet != any, "the newest id is a packet's: {:x?}", journal().last());
    std::thread::scope(|scope| -> Played {
        let reset = scope.spawn(|| force(&control, None));
        let told = scene.until("the restart", || Ok(gate.came() == 1)).and_then(|()| last_completed(scene, node));
        let newest = newest(&journal()).1;
        gate.let_through();
        same("the escape", reset.join().map_err(|_| anyhow::anyhow!("a panic"))?, STATUS_SUCCESS)?;
        same("nothing was named since", newest, any)?;
        same("the driver's last completed id", Some(told?), any)
    })?;
    scene.until("the loss of the devices", || Ok(!runs.is_active()? && !waits.is_active()?))?;
    let behind = Hog::new(scene, &raws[1], &[node])?;
    behind.short(node, 0)?;
    scene.until("a packet behind the reset", || behind.has_ended(0))?;
    same("the device behind the reset", behind.is_active()?, true)
}

/// The last completed id of a node, as the driver tells it to debuggers.
fn last_completed(scene: &Scene, node: u32) -> Result<u32> {
    scene.world.os.collect_debug_info(scene.adapter());
    let text = decode(&scene.adapter().debug_info())?.text;
    let is_it = |part: &&str| part.split_whitespace().take(2).eq(["node", node.to_string().as_str()]);
    let part = text.split("\n\n").find(is_it).context("the node")?;
    let id = part.split("last completed 0x").nth(1).and_then(|rest| rest.split(',').next()).context("an id")?;
    Ok(u32::from_str_radix(id, 16)?)
}

fn play(scene: &Scene, node: u32, submitted: Submitted) -> Played {
    let (control, first, second) = (controller(scene)?, raw(scene)?, raw(scene)?);
    let journal = || scene.adapter().packet_journal(node);
    let next = Hog::new(scene, &second, &[node])?;
    let hog = Hog::new(scene, &first, &[node])?;
    hog.spin(node, 0)?;
    hog.begins(scene, 0)?;
    hog.destroy()?;
    let (packet, any) = newest(&journal());
    // On the paging node what the device had is unmapped behind the preemption.
    if node == 0 {
        ensure!(packet.is_some() && packet != any, "the newest id is a packet's: {:x?}", journal().last());
    }
    same("the escape", force(&control, None), STATUS_SUCCESS)?;
    scene.until("the loss of the other device", || Ok(!next.is_active()?))?;
    let behind = Hog::new(scene, &second, &[node])?;
    behind.spin(node, 0)?;
    let answer = || {
        let journal = journal();
        let behind = journal.iter().rev().take_while(|event| !matches!(event, PacketEvent::Reset { .. }));
        behind.into_iter().find_map(|event| match event {
            PacketEvent::Preempted { completed, .. } => Some(*completed),
            _ => None,
        })
    };
    scene.until("a preemption behind the reset", || Ok(answer().is_some()))?;
    if node == 0 {
        let want = if submitted == Submitted::Packets { packet } else { any };
        same("the last completed id", answer(), want)?;
    }
    behind.end(0)?;
    scene.until("the end of the packet", || behind.has_ended(0))?;
    ensure!(behind.is_active()?, "the device behind the reset is lost");
    Ok(())
}
