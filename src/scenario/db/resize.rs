//! `ResizeRingBufferOperation`: a doorbell that is made again, with another ring.
//!
//! A header says of the flag that a doorbell is being recreated for a queue with a new, resized ring, and no page says
//! more. Chosen: what is published in the old ring runs first, a wait that is not met included; positions in the new
//! one start at 0; user mode keeps the old ring for as long; the old doorbell may be destroyed before the creation or
//! behind it.

use super::{CONNECTED, RingQueue, Room, denied, raw, store};
use crate::scenario::stage::PATIENCE;
use crate::scenario::{Played, Scenario, Scene, Setup, Stage, refused, same};
use anyhow::{Context, ensure};
use gpu_wire::GpuVa;
use gpu_wire::packet::{Copy, Encoded};
use std::time::Duration;
use umd_core::ffi::types::{FP_KIND_SYSTEM, FP_QUEUE_KERNEL_MODE};
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_IO_TIMEOUT, STATUS_NOT_SUPPORTED};

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
    for way in [Way::Behind, Way::Beside, Way::Plain] {
        for model in super::MODELS {
            let play = |scene: &Scene| resized(scene, way);
            stage.play(Setup::default().setting("DoorbellModel", model), play).with_context(|| format!("{way:?}"))?;
        }
    }
    Ok(())
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
    const SIZES: [u64; 4] = [4096, 65536, 8192, 16384];
    stage.play(Setup::default(), |scene| {
        let user = scene.process("client")?;
        let device = user.open()?.device()?;
        let queue = device.queue(0, 4096, 0, 0)?;
        let memory = device.allocate(FP_KIND_SYSTEM, 65536, 0)?;
        let (at, gate) = (memory.gpu_va()?, device.fence(0, 0)?);
        // Each submission counts on from the one before, so that none is lost, comes twice or changes places.
        let mut count = 0;
        let mut submit = |times: u64| -> Played {
            for _ in 0..times {
                count += 1;
                let mut list = queue.list()?;
                list.copy(at, at + 8 * count, 8)?;
                list.store(at, count)?;
                queue.submit(&mut list)?;
            }
            Ok(())
        };
        for round in 0..60 {
            submit(50)?;
            let resize = || queue.resize(SIZES[round % SIZES.len()]);
            while let Err(error) = resize() {
                refused::<()>("a resize", Err(error), STATUS_IO_TIMEOUT)?;
                queue.wait(0, PATIENCE)?;
            }
        }
        submit(50)?;
        queue.wait(0, PATIENCE)?;
        for value in 1..=60 * 50 + 50 {
            same("what was there before", memory.read_u64(8 * value)?, value - 1)?;
        }
        same("progress", queue.progress()?, (3050, 3050))?;
        // Behind a wait: two rings are kept, and no more.
        queue.run(|list| list.wait(&gate, 1))?;
        for value in [1, 2] {
            queue.run(|list| list.store(at, value))?;
            queue.resize(8192)?;
        }
        queue.run(|list| list.store(at, 3))?;
        refused("a third resize behind a wait", queue.resize(4096), STATUS_IO_TIMEOUT)?;
        refused("no size of a ring", queue.resize(5000), STATUS_INVALID_PARAMETER)?;
        same("progress", queue.progress()?, (3050, 3054))?;
        gate.signal(1)?;
        queue.wait(0, PATIENCE)?;
        same("the last store", memory.read_u64(0)?, 3)?;
        queue.resize(4096)?;
        queue.run(|list| list.store(at, 4))?;
        queue.wait(0, PATIENCE)?;
        same("the last store", memory.read_u64(0)?, 4)?;
        let kernel = device.queue(0, 4096, FP_QUEUE_KERNEL_MODE, 0)?;
        refused("of a kernel-mode queue", kernel.resize(8192), STATUS_NOT_SUPPORTED)?;
        Ok(())
    })
}
