//! A model of Dxgkrnl, VidMm and VidSch that loads a WDDM display miniport driver as it ships, on Linux, and judges it
//! by Microsoft's published rules.

// Objects name each other in rings, and each is looked through once more before it is known to be `Send`.
#![recursion_limit = "256"]

pub mod adapter;
mod alive;
mod calibration;
mod callback;
mod command;
mod companion;
mod context;
mod counters;
mod ddi;
mod device;
mod doorbell;
pub mod driver;
mod edu;
mod extensions;
pub mod features;
mod fence;
mod fence_log;
pub mod handle;
mod hw_context;
mod hw_queue;
pub mod initiative;
mod interface;
mod interrupt;
mod memory;
pub mod miniport;
mod open_allocation;
pub mod os;
mod paging_queue;
pub mod pci;
pub mod personality;
mod place;
mod poison;
mod power;
mod priority;
pub mod process;
mod raw;
mod recovery;
pub mod report;
pub mod rules;
mod scheduling_log;
mod section;
mod shared;
mod sharing;
mod statistics;
pub mod statuses;
pub mod sync;
mod system;
mod tdr;
pub mod thunks;
pub mod transcript;
mod usage;
mod vidsch;
mod worker;
