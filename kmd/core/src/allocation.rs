//! Allocations: what they are, and in which segments they may live. Source: `DxgkDdiCreateAllocation`,
//! `DXGK_ALLOCATIONINFO`.

use crate::adapter::{Counted, Started};
use crate::device::Device;
use crate::handle::{Handle, Tag, object};
use crate::irql::Passive;
use crate::platform::Platform;
use crate::quota::{Charge, Owned};
use crate::segments;
use crate::status::{Error, Result};
use gpu_engine::shared::Shared;
use gpu_wire::PAGE_SIZE;
use gpu_wire::private::{AllocationData, MAGIC, allocation_kind};

/// An allocation.
pub struct Allocation<P: Platform> {
    /// Bytes.
    pub size: u64,
    /// Whether it lives in local memory.
    pub local: bool,
    /// Whose it is, by its first opening.
    owned: Owned<P::Lock<Option<Charge>>>,
    /// Counted in the census, and a reference to the adapter.
    pub counted: Counted<P>,
}

object!(Allocation: Allocation<P>);

/// What CreateAllocation tells VidMm of one allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Bytes.
    pub size: u64,
    /// Segment set, bit 0 for segment 1.
    pub segments: u32,
    /// The first choice.
    pub preferred: u32,
    /// The CPU may lock it.
    pub cpu_visible: bool,
}

impl<P: Platform> Allocation<P> {
    /// Creates an allocation from its private data.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for private data that is not ours or not sensible; [`Error::NoMemory`].
    pub fn create(_irql: &Passive, started: &Shared<Started<P>>, private: &[u8]) -> Result<(Handle, Placement)> {
        let data = AllocationData::read(private).ok_or(Error::InvalidParameter)?;
        let sane = data.magic == MAGIC
            && data.reserved == 0
            && data.size != 0
            && data.size.is_multiple_of(PAGE_SIZE)
            && data.size <= 1 << 40;
        let local = match data.kind {
            allocation_kind::SYSTEM => false,
            allocation_kind::LOCAL => true,
            _ => return Err(Error::InvalidParameter),
        };
        if !sane {
            return Err(Error::InvalidParameter);
        }
        let order = segments::Order::of(&started.settings);
        let segment = if local { order.local() } else { order.aperture() };
        let counted = Counted::new(started.clone(), |c| &c.allocations);
        let handle = Handle::create(Shared::try_new(Self { size: data.size, local, owned: Owned::new(), counted })?)?;
        let placement =
            Placement { size: data.size, segments: segments::set_of(segment), preferred: segment, cpu_visible: !local };
        Ok((handle, placement))
    }

    /// Destroys it.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`].
    pub fn destroy(_irql: &Passive, handle: Handle) -> Result<()> {
        handle.take::<Self>()?.owned.end();
        Ok(())
    }
}

/// What a doorbell must know of the allocations that it names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingMemory {
    /// Bytes.
    pub size: u64,
    /// Whether it lives in local memory, which the CPU cannot write.
    pub local: bool,
}

/// The allocation behind a handle, which may be the allocation's or a device's.
///
/// # Errors
/// [`Error::InvalidParameter`].
pub fn ring_memory<P: Platform>(handle: Handle) -> Result<RingMemory> {
    if let Ok(allocation) = handle.get::<Allocation<P>>() {
        return Ok(RingMemory { size: allocation.size, local: allocation.local });
    }
    handle.get::<OpenAllocation<P>>().map(|open| open.memory)
}

/// An allocation as a device sees it.
pub struct OpenAllocation<P: Platform> {
    /// The device.
    pub device: Shared<Device<P>>,
    /// Dxgkrnl's handle.
    pub os: u32,
    /// What it is, from the private data that it was created with.
    pub memory: RingMemory,
}

object!(OpenAllocation: OpenAllocation<P>);

impl<P: Platform> OpenAllocation<P> {
    /// Opens an allocation for a device. Private data that is not ours (a standard allocation) opens as nothing usable.
    ///
    /// # Errors
    /// [`Error::NoMemory`], also when the process has as many objects as it may.
    pub fn open(irql: &Passive, device: &Shared<Device<P>>, os: u32, private: &[u8]) -> Result<Handle> {
        // The record has the OS's handle alone, and the OS knows ours. Where it says nothing, or something else than an
        // allocation of this driver, nobody has the allocation counted.
        let ours = Handle::from_ptr(device.counted.started.dxgkrnl.allocation(irql, os));
        if let Ok(allocation) = ours.get::<Allocation<P>>() {
            allocation.owned.open(&device.process.account)?;
        }
        let memory = match AllocationData::read(private) {
            Some(data) if data.magic == MAGIC => {
                RingMemory { size: data.size, local: data.kind == allocation_kind::LOCAL }
            }
            _ => RingMemory { size: 0, local: true },
        };
        let handle = Handle::create(Shared::try_new(Self { device: device.clone(), os, memory })?)?;
        device.adopt(Tag::OpenAllocation, handle, Self::close).inspect_err(|_| drop(handle.take::<Self>()))?;
        Ok(handle)
    }

    /// Closes it. Waits for nothing: a process may have died without destroying its contexts.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`].
    pub fn close(_irql: &Passive, handle: Handle) -> Result<()> {
        let open = handle.take::<Self>()?;
        open.device.disown(handle);
        Ok(())
    }
}
