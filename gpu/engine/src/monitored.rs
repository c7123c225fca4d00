//! Stage 5 for monitored fences: a GPU's three limits on them, `basic`, `narrow` and `unable`.
//!
//! The progress fence of a hardware queue is an exception to two of them: hardware scheduling rests on it. Where
//! engines have the basic implementation the OS learns of the end of a buffer by that fence's interrupt; and where an
//! engine cannot write monitored fences by address, it writes this one all the same.
//!
//! Source: *Context monitoring*, "GPU signal" and "Monitored fence creation".

use gpu_wire::NodeOrdinal;

/// How the GPU treats monitored fences.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MonitoredFences {
    /// The basic implementation: a signal interrupts nobody, and the OS looks when the buffer is done.
    pub basic: bool,
    /// Signals store the low 32 bits.
    pub narrow: bool,
    /// One bit per node whose engine cannot write monitored fences.
    pub unable: u32,
}

impl MonitoredFences {
    /// Returns whether the engine of `node` cannot write monitored fences.
    pub fn is_unable(&self, node: NodeOrdinal) -> bool {
        self.unable & 1_u32.checked_shl(node.0).unwrap_or(0) != 0
    }
}
