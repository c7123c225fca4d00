//! The engine's side of a publication: user mode's write pointer, and with it the packets below it.
//!
//! ORDERING[RING-1]: user mode writes the packets before it stores the write pointer (Release); the engine loads the
//! pointer (Acquire) before it copies them. Otherwise an engine executes what lay in the ring before.

use crate::mutation::{Chosen, Mutation};
use crate::word::{Ordering, Word};

/// Engine: the write pointer, in bytes that were ever published. What lies below it may be copied behind this.
pub fn write_pointer<W: Word>(word: &W, mutation: &Chosen) -> u64 {
    // ORDERING[RING-1]: Acquire pairs with user mode's Release: the packets below it are written.
    let order = if mutation.is(Mutation::ReadsRingUnordered) { Ordering::Relaxed } else { Ordering::Acquire };
    word.load(order)
}
