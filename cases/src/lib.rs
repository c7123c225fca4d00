//! Cases that know nothing of the model: they call gdi32 and the user-mode driver through [`System`], which the model
//! is on Linux (`src/scenario/portable.rs`) and Windows itself is in the program `fencepost.exe`
//! (`fencepost_windows` here).
//!
//! | file | holds |
//! |---|---|
//! | `system.rs` | [`System`] and [`Process`]: what a case needs of the machine |
//! | `apart.rs` | what a case has another process do |
//! | `arguments.rs` | what the programs' command lines have in common |
//! | `client.rs` | the user-mode driver as a process has it |
//! | `room.rs` and below | memory, queues and doorbells without the user-mode driver |
//! | `demo.rs` and below | the demo: what its processes do, and who does it when |
//! | `escape.rs` | what the driver says by its private escapes |
//! | `jobs.rs` and below | the jobs about timeouts: names, criteria, sources, and the part of each that is portable |
//! | `submission.rs` and below | the cases about user-mode submission |
//! | `machine.rs` | what a Windows machine is, and what it lacks; Wine plays it |
//! | `windows.rs` and below | the two traits and the demo's processes over gdi32 and kernel32; Wine starts them |
//!
//! Not verified: nothing here has been run on Windows.
#![deny(unsafe_code)]

pub mod apart;
pub mod arguments;
pub mod client;
pub mod demo;
pub mod escape;
pub mod jobs;
#[cfg(windows)]
pub mod machine;
pub mod room;
pub mod submission;
mod system;
#[cfg(windows)]
pub mod windows;

pub use system::{Process, System, call, status};
