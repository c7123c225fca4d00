//! Queues and doorbells without the user-mode driver: every word is a case's own.

use crate::scenario::{Denied, NativeFence, Played, Raw, Scene};
use anyhow::{Context, Result, ensure};
use gpu_wire::GpuVa;
use gpu_wire::doorbell::{Token, value};
use gpu_wire::packet::Encoded;
use gpu_wire::private::{AllocationData, ContextData, DoorbellData, DoorbellReply, MAGIC, allocation_kind};
use gpu_wire::ring::{READ_POINTER, WRITE_POINTER};
use std::cell::Cell;
use wddm_abi::ntstatus::{STATUS_NO_MEMORY, STATUS_NOT_SUPPORTED};
use wddm_abi::{
    D3DDDI_ALLOCATIONINFO2, D3DDDI_CREATECONTEXTFLAGS, D3DDDI_MAKERESIDENT, D3DDDI_MAPGPUVIRTUALADDRESS,
    D3DKMT_CONNECT_DOORBELL, D3DKMT_CREATE_DOORBELL, D3DKMT_CREATEALLOCATION, D3DKMT_CREATECONTEXTVIRTUAL,
    D3DKMT_CREATEHWCONTEXT, D3DKMT_CREATEHWQUEUE, D3DKMT_CREATEPAGINGQUEUE, D3DKMT_DESTROY_DOORBELL,
    D3DKMT_DESTROYALLOCATION2, D3DKMT_DESTROYHWQUEUE, D3DKMT_DEVICEEXECUTION_STATE, D3DKMT_DEVICESTATE_TYPE,
    D3DKMT_GETDEVICESTATE, D3DKMT_HANDLE, D3DKMT_LOCK2, D3DKMT_NOTIFY_WORK_SUBMISSION, D3DKMT_SUBMITCOMMANDTOHWQUEUE,
};

/// Status words.
pub const CONNECTED: u64 = 0;
/// As above.
pub const NOTIFY: u64 = 1;
/// As above.
pub const RETRY: u64 = 2;
/// As above.
pub const ABORT: u64 = 3;

/// A device of a process, and a paging queue.
pub struct Room<'a> {
    /// The process.
    pub raw: &'a Raw,
    /// The device.
    pub device: D3DKMT_HANDLE,
    paging: D3DKMT_HANDLE,
    paging_fence: usize,
    /// The fence of the paging queue.
    pub paging_object: D3DKMT_HANDLE,
}

/// An allocation: resident, mapped for the GPU, locked for the processor.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Its handle.
    pub handle: D3DKMT_HANDLE,
    /// Where the GPU has it.
    pub gpu: u64,
    /// Where the process has it.
    pub cpu: usize,
    /// Bytes.
    pub size: u64,
}

/// A hardware queue in a context of its own.
#[derive(Clone, Copy, Debug)]
pub struct HardwareQueue {
    /// The context.
    pub context: D3DKMT_HANDLE,
    /// The queue.
    pub handle: D3DKMT_HANDLE,
    /// The progress fence.
    pub progress: NativeFence,
}

/// What `D3DKMTCreateDoorbell` gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bell {
    /// The doorbell.
    pub handle: D3DKMT_HANDLE,
    /// Where it is rung.
    pub doorbell: usize,
    /// The secondary address.
    pub secondary: usize,
    /// Where its status is read.
    pub status: usize,
    /// Where the last queued value is stored.
    pub last_queued: usize,
    /// The queue's name in a global doorbell.
    pub token: u32,
}

impl<'a> Room<'a> {
    /// A device and a paging queue of `raw`'s process.
    ///
    /// # Errors
    /// When one cannot be made.
    pub fn new(raw: &'a Raw) -> Result<Self> {
        let device = raw.device().context("device")?;
        let mut record = D3DKMT_CREATEPAGINGQUEUE::zeroed();
        record.hDevice = device;
        raw.ok(raw.thunks.D3DKMTCreatePagingQueue, &mut record).context("paging queue")?;
        let paging_fence = record.FenceValueCPUVirtualAddress.expose_provenance();
        let paging_object = record.hSyncObject;
        Ok(Self { raw, device, paging: record.hPagingQueue, paging_fence, paging_object })
    }

    /// The paging queue.
    pub fn paging(&self) -> D3DKMT_HANDLE {
        self.paging
    }

    /// Waits for a value of the paging queue's fence.
    ///
    /// # Errors
    /// When it does not come.
    pub fn paged(&self, scene: &Scene, value: u64) -> Played {
        scene.until("a paging operation", || Ok(self.raw.load(self.paging_fence)? >= value))
    }

    /// Creates an allocation; nothing more.
    ///
    /// # Errors
    /// The function's status.
    pub fn create(&self, kind: u32, size: u64) -> Result<D3DKMT_HANDLE, Denied> {
        let mut data = AllocationData { magic: MAGIC, kind, size, reserved: 0 };
        let mut info = D3DDDI_ALLOCATIONINFO2::zeroed();
        info.pPrivateDriverData = (&raw mut data).cast();
        // CAST: 24.
        info.PrivateDriverDataSize = size_of::<AllocationData>() as u32;
        let mut record = D3DKMT_CREATEALLOCATION::zeroed();
        record.hDevice = self.device;
        record.NumAllocations = 1;
        record.set_pAllocationInfo2(&raw mut info);
        self.raw.ok(self.raw.thunks.D3DKMTCreateAllocation2, &mut record)?;
        Ok(info.hAllocation)
    }

    /// Creates so many allocations in one call.
    ///
    /// # Errors
    /// The function's status.
    pub fn create_many(&self, count: usize) -> Result<Vec<D3DKMT_HANDLE>, Denied> {
        let mut data =
            vec![AllocationData { magic: MAGIC, kind: allocation_kind::SYSTEM, size: 4096, reserved: 0 }; count];
        let info = |data: &mut AllocationData| {
            let mut info = D3DDDI_ALLOCATIONINFO2::zeroed();
            info.pPrivateDriverData = core::ptr::from_mut(data).cast();
            // CAST: 24.
            info.PrivateDriverDataSize = size_of::<AllocationData>() as u32;
            info
        };
        let mut infos: Vec<_> = data.iter_mut().map(info).collect();
        let mut record = D3DKMT_CREATEALLOCATION::zeroed();
        record.hDevice = self.device;
        // CAST: about a thousand.
        record.NumAllocations = count as u32;
        record.set_pAllocationInfo2(infos.as_mut_ptr());
        self.raw.ok(self.raw.thunks.D3DKMTCreateAllocation2, &mut record)?;
        Ok(infos.iter().map(|info| info.hAllocation).collect())
    }

    /// Destroys an allocation.
    ///
    /// # Errors
    /// The function's status.
    pub fn destroy(&self, allocation: D3DKMT_HANDLE) -> Result<(), Denied> {
        let mut record = D3DKMT_DESTROYALLOCATION2::zeroed();
        record.hDevice = self.device;
        (record.AllocationCount, record.phAllocationList) = (1, &raw const allocation);
        self.raw.ok(self.raw.thunks.D3DKMTDestroyAllocation2, &mut record)
    }

    /// Makes an allocation resident.
    ///
    /// # Errors
    /// The function's status, or when it does not become so.
    pub fn make_resident(&self, scene: &Scene, handle: D3DKMT_HANDLE) -> Played {
        let mut record = D3DDDI_MAKERESIDENT::zeroed();
        record.hPagingQueue = self.paging;
        record.NumAllocations = 1;
        record.AllocationList = &raw const handle;
        let mut made = self.raw.ok(self.raw.thunks.D3DKMTMakeResident, &mut record);
        if made == Err(Denied(STATUS_NO_MEMORY)) {
            // Over the budget: beyond it.
            record.NumAllocations = 1;
            record.Flags.set_CantTrimFurther(true);
            made = self.raw.ok(self.raw.thunks.D3DKMTMakeResident, &mut record);
        }
        made.context("make resident")?;
        self.paged(scene, record.PagingFenceValue)
    }

    /// Maps an allocation for the GPU, writable.
    ///
    /// # Errors
    /// The function's status, or when it does not happen.
    pub fn map(&self, scene: &Scene, handle: D3DKMT_HANDLE, driver_protection: u64) -> Result<u64> {
        let mut record = D3DDDI_MAPGPUVIRTUALADDRESS::zeroed();
        record.hPagingQueue = self.paging;
        record.hAllocation = handle;
        record.Protection.set_Write(true);
        record.DriverProtection = driver_protection;
        self.raw.ok(self.raw.thunks.D3DKMTMapGpuVirtualAddress, &mut record).context("map")?;
        self.paged(scene, record.PagingFenceValue)?;
        Ok(record.VirtualAddress)
    }

    /// System memory, ready for use.
    ///
    /// # Errors
    /// When a step fails.
    pub fn memory(&self, scene: &Scene, size: u64) -> Result<Memory> {
        let handle = self.create(allocation_kind::SYSTEM, size).context("allocation")?;
        self.make_resident(scene, handle)?;
        let gpu = self.map(scene, handle, 0)?;
        let mut lock = D3DKMT_LOCK2::zeroed();
        lock.hDevice = self.device;
        lock.hAllocation = handle;
        self.raw.ok(self.raw.thunks.D3DKMTLock2, &mut lock).context("lock")?;
        Ok(Memory { handle, gpu, cpu: lock.pData.expose_provenance(), size })
    }

    /// A context for hardware queues on `node`, made as this Windows does.
    ///
    /// # Errors
    /// The function's status.
    pub fn context(&self, node: u32) -> Result<D3DKMT_HANDLE, Denied> {
        let flags = D3DDDI_CREATECONTEXTFLAGS::zeroed().with_HwQueueSupported(true);
        match self.context_with(node, flags) {
            Err(Denied(STATUS_NOT_SUPPORTED)) => self.obsolete_context(node),
            made => made,
        }
    }

    /// A context by `D3DKMTCreateContextVirtual`.
    ///
    /// # Errors
    /// The function's status.
    pub fn context_with(&self, node: u32, flags: D3DDDI_CREATECONTEXTFLAGS) -> Result<D3DKMT_HANDLE, Denied> {
        let mut data = ContextData { magic: MAGIC, interface_version: gpu_wire::INTERFACE_VERSION };
        let mut record = D3DKMT_CREATECONTEXTVIRTUAL::zeroed();
        record.hDevice = self.device;
        record.NodeOrdinal = node;
        record.Flags = flags;
        record.pPrivateDriverData = (&raw mut data).cast();
        // CAST: 8.
        record.PrivateDriverDataSize = size_of::<ContextData>() as u32;
        self.raw.ok(self.raw.thunks.D3DKMTCreateContextVirtual, &mut record)?;
        Ok(record.hContext)
    }

    /// A context by `D3DKMTCreateHwContext`.
    ///
    /// # Errors
    /// The function's status.
    pub fn obsolete_context(&self, node: u32) -> Result<D3DKMT_HANDLE, Denied> {
        let mut data = ContextData { magic: MAGIC, interface_version: gpu_wire::INTERFACE_VERSION };
        let mut record = D3DKMT_CREATEHWCONTEXT::zeroed();
        record.hDevice = self.device;
        record.NodeOrdinal = node;
        record.pPrivateDriverData = (&raw mut data).cast();
        // CAST: 8.
        record.PrivateDriverDataSize = size_of::<ContextData>() as u32;
        self.raw.ok(self.raw.thunks.D3DKMTCreateHwContext, &mut record)?;
        Ok(record.hHwContext)
    }

    /// A queue in a context.
    ///
    /// # Errors
    /// The function's status.
    pub fn queue_in(&self, context: D3DKMT_HANDLE, user_mode: bool) -> Result<HardwareQueue, Denied> {
        let mut record = D3DKMT_CREATEHWQUEUE::zeroed();
        record.hHwContext = context;
        record.Flags.set_UserModeSubmission(user_mode);
        self.raw.ok(self.raw.thunks.D3DKMTCreateHwQueue, &mut record)?;
        let progress = NativeFence {
            handle: record.hHwQueueProgressFence,
            cpu: record.HwQueueProgressFenceCPUVirtualAddress.expose_provenance(),
            gpu: record.HwQueueProgressFenceGPUVirtualAddress,
            monitored: 0,
        };
        Ok(HardwareQueue { context, handle: record.hHwQueue, progress })
    }

    /// A queue on `node`.
    ///
    /// # Errors
    /// The functions' status.
    pub fn queue(&self, node: u32, user_mode: bool) -> Result<HardwareQueue, Denied> {
        self.queue_in(self.context(node)?, user_mode)
    }

    /// Destroys a queue.
    ///
    /// # Errors
    /// The function's status.
    pub fn destroy_queue(&self, queue: D3DKMT_HANDLE) -> Result<(), Denied> {
        let mut record = D3DKMT_DESTROYHWQUEUE::zeroed();
        record.hHwQueue = queue;
        self.raw.ok(self.raw.thunks.D3DKMTDestroyHwQueue, &mut record)
    }

    /// A record that asks for a doorbell, with the driver's private data at `data`.
    pub fn bell_record(
        queue: D3DKMT_HANDLE,
        ring: D3DKMT_HANDLE,
        control: D3DKMT_HANDLE,
        data: &mut [u8],
    ) -> D3DKMT_CREATE_DOORBELL {
        let mut record = D3DKMT_CREATE_DOORBELL::zeroed();
        record.hHwQueue = queue;
        record.hRingBuffer = ring;
        record.hRingBufferControl = control;
        record.PrivateDriverData = data.as_mut_ptr().cast();
        // CAST: a few bytes.
        record.PrivateDriverDataSize = data.len() as u32;
        record
    }

    /// The private data of a doorbell.
    pub fn bell_data(ring: u64, control: u64) -> [u8; 16] {
        let mut data = [0; 16];
        data.copy_from_slice(DoorbellData { ring, control }.bytes());
        data
    }

    /// Creates a doorbell.
    ///
    /// # Errors
    /// The function's status.
    pub fn bell(&self, queue: D3DKMT_HANDLE, ring: &Memory, control: &Memory) -> Result<Bell, Denied> {
        let mut data = Self::bell_data(ring.gpu, control.gpu);
        let mut record = Self::bell_record(queue, ring.handle, control.handle, &mut data);
        self.raw.ok(self.raw.thunks.D3DKMTCreateDoorbell, &mut record)?;
        Ok(Bell {
            handle: record.hDoorbell,
            doorbell: record.DoorbellCPUVirtualAddress.expose_provenance(),
            secondary: record.DoorbellSecondaryCPUVirtualAddress.expose_provenance(),
            status: record.DoorbellStatusCPUVirtualAddress.expose_provenance(),
            last_queued: record.HwQueueProgressFenceLastQueuedValueCPUVirtualAddress.expose_provenance(),
            token: DoorbellReply::read(&data).map_or(0, |reply| reply.token),
        })
    }

    /// Submits a command buffer to a kernel-mode queue.
    ///
    /// # Errors
    /// The function's status.
    pub fn submit(&self, queue: D3DKMT_HANDLE, buffer: u64, length: u32, progress: u64) -> Result<(), Denied> {
        let mut record = D3DKMT_SUBMITCOMMANDTOHWQUEUE::zeroed();
        record.hHwQueue = queue;
        record.HwQueueProgressFenceId = progress;
        record.CommandBuffer = buffer;
        record.CommandLength = length;
        self.raw.ok(self.raw.thunks.D3DKMTSubmitCommandToHwQueue, &mut record)
    }

    /// How the device is.
    ///
    /// # Errors
    /// The function's status.
    pub fn state(&self) -> Result<D3DKMT_DEVICEEXECUTION_STATE, Denied> {
        let mut record = D3DKMT_GETDEVICESTATE::zeroed();
        record.hDevice = self.device;
        record.StateType = D3DKMT_DEVICESTATE_TYPE::D3DKMT_DEVICESTATE_EXECUTION;
        self.raw.ok(self.raw.thunks.D3DKMTGetDeviceState, &mut record)?;
        Ok(record.ExecutionState())
    }

    /// Whether the device takes work.
    ///
    /// # Errors
    /// The function's status.
    pub fn is_active(&self) -> Result<bool, Denied> {
        Ok(self.state()? == D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_ACTIVE)
    }
}

/// A user-mode queue whose ring a case writes itself.
pub struct RingQueue<'a> {
    /// Whose it is.
    pub room: &'a Room<'a>,
    /// The queue.
    pub queue: HardwareQueue,
    /// Its ring.
    pub ring: Memory,
    /// Its control page.
    pub control: Memory,
    /// Its doorbell.
    pub bell: Bell,
    /// Bytes written to the ring.
    pub written: Cell<u64>,
    /// The write pointer that was published last.
    published: Cell<u64>,
    /// The last progress value.
    pub last: Cell<u64>,
}

impl<'a> RingQueue<'a> {
    /// A queue on `node` with a doorbell that is not connected.
    ///
    /// # Errors
    /// When a step fails.
    pub fn new(scene: &Scene, room: &'a Room<'a>, node: u32, ring_size: u64) -> Result<Self> {
        let queue = room.queue(node, true).context("queue")?;
        let ring = room.memory(scene, ring_size)?;
        let control = room.memory(scene, 4096)?;
        let bell = room.bell(queue.handle, &ring, &control).context("doorbell")?;
        let [written, published, last] = [0; 3].map(Cell::new);
        Ok(Self { room, queue, ring, control, bell, written, published, last })
    }

    /// As [`Self::new`], connected.
    ///
    /// # Errors
    /// When a step fails.
    pub fn connected(scene: &Scene, room: &'a Room<'a>, node: u32, ring_size: u64) -> Result<Self> {
        let queue = Self::new(scene, room, node, ring_size)?;
        queue.connect().context("connect")?;
        Ok(queue)
    }

    /// Connects the doorbell.
    ///
    /// # Errors
    /// The function's status.
    pub fn connect(&self) -> Result<(), Denied> {
        let mut record = D3DKMT_CONNECT_DOORBELL::zeroed();
        record.hDoorbell = self.bell.handle;
        self.room.raw.ok(self.room.raw.thunks.D3DKMTConnectDoorbell, &mut record)
    }

    /// Destroys the doorbell.
    ///
    /// # Errors
    /// The function's status.
    pub fn destroy_bell(&self) -> Result<(), Denied> {
        let mut record = D3DKMT_DESTROY_DOORBELL::zeroed();
        record.hDoorbell = self.bell.handle;
        self.room.raw.ok(self.room.raw.thunks.D3DKMTDestroyDoorbell, &mut record)
    }

    /// Tells the kernel-mode driver.
    ///
    /// # Errors
    /// The function's status.
    pub fn notify(&self) -> Result<(), Denied> {
        let mut record = D3DKMT_NOTIFY_WORK_SUBMISSION::zeroed();
        record.hDoorbell = self.bell.handle;
        self.room.raw.ok(self.room.raw.thunks.D3DKMTNotifyWorkSubmission, &mut record)
    }

    /// What the status word says.
    ///
    /// # Errors
    /// The access violation.
    pub fn status(&self) -> Result<u64> {
        Ok(self.room.raw.load(self.bell.status)?)
    }

    /// Writes bytes behind what was written, around the end of the ring. They are not published.
    ///
    /// # Errors
    /// The access violation.
    pub fn write(&self, bytes: &[u8]) -> Played {
        ensure!(bytes.len().is_multiple_of(8), "packets are multiples of 8 bytes");
        for word in bytes.chunks_exact(8) {
            let mut raw = [0; 8];
            raw.copy_from_slice(word);
            let at = self.written.get() % self.ring.size;
            // CAST: below the ring's size.
            self.room.raw.store(self.ring.cpu + at as usize, u64::from_le_bytes(raw))?;
            self.written.set(self.written.get() + 8);
        }
        Ok(())
    }

    /// Writes packets and, behind them, the next progress value's signal, which it returns.
    ///
    /// # Errors
    /// The access violation.
    pub fn record(&self, packets: &[Encoded]) -> Result<u64> {
        for packet in packets {
            self.write(packet.as_bytes())?;
        }
        let next = self.last.get() + 1;
        self.last.set(next);
        self.write(Encoded::fence_signal(GpuVa(self.queue.progress.gpu), next).as_bytes())?;
        Ok(next)
    }

    /// Tells the OS what is queued.
    ///
    /// # Errors
    /// The access violation.
    pub fn tell(&self, progress: u64) -> Played {
        Ok(self.room.raw.store(self.bell.last_queued, progress)?)
    }

    /// Publishes everything that was written.
    ///
    /// # Errors
    /// The access violation.
    pub fn publish(&self) -> Played {
        self.publish_as(self.written.get())
    }

    /// Publishes a write pointer.
    ///
    /// # Errors
    /// The access violation.
    pub fn publish_as(&self, pointer: u64) -> Played {
        self.published.set(pointer);
        Ok(self.room.raw.store(self.control.cpu + WRITE_POINTER, pointer)?)
    }

    /// Rings, and reads the status behind a full fence.
    ///
    /// # Errors
    /// The access violation.
    pub fn ring(&self) -> Result<u64> {
        let token = Token::new(self.bell.token).context("a token")?;
        self.room.raw.store(self.bell.doorbell, value(token, self.published.get()))?;
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.status()
    }

    /// The five steps, once: the progress value and the status.
    ///
    /// # Errors
    /// The access violation.
    pub fn submit(&self, packets: &[Encoded]) -> Result<(u64, u64)> {
        let progress = self.record(packets)?;
        self.tell(progress)?;
        self.publish()?;
        Ok((progress, self.ring()?))
    }

    /// What the progress fence says.
    ///
    /// # Errors
    /// The access violation.
    pub fn progress(&self) -> Result<u64> {
        Ok(self.room.raw.load(self.queue.progress.cpu)?)
    }

    /// Bytes that retired.
    ///
    /// # Errors
    /// The access violation.
    pub fn retired(&self) -> Result<u64> {
        Ok(self.room.raw.load(self.control.cpu + READ_POINTER)?)
    }

    /// Waits for a progress value.
    ///
    /// # Errors
    /// When it does not come.
    pub fn wait(&self, scene: &Scene, progress: u64) -> Played {
        scene.until("progress", || Ok(self.progress()? >= progress))
    }
}
