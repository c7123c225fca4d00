//! A model of the NT kernel services that a driver imports, with Driver-Verifier-like checks, and loaders for `.sys`
//! and `.dll` images inside a Linux x86_64 process.
//!
//! It knows nothing of any particular driver or device. `dxgkrnl_model` builds Dxgkrnl on it; natively linked drivers
//! call the same services as Rust methods.
//!
//! # A machine
//!
//! [`Kernel`] is one simulated machine, a value: make as many as you like, drop them when done. A thread *enters* it
//! and then calls services as methods; driver code runs only inside [`Machine::call_driver`].
//!
//! ```
//! use nt_model::{Event, Kernel, KernelConfig};
//!
//! let kernel = Kernel::new(KernelConfig::collecting());
//! let _in = kernel.enter();
//!
//! let event = std::sync::Arc::new(Event::notification(false));
//! let (machine, setter) = (kernel.clone(), event.clone());
//! let thread = kernel.spawn_system_thread("setter", move || {
//!     machine.set_event(setter.as_kevent(), false);
//! });
//! assert_eq!(kernel.wait_for_event(&event, None), 0);
//! kernel.wait_for_object(thread.header(), None);
//! assert!(kernel.rules.violations().is_empty());
//! ```
//!
//! # A driver image
//!
//! ```no_run
//! use std::path::Path;
//! use nt_model::{Kernel, KernelConfig, LoadOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let kernel = Kernel::new(KernelConfig::default()); // Policy::Stop
//! let _in = kernel.enter();
//! let image = kernel.load_driver(Path::new("some.sys"), &LoadOptions::default())?;
//! println!("{} {} lacks {:?}", image.name(), image.sha256_hex(), image.missing_imports());
//! let driver = kernel.start_driver(&image, "some")?;
//! // … call its dispatch routines, or whatever it registered …
//! kernel.unload_driver(&driver)?;
//! for rule in kernel.rules.report() {
//!     println!("{:5} {:3} {}", rule.evaluations, rule.broken, rule.rule.name);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What a user of this crate needs to know
//!
//! - **Entering.** [`Machine::enter`] for host threads. System threads, DPC, timer, interrupt and work-item threads are
//!   inside from birth. A method that stands for a kernel routine panics when its caller is not inside.
//! - **Driver code** is called through [`Machine::call_driver`] (name, closure that only makes the call): it names the
//!   entry in violations, measures the stack, checks IRQL and locks on return, and answers [`Abandoned`] when the
//!   thread had to be taken out of the driver.
//! - **Callbacks that you offer to drivers** are declared with [`shims!`] and begin with [`Machine::service`] and a
//!   [`Routine`] of your own: that is what makes violations name your callback, its arguments and the driver's address.
//!   Register them as imports ([`Machine::register_import`]), or put their [`CodeAddress`] in a table.
//! - **Rules** ([`mod@rules`]): declare yours with [`rules!`], hand the list to [`KernelConfig::rules`], check with
//!   [`Rulebook::check`]. [`Policy::Stop`] stops the machine at the first violation: waits return
//!   `STATUS_SYSTEM_SHUTDOWN`, image threads leave the driver at their next service, native system threads are unwound.
//!   Ask [`Rulebook::stopped`] and exit 1. [`Policy::Collect`] records and goes on.
//! - **Records** in driver memory are taken by reference ([`records`]: all atomics); native code has [`Event`],
//!   [`Dpc`], [`memory::Mdl`] that own or name one.
//! - **Memory** ([`memory`]) is made of [`PageObject`]s of memfds: map them into the kernel, into a [`Process`], or
//!   hand them to another Linux process ([`user::space`]). [`Machine::page_at`] leads from an address to its page,
//!   [`Machine::page_of_frame`] from a frame number.
//! - **Processes** ([`user`]): [`Machine::create_process`], [`Machine::map_user`], [`Machine::remap_user`] (rotation
//!   without a gap), [`try_user`] (a guarded access). [`Machine::hide_process`] makes a driver's touch of user memory
//!   seen.
//! - **Devices**: registers by [`Machine::add_device_registers`] (every access trapped and emulated), memory by
//!   [`Machine::add_device_memory`], interrupts by [`InterruptLine`] and [`Machine::connect_interrupt`].
//! - **Time and threads** go through [`sched`]; with [`sched::seeded::SeededScheduler`] in [`KernelConfig::scheduler`]
//!   every interleaving is drawn from a seed, recorded and replayable, on a virtual clock; with
//!   [`sched::patient::PatientScheduler`] the clock stands still while the host does, so that no engine hangs by it.
//! - **Faults**: [`Machine::fail_allocation`] lets the nth allocation of any kind fail.
//!
//! # What is where
//!
//! | module | services |
//! |---|---|
//! | [`kernel`], [`driver`], `entries`, [`thread`] | the machine, driver entries, which return, system threads |
//! | [`mod@rules`], [`rules_nt`], [`rules_memory`], [`rules_user`] | rules, and those of this crate |
//! | [`image`], [`imports`], [`shim`] | loader, import table, the win64 boundary |
//! | [`pool`], [`memory`], [`mmio`] | pool, pages, MDLs, mappings, device registers |
//! | [`dispatcher`], [`spinlock`], [`dpc`], [`timer`], [`interrupt`] | synchronisation |
//! | [`object`], [`io`], [`registry`], [`etw`], [`debug_print`] | handles, devices and IRPs, keys, tracing, printing |
//! | [`user`] | processes and user-mode DLLs |
//! | [`leaks`] | what a driver left behind |
//!
//! # What is not modelled
//!
//! Structured exceptions (a service that raises on Windows breaks a rule and returns; a fault in a `__try` breaks
//! NT-HANDLED and ends the run), APCs, paging out (paged pool is
//! checked by IRQL, not by eviction), power IRPs, Plug and Play, WMI, 32-bit images, processors other than x64. Several
//! threads can be at DISPATCH_LEVEL at once whatever [`KernelConfig::processors`] says: each raised thread counts as a
//! processor of its own.
//!
//! The trap handler needs the whole process: it installs itself for SIGSEGV, SIGBUS, SIGILL, SIGTRAP and SIGFPE when
//! the first kernel is made, and passes on what is not the model's.

mod arch;
pub mod bug_check;
mod callback;
mod cpu;
pub mod debug_print;
pub mod dispatcher;
pub mod dpc;
pub mod driver;
pub mod dump;
mod embedded;
mod entries;
pub mod etw;
mod extended_state;
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
mod paired;
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
pub mod rules_user;
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

pub use callback::call_user;
pub use dispatcher::Event;
pub use dpc::{Dpc, DpcDelivery};
pub use driver::{Abandoned, EntryStack};
pub use image::{Image, ImageKind, LoadError, LoadOptions};
pub use interrupt::{Interrupt, InterruptDelivery, InterruptLine, Trigger};
pub use kernel::{Entered, Kernel, KernelConfig, Machine, Service};
pub use leaks::Leak;
pub use memory::{CacheType, Mdl, PAGE_SIZE, PageKind, PageObject, PageTraits, Rights};
pub use routines::Routine;
/// Every rule of this crate, by area.
pub static ALL_RULES: &[&RuleList] = &[&rules_nt::NT_RULES, &rules_memory::MEMORY_RULES, &rules_user::USER_RULES];

pub use rules::{
    CallRecord, Caller, Context, Details, Policy, Rule, RuleList, RuleReport, Rulebook, Severity, Violation, hex_list,
};
pub use shim::{CodeAddress, In, Out, ShimEntry};
pub use thread::{Thread, ThreadKind};
pub use user::guard::{AccessViolation, try_user};
pub use user::process::{InProcess, MapError, Process, UserMapping};
pub use user::secure::Secured;
pub use user::space::{read_user, write_user};
