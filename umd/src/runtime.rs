//! What rustc and LLVM expect of a C runtime, for a .dll that has none: the entry point, memcpy and its kin, the stack
//! probe, the floating-point marker, and what happens on a panic.
//!
//! The memory functions and the stack probe are imported from ntdll, as the driver imports them from ntoskrnl: the same
//! five names on both sides, tuned for the processor, and no assembly here for two architectures.

#![expect(unsafe_code, reason = "a runtime is made of unmangled names and instructions")]

use crate::etw;
use core::arch::asm;
use core::arch::global_asm;
use core::ffi::c_void;
use core::panic::PanicInfo;

/// Called by code that LLVM generates, so nothing in Rust names them; the import library of a raw-dylib holds them all.
#[expect(dead_code, reason = "called by generated code only")]
mod imports {
    use core::ffi::c_int;
    use core::ffi::c_void;

    #[link(name = "ntdll", kind = "raw-dylib")]
    unsafe extern "C" {
        fn memcpy(to: *mut c_void, from: *const c_void, count: usize) -> *mut c_void;
        fn memmove(to: *mut c_void, from: *const c_void, count: usize) -> *mut c_void;
        fn memset(to: *mut c_void, byte: c_int, count: usize) -> *mut c_void;
        fn memcmp(a: *const c_void, b: *const c_void, count: usize) -> c_int;
        /// Touches each page of a large frame; takes its size in rax (x15 on ARM64) and keeps every other register.
        fn __chkstk();
    }
}

// Names that generated code refers to and that a C runtime would define. They are written as assembly because a cdylib
// exports whatever Rust defines under a plain name.
//
// `_fltused`: LLVM's mark that floating point is used.
global_asm!(".globl _fltused", ".set _fltused, 0x9875");

// `__CxxFrameHandler3`: the handler that precompiled core and alloc name in their unwind tables (a build-std build with
// panic=abort names none). Nothing unwinds here, but Windows asks each frame's handler when an exception such as an
// access violation looks for one: the answer is ExceptionContinueSearch, not mine.
#[cfg(target_arch = "x86_64")]
global_asm!(".globl __CxxFrameHandler3", "__CxxFrameHandler3:", "mov eax, 1", "ret");
#[cfg(target_arch = "aarch64")]
global_asm!(".globl __CxxFrameHandler3", "__CxxFrameHandler3:", "mov w0, #1", "ret");

/// The loader's entry point: the provider of event tracing comes and goes with the DLL. Whatever else a process leaves
/// behind, Dxgkrnl cleans up.
#[unsafe(no_mangle)]
extern "system" fn DllMain(_module: *mut c_void, reason: u32, _reserved: *mut c_void) -> i32 {
    const DLL_PROCESS_DETACH: u32 = 0;
    const DLL_PROCESS_ATTACH: u32 = 1;
    match reason {
        // SAFETY: once, when the DLL is loaded; taken away below, before it is unloaded.
        DLL_PROCESS_ATTACH => unsafe { etw::register() },
        DLL_PROCESS_DETACH => etw::unregister(),
        _ => {}
    }
    1
}

/// Ends the process at once, without unwinding through the caller's frames: `__fastfail(FAST_FAIL_FATAL_APP_EXIT)`,
/// which Windows Error Reporting records. The address of the panic's message and place is left in a register (rdx, x1)
/// for the reader of a dump.
///
/// Source: "__fastfail" (MSVC intrinsics) and winnt.h's FAST_FAIL_FATAL_APP_EXIT = 7.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    const FAST_FAIL_FATAL_APP_EXIT: usize = 7;
    // SAFETY: does not return and touches no memory.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("int 0x29", in("rcx") FAST_FAIL_FATAL_APP_EXIT, in("rdx") info, options(noreturn, nostack));
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("brk #0xf003", in("x0") FAST_FAIL_FATAL_APP_EXIT, in("x1") info, options(noreturn, nostack));
    }
}
