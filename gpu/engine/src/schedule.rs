//! Which ready queue an engine runs next: bands of priority, in each of them processes by turns, and in each process
//! its contexts.
//!
//! The list is the engine's own. Other agents hand queues over in [`crate::arrivals`]; those that the engine itself
//! finds go straight here.
//!
//! | among | goes first | for how long |
//! |---|---|---|
//! | bands | the higher one; the normal band has a share of the turns all the same (`targetNormalBandPercentage`), so that a process in focus leaves it some, and the idle band has none | until it has nothing ready |
//! | contexts of the real-time band | the higher level (`realtimeBandPriorityLevel`) | until it has nothing ready |
//! | processes of a band | the one that was served least recently, however many queues each has | `processQuantumForBand` |
//! | contexts of a process | the higher priority (`inProcessPriority`) | until it has nothing ready |
//! | contexts of one priority | the one that waits for longest | `quantum` |
//!
//! A quantum is the time that an engine spends on a process or a context while others wait for it: one that is alone
//! uses none of it. It is counted by turns ([`crate::engine`]), which are shorter; behind each the engine serves what
//! else waits, and comes back where the quantum is not over. A quantum of 0 is one turn.
//!
//! What must give way has a grace period, to come to an end by itself: of the band, the process or the context that
//! takes its place. A stream that is in no command buffer and in no operation has come to an end; so has one whose
//! grace period is over.
//!
//! Source: DDI pages `DXGKARG_SETUPPRIORITYBANDS`, `DXGKARG_SETCONTEXTSCHEDULINGPROPERTIES`,
//! `DxgkDdiSetContextSchedulingProperties`. They say what the times are for, and not how a scheduler keeps them.

use crate::NoMemory;
use crate::host::Host;
use crate::queue::Queue;
use crate::shared::{Shared, try_array};
use alloc::boxed::Box;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering as AtomicOrdering};
use gpu_wire::NODE_COUNT;

/// Bands of priority: idle, normal, focus, real time.
pub const BANDS: usize = 4;
/// The band that contexts start in.
pub const NORMAL: usize = 1;
/// The band in which contexts have levels.
pub const REAL_TIME: usize = 3;

/// The share of the normal band until the OS sets one. Source: DXGKARG_SETUPPRIORITYBANDS, targetNormalBandPercentage
/// (0 to 50, 10 by default).
const SHARE: u32 = 10;
/// Bits of a rank that are the priority within a process.
const PRIORITY_BITS: u32 = 4;

/// What an engine knows of a process in a band. The node's engine writes it.
#[derive(Default)]
struct Turn {
    /// When the process was served last: a number of the band.
    served: AtomicU64,
    /// Where its entry is, if it has one.
    place: AtomicU32,
}

/// What the engines know of a process, per node and band.
#[derive(Default)]
pub struct Turns([[Turn; BANDS]; NODE_COUNT]);

impl Turns {
    fn of(&self, node: usize, band: usize) -> Option<&Turn> {
        self.0.get(node)?.get(band)
    }
}

/// Times of a band.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// For how long a process has the engine before another one of the band has it.
    pub quantum: u64,
    /// How long a process of the band waits for one that it takes the place of.
    pub process_grace: u64,
    /// How long the band waits for a lower one that it takes the place of.
    pub grace: u64,
}

/// What the OS says of the bands. Times are ticks of the GPU clock. Any thread writes it, engines read it.
pub struct Policy {
    /// The share of the normal band in the turns while higher bands have work, in hundredths.
    share: AtomicU32,
    /// Of each band: its quantum, the grace of a process, the grace of the band.
    times: [[AtomicU64; 3]; BANDS],
    /// How often a context got other properties.
    changes: AtomicU64,
}

impl Policy {
    /// Before the OS has said anything: turns by turns, and no grace.
    pub fn new() -> Self {
        Self { share: AtomicU32::new(SHARE), times: Default::default(), changes: AtomicU64::new(0) }
    }

    /// Sets the share of the normal band in the turns while higher bands have work, in hundredths; above 50 it is 50.
    pub fn set_share(&self, percent: u32) {
        self.share.store(percent.min(50), AtomicOrdering::Relaxed);
    }

    /// Sets the times of a band.
    pub fn set_times(&self, band: usize, times: Times) {
        let Some(places) = self.times.get(band) else { return };
        for (place, time) in places.iter().zip([times.quantum, times.process_grace, times.grace]) {
            place.store(time, AtomicOrdering::Relaxed);
        }
    }

    /// A context has other properties: its queues that are ready have other places in line.
    pub(crate) fn note_change(&self) {
        // Release: the properties are seen by an engine that sees the number.
        self.changes.fetch_add(1, AtomicOrdering::Release);
    }

    fn times(&self, band: usize) -> Times {
        let Some([quantum, process_grace, grace]) = self.times.get(band) else { return Times::default() };
        let [quantum, process_grace, grace] =
            [quantum, process_grace, grace].map(|time| time.load(AtomicOrdering::Relaxed));
        Times { quantum, process_grace, grace }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::new()
    }
}

/// The rank of a context in its band: of the level of the real-time band, and of the priority within its process, which
/// is -7 to 7. What is beyond counts as the nearest of them.
pub(crate) fn rank(band: usize, level: i32, priority: i32) -> u32 {
    let level = if band == REAL_TIME { level.clamp(0, 31).cast_unsigned() } else { 0 };
    level << PRIORITY_BITS | (priority.clamp(-7, 7) + 7).cast_unsigned()
}

/// The level in a rank.
fn level(rank: u32) -> u32 {
    rank >> PRIORITY_BITS
}

/// Queues that get another place in line between two looks of the engine: some 10 µs.
const MOVED_AT_ONCE: usize = 32;

/// A queue that is ready.
struct Ready<H: Host> {
    rank: u32,
    /// Among queues of one rank, the least is next.
    order: u64,
    queue: Shared<Queue<H>>,
}

impl<H: Host> PartialEq for Ready<H> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<H: Host> Eq for Ready<H> {}

impl<H: Host> PartialOrd for Ready<H> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<H: Host> Ord for Ready<H> {
    /// The greatest is next.
    fn cmp(&self, other: &Self) -> Ordering {
        (self.rank, other.order).cmp(&(other.rank, self.order))
    }
}

/// The ready queues of one process in a band; without any, a place for those of another.
struct Entry<H: Host> {
    /// The process, by its number.
    process: u64,
    /// When it was served last.
    served: u64,
    /// The context of it that was served last, by its slot, and what of its quantum that has used.
    context: u64,
    used: u64,
    queues: BinaryHeap<Ready<H>>,
    /// It is in the band's list of empty entries. It may have queues again.
    is_listed: bool,
}

impl<H: Host> Entry<H> {
    /// The rank of its first queue, if it has one.
    fn rank(&self) -> Option<u32> {
        self.queues.peek().map(|ready| ready.rank)
    }

    /// Its first queue.
    fn first(&self) -> Option<&Queue<H>> {
        self.queues.peek().map(|ready| &*ready.queue)
    }
}

/// One band.
struct Band<H: Host> {
    entries: Vec<Entry<H>>,
    /// Entries that have become empty, in that order. There is room for all.
    empty: VecDeque<u32>,
    /// Queues that are ready.
    ready: usize,
    /// How often a process was served.
    served: u64,
    /// The process that was served last, where its entry is if it has one, and what of its quantum it has used.
    process: u64,
    place: usize,
    used: u64,
}

impl<H: Host> Band<H> {
    /// The entries of processes that have a ready queue, with the rank of the first.
    fn waiting(&self) -> impl Iterator<Item = (usize, &Entry<H>, u32)> {
        let ranked = |(at, entry): (usize, _)| Entry::rank(entry).map(|rank| (at, entry, rank));
        self.entries.iter().enumerate().filter_map(ranked)
    }

    /// The entry of the process whose turn it is.
    fn pick(&self, quantum: u64) -> Option<usize> {
        let highest = self.waiting().map(|(.., rank)| level(rank)).max()?;
        let candidates = || self.waiting().filter(|(.., rank)| level(*rank) == highest);
        let current = || candidates().find(|(_, entry, _)| entry.process == self.process);
        let goes_on = if self.used < quantum { current() } else { None };
        goes_on.or_else(|| candidates().min_by_key(|(_, entry, _)| entry.served)).map(|(at, ..)| at)
    }

    /// The entry of the process that was served last, if it has one.
    fn current(&self) -> Option<&Entry<H>> {
        self.entries.get(self.place).filter(|entry| entry.process == self.process)
    }

    /// The entry for `process`: its own, one that is empty for longest, or a new one. No search: the engine calls this
    /// for each queue that it takes in or wakes, however many processes there are.
    fn entry(&mut self, process: u64, turn: &Turn) -> Result<&mut Entry<H>, NoMemory> {
        // CAST: as many as there are processes.
        let own = turn.place.load(AtomicOrdering::Relaxed) as usize;
        if self.entries.get(own).is_none_or(|entry| entry.process != process) {
            let at = match self.take_empty() {
                Some(at) => at,
                None => self.new_entry(process)?,
            };
            if let Some(entry) = self.entries.get_mut(at) {
                (entry.process, entry.context, entry.used) = (process, 0, 0);
            }
            // CAST: as above.
            turn.place.store(at as u32, AtomicOrdering::Relaxed);
            if process == self.process {
                self.place = at;
            }
        }
        // CAST: as above.
        self.entries.get_mut(turn.place.load(AtomicOrdering::Relaxed) as usize).ok_or(NoMemory)
    }

    fn new_entry(&mut self, process: u64) -> Result<usize, NoMemory> {
        self.entries.try_reserve(1)?;
        let at = self.entries.len();
        self.empty.try_reserve(at + 1 - self.empty.len())?;
        let queues = BinaryHeap::new();
        self.entries.push(Entry { process, served: 0, context: 0, used: 0, queues, is_listed: false });
        Ok(at)
    }

    /// An entry without queues, if there is one. Each that is passed over on the way was emptied once for that.
    fn take_empty(&mut self) -> Option<usize> {
        loop {
            // CAST: as in `entry`.
            let at = self.empty.pop_front()? as usize;
            let entry = self.entries.get_mut(at)?;
            entry.is_listed = false;
            if entry.queues.is_empty() {
                return Some(at);
            }
        }
    }

    /// The entry at `at` may have become empty.
    fn list_empty(&mut self, at: usize) {
        let Some(entry) = self.entries.get_mut(at).filter(|entry| entry.queues.is_empty() && !entry.is_listed) else {
            return;
        };
        entry.is_listed = true;
        // CAST: as in `entry`.
        self.empty.push_back(at as u32);
    }
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
    /// Queues that are ready, all in all.
    ready: usize,
    /// Queues that came, ever.
    order: u64,
    /// What higher bands owe the normal one, in hundredths of a turn.
    owed: u32,
    running: Running,
    /// The end of the grace period of the queue that has the turn, or had it last.
    grace: Option<u64>,
    /// That queue, behind a turn in its grace period: the next turn is its own.
    held: Option<Shared<Queue<H>>>,
    /// Queues that are ready and have no place in line, since those of contexts have changed: see [`Self::follow`].
    moving: Vec<BinaryHeap<Ready<H>>>,
    /// Queues that [`Self::follow`] has put to their places anew: see [`Self::take_moved`].
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
        let band =
            || Band { entries: Vec::new(), empty: VecDeque::new(), ready: 0, served: 0, process: 0, place: 0, used: 0 };
        Ok(Self {
            node,
            bands: try_array(band)?,
            ready: 0,
            order: 0,
            owed: 0,
            running: Running::default(),
            grace: None,
            held: None,
            moving: Vec::new(),
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
        let context = &queue.context;
        let (index, process) = (context.band(), &context.space.process);
        let Some(band) = self.bands.get_mut(index) else { return Err(queue) };
        let Some(turn) = process.turns.of(self.node, index) else { return Err(queue) };
        let Ok(entry) = band.entry(process.number, turn) else { return Err(queue) };
        if entry.queues.try_reserve(1).is_err() {
            // CAST: as in `entry`.
            band.list_empty(turn.place.load(AtomicOrdering::Relaxed) as usize);
            return Err(queue);
        }
        if entry.queues.is_empty() {
            entry.served = turn.served.load(AtomicOrdering::Relaxed);
        }
        let rank = context.rank();
        entry.queues.push(Ready { rank, order, queue });
        (band.ready, self.ready) = (band.ready + 1, self.ready + 1);
        Ok(())
    }

    /// Follows changes of contexts: each queue has its place in line anew, [`MOVED_AT_ONCE`] of them in a call.
    /// `refused` gets those for which there is no memory; without any, the next turn follows. Returns whether each has
    /// its place.
    fn follow(&mut self, policy: &Policy, mut refused: impl FnMut(Shared<Queue<H>>)) -> bool {
        let changes = policy.changes.load(AtomicOrdering::Acquire);
        let entries = self.bands.iter().map(|band| band.entries.len()).sum();
        if self.moving.is_empty() {
            if changes == self.followed || self.moving.try_reserve_exact(entries).is_err() {
                return true;
            }
            for band in self.bands.iter_mut() {
                let queues = band.entries.iter_mut().map(|entry| core::mem::take(&mut entry.queues));
                self.moving.extend(queues.filter(|queues| !queues.is_empty()));
                (0..band.entries.len()).for_each(|at| band.list_empty(at));
                band.ready = 0;
            }
            (self.ready, self.followed) = (0, changes);
        }
        for _ in 0..MOVED_AT_ONCE {
            let Some(queues) = self.moving.last_mut() else { break };
            if let Some(Ready { order, queue, .. }) = queues.pop() {
                self.moved += 1;
                self.insert(queue, order).unwrap_or_else(&mut refused);
            }
            if self.moving.last().is_some_and(BinaryHeap::is_empty) {
                self.moving.pop();
            }
        }
        self.moving.is_empty()
    }

    /// Queues that were put to their places anew since the last call.
    pub fn take_moved(&mut self) -> u64 {
        core::mem::take(&mut self.moved)
    }

    /// Returns whether no queue is ready.
    pub fn is_empty(&self) -> bool {
        self.ready == 0 && self.held.is_none() && self.moving.is_empty()
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
        now: impl FnOnce() -> u64,
        mut refused: impl FnMut(Shared<Queue<H>>),
    ) -> Option<Shared<Queue<H>>> {
        self.has_changed = false;
        if let Some(queue) = self.held.take() {
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
        let highest = self.bands.iter().rposition(|band| band.ready != 0)?;
        let waits = self.bands.get(NORMAL).is_some_and(|band| band.ready != 0);
        let (mut index, mut by_share) = (highest, false);
        if highest > NORMAL && waits {
            self.owed += policy.share.load(AtomicOrdering::Relaxed);
            if self.owed >= 100 {
                (index, by_share, self.owed) = (NORMAL, true, self.owed - 100);
            }
        } else {
            self.owed = 0;
        }
        let band = self.bands.get_mut(index)?;
        let at = band.pick(policy.times(index).quantum)?;
        let Ready { rank, order, queue } = band.entries.get_mut(at)?.queues.pop()?;
        band.list_empty(at);
        (band.ready, self.ready) = (band.ready - 1, self.ready - 1);
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
        let Some(band) = self.bands.get_mut(index) else { return };
        let (process, context) = (&queue.context.space.process, queue.context.slot.pack());
        let is_new = band.process != process.number || band.used >= policy.times(index).quantum;
        let Some(turn) = process.turns.of(self.node, index) else { return };
        // CAST: as in `entry`.
        band.place = turn.place.load(AtomicOrdering::Relaxed) as usize;
        if is_new {
            band.served += 1;
            (band.process, band.used) = (process.number, 0);
            turn.served.store(band.served, AtomicOrdering::Relaxed);
        }
        let Some(entry) = band.entries.get_mut(band.place).filter(|entry| entry.process == process.number) else {
            return;
        };
        if is_new {
            entry.served = band.served;
        }
        if entry.context != context || entry.used >= queue.context.quantum() {
            (entry.context, entry.used) = (context, 0);
        }
    }

    /// The queue whose turn it was has had the engine for `ticks` while others waited.
    pub fn ran(&mut self, ticks: u64) {
        let Some(band) = self.bands.get_mut(self.running.band) else { return };
        band.used = band.used.saturating_add(ticks);
        if let Some(entry) = band.entries.get_mut(band.place).filter(|entry| entry.process == band.process) {
            entry.used = entry.used.saturating_add(ticks);
        }
    }

    /// How long a queue that is ready waits for the one that has the turn, which must give way to it; `None`: there is
    /// no such queue.
    pub fn preempts(&self, policy: &Policy) -> Option<u64> {
        let Running { band: index, rank, by_share, .. } = self.running;
        let higher = self.bands.iter().rposition(|band| band.ready != 0).filter(|at| *at > index && !by_share);
        let of_band = higher.map(|at| policy.times(at).grace);
        let band = self.bands.get(index)?;
        let in_band = band.waiting().filter_map(|(_, entry, first)| {
            let is_own = entry.process == band.process;
            match level(first).cmp(&level(rank)) {
                _ if is_own && first > rank => entry.first().map(|queue| queue.context.grace_lower()),
                Ordering::Greater => Some(policy.times(index).process_grace),
                _ => None,
            }
        });
        in_band.chain(of_band).min()
    }

    /// The turn is over, at the time `now`. Where the quantum is as well, of the process or of the context, which has
    /// `quantum`, and another has a claim, the grace period begins, unless one has begun.
    pub fn end_quantum(&mut self, policy: &Policy, quantum: u64, now: u64) {
        let Running { band: index, rank, .. } = self.running;
        let Some(band) = self.bands.get(index).filter(|_| self.grace.is_none()) else { return };
        let times = policy.times(index);
        let is_process_over = band.used >= times.quantum;
        let is_context_over = band.current().is_some_and(|entry| entry.used >= quantum);
        let claims = band.waiting().filter_map(|(_, entry, first)| match entry.process == band.process {
            true if is_context_over && first == rank => entry.first().map(|queue| queue.context.grace_same()),
            false if is_process_over && level(first) == level(rank) => Some(times.process_grace),
            _ => None,
        });
        if let Some(grace) = claims.min() {
            self.give_grace(now.saturating_add(grace));
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

    /// The turn of `queue`, which is marked as ready, is over, and its grace period may not be.
    pub fn hold(&mut self, queue: Shared<Queue<H>>) {
        self.held = Some(queue);
    }

    /// The queue that has the turn has come to an end: it has no grace period any more.
    pub fn end_grace(&mut self) {
        self.grace = None;
    }
}
