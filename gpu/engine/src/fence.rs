//! Stages 5 and 7 of 8: native fences.
//!
//! A fence is two 64-bit words of the OS's memory and a list of parked queues of ours.
//!
//! | word | written by | read by |
//! |---|---|---|
//! | CurrentValue | engines (FENCE_SIGNAL), the kernel-mode driver for the CPU | everyone |
//! | MonitoredValue | the kernel-mode driver, in `DxgkDdiUpdateMonitoredValues` | engines |
//! | `waiting` (ours) | engines that park, agents that wake | agents that signal |
//!
//! ORDERING[FENCE-1]: a signal stores CurrentValue, then a full fence, then loads MonitoredValue. The CPU stores
//! MonitoredValue, then a full fence, then (the OS) loads CurrentValue. At least one of them sees the other's store, so
//! a wait that is being added while its value is being signaled is noticed by the interrupt or by the re-read. Take
//! either fence out and both loads may miss: a wake is lost for ever.
//!
//! ORDERING[PARK-1]: the same between a queue that parks (`waiting` raised, full fence, CurrentValue read again) and a
//! signal (CurrentValue stored, full fence, `waiting` read). One fence in [`resolve`] serves both.
//!
//! Source: *Native GPU fence object*, "Synchronization issues" and "GPU to CPU synchronization".

use crate::NoMemory;
use crate::host::{Host, Lock};
use crate::mutation::{Chosen, Mutation};
use crate::slots::SlotId;
use crate::word::{Ordering, Word};
use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;

/// Engine, stage 5: writes CurrentValue. `true` when the value went backwards, which is allowed and counted.
pub fn store_current<W: Word>(current: &W, value: u64) -> bool {
    let backwards = current.load(Ordering::Relaxed) > value;
    // ORDERING[FENCE-1]: Release: what the queue wrote before is visible to an agent that sees the value.
    current.store(value, Ordering::Release);
    backwards
}

/// Engine, stage 7: the fence between the stores of a signal (value, log entry, index) and the loads that decide about
/// wakes. Once per signal.
pub fn resolve<W: Word>(mutation: &Chosen) {
    if mutation.is(Mutation::NoSignalBarrier) {
        return;
    }
    // ORDERING[FENCE-1], ORDERING[PARK-1]: pairs with `store_monitored` and with `ParkingLot::park`.
    W::fence(Ordering::SeqCst);
}

/// Engine, stage 7: whether the CPU has a waiter that `value` satisfies. After [`resolve`].
pub fn wants_interrupt<W: Word>(monitored: &W, value: u64) -> bool {
    value > monitored.load(Ordering::Acquire)
}

/// CPU: writes MonitoredValue so that a CurrentValue read after this returned was either written by an engine that saw
/// the new MonitoredValue, or is seen by that read.
pub fn store_monitored<W: Word>(monitored: &W, value: u64, mutation: &Chosen) {
    monitored.store(value, Ordering::Release);
    if mutation.is(Mutation::NoMonitoredBarrier) {
        return;
    }
    // ORDERING[FENCE-1]: pairs with `resolve`.
    W::fence(Ordering::SeqCst);
}

/// CPU: stores a new MonitoredValue as [`store_monitored`] does, then the context management processor updates the
/// shadow, if there is one. Returns `true` when a signal did not see the update: the caller must report the fence.
///
/// The update is over when this returns, as the contract of `DxgkDdiUpdateMonitoredValues` wants it. The caller carries
/// out the processor's steps itself, at the device's interrupt level, and waits for no thread.
pub fn update_monitored<M: Word, S: Word>(
    monitored: &M,
    shadow: Option<&Shadow<S>>,
    value: u64,
    mutation: &Chosen,
) -> bool {
    let update = || shadow.is_some_and(|shadow| shadow.update(value, mutation));
    if mutation.is(Mutation::ShadowFirst) {
        let due = update();
        store_monitored(monitored, value, mutation);
        return due;
    }
    store_monitored(monitored, value, mutation);
    update()
}

/// What lies between engines and the context management processor: the article's shadow state, in memory of the GPU's
/// own.
///
/// | agent | does | where |
/// |---|---|---|
/// | engine | compares its value with the shadow, and signals the processor if it is greater | [`Shadow::signals_cmp`] |
/// | processor, signaled | compares with the OS's MonitoredValue: interrupt or none | [`wants_interrupt`] |
/// | processor, told a new MonitoredValue | the three steps | [`Shadow::update`] |
///
/// The processor is no thread: what it does is done by the agent that brings it work, an engine after its signal, the
/// CPU in the DDI. Each is another agent to the memory, and steps of both kinds run side by side; nothing but the order
/// below joins them.
///
/// ORDERING[FENCE-1]: the OS's word is stored before the shadow, so that a processor which an engine signals because of
/// the new shadow sees the new word, too. With the shadow first it might see the old one and stay silent, after the
/// third step has looked.
///
/// Until the first update there is no shadow to compare with, and the OS's word counts: that of a cross-adapter fence
/// is 0 for life and never updated.
///
/// Source: *Native GPU fence object*, "Intra-GPU synchronization between engine and CMP".
pub struct Shadow<W: Word> {
    /// CurrentValue, since the OS gives no address of it in an update.
    current: W,
    monitored: W,
    /// 1 once `monitored` counts.
    active: W,
}

impl<W: Word> Shadow<W> {
    /// Nothing signaled, nothing monitored; `word` makes the words.
    pub fn new(word: impl Fn(u64) -> W) -> Self {
        Self { current: word(0), monitored: word(0), active: word(0) }
    }

    /// The agent that signals: with the store to CurrentValue, before [`resolve`].
    pub fn signaled(&self, value: u64) {
        // ORDERING[FENCE-1]: before the fence of `resolve`.
        self.current.store(value, Ordering::Release);
    }

    /// Engine, stage 7, after [`resolve`]: whether the context management processor hears of the signal.
    pub fn signals_cmp(&self, value: u64) -> bool {
        self.active.load(Ordering::Acquire) == 0 || wants_interrupt(&self.monitored, value)
    }

    /// Performs steps 1 to 3, after [`store_monitored`]. Returns `true` when a signal did not see this update, so that
    /// the interrupt is due.
    fn update(&self, value: u64, mutation: &Chosen) -> bool {
        self.monitored.store(value, Ordering::Release);
        self.active.store(1, Ordering::Release);
        if mutation.is(Mutation::ShadowNotRechecked) {
            return false;
        }
        // ORDERING[FENCE-1]: step 2; pairs with `resolve`.
        if !mutation.is(Mutation::NoMonitoredBarrier) {
            W::fence(Ordering::SeqCst);
        }
        self.current.load(Ordering::Acquire) > value
    }
}

/// The ticket that the next wait gets: read before a signal's store.
pub(crate) fn tickets(next: &AtomicU64) -> u64 {
    // Acquire: the store of the signal comes behind this.
    next.load(Ordering::Acquire)
}

/// A queue that remembers where it stands in the list of the fence that it waits for, so that it is found there without
/// a search. It stands in one list at a time.
pub trait Parks: Clone {
    /// The list: it stands at `place`. Called under the list's lock.
    fn stands_at(&self, _place: usize) {}

    /// Where it was told last that it stands; `None`: it does not remember.
    fn place(&self) -> Option<usize> {
        None
    }
}

/// Numbers, in the place of queues: the lists of tests are short.
impl Parks for u32 {}
impl Parks for u64 {}

/// A queue that waits.
struct Parked<Q> {
    value: u64,
    ticket: u64,
    /// How many were parked before it, ever.
    order: u64,
    queue: Q,
}

/// The queues of a fence that wait.
struct List<Q> {
    /// Least value first.
    heap: Vec<Parked<Q>>,
    /// How many were parked, ever.
    parked: u64,
}

impl<Q: Parks> List<Q> {
    /// The place of a queue whose value `current` reaches, and which was parked before the one of the order `until`;
    /// and how many were searched for it.
    fn reached(&self, current: u64, until: u64) -> (Option<usize>, usize) {
        let is_reached = |parked: &Parked<Q>| parked.value <= current && parked.order < until;
        let Some(first) = self.heap.first().filter(|first| first.value <= current) else { return (None, 0) };
        if first.order < until {
            return (Some(0), 0);
        }
        // Only where a value went back, so that what a signal has let go waits again.
        let at = self.heap.iter().position(is_reached);
        (at, at.unwrap_or(self.heap.len()))
    }
}

/// What became of an attempt to park.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Park {
    /// The queue is parked; the agent that makes the wait true wakes it.
    Parked,
    /// The wait became true meanwhile; go on.
    Met,
}

/// What came of [`ParkingLot::wake_some`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Woken {
    /// Queues that were taken out.
    pub woken: u32,
    /// What the searches count for, in queues that are woken.
    pub searched: u32,
    /// `until` for the next call; `None`: there is no more.
    pub more: Option<u64>,
}

impl Woken {
    /// What it counts for, in queues that are woken.
    pub fn counted(&self) -> u32 {
        self.woken.saturating_add(self.searched)
    }
}

/// Queues that a signal takes out of the list in one section.
const TOGETHER: usize = 8;
/// Queues that are searched and count as one that is woken.
const SEARCHED: usize = 64;

/// Queues parked on one fence, least value first: a signal costs the number of queues that it wakes.
pub struct ParkingLot<H: Host, Q: Parks + Send> {
    /// How many are parked: what a signal looks at first.
    waiting: H::Word,
    /// 1: every wait is over, now and later.
    ended: H::Word,
    list: H::Lock<List<Q>>,
}

impl<H: Host, Q: Parks + Send> ParkingLot<H, Q> {
    /// An empty lot.
    pub fn new() -> Self {
        Self { waiting: H::word(0), ended: H::word(0), list: H::Lock::new(List { heap: Vec::new(), parked: 0 }) }
    }

    /// Parks `queue` until `value`. `unmet` re-reads CurrentValue.
    ///
    /// # Errors
    /// [`NoMemory`]: the list could not grow; the caller tries again later.
    pub fn park(
        &self,
        value: u64,
        ticket: u64,
        queue: &Q,
        mutation: &Chosen,
        unmet: impl FnOnce() -> bool,
    ) -> Result<Park, NoMemory> {
        self.list.with(|List { heap, parked }| {
            heap.try_reserve(1)?;
            heap.push(Parked { value, ticket, order: *parked, queue: queue.clone() });
            *parked += 1;
            let last = heap.len() - 1;
            stands(heap, last);
            sift_up(heap, last);
            self.waiting.store(heap.len() as u64, Ordering::Relaxed);
            Ok::<(), NoMemory>(())
        })?;
        if mutation.is(Mutation::NoParkRecheck) {
            return Ok(Park::Parked);
        }
        // ORDERING[PARK-1]: pairs with `resolve` and `look_again`: either the signal sees `waiting`, or this read sees
        // its value, or the end.
        H::Word::fence(Ordering::SeqCst);
        let waits = !self.has_ended() && unmet();
        if waits || !self.remove(ticket, || queue.place()) {
            // Not removed: a signal took it out already and is making it ready.
            return Ok(Park::Parked);
        }
        Ok(Park::Met)
    }

    /// Takes out every queue whose value `current` reaches, with its ticket. After [`resolve`]. How many.
    pub fn wake(&self, current: u64, f: impl FnMut(Q, u64)) -> u32 {
        self.wake_some(current, None, u32::MAX, f).woken
    }

    /// The same of `limit` queues at most, of those that were parked when the first call for the signal, which has
    /// `None` for `until`, looked for the first time: what parks behind that reads the value that it is woken for, and
    /// is no work without an end where the value went back meanwhile. Such waits that lie in front are searched, and
    /// that counts against `limit`; a call takes out one queue at least, if there is one.
    pub fn wake_some(&self, current: u64, mut until: Option<u64>, limit: u32, mut f: impl FnMut(Q, u64)) -> Woken {
        let mut found = Woken::default();
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return found;
        }
        loop {
            // Several in one section, since each queue that is made ready may park here again at once.
            let mut reached = [const { None }; TOGETHER];
            let left = limit.saturating_sub(found.counted());
            let more = self.list.with(|list| {
                let until = *until.get_or_insert(list.parked);
                for place in reached.iter_mut().take(left as usize) {
                    let (at, searched) = list.reached(current, until);
                    // CAST: at most as many as are parked.
                    found.searched = found.searched.saturating_add((searched / SEARCHED) as u32);
                    let Some(at) = at else { return false };
                    *place = Some(self.take(&mut list.heap, at));
                    if at != 0 {
                        // One search in a section; the next one says whether there are more.
                        return true;
                    }
                }
                list.heap.first().is_some_and(|first| first.value <= current)
            });
            for parked in reached.into_iter().flatten() {
                f(parked.queue, parked.ticket);
                found.woken += 1;
            }
            if !more {
                return found;
            }
            if found.counted() >= limit {
                found.more = until;
                return found;
            }
        }
    }

    /// Every wait is over from now on. [`look_again`](Self::look_again) follows.
    pub fn end(&self) {
        self.ended.store(1, Ordering::Release);
    }

    /// Returns whether every wait is over.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire) != 0
    }

    /// Takes out every queue, to look for itself at a value that another agent stored. Returns how many.
    pub fn look_again(&self, f: impl FnMut(Q, u64)) -> u32 {
        // ORDERING[PARK-1]: pairs with `park`: either this sees the queue, or the queue sees the value or the end.
        H::Word::fence(Ordering::SeqCst);
        self.wake(u64::MAX, f)
    }

    /// Takes `ticket` out; `false` when it is not there. `place`: where its queue was told last that it stands. Without
    /// that it is searched for.
    pub fn remove(&self, ticket: u64, place: impl Fn() -> Option<usize>) -> bool {
        let taken = self.list.with(|List { heap, .. }| {
            let at = match place() {
                Some(at) => Some(at).filter(|at| heap.get(*at).is_some_and(|parked| parked.ticket == ticket))?,
                None => heap.iter().position(|parked| parked.ticket == ticket)?,
            };
            Some(self.take(heap, at))
        });
        // Dropped here, outside the lock.
        taken.is_some()
    }

    /// How many are parked. A hint.
    pub fn len(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns whether no queue is parked. A hint.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn take(&self, heap: &mut Vec<Parked<Q>>, at: usize) -> Parked<Q> {
        let taken = heap.swap_remove(at);
        self.waiting.store(heap.len() as u64, Ordering::Relaxed);
        if at < heap.len() {
            stands(heap, at);
            sift_down(heap, at);
            sift_up(heap, at);
        }
        taken
    }
}

impl<H: Host, Q: Parks + Send> Default for ParkingLot<H, Q> {
    fn default() -> Self {
        Self::new()
    }
}

/// The queue at `at` is told where it stands.
fn stands<Q: Parks>(heap: &[Parked<Q>], at: usize) {
    heap[at].queue.stands_at(at);
}

fn swap<Q: Parks>(heap: &mut [Parked<Q>], one: usize, other: usize) {
    heap.swap(one, other);
    stands(heap, one);
    stands(heap, other);
}

fn sift_up<Q: Parks>(heap: &mut [Parked<Q>], mut at: usize) {
    while at > 0 {
        let parent = (at - 1) / 2;
        if heap[parent].value <= heap[at].value {
            return;
        }
        swap(heap, parent, at);
        at = parent;
    }
}

fn sift_down<Q: Parks>(heap: &mut [Parked<Q>], mut at: usize) {
    loop {
        let mut least = at;
        for child in [2 * at + 1, 2 * at + 2] {
            if child < heap.len() && heap[child].value < heap[least].value {
                least = child;
            }
        }
        if least == at {
            return;
        }
        swap(heap, least, at);
        at = least;
    }
}

/// A native fence, as created once per adapter (`DxgkDdiCreateNativeFence`). `Q` is a reference to a queue.
pub struct Fence<H: Host, Q: Parks + Send> {
    /// What interrupts name it by.
    pub slot: SlotId,
    /// Queues that wait.
    pub parked: ParkingLot<H, Q>,
    /// Held while a signal stores CurrentValue, and while the fence becomes always signaled: no store comes behind
    /// that.
    ///
    /// ORDERING[DEAD-1]: FENCE-1 and PARK-1 need no lock here, but this does. The OS calls at `DISPATCH_LEVEL` and may
    /// free the storage when the call is over, and the call waits for no thread; an engine without the lock can be
    /// interrupted for any time between its look whether the fence is dead and its store. A compare-and-swap of
    /// CurrentValue is none: it sees no end that stores nothing, and makes the engine wait for a line that the CPU
    /// polls, where a store does not.
    storing: H::Lock<()>,
    /// The shadow mode's state.
    pub shadow: Option<Shadow<H::Word>>,
    /// Signals that stored less than was there.
    pub backwards: AtomicU64,
}

impl<H: Host, Q: Parks + Send> Fence<H, Q> {
    /// A fence that interrupts name by `slot`; `shadow`: engines compare with a shadow of MonitoredValue.
    pub fn new(slot: SlotId, shadow: bool) -> Self {
        Self {
            slot,
            parked: ParkingLot::new(),
            storing: H::Lock::new(()),
            shadow: shadow.then(|| Shadow::new(H::word)),
            backwards: AtomicU64::new(0),
        }
    }

    /// Returns whether the device is in error (`AlwaysSignaled`): waits pass, signals do nothing, the storage is not
    /// touched any more.
    pub fn is_always_signaled(&self) -> bool {
        self.parked.has_ended()
    }

    /// Makes every wait pass from now on and wakes every parked queue. With `last`, that value is stored first, as the
    /// last one that the CPU stores; not where the fence is always signaled already.
    pub fn set_always_signaled<W: Word>(&self, last: Option<(&W, u64)>, f: impl FnMut(Q, u64)) {
        self.storing.with(|()| {
            if let Some((current, value)) = last.filter(|_| !self.is_always_signaled()) {
                store_current(current, value);
            }
            self.parked.end();
        });
        self.parked.look_again(f);
    }

    /// The first half of a signal: stores CurrentValue, and the shadow's. Returns whether the value went backwards;
    /// `None` where the fence is always signaled, and nothing was stored.
    pub fn store<W: Word>(&self, current: &W, value: u64, mutation: &Chosen) -> Option<bool> {
        let store = || {
            let may_store = !self.is_always_signaled() || mutation.is(Mutation::WritesDeadFence);
            may_store.then(|| {
                let backwards = store_current(current, value);
                // In the same section: of two signals the later one's value stays in both.
                if let Some(shadow) = &self.shadow {
                    shadow.signaled(value);
                }
                backwards
            })
        };
        let unlocked = mutation.is(Mutation::StoresUnlocked);
        if unlocked { store() } else { self.storing.with(|()| store()) }
    }

    /// A signal from the CPU: writes CurrentValue through the address that the OS gave for this call, wakes who waits.
    /// A fence that is always signaled is not touched. Returns how many queues were woken.
    pub fn signal_from_cpu<W: Word>(&self, current: &W, value: u64, mutation: &Chosen, f: impl FnMut(Q, u64)) -> u32 {
        let Some(backwards) = self.store(current, value, mutation) else { return 0 };
        self.backwards.fetch_add(backwards.into(), Ordering::Relaxed);
        resolve_and_wake::<W, _, _>(&self.parked, value, mutation, f)
    }
}

/// The second half of a signal from the CPU, behind the store of CurrentValue: wakes what waits for `value`. Returns
/// how many queues were woken.
pub fn resolve_and_wake<W: Word, H: Host, Q: Parks + Send>(
    parked: &ParkingLot<H, Q>,
    value: u64,
    mutation: &Chosen,
    f: impl FnMut(Q, u64),
) -> u32 {
    resolve::<W>(mutation);
    parked.wake(value, f)
}
