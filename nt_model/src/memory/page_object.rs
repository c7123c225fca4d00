//! Page objects: runs of pages that live and die together, backed by a memfd, or by one a page.
//!
//! A [`PageObject`] is a contiguous allocation, the pages of an MDL, a chunk of pool, the memory of a process, a
//! device's local memory. Each page has a frame number from a fake physical space and counters: how often it is locked,
//! how often it is mapped, with which cache type.
//!
//! A page that was allocated with a cache type keeps it: a mapping that asks for another one gets the page's, and
//! breaks NT-CACHE. One that was not has the type of its first mapping.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use super::host::{self, PAGE_SIZE, Rights};
use super::page_files::{Handed, PageFiles};
use crate::cpu::Site;

/// What a page object is for; decides whether its pages may be mapped without being locked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageKind {
    /// Non-paged pool.
    NonPagedPool,
    /// Paged pool: pages must be locked before they are mapped.
    PagedPool,
    /// `MmAllocateContiguousMemory` and its kin.
    Contiguous,
    /// `MmAllocatePagesForMdlEx`: resident until freed.
    MdlPages,
    /// Memory of a user process, or sections shared between processes: pages must be locked before a driver maps them.
    User,
    /// Memory on a device that reads and writes like RAM (a local segment behind a BAR).
    DeviceRam,
    /// An image's sections, and other pages that only the model maps.
    System,
}

impl PageKind {
    /// Whether pages of this kind stay in memory without being locked.
    pub fn is_resident(self) -> bool {
        !matches!(self, Self::PagedPool | Self::User)
    }

    /// Whether this is RAM, as opposed to memory on a device.
    pub fn is_ram(self) -> bool {
        self != Self::DeviceRam
    }
}

/// `MEMORY_CACHING_TYPE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CacheType {
    /// `MmNonCached`.
    NonCached = 0,
    /// `MmCached`.
    Cached = 1,
    /// `MmWriteCombined`.
    WriteCombined = 2,
}

impl CacheType {
    /// From the number in a call; `MmHardwareCoherentCached` counts as cached. `None`: no such type.
    pub fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            0 => Some(Self::NonCached),
            1 | 3 => Some(Self::Cached),
            2 => Some(Self::WriteCombined),
            _ => None,
        }
    }
}

/// No cache type yet.
const CACHE_NONE: u8 = 0xFF;

/// What is asked of [`PhysicalMemory::allocate`](super::physical::PhysicalMemory::allocate).
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageRequest {
    pub(crate) pages: usize,
    pub(crate) kind: PageKind,
    /// One run of consecutive frames.
    pub(crate) contiguous: bool,
    /// Highest byte address that may be used.
    pub(crate) highest: u64,
    /// Lowest byte address that may be used.
    pub(crate) lowest: u64,
    pub(crate) cache: Option<CacheType>,
    /// A driver may only read them.
    pub(crate) read_only: bool,
    pub(crate) tag: u32,
    pub(crate) site: Site,
    /// At this page frame and no other: memory on a device.
    pub(crate) fixed: Option<u64>,
}

/// Counters of one page.
#[derive(Debug)]
pub(crate) struct PageState {
    pub(crate) locks: AtomicU32,
    pub(crate) maps: AtomicU32,
    /// Cache type of the mappings, or of the last one that there was; [`CACHE_NONE`] before the first.
    cache: AtomicU8,
}

/// A run of pages.
pub struct PageObject {
    id: u64,
    files: PageFiles,
    pages: usize,
    kind: PageKind,
    /// Pool tag or label.
    tag: u32,
    /// Cache type that the pages were allocated with; mappings must agree.
    cache: Option<CacheType>,
    /// Drivers may only read them.
    read_only: bool,
    site: Site,
    /// First page frame and count, in the order of the pages.
    extents: Vec<(u64, u64)>,
    states: Box<[PageState]>,
    /// How often the kernel keeps a process from freeing them.
    pub(crate) secured: AtomicU32,
    freed: AtomicBool,
}

impl fmt::Debug for PageObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageObject")
            .field("id", &self.id)
            .field("pages", &self.pages)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl PageObject {
    /// The pages of `files`, as `request` asks for them, at these frames.
    pub(super) fn new(id: u64, files: PageFiles, request: &PageRequest, extents: Vec<(u64, u64)>) -> Self {
        let state =
            || PageState { locks: AtomicU32::new(0), maps: AtomicU32::new(0), cache: AtomicU8::new(CACHE_NONE) };
        Self {
            id,
            files,
            pages: request.pages,
            kind: request.kind,
            tag: request.tag,
            cache: request.cache,
            read_only: request.read_only,
            site: request.site,
            extents,
            states: (0..request.pages).map(|_| state()).collect(),
            secured: AtomicU32::new(0),
            freed: AtomicBool::new(false),
        }
    }

    /// First page frame and count of each run, in the order of the pages.
    pub(super) fn extents(&self) -> &[(u64, u64)] {
        &self.extents
    }

    /// Marks the pages as freed. Returns whether they were not before.
    pub(super) fn set_freed(&self) -> bool {
        !self.freed.swap(true, Ordering::AcqRel)
    }

    /// Unique in its machine.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// How many pages.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// What for.
    pub fn kind(&self) -> PageKind {
        self.kind
    }

    /// Pool tag, or 0.
    pub fn tag(&self) -> u32 {
        self.tag
    }

    /// Cache type that the pages were allocated with, if one was given.
    pub fn cache(&self) -> Option<CacheType> {
        self.cache
    }

    /// Whether a driver that maps the pages may only read them.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// The cache type that page `index` has now: its own, else that of its mappings, else cached.
    ///
    /// # Panics
    /// When there is no page `index`.
    pub fn cache_of(&self, index: usize) -> CacheType {
        let state = &self.states[index];
        let of_mappings = || {
            let mapped = state.maps.load(Ordering::Relaxed) != 0;
            CacheType::from_raw(state.cache.load(Ordering::Relaxed).into()).filter(|_| mapped)
        };
        self.cache.or_else(of_mappings).unwrap_or(CacheType::Cached)
    }

    /// The place in the code that allocated it.
    pub(crate) fn site(&self) -> Site {
        self.site
    }

    /// What another Linux process needs to map pages from `first` on with `rights`, and nothing beside them.
    ///
    /// # Errors
    /// `PermissionDenied` where the pages share a file with others, or were handed over for reading before and are to
    /// be written now; what the host reports.
    pub fn hand_over(&self, first: usize, pages: usize, rights: Rights) -> std::io::Result<Vec<Handed>> {
        self.files.hand_over(first, pages, rights)
    }

    /// Maps pages at an address of the system's choice.
    pub(crate) fn map(&self, first: usize, pages: usize, rights: Rights) -> std::io::Result<usize> {
        self.files.map(first, pages, rights)
    }

    /// Maps pages over a range of addresses that the caller has reserved and that nothing else knows.
    ///
    /// # Errors
    /// What the host reports.
    pub fn map_over(&self, at: usize, first: usize, pages: usize, rights: Rights) -> std::io::Result<()> {
        self.files.map_at(at, first, pages, rights)
    }

    /// Page frame number of page `index`.
    ///
    /// # Panics
    /// When the object has no such page.
    pub fn frame(&self, index: usize) -> u64 {
        let mut left = index as u64;
        for (first, count) in &self.extents {
            if left < *count {
                return first + left;
            }
            left -= count;
        }
        panic!("page {index} of an object of {} pages", self.pages)
    }

    /// All page frame numbers.
    pub fn frames(&self) -> Vec<u64> {
        self.extents.iter().flat_map(|(first, count)| *first..first + count).collect()
    }

    /// Whether the pages have been freed.
    pub fn is_freed(&self) -> bool {
        self.freed.load(Ordering::Acquire)
    }

    pub(crate) fn state(&self, index: usize) -> &PageState {
        &self.states[index]
    }

    /// Locks a page in memory.
    pub(crate) fn lock_page(&self, index: usize) {
        self.states[index].locks.fetch_add(1, Ordering::Relaxed);
    }

    /// Undoes one [`lock_page`](Self::lock_page); false when it was not locked.
    pub(crate) fn unlock_page(&self, index: usize) -> bool {
        let locks = &self.states[index].locks;
        locks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |locks| locks.checked_sub(1)).is_ok()
    }

    /// Whether page `index` cannot be paged out now.
    pub fn is_page_resident(&self, index: usize) -> bool {
        self.kind.is_resident() || self.states[index].locks.load(Ordering::Relaxed) != 0
    }

    /// How often page `index` is mapped by drivers or into processes.
    pub fn mappings(&self, index: usize) -> u32 {
        self.states[index].maps.load(Ordering::Relaxed)
    }

    /// Counts a mapping with `cache`. `Err`: the type that the page has already, which differs.
    pub(crate) fn add_mapping(&self, index: usize, cache: CacheType) -> Result<(), CacheType> {
        let state = &self.states[index];
        let old = if state.maps.fetch_add(1, Ordering::Relaxed) == 0 {
            state.cache.store(self.cache.unwrap_or(cache) as u8, Ordering::Relaxed);
            self.cache
        } else {
            CacheType::from_raw(state.cache.load(Ordering::Relaxed).into())
        };
        match old {
            Some(old) if old != cache => Err(old),
            _ => Ok(()),
        }
    }

    pub(crate) fn remove_mapping(&self, index: usize) {
        let state = &self.states[index];
        let _ = state.maps.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |maps| maps.checked_sub(1));
    }

    fn page_run(&self, index: usize) -> (usize, usize) {
        (index, self.pages - index)
    }

    /// Copies out of the pages, wherever they are mapped or not.
    ///
    /// # Errors
    /// What mapping them for the moment reports.
    ///
    /// # Panics
    /// When the range is not within the object.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> std::io::Result<()> {
        self.with_window(offset, bytes.len(), Rights::Read, |at| host::read(at, bytes))
    }

    /// Copies into the pages.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    ///
    /// # Panics
    /// As there.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> std::io::Result<()> {
        self.with_window(offset, bytes.len(), Rights::ReadWrite, |at| host::write(at, bytes))
    }

    fn with_window(&self, offset: usize, length: usize, rights: Rights, f: impl FnOnce(usize)) -> std::io::Result<()> {
        let end = offset.checked_add(length).filter(|end| *end <= self.pages * PAGE_SIZE);
        assert!(end.is_some(), "{length} bytes at {offset:#x} of {} pages", self.pages);
        let (first, _) = self.page_run(offset / PAGE_SIZE);
        let count = (offset % PAGE_SIZE + length).div_ceil(PAGE_SIZE);
        if count == 0 {
            return Ok(());
        }
        let at = self.map(first, count, rights)?;
        f(at + offset % PAGE_SIZE);
        host::unmap(at, count * PAGE_SIZE);
        Ok(())
    }
}
