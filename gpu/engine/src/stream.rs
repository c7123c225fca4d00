//! From the ring or a command buffer to a private copy.
//!
//! What lies ready in the ring, or in a command buffer, is copied a burst at a time, and packets are decoded and
//! executed from that copy: what user mode does to the ring meanwhile changes nothing. A burst ends where its window
//! ends, so that a page that is not mapped is the fault of the first packet that touches it. Nothing of a burst
//! outlives the turn, a wait or an operation: a command buffer that other work writes is read after it.
//!
//! ORDERING[RING-1]: the read pointer, which gives the space back, counts only packets that were copied whole.

use crate::NoMemory;
use crate::exec::{Binding, Buffer, Exec};
use crate::fault::Fault;
use crate::host::Host;
use crate::mmu::Mmu;
use crate::mutation::Mutation;
use crate::publication;
use crate::shared::try_array;
use alloc::boxed::Box;
use core::ops::Range;
use gpu_wire::GpuVa;
use gpu_wire::packet::{self, FaultKind, HEADER_SIZE, Header, MAX_SIZE};
use gpu_wire::ring::ALIGN;

/// Bytes of a burst, at most.
const BURST: usize = 4096;
/// Bytes of the first burst behind a place from which on everything is read anew. Each that follows has twice as many:
/// in a buffer of operations, behind each of which that is so, nothing is copied often that is used once.
const AHEAD: usize = 512;

/// Bytes of the ring behind which a turn looks at the write pointer again where the engine rests between looks. What
/// comes behind the last look is rung behind it, and found by the next look at the doorbell (DB-1).
const NEXT_LOOK: u64 = 2048;

/// Where a packet begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum At {
    /// In a command buffer, by its address.
    Buffer(GpuVa),
    /// In the ring, by its position.
    Ring(u64),
}

impl At {
    /// `bytes` further on.
    fn plus(self, bytes: u64) -> Self {
        match self {
            Self::Buffer(va) => Self::Buffer(GpuVa(va.0.wrapping_add(bytes))),
            Self::Ring(position) => Self::Ring(position.wrapping_add(bytes)),
        }
    }

    /// How far `other` is behind this, in bytes.
    fn to(self, other: Self) -> Option<u64> {
        match (self, other) {
            (Self::Buffer(a), Self::Buffer(b)) => b.0.checked_sub(a.0),
            (Self::Ring(a), Self::Ring(b)) => b.checked_sub(a),
            _ => None,
        }
    }
}

/// A packet in the burst.
pub(crate) struct Fetched {
    /// Its bytes.
    pub bytes: Range<usize>,
    /// Where the next one begins.
    pub next: At,
}

/// The private copy.
pub(crate) struct Burst {
    bytes: Box<[u8; BURST]>,
    /// Where its first byte came from.
    start: At,
    /// Bytes that it holds; 0: nothing.
    len: usize,
    /// Bytes that the next copy takes, at most.
    ahead: usize,
}

/// Why there is no packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoPacket {
    /// The stream has none.
    Drained,
    /// Its place or its length is wrong, or it cannot be read.
    Fault(Fault),
    /// The ring or its control page cannot be read.
    NoRing(Fault),
}

impl From<Fault> for NoPacket {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<FaultKind> for NoPacket {
    fn from(kind: FaultKind) -> Self {
        Self::Fault(kind.into())
    }
}

impl Burst {
    /// Empty.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new() -> Result<Self, NoMemory> {
        Ok(Self { bytes: try_array(|| 0)?, start: At::Ring(0), len: 0, ahead: AHEAD })
    }

    /// Holds nothing any more.
    pub fn forget(&mut self) {
        (self.len, self.ahead) = (0, AHEAD);
    }

    /// The bytes of a packet that was fetched.
    pub fn packet(&self, fetched: &Fetched) -> &[u8] {
        self.bytes.get(fetched.bytes.clone()).unwrap_or_default()
    }

    /// A test: flips a bit of the packet's opcode, so that it is one that is not assigned.
    pub fn corrupt(&mut self, fetched: &Fetched) {
        if let Some(byte) = self.bytes.get_mut(fetched.bytes.start + 1) {
            *byte ^= 0x20;
        }
    }

    /// Returns whether the next packet of the stream is here, or at least begins here.
    pub fn has<F>(&self, exec: &Exec<F>) -> bool {
        let at = exec.buffer.map_or(At::Ring(exec.consumed), |buffer| At::Buffer(buffer.next));
        self.rest(at).is_some()
    }

    /// What the copy holds of the stream from its next packet on.
    pub fn rest_of<F>(&self, exec: &Exec<F>) -> &[u8] {
        let at = exec.buffer.map_or(At::Ring(exec.consumed), |buffer| At::Buffer(buffer.next));
        self.rest(at).and_then(|rest| self.bytes.get(rest)).unwrap_or_default()
    }

    /// Returns whether some of the `len` bytes from the GPU address `start` on are copied here, of a command buffer.
    pub fn is_of<F>(&self, exec: &Exec<F>, start: u64, len: u64) -> bool {
        match self.start {
            At::Buffer(copied) if exec.buffer.is_some() => {
                start < copied.0.saturating_add(self.len as u64) && copied.0 < start.saturating_add(len)
            }
            _ => false,
        }
    }

    /// Where in the copy the bytes from `at` on are.
    fn rest(&self, at: At) -> Option<Range<usize>> {
        let offset = self.start.to(at).filter(|offset| *offset < self.len as u64)?;
        // CAST: below the length of the copy.
        Some(offset as usize..self.len)
    }

    /// The packet at `at`, of which `available` bytes are there. `place` says where the byte that is some bytes further
    /// on lies, and how many lie in one piece from there on.
    fn packet_at<H: Host>(
        &mut self,
        mmu: &mut Mmu<'_, H>,
        at: At,
        available: u64,
        place: impl Fn(u64) -> (GpuVa, u64),
    ) -> Result<Fetched, Fault> {
        if available < HEADER_SIZE as u64 {
            return Err(FaultKind::BadLength.into());
        }
        let mut rest = self.rest(at).unwrap_or(0..0);
        // Twice at most: what begins in the copy may not end there.
        loop {
            if rest.len() >= HEADER_SIZE {
                let head = self.bytes.get(rest.clone()).and_then(<[u8]>::first_chunk).ok_or(FaultKind::BadLength)?;
                let header = Header::read(head);
                let length = header.check_length(available)?;
                let bytes = if header.opcode == packet::opcode::NOP { HEADER_SIZE } else { length as usize };
                if rest.len() >= bytes {
                    return Ok(Fetched { bytes: rest.start..rest.start + bytes, next: at.plus(length) });
                }
            }
            if rest == (0..self.len) && self.start == at && self.len != 0 {
                // It lies across two windows, or around the end of the ring.
                self.complete(mmu, available, &place)?;
            } else {
                let (va, room) = place(0);
                let want = (self.ahead as u64).min(available).min(room) as usize;
                self.ahead = (self.ahead * 2).min(BURST);
                self.len = 0;
                let to = self.bytes.get_mut(..want).unwrap_or_default();
                self.len = mmu.read_some(va, to)?;
                self.start = at;
            }
            rest = 0..self.len;
        }
    }

    /// Copies the rest of the packet that the copy begins with.
    fn complete<H: Host>(
        &mut self,
        mmu: &mut Mmu<'_, H>,
        available: u64,
        place: &impl Fn(u64) -> (GpuVa, u64),
    ) -> Result<(), Fault> {
        let mut need = HEADER_SIZE;
        loop {
            while self.len < need {
                let (va, room) = place(self.len as u64);
                let end = need.min(self.len.saturating_add(room as usize));
                let to = self.bytes.get_mut(self.len..end).unwrap_or_default();
                self.len += mmu.read_some(va, to)?;
            }
            let head = self.bytes.first_chunk().ok_or(FaultKind::BadLength)?;
            let header = Header::read(head);
            let length = header.check_length(available)?;
            let all = if header.opcode == packet::opcode::NOP { HEADER_SIZE } else { length as usize };
            if all <= need {
                return Ok(());
            }
            need = all.min(MAX_SIZE);
        }
    }

    /// The next packet of the stream.
    ///
    /// # Errors
    /// [`NoPacket`].
    pub fn fetch<H: Host, F>(&mut self, mmu: &mut Mmu<'_, H>, exec: &mut Exec<F>) -> Result<Fetched, NoPacket> {
        if let Some(Buffer { next, end }) = exec.buffer {
            if next.0 < end {
                let place = |offset: u64| (GpuVa(next.0 + offset), end - next.0 - offset);
                return Ok(self.packet_at(mmu, At::Buffer(next), end - next.0, place)?);
            }
            exec.buffer = None;
        }
        let Some(binding) = exec.usable_ring() else { return Err(NoPacket::Drained) };
        self.fetch_from_ring(mmu, exec, binding).map_err(|no| match no {
            NoPacket::Fault(fault) if fault.kind == FaultKind::Address => NoPacket::NoRing(fault),
            no => no,
        })
    }

    /// The next packet of the ring.
    fn fetch_from_ring<H: Host, F>(
        &mut self,
        mmu: &mut Mmu<'_, H>,
        exec: &mut Exec<F>,
        Binding { ring, control, geometry }: Binding,
    ) -> Result<Fetched, NoPacket> {
        exec.started = exec.consumed;
        if exec.published == exec.consumed {
            if exec.rests && exec.looked.is_some_and(|looked| exec.consumed - looked < NEXT_LOOK) {
                return Err(NoPacket::Drained);
            }
            // What is published lies in a line that another processor has written, as the write pointer does: both are
            // asked for before either is waited for.
            mmu.touch(GpuVa(ring.0 + geometry.spans(exec.consumed, ALIGN).first));
            let mutation = mmu.bus.mutation;
            // ORDERING[RING-1]: before the packets below it are copied.
            let published = publication::write_pointer(&mmu.word(control, false)?, mutation);
            // Not before: where the page cannot be mapped behind this look of the engine, the turn has yet to look.
            exec.looked = Some(exec.consumed);
            let pending = match geometry.pending(published, exec.consumed) {
                Err(_) if mmu.bus.mutation.is(Mutation::BelievesWritePointer) => published.wrapping_sub(exec.consumed),
                pending => pending.map_err(|_| FaultKind::BadWritePointer)?,
            };
            if pending == 0 {
                return Err(NoPacket::Drained);
            }
            exec.published = published;
        }
        let (consumed, available) = (exec.consumed, exec.published - exec.consumed);
        let place = |offset: u64| {
            let spans = geometry.spans(consumed + offset, available - offset);
            (GpuVa(ring.0 + spans.first), spans.first_len)
        };
        Ok(self.packet_at(mmu, At::Ring(consumed), available, place)?)
    }
}
