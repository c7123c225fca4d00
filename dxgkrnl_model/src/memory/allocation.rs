//! Allocations: what the driver keeps for them, where they may lie, who has them open.
//!
//! Every allocation has pages of system memory of its own ("backing"): where it lies when it is not in a local segment,
//! and where its content goes when it is evicted from one. The pages are those of a process: unless they are resident,
//! a driver must not touch them.
//!
//! Chosen: an allocation that supports a memory segment goes there first, in the order of `PreferredSegment` and then
//! of segment numbers; one that supports only apertures, or nothing, lies in system memory. An aperture range and
//! `MapApertureSegment` are used only where the driver asks for it (`AccessedPhysically`): everything else reaches
//! system memory through page table entries with segment 0. Existing system memory and sections are not accepted.

mod create;
pub(crate) mod standard;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use nt_model::{CacheType, PageObject, Rights, UserMapping};
use wddm_abi::{D3DKMT_HANDLE, DXGKARG_CLOSEALLOCATION, DXGKARG_DESTROYALLOCATION, HANDLE, NTSTATUS, ntstatus};

use super::pages::cache_of;
use super::va::PAGE;
use crate::ddi::{self, call_ddi};
use crate::device::Device;
use crate::handle::DriverHandle;
use crate::memory::VidMm;
use crate::miniport::Miniport;
use crate::process::{ProcessInner, judge_destroy};
use crate::sync::Lock;
pub(crate) use create::{Request, create, open, preferred_segments};

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

/// An allocation, once per adapter.
#[derive(Debug)]
pub(crate) struct Allocation {
    adapter: Arc<Miniport>,
    driver: DriverHandle,
    /// The driver does not know it.
    is_standard: bool,
    /// Bytes, a multiple of the page size.
    size: u64,
    pub(crate) alignment: u64,
    /// Segments that it may lie in, best first; apertures stand for system memory.
    pub(crate) segments: Vec<u32>,
    pub(crate) from_end: bool,
    pub(crate) accessed_physically: bool,
    pub(crate) notify_residency: bool,
    pub(crate) cpu_visible: bool,
    /// Id of the process that made it; 0: the process was gone.
    creator: u64,
    backing: Arc<PageObject>,
    pub(crate) placement: Lock<Placement>,
    resource: Option<Arc<Resource>>,
    /// Private data as the driver left it, for whoever opens the resource.
    pub(crate) private: Vec<u8>,
    /// Open handles and other users: the driver is told to destroy it when the last is gone.
    users: AtomicU32,
}

/// Allocations that belong together.
#[derive(Debug)]
pub(crate) struct Resource {
    driver: DriverHandle,
    pub(crate) runtime: Vec<u8>,
    pub(crate) private: Vec<u8>,
    /// It was made to be shared by NT handles.
    pub(crate) shared: bool,
    pub(crate) allocations: Lock<Vec<Arc<Allocation>>>,
    users: AtomicU32,
}

/// A resource behind an NT handle: its allocations live as long as that handle, also with no device that has them open.
#[derive(Debug)]
pub(crate) struct KeptResource {
    resource: Arc<Resource>,
    kept: Vec<Arc<Allocation>>,
}

impl KeptResource {
    pub(crate) fn new(resource: &Arc<Resource>) -> Self {
        let mut kept = resource.allocations.lock().clone();
        // One whose last user is leaving is gone.
        let more = |users: u32| if users == 0 { None } else { users.checked_add(1) };
        kept.retain(|allocation| allocation.users.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok());
        Self { resource: resource.clone(), kept }
    }

    pub(crate) fn resource(&self) -> &Arc<Resource> {
        &self.resource
    }
}

impl Drop for KeptResource {
    fn drop(&mut self) {
        let Some(first) = self.kept.first() else { return };
        let _inside = first.adapter.kernel().enter();
        self.kept.iter().for_each(Allocation::leave);
    }
}

/// An allocation in a device.
#[derive(Debug)]
pub(crate) struct OpenAllocation {
    device: Arc<Device>,
    allocation: Arc<Allocation>,
    specific: AtomicUsize,
    handle: AtomicU32,
    resource_handle: AtomicU32,
    closed: AtomicBool,
    /// Rings and other users of the device's handle.
    held: AtomicU32,
    close_when_free: AtomicBool,
    /// How often the device made it resident.
    pub(crate) residency: AtomicU32,
    /// User address of a lock, and how often it was taken.
    pub(crate) lock: Lock<(usize, u32)>,
    /// Entered by the thread that locks or unlocks it.
    locking: crate::sync::Gate,
}

/// A resource in a device.
#[derive(Debug)]
pub(crate) struct OpenResource {
    device: Arc<Device>,
    resource: Arc<Resource>,
    children: Vec<D3DKMT_HANDLE>,
    closed: AtomicBool,
}

impl OpenResource {
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(crate) fn resource(&self) -> &Arc<Resource> {
        &self.resource
    }

    /// The driver's handle, as a number.
    pub(crate) fn driver_handle(&self) -> usize {
        self.resource.driver.number()
    }

    /// The handle of an allocation.
    pub(crate) fn child(&self, index: usize) -> Option<D3DKMT_HANDLE> {
        self.children.get(index).copied()
    }

    /// Handles of the allocations.
    pub(crate) fn children(&self) -> &[D3DKMT_HANDLE] {
        &self.children
    }

    /// The device's handle is gone; what is in it is closed by itself. A second call does nothing.
    pub(crate) fn destroy(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.resource.users.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Returns whether two mappings begin with the same page.
fn is_same(first: &UserMapping, second: &UserMapping) -> bool {
    Arc::ptr_eq(&first.object, &second.object) && first.first == second.first
}

impl OpenAllocation {
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(crate) fn allocation(&self) -> &Arc<Allocation> {
        &self.allocation
    }

    /// `hDeviceSpecificAllocation`, as a number.
    pub(crate) fn device_specific(&self) -> usize {
        self.specific.load(Ordering::Acquire)
    }

    /// User mode's handle.
    pub(crate) fn handle(&self) -> D3DKMT_HANDLE {
        self.handle.load(Ordering::Acquire)
    }

    /// User mode's handle of its resource, or 0.
    pub(crate) fn resource_handle(&self) -> D3DKMT_HANDLE {
        self.resource_handle.load(Ordering::Acquire)
    }

    /// Keeps the driver's side alive although the handle may be destroyed.
    pub(crate) fn hold(&self) {
        self.held.fetch_add(1, Ordering::SeqCst);
    }

    /// Keeps it alive, and where the GPU reaches it, as a ring of a doorbell or a ring's control words. `false`, and
    /// nothing is done: it is not resident, or its handle is gone.
    ///
    /// Source: article user-mode-work-submission, residency model; hardware context suspension (rings stay resident).
    pub(crate) fn hold_resident(&self) -> bool {
        {
            let mut placement = self.allocation.placement.lock();
            if placement.place == Place::Evicted {
                return false;
            }
            placement.kept += 1;
        }
        self.hold();
        let is_there = !self.close_when_free.load(Ordering::SeqCst);
        if !is_there {
            self.release_resident();
        }
        is_there
    }

    /// Undoes [`hold_resident`](Self::hold_resident): what was evicted meanwhile goes.
    ///
    /// IRQL: PASSIVE_LEVEL, not on the paging worker.
    pub(crate) fn release_resident(&self) {
        super::residency::keep_no_more(&self.allocation);
        self.release();
    }

    /// Undoes [`hold`](Self::hold).
    pub(crate) fn release(&self) {
        if self.held.fetch_sub(1, Ordering::AcqRel) == 1 && self.close_when_free.load(Ordering::Acquire) {
            self.close();
        }
    }

    /// The handle is gone: closes it in the driver, now or when nobody holds it any more. A second call does nothing.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn destroy(&self) {
        // In one order with those of `hold_resident`.
        self.close_when_free.store(true, Ordering::SeqCst);
        if self.held.load(Ordering::SeqCst) == 0 {
            self.close();
        }
    }

    fn close(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.unlock_all();
        super::residency::forget(self);
        if self.allocation.is_standard {
            return self.allocation.leave();
        }
        let adapter = self.device.adapter();
        let handles = batch(adapter, self.device_specific());
        let mut arguments = DXGKARG_CLOSEALLOCATION::zeroed();
        // CAST: two at most.
        arguments.NumAllocations = handles.len() as u32;
        arguments.pOpenHandleList = handles.as_ptr();
        let owner = crate::handle::of_driver(self.device.last_driver_handle());
        let pointer = &raw const arguments;
        let status = ddi::status(call_ddi!(adapter, DxgkDdiCloseAllocation(owner, pointer)));
        judge_batch(adapter, "DxgkDdiCloseAllocation", status);
        self.allocation.leave();
    }

    /// Maps the allocation for the CPU of its process. Locks nest.
    ///
    /// # Errors
    /// STATUS_INVALID_PARAMETER for one that is not CpuVisible, and for another process than the creator where the
    /// personality has `creator_locks`; STATUS_NOT_SUPPORTED where the CPU cannot reach it; STATUS_NO_MEMORY, also of
    /// an allocation in a segment for a process that is a Linux process of its own: the segment has one file, and is
    /// not handed over.
    pub(crate) fn lock_for_cpu(&self, process: &ProcessInner) -> Result<usize, NTSTATUS> {
        // One at a time: two that came together would map it twice.
        let kernel = self.device.adapter().kernel();
        let _alone = self.locking.exclusive(kernel);
        {
            let mut lock = self.lock.lock();
            if lock.1 != 0 {
                lock.1 += 1;
                return Ok(lock.0);
            }
        }
        let foreign =
            self.device.adapter().personality().user_mode.creator_locks && self.allocation.creator != process.nt().id();
        if !self.allocation.cpu_visible || foreign {
            return Err(ntstatus::STATUS_INVALID_PARAMETER);
        }
        let mapping = self.cpu_mapping().ok_or(ntstatus::STATUS_NOT_SUPPORTED)?;
        let address = kernel.map_user(process.nt(), &mapping, None);
        let address = address.map_err(|_| ntstatus::STATUS_NO_MEMORY)?;
        *self.lock.lock() = (address, 1);
        // It may have moved before the address was known to what shows it where it is.
        if let Some(now) = self.cpu_mapping().filter(|now| !is_same(now, &mapping)) {
            kernel.remap_user(process.nt(), address, &now).map_err(|_| ntstatus::STATUS_NO_MEMORY)?;
        }
        Ok(address)
    }

    /// Where it is locked, if it is.
    pub(crate) fn locked(&self) -> Option<usize> {
        let (address, locks) = *self.lock.lock();
        (locks != 0).then_some(address)
    }

    /// What the CPU sees now.
    pub(crate) fn cpu_mapping(&self) -> Option<UserMapping> {
        let place = self.allocation.placement.lock().place;
        // CAST: a page count.
        let pages = (self.allocation.size / PAGE) as usize;
        let backing = |object: &Arc<PageObject>, first| UserMapping {
            object: object.clone(),
            first,
            pages,
            rights: Rights::ReadWrite,
            cache: cache_of(object, CacheType::Cached),
        };
        match place {
            Place::Evicted | Place::System => Some(backing(&self.allocation.backing, 0)),
            Place::Segment { id, offset, .. } => {
                let adapter = self.device.adapter();
                let frame = VidMm::of(adapter).manager()?.cpu_frame(id, offset)?;
                let (object, first) = adapter.kernel().page_of_frame(frame)?;
                Some(backing(&object, first))
            }
        }
    }

    /// Undoes one lock.
    ///
    /// # Errors
    /// STATUS_INVALID_PARAMETER when it is not locked.
    pub(crate) fn unlock_for_cpu(&self) -> Result<(), NTSTATUS> {
        let _alone = self.locking.exclusive(self.device.adapter().kernel());
        let address = {
            let mut lock = self.lock.lock();
            match lock.1 {
                0 => return Err(ntstatus::STATUS_INVALID_PARAMETER),
                1 => {
                    lock.1 = 0;
                    std::mem::take(&mut lock.0)
                }
                _ => {
                    lock.1 -= 1;
                    return Ok(());
                }
            }
        };
        self.unmap(address);
        Ok(())
    }

    fn unlock_all(&self) {
        let address = {
            let mut lock = self.lock.lock();
            lock.1 = 0;
            std::mem::take(&mut lock.0)
        };
        if address != 0 {
            self.unmap(address);
        }
    }

    fn unmap(&self, address: usize) {
        self.device.process().take_from_user(address);
    }
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

    pub(crate) fn backing(&self) -> &Arc<PageObject> {
        &self.backing
    }

    pub(crate) fn adapter(&self) -> &Arc<Miniport> {
        &self.adapter
    }

    /// A user less: the last one destroys it.
    fn leave(self: &Arc<Self>) {
        if self.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.destroy();
        }
    }

    /// `DxgkDdiDestroyAllocation`: no device has it any more, and no NT handle leads to it.
    fn destroy(self: &Arc<Self>) {
        super::residency::release_everything(self);
        if self.is_standard {
            return self.adapter.kernel().free_pages(&self.backing);
        }
        let Some(driver) = self.driver.take() else { return };
        let last = self.resource.as_ref().filter(|resource| {
            let mut allocations = resource.allocations.lock();
            allocations.retain(|other| !Arc::ptr_eq(other, self));
            allocations.is_empty()
        });
        destroy_in_driver(&self.adapter, driver, last.map(|resource| &**resource));
        self.adapter.kernel().free_pages(&self.backing);
    }
}

/// `DxgkDdiDestroyAllocation` of one allocation, and of the resource with its last.
fn destroy_in_driver(adapter: &Arc<Miniport>, driver: usize, resource: Option<&Resource>) {
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
fn batch(adapter: &Miniport, driver: usize) -> Vec<HANDLE> {
    let stray = adapter.personality().faults.stray_handles.then_some(STRAY);
    stray.into_iter().chain([driver]).map(core::ptr::with_exposed_provenance_mut).collect()
}

/// Judges the status of a batch, except with `FaultPlan::stray_handles`: a driver may say that such a batch failed.
/// That it destroyed the others all the same shows in what it gives back until it is stopped: DXG-LEAK-MEMORY, or a
/// leak of pool.
fn judge_batch(adapter: &Miniport, ddi: &str, status: NTSTATUS) {
    if !adapter.personality().faults.stray_handles {
        judge_destroy(adapter, ddi, status);
    }
}

/// A handle that no driver has given.
const STRAY: usize = 0x51_7A11;
