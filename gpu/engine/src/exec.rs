//! Where a stream is: the whole state of a queue, or of a packet, between two turns on its engine.
//!
//! An engine comes off between any two packets, in the ring and in a command buffer, and between any two steps of an
//! operation. What it needs to go on is here and nowhere else; so a context that was taken off costs its node nothing.
//! `F` is a reference to a fence.

use crate::operation::Long;
use crate::slots::SlotId;
use gpu_wire::GpuVa;
use gpu_wire::packet::{self, FaultKind};
use gpu_wire::ring::{self, Geometry};

/// Where a user-mode queue's ring lies. Set when the doorbell is created, gone when it is destroyed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The ring, in the process's address space.
    pub ring: GpuVa,
    /// The control page.
    pub control: GpuVa,
    /// The ring's size.
    pub geometry: Geometry,
}

/// A command buffer being executed. When it ends, the stream goes on in the ring, behind the INDIRECT that led here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    /// The next packet.
    pub next: GpuVa,
    /// The address behind the last one.
    pub end: u64,
}

impl Buffer {
    /// The `length` bytes at `address`.
    ///
    /// # Errors
    /// [`FaultKind::BadOperand`] where they are misaligned, too many, or wrap around.
    pub fn new(address: GpuVa, length: u64) -> Result<Self, FaultKind> {
        if !address.is_aligned(ring::ALIGN) || !length.is_multiple_of(ring::ALIGN) || length > packet::MAX_INDIRECT_SIZE
        {
            return Err(FaultKind::BadOperand);
        }
        let end = address.checked_add(length).ok_or(FaultKind::BadOperand)?;
        Ok(Self { next: address, end: end.0 })
    }
}

/// A fence wait that was not met.
pub(crate) struct Wait<F> {
    pub open: F,
    pub address: GpuVa,
    pub value: u64,
    /// Names the wait in the fence's list; never given before.
    pub ticket: u64,
    /// GPU time at which the engine first saw the wait.
    pub observed: u64,
}

/// What a LOG packet may describe.
#[derive(Clone, Copy)]
pub(crate) enum Synced {
    /// With the fence whose interrupt went out before the entry was there.
    Signal { told: Option<SlotId> },
    /// When the wait was seen and when it ended; `None`: it was met at once.
    Wait(Option<(u64, u64)>),
}

/// Signals of one fence whose consequences are not drawn yet.
pub(crate) struct Pending<F> {
    pub open: F,
    /// The address of the fence's value.
    pub address: GpuVa,
    /// The value that was stored last.
    pub value: u64,
    /// Waits with a lesser ticket began before that store.
    pub before: u64,
    /// How many signals they are.
    pub signals: u64,
    /// A LOG has followed the last signal.
    pub logged: bool,
    /// Each of the signals before it has its entry.
    pub all_logged: bool,
    /// The packet behind the last signal was not looked at yet: it may be its LOG.
    pub fresh: bool,
}

/// Where a stream was before it fetched a packet.
#[derive(Clone, Copy, Default)]
pub(crate) struct Before {
    consumed: u64,
    buffer: Option<Buffer>,
}

/// Where a stream is.
pub(crate) struct Exec<F> {
    /// The number of the change of the queue's rings that was seen last.
    pub bindings: u64,
    /// The number of the ring.
    pub ring: u64,
    pub binding: Option<Binding>,
    /// The ring is set aside: the queue has no doorbell.
    pub is_aside: bool,
    /// Bytes of the ring consumed when a look behind the sight of the next ring found nothing more.
    pub last_look: Option<u64>,
    /// Bytes of the ring consumed.
    pub consumed: u64,
    /// Where the packet of the ring began that was fetched last.
    pub started: u64,
    /// Write pointer that was read and believed.
    pub published: u64,
    /// Bytes that were consumed when the turn looked at the write pointer last; `None`: it has not.
    pub looked: Option<u64>,
    /// The engine rests between looks at the write pointer.
    pub rests: bool,
    /// Read pointer that was stored.
    pub reported: u64,
    pub buffer: Option<Buffer>,
    /// The state before the packet that is executed was fetched.
    pub before: Before,
    pub long: Option<Long>,
    pub wait: Option<Wait<F>>,
    pub synced: Option<Synced>,
    pub pending: Option<Pending<F>>,
    /// The progress fence was signaled at an address where no native fence is open, and the packet behind it was not
    /// looked at yet: it may be the signal's LOG, which is written before the OS hears of the signal.
    pub plain: bool,
    /// A progress value that is to be signaled before anything else.
    pub owed: Option<u64>,
    /// The entry of the wait or signal that the last packet was, which is written when the wait is over.
    pub log: Option<packet::Log>,
}

impl<F> Exec<F> {
    /// At the start of nothing.
    pub fn new() -> Self {
        Self {
            bindings: 0,
            ring: 0,
            binding: None,
            is_aside: false,
            last_look: None,
            consumed: 0,
            started: 0,
            published: 0,
            looked: None,
            rests: false,
            reported: 0,
            buffer: None,
            before: Before::default(),
            long: None,
            wait: None,
            synced: None,
            pending: None,
            plain: false,
            owed: None,
            log: None,
        }
    }

    /// The ring, where it may be read and written.
    pub fn usable_ring(&self) -> Option<Binding> {
        self.binding.filter(|_| !self.is_aside)
    }

    /// A packet is about to be fetched: [`Self::go_back`] comes back here.
    pub fn remember(&mut self) {
        self.before.consumed = self.consumed;
        // In a ring there is none, as a rule: nothing is copied that was just written.
        if self.buffer.is_some() || self.before.buffer.is_some() {
            self.before.buffer = self.buffer;
        }
    }

    /// Goes back to what failed for want of memory: a wait and an operation go on where they are, and any other packet
    /// is fetched and executed again. Every packet may be, until it has succeeded.
    pub fn go_back(&mut self) {
        if self.wait.is_none() && self.long.is_none() {
            (self.consumed, self.buffer) = (self.before.consumed, self.before.buffer);
        }
    }

    /// Starts a command buffer.
    ///
    /// # Errors
    /// As for [`Buffer::new`].
    pub fn begin(&mut self, address: GpuVa, length: u64) -> Result<(), FaultKind> {
        self.buffer = Some(Buffer::new(address, length)?);
        self.remember();
        Ok(())
    }

    /// Lets go of everything that it refers to. The wait that it was in is returned, and is to leave its fence's list.
    #[must_use]
    pub fn abandon(&mut self) -> Option<Wait<F>> {
        self.buffer = None;
        self.long = None;
        self.pending = None;
        self.plain = false;
        self.synced = None;
        self.owed = None;
        self.log = None;
        self.wait.take()
    }

    /// Returns whether the engine can come off here and go on later: everywhere but between a signal and its LOG. What
    /// a signal brings about happens when the engine comes off, so that an interrupt would be ahead of its entry; the
    /// next packet is looked at first, and where it is no LOG the stream comes off in front of it. Without `in_buffers`
    /// not inside of command buffers either.
    pub fn may_leave(&self, in_buffers: bool) -> bool {
        (in_buffers || self.buffer.is_none()) && !self.may_be_logged()
    }

    /// Returns whether the packet in front was a signal, and the next one was not looked at yet: it may be its LOG.
    pub fn may_be_logged(&self) -> bool {
        self.plain || self.pending.as_ref().is_some_and(|pending| pending.fresh)
    }

    /// The next packet is no LOG.
    pub fn is_not_logged(&mut self) {
        self.plain = false;
        if let Some(pending) = &mut self.pending {
            pending.fresh = false;
        }
    }

    /// Returns whether it is in no command buffer and in no operation: between two submissions.
    pub fn is_between(&self) -> bool {
        !self.is_mid_work()
    }

    /// Bytes of the ring whose packets are done.
    pub fn retired(&self) -> u64 {
        if self.is_mid_work() || self.wait.is_some() { self.started } else { self.consumed }
    }

    /// Returns whether it is in the middle of something that a reset destroys.
    pub fn is_mid_work(&self) -> bool {
        self.buffer.is_some() || self.long.is_some()
    }
}
