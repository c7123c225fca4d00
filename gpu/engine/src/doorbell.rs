//! Stage 3 of 8, seen from the GPU: physical doorbells.
//!
//! Each physical doorbell is a page of the driver's own, or several; user mode gets them mapped writable, so whatever
//! they hold is a hint. In the dedicated model a queue has one to itself, and a change of its value says "look at the
//! write pointer". In the global model there is one; every ring is taken out of it by an exchange (two processes may
//! store the same value), and every connected queue is looked at, the named one first.
//!
//! ORDERING[DB-1]: user mode publishes the write pointer before it stores the doorbell (Release), and fences fully
//! before it reads the doorbell's status. The engine reads the doorbell before the write pointer (Acquire). So a ring
//! that is seen shows its work; and a ring that lands on the dummy page is followed by a status that says so, or by a
//! connect, which compares write pointer and consumed position itself.

use crate::NoMemory;
use crate::host::{Host, Lock};
use crate::memory::{SharedWord, Span};
use crate::queue::Queue;
use crate::shared::Shared;
use crate::word::{Exchange, Ordering, Word};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64};
use gpu_wire::doorbell::{DOORBELL_OFFSET, Model};

/// No node.
const NONE: u32 = u32::MAX;

/// One physical doorbell.
pub struct Physical<H: Host> {
    pages: Span<'static>,
    /// Node of the queue, or [`NONE`]; that, too, where no engine looks for rings.
    node: AtomicU32,
    /// Raised at every change of the queue.
    changes: AtomicU64,
    queue: H::Lock<Option<Shared<Queue<H>>>>,
}

impl<H: Host> Physical<H> {
    fn word(&self) -> Option<SharedWord<'_>> {
        self.pages.word(DOORBELL_OFFSET as u64)
    }
}

/// All physical doorbells of an adapter.
pub struct Doorbells<H: Host> {
    /// The model in use.
    pub model: Model,
    physical: Box<[Physical<H>]>,
    /// Raised after every change of any of them: as long as it stands still, an engine looks at its own doorbells only.
    changes: AtomicU64,
}

// The pages are shared memory: see Span.
impl<H: Host> Doorbells<H> {
    /// A doorbell over each span of `doorbells`, which is whole pages. In the global model only the first is used.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new(model: Model, doorbells: &[Span<'static>]) -> Result<Self, NoMemory> {
        let mut physical = Vec::new();
        physical.try_reserve_exact(doorbells.len())?;
        for &pages in doorbells {
            physical.push(Physical {
                pages,
                node: AtomicU32::new(NONE),
                changes: AtomicU64::new(1),
                queue: H::Lock::new(None),
            });
        }
        Ok(Self { model, physical: physical.into_boxed_slice(), changes: AtomicU64::new(1) })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.physical.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.physical.is_empty()
    }

    /// The pages of doorbell `index`.
    pub fn pages(&self, index: usize) -> Option<Span<'static>> {
        self.physical.get(index).map(|physical| physical.pages)
    }

    /// Gives doorbell `index` to `queue`; what rang before is forgotten, and nothing that the last owner has written
    /// anywhere in its pages is left. A queue that connects its own doorbell anew may have rung meanwhile; that ring is
    /// erased, and not lost: the caller then makes the queue ready, which compares its write pointer. Without `watched`
    /// no engine looks for rings: user mode announces each.
    pub fn connect(&self, index: usize, queue: &Shared<Queue<H>>, watched: bool) {
        let Some(physical) = self.physical.get(index) else { return };
        // The whole of them: user mode can write them all, and the next owner may be another process.
        physical.pages.fill(0);
        // Counted before the engine looks at the queue: from here on a missing ring is a fault (`Queue::connected`).
        queue.connected.fetch_add(1, Ordering::AcqRel);
        let old = physical.queue.with(|q| q.replace(queue.clone()));
        if let Some(old) = &old {
            old.connected.fetch_sub(1, Ordering::AcqRel);
        }
        // CAST: a node index is below NODE_COUNT.
        let node = if watched { queue.context.node as u32 } else { NONE };
        physical.node.store(node, Ordering::Release);
        physical.changes.fetch_add(1, Ordering::Release);
        self.changes.fetch_add(1, Ordering::Release);
        drop(old);
    }

    /// Takes doorbell `index` away. Whose it was.
    pub fn disconnect(&self, index: usize) -> Option<Shared<Queue<H>>> {
        let physical = self.physical.get(index)?;
        physical.node.store(NONE, Ordering::Release);
        let old = physical.queue.with(Option::take);
        if let Some(queue) = &old {
            queue.connected.fetch_sub(1, Ordering::AcqRel);
        }
        physical.changes.fetch_add(1, Ordering::Release);
        self.changes.fetch_add(1, Ordering::Release);
        old
    }
}

struct Seen<H: Host> {
    changes: u64,
    value: u64,
    queue: Option<Shared<Queue<H>>>,
}

impl<H: Host> Seen<H> {
    fn nothing() -> Self {
        Self { changes: 0, value: 0, queue: None }
    }
}

/// What one engine remembers of the doorbells.
pub struct Watch<H: Host> {
    seen: Box<[Seen<H>]>,
    /// Indices of those of its node.
    mine: Vec<usize>,
    /// The one of them that is not looked at: its queue's write pointer is.
    passed_over: Option<usize>,
    /// Of all doorbells, when `mine` was put together; 0: never.
    changes: u64,
}

impl<H: Host> Watch<H> {
    /// Nothing seen.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new(doorbells: &Doorbells<H>) -> Result<Self, NoMemory> {
        let mut seen = Vec::new();
        seen.try_reserve_exact(doorbells.len())?;
        seen.resize_with(doorbells.len(), Seen::nothing);
        let mut mine = Vec::new();
        mine.try_reserve_exact(doorbells.len())?;
        Ok(Self { seen: seen.into_boxed_slice(), mine, passed_over: None, changes: 0 })
    }

    /// Forgets everything, and with it every reference to a queue.
    pub fn clear(&mut self) {
        self.seen.fill_with(Seen::nothing);
        self.mine.clear();
        self.passed_over = None;
        self.changes = 0;
    }

    /// From now on the doorbell of `queue` alone is passed over. Returns whether the queue has one that is looked at.
    pub fn pass_over(&mut self, queue: &Shared<Queue<H>>) -> bool {
        if !self.is_passed_over(queue) {
            self.passed_over = self.mine.iter().copied().find(|index| self.is_of(*index, queue));
        }
        self.passed_over.is_some()
    }

    /// Returns whether the doorbell of `queue` is passed over.
    pub fn is_passed_over(&self, queue: &Shared<Queue<H>>) -> bool {
        self.passed_over.is_some_and(|index| self.is_of(index, queue))
    }

    /// Returns whether the doorbell `index` was seen to be `queue`'s.
    fn is_of(&self, index: usize, queue: &Shared<Queue<H>>) -> bool {
        let its = self.seen.get(index).and_then(|seen| seen.queue.as_ref());
        its.is_some_and(|its| Shared::ptr_eq(its, queue))
    }

    /// The value of the doorbell that is passed over; 0 where none is.
    pub fn rung(&self, doorbells: &Doorbells<H>) -> u64 {
        let word = self.passed_over.and_then(|index| doorbells.physical.get(index)).and_then(Physical::word);
        // ORDERING[DB-1]: Acquire: the write pointer is read after this.
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// What the doorbell that is passed over said by `value` is done.
    pub fn note(&mut self, value: u64) {
        if let Some(seen) = self.passed_over.and_then(|index| self.seen.get_mut(index)) {
            seen.value = value;
        }
    }

    /// Every doorbell is looked at again.
    pub fn pass_over_none(&mut self) {
        self.passed_over = None;
    }

    /// Returns whether one is passed over still: none is where any has changed hands.
    pub fn passes_over(&self) -> bool {
        self.passed_over.is_some()
    }

    /// Takes note of which doorbells are `node`'s now, and whose they are.
    pub fn refresh(&mut self, doorbells: &Doorbells<H>, node: usize) {
        let changes = doorbells.changes.load(Ordering::Acquire);
        if changes != self.changes {
            self.changes = changes;
            self.look_around(doorbells, node);
        }
    }

    /// Looks at the doorbells that were noted; calls `rung` for each queue that rang. Returns whether there are any.
    pub fn poll(&mut self, doorbells: &Doorbells<H>, mut rung: impl FnMut(&Shared<Queue<H>>)) -> bool {
        for &index in &self.mine {
            if self.passed_over == Some(index) {
                continue;
            }
            let (Some(physical), Some(seen)) = (doorbells.physical.get(index), self.seen.get_mut(index)) else {
                continue;
            };
            // ORDERING[DB-1]: Acquire: the write pointer is read after this.
            let value = physical.word().map_or(0, |w| w.load(Ordering::Acquire));
            if value != seen.value {
                seen.value = value;
                if let Some(queue) = &seen.queue {
                    rung(queue);
                }
            }
        }
        !self.mine.is_empty()
    }

    /// Doorbells that a look goes through.
    pub fn looked_at(&self) -> usize {
        self.mine.len()
    }

    /// Returns whether a doorbell of the node has rung, or changed hands, since the last look.
    pub fn has_rung(&self, doorbells: &Doorbells<H>) -> bool {
        if doorbells.model == Model::Global {
            let word = doorbells.physical.first().and_then(Physical::word);
            return word.is_some_and(|word| word.load(Ordering::Relaxed) != 0);
        }
        doorbells.changes.load(Ordering::Relaxed) != self.changes
            || self.mine.iter().filter(|index| self.passed_over != Some(**index)).any(|&index| {
                match (doorbells.physical.get(index), self.seen.get(index)) {
                    (Some(physical), Some(seen)) => {
                        physical.word().is_some_and(|word| word.load(Ordering::Relaxed) != seen.value)
                    }
                    _ => false,
                }
            })
    }

    /// Finds out which doorbells are the node's, and whose they are.
    fn look_around(&mut self, doorbells: &Doorbells<H>, node: usize) {
        self.mine.clear();
        self.passed_over = None;
        for (index, (physical, seen)) in doorbells.physical.iter().zip(self.seen.iter_mut()).enumerate() {
            // CAST: a node index.
            if physical.node.load(Ordering::Acquire) != node as u32 {
                *seen = Seen::nothing();
                continue;
            }
            // There is room for all.
            self.mine.push(index);
            let changes = physical.changes.load(Ordering::Acquire);
            if changes != seen.changes {
                *seen = Seen { changes, value: 0, queue: physical.queue.with(|q| q.clone()) };
            }
        }
    }

    /// The global doorbell's value, taken out of it; `None` when no queue rang. Any engine may take it: it serves all
    /// nodes.
    pub fn poll_global(doorbells: &Doorbells<H>) -> Option<u64> {
        let word = doorbells.physical.first()?.word()?;
        if word.load(Ordering::Relaxed) == 0 {
            return None;
        }
        // ORDERING[DB-1]: the exchange, not the load, takes the ring: a second store of the same value is a ring of its
        // own.
        Some(word.swap(0, Ordering::AcqRel)).filter(|v| *v != 0)
    }
}
