//! fencepost.sys: the NT shell. Built for Windows targets only.
//!
//! What the driver does is in `kmd_core`; how Dxgkrnl calls it, in `kmd_ddi`. Here is what only NT has: the entry
//! point, the registration, and the kernel routines behind [`kmd_core::platform::Platform`].
#![cfg(windows)]
#![no_std]
#![expect(unsafe_code, reason = "the entry point is an unmangled name and passes Windows' pointers on")]
#![debugger_visualizer(natvis_file = "../fencepost.natvis")]

extern crate alloc;
extern crate wdk_panic; // brings the panic handler: KeBugCheckEx with the panic's place

use kmd_core::handle::free_table;
use kmd_core::irql::Passive;
use kmd_core::service::Service;
use nt::Nt;
use nt::bug_check;
use nt::etw;
use wddm_abi::win_extern;
use wdk_alloc::WdkAllocator;
use wdk_sys::NTSTATUS;
use wdk_sys::PCUNICODE_STRING;
use wdk_sys::PDRIVER_OBJECT;

pub mod displib;
mod nt;
mod nt_layout;

#[global_allocator]
static ALLOCATOR: WdkAllocator = WdkAllocator;

/// The driver's entry point.
///
/// IRQL: PASSIVE_LEVEL.
///
/// # Errors
/// What [`displib::dxgk_initialize`] returns.
///
/// # Safety
/// Called by the I/O manager, once, with its driver object and the path of the driver's service key.
#[unsafe(export_name = "DriverEntry")]
pub unsafe extern "system" fn driver_entry(driver: PDRIVER_OBJECT, registry_path: PCUNICODE_STRING) -> NTSTATUS {
    // SAFETY: DriverEntry is called at PASSIVE_LEVEL.
    let irql = unsafe { Passive::assume() };
    // SAFETY: DriverEntry's argument, valid for the call.
    let path = unsafe { text(registry_path) };
    let service = Service::read(&irql, &Nt, path);
    let mut table = kmd_ddi::table::<Nt>(service.form);
    table.DxgkDdiUnload = Some(unload);
    // SAFETY: once, here; taken away below, or by `unload`.
    unsafe { etw::register() };
    bug_check::register();
    // SAFETY: these are DriverEntry's arguments; the table states its version and outlives the call.
    let status = unsafe { displib::dxgk_initialize(driver, registry_path, &raw mut table, service.handshake_code) };
    if status < 0 {
        // The image is unloaded, and DxgkDdiUnload is not called.
        end();
    }
    status
}

/// Takes away what `driver_entry` has registered with the kernel. `PASSIVE_LEVEL`.
fn end() {
    bug_check::unregister();
    etw::unregister();
}

win_extern! {
    /// `DxgkDdiUnload`, `PASSIVE_LEVEL`: the last call into the image.
    fn unload() {
        end();
        // SAFETY: the last DDI of this driver's life: no other thread is in it.
        unsafe { free_table() };
    }
}

/// The characters of a counted string; none for NULL.
///
/// # Safety
/// `string` is NULL, or points to a string whose buffer is valid for as long as the result is used.
unsafe fn text<'a>(string: PCUNICODE_STRING) -> &'a [u16] {
    // SAFETY: the caller's promise.
    let Some(string) = (unsafe { string.as_ref() }) else { return &[] };
    if string.Buffer.is_null() {
        return &[];
    }
    // SAFETY: `Length` bytes of the buffer are characters.
    unsafe { core::slice::from_raw_parts(string.Buffer, usize::from(string.Length) / 2) }
}
