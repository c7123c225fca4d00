//! Native fences: the global object, and each opening of it. Source: *Native GPU fence object*, "Global and local
//! handles for a shared fence"; `DxgkDdiCreateNativeFence` and its fellows.

use crate::adapter::{Counted, EngineHost, Started};
use crate::device::Device;
use crate::handle::{Handle, Tag, object};
use crate::irql::{AtMostDispatch, Dirql, Passive};
use crate::platform::Platform;
use crate::quota::{Charge, Owned};
use crate::status::{Error, Result};
use core::sync::atomic::{AtomicU32, Ordering};
use gpu_engine::fence;
use gpu_engine::fence_table::OpenError;
use gpu_engine::host::Host as _;
use gpu_engine::memory::SharedWord;
use gpu_engine::plate::OfFence;
use gpu_engine::shared::Shared;
use gpu_wire::GpuVa;
use gpu_wire::private::{FENCE_REPLY_OFFSET, FenceReply, MAGIC};
use wddm_abi::D3DDDI_NATIVEFENCE_TYPE;

/// The engine's side.
pub type EngineFence<P> = gpu_engine::queue::ParkedFence<EngineHost<P>>;

/// The global object, one per adapter and fence.
pub struct NativeFence<P: Platform> {
    /// What the engines know of it.
    pub engine: Shared<EngineFence<P>>,
    /// Dxgkrnl's handle: what interrupts must name. It arrives in the field that the driver's handle leaves in.
    pub os: u64,
    opens: AtomicU32,
    /// Whose it is, by its first opening.
    owned: Owned<P::Lock<Option<Charge>>>,
    /// Counted in the census, and a reference to the adapter.
    pub counted: Counted<P>,
}

object!(NativeFence: NativeFence<P>);

/// One opening, by a device.
pub struct LocalFence<P: Platform> {
    /// The fence.
    pub global: Shared<NativeFence<P>>,
    /// Who opened it.
    pub device: Shared<Device<P>>,
    /// Where the process has CurrentValue mapped.
    pub current: GpuVa,
    /// Counted in the census, and a reference to the adapter.
    pub counted: Counted<P>,
}

object!(LocalFence: LocalFence<P>);

/// What OpenNativeFence asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Open {
    /// `CurrentValueGpuVa`.
    pub current: GpuVa,
    /// `MonitoredValueGpuVa`.
    pub monitored: GpuVa,
}

impl<P: Platform> NativeFence<P> {
    /// Creates a fence; `os` is what `hGlobalNativeFence` held on input. The last 16 bytes of `private` become a
    /// [`FenceReply`], the others stay as user mode sent them.
    ///
    /// # Errors
    /// [`Error::NotSupported`] when native fences are off, or for an intra-GPU fence that the OS does not let drivers
    /// have; [`Error::InvalidParameter`] for an unknown type; [`Error::NoMemory`].
    pub fn create(
        _irql: &Passive,
        started: &Shared<Started<P>>,
        kind: D3DDDI_NATIVEFENCE_TYPE,
        os: u64,
        private: &mut [u8],
    ) -> Result<Handle> {
        match kind {
            _ if !started.plan.native_fences() => return Err(Error::NotSupported),
            D3DDDI_NATIVEFENCE_TYPE::D3DDDI_NATIVEFENCE_TYPE_DEFAULT => {}
            D3DDDI_NATIVEFENCE_TYPE::D3DDDI_NATIVEFENCE_TYPE_INTRA_GPU => {
                if !started.plan.intra_gpu_fences {
                    return Err(Error::NotSupported);
                }
            }
            _ => return Err(Error::InvalidParameter),
        }
        let slots = &started.gpu.slots;
        let slot = slots.allocate(os)?;
        let made = (|| {
            let engine = Shared::try_new(EngineFence::<P>::new(slot, started.settings.shadow_monitored_value))?;
            let counted = Counted::new(started.clone(), |c| &c.fences);
            let fence = Self { engine, os, opens: AtomicU32::new(0), owned: Owned::new(), counted };
            Handle::create(Shared::try_new(fence)?)
        })();
        let handle = made.map_err(|e| {
            slots.kill(slot);
            slots.free(slot);
            Error::from(e)
        })?;
        slots.set_driver_handle(slot, handle.raw());
        started.gpu.show_fence(slot, OfFence::Made);
        reply(private, slot, 0);
        Ok(handle)
    }

    /// Destroys it. Every opening was closed before; Dxgkrnl frees the storage when this returns.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`].
    pub fn destroy(irql: &Passive, handle: Handle) -> Result<()> {
        let fence = handle.take::<Self>()?;
        fence.owned.end();
        let started = &fence.counted.started;
        let gpu = &started.gpu;
        // A queue that still waits for it (its process is being torn down) waits no more.
        fence.engine.set_always_signaled::<SharedWord<'_>>(None, |queue, ticket| {
            queue.wake(ticket, true, gpu.host.clock());
            gpu.make_ready(&queue);
        });
        // After this no interrupt can name the fence.
        crate::interrupt::retire(irql, started, fence.engine.slot);
        Ok(())
    }
}

impl<P: Platform> LocalFence<P> {
    /// Opens `global` for `device`.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for addresses that are misaligned or taken by another fence; [`Error::NoMemory`],
    /// also when the process has as many objects as it may.
    pub fn open(
        irql: &Passive,
        device: &Shared<Device<P>>,
        global: &Shared<NativeFence<P>>,
        open: Open,
        private: Option<&mut [u8]>,
    ) -> Result<Handle> {
        let started = &device.counted.started;
        if !open.current.is_aligned(8) || !open.monitored.is_aligned(8) {
            return Err(Error::InvalidParameter);
        }
        global.owned.open(&device.process.account)?;
        let table = &device.process.engine.fences;
        table.open(open.current, open.monitored, &global.engine).map_err(|e| match e {
            OpenError::NoMemory => Error::NoMemory,
            OpenError::AddressTaken => Error::InvalidParameter,
        })?;
        let made = (|| {
            let counted = Counted::new(started.clone(), |c| &c.local_fences);
            let local = Self { global: global.clone(), device: device.clone(), current: open.current, counted };
            Handle::create(Shared::try_new(local)?)
        })();
        let handle = made.map_err(|e| {
            table.close(open.current);
            Error::from(e)
        })?;
        device.adopt(Tag::LocalFence, handle, Self::close).inspect_err(|_| {
            let _gone = Self::close(irql, handle);
        })?;
        let opens = global.opens.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        started.gpu.show_fence(global.engine.slot, OfFence::Opened(opens.into(), open.current.0));
        if let Some(private) = private {
            reply(private, global.engine.slot, opens);
        }
        Ok(handle)
    }

    /// Closes it.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`].
    pub fn close(_irql: &Passive, handle: Handle) -> Result<()> {
        let local = handle.take::<Self>()?;
        local.device.disown(handle);
        local.device.process.engine.fences.close(local.current);
        Ok(())
    }
}

fn reply(private: &mut [u8], slot: gpu_engine::slots::SlotId, opens: u32) {
    let reply = FenceReply { index: slot.index, generation: slot.generation, magic: MAGIC, opens };
    let bytes = reply.bytes();
    if let Some(to) = private.get_mut(FENCE_REPLY_OFFSET..FENCE_REPLY_OFFSET + bytes.len()) {
        to.copy_from_slice(bytes);
    }
}

/// One entry of an update batch, with the word that the OS mapped for the duration of the call.
pub struct Update<'call> {
    /// The fence.
    pub fence: Handle,
    /// The new value.
    pub value: u64,
    /// Where it goes; `None` where the OS gave no address.
    pub word: Option<SharedWord<'call>>,
}

/// `DxgkDdiUpdateMonitoredValues`: writes each MonitoredValue so that a CurrentValue read after the return was either
/// written by an engine that saw it, or is seen by that read. In shadow mode a signal that saw neither is reported from
/// here, as the context management processor would. Takes no lock, waits for no thread, keeps no address.
///
/// # Errors
/// [`Error::InvalidParameter`] when an entry's handle is not a fence's or has no address; the others are carried out
/// all the same.
pub fn update_monitored<'c, P: Platform>(irql: &Dirql, updates: impl Iterator<Item = Update<'c>>) -> Result<()> {
    let mut result = Ok(());
    for update in updates {
        let updated = update.fence.borrow(|fence: &NativeFence<P>| update_one(irql, fence, &update));
        if let Err(error) | Ok(Err(error)) = updated {
            result = Err(error);
        }
    }
    result
}

/// An entry of [`update_monitored`]'s batch.
fn update_one<P: Platform>(irql: &Dirql, fence: &NativeFence<P>, update: &Update<'_>) -> Result<()> {
    let mutation = &fence.counted.started.gpu.mutation;
    let word = update.word.as_ref().ok_or(Error::InvalidParameter)?;
    if fence::update_monitored(word, fence.engine.shadow.as_ref(), update.value, mutation) {
        crate::interrupt::report_fence(irql, &fence.counted.started, fence.os);
    }
    Ok(())
}

/// How a batch of current values is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CurrentUpdate {
    /// Write the value, wake who waits.
    Write,
    /// The device is in error: write the value that came, then waits pass and signals do nothing.
    AlwaysSignaled,
    /// Another adapter wrote the value: only look who can go on.
    NotificationOnly,
}

/// `DxgkDdiUpdateCurrentValuesFromCpu`. Up to `DISPATCH_LEVEL`. Takes the spin locks `Fence::storing` and
/// `ParkingLot::list` of each fence for a few stores, and waits for nothing else; keeps no address.
///
/// # Errors
/// As for [`update_monitored`].
pub fn update_current<'c, P: Platform>(
    _irql: &impl AtMostDispatch,
    how: CurrentUpdate,
    updates: impl Iterator<Item = Update<'c>>,
) -> Result<()> {
    let mut result = Ok(());
    for update in updates {
        let updated = update.fence.borrow(|fence: &NativeFence<P>| current_of_one(fence, how, &update));
        if let Err(error) | Ok(Err(error)) = updated {
            result = Err(error);
        }
    }
    result
}

/// An entry of [`update_current`]'s batch.
fn current_of_one<P: Platform>(fence: &NativeFence<P>, how: CurrentUpdate, update: &Update<'_>) -> Result<()> {
    let gpu = &fence.counted.started.gpu;
    let before = gpu.next_ticket();
    let wake = |queue: Shared<crate::hw_queue::EngineQueue<P>>, ticket, granted| {
        queue.wake(ticket, granted, gpu.host.clock());
        gpu.make_ready(&queue);
    };
    match (how, &update.word) {
        (CurrentUpdate::Write, Some(word)) => {
            gpu.show_fence(fence.engine.slot, OfFence::FromCpu(update.value));
            fence.engine.signal_from_cpu(word, update.value, &gpu.mutation, |q, t| wake(q, t, t < before));
        }
        (CurrentUpdate::AlwaysSignaled, word) => {
            gpu.show_fence(fence.engine.slot, OfFence::AlwaysSignaled);
            let last = word.as_ref().map(|word| (word, update.value));
            fence.engine.set_always_signaled(last, |q, t| wake(q, t, true));
        }
        // Each queue reads CurrentValue through its own mapping and parks again if it is not time.
        (CurrentUpdate::NotificationOnly, _) => {
            fence.engine.parked.look_again(|q, t| wake(q, t, false));
        }
        (CurrentUpdate::Write, None) => return Err(Error::InvalidParameter),
    }
    Ok(())
}
