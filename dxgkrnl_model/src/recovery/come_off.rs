//! Work that is to come off its engine for something else than a timeout: a context is suspended, or the device is to
//! lose its power. The thread that wants that waits for it, and an engine that does not answer is reset.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::hw_engine::Late;
use super::steps::Reason;
use super::{hw_engine, packet};
use crate::adapter::Adapter;
use crate::hw_context::HwContext;
use crate::personality::Departure;
use crate::rules::queue::SUSPEND_ACK;
use crate::sync::Signal;

/// Lets the worker do something. Returns when that is over, or the adapter stops.
///
/// IRQL: PASSIVE_LEVEL; not on the worker.
pub(super) fn on_worker(adapter: &Arc<Adapter>, work: impl FnOnce(&Arc<Adapter>) + Send + 'static) {
    let done = Arc::new((AtomicBool::new(false), Signal::new()));
    let told = done.clone();
    let work = move |adapter: &Arc<Adapter>| {
        work(adapter);
        told.0.store(true, Ordering::Release);
        told.1.notify(adapter.kernel());
    };
    adapter.scheduler.defer(adapter, Box::new(work));
    let over = || (done.0.load(Ordering::Acquire) || !adapter.is_working()).then_some(());
    done.1.wait_for(adapter.kernel(), None, over);
}

/// [`await_suspensions`] of one context.
///
/// IRQL: PASSIVE_LEVEL.
pub(crate) fn await_suspension(adapter: &Arc<Adapter>, context: &Arc<HwContext>) {
    await_suspensions(adapter, std::slice::from_ref(context));
}

/// Waits for acknowledgements outside the watch, of contexts that have all been asked; an engine that owes any of them
/// for TdrDelay is reset, once for all that it owes.
///
/// IRQL: PASSIVE_LEVEL.
pub(crate) fn await_suspensions(adapter: &Arc<Adapter>, contexts: &[Arc<HwContext>]) {
    let kernel = adapter.kernel();
    let deadline = kernel.now() + adapter.personality().tdr.delay;
    for context in contexts {
        let is_over = || (!context.is_suspending() || !adapter.is_working()).then_some(());
        context.changed.wait_for(kernel, Some(deadline), is_over);
        if adapter.is_working() {
            let acknowledged = !context.is_suspending();
            // An engine that hangs may owe it; one that has nothing to do may not.
            adapter.rules().check(&SUSPEND_ACK, acknowledged || !is_idle(adapter, context.node()), || {
                format!("node {} has nothing to do and did not acknowledge a suspension", context.node())
            });
        }
    }
    for (at, context) in contexts.iter().enumerate() {
        let node = context.node();
        let is_first = contexts[..at].iter().all(|other| other.node() != node);
        let owes = |other: &&Arc<HwContext>| other.node() == node && other.is_suspending();
        let late: Vec<_> = contexts.iter().filter(owes).cloned().collect();
        if is_first && !late.is_empty() && adapter.is_working() && adapter.personality().tdr.enabled {
            hw_engine::recover(adapter, node, Late::Owes(&late), Reason::Suspension);
        }
    }
}

/// Takes the packets of contexts off the packet nodes, to which none is handed in meanwhile: they are preempted, and
/// (where TDR is on) an engine that owes the answer for TdrDelay is reset. Returns when no context has a packet with
/// the driver; where TDR is off, TdrDelay later at the latest. Paging goes on.
///
/// IRQL: PASSIVE_LEVEL; not on the worker, from which on [`Sleep::rests`](crate::power::Sleep::rests) holds.
pub(crate) fn take_packets_off(adapter: &Arc<Adapter>) {
    if adapter.personality().departs(Departure::SleepsAmidPackets) {
        return;
    }
    let kernel = adapter.kernel();
    for node in adapter.scheduler.nodes().into_iter().filter(|node| !node.is_hardware_scheduled) {
        loop {
            // What the worker has begun to hand in is with the driver by then.
            let asked = node.clone();
            on_worker(adapter, move |adapter| {
                if !asked.packet.is_off() {
                    asked.packet.preempt(adapter);
                }
            });
            let deadline = kernel.now() + adapter.personality().tdr.delay;
            let is_over = || (node.packet.is_off() || !adapter.is_working()).then_some(());
            let is_off = node.packet.changed.wait_for(kernel, Some(deadline), is_over).is_some();
            if is_off || !adapter.personality().tdr.enabled || kernel.rules.is_stopped() {
                break;
            }
            // A node that was found empty has another TdrDelay for its answer.
            let late = node.clone();
            on_worker(adapter, move |adapter| {
                if !late.packet.is_off() {
                    packet::recover(adapter, &late, Reason::Preemption);
                }
            });
        }
    }
}

/// Asks the driver to preempt a packet node, whatever it has to do, and waits for the answer. Returns whether it came
/// while the adapter worked, or the node was reset for want of it. False: the driver refused, or the node is no packet
/// node.
///
/// IRQL: PASSIVE_LEVEL; not on the worker.
pub(crate) fn preempt(adapter: &Arc<Adapter>, node: u32) -> bool {
    let Some(node) = adapter.scheduler.node(node).filter(|node| !node.is_hardware_scheduled) else { return false };
    let asked = Arc::new(AtomicBool::new(false));
    let (late, note) = (node.clone(), asked.clone());
    on_worker(adapter, move |adapter| note.store(late.packet.preempt(adapter), Ordering::Release));
    // The watch gives the node two TdrDelays, and resets it then.
    let deadline = adapter.kernel().now() + 4 * adapter.personality().tdr.delay;
    let is_over = || (node.packet.preempting().is_none() || !adapter.is_working()).then_some(());
    asked.load(Ordering::Acquire)
        && node.packet.changed.wait_for(adapter.kernel(), Some(deadline), is_over).is_some()
        && adapter.is_working()
}

/// Whether every queue of a node is done with what was queued.
fn is_idle(adapter: &Adapter, node: u32) -> bool {
    let queues = adapter.scheduler.queues();
    queues
        .iter()
        .filter(|queue| queue.context().node() == node)
        .all(|queue| queue.progress().value() >= queue.last_queued())
}
