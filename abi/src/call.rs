//! The calling convention of Windows, spelt once.
//!
//! No type alias can name a calling convention, so two macros do. On x86_64 outside Windows it is `"win64"` (a Linux
//! process that hosts a driver image); everywhere else it is the target's own `"C"`, which is also what bindgen, and so
//! wdk-sys, writes. `"C"`, `"system"` and `"win64"` are three different *types* even where they are one convention:
//! whoever writes one of them by hand gets a function that does not fit the tables on some target.

/// The type of a function that crosses between driver and system: `winfn!(fn(a: A) -> R)`.
///
/// It is an `unsafe` function pointer that is never NULL; the tables hold `Option<winfn!(…)>`.
///
/// ```
/// use wddm_abi::{HANDLE, NTSTATUS, winfn};
/// type StopDevice = winfn!(fn(context: HANDLE) -> NTSTATUS);
/// assert_eq!(size_of::<Option<StopDevice>>(), 8);
/// ```
#[cfg(all(target_arch = "x86_64", not(windows)))]
#[macro_export]
macro_rules! winfn {
    (fn($($parameters:tt)*) $(-> $returns:ty)?) => { unsafe extern "win64" fn($($parameters)*) $(-> $returns)? };
}

/// The type of a function that crosses between driver and system: `winfn!(fn(a: A) -> R)`.
///
/// It is an `unsafe` function pointer that is never NULL; the tables hold `Option<winfn!(…)>`.
///
/// ```
/// use wddm_abi::{HANDLE, NTSTATUS, winfn};
/// type StopDevice = winfn!(fn(context: HANDLE) -> NTSTATUS);
/// assert_eq!(size_of::<Option<StopDevice>>(), 8);
/// ```
#[cfg(not(all(target_arch = "x86_64", not(windows))))]
#[macro_export]
macro_rules! winfn {
    (fn($($parameters:tt)*) $(-> $returns:ty)?) => { unsafe extern "C" fn($($parameters)*) $(-> $returns)? };
}

/// Defines functions that cross between driver and system.
///
/// Each becomes an `unsafe extern fn`. Generic parameters go in brackets, since no macro can tell where `<…>` ends.
///
/// ```
/// use wddm_abi::{HANDLE, NTSTATUS, PDXGKDDI_STOP_DEVICE, ntstatus::STATUS_SUCCESS, win_extern};
///
/// trait Platform {
///     fn stop();
/// }
///
/// win_extern! {
///     /// Stops the adapter.
///     pub fn stop_device[P: Platform](_context: HANDLE) -> NTSTATUS {
///         P::stop();
///         STATUS_SUCCESS
///     }
/// }
/// # struct Nothing;
/// # impl Platform for Nothing { fn stop() {} }
///
/// let slot: PDXGKDDI_STOP_DEVICE = Some(stop_device::<Nothing>);
/// assert!(slot.is_some());
/// ```
#[cfg(all(target_arch = "x86_64", not(windows)))]
#[macro_export]
macro_rules! win_extern {
    ($($(#[$meta:meta])* $visibility:vis fn $name:ident $([$($generic:tt)*])? ($($parameters:tt)*) $(-> $returns:ty)? $body:block)*) => {
        $($(#[$meta])* $visibility unsafe extern "win64" fn $name $(<$($generic)*>)? ($($parameters)*) $(-> $returns)? $body)*
    };
}

/// Defines functions that cross between driver and system.
///
/// Each becomes an `unsafe extern fn`. Generic parameters go in brackets, since no macro can tell where `<…>` ends.
///
/// ```
/// use wddm_abi::{HANDLE, NTSTATUS, PDXGKDDI_STOP_DEVICE, ntstatus::STATUS_SUCCESS, win_extern};
///
/// win_extern! {
///     /// Stops the adapter.
///     pub fn stop_device(_context: HANDLE) -> NTSTATUS { STATUS_SUCCESS }
/// }
///
/// let slot: PDXGKDDI_STOP_DEVICE = Some(stop_device);
/// assert!(slot.is_some());
/// ```
#[cfg(not(all(target_arch = "x86_64", not(windows))))]
#[macro_export]
macro_rules! win_extern {
    ($($(#[$meta:meta])* $visibility:vis fn $name:ident $([$($generic:tt)*])? ($($parameters:tt)*) $(-> $returns:ty)? $body:block)*) => {
        $($(#[$meta])* $visibility unsafe extern "C" fn $name $(<$($generic)*>)? ($($parameters)*) $(-> $returns)? $body)*
    };
}
