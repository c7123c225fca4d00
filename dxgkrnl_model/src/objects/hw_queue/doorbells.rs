//! A queue's doorbells, and what user mode says by them that it has queued.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::HwQueue;
use crate::objects::doorbell::Doorbell;
use crate::port::counters::{UserFault, UserMistake};

impl HwQueue {
    /// Its doorbells, the newest last: one at most, and two while the ring is being resized.
    pub(crate) fn doorbells(&self) -> Vec<Arc<Doorbell>> {
        let all: Vec<_> = self.doorbells.lock().iter().filter_map(Weak::upgrade).collect();
        all.into_iter().filter(|doorbell| doorbell.is_alive()).collect()
    }

    /// The newest doorbell, if it has one.
    pub(crate) fn doorbell(&self) -> Option<Arc<Doorbell>> {
        self.doorbells().pop()
    }

    pub(crate) fn add_doorbell(&self, doorbell: &Arc<Doorbell>) {
        let mut doorbells = self.doorbells.lock();
        doorbells.retain(|old| old.upgrade().is_some_and(|old| old.is_alive()));
        doorbells.push(Arc::downgrade(doorbell));
    }

    /// Keeps what user mode has queued last by a doorbell that goes.
    pub(crate) fn note_told(&self, last_queued: u64) {
        self.told.fetch_max(last_queued, Ordering::AcqRel);
    }

    /// What user mode has ever said that it queued last.
    pub(crate) fn told(&self) -> u64 {
        let told = self.told.load(Ordering::Acquire);
        self.doorbells().iter().map(|doorbell| doorbell.last_queued()).fold(told, u64::max)
    }

    /// The value that its progress fence has when everything that was queued is done.
    pub(crate) fn last_queued(&self) -> u64 {
        if self.is_user_mode() {
            return self.doorbells().iter().map(|doorbell| doorbell.last_queued()).max().unwrap_or(0);
        }
        self.flights.lock().iter().map(|flight| flight.progress).max().unwrap_or(0)
    }

    /// Looks whether user mode tells what it queues: progress beyond the last queued value is a fault of the user-mode
    /// driver, reported once.
    pub(crate) fn judge_queued(&self) {
        // Those that there are now. One that goes meanwhile tells nothing any more.
        let doorbells = if self.is_user_mode() { self.doorbells() } else { Vec::new() };
        if doorbells.is_empty() {
            return;
        }
        // In this order: user mode stores the value before anything shows the work to the GPU.
        let progress = self.progress.value();
        let queued = self.told();
        if !doorbells.iter().all(|doorbell| doorbell.is_alive()) {
            return;
        }
        let is_wrong = progress > queued && self.context.device().usable().is_ok();
        if is_wrong && !self.is_untold.swap(true, Ordering::AcqRel) {
            let process = self.context.device().process().process().map_or(0, |process| process.nt().id());
            let mistake = UserMistake::ProgressAhead { queue: self.user_handle(), progress, queued };
            self.adapter().shared().counters.user_fault(UserFault { process, mistake });
        }
    }
}
