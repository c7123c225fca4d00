//! Memory of a process as an allocation: a heap that exists already.
//!
//! The driver is asked to describe the heap as a standard allocation ([`standard::heap`]), and to create it of what it
//! has said. The memory is secured until the allocation goes, so that the process cannot free it; a GPU reaches it
//! where it is.
//!
//! Source: DDI pages D3DKMTCreateAllocation (arguments), D3DKMT_CREATEALLOCATIONFLAGS (ExistingSysMem: sizes, what the
//! driver is asked, memory that the kernel moves is refused), DXGK_ALLOCATIONINFOFLAGS_WDDM2_0 (ExistingSysMem).
//!
//! Chosen: a driver that does not report CrossAdapterResource is not asked, since the surface is a cross-adapter one,
//! and the call is STATUS_NOT_SUPPORTED. An allocation of another size than the heap's is STATUS_INVALID_PARAMETER.
//! Memory that the process does not have, or may not write, is STATUS_ACCESS_VIOLATION.

use std::sync::Arc;

use nt_model::MapError;
use wddm_abi::{NTSTATUS, ntstatus};

use super::create::{self, Created, Request};
use crate::memory::backing::Backing;
use crate::memory::va::PAGE;
use crate::objects::device::Device;
use crate::objects::process::ProcessInner;
use crate::port::miniport::Miniport;
use crate::port::rules::caps::CAPS_CROSS_ADAPTER_SERVED;
use crate::port::standard::{self, Data};

/// Most bytes of a heap. Chosen: what its width can say, which is a 32-bit number, leaves room for more.
const MOST_BYTES: u64 = 1 << 30;

/// A heap that exists, and what it is to be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heap {
    /// Where it begins in the process.
    pub(crate) address: usize,
    pub(crate) bytes: u64,
    /// Make a resource of it.
    pub(crate) resource: bool,
    /// It may be shared.
    pub(crate) shared: bool,
}

/// Makes an allocation of memory that `process` has.
///
/// IRQL: PASSIVE_LEVEL.
///
/// # Errors
/// STATUS_INVALID_PARAMETER for an address or a size that is none of whole pages, and for memory that is not the
/// process's own; STATUS_ACCESS_VIOLATION for memory that it does not have; STATUS_NOT_SUPPORTED for a driver that is
/// not asked; STATUS_NO_MEMORY; what the driver returned.
pub(crate) fn create(process: &ProcessInner, device: &Arc<Device>, heap: &Heap) -> Result<Created, NTSTATUS> {
    let whole = |number: u64| number != 0 && number.is_multiple_of(PAGE);
    if !whole(heap.address as u64) || !whole(heap.bytes) {
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    if heap.bytes > MOST_BYTES {
        return Err(ntstatus::STATUS_NO_MEMORY);
    }
    let adapter = device.adapter();
    let kernel = adapter.kernel();
    // CAST: a page count.
    let pages = (heap.bytes / PAGE) as usize;
    let secured = kernel.secure_user(process.nt(), heap.address, pages).map_err(|error| match error {
        MapError::NotMapped => ntstatus::STATUS_ACCESS_VIOLATION,
        _ => ntstatus::STATUS_INVALID_PARAMETER,
    })?;
    let mut request = Request {
        resource: heap.resource,
        shared: heap.shared,
        existing: Some(Backing::existing(secured.object, secured.first, pages)),
        ..Request::default()
    };
    // CAST: at most MOST_BYTES.
    let made = described(adapter, heap.bytes as u32).and_then(|(allocation, resource)| {
        request.allocations = vec![allocation.bytes().to_vec()];
        request.private = resource.bytes().to_vec();
        create::create(process, device, &mut request)
    });
    // No allocation has it.
    if let Some(left) = request.existing {
        left.let_go(kernel);
    }
    made
}

/// What the driver says of a heap.
fn described(adapter: &Miniport, bytes: u32) -> Result<Data, NTSTATUS> {
    if !adapter.known_caps().driver.MemoryManagementCaps.CrossAdapterResource() {
        return Err(ntstatus::STATUS_NOT_SUPPORTED);
    }
    let data = standard::data(adapter, standard::heap(bytes));
    let holds = data.as_ref().err().is_none_or(standard::Refusal::is_listed);
    adapter.rules().check(&CAPS_CROSS_ADAPTER_SERVED, holds, || {
        format!("a heap of {bytes:#x} bytes: {}", data.as_ref().err().map_or("", |refusal| &refusal.why))
    });
    data.map_err(|refusal| refusal.status)
}
