//! Stage 5 of 8: GPU address spaces.
//!
//! The root page table is a *context's*. A process has the address space that its user-mode driver manages, and may
//! have a second, privileged one, in which companion contexts write the page tables of the first; so two contexts of a
//! process may have different roots. Contexts of one process with one root share an address space, and its cached
//! translations.
//!
//! The page tables lie in memory that the OS owns and change only by paging packets (the paging process's own, inside
//! `DxgkDdiBuildPagingBuffer`). Here is where their root is; [`crate::tlb`] walks them.
//!
//! Source: `DxgkDdiSetRootPageTable`; *Per-process GPU virtual address spaces*; *Tile resources*.

use crate::context::Process;
use crate::host::{Host, Lock};
use crate::shared::Shared;
use core::sync::atomic::{AtomicU64, Ordering};
use gpu_wire::pte::Place;

/// Where the root table lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Root {
    /// The table.
    pub place: Place,
    /// Entries it has; an index beyond faults.
    pub entries: u32,
}

/// In a flush, instead of the number of a process: every process. No process has this number.
pub const EVERY_PROCESS: u64 = gpu_wire::packet::EVERY_PROCESS;

/// What a cached translation belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SpaceId {
    /// The process's number.
    pub process: u64,
    /// The address space's number, which is never used again.
    pub number: u64,
}

/// A root table that contexts of a process have.
#[derive(Clone, Copy)]
struct Known {
    root: Root,
    number: u64,
    /// Contexts that have it. 0: this place is free.
    contexts: u32,
}

/// Root tables that a process shares among its contexts. Two are usual, and a third while roots are moved; contexts
/// with further ones share no translations.
const SHARED: usize = 4;

/// The root tables that the contexts of a process have.
pub struct Roots<H: Host> {
    known: H::Lock<[Known; SHARED]>,
}

impl<H: Host> Roots<H> {
    /// None.
    pub fn new() -> Self {
        let free = Known { root: Root { place: Place::System(0), entries: 0 }, number: 0, contexts: 0 };
        Self { known: H::Lock::new([free; SHARED]) }
    }

    /// A context gets `root`: the number of the address space, which is `fresh` if no other context has that root.
    fn enter(&self, root: Root, fresh: u64) -> u64 {
        self.known.with(|known| {
            if let Some(known) = known.iter_mut().find(|known| known.contexts != 0 && known.root == root) {
                known.contexts += 1;
                return known.number;
            }
            if let Some(free) = known.iter_mut().find(|known| known.contexts == 0) {
                *free = Known { root, number: fresh, contexts: 1 };
            }
            fresh
        })
    }

    /// A context does not have the root of the address space `number` any more. Returns whether no context has it now.
    fn leave(&self, number: u64) -> bool {
        self.known.with(|known| {
            let Some(known) = known.iter_mut().find(|known| known.contexts != 0 && known.number == number) else {
                return true;
            };
            known.contexts -= 1;
            known.contexts == 0
        })
    }
}

impl<H: Host> Default for Roots<H> {
    fn default() -> Self {
        Self::new()
    }
}

/// The address space of a context: whose it is, and by which root table its packets run now. Before a context is
/// destroyed it is given no root ([`set_root`](Self::set_root)); dropping it takes no lock, so any IRQL will do.
pub struct AddressSpace<H: Host> {
    /// The process.
    pub process: Shared<Process<H>>,
    /// Number of the address space; 0 without a root. Written under the lock.
    number: AtomicU64,
    root: H::Lock<Option<Root>>,
}

impl<H: Host> AddressSpace<H> {
    /// The address space of a new context of `process`, without a root table: every access faults.
    pub fn new(process: Shared<Process<H>>) -> Self {
        Self { process, number: AtomicU64::new(0), root: H::Lock::new(None) }
    }

    /// What translations of the context's packets belong to. Any IRQL.
    pub fn id(&self) -> SpaceId {
        SpaceId { process: self.process.number, number: self.number.load(Ordering::Relaxed) }
    }

    /// Whether it has a root now. Takes no lock: any IRQL.
    pub fn has_root(&self) -> bool {
        self.number.load(Ordering::Relaxed) != 0
    }

    /// Where the root lies now.
    pub fn root(&self) -> Option<Root> {
        self.now().1
    }

    /// The address space and its root, as they belong together.
    pub(crate) fn now(&self) -> (SpaceId, Option<Root>) {
        self.root.with(|root| (self.id(), *root))
    }

    /// Gives the context another root, or none. `fresh` is a number for the address space that was never given before
    /// ([`crate::gpu::Gpu::new_space_id`]). Returns whether no context is left of the address space that it had: then
    /// the caller flushes the process ([`crate::gpu::Gpu::flush`]), since the OS may free those tables. Called while
    /// the context is idle; up to `DISPATCH_LEVEL`.
    pub fn set_root(&self, root: Option<Root>, fresh: u64) -> bool {
        // Outside of the context's lock: no two locks are held at once.
        let entered = root.map_or(0, |root| self.process.roots.enter(root, fresh));
        let left = self.root.with(|now| {
            *now = root;
            self.number.swap(entered, Ordering::Relaxed)
        });
        left != 0 && self.process.roots.leave(left)
    }
}
