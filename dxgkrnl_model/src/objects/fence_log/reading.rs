//! What is new in a buffer: which entries can be believed, which were lost, what they say.
//!
//! The GPU goes on writing while a buffer is read. So the header is read again behind the entries: what was counted
//! meanwhile lies over the oldest of them, and the slot behind the newest one may be half written at any time.

use std::fmt;

use wddm_abi::{DXGK_NATIVE_FENCE_LOG_ENTRY, DXGK_NATIVE_FENCE_LOG_HEADER, DXGK_NATIVE_FENCE_LOG_TYPE, Plain};

use super::buffer::{Buffer, UNWRITTEN};
use crate::objects::hw_queue::HwQueue;
use crate::port::counters::{LogLoss, LogRecord};
use crate::port::miniport::Miniport;
use crate::port::rules::fence::{LOG_COMPLETE, LOG_HEADER, LOG_TIME};

/// What was found in a buffer. The rules are evaluated afterwards, without its lock.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) records: Vec<LogRecord>,
    /// Nothing was overwritten, and the header is sound.
    pub(super) complete: bool,
    /// What was overwritten before it was read.
    pub(super) loss: Option<LogLoss>,
    /// Entries that were written since the reading before.
    pub(super) new: u64,
    /// What the header says, if it is not sound.
    unsound: Option<String>,
    entries: Vec<Verdict>,
}

/// What is to be said of an entry.
#[derive(Debug)]
struct Verdict {
    kind: DXGK_NATIVE_FENCE_LOG_TYPE,
    entry: DXGK_NATIVE_FENCE_LOG_ENTRY,
    /// When the entry before it ended.
    before: u64,
    /// It was written.
    complete: bool,
    /// Its times are in order.
    ordered: bool,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, the entry before ended at {}: {:?}", self.kind, self.before, self.entry)
    }
}

impl Reading {
    pub(super) fn judge(self, adapter: &Miniport) {
        adapter.rules().check(&LOG_HEADER, self.unsound.is_none(), || self.unsound.unwrap_or_default());
        if self.loss.is_some() {
            adapter.shared().counters.log_overrun();
        }
        for verdict in self.entries {
            adapter.rules().check(&LOG_COMPLETE, verdict.complete, || verdict.to_string());
            adapter.rules().check(&LOG_TIME, verdict.ordered || !verdict.complete, || verdict.to_string());
        }
    }
}

/// How many entries the header counts in all.
fn written(header: &DXGK_NATIVE_FENCE_LOG_HEADER, buffer: &Buffer) -> u64 {
    u64::from(header.WraparoundCount()) * u64::from(buffer.entries) + u64::from(header.FirstFreeEntryIndex())
}

/// Whether the GPU has written entries that were not read.
pub(super) fn has_news(buffer: &Buffer) -> bool {
    let header = buffer.header();
    (header.FirstFreeEntryIndex(), header.WraparoundCount()) != (buffer.index, buffer.wraps)
}

/// Reads what is new.
pub(super) fn read(queue: &HwQueue, buffer: &mut Buffer) -> Reading {
    let header = buffer.header();
    let (index, wraps) = (header.FirstFreeEntryIndex(), header.WraparoundCount());
    let sound = header.Type == buffer.kind
        && header.NumberOfEntries == u64::from(buffer.entries)
        && header.Reserved == [0; 2]
        && index < buffer.entries
        && wraps >= buffer.wraps;
    let mut reading = Reading::default();
    if !sound {
        reading.unsound = Some(format!(
            "index {index}, count {wraps} after {}, type {:?}, {} entries of {}",
            buffer.wraps, header.Type, header.NumberOfEntries, buffer.entries
        ));
        buffer.index = buffer.index.min(buffer.entries.saturating_sub(1));
        return reading;
    }
    let total = u64::from(buffer.entries);
    let seen = u64::from(buffer.wraps) * total + u64::from(buffer.index);
    let end = written(&header, buffer);
    let Some(new) = end.checked_sub(seen) else { return reading };
    reading.new = new;
    let oldest = seen.max(end.saturating_sub(total));
    let copies: Vec<_> = (oldest..end).map(|sequence| buffer.entry(sequence)).collect();
    let now = written(&buffer.header(), buffer).max(end);
    let kept: Vec<_> =
        (oldest..end).zip(copies).filter(|(sequence, copy)| holds(buffer, *sequence, copy, now)).collect();
    let (before, first) = (buffer.last_time, kept.first().map_or(end, |(sequence, _)| *sequence));
    for (sequence, copy) in &kept {
        let Some(entry) = DXGK_NATIVE_FENCE_LOG_ENTRY::from_bytes(copy) else { continue };
        // One that the GPU may be writing over is not judged.
        if sequence + total > now {
            reading.entries.push(verdict(buffer, &entry));
        }
        reading.records.push(record(queue, buffer, &entry));
        if entry.FenceEndGpuTimestamp != UNWRITTEN {
            buffer.last_time = buffer.last_time.max(entry.FenceEndGpuTimestamp);
        }
    }
    (buffer.index, buffer.wraps) = (index, wraps);
    reading.complete = first == seen;
    if first != seen {
        reading.loss = Some(LogLoss {
            adapter: queue.adapter().luid_number(),
            process: owner(queue),
            queue: queue.user_handle(),
            node: queue.context().node(),
            is_wait_log: buffer.is_waits(),
            lost: first - seen,
            after: before,
            before: reading.records.iter().map(|record| record.end).find(|end| *end != 0).unwrap_or(0),
            at: 0,
        });
    }
    reading
}

/// Whether a copy of the entry with this number is what was written as that, when the GPU has written `now` in all.
fn holds(buffer: &Buffer, sequence: u64, copy: &[u8], now: u64) -> bool {
    let total = u64::from(buffer.entries);
    // The slot of the next entry: unless somebody is about to write it, it reads the same twice.
    sequence + total > now || (sequence + total == now && buffer.entry(sequence) == copy)
}

/// Whether an entry was written, and whether its times are in order.
///
/// Source: article, empty or repeated log buffer timestamps: both may be 0, as where a linked adapter skipped the
/// write.
fn verdict(buffer: &Buffer, entry: &DXGK_NATIVE_FENCE_LOG_ENTRY) -> Verdict {
    let (observed, end) = (entry.FenceObservedGpuTimestamp, entry.FenceEndGpuTimestamp);
    let follows = end == 0 || end >= buffer.last_time;
    let inner = !buffer.is_waits() || observed == 0 || end == 0 || observed <= end;
    Verdict {
        kind: buffer.kind,
        entry: *entry,
        before: buffer.last_time,
        complete: end != UNWRITTEN && entry.FenceValue != UNWRITTEN,
        ordered: follows && inner,
    }
}

fn owner(queue: &HwQueue) -> u64 {
    queue.context().device().process().process().map_or(0, |process| process.nt().id())
}

fn record(queue: &HwQueue, buffer: &Buffer, entry: &DXGK_NATIVE_FENCE_LOG_ENTRY) -> LogRecord {
    LogRecord {
        adapter: queue.adapter().luid_number(),
        process: owner(queue),
        queue: queue.user_handle(),
        node: queue.context().node(),
        fence: entry.hNativeFence,
        value: entry.FenceValue,
        operation: entry.OperationType,
        is_wait_log: buffer.is_waits(),
        observed: entry.FenceObservedGpuTimestamp,
        end: entry.FenceEndGpuTimestamp,
    }
}
