//! Physical memory: page frame numbers, and what lies behind each.
//!
//! Frame numbers of freed pages are not handed out again before the space is used up, so a stale one is recognised.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use super::host::PAGE_SIZE;
use super::page_files::PageFiles;
use super::page_object::{PageKind, PageObject, PageRequest};
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

/// Pages of an object that can have a memory file each, as those of 64 doorbells of four pages: descriptors are few.
const MOST_OWN_FILES: usize = 256;

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
    /// Each page that a driver may name to user mode has a memory file of its own.
    own_files: bool,
}

impl PhysicalMemory {
    /// `bytes`: how much RAM the machine has. Address space is wider, so that stale frames stay recognisable.
    /// `own_files`: each page that a driver allocates by itself, in runs of up to [`MOST_OWN_FILES`], has a memory file
    /// of its own, so that it can be handed to another Linux process without its neighbours.
    pub(crate) fn new(bytes: u64, own_files: bool) -> Self {
        let zone = |first, end| Zone { next: first, end, freed: VecDeque::new() };
        Self {
            extents: RwLock::default(),
            zones: Mutex::new([zone(LOW_FIRST, LOW_END), zone(HIGH_FIRST, HIGH_END)]),
            used: AtomicU64::new(0),
            total: bytes / PAGE_SIZE as u64,
            last_id: AtomicU64::new(0),
            own_files,
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
        let may_be_shown = matches!(request.kind, PageKind::Contiguous | PageKind::MdlPages | PageKind::DeviceRam);
        let own = self.own_files && may_be_shown;
        let Ok(files) = PageFiles::new(request.pages, own && request.pages <= MOST_OWN_FILES) else {
            self.return_frames(&extents);
            return None;
        };
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let object = Arc::new(PageObject::new(id, files, request, extents));
        if request.kind.is_ram() {
            self.used.fetch_add(pages, Ordering::Relaxed);
        }
        let mut map = self.extents.write();
        let mut first = 0;
        for (frame, count) in object.extents() {
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
        if !object.set_freed() {
            return;
        }
        {
            let mut map = self.extents.write();
            for (frame, _) in object.extents() {
                map.remove(frame);
            }
        }
        self.return_frames(object.extents());
        if object.kind().is_ram() {
            self.used.fetch_sub(object.pages() as u64, Ordering::Relaxed);
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
    use super::super::page_object::CacheType;
    use super::*;
    use crate::cpu::Site;

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
        let memory = PhysicalMemory::new(1 << 30, false);
        let one = memory.allocate(&request(20, true)).map(|object| object.frames()).unwrap_or_default();
        assert!(one.windows(2).all(|pair| pair[1] == pair[0] + 1));
        let many = memory.allocate(&request(20, false)).map(|object| object.frames()).unwrap_or_default();
        assert_eq!(many.len(), 20);
        assert!(many.windows(2).any(|pair| pair[1] != pair[0] + 1));
    }

    #[test]
    fn frames_lead_back_to_their_pages_until_freed() {
        let memory = PhysicalMemory::new(1 << 30, false);
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
        let memory = PhysicalMemory::new(1 << 20, false);
        let below = PageRequest { highest: 0xFFFF_FFFF, ..request(4, true) };
        let frames = memory.allocate(&below).map(|object| object.frames()).unwrap_or_default();
        assert!(frames.iter().all(|frame| *frame < 0x10_0000));
        assert!(memory.allocate(&request(1000, true)).is_none());
    }

    #[test]
    fn a_page_has_one_cache_type() {
        let memory = PhysicalMemory::new(1 << 20, false);
        let Some(object) = memory.allocate(&request(1, true)) else { panic!("no memory") };
        assert_eq!(object.add_mapping(0, CacheType::WriteCombined), Ok(()));
        assert_eq!(object.add_mapping(0, CacheType::Cached), Err(CacheType::WriteCombined));
        object.remove_mapping(0);
        object.remove_mapping(0);
        assert_eq!(object.add_mapping(0, CacheType::Cached), Ok(()));
    }

    #[test]
    fn a_page_keeps_the_cache_type_that_it_was_allocated_with() {
        let memory = PhysicalMemory::new(1 << 20, false);
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
        let memory = PhysicalMemory::new(1 << 20, false);
        let Some(object) = memory.allocate(&request(2, true)) else { panic!("no memory") };
        assert!(object.write(4090, &[1; 12]).is_ok());
        let mut seen = [0; 14];
        assert!(object.read(4089, &mut seen).is_ok());
        assert_eq!(seen, [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0]);
    }
}
