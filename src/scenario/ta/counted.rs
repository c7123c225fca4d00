//! Which ids count as submitted when the adapter is reset.

use crate::scenario::db::raw;
use crate::scenario::te::Hog;
use crate::scenario::te::hardware::{controller, force};
use crate::scenario::{Played, Scene, Setup, Stage, same};
use anyhow::{Context, ensure};
use dxgkrnl_model::adapter::PacketEvent;
use dxgkrnl_model::personality::{MS, Submitted};
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
    }
    Ok(())
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
