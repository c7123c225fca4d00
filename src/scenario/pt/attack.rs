//! Clients that are after others.

use super::setup;
use crate::scenario::db::{RingQueue, Room, raw};
use crate::scenario::{Played, Stage, same};
use anyhow::ensure;

pub(super) fn foreign_handles(stage: &Stage) -> Played {
    stage.play(setup(), |scene| {
        let good = raw(scene)?;
        let room = Room::new(&good)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        let context = room.context(0)?;
        let mut client = scene.world.separate("foreign")?;
        client.expect("ready")?;
        let handles = [good.adapter, room.device, context, queue.queue.handle, queue.bell.handle];
        client.say(&handles.map(|handle| handle.to_string()).join(" "))?;
        client.expect("refused")?;
        client.say("end")?;
        ensure!(client.exit()?.success(), "the client failed");
        let progress = queue.submit_through(&[])?;
        queue.wait(scene, progress)
    })
}

pub(super) fn pages(stage: &Stage) -> Played {
    stage.play(setup(), |scene| {
        let mut client = scene.world.separate("pages")?;
        client.expect("refused")?;
        client.say("go")?;
        client.expect("done")?;
        client.say("end")?;
        ensure!(client.exit()?.success(), "the client failed");
        Ok(())
    })
}

pub(super) fn forged(stage: &Stage) -> Played {
    stage.play(setup(), |scene| {
        let mut client = scene.world.separate("forge")?;
        client.expect("refused")?;
        same("refused connections", client.refused(), 1)?;
        client.say("end")?;
        ensure!(client.exit()?.success(), "the client failed");
        Ok(())
    })
}
