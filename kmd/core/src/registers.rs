//! Registers of the interrupt source: QEMU's `edu` function, 1234:11e8.
//!
//! BAR0 + 0x60 (write) raises the bits written, + 0x24 (read) shows the raised bits, + 0x64 (write) clears bits. INTx
//! is a level, high while 0x24 is not zero; with MSI each raise sends a message. Bit `n` stands for node `n`.
//!
//! Source: QEMU's `docs/specs/edu`; measured.
#![expect(unsafe_code, reason = "device registers are reached through a mapped address")]

use crate::dxgkrnl::Dxgkrnl;
use crate::irql::Passive;
use crate::status::{Error, Result};
use core::ffi::c_void;
use core::sync::atomic::{Ordering, compiler_fence};

const IDENTIFICATION: usize = 0x00;
const STATUS: usize = 0x24;
const RAISE: usize = 0x60;
const ACKNOWLEDGE: usize = 0x64;

/// Bytes that are mapped.
const LENGTH: u32 = 0x100;
/// What the identification register reads: version in the upper half, 0xed below.
const IDENTITY_MASK: u32 = 0xff;
const IDENTITY: u32 = 0xed;

/// The mapped registers.
pub struct Registers {
    base: *mut c_void,
    dxgkrnl: Dxgkrnl,
}

// SAFETY: the address is of device registers, which any thread may access; each access is one 32-bit operation.
unsafe impl Send for Registers {}
// SAFETY: as above.
unsafe impl Sync for Registers {}

impl Registers {
    /// Maps the BAR at `physical` and checks whose it is.
    ///
    /// # Errors
    /// The callback's; [`Error::NotSupported`] when it is no `edu` function.
    pub fn map(irql: &Passive, dxgkrnl: &Dxgkrnl, physical: i64, length: u64) -> Result<Self> {
        if length < u64::from(LENGTH) {
            return Err(Error::NotSupported);
        }
        let base = dxgkrnl.map_registers(irql, physical, LENGTH)?;
        let registers = Self { base, dxgkrnl: dxgkrnl.clone() };
        if registers.read(IDENTIFICATION) & IDENTITY_MASK != IDENTITY {
            return Err(Error::NotSupported);
        }
        // Whatever was raised before this start is nobody's: a level line that nothing claims would not end.
        registers.acknowledge(u32::MAX);
        Ok(registers)
    }

    /// Raises the interrupt for node `node`. Any IRQL.
    pub fn raise(&self, node: u32) {
        self.write(RAISE, 1 << (node & 31));
    }

    /// The raised bits.
    pub fn status(&self) -> u32 {
        self.read(STATUS)
    }

    /// Clears bits.
    pub fn acknowledge(&self, bits: u32) {
        self.write(ACKNOWLEDGE, bits);
    }

    /// Not inlined, so that a test of the ARM64 image finds it by its name.
    #[inline(never)]
    fn read(&self, offset: usize) -> u32 {
        let at = self.at(offset);
        ordered();
        // SAFETY: `at` is an aligned 32-bit register inside the mapping.
        let value = unsafe { at.read_volatile() };
        ordered();
        value
    }

    /// As [`Self::read`].
    #[inline(never)]
    fn write(&self, offset: usize, value: u32) {
        let at = self.at(offset);
        ordered();
        // SAFETY: `at` is an aligned 32-bit register inside the mapping.
        unsafe { at.write_volatile(value) };
        ordered();
    }

    /// The register at `offset`, which is below LENGTH.
    fn at(&self, offset: usize) -> *mut u32 {
        self.base.wrapping_byte_add(offset).cast()
    }
}

/// Keeps what stands before it before what stands behind it, memory against registers as well.
///
/// ORDERING[IRQ-1]: a notice is in its mailbox before the register is written that raises the interrupt, and bits are
/// acknowledged before mailboxes are read. A volatile access says nothing of memory around it.
///
/// Source: WDK, `READ_REGISTER_ULONG`, `WRITE_REGISTER_ULONG` (which have barriers where the processor needs them).
#[inline(always)]
fn ordered() {
    // x86-64: uncached accesses keep their place among others. So it is the compiler alone that must be held back.
    compiler_fence(Ordering::SeqCst);
    // ARM64: nothing orders device memory against ordinary memory by itself. The whole system and not the processors
    // alone: the other side is a device.
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier touches no register, no memory and no flag.
    unsafe {
        core::arch::asm!("dsb sy", options(nostack, preserves_flags));
    }
}

impl Drop for Registers {
    fn drop(&mut self) {
        // The last reference to what was started goes away in StopDevice or RemoveDevice, or in a destroy call that
        // comes late; all are made at PASSIVE_LEVEL.
        // SAFETY: see above.
        let irql = unsafe { Passive::assume() };
        self.dxgkrnl.unmap_registers(&irql, self.base);
    }
}
