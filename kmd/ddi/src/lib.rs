//! The `DRIVER_INITIALIZATION_DATA` table and its thunks.
//!
//! A thunk (`thunk.rs`) does four things: it mints the IRQL token that the DDI's documentation promises, turns handles
//! and pointers into references, forwards to `kmd_core`, and maps the result to a status that the DDI may return. It is
//! portable: the model calls it through the same table, with the same calling convention, as Dxgkrnl does.
//!
//! Every pointer that arrives comes from Dxgkrnl, which captured what user mode passed; a NULL where the DDI does not
//! allow one is refused all the same. Arrays are read once.
#![no_std]
#![expect(unsafe_code, reason = "the boundary: raw pointers become references here")]

extern crate alloc;

mod adapter;
mod arguments;
mod doorbells;
mod fences;
mod memory;
mod objects;
mod packets;
mod query;
mod refuse;
mod scheduling;
mod table;
mod testing;
mod thunk;

pub use table::{VERSION, table};
