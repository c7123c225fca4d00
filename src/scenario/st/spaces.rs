//! Address spaces: root page tables of contexts, and page tables that change in order with work.

use crate::scenario::db::{Memory, RingQueue, Room, raw, store};
use crate::scenario::{Denied, Played, Scenario, Scene, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use gpu_wire::packet::{Copy, Encoded};
use std::cell::Cell;
use wddm_abi::ntstatus::STATUS_INVALID_PARAMETER;
use wddm_abi::{
    D3DDDI_CREATECONTEXTFLAGS, D3DDDI_RESERVEGPUVIRTUALADDRESS, D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION as Operation,
    D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION_TYPE as Type, D3DKMT_HANDLE, D3DKMT_SUBMITCOMMAND,
    D3DKMT_UPDATEGPUVIRTUALADDRESS,
};

const TILES: &str = "Tile resources; D3DKMTUpdateGpuVirtualAddress; D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION";

pub(super) const CASES: &[Scenario] = &[
    Scenario {
        id: "ST-84",
        title: "a companion context has a root page table of its own, and the process's contexts keep theirs",
        source: "DxgkDdiSetRootPageTable; Tile resources; Per-process GPU virtual address spaces",
        play: companions,
    },
    Scenario {
        id: "ST-85",
        title: "page tables are mapped, unmapped and copied in order with work: the GPU finds what the OS believes",
        source: TILES,
        play: contents,
    },
    Scenario {
        id: "ST-86",
        title: "an empty range is copied over a mapped one, whose allocation goes: the GPU does not reach its pages",
        source: TILES,
        play: emptied,
    },
    Scenario {
        id: "ST-87",
        title: "an update of page tables waits for its fence's value and signals the next; what does not fit is refused",
        source: TILES,
        play: fences,
    },
];

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;

/// A context that is given packets, whichever way the rung has.
pub(in crate::scenario) struct Worker<'a> {
    room: &'a Room<'a>,
    context: D3DKMT_HANDLE,
    queue: Option<RingQueue<'a>>,
    /// Packets of a rung without rings lie here, one submission behind the other.
    code: Memory,
    used: Cell<u64>,
    /// The last word counts what is done.
    mark: Memory,
    count: Cell<u64>,
}

impl<'a> Worker<'a> {
    /// On node 0, by rings where `rung` and the stage have them.
    pub(in crate::scenario) fn new(scene: &Scene, room: &'a Room<'a>, rung: u32) -> Result<Self> {
        let has_rings = scene.adapter().caps().is_some_and(|caps| caps.has_user_mode_submission()) && rung == 3;
        let queue = has_rings.then(|| RingQueue::connected(scene, room, 0, 4096)).transpose()?;
        let context = match &queue {
            Some(queue) => queue.queue.context,
            None => room.context_with(node_of_packets(scene), D3DDDI_CREATECONTEXTFLAGS::zeroed())?,
        };
        let (code, mark) = (room.memory(scene, 16 * PAGE)?, room.memory(scene, PAGE)?);
        Ok(Self { room, context, queue, code, used: Cell::new(0), mark, count: Cell::new(0) })
    }

    /// Submits packets.
    pub(in crate::scenario) fn submit(&self, packets: &[Encoded]) -> Played {
        if let Some(queue) = &self.queue {
            queue.submit_through(packets)?;
            return Ok(());
        }
        let bytes: Vec<u8> = packets.iter().flat_map(|packet| packet.as_bytes().to_vec()).collect();
        let at = self.used.replace(self.used.get() + bytes.len() as u64);
        self.code.write(self.room.raw, at, &bytes)?;
        let mut record = D3DKMT_SUBMITCOMMAND::zeroed();
        // CAST: a few packets.
        (record.Commands, record.CommandLength) = (self.code.gpu + at, bytes.len() as u32);
        (record.BroadcastContextCount, record.BroadcastContext[0]) = (1, self.context);
        self.room.raw.ok(self.room.raw.thunks.D3DKMTSubmitCommand, &mut record)?;
        Ok(())
    }

    /// Submits packets and waits until they are done.
    pub(in crate::scenario) fn run(&self, scene: &Scene, packets: &[Encoded]) -> Played {
        let count = self.count.get() + 1;
        self.count.set(count);
        let done = store(self.mark.gpu, count);
        self.submit(&packets.iter().copied().chain([done]).collect::<Vec<_>>())?;
        let seen = || Ok(self.room.raw.load(self.mark.cpu)? == count || !self.room.is_active()?);
        scene.until("the end of what was submitted", seen)?;
        ensure!(self.room.is_active()?, "the device is lost");
        Ok(())
    }
}

/// A node that takes packets: the first that the GPU does not schedule by itself.
fn node_of_packets(scene: &Scene) -> u32 {
    let caps = scene.adapter().caps();
    let takes = |node: &u32| caps.as_ref().is_some_and(|caps| !caps.nodes[*node as usize].is_hardware_scheduled());
    (0..3).find(takes).unwrap_or(0)
}

/// A reserved range.
fn reserve(room: &Room<'_>, size: u64) -> Result<u64, Denied> {
    let mut record = D3DDDI_RESERVEGPUVIRTUALADDRESS::zeroed();
    record.set_hAdapter(room.raw.adapter);
    record.Size = size;
    room.raw.ok(room.raw.thunks.D3DKMTReserveGpuVirtualAddress, &mut record)?;
    Ok(record.VirtualAddress)
}

fn map(at: u64, size: u64, allocation: D3DKMT_HANDLE, offset: u64, part: u64) -> Operation {
    let mut operation = Operation::zeroed();
    operation.OperationType = Type::D3DDDI_UPDATEGPUVIRTUALADDRESS_MAP;
    let map = operation.Map_mut();
    (map.BaseAddress, map.SizeInBytes, map.hAllocation) = (at, size, allocation);
    (map.AllocationOffsetInBytes, map.AllocationSizeInBytes) = (offset, part);
    operation
}

fn protect(at: u64, size: u64, allocation: D3DKMT_HANDLE, write: bool) -> Operation {
    let mut operation = Operation::zeroed();
    operation.OperationType = Type::D3DDDI_UPDATEGPUVIRTUALADDRESS_MAP_PROTECT;
    let map = operation.MapProtect_mut();
    (map.BaseAddress, map.SizeInBytes, map.hAllocation) = (at, size, allocation);
    map.Protection.set_Write(write);
    operation
}

fn unmap(at: u64, size: u64) -> Operation {
    let mut operation = Operation::zeroed();
    operation.OperationType = Type::D3DDDI_UPDATEGPUVIRTUALADDRESS_UNMAP;
    let unmap = operation.Unmap_mut();
    (unmap.BaseAddress, unmap.SizeInBytes) = (at, size);
    unmap.Protection.set_NoAccess(true);
    operation
}

fn copy(from: u64, size: u64, to: u64) -> Operation {
    let mut operation = Operation::zeroed();
    operation.OperationType = Type::D3DDDI_UPDATEGPUVIRTUALADDRESS_COPY;
    let copy = operation.Copy_mut();
    (copy.SourceAddress, copy.SizeInBytes, copy.DestAddress) = (from, size, to);
    operation
}

/// Updates of page tables in order with the work of a worker, and the fence that they signal.
struct Updates<'a> {
    worker: &'a Worker<'a>,
    fence: D3DKMT_HANDLE,
    value: usize,
    /// The value that the next update waits for.
    next: Cell<u64>,
}

impl<'a> Updates<'a> {
    fn new(worker: &'a Worker<'a>) -> Result<Self, Denied> {
        let fence = worker.room.raw.monitored_fence(worker.room.device, 0, false)?;
        Ok(Self { worker, fence: fence.handle, value: fence.cpu, next: Cell::new(0) })
    }

    fn record(&self, operations: &mut [Operation], value: u64) -> D3DKMT_UPDATEGPUVIRTUALADDRESS {
        let mut record = D3DKMT_UPDATEGPUVIRTUALADDRESS::zeroed();
        record.hDevice = self.worker.room.device;
        (record.hContext, record.hFenceObject, record.FenceValue) = (self.worker.context, self.fence, value);
        // CAST: a few.
        (record.NumOperations, record.Operations) = (operations.len() as u32, operations.as_mut_ptr());
        record
    }

    fn call(&self, record: &mut D3DKMT_UPDATEGPUVIRTUALADDRESS) -> Result<(), Denied> {
        self.worker.room.raw.ok(self.worker.room.raw.thunks.D3DKMTUpdateGpuVirtualAddress, record)
    }

    fn until(&self, scene: &Scene, value: u64) -> Played {
        scene.until("an update of page tables", || Ok(self.worker.room.raw.load(self.value)? == value))
    }

    /// Makes the changes, and waits for them.
    fn make(&self, scene: &Scene, operations: &[Operation]) -> Played {
        let mut operations = operations.to_vec();
        let value = self.next.replace(self.next.get() + 1);
        self.call(&mut self.record(&mut operations, value))?;
        self.until(scene, value + 1)
    }
}

fn companions(stage: &Stage) -> Played {
    for limit in [0, 3] {
        for is_system in [false, true] {
            let setup = Setup::default().setting("MaxRung", limit);
            let setup = setup.windows(|windows| windows.companion_is_system = is_system);
            stage
                .play(setup, |scene| {
                    let raw = raw(scene)?;
                    let room = Room::new(&raw)?;
                    let (before, tile) = (room.memory(scene, PAGE)?, room.memory(scene, PAGE)?);
                    let worker = Worker::new(scene, &room, limit)?;
                    worker.run(scene, &[store(before.gpu, 1)])?;
                    let roots = scene.calls("DxgkDdiSetRootPageTable");
                    let updates = Updates::new(&worker)?;
                    let at = reserve(&room, 64 << 10)?;
                    updates.make(scene, &[map(at, PAGE, tile.handle, 0, 0)])?;
                    ensure!(scene.calls("DxgkDdiSetRootPageTable") > roots, "no companion was made");
                    worker.run(scene, &[store(before.gpu, 2), store(at, 3)])?;
                    same("what both contexts reach", (raw.load(before.cpu)?, raw.load(tile.cpu)?), (2, 3))?;
                    // A context that is made afterwards has the process's root.
                    let second = Worker::new(scene, &room, limit)?;
                    second.run(scene, &[store(before.gpu, 4), store(at, 5)])?;
                    same("what the next one reaches", (raw.load(before.cpu)?, raw.load(tile.cpu)?), (4, 5))?;
                    updates.make(scene, &[map(at + PAGE, PAGE, before.handle, 0, 0)])?;
                    worker.run(scene, &[store(at + PAGE, 6)])?;
                    same("memory", raw.load(before.cpu)?, 6)
                })
                .with_context(|| format!("rung {limit}, the companion is a system context: {is_system}"))?;
        }
    }
    Ok(())
}

/// Bytes of a paging buffer that one packet of copied entries fits at a time.
const SMALL: u32 = 272;

/// Plays with a worker and updates on rungs 0 and 3, with and without a flush behind copies, and in small paging
/// buffers.
fn on_both(stage: &Stage, body: fn(&Scene, &Room<'_>, &Updates<'_>) -> Played) -> Played {
    for limit in [0, 3] {
        for (flushless, size) in [(false, None), (true, None), (true, Some(SMALL))] {
            let setup = Setup::default().setting("MaxRung", limit).quick_tdr();
            let setup = setup.windows(|windows| {
                (windows.copy_without_flush, windows.faults.paging_buffer_size) = (flushless, size);
            });
            stage
                .play(setup, |scene| {
                    let raw = raw(scene)?;
                    let room = Room::new(&raw)?;
                    let worker = Worker::new(scene, &room, limit)?;
                    let updates = Updates::new(&worker)?;
                    body(scene, &room, &updates)
                })
                .with_context(|| format!("rung {limit}, copies without flush: {flushless}, buffers: {size:?}"))?;
        }
    }
    Ok(())
}

/// Pages of the pool.
const POOL: u64 = 8;
/// Pages of the reserved range: more than one page table has entries.
const RANGE: u64 = 1024;

fn contents(stage: &Stage) -> Played {
    on_both(stage, |scene, room, updates| {
        let pool = room.memory(scene, POOL * PAGE)?;
        let seen = room.memory(scene, PAGE)?;
        for page in 0..POOL {
            // CAST: within the pool.
            room.raw.store(pool.cpu + (page * PAGE) as usize, 100 + page)?;
        }
        let at = reserve(room, RANGE * PAGE)?;
        let page = |index: u64| at + index * PAGE;
        let finds = |what: &str, expected: &[(u64, u64)]| -> Played {
            for (index, number) in expected {
                let read = Copy { source: page(*index), destination: seen.gpu, length: 8 }.to_packet();
                updates.worker.run(scene, &[read]).with_context(|| format!("{what}: page {index}"))?;
                same(&format!("{what}: page {index}"), room.raw.load(seen.cpu)?, 100 + number)?;
            }
            Ok(())
        };
        // The whole pool, over the end of a page table.
        let edge = 512 - (at / PAGE) % 512;
        updates.make(scene, &[map(page(edge - 4), POOL * PAGE, pool.handle, 0, 0)])?;
        finds("the pool", &(0..POOL).map(|n| (edge - 4 + n, n)).collect::<Vec<_>>())?;
        // Two pages again and again.
        updates.make(scene, &[map(page(0), 6 * PAGE, pool.handle, 2 * PAGE, 2 * PAGE)])?;
        finds("a part", &(0..6).map(|n| (n, 2 + n % 2)).collect::<Vec<_>>())?;
        // A copy, and one in each direction over what it copies, over the end of a page table.
        updates.make(scene, &[copy(page(edge - 4), POOL * PAGE, page(16))])?;
        finds("a copy", &(0..POOL).map(|n| (16 + n, n)).collect::<Vec<_>>())?;
        updates.make(scene, &[copy(page(edge - 4), POOL * PAGE, page(edge - 1))])?;
        finds("a copy upwards", &(0..POOL).map(|n| (edge - 1 + n, n)).collect::<Vec<_>>())?;
        updates.make(scene, &[copy(page(edge - 1), POOL * PAGE, page(edge - 6))])?;
        finds("a copy downwards", &(0..POOL).map(|n| (edge - 6 + n, n)).collect::<Vec<_>>())?;
        // In order within one call: unmapped, mapped, copied.
        let several = [
            unmap(page(16), POOL * PAGE),
            map(page(17), PAGE, pool.handle, 5 * PAGE, 0),
            copy(page(17), PAGE, page(18)),
        ];
        updates.make(scene, &several)?;
        finds("several", &[(17, 5), (18, 5)])?;
        // For reading, and then a store to it.
        updates.make(scene, &[protect(page(20), PAGE, pool.handle, false)])?;
        finds("what is only read", &[(20, 0)])?;
        updates.worker.submit(&[store(page(20), 7)])?;
        room.lost_by_page_fault(scene)?;
        same("the pool's first word", room.raw.load(pool.cpu)?, 100)
    })
}

fn emptied(stage: &Stage) -> Played {
    on_both(stage, |scene, room, updates| {
        let memory = room.memory(scene, PAGE)?;
        let at = reserve(room, 64 << 10)?;
        let empty = reserve(room, 64 << 10)?;
        updates.make(scene, &[map(at, PAGE, memory.handle, 0, 0)])?;
        updates.worker.run(scene, &[store(at, 1)])?;
        same("what is mapped", room.raw.load(memory.cpu)?, 1)?;
        updates.make(scene, &[copy(empty, PAGE, at)])?;
        // Whoever gets its pages next has nothing to fear.
        room.destroy(memory.handle)?;
        let next = room.memory(scene, PAGE)?;
        updates.worker.submit(&[store(at, 2)])?;
        room.lost_by_page_fault(scene)?;
        same("another allocation", room.raw.load(next.cpu)?, 0)
    })
}

fn fences(stage: &Stage) -> Played {
    on_both(stage, |scene, room, updates| {
        let (first, second) = (room.memory(scene, PAGE)?, room.memory(scene, PAGE)?);
        let at = reserve(room, 64 << 10)?;
        let another = reserve(room, 64 << 10)?;
        updates.make(scene, &[map(at, PAGE, first.handle, 0, 0)])?;
        // Until the fence has its value, work finds the old mapping.
        let mut operations = [map(at, PAGE, second.handle, 0, 0)];
        updates.call(&mut updates.record(&mut operations, 5))?;
        updates.worker.run(scene, &[store(at, 1)])?;
        same("before", (room.raw.load(first.cpu)?, room.raw.load(second.cpu)?), (1, 0))?;
        room.raw.signal_cpu(room.device, &[(updates.fence, 5)])?;
        updates.until(scene, 6)?;
        updates.worker.run(scene, &[store(at, 2)])?;
        same("after", (room.raw.load(first.cpu)?, room.raw.load(second.cpu)?), (1, 2))?;
        // Without waiting: at once, whatever the fence says.
        let mut operations = [map(at, PAGE, first.handle, 0, 0)];
        let mut record = updates.record(&mut operations, 100);
        record.Flags.set_DoNotWait(true);
        updates.call(&mut record)?;
        updates.until(scene, 101)?;
        let refused =
            |what: &str, operations: &[Operation], change: fn(&mut D3DKMT_UPDATEGPUVIRTUALADDRESS)| -> Played {
                let mut operations = operations.to_vec();
                let mut record = updates.record(&mut operations, 0);
                record.Flags.set_DoNotWait(true);
                change(&mut record);
                same(what, updates.call(&mut record), Err(Denied(STATUS_INVALID_PARAMETER)))
            };
        let one = map(at, PAGE, first.handle, 0, 0);
        refused("no operation", &[], |_| ())?;
        refused("no context", &[one], |record| record.hContext = 0)?;
        refused("no device", &[one], |record| record.hDevice = 0)?;
        refused("a fence that is none", &[one], |record| record.hFenceObject = 0x40)?;
        refused("reserved", &[one], |record| record.Reserved1 = 1)?;
        refused("an odd address", &[map(at + 8, PAGE, first.handle, 0, 0)], |_| ())?;
        refused("an odd size", &[map(at, 100, first.handle, 0, 0)], |_| ())?;
        refused("behind the reservation", &[map(at + (60 << 10), 2 * PAGE, first.handle, 0, 0)], |_| ())?;
        refused("behind the allocation", &[map(at, 2 * PAGE, first.handle, 0, 0)], |_| ())?;
        refused("no reservation", &[map(1 << 40, PAGE, first.handle, 0, 0)], |_| ())?;
        refused("two reservations", &[one, map(another, PAGE, first.handle, 0, 0)], |_| ())?;
        refused("two sources", &[copy(at, PAGE, at + PAGE), copy(another, PAGE, at + PAGE)], |_| ())?;
        let mut unknown = one;
        unknown.OperationType = Type(9);
        refused("an unknown operation", &[unknown], |_| ())?;
        same("the device", room.is_active()?, true)
    })
}
