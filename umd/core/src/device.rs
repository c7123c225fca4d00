//! Devices: what allocations, queues and fences of a process hang on, with the paging queue that makes them resident.
//!
//! Assumes:
//! - `D3DKMTGetDeviceState(EXECUTION)` answers in every state; a refusal means that the adapter is gone, and is
//!   reported as STOPPED. Source: its page: STATUS_DEVICE_REMOVED when "the graphics adapter was stopped or the display
//!   device was reset".
//! - Destroying a device destroys nothing that this driver still holds: every object here keeps its device alive and is
//!   destroyed before it.
#![forbid(unsafe_code)]

use crate::adapter::Adapter;
use crate::allocation::{self, Allocation, Kind};
use crate::error::UmdError;
use crate::mutation::Mutation;
use crate::paging::PagingQueue;
use crate::thunks::{Os, Padded, Thunks};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};
use gpu_wire::PAGE_SIZE;
use wddm_abi::ntstatus::STATUS_DEVICE_REMOVED;
use wddm_abi::{
    D3DKMT_CREATEDEVICE, D3DKMT_DESTROYDEVICE, D3DKMT_DEVICEEXECUTION_STATE, D3DKMT_DEVICEPAGEFAULT_STATE,
    D3DKMT_DEVICESTATE_TYPE, D3DKMT_GETDEVICESTATE, D3DKMT_HANDLE,
};

/// A device. Dropping it destroys it.
pub struct Device<T: Thunks> {
    // Drop order: the paging queue before the device, the device before the adapter.
    paging: PagingQueue<T>,
    kernel: KernelDevice<T>,
    next_queue: AtomicU32,
}

/// The device's handle.
struct KernelDevice<T: Thunks> {
    adapter: Arc<Adapter<T>>,
    handle: D3DKMT_HANDLE,
}

impl<T: Thunks> Device<T> {
    /// Creates a device and its paging queue.
    ///
    /// # Errors
    /// [`UmdError::Thunk`], [`UmdError::BadReply`].
    pub fn create(adapter: &Arc<Adapter<T>>) -> Result<Arc<Self>, UmdError> {
        let mut create = Padded::new(D3DKMT_CREATEDEVICE::zeroed());
        create.set_hAdapter(adapter.handle());
        adapter.os.create_device(&mut create)?;
        let kernel = KernelDevice { adapter: adapter.clone(), handle: create.hDevice };
        let paging = PagingQueue::create(adapter, kernel.handle)?;
        Ok(Arc::new(Self { paging, kernel, next_queue: AtomicU32::new(1) }))
    }

    /// Waits until the GPU address of a fence that was just made or opened is mapped. The calls that make and open
    /// fences do not say when that is, so this makes an allocation, which waits for a paging operation behind the
    /// mapping, and frees it. Called when the fence is made: its later use makes no call.
    ///
    /// Source: `D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2`: the address is "mapped asynchronously".
    ///
    /// # Errors
    /// Those of [`Allocation::create`].
    pub(crate) fn settle_fence(self: &Arc<Self>) -> Result<(), UmdError> {
        if self.os().mutation.is(Mutation::UsesFencesUnmapped) {
            return Ok(());
        }
        let create = allocation::Create { size: PAGE_SIZE, kind: Kind::System, shared: false, read_only: false };
        Allocation::create(self, create).map(drop)
    }

    /// Its adapter.
    pub fn adapter(&self) -> &Arc<Adapter<T>> {
        &self.kernel.adapter
    }

    /// The system.
    pub fn os(&self) -> &Os<T> {
        &self.kernel.adapter.os
    }

    /// Its handle.
    pub fn handle(&self) -> D3DKMT_HANDLE {
        self.kernel.handle
    }

    /// The queue that memory is made resident through.
    pub fn paging(&self) -> &PagingQueue<T> {
        &self.paging
    }

    /// A number for a queue of this device, from 1 on: what traces name it by.
    pub(crate) fn new_queue_number(&self) -> u32 {
        self.next_queue.fetch_add(1, Ordering::Relaxed)
    }

    /// What the OS says about the device's health. STOPPED when it does not answer.
    pub fn state(&self) -> D3DKMT_DEVICEEXECUTION_STATE {
        let mut argument = Padded::new(D3DKMT_GETDEVICESTATE {
            hDevice: self.kernel.handle,
            StateType: D3DKMT_DEVICESTATE_TYPE::D3DKMT_DEVICESTATE_EXECUTION,
            ..D3DKMT_GETDEVICESTATE::zeroed()
        });
        match self.os().get_device_state(&mut argument) {
            Ok(_) => argument.ExecutionState(),
            Err(_) => D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_STOPPED,
        }
    }

    /// Whether it is not in error.
    pub fn is_alive(&self) -> bool {
        self.state() == D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_ACTIVE
    }

    /// The device's error, if it is in one, in place of a thunk's.
    pub(crate) fn blame(&self, error: UmdError) -> UmdError {
        let UmdError::Thunk { status, .. } = error else { return error };
        if self.os().mutation.is(Mutation::KnowsOneStatus) && status != STATUS_DEVICE_REMOVED {
            return error;
        }
        let state = self.state();
        let alive = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_ACTIVE;
        if state == alive { error } else { UmdError::DeviceLost { state } }
    }

    /// The page fault that put the device in error.
    ///
    /// # Errors
    /// [`UmdError::Thunk`].
    pub fn page_fault(&self) -> Result<D3DKMT_DEVICEPAGEFAULT_STATE, UmdError> {
        let mut argument = Padded::new(D3DKMT_GETDEVICESTATE {
            hDevice: self.kernel.handle,
            StateType: D3DKMT_DEVICESTATE_TYPE::D3DKMT_DEVICESTATE_PAGE_FAULT,
            ..D3DKMT_GETDEVICESTATE::zeroed()
        });
        self.os().get_device_state(&mut argument)?;
        Ok(*argument.PageFaultState())
    }
}

impl<T: Thunks> Drop for KernelDevice<T> {
    fn drop(&mut self) {
        let mut destroy = Padded::new(D3DKMT_DESTROYDEVICE { hDevice: self.handle });
        let _ = self.adapter.os.destroy_device(&mut destroy);
    }
}
