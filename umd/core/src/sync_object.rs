//! What native and monitored fences have in common: a handle, a 64-bit value that the CPU may read, and the CPU's
//! operations.
//!
//! Assumes:
//! - `D3DKMTSignalSynchronizationObjectFromCpu` and `D3DKMTWaitForSynchronizationObjectFromCpu` work on native fences
//!   of the default type as on monitored ones. Source: `D3DKMTCreateNativeFence`, Remarks: "This fence type supports
//!   all existing D3DKMT sync object Wait/Signal from CPU/GPU operations".
//! - A signal may go backwards only where the OS allows rewinding; this driver never sets AllowFenceRewind, and reports
//!   what the OS answers.
#![forbid(unsafe_code)]

use crate::allocation::STANDARD_RIGHTS_READ;
use crate::device::Device;
use crate::error::{UmdError, Unsupported};
use crate::fence_value::FenceValue;
use crate::thunks::{NtHandle, Padded, Thunk, Thunks};
use crate::wait::{self, Timeout};
use alloc::sync::Arc;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};
use wddm_abi::{
    D3DDDI_SYNC_OBJECT_ALL_ACCESS, D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS, D3DKMT_DESTROYSYNCHRONIZATIONOBJECT,
    D3DKMT_HANDLE, D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU,
};

/// Who may open a fence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// Nobody but the device that made it.
    None,
    /// Devices of the same adapter, by NT handle.
    Processes,
    /// Devices of other adapters as well.
    Adapters,
}

impl From<bool> for Sharing {
    /// Whether it is shared at all.
    fn from(shared: bool) -> Self {
        if shared { Self::Processes } else { Self::None }
    }
}

/// What a synchronization object is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// It was created to be shared, or opened.
    pub shared: bool,
    /// Its value has 32 bits.
    pub narrow: bool,
    /// A value that it is near to.
    pub known: u64,
}

/// A synchronization object with a value. Dropping it destroys this process's handle; a shared fence lives on while
/// a process has it open.
pub struct SyncObject<T: Thunks> {
    device: Arc<Device<T>>,
    handle: D3DKMT_HANDLE,
    /// Written by the GPU and the OS; read-only here.
    value: FenceValue,
    /// The value that was seen last.
    seen: AtomicU64,
    shared: bool,
}

impl<T: Thunks> SyncObject<T> {
    /// The object that `thunk` created, whose value it says is at `value`.
    ///
    /// # Errors
    /// [`UmdError::BadReply`] when that is no address; the object is destroyed.
    pub(crate) fn new(
        device: &Arc<Device<T>>,
        handle: D3DKMT_HANDLE,
        value: *mut c_void,
        kind: Kind,
        thunk: Thunk,
    ) -> Result<Self, UmdError> {
        match FenceValue::new(value, kind.narrow) {
            Some(value) => {
                let seen = AtomicU64::new(value.near(kind.known));
                Ok(Self { device: device.clone(), handle, value, seen, shared: kind.shared })
            }
            None => {
                destroy(device, handle);
                Err(UmdError::BadReply { thunk })
            }
        }
    }

    /// Its device.
    pub fn device(&self) -> &Arc<Device<T>> {
        &self.device
    }

    /// Its handle: what log entries name it by.
    pub fn handle(&self) -> D3DKMT_HANDLE {
        self.handle
    }

    /// Where the CPU reads its value.
    pub fn value_address(&self) -> u64 {
        self.value.address()
    }

    /// Its value now. What the GPU wrote before it is seen.
    pub fn value(&self) -> u64 {
        let value = self.value.near(self.seen.load(Ordering::Relaxed));
        self.seen.store(value, Ordering::Relaxed);
        value
    }

    pub(crate) fn object(&self) -> wait::Object {
        wait::Object { device: self.device.handle(), handle: self.handle, value: self.value }
    }

    /// Waits until the value is at least `value`.
    ///
    /// # Errors
    /// [`UmdError::Timeout`]; [`UmdError::Thunk`]; [`UmdError::NoMemory`] when there is no event for a bounded wait.
    pub fn wait(&self, value: u64, timeout: Timeout) -> Result<(), UmdError> {
        wait::blocking(self.device.os(), self.object(), value, timeout)
    }

    /// Has the OS set `event` when the value is at least `value`; returns at once.
    ///
    /// # Errors
    /// [`UmdError::Thunk`].
    pub fn wait_event(&self, value: u64, event: NtHandle) -> Result<(), UmdError> {
        wait::wait_from_cpu(self.device.os(), self.object(), value, Some(event))
    }

    /// Sets the value from the CPU and wakes who waits for it.
    ///
    /// # Errors
    /// [`UmdError::Thunk`].
    pub fn signal(&self, value: u64) -> Result<(), UmdError> {
        let mut argument = Padded::new(D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU {
            hDevice: self.device.handle(),
            ObjectCount: 1,
            ObjectHandleArray: &raw const self.handle,
            FenceValueArray: &raw const value,
            ..D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU::zeroed()
        });
        self.device.os().signal_synchronization_object_from_cpu(&mut argument)?;
        Ok(())
    }

    /// An NT handle by which another process opens it. The caller closes it.
    ///
    /// # Errors
    /// [`UmdError::NotSupported`] when it was not created to be shared; [`UmdError::Thunk`].
    pub fn share(&self) -> Result<NtHandle, UmdError> {
        if !self.shared {
            return Err(UmdError::NotSupported(Unsupported::Sharing));
        }
        self.device.os().share_object(self.handle, STANDARD_RIGHTS_READ | D3DDDI_SYNC_OBJECT_ALL_ACCESS)
    }
}

/// The flags of a fence: private to the process, or shared by NT handle.
pub(crate) fn sharing<T: Thunks>(device: &Device<T>, sharing: Sharing) -> D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS {
    let shared = sharing != Sharing::None;
    let by_handle = shared && !device.os().mutation.is(crate::mutation::Mutation::SharesWithoutNtSecurity);
    D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS::zeroed()
        .with_Shared(shared)
        .with_NtSecuritySharing(by_handle)
        .with_CrossAdapter(sharing == Sharing::Adapters)
}

/// The flags to open a shared fence with: none, since sharing is for the process that makes the fence to ask for.
pub(crate) fn opening<T: Thunks>(device: &Device<T>) -> D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS {
    let asks = device.os().mutation.is(crate::mutation::Mutation::OpensWithSharingFlags);
    sharing(device, if asks { Sharing::Processes } else { Sharing::None })
}

pub(crate) fn destroy<T: Thunks>(device: &Device<T>, handle: D3DKMT_HANDLE) {
    let _ = device
        .os()
        .destroy_synchronization_object(&mut Padded::new(D3DKMT_DESTROYSYNCHRONIZATIONOBJECT { hSyncObject: handle }));
}

impl<T: Thunks> Drop for SyncObject<T> {
    fn drop(&mut self) {
        destroy(&self.device, self.handle);
    }
}
