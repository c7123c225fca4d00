//! A client that calls the OS in the order, and with the flags, of another vendor's user-mode driver.

use super::raw;
use crate::scenario::client;
use crate::scenario::db::{HardwareQueue, Memory, Room};
use crate::scenario::raw::Raw;
use crate::scenario::stage::patience;
use crate::scenario::{Denied, NativeFence, Played, Scene, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use core::cell::Cell;
use gpu_wire::GpuVa;
use gpu_wire::packet::{Encoded, MonitoredSignal, Store};
use gpu_wire::private::{ContextData, MAGIC, allocation_kind};
use wddm_abi::ntstatus::{STATUS_NO_MEMORY, STATUS_NOT_SUPPORTED};
use wddm_abi::{
    D3DDDI_CREATECONTEXTFLAGS, D3DDDI_MAKERESIDENT, D3DDDI_MAPGPUVIRTUALADDRESS, D3DKMT_CREATECONTEXTVIRTUAL,
    D3DKMT_CREATEHWQUEUE, D3DKMT_DESTROYCONTEXT, D3DKMT_DESTROYHWCONTEXT, D3DKMT_EVICT, D3DKMT_HANDLE, D3DKMT_LOCK2,
    D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU, D3DKMT_SUBMITCOMMAND, D3DKMT_SUBMITCOMMANDTOHWQUEUE,
    D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE, D3DKMT_UNLOCK2, D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU,
};

/// Bytes of private data with each submission, as our driver asks for. The real drivers pass 4 KiB, and blocks of their
/// own.
const PRIVATE: usize = 64;

/// Whose user-mode driver the client acts as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Style {
    /// Affinity 0; `DisableGpuTimeout` on context and queue; private data with each submission; MakeResident without
    /// flags; when that is over the budget, what is not in use is evicted and the call repeated, and where nothing is
    /// left to evict, repeated with `CantTrimFurther`; the context held back on the GPU until
    /// paging is done; waits of the CPU without an event; progress ids one by one; eviction before an allocation is
    /// destroyed.
    Intel,
    /// Affinity 1; `DisableGpuTimeout` on the queue alone; private data in and out at CreateHwQueue; `CantTrimFurther`
    /// always; ids that jump by up to 3; a signal by the OS behind each submission to a packet context, and behind
    /// those with an even id to a queue, which goes to a second queue of the context as well; a wait of the queue for
    /// what the CPU signals before each submission with an id that is a multiple of 3; ranges unmapped by NoAccess with
    /// the allocation's handle; waits of the CPU by event, after which the value is read again.
    Amd,
}

/// What the client submits to.
enum Lane {
    /// A hardware queue, and whether its progress fence is native.
    Queue(HardwareQueue, bool),
    /// A packet context, and the monitored fence that its submissions signal with their ids.
    Context(D3DKMT_HANDLE, NativeFence),
}

/// The client, with one context on one node.
pub(super) struct Stranger<'a> {
    scene: &'a Scene,
    room: Room<'a>,
    style: Style,
    context: D3DKMT_HANDLE,
    /// Whether `context` was made by `D3DKMTCreateHwContext`.
    obsolete: bool,
    lane: Lane,
    /// A second hardware queue of the context, which gets signals alone ([`Style::Amd`]).
    second: Option<HardwareQueue>,
    /// An allocation that is in use by nothing, and can be evicted ([`Style::Intel`]).
    spare: D3DKMT_HANDLE,
    /// Whether `spare` is resident.
    is_spare_resident: Cell<bool>,
    /// How often evicting `spare` was enough.
    trims: Cell<u64>,
    /// What the CPU signals, and the queue waits for ([`Style::Amd`]).
    gate: NativeFence,
    /// The command buffer, written anew for each submission.
    buffer: Memory,
    /// A monitored fence that the OS signals ([`Style::Amd`]).
    fence: NativeFence,
    /// Progress id of the last submission; 0 before the first.
    last: u64,
}

impl<'a> Stranger<'a> {
    /// Makes device, paging queue, fence, context, queue where the adapter has them, and command buffer.
    pub fn open(scene: &'a Scene, raw: &'a Raw, style: Style, node: u32) -> Result<Self> {
        let room = Room::new(raw)?;
        // The real drivers ask the OS, per node or per adapter, whether there are hardware queues; here the model is
        // asked.
        let scheduled = scene.adapter().caps().context("caps")?.has_hardware_scheduling();
        let fence = raw.monitored_fence(room.device, 0, false).context("fence")?;
        let (context, obsolete) = Self::context(&room, style, node, scheduled)?;
        let lane = match scheduled {
            true => Self::queue(&room, style, context)?,
            false => Lane::Context(context, raw.monitored_fence(room.device, 0, false).context("fence")?),
        };
        let second = match (&lane, style) {
            (Lane::Queue(..), Style::Amd) => match Self::queue(&room, style, context)? {
                Lane::Queue(queue, _) => Some(queue),
                Lane::Context(..) => None,
            },
            _ => None,
        };
        let gate = raw.monitored_fence(room.device, 0, false).context("fence")?;
        let buffer = room.memory(scene, 4096)?;
        let spare = room.create(allocation_kind::SYSTEM, 4096).context("allocation")?;
        room.make_resident(scene, spare)?;
        Ok(Self {
            scene,
            room,
            style,
            context,
            obsolete,
            lane,
            second,
            spare,
            is_spare_resident: Cell::new(true),
            trims: Cell::new(0),
            gate,
            buffer,
            fence,
            last: 0,
        })
    }

    fn context(room: &Room<'_>, style: Style, node: u32, queues: bool) -> Result<(D3DKMT_HANDLE, bool)> {
        let mut data = ContextData { magic: MAGIC, interface_version: gpu_wire::INTERFACE_VERSION };
        let mut record = D3DKMT_CREATECONTEXTVIRTUAL::zeroed();
        record.hDevice = room.device;
        record.NodeOrdinal = node;
        record.EngineAffinity = u32::from(style == Style::Amd);
        record.Flags = D3DDDI_CREATECONTEXTFLAGS::zeroed()
            .with_HwQueueSupported(queues)
            .with_DisableGpuTimeout(style == Style::Intel);
        record.pPrivateDriverData = (&raw mut data).cast();
        // CAST: 8.
        record.PrivateDriverDataSize = size_of::<ContextData>() as u32;
        match room.raw.ok(room.raw.thunks.D3DKMTCreateContextVirtual, &mut record) {
            // Neither real driver knows the obsolete call; the client takes it where this Windows has nothing else.
            Err(Denied(STATUS_NOT_SUPPORTED)) if queues => Ok((room.obsolete_context(node)?, true)),
            made => made.map(|()| (record.hContext, false)).context("context"),
        }
    }

    fn queue(room: &Room<'_>, style: Style, context: D3DKMT_HANDLE) -> Result<Lane> {
        // Our driver does not know this private data, and must leave it as it is.
        let mut data = [0xA5_u8; 40];
        let mut record = D3DKMT_CREATEHWQUEUE::zeroed();
        record.hHwContext = context;
        record.Flags.set_DisableGpuTimeout(true);
        if style == Style::Amd {
            record.pPrivateDriverData = data.as_mut_ptr().cast();
            // CAST: 40.
            record.PrivateDriverDataSize = data.len() as u32;
        }
        room.raw.ok(room.raw.thunks.D3DKMTCreateHwQueue, &mut record).context("queue")?;
        ensure!(data == [0xA5; 40], "private data of the queue came back changed");
        Ok(Lane::Queue(HardwareQueue::of(context, &record), record.Flags.NativeProgressFence()))
    }

    /// The fence that says which submission is done: its value is the last one's id.
    fn progress(&self) -> NativeFence {
        match &self.lane {
            Lane::Queue(queue, _) => queue.progress,
            Lane::Context(_, fence) => *fence,
        }
    }

    /// Submits a store of `value` to memory that is made for it, waits until it is done, and checks the memory.
    pub fn work(&mut self, value: u64) -> Played {
        let (memory, gpu) = self.target()?;
        let id = self.last + if self.style == Style::Amd { 1 + value % 3 } else { 1 };
        let mut bytes = Store { address: gpu, value }.to_packet().as_bytes().to_vec();
        bytes.extend_from_slice(self.end(id).as_bytes());
        self.buffer.write(self.room.raw, 0, &bytes)?;
        let held = matches!(self.lane, Lane::Queue(..)) && self.style == Style::Amd && id.is_multiple_of(3);
        if let (Lane::Queue(queue, _), true) = (&self.lane, held) {
            self.room.raw.queue_wait(queue.handle, self.gate.handle, id).context("a wait of the queue's")?;
        }
        self.submit(bytes.len(), id).context("submission")?;
        if held {
            let before = self.room.raw.load(self.progress().cpu)?;
            ensure!(before < id, "the queue did not wait: {before}");
            self.room.raw.signal_cpu(self.room.device, &[(self.gate.handle, id)])?;
        }
        self.last = id;
        self.wait(id)?;
        self.look(memory, value)?;
        self.release(memory, gpu)
    }

    /// The packet that signals the progress fence with `id`, the last of a command buffer.
    fn end(&self, id: u64) -> Encoded {
        let at = self.progress().gpu;
        match self.lane {
            Lane::Queue(_, true) => Encoded::fence_signal(GpuVa(at), id),
            _ => MonitoredSignal { address: at, value: id }.to_packet(),
        }
    }

    /// Makes an allocation of a page, resident and mapped: its handle and GPU address. The context waits for that, not
    /// the CPU.
    fn target(&self) -> Result<(D3DKMT_HANDLE, u64)> {
        let (raw, room) = (self.room.raw, &self.room);
        let handle = room.create(allocation_kind::SYSTEM, 4096).context("allocation")?;
        let mut resident = D3DDDI_MAKERESIDENT::zeroed();
        resident.hPagingQueue = room.paging();
        resident.NumAllocations = 1;
        resident.AllocationList = &raw const handle;
        resident.Flags.set_CantTrimFurther(self.style == Style::Amd);
        let mut made = raw.ok(raw.thunks.D3DKMTMakeResident, &mut resident);
        if made == Err(Denied(STATUS_NO_MEMORY)) && self.style == Style::Intel {
            ensure!(resident.NumBytesToTrim != 0, "over the budget by nothing");
            resident.NumAllocations = 1;
            let trims = self.is_spare_resident.replace(false);
            if trims {
                same("what is to be evicted", resident.NumBytesToTrim, 4096)?;
                self.evict(self.spare)?;
                self.trims.set(self.trims.get() + 1);
            } else {
                // The client holds nothing more that it could evict.
                resident.Flags.set_CantTrimFurther(true);
            }
            made = raw.ok(raw.thunks.D3DKMTMakeResident, &mut resident);
        }
        made.context("make resident")?;
        let mut map = D3DDDI_MAPGPUVIRTUALADDRESS::zeroed();
        map.hPagingQueue = room.paging();
        map.hAllocation = handle;
        map.SizeInPages = 1;
        map.Protection.set_Write(true);
        raw.ok(raw.thunks.D3DKMTMapGpuVirtualAddress, &mut map).context("map")?;
        // One wait for the larger of both values; 0 says that nothing is to be waited for.
        self.hold_back(resident.PagingFenceValue.max(map.PagingFenceValue))?;
        Ok((handle, map.VirtualAddress))
    }

    /// Queues a wait on the context for `value` of the paging queue's fence.
    fn hold_back(&self, value: u64) -> Played {
        let (fence, raw) = (self.room.paging_object, self.room.raw);
        let mut record = D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU::zeroed();
        record.hContext = self.context;
        record.ObjectCount = 1;
        record.ObjectHandleArray = &raw const fence;
        record.set_MonitoredFenceValueArray(&raw const value);
        raw.ok(raw.thunks.D3DKMTWaitForSynchronizationObjectFromGpu, &mut record).context("a wait of the context's")
    }

    fn submit(&self, length: usize, id: u64) -> Result<(), Denied> {
        let raw = self.room.raw;
        let mut private = [0x5A_u8; PRIVATE];
        // CAST: some packets.
        let length = length as u32;
        match &self.lane {
            Lane::Queue(queue, _) => {
                let mut record = D3DKMT_SUBMITCOMMANDTOHWQUEUE::zeroed();
                record.hHwQueue = queue.handle;
                record.HwQueueProgressFenceId = id;
                (record.CommandBuffer, record.CommandLength) = (self.buffer.gpu, length);
                record.pPrivateDriverData = private.as_mut_ptr().cast();
                record.PrivateDriverDataSize = if self.obsolete { 0 } else { PRIVATE as u32 };
                raw.ok(raw.thunks.D3DKMTSubmitCommandToHwQueue, &mut record)?;
                if self.style == Style::Amd && id.is_multiple_of(2) {
                    let second = self.second.as_ref().map(|second| second.handle);
                    let queues: Vec<_> = second.into_iter().chain([queue.handle]).collect();
                    signal_queues(raw, &queues, self.fence.handle, id)?;
                }
                Ok(())
            }
            Lane::Context(context, _) => {
                let mut record = D3DKMT_SUBMITCOMMAND::zeroed();
                (record.Commands, record.CommandLength) = (self.buffer.gpu, length);
                (record.BroadcastContextCount, record.BroadcastContext[0]) = (1, *context);
                record.pPrivateDriverData = private.as_mut_ptr().cast();
                record.PrivateDriverDataSize = PRIVATE as u32;
                raw.ok(raw.thunks.D3DKMTSubmitCommand, &mut record)?;
                if self.style == Style::Amd {
                    signal_context(raw, *context, self.fence.handle, id)?;
                }
                Ok(())
            }
        }
    }

    fn wait(&self, id: u64) -> Played {
        let (raw, progress) = (self.room.raw, self.progress());
        if self.style == Style::Intel {
            let waiting = client::block(raw, self.room.device, vec![(progress.handle, id)], false);
            return client::returned("a wait", &waiting)?.context("a wait");
        }
        // The value is read again after the event.
        while raw.load(progress.cpu)? < id {
            let (event, handle) = raw.event();
            raw.wait_cpu(self.room.device, &[(progress.handle, id)], false, Some(handle)).context("a wait")?;
            ensure!(raw.wait_event(&event, patience()), "the event did not come");
            raw.close(handle);
        }
        Ok(())
    }

    /// Locks the allocation, which must hold `value`, and unlocks it.
    fn look(&self, memory: D3DKMT_HANDLE, value: u64) -> Played {
        let raw = self.room.raw;
        let mut lock = D3DKMT_LOCK2::zeroed();
        (lock.hDevice, lock.hAllocation) = (self.room.device, memory);
        raw.ok(raw.thunks.D3DKMTLock2, &mut lock).context("lock")?;
        same("what was stored", raw.load(lock.pData.expose_provenance())?, value)?;
        let mut unlock = D3DKMT_UNLOCK2 { hDevice: self.room.device, hAllocation: memory };
        raw.ok(raw.thunks.D3DKMTUnlock2, &mut unlock).context("unlock")
    }

    fn release(&self, memory: D3DKMT_HANDLE, gpu: u64) -> Played {
        let (raw, room) = (self.room.raw, &self.room);
        if self.style == Style::Amd {
            let mut unmap = D3DDDI_MAPGPUVIRTUALADDRESS::zeroed();
            unmap.hPagingQueue = room.paging();
            (unmap.BaseAddress, unmap.SizeInPages, unmap.hAllocation) = (gpu, 1, memory);
            unmap.Protection.set_NoAccess(true);
            raw.ok(raw.thunks.D3DKMTMapGpuVirtualAddress, &mut unmap).context("unmap")?;
            room.paged(self.scene, unmap.PagingFenceValue)?;
        } else {
            self.evict(memory)?;
        }
        room.destroy(memory).context("destroying the allocation")
    }

    fn evict(&self, allocation: D3DKMT_HANDLE) -> Played {
        let (raw, room) = (self.room.raw, &self.room);
        let mut evict = D3DKMT_EVICT::zeroed();
        (evict.hDevice, evict.NumAllocations, evict.AllocationList) = (room.device, 1, &raw const allocation);
        raw.ok(raw.thunks.D3DKMTEvict, &mut evict).context("evict")
    }

    /// Uses the spare allocation again, if it was evicted: it becomes resident, whatever the budget.
    pub fn use_spare(&self) -> Played {
        if !self.is_spare_resident.replace(true) {
            self.room.make_resident(self.scene, self.spare)?;
        }
        Ok(())
    }

    /// How often MakeResident succeeded because something was evicted for it.
    pub fn trims(&self) -> u64 {
        self.trims.get()
    }

    /// Destroys queue, context and device, in this order. All submissions are done: [`work`](Self::work) waited for
    /// each.
    pub fn close(self) -> Played {
        let raw = self.room.raw;
        if self.style == Style::Amd {
            let last = raw.load(self.fence.cpu)?;
            ensure!(last <= self.last, "the OS signalled {last}, beyond {}", self.last);
        }
        if let Some(second) = &self.second {
            self.room.destroy_queue(second.handle).context("destroying the second queue")?;
        }
        if let Lane::Queue(queue, _) = &self.lane {
            self.room.destroy_queue(queue.handle).context("destroying the queue")?;
        }
        let destroyed = if self.obsolete {
            raw.ok(raw.thunks.D3DKMTDestroyHwContext, &mut D3DKMT_DESTROYHWCONTEXT { hHwContext: self.context })
        } else {
            raw.ok(raw.thunks.D3DKMTDestroyContext, &mut D3DKMT_DESTROYCONTEXT { hContext: self.context })
        };
        destroyed.context("destroying the context")?;
        ensure!(self.room.is_active()?, "the device is lost");
        raw.destroy_device(self.room.device).context("destroying the device")
    }
}

/// Has the OS signal `fence` with `value` behind everything that each of `queues` was given before.
pub(super) fn signal_queues(
    raw: &Raw,
    queues: &[D3DKMT_HANDLE],
    fence: D3DKMT_HANDLE,
    value: u64,
) -> Result<(), Denied> {
    let mut record = D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE::zeroed();
    // CAST: tens.
    record.BroadcastHwQueueCount = queues.len() as u32;
    record.BroadcastHwQueueArray = queues.as_ptr();
    (record.ObjectCount, record.ObjectHandleArray, record.FenceValueArray) = (1, &raw const fence, &raw const value);
    raw.ok(raw.thunks.D3DKMTSubmitSignalSyncObjectsToHwQueue, &mut record)
}

/// Has the OS signal `fence` with `value` behind everything that the context was given before.
fn signal_context(raw: &Raw, context: D3DKMT_HANDLE, fence: D3DKMT_HANDLE, value: u64) -> Result<(), Denied> {
    let mut record = D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU::zeroed();
    (record.hContext, record.ObjectCount, record.ObjectHandleArray) = (context, 1, &raw const fence);
    record.set_MonitoredFenceValueArray(&raw const value);
    raw.ok(raw.thunks.D3DKMTSignalSynchronizationObjectFromGpu, &mut record)
}

/// Plays CL-05. Three queues of one context, one of them without broadcasts: a wait of the context holds the other two
/// back, and a signal of it comes when both have run.
pub(super) fn broadcast(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        let context = room.context(0)?;
        let queue = |flags: fn(&mut D3DKMT_CREATEHWQUEUE)| -> Result<(HardwareQueue, bool)> {
            let mut record = D3DKMT_CREATEHWQUEUE::zeroed();
            record.hHwContext = context;
            flags(&mut record);
            raw.ok(raw.thunks.D3DKMTCreateHwQueue, &mut record).context("queue")?;
            Ok((HardwareQueue::of(context, &record), record.Flags.NativeProgressFence()))
        };
        let held = [queue(|_| ())?, queue(|_| ())?];
        let free = queue(|record| {
            record.Flags.set_NoBroadcastWait(true);
            record.Flags.set_NoBroadcastSignal(true);
        })?;
        let buffer = room.memory(scene, 4096)?;
        let (gate, done) = (raw.monitored_fence(room.device, 0, false)?, raw.monitored_fence(room.device, 0, false)?);
        let (fence, value) = (gate.handle, 1_u64);
        let mut wait = D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU::zeroed();
        (wait.hContext, wait.ObjectCount, wait.ObjectHandleArray) = (context, 1, &raw const fence);
        wait.set_MonitoredFenceValueArray(&raw const value);
        raw.ok(raw.thunks.D3DKMTWaitForSynchronizationObjectFromGpu, &mut wait).context("a wait of the context's")?;
        let mut at = 0;
        for (queue, native) in held.iter().chain([&free]) {
            let end = match native {
                true => Encoded::fence_signal(GpuVa(queue.progress.gpu), 1),
                false => MonitoredSignal { address: queue.progress.gpu, value: 1 }.to_packet(),
            };
            buffer.write(&raw, at, end.as_bytes())?;
            // CAST: within a page.
            let length = end.as_bytes().len() as u32;
            room.submit(queue.handle, buffer.gpu + at, length, 1).context("submission")?;
            at += 64;
        }
        signal_context(&raw, context, done.handle, 1).context("a signal of the context's")?;
        let progress = |(queue, _): &(HardwareQueue, bool)| raw.load(queue.progress.cpu);
        scene.until("the queue that stays out", || Ok(progress(&free)? == 1))?;
        same("the queues that are held back", (progress(&held[0])?, progress(&held[1])?), (0, 0))?;
        same("the signal", raw.load(done.cpu)?, 0)?;
        raw.signal_cpu(room.device, &[(gate.handle, 1)])?;
        scene.until("the queues", || Ok(progress(&held[0])? == 1 && progress(&held[1])? == 1))?;
        scene.until("the signal", || Ok(raw.load(done.cpu)? == 1))
    })
}
