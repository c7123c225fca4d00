//! fencepost.sys: the NT shell. Built for Windows targets only.
#![cfg(windows)]
#![no_std]
#![expect(unsafe_code, reason = "the entry point is an unmangled name")]

extern crate wdk_panic; // brings the panic handler: KeBugCheckEx with the panic's place

use wdk::println;
use wdk_alloc::WdkAllocator;
use wdk_sys::NTSTATUS;
use wdk_sys::PCUNICODE_STRING;
use wdk_sys::PDRIVER_OBJECT;
use wdk_sys::STATUS_NOT_SUPPORTED;

pub mod displib;
mod nt_layout;

#[global_allocator]
static ALLOCATOR: WdkAllocator = WdkAllocator;

/// The driver's entry point.
///
/// IRQL: PASSIVE_LEVEL.
///
/// # Safety
/// Called by the I/O manager, once, with its driver object and the path of the driver's service key.
#[unsafe(export_name = "DriverEntry")]
pub unsafe extern "system" fn driver_entry(_driver: PDRIVER_OBJECT, _registry_path: PCUNICODE_STRING) -> NTSTATUS {
    println!("fencepost: this build has no display driver in it yet");
    STATUS_NOT_SUPPORTED
}
