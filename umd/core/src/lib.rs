//! Recording, rings, doorbells and fences of Fencepost's user-mode driver.
//!
//! All logic of `fencepost_umd.dll`, over [`thunks::Thunks`]: the `D3DKMT` functions of gdi32. The crate `umd`
//! implements it over gdi32 itself; native mode implements it over the model's thunks.
//!
//! | stage | file |
//! |---|---|
//! | 1 record | [`command_list`] |
//! | 2 enqueue | [`ring`], [`submit`] |
//! | 3 doorbell | [`publish`], [`doorbell`], [`submit`] |
//!
//! Objects, each keeping alive what it was made on:
//! [`adapter::Adapter`] ← [`device::Device`] ← [`allocation::Allocation`], [`fence::Fence`], [`queue::Queue`].
//! A [`command_list::CommandList`] is memory only.
//!
//! `unsafe` is in [`memory`] (shared pages, a lock) and [`ffi`] (the C ABI) only. No thread, no thread-local storage,
//! no C runtime; the only panics are broken invariants of this crate's own.
#![no_std]

extern crate alloc;

pub mod adapter;
pub mod allocation;
pub mod command_list;
mod command_pool;
pub mod context;
pub mod device;
pub mod doorbell;
pub mod error;
pub mod fence;
pub mod fence_value;
pub mod ffi;
pub mod hw_queue;
mod kernel_submit;
pub mod memory;
pub mod monitored_fence;
pub mod mutation;
pub mod native_fence;
pub mod paging;
pub mod publish;
pub mod queue;
mod resize;
pub mod ring;
pub mod submit;
pub mod sync_object;
pub mod thunks;
pub mod trace;
pub mod tracing;
pub mod wait;

pub use gpu_word as word;
