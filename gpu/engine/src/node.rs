//! One node: what its engine thread shares with everyone else.

use crate::NoMemory;
use crate::arrivals::Arrivals;
use crate::board::Board;
use crate::context::Context;
use crate::counters::Counters;
use crate::handshake::{Handshake, Turn};
use crate::host::{Host, Lock};
use crate::member::{Member, Members};
use crate::mutation::{Chosen, Mutation};
use crate::notice::{CAPACITY, Mailbox};
use crate::outbox::Scan;
use crate::packet_context::Resets;
use crate::packet_node::Packets;
use crate::queue::Queue;
use crate::schedule::Schedule;
use crate::scheduling_log::SchedulingLog;
use crate::shared::Shared;
use crate::trace::Trace;
use crate::wake::Sleep;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use gpu_wire::{NODE_COUNT, NodeOrdinal};

/// Bits of [`Node::attention`]: what the engine must look at before it goes on.
pub mod attention {
    /// A lookaside flush.
    pub const FLUSH: u32 = 1;
    /// A context to suspend.
    pub const SUSPEND: u32 = 2;
    /// Stop executing: reset, stop of the device.
    pub const CONTROL: u32 = 4;
    /// Packet mode: a preemption request.
    pub const PREEMPT: u32 = 8;
    /// A thread other than the engine's wrote the entry of the scheduling log that raises the interrupt; the engine
    /// raises it.
    pub const LOG: u32 = 16;
    /// The adapter was stopped: nothing is translated any more. Never cleared.
    pub const HALT: u32 = 32;
    /// The driver wants the engine back in its thread, which may pause.
    pub const REST: u32 = 64;
}

pub use crate::handshake::{Control, Phase};
pub use crate::outbox::scan;

/// A queue that the OS has disconnected, and the number of the doorbell that was disconnected last.
type Disconnected<H> = (Shared<Queue<H>>, u64);

/// One node.
pub struct Node<H: Host> {
    /// Its index.
    pub index: usize,
    /// Counters.
    pub counters: Counters,
    /// Trace.
    pub trace: Trace,
    /// What the engine runs, and what it ran.
    pub board: Board,
    /// What the interrupt routine will report.
    pub mailbox: Mailbox<H::Word>,
    /// What it reports beside that.
    pub(crate) scan: Scan<H::Word>,
    /// Packet mode.
    pub packets: Packets<H>,
    /// The node's scheduling log: which context was idle, ready or running, and from when on.
    pub scheduling: SchedulingLog<H>,
    pub(crate) attention: AtomicU32,
    handshake: Handshake<H::Word>,
    /// The queue that has its turn.
    pub(crate) turn: Turn<H::Word>,
    /// The number of the engine that has stopped answering, and touches nothing, and one more: a test's fault
    /// (`FaultWedgeAt`). 0: none has.
    wedged: AtomicU64,
    /// The number of the engine that the node has; an engine of another number touches nothing any more.
    incarnation: AtomicU64,
    sleeping: Sleep<H::Word>,
    /// Ready queues that the engine has not taken into its own list yet.
    pub(crate) arrivals: Arrivals<Queue<H>>,
    suspending: H::Lock<VecDeque<Shared<Context<H>>>>,
    /// Queues that were disconnected by the OS and whose write pointer must still be watched.
    watching: H::Lock<Vec<Disconnected<H>>>,
    watching_len: AtomicU32,
    /// Raised when `watching` changes.
    watching_changes: AtomicU64,
    /// The queue that a reset took off the engine in the middle of its work.
    interrupted: H::Lock<Option<Shared<Queue<H>>>>,
    /// Adapter resets so far.
    pub(crate) resets: AtomicU64,
    /// Resets of this engine so far that gave packets back.
    engine_resets: AtomicU64,
    /// Queues and contexts of this node: room that the lists must have.
    members: Members,
    /// Highest flush that this engine served.
    pub(crate) flushed: AtomicU64,
    /// The engine pauses until others have served a flush.
    awaits_flush: Sleep<H::Word>,
    /// The interrupt could not be raised: try again.
    pub(crate) retry_interrupt: AtomicBool,
}

impl<H: Host> Node<H> {
    /// Idle nodes, one for each node of the GPU.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn all() -> Result<Box<[Self]>, NoMemory> {
        let mut nodes = Vec::new();
        nodes.try_reserve_exact(NODE_COUNT)?;
        for index in 0..NODE_COUNT {
            // A match and not `?`, which makes another copy on the stack.
            match Self::new(index) {
                Ok(node) => nodes.push(node),
                Err(error) => return Err(error),
            }
        }
        Ok(nodes.into_boxed_slice())
    }

    /// An idle node.
    ///
    /// # Errors
    /// [`NoMemory`].
    #[inline(never)]
    pub fn new(index: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            index,
            counters: Counters::default(),
            trace: Trace::new()?,
            board: Board::new()?,
            mailbox: Mailbox::new(CAPACITY, H::word)?,
            scan: Scan::new(H::word),
            packets: Packets::new()?,
            scheduling: SchedulingLog::new(),
            attention: AtomicU32::new(0),
            handshake: Handshake::new(H::word),
            turn: Turn::new(H::word),
            wedged: AtomicU64::new(0),
            incarnation: AtomicU64::new(0),
            sleeping: Sleep::new(H::word),
            arrivals: Arrivals::new(H::word),
            suspending: H::Lock::new(VecDeque::new()),
            watching: H::Lock::new(Vec::new()),
            watching_len: AtomicU32::new(0),
            watching_changes: AtomicU64::new(0),
            interrupted: H::Lock::new(None),
            resets: AtomicU64::new(0),
            engine_resets: AtomicU64::new(0),
            members: Members::new()?,
            flushed: AtomicU64::new(0),
            awaits_flush: Sleep::new(H::word),
            retry_interrupt: AtomicBool::new(false),
        })
    }

    /// The engine is about to pause until a flush is `done`, unless it is done by now. Returns whether it is. An engine
    /// that serves the flush behind this wakes the one that pauses (WAKE-1: the flush is the work).
    pub(crate) fn awaits_flush(&self, done: impl FnOnce() -> bool, mutation: &Chosen) -> bool {
        self.awaits_flush.prepare(mutation);
        let done = done();
        if done {
            self.awaits_flush.awake();
        }
        done
    }

    /// Another engine has served a flush. Returns whether this one paused for that; not a second time.
    pub(crate) fn stops_awaiting_flush(&self) -> bool {
        let awaits = self.awaits_flush.must_kick();
        if awaits {
            self.awaits_flush.awake();
        }
        awaits
    }

    /// Its ordinal.
    pub fn ordinal(&self) -> NodeOrdinal {
        // CAST: a node index.
        NodeOrdinal(self.index as u32)
    }

    /// Makes room for one more queue or context in every list, so that no list ever grows above `PASSIVE_LEVEL` or in
    /// the engine.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub(crate) fn admit(&self) -> Result<Member, NoMemory> {
        let (member, members) = self.members.add();
        self.suspending.with(|l| l.try_reserve(members.saturating_sub(l.len())))?;
        self.watching.with(|l| l.try_reserve(members.saturating_sub(l.len())))?;
        Ok(member)
    }

    /// How many queues and contexts the node has.
    pub(crate) fn members(&self) -> usize {
        self.members.count()
    }

    /// Hands `queue` to the engine, once; `true` when the engine sleeps and must be kicked. Up to the device's level.
    pub(crate) fn make_ready(&self, queue: &Shared<Queue<H>>) -> bool {
        if !queue.mark_ready() {
            return false;
        }
        self.arrivals.add(queue.clone());
        self.must_kick()
    }

    /// After work was added: whether the engine sleeps.
    pub(crate) fn must_kick(&self) -> bool {
        self.sleeping.must_kick()
    }

    /// Engine: about to sleep; the caller looks for work once more before it does.
    pub(crate) fn prepare_sleep(&self, mutation: &Chosen) {
        self.sleeping.prepare(mutation);
    }

    /// Engine: awake.
    pub(crate) fn awake(&self) {
        self.sleeping.awake();
    }

    /// Asks the engine to take `context` off. `true`: kick it.
    pub(crate) fn ask_suspend(&self, context: &Shared<Context<H>>) -> bool {
        let context = context.clone();
        let refused = self.suspending.with(|l| {
            if l.iter().any(|c| Shared::ptr_eq(c, &context)) || l.len() == l.capacity() {
                return Some(context);
            }
            l.push_back(context);
            None
        });
        drop(refused);
        self.attend(attention::SUSPEND)
    }

    /// Engine: the next context to take off, other than `running`.
    pub(crate) fn next_suspending(&self, running: Option<&Shared<Context<H>>>) -> Option<Shared<Context<H>>> {
        self.suspending.with(|list| {
            let other = |context: &Shared<Context<H>>| running.is_none_or(|running| !Shared::ptr_eq(context, running));
            list.iter().position(other).and_then(|index| list.remove(index))
        })
    }

    /// Sets bits of `attention`. `true`: kick.
    pub(crate) fn attend(&self, bits: u32) -> bool {
        self.attention.fetch_or(bits, Ordering::AcqRel);
        self.must_kick()
    }

    /// Goes on watching the write pointer of a queue whose doorbell, with the number `doorbell`, was disconnected.
    pub(crate) fn watch_pointer(&self, queue: &Shared<Queue<H>>, doorbell: u64) {
        let queue = queue.clone();
        let refused = self.watching.with(|l| {
            if let Some((_, last)) = l.iter_mut().find(|(q, _)| Shared::ptr_eq(q, &queue)) {
                *last = doorbell;
                return Some(queue);
            }
            if l.len() == l.capacity() {
                return Some(queue);
            }
            l.push((queue, doorbell));
            // CAST: as many as there are queues.
            self.watching_len.store(l.len() as u32, Ordering::Release);
            self.watching_changes.fetch_add(1, Ordering::Release);
            None
        });
        drop(refused);
    }

    /// The page was rotated: no ring can come from before any more. With a `doorbell` only if it is that one that was
    /// disconnected last: a call about one that is gone ends no watch that its successor needs.
    pub(crate) fn stop_watching(&self, queue: &Shared<Queue<H>>, doorbell: Option<u64>) {
        self.stop_watching_where(queue, |last| doorbell.is_none_or(|doorbell| doorbell == last));
    }

    /// A test: the queue's write pointer is watched no longer.
    pub fn forget_watched(&self, queue: &Shared<Queue<H>>) {
        self.stop_watching(queue, None);
    }

    fn stop_watching_where(&self, queue: &Shared<Queue<H>>, meant: impl Fn(u64) -> bool) {
        let found = self.watching.with(|l| {
            let at = l.iter().rposition(|(q, last)| Shared::ptr_eq(q, queue) && meant(*last))?;
            let queue = l.swap_remove(at);
            // CAST: as many as there are queues.
            self.watching_len.store(l.len() as u32, Ordering::Release);
            self.watching_changes.fetch_add(1, Ordering::Release);
            Some(queue)
        });
        drop(found);
    }

    /// Engine: the ring that the queue has since its change number `change` is gone, and nothing can be published
    /// there. Where the queue has another one by now, it is watched on: the OS disconnects a doorbell behind the change
    /// that its ring was.
    pub(crate) fn stop_watching_ring(&self, queue: &Shared<Queue<H>>, change: u64) {
        self.stop_watching_where(queue, |_| queue.bindings.load(Ordering::Acquire) == change);
    }

    /// A queue whose write pointer is watched, whichever, and the number of its doorbell that was disconnected last.
    pub(crate) fn any_watched(&self) -> Option<(Shared<Queue<H>>, u64)> {
        self.watching.with(|l| l.last().cloned())
    }

    /// Returns whether the write pointer of a queue is watched. A hint.
    pub(crate) fn is_watching(&self) -> bool {
        self.watching_len.load(Ordering::Relaxed) != 0
    }

    /// The number of the last change of the queues that are watched.
    pub(crate) fn watching_changes(&self) -> u64 {
        self.watching_changes.load(Ordering::Acquire)
    }

    /// Engine: whether a queue is watched, or is watched no longer, since the change `seen`.
    pub(crate) fn has_changed_watching(&self, seen: u64) -> bool {
        self.watching_changes() != seen
    }

    /// Engine: room in `to` for what is watched. The number of the list's last change; `None` where that is `seen`, or
    /// where there is no memory.
    pub(crate) fn reserve_watched<T>(&self, seen: u64, to: &mut Vec<T>) -> Option<u64> {
        let changes = self.watching_changes();
        let is_ready = changes != seen && to.try_reserve(self.members().saturating_sub(to.len())).is_ok();
        is_ready.then_some(changes)
    }

    /// Engine: adds up to `count` of the queues that are watched to `to`, which has room: those in front of the place
    /// `left` of the list, the last one first. Returns the place in front of which the next are; 0: there are none.
    ///
    /// What takes the place of a queue that is watched no longer comes from the list's end, so that none is left out
    /// between two calls; one may come twice.
    pub(crate) fn watched<T: From<Shared<Queue<H>>>>(&self, left: usize, count: usize, to: &mut Vec<T>) -> usize {
        let room = to.capacity() - to.len();
        self.watching.with(|l| {
            let end = left.min(l.len()).min(room);
            let start = end.saturating_sub(count);
            to.extend(l.get(start..end).into_iter().flatten().rev().map(|(queue, _)| queue.clone().into()));
            start
        })
    }

    /// Engine: puts a queue of this node into its list `schedule`, once. A queue of another node would run on two
    /// engines.
    pub(crate) fn list(&self, schedule: &mut Schedule<H>, queue: &Shared<Queue<H>>) {
        debug_assert_eq!(queue.context.node, self.index);
        if !queue.mark_ready() {
            return;
        }
        if let Err(queue) = schedule.add(queue.clone()) {
            self.arrivals.add(queue);
        }
    }

    /// What the engine is told to be.
    pub fn control(&self) -> Control {
        self.handshake.told()
    }

    /// Tells the engine. `true`: kick it. A stop is not taken back.
    pub(crate) fn command(&self, control: Control) -> bool {
        self.handshake.tell(control);
        self.attend(attention::CONTROL)
    }

    /// Returns whether the engine has stopped answering, by a fault that a test asked for. It touches nothing, and
    /// serves every flush before it does so again.
    pub fn is_wedged(&self) -> bool {
        // Of another number: an engine that was given up says so late.
        self.wedged.load(Ordering::Acquire) == self.incarnation() + 1
    }

    /// Engine: the one of this number has stopped answering.
    pub(crate) fn wedge(&self, incarnation: u64) {
        self.wedged.store(incarnation + 1, Ordering::Release);
    }

    /// Engine: it answers again.
    pub(crate) fn come_back(&self) {
        self.wedged.store(0, Ordering::Release);
    }

    /// No suspension is acknowledged that was asked for so far: every context of the node is lost.
    pub fn forget_suspensions(&self) {
        while let Some(context) = self.next_suspending(None) {
            context.lose();
        }
    }

    /// The number of the engine that the node has.
    pub(crate) fn incarnation(&self) -> u64 {
        self.incarnation.load(Ordering::Acquire)
    }

    /// The engine that [does not answer](Self::is_wedged) is given up: when it comes back it ends, and touches nothing.
    /// The caller makes another one, which is told to be what this one was told.
    pub fn supersede(&self) {
        self.incarnation.fetch_add(1, Ordering::AcqRel);
        // What the old engine had taken note of, the new one looks at.
        self.attention.fetch_or(attention::FLUSH | attention::CONTROL | attention::SUSPEND, Ordering::AcqRel);
    }

    /// The engine that was given up is kept all the same: its successor could not be started.
    pub fn keep(&self) {
        self.incarnation.fetch_sub(1, Ordering::AcqRel);
    }

    /// Adapter resets so far.
    pub fn adapter_resets(&self) -> u64 {
        self.resets.load(Ordering::Acquire)
    }

    /// The engine is being reset, and holds: what its packets had done stays, and the OS submits them again.
    pub fn note_engine_reset(&self, mutation: &Chosen) {
        if !mutation.is(Mutation::ForgetsEngineResets) {
            self.engine_resets.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Resets so far.
    pub fn all_resets(&self) -> Resets {
        Resets { adapter: self.adapter_resets(), engine: self.engine_resets.load(Ordering::Acquire) }
    }

    /// What the engine says that it is.
    pub fn phase(&self) -> Phase {
        self.handshake.phase()
    }

    /// Engine: says what it is.
    pub(crate) fn set_phase(&self, phase: Phase, mutation: &Chosen) {
        self.handshake.say(phase, mutation);
    }

    /// Engine: goes on, unless it was told to hold again meanwhile.
    pub(crate) fn run(&self, mutation: &Chosen) -> bool {
        self.handshake.run(mutation)
    }

    /// Engine: a reset took this queue off in the middle of its work.
    pub(crate) fn interrupted(&self, queue: Shared<Queue<H>>) {
        let old = self.interrupted.with(|i| i.replace(queue));
        drop(old);
    }

    /// Whose work the reset interrupted.
    pub fn take_interrupted(&self) -> Option<Shared<Queue<H>>> {
        self.interrupted.with(Option::take)
    }
}
