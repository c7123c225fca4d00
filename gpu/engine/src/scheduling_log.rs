//! The scheduling log of a node: which context of it was idle, ready or running, and from when on.
//!
//! One ring of entries per node, in memory of the OS, which reads it. An entry is written where the state of a context changes,
//! and nowhere else: when a context that had nothing to do gets work, when the first packet or command buffer of a turn begins,
//! and when the turn ends. A turn that finds nothing writes nothing.
//!
//! | state | here |
//! |---|---|
//! | running | a queue of it has its turn, and has begun something |
//! | ready | a queue of it is in the node's ready list, or waits for a fence in the middle of its work |
//! | idle | neither |
//!
//! Entry, position and state of a context belong together under the log's lock; so a buffer that was replaced is not touched
//! any more once [`SchedulingLog::set`] has returned. Without a log a change costs one relaxed load.
//!
//! Chosen: a context that waits for a fence is ready, since the page of the states calls so whatever has pending work and does not
//! execute. What a suspension keeps from running stays as it was. A ring of the global doorbell names no queue for certain, and a queue
//! that is only watched may have nothing: their contexts are ready when a turn has shown that they are. A log that takes the place of none starts with no entries: a
//! context that never had one was idle.
//!
//! Source: pages `DXGK_SCHEDULING_LOG_CONTEXT_STATE`, `DXGKDDI_SETSCHEDULINGLOGBUFFER`, `DXGKARG_SETSCHEDULINGLOGBUFFER`.

use crate::context::Context;
use crate::fence_log::{BadBuffer, Position};
use crate::gpu::Gpu;
use crate::host::{Host, Lock};
use crate::memory::Span;
use crate::node::{Node, scan};
use crate::word::Word;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of `DXGK_SCHEDULING_LOG_HEADER`.
pub const HEADER_SIZE: u64 = 32;
/// Bytes of `DXGK_SCHEDULING_LOG_ENTRY`.
pub const ENTRY_SIZE: u64 = 32;
/// Offset of the word that holds FirstFreeEntryIndex (low half) and WraparoundCount (high half).
pub const HEADER_POSITION: u64 = 0;
/// Offset of GpuTimeStamp in an entry.
pub const ENTRY_TIME: u64 = 0;
/// Offset of the word that holds OperationType and reserved bits.
pub const ENTRY_OPERATION: u64 = 8;
/// Offset of hKmdContext.
pub const ENTRY_CONTEXT: u64 = 16;
/// Offset of the word whose low half is newContextState.
pub const ENTRY_STATE: u64 = 24;

/// `DXGK_SCHEDULING_LOG_CONTEXT_STATE`, as far as contexts here have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum ContextState {
    /// No pending work.
    Idle = 0,
    /// It executes.
    Running = 1,
    /// It has pending work and does not execute.
    Ready = 2,
}

/// What happened to a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    /// A queue of it was put into the ready list.
    Arrived,
    /// A queue of it was destroyed.
    Left,
    /// Engine: the first thing of a turn begins.
    Begun,
    /// Engine: the turn is over, or there will be none. `ran`: it had begun something.
    Ended {
        /// [`Moment::Begun`] came before.
        ran: bool,
    },
}

/// Where entries go.
struct Log {
    /// The buffer that the OS set; `None` before it did.
    buffer: Option<Span<'static>>,
    entries: u32,
    /// Index of the entry whose writing raises the interrupt.
    interrupt: u32,
    position: Position,
    /// The last timestamp written: timestamps never go backwards.
    last: u64,
    /// Raised when a log takes the place of none: states that were noted before may be wrong.
    era: u64,
}

/// The log of one node.
pub struct SchedulingLog<H: Host> {
    /// Whether there is a buffer. A hint; the buffer itself stands under the lock.
    set: AtomicBool,
    /// Slot of the context whose turn it is, as a word; 0: nobody's. Written by the engine.
    turn: AtomicU64,
    log: H::Lock<Log>,
}

/// What a context's state is noted as: [`Context::noted`].
fn noted(era: u64, state: ContextState) -> u64 {
    era << 2 | u64::from(state as u32)
}

impl Log {
    /// Writes an entry; whether it is the one that raises the interrupt.
    fn write(&mut self, now: u64, context: u64, state: ContextState) -> bool {
        let Some(buffer) = self.buffer else { return false };
        let index = self.position.index;
        let at = HEADER_SIZE + u64::from(index) * ENTRY_SIZE;
        let next = self.position.next(self.entries);
        self.last = self.last.max(now);
        let words = [
            (ENTRY_TIME, self.last),
            (ENTRY_OPERATION, 0),
            (ENTRY_CONTEXT, context),
            (ENTRY_STATE, u64::from(state as u32)),
        ];
        // `set` proved that every entry lies inside and that the buffer is aligned.
        for (offset, value) in words {
            if let Some(word) = buffer.word(at + offset) {
                word.store(value, Ordering::Relaxed);
            }
        }
        if let Some(word) = buffer.word(HEADER_POSITION) {
            // ORDERING[LOG-1]: Release: the entry is whole before it is counted.
            word.store(next.pack(), Ordering::Release);
        }
        self.position = next;
        index == self.interrupt
    }
}

impl<H: Host> SchedulingLog<H> {
    pub(crate) fn new() -> Self {
        let log = Log {
            buffer: None,
            entries: 0,
            interrupt: u32::MAX,
            position: Position { index: 0, wraps: 0 },
            last: 0,
            era: 0,
        };
        Self { set: AtomicBool::new(false), turn: AtomicU64::new(0), log: H::Lock::new(log) }
    }

    /// Goes on in `buffer`, where the header stands, and raises the interrupt when entry `interrupt` is written (never, if there is
    /// none). Nothing is written to the buffer before it when this returns. Up to `DISPATCH_LEVEL`.
    ///
    /// # Errors
    /// [`BadBuffer`] when `entries` is 0 or does not fit the buffer, or the buffer is not aligned to 8.
    pub fn set(&self, buffer: Span<'static>, entries: u32, interrupt: u32) -> Result<(), BadBuffer> {
        if entries == 0 || u64::from(entries) * ENTRY_SIZE + HEADER_SIZE > buffer.len() {
            return Err(BadBuffer);
        }
        let header = buffer.word(HEADER_POSITION).ok_or(BadBuffer)?;
        let stands = Position::unpack(header.load(Ordering::Acquire));
        self.log.with(|log| {
            if log.buffer.is_none() {
                log.era += 1;
            }
            log.position = if stands.index < entries { stands } else { Position { index: 0, ..stands } };
            log.buffer = Some(buffer);
            log.entries = entries;
            log.interrupt = interrupt;
        });
        self.set.store(true, Ordering::Release);
        Ok(())
    }

    /// No log any more; nothing is written to the old one when this returns. Up to `DISPATCH_LEVEL`.
    pub fn clear(&self) {
        self.set.store(false, Ordering::Release);
        self.log.with(|log| log.buffer = None);
    }

    /// When this returns, no entry names a slot that was dead before. Up to `DISPATCH_LEVEL`.
    pub fn settle(&self) {
        self.log.with(|_| ());
    }

    /// Whether somebody wants to know.
    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::Relaxed)
    }

    /// Engine: whose turn it is.
    pub(crate) fn begin_turn(&self, context: &Context<H>) {
        self.turn.store(context.slot.pack(), Ordering::Relaxed);
    }

    /// Engine: the turn is over.
    pub(crate) fn end_turn(&self) {
        self.turn.store(0, Ordering::Relaxed);
    }
}

impl<H: Host> Node<H> {
    /// Writes what `moment` changes of `context`'s state, if anything; whether an interrupt is due, which stands in [`scan::LOG`]
    /// already. Up to `DISPATCH_LEVEL`.
    pub(crate) fn log_moment(&self, gpu: &Gpu<H>, context: &Context<H>, moment: Moment) -> bool {
        if !self.scheduling.is_set() {
            return false;
        }
        self.scheduling.log.with(|log| {
            if log.buffer.is_none() {
                return false;
            }
            let known = context.noted.load(Ordering::Relaxed);
            let old = match (known >> 2 == log.era, known & 3) {
                (true, 1) => ContextState::Running,
                (true, 2) => ContextState::Ready,
                (false, _) if moment == (Moment::Ended { ran: true }) => ContextState::Running,
                _ => ContextState::Idle,
            };
            let has_turn = self.scheduling.turn.load(Ordering::Relaxed) == context.slot.pack();
            // Whoever puts a queue into the list says so afterwards: either it is seen here, or that comes after this section.
            let new = match moment {
                Moment::Arrived if old != ContextState::Idle || has_turn || !self.is_listed(context) => old,
                Moment::Arrived => ContextState::Ready,
                // What its engine does says the engine.
                Moment::Left if has_turn || old != ContextState::Ready => old,
                Moment::Begun => ContextState::Running,
                Moment::Left | Moment::Ended { .. } if context.is_parked() || self.is_listed(context) => {
                    ContextState::Ready
                }
                Moment::Left | Moment::Ended { .. } => ContextState::Idle,
            };
            context.noted.store(noted(log.era, new), Ordering::Relaxed);
            // A context that is being destroyed has no handle any more.
            let handle = gpu.slots.driver_handle(context.slot).filter(|handle| *handle != 0);
            let Some(handle) = handle.filter(|_| new != old) else { return false };
            let due = log.write(gpu.host.clock(), handle, new);
            if due {
                self.scan.fetch_or(scan::LOG, Ordering::AcqRel);
            }
            due
        })
    }
}
