//! The Fencepost GPU.
//!
//! A set of nodes, each one engine thread that advances by [`engine::Engine::step`]; the thread loop belongs to the
//! shell. Nodes 0 and 1 run hardware queues, node 2 runs packets and paging. Stages 4 to 7 of the flow live here:
//!
//! | stage | file |
//! |---|---|
//! | 3 doorbell, seen from the GPU | [`doorbell`] |
//! | 4 execute | `stream` (fetch), `command_processor` and `ops` (a packet), [`engine`] (turns, what packets bring about) |
//! | 5 write | `mmu` and `tlb`, [`address_space`], [`memory`], [`fence`] |
//! | 6 log | [`fence_log`] |
//! | 7 decide | [`fence`], `reports`, [`notice`], [`outbox`] |
//!
//! Each layer knows those below it alone: memory ← `tlb` ← `mmu` ← `stream`, `ops` ← `command_processor` ← [`engine`].
//! What a packet brings about beyond memory comes back to the engine as a value, and the engine alone parks, wakes,
//! reports and decides what runs.
//!
//! The context management processor of the documents is not a thread of its own: its state is the parked queues of each
//! [`fence::Fence`] and the ready lists of each [`node::Node`], and whoever makes a wait true moves the queue.
//!
//! What this crate does not know: NTSTATUS, any DDI, any thread, any handle of the operating system except as opaque
//! numbers that it passes on. What it needs from its surroundings is [`host::Host`].
//!
//! `unsafe` is in [`memory`], `bulk`, [`shared`] and [`arrivals`] only. Nothing here panics on what user mode or the
//! ring supplies: a bad packet is a [`fault::Fault`] of its queue.
#![no_std]

extern crate alloc;

pub mod address_space;
pub mod arrivals;
pub mod board;
mod bulk;
mod command_processor;
pub mod consequences;
pub mod context;
pub mod counters;
pub mod doorbell;
pub mod engine;
mod exec;
pub mod fault;
pub mod fence;
pub mod fence_log;
pub mod fence_table;
pub mod flush;
pub mod global_doorbell;
pub mod gpu;
pub mod handshake;
pub mod host;
mod log_batch;
pub mod log_entry;
pub mod member;
pub mod memory;
mod mmu;
pub mod monitored;
pub mod mutation;
pub mod node;
pub mod notice;
mod operation;
mod ops;
pub mod outbox;
pub mod packet_context;
pub mod packet_node;
pub mod plate;
pub mod publication;
pub mod queue;
mod reports;
pub mod rings;
pub mod schedule;
pub mod scheduling_log;
pub mod shared;
pub mod slots;
mod stream;
mod tlb;
pub mod trace;
pub mod wake;
mod waking;

pub use gpu_word as word;

/// The allocator has no memory left. Every object of the GPU is created fallibly; nothing aborts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoMemory;

impl From<alloc::collections::TryReserveError> for NoMemory {
    fn from(_: alloc::collections::TryReserveError) -> Self {
        Self
    }
}

impl From<hashbrown::TryReserveError> for NoMemory {
    fn from(_: hashbrown::TryReserveError) -> Self {
        Self
    }
}
