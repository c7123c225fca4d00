//! The header of an MDL by its address.
#![expect(unsafe_code, reason = "MDLs lie in driver memory and are known by address")]

use crate::records::MDL;

/// The MDL header at `address`.
pub(super) fn at<'a>(address: usize) -> &'a MDL {
    let pointer: *const MDL = core::ptr::with_exposed_provenance(address);
    // SAFETY: an `Mdl` is made from a reference that a driver passed (probed at the shim) or by an allocation of this
    // model; the record consists of atomics. That it is not used after the MDL was freed is the same promise that the
    // driver makes with the pointer; freed pool stays mapped, so a broken one reads stale words.
    unsafe { &*pointer }
}
