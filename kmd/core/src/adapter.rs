//! The adapter: what exists from AddDevice to RemoveDevice, and what exists from StartDevice to StopDevice.
//!
//! [`Adapter`] is little more than the platform and a place for [`Started`]; every other object holds a reference to
//! the `Started` that it was made under. Objects do not know each other through the adapter: they hold what they need.

use crate::answers::Answers;
use crate::asked::Asked;
use crate::clock::GpuClock;
use crate::doorbell_pool::Doorbells;
use crate::dxgkrnl::Dxgkrnl;
use crate::handle::{Handle, object};
use crate::idle::Idle;
use crate::interrupt_source::InterruptSource;
use crate::irql::{AtMostDispatch, Passive};
use crate::keeper::Keeper;
use crate::paging_contexts::PagingContexts;
use crate::plan::Plan;
use crate::platform::{Event, Pages, Platform};
use crate::power::Power;
use crate::process::EngineContext;
use crate::root::FENCEPOST;
use crate::service::Form;
use crate::settings::Settings;
use crate::standing::Standing;
use crate::status::{Error, Result};
use crate::strays::Strays;
use crate::tracing::Event as TraceEvent;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use gpu_engine::NoMemory;
use gpu_engine::host::{Host, Lock, Unmapped};
use gpu_engine::log_entry::Entry;
use gpu_engine::memory::Span;
use gpu_engine::shared::Shared;
use gpu_wire::{NODE_COUNT, NodeOrdinal, PAGE_SIZE};
use wddm_abi::DXGK_FEATURE_ID;

/// The GPU of an adapter on platform `P`.
pub type Gpu<P> = gpu_engine::gpu::Gpu<EngineHost<P>>;

/// A packet context, as the engine of platform `P` knows it.
pub type PacketContext<P> = Shared<EngineContext<P>>;

/// From AddDevice to RemoveDevice.
pub struct Adapter<P: Platform> {
    /// The kernel.
    pub platform: P,
    /// Handle of the [`Started`], 0 while stopped. Not the object itself: the interrupt routine looks it up lock-free.
    started: AtomicU64,
    /// Which driver the image is, by the table that it registered.
    pub form: Form,
    /// The settings as the registry had them at AddDevice, or at the last StartDevice.
    settings: P::Lock<Settings>,
    /// Whether the kernel ran code that is signed for tests, at AddDevice.
    pub is_test_signing: bool,
    /// The OS's questions about features and types, with the answers, from AddDevice on.
    pub asked: Asked,
    /// Whether the OS's interface lacks `DxgkCbDisconnectDoorbell`, without which there cannot be doorbells. Written
    /// at StartDevice; `false` before.
    lacks_doorbells: AtomicBool,
}

object!(Adapter: Adapter<P>);

impl<P: Platform> Adapter<P> {
    /// An adapter of the driver's `form` that is not started, with the settings that AddDevice read.
    pub fn new(irql: &Passive, platform: P, form: Form, settings: Settings) -> Self {
        Self {
            is_test_signing: platform.is_test_signing(irql),
            platform,
            form,
            started: AtomicU64::new(0),
            settings: P::Lock::new(settings),
            asked: Asked::default(),
            lacks_doorbells: AtomicBool::new(false),
        }
    }

    /// Returns whether `feature`, which the driver supports, works under this OS: user-mode submission does not where
    /// the interface lacks `DxgkCbDisconnectDoorbell`. Source: `DXGKARG_QUERYFEATURESUPPORT`,
    /// SupportedOnCurrentConfig.
    pub fn is_on_configuration(&self, feature: DXGK_FEATURE_ID) -> bool {
        feature != DXGK_FEATURE_ID::DXGK_FEATURE_USER_MODE_SUBMISSION || !self.lacks_doorbells.load(Ordering::Acquire)
    }

    /// StartDevice: notes whether the OS's interface has `DxgkCbDisconnectDoorbell`.
    pub(crate) fn note_interface(&self, dxgkrnl: &Dxgkrnl) {
        self.lacks_doorbells.store(!dxgkrnl.has_disconnect_doorbell(), Ordering::Release);
    }

    /// A copy of the settings as the registry had them at AddDevice, or at the last StartDevice. Up to
    /// `DISPATCH_LEVEL`.
    pub fn settings(&self) -> Settings {
        self.settings.with(|settings| *settings)
    }

    /// StartDevice: replaces the settings. Up to `DISPATCH_LEVEL`.
    pub(crate) fn set_settings(&self, settings: Settings) {
        self.settings.with(|kept| *kept = settings);
    }

    /// What it is while started, counted. `PASSIVE_LEVEL`: the last reference unmaps registers and frees pages.
    ///
    /// # Errors
    /// [`Error::DeviceNotReady`] while it is not.
    pub fn started(&self) -> Result<Shared<Started<P>>> {
        let handle = Handle::from_raw(self.started.load(Ordering::Acquire));
        handle.get().map_err(|_| Error::DeviceNotReady)
    }

    /// Calls `f` with what it is while started, and counts no reference ([`Handle::borrow`]). Any IRQL.
    ///
    /// # Errors
    /// [`Error::DeviceNotReady`] while it is not.
    pub fn with_started<R>(&self, f: impl FnOnce(&Started<P>) -> R) -> Result<R> {
        let handle = Handle::from_raw(self.started.load(Ordering::Acquire));
        handle.borrow(f).map_err(|_| Error::DeviceNotReady)
    }

    /// Publishes the started part.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(crate) fn publish(&self, started: Shared<Started<P>>) -> Result<()> {
        FENCEPOST.add(&*started);
        let handle = Handle::create(started.clone()).inspect_err(|_| FENCEPOST.remove(&*started))?;
        self.started.store(handle.raw(), Ordering::Release);
        Ok(())
    }

    /// Takes it back; from here on nobody finds it.
    pub(crate) fn withdraw(&self) -> Result<Shared<Started<P>>> {
        let handle = Handle::from_raw(self.started.swap(0, Ordering::AcqRel));
        let started: Shared<Started<P>> = handle.take().map_err(|_| Error::DeviceNotReady)?;
        FENCEPOST.remove(&*started);
        Ok(started)
    }
}

/// What runs at the device's level on the OS's behalf: `kmd_ddi` supplies the function pointers.
#[derive(Clone, Copy)]
pub struct Routines {
    /// Runs [`report_all`](crate::interrupt::report_all) with the adapter's handle.
    pub report: wddm_abi::PKSYNCHRONIZE_ROUTINE,
    /// Runs [`Section::run`](crate::interrupt::Section::run) with a pointer to a section.
    pub section: wddm_abi::PKSYNCHRONIZE_ROUTINE,
}

/// From StartDevice to StopDevice.
pub struct Started<P: Platform> {
    /// The kernel.
    pub platform: P,
    /// What the adapter is on this OS.
    pub plan: Plan,
    /// What the registry says.
    pub settings: Box<Settings>,
    /// The OS.
    pub dxgkrnl: Dxgkrnl,
    /// What runs at the device's level.
    pub routines: Routines,
    /// The GPU.
    pub gpu: Shared<Gpu<P>>,
    /// Which doorbell has which physical one, in the dedicated model.
    pub doorbells: Doorbells<EngineHost<P>>,
    /// The system contexts of the paging process.
    pub paging_contexts: PagingContexts<PacketContext<P>, P::Lock<Vec<PacketContext<P>>>>,
    /// Objects alive, by kind: what debug blobs and leak checks show.
    pub census: Census,
    /// Counts of requests by the OS that this driver does not know.
    pub strays: Box<Strays>,
    /// Per node the `SubmissionFenceId` of the last packet that the OS was told to be complete. Written by reports at
    /// the device's level and by engine resets; `DxgkDdiQueryCurrentFence` answers it.
    pub(crate) reported: [AtomicU32; NODE_COUNT],
    /// The device is being stopped, or is gone: no thread may wait for another's call of the OS any more.
    pub(crate) is_ending: AtomicBool,
    /// Whether a doorbell's destruction has given up waiting for the thread in `DxgkCbDisconnectDoorbell`. On an OS
    /// that has the two wait for each other every such wait is in vain; the destructions behind it are short. Written
    /// by destructions.
    pub(crate) waits_in_vain: AtomicBool,
    /// Why the adapter stopped before its time ([`crate::halt::Reason::raw`]); 0: it did not.
    pub halted: AtomicU64,
    /// How engines' threads have the processors; set before the first of them.
    pub(crate) standing: P::Lock<Option<Standing>>,
    /// Engine threads, taken at stop.
    pub(crate) threads: P::Lock<Vec<P::Thread>>,
    /// Doorbell pages: after `gpu`, which refers to them.
    pub(crate) _doorbell_pages: P::Pages,
}

object!(Started: Started<P>);

impl<P: Platform> Started<P> {
    /// The context of packets that the OS submits without one; `None` before there is a system context. Up to
    /// `DISPATCH_LEVEL`.
    pub fn paging_context(&self) -> Option<PacketContext<P>> {
        self.paging_contexts.current(|context| context.space.has_root())
    }

    /// `span`, which the OS has mapped for us, with the order that its cache type gives: the driver's orders rest on
    /// cached memory, and elsewhere it takes fences ([`Span::unordered`]) and is counted in [`Strays::uncached`]. Up to
    /// `DISPATCH_LEVEL`.
    pub fn as_cached<'m>(&self, span: Span<'m>, what: &str) -> Span<'m> {
        let page = |at: u64| self.platform.is_cached(span.part(at, 1).as_ptr());
        if (0..span.len()).step_by(PAGE_SIZE as usize).all(page) {
            return span;
        }
        let what = format_args!("buffers in memory that is not cached, the last {what}");
        self.strays.note(&self.strays.uncached, 1, &self.platform, what);
        span.unordered()
    }
}

/// Objects alive.
#[derive(Default)]
pub struct Census {
    /// Processes.
    pub processes: AtomicU64,
    /// Devices.
    pub devices: AtomicU64,
    /// Packet contexts.
    pub contexts: AtomicU64,
    /// Hardware contexts.
    pub hw_contexts: AtomicU64,
    /// Hardware queues.
    pub hw_queues: AtomicU64,
    /// Doorbells.
    pub doorbells: AtomicU64,
    /// Native fences.
    pub fences: AtomicU64,
    /// Opens of native fences.
    pub local_fences: AtomicU64,
    /// Allocations.
    pub allocations: AtomicU64,
}

/// Counts an object while it is alive.
pub struct Counted<P: Platform> {
    /// Where it was made.
    pub started: Shared<Started<P>>,
    which: fn(&Census) -> &AtomicU64,
}

impl<P: Platform> Counted<P> {
    /// One more.
    pub fn new(started: Shared<Started<P>>, which: fn(&Census) -> &AtomicU64) -> Self {
        which(&started.census).fetch_add(1, Ordering::Relaxed);
        Self { started, which }
    }
}

impl<P: Platform> Drop for Counted<P> {
    fn drop(&mut self) {
        (self.which)(&self.started.census).fetch_sub(1, Ordering::Relaxed);
    }
}

/// Mappings that an engine can have where the machine has no addresses left. A packet needs them all at once: its
/// command buffer, where it reads, where it writes, and its fence, each with up to three page tables and one that they
/// share; and a table that it changes. A FILTER_RECT whose rows lie a gibibyte apart reads three at once.
const RESERVED_PLACES: usize = 32;

/// What the engines' threads have, and what they are waited for by.
pub(crate) struct Threads<P: Platform> {
    answers: Answers<P>,
    /// Where connections wait for a physical doorbell that no other thread is changing.
    changes: Answers<P>,
    keeper: Keeper<P>,
    idle: Idle<P>,
    power: Power,
    /// What each engine maps pages with when the machine has no addresses for it.
    reserves: [P::Reserve; NODE_COUNT],
    /// The numbers of the threads; 0 before one has begun.
    numbers: [AtomicUsize; NODE_COUNT],
    /// What they take time stamps from.
    clock: GpuClock,
}

impl<P: Platform> Threads<P> {
    /// Those of threads that have not begun.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub(crate) fn new(irql: &Passive, platform: &P, settings: &Settings) -> core::result::Result<Self, NoMemory> {
        let clock = GpuClock::new(irql, platform, settings.time_stamps);
        let answers = Answers::new(platform.event(irql)?);
        let changes = Answers::new(platform.event(irql)?);
        let keeper = Keeper::new(platform.event(irql)?);
        let idle = Idle::new(platform.event(irql)?);
        let reserve = || platform.reserve(irql, RESERVED_PLACES);
        let reserves = [reserve()?, reserve()?, reserve()?];
        let (power, numbers) = (Power::default(), Default::default());
        Ok(Self { answers, changes, keeper, idle, power, reserves, numbers, clock })
    }
}

/// The GPU's surroundings inside this driver.
pub struct EngineHost<P: Platform> {
    platform: P,
    dxgkrnl: Dxgkrnl,
    /// The first page frame behind the memory of the machine, as the OS last said. Memory may be added later.
    end_of_memory: AtomicU64,
    local: LocalMemory<P>,
    wake: [P::Event; NODE_COUNT],
    /// What the engines' threads have.
    threads: Box<Threads<P>>,
    /// How interrupts are raised.
    pub interrupt: Shared<InterruptSource>,
}

impl<P: Platform> EngineHost<P> {
    pub(crate) fn new(
        platform: P,
        dxgkrnl: Dxgkrnl,
        highest_physical_address: u64,
        local: LocalMemory<P>,
        wake: [P::Event; NODE_COUNT],
        threads: Box<Threads<P>>,
        interrupt: Shared<InterruptSource>,
    ) -> Self {
        let end_of_memory = AtomicU64::new(highest_physical_address / PAGE_SIZE + 1);
        Self { platform, dxgkrnl, end_of_memory, local, wake, threads, interrupt }
    }

    /// Whether the machine has memory at page frame `frame`, as far as `HighestPhysicalAddress` says.
    fn is_memory(&self, frame: u64) -> bool {
        if frame < self.end_of_memory.load(Ordering::Relaxed) {
            return true;
        }
        let Some(highest) = self.dxgkrnl.highest_physical_address() else { return false };
        self.end_of_memory.store(highest / PAGE_SIZE + 1, Ordering::Relaxed);
        frame <= highest / PAGE_SIZE
    }

    /// The event that wakes a node's engine.
    pub fn wake(&self, node: usize) -> &P::Event {
        &self.wake[node]
    }

    /// The engine of `node` runs on the calling thread from now on.
    pub(crate) fn begin(&self, node: usize) {
        self.threads.numbers[node].store(self.platform.thread(), Ordering::Relaxed);
    }

    /// Where DDIs wait for engines.
    pub(crate) fn answers(&self) -> &Answers<P> {
        &self.threads.answers
    }

    /// Where connections wait for a physical doorbell.
    pub(crate) fn changes(&self) -> &Answers<P> {
        &self.threads.changes
    }

    /// What time stamps are taken from.
    pub fn gpu_clock(&self) -> &GpuClock {
        &self.threads.clock
    }

    /// What keeps engines to their duty.
    pub(crate) fn keeper(&self) -> &Keeper<P> {
        &self.threads.keeper
    }

    /// What lets doorbells go.
    pub(crate) fn idle(&self) -> &Idle<P> {
        &self.threads.idle
    }

    /// The engines' F-states.
    pub(crate) fn power(&self) -> &Power {
        &self.threads.power
    }

    /// Returns whether the driver says when an engine has reached its F-state; otherwise it has when the function that
    /// tells it returns.
    pub(crate) fn completes_f_states(&self) -> bool {
        self.dxgkrnl.has_complete_f_state()
    }

    /// The engine of `node` has reached the F-state that the OS has told its component.
    pub(crate) fn complete_f_state(&self, irql: &impl AtMostDispatch, node: usize) {
        // CAST: a node index, which is the component's.
        self.dxgkrnl.complete_f_state(irql, node as u32);
    }

    /// The reserve of the engine that the calling thread runs.
    fn reserve(&self) -> Option<&P::Reserve> {
        let me = self.platform.thread();
        let node = self.threads.numbers.iter().position(|thread| thread.load(Ordering::Relaxed) == me)?;
        self.threads.reserves.get(node)
    }

    /// Bytes of the local segment.
    pub fn local_size(&self) -> u64 {
        self.local.size()
    }

    /// Overwrites the local segment (`FaultLoseMemory`). No engine works in it.
    pub(crate) fn lose_memory(&self) {
        for block in &self.local.blocks {
            block.span().fill(LOST);
        }
    }
}

impl<P: Platform> Host for EngineHost<P> {
    type Lock<T: Send> = P::Lock<T>;
    type Word = P::Word;
    type Mapping = P::Mapping;

    fn word(value: u64) -> P::Word {
        P::word(value)
    }
    fn map_system(&self, frames: &[u64], write: bool) -> core::result::Result<P::Mapping, Unmapped> {
        let count = frames.iter().take_while(|frame| self.is_memory(**frame)).count();
        let frames = frames.get(..count).filter(|frames| !frames.is_empty()).ok_or(Unmapped::NotMemory)?;
        let mapped = self.platform.map_system(frames, write);
        match (&mapped, self.reserve()) {
            // Only a few pages at a time, but every engine goes on.
            (Err(Unmapped::NoMemory), Some(reserve)) => self.platform.map_reserved(reserve, frames, write),
            _ => mapped,
        }
    }
    fn local(&self, page: u64) -> Option<Span<'static>> {
        self.local.pages(page)
    }
    fn clock(&self) -> u64 {
        self.threads.clock.now(&self.platform)
    }
    fn clock_frequency(&self) -> u64 {
        self.threads.clock.frequency(&self.platform)
    }
    fn kick(&self, node: NodeOrdinal) {
        if let Some(event) = self.wake.get(node.0 as usize) {
            event.set();
        }
    }
    fn flushed(&self, _node: NodeOrdinal) {
        self.answers().announce();
    }
    fn is_traced(&self) -> bool {
        self.platform.is_traced()
    }
    fn trace_fence(&self, node: NodeOrdinal, queue: Option<u64>, entry: &Entry) {
        let hw_queue = queue.unwrap_or_default();
        self.platform.trace(|| TraceEvent::NativeFence { node: node.0, hw_queue, entry: *entry });
    }
    fn raise_interrupt(&self, node: NodeOrdinal) -> bool {
        self.interrupt.raise(node.0)
    }
}

/// What the local segment is full of when it has lost its content.
const LOST: u32 = 0xDEAD_BEEF;
/// Bytes of one block of the local segment.
const BLOCK: u64 = 4 << 20;

/// The local segment: blocks of non-paged memory of our own.
pub struct LocalMemory<P: Platform> {
    blocks: Vec<P::Pages>,
}

impl<P: Platform> LocalMemory<P> {
    /// Allocates `size` bytes, rounded down to whole blocks; at least one block. When memory runs out on the way it
    /// keeps half of what there was, and the machine has the other half.
    ///
    /// # Errors
    /// [`NoMemory`] when not even one block is to be had.
    pub fn allocate(irql: &Passive, platform: &P, size: u64) -> core::result::Result<Self, NoMemory> {
        let want = (size / BLOCK).max(1);
        let mut blocks = Vec::new();
        // CAST: at most 16 GiB of blocks.
        blocks.try_reserve_exact(want as usize)?;
        for _ in 0..want {
            match platform.allocate_pages(irql, BLOCK / PAGE_SIZE) {
                Ok(pages) => blocks.push(pages),
                Err(NoMemory) if blocks.is_empty() => return Err(NoMemory),
                Err(NoMemory) => {
                    blocks.truncate(blocks.len().div_ceil(2));
                    break;
                }
            }
        }
        Ok(Self { blocks })
    }

    fn size(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK
    }

    fn pages(&self, page: u64) -> Option<Span<'static>> {
        let offset = page.checked_mul(PAGE_SIZE)?;
        let block = self.blocks.get(usize::try_from(offset / BLOCK).ok()?)?;
        Some(block.span().part(offset % BLOCK, BLOCK))
    }
}
