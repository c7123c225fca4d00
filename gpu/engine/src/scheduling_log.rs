//! The scheduling log of a node: which context was idle, ready or running, and from when on.
//!
//! A node has one ring of entries, in memory of the OS, which reads it. An entry is written where the state of
//! a context changes: when an idle context gets work, when the first packet or command buffer of a turn begins, and
//! when the turn ends. A turn that finds nothing to run writes no entry. One that is a single stretch of short packets
//! has both entries written at its end, the first with its own time.
//!
//! | state | here |
//! |---|---|
//! | running | a queue of the context has its turn, and has begun a packet or a command buffer |
//! | ready | a queue of the context is in the node's ready list, or waits for a fence in the middle of its work |
//! | idle | neither |
//!
//! The log's lock covers entries, position and noted states, so a buffer that was replaced is not touched any more
//! once [`SchedulingLog::set`] has returned. Without a log a change of state costs one relaxed load.
//!
//! Chosen, since the pages do not say:
//! - A context that waits for a fence is ready: the page of the states calls a context ready that has pending work and
//!   does not execute.
//! - The state of a context that is suspended while it is ready or idle stays as it was.
//! - A ring of the global doorbell does not always name its queue, and a queue that is only watched may have nothing
//!   to do. Their contexts become ready in the log when a turn has shown that they are.
//! - An entry of another context, or that this one has work again, may stand in front of the end of a turn that was
//!   over by then; entries' times do not go back, so such an end is later by that.
//! - A log that is set where there was none begins without entries: every context counts as idle.
//!
//! Source: DDI pages `DXGK_SCHEDULING_LOG_CONTEXT_STATE`, `DXGKDDI_SETSCHEDULINGLOGBUFFER`,
//! `DXGKARG_SETSCHEDULINGLOGBUFFER`.

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

/// The values of `DXGK_SCHEDULING_LOG_CONTEXT_STATE` that this GPU's contexts can have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum ContextState {
    /// The context has no pending work.
    Idle = 0,
    /// The context executes.
    Running = 1,
    /// The context has pending work and does not execute.
    Ready = 2,
}

/// What happened to a context, before its state is written to the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    /// A queue of the context was put into the ready list.
    Arrived,
    /// A queue of the context was destroyed.
    Left,
    /// Engine: the first packet or command buffer of a turn begins.
    Begun,
    /// Engine: the turn is over, or a destroyed queue gets none.
    Ended {
        /// Whether [`Moment::Begun`] came before it in this turn.
        ran: bool,
    },
}

/// The ring of entries, under the lock of [`SchedulingLog`].
struct Log {
    /// The buffer that the OS set: a header, then `entries` entries. `None` without a log.
    buffer: Option<Span<'static>>,
    /// How many entries fit the buffer.
    entries: u32,
    /// Index of the entry whose writing raises the interrupt.
    interrupt: u32,
    /// Where the next entry goes, as in the buffer's header.
    position: Position,
    /// The last timestamp written: timestamps never go backwards.
    last: u64,
    /// Counts the logs that were set where there was none. A state that a context noted in an earlier era does not
    /// count any more.
    era: u64,
}

/// The scheduling log of one node.
pub struct SchedulingLog<H: Host> {
    /// Whether there is a buffer. A hint, read without the lock; `log.buffer` says for certain.
    set: AtomicBool,
    /// [`crate::slots::SlotId::pack`] of the context whose queue has its turn; 0 between turns. Written by the engine.
    turn: AtomicU64,
    log: H::Lock<Log>,
}

/// The word that [`Context::noted`] holds: the era of the log, then two bits of state.
fn noted(era: u64, state: ContextState) -> u64 {
    era << 2 | u64::from(state as u32)
}

impl Log {
    /// Writes an entry: at time `now` (ticks of the GPU clock) the context with the driver's handle `context` went
    /// over to `state`. Returns whether it is the entry that raises the interrupt.
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

    /// Sets the log to `buffer`, which holds a header and `entries` entries, and goes on at the position that its
    /// header names. The interrupt is raised when the entry with index `interrupt` is written; an index of `entries`
    /// or more means never. When this returns, the engines do not touch the buffer before it any more. Up to
    /// `DISPATCH_LEVEL`.
    ///
    /// # Errors
    /// [`BadBuffer`] when `entries` is 0 or does not fit the buffer, or the buffer is not aligned to 8.
    pub fn set(&self, buffer: Span<'static>, entries: u32, interrupt: u32) -> Result<(), BadBuffer> {
        if entries == 0 || u64::from(entries) * ENTRY_SIZE + HEADER_SIZE > buffer.len() {
            return Err(BadBuffer);
        }
        let header = buffer.word(HEADER_POSITION).ok_or(BadBuffer)?;
        self.log.with(|log| {
            // Under the lock: where the same buffer is set again, an engine may be writing to it until now.
            let stands = Position::unpack(header.load(Ordering::Acquire));
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

    /// Takes the log away. When this returns, the engines do not touch its buffer any more. Up to `DISPATCH_LEVEL`.
    pub fn clear(&self) {
        self.set.store(false, Ordering::Release);
        self.log.with(|log| log.buffer = None);
    }

    /// Waits for a thread that is writing an entry. When this returns, no entry is written any more for a slot that
    /// was dead before the call. Up to `DISPATCH_LEVEL`.
    pub fn settle(&self) {
        self.log.with(|_| ());
    }

    /// Returns whether the OS has set a log. A hint, read without the lock.
    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::Relaxed)
    }

    /// Engine: the turn of a queue of `context` begins.
    pub(crate) fn begin_turn(&self, context: &Context<H>) {
        self.turn.store(context.slot.pack(), Ordering::Relaxed);
    }

    /// Engine: the turn is over.
    pub(crate) fn end_turn(&self) {
        self.turn.store(0, Ordering::Relaxed);
    }
}

impl<H: Host> Node<H> {
    /// Writes an entry if `moment` changes the state of `context`. Returns whether an interrupt is due; [`scan::LOG`]
    /// is set then. `since`: when the moment was, by the GPU clock; `None`: it is now. A turn that ends now and runs
    /// `since` then has both written, in one section. Up to `DISPATCH_LEVEL`.
    pub(crate) fn log_moment(&self, gpu: &Gpu<H>, context: &Context<H>, moment: Moment, since: Option<u64>) -> bool {
        if !self.scheduling.is_set() {
            return false;
        }
        self.scheduling.log.with(|log| {
            if log.buffer.is_none() {
                return false;
            }
            let ends_what_began = matches!(moment, Moment::Ended { .. }) && since.is_some();
            let began = ends_what_began && self.note(gpu, log, context, Moment::Begun, since);
            let since = since.filter(|_| !ends_what_began);
            let due = self.note(gpu, log, context, moment, since) || began;
            if due {
                self.scan.add(scan::LOG);
            }
            due
        })
    }

    /// The same in the log's section. Returns whether an interrupt is due.
    fn note(&self, gpu: &Gpu<H>, log: &mut Log, context: &Context<H>, moment: Moment, since: Option<u64>) -> bool {
        let known = context.noted.load(Ordering::Relaxed);
        let old = match (known >> 2 == log.era, known & 3) {
            (true, 1) => ContextState::Running,
            (true, 2) => ContextState::Ready,
            (false, _) if moment == (Moment::Ended { ran: true }) => ContextState::Running,
            _ => ContextState::Idle,
        };
        let has_turn = self.scheduling.turn.load(Ordering::Relaxed) == context.slot.pack();
        // A thread calls this after it made a queue ready. So a queue that `is_listed` misses here is noted by that
        // thread's own call, which comes after this section.
        let new = match moment {
            Moment::Arrived if old != ContextState::Idle || has_turn || !context.is_listed() => old,
            Moment::Arrived => ContextState::Ready,
            // The engine itself notes what a context with a turn does.
            Moment::Left if has_turn || old != ContextState::Ready => old,
            Moment::Begun => ContextState::Running,
            Moment::Left | Moment::Ended { .. } if context.is_parked() || context.is_listed() => ContextState::Ready,
            Moment::Left | Moment::Ended { .. } => ContextState::Idle,
        };
        context.noted.store(noted(log.era, new), Ordering::Relaxed);
        // A context that is being destroyed has no handle any more.
        let handle = gpu.slots.driver_handle(context.slot).filter(|handle| *handle != 0);
        let Some(handle) = handle.filter(|_| new != old) else { return false };
        let now = since.unwrap_or_else(|| gpu.host.clock());
        // The engine has found its work, and runs it at once: it was ready for no time.
        let was_ready =
            (old, new) == (ContextState::Idle, ContextState::Running) && log.write(now, handle, ContextState::Ready);
        log.write(now, handle, new) || was_ready
    }
}
