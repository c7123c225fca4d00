//! A stand-in for Dxgkrnl under Wine, for `./x wine`. Built for Windows targets only; no part of what ships.
//!
//! It is loaded as the service `DXGKrnl` and takes a display driver from the handshake to its unload, on the lowest
//! rung: caps, the paging process with its device, context and page tables, one paging buffer that the driver has built
//! itself, and the memory that this changed ([`run`]). Kernel services are Wine's, but for those that [`fill`] has; the
//! report says which. docs/wine.md says what that shows, and what it does not.
#![cfg(windows)]
#![no_std]
#![expect(unsafe_code, reason = "the entry point is an unmangled name and passes pointers on")]

mod callbacks;
mod driver;
mod dxgkrnl;
mod fill;
mod imports;
mod log;
mod memory;
mod nt;
mod run;

use core::panic::PanicInfo;
use log::report;
use wdk_sys::ntddk::KeBugCheckEx;
use wdk_sys::{NTSTATUS, PCUNICODE_STRING, PDRIVER_OBJECT, STATUS_SUCCESS, STATUS_UNSUCCESSFUL};

/// The service whose start has Wine's PnP look for devices that are gone. Its image is this one, too.
const REMOVAL: &str = r"\FencepostRemoval";
/// The driver's service, as Wine names it.
const SERVICE: &[u8] = b"Fencepost\0";

/// The entry point: of the stand-in, and of the service that is started to have the device removed.
///
/// # Safety
/// Called by Wine's I/O manager, with its driver object and the path of the service's key.
#[unsafe(export_name = "DriverEntry")]
pub unsafe extern "system" fn driver_entry(driver: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
    if !log::open() {
        return STATUS_UNSUCCESSFUL;
    }
    // SAFETY: DriverEntry's argument.
    if unsafe { nt::ends_with(path, REMOVAL) } {
        return look_for_devices();
    }
    // SAFETY: as above.
    unsafe { dxgkrnl::start(driver) }
}

/// Has Wine's PnP look for the devices of the driver's service, as its setup library does when a device was taken away.
fn look_for_devices() -> NTSTATUS {
    let Some(found) = nt::routine("wine_enumerate_root_devices") else {
        report!("failed\tthis Wine has no wine_enumerate_root_devices, by which a device is removed");
        return STATUS_UNSUCCESSFUL;
    };
    let name: [u16; SERVICE.len()] = core::array::from_fn(|at| u16::from(SERVICE[at]));
    // SAFETY: Wine's function of that name takes a string that ends with a zero.
    let look =
        unsafe { core::mem::transmute::<*mut core::ffi::c_void, unsafe extern "C" fn(*const u16)>(found.as_ptr()) };
    // SAFETY: as above; the string lives across the call.
    unsafe { look(name.as_ptr()) };
    STATUS_SUCCESS
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    report!("failed\tpanic of the stand-in: {info}");
    // SAFETY: under Wine it ends the process.
    unsafe { KeBugCheckEx(0xE2, 0, 0, 0, 0) }
}
