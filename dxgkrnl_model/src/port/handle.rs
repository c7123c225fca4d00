//! Handles: those that drivers get, those that drivers make, and those that user mode gets.
//!
//! **Drivers get** opaque 64-bit values that look like kernel addresses ([`KernelHandle`]). They are unique in the
//! Linux process, never reused, and looked up here, never trusted; so a callback needs no other context than the handle
//! in its arguments, and a handle of a destroyed object is told from one that never was.
//!
//! **Drivers make** a handle of each object of theirs ([`DriverHandle`]), which the model hands back and never follows.
//!
//! **User mode** gets `D3DKMT_HANDLE`s, of a table that belongs to its process ([`HandleTable`]).

mod driver;
mod kernel;
mod user;

pub(crate) use driver::{DriverHandle, of_driver};
pub(crate) use kernel::{KernelHandle, KernelObject, describe, object, raw, value};
pub(crate) use user::HandleTable;
pub use user::HandleType;
