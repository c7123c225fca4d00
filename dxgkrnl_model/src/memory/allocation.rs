//! Allocations: what the driver keeps for them, where they may lie, who has them open.
//!
//! Every allocation has pages of system memory of its own ("backing"): where it lies when it is not in a local segment, and
//! where its content goes when it is evicted from one. The pages are those of a process: unless they are resident, a
//! driver must not touch them.
//!
//! Chosen: an allocation that supports a memory segment goes there first, in the order of `PreferredSegment` and then of
//! segment numbers; one that supports only apertures, or nothing, lies in system memory. An aperture range and
//! `MapApertureSegment` are used only where the driver asks for it (`AccessedPhysically`): everything else reaches system
//! memory through page table entries with segment 0. Existing system memory and sections are not accepted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use nt_model::{CacheType, PageKind, PageObject, Rights, UserMapping};
use wddm_abi::{
    D3DKMT_HANDLE, DXGK_ALLOCATIONINFO, DXGK_OPENALLOCATIONINFO, DXGKARG_CLOSEALLOCATION, DXGKARG_CREATEALLOCATION,
    DXGKARG_DESTROYALLOCATION, DXGKARG_OPENALLOCATION, HANDLE, NTSTATUS, ntstatus,
};

use super::va::PAGE;
use crate::adapter::Adapter;
use crate::adapter::caps::Caps;
use crate::ddi::{self, call_ddi};
use crate::device::{Device, judge_creation};
use crate::handle::HandleType;
use crate::process::{ProcessInner, UserObject, judge_destroy};
use crate::rules::paging::{ALLOC_CPU_VISIBLE, ALLOC_FLAGS, ALLOC_SEGMENT, ALLOC_SIZE, OBJECT_HANDLE};
use crate::sync::{Lock, Rank};

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
    /// Pages of an aperture that it is mapped to: segment and first page.
    pub(crate) aperture: Option<(u32, u64)>,
    /// The content is in the backing, not only in a segment.
    pub(crate) has_content: bool,
}

/// An allocation, once per adapter.
#[derive(Debug)]
pub(crate) struct Allocation {
    adapter: Arc<Adapter>,
    driver: AtomicUsize,
    /// Bytes, a multiple of the page size.
    size: u64,
    pub(crate) alignment: u64,
    /// Segments that it may lie in, best first; apertures stand for system memory.
    pub(crate) segments: Vec<u32>,
    pub(crate) from_end: bool,
    pub(crate) accessed_physically: bool,
    pub(crate) notify_residency: bool,
    pub(crate) cpu_visible: bool,
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
    driver: AtomicUsize,
    pub(crate) runtime: Vec<u8>,
    pub(crate) private: Vec<u8>,
    pub(crate) allocations: Lock<Vec<Arc<Allocation>>>,
    users: AtomicU32,
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
        self.resource.driver.load(Ordering::Acquire)
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
        self.held.fetch_add(1, Ordering::AcqRel);
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
        self.close_when_free.store(true, Ordering::Release);
        if self.held.load(Ordering::Acquire) == 0 {
            self.close();
        }
    }

    fn close(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.unlock_all();
        super::residency::forget(self);
        let adapter = self.device.adapter();
        let handles = [core::ptr::with_exposed_provenance_mut(self.device_specific())];
        let mut arguments = DXGKARG_CLOSEALLOCATION::zeroed();
        arguments.NumAllocations = 1;
        arguments.pOpenHandleList = handles.as_ptr();
        let owner = core::ptr::with_exposed_provenance_mut(self.device.driver_handle());
        let pointer = &raw const arguments;
        let status = ddi::status(call_ddi!(adapter, DxgkDdiCloseAllocation(owner, pointer)));
        judge_destroy(adapter, "DxgkDdiCloseAllocation", status);
        if self.allocation.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.allocation.destroy();
        }
    }

    /// Maps the allocation for the CPU of its process. Locks nest.
    ///
    /// # Errors
    /// STATUS_NOT_SUPPORTED where the CPU cannot reach it, STATUS_NO_MEMORY.
    pub(crate) fn lock_for_cpu(&self, process: &ProcessInner) -> Result<usize, NTSTATUS> {
        {
            let mut lock = self.lock.lock();
            if lock.1 != 0 {
                lock.1 += 1;
                return Ok(lock.0);
            }
        }
        if !self.allocation.cpu_visible {
            return Err(ntstatus::STATUS_INVALID_PARAMETER);
        }
        let mapping = self.cpu_mapping().ok_or(ntstatus::STATUS_NOT_SUPPORTED)?;
        let address = self.device.adapter().kernel().map_user(process.nt(), &mapping, None);
        let address = address.map_err(|_| ntstatus::STATUS_NO_MEMORY)?;
        *self.lock.lock() = (address, 1);
        Ok(address)
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
            cache: CacheType::Cached,
        };
        match place {
            Place::Evicted | Place::System => Some(backing(&self.allocation.backing, 0)),
            Place::Segment { id, offset, .. } => {
                let adapter = self.device.adapter();
                let frame = adapter.memory.manager()?.cpu_frame(id, offset)?;
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
        if let Some(process) = self.device.process().process() {
            let _ = self.device.adapter().kernel().unmap_user(process.nt(), address);
        }
    }
}

impl Allocation {
    /// The driver's handle, as a number.
    pub(crate) fn driver_handle(&self) -> usize {
        self.driver.load(Ordering::Acquire)
    }

    /// Bytes, a multiple of the page size.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn backing(&self) -> &Arc<PageObject> {
        &self.backing
    }

    pub(crate) fn adapter(&self) -> &Arc<Adapter> {
        &self.adapter
    }

    /// `DxgkDdiDestroyAllocation`: no device has it any more.
    fn destroy(self: &Arc<Self>) {
        super::residency::release_everything(self);
        let driver = self.driver.swap(0, Ordering::AcqRel);
        if driver == 0 {
            return;
        }
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
fn destroy_in_driver(adapter: &Arc<Adapter>, driver: usize, resource: Option<&Resource>) {
    let handles: [HANDLE; 1] = [core::ptr::with_exposed_provenance_mut(driver)];
    let mut arguments = DXGKARG_DESTROYALLOCATION::zeroed();
    arguments.NumAllocations = 1;
    arguments.pAllocationList = handles.as_ptr();
    if let Some(resource) = resource {
        arguments.hResource = core::ptr::with_exposed_provenance_mut(resource.driver.load(Ordering::Acquire));
        arguments.Flags.set_DestroyResource(true);
    }
    let (context, pointer) = (adapter.context(), &raw const arguments);
    let status = ddi::status(call_ddi!(adapter, DxgkDdiDestroyAllocation(context, pointer)));
    judge_destroy(adapter, "DxgkDdiDestroyAllocation", status);
}

/// What user mode asks for.
#[derive(Debug, Default)]
pub(crate) struct Request {
    /// Private data of each allocation; changed by the driver.
    pub(crate) allocations: Vec<Vec<u8>>,
    /// Private data of the resource.
    pub(crate) private: Vec<u8>,
    /// Private data of the runtime, kept for whoever opens the resource.
    pub(crate) runtime: Vec<u8>,
    /// Make a resource.
    pub(crate) resource: bool,
}

/// What was made: handles in the order of the request, and the resource's, or 0.
#[derive(Debug, Default)]
pub(crate) struct Created {
    pub(crate) allocations: Vec<D3DKMT_HANDLE>,
    pub(crate) resource: D3DKMT_HANDLE,
}

/// Makes allocations.
///
/// IRQL: PASSIVE_LEVEL.
///
/// # Errors
/// What the driver returned; STATUS_NO_MEMORY.
pub(crate) fn create(process: &ProcessInner, device: &Arc<Device>, request: &mut Request) -> Result<Created, NTSTATUS> {
    let adapter = device.adapter();
    let count = u32::try_from(request.allocations.len()).map_err(|_| ntstatus::STATUS_INVALID_PARAMETER)?;
    let mut infos: Vec<_> = request.allocations.iter_mut().map(|private| info_of(private)).collect();
    let mut arguments = DXGKARG_CREATEALLOCATION::zeroed();
    if !request.private.is_empty() {
        arguments.pPrivateDriverData = request.private.as_ptr().cast();
        // CAST: limited by the thunk.
        arguments.PrivateDriverDataSize = request.private.len() as u32;
    }
    arguments.NumAllocations = count;
    arguments.pAllocationInfo = infos.as_mut_ptr();
    arguments.Flags.set_Resource(request.resource);
    let (context, pointer) = (adapter.context(), &raw mut arguments);
    let status = ddi::status(call_ddi!(adapter, DxgkDdiCreateAllocation(context, pointer)));
    let listed =
        [ntstatus::STATUS_INVALID_PARAMETER, ntstatus::STATUS_NO_MEMORY, ntstatus::STATUS_GRAPHICS_DRIVER_MISMATCH];
    judge_creation(adapter, "DxgkDdiCreateAllocation", status, &listed)?;
    let caps = adapter.known_caps();
    let resource = request.resource.then(|| {
        Arc::new(Resource {
            driver: AtomicUsize::new(arguments.hResource.expose_provenance()),
            runtime: std::mem::take(&mut request.runtime),
            private: request.private.clone(),
            allocations: Lock::new(Rank::Registry, Vec::new()),
            users: AtomicU32::new(0),
        })
    });
    let mut made = Vec::new();
    let mut refused = Vec::new();
    let mut failed = None;
    for (info, private) in infos.iter().zip(&request.allocations) {
        match accept(adapter, &caps, info, private, resource.as_ref()) {
            Ok(allocation) => made.push(allocation),
            Err(status) => {
                refused.extend(Some(info.hAllocation.expose_provenance()).filter(|driver| *driver != 0));
                failed = Some(status);
            }
        }
    }
    for (at, driver) in refused.iter().enumerate() {
        let last = made.is_empty() && at + 1 == refused.len();
        destroy_in_driver(adapter, *driver, resource.as_deref().filter(|_| last));
    }
    if let Some(resource) = &resource {
        *resource.allocations.lock() = made.clone();
    }
    let opened = match failed {
        Some(status) => Err(status),
        None => open(process, device, &made, resource.as_ref(), true),
    };
    if opened.is_err() {
        for allocation in made {
            allocation.destroy();
        }
    }
    opened
}

fn info_of(private: &mut [u8]) -> DXGK_ALLOCATIONINFO {
    let mut info = DXGK_ALLOCATIONINFO::zeroed();
    if !private.is_empty() {
        info.pPrivateDriverData = private.as_mut_ptr().cast();
        // CAST: limited by the thunk.
        info.PrivateDriverDataSize = private.len() as u32;
    }
    info
}

/// Judges what the driver said about an allocation and makes it.
///
/// # Errors
/// STATUS_INVALID_PARAMETER for one without a size (D3DKMTCreateAllocation lists it; the page of DXGK_ALLOCATIONINFO leaves open what
/// Windows does), STATUS_NO_MEMORY. The driver has the allocation all the same.
fn accept(
    adapter: &Arc<Adapter>,
    caps: &Caps,
    info: &DXGK_ALLOCATIONINFO,
    private: &[u8],
    resource: Option<&Arc<Resource>>,
) -> Result<Arc<Allocation>, NTSTATUS> {
    let rules = adapter.rules();
    rules.check(&OBJECT_HANDLE, !info.hAllocation.is_null(), || {
        "DxgkDdiCreateAllocation stored no hAllocation".to_owned()
    });
    rules.check(&ALLOC_SIZE, info.Size != 0 && info.AllocationPriority != 0, || {
        format!("Size {:#x}, AllocationPriority {:#x}", info.Size, info.AllocationPriority)
    });
    let set = info.SupportedWriteSegmentSet;
    let exists = |bit: u32| caps.segment(bit + 1).is_some();
    let bits = |set: u32| (0..32).filter(move |bit| set & (1 << bit) != 0);
    let preferred = preferred_segments(info.PreferredSegment.Value);
    let supported = |id: &u32| set & (1_u32 << (id - 1)) != 0;
    let is_aperture = |bit: u32| caps.segment(bit + 1).is_some_and(crate::adapter::caps::Segment::is_aperture);
    let sets =
        bits(set).all(exists) && preferred.iter().all(supported) && bits(info.EvictionSegmentSet).all(is_aperture);
    rules.check(&ALLOC_SEGMENT, sets, || {
        format!("write set {set:#x}, preferred {preferred:?}, eviction set {:#x}", info.EvictionSegmentSet)
    });
    let flags = *info.FlagsWddm2();
    let reachable = |bit: u32| {
        caps.segment(bit + 1).is_some_and(|segment| segment.is_aperture() || segment.is_cpu_visible())
            || caps.segment(bit + 1).is_some_and(|segment| segment.descriptor.Flags.SupportsCpuHostAperture())
    };
    rules.check(&ALLOC_CPU_VISIBLE, !flags.CpuVisible() || bits(set).any(reachable), || {
        format!("CpuVisible with write set {set:#x}")
    });
    let aperture2 = caps.driver.MemoryManagementCaps.MapAperture2Supported();
    let consistent = (!flags.ExplicitResidencyNotification() || flags.AccessedPhysically())
        && (!flags.MapApertureCpuVisible() || aperture2);
    rules.check(&ALLOC_FLAGS, consistent, || format!("{flags:?}"));
    if info.Size == 0 {
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    let size = (info.Size as u64).checked_next_multiple_of(PAGE).ok_or(ntstatus::STATUS_NO_MEMORY)?;
    let mut segments = preferred;
    segments.extend(bits(set).map(|bit| bit + 1).filter(|id| !segments.contains(id)).collect::<Vec<_>>());
    let kernel = adapter.kernel();
    // CAST: a page count.
    let pages = (size / PAGE) as usize;
    let backing = if adapter.personality().contiguous_pages {
        kernel.allocate_contiguous_pages(pages, PageKind::User, 0)
    } else {
        kernel.allocate_pages(pages, PageKind::User, 0)
    };
    Ok(Arc::new(Allocation {
        adapter: adapter.clone(),
        driver: AtomicUsize::new(info.hAllocation.expose_provenance()),
        size,
        alignment: info.Alignment().into(),
        segments,
        from_end: flags.FromEndOfSegment(),
        accessed_physically: flags.AccessedPhysically(),
        notify_residency: flags.ExplicitResidencyNotification(),
        cpu_visible: flags.CpuVisible(),
        backing: backing.ok_or(ntstatus::STATUS_NO_MEMORY)?,
        placement: Lock::new(
            Rank::Segment,
            Placement { place: Place::Evicted, references: 0, aperture: None, has_content: false },
        ),
        resource: resource.cloned(),
        private: private.to_vec(),
        users: AtomicU32::new(0),
    }))
}

/// Segments of a preference, best first: five of five bits each, with a direction bit behind.
pub(crate) fn preferred_segments(value: u32) -> Vec<u32> {
    (0..5).map(|at| (value >> (at * 6)) & 0x1F).filter(|id| *id != 0).collect()
}

/// Opens allocations in a device.
///
/// IRQL: PASSIVE_LEVEL.
///
/// # Errors
/// What the driver returned; STATUS_NO_MEMORY.
pub(crate) fn open(
    process: &ProcessInner,
    device: &Arc<Device>,
    allocations: &[Arc<Allocation>],
    resource: Option<&Arc<Resource>>,
    create: bool,
) -> Result<Created, NTSTATUS> {
    let adapter = device.adapter();
    let mut created = Created::default();
    let mut opens = Vec::new();
    for allocation in allocations {
        let open = Arc::new(OpenAllocation {
            device: device.clone(),
            allocation: allocation.clone(),
            specific: AtomicUsize::new(0),
            handle: AtomicU32::new(0),
            resource_handle: AtomicU32::new(0),
            // Until the driver has opened it there is nothing to close.
            closed: AtomicBool::new(true),
            held: AtomicU32::new(0),
            close_when_free: AtomicBool::new(false),
            residency: AtomicU32::new(0),
            lock: Lock::new(Rank::Log, (0, 0)),
        });
        let Some(handle) = process.insert(UserObject::Allocation(open.clone())) else {
            forget(process, &created.allocations);
            return Err(ntstatus::STATUS_NO_MEMORY);
        };
        open.handle.store(handle, Ordering::Release);
        created.allocations.push(handle);
        opens.push(open);
    }
    let mut privates: Vec<Vec<u8>> = allocations.iter().map(|allocation| allocation.private.clone()).collect();
    let info = |(handle, private): (&D3DKMT_HANDLE, &mut Vec<u8>)| {
        let mut info = DXGK_OPENALLOCATIONINFO::zeroed();
        info.hAllocation = *handle;
        if !private.is_empty() {
            info.pPrivateDriverData = private.as_mut_ptr().cast();
            // CAST: limited by the thunk.
            info.PrivateDriverDataSize = private.len() as u32;
        }
        info
    };
    let mut infos: Vec<_> = created.allocations.iter().zip(&mut privates).map(info).collect();
    let mut resource_private = resource.map(|resource| resource.private.clone()).unwrap_or_default();
    let mut arguments = DXGKARG_OPENALLOCATION::zeroed();
    // CAST: limited by the thunk.
    arguments.NumAllocations = infos.len() as u32;
    arguments.pOpenAllocation = infos.as_mut_ptr();
    if !resource_private.is_empty() {
        arguments.pPrivateDriverData = resource_private.as_mut_ptr().cast();
        arguments.PrivateDriverSize = resource_private.len() as u32;
    }
    arguments.Flags.set_Create(create);
    let owner = core::ptr::with_exposed_provenance_mut(device.driver_handle());
    let pointer = &raw const arguments;
    let status = ddi::status(call_ddi!(adapter, DxgkDdiOpenAllocation(owner, pointer)));
    let listed =
        [ntstatus::STATUS_INVALID_PARAMETER, ntstatus::STATUS_NO_MEMORY, ntstatus::STATUS_GRAPHICS_DRIVER_MISMATCH];
    if let Err(status) = judge_creation(adapter, "DxgkDdiOpenAllocation", status, &listed) {
        forget(process, &created.allocations);
        return Err(status);
    }
    for (open, info) in opens.iter().zip(&infos) {
        open.specific.store(info.hDeviceSpecificAllocation.expose_provenance(), Ordering::Release);
        open.allocation.users.fetch_add(1, Ordering::AcqRel);
        open.closed.store(false, Ordering::Release);
    }
    if let Some(resource) = resource {
        resource.users.fetch_add(1, Ordering::AcqRel);
        let object = Arc::new(OpenResource {
            device: device.clone(),
            resource: resource.clone(),
            children: created.allocations.clone(),
            closed: AtomicBool::new(false),
        });
        created.resource = process.insert(UserObject::Resource(object)).unwrap_or(0);
        for open in &opens {
            open.resource_handle.store(created.resource, Ordering::Release);
        }
    }
    Ok(created)
}

fn forget(process: &ProcessInner, handles: &[D3DKMT_HANDLE]) {
    for handle in handles {
        let object = process.remove(*handle, HandleType::Allocation);
        drop(object);
    }
}
