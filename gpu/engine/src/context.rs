//! Processes and hardware contexts, as the GPU knows them.

use crate::address_space::{AddressSpace, Roots};
use crate::fence_table::FenceTable;
use crate::host::{Host, Lock};
use crate::member::Member;
use crate::mutation::{Chosen, Mutation};
use crate::queue::ParkedFence;
use crate::schedule::{BANDS, NORMAL, Policy, Turns, rank};
use crate::shared::Shared;
use crate::slots::SlotId;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use gpu_wire::packet::Privilege;

/// A process: what its contexts share, and the fences that it has open.
pub struct Process<H: Host> {
    /// The number that TLB_FLUSH packets carry. Never used again.
    pub number: u64,
    /// What page fault notices name it by.
    pub slot: SlotId,
    /// When its queues were served last, by band.
    pub turns: Turns,
    /// The root page tables that its contexts have.
    pub roots: Roots<H>,
    /// Its fences.
    pub fences: FenceTable<H, ParkedFence<H>>,
    /// [`Privilege::Paging`] for the paging process.
    pub privilege: Privilege,
}

/// Whether a context may run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheduling {
    /// Its queues run. Contexts start here.
    Runnable,
    /// The OS asked to suspend it; the engine has not answered. Its queues do not start any more.
    Suspending {
        /// The OS's number for this request.
        fence: u64,
    },
    /// Off the engine: nothing of it is referenced until it is resumed.
    Suspended,
    /// Its state was lost in a reset; it never runs again.
    Lost,
}

/// How a context is scheduled. Times are ticks of the GPU clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Properties {
    /// The band of priority, below [`BANDS`].
    pub band: u32,
    /// In the real-time band its level there, 0 to 31.
    pub level: i32,
    /// Among contexts of its process, -7 to 7.
    pub priority: i32,
    /// For how long it has the engine before another context of its process and priority has it.
    pub quantum: u64,
    /// How long it waits for a context of its process and priority that it takes the place of.
    pub grace_same: u64,
    /// The same of one of a lower priority.
    pub grace_lower: u64,
}

/// A hardware context.
pub struct Context<H: Host> {
    /// Its place in the node's lists.
    _member: Member,
    /// What notices name it by.
    pub slot: SlotId,
    /// Node index.
    pub node: usize,
    /// Its addresses, and whose they are.
    pub space: AddressSpace<H>,
    scheduling: H::Lock<Scheduling>,
    /// Mirrors `scheduling == Runnable`: what the engine looks at.
    runnable: AtomicBool,
    /// How many of the context's queues wait for a fence in the middle of their work.
    parked: AtomicU32,
    /// How many of the context's queues are ready: on their way to the engine, or in its list.
    listed: AtomicU32,
    /// The band of priority, below [`BANDS`].
    band: AtomicU32,
    /// The rank in it.
    rank: AtomicU32,
    /// As in [`Properties`].
    quantum: AtomicU64,
    /// As in [`Properties`].
    grace_same: AtomicU64,
    /// As in [`Properties`].
    grace_lower: AtomicU64,
    /// The context's last state in the node's scheduling log, with the log's era (`scheduling_log::noted`). Read and
    /// written under the log's lock only.
    pub(crate) noted: AtomicU64,
    /// The adapter resets that its node had had when the OS made it.
    born: AtomicU64,
}

/// What [`Context::suspend`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Suspend {
    /// It is suspended already.
    Already,
    /// The engine will answer with [`crate::notice::Notice::ContextSuspended`].
    Pending,
}

impl<H: Host> Context<H> {
    /// A runnable context of `process` on `node`, which gave it `member`. It has no root page table yet.
    pub fn new(member: Member, slot: SlotId, node: usize, process: Shared<Process<H>>) -> Self {
        Self {
            _member: member,
            slot,
            node,
            space: AddressSpace::new(process),
            scheduling: H::Lock::new(Scheduling::Runnable),
            runnable: AtomicBool::new(true),
            parked: AtomicU32::new(0),
            listed: AtomicU32::new(0),
            // CAST: a band.
            band: AtomicU32::new(NORMAL as u32),
            rank: AtomicU32::new(rank(NORMAL, 0, 0)),
            quantum: AtomicU64::new(0),
            grace_same: AtomicU64::new(0),
            grace_lower: AtomicU64::new(0),
            noted: AtomicU64::new(0),
            born: AtomicU64::new(0),
        }
    }

    /// Whether its queues may run.
    pub fn is_runnable(&self) -> bool {
        self.runnable.load(Ordering::Acquire)
    }

    /// Counts a queue of the context that began to wait for a fence (`parked`), or that stopped waiting.
    pub(crate) fn count_parked(&self, parked: bool) {
        match parked {
            true => self.parked.fetch_add(1, Ordering::Relaxed),
            false => self.parked.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// Counts a queue of the context that became ready (`listed`), or that got its turn.
    pub(crate) fn count_listed(&self, listed: bool) {
        match listed {
            true => self.listed.fetch_add(1, Ordering::AcqRel),
            false => self.listed.fetch_sub(1, Ordering::AcqRel),
        };
    }

    /// Returns whether a queue of the context is ready.
    pub(crate) fn is_listed(&self) -> bool {
        self.listed.load(Ordering::Acquire) != 0
    }

    /// The band of priority, below [`BANDS`].
    pub fn band(&self) -> usize {
        self.band.load(Ordering::Relaxed) as usize
    }

    /// The rank in the band.
    pub(crate) fn rank(&self) -> u32 {
        self.rank.load(Ordering::Relaxed)
    }

    /// As [`Properties::quantum`].
    pub(crate) fn quantum(&self) -> u64 {
        self.quantum.load(Ordering::Relaxed)
    }

    /// As [`Properties::grace_same`].
    pub(crate) fn grace_same(&self) -> u64 {
        self.grace_same.load(Ordering::Relaxed)
    }

    /// As [`Properties::grace_lower`].
    pub(crate) fn grace_lower(&self) -> u64 {
        self.grace_lower.load(Ordering::Relaxed)
    }

    /// Sets how the context is scheduled, from the node's next turn on. `policy`: the GPU's. Returns `false`, and sets
    /// nothing, where there is no such band.
    pub fn set_properties(&self, policy: &Policy, properties: &Properties) -> bool {
        let Properties { band, level, priority, quantum, grace_same, grace_lower } = *properties;
        let exists = (band as usize) < BANDS;
        if exists {
            let rank = rank(band as usize, level, priority);
            let had = (self.band.swap(band, Ordering::Relaxed), self.rank.swap(rank, Ordering::Relaxed));
            self.quantum.store(quantum, Ordering::Relaxed);
            self.grace_same.store(grace_same, Ordering::Relaxed);
            self.grace_lower.store(grace_lower, Ordering::Relaxed);
            if had != (band, rank) {
                policy.note_change(self.node);
            }
        }
        exists
    }

    /// Returns whether a queue of the context waits for a fence in the middle of its work.
    pub(crate) fn is_parked(&self) -> bool {
        self.parked.load(Ordering::Relaxed) != 0
    }

    /// The state.
    pub fn scheduling(&self) -> Scheduling {
        self.scheduling.with(|s| *s)
    }

    /// Asks for suspension. A request that is already under way is replaced: only the newest fence is answered.
    pub(crate) fn suspend(&self, fence: u64) -> Suspend {
        self.scheduling.with(|s| match s {
            Scheduling::Suspended | Scheduling::Lost => Suspend::Already,
            Scheduling::Runnable | Scheduling::Suspending { .. } => {
                *s = Scheduling::Suspending { fence };
                self.runnable.store(false, Ordering::Release);
                Suspend::Pending
            }
        })
    }

    /// Engine: the context is off; the fence to answer with, unless it was resumed meanwhile.
    pub(crate) fn suspended(&self, mutation: &Chosen) -> Option<u64> {
        self.scheduling.with(|s| match *s {
            Scheduling::Suspending { fence } => {
                *s = Scheduling::Suspended;
                Some(fence)
            }
            Scheduling::Runnable if mutation.is(Mutation::AnswersResumed) => Some(0),
            _ => None,
        })
    }

    /// Makes it runnable again; `false` when it is lost. The caller then makes its queues ready.
    pub fn resume(&self) -> bool {
        self.scheduling.with(|s| match s {
            Scheduling::Lost => false,
            _ => {
                *s = Scheduling::Runnable;
                self.runnable.store(true, Ordering::Release);
                true
            }
        })
    }

    /// It was made, and its node has had so many adapter resets by now.
    pub(crate) fn is_born(&self, resets: u64) {
        self.born.store(resets, Ordering::Relaxed);
    }

    /// Engine: loses its state where an adapter reset came behind its birth: the OS has given up all that there was.
    pub(crate) fn outlives(&self, resets: u64) {
        if self.born.load(Ordering::Relaxed) != resets && self.is_runnable() {
            self.lose();
        }
    }

    /// Its state is gone.
    pub fn lose(&self) {
        self.scheduling.with(|s| {
            *s = Scheduling::Lost;
            self.runnable.store(false, Ordering::Release);
        });
    }
}
