//! Hardware-scheduled nodes: the reset of an engine, and what it took along.
//!
//! Source: DDI pages DxgkDdiResetHwEngine, DxgkDdiResumeHwEngine, DxgkCbInvalidateHwContext; article
//! user-mode-work-submission (an engine that hangs has its doorbells disconnected).
//!
//! Chosen: devices of invalidated contexts with work that makes no progress are HUNG, others that were invalidated are
//! RESET: of several contexts that are late, the driver knows which ran. Devices that were not named run on; those of
//! them that were late are probed once more. A context that is invalidated is not suspended any more.
//! The driver may hold back an acknowledgement from before the reset until the engine is resumed: a context that gives
//! one then had let go.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use wddm_abi::{
    D3DDDI_DOORBELLSTATUS, DXGK_SCHEDULING_LOG_CONTEXT_STATE, DXGKARG_RESETHWENGINE, DXGKARG_RESUMEHWENGINE, ntstatus,
};

use super::journal::Record;
use super::packet::distinct;
use super::{adapter as adapter_reset, collect};
use crate::objects::hw_context::HwContext;
use crate::objects::hw_queue::HwQueue;
use crate::objects::scheduling_log::SchedulingLogSet;
use crate::port::ddi::{self, call_ddi};
use crate::port::miniport::Miniport;
use crate::port::personality::Departure;
use crate::port::rules::tdr::{TDR_GUILTY, TDR_INVALIDATE};
use crate::port::tdr::steps::{Reason, Step, What};
use crate::port::tdr::{DeviceState, NodeState, Tdr};
use crate::recovery::Watch;

/// Between the reset of an engine and its resumption, in which DXG-INT-AFTER-RESET is judged: five milliseconds.
const SETTLE: i64 = -50_000;

/// For whose sake the engine of a hardware-scheduled node is reset.
#[derive(Clone, Copy)]
pub(super) enum Late<'a> {
    /// The driver, a fault or user mode asked for it.
    Nobody,
    /// These contexts owe the acknowledgement of their suspension for TdrDelay.
    Owes(&'a [Arc<HwContext>]),
    /// The suspension of this context failed.
    Refused(&'a Arc<HwContext>),
}

impl<'a> Late<'a> {
    fn contexts(self) -> &'a [Arc<HwContext>] {
        match self {
            Self::Nobody => &[],
            Self::Owes(contexts) => contexts,
            Self::Refused(context) => std::slice::from_ref(context),
        }
    }

    fn is_invalidated(self) -> bool {
        self.contexts().iter().all(|context| context.is_invalidated())
    }
}

/// Resets the engine of a hardware-scheduled node, unless nothing is late any more. `late`: the contexts that owe an
/// acknowledgement, or whose suspension failed; which of them hung it, and whether another one did, the driver says.
///
/// Chosen: the article has such an exit for packet engines alone (step 4).
///
/// IRQL: PASSIVE_LEVEL.
pub(super) fn recover(adapter: &Arc<Miniport>, node: u32, late: Late<'_>, reason: Reason) {
    let (tdr, watch) = (Tdr::of(adapter), Watch::of(adapter));
    adapter.pass(adapter.personality().gates.engine.as_ref());
    let Some(alone) = watch.begin_reset(adapter, node) else { return };
    // The reset that this one has waited for has ended what they owed, or they have let go meanwhile.
    let is_over = match late {
        Late::Nobody => false,
        Late::Owes(late) => late.iter().all(|context| context.is_invalidated() || !context.is_suspending()),
        Late::Refused(context) => context.is_invalidated(),
    };
    if is_over && (late.is_invalidated() || !adapter.personality().departs(Departure::ResetsEmptyQueues)) {
        tdr.set_node(node, NodeState::default());
        return;
    }
    let late = late.contexts();
    let place = adapter.known_caps().place(node);
    let record = Record::begin(adapter, What::HwEngine { node }, reason);
    tdr.engine_resets.fetch_add(1, Ordering::Relaxed);
    watch.give_time(node, adapter.kernel().now());
    adapter.shared().counters.tdr();
    let blames = adapter.personality().departs(Departure::BlamesWhatRuns);
    let cut_off = if blames { DeviceState::Hung } else { reason.of_cut_off() };
    if matches!(reason, Reason::Suspension | Reason::Dependent) {
        record.step(Step::TimeoutDetected);
    }
    if reason == Reason::Hung && !adapter.personality().departs(Departure::LeavesDoorbells) {
        record.step(Step::DoorbellsDisconnected(disconnect(adapter, node)));
    }
    // CAST: contexts.
    let pending = late.iter().filter(|context| context.is_suspending()).count() as u32;
    let guilty = collect::hw_engine(adapter, node, pending, reason);
    record.step(Step::DebugInfo(collect::ENGINE_TIMEOUT));
    let guilty = judge_guilty(adapter, node, guilty);
    super::between(adapter, &[node], adapter.personality().gates.reset.as_ref());
    let stuck: Vec<_> =
        HwContext::all_of(adapter).into_iter().filter(|context| is_stuck(context, node, late)).collect();
    let owed = late.iter().any(|context| context.is_suspending());
    let before = progress_of(adapter, node);
    let ran = said_to_run(adapter, reason, &stuck);
    watch.invalidated.lock().clear();
    let mut arguments = DXGKARG_RESETHWENGINE::zeroed();
    (arguments.NodeOrdinal, arguments.EngineOrdinal) = (place.node, place.engine);
    let (miniport, pointer) = (adapter.context(), &raw mut arguments);
    let status = ddi::status(call_ddi!(adapter, DxgkDdiResetHwEngine(miniport, pointer)));
    let invalidated = std::mem::take(&mut *watch.invalidated.lock());
    record.step(Step::ResetHwEngine(status, invalidated.len()));
    if !status.is_success() {
        tdr.set_node(node, NodeState::default());
        if status != ntstatus::STATUS_SYSTEM_SHUTDOWN && !adapter.personality().departs(Departure::EndsAtFailure) {
            // Told apart from devices that are merely reset.
            let only = if let [only] = stuck.as_slice() { Some(only.clone()) } else { None };
            if let Some(context) = guilty.or(only) {
                context.device().mark_failed(cut_off);
            }
            let known = adapter_reset::so_far(adapter);
            drop(alone);
            adapter_reset::run_promoted(adapter, known);
        }
        return;
    }
    tdr.set_node(node, NodeState { resetting: true, quiet: true });
    // The reset found nothing that ran where every late context acknowledged its suspension before the driver was
    // asked. An acknowledgement during the call may come from the reset itself: it tells only beside progress of a
    // queue of the node. Where no context is late, the driver, a fault or user mode asked for the reset: nothing need
    // have run but what the driver itself says to hang.
    let moved = has_moved(&before, &progress_of(adapter, node));
    let let_go = !owed || (late.iter().all(|context| !context.is_suspending()) && moved);
    let kept_back = !ran.is_empty() && !moved && !invalidated.iter().any(|context| is_among(context, &ran));
    // One that comes in the call without progress is the reset's own, and not that of an engine that had let go.
    let still_owed = late.iter().all(|context| context.is_suspending());
    let mut named = (let_go && !kept_back) || invalidated.iter().any(|context| is_among(context, &stuck));
    // Time in which an engine that was not stopped would show.
    adapter.kernel().delay_execution(SETTLE);
    super::between(adapter, &[node], adapter.personality().gates.quiet.as_ref());
    adapter.kernel().flush_queued_dpcs();
    crate::sched::interrupt::forget_node(adapter, node as usize);
    SchedulingLogSet::of(adapter).forgive(Some(node));
    tdr.set_node(node, NodeState { resetting: true, quiet: false });
    record.step(Step::InterruptsEnabled);
    let mut arguments = DXGKARG_RESUMEHWENGINE::zeroed();
    (arguments.NodeOrdinal, arguments.EngineOrdinal) = (place.node, place.engine);
    let (miniport, pointer) = (adapter.context(), &raw mut arguments);
    let resumed = ddi::status(call_ddi!(adapter, DxgkDdiResumeHwEngine(miniport, pointer)));
    record.step(Step::ResumeHwEngine(resumed));
    tdr.set_node(node, NodeState::default());
    if !named && !late.is_empty() && still_owed && resumed.is_success() {
        named = have_let_go(adapter, late);
    }
    adapter.rules().check(&TDR_INVALIDATE, named, || {
        format!(
            "node {node}: {} contexts were invalidated, none of the {} without progress is among them",
            invalidated.len(),
            stuck.len()
        )
    });
    let mut lost = invalidated;
    if !named {
        lost.extend_from_slice(if late.is_empty() { &ran } else { late });
    }
    for context in &lost {
        context.invalidate(!named);
        // Where the late ones had let go, what runs began behind that.
        let hung = late.is_empty() || !named || is_among(context, if let_go { late } else { &stuck });
        let state = if hung { cut_off } else { DeviceState::Reset };
        context.device().mark_failed(state);
    }
    record.step(Step::DevicesLost(distinct(lost.iter().map(|context| context.device()))));
    let known = adapter_reset::so_far(adapter);
    drop(alone);
    for context in &lost {
        context.device().fail_marked();
    }
    drop(record);
    if !resumed.is_success() && resumed != ntstatus::STATUS_SYSTEM_SHUTDOWN {
        adapter_reset::run_promoted(adapter, known);
    }
}

/// Contexts that hang the engine by the driver's own word: it asked for the reset because of a hang, and its scheduling
/// log has them running, with work that makes no progress. Empty where the reset has another reason.
///
/// IRQL: PASSIVE_LEVEL.
fn said_to_run(adapter: &Miniport, reason: Reason, stuck: &[Arc<HwContext>]) -> Vec<Arc<HwContext>> {
    if !matches!(reason, Reason::Asked | Reason::Hung) {
        return Vec::new();
    }
    let running = DXGK_SCHEDULING_LOG_CONTEXT_STATE::DXGK_SCHEDULING_LOG_CONTEXT_STATE_RUNNING.0;
    let runs = |context: &&Arc<HwContext>| SchedulingLogSet::of(adapter).state(adapter, context) == Some(running);
    stuck.iter().filter(runs).cloned().collect()
}

/// Returns whether every late context acknowledges its suspension behind the resumption of its engine: what the engine
/// said right before its reset waits in the driver until then, and it ran nothing. Only where a driver is wrong does
/// nothing come, for TdrDelay.
///
/// IRQL: PASSIVE_LEVEL.
fn have_let_go(adapter: &Miniport, late: &[Arc<HwContext>]) -> bool {
    let kernel = adapter.kernel();
    let until = Some(kernel.now() + adapter.personality().tdr.delay);
    late.iter()
        .all(|context| context.changed.wait_for(kernel, until, || (!context.is_suspending()).then_some(())).is_some())
}

/// Disconnects the doorbells of a node's queues; how many were connected.
fn disconnect(adapter: &Miniport, node: u32) -> usize {
    let queues = HwQueue::all_of(adapter).into_iter().filter(|queue| queue.context().node() == node);
    let doorbells: Vec<_> =
        queues.flat_map(|queue| queue.doorbells()).filter(|doorbell| doorbell.is_connected()).collect();
    for doorbell in &doorbells {
        doorbell.disconnect(D3DDDI_DOORBELLSTATUS::D3DDDI_DOORBELLSTATUS_DISCONNECTED_RETRY);
    }
    doorbells.len()
}

/// The context that the driver takes for the one that timed out is one of the node's, and is returned.
fn judge_guilty(adapter: &Miniport, node: u32, guilty: Option<usize>) -> Option<Arc<HwContext>> {
    let named = guilty?;
    let ours = crate::port::handle::object::<HwContext>(core::ptr::with_exposed_provenance_mut(named));
    let theirs = || HwContext::all_of(adapter).into_iter().find(|context| context.driver_handle() == named);
    let found = ours.or_else(theirs);
    let found = found.filter(|context| context.node() == node);
    adapter.rules().check(&TDR_GUILTY, found.is_some(), || format!("node {node}: hContext is {named:#x}"));
    found
}

/// Whether a context of the node may be the one that hung it: it owes an acknowledgement, or has work that makes no
/// progress.
fn is_stuck(context: &Arc<HwContext>, node: u32, late: &[Arc<HwContext>]) -> bool {
    let unfinished = |queue: &Arc<HwQueue>| queue.progress().value() < queue.last_queued();
    context.node() == node && (is_among(context, late) || context.queues().iter().any(unfinished))
}

/// Queues of a node, by the addresses of their objects, with the values of their progress fences.
fn progress_of(adapter: &Miniport, node: u32) -> Vec<(usize, u64)> {
    let queues = HwQueue::all_of(adapter);
    let here = queues.iter().filter(|queue| queue.context().node() == node);
    here.map(|queue| (Arc::as_ptr(queue).addr(), queue.progress().value())).collect()
}

/// Returns whether a progress fence has another value in `after` than in `before`.
fn has_moved(before: &[(usize, u64)], after: &[(usize, u64)]) -> bool {
    before.iter().any(|(queue, old)| after.iter().any(|(other, new)| other == queue && new != old))
}

fn is_among(context: &Arc<HwContext>, list: &[Arc<HwContext>]) -> bool {
    list.iter().any(|other| Arc::ptr_eq(other, context))
}
