//! Stage 5 of 8: one process's GPU address space.
//!
//! The page tables lie in memory that the OS owns and change only by paging packets (the paging process's own, inside
//! `DxgkDdiBuildPagingBuffer`). Here is where their root is; [`crate::tlb`] walks them.

use crate::host::{Host, Lock};
use core::sync::atomic::{AtomicU64, Ordering};
use gpu_wire::pte::Place;

/// Where the root table lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Root {
    /// The table.
    pub place: Place,
    /// Entries it has; an index beyond faults.
    pub entries: u32,
}

/// In a flush, instead of the number of an address space: every address space. No address space has this number.
pub const EVERY_SPACE: u64 = 0;

/// An address space. Its number is never reused.
pub struct AddressSpace<H: Host> {
    /// The number that TLB_FLUSH packets carry.
    pub id: u64,
    root: H::Lock<Option<Root>>,
    /// Translations that were walked, for counters.
    pub walks: AtomicU64,
}

impl<H: Host> AddressSpace<H> {
    /// An address space with no page table: every access faults.
    pub fn new(id: u64) -> Self {
        Self { id, root: H::Lock::new(None), walks: AtomicU64::new(0) }
    }

    /// Where the root lies now.
    pub fn root(&self) -> Option<Root> {
        self.root.with(|root| *root)
    }

    /// Moves the root. The caller then flushes the space ([`crate::gpu::Gpu::flush`]). Whether it was another one.
    pub fn set_root(&self, root: Root) -> bool {
        self.root.with(|r| r.replace(root) != Some(root))
    }

    /// Counts a walk.
    pub(crate) fn walked(&self) {
        self.walks.fetch_add(1, Ordering::Relaxed);
    }
}
