//! Thunks that wait for fences and signal them.

use std::sync::Arc;

use nt_model::Event;
use wddm_abi::{
    D3DDDI_CREATEHWQUEUEFLAGS, D3DDDI_SYNC_OBJECT_SIGNAL, D3DDDI_SYNC_OBJECT_WAIT, D3DDDICB_SIGNALFLAGS,
    D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU, D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU,
    D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2, D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE,
    D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE, D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU,
    D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU, NTSTATUS, ntstatus,
};

use super::device::device;
use super::{Call, DONE, INVALID, Outcome, capture, thunks};
use crate::objects::command::{Command, Commands};
use crate::objects::context::Context;
use crate::objects::device::Device;
use crate::objects::fence::monitored::MonitoredFence;
use crate::objects::fence::{AnyFence, Target, Wait, cancel, wait_for};
use crate::objects::hw_context::HwContext;
use crate::objects::hw_queue::HwQueue;
use crate::port::sync::Signal;
use crate::port::worker::Worker;

/// Most fences in one call. Source: macros D3DDDI_MAX_OBJECT_WAITED_ON and D3DDDI_MAX_OBJECT_SIGNALED.
const LIMIT: u32 = 32;
/// Most contexts or queues that one signal goes to. Source: macro D3DDDI_MAX_BROADCAST_CONTEXT.
const MOST_TARGETS: u32 = 64;

/// A fence that user mode names.
struct Named {
    fence: AnyFence,
    value: u64,
    /// A monitored one's handle.
    monitored: Option<Arc<MonitoredFence>>,
}

/// Fences by handle, with their values; `right`: what is to be done to them.
///
/// An intra-GPU fence takes neither waits nor signals from here. Source: D3DKMTCreateNativeFence, Remarks.
///
/// Chosen: a value that is too far from the last one of a 32-bit fence is STATUS_INVALID_PARAMETER.
fn named(call: &Call, handles: *const u32, values: *const u64, count: u32, right: u32) -> Result<Vec<Named>, NTSTATUS> {
    if count == 0 || count > LIMIT {
        return Err(INVALID);
    }
    let handles = capture::array(handles, count)?;
    let values = capture::array(values, count)?;
    let find = |(handle, value): (u32, u64)| {
        let (fence, monitored, allowed) = if let Some(local) = call.process.native_fence(handle) {
            if local.fence().is_intra_gpu() {
                return Err(INVALID);
            }
            (AnyFence::Native(local.fence().clone()), None, local.allows(right))
        } else {
            let local = call.process.monitored_fence(handle).ok_or(INVALID)?;
            let allowed = local.allows(right);
            (AnyFence::Monitored(local.state().clone()), Some(local), allowed)
        };
        if !allowed {
            return Err(ntstatus::STATUS_ACCESS_DENIED);
        }
        let near = match &fence {
            AnyFence::Monitored(state) if right == D3DDDI_SYNC_OBJECT_SIGNAL => state.takes_signal(value),
            AnyFence::Monitored(state) => state.takes_wait(value),
            AnyFence::Native(_) => true,
        };
        if near { Ok(Named { fence, value, monitored }) } else { Err(INVALID) }
    };
    handles.into_iter().zip(values).map(find).collect()
}

/// As [`named`], without the handles.
fn fences(
    call: &Call,
    handles: *const u32,
    values: *const u64,
    count: u32,
    right: u32,
) -> Result<Vec<(AnyFence, u64)>, NTSTATUS> {
    let named = named(call, handles, values, count, right)?;
    Ok(named.into_iter().map(|one| (one.fence, one.value)).collect())
}

/// What a wait or signal is queued on.
enum Owner {
    Context(Arc<Context>),
    Queue(Arc<HwQueue>),
    /// A hardware context none of whose queues takes part.
    HwContext(Arc<HwContext>),
}

impl Owner {
    fn device(&self) -> &Arc<Device> {
        match self {
            Self::Context(context) => context.device(),
            Self::Queue(queue) => queue.context().device(),
            Self::HwContext(context) => context.device(),
        }
    }

    fn commands(&self) -> &Commands {
        match self {
            Self::Context(context) => context.commands(),
            Self::Queue(queue) => queue.commands(),
            Self::HwContext(context) => context.commands(),
        }
    }
}

/// What an operation on a context is queued on: a packet context itself, or the kernel-mode queues of a hardware
/// context, to which the operation is broadcast. `excluded`: the flag by which a queue stays out of it.
///
/// Source: DDI page D3DDDI_CREATEHWQUEUEFLAGS, NoBroadcastSignal and NoBroadcastWait.
///
/// Chosen: queues with doorbells take no part, since nothing can be queued on them; each queue carries a signal out
/// when it gets there. Where no queue takes part, the context itself carries the operations out in their order: a
/// signal at once, unless a wait is before it; such a wait holds back what the context was asked for later, and no
/// queue.
///
/// # Errors
/// STATUS_INVALID_PARAMETER for no context of the process, and for a packet context on a hardware-scheduled node;
/// STATUS_DEVICE_REMOVED for a hardware context of a device in an error state.
fn owners(
    call: &Call,
    context: u32,
    excluded: impl Fn(D3DDDI_CREATEHWQUEUEFLAGS) -> bool,
) -> Result<Vec<Owner>, NTSTATUS> {
    if let Some(context) = call.process.context(context) {
        return if context.takes_commands() { Ok(vec![Owner::Context(context)]) } else { Err(INVALID) };
    }
    let context = call.process.hw_context(context).ok_or(INVALID)?;
    context.device().usable()?;
    let takes = |queue: &Arc<HwQueue>| !queue.is_user_mode() && !excluded(queue.flags());
    let queues: Vec<_> = context.queues().into_iter().filter(takes).map(Owner::Queue).collect();
    Ok(if queues.is_empty() { vec![Owner::HwContext(context)] } else { queues })
}

/// A command that signals these fences to these values.
type QueuedSignal = fn(Vec<(AnyFence, u64)>) -> Command;

/// How a signal is queued. A value that goes back is carried out with `AllowFenceRewind` and without, as what a GPU
/// stores is.
///
/// Source: DDI page D3DDDICB_SIGNALFLAGS. Clients in the field always set `AllowFenceRewind`.
///
/// # Errors
/// STATUS_INVALID_PARAMETER for `EnqueueCpuEvent`, since these records have no event, and for reserved flags.
fn queued_signal(flags: D3DDDICB_SIGNALFLAGS) -> Result<QueuedSignal, NTSTATUS> {
    let known = D3DDDICB_SIGNALFLAGS::zeroed().with_SignalAtSubmission(true).with_AllowFenceRewind(true);
    if flags.Value & !known.Value != 0 {
        return Err(INVALID);
    }
    Ok(if flags.SignalAtSubmission() { Command::SignalAtSubmission } else { Command::Signal })
}

/// Adds a command to each queue or context, in order, or to none where one of them takes nothing any more. One that
/// goes away between the look and its turn leaves the command on those before.
fn push(owners: &[Owner], command: &Command) -> Outcome {
    for owner in owners {
        owner.device().usable()?;
        if !owner.commands().is_open() {
            return Err(ntstatus::STATUS_DEVICE_REMOVED);
        }
    }
    for owner in owners {
        if !owner.commands().push(command.clone()) {
            return Err(ntstatus::STATUS_DEVICE_REMOVED);
        }
        Worker::of(owner.device().adapter()).kick(owner.device().adapter());
    }
    DONE
}

/// The handles that a broadcast goes to, 1 to [`MOST_TARGETS`] of them.
fn targets(handles: *const u32, count: u32) -> Result<Vec<u32>, NTSTATUS> {
    if count == 0 || count > MOST_TARGETS { Err(INVALID) } else { capture::array(handles, count) }
}

thunks! {
    /// Waits and signals.
    table THUNKS;

    fn D3DKMTWaitForSynchronizationObjectFromCpu(call, record: D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU) {
        wait_from_cpu(call, record)
    }

    // A value below a fence's own is refused without `AllowFenceRewind`, and then no fence of the call is signaled.
    // Source: DDI page D3DDDICB_SIGNALFLAGS; Wine's tests of D3DKMT, which run on Windows, of monitored fences. Chosen:
    // of native ones alike.
    fn D3DKMTSignalSynchronizationObjectFromCpu(call, record: D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU) {
        let device = device(call, record.hDevice)?;
        let rewind = D3DDDICB_SIGNALFLAGS::zeroed().with_AllowFenceRewind(true);
        if record.Flags.Value & !rewind.Value != 0 {
            return Err(INVALID);
        }
        let fences = fences(call, record.ObjectHandleArray, record.FenceValueArray, record.ObjectCount, D3DDDI_SYNC_OBJECT_SIGNAL)?;
        if !record.Flags.AllowFenceRewind() && fences.iter().any(|(fence, value)| fence.value() > *value) {
            return Err(INVALID);
        }
        let mut native = Vec::new();
        for (fence, value) in fences {
            match fence {
                AnyFence::Native(fence) => native.push((fence, value)),
                AnyFence::Monitored(fence) => fence.signal(call.machine(), value),
            }
        }
        if !native.is_empty() {
            let signaled = crate::objects::fence::update::set_current(
                device.adapter(),
                &native.iter().map(|(fence, value)| (&**fence, *value)).collect::<Vec<_>>(),
            );
            for (fence, _) in &native {
                fence.rescan(call.machine());
            }
            signaled?;
        }
        DONE
    }

    fn D3DKMTWaitForSynchronizationObjectFromGpu(call, record: D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU) {
        let owners = owners(call, record.hContext, D3DDDI_CREATEHWQUEUEFLAGS::NoBroadcastWait)?;
        let fences = fences(call, record.ObjectHandleArray, record.MonitoredFenceValueArray(), record.ObjectCount, D3DDDI_SYNC_OBJECT_WAIT)?;
        push(&owners, &Command::Wait(fences))
    }

    fn D3DKMTSignalSynchronizationObjectFromGpu(call, record: D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU) {
        let owners = owners(call, record.hContext, D3DDDI_CREATEHWQUEUEFLAGS::NoBroadcastSignal)?;
        let fences = fences(call, record.ObjectHandleArray, record.MonitoredFenceValueArray(), record.ObjectCount, D3DDDI_SYNC_OBJECT_SIGNAL)?;
        push(&owners, &Command::Signal(fences))
    }

    fn D3DKMTSignalSynchronizationObjectFromGpu2(call, record: D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2) {
        let signal = queued_signal(record.Flags)?;
        let mut all = Vec::new();
        for handle in targets(record.BroadcastContextArray, record.BroadcastContextCount)? {
            all.extend(owners(call, handle, D3DDDI_CREATEHWQUEUEFLAGS::NoBroadcastSignal)?);
        }
        let fences = fences(call, record.ObjectHandleArray, record.MonitoredFenceValueArray(), record.ObjectCount, D3DDDI_SYNC_OBJECT_SIGNAL)?;
        push(&all, &signal(fences))
    }

    fn D3DKMTSubmitWaitForSyncObjectsToHwQueue(call, record: D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE) {
        let queue = call.process.hw_queue(record.hHwQueue).ok_or(INVALID)?;
        if queue.is_user_mode() {
            return Err(INVALID);
        }
        let fences = fences(call, record.ObjectHandleArray, record.FenceValueArray, record.ObjectCount, D3DDDI_SYNC_OBJECT_WAIT)?;
        push(&[Owner::Queue(queue)], &Command::Wait(fences))
    }

    fn D3DKMTSubmitSignalSyncObjectsToHwQueue(call, record: D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE) {
        let signal = queued_signal(record.Flags)?;
        let queue = |handle| {
            let queue = call.process.hw_queue(handle).filter(|queue| !queue.is_user_mode()).ok_or(INVALID)?;
            Ok(Owner::Queue(queue))
        };
        let handles = targets(record.BroadcastHwQueueArray, record.BroadcastHwQueueCount)?;
        let queues = handles.into_iter().map(queue).collect::<Result<Vec<_>, NTSTATUS>>()?;
        let fences = fences(call, record.ObjectHandleArray, record.FenceValueArray, record.ObjectCount, D3DDDI_SYNC_OBJECT_SIGNAL)?;
        push(&queues, &signal(fences))
    }
}

/// Waits, or arranges for an event to be set.
///
/// Chosen: a wait that blocks ends with STATUS_DEVICE_REMOVED when the device that it names is lost; one that sets an
/// event keeps the event, so that closing its handle ends nothing, and is given up when the device is destroyed.
fn wait_from_cpu(call: &Call, record: &D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU) -> Outcome {
    let device = device(call, record.hDevice)?;
    if record.Flags.Reserved() != 0 {
        return Err(INVALID);
    }
    let named =
        named(call, record.ObjectHandleArray, record.FenceValueArray, record.ObjectCount, D3DDDI_SYNC_OBJECT_WAIT)?;
    let (fences, locals): (Vec<_>, Vec<_>) =
        named.into_iter().map(|one| ((one.fence, one.value), one.monitored)).unzip();
    let note = |wait: &Arc<Wait>| {
        device.add_wait(wait);
        locals.iter().flatten().for_each(|local| local.add_cpu_wait(wait));
    };
    let kernel = call.machine();
    let any = record.Flags.WaitAny();
    let event = record.hAsyncEvent.expose_provenance() as u64;
    if event != 0 {
        let event = call.process.nt().handle::<Event>(event).ok_or(ntstatus::STATUS_INVALID_HANDLE)?;
        let wait = wait_for(kernel, &fences, any, Target::Event(event));
        // It outlives the call, not the device.
        note(&wait);
        return DONE;
    }
    let wait = wait_for(kernel, &fences, any, Target::Thread(Signal::new()));
    let ended = wait.signal().and_then(|signal| {
        // The device's failure ends its waits.
        note(&wait);
        let is_over = || (wait.is_over() || device.usable().is_err()).then_some(());
        call.waiting(|| signal.wait_for(kernel, None, is_over))
    });
    cancel(kernel, &fences, &wait);
    match ended {
        None => Err(ntstatus::STATUS_SYSTEM_SHUTDOWN),
        Some(()) if device.usable().is_err() => Err(ntstatus::STATUS_DEVICE_REMOVED),
        Some(()) => DONE,
    }
}
