//! Functions of two processes side by side.

use crate::scenario::db::{HardwareQueue, Memory, RingQueue, Room, raw, store};
use crate::scenario::raw::{ALL, duplicate};
use crate::scenario::{Played, Raw, Scenario, Scene, Setup, Stage, same};
use anyhow::{Context, anyhow, ensure};
use dxgkrnl_model::personality::Clock;
use gpu_wire::private::allocation_kind;
use nt_model::sched::seeded::SeededOptions;
use std::sync::Barrier;
use wddm_abi::{
    D3DDDI_CREATECONTEXTFLAGS, D3DDDI_MAKERESIDENT, D3DDDI_MAPGPUVIRTUALADDRESS, D3DKMT_DESTROY_DOORBELL,
    D3DKMT_DESTROYCONTEXT, D3DKMT_HANDLE,
};

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "BI-45",
        title: "each function that makes, changes or destroys an object, beside each one of another process",
        source: "Threading and synchronization zero level",
        play: pairs,
    },
    Scenario {
        id: "BI-46",
        title: "a fence of a lost device keeps its value when another process signals it from the CPU",
        source: "DxgkDdiUpdateCurrentValuesFromCpu; DXGK_UPDATECURRENTVALUESFROMCPU_FLAGS, AlwaysSignaled",
        play: dead_fence,
    },
];

/// How often a process does its half of a pair.
const TIMES: u32 = 3;

/// Schedules under which all pairs are played.
const SEEDS: u64 = 3;

/// What a process has while its functions are called.
struct Side<'a> {
    scene: &'a Scene,
    raw: &'a Raw,
    room: &'a Room<'a>,
    context: D3DKMT_HANDLE,
    /// Queues on both nodes: one without a doorbell, and one whose doorbell stays.
    bare: HardwareQueue,
    kept: (D3DKMT_HANDLE, D3DKMT_HANDLE),
    pages: [Memory; 2],
    /// A device of its own, for fences, and an NT handle of a fence.
    device: D3DKMT_HANDLE,
    shared: usize,
}

/// What a process does, and the functions of the driver that are called for it.
type Half = (&'static str, &'static [&'static str], fn(&Side) -> Played);

/// Every half.
const HALVES: &[Half] = &[
    ("device", &["DxgkDdiCreateDevice", "DxgkDdiDestroyDevice"], |side| {
        side.raw.destroy_device(side.raw.device()?).context("destroy")
    }),
    ("context", &["DxgkDdiCreateContext", "DxgkDdiDestroyContext"], |side| {
        let mut record = D3DKMT_DESTROYCONTEXT::zeroed();
        // One for packets: Windows makes it one way under every reading.
        record.hContext = side.room.context_with(0, D3DDDI_CREATECONTEXTFLAGS::zeroed())?;
        side.raw.ok(side.raw.thunks.D3DKMTDestroyContext, &mut record).context("destroy")
    }),
    ("queue", &["DxgkDdiCreateHwQueue", "DxgkDdiDestroyHwQueue"], |side| {
        let queue = side.room.queue_in(side.context, true)?;
        side.room.destroy_queue(queue.handle).context("destroy")
    }),
    ("doorbell", &["DxgkDdiCreateDoorbell", "DxgkDdiConnectDoorbell", "DxgkDdiDestroyDoorbell"], |side| {
        let bell = side.room.bell(side.bare.handle, &side.pages[0], &side.pages[1])?.handle;
        side.room.connect(side.bare.handle, bell).context("connect")?;
        let mut record = D3DKMT_DESTROY_DOORBELL::zeroed();
        record.hDoorbell = bell;
        side.raw.ok(side.raw.thunks.D3DKMTDestroyDoorbell, &mut record).context("destroy")
    }),
    ("connection", &["DxgkDdiConnectDoorbell", "DxgkDdiDisconnectDoorbell"], |side| {
        side.room.connect(side.kept.0, side.kept.1)?;
        side.scene.world.os.disconnect_doorbells(side.scene.adapter(), true);
        Ok(())
    }),
    ("suspension", &["DxgkDdiSuspendContext", "DxgkDdiResumeContext"], |side| {
        let (os, adapter) = (&side.scene.world.os, side.scene.adapter());
        let suspended = os.suspend(adapter, &side.raw.process);
        os.resume(adapter, &side.raw.process);
        ensure!(suspended, "no acknowledgement");
        Ok(())
    }),
    ("fence", &["DxgkDdiCreateNativeFence", "DxgkDdiOpenNativeFence", "DxgkDdiDestroyNativeFence"], |side| {
        let fence = side.raw.native_fence(side.device, 0)?.handle;
        side.raw.signal_cpu(side.device, &[(fence, 1)]).context("signal")?;
        side.raw.destroy_fence(fence).context("destroy")
    }),
    ("shared fence", &["DxgkDdiOpenNativeFence", "DxgkDdiCloseNativeFence"], |side| {
        let shared = std::ptr::with_exposed_provenance_mut(side.shared);
        let fence = side.raw.open_native_fence(side.device, shared)?.handle;
        side.raw.destroy_fence(fence).context("close")
    }),
    ("process", &["DxgkDdiCreateProcess", "DxgkDdiDestroyProcess"], |side| {
        let other = raw(side.scene)?;
        let device = other.device()?;
        other.destroy_device(device).context("destroy")
    }),
    ("allocation", &["DxgkDdiCreateAllocation", "DxgkDdiBuildPagingBuffer", "DxgkDdiDestroyAllocation"], allocation),
];

/// An allocation that is made resident and mapped. What is waited for is waited for inside the machine: outside of it
/// no other thread would go on.
fn allocation(side: &Side) -> Played {
    let Side { raw, room, .. } = side;
    let allocation = room.create(allocation_kind::SYSTEM, 4096)?;
    let mut resident = D3DDDI_MAKERESIDENT::zeroed();
    resident.hPagingQueue = room.paging();
    (resident.NumAllocations, resident.AllocationList) = (1, &raw const allocation);
    raw.ok(raw.thunks.D3DKMTMakeResident, &mut resident).context("make resident")?;
    let mut map = D3DDDI_MAPGPUVIRTUALADDRESS::zeroed();
    (map.hPagingQueue, map.hAllocation) = (room.paging(), allocation);
    map.Protection.set_Write(true);
    raw.ok(raw.thunks.D3DKMTMapGpuVirtualAddress, &mut map).context("map")?;
    raw.wait_cpu(room.device, &[(room.paging_object, map.PagingFenceValue)], false, None).context("paging")?;
    room.destroy(allocation).context("destroy")
}

fn pairs(stage: &Stage) -> Played {
    for seed in 0..SEEDS {
        let seed = stage.seed().wrapping_mul(1000) + seed;
        let options = SeededOptions { closed: false, ..SeededOptions::new(seed) };
        // One physical doorbell: each connection takes it from the other process.
        let setup = Setup::default().setting("PhysicalDoorbells", 1);
        let setup = setup.windows(|windows| windows.clock = Clock::Seeded(options.clone()));
        stage.play(setup, every_pair).with_context(|| format!("schedule of seed {seed}"))?;
    }
    Ok(())
}

fn every_pair(scene: &Scene) -> Played {
    let (one, two) = (raw(scene)?, raw(scene)?);
    let rooms = [Room::new(&one)?, Room::new(&two)?];
    let fence = one.shared_native_fence(rooms[0].device, 0)?;
    let shared = one.share(fence.handle, ALL)?;
    let side = |room: &'_ Room<'_>| -> anyhow::Result<_> {
        let kept = RingQueue::new(scene, room, 1, 4096)?;
        let kept = (kept.queue.handle, kept.bell.handle);
        let pages = [room.memory(scene, 4096)?, room.memory(scene, 4096)?];
        let shared = duplicate(shared, &one.process, &room.raw.process)?.expose_provenance();
        Ok((room.context(0)?, room.queue(0, true)?, kept, pages, room.raw.device()?, shared))
    };
    let made = [side(&rooms[0])?, side(&rooms[1])?];
    let sides = [0, 1].map(|index| {
        let (context, bare, kept, pages, device, shared) = made[index];
        let room = &rooms[index];
        Side { scene, raw: room.raw, room, context, bare, kept, pages, device, shared }
    });
    let called = || HALVES.iter().map(|(_, names, _)| names.iter().map(|name| scene.calls(name)).collect::<Vec<_>>());
    for (first, (left, _, ours)) in HALVES.iter().enumerate() {
        for (right, _, theirs) in &HALVES[first..] {
            at_once(&sides, [*ours, *theirs]).with_context(|| format!("{left} beside {right}"))?;
        }
    }
    for (half, counts) in HALVES.iter().zip(called()) {
        ensure!(counts.iter().all(|count| *count >= u64::from(TIMES)), "{}: {:?} called {counts:?}", half.0, half.1);
    }
    Ok(())
}

/// Each side does its half some times, on a thread of its own inside the machine, where the seed says who goes on.
fn at_once(sides: &[Side; 2], halves: [fn(&Side) -> Played; 2]) -> Played {
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        let threads = [0, 1].map(|index| {
            let (side, half, start) = (&sides[index], halves[index], &start);
            scope.spawn(move || {
                start.wait();
                let _inside = side.raw.process.enter();
                (0..TIMES).try_for_each(|_| half(side))
            })
        });
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread ended by itself"))?)
    })
}

fn dead_fence(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let (one, two) = (raw(scene)?, raw(scene)?);
        let (room, other) = (Room::new(&one)?, two.device()?);
        let fence = one.shared_native_fence(room.device, 0)?;
        let shared = duplicate(one.share(fence.handle, ALL)?, &one.process, &two.process)?;
        let opened = two.open_native_fence(other, shared)?;
        two.signal_cpu(other, &[(opened.handle, 3)]).context("a signal before")?;
        let queue = RingQueue::connected(scene, &room, 0, 4096)?;
        queue.submit(&[store(0, 1)])?;
        room.lost_by_page_fault(scene)?;
        scene.until("the end of all waits", || Ok(two.load(opened.cpu)? != 3))?;
        let value = two.load(opened.cpu)?;
        // The signal itself may be refused; what it may not do is to show.
        let _ = two.signal_cpu(other, &[(opened.handle, 5)]);
        same("the value behind a signal", two.load(opened.cpu)?, value)
    })
}
