//! What waits and signals bring about: queues park and wake, and the CPU is interrupted.

use super::Core;
use super::place::Place;
use super::waking::Waker;
use crate::address_space::AddressSpace;
use crate::command_processor::{FenceRef, Job};
use crate::consequences::{self, Agent};
use crate::counters::{add, bump};
use crate::exec::{Exec, Pending, Synced};
use crate::fault::Fault;
use crate::fence::{self, Park};
use crate::gpu::Gpu;
use crate::host::Host;
use crate::memory::{SharedWord, is_explored};
use crate::node::Node;
use crate::queue::Queue;
use crate::slots::SlotId;
use crate::trace::Event;
use crate::word::{Ordering, Word};
use gpu_wire::NodeOrdinal;

/// How often the engine looks at the value of a wait that is not met before it parks the queue. With the pause between
/// two looks, of 25 to 45 ns, that is some two microseconds, in which an agent that is about to signal does so. Not
/// where schedules are explored: a look is a step there.
const LOOKS: u32 = 64;
/// What such a look counts for, in bytes moved.
const LOOK_COST: u64 = 350;
/// Looks of which the last one goes through the node's doorbells as well.
const LOOKS_PER_ROUND: u32 = 8;
/// What it counts for more for each doorbell, in bytes moved.
const DOORBELL_COST: u64 = 50;

impl<H: Host> Core<H> {
    /// A wait that is not met begins: looks at the value for a while, and parks the queue.
    ///
    /// # Errors
    /// The address fault of the fence's value.
    pub(super) fn begin_wait(
        &mut self,
        gpu: &Gpu<H>,
        node: &Node<H>,
        job: &Job<'_, H>,
        space: &AddressSpace<H>,
        exec: &mut Exec<FenceRef<H>>,
    ) -> Result<(), Fault> {
        let (Some(wait), Some(queue)) = (&mut exec.wait, job.queue) else { return Ok(()) };
        wait.ticket = gpu.new_ticket();
        if self.reports.is_due() {
            // What was signaled before does not wait with this queue.
            self.write_log(gpu, node, job);
            self.reports.raise_due(gpu, node);
        }
        let mut mmu = gpu.mmu(node, space, &mut self.tlb);
        // Without memory for the mapping the queue looks again at its next turn, as if woken.
        let look_later = || queue.wake(wait.ticket, false, gpu.host.clock());
        let word = mmu.word(wait.address, false).inspect_err(|_| look_later())?;
        let looks = if is_explored() { 0 } else { LOOKS };
        let (mut looked, mut met) = (0, false);
        while looked < looks {
            looked += 1;
            met = word.load(Ordering::Acquire) >= wait.value || wait.open.fence.is_always_signaled();
            // Others need this engine: the queue waits in the fence's list.
            let is_needed = || {
                node.attention.load(Ordering::Relaxed) != 0
                    || node.packets.is_busy()
                    || gpu.global.concerns(node.index)
                    || !self.schedule.is_empty()
                    || !self.arriving.is_empty()
                    || !node.arrivals.is_empty()
                    || (looked.is_multiple_of(LOOKS_PER_ROUND) && self.watch.has_rung(&gpu.doorbells))
            };
            if met || is_needed() {
                break;
            }
            core::hint::spin_loop();
        }
        let doorbells = u64::from(looked / LOOKS_PER_ROUND) * self.watch.looked_at() as u64;
        self.tlb.work += LOOK_COST * u64::from(looked) + DOORBELL_COST * doorbells;
        if met {
            bump(&node.counters.waits_met);
            exec.synced = Some(Synced::Wait(Some((wait.observed, gpu.host.clock()))));
            exec.wait = None;
            return Ok(());
        }
        bump(&node.counters.waits_parked);
        node.trace.push(Event::Park, queue.slot.pack());
        self.park(gpu, node, job, space, exec)
    }

    /// Puts the queue into the fence's list; it stays there unless the wait became true meanwhile.
    fn park(
        &mut self,
        gpu: &Gpu<H>,
        node: &Node<H>,
        job: &Job<'_, H>,
        space: &AddressSpace<H>,
        exec: &mut Exec<FenceRef<H>>,
    ) -> Result<(), Fault> {
        let (Some(wait), Some(queue)) = (&exec.wait, job.queue) else { return Ok(()) };
        let mut mmu = gpu.mmu(node, space, &mut self.tlb);
        let look_later = || queue.wake(wait.ticket, false, gpu.host.clock());
        let word = mmu.word(wait.address, false).inspect_err(|_| look_later())?;
        let unmet = || word.load(Ordering::Acquire) < wait.value;
        let parked = wait.open.fence.parked.park(wait.value, wait.ticket, queue, &gpu.mutation, unmet);
        if parked != Ok(Park::Parked) {
            // Met: go on. No memory: look again at the next turn, as if woken.
            queue.wake(wait.ticket, parked == Ok(Park::Met), gpu.host.clock());
            self.looks_again = true;
        }
        Ok(())
    }

    /// Returns whether the wait that the stream is in is over.
    ///
    /// # Errors
    /// The address fault of the fence's value.
    pub(super) fn wait_over(
        &mut self,
        gpu: &Gpu<H>,
        node: &Node<H>,
        job: &Job<'_, H>,
        space: &AddressSpace<H>,
        exec: &mut Exec<FenceRef<H>>,
    ) -> Result<bool, Fault> {
        let (Some(wait), Some(queue)) = (&exec.wait, job.queue) else { return Ok(true) };
        let woken = queue.woken.load(Ordering::Acquire);
        if !Queue::<H>::is_woken(woken, wait.ticket) {
            return Ok(false);
        }
        let met = Queue::<H>::is_granted(woken)
            || wait.open.fence.is_always_signaled()
            || gpu.mmu(node, space, &mut self.tlb).word(wait.address, false)?.load(Ordering::Acquire) >= wait.value;
        if !met {
            // The queue was taken out to look for itself, and it is not time yet.
            queue.woken.store(0, Ordering::Relaxed);
            self.park(gpu, node, job, space, exec)?;
            return Ok(false);
        }
        // Where a signal has let the queue go, not the time of this turn: another queue may have had the engine
        // meanwhile. A queue that looks for itself finds the value now.
        let granted = Queue::<H>::is_granted(woken);
        let end = if granted { queue.woken_at.load(Ordering::Relaxed) } else { gpu.host.clock() };
        exec.synced = Some(Synced::Wait(Some((wait.observed, end))));
        exec.wait = None;
        Ok(true)
    }

    /// Writes the log entries that were gathered. Returns whether each signal among them has its entry.
    pub(super) fn write_log(&mut self, gpu: &Gpu<H>, node: &Node<H>, job: &Job<'_, H>) -> bool {
        let Some(queue) = job.queue.filter(|_| !self.entries.is_empty()) else { return true };
        if gpu.host.is_traced() {
            let handle = gpu.slots.handle(queue.slot);
            // CAST: a node index.
            let ordinal = NodeOrdinal(queue.context.node as u32);
            self.entries.iter().for_each(|entry| gpu.host.trace_fence(ordinal, handle, entry));
        }
        let written = self.entries.write(queue, gpu.barriers, &gpu.mutation);
        add(&node.counters.log_entries, written.count);
        written.signals
    }

    /// Draws the consequences of the last signals before their time, which is seldom: not where the hot path is.
    #[cold]
    #[inline(never)]
    pub(super) fn draw_early(&mut self, at: &Place<'_, H>, exec: &mut Exec<FenceRef<H>>) {
        self.draw_consequences(at.gpu, at.node, at.job, at.space, exec);
    }

    /// Stage 7: draws the consequences of the last signals: queues that waited become ready, and the CPU is interrupted
    /// if it waits for the value. Once for all signals of one fence in a burst: the stores, log entries and indexes of
    /// all of them come before the one fence.
    pub(super) fn draw_consequences(
        &mut self,
        gpu: &Gpu<H>,
        node: &Node<H>,
        job: &Job<'_, H>,
        space: &AddressSpace<H>,
        exec: &mut Exec<FenceRef<H>>,
    ) {
        let Some(mut pending) = exec.pending.take() else { return };
        let mut drawing = Drawing { core: self, at: Place { gpu, node, job, space }, pending: &pending };
        let shadow = pending.open.fence.shadow.as_ref();
        let drawn = consequences::draw::<SharedWord<'_>, _>(&mut drawing, pending.value, shadow, &gpu.mutation);
        pending.logged &= drawn.logged && pending.all_logged;
        node.trace.push(Event::Signal, pending.value);
        if !drawn.interrupts {
            add(&node.counters.interrupts_suppressed, pending.signals);
            return;
        }
        add(&node.counters.interrupts_wanted, pending.signals);
        if gpu.names_queues && !pending.logged {
            // The log that the interrupt names would not say what happened: the OS is asked to look at everything.
            if pending.fresh
                && let Some(Synced::Signal { told }) = &mut exec.synced
            {
                *told = Some(pending.open.fence.slot);
            }
            self.reports.notify_unlogged(gpu, node);
        } else {
            let queue = job.queue.map_or(SlotId { index: u32::MAX, generation: 0 }, |queue| queue.slot);
            self.reports.notify_fence(gpu, node, pending.open.fence.slot, queue);
        }
    }
}

/// The engine's steps for the last signals of a stream.
struct Drawing<'a, 's, H: Host> {
    core: &'a mut Core<H>,
    at: Place<'s, H>,
    pending: &'a Pending<FenceRef<H>>,
}

impl<H: Host> Agent for Drawing<'_, '_, H> {
    fn write_log(&mut self) -> bool {
        self.core.write_log(self.at.gpu, self.at.node, self.at.job)
    }

    fn wake(&mut self) {
        let Pending { open, value, before, .. } = self.pending;
        let Place { gpu, node, .. } = self.at;
        let Core { waking, schedule, tlb, .. } = &mut *self.core;
        Waker { gpu, node, schedule, work: &mut tlb.work }.begin(waking, &open.fence, *value, *before);
    }

    fn is_awaited(&mut self) -> bool {
        let Place { gpu, node, space, .. } = self.at;
        let mut mmu = gpu.mmu(node, space, &mut self.core.tlb);
        // It was mapped in front of the store. Where it has gone since, and cannot be read before the engine looks up:
        // interrupt. A spurious one is allowed, a lost one is not.
        let monitored = mmu.word_aside(self.pending.open.monitored, false);
        monitored.map_or(true, |word| fence::wants_interrupt(&word, self.pending.value))
    }
}
