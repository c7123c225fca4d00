//! What a notification says, judged while the interrupt is being handled.
//!
//! Packets that a notification ends leave the node's list here, so that a second notification for the same fence is
//! found whenever the DPC runs.
//!
//! Chosen: FENCE_INVALID requires ENGINE_RESET_REQUIRED or ADAPTER_RESET_REQUIRED and a fence id of 0; HW_CONTEXT_VALID
//! and PROCESS_HANDLE_VALID exclude each other and are allowed without it for queue faults, whose record has one handle
//! for either. A faulted process takes all its devices on the adapter.

use std::sync::Arc;

use nt_model::{Details, hex_list};
use wddm_abi::{
    DXGK_ENGINE_STATE, DXGK_INTERRUPT_TYPE, DXGK_PAGE_FAULT_FLAGS, DXGKARGCB_NOTIFY_INTERRUPT_DATA, HANDLE, Plain,
};

use crate::objects::device::PageFault;
use crate::objects::fence::native::FenceOnAdapter;
use crate::objects::hw_context::{Acknowledgement, HwContext};
use crate::objects::hw_queue::HwQueue;
use crate::objects::process::ProcessAdapter;
use crate::objects::scheduling_log::SchedulingLogSet;
use crate::port::handle;
use crate::port::miniport::Miniport;
use crate::port::personality::{Departure, HandleReading};
use crate::port::place::Place;
use crate::port::rules::interrupt as rule;
use crate::port::rules::tdr::TDR_LATE;
use crate::port::tdr::Tdr;
use crate::port::tdr::question::note_reported;
use crate::port::tdr::steps::Reason;
use crate::sched::vidsch::packet::Packet;
use crate::sched::vidsch::{Node, VidSch};

/// Fences that one notification may name.
const MAX_FENCES: u32 = 0x1_0000;

/// What a notification says.
#[derive(Clone, Debug)]
pub(crate) enum Notice {
    Completed(Vec<Packet>),
    Preempted {
        done: Vec<Packet>,
        back: Vec<Packet>,
    },
    Faulted {
        done: Vec<Packet>,
        packet: Box<Packet>,
        fault: Option<PageFault>,
        /// The reset that the fault asks for.
        reset: Option<Reason>,
    },
    QueueFaulted {
        context: Arc<HwContext>,
        fault: PageFault,
        reset: Option<Reason>,
    },
    Native {
        signaled: Signaled,
        legacy: bool,
    },
    Monitored,
    Suspended {
        context: Arc<HwContext>,
        fence: u64,
    },
    /// The driver or a fault asks for a reset of the engine.
    ResetWanted(Reason),
    EngineState(DXGK_ENGINE_STATE),
    SchedulingLog,
}

/// What a native fence interrupt names. Dxgkrnl reads the array only without the optimized interrupt, and the queue
/// only with it. Source: DDI page DXGKARGCB_NOTIFY_INTERRUPT_DATA.
#[derive(Clone, Debug)]
pub(crate) enum Signaled {
    /// Fences; none: any may have been signaled.
    Fences(Vec<Arc<FenceOnAdapter>>),
    /// A queue; `None`: any of the engine's.
    Queue(Option<Arc<HwQueue>>),
}

impl Signaled {
    /// The fences that are named.
    pub(crate) fn fences(&self) -> &[Arc<FenceOnAdapter>] {
        match self {
            Self::Fences(fences) => fences,
            Self::Queue(_) => &[],
        }
    }
}

impl Notice {
    /// Whether it may be replaced by a scan of everything.
    pub(crate) fn can_be_folded(&self) -> bool {
        matches!(self, Self::Native { .. } | Self::Monitored)
    }
}

/// Judges a notification and says what it means and for which node.
pub(crate) fn classify(adapter: &Arc<Miniport>, data: &DXGKARGCB_NOTIFY_INTERRUPT_DATA) -> Option<(usize, Notice)> {
    use DXGK_INTERRUPT_TYPE as Type;
    match data.InterruptType {
        Type::DXGK_INTERRUPT_DMA_COMPLETED => completed(adapter, data),
        Type::DXGK_INTERRUPT_DMA_PREEMPTED => preempted(adapter, data),
        Type::DXGK_INTERRUPT_DMA_FAULTED => faulted(adapter, data),
        Type::DXGK_INTERRUPT_DMA_PAGE_FAULTED => page_faulted(adapter, data),
        Type::DXGK_INTERRUPT_MONITORED_FENCE_SIGNALED => {
            let part = data.MonitoredFenceSignaled();
            let node = node(adapter, part.NodeOrdinal, part.EngineOrdinal)?;
            after_reset(adapter, node.ordinal)?;
            hears_fences(adapter, &node).then_some((node.ordinal as usize, Notice::Monitored))
        }
        Type::DXGK_INTERRUPT_NATIVE_FENCE_SIGNALED => native(adapter, data),
        Type::DXGK_INTERRUPT_HWQUEUE_PAGE_FAULTED => queue_faulted(adapter, data),
        Type::DXGK_INTERRUPT_SUSPEND_CONTEXT_COMPLETED => suspended(adapter, data),
        Type::DXGK_INTERRUPT_GPU_ENGINE_TIMEOUT => {
            let part = data.GpuEngineTimeout();
            let node = node(adapter, part.NodeOrdinal, part.EngineOrdinal)?;
            after_reset(adapter, node.ordinal)?;
            (!is_ignored(adapter, &node)).then_some((node.ordinal as usize, Notice::ResetWanted(Reason::Asked)))
        }
        Type::DXGK_INTERRUPT_GPU_ENGINE_STATE_CHANGE => engine_state(adapter, data),
        Type::DXGK_INTERRUPT_SCHEDULING_LOG_INTERRUPT => {
            let part = data.SchedulingLogInterrupt();
            let node = node(adapter, part.NodeOrdinal, part.EngineOrdinal)?;
            if !fits(adapter, &node, true, data) {
                return None;
            }
            after_reset(adapter, node.ordinal)?;
            let due = SchedulingLogSet::of(adapter).interrupted(adapter, node.ordinal);
            due.then_some((node.ordinal as usize, Notice::SchedulingLog))
        }
        Type::DXGK_INTERRUPT_CRTC_VSYNC
        | Type::DXGK_INTERRUPT_DISPLAYONLY_VSYNC
        | Type::DXGK_INTERRUPT_CRTC_VSYNC_WITH_MULTIPLANE_OVERLAY
        | Type::DXGK_INTERRUPT_CRTC_VSYNC_WITH_MULTIPLANE_OVERLAY2
        | Type::DXGK_INTERRUPT_CRTC_VSYNC_WITH_MULTIPLANE_OVERLAY3
        | Type::DXGK_INTERRUPT_PERIODIC_MONITORED_FENCE_SIGNALED => {
            super::vsync::judge(adapter, data);
            None
        }
        other => {
            adapter.rules().check(&rule::INT_TYPE, false, || format!("type {other:?}"));
            None
        }
    }
}

fn node(adapter: &Miniport, node: u32, engine: u32) -> Option<Arc<Node>> {
    let found = VidSch::of(adapter).node_at(Place { node, engine });
    adapter.rules().check(&rule::INT_NODE, found.is_some(), || format!("node {node}, engine {engine}"));
    found
}

/// Whether the type goes with how the node is scheduled.
fn fits(adapter: &Miniport, node: &Node, hardware: bool, data: &DXGKARGCB_NOTIFY_INTERRUPT_DATA) -> bool {
    adapter.rules().check(&rule::INT_TYPE, node.is_hardware_scheduled == hardware, || {
        let kind = if node.is_hardware_scheduled { "scheduled by hardware" } else { "a packet node" };
        format!("{:?} for node {}, which is {kind}", data.InterruptType, node.ordinal)
    })
}

/// Whether interrupts of a node are ignored: its engine is being reset, of a packet node, or the adapter.
fn is_ignored(adapter: &Miniport, node: &Node) -> bool {
    let departs = |how| adapter.personality().departs(how);
    if departs(Departure::IgnoresAllEngines) {
        return VidSch::of(adapter).nodes().iter().any(|node| node.packet.is_ignored());
    }
    node.packet.is_ignored() && !departs(Departure::HearsTheEngine)
}

/// Whether what a node says of fences is heard. Where it is not, their values are looked at behind the reset.
///
/// Chosen: the article ignores all that the engine says, and no page says who looks at fences then.
fn hears_fences(adapter: &Miniport, node: &Node) -> bool {
    let ignored = is_ignored(adapter, node);
    if ignored {
        node.packet.leave_unheard();
    }
    !ignored
}

/// An engine that was reset keeps silent until it is resumed.
fn after_reset(adapter: &Miniport, node: u32) -> Option<()> {
    let quiet = Tdr::of(adapter).is_quiet(node);
    let fine = adapter.rules().check(&rule::INT_AFTER_RESET, !quiet, || format!("node {node}"));
    fine.then_some(())
}

fn bad_fence(adapter: &Miniport, node: &Node, what: &str, fence: u32) {
    if node.packet.was_lost(fence) == Some(true) {
        adapter.rules().check(&TDR_LATE, false, || {
            let text = format!("node {}: {what} {fence:#x}, which a reset has ended", node.ordinal);
            Details::new(text).params([fence.into(), 0, 0])
        });
        return;
    }
    let (completed, submitted, outstanding) = node.packet.ids();
    adapter.rules().check(&rule::INT_FENCE, false, || {
        let text = format!(
            "node {}: {what} {fence:#x}; outstanding {}; last completed {completed:#x}, last submitted {submitted:#x}",
            node.ordinal,
            hex_list(outstanding)
        );
        Details::new(text).params([fence.into(), submitted.into(), completed.into()])
    });
}

fn completed(adapter: &Arc<Miniport>, data: &DXGKARGCB_NOTIFY_INTERRUPT_DATA) -> Option<(usize, Notice)> {
    let part = data.DmaCompleted();
    let node = node(adapter, part.NodeOrdinal, part.EngineOrdinal)?;
    if !fits(adapter, &node, false, data) {
        return None;
    }
    if is_ignored(adapter, &node) {
        return None;
    }
    let Ok(packets) = node.packet.complete(part.SubmissionFenceId) else {
        bad_fence(adapter, &node, "completed", part.SubmissionFenceId);
        return None;
    };
    adapter.rules().count(&rule::INT_FENCE);
    node.usage.lock().ended(adapter.kernel().now(), &packets);
    note_reported(adapter, node.ordinal, part.SubmissionFenceId);
    if node.packet.was_lost(part.SubmissionFenceId).is_some() {
        adapter.rules().count(&TDR_LATE);
    }
    Some((node.ordinal as usize, Notice::Completed(packets)))
}

fn preempted(adapter: &Arc<Miniport>, data: &DXGKARGCB_NOTIFY_INTERRUPT_DATA) -> Option<(usize, Notice)> {
    let part = data.DmaPreempted();
    let node = node(adapter, part.NodeOrdinal, part.EngineOrdinal)?;
    if !fits(adapter, &node, false, data) {
        return None;
    }
    if is_ignored(adapter, &node) {
        return None;
    }
    let Ok((done, back)) = node.packet.preempted(part.PreemptionFenceId, part.LastCompletedFenceId) else {
        bad_fence(adapter, &node, "preempted", part.PreemptionFenceId);
        return None;
    };
    {
        // What comes back ran until now, and is not over.
        let (now, mut usage) = (adapter.kernel().now(), node.usage.lock());
        usage.ended(now, &done);
        usage.ended(now, back.get(..1).unwrap_or_default());
    }
    adapter.rules().count(&rule::INT_FENCE);
    Some((node.ordinal as usize, Notice::Preempted { done, back }))
}

fn faulted(adapter: &Arc<Miniport>, data: &DXGKARGCB_NOTIFY_INTERRUPT_DATA) -> Option<(usize, Notice)> {
    let part = data.DmaFaulted();
    let node = node(adapter, part.NodeOrdinal, part.EngineOrdinal)?;
    if !fits(adapter, &node, false, data) {
        return None;
    }
    let notice = fault_notice(adapter, &node, part.FaultedFenceId, None, None)?;
    Some((node.ordinal as usize, notice))
}

fn fault_notice(
    adapter: &Miniport,
    node: &Node,
    fence: u32,
    fault: Option<PageFault>,
    reset: Option<Reason>,
) -> Option<Notice> {
    if is_ignored(adapter, node) {
        return None;
    }
    let Ok((done, packet)) = node.packet.fault(fence) else {
        bad_fence(adapter, node, "faulted", fence);
        return None;
    };
    adapter.rules().count(&rule::INT_FENCE);
    adapter.rules().check(&rule::INT_SYSTEM_FAULT, !packet.is_paging(), || {
        format!("node {}: the paging buffer with fence {fence:#x}", node.ordinal)
    });
    Some(Notice::Faulted { done, packet: Box::new(packet), fault, reset })
}

/// Judges page fault flags. False: they make no sense.
fn fault_flags(adapter: &Miniport, flags: DXGK_PAGE_FAULT_FLAGS, fence: u64, queue: bool) -> bool {
    use DXGK_PAGE_FAULT_FLAGS as Flags;
    let has = |flag: Flags| flags.0 & flag.0 != 0;
    let fatal = has(Flags::DXGK_PAGE_FAULT_FATAL_HARDWARE_ERROR);
    adapter.rules().check(&rule::INT_FATAL, !fatal, || format!("{flags:?}"));
    let reset = has(Flags::DXGK_PAGE_FAULT_ENGINE_RESET_REQUIRED) || has(Flags::DXGK_PAGE_FAULT_ADAPTER_RESET_REQUIRED);
    let invalid = has(Flags::DXGK_PAGE_FAULT_FENCE_INVALID);
    let context = has(Flags::DXGK_PAGE_FAULT_HW_CONTEXT_VALID);
    let process = has(Flags::DXGK_PAGE_FAULT_PROCESS_HANDLE_VALID);
    let sound = (!invalid || ((reset || fatal) && fence == 0))
        && !(context && process)
        && (!context || queue)
        && (!process || invalid || queue);
    adapter.rules().check(&rule::INT_FAULT_FLAGS, sound, || {
        Details::new(format!("{flags:?} with fence id {fence:#x}")).params([flags.0 as u64, fence, 0])
    })
}

/// The reset that a page fault asks for.
fn wanted(flags: DXGK_PAGE_FAULT_FLAGS) -> Option<Reason> {
    let has = |flag: DXGK_PAGE_FAULT_FLAGS| flags.0 & flag.0 != 0;
    if has(DXGK_PAGE_FAULT_FLAGS::DXGK_PAGE_FAULT_ADAPTER_RESET_REQUIRED) {
        return Some(Reason::AdapterFault);
    }
    has(DXGK_PAGE_FAULT_FLAGS::DXGK_PAGE_FAULT_ENGINE_RESET_REQUIRED).then_some(Reason::Fault)
}

/// What a page fault says: packets and queues have a record each, with the same members.
macro_rules! page_fault {
    ($part:expr) => {{
        let part = $part;
        PageFault {
            address: part.FaultedVirtualAddress,
            sequence: part.FaultedPrimitiveAPISequenceNumber,
            stage: part.FaultedPipelineStage.0,
            table_entry: part.FaultedBindTableEntry,
            flags: part.PageFaultFlags.0,
            error: part.FaultErrorCode.as_bytes().first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)),
        }
    }};
}

fn page_faulted(adapter: &Arc<Miniport>, data: &DXGKARGCB_NOTIFY_INTERRUPT_DATA) -> Option<(usize, Notice)> {
    let part = data.DmaPageFaulted();
    let node = node(adapter, part.NodeOrdinal, part.EngineOrdinal)?;
    let flags = part.PageFaultFlags;
    if !fits(adapter, &node, false, data) || !fault_flags(adapter, flags, part.FaultedFenceId.into(), false) {
        return None;
    }
    if flags.0 & DXGK_PAGE_FAULT_FLAGS::DXGK_PAGE_FAULT_FENCE_INVALID.0 != 0 {
        let wanted = wanted(flags).filter(|reason| *reason != Reason::Fault).unwrap_or(Reason::UnknownFault);
        return (!is_ignored(adapter, &node)).then_some((node.ordinal as usize, Notice::ResetWanted(wanted)));
    }
    let fault = page_fault!(part);
    let notice = fault_notice(adapter, &node, part.FaultedFenceId, Some(fault), wanted(flags))?;
    Some((node.ordinal as usize, notice))
}

fn queue_faulted(adapter: &Arc<Miniport>, data: &DXGKARGCB_NOTIFY_INTERRUPT_DATA) -> Option<(usize, Notice)> {
    let part = data.HwQueuePageFaulted();
    let node = node(adapter, part.NodeOrdinal, part.EngineOrdinal)?;
    let flags = part.PageFaultFlags;
    if !fits(adapter, &node, true, data) {
        return None;
    }
    after_reset(adapter, node.ordinal)?;
    if !fault_flags(adapter, flags, part.FaultedFenceId, true) {
        return None;
    }
    let has = |flag: DXGK_PAGE_FAULT_FLAGS| flags.0 & flag.0 != 0;
    let reset = wanted(flags);
    let named = part.FaultedHwQueue();
    let reading = adapter.personality().handles.faulted;
    let context = if has(DXGK_PAGE_FAULT_FLAGS::DXGK_PAGE_FAULT_HW_CONTEXT_VALID) {
        find_context(adapter, named, reading)
    } else if has(DXGK_PAGE_FAULT_FLAGS::DXGK_PAGE_FAULT_PROCESS_HANDLE_VALID) {
        find_process_context(adapter, named, reading, node.ordinal)
    } else {
        find_queue(adapter, named, reading).map(|queue| queue.context().clone())
    };
    let right = context.as_ref().is_some_and(|context| context.node() == node.ordinal);
    adapter.rules().check(&rule::INT_FAULT_HANDLE, right, || {
        format!("node {}, {flags:?}: {} as {reading:?}'s handle", node.ordinal, handle::describe(named))
    });
    let fault = page_fault!(part);
    Some((node.ordinal as usize, Notice::QueueFaulted { context: context?, fault, reset }))
}

/// The queue behind a handle of either side.
fn find_queue(adapter: &Miniport, named: HANDLE, reading: HandleReading) -> Option<Arc<HwQueue>> {
    let ours = reading.takes_dxgkrnl().then(|| handle::object::<HwQueue>(named)).flatten();
    ours.or_else(|| {
        let queues = reading.takes_driver().then(|| HwQueue::all_of(adapter))?;
        queues.into_iter().find(|queue| queue.driver_handle() == named.expose_provenance())
    })
}

/// The hardware context behind a handle of either side.
fn find_context(adapter: &Miniport, named: HANDLE, reading: HandleReading) -> Option<Arc<HwContext>> {
    let ours = reading
        .takes_dxgkrnl()
        .then(|| handle::object::<HwContext>(named))
        .flatten()
        .filter(|context| context.is_alive());
    ours.or_else(|| {
        let contexts = reading.takes_driver().then(|| HwContext::all_of(adapter))?;
        contexts.into_iter().find(|context| context.driver_handle() == named.expose_provenance())
    })
}

fn find_process_context(
    adapter: &Miniport,
    named: HANDLE,
    reading: HandleReading,
    node: u32,
) -> Option<Arc<HwContext>> {
    let ours = reading.takes_dxgkrnl().then(|| handle::object::<ProcessAdapter>(named)).flatten();
    let number = named.expose_provenance();
    let belongs = |context: &Arc<HwContext>| {
        let process = context.device().process();
        ours.as_ref().is_some_and(|ours| Arc::ptr_eq(ours, process))
            || (reading.takes_driver() && process.driver_handle() == number)
    };
    HwContext::all_of(adapter).into_iter().find(|context| context.node() == node && belongs(context))
}

fn native(adapter: &Arc<Miniport>, data: &DXGKARGCB_NOTIFY_INTERRUPT_DATA) -> Option<(usize, Notice)> {
    let part = data.NativeFenceSignaled();
    let node = node(adapter, part.NodeOrdinal, part.EngineOrdinal)?;
    after_reset(adapter, node.ordinal)?;
    let caps = adapter.known_caps();
    let enabled = caps.has_native_fences();
    adapter.rules().check(&rule::INT_TYPE, enabled, || "native fences are not advertised".to_owned());
    let legacy = data.Flags.EvaluateLegacyMonitoredFences();
    let signaled = if caps.has_optimized_interrupt() {
        let named = part.hHWQueue;
        let reading = adapter.personality().handles.interrupt_queue;
        let queue = if named.is_null() { None } else { find_queue(adapter, named, reading) };
        let right = named.is_null() || queue.as_ref().is_some_and(|queue| queue.context().node() == node.ordinal);
        adapter.rules().check(&rule::INT_NATIVE_QUEUE, right, || {
            format!("node {}: hHWQueue is {}", node.ordinal, handle::describe(named))
        });
        Signaled::Queue(queue)
    } else {
        let (fences, sound) = named_fences(part.SignaledNativeFenceCount, part.pSignaledNativeFenceArray, adapter);
        adapter.rules().check(&rule::INT_NATIVE_FENCE, sound.is_none(), || sound.clone().unwrap_or_default());
        Signaled::Fences(fences)
    };
    let heard = enabled && hears_fences(adapter, &node);
    heard.then_some((node.ordinal as usize, Notice::Native { signaled, legacy }))
}

/// The fences of an array; and what is wrong with it.
fn named_fences(count: u32, array: *const HANDLE, adapter: &Miniport) -> (Vec<Arc<FenceOnAdapter>>, Option<String>) {
    if count > MAX_FENCES {
        return (Vec::new(), Some(format!("{count} fences")));
    }
    let Some(handles) = crate::port::raw::read_array(array, count as usize) else {
        return (Vec::new(), Some(format!("{count} fences at {array:p}")));
    };
    let mut wrong = None;
    let found = handles.into_iter().filter_map(|named| {
        let fence = handle::object::<FenceOnAdapter>(named)
            .filter(|fence| core::ptr::eq(Arc::as_ptr(fence.adapter()), adapter) && fence.is_alive());
        if fence.is_none() {
            wrong.get_or_insert_with(|| handle::describe(named));
        }
        fence
    });
    let found = found.collect();
    (found, wrong)
}

fn suspended(adapter: &Arc<Miniport>, data: &DXGKARGCB_NOTIFY_INTERRUPT_DATA) -> Option<(usize, Notice)> {
    let part = data.SuspendContextCompleted();
    let reading = adapter.personality().handles.suspended_context;
    let context = find_context(adapter, part.hContext, reading);
    let fence = part.ContextSuspendFence;
    if let Some(context) = &context {
        // What is said then is not heard: the suspension stays one that is not acknowledged.
        after_reset(adapter, context.node())?;
    }
    let known = context.as_ref().map_or(Acknowledgement::Unknown, |context| context.hears(fence));
    if known == Acknowledgement::Late {
        return None;
    }
    let asked = known == Acknowledgement::Awaited;
    adapter.rules().check(&rule::INT_SUSPEND_FENCE, asked, || {
        Details::new(format!("context {}, fence {fence:#x}", handle::describe(part.hContext))).params([
            part.hContext.expose_provenance() as u64,
            fence,
            0,
        ])
    });
    let context = context.filter(|_| asked)?;
    Some((context.node() as usize, Notice::Suspended { context, fence }))
}

fn engine_state(adapter: &Arc<Miniport>, data: &DXGKARGCB_NOTIFY_INTERRUPT_DATA) -> Option<(usize, Notice)> {
    let part = data.EngineStateChange();
    let node = node(adapter, part.NodeOrdinal, part.EngineOrdinal)?;
    after_reset(adapter, node.ordinal)?;
    let state = part.NewState;
    let known = matches!(
        state,
        DXGK_ENGINE_STATE::DXGK_ENGINE_STATE_ACTIVE
            | DXGK_ENGINE_STATE::DXGK_ENGINE_STATE_TRANSITION_TO_F1
            | DXGK_ENGINE_STATE::DXGK_ENGINE_STATE_HUNG
    );
    let holds = adapter.rules().check(&rule::INT_ENGINE_STATE, known, || format!("node {}: {state:?}", node.ordinal));
    if state == DXGK_ENGINE_STATE::DXGK_ENGINE_STATE_HUNG {
        return (!is_ignored(adapter, &node)).then_some((node.ordinal as usize, Notice::ResetWanted(Reason::Hung)));
    }
    holds.then_some((node.ordinal as usize, Notice::EngineState(state)))
}
