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
use crate::doorbell::OfDriver;
use crate::habit::Now;
use crate::irql::Passive;
use crate::platform::{Platform, ThisThread};
use core::sync::atomic::Ordering;

/// Runs until the device is being stopped.
///
/// Its priority is the engines': while it is in the OS's callback, a `DxgkDdiDestroyDoorbell` of the same doorbell
/// waits for it, and a busy process must not keep it from going on.
pub(crate) fn run<P: Platform>(irql: &Passive, started: &Started<P>, priority: u32) {
    if let Some(me) = started.platform.this_thread(irql) {
        me.set_priority(irql, priority);
    }
    let idle = started.gpu.host.idle();
    loop {
        idle.wait();
        for node in 0..started.gpu.nodes.len() {
            if started.is_ending.load(Ordering::Acquire) {
                return;
            }
            if let Some(ticks) = idle.taken(node) {
                let_go(irql, started, node, ticks);
            }
        }
    }
}

/// Has the OS disconnect the doorbells of `node`'s queues that may go, whose engine has been idle for `idle` ticks of
/// the clock. Each ring behind this reads RETRY.
fn let_go<P: Platform>(irql: &Passive, started: &Started<P>, node: usize, idle: u64) {
    let (now, second) = (started.platform.clock(), started.platform.clock_frequency());
    started.doorbells.let_go(&OfDriver::new(irql, started), |owner| {
        let rings = owner.queue.rung.load(Ordering::Relaxed);
        owner.queue.context.node == node && owner.habit.may_go(&Now { now, second, idle, rings })
    });
    started.gpu.host.changes().announce();
}
