//! Stage 6 of 8: the native fence log of a hardware queue.
//!
//! Two rings of entries per queue, for waits and for signals, in memory of the OS. The engine writes; the OS reads in
//! its DPC. Overrun is in the contract: the OS compares WraparoundCount with what it remembers and falls back to
//! scanning fences, so there is no back pressure.
//!
//! ORDERING[LOG-1]: the entry is written before FirstFreeEntryIndex counts it (Release), and the full fence of
//! [`crate::fence::resolve`] stands between that and the decision about the interrupt. So when the interrupt arrives,
//! the entry is there. In the article's cheaper variant nothing orders entry and index: `DxgkDdiUpdateNativeFenceLogs`
//! waits until whatever was being written is written ([`flush`]), and the OS reads entries after it.
//!
//! The engine counts entries itself and never reads the header back while it writes: what user mode may have written
//! there through the queue's GPU mapping is not believed. When a buffer is set, the header is read once: its kind and
//! the position that the OS goes on from stand nowhere else.
//!
//! Source: *Native GPU fence object*, "Native fence log buffer design" and "Synchronously updating the native fence
//! log".

use crate::host::Lock;
pub use crate::log_entry::Entry;
use crate::memory::{SharedWord, Span};
use crate::mutation::{Chosen, Mutation};
use crate::word::{Ordering, Word};

/// Bytes of `DXGK_NATIVE_FENCE_LOG_HEADER`.
pub const HEADER_SIZE: u64 = 40;
/// Bytes of `DXGK_NATIVE_FENCE_LOG_ENTRY`.
pub const ENTRY_SIZE: u64 = 48;
/// Offset of the word that holds FirstFreeEntryIndex (low half) and WraparoundCount (high half).
pub const HEADER_POSITION: u64 = 0;
/// Offset of FenceValue in an entry.
pub const ENTRY_VALUE: u64 = 0;
/// Offset of the word that holds hNativeFence (low half) and OperationType (high half).
pub const ENTRY_HANDLE_AND_OPERATION: u64 = 8;
/// Offset of FenceObservedGpuTimestamp.
pub const ENTRY_OBSERVED: u64 = 24;
/// Offset of FenceEndGpuTimestamp.
pub const ENTRY_END: u64 = 40;

/// Where the two barriers of the article are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Barriers {
    /// Both with the engine.
    #[default]
    Two,
    /// One with the engine, one in `DxgkDdiUpdateNativeFenceLogs`.
    OneInUpdate,
}

/// Entry and header words of one write, over any [`Word`]: what the loom test runs.
pub struct Target<'t, W: Word> {
    /// The header's position word.
    pub position: &'t W,
    /// Value, handle and operation, observed, end.
    pub entry: [&'t W; 4],
}

/// Writes `entry`, then publishes `next`.
pub fn append<W: Word>(target: &Target<'_, W>, entry: &Entry, next: Position, barriers: Barriers, mutation: &Chosen) {
    if mutation.is(Mutation::IndexBeforeEntry) {
        target.position.store(next.pack(), Ordering::Relaxed);
    }
    let words = [entry.value, u64::from(entry.handle) | u64::from(entry.operation) << 32, entry.observed, entry.end];
    for (word, value) in target.entry.iter().zip(words) {
        word.store(value, Ordering::Relaxed);
    }
    // ORDERING[LOG-1]: Release pairs with the OS's read of the position; without it the OS may read the entry's old
    // bytes.
    let order = match barriers {
        Barriers::Two => Ordering::Release,
        Barriers::OneInUpdate => Ordering::Relaxed,
    };
    if !mutation.is(Mutation::IndexBeforeEntry) {
        target.position.store(next.pack(), order);
    }
}

/// `DxgkDdiUpdateNativeFenceLogs` for the logs of one queue: after it, entries of either that are counted by a position
/// that was read before it are readable.
pub fn flush<T: Send, L: Lock<T>>(logs: [&L; 2], mutation: &Chosen) {
    if mutation.is(Mutation::NoLogBarrier) {
        return;
    }
    for log in logs {
        // ORDERING[LOG-1]: entries are stored under the log's lock. The section whose position was read began before
        // this one, so it ends before this one, too, and everything in it is visible from here on.
        log.with(|_| ());
    }
}

/// FirstFreeEntryIndex and WraparoundCount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Position {
    /// Index of the next entry.
    pub index: u32,
    /// How often the index went back to 0.
    pub wraps: u32,
}

impl Position {
    /// As the header's word has it.
    pub const fn pack(self) -> u64 {
        (self.wraps as u64) << 32 | self.index as u64
    }

    /// From the header's word.
    pub const fn unpack(raw: u64) -> Self {
        // CAST: the two halves.
        Self { index: raw as u32, wraps: (raw >> 32) as u32 }
    }

    /// The position after one more entry in a log of `entries`.
    pub const fn next(self, entries: u32) -> Self {
        if self.index + 1 >= entries {
            Self { index: 0, wraps: self.wraps.wrapping_add(1) }
        } else {
            Self { index: self.index + 1, wraps: self.wraps }
        }
    }
}

/// One of a queue's two logs. Guarded by a lock of the queue, since `DxgkDdiSetNativeFenceLogBuffer` replaces the
/// buffer while the queue runs, and must not return while a write to the old one is under way.
pub struct Log {
    /// The buffer that the OS set; `None` before it did.
    buffer: Option<Span<'static>>,
    entries: u32,
    position: Position,
    /// The last timestamp written: timestamps never go backwards.
    last: u64,
    /// Entries written since the queue was created.
    pub written: u64,
    /// LOG packets whose index hint was not the next index.
    pub hint_misses: u64,
    /// LOG packets with no buffer set.
    pub dropped: u64,
}

/// Why a buffer cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadBuffer;

impl Log {
    /// No buffer.
    pub const fn new() -> Self {
        Self {
            buffer: None,
            entries: 0,
            position: Position { index: 0, wraps: 0 },
            last: 0,
            written: 0,
            hint_misses: 0,
            dropped: 0,
        }
    }

    /// Goes on in `buffer`, where the header stands; the OS's memory from now on until another call or [`Self::clear`].
    ///
    /// # Errors
    /// [`BadBuffer`] when `entries` is 0 or does not fit the buffer.
    pub fn set(&mut self, buffer: Span<'static>, entries: u32) -> Result<(), BadBuffer> {
        let need = u64::from(entries) * ENTRY_SIZE + HEADER_SIZE;
        if entries == 0 || need > buffer.len() {
            return Err(BadBuffer);
        }
        let header = buffer.word(HEADER_POSITION).ok_or(BadBuffer)?;
        let stands = Position::unpack(header.load(Ordering::Acquire));
        self.position = if stands.index < entries { stands } else { Position { index: 0, ..stands } };
        self.buffer = Some(buffer);
        self.entries = entries;
        Ok(())
    }

    /// No buffer any more.
    pub fn clear(&mut self) {
        self.buffer = None;
    }

    /// Writes an entry. The timestamps are raised to the last one written, if need be. Returns `false` where there is
    /// no buffer: the entry is dropped, and counted.
    pub fn write(&mut self, mut entry: Entry, hint: u32, barriers: Barriers, mutation: &Chosen) -> bool {
        let Some(buffer) = self.buffer else {
            self.dropped += 1;
            return false;
        };
        if hint != self.position.index {
            self.hint_misses += 1;
        }
        entry.end = entry.end.max(self.last);
        self.last = entry.end;
        let at = HEADER_SIZE + u64::from(self.position.index) * ENTRY_SIZE;
        let next = self.position.next(self.entries);
        let word = |offset| buffer.word(offset);
        let words = (
            word(HEADER_POSITION),
            word(at + ENTRY_VALUE),
            word(at + ENTRY_HANDLE_AND_OPERATION),
            word(at + ENTRY_OBSERVED),
            word(at + ENTRY_END),
        );
        // `set` proved that every entry lies inside; a buffer that is not aligned was refused there by its header.
        if let (Some(position), Some(a), Some(b), Some(c), Some(d)) = words {
            let target: Target<'_, SharedWord<'_>> = Target { position: &position, entry: [&a, &b, &c, &d] };
            append(&target, &entry, next, barriers, mutation);
            // Within the lock that `flush` takes, whatever order `barriers` asks for.
            buffer.settle();
            self.position = next;
            self.written += 1;
            return true;
        }
        false
    }
}

impl Default for Log {
    fn default() -> Self {
        Self::new()
    }
}
