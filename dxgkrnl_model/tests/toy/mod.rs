//! A minimal WDDM 3.2 driver with a GPU of its own, written from the documents: native, one thread per adapter.
//!
//! Node 0 is scheduled in hardware and takes work from doorbells and from the OS; node 1 is a copy node that takes
//! packets; a GPU address has three levels of nine bits. [`Toy::is`] asks for the one thing that this instance does
//! wrong.

mod caps;
mod commands;
mod doorbell;
mod features;
pub mod gpu;
mod idle;
mod interrupt;
mod late;
pub mod memory;
mod options;
mod paging;
mod queue;
mod reset;
mod scheduling;
pub mod start;
mod table;
mod testing;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use dxgkrnl_model::driver::Driver;
use nt_model::{Event, Thread};
pub use options::Options;
use wddm_abi::ntstatus::STATUS_INVALID_PARAMETER;
use wddm_abi::{DXGKRNL_INTERFACE, HANDLE, NTSTATUS};

/// Something that the GPU does some milliseconds later.
#[derive(Clone, Copy, Debug)]
pub enum Late {
    /// Reports a packet.
    Completed(u32),
    /// Answers a preemption: its id, and the last packet that was completed.
    Preempted(u32, u32),
    /// Stores to a GPU address.
    Store(Root, u64),
    /// Stores where a translation has led that it kept.
    StoreAt(usize),
}

/// A root page table: segment and address.
pub type Root = (u32, u64);

#[derive(Debug, Default)]
pub struct Context {
    /// Its engine's ordinal.
    pub engine: usize,
    pub os: u64,
    pub root: Option<Root>,
    pub suspended: bool,
    /// A suspension to be acknowledged.
    pub suspending: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub struct Work {
    pub address: u64,
    pub size: u64,
    pub at: u64,
    /// Progress value of a kernel-mode buffer.
    pub progress: u64,
    /// Ordinal of the engine that runs it.
    pub engine: usize,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Log {
    pub gpu: u64,
    pub system: u64,
    pub entries: u32,
    pub index: u32,
    pub wraps: u32,
}

#[derive(Debug, Default)]
pub struct Queue {
    pub context: usize,
    pub os: u64,
    pub work: VecDeque<Work>,
    pub current: Option<Work>,
    pub ring: u64,
    pub control: u64,
    pub read: u64,
    pub progress_gpu: u64,
    /// Handle of the native fence that counts its progress; 0: Dxgkrnl named none.
    pub progress_fence: usize,
    pub logs: [Log; 2],
    pub waiting_since: u64,
    pub faulted: bool,
}

#[derive(Debug, Default)]
pub struct Fence {
    pub os: u64,
    pub always: bool,
    pub system: (u64, u64),
    pub current: Vec<(usize, u64, u64)>,
}

#[derive(Debug, Default)]
pub struct Doorbell {
    pub queue: usize,
    pub os: u64,
    pub physical: Option<usize>,
    pub stamp: u64,
    /// What the physical doorbell said when the GPU looked last.
    pub seen: u64,
    /// The ring is to be looked at, until nothing is in it.
    pub rang: bool,
}

#[derive(Clone, Debug)]
pub struct Packet {
    pub fence: u32,
    pub context: usize,
    pub address: u64,
    pub size: u64,
    pub at: u64,
    pub paging: bool,
}

/// One engine: a physical adapter, with both nodes.
#[derive(Debug, Default)]
pub struct Engine {
    pub packets: VecDeque<Packet>,
    pub preempt: Option<u32>,
    pub completed: u32,
    /// Id of the last packet whose completion was reported.
    pub reported: u32,
    pub packet_hung: bool,
    pub node_hung: bool,
    /// Until when node 0 does nothing.
    pub rests: u64,
    pub running: usize,
    pub stopped: bool,
    pub notices: VecDeque<Notice>,
    pub scheduling: scheduling::Log,
}

/// Engines of a toy at most.
pub const ENGINES: usize = 2;

/// What an interrupt will say.
#[derive(Clone, Debug)]
pub enum Notice {
    /// The fence, and whether it is a paging packet.
    Completed(u32, bool),
    Preempted(u32, u32),
    Faulted(u32),
    PageFaulted(u32, u64),
    Native(Vec<u64>, usize),
    Monitored,
    QueueFaulted(u64, u64, u64),
    Suspended(u64, u64),
    ToF1,
    /// The scheduling log came to the entry that interrupts.
    Scheduling,
    /// The engine hangs, and is to be reset.
    Timeout,
    /// A vertical sync of no adapter, of a mutant.
    Vsync,
}

impl Notice {
    pub fn is_native(&self) -> bool {
        matches!(self, Self::Native(..))
    }
}

#[derive(Debug, Default)]
pub struct State {
    pub contexts: HashMap<usize, Context>,
    pub queues: HashMap<usize, Queue>,
    pub fences: HashMap<usize, Fence>,
    pub locals: HashMap<usize, usize>,
    pub doorbells: HashMap<usize, Doorbell>,
    pub allocations: HashMap<usize, u64>,
    /// Contiguous memory that the driver has for an allocation, by the allocation's handle.
    pub own_pages: HashMap<usize, usize>,
    /// Handles of allocations in devices, and the allocations.
    pub opened: HashMap<usize, usize>,
    /// A page of the last allocation that an entry named, for a mutant.
    pub last_frame: u64,
    /// A page that it keeps mapped: by address and MDL.
    pub kept: Option<(usize, nt_model::Mdl)>,
    /// The context that packets of the paging process are of which name none.
    pub system_context: usize,
    pub devices: HashMap<usize, usize>,
    /// By ordinal.
    pub engines: [Engine; ENGINES],
    pub stamp: u64,
    /// Milliseconds that a long packet has run.
    pub worked: u64,
    pub late: Vec<(u32, Late)>,
}

impl State {
    /// All that is to be reported.
    pub fn notices(&self) -> impl Iterator<Item = &Notice> {
        self.engines.iter().flat_map(|engine| &engine.notices)
    }

    /// Ordinal of the engine that a queue is on.
    pub fn engine_of(&self, queue: usize) -> usize {
        let context = self.queues.get(&queue).and_then(|queue| self.contexts.get(&queue.context));
        context.map_or(0, |context| context.engine)
    }

    /// The root of the process whose contexts the system pages with.
    pub fn paging_root(&self) -> Option<Root> {
        self.contexts.get(&self.system_context)?.root
    }
}

pub struct Toy {
    pub options: Options,
    pub handle: usize,
    pub interface: RwLock<Option<Box<DXGKRNL_INTERFACE>>>,
    pub registers: AtomicUsize,
    /// Whether the device is off the bus.
    pub gone: AtomicBool,
    /// Whether the device is in D3: notices wait for D0.
    pub asleep: AtomicBool,
    pub local: AtomicUsize,
    pub local_handle: AtomicUsize,
    pub local_physical: AtomicU64,
    pub doorbell_pages: Mutex<Vec<(usize, usize)>>,
    /// Physical address of the memory behind the device's second BAR, and where it is mapped; 0: it is not.
    pub bar: (AtomicU64, AtomicUsize),
    pub state: Mutex<State>,
    pub wake: Event,
    pub stop: AtomicBool,
    pub thread: Mutex<Option<Arc<Thread>>>,
    pub physical: gpu::Physical,
    pub features: Mutex<(bool, bool, bool)>,
    /// The OS has enabled kernel-mode testing.
    pub testing: AtomicBool,
    /// A kernel address of a fence value that the driver was told not to keep.
    pub kept: AtomicUsize,
    pub clock: AtomicU64,
    /// Keeps what it has to report of native fences for later.
    pub silent: AtomicBool,
    /// A mutant is at work on what its DPC uses.
    pub guarding: AtomicBool,
    /// The last time in a log entry.
    pub last_logged: AtomicU64,
    /// What went wrong on the GPU and is not the mutant's doing.
    pub errors: Mutex<Vec<String>>,
    pub counts: Mutex<HashMap<&'static str, u64>>,
}

// SAFETY: the interface holds Dxgkrnl's functions and handles, which any thread may use.
unsafe impl Send for Toy {}
// SAFETY: as above; everything else is behind locks and atomics.
unsafe impl Sync for Toy {}

/// Handles of every toy in the process: which toy they belong to.
static OWNERS: RwLock<Vec<(usize, Arc<Toy>)>> = RwLock::new(Vec::new());
/// The toy that the next AddDevice makes.
static NEXT_HANDLE: AtomicUsize = AtomicUsize::new(0x7000_0000);

/// A fresh handle.
pub fn fresh() -> usize {
    NEXT_HANDLE.fetch_add(16, Ordering::Relaxed)
}

/// A number as a handle.
pub fn raw(number: usize) -> HANDLE {
    core::ptr::with_exposed_provenance_mut(number)
}

/// A handle as a number.
pub fn number(handle: HANDLE) -> usize {
    handle.expose_provenance()
}

/// The toy that gave out `handle`.
pub fn owner(handle: HANDLE) -> Option<Arc<Toy>> {
    let handle = number(handle);
    let owners = OWNERS.read().unwrap_or_else(|error| error.into_inner());
    owners.iter().rev().find(|(known, _)| *known == handle).map(|(_, toy)| toy.clone())
}

/// The record that Dxgkrnl passed.
pub fn argument<'a, T>(pointer: *mut T) -> &'a mut T {
    // SAFETY: a DDI's record is valid and its own for the call.
    unsafe { &mut *pointer }
}

/// The record that Dxgkrnl passed for reading.
pub fn input<'a, T>(pointer: *const T) -> &'a T {
    // SAFETY: as in `argument`.
    unsafe { &*pointer }
}

/// An array that Dxgkrnl passed.
pub fn array<'a, T>(pointer: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: as in `argument`, with so many elements.
    unsafe { std::slice::from_raw_parts(pointer, count) }
}

/// Calls a function of DXGKRNL_INTERFACE.
macro_rules! callback {
    ($toy:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let function = $toy.interface.read().ok().and_then(|interface| interface.as_ref().and_then(|table| table.$name));
        // SAFETY: the function is Dxgkrnl's, and the arguments are what its page asks for, or a mutant's.
        function.map(|function| unsafe { function($($argument),*) })
    }};
}
pub(crate) use callback;

impl Toy {
    /// A driver with one kind of adapter.
    pub fn driver(options: Options) -> Driver {
        Driver::native("toy", move |start| table::entry(start, options))
    }

    /// The toy that was added last on this thread.
    pub fn last() -> Option<Arc<Self>> {
        LAST.with(|last| last.borrow_mut().take())
    }

    /// The one engine of an affinity.
    pub fn engine(&self, affinity: u32) -> usize {
        if self.options.engines == 1 {
            return 0;
        }
        let engine = affinity.trailing_zeros() as usize;
        if affinity.count_ones() != 1 || engine >= self.options.engines {
            self.error(format!("engine affinity {affinity:#x}"));
            return 0;
        }
        engine
    }

    /// Whether it does this wrong.
    pub fn is(&self, mutant: &str) -> bool {
        self.options.mutant == mutant
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|error| error.into_inner())
    }

    pub fn error(&self, text: String) {
        self.errors.lock().unwrap_or_else(|error| error.into_inner()).push(text);
    }

    pub fn count(&self, what: &'static str) {
        *self.counts.lock().unwrap_or_else(|error| error.into_inner()).entry(what).or_default() += 1;
    }

    /// How often something happened.
    pub fn counted(&self, what: &'static str) -> u64 {
        self.counts.lock().unwrap_or_else(|error| error.into_inner()).get(what).copied().unwrap_or(0)
    }

    /// Everything that happened.
    pub fn counted_all(&self) -> Vec<&'static str> {
        self.counts.lock().unwrap_or_else(|error| error.into_inner()).keys().copied().collect()
    }

    /// DXGKRNL_INTERFACE.DeviceHandle.
    pub fn device_handle(&self) -> HANDLE {
        let interface = self.interface.read().unwrap_or_else(|error| error.into_inner());
        interface.as_ref().map_or(raw(0), |interface| interface.DeviceHandle)
    }

    /// Gives out a handle of this toy.
    pub fn own(self: &Arc<Self>) -> usize {
        let handle = fresh();
        self.adopt(handle);
        handle
    }

    /// Gives out a handle of this toy in the place of Dxgkrnl's; the mutant leaves that where it is, and goes by it.
    pub fn own_for(self: &Arc<Self>, given: HANDLE, mutant: &str) -> usize {
        if !self.is(mutant) {
            return self.own();
        }
        self.adopt(number(given));
        number(given)
    }

    pub fn adopt(self: &Arc<Self>, handle: usize) {
        OWNERS.write().unwrap_or_else(|error| error.into_inner()).push((handle, self.clone()));
    }

    pub fn disown(&self, handle: usize) {
        OWNERS.write().unwrap_or_else(|error| error.into_inner()).retain(|(known, _)| *known != handle);
    }

    pub fn disown_all(&self) {
        let mine = |toy: &Toy| core::ptr::eq(toy, self);
        OWNERS.write().unwrap_or_else(|error| error.into_inner()).retain(|(_, toy)| !mine(toy));
    }

    /// Wakes the GPU.
    pub fn poke(&self) {
        nt_model::Machine::with_current(|machine| {
            if let Some(machine) = machine {
                machine.set_event(self.wake.as_kevent(), false);
            }
        });
    }
}

thread_local! {
    /// Options of the driver that the thread loads; AddDevice takes them.
    static LOADING: std::cell::Cell<Options> = std::cell::Cell::new(Options::default());
    /// The toy that AddDevice made last on this thread.
    static LAST: std::cell::RefCell<Option<Arc<Toy>>> = const { std::cell::RefCell::new(None) };
}

/// Notes the toy that AddDevice made.
pub fn made(toy: &Arc<Toy>) {
    LAST.with(|last| *last.borrow_mut() = Some(toy.clone()));
}

/// Options for an adapter that is added on this thread.
pub fn loading() -> Options {
    LOADING.with(std::cell::Cell::get)
}

/// What a function that has nothing to do returns for an unknown handle.
pub const UNKNOWN: NTSTATUS = STATUS_INVALID_PARAMETER;
