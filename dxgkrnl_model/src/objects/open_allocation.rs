//! Allocations and resources that a device has open, and those that an NT handle keeps.

mod create;
pub(crate) mod existing;
pub(crate) mod standard;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use nt_model::{CacheType, PageObject, Rights, UserMapping};
use wddm_abi::{D3DKMT_HANDLE, DXGKARG_CLOSEALLOCATION, NTSTATUS, ntstatus};

use crate::memory::VidMm;
use crate::memory::allocation::{Allocation, Place, Resource, batch, judge_batch};
use crate::memory::pages::cache_of;
use crate::memory::residency::evict;
use crate::memory::va::PAGE;
use crate::objects::device::Device;
use crate::objects::process::ProcessInner;
use crate::port::ddi::{self, call_ddi};
use crate::port::miniport::Miniport;
use crate::port::sync::Lock;
pub(crate) use create::{Request, create, open};

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
    locking: crate::port::sync::Gate,
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
        crate::memory::residency::keep_no_more(&self.allocation);
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
        forget(self);
        if self.allocation.is_standard {
            return self.allocation.leave();
        }
        let adapter = self.device.adapter();
        let handles = batch(adapter, self.device_specific());
        let mut arguments = DXGKARG_CLOSEALLOCATION::zeroed();
        // CAST: two at most.
        arguments.NumAllocations = handles.len() as u32;
        arguments.pOpenHandleList = handles.as_ptr();
        let owner = crate::port::handle::of_driver(self.device.last_driver_handle());
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
            Place::Evicted | Place::System => {
                Some(backing(self.allocation.backing().object(), self.allocation.backing().first()))
            }
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

/// A device's handle goes away: its references on residency too.
fn forget(open: &OpenAllocation) {
    let adapter = open.device().adapter();
    let references = open.residency.swap(0, Ordering::AcqRel);
    let Some(manager) = VidMm::of(adapter).manager() else { return };
    let allocation = open.allocation().clone();
    manager.run_on_worker(adapter, move |adapter, manager| {
        for _ in 0..references {
            let _ = evict(adapter, manager, &allocation);
        }
    });
}

/// An allocation has moved: what processes have locked of it is mapped anew.
pub(crate) fn remap_locks(adapter: &Arc<Miniport>, allocation: &Arc<Allocation>) {
    for process in ProcessInner::all_of(adapter.shared()) {
        for open in process.opens_of(allocation) {
            let address = open.lock.lock().0;
            if address != 0
                && let Some(mapping) = open.cpu_mapping()
            {
                let _ = adapter.kernel().remap_user(process.nt(), address, &mapping);
            }
        }
    }
}
