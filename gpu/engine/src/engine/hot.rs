//! The hot queue: the one that had the last turn and ran dry.
//!
//! What is submitted at once is submitted to it, as a rule. So for a while the engine looks at its write pointer, and
//! at the line of the ring in which the next packet begins, both in one look, and not at its doorbell: the write
//! pointer is published in front of the ring, and says how much. A ring costs one cache line less then, and that line
//! stays with the processor that rings. When the while is over, or the doorbell changes hands, the doorbell is looked
//! at again, as it stands.
//!
//! Where submissions follow each other, the engine rests between its looks: `pace.rs`.

use super::{Core, list};
use crate::counters::bump;
use crate::exec::{Binding, Exec};
use crate::gpu::Gpu;
use crate::host::Host;
use crate::mutation::Mutation;
use crate::node::Node;
use crate::queue::Queue;
use crate::shared::Shared;
use crate::word::{Ordering, Word};
use gpu_wire::GpuVa;
use gpu_wire::doorbell::Model;

/// Looks at a write pointer before the doorbell is looked at again. Few where schedules are explored: a look is a step
/// there.
const LOOKS: u32 = if cfg!(feature = "explore") { 2 } else { 500 };

/// The hot queue.
pub(super) struct Hot<H: Host> {
    queue: Shared<Queue<H>>,
    control: GpuVa,
    /// Where its next packet begins.
    next: GpuVa,
    /// Its write pointer when it ran dry.
    consumed: u64,
    /// Looks that are left.
    looks: u32,
    /// Looks that are left out first.
    rest: u32,
    /// A look has found work.
    has_work: bool,
}

impl<H: Host> Hot<H> {
    /// Returns whether the next look is left out.
    pub fn is_resting(&self) -> bool {
        self.rest != 0
    }
}

impl<H: Host> Core<H> {
    /// `queue` ran dry: it is the hot queue from now on, if its doorbell is this node's.
    pub(super) fn warm<F>(&mut self, gpu: &Gpu<H>, queue: &Shared<Queue<H>>, exec: &Exec<F>) {
        let dedicated = gpu.doorbells.model == Model::Dedicated;
        let Some(Binding { ring, control, geometry }) = exec.binding.filter(|_| dedicated && LOOKS != 0) else {
            return self.cool();
        };
        if !self.watch.pass_over(queue) {
            return self.cool();
        }
        let next = GpuVa(ring.0 + geometry.spans(exec.consumed, 8).first);
        let (queue, consumed, rest) = (queue.clone(), exec.consumed, self.pace.rest());
        self.hot = Some(Hot { queue, control, next, consumed, looks: LOOKS, rest, has_work: false });
    }

    /// There is no hot queue any more.
    pub(super) fn cool(&mut self) {
        self.watch.pass_over_none();
        self.hot = None;
    }

    /// Looks at the hot queue.
    pub(super) fn look_at_hot(&mut self, gpu: &Gpu<H>, node: &Node<H>) {
        let Some(hot) = self.hot.as_mut().filter(|hot| !hot.has_work) else { return };
        let space = hot.queue.context.space.id().number;
        let pointer = self.tlb.cached(space, hot.control, false).filter(|_| self.watch.passes_over());
        let Some(pointer) = pointer else { return self.cool() };
        if hot.looks == 0 {
            // ORDERING[DB-1]: the doorbell is read before the write pointer: what it said is served.
            let rung = self.watch.rung(&gpu.doorbells);
            if pointer.load(Ordering::Acquire) == hot.consumed || gpu.mutation.is(Mutation::NotesUnserved) {
                self.watch.note(rung);
            }
            return self.cool();
        }
        hot.looks -= 1;
        if hot.rest != 0 {
            hot.rest -= 1;
            return;
        }
        if !self.pace.rests()
            && let Some(line) = self.tlb.cached(space, hot.next, false)
        {
            core::hint::black_box(line.load(Ordering::Relaxed));
        }
        // ORDERING[RING-1]: the packets are read behind another look at the write pointer, in the turn.
        if pointer.load(Ordering::Relaxed) != hot.consumed {
            hot.has_work = true;
            bump(&node.counters.rings);
            bump(&hot.queue.rings);
        }
    }

    /// Returns whether the hot queue has work.
    pub(super) fn hot_has_work(&self) -> bool {
        self.hot.as_ref().is_some_and(|hot| hot.has_work)
    }

    /// Takes the hot queue out, if it has work: it has the next turn where no other waits for one, and else a place
    /// among them.
    pub(super) fn take_hot(&mut self, gpu: &Gpu<H>, node: &Node<H>) -> Option<Shared<Queue<H>>> {
        let hot = self.hot.take_if(|hot| hot.has_work)?;
        if self.schedule.is_empty() {
            self.schedule.begin_alone(&gpu.policy, &hot.queue);
            return Some(hot.queue);
        }
        list(&mut self.schedule, node, &hot.queue);
        gpu.arrived(&hot.queue);
        None
    }
}
