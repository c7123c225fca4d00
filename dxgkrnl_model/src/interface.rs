//! `DXGKRNL_INTERFACE`: what the driver may call.
//!
//! Every slot has a function. One that the model does not implement refuses, is counted under its name, and so shows in
//! the report. Each begins with [`callback`]: handle, IRQL, the fault plan, and whether an interrupt routine may call
//! it.
//!
//! Bytes behind `Size` hold a pattern: a driver that copies more than `Size` gets pointers that trap.

mod device;
mod feature;
pub(crate) mod memory;
mod object;
mod physical;
mod power;
mod refused;

use std::sync::Arc;

use nt_model::{In, Routine, ShimEntry};
use wddm_abi::slots::DXGKRNL_INTERFACE_SLOTS;
use wddm_abi::{DXGKRNL_INTERFACE, HANDLE, NTSTATUS, Plain, ntstatus};

use crate::handle;
use crate::miniport::Miniport;
use crate::rules::interface::{CB_FROM_ISR, CB_HANDLE};

/// What stands behind `DXGKRNL_INTERFACE.Size`.
const POISON: u8 = 0xD5;

/// Declares the routines of callbacks with their IRQL limits.
macro_rules! routines {
    ($($id:ident = $name:literal ($($argument:literal),*) $min:literal..=$max:literal;)*) => {$(
        static $id: nt_model::Routine = nt_model::Routine::limited($name, &[$($argument),*], $min, $max);
    )*};
}
pub(crate) use routines;

/// The tables whose functions fill the interface.
fn tables() -> [&'static [ShimEntry]; 11] {
    let [refused, others] = refused::tables();
    [
        device::CALLBACKS,
        feature::CALLBACKS,
        memory::CALLBACKS,
        object::CALLBACKS,
        physical::CALLBACKS,
        power::CALLBACKS,
        refused,
        others,
        crate::interrupt::callbacks::CALLBACKS,
        crate::doorbell::callbacks::CALLBACKS,
        crate::recovery::callbacks::CALLBACKS,
    ]
}

/// An interface as a driver sees it: the table, and the pattern behind `Size`.
#[repr(C, align(16))]
#[derive(Debug)]
pub(crate) struct InterfaceTable {
    bytes: [u8; size_of::<DXGKRNL_INTERFACE>() + 64],
}

impl InterfaceTable {
    /// The table for `adapter`.
    pub(crate) fn new(adapter: &Miniport, device_handle: HANDLE) -> Box<Self> {
        let personality = adapter.personality();
        let mut table = DXGKRNL_INTERFACE::zeroed();
        table.Size = personality.interface_size.min(size_of::<DXGKRNL_INTERFACE>() as u32);
        table.Version = personality.build.interface_version();
        table.DeviceHandle = device_handle;
        for entry in tables().into_iter().flatten() {
            if let Some(slot) = DXGKRNL_INTERFACE_SLOTS.iter().find(|slot| slot.member == entry.name) {
                let address = (entry.address.get() as u64).to_le_bytes();
                table.as_bytes_mut()[slot.offset..slot.offset + 8].copy_from_slice(&address);
            }
        }
        let mut this = Box::new(Self { bytes: [POISON; size_of::<DXGKRNL_INTERFACE>() + 64] });
        let size = table.Size as usize;
        this.bytes[..size].copy_from_slice(&table.as_bytes()[..size]);
        this
    }

    /// For `DxgkDdiStartDevice`.
    pub(crate) fn pointer(&mut self) -> *mut DXGKRNL_INTERFACE {
        self.bytes.as_mut_ptr().cast()
    }
}

/// Runs a callback: finds the adapter by its DeviceHandle, checks level and caller, lets the fault plan speak.
///
/// # Errors
/// The status that the callback returns at once: `STATUS_INVALID_PARAMETER` for a handle that leads nowhere, or what
/// the fault plan says.
pub(crate) fn callback<R, const N: usize>(
    device_handle: HANDLE,
    routine: &'static Routine,
    arguments: [u64; N],
    run: impl FnOnce(&Arc<Miniport>) -> R,
) -> Result<R, NTSTATUS> {
    let Some(adapter) = handle::object::<Miniport>(device_handle) else {
        report_handle(device_handle, routine);
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    };
    callback_of(&adapter, routine, arguments, run)
}

/// [`callback`] for one whose adapter was found another way.
pub(crate) fn callback_of<R, const N: usize>(
    adapter: &Arc<Miniport>,
    routine: &'static Routine,
    arguments: [u64; N],
    run: impl FnOnce(&Arc<Miniport>) -> R,
) -> Result<R, NTSTATUS> {
    let _service = adapter.kernel().service(routine, arguments);
    adapter.rules().count(&CB_HANDLE);
    adapter.count_callback(routine.name);
    let from_isr = crate::interrupt::in_isr();
    let allowed = matches!(routine.name, "DxgkCbQueueDpc" | "DxgkCbNotifyInterrupt");
    adapter.rules().check(&CB_FROM_ISR, !from_isr || allowed, || {
        format!("{} called inside DxgkDdiInterruptRoutine", routine.name)
    });
    if let Some((name, gate)) = &adapter.personality().gates.callback
        && *name == routine.name
        && adapter.kernel().irql() == 0
    {
        gate.pass(adapter.kernel());
    }
    if let Some(status) = adapter.injected_failure(routine.name) {
        return Err(status);
    }
    Ok(run(adapter))
}

/// A callback got a device handle that leads nowhere.
fn report_handle(device_handle: HANDLE, routine: &'static Routine) {
    nt_model::Machine::with_current(|machine| {
        if let Some(machine) = machine {
            machine
                .rules
                .check(&CB_HANDLE, false, || format!("{} got {}", routine.name, handle::describe(device_handle)));
        }
    });
}

/// The record that a driver passed. A bad pointer ends the driver's call (NT-POINTER).
pub(crate) fn record<T: Plain, const N: usize>(pointer: In<[u8; N]>) -> T {
    const { assert!(size_of::<T>() == N, "the array has the record's size") };
    // The bytes are copied once; the driver's other threads may change the original meanwhile.
    let bytes = *pointer.get();
    match T::from_bytes(&bytes) {
        Some(record) => record,
        // PANIC: the sizes are equal, by the assertion.
        None => unreachable!("a record of {N} bytes"),
    }
}

/// Stores a record where a driver passed one for input and output.
pub(crate) fn store_record<T: Plain, const N: usize>(pointer: In<[u8; N]>, value: &T) {
    const { assert!(size_of::<T>() == N, "the array has the record's size") };
    crate::raw::copy_to(pointer.address(), value.as_bytes());
}
