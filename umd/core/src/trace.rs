//! CPU timestamps of fence operations: FENCE_WAIT_QUEUED and FENCE_SIGNAL_QUEUED of the article.
//!
//! The log buffers that the GPU writes have GPU timestamps only; the CPU's side of the timeline comes from here.
//! "Instead the runtime or UMD can generate fence-queued events with the CPU timestamp at recording of the command
//! list" (*Native GPU fence object*, "CPU timestamps of fence-queued operations"); the table before it says "when the
//! UMD inserted the command into the command queue". Both times are kept: a list may be recorded minutes before it is
//! submitted, and submitted twice.
//!
//! A ring per queue, in memory of the process; old events make room, and their number is told.
#![forbid(unsafe_code)]

use crate::command_list::{FenceOperation, Operation};
use crate::error::UmdError;
use alloc::vec::Vec;
use wddm_abi::D3DKMT_HANDLE;

/// A fence operation that was put into a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// FENCE_WAIT_QUEUED or FENCE_SIGNAL_QUEUED.
    pub operation: Operation,
    /// The fence's handle, as the log entry will have it.
    pub fence: D3DKMT_HANDLE,
    /// The value.
    pub value: u64,
    /// Performance counter when it was recorded; for the progress fence, when it was submitted.
    pub recorded: u64,
    /// Performance counter right before it was put into the queue: never later than the GPU's times of it.
    pub queued: u64,
    /// Progress value of its submission.
    pub progress: u64,
}

/// Events of one queue.
pub struct Trace {
    events: Vec<Event>,
    capacity: usize,
    /// Index of the oldest event.
    first: usize,
    /// Events overwritten since the last read.
    lost: u64,
}

impl Trace {
    /// Room for `capacity` events; 0 keeps none.
    ///
    /// # Errors
    /// [`UmdError::NoMemory`].
    pub fn new(capacity: usize) -> Result<Self, UmdError> {
        let mut events = Vec::new();
        events.try_reserve_exact(capacity)?;
        Ok(Self { events, capacity, first: 0, lost: 0 })
    }

    /// Whether events are kept.
    pub fn is_on(&self) -> bool {
        self.capacity != 0
    }

    /// Notes an operation that is being put into the queue. Allocates nothing.
    pub(crate) fn push(&mut self, operation: &FenceOperation, queued: u64, progress: u64) {
        let FenceOperation { operation, fence, value, recorded } = *operation;
        let event = Event { operation, fence, value, recorded, queued, progress };
        if self.capacity == 0 {
            return;
        }
        if self.events.len() < self.capacity {
            self.events.push(event);
            return;
        }
        // Full: the oldest makes room. `first` is below the capacity, which is the length now.
        self.events[self.first] = event;
        self.first = (self.first + 1) % self.capacity;
        self.lost += 1;
    }

    /// Notes the signal of the progress fence that ends a submission.
    pub(crate) fn push_progress(&mut self, fence: D3DKMT_HANDLE, queued: u64, progress: u64) {
        let operation = FenceOperation { operation: Operation::Signal, fence, value: progress, recorded: queued };
        self.push(&operation, queued, progress);
    }

    /// Takes events out, oldest first, until `take` refuses one; how many were lost before the first of them.
    pub fn drain(&mut self, mut take: impl FnMut(Event) -> bool) -> u64 {
        self.events.rotate_left(self.first);
        self.first = 0;
        let taken = self.events.iter().take_while(|event| take(**event)).count();
        self.events.drain(..taken);
        core::mem::take(&mut self.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::vec;

    fn push(trace: &mut Trace, value: u64) {
        let operation = FenceOperation { operation: Operation::Signal, fence: 1, value, recorded: 5 };
        trace.push(&operation, 10, value);
    }

    fn drain(trace: &mut Trace, most: usize) -> (Vec<u64>, u64) {
        let mut got = vec![];
        let lost = trace.drain(|event| {
            let room = got.len() < most;
            if room {
                got.push(event.value);
            }
            room
        });
        (got, lost)
    }

    #[test]
    fn old_events_make_room_and_are_counted() {
        let mut trace = Trace::new(3).unwrap();
        (1..=5).for_each(|value| push(&mut trace, value));
        assert_eq!(drain(&mut trace, 2), (vec![3, 4], 2));
        push(&mut trace, 6);
        assert_eq!(drain(&mut trace, 9), (vec![5, 6], 0));
        assert_eq!(drain(&mut trace, 9), (vec![], 0));
    }

    #[test]
    fn a_trace_without_room_keeps_nothing() {
        let mut trace = Trace::new(0).unwrap();
        push(&mut trace, 1);
        assert!(!trace.is_on());
        assert_eq!(drain(&mut trace, 9), (vec![], 0));
    }
}
