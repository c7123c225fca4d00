//! Processes that use an adapter as far as is possible without the driver's private data.

use super::Reach;
use super::run::Run;
use crate::scenario::Raw;
use anyhow::{Result, ensure};
use dxgkrnl_model::adapter::Adapter;
use std::sync::Arc;
use wddm_abi::{
    D3DDDI_CREATECONTEXTFLAGS, D3DKMT_CREATECONTEXTVIRTUAL, D3DKMT_CREATEHWQUEUE, D3DKMT_CREATEPAGINGQUEUE,
    D3DKMT_DEVICEEXECUTION_STATE, D3DKMT_DEVICESTATE_TYPE, D3DKMT_GETDEVICESTATE, D3DKMT_HANDLE,
    D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU, D3DKMT_SUBMITCOMMAND, D3DKMT_SUBMITCOMMANDTOHWQUEUE,
};

/// Where a command buffer is said to be that is not to be executed. Nothing is mapped there.
const NOWHERE: u64 = 0x7000_0000_0000;
/// The length that it is said to have, in bytes.
const LENGTH: u32 = 64;

/// Where what was done, in words, and what was reached are noted.
struct Notes<'a> {
    run: &'a Run,
    round: &'static str,
}

impl Notes<'_> {
    /// Notes a step. Returns what it gave.
    fn tell<T>(&self, what: &str, result: Result<T>) -> Option<T> {
        let said = result.as_ref().err().map_or_else(|| "done".to_owned(), |error| format!("{error:#}"));
        self.run.seen().steps.push(format!("{} process, {what}: {said}", self.round));
        result.ok()
    }

    fn reach(&self, what: Reach) {
        self.run.seen().reach(what);
    }
}

/// What any driver must stand: a process opens the adapter, makes devices, fences and contexts, submits what is not to
/// be executed, and dies with them open.
pub(super) fn exercise(run: &Run, adapter: &Adapter) {
    let mut notes = Notes { run, round: "" };
    for round in ["orderly", "abrupt"] {
        notes.round = round;
        let process = Arc::new(run.os().create_process(round));
        let Some(raw) = notes.tell("open the adapter", Raw::open(&process, adapter.luid())) else { continue };
        notes.reach(Reach::Open);
        let Some(device) = notes.tell("create a device", raw.device().map_err(Into::into)) else { continue };
        notes.reach(Reach::Device);
        let mut queue = D3DKMT_CREATEPAGINGQUEUE::zeroed();
        queue.hDevice = device;
        notes.tell("create a paging queue", raw.ok(raw.thunks.D3DKMTCreatePagingQueue, &mut queue).map_err(Into::into));
        let monitored = raw.monitored_fence(device, 1, false);
        let monitored = notes.tell("create a monitored fence", monitored.map_err(Into::into));
        let native = notes.tell("create a native fence", raw.native_fence(device, 1).map_err(Into::into));
        for fence in [monitored, native].into_iter().flatten() {
            let signaled = raw.signal_cpu(device, &[(fence.handle, 2)]);
            notes.tell("signal it from the CPU", signaled.map_err(Into::into));
            let waited = raw.wait_cpu(device, &[(fence.handle, 2)], false, None);
            notes.tell("wait for it on the CPU", waited.map_err(Into::into));
        }
        let caps = adapter.caps().unwrap_or_default();
        for (node, info) in (0..).zip(&caps.nodes) {
            match info.is_hardware_scheduled() {
                true => submit_to_queue(&raw, device, node, &notes),
                false => submit(&raw, device, node, monitored.map(|fence| (fence.handle, 3 + u64::from(node))), &notes),
            }
        }
        if round == "orderly" {
            for fence in [monitored, native].into_iter().flatten() {
                notes.tell("destroy a fence", raw.destroy_fence(fence.handle).map_err(Into::into));
            }
            notes.tell("destroy the device", raw.destroy_device(device).map_err(Into::into));
        }
    }
    if adapter.ddi_calls().contains_key("DxgkDdiBuildPagingBuffer") {
        notes.reach(Reach::Paging);
    }
}

/// Makes a context on a node with NullRendering, for tests where the driver knows such contexts.
///
/// Source: *Kernel-mode testing of WDDM features*; D3DDDI_CREATECONTEXTFLAGS, NullRendering.
fn context(raw: &Raw, device: D3DKMT_HANDLE, node: u32, queues: bool, notes: &Notes<'_>) -> Option<D3DKMT_HANDLE> {
    let create = |tests: bool| {
        let mut record = D3DKMT_CREATECONTEXTVIRTUAL::zeroed();
        (record.hDevice, record.NodeOrdinal, record.EngineAffinity) = (device, node, 1);
        let flags = D3DDDI_CREATECONTEXTFLAGS::zeroed().with_TestContext(tests).with_NullRendering(true);
        record.Flags = flags.with_HwQueueSupported(queues);
        raw.ok(raw.thunks.D3DKMTCreateContextVirtual, &mut record).map(|()| record.hContext)
    };
    let context = create(true).or_else(|_| create(false)).map_err(Into::into);
    let context = notes.tell(&format!("create a context on node {node}"), context)?;
    notes.reach(Reach::Context);
    Some(context)
}

/// Waits until a fence has a value, for a device that goes on.
fn waited(raw: &Raw, device: D3DKMT_HANDLE, fence: D3DKMT_HANDLE, value: u64) -> Result<()> {
    raw.wait_cpu(device, &[(fence, value)], false, None)?;
    let mut state = D3DKMT_GETDEVICESTATE::zeroed();
    state.hDevice = device;
    state.StateType = D3DKMT_DEVICESTATE_TYPE::D3DKMT_DEVICESTATE_EXECUTION;
    raw.ok(raw.thunks.D3DKMTGetDeviceState, &mut state)?;
    let state = state.ExecutionState();
    let active = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_ACTIVE;
    ensure!(state == active, "the device's state is {state:?}");
    Ok(())
}

/// Submits a command buffer to a hardware queue of a context whose buffers complete without being executed.
fn submit_to_queue(raw: &Raw, device: D3DKMT_HANDLE, node: u32, notes: &Notes<'_>) {
    let Some(context) = context(raw, device, node, true, notes) else { return };
    let create = |tests: bool| {
        let mut record = D3DKMT_CREATEHWQUEUE::zeroed();
        record.hHwContext = context;
        record.Flags.set_TestQueue(tests);
        raw.ok(raw.thunks.D3DKMTCreateHwQueue, &mut record).map(|()| record)
    };
    let queue = create(true).or_else(|_| create(false)).map_err(Into::into);
    let Some(queue) = notes.tell("create a hardware queue", queue) else { return };
    let mut record = D3DKMT_SUBMITCOMMANDTOHWQUEUE::zeroed();
    (record.hHwQueue, record.HwQueueProgressFenceId) = (queue.hHwQueue, 1);
    (record.CommandBuffer, record.CommandLength) = (NOWHERE, LENGTH);
    let submitted = raw.ok(raw.thunks.D3DKMTSubmitCommandToHwQueue, &mut record).map_err(Into::into);
    let Some(()) = notes.tell("submit a command buffer that is not to be executed", submitted) else { return };
    if notes.tell("wait for its end", waited(raw, device, queue.hHwQueueProgressFence, 1)).is_some() {
        notes.reach(Reach::Submit);
    }
}

/// Submits a command buffer with NullRendering, which the driver completes without a look at it. `fence`: a monitored
/// fence, and the value that tells its end.
///
/// Source: DXGK_SUBMITCOMMANDFLAGS, NullRendering.
fn submit(raw: &Raw, device: D3DKMT_HANDLE, node: u32, fence: Option<(D3DKMT_HANDLE, u64)>, notes: &Notes<'_>) {
    let Some(context) = context(raw, device, node, false, notes) else { return };
    let mut record = D3DKMT_SUBMITCOMMAND::zeroed();
    (record.Commands, record.CommandLength, record.BroadcastContextCount) = (NOWHERE, LENGTH, 1);
    record.BroadcastContext[0] = context;
    record.Flags.set_NullRendering(true);
    let submitted = raw.ok(raw.thunks.D3DKMTSubmitCommand, &mut record).map_err(Into::into);
    let Some(()) = notes.tell("submit a command buffer that is not to be executed", submitted) else { return };
    let Some((handle, value)) = fence else { return };
    let ended = || -> Result<()> {
        let mut signal = D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU::zeroed();
        (signal.hContext, signal.ObjectCount) = (context, 1);
        signal.ObjectHandleArray = &raw const handle;
        signal.set_MonitoredFenceValueArray(&raw const value);
        raw.ok(raw.thunks.D3DKMTSignalSynchronizationObjectFromGpu, &mut signal)?;
        waited(raw, device, handle, value)
    };
    if notes.tell("wait for its end", ended()).is_some() {
        notes.reach(Reach::Submit);
    }
}
