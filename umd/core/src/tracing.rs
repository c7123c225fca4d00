//! What the driver tells a trace of: an event of the provider `Fencepost` each, which `umd/src/etw.rs` writes.
//!
//! Names of fields are those of the kernel-mode driver's events and of `Microsoft-Windows-DxgKrnl`'s: docs/tracing.md.
//! "Instead the runtime or UMD can generate fence-queued events with the CPU timestamp at recording of the command
//! list" (*Native GPU fence object*, "CPU timestamps of fence-queued operations"): [`Event::FenceQueued`] is that.
#![forbid(unsafe_code)]

use crate::command_list::Operation;
use wddm_abi::D3DKMT_HANDLE;

/// What happened, with the fields of the event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A queue was created.
    QueueStart(Queue),
    /// A queue is being destroyed.
    QueueStop(Queue),
    /// A submission is where the GPU or the OS sees it.
    Submission {
        /// Hardware queue or packet context.
        queue: D3DKMT_HANDLE,
        /// The value that its progress fence gets behind it.
        progress: u64,
        /// Command lists.
        lists: u32,
    },
    /// A wait for a native fence, or a signal of one, was put into a queue.
    FenceQueued {
        /// Hardware queue or packet context.
        queue: D3DKMT_HANDLE,
        /// Wait or signal.
        operation: Operation,
        /// The fence.
        fence: D3DKMT_HANDLE,
        /// The value.
        value: u64,
        /// Performance counter when it was recorded.
        recorded: u64,
        /// Progress value of its submission.
        progress: u64,
    },
}

/// The fields of [`Event::QueueStart`] and [`Event::QueueStop`], which are equal for one queue. A queue that is
/// recreated ends under its old handles and begins under its new ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queue {
    /// Hardware queue or packet context.
    pub queue: D3DKMT_HANDLE,
    /// Its progress fence.
    pub progress_fence: D3DKMT_HANDLE,
    /// Node.
    pub node: u32,
    /// User mode submits to it.
    pub is_user_mode: bool,
}
