//! Packet nodes: preemption of what takes too long, and the engine reset of Windows 8.
//!
//! Source: article tdr-changes-in-windows-8, calling sequence.

use std::sync::Arc;

use nt_model::sched::Ticks;
use nt_model::{Details, hex_list};
use wddm_abi::{DXGKARG_QUERYCURRENTFENCE, DXGKARG_QUERYENGINESTATUS, DXGKARG_RESETENGINE, ntstatus};

use super::dependents::Dependents;
use super::journal::Record;
use super::{adapter as adapter_reset, collect};
use crate::objects::device::Device;
use crate::port::ddi::{self, call_ddi};
use crate::port::miniport::Miniport;
use crate::port::personality::Departure;
use crate::port::rules::tdr::{
    PREEMPT_ANSWER, TDR_ABORTED, TDR_ABORTED_NAME, TDR_FENCE, TDR_FENCE_BEHIND, TDR_GUILTY, TDR_QUERY, TDR_STATUS,
};
use crate::port::tdr::steps::{Reason, Step, What};
use crate::port::tdr::{DeviceState, Tdr, question};
use crate::port::worker::Worker;
use crate::recovery::Watch;
use crate::sched::vidsch::dpc::{give_back, hear};
use crate::sched::vidsch::packet::{Load, Packet, Snapshot, is_before};
use crate::sched::vidsch::{Node, VidSch};

/// What the watch of one packet node saw.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PacketWatch {
    /// The oldest buffer, by its id and when it was handed in, and since when it has been that.
    oldest: Option<((u32, Ticks), Ticks)>,
}

/// Looks at every packet node.
pub(super) fn watch(adapter: &Arc<Miniport>, delay: Ticks, at: &mut impl FnMut(Ticks)) {
    for node in VidSch::of(adapter).nodes() {
        if node.is_hardware_scheduled {
            continue;
        }
        let now = adapter.kernel().now();
        let index = node.ordinal as usize;
        let mut seen = Watch::of(adapter).packets.lock().get(index).copied().unwrap_or_default();
        let oldest = node.packet.oldest().map(|packet| (packet.id, packet.since));
        seen.oldest = match (oldest, seen.oldest) {
            (None, _) => None,
            (Some(packet), Some((known, since))) if packet == known => Some((packet, since)),
            (Some(packet), _) => Some((packet, now)),
        };
        let preempting = node.packet.preempting_since();
        if preempting.is_some_and(|since| now >= since + delay) {
            store(adapter, index, PacketWatch::default());
            recover(adapter, &node, Reason::Preemption);
            at(now);
            continue;
        }
        let late = preempting.is_none() && seen.oldest.is_some_and(|(_, since)| now >= since + delay);
        let asks = adapter.personality().asks_for_fences && adapter.table().DxgkDdiQueryCurrentFence.is_some();
        if late && asks {
            current_fence(adapter, &node);
            if node.packet.oldest().map(|packet| (packet.id, packet.since)) != oldest {
                // The packet was complete, and its interrupt had been lost.
                store(adapter, index, PacketWatch::default());
                at(now);
                continue;
            }
        }
        if late && adapter.personality().departs(Departure::NoPreemption) {
            store(adapter, index, PacketWatch::default());
            recover(adapter, &node, Reason::Preemption);
            at(now);
            continue;
        }
        if late {
            if let Some((_, since)) = &mut seen.oldest {
                *since = now;
            }
            VidSch::of(adapter).preempt_late(adapter, &node);
        }
        // While a preemption is not answered, that is what is late.
        let oldest = seen.oldest.map(|(_, since)| since);
        if let Some(since) = node.packet.preempting_since().or(oldest) {
            at(since + delay);
        }
        store(adapter, index, seen);
    }
}

fn store(adapter: &Miniport, index: usize, seen: PacketWatch) {
    let mut packets = Watch::of(adapter).packets.lock();
    if packets.len() <= index {
        packets.resize(index + 1, PacketWatch::default());
    }
    if let Some(slot) = packets.get_mut(index) {
        *slot = seen;
    }
}

/// Resets the engine of a packet node, or the adapter, in the order of the article.
///
/// IRQL: PASSIVE_LEVEL; on the worker, which alone submits packets.
pub(super) fn recover(adapter: &Arc<Miniport>, node: &Arc<Node>, reason: Reason) {
    let what = What::PacketEngine { node: node.ordinal };
    let recovers = Watch::of(adapter).alone(adapter);
    let record = Record::begin(adapter, what, reason);
    // A reset for another reason has not tried a preemption: one that is under way is so by chance.
    let timed_out = matches!(reason, Reason::Preemption | Reason::Dependent);
    if let Some(request) = node.packet.preempting().filter(|_| timed_out) {
        record.step(Step::PreemptionTried(request));
        record.step(Step::TimeoutDetected);
    }
    adapter.pass(adapter.personality().gates.snapshot.as_ref());
    let departs = |how| adapter.personality().departs(how);
    // A fault has left the engine in a state that only a reset ends, whatever is in its queue.
    let anyway = reason.is_fault() || departs(Departure::ResetsEmptyQueues);
    let cut_off = if departs(Departure::BlamesWhatRuns) { DeviceState::Hung } else { reason.of_cut_off() };
    let snapshot = freeze(adapter, node, anyway);
    let Snapshot { completed, submitted, outstanding, .. } = &snapshot;
    record.step(Step::Snapshot { completed: *completed, submitted: *submitted, packets: outstanding.len() });
    if outstanding.is_empty() && !anyway {
        record.step(Step::Emptied);
        leave_alone(adapter, node);
        return;
    }
    if !departs(Departure::FlushesNothing) {
        adapter.kernel().flush_queued_dpcs();
        record.step(Step::DpcsFlushed);
    }
    if !adapter.known_caps().has_engine_reset() {
        blame(node, None, cut_off);
        drop(recovers);
        adapter_reset::run(adapter, reason.without_engine_resets());
        return;
    }
    if departs(Departure::AdapterWithoutEngine) && node.packet.flights().iter().any(Packet::is_paging) {
        let known = adapter_reset::so_far(adapter);
        drop(recovers);
        adapter_reset::run_promoted(adapter, known);
        return;
    }
    Tdr::of(adapter).engine_resets.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    adapter.shared().counters.tdr();
    let mut others = Dependents::default();
    if !departs(Departure::PreparesNothing) {
        others = Dependents::ask(adapter, node, &record);
        record.step(Step::EngineStatus(status(adapter, node)));
    }
    let guilty = collect::packet_engine(adapter, node.ordinal, &snapshot, reason);
    judge_guilty(adapter, node.ordinal, guilty);
    record.step(Step::DebugInfo(collect::ENGINE_TIMEOUT));
    let mut taken = others.ordinals();
    taken.push(node.ordinal);
    super::between(adapter, &taken, adapter.personality().gates.reset.as_ref());
    let mut arguments = DXGKARG_RESETENGINE::zeroed();
    (arguments.NodeOrdinal, arguments.EngineOrdinal) = (node.place.node, node.place.engine);
    let (miniport, pointer) = (adapter.context(), &raw mut arguments);
    let returned = ddi::status(call_ddi!(adapter, DxgkDdiResetEngine(miniport, pointer)));
    let aborted = arguments.LastAbortedFenceId;
    record.step(Step::ResetEngine(returned, aborted));
    super::between(adapter, &taken, None);
    if !returned.is_success() {
        if departs(Departure::EndsAtFailure) {
            let (lost, _) = node.packet.thaw(adapter, None);
            hear(adapter, node);
            lost.iter().for_each(|packet| packet.end(adapter.kernel(), false));
            node.packet.given_back();
        } else if returned != ntstatus::STATUS_SYSTEM_SHUTDOWN {
            blame(node, guilty, cut_off);
            let known = adapter_reset::so_far(adapter);
            drop(recovers);
            adapter_reset::run_promoted(adapter, known);
        }
        return;
    }
    let aborted = node.packet.meant_by(aborted);
    let known = judge_aborted(adapter, &snapshot, aborted);
    crate::sched::interrupt::forget_node(adapter, node.ordinal as usize);
    // A driver that names nonsense has lost everything.
    let (lost, back) = node.packet.thaw(adapter, known.then_some(aborted));
    hear(adapter, node);
    record.step(Step::InterruptsEnabled);
    let (hit, lost): (Vec<_>, Vec<_>) = lost.into_iter().partition(|packet| packet.is_paging());
    for packet in &lost {
        let is_spared = departs(Departure::SparesTheAborted);
        if !is_spared {
            packet.context.device().mark_failed(cut_off);
        }
        packet.end(adapter.kernel(), is_spared);
    }
    let mut owners = Vec::new();
    if !hit.is_empty() {
        record.step(Step::PagingHit);
        owners = mark_owners(adapter, &hit);
        record.step(Step::OwnersLost(owners.len()));
    }
    record.step(Step::DevicesLost(distinct(lost.iter().map(|packet| packet.context.device()))));
    let paging = back.iter().filter(|packet| packet.is_paging()).count();
    record.step(Step::GivenBack { paging, render: back.len() - paging });
    give_back(adapter, back, false);
    let was_hit = !hit.is_empty() && !departs(Departure::EngineWithoutAdapter);
    if departs(Departure::LosesTheSystem) && !hit.is_empty() {
        VidSch::of(adapter).lose_system();
        hit.iter().for_each(|packet| packet.end(adapter.kernel(), false));
    } else {
        give_back(adapter, hit, false);
    }
    node.packet.given_back();
    others.resume_idle();
    let known = adapter_reset::so_far(adapter);
    drop(recovers);
    for packet in &lost {
        packet.context.device().fail_marked();
    }
    for owner in owners {
        owner.fail_marked();
    }
    drop(record);
    if was_hit {
        adapter_reset::run_promoted(adapter, known);
    }
    if !departs(Departure::LeavesDependents) {
        others.reset_late(adapter);
    }
    node.packet.changed.notify(adapter.kernel());
    Worker::of(adapter).kick(adapter);
}

/// The whole adapter is about to be reset because of this node: the device that hangs is told apart from those that are
/// merely reset. That is the one whose context the driver has named, or else that of the oldest packet. The system's
/// never is. `state`: what becomes of it ([`Reason::of_cut_off`]).
///
/// Source: D3DKMT_DEVICEEXECUTION_STATE, HUNG and RESET. Chosen: whose it is.
fn blame(node: &Node, named: Option<usize>, state: DeviceState) {
    let flights = node.packet.flights();
    let by_name = named.and_then(|named| flights.iter().find(|packet| packet.context.has_handle(named)));
    if let Some(packet) = by_name.or(flights.first()).filter(|packet| !packet.is_paging()) {
        packet.context.device().mark_failed(state);
    }
}

/// The context that the driver takes for the one that timed out is one of the node's, by the driver's handle or by
/// Dxgkrnl's.
fn judge_guilty(adapter: &Miniport, node: u32, guilty: Option<usize>) {
    let Some(named) = guilty else { return };
    let right = VidSch::of(adapter).has_context(adapter, node, named);
    adapter.rules().check(&TDR_GUILTY, right, || format!("node {node}: hContext is {named:#x}"));
}

/// Nothing is reset, since nothing is with the driver: it owes the answer to the preemption alone, and has another
/// TdrDelay for that where its time is over.
fn leave_alone(adapter: &Miniport, node: &Node) {
    let answers = node.packet.wait_on(adapter.kernel().now(), adapter.personality().tdr.delay);
    adapter.rules().check(&PREEMPT_ANSWER, answers, || format!("node {}", node.ordinal));
    node.packet.changed.notify(adapter.kernel());
    Worker::of(adapter).kick(adapter);
}

/// Notes what is known of a node and ignores its interrupts from here on, in one step at the device's level; unless
/// nothing is with the driver and `anyway` is false.
pub(super) fn freeze(adapter: &Miniport, node: &Node, anyway: bool) -> Snapshot {
    let snapshot = || node.packet.snapshot(anyway);
    let frozen = || crate::port::section::synchronize(adapter, snapshot).unwrap_or_else(snapshot);
    if adapter.personality().departs(Departure::NotesFirst) {
        let note = || node.packet.note();
        let noted = crate::port::section::synchronize(adapter, note).unwrap_or_else(note);
        // A twentieth of a second.
        adapter.kernel().delay_execution(-500_000);
        frozen();
        return noted;
    }
    frozen()
}

/// Judges LastAbortedFenceId by what was known before the reset. Returns whether it names a packet, or the last that
/// completed.
fn judge_aborted(adapter: &Miniport, snapshot: &Snapshot, aborted: u32) -> bool {
    if adapter.personality().departs(Departure::JudgesNothing) {
        return true;
    }
    let Snapshot { completed, submitted, outstanding, .. } = snapshot;
    // Paging packets that came back have ids from before the last completed one.
    let named = aborted == *completed || outstanding.contains(&aborted);
    let within = named || (!is_before(aborted, *completed) && !is_before(*submitted, aborted));
    let what = || {
        let text = format!("{aborted:#x}; last completed {completed:#x}, outstanding {}", hex_list(outstanding));
        Details::new(text).params([aborted.into(), (*completed).into(), (*submitted).into()])
    };
    adapter.rules().check(&TDR_ABORTED, within, what);
    if within {
        adapter.rules().check(&TDR_ABORTED_NAME, named, what);
    }
    named
}

/// Marks the devices as in error that own allocations to which these paging packets refer. What follows from that may
/// want a recovery of its own: it comes behind this one.
///
/// Chosen: the article says error, and no page which one. HUNG tells them from devices that the adapter's reset loses;
/// their processes have hung nothing, and it does not count for the block of a process ([`super::lockout`]).
fn mark_owners(adapter: &Arc<Miniport>, hit: &[Packet]) -> Vec<Arc<Device>> {
    if adapter.personality().departs(Departure::SparesOwners) {
        return Vec::new();
    }
    let refers = |handle: usize| {
        hit.iter().any(|packet| matches!(&packet.load, Load::Paging(buffer) if buffer.refers.contains(&handle)))
    };
    let owners: Vec<_> = Device::all_of(adapter).into_iter().filter(|device| device.owns(refers)).collect();
    let blames = adapter.personality().departs(Departure::BlamesOwners);
    for device in &owners {
        if blames {
            device.mark_failed(DeviceState::Hung);
        } else {
            device.mark(DeviceState::Hung);
        }
    }
    owners
}

/// Returns how many devices these are, each counted once.
pub(super) fn distinct<'a>(devices: impl Iterator<Item = &'a Arc<Device>>) -> usize {
    let mut devices: Vec<_> = devices.map(|device| Arc::as_ptr(device).addr()).collect();
    devices.sort_unstable();
    devices.dedup();
    devices.len()
}

/// Asks the driver which fence a node with an overdue packet has completed: it may have missed an interrupt.
///
/// IRQL: PASSIVE_LEVEL.
fn current_fence(adapter: &Miniport, node: &Node) {
    let mut arguments = DXGKARG_QUERYCURRENTFENCE::zeroed();
    (arguments.NodeOrdinal, arguments.EngineOrdinal) = (node.place.node, node.place.engine);
    let (_, _, before) = node.packet.ids();
    let over = node.packet.over();
    let (miniport, pointer) = (adapter.context(), &raw mut arguments);
    question::begin(adapter, node.ordinal);
    let status = ddi::status(call_ddi!(adapter, DxgkDdiQueryCurrentFence(miniport, pointer)));
    let reported = question::end();
    if !status.is_success() {
        return;
    }
    let current = node.packet.meant_by(arguments.CurrentFence);
    let (_, _, after) = node.packet.ids();
    // The fence was submitted before the call, the driver says that it is complete, and no interrupt has reported it.
    let unreported = before.contains(&current) && after.contains(&current);
    adapter.rules().check(&TDR_FENCE, !unreported, || {
        let text = format!("node {}: CurrentFence is {current:#x}; outstanding {}", node.ordinal, hex_list(&after));
        Details::new(text).params([current.into(), node.ordinal.into(), 0])
    });
    let known = reported.unwrap_or(over);
    adapter.rules().check(&TDR_FENCE_BEHIND, !is_before(current, known), || {
        let text = format!("node {}: CurrentFence is {current:#x}, and {known:#x} was over", node.ordinal);
        Details::new(text).params([current.into(), node.ordinal.into(), known.into()])
    });
}

/// Asks whether the node makes progress: what the driver says.
fn status(adapter: &Miniport, node: &Node) -> bool {
    let mut arguments = DXGKARG_QUERYENGINESTATUS::zeroed();
    (arguments.NodeOrdinal, arguments.EngineOrdinal) = (node.place.node, node.place.engine);
    let (miniport, pointer) = (adapter.context(), &raw mut arguments);
    let status = ddi::status(call_ddi!(adapter, DxgkDdiQueryEngineStatus(miniport, pointer)));
    let fine = ddi::succeeded(status);
    adapter.rules().check(&TDR_QUERY, fine, || format!("DxgkDdiQueryEngineStatus: {status:?}"));
    let value = arguments.EngineStatus.Value;
    if fine {
        adapter.rules().check(&TDR_STATUS, value & !1 == 0, || format!("node {}: {value:#x}", node.ordinal));
    }
    fine && value & 1 != 0
}
