//! Stage 6 of 8, the engine's side: entries of native fence logs, gathered and written together.
//!
//! A log's lock is taken once for what a burst has gathered, and not once for each entry. ORDERING[LOG-1]: a batch is
//! written after the values of its signals were stored, and before the fence of [`crate::fence::resolve`] and the
//! interrupt that follows from any of them.

use crate::NoMemory;
use crate::fence_log::{Barriers, Entry};
use crate::host::{Host, Lock};
use crate::mutation::Chosen;
use crate::queue::Queue;
use crate::shared::try_array;
use alloc::boxed::Box;
use gpu_wire::packet::log_operation;

/// Entries of a batch: as many as the signals of a burst of 4 KiB, unless they come without any other packet.
const ROOM: usize = 128;

/// Entries of one queue that are not in its logs yet, in the order of the operations.
pub(crate) struct LogBatch {
    /// With the index that user mode expects each to have.
    entries: Box<[(Entry, u32); ROOM]>,
    len: usize,
}

/// What became of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Written {
    /// Entries written.
    pub count: u64,
    /// Every entry of a signal was written: the queue has a log of signals, or there was none to write.
    pub signals: bool,
}

impl LogBatch {
    /// Empty.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new() -> Result<Self, NoMemory> {
        let nothing = Entry { value: 0, handle: 0, operation: 0, observed: 0, end: 0 };
        Ok(Self { entries: try_array(|| (nothing, 0))?, len: 0 })
    }

    /// Returns whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The entries from the `first` on ended at `end`.
    pub fn stamp(&mut self, first: usize, end: u64) {
        let last = self.len;
        self.entries.iter_mut().take(last).skip(first).for_each(|(entry, _)| entry.end = end);
    }

    /// Returns whether it must be written before another entry is added.
    pub fn is_full(&self) -> bool {
        self.len == ROOM
    }

    /// The entries, in the order of the operations.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().take(self.len).map(|(entry, _)| entry)
    }

    /// Adds an entry, if it is not full.
    pub fn add(&mut self, entry: Entry, hint: u32) {
        if let Some(place) = self.entries.get_mut(self.len) {
            *place = (entry, hint);
            self.len += 1;
        }
    }

    /// Forgets what is not written.
    pub fn forget(&mut self) {
        self.len = 0;
    }

    /// Writes all entries to the logs of `queue`.
    pub fn write<H: Host>(&mut self, queue: &Queue<H>, barriers: Barriers, mutation: &Chosen) -> Written {
        let entries = self.entries.get(..self.len).unwrap_or_default();
        let mut written = Written { count: 0, signals: true };
        for (operation, log) in
            [(log_operation::WAIT_UNBLOCKED, &queue.waits), (log_operation::SIGNAL_EXECUTED, &queue.signals)]
        {
            let mut its = entries.iter().filter(|(entry, _)| entry.operation == operation).peekable();
            if its.peek().is_none() {
                continue;
            }
            let all = log.with(|log| {
                let mut all = true;
                for (entry, hint) in its {
                    let is_written = log.write(*entry, *hint, barriers, mutation);
                    written.count += u64::from(is_written);
                    all &= is_written;
                }
                all
            });
            written.signals &= all || operation != log_operation::SIGNAL_EXECUTED;
        }
        self.len = 0;
        written
    }
}
