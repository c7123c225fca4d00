//! The thunks.
#![expect(unsafe_code, reason = "an unsafe trait, and records with pointers")]

use super::os::{Block, Doorbell, Fence, Memory, Queue, Submission, Waiter, World};
use super::{Mock, current};
use core::ffi::c_void;
use gpu_wire::doorbell::Model;
use gpu_wire::private::{
    AllocationData, ContextData, DoorbellData, DoorbellReply, FENCE_REPLY_OFFSET, FenceReply, MAGIC,
};
use gpu_wire::{GpuVa, INTERFACE_VERSION};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use umd_core::thunks::{
    CONNECT_DOORBELL_BYTES, EventWait, NOTIFY_WORK_SUBMISSION_BYTES, NtHandle, Padded, Thunk, Thunks,
};
use wddm_abi::ntstatus::{
    STATUS_ACCESS_DENIED, STATUS_DEVICE_REMOVED, STATUS_GRAPHICS_DRIVER_MISMATCH, STATUS_INVALID_HANDLE,
    STATUS_INVALID_PARAMETER, STATUS_NOT_SUPPORTED, STATUS_PENDING, STATUS_SUCCESS,
};
use wddm_abi::{
    D3DKMT_DEVICEEXECUTION_STATE, D3DKMT_DEVICEPAGEFAULT_STATE, D3DKMT_DEVICESTATE_TYPE, D3DKMT_HANDLE,
    D3DKMT_NODEMETADATA, D3DKMT_WDDM_2_7_CAPS, D3DKMT_WDDM_3_1_CAPS, DXGK_NODEMETADATA_FLAGS, KMTQUERYADAPTERINFOTYPE,
    NTSTATUS, OBJECT_ATTRIBUTES, Plain,
};

/// Reads what a record's pointer names.
fn read<T: Copy>(pointer: *const T) -> T {
    assert!(!pointer.is_null());
    // SAFETY: umd_core builds records from live borrows.
    unsafe { pointer.read_unaligned() }
}

/// Writes what a record's pointer names.
fn write(pointer: *mut c_void, bytes: &[u8]) {
    assert!(!pointer.is_null());
    // SAFETY: as above; the callers have looked at the size.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer.cast(), bytes.len()) };
}

fn address(word: &'static AtomicU64) -> *mut c_void {
    word.as_ptr().cast()
}

impl Mock {
    /// Counts the call; the status with which it is refused.
    fn enter(&self, thunk: Thunk) -> (std::sync::MutexGuard<'_, World>, Option<NTSTATUS>) {
        let mut world = self.world();
        world.calls.push(thunk);
        let refused = world.refuse.iter().position(|(which, _)| *which == thunk).map(|i| world.refuse.remove(i).1);
        (world, refused)
    }
}

/// Starts a thunk: `thunk!(self, Id, argument, world => body)`; the body gives the status.
macro_rules! thunk {
    ($self:ident, $id:ident, $world:ident => $body:expr) => {{
        #[allow(unused_mut, reason = "some thunks only look")]
        let (mut $world, refused) = $self.enter(Thunk::$id);
        if let Some(status) = refused {
            return status;
        }
        $body
    }};
}

fn query(world: &World, handle: u32, kind: KMTQUERYADAPTERINFOTYPE, to: *mut c_void, size: u32) -> NTSTATUS {
    let Some(adapter) = world.adapters.get(handle as usize / 0x10_0000 - 1) else { return STATUS_INVALID_HANDLE };
    match kind {
        KMTQUERYADAPTERINFOTYPE::KMTQAITYPE_UMDRIVERPRIVATE => match adapter.info {
            Some(info) => write(to, &info.bytes()[..size as usize]),
            None => return STATUS_INVALID_PARAMETER,
        },
        KMTQUERYADAPTERINFOTYPE::KMTQAITYPE_WDDM_2_7_CAPS => {
            write(to, D3DKMT_WDDM_2_7_CAPS::zeroed().with_HwSchEnabled(adapter.scheduling).as_bytes());
        }
        KMTQUERYADAPTERINFOTYPE::KMTQAITYPE_WDDM_3_1_CAPS => {
            write(to, D3DKMT_WDDM_3_1_CAPS::zeroed().with_NativeGpuFenceSupported(adapter.native_fences).as_bytes());
        }
        KMTQUERYADAPTERINFOTYPE::KMTQAITYPE_NODEMETADATA => {
            let mut metadata: D3DKMT_NODEMETADATA = read(to.cast());
            let scheduled = metadata.NodeOrdinalAndAdapterIndex < 2 && adapter.scheduling;
            let rung = adapter.info.map_or(0, |info| info.rung);
            metadata.NodeData.Flags = DXGK_NODEMETADATA_FLAGS::zeroed()
                .with_ContextSchedulingSupported(scheduled)
                .with_UserModeSubmission(scheduled && rung == 3);
            write(to, metadata.as_bytes());
        }
        _ => return STATUS_INVALID_PARAMETER,
    }
    STATUS_SUCCESS
}

/// What the KMD does with a context's private data.
fn context_data(pointer: *mut c_void, size: u32) -> NTSTATUS {
    let data: [u8; 8] = read(pointer.cast());
    let Some(data) = ContextData::read(&data).filter(|data| size == 8 && data.magic == MAGIC) else {
        return STATUS_INVALID_PARAMETER;
    };
    if data.interface_version == INTERFACE_VERSION { STATUS_SUCCESS } else { STATUS_GRAPHICS_DRIVER_MISMATCH }
}

fn queue(user_mode: bool, packet: bool, progress: u32) -> Queue {
    Queue {
        user_mode,
        packet,
        progress,
        doorbell: None,
        submitted: VecDeque::new(),
        consumed: 0,
        parked: None,
        executed: vec![],
        waits: 0,
        signals: 0,
        last_progress: 0,
        resume: None,
    }
}

/// Lets the queue's engine look at its ring: what a KMD does at connect and notify.
fn look(world: &mut World, handle: u32) {
    if let Some(mut queue) = world.queues.remove(&handle) {
        if queue.parked.is_none() && world.gpu_runs {
            world.consume(&mut queue);
        }
        world.queues.insert(handle, queue);
    }
}

fn owner(world: &World, doorbell: u32) -> Option<u32> {
    world.queues.iter().find(|(_, q)| q.doorbell.as_ref().is_some_and(|d| d.handle == doorbell)).map(|(h, _)| *h)
}

// SAFETY: blocks are leaked, so what is returned stays mapped for ever; arguments are written inside their bounds.
unsafe impl Thunks for Mock {
    fn attach() -> Self {
        current()
    }

    fn has_export(&self, name: &str) -> bool {
        let world = self.world();
        let known = Thunk::ALL.iter().any(|thunk| thunk.name() == name) || world.more.iter().any(|more| more == name);
        known && !world.missing.iter().any(|missing| missing == name)
    }

    fn create_event(&self) -> Option<NtHandle> {
        let mut world = self.world();
        world.next_handle += 4;
        let event = u64::from(world.next_handle) << 32;
        world.events.insert(event, false);
        Some(NtHandle(event))
    }

    fn set_event(&self, event: NtHandle) {
        self.world().set(event.0);
        self.world.1.notify_all();
    }

    /// Runs the GPU first. A bounded wait that is not met then passes its time at once; an endless one waits for another
    /// thread.
    fn wait_event(&self, event: NtHandle, milliseconds: u32) -> EventWait {
        self.run();
        let mut world = self.world();
        loop {
            match world.events.get_mut(&event.0) {
                None => return EventWait::Failed,
                Some(set @ true) => {
                    *set = false;
                    return EventWait::Set;
                }
                Some(false) if milliseconds == u32::MAX => world = self.world.1.wait(world).unwrap(),
                Some(false) => {
                    world.time += u64::from(milliseconds) * 1_000_000;
                    return EventWait::Timeout;
                }
            }
        }
    }

    fn close_handle(&self, handle: NtHandle) {
        let mut world = self.world();
        if world.events.remove(&handle.0).is_none() && world.shared.remove(&handle.0).is_none() {
            world.complain(format!("{:#x} is not open", handle.0));
        }
    }

    fn timestamp(&self) -> u64 {
        let mut world = self.world();
        world.time += 1;
        world.time
    }

    fn timestamp_frequency(&self) -> u64 {
        1_000_000_000
    }

    fn thread_id() -> u32 {
        use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
        BuildHasherDefault::<DefaultHasher>::default().hash_one(std::thread::current().id()) as u32
    }

    fn share_objects(
        &self,
        objects: &[D3DKMT_HANDLE],
        attributes: &mut OBJECT_ATTRIBUTES,
        access: u32,
    ) -> (NTSTATUS, Option<NtHandle>) {
        let (mut world, refused) = self.enter(Thunk::ShareObjects);
        if let Some(status) = refused {
            return (status, None);
        }
        assert_eq!((objects.len(), attributes.Length), (1, 48));
        let object = objects[0];
        let by_handle = world.fences.get(&object).is_some_and(|fence| fence.shared_by_handle)
            || world.memory.values().any(|memory| memory.resource == object && memory.shared_by_handle);
        if !by_handle {
            return (STATUS_NOT_SUPPORTED, None);
        }
        if access & 0x0002_0000 == 0 {
            return (STATUS_ACCESS_DENIED, None);
        }
        world.next_handle += 4;
        let handle = u64::from(world.next_handle);
        world.shared.insert(handle, object);
        (STATUS_SUCCESS, Some(NtHandle(handle)))
    }

    fn enum_adapters2(&self, a: &mut Padded<wddm_abi::D3DKMT_ENUMADAPTERS2, 0>) -> NTSTATUS {
        thunk!(self, EnumAdapters2, world => {
            if a.pAdapters.is_null() {
                a.NumAdapters = 16;
                return STATUS_SUCCESS;
            }
            assert!(a.NumAdapters >= 16);
            for (n, adapter) in world.adapters.clone().iter().enumerate() {
                let handle = world.open_adapter(n);
                let mut info = wddm_abi::D3DKMT_ADAPTERINFO::zeroed();
                info.hAdapter = handle;
                info.AdapterLuid.LowPart = adapter.luid;
                write(a.pAdapters.wrapping_add(n).cast(), info.as_bytes());
            }
            a.NumAdapters = world.adapters.len() as u32;
            STATUS_SUCCESS
        })
    }

    fn open_adapter_from_luid(&self, a: &mut Padded<wddm_abi::D3DKMT_OPENADAPTERFROMLUID, 0>) -> NTSTATUS {
        thunk!(self, OpenAdapterFromLuid, world => {
            let Some(n) = world.adapters.iter().position(|adapter| adapter.luid == a.AdapterLuid.LowPart) else {
                return STATUS_INVALID_PARAMETER;
            };
            a.hAdapter = world.open_adapter(n);
            STATUS_SUCCESS
        })
    }

    fn query_adapter_info(&self, a: &mut Padded<wddm_abi::D3DKMT_QUERYADAPTERINFO, 0>) -> NTSTATUS {
        thunk!(self, QueryAdapterInfo, world => query(&world, a.hAdapter, a.Type, a.pPrivateDriverData, a.PrivateDriverDataSize))
    }

    fn close_adapter(&self, a: &mut Padded<wddm_abi::D3DKMT_CLOSEADAPTER, 0>) -> NTSTATUS {
        thunk!(self, CloseAdapter, world => {
            world.destroy(a.hAdapter, "adapter");
            STATUS_SUCCESS
        })
    }

    fn create_device(&self, a: &mut Padded<wddm_abi::D3DKMT_CREATEDEVICE, 0>) -> NTSTATUS {
        thunk!(self, CreateDevice, world => {
            a.hDevice = world.create("device");
            STATUS_SUCCESS
        })
    }

    fn destroy_device(&self, a: &mut Padded<wddm_abi::D3DKMT_DESTROYDEVICE, 0>) -> NTSTATUS {
        thunk!(self, DestroyDevice, world => {
            world.destroy(a.hDevice, "device");
            STATUS_SUCCESS
        })
    }

    fn get_device_state(&self, a: &mut Padded<wddm_abi::D3DKMT_GETDEVICESTATE, 0>) -> NTSTATUS {
        thunk!(self, GetDeviceState, world => {
            if a.StateType == D3DKMT_DEVICESTATE_TYPE::D3DKMT_DEVICESTATE_PAGE_FAULT {
                let mut fault = D3DKMT_DEVICEPAGEFAULT_STATE::zeroed();
                fault.FaultedVirtualAddress = 0xdead_0000;
                a.set_PageFaultState(fault);
            } else {
                let state: D3DKMT_DEVICEEXECUTION_STATE = world.state;
                a.set_ExecutionState(state);
            }
            STATUS_SUCCESS
        })
    }

    fn create_paging_queue(&self, a: &mut Padded<wddm_abi::D3DKMT_CREATEPAGINGQUEUE, 0>) -> NTSTATUS {
        thunk!(self, CreatePagingQueue, world => {
            a.hPagingQueue = world.create("paging queue");
            a.hSyncObject = world.new_fence(false, 0, false);
            // It goes with the queue, not by itself.
            let fence = a.hSyncObject;
            world.open.remove(&fence);
            a.FenceValueCPUVirtualAddress = address(world.fences[&fence].word);
            world.paging = Some((fence, 0));
            STATUS_SUCCESS
        })
    }

    fn destroy_paging_queue(&self, a: &mut Padded<wddm_abi::D3DDDI_DESTROYPAGINGQUEUE, 0>) -> NTSTATUS {
        thunk!(self, DestroyPagingQueue, world => {
            world.destroy(a.hPagingQueue, "paging queue");
            STATUS_SUCCESS
        })
    }

    fn create_allocation2(&self, a: &mut Padded<wddm_abi::D3DKMT_CREATEALLOCATION, 0>) -> NTSTATUS {
        thunk!(self, CreateAllocation2, world => {
            let mut info: wddm_abi::D3DDDI_ALLOCATIONINFO2 = read(a.pAllocationInfo2());
            let data: [u8; 24] = read(info.pPrivateDriverData.cast());
            let Some(data) = AllocationData::read(&data).filter(|d| d.magic == MAGIC && info.PrivateDriverDataSize == 24) else {
                return STATUS_INVALID_PARAMETER;
            };
            if a.Flags.CreateShared() && !a.Flags.CreateResource() {
                return STATUS_INVALID_PARAMETER;
            }
            info.hAllocation = world.create("allocation");
            if a.Flags.CreateResource() {
                a.hResource = world.create("resource");
            }
            let memory = Memory {
                block: Block::new(data.size),
                data,
                gpu_va: None,
                resident: false,
                locked: false,
                resource: a.hResource,
                shared_by_handle: a.Flags.NtSecuritySharing(),
            };
            world.memory.insert(info.hAllocation, memory);
            write(a.pAllocationInfo2().cast(), info.as_bytes());
            STATUS_SUCCESS
        })
    }

    fn destroy_allocation2(&self, a: &mut Padded<wddm_abi::D3DKMT_DESTROYALLOCATION2, 0>) -> NTSTATUS {
        thunk!(self, DestroyAllocation2, world => {
            let gone: Vec<u32> = if a.hResource != 0 {
                world.destroy(a.hResource, "resource");
                world.memory.iter().filter(|(_, m)| m.resource == a.hResource).map(|(h, _)| *h).collect()
            } else {
                assert_eq!(a.AllocationCount, 1);
                vec![read(a.phAllocationList)]
            };
            for handle in gone {
                world.destroy(handle, "allocation");
                if world.memory.remove(&handle).is_some_and(|memory| memory.locked) {
                    world.complain("destroyed while locked");
                }
            }
            STATUS_SUCCESS
        })
    }

    fn make_resident(&self, a: &mut Padded<wddm_abi::D3DDDI_MAKERESIDENT, 0>) -> NTSTATUS {
        thunk!(self, MakeResident, world => {
            assert_eq!(a.NumAllocations, 1);
            let handle = read(a.AllocationList);
            let Some(memory) = world.memory.get_mut(&handle) else { return STATUS_INVALID_PARAMETER };
            memory.resident = true;
            let pending = world.paging_pending;
            if let Some((_, promised)) = &mut world.paging
                && pending
            {
                *promised += 1;
                a.PagingFenceValue = *promised;
                return STATUS_PENDING;
            }
            STATUS_SUCCESS
        })
    }

    fn map_gpu_virtual_address(&self, a: &mut Padded<wddm_abi::D3DDDI_MAPGPUVIRTUALADDRESS, 0>) -> NTSTATUS {
        thunk!(self, MapGpuVirtualAddress, world => {
            let va = world.map(a.SizeInPages * 4096);
            let Some(memory) = world.memory.get_mut(&a.hAllocation) else { return STATUS_INVALID_PARAMETER };
            assert_eq!(a.SizeInPages * 4096, memory.block.len);
            memory.gpu_va = Some(va);
            a.VirtualAddress = va.0;
            let pending = world.paging_pending;
            if let Some((_, promised)) = &mut world.paging
                && pending
            {
                *promised += 1;
                a.PagingFenceValue = *promised;
                return STATUS_PENDING;
            }
            STATUS_SUCCESS
        })
    }

    fn lock2(&self, a: &mut Padded<wddm_abi::D3DKMT_LOCK2, 0>) -> NTSTATUS {
        thunk!(self, Lock2, world => {
            let Some(memory) = world.memory.get_mut(&a.hAllocation) else { return STATUS_INVALID_PARAMETER };
            memory.locked = true;
            a.pData = memory.block.base.cast();
            STATUS_SUCCESS
        })
    }

    fn unlock2(&self, a: &mut Padded<wddm_abi::D3DKMT_UNLOCK2, 0>) -> NTSTATUS {
        thunk!(self, Unlock2, world => {
            match world.memory.get_mut(&a.hAllocation) {
                Some(memory) if memory.locked => memory.locked = false,
                _ => world.complain("unlocked what was not locked"),
            }
            STATUS_SUCCESS
        })
    }

    fn query_resource_info_from_nt_handle(
        &self,
        a: &mut Padded<wddm_abi::D3DKMT_QUERYRESOURCEINFOFROMNTHANDLE, 0>,
    ) -> NTSTATUS {
        thunk!(self, QueryResourceInfoFromNtHandle, world => {
            let handle = a.hNtHandle.addr() as u64;
            if !world.shared.contains_key(&handle) {
                return STATUS_INVALID_HANDLE;
            }
            a.NumAllocations = 1;
            a.TotalPrivateDriverDataSize = 24;
            STATUS_SUCCESS
        })
    }

    fn open_resource_from_nt_handle(&self, a: &mut Padded<wddm_abi::D3DKMT_OPENRESOURCEFROMNTHANDLE, 0>) -> NTSTATUS {
        thunk!(self, OpenResourceFromNtHandle, world => {
            let resource = world.shared.get(&(a.hNtHandle.addr() as u64)).copied();
            let original = world.memory.values().find(|m| Some(m.resource) == resource).cloned();
            let Some(original) = original else { return STATUS_INVALID_HANDLE };
            let handle = world.create("allocation");
            a.hResource = world.create("resource");
            let opened = Memory { gpu_va: None, resident: false, locked: false, resource: a.hResource, ..original };
            write(a.pTotalPrivateDriverDataBuffer, opened.data.bytes());
            world.memory.insert(handle, opened);
            let mut info = wddm_abi::D3DDDI_OPENALLOCATIONINFO2::zeroed();
            info.hAllocation = handle;
            write(a.pOpenAllocationInfo2.cast(), info.as_bytes());
            STATUS_SUCCESS
        })
    }

    fn create_hw_context(&self, a: &mut Padded<wddm_abi::D3DKMT_CREATEHWCONTEXT, 0>) -> NTSTATUS {
        thunk!(self, CreateHwContext, world => {
            a.hHwContext = world.create("hardware context");
            context_data(a.pPrivateDriverData, a.PrivateDriverDataSize)
        })
    }

    fn destroy_hw_context(&self, a: &mut Padded<wddm_abi::D3DKMT_DESTROYHWCONTEXT, 0>) -> NTSTATUS {
        thunk!(self, DestroyHwContext, world => {
            world.destroy(a.hHwContext, "hardware context");
            STATUS_SUCCESS
        })
    }

    fn create_context_virtual(&self, a: &mut Padded<wddm_abi::D3DKMT_CREATECONTEXTVIRTUAL, 0>) -> NTSTATUS {
        thunk!(self, CreateContextVirtual, world => {
            // The fence that the process made for it just before counts for it.
            let fence = world.fences.iter().filter(|(_, f)| !f.native).map(|(handle, _)| *handle).max().unwrap_or(0);
            a.hContext = world.create("context");
            world.queues.insert(a.hContext, queue(false, true, fence));
            context_data(a.pPrivateDriverData, a.PrivateDriverDataSize)
        })
    }

    fn destroy_context(&self, a: &mut Padded<wddm_abi::D3DKMT_DESTROYCONTEXT, 0>) -> NTSTATUS {
        thunk!(self, DestroyContext, world => {
            world.queues.remove(&a.hContext);
            world.destroy(a.hContext, "context");
            STATUS_SUCCESS
        })
    }

    fn create_hw_queue(&self, a: &mut Padded<wddm_abi::D3DKMT_CREATEHWQUEUE, 0>) -> NTSTATUS {
        thunk!(self, CreateHwQueue, world => {
            let native = world.adapters[0].native_fences;
            a.hHwQueue = world.create("hardware queue");
            a.hHwQueueProgressFence = world.new_fence(native, 0, false);
            let fence = a.hHwQueueProgressFence;
            world.open.remove(&fence);
            a.HwQueueProgressFenceCPUVirtualAddress = address(world.fences[&fence].word);
            a.HwQueueProgressFenceGPUVirtualAddress = world.fences[&fence].gpu_va.0;
            world.queues.insert(a.hHwQueue, queue(a.Flags.UserModeSubmission(), false, fence));
            STATUS_SUCCESS
        })
    }

    fn destroy_hw_queue(&self, a: &mut Padded<wddm_abi::D3DKMT_DESTROYHWQUEUE, 0>) -> NTSTATUS {
        thunk!(self, DestroyHwQueue, world => {
            if world.queues.remove(&a.hHwQueue).is_some_and(|queue| queue.doorbell.is_some()) {
                world.complain("queue destroyed before its doorbell");
            }
            world.destroy(a.hHwQueue, "hardware queue");
            STATUS_SUCCESS
        })
    }

    fn submit_command_to_hw_queue(&self, a: &mut Padded<wddm_abi::D3DKMT_SUBMITCOMMANDTOHWQUEUE, 0>) -> NTSTATUS {
        thunk!(self, SubmitCommandToHwQueue, world => {
            let Some(queue) = world.queues.get_mut(&a.hHwQueue) else { return STATUS_INVALID_HANDLE };
            if queue.user_mode {
                return STATUS_INVALID_PARAMETER;
            }
            let (address, length) = (GpuVa(a.CommandBuffer), a.CommandLength.into());
            queue.submitted.push_back(Submission::Buffer { address, length, progress: a.HwQueueProgressFenceId });
            STATUS_SUCCESS
        })
    }

    fn submit_wait_for_sync_objects_to_hw_queue(
        &self,
        a: &mut Padded<wddm_abi::D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE, 0>,
    ) -> NTSTATUS {
        thunk!(self, SubmitWaitForSyncObjectsToHwQueue, world => {
            let (fence, value) = (read(a.ObjectHandleArray), read(a.FenceValueArray));
            let Some(queue) = world.queues.get_mut(&a.hHwQueue) else { return STATUS_INVALID_HANDLE };
            queue.submitted.push_back(Submission::Wait { fence, value });
            STATUS_SUCCESS
        })
    }

    fn submit_command(&self, a: &mut Padded<wddm_abi::D3DKMT_SUBMITCOMMAND, 0>) -> NTSTATUS {
        thunk!(self, SubmitCommand, world => {
            assert_eq!(a.BroadcastContextCount, 1);
            let context = a.BroadcastContext[0];
            let Some(queue) = world.queues.get_mut(&context) else { return STATUS_INVALID_HANDLE };
            let (address, length) = (GpuVa(a.Commands), a.CommandLength.into());
            queue.submitted.push_back(Submission::Buffer { address, length, progress: u64::MAX });
            STATUS_SUCCESS
        })
    }

    fn wait_for_synchronization_object_from_gpu(
        &self,
        a: &mut Padded<wddm_abi::D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU, 0>,
    ) -> NTSTATUS {
        thunk!(self, WaitForSynchronizationObjectFromGpu, world => {
            let (fence, value) = (read(a.ObjectHandleArray), read(a.MonitoredFenceValueArray()));
            let Some(queue) = world.queues.get_mut(&a.hContext) else { return STATUS_INVALID_HANDLE };
            queue.submitted.push_back(Submission::Wait { fence, value });
            STATUS_SUCCESS
        })
    }

    fn create_doorbell(&self, a: &mut Padded<wddm_abi::D3DKMT_CREATE_DOORBELL, 0>) -> NTSTATUS {
        thunk!(self, CreateDoorbell, world => {
            if world.newer_kit {
                world.complain("a doorbell of 24H2 on a newer system");
            }
            for handle in [a.hRingBuffer, a.hRingBufferControl] {
                if !world.memory.get(&handle).is_some_and(|memory| memory.resident) {
                    world.complain("doorbell created before its ring is resident");
                }
            }
            assert_eq!(a.PrivateDriverDataSize, 16);
            let data: [u8; 16] = read(a.PrivateDriverData.cast());
            let data = DoorbellData::read(&data).unwrap();
            let ring = world.memory[&a.hRingBuffer].clone();
            assert_eq!((Some(GpuVa(data.ring)), ring.gpu_va), (ring.gpu_va, Some(GpuVa(data.ring))));
            let reply = DoorbellReply { token: 5, model: Model::Dedicated.raw(), ring_size: ring.data.size };
            if !world.silent_driver {
                write(a.PrivateDriverData, reply.bytes());
            }
            let page = Block::new(4096);
            a.hDoorbell = world.create("doorbell");
            let doorbell = Doorbell {
                handle: a.hDoorbell,
                word: page.word(0),
                status: page.word(64),
                last_queued: page.word(128),
                ring: a.hRingBuffer,
                control: a.hRingBufferControl,
                connected: false,
            };
            // Created disconnected.
            doorbell.status.store(2, Ordering::Relaxed);
            a.DoorbellCPUVirtualAddress = address(doorbell.word);
            a.DoorbellStatusCPUVirtualAddress = address(doorbell.status);
            a.HwQueueProgressFenceLastQueuedValueCPUVirtualAddress = address(doorbell.last_queued);
            let Some(queue) = world.queues.get_mut(&a.hHwQueue).filter(|queue| queue.user_mode) else {
                return STATUS_INVALID_PARAMETER;
            };
            queue.doorbell = Some(doorbell);
            STATUS_SUCCESS
        })
    }

    fn connect_doorbell(&self, a: &mut Padded<wddm_abi::D3DKMT_CONNECT_DOORBELL, 80>) -> NTSTATUS {
        thunk!(self, ConnectDoorbell, world => {
            assert_eq!(a.bytes(), CONNECT_DOORBELL_BYTES);
            if a.tail().iter().any(|byte| *byte != 0) {
                world.complain("what lies behind a thunk's argument is not zero");
            }
            if world.newer_kit {
                // DoorbellMapping and the reserved members are written.
                a.tail_mut().fill(0xee);
            }
            if world.state != D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_ACTIVE {
                return STATUS_DEVICE_REMOVED;
            }
            let Some(handle) = owner(&world, a.hDoorbell) else { return STATUS_INVALID_HANDLE };
            let status = world.connect_statuses.pop_front().unwrap_or(0);
            let doorbell = world.queues.get_mut(&handle).and_then(|queue| queue.doorbell.as_mut()).unwrap();
            doorbell.connected = status < 2;
            doorbell.status.store(status, Ordering::Release);
            doorbell.word.store(0, Ordering::Relaxed);
            STATUS_SUCCESS
        })
    }

    fn destroy_doorbell(&self, a: &mut Padded<wddm_abi::D3DKMT_DESTROY_DOORBELL, 0>) -> NTSTATUS {
        thunk!(self, DestroyDoorbell, world => {
            world.destroy(a.hDoorbell, "doorbell");
            if let Some(queue) = owner(&world, a.hDoorbell) {
                // The OS waits until the last queued value is reached.
                world.run();
                world.queues.get_mut(&queue).unwrap().doorbell = None;
            }
            STATUS_SUCCESS
        })
    }

    fn notify_work_submission(&self, a: &mut Padded<wddm_abi::D3DKMT_NOTIFY_WORK_SUBMISSION, 64>) -> NTSTATUS {
        thunk!(self, NotifyWorkSubmission, world => {
            assert_eq!(a.bytes(), NOTIFY_WORK_SUBMISSION_BYTES);
            if a.tail().iter().any(|byte| *byte != 0) {
                world.complain("what lies behind a thunk's argument is not zero");
            }
            let Some(handle) = owner(&world, a.hDoorbell) else { return STATUS_INVALID_HANDLE };
            look(&mut world, handle);
            STATUS_SUCCESS
        })
    }

    fn create_native_fence(&self, a: &mut Padded<wddm_abi::D3DKMT_CREATENATIVEFENCE, 0>) -> NTSTATUS {
        thunk!(self, CreateNativeFence, world => {
            if a.Info.Flags.Shared() != a.Info.Flags.NtSecuritySharing() {
                world.complain("a native fence shared without NtSecuritySharing");
            }
            let handle = world.new_fence(true, a.Info.InitialFenceValue, a.Info.Flags.NtSecuritySharing());
            let fence = world.fences.get_mut(&handle).unwrap();
            let reply = FenceReply { index: handle, generation: 0, magic: MAGIC, opens: 0 };
            a.PrivateDriverData[FENCE_REPLY_OFFSET..].copy_from_slice(reply_bytes(&reply));
            fence.private_data = a.PrivateDriverData;
            a.Info.NativeFenceMapping.CurrentValueCpuVa = address(fence.word);
            a.Info.NativeFenceMapping.CurrentValueGpuVa = fence.gpu_va.0;
            a.Info.NativeFenceMapping.MonitoredValueGpuVa = fence.gpu_va.0 + 8;
            a.hSyncObject = handle;
            STATUS_SUCCESS
        })
    }

    fn open_native_fence_from_nt_handle(
        &self,
        a: &mut Padded<wddm_abi::D3DKMT_OPENNATIVEFENCEFROMNTHANDLE, 0>,
    ) -> NTSTATUS {
        thunk!(self, OpenNativeFenceFromNtHandle, world => {
            let original = world.shared.get(&(a.hNtHandle.addr() as u64)).and_then(|h| world.fences.get(h)).cloned();
            let Some(original) = original else { return STATUS_INVALID_HANDLE };
            let handle = world.create("fence");
            a.NativeFenceMapping.CurrentValueCpuVa = address(original.word);
            a.NativeFenceMapping.CurrentValueGpuVa = original.gpu_va.0;
            a.PrivateDriverData = original.private_data;
            a.hSyncObject = handle;
            // The same storage: found by address under the creator's handle.
            world.fences.insert(handle, Fence { gpu_va: GpuVa(0), ..original });
            STATUS_SUCCESS
        })
    }

    fn create_synchronization_object2(
        &self,
        a: &mut Padded<wddm_abi::D3DKMT_CREATESYNCHRONIZATIONOBJECT2, 0>,
    ) -> NTSTATUS {
        thunk!(self, CreateSynchronizationObject2, world => {
            let initial = a.Info.MonitoredFence().InitialFenceValue;
            let handle = world.new_fence(false, initial, a.Info.Flags.NtSecuritySharing());
            let fence = &world.fences[&handle];
            a.hSyncObject = handle;
            a.Info.MonitoredFence_mut().FenceValueCPUVirtualAddress = address(fence.word);
            a.Info.MonitoredFence_mut().FenceValueGPUVirtualAddress = fence.gpu_va.0;
            STATUS_SUCCESS
        })
    }

    fn open_sync_object_from_nt_handle2(
        &self,
        a: &mut Padded<wddm_abi::D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2, 0>,
    ) -> NTSTATUS {
        thunk!(self, OpenSyncObjectFromNtHandle2, world => {
            let original = world.shared.get(&(a.hNtHandle.addr() as u64)).and_then(|h| world.fences.get(h)).cloned();
            let Some(original) = original else { return STATUS_INVALID_HANDLE };
            let handle = world.create("fence");
            a.hSyncObject = handle;
            a.MonitoredFence_mut().FenceValueCPUVirtualAddress = address(original.word);
            a.MonitoredFence_mut().FenceValueGPUVirtualAddress = original.gpu_va.0;
            world.fences.insert(handle, Fence { gpu_va: GpuVa(0), ..original });
            STATUS_SUCCESS
        })
    }

    fn destroy_synchronization_object(
        &self,
        a: &mut Padded<wddm_abi::D3DKMT_DESTROYSYNCHRONIZATIONOBJECT, 0>,
    ) -> NTSTATUS {
        thunk!(self, DestroySynchronizationObject, world => {
            world.destroy(a.hSyncObject, "fence");
            world.fences.remove(&a.hSyncObject);
            STATUS_SUCCESS
        })
    }

    /// A blocking wait that the GPU does not meet is a hang, which the mock ends with a complaint.
    fn wait_for_synchronization_object_from_cpu(
        &self,
        a: &mut Padded<wddm_abi::D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU, 0>,
    ) -> NTSTATUS {
        thunk!(self, WaitForSynchronizationObjectFromCpu, world => {
            assert_eq!(a.ObjectCount, 1);
            let (fence, value) = (read(a.ObjectHandleArray), read(a.FenceValueArray));
            if let Some((paging, promised)) = world.paging
                && paging == fence
            {
                world.signal(paging, promised);
                return STATUS_SUCCESS;
            }
            world.run();
            let met = world.value(fence) >= value;
            match NtHandle::from_raw(a.hAsyncEvent) {
                Some(event) if met => world.set(event.0),
                Some(event) => world.waiters.push(Waiter { fence, value, event: event.0 }),
                None if met => {}
                None => world.complain(format!("blocked for ever on fence {fence:#x} for {value}")),
            }
            STATUS_SUCCESS
        })
    }

    fn signal_synchronization_object_from_cpu(
        &self,
        a: &mut Padded<wddm_abi::D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU, 0>,
    ) -> NTSTATUS {
        thunk!(self, SignalSynchronizationObjectFromCpu, world => {
            assert_eq!(a.ObjectCount, 1);
            let (fence, value) = (read(a.ObjectHandleArray), read(a.FenceValueArray));
            world.signal(fence, value);
            STATUS_SUCCESS
        })
    }
}

fn reply_bytes(reply: &FenceReply) -> &[u8] {
    reply.bytes()
}
