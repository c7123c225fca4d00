//! The provider `Fencepost` of event tracing: what [`umd_core::tracing`] tells, as TraceLogging events. The kernel-mode
//! driver has a provider of the same name and GUID (`kmd/src/nt/etw.rs`): a trace that has one on has both.

#![expect(unsafe_code, reason = "registers a provider, which must be gone before the image is")]

use tracelogging::Level;
use umd_core::command_list::Operation;
use umd_core::tracing::{Event, Queue};

tracelogging::define_provider!(FENCEPOST, "Fencepost");

/// Keywords, as the kernel-mode driver has them.
mod keyword {
    pub const QUEUE: u64 = 0x1;
    pub const SUBMISSION: u64 = 0x2;
    pub const FENCE: u64 = 0x4;
}

/// Registers the provider. That it cannot is no reason not to load: nothing is traced then.
///
/// # Safety
/// Called once, when the DLL is loaded; [`unregister`] follows before it is unloaded.
pub unsafe fn register() {
    // SAFETY: `FENCEPOST` is a static and does not move; the caller promises `unregister`, and that this is the only
    // registration.
    let _error = unsafe { FENCEPOST.register() };
}

/// Takes the provider away.
pub fn unregister() {
    let _error = FENCEPOST.unregister();
}

/// Returns whether a trace listens to anything of the provider.
pub fn is_on() -> bool {
    FENCEPOST.enabled(Level::LogAlways, 0)
}

/// Writes `UserQueue` with an opcode: the fields of a queue's beginning and end are the same.
macro_rules! user_queue {
    ($opcode:ident, $queue:ident) => {{
        let Queue { queue, progress_fence, node, is_user_mode } = $queue;
        tracelogging::write_event!(
            FENCEPOST,
            "UserQueue",
            level(Informational),
            opcode($opcode),
            keyword(keyword::QUEUE),
            u32_hex("hHwQueue", &queue),
            u32_hex("hHwQueueProgressFence", &progress_fence),
            u32("NodeOrdinal", &node),
            bool8("UserModeSubmission", &is_user_mode),
        )
    }};
}

/// Writes the event of that name of a wait or a signal: their fields are the same.
macro_rules! fence_queued {
    ($name:tt, $queue:ident, $fence:ident, $value:ident, $recorded:ident, $progress:ident) => {
        tracelogging::write_event!(
            FENCEPOST,
            $name,
            level(Verbose),
            keyword(keyword::FENCE),
            u32_hex("hHwQueue", &$queue),
            u32_hex("hNativeFence", &$fence),
            u64("FenceValue", &$value),
            u64("RecordedTimestamp", &$recorded),
            u64("ProgressFenceValue", &$progress),
        )
    };
}

/// Writes the event to the traces that want its level and keyword.
pub fn write(event: &Event) {
    match *event {
        Event::QueueStart(queue) => user_queue!(Start, queue),
        Event::QueueStop(queue) => user_queue!(Stop, queue),
        Event::Submission { queue, progress, lists } => tracelogging::write_event!(
            FENCEPOST,
            "UserSubmission",
            level(Verbose),
            keyword(keyword::SUBMISSION),
            u32_hex("hHwQueue", &queue),
            u64("ProgressFenceValue", &progress),
            u32("CommandLists", &lists),
        ),
        Event::FenceQueued { queue, operation: Operation::Wait, fence, value, recorded, progress } => {
            fence_queued!("NativeFenceWaitQueued", queue, fence, value, recorded, progress)
        }
        Event::FenceQueued { queue, operation: Operation::Signal, fence, value, recorded, progress } => {
            fence_queued!("NativeFenceSignalQueued", queue, fence, value, recorded, progress)
        }
    };
}
