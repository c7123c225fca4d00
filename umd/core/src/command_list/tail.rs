//! The end of a submission: the progress fence's signal and its LOG.
#![forbid(unsafe_code)]

use super::{LogCounts, Operation, index_hint, log_packet};
use crate::hw_queue::ProgressFence;
use crate::mutation::{Chosen, Mutation};
use core::mem::offset_of;
use gpu_wire::packet::{Encoded, Fence, HEADER_SIZE, Log, MonitoredSignal};

/// Bytes of the longest end of a submission: FENCE_SIGNAL and LOG.
pub const MAX_TAIL: u64 = (HEADER_SIZE * 2 + size_of::<Fence>() + size_of::<Log>()) as u64;

/// The end of a submission: the packet that says that everything before it is done, and its LOG. Made once per queue,
/// stamped once per submission.
#[derive(Clone, Copy)]
pub(crate) struct Tail {
    bytes: [u8; MAX_TAIL as usize],
    len: usize,
    /// LOG packets in it: 1 or 0, always of a signal.
    pub logs: u64,
}

/// Bytes of FENCE_SIGNAL and of MONITORED_SIGNAL, and where both have their value.
const SIGNAL_BYTES: usize = HEADER_SIZE + size_of::<Fence>();
const SIGNAL_VALUE: usize = HEADER_SIZE + offset_of!(Fence, value);
/// Where the LOG behind the signal has its value and its index hint.
const LOG_VALUE: usize = SIGNAL_BYTES + HEADER_SIZE + offset_of!(Log, value);
const LOG_HINT: usize = SIGNAL_BYTES + HEADER_SIZE + offset_of!(Log, index_hint);
const _: () = assert!(SIGNAL_VALUE == HEADER_SIZE + offset_of!(MonitoredSignal, value));

impl Tail {
    /// The end of submissions to a queue with this progress fence, not stamped.
    pub fn new(progress: &ProgressFence, mutation: &Chosen) -> Self {
        let mut tail = Self { bytes: [0; MAX_TAIL as usize], len: 0, logs: 0 };
        if mutation.is(Mutation::NoProgressSignal) {
            return tail;
        }
        if progress.software {
            return tail;
        }
        if !progress.native {
            tail.push(&MonitoredSignal { address: progress.gpu_va.0, value: 0 }.to_packet());
            return tail;
        }
        tail.push(&Encoded::fence_signal(progress.gpu_va, 0));
        if !mutation.is(Mutation::NoLog) {
            tail.push(&log_packet(Operation::Signal, progress.handle, 0, 0));
            tail.logs = 1;
        }
        tail
    }

    fn push(&mut self, packet: &Encoded) {
        let bytes = packet.as_bytes();
        let end = self.len + bytes.len();
        // MAX_TAIL is the sum of both packets.
        self.bytes[self.len..end].copy_from_slice(bytes);
        self.len = end;
    }

    /// This end with a progress value. `executed` counts the LOG packets before it.
    pub fn stamped(mut self, value: u64, executed: LogCounts) -> Self {
        self.bytes[SIGNAL_VALUE..SIGNAL_VALUE + 8].copy_from_slice(&value.to_le_bytes());
        if self.logs != 0 {
            self.bytes[LOG_VALUE..LOG_VALUE + 8].copy_from_slice(&value.to_le_bytes());
            let hint = index_hint(Operation::Signal, executed, 0);
            self.bytes[LOG_HINT..LOG_HINT + 4].copy_from_slice(&hint.to_le_bytes());
        }
        self
    }

    /// The packets.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}
