//! What a command list remembers about its packets.
#![forbid(unsafe_code)]

use super::LogCounts;
use crate::error::UmdError;
use alloc::vec::Vec;
use gpu_wire::GpuVa;
use wddm_abi::D3DKMT_HANDLE;

/// A fence operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Operation {
    /// A wait.
    Wait = 0,
    /// A signal.
    Signal = 1,
}

/// A fence operation that was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FenceOperation {
    /// Which.
    pub operation: Operation,
    /// The fence's handle.
    pub fence: D3DKMT_HANDLE,
    /// The value.
    pub value: u64,
    /// Performance counter at recording.
    pub recorded: u64,
}

/// A place where the kernel-mode paths cannot go on in one command buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cut {
    /// The OS waits here, before the packets from `at` on.
    Wait {
        /// Offset in the list.
        at: u64,
        /// The monitored fence.
        handle: D3DKMT_HANDLE,
        /// The value.
        value: u64,
    },
    /// The wait at `from..to`, with its log entry. On a kernel-mode queue the OS waits in its place.
    NativeWait {
        /// Offset of the packet.
        from: u64,
        /// Offset behind it.
        to: u64,
        /// The native fence.
        handle: D3DKMT_HANDLE,
        /// The value.
        value: u64,
    },
    /// The MONITORED_SIGNAL packet at `from..to`, which the OS carries out where the engine cannot.
    Signal {
        /// Offset of the packet.
        from: u64,
        /// Offset behind it.
        to: u64,
        /// The monitored fence.
        handle: D3DKMT_HANDLE,
        /// The value.
        value: u64,
    },
    /// The INDIRECT packet at `from..to`: inside a command buffer it does not come back.
    Indirect {
        /// Offset of the packet.
        from: u64,
        /// Offset behind it.
        to: u64,
        /// The command buffer.
        address: GpuVa,
        /// Its length in bytes.
        length: u64,
    },
}

/// Where the index hint of a packet's log entry is.
#[derive(Clone, Copy)]
pub(super) struct LogSlot {
    /// Offset of the hint's four bytes.
    pub at: usize,
    /// Which log.
    pub operation: Operation,
    /// How many entries of the same log come before it in the list.
    pub index: u64,
}

/// The notes.
pub(super) struct Notes {
    pub logs: Vec<LogSlot>,
    pub operations: Vec<FenceOperation>,
    pub cuts: Vec<Cut>,
    pub counts: LogCounts,
    pub native: bool,
    pub monitored: bool,
}

impl Notes {
    pub const fn new() -> Self {
        Self {
            logs: Vec::new(),
            operations: Vec::new(),
            cuts: Vec::new(),
            counts: LogCounts { waits: 0, signals: 0 },
            native: false,
            monitored: false,
        }
    }

    pub fn clear(&mut self) {
        self.logs.clear();
        self.operations.clear();
        self.cuts.clear();
        *self = Self {
            logs: core::mem::take(&mut self.logs),
            operations: core::mem::take(&mut self.operations),
            cuts: core::mem::take(&mut self.cuts),
            ..Self::new()
        };
    }

    /// Room for one more note of each kind, and the operation to note once its packets are in.
    pub fn begin(
        &mut self,
        operation: Operation,
        fence: D3DKMT_HANDLE,
        value: u64,
        recorded: u64,
    ) -> Result<FenceOperation, UmdError> {
        self.logs.try_reserve(1)?;
        self.operations.try_reserve(1)?;
        self.cuts.try_reserve(1)?;
        Ok(FenceOperation { operation, fence, value, recorded })
    }

    /// How many entries of that log there are so far.
    pub fn next_index(&self, operation: Operation) -> u64 {
        match operation {
            Operation::Wait => self.counts.waits,
            Operation::Signal => self.counts.signals,
        }
    }

    pub fn add_log(&mut self, at: usize, operation: Operation) {
        let index = self.next_index(operation);
        self.logs.push(LogSlot { at, operation, index });
        match operation {
            Operation::Wait => self.counts.waits += 1,
            Operation::Signal => self.counts.signals += 1,
        }
    }
}
