//! Macros that put a function in front of one of the driver's table, and hold the unsafe blocks that decorators need.

/// Defines functions named after the mistake that they bring back: each puts the function of its body into a slot of a
/// table.
macro_rules! decorate {
    ($(
        $(#[$meta:meta])*
        $name:ident: $slot:ident($($argument:ident: $type:ty),* $(,)?) $(-> $returns:ty)? $body:block
    )*) => {
        $($(#[$meta])* pub fn $name(table: &mut wddm_abi::DRIVER_INITIALIZATION_DATA) {
            wddm_abi::win_extern! {
                fn instead($($argument: $type),*) $(-> $returns)? $body
            }
            table.$slot = Some(instead);
        })*
    };
}

/// Calls the driver's own function of the slot: its value.
macro_rules! own {
    ($slot:ident($($argument:expr),* $(,)?)) => {
        match kmd_native::table().$slot {
            // SAFETY: Dxgkrnl's arguments, or such as it could have passed, with records that live until the call
            // returns.
            Some(own) => unsafe { own($($argument),*) },
            None => unreachable!("the driver fills the slot"),
        }
    };
}

/// A record that Dxgkrnl passes to be read and written, as a reference.
macro_rules! record {
    ($pointer:expr) => {
        // SAFETY: Dxgkrnl passes a record that is valid for the call, and the driver keeps no reference to it.
        unsafe { &mut *$pointer }
    };
}

/// A copy of a record that Dxgkrnl passes to be read only.
macro_rules! copy {
    ($pointer:expr) => {
        // SAFETY: Dxgkrnl passes a record that is valid for the call.
        unsafe { $pointer.read() }
    };
}

/// An array that Dxgkrnl passes to be read, as a slice.
macro_rules! array {
    ($pointer:expr, $length:expr) => {
        // SAFETY: Dxgkrnl passes so many elements, valid for the call.
        unsafe { core::slice::from_raw_parts($pointer, $length as usize) }
    };
}

pub(crate) use {array, copy, decorate, own, record};
