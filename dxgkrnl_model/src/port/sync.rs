//! The model's own locks, and the gates that keep WDDM's synchronization levels.
//!
//! Two kinds, and nothing else blocks in this crate:
//!
//! - [`Lock`]: a short lock over data. While one is held the thread calls no driver, no kernel service and no other
//!   object's method that might: not even an event is set. Each has a [`Rank`]; a thread takes them in rising order
//!   only, and a debug assertion sees to it. They may be taken at any IRQL, since a thread at raised IRQL is never
//!   switched away from while it holds one.
//! - [`Gate`]: shared or exclusive, held across driver calls, blocks on a kernel event and so through the scheduler.
//!   IRQL: PASSIVE_LEVEL.
//!
//! | rank | guards | may hold while taking it |
//! |---|---|---|
//! | `Os` | lists of drivers, adapters, processes | |
//! | `Process` | handle table, processes on adapters | `Os` |
//! | `Object` | one device, allocation, resource, queue | `Process` |
//! | `Va` | address spaces and page tables | `Object` |
//! | `Segment` | placement of allocations | `Va` |
//! | `Fence` | fence values, waiters | `Object`, `Segment` |
//! | `Node` | a node's queues, suspension, watch | `Fence` |
//! | `Interrupt` | notifications between interrupt and DPC | `Node` |
//! | `Registry` | lists of objects, kernel handles | any of the above |
//! | `Leaf` | whatever is looked at and let go at once: counters, lists, records; under it no lock is taken | any of the above |
//!
//! Two locks of one rank are never held together.

use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use nt_model::sched::Ticks;
use nt_model::{Event, Machine};
use parking_lot::{Mutex, MutexGuard};

/// Order of the short locks. See the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[expect(missing_docs, reason = "the module's table says what each guards")]
pub enum Rank {
    Os,
    Process,
    Object,
    Va,
    Segment,
    Fence,
    Node,
    Interrupt,
    Registry,
    Leaf,
}

thread_local! {
    /// One bit per rank held by the thread.
    static HELD: Cell<u16> = const { Cell::new(0) };
    /// How many driver calls of gated DDIs the thread is in, so that a nested one passes.
    static GATED: Cell<u32> = const { Cell::new(0) };
}

/// A short lock over data.
pub struct Lock<T> {
    rank: Rank,
    inner: Mutex<T>,
}

impl<T> fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("rank", &self.rank).finish_non_exhaustive()
    }
}

impl<T> Lock<T> {
    /// A lock of this rank.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self { rank, inner: Mutex::new(value) }
    }

    /// Takes the lock.
    ///
    /// # Panics
    /// In debug builds, when the thread holds a lock of this rank or a higher one: a mistake of this crate.
    pub fn lock(&self) -> LockGuard<'_, T> {
        let bit = 1_u16 << self.rank as u8;
        HELD.with(|held| {
            debug_assert!(held.get() < bit, "lock order: {:?} while {:#06b} are held", self.rank, held.get());
            held.set(held.get() | bit);
        });
        LockGuard { bit, inner: self.inner.lock() }
    }
}

/// A taken [`Lock`].
pub struct LockGuard<'a, T> {
    bit: u16,
    inner: MutexGuard<'a, T>,
}

impl<T> Drop for LockGuard<'_, T> {
    fn drop(&mut self) {
        // The bit goes first; nobody can take the thread between the two steps.
        HELD.with(|held| held.set(held.get() & !self.bit));
    }
}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// Asserts that the calling thread holds no [`Lock`]: it is about to leave the model.
///
/// # Panics
/// In debug builds when it does: a mistake of this crate.
#[inline]
pub(crate) fn assert_free(what: &str) {
    HELD.with(|held| debug_assert_eq!(held.get(), 0, "{what} with model locks held"));
}

/// Waits for `event` with a relative timeout. True: it was set.
pub(crate) fn wait(kernel: &Machine, event: &Event, timeout: Option<Ticks>) -> bool {
    assert_free("a wait");
    // CAST: timeouts are far below 2^63 ticks.
    kernel.wait_for_event(event, timeout.map(|ticks| -(ticks.min(i64::MAX as u64) as i64))) == 0
}

/// Sets `event`.
pub(crate) fn set(kernel: &Machine, event: &Event) {
    assert_free("setting an event");
    kernel.set_event(event.as_kevent(), false);
}

/// What others wait for, without saying what it is: a condition variable over kernel events.
#[derive(Debug)]
pub struct Signal {
    waiters: Lock<Vec<Arc<Event>>>,
}

impl Default for Signal {
    fn default() -> Self {
        Self::new()
    }
}

impl Signal {
    /// A signal that nobody waits for.
    pub const fn new() -> Self {
        Self { waiters: Lock::new(Rank::Leaf, Vec::new()) }
    }

    /// Lets everybody who waits look again.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub fn notify(&self, kernel: &Machine) {
        let waiters = std::mem::take(&mut *self.waiters.lock());
        for waiter in waiters {
            set(kernel, &waiter);
        }
    }

    /// Waits until `condition` gives something, at most until `deadline`; `None` then, and when the machine has
    /// stopped.
    ///
    /// IRQL: PASSIVE_LEVEL. `condition` runs with no lock held by this.
    pub fn wait_for<R>(
        &self,
        kernel: &Machine,
        deadline: Option<Ticks>,
        mut condition: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        loop {
            // Entered in the list before the look, so that a change after the look finds us.
            let event = Arc::new(Event::synchronization(false));
            self.waiters.lock().push(event.clone());
            let found = condition();
            let left = deadline.map(|deadline| deadline.saturating_sub(kernel.now()));
            if found.is_some() || left == Some(0) || kernel.rules.is_stopped() {
                self.waiters.lock().retain(|waiter| !Arc::ptr_eq(waiter, &event));
                return found;
            }
            wait(kernel, &event, left);
            self.waiters.lock().retain(|waiter| !Arc::ptr_eq(waiter, &event));
        }
    }
}

#[derive(Debug, Default)]
struct GateState {
    shared: u32,
    exclusive: bool,
    /// Threads that want it exclusively; new shared ones wait behind them.
    wanted: u32,
}

/// Shared or exclusive admission, across driver calls. A thread that is already inside a driver call passes.
#[derive(Debug)]
pub struct Gate {
    state: Lock<GateState>,
    changed: Signal,
}

/// Admission by a [`Gate`].
#[derive(Debug)]
#[must_use = "admission ends when the guard is dropped"]
pub struct Admission<'a> {
    gate: Option<(&'a Gate, &'a Machine, bool)>,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// A gate with nobody inside.
    pub const fn new() -> Self {
        let state = GateState { shared: 0, exclusive: false, wanted: 0 };
        Self { state: Lock::new(Rank::Leaf, state), changed: Signal::new() }
    }

    /// Waits until nobody is inside exclusively.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub fn shared<'a>(&'a self, kernel: &'a Machine) -> Admission<'a> {
        self.enter(kernel, false, None).unwrap_or(Admission { gate: None })
    }

    /// As [`shared`](Self::shared), without a wait. `None`: a thread is inside exclusively, or wants to be.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub fn shared_now<'a>(&'a self, kernel: &'a Machine) -> Option<Admission<'a>> {
        self.enter(kernel, false, Some(0))
    }

    /// Waits until nobody is inside.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub fn exclusive<'a>(&'a self, kernel: &'a Machine) -> Admission<'a> {
        self.enter(kernel, true, None).unwrap_or(Admission { gate: None })
    }

    /// As [`exclusive`](Self::exclusive), for at most `timeout`. `None`: somebody is still inside.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub fn exclusive_within<'a>(&'a self, kernel: &'a Machine, timeout: Ticks) -> Option<Admission<'a>> {
        self.enter(kernel, true, Some(timeout))
    }

    fn enter<'a>(&'a self, kernel: &'a Machine, exclusive: bool, timeout: Option<Ticks>) -> Option<Admission<'a>> {
        if in_driver() {
            return Some(Admission { gate: None });
        }
        if exclusive {
            self.state.lock().wanted += 1;
        }
        let deadline = timeout.map(|ticks| kernel.now().saturating_add(ticks));
        let entered = self.changed.wait_for(kernel, deadline, || self.try_enter(exclusive));
        if entered.is_some() {
            return Some(Admission { gate: Some((self, kernel, exclusive)) });
        }
        if exclusive {
            self.state.lock().wanted -= 1;
            self.changed.notify(kernel);
        }
        None
    }

    fn try_enter(&self, exclusive: bool) -> Option<()> {
        let mut state = self.state.lock();
        let free = !state.exclusive && if exclusive { state.shared == 0 } else { state.wanted == 0 };
        if !free {
            return None;
        }
        if exclusive {
            state.exclusive = true;
            state.wanted -= 1;
        } else {
            state.shared += 1;
        }
        Some(())
    }

    /// Threads inside with shared admission.
    pub fn inside(&self) -> u32 {
        self.state.lock().shared
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        let Some((gate, kernel, exclusive)) = self.gate.take() else { return };
        {
            let mut state = gate.state.lock();
            if exclusive {
                state.exclusive = false;
            } else {
                state.shared -= 1;
            }
        }
        gate.changed.notify(kernel);
    }
}

#[derive(Debug, Default)]
struct NamingState {
    /// Calls that name the object now.
    calls: u32,
    closed: bool,
}

/// Calls that name an object to the driver, against the call that destroys it: none of them is under way then, and
/// none begins.
#[derive(Debug)]
pub(crate) struct Naming {
    state: Lock<NamingState>,
    changed: Signal,
}

/// Leave to name an object in a call of the driver, which ends when this is dropped.
#[derive(Debug)]
#[must_use = "the object may be destroyed once this is dropped"]
pub(crate) struct Named<'a> {
    naming: &'a Naming,
    kernel: &'a Machine,
}

impl Naming {
    /// An object that may be named.
    pub(crate) const fn new() -> Self {
        Self { state: Lock::new(Rank::Leaf, NamingState { calls: 0, closed: false }), changed: Signal::new() }
    }

    /// Returns leave to name the object. `None`: its destruction has begun.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn name<'a>(&'a self, kernel: &'a Machine) -> Option<Named<'a>> {
        self.begin().then(|| Named { naming: self, kernel })
    }

    /// Begins a call that names the object; [`end`](Self::end) ends it. Returns `false`, and begins none, where the
    /// object's destruction has begun.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn begin(&self) -> bool {
        let mut state = self.state.lock();
        state.calls += u32::from(!state.closed);
        !state.closed
    }

    /// Ends a call that [`begin`](Self::begin) has begun.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn end(&self, kernel: &Machine) {
        self.state.lock().calls -= 1;
        self.changed.notify(kernel);
    }

    /// Lets no call begin that names the object, and waits for those that are under way.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn close(&self, kernel: &Machine) {
        self.state.lock().closed = true;
        self.changed.wait_for(kernel, None, || (self.state.lock().calls == 0).then_some(()));
    }
}

impl Drop for Named<'_> {
    fn drop(&mut self) {
        self.naming.end(self.kernel);
    }
}

/// The thread is inside a driver call while this lives. What the thread held on entry is restored at its end, also when
/// inner frames were left without being unwound.
#[derive(Debug)]
pub(crate) struct InDriver {
    gated: u32,
    held: u16,
}

impl InDriver {
    pub(crate) fn new() -> Self {
        let gated = GATED.with(Cell::get);
        GATED.with(|cell| cell.set(gated + 1));
        Self { gated, held: HELD.with(Cell::get) }
    }
}

impl Drop for InDriver {
    fn drop(&mut self) {
        GATED.with(|cell| cell.set(self.gated));
        HELD.with(|cell| cell.set(self.held));
    }
}

/// Whether the calling thread is inside a driver call of the model.
pub(crate) fn in_driver() -> bool {
    GATED.with(Cell::get) != 0
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::entry::os::Os;
    use crate::port::personality::Personality;

    #[test]
    fn a_destruction_waits_for_calls_that_name_the_object() -> Result<(), Box<dyn std::error::Error>> {
        let os = Os::boot(Personality::collecting().seeded(1))?;
        let (naming, closed) = (Arc::new(Naming::new()), Arc::new(AtomicBool::new(false)));
        let kernel = os.kernel();
        let _inside = kernel.enter();
        let named = naming.name(kernel);
        assert!(named.is_some());
        let (theirs, done) = (naming.clone(), closed.clone());
        let thread = kernel.spawn_system_thread("destroys", move || {
            Machine::with_current(|machine| machine.map(|machine| theirs.close(machine)));
            done.store(true, Ordering::Release);
        });
        kernel.delay_execution(-100_000);
        assert!(!closed.load(Ordering::Acquire));
        assert!(naming.name(kernel).is_none());
        drop(named);
        kernel.wait_for_object(thread.header(), None);
        assert!(closed.load(Ordering::Acquire));
        Ok(())
    }
}
