//! What writes packets: a header and a body, as bytes for a stream.

use super::{Fence, FenceLogged, HEADER_SIZE, Header, MAX_SIZE, MAX_TABLE_ENTRIES, Store, TableWrite, flags, opcode};
use crate::GpuVa;
use crate::pte::Pte;
use zerocopy::IntoBytes;

/// A packet ready to be copied into a stream.
#[derive(Clone, Copy)]
pub struct Encoded {
    pub(super) bytes: [u8; MAX_SIZE],
    pub(super) length: usize,
}

impl Encoded {
    /// A packet of `body` bytes after a header. What does not fit [`MAX_SIZE`] is cut, which the engine then faults.
    pub fn new(opcode: u16, flags: u16, body: &[u8]) -> Self {
        let mut bytes = [0; MAX_SIZE];
        let fits = body.len().min(MAX_SIZE - HEADER_SIZE);
        let length = HEADER_SIZE + fits.next_multiple_of(8);
        // CAST: at most MAX_SIZE.
        let header = Header { opcode, flags, length: length as u32 };
        bytes[..HEADER_SIZE].copy_from_slice(header.as_bytes());
        bytes[HEADER_SIZE..HEADER_SIZE + fits].copy_from_slice(&body[..fits]);
        Self { bytes, length }
    }

    /// A NOP of `length` bytes' worth of header; the caller skips the rest. `length` is a multiple of 8 and at least 8.
    pub fn nop(length: u32) -> Self {
        let mut packet = Self::new(opcode::NOP, 0, &[]);
        packet.bytes[..HEADER_SIZE].copy_from_slice(Header { opcode: opcode::NOP, flags: 0, length }.as_bytes());
        packet
    }

    /// FENCE_WAIT for `value` of the fence at `fence`.
    pub fn fence_wait(fence: GpuVa, value: u64) -> Self {
        Self::new(opcode::FENCE_WAIT, 0, Fence { fence: fence.0, value }.as_bytes())
    }

    /// FENCE_SIGNAL of `value` to the fence at `fence`.
    pub fn fence_signal(fence: GpuVa, value: u64) -> Self {
        Fence { fence: fence.0, value }.to_packet()
    }

    /// FENCE_WAIT_LOGGED: a wait, and the log entry that is written when it is over, in one packet.
    pub fn fence_wait_logged(body: FenceLogged) -> Self {
        Self::new(opcode::FENCE_WAIT_LOGGED, 0, body.as_bytes())
    }

    /// STORE of 4 bytes.
    pub fn store32(address: GpuVa, value: u32) -> Self {
        Self::new(opcode::STORE, flags::STORE_32, Store { address: address.0, value: value.into() }.as_bytes())
    }

    /// TABLE_WRITE of `entries` from index `first`, of which the first [`MAX_TABLE_ENTRIES`] count.
    pub fn table_write(table: Pte, first: u32, entries: impl IntoIterator<Item = Pte>) -> Self {
        let mut packet = Self::new(opcode::TABLE_WRITE, 0, &[]);
        let mut count = 0;
        for entry in entries.into_iter().take(MAX_TABLE_ENTRIES) {
            packet.push(HEADER_SIZE + size_of::<TableWrite>() + count * 8, &entry.0.to_le_bytes());
            count += 1;
        }
        // CAST: at most MAX_TABLE_ENTRIES.
        packet.push(HEADER_SIZE, TableWrite { table: table.0, first, count: count as u32 }.as_bytes());
        packet
    }

    /// TABLE_WRITE of one entry to `count` slots from index `first`.
    pub fn table_repeat(table: Pte, first: u32, count: u32, entry: Pte) -> Self {
        let mut packet = Self::new(opcode::TABLE_WRITE, flags::TABLE_REPEAT, &[]);
        packet.push(HEADER_SIZE, TableWrite { table: table.0, first, count }.as_bytes());
        packet.push(HEADER_SIZE + size_of::<TableWrite>(), &entry.0.to_le_bytes());
        packet
    }

    /// Writes `part` of the body at `at` bytes from the header's begin, and has the packet reach as far as that.
    fn push(&mut self, at: usize, part: &[u8]) {
        self.bytes[at..at + part.len()].copy_from_slice(part);
        self.length = self.length.max(at + part.len());
        // CAST: at most MAX_SIZE.
        self.bytes[4..HEADER_SIZE].copy_from_slice(&(self.length as u32).to_le_bytes());
    }

    /// The bytes: header and body.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}
