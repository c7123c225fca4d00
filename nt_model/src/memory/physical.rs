//! Physical pages: objects backed by one memfd each, and the page frame numbers by which drivers know them.
//!
//! A [`PageObject`] is a run of pages that live and die together: a contiguous allocation, the pages of an MDL, a chunk of
//! pool, the memory of a process, a device's local memory. Each page has a frame number from a fake physical space and
//! counters: how often it is locked, how often it is mapped, with which cache type. Frame numbers of freed pages are not
//! handed out again before the space is used up, so a stale one is recognised.
//!
//! A page that was allocated with a cache type keeps it: a mapping that asks for another one gets the page's, and breaks
//! NT-CACHE. One that was not has the type of its first mapping.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use super::host::{self, PAGE_SIZE, Rights};
use crate::cpu::Site;
use crate::mmio::DeviceRange;

/// First page frame of the low zone (1 MiB).
const LOW_FIRST: u64 = 0x100;
/// End of the low zone: above it, below 4 GiB, lie device registers.
const LOW_END: u64 = 0xC_0000;
/// First page frame of the high zone (4 GiB).
const HIGH_FIRST: u64 = 0x10_0000;
/// End of the high zone (1 TiB).
const HIGH_END: u64 = 0x1000_0000;
/// The highest physical address that a page of RAM can have.
pub(crate) const HIGHEST_ADDRESS: u64 = HIGH_END * PAGE_SIZE as u64 - 1;

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

/// Counters of one page.
#[derive(Debug)]
pub(crate) struct PageState {
    pub(crate) locks: AtomicU32,
    pub(crate) maps: AtomicU32,
    /// Cache type of the mappings, or of the last one that there was; [`CACHE_NONE`] before the first.
    cache: AtomicU8,
}

/// A run of pages with one memfd.
pub struct PageObject {
    id: u64,
    fd: OwnedFd,
    pages: usize,
    kind: PageKind,
    /// Pool tag or label.
    tag: u32,
    /// Cache type that the pages were allocated with; mappings must agree.
    cache: Option<CacheType>,
    /// Whoever allocated them lets drivers read them only.
    read_only: bool,
    site: Site,
    /// First page frame and count, in the order of the pages.
    extents: Vec<(u64, u64)>,
    states: Box<[PageState]>,
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
    pub(crate) fn cache_of(&self, index: usize) -> CacheType {
        let state = &self.states[index];
        let of_mappings = || {
            let mapped = state.maps.load(Ordering::Relaxed) != 0;
            CacheType::from_raw(state.cache.load(Ordering::Relaxed).into()).filter(|_| mapped)
        };
        self.cache.or_else(of_mappings).unwrap_or(CacheType::Cached)
    }

    /// Who allocated it.
    pub(crate) fn site(&self) -> Site {
        self.site
    }

    /// The memfd, for handing to another process. Seal it first when that process may only read.
    pub fn descriptor(&self) -> &OwnedFd {
        &self.fd
    }

    /// Forbids new writable mappings of the memfd; existing ones stay.
    ///
    /// # Errors
    /// What `fcntl(F_ADD_SEALS)` reports.
    pub fn seal_future_writes(&self) -> std::io::Result<()> {
        host::seal_future_writes(&self.fd)
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
        let at = host::map_pages(&self.fd, first, count, rights)?;
        f(at + offset % PAGE_SIZE);
        host::unmap(at, count * PAGE_SIZE);
        Ok(())
    }
}

/// What a page frame number stands for.
#[derive(Clone, Debug)]
pub(crate) enum Frame {
    /// Page `index` of an object.
    Page(Arc<PageObject>, usize),
    /// A register page of a device: the range, and the byte offset in it.
    Register(Arc<DeviceRange>, u64),
}

#[derive(Clone, Debug)]
enum Extent {
    Pages { count: u64, object: Arc<PageObject>, first: usize },
    Registers { count: u64, range: Arc<DeviceRange> },
}

/// What is asked of [`PhysicalMemory::allocate`].
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

#[derive(Debug)]
struct Zone {
    next: u64,
    end: u64,
    /// Freed runs, oldest first; used only when `next` has reached `end`.
    freed: VecDeque<(u64, u64)>,
}

impl Zone {
    fn take(&mut self, count: u64) -> Option<u64> {
        if self.end - self.next >= count {
            let first = self.next;
            self.next += count;
            return Some(first);
        }
        let at = self.freed.iter().position(|(_, free)| *free >= count)?;
        let (first, free) = self.freed.remove(at)?;
        if free > count {
            self.freed.push_back((first + count, free - count));
        }
        Some(first)
    }
}

/// The physical address space of one machine.
#[derive(Debug)]
pub(crate) struct PhysicalMemory {
    extents: RwLock<BTreeMap<u64, Extent>>,
    zones: Mutex<[Zone; 2]>,
    /// Pages of RAM in use, and how many there are.
    used: AtomicU64,
    total: u64,
    last_id: AtomicU64,
}

impl PhysicalMemory {
    /// `bytes`: how much RAM the machine has. Address space is wider, so that stale frames stay recognisable.
    pub(crate) fn new(bytes: u64) -> Self {
        let zone = |first, end| Zone { next: first, end, freed: VecDeque::new() };
        Self {
            extents: RwLock::default(),
            zones: Mutex::new([zone(LOW_FIRST, LOW_END), zone(HIGH_FIRST, HIGH_END)]),
            used: AtomicU64::new(0),
            total: bytes / PAGE_SIZE as u64,
            last_id: AtomicU64::new(0),
        }
    }

    /// Pages of RAM that are free.
    pub(crate) fn free_pages(&self) -> u64 {
        self.total.saturating_sub(self.used.load(Ordering::Relaxed))
    }

    /// Allocates pages, zeroed. `None`: no memory, or none in the address limits.
    pub(crate) fn allocate(&self, request: &PageRequest) -> Option<Arc<PageObject>> {
        let pages = request.pages as u64;
        if pages == 0 || (request.kind.is_ram() && pages > self.free_pages()) {
            return None;
        }
        let extents = match request.fixed {
            Some(first) if self.overlaps(first, pages) => return None,
            Some(first) => vec![(first, pages)],
            None => self.take_frames(request)?,
        };
        let Ok(fd) = host::memfd(request.pages) else {
            self.return_frames(&extents);
            return None;
        };
        let state =
            || PageState { locks: AtomicU32::new(0), maps: AtomicU32::new(0), cache: AtomicU8::new(CACHE_NONE) };
        let object = Arc::new(PageObject {
            id: self.last_id.fetch_add(1, Ordering::Relaxed) + 1,
            fd,
            pages: request.pages,
            kind: request.kind,
            tag: request.tag,
            cache: request.cache,
            read_only: request.read_only,
            site: request.site,
            extents,
            states: (0..request.pages).map(|_| state()).collect(),
            freed: AtomicBool::new(false),
        });
        if request.kind.is_ram() {
            self.used.fetch_add(pages, Ordering::Relaxed);
        }
        let mut map = self.extents.write();
        let mut first = 0;
        for (frame, count) in &object.extents {
            map.insert(*frame, Extent::Pages { count: *count, object: object.clone(), first });
            // CAST: below `request.pages`.
            first += *count as usize;
        }
        Some(object)
    }

    fn take_frames(&self, request: &PageRequest) -> Option<Vec<(u64, u64)>> {
        let pages = request.pages as u64;
        let fits = |first: u64, count: u64| {
            first * PAGE_SIZE as u64 >= request.lowest && (first + count) * PAGE_SIZE as u64 - 1 <= request.highest
        };
        let mut zones = self.zones.lock();
        // The high zone first, as Windows prefers; the low one for callers that need 32-bit addresses.
        for zone in [1, 0] {
            let zone = &mut zones[zone];
            let first_candidate = zone.next;
            if !fits(first_candidate, pages) {
                continue;
            }
            if request.contiguous {
                let first = zone.take(pages)?;
                return Some(vec![(first, pages)]);
            }
            // Runs of uneven length with gaps between them: a driver must not take them for contiguous.
            let mut extents = Vec::new();
            let mut left = pages;
            for run in [1, 3, 16, 64, 512].into_iter().cycle() {
                let count = left.min(run);
                let first = zone.take(count)?;
                zone.next = (zone.next + 1).min(zone.end);
                extents.push((first, count));
                left -= count;
                if left == 0 {
                    return Some(extents);
                }
            }
        }
        None
    }

    fn return_frames(&self, extents: &[(u64, u64)]) {
        let mut zones = self.zones.lock();
        // Fixed ones (memory on a device) belong to no zone.
        let in_zone = |first: u64| (LOW_FIRST..LOW_END).contains(&first) || (HIGH_FIRST..HIGH_END).contains(&first);
        for (first, count) in extents.iter().filter(|(first, _)| in_zone(*first)) {
            let zone = usize::from(*first >= HIGH_FIRST);
            zones[zone].freed.push_back((*first, *count));
        }
    }

    /// Frees the pages of `object`. Mappings of it keep the memory itself alive, not the frames.
    pub(crate) fn free(&self, object: &Arc<PageObject>) {
        if object.freed.swap(true, Ordering::AcqRel) {
            return;
        }
        {
            let mut map = self.extents.write();
            for (frame, _) in &object.extents {
                map.remove(frame);
            }
        }
        self.return_frames(&object.extents);
        if object.kind.is_ram() {
            self.used.fetch_sub(object.pages as u64, Ordering::Relaxed);
        }
    }

    /// Makes a device's registers appear at `range`. False: something is there already.
    pub(crate) fn add_registers(&self, range: &Arc<DeviceRange>) -> bool {
        let first = range.base() / PAGE_SIZE as u64;
        let count = range.length().div_ceil(PAGE_SIZE as u64);
        let free = !self.overlaps(first, count);
        if free {
            self.extents.write().insert(first, Extent::Registers { count, range: range.clone() });
        }
        free
    }

    fn overlaps(&self, first: u64, count: u64) -> bool {
        let map = self.extents.read();
        map.range(..first + count).next_back().is_some_and(|(start, extent)| {
            let length = match extent {
                Extent::Pages { count, .. } | Extent::Registers { count, .. } => *count,
            };
            start + length > first
        })
    }

    /// Removes a device's registers.
    pub(crate) fn remove_registers(&self, range: &DeviceRange) {
        self.extents.write().remove(&(range.base() / PAGE_SIZE as u64));
    }

    /// What page frame `frame` stands for; `None`: nothing.
    pub(crate) fn frame(&self, frame: u64) -> Option<Frame> {
        let map = self.extents.read();
        let (start, extent) = map.range(..=frame).next_back()?;
        let offset = frame - start;
        match extent {
            // CAST: an offset in an object is below its page count.
            Extent::Pages { count, object, first } if offset < *count => {
                Some(Frame::Page(object.clone(), first + offset as usize))
            }
            Extent::Registers { count, range } if offset < *count => {
                Some(Frame::Register(range.clone(), offset * PAGE_SIZE as u64))
            }
            _ => None,
        }
    }

    /// Every object that is allocated.
    pub(crate) fn objects(&self) -> Vec<Arc<PageObject>> {
        let map = self.extents.read();
        let first_extent = |extent: &Extent| match extent {
            Extent::Pages { object, first: 0, .. } => Some(object.clone()),
            _ => None,
        };
        map.values().filter_map(first_extent).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(pages: usize, contiguous: bool) -> PageRequest {
        PageRequest {
            pages,
            kind: PageKind::MdlPages,
            contiguous,
            highest: u64::MAX,
            lowest: 0,
            cache: None,
            read_only: false,
            tag: 0,
            site: Site::NONE,
            fixed: None,
        }
    }

    #[test]
    fn contiguous_frames_are_consecutive_and_others_are_not() {
        let memory = PhysicalMemory::new(1 << 30);
        let one = memory.allocate(&request(20, true)).map(|object| object.frames()).unwrap_or_default();
        assert!(one.windows(2).all(|pair| pair[1] == pair[0] + 1));
        let many = memory.allocate(&request(20, false)).map(|object| object.frames()).unwrap_or_default();
        assert_eq!(many.len(), 20);
        assert!(many.windows(2).any(|pair| pair[1] != pair[0] + 1));
    }

    #[test]
    fn frames_lead_back_to_their_pages_until_freed() {
        let memory = PhysicalMemory::new(1 << 30);
        let Some(object) = memory.allocate(&request(30, false)) else { panic!("no memory") };
        for (index, frame) in object.frames().into_iter().enumerate() {
            assert_eq!(object.frame(index), frame);
            assert!(
                matches!(memory.frame(frame), Some(Frame::Page(found, at)) if at == index && found.id() == object.id())
            );
        }
        let frame = object.frame(7);
        memory.free(&object);
        assert!(memory.frame(frame).is_none());
        let again = memory.allocate(&request(30, true)).map(|object| object.frames()).unwrap_or_default();
        assert!(!again.contains(&frame), "a stale frame stays stale");
    }

    #[test]
    fn an_address_limit_is_kept_and_memory_runs_out() {
        let memory = PhysicalMemory::new(1 << 20);
        let below = PageRequest { highest: 0xFFFF_FFFF, ..request(4, true) };
        let frames = memory.allocate(&below).map(|object| object.frames()).unwrap_or_default();
        assert!(frames.iter().all(|frame| *frame < 0x10_0000));
        assert!(memory.allocate(&request(1000, true)).is_none());
    }

    #[test]
    fn a_page_has_one_cache_type() {
        let memory = PhysicalMemory::new(1 << 20);
        let Some(object) = memory.allocate(&request(1, true)) else { panic!("no memory") };
        assert_eq!(object.add_mapping(0, CacheType::WriteCombined), Ok(()));
        assert_eq!(object.add_mapping(0, CacheType::Cached), Err(CacheType::WriteCombined));
        object.remove_mapping(0);
        object.remove_mapping(0);
        assert_eq!(object.add_mapping(0, CacheType::Cached), Ok(()));
    }

    #[test]
    fn a_page_keeps_the_cache_type_that_it_was_allocated_with() {
        let memory = PhysicalMemory::new(1 << 20);
        let combined = PageRequest { cache: Some(CacheType::WriteCombined), ..request(1, true) };
        let Some(object) = memory.allocate(&combined) else { panic!("no memory") };
        assert_eq!(object.cache_of(0), CacheType::WriteCombined);
        assert_eq!(object.add_mapping(0, CacheType::Cached), Err(CacheType::WriteCombined));
        assert_eq!(object.cache_of(0), CacheType::WriteCombined);
        assert_eq!(object.add_mapping(0, CacheType::WriteCombined), Ok(()), "the first mapping has changed nothing");
        let Some(object) = memory.allocate(&request(1, true)) else { panic!("no memory") };
        assert_eq!(object.cache_of(0), CacheType::Cached);
        assert_eq!(object.add_mapping(0, CacheType::NonCached), Ok(()));
        assert_eq!(object.cache_of(0), CacheType::NonCached);
    }

    #[test]
    fn contents_can_be_read_and_written_unmapped() {
        let memory = PhysicalMemory::new(1 << 20);
        let Some(object) = memory.allocate(&request(2, true)) else { panic!("no memory") };
        assert!(object.write(4090, &[1; 12]).is_ok());
        let mut seen = [0; 14];
        assert!(object.read(4089, &mut seen).is_ok());
        assert_eq!(seen, [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0]);
    }
}
