//! What idle engines ask of the thread that lets their doorbells go ([`crate::let_go`]).

use crate::platform::{Event, Platform};
use core::sync::atomic::{AtomicU64, Ordering};
use gpu_wire::NODE_COUNT;

/// What engines ask of the thread.
pub(crate) struct Idle<P: Platform> {
    event: P::Event,
    /// Per node, for how long its engine has been idle, in ticks of the clock, plus one; 0: it asks nothing.
    asked: [AtomicU64; NODE_COUNT],
}

impl<P: Platform> Idle<P> {
    /// Nothing is asked. `event` is not set, and nothing else sets it.
    pub fn new(event: P::Event) -> Self {
        Self { event, asked: Default::default() }
    }

    /// Asks for the doorbells of `node` to be let go, whose engine has been idle for `idle` ticks; with 0, of those
    /// that announce often. Up to `DISPATCH_LEVEL`.
    pub fn ask(&self, node: usize, idle: u64) {
        self.asked[node].fetch_max(idle.saturating_add(1), Ordering::Relaxed);
        self.event.set();
    }

    /// For how long the engine of `node` says that it has been idle, if it has asked since the last call.
    pub fn taken(&self, node: usize) -> Option<u64> {
        self.asked[node].swap(0, Ordering::Relaxed).checked_sub(1)
    }

    /// The thread waits until it is asked something, or is to end.
    pub fn wait(&self) {
        self.event.wait(None);
    }

    /// The device is being stopped.
    pub fn end(&self) {
        self.event.set();
    }
}
