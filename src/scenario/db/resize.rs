//! `ResizeRingBufferOperation`: a doorbell that is made again, with another ring.
//!
//! A header says of the flag that a doorbell is being recreated for a queue with a new, resized ring, and no page says
//! more. Chosen: what is published in the old ring runs first, a wait that is not met included; positions in the new
//! one start at 0; user mode keeps the old ring for as long; the old doorbell may be destroyed before the creation or
//! behind it.

use super::{CONNECTED, RingQueue, Room, denied, raw, store};
use crate::scenario::{Played, Scenario, Scene, Setup, Stage, portable, same};
use anyhow::{Context, ensure};
use gpu_wire::GpuVa;
use gpu_wire::packet::{Copy, Encoded};
use std::time::Duration;
use wddm_abi::ntstatus::STATUS_INVALID_PARAMETER;

const RESIZE: &str =
    "d3dukmdt.h, D3DKMT_CREATE_DOORBELL_FLAGS and DXGKARG_CREATEDOORBELL_FLAGS, ResizeRingBufferOperation";

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "DB-67",
        title: "a resized ring: what was published runs first, a wait is kept, positions start at 0; without the flag none of it",
        source: RESIZE,
        play: by_thunks,
    },
    Scenario {
        id: "DB-78",
        title: "the newer of two doorbells of a queue is destroyed: the older one works on",
        source: RESIZE,
        play: taken_back,
    },
    Scenario {
        id: "DB-82",
        title: "a fifth ring is refused while four have work; behind that the queue gets another one",
        source: RESIZE,
        play: fifth,
    },
    Scenario {
        id: "DB-83",
        title: "the newer of two doorbells is destroyed, then the older one: nothing of its ring is executed any more",
        source: RESIZE,
        play: both_gone,
    },
    Scenario {
        id: "DB-68",
        title: "fp_queue_resize: rings grow and shrink under load, and behind a wait",
        source: RESIZE,
        play: by_the_driver,
    },
];

/// How a case makes the second doorbell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// Behind the destruction of the first.
    Behind,
    /// Beside the first, which is destroyed then.
    Beside,
    /// Behind the destruction of the first, without the flag.
    Plain,
}

fn by_thunks(stage: &Stage) -> Played {
    stage.play(Setup::default(), unconnected).context("a second doorbell that nobody connects")?;
    for way in [Way::Behind, Way::Beside, Way::Plain] {
        for model in super::MODELS {
            let play = |scene: &Scene| resized(scene, way);
            stage.play(Setup::default().setting("DoorbellModel", model), play).with_context(|| format!("{way:?}"))?;
        }
    }
    Ok(())
}

/// A doorbell that was made beside another one is destroyed before the engine has gone to its ring: the older one, with
/// its ring, works on, and what the newer one has published is not executed.
fn taken_back(stage: &Stage) -> Played {
    for model in super::MODELS {
        stage.play(Setup::default().setting("DoorbellModel", model), |scene| {
            let raw = raw(scene)?;
            let room = Room::new(&raw)?;
            let (memory, gate) = (room.memory(scene, 4096)?, raw.native_fence(room.device, 0)?);
            let old = RingQueue::connected(scene, &room, 0, 4096)?;
            old.submit_through(&[Encoded::fence_wait(GpuVa(gate.gpu), 1)])?;
            let last = old.submit_through(&[store(memory.gpu, 1)])?;
            let new = old.resized(scene, 8192)?;
            new.record(&[store(memory.gpu + 8, 2)])?;
            new.publish()?;
            new.destroy_bell()?;
            raw.signal_cpu(room.device, &[(gate.handle, 1)])?;
            old.wait(scene, last)?;
            let next = old.submit_through(&[store(memory.gpu + 16, 3)])?;
            old.wait(scene, next)?;
            let word = |at: usize| raw.load(memory.cpu + at);
            same("what the rings have stored", (word(0)?, word(8)?, word(16)?), (1, 0, 3))
        })?;
    }
    Ok(())
}

/// A queue has four rings at most. What is refused counts for nothing: behind it a doorbell is made as before.
fn fifth(stage: &Stage) -> Played {
    for model in super::MODELS {
        stage.play(Setup::default().setting("DoorbellModel", model), |scene| {
            let raw = raw(scene)?;
            let room = Room::new(&raw)?;
            let (memory, gate) = (room.memory(scene, 4096)?, raw.native_fence(room.device, 0)?);
            let first = RingQueue::connected(scene, &room, 0, 4096)?;
            first.submit_through(&[Encoded::fence_wait(GpuVa(gate.gpu), 1)])?;
            first.destroy_bell()?;
            let second = first.resized(scene, 8192)?;
            second.destroy_bell()?;
            let third = second.resized(scene, 8192)?;
            third.destroy_bell()?;
            let fourth = third.resized(scene, 8192)?;
            let fifth = room.bell_with(fourth.queue.handle, &first.ring, &first.control, true);
            denied("a fifth ring", fifth, STATUS_INVALID_PARAMETER)?;
            let last = fourth.submit_through(&[store(memory.gpu, 1)])?;
            raw.signal_cpu(room.device, &[(gate.handle, 1)])?;
            fourth.wait(scene, last)?;
            same("what the fourth ring has stored", raw.load(memory.cpu)?, 1)?;
            let next = fourth.resized(scene, 4096)?;
            fourth.destroy_bell()?;
            let done = next.submit_through(&[store(memory.gpu, 2)])?;
            next.wait(scene, done)?;
            same("what the next ring has stored", raw.load(memory.cpu)?, 2)
        })?;
    }
    Ok(())
}

/// The older of two doorbells is the queue's last one again when the newer one is gone: with it its ring is over.
fn both_gone(stage: &Stage) -> Played {
    for model in super::MODELS {
        stage.play(Setup::default().setting("DoorbellModel", model), |scene| {
            let raw = raw(scene)?;
            let room = Room::new(&raw)?;
            let (memory, gate) = (room.memory(scene, 4096)?, raw.native_fence(room.device, 0)?);
            let old = RingQueue::connected(scene, &room, 0, 4096)?;
            let first = old.submit_through(&[Encoded::fence_wait(GpuVa(gate.gpu), 1)])?;
            old.submit_through(&[store(memory.gpu, 1)])?;
            old.resized(scene, 8192)?.destroy_bell()?;
            old.destroy_bell()?;
            raw.signal_cpu(room.device, &[(gate.handle, 1)])?;
            std::thread::park_timeout(Duration::from_millis(20));
            same("progress", old.progress()?, first - 1)?;
            let (ring, control) = (room.memory(scene, 4096)?, room.memory(scene, 4096)?);
            let bell = room.bell(old.queue.handle, &ring, &control)?;
            let new = old.with(ring, control, bell);
            let done = new.submit_through(&[store(memory.gpu + 8, 2)])?;
            new.wait(scene, done)?;
            same("what the rings have stored", (raw.load(memory.cpu)?, raw.load(memory.cpu + 8)?), (0, 2))
        })?;
    }
    Ok(())
}

/// What the old ring has published while the queue had no doorbell runs without a connection.
fn unconnected(scene: &Scene) -> Played {
    let raw = raw(scene)?;
    let room = Room::new(&raw)?;
    let (memory, gate) = (room.memory(scene, 4096)?, raw.native_fence(room.device, 0)?);
    let old = RingQueue::connected(scene, &room, 0, 4096)?;
    let first = old.submit_through(&[store(memory.gpu + 64, 7)])?;
    old.wait(scene, first)?;
    old.destroy_bell()?;
    let last = old.record(&[Encoded::fence_wait(GpuVa(gate.gpu), 1), store(memory.gpu, 1)])?;
    old.publish()?;
    std::thread::park_timeout(Duration::from_millis(20));
    let connections = scene.calls("DxgkDdiConnectDoorbell");
    let new = old.resized(scene, 8192)?;
    new.tell(last)?;
    same("progress before the wait is met", new.progress()?, first)?;
    raw.signal_cpu(room.device, &[(gate.handle, 1)])?;
    new.wait(scene, last)?;
    same("what the old ring stored", raw.load(memory.cpu)?, 1)?;
    same("connections", scene.calls("DxgkDdiConnectDoorbell"), connections)
}

fn resized(scene: &Scene, way: Way) -> Played {
    let raw = raw(scene)?;
    let room = Room::new(&raw)?;
    let (memory, gate) = (room.memory(scene, 4096)?, raw.native_fence(room.device, 0)?);
    let old = RingQueue::connected(scene, &room, 0, 4096)?;
    let word = |at: usize| raw.load(memory.cpu + at);
    // The positions of the two rings differ.
    let first = old.submit_through(&[store(memory.gpu + 64, 7)])?;
    old.wait(scene, first)?;
    old.submit_through(&[Encoded::fence_wait(GpuVa(gate.gpu), 1)])?;
    let last = old.submit_through(&[store(memory.gpu, 1)])?;
    let told = raw.load(old.bell.last_queued)?;
    same("what was queued", told, last)?;
    if way != Way::Beside {
        old.destroy_bell()?;
    }
    let new = match way {
        Way::Plain => {
            let (ring, control) = (room.memory(scene, 8192)?, room.memory(scene, 4096)?);
            let bell = room.bell(old.queue.handle, &ring, &control)?;
            let plain = old.with(ring, control, bell);
            same("what is queued at first", raw.load(plain.bell.last_queued)?, first)?;
            plain
        }
        _ => {
            let new = old.resized(scene, 8192)?;
            same("what is queued at first", raw.load(new.bell.last_queued)?, last)?;
            new
        }
    };
    if way == Way::Beside {
        let third = room.bell_with(old.queue.handle, &old.ring, &old.control, true);
        denied("a third doorbell", third, STATUS_INVALID_PARAMETER)?;
        old.destroy_bell()?;
    }
    // It shows what the old ring has stored.
    let copy = Copy { source: memory.gpu, destination: memory.gpu + 8, length: 8 };
    let done = new.submit_through(&[copy.to_packet(), store(memory.gpu, 2)])?;
    if way == Way::Plain {
        new.wait(scene, done)?;
        same("what the old ring stored", word(8)?, 0)?;
        raw.signal_cpu(room.device, &[(gate.handle, 1)])?;
    } else {
        std::thread::park_timeout(Duration::from_millis(20));
        same("progress before the wait is met", new.progress()?, first)?;
        same("what is stored before the wait is met", word(0)?, 0)?;
        raw.signal_cpu(room.device, &[(gate.handle, 1)])?;
        new.wait(scene, done)?;
        same("what the old ring stored", word(8)?, 1)?;
        scene.until("the old ring's read pointer", || Ok(old.retired()? == old.written.get()))?;
    }
    scene.until("the new ring's read pointer", || Ok(new.retired()? == new.written.get()))?;
    // It works on, around its end.
    for _ in 0..400 {
        let progress = new.submit_through(&[store(memory.gpu, 3)])?;
        new.wait(scene, progress)?;
    }
    ensure!(new.written.get() > new.ring.size, "the ring's end was not reached");
    same("the last store", word(0)?, 3)?;
    let status = new.status()?;
    ensure!(status <= super::NOTIFY, "the doorbell's status is {status}, not {CONNECTED}");
    Ok(())
}

fn by_the_driver(stage: &Stage) -> Played {
    portable::case(stage, "DB-68", |_| Ok(()))
}
