//! fencepost_d3d.dll: the library that `UserModeDriverName` of the INFs names. Built for Windows targets only.
//!
//! A full display adapter needs such a name, and every process that uses Direct3D loads what it names and asks it for
//! each version's interface. This driver implements none: the answer is the one that was seen to do no harm. The
//! library is this small, and imports nothing, because strangers load and unload it; the driver's own client library is
//! fencepost_umd.dll.
//!
//! Source: DDI pages PFND3DDDI_OPENADAPTER, PFND3D10DDI_OPENADAPTER; articles *Loading a User-Mode Display Driver*,
//! *Initializing Communication with the Direct3D Version 11 DDI*.
#![cfg(windows)]
#![no_std]
#![expect(unsafe_code, reason = "exports are unmangled names, and the panic handler executes an instruction")]

use core::arch::asm;
use core::ffi::c_void;
use core::panic::PanicInfo;

/// `DXGI_ERROR_UNSUPPORTED`.
const UNSUPPORTED: i32 = 0x887A_0004_u32.cast_signed();

/// The loader's entry point: nothing to set up, nothing to tear down.
#[unsafe(no_mangle)]
extern "system" fn DllMain(_module: *mut c_void, _reason: u32, _reserved: *mut c_void) -> i32 {
    1
}

/// What the Direct3D 9 runtime asks. The argument, a `D3DDDIARG_OPENADAPTER`, is not touched.
#[unsafe(no_mangle)]
extern "system" fn OpenAdapter(_arguments: *mut c_void) -> i32 {
    UNSUPPORTED
}

/// What the Direct3D 10.0 runtime asks. The argument, a `D3D10DDIARG_OPENADAPTER`, is not touched; so below.
#[unsafe(no_mangle)]
extern "system" fn OpenAdapter10(_arguments: *mut c_void) -> i32 {
    UNSUPPORTED
}

/// What the Direct3D 10.1 and 11 runtimes ask.
#[unsafe(no_mangle)]
extern "system" fn OpenAdapter10_2(_arguments: *mut c_void) -> i32 {
    UNSUPPORTED
}

/// What the Direct3D 12 runtime asks.
#[unsafe(no_mangle)]
extern "system" fn OpenAdapter12(_arguments: *mut c_void) -> i32 {
    UNSUPPORTED
}

/// Ends the process at once; nothing here panics. `__fastfail(FAST_FAIL_FATAL_APP_EXIT)`.
#[panic_handler]
fn panic(_info: &PanicInfo<'_>) -> ! {
    // SAFETY: does not return and touches no memory.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("int 0x29", in("rcx") 7, options(noreturn, nostack));
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("brk #0xf003", in("x0") 7, options(noreturn, nostack));
    }
}
