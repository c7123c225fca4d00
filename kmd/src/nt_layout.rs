//! Sizes and offsets of the kernel records that the driver touches, as they are on 64-bit Windows. wdk-sys generates
//! the records from headers, and in the Linux cross build those are not Microsoft's: this is where a difference stops
//! the build.
//!
//! Source: the x64 kernel of Windows 10 and 11 (its public symbols). ARM64 lays these records out the same way.

use core::mem::align_of;
use core::mem::offset_of;
use core::mem::size_of;
use wdk_sys::CM_PARTIAL_RESOURCE_DESCRIPTOR;
use wdk_sys::DEVICE_OBJECT;
use wdk_sys::DRIVER_OBJECT;
use wdk_sys::FILE_OBJECT;
use wdk_sys::IO_STACK_LOCATION;
use wdk_sys::IRP;
use wdk_sys::KDPC;
use wdk_sys::KEVENT;
use wdk_sys::KMUTEX;
use wdk_sys::KSEMAPHORE;
use wdk_sys::KSPIN_LOCK;
use wdk_sys::KTIMER;
use wdk_sys::LIST_ENTRY;
use wdk_sys::MDL;
use wdk_sys::UNICODE_STRING;

const _: () = {
    assert!(size_of::<DRIVER_OBJECT>() == 0x150);
    assert!(offset_of!(DRIVER_OBJECT, DriverUnload) == 0x68);
    assert!(offset_of!(DRIVER_OBJECT, MajorFunction) == 0x70);
    assert!(size_of::<DEVICE_OBJECT>() == 0x150);
    assert!(align_of::<DEVICE_OBJECT>() == 16);
    assert!(offset_of!(DEVICE_OBJECT, Flags) == 0x30);
    assert!(offset_of!(DEVICE_OBJECT, DeviceExtension) == 0x40);
    assert!(size_of::<IRP>() == 0xd0);
    assert!(align_of::<IRP>() == 16);
    assert!(offset_of!(IRP, IoStatus) == 0x30);
    assert!(offset_of!(IRP, Tail) == 0x78);
    assert!(size_of::<IO_STACK_LOCATION>() == 0x48);
    assert!(size_of::<FILE_OBJECT>() == 0xd8);
    assert!(size_of::<MDL>() == 0x30);
    assert!(size_of::<KEVENT>() == 0x18);
    assert!(size_of::<KDPC>() == 0x40);
    assert!(size_of::<KTIMER>() == 0x40);
    assert!(size_of::<KMUTEX>() == 0x38);
    assert!(size_of::<KSEMAPHORE>() == 0x20);
    assert!(size_of::<KSPIN_LOCK>() == 8);
    assert!(size_of::<LIST_ENTRY>() == 0x10);
    assert!(size_of::<UNICODE_STRING>() == 0x10);
    assert!(size_of::<CM_PARTIAL_RESOURCE_DESCRIPTOR>() == 0x14);
};
