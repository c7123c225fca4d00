//! Macros that put a function in front of one of a driver's table, and hold the unsafe blocks that decorators need: for
//! conformance cases that play a driver which is wrong on purpose, and for tests. Nothing of it is in the driver.
#![expect(unsafe_code, reason = "a table of function pointers is kept")]

use nt_model::Machine;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use wddm_abi::{DRIVER_INITIALIZATION_DATA, DXGKRNL_INTERFACE, Plain};

pub use crate::{array, copy, decorate, own, reaches, record, theirs};

/// The tables of drivers as they were before any decorator, by the machine that they are loaded on, and the addresses
/// of functions that decorators put into tables.
struct Tables {
    own: BTreeMap<usize, DRIVER_INITIALIZATION_DATA>,
    instead: BTreeSet<u64>,
    /// Dxgkrnl's interface as the adapter that was started last on a machine was given it.
    theirs: BTreeMap<usize, DXGKRNL_INTERFACE>,
}

// SAFETY: the tables and interfaces are made of function pointers, handles and numbers; any thread may call the
// functions.
unsafe impl Send for Tables {}

static TABLES: Mutex<Tables> =
    Mutex::new(Tables { own: BTreeMap::new(), instead: BTreeSet::new(), theirs: BTreeMap::new() });

/// The number of the machine that the calling thread is in; 0 outside of any.
pub fn machine() -> usize {
    Machine::with_current(|machine| machine.map_or(0, Machine::number))
}

/// A decorator is about to put the function at address `instead` into `table`: keeps the table if no decorator has
/// changed it yet. Called on a thread that is in the machine that loads the driver.
pub fn note(table: &DRIVER_INITIALIZATION_DATA, instead: usize) {
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    let words = table.as_bytes().as_chunks::<8>().0;
    if !words.iter().any(|word| tables.instead.contains(&u64::from_le_bytes(*word))) {
        tables.own.insert(machine(), *table);
    }
    tables.instead.insert(instead as u64);
}

/// The table of the driver that was decorated on the calling thread's machine, as the driver registered it; that of the
/// linked driver where none was.
pub fn table() -> DRIVER_INITIALIZATION_DATA {
    let tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    tables.own.get(&machine()).copied().unwrap_or_else(kmd_native::table)
}

/// Keeps `interface` for the calling thread's machine.
pub fn keep(interface: &DXGKRNL_INTERFACE) {
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    tables.theirs.insert(machine(), *interface);
}

/// The interface that was kept last for the calling thread's machine.
///
/// # Panics
/// Before a start.
pub fn interface() -> DXGKRNL_INTERFACE {
    let tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    *tables.theirs.get(&machine()).expect("a started adapter")
}

/// A function of a table, which takes its arguments as a tuple.
pub trait Function<Arguments> {
    /// What it returns.
    type Returns;

    /// Calls it.
    ///
    /// # Safety
    /// As the function.
    unsafe fn call(self, arguments: Arguments) -> Self::Returns;
}

macro_rules! functions {
    ($(($($name:ident: $type:ident),*))*) => {$(
        impl<Returns, $($type),*> Function<($($type,)*)> for wddm_abi::winfn!(fn($($name: $type),*) -> Returns) {
            type Returns = Returns;

            unsafe fn call(self, ($($name,)*): ($($type,)*)) -> Returns {
                // SAFETY: the caller's promise.
                unsafe { self($($name),*) }
            }
        }
    )*};
}

functions! {
    (a: A) (a: A, b: B) (a: A, b: B, c: C) (a: A, b: B, c: C, d: D) (a: A, b: B, c: C, d: D, e: E)
}

/// Defines functions named after the mistake that they bring back: each puts the function of its body into a slot of a
/// table.
#[macro_export]
macro_rules! decorate {
    ($(
        $(#[$meta:meta])*
        $name:ident: $slot:ident($($argument:ident: $type:ty),* $(,)?) $(-> $returns:ty)? $body:block
    )*) => {
        $($(#[$meta])* pub fn $name(table: &mut $crate::crates::wddm_abi::DRIVER_INITIALIZATION_DATA) {
            $crate::crates::wddm_abi::win_extern! {
                fn instead($($argument: $type),*) $(-> $returns)? $body
            }
            $crate::wrap::note(table, instead as *const () as usize);
            table.$slot = Some(instead);
        })*
    };
}

/// Calls the driver's own function of the slot: its value.
#[macro_export]
macro_rules! own {
    ($slot:ident($($argument:expr),* $(,)?)) => {
        match $crate::wrap::table().$slot {
            Some(own) => match ($($argument,)*) {
                // SAFETY: Dxgkrnl's arguments, or such as it could have passed, with records that live until the call
                // returns.
                arguments => unsafe { $crate::wrap::Function::call(own, arguments) },
            },
            None => unreachable!("the driver fills the slot"),
        }
    };
}

/// A record that Dxgkrnl passes to be read and written, as a reference.
#[macro_export]
macro_rules! record {
    ($pointer:expr) => {
        match $pointer {
            // SAFETY: Dxgkrnl passes a record that is valid for the call, and the driver keeps no reference to it.
            pointer => unsafe { &mut *pointer },
        }
    };
}

/// A copy of a record that Dxgkrnl passes to be read only.
#[macro_export]
macro_rules! copy {
    ($pointer:expr) => {
        match $pointer {
            // SAFETY: Dxgkrnl passes a record that is valid for the call.
            pointer => unsafe { pointer.read() },
        }
    };
}

/// An array that Dxgkrnl passes to be read, as a slice.
#[macro_export]
macro_rules! array {
    ($pointer:expr, $length:expr) => {
        match ($pointer, $length as usize) {
            // SAFETY: Dxgkrnl passes so many elements, valid for the call.
            (pointer, length) => unsafe { core::slice::from_raw_parts(pointer, length) },
        }
    };
}

/// Defines decorators by which a driver reaches a function of ours in place of a callback of Dxgkrnl's.
#[macro_export]
macro_rules! reaches {
    ($($(#[$meta:meta])* $name:ident: $member:ident = $callback:ident;)*) => { $($crate::decorate! {
        $(#[$meta])*
        $name: DxgkDdiStartDevice(
            context: *mut core::ffi::c_void,
            info: *mut wddm_abi::DXGK_START_INFO,
            interface: *mut wddm_abi::DXGKRNL_INTERFACE,
            sources: *mut u32,
            children: *mut u32,
        ) -> wddm_abi::NTSTATUS {
            let mut mine = $crate::copy!(interface);
            $crate::wrap::keep(&mine);
            mine.$member = Some($callback);
            $crate::own!(DxgkDdiStartDevice(context, info, &raw mut mine, sources, children))
        }
    })* };
}

/// Calls Dxgkrnl's own callback: its value.
#[macro_export]
macro_rules! theirs {
    ($member:ident($($argument:expr),* $(,)?)) => {
        match $crate::wrap::interface().$member {
            Some(own) => match ($($argument,)*) {
                // SAFETY: the driver's arguments, or such as it could have passed, with records that live until the
                // call returns.
                arguments => unsafe { $crate::wrap::Function::call(own, arguments) },
            },
            None => unreachable!("the driver has called it"),
        }
    };
}
