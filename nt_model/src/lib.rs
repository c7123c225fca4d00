//! A model of the NT kernel services a driver imports, and a loader for PE images.

mod arch;
mod callback;
mod cpu;
pub mod debug_print;
pub mod dispatcher;
pub mod dpc;
pub mod driver;
mod embedded;
pub mod etw;
pub mod image;
pub mod imports;
pub mod interrupt;
pub mod io;
mod irql;
pub mod kernel;
pub mod leaks;
pub mod memory;
pub mod mmio;
pub mod object;
pub mod pool;
pub mod records;
#[cfg(test)]
mod records_at;
pub mod records_io;
pub mod registry;
pub mod routines;
pub mod rules;
pub mod rules_memory;
pub mod rules_nt;
pub mod sched;
pub mod shim;
mod shims;
pub mod spinlock;
pub mod thread;
mod thread_base;
pub mod time;
pub mod timer;
mod trap;
pub mod user;

pub use dispatcher::Event;
pub use dpc::{Dpc, DpcDelivery};
pub use driver::{Abandoned, EntryStack};
pub use image::{Image, ImageKind, LoadError, LoadOptions};
pub use interrupt::{Interrupt, InterruptDelivery, InterruptLine, Trigger};
pub use kernel::{Entered, Kernel, KernelConfig, Machine, Service};
pub use leaks::Leak;
pub use memory::{CacheType, Mdl, PAGE_SIZE, PageKind, PageObject, Rights};
pub use routines::Routine;
pub use rules::{
    CallRecord, Caller, Context, Details, Policy, Rule, RuleList, RuleReport, Rulebook, Violation,
};
pub use shim::{CodeAddress, In, Out, ShimEntry};
pub use thread::{Thread, ThreadKind};
pub use user::guard::{AccessViolation, try_user};
pub use user::process::{InProcess, MapError, Process, UserMapping};
