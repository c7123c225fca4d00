//! Memory, queues and doorbells by calls of gdi32 alone, without the user-mode driver: every word is a case's own.

mod queue;

use crate::jobs::until;
use crate::{Process, System, status};
use anyhow::{Context, Result, ensure};
use gpu_wire::private::{AllocationData, ContextData, DoorbellData, DoorbellReply, MAGIC, allocation_kind};
pub use queue::RingQueue;
use std::time::Duration;
use wddm_abi::ntstatus::{STATUS_NO_MEMORY, STATUS_NOT_SUPPORTED};
use wddm_abi::{
    D3DDDI_ALLOCATIONINFO2, D3DDDI_CREATECONTEXTFLAGS, D3DDDI_MAKERESIDENT, D3DDDI_MAPGPUVIRTUALADDRESS,
    D3DKMT_CLOSEADAPTER, D3DKMT_CONNECT_DOORBELL, D3DKMT_CREATE_DOORBELL, D3DKMT_CREATEALLOCATION,
    D3DKMT_CREATECONTEXTVIRTUAL, D3DKMT_CREATEDEVICE, D3DKMT_CREATEHWCONTEXT, D3DKMT_CREATEHWQUEUE,
    D3DKMT_CREATEPAGINGQUEUE, D3DKMT_DESTROYALLOCATION2, D3DKMT_DESTROYDEVICE, D3DKMT_DEVICEEXECUTION_STATE,
    D3DKMT_DEVICESTATE_TYPE, D3DKMT_EVICT, D3DKMT_GETDEVICESTATE, D3DKMT_HANDLE, D3DKMT_LOCK2,
    D3DKMT_NOTIFY_WORK_SUBMISSION, D3DKMT_OPENADAPTERFROMLUID, D3DKMT_QUERYADAPTERINFO, D3DKMT_SUBMITCOMMANDTOHWQUEUE,
    KMTQUERYADAPTERINFOTYPE, LUID, NTSTATUS, Plain, kit_28000,
};

/// Status words.
pub const CONNECTED: u64 = 0;
/// As above.
pub const NOTIFY: u64 = 1;
/// As above.
pub const RETRY: u64 = 2;
/// As above.
pub const ABORT: u64 = 3;

/// Where gdi32 has this export, a queue owns its doorbell.
const NEWER_DOORBELLS: &str = "D3DKMTCreateHwQueueForUserModeSubmission";

/// A call was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("refused: {0:?}")]
pub struct Denied(pub NTSTATUS);

/// What a call may be refused with.
pub type Granted<T> = std::result::Result<T, Denied>;

/// A device of a process, and a paging queue. Both end with it.
pub struct Room<'a> {
    /// The process.
    pub process: &'a dyn Process,
    adapter: D3DKMT_HANDLE,
    /// The device.
    pub device: D3DKMT_HANDLE,
    paging: D3DKMT_HANDLE,
    paging_fence: usize,
    /// Long enough for anything that must happen.
    pub patience: Duration,
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

/// A hardware queue.
#[derive(Clone, Copy, Debug)]
pub struct HardwareQueue {
    /// Its handle.
    pub handle: D3DKMT_HANDLE,
    /// Where the process reads its progress.
    pub progress_cpu: usize,
    /// Where the GPU writes it.
    pub progress_gpu: u64,
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
    /// A device and a paging queue of `process`.
    ///
    /// # Errors
    /// When one cannot be made.
    pub fn new(system: &dyn System, process: &'a dyn Process) -> Result<Self> {
        let info = process.adapter().info()?;
        let mut open = D3DKMT_OPENADAPTERFROMLUID::zeroed();
        open.AdapterLuid = LUID { LowPart: info.luid_low, HighPart: info.luid_high };
        crate::call(process, "D3DKMTOpenAdapterFromLuid", &mut open)?;
        let (adapter, patience) = (open.hAdapter, system.patience());
        // From here on dropping closes what there is.
        let mut room = Self { process, adapter, device: 0, paging: 0, paging_fence: 0, patience };
        let mut create = D3DKMT_CREATEDEVICE::zeroed();
        create.set_hAdapter(adapter);
        crate::call(process, "D3DKMTCreateDevice", &mut create)?;
        room.device = create.hDevice;
        let mut record = D3DKMT_CREATEPAGINGQUEUE::zeroed();
        record.hDevice = room.device;
        crate::call(process, "D3DKMTCreatePagingQueue", &mut record)?;
        room.paging = record.hPagingQueue;
        room.paging_fence = record.FenceValueCPUVirtualAddress.expose_provenance();
        Ok(room)
    }

    /// Asks `D3DKMTQueryAdapterInfo`, with `answer` for the room.
    ///
    /// # Errors
    /// The status.
    pub fn ask<T: Plain>(&self, kind: KMTQUERYADAPTERINFOTYPE, answer: &mut T) -> Granted<()> {
        let mut query = D3DKMT_QUERYADAPTERINFO::zeroed();
        (query.hAdapter, query.Type) = (self.adapter, kind);
        query.pPrivateDriverData = (&raw mut *answer).cast();
        // CAST: some hundreds of bytes.
        query.PrivateDriverDataSize = size_of::<T>() as u32;
        self.ok("D3DKMTQueryAdapterInfo", &mut query)
    }

    fn ok<T: Plain>(&self, name: &'static str, record: &mut T) -> Granted<()> {
        let status = status(self.process, name, record);
        if status.is_success() { Ok(()) } else { Err(Denied(status)) }
    }

    /// Waits until `ready` says so.
    ///
    /// # Errors
    /// Those of `ready`, or when it does not in time.
    pub fn until(&self, what: &str, ready: impl FnMut() -> Result<bool>) -> Result<()> {
        until(what, self.patience, ready)
    }

    /// Waits for a value of the paging queue's fence.
    fn paged(&self, value: u64) -> Result<()> {
        self.until("a paging operation", || Ok(self.process.load(self.paging_fence)? >= value))
    }

    /// Waits until what was asked of the OS's paging before is done.
    ///
    /// # Errors
    /// When a step fails.
    pub fn settle(&self) -> Result<()> {
        let behind = self.create(4096)?;
        self.make_resident(behind)?;
        Ok(self.destroy(behind)?)
    }

    /// Creates an allocation in system memory; nothing more.
    ///
    /// # Errors
    /// The function's status.
    pub fn create(&self, size: u64) -> Granted<D3DKMT_HANDLE> {
        let mut data = AllocationData { magic: MAGIC, kind: allocation_kind::SYSTEM, size, reserved: 0 };
        let mut info = D3DDDI_ALLOCATIONINFO2::zeroed();
        info.pPrivateDriverData = (&raw mut data).cast();
        // CAST: 24.
        info.PrivateDriverDataSize = size_of::<AllocationData>() as u32;
        let mut record = D3DKMT_CREATEALLOCATION::zeroed();
        record.hDevice = self.device;
        record.NumAllocations = 1;
        record.set_pAllocationInfo2(&raw mut info);
        self.ok("D3DKMTCreateAllocation2", &mut record)?;
        Ok(info.hAllocation)
    }

    /// Destroys an allocation by its handle.
    ///
    /// # Errors
    /// The function's status.
    pub fn destroy(&self, allocation: D3DKMT_HANDLE) -> Granted<()> {
        let mut record = D3DKMT_DESTROYALLOCATION2::zeroed();
        record.hDevice = self.device;
        (record.AllocationCount, record.phAllocationList) = (1, &raw const allocation);
        self.ok("D3DKMTDestroyAllocation2", &mut record)
    }

    /// Makes an allocation resident.
    ///
    /// # Errors
    /// The function's status, or when it does not become so.
    pub fn make_resident(&self, handle: D3DKMT_HANDLE) -> Result<()> {
        let mut record = D3DDDI_MAKERESIDENT::zeroed();
        record.hPagingQueue = self.paging;
        record.NumAllocations = 1;
        record.AllocationList = &raw const handle;
        let mut made = self.ok("D3DKMTMakeResident", &mut record);
        if made == Err(Denied(STATUS_NO_MEMORY)) {
            // Over the budget: once more, with leave to exceed it.
            record.NumAllocations = 1;
            record.Flags.set_CantTrimFurther(true);
            made = self.ok("D3DKMTMakeResident", &mut record);
        }
        made.context("make resident")?;
        self.paged(record.PagingFenceValue)
    }

    /// Evicts an allocation from its segment.
    ///
    /// # Errors
    /// The function's status.
    pub fn evict(&self, handle: D3DKMT_HANDLE) -> Granted<()> {
        let mut record = D3DKMT_EVICT::zeroed();
        record.hDevice = self.device;
        record.NumAllocations = 1;
        record.AllocationList = &raw const handle;
        self.ok("D3DKMTEvict", &mut record)
    }

    /// System memory, ready for use.
    ///
    /// # Errors
    /// When a step fails.
    pub fn memory(&self, size: u64) -> Result<Memory> {
        let handle = self.create(size).context("allocation")?;
        self.make_resident(handle)?;
        let mut map = D3DDDI_MAPGPUVIRTUALADDRESS::zeroed();
        map.hPagingQueue = self.paging;
        map.hAllocation = handle;
        map.Protection.set_Write(true);
        self.ok("D3DKMTMapGpuVirtualAddress", &mut map).context("map")?;
        self.paged(map.PagingFenceValue)?;
        let mut lock = D3DKMT_LOCK2::zeroed();
        lock.hDevice = self.device;
        lock.hAllocation = handle;
        self.ok("D3DKMTLock2", &mut lock).context("lock")?;
        Ok(Memory { handle, gpu: map.VirtualAddress, cpu: lock.pData.expose_provenance(), size })
    }

    /// A context for hardware queues on `node`, by `D3DKMTCreateContextVirtual`, or by the obsolete call where this
    /// Windows refuses `HwQueueSupported`.
    ///
    /// # Errors
    /// The function's status.
    pub fn context(&self, node: u32) -> Granted<D3DKMT_HANDLE> {
        let mut data = ContextData { magic: MAGIC, interface_version: gpu_wire::INTERFACE_VERSION };
        // CAST: 8.
        let bytes = size_of::<ContextData>() as u32;
        let mut record = D3DKMT_CREATECONTEXTVIRTUAL::zeroed();
        (record.hDevice, record.NodeOrdinal) = (self.device, node);
        record.Flags = D3DDDI_CREATECONTEXTFLAGS::zeroed().with_HwQueueSupported(true);
        (record.pPrivateDriverData, record.PrivateDriverDataSize) = ((&raw mut data).cast(), bytes);
        match self.ok("D3DKMTCreateContextVirtual", &mut record) {
            Ok(()) => return Ok(record.hContext),
            Err(Denied(STATUS_NOT_SUPPORTED)) => {}
            Err(denied) => return Err(denied),
        }
        let mut record = D3DKMT_CREATEHWCONTEXT::zeroed();
        (record.hDevice, record.NodeOrdinal) = (self.device, node);
        (record.pPrivateDriverData, record.PrivateDriverDataSize) = ((&raw mut data).cast(), bytes);
        self.ok("D3DKMTCreateHwContext", &mut record)?;
        Ok(record.hHwContext)
    }

    /// A queue on `node`, in a context of its own.
    ///
    /// # Errors
    /// The functions' status.
    pub fn queue(&self, node: u32, user_mode: bool) -> Granted<HardwareQueue> {
        self.queue_in(self.context(node)?, user_mode)
    }

    /// A queue in `context`.
    ///
    /// # Errors
    /// The function's status.
    pub fn queue_in(&self, context: D3DKMT_HANDLE, user_mode: bool) -> Granted<HardwareQueue> {
        let mut record = D3DKMT_CREATEHWQUEUE::zeroed();
        record.hHwContext = context;
        record.Flags.set_UserModeSubmission(user_mode);
        self.ok("D3DKMTCreateHwQueue", &mut record)?;
        Ok(HardwareQueue {
            handle: record.hHwQueue,
            progress_cpu: record.HwQueueProgressFenceCPUVirtualAddress.expose_provenance(),
            progress_gpu: record.HwQueueProgressFenceGPUVirtualAddress,
        })
    }

    /// Creates a doorbell; `control`: the handle of the control words' allocation, or 0 for none.
    ///
    /// # Errors
    /// The function's status.
    pub fn bell_of(
        &self,
        queue: D3DKMT_HANDLE,
        ring: &Memory,
        control: &Memory,
        control_handle: D3DKMT_HANDLE,
    ) -> Granted<Bell> {
        let mut data = [0; 16];
        data.copy_from_slice(DoorbellData { ring: ring.gpu, control: control.gpu }.bytes());
        let mut record = D3DKMT_CREATE_DOORBELL::zeroed();
        record.hHwQueue = queue;
        record.hRingBuffer = ring.handle;
        record.hRingBufferControl = control_handle;
        record.PrivateDriverData = data.as_mut_ptr().cast();
        record.PrivateDriverDataSize = 16;
        self.ok("D3DKMTCreateDoorbell", &mut record)?;
        Ok(Bell {
            handle: record.hDoorbell,
            doorbell: record.DoorbellCPUVirtualAddress.expose_provenance(),
            secondary: record.DoorbellSecondaryCPUVirtualAddress.expose_provenance(),
            status: record.DoorbellStatusCPUVirtualAddress.expose_provenance(),
            last_queued: record.HwQueueProgressFenceLastQueuedValueCPUVirtualAddress.expose_provenance(),
            token: DoorbellReply::read(&data).map_or(0, |reply| reply.token),
        })
    }

    /// Creates a doorbell.
    ///
    /// # Errors
    /// The function's status.
    pub fn bell(&self, queue: D3DKMT_HANDLE, ring: &Memory, control: &Memory) -> Granted<Bell> {
        self.bell_of(queue, ring, control, control.handle)
    }

    /// Connects the doorbell of a queue, by the record that this Windows has.
    ///
    /// # Errors
    /// The function's status.
    pub fn connect(&self, queue: D3DKMT_HANDLE, bell: D3DKMT_HANDLE) -> Granted<()> {
        if self.process.exports(NEWER_DOORBELLS) {
            let mut record = kit_28000::D3DKMT_CONNECT_DOORBELL::zeroed();
            record.hHwQueue = queue;
            return self.ok("D3DKMTConnectDoorbell", &mut record);
        }
        let mut record = D3DKMT_CONNECT_DOORBELL::zeroed();
        record.hDoorbell = bell;
        self.ok("D3DKMTConnectDoorbell", &mut record)
    }

    /// Tells the kernel-mode driver of work on a queue, by the record that this Windows has.
    ///
    /// # Errors
    /// The function's status.
    pub fn notify(&self, queue: D3DKMT_HANDLE, bell: D3DKMT_HANDLE) -> Granted<()> {
        if self.process.exports(NEWER_DOORBELLS) {
            let mut record = kit_28000::D3DKMT_NOTIFY_WORK_SUBMISSION::zeroed();
            record.hHwQueue = queue;
            return self.ok("D3DKMTNotifyWorkSubmission", &mut record);
        }
        let mut record = D3DKMT_NOTIFY_WORK_SUBMISSION::zeroed();
        record.hDoorbell = bell;
        self.ok("D3DKMTNotifyWorkSubmission", &mut record)
    }

    /// Submits a command buffer to a kernel-mode queue.
    ///
    /// # Errors
    /// The function's status.
    pub fn submit(&self, queue: D3DKMT_HANDLE, buffer: u64, length: u32, progress: u64) -> Granted<()> {
        let mut record = D3DKMT_SUBMITCOMMANDTOHWQUEUE::zeroed();
        record.hHwQueue = queue;
        record.HwQueueProgressFenceId = progress;
        record.CommandBuffer = buffer;
        record.CommandLength = length;
        self.ok("D3DKMTSubmitCommandToHwQueue", &mut record)
    }

    /// How the device is.
    ///
    /// # Errors
    /// The function's status.
    pub fn state(&self) -> Granted<D3DKMT_DEVICEEXECUTION_STATE> {
        let mut record = D3DKMT_GETDEVICESTATE::zeroed();
        record.hDevice = self.device;
        record.StateType = D3DKMT_DEVICESTATE_TYPE::D3DKMT_DEVICESTATE_EXECUTION;
        self.ok("D3DKMTGetDeviceState", &mut record)?;
        Ok(record.ExecutionState())
    }

    /// Returns whether the device takes work.
    ///
    /// # Errors
    /// The function's status.
    pub fn is_active(&self) -> Granted<bool> {
        Ok(self.state()? == D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_ACTIVE)
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        let mut device = D3DKMT_DESTROYDEVICE::zeroed();
        device.hDevice = self.device;
        let mut adapter = D3DKMT_CLOSEADAPTER::zeroed();
        adapter.hAdapter = self.adapter;
        // With the device goes what is in it. Of a process that ends nothing else is left to do.
        if self.device != 0 {
            let _device = status(self.process, "D3DKMTDestroyDevice", &mut device);
        }
        let _adapter = status(self.process, "D3DKMTCloseAdapter", &mut adapter);
    }
}

/// `got` must be `want`.
///
/// # Errors
/// With both, when it is not.
pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: T, want: T) -> Result<()> {
    ensure!(got == want, "{what}: {got:?}, not {want:?}");
    Ok(())
}

/// A call must be refused with a status.
///
/// # Errors
/// When it is not refused, or otherwise.
pub fn denied<T>(what: &str, result: Granted<T>, want: NTSTATUS) -> Result<()> {
    match result {
        Ok(_) => anyhow::bail!("{what}: succeeded, instead of {want:?}"),
        Err(Denied(got)) => same(what, got, want),
    }
}
