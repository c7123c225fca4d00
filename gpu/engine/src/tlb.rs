//! Stage 5 of 8: translation, one lookaside buffer per engine thread.
//!
//! A miss walks the page table and maps the pages of the access, as far as they lie in one leaf table and are alike,
//! into the host: a *window*. Neighbours that the access does not touch are left alone: an entry that the OS left valid
//! over a page that is not locked, or is no memory at all, must do no harm to an access that does not touch it. (Of
//! local memory, which is ours, the whole run is taken.) A page that the table shows for reading is mapped for reading,
//! and so are the tables. The engine owns its windows; no other thread sees them. A flush reaches the engine as a
//! request ([`crate::gpu::FlushBoard`]) that it serves between packets and between the chunks of long operations; it
//! drops the windows, which unmaps them, and only then acknowledges. So a host mapping never outlives the paging
//! operation that took the page away.
//!
//! Invalid entries are never cached (`InvalidTlbEntriesNotCached`).

use crate::NoMemory;
use crate::address_space::{AddressSpace, EVERY_PROCESS, Root, SpaceId};
use crate::counters::{add, bump};
use crate::fault::Fault;
use crate::gpu::Gpu;
use crate::host::{Host, Unmapped};
use crate::memory::{Mapping, Span, Window};
use crate::mutation::Mutation;
use crate::shared::try_array;
use crate::word::{Ordering, Word};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use gpu_wire::pte::{self, Leaf, Place, Pte};
use gpu_wire::{GpuVa, PAGE_SIZE};
use hashbrown::HashMap;

/// Windows that an engine keeps at most. Beyond, it starts afresh.
const MAX_WINDOWS: usize = 4096;
/// Lines of the page cache in front of the tables.
const LINES: usize = 64;

/// Bytes behind a GPU address, as long as the buffer they came from was not flushed. [`Tlb::span`] gives access.
#[derive(Clone, Copy, Debug)]
pub struct View {
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

struct Entry<H: Host> {
    space: SpaceId,
    /// First address.
    start: u64,
    len: u64,
    writable: bool,
    window: Window<H::Mapping>,
}

/// One engine's lookaside buffer.
pub struct Tlb<H: Host> {
    node: usize,
    entries: Vec<Entry<H>>,
    /// Windows by address space and 2 MiB region.
    regions: HashMap<(SpaceId, u64), Vec<u32>>,
    /// Table pages, by address space and place.
    tables: HashMap<(SpaceId, Place), Window<H::Mapping>>,
    lines: Box<[Line; LINES]>,
    /// Raised whenever a window goes; a view with another stamp is stale.
    stamp: u64,
    /// Frames of the run being mapped. Here and not on the stack: kernel stacks are small.
    frames: Box<[u64; pte::ENTRIES as usize]>,
    /// Misses, for counters.
    pub misses: u64,
    /// The host had no memory for a mapping: the fault that came of it says nothing of the page tables. The code that
    /// acts on it takes it back.
    pub starved: bool,
}

const REGION_SHIFT: u32 = 12 + pte::INDEX_BITS;

impl<H: Host> Tlb<H> {
    /// An empty buffer of the engine of `node`.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new(node: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            node,
            entries: Vec::new(),
            regions: HashMap::new(),
            tables: HashMap::new(),
            lines: try_array(|| Line { space: 0, page: 0, stamp: 0, window: 0 })?,
            stamp: 1,
            frames: try_array(|| 0)?,
            misses: 0,
            starved: false,
        })
    }

    /// The bytes of a view, or `None` when it is stale: translate again.
    pub fn span(&self, view: View) -> Option<Span<'_>> {
        if view.stamp != self.stamp {
            return None;
        }
        Some(self.entries.get(view.window as usize)?.window.span().part(view.offset, view.len))
    }

    /// Translates `va` for reading, or for writing: at least one byte, at most `want`, contiguous in the host.
    ///
    /// # Errors
    /// The fault of the access. [`NoMemory`] of the host is a fault of the same address: the queue cannot go on.
    pub fn translate(
        &mut self,
        gpu: &Gpu<H>,
        space: &AddressSpace<H>,
        va: GpuVa,
        want: u64,
        write: bool,
    ) -> Result<View, Fault> {
        if !va.is_canonical() {
            return Err(Fault::address(va, write));
        }
        let page = va.0 / PAGE_SIZE;
        let number = space.id().number;
        let slot = (page ^ number.wrapping_mul(37)) as usize % LINES;
        let line = self.lines[slot];
        let window = if line.space == number && line.page == page && line.stamp == self.stamp {
            line.window
        } else {
            let (space, root) = space.now();
            let window = self.look_up(gpu, (space, root), va, want, write)?;
            self.lines[slot] = Line { space: space.number, page, stamp: self.stamp, window };
            window
        };
        let entry = self.entries.get(window as usize).ok_or(Fault::address(va, write))?;
        if write && !entry.writable {
            return Err(Fault::address(va, true));
        }
        let offset = va.0 - entry.start;
        Ok(View { window, offset, len: want.min(entry.len - offset), stamp: self.stamp })
    }

    /// A 64-bit word at `va`, which must be aligned.
    ///
    /// # Errors
    /// The fault of the access.
    pub fn word(
        &mut self,
        gpu: &Gpu<H>,
        space: &AddressSpace<H>,
        va: GpuVa,
        write: bool,
    ) -> Result<crate::memory::SharedWord<'_>, Fault> {
        let view = self.translate(gpu, space, va, 8, write)?;
        self.span(view).and_then(|s| s.word(0)).ok_or(Fault::address(va, write))
    }

    /// Copies bytes out of the address space, across pages.
    ///
    /// # Errors
    /// The fault of the first byte that cannot be read.
    pub fn read(
        &mut self,
        gpu: &Gpu<H>,
        space: &AddressSpace<H>,
        mut va: GpuVa,
        mut to: &mut [u8],
    ) -> Result<(), Fault> {
        while !to.is_empty() {
            let view = self.translate(gpu, space, va, to.len() as u64, false)?;
            let n = self.span(view).map_or(0, |s| s.read(to));
            if n == 0 {
                return Err(Fault::address(va, false));
            }
            to = to.get_mut(n..).unwrap_or_default();
            va = GpuVa(va.0 + n as u64);
        }
        Ok(())
    }

    /// Drops the cached translations from `start` to `end` of every address space of `process`, and all cached table
    /// pages of that process. With `start` and `end` 0 every translation of the process goes; with [`EVERY_PROCESS`]
    /// those of all processes. The documents do not say whether `end` is the last address or the one behind it, so a
    /// translation that begins at `end` is dropped as well.
    pub fn flush(&mut self, process: u64, start: u64, end: u64) {
        if process == EVERY_PROCESS {
            self.clear();
            return;
        }
        let whole = start == 0 && end == 0;
        let hit = |e: &Entry<H>| e.space.process == process && (whole || (e.start <= end && start < e.start + e.len));
        self.tables.retain(|(space, _), _| space.process != process);
        if !self.entries.iter().any(hit) {
            return;
        }
        self.stamp += 1;
        self.entries.retain(|e| !hit(e));
        self.index();
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.stamp += 1;
        self.entries.clear();
        self.regions.clear();
        self.tables.clear();
    }

    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.tables.is_empty()
    }

    /// Rebuilds the index after windows went. Growing it can fail; then the windows go as well.
    fn index(&mut self) {
        self.regions.clear();
        for i in 0..self.entries.len() {
            if self.index_one(i).is_err() {
                self.clear();
                return;
            }
        }
    }

    fn index_one(&mut self, i: usize) -> Result<(), NoMemory> {
        let key = (self.entries[i].space, self.entries[i].start >> REGION_SHIFT);
        self.regions.try_reserve(1)?;
        let list = self.regions.entry(key).or_default();
        list.try_reserve(1)?;
        // CAST: at most MAX_WINDOWS.
        list.push(i as u32);
        Ok(())
    }

    fn look_up(
        &mut self,
        gpu: &Gpu<H>,
        (space, root): (SpaceId, Option<Root>),
        va: GpuVa,
        want: u64,
        write: bool,
    ) -> Result<u32, Fault> {
        let fault = Fault::address(va, write);
        if let Some(list) = self.regions.get(&(space, va.0 >> REGION_SHIFT)) {
            let hit = list.iter().find(|i| {
                let e = &self.entries[**i as usize];
                e.start <= va.0 && va.0 - e.start < e.len
            });
            if let Some(i) = hit {
                return Ok(*i);
            }
        }
        self.misses += 1;
        if self.entries.len() >= MAX_WINDOWS {
            self.clear();
        }
        let leaf_table = self.walk(gpu, space, root, va).map_err(|()| fault)?;
        let entry = self.fill(gpu, space, va, want, leaf_table).map_err(|()| fault)?;
        if self.entries.try_reserve(1).is_err() {
            self.starved = true;
            return Err(fault);
        }
        self.entries.push(entry);
        let i = self.entries.len() - 1;
        if self.index_one(i).is_err() {
            self.entries.pop();
            self.starved = true;
            return Err(fault);
        }
        // CAST: at most MAX_WINDOWS.
        Ok(i as u32)
    }

    /// The leaf table that translates `va`.
    fn walk(&mut self, gpu: &Gpu<H>, space: SpaceId, root: Option<Root>, va: GpuVa) -> Result<Place, ()> {
        let root = root.ok_or(())?;
        if pte::index(va, pte::LEVELS - 1) >= root.entries {
            return Err(());
        }
        let mut place = root.place;
        for level in (1..pte::LEVELS).rev() {
            place = self.table_entry(gpu, space, place, pte::index(va, level))?.as_table().ok_or(())?;
        }
        Ok(place)
    }

    fn table_entry(&mut self, gpu: &Gpu<H>, space: SpaceId, table: Place, index: u32) -> Result<Pte, ()> {
        let key = (space, table);
        if !self.tables.contains_key(&key) {
            self.tables.try_reserve(1).map_err(|_| self.starved = true)?;
            let window = self.map_table(gpu, table, false)?;
            self.tables.insert(key, window);
        }
        let span = self.tables.get(&key).ok_or(())?.span();
        Ok(Pte(span.word(u64::from(index) * 8).ok_or(())?.load(Ordering::Acquire)))
    }

    /// Maps system pages, and counts what is out of the ordinary.
    fn map(&mut self, gpu: &Gpu<H>, count: usize, write: bool) -> Result<Window<H::Mapping>, ()> {
        let frames = self.frames.get(..count).ok_or(())?;
        let counters = &gpu.nodes[self.node].counters;
        match gpu.host.map_system(frames, write || gpu.mutation.is(Mutation::MapsWritable)) {
            Ok(mapping) => {
                add(&counters.uncached, u64::from(!mapping.is_ordered()));
                Ok(Window::System(mapping))
            }
            Err(Unmapped::NoMemory) => {
                self.starved = true;
                Err(())
            }
            Err(Unmapped::NotMemory) => {
                bump(&counters.refused);
                Err(())
            }
        }
    }

    /// Maps one page, for a table.
    pub(crate) fn map_table(&mut self, gpu: &Gpu<H>, place: Place, write: bool) -> Result<Window<H::Mapping>, ()> {
        match place {
            Place::System(frame) => {
                self.frames[0] = frame;
                self.map(gpu, 1, write)
            }
            Place::Local(page) => Ok(Window::Local(gpu.host.local(page).ok_or(())?.part(0, PAGE_SIZE))),
        }
    }

    /// Maps the pages of `want` bytes from `va` on, as far as they are alike and lie in this leaf table; of local
    /// memory the run around them.
    fn fill(&mut self, gpu: &Gpu<H>, space: SpaceId, va: GpuVa, want: u64, table: Place) -> Result<Entry<H>, ()> {
        let at = pte::index(va, 0);
        let here = self.table_entry(gpu, space, table, at)?.as_leaf().ok_or(())?;
        let (first, window) = match here.place {
            Place::System(frame) => {
                let pages = (va.0 % PAGE_SIZE).saturating_add(want).div_ceil(PAGE_SIZE).max(1);
                let everything = gpu.mutation.is(Mutation::MapsNeighbours);
                let pages = if everything { u64::MAX } else { pages };
                // CAST: at most the number of entries.
                let end = u64::from(at).saturating_add(pages).min(pte::ENTRIES.into()) as u32;
                let count = self.collect(gpu, space, table, at + 1..end, frame, here.read_only)?;
                (at, self.map(gpu, count, !here.read_only)?)
            }
            Place::Local(page) => self.local_run(gpu, space, table, at, page, here.read_only)?,
        };
        let start = (va.0 >> REGION_SHIFT << REGION_SHIFT) + u64::from(first) * PAGE_SIZE;
        Ok(Entry { space, start, len: window.span().len(), writable: !here.read_only, window })
    }

    /// Puts `frame` and the frames of `entries`, as far as they are system pages with the same rights, into
    /// [`frames`](Self::frames), and returns how many they are. Each entry is read once: the OS may change those of
    /// others meanwhile.
    fn collect(
        &mut self,
        gpu: &Gpu<H>,
        space: SpaceId,
        table: Place,
        entries: Range<u32>,
        frame: u64,
        read_only: bool,
    ) -> Result<usize, ()> {
        self.frames[0] = frame;
        let mut count = 1;
        for i in entries {
            match self.table_entry(gpu, space, table, i)?.as_leaf() {
                Some(Leaf { place: Place::System(frame), read_only: its }) if its == read_only => {
                    *self.frames.get_mut(count).ok_or(())? = frame;
                    count += 1;
                }
                _ => break,
            }
        }
        Ok(count)
    }

    /// The run of local memory around its page `page`, which entry `at` names: the run's first entry, and the window.
    fn local_run(
        &mut self,
        gpu: &Gpu<H>,
        space: SpaceId,
        table: Place,
        at: u32,
        page: u64,
        read_only: bool,
    ) -> Result<(u32, Window<H::Mapping>), ()> {
        let mut is_at = |i: u32, page: Option<u64>| {
            let leaf = self.table_entry(gpu, space, table, i).map(Pte::as_leaf);
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
            let span = gpu.host.local(page - back).ok_or(())?.part(0, u64::from(last - first + 1) * PAGE_SIZE);
            if span.len() > back * PAGE_SIZE {
                return Ok((first, Window::Local(span)));
            }
        }
        Err(())
    }
}
