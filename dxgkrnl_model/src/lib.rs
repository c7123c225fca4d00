//! A model of Dxgkrnl, VidMm and VidSch that loads a WDDM display miniport driver as it ships, on Linux, and judges it
//! by Microsoft's published rules.
//!
//! [`os::Os`] is what a tool or a test holds: boot, load a driver, add an adapter, make a process, ask for the report.
//! Inside a [`process::Process`] user mode calls [`thunks`], as it does on Windows. Which Windows that is
//! [`personality::Personality`] says; what is judged, [`rules`].
//!
//! ```no_run
//! use dxgkrnl_model::adapter::AdapterConfig;
//! use dxgkrnl_model::driver::Driver;
//! use dxgkrnl_model::os::Os;
//! use dxgkrnl_model::personality::Personality;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let os = Os::boot(Personality::collecting())?;
//! let driver = os.load_driver(&Driver::Image("some.sys".into(), std::fs::read("some.sys")?))?;
//! let adapter = os.add_adapter(&driver, AdapterConfig::default())?;
//! println!("{} calls of the driver", adapter.ddi_calls().values().sum::<u64>());
//! os.shut_down();
//! println!("{}", os.report());
//! # Ok(())
//! # }
//! ```
//!
//! # The layers
//!
//! `port ← memory ← objects ← sched ← recovery ← entry`: six folders. A file names what lies in its own layer or to the
//! left of it, and `tests/layers.rs` of the workspace holds that.
//!
//! | layer | what is in it |
//! |---|---|
//! | `port` | the way into one driver: [`Miniport`](miniport::Miniport), `ddi` (how each function is called), `callback` (what each callback begins with), `handle`, `worker`, `tdr` (which engines are under reset), `power`, the device and its bus, [`personality`], [`rules`], `sync` (ranks of locks), `counters` |
//! | `memory` | VidMm: segments, page tables, address spaces, which are no processes, allocations, paging buffers, memory of fence values |
//! | `objects` | what processes have: devices, contexts, hardware contexts and queues, doorbells, fences and their logs, open allocations, paging queues, and the [processes](process) |
//! | `sched` | VidSch: nodes, packets, turns; interrupts and their DPCs |
//! | `recovery` | the round of the worker, the watch for timeouts, resets, D3 and F1, memory that loses its content |
//! | `entry` | [`thunks`], the driver's callbacks, the life of an [`Adapter`](adapter::Adapter), [`initiative`] (what the OS does unasked), the [`report`] |
//!
//! Where a lower layer has something done by one above it, that one has entered it before: `Worker::escalate` (an
//! engine is to be reset, or to go to F1), the hooks `Overdue` (suspensions), `Retire` (contexts of packets) and
//! `AtEnd` (of a process), and `Hooks` of VidMm (paging buffers go to the paging node, contexts follow a new root,
//! locks follow an allocation). What a layer keeps of an adapter lies with it as an *extension*, which is found by its
//! type: `VidSch::of(adapter)`.
//!
//! # The life of a submission
//!
//! 1. A thunk (`entry/thunks`) finds the process of its thread, looks the handles up, and captures what user mode
//!    passed.
//! 2. The context's or queue's list of commands takes it (`objects/command.rs`): waits, signals and submissions in
//!    order.
//! 3. The worker's round (`recovery.rs`, `round`) carries out what may go on: waits whose fence has its value, signals,
//!    and submissions: packets to their node (`sched/vidsch/packet/submit.rs`, `DxgkDdiSubmitCommandVirtual`), buffers
//!    of hardware queues to the driver (`objects/hw_queue.rs`, `DxgkDdiSubmitCommandToHwQueue`).
//! 4. Of a user-mode queue nothing of that happens: its ring and doorbell are memory of the process, and the model sees
//!    the progress fence alone.
//! 5. The node's interrupt says that it is over; the watch resets the engine if nothing does within TdrDelay.
//!
//! # The life of an interrupt
//!
//! 1. The device raises its line, or sends its message (`port/pci.rs`, `port/edu.rs`).
//! 2. `sched/interrupt.rs` calls `DxgkDdiInterruptRoutine` at the device's level, under the interrupt's lock
//!    (`port/section.rs`).
//! 3. `DxgkCbNotifyInterrupt` is copied, judged (`classify.rs`), and appended to the list of its node; nothing follows
//!    from it yet.
//! 4. `DxgkCbQueueDpc` brings `DxgkDdiDpcRoutine`, and `DxgkCbNotifyDpc` inside it works the lists off
//!    (`sched/vidsch/dpc.rs`): packets end, waits for fences end, suspensions are acknowledged. What needs
//!    PASSIVE_LEVEL is a job of the worker.
//!
//! # Locks and threads
//!
//! Every lock has a rank, and a thread takes them in rising order; `sync` ([`sync`]) has the table, and debug builds
//! stop where it is broken. No lock of the model's own is held while a driver is called. An adapter has two workers
//! (VidSch's, VidMm's) and a watchdog that looks after the calls that these make; who may be in the driver at the same
//! time, `port/ddi.rs` says.
//!
//! # What is not modelled
//!
//! Display, VidPn and presentation; drivers without GPU virtual addresses beyond their start; the physical adapters of
//! a chain beyond their nodes; Direct3D; protected sessions; virtual functions; and all that [`nt_model`] leaves out. A
//! thunk that is missing answers STATUS_NOT_SUPPORTED and is counted.

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
