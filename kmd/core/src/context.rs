//! Packet contexts: those of packet-mode nodes, and of every node on the lowest rung. Source: `DxgkDdiCreateContext`.

use crate::adapter::{Counted, Started};
use crate::device::Device;
use crate::gone;
use crate::handle::{Handle, Tag, object};
use crate::irql::Passive;
use crate::nodes;
use crate::platform::Platform;
use crate::process::{EngineContext, EngineSpace};
use crate::status::{Error, Result};
use gpu_engine::address_space::Root;
use gpu_engine::packet_context::PacketContext;
use gpu_engine::shared::Shared;
use gpu_wire::packet::Privilege;
use gpu_wire::private::{ContextData, MAGIC};
use gpu_wire::{INTERFACE_VERSION, NodeOrdinal};

/// Bytes of private data per DMA buffer. Zero would disable anything carried there; we carry nothing, but a record that
/// travels with a packet is worth having in a dump.
pub const PRIVATE_DATA_SIZE: u32 = 64;
/// Bytes of a DMA buffer that the OS allocates for a context.
pub const DMA_BUFFER_SIZE: u32 = 64 << 10;

/// `NodeOrdinal` of a system context that names no node.
const NO_NODE: u32 = 0x7fff;

/// The arguments of `DxgkDdiCreateContext`, or of `DxgkDdiCreateHwContext`, that a context is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewContext {
    /// Dxgkrnl's handle, by which callbacks name the context.
    pub os: u64,
    /// `NodeOrdinal`.
    pub node: NodeOrdinal,
    /// `EngineAffinity`.
    pub affinity: u32,
    /// `SystemContext`: VidMm or VidSch makes the context for itself.
    pub system: bool,
    /// `HwQueueSupported`: hardware queues are to be made of the context.
    pub hw_queues: bool,
}

/// A packet context.
pub struct Context<P: Platform> {
    /// Its node, which exists.
    pub node: NodeOrdinal,
    /// What the engine knows of it: its address space, and where a packet of it was taken off.
    pub engine: Shared<EngineContext<P>>,
    device: Shared<Device<P>>,
    /// Counted in the census, and a reference to the adapter.
    pub counted: Counted<P>,
}

object!(Context: Context<P>);

impl<P: Platform> Context<P> {
    /// Creates a packet context for `device`.
    ///
    /// # Errors
    /// [`Error::DriverMismatch`] when the user-mode driver speaks another version, which the OS's own contexts are not
    /// asked for; [`Error::InvalidParameter`] for an engine or node that does not exist; [`Error::NoMemory`].
    pub fn create(_irql: &Passive, device: &Shared<Device<P>>, new: &NewContext, private: &[u8]) -> Result<Handle> {
        let started = &device.counted.started;
        let NewContext { node, affinity, system, .. } = *new;
        let index = match node {
            NodeOrdinal(NO_NODE) if system => NodeOrdinal(started.settings.paging_node),
            n if n.0 < nodes::COUNT => n,
            _ => return Err(Error::InvalidParameter),
        };
        if !nodes::has_engine(affinity) {
            return Err(Error::InvalidParameter);
        }
        if !system {
            check_version(private)?;
        }
        started.gpu.host.power().nodes_are_known();
        let process = device.process.engine.clone();
        let is_paging = process.privilege == Privilege::Paging;
        let engine = Shared::try_new(PacketContext::new(process, new.os)?)?;
        let counted = Counted::new(started.clone(), |c| &c.contexts);
        let context = Self { node: index, engine: engine.clone(), device: device.clone(), counted };
        let handle = Handle::create(Shared::try_new(context)?)?;
        // The process of this context is the paging process, whatever other system processes there are.
        let known = if system && is_paging { started.paging_contexts.add(engine.clone()) } else { Ok(()) };
        let adopted = known.and_then(|()| device.adopt(Tag::Context, handle, Self::destroy));
        adopted.inspect_err(|_| {
            started.paging_contexts.remove(|other| Shared::ptr_eq(other, &engine));
            drop(handle.take::<Self>());
        })?;
        Ok(handle)
    }

    /// Destroys it.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`].
    pub fn destroy(irql: &Passive, handle: Handle) -> Result<()> {
        let context = handle.take::<Self>()?;
        context.device.disown(handle);
        let started = &context.counted.started;
        started.paging_contexts.remove(|other| Shared::ptr_eq(other, &context.engine));
        set_root(irql, started, &context.engine.space, None);
        Ok(())
    }
}

/// Checks that private data of a context is [`ContextData`] of this driver's version. Contexts without private data
/// pass: the OS makes such ones for itself, and so do tools that know no user-mode driver.
///
/// # Errors
/// [`Error::DriverMismatch`] for private data that is not empty and that is too short, has another magic or another
/// version.
pub fn check_version(private: &[u8]) -> Result<()> {
    match ContextData::read(private) {
        None if private.is_empty() => Ok(()),
        Some(data) if data.magic == MAGIC && data.interface_version == INTERFACE_VERSION => Ok(()),
        _ => Err(Error::DriverMismatch),
    }
}

/// Gives the address space of a context another root page table; `None`: the context goes. The process's other contexts
/// keep theirs. Returns nothing: the DDI cannot fail.
///
/// Source: `DxgkDdiSetRootPageTable`; *Tile resources* (a companion context has a root of its own).
pub fn set_root<P: Platform>(irql: &Passive, started: &Started<P>, space: &EngineSpace<P>, root: Option<Root>) {
    if space.set_root(root, started.gpu.new_space_id()) {
        // No context has the old tables any more, which the OS may free. The context is idle, by the DDI's contract;
        // other contexts of the process may not be.
        gone::translations(irql, started, space.process.number);
    }
}
