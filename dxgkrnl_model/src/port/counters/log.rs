//! What was read of native fence logs, and where it belongs on the OS's clock.

use wddm_abi::DXGK_NATIVE_FENCE_LOG_OPERATION;

/// An entry of a native fence log, as the OS read it. Times are the GPU's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// LUID of the adapter.
    pub adapter: u64,
    /// Identifier of the process that the queue belongs to.
    pub process: u64,
    /// User mode's handle of the queue.
    pub queue: u32,
    /// Its node.
    pub node: u32,
    /// User mode's handle of the fence, as the GPU wrote it.
    pub fence: u32,
    /// The value that was signaled or reached.
    pub value: u64,
    /// The operation, as the GPU wrote it; see [`operation`](Self::operation).
    pub operation: u32,
    /// It stood in the buffer of waits.
    pub is_wait_log: bool,
    /// When an unresolved wait was seen; 0: not.
    pub observed: u64,
    /// When the operation was done; 0: unknown.
    pub end: u64,
}

impl LogRecord {
    /// The operation, if it is one that the documents name.
    pub fn operation(&self) -> Option<DXGK_NATIVE_FENCE_LOG_OPERATION> {
        // CAST: an enumerator's number.
        let operation = DXGK_NATIVE_FENCE_LOG_OPERATION(self.operation as i32);
        operation.name().map(|_| operation)
    }
}

/// A record and the time on the OS's clock that goes with its GPU time: for timelines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedRecord {
    /// The record.
    pub record: LogRecord,
    /// Performance counter at the end of the operation.
    pub cpu_end: u64,
}

/// A pair of clocks read at the same moment by `DxgkDdiCalibrateGpuClock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// LUID of the adapter.
    pub adapter: u64,
    /// The node.
    pub node: u32,
    /// GPU ticks per second.
    pub frequency: u64,
    /// GPU clock.
    pub gpu: u64,
    /// Performance counter.
    pub cpu: u64,
}

/// Entries of a log that were overwritten before the OS read them, while fences were traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLoss {
    /// LUID of the adapter.
    pub adapter: u64,
    /// Identifier of the process that the queue belongs to.
    pub process: u64,
    /// User mode's handle of the queue.
    pub queue: u32,
    /// Its node.
    pub node: u32,
    /// They stood in the buffer of waits.
    pub is_wait_log: bool,
    /// How many.
    pub lost: u64,
    /// GPU time at which an entry before them ended; 0: none is known.
    pub after: u64,
    /// GPU time at which the first entry behind them ended; 0: none is known.
    pub before: u64,
    /// How many entries of [`Report::log`](crate::entry::report::Report::log) were read before that was seen: the
    /// entries behind the loss begin there.
    pub at: usize,
}

/// A loss and the times on the OS's clock that it lies between: for timelines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedLoss {
    /// The loss.
    pub loss: LogLoss,
    /// Performance counter at [`LogLoss::after`]; the other end where that is not known.
    pub cpu_after: u64,
    /// Performance counter at [`LogLoss::before`]; the other end where that is not known.
    pub cpu_before: u64,
}
