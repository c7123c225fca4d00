//! Write pointers of queues that the OS has disconnected, and whose last ring may still be under way: the engine looks
//! at them until the page of the doorbell is known to be rotated.
//!
//! A round of looks takes as many steps of the engine as it must: between two of them it looks up. An adapter that has
//! stopped looks at nothing, since that would map what the OS takes as unmapped.

use crate::exec::Binding;
use crate::gpu::Gpu;
use crate::host::Host;
use crate::mmu::Stored;
use crate::node::{Node, attention};
use crate::queue::Queue;
use crate::schedule::Schedule;
use crate::shared::Shared;
use crate::tlb::Tlb;
use crate::word::{Ordering, Word};
use alloc::vec::Vec;

/// Write pointers that are looked at before the engine looks up; fewer where their pages must be mapped.
const LOOKED_AT_ONCE: usize = 64;
/// What a look counts for, in bytes moved: two cache lines that other processors write.
const LOOK_COST: u64 = 1 << 10;

/// What taking one over from the node's list, or letting one go, counts for: its cache line.
const TAKEOVER_COST: u64 = 512;

/// What looks at write pointers.
pub(super) struct Eyes<'a, H: Host> {
    pub gpu: &'a Gpu<H>,
    pub node: &'a Node<H>,
    pub tlb: &'a mut Tlb<H>,
    pub schedule: &'a mut Schedule<H>,
}

/// The engine's own list of the write pointers that it watches. When the node's list has changed, the engine takes it
/// over in parts, and looks at its old list meanwhile.
pub(super) struct WatchedPointers<H: Host> {
    queues: Vec<WatchedQueue<H>>,
    /// What was taken over so far, and what is left of the list that it is to replace or has replaced.
    other: Vec<WatchedQueue<H>>,
    /// The takeover that is under way.
    takes: Option<Takeover>,
    /// None of `queues` is watched any more: they are let go.
    is_over: bool,
    /// The number of the change of the node's list that was seen last.
    seen: u64,
    /// The one that the round comes to next.
    next: usize,
    /// A round has begun and is not over.
    is_amid: bool,
}

/// How far the node's list is taken over.
#[derive(Clone, Copy)]
struct Takeover {
    /// The number of the list's last change before the takeover began. One behind it begins another.
    change: u64,
    /// It goes on in front of this place of the list.
    left: usize,
}

/// A queue whose write pointer is watched.
struct WatchedQueue<H: Host> {
    queue: Shared<Queue<H>>,
    /// Its ring; `None` before the first look.
    ring: Option<Bound>,
}

/// The ring that a queue has since one of its changes, or that it has none.
#[derive(Clone, Copy)]
struct Bound {
    change: u64,
    binding: Option<Binding>,
}

impl Bound {
    /// The ring of `queue` now. Takes the queue's lock.
    fn of<H: Host>(queue: &Queue<H>) -> Self {
        // Acquire: the ring is at least as new as the number.
        let change = queue.bindings.load(Ordering::Acquire);
        Self { change, binding: queue.binding() }
    }
}

impl<H: Host> From<Shared<Queue<H>>> for WatchedQueue<H> {
    fn from(queue: Shared<Queue<H>>) -> Self {
        Self { queue, ring: None }
    }
}

impl<H: Host> WatchedQueue<H> {
    /// Its ring. The queue's lock is taken where that has changed, and in no other look.
    fn ring(&mut self) -> Bound {
        match self.ring {
            Some(ring) if ring.change == self.queue.bindings.load(Ordering::Acquire) => ring,
            _ => *self.ring.insert(Bound::of(&self.queue)),
        }
    }
}

/// What a write pointer that is watched says.
enum Published {
    /// Nothing new, or nothing that the queue does not look for by itself.
    Nothing,
    /// There is work.
    Work,
    /// User mode has freed the ring: there is nothing to run.
    NoRing,
    /// The host has no memory for the mapping now.
    Unknown,
    /// The engine must look up before its page is mapped.
    Later,
}

impl<H: Host> WatchedPointers<H> {
    /// None.
    pub fn new() -> Self {
        Self { queues: Vec::new(), other: Vec::new(), takes: None, is_over: false, seen: 0, next: 0, is_amid: false }
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.is_over || self.queues.is_empty()
    }

    /// The number of the change of the node's list that was seen last.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Returns whether a round of looks, or a takeover of the node's list, has begun and is not over.
    pub fn is_amid(&self) -> bool {
        self.is_amid || self.takes.is_some() || self.is_over || !self.other.is_empty()
    }

    /// Goes on with the round, or begins another: as far as the engine goes between two looks of its own.
    pub fn look(&mut self, eyes: &mut Eyes<'_, H>) {
        let node = eyes.node;
        if self.queues.is_empty() && self.other.is_empty() && !node.has_changed_watching(self.seen) {
            return;
        }
        self.is_amid = false;
        // Read before the look whether any is watched, so that one that comes behind that is a change.
        let changes = node.watching_changes();
        let watches = !is_halted(node) && node.is_watching();
        if !watches {
            // A last look has ended the watch, or the halt does: what is published from here on is not found.
            self.forget();
            self.seen = changes;
        }
        if self.is_over && self.let_go(&mut eyes.tlb.work) || !watches {
            return;
        }
        self.take_over(node, &mut eyes.tlb.work);
        let end = self.queues.len().min(self.next + LOOKED_AT_ONCE);
        while let Some(its) = self.queues.get_mut(self.next).filter(|_| self.next < end) {
            eyes.tlb.work += LOOK_COST;
            let ring = its.ring();
            match eyes.published(&its.queue, ring) {
                Published::Nothing | Published::Unknown => {}
                Published::Work => node.list(eyes.schedule, &its.queue),
                Published::NoRing => node.stop_watching_ring(&its.queue, ring.change),
                Published::Later => {
                    self.is_amid = true;
                    return;
                }
            }
            self.next += 1;
        }
        self.is_amid = self.next < self.queues.len();
        if !self.is_amid {
            self.next = 0;
        }
    }
}

impl<H: Host> WatchedPointers<H> {
    /// Goes on with the takeover of the node's list, or begins one where that has changed. What the list replaces is
    /// let go in parts as well.
    fn take_over(&mut self, node: &Node<H>, work: &mut u64) {
        if self.takes.is_none() {
            self.let_go_of_old(work);
            if self.other.is_empty() {
                self.takes = node.reserve_watched(self.seen, &mut self.other).map(Takeover::begun);
            }
        }
        let Some(takes) = &mut self.takes else { return };
        let before = self.other.len();
        takes.left = node.watched(takes.left, LOOKED_AT_ONCE, &mut self.other);
        *work += TAKEOVER_COST * (self.other.len() - before) as u64;
        if takes.left == 0 {
            core::mem::swap(&mut self.queues, &mut self.other);
            (self.seen, self.next, self.takes) = (takes.change, 0, None);
            self.let_go_of_old(work);
        }
    }

    /// Watches none any more. The list is let go in parts: [`Self::let_go`].
    pub fn forget(&mut self) {
        (self.takes, self.is_over, self.is_amid, self.next, self.seen) = (None, true, false, 0, 0);
    }

    /// Lets go of some of a list that is watched no more. Returns whether there is more.
    pub fn let_go(&mut self, work: &mut u64) -> bool {
        self.let_go_of_old(work);
        if self.is_over && self.other.is_empty() {
            core::mem::swap(&mut self.queues, &mut self.other);
            self.is_over = false;
            self.let_go_of_old(work);
        }
        !self.other.is_empty()
    }

    /// Lets go of some of what a list that was taken over has replaced.
    fn let_go_of_old(&mut self, work: &mut u64) {
        let kept = self.other.len().saturating_sub(LOOKED_AT_ONCE);
        *work += TAKEOVER_COST * (self.other.len() - kept) as u64;
        self.other.truncate(kept);
    }
}

impl Takeover {
    /// Of a list whose last change has the number `change`.
    fn begun(change: u64) -> Self {
        Self { change, left: usize::MAX }
    }
}

impl<H: Host> Eyes<'_, H> {
    /// Looks at each write pointer that the node has watched once more, and has it watched no longer: as far as the
    /// engine goes between two looks. Returns whether none is left.
    pub fn last_look(&mut self) -> bool {
        if is_halted(self.node) {
            return true;
        }
        for _ in 0..LOOKED_AT_ONCE {
            let Some((queue, doorbell)) = self.node.any_watched() else { return true };
            self.tlb.work += LOOK_COST;
            match self.published(&queue, Bound::of(&queue)) {
                Published::Nothing | Published::NoRing => {}
                // What cannot be told now is looked at in a turn.
                Published::Work | Published::Unknown => self.node.list(self.schedule, &queue),
                Published::Later => return false,
            }
            self.node.stop_watching(&queue, Some(doorbell));
        }
        !self.node.is_watching()
    }

    /// Looks at the write pointer of `queue`, whose doorbell the OS has disconnected, in the control page of `ring`.
    fn published(&mut self, queue: &Queue<H>, ring: Bound) -> Published {
        // One that waits for a fence looks by itself when its wait is over, and one of a context that is off when that
        // is resumed.
        let looks_itself = queue.is_parked() || !queue.context.is_runnable();
        let Some(binding) = ring.binding.filter(|_| !looks_itself) else { return Published::Nothing };
        let mut mmu = self.gpu.mmu(self.node, &queue.context.space, self.tlb);
        match mmu.word_aside(binding.control, false) {
            Ok(word) if word.load(Ordering::Acquire) == queue.consumed_of(ring.change) => Published::Nothing,
            Ok(_) => Published::Work,
            Err(Stored::NotMapped) => Published::NoRing,
            Err(Stored::Later) => Published::Later,
            Err(_) => Published::Unknown,
        }
    }
}

/// Returns whether the adapter has stopped.
fn is_halted<H: Host>(node: &Node<H>) -> bool {
    node.attention.load(Ordering::Acquire) & attention::HALT != 0
}
