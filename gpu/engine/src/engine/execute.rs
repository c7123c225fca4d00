//! One packet of a turn: what it says is decoded and carried out, and what that brings about is noted or drawn.

use super::Core;
use super::place::Place;
use crate::command_processor::{Effect, FenceRef, Processor, Unit, entry};
use crate::counters::{add, bump};
use crate::exec::{Exec, Pending, Synced};
use crate::fault::{Fault, Injected};
use crate::fence_log::Entry;
use crate::host::Host;
use crate::mutation::Mutation;
use crate::operation::Long;
use crate::shared::Shared;
use crate::stream::{At, Burst, Fetched};
use gpu_wire::GpuVa;
use gpu_wire::packet::{FaultKind, Packet};

impl<H: Host> Core<H> {
    /// Executes one packet of the burst.
    pub(super) fn packet(
        &mut self,
        at: &Place<'_, H>,
        exec: &mut Exec<FenceRef<H>>,
        burst: &mut Burst,
        fetched: &Fetched,
        clock: &mut Option<u64>,
    ) -> Result<(), Fault> {
        let Place { gpu, node, job, space } = *at;
        match gpu.faults.at_packet() {
            // The opcode becomes one that is not assigned: whichever packet it is, the fault shows.
            Some(Injected::Corrupt) => burst.corrupt(fetched),
            Some(Injected::Wedge) => self.wedged = true,
            None => {}
        }
        let progress = job.queue.map(|queue| queue.progress);
        let decoded = Packet::decode(burst.packet(fetched), job.privilege).and_then(|packet| packet.split(progress));
        let (decoded, own) = match decoded {
            Ok((packet, own)) => (Ok(packet), own),
            Err(kind) => (Err(kind), None),
        };
        if let Some(pending) = &mut exec.pending {
            let is_log = matches!(decoded, Ok(Packet::Log(_)));
            pending.fresh &= is_log;
            if !is_log && !goes_with(&decoded, pending, gpu.names_queues) {
                self.draw_consequences(gpu, node, job, space, exec);
            }
        }
        exec.plain = false;
        let decoded = decoded?;
        if own.is_some() && job.queue.is_none() {
            // A packet has no logs.
            return Err(FaultKind::BadLog.into());
        }
        if gpu.mutation.is(Mutation::NotifyBeforeValue)
            && let Packet::FenceSignal(b) = decoded
        {
            exec.pending = self.processor(at, |processor| processor.announce(job, GpuVa(b.fence), b.value));
            self.draw_consequences(gpu, node, job, space, exec);
        }
        match fetched.next {
            At::Buffer(next) => {
                if let Some(buffer) = &mut exec.buffer {
                    buffer.next = next;
                }
            }
            At::Ring(consumed) => {
                self.report_while_running(at, exec);
                exec.consumed = consumed;
            }
        }
        if let Some(queue) = job.queue {
            self.begun(gpu, node, queue);
        }
        let synced = exec.synced.take();
        let now = || *clock.get_or_insert_with(|| gpu.host.clock());
        let effect = self.processor(at, |processor| processor.perform(job, &decoded, synced, now));
        if effect.is_ok() || self.tlb.lack.is_none() {
            // One that is executed again is one packet.
            bump(&node.counters.packets);
            job.queue.inspect(|queue| add(&queue.packets, 1));
        } else {
            gpu.faults.comes_again();
        }
        let effect = effect?;
        if let Packet::FenceSignal(b) = decoded
            && progress == Some(GpuVa(b.fence))
        {
            self.submissions = self.submissions.saturating_add(1);
        }
        // Signals that follow each other in a burst have one time; behind everything that may take a while, or that
        // stores a time, it is read anew.
        if !matches!(effect, Effect::Nothing | Effect::Signal(_) | Effect::Log(..))
            || matches!(decoded, Packet::Timestamp(_))
        {
            *clock = None;
        }
        exec.log = own;
        match effect {
            Effect::Nothing => return Ok(()),
            Effect::Jump(_) => {
                // Where a loop begins anew, so does what is read of it.
                burst.forget();
                self.apply(at, exec, effect)?;
            }
            Effect::Log(entry, hint) => self.log(at, exec, synced, entry, hint),
            effect => self.apply(at, exec, effect)?,
        }
        if exec.buffer.is_some() && (exec.wait.is_some() || matches!(exec.synced, Some(Synced::Wait(_)))) {
            // What another agent has written before it let the wait go is read anew.
            burst.forget();
        }
        self.write_own_entry(at, exec, clock)
    }

    /// Runs `f` with the engine's command processor.
    pub(super) fn processor<R>(&mut self, at: &Place<'_, H>, f: impl FnOnce(&mut Processor<'_, '_, H>) -> R) -> R {
        let unit = Unit { node: at.node.ordinal(), monitored: at.gpu.monitored };
        let mut mmu = at.gpu.mmu(at.node, at.space, &mut self.tlb);
        f(&mut Processor { mmu: &mut mmu, fences: &mut self.fences, scratch: &mut self.scratch, unit })
    }

    /// Does what a packet has brought about.
    pub(super) fn apply(
        &mut self,
        at: &Place<'_, H>,
        exec: &mut Exec<FenceRef<H>>,
        effect: Effect<H>,
    ) -> Result<(), Fault> {
        let Place { gpu, node, job, space } = *at;
        match effect {
            Effect::Nothing | Effect::Log(..) => {}
            Effect::Jump(buffer) => exec.buffer = Some(buffer),
            Effect::Start(long) => exec.long = Some(long),
            Effect::Flush(process, start, end) => {
                exec.long = Some(Long::Flush { number: gpu.flush(process, start, end) });
            }
            Effect::Met => exec.synced = Some(Synced::Wait(None)),
            Effect::Wait(wait) => {
                exec.wait = Some(wait);
                self.begin_wait(gpu, node, job, space, exec)?;
            }
            Effect::Signal(pending) => {
                exec.synced = Some(Synced::Signal { told: None });
                if !gpu.mutation.is(Mutation::NotifyBeforeValue)
                    && let Some(mut pending) = pending
                {
                    let other =
                        |before: &Pending<FenceRef<H>>| !Shared::ptr_eq(&before.open.fence, &pending.open.fence);
                    if !gpu.mutation.is(Mutation::MergesByAddress) && exec.pending.as_ref().is_some_and(other) {
                        // The address was another fence's until now: that one was closed, and others have it still.
                        self.draw_early(at, exec);
                    }
                    // What is pending still is of the same fence.
                    if let Some(before) = &exec.pending {
                        pending.signals += before.signals;
                        pending.all_logged = before.all_logged && before.logged;
                    }
                    exec.pending = Some(pending);
                }
            }
            Effect::SignalPlain => {
                (exec.synced, exec.plain) = (Some(Synced::Signal { told: None }), true);
                self.reports.notify_either();
            }
            Effect::Monitored => self.reports.notify_monitored(),
        }
        Ok(())
    }

    /// Writes the entry of the wait or signal that the last packet was, if the packet says one and no wait is left.
    ///
    /// # Errors
    /// None that a packet of that shape brings about.
    pub(super) fn write_own_entry(
        &mut self,
        at: &Place<'_, H>,
        exec: &mut Exec<FenceRef<H>>,
        clock: &mut Option<u64>,
    ) -> Result<(), Fault> {
        let Some(log) = exec.log.take_if(|_| exec.wait.is_none()) else { return Ok(()) };
        let synced = exec.synced.take();
        let now = *clock.get_or_insert_with(|| at.gpu.host.clock());
        self.done = now;
        let entry = entry(synced.ok_or(FaultKind::BadLog)?, log, now)?;
        if at.gpu.mutation.is(Mutation::OwnEntryLate) {
            self.draw_consequences(at.gpu, at.node, at.job, at.space, exec);
            self.reports.raise_due(at.gpu, at.node);
        }
        self.log(at, exec, synced, entry, log.index_hint);
        Ok(())
    }

    /// A LOG packet, behind what `synced` says: its entry is written with those that follow it in the burst.
    fn log(
        &mut self,
        at: &Place<'_, H>,
        exec: &mut Exec<FenceRef<H>>,
        synced: Option<Synced>,
        entry: Entry,
        hint: u32,
    ) {
        let Place { gpu, node, job, .. } = *at;
        if self.entries.is_full() {
            let written = self.write_log(gpu, node, job);
            exec.pending.iter_mut().for_each(|pending| pending.all_logged &= written);
        }
        self.entries.add(entry, hint);
        let Some(Synced::Signal { told }) = synced else { return };
        if let Some(pending) = &mut exec.pending {
            (pending.logged, pending.fresh) = (true, false);
        }
        if let Some(fence) = told
            && self.write_log(gpu, node, job)
            && let Some(queue) = job.queue
        {
            // An interrupt has told of the signal already, and the entry comes behind it: an OS that wakes by the log
            // has not found it.
            self.reports.notify_fence(gpu, node, fence, queue.slot);
        }
    }
}

/// Returns whether the consequences of `pending` may be drawn behind the packet as well: it brings about nothing
/// itself, or it signals the same fence, and no less.
fn goes_with<H: Host>(
    packet: &Result<Packet<'_>, FaultKind>,
    pending: &Pending<FenceRef<H>>,
    names_queues: bool,
) -> bool {
    match packet {
        Ok(Packet::Nop | Packet::Store(_) | Packet::Store32(_)) => true,
        Ok(Packet::FenceSignal(b)) => {
            b.fence == pending.address.0 && b.value >= pending.value && (pending.logged || !names_queues)
        }
        _ => false,
    }
}
