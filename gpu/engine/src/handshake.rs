//! Telling an engine to hold, and knowing that it does.
//!
//! ORDERING[RESET-1]: the engine says that it holds (Release) after its last store to memory; the asking thread reads
//! that (Acquire) before it looks at memory, invalidates contexts or lets the OS go on. So nothing that a reset has
//! declared dead stores anything any more. An engine that goes on says so, fences, and looks whether it was told to
//! hold again; the thread that tells it fences and then asks. So "it holds" is never the answer from before.
//!
//! ORDERING[GONE-1]: an engine says whose turn it is, fences, and looks whether the queue is there still; a thread that
//! destroys a queue says so, fences, and asks whose turn it is. Either the engine finds the queue destroyed, or the
//! thread finds that it has its turn, and waits until the engine takes that back (Release, Acquire). So no turn touches
//! anything of a queue when the call that destroys it has returned. What the engine has mapped of it, and looks of the
//! engine at its write pointer, end with the flush in front of the freeing of its pages.

use crate::mutation::{Chosen, Mutation};
use crate::word::{Exchange, Ordering, Word};

/// What an engine is told to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    /// Run.
    Run,
    /// Let go of what runs, and hold. Set by a reset.
    Hold,
    /// Let go of everything; the thread ends.
    Stop,
}

/// What an engine says that it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Executing or idle.
    Running,
    /// Held: executes nothing, still serves flushes.
    Held,
    /// Gone.
    Stopped,
}

/// Whose turn it is on an engine.
pub struct Turn<W: Word>(W);

impl<W: Word> Turn<W> {
    /// Nobody's; `word` makes the word.
    pub fn new(word: impl Fn(u64) -> W) -> Self {
        Self(word(0))
    }

    /// Engine: the turn of the queue `slot` begins, which is no 0. The engine looks behind this whether it is there
    /// still.
    pub fn begin(&self, slot: u64, mutation: &Chosen) {
        self.0.store(slot, Ordering::Relaxed);
        if mutation.is(Mutation::NoTurnBarrier) {
            return;
        }
        // ORDERING[GONE-1]: pairs with `is`.
        W::fence(Ordering::SeqCst);
    }

    /// Engine: the turn is over, and nothing of the queue is touched any more.
    pub fn end(&self) {
        // ORDERING[GONE-1]: Release: what the turn did comes before.
        self.0.store(0, Ordering::Release);
    }

    /// Returns whether it is the turn of the queue `slot`. The caller has said before that the queue is destroyed.
    pub fn is(&self, slot: u64) -> bool {
        // ORDERING[GONE-1]: pairs with `begin`.
        W::fence(Ordering::SeqCst);
        self.0.load(Ordering::Acquire) == slot
    }
}

/// The two sides.
pub struct Handshake<W: Exchange> {
    /// 1 while it is to hold.
    hold: W,
    /// 1 once it is to stop. Never taken back.
    stop: W,
    phase: W,
}

impl<W: Exchange> Handshake<W> {
    /// Running; `word` makes the words.
    pub fn new(word: impl Fn(u64) -> W) -> Self {
        Self { hold: word(0), stop: word(0), phase: word(0) }
    }

    /// Tells the engine. A stop is not taken back.
    pub fn tell(&self, control: Control) {
        match control {
            Control::Run => {
                self.hold.store(0, Ordering::Release);
                // ORDERING[RESET-1]: pairs with `Gpu::speaker`.
                W::fence(Ordering::SeqCst);
            }
            Control::Hold => {
                self.hold.store(1, Ordering::Release);
                // ORDERING[RESET-1]: pairs with `run`.
                W::fence(Ordering::SeqCst);
            }
            Control::Stop => self.stop.store(1, Ordering::Release),
        }
    }

    /// What the engine is told to be.
    pub fn told(&self) -> Control {
        if self.stop.load(Ordering::Acquire) != 0 {
            Control::Stop
        } else if self.hold.load(Ordering::Acquire) != 0 {
            Control::Hold
        } else {
            Control::Run
        }
    }

    /// Engine: says what it is.
    pub fn say(&self, phase: Phase, mutation: &Chosen) {
        let word = match phase {
            Phase::Running => 0,
            Phase::Held => 1,
            Phase::Stopped => 2,
        };
        // ORDERING[RESET-1]: Release: after every store of what ran.
        let order = if mutation.is(Mutation::HoldsRelaxed) { Ordering::Relaxed } else { Ordering::Release };
        self.phase.store(word, order);
    }

    /// Engine: goes on after it held; `false`: it was told to hold again, and holds.
    pub fn run(&self, mutation: &Chosen) -> bool {
        self.say(Phase::Running, mutation);
        if mutation.is(Mutation::RunsUnasked) {
            return true;
        }
        // ORDERING[RESET-1]: pairs with `tell`.
        W::fence(Ordering::SeqCst);
        let run = self.told() == Control::Run;
        if !run {
            self.say(Phase::Held, mutation);
        }
        run
    }

    /// What the engine said.
    pub fn phase(&self) -> Phase {
        // ORDERING[RESET-1]: Acquire: before anything that relies on the engine's silence.
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Running,
            1 => Phase::Held,
            _ => Phase::Stopped,
        }
    }
}
