//! How long queues make no progress while the end of a queue or a device waits for their work.

use std::sync::Arc;

use nt_model::Machine;
use nt_model::sched::Ticks;

use super::HwQueue;

/// Since when queues whose work an end waits for have made no progress. Queues of one device may wait for each other.
pub(crate) struct Standstill {
    since: Ticks,
    /// The sum of their progress then.
    seen: u64,
    of: Vec<Arc<HwQueue>>,
}

impl Standstill {
    /// The time without progress begins now.
    pub(crate) fn begin(kernel: &Machine, of: Vec<Arc<HwQueue>>) -> Self {
        let mut begun = Self { since: kernel.now(), seen: 0, of };
        begun.seen = begun.progress();
        begun
    }

    /// The queues whose work the end waits for, in the order in which it does.
    pub(crate) fn queues(&self) -> Vec<Arc<HwQueue>> {
        self.of.clone()
    }

    /// Since when none has made progress, as of the last look.
    pub(super) fn since(&self) -> Ticks {
        self.since
    }

    /// User mode may have written whatever values: their sum wraps.
    fn progress(&self) -> u64 {
        self.of.iter().fold(0, |sum, queue| sum.wrapping_add(queue.progress().value()))
    }

    /// Returns whether one of the queues has made progress since the last look: no time has passed without it then.
    pub(super) fn look(&mut self, kernel: &Machine) -> bool {
        let progress = self.progress();
        let moved = progress != self.seen;
        if moved {
            (self.since, self.seen) = (kernel.now(), progress);
        }
        moved
    }
}
