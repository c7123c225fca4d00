//! Thunks about what VidMm may do with allocations: priorities, offers, whether they are resident.
//!
//! Source: pages of the functions and records; article Offering and reclaiming (that an offered allocation may lose its
//! content, and is not to be used before it is reclaimed).
//!
//! Chosen: a runtime's handles of resources (`pResources`) are not known here and refused; nothing is discarded while
//! memory is not short, which is `Residency::OverBudget` here: then an offered allocation that nothing has made
//! resident loses its content; flags of an offer are looked at no further; a priority is kept and moves nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use wddm_abi::{
    D3DDDI_RECLAIM_RESULT, D3DKMT_ALLOCATIONRESIDENCYSTATUS, D3DKMT_GETALLOCATIONPRIORITY, D3DKMT_INVALIDATECACHE,
    D3DKMT_OFFERALLOCATIONS, D3DKMT_QUERYALLOCATIONRESIDENCY, D3DKMT_RECLAIMALLOCATIONS, D3DKMT_RECLAIMALLOCATIONS2,
    D3DKMT_SETALLOCATIONPRIORITY, NTSTATUS,
};

use super::device::device;
use super::memory::allocations;
use super::{Call, DONE, INVALID, capture, thunks};
use crate::memory::allocation::Place;
use crate::objects::device::Device;
use crate::objects::open_allocation::OpenAllocation;
use crate::port::personality::Residency;

/// The priorities that the page lists, D3DDDI_ALLOCATIONPRIORITY_MINIMUM to _MAXIMUM.
const PRIORITIES: [u32; 5] = [0x2800_0000, 0x5000_0000, 0x7800_0000, 0xA000_0000, 0xC800_0000];

/// The allocations that a call names: those of a resource, or a list, and not both.
fn named(
    call: &Call,
    device: &Arc<Device>,
    resource: u32,
    (list, count): (*const u32, u32),
) -> Result<Vec<Arc<OpenAllocation>>, NTSTATUS> {
    if resource == 0 {
        return allocations(call, device, list, count);
    }
    let resource = call.process.resource(resource).ok_or(INVALID)?;
    if count != 0 || !list.is_null() || !Arc::ptr_eq(resource.device(), device) {
        return Err(INVALID);
    }
    resource.children().iter().map(|handle| call.process.allocation(*handle).ok_or(INVALID)).collect()
}

/// Where an allocation is, as D3DKMTQueryAllocationResidency has it.
fn residency(open: &OpenAllocation) -> D3DKMT_ALLOCATIONRESIDENCYSTATUS {
    use D3DKMT_ALLOCATIONRESIDENCYSTATUS as Status;
    let caps = open.allocation().adapter().known_caps();
    match open.allocation().lies().0 {
        Place::Evicted => Status::D3DKMT_ALLOCATIONRESIDENCYSTATUS_NOTRESIDENT,
        Place::Segment { id, .. } if caps.segment(id).is_some_and(|segment| !segment.is_aperture()) => {
            Status::D3DKMT_ALLOCATIONRESIDENCYSTATUS_RESIDENTINGPUMEMORY
        }
        _ => Status::D3DKMT_ALLOCATIONRESIDENCYSTATUS_RESIDENTINSHAREDMEMORY,
    }
}

/// Reclaims what was offered. Returns for each whether its content is gone.
fn reclaim(opens: &[Arc<OpenAllocation>]) -> Vec<bool> {
    opens.iter().map(|open| open.allocation().reclaim()).collect()
}

thunks! {
    /// What VidMm may do with allocations.
    table THUNKS;

    fn D3DKMTSetAllocationPriority(call, record: D3DKMT_SETALLOCATIONPRIORITY) {
        let device = device(call, record.hDevice)?;
        let opens = named(call, &device, record.hResource, (record.phAllocationList, record.AllocationCount))?;
        let count = if record.hResource == 0 { record.AllocationCount } else { 1 };
        let priorities: Vec<u32> = capture::array(record.pPriorities, count)?;
        if priorities.iter().any(|priority| !PRIORITIES.contains(priority)) {
            return Err(INVALID);
        }
        // One for all of a resource.
        for (open, priority) in opens.iter().zip(priorities.iter().cycle()) {
            open.allocation().priority.store(*priority, Ordering::Release);
        }
        DONE
    }

    fn D3DKMTGetAllocationPriority(call, record: D3DKMT_GETALLOCATIONPRIORITY) {
        let device = device(call, record.hDevice)?;
        let mut opens = named(call, &device, record.hResource, (record.phAllocationList, record.AllocationCount))?;
        if record.hResource != 0 {
            opens.truncate(1);
        }
        let all = opens.iter().map(|open| open.allocation().priority.load(Ordering::Acquire).to_le_bytes());
        let bytes: Vec<u8> = all.flatten().collect();
        capture::store(record.pPriorities.expose_provenance(), &bytes)?;
        DONE
    }

    fn D3DKMTQueryAllocationResidency(call, record: D3DKMT_QUERYALLOCATIONRESIDENCY) {
        let device = device(call, record.hDevice)?;
        let opens = named(call, &device, record.hResource, (record.phAllocationList, record.AllocationCount))?;
        let mut found: Vec<_> = opens.iter().map(|open| residency(open).0).collect();
        if record.hResource != 0 {
            // The resource is as its worst allocation: the numbers rise from memory of the GPU to nowhere.
            found = found.into_iter().max().into_iter().collect();
        }
        let bytes: Vec<u8> = found.iter().flat_map(|status| status.to_le_bytes()).collect();
        capture::store(record.pResidencyStatus.expose_provenance(), &bytes)?;
        DONE
    }

    fn D3DKMTOfferAllocations(call, record: D3DKMT_OFFERALLOCATIONS) {
        let device = device(call, record.hDevice)?;
        // D3DKMT_OFFER_PRIORITY: low, normal, high, automatic.
        if !record.pResources.is_null() || !(1..=4).contains(&record.Priority.0) {
            return Err(INVALID);
        }
        let opens = allocations(call, &device, record.HandleList, record.NumAllocations)?;
        let is_short = device.adapter().personality().user_mode.residency == Residency::OverBudget;
        for open in &opens {
            open.allocation().offer(is_short);
        }
        DONE
    }

    fn D3DKMTReclaimAllocations(call, record: D3DKMT_RECLAIMALLOCATIONS) {
        let device = device(call, record.hDevice)?;
        if !record.pResources.is_null() {
            return Err(INVALID);
        }
        let discarded = reclaim(&allocations(call, &device, record.HandleList, record.NumAllocations)?);
        if !record.pDiscarded.is_null() {
            let bytes: Vec<u8> = discarded.iter().flat_map(|gone| i32::from(*gone).to_le_bytes()).collect();
            capture::store(record.pDiscarded.expose_provenance(), &bytes)?;
        }
        DONE
    }

    fn D3DKMTReclaimAllocations2(call, record: D3DKMT_RECLAIMALLOCATIONS2) {
        let queue = call.process.paging_queue(record.hPagingQueue).ok_or(INVALID)?;
        if !record.pResources.is_null() {
            return Err(INVALID);
        }
        let opens = allocations(call, queue.device(), record.HandleList, record.NumAllocations)?;
        let result = |gone: &bool| match gone {
            true => D3DDDI_RECLAIM_RESULT::D3DDDI_RECLAIM_RESULT_DISCARDED,
            false => D3DDDI_RECLAIM_RESULT::D3DDDI_RECLAIM_RESULT_OK,
        };
        let bytes: Vec<u8> = reclaim(&opens).iter().flat_map(|gone| result(gone).0.to_le_bytes()).collect();
        let results = record.pResults().expose_provenance();
        if results != 0 {
            capture::store(results, &bytes)?;
        }
        // Nothing is on its way back.
        record.PagingFenceValue = 0;
        DONE
    }

    fn D3DKMTInvalidateCache(call, record: D3DKMT_INVALIDATECACHE) {
        let device = device(call, record.hDevice)?;
        let open = call.process.allocation(record.hAllocation).ok_or(INVALID)?;
        // CAST: D3DKMT_SIZE_T has 64 bits here.
        let (offset, length) = (record.Offset as u64, record.Length as u64);
        let fits = offset.checked_add(length).is_some_and(|end| end <= open.allocation().size());
        // Nothing to do where caches are coherent, as they are here.
        if fits && Arc::ptr_eq(open.device(), &device) { DONE } else { Err(INVALID) }
    }
}
