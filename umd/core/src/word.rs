//! One shared 64-bit word, and the orderings that the contracts are written in.
//!
//! [`crate::publish`] is generic over [`Word`]: the driver runs it over mapped pages, the loom tests over loom's
//! atomics. Both run the same function.
#![forbid(unsafe_code)]

pub use core::sync::atomic::Ordering;
use core::sync::atomic::{AtomicU64, fence};

/// A 64-bit word that more than one agent reads and writes. Loads and stores are single-copy atomic.
pub trait Word {
    /// Reads the word.
    fn load(&self, order: Ordering) -> u64;
    /// Writes the word.
    fn store(&self, value: u64, order: Ordering);
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
    fn fence(order: Ordering) {
        fence(order);
    }
}
