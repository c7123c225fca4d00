//! Work that is to come off its engine for something else than a timeout: a context is suspended, or the device is to
//! lose its power. The thread that wants that waits for it, and an engine that does not answer is reset.

use std::sync::Arc;

use super::hw_engine::Late;
use super::{hw_engine, packet};
use crate::hw_context::HwContext;
use crate::hw_queue::HwQueue;
use crate::miniport::Miniport;
use crate::personality::Departure;
use crate::rules::queue::SUSPEND_ACK;
use crate::tdr::steps::Reason;
use crate::vidsch::VidSch;
use crate::worker::Worker;

/// [`await_suspensions`] of one context.
///
/// IRQL: PASSIVE_LEVEL.
pub(crate) fn await_suspension(adapter: &Arc<Miniport>, context: &Arc<HwContext>) {
    await_suspensions(adapter, std::slice::from_ref(context));
}

/// Waits for acknowledgements outside the watch, of contexts that have all been asked; an engine that owes any of them
/// for TdrDelay is reset, once for all that it owes.
///
/// IRQL: PASSIVE_LEVEL.
pub(crate) fn await_suspensions(adapter: &Arc<Miniport>, contexts: &[Arc<HwContext>]) {
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
pub(crate) fn take_packets_off(adapter: &Arc<Miniport>) {
    if adapter.personality().departs(Departure::SleepsAmidPackets) {
        return;
    }
    let kernel = adapter.kernel();
    for node in VidSch::of(adapter).nodes().into_iter().filter(|node| !node.is_hardware_scheduled) {
        loop {
            // What the worker has begun to hand in is with the driver by then.
            let asked = node.clone();
            Worker::of(adapter).run(adapter, move |adapter| {
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
            Worker::of(adapter).run(adapter, move |adapter| {
                if !late.packet.is_off() {
                    packet::recover(adapter, &late, Reason::Preemption);
                }
            });
        }
    }
}

/// Whether every queue of a node is done with what was queued.
fn is_idle(adapter: &Miniport, node: u32) -> bool {
    let queues = HwQueue::all_of(adapter);
    queues
        .iter()
        .filter(|queue| queue.context().node() == node)
        .all(|queue| queue.progress().value() >= queue.last_queued())
}
