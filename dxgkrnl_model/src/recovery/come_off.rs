//! Work that is to come off its engine for something else than a timeout: a context is suspended, or the device is to
//! lose its power. The thread that wants that waits for it, and an engine that does not answer is reset.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::packet;
use crate::port::miniport::Miniport;
use crate::port::personality::Departure;
use crate::port::tdr::steps::Reason;
use crate::port::worker::Worker;
use crate::sched::vidsch::VidSch;

/// Takes the packets of contexts off the packet nodes, to which none is handed in meanwhile: they are preempted, and
/// (where TDR is on) an engine that owes the answer for TdrDelay is reset. Returns when no context has a packet with
/// the driver; where TDR is off, TdrDelay later at the latest. Paging goes on.
///
/// IRQL: PASSIVE_LEVEL; not on the worker, from which on [`Sleep::rests`](crate::port::power::Sleep::rests) holds.
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

/// Asks the driver to preempt a packet node, whatever it has to do, and waits for the answer. Returns whether it came
/// while the adapter worked, or the node was reset for want of it. False: the driver refused, or the node is no packet
/// node.
///
/// IRQL: PASSIVE_LEVEL; not on the worker.
pub(crate) fn preempt(adapter: &Arc<Miniport>, node: u32) -> bool {
    let Some(node) = VidSch::of(adapter).node(node).filter(|node| !node.is_hardware_scheduled) else { return false };
    let asked = Arc::new(AtomicBool::new(false));
    let (late, note) = (node.clone(), asked.clone());
    Worker::of(adapter).run(adapter, move |adapter| note.store(late.packet.preempt(adapter), Ordering::Release));
    // The watch gives the node two TdrDelays, and resets it then.
    let deadline = adapter.kernel().now() + 4 * adapter.personality().tdr.delay;
    let is_over = || (node.packet.preempting().is_none() || !adapter.is_working()).then_some(());
    asked.load(Ordering::Acquire)
        && node.packet.changed.wait_for(adapter.kernel(), Some(deadline), is_over).is_some()
        && adapter.is_working()
}
