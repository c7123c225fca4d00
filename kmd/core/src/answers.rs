//! Waiting for engines: until a flush is served, until one holds, until one has left a queue. And waiting for other
//! threads, which announce what they have done in the same way: until a physical doorbell has changed hands.
//!
//! A thread that waits is counted, and then looks; an engine's thread does what is waited for, and then looks whether
//! any is counted: behind each step, and behind each flush, which it serves in the middle of steps as well. At least
//! one of them sees the other, so that the event is set. It wakes one thread, which may be another than the one that
//! was meant: so a thread that has its answer sets it for the next, and each looks once a tick whatever happens.

use crate::irql::Passive;
use crate::platform::{self, Event, Platform};
use core::sync::atomic::{AtomicU32, Ordering};
use gpu_engine::word::machine_fence;

/// Where DDIs wait for what others do and announce.
pub struct Answers<P: Platform> {
    event: P::Event,
    waiting: AtomicU32,
}

impl<P: Platform> Answers<P> {
    /// None waits. `event` is not set, and nothing else sets it.
    pub(crate) fn new(event: P::Event) -> Self {
        Self { event, waiting: AtomicU32::new(0) }
    }

    /// Waits until `done`, which one that announces makes true, for `patience` units of 100 ns or, with `None`, for as
    /// long as it takes. Returns whether `done` said so in time. No lock is held.
    pub fn wait(&self, _irql: &Passive, platform: &P, patience: Option<u64>, mut done: impl FnMut() -> bool) -> bool {
        if done() {
            return true;
        }
        let deadline = platform::deadline(platform, patience);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let answered = loop {
            machine_fence(Ordering::SeqCst);
            if done() {
                break true;
            }
            if platform::is_over(platform, deadline) {
                break false;
            }
            self.event.wait(Some(1));
        };
        if self.waiting.fetch_sub(1, Ordering::SeqCst) > 1 {
            self.event.set();
        }
        answered
    }

    /// An engine's thread, behind a step, and before it waits: what it has done may be what a DDI waits for.
    pub(crate) fn announce(&self) {
        machine_fence(Ordering::SeqCst);
        self.announce_soon();
    }

    /// The same behind a step that found nothing to do, where a look follows at once: what is waited for may not be
    /// seen by this look, and is by a later one. A full fence at each look would be a third of it.
    pub(crate) fn announce_soon(&self) {
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.event.set();
        }
    }
}
