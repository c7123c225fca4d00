//! Which fences a process may name: by the GPU address of CurrentValue.
//!
//! A FENCE_WAIT or FENCE_SIGNAL packet names an address. It is looked up here, in the table of the process that owns
//! the queue, so that user mode can reach only fences that the OS opened for it. Two opens in one process share
//! addresses and count. `F` is a fence.

use crate::NoMemory;
use crate::host::{Host, Lock};
use crate::shared::{Shared, try_array};
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering};
use gpu_wire::GpuVa;
use hashbrown::HashMap;

/// A fence as one process sees it.
pub struct OpenFence<F> {
    /// The fence.
    pub fence: Shared<F>,
    /// Where the process has MonitoredValue mapped, read-only.
    pub monitored: GpuVa,
}

impl<F> Clone for OpenFence<F> {
    fn clone(&self) -> Self {
        Self { fence: self.fence.clone(), monitored: self.monitored }
    }
}

struct Entry<F> {
    open: OpenFence<F>,
    opens: u32,
}

/// Why a fence cannot be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenError {
    /// No memory.
    NoMemory,
    /// Another fence lives at that address.
    AddressTaken,
}

impl From<NoMemory> for OpenError {
    fn from(_: NoMemory) -> Self {
        Self::NoMemory
    }
}

/// What a lock of a table guards.
type Entries<F> = HashMap<u64, Entry<F>>;

/// The fences that a process has open.
pub struct FenceTable<H: Host, F: Send + Sync> {
    entries: H::Lock<Entries<F>>,
    /// Raised whenever an entry goes away, so that caches of lookups know.
    changes: AtomicU64,
}

impl<H: Host, F: Send + Sync> FenceTable<H, F> {
    /// An empty table.
    pub fn new() -> Self {
        Self { entries: H::Lock::new(HashMap::new()), changes: AtomicU64::new(1) }
    }

    /// Opens `fence` at `current`. How often it is open there now.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(&self, current: GpuVa, monitored: GpuVa, fence: &Shared<F>) -> Result<u32, OpenError> {
        self.entries.with(|entries| {
            if let Some(entry) = entries.get_mut(&current.0) {
                if !Shared::ptr_eq(&entry.open.fence, fence) {
                    return Err(OpenError::AddressTaken);
                }
                entry.opens += 1;
                return Ok(entry.opens);
            }
            entries.try_reserve(1).map_err(NoMemory::from)?;
            let open = OpenFence { fence: fence.clone(), monitored };
            entries.insert(current.0, Entry { open, opens: 1 });
            Ok(1)
        })
    }

    /// Closes one open of the fence at `current`.
    pub fn close(&self, current: GpuVa) {
        let gone = self.entries.with(|entries| {
            let entry = entries.get_mut(&current.0)?;
            entry.opens -= 1;
            if entry.opens == 0 { entries.remove(&current.0) } else { None }
        });
        if gone.is_some() {
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// The fence at `current`.
    pub fn find(&self, current: GpuVa) -> Option<OpenFence<F>> {
        self.entries.with(|entries| entries.get(&current.0).map(|e| e.open.clone()))
    }

    /// Changes whenever a lookup that succeeded before may fail now.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Fences open.
    pub fn len(&self) -> usize {
        self.entries.with(|entries| entries.len())
    }

    /// Returns whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<H: Host, F: Send + Sync> Default for FenceTable<H, F> {
    fn default() -> Self {
        Self::new()
    }
}

/// Lines of a [`FenceCache`].
const LINES: usize = 16;

/// A lookup that succeeded.
struct Line<F> {
    /// The number of the process.
    process: u64,
    address: GpuVa,
    changes: u64,
    open: OpenFence<F>,
}

/// An engine's cache of lookups.
pub(crate) struct FenceCache<F>(Box<[Option<Line<F>>; LINES]>);

impl<F: Send + Sync> FenceCache<F> {
    /// Empty.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new() -> Result<Self, NoMemory> {
        Ok(Self(try_array(|| None)?))
    }

    /// The fence at `va` in the table of the process with the number `process`.
    pub fn find<H: Host>(&mut self, process: u64, table: &FenceTable<H, F>, va: GpuVa) -> Option<OpenFence<F>> {
        let place = self.place(process, table, va)?;
        self.at(place).cloned()
    }

    /// The place of the same fence, which [`Self::at`] finds until another fence is looked for. Unlike a reference of
    /// its own it costs no exchange.
    pub fn place<H: Host>(&mut self, process: u64, table: &FenceTable<H, F>, va: GpuVa) -> Option<usize> {
        let changes = table.changes();
        // CAST: an index below the array's length.
        let place = (va.0 / 8) as usize % LINES;
        let line = &mut self.0[place];
        let is_known =
            line.as_ref().is_some_and(|line| line.process == process && line.address == va && line.changes == changes);
        if !is_known {
            *line = Some(Line { process, address: va, changes, open: table.find(va)? });
        }
        Some(place)
    }

    /// The fence at a place of [`Self::place`].
    pub fn at(&self, place: usize) -> Option<&OpenFence<F>> {
        self.0.get(place)?.as_ref().map(|line| &line.open)
    }

    /// Lets go of every fence.
    pub fn clear(&mut self) {
        self.0.fill_with(|| None);
    }
}
