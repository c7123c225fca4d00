//! Stage 7 of 8, the engine's side: what it tells the OS, and the interrupt that it asks for.
//!
//! Everything that an engine reports goes through here and into its node's mailbox ([`crate::notice`]). What the
//! mailbox has no room for waits here; when much waits, the engine runs nothing more until the interrupt routine has
//! come.

use crate::NoMemory;
use crate::counters::bump;
use crate::gpu::Gpu;
use crate::host::Host;
use crate::mutation::{Chosen, Mutation};
use crate::node::{Node, scan};
use crate::notice::Notice;
use crate::outbox::{self, Signaled};
use crate::slots::SlotId;
use crate::trace::Event;
use alloc::collections::VecDeque;
use core::sync::atomic::Ordering;

/// Notices that wait for room before the engine runs nothing more.
const FULL: usize = 64;
/// Room for notices: one step adds few to a list that is not full.
const ROOM: usize = FULL + 16;

/// What one engine has to report.
pub(crate) struct Reports {
    /// Notices that must not be lost and have no place in the mailbox yet.
    backlog: VecDeque<Notice>,
    /// Bits of the node's scan word that signals have left, and for which no interrupt is asked yet.
    due: u64,
}

impl Reports {
    /// Nothing.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new() -> Result<Self, NoMemory> {
        let mut backlog = VecDeque::new();
        backlog.try_reserve_exact(ROOM)?;
        Ok(Self { backlog, due: 0 })
    }

    /// Returns whether the engine may run nothing, since what it would report has no room.
    pub fn is_full(&self, mutation: &Chosen) -> bool {
        self.backlog.len() >= FULL && !mutation.is(Mutation::RunsWhenFull)
    }

    /// Returns whether no notice waits for room.
    pub fn is_empty(&self) -> bool {
        self.backlog.is_empty()
    }

    /// Forgets the notices that wait for room and that a reset has ended.
    pub fn forget(&mut self, is_over: impl Fn(Notice) -> bool) {
        self.backlog.retain(|notice| !is_over(*notice));
    }

    /// Adds a notice that must not be lost, and asks for the interrupt.
    pub fn notify<H: Host>(&mut self, gpu: &Gpu<H>, node: &Node<H>, notice: Notice) {
        if self.backlog.len() < self.backlog.capacity() {
            self.backlog.push_back(notice);
        } else {
            debug_assert!(false, "an engine whose list is full runs nothing, and one step adds few");
        }
        self.deliver(gpu, node);
    }

    /// A fence passed its MonitoredValue. Coalesced with a notice that the interrupt routine has not read: for the same
    /// fence, or, where the interrupt names queues, for the same queue. When the mailbox is full, the OS is asked to
    /// scan everything instead.
    pub fn notify_fence<H: Host>(&mut self, gpu: &Gpu<H>, node: &Node<H>, fence: SlotId, queue: SlotId) {
        let key = if gpu.names_queues { queue } else { fence };
        outbox::post(&node.mailbox, &node.scan, &gpu.slots, Signaled { fence, queue, key }, &gpu.mutation);
        self.raise(gpu, node);
    }

    /// A fence passed its MonitoredValue, and no log says which.
    pub fn notify_unlogged<H: Host>(&mut self, gpu: &Gpu<H>, node: &Node<H>) {
        node.scan.add(scan::NATIVE);
        self.raise(gpu, node);
    }

    /// A monitored fence was signaled. The interrupt is raised when the stream's turn ends, or before it begins or goes
    /// on with an operation ([`Self::raise_due`]): a stream of signals makes one interrupt and not one for each, which
    /// any process could have the processors do nothing but serve. No interrupt tells of it before that.
    pub fn notify_monitored(&mut self) {
        self.due |= scan::MONITORED;
    }

    /// A progress fence was signaled of which the engine does not know whether it is native: the OS is to look at
    /// fences of both kinds. The interrupt is raised as for a monitored fence.
    pub fn notify_either(&mut self) {
        self.due |= scan::NATIVE | scan::MONITORED;
    }

    /// Returns whether an interrupt is due ([`Self::raise_due`]).
    pub fn is_due(&self) -> bool {
        self.due != 0
    }

    /// Raises the interrupt that signals of monitored fences, and of progress fences of either kind, have left due. The
    /// log entries of those signals are written.
    pub fn raise_due<H: Host>(&mut self, gpu: &Gpu<H>, node: &Node<H>) {
        let bits = core::mem::take(&mut self.due);
        if bits != 0 {
            node.scan.add(bits);
            self.raise(gpu, node);
        }
    }

    /// Moves what the mailbox had no room for into it, and asks again for an interrupt that could not be raised.
    pub fn deliver<H: Host>(&mut self, gpu: &Gpu<H>, node: &Node<H>) {
        let mut moved = false;
        while let Some(notice) = self.backlog.front() {
            if !node.mailbox.push(*notice) {
                break;
            }
            self.backlog.pop_front();
            moved = true;
        }
        if moved || node.retry_interrupt.load(Ordering::Relaxed) {
            self.raise(gpu, node);
        }
    }

    /// Asks for the interrupt, unless one is on its way that will see everything.
    pub fn raise<H: Host>(&mut self, gpu: &Gpu<H>, node: &Node<H>) {
        if !node.mailbox.request() {
            return;
        }
        // Before the interrupt: what sets it meanwhile (`Gpu::raise_again`) has seen this interrupt lost.
        node.retry_interrupt.store(false, Ordering::SeqCst);
        if !gpu.faults.interrupt_fails() && gpu.host.raise_interrupt(node.ordinal()) {
            bump(&node.counters.interrupts_raised);
            node.trace.push(Event::Interrupt, 0);
        } else {
            bump(&node.counters.interrupts_failed);
            node.mailbox.withdraw();
            let asks_again = !gpu.mutation.is(Mutation::ForgetsFailedInterrupt);
            node.retry_interrupt.store(asks_again, Ordering::Relaxed);
        }
    }
}
