//! From a part of a record to the whole.
#![expect(unsafe_code, reason = "a dispatcher header is the first member of the object that its kind names")]

use crate::records::{DispatcherHeader, KMUTANT};

/// The mutex that begins with `header`, whose kind must be [`OBJECT_MUTANT`](crate::records::OBJECT_MUTANT).
pub(crate) fn mutant_of(header: &DispatcherHeader) -> &KMUTANT {
    debug_assert_eq!(header.kind.load(std::sync::atomic::Ordering::Relaxed), crate::records::OBJECT_MUTANT);
    let mutant = core::ptr::from_ref(header).cast::<KMUTANT>();
    // SAFETY: a header is marked as a mutex only by `initialize_mutex`, which was given the whole KMUTANT; the record
    // consists of atomics, and lives as long as its header.
    unsafe { &*mutant }
}
