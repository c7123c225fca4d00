//! Clients that are after others.

use super::setup;
use crate::scenario::db::{RingQueue, Room, raw};
use crate::scenario::{Played, Stage, same};
use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::sync::mpsc::channel;
use std::time::Duration;

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

/// What the end of a client may take on a busy host.
const SOON: Duration = Duration::from_secs(20);

pub(super) fn left_behind(stage: &Stage) -> Played {
    stage.play(setup(), |scene| {
        let client = scene.world.separate("behind")?;
        let left = client.hear()?.parse().ok().and_then(Pid::from_raw).context("a process number")?;
        let (over, wait) = channel();
        let ended = std::thread::scope(|scope| {
            scope.spawn(move || {
                client.kill();
                over.send(()).unwrap_or(());
            });
            let ended = wait.recv_timeout(SOON);
            // In any case: without its files the client's end comes.
            let _ = kill_process(left, Signal::KILL);
            ended
        });
        ensure!(ended.is_ok(), "a process that the client has left behind keeps its end waiting");
        let process = raw(scene)?;
        let room = Room::new(&process)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        let progress = queue.submit_through(&[])?;
        queue.wait(scene, progress)
    })
}
