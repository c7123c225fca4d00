//! Work against an engine that goes to sleep, or that has just looked.
//!
//! ORDERING[WAKE-1]: the agent that adds work does so, fences, and then reads whether the engine sleeps; the engine
//! says that it sleeps, fences, and looks for work once more. At least one of them sees the other's store. Otherwise
//! work lies there that the engine is not kicked for.
//!
//! ORDERING[READY-1]: the agent that publishes work of a queue does so and then exchanges the queue's mark; the engine
//! exchanges the mark and then looks. Of two exchanges the later sees what came before the earlier: a mark that was
//! still set when the work came is one that the engine clears later, and it finds the work. Otherwise a queue that was
//! taken for ready stays behind with work in it.

use crate::mutation::{Chosen, Mutation};
use crate::word::{Exchange, Ordering, Word};

/// Whether an engine sleeps.
pub struct Sleep<W: Word>(W);

impl<W: Word> Sleep<W> {
    /// Awake; `word` makes the word.
    pub fn new(word: impl Fn(u64) -> W) -> Self {
        Self(word(0))
    }

    /// Whoever added work: whether the engine must be kicked.
    pub fn must_kick(&self) -> bool {
        // ORDERING[WAKE-1]: pairs with `prepare`: either this read sees that it sleeps, or the engine sees the work.
        W::fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Engine: about to sleep; it looks for work once more before it does.
    pub fn prepare(&self, mutation: &Chosen) {
        self.0.store(1, Ordering::Relaxed);
        if mutation.is(Mutation::NoSleepBarrier) {
            return;
        }
        // ORDERING[WAKE-1]: pairs with `must_kick`.
        W::fence(Ordering::SeqCst);
    }

    /// Engine: awake.
    pub fn awake(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Whether a queue stands in its node's ready list.
pub struct Mark<W: Exchange>(W);

impl<W: Exchange> Mark<W> {
    /// It does not; `word` makes the word.
    pub fn new(word: impl Fn(u64) -> W) -> Self {
        Self(word(0))
    }

    /// Whoever published work: marks the queue; `true` when it was not marked, and must be put in the list.
    pub fn set(&self) -> bool {
        // ORDERING[READY-1]: Release: the work is visible to the engine that clears this mark.
        self.0.swap(1, Ordering::AcqRel) == 0
    }

    /// Engine: took the queue out of the list. What is published from now on puts it back.
    pub fn clear(&self, mutation: &Chosen) {
        if mutation.is(Mutation::ClearsReadyByStore) {
            self.0.store(0, Ordering::Release);
            return;
        }
        // ORDERING[READY-1]: Acquire: what was published before a mark that was set already is found by the look after
        // this.
        self.0.swap(0, Ordering::AcqRel);
    }
}
