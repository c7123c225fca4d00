//! What the driver tells a trace of: an event of the provider `Fencepost` each, which `kmd/src/nt/etw.rs` writes.
//!
//! Fields have the names that the events of `Microsoft-Windows-DxgKrnl` give the same things, so that the two line up
//! in one trace, as far as a public list of that provider's events has them; docs/tracing.md has the table. An event
//! is built only while somebody listens ([`Platform::trace`](crate::platform::Platform::trace)), on the stack, at the
//! level that its place has: up to the device's. Nothing waits for a trace, and nothing depends on one.

use gpu_engine::log_entry::Entry;
use gpu_wire::packet::log_operation;
use wddm_abi::{DXGK_INTERRUPT_TYPE, NTSTATUS};

/// What happened, with the fields of the event. Handles are Dxgkrnl's where the field's name is one that Dxgkrnl's
/// events have, in 64 bits; 0 where there is none any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// StartDevice has ended.
    StartDevice {
        /// Engines.
        node_count: u32,
        /// What the DDI answers.
        status: NTSTATUS,
    },
    /// StopDevice has stopped the engines.
    StopDevice,
    /// A hardware queue was made.
    HwQueueStart(HwQueue),
    /// A hardware queue was destroyed.
    HwQueueStop(HwQueue),
    /// A doorbell changed.
    Doorbell {
        /// What happened to it.
        change: DoorbellChange,
        /// Its queue.
        hw_queue: u64,
        /// The doorbell.
        doorbell: u64,
        /// What the DDI answers.
        status: NTSTATUS,
    },
    /// A packet was submitted to a node in packet mode.
    DmaPacketStart {
        /// Node.
        node: u32,
        /// `SubmissionFenceId`.
        fence: u32,
        /// A paging buffer.
        is_paging: bool,
        /// It comes back behind a preemption.
        is_resubmitted: bool,
    },
    /// A command buffer was submitted to a hardware queue by the kernel.
    DmaPacketToHwQueue {
        /// Its queue.
        hw_queue: u64,
        /// The value that its progress fence gets behind it.
        progress: u64,
    },
    /// The OS is told of a packet's end: completed, preempted or faulted.
    DmaPacketStop {
        /// Node.
        node: u32,
        /// The fence that completed or faulted; of a preemption, that of the preemption.
        fence: u32,
        /// The last fence that is complete: of a fault, the last one that the OS was told of before.
        completed: u32,
        /// How it ended.
        kind: DXGK_INTERRUPT_TYPE,
        /// Where it faulted; 0 where it did not.
        address: u64,
    },
    /// The OS is told of something by an interrupt.
    Interrupt {
        /// Node.
        node: u32,
        /// Of what.
        kind: DXGK_INTERRUPT_TYPE,
    },
    /// The engine has executed a signal of a native fence, or a wait was met: what the native fence log has.
    NativeFence {
        /// Node.
        node: u32,
        /// The queue.
        hw_queue: u64,
        /// The operation.
        entry: Entry,
    },
    /// A DDI has reset or resumed something.
    Reset {
        /// Which DDI.
        ddi: &'static str,
        /// Node; [`u32::MAX`] where it is the adapter.
        node: u32,
        /// `LastAbortedFenceId`, where the DDI has one.
        last_aborted: u32,
        /// What the DDI answers.
        status: NTSTATUS,
    },
    /// The adapter's power state changed.
    PowerState {
        /// It is in D0.
        is_on: bool,
    },
    /// The OS told a power component its F-state.
    FState {
        /// Component.
        component: u32,
        /// State.
        state: u32,
        /// What the DDI answers.
        status: NTSTATUS,
    },
}

/// The fields of [`Event::HwQueueStart`] and [`Event::HwQueueStop`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HwQueue {
    /// The context.
    pub context: u64,
    /// The queue.
    pub hw_queue: u64,
    /// Node.
    pub node: u32,
    /// User mode submits to it.
    pub is_user_mode: bool,
}

/// What happened to a doorbell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum DoorbellChange {
    /// It was created.
    Create = 0,
    /// It was connected.
    Connect = 1,
    /// The OS disconnected it.
    Disconnect = 2,
    /// It was destroyed.
    Destroy = 3,
}

/// Returns whether an operation of a fence log is a signal.
pub fn is_signal(entry: &Entry) -> bool {
    entry.operation == log_operation::SIGNAL_EXECUTED
}
