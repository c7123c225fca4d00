//! VidMm: memory of one adapter. Segments, page tables, address spaces, allocations and their residency.
//!
//! Everything that needs the paging node is a job of one worker thread per adapter. A job that is posted later is done
//! later; so a paging queue's fence, signaled by a job behind its operations, says that they are done.

pub(crate) mod allocation;
pub(crate) mod backing;
pub(crate) mod completion;
pub(crate) mod fence;
pub(crate) mod page_table;
pub(crate) mod pages;
pub(crate) mod paging;
pub(crate) mod residency;
mod segment;
pub(crate) mod space;
pub(crate) mod va;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use nt_model::{CacheType, PageKind, PageObject, Thread};

use crate::memory::fence::segments::FenceSegments;
use crate::port::alive::make_room;
use crate::port::caps::Caps;
use crate::port::miniport::Miniport;
use crate::port::personality::Neighbour;
use crate::port::sync::{Lock, Rank, Signal};
use allocation::Allocation;
use page_table::{Purpose, TableMemory};
use pages::PagePool;
use paging::{Op, Pager, PagingError};
use segment::SegmentSpace;
use space::{AddressSpace, Content};
use va::{PAGE, Protection, Use, Wanted};

/// Work of the paging worker.
pub(crate) type Job = Box<dyn FnOnce(&Arc<Miniport>, &Arc<Manager>) + Send>;

/// VidMm of an adapter: nothing until it is started.
#[derive(Debug)]
pub(crate) struct VidMm {
    manager: Lock<Option<Arc<Manager>>>,
    system_context: AtomicUsize,
}

/// Replaces the root of a space by the change, and has each context of its process follow. Returns whether that was
/// done; if not, nothing has changed. On the paging worker. IRQL: PASSIVE_LEVEL.
pub(crate) type ReplaceRoot = fn(&Arc<Miniport>, &AddressSpace, Box<dyn FnOnce(&AddressSpace) + Send>) -> bool;

/// What the layers above do for VidMm.
#[derive(Clone, Copy)]
pub(crate) struct Hooks {
    /// An allocation has moved: what processes have locked of it is mapped anew.
    pub(crate) moved: fn(&Arc<Miniport>, &Arc<Allocation>),
    /// Has contexts follow another root.
    pub(crate) replace_root: ReplaceRoot,
    /// Submits a paging buffer.
    pub(crate) submit: paging::Submit,
    /// Ends every paging buffer as lost: the driver does not.
    pub(crate) give_up: fn(&Miniport),
}

/// VidMm of a started adapter.
pub(crate) struct Manager {
    pub(crate) caps: Arc<Caps>,
    pub(crate) pool: PagePool,
    pub(crate) pager: Pager,
    segments: Lock<Vec<SegmentSpace>>,
    /// The space of the paging process.
    system: Lock<Option<Arc<AddressSpace>>>,
    /// Spaces of processes.
    spaces: Lock<Vec<Weak<AddressSpace>>>,
    hooks: OnceLock<Hooks>,
    /// CPU mappings of memory that segments lie in, by the object's number.
    segment_maps: Lock<BTreeMap<u64, (Arc<PageObject>, usize)>>,
    jobs: Lock<VecDeque<Job>>,
    changed: Signal,
    stopping: AtomicBool,
    running: AtomicBool,
    /// Page tables of processes have lost their content, and a job that makes them anew is in the list.
    pub(crate) tables_are_lost: AtomicBool,
    thread: Lock<Option<Arc<Thread>>>,
    dummy: Lock<Option<pages::Page>>,
    /// A page that nobody keeps in memory: see [`Neighbour::Unlocked`].
    stranger: Lock<Option<Arc<PageObject>>>,
    /// The driver's handle of the process that was destroyed last, as a number.
    gone_process: AtomicUsize,
    /// Pages of fence values in segments: segment, address.
    pub(crate) value_pages: Lock<BTreeSet<(u32, u64)>>,
    /// Where the driver wants values of native fences.
    pub(crate) fence_segments: FenceSegments,
}

impl std::fmt::Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manager").finish_non_exhaustive()
    }
}

impl Default for VidMm {
    fn default() -> Self {
        Self::new()
    }
}

impl VidMm {
    /// That of an adapter.
    pub(crate) fn of(adapter: &Miniport) -> &Self {
        adapter.extension()
    }

    fn new() -> Self {
        Self { manager: Lock::new(Rank::Leaf, None), system_context: AtomicUsize::new(0) }
    }

    /// The manager of a started adapter.
    pub(crate) fn manager(&self) -> Option<Arc<Manager>> {
        self.manager.lock().clone()
    }

    /// The driver's handle of the system context; 0 before there is one.
    pub(crate) fn system_context(&self) -> usize {
        self.system_context.load(Ordering::Acquire)
    }

    /// Makes the manager of an adapter that starts.
    pub(crate) fn start(&self, adapter: &Arc<Miniport>, caps: &Arc<Caps>) -> Arc<Manager> {
        let kernel = adapter.kernel();
        let manager = Arc::new(Manager {
            caps: caps.clone(),
            pool: PagePool::new(
                kernel,
                adapter.personality().contiguous_pages,
                adapter.personality().combined_pages.then_some(CacheType::WriteCombined),
            ),
            pager: Pager::new(
                adapter.personality().faults.paging_buffer_size.unwrap_or(caps.paging_buffer_size) as usize
            ),
            segments: Lock::new(Rank::Leaf, caps.segments.iter().map(|segment| SegmentSpace::new(*segment)).collect()),
            system: Lock::new(Rank::Leaf, None),
            spaces: Lock::new(Rank::Registry, Vec::new()),
            hooks: OnceLock::new(),
            segment_maps: Lock::new(Rank::Registry, BTreeMap::new()),
            jobs: Lock::new(Rank::Leaf, VecDeque::new()),
            changed: Signal::new(),
            stopping: AtomicBool::new(false),
            running: AtomicBool::new(false),
            tables_are_lost: AtomicBool::new(false),
            thread: Lock::new(Rank::Leaf, None),
            dummy: Lock::new(Rank::Leaf, None),
            stranger: Lock::new(Rank::Leaf, None),
            gone_process: AtomicUsize::new(0),
            value_pages: Lock::new(Rank::Leaf, BTreeSet::new()),
            fence_segments: FenceSegments::ask(adapter, caps),
        });
        *self.manager.lock() = Some(manager.clone());
        manager
    }

    /// The driver's handle of the system context is this; 0: it goes.
    pub(crate) fn set_system_context(&self, driver: usize) {
        self.system_context.store(driver, Ordering::Release);
    }

    /// Everything is gone that it managed.
    pub(crate) fn forget(&self, adapter: &Miniport) {
        let Some(manager) = self.manager() else { return };
        manager.pager.clear();
        let maps = std::mem::take(&mut *manager.segment_maps.lock());
        for (_, address) in maps.into_values() {
            adapter.kernel().unmap_for_model(address);
        }
        let old = self.manager.lock().take();
        drop(old);
    }
}

impl Manager {
    /// Starts the paging worker.
    pub(crate) fn begin(self: &Arc<Self>, adapter: &Arc<Miniport>) {
        self.running.store(true, Ordering::Release);
        let (weak, worker) = (Arc::downgrade(adapter), self.clone());
        let thread = adapter.kernel().spawn_system_thread("VidMm worker", move || worker.work(&weak));
        *self.thread.lock() = Some(thread);
    }

    /// Ends the paging worker. Processes have left the adapter before.
    pub(crate) fn end(&self, adapter: &Miniport) {
        self.stopping.store(true, Ordering::Release);
        self.changed.notify(adapter.kernel());
        let stranger = self.stranger.lock().take();
        if let Some(stranger) = stranger {
            adapter.kernel().free_pages(&stranger);
        }
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            adapter.kernel().wait_for_object(thread.header(), None);
        }
        self.running.store(false, Ordering::Release);
    }

    /// The worker has been started: tables of the paging process change through the GPU.
    pub(crate) fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire)
    }

    /// The space of the paging process.
    pub(crate) fn system(&self) -> Option<Arc<AddressSpace>> {
        self.system.lock().clone()
    }

    /// The paging process has this space; `None`: it goes.
    pub(crate) fn set_system(&self, space: Option<&Arc<AddressSpace>>) {
        let old = std::mem::replace(&mut *self.system.lock(), space.cloned());
        drop(old);
    }

    /// Spaces of processes, whose page tables show where allocations lie.
    pub(crate) fn spaces(&self) -> Vec<Arc<AddressSpace>> {
        self.spaces.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Enters the space of a process.
    pub(crate) fn add_space(&self, space: &Arc<AddressSpace>) {
        let mut spaces = self.spaces.lock();
        make_room(&mut spaces);
        spaces.push(Arc::downgrade(space));
    }

    /// Takes the space of a process out.
    pub(crate) fn remove_space(&self, space: &Arc<AddressSpace>) {
        self.spaces.lock().retain(|other| !core::ptr::eq(other.as_ptr(), Arc::as_ptr(space)));
    }

    /// The layers above enter what they do for VidMm.
    pub(crate) fn set_hooks(&self, hooks: Hooks) {
        self.hooks.get_or_init(|| hooks);
    }

    /// What the layers above do for it; nothing before the paging process is made.
    pub(crate) fn hooks(&self) -> Option<&Hooks> {
        self.hooks.get()
    }

    /// An allocation has moved: what the CPU has mapped of it follows.
    pub(crate) fn moved(&self, adapter: &Arc<Miniport>, allocation: &Arc<Allocation>) {
        if let Some(hooks) = self.hooks() {
            (hooks.moved)(adapter, allocation);
        }
    }

    fn work(self: &Arc<Self>, adapter: &std::sync::Weak<Miniport>) {
        loop {
            let Some(adapter) = adapter.upgrade() else { return };
            let next = self.changed.wait_for(adapter.kernel(), None, || {
                let job = self.jobs.lock().pop_front();
                match job {
                    Some(job) => Some(Some(job)),
                    None => self.stopping.load(Ordering::Acquire).then_some(None),
                }
            });
            match next.flatten() {
                Some(job) => job(&adapter, self),
                None => return,
            }
        }
    }

    /// Adds a job behind all others.
    pub(crate) fn post(&self, adapter: &Miniport, job: Job) {
        self.enqueue(job);
        self.wake(adapter);
    }

    /// Adds a job before all others.
    pub(crate) fn post_first(&self, adapter: &Miniport, job: Job) {
        self.jobs.lock().push_front(job);
        self.wake(adapter);
    }

    /// [`post`](Self::post) in two steps, for whoever holds a lock over the first.
    pub(crate) fn enqueue(&self, job: Job) {
        self.jobs.lock().push_back(job);
    }

    pub(crate) fn wake(&self, adapter: &Miniport) {
        self.changed.notify(adapter.kernel());
    }

    /// Does something on the worker, behind all jobs, and waits for it. `None`: the machine has stopped.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn run_on_worker<R: Send + 'static>(
        &self,
        adapter: &Arc<Miniport>,
        f: impl FnOnce(&Arc<Miniport>, &Arc<Manager>) -> R + Send + 'static,
    ) -> Option<R> {
        let slot = Arc::new((Lock::new(Rank::Leaf, None), Signal::new()));
        let answer = slot.clone();
        self.post(
            adapter,
            Box::new(move |adapter, manager| {
                let result = f(adapter, manager);
                *answer.0.lock() = Some(result);
                answer.1.notify(adapter.kernel());
            }),
        );
        slot.1.wait_for(adapter.kernel(), None, || slot.0.lock().take())
    }

    /// Room in a segment: its address for the GPU, its offset.
    pub(crate) fn allocate_in_segment(&self, id: u32, size: u64, alignment: u64, from_end: bool) -> Option<(u64, u64)> {
        let mut segments = self.segments.lock();
        let segment = segments.iter_mut().find(|segment| segment.segment.id == id)?;
        let offset = segment.allocate(size, alignment, from_end)?;
        Some((segment.address(offset), offset))
    }

    /// Gives room back.
    pub(crate) fn free_in_segment(&self, id: u32, offset: u64) {
        if let Some(segment) = self.segments.lock().iter_mut().find(|segment| segment.segment.id == id) {
            segment.free(offset);
        }
    }

    /// Bytes in use of each segment, from 1.
    pub(crate) fn segment_usage(&self) -> Vec<(u32, u64, u64)> {
        let segments = self.segments.lock();
        segments.iter().map(|space| (space.segment.id, space.in_use(), space.segment.size())).collect()
    }

    /// Page frame by which the CPU reaches a byte of a segment.
    pub(crate) fn cpu_frame(&self, id: u32, offset: u64) -> Option<u64> {
        self.segments.lock().iter().find(|segment| segment.segment.id == id)?.cpu_frame(offset)
    }

    fn table_in_segment(&self, adapter: &Miniport, id: u32, bytes: u64, alignment: u64) -> Option<TableMemory> {
        let (address, offset) = self.allocate_in_segment(id, bytes, alignment, false)?;
        let kernel = self.kernel_address(adapter, id, offset).unwrap_or(0);
        Some(TableMemory::Segment { id, offset, address, kernel })
    }

    /// Where the kernel sees a byte of a CPU-visible segment.
    pub(crate) fn kernel_address(&self, adapter: &Miniport, id: u32, offset: u64) -> Option<usize> {
        let frame = self.cpu_frame(id, offset)?;
        let (object, index) = adapter.kernel().page_of_frame(frame)?;
        let within = index * nt_model::PAGE_SIZE + (offset % PAGE) as usize;
        let known = self.segment_maps.lock().get(&object.id()).map(|(_, address)| *address);
        let base = match known {
            Some(base) => base,
            None => {
                let base = adapter.kernel().map_for_model(&object)?;
                self.segment_maps.lock().insert(object.id(), (object, base));
                base
            }
        };
        Some(base + within)
    }

    /// Maps system pages into the paging process. On the paging worker, or before it runs.
    pub(crate) fn map_for_system(
        self: &Arc<Self>,
        adapter: &Arc<Miniport>,
        frames: Vec<u64>,
        protection: Protection,
    ) -> Result<u64, PagingError> {
        let addresses = frames.into_iter().map(|frame| frame * PAGE).collect();
        let wanted = Wanted { alignment: PAGE, ..Wanted::default() };
        self.show_to_system(adapter, Content::Pages { segment: 0, addresses, protection }, &wanted, Purpose::default())
    }

    /// Maps addresses of a segment (0: system memory) into the scratch area of the paging process. On the paging
    /// worker.
    pub(crate) fn map_scratch(
        self: &Arc<Self>,
        adapter: &Arc<Miniport>,
        segment: u32,
        addresses: Vec<u64>,
    ) -> Result<u64, PagingError> {
        let content = Content::Pages { segment, addresses, protection: Protection::READ_WRITE };
        self.show_to_system(adapter, content, &Wanted::default(), Purpose::default())
    }

    /// Maps pages into the paging process, where `wanted` says; its size is that of the content, and without a maximum
    /// they lie in the part that has tables from the start. On the paging worker, or before it runs.
    pub(crate) fn show_to_system(
        self: &Arc<Self>,
        adapter: &Arc<Miniport>,
        content: Content,
        wanted: &Wanted,
        purpose: Purpose,
    ) -> Result<u64, PagingError> {
        let none = PagingError::Driver(wddm_abi::ntstatus::STATUS_NO_MEMORY);
        let system = self.system().ok_or(none)?;
        let Content::Pages { addresses, .. } = &content else { return Err(none) };
        let pages = addresses.len() as u64;
        let tabled = system.paging_range(adapter);
        let (minimum, maximum) = match wanted.maximum {
            0 => (wanted.minimum.max(tabled.start), tabled.end),
            maximum => (wanted.minimum, maximum),
        };
        let wanted = Wanted { size: pages * PAGE, minimum, maximum, ..*wanted };
        let address = system.insert(&wanted, Use::System).ok_or(none)?;
        let set = system.set(adapter, self, address, pages, &content, purpose);
        if set.is_err() {
            system.with_ranges(|ranges| ranges.remove(address, 0));
        }
        set.map(|()| address)
    }

    /// Has the paging engine fill part of a segment with a pattern; `allocation`: the driver's handle of what lies
    /// there, or 0. On the paging worker.
    pub(crate) fn fill_segment(
        self: &Arc<Self>,
        adapter: &Arc<Miniport>,
        (id, address): (u32, u64),
        size: u64,
        allocation: usize,
        pattern: u32,
    ) -> Result<(), PagingError> {
        let addresses = (0..size / PAGE).map(|page| address + page * PAGE).collect();
        let destination = self.map_scratch(adapter, id, addresses)?;
        let filled = self.pager.run(adapter, &[Op::Fill { allocation, offset: 0, size, pattern, destination }]);
        self.unmap_for_system(adapter, destination, size / PAGE);
        filled
    }

    /// Address by which the GPU names a byte of an aperture.
    pub(crate) fn aperture_address(&self, id: u32, offset: u64) -> u64 {
        let segments = self.segments.lock();
        segments.iter().find(|segment| segment.segment.id == id).map_or(0, |segment| segment.address(offset))
    }

    /// Undoes [`show_to_system`](Self::show_to_system) and what calls it. On the paging worker.
    pub(crate) fn unmap_for_system(self: &Arc<Self>, adapter: &Arc<Miniport>, address: u64, pages: u64) {
        let Some(system) = self.system() else { return };
        let _ = system.set(adapter, self, address, pages, &Content::None, Purpose::default());
        system.with_ranges(|ranges| ranges.remove(address, 0));
    }

    /// Shows a page table to the paging process, for the GPU_VIRTUAL update mode.
    ///
    /// Chosen: by the CPU, as the tables of the paging process are initialized; the article has them prepared once.
    fn show_table(
        self: &Arc<Self>,
        adapter: &Arc<Miniport>,
        memory: &TableMemory,
        bytes: u64,
    ) -> Result<u64, PagingError> {
        let none = PagingError::Driver(wddm_abi::ntstatus::STATUS_NO_MEMORY);
        let system = self.system().ok_or(none)?;
        let pages = bytes.div_ceil(PAGE);
        let tabled = system.paging_range(adapter);
        let (minimum, maximum) = (tabled.start, tabled.end);
        let wanted = Wanted { size: pages * PAGE, minimum, maximum, alignment: PAGE, ..Wanted::default() };
        let address = system.insert(&wanted, Use::System).ok_or(none)?;
        let (segment, first) = memory.physical();
        let addresses = (0..pages).map(|page| first + page * PAGE).collect();
        let content = Content::Pages { segment, addresses, protection: Protection::READ_WRITE };
        let running = self.running.swap(false, Ordering::AcqRel);
        let set = system.set(adapter, self, address, pages, &content, Purpose::default());
        self.running.store(running, Ordering::Release);
        set.map(|()| address)
    }

    /// Physical address of what a neighbour names; `None` where there is no such thing.
    pub(crate) fn neighbour_address(&self, adapter: &Miniport, kind: Neighbour) -> Option<u64> {
        match kind {
            Neighbour::Registers => adapter.device.registers_address(),
            Neighbour::Behind => Some((adapter.kernel().highest_physical_address() / PAGE + 1) * PAGE),
            Neighbour::Unlocked => {
                let mut stranger = self.stranger.lock();
                if stranger.is_none() {
                    *stranger = adapter.kernel().allocate_pages(1, PageKind::User, 0);
                }
                stranger.as_ref().map(|object| object.frame(0) * PAGE)
            }
        }
    }

    /// The driver's handle of the process that was destroyed last, as a number; 0: none was.
    pub(crate) fn gone_process(&self) -> usize {
        self.gone_process.load(Ordering::Acquire)
    }

    /// The process with this handle of the driver's was destroyed.
    pub(crate) fn set_gone_process(&self, driver: usize) {
        self.gone_process.store(driver, Ordering::Release);
    }

    /// Address of a page that stands in for memory that is gone.
    pub(crate) fn dummy_address(&self) -> u64 {
        let known = self.dummy.lock().as_ref().map(pages::Page::frame);
        let frame = known.or_else(|| {
            let page = self.pool.allocate()?;
            let frame = page.frame();
            *self.dummy.lock() = Some(page);
            Some(frame)
        });
        frame.unwrap_or(0) * PAGE
    }
}

/// Waits until no page table is lost.
///
/// IRQL: PASSIVE_LEVEL, not on the paging worker.
pub(crate) fn wait_for_tables(adapter: &Arc<Miniport>) {
    if let Some(manager) = VidMm::of(adapter).manager()
        && manager.tables_are_lost.load(Ordering::Acquire)
    {
        manager.run_on_worker(adapter, |_, _| ());
    }
}
