//! Clients that are after others.

use super::{Neighbour, setup};
use crate::scenario::db::{RingQueue, Room, raw};
use crate::scenario::{Played, Stage, portable, same};
use anyhow::{Context, ensure};
use rustix::process::{DumpableBehavior, Pid, Signal, kill_process};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

pub(super) fn foreign_handles(stage: &Stage) -> Played {
    stage.play(setup(), |scene| {
        portable::part(scene, "PT-08").context("in this process")?;
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
        // Each of these alone would do; none may be missing.
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", client.pid())).context("the client's status")?;
        let says = |name: &str, value: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            ensure!(line.split_whitespace().nth(1) == Some(value), "the client has {line:?}, not {name} {value}");
            Ok(())
        };
        says("NoNewPrivs:", "1")?;
        if rustix::process::getuid().is_root() {
            says("Uid:", "65534")?;
            says("Gid:", "65534")?;
        }
        same("dumpable", rustix::process::dumpable_behavior()?, DumpableBehavior::NotDumpable)?;
        client.say("go")?;
        client.expect("done")?;
        client.say("end")?;
        ensure!(client.exit()?.success(), "the client failed");
        Ok(())
    })
}

/// The connections that are refused of those of a crowd, but for those of its threads.
const BEYOND: u64 = 301 - 256;

pub(super) fn crowd(stage: &Stage) -> Played {
    stage.play(setup(), |scene| {
        let mut neighbour = Neighbour::new(scene, 0)?;
        let mut client = scene.world.separate("crowd")?;
        client.expect("crowd")?;
        scene.until("refusals", || Ok(client.refused() >= BEYOND))?;
        client.say("go")?;
        client.expect("done")?;
        let begun = Instant::now();
        client.kill();
        ensure!(begun.elapsed() < SOON, "the end took {:?}", begun.elapsed());
        neighbour.job(scene)
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
