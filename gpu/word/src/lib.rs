//! One shared 64-bit word, and the orderings that the contracts are written in.
//!
//! Functions that decide whether a wake or a submission is lost are generic over [`Word`]: the drivers run them over
//! mapped pages, the loom tests over loom's atomics, the schedule explorer over words with store buffers. All of them
//! run the same functions.
#![no_std]

pub mod barrier;
mod mutation;

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

/// A word of our own memory, which more than one agent exchanges.
pub trait Exchange: Word {
    /// Writes the word and returns what it held.
    fn swap(&self, value: u64, order: Ordering) -> u64;

    /// Writes `new` if the word holds `current`. `order` is that of success; a failure reads with Acquire.
    ///
    /// # Errors
    /// What the word holds instead.
    fn compare_exchange(&self, current: u64, new: u64, order: Ordering) -> Result<u64, u64>;
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        Self::load(self, order)
    }

    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        Self::store(self, value, order);
    }

    #[inline]
    fn fence(order: Ordering) {
        machine_fence(order);
    }
}

impl Exchange for AtomicU64 {
    #[inline]
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        Self::swap(self, value, order)
    }

    #[inline]
    fn compare_exchange(&self, current: u64, new: u64, order: Ordering) -> Result<u64, u64> {
        Self::compare_exchange(self, current, new, order, Ordering::Acquire)
    }
}

/// A fence of this machine: what [`Word::fence`] is for words in real memory.
#[inline]
pub fn machine_fence(order: Ordering) {
    match order {
        Ordering::SeqCst => barrier::full(),
        order => fence(order),
    }
}
