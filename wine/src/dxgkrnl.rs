//! Dxgkrnl's place between a display driver and the I/O manager: the handshake, the device's stack, PnP, the unload.
//!
//! The driver's device is a root-enumerated one of Wine's own Plug and Play: who calls AddDevice and sends the requests
//! to start and to remove it is Wine.

#![expect(unsafe_code, reason = "I/O requests, and routines that the I/O manager calls")]

use crate::callbacks;
use crate::driver;
use crate::fill;
use crate::imports;
use crate::log::report;
use crate::nt;
use crate::run;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use wddm_abi::DRIVER_INITIALIZATION_DATA;
use wdk_sys::ntddk::{
    IoAttachDeviceToDeviceStack, IoCreateDevice, IoDeleteDevice, IoDetachDevice, IofCallDriver,
    PsSetLoadImageNotifyRoutine,
};
use wdk_sys::{
    DEVICE_OBJECT, FILE_DEVICE_VIDEO, IO_STACK_LOCATION, IRP_MJ_INTERNAL_DEVICE_CONTROL, IRP_MJ_PNP,
    IRP_MN_REMOVE_DEVICE, IRP_MN_START_DEVICE, NT_SUCCESS, NTSTATUS, PDEVICE_OBJECT, PDRIVER_OBJECT, PIRP,
    PUNICODE_STRING, STATUS_INVALID_DEVICE_REQUEST, STATUS_SUCCESS, STATUS_UNSUCCESSFUL,
};

/// The two codes of the request by which a display driver asks for `DxgkInitialize`.
///
/// Source: no document of Microsoft; `kmd/src/displib.rs` says whence.
const CODES: [u32; 2] = [0x0023_0047, 0x0023_003F];

/// The device below the driver's own.
static LOWER: AtomicPtr<DEVICE_OBJECT> = AtomicPtr::new(ptr::null_mut());
/// Whether the adapter is started.
static IS_STARTED: AtomicBool = AtomicBool::new(false);

/// Makes `\Device\DxgKrnl`, and has Wine say when the driver is loaded.
///
/// # Safety
/// Called in DriverEntry with its argument.
pub unsafe fn start(driver: PDRIVER_OBJECT) -> NTSTATUS {
    let mut units = [0; fill::DEVICE_NAME.len()];
    let mut name = nt::text(&mut units, fill::DEVICE_NAME);
    let mut device = ptr::null_mut();
    // SAFETY: the driver's own object (the caller's promise); name and place live across the call.
    let status = unsafe { IoCreateDevice(driver, 0, &raw mut name, FILE_DEVICE_VIDEO, 0, 0, &raw mut device) };
    report!("step\tstand-in\t{}\t{} is made: {status:#010x}", verdict(NT_SUCCESS(status)), fill::DEVICE_NAME);
    if !NT_SUCCESS(status) {
        return status;
    }
    // CAST: a small number.
    // SAFETY: as above; nothing is sent to the device yet.
    unsafe { (*driver).MajorFunction[IRP_MJ_INTERNAL_DEVICE_CONTROL as usize] = Some(control) };
    fill::DEVICE.store(device.cast(), Ordering::Release);
    // SAFETY: a function of this image, which stays loaded as long as the process lives.
    unsafe { PsSetLoadImageNotifyRoutine(Some(imports::loaded)) }
}

/// Words for a step.
pub fn verdict(held: bool) -> &'static str {
    if held { "ok" } else { "failed" }
}

/// Answers the request for `DxgkInitialize`.
///
/// # Safety
/// Called by Wine's I/O manager.
unsafe extern "C" fn control(_device: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
    // SAFETY: the current location of a request that a dispatch routine was called with.
    let parameters = unsafe { (*stack(irp)).Parameters };
    // SAFETY: a request of this major function has these parameters.
    let code = unsafe { parameters.DeviceIoControl.IoControlCode };
    let is_known = CODES.contains(&code);
    report!("step\thandshake\t{}\trequest {code:#x} by IofCallDriver", verdict(is_known));
    if is_known {
        // SAFETY: METHOD_NEITHER: the requester's own place for the address, which kernel code gave.
        let place = unsafe { (*irp).UserBuffer };
        let function = initialize as *const core::ffi::c_void;
        // SAFETY: as above.
        unsafe { place.cast::<*const core::ffi::c_void>().write(function) };
    }
    let status = if is_known { STATUS_SUCCESS } else { STATUS_INVALID_DEVICE_REQUEST };
    // SAFETY: the request is ours to complete.
    unsafe { nt::complete(irp, status) }
}

/// Where a request says which of its stack locations is the current one.
fn place_of_stack(irp: PIRP) -> *mut *mut IO_STACK_LOCATION {
    // SAFETY: a request that a dispatch routine was called with; nothing is read.
    unsafe { &raw mut (*irp).Tail.Overlay.__bindgen_anon_2.__bindgen_anon_1.CurrentStackLocation }
}

/// The current stack location of a request.
fn stack(irp: PIRP) -> *mut IO_STACK_LOCATION {
    // SAFETY: a request that a dispatch routine was called with has one.
    unsafe { place_of_stack(irp).read() }
}

/// `DxgkInitialize`: takes the driver's table, and its place in the device's stack.
///
/// # Safety
/// Called by the driver in its DriverEntry.
unsafe extern "C" fn initialize(
    driver: PDRIVER_OBJECT,
    _path: PUNICODE_STRING,
    table: *mut DRIVER_INITIALIZATION_DATA,
) -> NTSTATUS {
    // SAFETY: the driver's table, valid for the call; a driver calls this once.
    let version = unsafe { driver::register(table) };
    let held = version == wddm_abi::DXGKDDI_INTERFACE_VERSION_WDDM3_2;
    report!("step\tDxgkInitialize\t{}\tinterface version {version:#x}", verdict(held));
    // SAFETY: Wine's driver object.
    let extension = unsafe { (*driver).DriverExtension };
    // SAFETY: every driver object has an extension.
    unsafe { (*extension).AddDevice = Some(add_device) };
    // CAST: a small number.
    // SAFETY: as above.
    unsafe { (*driver).MajorFunction[IRP_MJ_PNP as usize] = Some(pnp) };
    // SAFETY: as above.
    unsafe { (*driver).DriverUnload = Some(unload) };
    STATUS_SUCCESS
}

/// The driver's AddDevice: a device above Wine's, and `DxgkDdiAddDevice`.
///
/// # Safety
/// Called by Wine's PnP manager.
unsafe extern "C" fn add_device(driver: PDRIVER_OBJECT, below: PDEVICE_OBJECT) -> NTSTATUS {
    let mut device = ptr::null_mut();
    // SAFETY: Wine's driver object; the place is on this stack.
    let status = unsafe { IoCreateDevice(driver, 0, ptr::null_mut(), FILE_DEVICE_VIDEO, 0, 0, &raw mut device) };
    if !NT_SUCCESS(status) {
        report!("step\tDxgkDdiAddDevice\tfailed\tIoCreateDevice: {status:#010x}");
        return status;
    }
    // SAFETY: the device that was just made, and the one that it is made for.
    let lower = unsafe { IoAttachDeviceToDeviceStack(device, below) };
    LOWER.store(lower, Ordering::Release);
    callbacks::PDO.store(below.cast(), Ordering::Release);
    let status = driver::add_device();
    let is_there = !callbacks::CONTEXT.load(Ordering::Acquire).is_null();
    report!("step\tDxgkDdiAddDevice\t{}\tby Wine's PnP: {status:?}", verdict(status.is_success() && is_there));
    status.0
}

/// The device's PnP requests: start and removal are the driver's, everything goes on to the device below.
///
/// # Safety
/// Called by Wine's I/O manager.
unsafe extern "C" fn pnp(device: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
    // SAFETY: see `stack`.
    let minor = u32::from(unsafe { (*stack(irp)).MinorFunction });
    if minor == IRP_MN_START_DEVICE && !start_adapter() {
        // SAFETY: the request is ours to complete.
        return unsafe { nt::complete(irp, STATUS_UNSUCCESSFUL) };
    }
    if minor == IRP_MN_REMOVE_DEVICE {
        remove_adapter();
    }
    let lower = LOWER.load(Ordering::Acquire);
    // SAFETY: the request; what follows is IoSkipCurrentIrpStackLocation of wdm.h, which is inline there.
    unsafe { (*irp).CurrentLocation += 1 };
    let above = stack(irp).wrapping_add(1);
    // SAFETY: as above; the location before this one is there, since this one was taken from it.
    unsafe { place_of_stack(irp).write(above) };
    // SAFETY: the request goes on to the device below and is not touched again.
    let status = unsafe { IofCallDriver(lower, irp) };
    if minor == IRP_MN_REMOVE_DEVICE {
        // SAFETY: the device that ours is attached to.
        unsafe { IoDetachDevice(lower) };
        // SAFETY: our device, which nothing is sent to any more.
        unsafe { IoDeleteDevice(device) };
    }
    status
}

/// Starts the adapter, and the thread that goes on with it. Returns whether it started.
fn start_adapter() -> bool {
    let dpc = driver::table().and_then(|table| table.DxgkDdiDpcRoutine);
    let has_dpcs = dpc.is_some_and(callbacks::start_dpcs);
    let (status, sources, children) = driver::start_device();
    let held = has_dpcs && status.is_success() && sources == 0 && children == 0;
    report!("step\tDxgkDdiStartDevice\t{}\t{status:?}, {sources} sources, {children} children", verdict(held));
    IS_STARTED.store(held, Ordering::Release);
    held && nt::spawn(run::run)
}

fn remove_adapter() {
    if IS_STARTED.swap(false, Ordering::AcqRel) {
        let status = driver::stop_device();
        report!("step\tDxgkDdiStopDevice\t{}\t{status:?}", verdict(status.is_success()));
    }
    let ended = callbacks::stop_dpcs();
    let status = driver::remove_device();
    report!("step\tDxgkDdiRemoveDevice\t{}\tby Wine's PnP: {status:?}", verdict(ended && status.is_success()));
}

/// The driver's unload, the last that is called of its image.
///
/// # Safety
/// Called by Wine's I/O manager.
unsafe extern "C" fn unload(_driver: PDRIVER_OBJECT) {
    let held = driver::unload();
    report!("step\tDxgkDdiUnload\t{}\tby Wine's service manager", verdict(held));
    run::balance();
    callbacks::report_counts();
    imports::report_services();
    report!("end");
}
