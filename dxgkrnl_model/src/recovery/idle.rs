//! Engines that the OS sees to be idle, and sends to F1 although no driver has asked.
//!
//! Of a kernel-mode queue it knows what it has submitted and what is done. Of a user-mode queue it knows the last
//! queued value and the progress, at which it looks at the cadence of TDR: a driver that knows of an idle engine
//! earlier asks.
//!
//! Source: article user-mode-work-submission, engine F-state transitions. Chosen: an engine is idle when none of its
//! queues had work at any look for TdrDelay, and none has made progress between two of them.

use std::sync::Arc;

use nt_model::sched::Ticks;

use wddm_abi::D3DDDI_DOORBELLSTATUS;

use crate::objects::hw_queue::HwQueue;
use crate::port::miniport::Miniport;
use crate::port::power::Power;
use crate::port::sync::{Lock, Rank};
use crate::sched::vidsch::VidSch;

/// What the last looks at a component's engine saw.
#[derive(Clone, Copy, Debug, Default)]
struct Idle {
    /// Since when it is idle; `None`: it was not at the last look, or is in F1.
    since: Option<Ticks>,
    /// How far its queues were, all together.
    progress: u64,
}

/// What the looks at all of them saw.
struct Idles(Lock<Vec<Idle>>);

impl Default for Idles {
    fn default() -> Self {
        Self(Lock::new(Rank::Leaf, Vec::new()))
    }
}

/// The adapter stops.
pub(crate) fn clear(adapter: &Miniport) {
    let Idles(states) = adapter.extension();
    states.lock().clear();
}

/// An engine wishes to go to F1. In D3, and on the way there and back, the wish is dropped: doorbells and power are not
/// the engine's then.
///
/// IRQL: PASSIVE_LEVEL; on the worker.
pub(super) fn wished(adapter: &Arc<Miniport>, node: u32) {
    if let Some(_awake) = Power::of(adapter).sleep.watch(adapter.kernel()) {
        to_f1(adapter, node);
    }
}

/// How far the queues of a node are, all together; `None`: one of them has work.
fn progress_of(queues: &[Arc<HwQueue>], node: u32) -> Option<u64> {
    queues.iter().filter(|queue| queue.context().node() == node).try_fold(0_u64, |sum, queue| {
        let progress = queue.progress().value();
        let is_done = progress >= queue.last_queued() || queue.context().device().usable().is_err();
        is_done.then(|| sum.wrapping_add(progress))
    })
}

/// Whether the queues of a node have done what user mode, or the kernel, has told that is queued.
fn is_done(adapter: &Miniport, node: u32) -> bool {
    progress_of(&HwQueue::all_of(adapter), node).is_some()
}

/// Looks for engines that have been idle for `delay`, and has them go to F1. `at`: when to look again. On the
/// scheduler's worker.
pub(super) fn watch(adapter: &Arc<Miniport>, delay: Ticks, at: &mut impl FnMut(Ticks)) {
    let Idles(states) = adapter.extension();
    let nodes = Power::of(adapter).engines();
    if nodes.is_empty() {
        return;
    }
    let queues = HwQueue::all_of(adapter);
    for (index, (node, state)) in nodes.into_iter().enumerate() {
        let Some(node) = node else { continue };
        let now = adapter.kernel().now();
        let progress =
            progress_of(&queues, node).filter(|_| state == 0 && !VidSch::of(adapter).has_work(adapter, node));
        let since = {
            let mut idle = states.lock();
            let length = idle.len().max(index + 1);
            idle.resize(length, Idle::default());
            let known = &mut idle[index];
            let goes_on = known.since.filter(|_| progress == Some(known.progress));
            *known = Idle { since: progress.map(|_| goes_on.unwrap_or(now)), progress: progress.unwrap_or(0) };
            known.since
        };
        match since {
            Some(since) if now >= since + delay => {
                to_f1(adapter, node);
                at(now + delay);
            }
            Some(since) => at(since + delay),
            None if state == 0 => at(now + delay),
            None => (),
        }
    }
}

/// Disconnects every doorbell of a node's queues, and then has its engine go to F1, unless the kernel has work for it,
/// or a user-mode queue has not done what it was told is queued: what was rung in front of the rotation runs in F0.
///
/// IRQL: PASSIVE_LEVEL.
fn to_f1(adapter: &Arc<Miniport>, node: u32) {
    let doorbells = || {
        let queues = HwQueue::all_of(adapter).into_iter();
        queues.filter(|queue| queue.context().node() == node).flat_map(|queue| queue.doorbells())
    };
    for doorbell in doorbells() {
        doorbell.disconnect(D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_DISCONNECTED_RETRY);
    }
    // Of an engine without doorbells there is nothing to stop for.
    let gates = &adapter.personality().gates;
    let stop = |gate: &Option<crate::port::personality::Gate>| {
        adapter.pass(gate.as_ref().filter(|_| doorbells().next().is_some()))
    };
    stop(&gates.f1);
    if let Some(index) = Power::of(adapter).component_of(node) {
        let is_done = || adapter.personality().faults.f1_amid_work || is_done(adapter, node);
        let is_idle =
            || !VidSch::of(adapter).has_work(adapter, node) && is_done() && !Power::of(adapter).is_active(index);
        Power::of(adapter).set(adapter, index, 1, is_idle);
        stop(&gates.f0);
        if doorbells().any(|doorbell| doorbell.is_connected()) {
            Power::of(adapter).set(adapter, index, 0, || true);
        }
    }
}
