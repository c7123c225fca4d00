//! What happens to the packets of a node, as the scheduler sees it.

use std::collections::VecDeque;

use crate::port::sync::{Lock, Rank};

/// Events that are kept; older ones go.
const KEPT: usize = 1 << 16;

/// Something that happened on a packet node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketEvent {
    /// A packet was handed to the driver.
    Submitted {
        /// Its fence id.
        id: u32,
        /// It is a paging packet.
        paging: bool,
        /// With the flag `Resubmission`.
        again: bool,
    },
    /// The driver reported it, and those in front of it, as completed.
    Completed {
        /// Its fence id.
        id: u32,
    },
    /// The node was asked to preempt.
    Preempting {
        /// The fence id of that.
        request: u32,
    },
    /// The driver answered.
    Preempted {
        /// What it answered.
        request: u32,
        /// The last packet that it has completed.
        completed: u32,
        /// Packets that come back.
        back: usize,
    },
    /// A reset has ended.
    Reset {
        /// The last packet that it took; `None`: all.
        aborted: Option<u32>,
        /// Packets that it took.
        lost: usize,
        /// Packets that come back.
        back: usize,
    },
}

/// How often a node was preempted, ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preemptions {
    /// Answers of the driver.
    pub answers: usize,
    /// Packets that came back with them.
    pub back: usize,
}

#[derive(Debug)]
pub(super) struct Journal {
    events: Lock<(VecDeque<PacketEvent>, Preemptions)>,
}

impl Journal {
    pub(super) fn new() -> Self {
        Self { events: Lock::new(Rank::Leaf, (VecDeque::new(), Preemptions::default())) }
    }

    /// IRQL: any.
    pub(super) fn note(&self, event: PacketEvent) {
        let mut kept = self.events.lock();
        let (events, preemptions) = &mut *kept;
        if let PacketEvent::Preempted { back, .. } = event {
            preemptions.answers += 1;
            preemptions.back += back;
        }
        if events.len() == KEPT {
            events.pop_front();
        }
        events.push_back(event);
    }

    pub(super) fn events(&self) -> Vec<PacketEvent> {
        self.events.lock().0.iter().copied().collect()
    }

    pub(super) fn preemptions(&self) -> Preemptions {
        self.events.lock().1
    }
}
