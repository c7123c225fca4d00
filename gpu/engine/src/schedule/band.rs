//! A band: the ready queues of its processes, and whose turn it is among them.

use super::line::Line;
use super::policy::{Turn, level};
use crate::NoMemory;
use crate::host::Host;
use crate::queue::Queue;
use crate::shared::Shared;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::sync::atomic::Ordering::Relaxed;

/// A queue that is ready.
pub(super) struct Ready<H: Host> {
    pub rank: u32,
    /// Among queues of one rank, the least is next.
    pub order: u64,
    pub queue: Shared<Queue<H>>,
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
pub(super) struct Entry<H: Host> {
    /// The process, by its number.
    process: u64,
    /// When it was served last.
    served: u64,
    /// The context of it that was served last, by its slot, and what of its quantum that has used.
    context: u64,
    pub used: u64,
    queues: BinaryHeap<Ready<H>>,
    /// It is in the band's list of empty entries. It may have queues again.
    is_listed: bool,
}

impl<H: Host> Entry<H> {
    /// The rank of its first queue, if it has one.
    pub fn rank(&self) -> Option<u32> {
        self.queues.peek().map(|ready| ready.rank)
    }

    /// Its first queue.
    pub fn first(&self) -> Option<&Queue<H>> {
        self.queues.peek().map(|ready| &*ready.queue)
    }
}

/// One band.
pub(super) struct Band<H: Host> {
    entries: Vec<Entry<H>>,
    /// The entries that have ready queues.
    line: Line,
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
    /// Without any queue.
    pub fn new() -> Self {
        let (entries, line, empty) = (Vec::new(), Line::default(), VecDeque::new());
        Self { entries, line, empty, ready: 0, served: 0, process: 0, place: 0, used: 0 }
    }

    /// Queues that are ready.
    pub fn ready(&self) -> usize {
        self.ready
    }

    /// Entries, with and without queues.
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// Puts a queue in line: on `node`, in this band, which is number `band`.
    ///
    /// # Errors
    /// The queue, where there is no memory for it.
    pub fn insert(&mut self, ready: Ready<H>, node: usize, band: usize) -> Result<(), Shared<Queue<H>>> {
        let process = &ready.queue.context.space.process;
        let Some(turn) = process.turns.of(node, band) else { return Err(ready.queue) };
        // A number above all of this band's is of the band of an engine that was replaced.
        let served = turn.served.load(Relaxed).min(self.served);
        let Ok(at) = self.entry(process.number, turn) else { return Err(ready.queue) };
        let Some(entry) = self.entries.get_mut(at) else { return Err(ready.queue) };
        if entry.queues.try_reserve(1).is_err() {
            self.changed(at);
            return Err(ready.queue);
        }
        if entry.queues.is_empty() {
            entry.served = served;
        }
        entry.queues.push(ready);
        self.ready += 1;
        self.changed(at);
        Ok(())
    }

    /// Takes out the queue whose turn it is, where a process has the quantum `quantum`.
    pub fn next(&mut self, quantum: u64) -> Option<Ready<H>> {
        let at = self.pick(quantum)?;
        let ready = self.entries.get_mut(at)?.queues.pop()?;
        self.ready -= 1;
        self.changed(at);
        Some(ready)
    }

    /// Takes out all queues of the entry `at`.
    pub fn take_entry(&mut self, at: usize) -> BinaryHeap<Ready<H>> {
        let queues = self.entries.get_mut(at).map(|entry| core::mem::take(&mut entry.queues)).unwrap_or_default();
        self.ready -= queues.len();
        self.changed(at);
        queues
    }

    /// The turn of a queue of `context` begins, whose process has `turn` and the quantum `quantum`.
    pub fn begin(&mut self, queue: &Queue<H>, turn: &Turn, quantum: u64) {
        let (process, context) = (queue.context.space.process.number, queue.context.slot.pack());
        let is_new = self.process != process || self.used >= quantum;
        // CAST: as in `entry`.
        self.place = turn.place.load(Relaxed) as usize;
        if is_new {
            self.served += 1;
            (self.process, self.used) = (process, 0);
            turn.served.store(self.served, Relaxed);
        }
        let Some(entry) = self.entries.get_mut(self.place).filter(|entry| entry.process == process) else { return };
        if is_new {
            entry.served = self.served;
        }
        if entry.context != context || entry.used >= queue.context.quantum() {
            (entry.context, entry.used) = (context, 0);
        }
        self.changed(self.place);
    }

    /// The queue that has the turn has had the engine for `ticks` while others waited.
    pub fn ran(&mut self, ticks: u64) {
        self.used = self.used.saturating_add(ticks);
        if let Some(entry) = self.entries.get_mut(self.place).filter(|entry| entry.process == self.process) {
            entry.used = entry.used.saturating_add(ticks);
        }
    }

    /// What the process that was served last has used of its quantum.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// The entry of the process that was served last, if it has one.
    pub fn current(&self) -> Option<&Entry<H>> {
        self.entries.get(self.place).filter(|entry| entry.process == self.process)
    }

    /// The highest level of a ready queue of another process than that which was served last.
    pub fn level_of_others(&self) -> Option<u32> {
        self.line.level_besides(self.current().map(|_| self.place))
    }

    /// The entry of the process whose turn it is.
    fn pick(&self, quantum: u64) -> Option<usize> {
        let (first, highest) = self.line.first()?;
        let goes_on = self.used < quantum && self.current().is_some();
        let current = Some(self.place).filter(|at| goes_on && self.line.level_of(*at) == Some(highest));
        Some(current.unwrap_or(first))
    }

    /// The place of the entry for `process`: its own, one that is empty for longest, or a new one. No search: the
    /// engine calls this for each queue that it takes in or wakes, however many processes there are.
    fn entry(&mut self, process: u64, turn: &Turn) -> Result<usize, NoMemory> {
        // CAST: as many as there are processes.
        let own = turn.place.load(Relaxed) as usize;
        if self.entries.get(own).is_some_and(|entry| entry.process == process) {
            return Ok(own);
        }
        let at = match self.take_empty() {
            Some(at) => at,
            None => self.new_entry(process)?,
        };
        if let Some(entry) = self.entries.get_mut(at) {
            (entry.process, entry.context, entry.used) = (process, 0, 0);
        }
        // CAST: as above.
        turn.place.store(at as u32, Relaxed);
        if process == self.process {
            self.place = at;
        }
        Ok(at)
    }

    fn new_entry(&mut self, process: u64) -> Result<usize, NoMemory> {
        self.entries.try_reserve(1)?;
        let at = self.entries.len();
        self.empty.try_reserve(at + 1 - self.empty.len())?;
        self.line.grow()?;
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

    /// The entry at `at` has other queues, or was served: it has its place in line, or among the empty ones.
    fn changed(&mut self, at: usize) {
        let Some(entry) = self.entries.get_mut(at) else { return };
        match entry.rank() {
            Some(rank) => self.line.put(at, level(rank), entry.served),
            None => {
                self.line.leave(at);
                if !core::mem::replace(&mut entry.is_listed, true) {
                    // CAST: as in `entry`.
                    self.empty.push_back(at as u32);
                }
            }
        }
    }
}
