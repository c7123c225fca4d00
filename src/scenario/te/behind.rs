//! What stands behind a packet that is lost.

use super::super::db::Room;
use super::super::{Played, Scene, Setup, Stage, same};
use super::{Hog, client, is_lost, victim};
use anyhow::{Context, ensure};
use dxgkrnl_model::personality::Gate;

/// A packet is lost, and the OS is to signal a fence behind it, one of a device that lives: the fence keeps its value,
/// so that nobody takes for done what is not.
pub(super) fn signals(stage: &Stage) -> Played {
    type Cause = fn(&Hog<'_>, u32) -> Played;
    let causes: [(&str, Cause); 2] =
        [("refused", |hog, node| hog.refused(node)), ("faulting", |hog, node| hog.faults(node, 0))];
    for (what, cause) in causes {
        signal(stage, cause).with_context(|| format!("a packet that is {what}"))?;
    }
    Ok(())
}

fn signal(stage: &Stage, cause: fn(&Hog<'_>, u32) -> Played) -> Played {
    let node = victim(stage);
    let gate = Gate::default();
    gate.open(true);
    let setup = Setup::default().windows(|windows| windows.gates.submit = Some(gate.clone()));
    stage.play(setup, |scene: &Scene| {
        let raw = client(scene, "loses a packet")?;
        let (hog, lives) = (Hog::new(scene, &raw, &[node])?, Room::new(&raw)?);
        let [before, behind] =
            [raw.monitored_fence(lives.device, 0, false)?, raw.monitored_fence(lives.device, 0, false)?];
        let context = hog.context(node)?;
        gate.open(false);
        cause(&hog, node)?;
        scene.until("a packet that is about to be handed in", || Ok(gate.came() >= 1))?;
        raw.context_signal(context, behind.handle, 1)?;
        gate.open(true);
        is_lost(scene, &hog)?;
        // What the worker still had to do by then it has done when a signal that comes later is carried out.
        let other = Hog::new(scene, &raw, &[node])?;
        other.short(node, 1)?;
        raw.context_signal(other.context(node)?, before.handle, 1)?;
        scene.until("a signal behind another device's packet", || Ok(raw.load(before.cpu)? == 1))?;
        same("the fence behind the packet that is lost", raw.load(behind.cpu)?, 0)?;
        ensure!(lives.is_active()?, "the device of the fences is lost");
        Ok(())
    })
}
