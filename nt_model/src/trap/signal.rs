//! The process's signal handler: decides in a few loads whether a fault may be ours, and resumes the thread at the trap
//! trampoline.
//!
//! It touches only the thread-local record and the interrupted stack, so it is safe in any context.
#![expect(unsafe_code, reason = "a signal handler edits the interrupted thread's registers")]

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use std::sync::{Once, OnceLock};

use crate::arch::{self, JumpContext};
use crate::cpu;

/// Signals that driver code can cause.
const SIGNALS: [i32; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGTRAP, libc::SIGFPE];

/// A stack pointer this close above the fault address means that the stack itself has run out.
const STACK_OVERFLOW: u64 = 0x1_0000;

/// Who handled a signal before us.
struct Previous([libc::sigaction; SIGNALS.len()]);

static PREVIOUS: OnceLock<Previous> = OnceLock::new();

/// Installs the handler, once per process.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        arch::prepare_traps();
        let mut previous = [const { MaybeUninit::<libc::sigaction>::zeroed() }; SIGNALS.len()];
        for (signal, old) in SIGNALS.into_iter().zip(&mut previous) {
            // SAFETY: asks for the current action and fills the record.
            unsafe { libc::sigaction(signal, core::ptr::null(), old.as_mut_ptr()) };
        }
        // SAFETY: each was filled above, or is all zeros, which is the default action.
        let previous = previous.map(|old| unsafe { old.assume_init() });
        let _ = PREVIOUS.set(Previous(previous));
        for signal in SIGNALS {
            // SAFETY: an all-zero record is a valid action.
            let mut action = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
            action.sa_sigaction = (on_signal as *const ()).expose_provenance();
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            // SAFETY: `on_signal` has the signature that SA_SIGINFO asks for and is safe to run at any time.
            unsafe { libc::sigaction(signal, &raw const action, null_mut()) };
        }
    });
}

unsafe extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the interrupted context, which is ours to edit until we return.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    // SAFETY: the kernel passes a filled record.
    let information = unsafe { &*info };
    // SAFETY: `si_addr` is set for the signals handled here.
    let address = unsafe { information.si_addr() }.addr() as u64;
    // CAST: register contents as the bits that they are.
    let get = |register: i32| registers[register as usize] as u64;
    let (rsp, rip) = (get(libc::REG_RSP), get(libc::REG_RIP));
    let trap = get(libc::REG_TRAPNO);
    let is_page_fault = trap == 14;
    let overflow = is_page_fault && address < rsp && rsp - address < STACK_OVERFLOW;
    if overflow && let Some(at) = overflown_driver() {
        // Nothing can be pushed on the stack that has run out. The driver's frames are dead from here on: report from
        // where it was entered. CAST: addresses as register contents.
        registers[libc::REG_RSP as usize] = at as i64;
        registers[libc::REG_RIP as usize] = (super::stack_ran_out as *const ()).expose_provenance() as i64;
        registers[libc::REG_EFL as usize] &= !0x500;
        return;
    }
    let ours = cpu::with(|cpu| {
        if cpu.pass_fault.replace(false) || overflow {
            return false;
        }
        cpu.machine().is_some() || !cpu.guard.get().is_null()
    });
    if !ours {
        pass_on(signal, info, context);
        return;
    }
    let code = (signal as u64) << 32 | (trap & 0xFF) << 16 | get(libc::REG_ERR) & 0xFFFF;
    let flags = get(libc::REG_EFL);
    let address = if is_page_fault { address } else { 0 };
    // SAFETY: `rsp` is the interrupted thread's stack pointer and not near the end of its stack (checked above).
    let at = unsafe { arch::push_trap(rsp, rip, flags, address, code) };
    registers[libc::REG_RSP as usize] = at as i64;
    registers[libc::REG_RIP as usize] = arch::trap_entry_address() as i64;
    // The trampoline runs compiled code: direction flag and trap flag off.
    registers[libc::REG_EFL as usize] &= !0x500;
}

/// Where to go on when driver code has used up the host's stack: a stack pointer, as at a function's entry, below the
/// frame that entered the driver. `None`: the thread is not in driver code.
fn overflown_driver() -> Option<usize> {
    cpu::with(|cpu| {
        let base = cpu.segment.get().base;
        let in_driver = cpu.machine().is_some() && !cpu.jump.get().is_null() && base != 0;
        in_driver.then(|| ((base - 1024) & !15) - 8)
    })
}

/// Hands a signal to whoever handled it before us.
fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    let at = SIGNALS.iter().position(|known| *known == signal);
    let previous = at.and_then(|at| PREVIOUS.get().map(|previous| &previous.0[at]));
    let handler = previous.map_or(libc::SIG_DFL, |previous| previous.sa_sigaction);
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // The default action: put it back and let the instruction fault again.
        // SAFETY: an all-zero record is the default action.
        let default = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
        // SAFETY: restores the default action for a fault that nobody handles.
        unsafe { libc::sigaction(signal, &raw const default, null_mut()) };
        return;
    }
    let handler: *const c_void = core::ptr::with_exposed_provenance(handler);
    type Handler = unsafe extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void);
    // SAFETY: the address is that of a handler that somebody installed with `sigaction`.
    let handler = unsafe { core::mem::transmute::<*const c_void, Handler>(handler) };
    // SAFETY: it is called as the kernel would have called it. One without SA_SIGINFO ignores the extra arguments.
    unsafe { handler(signal, info, context) };
}

/// Leaves a guarded access on the calling thread.
pub(super) fn leave(guard: *mut JumpContext, value: usize) -> ! {
    // SAFETY: the record's `guard` is set while the guarded `enter` runs on this thread and restored when it returns; a
    // guarded function only touches memory or runs user-mode code, so nothing that it owns matters.
    unsafe { arch::leave(guard, value) }
}
