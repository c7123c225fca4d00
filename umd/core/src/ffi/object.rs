//! Handles of the C ABI: boxed values that know their type.

use crate::error::UmdError;
use alloc::boxed::Box;
use core::any::TypeId;

/// A value with its type in front. The pointer to it is the handle.
#[repr(C)]
struct Object<V> {
    kind: TypeId,
    value: V,
}

/// What stands in front of a value that is being destroyed.
struct Destroyed;

/// A handle of the value.
pub(super) fn into_handle<H, V: 'static>(value: V) -> *mut H {
    Box::into_raw(Box::new(Object { kind: TypeId::of::<V>(), value })).cast()
}

/// Whether `handle` points at a `V`: not null, aligned, and the type in front is right.
///
/// # Safety
/// `handle` is null, or a handle from [`into_handle`] that is not destroyed.
unsafe fn check<H, V: 'static>(handle: *mut H) -> Result<*mut Object<V>, UmdError> {
    if handle.is_null() || !handle.addr().is_multiple_of(align_of::<TypeId>()) {
        return Err(UmdError::InvalidHandle);
    }
    // SAFETY: a live handle points at an Object, which starts with the kind (repr(C)), whatever the value's type is.
    let kind = unsafe { handle.cast::<TypeId>().read() };
    if kind == TypeId::of::<V>() { Ok(handle.cast()) } else { Err(UmdError::InvalidHandle) }
}

/// The value of a handle.
///
/// # Errors
/// [`UmdError::InvalidHandle`] for null and for a handle of another kind.
///
/// # Safety
/// `handle` is null, or a handle from [`into_handle`] that is not destroyed before `'a` ends.
pub(super) unsafe fn get<'a, H, V: 'static>(handle: *mut H) -> Result<&'a V, UmdError> {
    // SAFETY: the caller's promise.
    let object = unsafe { check::<H, V>(handle) }?;
    // SAFETY: a live object of this type; nobody has it mutably, since only `take` does, which ends its life.
    Ok(unsafe { &(*object).value })
}

/// Destroys a handle: the value.
///
/// # Errors
/// [`UmdError::InvalidHandle`] for null and for a handle of another kind.
///
/// # Safety
/// `handle` is null, or a handle from [`into_handle`] that is not destroyed and that nobody uses any more.
pub(super) unsafe fn take<H, V: 'static>(handle: *mut H) -> Result<V, UmdError> {
    // SAFETY: the caller's promise.
    let object = unsafe { check::<H, V>(handle) }?;
    // SAFETY: it came from Box::into_raw in `into_handle`, and this is the last use.
    let mut object = unsafe { Box::from_raw(object) };
    // A handle that is used after all is then refused, for as long as the memory is not used for something else.
    object.kind = TypeId::of::<Destroyed>();
    Ok(object.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Opaque;

    #[test]
    fn handles_of_another_kind_and_null_are_refused() {
        let handle: *mut Opaque = into_handle(7u32);
        // SAFETY: live until `take`.
        assert_eq!(unsafe { get::<_, u32>(handle) }, Ok(&7));
        // SAFETY: as above.
        assert_eq!(unsafe { get::<_, u64>(handle) }, Err(UmdError::InvalidHandle));
        // SAFETY: as above.
        assert_eq!(unsafe { take::<_, u64>(handle) }, Err(UmdError::InvalidHandle));
        // SAFETY: as above, and used no more.
        assert_eq!(unsafe { take::<_, u32>(handle) }, Ok(7));
        // SAFETY: null is allowed.
        assert_eq!(unsafe { get::<Opaque, u32>(core::ptr::null_mut()) }, Err(UmdError::InvalidHandle));
    }
}
