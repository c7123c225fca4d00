//! Macros that put a function in front of one of a driver's table, and hold the unsafe blocks that decorators need.
#![expect(unsafe_code, reason = "a table of function pointers is kept")]

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use wddm_abi::{DRIVER_INITIALIZATION_DATA, Plain};

/// A driver's table as it was before any decorator, and the addresses of functions that decorators put into tables.
struct Tables {
    own: Option<DRIVER_INITIALIZATION_DATA>,
    instead: BTreeSet<u64>,
}

// SAFETY: the table is made of function pointers and numbers; any thread may call the functions.
unsafe impl Send for Tables {}

static TABLES: Mutex<Tables> = Mutex::new(Tables { own: None, instead: BTreeSet::new() });

/// A decorator is about to put the function at address `instead` into `table`: keeps the table if no decorator has
/// changed it yet.
pub fn note(table: &DRIVER_INITIALIZATION_DATA, instead: usize) {
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    let words = table.as_bytes().as_chunks::<8>().0;
    if !words.iter().any(|word| tables.instead.contains(&u64::from_le_bytes(*word))) {
        tables.own = Some(*table);
    }
    tables.instead.insert(instead as u64);
}

/// The table of the driver that was decorated last, as the driver registered it; that of the linked driver before.
pub fn table() -> DRIVER_INITIALIZATION_DATA {
    let tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    tables.own.unwrap_or_else(kmd_native::table)
}

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
            $crate::wrap::note(table, instead as *const () as usize);
            table.$slot = Some(instead);
        })*
    };
}

/// Calls the driver's own function of the slot: its value.
macro_rules! own {
    ($slot:ident($($argument:expr),* $(,)?)) => {
        match $crate::wrap::table().$slot {
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
