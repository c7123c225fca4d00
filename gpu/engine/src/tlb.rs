//! Stage 5 of 8: translation, one lookaside buffer per engine thread.
//!
//! A miss walks the page table and maps the pages of the access, as far as they lie in one leaf table and are alike,
//! into the host: a *window*. Neighbours that the access does not touch are left alone: an entry that the OS left valid
//! over a page that is not locked, or is no memory at all, must do no harm to an access that does not touch it. (Of
//! local memory, which is ours, the whole run is taken.) A page that the table shows for reading is mapped for reading,
//! and so are the tables. The engine owns its windows; no other thread sees them. A flush reaches the engine as a
//! request ([`crate::flush::FlushBoard`]) that it serves between packets and between the steps of operations; it dooms
//! the windows, unmaps them a few at a time, since each is an interrupt to every processor, and acknowledges the flush
//! when the last is gone. So a host mapping never outlives the paging operation that took the page away.
//!
//! Invalid entries are never cached (`InvalidTlbEntriesNotCached`).

use crate::NoMemory;
use crate::address_space::{AddressSpace, EVERY_PROCESS, Root, SpaceId};
use crate::counters::{Counters, add, bump};
use crate::fault::Fault;
use crate::host::{Host, Unmapped};
use crate::memory::{Mapping, SharedWord, Span, Window};
use crate::mutation::{Chosen, Mutation};
use crate::shared::{try_array, try_box};
use crate::word::{Ordering, Word};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::AtomicU64;
use gpu_wire::pte::{self, Leaf, Place, Pte};
use gpu_wire::{GpuVa, PAGE_SIZE};
use hashbrown::HashMap;

/// Windows that an engine keeps at most. Beyond, each new one takes the place of another.
const MAX_WINDOWS: usize = 4096;
/// Lines of the page cache in front of the tables.
const LINES: usize = 64;

/// Work between two looks of the engine, in bytes moved.
pub(crate) const STEP: u64 = 128 << 10;
/// What making a window counts for, and what giving one up does, in bytes moved: 50 KiB, moved at 10 GB/s, take 5 µs.
/// To give one up interrupts every processor.
pub(crate) const MAP_COST: u64 = 50 << 10;
/// What it counts for to look whether a flush dooms a window, in bytes moved.
const SEARCH_COST: u64 = 16;
/// What reading an entry of a page table counts for, in bytes moved.
const ENTRY_COST: u64 = 64;

/// Why there is no mapping, although the page tables may have one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lack {
    /// The host has no memory for it.
    Memory,
    /// The engine has mapped enough since it last looked up.
    Look,
}

/// What an engine maps pages with.
pub(crate) struct Bus<'a, H: Host> {
    /// The ticket that the next wait gets.
    pub tickets: &'a AtomicU64,
    pub host: &'a H,
    pub counters: &'a Counters,
    pub mutation: &'a Chosen,
}

/// Bytes behind a GPU address, as long as the buffer they came from was not flushed. [`Tlb::span`] gives access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    window: u32,
    offset: u64,
    /// Bytes from the address to the end of what was asked for or of the window.
    pub len: u64,
    stamp: u64,
}

#[derive(Clone, Copy)]
struct Line {
    /// Number of the address space.
    space: u64,
    page: u64,
    stamp: u64,
    window: u32,
}

/// What a window shows.
enum Shows {
    /// Pages of an address space.
    Pages { start: u64, len: u64, writable: bool },
    /// A page table.
    Table(Place),
}

struct Entry<H: Host> {
    space: SpaceId,
    shows: Shows,
    window: Window<H::Mapping>,
}

/// One engine's lookaside buffer.
pub(crate) struct Tlb<H: Host> {
    entries: Vec<Option<Entry<H>>>,
    /// Places of `entries` that are free.
    free: Vec<u32>,
    /// Places of `entries` that no lookup finds any more, and that are still mapped.
    doomed: Vec<u32>,
    /// The place of `entries` where the search for a window to give up goes on.
    hand: usize,
    /// Windows of pages by address space and 2 MiB region.
    regions: HashMap<(SpaceId, u64), Vec<u32>>,
    /// Windows of page tables, by address space and place.
    tables: HashMap<(SpaceId, Place), u32>,
    lines: Box<[Line; LINES]>,
    /// Raised whenever a window goes; a view with another stamp is stale.
    stamp: u64,
    /// Frames of the run being mapped. Here and not on the stack: kernel stacks are small.
    frames: Box<[u64; pte::ENTRIES as usize]>,
    /// Why the last access that faulted has no mapping, where the fault says nothing of the page tables. The code that
    /// acts on it takes it back.
    pub lack: Option<Lack>,
    /// Work from which on nothing is mapped before the engine has looked up; [`u64::MAX`]: there is no such limit.
    pub limit: u64,
    /// Work since the engine last looked up, in bytes moved: what mapped, walked and moved memory adds to it.
    pub work: u64,
}

const REGION_SHIFT: u32 = 12 + pte::INDEX_BITS;

impl<H: Host> Tlb<H> {
    /// An empty buffer. On the heap: what makes an engine has a small stack.
    ///
    /// # Errors
    /// [`NoMemory`].
    #[inline(never)]
    pub fn new() -> Result<Box<Self>, NoMemory> {
        try_box(Self {
            entries: Vec::new(),
            free: Vec::new(),
            doomed: Vec::new(),
            hand: 0,
            regions: HashMap::new(),
            tables: HashMap::new(),
            lines: try_array(|| Line { space: 0, page: 0, stamp: 0, window: 0 })?,
            stamp: 1,
            frames: try_array(|| 0)?,
            lack: None,
            limit: u64::MAX,
            work: 0,
        })
    }

    /// The bytes of a view, or `None` when it is stale: translate again.
    #[inline]
    pub fn span(&self, view: View) -> Option<Span<'_>> {
        if view.stamp != self.stamp {
            return None;
        }
        let entry = self.entries.get(view.window as usize)?.as_ref()?;
        Some(entry.window.span().part(view.offset, view.len))
    }

    /// Translates `va` for reading, or for writing: at least one byte, at most `want`, contiguous in the host.
    ///
    /// # Errors
    /// The fault of the access. Where that is not of the page tables, `lack` says why.
    #[inline]
    pub fn translate(
        &mut self,
        bus: &Bus<'_, H>,
        space: &AddressSpace<H>,
        va: GpuVa,
        want: u64,
        write: bool,
    ) -> Result<View, Fault> {
        let (number, page) = (space.id().number, va.0 / PAGE_SIZE);
        let line = self.lines[Self::line(number, page)];
        // The page of a line that is kept is canonical.
        let window = if line.space == number && line.page == page && line.stamp == self.stamp {
            line.window
        } else {
            self.miss(bus, space, va, want, write)?
        };
        let Some(Some(Entry { shows: Shows::Pages { start, len, writable }, .. })) = self.entries.get(window as usize)
        else {
            return Err(Fault::address(va, write));
        };
        if write && !writable {
            return Err(Fault::address(va, true));
        }
        let offset = va.0 - start;
        Ok(View { window, offset, len: want.min(len - offset), stamp: self.stamp })
    }

    /// The window of `va`, which the page cache does not have.
    #[inline(never)]
    fn miss(
        &mut self,
        bus: &Bus<'_, H>,
        space: &AddressSpace<H>,
        va: GpuVa,
        want: u64,
        write: bool,
    ) -> Result<u32, Fault> {
        if !va.is_canonical() {
            return Err(Fault::address(va, write));
        }
        let page = va.0 / PAGE_SIZE;
        let (space, root) = space.now();
        let window = self.look_up(bus, (space, root), va, want, write)?;
        self.lines[Self::line(space.number, page)] = Line { space: space.number, page, stamp: self.stamp, window };
        Ok(window)
    }

    /// The aligned word at `va` of the address space with the number `space`, where the page cache has its page with
    /// that right. Nothing is walked or mapped, and nothing is let go.
    #[inline]
    pub fn cached(&self, space: u64, va: GpuVa, write: bool) -> Option<SharedWord<'_>> {
        let (window, start) = self.cached_window(space, va, write)?;
        window.word(va.0 - start)
    }

    /// The window that the page cache has for the page of `va`, and where it begins.
    #[inline]
    fn cached_window(&self, space: u64, va: GpuVa, write: bool) -> Option<(Span<'_>, u64)> {
        let page = va.0 / PAGE_SIZE;
        let line = &self.lines[Self::line(space, page)];
        if line.space != space || line.page != page || line.stamp != self.stamp {
            return None;
        }
        let Entry { shows: Shows::Pages { start, writable, .. }, window, .. } =
            self.entries.get(line.window as usize)?.as_ref()?
        else {
            return None;
        };
        (*writable || !write).then(|| (window.span(), *start))
    }

    /// The `len` bytes from `va` on, under the conditions of [`Self::cached`], where one window has all of them.
    #[inline]
    pub fn cached_span(&self, space: u64, va: GpuVa, len: u64, write: bool) -> Option<Span<'_>> {
        let (entry, start) = self.cached_window(space, va, write)?;
        Some(entry.part(va.0 - start, len)).filter(|span| span.len() == len)
    }

    /// The place in the page cache.
    fn line(space: u64, page: u64) -> usize {
        // CAST: below the number of lines.
        (page ^ space.wrapping_mul(37)) as usize % LINES
    }

    /// Dooms the cached translations from `start` to `end` of every address space of `process`, and all cached table
    /// pages of that process. With `start` and `end` 0 every translation of the process goes; with [`EVERY_PROCESS`]
    /// those of all processes. The documents do not say whether `end` is the last address or the one behind it, so a
    /// translation that begins at `end` is dropped as well. What is doomed is found by no lookup any more, and is
    /// mapped until [`Self::give_back`] comes to it.
    pub fn flush(&mut self, process: u64, start: u64, end: u64) {
        let every = process == EVERY_PROCESS;
        let whole = every || (start == 0 && end == 0);
        self.work += SEARCH_COST * self.entries.len() as u64;
        for at in 0..self.entries.len() {
            let Some(Some(entry)) = self.entries.get(at) else { continue };
            let hit = (every || entry.space.process == process)
                && match entry.shows {
                    Shows::Table(_) => true,
                    Shows::Pages { start: first, len, .. } => whole || (first <= end && start < first + len),
                };
            // CAST: at most MAX_WINDOWS.
            if hit && self.forget(at as u32) {
                // There is room for every place.
                self.doomed.push(at as u32);
            }
        }
    }

    /// Unmaps up to `count` of the windows that are doomed, and charges for each. Returns whether none is left.
    pub fn give_back(&mut self, count: usize) -> bool {
        for _ in 0..count {
            let Some(at) = self.doomed.pop() else { break };
            self.unmap(at);
        }
        self.doomed.is_empty()
    }

    /// Unmaps everything.
    pub fn clear(&mut self) {
        self.flush(EVERY_PROCESS, 0, 0);
        self.give_back(usize::MAX);
    }

    /// Unmaps the window at the place `at`, which no lookup finds, and charges for that.
    fn unmap(&mut self, at: u32) {
        if let Some(entry) = self.entries.get_mut(at as usize) {
            *entry = None;
            self.work += MAP_COST;
            // There is room for every place.
            self.free.push(at);
        }
    }

    /// Takes the window at the place `at` out of the indexes. Returns whether it was there.
    fn forget(&mut self, at: u32) -> bool {
        let Some(Some(entry)) = self.entries.get(at as usize) else { return false };
        let found = match entry.shows {
            // A window that is doomed has no key any more, and the table may be mapped anew by now.
            Shows::Table(place) => {
                let key = (entry.space, place);
                let is_its = self.tables.get(&key) == Some(&at);
                if is_its {
                    self.tables.remove(&key);
                }
                is_its
            }
            Shows::Pages { start, .. } => {
                let key = (entry.space, start >> REGION_SHIFT);
                let Some(list) = self.regions.get_mut(&key) else { return false };
                let found = list.iter().position(|other| *other == at).map(|index| list.swap_remove(index)).is_some();
                if list.is_empty() {
                    self.regions.remove(&key);
                }
                found
            }
        };
        self.stamp += u64::from(found);
        found
    }

    /// A place for one more window: a free one, a doomed one, a new one, or that of another window.
    fn place(&mut self) -> Result<u32, NoMemory> {
        if self.free.is_empty() {
            if self.give_back(1) && self.free.is_empty() && self.entries.len() < MAX_WINDOWS {
                self.entries.try_reserve(1)?;
                // Room for the way of every place through both lists.
                self.free.try_reserve(self.entries.capacity())?;
                self.doomed.try_reserve(self.entries.capacity())?;
                self.entries.push(None);
                // CAST: at most MAX_WINDOWS.
                self.free.push(self.entries.len() as u32 - 1);
            }
            while self.free.is_empty() {
                self.hand = (self.hand + 1) % self.entries.len().max(1);
                // CAST: at most MAX_WINDOWS.
                if self.forget(self.hand as u32) {
                    self.unmap(self.hand as u32);
                }
            }
        }
        self.free.pop().ok_or(NoMemory)
    }

    /// Keeps a window, and returns its place.
    fn keep(&mut self, entry: Entry<H>) -> Result<u32, NoMemory> {
        let at = self.place()?;
        let kept = match entry.shows {
            Shows::Table(place) => self.tables.try_reserve(1).map(|()| {
                self.tables.insert((entry.space, place), at);
            }),
            Shows::Pages { start, .. } => self.regions.try_reserve(1).and_then(|()| {
                let list = self.regions.entry((entry.space, start >> REGION_SHIFT)).or_default();
                list.try_reserve(1).map_err(|_| hashbrown::TryReserveError::CapacityOverflow)?;
                list.push(at);
                Ok(())
            }),
        };
        match (kept, self.entries.get_mut(at as usize)) {
            (Ok(()), Some(place)) => *place = Some(entry),
            _ => {
                self.free.push(at);
                return Err(NoMemory);
            }
        }
        Ok(at)
    }

    fn look_up(
        &mut self,
        bus: &Bus<'_, H>,
        (space, root): (SpaceId, Option<Root>),
        va: GpuVa,
        want: u64,
        write: bool,
    ) -> Result<u32, Fault> {
        let fault = Fault::address(va, write);
        if let Some(list) = self.regions.get(&(space, va.0 >> REGION_SHIFT)) {
            let shows = |at: &&u32| match self.entries.get(**at as usize) {
                Some(Some(Entry { shows: Shows::Pages { start, len, .. }, .. })) => {
                    *start <= va.0 && va.0 - start < *len
                }
                _ => false,
            };
            // A list is as long as its region has windows: 512 at most.
            self.work += 8 * list.len() as u64;
            if let Some(at) = list.iter().find(shows) {
                return Ok(*at);
            }
        }
        if self.work >= self.limit {
            // Whatever the window is of: what is mapped already is found when the access comes again.
            self.lack = Some(Lack::Look);
            return Err(fault);
        }
        let leaf_table = self.walk(bus, space, root, va).map_err(|()| fault)?;
        let entry = self.fill(bus, space, va, want, leaf_table).map_err(|()| fault)?;
        self.keep(entry).map_err(|_| {
            self.lack = Some(Lack::Memory);
            fault
        })
    }

    /// The leaf table that translates `va`.
    fn walk(&mut self, bus: &Bus<'_, H>, space: SpaceId, root: Option<Root>, va: GpuVa) -> Result<Place, ()> {
        let root = root.ok_or(())?;
        if pte::index(va, pte::LEVELS - 1) >= root.entries {
            return Err(());
        }
        let mut place = root.place;
        for level in (1..pte::LEVELS).rev() {
            place = self.table_entry(bus, space, place, pte::index(va, level))?.as_table().ok_or(())?;
        }
        Ok(place)
    }

    fn table_entry(&mut self, bus: &Bus<'_, H>, space: SpaceId, table: Place, index: u32) -> Result<Pte, ()> {
        self.work += ENTRY_COST;
        let at = match self.tables.get(&(space, table)) {
            Some(at) => *at,
            None => {
                let window = self.map_table(bus, table, false)?;
                let entry = Entry { space, shows: Shows::Table(table), window };
                self.keep(entry).map_err(|_| self.lack = Some(Lack::Memory))?
            }
        };
        let shown = self.entries.get(at as usize).and_then(Option::as_ref).ok_or(())?;
        // What is walked is a table, whatever the indexes say: a page of user mode would name frames of its choice.
        if !matches!(shown.shows, Shows::Table(place) if place == table) {
            return Err(());
        }
        let span = shown.window.span();
        Ok(Pte(span.word(u64::from(index) * 8).ok_or(())?.load(Ordering::Acquire)))
    }

    /// Maps system pages, and counts what is out of the ordinary.
    fn map(&mut self, bus: &Bus<'_, H>, count: usize, write: bool) -> Result<Window<H::Mapping>, ()> {
        if self.work >= self.limit {
            // The tables that are mapped already are found in the lookaside buffer when the access comes again.
            self.lack = Some(Lack::Look);
            return Err(());
        }
        self.work += MAP_COST;
        let frames = self.frames.get(..count).ok_or(())?;
        match bus.host.map_system(frames, write || bus.mutation.is(Mutation::MapsWritable)) {
            Ok(mapping) => {
                add(&bus.counters.uncached, u64::from(!mapping.is_ordered()));
                Ok(Window::System(mapping))
            }
            Err(Unmapped::NoMemory) => {
                self.lack = Some(Lack::Memory);
                Err(())
            }
            Err(Unmapped::NotMemory) => {
                bump(&bus.counters.refused);
                Err(())
            }
        }
    }

    /// Maps one page, for a table.
    pub fn map_table(&mut self, bus: &Bus<'_, H>, place: Place, write: bool) -> Result<Window<H::Mapping>, ()> {
        match place {
            Place::System(frame) => {
                self.frames[0] = frame;
                self.map(bus, 1, write)
            }
            Place::Local(page) => Ok(Window::Local(bus.host.local(page).ok_or(())?.part(0, PAGE_SIZE))),
        }
    }

    /// Maps the pages of `want` bytes from `va` on, as far as they are alike and lie in this leaf table; of local
    /// memory the run around them.
    fn fill(&mut self, bus: &Bus<'_, H>, space: SpaceId, va: GpuVa, want: u64, table: Place) -> Result<Entry<H>, ()> {
        let at = pte::index(va, 0);
        let here = self.table_entry(bus, space, table, at)?.as_leaf().ok_or(())?;
        let (first, window) = match here.place {
            Place::System(frame) => {
                let pages = (va.0 % PAGE_SIZE).saturating_add(want).div_ceil(PAGE_SIZE).max(1);
                let everything = bus.mutation.is(Mutation::MapsNeighbours);
                let pages = if everything { u64::MAX } else { pages };
                // CAST: at most the number of entries.
                let end = u64::from(at).saturating_add(pages).min(pte::ENTRIES.into()) as u32;
                let count = self.collect(bus, space, table, at + 1..end, frame, here.read_only)?;
                (at, self.map(bus, count, !here.read_only)?)
            }
            Place::Local(page) => self.local_run(bus, space, table, at, page, here.read_only)?,
        };
        let start = (va.0 >> REGION_SHIFT << REGION_SHIFT) + u64::from(first) * PAGE_SIZE;
        let shows = Shows::Pages { start, len: window.span().len(), writable: !here.read_only };
        Ok(Entry { space, shows, window })
    }

    /// Puts `frame` and the frames of `entries`, as far as they are system pages with the same rights, into
    /// [`frames`](Self::frames), and returns how many they are. Each entry is read once: the OS may change those of
    /// others meanwhile.
    fn collect(
        &mut self,
        bus: &Bus<'_, H>,
        space: SpaceId,
        table: Place,
        entries: Range<u32>,
        frame: u64,
        read_only: bool,
    ) -> Result<usize, ()> {
        // A table is mapped for the first entry, if need be, and that takes the first place of `frames`.
        let mut count = 1;
        for i in entries {
            match self.table_entry(bus, space, table, i)?.as_leaf() {
                Some(Leaf { place: Place::System(frame), read_only: its }) if its == read_only => {
                    *self.frames.get_mut(count).ok_or(())? = frame;
                    count += 1;
                }
                _ => break,
            }
        }
        self.frames[0] = frame;
        Ok(count)
    }

    /// The run of local memory around its page `page`, which entry `at` names: the run's first entry, and the window.
    fn local_run(
        &mut self,
        bus: &Bus<'_, H>,
        space: SpaceId,
        table: Place,
        at: u32,
        page: u64,
        read_only: bool,
    ) -> Result<(u32, Window<H::Mapping>), ()> {
        let mut is_at = |i: u32, page: Option<u64>| {
            let leaf = self.table_entry(bus, space, table, i).map(Pte::as_leaf);
            leaf.map(|leaf| page.is_some_and(|page| leaf == Some(Leaf { place: Place::Local(page), read_only })))
        };
        let (mut first, mut last) = (at, at);
        while first > 0 && is_at(first - 1, page.checked_sub(u64::from(at - first) + 1))? {
            first -= 1;
        }
        while last + 1 < pte::ENTRIES && is_at(last + 1, page.checked_add(u64::from(last - at) + 1))? {
            last += 1;
        }
        // Where the host has only a part of the run that misses the page, the run from the page on.
        for first in [first, at] {
            let back = u64::from(at - first);
            let span = bus.host.local(page - back).ok_or(())?.part(0, u64::from(last - first + 1) * PAGE_SIZE);
            if span.len() > back * PAGE_SIZE {
                return Ok((first, Window::Local(span)));
            }
        }
        Err(())
    }
}
