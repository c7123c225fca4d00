//! The thread that lets the doorbells of idle engines go.
//!
//! An engine looks for rings for as long as a doorbell of its node is connected. One that has found none for a while
//! asks this thread, which has the OS disconnect them (`DxgkCbDisconnectDoorbell`, RETRY). With none left the engine
//! sleeps until it is woken: whatever brings work from then on, a connection first of all, wakes it.
//!
//! The engine's own thread does not call the OS: it might wait there for a lock whose owner waits for the engine.
//!
//! No submission is lost. The OS has rotated the page when it returns, so a ring is either in the page that the engine
//! has watched, and then its work is found by the look at the write pointer that follows; or it comes later, and user
//! mode reads RETRY behind it.
//!
//! Source: *User-mode work submission*, `DxgkCbDisconnectDoorbell`.

use crate::adapter::Started;
use crate::doorbell;
use crate::irql::Passive;
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

    /// Asks for the doorbells of `node` to be let go, whose engine has been idle for `idle` ticks. Up to
    /// `DISPATCH_LEVEL`.
    pub fn ask(&self, node: usize, idle: u64) {
        self.asked[node].fetch_max(idle.saturating_add(1), Ordering::Relaxed);
        self.event.set();
    }

    /// The device is being stopped.
    pub fn end(&self) {
        self.event.set();
    }
}

/// Runs until the device is being stopped.
pub(crate) fn run<P: Platform>(irql: &Passive, started: &Started<P>) {
    let idle = started.gpu.host.idle();
    loop {
        idle.event.wait(None);
        for (node, asked) in idle.asked.iter().enumerate() {
            if started.is_ending.load(Ordering::Acquire) {
                return;
            }
            if let Some(ticks) = asked.swap(0, Ordering::Relaxed).checked_sub(1) {
                doorbell::let_go(irql, started, node, ticks);
            }
        }
    }
}
