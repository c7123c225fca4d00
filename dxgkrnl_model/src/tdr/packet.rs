//! Packet nodes: preemption of what takes too long, and the engine reset of Windows 8.
//!
//! Source: article tdr-changes-in-windows-8, calling sequence.

use std::cell::Cell;
use std::sync::Arc;

use nt_model::Details;
use nt_model::sched::Ticks;
use wddm_abi::{
    DXGKARG_QUERYCURRENTFENCE, DXGKARG_QUERYDEPENDENTENGINEGROUP, DXGKARG_QUERYENGINESTATUS, DXGKARG_RESETENGINE,
    ntstatus,
};

use super::{adapter_reset, collect};
use crate::adapter::Adapter;
use crate::ddi::{self, call_ddi};
use crate::device::DeviceState;
use crate::rules::tdr::{TDR_ABORTED, TDR_FENCE, TDR_FENCE_BEHIND, TDR_MASK, TDR_QUERY};
use crate::vidsch::Node;
use crate::vidsch::dpc::give_back;
use crate::vidsch::packet::is_before;

/// A call of `DxgkDdiQueryCurrentFence`.
#[derive(Clone, Copy, Debug)]
struct Question {
    /// Address of the adapter.
    adapter: usize,
    node: u32,
    /// The last packet of the node that the driver has reported in the call, on the thread that makes it.
    reported: Option<u32>,
}

thread_local! {
    /// The call that this thread makes.
    static QUESTION: Cell<Option<Question>> = const { Cell::new(None) };
}

/// Notes that the driver has reported a packet. What it reports from a synchronized routine may be in answer to a
/// question of this thread.
///
/// IRQL: the device's.
pub(crate) fn note_reported(adapter: &Adapter, node: u32, fence: u32) {
    QUESTION.with(|question| {
        let asked = question.get().filter(|asked| asked.adapter == core::ptr::from_ref(adapter).addr());
        if let Some(asked) = asked.filter(|asked| asked.node == node && !crate::interrupt::in_isr()) {
            question.set(Some(Question { reported: Some(fence), ..asked }));
        }
    });
}

/// What the watch of one packet node saw.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PacketWatch {
    /// The oldest buffer, and since when it has been that.
    oldest: Option<(u32, Ticks)>,
    /// Since when a preemption is not acknowledged.
    preempting: Option<Ticks>,
}

/// Looks at every packet node.
pub(super) fn watch(adapter: &Arc<Adapter>, delay: Ticks, at: &mut impl FnMut(Ticks)) {
    for node in adapter.scheduler.nodes() {
        if node.is_hardware_scheduled {
            continue;
        }
        let now = adapter.kernel().now();
        let index = node.ordinal as usize;
        let mut seen = adapter.tdr.packets.lock().get(index).copied().unwrap_or_default();
        let oldest = node.packet.oldest().map(|packet| packet.id);
        seen.oldest = match (oldest, seen.oldest) {
            (None, _) => None,
            (Some(id), Some((known, since))) if id == known => Some((id, since)),
            (Some(id), _) => Some((id, now)),
        };
        if !node.packet.is_preempting() {
            seen.preempting = None;
        }
        let late = seen.oldest.is_some_and(|(_, since)| now >= since + delay);
        let unanswered = seen.preempting.is_some_and(|since| now >= since + delay);
        if unanswered {
            seen = PacketWatch::default();
            store(adapter, index, seen);
            recover(adapter, &node);
            continue;
        }
        let asks = adapter.personality().asks_for_fences && adapter.table().DxgkDdiQueryCurrentFence.is_some();
        if late && seen.preempting.is_none() && asks {
            current_fence(adapter, &node);
            if node.packet.oldest().map(|packet| packet.id) != oldest {
                // The packet was complete, and its interrupt had been lost.
                store(adapter, index, PacketWatch::default());
                at(now);
                continue;
            }
        }
        if late && seen.preempting.is_none() {
            seen.preempting = Some(now);
            if let Some((_, since)) = &mut seen.oldest {
                *since = now;
            }
            node.packet.preempt(adapter);
        }
        for since in [seen.oldest.map(|(_, since)| since), seen.preempting].into_iter().flatten() {
            at(since + delay);
        }
        store(adapter, index, seen);
    }
}

fn store(adapter: &Adapter, index: usize, seen: PacketWatch) {
    let mut packets = adapter.tdr.packets.lock();
    if packets.len() <= index {
        packets.resize(index + 1, PacketWatch::default());
    }
    if let Some(slot) = packets.get_mut(index) {
        *slot = seen;
    }
}

/// Resets the engine of a packet node, or the adapter.
///
/// IRQL: PASSIVE_LEVEL.
pub(super) fn recover(adapter: &Arc<Adapter>, node: &Arc<Node>) {
    adapter.note_event(format!("TDR: engine reset of packet node {}", node.ordinal));
    node.packet.freeze();
    adapter.kernel().flush_queued_dpcs();
    let paging = node.packet.oldest().is_some_and(|packet| packet.is_paging());
    if paging || !adapter.known_caps().has_engine_reset() {
        adapter_reset::run(adapter);
        return;
    }
    adapter.tdr.engine_resets.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    adapter.shared().counters.tdr();
    dependents(adapter, node);
    status(adapter, node);
    collect::engine(adapter, node.ordinal, None);
    let mut arguments = DXGKARG_RESETENGINE::zeroed();
    arguments.NodeOrdinal = node.ordinal;
    let (miniport, pointer) = (adapter.context(), &raw mut arguments);
    let returned = ddi::status(call_ddi!(adapter, DxgkDdiResetEngine(miniport, pointer)));
    if !returned.is_success() {
        if returned != ntstatus::STATUS_SYSTEM_SHUTDOWN {
            adapter_reset::run(adapter);
        }
        return;
    }
    let aborted = arguments.LastAbortedFenceId;
    let (completed, submitted, outstanding) = node.packet.ids();
    let known = aborted == completed || outstanding.contains(&aborted);
    adapter.rules().check(&TDR_ABORTED, known, || {
        let text = format!("{aborted:#x}; last completed {completed:#x}, outstanding {outstanding:#x?}");
        Details::new(text).params([aborted.into(), completed.into(), submitted.into()])
    });
    crate::interrupt::forget_node(adapter, node.ordinal as usize);
    // A driver that names nonsense has lost everything.
    let (lost, back) = node.packet.thaw(known.then_some(aborted));
    for packet in &lost {
        packet.end(adapter.kernel(), false);
        packet.context.device().mark_failed(DeviceState::Hung);
    }
    give_back(adapter, back);
    for packet in &lost {
        packet.context.device().fail_marked();
    }
    node.packet.changed.notify(adapter.kernel());
    adapter.scheduler.kick(adapter);
}

/// Asks the driver which fence a node with an overdue packet has completed: it may have missed an interrupt.
///
/// IRQL: PASSIVE_LEVEL.
fn current_fence(adapter: &Adapter, node: &Node) {
    let mut arguments = DXGKARG_QUERYCURRENTFENCE::zeroed();
    arguments.NodeOrdinal = node.ordinal;
    let (_, _, before) = node.packet.ids();
    let over = node.packet.over();
    let (miniport, pointer) = (adapter.context(), &raw mut arguments);
    let asked = Question { adapter: core::ptr::from_ref(adapter).addr(), node: node.ordinal, reported: None };
    QUESTION.set(Some(asked));
    let status = ddi::status(call_ddi!(adapter, DxgkDdiQueryCurrentFence(miniport, pointer)));
    let reported = QUESTION.take().and_then(|asked| asked.reported);
    if !status.is_success() {
        return;
    }
    let current = arguments.CurrentFence;
    let (_, _, after) = node.packet.ids();
    // The fence was submitted before the call, the driver says that it is complete, and no interrupt has reported it.
    let unreported = before.contains(&current) && after.contains(&current);
    adapter.rules().check(&TDR_FENCE, !unreported, || {
        let text = format!("node {}: CurrentFence is {current:#x}; outstanding {after:#x?}", node.ordinal);
        Details::new(text).params([current.into(), node.ordinal.into(), 0])
    });
    let known = reported.unwrap_or(over);
    adapter.rules().check(&TDR_FENCE_BEHIND, !is_before(current, known), || {
        let text = format!("node {}: CurrentFence is {current:#x}, and {known:#x} was over", node.ordinal);
        Details::new(text).params([current.into(), node.ordinal.into(), known.into()])
    });
}

fn dependents(adapter: &Adapter, node: &Node) {
    let mut arguments = DXGKARG_QUERYDEPENDENTENGINEGROUP::zeroed();
    arguments.NodeOrdinal = node.ordinal;
    let (miniport, pointer) = (adapter.context(), &raw mut arguments);
    let status = ddi::status(call_ddi!(adapter, DxgkDdiQueryDependentEngineGroup(miniport, pointer)));
    let fine = ddi::succeeded(status);
    adapter.rules().check(&TDR_QUERY, fine, || format!("DxgkDdiQueryDependentEngineGroup: {status:?}"));
    if !status.is_success() {
        return;
    }
    let mask = arguments.DependentNodeOrdinalMask;
    let count = adapter.scheduler.nodes().len();
    let existing = if count >= 64 { u64::MAX } else { (1 << count) - 1 };
    let sound = mask & (1 << node.ordinal) != 0 && mask & !existing == 0;
    adapter.rules().check(&TDR_MASK, sound, || {
        Details::new(format!("node {} of {count}: {mask:#x}", node.ordinal)).params([
            mask,
            node.ordinal.into(),
            count as u64,
        ])
    });
}

fn status(adapter: &Adapter, node: &Node) {
    let mut arguments = DXGKARG_QUERYENGINESTATUS::zeroed();
    arguments.NodeOrdinal = node.ordinal;
    let (miniport, pointer) = (adapter.context(), &raw mut arguments);
    let status = ddi::status(call_ddi!(adapter, DxgkDdiQueryEngineStatus(miniport, pointer)));
    let fine = ddi::succeeded(status);
    adapter.rules().check(&TDR_QUERY, fine, || format!("DxgkDdiQueryEngineStatus: {status:?}"));
}
