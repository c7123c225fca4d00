//! Fences.

use super::{check_flags, input_or_zeros, output, put, run};
use crate::device::Device;
use crate::error::UmdError;
use crate::fence::Fence;
use crate::ffi::object;
use crate::ffi::types::{
    FP_FENCE_CROSS_ADAPTER, FP_FENCE_MONITORED, FP_FENCE_SHARED, FpDevice, FpFence, FpFenceCreate, FpFenceInfo,
};
use crate::sync_object::Sharing;
use crate::thunks::{NtHandle, Thunks};
use crate::wait::Timeout;
use alloc::sync::Arc;
use wddm_abi::win_extern;

win_extern! {
    pub fn fp_fence_create[T: Thunks](
        device: *mut FpDevice,
        create: *const FpFenceCreate,
        fence: *mut *mut FpFence,
    ) -> i32 {
        run::<T>(|| {
            // SAFETY: the caller's handle (entry.rs).
            let device = unsafe { object::get::<_, Arc<Device<T>>>(device) }?;
            // SAFETY: the caller's pointer (entry.rs).
            let create = unsafe { input_or_zeros(create) }?;
            check_flags(create.flags, FP_FENCE_SHARED | FP_FENCE_MONITORED | FP_FENCE_CROSS_ADAPTER)?;
            // SAFETY: as above; asked first, so that nothing is created in vain.
            unsafe { put(fence, core::ptr::null_mut()) }?;
            let shared = match create.flags & (FP_FENCE_SHARED | FP_FENCE_CROSS_ADAPTER) {
                0 => Sharing::None,
                FP_FENCE_SHARED => Sharing::Processes,
                _ => Sharing::Adapters,
            };
            let monitored = create.flags & FP_FENCE_MONITORED != 0;
            let created = Fence::create(device, create.initial_value, shared, monitored, &create.private_data)?;
            // SAFETY: as above.
            unsafe { put(fence, object::into_handle(created)) }
        })
    }

    pub fn fp_fence_open[T: Thunks](device: *mut FpDevice, nt_handle: u64, flags: u32, fence: *mut *mut FpFence) -> i32 {
        run::<T>(|| {
            // SAFETY: the caller's handle (entry.rs).
            let device = unsafe { object::get::<_, Arc<Device<T>>>(device) }?;
            check_flags(flags, FP_FENCE_MONITORED)?;
            // SAFETY: the caller's pointer; asked first, so that nothing is opened in vain.
            unsafe { put(fence, core::ptr::null_mut()) }?;
            let opened = Fence::open(device, NtHandle(nt_handle), flags & FP_FENCE_MONITORED != 0)?;
            // SAFETY: as above.
            unsafe { put(fence, object::into_handle(opened)) }
        })
    }

    pub fn fp_fence_share[T: Thunks](fence: *mut FpFence, nt_handle: *mut u64) -> i32 {
        run::<T>(|| {
            // SAFETY: the caller's handle (entry.rs).
            let fence = unsafe { object::get::<_, Fence<T>>(fence) }?;
            // SAFETY: the caller's pointer; asked first, so that no handle is made in vain.
            unsafe { put(nt_handle, 0) }?;
            let handle = fence.share()?;
            // SAFETY: as above.
            unsafe { put(nt_handle, handle.0) }
        })
    }

    pub fn fp_fence_info[T: Thunks](fence: *mut FpFence, info: *mut FpFenceInfo) -> i32 {
        run::<T>(|| {
            // SAFETY: the caller's handle (entry.rs).
            let fence = unsafe { object::get::<_, Fence<T>>(fence) }?;
            let (monitored_va, private_data, reply) = match fence {
                Fence::Native(native) => (native.monitored_va().0, *native.private_data(), native.reply()),
                Fence::Monitored(_) => (0, [0; 64], None),
            };
            let record = FpFenceInfo {
                size: 0,
                native: fence.is_native().into(),
                handle: fence.handle(),
                index: reply.map_or(u32::MAX, |reply| reply.index),
                gpu_va: fence.gpu_va().0,
                monitored_va,
                value_address: fence.value_address(),
                value: fence.value(),
                private_data,
            };
            // SAFETY: the caller's pointer (entry.rs).
            unsafe { output(info, record) }
        })
    }

    pub fn fp_fence_value[T: Thunks](fence: *mut FpFence, value: *mut u64) -> i32 {
        run::<T>(|| {
            // SAFETY: the caller's handle (entry.rs).
            let fence = unsafe { object::get::<_, Fence<T>>(fence) }?;
            // SAFETY: the caller's pointer (entry.rs).
            unsafe { put(value, fence.value()) }
        })
    }

    pub fn fp_fence_signal[T: Thunks](fence: *mut FpFence, value: u64) -> i32 {
        // SAFETY: the caller's handle (entry.rs).
        run::<T>(|| unsafe { object::get::<_, Fence<T>>(fence) }?.signal(value))
    }

    pub fn fp_fence_wait[T: Thunks](fence: *mut FpFence, value: u64, timeout: u64) -> i32 {
        // SAFETY: the caller's handle (entry.rs).
        run::<T>(|| unsafe { object::get::<_, Fence<T>>(fence) }?.wait(value, Timeout::from_nanoseconds(timeout)))
    }

    pub fn fp_fence_wait_event[T: Thunks](fence: *mut FpFence, value: u64, event: u64) -> i32 {
        run::<T>(|| {
            // SAFETY: the caller's handle (entry.rs).
            let fence = unsafe { object::get::<_, Fence<T>>(fence) }?;
            if event == 0 {
                return Err(UmdError::InvalidHandle);
            }
            fence.wait_event(value, NtHandle(event))
        })
    }

    pub fn fp_fence_destroy[T: Thunks](fence: *mut FpFence) -> i32 {
        // SAFETY: the caller's handle, which it uses no more (entry.rs).
        run::<T>(|| unsafe { object::take::<_, Fence<T>>(fence) }.map(drop))
    }
}
