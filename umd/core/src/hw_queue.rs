//! Hardware queues and the fence that tells how far a queue has come.
//!
//! Assumes:
//! - `D3DKMTCreateHwQueue` returns NativeProgressFence. With it the progress fence is a native fence, which
//!   FENCE_SIGNAL on its GPU address writes; without it it is a monitored fence, which MONITORED_SIGNAL writes. Source:
//!   `DXGKARG_CREATEHWQUEUE` (the OS decides, and says so in D3DKMT_CREATEHWQUEUE.Flags).
//! - The UMD writes the progress fence, as the last packet of every submission, on user-mode and kernel-mode queues
//!   alike (node flag RingBufferFenceRelease is 0). Source: *User-mode work submission*, "HW queue progress fence
//!   changes"; `DXGK_NODEMETADATA_FLAGS`.
//! - An engine that cannot write monitored fences writes its queues' progress fences all the same: hardware scheduling
//!   rests on them. Source: none; it is what the KMD of this GPU says (SPEC §8).
//! - A new queue's progress fence holds the last value that was reached: the next submission is one more. Source: the
//!   article assumes "the last completed buffer's value is N".
//! - `D3DKMTDestroyHwQueue` of a queue with work waits until the last queued value is reached. Source: *User-mode work
//!   submission*, "Normal process termination".
#![forbid(unsafe_code)]

use crate::context::HwContext;
use crate::device::Device;
use crate::error::UmdError;
use crate::fence_value::FenceValue;
use crate::mutation::Mutation;
use crate::thunks::{Padded, Thunk, Thunks};
use crate::wait;
use alloc::sync::Arc;
use gpu_wire::{GpuVa, NodeOrdinal};
use wddm_abi::{D3DDDI_CREATEHWQUEUEFLAGS, D3DKMT_CREATEHWQUEUE, D3DKMT_DESTROYHWQUEUE, D3DKMT_HANDLE};

/// The fence that counts what a queue has done.
#[derive(Clone, Copy, Debug)]
pub struct ProgressFence {
    /// Its handle: what log entries name it by.
    pub handle: D3DKMT_HANDLE,
    /// Its value: the last submission that is done. Written by the GPU; read-only here.
    pub value: FenceValue,
    /// Where the GPU writes it.
    pub gpu_va: GpuVa,
    /// Whether FENCE_SIGNAL (and not MONITORED_SIGNAL) writes it.
    pub native: bool,
    /// Whether no packet writes it, but a command of the OS.
    pub software: bool,
}

impl ProgressFence {
    /// The last submission that is done, given the last that was made.
    pub fn completed(&self, last: u64) -> u64 {
        self.value.near(last)
    }

    pub(crate) fn object(&self, device: D3DKMT_HANDLE) -> wait::Object {
        wait::Object { device, handle: self.handle, value: self.value }
    }
}

/// What to create.
#[derive(Clone, Copy, Debug)]
pub struct Create {
    /// Where.
    pub node: NodeOrdinal,
    /// Whether work comes by ring and doorbell.
    pub user_mode: bool,
    /// Whether the queue is exempt from the two seconds of TDR.
    pub no_timeout: bool,
}

/// A hardware queue in a context of its own. Dropping it destroys both.
pub struct HwQueue<T: Thunks> {
    context: HwContext<T>,
    handle: D3DKMT_HANDLE,
    progress: ProgressFence,
}

impl<T: Thunks> HwQueue<T> {
    /// Creates a context and a queue.
    ///
    /// # Errors
    /// [`UmdError::Thunk`], [`UmdError::BadReply`].
    pub fn create(device: &Arc<Device<T>>, create: Create) -> Result<Self, UmdError> {
        let context = HwContext::create(device, create.node)?;
        let mut argument = Padded::new(D3DKMT_CREATEHWQUEUE {
            hHwContext: context.handle(),
            Flags: D3DDDI_CREATEHWQUEUEFLAGS::zeroed()
                .with_UserModeSubmission(create.user_mode)
                .with_DisableGpuTimeout(create.no_timeout),
            ..D3DKMT_CREATEHWQUEUE::zeroed()
        });
        device.os().create_hw_queue(&mut argument)?;
        let handle = argument.hHwQueue;
        let gpu_va = GpuVa(argument.HwQueueProgressFenceGPUVirtualAddress);
        let native = if device.os().mutation.is(Mutation::ProgressByCapabilities) {
            device.adapter().has_native_fences()
        } else {
            argument.Flags.NativeProgressFence()
        };
        let narrow = !native && device.adapter().has_narrow_fences();
        let value = FenceValue::new(argument.HwQueueProgressFenceCPUVirtualAddress, narrow);
        let (Some(value), true) = (value, gpu_va.0 != 0 && gpu_va.is_aligned(8) && gpu_va.is_canonical()) else {
            destroy(device, handle);
            return Err(UmdError::BadReply { thunk: Thunk::CreateHwQueue });
        };
        let progress = ProgressFence { handle: argument.hHwQueueProgressFence, value, gpu_va, native, software: false };
        Ok(Self { context, handle, progress })
    }

    /// Its handle.
    pub fn handle(&self) -> D3DKMT_HANDLE {
        self.handle
    }

    /// Its context.
    pub fn context(&self) -> &HwContext<T> {
        &self.context
    }

    /// How far it has come.
    pub fn progress(&self) -> ProgressFence {
        self.progress
    }
}

fn destroy<T: Thunks>(device: &Device<T>, handle: D3DKMT_HANDLE) {
    let _ = device.os().destroy_hw_queue(&mut Padded::new(D3DKMT_DESTROYHWQUEUE { hHwQueue: handle }));
}

impl<T: Thunks> Drop for HwQueue<T> {
    fn drop(&mut self) {
        destroy(self.context.device(), self.handle);
    }
}
