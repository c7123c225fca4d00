//! A display miniport driver that finds no hardware that it knows. Built for Windows targets only, by `./x rs`.
//!
//! It forgets to give back what it took, unless it is built with the feature `mended`: docs/judge_your_driver.md.
#![cfg(windows)]
#![no_std]
#![expect(unsafe_code, reason = "DriverEntry, and functions that Dxgkrnl calls")]

extern crate alloc;
extern crate wdk_panic; // brings the panic handler

// Hands the table to Dxgkrnl, as displib.lib does.
#[path = "../../../../kmd/src/displib.rs"]
mod displib;

use alloc::boxed::Box;
use core::ffi::c_void;
use wddm_abi::ntstatus::{STATUS_DEVICE_CONFIGURATION_ERROR, STATUS_NOT_SUPPORTED, STATUS_SUCCESS};
use wddm_abi::{
    DEVICE_OBJECT, DRIVER_INITIALIZATION_DATA, DXGK_START_INFO, DXGKARG_QUERYADAPTERINFO,
    DXGKDDI_INTERFACE_VERSION_WDDM3_2, DXGKRNL_INTERFACE, HANDLE, NTSTATUS, win_extern,
};
use wdk_alloc::WdkAllocator;
use wdk_sys::{PCUNICODE_STRING, PDRIVER_OBJECT};

#[global_allocator]
static ALLOCATOR: WdkAllocator = WdkAllocator;

/// What the driver knows of an adapter.
struct Adapter {
    device: *mut DEVICE_OBJECT,
}

win_extern! {
    fn add_device(device: *mut DEVICE_OBJECT, context: *mut *mut c_void) -> NTSTATUS {
        let adapter = Box::into_raw(Box::new(Adapter { device }));
        // SAFETY: Dxgkrnl gives room for a pointer.
        unsafe { context.write(adapter.cast()) };
        STATUS_SUCCESS
    }

    fn start_device(
        context: *mut c_void,
        _start: *mut DXGK_START_INFO,
        _dxgkrnl: *mut DXGKRNL_INTERFACE,
        sources: *mut u32,
        children: *mut u32,
    ) -> NTSTATUS {
        // SAFETY: Dxgkrnl gives room for the number.
        unsafe { sources.write(0) };
        // SAFETY: as above.
        unsafe { children.write(0) };
        // SAFETY: the context is what `add_device` has made.
        let adapter = unsafe { &*context.cast::<Adapter>() };
        if adapter.device.is_null() { STATUS_NOT_SUPPORTED } else { STATUS_DEVICE_CONFIGURATION_ERROR }
    }

    fn stop_device(_context: *mut c_void) -> NTSTATUS {
        STATUS_SUCCESS
    }

    fn remove_device(context: *mut c_void) -> NTSTATUS {
        if cfg!(feature = "mended") {
            // SAFETY: the context is what `add_device` has made, and is used no more.
            drop(unsafe { Box::from_raw(context.cast::<Adapter>()) });
        }
        STATUS_SUCCESS
    }

    fn unload() {}

    fn interrupt(_context: *mut c_void, _message: u32) -> u8 {
        0
    }

    fn dpc(_context: *mut c_void) {}

    fn query(_adapter: HANDLE, _arguments: *const DXGKARG_QUERYADAPTERINFO) -> NTSTATUS {
        STATUS_NOT_SUPPORTED
    }
}

/// The driver's entry point.
///
/// # Safety
/// Called by the I/O manager, with its driver object and the path of the service's key.
#[unsafe(export_name = "DriverEntry")]
pub unsafe extern "system" fn driver_entry(driver: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> i32 {
    let mut table = DRIVER_INITIALIZATION_DATA::zeroed();
    table.Version = DXGKDDI_INTERFACE_VERSION_WDDM3_2;
    table.DxgkDdiAddDevice = Some(add_device);
    table.DxgkDdiStartDevice = Some(start_device);
    table.DxgkDdiStopDevice = Some(stop_device);
    table.DxgkDdiRemoveDevice = Some(remove_device);
    table.DxgkDdiUnload = Some(unload);
    table.DxgkDdiInterruptRoutine = Some(interrupt);
    table.DxgkDdiDpcRoutine = Some(dpc);
    table.DxgkDdiQueryAdapterInfo = Some(query);
    // SAFETY: DriverEntry's own arguments, and a table of the version that it states.
    unsafe { displib::dxgk_initialize(driver, path, &raw mut table, 0) }
}
