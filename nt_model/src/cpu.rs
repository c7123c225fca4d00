//! What the model knows about the calling thread: its machine, IRQL, locks, stack, and the service it is in.
//!
//! All of it is one thread-local record of cells without a destructor, so that an access is one instruction off the
//! thread pointer, also inside a signal handler. A thread at raised IRQL is "a processor" in this model: nothing
//! preempts it but its own interrupts, and several threads can be raised at the same time.
#![expect(
    unsafe_code,
    reason = "the thread-local record points to its machine and thread record, kept alive by guards"
)]

use std::cell::Cell;
use std::panic::Location;
use std::ptr;

use crate::arch::{self, JumpContext};
use crate::kernel::Machine;
use crate::routines::Routine;
use crate::rules::{CallRecord, Caller, Context, Counts, Rulebook};
use crate::thread::Thread;

/// How many nested service calls and driver entries are remembered for violations.
const NESTED: usize = 16;
/// How many spin locks a thread may hold at once before the order of further ones is no longer followed.
pub(crate) const MAX_HELD: usize = 16;
/// Arguments kept per call.
pub(crate) const MAX_ARGS: usize = 6;

/// Entry name of guarded user-mode code.
pub(crate) const USER_MODE: &str = "user mode";

/// A DPC waits for this thread's IRQL to drop below DISPATCH_LEVEL.
pub(crate) const PENDING_DPC: u8 = 1;
/// An interrupt waits for this thread's IRQL to drop.
pub(crate) const PENDING_INTERRUPT: u8 = 2;

/// One service call in progress.
pub(crate) struct CallSlot {
    routine: Cell<Option<&'static Routine>>,
    arguments: [Cell<u64>; MAX_ARGS],
    frame: Cell<usize>,
    location: Cell<Option<&'static Location<'static>>>,
}

/// One spin lock held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldLock {
    pub(crate) word: usize,
    /// Where it was taken: a return address, or 0.
    pub(crate) site: usize,
}

/// One stretch of driver code on this thread's stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    /// Stack pointer when the driver was entered.
    pub(crate) base: usize,
    /// Bytes that outer stretches of driver code use on the same (modelled) kernel stack.
    pub(crate) outer: usize,
    /// Lowest stack pointer seen.
    pub(crate) low: usize,
    /// Below this address the modelled kernel stack is used up.
    pub(crate) limit: usize,
}

impl Segment {
    pub(crate) const NONE: Self = Self { base: 0, outer: 0, low: usize::MAX, limit: 0 };
}

/// The thread-local record.
pub(crate) struct Cpu {
    machine: Cell<*const Machine>,
    thread: Cell<*const Thread>,
    rulebook: Cell<*const Rulebook>,
    counts: Cell<*const Counts>,
    pub(crate) irql: Cell<u8>,
    /// [`PENDING_DPC`] and [`PENDING_INTERRUPT`].
    pub(crate) pending: Cell<u8>,
    /// A scheduler wants to hear of yield points.
    pub(crate) interposed: Cell<bool>,
    /// How many DPCs, and how many interrupt service routines, this thread is inside.
    pub(crate) in_dpc: Cell<u8>,
    pub(crate) in_isr: Cell<u8>,
    /// A device register access is being emulated: interrupts wait for the end of the instruction.
    pub(crate) in_register: Cell<bool>,
    /// A shim is touching a driver's pointer for the first time: what it is taken to point to.
    pub(crate) probing: Cell<Option<&'static str>>,
    /// The next fault belongs to whoever handled signals before us.
    pub(crate) pass_fault: Cell<bool>,
    pub(crate) segment: Cell<Segment>,
    shim_frame: Cell<usize>,
    depth: Cell<usize>,
    calls: [CallSlot; NESTED],
    entry_depth: Cell<usize>,
    entries: [Cell<&'static str>; NESTED],
    held_count: Cell<usize>,
    held: [Cell<HeldLock>; MAX_HELD],
    /// Innermost driver entry and innermost guarded user access.
    pub(crate) jump: Cell<*mut JumpContext>,
    pub(crate) guard: Cell<*mut JumpContext>,
    /// Base of a system thread, for `PsTerminateSystemThread`.
    pub(crate) thread_base: Cell<*mut JumpContext>,
    pub(crate) process: Cell<u64>,
    /// Processes that the thread has attached to and not detached from.
    pub(crate) attached: Cell<usize>,
    /// Where it was in front of the first of them: the process, and the host's id of that.
    pub(crate) home: Cell<(u64, i32)>,
    /// The host's id of the thread; 0 until it is asked for.
    host: Cell<i32>,
    /// The host's id of that process where it is another Linux process; 0 where it is this one.
    pub(crate) separate: Cell<i32>,
    pub(crate) fault: Cell<(u64, bool)>,
    pub(crate) last_error: Cell<u32>,
}

impl Cpu {
    const fn new() -> Self {
        Self {
            machine: Cell::new(ptr::null()),
            thread: Cell::new(ptr::null()),
            rulebook: Cell::new(ptr::null()),
            counts: Cell::new(ptr::null()),
            irql: Cell::new(0),
            pending: Cell::new(0),
            interposed: Cell::new(false),
            in_dpc: Cell::new(0),
            in_isr: Cell::new(0),
            in_register: Cell::new(false),
            probing: Cell::new(None),
            pass_fault: Cell::new(false),
            segment: Cell::new(Segment::NONE),
            shim_frame: Cell::new(0),
            depth: Cell::new(0),
            calls: [const {
                CallSlot {
                    routine: Cell::new(None),
                    arguments: [const { Cell::new(0) }; MAX_ARGS],
                    frame: Cell::new(0),
                    location: Cell::new(None),
                }
            }; NESTED],
            entry_depth: Cell::new(0),
            entries: [const { Cell::new("") }; NESTED],
            held_count: Cell::new(0),
            held: [const { Cell::new(HeldLock { word: 0, site: 0 }) }; MAX_HELD],
            jump: Cell::new(ptr::null_mut()),
            guard: Cell::new(ptr::null_mut()),
            thread_base: Cell::new(ptr::null_mut()),
            process: Cell::new(0),
            attached: Cell::new(0),
            home: Cell::new((0, 0)),
            host: Cell::new(0),
            separate: Cell::new(0),
            fault: Cell::new((0, false)),
            last_error: Cell::new(0),
        }
    }

    /// The machine that the thread has entered.
    #[inline]
    pub(crate) fn machine(&self) -> Option<&Machine> {
        // SAFETY: null, or set by `swap_owner` to a machine that the entering guard keeps alive until it resets this.
        unsafe { self.machine.get().as_ref() }
    }

    /// The thread's record in that machine.
    #[inline]
    pub(crate) fn thread(&self) -> Option<&Thread> {
        // SAFETY: null, or set by `swap_owner` together with the machine; the guard keeps it alive as well.
        unsafe { self.thread.get().as_ref() }
    }

    /// Whether the thread has entered `machine`.
    #[inline]
    pub(crate) fn is_in(&self, machine: &Machine) -> bool {
        ptr::eq(self.machine.get(), machine)
    }

    /// The host's id of the thread.
    #[inline]
    pub(crate) fn host_id(&self) -> i32 {
        if self.host.get() == 0 {
            // SAFETY: takes nothing and changes nothing.
            self.host.set(unsafe { libc::gettid() });
        }
        self.host.get()
    }

    /// Makes the thread one of `machine`, or of none. Returns what it was, for restoring.
    pub(crate) fn swap_owner(&self, owner: Owner) -> Owner {
        Owner {
            machine: self.machine.replace(owner.machine),
            thread: self.thread.replace(owner.thread),
            rulebook: self.rulebook.replace(owner.rulebook),
            counts: self.counts.replace(owner.counts),
            interposed: self.interposed.replace(owner.interposed),
        }
    }

    /// Begins a shim: takes the frame that its thunk stored. Returns the frame of the shim it is nested in, for
    /// [`leave_shim`](Self::leave_shim).
    #[inline]
    pub(crate) fn enter_shim(&self) -> usize {
        self.shim_frame.replace(arch::take_shim_frame())
    }

    #[inline]
    pub(crate) fn leave_shim(&self, outer: usize) {
        self.shim_frame.set(outer);
    }

    /// Stack pointer at entry of the shim that the thread is in; 0 in native code.
    #[inline]
    pub(crate) fn shim_frame(&self) -> usize {
        self.shim_frame.get()
    }

    /// Pushes a service call with its arguments, [`MAX_ARGS`] at most.
    #[inline]
    pub(crate) fn push_call(&self, routine: &'static Routine, arguments: &[u64], location: &'static Location<'static>) {
        let depth = self.depth.get();
        if let Some(slot) = self.calls.get(depth) {
            slot.routine.set(Some(routine));
            // One by one: a copy of all would wait for what was just stored in parts.
            for (index, place) in slot.arguments.iter().enumerate() {
                place.set(arguments.get(index).copied().unwrap_or(0));
            }
            slot.frame.set(self.shim_frame.get());
            slot.location.set(Some(location));
        }
        self.depth.set(depth + 1);
    }

    #[inline]
    pub(crate) fn pop_call(&self) {
        self.depth.set(self.depth.get() - 1);
    }

    /// Remembers the state that a driver entry must find again when it returns or is left.
    pub(crate) fn push_entry(&self, name: &'static str) -> EntryState {
        let state = EntryState {
            irql: self.irql.get(),
            shim_frame: self.shim_frame.replace(0),
            depth: self.depth.get(),
            entry_depth: self.entry_depth.get(),
            held: self.held_count.get(),
            segment: self.segment.get(),
            jump: self.jump.get(),
            guard: self.guard.replace(ptr::null_mut()),
            in_dpc: self.in_dpc.get(),
            in_isr: self.in_isr.get(),
            attached: self.attached.get(),
            process: (self.process.get(), self.separate.get()),
        };
        if let Some(slot) = self.entries.get(state.entry_depth) {
            slot.set(name);
        }
        self.entry_depth.set(state.entry_depth + 1);
        state
    }

    /// Back to `state`, all but IRQL and held locks, which the caller has judged.
    pub(crate) fn pop_entry(&self, state: &EntryState) {
        self.shim_frame.set(state.shim_frame);
        self.depth.set(state.depth);
        self.entry_depth.set(state.entry_depth);
        self.segment.set(state.segment);
        self.jump.set(state.jump);
        self.guard.set(state.guard);
        self.in_dpc.set(state.in_dpc);
        self.in_isr.set(state.in_isr);
        if self.attached.replace(state.attached) != state.attached {
            self.process.set(state.process.0);
            self.separate.set(state.process.1);
        }
        self.probing.set(None);
    }

    /// Name of the innermost driver entry.
    pub(crate) fn entry(&self) -> &'static str {
        let depth = self.entry_depth.get();
        if depth == 0 { "" } else { self.entries[depth.min(NESTED) - 1].get() }
    }

    /// How many driver entries the thread is in.
    pub(crate) fn entry_depth(&self) -> usize {
        self.entry_depth.get()
    }

    pub(crate) fn held_count(&self) -> usize {
        self.held_count.get()
    }

    /// The spin locks held, oldest first.
    pub(crate) fn held(&self) -> impl Iterator<Item = HeldLock> {
        self.held[..self.held_count.get().min(MAX_HELD)].iter().map(Cell::get)
    }

    #[inline]
    pub(crate) fn push_held(&self, lock: HeldLock) {
        let count = self.held_count.get();
        if let Some(slot) = self.held.get(count) {
            slot.set(lock);
        }
        self.held_count.set(count + 1);
    }

    /// Forgets `word`; false when it was not held. The usual case, last in first out, is the first look.
    #[inline]
    pub(crate) fn remove_held(&self, word: usize) -> bool {
        let count = self.held_count.get();
        let stored = count.min(MAX_HELD);
        for at in (0..stored).rev() {
            if self.held[at].get().word == word {
                for next in at + 1..stored {
                    self.held[next - 1].set(self.held[next].get());
                }
                self.held_count.set(count - 1);
                return true;
            }
        }
        // Beyond the remembered ones: count only.
        if count > MAX_HELD {
            self.held_count.set(count - 1);
            return true;
        }
        false
    }

    pub(crate) fn truncate_held(&self, count: usize) {
        self.held_count.set(count.min(self.held_count.get()));
    }
}

/// A machine and a thread of it, as raw as the thread-local record holds them.
#[derive(Debug)]
pub(crate) struct Owner {
    machine: *const Machine,
    thread: *const Thread,
    rulebook: *const Rulebook,
    counts: *const Counts,
    interposed: bool,
}

impl Owner {
    /// The caller keeps both alive until the next [`Cpu::swap_owner`].
    pub(crate) fn new(machine: &Machine, thread: &Thread) -> Self {
        let (rulebook, counts) = (&raw const machine.rules, &raw const *thread.counts);
        Self { machine, thread, rulebook, counts, interposed: machine.interposes() }
    }

    /// In no machine.
    pub(crate) const fn none() -> Self {
        let (rulebook, counts) = (ptr::null(), ptr::null());
        Self { machine: ptr::null(), thread: ptr::null(), rulebook, counts, interposed: false }
    }
}

/// See [`Cpu::push_entry`].
pub(crate) struct EntryState {
    pub(crate) irql: u8,
    shim_frame: usize,
    depth: usize,
    entry_depth: usize,
    pub(crate) held: usize,
    segment: Segment,
    jump: *mut JumpContext,
    guard: *mut JumpContext,
    in_dpc: u8,
    in_isr: u8,
    pub(crate) attached: usize,
    /// The process, and the host's id of it.
    process: (u64, i32),
}

thread_local! {
    static CPU: Cpu = const { Cpu::new() };
}

/// Access to the calling thread's record.
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&Cpu) -> R) -> R {
    CPU.with(f)
}

/// Counts a rule in the thread's own counters. False when the thread has none for this rulebook.
#[inline]
pub(crate) fn count_rule(book: &Rulebook, index: usize) -> bool {
    with(|cpu| {
        if !ptr::eq(cpu.rulebook.get(), book) {
            return false;
        }
        // SAFETY: set together with `rulebook`, by `swap_owner`, to a part of the thread's record, which the guard
        // keeps.
        let counts = unsafe { cpu.counts.get().as_ref() };
        counts.map(|counts| counts.count_own(index)).is_some()
    })
}

/// What the thread is doing, for a violation.
pub(crate) fn context() -> Context {
    with(|cpu| {
        let depth = cpu.depth.get();
        let call = (depth > 0).then(|| &cpu.calls[depth.min(NESTED) - 1]).and_then(|slot| {
            let routine = slot.routine.get()?;
            let arguments = routine.arguments.iter().copied().zip(slot.arguments.iter().map(Cell::get)).collect();
            let caller = caller(cpu, slot);
            Some(CallRecord { routine: routine.name, arguments, caller })
        });
        let entries = cpu.entries[..cpu.entry_depth.get().min(NESTED)].iter().map(Cell::get).collect();
        let (thread, thread_name) = cpu.thread().map(|t| (t.id(), t.name())).unwrap_or_default();
        Context { call, entries, thread, thread_name, irql: cpu.irql.get() }
    })
}

fn caller(cpu: &Cpu, slot: &CallSlot) -> Caller {
    match (slot.frame.get(), slot.location.get()) {
        (0, Some(location)) => Caller::Native { file: location.file(), line: location.line() },
        (frame, _) => locate(cpu, arch::return_address(frame)),
    }
}

/// Names a code address.
pub(crate) fn locate(cpu: &Cpu, address: usize) -> Caller {
    match cpu.machine().and_then(|machine| machine.images.locate(address)) {
        Some((image, rva)) => Caller::Image { image, rva },
        None => Caller::Address(address as u64),
    }
}

/// Where something was allocated, set or opened: kept cheaply, put in words only when it is reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    /// Return address into an image; 0 in native code.
    pub(crate) address: usize,
    location: Option<&'static Location<'static>>,
    routine: &'static str,
    entry: &'static str,
}

impl Site {
    pub(crate) const NONE: Self = Self { address: 0, location: None, routine: "", entry: "" };

    /// The service that the calling thread is in, and who called it.
    pub(crate) fn here() -> Self {
        with(|cpu| {
            let depth = cpu.depth.get();
            let Some(slot) = depth.checked_sub(1).map(|at| &cpu.calls[at.min(NESTED - 1)]) else {
                // Native code between services: the entry at least.
                return Self { entry: cpu.entry(), ..Self::NONE };
            };
            let frame = slot.frame.get();
            Self {
                address: if frame == 0 { 0 } else { arch::return_address(frame) },
                location: slot.location.get(),
                routine: slot.routine.get().map_or("", |routine| routine.name),
                entry: cpu.entry(),
            }
        })
    }

    /// Native code inside a driver entry: a natively linked driver.
    pub(crate) fn is_native_driver(&self) -> bool {
        self.address == 0 && !self.entry.is_empty() && self.entry != USER_MODE
    }

    /// "ExAllocatePool2 at drv.sys+0x1234 in DriverEntry".
    pub(crate) fn describe(&self, machine: &Machine) -> String {
        let mut text = self.routine.to_owned();
        if let Some(caller) = self.caller(machine) {
            text.push_str(&format!(" at {caller}"));
        }
        if !self.entry.is_empty() {
            text.push_str(&format!(" in {}", self.entry));
        }
        text
    }

    /// Who it was.
    pub(crate) fn caller(&self, machine: &Machine) -> Option<Caller> {
        if self.address != 0 {
            return Some(match machine.images.locate(self.address) {
                Some((image, rva)) => Caller::Image { image, rva },
                None => Caller::Address(self.address as u64),
            });
        }
        self.location.map(|location| Caller::Native { file: location.file(), line: location.line() })
    }
}
