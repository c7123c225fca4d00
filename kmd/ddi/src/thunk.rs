//! The shape of a thunk, and the one argument for its safety.
//!
//! Dxgkrnl calls a function of the table at the level that its page states (ARCHITECTURE §6 has them), and a
//! routine that it was given to synchronize at the device's, under the interrupt lock. It passes NULL
//! or a record of its own that it neither reads nor writes, on any thread, until the call has returned. So a thunk may
//! claim the level, and may have its record as a reference for the time of the call. The body sees the token and the
//! reference, never the pointer; NULL is refused before it runs.

use kmd_core::status::Result;
use wddm_abi::ntstatus::STATUS_SUCCESS;
use wddm_abi::{BOOLEAN, NTSTATUS};

/// Defines functions of the driver's table:
///
/// ```text
/// fn name[P: Platform](handle: HANDLE) at irql: Passive, with args: write *mut DXGKARG_NAME, answers of { … }
/// ```
///
/// `at` names the token of the level; without it the body makes no claim. `with` names the record, which is the last
/// argument, and says whether the body may `write` it or only `read` it. The body is an expression of type `Result`,
/// and the function behind `answers` makes the status of that, or a value of the type that stands behind `as`.
macro_rules! ddi {
    ($(
        $(#[$meta:meta])*
        fn $name:ident$([$($generic:tt)*])?($($plain:ident: $type:ty),*)
        $(at $irql:ident: $level:ident,)? $(with $args:ident: $kind:ident $pointer:ty,)? answers $answer:ident $(as $returns:ty)?
        $body:block
    )*) => {$(
        wddm_abi::win_extern! {
            $(#[$meta])*
            pub(crate) fn $name $([$($generic)*])? ($($plain: $type,)* $($args: $pointer)?) -> $crate::thunk::ddi!(@returns $($returns)?) {
                $(
                    // SAFETY: Dxgkrnl calls the function at this level (module documentation).
                    let $irql = unsafe { kmd_core::irql::$level::assume() };
                )?
                let body = || -> kmd_core::status::Result<_> {
                    $(let $args = $crate::thunk::ddi!(@$kind $args);)?
                    $body
                };
                $answer(body())
            }
        }
    )*};
    (@returns) => { wddm_abi::NTSTATUS };
    (@returns $returns:ty) => { $returns };
    (@read $args:ident) => {
        // SAFETY: Dxgkrnl's record, valid for the call (module documentation).
        unsafe { $crate::arguments::record($args) }?
    };
    (@write $args:ident) => {
        // SAFETY: Dxgkrnl's record, valid for the call (module documentation).
        unsafe { $crate::arguments::record_mut($args) }?
    };
}
pub(crate) use ddi;

/// The status of a function that must succeed, whatever came of it.
pub(crate) fn always<T>(_result: Result<T>) -> NTSTATUS {
    STATUS_SUCCESS
}

/// The answer of a function that has none.
pub(crate) fn nothing<T>(_result: Result<T>) {}

/// The answer of a function that says yes or no: no where it failed.
pub(crate) fn yes(result: Result<bool>) -> BOOLEAN {
    result.unwrap_or(false).into()
}
