//! A process that uses the toy's GPU through the D3DKMT functions, as a user-mode driver would.
//!
//! Every call returns a status instead of panicking: with a driver that is wrong, much fails that has nothing to do
//! with what is being looked at.

pub mod queue;
pub mod testing;

use dxgkrnl_model::os::Os;
use dxgkrnl_model::process::{Client as Inside, Process};
use dxgkrnl_model::thunks::Thunks;
use nt_model::Event;
use std::sync::Arc;
use wddm_abi::ntstatus::{STATUS_NO_MEMORY, STATUS_TIMEOUT};
use wddm_abi::{
    D3DDDI_ALLOCATIONINFO2, D3DDDI_MAKERESIDENT, D3DDDI_MAPGPUVIRTUALADDRESS, D3DDDI_NATIVEFENCE_TYPE,
    D3DDDI_NATIVEFENCEINFO, D3DDDI_RESERVEGPUVIRTUALADDRESS, D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS,
    D3DDDI_SYNCHRONIZATIONOBJECT_TYPE, D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION, D3DKMT_ADAPTERINFO,
    D3DKMT_CREATEALLOCATION, D3DKMT_CREATEDEVICE, D3DKMT_CREATENATIVEFENCE, D3DKMT_CREATEPAGINGQUEUE,
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2, D3DKMT_DESTROYALLOCATION2, D3DKMT_DESTROYDEVICE,
    D3DKMT_DESTROYSYNCHRONIZATIONOBJECT, D3DKMT_DEVICEEXECUTION_STATE, D3DKMT_DEVICESTATE_TYPE, D3DKMT_ENUMADAPTERS2,
    D3DKMT_ESCAPE, D3DKMT_ESCAPETYPE, D3DKMT_EVICT, D3DKMT_GETDEVICESTATE, D3DKMT_LOCK2,
    D3DKMT_OPENNATIVEFENCEFROMNTHANDLE, D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU, D3DKMT_UPDATEGPUVIRTUALADDRESS,
    D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU, HANDLE, NTSTATUS, OBJECT_ATTRIBUTES,
};

/// Calls an entry point with one record.
macro_rules! thunk {
    ($client:expr, $name:ident($record:expr)) => {{
        let function = $client.thunks.$name;
        // SAFETY: the model's function, and a record of its type.
        unsafe { function(&raw mut $record) }
    }};
    ($client:expr, const $name:ident($record:expr)) => {{
        let function = $client.thunks.$name;
        // SAFETY: as above.
        unsafe { function(&raw const $record) }
    }};
}
pub(crate) use thunk;

/// A status as a result.
pub fn checked(status: NTSTATUS) -> Result<(), NTSTATUS> {
    if status.is_success() { Ok(()) } else { Err(status) }
}

/// How long a client waits for anything before it gives up: 10 s.
const PATIENCE: i64 = -100_000_000;

/// The calling thread, inside a process that has opened the adapter.
pub struct Client<'a> {
    pub os: &'a Os,
    pub process: &'a Process,
    pub thunks: Thunks,
    pub adapter: u32,
    _inside: Inside,
}

/// A device with a paging queue.
pub struct Device<'a> {
    pub client: &'a Client<'a>,
    pub handle: u32,
    pub paging: u32,
    paging_fence: u32,
    /// EngineAffinity of the contexts that are made.
    pub affinity: u32,
}

/// An allocation that is resident and mapped.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub handle: u32,
    pub gpu: u64,
    /// User address.
    pub cpu: usize,
}

impl Memory {
    /// Stores words from byte `offset` on.
    pub fn write(&self, offset: usize, words: &[u64]) {
        for (index, word) in words.iter().enumerate() {
            let at: *mut u64 = core::ptr::with_exposed_provenance_mut(self.cpu + offset + index * 8);
            // SAFETY: inside the locked allocation, by the caller's arithmetic.
            unsafe { at.write_volatile(*word) };
        }
    }

    /// Stores bytes, a multiple of 8, from byte `offset` on.
    pub fn store(&self, offset: usize, bytes: &[u8]) {
        let words = bytes.chunks(8).filter_map(|chunk| chunk.try_into().ok()).map(u64::from_le_bytes);
        self.write(offset, &words.collect::<Vec<_>>());
    }

    /// The word at byte `offset`.
    pub fn read(&self, offset: usize) -> u64 {
        let at: *const u64 = core::ptr::with_exposed_provenance(self.cpu + offset);
        // SAFETY: as above.
        unsafe { at.read_volatile() }
    }
}

/// A native fence.
#[derive(Clone, Copy, Debug)]
pub struct Fence {
    pub handle: u32,
    pub gpu: u64,
    /// User address of the value.
    pub cpu: usize,
}

impl Fence {
    /// The word at the user address.
    pub fn word(&self) -> u64 {
        let at: *const u64 = core::ptr::with_exposed_provenance(self.cpu);
        // SAFETY: the process's own mapping of the fence.
        unsafe { at.read_volatile() }
    }
}

impl<'a> Client<'a> {
    /// Enters the process and opens the first adapter.
    pub fn new(os: &'a Os, process: &'a Process) -> Result<Self, NTSTATUS> {
        Self::on(os, process, 0)
    }

    /// Enters the process and opens an adapter.
    pub fn on(os: &'a Os, process: &'a Process, index: usize) -> Result<Self, NTSTATUS> {
        let mut client = Self { os, process, thunks: Thunks::new(), adapter: 0, _inside: process.enter() };
        let mut infos = [D3DKMT_ADAPTERINFO::zeroed(); 2];
        let mut record = D3DKMT_ENUMADAPTERS2::zeroed();
        // CAST: the number of adapters.
        record.NumAdapters = os.adapters().len() as u32;
        record.pAdapters = infos.as_mut_ptr();
        checked(thunk!(client, D3DKMTEnumAdapters2(record)))?;
        client.adapter = infos[index].hAdapter;
        Ok(client)
    }

    /// Sends a word to the driver; the answer.
    pub fn escape(&self, word: u32) -> Result<u32, NTSTATUS> {
        let mut private = word;
        let mut record = D3DKMT_ESCAPE::zeroed();
        record.hAdapter = self.adapter;
        record.Type = D3DKMT_ESCAPETYPE::D3DKMT_ESCAPE_DRIVERPRIVATE;
        record.pPrivateDriverData = (&raw mut private).cast();
        record.PrivateDriverDataSize = 4;
        checked(thunk!(self, const D3DKMTEscape(record)))?;
        Ok(private)
    }

    /// Makes a device and its paging queue.
    pub fn device(&'a self) -> Result<Device<'a>, NTSTATUS> {
        let mut record = D3DKMT_CREATEDEVICE::zeroed();
        record.set_hAdapter(self.adapter);
        checked(thunk!(self, D3DKMTCreateDevice(record)))?;
        let mut queue = D3DKMT_CREATEPAGINGQUEUE::zeroed();
        queue.hDevice = record.hDevice;
        checked(thunk!(self, D3DKMTCreatePagingQueue(queue)))?;
        Ok(Device {
            client: self,
            handle: record.hDevice,
            paging: queue.hPagingQueue,
            paging_fence: queue.hSyncObject,
            affinity: 1,
        })
    }

    /// Lets the machine run for some milliseconds.
    pub fn pass(&self, milliseconds: i64) {
        self.os.kernel().delay_execution(-milliseconds * 10_000);
    }
}

impl Device<'_> {
    /// Waits until a fence has a value.
    pub fn wait(&self, fence: u32, value: u64) -> Result<(), NTSTATUS> {
        let event = self.begin_wait(fence, value)?;
        self.end_wait(&event)
    }

    /// Waits for what [`begin_wait`](Self::begin_wait) returned.
    pub fn end_wait(&self, event: &Event) -> Result<(), NTSTATUS> {
        let ended = self.client.os.kernel().wait_for_event(event, Some(PATIENCE));
        if ended == 0 { Ok(()) } else { Err(STATUS_TIMEOUT) }
    }

    /// Has an event set when a fence has a value.
    pub fn begin_wait(&self, fence: u32, value: u64) -> Result<Arc<Event>, NTSTATUS> {
        let event = Arc::new(Event::synchronization(false));
        let mut record = D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU::zeroed();
        record.hDevice = self.handle;
        record.ObjectCount = 1;
        record.ObjectHandleArray = &raw const fence;
        record.FenceValueArray = &raw const value;
        record.hAsyncEvent =
            core::ptr::with_exposed_provenance_mut(self.client.process.nt().insert_handle(event.clone()) as usize);
        checked(thunk!(self.client, const D3DKMTWaitForSynchronizationObjectFromCpu(record)))?;
        Ok(event)
    }

    /// Waits until the device is lost.
    pub fn lost(&self) -> Result<(), NTSTATUS> {
        let mut record = D3DKMT_GETDEVICESTATE::zeroed();
        for _ in 0..1000 {
            record.hDevice = self.handle;
            record.StateType = D3DKMT_DEVICESTATE_TYPE::D3DKMT_DEVICESTATE_EXECUTION;
            checked(thunk!(self.client, D3DKMTGetDeviceState(record)))?;
            if record.ExecutionState() != D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_ACTIVE {
                return Ok(());
            }
            self.client.pass(10);
        }
        Err(STATUS_TIMEOUT)
    }

    /// Signals a fence from the CPU.
    pub fn signal(&self, fence: u32, value: u64) -> Result<(), NTSTATUS> {
        let mut record = D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU::zeroed();
        record.hDevice = self.handle;
        record.ObjectCount = 1;
        record.ObjectHandleArray = &raw const fence;
        record.FenceValueArray = &raw const value;
        checked(thunk!(self.client, const D3DKMTSignalSynchronizationObjectFromCpu(record)))
    }

    /// Waits for the paging queue.
    fn paged(&self, value: u64) -> Result<(), NTSTATUS> {
        self.wait(self.paging_fence, value)
    }

    /// Allocates, makes resident, maps everywhere. `flags`: the toy's.
    pub fn memory(&self, bytes: u64, flags: u64) -> Result<Memory, NTSTATUS> {
        let mut private = [bytes, flags];
        let mut info = D3DDDI_ALLOCATIONINFO2::zeroed();
        info.pPrivateDriverData = (&raw mut private).cast();
        info.PrivateDriverDataSize = 16;
        let mut record = D3DKMT_CREATEALLOCATION::zeroed();
        record.hDevice = self.handle;
        record.NumAllocations = 1;
        record.set_pAllocationInfo2(&raw mut info);
        checked(thunk!(self.client, D3DKMTCreateAllocation2(record)))?;
        let memory = self.resident(info.hAllocation)?;
        let mut lock = D3DKMT_LOCK2::zeroed();
        lock.hDevice = self.handle;
        lock.hAllocation = memory.handle;
        checked(thunk!(self.client, D3DKMTLock2(lock)))?;
        Ok(Memory { cpu: lock.pData.expose_provenance(), ..memory })
    }

    /// Makes an allocation resident and maps it everywhere but for the CPU.
    pub fn resident(&self, handle: u32) -> Result<Memory, NTSTATUS> {
        self.make_resident(handle)?;
        let mut map = D3DDDI_MAPGPUVIRTUALADDRESS::zeroed();
        map.hPagingQueue = self.paging;
        map.hAllocation = handle;
        map.Protection.set_Write(true);
        checked(thunk!(self.client, D3DKMTMapGpuVirtualAddress(map)))?;
        self.paged(map.PagingFenceValue)?;
        Ok(Memory { handle, gpu: map.VirtualAddress, cpu: 0 })
    }

    /// Maps a page of an allocation at `address` as well.
    pub fn map_at(&self, handle: u32, address: u64) -> Result<u64, NTSTATUS> {
        let mut map = D3DDDI_MAPGPUVIRTUALADDRESS::zeroed();
        (map.hPagingQueue, map.hAllocation, map.BaseAddress, map.SizeInPages) = (self.paging, handle, address, 1);
        map.Protection.set_Write(true);
        checked(thunk!(self.client, D3DKMTMapGpuVirtualAddress(map)))?;
        self.paged(map.PagingFenceValue)?;
        Ok(map.VirtualAddress)
    }

    /// Waits until a fence that was made just now is mapped for the GPU: a paging operation behind it is done.
    pub fn mapped(&self) -> Result<(), NTSTATUS> {
        if self.client.os.personality().user_mode.fences_mapped_late {
            let behind = self.memory(4096, 0)?;
            self.free(behind.handle)?;
        }
        Ok(())
    }

    /// Takes access away from a mapped range, naming an allocation as public user-mode drivers do.
    pub fn unmap(&self, handle: u32, address: u64, pages: u64) -> Result<(), NTSTATUS> {
        let mut map = D3DDDI_MAPGPUVIRTUALADDRESS::zeroed();
        map.hPagingQueue = self.paging;
        map.hAllocation = handle;
        map.BaseAddress = address;
        map.SizeInPages = pages;
        map.Protection.set_NoAccess(true);
        checked(thunk!(self.client, D3DKMTMapGpuVirtualAddress(map)))?;
        self.paged(map.PagingFenceValue)
    }

    /// Reserves a range for tiles and maps the start of an allocation there, in order with `context`: behind value 0 of
    /// `fence`, which gets 1. Its address.
    pub fn map_tile(&self, context: u32, fence: u32, handle: u32) -> Result<u64, NTSTATUS> {
        let mut reserve = D3DDDI_RESERVEGPUVIRTUALADDRESS::zeroed();
        reserve.set_hAdapter(self.paging);
        reserve.Size = 0x1_0000;
        checked(thunk!(self.client, D3DKMTReserveGpuVirtualAddress(reserve)))?;
        let mut operation = D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION::zeroed();
        let map = operation.Map_mut();
        (map.BaseAddress, map.SizeInBytes, map.hAllocation) = (reserve.VirtualAddress, 4096, handle);
        let mut record = D3DKMT_UPDATEGPUVIRTUALADDRESS::zeroed();
        (record.hDevice, record.hContext, record.hFenceObject) = (self.handle, context, fence);
        (record.NumOperations, record.Operations) = (1, &raw mut operation);
        checked(thunk!(self.client, const D3DKMTUpdateGpuVirtualAddress(record)))?;
        self.wait(fence, 1)?;
        Ok(reserve.VirtualAddress)
    }

    /// Makes an allocation resident.
    pub fn make_resident(&self, handle: u32) -> Result<(), NTSTATUS> {
        let mut record = D3DDDI_MAKERESIDENT::zeroed();
        record.hPagingQueue = self.paging;
        record.NumAllocations = 1;
        record.AllocationList = &raw const handle;
        let mut status = thunk!(self.client, D3DKMTMakeResident(record));
        if status == STATUS_NO_MEMORY && record.NumBytesToTrim != 0 {
            // There is nothing to trim.
            record.NumAllocations = 1;
            record.Flags.set_CantTrimFurther(true);
            status = thunk!(self.client, D3DKMTMakeResident(record));
        }
        checked(status)?;
        self.paged(record.PagingFenceValue)
    }

    /// Evicts an allocation.
    pub fn evict(&self, handle: u32) -> Result<(), NTSTATUS> {
        let mut record = D3DKMT_EVICT::zeroed();
        record.hDevice = self.handle;
        record.NumAllocations = 1;
        record.AllocationList = &raw const handle;
        checked(thunk!(self.client, D3DKMTEvict(record)))
    }

    /// Destroys an allocation.
    pub fn free(&self, handle: u32) -> Result<(), NTSTATUS> {
        let mut record = D3DKMT_DESTROYALLOCATION2::zeroed();
        record.hDevice = self.handle;
        record.AllocationCount = 1;
        record.phAllocationList = &raw const handle;
        checked(thunk!(self.client, const D3DKMTDestroyAllocation2(record)))
    }

    /// Makes a native fence.
    pub fn native_fence(&self) -> Result<Fence, NTSTATUS> {
        self.native_fence_of(D3DDDI_NATIVEFENCE_TYPE::D3DDDI_NATIVEFENCE_TYPE_DEFAULT)
    }

    /// Makes a native fence that engines of one GPU use among themselves.
    pub fn intra_gpu_fence(&self) -> Result<Fence, NTSTATUS> {
        self.native_fence_of(D3DDDI_NATIVEFENCE_TYPE::D3DDDI_NATIVEFENCE_TYPE_INTRA_GPU)
    }

    fn native_fence_of(&self, kind: D3DDDI_NATIVEFENCE_TYPE) -> Result<Fence, NTSTATUS> {
        self.native_fence_with(|info| info.Type = kind).map(|(fence, _)| fence)
    }

    /// Makes a native fence of another kind; with the GPU address of its monitored value.
    pub fn native_fence_with(
        &self,
        change: impl FnOnce(&mut D3DDDI_NATIVEFENCEINFO),
    ) -> Result<(Fence, u64), NTSTATUS> {
        let mut record = D3DKMT_CREATENATIVEFENCE::zeroed();
        record.hDevice = self.handle;
        change(&mut record.Info);
        checked(thunk!(self.client, D3DKMTCreateNativeFence(record)))?;
        self.mapped()?;
        let mapping = record.Info.NativeFenceMapping;
        let cpu = mapping.CurrentValueCpuVa.expose_provenance();
        Ok((Fence { handle: record.hSyncObject, gpu: mapping.CurrentValueGpuVa, cpu }, mapping.MonitoredValueGpuVa))
    }

    /// Makes a native fence for several adapters, and an NT handle of it.
    pub fn cross_adapter_fence(&self) -> Result<(Fence, HANDLE), NTSTATUS> {
        let mut record = D3DKMT_CREATENATIVEFENCE::zeroed();
        record.hDevice = self.handle;
        record.Info.Flags.set_Shared(true);
        record.Info.Flags.set_NtSecuritySharing(true);
        record.Info.Flags.set_CrossAdapter(true);
        checked(thunk!(self.client, D3DKMTCreateNativeFence(record)))?;
        let mut attributes = OBJECT_ATTRIBUTES::zeroed();
        // CAST: 48.
        attributes.Length = size_of::<OBJECT_ATTRIBUTES>() as u32;
        let mut shared = core::ptr::null_mut();
        let share = self.client.thunks.D3DKMTShareObjects;
        let handle = &raw const record.hSyncObject;
        // SAFETY: the model's function; one handle, attributes and a place for the result.
        checked(unsafe { share(1, handle, &raw mut attributes, u32::MAX, &raw mut shared) })?;
        let mapping = record.Info.NativeFenceMapping;
        let cpu = mapping.CurrentValueCpuVa.expose_provenance();
        Ok((Fence { handle: record.hSyncObject, gpu: mapping.CurrentValueGpuVa, cpu }, shared))
    }

    /// Opens a native fence by its NT handle.
    pub fn open_fence(&self, shared: HANDLE) -> Result<Fence, NTSTATUS> {
        let mut record = D3DKMT_OPENNATIVEFENCEFROMNTHANDLE::zeroed();
        record.hNtHandle = shared;
        record.hDevice = self.handle;
        checked(thunk!(self.client, D3DKMTOpenNativeFenceFromNtHandle(record)))?;
        self.mapped()?;
        let mapping = record.NativeFenceMapping;
        let cpu = mapping.CurrentValueCpuVa.expose_provenance();
        Ok(Fence { handle: record.hSyncObject, gpu: mapping.CurrentValueGpuVa, cpu })
    }

    /// Makes a monitored fence.
    pub fn monitored_fence(&self) -> Result<Fence, NTSTATUS> {
        self.monitored_fence_with(0, D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS::zeroed())
    }

    /// Makes a monitored fence with an initial value and flags.
    pub fn monitored_fence_with(
        &self,
        initial: u64,
        flags: D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS,
    ) -> Result<Fence, NTSTATUS> {
        let mut record = D3DKMT_CREATESYNCHRONIZATIONOBJECT2::zeroed();
        record.hDevice = self.handle;
        record.Info.Type = D3DDDI_SYNCHRONIZATIONOBJECT_TYPE::D3DDDI_MONITORED_FENCE;
        record.Info.Flags = flags;
        record.Info.MonitoredFence_mut().InitialFenceValue = initial;
        checked(thunk!(self.client, D3DKMTCreateSynchronizationObject2(record)))?;
        self.mapped()?;
        let info = record.Info.MonitoredFence();
        let cpu = info.FenceValueCPUVirtualAddress.expose_provenance();
        Ok(Fence { handle: record.hSyncObject, gpu: info.FenceValueGPUVirtualAddress, cpu })
    }

    /// Destroys a fence of either kind.
    pub fn destroy_fence(&self, handle: u32) -> Result<(), NTSTATUS> {
        let mut record = D3DKMT_DESTROYSYNCHRONIZATIONOBJECT::zeroed();
        record.hSyncObject = handle;
        checked(thunk!(self.client, const D3DKMTDestroySynchronizationObject(record)))
    }

    /// Destroys the device.
    pub fn destroy(self) -> Result<(), NTSTATUS> {
        let mut record = D3DKMT_DESTROYDEVICE::zeroed();
        record.hDevice = self.handle;
        checked(thunk!(self.client, const D3DKMTDestroyDevice(record)))
    }
}
