//! The pool of physical doorbells: which doorbell has which.
//!
//! In the dedicated model a place is a physical doorbell. In the global model, where all share one, it is a number, and
//! there are as many as doorbells need.
//!
//! Everything about who has what lies under one lock; a doorbell does not know its own place. What takes time (the GPU
//! attaches or lets go, the OS takes a page away) happens between lock sections, while the place is in a phase in which
//! no other thread changes it. [`Hands`] does these things, so that the protocol runs by itself in tests.
//!
//! | phase | owner | may be changed by |
//! |---|---|---|
//! | `Free` | none | any connection |
//! | `Connecting` | who gets it | the thread that connects |
//! | `Connected` | who has it | any connection (as a victim), disconnection or destruction |
//! | `Disconnecting` | who had it | the thread that disconnects or destroys |
//! | `Draining` | who had it; the OS disconnected, and its rotation of the page is not proved | as `Connected` |
//! | `Taking` | who loses it, to another or since its engine is idle, if the OS takes it away | the thread that asks |
//! | `Taken` | who lost it, and is still being cleaned up after | the same thread |
//!
//! A process may have every physical doorbell while no other wants one. When they run out, the victim is the least
//! recently used one of a process that has more than its share, the process of the connection included with the
//! doorbell that it is about to get; where none has more, the least recently used of all. One that the OS has
//! disconnected goes first: no queue rings it.
//!
//! Connections that must wait have an order ([`Turn`]): as many may take a place as there are places to be had, in the
//! order in which they came, so that none that comes later passes one that waits. The OS's thread of one that waits may
//! be kept from running: while it does not look, it keeps no other waiting, and it has its turn when it looks again.
//! A doorbell that has a place is connected to it out of turn.
//!
//! Source: *User-mode work submission*; `DxgkCbDisconnectDoorbell`.

use crate::habit::Habit;
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use gpu_engine::NoMemory;
use gpu_engine::host::{Host, Lock};
use gpu_engine::queue::Queue;
use gpu_engine::shared::Shared;

/// A doorbell, as the pool knows it.
pub trait Owner: Clone {
    /// A number that no other doorbell of the adapter has or had.
    fn key(&self) -> u64;
    /// A number that the doorbells of one process, and only these, have in common.
    fn process(&self) -> u64;
    /// The number of its queue's last use: of two, the one with the greater number is the later one. Only compared, and
    /// with [`Hands::count_use`].
    fn used(&self) -> u64;
    /// Returns whether it is being destroyed: then it gets no place any more.
    fn is_closed(&self) -> bool;
}

/// What the GPU and the OS do for the pool, with no lock held.
pub trait Hands<O> {
    /// The queue of `owner` gets place `index`. The page holds nothing of its last owner
    /// when this returns.
    fn attach(&self, index: usize, owner: &O);
    /// The GPU lets go of place `index`.
    fn detach(&self, index: usize);
    /// The OS takes the page away from `owner`. Returns `false` when the OS refuses. A doorbell that the OS does not
    /// know any more has no page: `true`.
    fn take_away(&self, owner: &O) -> bool;
    /// The queue of `owner` lost its page. What it published is looked at.
    fn look(&self, owner: &O);
    /// A connection is a use: its number, greater than that of any use before it.
    fn count_use(&self) -> u64;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Free,
    Connecting,
    Connected,
    Disconnecting,
    Draining,
    Taking,
    Taken,
}

/// A physical doorbell.
struct Place<O> {
    phase: Phase,
    owner: Option<O>,
    /// The process that it counts for: the owner's, or while it is being taken that of who takes it.
    process: u64,
    /// The OS disconnected the owner while another thread was changing the place.
    is_drained: bool,
    /// The OS has refused to take it away, and no physical doorbell has changed hands since.
    is_kept: bool,
    /// The number of the connection, or of the refusal of the OS to take it away: the owner has used it then at the
    /// latest.
    used: u64,
}

impl<O: Owner> Place<O> {
    fn free() -> Self {
        Self { phase: Phase::Free, owner: None, process: 0, is_drained: false, is_kept: false, used: 0 }
    }

    fn is_of(&self, owner: &O) -> bool {
        self.owner.as_ref().is_some_and(|own| own.key() == owner.key())
    }

    /// Returns whether no thread is changing it and a doorbell has it.
    fn is_settled(&self) -> bool {
        matches!(self.phase, Phase::Connected | Phase::Draining)
    }
}

/// A connection that waits.
struct Waiting {
    /// Its number: lower ones came earlier.
    number: u64,
    /// When it looked last, in ticks.
    looked: u64,
}

/// The turn of one connection, from its first attempt to its end. [`Pool::leave`] ends it.
pub struct Turn {
    /// The number that it has since it must wait.
    number: Option<u64>,
    /// A connection that waits and has not looked for so many ticks keeps no other waiting.
    away: u64,
}

impl Turn {
    /// The turn of a connection that has not had to wait. `away`: for how many ticks of the clock of
    /// [`Pool::connect_in_turn`] one that waits may look at nothing.
    pub fn new(away: u64) -> Self {
        Self { number: None, away }
    }
}

/// What the lock guards.
pub struct Places<O> {
    /// Connections that wait, in their order. There is room for as many as there are doorbells.
    waiting: Vec<Waiting>,
    /// The last number that one of them got.
    numbers: u64,
    places: Vec<Place<O>>,
    /// How often a physical doorbell got a new owner, or none. Wraps; only compared.
    changes: u64,
}

/// What a claim found.
enum Claim<O> {
    /// The claimant's own place, or a free one: `Connecting` now.
    Mine(usize),
    /// A place to be taken from its owner: `Taking` now.
    Victim(usize, O),
    /// Every place is being changed by some other thread, or is for a connection that came earlier.
    Changing,
    /// The claimant is being destroyed.
    Closed,
}

/// What came of an attempt to connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attempt {
    /// The doorbell has this physical doorbell.
    Connected(usize),
    /// The OS refused to take a page away.
    Refused,
    /// Other threads are changing every physical doorbell, or came earlier: the next one is to be waited for.
    Changing,
    /// The doorbell is being destroyed.
    Closed,
}

impl<O: Owner> Places<O> {
    /// A place for `owner`, if it has one or its `turn` has come.
    fn claim(&mut self, owner: &O, now: u64, quota: usize, turn: &mut Turn) -> Claim<O> {
        // Inside of the section: a destruction closes the doorbell before it looks for places.
        if owner.is_closed() {
            return Claim::Closed;
        }
        let claim = self.look(owner, now, quota, turn);
        match claim {
            Claim::Changing => self.wait(now, turn),
            _ => self.leave(turn),
        }
        claim
    }

    /// Returns whether there are more places to be had than connections that wait and came before that of `turn`.
    fn has_come(&self, now: u64, turn: &Turn) -> bool {
        let is_before = |waiting: &&Waiting| {
            let is_there = now.wrapping_sub(waiting.looked) <= turn.away;
            is_there && turn.number.is_none_or(|own| waiting.number < own)
        };
        let before = self.waiting.iter().filter(is_before).count();
        let to_be_had = |place: &&Place<O>| place.phase == Phase::Free || place.is_settled();
        before < self.places.iter().filter(to_be_had).count()
    }

    /// The connection of `turn` waits, and has looked `now`. Without room it waits out of order.
    fn wait(&mut self, now: u64, turn: &mut Turn) {
        if let Some(number) = turn.number {
            let own = self.waiting.iter_mut().find(|waiting| waiting.number == number);
            own.into_iter().for_each(|own| own.looked = now);
        } else if self.waiting.len() < self.waiting.capacity() {
            self.numbers += 1;
            self.waiting.push(Waiting { number: self.numbers, looked: now });
            turn.number = Some(self.numbers);
        }
    }

    /// The connection of `turn` waits no more.
    fn leave(&mut self, turn: &mut Turn) {
        if let Some(number) = turn.number.take() {
            self.waiting.retain(|waiting| waiting.number != number);
        }
    }

    fn look(&mut self, owner: &O, now: u64, quota: usize, turn: &Turn) -> Claim<O> {
        let mut own = None;
        for (index, place) in self.places.iter().enumerate().filter(|(_, place)| place.is_of(owner)) {
            match place.phase {
                Phase::Connected => own = Some(index),
                Phase::Draining => own = own.or(Some(index)),
                // The OS may have taken the page away already: the doorbell is connected elsewhere.
                Phase::Taking | Phase::Free => {}
                Phase::Connecting | Phase::Disconnecting | Phase::Taken => return Claim::Changing,
            }
        }
        for (index, place) in self.places.iter_mut().enumerate() {
            // This call is about the same doorbell: a rotation that a place waited for is over. The caller has the
            // owner, which is not dropped for good here.
            if place.is_of(owner) && place.phase == Phase::Draining && own != Some(index) {
                *place = Place::free();
            }
        }
        if own.is_none() && !self.has_come(now, turn) {
            return Claim::Changing;
        }
        let free = || self.places.iter().position(|place| place.phase == Phase::Free);
        if let Some(index) = own.or_else(free) {
            self.give(index, owner);
            return Claim::Mine(index);
        }
        let Some(index) = self.victim(owner.process(), quota) else { return Claim::Changing };
        let place = &mut self.places[index];
        let Some(from) = place.owner.clone() else { return Claim::Changing };
        (place.phase, place.process, place.is_drained) =
            (Phase::Taking, owner.process(), place.phase == Phase::Draining);
        Claim::Victim(index, from)
    }

    /// Place `index` is being connected for `owner`. Returns who had it.
    fn give(&mut self, index: usize, owner: &O) -> Option<O> {
        self.changes = self.changes.wrapping_add(1);
        let new = Place { phase: Phase::Connecting, process: owner.process(), ..Place::free() };
        let old = core::mem::replace(&mut self.places[index], Place { owner: Some(owner.clone()), ..new });
        self.places.iter_mut().for_each(|place| place.is_kept = false);
        old.owner
    }

    /// The place to be taken for `process`, if any is settled.
    fn victim(&self, process: u64, quota: usize) -> Option<usize> {
        let count = |of: u64| self.places.iter().filter(|p| p.phase != Phase::Free && p.process == of).count();
        let first = |(index, place): &(usize, &Place<O>)| {
            place.phase != Phase::Free
                && !self.places[..*index].iter().any(|p| p.phase != Phase::Free && p.process == place.process)
        };
        let processes = self.places.iter().enumerate().filter(first).count() + usize::from(count(process) == 0);
        let share = if quota == 0 { (self.places.len() / processes.max(1)).max(1) } else { quota };
        let is_over = |of: u64| count(of) + usize::from(of == process) > share;
        let order = |place: &Place<O>| {
            let is_used = place.phase != Phase::Draining;
            let used = place.owner.as_ref().map_or(0, Owner::used).max(place.used);
            (is_used, place.is_kept, !is_over(place.process), used)
        };
        let settled = self.places.iter().enumerate().filter(|(_, place)| place.is_settled());
        settled.min_by_key(|(_, place)| order(place)).map(|(index, _)| index)
    }

    /// Place `index` has no owner any more. Returns who had it.
    fn free(&mut self, index: usize) -> Option<O> {
        self.changes = self.changes.wrapping_add(1);
        self.places.iter_mut().for_each(|place| place.is_kept = false);
        core::mem::replace(&mut self.places[index], Place::free()).owner
    }
}

/// The physical doorbells of an adapter. Every function at `DISPATCH_LEVEL` or below as far as its [`Hands`] are.
pub struct Pool<O: Owner, L: Lock<Places<O>>> {
    places: L,
    keys: AtomicU64,
    owner: PhantomData<fn(O)>,
}

impl<O: Owner, L: Lock<Places<O>>> Pool<O, L> {
    /// A pool of `len` places, all free.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new(len: usize) -> Result<Self, NoMemory> {
        let places = L::new(Places { waiting: Vec::new(), numbers: 0, places: Vec::new(), changes: 0 });
        let pool = Self { places, keys: AtomicU64::new(0), owner: PhantomData };
        pool.have(len)?;
        Ok(pool)
    }

    /// Makes it `len` places at least. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn have(&self, len: usize) -> Result<(), NoMemory> {
        self.places.with(|places| {
            let places = &mut places.places;
            places.try_reserve(len.saturating_sub(places.len()))?;
            if places.len() < len {
                places.resize_with(len, Place::free);
            }
            Ok(())
        })
    }

    /// Makes room for `len` connections that wait at least. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn expect(&self, len: usize) -> Result<(), NoMemory> {
        self.places.with(|places| {
            let waiting = &mut places.waiting;
            Ok(waiting.try_reserve(len.saturating_sub(waiting.len()))?)
        })
    }

    /// The connection of `turn` has ended, whatever came of it.
    pub fn leave(&self, mut turn: Turn) {
        // One that had not to wait is in no list: a connection takes the lock once.
        if turn.number.is_some() {
            self.places.with(|places| places.leave(&mut turn));
        }
    }

    /// How many places there are.
    pub fn len(&self) -> usize {
        self.places.with(|places| places.places.len())
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A number for [`Owner::key`].
    pub fn new_key(&self) -> u64 {
        self.keys.fetch_add(1, Ordering::Relaxed)
    }

    /// How often a physical doorbell got a new owner, or none. Wraps; only compared.
    pub fn changes(&self) -> u64 {
        self.places.with(|places| places.changes)
    }

    /// Connects `owner`: to the place that it has, or in its `turn` to a free one, or another doorbell's. `now`: ticks.
    /// `quota`: physical doorbells that a process may keep while another wants one; 0: an even share.
    pub fn connect_in_turn(
        &self,
        hands: &impl Hands<O>,
        owner: &O,
        now: u64,
        quota: usize,
        turn: &mut Turn,
    ) -> Attempt {
        let index = match self.places.with(|places| places.claim(owner, now, quota, turn)) {
            Claim::Mine(index) => index,
            Claim::Changing => return Attempt::Changing,
            Claim::Closed => return Attempt::Closed,
            Claim::Victim(index, from) => {
                if !hands.take_away(&from) {
                    self.keep(hands, index, &from);
                    return Attempt::Refused;
                }
                self.taken(hands, index, &from);
                let (is_closed, old) = self.places.with(|places| match owner.is_closed() {
                    true => (true, places.free(index)),
                    false => (false, places.give(index, owner)),
                });
                drop(old);
                if is_closed {
                    return Attempt::Closed;
                }
                index
            }
        };
        hands.attach(index, owner);
        let used = hands.count_use();
        let is_drained = self.places.with(|places| {
            let place = &mut places.places[index];
            place.used = used;
            place.phase = if place.is_drained { Phase::Disconnecting } else { Phase::Connected };
            place.is_drained
        });
        if is_drained {
            self.drain(hands, index);
        }
        Attempt::Connected(index)
    }

    /// Has the OS disconnect every doorbell of which `may_go` says so, and which it has not refused to disconnect
    /// before: its place is free then, and its work is looked at once more. `may_go` is called with a lock held.
    pub fn let_go(&self, hands: &impl Hands<O>, mut may_go: impl FnMut(&O) -> bool) {
        for index in 0..self.len() {
            let from = self.places.with(|places| {
                let place = places.places.get_mut(index)?;
                let is_settled = place.phase == Phase::Connected && !place.is_kept;
                let owner = place.owner.as_ref().filter(|owner| is_settled && may_go(owner)).cloned()?;
                (place.phase, place.is_drained) = (Phase::Taking, false);
                Some(owner)
            });
            let Some(from) = from else { continue };
            if hands.take_away(&from) {
                self.taken(hands, index, &from);
                drop(self.places.with(|places| places.free(index)));
            } else {
                self.keep(hands, index, &from);
            }
        }
    }

    /// The OS has taken place `index`, which is `Taking`, from the doorbell `from`. While the place is `Taken`, that
    /// doorbell connects nowhere else. So the OS does not disconnect it from there while its write pointer is taken off
    /// the watch here.
    fn taken(&self, hands: &impl Hands<O>, index: usize, from: &O) {
        let elsewhere = self.places.with(|places| {
            places.places[index].phase = Phase::Taken;
            places.places.iter().filter(|place| place.is_of(from)).count() > 1
        });
        hands.detach(index);
        if !elsewhere {
            hands.look(from);
        }
    }

    /// The OS keeps the doorbell `from` connected to place `index`, which is `Taking`. Of one that is destroyed, which
    /// may not have waited for this, the place is free.
    fn keep(&self, hands: &impl Hands<O>, index: usize, from: &O) {
        let used = hands.count_use();
        let is_drained = self.places.with(|places| {
            let elsewhere = places.places.iter().filter(|place| place.is_of(from)).count() > 1;
            let place = &mut places.places[index];
            (place.process, place.is_kept, place.used) = (from.process(), true, used);
            let is_drained = place.is_drained || elsewhere;
            place.phase = if is_drained { Phase::Disconnecting } else { Phase::Connected };
            is_drained
        });
        if is_drained {
            self.drain(hands, index);
        }
        if from.is_closed() {
            self.release(hands, from);
        }
    }

    /// The GPU lets go of place `index`, which is `Disconnecting`; then it is draining.
    fn drain(&self, hands: &impl Hands<O>, index: usize) {
        hands.detach(index);
        self.places.with(|places| {
            let place = &mut places.places[index];
            (place.phase, place.is_drained) = (Phase::Draining, false);
        });
    }

    /// The OS disconnects `owner`, and rotates its page later: its place is draining from now on. Where another thread
    /// is changing the place, that thread sees to it.
    pub fn disconnect(&self, hands: &impl Hands<O>, owner: &O) {
        let index = self.places.with(|places| {
            let mut connected = None;
            for (index, place) in places.places.iter_mut().enumerate().filter(|(_, place)| place.is_of(owner)) {
                match place.phase {
                    Phase::Connected => (place.phase, connected) = (Phase::Disconnecting, Some(index)),
                    Phase::Connecting | Phase::Taking => place.is_drained = true,
                    Phase::Free | Phase::Disconnecting | Phase::Draining | Phase::Taken => {}
                }
            }
            connected
        });
        if let Some(index) = index {
            self.drain(hands, index);
        }
    }

    /// `owner`, which is closed, gives back what it has. Returns `false` while another thread is changing a place of
    /// it: then the caller asks again.
    pub fn release(&self, hands: &impl Hands<O>, owner: &O) -> bool {
        loop {
            let next = self.places.with(|places| {
                let mut own = places.places.iter_mut().enumerate().filter(|(_, place)| place.is_of(owner));
                own.next().map(|(index, place)| {
                    let is_settled = place.is_settled();
                    if is_settled {
                        place.phase = Phase::Disconnecting;
                    }
                    (index, is_settled)
                })
            });
            match next {
                None => return true,
                Some((_, false)) => return false,
                Some((index, true)) => {
                    hands.detach(index);
                    drop(self.places.with(|places| places.free(index)));
                }
            }
        }
    }
}

/// A doorbell that may get a physical one, with what is needed to take that away again.
pub struct Claimant<H: Host> {
    /// A number that no other doorbell of the adapter has or had.
    pub key: u64,
    /// A number that no other process alive has: the address of the driver's object.
    pub process: u64,
    /// Dxgkrnl's handle of the queue.
    pub os_queue: u64,
    /// Dxgkrnl's handle of the doorbell.
    pub os: u64,
    /// The queue.
    pub queue: Shared<Queue<H>>,
    /// How the queue submits.
    pub habit: Shared<Habit>,
    /// Whether the doorbell is being destroyed. Written once, by the destruction, before it looks for places.
    pub closed: Shared<AtomicBool>,
}

impl<H: Host> Clone for Claimant<H> {
    fn clone(&self) -> Self {
        let (queue, habit, closed) = (self.queue.clone(), self.habit.clone(), self.closed.clone());
        Self { key: self.key, process: self.process, os_queue: self.os_queue, os: self.os, queue, habit, closed }
    }
}

impl<H: Host> Owner for Claimant<H> {
    fn key(&self) -> u64 {
        self.key
    }
    fn process(&self) -> u64 {
        self.process
    }
    fn used(&self) -> u64 {
        self.queue.used.load(Ordering::Relaxed)
    }
    fn is_closed(&self) -> bool {
        // Relaxed: the pool's lock orders the destruction's store against the claim.
        self.closed.load(Ordering::Relaxed)
    }
}

/// The pool of an adapter whose GPU runs on `H`.
pub type Doorbells<H> = Pool<Claimant<H>, <H as Host>::Lock<Places<Claimant<H>>>>;

#[cfg(test)]
mod tests;
