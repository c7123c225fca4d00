//! Cases that know nothing of the model: they call gdi32 and the user-mode driver through [`System`], which the model
//! is on Linux (`src/scenario/portable.rs`) and Windows itself is in the program `fencepost_tdr`.
//!
//! | file | holds |
//! |---|---|
//! | `system.rs` | [`System`] and [`Process`]: what a case needs of the machine |
//! | `client.rs` | the user-mode driver as a process has it |
//! | `jobs.rs` and below | the jobs about timeouts: names, criteria, sources, and the part of each that is portable |
//! | `windows.rs` | the two traits over gdi32 and kernel32: compiled, never run |
//!
//! Not verified: nothing here has been run on Windows.
#![deny(unsafe_code)]

pub mod client;
pub mod jobs;
mod system;
#[cfg(windows)]
pub mod windows;

pub use system::{Process, System, call};
