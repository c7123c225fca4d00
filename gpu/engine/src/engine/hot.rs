//! The hot queue: the one that had the last turn and ran dry.
//!
//! What is submitted at once is submitted to it, as a rule. So for a while the engine looks at its write pointer, and
//! at the line of the ring in which the next packet begins, both in one look, and not at its doorbell: the write
//! pointer is published in front of the ring, and says how much. A ring costs one cache line less then, and that line
//! stays with the processor that rings. When the while is over, or the doorbell changes hands, the doorbell is looked
//! at again, as it stands.
//!
//! Where submissions follow each other, the engine rests between its looks: `pace.rs`.

use super::pace::Pace;
use crate::counters::bump;
use crate::doorbell::Watch;
use crate::exec::{Binding, Exec};
use crate::gpu::Gpu;
use crate::host::Host;
use crate::mutation::Mutation;
use crate::node::Node;
use crate::queue::Queue;
use crate::schedule::Schedule;
use crate::shared::Shared;
use crate::tlb::Tlb;
use crate::word::{Ordering, Word};
use gpu_wire::GpuVa;
use gpu_wire::doorbell::Model;

/// Looks at a write pointer before the doorbell is looked at again. Few where schedules are explored: a look is a step
/// there.
const LOOKS: u32 = if cfg!(feature = "explore") { 2 } else { 500 };

/// The hot queue.
struct Hot<H: Host> {
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

/// The hot queue, or none.
pub(super) struct HotQueue<H: Host>(Option<Hot<H>>);

impl<H: Host> HotQueue<H> {
    /// None.
    pub fn new() -> Self {
        Self(None)
    }

    /// Returns whether the next look is left out.
    pub fn is_resting(&self) -> bool {
        self.0.as_ref().is_some_and(|hot| hot.rest != 0)
    }

    /// `queue` ran dry: it is the hot queue from now on, if its doorbell is this node's, and `watch` passes that over.
    pub fn warm<F>(
        &mut self,
        gpu: &Gpu<H>,
        watch: &mut Watch<H>,
        pace: &Pace,
        queue: &Shared<Queue<H>>,
        exec: &Exec<F>,
    ) {
        let dedicated = gpu.doorbells.model == Model::Dedicated;
        let Some(Binding { ring, control, geometry }) = exec.usable_ring().filter(|_| dedicated && LOOKS != 0) else {
            return self.cool(watch);
        };
        if !watch.pass_over(queue) {
            return self.cool(watch);
        }
        let next = GpuVa(ring.0 + geometry.spans(exec.consumed, 8).first);
        let (queue, consumed, rest) = (queue.clone(), exec.consumed, pace.rest());
        self.0 = Some(Hot { queue, control, next, consumed, looks: LOOKS, rest, has_work: false });
    }

    /// There is no hot queue any more.
    pub fn cool(&mut self, watch: &mut Watch<H>) {
        watch.pass_over_none();
        self.0 = None;
    }

    /// Looks at the hot queue.
    pub fn look(&mut self, gpu: &Gpu<H>, node: &Node<H>, tlb: &Tlb<H>, watch: &mut Watch<H>, pace: &Pace) {
        let Some(hot) = self.0.as_mut().filter(|hot| !hot.has_work) else { return };
        let space = hot.queue.context.space.id().number;
        let pointer = tlb.cached(space, hot.control, false).filter(|_| watch.passes_over());
        let Some(pointer) = pointer else { return self.cool(watch) };
        if hot.looks == 0 {
            // ORDERING[DB-1]: the doorbell is read before the write pointer: what it said is served.
            let rung = watch.rung(&gpu.doorbells);
            if pointer.load(Ordering::Acquire) == hot.consumed || gpu.mutation.is(Mutation::NotesUnserved) {
                watch.note(rung);
            }
            return self.cool(watch);
        }
        hot.looks -= 1;
        if hot.rest != 0 {
            hot.rest -= 1;
            return;
        }
        if !pace.rests()
            && let Some(line) = tlb.cached(space, hot.next, false)
        {
            core::hint::black_box(line.load(Ordering::Relaxed));
        }
        // ORDERING[RING-1]: the packets are read behind another look at the write pointer, in the turn.
        if pointer.load(Ordering::Relaxed) != hot.consumed {
            hot.has_work = true;
            bump(&node.counters.rings);
            bump(&hot.queue.rung);
        }
    }

    /// Returns whether the hot queue has work.
    pub fn has_work(&self) -> bool {
        self.0.as_ref().is_some_and(|hot| hot.has_work)
    }

    /// Takes the hot queue out, if it has work: it has the next turn where no other waits for one, and else a place
    /// in `schedule`, among them.
    pub fn take(&mut self, gpu: &Gpu<H>, node: &Node<H>, schedule: &mut Schedule<H>) -> Option<Shared<Queue<H>>> {
        let Hot { queue, .. } = self.0.take_if(|hot| hot.has_work)?;
        if schedule.is_empty() {
            schedule.begin_alone(&gpu.policy, &queue);
            return Some(queue);
        }
        node.list(schedule, &queue);
        gpu.arrived(&queue);
        None
    }
}
