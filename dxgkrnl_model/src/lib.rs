//! A model of Dxgkrnl, VidMm and VidSch that loads a WDDM display miniport driver as it ships, on Linux, and judges it
//! by Microsoft's published rules.

// Objects name each other in rings, and each is looked through once more before it is known to be `Send`.
#![recursion_limit = "256"]

mod entry;
mod memory;
mod objects;
mod port;
mod recovery;
mod sched;

pub use entry::{adapter, initiative, os, report, thunks};
pub use objects::process;
pub use port::{driver, features, handle, miniport, pci, personality, rules, statuses, sync, transcript};
