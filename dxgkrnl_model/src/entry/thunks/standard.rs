//! `D3DKMTCreateAllocation` of standard allocations: memory that a process has already, and memory that the driver
//! knows nothing of.
//!
//! Source: DDI pages D3DKMTCreateAllocation, D3DKMT_CREATEALLOCATIONFLAGS, D3DKMT_CREATESTANDARDALLOCATION; Microsoft's
//! dxgkrnl for Linux (neither private data nor more than one allocation); Wine's tests of D3DKMT, which run on Windows.
//!
//! Chosen: the pages ask for CreateShared and CrossAdapter with every standard allocation, while the example beside it
//! sets neither, as those tests do: they are taken with both and without. CrossAdapter is of what is shared.

use std::sync::Arc;

use wddm_abi::{
    D3DDDI_ALLOCATIONINFO, D3DKMT_CREATEALLOCATION, D3DKMT_CREATESTANDARDALLOCATION, D3DKMT_STANDARDALLOCATIONTYPE,
    NTSTATUS, Plain, ntstatus,
};

use super::{Call, DONE, INVALID, Outcome, capture};
use crate::objects::device::Device;
use crate::objects::open_allocation::existing::{self, Heap};
use crate::objects::open_allocation::standard;

/// Makes a standard allocation.
///
/// # Errors
/// STATUS_INVALID_PARAMETER; STATUS_INVALID_HANDLE for a resource that there is not; STATUS_NOT_SUPPORTED for a
/// section; those of [`existing::create`] and [`standard::create`].
pub(super) fn create(call: &Call, device: &Arc<Device>, record: &mut D3DKMT_CREATEALLOCATION) -> Outcome {
    use D3DKMT_STANDARDALLOCATIONTYPE as Type;
    let wanted: D3DKMT_CREATESTANDARDALLOCATION = capture::read(record.pStandardAllocation().expose_provenance())?;
    if record.hResource != 0 && call.process.resource(record.hResource).is_none() {
        return Err(ntstatus::STATUS_INVALID_HANDLE);
    }
    let is_alone = record.NumAllocations == 1 && record.hResource == 0;
    let is_bare = record.PrivateDriverDataSize == 0 && record.PrivateRuntimeDataSize == 0;
    if !is_alone || !is_bare || wanted.Flags.Value != 0 {
        return Err(INVALID);
    }
    let at = record.pAllocationInfo2().expose_provenance();
    let mut info: D3DDDI_ALLOCATIONINFO = capture::read(at)?;
    if info.PrivateDriverDataSize != 0 {
        return Err(INVALID);
    }
    // CAST: D3DKMT_SIZE_T has 64 bits here.
    let bytes = wanted.ExistingHeapData().Size as u64;
    match wanted.Type {
        Type::D3DKMT_STANDARDALLOCATIONTYPE_EXISTINGHEAP => {
            let heap = heap(record, &info, bytes)?;
            let made = existing::create(&call.process, device, &heap)?;
            made.allocations.iter().chain([&made.resource]).for_each(|handle| call.makes(*handle));
            info.hAllocation = made.allocations.first().copied().unwrap_or_default();
            record.hResource = made.resource;
        }
        Type::D3DKMT_STANDARDALLOCATIONTYPE_INTERNALBACKINGSTORE => {
            let flags = record.Flags;
            if flags.ExistingSysMem() || flags.ExistingSection() || flags.CreateShared() || flags.CrossAdapter() {
                return Err(INVALID);
            }
            info.hAllocation = standard::create(&call.process, device, bytes)?;
            call.makes(info.hAllocation);
        }
        _ => return Err(INVALID),
    }
    record.hGlobalShare = 0;
    capture::store(at, info.as_bytes())?;
    DONE
}

/// The heap that a record describes.
///
/// # Errors
/// STATUS_INVALID_PARAMETER; STATUS_NOT_SUPPORTED.
fn heap(record: &D3DKMT_CREATEALLOCATION, info: &D3DDDI_ALLOCATIONINFO, bytes: u64) -> Result<Heap, NTSTATUS> {
    let flags = record.Flags;
    let is_shared = flags.CreateShared();
    if flags.ExistingSysMem() == flags.ExistingSection()
        || (is_shared && !(flags.CreateResource() && flags.NtSecuritySharing()))
        || (flags.CrossAdapter() && !is_shared)
    {
        return Err(INVALID);
    }
    if flags.ExistingSection() {
        return Err(ntstatus::STATUS_NOT_SUPPORTED);
    }
    Ok(Heap {
        address: info.pSystemMem.expose_provenance(),
        bytes,
        resource: flags.CreateResource(),
        shared: is_shared,
    })
}
