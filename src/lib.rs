//! What the command line `fencepost` does, as a library that its tests use too.
//!
//! The driver is in `kmd`, `umd`, `gpu`; the model that runs it, in `nt_model` and `dxgkrnl_model`. Here the two meet.
#![deny(unsafe_code)]
// Whether the model's objects, which refer to each other, may go to other threads is asked through all of them.
#![recursion_limit = "256"]

// The command line names the library as other programs do.
extern crate self as fencepost;

/// The crates whose types are in this library's interface, in the versions that it was built with: what a crate with
/// cases of its own needs.
pub mod crates {
    pub use {anyhow, dxgkrnl_model, gpu_wire, kmd_native, nt_model, umd_core, wddm_abi};
}

pub mod bench;
pub mod check;
pub mod cli;
pub mod client;
pub mod decode;
pub mod demo;
pub mod dump;
pub mod events;
pub mod fuzz;
pub mod inf;
pub mod monitor;
pub mod package;
pub mod scenario;
mod schedstat;
pub mod separate;
pub mod setting;
pub mod tdr;
pub mod timeline;
pub mod wine;
pub mod world;
pub mod wrap;
