//! The pool's address space: chunks of pages, runs of pages within them, slots within pages.
//!
//! Small requests share pages by size class; larger ones get whole pages. All bookkeeping lies outside the arena, so a
//! driver that writes beyond its allocation damages only memory that it can see. What is freed rests in a quarantine
//! before it is used again, so that late writes are found.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use crate::cpu::Site;
use crate::memory::page_object::{CacheType, PageKind, PageRequest};
use crate::memory::regions::Purpose;
use crate::memory::{Memory, PAGE_SIZE, PageObject, host};

/// Pages of an ordinary chunk (4 MiB; memory is committed when it is touched).
const CHUNK_PAGES: usize = 1024;
/// Slot sizes. A request needs its size plus at least [`GUARD`] bytes.
const CLASSES: [usize; 13] = [32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048];
/// Bytes behind a small allocation that must keep their pattern.
pub(crate) const GUARD: usize = 8;

/// Where an allocation lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) address: usize,
    /// Bytes there are, slack and guard included.
    pub(crate) room: usize,
    /// Slot class, or `None` for whole pages.
    class: Option<usize>,
    /// First page and number of pages (for whole pages, with a guard page where asked for).
    pages: (usize, usize),
}

#[derive(Debug)]
pub(crate) struct Arena {
    kind: PageKind,
    purpose: Purpose,
    chunks: Vec<(Arc<PageObject>, usize)>,
    /// Free runs of pages by address.
    runs: BTreeMap<usize, usize>,
    /// Free slots by class.
    slots: HashMap<usize, Vec<usize>>,
    resting: VecDeque<Place>,
    resting_bytes: usize,
    /// How much may rest before the oldest is used again.
    quarantine: usize,
    /// An inaccessible page behind each allocation.
    guard_pages: bool,
}

impl Arena {
    pub(crate) fn new(kind: PageKind, purpose: Purpose, quarantine: usize, guard_pages: bool) -> Self {
        Self {
            kind,
            purpose,
            chunks: Vec::new(),
            runs: BTreeMap::new(),
            slots: HashMap::new(),
            resting: VecDeque::new(),
            resting_bytes: 0,
            quarantine,
            guard_pages,
        }
    }

    /// Room for `size` bytes. `None`: the machine's memory is used up.
    pub(crate) fn allocate(&mut self, memory: &Memory, size: usize) -> Option<Place> {
        if self.guard_pages {
            return self.allocate_guarded(memory, size);
        }
        match CLASSES.iter().position(|room| size + GUARD <= *room) {
            Some(class) => self.allocate_slot(memory, class),
            None => {
                let count = size.div_ceil(PAGE_SIZE);
                let address = self.take_pages(memory, count)?;
                Some(Place { address, room: count * PAGE_SIZE, class: None, pages: (address, count) })
            }
        }
    }

    fn allocate_slot(&mut self, memory: &Memory, class: usize) -> Option<Place> {
        let room = CLASSES[class];
        if self.slots.get(&class).is_none_or(Vec::is_empty) {
            let page = self.take_pages(memory, 1)?;
            // Highest first, so that they are popped in ascending order.
            let fresh = (0..PAGE_SIZE / room).rev().map(|at| page + at * room);
            self.slots.entry(class).or_default().extend(fresh);
        }
        let address = self.slots.get_mut(&class)?.pop()?;
        Some(Place { address, room, class: Some(class), pages: (address, 0) })
    }

    /// At the end of its pages, 16-byte aligned, with an inaccessible page behind it.
    fn allocate_guarded(&mut self, memory: &Memory, size: usize) -> Option<Place> {
        let count = size.div_ceil(PAGE_SIZE) + 1;
        let start = self.take_pages(memory, count)?;
        let bytes = (count - 1) * PAGE_SIZE;
        host::protect(start, bytes, host::Rights::ReadWrite).ok()?;
        host::protect(start + bytes, PAGE_SIZE, host::Rights::None).ok()?;
        let address = if size >= PAGE_SIZE { start } else { start + ((bytes - size) & !15) };
        Some(Place { address, room: start + bytes - address, class: None, pages: (start, count) })
    }

    fn take_pages(&mut self, memory: &Memory, count: usize) -> Option<usize> {
        loop {
            let found = self.runs.iter().find(|(_, free)| **free >= count).map(|(start, free)| (*start, *free));
            if let Some((start, free)) = found {
                self.runs.remove(&start);
                if free > count {
                    self.runs.insert(start + count * PAGE_SIZE, free - count);
                }
                return Some(start);
            }
            self.add_chunk(memory, count.max(CHUNK_PAGES))?;
        }
    }

    fn add_chunk(&mut self, memory: &Memory, pages: usize) -> Option<()> {
        let object = memory.physical.allocate(&PageRequest {
            pages: pages.min(usize::try_from(memory.physical.free_pages()).ok()?),
            kind: self.kind,
            contiguous: false,
            highest: u64::MAX,
            lowest: 0,
            cache: Some(CacheType::Cached),
            read_only: false,
            tag: 0,
            site: Site::NONE,
            fixed: None,
        })?;
        let Some(start) = memory.map_object(&object, self.purpose, CacheType::Cached) else {
            memory.physical.free(&object);
            return None;
        };
        self.free_pages(start, object.pages());
        self.chunks.push((object, start));
        // Smaller than asked for: let the search fail rather than loop.
        (self.runs.values().any(|free| *free >= pages) || self.runs.contains_key(&start)).then_some(())
    }

    fn free_pages(&mut self, mut start: usize, mut count: usize) {
        if let Some((before, free)) = self.runs.range(..start).next_back().map(|(at, free)| (*at, *free))
            && before + free * PAGE_SIZE == start
        {
            self.runs.remove(&before);
            start = before;
            count += free;
        }
        if let Some(free) = self.runs.remove(&(start + count * PAGE_SIZE)) {
            count += free;
        }
        self.runs.insert(start, count);
    }

    /// Puts a freed place to rest. Returns the places that leave the quarantine for it.
    pub(crate) fn rest(&mut self, place: Place) -> Vec<Place> {
        if self.guard_pages {
            let _ = host::protect(place.pages.0, place.pages.1 * PAGE_SIZE, host::Rights::None);
        }
        self.resting_bytes += self.weight(&place);
        self.resting.push_back(place);
        let mut leaving = Vec::new();
        while self.resting_bytes > self.quarantine {
            let Some(oldest) = self.resting.pop_front() else { break };
            self.resting_bytes -= self.weight(&oldest);
            leaving.push(oldest);
        }
        leaving
    }

    /// Takes everything out of the quarantine.
    pub(crate) fn drain(&mut self) -> Vec<Place> {
        self.resting_bytes = 0;
        self.resting.drain(..).collect()
    }

    /// Makes a place that left the quarantine available again.
    pub(crate) fn recycle(&mut self, place: Place) {
        match place.class {
            Some(class) => self.slots.entry(class).or_default().push(place.address),
            None => {
                if self.guard_pages {
                    let _ = host::protect(place.pages.0, place.pages.1 * PAGE_SIZE, host::Rights::ReadWrite);
                }
                self.free_pages(place.pages.0, place.pages.1);
            }
        }
    }

    fn weight(&self, place: &Place) -> usize {
        if place.class.is_some() { place.room } else { place.pages.1 * PAGE_SIZE }
    }

    /// Whether a resting place can be read, to look for late writes.
    pub(crate) fn is_readable_at_rest(&self) -> bool {
        !self.guard_pages
    }
}
