//! Queues on their way to a turn: doorbells and write pointers that are looked at, queues that have arrived, and the
//! one that is next.

use super::watched::Eyes;
use super::{Core, Watched};
use crate::counters::bump;
use crate::doorbell::Watch;
use crate::gpu::Gpu;
use crate::host::Host;
use crate::node::Node;
use crate::queue::Queue;
use crate::shared::Shared;
use gpu_wire::doorbell::{Model, token_of};

/// Queues that have arrived and are taken into the engine's list, or turned around on the way there, between two looks:
/// some 3 µs.
const TAKEN_IN_AT_ONCE: usize = 32;
/// What taking a queue in counts for, in bytes moved.
const TAKE_IN_COST: u64 = 1 << 10;
/// What turning one around counts for, or making one ready: its cache line.
const TURN_AROUND_COST: u64 = 512;
/// What a ring of a doorbell counts for: its queue is put in line, and the scheduling log says so.
const RING_COST: u64 = 1 << 10;
/// What it counts for to look for the queue that rang the global doorbell, in bytes moved.
const SEARCHED_COST: u64 = 16 << 10;

impl<H: Host> Core<H> {
    /// Looks at the doorbells, and at the write pointers that are watched. Returns which there are.
    pub(super) fn poll(&mut self, gpu: &Gpu<H>, node: &Node<H>) -> Watched {
        let doorbells = match gpu.doorbells.model {
            Model::Dedicated => {
                self.watch.refresh(&gpu.doorbells, node.index);
                let Self { hot, tlb, watch, pace, .. } = self;
                hot.look(gpu, node, tlb, watch, pace);
                let Self { watch, schedule, tlb, .. } = self;
                watch.poll(&gpu.doorbells, |queue| {
                    tlb.work += RING_COST;
                    bump(&node.counters.rings);
                    if queue.context.node != node.index {
                        // The doorbell is just changing hands, and its new queue is another engine's.
                        return gpu.make_ready(queue);
                    }
                    bump(&queue.rung);
                    node.list(schedule, queue);
                    gpu.arrived(queue);
                })
            }
            Model::Global => {
                let looks = gpu.global.is_watched_by(node.index);
                if let Some(value) = looks.then(|| Watch::poll_global(&gpu.doorbells)).flatten() {
                    bump(&node.counters.rings);
                    self.tlb.work += SEARCHED_COST;
                    gpu.global.rang(gpu, token_of(value));
                }
                if gpu.global.concerns(node.index) {
                    self.tlb.work += TURN_AROUND_COST * gpu.global.go_on(gpu) as u64;
                }
                looks
            }
        };
        let Self { watched, tlb, schedule, .. } = self;
        watched.look(&mut Eyes { gpu, node, tlb, schedule });
        match self.watched.is_empty() {
            _ if doorbells => Watched::Doorbells,
            false => Watched::WritePointers,
            true => Watched::Nothing,
        }
    }

    /// Takes queues that have arrived into the engine's own list, as many as between two looks, and charges for them.
    #[inline]
    pub(super) fn take_in(&mut self, node: &Node<H>) {
        if self.has_arrivals(node) {
            self.take_in_some(node);
        }
    }

    #[inline(never)]
    pub(super) fn take_in_some(&mut self, node: &Node<H>) {
        if self.arriving.is_empty() {
            self.arriving = node.arrivals.take();
        }
        let turned = self.arriving.turn_around(TAKEN_IN_AT_ONCE);
        self.tlb.work += TURN_AROUND_COST * turned as u64;
        for _ in turned..TAKEN_IN_AT_ONCE {
            let Some(queue) = self.arriving.next() else { break };
            self.tlb.work += TAKE_IN_COST;
            if let Err(queue) = self.schedule.add(queue) {
                node.arrivals.add(queue);
            }
        }
    }

    /// Returns whether queues have arrived that are not in the engine's own list.
    pub(super) fn has_arrivals(&self, node: &Node<H>) -> bool {
        !self.arriving.is_empty() || !node.arrivals.is_empty()
    }

    /// Returns whether a queue waits for its turn.
    pub(super) fn has_ready(&self, node: &Node<H>) -> bool {
        !self.schedule.is_empty() || self.has_arrivals(node) || self.hot.has_work()
    }

    /// The queue whose turn it is.
    pub(super) fn next_ready(&mut self, gpu: &Gpu<H>, node: &Node<H>) -> Option<Shared<Queue<H>>> {
        self.take_in(node);
        if let Some(queue) = self.hot.take(gpu, node, &mut self.schedule) {
            return Some(queue);
        }
        let queue = self.schedule.next(&gpu.policy, || gpu.host.clock(), |queue| node.arrivals.add(queue));
        self.tlb.work += TAKE_IN_COST * self.schedule.take_moved();
        let queue = queue?;
        queue.take_turn(&gpu.mutation);
        Some(queue)
    }
}
