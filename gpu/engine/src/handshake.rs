//! Telling an engine to hold, and knowing that it does.
//!
//! ORDERING[RESET-1]: the engine says that it holds (Release) after its last store to memory; the asking thread reads
//! that (Acquire) before it looks at memory, invalidates contexts or lets the OS go on. So nothing that a reset has
//! declared dead stores anything any more. An engine that goes on says so, fences, and looks whether it was told to
//! hold again; the thread that tells it fences and then asks. So "it holds" is never the answer from before.

use crate::mutation::{Chosen, Mutation};
use crate::word::{Exchange, Ordering};

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
