//! Stage 1 of 8: recording.
//!
//! A command list is packets in private memory, and notes about some of them: where LOG packets are (their index hints
//! are filled in when the list is submitted), which fence operations there are (for the trace), and where the
//! kernel-mode paths must cut. One list serves every path; it can be submitted again and again, to any queue of its
//! device that it fits.
//!
//! Every native fence wait and signal carries what its log entry says, handle, value and operation, in the same packet.
//! "Directly after the command that waits or signals, the UMD inserts the command to write the payload" (*Native GPU
//! fence object*, "Log buffer mechanism", 2).
//!
//! What recording does not do: check addresses. The engine does, and a bad one is a fault of the queue.
#![forbid(unsafe_code)]

mod notes;
mod tail;

pub(crate) use notes::Cut;
pub use notes::{FenceOperation, Operation};
pub use tail::MAX_TAIL;
pub(crate) use tail::Tail;

use crate::error::UmdError;
use crate::fence::Fence;
use crate::mutation::{Chosen, Mutation};
use crate::thunks::Thunks;
use alloc::vec::Vec;
use core::mem::offset_of;
use core::ops::AddAssign;
use gpu_wire::GpuVa;
use gpu_wire::packet::{
    self, CopyRect, Encoded, FenceLogged, Fill, FilterRect, HEADER_SIZE, Indirect, Log, MAX_INDIRECT_SIZE,
    MAX_NOP_SIZE, MonitoredSignal, Store, Timestamp, log_operation,
};
use gpu_wire::ring::ALIGN;
use notes::{LogSlot, Notes};
use wddm_abi::{D3DKMT_HANDLE, DXGK_NATIVE_FENCE_LOG_ENTRY, DXGK_NATIVE_FENCE_LOG_HEADER};

/// Bytes of a log buffer. Source: *Native GPU fence object*, "Log buffer mechanism", 1: two dedicated 4 KB buffers.
const LOG_BUFFER: usize = 4096;
/// Entries of a log buffer: what index hints count modulo. The OS may use a longer buffer (it "can increase the size
/// while tracing"); then hints are wrong, which costs nothing, since the engine's own count decides.
pub const LOG_ENTRIES: u64 =
    ((LOG_BUFFER - size_of::<DXGK_NATIVE_FENCE_LOG_HEADER>()) / size_of::<DXGK_NATIVE_FENCE_LOG_ENTRY>()) as u64;

/// How many LOG packets a queue has executed or will: what index hints continue from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogCounts {
    /// Of waits.
    pub waits: u64,
    /// Of signals.
    pub signals: u64,
}

impl AddAssign for LogCounts {
    fn add_assign(&mut self, more: Self) {
        self.waits += more.waits;
        self.signals += more.signals;
    }
}

/// Recorded packets.
pub struct CommandList {
    bytes: Vec<u8>,
    limit: u64,
    notes: Notes,
}

impl CommandList {
    /// An empty list that never holds more than `limit` bytes.
    pub const fn new(limit: u64) -> Self {
        Self { bytes: Vec::new(), limit, notes: Notes::new() }
    }

    /// Forgets what was recorded; keeps the memory.
    pub fn reset(&mut self) {
        self.bytes.clear();
        self.notes.clear();
    }

    /// The packets. Index hints are those of the last submission, or start at 0.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes recorded.
    pub fn len(&self) -> u64 {
        // CAST: usize is 64 bits wide.
        self.bytes.len() as u64
    }

    /// Whether nothing is recorded. A software wait counts as something.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.notes.cuts.is_empty()
    }

    /// Bytes that it may hold.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Fence operations, in order.
    pub fn fence_operations(&self) -> &[FenceOperation] {
        &self.notes.operations
    }

    /// Whether a native fence is waited for or signaled.
    pub fn uses_native_fences(&self) -> bool {
        self.notes.native
    }

    /// Whether a monitored fence is waited for or signaled.
    pub fn uses_monitored_fences(&self) -> bool {
        self.notes.monitored
    }

    /// LOG packets recorded.
    pub fn log_counts(&self) -> LogCounts {
        self.notes.counts
    }

    /// Returns whether the list may wait for a fence: it has a wait, or a command buffer of the caller's, which may.
    pub(crate) fn may_stand_still(&self) -> bool {
        self.notes.counts.waits != 0 || !self.notes.cuts.is_empty()
    }

    /// LOG packets between two offsets.
    pub(crate) fn log_counts_in(&self, from: u64, to: u64) -> LogCounts {
        let mut counts = LogCounts::default();
        // CAST: usize is 64 bits wide.
        for slot in self.notes.logs.iter().filter(|slot| (from..to).contains(&(slot.at as u64))) {
            match slot.operation {
                Operation::Wait => counts.waits += 1,
                Operation::Signal => counts.signals += 1,
            }
        }
        counts
    }

    pub(crate) fn cuts(&self) -> &[Cut] {
        &self.notes.cuts
    }

    /// Makes room for `len` more bytes.
    fn grow(&mut self, len: u64) -> Result<(), UmdError> {
        let bytes = self.len() + len;
        if bytes > self.limit {
            return Err(UmdError::ListTooLarge { bytes, limit: self.limit });
        }
        // CAST: at most the limit.
        self.bytes.try_reserve(len as usize)?;
        Ok(())
    }

    fn push(&mut self, packet: &Encoded) -> Result<(), UmdError> {
        self.raw(packet.as_bytes())
    }

    /// Bytes as they are: packets that nobody checks, for tests of what the engine does with them.
    ///
    /// # Errors
    /// [`UmdError::InvalidArgument`] when the length is no multiple of 8; [`UmdError::ListTooLarge`];
    /// [`UmdError::NoMemory`].
    pub fn raw(&mut self, bytes: &[u8]) -> Result<(), UmdError> {
        // CAST: usize is 64 bits wide.
        let len = bytes.len() as u64;
        if !len.is_multiple_of(ALIGN) {
            return Err(UmdError::InvalidArgument("packet length"));
        }
        self.grow(len)?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// NOP of `len` bytes, a multiple of 8 from 8 on.
    ///
    /// # Errors
    /// As [`Self::raw`].
    pub fn nop(&mut self, len: u32) -> Result<(), UmdError> {
        if !(8..=MAX_NOP_SIZE).contains(&len) || !u64::from(len).is_multiple_of(ALIGN) {
            return Err(UmdError::InvalidArgument("packet length"));
        }
        self.grow(len.into())?;
        self.push(&Encoded::nop(len))?;
        let end = self.bytes.len() - HEADER_SIZE + len as usize;
        self.bytes.resize(end, 0);
        Ok(())
    }

    /// STORE of 8 bytes at an address that is a multiple of 8. Notifies nobody.
    ///
    /// # Errors
    /// [`UmdError::ListTooLarge`], [`UmdError::NoMemory`]; so for all that follow.
    pub fn store(&mut self, address: GpuVa, value: u64) -> Result<(), UmdError> {
        self.push(&Store { address: address.0, value }.to_packet())
    }

    /// STORE of 4 bytes at an address that is a multiple of 4.
    ///
    /// # Errors
    /// As [`Self::store`].
    pub fn store32(&mut self, address: GpuVa, value: u32) -> Result<(), UmdError> {
        self.push(&Encoded::store32(address, value))
    }

    /// FILL of `length` bytes with a pattern, both the address and the length multiples of 4.
    ///
    /// # Errors
    /// As [`Self::store`].
    pub fn fill(&mut self, address: GpuVa, length: u64, pattern: u32) -> Result<(), UmdError> {
        self.push(&Fill { address: address.0, length, pattern, reserved: 0 }.to_packet())
    }

    /// COPY of `length` bytes between ranges that do not overlap.
    ///
    /// # Errors
    /// As [`Self::store`].
    pub fn copy(&mut self, source: GpuVa, destination: GpuVa, length: u64) -> Result<(), UmdError> {
        self.push(&packet::Copy { source: source.0, destination: destination.0, length }.to_packet())
    }

    /// COPY_RECT.
    ///
    /// # Errors
    /// As [`Self::store`].
    pub fn copy_rect(&mut self, rect: CopyRect) -> Result<(), UmdError> {
        self.push(&rect.to_packet())
    }

    /// FILTER_RECT.
    ///
    /// # Errors
    /// As [`Self::store`].
    pub fn filter_rect(&mut self, rect: FilterRect) -> Result<(), UmdError> {
        self.push(&rect.to_packet())
    }

    /// TIMESTAMP: the GPU clock at an address that is a multiple of 8.
    ///
    /// # Errors
    /// As [`Self::store`].
    pub fn timestamp(&mut self, address: GpuVa) -> Result<(), UmdError> {
        self.push(&Timestamp { address: address.0 }.to_packet())
    }

    /// INDIRECT: executes the command buffer of `length` bytes at `address`, then goes on.
    ///
    /// # Errors
    /// [`UmdError::InvalidArgument`] for what no engine would take; those of [`Self::store`].
    pub fn indirect(&mut self, address: GpuVa, length: u64) -> Result<(), UmdError> {
        if !address.is_aligned(ALIGN) || !length.is_multiple_of(ALIGN) || length == 0 || length > MAX_INDIRECT_SIZE {
            return Err(UmdError::InvalidArgument("command buffer"));
        }
        let at = self.len();
        self.notes.cuts.try_reserve(1)?;
        self.push(&Indirect { address: address.0, length }.to_packet())?;
        self.notes.cuts.push(Cut::Indirect { from: at, to: self.len(), address, length });
        Ok(())
    }

    /// Waits until the fence is at least `value`. For a native fence a user-mode queue parks. For a monitored fence,
    /// and for any fence on a kernel-mode queue, the list is cut here and the OS holds back the rest: a buffer that
    /// waited inside would look hung.
    ///
    /// # Errors
    /// As [`Self::store`].
    pub fn fence_wait<T: Thunks>(&mut self, fence: &Fence<T>, value: u64) -> Result<(), UmdError> {
        let os = fence.device().os();
        let operation = self.notes.begin(Operation::Wait, fence.handle(), value, os.thunks().timestamp())?;
        match fence {
            Fence::Native(native) => {
                let from = self.len();
                self.logged(native.gpu_va(), operation, &os.mutation)?;
                self.notes.cuts.push(Cut::NativeWait { from, to: self.len(), handle: operation.fence, value });
                Ok(())
            }
            Fence::Monitored(_) => {
                let at = self.len();
                self.notes.cuts.push(Cut::Wait { at, handle: operation.fence, value });
                self.notes.monitored = true;
                self.notes.operations.push(operation);
                Ok(())
            }
        }
    }

    /// Stores `value` in the fence and wakes what waits for it. Where the engine cannot write monitored fences, the
    /// list is cut here, and the OS signals.
    ///
    /// # Errors
    /// As [`Self::store`].
    pub fn fence_signal<T: Thunks>(&mut self, fence: &Fence<T>, value: u64) -> Result<(), UmdError> {
        let os = fence.device().os();
        let operation = self.notes.begin(Operation::Signal, fence.handle(), value, os.thunks().timestamp())?;
        match fence {
            Fence::Native(native) => self.logged(native.gpu_va(), operation, &os.mutation),
            Fence::Monitored(monitored) => {
                let from = self.len();
                self.push(&MonitoredSignal { address: monitored.gpu_va().0, value }.to_packet())?;
                self.notes.cuts.push(Cut::Signal { from, to: self.len(), handle: operation.fence, value });
                self.notes.monitored = true;
                self.notes.operations.push(operation);
                Ok(())
            }
        }
    }

    /// An operation on the native fence at `fence`, with its log entry.
    fn logged(&mut self, fence: GpuVa, operation: FenceOperation, mutation: &Chosen) -> Result<(), UmdError> {
        let FenceOperation { operation: kind, fence: handle, value, .. } = operation;
        let index = self.notes.next_index(kind);
        // CAST: below LOG_ENTRIES.
        let index_hint = (index % LOG_ENTRIES) as u32;
        let body = FenceLogged { fence: fence.0, value, fence_handle: handle, index_hint };
        let unlogged = |kind| match kind {
            Operation::Wait => Encoded::fence_wait(fence, value),
            Operation::Signal => Encoded::fence_signal(fence, value),
        };
        if mutation.is(Mutation::NoLog) {
            self.push(&unlogged(kind))?;
        } else if mutation.is(Mutation::LogBeforeOperation) {
            let at = self.bytes.len() + HEADER_SIZE + offset_of!(Log, index_hint);
            self.push(&log_packet(kind, handle, value, index))?;
            self.notes.add_log(at, kind);
            self.push(&unlogged(kind))?;
        } else {
            let at = self.bytes.len() + HEADER_SIZE + offset_of!(FenceLogged, index_hint);
            self.push(&match kind {
                Operation::Wait => Encoded::fence_wait_logged(body),
                Operation::Signal => body.to_packet(),
            })?;
            self.notes.add_log(at, kind);
        }
        self.notes.native = true;
        self.notes.operations.push(operation);
        Ok(())
    }

    /// Fills in the index hints of a list whose first LOG packets follow `executed` others.
    pub(crate) fn set_index_hints(&mut self, executed: LogCounts) {
        for LogSlot { at, operation, index } in &self.notes.logs {
            let hint = index_hint(*operation, executed, *index);
            if let Some(bytes) = self.bytes.get_mut(*at..*at + 4) {
                bytes.copy_from_slice(&hint.to_le_bytes());
            }
        }
    }
}

/// The hint of the `index`-th LOG packet of its kind after `executed` others.
fn index_hint(operation: Operation, executed: LogCounts, index: u64) -> u32 {
    let executed = match operation {
        Operation::Wait => executed.waits,
        Operation::Signal => executed.signals,
    };
    // CAST: below LOG_ENTRIES.
    ((executed + index) % LOG_ENTRIES) as u32
}

/// The LOG packet of an operation that does not carry its entry.
fn log_packet(operation: Operation, fence: D3DKMT_HANDLE, value: u64, index: u64) -> Encoded {
    let code = match operation {
        Operation::Wait => log_operation::WAIT_UNBLOCKED,
        Operation::Signal => log_operation::SIGNAL_EXECUTED,
    };
    // CAST: below LOG_ENTRIES.
    let index_hint = (index % LOG_ENTRIES) as u32;
    Log { fence_handle: fence, operation: code, value, index_hint, reserved: 0 }.to_packet()
}

#[cfg(test)]
mod tests;
