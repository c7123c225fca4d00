//! One process uses up what all of them share: the lists of a node.

use crate::scenario::db::{RingQueue, Room, raw};
use crate::scenario::{Played, Scenario, Setup, Stage};
use anyhow::Context;
use dxgkrnl_model::process::End;
use gpu_wire::packet::Indirect;
use std::sync::Arc;
use wddm_abi::{D3DKMT_CONNECT_DOORBELL, D3DKMT_DESTROY_DOORBELL};

pub(super) const CASES: &[Scenario] = &[Scenario {
    id: "BI-43",
    title: "queues that are rung and destroyed while their node is busy take no room from another process's",
    source: "User-mode work submission, Doorbell; DxgkDdiDestroyHwQueue",
    play: rung_and_destroyed,
}];

/// More than the lists of a node have room for without being asked for more.
const CROWD: usize = 100;

fn rung_and_destroyed(stage: &Stage) -> Played {
    stage.play(Setup::default().quick_tdr().resets(1), |scene| {
        let good = raw(scene)?;
        let room = Room::new(&good)?;
        let victim = RingQueue::connected(scene, &room, 0, 4096)?;
        let (progress, _) = victim.submit(&[])?;
        victim.wait(scene, progress)?;
        // The node runs a command buffer that jumps to itself. It takes nothing out of its lists meanwhile.
        let bad = raw(scene)?;
        let rooms = Room::new(&bad)?;
        let hog = RingQueue::connected(scene, &rooms, 0, 4096)?;
        let buffer = rooms.memory(scene, 4096)?;
        let jump = Indirect { address: buffer.gpu, length: 24 }.to_packet();
        buffer.write(&bad, 0, jump.as_bytes())?;
        let (context, ring, control) = (rooms.context(0)?, rooms.memory(scene, 4096)?, rooms.memory(scene, 4096)?);
        // The OS is not told of it, and so does not look for its end.
        hog.write(jump.as_bytes())?;
        hog.publish()?;
        hog.ring()?;
        for _ in 0..CROWD {
            let queue = rooms.queue_in(context, true)?;
            let bell = rooms.bell(queue.handle, &ring, &control)?;
            // A connect has the engine look at the queue, as a ring does.
            let mut record = D3DKMT_CONNECT_DOORBELL::zeroed();
            record.hDoorbell = bell.handle;
            bad.ok(bad.thunks.D3DKMTConnectDoorbell, &mut record)?;
            let mut record = D3DKMT_DESTROY_DOORBELL::zeroed();
            record.hDoorbell = bell.handle;
            bad.ok(bad.thunks.D3DKMTDestroyDoorbell, &mut record)?;
            rooms.destroy_queue(queue.handle)?;
        }
        let (progress, _) = victim.submit(&[])?;
        Arc::into_inner(bad.process).context("another owner of the process")?.end(End::Terminated);
        victim.wait(scene, progress)?;
        let later = raw(scene)?;
        let room = Room::new(&later)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        let (progress, _) = queue.submit(&[])?;
        queue.wait(scene, progress)
    })
}
