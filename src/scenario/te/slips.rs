//! Packets that are handed in while the adapter is reset by another thread than the one that hands them in.

use super::super::db::{KernelQueue, Room};
use super::super::{Played, Scene, Stage, same};
use super::failed::cannot_reset_queues;
use super::hardware::{recovered, works};
use super::in_time::in_time;
use super::{Hog, client, stubborn, victim};
use anyhow::{Context, anyhow, ensure};
use dxgkrnl_model::adapter::{Reason, What};
use dxgkrnl_model::personality::Gate;
use dxgkrnl_model::process::End;
use gpu_wire::private::allocation_kind;
use std::cell::RefCell;
use std::time::Duration;

/// Long enough for a thread that may go on to come to the driver's door.
const SOON: Duration = Duration::from_millis(50);

/// The thread that hands packets in is about to do so when a thread that ends a process finds an engine that hangs and
/// cannot be reset: the adapter is reset. In its middle the first one goes on. What it had in hand comes to the driver
/// behind the reset, or not at all.
pub(super) fn packets(stage: &Stage) -> Played {
    for pages in [false, true] {
        play(stage, pages).with_context(|| format!("a paging packet: {pages}"))?;
    }
    Ok(())
}

fn play(stage: &Stage, pages: bool) -> Played {
    let node = victim(stage);
    let of_this_play = RefCell::new((Gate::default(), Gate::default()));
    let setup = || {
        let (submit, restart) = (Gate::default(), Gate::default());
        submit.open(true);
        of_this_play.replace((submit.clone(), restart.clone()));
        stubborn().resets(2).with_driver(cannot_reset_queues).windows(|windows| {
            windows.gates.submit = Some(submit.clone());
            windows.gates.restart = Some(restart.clone());
        })
    };
    in_time(stage, setup, |scene, watch| {
        let (submit, restart) = of_this_play.borrow().clone();
        let (ended, beside) = (client(scene, "ends")?, client(scene, "beside")?);
        let (room, hog) = (Room::new(&ended)?, Hog::new(scene, &beside, &[node])?);
        let queue = KernelQueue::new(scene, &room, room.context(0)?)?;
        let other = Room::new(&beside)?;
        let allocation = other.create(allocation_kind::SYSTEM, 64 << 10)?;
        other.make_resident(scene, allocation)?;
        // Before the thread that hands packets in would look for what makes no progress, it is to wait at the gate.
        watch.begin();
        queue.spin(&room, 0, None, 1)?;
        queue.runs(scene, &ended)?;
        submit.open(false);
        let value = if pages { Some(other.begin_map(allocation)?) } else { None };
        if !pages {
            hog.short(node, 0)?;
        }
        scene.until("a packet that is about to be handed in", || Ok(submit.came() == 1))?;
        watch.end();
        std::thread::scope(|scope| -> Played {
            let ends = scope.spawn(|| ended.process.finish(End::Terminated));
            let came = scene.until("the middle of the reset", || Ok(restart.came() == 1));
            submit.open(true);
            std::thread::park_timeout(SOON);
            restart.let_through();
            ends.join().map_err(|_| anyhow!("a panic"))?;
            came
        })?;
        let all = recovered(scene, 2)?;
        same("the first", (all[0].what, all[0].reason), (What::HwEngine { node: 0 }, Reason::Suspension))?;
        same("the second", (all[1].what, all[1].reason), (What::Adapter, Reason::Promoted))?;
        if let Some(value) = value {
            other.paged(scene, value)?;
        }
        ensure!(!hog.is_active()?, "a device outlived the adapter's reset");
        takes(scene, node)?;
        works(scene)
    })
}

/// The node takes packets and paging.
fn takes(scene: &Scene, node: u32) -> Played {
    let raw = client(scene, "behind")?;
    let behind = Hog::new(scene, &raw, &[node])?;
    behind.short(node, 0)?;
    scene.until("a packet behind the reset", || behind.has_ended(0))?;
    ensure!(behind.is_active()?, "the device behind the reset is lost");
    Ok(())
}
