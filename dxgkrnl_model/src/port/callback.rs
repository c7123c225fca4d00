//! What every callback of a driver begins with: handle, IRQL, the fault plan, and whether an interrupt routine may call
//! it.

use std::sync::Arc;

use nt_model::{In, Routine};
use wddm_abi::{HANDLE, NTSTATUS, Plain, ntstatus};

use crate::port::handle;
use crate::port::miniport::Miniport;
use crate::port::rules::interface::{CB_FROM_ISR, CB_HANDLE};
use crate::port::section::in_isr;

/// Declares the routines of callbacks with their IRQL limits.
macro_rules! routines {
    ($($id:ident = $name:literal ($($argument:literal),*) $min:literal..=$max:literal;)*) => {$(
        static $id: nt_model::Routine = nt_model::Routine::limited($name, &[$($argument),*], $min, $max);
    )*};
}
pub(crate) use routines;

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
    let from_isr = in_isr();
    let allowed = matches!(routine.name, "DxgkCbQueueDpc" | "DxgkCbNotifyInterrupt");
    adapter.rules().check(&CB_FROM_ISR, !from_isr || allowed, || {
        format!("{} called inside DxgkDdiInterruptRoutine", routine.name)
    });
    if let Some((name, gate)) = &adapter.personality().gates.callback
        && *name == routine.name
    {
        match adapter.kernel().irql() {
            0 => gate.pass(adapter.kernel()),
            level => gate.pass_above(level),
        }
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
    crate::port::raw::copy_to(pointer.address(), value.as_bytes());
}
