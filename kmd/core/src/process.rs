//! Processes: what their contexts share, and one table of fences each. Source: `DxgkDdiCreateProcess`.

use crate::adapter::{Counted, EngineHost, Started};
use crate::gone;
use crate::handle::{Handle, object};
use crate::irql::Passive;
use crate::platform::Platform;
use crate::quota::Account;
use crate::status::{Error, Result};
use gpu_engine::address_space::{AddressSpace, Roots};
use gpu_engine::fence_table::FenceTable;
use gpu_engine::packet_context::PacketContext;
use gpu_engine::schedule::Turns;
use gpu_engine::shared::Shared;
use gpu_wire::packet::Privilege;

/// The engine's side of a process.
pub type EngineProcess<P> = gpu_engine::context::Process<EngineHost<P>>;
/// The engine's side of the address space of a context.
pub type EngineSpace<P> = AddressSpace<EngineHost<P>>;
/// A packet context as the engine knows it.
pub type EngineContext<P> = PacketContext<EngineHost<P>>;

/// A process.
pub struct Process<P: Platform> {
    /// What the engines know of it.
    pub engine: Shared<EngineProcess<P>>,
    /// Objects that it has: its devices, what is on them, and the fences and allocations that were made for it. The
    /// OS's own processes have no limit.
    pub account: Shared<Account>,
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
        let engine = EngineProcess::<P> { number, slot, roots, fences, privilege, turns: Turns::default() };
        let made = Shared::try_new(engine).and_then(|engine| {
            let counted = Counted::new(started.clone(), |c| &c.processes);
            let most = if system { u32::MAX } else { started.settings.objects_per_process };
            let account = Shared::try_new(Account::new(most))?;
            Handle::create(Shared::try_new(Self { engine, account, counted })?)
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
        started.paging_contexts.remove(|context| Shared::ptr_eq(&context.space.process, &process.engine));
        crate::interrupt::retire(irql, started, process.engine.slot);
        // Whatever engines still cache of its addresses goes before the page tables do, which the OS frees next.
        gone::translations(irql, started, process.engine.number);
        Ok(())
    }

    /// The process behind `handle`.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`].
    pub fn get(handle: Handle) -> Result<Shared<Self>> {
        handle.get().map_err(|_| Error::InvalidParameter)
    }
}
