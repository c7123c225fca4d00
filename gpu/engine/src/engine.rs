//! Stage 4 of 8: one node's engine.
//!
//! [`Engine::step`] is one unit of progress and never waits; the thread loop around it belongs to the shell, and tests
//! call it themselves. The engine owns what only it touches (lookaside buffer, private packet copy); everything shared
//! lies in [`crate::node::Node`].

use crate::NoMemory;
use crate::command_processor::{Exec, Job, Outcome};
use crate::context::Context;
use crate::counters::bump;
use crate::doorbell::Watch;
use crate::fence_table::OpenFence;
use crate::gpu::Gpu;
use crate::host::{Host, Lock};
use crate::memory::Window;
use crate::node::{Control, Phase, attention};
use crate::notice::Notice;
use crate::packet_node::{PacketQueue, PacketSubmission};
use crate::queue::{Queue, State};
use crate::scheduling_log::Moment;
use crate::shared::{Shared, try_array, try_box};
use crate::slots::SlotId;
use crate::tlb::Tlb;
use crate::trace::Event;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::sync::atomic::Ordering;
use gpu_wire::GpuVa;
use gpu_wire::doorbell::{Model, token_of};
use gpu_wire::packet::{FaultKind, Privilege};
use gpu_wire::pte::{self, Place};

/// Lines of the cache of fence lookups.
pub(crate) const FENCE_LINES: usize = 16;

/// A fence lookup that succeeded.
pub(crate) struct FenceLine<H: Host> {
    pub process: u64,
    pub address: GpuVa,
    pub changes: u64,
    pub open: OpenFence<H>,
}

/// Notices that the engine holds while its mailbox is full. When they are that many, it runs nothing more.
const BACKLOG: usize = 64;

/// What a step did, and so what the thread should do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Something; there may be more.
    Worked,
    /// Nothing, but another engine or the interrupt must do something first: step again soon.
    Waiting,
    /// Nothing to do. With `connected`, doorbells may ring, which nobody announces: poll.
    Idle {
        /// Whether a doorbell of this node is connected, or a write pointer is being watched.
        connected: bool,
    },
    /// A reset holds the engine.
    Held,
    /// The device stops: drop the engine, end the thread.
    Stopped,
}

/// The packet on the engine.
struct Running<H: Host> {
    packet: PacketSubmission<H>,
    exec: Box<Exec<H>>,
}

/// One node's engine.
pub struct Engine<H: Host> {
    gpu: Shared<Gpu<H>>,
    core: Core<H>,
}

/// What only the engine's thread touches.
pub(crate) struct Core<H: Host> {
    pub(crate) node: usize,
    pub(crate) tlb: Tlb<H>,
    pub(crate) fences: Box<[Option<FenceLine<H>>; FENCE_LINES]>,
    /// The queue that just parked must be looked at again.
    pub(crate) again: bool,
    /// A monitored fence was signaled, and the interrupt is not asked for yet.
    interrupt_due: bool,
    /// Page table that a paging packet writes, mapped until the packet completes.
    pub(crate) table: Option<(Place, Window<H::Mapping>)>,
    /// Entries that a TABLE_COPY has read. Here and not on the stack: kernel stacks are small.
    pub(crate) entries: Box<[u64; pte::ENTRIES as usize]>,
    watch: Watch<H>,
    backlog: VecDeque<Notice>,
    running: Option<Running<H>>,
    /// The process of the packet that a reset took off the engine, unless the OS takes it as over by itself.
    cut_off: Option<SlotId>,
    /// An execution state for the next packet.
    spare: Option<Box<Exec<H>>>,
    wedged: bool,
    /// Whether the current turn has begun a packet or a command buffer.
    ran: bool,
}

impl<H: Host> Engine<H> {
    /// The engine of node `node`.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new(gpu: Shared<Gpu<H>>, node: usize) -> Result<Self, NoMemory> {
        let core = Core::new(&gpu, node)?;
        Ok(Self { gpu, core })
    }

    /// The GPU.
    pub fn gpu(&self) -> &Shared<Gpu<H>> {
        &self.gpu
    }

    /// One unit of progress.
    pub fn step(&mut self) -> Step {
        self.core.step(&self.gpu)
    }

    /// About to sleep without polling: `true` when there is no work and every waker has been told.
    pub fn prepare_sleep(&mut self) -> bool {
        self.core.prepare_sleep(&self.gpu)
    }
}

impl<H: Host> Core<H> {
    fn new(gpu: &Gpu<H>, node: usize) -> Result<Self, NoMemory> {
        let mut backlog = VecDeque::new();
        backlog.try_reserve_exact(BACKLOG)?;
        Ok(Self {
            node,
            tlb: Tlb::new(node)?,
            fences: try_array(|| None)?,
            again: false,
            interrupt_due: false,
            table: None,
            entries: try_array(|| 0)?,
            watch: Watch::new(&gpu.doorbells)?,
            backlog,
            running: None,
            cut_off: None,
            spare: Some(try_box(Exec::new())?),
            wedged: false,
            ran: false,
        })
    }

    fn step(&mut self, gpu: &Gpu<H>) -> Step {
        let node = &gpu.nodes[self.node];
        node.awake();
        if self.wedged {
            if !gpu.faults.release.load(Ordering::Acquire) {
                return Step::Waiting;
            }
            self.wedged = false;
        }
        if node.attention.load(Ordering::Acquire) != 0
            && let Some(step) = self.attend(gpu)
        {
            return step;
        }
        self.deliver(gpu);
        if self.backlog.len() >= BACKLOG {
            return Step::Waiting;
        }
        self.end_cut_off(gpu);
        let connected = self.poll(gpu);
        if self.step_packets(gpu) {
            return Step::Worked;
        }
        let Some(queue) = node.next_ready(&gpu.mutation) else {
            return if self.running.is_some() || !self.backlog.is_empty() || node.retry_interrupt.load(Ordering::Relaxed)
            {
                Step::Waiting
            } else {
                Step::Idle { connected }
            };
        };
        self.run(gpu, &queue)
    }

    fn prepare_sleep(&mut self, gpu: &Gpu<H>) -> bool {
        let node = &gpu.nodes[self.node];
        node.prepare_sleep(&gpu.mutation);
        let busy = node.attention.load(Ordering::Acquire) & !attention::HALT != 0
            || node.has_ready()
            || node.packets.with(|p| p.is_busy() || p.is_preempting())
            || !self.backlog.is_empty()
            || node.retry_interrupt.load(Ordering::Relaxed);
        if busy {
            node.awake();
        }
        !busy
    }

    /// Serves what others asked for. `Some`: nothing else may happen in this step.
    fn attend(&mut self, gpu: &Gpu<H>) -> Option<Step> {
        let node = &gpu.nodes[self.node];
        self.serve_flushes(gpu);
        match node.control() {
            Control::Stop => {
                self.release(gpu);
                node.set_phase(Phase::Stopped, &gpu.mutation);
                return Some(Step::Stopped);
            }
            Control::Hold => {
                if node.phase() != Phase::Held {
                    self.hold(gpu);
                }
                return Some(Step::Held);
            }
            Control::Run => {
                if node.phase() == Phase::Held && !node.run(&gpu.mutation) {
                    return Some(Step::Held);
                }
            }
        }
        // Every request that set these bits is in its list already: set again means another step.
        let served = attention::CONTROL | attention::SUSPEND | attention::PREEMPT | attention::LOG;
        if node.attention.fetch_and(!served, Ordering::AcqRel) & attention::LOG != 0 {
            self.raise(gpu);
        }
        if node.control() != Control::Run {
            node.attention.fetch_or(attention::CONTROL, Ordering::AcqRel);
        }
        self.take_off(gpu, None);
        if self.backlog.len() >= BACKLOG {
            // Somebody may be left.
            node.attention.fetch_or(attention::SUSPEND, Ordering::AcqRel);
        }
        if self.running.is_none() {
            self.answer_preempt(gpu);
        }
        None
    }

    /// Acknowledges the suspensions of contexts that do not run: of all, but for `running`. A context that hangs keeps
    /// only itself from being suspended.
    pub(crate) fn take_off(&mut self, gpu: &Gpu<H>, running: Option<&Shared<Context<H>>>) {
        let node = &gpu.nodes[self.node];
        while self.backlog.len() < BACKLOG
            && let Some(context) = node.next_suspending(running)
        {
            if let Some(fence) = context.suspended() {
                node.trace.push(Event::Suspend, context.slot.pack());
                self.notify(gpu, Notice::ContextSuspended { context: context.slot, fence });
            }
        }
    }

    /// Drops translations that others asked to drop, and says so.
    pub(crate) fn serve_flushes(&mut self, gpu: &Gpu<H>) {
        let node = &gpu.nodes[self.node];
        if node.attention.fetch_and(!attention::FLUSH, Ordering::AcqRel) & attention::FLUSH == 0 {
            return;
        }
        let seen = node.flushed.load(Ordering::Relaxed);
        let mut everything = false;
        let last =
            gpu.flushes.serve(seen, |process, start, end| self.tlb.flush(process, start, end), || everything = true);
        if everything {
            self.tlb.clear();
        }
        bump(&node.counters.flushes);
        // Release: the mappings are gone before the flusher is told.
        node.flushed.store(last, Ordering::Release);
    }

    /// A reset: lets go of what runs. Its queue is lost if it was in the middle of something.
    fn hold(&mut self, gpu: &Gpu<H>) {
        let node = &gpu.nodes[self.node];
        if let Some(running) = self.running.take() {
            self.cut_off = Some(running.packet.space.process.slot);
        }
        self.table = None;
        // What the OS takes as over is not reported behind the reset.
        let everything = node.loses_everything.load(Ordering::Acquire);
        self.backlog.retain(|notice| !everything && !notice.is_of_packets());
        if self.spare.is_none() {
            self.spare = try_box(Exec::new()).ok();
        }
        self.watch.clear();
        bump(&node.counters.resets);
        node.trace.push(Event::Reset, 0);
        node.set_phase(Phase::Held, &gpu.mutation);
    }

    /// Behind a reset: ends the packet that it has cut off, as one that did what it must not. After
    /// `DxgkDdiResetEngine` and an adapter reset there is none: the OS is told its fence, or takes it, as completed.
    fn end_cut_off(&mut self, gpu: &Gpu<H>) {
        let node = &gpu.nodes[self.node];
        if let Some(process) = self.cut_off.take()
            && let Some(fence) = node.packets.with(PacketQueue::complete)
        {
            bump(&node.counters.faults);
            self.notify(gpu, Notice::PacketFaulted { fence, fault: FaultKind::NotPermitted.into(), process });
            self.answer_preempt(gpu);
        }
    }

    /// Lets go of everything.
    fn release(&mut self, gpu: &Gpu<H>) {
        self.running = None;
        self.table = None;
        self.tlb.clear();
        self.watch.clear();
        self.fences.fill_with(|| None);
        while gpu.nodes[self.node].next_ready(&gpu.mutation).is_some() {}
        while gpu.nodes[self.node].next_suspending(None).is_some() {}
        drop(gpu.nodes[self.node].take_interrupted());
    }

    /// Stops answering, as a broken engine would, until the fault plan releases it.
    pub(crate) fn wedge(&mut self) {
        self.wedged = true;
    }

    /// Looks at the doorbells. Whether any is connected.
    fn poll(&mut self, gpu: &Gpu<H>) -> bool {
        let node = &gpu.nodes[self.node];
        let connected = match gpu.doorbells.model {
            Model::Dedicated => self.watch.poll(&gpu.doorbells, self.node, |queue| {
                bump(&node.counters.rings);
                node.make_ready(queue);
                gpu.arrived(queue);
            }),
            Model::Global => {
                if let Some(value) = Watch::poll_global(&gpu.doorbells) {
                    bump(&node.counters.rings);
                    gpu.rang_global(token_of(value));
                }
                gpu.any_global()
            }
        };
        node.rescan() || connected
    }

    /// Runs one queue for a turn.
    fn run(&mut self, gpu: &Gpu<H>, queue: &Shared<Queue<H>>) -> Step {
        let node = &gpu.nodes[self.node];
        if queue.state() != State::Active || !queue.context.is_runnable() {
            // A suspended context's queues become ready again when it is resumed.
            if queue.state() != State::Active {
                self.log_moment(gpu, queue, Moment::Ended { ran: false });
            }
            return Step::Worked;
        }
        let Some(mut exec) = queue.exec.take() else { return Step::Worked };
        node.scheduling.begin_turn(&queue.context);
        self.ran = false;
        node.trace.push(Event::Run, queue.slot.pack());
        self.again = false;
        let job = Job { space: &queue.context.space, privilege: Privilege::User, queue: Some(queue) };
        let mut begun = false;
        let outcome = loop {
            let outcome = self.execute(gpu, &job, &mut exec);
            if outcome != Outcome::Drained || queue.user_mode {
                break outcome;
            }
            // Between two buffers the queue can come off, however fast it is fed; each turn runs one at least.
            let is_wanted = node.attention.load(Ordering::Acquire) != 0 || self.others_wait(gpu);
            if begun && is_wanted && queue.has_submissions() {
                break Outcome::Budget;
            }
            begun = true;
            let Some(next) = queue.next_submission() else { break outcome };
            bump(&queue.consumed);
            self.begun(gpu, queue);
            queue.running.store(next.progress, Ordering::Relaxed);
            if next.null {
                exec.owe(next.progress);
            } else if let Err(fault) = exec.begin(next.address, next.length) {
                break Outcome::Faulted(fault);
            }
        };
        let mut again = self.again;
        match outcome {
            Outcome::Drained | Outcome::Parked | Outcome::Gone => {}
            Outcome::Budget | Outcome::Waiting | Outcome::Preempted => again = true,
            Outcome::Controlled => {
                if node.control() == Control::Hold && exec.is_mid_work() {
                    exec.abandon();
                    queue.stop();
                    let lost = queue.context.slot;
                    self.backlog.retain(|notice| !notice.is_suspension_of(lost));
                    node.interrupted(queue.clone());
                } else {
                    again = true;
                }
            }
            Outcome::Faulted(fault) => {
                self.fault_queue(gpu, &job, &exec, queue, fault);
                exec.abandon();
            }
        }
        if queue.state() != State::Active {
            exec.abandon();
        }
        queue.exec.put(exec);
        if again || (!queue.user_mode && queue.has_submissions() && outcome == Outcome::Drained) {
            node.make_ready(queue);
        }
        queue.set_parked(outcome == Outcome::Parked && !again);
        node.scheduling.end_turn();
        self.log_moment(gpu, queue, Moment::Ended { ran: self.ran });
        if outcome == Outcome::Waiting { Step::Waiting } else { Step::Worked }
    }

    /// Notes that the queue's turn begins a packet or a command buffer. The first one of a turn is written to the
    /// scheduling log: the context is running.
    pub(crate) fn begun(&mut self, gpu: &Gpu<H>, queue: &Queue<H>) {
        if !self.ran {
            self.ran = true;
            self.log_moment(gpu, queue, Moment::Begun);
        }
    }

    fn log_moment(&mut self, gpu: &Gpu<H>, queue: &Queue<H>, moment: Moment) {
        if gpu.nodes[self.node].log_moment(gpu, &queue.context, moment) {
            self.raise(gpu);
        }
    }

    /// Whether another queue or packet waits for this engine.
    pub(crate) fn others_wait(&self, gpu: &Gpu<H>) -> bool {
        gpu.nodes[self.node].has_ready()
    }

    /// Packet mode: goes on with the running packet or begins the next. Whether anything happened.
    fn step_packets(&mut self, gpu: &Gpu<H>) -> bool {
        let node = &gpu.nodes[self.node];
        let (mut running, began) = match self.running.take() {
            Some(running) => (running, false),
            None => {
                let Some(mut exec) = self.spare.take() else { return false };
                let Some(packet) = node.packets.with(PacketQueue::begin) else {
                    self.spare = Some(exec);
                    return false;
                };
                *exec = Exec::new();
                (Running { packet, exec }, true)
            }
        };
        if began && let Err(fault) = running.exec.begin(running.packet.address, running.packet.length) {
            self.finish_packet(gpu, running, Some(fault));
            return true;
        }
        let job = Job { space: &running.packet.space, privilege: running.packet.privilege, queue: None };
        match self.execute(gpu, &job, &mut running.exec) {
            Outcome::Drained => self.finish_packet(gpu, running, None),
            // A paging packet that failed would stop the system.
            Outcome::Faulted(fault)
                if fault.kind == FaultKind::AdapterStopped && running.packet.privilege == Privilege::Paging =>
            {
                self.finish_packet(gpu, running, None);
            }
            Outcome::Faulted(fault) => self.finish_packet(gpu, running, Some(fault)),
            Outcome::Waiting => {
                self.running = Some(running);
                return false;
            }
            Outcome::Controlled | Outcome::Budget | Outcome::Preempted | Outcome::Parked | Outcome::Gone => {
                self.running = Some(running);
            }
        }
        true
    }

    fn finish_packet(&mut self, gpu: &Gpu<H>, running: Running<H>, fault: Option<crate::fault::Fault>) {
        let node = &gpu.nodes[self.node];
        // Unmapped before the OS hears of the completion.
        self.table = None;
        let Running { packet, exec } = running;
        self.spare = Some(exec);
        let Some(fence) = node.packets.with(PacketQueue::complete) else { return };
        bump(&node.counters.completions);
        node.trace.push(Event::Complete, fence.into());
        match fault {
            None if packet.silent => {}
            None => {
                self.notify(gpu, Notice::PacketCompleted { fence });
            }
            Some(fault) => {
                bump(&node.counters.faults);
                node.trace.push(Event::Fault, fault.kind.raw().into());
                self.notify(gpu, Notice::PacketFaulted { fence, fault, process: packet.space.process.slot });
            }
        }
        self.answer_preempt(gpu);
    }

    fn answer_preempt(&mut self, gpu: &Gpu<H>) {
        let answer = gpu.nodes[self.node].packets.with(PacketQueue::answer_preempt);
        if let Some((request, completed)) = answer {
            self.notify(gpu, Notice::PacketPreempted { request, completed });
        }
    }

    /// Adds a notice that must not be lost, and asks for the interrupt.
    pub(crate) fn notify(&mut self, gpu: &Gpu<H>, notice: Notice) {
        if self.backlog.len() < self.backlog.capacity() {
            self.backlog.push_back(notice);
        } else {
            // The step that fills the backlog is the last that runs anything, and one step adds few; so there is room.
            debug_assert!(false, "notice backlog overflow");
        }
        self.deliver(gpu);
    }

    /// A fence passed its MonitoredValue. Coalesced with a notice that the interrupt routine has not read: for the same
    /// fence, or, where the interrupt names queues, for the same queue. When the mailbox is full, the OS is asked to
    /// scan everything instead.
    pub(crate) fn notify_fence(&mut self, gpu: &Gpu<H>, fence: SlotId, queue: SlotId) {
        let node = &gpu.nodes[self.node];
        let key = if gpu.names_queues { queue } else { fence };
        if gpu.slots.notice_pending(key) && !node.mailbox.push(Notice::FenceSignaled { fence, queue }) {
            gpu.slots.notice_taken(key);
            if !gpu.mutation.is(crate::mutation::Mutation::DropOnOverflow) {
                node.scan.fetch_or(crate::node::scan::NATIVE, Ordering::AcqRel);
            }
        }
        self.raise(gpu);
    }

    /// A fence passed its MonitoredValue, and no log says which.
    pub(crate) fn notify_unlogged(&mut self, gpu: &Gpu<H>) {
        gpu.nodes[self.node].scan.fetch_or(crate::node::scan::NATIVE, Ordering::AcqRel);
        self.raise(gpu);
    }

    /// A monitored fence was signaled. The interrupt is raised when the stream's turn ends, or before it begins or goes
    /// on with a long operation ([`Self::raise_due`]): a stream of signals makes one interrupt and not one for each,
    /// which any process could have the processors do nothing but serve.
    pub(crate) fn notify_monitored(&mut self, gpu: &Gpu<H>) {
        gpu.nodes[self.node].scan.fetch_or(crate::node::scan::MONITORED, Ordering::AcqRel);
        self.interrupt_due = true;
    }

    /// Raises the interrupt that signals of monitored fences have left due.
    pub(crate) fn raise_due(&mut self, gpu: &Gpu<H>) {
        if core::mem::take(&mut self.interrupt_due) {
            self.raise(gpu);
        }
    }

    /// Moves what the mailbox had no room for into it, and asks again for an interrupt that could not be raised.
    fn deliver(&mut self, gpu: &Gpu<H>) {
        let node = &gpu.nodes[self.node];
        let mut moved = false;
        while let Some(notice) = self.backlog.front() {
            if !node.mailbox.push(*notice) {
                break;
            }
            self.backlog.pop_front();
            moved = true;
        }
        if moved || node.retry_interrupt.load(Ordering::Relaxed) {
            self.raise(gpu);
        }
    }

    fn raise(&mut self, gpu: &Gpu<H>) {
        let node = &gpu.nodes[self.node];
        if !node.mailbox.request() {
            return;
        }
        // CAST: a node index.
        let ordinal = gpu_wire::NodeOrdinal(self.node as u32);
        // Before the interrupt: what sets it meanwhile (`Gpu::raise_again`) has seen this interrupt lost.
        node.retry_interrupt.store(false, Ordering::SeqCst);
        if !gpu.faults.interrupt_fails() && gpu.host.raise_interrupt(ordinal) {
            bump(&node.counters.interrupts_raised);
            node.trace.push(Event::Interrupt, 0);
        } else {
            bump(&node.counters.interrupts_failed);
            node.mailbox.withdraw();
            node.retry_interrupt.store(true, Ordering::Relaxed);
        }
    }
}
