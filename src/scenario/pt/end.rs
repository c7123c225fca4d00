//! Exits, and what a process leaves behind.

use super::super::client::Client;
use super::super::stage::PATIENCE;
use super::{Held, Neighbour, setup};
use crate::scenario::{Played, Stage, portable, same};
use crate::separate::Separate;
use anyhow::{Context, ensure};
use std::sync::mpsc::channel;
use std::time::Duration;
use umd_core::ffi::types::{FP_MODE_KERNEL, FP_MODE_USER};

/// The client ends by itself, and nothing of it is left.
fn goes(mut client: Separate) -> Played {
    client.say("end")?;
    let process = client.process().clone();
    ensure!(client.exit()?.success(), "the client failed");
    same("open handles", (process.open_handles(), process.nt().open_handles()), (0, 0))
}

pub(super) fn exits(stage: &Stage) -> Played {
    // A client that is slow keeps its doorbell: letting go of it is a message.
    stage.play(setup().setting("IdleMilliseconds", 0), |scene| {
        let mut client = scene.world.separate("submit")?;
        client.expect("connected")?;
        let before = (client.messages(), scene.world.os.counts().thunks);
        client.say("go")?;
        client.expect("memory 101, rings 101")?;
        same("messages and thunks", (client.messages(), scene.world.os.counts().thunks), before)?;
        goes(client)
    })
}

pub(super) fn works_on(stage: &Stage) -> Played {
    const DISCONNECT: &str = "DxgkDdiDisconnectDoorbell";
    const DESTROY: &str = "DxgkDdiDestroyDoorbell";
    const SUSPEND: &str = "DxgkDdiSuspendContext";
    // Where the host lets the client go on to its exit only when its work is done, an engine that lets idle doorbells
    // go has had this one disconnected, and the exit finds none that is connected.
    stage.play(setup().setting("IdleMilliseconds", 0), |scene| {
        let rig = Client::open(scene, "neighbour")?;
        let fence = rig.device.shared_fence(0)?;
        let object = rig.user.process.nt().handle_any(fence.share()?).context("the NT handle")?;
        let mut client = scene.world.separate("late")?;
        client.expect("ready")?;
        let before = scene.journal(&[DISCONNECT, DESTROY, SUSPEND]).len();
        let handle = client.process().nt().insert_handle(object);
        client.say(&handle.to_string())?;
        ensure!(client.exit()?.success(), "the client failed");
        same("what it queued last", fence.value()?, 1)?;
        let calls = scene.journal(&[DISCONNECT, DESTROY, SUSPEND]).split_off(before);
        same("calls", calls, vec![DISCONNECT, DESTROY])
    })
}

pub(super) fn leaves(stage: &Stage) -> Played {
    stage.play(setup(), |scene| {
        let mut neighbour = Neighbour::new(scene, 0)?;
        let before = Held::now(scene)?;
        portable::part(scene, "PT-06").context("in this process")?;
        // Memory of the user-mode driver in these processes is not given back.
        before.has_objects_again(scene).context("in this process")?;
        let before = Held::now(scene)?;
        let client = scene.world.separate("leave")?;
        client.expect("left")?;
        ensure!(Held::now(scene)?.doorbells > before.doorbells, "nothing was left");
        goes(client)?;
        before.until_again(scene, 64)?;
        neighbour.job(scene)
    })
}

/// That the page is really taken from the other Linux process, PT-01 and PT-12 show.
pub(super) fn shares(stage: &Stage) -> Played {
    // Each page is handed to the other Linux process as an object of its own.
    [1, 4].into_iter().try_for_each(|pages| shares_one(stage, pages).with_context(|| format!("DoorbellPages {pages}")))
}

fn shares_one(stage: &Stage, pages: u32) -> Played {
    stage.play(setup().setting("PhysicalDoorbells", 1).setting("DoorbellPages", pages), |scene| {
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

/// Each waits for the other's signals, in turns, by queues of the same engine.
pub(super) fn older_beside_newer(stage: &Stage) -> Played {
    const ROUNDS: u64 = 50;
    const BELLS: &str = "DxgkDdiCreateDoorbell";
    stage.play(setup(), |scene| {
        let rig = Client::open(scene, "newer")?;
        let fence = rig.device.shared_fence(0)?;
        let object = rig.user.process.nt().handle_any(fence.share()?).context("the NT handle")?;
        let (queue, page) = (rig.queue(0)?, rig.page()?);
        queue.run(|list| list.store(page.at(0), 0))?;
        queue.wait(0, PATIENCE)?;
        let before = scene.adapter().ddi_calls();
        let mut client = scene.world.separate("older")?;
        client.expect("ready")?;
        let handle = client.process().nt().insert_handle(object);
        client.say(&handle.to_string())?;
        for round in 1..=ROUNDS {
            queue.run(|list| {
                list.signal(&fence, 2 * round - 1)?;
                list.wait(&fence, 2 * round)?;
                list.store(page.at(0), round)
            })?;
        }
        queue.wait(0, PATIENCE)?;
        same("what the newer one stored last", page.word(0)?, ROUNDS)?;
        client.expect(&format!("memory {ROUNDS}, mode {FP_MODE_KERNEL}"))?;
        let after = scene.adapter().ddi_calls();
        let calls = |name: &str| after.get(name).unwrap_or(&0) - before.get(name).unwrap_or(&0);
        same("doorbells of the older one", calls(BELLS), 0)?;
        ensure!(calls("DxgkDdiSubmitCommandToHwQueue") >= ROUNDS, "the older one submits otherwise");
        same("how the newer one submits", queue.info()?.mode, FP_MODE_USER)?;
        goes(client)
    })
}

/// What an end may take on a busy host.
const SOON: Duration = Duration::from_secs(10);

pub(super) fn waits_for_ever(stage: &Stage) -> Played {
    for is_killed in [false, true] {
        stage.play(setup(), |scene| {
            let client = scene.world.separate("stuck")?;
            client.expect("waits")?;
            let (over, wait) = channel();
            // On a thread that nothing waits for: an end that hangs fails this case alone.
            std::thread::spawn(move || {
                let ended = match is_killed {
                    true => {
                        client.kill();
                        Ok(())
                    }
                    false => goes(client),
                };
                over.send(ended).unwrap_or(());
            });
            wait.recv_timeout(SOON).context("a thread that waits keeps its process's end waiting")??;
            Neighbour::new(scene, 0)?.job(scene)
        })?;
    }
    Ok(())
}
