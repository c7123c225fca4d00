//! Timeout detection and recovery: what makes no progress is probed, then reset; what it took with it is lost.
//!
//! **Hardware-scheduled nodes.** The watch compares each queue's last queued value with its progress fence. A queue
//! whose fence has not moved for TdrDelay has its context suspended. An acknowledgement within TdrDelay means that the
//! engine lives and the queue merely waits: the context is resumed. Without it: CollectDbgInfo(2), ResetHwEngine (in
//! which the driver names the contexts that ran), ResumeHwEngine; the devices of those contexts are lost, the others
//! run on.
//!
//! **Packet nodes.** The oldest buffer that has been with the driver for TdrDelay makes the node be preempted, if it
//! was not before ([`crate::sched::vidsch`]); if a preemption is not acknowledged within TdrDelay, the engine is reset
//! ([`packet`]).
//!
//! **Adapters.** What cannot be reset alone, or fails to be, or took a paging packet along, takes the adapter
//! ([`adapter`]).
//!
//! | file | holds |
//! |---|---|
//! | here | begin and end, the worker's round, the watch, and probes of hardware-scheduled nodes |
//! | `journal.rs` | the recoveries that there were, each a list of [steps](crate::port::tdr::steps) |
//! | `packet.rs` | packet nodes: the watch, and the reset of an engine |
//! | `dependents.rs` | nodes that the reset of another takes along |
//! | `hw_engine.rs` | hardware-scheduled nodes: the reset of an engine |
//! | `adapter.rs` | the reset of the adapter |
//! | `come_off.rs` | work that is to come off its engine outside the watch |
//! | `pressure.rs` | what is evicted for want of memory while its process works |
//! | `collect.rs` | debug information |
//! | `idle.rs`, `sleep.rs` | engines that go to F1, the device in D3 |
//! | `lost.rs` | memory that loses its content |
//! | `unheard.rs` | fences that passed their monitored values without an interrupt |
//!
//! Source: articles timeout-detection-and-recovery, tdr-changes-in-windows-8, tdr-registry-keys; DDI pages of the
//! functions.

pub(crate) mod adapter;
pub(crate) mod collect;
mod come_off;
mod dependents;
mod hw_engine;
mod idle;
mod journal;
pub(crate) mod lost;
pub(crate) mod packet;
pub(crate) mod pressure;
pub(crate) mod sleep;
pub(crate) mod unheard;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nt_model::sched::Ticks;
use wddm_abi::DXGK_SCHEDULING_LOG_CONTEXT_STATE;

pub(crate) use self::come_off::{preempt, take_packets_off};
use self::hw_engine::Late;
pub(crate) use self::idle::clear as clear_idle;
use crate::objects::hw_context::suspension::Overdue;
use crate::objects::hw_context::{HwContext, Suspend};
use crate::objects::hw_queue::HwQueue;
use crate::objects::process::AtEnd;
use crate::objects::scheduling_log::SchedulingLogSet;
use crate::port::hook::Hook;
use crate::port::miniport::Miniport;
use crate::port::personality::{Departure, Gate};
use crate::port::power::Power;
use crate::port::rules::tdr::HW_STALL;
use crate::port::sync::{Admission, Gate as Alone, Lock, Rank};
use crate::port::tdr::steps::Reason;
use crate::port::tdr::{NodeState, QueueWatch, Tdr};
use crate::port::worker::{Escalation, Worker};
use crate::sched::vidsch::VidSch;

/// Until the next look at a context whose engine another thread is resetting: a millisecond.
const SOON: Ticks = 10_000;

/// Looks in a row, a TdrDelay apart, that find a queue's buffers not running before that is a verdict.
const SEEN_STALLED: u32 = 2;

/// A context that was asked to leave its run list.
#[derive(Debug)]
struct Probe {
    context: Arc<HwContext>,
    since: Ticks,
}

/// What the watch of an adapter has seen, and what was recovered.
#[derive(Debug)]
pub(crate) struct Watch {
    /// A recovery is under way: one at a time, since the adapter's takes along what an engine's is about. Left before
    /// devices are lost, whose contexts wait for their suspensions, which may want a recovery of their own.
    alone: Alone,
    probes: Lock<Vec<Probe>>,
    invalidated: Lock<Vec<Arc<HwContext>>>,
    packets: Lock<Vec<packet::PacketWatch>>,
    /// When the adapter was reset.
    resets: Lock<Vec<Ticks>>,
    /// What was recovered.
    pub(crate) journal: journal::Journal,
    /// Fences that are past their monitored value with somebody waiting, and since when.
    lost: Lock<Vec<(u64, Ticks)>>,
    last_audit: AtomicU64,
    /// The last debug information that the driver gave, in order.
    debug_info: Lock<Vec<collect::DebugBlob>>,
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}

impl Watch {
    /// That of an adapter.
    pub(crate) fn of(adapter: &Miniport) -> &Self {
        adapter.extension()
    }

    fn new() -> Self {
        Self {
            alone: Alone::new(),
            probes: Lock::new(Rank::Leaf, Vec::new()),
            invalidated: Lock::new(Rank::Leaf, Vec::new()),
            packets: Lock::new(Rank::Leaf, Vec::new()),
            resets: Lock::new(Rank::Leaf, Vec::new()),
            journal: journal::Journal::new(),
            lost: Lock::new(Rank::Leaf, Vec::new()),
            last_audit: AtomicU64::new(0),
            debug_info: Lock::new(Rank::Leaf, Vec::new()),
        }
    }

    /// What the driver said last.
    pub(crate) fn debug_info(&self) -> Vec<u8> {
        self.debug_info.lock().last().map(|blob| blob.bytes.clone()).unwrap_or_default()
    }

    /// What the driver said, in order.
    pub(crate) fn debug_blobs(&self) -> Vec<collect::DebugBlob> {
        self.debug_info.lock().clone()
    }

    fn keep_debug_info(&self, blob: collect::DebugBlob, most: usize) {
        let mut kept = self.debug_info.lock();
        if kept.len() >= most {
            kept.remove(0);
        }
        kept.push(blob);
    }

    /// Nothing is left of an earlier start but the times of the resets.
    fn begin(&self) {
        self.probes.lock().clear();
        self.invalidated.lock().clear();
        self.packets.lock().clear();
        self.lost.lock().clear();
    }

    /// Waits until no recovery is under way.
    ///
    /// IRQL: PASSIVE_LEVEL.
    fn alone<'a>(&'a self, adapter: &'a Miniport) -> Admission<'a> {
        if adapter.personality().departs(Departure::RecoversAtOnce) {
            return self.alone.shared(adapter.kernel());
        }
        self.alone.exclusive(adapter.kernel())
    }

    /// A reset of the node begins, behind whatever recovery is under way. `None`: one of this node has begun and is not
    /// over, or was over when the other was.
    ///
    /// IRQL: PASSIVE_LEVEL.
    fn begin_reset<'a>(&'a self, adapter: &'a Miniport, node: u32) -> Option<Admission<'a>> {
        let tdr = Tdr::of(adapter);
        let resets = || tdr.resets_for(node, Reason::Suspension);
        let before = resets();
        if tdr.is_resetting(node) {
            return None;
        }
        let alone = self.alone(adapter);
        let begins = resets() == before && !tdr.is_resetting(node);
        begins.then(|| {
            tdr.set_node(node, NodeState { resetting: true, quiet: false });
            alone
        })
    }

    /// The engine is reset: contexts that waited behind the one that hung it have from now on to acknowledge.
    fn give_time(&self, node: u32, now: Ticks) {
        let mut probes = self.probes.lock();
        for probe in probes.iter_mut().filter(|probe| probe.context.node() == node) {
            probe.since = now;
        }
    }

    /// `DxgkCbInvalidateHwContext`.
    fn note_invalidated(&self, context: &Arc<HwContext>) {
        self.invalidated.lock().push(context.clone());
    }
}

/// A round of the worker: hands over work, has contexts share their nodes, and looks for what makes no progress.
pub(crate) fn round(adapter: &Arc<Miniport>) -> Option<Ticks> {
    let scheduler = VidSch::of(adapter);
    scheduler.pump(adapter);
    let slice = scheduler.keep_cadence(adapter);
    let watch = watch(adapter);
    [slice, watch].into_iter().flatten().min()
}

/// Begins to schedule for an adapter that starts, and to look for timeouts.
///
/// IRQL: PASSIVE_LEVEL.
pub(crate) fn begin(adapter: &Arc<Miniport>) {
    Tdr::of(adapter).begin();
    Watch::of(adapter).begin();
    Hook::<Overdue>::enter(adapter, |adapter, node, late| {
        hw_engine::recover(adapter, node, Late::Owes(late), Reason::Suspension);
    });
    Hook::<AtEnd>::enter(adapter, unheard::judge_at_end);
    Worker::of(adapter).start(adapter, round, escalated);
    adapter.watchdog.start(adapter);
}

/// A lower layer wants something for a node. On the worker.
fn escalated(adapter: &Arc<Miniport>, node: u32, wish: Escalation) {
    match wish {
        Escalation::Reset(reason) => reset_wanted(adapter, node, reason),
        Escalation::EngineIdle => idle::wished(adapter, node),
    }
}

/// Ends that.
///
/// IRQL: PASSIVE_LEVEL.
pub(crate) fn end(adapter: &Arc<Miniport>) {
    Worker::of(adapter).stop(adapter);
    // Last: the worker may be in the driver.
    adapter.watchdog.stop(adapter.kernel());
    VidSch::of(adapter).stop(adapter);
}

/// Looks for what makes no progress; when to look again. On the scheduler's worker.
fn watch(adapter: &Arc<Miniport>) -> Option<Ticks> {
    let settings = adapter.personality().tdr;
    if !Tdr::of(adapter).watches(adapter) {
        return None;
    }
    let _awake = Power::of(adapter).sleep.watch(adapter.kernel())?;
    let mut next: Option<Ticks> = None;
    let mut at = |deadline: Ticks| next = Some(next.map_or(deadline, |known| known.min(deadline)));
    // The time is asked anew for each: a recovery takes its own, and what begins behind it has all of TdrDelay.
    let now = || adapter.kernel().now();
    judge_probes(adapter, settings.delay, &mut at);
    for queue in HwQueue::all_of(adapter) {
        look_at_queue(adapter, &queue, now(), settings.delay, &mut at);
    }
    packet::watch(adapter, settings.delay, &mut at);
    idle::watch(adapter, settings.delay, &mut at);
    unheard::audit(adapter, now(), settings.delay, &mut at);
    next
}

/// Time in which nothing could run does not count: of queues, of packets, and fences whose signal nobody has told of.
pub(crate) fn forget_time(adapter: &Miniport) {
    for queue in HwQueue::all_of(adapter) {
        *queue.watch.lock() = QueueWatch::default();
    }
    Watch::of(adapter).packets.lock().clear();
    Watch::of(adapter).lost.lock().clear();
}

fn look_at_queue(adapter: &Arc<Miniport>, queue: &Arc<HwQueue>, now: Ticks, delay: Ticks, at: &mut impl FnMut(Ticks)) {
    let device = queue.context().device();
    if queue.is_unwatched() || device.usable().is_err() {
        return;
    }
    if queue.context().is_kept_off() && queue.context().is_suspended() {
        // Nothing of it runs, and that is as it should be.
        *queue.watch.lock() = QueueWatch::default();
        return;
    }
    queue.judge_queued();
    let (queued, progress) = (queue.last_queued(), queue.progress().value());
    let stuck = {
        let mut watch = queue.watch.lock();
        if progress >= queued {
            *watch = QueueWatch { progress, ..QueueWatch::default() };
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
                *watch = QueueWatch { progress, since: Some(now), stalled: 0 };
                at(now + delay);
                false
            }
        }
    };
    if stuck {
        queue.watch.lock().since = Some(now);
        look_for_stall(adapter, queue);
        probe(adapter, queue.context(), now);
        at(now + delay);
    }
}

/// Looks whether the buffers of a queue without progress run at all: `SEEN_STALLED` looks in a row that find its
/// context not running, and nothing else on its node that could be why, are a verdict.
///
/// Only the scheduling log says what a node does; without one nothing is judged.
fn look_for_stall(adapter: &Arc<Miniport>, queue: &Arc<HwQueue>) {
    let context = queue.context();
    let alone = || {
        let others = HwQueue::all_of(adapter);
        let others = others.iter().filter(|other| other.context().node() == context.node());
        others.filter(|other| !Arc::ptr_eq(other, queue)).all(is_done)
    };
    let runs = DXGK_SCHEDULING_LOG_CONTEXT_STATE::DXGK_SCHEDULING_LOG_CONTEXT_STATE_RUNNING.0;
    let rests = || SchedulingLogSet::of(adapter).state(adapter, context).is_some_and(|state| state != runs);
    let stalled = !queue.is_user_mode() && !context.is_suspended() && !context.is_suspending() && alone() && rests();
    let seen = {
        let mut watch = queue.watch.lock();
        watch.stalled = if stalled { watch.stalled + 1 } else { 0 };
        watch.stalled
    };
    if seen == SEEN_STALLED {
        adapter.rules().check(&HW_STALL, false, || {
            format!(
                "node {}: the queue's progress is {:#x}, {:#x} is submitted, and nothing runs",
                context.node(),
                queue.progress().value(),
                queue.last_queued()
            )
        });
        queue.give_up(adapter.kernel());
    }
}

/// Returns whether a queue is done with what was queued.
fn is_done(queue: &Arc<HwQueue>) -> bool {
    queue.progress().value() >= queue.last_queued() || queue.context().device().usable().is_err()
}

/// Asks whether the engine still answers.
fn probe(adapter: &Arc<Miniport>, context: &Arc<HwContext>, now: Ticks) {
    if Tdr::of(adapter).is_resetting(context.node())
        || Watch::of(adapter).probes.lock().iter().any(|probe| Arc::ptr_eq(&probe.context, context))
    {
        return;
    }
    let answer = {
        let _held = context.hold();
        if !context.is_alive() {
            return;
        }
        let answer = context.suspend();
        if answer == Suspend::Done {
            Tdr::of(adapter).innocent_probes.fetch_add(1, Ordering::Relaxed);
            context.resume();
        }
        answer
    };
    match answer {
        Suspend::Pending(_) => {
            Watch::of(adapter).probes.lock().push(Probe { context: context.clone(), since: now });
            // It may have been acknowledged meanwhile.
            Worker::of(adapter).kick(adapter);
        }
        Suspend::Done => {}
        Suspend::Failed => hw_engine::recover(adapter, context.node(), Late::Refused(context), Reason::Suspension),
    }
}

/// Resumes the contexts that acknowledged, and resets the engines of those that owe it for longer than `delay`, one
/// engine after another: a reset may take seconds, in which others acknowledge or their engine is reset as well.
fn judge_probes(adapter: &Arc<Miniport>, delay: Ticks, at: &mut impl FnMut(Ticks)) {
    loop {
        resume_acknowledged(adapter, &[]);
        let now = adapter.kernel().now();
        let late: Vec<_> = {
            let probes = Watch::of(adapter).probes.lock();
            let late = probes.iter().filter(|probe| now >= probe.since + delay);
            late.map(|probe| probe.context.clone()).collect()
        };
        let late: Vec<_> = late.into_iter().filter(|context| context.is_suspending()).collect();
        let Some(node) = late.iter().map(|context| context.node()).find(|node| !Tdr::of(adapter).is_resetting(*node))
        else {
            break;
        };
        let here: Vec<_> = late.into_iter().filter(|context| context.node() == node).collect();
        hw_engine::recover(adapter, node, Late::Owes(&here), Reason::Suspension);
    }
    let now = adapter.kernel().now();
    for probe in Watch::of(adapter).probes.lock().iter() {
        at((probe.since + delay).max(now + SOON));
    }
}

/// Takes the probes of contexts that acknowledged, or are gone, off the list; the former run on. The list keeps the
/// probes of the nodes `but`, which are being reset.
fn resume_acknowledged(adapter: &Arc<Miniport>, but: &[u32]) {
    let probes = std::mem::take(&mut *Watch::of(adapter).probes.lock());
    for probe in probes {
        if but.contains(&probe.context.node()) {
            Watch::of(adapter).probes.lock().push(probe);
            continue;
        }
        if !probe.context.is_alive() || probe.context.device().usable().is_err() {
            continue;
        }
        if probe.context.is_suspending() {
            Watch::of(adapter).probes.lock().push(probe);
            continue;
        }
        // The thread that ends the context may wait for a reset in which this is called.
        let Some(_held) = probe.context.hold_now() else {
            Watch::of(adapter).probes.lock().push(probe);
            continue;
        };
        if probe.context.is_alive() {
            Tdr::of(adapter).innocent_probes.fetch_add(1, Ordering::Relaxed);
            probe.context.resume();
        }
    }
}

/// User mode forces the reset of a node's engine, or of the adapter. Returns when it is over.
///
/// IRQL: PASSIVE_LEVEL; not on the worker.
pub(crate) fn force(adapter: &Arc<Miniport>, node: Option<u32>) {
    Worker::of(adapter).run(adapter, move |adapter| match node {
        Some(node) => reset_wanted(adapter, node, Reason::ForcedEngine),
        None => adapter::run(adapter, Reason::Forced),
    });
}

/// Resets a node's engine although it may have nothing to do, as behind a page fault of work that nobody can tell.
/// Returns when it is over.
///
/// IRQL: PASSIVE_LEVEL; not on the worker.
pub(crate) fn force_anyway(adapter: &Arc<Miniport>, node: u32) {
    Worker::of(adapter).run(adapter, move |adapter| reset_wanted(adapter, node, Reason::UnknownFault));
}

/// Between two steps of the reset of an engine, on whatever thread that is: where it is the scheduler's worker, other
/// nodes get their work, and contexts there that were probed run on, also while the reset stops at a gate. `but`: the
/// node that is reset, and those that it takes along, which get nothing.
///
/// Source: article tdr-changes-in-windows-8: each node is scheduled by itself, and the interrupts of the engine that
/// timed out alone are ignored.
fn between(adapter: &Arc<Miniport>, but: &[u32], gate: Option<&Gate>) {
    let beside = || {
        if crate::port::miniport::is_worker() {
            resume_acknowledged(adapter, but);
            VidSch::of(adapter).pump_beside(adapter, but);
        }
    };
    beside();
    if let Some(gate) = gate {
        gate.pass_meanwhile(adapter.kernel(), beside);
    }
}

/// The driver, a fault or user mode asks for a reset of the engine, or of the adapter.
///
/// Chosen: no preemption is tried before, since nothing has timed out.
///
/// IRQL: PASSIVE_LEVEL; on the worker.
pub(crate) fn reset_wanted(adapter: &Arc<Miniport>, node: u32, reason: Reason) {
    let Some(found) = VidSch::of(adapter).node(node) else { return };
    match reason {
        Reason::AdapterFault | Reason::Forced => adapter::run(adapter, reason),
        _ if found.is_hardware_scheduled => hw_engine::recover(adapter, node, Late::Nobody, reason),
        _ => packet::recover(adapter, &found, reason),
    }
}

/// `DxgkCbInvalidateHwContext`.
pub(crate) mod callbacks {
    use nt_model::{In, shims};
    use wddm_abi::{DXGKARGCB_INVALIDATEHWCONTEXT, NTSTATUS, ntstatus};

    use crate::objects::hw_context::HwContext;
    use crate::port::callback::{callback, record, routines};
    use crate::port::handle;
    use crate::port::rules::interface::CB_OBJECT;

    routines! {
        INVALIDATE = "DxgkCbInvalidateHwContext"("pArgs") 0..=0;
    }

    shims! {
        /// TDR callbacks.
        pub(crate) table CALLBACKS;

        fn DxgkCbInvalidateHwContext(_machine, args: In<[u8; size_of::<DXGKARGCB_INVALIDATEHWCONTEXT>()]>) -> NTSTATUS {
            let arguments: DXGKARGCB_INVALIDATEHWCONTEXT = record(args);
            let status = callback(arguments.hAdapter, &INVALIDATE, [args.address() as u64], |adapter| {
                let context = handle::object::<HwContext>(arguments.hHwContext).filter(|context| context.is_alive());
                adapter.rules().check(&CB_OBJECT, context.is_some(), || {
                    format!("DxgkCbInvalidateHwContext got {}", handle::describe(arguments.hHwContext))
                });
                let Some(context) = context else { return ntstatus::STATUS_INVALID_PARAMETER };
                super::Watch::of(adapter).note_invalidated(&context);
                ntstatus::STATUS_SUCCESS
            });
            status.unwrap_or_else(|status| status)
        }
    }
}
