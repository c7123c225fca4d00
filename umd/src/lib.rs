//! fencepost_umd.dll: the C ABI over gdi32. Built for Windows targets only.
#![cfg(windows)]
#![no_std]

mod heap;
mod runtime;

/// The version of this C ABI; it changes when an exported function or a structure it takes does.
#[expect(unsafe_code, reason = "an export is an unmangled name")]
#[unsafe(no_mangle)]
pub extern "system" fn fp_interface_version() -> u32 {
    1
}
