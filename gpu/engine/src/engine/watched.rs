//! Write pointers of queues that the OS has disconnected, and whose last ring may still be under way: the engine looks
//! at them until the page of the doorbell is known to be rotated.

use super::{Core, list, mmu};
use crate::exec::Binding;
use crate::gpu::Gpu;
use crate::host::Host;
use crate::mmu::Stored;
use crate::node::{Node, Phase, attention};
use crate::queue::Queue;
use crate::shared::Shared;
use crate::tlb::Tlb;
use crate::word::{Ordering, Word};

/// Write pointers that are looked at before the engine looks up.
const LOOKED_AT_ONCE: usize = 64;
/// What a look counts for, in bytes moved: two cache lines that other processors write.
const LOOK_COST: u64 = 1 << 10;

/// A queue whose write pointer is watched.
pub(super) struct WatchedQueue<H: Host> {
    queue: Shared<Queue<H>>,
    /// Its ring, and the number of the change that brought it; `None` before the first look.
    ring: Option<(u64, Option<Binding>)>,
}

impl<H: Host> From<Shared<Queue<H>>> for WatchedQueue<H> {
    fn from(queue: Shared<Queue<H>>) -> Self {
        Self { queue, ring: None }
    }
}

impl<H: Host> WatchedQueue<H> {
    /// Its ring. The queue's lock is taken where that has changed, and in no other look.
    fn ring(&mut self) -> Option<Binding> {
        // Acquire: the ring is at least as new as the number.
        let changes = self.queue.bindings.load(Ordering::Acquire);
        match self.ring {
            Some((seen, binding)) if seen == changes => binding,
            _ => {
                let binding = self.queue.binding();
                self.ring = Some((changes, binding));
                binding
            }
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
}

impl<H: Host> Core<H> {
    /// Looks at every write pointer that is watched, or at some, where something is asked of the engine meanwhile.
    pub(super) fn look_at_watched(&mut self, gpu: &Gpu<H>, node: &Node<H>) {
        if self.watched.is_empty() && !node.has_changed_watching(self.watched_at) {
            return;
        }
        self.watched_at = node.watched(self.watched_at, &mut self.watched);
        let (mut watched, mut looked) = (core::mem::take(&mut self.watched), 0);
        for its in &mut watched {
            if looked == LOOKED_AT_ONCE {
                looked = 0;
                self.take_work(node);
                if node.attention.load(Ordering::Relaxed) & !attention::HALT != 0 {
                    break;
                }
            }
            looked += 1;
            self.tlb.work += LOOK_COST;
            let ring = its.ring();
            match published(&mut self.tlb, gpu, node, &its.queue, ring) {
                Published::Nothing | Published::Unknown => {}
                Published::Work => list(&mut self.schedule, node, &its.queue),
                Published::NoRing => node.stop_watching(&its.queue, None),
            }
        }
        self.watched = watched;
    }

    pub(super) fn last_look(&mut self, gpu: &Gpu<H>) {
        let node = &gpu.nodes[self.node];
        if self.wedged || node.phase() != Phase::Running {
            return;
        }
        while let Some(queue) = node.stop_watching_any() {
            // What cannot be told now is looked at in a turn.
            let found = published(&mut self.tlb, gpu, node, &queue, queue.binding());
            if matches!(found, Published::Work | Published::Unknown) {
                list(&mut self.schedule, node, &queue);
            }
        }
    }
}

/// Looks at the write pointer of `queue`, whose doorbell the OS has disconnected, in the control page of `ring`.
fn published<H: Host>(
    tlb: &mut Tlb<H>,
    gpu: &Gpu<H>,
    node: &Node<H>,
    queue: &Queue<H>,
    ring: Option<Binding>,
) -> Published {
    // One that waits for a fence looks by itself when its wait is over, and one of a context that is off when that is
    // resumed.
    let looks_itself = queue.is_parked() || !queue.context.is_runnable();
    let Some(binding) = ring.filter(|_| !looks_itself) else { return Published::Nothing };
    let mut mmu = mmu(tlb, gpu, node, &queue.context.space);
    match mmu.word_aside(binding.control, false) {
        Ok(word) if word.load(Ordering::Acquire) == queue.consumed.load(Ordering::Relaxed) => Published::Nothing,
        Ok(_) => Published::Work,
        Err(Stored::NotMapped) => Published::NoRing,
        Err(_) => Published::Unknown,
    }
}
