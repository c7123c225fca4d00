//! Packet mode: command buffers with 32-bit submission fences, completed strictly in order.
//!
//! The queue, the last completed and the last submitted fence are one critical section: a preemption that read them
//! apart could name its own fence as completed (0x119, 1).
//!
//! Source: *TDR changes in Windows 8 and later*; `DxgkDdiSubmitCommandVirtual`; `DxgkDdiPreemptCommand`.

use crate::NoMemory;
use crate::host::{Host, Lock};
use crate::mutation::{Chosen, Mutation};
use crate::packet_context::PacketContext;
use crate::shared::Shared;
use alloc::collections::VecDeque;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use gpu_wire::GpuVa;
use gpu_wire::packet::Privilege;

/// A packet.
pub struct PacketSubmission<H: Host> {
    /// `SubmissionFenceId`.
    pub fence: u32,
    /// The context that it is of.
    pub context: Shared<PacketContext<H>>,
    /// What it may do: [`Privilege::Paging`] for a paging buffer, which the kernel wrote.
    pub privilege: Privilege,
    /// The command buffer.
    pub address: GpuVa,
    /// Bytes; 0 for a packet that only completes (a NULL packet, or one that was refused).
    pub length: u64,
    /// It was refused: the OS counts its fence by itself, so nothing is reported.
    pub silent: bool,
    /// It has claimed where the context's last packet was taken off ([`PacketContext::claim`]), and goes on there.
    pub resumes: bool,
}

/// A packet that has not started.
pub struct Waiting<H: Host> {
    packet: PacketSubmission<H>,
    /// When everything before it is done, this fence counts as completed: that of the packet before it, or of the last
    /// one that was refused in between.
    behind: u32,
}

/// Whether `first` comes before `second`. Ids wrap.
fn is_before(first: u32, second: u32) -> bool {
    second.wrapping_sub(first).cast_signed() > 0
}

/// A node's packets.
pub struct PacketQueue<H: Host> {
    waiting: VecDeque<Waiting<H>>,
    /// Whether the OS has named an id, of a packet or of a preemption. Before the first one nothing is known of its
    /// ids, which may begin anywhere; from the first one on, the id before it counts as completed.
    numbered: bool,
    /// Fence of the packet on the engine.
    running: Option<u32>,
    /// Last fence that completed. Advances when a packet completes, and at a reset as the document says.
    last_completed: u32,
    /// Newest fence that was submitted. A paging packet that comes back under its own fence does not move it.
    last_submitted: u32,
    /// Newest fence that the OS has named, of a packet or of a preemption: the two share one sequence. A reset of the
    /// adapter moves the last completed one on to it, since no page says whether preemptions count as submitted.
    newest: u32,
    /// When every packet that waits or runs is done, this fence counts as completed: that of the newest of them, or of
    /// the last one that was refused behind it.
    tail: u32,
    /// A preemption that the engine has not answered.
    preempt: Option<u32>,
    /// The last fence that was refused behind that: it counts as completed behind the answer, which names what was
    /// completed before it.
    refused: Option<u32>,
    /// An empty deque with room for as many packets as `waiting`: it takes the place of `waiting` at a preemption and
    /// at a reset, so that neither they nor submissions behind them allocate.
    spare: VecDeque<Waiting<H>>,
}

/// A node's packets under their lock, and whether there are any without it: an engine that has none takes no lock.
pub struct Packets<H: Host> {
    queue: H::Lock<PacketQueue<H>>,
    /// Whether a packet waits or runs, or a preemption is unanswered. Written under the lock.
    busy: AtomicBool,
    /// What debug information says of the queue. Written under the lock.
    shown: [AtomicU64; 5],
}

/// A node's packets as debug information shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shown {
    /// Last completed fence.
    pub completed: u32,
    /// Last submitted fence.
    pub submitted: u32,
    /// The running packet's fence.
    pub running: Option<u32>,
    /// Packets that wait.
    pub waiting: u64,
}

impl<H: Host> Packets<H> {
    /// None.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new() -> Result<Self, NoMemory> {
        Ok(Self { queue: H::Lock::new(PacketQueue::new()?), busy: AtomicBool::new(false), shown: Default::default() })
    }

    /// Runs `f` with the lock held. Up to `DISPATCH_LEVEL`.
    pub fn with<R>(&self, f: impl FnOnce(&mut PacketQueue<H>) -> R) -> R {
        self.queue.with(|queue| {
            let result = f(queue);
            self.busy.store(queue.is_busy() || queue.is_preempting(), Ordering::Release);
            let running = queue.running;
            let words = [
                queue.last_completed.into(),
                queue.last_submitted.into(),
                running.unwrap_or(0).into(),
                running.is_some().into(),
                queue.waiting.len() as u64,
            ];
            self.shown.iter().zip(words).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
            result
        })
    }

    /// The state of the queue, word by word: it may be changing. Takes no lock: any IRQL.
    pub fn shown(&self) -> Shown {
        let [completed, submitted, running, runs, waiting] =
            core::array::from_fn(|at| self.shown[at].load(Ordering::Relaxed));
        // CAST: the fences were 32 bits wide when they were stored.
        let (completed, submitted, running) = (completed as u32, submitted as u32, running as u32);
        Shown { completed, submitted, running: (runs != 0).then_some(running), waiting }
    }

    /// Returns whether a packet waits or runs, or a preemption is unanswered. Takes no lock; an agent that has just
    /// added a packet sees it.
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }
}

/// Packets that a node has room for when the OS asks for no more.
pub const ROOM: usize = 256;

impl<H: Host> PacketQueue<H> {
    /// Empty, with room for [`ROOM`] packets.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new() -> Result<Self, NoMemory> {
        let [waiting, spare] = Self::room(ROOM)?;
        Ok(Self {
            waiting,
            numbered: false,
            running: None,
            last_completed: 0,
            last_submitted: 0,
            newest: 0,
            tail: 0,
            preempt: None,
            refused: None,
            spare,
        })
    }

    /// Memory for `packets` packets, at least [`ROOM`], for [`have_room`](Self::have_room). Made outside of the lock
    /// that the queue stands under.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn room(packets: usize) -> Result<[VecDeque<Waiting<H>>; 2], NoMemory> {
        let mut room = [VecDeque::new(), VecDeque::new()];
        for deque in &mut room {
            deque.try_reserve_exact(packets.max(ROOM))?;
        }
        Ok(room)
    }

    /// Takes the memory of [`room`](Self::room) as its own: so many packets are taken without an allocation. Called
    /// while the queue is empty, before the node takes packets. Returns the old memory, to be freed outside of the
    /// lock.
    pub fn have_room(&mut self, [waiting, spare]: [VecDeque<Waiting<H>>; 2]) -> [VecDeque<Waiting<H>>; 2] {
        [core::mem::replace(&mut self.waiting, waiting), core::mem::replace(&mut self.spare, spare)]
    }

    /// Notes a packet that was refused and is not kept. The OS counts its fence as completed behind the packets before
    /// it, and so does `last_completed`.
    pub fn refuse(&mut self, fence: u32, mutation: &Chosen) {
        self.number(fence);
        if mutation.is(Mutation::ForgetsRefused) {
            return;
        }
        self.submitted(fence, mutation);
        if self.preempt.is_some() && self.waiting.is_empty() {
            self.refused = Some(fence);
        } else {
            self.count_refused(fence);
        }
    }

    /// The refused `fence` counts as completed when everything before it is.
    fn count_refused(&mut self, fence: u32) {
        if !self.is_busy() {
            self.last_completed = fence;
        }
        self.tail = fence;
    }

    /// A fence was submitted.
    fn submitted(&mut self, fence: u32, mutation: &Chosen) {
        if is_before(self.last_submitted, fence) || mutation.is(Mutation::FencesRunBack) {
            self.last_submitted = fence;
        }
        self.named(fence);
    }

    /// The OS named a fence.
    fn named(&mut self, fence: u32) {
        if is_before(self.newest, fence) {
            self.newest = fence;
        }
    }

    /// Adds a packet.
    ///
    /// # Errors
    /// [`NoMemory`]; nothing was added.
    pub fn submit(&mut self, packet: PacketSubmission<H>, mutation: &Chosen) -> Result<(), NoMemory> {
        self.waiting.try_reserve(1)?;
        self.number(packet.fence);
        let behind = core::mem::replace(&mut self.tail, packet.fence);
        self.submitted(packet.fence, mutation);
        self.waiting.push_back(Waiting { packet, behind });
        Ok(())
    }

    /// Returns whether the OS has named no id yet.
    pub fn is_unused(&self) -> bool {
        !self.numbered
    }

    /// The id before the first one counts as completed: an answer to a preemption that comes before the first
    /// completion must not name an id that the OS may never have given.
    fn number(&mut self, first: u32) {
        if !self.numbered {
            let before = first.wrapping_sub(1);
            (self.numbered, self.last_completed, self.last_submitted, self.tail) = (true, before, before, before);
            self.newest = before;
        }
    }

    /// The next packet, now on the engine.
    pub(crate) fn begin(&mut self) -> Option<PacketSubmission<H>> {
        if self.preempt.is_some() || self.running.is_some() {
            return None;
        }
        let Waiting { packet, .. } = self.waiting.pop_front()?;
        self.running = Some(packet.fence);
        Some(packet)
    }

    /// The running packet completed.
    pub(crate) fn complete(&mut self) -> Option<u32> {
        let fence = self.running.take()?;
        // With those that were refused right behind it.
        self.last_completed = self.waiting.front().map_or(self.tail, |next| next.behind);
        Some(fence)
    }

    /// The running packet is taken off in its middle, for a preemption: it has not completed, and the OS submits it
    /// again.
    pub(crate) fn take_off(&mut self) {
        self.running = None;
        // What was refused right behind it is not completed before it.
        match self.waiting.front_mut() {
            Some(next) => next.behind = self.last_completed,
            None => self.tail = self.last_completed,
        }
    }

    /// Asks that nothing that has not started does, and that what runs comes off. The packets that have not started
    /// come back, to be dropped outside of the lock; the engine answers when nothing runs.
    pub fn preempt(&mut self, request: u32) -> VecDeque<Waiting<H>> {
        // Where it is the first that the OS names, the id before it is the last that can be over.
        self.number(request);
        self.preempt = Some(request);
        self.named(request);
        if let Some(first) = self.waiting.front() {
            self.tail = first.behind;
        }
        self.empty()
    }

    /// Everything that waits; the spare deque takes its place. What had claimed the state of a packet that was taken
    /// off gives it up, in the same section: the OS may submit it again as soon as the engine has answered.
    fn empty(&mut self) -> VecDeque<Waiting<H>> {
        for Waiting { packet, .. } in self.waiting.iter().filter(|waiting| waiting.packet.resumes) {
            packet.context.unclaim();
        }
        core::mem::replace(&mut self.waiting, core::mem::take(&mut self.spare))
    }

    /// Takes back the deque that [`preempt`](Self::preempt) or a reset returned, emptied by the caller outside of the
    /// lock: it is the spare one of the next time.
    pub fn give_back(&mut self, emptied: VecDeque<Waiting<H>>) {
        debug_assert!(emptied.is_empty(), "packets are dropped outside of the lock");
        if emptied.capacity() > self.spare.capacity() {
            self.spare = emptied;
        }
    }

    /// Between packets: answers a preemption with its request and the last completed fence.
    pub(crate) fn answer_preempt(&mut self) -> Option<(u32, u32)> {
        if self.running.is_some() {
            return None;
        }
        let answer = (self.preempt.take()?, self.last_completed);
        if let Some(fence) = self.refused.take() {
            // All that waits was submitted behind it.
            self.last_completed = fence;
            match self.waiting.front_mut() {
                Some(next) => next.behind = fence,
                None => self.tail = fence,
            }
        }
        Some(answer)
    }

    /// Whether a preemption is unanswered.
    pub fn is_preempting(&self) -> bool {
        self.preempt.is_some()
    }

    /// Engine reset: everything is gone. The fence id to report as last aborted: that of the packet that ran, or the
    /// last completed one when none did. The last completed id advances to it, or to what was refused right behind it.
    /// Packets that only waited are the OS's to submit again.
    pub fn reset(&mut self) -> (u32, VecDeque<Waiting<H>>) {
        let gone = self.empty();
        if let Some(first) = gone.front() {
            self.tail = first.behind;
        }
        let aborted = self.running.take().unwrap_or(self.last_completed);
        self.preempt = None;
        if let Some(fence) = self.refused.take() {
            self.tail = fence;
        }
        self.last_completed = self.tail;
        (aborted, gone)
    }

    /// Adapter reset: the last completed id advances to the last submitted, which may be that of a preemption.
    pub fn reset_adapter(&mut self, mutation: &Chosen) -> VecDeque<Waiting<H>> {
        let (_, mut gone) = self.reset();
        if mutation.is(Mutation::KeepsWaitingPackets) {
            core::mem::swap(&mut self.waiting, &mut gone);
        }
        let over = if mutation.is(Mutation::AdapterNamesPacket) { self.last_submitted } else { self.newest };
        (self.last_completed, self.tail) = (over, over);
        gone
    }

    /// Last completed and last submitted fence.
    pub fn fences(&self) -> (u32, u32) {
        (self.last_completed, self.last_submitted)
    }

    /// Whether anything waits or runs.
    pub fn is_busy(&self) -> bool {
        self.running.is_some() || !self.waiting.is_empty()
    }

    /// Packets waiting.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
