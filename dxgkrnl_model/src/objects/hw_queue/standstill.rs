//! Waits for the work of queues: how long they make no progress while the end of a queue, a context, devices or a
//! process waits, and what a device that is to be idle waits for.

use std::sync::Arc;

use nt_model::Machine;
use nt_model::sched::Ticks;

use super::HwQueue;
use crate::objects::fence::{Target, cancel, wait_for};
use crate::port::sync::Signal;

/// Waits until everything that was queued on `queues`, which end together, is done, or their devices fail; `until` at
/// the latest. Doorbells of all of them go first: none is rung while another one's work is waited for. The queues have
/// one time without progress for all, since any may wait for any other; where none of them has made progress for one to
/// two TdrDelays, all that are not done are given up. Returns those.
///
/// Source: article user-mode-work-submission, Normal process termination. Chosen: that doorbells of all queues go
/// before the first wait.
///
/// IRQL: PASSIVE_LEVEL.
pub(crate) fn drain(kernel: &Machine, queues: Vec<Arc<HwQueue>>, until: Ticks) -> Vec<Arc<HwQueue>> {
    for queue in &queues {
        queue.disconnect_doorbells();
    }
    let mut standstill = Standstill::begin(kernel, queues.clone());
    queues.into_iter().filter(|queue| !queue.drain(&mut standstill, until)).collect()
}

impl HwQueue {
    /// Waits until what user mode says that it has queued last is done, or `over` says that nothing more is.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn wait_for_queued(&self, over: impl Fn() -> bool) {
        let (adapter, kernel) = (self.adapter(), self.adapter().kernel());
        let fences = [(self.progress().fence(), self.last_queued())];
        let wait = wait_for(kernel, &fences, false, Target::Thread(Signal::new()));
        let is_over = || (wait.is_over() || !self.is_alive() || over()).then_some(());
        while let Some(signal) = wait.signal().filter(|_| !kernel.rules.is_stopped()) {
            // A process that ends is looked for, too.
            let until = kernel.now() + adapter.personality().tdr.delay;
            if signal.wait_for(kernel, Some(until), is_over).is_some() {
                break;
            }
        }
        cancel(kernel, &fences, &wait);
    }
}

/// Since when queues whose work an end waits for have made no progress. They may wait for each other.
pub(super) struct Standstill {
    since: Ticks,
    /// The sum of their progress then.
    seen: u64,
    of: Vec<Arc<HwQueue>>,
}

impl Standstill {
    /// The time without progress begins now.
    fn begin(kernel: &Machine, of: Vec<Arc<HwQueue>>) -> Self {
        let mut begun = Self { since: kernel.now(), seen: 0, of };
        begun.seen = begun.progress();
        begun
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
