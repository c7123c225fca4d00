//! Making allocations and opening them: what user mode asks for, what the driver says of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use nt_model::{CacheType, PageKind, PageTraits};
use wddm_abi::{
    D3DKMT_HANDLE, DXGK_ALLOCATIONINFO, DXGK_ALLOCATIONINFOFLAGS_WDDM2_0, DXGK_OPENALLOCATIONINFO,
    DXGKARG_CREATEALLOCATION, DXGKARG_OPENALLOCATION, DXGKDDI_INTERFACE_VERSION_WDDM3_0, NTSTATUS, ntstatus,
};

use super::{OpenAllocation, OpenResource};
use crate::memory::allocation::{
    Allocation, Offered, Place, Placement, Resource, destroy_in_driver, preferred_segments,
};
use crate::memory::backing::Backing;
use crate::memory::va::PAGE;
use crate::objects::device::{Device, judge_creation};
use crate::objects::process::{ProcessInner, UserObject};
use crate::port::caps::Caps;
use crate::port::ddi::{self, call_ddi};
use crate::port::handle::{DriverHandle, HandleType};
use crate::port::miniport::Miniport;
use crate::port::poison;
use crate::port::rules::paging::{
    ALLOC_CPU_VISIBLE, ALLOC_FLAGS, ALLOC_OUTPUT, ALLOC_SEGMENT, ALLOC_SIZE, OBJECT_HANDLE,
};
use crate::port::sync::{Lock, Rank};

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
    /// It may be shared.
    pub(crate) shared: bool,
    /// Memory that is there already, of the one allocation. What is made takes it.
    pub(crate) existing: Option<Backing>,
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
            driver: DriverHandle::new(arguments.hResource),
            runtime: std::mem::take(&mut request.runtime),
            private: request.private.clone(),
            shared: request.shared,
            allocations: Lock::new(Rank::Registry, Vec::new()),
            users: AtomicU32::new(0),
        })
    });
    let mut made = Vec::new();
    let mut refused = Vec::new();
    let mut failed = None;
    for (info, private) in infos.iter().zip(&request.allocations) {
        match accept(device, &caps, (info, private), resource.as_ref(), &mut request.existing) {
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
    info.Flags2.Value = poison::WORD;
    info.SupportedWriteSegmentSet = poison::WORD;
    info.AllocationPriority = poison::WORD;
    // A driver that stores no size has one of 0, which is refused; it is not to have a vast one.
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
/// STATUS_INVALID_PARAMETER for one without a size (D3DKMTCreateAllocation lists it; the page of DXGK_ALLOCATIONINFO
/// leaves open what Windows does), or with another one than the memory that is there; STATUS_NO_MEMORY. The driver has
/// the allocation all the same.
fn accept(
    device: &Device,
    caps: &Caps,
    (info, private): (&DXGK_ALLOCATIONINFO, &[u8]),
    resource: Option<&Arc<Resource>>,
    existing: &mut Option<Backing>,
) -> Result<Arc<Allocation>, NTSTATUS> {
    let adapter = device.adapter();
    let rules = adapter.rules();
    rules.check(&OBJECT_HANDLE, !info.hAllocation.is_null(), || {
        "DxgkDdiCreateAllocation stored no hAllocation".to_owned()
    });
    rules.check(&ALLOC_SIZE, info.Size != 0 && !matches!(info.AllocationPriority, 0 | poison::WORD), || {
        format!("Size {:#x}, AllocationPriority {:#x}", info.Size, info.AllocationPriority)
    });
    let set = info.SupportedWriteSegmentSet;
    let exists = |bit: u32| caps.segment(bit + 1).is_some();
    let bits = |set: u32| (0..32).filter(move |bit| set & (1 << bit) != 0);
    let preferred = preferred_segments(info.PreferredSegment.Value);
    let supported = |id: &u32| set & (1_u32 << (id - 1)) != 0;
    let is_aperture = |bit: u32| caps.segment(bit + 1).is_some_and(crate::port::caps::Segment::is_aperture);
    let sets =
        bits(set).all(exists) && preferred.iter().all(supported) && bits(info.EvictionSegmentSet).all(is_aperture);
    rules.check(&ALLOC_SEGMENT, sets, || {
        format!("write set {set:#x}, preferred {preferred:?}, eviction set {:#x}", info.EvictionSegmentSet)
    });
    let flags = *info.FlagsWddm2();
    let reachable = |bit: u32| {
        caps.is_system_memory(bit + 1)
            || caps.segment(bit + 1).is_some_and(|segment| segment.is_aperture() || segment.is_cpu_visible())
            || caps.segment(bit + 1).is_some_and(|segment| segment.descriptor.Flags.SupportsCpuHostAperture())
    };
    rules.check(&ALLOC_CPU_VISIBLE, !flags.CpuVisible() || bits(set).any(reachable), || {
        format!("CpuVisible with write set {set:#x}")
    });
    let aperture2 = caps.driver.MemoryManagementCaps.MapAperture2Supported();
    let consistent = (!flags.ExplicitResidencyNotification() || flags.AccessedPhysically())
        && (!flags.Cached() || flags.CpuVisible())
        && (!flags.MapApertureCpuVisible() || aperture2);
    rules.check(&ALLOC_FLAGS, consistent, || format!("{flags:?}"));
    // The member is there for drivers of 3.0 and later.
    if adapter.table().Version >= DXGKDDI_INTERFACE_VERSION_WDDM3_0 {
        rules.check(&ALLOC_OUTPUT, info.Flags2.Value != poison::WORD, || "Flags2 was not written".to_owned());
    }
    if info.Size == 0 {
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    let size = (info.Size as u64).checked_next_multiple_of(PAGE).ok_or(ntstatus::STATUS_NO_MEMORY)?;
    let named: Vec<_> = preferred.into_iter().chain(bits(set).map(|bit| bit + 1)).collect();
    let mut segments = placed(caps, &named);
    // CAST: a page count.
    let pages = (size / PAGE) as usize;
    if existing.is_some() {
        segments.retain(|id| caps.segment(*id).is_some_and(crate::port::caps::Segment::is_aperture));
    }
    let backing = match existing.take_if(|existing| existing.pages() == pages) {
        Some(existing) => existing,
        None if existing.is_some() => return Err(ntstatus::STATUS_INVALID_PARAMETER),
        None => own_pages(adapter, &flags, pages)?,
    };
    Ok(Arc::new(Allocation {
        adapter: adapter.clone(),
        driver: DriverHandle::new(info.hAllocation),
        priority: AtomicU32::new(info.AllocationPriority),
        offered: Lock::new(Rank::Leaf, Offered::default()),
        is_standard: false,
        size,
        alignment: info.Alignment().into(),
        segments,
        from_end: flags.FromEndOfSegment(),
        accessed_physically: flags.AccessedPhysically(),
        notify_residency: flags.ExplicitResidencyNotification(),
        cpu_visible: flags.CpuVisible(),
        creator: device.process().process().map_or(0, |process| process.nt().id()),
        backing,
        placement: Lock::new(
            Rank::Segment,
            Placement { place: Place::Evicted, references: 0, kept: 0, aperture: None, has_content: false },
        ),
        resource: resource.cloned(),
        private: private.to_vec(),
        users: AtomicU32::new(0),
    }))
}

/// Pages of an allocation's own.
///
/// # Errors
/// STATUS_NO_MEMORY.
fn own_pages(adapter: &Miniport, flags: &DXGK_ALLOCATIONINFOFLAGS_WDDM2_0, pages: usize) -> Result<Backing, NTSTATUS> {
    // Source: DXGK_ALLOCATIONINFOFLAGS_WDDM2_0, Cached: by default the backing store is write-combined.
    let cache = if flags.Cached() { CacheType::Cached } else { CacheType::WriteCombined };
    let contiguous = adapter.personality().contiguous_pages;
    let traits = PageTraits { contiguous, cache: Some(cache), read_only: false };
    let object = adapter.kernel().allocate_pages_of(pages, PageKind::User, 0, &traits);
    object.map(Backing::own).ok_or(ntstatus::STATUS_NO_MEMORY)
}

/// Where an allocation may be, best first. System memory that a driver names by a number of its own is reached by the
/// aperture.
///
/// Source: article gpu-segments, "System Memory Segments".
fn placed(caps: &Caps, named: &[u32]) -> Vec<u32> {
    let aperture = caps.segments.iter().find(|segment| segment.is_aperture()).map(|segment| segment.id);
    let mut segments = Vec::new();
    for id in named {
        let id = if caps.is_system_memory(*id) { aperture.unwrap_or(*id) } else { *id };
        if !segments.contains(&id) {
            segments.push(id);
        }
    }
    segments
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
    if resource.is_some() {
        // The resource's handle comes before its allocations'. Source: Wine's tests of D3DKMT, which run on Windows.
        created.resource = process.reserve(HandleType::Resource).ok_or(ntstatus::STATUS_NO_MEMORY)?;
    }
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
            lock: Lock::new(Rank::Leaf, (0, 0)),
            locking: crate::port::sync::Gate::new(),
        });
        let Some(handle) = process.insert(UserObject::Allocation(open.clone())) else {
            forget(process, &created);
            return Err(ntstatus::STATUS_NO_MEMORY);
        };
        open.handle.store(handle, Ordering::Release);
        created.allocations.push(handle);
        device.add_opened(&open);
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
    let owner = crate::port::handle::of_driver(device.driver_handle());
    let pointer = &raw const arguments;
    let status = ddi::status(call_ddi!(adapter, DxgkDdiOpenAllocation(owner, pointer)));
    let listed =
        [ntstatus::STATUS_INVALID_PARAMETER, ntstatus::STATUS_NO_MEMORY, ntstatus::STATUS_GRAPHICS_DRIVER_MISMATCH];
    if let Err(status) = judge_creation(adapter, "DxgkDdiOpenAllocation", status, &listed) {
        forget(process, &created);
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
        process.fill(created.resource, UserObject::Resource(object));
        for open in &opens {
            open.resource_handle.store(created.resource, Ordering::Release);
        }
    }
    Ok(created)
}

fn forget(process: &ProcessInner, created: &Created) {
    for handle in &created.allocations {
        let object = process.remove(*handle, HandleType::Allocation);
        drop(object);
    }
    drop(process.remove(created.resource, HandleType::Resource));
}
