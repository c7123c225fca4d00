//! Which ready queue an engine runs next: bands of priority, and in each of them processes by turns.
//!
//! The list is the engine's own. Other agents hand queues over in [`crate::arrivals`]; those that the engine itself
//! finds go straight here. In a band, a queue has a place in virtual time: behind the turn that is served now, and
//! behind every turn that its process has asked for. So processes go round, however many queues each has, and the
//! queues of one process go round among themselves.
//!
//! A higher band goes before a lower one. The normal band has a share of the turns all the same
//! (`targetNormalBandPercentage`), so that a process in focus leaves it some; the idle band has none.
//!
//! Source: DDI pages `DXGKARG_SETUPPRIORITYBANDS`, `DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES`.

use crate::NoMemory;
use crate::host::Host;
use crate::queue::Queue;
use crate::shared::{Shared, try_array};
use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use core::cmp::Ordering;
use core::sync::atomic::{AtomicU64, Ordering as AtomicOrdering};
use gpu_wire::NODE_COUNT;

/// Bands of priority: idle, normal, focus, real time.
pub const BANDS: usize = 4;
/// The band that contexts start in.
pub const NORMAL: usize = 1;

/// Turns that the queues of a process have asked for, per node and band, in virtual time. Written by the node's engine.
#[derive(Default)]
pub struct Turns([[AtomicU64; BANDS]; NODE_COUNT]);

/// A queue that is ready.
struct Ready<H: Host> {
    /// Its place in virtual time; the least is next.
    start: u64,
    /// Among queues of one place, the first to come.
    order: u64,
    queue: Shared<Queue<H>>,
}

impl<H: Host> PartialEq for Ready<H> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<H: Host> Eq for Ready<H> {}

impl<H: Host> PartialOrd for Ready<H> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<H: Host> Ord for Ready<H> {
    /// The greatest is next.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.start, other.order).cmp(&(self.start, self.order))
    }
}

/// The ready queues of one band.
struct Band<H: Host> {
    queues: BinaryHeap<Ready<H>>,
    /// The place in virtual time of the turn that was served last.
    served: u64,
}

/// An engine's ready queues.
pub(crate) struct Schedule<H: Host> {
    node: usize,
    bands: Box<[Band<H>; BANDS]>,
    /// Queues that came, ever.
    order: u64,
    /// What higher bands owe the normal one, in hundredths of a turn.
    owed: u32,
}

impl<H: Host> Schedule<H> {
    /// Empty, of the engine of `node`.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new(node: usize) -> Result<Self, NoMemory> {
        let bands = try_array(|| Band { queues: BinaryHeap::new(), served: 0 })?;
        Ok(Self { node, bands, order: 0, owed: 0 })
    }

    /// Makes room for `count` queues in all. The engine calls it before it adds any.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn reserve(&mut self, count: usize) -> Result<(), NoMemory> {
        for band in self.bands.iter_mut() {
            if band.queues.capacity() < count {
                band.queues.try_reserve(count.saturating_sub(band.queues.len()))?;
            }
        }
        Ok(())
    }

    /// Adds a queue that is marked as ready.
    ///
    /// # Errors
    /// The queue, where there is no room for it.
    pub fn add(&mut self, queue: Shared<Queue<H>>) -> Result<(), Shared<Queue<H>>> {
        let index = queue.context.band();
        let Some(band) = self.bands.get_mut(index) else { return Err(queue) };
        if band.queues.len() == band.queues.capacity() {
            return Err(queue);
        }
        let asked = &queue.context.space.process.turns.0;
        let start = match asked.get(self.node).and_then(|bands| bands.get(index)) {
            Some(turns) => {
                let start = turns.load(AtomicOrdering::Relaxed).max(band.served);
                turns.store(start + 1, AtomicOrdering::Relaxed);
                start
            }
            None => band.served,
        };
        self.order += 1;
        band.queues.push(Ready { start, order: self.order, queue });
        Ok(())
    }

    /// Returns whether no queue is ready.
    pub fn is_empty(&self) -> bool {
        self.bands.iter().all(|band| band.queues.is_empty())
    }

    /// Returns whether a queue of a higher band than `band` is ready.
    pub fn has_above(&self, band: usize) -> bool {
        self.bands.iter().skip(band + 1).any(|band| !band.queues.is_empty())
    }

    /// Takes out the queue whose turn it is. `share`: the normal band's, in hundredths of the turns.
    pub fn next(&mut self, share: u32) -> Option<Shared<Queue<H>>> {
        let highest = self.bands.iter().rposition(|band| !band.queues.is_empty())?;
        let waits = self.bands.get(NORMAL).is_some_and(|band| !band.queues.is_empty());
        let mut index = highest;
        if highest > NORMAL && waits {
            self.owed += share.min(100);
            if self.owed >= 100 {
                (index, self.owed) = (NORMAL, self.owed - 100);
            }
        } else {
            self.owed = 0;
        }
        let band = self.bands.get_mut(index)?;
        let ready = band.queues.pop()?;
        band.served = band.served.max(ready.start);
        Some(ready.queue)
    }
}
