//! One shared 64-bit word, and the orderings that the contracts are written in.
//!
//! The functions that decide whether a wake is lost ([`crate::fence`], [`crate::fence_log`], [`crate::notice`]) are
//! generic over [`Word`]: the driver runs them over real pages, the loom tests over loom's atomics, the schedule
//! explorer over words with store buffers. All three run the same functions.

pub use core::sync::atomic::Ordering;
use core::sync::atomic::{AtomicU64, fence};

/// A 64-bit word that more than one agent reads and writes. Loads and stores are single-copy atomic.
pub trait Word {
    /// Reads the word.
    fn load(&self, order: Ordering) -> u64;
    /// Writes the word.
    fn store(&self, value: u64, order: Ordering);
    /// Writes the word and returns what it held.
    fn swap(&self, value: u64, order: Ordering) -> u64;
    /// Adds, wrapping, and returns what it held.
    fn fetch_add(&self, value: u64, order: Ordering) -> u64;
    /// Subtracts, wrapping, and returns what it held.
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64;
    /// A fence of the calling thread over all words.
    fn fence(order: Ordering);
}

impl Word for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        Self::load(self, order)
    }
    fn store(&self, value: u64, order: Ordering) {
        Self::store(self, value, order);
    }
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        Self::swap(self, value, order)
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        Self::fetch_add(self, value, order)
    }
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        Self::fetch_sub(self, value, order)
    }
    fn fence(order: Ordering) {
        fence(order);
    }
}
