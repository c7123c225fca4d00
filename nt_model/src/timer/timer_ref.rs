//! Timers that are set, which lie in driver memory.
#![expect(unsafe_code, reason = "the timer table refers to records in driver memory")]

use crate::records::KTIMER;

/// A timer that is set.
#[derive(Debug)]
pub(super) struct TimerRef(*const KTIMER);

// SAFETY: the record consists of atomics; sharing a pointer to it is sharing a `&KTIMER`.
unsafe impl Send for TimerRef {}

impl TimerRef {
    pub(super) fn new(timer: &KTIMER) -> Self {
        Self(timer)
    }

    pub(super) fn get(&self) -> &KTIMER {
        // SAFETY: a set timer must stay in memory until it expired or was cancelled (KeSetTimer); freeing pool that
        // contains one is caught and forgets it.
        unsafe { &*self.0 }
    }
}
