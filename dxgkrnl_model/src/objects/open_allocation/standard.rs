//! Standard allocations of user mode's that the driver is not told of: memory that VidMm places and pages by itself.
//!
//! Source: DDI page `D3DKMT_CREATESTANDARDALLOCATION`; article kernel-mode-testing-of-wddm-features (tests use such
//! allocations, and paging operations name no allocation for them).
//!
//! Chosen: of the two types the internal backing store alone, whose size is `ExistingHeapData.Size`. It goes to memory
//! segments first, in the order of their numbers, and the CPU may lock it where it sees it. The driver has no object
//! and no opening for it, so that `hAllocation` is NULL where an operation pages it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use nt_model::{CacheType, PageKind, PageTraits};
use wddm_abi::{D3DKMT_HANDLE, NTSTATUS, ntstatus};

use super::OpenAllocation;
use crate::memory::allocation::{Allocation, Offered, Place, Placement};
use crate::memory::backing::Backing;
use crate::memory::va::PAGE;
use crate::objects::device::Device;
use crate::objects::process::{ProcessInner, UserObject};
use crate::port::handle::DriverHandle;
use crate::port::sync::{Lock, Rank};

/// `D3DDDI_ALLOCATIONPRIORITY_NORMAL`.
const NORMAL: u32 = 0x7800_0000;
/// Most bytes of one.
const MOST_BYTES: u64 = 1 << 30;

/// Makes one of so many bytes, opened in `device`.
///
/// # Errors
/// STATUS_INVALID_PARAMETER for a size of 0 or one that is no number of whole pages; STATUS_NO_MEMORY.
pub(crate) fn create(process: &ProcessInner, device: &Arc<Device>, size: u64) -> Result<D3DKMT_HANDLE, NTSTATUS> {
    if size == 0 || !size.is_multiple_of(PAGE) {
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    if size > MOST_BYTES {
        return Err(ntstatus::STATUS_NO_MEMORY);
    }
    let adapter = device.adapter();
    let caps = adapter.known_caps();
    let segments = caps.segments.iter().filter(|segment| !segment.is_aperture()).map(|segment| segment.id).collect();
    let contiguous = adapter.personality().contiguous_pages;
    let traits = PageTraits { contiguous, cache: Some(CacheType::Cached), read_only: false };
    // CAST: a page count.
    let backing = adapter.kernel().allocate_pages_of((size / PAGE) as usize, PageKind::User, 0, &traits);
    let allocation = Arc::new(Allocation {
        adapter: adapter.clone(),
        driver: DriverHandle::none(),
        priority: AtomicU32::new(NORMAL),
        offered: Lock::new(Rank::Leaf, Offered::default()),
        is_standard: true,
        size,
        alignment: 0,
        segments,
        from_end: false,
        accessed_physically: false,
        notify_residency: false,
        cpu_visible: true,
        creator: device.process().process().map_or(0, |process| process.nt().id()),
        backing: Backing::own(backing.ok_or(ntstatus::STATUS_NO_MEMORY)?),
        placement: Lock::new(
            Rank::Segment,
            Placement { place: Place::Evicted, references: 0, kept: 0, aperture: None, has_content: false },
        ),
        resource: None,
        private: Vec::new(),
        users: AtomicU32::new(1),
    });
    let open = Arc::new(OpenAllocation {
        device: device.clone(),
        allocation: allocation.clone(),
        specific: AtomicUsize::new(0),
        handle: AtomicU32::new(0),
        resource_handle: AtomicU32::new(0),
        closed: AtomicBool::new(false),
        held: AtomicU32::new(0),
        close_when_free: AtomicBool::new(false),
        residency: AtomicU32::new(0),
        lock: Lock::new(Rank::Leaf, (0, 0)),
        locking: crate::port::sync::Gate::new(),
    });
    let Some(handle) = process.insert(UserObject::Allocation(open.clone())) else {
        allocation.leave();
        return Err(ntstatus::STATUS_NO_MEMORY);
    };
    open.handle.store(handle, Ordering::Release);
    device.add_opened(&open);
    Ok(handle)
}
