//! What a step of an engine comes to.

/// What a step did, and so what the thread should do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Something; there may be more.
    Worked,
    /// Nothing, but another engine or the interrupt must do something first: step again soon.
    Waiting,
    /// Nothing to do, but for what nobody announces: poll.
    Idle(Watched),
    /// A reset holds the engine.
    Held,
    /// The device stops: drop the engine, end the thread.
    Stopped,
}

/// What an engine must look at by itself, since nobody announces it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Watched {
    /// Nothing: every agent that brings work wakes the engine.
    Nothing,
    /// Write pointers of queues that the OS has disconnected and whose last ring may still be under way.
    WritePointers,
    /// Doorbells of this node.
    Doorbells,
}
