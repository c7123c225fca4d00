//! What the functions do. Their meaning is documented in `table.rs`; every function here is called through the table
//! only.
//!
//! What they all rely on, from a C caller: a pointer to a structure is NULL or points at as many bytes as the
//! structure's `size` says; an output pointer is NULL or writable; a handle is NULL or live, and stays so during the
//! call.

mod adapter;
mod allocation;
mod fence;
mod list;
mod queue;

pub(super) use adapter::*;
pub(super) use allocation::*;
pub(super) use fence::*;
pub(super) use list::*;
pub(super) use queue::*;

use super::last_error;
use crate::error::UmdError;
use crate::thunks::Thunks;

/// Runs a function: 0, or the error's status with the error noted for `fp_last_error_text`.
fn run<T: Thunks>(body: impl FnOnce() -> Result<(), UmdError>) -> i32 {
    match body() {
        Ok(()) => 0,
        Err(error) => {
            last_error::set(T::thread_id(), error);
            error.status().0
        }
    }
}

/// A structure that crosses the C ABI.
///
/// # Safety
/// The first member is `size: u32`; all zeros is a valid value; it has no padding that matters to anyone.
unsafe trait Record: Copy {}

macro_rules! records {
    ($($name:ident),* $(,)?) => {
        // SAFETY: `#[repr(C)]` with `size: u32` first, and integers, arrays of them and nullable pointers behind.
        $(unsafe impl Record for super::types::$name {})*
    };
}

records! {
    FpAdapterOpen, FpAdapterInfo, FpNodeInfo, FpDeviceState, FpAllocationCreate, FpAllocationInfo, FpQueueCreate,
    FpQueueInfo, FpQueueCounters, FpThunkCalls, FpFenceCreate, FpFenceInfo, FpCopyRect, FpFilterRect,
}

/// Smallest `size` that any caller was ever compiled with: all structures are still in their first form.
const fn smallest<R: Record>() -> usize {
    size_of::<R>()
}

fn zeroed<R: Record>() -> R {
    // SAFETY: Record's contract.
    unsafe { core::mem::zeroed() }
}

/// The caller's `size` of a structure.
///
/// # Safety
/// `pointer` is not null and points at a structure that starts with its size.
unsafe fn caller_size<R: Record>(pointer: *const R) -> Result<usize, UmdError> {
    if !pointer.addr().is_multiple_of(align_of::<R>()) {
        return Err(UmdError::InvalidArgument("misaligned structure"));
    }
    // SAFETY: the caller's promise; aligned, as checked.
    let size = unsafe { pointer.cast::<u32>().read() } as usize;
    // 4096: no structure comes near; a size that was never set should not be followed far.
    if (smallest::<R>()..=4096).contains(&size) { Ok(size) } else { Err(UmdError::InvalidArgument("size")) }
}

/// A copy of the caller's structure. What a later version has behind it must be zero.
///
/// # Safety
/// `pointer` is null or points at `size` bytes, as its first member says.
unsafe fn input<R: Record>(pointer: *const R) -> Result<R, UmdError> {
    if pointer.is_null() {
        return Err(UmdError::InvalidArgument("null structure"));
    }
    // SAFETY: not null; the caller's promise.
    let size = unsafe { caller_size(pointer) }?;
    let mut record = zeroed::<R>();
    let known = size.min(size_of::<R>());
    // SAFETY: `known` bytes are readable by the caller's promise, and fit `record`.
    unsafe { core::ptr::copy_nonoverlapping(pointer.cast::<u8>(), (&raw mut record).cast(), known) };
    for at in known..size {
        // SAFETY: below `size`, so readable by the caller's promise.
        let byte = unsafe { pointer.cast::<u8>().wrapping_add(at).read() };
        if byte != 0 {
            return Err(UmdError::InvalidArgument("unknown member"));
        }
    }
    Ok(record)
}

/// [`input`], or zeros for null.
///
/// # Safety
/// As for [`input`].
unsafe fn input_or_zeros<R: Record>(pointer: *const R) -> Result<R, UmdError> {
    if pointer.is_null() {
        return Ok(zeroed());
    }
    // SAFETY: the caller's promise.
    unsafe { input(pointer) }
}

/// Fills the caller's structure as far as its size goes; `size` stays as it is.
///
/// # Safety
/// `pointer` is null or points at `size` writable bytes, as its first member says.
unsafe fn output<R: Record>(pointer: *mut R, record: R) -> Result<(), UmdError> {
    if pointer.is_null() {
        return Err(UmdError::InvalidArgument("null structure"));
    }
    // SAFETY: not null; the caller's promise.
    let size = unsafe { caller_size(pointer) }?;
    let known = size.min(size_of::<R>()) - size_of::<u32>();
    let from = (&raw const record).cast::<u8>().wrapping_add(size_of::<u32>());
    let to = pointer.cast::<u8>().wrapping_add(size_of::<u32>());
    // SAFETY: `known` bytes behind the size lie inside both structures.
    unsafe { core::ptr::copy_nonoverlapping(from, to, known) };
    Ok(())
}

/// Stores a result where the caller wants it.
///
/// # Errors
/// [`UmdError::InvalidArgument`] for null.
///
/// # Safety
/// `pointer` is null or writable.
unsafe fn put<V>(pointer: *mut V, value: V) -> Result<(), UmdError> {
    // SAFETY: the caller's promise.
    if unsafe { put_if(pointer, value) } { Ok(()) } else { Err(UmdError::InvalidArgument("null result")) }
}

/// Stores a result if the caller wants it; whether it did.
///
/// # Safety
/// `pointer` is null or writable.
unsafe fn put_if<V>(pointer: *mut V, value: V) -> bool {
    if pointer.is_null() || !pointer.is_aligned() {
        return false;
    }
    // SAFETY: not null and aligned; the caller's promise.
    unsafe { pointer.write(value) };
    true
}

/// Text as a zero-terminated array, cut to fit.
fn text<const N: usize>(from: &str) -> [u8; N] {
    let mut array = [0; N];
    let len = from.len().min(N - 1);
    array[..len].copy_from_slice(&from.as_bytes()[..len]);
    array
}

/// Whether only known flags are set.
fn check_flags(flags: u32, known: u32) -> Result<(), UmdError> {
    if flags & !known == 0 { Ok(()) } else { Err(UmdError::InvalidArgument("flags")) }
}
