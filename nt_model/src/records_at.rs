//! Records at addresses, for tests that place them in pool as a driver does.
#![cfg(test)]
#![expect(unsafe_code, reason = "tests make references into memory that they have allocated")]

use crate::records::{KDPC, KEVENT, KTIMER};

/// An event in live, aligned pool of at least its size.
pub(crate) fn event(address: usize) -> &'static KEVENT {
    let pointer: *const KEVENT = core::ptr::with_exposed_provenance(address);
    // SAFETY: the tests pass a live allocation; the record consists of atomics, any bytes are valid.
    unsafe { &*pointer }
}

/// A timer in live, aligned pool of at least its size.
pub(crate) fn timer(address: usize) -> &'static KTIMER {
    let pointer: *const KTIMER = core::ptr::with_exposed_provenance(address);
    // SAFETY: the tests pass a live allocation; the record consists of atomics, any bytes are valid.
    unsafe { &*pointer }
}

/// A DPC in live, aligned pool of at least its size.
pub(crate) fn dpc(address: usize) -> &'static KDPC {
    let pointer: *const KDPC = core::ptr::with_exposed_provenance(address);
    // SAFETY: as above.
    unsafe { &*pointer }
}
