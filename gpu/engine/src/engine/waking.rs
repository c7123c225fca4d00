//! Queues that a signal still has to wake.
//!
//! A signal may let any number of queues go. It wakes so many at once as take some microseconds; then the engine looks
//! up, and wakes as many at each look or step. The packet that it has in hand is the last one before all are awake.
//! What is left is the engine's and not the stream's: the stream may come off in between, and be suspended or
//! destroyed, and the queues are woken all the same. The value was stored long before, and the CPU was told with the
//! first of the queues (FENCE-1).

use super::{Core, list};
use crate::counters::add;
use crate::gpu::Gpu;
use crate::host::Host;
use crate::mutation::Mutation;
use crate::node::Node;
use crate::queue::ParkedFence;
use crate::shared::Shared;
use crate::waking::Rest;

/// Queues that are woken between two looks of the engine: some 6 µs.
const WOKEN_AT_ONCE: u32 = 64;
/// What a wake counts for, in bytes moved: some 100 ns at 10 GB/s.
const WAKE_COST: u64 = 1 << 10;

impl<H: Host> Core<H> {
    /// Begins to wake what waits for `value` of `fence`, behind the fence of the signal. Waits with a ticket below
    /// `before` began before the signal's store.
    pub(super) fn wake_waiters(
        &mut self,
        gpu: &Gpu<H>,
        node: &Node<H>,
        fence: &Shared<ParkedFence<H>>,
        value: u64,
        before: u64,
    ) {
        let at_once = if gpu.mutation.is(Mutation::WakesAllAtOnce) { u32::MAX } else { WOKEN_AT_ONCE };
        let before = if gpu.mutation.is(Mutation::GrantsLater) { u64::MAX } else { before };
        let mut signal = Rest { fence: fence.clone(), value, before, until: None };
        if !self.wake_some(gpu, node, &mut signal, at_once) {
            return;
        }
        // No stream has more than there is room for: it executes no packet before the queues of the last are awake.
        debug_assert!(self.waking.has_room());
        if let Some(mut rest) = self.waking.take_if_full() {
            self.wake_some(gpu, node, &mut rest, u32::MAX);
        }
        self.waking.put(signal);
    }

    /// Wakes some of the queues that are left. Returns whether there may be more.
    pub(super) fn go_on_waking(&mut self, gpu: &Gpu<H>, node: &Node<H>) -> bool {
        let Some(mut rest) = self.waking.take() else { return false };
        if self.wake_some(gpu, node, &mut rest, WOKEN_AT_ONCE) {
            self.waking.put_back(rest);
        }
        !self.waking.is_over()
    }

    /// The same as a step of its own. Returns whether there was anything to do.
    pub(super) fn step_waking(&mut self, gpu: &Gpu<H>, node: &Node<H>) -> bool {
        if self.waking.is_over() {
            return false;
        }
        // A step begins with a look.
        self.take_work(node);
        self.go_on_waking(gpu, node);
        true
    }

    /// Wakes up to `limit` queues, and charges for them. Returns whether there are more.
    fn wake_some(&mut self, gpu: &Gpu<H>, node: &Node<H>, rest: &mut Rest<H>, limit: u32) -> bool {
        let Rest { fence, value, before, until } = rest;
        let (woken, more) = fence.parked.wake_some(*value, *until, limit, |queue, ticket| {
            queue.wake(ticket, ticket < *before, gpu.host.clock());
            if queue.context.node == node.index {
                list(&mut self.schedule, node, &queue);
                gpu.arrived(&queue);
            } else {
                gpu.make_ready(&queue);
            }
        });
        // Where there are more, searching took the rest of the limit.
        let counted = if more.is_some() { limit } else { woken };
        self.tlb.work += WAKE_COST * u64::from(counted);
        add(&node.counters.wakes, woken.into());
        *until = more;
        more.is_some()
    }
}
