//! fencepost_umd.dll: the C ABI of `umd_core` over gdi32. Built for Windows targets only.
//!
//! | file | holds |
//! |---|---|
//! | `etw.rs` | the provider of event tracing |
//! | `exports.rs` | the exports: those of `umd_core::ffi`, over `gdi32::Gdi32` |
//! | `gdi32.rs` | the `D3DKMT` functions, events and time |
//! | `heap.rs`, `runtime.rs` | what a C runtime would bring |
#![cfg(windows)]
#![no_std]
#![debugger_visualizer(natvis_file = "../fencepost_umd.natvis")]

mod etw;
mod exports;
mod gdi32;
mod heap;
mod runtime;
