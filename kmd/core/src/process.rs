//! Processes: what their contexts share, and one table of fences each. Source: `DxgkDdiCreateProcess`.

use crate::adapter::{Counted, EngineHost, Started};
use crate::handle::{Handle, object};
use crate::irql::Passive;
use crate::platform::Platform;
use crate::status::{Error, Result};
use core::sync::atomic::{AtomicU32, Ordering};
use gpu_engine::address_space::{AddressSpace, Roots};
use gpu_engine::fence_table::FenceTable;
use gpu_engine::shared::Shared;
use gpu_wire::packet::Privilege;

/// The engine's side of a process.
pub type EngineProcess<P> = gpu_engine::context::Process<EngineHost<P>>;
/// The engine's side of the address space of a context.
pub type EngineSpace<P> = AddressSpace<EngineHost<P>>;

/// How long engines may take to forget a space, in units of 100 ns. TIMEOUT: half a second, as for a reset; an engine
/// that takes longer is dead.
const PATIENCE: u64 = 5_000_000;
/// Between two looks, in units of 100 ns.
const LOOK: u64 = 1_000;

/// A process.
pub struct Process<P: Platform> {
    /// What the engines know of it.
    pub engine: Shared<EngineProcess<P>>,
    /// Objects that its devices have, the devices themselves included.
    objects: AtomicU32,
    /// Counted in the census, and a reference to the adapter.
    pub counted: Counted<P>,
}

object!(Process: Process<P>);

impl<P: Platform> Process<P> {
    /// Creates a process. `os` is Dxgkrnl's handle; `system` says that the OS made it for itself, as it does the
    /// paging process.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn create(_irql: &Passive, started: &Shared<Started<P>>, os: u64, system: bool) -> Result<Handle> {
        let gpu = &started.gpu;
        let slot = gpu.slots.allocate(os)?;
        let privilege = if system { Privilege::Paging } else { Privilege::User };
        let (number, roots, fences) = (gpu.new_space_id(), Roots::new(), FenceTable::new());
        let engine = EngineProcess::<P> { number, slot, roots, fences, privilege };
        let made = Shared::try_new(engine).and_then(|engine| {
            let counted = Counted::new(started.clone(), |c| &c.processes);
            Handle::create(Shared::try_new(Self { engine, objects: AtomicU32::new(0), counted })?)
        });
        made.map_err(|no_memory| {
            // No notice can name it yet: no interrupt lock is needed.
            gpu.slots.kill(slot);
            gpu.slots.free(slot);
            no_memory.into()
        })
    }

    /// Destroys it. Dxgkrnl has destroyed its devices before.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`].
    pub fn destroy(irql: &Passive, handle: Handle) -> Result<()> {
        let process = handle.take::<Self>()?;
        let started = &process.counted.started;
        started.paging_spaces.remove(|space| Shared::ptr_eq(&space.process, &process.engine));
        crate::interrupt::retire(irql, started, process.engine.slot);
        // Whatever engines still cache of its addresses goes before the page tables do, which the OS frees next.
        let flush = started.gpu.flush(process.engine.number, 0, 0);
        let deadline = started.platform.clock() + started.platform.clock_frequency() * PATIENCE / 10_000_000;
        while !started.gpu.flush_done(flush) && started.platform.clock() < deadline {
            started.platform.delay(irql, LOOK);
        }
        Ok(())
    }

    /// Counts an object of the process. One that has as many as the setting `ObjectsPerProcess` allows gets no more, so
    /// that what it takes of the driver's tables, and of the memory that is never paged, leaves enough for others. The
    /// OS's own processes have no such limit. Up to `DISPATCH_LEVEL`.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(crate) fn add_object(&self) -> Result<()> {
        let most = match self.engine.privilege {
            Privilege::User => self.counted.started.settings.objects_per_process,
            Privilege::Paging => u32::MAX,
        };
        let more = |count: u32| count.checked_add(1).filter(|count| *count <= most);
        let counted = self.objects.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        counted.map(drop).map_err(|_| Error::NoMemory)
    }

    /// Counts `count` objects less. Up to `DISPATCH_LEVEL`.
    pub(crate) fn remove_objects(&self, count: u32) {
        let less = |objects: u32| Some(objects.saturating_sub(count));
        // Cannot fail: the closure always has an answer.
        let _before = self.objects.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// The process behind `handle`.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`].
    pub fn get(handle: Handle) -> Result<Shared<Self>> {
        handle.get().map_err(|_| Error::InvalidParameter)
    }
}
