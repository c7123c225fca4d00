//! What lies where the GPU reaches it, goes and comes back; paging operations.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use super::used;
use crate::scenario::client::{Client, PATIENCE};
use crate::scenario::db::{Room, raw};
use crate::scenario::st::Worker;
use crate::scenario::{Played, Scenario, Scene, Setup, Stage, same};
use crate::wrap::{machine, own, record};
use anyhow::{Context, ensure};
use gpu_wire::packet::Copy;
use gpu_wire::private::allocation_kind;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use wddm_abi::ntstatus::STATUS_INVALID_PARAMETER;
use wddm_abi::{
    DRIVER_INITIALIZATION_DATA, DXGK_BUILDPAGINGBUFFER_OPERATION, DXGKARG_BUILDPAGINGBUFFER, DXGKARG_CREATENATIVEFENCE,
    HANDLE, NTSTATUS,
};

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "RP-12",
        title: "a driver whose DxgkDdiBuildPagingBuffer fails with a status that its page does not list is bug check 0x10E",
        source: "DxgkDdiBuildPagingBuffer, Return value; bug check 0x10E",
        play: illegal_status,
    },
    Scenario {
        id: "RP-13",
        title: "what is evicted and made resident again holds what it held, while others lay in its place",
        source: "D3DKMTEvict; D3DKMTMakeResident; DXGK_BUILDPAGINGBUFFER_VIRTUALTRANSFER",
        play: contents,
    },
    Scenario {
        id: "RP-14",
        title: "page table entries of native fences: whatever fence stands where an allocation would, their addresses work",
        source: "DXGK_UPDATEPAGETABLEFLAGS, NativeFence; DXGK_BUILDPAGINGBUFFER_UPDATEPAGETABLE, hAllocation",
        play: fence_entries,
    },
];

/// Bytes of an allocation that is to be filled with zeros by no other one's size.
const ODD_SIZE: u64 = 13 << 12;

/// Of each machine: the handle that the driver gave the last native fence, and how many updates named one in an
/// allocation's place.
static NAMED: Mutex<BTreeMap<usize, (usize, u64)>> = Mutex::new(BTreeMap::new());

crate::decorate! {
    refuses_odd_fills: DxgkDdiBuildPagingBuffer(adapter: HANDLE, args: *mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
        let arguments = record!(args);
        let is_fill = arguments.Operation == DXGK_BUILDPAGINGBUFFER_OPERATION::DXGK_OPERATION_VIRTUAL_FILL;
        if is_fill && arguments.FillVirtual().FillSizeInBytes == ODD_SIZE {
            return STATUS_INVALID_PARAMETER;
        }
        own!(DxgkDdiBuildPagingBuffer(adapter, args))
    }

    notes_fences: DxgkDdiCreateNativeFence(adapter: HANDLE, args: *mut DXGKARG_CREATENATIVEFENCE) -> NTSTATUS {
        let status = own!(DxgkDdiCreateNativeFence(adapter, args));
        let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
        named.entry(machine()).or_default().0 = record!(args).hGlobalNativeFence.expose_provenance();
        status
    }

    names_fences: DxgkDdiBuildPagingBuffer(adapter: HANDLE, args: *mut DXGKARG_BUILDPAGINGBUFFER) -> NTSTATUS {
        let arguments = record!(args);
        let is_update = arguments.Operation == DXGK_BUILDPAGINGBUFFER_OPERATION::DXGK_OPERATION_UPDATE_PAGE_TABLE;
        if is_update && arguments.UpdatePageTable().Flags.NativeFence() {
            let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
            let (fence, count) = named.entry(machine()).or_default();
            if *fence != 0 {
                arguments.UpdatePageTable_mut().hAllocation = core::ptr::with_exposed_provenance_mut(*fence);
                *count += 1;
            }
        }
        own!(DxgkDdiBuildPagingBuffer(adapter, args))
    }
}

fn illegal_status(stage: &Stage) -> Played {
    let setup = Setup::default().with_driver(refuses_odd_fills).breaks(&["DXG-PAGING-STATUS"]);
    stage.play(setup, |scene| {
        let (bad, good) = (raw(scene)?, Client::open(scene, "beside it")?);
        let room = Room::new(&bad)?;
        let local = room.create(allocation_kind::LOCAL, ODD_SIZE)?;
        room.make_resident(scene, local)?;
        let all = scene.world.os.kernel().rules.violations();
        let found = all.iter().find(|violation| violation.rule.name == "DXG-PAGING-STATUS").context("no violation")?;
        same("bug check", (found.code, found.params[0]), (0x10E, 0xB))?;
        // Where Windows would have stopped: that device alone is lost.
        scene.until("the device's error", || Ok(!room.is_active()?))?;
        let (queue, page) = (good.queue(1)?, good.page()?);
        queue.run(|list| list.store(page.at(0), 1))?;
        page.until(scene, "work of another device", 0, 1)
    })
}

/// Bytes of an allocation that comes and goes.
const BYTES: u64 = 64 << 10;

fn contents(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let worker = Worker::new(scene, &room, stage.rung())?;
        let (source, seen) = (room.memory(scene, BYTES)?, room.memory(scene, BYTES)?);
        let words = || (0..BYTES / 8).zip((0..).step_by(8));
        let value = |word: u64, round: u64| (word + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(round);
        let copy = |from, to| Copy { source: from, destination: to, length: BYTES }.to_packet();
        for kind in [allocation_kind::LOCAL, allocation_kind::SYSTEM] {
            let memory = room.create(kind, BYTES)?;
            room.make_resident(scene, memory)?;
            let at = room.map(scene, memory, 0)?;
            for round in 1..=3 {
                words().try_for_each(|(word, offset)| raw.store(source.cpu + offset, value(word, round)))?;
                worker.run(scene, &[copy(source.gpu, at)])?;
                let before = used(scene);
                room.evict(memory)?;
                // What another allocation holds, in the same place perhaps.
                let other = room.create(kind, BYTES)?;
                room.make_resident(scene, other)?;
                let elsewhere = room.map(scene, other, 0)?;
                same("local memory in use", used(scene), before)?;
                worker.run(scene, &[copy(seen.gpu, elsewhere)])?;
                room.make_resident(scene, memory)?;
                room.destroy(other)?;
                worker.run(scene, &[copy(at, seen.gpu)])?;
                for (word, offset) in words() {
                    same("a word", raw.load(seen.cpu + offset)?, value(word, round))?;
                }
            }
        }
        Ok(())
    })
}

fn named_fences(table: &mut DRIVER_INITIALIZATION_DATA) {
    notes_fences(table);
    names_fences(table);
}

fn fence_entries(stage: &Stage) -> Played {
    for map in [0, 1] {
        let play = |scene: &Scene| {
            let rig = Client::open(scene, "client")?;
            let queue = rig.queue(0)?;
            let mut fences = Vec::new();
            for value in 1..=20 {
                // A fence that can be shared has pages of its own, so that each has entries.
                let fence = rig.device.shared_fence(0)?;
                queue.run(|list| list.signal(&fence, value))?;
                fence.wait(value, Some(PATIENCE))?;
                same("value", fence.value()?, value)?;
                fences.push(fence);
            }
            let machine = scene.world.os.kernel().number();
            let named = NAMED.lock().unwrap_or_else(PoisonError::into_inner).get(&machine).copied().unwrap_or_default();
            ensure!(named.1 > 0, "no update of page tables was for a native fence");
            Ok(())
        };
        let setup = Setup::default().setting("MapToGpuSystemProcess", map).with_driver(named_fences);
        stage.play(setup, play).with_context(|| format!("MapToGpuSystemProcess {map}"))?;
    }
    Ok(())
}
