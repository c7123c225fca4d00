//! A typed trace of what an engine did last: a ring that the engine writes at any IRQL, and that debug blobs and tests
//! read. Old events are overwritten.

use crate::NoMemory;
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering};

/// Events kept.
pub const CAPACITY: usize = 256;

/// What happened. The numbers appear in debug blobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Event {
    /// A queue went on the engine. Argument: slot.
    Run = 1,
    /// A queue parked. Argument: slot.
    Park = 2,
    /// A queue faulted. Argument: kind.
    Fault = 3,
    /// A fence was signaled. Argument: value.
    Signal = 4,
    /// An interrupt was raised.
    Interrupt = 5,
    /// A reset was served.
    Reset = 6,
    /// A flush was served. Argument: sequence.
    Flush = 7,
    /// A context was suspended. Argument: slot.
    Suspend = 8,
    /// A packet completed. Argument: fence id.
    Complete = 9,
}

impl Event {
    /// The event with this number.
    pub const fn from_raw(raw: u8) -> Option<Self> {
        Some(match raw {
            1 => Self::Run,
            2 => Self::Park,
            3 => Self::Fault,
            4 => Self::Signal,
            5 => Self::Interrupt,
            6 => Self::Reset,
            7 => Self::Flush,
            8 => Self::Suspend,
            9 => Self::Complete,
            _ => return None,
        })
    }
}

/// One node's trace. Written by its engine only.
pub struct Trace {
    next: AtomicU64,
    events: Box<[AtomicU64; CAPACITY]>,
}

impl Trace {
    /// Empty.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new() -> Result<Self, NoMemory> {
        Ok(Self { next: AtomicU64::new(0), events: crate::shared::try_array(AtomicU64::default)? })
    }

    /// Adds an event. The argument keeps its low 56 bits.
    pub(crate) fn push(&self, event: Event, argument: u64) {
        let n = self.next.load(Ordering::Relaxed);
        let word = (event as u64) << 56 | argument & ((1 << 56) - 1);
        self.events[n as usize % CAPACITY].store(word, Ordering::Relaxed);
        self.next.store(n + 1, Ordering::Release);
    }

    /// The last events, oldest first, with their numbers. Events that are overwritten meanwhile may be newer than their
    /// number says.
    pub fn last(&self) -> impl Iterator<Item = (u64, Event, u64)> {
        self.newest(CAPACITY).filter_map(|(n, event, argument)| Some((n, Event::from_raw(event)?, argument)))
    }

    /// As [`last`](Self::last), the `limit` newest of them at most, with the number of their kind. Which ones, and so
    /// how many, is settled by this call: the engine adds events while they are read.
    pub fn newest(&self, limit: usize) -> impl ExactSizeIterator<Item = (u64, u8, u64)> {
        let end = self.next.load(Ordering::Acquire);
        // CAST: at most the capacity.
        let count = end.min(CAPACITY as u64) as usize;
        let count = count.min(limit);
        let first = end.saturating_sub(count as u64);
        (0..count).map(move |at| {
            let n = first.wrapping_add(at as u64);
            let word = self.events[n as usize % CAPACITY].load(Ordering::Relaxed);
            // CAST: the top byte.
            (n, (word >> 56) as u8, word & ((1 << 56) - 1))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn old_events_make_room() {
        let t = Trace::new().expect("memory");
        for i in 0..CAPACITY as u64 + 3 {
            t.push(Event::Signal, i);
        }
        let got: Vec<_> = t.last().collect();
        assert_eq!(got.len(), CAPACITY);
        assert_eq!(got[0], (3, Event::Signal, 3));
        assert_eq!(got[CAPACITY - 1].2, CAPACITY as u64 + 2);
    }

    #[test]
    fn what_is_asked_for_does_not_grow_while_it_is_read() {
        let t = Trace::new().expect("memory");
        t.push(Event::Run, 1);
        let asked = t.newest(3);
        t.push(Event::Park, 2);
        assert_eq!(asked.len(), 1);
        assert_eq!(asked.collect::<Vec<_>>(), [(0, 1, 1)]);
        t.push(Event::Run, 3);
        t.push(Event::Park, 4);
        assert_eq!(t.newest(3).map(|(n, ..)| n).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(t.newest(0).len(), 0);
    }
}
