//! Stage 7 of 8: the order in which the consequences of a signal are drawn.
//!
//! An agent that has stored CurrentValue draws what follows from it by [`draw`], and in no other way: the engine, whose
//! steps are in `engine/sync.rs`, and the loom tests, whose steps are on loom's words. So what loom explores is the
//! order that ships.

use crate::fence::{Shadow, resolve};
use crate::mutation::Chosen;
use crate::word::Word;

/// The steps of an agent that has signaled a fence.
pub trait Agent {
    /// Writes the entries of the signals to the queue's logs. Returns whether each signal has its entry.
    fn write_log(&mut self) -> bool;

    /// Wakes the queues that the value reaches.
    fn wake(&mut self);

    /// Returns whether the CPU has a waiter that the value satisfies, by MonitoredValue
    /// ([`wants_interrupt`](crate::fence::wants_interrupt)).
    fn is_awaited(&mut self) -> bool;
}

/// What follows from a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drawn {
    /// Each signal has its entry in the log.
    pub logged: bool,
    /// The CPU is to be interrupted.
    pub interrupts: bool,
}

/// Draws the consequences of the signal `value`, which is stored: log, fence, queues, interrupt. `W` is the word that
/// CurrentValue and MonitoredValue are; `shadow` that of MonitoredValue, in shadow mode.
///
/// ORDERING[LOG-1]: the entries come before the fence, and so before the interrupt. ORDERING[FENCE-1],
/// ORDERING[PARK-1]: the fence comes before the looks at who waits.
#[inline]
pub fn draw<W: Word, S: Word>(
    agent: &mut impl Agent,
    value: u64,
    shadow: Option<&Shadow<S>>,
    mutation: &Chosen,
) -> Drawn {
    let logged = agent.write_log();
    resolve::<W>(mutation);
    agent.wake();
    // The engine's part: does the context management processor hear of it? Without shadow state, always. Then that
    // processor's: interrupt or none?
    let interrupts = shadow.is_none_or(|shadow| shadow.signals_cmp(value)) && agent.is_awaited();
    Drawn { logged, interrupts }
}
