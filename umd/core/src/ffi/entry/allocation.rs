//! Allocations.

use super::{check_flags, input, output, put, run};
use crate::allocation::{Allocation, Create, Kind};
use crate::device::Device;
use crate::error::{UmdError, Unsupported};
use crate::ffi::object;
use crate::ffi::types::{
    FP_ALLOCATION_GPU_READ_ONLY, FP_ALLOCATION_SHARED, FpAllocation, FpAllocationCreate, FpAllocationInfo, FpDevice,
};
use crate::memory::Pages;
use crate::thunks::{NtHandle, Thunks};
use alloc::sync::Arc;
use core::ffi::c_void;
use wddm_abi::win_extern;

/// The CPU's mapping, for a copy of `length` bytes from or to `pointer`.
fn pages<T: Thunks>(allocation: &Allocation<T>, pointer: *const c_void, length: usize) -> Result<Pages, UmdError> {
    if pointer.is_null() && length != 0 {
        return Err(UmdError::InvalidArgument("null buffer"));
    }
    allocation.pages().ok_or(UmdError::NotSupported(Unsupported::CpuAccess))
}

win_extern! {
    pub fn fp_allocation_create[T: Thunks](
        device: *mut FpDevice,
        create: *const FpAllocationCreate,
        allocation: *mut *mut FpAllocation,
    ) -> i32 {
        run::<T>(|| {
            // SAFETY: the caller's handle (entry.rs).
            let device = unsafe { object::get::<_, Arc<Device<T>>>(device) }?;
            // SAFETY: the caller's pointer (entry.rs).
            let create = unsafe { input(create) }?;
            check_flags(create.flags, FP_ALLOCATION_SHARED | FP_ALLOCATION_GPU_READ_ONLY)?;
            // SAFETY: as above; asked first, so that nothing is created in vain.
            unsafe { put(allocation, core::ptr::null_mut()) }?;
            let create = Create {
                size: create.bytes,
                kind: Kind::from_raw(create.kind).ok_or(UmdError::InvalidArgument("kind"))?,
                shared: create.flags & FP_ALLOCATION_SHARED != 0,
                read_only: create.flags & FP_ALLOCATION_GPU_READ_ONLY != 0,
            };
            let created = Allocation::create(device, create)?;
            // SAFETY: as above.
            unsafe { put(allocation, object::into_handle(created)) }
        })
    }

    pub fn fp_allocation_open[T: Thunks](
        device: *mut FpDevice,
        nt_handle: u64,
        allocation: *mut *mut FpAllocation,
    ) -> i32 {
        run::<T>(|| {
            // SAFETY: the caller's handle (entry.rs).
            let device = unsafe { object::get::<_, Arc<Device<T>>>(device) }?;
            // SAFETY: the caller's pointer; asked first, so that nothing is opened in vain.
            unsafe { put(allocation, core::ptr::null_mut()) }?;
            let opened = Allocation::open(device, NtHandle(nt_handle))?;
            // SAFETY: as above.
            unsafe { put(allocation, object::into_handle(opened)) }
        })
    }

    pub fn fp_allocation_share[T: Thunks](allocation: *mut FpAllocation, nt_handle: *mut u64) -> i32 {
        run::<T>(|| {
            // SAFETY: the caller's handle (entry.rs).
            let allocation = unsafe { object::get::<_, Allocation<T>>(allocation) }?;
            // SAFETY: the caller's pointer; asked first, so that no handle is made in vain.
            unsafe { put(nt_handle, 0) }?;
            let handle = allocation.share()?;
            // SAFETY: as above.
            unsafe { put(nt_handle, handle.0) }
        })
    }

    pub fn fp_allocation_info[T: Thunks](allocation: *mut FpAllocation, info: *mut FpAllocationInfo) -> i32 {
        run::<T>(|| {
            // SAFETY: the caller's handle (entry.rs).
            let allocation = unsafe { object::get::<_, Allocation<T>>(allocation) }?;
            let record = FpAllocationInfo {
                size: 0,
                // CAST: a value of allocation_kind.
                kind: allocation.kind() as u32,
                handle: allocation.handle(),
                resource: allocation.resource(),
                bytes: allocation.size(),
                gpu_va: allocation.gpu_va().0,
                cpu: allocation.mapped().map_or(core::ptr::null_mut(), |pages| pages.base().cast()),
            };
            // SAFETY: the caller's pointer (entry.rs).
            unsafe { output(info, record) }
        })
    }

    pub fn fp_allocation_write[T: Thunks](
        allocation: *mut FpAllocation,
        offset: u64,
        source: *const c_void,
        length: usize,
    ) -> i32 {
        run::<T>(|| {
            // SAFETY: the caller's handle (entry.rs).
            let allocation = unsafe { object::get::<_, Allocation<T>>(allocation) }?;
            let pages = pages(allocation, source, length)?;
            // SAFETY: the caller's buffer has `length` bytes; it may be another allocation's memory, hence no slice.
            let written = unsafe { pages.write_from(offset, source.cast(), length) };
            if written { Ok(()) } else { Err(UmdError::InvalidArgument("range")) }
        })
    }

    pub fn fp_allocation_read[T: Thunks](
        allocation: *mut FpAllocation,
        offset: u64,
        destination: *mut c_void,
        length: usize,
    ) -> i32 {
        run::<T>(|| {
            // SAFETY: the caller's handle (entry.rs).
            let allocation = unsafe { object::get::<_, Allocation<T>>(allocation) }?;
            let pages = pages(allocation, destination, length)?;
            // SAFETY: the caller's buffer has `length` bytes; it may be another allocation's memory, hence no slice.
            let read = unsafe { pages.read_to(offset, destination.cast(), length) };
            if read { Ok(()) } else { Err(UmdError::InvalidArgument("range")) }
        })
    }

    pub fn fp_allocation_destroy[T: Thunks](allocation: *mut FpAllocation) -> i32 {
        // SAFETY: the caller's handle, which it uses no more (entry.rs).
        run::<T>(|| unsafe { object::take::<_, Allocation<T>>(allocation) }.map(drop))
    }
}
