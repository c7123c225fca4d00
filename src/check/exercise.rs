//! Processes that use an adapter as far as is possible without the driver's private data.

use super::Reach;
use super::run::Run;
use super::work::{Notes, Work, waited};
use crate::scenario::Raw;
use anyhow::Result;
use dxgkrnl_model::adapter::Adapter;
use std::sync::Arc;
use wddm_abi::{
    D3DDDI_ALLOCATIONINFO2, D3DDDI_MAKERESIDENT, D3DDDI_MAPGPUVIRTUALADDRESS, D3DKMT_CREATEALLOCATION,
    D3DKMT_CREATEPAGINGQUEUE, D3DKMT_DESTROYALLOCATION2, D3DKMT_HANDLE, D3DKMT_LOCK2, D3DKMT_UNLOCK2,
};

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
            let fence = monitored.map(|fence| (fence.handle, 2 + u64::from(node)));
            let work = Work::begin(&raw, device, node, info.is_hardware_scheduled(), fence, &notes);
            if work.is_some_and(|mut work| work.is_done(1, &notes)) {
                notes.reach(Reach::Submit);
                notes.run.seen().worked.insert(node);
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
