//! Packet mode: command buffers with 32-bit submission fences, completed strictly in order.
//!
//! The queue, the last completed and the last submitted fence are one critical section: a preemption that read them apart
//! could name its own fence as completed (0x119, 1).
//!
//! Source: *TDR changes in Windows 8 and later*; `DxgkDdiSubmitCommandVirtual`; `DxgkDdiPreemptCommand`.

use crate::NoMemory;
use crate::context::Process;
use crate::host::Host;
use crate::shared::Shared;
use alloc::collections::VecDeque;
use gpu_wire::GpuVa;

/// A packet.
pub struct PacketSubmission<H: Host> {
    /// `SubmissionFenceId`.
    pub fence: u32,
    /// Whose address space.
    pub process: Shared<Process<H>>,
    /// The command buffer.
    pub address: GpuVa,
    /// Bytes; 0 for a packet that only completes (a NULL packet, or one that was refused).
    pub length: u64,
    /// It was refused: the OS counts its fence by itself, so nothing is reported.
    pub silent: bool,
}

/// A node's packets.
pub struct PacketQueue<H: Host> {
    waiting: VecDeque<PacketSubmission<H>>,
    /// Fence of the packet on the engine.
    running: Option<u32>,
    /// Last fence that completed. Advances when a packet completes, and at a reset as the document says.
    last_completed: u32,
    /// Last fence that was submitted.
    last_submitted: u32,
    /// A preemption that the engine has not answered.
    preempt: Option<u32>,
    /// The newest packet that was refused while others waited.
    refused: Option<Refused>,
    /// Takes the place of `waiting` when that is given away, so that room is there at any time.
    spare: VecDeque<PacketSubmission<H>>,
    /// Packets that there is to be room for.
    room: usize,
}

/// A packet that could not be kept, not even to complete in silence.
#[derive(Clone, Copy)]
struct Refused {
    fence: u32,
    /// The packet behind which it counts as completed.
    behind: u32,
}

/// Packets a node takes before it allocates.
pub const ROOM: usize = 256;

impl<H: Host> PacketQueue<H> {
    /// Empty.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new() -> Result<Self, NoMemory> {
        let mut queue = Self {
            waiting: VecDeque::new(),
            running: None,
            last_completed: 0,
            last_submitted: 0,
            preempt: None,
            refused: None,
            spare: VecDeque::new(),
            room: ROOM,
        };
        queue.make_room(ROOM)?;
        Ok(queue)
    }

    /// Makes room for `packets` beforehand, and for no fewer than [`ROOM`]: so many are taken without an allocation.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn make_room(&mut self, packets: usize) -> Result<(), NoMemory> {
        self.room = packets.max(ROOM);
        self.waiting.try_reserve_exact(self.room)?;
        self.spare.try_reserve_exact(self.room)?;
        Ok(())
    }

    /// A packet was refused and is not kept. The OS counts its fence as completed behind its predecessors, and so does this.
    pub fn refuse(&mut self, fence: u32) {
        if self.is_busy() {
            let behind = match self.refused {
                Some(before) if before.fence == self.last_submitted => before.behind,
                _ => self.last_submitted,
            };
            self.refused = Some(Refused { fence, behind });
        } else {
            self.last_completed = fence;
        }
        self.last_submitted = fence;
    }

    /// Adds a packet.
    ///
    /// # Errors
    /// [`NoMemory`]; nothing was added.
    pub fn submit(&mut self, packet: PacketSubmission<H>) -> Result<(), NoMemory> {
        self.waiting.try_reserve(1)?;
        self.last_submitted = packet.fence;
        self.waiting.push_back(packet);
        Ok(())
    }

    /// The next packet, now on the engine.
    pub(crate) fn begin(&mut self) -> Option<PacketSubmission<H>> {
        if self.preempt.is_some() || self.running.is_some() {
            return None;
        }
        let packet = self.waiting.pop_front()?;
        self.running = Some(packet.fence);
        Some(packet)
    }

    /// The running packet completed.
    pub(crate) fn complete(&mut self) -> Option<u32> {
        let fence = self.running.take()?;
        self.last_completed = fence;
        if let Some(refused) = self.refused.take_if(|refused| refused.behind == fence) {
            self.last_completed = refused.fence;
        }
        Some(fence)
    }

    /// Asks that nothing that has not started does. The dropped packets come back; the engine answers when it is between
    /// packets.
    pub fn preempt(&mut self, request: u32) -> VecDeque<PacketSubmission<H>> {
        self.preempt = Some(request);
        core::mem::replace(&mut self.waiting, core::mem::take(&mut self.spare))
    }

    /// Gives back what [`preempt`](Self::preempt) returned, emptied: its memory is the room of the next time.
    pub fn give_back(&mut self, emptied: VecDeque<PacketSubmission<H>>) {
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
        Some((self.preempt.take()?, self.last_completed))
    }

    /// Whether a preemption is unanswered.
    pub fn is_preempting(&self) -> bool {
        self.preempt.is_some()
    }

    /// Engine reset: everything is gone. The fence id to report as last aborted: the running or newest packet's, or the
    /// last completed when the queue is empty. The last completed id advances to it.
    pub fn reset(&mut self) -> (u32, VecDeque<PacketSubmission<H>>) {
        let gone = core::mem::take(&mut self.waiting);
        // A reset comes at PASSIVE_LEVEL; without memory the next packets ask for it one by one.
        let _room = self.waiting.try_reserve_exact(self.room);
        let aborted = match (self.running.take(), gone.back()) {
            (_, Some(last)) => last.fence,
            (Some(running), None) => running,
            (None, None) => self.last_completed,
        };
        self.preempt = None;
        self.last_completed = match self.refused.take() {
            Some(refused) if refused.behind == aborted => refused.fence,
            _ => aborted,
        };
        (aborted, gone)
    }

    /// Adapter reset: the last completed id advances to the last submitted.
    pub fn reset_adapter(&mut self) -> VecDeque<PacketSubmission<H>> {
        let (_, gone) = self.reset();
        self.last_completed = self.last_submitted;
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
