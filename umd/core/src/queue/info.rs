//! What a queue tells about itself.
#![forbid(unsafe_code)]

use super::{Create, Lane};
use crate::adapter::Mode;
use crate::doorbell::Status;
use crate::thunks::Thunks;
use gpu_wire::GpuVa;
use wddm_abi::D3DKMT_HANDLE;

/// CPU addresses of a user-mode queue's words, for tests that watch them. They never change while the queue is not
/// recreated, and must not be used afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Addresses {
    /// The doorbell; stores ring it.
    pub doorbell: u64,
    /// The doorbell's status; read-only.
    pub status: u64,
    /// The last queued progress value.
    pub last_queued: u64,
    /// The published write pointer.
    pub write_pointer: u64,
    /// The ring.
    pub ring: u64,
    /// The ring in the GPU's address space.
    pub ring_va: u64,
    /// The control page in the GPU's address space.
    pub control_va: u64,
}

/// A queue's description.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Info {
    /// How work reaches the GPU; `None` when it was lost while it was being recreated.
    pub mode: Option<Mode>,
    /// Its number within the device.
    pub number: u32,
    /// Its node.
    pub node: u32,
    /// Hardware queue or packet context.
    pub handle: D3DKMT_HANDLE,
    /// The progress fence.
    pub progress_fence: D3DKMT_HANDLE,
    /// The doorbell; 0 without one.
    pub doorbell: D3DKMT_HANDLE,
    /// Where the CPU reads progress.
    pub progress_address: u64,
    /// Where the GPU writes progress.
    pub progress_va: GpuVa,
    /// Bytes that a command list may have.
    pub list_limit: u64,
    /// What the doorbell's status word says now.
    pub status: Option<Status>,
    /// Words of a user-mode queue; zeros otherwise.
    pub addresses: Addresses,
}

pub(super) fn of<T: Thunks>(number: u32, create: &Create, lane: &Lane<T>) -> Info {
    let mut info = Info {
        mode: lane.mode(),
        number,
        node: create.node.0,
        handle: 0,
        progress_fence: 0,
        doorbell: 0,
        progress_address: 0,
        progress_va: GpuVa(0),
        list_limit: lane.list_limit(),
        status: None,
        addresses: Addresses::default(),
    };
    if let Some((progress, _)) = lane.progress() {
        info.progress_fence = progress.handle;
        info.progress_address = progress.value.address();
        info.progress_va = progress.gpu_va;
    }
    info.handle = lane.handle();
    match lane {
        Lane::User(user) => {
            info.doorbell = user.doorbell.handle();
            info.status = Some(user.doorbell.current_status());
            info.addresses = Addresses {
                doorbell: user.doorbell.doorbell.address(),
                status: user.doorbell.status.address(),
                last_queued: user.doorbell.last_queued.address(),
                write_pointer: user.ring.write_pointer().address(),
                // CAST: usize is 64 bits wide.
                ring: user.ring.allocation().pages().map_or(0, |pages| pages.base().addr() as u64),
                ring_va: user.ring.allocation().gpu_va().0,
                control_va: user.ring.control().gpu_va().0,
            };
        }
        Lane::Kernel(_) | Lane::Gone => {}
    }
    info
}
