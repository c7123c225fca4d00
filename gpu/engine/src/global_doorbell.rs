//! The global doorbell: one page for every connected queue. Two processes may store the same value, so that a ring says
//! no more than that some queue was rung, and all that are connected are looked at.
//!
//! A round through the list takes as many steps of the engines as it must: a part between two turns, so that a
//! process that rings without an end takes no more of another's turn. It stands here and not in an engine: whichever
//! engine takes the ring begins the round and wakes the others that look for rings, and each of these goes on with it,
//! so that none that is held keeps it. A ring during a round begins another one when that is over, so that no ringing
//! keeps the round from coming to an end.
//!
//! ORDERING[DB-1]: the engine that has taken the ring out of the page (Acquire) begins the round under the list's lock,
//! and an engine that goes on with it holds that: so the write pointers are read behind the ring.

use crate::NoMemory;
use crate::gpu::{Gpu, token};
use crate::host::{Host, Lock};
use crate::mutation::Mutation;
use crate::queue::Queue;
use crate::shared::Shared;
use crate::word::Ordering;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32};
use gpu_wire::NODE_COUNT;
use gpu_wire::doorbell::Token;

/// Connected doorbells that an engine looks at between two looks of its own.
const AT_ONCE: usize = 64;
/// Among how many connected doorbells the one that was rung is looked for, so that it comes first.
const SEARCHED: usize = 1_024;

/// A doorbell that is connected in the global model.
struct Connected<H: Host> {
    /// Its number.
    place: u64,
    /// What a ring names its queue by. Here and not looked up, so that the search touches nothing but the list.
    token: Token,
    queue: Shared<Queue<H>>,
    /// Whether the node's engine looks for its rings.
    watched: bool,
}

struct Connections<H: Host> {
    list: Vec<Connected<H>>,
    /// The round goes on in front of this place of the list; 0: none is under way.
    left: usize,
    /// It has rung since the round began.
    again: bool,
}

/// What is connected to the global doorbell.
pub struct GlobalDoorbell<H: Host> {
    connections: H::Lock<Connections<H>>,
    /// How many of the connections each node's engine watches. Written under the lock.
    watched: [AtomicU32; NODE_COUNT],
    /// A round is under way. Written under the lock.
    is_amid: AtomicBool,
}

impl<H: Host> GlobalDoorbell<H> {
    /// Nothing is connected.
    pub(crate) fn new() -> Self {
        Self {
            connections: H::Lock::new(Connections { list: Vec::new(), left: 0, again: false }),
            watched: Default::default(),
            is_amid: AtomicBool::new(false),
        }
    }

    /// Reserves memory for `count` doorbells in all, so that [`Self::connect`] does not fail. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn reserve(&self, count: usize) -> Result<(), NoMemory> {
        self.connections.with(|c| Ok(c.list.try_reserve(count.saturating_sub(c.list.len()))?))
    }

    /// Connects `queue` under the number `place`, which no other connection has at the time. The queue may have another
    /// one: of a doorbell that is being destroyed, or of its successor. With `watched` the node's engine looks for its
    /// rings; without, user mode announces them. A queue that has the place keeps it.
    ///
    /// # Errors
    /// [`NoMemory`], unless [`Self::reserve`] has made room.
    pub fn connect(&self, queue: &Shared<Queue<H>>, place: u64, watched: bool) -> Result<(), NoMemory> {
        self.connections.with(|Connections { list, .. }| {
            let count = &self.watched[queue.context.node];
            count.fetch_add(u32::from(watched), Ordering::AcqRel);
            if let Some(known) = list.iter_mut().find(|c| c.place == place) {
                count.fetch_sub(u32::from(known.watched), Ordering::AcqRel);
                known.watched = watched;
                return Ok(());
            }
            if let Err(error) = list.try_reserve(1) {
                count.fetch_sub(u32::from(watched), Ordering::AcqRel);
                return Err(error.into());
            }
            // Behind a round that is under way: a connection has its queue looked at by itself.
            list.push(Connected { place, token: token(queue.slot), queue: queue.clone(), watched });
            queue.connected.fetch_add(1, Ordering::AcqRel);
            Ok(())
        })
    }

    /// Disconnects what is connected under this number, and nothing else of its queue.
    pub fn disconnect(&self, place: u64) {
        self.take(|connected| connected.place == place);
    }

    /// Disconnects everything of a queue.
    pub(crate) fn forget(&self, queue: &Shared<Queue<H>>) {
        self.take(|connected| Shared::ptr_eq(&connected.queue, queue));
    }

    /// Takes out what is `meant`, one at a time: the last reference falls outside of the lock.
    fn take(&self, mut meant: impl FnMut(&Connected<H>) -> bool) {
        while let Some(taken) = self.connections.with(|Connections { list, left, .. }| {
            let at = list.iter().position(&mut meant)?;
            let taken = list.swap_remove(at);
            // A round goes from the end to the front: what takes the place of the one that is gone was looked at, or is
            // in front of where the round goes on.
            *left = (*left).min(list.len());
            self.watched[taken.queue.context.node].fetch_sub(u32::from(taken.watched), Ordering::AcqRel);
            Some(taken)
        }) {
            taken.queue.connected.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Returns whether the engine of `node` looks for rings.
    pub(crate) fn is_watched_by(&self, node: usize) -> bool {
        self.watched[node].load(Ordering::Acquire) != 0
    }

    /// Returns whether a round is under way that the engine of `node` takes part in: one that looks for rings, and no
    /// other. A hint, but for an engine that is about to sleep: one that a later round needs is woken.
    #[inline]
    pub(crate) fn concerns(&self, node: usize) -> bool {
        self.is_amid.load(Ordering::Relaxed) && self.is_watched_by(node)
    }

    /// It has rung: a round begins, now or behind the one that is under way. The `named` queue comes first, where no
    /// more than [`SEARCHED`] doorbells are connected.
    pub(crate) fn rang(&self, gpu: &Gpu<H>, named: Option<Token>) {
        let found = self.connections.with(|Connections { list, left, again }| {
            if *left == 0 || gpu.mutation.is(Mutation::RoundsBeginAnew) {
                *left = list.len();
            } else {
                *again = !gpu.mutation.is(Mutation::RoundsForgetRings);
            }
            self.is_amid.store(*left != 0, Ordering::Release);
            let its = |c: &&Connected<H>| named == Some(c.token);
            let found = if list.len() <= SEARCHED { list.iter().find(its) } else { None };
            found.map(|Connected { queue, .. }| queue.clone())
        });
        if let Some(queue) = found {
            gpu.make_ready(&queue);
        }
        for (node, watched) in self.watched.iter().enumerate() {
            if watched.load(Ordering::Acquire) != 0 && gpu.nodes[node].must_kick() {
                gpu.kick(node);
            }
        }
    }

    /// Goes on with the round: as far as an engine goes between two looks. Returns how many queues it has made ready.
    pub(crate) fn go_on(&self, gpu: &Gpu<H>) -> usize {
        let mut kick = [false; NODE_COUNT];
        let count = self.connections.with(|Connections { list, left, again }| {
            let part = left.saturating_sub(AT_ONCE)..*left;
            let count = part.len();
            for Connected { queue, .. } in list.get(part.clone()).into_iter().flatten().rev() {
                kick[queue.context.node] |= gpu.nodes[queue.context.node].make_ready(queue);
            }
            *left = part.start;
            if *left == 0 && core::mem::take(again) {
                *left = list.len();
            }
            self.is_amid.store(*left != 0, Ordering::Release);
            count
        });
        for (node, _) in kick.iter().enumerate().filter(|(_, kick)| **kick) {
            gpu.kick(node);
        }
        count
    }
}
