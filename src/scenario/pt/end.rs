//! Exits, and what a process leaves behind.

use super::{Held, Neighbour, setup};
use crate::scenario::{Played, Stage, same};
use crate::separate::Separate;
use anyhow::ensure;

/// The client ends by itself, and nothing of it is left.
fn goes(mut client: Separate) -> Played {
    client.say("end")?;
    let process = client.process().clone();
    ensure!(client.exit()?.success(), "the client failed");
    same("open handles", (process.open_handles(), process.nt().open_handles()), (0, 0))
}

pub(super) fn exits(stage: &Stage) -> Played {
    stage.play(setup(), |scene| {
        let mut client = scene.world.separate("submit")?;
        client.expect("connected")?;
        let before = (client.messages(), scene.world.os.counts().thunks);
        client.say("go")?;
        client.expect("memory 101, rings 101")?;
        same("messages and thunks", (client.messages(), scene.world.os.counts().thunks), before)?;
        goes(client)
    })
}

pub(super) fn leaves(stage: &Stage) -> Played {
    stage.play(setup(), |scene| {
        let mut neighbour = Neighbour::new(scene, 0)?;
        let before = Held::now(scene);
        let client = scene.world.separate("leave")?;
        client.expect("left")?;
        ensure!(Held::now(scene).doorbells > before.doorbells, "nothing was left");
        goes(client)?;
        before.until_again(scene, 64)?;
        neighbour.job(scene)
    })
}

pub(super) fn shares(stage: &Stage) -> Played {
    stage.play(setup().setting("PhysicalDoorbells", 1), |scene| {
        let mut neighbour = Neighbour::new(scene, 0)?;
        let client = scene.world.separate("share")?;
        client.expect("sharing")?;
        let before = scene.callbacks("DxgkCbDisconnectDoorbell");
        for _ in 0..50 {
            neighbour.job(scene)?;
        }
        client.expect("shared")?;
        ensure!(scene.callbacks("DxgkCbDisconnectDoorbell") > before, "no doorbell was taken away");
        goes(client)
    })
}
