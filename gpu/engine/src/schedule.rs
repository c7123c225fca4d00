//! Which ready queue an engine runs next: bands of priority, in each of them processes by turns, and in each process
//! its contexts.
//!
//! The list is the engine's own. Other agents hand queues over in [`crate::arrivals`]; those that the engine itself
//! finds go straight here. None of it is searched: thousands of processes may have ready queues.
//!
//! | file | holds |
//! |---|---|
//! | `schedule.rs` | whose turn is next, and who must give way, over all bands |
//! | `schedule/policy.rs` | what the OS says: bands, shares, times, priorities |
//! | `schedule/band.rs` | the ready queues of one band, by process |
//! | `schedule/line.rs` | the order of its processes, as a heap |
//!
//! | among | goes first | for how long |
//! |---|---|---|
//! | bands | the higher one; the normal band has a share of the turns all the same (`targetNormalBandPercentage`), so that a process in focus leaves it some, and the idle band has none | until it has nothing ready |
//! | contexts of the real-time band | the higher level (`realtimeBandPriorityLevel`) | until it has nothing ready |
//! | processes of a band | the one that was served least recently, however many queues each has | `processQuantumForBand` |
//! | contexts of a process | the higher priority (`inProcessPriority`) | until it has nothing ready |
//! | queues of contexts of one priority | the one that waits for longest | `quantum` of its context |
//!
//! A quantum is the time that an engine spends on a process or a context while others wait for it: one that is alone
//! uses none of it. It is counted by turns ([`crate::engine`]), which are shorter; behind each the engine serves what
//! else waits, and comes back where the quantum is not over. A quantum of 0 is one turn.
//!
//! What must give way has a grace period, to come to an end by itself: of the band, the process or the context that
//! takes its place, from when the engine finds that ready, amid the turn or behind it. A stream that is in no command
//! buffer and in no operation has come to an end; so has one whose
//! grace period is over.
//!
//! Source: DDI pages `DXGKARG_SETUPPRIORITYBANDS`, `DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES`,
//! `DxgkDdiSetContextSchedulingProperties`. They say what the times are for, and not how a scheduler keeps them.

mod band;
mod line;
mod policy;

pub use policy::{BANDS, NORMAL, Policy, REAL_TIME, Times, Turns};

pub(crate) use policy::rank;

use crate::NoMemory;
use crate::host::Host;
use crate::queue::Queue;
use crate::shared::{Shared, try_array};
use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use band::{Band, Ready};
use core::sync::atomic::Ordering;
use policy::level;

/// Queues that get another place in line between two looks of the engine: some 10 µs.
const MOVED_AT_ONCE: usize = 32;

/// Queues that get another place in line, one entry of a band after the other.
struct Moving<H: Host> {
    /// The next entry.
    band: usize,
    at: usize,
    /// What is left of the one before.
    queues: BinaryHeap<Ready<H>>,
}

/// The turn under way.
#[derive(Clone, Copy, Default)]
struct Running {
    band: usize,
    /// The queue, by its slot.
    queue: u64,
    rank: u32,
    order: u64,
    /// The normal band has it by its share, before a higher one.
    by_share: bool,
}

/// An engine's ready queues.
pub(crate) struct Schedule<H: Host> {
    node: usize,
    bands: Box<[Band<H>; BANDS]>,
    /// Queues that are ready and have a place in line, all in all.
    ready: usize,
    /// Queues that came, ever.
    order: u64,
    /// What higher bands owe the normal one, in hundredths of a turn.
    owed: u32,
    running: Running,
    /// The end of the grace period of the queue that has the turn, or had it last.
    grace: Option<u64>,
    /// The queue that was cut off amid its work, in its grace period or before any other was ready: the next turn may
    /// be its own.
    held: Option<Shared<Queue<H>>>,
    /// Contexts have changed, and not each ready queue has its place in line yet: see [`Self::follow`].
    moving: Option<Moving<H>>,
    /// Steps of [`Self::follow`]: see [`Self::take_moved`].
    moved: u64,
    /// A queue was added since this was looked at.
    has_changed: bool,
    /// The change of the policy that was followed last.
    followed: u64,
}

impl<H: Host> Schedule<H> {
    /// Empty, of the engine of `node`.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new(node: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            node,
            bands: try_array(Band::new)?,
            ready: 0,
            order: 0,
            owed: 0,
            running: Running::default(),
            grace: None,
            held: None,
            moving: None,
            moved: 0,
            has_changed: false,
            followed: 0,
        })
    }

    /// Adds a queue that is marked as ready.
    ///
    /// # Errors
    /// The queue, where there is no memory for it.
    pub fn add(&mut self, queue: Shared<Queue<H>>) -> Result<(), Shared<Queue<H>>> {
        let context = &queue.context;
        let used = self.bands.get(self.running.band).and_then(Band::current).map_or(0, |entry| entry.used);
        // In the quantum of its context it keeps its place.
        let stays = queue.slot.pack() == self.running.queue && used < context.quantum();
        let order = if stays { self.running.order } else { self.order + 1 };
        self.insert(queue, order)?;
        self.order += u64::from(!stays);
        self.has_changed = true;
        Ok(())
    }

    /// Puts a queue in line.
    fn insert(&mut self, queue: Shared<Queue<H>>, order: u64) -> Result<(), Shared<Queue<H>>> {
        let (index, rank) = (queue.context.band(), queue.context.rank());
        let Some(band) = self.bands.get_mut(index) else { return Err(queue) };
        band.insert(Ready { rank, order, queue }, self.node, index)?;
        self.ready += 1;
        Ok(())
    }

    /// Follows changes of contexts: each queue has its place in line anew, [`MOVED_AT_ONCE`] steps in a call. `refused`
    /// gets those for which there is no memory. Returns whether each has its place.
    fn follow(&mut self, policy: &Policy, mut refused: impl FnMut(Shared<Queue<H>>)) -> bool {
        if self.moving.is_none() {
            let changes = self.changes(policy);
            if core::mem::replace(&mut self.followed, changes) == changes {
                return true;
            }
            self.moving = Some(Moving { band: 0, at: 0, queues: BinaryHeap::new() });
        }
        for _ in 0..MOVED_AT_ONCE {
            let Some(Moving { band, at, queues }) = &mut self.moving else { break };
            self.moved += 1;
            if let Some(Ready { order, queue, .. }) = queues.pop() {
                self.insert(queue, order).unwrap_or_else(&mut refused);
                continue;
            }
            let Some(entries) = self.bands.get_mut(*band) else {
                self.moving = None;
                break;
            };
            if *at == entries.entries() {
                (*band, *at) = (*band + 1, 0);
                continue;
            }
            *queues = entries.take_entry(*at);
            *at += 1;
            self.ready -= queues.len();
        }
        self.moving.is_none()
    }

    /// Returns whether contexts have changed and not each queue has its place.
    fn is_behind(&self, policy: &Policy) -> bool {
        self.moving.is_some() || self.followed != self.changes(policy)
    }

    /// How often contexts of the node have changed.
    fn changes(&self, policy: &Policy) -> u64 {
        policy.changes.get(self.node).map_or(0, |changes| changes.load(Ordering::Acquire))
    }

    /// Steps of putting queues to their places anew, since the last call.
    pub fn take_moved(&mut self) -> u64 {
        core::mem::take(&mut self.moved)
    }

    /// Returns whether no queue is ready.
    pub fn is_empty(&self) -> bool {
        self.ready == 0 && self.held.is_none() && self.moving.is_none()
    }

    /// Queues that are ready and have a place in line.
    pub fn len(&self) -> usize {
        self.ready
    }

    /// Returns whether a queue was added since the last call, or since the turn began.
    pub fn take_changed(&mut self) -> bool {
        core::mem::take(&mut self.has_changed)
    }

    /// Takes out the queue whose turn it is, at the time `now`; `None`: there is none, or not each has its place in
    /// line yet. `refused` gets queues that are ready, and for which there is no memory: the caller adds them again.
    pub fn next(
        &mut self,
        policy: &Policy,
        now: impl Fn() -> u64,
        mut refused: impl FnMut(Shared<Queue<H>>),
    ) -> Option<Shared<Queue<H>>> {
        self.has_changed = false;
        if let Some(queue) = self.held.take() {
            self.contest(policy, &queue, &now);
            if self.grace.is_some_and(|end| now() < end) {
                return Some(queue);
            }
            self.add(queue).unwrap_or_else(&mut refused);
            self.has_changed = false;
        }
        self.grace = None;
        if !self.follow(policy, refused) {
            return None;
        }
        let highest = self.bands.iter().rposition(|band| band.ready() != 0)?;
        let waits = self.bands.get(NORMAL).is_some_and(|band| band.ready() != 0);
        let (mut index, mut by_share) = (highest, false);
        if highest > NORMAL && waits {
            self.owed += policy.share.load(Ordering::Relaxed);
            if self.owed >= 100 {
                (index, by_share, self.owed) = (NORMAL, true, self.owed - 100);
            }
        } else {
            self.owed = 0;
        }
        let Ready { rank, order, queue } = self.bands.get_mut(index)?.next(policy.times(index).quantum)?;
        self.ready -= 1;
        let running = Running { band: index, queue: queue.slot.pack(), rank, order, by_share };
        self.begin(policy, &queue, running);
        Some(queue)
    }

    /// The turn of `queue` begins, which was not added: no other is ready.
    pub fn begin_alone(&mut self, policy: &Policy, queue: &Queue<H>) {
        (self.grace, self.has_changed, self.order) = (None, false, self.order + 1);
        let (band, rank) = (queue.context.band(), queue.context.rank());
        self.begin(policy, queue, Running { band, queue: queue.slot.pack(), rank, order: self.order, by_share: false });
    }

    fn begin(&mut self, policy: &Policy, queue: &Queue<H>, running: Running) {
        self.running = running;
        let index = running.band;
        let Some(turn) = queue.context.space.process.turns.of(self.node, index) else { return };
        if let Some(band) = self.bands.get_mut(index) {
            band.begin(queue, turn, policy.times(index).quantum);
        }
    }

    /// The queue whose turn it was has had the engine for `ticks` while others waited.
    pub fn ran(&mut self, ticks: u64) {
        if let Some(band) = self.bands.get_mut(self.running.band) {
            band.ran(ticks);
        }
    }

    /// How long a queue that is ready waits for the one that has the turn, which must give way to it; `None`: there is
    /// no such queue.
    pub fn preempts(&self, policy: &Policy) -> Option<u64> {
        let Running { band: index, rank, by_share, .. } = self.running;
        let higher = self.bands.iter().rposition(|band| band.ready() != 0).filter(|at| *at > index && !by_share);
        let of_band = higher.map(|at| policy.times(at).grace);
        let band = self.bands.get(index)?;
        let own = band.current().filter(|entry| entry.rank().is_some_and(|first| first > rank));
        let own = own.and_then(|entry| entry.first()).map(|queue| queue.context.grace_lower());
        let is_above = band.level_of_others().is_some_and(|other| other > level(rank));
        let others = is_above.then(|| policy.times(index).process_grace);
        [of_band, own, others].into_iter().flatten().min()
    }

    /// The turn is over, at the time `now`. Where the quantum is as well, of the process or of the context, which has
    /// `quantum`, and another has a claim, the grace period begins, unless one has begun.
    pub fn end_quantum(&mut self, policy: &Policy, quantum: u64, now: u64) {
        let Running { band: index, rank, .. } = self.running;
        let Some(band) = self.bands.get(index).filter(|_| self.grace.is_none()) else { return };
        let times = policy.times(index);
        let is_process_over = band.used() >= times.quantum;
        let own = band.current().filter(|entry| entry.used >= quantum && entry.rank() == Some(rank));
        let own = own.and_then(|entry| entry.first()).map(|queue| queue.context.grace_same());
        let is_claimed = is_process_over && band.level_of_others().is_some_and(|other| other >= level(rank));
        let others = is_claimed.then_some(times.process_grace);
        if let Some(grace) = [own, others].into_iter().flatten().min() {
            self.give_grace(now.saturating_add(grace));
        }
    }

    /// `queue` was cut off, and has no grace period. Where others are ready by now, they have come since: doorbells and
    /// write pointers are looked at between two turns. One that takes the place of `queue` waits for its grace period,
    /// as it would have done amid the turn.
    fn contest(&mut self, policy: &Policy, queue: &Queue<H>, now: impl Fn() -> u64) {
        if self.grace.is_some() || self.ready == 0 || self.is_behind(policy) {
            return;
        }
        match self.preempts(policy) {
            Some(grace) => self.give_grace(now().saturating_add(grace)),
            None => self.end_quantum(policy, queue.context.quantum(), now()),
        }
    }

    /// The queue that has the turn must have come to an end at `end`, or before.
    pub fn give_grace(&mut self, end: u64) {
        self.grace = Some(self.grace.map_or(end, |before| before.min(end)));
    }

    /// The end of the grace period of the queue that has the turn, if it has one.
    pub fn grace(&self) -> Option<u64> {
        self.grace
    }

    /// The turn of `queue`, which is marked as ready, is over amid its work. Its grace period may not be, or begins
    /// with what is found behind the turn.
    pub fn hold(&mut self, queue: Shared<Queue<H>>) {
        self.held = Some(queue);
    }

    /// The queue that has the turn has come to an end: it has no grace period any more.
    pub fn end_grace(&mut self) {
        self.grace = None;
    }
}
