//! Contexts, queues and doorbells.

use super::super::os::{Block, Doorbell, Queue, Submission, World};
use super::{address, read, write};
use core::ffi::c_void;
use gpu_wire::doorbell::Model;
use gpu_wire::private::{ContextData, DoorbellData, DoorbellReply, MAGIC};
use gpu_wire::{GpuVa, INTERFACE_VERSION};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use umd_core::thunks::{CONNECT_DOORBELL_BYTES, NOTIFY_WORK_SUBMISSION_BYTES, Padded};
use wddm_abi::ntstatus::{
    STATUS_DEVICE_REMOVED, STATUS_GRAPHICS_DRIVER_MISMATCH, STATUS_INVALID_HANDLE, STATUS_INVALID_PARAMETER,
    STATUS_SUCCESS,
};
use wddm_abi::{D3DKMT_DEVICEEXECUTION_STATE, NTSTATUS};

/// What the KMD does with a context's private data.
fn context_data(pointer: *mut c_void, size: u32) -> NTSTATUS {
    let data: [u8; 8] = read(pointer.cast());
    let Some(data) = ContextData::read(&data).filter(|data| size == 8 && data.magic == MAGIC) else {
        return STATUS_INVALID_PARAMETER;
    };
    if data.interface_version == INTERFACE_VERSION { STATUS_SUCCESS } else { STATUS_GRAPHICS_DRIVER_MISMATCH }
}

fn queue(user_mode: bool, progress: u32) -> Queue {
    Queue {
        user_mode,
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

pub fn create_hw_context(world: &mut World, a: &mut Padded<wddm_abi::D3DKMT_CREATEHWCONTEXT, 0>) -> NTSTATUS {
    a.hHwContext = world.create("hardware context");
    context_data(a.pPrivateDriverData, a.PrivateDriverDataSize)
}

pub fn destroy_hw_context(world: &mut World, a: &mut Padded<wddm_abi::D3DKMT_DESTROYHWCONTEXT, 0>) -> NTSTATUS {
    world.destroy(a.hHwContext, "hardware context");
    STATUS_SUCCESS
}

pub fn create_context_virtual(world: &mut World, a: &mut Padded<wddm_abi::D3DKMT_CREATECONTEXTVIRTUAL, 0>) -> NTSTATUS {
    // The fence that the process made for it just before counts for it.
    let fence = world.fences.iter().filter(|(_, f)| !f.native).map(|(handle, _)| *handle).max().unwrap_or(0);
    if a.Flags.HwQueueSupported() {
        a.hContext = world.create("hardware context");
        return context_data(a.pPrivateDriverData, a.PrivateDriverDataSize);
    }
    a.hContext = world.create("context");
    world.queues.insert(a.hContext, queue(false, fence));
    context_data(a.pPrivateDriverData, a.PrivateDriverDataSize)
}

pub fn destroy_context(world: &mut World, a: &mut Padded<wddm_abi::D3DKMT_DESTROYCONTEXT, 0>) -> NTSTATUS {
    world.queues.remove(&a.hContext);
    let hardware = world.open.get(&a.hContext).is_some_and(|kind| *kind == "hardware context");
    world.destroy(a.hContext, if hardware { "hardware context" } else { "context" });
    STATUS_SUCCESS
}

pub fn create_hw_queue(world: &mut World, a: &mut Padded<wddm_abi::D3DKMT_CREATEHWQUEUE, 0>) -> NTSTATUS {
    let native = world.adapters[0].native_fences;
    a.hHwQueue = world.create("hardware queue");
    a.hHwQueueProgressFence = world.new_fence(native, world.first_progress, false);
    let fence = a.hHwQueueProgressFence;
    world.open.remove(&fence);
    a.HwQueueProgressFenceCPUVirtualAddress = address(world.fences[&fence].word);
    a.HwQueueProgressFenceGPUVirtualAddress = world.fences[&fence].gpu_va.0;
    a.Flags.set_NativeProgressFence(native);
    world.queues.insert(a.hHwQueue, queue(a.Flags.UserModeSubmission(), fence));
    STATUS_SUCCESS
}

pub fn destroy_hw_queue(world: &mut World, a: &mut Padded<wddm_abi::D3DKMT_DESTROYHWQUEUE, 0>) -> NTSTATUS {
    if world.queues.remove(&a.hHwQueue).is_some_and(|queue| queue.doorbell.is_some()) {
        world.complain("queue destroyed before its doorbell");
    }
    world.destroy(a.hHwQueue, "hardware queue");
    STATUS_SUCCESS
}

pub fn submit_command_to_hw_queue(
    world: &mut World,
    a: &mut Padded<wddm_abi::D3DKMT_SUBMITCOMMANDTOHWQUEUE, 0>,
) -> NTSTATUS {
    let Some(queue) = world.queues.get_mut(&a.hHwQueue) else { return STATUS_INVALID_HANDLE };
    if queue.user_mode {
        return STATUS_INVALID_PARAMETER;
    }
    let (address, length) = (GpuVa(a.CommandBuffer), a.CommandLength.into());
    queue.submitted.push_back(Submission::Buffer { address, length, progress: a.HwQueueProgressFenceId });
    STATUS_SUCCESS
}

pub fn submit_wait_for_sync_objects_to_hw_queue(
    world: &mut World,
    a: &mut Padded<wddm_abi::D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE, 0>,
) -> NTSTATUS {
    let (fence, value) = (read(a.ObjectHandleArray), read(a.FenceValueArray));
    let Some(queue) = world.queues.get_mut(&a.hHwQueue) else { return STATUS_INVALID_HANDLE };
    queue.submitted.push_back(Submission::Wait { fence, value });
    STATUS_SUCCESS
}

pub fn submit_signal_sync_objects_to_hw_queue(
    world: &mut World,
    a: &mut Padded<wddm_abi::D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE, 0>,
) -> NTSTATUS {
    assert_eq!((a.BroadcastHwQueueCount, a.ObjectCount), (1, 1));
    let (handle, fence, value) = (read(a.BroadcastHwQueueArray), read(a.ObjectHandleArray), read(a.FenceValueArray));
    let Some(queue) = world.queues.get_mut(&handle) else { return STATUS_INVALID_HANDLE };
    queue.submitted.push_back(Submission::Signal { fence, value });
    STATUS_SUCCESS
}

pub fn signal_synchronization_object_from_gpu(
    world: &mut World,
    a: &mut Padded<wddm_abi::D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU, 0>,
) -> NTSTATUS {
    assert_eq!(a.ObjectCount, 1);
    let (fence, value) = (read(a.ObjectHandleArray), read(a.MonitoredFenceValueArray()));
    let Some(queue) = world.queues.get_mut(&a.hContext) else { return STATUS_INVALID_HANDLE };
    queue.submitted.push_back(Submission::Signal { fence, value });
    STATUS_SUCCESS
}

pub fn submit_command(world: &mut World, a: &mut Padded<wddm_abi::D3DKMT_SUBMITCOMMAND, 0>) -> NTSTATUS {
    assert_eq!(a.BroadcastContextCount, 1);
    let context = a.BroadcastContext[0];
    let Some(queue) = world.queues.get_mut(&context) else { return STATUS_INVALID_HANDLE };
    let (address, length) = (GpuVa(a.Commands), a.CommandLength.into());
    queue.submitted.push_back(Submission::Buffer { address, length, progress: u64::MAX });
    STATUS_SUCCESS
}

pub fn wait_for_synchronization_object_from_gpu(
    world: &mut World,
    a: &mut Padded<wddm_abi::D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU, 0>,
) -> NTSTATUS {
    let (fence, value) = (read(a.ObjectHandleArray), read(a.MonitoredFenceValueArray()));
    let Some(queue) = world.queues.get_mut(&a.hContext) else { return STATUS_INVALID_HANDLE };
    queue.submitted.push_back(Submission::Wait { fence, value });
    STATUS_SUCCESS
}

pub fn create_doorbell(world: &mut World, a: &mut Padded<wddm_abi::D3DKMT_CREATE_DOORBELL, 0>) -> NTSTATUS {
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
}

pub fn connect_doorbell(world: &mut World, a: &mut Padded<wddm_abi::D3DKMT_CONNECT_DOORBELL, 80>) -> NTSTATUS {
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
    let Some(handle) = owner(world, a.hDoorbell) else { return STATUS_INVALID_HANDLE };
    let status = world.connect_statuses.pop_front().unwrap_or(0);
    let doorbell = world.queues.get_mut(&handle).and_then(|queue| queue.doorbell.as_mut()).unwrap();
    doorbell.connected = status < 2;
    doorbell.status.store(status, Ordering::Release);
    doorbell.word.store(0, Ordering::Relaxed);
    STATUS_SUCCESS
}

pub fn destroy_doorbell(world: &mut World, a: &mut Padded<wddm_abi::D3DKMT_DESTROY_DOORBELL, 0>) -> NTSTATUS {
    world.destroy(a.hDoorbell, "doorbell");
    if let Some(queue) = owner(world, a.hDoorbell) {
        // The OS waits until the last queued value is reached.
        world.run();
        world.queues.get_mut(&queue).unwrap().doorbell = None;
    }
    STATUS_SUCCESS
}

pub fn notify_work_submission(
    world: &mut World,
    a: &mut Padded<wddm_abi::D3DKMT_NOTIFY_WORK_SUBMISSION, 64>,
) -> NTSTATUS {
    assert_eq!(a.bytes(), NOTIFY_WORK_SUBMISSION_BYTES);
    if a.tail().iter().any(|byte| *byte != 0) {
        world.complain("what lies behind a thunk's argument is not zero");
    }
    let Some(handle) = owner(world, a.hDoorbell) else { return STATUS_INVALID_HANDLE };
    if let Some(state) = world.lost_by_notify.take() {
        world.lose_device(state);
        return STATUS_DEVICE_REMOVED;
    }
    look(world, handle);
    STATUS_SUCCESS
}
