//! Records behind pointers of drivers and at addresses of the model: the one place where they are read and written.
//!
//! A driver's pointer is taken at its word here, as Dxgkrnl takes it: a wild one traps, and nt_model reports the trap
//! with the callback that was in progress. User-mode pointers never come here; see [`crate::entry::thunks::capture`].
#![expect(unsafe_code, reason = "records behind pointers that drivers passed are read and written, as plain data")]

use std::sync::atomic::{AtomicU64, Ordering};

use wddm_abi::Plain;

/// Whether a driver may have meant `pointer`: not NULL, and aligned for `T`.
fn is_sound<T>(pointer: *const T) -> bool {
    !pointer.is_null() && pointer.is_aligned()
}

/// The record at `pointer`; `None` when it is NULL or misaligned.
pub(crate) fn read<T: Plain>(pointer: *const T) -> Option<T> {
    if !is_sound(pointer) {
        return None;
    }
    // SAFETY: not NULL and aligned; that a record is there is what the driver says by passing it. Any bytes are a valid
    // `Plain` value.
    Some(unsafe { pointer.read_volatile() })
}

/// Stores a record; false when `pointer` is NULL or misaligned.
pub(crate) fn write<T: Plain>(pointer: *mut T, value: T) -> bool {
    if !is_sound(pointer) {
        return false;
    }
    // SAFETY: as in `read`; the driver passed it for output.
    unsafe { pointer.write_volatile(value) };
    true
}

/// Copies `count` elements that a driver passed; `None` when the pointer is unsound.
pub(crate) fn read_array<T: Plain>(pointer: *const T, count: usize) -> Option<Vec<T>> {
    if count == 0 {
        return Some(Vec::new());
    }
    if !is_sound(pointer) {
        return None;
    }
    let element = |at| {
        // SAFETY: the driver says that `count` elements are there.
        let pointer = unsafe { pointer.add(at) };
        // SAFETY: as in `read`.
        unsafe { pointer.read_volatile() }
    };
    Some((0..count).map(element).collect())
}

/// Copies bytes out of mapped memory at `address`. Callers name memory that they have mapped.
pub(crate) fn bytes_at(address: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let from: *const u8 = core::ptr::with_exposed_provenance(address);
    // SAFETY: callers pass ranges that the model has mapped readable and keeps mapped; racing stores by a GPU thread
    // give torn bytes, which is what a read of device memory gives.
    unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), length) };
    bytes
}

/// Copies bytes into mapped memory at `address`. Callers name memory that they have mapped.
pub(crate) fn copy_to(address: usize, bytes: &[u8]) {
    let to: *mut u8 = core::ptr::with_exposed_provenance_mut(address);
    // SAFETY: as in `bytes_at`, mapped writable.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

/// The 64-bit word at `address`, which the model has mapped and keeps mapped while the result is used.
pub(crate) fn word(address: usize) -> &'static AtomicU64 {
    debug_assert!(address.is_multiple_of(8), "{address:#x} is not aligned");
    let pointer: *const AtomicU64 = core::ptr::with_exposed_provenance(address);
    // SAFETY: callers pass aligned addresses in pages that the model has mapped for itself and unmaps only when the
    // object that holds the address is gone; every access to the word is a 64-bit one.
    unsafe { &*pointer }
}

/// Loads the word at `address`, ordered after earlier loads and stores.
pub(crate) fn load(address: usize) -> u64 {
    word(address).load(Ordering::SeqCst)
}

/// Stores the word at `address`.
pub(crate) fn store(address: usize, value: u64) {
    word(address).store(value, Ordering::SeqCst);
}
