//! The I/O manager.

use crate::records::{ObjectAttributes, UnicodeString, status, status::NtStatus};
use crate::records_io::IRP;
use crate::routines;
use crate::rules::Details;
use crate::rules_nt::NT_UNICODE_STRING;
use crate::shim::{self, In, Out};
use crate::shims;
use crate::shims::registry::attributes;

/// A name that a driver passed.
pub(crate) fn name(m: &crate::kernel::Machine, string: In<UnicodeString>) -> String {
    let Some(string) = string.get_opt() else { return String::new() };
    let good = string.length.is_multiple_of(2)
        && string.length <= string.maximum_length
        && (string.length == 0 || !string.buffer.is_null());
    let found = m.rules.check(&NT_UNICODE_STRING, good, || {
        Details::new(format!("length {}, maximum {}, buffer {:p}", string.length, string.maximum_length, string.buffer))
    });
    if found { string.text() } else { String::new() }
}

shims! {
    pub(crate) table IO;

    fn IoCreateDevice(
        m, driver: usize, extension: u32, device_name: In<UnicodeString>, kind: u32, characteristics: u32,
        _exclusive: u8, device: Out<usize>,
    ) -> NtStatus {
        match m.create_device(driver, extension, &name(m, device_name), kind, characteristics) {
            Ok(address) => {
                device.set(address);
                status::SUCCESS
            }
            Err(status) => status,
        }
    }

    fn IoDeleteDevice(m, device: usize) {
        m.delete_device(device);
    }

    fn IoCreateSymbolicLink(m, link: In<UnicodeString>, target: In<UnicodeString>) -> NtStatus {
        m.create_symbolic_link(&name(m, link), &name(m, target)).err().unwrap_or(status::SUCCESS)
    }

    fn IoDeleteSymbolicLink(m, link: In<UnicodeString>) -> NtStatus {
        m.delete_symbolic_link(&name(m, link)).err().unwrap_or(status::SUCCESS)
    }

    fn IoGetDeviceObjectPointer(
        m, object_name: In<UnicodeString>, _access: u32, file: Out<usize>, device: Out<usize>,
    ) -> NtStatus {
        match m.device_object_pointer(&name(m, object_name)) {
            Ok((file_object, device_object)) => {
                file.set(file_object);
                device.set(device_object);
                status::SUCCESS
            }
            Err(status) => status,
        }
    }

    fn IoAttachDeviceToDeviceStack(m, source: usize, target: usize) -> usize {
        m.attach_device(source, target)
    }

    fn IoDetachDevice(m, target: usize) {
        m.detach_device(target);
    }

    // The buffer may be absent where its length is 0.
    fn IoGetDeviceProperty(
        m, device: usize, property: u32, length: u32, buffer: usize, needed: Out<u32>,
    ) -> NtStatus {
        let value = match m.device_property(device, property) {
            Ok(value) => value,
            Err(status) => return status,
        };
        // CAST: properties are short.
        needed.set(value.len() as u32);
        if value.len() > length as usize {
            return status::BUFFER_TOO_SMALL;
        }
        shim::write_bytes(buffer, &value);
        status::SUCCESS
    }

    // The machine has no file system: only devices are opened, whatever is to happen to files that are there or not.
    fn ZwCreateFile(
        m, handle: Out<u64>, _access: u32, object: In<ObjectAttributes>, iosb: Out<[u64; 2]>, _size: usize,
        _attributes: u32, _share: u32, _disposition: u32, _options: u32, _ea: usize, _ea_length: u32,
    ) -> NtStatus {
        /// `FILE_OPENED`.
        const OPENED: u64 = 1;
        let (root, path) = attributes(m, object);
        // Directories are objects of file systems, and no handle to one exists.
        let opened = if root == 0 { m.open_file(&path) } else { Err(status::INVALID_HANDLE) };
        match opened {
            Ok(opened) => {
                handle.set(opened);
                iosb.set([0, OPENED]);
                status::SUCCESS
            }
            Err(status) => status,
        }
    }

    fn IoCreateNotificationEvent(m, event_name: In<UnicodeString>, handle: Out<u64>) -> usize {
        let arguments = [event_name.address() as u64, handle.address() as u64];
        let _service = m.service(&routines::IO_CREATE_NOTIFICATION_EVENT, arguments);
        let (event, opened) = m.open_named_event(&name(m, event_name), true);
        handle.set(opened);
        event
    }

    fn IoCreateSynchronizationEvent(m, event_name: In<UnicodeString>, handle: Out<u64>) -> usize {
        let arguments = [event_name.address() as u64, handle.address() as u64];
        let _service = m.service(&routines::IO_CREATE_SYNCHRONIZATION_EVENT, arguments);
        let (event, opened) = m.open_named_event(&name(m, event_name), false);
        handle.set(opened);
        event
    }

    fn IoGetRelatedDeviceObject(m, file: usize) -> usize {
        m.related_device_object(file)
    }

    fn IoBuildSynchronousFsdRequest(
        m, major: u32, device: usize, buffer: usize, length: u32, offset: In<i64>, event: usize, iosb: usize,
    ) -> usize {
        let transfer = crate::io::Transfer {
            major: u8::try_from(major).unwrap_or(u8::MAX),
            device,
            buffer: (buffer, length as usize),
            offset: offset.get_opt().copied().unwrap_or_default(),
            event,
            iosb,
        };
        m.build_transfer(&transfer).unwrap_or(0)
    }

    fn IoBuildDeviceIoControlRequest(
        m, code: u32, device: usize, input: usize, input_length: u32, output: usize, output_length: u32, internal: u8,
        event: usize, iosb: usize,
    ) -> usize {
        let request = crate::io::ControlRequest {
            code,
            device,
            input: (input, input_length as usize),
            output: (output, output_length as usize),
            internal: internal != 0,
            event,
            iosb,
        };
        m.build_control_request(&request).unwrap_or(0)
    }

    fn IoAllocateIrp(m, locations: i8, _charge: u8) -> usize {
        m.allocate_irp(locations).unwrap_or(0)
    }

    fn IoFreeIrp(m, irp: usize) {
        m.free_irp(irp);
    }

    // The machine collects no data of drivers by WMI, nor traces of WPP's older form.
    fn IoWMIRegistrationControl(m, device: usize, action: u32) -> NtStatus {
        let _service = m.service(&routines::IO_WMI_REGISTRATION_CONTROL, [device as u64, action.into()]);
        status::SUCCESS
    }

    fn IofCallDriver(m, device: usize, irp: usize) -> NtStatus {
        m.call_device(device, irp)
    }

    fn IofCompleteRequest(m, irp: In<IRP>, _boost: i8) {
        m.complete_request(irp.address());
    }

    fn IoAllocateWorkItem(m, device: usize) -> usize {
        m.allocate_work_item(device)
    }

    fn IoFreeWorkItem(m, item: usize) {
        m.free_work_item(item);
    }

    fn IoQueueWorkItem(m, item: usize, routine: usize, _queue: u32, context: usize) {
        m.queue_work_item(item, routine, context, false);
    }

    fn IoQueueWorkItemEx(m, item: usize, routine: usize, _queue: u32, context: usize) {
        m.queue_work_item(item, routine, context, true);
    }

    // WORK_QUEUE_ITEM: list entry, routine at 0x10, parameter at 0x18.
    fn ExQueueWorkItem(m, item: In<[usize; 4]>, _queue: u32) {
        let [_, _, routine, parameter] = *item.get();
        m.queue_work(0, routine, [parameter, 0, 0]);
    }

    // The dispatch routine of functions that a driver does not serve.
    fn IopInvalidDeviceRequest(m, _device: usize, irp: usize) -> NtStatus {
        crate::io::refuse(m, irp)
    }
}

/// Address of the dispatch routine that a fresh driver object is filled with.
pub(crate) fn invalid_request_address() -> usize {
    IopInvalidDeviceRequest::thunk as *const () as usize
}
