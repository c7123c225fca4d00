//! The pages of system memory that an allocation has: of its own, or a part of the process's.

use std::sync::Arc;

use nt_model::{Machine, PageObject};

/// Pages of system memory behind an allocation.
#[derive(Debug)]
pub(crate) struct Backing {
    object: Arc<PageObject>,
    first: usize,
    pages: usize,
    /// The memory is the process's, which has it secured meanwhile.
    is_existing: bool,
}

impl Backing {
    /// All pages of `object`, which go with the allocation.
    pub(crate) fn own(object: Arc<PageObject>) -> Self {
        let pages = object.pages();
        Self { object, first: 0, pages, is_existing: false }
    }

    /// `pages` pages of a process's memory from `first` on, which were secured for the allocation.
    pub(crate) fn existing(object: Arc<PageObject>, first: usize, pages: usize) -> Self {
        Self { object, first, pages, is_existing: true }
    }

    /// Returns whether the memory is the process's.
    pub(crate) fn is_existing(&self) -> bool {
        self.is_existing
    }

    /// The pages that it lies in.
    pub(crate) fn object(&self) -> &Arc<PageObject> {
        &self.object
    }

    /// The first page within [`object`](Self::object).
    pub(crate) fn first(&self) -> usize {
        self.first
    }

    /// How many pages it has.
    pub(crate) fn pages(&self) -> usize {
        self.pages
    }

    /// The page frame of its page `page`.
    pub(crate) fn frame(&self, page: usize) -> u64 {
        self.object.frame(self.first + page)
    }

    /// All its page frames.
    pub(crate) fn frames(&self) -> Vec<u64> {
        (0..self.pages).map(|page| self.frame(page)).collect()
    }

    /// Keeps its pages in memory, or lets them go.
    pub(crate) fn pin(&self, kernel: &Machine, on: bool) {
        for page in self.first..self.first + self.pages {
            if on {
                kernel.pin_page(&self.object, page);
            } else {
                kernel.unpin_page(&self.object, page);
            }
        }
    }

    /// The allocation is gone: its memory is freed, or the process's own again.
    pub(crate) fn let_go(&self, kernel: &Machine) {
        if self.is_existing {
            kernel.unsecure(&self.object);
        } else {
            kernel.free_pages(&self.object);
        }
    }
}
