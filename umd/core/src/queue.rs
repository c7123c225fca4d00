//! Queues, as an application sees them: something that takes command lists and says how far it has come. Behind it is a
//! user-mode queue, a kernel-mode hardware queue or a packet context, as adapter and node allow.
//!
//! Any thread may use a queue. Submissions take a lock of the queue, so lists of several threads go in one after the
//! other, whole; a submission that waits for space holds it. Looking at progress and waiting for it do not take it.
#![forbid(unsafe_code)]

mod info;

pub use info::{Addresses, Info};

use crate::adapter::Mode;
use crate::command_list::{CommandList, FenceOperation, LogCounts};
use crate::device::Device;
use crate::error::{UmdError, Unsupported};
use crate::hw_queue::{self, HwQueue, ProgressFence};
use crate::kernel_submit::{KernelLane, Target};
use crate::memory::lock::{Lock, SpinCell};
use crate::monitored_fence::MonitoredFence;
use crate::mutation::Mutation;
use crate::submit::{Effort, Submitted, Turn, UserLane};
use crate::thunks::Thunks;
use crate::trace::{Event, Trace};
use crate::tracing;
use crate::wait::{self, Timeout};
use alloc::sync::Arc;
use core::ops::DerefMut;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use gpu_wire::NodeOrdinal;
use wddm_abi::D3DKMT_HANDLE;

/// What to create.
#[derive(Clone, Copy, Debug)]
pub struct Create {
    /// Where.
    pub node: NodeOrdinal,
    /// Bytes of the ring, a power of two; of the command buffer pool on the kernel-mode paths.
    pub ring_size: u64,
    /// Kernel-mode submission even where user-mode submission is there.
    pub kernel_mode: bool,
    /// Whether the queue is exempt from the two seconds of TDR.
    pub no_timeout: bool,
    /// Fence operations that the trace keeps; 0 for no trace.
    pub trace_events: usize,
}

/// What is behind a queue.
enum Lane<T: Thunks> {
    User(UserLane<T>),
    Kernel(KernelLane<T>),
    /// Lost while it was being recreated.
    Gone,
}

/// What keeps the progress fence's mapping alive while somebody waits for it.
enum ProgressOwner<T: Thunks> {
    Queue(Arc<HwQueue<T>>),
    Fence(Arc<MonitoredFence<T>>),
}

impl<T: Thunks> Clone for ProgressOwner<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Queue(queue) => Self::Queue(queue.clone()),
            Self::Fence(fence) => Self::Fence(fence.clone()),
        }
    }
}

/// The progress fence and what keeps it mapped.
type Progress<T> = (ProgressFence, ProgressOwner<T>);

struct State<T: Thunks> {
    lane: Lane<T>,
    /// Bytes of the ring, as they were asked for last.
    ring_size: u64,
    executed: LogCounts,
    submissions: u64,
    effort: Effort,
    trace: Trace,
    /// What a trace was told of the lane at its creation, and is told at its end; `None` once it was.
    told: Option<tracing::Queue>,
}

/// A queue. Dropping it waits for what was submitted, for as long as something of it completes within each
/// [`IDLE_NANOSECONDS`] (longer where nothing of it waits for a fence), and then destroys everything behind it.
pub struct Queue<T: Thunks> {
    state: Lock<State<T>>,
    /// The lane's progress fence, for those who do not hold `state`.
    progress: SpinCell<Option<Progress<T>>>,
    /// Progress value of the last submission. Written with `state` held.
    last: AtomicU64,
    /// Progress value of the last submission that may wait for a fence. Written with `state` held.
    may_wait_until: AtomicU64,
    /// The caller has asked for the progress since the last submission: it waits for one before it makes the next.
    was_asked: AtomicBool,
    device: Arc<Device<T>>,
    number: u32,
    create: Create,
}

/// What a queue has counted since it was created, recreations included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Calls that submitted command lists.
    pub submissions: u64,
    /// See [`Effort`].
    pub effort: Effort,
}

impl<T: Thunks> Lane<T> {
    fn create(device: &Arc<Device<T>>, create: &Create) -> Result<Self, UmdError> {
        let mut mode = device.adapter().node(create.node)?.mode;
        if create.kernel_mode {
            mode = mode.min(Mode::KernelMode);
        }
        let parts =
            hw_queue::Create { node: create.node, user_mode: mode == Mode::UserMode, no_timeout: create.no_timeout };
        Ok(match mode {
            Mode::UserMode => Self::User(UserLane::create(device, parts, create.ring_size)?),
            Mode::KernelMode => Self::Kernel(KernelLane::create_queue(device, parts, create.ring_size)?),
            Mode::Packet => Self::Kernel(KernelLane::create_context(device, parts, create.ring_size)?),
        })
    }

    /// What a trace is told of it.
    fn told(&self, node: u32) -> tracing::Queue {
        tracing::Queue {
            queue: self.handle(),
            progress_fence: self.progress().map_or(0, |(fence, _)| fence.handle),
            node,
            is_user_mode: matches!(self, Self::User(_)),
        }
    }

    fn mode(&self) -> Option<Mode> {
        match self {
            Self::User(_) => Some(Mode::UserMode),
            Self::Kernel(KernelLane { target: Target::Queue(_), .. }) => Some(Mode::KernelMode),
            Self::Kernel(_) => Some(Mode::Packet),
            Self::Gone => None,
        }
    }

    fn progress(&self) -> Option<Progress<T>> {
        match self {
            Self::User(lane) => Some((lane.queue.progress(), ProgressOwner::Queue(lane.queue.clone()))),
            Self::Kernel(lane) => {
                let owner = match &lane.target {
                    Target::Queue(queue) => ProgressOwner::Queue(queue.clone()),
                    Target::Context(_, fence) => ProgressOwner::Fence(fence.clone()),
                };
                Some((lane.progress(), owner))
            }
            Self::Gone => None,
        }
    }

    /// The hardware queue or packet context; 0 for none.
    fn handle(&self) -> D3DKMT_HANDLE {
        match self {
            Self::User(lane) => lane.queue.handle(),
            Self::Kernel(KernelLane { target: Target::Queue(queue), .. }) => queue.handle(),
            Self::Kernel(KernelLane { target: Target::Context(context, _), .. }) => context.handle(),
            Self::Gone => 0,
        }
    }

    fn list_limit(&self) -> u64 {
        match self {
            Self::User(lane) => lane.list_limit(),
            Self::Kernel(lane) => lane.list_limit(),
            Self::Gone => 0,
        }
    }
}

/// Tells a trace of a submission, and of the fence operations in it.
#[cold]
fn tell<T: Thunks, L: DerefMut<Target = CommandList>>(thunks: &T, queue: D3DKMT_HANDLE, lists: &[L], progress: u64) {
    for operation in lists.iter().flat_map(|list| list.fence_operations()) {
        let FenceOperation { operation, fence, value, recorded } = *operation;
        thunks.trace(|| tracing::Event::FenceQueued { queue, operation, fence, value, recorded, progress });
    }
    // CAST: a call's lists are far fewer.
    thunks.trace(|| tracing::Event::Submission { queue, progress, lists: lists.len() as u32 });
}

/// The value of the progress fence, given the last that was submitted.
fn completed<T: Thunks>(progress: &Option<Progress<T>>, last: u64) -> u64 {
    progress.as_ref().map_or(0, |(fence, _)| fence.completed(last))
}

impl<T: Thunks> Queue<T> {
    /// Creates a queue on a node.
    ///
    /// # Errors
    /// [`UmdError::InvalidArgument`]; those of the parts.
    pub fn create(device: &Arc<Device<T>>, create: Create) -> Result<Self, UmdError> {
        let os = device.os();
        let lane = Lane::create(device, &create)?;
        let progress = lane.progress();
        let last = completed(&progress, 0);
        let trace = Trace::new(create.trace_events)?;
        let executed = LogCounts::default();
        let state = State {
            lane,
            ring_size: create.ring_size,
            executed,
            submissions: 0,
            effort: Effort::default(),
            trace,
            told: None,
        };
        let queue = Self {
            state: Lock::new(os, state)?,
            progress: SpinCell::new(progress),
            last: AtomicU64::new(last),
            may_wait_until: AtomicU64::new(0),
            was_asked: AtomicBool::new(false),
            device: device.clone(),
            number: device.new_queue_number(),
            create,
        };
        queue.with(|state| queue.tell_start(state));
        Ok(queue)
    }

    /// Tells a trace of the lane that was made.
    fn tell_start(&self, state: &mut State<T>) {
        let told = state.lane.told(self.create.node.0);
        state.told = Some(told);
        self.device.os().thunks().trace(|| tracing::Event::QueueStart(told));
    }

    /// Tells a trace of the lane's end, if it was told of its beginning: with the same fields.
    fn tell_stop(&self, state: &mut State<T>) {
        if let Some(told) = state.told.take() {
            self.device.os().thunks().trace(|| tracing::Event::QueueStop(told));
        }
    }

    /// Its device.
    pub fn device(&self) -> &Arc<Device<T>> {
        &self.device
    }

    /// Its number within the device.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// An empty command list that fits this queue.
    pub fn new_list(&self) -> CommandList {
        CommandList::new(self.with(|state| state.lane.list_limit()))
    }

    fn with<R>(&self, use_it: impl FnOnce(&mut State<T>) -> R) -> R {
        self.state.with(self.device.os(), use_it)
    }

    fn lost(&self) -> UmdError {
        UmdError::QueueLost { state: self.device.state(), fault: None }
    }

    /// Submits a command list; its progress value. With `may_wait` off, a full ring, or a pool of command buffers
    /// without room for the whole list, is [`UmdError::Timeout`] and nothing is submitted.
    ///
    /// # Errors
    /// [`UmdError::NotSupported`] for fences that do not go with the queue; [`UmdError::ListTooLarge`];
    /// [`UmdError::QueueLost`]; [`UmdError::DeviceLost`]; [`UmdError::RetryLimit`]; [`UmdError::Thunk`].
    pub fn submit(&self, list: &mut CommandList, may_wait: bool) -> Result<u64, UmdError> {
        self.submit_lists(&mut [list], may_wait)
    }

    /// Submits command lists, which are executed in their order, as one submission; its progress value. A user-mode
    /// queue is told of all of them by one doorbell, and all must fit its ring together. On the kernel-mode paths each
    /// is a submission to the OS, and the value is the last one's. With `may_wait` off, as [`Self::submit`], for all
    /// together.
    ///
    /// # Errors
    /// [`UmdError::InvalidArgument`] when there is no list; those of [`Self::submit`].
    pub fn submit_lists<L: DerefMut<Target = CommandList>>(
        &self,
        lists: &mut [L],
        may_wait: bool,
    ) -> Result<u64, UmdError> {
        if lists.is_empty() {
            return Err(UmdError::InvalidArgument("no command list"));
        }
        self.with(|state| {
            let State { lane, executed, submissions, effort, trace, .. } = state;
            let last = self.last.load(Ordering::Relaxed);
            let alone = self.was_asked.load(Ordering::Relaxed);
            if alone {
                self.was_asked.store(false, Ordering::Relaxed);
            }
            let thunks = self.device.os().thunks();
            let traced = trace.is_on() || thunks.is_traced();
            let mut turn = Turn { last, executed: *executed, may_wait, traced, alone, effort };
            let may_stand_still = lists.iter().any(|list| list.may_stand_still());
            let mut newest = None;
            let mut first_queued = None;
            // From here on the GPU may see it: the state moves on, whatever the doorbell says.
            let published = |submitted: Submitted| {
                self.last.store(submitted.progress, Ordering::Release);
                if may_stand_still {
                    self.may_wait_until.store(submitted.progress, Ordering::Release);
                }
                *executed += submitted.logs;
                first_queued.get_or_insert(submitted.queued);
                newest = Some(submitted);
            };
            let result = match lane {
                Lane::User(_) if lists.iter().any(|list| list.uses_monitored_fences()) => {
                    Err(UmdError::NotSupported(Unsupported::MonitoredFenceOnUserQueue))
                }
                Lane::User(user) => user.submit(&self.device, lists, &mut turn, published),
                Lane::Kernel(kernel) => kernel.submit(lists, &mut turn, published),
                Lane::Gone => Err(self.lost()),
            };
            if let Some(Submitted { progress, queued, .. }) = newest {
                *submissions += 1;
                if thunks.is_traced() {
                    tell(thunks, lane.handle(), lists, progress);
                }
                if trace.is_on() {
                    // Of a list that was cut, operations have the time of the first piece.
                    let first = first_queued.unwrap_or(queued);
                    let operations = lists.iter().flat_map(|list| list.fence_operations());
                    operations.for_each(|operation| trace.push(operation, first, progress));
                    if let Some((fence, _)) = lane.progress().filter(|(fence, _)| fence.native) {
                        trace.push_progress(fence.handle, queued, progress);
                    }
                }
            }
            result.map(|()| newest.map_or(last, |submitted| submitted.progress))
        })
    }

    /// The last submission that is done, and the last that was made.
    pub fn progress(&self) -> (u64, u64) {
        self.ask();
        let last = self.last.load(Ordering::Acquire);
        (self.progress.with(|progress| completed(progress, last)), last)
    }

    /// Notes that the caller has asked for the progress.
    fn ask(&self) {
        // Mostly it is noted already, and the line stays as it is.
        if !self.was_asked.load(Ordering::Relaxed) {
            self.was_asked.store(true, Ordering::Relaxed);
        }
    }

    /// Waits until submission `progress` is done (0: the last that was made).
    ///
    /// # Errors
    /// [`UmdError::Timeout`]; [`UmdError::DeviceLost`], within half a second of the loss; [`UmdError::QueueLost`].
    pub fn wait(&self, progress: u64, timeout: Timeout) -> Result<(), UmdError> {
        self.ask();
        let value = if progress == 0 { self.last.load(Ordering::Acquire) } else { progress };
        // `_owner` keeps the fence's page mapped when another thread recreates the queue meanwhile.
        let Some((fence, _owner)) = self.progress.with(|progress| progress.clone()) else { return Err(self.lost()) };
        let device = &self.device;
        let alive = || if device.is_alive() { Ok(()) } else { Err(UmdError::DeviceLost { state: device.state() }) };
        let waited = wait::sliced(device.os(), fence.object(device.handle()), value, timeout, alive);
        waited.map_err(|error| device.blame(error))?;
        // A reset signals the fence with its largest value, and in the place of one that is gone there is anything:
        // more than was submitted is no progress.
        let last = self.last.load(Ordering::Acquire);
        let lost = fence.value.may_be_lost() || fence.value.near(last) > last;
        if lost || !fence.value.has_reached(value) { alive() } else { Ok(()) }
    }

    /// Destroys what is behind the queue and makes it anew: what an application does after [`UmdError::QueueLost`].
    /// With `kernel_mode`, by kernel-mode submission from now on, as the article's fallback does. Progress values start
    /// again.
    ///
    /// Source: *User-mode work submission*, residency model: "user mode is responsible for destroying HWQueue, doorbell
    /// and ring buffer, and for creating them again"; pseudo code, `cleanup_fallback`.
    ///
    /// # Errors
    /// [`UmdError::DeviceLost`]: then the device must be created again, too, and the queue stays lost; those of
    /// [`Self::create`].
    pub fn recreate(&self, kernel_mode: bool) -> Result<(), UmdError> {
        let state = self.device.state();
        if state != wddm_abi::D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_ACTIVE {
            return Err(UmdError::DeviceLost { state });
        }
        self.with(|state| {
            self.tell_stop(state);
            state.lane = Lane::Gone;
            drop(self.progress.with(Option::take));
            let kernel_mode = kernel_mode || self.create.kernel_mode;
            let create = Create { kernel_mode, ring_size: state.ring_size, ..self.create };
            state.lane = Lane::create(&self.device, &create)?;
            state.executed = LogCounts::default();
            let progress = state.lane.progress();
            self.last.store(completed(&progress, 0), Ordering::Release);
            self.may_wait_until.store(0, Ordering::Release);
            self.progress.with(|shown| *shown = progress);
            self.tell_start(state);
            Ok(())
        })
    }

    /// Gives a user-mode queue a ring of `size` bytes, a power of two. What was submitted runs first, and nothing waits
    /// for it: the old ring is kept until then. Progress goes on from the values that it has. Command lists for the old
    /// ring may be too large for a smaller one.
    ///
    /// Source: d3dukmdt.h, `D3DKMT_CREATE_DOORBELL_FLAGS`, `ResizeRingBufferOperation`.
    ///
    /// # Errors
    /// [`UmdError::NotSupported`] for a queue without a ring. [`UmdError::InvalidArgument`], [`UmdError::Timeout`] when
    /// the rings of two resizes before have work left, [`UmdError::NoMemory`], [`UmdError::Thunk`]: the queue is as it
    /// was. [`UmdError::QueueLost`].
    pub fn resize(&self, size: u64) -> Result<(), UmdError> {
        self.with(|state| {
            match &mut state.lane {
                Lane::User(lane) => lane.resize(&self.device, size, self.last.load(Ordering::Relaxed))?,
                Lane::Kernel(_) => return Err(UmdError::NotSupported(Unsupported::Resize)),
                Lane::Gone => return Err(self.lost()),
            }
            state.ring_size = size;
            Ok(())
        })
    }

    /// What it has counted.
    pub fn counters(&self) -> Counters {
        self.with(|state| Counters { submissions: state.submissions, effort: state.effort })
    }

    /// Takes fence events out, oldest first, until `take` refuses one; how many were lost before the first.
    pub fn read_trace(&self, take: impl FnMut(Event) -> bool) -> u64 {
        self.with(|state| state.trace.drain(take))
    }

    /// What it is and where its words are.
    pub fn info(&self) -> Info {
        self.with(|state| info::of(self.number, &self.create, &state.lane))
    }
}

/// How long a queue that is destroyed waits for the next completion of what was submitted to it, where a fence wait or
/// a command buffer of the caller's is among it. TIMEOUT: work that waits for a value that is never signaled must not
/// keep the queue alive.
const IDLE_NANOSECONDS: u64 = 200_000_000;

/// How many times longer it waits where nothing of it can wait: ten seconds, several times what the OS gives work
/// before it takes it for hung.
const PATIENT: u32 = 50;

impl<T: Thunks> Queue<T> {
    /// Waits for what was submitted for as long as something of it completes within each [`IDLE_NANOSECONDS`], or,
    /// where nothing of it can wait for a fence, within [`PATIENT`] times that.
    fn idle(&self) {
        let mut stood = 0;
        while stood < PATIENT {
            let before = self.completed();
            let waited = self.wait(0, Timeout::from_nanoseconds(IDLE_NANOSECONDS));
            let now = self.completed();
            if !matches!(waited, Err(UmdError::Timeout)) {
                return;
            }
            stood = if now == before { stood + 1 } else { 0 };
            if stood != 0 && now.is_none_or(|now| now < self.may_wait_until.load(Ordering::Acquire)) {
                return;
            }
        }
    }

    /// The progress value that the queue has reached; `None` for a queue that is lost.
    fn completed(&self) -> Option<u64> {
        let (fence, _owner) = self.progress.with(|progress| progress.clone())?;
        Some(fence.value.near(self.last.load(Ordering::Acquire)))
    }
}

impl<T: Thunks> Drop for Queue<T> {
    fn drop(&mut self) {
        // Clients idle a queue before they destroy it; the documents promise only that the OS idles it at the end of a
        // process. The device is asked first: when it is lost, the fence's page may be gone.
        let busy = self.device.os().mutation.is(Mutation::DestroysBusyQueues);
        if self.last.load(Ordering::Acquire) != 0 && self.device.is_alive() && !busy {
            self.idle();
        }
        self.with(|state| self.tell_stop(state));
        // The lane holds the last reference then, and destroys its parts in order.
        drop(self.progress.with(Option::take));
        self.state.close(self.device.os());
    }
}
