//! Queues that a signal still has to wake.
//!
//! A signal may let any number of queues go. It wakes so many at once as take some microseconds; then the engine looks
//! up, and wakes as many at each look or step. The packet that it has in hand is the last one before all are awake.
//! What is left is the engine's and not the stream's: the stream may come off in between, and be suspended or
//! destroyed, and the queues are woken all the same. The value was stored long before, and the CPU was told with the
//! first of the queues (FENCE-1).

use crate::counters::add;
use crate::gpu::Gpu;
use crate::host::Host;
use crate::mutation::Mutation;
use crate::node::Node;
use crate::queue::ParkedFence;
use crate::schedule::Schedule;
use crate::shared::Shared;
use crate::waking::{Rest, Waking};

/// Queues that are woken between two looks of the engine: some 6 µs.
const WOKEN_AT_ONCE: u32 = 64;
/// What a wake counts for, in bytes moved: some 100 ns at 10 GB/s.
const WAKE_COST: u64 = 1 << 10;

/// What wakes queues.
pub(super) struct Waker<'a, H: Host> {
    pub gpu: &'a Gpu<H>,
    pub node: &'a Node<H>,
    pub schedule: &'a mut Schedule<H>,
    /// The engine's work, in bytes moved.
    pub work: &'a mut u64,
}

impl<H: Host> Waker<'_, H> {
    /// Begins to wake what waits for `value` of `fence`, behind the fence of the signal. Waits with a ticket below
    /// `before` began before the signal's store. What is left is in `waking`.
    pub fn begin(&mut self, waking: &mut Waking<H>, fence: &Shared<ParkedFence<H>>, value: u64, before: u64) {
        let mutation = &self.gpu.mutation;
        let at_once = if mutation.is(Mutation::WakesAllAtOnce) { u32::MAX } else { WOKEN_AT_ONCE };
        let before = if mutation.is(Mutation::GrantsLater) { u64::MAX } else { before };
        let mut signal = Rest { fence: fence.clone(), value, before, until: None };
        if !self.wake_some(&mut signal, at_once) {
            return;
        }
        // No stream has more than there is room for: it executes no packet before the queues of the last are awake. So
        // what follows never happens; it would be long, and lose no wake.
        debug_assert!(waking.has_room());
        if let Some(mut rest) = waking.take_if_full() {
            self.wake_some(&mut rest, u32::MAX);
        }
        waking.put(signal);
    }

    /// Wakes some of the queues that are left. Returns whether there may be more.
    pub fn go_on(&mut self, waking: &mut Waking<H>) -> bool {
        let Some(mut rest) = waking.take() else { return false };
        if self.wake_some(&mut rest, WOKEN_AT_ONCE) {
            waking.put_back(rest);
        }
        !waking.is_over()
    }

    /// Wakes up to `limit` queues, and charges for them. Returns whether there are more.
    fn wake_some(&mut self, rest: &mut Rest<H>, limit: u32) -> bool {
        let (gpu, node) = (self.gpu, self.node);
        let Rest { fence, value, before, until } = rest;
        let found = fence.parked.wake_some(*value, *until, limit, |queue, ticket| {
            queue.wake(ticket, ticket < *before, gpu.host.clock());
            if queue.context.node == node.index {
                node.list(self.schedule, &queue);
                gpu.arrived(&queue);
            } else {
                gpu.make_ready(&queue);
            }
        });
        *self.work += WAKE_COST * u64::from(found.counted());
        add(&node.counters.wakes, found.woken.into());
        *until = found.more;
        found.more.is_some()
    }
}
