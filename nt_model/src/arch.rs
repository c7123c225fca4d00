//! The few instructions that Rust cannot say: where a shim was called from, how a thread leaves driver code for good,
//! how a trapped instruction is emulated outside the signal handler.
//!
//! Three mechanisms, each a handful of assembly lines:
//!
//! - **Shim frame.** Every import shim begins with a naked thunk that stores the stack pointer at entry in a
//!   thread-local word ([`take_shim_frame`] reads it), then jumps to the Rust body. So the body knows the driver's
//!   return address and exact stack depth, which stable Rust has no way to ask for. The word is defined in assembly
//!   because a naked function cannot name a `thread_local!`.
//! - **Leaving.** [`enter`] calls a function and remembers the stack; [`leave`] returns from that `enter` from any
//!   depth, without running what lies between. It is how `PsTerminateSystemThread` ends a thread, and how a thread is
//!   taken out of a driver that broke a rule. Nothing is unwound: image frames have no unwind tables that Rust knows,
//!   and our own frames between are plain (the callers see to that).
//! - **Traps.** The signal handler does no work. It writes the interrupted instruction pointer, flags, fault address
//!   and error code below the interrupted stack (below the 128-byte red zone that Rust and C code may use) and resumes
//!   at `trap_entry`. That saves every register, the vector state included, calls [`crate::trap`] on the thread's
//!   ordinary stack, restores what the handler may have changed and continues. So device models, interrupt service
//!   routines and DPCs run in ordinary context: they may lock, allocate, wait, fault again. The last instruction is
//!   `ret 128`, which steps over the red zone without touching flags.
//!
//! Source: System V AMD64 ABI 3.2.2 (red zone); Intel SDM volume 1 chapter 13 (XSAVE); "x64 calling convention"
//! (Microsoft).
#![expect(unsafe_code, reason = "naked functions and inline assembly; see the module's text")]

use core::arch::{asm, global_asm, naked_asm};
use core::mem::MaybeUninit;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

global_asm!(
    ".pushsection .tbss.nt_model_shim_frame,\"awT\",@nobits",
    ".globl __nt_model_shim_frame",
    ".hidden __nt_model_shim_frame",
    ".type __nt_model_shim_frame,@object",
    ".size __nt_model_shim_frame,8",
    ".p2align 3",
    "__nt_model_shim_frame:",
    ".zero 8",
    ".popsection",
);

/// Reads and clears the stack pointer that the latest shim thunk of this thread stored. 0: no shim was entered since.
#[inline]
pub(crate) fn take_shim_frame() -> usize {
    let frame: usize;
    // SAFETY: the symbol is the eight-byte thread-local word above, and nothing else is touched. What interrupts
    // between the two leaves the word 0. (An exchange would be a full fence in each service that a driver calls.)
    unsafe {
        asm!(
            "mov {t}, qword ptr [rip + __nt_model_shim_frame@GOTTPOFF]",
            "mov {f}, qword ptr fs:[{t}]",
            "mov qword ptr fs:[{t}], 0",
            t = out(reg) _,
            f = out(reg) frame,
            options(nostack)
        );
    }
    frame
}

/// The same, without clearing it. 0 where the last shim has taken it. Safe in a signal handler.
#[inline]
pub(crate) fn peek_shim_frame() -> usize {
    let frame: usize;
    // SAFETY: as above; the word is only read.
    unsafe {
        asm!(
            "mov {t}, qword ptr [rip + __nt_model_shim_frame@GOTTPOFF]",
            "mov {f}, qword ptr fs:[{t}]",
            t = out(reg) _,
            f = out(reg) frame,
            options(nostack, readonly)
        );
    }
    frame
}

/// The word at `frame`: what the caller pushed, that is its return address.
#[inline]
pub(crate) fn return_address(frame: usize) -> usize {
    if frame == 0 {
        return 0;
    }
    let at: *const usize = core::ptr::with_exposed_provenance(frame);
    // SAFETY: `frame` is the stack pointer at entry of a function that has not returned, so it points at the return
    // address that the call pushed.
    unsafe { at.read() }
}

/// The stack pointer here.
#[inline(always)]
pub(crate) fn stack_pointer() -> usize {
    let rsp: usize;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) rsp, options(nomem, nostack, preserves_flags)) };
    rsp
}

/// Where [`leave`] goes back to. Lives in the frame that called [`enter`].
#[repr(C)]
#[derive(Debug)]
pub(crate) struct JumpContext {
    rsp: usize,
}

impl JumpContext {
    pub(crate) const fn new() -> Self {
        Self { rsp: 0 }
    }
}

#[unsafe(naked)]
unsafe extern "sysv64" fn enter_raw(
    context: *mut JumpContext,
    function: unsafe extern "sysv64" fn(*mut u8),
    data: *mut u8,
) -> usize {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 8",
        "stmxcsr [rsp]",
        "fnstcw [rsp + 4]",
        "mov [rdi], rsp",
        "mov rdi, rdx",
        "call rsi",
        "xor eax, eax",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

#[unsafe(naked)]
unsafe extern "sysv64" fn leave_raw(context: *const JumpContext, value: usize) -> ! {
    naked_asm!(
        "mov rsp, [rdi]",
        "mov rax, rsi",
        "cld",
        "ldmxcsr [rsp]",
        "fldcw [rsp + 4]",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

struct EnterData<F, R> {
    function: Option<F>,
    result: Option<Result<R, Box<dyn Any + Send>>>,
}

unsafe extern "sysv64" fn run<F: FnOnce() -> R, R>(data: *mut u8) {
    // SAFETY: `enter` passes the address of its own live `EnterData<F, R>`, and touches it again only after this
    // returns.
    let data = unsafe { &mut *data.cast::<EnterData<F, R>>() };
    if let Some(function) = data.function.take() {
        data.result = Some(catch_unwind(AssertUnwindSafe(function)));
    }
}

/// Runs `function`. `Err(value)` when it was ended by [`leave`] with the same context.
///
/// `register` is told the context's address before `function` runs; it stays valid until this returns. When `function`
/// is left, whatever it owned is leaked, not dropped.
pub(crate) fn enter<F: FnOnce() -> R, R>(register: impl FnOnce(*mut JumpContext), function: F) -> Result<R, usize> {
    let mut context = MaybeUninit::new(JumpContext::new());
    let mut data = EnterData { function: Some(function), result: None };
    register(context.as_mut_ptr());
    // SAFETY: `run::<F, R>` is given the `EnterData<F, R>` above; both outlive the call.
    let left = unsafe { enter_raw(context.as_mut_ptr(), run::<F, R>, (&raw mut data).cast()) };
    match data.result {
        Some(Ok(value)) if left == 0 => Ok(value),
        Some(Err(panic)) if left == 0 => resume_unwind(panic),
        _ => Err(left),
    }
}

/// Returns `Err(value)` from the [`enter`] that made `context`.
///
/// # Safety
/// That `enter` must be running, on this thread; no frame between may own anything whose leak is harmful (a lock).
pub(crate) unsafe fn leave(context: *const JumpContext, value: usize) -> ! {
    debug_assert!(value != 0, "0 means: returned by itself");
    // SAFETY: the caller's promise; `rsp` was stored by `enter_raw` before the function ran.
    unsafe { leave_raw(context, value) }
}

/// The registers of a trapped instruction, as `trap_entry` pushed them. Written back when the handler returns.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct TrapFrame {
    /// r15, r14, r13, r12, r11, r10, r9, r8, rbp, rdi, rsi, rbx, rdx, rcx, rax.
    registers: [u64; 15],
    /// Signal number in the upper half, page-fault error code in the lower, processor trap number in bits 16 to 31.
    pub(crate) code: u64,
    /// `si_addr`: what was touched; 0 for a general protection fault.
    pub(crate) address: u64,
    pub(crate) flags: u64,
    /// The trapped instruction; the handler moves it on when it has emulated it.
    pub(crate) rip: u64,
}

/// Bytes between the trap frame's end and the interrupted stack pointer.
const RED_ZONE: usize = 128;

impl TrapFrame {
    /// Register by its number in instruction encodings (0 = rax … 15 = r15). `rsp` is computed, not stored.
    pub(crate) fn register(&self, number: usize) -> u64 {
        match Self::slot(number) {
            Some(slot) => self.registers[slot],
            None => (core::ptr::from_ref(self).addr() + size_of::<Self>() + RED_ZONE) as u64,
        }
    }

    /// Sets a register. Writes to `rsp` are ignored: no emulated instruction has it as a destination.
    pub(crate) fn set_register(&mut self, number: usize, value: u64) {
        if let Some(slot) = Self::slot(number) {
            self.registers[slot] = value;
        }
    }

    fn slot(number: usize) -> Option<usize> {
        // Pushed in the order rax, rcx, rdx, rbx, rsi, rdi, rbp, r8 … r15, so they lie in memory the other way round.
        Some(match number {
            0 => 14,
            1 => 13,
            2 => 12,
            3 => 11,
            5 => 8,
            6 => 10,
            7 => 9,
            8..=15 => 15 - number,
            _ => return None,
        })
    }
}

/// The saved vector state of a trapped instruction.
#[derive(Debug)]
pub(crate) struct VectorState(*mut u8);

impl VectorState {
    /// Where register `n` is saved: the legacy area of an XSAVE image holds XMM0–15 from byte 160 on, 16 bytes each,
    /// 16-aligned.
    fn xmm_at(&self, n: usize) -> *mut [u64; 2] {
        assert!(n < 16, "xmm{n}");
        self.0.wrapping_add(160 + 16 * n).cast()
    }

    /// `xmm` register `n` as two halves.
    pub(crate) fn xmm(&self, n: usize) -> [u64; 2] {
        // SAFETY: see `xmm_at`.
        unsafe { self.xmm_at(n).read() }
    }

    /// Sets `xmm` register `n`.
    pub(crate) fn set_xmm(&mut self, n: usize, value: [u64; 2]) {
        // SAFETY: see `xmm_at`.
        unsafe { self.xmm_at(n).write(value) };
        // XSTATE_BV bit 1: the SSE state is not its initial one, restore it from memory.
        let header = self.0.wrapping_add(512).cast::<u64>();
        // SAFETY: the header's first word, eight bytes at 512 of the image.
        let components = unsafe { header.read() };
        // SAFETY: as above.
        unsafe { header.write(components | 2) };
    }
}

/// Bytes that `trap_entry` reserves for XSAVE; set once by [`prepare_traps`].
static VECTOR_BYTES: AtomicUsize = AtomicUsize::new(0);
/// State components that `trap_entry` saves: x87, SSE, AVX, AVX-512. Not AMX tiles, not PKRU.
static VECTOR_MASK: AtomicU32 = AtomicU32::new(0b1110_0111);

/// Asks the processor how large the saved vector state is.
///
/// # Panics
/// On a processor without XSAVE (older than 2008).
pub(crate) fn prepare_traps() {
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    if VECTOR_BYTES.load(Ordering::Acquire) != 0 {
        return;
    }
    let osxsave = __cpuid(1).ecx & (1 << 27) != 0;
    assert!(osxsave, "nt_model needs a processor with XSAVE");
    let supported = __cpuid_count(0xD, 0).eax;
    let mut bytes = 576;
    for component in [2u32, 5, 6, 7] {
        if supported & (1 << component) != 0 {
            let leaf = __cpuid_count(0xD, component);
            bytes = bytes.max((leaf.eax + leaf.ebx) as usize);
        }
    }
    VECTOR_BYTES.store(bytes.next_multiple_of(64) + 64, Ordering::Release);
}

/// The address at which the signal handler resumes a trapped thread.
pub(crate) fn trap_entry_address() -> usize {
    trap_entry as *const () as usize
}

/// Lays the trap frame's upper part below the interrupted stack and returns the new stack pointer.
///
/// # Safety
/// `rsp` must be the interrupted thread's stack pointer, with room below it; called in the signal handler only.
pub(crate) unsafe fn push_trap(rsp: u64, rip: u64, flags: u64, address: u64, code: u64) -> u64 {
    let at = rsp - RED_ZONE as u64 - 32;
    let words: *mut [u64; 4] = core::ptr::with_exposed_provenance_mut(at as usize);
    // SAFETY: the caller's promise: ordinary stack memory below the red zone, which nobody uses.
    unsafe { words.write_unaligned([code, address, flags, rip]) };
    at
}

#[unsafe(naked)]
unsafe extern "sysv64" fn trap_entry() -> ! {
    naked_asm!(
        "push rax", "push rcx", "push rdx", "push rbx", "push rsi", "push rdi", "push rbp",
        "push r8", "push r9", "push r10", "push r11", "push r12", "push r13", "push r14", "push r15",
        "cld",
        "mov rdi, rsp",
        "mov rbp, rsp",
        "sub rsp, qword ptr [rip + {bytes}]",
        "and rsp, -64",
        "xor eax, eax",
        "mov [rsp + 512], rax", "mov [rsp + 520], rax", "mov [rsp + 528], rax", "mov [rsp + 536], rax",
        "mov [rsp + 544], rax", "mov [rsp + 552], rax", "mov [rsp + 560], rax", "mov [rsp + 568], rax",
        "mov eax, dword ptr [rip + {mask}]",
        "xor edx, edx",
        "xsave64 [rsp]",
        "mov rsi, rsp",
        "call {handler}",
        "mov eax, dword ptr [rip + {mask}]",
        "xor edx, edx",
        "xrstor64 [rsp]",
        "mov rsp, rbp",
        "pop r15", "pop r14", "pop r13", "pop r12", "pop r11", "pop r10", "pop r9", "pop r8",
        "pop rbp", "pop rdi", "pop rsi", "pop rbx", "pop rdx", "pop rcx", "pop rax",
        "lea rsp, [rsp + 16]",
        "popfq",
        "ret 128",
        bytes = sym VECTOR_BYTES,
        mask = sym VECTOR_MASK,
        handler = sym trap_handler,
    )
}

unsafe extern "sysv64" fn trap_handler(frame: *mut TrapFrame, vectors: *mut u8) {
    // SAFETY: `trap_entry` passes the frame it has just pushed; nobody else knows its address until it is popped.
    let frame = unsafe { &mut *frame };
    let mut vectors = VectorState(vectors);
    crate::trap::handle(frame, &mut vectors);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn enter_returns_what_the_function_returned() {
        assert_eq!(enter(|_| (), || 41 + 1), Ok(42));
    }

    #[test]
    fn leave_returns_from_enter_at_any_depth() {
        fn deep(n: u32, context: *const JumpContext) -> u32 {
            if n == 0 {
                // SAFETY: called inside the `enter` below, on the same thread; the frames between own nothing.
                unsafe { leave(context, 7) };
            }
            deep(n - 1, context) + 1
        }
        let context = Cell::new(core::ptr::null_mut());
        assert_eq!(enter(|c| context.set(c), || deep(100, context.get())), Err(7));
    }

    #[test]
    fn a_panic_passes_through_enter() {
        let caught = catch_unwind(|| enter(|_| (), || panic!("through")));
        assert!(caught.is_err());
    }

    #[test]
    fn the_shim_frame_is_zero_where_no_shim_ran() {
        assert_eq!(take_shim_frame(), 0);
        assert!(stack_pointer() != 0);
    }
}
