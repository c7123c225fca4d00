//! Allocations: what the driver keeps for them, where they may lie, who has them open.
//!
//! Every allocation has pages of system memory of its own ("backing"): where it lies when it is not in a local segment,
//! and where its content goes when it is evicted from one. The pages are those of a process: unless they are resident,
//! a driver must not touch them.
//!
//! Chosen: an allocation that supports a memory segment goes there first, in the order of `PreferredSegment` and then
//! of segment numbers; one that supports only apertures, or nothing, lies in system memory. An aperture range and
//! `MapApertureSegment` are used only where the driver asks for it (`AccessedPhysically`): everything else reaches
//! system memory through page table entries with segment 0. Memory of a process stays where it is. Sections are not
//! accepted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use wddm_abi::{DXGKARG_DESTROYALLOCATION, HANDLE, NTSTATUS};

use crate::memory::backing::Backing;
use crate::port::ddi::{self, call_ddi};
use crate::port::handle::DriverHandle;
use crate::port::miniport::Miniport;
use crate::port::sync::Lock;

/// Where an allocation lies for the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nowhere: page table entries that name it are invalid.
    Evicted,
    /// In its backing.
    System,
    /// In a segment: its number, the offset, the address that the GPU names it by.
    Segment { id: u32, offset: u64, address: u64 },
}

/// Where it lies and how often it was asked for.
#[derive(Debug)]
pub(crate) struct Placement {
    pub(crate) place: Place,
    pub(crate) references: u32,
    /// How often it is a ring, or a ring's control words, of a doorbell: it stays where the GPU reaches it, whatever is
    /// evicted.
    pub(crate) kept: u32,
    /// Pages of an aperture that it is mapped to: segment and first page.
    pub(crate) aperture: Option<(u32, u64)>,
    /// The content is in the backing, not only in a segment.
    pub(crate) has_content: bool,
}

/// Whether user mode has offered an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Offered {
    /// It is in use.
    #[default]
    No,
    /// Its content may go.
    Yes,
    /// Its content is gone.
    Discarded,
}

/// An allocation, once per adapter.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) adapter: Arc<Miniport>,
    pub(crate) driver: DriverHandle,
    /// The driver does not know it.
    pub(crate) is_standard: bool,
    /// Bytes, a multiple of the page size.
    pub(crate) size: u64,
    pub(crate) alignment: u64,
    /// Segments that it may lie in, best first; apertures stand for system memory.
    pub(crate) segments: Vec<u32>,
    pub(crate) from_end: bool,
    pub(crate) accessed_physically: bool,
    pub(crate) notify_residency: bool,
    pub(crate) cpu_visible: bool,
    /// Id of the process that made it; 0: the process was gone.
    pub(crate) creator: u64,
    pub(crate) backing: Backing,
    pub(crate) placement: Lock<Placement>,
    pub(crate) resource: Option<Arc<Resource>>,
    /// Private data as the driver left it, for whoever opens the resource.
    pub(crate) private: Vec<u8>,
    /// As the driver gave it, or a client has set it.
    pub(crate) priority: AtomicU32,
    pub(crate) offered: Lock<Offered>,
    /// Open handles and other users: the driver is told to destroy it when the last is gone.
    pub(crate) users: AtomicU32,
}

/// Allocations that belong together.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) driver: DriverHandle,
    pub(crate) runtime: Vec<u8>,
    pub(crate) private: Vec<u8>,
    /// It was made to be shared by NT handles.
    pub(crate) shared: bool,
    pub(crate) allocations: Lock<Vec<Arc<Allocation>>>,
    pub(crate) users: AtomicU32,
}

impl Allocation {
    /// The driver's handle, as a number.
    pub(crate) fn driver_handle(&self) -> usize {
        self.driver.number()
    }

    /// Returns whether the driver does not know it.
    pub(crate) fn is_standard(&self) -> bool {
        self.is_standard
    }

    /// Returns whether the allocation is resident now: not evicted.
    pub(crate) fn is_resident(&self) -> bool {
        self.placement.lock().place != Place::Evicted
    }

    /// Where it lies, and the aperture segment that it is mapped to.
    pub(crate) fn lies(&self) -> (Place, Option<u32>) {
        let placement = self.placement.lock();
        (placement.place, placement.aperture.map(|(segment, _)| segment))
    }

    /// Bytes, a multiple of the page size.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Whether its first choice is memory of the GPU's own that the CPU does not see.
    pub(crate) fn is_hidden(&self) -> bool {
        let caps = self.adapter.known_caps();
        let first = self.segments.first().and_then(|id| caps.segment(*id));
        first.is_some_and(|segment| !segment.is_aperture() && !segment.is_cpu_visible())
    }

    pub(crate) fn backing(&self) -> &Backing {
        &self.backing
    }

    pub(crate) fn adapter(&self) -> &Arc<Miniport> {
        &self.adapter
    }

    /// User mode does not need its content for now. `is_short`: memory is, and the content of one that is nowhere
    /// resident goes.
    pub(crate) fn offer(&self, is_short: bool) {
        let is_free = is_short && self.placement.lock().references == 0;
        let mut offered = self.offered.lock();
        if *offered == Offered::No {
            *offered = if is_free { Offered::Discarded } else { Offered::Yes };
        }
    }

    /// User mode needs it again. Returns whether its content is gone.
    pub(crate) fn reclaim(&self) -> bool {
        std::mem::take(&mut *self.offered.lock()) == Offered::Discarded
    }

    /// A user less: the last one destroys it.
    pub(crate) fn leave(self: &Arc<Self>) {
        if self.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.destroy();
        }
    }

    /// `DxgkDdiDestroyAllocation`: no device has it any more, and no NT handle leads to it.
    pub(crate) fn destroy(self: &Arc<Self>) {
        super::residency::release_everything(self);
        if self.is_standard {
            return self.backing.let_go(self.adapter.kernel());
        }
        let Some(driver) = self.driver.take() else { return };
        let last = self.resource.as_ref().filter(|resource| {
            let mut allocations = resource.allocations.lock();
            allocations.retain(|other| !Arc::ptr_eq(other, self));
            allocations.is_empty()
        });
        destroy_in_driver(&self.adapter, driver, last.map(|resource| &**resource));
        self.backing.let_go(self.adapter.kernel());
    }
}

/// `DxgkDdiDestroyAllocation` of one allocation, and of the resource with its last.
pub(crate) fn destroy_in_driver(adapter: &Arc<Miniport>, driver: usize, resource: Option<&Resource>) {
    let handles = batch(adapter, driver);
    let mut arguments = DXGKARG_DESTROYALLOCATION::zeroed();
    // CAST: two at most.
    arguments.NumAllocations = handles.len() as u32;
    arguments.pAllocationList = handles.as_ptr();
    if let Some(resource) = resource {
        arguments.hResource = resource.driver.raw();
        arguments.Flags.set_DestroyResource(true);
    }
    let (context, pointer) = (adapter.context(), &raw const arguments);
    let status = ddi::status(call_ddi!(adapter, DxgkDdiDestroyAllocation(context, pointer)));
    judge_batch(adapter, "DxgkDdiDestroyAllocation", status);
}

/// The handles of a batch: the driver's handle of an allocation, and before it, with `FaultPlan::stray_handles`, a
/// handle that names nothing.
pub(crate) fn batch(adapter: &Miniport, driver: usize) -> Vec<HANDLE> {
    let stray = adapter.personality().faults.stray_handles.then_some(STRAY);
    stray.into_iter().chain([driver]).map(core::ptr::with_exposed_provenance_mut).collect()
}

/// Judges the status of a batch, except with `FaultPlan::stray_handles`: a driver may say that such a batch failed.
/// That it destroyed the others all the same shows in what it gives back until it is stopped: DXG-LEAK-MEMORY, or a
/// leak of pool.
pub(crate) fn judge_batch(adapter: &Miniport, ddi: &str, status: NTSTATUS) {
    if !adapter.personality().faults.stray_handles {
        adapter.judge_destroy(ddi, status);
    }
}

/// A handle that no driver has given.
const STRAY: usize = 0x51_7A11;

/// Segments of a preference, best first: five of five bits each, with a direction bit behind.
pub(crate) fn preferred_segments(value: u32) -> Vec<u32> {
    (0..5).map(|at| (value >> (at * 6)) & 0x1F).filter(|id| *id != 0).collect()
}
