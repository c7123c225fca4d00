//! What the GPU needs from whatever hosts it: NT in the driver, the NT model in native mode, a few vectors in unit
//! tests.

use crate::NoMemory;
use crate::log_entry::Entry;
use crate::memory::{Mapping, Span};
use crate::word::Exchange;
use gpu_wire::NodeOrdinal;

/// Mutual exclusion for short sections at up to `DISPATCH_LEVEL`: a spin lock that raises to it.
///
/// A section takes no other lock of a lower rank (lock table: ARCHITECTURE.md §5), waits for nothing and raises no
/// interrupt.
pub trait Lock<T>: Send + Sync {
    /// A lock that guards `value`.
    fn new(value: T) -> Self;
    /// Runs `f` with the lock held.
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R;
}

/// Why pages are not mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmapped {
    /// No address range or mapping structure is to be had now.
    NoMemory,
    /// The first page is no memory that the machine has.
    NotMemory,
}

impl From<NoMemory> for Unmapped {
    fn from(_: NoMemory) -> Self {
        Self::NoMemory
    }
}

/// The surroundings of a GPU.
pub trait Host: Send + Sync + Sized + 'static {
    /// The lock.
    type Lock<T: Send>: Lock<T>;
    /// A shared word in memory of our own.
    type Word: Exchange + Send + Sync;
    /// Host mapping of system pages; dropping it unmaps.
    type Mapping: Mapping;

    /// A word that holds `value`.
    fn word(value: u64) -> Self::Word;

    /// Maps system pages by frame number, readable and, with `write`, writable, contiguous in the order given. May map
    /// only a prefix, but at least one page: pages of one mapping are alike ([`Mapping::is_ordered`]). Called by an
    /// engine's thread at `PASSIVE_LEVEL`, without a lock held.
    ///
    /// # Errors
    /// [`Unmapped`].
    fn map_system(&self, frames: &[u64], write: bool) -> Result<Self::Mapping, Unmapped>;

    /// The pages of the local segment from `page` on, as far as they lie contiguously; `None` beyond the segment. They
    /// stay mapped until every engine is dropped.
    fn local(&self, page: u64) -> Option<Span<'static>>;

    /// The GPU clock: ticks of [`Self::clock_frequency`], never backwards. Any IRQL.
    fn clock(&self) -> u64;

    /// Ticks per second of [`Self::clock`].
    fn clock_frequency(&self) -> u64;

    /// Wakes the thread of a node that may be sleeping. Up to `DISPATCH_LEVEL`.
    fn kick(&self, node: NodeOrdinal);

    /// The engine of `node` has served flushes ([`crate::gpu::Gpu::flush_done`]), and may go on with what it runs for
    /// long: threads of the host may wait for that. Called by its thread, without a lock held.
    fn flushed(&self, _node: NodeOrdinal) {}

    /// Returns whether the host wants to be told what goes into native fence logs ([`Self::trace_fence`]). Any IRQL.
    fn is_traced(&self) -> bool {
        false
    }

    /// An operation of `queue`'s has happened, which its native fence log gets an entry of; whether there is a log or
    /// not. `queue`: the host's handle, `None` where the queue is being destroyed. Up to `DISPATCH_LEVEL`.
    fn trace_fence(&self, _node: NodeOrdinal, _queue: Option<u64>, _entry: &Entry) {}

    /// Raises the interrupt, so that the notices of `node` get drained. `false`: it could not be raised; the engine
    /// asks again later. `PASSIVE_LEVEL` to `DISPATCH_LEVEL`, no lock held.
    fn raise_interrupt(&self, node: NodeOrdinal) -> bool;
}
