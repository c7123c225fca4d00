//! Memory that the GPU sees: a block of pages, by index. The frame of a page is its address divided by the page size
//! ([`crate::fill`] says why).

#![expect(unsafe_code, reason = "words that the driver's engines store to meanwhile")]

use crate::nt::{self, PAGE};
use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

/// A block of pages. They are never freed: an engine that is late finds memory there.
#[derive(Clone, Copy)]
pub struct Memory {
    base: NonNull<u8>,
    pages: usize,
}

impl Memory {
    /// `pages` zeroed pages.
    pub fn new(pages: usize) -> Option<Self> {
        Some(Self { base: nt::allocate_pages(pages)?, pages })
    }

    /// The address of a page.
    pub fn address(&self, page: usize) -> *mut c_void {
        assert!(page < self.pages, "page {page} of {}", self.pages);
        self.base.as_ptr().wrapping_add(page * PAGE).cast()
    }

    /// The frame of a page.
    pub fn frame(&self, page: usize) -> u64 {
        (self.address(page).expose_provenance() / PAGE) as u64
    }

    /// A word of 64 bits, by its index in a page.
    pub fn word(&self, page: usize, index: usize) -> &AtomicU64 {
        assert!(index < PAGE / 8, "word {index}");
        let word = self.address(page).cast::<u64>().wrapping_add(index);
        // SAFETY: an aligned word within the block, which is never freed; everybody who shares it stores whole words.
        unsafe { AtomicU64::from_ptr(word) }
    }

    /// Stores `value` to every word of a page.
    pub fn fill(&self, page: usize, value: u64) {
        for index in 0..PAGE / 8 {
            self.word(page, index).store(value, Ordering::Release);
        }
    }

    /// Returns whether `holds` is true of every word of a page, by its index.
    pub fn all(&self, page: usize, mut holds: impl FnMut(usize, u64) -> bool) -> bool {
        (0..PAGE / 8).all(|index| holds(index, self.word(page, index).load(Ordering::Acquire)))
    }
}
