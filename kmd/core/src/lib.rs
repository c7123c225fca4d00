//! The logic of Fencepost's display miniport driver.
//!
//! One file per WDDM object; [`adapter::Adapter`] holds them and forwards. What differs between NT and the NT model is
//! behind [`platform::Platform`]; what Dxgkrnl provides is behind [`dxgkrnl::Dxgkrnl`]. The thunks that Dxgkrnl calls
//! are in `kmd_ddi`: they turn handles and pointers into references, mint the IRQL token and map [`status::Error`].
//!
//! `unsafe` is in [`handle`] (a handle becomes a reference), [`irql`] (a token is minted), [`dxgkrnl`] (calls out),
//! [`registers`] (device registers) and [`time_stamp`] (an instruction).
//!
//! What this crate does not do: it names no NT routine, starts no thread by itself, and trusts nothing that user mode
//! can write.
#![no_std]

extern crate alloc;

pub mod adapter;
pub mod allocation;
pub mod answers;
pub mod asked;
pub mod caps;
pub mod clock;
pub mod context;
pub mod contexts;
pub mod debug;
pub mod device;
pub mod doorbell;
pub mod doorbell_pool;
mod duty;
pub mod dxgkrnl;
pub mod engine_thread;
pub mod escape;
pub mod features;
pub mod fence_log;
pub mod gone;
mod habit;
pub mod halt;
pub mod handle;
pub mod hw_context;
pub mod hw_queue;
mod idle;
pub mod interrupt;
pub mod interrupt_source;
pub mod irql;
mod keeper;
mod let_go;
pub mod native_fence;
pub mod nodes;
pub mod paging;
pub mod paging_contexts;
pub mod plan;
pub mod platform;
mod power;
pub mod priority;
pub mod process;
pub mod quota;
pub mod registers;
pub mod reset;
mod root;
pub mod scheduling_log;
pub mod segments;
pub mod service;
pub mod setting_values;
pub mod settings;
pub mod standing;
pub mod start;
pub mod status;
pub mod strays;
pub mod submit;
pub mod testing;
pub mod time_stamp;
pub mod tracing;
