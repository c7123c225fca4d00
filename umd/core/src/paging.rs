//! The paging queue: making memory resident and mapping it into the GPU's address space, and waiting until that is
//! done.
//!
//! Both calls answer at once and finish later: they return a value of the paging fence, and the GPU must not touch the
//! memory before that value is reached. This driver waits for it on the CPU, first by reading the fence, then in the
//! kernel.
//!
//! Assumes:
//! - A returned `PagingFenceValue` of 0, or a status other than STATUS_PENDING from MakeResident, means that it is done
//!   already. Source: `D3DDDI_MAPGPUVIRTUALADDRESS`, "A zero fence value might be returned"; `D3DDDI_MAKERESIDENT`,
//!   "When MakeResident returns E_PENDING, this member indicates …".
//! - MakeResident over the budget answers STATUS_NO_MEMORY after it has made the first `NumAllocations` allocations
//!   resident. With CantTrimFurther it goes beyond the budget. Source: `D3DDDI_MAKERESIDENT`.
//! - The paging fence counts upwards and can be waited for by `D3DKMTWaitForSynchronizationObjectFromCpu` on
//!   `D3DKMT_CREATEPAGINGQUEUE::hSyncObject`. Source: its page; it is destroyed with the queue.
//! - A mapping of the whole allocation at an address of the OS's choice is freed with the allocation. Source:
//!   `D3DKMTMapGpuVirtualAddress`, Remarks.
#![forbid(unsafe_code)]

use crate::adapter::Adapter;
use crate::error::UmdError;
use crate::fence_value::FenceValue;
use crate::mutation::Mutation;
use crate::thunks::{Answer, Padded, Thunk, Thunks};
use crate::wait::{self, Timeout};
use alloc::sync::Arc;
use gpu_wire::{GpuVa, PAGE_SIZE};
use wddm_abi::ntstatus::STATUS_NO_MEMORY;
use wddm_abi::{
    D3DDDI_DESTROYPAGINGQUEUE, D3DDDI_MAKERESIDENT, D3DDDI_MAPGPUVIRTUALADDRESS, D3DDDI_PAGINGQUEUE_PRIORITY,
    D3DDDIGPUVIRTUALADDRESS_PROTECTION_TYPE, D3DKMT_CREATEPAGINGQUEUE, D3DKMT_HANDLE,
};

/// A paging queue. Dropping it destroys it.
pub struct PagingQueue<T: Thunks> {
    adapter: Arc<Adapter<T>>,
    device: D3DKMT_HANDLE,
    handle: D3DKMT_HANDLE,
    sync_object: D3DKMT_HANDLE,
    /// Written by the OS; read-only here.
    fence: FenceValue,
}

impl<T: Thunks> PagingQueue<T> {
    /// Creates a queue of normal priority.
    ///
    /// # Errors
    /// [`UmdError::Thunk`], [`UmdError::BadReply`].
    pub fn create(adapter: &Arc<Adapter<T>>, device: D3DKMT_HANDLE) -> Result<Self, UmdError> {
        let mut create = Padded::new(D3DKMT_CREATEPAGINGQUEUE {
            hDevice: device,
            Priority: D3DDDI_PAGINGQUEUE_PRIORITY::D3DDDI_PAGINGQUEUE_PRIORITY_NORMAL,
            ..D3DKMT_CREATEPAGINGQUEUE::zeroed()
        });
        adapter.os.create_paging_queue(&mut create)?;
        let Some(fence) = FenceValue::new(create.FenceValueCPUVirtualAddress, adapter.has_narrow_fences()) else {
            destroy(adapter, create.hPagingQueue);
            return Err(UmdError::BadReply { thunk: Thunk::CreatePagingQueue });
        };
        Ok(Self {
            adapter: adapter.clone(),
            device,
            handle: create.hPagingQueue,
            sync_object: create.hSyncObject,
            fence,
        })
    }

    /// Makes the allocations resident and waits until they are. Over the budget the OS makes some of them resident and
    /// refuses. This driver evicts nothing to make room: it asks for the rest again with CantTrimFurther, which goes
    /// beyond the budget.
    ///
    /// # Errors
    /// [`UmdError::Thunk`] (out of video memory among others), [`UmdError::DeviceLost`].
    pub fn make_resident(&self, allocations: &[D3DKMT_HANDLE]) -> Result<(), UmdError> {
        let mut argument = self.residency(allocations);
        let (answer, rest) = match self.adapter.os.make_resident(&mut argument) {
            Err(UmdError::Thunk { status: STATUS_NO_MEMORY, .. })
                if !self.adapter.os.mutation.is(Mutation::NeverExceedsBudget) =>
            {
                // CAST: a count of the list's members, or more than it has.
                let done = argument.NumAllocations as usize;
                // The OS may still be busy with those that it took.
                self.wait(argument.PagingFenceValue)?;
                let rest = allocations.get(done..).filter(|rest| !rest.is_empty());
                (Answer::Done, rest.unwrap_or(allocations))
            }
            answer => (answer?, allocations.get(..0).unwrap_or_default()),
        };
        if answer == Answer::Pending {
            self.wait(argument.PagingFenceValue)?;
        }
        if rest.is_empty() {
            return Ok(());
        }
        let mut argument = self.residency(rest);
        argument.Flags.set_CantTrimFurther(true);
        match self.adapter.os.make_resident(&mut argument)? {
            Answer::Pending => self.wait(argument.PagingFenceValue),
            Answer::Done => Ok(()),
        }
    }

    /// The argument of MakeResident for `allocations`, without flags. It borrows the list by address.
    fn residency<const PAD: usize>(&self, allocations: &[D3DKMT_HANDLE]) -> Padded<D3DDDI_MAKERESIDENT, PAD> {
        Padded::new(D3DDDI_MAKERESIDENT {
            hPagingQueue: self.handle,
            // CAST: this driver passes a handful.
            NumAllocations: allocations.len() as u32,
            AllocationList: allocations.as_ptr(),
            ..D3DDDI_MAKERESIDENT::zeroed()
        })
    }

    /// Maps `pages` pages of an allocation, readable and (unless `read_only`) writable by the GPU, and waits until it
    /// is done. The address.
    ///
    /// # Errors
    /// [`UmdError::Thunk`], [`UmdError::DeviceLost`], [`UmdError::BadReply`] for an address that the GPU cannot have.
    pub fn map(&self, allocation: D3DKMT_HANDLE, pages: u64, read_only: bool) -> Result<GpuVa, UmdError> {
        let mut argument = Padded::new(D3DDDI_MAPGPUVIRTUALADDRESS {
            hPagingQueue: self.handle,
            hAllocation: allocation,
            SizeInPages: pages,
            Protection: D3DDDIGPUVIRTUALADDRESS_PROTECTION_TYPE::zeroed().with_Write(!read_only),
            ..D3DDDI_MAPGPUVIRTUALADDRESS::zeroed()
        });
        self.adapter.os.map_gpu_virtual_address(&mut argument)?;
        self.wait(argument.PagingFenceValue)?;
        let va = GpuVa(argument.VirtualAddress);
        if va.0 == 0 || !va.is_aligned(PAGE_SIZE) || !va.is_canonical() {
            return Err(UmdError::BadReply { thunk: Thunk::MapGpuVirtualAddress });
        }
        Ok(va)
    }

    /// Waits until the paging fence reached `value`.
    fn wait(&self, value: u64) -> Result<(), UmdError> {
        if value == 0 || self.adapter.os.mutation.is(Mutation::SkipsPagingWait) {
            return Ok(());
        }
        let object = wait::Object { device: self.device, handle: self.sync_object, value: self.fence };
        wait::blocking(&self.adapter.os, object, value, Timeout::INFINITE)
    }
}

fn destroy<T: Thunks>(adapter: &Adapter<T>, queue: D3DKMT_HANDLE) {
    let _ = adapter.os.destroy_paging_queue(&mut Padded::new(D3DDDI_DESTROYPAGINGQUEUE { hPagingQueue: queue }));
}

impl<T: Thunks> Drop for PagingQueue<T> {
    fn drop(&mut self) {
        destroy(&self.adapter, self.handle);
    }
}
