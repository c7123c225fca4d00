//! Translations that go, allocations that go.

use super::super::client::{Client, until_idle};
use super::super::db::Room;
use super::super::{Played, Scene, Setup, Stage, same};
use anyhow::Context;
use dxgkrnl_model::personality::FlushEnd;
use gpu_wire::private::allocation_kind;
use umd_core::ffi::types::FP_KIND_SYSTEM;

/// Two allocations change places in local memory, and the GPU writes each where it is now.
fn change_places(scene: &Scene) -> Played {
    let rig = Client::open(scene, "client")?;
    // The queue's device and the memory's are of one process, and so of one address space.
    let (queue, room) = (rig.queue(0)?, Room::new(&rig.raw)?);
    let seen = room.memory(scene, 4096)?;
    for pages in [1, 2] {
        let mut both = Vec::new();
        for _ in 0..2 {
            let handle = room.create(allocation_kind::LOCAL, pages * 4096).context("allocation")?;
            room.make_resident(scene, handle)?;
            both.push((handle, room.map(scene, handle, 0)?));
        }
        for round in 1..10_u64 {
            let (one, two) = (both[0], both[1]);
            queue.run(|list| list.store(one.1, round * 2).and_then(|()| list.store(two.1, round * 2 + 1)))?;
            until_idle(scene, &queue)?;
            queue.run(|list| list.copy(one.1, seen.gpu, 8).and_then(|()| list.copy(two.1, seen.gpu + 8, 8)))?;
            until_idle(scene, &queue)?;
            let words = (room.raw.load(seen.cpu)?, room.raw.load(seen.cpu + 8)?);
            same("memory", words, (round * 2, round * 2 + 1))
                .with_context(|| format!("round {round}, {pages} pages"))?;
            room.evict(one.0)?;
            room.evict(two.0)?;
            both.swap(0, 1);
            // The allocation that lay behind the other is placed first, so that they change places.
            for (handle, _) in &both {
                room.make_resident(scene, *handle)?;
            }
        }
    }
    Ok(())
}

pub(super) fn flush_ends(stage: &Stage) -> Played {
    for end in [FlushEnd::Behind, FlushEnd::LastPage] {
        let setup = Setup::default().windows(|windows| windows.flush_end = end);
        stage.play(setup, change_places).with_context(|| format!("{end:?}"))?;
    }
    Ok(())
}

pub(super) fn stray_handles(stage: &Stage) -> Played {
    stage.play(Setup::default().windows(|windows| windows.faults.stray_handles = true), |scene| {
        let rig = Client::open(scene, "client")?;
        let queue = rig.queue(0)?;
        for round in 1..10 {
            let memory = rig.device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
            let at = memory.gpu_va()?;
            queue.run(|list| list.store(at, round))?;
            until_idle(scene, &queue)?;
            same("memory", memory.read_u64(0)?, round)?;
        }
        Ok(())
    })
}
