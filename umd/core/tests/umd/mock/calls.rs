//! What the functions of gdi32 do in the mock, one file per kind of object.
#![expect(unsafe_code, reason = "records with pointers")]

mod adapters;
mod fences;
mod memory;
mod queues;

pub use adapters::*;
pub use fences::*;
pub use memory::*;
pub use queues::*;

use core::ffi::c_void;
use std::sync::atomic::AtomicU64;

/// Reads what a record's pointer names.
fn read<T: Copy>(pointer: *const T) -> T {
    assert!(!pointer.is_null());
    // SAFETY: umd_core builds records from live borrows.
    unsafe { pointer.read_unaligned() }
}

/// Writes what a record's pointer names.
fn write(pointer: *mut c_void, bytes: &[u8]) {
    assert!(!pointer.is_null());
    // SAFETY: as above; the callers have looked at the size.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer.cast(), bytes.len()) };
}

fn address(word: &'static AtomicU64) -> *mut c_void {
    word.as_ptr().cast()
}
