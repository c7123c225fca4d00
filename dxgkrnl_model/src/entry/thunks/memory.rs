//! Thunks about memory: allocations, residency, GPU virtual addresses.

use std::sync::Arc;

use wddm_abi::{
    D3DDDI_ALLOCATIONINFO, D3DDDI_ALLOCATIONINFO2, D3DDDI_DESTROYPAGINGQUEUE, D3DDDI_MAKERESIDENT,
    D3DDDI_MAPGPUVIRTUALADDRESS, D3DDDI_RESERVEGPUVIRTUALADDRESS, D3DDDIGPUVIRTUALADDRESS_PROTECTION_TYPE,
    D3DKMT_CREATEALLOCATION, D3DKMT_CREATEPAGINGQUEUE, D3DKMT_DESTROYALLOCATION, D3DKMT_DESTROYALLOCATION2,
    D3DKMT_EVICT, D3DKMT_FREEGPUVIRTUALADDRESS, D3DKMT_LOCK2, D3DKMT_UNLOCK2, NTSTATUS, Plain, ntstatus,
};

use super::device::{device, private};
use super::{Call, DONE, INVALID, Outcome, capture, thunks};
use crate::memory::va::{PAGE, Protection, Wanted};
use crate::objects::device::Device;
use crate::objects::open_allocation::{OpenAllocation, Request};
use crate::objects::paging_queue::{self, MapRequest, PagingQueue};
use crate::objects::process::UserObject;
use crate::objects::{companion, open_allocation};
use crate::port::handle::HandleType;
use crate::port::miniport::Miniport;
use crate::port::personality::Residency;

/// Bytes that reservations are made in, and that some Windows maps memory in which the CPU does not see.
const UNIT: u64 = 0x1_0000;
/// Most allocations that one call names. Source: Microsoft's dxgkrnl for Linux, which refuses more.
const LIMIT: u32 = 10_240;
/// Most allocations that D3DKMTCreateAllocation makes. Source: as above.
const MOST_MADE: u32 = 1024;

/// Allocations of a device by handle.
pub(super) fn allocations(
    call: &Call,
    device: &Arc<Device>,
    list: *const u32,
    count: u32,
) -> Result<Vec<Arc<OpenAllocation>>, NTSTATUS> {
    if count == 0 || count > LIMIT {
        return Err(INVALID);
    }
    let find = |handle: u32| {
        let open = call.process.allocation(handle)?;
        Arc::ptr_eq(open.device(), device).then_some(open)
    };
    capture::array(list, count)?.into_iter().map(|handle| find(handle).ok_or(INVALID)).collect()
}

/// Protection of user mode's range.
pub(super) fn protection(raw: &D3DDDIGPUVIRTUALADDRESS_PROTECTION_TYPE) -> Result<Protection, NTSTATUS> {
    if raw.Reserved() != 0 || raw.SystemUseOnly() || (raw.Zero() && raw.NoAccess()) {
        return Err(INVALID);
    }
    Ok(Protection { write: raw.Write(), execute: raw.Execute(), zero: raw.Zero(), no_access: raw.NoAccess() })
}

/// Chosen: where the GPU uses the CPU's addresses, or physical ones, there are no others to map or reserve.
pub(super) fn has_gpu_addresses(adapter: &Miniport) -> Result<(), NTSTATUS> {
    if adapter.known_caps().is_gpu_mmu() { Ok(()) } else { Err(ntstatus::STATUS_NOT_SUPPORTED) }
}

thunks! {
    /// Memory.
    table THUNKS;

    fn D3DKMTCreatePagingQueue(call, record: D3DKMT_CREATEPAGINGQUEUE) {
        let device = device(call, record.hDevice)?;
        if record.PhysicalAdapterIndex != 0 {
            return Err(INVALID);
        }
        let queue = PagingQueue::create(&device)?;
        let fence = queue.fence().clone();
        record.FenceValueCPUVirtualAddress = core::ptr::with_exposed_provenance_mut(fence.view().user);
        record.hSyncObject = call.insert(UserObject::Monitored(fence))?;
        queue.set_fence_handle(record.hSyncObject);
        record.hPagingQueue = call.insert(UserObject::PagingQueue(queue))?;
        DONE
    }

    fn D3DKMTDestroyPagingQueue(call, record: D3DDDI_DESTROYPAGINGQUEUE) {
        call.uses_device(call.process.paging_queue(record.hPagingQueue).ok_or(INVALID)?.device())?;
        match call.process.remove(record.hPagingQueue, HandleType::PagingQueue) {
            Some(UserObject::PagingQueue(queue)) => {
                queue.destroy();
                let fence = call.process.remove(queue.fence_handle(), HandleType::SyncObject);
                drop(fence);
                DONE
            }
            _ => Err(INVALID),
        }
    }

    fn D3DKMTCreateAllocation2(call, record: D3DKMT_CREATEALLOCATION) {
        create(call, record, size_of::<D3DDDI_ALLOCATIONINFO2>())
    }

    fn D3DKMTCreateAllocation(call, record: D3DKMT_CREATEALLOCATION) {
        create(call, record, size_of::<D3DDDI_ALLOCATIONINFO>())
    }

    fn D3DKMTDestroyAllocation2(call, record: D3DKMT_DESTROYALLOCATION2) {
        if record.Flags.Reserved() != 0 {
            return Err(INVALID);
        }
        let list = (record.phAllocationList, record.AllocationCount);
        destroy(call, (record.hDevice, record.hResource), list)
    }

    fn D3DKMTDestroyAllocation(call, record: D3DKMT_DESTROYALLOCATION) {
        let list = (record.phAllocationList, record.AllocationCount);
        destroy(call, (record.hDevice, record.hResource), list)
    }

    fn D3DKMTMakeResident(call, record: D3DDDI_MAKERESIDENT) {
        let queue = call.process.paging_queue(record.hPagingQueue).ok_or(INVALID)?;
        if record.Flags.Reserved() != 0 {
            return Err(INVALID);
        }
        let opens = allocations(call, queue.device(), record.AllocationList, record.NumAllocations)?;
        let residency = queue.device().adapter().personality().user_mode.residency;
        let forced = record.Flags.CantTrimFurther();
        let trimmed = queue.device().has_trimmed(forced);
        if residency == Residency::OverBudget && !forced && !trimmed {
            let (fit, rest) = opens.split_at(opens.len() / 2);
            record.PagingFenceValue = if fit.is_empty() { 0 } else { queue.make_resident(fit)? };
            // CAST: fewer than were asked for.
            record.NumAllocations = fit.len() as u32;
            record.NumBytesToTrim = rest.iter().map(|open| open.allocation().size()).sum();
            queue.device().ask_to_trim(record.NumBytesToTrim);
            // Not an error of the thunk: the record goes back.
            return Ok(ntstatus::STATUS_NO_MEMORY);
        }
        let resident = opens.iter().all(|open| open.allocation().is_resident());
        let value = queue.make_resident(&opens)?;
        record.NumBytesToTrim = 0;
        finish(&queue, value, residency == Residency::Immediate || resident, &mut record.PagingFenceValue)
    }

    fn D3DKMTEvict(call, record: D3DKMT_EVICT) {
        let device = device(call, record.hDevice)?;
        let opens = allocations(call, &device, record.AllocationList, record.NumAllocations)?;
        paging_queue::evict(&device, &opens)?;
        device.trimmed(opens.iter().map(|open| open.allocation().size()).sum());
        record.NumBytesToTrim = 0;
        DONE
    }

    fn D3DKMTLock2(call, record: D3DKMT_LOCK2) {
        let device = device(call, record.hDevice)?;
        let open = call.process.allocation(record.hAllocation).ok_or(INVALID)?;
        if !Arc::ptr_eq(open.device(), &device) || record.Flags.Value != 0 {
            return Err(INVALID);
        }
        record.pData = core::ptr::with_exposed_provenance_mut(open.lock_for_cpu(&call.process)?);
        DONE
    }

    fn D3DKMTUnlock2(call, record: D3DKMT_UNLOCK2) {
        let device = call.process.device(record.hDevice).ok_or(INVALID)?;
        let open = call.process.allocation(record.hAllocation).ok_or(INVALID)?;
        if !Arc::ptr_eq(open.device(), &device) {
            return Err(INVALID);
        }
        open.unlock_for_cpu()?;
        DONE
    }

    fn D3DKMTMapGpuVirtualAddress(call, record: D3DDDI_MAPGPUVIRTUALADDRESS) {
        let queue = call.process.paging_queue(record.hPagingQueue).ok_or(INVALID)?;
        has_gpu_addresses(queue.device().adapter())?;
        let protection = protection(&record.Protection)?;
        let bare = protection.zero || protection.no_access;
        // A range without access may name the allocation that it had, as a public user-mode driver does to unmap it.
        let named = record.hAllocation != 0;
        if record.Reserved0 != 0 || record.Reserved1 != 0 || (bare == named && !(named && protection.no_access)) {
            return Err(INVALID);
        }
        let allocation = match record.hAllocation {
            0 => None,
            handle => Some(call.process.allocation(handle).ok_or(INVALID)?),
        };
        if allocation.as_ref().is_some_and(|open| !Arc::ptr_eq(open.device(), queue.device())) {
            return Err(INVALID);
        }
        // Nothing of it is mapped.
        let allocation = allocation.filter(|_| !protection.no_access);
        let bytes = |pages: u64| pages.checked_mul(PAGE).ok_or(INVALID);
        let whole = [record.BaseAddress, record.MinimumAddress, record.MaximumAddress];
        if !whole.iter().all(|address| address.is_multiple_of(PAGE)) {
            return Err(INVALID);
        }
        let size = match (bytes(record.SizeInPages)?, &allocation) {
            // Chosen: 0 pages is the whole allocation.
            (0, Some(open)) => open.allocation().size(),
            (size, _) => size,
        };
        if size == 0 {
            return Err(INVALID);
        }
        // An allocation has a size of its own; without one nothing bounds the page tables.
        if allocation.is_none() && size / PAGE > MOST_PAGES {
            return Err(ntstatus::STATUS_NO_MEMORY);
        }
        let in_units = |open: &Arc<OpenAllocation>| {
            let numbers = [size, record.BaseAddress, bytes(record.OffsetInPages).unwrap_or(1)];
            !open.allocation().is_hidden() || numbers.iter().all(|number| number.is_multiple_of(UNIT))
        };
        let adapter = queue.device().adapter();
        if adapter.personality().user_mode.local_in_64k && !allocation.as_ref().is_none_or(in_units) {
            return Err(INVALID);
        }
        let request = MapRequest {
            wanted: Wanted {
                size,
                base: record.BaseAddress,
                minimum: record.MinimumAddress,
                maximum: record.MaximumAddress,
                alignment: 0,
            },
            offset: bytes(record.OffsetInPages)?,
            allocation,
            protection,
            driver_protection: record.DriverProtection,
        };
        let (address, value) = queue.map(&request)?;
        record.VirtualAddress = address;
        let at_once = queue.device().adapter().personality().user_mode.residency == Residency::Immediate;
        finish(&queue, value, at_once, &mut record.PagingFenceValue)
    }

    fn D3DKMTReserveGpuVirtualAddress(call, record: D3DDDI_RESERVEGPUVIRTUALADDRESS) {
        // The member is a union: public user-mode drivers pass the adapter or a paging queue of it.
        let gpu_process = match call.process.paging_queue(record.hAdapter()) {
            Some(queue) => queue.device().process().clone(),
            None => super::adapter::adapter(call, record.hAdapter())?,
        };
        has_gpu_addresses(gpu_process.adapter())?;
        // Source: DDI page D3DDDI_RESERVEGPUVIRTUALADDRESS: with a base the limits are not looked at.
        let limits = if record.BaseAddress == 0 { [record.MinimumAddress, record.MaximumAddress] } else { [0; 2] };
        let mut all = limits.into_iter().chain([record.BaseAddress, record.Size]);
        if record.Size == 0 || !all.all(|number| number.is_multiple_of(UNIT)) {
            return Err(INVALID);
        }
        let wanted = Wanted {
            size: record.Size,
            base: record.BaseAddress,
            minimum: limits[0],
            maximum: limits[1],
            alignment: UNIT,
        };
        if gpu_process.adapter().personality().privileged_at_reservation {
            companion::privileged_of(&gpu_process)?;
        }
        record.VirtualAddress = paging_queue::reserve(&gpu_process, &wanted)?;
        DONE
    }

    fn D3DKMTFreeGpuVirtualAddress(call, record: D3DKMT_FREEGPUVIRTUALADDRESS) {
        let gpu_process = super::adapter::adapter(call, record.hAdapter)?;
        if record.BaseAddress == 0 || !(record.BaseAddress | record.Size).is_multiple_of(PAGE) {
            return Err(INVALID);
        }
        paging_queue::free(&gpu_process, record.BaseAddress, record.Size)?;
        DONE
    }
}

/// The answer to a paging operation: pending, with the value that says that it is done, or (`at_once`) done, with 0.
fn finish(queue: &PagingQueue, value: u64, at_once: bool, answer: &mut u64) -> Outcome {
    if at_once {
        queue.settle();
        *answer = 0;
        return DONE;
    }
    *answer = value;
    Ok(ntstatus::STATUS_PENDING)
}

/// Most pages whose entries one call changes without memory behind them: 16 GB of addresses, and page tables of 32 MB
/// for them. Chosen: the pages say STATUS_INVALID_PARAMETER of wrong parameters and "might also return other" values;
/// beyond this there is no memory for the page tables. What a call asks for is carried out by a worker that all
/// processes share.
pub(super) const MOST_PAGES: u64 = 1 << 22;

/// Flags of D3DKMT_CREATEALLOCATIONFLAGS that the model knows: resource, sharing, security of NT handles, cache types,
/// zeroing, protection by not being protected.
const KNOWN_FLAGS: u32 = 0x1 | 0x2 | 0x4 | 0x40 | 0x80 | 0x100 | 0x200 | 0x4000 | 0x4_0000 | 0x40_0000;

/// Destroys the allocations of a resource, or those of a list.
fn destroy(call: &Call, (device, resource): (u32, u32), (list, count): (*const u32, u32)) -> Outcome {
    let device = call.process.device(device).ok_or(INVALID)?;
    call.uses_device(&device)?;
    let handles = if resource != 0 {
        let owner = call.process.resource(resource).ok_or(INVALID)?;
        if count != 0 || !Arc::ptr_eq(owner.device(), &device) {
            return Err(INVALID);
        }
        owner.children().to_vec()
    } else if count == 0 {
        // Nothing to destroy. Source: Wine's tests of D3DKMT, which run on Windows; Microsoft's dxgkrnl for Linux
        // refuses it.
        return DONE;
    } else {
        let opens = allocations(call, &device, list, count)?;
        // Source: Microsoft's dxgkrnl for Linux, whose answers are the host's: what belongs to a shared resource goes
        // with it.
        let is_shared = |open: &Arc<OpenAllocation>| {
            call.process.resource(open.resource_handle()).is_some_and(|resource| resource.resource().shared)
        };
        if opens.iter().any(is_shared) {
            return Err(INVALID);
        }
        opens.iter().map(|open| open.handle()).collect()
    };
    if resource != 0
        && let Some(UserObject::Resource(gone)) = call.process.remove(resource, HandleType::Resource)
    {
        gone.destroy();
    }
    for handle in handles {
        if let Some(UserObject::Allocation(open)) = call.process.remove(handle, HandleType::Allocation) {
            open.destroy();
        }
    }
    DONE
}

/// Makes allocations, each of which has a record of `stride` bytes: D3DDDI_ALLOCATIONINFO, or D3DDDI_ALLOCATIONINFO2,
/// which begins with the same members.
fn create(call: &Call, record: &mut D3DKMT_CREATEALLOCATION, stride: usize) -> Outcome {
    let device = device(call, record.hDevice)?;
    let flags = record.Flags;
    if flags.Reserved() != 0 || record.NumAllocations == 0 || record.NumAllocations > MOST_MADE {
        return Err(INVALID);
    }
    if flags.StandardAllocation() {
        return super::standard::create(call, &device, record);
    }
    // Source: DDI page D3DKMTCreateAllocation ("is only supported with StandardAllocation").
    if flags.ExistingSysMem() || flags.ExistingSection() {
        return Err(INVALID);
    }
    if flags.bits0 & !KNOWN_FLAGS != 0 {
        return Err(ntstatus::STATUS_NOT_SUPPORTED);
    }
    // Source: Wine's tests of D3DKMT, which run on Windows, with CreateResource and without.
    if record.hResource != 0 && call.process.resource(record.hResource).is_none() {
        return Err(ntstatus::STATUS_INVALID_HANDLE);
    }
    // Sharing needs a resource, and NT handles; an existing resource takes no more allocations here.
    if (flags.CreateShared() && !(flags.CreateResource() && flags.NtSecuritySharing())) || record.hResource != 0 {
        return Err(INVALID);
    }
    let start = record.pAllocationInfo2().expose_provenance();
    // CAST: at most MOST_MADE.
    let at = |index: usize| start + index * stride;
    let infos = (0..record.NumAllocations as usize).map(|index| capture::read::<D3DDDI_ALLOCATIONINFO>(at(index)));
    let infos = infos.collect::<Result<Vec<_>, _>>()?;
    if infos.iter().any(|info| !info.pSystemMem.is_null()) {
        return Err(ntstatus::STATUS_NOT_SUPPORTED);
    }
    let privates =
        infos.iter().map(|info| private(info.pPrivateDriverData.expose_provenance(), info.PrivateDriverDataSize));
    let mut request = Request {
        allocations: privates.collect::<Result<_, _>>()?,
        private: private(record.pPrivateDriverData().expose_provenance(), record.PrivateDriverDataSize)?,
        runtime: private(record.pPrivateRuntimeData.expose_provenance(), record.PrivateRuntimeDataSize)?,
        resource: flags.CreateResource(),
        shared: flags.CreateShared(),
        existing: None,
    };
    let created = open_allocation::create(&call.process, &device, &mut request)?;
    created.allocations.iter().chain([&created.resource]).for_each(|handle| call.makes(*handle));
    for ((index, mut info), handle) in infos.into_iter().enumerate().zip(&created.allocations) {
        info.hAllocation = *handle;
        capture::store(info.pPrivateDriverData.expose_provenance(), &request.allocations[index])?;
        capture::store(at(index), info.as_bytes())?;
    }
    record.hResource = created.resource;
    // Global handles are not made here. Source: Wine's tests: whatever was in the member is gone.
    record.hGlobalShare = 0;
    DONE
}
