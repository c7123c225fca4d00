//! Why a stream comes off its engine.

use crate::fault::Fault;

/// Why execution came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// Nothing is left.
    Drained,
    /// Another queue's turn.
    Budget,
    /// Parked on a fence.
    Parked,
    /// A suspension or preemption asks for the engine.
    Preempted,
    /// Reset or stop.
    Controlled,
    /// Waits for other engines, or for memory; ask again soon.
    Waiting,
    /// The queue was stopped or destroyed.
    Gone,
    /// It did something wrong.
    Faulted(Fault),
}

impl Outcome {
    /// Its number in `debug_blob::ENDS`.
    pub(super) const fn number(self) -> u64 {
        match self {
            Self::Drained => 1,
            Self::Budget => 2,
            Self::Parked => 3,
            Self::Preempted => 4,
            Self::Controlled => 5,
            Self::Waiting => 6,
            Self::Gone => 7,
            Self::Faulted(_) => 8,
        }
    }
}
