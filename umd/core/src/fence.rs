//! A fence of either kind: native where the adapter has native fences, monitored otherwise. What command lists name.
#![forbid(unsafe_code)]

use crate::device::Device;
use crate::error::UmdError;
use crate::monitored_fence::MonitoredFence;
use crate::native_fence::{NativeFence, USER_DATA};
use crate::sync_object::{Sharing, SyncObject};
use crate::thunks::{NtHandle, Thunks};
use alloc::sync::Arc;
use core::ops::Deref;
use gpu_wire::GpuVa;

/// A fence, open in this process.
pub enum Fence<T: Thunks> {
    /// Engines wait for it and signal it themselves.
    Native(NativeFence<T>),
    /// Engines signal it; waits are the operating system's.
    Monitored(MonitoredFence<T>),
}

impl<T: Thunks> Fence<T> {
    /// Creates the kind that the adapter has, or a monitored one if that is wanted.
    ///
    /// # Errors
    /// [`UmdError::Thunk`], [`UmdError::BadReply`].
    pub fn create(
        device: &Arc<Device<T>>,
        initial: u64,
        shared: impl Into<Sharing>,
        monitored: bool,
        user_data: &[u8; USER_DATA],
    ) -> Result<Self, UmdError> {
        if monitored || !device.adapter().has_native_fences() {
            MonitoredFence::create(device, initial, shared).map(Self::Monitored)
        } else {
            NativeFence::create(device, initial, shared, user_data).map(Self::Native)
        }
    }

    /// Opens a shared fence as the kind that the adapter has, or as a monitored one if that is wanted. The OS opens a
    /// monitored fence of another adapter as a native one here, and the other way round.
    ///
    /// Source: *Native GPU fence object*, "Cross-adapter native fences".
    ///
    /// # Errors
    /// [`UmdError::Thunk`], [`UmdError::BadReply`].
    pub fn open(device: &Arc<Device<T>>, handle: NtHandle, monitored: bool) -> Result<Self, UmdError> {
        if monitored || !device.adapter().has_native_fences() {
            MonitoredFence::open(device, handle).map(Self::Monitored)
        } else {
            NativeFence::open(device, handle).map(Self::Native)
        }
    }

    /// Where engines find its value, in this process's GPU address space.
    pub fn gpu_va(&self) -> GpuVa {
        match self {
            Self::Native(fence) => fence.gpu_va(),
            Self::Monitored(fence) => fence.gpu_va(),
        }
    }

    /// Whether it is a native one.
    pub fn is_native(&self) -> bool {
        matches!(self, Self::Native(_))
    }
}

impl<T: Thunks> Deref for Fence<T> {
    type Target = SyncObject<T>;
    fn deref(&self) -> &SyncObject<T> {
        match self {
            Self::Native(fence) => fence,
            Self::Monitored(fence) => fence,
        }
    }
}
