//! Contexts for hardware queues. Source: `DxgkDdiCreateContext` with `HwQueueSupported`; `DxgkDdiCreateHwContext`;
//! `DxgkDdiSuspendContext`, `DxgkDdiResumeContext`.

use crate::adapter::{Counted, EngineHost};
use crate::context::{NewContext, check_version, set_root};
use crate::device::Device;
use crate::handle::{Handle, Tag, object};
use crate::hw_queue::HwQueue;
use crate::irql::Passive;
use crate::nodes;
use crate::platform::Platform;
use crate::status::{Error, Result};
use alloc::vec::Vec;
use gpu_engine::context::Suspend;
use gpu_engine::host::Lock;
use gpu_engine::mutation::Mutation;
use gpu_engine::shared::Shared;

/// The engine's side.
pub type EngineContext<P> = gpu_engine::context::Context<EngineHost<P>>;

/// A hardware context.
pub struct HwContext<P: Platform> {
    /// What the engine knows of it.
    pub engine: Shared<EngineContext<P>>,
    /// Its device.
    pub device: Shared<Device<P>>,
    /// Dxgkrnl's handle.
    pub os: u64,
    /// Its queues, for resume.
    queues: P::Lock<Vec<Shared<HwQueue<P>>>>,
    /// Counted in the census, and a reference to the adapter.
    pub counted: Counted<P>,
}

object!(HwContext: HwContext<P>);

impl<P: Platform> HwContext<P> {
    /// Creates a context for hardware queues on the node that `new` names. It is runnable.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for a node that is not hardware-scheduled; [`Error::DriverMismatch`];
    /// [`Error::NoMemory`].
    pub fn create(irql: &Passive, device: &Shared<Device<P>>, new: &NewContext, private: &[u8]) -> Result<Handle> {
        let NewContext { os, node, affinity, .. } = *new;
        let started = &device.counted.started;
        if !nodes::is_hardware_scheduled(&started.plan, node) || !nodes::has_engine(affinity) {
            return Err(Error::InvalidParameter);
        }
        check_version(private)?;
        started.gpu.host.power().nodes_are_known();
        let gpu = &started.gpu;
        // Below NODE_COUNT, checked above.
        let node = node.index();
        let member = gpu.admit(node)?;
        let slot = gpu.slots.allocate(os)?;
        let engine = EngineContext::<P>::new(member, slot, node, device.process.engine.clone());
        gpu.take_in(&engine);
        let made = Shared::try_new(engine).and_then(|engine| {
            let counted = Counted::new(started.clone(), |c| &c.hw_contexts);
            let queues = P::Lock::new(Vec::new());
            Handle::create(Shared::try_new(Self { engine, device: device.clone(), os, queues, counted })?)
        });
        let handle = made.map_err(|e| {
            gpu.slots.kill(slot);
            gpu.slots.free(slot);
            Error::from(e)
        })?;
        gpu.slots.set_driver_handle(slot, handle.raw());
        device.adopt(Tag::HwContext, handle, Self::destroy).inspect_err(|_| {
            let _gone = Self::destroy(irql, handle);
        })?;
        Ok(handle)
    }

    /// Destroys it. Its queues are destroyed before.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`].
    pub fn destroy(irql: &Passive, handle: Handle) -> Result<()> {
        let context = handle.take::<Self>()?;
        context.device.disown(handle);
        let started = &context.counted.started;
        context.engine.lose();
        set_root(irql, started, &context.engine.space, None);
        crate::interrupt::retire(irql, started, context.engine.slot);
        // After this no entry of the scheduling log is written for the context.
        started.gpu.nodes[context.engine.node].scheduling.settle();
        Ok(())
    }

    /// Adds a queue to the list that resume goes through.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(crate) fn adopt(&self, queue: &Shared<HwQueue<P>>) -> Result<()> {
        self.queues.with(|l| {
            l.try_reserve(1).map_err(|_| Error::NoMemory)?;
            l.push(queue.clone());
            Ok(())
        })
    }

    /// Takes it out again.
    pub(crate) fn disown(&self, queue: &Shared<HwQueue<P>>) {
        let found = self.queues.with(|l| {
            let at = l.iter().position(|q| Shared::ptr_eq(q, queue))?;
            Some(l.swap_remove(at))
        });
        drop(found);
    }

    /// Asks for suspension. `true`: it is suspended already; `false`: the answer comes as an interrupt with `fence`.
    pub fn suspend(&self, _irql: &Passive, fence: u64) -> bool {
        self.counted.started.gpu.suspend(&self.engine, fence) == Suspend::Already
    }

    /// Makes it runnable: what was published meanwhile is looked at, whatever became of the rings.
    pub fn resume(&self, _irql: &Passive) {
        if !self.engine.resume() {
            return;
        }
        let gpu = &self.counted.started.gpu;
        let most = if gpu.mutation.is(Mutation::ResumesOne) { 1 } else { usize::MAX };
        self.queues.with(|l| {
            for queue in l.iter().take(most) {
                gpu.make_ready(&queue.engine);
            }
        });
    }
}
