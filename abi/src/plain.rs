//! Plain data: what every ABI type is, and the few places where that lets safe code look at bytes another way.
#![expect(
    unsafe_code,
    reason = "the one place where bytes of ABI types are reinterpreted; every function rests on `Plain`"
)]

use core::fmt;
use core::mem;
use core::ptr;
use core::slice;

use crate::UnknownSignature;
use crate::winfn;

/// Types whose values are exactly their bytes.
///
/// All structures and unions of this crate are; so are the integers, floats, raw pointers and arrays they are made of.
///
/// # Safety
///
/// The type has no padding (every byte of every value is initialised), every bit pattern is a valid value of it, and it
/// has no interior mutability.
pub unsafe trait Plain: Copy + 'static {
    /// The value's bytes.
    fn as_bytes(&self) -> &[u8] {
        // SAFETY: `self` is valid for `size_of::<Self>()` bytes, all initialised since `Plain` types have no padding,
        // and nothing changes them while `self` is borrowed since they have no interior mutability.
        unsafe { slice::from_raw_parts(ptr::from_ref(self).cast(), size_of::<Self>()) }
    }

    /// The value's bytes, to be changed.
    fn as_bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_bytes`, with `self` borrowed exclusively; whatever is stored is a valid value.
        unsafe { slice::from_raw_parts_mut(ptr::from_mut(self).cast(), size_of::<Self>()) }
    }

    /// The value that the leading bytes of `bytes` are, or nothing if they are too few.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..size_of::<Self>())?;
        // SAFETY: `bytes` has the size of `Self`, and every bit pattern is valid; the read needs no alignment.
        Some(unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }
}

/// Implements [`Plain`] for a structure, which must have this size, this alignment and these members, of these types,
/// at these offsets; the build fails if it has not, if a member is not plain, or if there is padding.
macro_rules! plain_struct {
    ($name:ident, $size:literal, $align:literal $(, $member:ident: $type:ty = $offset:literal)* $(,)?) => {
        const _: () = {
            assert!(size_of::<$name>() == $size && align_of::<$name>() == $align);
            assert!(true $(&& core::mem::offset_of!($name, $member) == $offset)*);
            assert!(0 $(+ $crate::plain::size_of_plain::<$type>())* == $size);
        };

        // SAFETY: the members are plain, and together they are as large as the structure: it has no padding. Both are
        // asserted above.
        #[expect(unsafe_code, reason = "what it asserts is checked above")]
        unsafe impl $crate::Plain for $name {}
    };
}
pub(crate) use plain_struct;

/// Implements [`Plain`] for a union, which must have this size, this alignment and members of these types, one of them
/// all its bytes; the build fails if it has not, or if a member is not plain.
macro_rules! plain_union {
    ($name:ident, $size:literal, $align:literal $(, $type:ty)* $(,)?) => {
        const _: () = {
            assert!(size_of::<$name>() == $size && align_of::<$name>() == $align);
            assert!(true $(&& $crate::plain::size_of_plain::<$type>() <= $size)*);
            // Compiles only if `_bytes` is an array of exactly all bytes.
            let _all = $name { _bytes: [0; $size] };
        };

        // SAFETY: the members are plain, and one of them is an array of all bytes, so none of them is ever padding: a
        // copy of the union copies them all. Outside this crate a value comes from other values, from zeros or from
        // bytes, so all bytes are initialised. The rest is asserted above.
        #[expect(unsafe_code, reason = "what it asserts is checked above")]
        unsafe impl $crate::Plain for $name {}
    };
}
pub(crate) use plain_union;

/// The size of a plain type.
pub(crate) const fn size_of_plain<T: Plain>() -> usize {
    size_of::<T>()
}

/// Implements [`Plain`] for a number with a name: a `repr(transparent)` structure.
macro_rules! plain_integer {
    ($name:ident) => {
        // SAFETY: an integer in a transparent structure has no padding, and every bit pattern is one.
        #[expect(unsafe_code, reason = "a number is plain")]
        unsafe impl $crate::Plain for $name {}
    };
}
pub(crate) use plain_integer;

macro_rules! plain_numbers {
    ($($name:ty),*) => {$(
        // SAFETY: a number of the machine has no padding, and every bit pattern is one.
        unsafe impl Plain for $name {}
    )*};
}

plain_numbers!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize, f32, f64);

// SAFETY: a thin pointer has no padding; any address is a valid raw pointer, which nothing can follow safely.
unsafe impl<T: 'static> Plain for *const T {}

// SAFETY: as for `*const T`.
unsafe impl<T: 'static> Plain for *mut T {}

macro_rules! plain_functions {
    ($(($($parameter:ident),*))*) => {$(
        // SAFETY: zero is `None`; any other address is a function pointer as far as its type goes, which only unsafe
        // code can call. A pointer has no padding.
        unsafe impl<R: 'static, $($parameter: 'static),*> Plain for Option<winfn!(fn($($parameter),*) -> R)> {}
    )*};
}

plain_functions! {
    () (A) (A, B) (A, B, C) (A, B, C, D) (A, B, C, D, E) (A, B, C, D, E, F) (A, B, C, D, E, F, G)
    (A, B, C, D, E, F, G, H) (A, B, C, D, E, F, G, H, I)
}

// SAFETY: as for other function pointers.
unsafe impl Plain for Option<UnknownSignature> {}

// SAFETY: elements follow each other without gaps, and each is plain.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Bytes that C leaves between members. Always copied, never interpreted, printed as `_`.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Padding<const N: usize>(pub [u8; N]);

// SAFETY: it is an array of bytes.
unsafe impl<const N: usize> Plain for Padding<N> {}

impl<const N: usize> fmt::Debug for Padding<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("_")
    }
}

/// All bytes zero.
#[inline(always)]
pub(crate) const fn zeroed<T: Plain>() -> T {
    // SAFETY: every bit pattern is a valid value of a plain type.
    unsafe { mem::zeroed() }
}

/// The member `M` of the union `U`: every member of a C union begins where the union begins.
#[inline(always)]
pub(crate) const fn view<U: Plain, M: Plain>(union: &U) -> &M {
    const { assert!(size_of::<M>() <= size_of::<U>() && align_of::<M>() <= align_of::<U>()) };
    // SAFETY: `M` lies within `U` and is no more aligned, by the assertion; the bytes are initialised and a valid `M`,
    // since both are plain.
    unsafe { &*ptr::from_ref(union).cast::<M>() }
}

/// The member `M` of the union `U`, to be changed.
#[inline(always)]
pub(crate) const fn view_mut<U: Plain, M: Plain>(union: &mut U) -> &mut M {
    const { assert!(size_of::<M>() <= size_of::<U>() && align_of::<M>() <= align_of::<U>()) };
    // SAFETY: as in `view`; and whatever is stored through it is initialised and leaves a valid `U`, since both are
    // plain.
    unsafe { &mut *ptr::from_mut(union).cast::<M>() }
}

/// The value of the member `M` of the union `U`, which may be more aligned than the union is.
#[inline(always)]
pub(crate) const fn get<U: Plain, M: Plain>(union: &U) -> M {
    const { assert!(size_of::<M>() <= size_of::<U>()) };
    // SAFETY: `M` lies within `U` by the assertion; the bytes are initialised and a valid `M`, since both are plain.
    unsafe { ptr::from_ref(union).cast::<M>().read_unaligned() }
}

/// Stores the member `M` of the union `U`; the other bytes of the union stay.
#[inline(always)]
pub(crate) const fn put<U: Plain, M: Plain>(union: &mut U, value: M) {
    const { assert!(size_of::<M>() <= size_of::<U>()) };
    // SAFETY: `M` lies within `U` by the assertion; its bytes are initialised and leave a valid `U`, since both are
    // plain.
    unsafe { ptr::from_mut(union).cast::<M>().write_unaligned(value) }
}

/// Prints a union: its name, for nothing says which member counts.
pub(crate) fn debug_union(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    f.debug_struct(name).finish_non_exhaustive()
}
