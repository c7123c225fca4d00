//! `MmAllocateContiguousMemory` and its kin, and physical addresses.

use super::page_object::{CacheType, PageKind, PageRequest};
use super::regions::Purpose;
use super::{PAGE_SIZE, host};
use crate::cpu::Site;
use crate::kernel::Machine;
use crate::routines::{self, Routine};
use crate::rules::Details;
use crate::rules_memory::{NT_CONTIGUOUS_FREE, NT_PHYSICAL_ADDRESS};

/// Where contiguous memory may lie, and how it is mapped.
#[derive(Clone, Copy, Debug)]
pub struct ContiguousRequest {
    /// Bytes; rounded up to pages.
    pub bytes: usize,
    /// Lowest physical address that may be used.
    pub lowest: u64,
    /// Highest physical address that may be used.
    pub highest: u64,
    /// The memory must not cross a multiple of this; 0: it may.
    pub boundary: u64,
    /// How it is mapped.
    pub cache: CacheType,
}

impl Machine {
    /// Allocates physically contiguous memory and returns its kernel address.
    ///
    /// IRQL: at most DISPATCH_LEVEL. `None`: no memory in the limits (boundaries smaller than the request are never
    /// met).
    #[doc(alias = "MmAllocateContiguousMemory")]
    #[doc(alias = "MmAllocateContiguousMemorySpecifyCache")]
    #[track_caller]
    pub fn allocate_contiguous(&self, request: &ContiguousRequest) -> Option<usize> {
        // CAST: printed only.
        let arguments = [request.bytes as u64, request.lowest, request.highest, request.boundary, request.cache as u64];
        let _service = self.service(&routines::MM_ALLOCATE_CONTIGUOUS_MEMORY_SPECIFY_CACHE, arguments);
        if self.memory.must_fail() || request.bytes == 0 {
            return None;
        }
        if request.boundary != 0 && (request.bytes as u64) > request.boundary {
            return None;
        }
        let object = self.memory.physical.allocate(&PageRequest {
            pages: request.bytes.div_ceil(PAGE_SIZE),
            kind: PageKind::Contiguous,
            contiguous: true,
            highest: request.highest,
            lowest: request.lowest,
            cache: Some(request.cache),
            read_only: false,
            tag: 0,
            site: Site::here(),
            fixed: None,
        })?;
        let address = self.memory.map_object(&object, Purpose::Contiguous, request.cache);
        for index in 0..object.pages() {
            let _ = object.add_mapping(index, request.cache);
        }
        if address.is_none() {
            self.memory.physical.free(&object);
        }
        address
    }

    /// Frees contiguous memory. `specified`: size and cache type, where the caller must repeat them.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "MmFreeContiguousMemory")]
    #[doc(alias = "MmFreeContiguousMemorySpecifyCache")]
    #[track_caller]
    pub fn free_contiguous(&self, address: usize, specified: Option<(usize, CacheType)>) {
        let routine: &'static Routine = match specified {
            None => &routines::MM_FREE_CONTIGUOUS_MEMORY,
            Some(_) => &routines::MM_FREE_CONTIGUOUS_MEMORY_SPECIFY_CACHE,
        };
        let _service = self.service(routine, [address as u64]);
        let region = self.memory.regions.at(address).filter(|region| region.purpose == Purpose::Contiguous);
        let agrees = region.as_ref().is_some_and(|region| {
            specified.is_none_or(|(bytes, cache)| {
                bytes.div_ceil(PAGE_SIZE) * PAGE_SIZE == region.bytes && cache == region.cache
            })
        });
        self.rules.check(&NT_CONTIGUOUS_FREE, agrees, || {
            Details::new(match &region {
                None => format!("{address:#x} is no contiguous allocation (any more)"),
                Some(region) => format!("{address:#x} has {:#x} bytes, {:?}", region.bytes, region.cache),
            })
            .params([0, address as u64, 0])
        });
        let Some(region) = region else { return };
        let Some((object, ..)) = region.page(address) else { return };
        self.check_memory_idle(&region.range());
        self.check_unmapped(&object, 1);
        self.memory.regions.remove(address);
        host::unmap(region.start, region.bytes);
        self.memory.physical.free(&object);
    }

    /// The physical address behind a kernel address; 0 (and NT-PHYSICAL-ADDRESS broken) when there is no resident page.
    ///
    /// IRQL: any.
    #[doc(alias = "MmGetPhysicalAddress")]
    #[track_caller]
    pub fn physical_address(&self, address: usize) -> u64 {
        let _service = self.service(&routines::MM_GET_PHYSICAL_ADDRESS, [address as u64]);
        let page = self.page_at(address);
        let resident = page.as_ref().is_some_and(|(object, index, _)| object.is_page_resident(*index));
        self.rules.check(&NT_PHYSICAL_ADDRESS, resident, || {
            Details::new(match &page {
                None => format!("{address:#x} is no memory of this machine"),
                Some((object, ..)) => format!("{address:#x} is {:?} memory that is not locked", object.kind()),
            })
        });
        page.map_or(0, |(object, index, offset)| object.frame(index) * PAGE_SIZE as u64 + offset as u64)
    }

    /// Whether an access to `address` would not fault: a page or a device register is there.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "MmIsAddressValid")]
    #[track_caller]
    pub fn is_address_valid(&self, address: usize) -> bool {
        let _service = self.service(&routines::MM_IS_ADDRESS_VALID, [address as u64]);
        self.images.contains(address)
            || self.memory.regions.find(address).is_some_and(|region| {
                !matches!(region.backing, super::regions::Backing::Reserved) && region.rights != host::Rights::None
            })
    }
}
