//! Mapping locked pages: into the system, into a process, into reserved addresses.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::mdl::Mdl;
use super::page_object::CacheType;
use super::regions::{self, Backing, Purpose, Region};
use super::{PAGE_SIZE, Rights, host};
use crate::cpu::{self, Site};
use crate::kernel::Machine;
use crate::records::{
    MDL_IO_SPACE, MDL_MAPPED_TO_SYSTEM_VA, MDL_PAGES_LOCKED, MDL_PARTIAL, MDL_PARTIAL_HAS_BEEN_MAPPED,
    MDL_SOURCE_IS_NONPAGED_POOL,
};
use crate::routines::{self, Routine};
use crate::rules::Details;
use crate::rules_memory::{
    NT_CACHE, NT_MAP_WRITE, NT_MAPPING_TAG, NT_MDL_BUGCHECK, NT_MDL_LOCKED, NT_MDL_STATE, NT_UNMAP,
};

/// How to map the pages of an MDL.
#[derive(Clone, Copy, Debug)]
pub struct MapRequest {
    /// Into the current process instead of the system.
    pub user_mode: bool,
    /// How.
    pub cache: CacheType,
    /// User address to map at; 0: any.
    pub at: usize,
    /// What the driver passed as `BugCheckOnFailure`.
    pub bugcheck_on_failure: bool,
    /// Only loads are allowed (`MdlMappingNoWrite` in the priority).
    pub read_only: bool,
}

impl Default for MapRequest {
    fn default() -> Self {
        Self { user_mode: false, cache: CacheType::Cached, at: 0, bugcheck_on_failure: false, read_only: false }
    }
}

fn mapping(mdl: Mdl, text: String) -> Details {
    Details::new(text).params([mdl.address() as u64, mdl.flags().into(), 0])
}

impl Machine {
    /// Maps the pages of `mdl` side by side and returns the address of the first byte of its buffer.
    ///
    /// IRQL: at most DISPATCH_LEVEL; into a process at most APC_LEVEL. `None`: a broken rule, an injected failure, or
    /// no address space.
    #[doc(alias = "MmMapLockedPagesSpecifyCache")]
    #[track_caller]
    pub fn map_locked_pages(&self, mdl: Mdl, request: &MapRequest) -> Option<usize> {
        let routine: &'static Routine = &routines::MM_MAP_LOCKED_PAGES_SPECIFY_CACHE;
        let arguments = [
            mdl.address() as u64,
            request.user_mode.into(),
            // CAST: printed only.
            request.cache as u64,
            request.at as u64,
            request.bugcheck_on_failure.into(),
        ];
        let _service = self.service(routine, arguments);
        self.check_irql_when(routine, usize::from(request.user_mode));
        self.at_mapping();
        self.rules.check(&NT_MDL_BUGCHECK, !request.bugcheck_on_failure, || {
            mapping(mdl, "BugCheckOnFailure is TRUE".to_owned())
        });
        if !self.check_mappable(mdl) || self.memory.must_fail() {
            return None;
        }
        if !request.user_mode && self.memory.has_no_addresses() {
            return None;
        }
        // Chosen: a driver maps nothing into another Linux process by itself.
        if request.user_mode && cpu::with(|cpu| cpu.separate.get()) != 0 {
            return None;
        }
        let backing = self.backing_of_mdl(routine, mdl)?;
        let rights = if request.read_only { Rights::Read } else { Rights::ReadWrite };
        self.check_rights(mdl, &backing, rights);
        let process = cpu::with(|cpu| cpu.process.get());
        let purpose = if request.user_mode { Purpose::Process(process) } else { Purpose::MdlMapping(mdl.address()) };
        let start = self.map_backing(mdl, backing, rights, request.cache, purpose, request.at)?;
        let offset = mdl.header().byte_offset.load(Ordering::Relaxed) as usize;
        if !request.user_mode {
            let partial = mdl.flags() & MDL_PARTIAL;
            let flags = MDL_MAPPED_TO_SYSTEM_VA | if partial != 0 { MDL_PARTIAL_HAS_BEEN_MAPPED } else { 0 };
            mdl.header().flags.fetch_or(flags, Ordering::Relaxed);
            mdl.header().mapped_system_va.store(start + offset, Ordering::Relaxed);
        }
        Some(start + offset)
    }

    fn check_mappable(&self, mdl: Mdl) -> bool {
        if !self.check_mdl_shape(mdl) {
            return false;
        }
        let flags = mdl.flags();
        let nonpaged = flags & MDL_SOURCE_IS_NONPAGED_POOL != 0;
        let locked = self.rules.check(
            &NT_MDL_STATE,
            flags & (MDL_PAGES_LOCKED | MDL_SOURCE_IS_NONPAGED_POOL | MDL_PARTIAL | MDL_IO_SPACE) != 0,
            || mapping(mdl, "mapped without having been locked or built".to_owned()).param1(0xB3),
        );
        let unmapped = self.rules.check(&NT_MDL_STATE, flags & MDL_MAPPED_TO_SYSTEM_VA == 0 || nonpaged, || {
            mapping(mdl, "mapped while it is mapped already".to_owned())
        });
        locked && unmapped
    }

    /// Pages, all of them resident, or device registers.
    fn backing_of_mdl(&self, routine: &'static Routine, mdl: Mdl) -> Option<Backing> {
        if mdl.flags() & MDL_IO_SPACE != 0
            && let Some(registers) = self.registers_of_mdl(mdl)
        {
            return Some(registers);
        }
        let pages = self.pages_of_mdl(routine, mdl)?;
        let loose = pages.iter().find(|(object, index)| !object.is_page_resident(*index));
        let resident = self.rules.check(&NT_MDL_LOCKED, loose.is_none(), || {
            let frame = loose.map_or(0, |(object, index)| object.frame(*index));
            let text = format!("page frame {frame:#x} is pageable and not locked");
            Details::new(text).params([mdl.address() as u64, pages.len() as u64, frame])
        });
        resident.then(|| Backing::Pages(regions::merge(pages)))
    }

    /// What may only be read is not mapped for writing.
    fn check_rights(&self, mdl: Mdl, backing: &Backing, rights: Rights) {
        let Backing::Pages(runs) = backing else { return };
        let wrong = runs.iter().find(|run| run.object.is_read_only() && rights == Rights::ReadWrite);
        self.rules.check(&NT_MAP_WRITE, wrong.is_none(), || {
            let frame = wrong.map_or(0, |run| run.object.frame(run.first));
            mapping(mdl, format!("page frame {frame:#x}, which may only be read, is mapped for writing"))
        });
    }

    /// Maps, counts the mappings, checks cache types, and enters the region. `at`: 0 for any address.
    fn map_backing(
        &self,
        mdl: Mdl,
        backing: Backing,
        rights: Rights,
        cache: CacheType,
        purpose: Purpose,
        at: usize,
    ) -> Option<usize> {
        let bytes = mdl.pages() * PAGE_SIZE;
        let start = match (&backing, at) {
            (Backing::Pages(runs), 0) => regions::map_runs(runs, rights).ok()?,
            (Backing::Pages(runs), at) => {
                host::reserve_at(at, bytes).ok()?;
                regions::map_runs_at(at, runs, rights).ok()?;
                at
            }
            _ => host::reserve(bytes).ok()?,
        };
        let rights = if matches!(backing, Backing::Registers(..)) { Rights::None } else { rights };
        let region = Region { start, bytes, backing, purpose, rights, cache, site: Site::here() };
        self.count_mappings(&region);
        self.memory.regions.insert(region);
        Some(start)
    }

    /// Counts a region's pages as mapped, and checks that their cache types agree.
    pub(crate) fn count_mappings(&self, region: &Region) {
        let mut clash = None;
        for (object, index) in region.pages() {
            if let Err(old) = object.add_mapping(index, region.cache) {
                clash = clash.or(Some((object.frame(index), old)));
            }
        }
        self.rules.check(&NT_CACHE, clash.is_none(), || {
            let Some((frame, old)) = clash else { return Details::default() };
            Details::new(format!("page frame {frame:#x} is {old:?} and is mapped {:?}", region.cache))
        });
    }

    /// The cache type of the page of RAM at a physical address. `None`: no RAM that is allocated is there.
    ///
    /// No page describes the routine. Chosen: it fails for what is not RAM.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "MmGetCacheAttribute")]
    #[track_caller]
    pub fn cache_attribute(&self, physical: u64) -> Option<CacheType> {
        let _service = self.service(&routines::MM_GET_CACHE_ATTRIBUTE, [physical]);
        let page = self.page_of_frame(physical / PAGE_SIZE as u64);
        page.filter(|(object, _)| object.kind().is_ram()).map(|(object, index)| object.cache_of(index))
    }

    /// Takes a region out of the table and of the address space, and uncounts its pages.
    pub(crate) fn remove_mapping_at(&self, address: usize) -> bool {
        let Some(region) = self.forget_mapping_at(address) else { return false };
        host::unmap(region.start, region.bytes);
        true
    }

    /// Takes a region out of the table, and uncounts its pages. The addresses stay as they are.
    pub(crate) fn forget_mapping_at(&self, address: usize) -> Option<Arc<Region>> {
        let region = self.memory.regions.remove(address - address % PAGE_SIZE)?;
        for (object, index) in region.pages() {
            object.remove_mapping(index);
        }
        Some(region)
    }

    /// Removes a mapping of `mdl` that [`map_locked_pages`](Self::map_locked_pages) returned.
    ///
    /// IRQL: at most DISPATCH_LEVEL; from a process at most APC_LEVEL.
    #[doc(alias = "MmUnmapLockedPages")]
    #[track_caller]
    pub fn unmap_locked_pages(&self, address: usize, mdl: Mdl) {
        let arguments = [address as u64, mdl.address() as u64];
        let _service = self.service(&routines::MM_UNMAP_LOCKED_PAGES, arguments);
        let region = self.memory.regions.at(address - address % PAGE_SIZE);
        let ours = region.as_ref().is_some_and(|region| match region.purpose {
            Purpose::MdlMapping(made_by) => made_by == mdl.address(),
            Purpose::Process(_) => true,
            _ => false,
        });
        let known = self.rules.check(&NT_UNMAP, ours, || {
            Details::new(match &region {
                None => format!("nothing is mapped at {address:#x}"),
                Some(region) => format!("{region:?} was not mapped from this MDL"),
            })
            .params([address as u64, mdl.address() as u64, 0])
        });
        if !known {
            return;
        }
        let system = region.is_some_and(|region| matches!(region.purpose, Purpose::MdlMapping(_)));
        self.remove_mapping_at(address);
        self.spend_unmapping();
        if system {
            mdl.remove_flags(MDL_MAPPED_TO_SYSTEM_VA | MDL_PARTIAL_HAS_BEEN_MAPPED);
        }
    }

    /// Takes the time that [`KernelConfig::unmap_time`](crate::KernelConfig::unmap_time) says.
    fn spend_unmapping(&self) {
        let time = self.config().unmap_time;
        if time != 0 {
            self.with_current_thread(|thread| self.sched.stall(&thread.slot, time));
        }
    }

    /// Reserves `bytes` of system address space for later mappings, marked with `tag`.
    ///
    /// IRQL: at most APC_LEVEL.
    #[doc(alias = "MmAllocateMappingAddress")]
    #[track_caller]
    pub fn allocate_mapping_address(&self, bytes: usize, tag: u32) -> Option<usize> {
        let _service = self.service(&routines::MM_ALLOCATE_MAPPING_ADDRESS, [bytes as u64, tag.into()]);
        if bytes == 0 || self.memory.must_fail() {
            return None;
        }
        let bytes = bytes.next_multiple_of(PAGE_SIZE);
        let start = host::reserve(bytes).ok()?;
        self.memory.regions.insert(Region {
            start,
            bytes,
            backing: Backing::Reserved,
            purpose: Purpose::MappingAddress(tag),
            rights: Rights::None,
            cache: CacheType::Cached,
            site: Site::here(),
        });
        Some(start)
    }

    /// Gives reserved address space back. Nothing may be mapped there.
    ///
    /// IRQL: at most APC_LEVEL.
    #[doc(alias = "MmFreeMappingAddress")]
    #[track_caller]
    pub fn free_mapping_address(&self, address: usize, tag: u32) {
        let _service = self.service(&routines::MM_FREE_MAPPING_ADDRESS, [address as u64, tag.into()]);
        let Some(region) = self.reserved(address, tag) else { return };
        let idle = matches!(region.backing, Backing::Reserved);
        self.rules.check(&NT_MAPPING_TAG, idle, || in_use(address));
        self.remove_mapping_at(address);
    }

    fn reserved(&self, address: usize, tag: u32) -> Option<std::sync::Arc<Region>> {
        let region = self.memory.regions.at(address);
        let matches = region.as_ref().is_some_and(|region| region.purpose == Purpose::MappingAddress(tag));
        self.rules.check(&NT_MAPPING_TAG, matches, || {
            Details::new(format!("{address:#x} is no mapping address with tag '{}'", crate::pool::tag_text(tag)))
                .params([address as u64, tag.into(), 0])
        });
        region.filter(|_| matches)
    }

    /// Maps the pages of `mdl` at a reserved address. Returns the address of the first byte of its buffer.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "MmMapLockedPagesWithReservedMapping")]
    #[track_caller]
    pub fn map_at_reserved(&self, address: usize, tag: u32, mdl: Mdl, cache: CacheType) -> Option<usize> {
        let routine: &'static Routine = &routines::MM_MAP_LOCKED_PAGES_WITH_RESERVED_MAPPING;
        // CAST: printed only.
        let _service = self.service(routine, [address as u64, tag.into(), mdl.address() as u64, cache as u64]);
        let reserved = self.reserved(address, tag)?;
        let idle = matches!(reserved.backing, Backing::Reserved);
        let bytes = mdl.pages() * PAGE_SIZE;
        self.rules.check(&NT_MAPPING_TAG, idle, || in_use(address));
        self.rules.check(&NT_MAPPING_TAG, bytes <= reserved.bytes, || {
            Details::new(format!("{bytes:#x} bytes do not fit in the {:#x} reserved", reserved.bytes)).params([
                address as u64,
                0,
                0,
            ])
        });
        if !idle || bytes > reserved.bytes || !self.check_mappable(mdl) {
            return None;
        }
        let backing = self.backing_of_mdl(routine, mdl)?;
        // The routine takes no priority, so that there is no MdlMappingNoWrite. What may only be read is to be
        // protected before the mapping goes.
        let Backing::Pages(runs) = backing else { return None };
        regions::map_runs_at(address, &runs, Rights::ReadWrite).ok()?;
        let mapped = Region {
            backing: Backing::Pages(runs),
            rights: Rights::ReadWrite,
            cache,
            site: Site::here(),
            ..Region::clone(&reserved)
        };
        self.count_mappings(&mapped);
        self.memory.regions.insert(mapped);
        let offset = mdl.header().byte_offset.load(Ordering::Relaxed) as usize;
        mdl.header().flags.fetch_or(MDL_MAPPED_TO_SYSTEM_VA, Ordering::Relaxed);
        mdl.header().mapped_system_va.store(address + offset, Ordering::Relaxed);
        Some(address + offset)
    }

    /// Unmaps what [`map_at_reserved`](Self::map_at_reserved) mapped, keeping the reservation.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "MmUnmapReservedMapping")]
    #[track_caller]
    pub fn unmap_reserved(&self, address: usize, tag: u32, mdl: Mdl) {
        let arguments = [address as u64, tag.into(), mdl.address() as u64];
        let _service = self.service(&routines::MM_UNMAP_RESERVED_MAPPING, arguments);
        let page = address - address % PAGE_SIZE;
        let Some(region) = self.reserved(page, tag) else { return };
        let mapped = matches!(region.backing, Backing::Pages(_));
        let text = || Details::new(format!("nothing is mapped at {address:#x}")).params([address as u64, 0, 0]);
        if !self.rules.check(&NT_UNMAP, mapped, text) {
            return;
        }
        self.check_rights(mdl, &region.backing, region.rights);
        for (object, index) in region.pages() {
            object.remove_mapping(index);
        }
        let _ = host::clear(region.start, region.bytes);
        self.spend_unmapping();
        self.memory.regions.insert(Region {
            backing: Backing::Reserved,
            rights: Rights::None,
            ..Region::clone(&region)
        });
        mdl.remove_flags(MDL_MAPPED_TO_SYSTEM_VA);
    }
}

impl Machine {
    /// Changes what may be done with the system mapping of `mdl`. Returns whether it has one.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "MmProtectMdlSystemAddress")]
    #[track_caller]
    pub fn protect_mdl(&self, mdl: Mdl, rights: Rights) -> bool {
        // CAST: printed only.
        let arguments = [mdl.address() as u64, rights as u64];
        let _service = self.service(&routines::MM_PROTECT_MDL_SYSTEM_ADDRESS, arguments);
        let address = mdl.header().mapped_system_va.load(Ordering::Relaxed);
        let region = self.memory.regions.at(address - address % PAGE_SIZE);
        let Some(region) = region.filter(|_| mdl.flags() & MDL_MAPPED_TO_SYSTEM_VA != 0) else { return false };
        let protected = host::protect(region.start, mdl.pages() * PAGE_SIZE, rights).is_ok();
        if protected {
            self.memory.regions.insert(Region { rights, ..Region::clone(&region) });
        }
        protected
    }
}

fn in_use(address: usize) -> Details {
    Details::new(format!("something is mapped at {address:#x} already")).params([address as u64, 0, 0])
}
