//! The registers of a machine's threads, from their own signal handlers.
#![expect(unsafe_code, reason = "installs a signal handler, sends signals, reads what the kernel saved")]

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::arch::{self, TrapFrame};
use crate::cpu;
use crate::thread::Thread;

/// How long a thread is waited for: one that the host does not run by then is left out, and named.
const PATIENCE: Duration = Duration::from_millis(500);
/// Registers by their number in instruction encodings: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15.
const NUMBERS: [i32; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];
const RSP: usize = 4;

/// A thread's registers in driver code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// The instruction.
    pub rip: u64,
    /// The stack pointer.
    pub rsp: u64,
    /// The flags.
    pub flags: u64,
    /// rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15; zeros but for rsp where only the call of a service is known.
    pub general: [u64; 16],
}

impl Registers {
    /// Those of which `rip` and `rsp` are known.
    pub(crate) fn at(rip: u64, rsp: u64) -> Self {
        let mut general = [0; 16];
        general[RSP] = rsp;
        Self { rip, rsp, flags: 0x202, general }
    }

    /// Those of a trapped instruction.
    pub(crate) fn trapped(frame: &TrapFrame) -> Self {
        let general = core::array::from_fn(|number| frame.register(number));
        Self { rip: frame.rip, rsp: general[RSP], flags: frame.flags, general }
    }
}

/// What a thread's handler saw.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) registers: Registers,
    /// The stack pointer at entry of the service that it is in; 0: it is in none.
    pub(crate) shim_frame: usize,
}

/// Where a thread is found by the host, and leaves its registers when it is asked. Part of each [`Thread`].
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    /// The host's id of the thread while it is inside the machine, else 0.
    host: AtomicI32,
    /// Counts requests; the handler answers the one that it finds in `answered`.
    asked: AtomicU64,
    answered: AtomicU64,
    rip: AtomicU64,
    flags: AtomicU64,
    shim_frame: AtomicU64,
    general: [AtomicU64; 16],
    /// Registers of an instruction for which the machine stops.
    trapped: Mutex<Option<Registers>>,
}

impl Mailbox {
    /// The calling thread comes into the machine.
    pub(crate) fn enter(&self) {
        self.host.store(cpu::with(cpu::Cpu::host_id), Ordering::Release);
    }

    /// It leaves.
    pub(crate) fn leave(&self) {
        self.host.store(0, Ordering::Release);
    }

    fn answer(&self, context: &libc::ucontext_t, shim_frame: usize) {
        // CAST: registers are bits; indices of the C library are small.
        let register = |number: i32| context.uc_mcontext.gregs[number as usize] as u64;
        self.rip.store(register(libc::REG_RIP), Ordering::Relaxed);
        self.flags.store(register(libc::REG_EFL), Ordering::Relaxed);
        self.shim_frame.store(shim_frame as u64, Ordering::Relaxed);
        for (place, number) in self.general.iter().zip(NUMBERS) {
            place.store(register(number), Ordering::Relaxed);
        }
        self.answered.store(self.asked.load(Ordering::Acquire), Ordering::Release);
    }

    fn seen(&self) -> Seen {
        let general: [u64; 16] = core::array::from_fn(|number| self.general[number].load(Ordering::Relaxed));
        let (rip, flags) = (self.rip.load(Ordering::Relaxed), self.flags.load(Ordering::Relaxed));
        let registers = Registers { rip, rsp: general[RSP], flags, general };
        // CAST: stored from a usize.
        Seen { registers, shim_frame: self.shim_frame.load(Ordering::Relaxed) as usize }
    }
}

/// Remembers the registers of an instruction of the calling thread for which the machine stops.
pub(crate) fn note_trap(frame: &TrapFrame) {
    cpu::with(|cpu| {
        if let Some(thread) = cpu.thread() {
            *thread.mailbox.trapped.lock() = Some(Registers::trapped(frame));
        }
    });
}

/// Where the calling thread is: at the instruction that trapped, or in a service.
pub(crate) fn mine() -> Option<Seen> {
    cpu::with(|cpu| {
        let trapped = cpu.thread()?.mailbox.trapped.lock().take();
        Some(Seen { registers: trapped.unwrap_or_default(), shim_frame: cpu.shim_frame() })
    })
}

/// What a thread said that was asked for its registers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// It is in no machine.
    Outside,
    /// It did not answer in time.
    Silent,
    /// Its registers.
    Seen(Seen),
}

/// Asks each of `threads`, none of which is the calling one.
pub(crate) fn of(threads: &[Arc<Thread>]) -> Vec<Answer> {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(install);
    // CAST: the host's ids of processes are positive and small.
    let (process, signal) = (std::process::id() as i32, signal());
    let asked: Vec<Option<u64>> = threads
        .iter()
        .map(|thread| {
            let mailbox = &thread.mailbox;
            let host = mailbox.host.load(Ordering::Acquire);
            let request = mailbox.asked.fetch_add(1, Ordering::AcqRel) + 1;
            // SAFETY: sends a signal to a thread of this process, or to none; the handler was installed above.
            let sent = host != 0 && unsafe { libc::syscall(libc::SYS_tgkill, process, host, signal) } == 0;
            sent.then_some(request)
        })
        .collect();
    let end = Instant::now() + PATIENCE;
    let wait = |(thread, asked): (&Arc<Thread>, Option<u64>)| {
        let Some(asked) = asked else { return Answer::Outside };
        while thread.mailbox.answered.load(Ordering::Acquire) < asked {
            if Instant::now() >= end {
                return Answer::Silent;
            }
            std::thread::yield_now();
        }
        Answer::Seen(thread.mailbox.seen())
    };
    threads.iter().zip(asked).map(wait).collect()
}

/// A real-time signal, which nothing else of this process uses.
fn signal() -> i32 {
    libc::SIGRTMIN() + 5
}

fn install() {
    // SAFETY: a C structure of integers and an optional pointer; zeros are valid.
    let mut action = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
    action.sa_sigaction = (on_signal as *const ()).expose_provenance();
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the record is complete and the handler has the signature that SA_SIGINFO asks for.
    unsafe { libc::sigaction(signal(), &raw const action, core::ptr::null_mut()) };
}

/// Runs on the asked thread. Touches its thread-local record and atomics only.
extern "C" fn on_signal(_signal: i32, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a `ucontext_t` that lives for the handler's run.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    cpu::with(|cpu| {
        if let Some(thread) = cpu.thread() {
            // The C library functions do not enter a service; their thunks leave the frame behind.
            let frame = match cpu.shim_frame() {
                0 if cpu.entry_depth() != 0 => arch::peek_shim_frame(),
                frame => frame,
            };
            thread.mailbox.answer(context, frame);
        }
    });
}

/// Runs `f` on a thread that answers no request meanwhile: it takes no signal of that number.
#[cfg(test)]
pub(crate) fn unasked<R>(f: impl FnOnce() -> R) -> R {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is a place for one.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the set was made empty above, and the number is one of a signal.
    unsafe { libc::sigaddset(set.as_mut_ptr(), signal()) };
    // SAFETY: the set is whole; what was blocked before is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), core::ptr::null_mut()) };
    let result = f();
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), core::ptr::null_mut()) };
    result
}
