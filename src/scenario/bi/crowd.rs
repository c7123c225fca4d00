//! One process uses up what all of them share: the lists of a node, and the driver's memory for objects.

use super::worker::Worker;
use crate::client::{Device, Result as Called};
use crate::scenario::db::{RingQueue, Room, raw};
use crate::scenario::{Played, Scenario, Setup, Stage, same};
use anyhow::{Context, ensure};
use dxgkrnl_model::process::End;
use gpu_wire::packet::Indirect;
use gpu_wire::private::allocation_kind;
use std::sync::Arc;
use umd_core::ffi::types::FP_KIND_SYSTEM;
use wddm_abi::{
    D3DDDI_CREATECONTEXTFLAGS, D3DDDI_MAPGPUVIRTUALADDRESS, D3DDDI_RESERVEGPUVIRTUALADDRESS,
    D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION as Operation, D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION_TYPE as Type,
    D3DKMT_DESTROY_DOORBELL, D3DKMT_UPDATEGPUVIRTUALADDRESS, ntstatus,
};

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "BI-43",
        title: "queues that are rung and destroyed while their node is busy take no room from another process's",
        source: "User-mode work submission, Doorbell; DxgkDdiDestroyHwQueue",
        play: rung_and_destroyed,
    },
    Scenario {
        id: "BI-44",
        title: "a process gets so many objects and no more, and again as many when it has destroyed them",
        source: "DxgkDdiCreateHwQueue, Return value; docs/settings.md, ObjectsPerProcess",
        play: as_many_as_it_may,
    },
    Scenario {
        id: "BI-47",
        title: "fences and allocations that only an NT handle keeps are among the objects that a process may have",
        source: "D3DKMTShareObjects; DXGKCB_GETHANDLEDATA; docs/settings.md, ObjectsPerProcess",
        play: kept_by_handles,
    },
    Scenario {
        id: "BI-48",
        title: "a process that asks for changes of very many pages is refused, and the paging of others goes on",
        source: "D3DKMTMapGpuVirtualAddress; D3DKMTUpdateGpuVirtualAddress, Return value",
        play: very_many_pages,
    },
];

/// More than the lists of a node have room for without being asked for more.
const CROWD: usize = 100;

fn rung_and_destroyed(stage: &Stage) -> Played {
    stage.play(Setup::default().quick_tdr().resets(1), |scene| {
        let good = raw(scene)?;
        let room = Room::new(&good)?;
        let victim = RingQueue::connected(scene, &room, 0, 4096)?;
        let progress = victim.submit_through(&[])?;
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
            rooms.connect(queue.handle, bell.handle)?;
            let mut record = D3DKMT_DESTROY_DOORBELL::zeroed();
            record.hDoorbell = bell.handle;
            bad.ok(bad.thunks.D3DKMTDestroyDoorbell, &mut record)?;
            rooms.destroy_queue(queue.handle)?;
        }
        let progress = victim.submit_through(&[])?;
        Arc::into_inner(bad.process).context("another owner of the process")?.end(End::Terminated);
        victim.wait(scene, progress)?;
        let later = raw(scene)?;
        let room = Room::new(&later)?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        let progress = queue.submit_through(&[])?;
        queue.wait(scene, progress)
    })
}

/// Objects that a process may have in BI-44.
const ALLOWED: u32 = 40;

fn as_many_as_it_may(stage: &Stage) -> Played {
    // Below rung 3 the kernel submits to them.
    let user_mode = stage.rung() == 3;
    stage.play(Setup::default().setting("ObjectsPerProcess", ALLOWED), |scene| {
        let bad = raw(scene)?;
        let room = Room::new(&bad)?;
        let context = room.context(0)?;
        let mut queues = Vec::new();
        let mut counts = Vec::new();
        for _ in 0..3 {
            let refused = loop {
                match room.queue_in(context, user_mode) {
                    Ok(queue) => queues.push(queue.handle),
                    Err(refused) => break refused,
                }
                ensure!(queues.len() <= ALLOWED as usize, "{} queues", queues.len());
            };
            let words = format!("{refused:#}");
            ensure!(words.contains("STATUS_NO_MEMORY"), "the queue beyond the last: {words}");
            counts.push(queues.len());
            // Another process has as many for itself.
            Worker::new(scene, "good", 0)?.run(scene, &[])?;
            for queue in queues.drain(..) {
                room.destroy_queue(queue)?;
            }
        }
        same("queues each time", counts.as_slice(), &[counts[0]; 3])?;
        // Each has a progress fence, which is opened.
        ensure!(counts[0] > ALLOWED as usize / 4, "{} queues of {ALLOWED} objects", counts[0]);
        // Each object is counted out once, whoever destroys it.
        for _ in 0..4 {
            let other = Room::new(&bad)?;
            let context = other.context(0)?;
            for _ in 0..8 {
                other.queue_in(context, user_mode)?;
            }
            bad.destroy_device(other.device)?;
        }
        Ok(())
    })
}

/// Makes an object that only an NT handle keeps: that handle.
type Make = fn(&Device) -> Called<u64>;

fn kept_by_handles(stage: &Stage) -> Played {
    // Closed at once: nothing but the NT handle keeps what was made.
    let fence = |device: &Device| device.shared_fence(0)?.share();
    let memory = |device: &Device| device.allocate_shared(FP_KIND_SYSTEM, 4096)?.share();
    let kinds: [(&str, Make); 2] = [("allocations", memory), ("fences", fence)];
    // Below rung 2 fences are monitored ones, which are no objects of the driver's.
    let kinds = &kinds[..if stage.rung() >= 2 { 2 } else { 1 }];
    stage.play(Setup::default().setting("ObjectsPerProcess", ALLOWED), |scene| {
        for (what, make) in kinds.iter().copied() {
            let keeps = scene.process("keeps")?;
            let adapter = keeps.open()?;
            let mut counts = Vec::new();
            for _ in 0..2 {
                let device = adapter.device()?;
                let mut handles = Vec::new();
                let refused = loop {
                    match make(&device) {
                        Ok(handle) => handles.push(handle),
                        Err(refused) => break refused,
                    }
                    ensure!(handles.len() <= ALLOWED as usize, "{} {what}", handles.len());
                };
                same("the refusal", refused.status, ntstatus::STATUS_NO_MEMORY)?;
                counts.push(handles.len());
                // Another process has as many objects for itself, and opens what it is given.
                let good = scene.process("another")?;
                let other = good.open()?.device()?;
                make(&other).context(what)?;
                // With the device gone as well, they are still the process's.
                drop(device);
                let again = adapter.device()?;
                let refused = make(&again).err().context("the refusal with another device")?;
                same("the refusal with another device", refused.status, ntstatus::STATUS_NO_MEMORY)?;
                drop(again);
                handles.into_iter().try_for_each(|handle| adapter.close_nt_handle(handle))?;
            }
            same(what, counts[1], counts[0])?;
            ensure!(counts[0] > ALLOWED as usize / 2, "{} {what} of {ALLOWED} objects", counts[0]);
        }
        Ok(())
    })
}

/// Bytes of the range that a process reserves in BI-48: 2^28 pages.
const VAST: u64 = 1 << 40;

fn very_many_pages(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let bad = raw(scene)?;
        let room = Room::new(&bad)?;
        let one = room.create(allocation_kind::SYSTEM, 4096)?;
        let mut reserved = D3DDDI_RESERVEGPUVIRTUALADDRESS::zeroed();
        reserved.set_hAdapter(bad.adapter);
        reserved.Size = VAST;
        bad.ok(bad.thunks.D3DKMTReserveGpuVirtualAddress, &mut reserved)?;
        let base = reserved.VirtualAddress;
        // Whatever there is on this rung.
        let context = match stage.rung() {
            0 => room.context_with(0, D3DDDI_CREATECONTEXTFLAGS::zeroed())?,
            _ => room.context(0)?,
        };
        let fence = bad.monitored_fence(room.device, 0, false)?;
        let mut answers = Vec::new();
        // Ranges without memory, as often as they are asked for.
        for pages in [1 << 32, 1 << 26] {
            let mut map = D3DDDI_MAPGPUVIRTUALADDRESS::zeroed();
            (map.hPagingQueue, map.SizeInPages) = (room.paging(), pages);
            map.Protection.set_Zero(true);
            answers.push(("a map", bad.ok(bad.thunks.D3DKMTMapGpuVirtualAddress, &mut map)));
        }
        // One page of memory over and over, a whole range at once, and many operations of which each would do.
        let shown = |size: u64| {
            let mut operation = Operation::zeroed();
            operation.OperationType = Type::D3DDDI_UPDATEGPUVIRTUALADDRESS_MAP;
            let map = operation.Map_mut();
            (map.BaseAddress, map.SizeInBytes, map.hAllocation, map.AllocationSizeInBytes) = (base, size, one, 4096);
            operation
        };
        let bare = |size: u64| {
            let mut operation = Operation::zeroed();
            operation.OperationType = Type::D3DDDI_UPDATEGPUVIRTUALADDRESS_UNMAP;
            let unmap = operation.Unmap_mut();
            (unmap.BaseAddress, unmap.SizeInBytes) = (base, size);
            unmap.Protection.set_NoAccess(true);
            operation
        };
        for mut operations in
            [vec![shown(VAST)], vec![bare(VAST)], vec![bare(8 << 30); 4096], vec![shown(64 << 20); 64]]
        {
            let mut record = D3DKMT_UPDATEGPUVIRTUALADDRESS::zeroed();
            (record.hDevice, record.hContext, record.hFenceObject) = (room.device, context, fence.handle);
            // CAST: at most 4096.
            (record.NumOperations, record.Operations) = (operations.len() as u32, operations.as_mut_ptr());
            answers.push(("an update", bad.ok(bad.thunks.D3DKMTUpdateGpuVirtualAddress, &mut record)));
        }
        // Before the answers are looked at: a process that is not refused holds the others.
        Worker::new(scene, "good", 0)?.run(scene, &[])?;
        for (what, answer) in answers {
            let refused = answer.err().with_context(|| format!("{what} was not refused"))?;
            let words = format!("{refused:#}");
            ensure!(words.contains("STATUS_NO_MEMORY"), "{what}: {words}");
        }
        Ok(())
    })
}
