//! The end of a submission: the progress fence's signal, with its log entry.
#![forbid(unsafe_code)]

use super::{LogCounts, Operation, index_hint};
use crate::hw_queue::ProgressFence;
use crate::mutation::{Chosen, Mutation};
use core::mem::offset_of;
use gpu_wire::packet::{Encoded, Fence, HEADER_SIZE, MonitoredSignal, Progress};

/// Bytes of the longest end of a submission: PROGRESS, MONITORED_SIGNAL.
pub const MAX_TAIL: u64 = (HEADER_SIZE + size_of::<Progress>()) as u64;

/// The end of a submission: the packet that says that everything before it is done. Made once per queue, stamped once
/// per submission.
#[derive(Clone, Copy)]
pub(crate) struct Tail {
    bytes: [u8; MAX_TAIL as usize],
    len: usize,
    /// Where the value is.
    value: usize,
    /// The progress fence, by the handle that its log entries carry.
    handle: u32,
    /// Log entries in it: 1 or 0, always of a signal.
    pub logs: u64,
}

/// Where the value of PROGRESS is, and the word of its handle and index hint.
const VALUE: usize = HEADER_SIZE + offset_of!(Progress, value);
const ENTRY: usize = HEADER_SIZE + offset_of!(Progress, fence_handle);
const _: () = assert!(ENTRY.is_multiple_of(8) && HEADER_SIZE + offset_of!(Progress, index_hint) == ENTRY + 4);
const _: () = assert!(HEADER_SIZE + size_of::<MonitoredSignal>() <= MAX_TAIL as usize);

impl Tail {
    /// The end of submissions to a queue with this progress fence, not stamped.
    pub fn new(progress: &ProgressFence, mutation: &Chosen) -> Self {
        let none = Self { bytes: [0; MAX_TAIL as usize], len: 0, value: 0, handle: progress.handle, logs: 0 };
        if mutation.is(Mutation::NoProgressSignal) || progress.software {
            return none;
        }
        let at_monitored = HEADER_SIZE + offset_of!(MonitoredSignal, value);
        match progress.native {
            false => none.with(&MonitoredSignal { address: progress.gpu_va.0, value: 0 }.to_packet(), at_monitored, 0),
            true if mutation.is(Mutation::NoLog) => {
                none.with(&Encoded::fence_signal(progress.gpu_va, 0), HEADER_SIZE + offset_of!(Fence, value), 0)
            }
            true => {
                let body = Progress { value: 0, fence_handle: progress.handle, index_hint: 0 };
                none.with(&body.to_packet(), VALUE, 1)
            }
        }
    }

    fn with(mut self, packet: &Encoded, value: usize, logs: u64) -> Self {
        let bytes = packet.as_bytes();
        // MAX_TAIL is the longest of the three.
        self.bytes[..bytes.len()].copy_from_slice(bytes);
        (self.len, self.value, self.logs) = (bytes.len(), value, logs);
        self
    }

    /// Gives it a progress value. `executed` counts the log entries before it.
    ///
    /// Whole words are stored, as the packet is copied by words right behind this: a word of which a part has just been
    /// stored is read only when that is in the cache.
    pub fn stamp(&mut self, value: u64, executed: LogCounts) {
        if self.len != 0 {
            self.bytes[self.value..self.value + 8].copy_from_slice(&value.to_le_bytes());
        }
        if self.logs != 0 {
            let hint = index_hint(Operation::Signal, executed, 0);
            let entry = u64::from(self.handle) | u64::from(hint) << 32;
            self.bytes[ENTRY..ENTRY + 8].copy_from_slice(&entry.to_le_bytes());
        }
    }

    /// The packet.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}
