//! Calling a driver's functions by address, with the Windows calling convention.
#![expect(unsafe_code, reason = "a function pointer that a driver gave is called")]

use core::ffi::c_void;

use crate::user::guard::{AccessViolation, try_user};

/// `KDEFERRED_ROUTINE`, services, and everything else with up to twelve pointer-sized arguments and such a result.
type Routine = unsafe extern "win64" fn(
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
) -> usize;

/// Calls the function at `address` with `arguments`. In the win64 convention a callee ignores arguments beyond its own,
/// so one signature serves all that take integers and pointers.
///
/// Only reached with addresses that a driver registered as a callback of that kind, inside `call_driver`.
pub(crate) fn invoke<const N: usize>(address: usize, arguments: [usize; N]) -> usize {
    const { assert!(N <= 12, "at most twelve arguments") };
    let mut a = [0; 12];
    a[..N].copy_from_slice(&arguments);
    let pointer: *const c_void = core::ptr::with_exposed_provenance(address);
    // SAFETY: a non-null data pointer has the size of a function pointer; that code of this kind is there is what the
    // driver promised when it registered the callback. When it is not, the trap handler reports the jump.
    let routine = unsafe { core::mem::transmute::<*const c_void, Routine>(pointer) };
    // SAFETY: as above.
    unsafe { routine(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]) }
}

/// Calls a function of user mode by its address, with one argument, as a thread of the process that the calling thread
/// is in. Its frames are left where they are when it touches what it must not: see [`try_user`].
///
/// # Errors
/// [`AccessViolation`].
pub fn call_user(address: usize, argument: usize) -> Result<usize, AccessViolation> {
    try_user(|| invoke(address, [argument]))
}
