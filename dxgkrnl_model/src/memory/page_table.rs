//! Page tables of one GPU virtual address space, as the driver described them.
//!
//! The tree here knows which tables exist, where they are, and which entries are valid; [`PageTables::set`] turns a
//! range of entries into the updates that the driver is asked for, tables first, parents last. Nothing here calls the
//! driver.

use std::collections::BTreeMap;
use std::sync::Arc;

use wddm_abi::{DXGK_PAGETABLEUPDATEMODE, DXGK_PTE, DXGK_UPDATEPAGETABLEFLAGS};

use super::pages::Page;
use super::va::PAGE;
use crate::port::caps::{Caps, Mmu};
use crate::port::personality::{PteAddress, StrayEntry};

/// Where a table is.
#[derive(Clone, Debug)]
pub(crate) enum TableMemory {
    /// A page of the system.
    System(Arc<Page>),
    /// Part of a segment: its number, the offset, the address that the GPU names it by, and the kernel's, if any.
    Segment { id: u32, offset: u64, address: u64, kernel: usize },
    /// NULL, which only a stray update names; always by the CPU.
    Null,
}

impl TableMemory {
    /// Segment and address, as a GPU physical address.
    pub(crate) fn physical(&self) -> (u32, u64) {
        match self {
            Self::System(page) => (0, page.frame() * PAGE),
            Self::Segment { id, address, .. } => (*id, *address),
            Self::Null => (0, 0),
        }
    }

    /// Where the kernel sees it; 0 for a table in a segment that the CPU does not reach.
    pub(crate) fn kernel_address(&self) -> usize {
        match self {
            Self::System(page) => page.address(),
            Self::Segment { kernel, .. } => *kernel,
            Self::Null => 0,
        }
    }
}

/// A page table.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) level: usize,
    pub(crate) memory: TableMemory,
    /// Where the paging process sees it, under the GPU_VIRTUAL update mode.
    pub(crate) window: u64,
    children: BTreeMap<u64, Table>,
}

/// Entries to be stored in one table.
#[derive(Clone, Debug)]
pub(crate) struct Update {
    pub(crate) level: usize,
    pub(crate) memory: TableMemory,
    pub(crate) window: u64,
    pub(crate) start: u64,
    pub(crate) count: u64,
    /// One entry that is repeated, or `count` of them.
    pub(crate) entries: Vec<DXGK_PTE>,
    /// The table was just made.
    pub(crate) initial: bool,
    /// GPU virtual address of the first entry.
    pub(crate) address: u64,
    /// The entries map this allocation, from this byte offset on.
    pub(crate) allocation: Option<(usize, u64)>,
    pub(crate) driver_protection: u64,
    /// The entries map a native fence.
    pub(crate) native_fence: bool,
    /// Flags that this Windows has no use for by itself.
    pub(crate) odd_flags: DXGK_UPDATEPAGETABLEFLAGS,
}

/// What entries are for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Purpose {
    /// The driver's handle of the allocation, and the byte offset of the first page.
    pub(crate) allocation: Option<(usize, u64)>,
    pub(crate) driver_protection: u64,
    pub(crate) native_fence: bool,
}

/// What a driver said of its segments, as far as stray entries depend on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Described {
    /// How many there are.
    pub(crate) segments: u64,
    /// The first aperture.
    pub(crate) aperture: Option<u32>,
}

impl Described {
    /// As `caps` has them.
    pub(crate) fn new(caps: &Caps) -> Self {
        let aperture = caps.segments.iter().find(|segment| segment.is_aperture());
        Self { segments: caps.segments.len() as u64, aperture: aperture.map(|segment| segment.id) }
    }
}

/// Makes the memory of tables.
pub(crate) trait TableSource {
    /// Memory for a table of `level`; and where the paging process sees it, under GPU_VIRTUAL.
    fn allocate(&mut self, level: usize, bytes: u64) -> Option<(TableMemory, u64)>;
}

/// The tables of one space.
#[derive(Clone, Debug)]
pub(crate) struct PageTables {
    mmu: Mmu,
    address: PteAddress,
    root: Option<Table>,
    root_entries: u64,
}

impl PageTables {
    /// No tables yet.
    pub(crate) fn new(mmu: Mmu, address: PteAddress) -> Self {
        Self { mmu, address, root: None, root_entries: 0 }
    }

    fn top(&self) -> usize {
        self.mmu.levels.len().saturating_sub(1)
    }

    /// The root: where it is and how many entries it has.
    pub(crate) fn root(&self) -> Option<(TableMemory, u64)> {
        self.root.as_ref().map(|root| (root.memory.clone(), self.root_entries))
    }

    /// Entries that the root needs for a space of this many bytes.
    pub(crate) fn root_entries_for(&self, end: u64) -> u64 {
        let shift = self.mmu.shift(self.top());
        end.div_ceil(1 << shift.min(63)).max(1)
    }

    /// Makes the root with `entries` entries and says how to initialize it.
    pub(crate) fn make_root(&mut self, memory: TableMemory, window: u64, entries: u64) -> Update {
        let level = self.top();
        let update = initial(level, memory.clone(), window, entries, 0);
        self.root = Some(Table { level, memory, window, children: BTreeMap::new() });
        self.root_entries = entries;
        update
    }

    /// Replaces the root by one with `entries` entries, no fewer than before: what was the root, and the updates that
    /// make the new one what that was. `None`: there is no root.
    pub(crate) fn grow_root(
        &mut self,
        memory: TableMemory,
        window: u64,
        entries: u64,
    ) -> Option<(TableMemory, Vec<Update>)> {
        let root = self.root.as_mut()?;
        let old = std::mem::replace(&mut root.memory, memory);
        (root.window, self.root_entries) = (window, entries);
        let mut updates = Vec::new();
        self.own_anew(self.root.as_ref()?, 0, entries, &mut updates);
        Some((old, updates))
    }

    /// Stores `entries` (one per page, or one that is repeated over `pages`) from `address` on. `None`: no memory for a
    /// table; what was made so far stays and is used later.
    pub(crate) fn set(
        &mut self,
        address: u64,
        pages: u64,
        entries: &[DXGK_PTE],
        purpose: Purpose,
        source: &mut dyn TableSource,
    ) -> Option<Vec<Update>> {
        let mut updates = Vec::new();
        let spread = Spread { mmu: &self.mmu, form: self.address, entries, purpose, from: address };
        let root = self.root.as_mut()?;
        let fits = spread.descend(root, address, pages, source, &mut updates);
        fits.then_some(updates)
    }

    /// Every table, root last, taken out.
    pub(crate) fn take_all(&mut self) -> Vec<TableMemory> {
        fn collect(table: &Table, into: &mut Vec<TableMemory>) {
            for child in table.children.values() {
                collect(child, into);
            }
            into.push(table.memory.clone());
        }
        let mut all = Vec::new();
        if let Some(root) = self.root.take() {
            collect(&root, &mut all);
        }
        all
    }

    /// Where every table is, with its level.
    pub(crate) fn places(&self) -> Vec<(TableMemory, usize)> {
        fn collect(table: &Table, into: &mut Vec<(TableMemory, usize)>) {
            table.children.values().for_each(|child| collect(child, into));
            into.push((table.memory.clone(), table.level));
        }
        let mut all = Vec::new();
        if let Some(root) = &self.root {
            collect(root, &mut all);
        }
        all
    }

    /// The updates that make every table anew, children first: invalid entries, then those that name tables.
    pub(crate) fn anew(&self) -> Vec<Update> {
        let mut updates = Vec::new();
        if let Some(root) = &self.root {
            self.table_anew(root, 0, self.root_entries, &mut updates);
        }
        updates
    }

    /// The updates that initialize every table, those of level 0 first, each by one invalid entry that is repeated.
    /// Above, all entries of a table are in one update.
    pub(crate) fn leaves_first(&self) -> Vec<Update> {
        let mut updates = Vec::new();
        if let Some(root) = &self.root {
            self.at_once(root, 0, self.root_entries, &mut updates);
        }
        updates.sort_by_key(|update| update.level);
        updates
    }

    /// The update that initializes a table, behind those of its children.
    fn at_once(&self, table: &Table, address: u64, count: u64, updates: &mut Vec<Update>) {
        let shift = self.mmu.shift(table.level);
        let mut update = initial(table.level, table.memory.clone(), table.window, count, address);
        if table.level > 0 {
            // CAST: a table's entries.
            update.entries = vec![DXGK_PTE::zeroed(); count as usize];
        }
        for (index, child) in &table.children {
            self.at_once(child, address + (index << shift), self.mmu.entries(child.level), updates);
            // CAST: as above.
            if let Some(entry) = update.entries.get_mut(*index as usize) {
                *entry = names(self.address, &child.memory);
            }
        }
        updates.push(update);
    }

    fn table_anew(&self, table: &Table, address: u64, count: u64, updates: &mut Vec<Update>) {
        let shift = self.mmu.shift(table.level);
        for (index, child) in &table.children {
            self.table_anew(child, address + (index << shift), self.mmu.entries(child.level), updates);
        }
        self.own_anew(table, address, count, updates);
    }

    /// The updates that make one table anew.
    fn own_anew(&self, table: &Table, address: u64, count: u64, updates: &mut Vec<Update>) {
        let shift = self.mmu.shift(table.level);
        let invalid = initial(table.level, table.memory.clone(), table.window, count, address);
        updates.push(invalid.clone());
        let mut children = table.children.iter().peekable();
        while let Some((start, child)) = children.next() {
            let mut entries = vec![names(self.address, &child.memory)];
            let mut end = start + 1;
            while let Some((_, next)) = children.next_if(|(index, _)| **index == end) {
                entries.push(names(self.address, &next.memory));
                end += 1;
            }
            updates.push(Update {
                initial: false,
                start: *start,
                count: end - start,
                entries,
                address: address + (start << shift),
                ..invalid.clone()
            });
        }
    }

    /// An update with an entry that drivers need not know, next to what `updates` store. `None`: there is no place for
    /// it.
    ///
    /// A leaf entry stands at the end of the last leaf table, where `is_free` says that nothing is mapped at its
    /// address; an entry of level 1 behind that of the last table that was made, where no table was made yet.
    pub(crate) fn stray(
        &self,
        kind: StrayEntry,
        described: Described,
        updates: &[Update],
        is_free: impl Fn(u64) -> bool,
    ) -> Option<Update> {
        let level = if kind == StrayEntry::Table64K { 1 } else { 0 };
        let beside = updates.iter().rev().find(|update| !update.initial && update.level == level)?;
        let count = if level == self.top() { self.root_entries } else { self.mmu.entries(level) };
        if kind == StrayEntry::Table64K {
            let (start, address) = (beside.start + beside.count, beside.address + (beside.count << self.mmu.shift(1)));
            let mut entry = *beside.entries.last()?;
            entry.set_PageTablePageSize(1);
            let fits = start < count && !self.has_leaf_table(address);
            return fits.then_some(Update { start, count: 1, entries: vec![entry], address, ..beside.clone() });
        }
        let mut entry = *beside.entries.iter().find(|entry| entry.Valid())?;
        match kind {
            StrayEntry::LargePage => entry.set_LargePage(true),
            StrayEntry::Zero => entry.set_Zero(true),
            StrayEntry::Segment => entry.set_Segment(31),
            StrayEntry::SegmentBehindLast => entry.set_Segment(described.segments + 1),
            StrayEntry::Aperture => entry.set_Segment(described.aperture?.into()),
            StrayEntry::Adapter => entry.set_PhysicalAdapterIndex(1),
            StrayEntry::Reserved | StrayEntry::Table64K => entry.set_Reserved(1),
            StrayEntry::Update64K | StrayEntry::UpdateReserved | StrayEntry::UpdateLevel => (),
            StrayEntry::UpdateBehindTable => (),
            StrayEntry::UpdateSegment | StrayEntry::UpdateAperture | StrayEntry::UpdateNull => (),
        }
        // The same place, of another segment.
        let elsewhere = |id| {
            let address = beside.memory.physical().1;
            let physical = DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_GPU_PHYSICAL;
            let is_by_physical = self.mmu.update_mode() == physical;
            is_by_physical.then_some(TableMemory::Segment { id, offset: address, address, kernel: 0 })
        };
        let memory = match kind {
            StrayEntry::UpdateSegment => elsewhere(31)?,
            StrayEntry::UpdateAperture => elsewhere(described.aperture?)?,
            StrayEntry::UpdateNull => TableMemory::Null,
            _ => beside.memory.clone(),
        };
        let level = if kind == StrayEntry::UpdateLevel { self.mmu.levels.len() } else { beside.level };
        let number = if kind == StrayEntry::UpdateBehindTable { 2 } else { 1 };
        let mut odd_flags = DXGK_UPDATEPAGETABLEFLAGS::zeroed();
        odd_flags.set_Use64KBPages(kind == StrayEntry::Update64K);
        odd_flags.set_Reserved(u32::from(kind == StrayEntry::UpdateReserved));
        let last = count.checked_sub(1)?;
        let fits = beside.start + beside.count <= last;
        let address = beside.address + last.checked_sub(beside.start)? * PAGE;
        (fits && is_free(address)).then_some(Update {
            level,
            memory,
            start: last,
            count: number,
            // CAST: one or two.
            entries: vec![entry; number as usize],
            address,
            allocation: None,
            odd_flags,
            ..beside.clone()
        })
    }

    /// An update with a valid entry for the page at `physical`, which no operation asks for, behind the last leaf
    /// entries that `updates` store. `None`: there is no place for it, or `is_free` says that something is mapped
    /// there.
    pub(crate) fn neighbour(&self, physical: u64, updates: &[Update], is_free: impl Fn(u64) -> bool) -> Option<Update> {
        let beside = updates.iter().rev().find(|update| !update.initial && update.level == 0)?;
        let mut entry = *beside.entries.last().filter(|entry| entry.Valid())?;
        entry.set_Segment(0);
        entry.set_PageAddress(in_form(self.address, physical));
        let (start, address) = (beside.start + beside.count, beside.address + beside.count * PAGE);
        let fits = start < self.mmu.entries(0) && is_free(address);
        fits.then_some(Update { start, count: 1, entries: vec![entry], address, allocation: None, ..beside.clone() })
    }

    /// Returns whether a table of level 0 was made for `address`.
    fn has_leaf_table(&self, address: u64) -> bool {
        self.leaf(address).is_some()
    }

    /// The table of level 0 that was made for `address`, and the index of its entry there.
    pub(crate) fn leaf(&self, address: u64) -> Option<(TableMemory, u64)> {
        let mut table = self.root.as_ref();
        while let Some(parent) = table.filter(|table| table.level > 0) {
            table = parent.children.get(&index(&self.mmu, parent.level, address));
        }
        table.map(|table| (table.memory.clone(), index(&self.mmu, 0, address)))
    }
}

/// The entry that names a table.
fn names(form: PteAddress, memory: &TableMemory) -> DXGK_PTE {
    let (segment, physical) = memory.physical();
    let mut entry = DXGK_PTE::zeroed();
    entry.set_Valid(true);
    entry.set_Segment(segment.into());
    entry.set_PageTableAddress(in_form(form, physical));
    entry
}

/// The update that makes a new table's entries invalid.
fn initial(level: usize, memory: TableMemory, window: u64, count: u64, address: u64) -> Update {
    Update {
        level,
        memory,
        window,
        start: 0,
        count,
        entries: vec![DXGK_PTE::zeroed()],
        initial: true,
        address,
        allocation: None,
        driver_protection: 0,
        native_fence: false,
        odd_flags: DXGK_UPDATEPAGETABLEFLAGS::zeroed(),
    }
}

struct Spread<'a> {
    mmu: &'a Mmu,
    form: PteAddress,
    entries: &'a [DXGK_PTE],
    purpose: Purpose,
    from: u64,
}

impl Spread<'_> {
    /// Entries from `address` on, in `table`. False: no memory.
    fn descend(
        &self,
        table: &mut Table,
        address: u64,
        pages: u64,
        source: &mut dyn TableSource,
        updates: &mut Vec<Update>,
    ) -> bool {
        if table.level == 0 {
            updates.push(self.leaf(table, address, pages));
            return true;
        }
        let shift = self.mmu.shift(table.level);
        let end = address + pages * PAGE;
        let mut at = address;
        while at < end {
            let index = index(self.mmu, table.level, at);
            let next = ((at >> shift) + 1) << shift;
            let stop = next.min(end);
            if !table.children.contains_key(&index)
                && !self.add_child(table, index, (at >> shift) << shift, source, updates)
            {
                return false;
            }
            let Some(child) = table.children.get_mut(&index) else { return false };
            if !self.descend(child, at, (stop - at) / PAGE, source, updates) {
                return false;
            }
            at = stop;
        }
        true
    }

    fn add_child(
        &self,
        table: &mut Table,
        index: u64,
        address: u64,
        source: &mut dyn TableSource,
        updates: &mut Vec<Update>,
    ) -> bool {
        let level = table.level - 1;
        let bytes = self.mmu.levels.get(level).map_or(0, |level| u64::from(level.PageTableSizeInBytes));
        let Some((memory, window)) = source.allocate(level, bytes) else { return false };
        updates.push(initial(level, memory.clone(), window, self.mmu.entries(level), address));
        updates.push(Update {
            initial: false,
            start: index,
            entries: vec![names(self.form, &memory)],
            ..initial(table.level, table.memory.clone(), table.window, 1, address)
        });
        table.children.insert(index, Table { level, memory, window, children: BTreeMap::new() });
        true
    }

    fn leaf(&self, table: &Table, address: u64, pages: u64) -> Update {
        // CAST: an index within the entries that were passed.
        let skip = ((address - self.from) / PAGE) as usize;
        let entries = if self.entries.len() == 1 {
            self.entries.to_vec()
        } else {
            self.entries.iter().skip(skip).take(pages as usize).copied().collect()
        };
        let allocation = self.purpose.allocation.map(|(handle, offset)| (handle, offset + skip as u64 * PAGE));
        Update {
            start: index(self.mmu, 0, address),
            entries,
            initial: false,
            allocation,
            driver_protection: self.purpose.driver_protection,
            native_fence: self.purpose.native_fence,
            ..initial(0, table.memory.clone(), table.window, pages, address)
        }
    }
}

/// Index of `address` in a table of `level`. The root of two levels has as many entries as it needs.
fn index(mmu: &Mmu, level: usize, address: u64) -> u64 {
    let index = address >> mmu.shift(level);
    let is_resizable = mmu.levels.len() == 2 && level == 1;
    if is_resizable { index } else { index & (mmu.entries(level) - 1) }
}

/// An address as page table entries spell it.
pub(crate) fn in_form(form: PteAddress, address: u64) -> u64 {
    match form {
        PteAddress::Bytes => address,
        PteAddress::Frames => address / PAGE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wddm_abi::{DXGK_GPUMMUCAPS, DXGK_PAGE_TABLE_LEVEL_DESC};

    struct Source(u64);

    impl TableSource for Source {
        fn allocate(&mut self, _: usize, bytes: u64) -> Option<(TableMemory, u64)> {
            self.0 += bytes;
            Some((TableMemory::Segment { id: 2, offset: self.0, address: self.0, kernel: 0 }, 0))
        }
    }

    fn tables(bits: &[u32]) -> PageTables {
        let level = |bits: &u32| {
            let mut level = DXGK_PAGE_TABLE_LEVEL_DESC::zeroed();
            level.PageTableIndexBitCount = *bits;
            level.PageTableSizeInBytes = 4096;
            level
        };
        let mmu = Mmu { caps: DXGK_GPUMMUCAPS::zeroed(), levels: bits.iter().map(level).collect() };
        let mut tables = PageTables::new(mmu, PteAddress::Bytes);
        let root = TableMemory::Segment { id: 2, offset: 0, address: 0, kernel: 0 };
        tables.make_root(root, 0, 512);
        tables
    }

    #[test]
    fn a_range_over_a_table_boundary_makes_two_leaves() {
        let mut tables = tables(&[9, 9, 9, 9]);
        let mut source = Source(0);
        let entries: Vec<_> = (0..4).map(|_| DXGK_PTE::zeroed()).collect();
        let address = (1 << 21) - 2 * PAGE;
        let updates = tables.set(address, 4, &entries, Purpose::default(), &mut source).unwrap_or_default();
        // Two directories and a leaf, each with its parent's entry, two entries; then a leaf, its parent's, two
        // entries.
        assert_eq!(updates.len(), 10);
        let leaves: Vec<_> = updates.iter().filter(|update| update.level == 0 && !update.initial).collect();
        assert_eq!(
            leaves.iter().map(|leaf| (leaf.start, leaf.count, leaf.entries.len())).collect::<Vec<_>>(),
            [(510, 2, 2), (0, 2, 2)]
        );
        let again = tables.set(address, 4, &entries, Purpose::default(), &mut source).unwrap_or_default();
        assert_eq!(again.len(), 2);
        assert_eq!(tables.take_all().len(), 5);
    }

    /// Maps pages from `page` on, and returns where an entry of `kind` is stored beside them: index and address.
    fn strayed(tables: &mut PageTables, kind: StrayEntry, page: u64, pages: usize, free: bool) -> Option<(u64, u64)> {
        let mut entry = DXGK_PTE::zeroed();
        entry.set_Valid(true);
        let updates = tables.set(page * PAGE, pages as u64, &vec![entry; pages], Purpose::default(), &mut Source(0))?;
        let described = Described { segments: 2, aperture: Some(1) };
        tables.stray(kind, described, &updates, |_| free).map(|update| (update.start, update.address))
    }

    #[test]
    fn a_stray_leaf_entry_is_the_last_of_its_table_and_over_nothing() {
        let mut tables = tables(&[9, 9, 9, 9]);
        let kind = StrayEntry::LargePage;
        assert_eq!(strayed(&mut tables, kind, 510, 1, true), Some((511, 511 * PAGE)));
        assert_eq!(strayed(&mut tables, kind, 511, 1, true), None);
        assert_eq!(strayed(&mut tables, kind, 3, 1, false), None);
        assert_eq!(strayed(&mut tables, kind, 510, 4, true), Some((511, 1023 * PAGE)));
    }

    #[test]
    fn a_neighbour_stands_behind_what_is_mapped() {
        let mut tables = tables(&[9, 9, 9, 9]);
        let mut entry = DXGK_PTE::zeroed();
        entry.set_Valid(true);
        let mut beside = |page: u64, entry: DXGK_PTE, free: bool| {
            let updates = tables.set(page * PAGE, 1, &[entry], Purpose::default(), &mut Source(0)).unwrap_or_default();
            let update = tables.neighbour(0x7000, &updates, |_| free)?;
            Some((update.start, update.address, update.entries.first().map(DXGK_PTE::PageAddress)))
        };
        assert_eq!(beside(5, entry, true), Some((6, 6 * PAGE, Some(0x7000))));
        assert_eq!(beside(5, entry, false), None);
        assert_eq!(beside(511, entry, true), None);
        assert_eq!(beside(5, DXGK_PTE::zeroed(), true), None);
    }

    #[test]
    fn a_stray_table_entry_stays_in_its_table_and_leaves_tables_alone() {
        let mut tables = tables(&[9, 9, 9, 9]);
        let kind = StrayEntry::Table64K;
        assert_eq!(strayed(&mut tables, kind, 0, 1, true), Some((1, 512 * PAGE)));
        assert_eq!(strayed(&mut tables, kind, 511 * 512, 1, true), None);
        assert_eq!(strayed(&mut tables, kind, 2 * 512, 1, true), Some((3, 3 * 512 * PAGE)));
        // The table behind it exists.
        assert_eq!(strayed(&mut tables, kind, 512, 1, true), None);
    }

    #[test]
    fn tables_of_level_0_are_initialized_first_and_the_others_as_a_whole() {
        let mut tables = tables(&[9, 9, 9]);
        let none = [DXGK_PTE::zeroed()];
        let high = 1 << 38;
        assert!(tables.set(high, 3 * 512, &none, Purpose::default(), &mut Source(0)).is_some());
        let updates = tables.leaves_first();
        let form = |update: &Update| (update.level, update.count, update.entries.len(), update.address, update.initial);
        let leaf = |number: u64| (0, 512, 1, high + (number << 21), true);
        let wanted = [leaf(0), leaf(1), leaf(2), (1, 512, 512, high, true), (2, 512, 512, 0, true)];
        assert_eq!(updates.iter().map(form).collect::<Vec<_>>(), wanted);
        let valid = |at: usize| -> Vec<usize> {
            let entries = updates.get(at).map(|update| update.entries.as_slice()).unwrap_or_default();
            entries.iter().enumerate().filter(|(_, entry)| entry.Valid()).map(|(index, _)| index).collect()
        };
        assert_eq!((valid(3), valid(4)), (vec![0, 1, 2], vec![256]));
    }

    #[test]
    fn the_root_of_two_levels_has_the_size_of_the_space() {
        let tables = tables(&[10, 0]);
        assert_eq!(tables.root_entries_for(1 << 32), 1024);
        assert_eq!(tables.root_entries_for(1), 1);
    }
}
