//! Records of the I/O manager: driver, device and file objects, IRPs, stack locations.
//!
//! Source: wdm.h (build 22621); sizes and offsets as measured against mingw-w64's headers, asserted by the tests.

use std::sync::atomic::{AtomicI8, AtomicI16, AtomicI32, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};

use crate::records::KEVENT;

/// `IRP_MJ_MAXIMUM_FUNCTION + 1`.
pub const MAJOR_FUNCTIONS: usize = 28;
/// `IRP_MJ_CREATE`.
pub const IRP_MJ_CREATE: u8 = 0x00;
/// `IRP_MJ_CLOSE`.
pub const IRP_MJ_CLOSE: u8 = 0x02;
/// `IRP_MJ_READ`.
pub const IRP_MJ_READ: u8 = 0x03;
/// `IRP_MJ_WRITE`.
pub const IRP_MJ_WRITE: u8 = 0x04;
/// `IRP_MJ_FLUSH_BUFFERS`.
pub const IRP_MJ_FLUSH_BUFFERS: u8 = 0x09;
/// `IRP_MJ_DEVICE_CONTROL`.
pub const IRP_MJ_DEVICE_CONTROL: u8 = 0x0E;
/// `IRP_MJ_INTERNAL_DEVICE_CONTROL`.
pub const IRP_MJ_INTERNAL_DEVICE_CONTROL: u8 = 0x0F;
/// `IRP_MJ_SHUTDOWN`.
pub const IRP_MJ_SHUTDOWN: u8 = 0x10;
/// `IRP_MJ_CLEANUP`.
pub const IRP_MJ_CLEANUP: u8 = 0x12;
/// `IRP_MJ_PNP`.
pub const IRP_MJ_PNP: u8 = 0x1B;

/// A `UNICODE_STRING` whose fields others may change.
#[repr(C)]
#[derive(Debug, Default)]
pub struct SharedUnicodeString {
    /// Bytes used.
    pub length: AtomicU16,
    /// Bytes there are.
    pub maximum_length: AtomicU16,
    pad: AtomicU32,
    /// The characters.
    pub buffer: AtomicUsize,
}

/// `DRIVER_OBJECT`.
#[repr(C, align(16))]
#[derive(Debug, Default)]
pub struct DriverObject {
    /// 4.
    pub kind: AtomicI16,
    /// 0x150.
    pub size: AtomicI16,
    pad: AtomicU32,
    /// First device.
    pub device_object: AtomicUsize,
    /// `DRVO_*`.
    pub flags: AtomicU32,
    pad2: AtomicU32,
    /// Base of the image.
    pub driver_start: AtomicUsize,
    /// Its size.
    pub driver_size: AtomicU32,
    pad3: AtomicU32,
    driver_section: AtomicUsize,
    /// `DRIVER_EXTENSION`.
    pub driver_extension: AtomicUsize,
    /// `\Driver\name`.
    pub driver_name: SharedUnicodeString,
    hardware_database: AtomicUsize,
    fast_io_dispatch: AtomicUsize,
    /// Entry point.
    pub driver_init: AtomicUsize,
    driver_start_io: AtomicUsize,
    /// Unload routine.
    pub driver_unload: AtomicUsize,
    /// Dispatch routines.
    pub major_function: [AtomicUsize; MAJOR_FUNCTIONS],
}

/// `DRIVER_EXTENSION`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct DriverExtension {
    driver_object: AtomicUsize,
    /// `AddDevice`.
    pub add_device: AtomicUsize,
    count: AtomicU32,
    pad: AtomicU32,
    /// Name of the service.
    pub service_key_name: SharedUnicodeString,
}

/// `DEVICE_OBJECT`.
#[repr(C, align(16))]
#[derive(Debug, Default)]
pub struct DeviceObject {
    /// 3.
    pub kind: AtomicI16,
    /// Size with the extension.
    pub size: AtomicU16,
    /// Open handles.
    pub reference_count: AtomicI32,
    /// Whose it is.
    pub driver_object: AtomicUsize,
    /// Next device of the same driver.
    pub next_device: AtomicUsize,
    /// The device attached on top of this one.
    pub attached_device: AtomicUsize,
    current_irp: AtomicUsize,
    timer: AtomicUsize,
    /// `DO_*`.
    pub flags: AtomicU32,
    /// `FILE_*`.
    pub characteristics: AtomicU32,
    vpb: AtomicUsize,
    /// The driver's own part.
    pub device_extension: AtomicUsize,
    /// `FILE_DEVICE_*`.
    pub device_type: AtomicU32,
    /// Stack locations that an IRP for this device needs.
    pub stack_size: AtomicI8,
    pad: [AtomicU8; 3],
    queue: [AtomicU64; 9],
    alignment_requirement: AtomicU32,
    pad2: AtomicU32,
    device_queue: [AtomicU64; 5],
    dpc: [AtomicU64; 8],
    active_thread_count: AtomicU32,
    pad3: AtomicU32,
    security_descriptor: AtomicUsize,
    device_lock: KEVENT,
    sector_size: AtomicU16,
    spare: AtomicU16,
    pad4: AtomicU32,
    device_object_extension: AtomicUsize,
    reserved: AtomicUsize,
}

/// `FILE_OBJECT`.
#[repr(C, align(16))]
#[derive(Debug, Default)]
pub struct FileObject {
    /// 5.
    pub kind: AtomicI16,
    /// 0xD8.
    pub size: AtomicI16,
    pad: AtomicU32,
    /// What was opened.
    pub device_object: AtomicUsize,
    opaque: [AtomicU64; 25],
}

/// `IRP`.
#[repr(C, align(16))]
#[derive(Debug, Default)]
pub struct IRP {
    /// 6.
    pub kind: AtomicI16,
    /// Bytes with the stack locations.
    pub size: AtomicU16,
    pad: AtomicU32,
    /// Buffer of direct I/O.
    pub mdl_address: AtomicUsize,
    /// `IRP_*`.
    pub flags: AtomicU32,
    pad2: AtomicU32,
    /// `AssociatedIrp.SystemBuffer`.
    pub system_buffer: AtomicUsize,
    thread_list_entry: [AtomicUsize; 2],
    /// `IoStatus.Status`, and the rest of its union.
    pub status: AtomicI32,
    pad3: AtomicU32,
    /// `IoStatus.Information`.
    pub information: AtomicUsize,
    /// 0 kernel, 1 user.
    pub requestor_mode: AtomicU8,
    /// `PendingReturned`.
    pub pending_returned: AtomicU8,
    /// Stack locations.
    pub stack_count: AtomicI8,
    /// The current one, counted down from `stack_count + 1`.
    pub current_location: AtomicI8,
    /// Set when it is to be cancelled.
    pub cancel: AtomicU8,
    cancel_irql: AtomicU8,
    apc_environment: AtomicI8,
    allocation_flags: AtomicU8,
    /// `UserIosb`.
    pub user_iosb: AtomicUsize,
    /// `UserEvent`.
    pub user_event: AtomicUsize,
    overlay: [AtomicUsize; 2],
    /// `CancelRoutine`.
    pub cancel_routine: AtomicUsize,
    /// `UserBuffer`.
    pub user_buffer: AtomicUsize,
    driver_context: [AtomicUsize; 4],
    /// `Tail.Overlay.Thread`.
    pub thread: AtomicUsize,
    auxiliary_buffer: AtomicUsize,
    list_entry: [AtomicUsize; 2],
    /// `Tail.Overlay.CurrentStackLocation`.
    pub current_stack_location: AtomicUsize,
    original_file_object: AtomicUsize,
    apc: AtomicUsize,
}

/// `IO_STACK_LOCATION`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct IoStackLocation {
    /// `IRP_MJ_*`.
    pub major_function: AtomicU8,
    /// `IRP_MN_*`.
    pub minor_function: AtomicU8,
    /// Depends on the function.
    pub flags: AtomicU8,
    /// `SL_*`.
    pub control: AtomicU8,
    pad: AtomicU32,
    /// For device control: output length; for reads and writes, the length.
    pub output_length: AtomicU32,
    pad2: AtomicU32,
    /// Input length.
    pub input_length: AtomicU32,
    pad3: AtomicU32,
    /// Control code; for reads and writes, the low half of the offset.
    pub control_code: AtomicU32,
    /// The high half of that offset.
    pub offset_high: AtomicU32,
    /// `Type3InputBuffer`.
    pub type3_input_buffer: AtomicUsize,
    /// Target device.
    pub device_object: AtomicUsize,
    /// File object.
    pub file_object: AtomicUsize,
    /// Completion routine of the driver above.
    pub completion_routine: AtomicUsize,
    /// Its context.
    pub context: AtomicUsize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn sizes_are_those_of_windows() {
        assert_eq!(size_of::<DriverObject>(), 0x150);
        assert_eq!(size_of::<DeviceObject>(), 0x150);
        assert_eq!(size_of::<IRP>(), 0xD0);
        assert_eq!(size_of::<IoStackLocation>(), 0x48);
        assert_eq!(size_of::<DriverExtension>(), 0x28);
    }

    #[test]
    fn offsets_are_those_of_windows() {
        assert_eq!(offset_of!(DriverObject, driver_name), 0x38);
        assert_eq!(offset_of!(DriverObject, driver_unload), 0x68);
        assert_eq!(offset_of!(DriverObject, major_function), 0x70);
        assert_eq!(offset_of!(DeviceObject, flags), 0x30);
        assert_eq!(offset_of!(DeviceObject, device_extension), 0x40);
        assert_eq!(offset_of!(DeviceObject, stack_size), 0x4C);
        assert_eq!(offset_of!(DeviceObject, device_lock), 0x118);
        assert_eq!(offset_of!(DeviceObject, device_object_extension), 0x138);
        assert_eq!(offset_of!(IRP, status), 0x30);
        assert_eq!(offset_of!(IRP, user_iosb), 0x48);
        assert_eq!(offset_of!(IRP, user_buffer), 0x70);
        assert_eq!(offset_of!(IRP, thread), 0x98);
        assert_eq!(offset_of!(IRP, current_stack_location), 0xB8);
        assert_eq!(offset_of!(IoStackLocation, control_code), 0x18);
        assert_eq!(offset_of!(IoStackLocation, device_object), 0x28);
        assert_eq!(offset_of!(IoStackLocation, completion_routine), 0x38);
    }
}
