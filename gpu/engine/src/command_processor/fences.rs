//! What fence packets do: waits, signals, log entries, and what follows from a signal.

use super::{Exec, Job, Pending, Synced, Wait};
use crate::context::Process;
use crate::counters::{add, bump};
use crate::engine::Core;
use crate::fault::Fault;
use crate::fence::{self, Park};
use crate::fence_log::Entry;
use crate::fence_table::OpenFence;
use crate::gpu::Gpu;
use crate::host::{Host, Lock};
use crate::memory::SharedWord;
use crate::mutation::Mutation;
use crate::queue::Queue;
use crate::shared::Shared;
use crate::slots::SlotId;
use crate::trace::Event;
use crate::word::{Ordering, Word};
use gpu_wire::GpuVa;
use gpu_wire::packet::{self, FaultKind, log_operation};

impl<H: Host> Core<H> {
    pub(super) fn fence_wait(
        &mut self,
        gpu: &Gpu<H>,
        job: &Job<'_, H>,
        exec: &mut Exec<H>,
        va: GpuVa,
        value: u64,
    ) -> Result<(), Fault> {
        // A packet cannot park: the OS holds packets until their waits are met.
        let queue = job.queue.ok_or(FaultKind::NotPermitted)?;
        let open = self.find_fence(&job.space.process, va)?;
        let counters = &gpu.nodes[self.node].counters;
        if open.fence.is_always_signaled() {
            bump(&counters.waits_met);
            exec.synced = Some(Synced::Wait(None));
            return Ok(());
        }
        let current = self.word(gpu, job, va, false)?.load(Ordering::Acquire);
        if current >= value {
            bump(&gpu.nodes[self.node].counters.waits_met);
            exec.synced = Some(Synced::Wait(None));
            return Ok(());
        }
        let observed = gpu.host.clock();
        let ticket = gpu.new_ticket();
        exec.wait = Some(Wait { open, address: va, value, ticket, observed });
        bump(&gpu.nodes[self.node].counters.waits_parked);
        gpu.nodes[self.node].trace.push(Event::Park, queue.slot.pack());
        self.park(gpu, job, exec)?;
        Ok(())
    }

    /// Puts the queue into the fence's parking lot; it stays there unless the wait became true meanwhile.
    pub(super) fn park(&mut self, gpu: &Gpu<H>, job: &Job<'_, H>, exec: &mut Exec<H>) -> Result<(), Fault> {
        let (Some(wait), Some(queue)) = (&exec.wait, job.queue) else { return Ok(()) };
        let view = self.translate(gpu, job, wait.address, 8, false)?;
        let word = self.tlb.span(view).and_then(|s| s.word(0)).ok_or(Fault::address(wait.address, false))?;
        let unmet = || word.load(Ordering::Acquire) < wait.value;
        let parked = wait.open.fence.parked.park(wait.value, wait.ticket, queue.clone(), &gpu.mutation, unmet);
        if parked != Ok(Park::Parked) {
            // Met: go on. No memory: look again at the next turn, as if woken.
            queue.wake(wait.ticket, parked == Ok(Park::Met), gpu.host.clock());
            self.again = true;
        }
        Ok(())
    }

    /// Whether the wait that the queue is in is over.
    pub(super) fn wait_over(&mut self, gpu: &Gpu<H>, job: &Job<'_, H>, exec: &mut Exec<H>) -> Result<bool, Fault> {
        let (Some(wait), Some(queue)) = (&exec.wait, job.queue) else { return Ok(true) };
        let woken = queue.woken.load(Ordering::Acquire);
        if !Queue::<H>::is_woken(woken, wait.ticket) {
            return Ok(false);
        }
        let met = Queue::<H>::is_granted(woken)
            || wait.open.fence.is_always_signaled()
            || self.word(gpu, job, wait.address, false)?.load(Ordering::Acquire) >= wait.value;
        if !met {
            // Somebody looked on everyone's behalf, and it is not time yet.
            queue.woken.store(0, Ordering::Relaxed);
            self.park(gpu, job, exec)?;
            return Ok(false);
        }
        // Not the time of this turn: another queue may have had the engine meanwhile.
        let end = queue.woken_at.load(Ordering::Relaxed);
        exec.synced = Some(Synced::Wait(Some((wait.observed, end))));
        exec.wait = None;
        Ok(true)
    }

    pub(super) fn fence_signal(
        &mut self,
        gpu: &Gpu<H>,
        job: &Job<'_, H>,
        exec: &mut Exec<H>,
        va: GpuVa,
        value: u64,
    ) -> Result<(), Fault> {
        let found = self.find_fence(&job.space.process, va);
        let is_progress = job.queue.is_some_and(|queue| queue.progress == va);
        let open = match found {
            Err(_) if is_progress => return self.signal_plain(gpu, job, exec, va, value),
            found => found?,
        };
        bump(&gpu.nodes[self.node].counters.signals);
        exec.synced = Some(Synced::Signal { told: None });
        if open.fence.is_always_signaled() && !gpu.mutation.is(Mutation::WritesDeadFence) {
            return Ok(());
        }
        let pending = || Pending { fence: open.fence.clone(), monitored: open.monitored, value, logged: false };
        if gpu.mutation.is(Mutation::NotifyBeforeValue) {
            exec.pending = Some(pending());
            self.resolve(gpu, job, exec);
        }
        let word = self.word(gpu, job, va, true)?;
        match open.fence.store(&word, value, &gpu.mutation) {
            // The device was lost while the engine looked for the word.
            None => return Ok(()),
            Some(backwards) => add(&gpu.nodes[self.node].counters.backwards, u64::from(backwards)),
        }
        // Only a value that was stored has consequences: a signal that faults lets no waiter go.
        exec.pending = (!gpu.mutation.is(Mutation::NotifyBeforeValue)).then(pending);
        Ok(())
    }

    /// Signals the queue's own progress fence where the process has no native fence open at its address: stores the
    /// value as a plain word. The engine does not know who waits for such a word, so the interrupts ask the OS to look
    /// at fences of both kinds.
    ///
    /// Source: `DXGKARG_CREATEHWQUEUE` promises that the native progress fence was created, not that it was opened.
    fn signal_plain(
        &mut self,
        gpu: &Gpu<H>,
        job: &Job<'_, H>,
        exec: &mut Exec<H>,
        va: GpuVa,
        value: u64,
    ) -> Result<(), Fault> {
        self.word(gpu, job, va, true)?.store(value, Ordering::Release);
        bump(&gpu.nodes[self.node].counters.signals);
        bump(&gpu.nodes[self.node].counters.interrupts_wanted);
        exec.synced = Some(Synced::Signal { told: None });
        self.notify_unlogged(gpu);
        self.notify_monitored(gpu);
        Ok(())
    }

    /// Writes an entry to the queue's log of waits or of signals, with the times of what it is about. Returns whether
    /// there is such a log.
    ///
    /// # Errors
    /// [`FaultKind::BadLog`] for an operation other than the one before.
    pub(super) fn log(
        &mut self,
        gpu: &Gpu<H>,
        queue: &Shared<Queue<H>>,
        synced: Synced,
        b: packet::Log,
    ) -> Result<bool, Fault> {
        let log = match (b.operation, synced) {
            (log_operation::SIGNAL_EXECUTED, Synced::Signal { .. }) => &queue.signals,
            (log_operation::WAIT_UNBLOCKED, Synced::Wait(_)) => &queue.waits,
            _ => return Err(FaultKind::BadLog.into()),
        };
        let now = gpu.host.clock();
        let (observed, end) = match synced {
            Synced::Signal { .. } => (0, now),
            Synced::Wait(None) => (now, now),
            Synced::Wait(Some(times)) => times,
        };
        let entry = Entry { value: b.value, handle: b.fence_handle, operation: b.operation, observed, end };
        let written = log.with(|log| log.write(entry, b.index_hint, gpu.barriers, &gpu.mutation));
        add(&gpu.nodes[self.node].counters.log_entries, u64::from(written));
        Ok(written)
    }

    /// Stage 7: draws the consequences of the last signal: queues that waited become ready, and the CPU is interrupted
    /// if it waits for the value.
    pub(crate) fn resolve(&mut self, gpu: &Gpu<H>, job: &Job<'_, H>, exec: &mut Exec<H>) {
        let Some(pending) = exec.pending.take() else { return };
        let node = &gpu.nodes[self.node];
        fence::resolve::<SharedWord<'_>>(&gpu.mutation);
        let woken = pending.fence.parked.wake(pending.value, |queue, ticket| {
            queue.wake(ticket, true, gpu.host.clock());
            gpu.make_ready(&queue);
        });
        add(&node.counters.wakes, woken.into());
        // The engine's part: does the context management processor hear of it? Without shadow state, always.
        let signals = pending.fence.shadow.as_ref().is_none_or(|shadow| shadow.signals_cmp(pending.value));
        // That processor's: interrupt or none?
        let wanted = signals
            && match self.translate_aside(gpu, job, pending.monitored, false).map(|view| self.tlb.span(view)) {
                Ok(Some(span)) => span.word(0).is_none_or(|word| fence::wants_interrupt(&word, pending.value)),
                // A MonitoredValue that cannot be read: interrupt. A spurious one is allowed, a lost one is not.
                _ => true,
            };
        node.trace.push(Event::Signal, pending.value);
        if !wanted {
            bump(&node.counters.interrupts_suppressed);
            return;
        }
        bump(&node.counters.interrupts_wanted);
        match job.queue {
            // The log that the interrupt names would not say what happened: the OS is asked to look at everything.
            _ if gpu.names_queues && !pending.logged => {
                if let Some(Synced::Signal { told }) = &mut exec.synced {
                    *told = Some(pending.fence.slot);
                }
                self.notify_unlogged(gpu);
            }
            queue => {
                let queue = queue.map_or(SlotId { index: u32::MAX, generation: 0 }, |queue| queue.slot);
                self.notify_fence(gpu, pending.fence.slot, queue);
            }
        }
    }

    /// Writes the progress fence of a buffer that is not run (null rendering): as a native fence where the process has
    /// one open at `fence`, otherwise as a monitored fence.
    ///
    /// # Errors
    /// The fault of the store, as for a signal by a packet.
    pub(crate) fn signal_progress(
        &mut self,
        gpu: &Gpu<H>,
        job: &Job<'_, H>,
        exec: &mut Exec<H>,
        fence: GpuVa,
        value: u64,
    ) -> Result<(), Fault> {
        if self.find_fence(&job.space.process, fence).is_err() {
            if job.queue.is_some_and(|queue| queue.native_progress) {
                return self.signal_plain(gpu, job, exec, fence, value);
            }
            return self.monitored_signal(gpu, job, &packet::MonitoredSignal { address: fence.0, value });
        }
        self.fence_signal(gpu, job, exec, fence, value)?;
        self.resolve(gpu, job, exec);
        Ok(())
    }

    pub(super) fn find_fence(&mut self, process: &Shared<Process<H>>, va: GpuVa) -> Result<OpenFence<H>, Fault> {
        let changes = process.fences.changes();
        // CAST: an index below the array's length.
        let line = &mut self.fences[(va.0 / 8) as usize % crate::engine::FENCE_LINES];
        if let Some(cached) = line
            && cached.process == process.number
            && cached.address == va
            && cached.changes == changes
        {
            return Ok(cached.open.clone());
        }
        let open = process.fences.find(va).ok_or(FaultKind::UnknownFence)?;
        *line = Some(crate::engine::FenceLine { process: process.number, address: va, changes, open: open.clone() });
        Ok(open)
    }
}
