//! Pointers to references.

use core::ffi::c_void;
use gpu_engine::shared::Shared;
use kmd_core::adapter::{Adapter, Started};
use kmd_core::handle::{Handle, Object};
use kmd_core::platform::Platform;
use kmd_core::status::{Error, Result};

/// The record behind `at`, or a refusal for NULL.
///
/// # Safety
/// `at` is NULL or points at a `T` that stays valid and unaliased for `'a`.
pub(crate) unsafe fn record<'a, T>(at: *const T) -> Result<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { at.as_ref() }.ok_or(Error::InvalidParameter)
}

/// The record behind `at`, to be written.
///
/// # Safety
/// As for [`record`], and nobody else reads or writes it for `'a`.
pub(crate) unsafe fn record_mut<'a, T>(at: *mut T) -> Result<&'a mut T> {
    // SAFETY: the caller's promise.
    unsafe { at.as_mut() }.ok_or(Error::InvalidParameter)
}

/// `count` elements at `at`; none when `count` is 0, whatever `at` is.
///
/// # Safety
/// `at` is NULL or points at `count` elements that stay valid and unchanged for `'a`.
pub(crate) unsafe fn array<'a, T>(at: *const T, count: usize) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if at.is_null() || !at.is_aligned() || count.checked_mul(size_of::<T>()).is_none_or(|n| n > isize::MAX as usize) {
        return Err(Error::InvalidParameter);
    }
    // SAFETY: not NULL, aligned, and the caller's promise.
    Ok(unsafe { core::slice::from_raw_parts(at, count) })
}

/// `count` elements at `at`, to be written.
///
/// # Safety
/// As for [`array()`], and nobody else reads or writes them for `'a`.
pub(crate) unsafe fn array_mut<'a, T>(at: *mut T, count: usize) -> Result<&'a mut [T]> {
    if count == 0 {
        return Ok(&mut []);
    }
    if at.is_null() || !at.is_aligned() || count.checked_mul(size_of::<T>()).is_none_or(|n| n > isize::MAX as usize) {
        return Err(Error::InvalidParameter);
    }
    // SAFETY: not NULL, aligned, and the caller's promise.
    Ok(unsafe { core::slice::from_raw_parts_mut(at, count) })
}

/// The bytes of a private data buffer.
///
/// # Safety
/// As for [`array_mut`].
pub(crate) unsafe fn bytes_mut<'a>(at: *mut c_void, size: u32) -> Result<&'a mut [u8]> {
    // SAFETY: the caller's promise.
    unsafe { array_mut(at.cast::<u8>(), size as usize) }
}

/// The bytes of a private data buffer that is only read.
///
/// # Safety
/// As for [`array()`].
pub(crate) unsafe fn bytes<'a>(at: *const c_void, size: u32) -> Result<&'a [u8]> {
    // SAFETY: the caller's promise.
    unsafe { array(at.cast::<u8>(), size as usize) }
}

/// The object behind a handle, counted: for DDIs at `PASSIVE_LEVEL`.
pub(crate) fn object<T: Object>(handle: *mut c_void) -> Result<Shared<T>> {
    Handle::from_ptr(handle).get()
}

/// The adapter behind `hAdapter`, started and counted: for DDIs at `PASSIVE_LEVEL`.
pub(crate) fn started<P: Platform>(adapter: *mut c_void) -> Result<Shared<Started<P>>> {
    object::<Adapter<P>>(adapter)?.started()
}

/// Calls `f` with the object behind a handle, without counting a reference: for what runs above `PASSIVE_LEVEL`.
pub(crate) fn borrow<T: Object, R>(handle: *mut c_void, f: impl FnOnce(&T) -> Result<R>) -> Result<R> {
    Handle::from_ptr(handle).borrow(f)?
}

/// Calls `f` with the adapter behind `hAdapter`, started, as [`borrow`] does.
pub(crate) fn with_started<P: Platform, R>(
    adapter: *mut c_void,
    f: impl FnOnce(&Started<P>) -> Result<R>,
) -> Result<R> {
    borrow::<Adapter<P>, _>(adapter, |adapter| adapter.with_started(f)?)
}

/// The number of a handle of Dxgkrnl's.
pub(crate) fn os(handle: *mut c_void) -> u64 {
    handle.addr() as u64
}
