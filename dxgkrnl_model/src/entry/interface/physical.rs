//! Physical memory objects and address descriptor lists.
//!
//! Chosen: without an IOMMU the logical addresses of an ADL are the physical ones. An object of type IO_SPACE over RAM
//! maps the pages there when they are resident, as `MmMapIoSpace` does not; this is how a driver without hardware can
//! reach the pages that a page table entry names. Sections are refused.
//!
//! Source: DDI pages of the callbacks; article iommu-dma-remapping.

use std::sync::Arc;

use nt_model::memory::{ContiguousRequest, MapRequest};
use nt_model::{CacheType, In, Mdl, PageObject, shims};
use wddm_abi::{
    DXGK_ACCESS_MODE, DXGK_ADL, DXGK_PHYSICAL_MEMORY_TYPE, DXGKARGCB_ALLOCATE_ADL,
    DXGKARGCB_CLOSE_PHYSICAL_MEMORY_OBJECT, DXGKARGCB_CREATE_PHYSICAL_MEMORY_OBJECT,
    DXGKARGCB_DESTROY_PHYSICAL_MEMORY_OBJECT, DXGKARGCB_FREE_ADL, DXGKARGCB_MAP_PHYSICAL_MEMORY,
    DXGKARGCB_OPEN_PHYSICAL_MEMORY_OBJECT, DXGKARGCB_UNMAP_PHYSICAL_MEMORY, NTSTATUS, ntstatus,
};

use super::memory::{Memory, cache_type, free_handle};
use crate::entry::interface::memory::DriverMemory;
use crate::port::callback::{callback, callback_of, record, routines, store_record};
use crate::port::handle::{self, raw};
use crate::port::miniport::Miniport;
use crate::port::rules::interface::CB_FREE;
use crate::port::sync::{Lock, Rank};

routines! {
    CREATE = "DxgkCbCreatePhysicalMemoryObject"("pArgs") 0..=0;
    DESTROY = "DxgkCbDestroyPhysicalMemoryObject"("pArgs") 0..=0;
    MAP = "DxgkCbMapPhysicalMemory"("pArgs") 0..=0;
    UNMAP = "DxgkCbUnmapPhysicalMemory"("pArgs") 0..=0;
    OPEN = "DxgkCbOpenPhysicalMemoryObject"("pArgs") 0..=0;
    CLOSE = "DxgkCbClosePhysicalMemoryObject"("pArgs") 0..=0;
    ALLOCATE_ADL = "DxgkCbAllocateAdl"("pArgs") 0..=0;
    FREE_ADL = "DxgkCbFreeAdl"("pArgs") 0..=0;
}

/// Where the memory is.
#[derive(Debug)]
enum Backing {
    Contiguous(usize, CacheType),
    Pages(Mdl),
    IoSpace(u64),
}

/// A physical memory object.
#[derive(Debug)]
pub(crate) struct PhysicalObject {
    backing: Backing,
    bytes: usize,
    cache: CacheType,
    frames: Vec<u64>,
    /// Page numbers of ADLs, by address, kept in place for the driver's pointers.
    adls: Lock<Vec<Box<[usize]>>>,
}

impl PhysicalObject {
    pub(super) fn free(&self, adapter: &Miniport) {
        let kernel = adapter.kernel();
        match &self.backing {
            Backing::Contiguous(address, cache) => kernel.free_contiguous(*address, Some((self.bytes, *cache))),
            Backing::Pages(mdl) => {
                kernel.free_pages_from_mdl(*mdl);
                kernel.free_mdl(*mdl);
            }
            Backing::IoSpace(_) => (),
        }
    }
}

fn create(adapter: &Miniport, arguments: &DXGKARGCB_CREATE_PHYSICAL_MEMORY_OBJECT) -> Option<PhysicalObject> {
    let kernel = adapter.kernel();
    let cache = cache_type(arguments.CacheType.0)?;
    let bytes = arguments.Size;
    let object =
        |backing, frames| PhysicalObject { backing, bytes, cache, frames, adls: Lock::new(Rank::Leaf, Vec::new()) };
    match arguments.Type {
        DXGK_PHYSICAL_MEMORY_TYPE::DXGK_PHYSICAL_MEMORY_TYPE_CONTIGUOUS_MEMORY => {
            let limits = arguments.ContiguousMemory();
            let address = kernel.allocate_contiguous(&ContiguousRequest {
                bytes,
                lowest: limits.LowestAcceptableAddress.QuadPart.cast_unsigned(),
                highest: limits.HighestAcceptableAddress.QuadPart.cast_unsigned(),
                boundary: limits.BoundaryAddressMultiple.QuadPart.cast_unsigned(),
                cache,
            })?;
            let (pages, first, _) = kernel.page_at(address)?;
            let frames = (first..pages.pages()).map(|index| pages.frame(index)).collect();
            Some(object(Backing::Contiguous(address, cache), frames))
        }
        DXGK_PHYSICAL_MEMORY_TYPE::DXGK_PHYSICAL_MEMORY_TYPE_MDL => {
            let limits = arguments.Mdl();
            let range = limits.LowAddress.QuadPart.cast_unsigned()..=limits.HighAddress.QuadPart.cast_unsigned();
            let mdl = kernel.allocate_pages_for_mdl(range, bytes, cache, true)?;
            let frames = mdl.frames();
            Some(object(Backing::Pages(mdl), frames))
        }
        DXGK_PHYSICAL_MEMORY_TYPE::DXGK_PHYSICAL_MEMORY_TYPE_IO_SPACE => {
            let base = arguments.IOSpace().BaseAddress.QuadPart.cast_unsigned();
            if !base.is_multiple_of(4096) || bytes == 0 {
                return None;
            }
            let first = base / 4096;
            Some(object(Backing::IoSpace(base), (first..first + (bytes as u64).div_ceil(4096)).collect()))
        }
        _ => None,
    }
}

/// Maps part of an object; the address and the offset of the wanted byte in the mapping.
fn map(adapter: &Miniport, object: &PhysicalObject, offset: usize, bytes: usize) -> Option<(usize, usize, usize)> {
    let kernel = adapter.kernel();
    let end = offset.checked_add(bytes).filter(|end| bytes != 0 && *end <= object.bytes)?;
    match &object.backing {
        Backing::Contiguous(address, _) => Some((*address, offset, object.bytes)),
        Backing::Pages(mdl) => {
            let request = MapRequest { cache: object.cache, ..MapRequest::default() };
            Some((kernel.map_locked_pages(*mdl, &request)?, offset, object.bytes))
        }
        Backing::IoSpace(base) => {
            let first = offset / 4096;
            let count = end.div_ceil(4096) - first;
            let frame = base / 4096 + first as u64;
            // Resident pages of RAM are mapped as they lie; anything else is what MmMapIoSpace is for.
            if let Some((pages, index)) = kernel.page_of_frame(frame) {
                let whole =
                    (0..count).all(|at| pages.pages() > index + at && pages.frame(index + at) == frame + at as u64);
                let resident = (0..count).all(|at| pages.pages() > index + at && pages.is_page_resident(index + at));
                if pages.kind().is_ram() {
                    if !whole || !resident {
                        return None;
                    }
                    let address = kernel.map_for_model(&pages)?;
                    DriverMemory::of(adapter).add_mapping(address, pages.pages() * 4096, Some(pages.clone()));
                    return Some((address, index * 4096 + offset % 4096, count * 4096));
                }
            }
            let address = kernel.map_io_space(base + (first * 4096) as u64, count * 4096, object.cache)?;
            DriverMemory::of(adapter).add_mapping(address, count * 4096, None);
            Some((address, offset % 4096, count * 4096))
        }
    }
}

/// Undoes [`map`] for an IO space object.
pub(super) fn unmap(adapter: &Miniport, address: usize, bytes: usize, object: Option<&Arc<PageObject>>) {
    match object {
        Some(_) => adapter.kernel().unmap_for_model(address),
        None => adapter.kernel().unmap_io_space(address, bytes),
    }
}

/// The object behind a handle, and its adapter: the callbacks take no device handle.
fn find(machine: &nt_model::Machine, handle: u64) -> Option<(Arc<Miniport>, Arc<PhysicalObject>)> {
    let shared = crate::port::shared::shared_of(machine)?;
    shared.adapters().into_iter().find_map(|adapter| match DriverMemory::of(&adapter).get(handle) {
        Some(Memory::Physical(object)) => Some((adapter, object)),
        _ => None,
    })
}

fn refuse(machine: &nt_model::Machine, handle: u64) -> NTSTATUS {
    machine.rules.check(&CB_FREE, false, || format!("{handle:#x} is no physical memory object"));
    ntstatus::STATUS_INVALID_PARAMETER
}

shims! {
    /// Callbacks of physical memory objects.
    pub(crate) table CALLBACKS;

    fn DxgkCbCreatePhysicalMemoryObject(
        machine,
        args: In<[u8; size_of::<DXGKARGCB_CREATE_PHYSICAL_MEMORY_OBJECT>()]>,
    ) -> NTSTATUS {
        let mut arguments: DXGKARGCB_CREATE_PHYSICAL_MEMORY_OBJECT = record(args);
        let owner = arguments.hAdapter;
        let run = |adapter: &Arc<Miniport>| {
            let Some(object) = create(adapter, &arguments) else { return ntstatus::STATUS_INVALID_PARAMETER };
            let handle = DriverMemory::of(adapter).add(Memory::Physical(Arc::new(object)));
            arguments.hPhysicalMemoryObject = raw(handle);
            arguments.hAdapterMemoryObject = if arguments.hAdapter.is_null() { raw(0) } else { raw(handle) };
            store_record(args, &arguments);
            ntstatus::STATUS_SUCCESS
        };
        let numbers = [args.address() as u64];
        let status = if owner.is_null() {
            // Without an adapter the object is kept with the first one: there is one address space.
            let first = crate::port::shared::shared_of(machine).and_then(|shared| shared.adapters().first().cloned());
            match first {
                Some(adapter) => callback_of(&adapter, &CREATE, numbers, run),
                None => Err(ntstatus::STATUS_INVALID_PARAMETER),
            }
        } else {
            callback(owner, &CREATE, numbers, run)
        };
        status.unwrap_or_else(|status| status)
    }

    fn DxgkCbDestroyPhysicalMemoryObject(
        machine,
        args: In<[u8; size_of::<DXGKARGCB_DESTROY_PHYSICAL_MEMORY_OBJECT>()]>,
    ) {
        let arguments: DXGKARGCB_DESTROY_PHYSICAL_MEMORY_OBJECT = record(args);
        let number = handle::value(arguments.hPhysicalMemoryObject);
        match find(machine, number) {
            Some((adapter, _)) => _ = callback_of(&adapter, &DESTROY, [args.address() as u64], |adapter| {
                free_handle(adapter, number, |memory| matches!(memory, Memory::Physical(_)))
            }),
            None => _ = refuse(machine, number),
        }
    }

    fn DxgkCbMapPhysicalMemory(machine, args: In<[u8; size_of::<DXGKARGCB_MAP_PHYSICAL_MEMORY>()]>) -> NTSTATUS {
        let mut arguments: DXGKARGCB_MAP_PHYSICAL_MEMORY = record(args);
        let number = handle::value(arguments.hPhysicalMemoryObject);
        let Some((adapter, object)) = find(machine, number) else { return refuse(machine, number) };
        let status = callback_of(&adapter, &MAP, [args.address() as u64], |adapter| {
            if arguments.AccessMode != DXGK_ACCESS_MODE::DXGK_ACCESS_MODE_KERNEL_MODE {
                return ntstatus::STATUS_NOT_SUPPORTED;
            }
            let Some((address, offset, bytes)) = map(adapter, &object, arguments.Offset, arguments.Size) else {
                return ntstatus::STATUS_INVALID_PARAMETER;
            };
            arguments.pMappedAddress = core::ptr::with_exposed_provenance_mut(address);
            arguments.Offset = offset;
            arguments.Size = bytes;
            store_record(args, &arguments);
            ntstatus::STATUS_SUCCESS
        });
        status.unwrap_or_else(|status| status)
    }

    fn DxgkCbUnmapPhysicalMemory(machine, args: In<[u8; size_of::<DXGKARGCB_UNMAP_PHYSICAL_MEMORY>()]>) {
        let arguments: DXGKARGCB_UNMAP_PHYSICAL_MEMORY = record(args);
        let number = handle::value(arguments.hPhysicalMemoryObject);
        let Some((adapter, object)) = find(machine, number) else {
            let _ = refuse(machine, number);
            return;
        };
        let _ = callback_of(&adapter, &UNMAP, [args.address() as u64], |adapter| {
            let address = arguments.pBaseAddress.expose_provenance();
            match &object.backing {
                Backing::Contiguous(..) => (),
                Backing::Pages(mdl) => adapter.kernel().unmap_locked_pages(address, *mdl),
                Backing::IoSpace(_) => {
                    let mapping = DriverMemory::of(adapter).take_mapping(address);
                    adapter.rules().check(&CB_FREE, mapping.is_some(), || format!("{address:#x} is not mapped"));
                    if let Some((bytes, pages)) = mapping {
                        unmap(adapter, address, bytes, pages.as_ref());
                    }
                }
            }
        });
    }

    fn DxgkCbOpenPhysicalMemoryObject(
        _machine,
        args: In<[u8; size_of::<DXGKARGCB_OPEN_PHYSICAL_MEMORY_OBJECT>()]>,
    ) -> NTSTATUS {
        let mut arguments: DXGKARGCB_OPEN_PHYSICAL_MEMORY_OBJECT = record(args);
        let status = callback(arguments.hAdapter, &OPEN, [args.address() as u64], |_| {
            arguments.hAdapterMemoryObject = arguments.hPhysicalMemoryObject;
            store_record(args, &arguments);
            ntstatus::STATUS_SUCCESS
        });
        status.unwrap_or_else(|status| status)
    }

    fn DxgkCbClosePhysicalMemoryObject(
        machine,
        args: In<[u8; size_of::<DXGKARGCB_CLOSE_PHYSICAL_MEMORY_OBJECT>()]>,
    ) {
        let arguments: DXGKARGCB_CLOSE_PHYSICAL_MEMORY_OBJECT = record(args);
        let number = handle::value(arguments.hAdapterMemoryObject);
        match find(machine, number) {
            Some((adapter, _)) => _ = callback_of(&adapter, &CLOSE, [args.address() as u64], |_| ()),
            None => _ = refuse(machine, number),
        }
    }

    fn DxgkCbAllocateAdl(machine, args: In<[u8; size_of::<DXGKARGCB_ALLOCATE_ADL>()]>) -> NTSTATUS {
        let arguments: DXGKARGCB_ALLOCATE_ADL = record(args);
        let number = handle::value(arguments.hAdapterMemoryObject);
        let Some((adapter, object)) = find(machine, number) else { return refuse(machine, number) };
        let status = callback_of(&adapter, &ALLOCATE_ADL, [args.address() as u64], |_| {
            let (first, count) = (arguments.Offset / 4096, arguments.Size.div_ceil(4096));
            let Some(frames) = object.frames.get(first..first + count) else { return ntstatus::STATUS_INVALID_PARAMETER };
            let consecutive = frames.windows(2).all(|pair| pair[1] == pair[0] + 1);
            if arguments.Flags.RequireContiguous() && !consecutive {
                return ntstatus::STATUS_NO_MEMORY;
            }
            // CAST: page numbers fit an address.
            let pages: Box<[usize]> = frames.iter().map(|frame| *frame as usize).collect();
            let mut adl = DXGK_ADL::zeroed();
            // CAST: a list of 2^32 pages would be 16 TiB.
            adl.PageCount = count as u32;
            if consecutive {
                adl.Flags.set_Contiguous(true);
                adl.set_BasePageNumber(pages.first().copied().unwrap_or(0));
            } else {
                adl.set_Pages(pages.as_ptr());
            }
            object.adls.lock().push(pages);
            if crate::port::raw::write(arguments.pAdl, adl) { ntstatus::STATUS_SUCCESS } else { ntstatus::STATUS_INVALID_PARAMETER }
        });
        status.unwrap_or_else(|status| status)
    }

    fn DxgkCbFreeAdl(machine, args: In<[u8; size_of::<DXGKARGCB_FREE_ADL>()]>) {
        let arguments: DXGKARGCB_FREE_ADL = record(args);
        let number = handle::value(arguments.hAdapterMemoryObject);
        let Some((adapter, object)) = find(machine, number) else {
            let _ = refuse(machine, number);
            return;
        };
        let _ = callback_of(&adapter, &FREE_ADL, [args.address() as u64], |_| {
            if let Some(adl) = crate::port::raw::read(arguments.pAdl) {
                let pages = adl.Pages();
                object.adls.lock().retain(|list| list.as_ptr() != pages);
            }
        });
    }
}
