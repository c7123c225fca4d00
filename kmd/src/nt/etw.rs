//! The provider `Fencepost` of event tracing: what [`kmd_core::tracing`] tells, as TraceLogging events.
//!
//! Names of events and fields are those of `Microsoft-Windows-DxgKrnl`'s events where these have the same thing;
//! docs/tracing.md has the table, which `tests/etw.rs` compares with what the image writes.

#![expect(unsafe_code, reason = "registers a provider, which must be gone before the image is")]

use kmd_core::tracing::Event;
use kmd_core::tracing::HwQueue;
use kmd_core::tracing::is_signal;
use tracelogging::Level;
use wddm_abi::DXGK_INTERRUPT_TYPE;
use wddm_abi::NTSTATUS;

tracelogging::define_provider!(FENCEPOST, "Fencepost");

/// Keywords: which events a trace wants. The same in the user-mode driver.
mod keyword {
    pub const QUEUE: u64 = 0x1;
    pub const SUBMISSION: u64 = 0x2;
    pub const FENCE: u64 = 0x4;
    pub const INTERRUPT: u64 = 0x8;
    pub const RESET: u64 = 0x10;
    pub const POWER: u64 = 0x20;
    pub const ADAPTER: u64 = 0x40;
}

/// Registers the provider, for as long as it lives. That it cannot is no reason not to start: nothing is traced then.
/// `PASSIVE_LEVEL`.
///
/// # Safety
/// Called once, in DriverEntry; [`unregister`] follows before the image is unloaded.
pub unsafe fn register() {
    // SAFETY: `FENCEPOST` is a static and does not move; the caller promises `unregister`, and that this is the only
    // registration.
    let _status = unsafe { FENCEPOST.register() };
}

/// Takes the provider away: behind this nothing calls into the image for it. `PASSIVE_LEVEL`.
pub fn unregister() {
    let _status = FENCEPOST.unregister();
}

/// Returns whether a trace listens to anything of the provider. Any IRQL.
pub fn is_on() -> bool {
    FENCEPOST.enabled(Level::LogAlways, 0)
}

/// Handles are pointers in the events.
const fn pointer(handle: u64) -> usize {
    // CAST: pointers have 64 bits.
    handle as usize
}

/// Writes `HwQueue` with an opcode: the fields of a queue's beginning and end are the same.
macro_rules! hw_queue {
    ($opcode:ident, $queue:ident) => {{
        let HwQueue { context, hw_queue, node, is_user_mode } = $queue;
        tracelogging::write_event!(
            FENCEPOST,
            "HwQueue",
            level(Informational),
            opcode($opcode),
            keyword(keyword::QUEUE),
            pointer("hContext", &pointer(context)),
            pointer("hHwQueue", &pointer(hw_queue)),
            u32("NodeOrdinal", &node),
            bool8("UserModeSubmission", &is_user_mode),
        )
    }};
}

/// Writes the event to the traces that want its level and keyword. Any IRQL: its fields are on the stack, which is
/// resident, and so is the image.
pub fn write(event: &Event) {
    match *event {
        Event::StartDevice { node_count, status: NTSTATUS(status) } => tracelogging::write_event!(
            FENCEPOST,
            "DdiStartDevice",
            level(Informational),
            keyword(keyword::ADAPTER),
            u32("NodeCount", &node_count),
            win_ntstatus("Status", &status),
        ),
        Event::StopDevice => {
            tracelogging::write_event!(FENCEPOST, "DdiStopDevice", level(Informational), keyword(keyword::ADAPTER))
        }
        Event::HwQueueStart(queue) => hw_queue!(Start, queue),
        Event::HwQueueStop(queue) => hw_queue!(Stop, queue),
        Event::Doorbell { change, hw_queue, doorbell, status: NTSTATUS(status) } => tracelogging::write_event!(
            FENCEPOST,
            "Doorbell",
            level(Informational),
            keyword(keyword::QUEUE),
            // CAST: an enumerator.
            u32("Change", &(change as u32)),
            pointer("hHwQueue", &pointer(hw_queue)),
            pointer("hDoorbell", &pointer(doorbell)),
            win_ntstatus("Status", &status),
        ),
        Event::DmaPacketStart { node, fence, is_paging, is_resubmitted } => tracelogging::write_event!(
            FENCEPOST,
            "DmaPacket",
            level(Verbose),
            opcode(Start),
            keyword(keyword::SUBMISSION),
            u32("NodeOrdinal", &node),
            u64("uliSubmissionId", &u64::from(fence)),
            bool8("Paging", &is_paging),
            bool8("Resubmission", &is_resubmitted),
        ),
        Event::DmaPacketToHwQueue { hw_queue, progress } => tracelogging::write_event!(
            FENCEPOST,
            "DmaPacket",
            level(Verbose),
            keyword(keyword::SUBMISSION),
            pointer("hHwQueue", &pointer(hw_queue)),
            u64("ProgressFenceValue", &progress),
        ),
        Event::DmaPacketStop { node, fence, completed, kind, address } => tracelogging::write_event!(
            FENCEPOST,
            "DmaPacket",
            level(Verbose),
            opcode(Stop),
            keyword(keyword::SUBMISSION),
            u32("NodeOrdinal", &node),
            u64("uliSubmissionId", &u64::from(fence)),
            u64("uliCompletionId", &u64::from(completed)),
            i32("InterruptType", &kind.0),
            bool8("bPreempted", &(kind == DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_DMA_PREEMPTED)),
            u64_hex("FaultedVirtualAddress", &address),
        ),
        Event::Interrupt { node, kind } => tracelogging::write_event!(
            FENCEPOST,
            "NotifyInterruptCB",
            level(Verbose),
            keyword(keyword::INTERRUPT),
            u32("NodeOrdinal", &node),
            i32("InterruptType", &kind.0),
        ),
        Event::NativeFence { node, hw_queue, entry } if is_signal(&entry) => tracelogging::write_event!(
            FENCEPOST,
            "NativeFenceSignalExecuted",
            level(Verbose),
            keyword(keyword::FENCE),
            u32("NodeOrdinal", &node),
            pointer("hHwQueue", &pointer(hw_queue)),
            u32_hex("hNativeFence", &entry.handle),
            u64("FenceValue", &entry.value),
            u64("FenceEndGpuTimestamp", &entry.end),
        ),
        Event::NativeFence { node, hw_queue, entry } => tracelogging::write_event!(
            FENCEPOST,
            "NativeFenceWaitUnblocked",
            level(Verbose),
            keyword(keyword::FENCE),
            u32("NodeOrdinal", &node),
            pointer("hHwQueue", &pointer(hw_queue)),
            u32_hex("hNativeFence", &entry.handle),
            u64("FenceValue", &entry.value),
            u64("FenceObservedGpuTimestamp", &entry.observed),
            u64("FenceEndGpuTimestamp", &entry.end),
        ),
        Event::Reset { ddi, node, last_aborted, status: NTSTATUS(status) } => tracelogging::write_event!(
            FENCEPOST,
            "Reset",
            level(Warning),
            keyword(keyword::RESET),
            str8("Ddi", ddi),
            u32("NodeOrdinal", &node),
            u32("LastAbortedFenceId", &last_aborted),
            win_ntstatus("Status", &status),
        ),
        Event::PowerState { is_on } => tracelogging::write_event!(
            FENCEPOST,
            "DdiSetPowerState",
            level(Informational),
            keyword(keyword::POWER),
            bool8("D0", &is_on),
        ),
        Event::FState { component, state, status: NTSTATUS(status) } => tracelogging::write_event!(
            FENCEPOST,
            "DdiSetPowerComponentFState",
            level(Informational),
            keyword(keyword::POWER),
            u32("ComponentIndex", &component),
            u32("FState", &state),
            win_ntstatus("Status", &status),
        ),
    };
}
