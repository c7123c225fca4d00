//! Stage 8 of 8: the interrupt routine, the DPC, and the end of a slot.
//!
//! The routine runs at the device's interrupt level, one at a time, on any processor; it takes no lock and allocates
//! nothing. It turns the nodes' notices into `DXGKARGCB_NOTIFY_INTERRUPT_DATA` records, each on its own stack, and
//! queues the DPC. A slot whose generation ended names nothing, so an interrupt for a destroyed object cannot be made.
//!
//! Source: `DxgkCbNotifyInterrupt`; *Native GPU fence object*, "Native fence signaled interrupt" and "Optimized native
//! fence signaled interrupt".

use crate::adapter::{Adapter, Started};
use crate::irql::{Dirql, Dispatch, Passive};
use crate::nodes;
use crate::platform::Platform;
use crate::tracing::Event;
use core::ffi::c_void;
use core::sync::atomic::Ordering;
use gpu_engine::fault::Fault;
use gpu_engine::mutation::Mutation;
use gpu_engine::node::Control;
use gpu_engine::notice::Notice;
use gpu_engine::slots::SlotId;
use gpu_wire::NodeOrdinal;
use gpu_wire::packet::FaultKind;
use wddm_abi::{
    DXGK_ENGINE_STATE, DXGK_FAULT_ERROR_CODE, DXGK_GENERAL_ERROR_CODE, DXGK_INTERRUPT_TYPE, DXGK_PAGE_FAULT_FLAGS,
    DXGK_RENDER_PIPELINE_STAGE, DXGKARGCB_NOTIFY_INTERRUPT_DATA, HANDLE,
};

/// Fences that one interrupt names at most; more make another one.
const BATCH: usize = 32;

/// The interrupt routine. `true` when the interrupt was ours.
pub fn routine<P: Platform>(irql: &Dirql, adapter: &Adapter<P>) -> bool {
    let claimed = adapter.with_started(|started| {
        if started.gpu.mutation.is(Mutation::AcknowledgesLate) {
            return report_all(irql, started) | (started.gpu.host.interrupt.claim(irql) != 0);
        }
        // Acknowledged before the mailboxes are read: a raise from now on interrupts again.
        let is_ours = started.gpu.host.interrupt.claim(irql) != 0;
        if is_ours {
            report_all(irql, started);
        }
        is_ours
    });
    claimed.unwrap_or(false)
}

/// Reports what every node has to say. Whether there was anything.
pub fn report_all<P: Platform>(irql: &Dirql, started: &Started<P>) -> bool {
    let mut any = false;
    for node in 0..started.gpu.nodes.len() {
        let Some(shared) = started.gpu.nodes.get(node) else { break };
        // Between ResetHwEngine and ResumeHwEngine an interrupt from the engine is a bug check. It waits.
        if shared.control() == Control::Hold {
            continue;
        }
        any |= report(irql, started, node);
    }
    if any {
        started.dxgkrnl.queue_dpc();
    }
    any
}

fn report<P: Platform>(irql: &Dirql, started: &Started<P>, node: usize) -> bool {
    let mut batch = [core::ptr::null_mut::<c_void>(); BATCH];
    let mut fences = 0;
    let mut either = false;
    // CAST: a node index.
    let ordinal = node as u32;
    let count = started.gpu.drain(node, |notice| match notice {
        Notice::FenceSignaled { .. } | Notice::FencesSignaled | Notice::MonitoredFenceSignaled if one_kind(started) => {
            either = true;
        }
        Notice::FenceSignaled { fence, queue }
            if started.plan.optimized_interrupt && !started.settings.null_fence_array =>
        {
            let _ = fence;
            let queue = started.gpu.slots.driver_handle(queue);
            native_fences(irql, started, ordinal, &mut [], queue.map_or(core::ptr::null_mut(), pointer));
        }
        Notice::FenceSignaled { fence, .. } if !started.settings.null_fence_array => {
            // A fence that died meanwhile has no waiters left.
            let Some(handle) = started.gpu.slots.handle(fence) else { return };
            if fences >= BATCH {
                native_fences(irql, started, ordinal, &mut batch, core::ptr::null_mut());
                fences = 0;
            }
            if let Some(to) = batch.get_mut(fences) {
                *to = pointer(handle);
                fences = fences.wrapping_add(1);
            }
        }
        Notice::FenceSignaled { .. } | Notice::FencesSignaled => {
            native_fences(irql, started, ordinal, &mut [], core::ptr::null_mut());
        }
        other => notify(irql, started, ordinal, other),
    });
    if either {
        native_fences(irql, started, ordinal, &mut [], core::ptr::null_mut());
    }
    if fences != 0 {
        native_fences(irql, started, ordinal, batch.get_mut(..fences).unwrap_or_default(), core::ptr::null_mut());
    }
    count != 0
}

/// Reports one fence at once: the device's level is reached already, by a DDI that is synchronized with the interrupt
/// routine. While every engine is held, it waits with everything else until one is resumed.
///
/// With the optimized interrupt, which queue signaled is not known any more, nor on which engine: the OS looks at the
/// logs of the engine that the interrupt names, so each engine that is not held gets one.
pub fn report_fence<P: Platform>(irql: &Dirql, started: &Started<P>, fence: u64) {
    let Some(speaker) = started.gpu.speaker() else { return };
    let mut named = [pointer(fence)];
    let fences = if one_kind(started) { &mut [] } else { named.as_mut_slice() };
    for node in 0..started.gpu.nodes.len() {
        let is_held = started.gpu.nodes.get(node).is_none_or(|shared| shared.control() == Control::Hold);
        if node == speaker || (started.plan.optimized_interrupt && !is_held) {
            // CAST: a node index.
            native_fences(irql, started, node as u32, fences, core::ptr::null_mut());
        }
    }
    started.dxgkrnl.queue_dpc();
}

/// Whether the GPU is one that cannot tell signals of native fences from those of monitored ones.
fn one_kind<P: Platform>(started: &Started<P>) -> bool {
    started.settings.single_fence_interrupt && started.plan.native_fences()
}

fn pointer(handle: u64) -> HANDLE {
    core::ptr::without_provenance_mut(handle as usize)
}

/// `DXGK_INTERRUPT_NATIVE_FENCE_SIGNALED`: an array, or a queue, or nothing for "scan all". The OS reads the array
/// without the optimized interrupt only, and the queue with it.
fn native_fences<P: Platform>(irql: &Dirql, started: &Started<P>, node: u32, fences: &mut [HANDLE], queue: HANDLE) {
    let mut data = DXGKARGCB_NOTIFY_INTERRUPT_DATA::zeroed();
    data.InterruptType = DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_NATIVE_FENCE_SIGNALED;
    let d = data.NativeFenceSignaled_mut();
    d.NodeOrdinal = node;
    d.EngineOrdinal = 0;
    // CAST: at most BATCH.
    d.SignaledNativeFenceCount = fences.len() as u32;
    d.pSignaledNativeFenceArray = if fences.is_empty() { core::ptr::null_mut() } else { fences.as_mut_ptr() };
    d.hHWQueue = queue;
    data.Flags.set_EvaluateLegacyMonitoredFences(one_kind(started));
    started.platform.trace(|| Event::Interrupt { node, kind: data.InterruptType });
    started.dxgkrnl.notify_interrupt(irql, &mut data);
}

fn notify<P: Platform>(irql: &Dirql, started: &Started<P>, node: u32, notice: Notice) {
    let slots = &started.gpu.slots;
    // One interrupt routine at a time stores it for a node.
    let before = started.reported.get(node as usize).map_or(0, |last| last.load(Ordering::Acquire));
    let mut data = DXGKARGCB_NOTIFY_INTERRUPT_DATA::zeroed();
    match notice {
        // Gathered by the caller.
        Notice::FenceSignaled { .. } | Notice::FencesSignaled => return,
        Notice::MonitoredFenceSignaled => {
            data.InterruptType = DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_MONITORED_FENCE_SIGNALED;
            data.MonitoredFenceSignaled_mut().NodeOrdinal = node;
        }
        Notice::SchedulingLog => {
            data.InterruptType = DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_SCHEDULING_LOG_INTERRUPT;
            data.SchedulingLogInterrupt_mut().NodeOrdinal = node;
        }
        Notice::QueueFaulted { queue, fault, progress } => {
            let Some(handle) = slots.handle(queue) else { return };
            data.InterruptType = DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_HWQUEUE_PAGE_FAULTED;
            let d = data.HwQueuePageFaulted_mut();
            d.FaultedFenceId = progress;
            d.FaultedVirtualAddress = fault.address.0;
            d.FaultedPrimitiveAPISequenceNumber = u64::MAX;
            d.set_FaultedHwQueue(pointer(handle));
            d.NodeOrdinal = node;
            d.FaultedPipelineStage = DXGK_RENDER_PIPELINE_STAGE::DXGK_RENDER_PIPELINE_STAGE_UNKNOWN;
            d.FaultedBindTableEntry = u32::MAX;
            d.PageFaultFlags = page_fault_flags(fault);
            d.FaultErrorCode = error_code(fault);
        }
        Notice::ContextSuspended { context, fence } => {
            let Some(handle) = slots.handle(context) else { return };
            data.InterruptType = DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_SUSPEND_CONTEXT_COMPLETED;
            let d = data.SuspendContextCompleted_mut();
            d.hContext = pointer(handle);
            d.ContextSuspendFence = fence;
        }
        Notice::PacketCompleted { fence } => {
            data.InterruptType = DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_DMA_COMPLETED;
            let d = data.DmaCompleted_mut();
            d.SubmissionFenceId = fence;
            d.NodeOrdinal = node;
            reported(started, node, fence);
        }
        Notice::PacketPreempted { request, completed } => {
            data.InterruptType = DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_DMA_PREEMPTED;
            let d = data.DmaPreempted_mut();
            d.PreemptionFenceId = request;
            d.LastCompletedFenceId = completed;
            d.NodeOrdinal = node;
            reported(started, node, completed);
        }
        Notice::PacketFaulted { fence, fault } => {
            data.InterruptType = DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_DMA_PAGE_FAULTED;
            let d = data.DmaPageFaulted_mut();
            reported(started, node, fence);
            d.FaultedFenceId = fence;
            d.FaultedPrimitiveAPISequenceNumber = u64::MAX;
            d.FaultedPipelineStage = DXGK_RENDER_PIPELINE_STAGE::DXGK_RENDER_PIPELINE_STAGE_UNKNOWN;
            d.FaultedBindTableEntry = u32::MAX;
            d.PageFaultFlags = page_fault_flags(fault);
            d.FaultedVirtualAddress = fault.address.0;
            d.NodeOrdinal = node;
            d.FaultErrorCode = error_code(fault);
            // The fence says whose it was: no process is named, for which there is a flag where the fence is not known.
        }
        Notice::EngineState { state } => {
            data.InterruptType = DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_GPU_ENGINE_STATE_CHANGE;
            let d = data.EngineStateChange_mut();
            d.NodeOrdinal = node;
            // CAST: a small enumerator.
            d.NewState = DXGK_ENGINE_STATE(state as i32);
        }
        Notice::EngineHung if takes_doorbells(started, NodeOrdinal(node)) => {
            data.InterruptType = DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_GPU_ENGINE_STATE_CHANGE;
            let d = data.EngineStateChange_mut();
            (d.NodeOrdinal, d.NewState) = (node, DXGK_ENGINE_STATE::DXGK_ENGINE_STATE_HUNG);
        }
        Notice::EngineHung => {
            data.InterruptType = DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_GPU_ENGINE_TIMEOUT;
            data.GpuEngineTimeout_mut().NodeOrdinal = node;
        }
    }
    tell(started, node, notice, before, data.InterruptType);
    started.dxgkrnl.notify_interrupt(irql, &mut data);
}

/// Tells a trace of what the OS is about to be told. `before` is the last fence of `node` that it was told before.
fn tell<P: Platform>(started: &Started<P>, node: u32, notice: Notice, before: u32, kind: DXGK_INTERRUPT_TYPE) {
    started.platform.trace(|| Event::Interrupt { node, kind });
    let (fence, completed, address) = match notice {
        Notice::PacketCompleted { fence } => (fence, fence, 0),
        Notice::PacketPreempted { request, completed } => (request, completed, 0),
        Notice::PacketFaulted { fence, fault } => (fence, before, fault.address.0),
        _ => return,
    };
    started.platform.trace(|| Event::DmaPacketStop { node, fence, completed, kind, address });
}

/// Whether the node has user-mode queues.
fn takes_doorbells<P: Platform>(started: &Started<P>, node: NodeOrdinal) -> bool {
    started.plan.user_mode_submission() && nodes::is_hardware_scheduled(&started.plan, node)
}

/// Notes that the OS is told that packets of `node` up to `fence` are complete. Stored before the OS is told: a reader
/// runs a section at the device's level first, which waits for this one (`submit::current_fence`).
fn reported<P: Platform>(started: &Started<P>, node: u32, fence: u32) {
    if let Some(last) = started.reported.get(node as usize) {
        last.store(fence, Ordering::Release);
    }
}

/// The flags of a page fault: DXGK_PAGE_FAULT_WRITE for a write, and no other. The flag for an unknown fence is not
/// set, since the fence is known; the reset flags are not set, since the queue stopped by itself.
fn page_fault_flags(fault: Fault) -> DXGK_PAGE_FAULT_FLAGS {
    match fault.write {
        true => DXGK_PAGE_FAULT_FLAGS::DXGK_PAGE_FAULT_WRITE,
        false => DXGK_PAGE_FAULT_FLAGS(0),
    }
}

/// A bad packet is an invalid instruction, with the address 0; an address is a page fault.
fn error_code(fault: Fault) -> DXGK_FAULT_ERROR_CODE {
    let code = match fault.kind {
        FaultKind::Address => DXGK_GENERAL_ERROR_CODE::DXGK_GENERAL_ERROR_PAGE_FAULT,
        _ => DXGK_GENERAL_ERROR_CODE::DXGK_GENERAL_ERROR_INVALID_INSTRUCTION,
    };
    let mut out = DXGK_FAULT_ERROR_CODE::zeroed();
    out.set_IsDeviceSpecificCode(false);
    out.set_GeneralErrorCode(code);
    out
}

/// The DPC: the scheduler's half of what was reported.
pub fn dpc<P: Platform>(irql: &Dispatch, adapter: &Adapter<P>) {
    // Nothing is reported of an adapter that is not started.
    let _told = adapter.with_started(|started| started.dxgkrnl.notify_dpc(irql));
}

/// What is done at the device's level, exclusive with the interrupt routine.
enum Work {
    /// Nothing is done: what counts is that every run of the routine that had begun has ended.
    Leave,
    /// A slot is killed.
    Retire(SlotId),
    /// What the device has raised is cleared.
    Clear,
    /// The device goes to sleep, which it was made ready for (`InterruptSource::settle`).
    Sleep,
}

/// Work that `DxgkCbSynchronizeExecution` has done at the device's level.
pub struct Section<'a, P: Platform> {
    started: &'a Started<P>,
    work: Work,
}

impl<P: Platform> Section<'_, P> {
    /// Does the work. The caller excludes the interrupt routine.
    pub fn run(&self) {
        match self.work {
            Work::Leave => (),
            Work::Retire(slot) => self.started.gpu.slots.kill(slot),
            Work::Clear => self.started.gpu.host.interrupt.clear(),
            Work::Sleep => self.started.gpu.host.interrupt.sleep(),
        }
    }
}

/// Does work exclusive with the interrupt routine: no routine that began before still runs when this returns.
fn exclude<P: Platform>(_irql: &Passive, started: &Started<P>, work: Work) {
    let section = Section { started, work };
    let context = (&raw const section).cast_mut().cast::<c_void>();
    if !started.dxgkrnl.synchronize(started.routines.section, context) {
        // No interrupt is connected, or it is no more: the routine cannot run.
        section.run();
    }
}

/// Returns when every run of the interrupt routine that had begun has ended.
pub fn leave<P: Platform>(irql: &Passive, started: &Started<P>) {
    exclude(irql, started, Work::Leave);
}

/// Clears what the device has raised, for the end: no engine raises any more.
pub fn clear<P: Platform>(irql: &Passive, started: &Started<P>) {
    exclude(irql, started, Work::Clear);
}

/// Puts the interrupt source to sleep: from here on the interrupt routine claims nothing.
pub fn sleep<P: Platform>(irql: &Passive, started: &Started<P>) {
    started.gpu.host.interrupt.settle(irql, &started.platform);
    exclude(irql, started, Work::Sleep);
}

/// Ends a slot's generation so that no interrupt after this names its object.
pub fn retire<P: Platform>(irql: &Passive, started: &Started<P>, slot: SlotId) {
    exclude(irql, started, Work::Retire(slot));
    started.gpu.slots.free(slot);
}
