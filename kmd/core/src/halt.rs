//! The adapter stops, because VidMm asked for a paging operation that cannot be carried out.
//!
//! `DxgkDdiBuildPagingBuffer` may refuse nothing: each of its three statuses has VidMm believe that the operation was
//! done, or has it ask again without end. An operation that is not done leaves page tables or contents that are not
//! what the OS believes, so that an engine could reach memory that was given away. So no engine translates an address
//! any more: paging buffers complete without running, and other work is a fault of its queue or packet, by which
//! Dxgkrnl puts its device in error. That lasts until StopDevice. The reason is in the debugger's output and in debug
//! blobs.
//!
//! Source: `DxgkDdiBuildPagingBuffer`, Return value and Remarks.

use crate::adapter::Started;
use crate::gone;
use crate::irql::Passive;
use crate::platform::Platform;
use core::fmt;
use core::sync::atomic::Ordering;
use wddm_abi::DXGK_BUILDPAGINGBUFFER_OPERATION as Operation;

/// What the driver does for a paging operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is carried out.
    Done,
    /// There is nothing to do for it in this driver: it succeeds, and nothing is written.
    Nothing,
    /// It cannot be carried out: the adapter stops.
    Impossible,
}

/// The verdict on a paging operation; `docs/wddm_map.md` has the reasons.
pub const fn verdict(operation: Operation) -> Verdict {
    match operation {
        Operation::DXGK_OPERATION_UPDATE_PAGE_TABLE
        | Operation::DXGK_OPERATION_FLUSH_TLB
        | Operation::DXGK_OPERATION_COPY_PAGE_TABLE_ENTRIES
        | Operation::DXGK_OPERATION_VIRTUAL_TRANSFER
        | Operation::DXGK_OPERATION_VIRTUAL_FILL
        | Operation::DXGK_OPERATION_SIGNAL_MONITORED_FENCE => Verdict::Done,
        Operation::DXGK_OPERATION_DISCARD_CONTENT
        | Operation::DXGK_OPERATION_READ_PHYSICAL
        | Operation::DXGK_OPERATION_WRITE_PHYSICAL
        | Operation::DXGK_OPERATION_MAP_APERTURE_SEGMENT
        | Operation::DXGK_OPERATION_UNMAP_APERTURE_SEGMENT
        | Operation::DXGK_OPERATION_MAP_APERTURE_SEGMENT2
        | Operation::DXGK_OPERATION_INIT_CONTEXT_RESOURCE
        | Operation::DXGK_OPERATION_UPDATE_CONTEXT_ALLOCATION
        | Operation::DXGK_OPERATION_NOTIFY_RESIDENCY
        | Operation::DXGK_OPERATION_NOTIFY_RESIDENCY2
        | Operation::DXGK_OPERATION_NOTIFY_FENCE_RESIDENCY
        | Operation::DXGK_OPERATION_NOTIFY_ALLOC => Verdict::Nothing,
        _ => Verdict::Impossible,
    }
}

/// Why the adapter stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// An operation whose verdict is [`Verdict::Impossible`].
    Operation(Operation),
    /// An update of a page table in a segment that the driver does not know, or in the aperture.
    Table {
        /// `SegmentId`.
        segment: u32,
    },
    /// An update of a page table at NULL, or in an update mode that the driver did not ask for.
    NoTable,
    /// A copy of page table entries from or to a place that is no page table.
    Copy,
}

impl Reason {
    /// The number in debug blobs: what it is in the upper 32 bits, which one in the lower. Never 0.
    pub const fn raw(self) -> u64 {
        match self {
            // CAST: the same bits.
            Self::Operation(operation) => 1 << 32 | operation.0 as u32 as u64,
            Self::Table { segment } => 2 << 32 | segment as u64,
            Self::NoTable => 3 << 32,
            Self::Copy => 4 << 32,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operation(operation) => write!(f, "paging operation {}", operation.0),
            Self::Table { segment } => write!(f, "update of a page table in segment {segment}"),
            Self::NoTable => f.write_str("update of a page table that is nowhere"),
            Self::Copy => f.write_str("copy of page table entries that are nowhere"),
        }
    }
}

/// Stops the adapter until StopDevice. Returns when no engine translates any more. The first reason stays; a second
/// call waits as the first one does.
pub fn halt<P: Platform>(irql: &Passive, started: &Started<P>, reason: Reason) {
    if started.halted.compare_exchange(0, reason.raw(), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        started.platform.print(format_args!("fencepost: the adapter stops: {reason} cannot be carried out\n"));
    }
    let flush = started.gpu.halt();
    gone::flushed(irql, started, flush);
}
