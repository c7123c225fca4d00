//! A turn: one queue, or one packet, runs until something else must happen.
//!
//! Before each packet, and between the steps of operations, the engine looks up: it serves flushes, suspensions and
//! resets, and it comes off when the turn is over and others wait. So a stream comes off anywhere: between two packets,
//! inside a command buffer, inside an operation ([`crate::exec`]).

use super::outcome::Outcome;
use super::place::{Place, QUEUE_STREAM, flush_is_done, is_asked, is_watched_only, line};
use super::rings::{leaves_lost_ring, leaves_old_ring, leaves_ring, take_rings_over};
use super::{Core, Step};
use crate::address_space::{AddressSpace, EVERY_PROCESS};
use crate::command_processor::{FenceRef, Job};
use crate::counters::{add, bump};
use crate::exec::Exec;
use crate::fault::Fault;
use crate::gpu::Gpu;
use crate::host::Host;
use crate::mutation::Mutation;
use crate::node::{Control, Node, attention};
use crate::notice::Notice;
use crate::operation::Long;
use crate::ops::{self, Advance, STEP};
use crate::queue::{Queue, State, abandon};
use crate::scheduling_log::Moment;
use crate::shared::Shared;
use crate::stream::{Burst, NoPacket};
use crate::tlb::Lack;
use crate::trace::Event;
use crate::word::Ordering;
use gpu_wire::doorbell::Model;
use gpu_wire::packet::{FaultKind, Packet, Privilege};

/// Work of a turn while others wait, in bytes moved: some 400 µs at 10 GB/s.
const TURN: u64 = 4 << 20;
/// What a packet counts for, in bytes moved.
const PACKET: u64 = 1 << 10;
/// Work since the last look, in bytes moved, behind which the consequences of a signal are drawn before anything else:
/// some 3 µs. Less is what is left of the burst, as a rule.
const DRAWN: u64 = 32 << 10;

impl<H: Host> Core<H> {
    /// Runs one queue for a turn, if it is there still.
    pub(super) fn run(&mut self, gpu: &Gpu<H>, node: &Node<H>, queue: &Shared<Queue<H>>) -> Step {
        node.turn.begin(queue.slot.pack(), &gpu.mutation);
        let step = self.take_turn(gpu, node, queue);
        node.turn.end();
        step
    }

    fn take_turn(&mut self, gpu: &Gpu<H>, node: &Node<H>, queue: &Shared<Queue<H>>) -> Step {
        queue.context.outlives(node.resets.load(Ordering::Acquire));
        if queue.state() != State::Active || !queue.context.is_runnable() {
            // A suspended context's queues become ready again when it is resumed.
            if queue.state() != State::Active {
                self.log_moment(gpu, node, queue, Moment::Ended { ran: false }, None);
            }
            return Step::Worked;
        }
        let Some(mut exec) = queue.exec.take() else { return Step::Worked };
        node.scheduling.begin_turn(&queue.context);
        (self.ran, self.begun) = (false, None);
        self.submissions = 0;
        self.contested = (!self.schedule.is_empty()).then(|| gpu.host.clock());
        node.trace.push(Event::Run, queue.slot.pack());
        node.board.begin(QUEUE_STREAM, queue.slot.pack(), queue.context.slot.pack());
        self.looks_again = false;
        let space = &queue.context.space;
        let job = Job { process: &space.process, privilege: Privilege::User, queue: Some(queue), packet: None };
        let mut begun = false;
        let outcome = loop {
            let outcome = self.execute(gpu, node, &job, space, &mut exec);
            if outcome != Outcome::Drained || queue.user_mode {
                break outcome;
            }
            // Between two buffers the queue can come off, however fast it is fed; each turn runs one at least.
            let is_wanted = node.attention.load(Ordering::Acquire) != 0 || self.others_wait(gpu, node, &job);
            if begun && is_wanted && queue.has_submissions() && !gpu.mutation.is(Mutation::KernelQueueStays) {
                break Outcome::Budget;
            }
            begun = true;
            let Some(next) = queue.next_submission() else { break outcome };
            bump(&queue.consumed);
            self.begun(gpu, node, queue);
            queue.running.store(next.progress, Ordering::Relaxed);
            if next.null {
                exec.owed = Some(next.progress);
                exec.remember();
            } else if let Err(kind) = exec.begin(next.address, next.length) {
                break Outcome::Faulted(kind.into());
            }
        };
        self.note_end(gpu, node, &job, &exec, outcome);
        let mut stays_ready = self.looks_again;
        match outcome {
            Outcome::Drained | Outcome::Parked | Outcome::Gone => {}
            Outcome::Budget | Outcome::Waiting | Outcome::Preempted => stays_ready = true,
            Outcome::Controlled => {
                if node.control() == Control::Hold && exec.is_mid_work() {
                    abandon(queue, &mut exec);
                    queue.stop();
                    let lost = queue.context.slot;
                    let keeps = gpu.mutation.is(Mutation::ReportsLostSuspension);
                    self.reports.forget(|notice| !keeps && notice.is_suspension_of(lost));
                    node.interrupted(queue.clone());
                } else {
                    stays_ready = true;
                }
            }
            Outcome::Faulted(fault) => {
                self.fault_queue(&Place { gpu, node, job: &job, space }, &exec, queue, fault);
                abandon(queue, &mut exec);
            }
        }
        if queue.state() != State::Active {
            abandon(queue, &mut exec);
        }
        self.pace.found(core::mem::take(&mut self.submissions), self.done);
        if outcome == Outcome::Drained && !stays_ready && queue.user_mode {
            let Self { hot, watch, pace, .. } = self;
            hot.warm(gpu, watch, pace, queue, &exec);
        } else {
            self.cool();
        }
        let is_amid = !exec.is_between();
        queue.exec.put(exec, &gpu.mutation);
        let contested = self.contested.take();
        if let Some(since) = contested {
            let now = gpu.host.clock();
            if !gpu.mutation.is(Mutation::KeepsTheTurn) {
                self.schedule.ran(now.saturating_sub(since));
            }
            self.schedule.end_quantum(&gpu.policy, queue.context.quantum(), now);
        }
        let was_alone = contested.is_none() && !gpu.mutation.is(Mutation::GivesNoGrace);
        let may_go_on = outcome == Outcome::Budget && is_amid && (was_alone || self.schedule.grace().is_some());
        if stays_ready && may_go_on {
            if queue.mark_ready() {
                self.schedule.hold(queue.clone());
            }
        } else {
            self.schedule.end_grace();
            if stays_ready || (!queue.user_mode && queue.has_submissions() && outcome == Outcome::Drained) {
                node.list(&mut self.schedule, queue);
            }
        }
        queue.set_parked(outcome == Outcome::Parked && !stays_ready);
        node.scheduling.end_turn();
        let begun = self.begun.take();
        self.log_moment(gpu, node, queue, Moment::Ended { ran: self.ran }, begun);
        if outcome != Outcome::Waiting {
            self.starved = 0;
            return Step::Worked;
        }
        // Others may need no memory: the engine pauses when all that are ready have had a turn for nothing.
        self.starved += 1;
        if self.starved < self.schedule.len() {
            return Step::Worked;
        }
        self.starved = 0;
        Step::Waiting
    }

    /// The queue's turn begins a packet or a command buffer. The first one of a turn is written to the scheduling log:
    /// the context is running.
    pub(super) fn begun(&mut self, gpu: &Gpu<H>, node: &Node<H>, queue: &Queue<H>) {
        if !self.ran {
            self.has_run(gpu, queue);
            self.log_moment(gpu, node, queue, Moment::Begun, None);
        } else if self.begun.is_some() {
            let since = self.begun.take();
            self.log_moment(gpu, node, queue, Moment::Begun, since);
        }
    }

    /// The same behind what has run since the time `since` by the GPU clock. It is written in front of what the turn
    /// runs next, or with its end, in one section.
    pub(super) fn has_begun(&mut self, gpu: &Gpu<H>, queue: &Queue<H>, since: u64) {
        if !self.ran {
            self.has_run(gpu, queue);
            self.begun = Some(since);
        }
    }

    /// The turn has found something to run. Of the global doorbell's rings this is what tells whose they were, since
    /// the word that is left names the last.
    fn has_run(&mut self, gpu: &Gpu<H>, queue: &Queue<H>) {
        self.ran = true;
        if gpu.doorbells.model == Model::Global {
            bump(&queue.rung);
        }
    }

    /// Writes to the scheduling log. `since`: when the moment was; where it ends a turn, since when that runs, if the
    /// log does not say so yet.
    fn log_moment(&mut self, gpu: &Gpu<H>, node: &Node<H>, queue: &Queue<H>, moment: Moment, since: Option<u64>) {
        if node.log_moment(gpu, &queue.context, moment, since) {
            self.reports.raise(gpu, node);
        }
    }

    /// Executes until something else must happen. Everything that a signal brings about has happened when it returns.
    pub(super) fn execute(
        &mut self,
        gpu: &Gpu<H>,
        node: &Node<H>,
        job: &Job<'_, H>,
        space: &AddressSpace<H>,
        exec: &mut Exec<FenceRef<H>>,
    ) -> Outcome {
        self.tlb.lack = None;
        if !job.queue.is_some_and(|queue| self.watch.is_passed_over(queue)) {
            // The hot queue's ring ends the turn of another, as any does.
            self.cool();
        }
        // Out of the engine for the turn: packets are decoded in place.
        let Some(mut burst) = self.burst.take() else { return Outcome::Waiting };
        burst.forget();
        let place = Place { gpu, node, job, space };
        let streamed = self.stream(&place, exec, &mut burst);
        self.burst = Some(burst);
        let outcome = match streamed {
            Ok(outcome) => outcome,
            // The host had no memory for a mapping, which is no mistake of the stream's, whichever it is: it waits, and
            // this engine gives back what it has mapped.
            Err(_) if self.tlb.lack == Some(Lack::Memory) => {
                exec.go_back();
                if !gpu.mutation.is(Mutation::StarvedKeepsWindows) {
                    self.tlb.flush(EVERY_PROCESS, 0, 0);
                    self.gives_back = true;
                }
                // It is unmapped in steps, as what a flush dooms.
                node.attention.fetch_or(attention::FLUSH, Ordering::AcqRel);
                bump(&node.counters.starved);
                Outcome::Waiting
            }
            Err(fault) => {
                // It stays at the packet that faulted.
                exec.consumed = exec.started;
                if fault.kind == FaultKind::AdapterStopped {
                    // Nothing of it is stored or looked at any more.
                    exec.pending = None;
                    self.entries.forget();
                    return Outcome::Faulted(fault);
                }
                Outcome::Faulted(fault)
            }
        };
        // Before anything else happens: ring empty, preemption, fault (a missing LOG never loses a wake: LOG-1).
        self.draw_consequences(gpu, node, job, space, exec);
        while self.wedged && self.go_on_waking(gpu, node) {}
        self.write_log(gpu, node, job);
        exec.plain = false;
        self.reports.raise_due(gpu, node);
        // User mode waits for the read pointer: it is stored before the engine leaves the queue alone.
        match (outcome, self.report(&place, exec)) {
            (Outcome::Drained | Outcome::Parked, Some(Lack::Memory)) => Outcome::Waiting,
            (Outcome::Drained | Outcome::Parked, Some(Lack::Look)) => Outcome::Budget,
            (outcome, _) => outcome,
        }
    }

    fn stream(&mut self, at: &Place<'_, H>, exec: &mut Exec<FenceRef<H>>, burst: &mut Burst) -> Result<Outcome, Fault> {
        let job = at.job;
        let mut turn = TURN;
        let mut clock = None;
        (exec.looked, exec.rests) = (None, self.pace.rests());
        if let Some(queue) = job.queue {
            take_rings_over(at.gpu, queue, exec);
            if exec.is_aside {
                return Ok(if exec.wait.is_some() { Outcome::Parked } else { Outcome::Drained });
            }
        }
        loop {
            if let Some(outcome) = self.look(at, exec, &mut turn)? {
                return Ok(outcome);
            }
            match self.go_on(at, exec, burst, &mut turn, &mut clock) {
                Ok(None) => {}
                // It has mapped enough for one look. What it has mapped it finds behind the next.
                Err(_) if self.tlb.lack == Some(Lack::Look) => {
                    self.tlb.lack = None;
                    exec.go_back();
                }
                Ok(Some(outcome)) => return Ok(outcome),
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Goes on until the engine is to look up: by a packet, a stretch, or a step of an operation. `Some`: the stream
    /// comes off.
    fn go_on(
        &mut self,
        at: &Place<'_, H>,
        exec: &mut Exec<FenceRef<H>>,
        burst: &mut Burst,
        turn: &mut u64,
        clock: &mut Option<u64>,
    ) -> Result<Option<Outcome>, Fault> {
        let Place { gpu, node, job, space } = *at;
        if !exec.may_be_logged() && !self.waking.is_over() {
            // No packet before what the signals in front have let go is awake.
            self.go_on_waking(gpu, node);
            return Ok(None);
        }
        if let Some(queue) = job.queue
            && let Some(progress) = exec.owed
        {
            let effect = self.processor(at, |processor| processor.signal_progress(job, queue.progress, progress))?;
            self.apply(at, exec, effect)?;
            self.draw_consequences(gpu, node, job, space, exec);
            exec.owed = None;
        }
        if let Some(long) = exec.long {
            if exec.buffer.is_some() {
                // A command buffer that the operation writes is read anew.
                burst.forget();
            }
            self.write_log(gpu, node, job);
            if let Some(outcome) = self.step_operation(at, exec, long)? {
                return Ok(Some(outcome));
            }
            return Ok(None);
        }
        if exec.wait.is_some() && !self.wait_over(gpu, node, job, space, exec)? {
            return Ok(Some(Outcome::Parked));
        }
        self.write_own_entry(at, exec, clock)?;
        let is_fed = !burst.has(exec) && exec.published == exec.consumed;
        if !burst.has(exec) {
            // The end of a burst: the next signals have a time and a fence of their own.
            *clock = None;
            if exec.published == exec.consumed {
                // What the last look has found is done.
                self.pace.found(core::mem::take(&mut self.submissions), self.done);
                exec.rests = self.pace.rests();
            }
            if exec.pending.as_ref().is_some_and(|pending| !pending.fresh) {
                self.draw_consequences(gpu, node, job, space, exec);
            }
        }
        exec.remember();
        let fetched = match burst.fetch(&mut gpu.mmu(node, space, &mut self.tlb), exec) {
            Ok(fetched) => fetched,
            Err(NoPacket::Drained) => {
                return Ok(match job.queue {
                    Some(queue) if queue.has_next_ring() => leaves_ring(gpu, queue, exec),
                    _ => Some(Outcome::Drained),
                });
            }
            Err(NoPacket::NoRing(_)) if self.tlb.lack.is_none() && leaves_lost_ring(job, exec) => {
                return Ok(Some(Outcome::Budget));
            }
            // A queue without a connected doorbell may have lost its ring: user mode may free it. Then the queue
            // has nothing to run and is no longer watched. Connecting a doorbell makes the engine look at the queue
            // again.
            Err(NoPacket::NoRing(_)) if is_watched_only(job) && self.tlb.lack.is_none() => {
                if let Some(queue) = job.queue {
                    node.stop_watching_ring(queue, exec.bindings);
                }
                return Ok(Some(Outcome::Drained));
            }
            Err(NoPacket::Fault(fault) | NoPacket::NoRing(fault)) => return Err(fault),
        };
        if is_fed {
            // New work, before anything of it shows: what is used behind its end has a later number.
            job.queue.inspect(|queue| gpu.note_use(queue));
        }
        if let Some(queue) = job.queue.filter(|_| self.begun.is_some()) {
            self.begun(gpu, node, queue);
        }
        if exec.may_be_logged()
            && (is_asked(node, *turn) || !self.waking.is_over())
            && !matches!(Packet::decode(burst.packet(&fetched), job.privilege), Ok(Packet::Log(_)))
        {
            // The signal has no LOG: the stream may come off behind it, as behind any other packet. However many
            // such signals follow each other, they do not keep the engine.
            exec.is_not_logged();
            return Ok(None);
        }
        let packets = match self.stretch(at, exec, burst, clock) {
            0 => {
                self.packet(at, exec, burst, &fetched, clock)?;
                1
            }
            packets => packets,
        };
        *turn = turn.saturating_sub(PACKET * packets);
        Ok(None)
    }

    /// Looks up. `Some`: the stream comes off.
    fn look(
        &mut self,
        at: &Place<'_, H>,
        exec: &mut Exec<FenceRef<H>>,
        turn: &mut u64,
    ) -> Result<Option<Outcome>, Fault> {
        let work = self.take_work(at.node);
        *turn = turn.saturating_sub(work);
        let looked = self.look_around(at, exec, turn, work >= DRAWN);
        // What the look itself has cost is not the stream's: it may map as much as behind any other.
        self.tlb.limit = self.tlb.work.saturating_add(STEP);
        looked
    }

    /// What [`Self::look`] sees. `was_long`: what has happened since the last look took a while.
    fn look_around(
        &mut self,
        at: &Place<'_, H>,
        exec: &mut Exec<FenceRef<H>>,
        turn: &mut u64,
        was_long: bool,
    ) -> Result<Option<Outcome>, Fault> {
        let Place { gpu, node, job, .. } = *at;
        if self.wedged {
            return Ok(Some(Outcome::Budget));
        }
        let leaves = exec.may_leave(gpu.preempts_in_buffers);
        let bits = node.attention.load(Ordering::Relaxed);
        if bits != 0 {
            if bits & attention::FLUSH != 0 {
                self.serve_flushes(gpu, node);
            }
            if bits & attention::CONTROL != 0 {
                return Ok(Some(Outcome::Controlled));
            }
            if bits & attention::HALT != 0 {
                return Err(FaultKind::AdapterStopped.into());
            }
            if bits & attention::LOG != 0 {
                node.attention.fetch_and(!attention::LOG, Ordering::AcqRel);
                self.reports.raise(gpu, node);
            }
            if bits & attention::REST != 0 && leaves {
                return Ok(Some(Outcome::Budget));
            }
            if bits & (attention::SUSPEND | attention::PREEMPT) != 0 && leaves {
                return Ok(Some(Outcome::Preempted));
            }
            // A suspension may be that of another context, which the running one does not keep from being off.
            let is_suspended = || job.queue.is_some_and(|queue| !queue.context.is_runnable());
            if bits & attention::PREEMPT != 0 || (bits & attention::SUSPEND != 0 && is_suspended()) {
                node.board.place(&line(gpu, job, exec, 0), true);
                self.say_stuck(gpu, node);
            }
            if bits & attention::SUSPEND != 0 {
                // The bit stays: the running context may be in the list, for when it can be taken off.
                self.take_off(gpu, node, job.queue.map(|queue| &queue.context));
            }
        }
        if job.queue.is_some_and(|queue| queue.state() != State::Active) {
            return Ok(Some(Outcome::Gone));
        }
        if job.queue.is_some_and(|queue| leaves_old_ring(queue, exec, leaves)) {
            return Ok(Some(Outcome::Budget));
        }
        let is_due = (was_long || *turn == 0) && !gpu.mutation.is(Mutation::DrawsAtTheEnd);
        if is_due && exec.pending.as_ref().is_some_and(|pending| !pending.fresh) {
            // What was signaled does not wait for the rest of the burst.
            self.draw_early(at, exec);
        }
        if leaves {
            self.take_in(node);
        }
        if leaves && job.queue.is_some() && self.must_give_way(gpu, exec) {
            return Ok(Some(Outcome::Budget));
        }
        if *turn == 0 {
            if !exec.plain {
                // ORDERING[LOG-1]: the entries come before the interrupt.
                self.write_log(gpu, node, job);
                self.reports.raise_due(gpu, node);
            }
            if leaves && self.others_wait(gpu, node, job) {
                return Ok(Some(Outcome::Budget));
            }
            if leaves {
                *turn = TURN;
            }
        }
        Ok(None)
    }

    /// Notes the end of a turn, and where the stream is, unless its work is done or another's turn comes.
    pub(super) fn note_end(
        &mut self,
        gpu: &Gpu<H>,
        node: &Node<H>,
        job: &Job<'_, H>,
        exec: &Exec<FenceRef<H>>,
        outcome: Outcome,
    ) {
        if self.wedged {
            // What the engine was in when it stopped answering.
            return node.board.place(&line(gpu, job, exec, 0), false);
        }
        let kept = !matches!(outcome, Outcome::Drained | Outcome::Budget);
        let line = kept.then(|| line(gpu, job, exec, outcome.number()));
        node.board.end(line.as_ref());
        if let Some(queue) = job.queue {
            gpu.show_turn(queue, exec, outcome.number(), line.as_ref());
        }
    }

    /// The engine was asked to come off and cannot: it says so, once, when that lasts too long.
    fn say_stuck(&mut self, gpu: &Gpu<H>, node: &Node<H>) {
        let limit = gpu.hang_after.load(Ordering::Relaxed);
        if limit == 0 {
            return;
        }
        let now = gpu.host.clock();
        if let Some(since) = *self.stuck.get_or_insert(Some(now))
            && now.saturating_sub(since) >= limit
        {
            self.stuck = Some(None);
            self.reports.notify(gpu, node, Notice::EngineHung);
        }
    }

    /// Returns whether the queue that has the turn leaves before the turn is over: it has come to an end, or its grace
    /// period has, and one of a higher priority waits.
    fn must_give_way(&mut self, gpu: &Gpu<H>, exec: &Exec<FenceRef<H>>) -> bool {
        if self.schedule.take_changed() {
            let now = gpu.host.clock();
            self.contested.get_or_insert(now);
            if let Some(grace) = self.schedule.preempts(&gpu.policy) {
                self.schedule.give_grace(now.saturating_add(grace));
            }
        }
        self.schedule.grace().is_some_and(|end| exec.is_between() || gpu.host.clock() >= end)
    }

    /// Returns whether anything but the stream waits for this engine: a queue, a packet, a doorbell, a report.
    fn others_wait(&self, gpu: &Gpu<H>, node: &Node<H>, job: &Job<'_, H>) -> bool {
        self.has_ready(node)
            || (job.queue.is_some() && (self.running.is_some() || node.packets.is_busy()))
            || self.watch.has_rung(&gpu.doorbells)
            || gpu.global.concerns(node.index)
            || node.is_watching()
            || !self.reports.is_empty()
            || node.retry_interrupt.load(Ordering::Relaxed)
    }

    /// One step of the operation that the stream is in. `Some`: the stream comes off.
    fn step_operation(
        &mut self,
        at: &Place<'_, H>,
        exec: &mut Exec<FenceRef<H>>,
        long: Long,
    ) -> Result<Option<Outcome>, Fault> {
        let Place { gpu, node, job, space } = *at;
        if let Some(queue) = job.queue {
            self.begun(gpu, node, queue);
        }
        if let Long::Flush { number } = long {
            self.serve_flushes(gpu, node);
            if !gpu.mutation.is(Mutation::FlushNotWaited)
                && !flush_is_done(gpu, node, number)
                && !node.awaits_flush(|| gpu.flush_done(number), &gpu.mutation)
            {
                return Ok(Some(Outcome::Waiting));
            }
            exec.long = None;
            return Ok(None);
        }
        bump(&node.counters.steps);
        let bytes = match ops::advance(long, &mut gpu.mmu(node, space, &mut self.tlb))? {
            Advance::Done(bytes) => {
                exec.long = None;
                bytes
            }
            Advance::More(bytes, long) => {
                // Not before the first step: many small operations between signals are no reason to interrupt for
                // each.
                self.reports.raise_due(gpu, node);
                exec.long = Some(long);
                bytes
            }
        };
        add(&node.counters.bytes, bytes);
        match self.tlb.lack {
            // What the step has done is done; the stream waits for memory.
            Some(Lack::Memory) => Err(FaultKind::Address.into()),
            _ => Ok(None),
        }
    }
}
