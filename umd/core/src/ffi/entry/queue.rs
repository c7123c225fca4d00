//! Queues.

use super::adapter::mode_number;
use super::list::{lock_lists, with_list};
use super::{check_flags, input, output, put, put_if, run};
use crate::command_list::Operation;
use crate::device::Device;
use crate::doorbell::Status;
use crate::error::UmdError;
use crate::ffi::object;
use crate::ffi::types::{
    FP_QUEUE_KERNEL_MODE, FP_QUEUE_NO_TIMEOUT, FP_SUBMIT_DO_NOT_WAIT, FP_TRACE_SIGNAL_QUEUED, FP_TRACE_WAIT_QUEUED,
    FpCommandList, FpDevice, FpQueue, FpQueueCounters, FpQueueCreate, FpQueueInfo, FpTraceEvent,
};
use crate::queue::{Create, Queue};
use crate::thunks::Thunks;
use crate::wait::Timeout;
use alloc::sync::Arc;
use gpu_wire::NodeOrdinal;
use wddm_abi::win_extern;

/// Most events that a trace keeps.
const MAX_TRACE_EVENTS: u32 = 1 << 20;

fn status_number(status: Option<Status>) -> u64 {
    match status {
        Some(Status::Connected) => 0,
        Some(Status::ConnectedNotify) => 1,
        Some(Status::Retry) => 2,
        Some(Status::Abort) => 3,
        Some(Status::Unknown(other)) => other,
        None => u64::MAX,
    }
}

win_extern! {
    pub fn fp_queue_create[T: Thunks](
        device: *mut FpDevice,
        create: *const FpQueueCreate,
        queue: *mut *mut FpQueue,
    ) -> i32 {
        run::<T>(|| {
            // SAFETY: the caller's handle (entry.rs).
            let device = unsafe { object::get::<_, Arc<Device<T>>>(device) }?;
            // SAFETY: the caller's pointer (entry.rs).
            let create = unsafe { input(create) }?;
            check_flags(create.flags, FP_QUEUE_KERNEL_MODE | FP_QUEUE_NO_TIMEOUT)?;
            if create.trace_events > MAX_TRACE_EVENTS {
                return Err(UmdError::InvalidArgument("trace_events"));
            }
            // SAFETY: as above; asked first, so that nothing is created in vain.
            unsafe { put(queue, core::ptr::null_mut()) }?;
            let create = Create {
                node: NodeOrdinal(create.node),
                ring_size: create.ring_bytes,
                kernel_mode: create.flags & FP_QUEUE_KERNEL_MODE != 0,
                no_timeout: create.flags & FP_QUEUE_NO_TIMEOUT != 0,
                trace_events: create.trace_events as usize,
            };
            let created = Queue::create(device, create)?;
            // SAFETY: as above.
            unsafe { put(queue, object::into_handle(created)) }
        })
    }

    pub fn fp_queue_info[T: Thunks](queue: *mut FpQueue, info: *mut FpQueueInfo) -> i32 {
        run::<T>(|| {
            // SAFETY: the caller's handle (entry.rs).
            let queue = unsafe { object::get::<_, Queue<T>>(queue) }?.info();
            let record = FpQueueInfo {
                size: 0,
                mode: mode_number(queue.mode),
                number: queue.number,
                node: queue.node,
                handle: queue.handle,
                progress_fence: queue.progress_fence,
                doorbell: queue.doorbell,
                reserved: 0,
                list_limit: queue.list_limit,
                progress_address: queue.progress_address,
                progress_va: queue.progress_va.0,
                doorbell_status: status_number(queue.status),
                doorbell_address: queue.addresses.doorbell,
                status_address: queue.addresses.status,
                last_queued_address: queue.addresses.last_queued,
                write_pointer_address: queue.addresses.write_pointer,
                ring_address: queue.addresses.ring,
                ring_va: queue.addresses.ring_va,
                control_va: queue.addresses.control_va,
            };
            // SAFETY: the caller's pointer (entry.rs).
            unsafe { output(info, record) }
        })
    }

    pub fn fp_queue_submit[T: Thunks](
        queue: *mut FpQueue,
        list: *mut FpCommandList,
        flags: u32,
        progress: *mut u64,
    ) -> i32 {
        run::<T>(|| {
            // SAFETY: the caller's handle (entry.rs).
            let queue = unsafe { object::get::<_, Queue<T>>(queue) }?;
            check_flags(flags, FP_SUBMIT_DO_NOT_WAIT)?;
            let may_wait = flags & FP_SUBMIT_DO_NOT_WAIT == 0;
            // SAFETY: the caller's handle (entry.rs).
            let value = unsafe { with_list(list, |list| queue.submit(list, may_wait)) }?;
            // SAFETY: the caller's pointer is null or writable.
            unsafe { put_if(progress, value) };
            Ok(())
        })
    }

    pub fn fp_queue_submit_lists[T: Thunks](
        queue: *mut FpQueue,
        lists: *const *mut FpCommandList,
        count: u32,
        flags: u32,
        progress: *mut u64,
    ) -> i32 {
        run::<T>(|| {
            // SAFETY: the caller's handle (entry.rs).
            let queue = unsafe { object::get::<_, Queue<T>>(queue) }?;
            check_flags(flags, FP_SUBMIT_DO_NOT_WAIT)?;
            let may_wait = flags & FP_SUBMIT_DO_NOT_WAIT == 0;
            // SAFETY: the caller's array has `count` handles (entry.rs).
            let mut lists = unsafe { lock_lists(lists, count) }?;
            let value = queue.submit_lists(&mut lists, may_wait)?;
            // SAFETY: the caller's pointer is null or writable.
            unsafe { put_if(progress, value) };
            Ok(())
        })
    }

    pub fn fp_queue_wait[T: Thunks](queue: *mut FpQueue, progress: u64, timeout: u64) -> i32 {
        // SAFETY: the caller's handle (entry.rs).
        run::<T>(|| unsafe { object::get::<_, Queue<T>>(queue) }?.wait(progress, Timeout::from_nanoseconds(timeout)))
    }

    pub fn fp_queue_progress[T: Thunks](queue: *mut FpQueue, completed: *mut u64, submitted: *mut u64) -> i32 {
        run::<T>(|| {
            // SAFETY: the caller's handle (entry.rs).
            let (done, made) = unsafe { object::get::<_, Queue<T>>(queue) }?.progress();
            // SAFETY: the caller's pointer is null or writable.
            unsafe { put_if(completed, done) };
            // SAFETY: as above.
            unsafe { put_if(submitted, made) };
            Ok(())
        })
    }

    pub fn fp_queue_recreate[T: Thunks](queue: *mut FpQueue, flags: u32) -> i32 {
        run::<T>(|| {
            // SAFETY: the caller's handle (entry.rs).
            let queue = unsafe { object::get::<_, Queue<T>>(queue) }?;
            check_flags(flags, FP_QUEUE_KERNEL_MODE)?;
            queue.recreate(flags & FP_QUEUE_KERNEL_MODE != 0)
        })
    }

    pub fn fp_queue_resize[T: Thunks](queue: *mut FpQueue, ring_size: u64) -> i32 {
        // SAFETY: the caller's handle (entry.rs).
        run::<T>(|| unsafe { object::get::<_, Queue<T>>(queue) }?.resize(ring_size))
    }

    pub fn fp_queue_counters[T: Thunks](queue: *mut FpQueue, counters: *mut FpQueueCounters) -> i32 {
        run::<T>(|| {
            // SAFETY: the caller's handle (entry.rs).
            let counted = unsafe { object::get::<_, Queue<T>>(queue) }?.counters();
            let record = FpQueueCounters {
                size: 0,
                reserved: 0,
                submissions: counted.submissions,
                rings: counted.effort.rings,
                reconnects: counted.effort.reconnects,
                notifies: counted.effort.notifies,
                stalls: counted.effort.stalls,
            };
            // SAFETY: the caller's pointer (entry.rs).
            unsafe { output(counters, record) }
        })
    }

    pub fn fp_queue_trace_read[T: Thunks](
        queue: *mut FpQueue,
        events: *mut FpTraceEvent,
        capacity: u32,
        count: *mut u32,
        lost: *mut u64,
    ) -> i32 {
        run::<T>(|| {
            // SAFETY: the caller's handle (entry.rs).
            let queue = unsafe { object::get::<_, Queue<T>>(queue) }?;
            if events.is_null() && capacity != 0 || !events.is_aligned() {
                return Err(UmdError::InvalidArgument("events"));
            }
            let mut taken = 0;
            let gone = queue.read_trace(|event| {
                if taken == capacity {
                    return false;
                }
                let kind = match event.operation {
                    Operation::Wait => FP_TRACE_WAIT_QUEUED,
                    Operation::Signal => FP_TRACE_SIGNAL_QUEUED,
                };
                let crate::trace::Event { fence, value, recorded, queued, progress, .. } = event;
                let record = FpTraceEvent { kind, fence, value, recorded, queued, progress };
                // SAFETY: below the capacity, so inside the caller's array.
                let place = unsafe { events.add(taken as usize) };
                // SAFETY: as above; aligned, as checked.
                unsafe { place.write(record) };
                taken += 1;
                true
            });
            // SAFETY: the caller's pointer is null or writable.
            unsafe { put_if(lost, gone) };
            // SAFETY: as above.
            unsafe { put(count, taken) }
        })
    }

    pub fn fp_queue_destroy[T: Thunks](queue: *mut FpQueue) -> i32 {
        // SAFETY: the caller's handle, which it uses no more (entry.rs).
        run::<T>(|| unsafe { object::take::<_, Queue<T>>(queue) }.map(drop))
    }
}
