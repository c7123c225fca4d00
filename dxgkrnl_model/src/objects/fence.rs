//! Fences: values that only grow, and whoever waits for one.
//!
//! [`native`] fences have a monitored value that the driver maintains and storage that the model exposes to user mode
//! and GPU; [`monitored`] ones are those of WDDM 2.0. Both have [`Waiters`]; a [`Wait`] is on one fence or several, for
//! all of them or any.

pub(crate) mod monitored;
pub(crate) mod native;
pub(crate) mod shown;
pub(crate) mod update;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use nt_model::{Event, Machine};
use wddm_abi::NTSTATUS;

use crate::port::miniport::Miniport;
use crate::port::sync::{Lock, Rank, Signal};
use crate::port::worker::Worker;

/// Any fence that a wait or signal can name.
#[derive(Clone, Debug)]
pub(crate) enum AnyFence {
    Native(Arc<native::NativeFence>),
    Monitored(Arc<monitored::FenceState>),
}

/// A fence as a wait knows it: a list that the wait is in. A wait keeps no fence alive.
trait Waited: Send + Sync + std::fmt::Debug {
    /// Takes the wait off the list.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    fn leave(&self, kernel: &Machine, wait: &Wait);
}

impl Waited for native::NativeFence {
    fn leave(&self, kernel: &Machine, wait: &Wait) {
        if self.waiters().remove(wait) {
            self.waiters_changed(kernel);
        }
    }
}

impl Waited for monitored::FenceState {
    fn leave(&self, _kernel: &Machine, wait: &Wait) {
        self.waiters().remove(wait);
    }
}

impl AnyFence {
    fn downgrade(&self) -> Weak<dyn Waited> {
        match self {
            Self::Native(fence) => Arc::downgrade(&(fence.clone() as Arc<dyn Waited>)),
            Self::Monitored(fence) => Arc::downgrade(&(fence.clone() as Arc<dyn Waited>)),
        }
    }

    /// The value now.
    pub(crate) fn value(&self) -> u64 {
        match self {
            Self::Native(fence) => fence.value(),
            Self::Monitored(fence) => fence.value(),
        }
    }

    /// Whether a wait for `value` is over.
    pub(crate) fn has_reached(&self, value: u64) -> bool {
        match self {
            Self::Native(fence) => fence.has_reached(value),
            Self::Monitored(fence) => fence.value() >= value,
        }
    }

    /// Signals it on behalf of the CPU, or of a queue whose signal the OS carries out; `from`: the adapter of either.
    ///
    /// IRQL: PASSIVE_LEVEL.
    ///
    /// # Errors
    /// What the driver returned.
    pub(crate) fn signal(&self, kernel: &Machine, value: u64, from: &Miniport) -> Result<(), NTSTATUS> {
        match self {
            Self::Native(fence) => fence.signal_from_cpu(kernel, value, from),
            Self::Monitored(fence) => {
                fence.signal(kernel, value);
                Ok(())
            }
        }
    }

    fn waiters(&self) -> &Waiters {
        match self {
            Self::Native(fence) => fence.waiters(),
            Self::Monitored(fence) => fence.waiters(),
        }
    }

    /// Call after waiters were added or removed: the monitored value follows, and the current value is looked at again.
    fn waiters_changed(&self, kernel: &Machine) {
        match self {
            Self::Native(fence) => fence.waiters_changed(kernel),
            Self::Monitored(fence) => fence.rescan(kernel),
        }
    }
}

/// What happens when a wait is over.
#[derive(Debug)]
pub(crate) enum Target {
    /// A thread looks again.
    Thread(Signal),
    /// An event of user mode is set.
    Event(Arc<Event>),
    /// The scheduler looks at its queues.
    Scheduler(Weak<Miniport>),
}

/// A wait for one fence or several.
///
/// Chosen: a wait for all of several is over when each of them has had its value once. One that has gone back
/// meanwhile, which the CPU alone can have it do (AllowFenceRewind), is not waited for again; no page says so or
/// otherwise.
#[derive(Debug)]
pub(crate) struct Wait {
    left: AtomicU32,
    over: AtomicBool,
    target: Target,
    /// The fences in whose lists of waiters this wait is, or was.
    fences: Lock<Vec<Weak<dyn Waited>>>,
}

impl Wait {
    /// Returns whether the wait is over.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Counts one fence that has reached its value; with the last one the wait ends.
    fn reached(&self, kernel: &Machine) {
        let left = self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1));
        if left == Ok(1) {
            self.end(kernel);
        }
    }

    /// Ends the wait, whether its values are reached or not, and removes it from the fences that it still waits for.
    pub(crate) fn end(&self, kernel: &Machine) {
        if self.over.swap(true, Ordering::AcqRel) {
            return;
        }
        self.notify(kernel);
        self.leave(kernel);
    }

    /// Ends the wait because its device is being destroyed. A waiting thread is woken; no event is set.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn abandon(&self, kernel: &Machine) {
        if self.over.swap(true, Ordering::AcqRel) {
            return;
        }
        if matches!(self.target, Target::Thread(_)) {
            self.notify(kernel);
        }
        self.leave(kernel);
    }

    /// Removes the wait from the lists of all its fences.
    fn leave(&self, kernel: &Machine) {
        let fences = std::mem::take(&mut *self.fences.lock());
        for fence in fences.iter().filter_map(Weak::upgrade) {
            fence.leave(kernel, self);
        }
    }

    fn notify(&self, kernel: &Machine) {
        match &self.target {
            Target::Thread(signal) => signal.notify(kernel),
            Target::Event(event) => crate::port::sync::set(kernel, event),
            Target::Scheduler(adapter) => {
                if let Some(adapter) = adapter.upgrade() {
                    Worker::of(&adapter).kick(&adapter);
                }
            }
        }
    }

    /// The signal of a thread that waits.
    pub(crate) fn signal(&self) -> Option<&Signal> {
        match &self.target {
            Target::Thread(signal) => Some(signal),
            _ => None,
        }
    }
}

/// Begins a wait. It may be over when this returns.
///
/// IRQL: PASSIVE_LEVEL.
pub(crate) fn wait_for(kernel: &Machine, fences: &[(AnyFence, u64)], any: bool, target: Target) -> Arc<Wait> {
    let count = if any { 1 } else { u32::try_from(fences.len()).unwrap_or(u32::MAX) };
    let wait = Arc::new(Wait {
        left: AtomicU32::new(count),
        over: AtomicBool::new(false),
        target,
        fences: Lock::new(Rank::Registry, Vec::new()),
    });
    if fences.is_empty() {
        wait.end(kernel);
        return wait;
    }
    let mut unmet = Vec::new();
    for (fence, value) in fences {
        if wait.is_over() {
            break;
        }
        if fence.has_reached(*value) {
            wait.reached(kernel);
            continue;
        }
        wait.fences.lock().push(fence.downgrade());
        fence.waiters().add(*value, &wait);
        unmet.push(fence);
    }
    // The monitored values of all in one call of the driver; then each fence is looked at.
    let native = |fence: &&AnyFence| match fence {
        AnyFence::Native(fence) => Some(fence.clone()),
        AnyFence::Monitored(_) => None,
    };
    let native: Vec<_> = unmet.iter().filter_map(native).collect();
    update::set_monitored(&native.iter().map(|fence| &**fence).collect::<Vec<_>>());
    for fence in unmet {
        fence.waiters_changed(kernel);
    }
    if wait.is_over() {
        // What was added while it ended.
        wait.leave(kernel);
    }
    wait
}

/// Takes a wait that nobody needs any more off its fences.
pub(crate) fn cancel(kernel: &Machine, fences: &[(AnyFence, u64)], wait: &Arc<Wait>) {
    for (fence, _) in fences {
        if fence.waiters().remove(wait) {
            fence.waiters_changed(kernel);
        }
    }
}

#[derive(Debug)]
struct Waiter {
    value: u64,
    wait: Arc<Wait>,
}

/// Who waits for one fence.
#[derive(Debug)]
pub(crate) struct Waiters {
    list: Lock<Vec<Waiter>>,
}

impl Waiters {
    pub(crate) fn new() -> Self {
        Self { list: Lock::new(Rank::Fence, Vec::new()) }
    }

    fn add(&self, value: u64, wait: &Arc<Wait>) {
        self.list.lock().push(Waiter { value, wait: wait.clone() });
    }

    fn remove(&self, wait: &Wait) -> bool {
        let removed: Vec<_> =
            self.list.lock().extract_if(.., |waiter| core::ptr::eq(Arc::as_ptr(&waiter.wait), wait)).collect();
        !removed.is_empty()
    }

    /// The least value that anybody waits for.
    pub(crate) fn least(&self) -> Option<u64> {
        self.list.lock().iter().filter(|waiter| !waiter.wait.is_over()).map(|waiter| waiter.value).min()
    }

    /// Ends the waits that `reached` says are over. How many waiters they were.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn release(&self, kernel: &Machine, reached: impl Fn(u64) -> bool) -> usize {
        self.release_if(kernel, |waiter| reached(waiter.value))
    }

    /// Sets the events that wait for values up to `value`, which the caller is about to store.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    fn set_events(&self, kernel: &Machine, value: u64) {
        let early = |waiter: &Waiter| waiter.value <= value && matches!(waiter.wait.target, Target::Event(_));
        if self.release_if(kernel, early) != 0 {
            // Long enough for a thread that the event woke to look.
            (0..20_000).for_each(|_| std::hint::spin_loop());
        }
    }

    /// Releases the waiters of one wait, as if their values were reached.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn release_wait(&self, kernel: &Machine, wait: &Arc<Wait>) {
        self.release_if(kernel, |waiter| Arc::ptr_eq(&waiter.wait, wait));
    }

    fn release_if(&self, kernel: &Machine, done: impl Fn(&Waiter) -> bool) -> usize {
        let done: Vec<_> = {
            let mut list = self.list.lock();
            let (done, left) = std::mem::take(&mut *list).into_iter().partition(&done);
            *list = left;
            done
        };
        for waiter in &done {
            waiter.wait.reached(kernel);
        }
        done.len()
    }
}
