//! The objects of WDDM that processes have: devices, contexts, queues, doorbells, fences, open allocations, and the
//! processes themselves.

pub(crate) mod command;
pub(crate) mod companion;
pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod doorbell;
pub(crate) mod fence;
pub(crate) mod fence_log;
pub(crate) mod hw_context;
pub(crate) mod hw_queue;
pub(crate) mod open_allocation;
pub(crate) mod paging_queue;
pub(crate) mod priority;
pub mod process;
pub(crate) mod scheduling_log;
pub(crate) mod sharing;
