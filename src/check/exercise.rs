//! Processes that use an adapter as far as is possible without the driver's private data.

use super::Reach;
use super::run::Run;
use crate::scenario::Raw;
use anyhow::{Result, ensure};
use dxgkrnl_model::adapter::Adapter;
use std::sync::Arc;
use wddm_abi::{
    D3DDDI_ALLOCATIONINFO2, D3DDDI_CREATECONTEXTFLAGS, D3DDDI_MAKERESIDENT, D3DDDI_MAPGPUVIRTUALADDRESS,
    D3DKMT_CREATEALLOCATION, D3DKMT_CREATECONTEXTVIRTUAL, D3DKMT_CREATEHWQUEUE, D3DKMT_CREATEPAGINGQUEUE,
    D3DKMT_DESTROYALLOCATION2, D3DKMT_DEVICEEXECUTION_STATE, D3DKMT_DEVICESTATE_TYPE, D3DKMT_GETDEVICESTATE,
    D3DKMT_HANDLE, D3DKMT_LOCK2, D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU, D3DKMT_SUBMITCOMMAND,
    D3DKMT_SUBMITCOMMANDTOHWQUEUE, D3DKMT_UNLOCK2,
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
pub(super) fn exercise(run: &Run, adapter: &Arc<Adapter>) {
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
        let paging = raw.ok(raw.thunks.D3DKMTCreatePagingQueue, &mut queue).map_err(Into::into);
        let paging = notes.tell("create a paging queue", paging);
        let paging = paging.map(|()| (queue.hPagingQueue, queue.hSyncObject));
        let private = {
            let _inside = process.enter();
            adapter.cross_adapter_data()
        };
        let allocation = private.and_then(|private| allocate(&raw, device, private, paging, &notes));
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
            if let Some(allocation) = allocation {
                notes.tell("destroy the allocation", destroy(&raw, device, allocation));
            }
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

/// Makes an allocation with the driver's private data of a cross-adapter resource, has it resident and mapped for the
/// GPU, and writes to it, where the CPU sees it. `paging`: a paging queue and its fence.
fn allocate(
    raw: &Raw,
    device: D3DKMT_HANDLE,
    mut private: [Vec<u8>; 2],
    paging: Option<(D3DKMT_HANDLE, D3DKMT_HANDLE)>,
    notes: &Notes<'_>,
) -> Option<D3DKMT_HANDLE> {
    let mut info = D3DDDI_ALLOCATIONINFO2::zeroed();
    let mut record = D3DKMT_CREATEALLOCATION::zeroed();
    (record.hDevice, record.NumAllocations) = (device, 1);
    let [own, shared] = &mut private;
    // CAST: the model takes no more than 64 KiB of the driver.
    (info.PrivateDriverDataSize, record.PrivateDriverDataSize) = (own.len() as u32, shared.len() as u32);
    info.pPrivateDriverData = own.as_mut_ptr().cast();
    record.set_pPrivateDriverData(shared.as_ptr().cast());
    record.set_pAllocationInfo2(&raw mut info);
    let made = raw.ok(raw.thunks.D3DKMTCreateAllocation2, &mut record).map_err(Into::into);
    notes.tell("create an allocation", made)?;
    let allocation = info.hAllocation;
    notes.reach(Reach::Allocation);
    if let Some((queue, fence)) = paging {
        notes.tell("make it resident and map it", map(notes, raw, device, allocation, (queue, fence)));
    }
    notes.tell("write to it", write(raw, device, allocation));
    Some(allocation)
}

fn map(
    notes: &Notes<'_>,
    raw: &Raw,
    device: D3DKMT_HANDLE,
    allocation: D3DKMT_HANDLE,
    (queue, fence): (D3DKMT_HANDLE, D3DKMT_HANDLE),
) -> Result<()> {
    let mut resident = D3DDDI_MAKERESIDENT::zeroed();
    (resident.hPagingQueue, resident.NumAllocations) = (queue, 1);
    resident.AllocationList = &raw const allocation;
    raw.ok(raw.thunks.D3DKMTMakeResident, &mut resident)?;
    let mut map = D3DDDI_MAPGPUVIRTUALADDRESS::zeroed();
    (map.hPagingQueue, map.hAllocation) = (queue, allocation);
    map.Protection.set_Write(true);
    raw.ok(raw.thunks.D3DKMTMapGpuVirtualAddress, &mut map)?;
    waited(notes, raw, device, fence, resident.PagingFenceValue.max(map.PagingFenceValue))
}

fn write(raw: &Raw, device: D3DKMT_HANDLE, allocation: D3DKMT_HANDLE) -> Result<()> {
    let mut lock = D3DKMT_LOCK2::zeroed();
    (lock.hDevice, lock.hAllocation) = (device, allocation);
    raw.ok(raw.thunks.D3DKMTLock2, &mut lock)?;
    let stored = raw.store(lock.pData.expose_provenance(), u64::MAX);
    let mut unlock = D3DKMT_UNLOCK2::zeroed();
    (unlock.hDevice, unlock.hAllocation) = (device, allocation);
    raw.ok(raw.thunks.D3DKMTUnlock2, &mut unlock)?;
    Ok(stored?)
}

fn destroy(raw: &Raw, device: D3DKMT_HANDLE, allocation: D3DKMT_HANDLE) -> Result<()> {
    let mut record = D3DKMT_DESTROYALLOCATION2::zeroed();
    (record.hDevice, record.AllocationCount) = (device, 1);
    record.phAllocationList = &raw const allocation;
    Ok(raw.ok(raw.thunks.D3DKMTDestroyAllocation2, &mut record)?)
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

/// Waits until a fence has a value, for a device that goes on, as long as the driver may take for it.
fn waited(notes: &Notes<'_>, raw: &Raw, device: D3DKMT_HANDLE, fence: D3DKMT_HANDLE, value: u64) -> Result<()> {
    let (event, handle) = raw.event();
    raw.wait_cpu(device, &[(fence, value)], false, Some(handle))?;
    let limit = notes.run.deadline();
    let ended = raw.wait_event(&event, limit);
    raw.close(handle);
    ensure!(ended, "it has not ended within {limit:?}");
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
    if notes.tell("wait for its end", waited(notes, raw, device, queue.hHwQueueProgressFence, 1)).is_some() {
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
        waited(notes, raw, device, handle, value)
    };
    if notes.tell("wait for its end", ended()).is_some() {
        notes.reach(Reach::Submit);
    }
}
