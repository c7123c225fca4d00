//! Memory, queues and doorbells without the user-mode driver: every word is a case's own.

mod bells;
mod kernel;
mod queue;

pub use kernel::KernelQueue;
pub use queue::RingQueue;

use crate::scenario::{Denied, NativeFence, Played, Raw, Scene, same};
use anyhow::{Context, Result, ensure};
use gpu_wire::private::{AllocationData, ContextData, DoorbellData, DoorbellReply, MAGIC, allocation_kind};
use wddm_abi::ntstatus::{STATUS_NO_MEMORY, STATUS_NOT_IMPLEMENTED, STATUS_NOT_SUPPORTED};
use wddm_abi::{
    D3DDDI_ALLOCATIONINFO2, D3DDDI_CREATECONTEXTFLAGS, D3DDDI_MAKERESIDENT, D3DDDI_MAPGPUVIRTUALADDRESS,
    D3DKMT_CREATE_DOORBELL, D3DKMT_CREATEALLOCATION, D3DKMT_CREATECONTEXTVIRTUAL, D3DKMT_CREATEHWCONTEXT,
    D3DKMT_CREATEHWQUEUE, D3DKMT_CREATEPAGINGQUEUE, D3DKMT_DESTROYALLOCATION2, D3DKMT_DESTROYCONTEXT,
    D3DKMT_DESTROYHWCONTEXT, D3DKMT_DESTROYHWQUEUE, D3DKMT_DEVICEEXECUTION_STATE, D3DKMT_DEVICEPAGEFAULT_STATE,
    D3DKMT_DEVICESTATE_TYPE, D3DKMT_EVICT, D3DKMT_GETDEVICESTATE, D3DKMT_HANDLE, D3DKMT_LOCK2,
    D3DKMT_SUBMITCOMMANDTOHWQUEUE,
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
    /// Handle of the paging queue's fence.
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

impl Memory {
    /// Stores bytes, a multiple of 8, at an offset, as user mode.
    ///
    /// # Errors
    /// The access violation; what does not fit.
    pub fn write(&self, raw: &Raw, offset: u64, bytes: &[u8]) -> Played {
        let end = offset + bytes.len() as u64;
        ensure!(bytes.len().is_multiple_of(8) && end <= self.size, "{} bytes at {offset}", bytes.len());
        for (index, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
            // CAST: below the size.
            raw.store(self.cpu + offset as usize + index * 8, u64::from_le_bytes(*word))?;
        }
        Ok(())
    }
}

/// A hardware queue in a context of its own.
#[derive(Clone, Copy, Debug)]
pub struct HardwareQueue {
    /// The context.
    pub context: D3DKMT_HANDLE,
    /// The queue's D3DKMT handle.
    pub handle: D3DKMT_HANDLE,
    /// The progress fence.
    pub progress: NativeFence,
}

impl HardwareQueue {
    /// The queue in `context` that `D3DKMTCreateHwQueue` has made.
    pub fn of(context: D3DKMT_HANDLE, made: &D3DKMT_CREATEHWQUEUE) -> Self {
        let progress = NativeFence {
            handle: made.hHwQueueProgressFence,
            cpu: made.HwQueueProgressFenceCPUVirtualAddress.expose_provenance(),
            gpu: made.HwQueueProgressFenceGPUVirtualAddress,
            monitored: 0,
        };
        Self { context, handle: made.hHwQueue, progress }
    }
}

/// What `D3DKMTCreateDoorbell` gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doorbell {
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

    /// Creates `count` allocations of a page in system memory, in one call; their handles.
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

    /// Destroys one allocation by its handle.
    ///
    /// # Errors
    /// The function's status.
    pub fn destroy(&self, allocation: D3DKMT_HANDLE) -> Result<(), Denied> {
        let mut record = D3DKMT_DESTROYALLOCATION2::zeroed();
        record.hDevice = self.device;
        (record.AllocationCount, record.phAllocationList) = (1, &raw const allocation);
        self.raw.ok(self.raw.thunks.D3DKMTDestroyAllocation2, &mut record)
    }

    /// Asks for an allocation to be mapped for the GPU; the value of the paging fence that says that it is.
    ///
    /// # Errors
    /// The function's status.
    pub fn begin_map(&self, handle: D3DKMT_HANDLE) -> Result<u64, Denied> {
        let mut record = D3DDDI_MAPGPUVIRTUALADDRESS::zeroed();
        record.hPagingQueue = self.paging;
        record.hAllocation = handle;
        record.Protection.set_Write(true);
        self.raw.ok(self.raw.thunks.D3DKMTMapGpuVirtualAddress, &mut record)?;
        Ok(record.PagingFenceValue)
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
            // Over the budget: once more, with leave to exceed it.
            record.NumAllocations = 1;
            record.Flags.set_CantTrimFurther(true);
            made = self.raw.ok(self.raw.thunks.D3DKMTMakeResident, &mut record);
        }
        made.context("make resident")?;
        self.paged(scene, record.PagingFenceValue)
    }

    /// Evicts an allocation from its segment.
    ///
    /// # Errors
    /// The function's status.
    pub fn evict(&self, handle: D3DKMT_HANDLE) -> Played {
        let mut record = D3DKMT_EVICT::zeroed();
        record.hDevice = self.device;
        record.NumAllocations = 1;
        record.AllocationList = &raw const handle;
        self.raw.ok(self.raw.thunks.D3DKMTEvict, &mut record).context("evict")
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

    /// A context for hardware queues on `node`, by `D3DKMTCreateContextVirtual`, or by the obsolete call where this
    /// Windows refuses `HwQueueSupported`.
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

    /// A context on `node` by `D3DKMTCreateContextVirtual`, with `flags`, engine affinity 0 and our private data.
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

    /// A packet context on `node`: [`Raw::submit_command`] gives it work.
    ///
    /// # Errors
    /// The function's status.
    pub fn packet_context(&self, node: u32) -> Result<D3DKMT_HANDLE, Denied> {
        self.context_with(node, D3DDDI_CREATECONTEXTFLAGS::zeroed())
    }

    /// A hardware context on `node` by `D3DKMTCreateHwContext`, which Windows 11 does not implement.
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

    /// Destroys what [`context`](Self::context) made, by the function that belongs to the one that made it.
    ///
    /// # Errors
    /// The function's status.
    pub fn destroy_context(&self, context: D3DKMT_HANDLE) -> Result<(), Denied> {
        let Raw { thunks, .. } = self.raw;
        match self.raw.ok(thunks.D3DKMTDestroyHwContext, &mut D3DKMT_DESTROYHWCONTEXT { hHwContext: context }) {
            Err(Denied(STATUS_NOT_IMPLEMENTED)) => {
                self.raw.ok(thunks.D3DKMTDestroyContext, &mut D3DKMT_DESTROYCONTEXT { hContext: context })
            }
            destroyed => destroyed,
        }
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
        Ok(HardwareQueue::of(context, &record))
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
    pub fn bell(&self, queue: D3DKMT_HANDLE, ring: &Memory, control: &Memory) -> Result<Doorbell, Denied> {
        self.bell_with(queue, ring, control, false)
    }

    /// Creates a doorbell; `resizes`: with `ResizeRingBufferOperation`.
    ///
    /// # Errors
    /// The function's status.
    pub fn bell_with(
        &self,
        queue: D3DKMT_HANDLE,
        ring: &Memory,
        control: &Memory,
        resizes: bool,
    ) -> Result<Doorbell, Denied> {
        let mut data = Self::bell_data(ring.gpu, control.gpu);
        let mut record = Self::bell_record(queue, ring.handle, control.handle, &mut data);
        record.Flags.set_ResizeRingBufferOperation(resizes);
        self.raw.ok(self.raw.thunks.D3DKMTCreateDoorbell, &mut record)?;
        Ok(Doorbell {
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
        self.raw.execution_state(self.device)
    }

    /// The page fault that the device is lost by.
    ///
    /// # Errors
    /// The function's status.
    pub fn page_fault(&self) -> Result<D3DKMT_DEVICEPAGEFAULT_STATE, Denied> {
        let mut record = D3DKMT_GETDEVICESTATE::zeroed();
        record.hDevice = self.device;
        record.StateType = D3DKMT_DEVICESTATE_TYPE::D3DKMT_DEVICESTATE_PAGE_FAULT;
        self.raw.ok(self.raw.thunks.D3DKMTGetDeviceState, &mut record)?;
        Ok(*record.PageFaultState())
    }

    /// Waits until the device is lost, which must be by a page fault.
    ///
    /// # Errors
    /// When it is not lost in time, or otherwise.
    pub fn lost_by_page_fault(&self, scene: &Scene) -> Played {
        scene.until("the device's error", || Ok(!self.is_active()?))?;
        let lost = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_ERROR_DMAPAGEFAULT;
        same("the device's state", self.state()?, lost)
    }

    /// Whether the device takes work.
    ///
    /// # Errors
    /// The function's status.
    pub fn is_active(&self) -> Result<bool, Denied> {
        Ok(self.state()? == D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_ACTIVE)
    }
}
