//! Faults: what a load, store or privileged instruction that traps means, and what happens then.
//!
//! The signal handler (`trap/signal.rs`) hands every trap of a thread that is inside a kernel or a guarded access to
//! [`handle`], in ordinary context on the same thread (see [`crate::arch`] for how). In this order it is
//!
//! 1. an instruction that the model emulates: a device register, `cr8`, the shared user data page, the processor
//!    control region through `gs`;
//! 2. an access that somebody guards: a probe of a driver's pointer, [`Machine::try_user`](crate::Machine), a process's
//!    code: the guard gets the fault;
//! 3. driver code that touched what it may not, or raised an exception: NT-ACCESS, NT-EXCEPTION or NT-USER-TOUCH is
//!    broken (NT-HANDLED where a `__try` of the driver's would take it), the machine stops whatever the policy (the
//!    instruction cannot be completed) and the thread leaves the driver;
//! 4. anybody else's: the instruction is run again and the fault goes to whoever handled signals before us.

pub(crate) mod emulate;
mod signal;
#[cfg(test)]
mod tests;

use crate::arch::{self, TrapFrame, VectorState};
use crate::cpu;
use crate::dump::registers::note_trap;
use crate::kernel::Machine;
use crate::memory::regions::{Backing, Purpose};
use crate::memory::{PAGE_SIZE, Rights, host};
use crate::routines::DISPATCH_LEVEL;
use crate::rules::Details;
use crate::rules_memory::NT_USER_TOUCH;
use crate::rules_nt::{NT_ACCESS, NT_EXCEPTION, NT_HANDLED, NT_POINTER, NT_STACK};

pub(crate) use signal::install;

/// Value with which a guarded access is left.
pub(crate) const FAULTED: usize = 2;
/// Page-fault error code: the access was a store.
const ERROR_WRITE: u64 = 2;
/// Page-fault error code: the access was an instruction fetch.
const ERROR_FETCH: u64 = 16;

/// Where user addresses end.
const HIGHEST_USER: u64 = 0x7FFF_FFFF_0000;

/// What trapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) rip: u64,
    pub(crate) address: u64,
    pub(crate) write: bool,
    pub(crate) fetch: bool,
    /// A page fault, as opposed to a general protection fault (whose address is unknown).
    pub(crate) page: bool,
    pub(crate) signal: i32,
}

impl Fault {
    fn of(frame: &TrapFrame) -> Self {
        // CAST: the handler packed a signal number, a trap number and an error code into one word.
        let signal = (frame.code >> 32) as i32;
        let trap = (frame.code >> 16) & 0xFF;
        let page = trap == 14;
        Self {
            rip: frame.rip,
            address: frame.address,
            write: page && frame.code & ERROR_WRITE != 0,
            fetch: page && frame.code & ERROR_FETCH != 0,
            page,
            signal,
        }
    }
}

/// Called by the trampoline for each trap. Returns to go on at `frame.rip`.
pub(crate) fn handle(frame: &mut TrapFrame, vectors: &mut VectorState) {
    let fault = Fault::of(frame);
    let handled = Machine::with_current(|machine| {
        let Some(machine) = machine else { return false };
        if fault.signal == libc::SIGSEGV && !fault.fetch && machine.emulate(&fault, frame, vectors) {
            return true;
        }
        false
    });
    if handled {
        return;
    }
    leave_guard(&fault);
    Machine::with_current(|machine| {
        if let Some(machine) = machine
            && machine.judge_fault(&fault, frame)
        {
            return;
        }
        // Not ours: let the old handler see it.
        cpu::with(|cpu| cpu.pass_fault.set(true));
    });
}

/// Ends the innermost guarded access, if there is one.
fn leave_guard(fault: &Fault) {
    let guard = cpu::with(|cpu| {
        let guard = cpu.guard.get();
        if !guard.is_null() {
            cpu.fault.set((fault.address, fault.write));
        }
        guard
    });
    if !guard.is_null() {
        signal::leave(guard, FAULTED);
    }
}

/// Ends the innermost guarded access as if it had touched `address`. There must be one.
pub(crate) fn leave_guarded(address: u64) -> ! {
    let guard = cpu::with(|cpu| {
        cpu.fault.set((address, false));
        cpu.guard.get()
    });
    signal::leave(guard, FAULTED)
}

/// Runs on the stack of a driver entry whose driver has used up the host's whole stack.
extern "sysv64" fn stack_ran_out() -> ! {
    Machine::with_current(|machine| match machine {
        Some(machine) => {
            let entry = cpu::with(|cpu| cpu.entry());
            machine.fatal(&NT_STACK, format!("{entry} used up the host's stack: a recursion without an end?"))
        }
        None => std::process::abort(),
    })
}

impl Machine {
    /// A fault in driver code, or in a service on its behalf. True when the instruction may be tried again.
    fn judge_fault(&self, fault: &Fault, frame: &TrapFrame) -> bool {
        if let Some(what) = cpu::with(|cpu| cpu.probing.get()) {
            let text = format!("{:#x} was given as a pointer to {what}, and is not accessible", fault.address);
            if self.is_handled(fault, self.return_address().wrapping_sub(1)) {
                self.fatal(&NT_HANDLED, Details::new(text));
            }
            self.fatal(&NT_POINTER, Details::new(text).params([fault.address, 0, 0]));
        }
        // CAST: addresses.
        let (rip, address) = (fault.rip as usize, fault.address as usize);
        let in_image = self.images.contains(rip);
        let in_driver = in_image || cpu::with(|cpu| cpu.entry_depth() != 0);
        if !in_driver {
            return false;
        }
        let user = self.memory.regions.find(address).filter(|region| matches!(region.purpose, Purpose::Process(_)));
        if let Some(region) = user
            && region.rights != Rights::None
            && fault.page
            && (!fault.write || region.rights == Rights::ReadWrite)
        {
            // Hidden during the call: the driver is seen, then let through.
            self.rules.broken(&NT_USER_TOUCH, self.describe_fault(fault, frame));
            let page = address - address % PAGE_SIZE;
            return host::protect(page, PAGE_SIZE, region.rights).is_ok();
        }
        let details = self.describe_fault(fault, frame);
        // A wild jump is a driver's, or a callback's address that a driver gave: compiled Rust has none.
        let returns = if in_image { 0 } else { self.return_address() };
        // Or of a service that an image called, memcpy and its kin among them.
        if !in_image && !fault.fetch && !self.images.contains(returns) {
            // Native driver code: a bug in a linked crate. The ordinary crash tells more than we could.
            return false;
        }
        if in_image {
            note_trap(frame);
        }
        // A call ends where its return address begins.
        if self.is_handled(fault, if in_image { rip } else { returns.wrapping_sub(1) }) {
            self.fatal(&NT_HANDLED, details)
        }
        if fault.signal == libc::SIGSEGV || fault.signal == libc::SIGBUS {
            self.fatal(&NT_ACCESS, details)
        } else {
            self.fatal(&NT_EXCEPTION, details)
        }
    }

    /// Whether the driver's own `__except` takes the exception on Windows: below DISPATCH_LEVEL, in a `__try` of the
    /// function that the instruction `at` is in, and for page faults at addresses that are no kernel memory. Those of
    /// kernel memory stop Windows whoever would handle them.
    ///
    /// Source: bug checks 0x50 PAGE_FAULT_IN_NONPAGED_AREA, 0xD1 DRIVER_IRQL_NOT_LESS_OR_EQUAL ("cannot be protected by
    /// try-except").
    fn is_handled(&self, fault: &Fault, at: usize) -> bool {
        // CAST: an address.
        let address = fault.address as usize;
        let is_user = || {
            let region = self.memory.regions.find(address);
            let in_kernel = region.is_some_and(|region| !matches!(region.purpose, Purpose::Process(_)));
            fault.address < HIGHEST_USER && !in_kernel && self.pool.describe(self, address).is_none()
        };
        let raised = match fault.signal {
            libc::SIGSEGV | libc::SIGBUS => fault.page && !fault.fetch && is_user(),
            _ => true,
        };
        raised && self.irql() < DISPATCH_LEVEL && self.images.is_in_try(at)
    }

    /// Where the service that an image called returns to, or its call of memcpy and its kin.
    fn return_address(&self) -> usize {
        let frame = match cpu::with(|cpu| cpu.shim_frame()) {
            // The C library functions do not enter a service; their thunks leave the frame behind.
            0 => arch::take_shim_frame(),
            frame => frame,
        };
        arch::return_address(frame)
    }

    fn describe_fault(&self, fault: &Fault, frame: &TrapFrame) -> Details {
        // CAST: addresses.
        let (rip, address) = (fault.rip as usize, fault.address as usize);
        let place = cpu::with(|cpu| cpu::locate(cpu, rip));
        if fault.signal != libc::SIGSEGV && fault.signal != libc::SIGBUS {
            let what = match fault.signal {
                libc::SIGILL => "an illegal instruction (ud2 is a compiler's trap)",
                libc::SIGTRAP => "a break point",
                libc::SIGFPE => "an arithmetic exception",
                _ => "an exception",
            };
            return Details::new(format!("{what} at {place}")).params([fault.rip, 0, 0]);
        }
        if !fault.page {
            let instruction = emulate::describe(rip, frame);
            return Details::new(format!("{instruction}, at {place}")).params([fault.rip, 0, 0]);
        }
        let what = match (fault.fetch, fault.write) {
            (true, _) => "a jump to",
            (_, true) => "a store to",
            _ => "a load from",
        };
        let owner = self
            .pool
            .describe(self, address)
            .or_else(|| self.images.locate(address).map(|(image, rva)| format!("{image}+{rva:#x}, which is read-only")))
            .or_else(|| self.memory.regions.find(address).map(|region| self.describe_region(&region)))
            .unwrap_or_else(|| "nothing".to_owned());
        // 0xD1 when the level says that no page fault could be served.
        let operation = u64::from(fault.write) | u64::from(fault.fetch) << 3;
        Details::new(format!("{what} {address:#x} ({owner}) at {place}")).param1(fault.address).params([
            if self.irql() >= DISPATCH_LEVEL { self.irql().into() } else { operation },
            fault.rip,
            0,
        ])
    }

    fn describe_region(&self, region: &crate::memory::regions::Region) -> String {
        let rights = match region.backing {
            Backing::Reserved => "reserved",
            _ if region.rights == Rights::Read => "read-only",
            _ => "hidden or freed",
        };
        format!("{region:?}, {rights}, made by {}", region.site.describe(self))
    }
}
