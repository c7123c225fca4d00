//! Hardware queues.
//!
//! A queue's execution state ([`Exec`]) is touched by exactly one thread: the engine of its node takes it out of the
//! queue, runs, and puts it back. Everything else here is safe from any thread.

use crate::NoMemory;
use crate::arrivals::Linked;
use crate::context::Context;
pub use crate::exec::Binding;
use crate::exec::Exec;
use crate::fence::{Fence, Parks};
use crate::fence_log::Log;
use crate::fence_table::OpenFence;
use crate::host::{Host, Lock};
use crate::member::Member;
use crate::mutation::Chosen;
use crate::rings::{First, Rings};
use crate::shared::{Handover, Shared, try_box};
use crate::slots::SlotId;
use crate::wake::Mark;
use alloc::collections::VecDeque;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use gpu_wire::GpuVa;

/// A command buffer that the kernel submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Submission {
    /// Where it lies, in the process's address space.
    pub address: GpuVa,
    /// Bytes, a multiple of 8.
    pub length: u64,
    /// Its progress fence value.
    pub progress: u64,
    /// Null rendering: nothing of the buffer runs. The engine writes the progress value in its place.
    pub null: bool,
}

/// Command buffers that a kernel-mode queue holds at most. `HwQueuePacketCap` and `MaxInFlightHwQueueBuffers` report
/// less.
pub const KERNEL_QUEUE_DEPTH: usize = 64;

/// Where a queue is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum State {
    /// It runs when it has work.
    Active = 0,
    /// It faulted or was lost in a reset; what it holds is never looked at again.
    Stopped = 1,
    /// The OS destroyed it.
    Destroyed = 2,
}

/// A native fence on which queues park.
pub type ParkedFence<H> = Fence<H, Shared<Queue<H>>>;

/// Where a queue is in its stream.
pub(crate) type Stream<H> = Exec<OpenFence<ParkedFence<H>>>;

/// Lets a stream go of everything that it refers to; the wait that it was in leaves its fence's list.
pub(crate) fn abandon<H: Host>(queue: &Queue<H>, exec: &mut Stream<H>) {
    if let Some(wait) = exec.abandon() {
        wait.open.fence.parked.remove(wait.ticket, || queue.place());
    }
}

impl<H: Host> Parks for Shared<Queue<H>> {
    fn stands_at(&self, place: usize) {
        // CAST: as many as there are queues.
        self.parked_at.store(place as u32, Ordering::Relaxed);
    }

    fn place(&self) -> Option<usize> {
        Queue::place(self)
    }
}

/// A hardware queue.
pub struct Queue<H: Host> {
    /// Its place in the lists of the context's node.
    _member: Member,
    /// What notices name it by.
    pub slot: SlotId,
    /// Its context.
    pub context: Shared<Context<H>>,
    /// Whether it submits from user mode.
    pub user_mode: bool,
    /// GPU address of the progress fence.
    pub progress: GpuVa,
    /// Whether the OS made the progress fence as a native one. It may not be open at the address.
    pub native_progress: bool,
    /// Wait log.
    pub waits: H::Lock<Log>,
    /// Signal log.
    pub signals: H::Lock<Log>,
    pub(crate) exec: Handover<Stream<H>, H::Word>,
    /// Ticket of the wait that another agent took it out of, and whether the value was reached: see
    /// [`Self::woken_word`].
    pub(crate) woken: AtomicU64,
    /// GPU time at which it was taken out. Written before `woken`.
    pub(crate) woken_at: AtomicU64,
    /// Its place in the list of the fence that it waits for. Written and read under that list's lock.
    parked_at: AtomicU32,
    /// How many doorbells the queue is connected to: one, and for a moment two, while one that another queue takes is
    /// still to be let go of. With one, a ring that cannot be read is a fault. Without one, user
    /// mode may have freed the ring, and an engine that still watches the queue finds nothing there.
    pub connected: AtomicU32,
    /// Whether `Context::parked` counts this queue.
    parked: AtomicBool,
    /// Whether its context counts this queue among those that are ready.
    listed: AtomicBool,
    /// Whether it is ready: on its way to the engine, or in its list.
    ready: Mark<H::Word>,
    /// The queue behind it in [`crate::node::Node::arrivals`].
    link: H::Word,
    state: AtomicU32,
    order: H::Lock<Rings>,
    /// Raised when the first ring changes, or is set aside, or no longer is.
    pub(crate) bindings: AtomicU64,
    /// The change that the engine has taken over: `consumed` is about the ring that was first then.
    taken_over: AtomicU64,
    /// The change of the rings behind which a turn from before it touches none of them.
    let_go_of: AtomicU64,
    /// Whether a ring may stand behind the first.
    has_next: AtomicBool,
    kernel: H::Lock<VecDeque<Submission>>,
    /// Progress value of the command buffer that the kernel submitted and that runs, or ran last.
    pub(crate) running: AtomicU64,
    /// Bytes of the ring consumed, or command buffers run: what a watched write pointer is compared with, and for debug
    /// blobs.
    pub consumed: AtomicU64,
    /// Packets executed.
    pub packets: AtomicU64,
    /// The number of its last use ([`Gpu::note_use`](crate::gpu::Gpu::note_use)); 0: none. The node's engine writes it.
    pub used: AtomicU64,
    /// How often its doorbell was seen to ring. The node's engine writes it.
    pub rung: AtomicU64,
}

impl<H: Host> Linked for Queue<H> {
    type Word = H::Word;

    fn link(&self) -> &H::Word {
        &self.link
    }
}

impl<H: Host> Queue<H> {
    /// Its place in the list of the fence that it waits for.
    fn place(&self) -> Option<usize> {
        Some(self.parked_at.load(Ordering::Relaxed) as usize)
    }

    /// An idle queue. The node of `context` gave it `member`.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new(
        member: Member,
        slot: SlotId,
        context: Shared<Context<H>>,
        user_mode: bool,
        progress: GpuVa,
        native_progress: bool,
    ) -> Result<Self, NoMemory> {
        let mut kernel = VecDeque::new();
        if !user_mode {
            kernel.try_reserve_exact(KERNEL_QUEUE_DEPTH)?;
        }
        Ok(Self {
            _member: member,
            slot,
            context,
            user_mode,
            progress,
            native_progress,
            waits: H::Lock::new(Log::new()),
            signals: H::Lock::new(Log::new()),
            exec: Handover::new(try_box(Exec::new())?, H::word),
            woken: AtomicU64::new(0),
            woken_at: AtomicU64::new(0),
            parked_at: AtomicU32::new(0),
            connected: AtomicU32::new(0),
            parked: AtomicBool::new(false),
            listed: AtomicBool::new(false),
            ready: Mark::new(H::word),
            link: H::word(0),
            state: AtomicU32::new(State::Active as u32),
            order: H::Lock::new(Rings::new()),
            bindings: AtomicU64::new(0),
            taken_over: AtomicU64::new(0),
            let_go_of: AtomicU64::new(0),
            has_next: AtomicBool::new(false),
            kernel: H::Lock::new(kernel),
            running: AtomicU64::new(0),
            consumed: AtomicU64::new(0),
            packets: AtomicU64::new(0),
            used: AtomicU64::new(0),
            rung: AtomicU64::new(0),
        })
    }

    /// What a waker stores: the ticket, and whether a signal reached the value (otherwise the queue looks for itself).
    pub fn woken_word(ticket: u64, granted: bool) -> u64 {
        ticket << 1 | u64::from(granted)
    }

    pub(crate) fn is_woken(word: u64, ticket: u64) -> bool {
        word >> 1 == ticket
    }

    pub(crate) fn is_granted(word: u64) -> bool {
        word & 1 != 0
    }

    /// Ends the wait `ticket` that a signal took it out of at the GPU time `at`. The caller then makes it ready. A wait
    /// that is over already is not ended again: the one behind it has a greater ticket.
    pub fn wake(&self, ticket: u64, granted: bool, at: u64) {
        if self.woken.load(Ordering::Relaxed) > Self::woken_word(ticket, true) {
            return;
        }
        self.woken_at.store(at, Ordering::Relaxed);
        self.woken.fetch_max(Self::woken_word(ticket, granted), Ordering::Release);
    }

    /// Both logs of native fences: waits, signals.
    pub fn logs(&self) -> [&H::Lock<Log>; 2] {
        [&self.waits, &self.signals]
    }

    /// The state.
    pub fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            0 => State::Active,
            1 => State::Stopped,
            _ => State::Destroyed,
        }
    }

    /// Stops it for good; `false` when it was not active.
    pub(crate) fn stop(&self) -> bool {
        self.state
            .compare_exchange(State::Active as u32, State::Stopped as u32, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Marks it destroyed. The engine that runs it notices between packets.
    pub(crate) fn destroy(&self) {
        self.state.store(State::Destroyed as u32, Ordering::Release);
        self.count_parked(false);
        self.count_listed(false);
    }

    /// Engine: notes whether the queue waits for a fence after its turn. A queue that is not active waits for nothing.
    /// This function and [`Self::destroy`] both exchange the flag, so the later exchange sees what the other thread
    /// did before.
    pub(crate) fn set_parked(&self, parked: bool) {
        self.count_parked(parked && self.state() == State::Active);
        if parked && self.state() != State::Active {
            self.count_parked(false);
        }
    }

    fn count_parked(&self, parked: bool) {
        if self.parked.swap(parked, Ordering::AcqRel) != parked {
            self.context.count_parked(parked);
        }
    }

    /// Marks the queue as ready. Returns whether the caller must hand it to the engine: it is active, and was not
    /// marked.
    pub(crate) fn mark_ready(&self) -> bool {
        if self.state() != State::Active || !self.ready.set() {
            return false;
        }
        self.count_listed(true);
        if self.state() == State::Destroyed {
            // As in `set_parked`.
            self.count_listed(false);
        }
        true
    }

    /// Has the context count the queue among those that are ready, or no longer.
    fn count_listed(&self, listed: bool) {
        if self.listed.swap(listed, Ordering::AcqRel) != listed {
            self.context.count_listed(listed);
        }
    }

    /// Engine: the queue gets its turn. From here on a ring makes it ready again: what it published is looked at again.
    pub(crate) fn take_turn(&self, mutation: &Chosen) {
        self.count_listed(false);
        self.ready.clear(mutation);
    }

    /// Returns whether it waits for a fence in the middle of its work.
    pub(crate) fn is_parked(&self) -> bool {
        self.parked.load(Ordering::Relaxed)
    }

    /// The ring in which the engine is, or which it is to begin, if the queue has one that is not set aside.
    pub fn binding(&self) -> Option<Binding> {
        let first = self.first_ring();
        first.binding.filter(|_| !first.is_aside)
    }

    pub(crate) fn first_ring(&self) -> First {
        self.order.with(|rings| rings.first())
    }

    /// Binds or unbinds the ring, in place of all that there were. A new ring starts at position 0, and what the queue
    /// was in is forgotten.
    pub fn bind(&self, binding: Option<Binding>) {
        self.order.with(|rings| rings.replace(binding));
        self.bindings.fetch_add(1, Ordering::Release);
    }

    /// The doorbell is destroyed. Nothing of the rings is looked at until the queue gets another one.
    pub fn set_aside(&self) {
        self.order.with(|rings| rings.set_aside());
        self.bindings.fetch_add(1, Ordering::Release);
    }

    /// Engine: its turn began before the rings changed, and reads and writes none of them any more.
    pub(crate) fn let_go_of_rings(&self, bindings: u64) {
        self.let_go_of.store(bindings, Ordering::Release);
    }

    /// Returns whether the turn that is under way, if one is, touches no ring from before the last change.
    pub fn is_off_rings(&self) -> bool {
        // Acquire: what the turn did to them comes before.
        self.let_go_of.load(Ordering::Acquire) == self.bindings.load(Ordering::Relaxed)
    }

    /// Adds a ring to which the engine goes on when it has executed what is published in those that there are. Returns
    /// `false`, and does nothing, where there are [`RINGS`](crate::rings::RINGS). The caller then makes the queue
    /// ready.
    pub fn resize(&self, binding: Binding) -> bool {
        if !self.order.with(|rings| rings.add(binding)) {
            return false;
        }
        self.has_next.store(true, Ordering::Release);
        self.bindings.fetch_add(1, Ordering::Release);
        true
    }

    /// The doorbell of the last ring is destroyed, while one of a ring before it lives: what was queued in the last is
    /// forgotten. Returns `false`, and does nothing, where the engine is in the last one already.
    pub fn take_back_ring(&self) -> bool {
        let is_back = self.order.with(|rings| {
            let is_back = rings.take_back();
            self.has_next.store(rings.has_next(), Ordering::Release);
            is_back
        });
        if is_back {
            self.bindings.fetch_add(1, Ordering::Release);
        }
        is_back
    }

    /// Engine: whether a ring stands behind the first. What was published in the first before that one came is seen by
    /// a look behind this.
    pub(crate) fn has_next_ring(&self) -> bool {
        self.has_next.load(Ordering::Acquire) && self.order.with(|rings| rings.has_next())
    }

    /// Engine: it leaves the first ring, which has the number `number`, for the next one. Returns whether it does.
    pub(crate) fn leave_ring(&self, number: u64) -> bool {
        let is_left = self.order.with(|rings| {
            let is_left = rings.leave(number);
            self.has_next.store(rings.has_next(), Ordering::Release);
            is_left
        });
        if is_left {
            self.bindings.fetch_add(1, Ordering::Release);
        }
        is_left
    }

    /// Engine: it has taken over the change `bindings`, and of the ring that is first then it has consumed `consumed`.
    pub(crate) fn take_over(&self, bindings: u64, consumed: u64) {
        self.consumed.store(consumed, Ordering::Relaxed);
        self.taken_over.store(bindings, Ordering::Release);
    }

    /// How much of the ring of the change `bindings` the engine has consumed. Of one that it has not taken over yet,
    /// nothing. Engine only.
    pub(crate) fn consumed_of(&self, bindings: u64) -> u64 {
        if self.taken_over.load(Ordering::Acquire) == bindings { self.consumed.load(Ordering::Relaxed) } else { 0 }
    }

    /// Adds a command buffer; `false` when the queue is full. The caller then makes the queue ready. Up to
    /// `DISPATCH_LEVEL`; allocates nothing.
    pub fn submit(&self, submission: Submission) -> bool {
        self.kernel.with(|queue| {
            if queue.len() >= KERNEL_QUEUE_DEPTH {
                return false;
            }
            queue.push_back(submission);
            true
        })
    }

    /// The next command buffer.
    pub(crate) fn next_submission(&self) -> Option<Submission> {
        self.kernel.with(VecDeque::pop_front)
    }

    /// Whether command buffers wait. A hint.
    pub(crate) fn has_submissions(&self) -> bool {
        self.kernel.with(|queue| !queue.is_empty())
    }
}
