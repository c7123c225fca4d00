//! What an engine runs, and what it ran: for debug information, which may lock nothing.
//!
//! The engine writes a line when a turn begins, again when it finds that it cannot come off although it was asked to,
//! and keeps the lines of turns that ended otherwise than with their work done. A reader may see words of two turns: a
//! turn that ends meanwhile is told of as far as it was written.

use crate::NoMemory;
use crate::shared::try_array;
use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use gpu_wire::debug_blob::{LINE, Line};

/// Turns that are kept.
pub const KEPT: usize = 16;

type Words = [AtomicU64; LINE];

/// A node's board.
pub struct Board {
    now: Words,
    /// The engine was asked to come off what runs, and cannot.
    stuck: AtomicBool,
    last: Box<[Words; KEPT]>,
    next: AtomicU64,
}

impl Board {
    /// Empty.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new() -> Result<Self, NoMemory> {
        Ok(Self {
            now: Words::default(),
            stuck: AtomicBool::new(false),
            last: try_array(Words::default)?,
            next: AtomicU64::new(0),
        })
    }

    /// Engine: a turn begins. Queue and context are slots. Where the stream is stays what was written last, until
    /// [`place`](Self::place) says it.
    pub(crate) fn begin(&self, stream: u64, queue: u64, context: u64) {
        let [kind, end, of, owner, ..] = &self.now;
        of.store(queue, Ordering::Relaxed);
        owner.store(context, Ordering::Relaxed);
        end.store(0, Ordering::Relaxed);
        kind.store(stream, Ordering::Relaxed);
    }

    /// Engine: where the turn is.
    pub(crate) fn place(&self, line: &Line, stuck: bool) {
        write(&self.now, line);
        if stuck {
            self.stuck.store(true, Ordering::Relaxed);
        }
    }

    /// Engine: the turn is over. `line` where it is worth keeping.
    pub(crate) fn end(&self, line: Option<&Line>) {
        self.now[0].store(0, Ordering::Relaxed);
        if self.stuck.load(Ordering::Relaxed) {
            self.stuck.store(false, Ordering::Relaxed);
        }
        if let Some(line) = line {
            let number = self.next.load(Ordering::Relaxed);
            // CAST: below KEPT.
            write(&self.last[number as usize % KEPT], line);
            self.next.store(number + 1, Ordering::Release);
        }
    }

    /// What runs, and whether it was asked to come off and cannot. Queue and context are slots. Any IRQL.
    pub fn now(&self) -> (Line, bool) {
        (read(&self.now), self.stuck.load(Ordering::Relaxed))
    }

    /// What ran, the oldest first, at most [`KEPT`]. Queue and context are slots. Any IRQL.
    pub fn last(&self) -> impl Iterator<Item = Line> {
        let end = self.next.load(Ordering::Acquire);
        // CAST: below KEPT.
        (end.saturating_sub(KEPT as u64)..end).map(|number| read(&self.last[number as usize % KEPT]))
    }
}

fn write(to: &Words, line: &Line) {
    to.iter().zip(line.words()).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
}

fn read(from: &Words) -> Line {
    let mut words = [0; LINE];
    words.iter_mut().zip(from).for_each(|(to, word)| *to = word.load(Ordering::Relaxed));
    Line::from_words(words)
}
