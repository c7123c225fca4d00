//! Timeout detection and recovery: what makes no progress is probed, then reset; what it took with it is lost.
//!
//! **Hardware-scheduled nodes.** The watch compares each queue's last queued value with its progress fence. A queue whose
//! fence has not moved for TdrDelay has its context suspended. An acknowledgement within TdrDelay means that the engine
//! lives and the queue merely waits: the context is resumed. Without it: CollectDbgInfo(2), ResetHwEngine (in which the
//! driver names the contexts that ran), ResumeHwEngine; the devices of those contexts are lost, the others run on.
//!
//! **Packet nodes.** The oldest buffer that has been with the driver for TdrDelay makes the node be preempted; if that is
//! not acknowledged within TdrDelay, the engine is reset ([`packet`]). **Adapters.** What cannot be reset alone, or fails to
//! be, takes the adapter ([`adapter_reset`]).
//!
//! Source: articles timeout-detection-and-recovery, tdr-changes-in-windows-8, tdr-registry-keys; DDI pages of the
//! functions.
//!
//! Chosen: devices of invalidated contexts with work that makes no progress are HUNG, others that were invalidated are RESET: of
//! several contexts that are late, the driver knows which ran. Devices that were not named run on; those of them that were
//! late are probed once more. A context that is invalidated is not suspended any more.

mod adapter_reset;
mod collect;
mod packet;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nt_model::sched::Ticks;
use wddm_abi::{DXGKARG_RESETHWENGINE, DXGKARG_RESUMEHWENGINE, ntstatus};

use crate::adapter::Adapter;
use crate::ddi::{self, call_ddi};
use crate::device::DeviceState;
use crate::fence::native::FenceOnAdapter;
use crate::hw_context::{HwContext, Suspend};
use crate::hw_queue::HwQueue;
use crate::rules::fence::NF_LOST;
use crate::rules::queue::SUSPEND_ACK;
use crate::rules::tdr::TDR_INVALIDATE;
use crate::sync::{Lock, Rank};

/// Between the reset of an engine and its resumption: a millisecond.
const SETTLE: i64 = -10_000;

/// What the watch of one queue saw.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueWatch {
    progress: u64,
    /// Since when the progress has been that with more queued.
    since: Option<Ticks>,
}

/// A context that was asked to leave its run list.
#[derive(Debug)]
struct Probe {
    context: Arc<HwContext>,
    since: Ticks,
}

/// A node under reset.
#[derive(Clone, Copy, Debug, Default)]
struct NodeState {
    /// The reset has begun and the engine is not resumed.
    resetting: bool,
    /// `DxgkDdiResetHwEngine` has returned and `DxgkDdiResumeHwEngine` has not been called.
    quiet: bool,
}

/// TDR of one adapter.
#[derive(Debug)]
pub(crate) struct Tdr {
    enabled: AtomicBool,
    nodes: Lock<Vec<NodeState>>,
    probes: Lock<Vec<Probe>>,
    invalidated: Lock<Vec<Arc<HwContext>>>,
    packets: Lock<Vec<packet::PacketWatch>>,
    /// When the adapter was reset.
    resets: Lock<Vec<Ticks>>,
    /// Fences that are past their monitored value with somebody waiting, and since when.
    lost: Lock<Vec<(u64, Ticks)>>,
    last_audit: AtomicU64,
    /// Engine resets so far.
    pub(crate) engine_resets: AtomicU64,
    /// Adapter resets so far.
    pub(crate) adapter_resets: AtomicU64,
    /// Contexts that were probed and acknowledged.
    pub(crate) innocent_probes: AtomicU64,
}

impl Tdr {
    pub(crate) fn new() -> Self {
        Self {
            enabled: AtomicBool::new(true),
            nodes: Lock::new(Rank::Log, Vec::new()),
            probes: Lock::new(Rank::Log, Vec::new()),
            invalidated: Lock::new(Rank::Log, Vec::new()),
            packets: Lock::new(Rank::Log, Vec::new()),
            resets: Lock::new(Rank::Log, Vec::new()),
            lost: Lock::new(Rank::Log, Vec::new()),
            last_audit: AtomicU64::new(0),
            engine_resets: AtomicU64::new(0),
            adapter_resets: AtomicU64::new(0),
            innocent_probes: AtomicU64::new(0),
        }
    }

    /// Switches the watch on or off.
    pub(crate) fn set_enabled(&self, on: bool) {
        self.enabled.store(on, Ordering::Release);
    }

    /// A reset of the node has begun and is not over.
    pub(crate) fn is_resetting(&self, node: u32) -> bool {
        self.nodes.lock().get(node as usize).is_some_and(|node| node.resetting)
    }

    /// The node is between its reset and its resumption.
    pub(crate) fn is_quiet(&self, node: u32) -> bool {
        self.nodes.lock().get(node as usize).is_some_and(|node| node.quiet)
    }

    fn set_node(&self, node: u32, state: NodeState) {
        let mut nodes = self.nodes.lock();
        if nodes.len() <= node as usize {
            nodes.resize(node as usize + 1, NodeState::default());
        }
        if let Some(slot) = nodes.get_mut(node as usize) {
            *slot = state;
        }
    }

    /// `DxgkCbInvalidateHwContext`.
    fn note_invalidated(&self, context: &Arc<HwContext>) {
        self.invalidated.lock().push(context.clone());
    }
}

/// Looks for what makes no progress; when to look again. On the scheduler's worker.
pub(crate) fn watch(adapter: &Arc<Adapter>) -> Option<Ticks> {
    let settings = adapter.personality().tdr;
    if !settings.enabled || !adapter.tdr.enabled.load(Ordering::Acquire) || !adapter.is_working() {
        return None;
    }
    let now = adapter.kernel().now();
    let mut next: Option<Ticks> = None;
    let mut at = |deadline: Ticks| next = Some(next.map_or(deadline, |known| known.min(deadline)));
    judge_probes(adapter, now, settings.delay, &mut at);
    for queue in adapter.scheduler.queues() {
        look_at_queue(adapter, &queue, now, settings.delay, &mut at);
    }
    packet::watch(adapter, now, settings.delay, &mut at);
    audit_fences(adapter, now, settings.delay, &mut at);
    next
}

fn look_at_queue(adapter: &Arc<Adapter>, queue: &Arc<HwQueue>, now: Ticks, delay: Ticks, at: &mut impl FnMut(Ticks)) {
    let device = queue.context().device();
    if queue.is_unwatched() || device.usable().is_err() {
        return;
    }
    let (queued, progress) = (queue.last_queued(), queue.progress().value());
    let stuck = {
        let mut watch = queue.watch.lock();
        if progress >= queued {
            *watch = QueueWatch { progress, since: None };
            // User mode queues more without telling: the cadence goes on.
            at(now + delay);
            return;
        }
        match watch.since {
            Some(since) if watch.progress == progress && now >= since + delay => true,
            Some(since) if watch.progress == progress => {
                at(since + delay);
                false
            }
            _ => {
                *watch = QueueWatch { progress, since: Some(now) };
                at(now + delay);
                false
            }
        }
    };
    if stuck {
        queue.watch.lock().since = Some(now);
        probe(adapter, queue.context(), now);
        at(now + delay);
    }
}

/// Asks whether the engine still answers.
fn probe(adapter: &Arc<Adapter>, context: &Arc<HwContext>, now: Ticks) {
    if adapter.tdr.is_resetting(context.node())
        || adapter.tdr.probes.lock().iter().any(|probe| Arc::ptr_eq(&probe.context, context))
    {
        return;
    }
    match context.suspend() {
        Suspend::Pending(_) => {
            adapter.tdr.probes.lock().push(Probe { context: context.clone(), since: now });
            // It may have been acknowledged meanwhile.
            adapter.scheduler.kick(adapter);
        }
        Suspend::Done => {
            adapter.tdr.innocent_probes.fetch_add(1, Ordering::Relaxed);
            context.resume();
        }
        Suspend::Failed => recover_engine(adapter, context.node(), std::slice::from_ref(context)),
    }
}

fn judge_probes(adapter: &Arc<Adapter>, now: Ticks, delay: Ticks, at: &mut impl FnMut(Ticks)) {
    let probes = std::mem::take(&mut *adapter.tdr.probes.lock());
    let mut late = Vec::new();
    for probe in probes {
        if !probe.context.is_alive() || probe.context.device().usable().is_err() {
            continue;
        }
        if !probe.context.is_suspending() {
            adapter.tdr.innocent_probes.fetch_add(1, Ordering::Relaxed);
            probe.context.resume();
        } else if now >= probe.since + delay {
            late.push(probe.context);
        } else {
            at(probe.since + delay);
            adapter.tdr.probes.lock().push(probe);
        }
    }
    while let Some(node) = late.first().map(|context| context.node()) {
        let here: Vec<_> = late.extract_if(.., |context| context.node() == node).collect();
        if adapter.tdr.is_resetting(node) {
            continue;
        }
        recover_engine(adapter, node, &here);
        // What was behind the one that hung has its suspension acknowledged yet.
        let waiting = here.into_iter().filter(|context| context.is_alive() && context.device().usable().is_ok());
        let probes = waiting.map(|context| Probe { context, since: adapter.kernel().now() });
        adapter.tdr.probes.lock().extend(probes);
        at(adapter.kernel().now() + delay);
    }
}

/// Waits for an acknowledgement outside the watch; an engine that owes it for TdrDelay is reset.
///
/// IRQL: PASSIVE_LEVEL.
pub(crate) fn await_suspension(adapter: &Arc<Adapter>, context: &Arc<HwContext>) {
    let kernel = adapter.kernel();
    let deadline = kernel.now() + adapter.personality().tdr.delay;
    context
        .changed
        .wait_for(kernel, Some(deadline), || (!context.is_suspending() || !adapter.is_working()).then_some(()));
    if adapter.is_working() {
        let acknowledged = !context.is_suspending();
        // An engine that hangs may owe it; one that has nothing to do may not.
        adapter.rules().check(&SUSPEND_ACK, acknowledged || !is_idle(adapter, context.node()), || {
            format!("node {} has nothing to do and did not acknowledge a suspension", context.node())
        });
    }
    if context.is_suspending() && adapter.is_working() && adapter.personality().tdr.enabled {
        recover_engine(adapter, context.node(), std::slice::from_ref(context));
    }
}

/// Whether every queue of a node is done with what was queued.
fn is_idle(adapter: &Adapter, node: u32) -> bool {
    let queues = adapter.scheduler.queues();
    queues
        .iter()
        .filter(|queue| queue.context().node() == node)
        .all(|queue| queue.progress().value() >= queue.last_queued())
}

/// The driver or a fault asks for a reset of the engine.
///
/// IRQL: PASSIVE_LEVEL.
pub(crate) fn engine_reset_wanted(adapter: &Arc<Adapter>, node: u32) {
    let Some(found) = adapter.scheduler.node(node) else { return };
    if found.is_hardware_scheduled {
        recover_engine(adapter, node, &[]);
    } else {
        packet::recover(adapter, &found);
    }
}

/// Resets the engine of a hardware-scheduled node. `late`: the contexts that owe an acknowledgement; which of them hung it, and
/// whether another one did, the driver says.
///
/// IRQL: PASSIVE_LEVEL.
fn recover_engine(adapter: &Arc<Adapter>, node: u32, late: &[Arc<HwContext>]) {
    let tdr = &adapter.tdr;
    if tdr.is_resetting(node) {
        return;
    }
    tdr.set_node(node, NodeState { resetting: true, quiet: false });
    tdr.engine_resets.fetch_add(1, Ordering::Relaxed);
    adapter.shared().counters.tdr();
    adapter.note_event(format!("TDR: engine reset of node {node}"));
    collect::engine(adapter, node, late.first().map(|context| context.driver_handle()));
    let stuck: Vec<_> = adapter.hw_contexts().into_iter().filter(|context| is_stuck(context, node, late)).collect();
    tdr.invalidated.lock().clear();
    let mut arguments = DXGKARG_RESETHWENGINE::zeroed();
    arguments.NodeOrdinal = node;
    let (miniport, pointer) = (adapter.context(), &raw mut arguments);
    let status = ddi::status(call_ddi!(adapter, DxgkDdiResetHwEngine(miniport, pointer)));
    let invalidated = std::mem::take(&mut *tdr.invalidated.lock());
    if !status.is_success() {
        tdr.set_node(node, NodeState::default());
        if status != ntstatus::STATUS_SYSTEM_SHUTDOWN {
            adapter_reset::run(adapter);
        }
        return;
    }
    tdr.set_node(node, NodeState { resetting: true, quiet: true });
    // A context that has let go by now was late, and did not hang: a reset that comes then finds nothing that runs.
    let let_go = late.iter().all(|context| !context.is_suspending());
    let named = let_go || invalidated.iter().any(|context| is_among(context, &stuck));
    adapter.rules().check(&TDR_INVALIDATE, named, || {
        format!(
            "node {node}: {} contexts were invalidated, none of the {} without progress is among them",
            invalidated.len(),
            stuck.len()
        )
    });
    // Time in which an engine that was not stopped would show.
    adapter.kernel().delay_execution(SETTLE);
    adapter.kernel().flush_queued_dpcs();
    adapter.interrupts.forget_node(node as usize);
    tdr.set_node(node, NodeState { resetting: true, quiet: false });
    let mut arguments = DXGKARG_RESUMEHWENGINE::zeroed();
    arguments.NodeOrdinal = node;
    let (miniport, pointer) = (adapter.context(), &raw mut arguments);
    let resumed = ddi::status(call_ddi!(adapter, DxgkDdiResumeHwEngine(miniport, pointer)));
    tdr.set_node(node, NodeState::default());
    let mut lost = invalidated;
    if !named {
        lost.extend_from_slice(late);
    }
    for context in &lost {
        context.invalidate();
        let hung = late.is_empty() || !named || is_among(context, &stuck);
        let state = if hung { DeviceState::Hung } else { DeviceState::Reset };
        context.device().mark_failed(state);
    }
    for context in &lost {
        context.device().fail_marked();
    }
    if !resumed.is_success() && resumed != ntstatus::STATUS_SYSTEM_SHUTDOWN {
        adapter_reset::run(adapter);
    }
}

/// Whether a context of the node may be the one that hung it: it owes an acknowledgement, or has work that makes no progress.
fn is_stuck(context: &Arc<HwContext>, node: u32, late: &[Arc<HwContext>]) -> bool {
    let unfinished = |queue: &Arc<HwQueue>| queue.progress().value() < queue.last_queued();
    context.node() == node && (is_among(context, late) || context.queues().iter().any(unfinished))
}

fn is_among(context: &Arc<HwContext>, list: &[Arc<HwContext>]) -> bool {
    list.iter().any(|other| Arc::ptr_eq(other, context))
}

/// A fence that is past its monitored value with somebody waiting for it, for a whole cadence, was signalled without an
/// interrupt.
fn audit_fences(adapter: &Arc<Adapter>, now: Ticks, delay: Ticks, at: &mut impl FnMut(Ticks)) {
    let fences = adapter.native_fences();
    let waits = |on: &Arc<FenceOnAdapter>| {
        let fence = on.fence()?;
        Some((fence.waiters().least()?, fence.value(), on.handle(), fence.is_always_signaled()))
    };
    let waited: Vec<_> = fences.iter().filter_map(waits).collect();
    if !waited.is_empty() {
        at(now + delay);
    }
    let overdue: Vec<_> = waited.iter().filter(|(least, value, _, always)| value >= least && !always).collect();
    let known = std::mem::take(&mut *adapter.tdr.lost.lock());
    let mut candidates = Vec::new();
    for (least, value, handle, _) in overdue {
        let since = known.iter().find(|(known, _)| known == handle).map_or(now, |(_, since)| *since);
        if now >= since + delay {
            adapter.rules().check(&NF_LOST, false, || {
                format!("fence {handle:#x} is {value:#x}, {least:#x} is waited for, and no interrupt came")
            });
            crate::fence::update::scan_native(adapter);
        } else {
            candidates.push((*handle, since));
        }
    }
    if !waited.is_empty() {
        adapter.rules().count(&NF_LOST);
    }
    *adapter.tdr.lost.lock() = candidates;
    adapter.tdr.last_audit.store(now, Ordering::Relaxed);
}

/// `DxgkCbInvalidateHwContext`.
pub(crate) mod callbacks {
    use nt_model::{In, shims};
    use wddm_abi::{DXGKARGCB_INVALIDATEHWCONTEXT, NTSTATUS, ntstatus};

    use crate::handle;
    use crate::interface::{callback, record, routines};
    use crate::rules::interface::CB_OBJECT;

    routines! {
        INVALIDATE = "DxgkCbInvalidateHwContext"("pArgs") 0..=0;
    }

    shims! {
        /// TDR callbacks.
        pub(crate) table CALLBACKS;

        fn DxgkCbInvalidateHwContext(_machine, args: In<[u8; size_of::<DXGKARGCB_INVALIDATEHWCONTEXT>()]>) -> NTSTATUS {
            let arguments: DXGKARGCB_INVALIDATEHWCONTEXT = record(args);
            let status = callback(arguments.hAdapter, &INVALIDATE, [args.address() as u64], |adapter| {
                let context = handle::hw_context(arguments.hHwContext).filter(|context| context.is_alive());
                adapter.rules().check(&CB_OBJECT, context.is_some(), || {
                    format!("DxgkCbInvalidateHwContext got {}", handle::describe(arguments.hHwContext))
                });
                let Some(context) = context else { return ntstatus::STATUS_INVALID_PARAMETER };
                adapter.tdr.note_invalidated(&context);
                ntstatus::STATUS_SUCCESS
            });
            status.unwrap_or_else(|status| status)
        }
    }
}
