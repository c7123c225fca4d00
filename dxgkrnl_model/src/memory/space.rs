//! A GPU virtual address space: its ranges, its tables, and the operations that change them.
//!
//! Ranges are taken and given back by the threads of processes; tables are changed by the paging worker only, one job
//! after the other, so that the order of jobs is the order of changes.
//!
//! Chosen: a new table is made invalid (`InitialUpdate`, one repeated entry) before its parent names it, but for those
//! that the paging process has from the start ([`PagingProcess`](crate::port::personality::PagingProcess)). A TLB flush
//! of the touched range follows every change of entries that were valid, and every other change unless the driver's
//! `InvalidTlbEntriesNotCached` says that it need not.

mod anew;
mod growing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use wddm_abi::{DXGK_BUILDPAGINGBUFFER_OPERATION, DXGK_PAGETABLEUPDATEMODE, DXGK_PTE, DXGKARG_GETROOTPAGETABLESIZE};

use super::Manager;
use super::allocation::Allocation;
use super::page_table::{Described, PageTables, Purpose, TableMemory, TableSource, Update, in_form};
use super::paging::{Op, Pager, PagingError};
use super::va::{PAGE, Protection, Range, Ranges, Use, Wanted};
use crate::memory::VidMm;
use crate::port::caps::Caps;
use crate::port::ddi::call_ddi;
use crate::port::miniport::Miniport;
use crate::port::personality::{FlushEnd, PteAddress, STRAY_OPERATIONS, StrayFlush};
use crate::port::rules::paging::ROOT_TABLE_SIZE;
use crate::port::sync::{Lock, Rank};

/// Bytes of the paging process's space that have tables from the start. Source: article system-paging-process.
const PAGING_SPACE: u64 = 1 << 30;

/// Whose contexts run in a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The paging process's.
    Paging,
    /// A process's own.
    Process,
    /// The companions of a process's.
    Companions,
}

/// A space of one process on one adapter.
#[derive(Debug)]
pub(crate) struct AddressSpace {
    ranges: Lock<Ranges>,
    tables: Lock<Option<PageTables>>,
    /// What entries of the system's ranges are, by their first address: pages, content, purpose.
    noted: Lock<BTreeMap<u64, (u64, Content, Purpose)>>,
    owner: Owner,
    /// The driver's handle of the process whose space it is; 0: the driver does not know it, or not any more.
    process: AtomicUsize,
    /// `DxgkDdiCreateProcess` runs: the driver may reserve ranges.
    creating: std::sync::atomic::AtomicBool,
}

/// What entries shall be.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// Invalid.
    None,
    /// The zero page.
    Zero,
    /// These page frames of a segment (0: system memory; frames then, addresses in the segment otherwise).
    Pages { segment: u32, addresses: Vec<u64>, protection: Protection },
}

impl AddressSpace {
    /// An empty space of an adapter with these capabilities.
    pub(crate) fn new(caps: &Caps, address: PteAddress, owner: Owner) -> Self {
        let bits = caps.mmu.as_ref().map_or(32, |mmu| mmu.caps.VirtualAddressBitCount);
        let tables = caps.mmu.clone().map(|mmu| PageTables::new(mmu, address));
        Self {
            ranges: Lock::new(Rank::Va, Ranges::new(bits)),
            tables: Lock::new(Rank::Segment, tables),
            noted: Lock::new(Rank::Leaf, BTreeMap::new()),
            owner,
            process: AtomicUsize::new(0),
            creating: std::sync::atomic::AtomicBool::new(false),
        }
    }

    /// Whether it is the paging process's.
    pub(crate) fn is_paging(&self) -> bool {
        self.owner == Owner::Paging
    }

    /// Takes a range.
    pub(crate) fn insert(&self, wanted: &Wanted, used: Use) -> Option<u64> {
        self.ranges.lock().insert(wanted, used)
    }

    /// What lies at `address`.
    pub(crate) fn with_ranges<R>(&self, f: impl FnOnce(&mut Ranges) -> R) -> R {
        f(&mut self.ranges.lock())
    }

    /// The allocation that is mapped at `address`, and the byte of it that lies there.
    pub(crate) fn allocation_at(&self, address: u64) -> Option<(Arc<Allocation>, u64)> {
        self.with_ranges(|ranges| match ranges.at(address)? {
            (start, Range { used: Use::Allocation { allocation, offset, .. }, .. }) => {
                Some((allocation.clone(), offset + (address - start)))
            }
            _ => None,
        })
    }

    /// The driver's handle of the process whose space it is, as a number; 0: the driver does not know it.
    pub(crate) fn process(&self) -> usize {
        self.process.load(Ordering::Acquire)
    }

    /// The driver knows the process by this handle from here on; 0: it does not know it any more.
    pub(crate) fn set_process(&self, driver: usize) {
        self.process.store(driver, Ordering::Release);
    }

    /// `DxgkDdiCreateProcess` begins or ends.
    pub(crate) fn set_creating(&self, creating: bool) {
        self.creating.store(creating, std::sync::atomic::Ordering::Release);
    }

    /// A range for the driver's own tables; only while the process is being created.
    pub(crate) fn reserve_for_driver(&self, base: u64, size: u64, alignment: u64) -> Option<u64> {
        if !self.creating.load(std::sync::atomic::Ordering::Acquire) {
            return None;
        }
        self.insert(&Wanted { size, base, alignment, ..Wanted::default() }, Use::Driver)
    }

    /// Segment, address and number of entries of the root.
    pub(crate) fn root(&self) -> Option<((u32, u64), u64)> {
        let tables = self.tables.lock();
        let (memory, entries) = tables.as_ref()?.root()?;
        Some((memory.physical(), entries))
    }

    /// The table of level 0 for an address, and the index of its entry there; `None`: there is none yet.
    pub(crate) fn leaf(&self, address: u64) -> Option<(TableMemory, u64)> {
        self.tables.lock().as_ref()?.leaf(address)
    }

    /// Makes the tables of level 0 of a range, as far as they are missing; their entries are invalid. On the paging
    /// worker.
    pub(crate) fn make_tables(
        &self,
        adapter: &Arc<Miniport>,
        manager: &Arc<Manager>,
        address: u64,
        pages: u64,
    ) -> Result<(), PagingError> {
        let Some(mmu) = &manager.caps.mmu else { return Ok(()) };
        let (mut at, end, covered) = (address, address + pages * PAGE, mmu.entries(0) * PAGE);
        while at < end {
            let next = (at / covered * covered + covered).min(end);
            if self.leaf(at).is_none() {
                let count = (next - at) / PAGE;
                self.set(adapter, manager, at, count, &Content::None, Purpose::default())?;
            }
            at = next;
        }
        Ok(())
    }

    /// Where the paging process has tables from the start: 1 GB, at the bottom of the space or of its upper half.
    pub(crate) fn paging_range(&self, adapter: &Miniport) -> std::ops::Range<u64> {
        let end = self.ranges.lock().end();
        let start = if adapter.personality().paging_process.high_addresses { end / 2 } else { 0 };
        start..(start + PAGING_SPACE).min(end)
    }

    /// Makes the tables that the paging process has from the start; their entries are invalid. Before the paging worker
    /// runs.
    ///
    /// # Errors
    /// The driver broke a rule or returned an error, or there is no memory.
    ///
    /// Source: article system-paging-process.
    pub(crate) fn initialize_paging(&self, adapter: &Arc<Miniport>, manager: &Arc<Manager>) -> Result<(), PagingError> {
        let range = self.paging_range(adapter);
        let pages = (range.end - range.start) / PAGE;
        if adapter.personality().paging_process.root_first {
            self.initialize(adapter, manager)?;
            return self.set(adapter, manager, range.start, pages, &Content::None, Purpose::default());
        }
        if self.make_root(adapter, manager)?.is_none() {
            return Ok(());
        }
        let mut source = Source { adapter, manager, is_paging: true, failed: None };
        let updates = {
            let mut tables = self.tables.lock();
            let Some(tables) = tables.as_mut() else { return Ok(()) };
            let made = tables.set(range.start, pages, &[DXGK_PTE::zeroed()], Purpose::default(), &mut source);
            made.map(|_| tables.leaves_first())
        };
        let Some(updates) = updates else { return Err(source.error()) };
        self.run(adapter, manager, updates, None)
    }

    /// Makes the root table. On the paging worker, or before it runs.
    pub(crate) fn initialize(&self, adapter: &Arc<Miniport>, manager: &Arc<Manager>) -> Result<(), PagingError> {
        match self.make_root(adapter, manager)? {
            Some(update) => self.run(adapter, manager, vec![update], None),
            None => Ok(()),
        }
    }

    /// Has a root table, and returns the update that initializes it; `None`: there are no page tables.
    fn make_root(&self, adapter: &Arc<Miniport>, manager: &Arc<Manager>) -> Result<Option<Update>, PagingError> {
        let Some(mmu) = manager.caps.mmu.clone() else { return Ok(None) };
        let top = mmu.levels.len().saturating_sub(1);
        let resizable = mmu.levels.len() == 2;
        let mut entries = mmu.entries(top);
        let mut bytes = mmu.levels.get(top).map_or(0, |level| u64::from(level.PageTableSizeInBytes));
        if resizable {
            let end = match self.owner {
                Owner::Paging => self.paging_range(adapter).end,
                // It grows with the addresses that are mapped.
                Owner::Process => 1,
                Owner::Companions => self.ranges.lock().end(),
            };
            let wanted = self.tables.lock().as_ref().map_or(1, |tables| tables.root_entries_for(end));
            (entries, bytes) = root_size(adapter, wanted);
        }
        let mut source = Source { adapter, manager, is_paging: self.is_paging(), failed: None };
        let Some((memory, window)) = source.allocate(top, bytes) else { return Err(source.error()) };
        Ok(self.tables.lock().as_mut().map(|tables| tables.make_root(memory, window, entries)))
    }

    /// Gives entries from `address` on a content. On the paging worker, or before it runs.
    pub(crate) fn set(
        &self,
        adapter: &Arc<Miniport>,
        manager: &Arc<Manager>,
        address: u64,
        pages: u64,
        content: &Content,
        purpose: Purpose,
    ) -> Result<(), PagingError> {
        self.have_root(adapter, manager, address + pages * PAGE)?;
        let form = adapter.personality().pte_address;
        let coherent = adapter.personality().io_coherent;
        let entries = entries(&manager.caps, form, coherent, content);
        let mut source = Source { adapter, manager, is_paging: self.is_paging(), failed: None };
        // A copy: to show a new table stores entries of the paging process. Only the paging worker changes tables.
        let copy = self.tables.lock().clone();
        let Some(mut tables) = copy else { return Ok(()) };
        let mut updates = tables.set(address, pages, &entries, purpose, &mut source);
        let kind = adapter.personality().faults.stray_entry.filter(|_| !self.is_paging());
        if let (Some(kind), Some(updates)) = (kind, &mut updates) {
            let described = Described::new(&manager.caps);
            let stray = tables.stray(kind, described, updates, |address| self.ranges.lock().at(address).is_none());
            updates.extend(stray);
        }
        let neighbour = adapter.personality().faults.neighbour.filter(|_| !self.is_paging());
        let neighbour = neighbour.and_then(|kind| manager.neighbour_address(adapter, kind));
        if let (Some(physical), Some(updates)) = (neighbour, &mut updates) {
            let neighbour = tables.neighbour(physical, updates, |address| self.ranges.lock().at(address).is_none());
            updates.extend(neighbour);
        }
        let old = self.tables.lock().replace(tables);
        drop(old);
        self.note(address, pages, content, purpose);
        let Some(updates) = updates else { return Err(source.error()) };
        self.run(adapter, manager, updates, Some((address, address + pages * PAGE)))
    }

    fn run(
        &self,
        adapter: &Arc<Miniport>,
        manager: &Arc<Manager>,
        updates: Vec<Update>,
        flush: Option<(u64, u64)>,
    ) -> Result<(), PagingError> {
        let Some(mmu) = &manager.caps.mmu else { return Ok(()) };
        let cpu = DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_CPU_VIRTUAL;
        // Chosen: under GPU_VIRTUAL the paging process's own tables are changed by the CPU for good, as they are
        // initialized; the page of DXGK_BUILDPAGINGBUFFER_UPDATEPAGETABLE would have them shown to the paging process
        // as well.
        let by_address = mmu.update_mode() == DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_GPU_VIRTUAL;
        let immediate = self.is_paging() && (by_address || !manager.is_running());
        let mode = if immediate { cpu } else { mmu.update_mode() };
        let op = |update: Update| {
            let mode = if matches!(update.memory, TableMemory::Null) { cpu } else { mode };
            Op::Update { update, process: self.process(), mode }
        };
        let mut ops: Vec<_> = updates.into_iter().map(op).collect();
        if immediate {
            Pager::run_immediate(adapter, &ops)?;
            if !manager.is_running() {
                return Ok(());
            }
            ops.clear();
        }
        if adapter.personality().faults.stray_operations && !self.is_paging() {
            ops.extend(STRAY_OPERATIONS.map(|number| Op::Stray(DXGK_BUILDPAGINGBUFFER_OPERATION(number))));
        }
        if let (Some((start, end)), Some((root, _))) = (flush, self.root()) {
            let last = adapter.personality().flush_end == FlushEnd::LastPage && end != 0;
            let end = if last { end - PAGE } else { end };
            let process = match adapter.personality().faults.stray_flushes {
                None => self.process(),
                Some(StrayFlush::NoProcess) => 0,
                Some(StrayFlush::AnotherObject) => VidMm::of(adapter).system_context(),
                Some(StrayFlush::GoneProcess) => manager.gone_process(),
            };
            ops.push(Op::Flush { process, root, start, end });
        }
        manager.pager.run(adapter, &ops)
    }

    /// Gives back the tables. Nothing may run in the space any more.
    pub(crate) fn take_down(&self, manager: &Manager) {
        let tables = self.tables.lock().as_mut().map(PageTables::take_all).unwrap_or_default();
        for table in tables {
            if let TableMemory::Segment { id, offset, .. } = table {
                manager.free_in_segment(id, offset);
            }
        }
    }
}

/// `DxgkDdiGetRootPageTableSize`: entries and bytes.
pub(crate) fn root_size(adapter: &Miniport, entries: u64) -> (u64, u64) {
    let mut arguments = DXGKARG_GETROOTPAGETABLESIZE::zeroed();
    // CAST: a root of 2^32 entries is not asked for.
    arguments.NumberOfPte = entries.min(u32::MAX.into()) as u32;
    let context = adapter.context();
    let pointer = &raw mut arguments;
    let bytes = call_ddi!(adapter, DxgkDdiGetRootPageTableSize(context, pointer)).unwrap_or(0) as u64;
    let given = u64::from(arguments.NumberOfPte);
    let holds = bytes != 0 && bytes.is_multiple_of(PAGE) && given >= entries;
    adapter.rules().check(&ROOT_TABLE_SIZE, holds, || format!("{entries} entries: {bytes} bytes, {given} entries"));
    (given.max(entries), bytes.max(PAGE).next_multiple_of(PAGE))
}

/// Page table entries of a content: one that is repeated, or one per page. `coherent`: the platform is.
fn entries(caps: &Caps, form: PteAddress, coherent: bool, content: &Content) -> Vec<DXGK_PTE> {
    let flags = caps.mmu.as_ref().map(|mmu| mmu.caps);
    match content {
        Content::None => vec![DXGK_PTE::zeroed()],
        Content::Zero => {
            let mut entry = DXGK_PTE::zeroed();
            entry.set_Zero(flags.is_some_and(|flags| flags.ZeroInPteSupported()));
            vec![entry]
        }
        Content::Pages { segment, addresses, protection } => {
            let entry = |address: &u64| {
                let mut entry = DXGK_PTE::zeroed();
                entry.set_Valid(true);
                entry.set_Segment((*segment).into());
                entry.set_ReadOnly(!protection.write && flags.is_some_and(|flags| flags.ReadOnlyMemorySupported()));
                entry.set_NoExecute(!protection.execute && flags.is_some_and(|flags| flags.NoExecuteMemorySupported()));
                entry.set_CacheCoherent(
                    coherent && *segment == 0 && flags.is_some_and(|flags| flags.CacheCoherentMemorySupported()),
                );
                entry.set_PageAddress(in_form(form, *address));
                entry
            };
            addresses.iter().map(entry).collect()
        }
    }
}

/// Memory of tables: the segment that the driver named for the level.
struct Source<'a> {
    adapter: &'a Arc<Miniport>,
    manager: &'a Arc<Manager>,
    is_paging: bool,
    failed: Option<PagingError>,
}

impl Source<'_> {
    fn error(&self) -> PagingError {
        self.failed.unwrap_or(PagingError::Driver(wddm_abi::ntstatus::STATUS_NO_MEMORY))
    }
}

impl TableSource for Source<'_> {
    fn allocate(&mut self, level: usize, bytes: u64) -> Option<(TableMemory, u64)> {
        let mmu = self.manager.caps.mmu.as_ref()?;
        let described = mmu.levels.get(level)?;
        let segment =
            if self.is_paging { described.PagingProcessPageTableSegmentId } else { described.PageTableSegmentId };
        let memory = if segment == 0 {
            // CAST: a table of less than 4 GiB.
            let page = match bytes.div_ceil(PAGE) as usize {
                0 | 1 => self.manager.pool.allocate()?,
                pages => self.manager.pool.allocate_run(pages)?,
            };
            TableMemory::System(Arc::new(page))
        } else {
            self.manager.table_in_segment(self.adapter, segment, bytes, described.PageTableAlignmentInBytes.into())?
        };
        let by_address = mmu.update_mode() == DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_GPU_VIRTUAL;
        if self.is_paging || !by_address {
            return Some((memory, 0));
        }
        match self.manager.show_table(self.adapter, &memory, bytes) {
            Ok(window) => Some((memory, window)),
            Err(error) => {
                self.failed = Some(error);
                None
            }
        }
    }
}
