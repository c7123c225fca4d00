//! A process's end while the power is to be taken from the device.

use super::super::db::{RingQueue, Room, raw};
use super::super::raw::{ALL, duplicate};
use crate::scenario::{Played, Scene, same};
use anyhow::{Context, Result};
use dxgkrnl_model::process::End;
use gpu_wire::GpuVa;
use gpu_wire::packet::{Copy, Encoded};

/// Bytes of one copy, and how many there are: what takes an engine for some tens of milliseconds.
const BYTES: u64 = 1 << 20;
const COPIES: usize = 400;

/// A process ends as it should while its queue has work. The power is taken amid that, or would be: the end's wait for
/// the last queued value comes first, and the value is reached.
pub(super) fn beside_sleep(scene: &Scene) -> Played {
    let (good, ends) = (raw(scene)?, raw(scene)?);
    let (its, room) = (Room::new(&good)?, Room::new(&ends)?);
    let done = good.shared_native_fence(its.device, 0).context("fence")?;
    let handle = duplicate(good.share(done.handle, ALL).context("share")?, &good.process, &ends.process)?;
    let opened = ends.open_native_fence(room.device, handle).context("open")?;
    let queue = RingQueue::connected(scene, &room, 0, 64 << 10)?;
    let (from, to) = (room.memory(scene, BYTES)?, room.memory(scene, BYTES)?);
    let copy = Copy { source: from.gpu, destination: to.gpu, length: BYTES }.to_packet();
    let mut packets = vec![copy; COPIES];
    packets.push(Encoded::fence_signal(GpuVa(opened.gpu), 1));
    // Its end drops the doorbell, without a reconnection.
    let before = scene.calls("DxgkDdiDisconnectDoorbell");
    queue.submit(&packets)?;
    std::thread::scope(|scope| -> Result<()> {
        let end = scope.spawn(|| ends.process.finish(End::Normal));
        scene.until_now("the end's disconnection", || Ok(scene.calls("DxgkDdiDisconnectDoorbell") > before))?;
        scene.world.os.put_to_sleep(scene.adapter(), false);
        // The end goes on, and wakes the device for what it destroys.
        end.join().map_err(|_| anyhow::anyhow!("the end has panicked"))
    })?;
    same("what was queued last", good.load(done.cpu)?, 1)
}
