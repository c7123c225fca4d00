//! The GPU as one object: its nodes, its doorbells, its slots. Drivers call it; engines run on it.

use crate::NoMemory;
use crate::address_space::{AddressSpace, EVERY_PROCESS};
use crate::context::{Context, Suspend};
use crate::counters::Totals;
use crate::doorbell::Doorbells;
use crate::fault::FaultPlan;
use crate::fence;
use crate::fence_log::Barriers;
use crate::flush::FlushBoard;
use crate::global_doorbell::GlobalDoorbell;
use crate::host::Host;
use crate::member::Member;
use crate::memory::Span;
use crate::mmu::Mmu;
use crate::monitored::MonitoredFences;
use crate::mutation::{Chosen, Mutation};
use crate::node::{Control, Node, Phase, attention, scan};
use crate::notice::Notice;
use crate::outbox;
use crate::queue::{Queue, abandon};
use crate::schedule::Policy;
use crate::scheduling_log::Moment;
use crate::shared::{Shared, try_box};
use crate::slots::{SlotId, SlotTable};
use crate::tlb::{Bus, Tlb};
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(doc)]
use gpu_wire::NODE_COUNT;
use gpu_wire::NodeOrdinal;
use gpu_wire::doorbell::{Model, Token};
#[cfg(doc)]
use gpu_wire::packet::FaultKind;

/// How a GPU is set up.
pub struct Setup<'a> {
    /// Doorbell model.
    pub model: Model,
    /// One page per physical doorbell.
    pub doorbells: &'a [Span<'static>],
    /// Where the log's barriers are.
    pub barriers: Barriers,
    /// Fence interrupts name the queue and not the fence (`OptimizedNativeFenceSignaledInterrupt`).
    pub names_queues: bool,
    /// How monitored fences are treated.
    pub monitored: MonitoredFences,
    /// Whether a stream comes off its engine inside of command buffers as well. Without it, a command buffer that never
    /// ends holds its engine until a reset, as on hardware that cannot be preempted there.
    pub preempts_in_buffers: bool,
}

/// The GPU.
pub struct Gpu<H: Host> {
    /// The surroundings.
    pub host: H,
    /// The nodes, [`NODE_COUNT`] of them. Not in line: what holds them is made on a kernel stack, which is small.
    pub nodes: Box<[Node<H>]>,
    /// What interrupts name things by.
    pub slots: SlotTable<H>,
    /// Physical doorbells.
    pub doorbells: Doorbells<H>,
    /// Pending lookaside flushes.
    pub flushes: FlushBoard<H>,
    /// What a test makes go wrong.
    pub faults: FaultPlan,
    /// What a test leaves out.
    pub mutation: Chosen,
    /// Where the log's barriers are.
    pub barriers: Barriers,
    /// Fence interrupts name the queue and not the fence.
    pub names_queues: bool,
    /// How monitored fences are treated.
    pub monitored: MonitoredFences,
    /// Whether a stream comes off its engine inside of command buffers as well.
    pub preempts_in_buffers: bool,
    /// After how many ticks of the GPU clock an engine says that it cannot come off its work, although it was asked to;
    /// 0: never. Set before the engines run.
    pub hang_after: AtomicU64,
    /// What the OS says of bands of priority.
    pub policy: Box<Policy>,
    /// What is connected in the global model.
    pub global: GlobalDoorbell<H>,
    /// Uses of queues so far, by work that was found and by connections: what orders [`Queue::used`] of all nodes.
    /// Never 0.
    uses: AtomicU64,
    next_space: AtomicU64,
    pub(crate) next_ticket: AtomicU64,
}

impl<H: Host> Gpu<H> {
    /// Numbers a use: of a physical doorbell that is connected, or of a queue. Any IRQL.
    pub fn count_use(&self) -> u64 {
        self.uses.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The engine of `queue` has found something of it to run. While no other queue is used, this writes nothing.
    pub(crate) fn note_use(&self, queue: &Queue<H>) {
        if queue.used.load(Ordering::Relaxed) != self.uses.load(Ordering::Relaxed) {
            queue.used.store(self.count_use(), Ordering::Relaxed);
        }
    }

    /// A GPU with idle nodes. The shell then starts one engine thread per node.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new(host: H, setup: &Setup<'_>) -> Result<Self, NoMemory> {
        Ok(Self {
            host,
            nodes: Node::all()?,
            slots: SlotTable::new()?,
            doorbells: Doorbells::new(setup.model, setup.doorbells)?,
            flushes: FlushBoard::new()?,
            faults: FaultPlan::default(),
            mutation: Chosen::none(),
            barriers: setup.barriers,
            names_queues: setup.names_queues,
            monitored: setup.monitored,
            preempts_in_buffers: setup.preempts_in_buffers,
            hang_after: AtomicU64::new(0),
            policy: try_box(Policy::new())?,
            global: GlobalDoorbell::new(),
            uses: AtomicU64::new(1),
            next_space: AtomicU64::new(1),
            next_ticket: AtomicU64::new(1),
        })
    }

    /// The node with this ordinal.
    pub fn node(&self, ordinal: NodeOrdinal) -> Option<&Node<H>> {
        self.nodes.get(ordinal.0 as usize)
    }

    /// A number for a process or an address space, never given before.
    pub fn new_space_id(&self) -> u64 {
        self.next_space.fetch_add(1, Ordering::Relaxed)
    }

    /// A number for a wait, never given before.
    pub(crate) fn new_ticket(&self) -> u64 {
        self.next_ticket.fetch_add(1, Ordering::Relaxed)
    }

    /// The ticket that the next wait gets. Read before a signal's store it tells the waits that began before the
    /// signal, which lets them go whatever is stored behind it, from later ones, which read the value.
    pub fn next_ticket(&self) -> u64 {
        fence::tickets(&self.next_ticket)
    }

    /// The lookaside buffer `tlb` of `node` for a stream that runs in `space`.
    pub(crate) fn mmu<'a>(&'a self, node: &'a Node<H>, space: &'a AddressSpace<H>, tlb: &'a mut Tlb<H>) -> Mmu<'a, H> {
        let Self { next_ticket: tickets, host, mutation, .. } = self;
        Mmu { tlb, bus: Bus { tickets, host, counters: &node.counters, mutation }, space }
    }

    /// Counters of all nodes.
    pub fn totals(&self) -> Totals {
        self.nodes.iter().fold(Totals::default(), |sum, node| sum + node.counters.read())
    }

    /// Wakes an engine.
    pub(crate) fn kick(&self, node: usize) {
        // CAST: a node index.
        self.host.kick(NodeOrdinal(node as u32));
    }

    /// Puts `queue` in its node's ready list: its write pointer and its command buffers are looked at. Up to
    /// `DISPATCH_LEVEL`.
    pub fn make_ready(&self, queue: &Shared<Queue<H>>) {
        let node = queue.context.node;
        let kick = self.nodes[node].make_ready(queue);
        if self.arrived(queue) | kick {
            self.kick(node);
        }
    }

    /// Writes to the scheduling log that the queue's context has become ready, if it has. Returns whether the log's
    /// interrupt is due and the engine sleeps, so that the caller must kick it.
    pub(crate) fn arrived(&self, queue: &Queue<H>) -> bool {
        let node = &self.nodes[queue.context.node];
        node.log_moment(self, &queue.context, Moment::Arrived, None) && node.attend(attention::LOG)
    }

    /// A place in the lists of a node, for a queue or a context. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn admit(&self, node: usize) -> Result<Member, NoMemory> {
        self.nodes[node].admit()
    }

    /// A context was made, which no engine has seen.
    pub fn take_in(&self, context: &Context<H>) {
        context.is_born(self.nodes[context.node].resets.load(Ordering::Acquire));
    }

    /// Every context that there is, is lost from now on: its queues have no turn any more. While every engine holds.
    pub fn lose_all(&self) {
        for node in self.nodes.iter().filter(|_| !self.mutation.is(Mutation::RunsLost)) {
            node.resets.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Asks for a context's suspension; [`Suspend::Pending`] is answered by a notice.
    pub fn suspend(&self, context: &Shared<Context<H>>, fence: u64) -> Suspend {
        let answer = context.suspend(fence);
        if answer == Suspend::Pending && self.nodes[context.node].ask_suspend(context) {
            self.kick(context.node);
        }
        answer
    }

    /// Destroys a queue: it leaves every list. The engine lets go of it between packets.
    pub fn destroy_queue(&self, queue: &Shared<Queue<H>>) {
        queue.destroy();
        if !self.mutation.is(Mutation::WatchesDestroyed) {
            self.nodes[queue.context.node].stop_watching(queue, None);
        }
        self.global.forget(queue);
        self.let_go_of(queue);
        // The queue's work may have been the last of its context, which is idle then.
        let node = &self.nodes[queue.context.node];
        if node.log_moment(self, &queue.context, Moment::Left, None) && node.attend(attention::LOG) {
            self.kick(node.index);
        }
    }

    /// A queue that was destroyed waits for no fence any more, unless the engine is on it. Called again when the engine
    /// is off it ([`Self::is_on`]): the wait may have begun while the queue was destroyed.
    pub fn let_go_of(&self, queue: &Queue<H>) {
        if let Some(mut exec) = queue.exec.take() {
            abandon(queue, &mut exec);
            queue.exec.put(exec, &self.mutation);
        }
    }

    /// Goes on watching the write pointer of a queue that the OS disconnected, until [`Self::stop_watching`].
    /// `doorbell` is the number of the queue's doorbell, which no other has had.
    pub fn watch_pointer(&self, queue: &Shared<Queue<H>>, doorbell: u64) {
        let node = &self.nodes[queue.context.node];
        node.watch_pointer(queue, doorbell);
        if node.must_kick() {
            self.kick(queue.context.node);
        }
    }

    /// The page of `doorbell` was rotated away from the physical doorbell. The write pointer of its queue is looked at
    /// once more. Where another doorbell of the queue has been disconnected since, the queue is watched on.
    pub fn stop_watching(&self, queue: &Shared<Queue<H>>, doorbell: u64) {
        self.nodes[queue.context.node].stop_watching(queue, Some(doorbell));
        if !self.mutation.is(Mutation::NoLastLook) {
            self.make_ready(queue);
        }
    }

    /// Connects `queue` at `place`: a physical doorbell of the dedicated model, or a number of the global one's. With
    /// `watched` the node's engine looks for its rings; without, user mode announces them.
    ///
    /// # Errors
    /// [`NoMemory`], as [`GlobalDoorbell::connect`].
    pub fn connect(&self, place: usize, queue: &Shared<Queue<H>>, watched: bool) -> Result<(), NoMemory> {
        match self.doorbells.model {
            Model::Dedicated => self.doorbells.connect(place, queue, watched),
            Model::Global => self.global.connect(queue, place as u64, watched)?,
        }
        Ok(())
    }

    /// Disconnects what is connected at `place`.
    pub fn disconnect(&self, place: usize) {
        match self.doorbells.model {
            Model::Dedicated => drop(self.doorbells.disconnect(place)),
            Model::Global => self.global.disconnect(place as u64),
        }
    }

    /// The pages of the doorbell that user mode rings for `place`.
    pub fn doorbell_pages(&self, place: usize) -> Option<Span<'static>> {
        let index = if self.doorbells.model == Model::Global { 0 } else { place };
        self.doorbells.pages(index)
    }

    /// Asks every engine to drop translations of the process with that number; the number to wait for with
    /// [`Self::flush_done`].
    pub fn flush(&self, process: u64, start: u64, end: u64) -> u64 {
        let n = self.flushes.post(process, start, end);
        for node in self.nodes.iter() {
            if node.attend(attention::FLUSH) {
                self.kick(node.index);
            }
        }
        n
    }

    /// The engine of `by` has served flushes: it tells the host, whose threads may wait for that, and the engines that
    /// do.
    pub(crate) fn flushed(&self, by: &Node<H>) {
        for node in self.nodes.iter().filter(|node| node.stops_awaiting_flush()) {
            self.kick(node.index);
        }
        self.host.flushed(by.ordinal());
    }

    /// Stops every engine for good: none translates an address once it has served the flush, whose number is returned.
    /// Paging buffers complete without running; other work is the fault [`FaultKind::AdapterStopped`].
    pub fn halt(&self) -> u64 {
        for node in self.nodes.iter() {
            if node.attend(attention::HALT) {
                self.kick(node.index);
            }
        }
        self.flush(EVERY_PROCESS, 0, 0)
    }

    /// Returns whether every engine has served flush `n`.
    pub fn flush_done(&self, n: u64) -> bool {
        self.nodes
            .iter()
            .all(|node| node.flushed.load(Ordering::Acquire) >= n || node.phase() == Phase::Stopped || node.is_wedged())
    }

    /// Returns whether the engine may still touch something of a queue that was destroyed
    /// ([`Self::destroy_queue`]). Not for longer than it takes to look up.
    pub fn is_on(&self, queue: &Queue<H>) -> bool {
        self.nodes[queue.context.node].turn.is(queue.slot.pack())
    }

    /// Tells an engine to run, hold or stop.
    pub fn command(&self, node: usize, control: Control) {
        if self.nodes[node].command(control) {
            self.kick(node);
        }
        // Whatever it waits for on the host's side, it must look.
        self.kick(node);
    }

    /// Wakes an engine after packets were added.
    pub fn wake(&self, node: usize) {
        if self.nodes[node].must_kick() {
            self.kick(node);
        }
    }

    /// Asks for the answer to a preemption.
    pub fn ask_preempt(&self, node: usize) {
        if self.nodes[node].attend(attention::PREEMPT) {
            self.kick(node);
        }
    }

    /// Has the engine come back to its thread, which may pause, as soon as it can come off its work. One that sleeps is
    /// not woken for that.
    pub fn ask_rest(&self, node: usize) {
        let _kick = self.nodes[node].attend(attention::REST);
    }

    /// After a reset: an interrupt for what could not be reported meanwhile.
    pub fn raise_again(&self, node: usize) {
        let shared = &self.nodes[node];
        // Also where nothing waits: the interrupt that was asked for may have been lost after another one had reported
        // its notice, and a request that nothing answers would keep every later one back.
        shared.mailbox.withdraw();
        if !shared.mailbox.is_empty() || !shared.scan.is_empty() {
            shared.retry_interrupt.store(true, Ordering::Release);
            self.kick(node);
        }
    }

    /// A node that an interrupt may name for a fence that no engine is just signaling: one that is not held, since
    /// between reset and resumption an interrupt of the engine is a bug check. `None`: all are; the thread that resumes
    /// the first one reports every fence. Any IRQL.
    pub fn speaker(&self) -> Option<usize> {
        if self.mutation.is(Mutation::ReportsWhileHeld) {
            return Some(0);
        }
        // No index that could be out of range: this runs at the device's level, where nothing may panic.
        let is_free = |node: &usize| self.nodes.get(*node).is_some_and(|node| node.control() != Control::Hold);
        let free = || (0..self.nodes.len()).find(is_free);
        outbox::speaker(free, self.nodes.first().map(|node| &node.scan), &self.mutation)
    }

    /// A test: makes the node want an interrupt although it is held.
    pub fn pretend_fence_overflow(&self, node: usize) {
        self.nodes[node].scan.add(scan::NATIVE);
        // CAST: a node index.
        self.host.raise_interrupt(NodeOrdinal(node as u32));
    }

    /// Interrupt routine: everything that node `node` has to report, in order. Any IRQL, one caller at a time.
    pub fn drain(&self, node: usize, f: impl FnMut(Notice)) -> u64 {
        let Some(node) = self.nodes.get(node) else { return 0 };
        outbox::drain(&node.mailbox, &node.scan, &self.slots, self.names_queues, &self.mutation, f)
    }
}

/// The doorbell token of the queue with this slot.
pub fn token(slot: SlotId) -> Token {
    Token::of_index(slot.index)
}
