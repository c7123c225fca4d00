//! A host of vectors, page tables built by hand, and engines that the test steps.
#![expect(unsafe_code, reason = "the test host hands out memory as the real ones do")]
#![allow(dead_code, reason = "each test binary uses its part")]

use gpu_engine::address_space::{Root, Roots};
use gpu_engine::context::{Context, Process};
use gpu_engine::engine::{Engine, Step};
use gpu_engine::fence::Fence;
use gpu_engine::fence_log::{Barriers, HEADER_SIZE};
use gpu_engine::gpu::{Gpu, Setup};
use gpu_engine::host::{Host, Lock, Unmapped};
use gpu_engine::memory::{Mapping, SharedWord, Span};
use gpu_engine::monitored::MonitoredFences;
use gpu_engine::notice::Notice;
use gpu_engine::packet_context::PacketContext;
use gpu_engine::queue::{Binding, ParkedFence, Queue};
use gpu_engine::schedule::Turns;
use gpu_engine::shared::Shared;
use gpu_engine::slots::SlotId;
use gpu_engine::word::{Ordering, Word};
use gpu_wire::doorbell::Model;
use gpu_wire::packet::{Encoded, Privilege};
use gpu_wire::pte::{self, Place, Pte};
use gpu_wire::ring::Geometry;
use gpu_wire::{GpuVa, NodeOrdinal, PAGE_SIZE};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

pub struct TestLock<T>(Mutex<T>);
thread_local! {
    /// Locks that the calling thread has taken.
    static SECTIONS: Cell<u64> = const { Cell::new(0) };
}

/// How many locks the calling thread takes in `f`.
pub fn sections(f: impl FnOnce()) -> u64 {
    let before = SECTIONS.get();
    f();
    SECTIONS.get() - before
}

impl<T: Send> Lock<T> for TestLock<T> {
    fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        SECTIONS.set(SECTIONS.get() + 1);
        f(&mut self.0.lock().unwrap())
    }
}

/// Pages: a leaked, page-aligned block.
struct Pages {
    base: *mut u8,
    count: u64,
}
// SAFETY: raw shared memory.
unsafe impl Send for Pages {}
// SAFETY: raw shared memory.
unsafe impl Sync for Pages {}

impl Pages {
    fn new(count: u64) -> Self {
        // A page more, and the first whole one is taken: an allocator that is asked for the alignment stores the zeros
        // itself, and each of the many machines of these tests has all of its memory then, touched or not.
        let layout = std::alloc::Layout::from_size_align(((count + 1) * PAGE_SIZE) as usize, 8).unwrap();
        // SAFETY: the layout is not empty; the block is never freed.
        let block = unsafe { std::alloc::alloc_zeroed(layout) };
        assert!(!block.is_null());
        let base = block.map_addr(|at| at.next_multiple_of(PAGE_SIZE as usize));
        Self { base, count }
    }
    fn span(&self, page: u64) -> Option<Span<'static>> {
        let left = self.count.checked_sub(page).filter(|n| *n > 0)?;
        // SAFETY: `page` is below the block's number of pages.
        let at = unsafe { self.base.add((page * PAGE_SIZE) as usize) };
        // SAFETY: inside the leaked block.
        Some(unsafe { Span::new(at, left * PAGE_SIZE) })
    }
}

pub struct TestMapping {
    base: *mut u8,
    len: u64,
    ordered: bool,
    live: Arc<AtomicU64>,
}
// SAFETY: raw shared memory.
unsafe impl Send for TestMapping {}
// SAFETY: the block is leaked, so mapped for ever.
unsafe impl Mapping for TestMapping {
    fn base(&self) -> *mut u8 {
        self.base
    }
    fn len(&self) -> u64 {
        self.len
    }
    fn is_ordered(&self) -> bool {
        self.ordered
    }
}
impl Drop for TestMapping {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The host.
pub struct TestHost {
    system: Pages,
    local: Pages,
    /// The next reading.
    pub clock: AtomicU64,
    /// By how much it is more than the last: 1, unless a test says otherwise.
    pub tick: AtomicU64,
    /// Readings in a second.
    frequency: u64,
    pub mappings: Arc<AtomicU64>,
    /// What the engines asked to map: frames, and whether for writing.
    pub asked: Mutex<Vec<(Vec<u64>, bool)>>,
    /// How many of the next requests to map succeed before one fails for want of memory, and then all again.
    pub until_failure: Mutex<Option<u64>>,
    /// How many mappings there may be at once.
    pub places: AtomicU64,
    /// What happens when an engine next asks for a mapping.
    pub on_map: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// What happens behind a request to map that fails.
    pub on_failure: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// What happens whenever an engine asks for a mapping.
    pub on_each_map: Mutex<Option<Box<dyn FnMut() + Send>>>,
    /// What happens whenever the clock is read.
    pub on_clock: Mutex<Option<Box<dyn FnMut() + Send>>>,
    /// The interrupt routine, on another processor that is fast: it has run when the interrupt is raised.
    pub on_interrupt: Mutex<Option<Box<dyn Fn() + Send>>>,
    /// Pages are not cached.
    pub uncached: AtomicBool,
    pub interrupts: Arc<AtomicU64>,
    pub refuse_interrupts: Arc<AtomicBool>,
    pub kicks: Arc<AtomicU64>,
    /// How often an engine has said that it served flushes.
    pub flushes: Arc<AtomicU64>,
}

impl Host for TestHost {
    type Lock<T: Send> = TestLock<T>;
    type Word = AtomicU64;
    type Mapping = TestMapping;
    fn word(value: u64) -> AtomicU64 {
        AtomicU64::new(value)
    }
    fn map_system(&self, frames: &[u64], write: bool) -> Result<TestMapping, Unmapped> {
        self.asked.lock().unwrap().push((frames.to_vec(), write));
        if let Some(happens) = &mut *self.on_each_map.lock().unwrap() {
            happens();
        }
        // Taken out first: what happens may say what is to happen at the next one.
        let happens = self.on_map.lock().unwrap().take();
        if let Some(happens) = happens {
            happens();
        }
        if self.mappings.load(Ordering::Relaxed) >= self.places.load(Ordering::Relaxed) {
            return Err(Unmapped::NoMemory);
        }
        let mut left = self.until_failure.lock().unwrap();
        if *left == Some(0) {
            *left = None;
            drop(left);
            if let Some(happens) = self.on_failure.lock().unwrap().take() {
                happens();
            }
            return Err(Unmapped::NoMemory);
        }
        *left = left.map(|left| left - 1);
        let run = frames.windows(2).take_while(|w| w[1] == w[0] + 1).count() as u64 + 1;
        let span = self.system.span(frames[0]).ok_or(Unmapped::NotMemory)?;
        let len = (run * PAGE_SIZE).min(span.len());
        self.mappings.fetch_add(1, Ordering::Relaxed);
        let ordered = !self.uncached.load(Ordering::Relaxed);
        // SAFETY: inside the leaked block.
        let base = unsafe { self.system.base.add((frames[0] * PAGE_SIZE) as usize) };
        Ok(TestMapping { base, len, ordered, live: self.mappings.clone() })
    }
    fn local(&self, page: u64) -> Option<Span<'static>> {
        self.local.span(page)
    }
    fn clock(&self) -> u64 {
        let happens = self.on_clock.lock().unwrap().take();
        if let Some(mut happens) = happens {
            happens();
            *self.on_clock.lock().unwrap() = Some(happens);
        }
        self.clock.fetch_add(self.tick.load(Ordering::Relaxed), Ordering::Relaxed)
    }
    fn clock_frequency(&self) -> u64 {
        self.frequency
    }
    fn flushed(&self, _node: NodeOrdinal) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }
    fn kick(&self, _node: NodeOrdinal) {
        self.kicks.fetch_add(1, Ordering::Relaxed);
    }
    fn raise_interrupt(&self, _node: NodeOrdinal) -> bool {
        if self.refuse_interrupts.load(Ordering::Relaxed) {
            return false;
        }
        self.interrupts.fetch_add(1, Ordering::Relaxed);
        if let Some(routine) = &*self.on_interrupt.lock().unwrap() {
            routine();
        }
        true
    }
}

/// A GPU with stepped engines, one user process, and a frame allocator.
pub struct Rig {
    pub gpu: Shared<Gpu<TestHost>>,
    pub engines: Vec<Engine<TestHost>>,
    pub process: Shared<Process<TestHost>>,
    /// The address space of the process's contexts.
    pub context: Shared<PacketContext<TestHost>>,
    /// That of the paging process.
    pub paging_context: Shared<PacketContext<TestHost>>,
    next_frame: u64,
    next_va: u64,
}

/// A mapped range: its GPU address and its bytes.
#[derive(Clone, Copy)]
pub struct Range {
    pub va: GpuVa,
    pub bytes: Span<'static>,
}

impl Range {
    pub fn word(&self, offset: u64) -> SharedWord<'static> {
        self.bytes.word(offset).unwrap()
    }
    pub fn read(&self, offset: u64) -> u64 {
        self.word(offset).load(Ordering::SeqCst)
    }
    pub fn at(&self, offset: u64) -> GpuVa {
        GpuVa(self.va.0 + offset)
    }
}

/// A fence with both values mapped.
pub struct TestFence {
    pub current: Range,
    pub monitored: Range,
    pub fence: Shared<ParkedFence<TestHost>>,
}

/// A user-mode queue with its ring.
pub struct TestQueue {
    pub queue: Shared<Queue<TestHost>>,
    pub ring: Range,
    pub control: Range,
    /// Where its progress fence lies. No native fence is open there, but where the test opened one.
    pub progress: Range,
    pub geometry: Geometry,
    pub doorbell: usize,
    pub doorbell_page: Span<'static>,
    pub wp: u64,
    pub waits: Span<'static>,
    pub signals: Span<'static>,
}

impl TestQueue {
    /// Appends packets and publishes, without ringing.
    pub fn publish(&mut self, packets: &[Encoded]) {
        for p in packets {
            let bytes = p.as_bytes();
            let spans = self.geometry.spans(self.wp, bytes.len() as u64);
            let (a, b) = bytes.split_at(spans.first_len as usize);
            self.ring.bytes.part(spans.first, u64::MAX).write(a);
            self.ring.bytes.write(b);
            self.wp += bytes.len() as u64;
        }
        self.control.word(0).store(self.wp, Ordering::Release);
    }
    pub fn ring(&self) {
        let (page, value) = self.bell();
        page.word(0).unwrap().store(value, Ordering::Release);
    }
    /// The doorbell's page, and what a ring stores there.
    pub fn bell(&self) -> (Span<'static>, u64) {
        let token = gpu_engine::gpu::token(self.queue.slot);
        (self.doorbell_page, gpu_wire::doorbell::value(token, self.wp))
    }
    pub fn submit(&mut self, packets: &[Encoded]) {
        self.publish(packets);
        self.ring();
    }
    pub fn read_pointer(&self) -> u64 {
        self.control.read(gpu_wire::ring::READ_POINTER as u64)
    }
    pub fn fault(&self) -> Option<gpu_wire::packet::FaultKind> {
        gpu_wire::packet::FaultKind::from_raw(self.control.read(gpu_wire::ring::FAULT_KIND as u64) as u32)
    }
}

pub const DOORBELLS: usize = 4;

thread_local! {
    /// The mutation of the GPUs that this thread makes; 0: none.
    pub static MUTATION: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    /// The frequency of their clocks.
    static FREQUENCY: Cell<u64> = const { Cell::new(COARSE) };
}

/// A clock that does not tell the time of one submission from that of another.
const COARSE: u64 = 10_000_000;

impl Rig {
    pub fn new() -> Self {
        Self::with(Model::Dedicated, false)
    }

    pub fn with(model: Model, names_queues: bool) -> Self {
        Self::build(model, names_queues, MonitoredFences::default(), true)
    }

    /// Engines that come off a command buffer only where it ends.
    pub fn without_preemption() -> Self {
        Self::build(Model::Dedicated, false, MonitoredFences::default(), false)
    }

    pub fn with_monitored_fences(monitored: MonitoredFences) -> Self {
        Self::build(Model::Dedicated, false, monitored, true)
    }

    /// With a clock that tells the time of one submission from that of another.
    pub fn with_fine_clock() -> Self {
        FREQUENCY.set(1_000_000_000);
        let rig = Self::new();
        FREQUENCY.set(COARSE);
        rig
    }

    fn build(model: Model, names_queues: bool, monitored: MonitoredFences, preempts_in_buffers: bool) -> Self {
        let host = TestHost {
            system: Pages::new(8192),
            local: Pages::new(1024),
            clock: AtomicU64::new(1),
            tick: AtomicU64::new(1),
            frequency: FREQUENCY.get(),
            mappings: Arc::default(),
            asked: Mutex::default(),
            until_failure: Mutex::default(),
            places: AtomicU64::new(u64::MAX),
            on_map: Mutex::default(),
            on_failure: Mutex::default(),
            on_each_map: Mutex::default(),
            on_clock: Mutex::default(),
            on_interrupt: Mutex::default(),
            uncached: AtomicBool::default(),
            interrupts: Arc::default(),
            refuse_interrupts: Arc::default(),
            kicks: Arc::default(),
            flushes: Arc::default(),
        };
        let doorbells: Vec<_> =
            (1..=DOORBELLS as u64).map(|p| host.system.span(p).unwrap().part(0, PAGE_SIZE)).collect();
        let setup = Setup {
            model,
            doorbells: &doorbells,
            barriers: Barriers::Two,
            names_queues,
            monitored,
            preempts_in_buffers,
        };
        let gpu = Shared::try_new(Gpu::new(host, &setup).unwrap()).unwrap();
        gpu.mutation.set(MUTATION.get());
        let engines = (0..3).map(|n| Engine::new(gpu.clone(), n).unwrap()).collect();
        let process = |privilege| {
            let slot = gpu.slots.allocate(0x1000).unwrap();
            let fences = gpu_engine::fence_table::FenceTable::new();
            let (number, roots) = (gpu.new_space_id(), Roots::new());
            Shared::try_new(Process { number, slot, roots, fences, privilege, turns: Turns::default() }).unwrap()
        };
        let (process, paging) = (process(Privilege::User), process(Privilege::Paging));
        let context = Shared::try_new(PacketContext::new(process.clone(), 0x77).unwrap()).unwrap();
        let paging_context = Shared::try_new(PacketContext::new(paging, 0x78).unwrap()).unwrap();
        let mut rig = Self { gpu, engines, process, context, paging_context, next_frame: 16, next_va: 0x10_0000 };
        for context in [rig.context.clone(), rig.paging_context.clone()] {
            let root = rig.root();
            context.space.set_root(Some(root), rig.gpu.new_space_id());
        }
        rig
    }

    /// An empty root table.
    pub fn root(&mut self) -> Root {
        Root { place: Place::System(self.frame()), entries: pte::ENTRIES }
    }

    /// A further address space of the process, with a root of its own.
    pub fn another_context(&mut self) -> Shared<PacketContext<TestHost>> {
        let context = Shared::try_new(PacketContext::new(self.process.clone(), 0x79).unwrap()).unwrap();
        context.space.set_root(Some(self.root()), self.gpu.new_space_id());
        context
    }

    pub fn frame(&mut self) -> u64 {
        self.next_frame += 1;
        self.next_frame
    }

    pub fn entry(&self, table: Place, index: u32) -> SharedWord<'static> {
        let Place::System(frame) = table else { panic!("tables are in system memory") };
        self.gpu.host.system.span(frame).unwrap().word(u64::from(index) * 8).unwrap()
    }

    /// The leaf table for `va`, made if need be.
    pub fn leaf_table(&mut self, context: &PacketContext<TestHost>, va: GpuVa) -> Place {
        let mut place = context.space.root().unwrap().place;
        for level in (1..pte::LEVELS).rev() {
            let word = self.entry(place, pte::index(va, level));
            place = match Pte(word.load(Ordering::SeqCst)).as_table() {
                Some(next) => next,
                None => {
                    let next = Place::System(self.frame());
                    word.store(Pte::table(next).unwrap().0, Ordering::SeqCst);
                    next
                }
            };
        }
        place
    }

    pub fn map_at(&mut self, context: &PacketContext<TestHost>, va: GpuVa, place: Place, read_only: bool) {
        let table = self.leaf_table(context, va);
        let word = self.entry(table, pte::index(va, 0));
        word.store(Pte::leaf(place, read_only).unwrap().0, Ordering::SeqCst);
    }

    /// Maps `pages` fresh system pages.
    pub fn map(&mut self, pages: u64, read_only: bool) -> Range {
        let context = self.context.clone();
        let va = GpuVa(self.next_va);
        self.next_va += (pages + 1) * PAGE_SIZE;
        let first = self.next_frame + 1;
        self.next_frame += pages;
        for i in 0..pages {
            self.map_at(&context, GpuVa(va.0 + i * PAGE_SIZE), Place::System(first + i), read_only);
        }
        let bytes = self.gpu.host.system.span(first).unwrap().part(0, pages * PAGE_SIZE);
        Range { va, bytes }
    }

    /// Maps `pages` of the local segment from page `first`.
    pub fn map_local(&mut self, first: u64, pages: u64) -> Range {
        let context = self.context.clone();
        let va = GpuVa(self.next_va);
        self.next_va += (pages + 1) * PAGE_SIZE;
        for i in 0..pages {
            self.map_at(&context, GpuVa(va.0 + i * PAGE_SIZE), Place::Local(first + i), false);
        }
        let bytes = self.gpu.host.local.span(first).unwrap().part(0, pages * PAGE_SIZE);
        Range { va, bytes }
    }

    /// The first frame of a range of system pages.
    pub fn frame_of(&self, range: Range) -> u64 {
        let offset = range.bytes.as_ptr().addr() - self.gpu.host.system.base.addr();
        offset as u64 / PAGE_SIZE
    }

    pub fn fence(&mut self) -> TestFence {
        let (current, monitored) = (self.map(1, false), self.map(1, true));
        monitored.word(0).store(u64::MAX, Ordering::SeqCst);
        let slot = self.gpu.slots.allocate(0xF000 + u64::from(self.next_frame as u32)).unwrap();
        let fence = Shared::try_new(Fence::new(slot, false)).unwrap();
        self.process.fences.open(current.va, monitored.va, &fence).unwrap();
        TestFence { current, monitored, fence }
    }

    pub fn context(&self, node: usize) -> Shared<Context<TestHost>> {
        let member = self.gpu.admit(node).unwrap();
        let slot = self.gpu.slots.allocate(0xC000).unwrap();
        let context = Context::new(member, slot, node, self.process.clone());
        context.space.set_root(self.context.space.root(), self.gpu.new_space_id());
        Shared::try_new(context).unwrap()
    }

    /// A connected user-mode queue on `node`, on doorbell `doorbell`.
    pub fn queue(&mut self, node: usize, doorbell: usize) -> TestQueue {
        let context = self.context(node);
        self.queue_of(&context, doorbell)
    }

    pub fn queue_of(&mut self, context: &Shared<Context<TestHost>>, doorbell: usize) -> TestQueue {
        self.queue_on(context, doorbell, None)
    }

    /// The same, with its progress fence at `progress`.
    pub fn queue_on(
        &mut self,
        context: &Shared<Context<TestHost>>,
        doorbell: usize,
        progress: Option<Range>,
    ) -> TestQueue {
        let member = self.gpu.admit(context.node).unwrap();
        let slot = self.gpu.slots.allocate(0xA000).unwrap();
        let (ring, control) = (self.map(1, false), self.map(1, false));
        let progress = progress.unwrap_or_else(|| self.map(1, false));
        let queue =
            Shared::try_new(Queue::new(member, slot, context.clone(), true, progress.va, true).unwrap()).unwrap();
        let geometry = Geometry::new(4096).unwrap();
        queue.bind(Some(Binding { ring: ring.va, control: control.va, geometry }));
        let logs = [self.frame(), self.frame()].map(|f| self.gpu.host.system.span(f).unwrap().part(0, PAGE_SIZE));
        queue.waits.with(|l| l.set(logs[0], 84)).unwrap();
        queue.signals.with(|l| l.set(logs[1], 84)).unwrap();
        let page = self.gpu.host.system.span(doorbell as u64 + 1).unwrap().part(0, PAGE_SIZE);
        match self.gpu.doorbells.model {
            Model::Dedicated => self.gpu.doorbells.connect(doorbell, &queue, true),
            Model::Global => self.gpu.global.connect(&queue, slot.pack(), true).unwrap(),
        }
        self.gpu.make_ready(&queue);
        TestQueue {
            queue,
            ring,
            control,
            progress,
            geometry,
            doorbell,
            doorbell_page: page,
            wp: 0,
            waits: logs[0],
            signals: logs[1],
        }
    }

    /// Steps every engine until all are idle, and none leaves out looks; the number of steps.
    pub fn settle(&mut self) -> u32 {
        let mut n = 0;
        loop {
            let mut worked = false;
            for engine in &mut self.engines {
                let step = engine.step();
                worked |= matches!(step, Step::Worked | Step::Waiting) || engine.is_resting();
            }
            n += 1;
            if !worked {
                return n;
            }
            assert!(n < 100_000, "engines never settle");
        }
    }

    /// Steps every engine until it looks at doorbells again, and not at the write pointer of the queue that ran last.
    pub fn cool(&mut self) {
        for _ in 0..600 {
            for engine in &mut self.engines {
                engine.step();
            }
        }
    }

    /// Steps every engine some times, although one waits for room in its mailbox.
    pub fn settle_waiting(&mut self) {
        for _ in 0..1000 {
            for engine in &mut self.engines {
                engine.step();
            }
        }
    }

    /// Plays the interrupt routine: what is reported, by node.
    pub fn drain(&self) -> Vec<(usize, Notice)> {
        let mut all = Vec::new();
        for node in 0..3 {
            self.gpu.drain(node, |n| all.push((node, n)));
        }
        all
    }

    pub fn interrupts(&self) -> u64 {
        self.gpu.host.interrupts.load(Ordering::Relaxed)
    }
}

/// Position word, then entry `i`: value, handle|operation, observed, end.
pub fn log_entry(log: Span<'static>, i: u64) -> [u64; 4] {
    let at = HEADER_SIZE + i * 48;
    [0, 8, 24, 40].map(|o| log.word(at + o).unwrap().load(Ordering::SeqCst))
}

pub fn log_position(log: Span<'static>) -> (u32, u32) {
    let w = log.word(0).unwrap().load(Ordering::SeqCst);
    (w as u32, (w >> 32) as u32)
}

pub fn log(operation: u32, value: u64, hint: u32) -> Encoded {
    gpu_wire::packet::Log { fence_handle: 0x40, operation, value, index_hint: hint, reserved: 0 }.to_packet()
}

pub const NO_SLOT: SlotId = SlotId { index: u32::MAX, generation: 0 };
