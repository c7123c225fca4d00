//! Memory: physical pages, kernel mappings, MDLs, device ranges.
//!
//! A page is real: it belongs to a [`PageObject`] with a memfd, has a frame number in a fake physical space, and can be
//! mapped any number of times, into the kernel, into a process of the model ([`crate::Process`]) or into another Linux
//! process. Drivers see addresses, MDLs and physical addresses as on Windows; self-built MDLs (a driver that fills in
//! frame numbers and sets `MDL_PAGES_LOCKED`) work.
//!
//! What is checked, beside each routine's own preconditions: a frame that is mapped must be RAM that is allocated and
//! resident at that moment; all mappings of a page have one cache type, which is the page's where it has one; what may
//! only be read is mapped for reading; no mapping is left when a page is freed; a mapping is removed once.

pub(crate) mod contiguous;
pub(crate) mod host;
pub(crate) mod io_space;
pub(crate) mod mapping;
pub(crate) mod mdl;
mod mdl_header;
pub(crate) mod page_files;
pub(crate) mod page_object;
pub(crate) mod physical;
mod pin;
pub(crate) mod regions;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub use contiguous::ContiguousRequest;
pub use host::{PAGE_SIZE, Rights};
pub use mapping::MapRequest;
pub use mdl::{LockOperation, Mdl};
pub use page_files::Handed;
pub use page_object::{CacheType, PageKind, PageObject};
pub use pin::PageTraits;

use crate::cpu::Site;
use crate::kernel::Machine;
use crate::rules::Details;
use crate::rules_memory::NT_MAP_LEFT;
use page_object::PageRequest;
use physical::PhysicalMemory;
use regions::{Backing, PageRun, Purpose, Region, Regions};

/// Memory of one machine.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) physical: PhysicalMemory,
    pub(crate) regions: Regions,
    pub(crate) mdls: mdl::MdlTable,
    /// Allocations until one fails; 0: none will.
    fail_in: AtomicU64,
    /// The number of the thread whose allocations count for that; 0: all threads' do.
    fails_on: AtomicU64,
    /// Whether there are no system addresses for MDLs left.
    no_addresses: AtomicBool,
}

impl Memory {
    pub(crate) fn new(ram: u64, own_files: bool) -> Self {
        Self {
            physical: PhysicalMemory::new(ram, own_files),
            regions: Regions::default(),
            mdls: mdl::MdlTable::default(),
            fail_in: AtomicU64::new(0),
            fails_on: AtomicU64::new(0),
            no_addresses: AtomicBool::new(false),
        }
    }

    pub(crate) fn allocate_device_memory(&self, base: u64, pages: usize) -> Option<Arc<PageObject>> {
        self.physical.allocate(&PageRequest {
            pages,
            kind: PageKind::DeviceRam,
            contiguous: true,
            highest: u64::MAX,
            lowest: 0,
            cache: None,
            read_only: false,
            tag: 0,
            site: Site::here(),
            fixed: Some(base / PAGE_SIZE as u64),
        })
    }

    /// Whether the allocation that is about to be made must fail.
    pub(crate) fn must_fail(&self) -> bool {
        if self.fail_in.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let on = self.fails_on.load(Ordering::Relaxed);
        if on != 0 && on != crate::thread::current_id() {
            return false;
        }
        let count = |left: u64| left.checked_sub(1);
        self.fail_in.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count) == Ok(1)
    }

    /// Whether there are no system addresses for an MDL.
    pub(crate) fn has_no_addresses(&self) -> bool {
        self.no_addresses.load(Ordering::Relaxed)
    }

    /// Maps a whole object for the model or for a service and enters it in the table.
    pub(crate) fn map_object(&self, object: &Arc<PageObject>, purpose: Purpose, cache: CacheType) -> Option<usize> {
        let runs = vec![PageRun { object: object.clone(), first: 0, count: object.pages() }];
        let start = regions::map_runs(&runs, Rights::ReadWrite).ok()?;
        self.regions.insert(Region {
            start,
            bytes: object.pages() * PAGE_SIZE,
            backing: Backing::Pages(runs),
            purpose,
            rights: Rights::ReadWrite,
            cache,
            site: Site::here(),
        });
        Some(start)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for region in self.regions.select(|_| true) {
            host::unmap(region.start, region.bytes);
        }
    }
}

impl Machine {
    /// Lets the `nth` allocation from now on fail: pool, contiguous memory, pages, MDLs, mappings alike. 1 is the next
    /// one; 0 switches it off.
    pub fn fail_allocation(&self, nth: u64) {
        self.memory.fails_on.store(0, Ordering::Relaxed);
        self.memory.fail_in.store(nth, Ordering::Relaxed);
    }

    /// As [`fail_allocation`](Self::fail_allocation), of the calling thread's allocations: what other threads allocate
    /// meanwhile neither fails nor counts.
    pub fn fail_own_allocation(&self, nth: u64) {
        // Switched off while it changes.
        self.memory.fail_in.store(0, Ordering::Relaxed);
        self.memory.fails_on.store(self.current_thread_id(), Ordering::Relaxed);
        self.memory.fail_in.store(nth, Ordering::Relaxed);
    }

    /// Lets every mapping of an MDL into the system fail from now on, as where no system addresses are left, or not any
    /// more. Addresses that were reserved are mapped at all the same.
    pub fn fail_mappings(&self, fail: bool) {
        self.memory.no_addresses.store(fail, Ordering::Relaxed);
    }

    /// Allocations left until the injected failure; 0 when it has happened or was not asked for.
    pub fn allocations_until_failure(&self) -> u64 {
        self.memory.fail_in.load(Ordering::Relaxed)
    }

    /// Pages of RAM that are free.
    pub fn free_ram(&self) -> u64 {
        self.memory.physical.free_pages()
    }

    /// Allocates pages for the model itself or for processes: zeroed, not mapped anywhere.
    ///
    /// Returns `None` when the machine has no memory left.
    pub fn allocate_pages(&self, pages: usize, kind: PageKind, tag: u32) -> Option<Arc<PageObject>> {
        self.memory.physical.allocate(&PageRequest {
            pages,
            kind,
            contiguous: false,
            highest: u64::MAX,
            lowest: 0,
            cache: None,
            read_only: false,
            tag,
            site: Site::here(),
            fixed: None,
        })
    }

    /// Frees pages from [`allocate_pages`](Self::allocate_pages). Mappings that are left break NT-MAP-LEFT.
    pub fn free_pages(&self, object: &Arc<PageObject>) {
        self.check_unmapped(object, 0);
        self.memory.physical.free(object);
    }

    /// Maps pages for the model itself; the mapping does not count as a driver's.
    ///
    /// Returns `None` when the host has no address space or descriptor left.
    pub fn map_for_model(&self, object: &Arc<PageObject>) -> Option<usize> {
        self.memory.map_object(object, Purpose::Model, CacheType::Cached)
    }

    /// Removes a mapping that [`map_for_model`](Self::map_for_model) made.
    pub fn unmap_for_model(&self, address: usize) {
        if let Some(region) = self.memory.regions.at(address).filter(|region| region.purpose == Purpose::Model) {
            self.memory.regions.remove(address);
            host::unmap(region.start, region.bytes);
        }
    }

    /// The page under a kernel or user address: object, page index, offset in the page.
    pub fn page_at(&self, address: usize) -> Option<(Arc<PageObject>, usize, usize)> {
        self.memory.regions.find(address)?.page(address)
    }

    /// The page with frame number `frame`: object and page index. `None` when it is no allocated page.
    pub fn page_of_frame(&self, frame: u64) -> Option<(Arc<PageObject>, usize)> {
        match self.memory.physical.frame(frame)? {
            physical::Frame::Page(object, index) => Some((object, index)),
            physical::Frame::Register(..) => None,
        }
    }

    /// Everything that is allocated, whoever has it.
    pub fn page_objects(&self) -> Vec<Arc<PageObject>> {
        self.memory.physical.objects()
    }

    /// A page of `object` that a driver has mapped, by an MDL or as IO space, and where. `None`: none has.
    pub fn mapped_by_a_driver(&self, object: &Arc<PageObject>) -> Option<(usize, usize)> {
        if (0..object.pages()).all(|index| object.mappings(index) == 0) {
            return None;
        }
        let regions = self.memory.regions.select(|region| {
            matches!(region.purpose, Purpose::MdlMapping(_) | Purpose::IoSpace | Purpose::MappingAddress(_))
        });
        regions.into_iter().find_map(|region| {
            let page = region.pages().into_iter().find(|(other, _)| Arc::ptr_eq(other, object));
            page.map(|(_, index)| (index, region.start))
        })
    }

    /// A page that is freed must not be mapped any more. `own`: mappings that the allocation itself made.
    pub(crate) fn check_unmapped(&self, object: &Arc<PageObject>, own: u32) {
        let left = (0..object.pages()).find(|index| {
            let state = object.state(*index);
            state.maps.load(Ordering::Relaxed) > own || state.locks.load(Ordering::Relaxed) != 0
        });
        self.rules.check(&NT_MAP_LEFT, left.is_none(), || {
            let index = left.unwrap_or_default();
            let users: Vec<_> = self
                .memory
                .regions
                .select(|region| !matches!(region.purpose, Purpose::Pool | Purpose::Contiguous | Purpose::Model))
                .into_iter()
                .filter(|region| region.pages().iter().any(|(other, at)| Arc::ptr_eq(other, object) && *at == index))
                .map(|region| format!("{:#x} ({})", region.start, region.site.describe(self)))
                .collect();
            Details::new(format!(
                "page frame {:#x}, allocated by {}, is freed while it is mapped at [{}] and locked {} times",
                object.frame(index),
                object.site().describe(self),
                users.join(", "),
                object.state(index).locks.load(Ordering::Relaxed)
            ))
            .params([object.frame(index), 0, 0])
        });
    }
}
