//! Rings and their control words under a doorbell: who may take them away, and when they go.

use crate::scenario::db::{ABORT, CONNECTED, RETRY, RingQueue, Room, denied, raw, store};
use crate::scenario::{Played, Scenario, Scene, Setup, Stage, portable, same};
use anyhow::{Context, ensure};
use gpu_wire::private::allocation_kind;
use nt_model::MapError;
use wddm_abi::D3DKMT_FREEGPUVIRTUALADDRESS;
use wddm_abi::ntstatus::STATUS_INVALID_PARAMETER;

const RESIDENCY: &str = "User-mode work submission, Residency model of doorbell memory and ring buffer allocations";

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "RP-01",
        title: "a ring, or its control words, that is not resident: no doorbell is made",
        source: RESIDENCY,
        play: not_resident,
    },
    Scenario {
        id: "RP-02",
        title: "a ring that is destroyed under its doorbell is there until the doorbell goes",
        source: RESIDENCY,
        play: destroyed_under,
    },
    Scenario {
        id: "RP-04",
        title: "a ring whose addresses are freed under its queue: a page fault of its device, and others run on",
        source: "D3DKMTFreeGpuVirtualAddress; DXGKARGCB_NOTIFY_INTERRUPT_DATA, HwQueuePageFaulted",
        play: unmapped_under,
    },
    Scenario {
        id: "RP-17",
        title: "a ring that is evicted under its doorbell stays resident, its context suspended or not, until the doorbell \
                goes",
        source: "User-mode work submission, Hardware context suspension; D3DKMTEvict",
        play: evicted_under,
    },
    Scenario {
        id: "RP-18",
        title: "rings are there until their device goes: without doorbell, queue and context, and in error",
        source: RESIDENCY,
        play: until_the_device_goes,
    },
];

/// What the driver is told when an allocation goes.
const GONE: [&str; 2] = ["DxgkDdiCloseAllocation", "DxgkDdiDestroyAllocation"];

/// Waits until what was asked of the paging worker before is done.
fn settle(scene: &Scene, room: &Room<'_>) -> Played {
    let behind = room.create(allocation_kind::SYSTEM, 4096)?;
    room.make_resident(scene, behind)?;
    Ok(room.destroy(behind)?)
}

fn not_resident(stage: &Stage) -> Played {
    portable::case(stage, "RP-01", |scene| same("calls of the driver", scene.calls("DxgkDdiCreateDoorbell"), 1))
}

fn destroyed_under(stage: &Stage) -> Played {
    portable::case(stage, "RP-02", |_| Ok(()))?;
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        let memory = room.memory(scene, 4096)?;
        let before = scene.journal(&GONE).len();
        for ring in [queue.ring.handle, queue.control.handle] {
            room.destroy(ring)?;
            denied("its handle, again", room.destroy(ring), STATUS_INVALID_PARAMETER)?;
        }
        settle(scene, &room)?;
        // The one that `settle` has made.
        same("what the driver was told of", scene.journal(&GONE).len() - before, 2)?;
        for value in 1..=3 {
            let progress = queue.submit_through(&[store(memory.gpu, value)])?;
            queue.wait(scene, progress)?;
            same("memory", raw.load(memory.cpu)?, value)?;
            scene.world.os.disconnect_doorbells(scene.adapter(), false);
        }
        let before = scene.journal(&GONE).len();
        queue.destroy_bell()?;
        let told = scene.journal(&GONE).split_off(before);
        same("what the driver was told with the doorbell's end", told, [GONE, GONE].concat())?;
        for at in [queue.ring.cpu, queue.control.cpu] {
            let mapping = scene.world.os.kernel().user_mapping(raw.process.nt(), at);
            same("the mapping at the ring's address", mapping.err(), Some(MapError::NotMapped))?;
        }
        let again = room.bell(queue.queue.handle, &queue.ring, &queue.control);
        denied("a doorbell of what is gone", again, STATUS_INVALID_PARAMETER)
    })
}

/// Frees the addresses at which the GPU has a ring.
fn free(room: &Room<'_>, base: u64, size: u64) -> Played {
    let mut record = D3DKMT_FREEGPUVIRTUALADDRESS::zeroed();
    (record.hAdapter, record.BaseAddress, record.Size) = (room.raw.adapter, base, size);
    room.raw.ok(room.raw.thunks.D3DKMTFreeGpuVirtualAddress, &mut record).context("free")
}

fn unmapped_under(stage: &Stage) -> Played {
    for model in [0, 1] {
        let setup = Setup::default().setting("DoorbellModel", model);
        stage.play(setup, |scene| {
            let (bad, good) = (raw(scene)?, raw(scene)?);
            let (room, beside, other) = (Room::new(&bad)?, Room::new(&bad)?, Room::new(&good)?);
            let memory = room.memory(scene, 4096)?;
            let faulting = RingQueue::connected(scene, &room, 0, 4096)?;
            let others =
                [RingQueue::connected(scene, &beside, 0, 4096)?, RingQueue::connected(scene, &other, 0, 4096)?];
            let progress = faulting.submit_through(&[store(memory.gpu, 1)])?;
            faulting.wait(scene, progress)?;
            free(&room, faulting.ring.gpu, faulting.ring.size)?;
            faulting.submit_through(&[store(memory.gpu, 2)])?;
            room.lost_by_page_fault(scene)?;
            same("what the ring held", bad.load(memory.cpu)?, 1)?;
            scene.until("ABORT", || Ok(faulting.status()? == ABORT))?;
            for queue in &others {
                let progress = queue.submit_through(&[])?;
                queue.wait(scene, progress)?;
            }
            same("the other devices", (beside.is_active()?, other.is_active()?), (true, true))
        })?;
    }
    Ok(())
}

fn evicted_under(stage: &Stage) -> Played {
    for suspended in [false, true] {
        let play = |scene: &Scene| {
            let raw = raw(scene)?;
            let room = Room::new(&raw)?;
            let memory = room.memory(scene, 4096)?;
            let queue = RingQueue::connected(scene, &room, 0, 4096)?;
            let (os, adapter) = (&scene.world.os, scene.adapter());
            if suspended {
                ensure!(os.suspend(adapter, &raw.process), "not suspended");
            }
            room.evict(queue.ring.handle)?;
            room.evict(queue.control.handle)?;
            settle(scene, &room)?;
            same("status", queue.status()?, CONNECTED)?;
            let mut progress = queue.submit_through(&[store(memory.gpu, 1)])?;
            if suspended {
                same("memory of a suspended context", raw.load(memory.cpu)?, 0)?;
                os.resume(adapter, &raw.process);
            }
            queue.wait(scene, progress)?;
            // Disconnected, they stay as well.
            os.disconnect_doorbells(adapter, false);
            same("status", queue.status()?, RETRY)?;
            settle(scene, &room)?;
            progress = queue.submit_through(&[store(memory.gpu, 2)])?;
            queue.wait(scene, progress)?;
            same("memory", raw.load(memory.cpu)?, 2)?;
            // With the doorbell what was evicted goes, and is as any other that is not resident.
            queue.destroy_bell()?;
            settle(scene, &room)?;
            let again = room.bell(queue.queue.handle, &queue.ring, &queue.control);
            denied("a doorbell of what was evicted", again, STATUS_INVALID_PARAMETER)?;
            room.make_resident(scene, queue.ring.handle)?;
            room.make_resident(scene, queue.control.handle)?;
            room.bell(queue.queue.handle, &queue.ring, &queue.control).context("a doorbell of what is resident")?;
            same("the device", room.is_active()?, true)
        };
        stage.play(Setup::default(), play).with_context(|| format!("suspended {suspended}"))?;
    }
    Ok(())
}

fn until_the_device_goes(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let told = || scene.journal(&GONE).len();
        let room = Room::new(&raw)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        let progress = queue.submit_through(&[])?;
        queue.wait(scene, progress)?;
        let words = [queue.ring.cpu, queue.control.cpu + 8];
        let is_there = |value| words.iter().try_for_each(|at| raw.store(*at, value)).context("a store to the ring");
        let before = told();
        queue.destroy_bell()?;
        is_there(1)?;
        room.destroy_queue(queue.queue.handle)?;
        is_there(2)?;
        room.destroy_context(queue.queue.context)?;
        is_there(3)?;
        same("what the driver was told before the device's end", told() - before, 0)?;
        raw.destroy_device(room.device)?;
        same("what the driver was told with the device's end", told() - before, 4)?;
        // A device in error keeps them, too.
        let room = Room::new(&raw)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        let before = told();
        free(&room, queue.ring.gpu, queue.ring.size)?;
        queue.submit_through(&[])?;
        room.lost_by_page_fault(scene)?;
        scene.until("ABORT", || Ok(queue.status()? == ABORT))?;
        raw.store(queue.ring.cpu, 4).context("a store to the ring of a lost device")?;
        same("what the driver was told of a lost device", told() - before, 0)?;
        raw.destroy_device(room.device)?;
        same("what the driver was told with its end", told() - before, 4)
    })
}
