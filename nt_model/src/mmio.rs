//! Device registers: physical ranges whose every access goes to a device model.
//!
//! A device model registers a range ([`Machine::add_device_registers`]); a driver maps it with `MmMapIoSpace`. The
//! mapping has no access rights, so each load and store traps; the trap handler (`trap.rs`) decodes the instruction,
//! asks the model here, and continues after it. The model runs in ordinary context on the driver's thread (no signal
//! handler is active), so it may lock, allocate, and raise an interrupt. An interrupt that it raises is delivered when
//! the emulated instruction is complete and before the next one, as on a processor.
//!
//! Memory that a device offers as RAM (a local segment behind a BAR) does not trap: see
//! [`Machine::add_device_memory`].

use std::fmt;
use std::sync::Arc;

use crate::kernel::Machine;
use crate::memory::{PAGE_SIZE, PageObject};

/// A device's registers.
pub trait Registers: Send + Sync {
    /// A load of `size` bytes (1, 2, 4 or 8) at `offset`. IRQL: the driver's.
    fn read(&self, offset: u64, size: u8) -> u64;

    /// A store of the low `size` bytes of `value` at `offset`. IRQL: the driver's.
    fn write(&self, offset: u64, size: u8, value: u64);
}

/// A range of physical addresses that a device answers.
pub struct DeviceRange {
    base: u64,
    length: u64,
    name: String,
    registers: Box<dyn Registers>,
}

impl fmt::Debug for DeviceRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:#x}+{:#x}", self.name, self.base, self.length)
    }
}

impl DeviceRange {
    /// First physical address.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// For violations.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn read(&self, offset: u64, size: u8) -> u64 {
        // Beyond the end of the range, where a mapping is rounded up to a page: nothing answers.
        if offset >= self.length { u64::MAX } else { self.registers.read(offset, size) }
    }

    pub(crate) fn write(&self, offset: u64, size: u8, value: u64) {
        if offset < self.length {
            self.registers.write(offset, size, value);
        }
    }
}

/// The physical range is taken already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("physical addresses {base:#x} to {end:#x} overlap another range")]
pub struct Overlap {
    /// First address.
    pub base: u64,
    /// End.
    pub end: u64,
}

impl Machine {
    /// Makes `registers` answer physical addresses from `base` on. `base` is page-aligned; drivers find it in the
    /// resource list that whoever starts the device hands them.
    ///
    /// # Errors
    /// [`Overlap`] when another range is there.
    ///
    /// # Panics
    /// When `base` is not page-aligned or `length` is 0.
    pub fn add_device_registers(
        &self,
        name: &str,
        base: u64,
        length: u64,
        registers: impl Registers + 'static,
    ) -> Result<Arc<DeviceRange>, Overlap> {
        assert!(base.is_multiple_of(PAGE_SIZE as u64) && length != 0, "{base:#x}+{length:#x}");
        let range = Arc::new(DeviceRange { base, length, name: name.to_owned(), registers: Box::new(registers) });
        if self.memory.physical.add_registers(&range) { Ok(range) } else { Err(Overlap { base, end: base + length }) }
    }

    /// Takes a device's registers away; mappings that drivers still have read as all ones from then on.
    pub fn remove_device_registers(&self, range: &DeviceRange) {
        self.memory.physical.remove_registers(range);
    }

    /// Makes `pages` pages of memory on a device appear at physical address `base` (page-aligned). Drivers map it with
    /// `MmMapIoSpace` and use it like RAM.
    ///
    /// # Errors
    /// [`Overlap`] when another range is there.
    ///
    /// # Panics
    /// When `base` is not page-aligned.
    pub fn add_device_memory(&self, base: u64, pages: usize) -> Result<Arc<PageObject>, Overlap> {
        assert!(base.is_multiple_of(PAGE_SIZE as u64), "{base:#x}");
        let end = base + (pages * PAGE_SIZE) as u64;
        self.memory.allocate_device_memory(base, pages).ok_or(Overlap { base, end })
    }

    /// Takes a device's memory away: its physical addresses answer nothing from then on. A second call does nothing.
    pub fn remove_device_memory(&self, memory: &Arc<PageObject>) {
        self.memory.physical.free(memory);
    }
}
