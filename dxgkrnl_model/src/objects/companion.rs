//! The privileged address space of a process, and the companion contexts that write page tables in it.
//!
//! What `D3DKMTUpdateGpuVirtualAddress` asks for is carried out by a companion of the context that it names: a packet
//! context on the node of `PagingCompanionNodeId`, whose root page table is not that of the process's other contexts.
//! Its address space shows the leaf page tables of the process, and entries are copied there from address to address
//! (`DXGK_OPERATION_COPY_PAGE_TABLE_ENTRIES`). For what is mapped or taken away the entries come from a range of the
//! privileged space itself, which is given the same content first.
//!
//! Source: articles tile-resources, per-process-gpu-virtual-address-spaces; DDI pages DXGK_CONTEXTINFO
//! (PagingCompanionNodeId), DXGK_BUILDPAGINGBUFFER_COPY_RANGE.
//!
//! Chosen: the space comes into being with the first update, unless the personality has it with the first reservation,
//! and the companion with the first update; the update is built when the fence has its value. The range of the
//! privileged space that entries come from is made for one update. Where the driver writes page tables with the CPU,
//! the same changes are made by `DXGK_OPERATION_UPDATE_PAGE_TABLE`, as the article has it.

use std::collections::BTreeMap;
use std::sync::Arc;

use wddm_abi::{DXGK_BUILDPAGINGBUFFER_COPY_RANGE, DXGK_CREATECONTEXTFLAGS, DXGK_PAGETABLEUPDATEMODE, NTSTATUS};

use crate::memory::page_table::{Purpose, TableMemory};
use crate::memory::paging::{Op, Pager, PagingContext, PagingError};
use crate::memory::residency::{entries_of, show_range};
use crate::memory::space::{AddressSpace, Content, Owner};
use crate::memory::va::{PAGE, Protection, Use, Wanted};
use crate::memory::{Manager, VidMm};
use crate::objects::context::Context;
use crate::objects::device::Device;
use crate::objects::process::ProcessAdapter;
use crate::port::miniport::Miniport;
use crate::port::rules::paging::PAGING_COPY;
use crate::port::sync::{Lock, Rank};

/// Paging buffers of a privileged space.
const BUFFERS: usize = 2;
/// Page tables are shown at multiples of this.
const TABLE_ALIGNMENT: u64 = 0x1_0000;

/// A change of page tables that user mode asked for, in the order in which they are made.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// A range gets another use.
    Show { address: u64, size: u64, used: Use },
    /// A range gets the uses of another, which may overlap it.
    Copy { source: u64, size: u64, destination: u64 },
}

/// The privileged address space of a process on an adapter.
#[derive(Debug)]
pub(crate) struct Privileged {
    space: AddressSpace,
    /// Where it shows page tables, by segment and address of the table.
    shown: Lock<BTreeMap<(u32, u64), u64>>,
    pager: Pager,
    /// The companion of each context, by the driver's handle of that.
    companions: Lock<BTreeMap<usize, Arc<Context>>>,
}

impl Privileged {
    /// Makes the space, with its root page table and paging buffers. On the paging worker.
    fn create(
        adapter: &Arc<Miniport>,
        manager: &Arc<Manager>,
        gpu_process: &ProcessAdapter,
    ) -> Result<Arc<Self>, PagingError> {
        let size = adapter.personality().faults.paging_buffer_size.unwrap_or(manager.caps.paging_buffer_size);
        let this = Arc::new(Self {
            space: AddressSpace::new(&manager.caps, adapter.personality().pte_address, Owner::Companions),
            shown: Lock::new(Rank::Leaf, BTreeMap::new()),
            pager: Pager::new(size as usize),
            companions: Lock::new(Rank::Registry, BTreeMap::new()),
        });
        this.space.set_process(gpu_process.driver_handle());
        this.space.initialize(adapter, manager)?;
        for _ in 0..BUFFERS {
            let pages = this.pager.pages();
            let none = PagingError::Driver(wddm_abi::ntstatus::STATUS_NO_MEMORY);
            // One page more than the GPU sees, to be watched.
            let block = manager.pool.allocate_block(pages + 1).ok_or(none)?;
            let addresses = (0..pages).map(|index| block.object().frame(index) * PAGE).collect();
            let content = Content::Pages { segment: 0, addresses, protection: Protection::READ_WRITE };
            let gpu = this.map(adapter, manager, pages as u64, &content, Purpose::default())?;
            this.pager.add(block, gpu, manager.caps.paging_private_size as usize);
        }
        Ok(this)
    }

    /// Maps pages somewhere in the space. On the paging worker.
    fn map(
        &self,
        adapter: &Arc<Miniport>,
        manager: &Arc<Manager>,
        pages: u64,
        content: &Content,
        purpose: Purpose,
    ) -> Result<u64, PagingError> {
        let none = PagingError::Driver(wddm_abi::ntstatus::STATUS_NO_MEMORY);
        let wanted = Wanted { size: pages * PAGE, alignment: TABLE_ALIGNMENT, ..Wanted::default() };
        let address = self.space.insert(&wanted, Use::System).ok_or(none)?;
        self.space.set(adapter, manager, address, pages, content, purpose)?;
        Ok(address)
    }

    /// Where the space shows a page table. On the paging worker.
    fn show(&self, adapter: &Arc<Miniport>, manager: &Arc<Manager>, table: &TableMemory) -> Result<u64, PagingError> {
        let (segment, address) = table.physical();
        if let Some(known) = self.shown.lock().get(&(segment, address)) {
            return Ok(*known);
        }
        let content = Content::Pages { segment, addresses: vec![address], protection: Protection::READ_WRITE };
        let at = self.map(adapter, manager, 1, &content, Purpose::default())?;
        self.shown.lock().insert((segment, address), at);
        Ok(at)
    }

    /// The companion of the context with the driver's handle `context`, made on `node` if there is none.
    ///
    /// IRQL: PASSIVE_LEVEL, not on the paging worker.
    ///
    /// # Errors
    /// What the driver returned.
    fn companion(&self, device: &Arc<Device>, context: usize, node: u32) -> Result<Arc<Context>, NTSTATUS> {
        if let Some(known) = self.companions.lock().get(&context) {
            return Ok(known.clone());
        }
        let mut flags = DXGK_CREATECONTEXTFLAGS::zeroed();
        flags.set_SystemContext(device.adapter().personality().companion_is_system);
        let made = Context::create_companion(device, node, flags, self.space.root())?;
        self.companions.lock().insert(context, made.clone());
        Ok(made)
    }

    /// The context with the driver's handle `context` goes, and its companion with it.
    ///
    /// IRQL: PASSIVE_LEVEL, not on the paging worker.
    pub(crate) fn forget(&self, context: usize) {
        let companion = self.companions.lock().remove(&context);
        if let Some(companion) = companion {
            companion.commands().drop_all();
            companion.settle();
            companion.destroy();
        }
    }

    /// The page tables of the space begin anew. On the paging worker.
    pub(crate) fn begin_anew(&self, adapter: &Arc<Miniport>, manager: &Arc<Manager>) -> Result<(), PagingError> {
        self.space.begin_anew(adapter, manager)
    }

    /// Gives back buffers and tables. Nothing may run in the space any more.
    pub(crate) fn take_down(&self, manager: &Manager) {
        self.pager.clear();
        self.space.take_down(manager);
    }
}

/// The companion of a context of `device`, whose `PagingCompanionNodeId` is `node`; `context`: the driver's handle.
///
/// IRQL: PASSIVE_LEVEL, not on the paging worker.
///
/// # Errors
/// What the driver returned, or paging ended with.
pub(crate) fn companion_of(device: &Arc<Device>, context: usize, node: u32) -> Result<Arc<Context>, NTSTATUS> {
    privileged_of(device.process())?.companion(device, context, node)
}

/// The privileged address space of a process, which is made if there is none.
///
/// IRQL: PASSIVE_LEVEL, not on the paging worker.
///
/// # Errors
/// What paging ended with.
pub(crate) fn privileged_of(gpu_process: &Arc<ProcessAdapter>) -> Result<Arc<Privileged>, NTSTATUS> {
    let adapter = gpu_process.adapter();
    let gpu_process = gpu_process.clone();
    let manager = VidMm::of(adapter).manager().ok_or(wddm_abi::ntstatus::STATUS_DEVICE_REMOVED)?;
    let made = manager.run_on_worker(adapter, move |adapter, manager| {
        if let Some(known) = gpu_process.privileged() {
            return Ok(known);
        }
        let made = Privileged::create(adapter, manager, &gpu_process)?;
        gpu_process.set_privileged(&made);
        Ok(made)
    });
    made.ok_or(wddm_abi::ntstatus::STATUS_SYSTEM_SHUTDOWN)?.map_err(crate::memory::residency::status_of)
}

/// What makes the changes of one update.
type Make = dyn Fn(&Arc<Miniport>, &Arc<Manager>, &Arc<Context>) -> Result<(), PagingError> + Send + Sync;

/// Changes of a process's page tables, made one after the other on a companion.
#[derive(Clone)]
pub(crate) struct Update(Arc<Make>);

impl std::fmt::Debug for Update {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Update").finish_non_exhaustive()
    }
}

impl Update {
    /// An update of these changes.
    pub(crate) fn new(changes: Vec<Change>) -> Self {
        Self(Arc::new(move |adapter, manager, companion| {
            let gpu_process = companion.device().process();
            let Some(privileged) = gpu_process.privileged() else { return Err(PagingError::Lost) };
            let copies = Copies { adapter, manager, gpu_process, privileged: &privileged, companion };
            changes.iter().try_for_each(|change| copies.make(change))
        }))
    }

    /// Makes the changes. On the paging worker.
    pub(crate) fn make(
        &self,
        adapter: &Arc<Miniport>,
        manager: &Arc<Manager>,
        companion: &Arc<Context>,
    ) -> Result<(), PagingError> {
        (self.0)(adapter, manager, companion)
    }
}

/// Copies of page table entries for one update.
struct Copies<'a> {
    adapter: &'a Arc<Miniport>,
    manager: &'a Arc<Manager>,
    gpu_process: &'a ProcessAdapter,
    privileged: &'a Privileged,
    companion: &'a Arc<Context>,
}

impl Copies<'_> {
    fn make(&self, change: &Change) -> Result<(), PagingError> {
        let space = self.gpu_process.address_space();
        let (pieces, whole) = match change {
            Change::Show { address, size, used } => (vec![(*address, *size, used.clone())], None),
            Change::Copy { source, size, destination } => {
                let pieces = space.with_ranges(|ranges| ranges.uses(*source, *size));
                let moved = |(at, size, used)| (at - source + destination, size, used);
                (pieces.into_iter().map(moved).collect::<Vec<_>>(), Some((*source, *size, *destination)))
            }
        };
        for (address, size, used) in &pieces {
            // Freed meanwhile: that has its own job behind this one.
            space.with_ranges(|ranges| ranges.replace(*address, *size, used.clone()));
        }
        let mmu = self.manager.caps.mmu.as_ref();
        let cpu = DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_CPU_VIRTUAL;
        if mmu.is_none_or(|mmu| mmu.update_mode() == cpu) {
            let show = |(address, size, used): &(u64, u64, Use)| {
                show_range(self.adapter, self.manager, space, *address, *size, used)
            };
            return pieces.iter().try_for_each(show);
        }
        match whole {
            Some((source, size, destination)) => self.copy(space, source, destination, size / PAGE),
            None => pieces.iter().try_for_each(|(address, size, used)| self.show(*address, size / PAGE, used)),
        }
    }

    /// Gives a range of the process the content of `used`, which a range of the privileged space gets first.
    fn show(&self, address: u64, pages: u64, used: &Use) -> Result<(), PagingError> {
        let (adapter, manager, own) = (self.adapter, self.manager, &self.privileged.space);
        let (content, purpose) = entries_of(used, pages);
        let from = self.privileged.map(adapter, manager, pages, &content, purpose)?;
        let copied = self.copy(own, from, address, pages);
        own.set(adapter, manager, from, pages, &Content::None, Purpose::default())?;
        own.with_ranges(|ranges| ranges.remove(from, 0));
        copied
    }

    /// Copies the entries of `pages` pages from `source` in a space to `destination` in the process's.
    fn copy(&self, from: &AddressSpace, source: u64, destination: u64, pages: u64) -> Result<(), PagingError> {
        let (adapter, manager, to) = (self.adapter, self.manager, self.gpu_process.address_space());
        let process = self.gpu_process.driver_handle();
        from.make_tables(adapter, manager, source, pages)?;
        to.make_tables(adapter, manager, destination, pages)?;
        let mut pieces = Vec::new();
        let mut done = 0;
        while done < pages {
            let none = PagingError::Driver(wddm_abi::ntstatus::STATUS_NO_MEMORY);
            let (source, first) = from.leaf(source + done * PAGE).ok_or(none)?;
            let (destination, second) = to.leaf(destination + done * PAGE).ok_or(none)?;
            let room = manager.caps.mmu.as_ref().map_or(1, |mmu| mmu.entries(0));
            let count = (pages - done).min(room - first).min(room - second);
            pieces.push(Piece { source, first, destination, second, count });
            done += count;
        }
        // What is overwritten was copied before.
        if destination > source {
            pieces.reverse();
        }
        let mut ranges = Vec::new();
        for piece in &pieces {
            let mut range = DXGK_BUILDPAGINGBUFFER_COPY_RANGE::zeroed();
            // CAST: entries of a table.
            range.NumPageTableEntries = piece.count as u32;
            range.SrcStartPteIndex = piece.first as u32;
            range.DstStartPteIndex = piece.second as u32;
            range.SrcPageTableAddress = self.privileged.show(adapter, manager, &piece.source)?;
            range.DstPageTableAddress = self.privileged.show(adapter, manager, &piece.destination)?;
            ranges.push(range);
        }
        let mut ops = vec![Op::CopyEntries(ranges)];
        if !adapter.personality().copy_without_flush
            && let Some((root, _)) = to.root()
        {
            ops.push(Op::Flush { process, root, start: destination, end: destination + pages * PAGE });
        }
        let expected = self.expect(&pieces);
        let companion: Arc<dyn PagingContext> = self.companion.clone();
        self.privileged.pager.run_on(adapter, Some(&companion), &ops)?;
        let entry = |address: usize, bytes: &[u8]| crate::port::raw::bytes_at(address, bytes.len()) == bytes;
        let right = expected.iter().all(|(address, bytes)| entry(*address, bytes));
        adapter.rules().check(&PAGING_COPY, right, || format!("{pages} entries for {destination:#x}"));
        Ok(())
    }

    /// What the tables that are copied to must hold afterwards, where the CPU sees them: by kernel address.
    fn expect(&self, pieces: &[Piece]) -> BTreeMap<usize, Vec<u8>> {
        let Some(level) = self.manager.caps.mmu.as_ref().and_then(|mmu| mmu.levels.first()) else {
            return BTreeMap::new();
        };
        let bytes = level.PageTableSizeInBytes as usize;
        // CAST: an entry has 16 bytes at most.
        let entry = bytes / self.manager.caps.mmu.as_ref().map_or(1, |mmu| mmu.entries(0)).max(1) as usize;
        let mut tables = BTreeMap::new();
        for piece in pieces {
            let (source, destination) = (piece.source.kernel_address(), piece.destination.kernel_address());
            if source == 0 || destination == 0 {
                return BTreeMap::new();
            }
            let load = |address| crate::port::raw::bytes_at(address, bytes);
            let from = tables.get(&source).cloned().unwrap_or_else(|| load(source));
            let to = tables.entry(destination).or_insert_with(|| load(destination));
            let [first, second, count] =
                [piece.first, piece.second, piece.count].map(|entries| entries as usize * entry);
            to[second..second + count].copy_from_slice(&from[first..first + count]);
        }
        tables
    }
}

/// Entries of one table that are copied to one table.
struct Piece {
    source: TableMemory,
    first: u64,
    destination: TableMemory,
    second: u64,
    count: u64,
}
