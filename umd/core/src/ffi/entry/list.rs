//! Command lists. A list belongs to no table: the same handle type whatever the thunks.

use super::{input, put, put_if, run};
use crate::command_list::CommandList;
use crate::error::UmdError;
use crate::fence::Fence;
use crate::ffi::object;
use crate::ffi::types::{FP_MAX_LISTS, FpCommandList, FpCopyRect, FpFence, FpFilterRect, FpQueue};
use crate::memory::lock::{SpinCell, SpinGuard};
use crate::queue::Queue;
use crate::thunks::Thunks;
use alloc::vec::Vec;
use core::ffi::c_void;
use gpu_wire::GpuVa;
use gpu_wire::packet::{CopyRect, FilterRect};
use wddm_abi::win_extern;

/// A command list, and whether a thread is using it.
pub(super) type ListObject = SpinCell<CommandList>;

/// Uses a list, unless another thread does.
///
/// # Safety
/// `list` is null or a live handle.
pub(super) unsafe fn with_list<R>(
    list: *mut FpCommandList,
    use_it: impl FnOnce(&mut CommandList) -> Result<R, UmdError>,
) -> Result<R, UmdError> {
    // SAFETY: the caller's promise.
    let list = unsafe { object::get::<_, ListObject>(list) }?;
    list.try_with(use_it).unwrap_or(Err(UmdError::Busy))
}

/// Takes lists for as long as the guards live. One that another thread uses, or that is there twice, is busy.
///
/// # Errors
/// [`UmdError::InvalidArgument`] for none, for more than [`FP_MAX_LISTS`], and for no array;
/// [`UmdError::InvalidHandle`]; [`UmdError::Busy`]; [`UmdError::NoMemory`].
///
/// # Safety
/// `lists` is null or points at `count` handles, each null or live for as long as the guards.
pub(super) unsafe fn lock_lists<'a>(
    lists: *const *mut FpCommandList,
    count: u32,
) -> Result<Vec<SpinGuard<'a, CommandList>>, UmdError> {
    if !(1..=FP_MAX_LISTS).contains(&count) || lists.is_null() || !lists.is_aligned() {
        return Err(UmdError::InvalidArgument("command lists"));
    }
    let mut taken = Vec::new();
    taken.try_reserve_exact(count as usize)?;
    for at in 0..count as usize {
        // SAFETY: one of `count` handles, by the caller's promise; not null and aligned, as checked.
        let list = unsafe { lists.wrapping_add(at).read() };
        // SAFETY: the caller's promise.
        let list = unsafe { object::get::<_, ListObject>(list) }?;
        taken.push(list.try_lock().ok_or(UmdError::Busy)?);
    }
    Ok(taken)
}

/// Runs a recording function.
///
/// # Safety
/// `list` is null or a live handle.
unsafe fn record<T: Thunks>(
    list: *mut FpCommandList,
    use_it: impl FnOnce(&mut CommandList) -> Result<(), UmdError>,
) -> i32 {
    // SAFETY: the caller's promise.
    run::<T>(|| unsafe { with_list(list, use_it) })
}

win_extern! {
    pub fn fp_command_list_create[T: Thunks](queue: *mut FpQueue, list: *mut *mut FpCommandList) -> i32 {
        run::<T>(|| {
            // SAFETY: the caller's handle (entry.rs).
            let queue = unsafe { object::get::<_, Queue<T>>(queue) }?;
            // SAFETY: the caller's pointer; asked first, so that nothing is created in vain.
            unsafe { put(list, core::ptr::null_mut()) }?;
            let created: ListObject = SpinCell::new(queue.new_list());
            // SAFETY: as above.
            unsafe { put(list, object::into_handle(created)) }
        })
    }

    pub fn fp_command_list_reset[T: Thunks](list: *mut FpCommandList) -> i32 {
        // SAFETY: the caller's handle (entry.rs).
        unsafe {
            record::<T>(list, |list| {
                list.reset();
                Ok(())
            })
        }
    }

    pub fn fp_command_list_bytes[T: Thunks](
        list: *mut FpCommandList,
        buffer: *mut c_void,
        capacity: usize,
        length: *mut usize,
    ) -> i32 {
        let copy = |list: &mut CommandList| {
            let bytes = list.bytes();
            if !buffer.is_null() {
                // SAFETY: the caller's buffer has `capacity` bytes.
                unsafe { core::ptr::copy(bytes.as_ptr(), buffer.cast(), bytes.len().min(capacity)) };
            }
            // SAFETY: the caller's pointer is null or writable.
            unsafe { put_if(length, bytes.len()) };
            Ok(())
        };
        // SAFETY: the caller's handle (entry.rs).
        unsafe { record::<T>(list, copy) }
    }

    pub fn fp_command_list_destroy[T: Thunks](list: *mut FpCommandList) -> i32 {
        // SAFETY: the caller's handle, which it uses no more (entry.rs).
        run::<T>(|| unsafe { object::take::<_, ListObject>(list) }.map(drop))
    }

    pub fn fp_cmd_nop[T: Thunks](list: *mut FpCommandList, length: u32) -> i32 {
        // SAFETY: the caller's handle (entry.rs).
        unsafe { record::<T>(list, |list| list.nop(length)) }
    }

    pub fn fp_cmd_store[T: Thunks](list: *mut FpCommandList, address: u64, value: u64) -> i32 {
        // SAFETY: the caller's handle (entry.rs).
        unsafe { record::<T>(list, |list| list.store(GpuVa(address), value)) }
    }

    pub fn fp_cmd_store32[T: Thunks](list: *mut FpCommandList, address: u64, value: u32) -> i32 {
        // SAFETY: the caller's handle (entry.rs).
        unsafe { record::<T>(list, |list| list.store32(GpuVa(address), value)) }
    }

    pub fn fp_cmd_fill[T: Thunks](list: *mut FpCommandList, address: u64, length: u64, pattern: u32) -> i32 {
        // SAFETY: the caller's handle (entry.rs).
        unsafe { record::<T>(list, |list| list.fill(GpuVa(address), length, pattern)) }
    }

    pub fn fp_cmd_copy[T: Thunks](list: *mut FpCommandList, source: u64, destination: u64, length: u64) -> i32 {
        // SAFETY: the caller's handle (entry.rs).
        unsafe { record::<T>(list, |list| list.copy(GpuVa(source), GpuVa(destination), length)) }
    }

    pub fn fp_cmd_copy_rect[T: Thunks](list: *mut FpCommandList, rect: *const FpCopyRect) -> i32 {
        // SAFETY: the caller's pointer (entry.rs).
        let rect = unsafe { input(rect) };
        let record_it = |list: &mut CommandList| {
            let r = rect?;
            list.copy_rect(CopyRect {
                source: r.source,
                destination: r.destination,
                source_pitch: r.source_pitch,
                destination_pitch: r.destination_pitch,
                row_bytes: r.row_bytes,
                rows: r.rows,
            })
        };
        // SAFETY: the caller's handle (entry.rs).
        unsafe { record::<T>(list, record_it) }
    }

    pub fn fp_cmd_filter_rect[T: Thunks](list: *mut FpCommandList, rect: *const FpFilterRect) -> i32 {
        // SAFETY: the caller's pointer (entry.rs).
        let rect = unsafe { input(rect) };
        let record_it = |list: &mut CommandList| {
            let r = rect?;
            list.filter_rect(FilterRect {
                source: r.source,
                destination: r.destination,
                source_pitch: r.source_pitch,
                destination_pitch: r.destination_pitch,
                image_width: r.image_width,
                image_height: r.image_height,
                x: r.x,
                y: r.y,
                width: r.width,
                height: r.height,
                coefficients: r.coefficients,
                bias: r.bias,
                shift: r.shift,
                reserved: 0,
            })
        };
        // SAFETY: the caller's handle (entry.rs).
        unsafe { record::<T>(list, record_it) }
    }

    pub fn fp_cmd_fence_wait[T: Thunks](list: *mut FpCommandList, fence: *mut FpFence, value: u64) -> i32 {
        // SAFETY: the caller's handle (entry.rs).
        let fence = unsafe { object::get::<_, Fence<T>>(fence) };
        // SAFETY: as above.
        unsafe { record::<T>(list, |list| list.fence_wait(fence?, value)) }
    }

    pub fn fp_cmd_fence_signal[T: Thunks](list: *mut FpCommandList, fence: *mut FpFence, value: u64) -> i32 {
        // SAFETY: the caller's handle (entry.rs).
        let fence = unsafe { object::get::<_, Fence<T>>(fence) };
        // SAFETY: as above.
        unsafe { record::<T>(list, |list| list.fence_signal(fence?, value)) }
    }

    pub fn fp_cmd_timestamp[T: Thunks](list: *mut FpCommandList, address: u64) -> i32 {
        // SAFETY: the caller's handle (entry.rs).
        unsafe { record::<T>(list, |list| list.timestamp(GpuVa(address))) }
    }

    pub fn fp_cmd_indirect[T: Thunks](list: *mut FpCommandList, address: u64, length: u64) -> i32 {
        // SAFETY: the caller's handle (entry.rs).
        unsafe { record::<T>(list, |list| list.indirect(GpuVa(address), length)) }
    }

    pub fn fp_cmd_raw[T: Thunks](list: *mut FpCommandList, packets: *const c_void, length: usize) -> i32 {
        let record_it = |list: &mut CommandList| {
            if packets.is_null() {
                return Err(UmdError::InvalidArgument("null packets"));
            }
            // SAFETY: the caller's buffer has `length` bytes, which nobody changes during the call.
            list.raw(unsafe { core::slice::from_raw_parts(packets.cast(), length) })
        };
        // SAFETY: the caller's handle (entry.rs).
        unsafe { record::<T>(list, record_it) }
    }
}
