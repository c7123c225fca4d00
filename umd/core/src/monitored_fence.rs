//! Monitored fences of WDDM 2.0, for the rungs without native fences: the CPU waits for and signals them as it does
//! native ones, the GPU signals them by a store to their address, and *waits* for them are software: the OS holds back
//! what was submitted later.
//!
//! Source: *Context monitoring* (monitored fences).
//!
//! Assumes:
//! - A GPU store to `FenceValueGPUVirtualAddress` followed by the monitored-fence interrupt wakes waiters; the packet
//!   MONITORED_SIGNAL does both. Source: *Context monitoring*, "GPU signal".
//! - Where the adapter says that an engine cannot write monitored fences, `D3DKMTSignalSynchronizationObjectFromGpu`
//!   (packet contexts) and `D3DKMTSubmitSignalSyncObjectsToHwQueue` (hardware queues) signal when what was submitted
//!   before is done.
//!   Source: *Context monitoring*, "GPU signal"; their pages.
//! - The value of an opened fence with 32 bits begins with those bits: nobody says what the others are. Source: none.
//! - GPU waits are `D3DKMTWaitForSynchronizationObjectFromGpu` for packet contexts and
//!   `D3DKMTSubmitWaitForSyncObjectsToHwQueue` for hardware queues: what is submitted after the call does not start
//!   before the value is reached. Source: their pages; *Context monitoring*, "GPU wait".
#![forbid(unsafe_code)]

use crate::device::Device;
use crate::error::UmdError;
use crate::sync_object::{Kind, Sharing, SyncObject, opening, sharing};
use crate::thunks::{NtHandle, Padded, Thunk, Thunks};
use alloc::sync::Arc;
use core::ops::Deref;
use gpu_wire::GpuVa;
use wddm_abi::{
    D3DDDI_SYNCHRONIZATIONOBJECT_TYPE, D3DKMT_CREATESYNCHRONIZATIONOBJECT2, D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2,
};

/// A monitored fence, open in this process.
pub struct MonitoredFence<T: Thunks> {
    object: SyncObject<T>,
    gpu_va: GpuVa,
}

impl<T: Thunks> MonitoredFence<T> {
    /// Creates a fence with `initial` as its value, which others may open as `shared` says.
    ///
    /// # Errors
    /// [`UmdError::Thunk`], [`UmdError::BadReply`].
    pub fn create(device: &Arc<Device<T>>, initial: u64, shared: impl Into<Sharing>) -> Result<Self, UmdError> {
        let shared = shared.into();
        let mut argument = Padded::new(D3DKMT_CREATESYNCHRONIZATIONOBJECT2 {
            hDevice: device.handle(),
            ..D3DKMT_CREATESYNCHRONIZATIONOBJECT2::zeroed()
        });
        argument.Info.Type = D3DDDI_SYNCHRONIZATIONOBJECT_TYPE::D3DDDI_MONITORED_FENCE;
        argument.Info.Flags = sharing(device, shared);
        argument.Info.MonitoredFence_mut().InitialFenceValue = initial;
        device.os().create_synchronization_object2(&mut argument)?;
        let fence = argument.Info.MonitoredFence();
        let (cpu, gpu) = (fence.FenceValueCPUVirtualAddress, GpuVa(fence.FenceValueGPUVirtualAddress));
        let thunk = Thunk::CreateSynchronizationObject2;
        let kind =
            Kind { shared: shared != Sharing::None, narrow: device.adapter().has_narrow_fences(), known: initial };
        let object = SyncObject::new(device, argument.hSyncObject, cpu, kind, thunk)?;
        Self::checked(object, gpu, thunk)
    }

    /// Opens what another process shared.
    ///
    /// # Errors
    /// [`UmdError::Thunk`], [`UmdError::BadReply`].
    pub fn open(device: &Arc<Device<T>>, handle: NtHandle) -> Result<Self, UmdError> {
        let mut argument = Padded::new(D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2 {
            hNtHandle: handle.as_raw(),
            hDevice: device.handle(),
            Flags: opening(device),
            ..D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2::zeroed()
        });
        device.os().open_sync_object_from_nt_handle2(&mut argument)?;
        let fence = argument.MonitoredFence();
        let (cpu, gpu) = (fence.FenceValueCPUVirtualAddress, GpuVa(fence.FenceValueGPUVirtualAddress));
        let thunk = Thunk::OpenSyncObjectFromNtHandle2;
        let kind = Kind { shared: true, narrow: device.adapter().has_narrow_fences(), known: 0 };
        let object = SyncObject::new(device, argument.hSyncObject, cpu, kind, thunk)?;
        Self::checked(object, gpu, thunk)
    }

    fn checked(object: SyncObject<T>, gpu_va: GpuVa, thunk: Thunk) -> Result<Self, UmdError> {
        if gpu_va.0 == 0 || !gpu_va.is_aligned(8) || !gpu_va.is_canonical() {
            return Err(UmdError::BadReply { thunk });
        }
        object.device().settle_fence()?;
        Ok(Self { object, gpu_va })
    }

    /// Where the GPU stores its value, in this process's GPU address space.
    pub fn gpu_va(&self) -> GpuVa {
        self.gpu_va
    }
}

impl<T: Thunks> Deref for MonitoredFence<T> {
    type Target = SyncObject<T>;
    fn deref(&self) -> &SyncObject<T> {
        &self.object
    }
}
