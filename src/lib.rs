//! What the command line `fencepost` does, as a library that its tests use too.
//!
//! The driver is in `kmd`, `umd`, `gpu`; the model that runs it, in `nt_model` and `dxgkrnl_model`. Here the two meet.
#![deny(unsafe_code)]

pub mod bench;
pub mod check;
pub mod client;
pub mod decode;
pub mod demo;
pub mod scenario;
pub mod timeline;
pub mod world;
