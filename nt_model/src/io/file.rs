//! Files: devices opened by name, and what is read of and written to them.
//!
//! The machine has no file system. A name leads to a device, or to nothing.

use std::sync::atomic::Ordering;

use super::{DeviceRecord, FILE_TAG, allocate, at};
use crate::kernel::Machine;
use crate::object::Object;
use crate::records::{status, status::NtStatus};
use crate::records_io::{DeviceObject, FileObject, IRP_MJ_CLEANUP, IRP_MJ_CLOSE, IRP_MJ_CREATE};
use crate::routines;
use crate::rules::Details;
use crate::rules_nt::NT_DEVICE;

impl Machine {
    /// A file object of a device, with one reference.
    pub(super) fn new_file(&self, device: usize) -> Result<usize, NtStatus> {
        let file = allocate(&self.memory, self, size_of::<FileObject>(), FILE_TAG, "a file object")?;
        let object: &FileObject = at(file);
        object.kind.store(5, Ordering::Relaxed);
        object.size.store(0xD8, Ordering::Relaxed);
        object.device_object.store(device, Ordering::Relaxed);
        self.objects.insert_running(Object::Body(file, "File"));
        Ok(file)
    }

    /// Opens a device by name: a kernel handle to a file object, which is gone when the handle is closed and it
    /// has no reference. The driver of the device gets IRP_MJ_CREATE, and IRP_MJ_CLEANUP and IRP_MJ_CLOSE at the
    /// end; a native device is open to everybody.
    ///
    /// IRQL: PASSIVE_LEVEL.
    ///
    /// # Errors
    /// `STATUS_OBJECT_NAME_NOT_FOUND` where nothing has the name: the machine has no file system;
    /// `STATUS_INSUFFICIENT_RESOURCES`; what the driver refuses with.
    ///
    /// Source: DDI ZwCreateFile.
    #[doc(alias = "ZwCreateFile")]
    #[track_caller]
    pub fn open_file(&self, name: &str) -> Result<u64, NtStatus> {
        let _service = self.service(&routines::ZW_CREATE_FILE, []);
        let device = self.find_device(name).filter(|device| self.has_appeared(*device));
        let device = self.top_of_stack(device.ok_or(status::OBJECT_NAME_NOT_FOUND)?);
        if self.memory.must_fail() {
            return Err(status::INSUFFICIENT_RESOURCES);
        }
        if self.is_of_a_driver(device) {
            let answer = self.device_request(device, IRP_MJ_CREATE);
            if answer < 0 {
                return Err(answer);
            }
        }
        let file = self.new_file(device).inspect_err(|_| self.tell_closed(device))?;
        self.io.opened.lock().insert(file);
        let handle = self.open_handle(Object::Body(file, "File"));
        // The handle's reference is the only one.
        self.objects.release_running(file);
        Ok(handle)
    }

    /// A file object is gone.
    pub(crate) fn file_is_gone(&self, file: usize) {
        let device = at::<FileObject>(file).device_object.load(Ordering::Relaxed);
        self.release_pool(file);
        if self.io.opened.lock().remove(&file) {
            self.tell_closed(device);
        }
    }

    fn is_of_a_driver(&self, device: usize) -> bool {
        let devices = self.io.devices.lock();
        devices.get(&device).is_some_and(|DeviceRecord { handler, .. }| handler.is_none())
    }

    fn tell_closed(&self, device: usize) {
        if self.is_of_a_driver(device) && !self.rules.is_stopped() {
            self.device_request(device, IRP_MJ_CLEANUP);
            self.device_request(device, IRP_MJ_CLOSE);
        }
    }

    /// The device at the top of the stack that a device is in.
    fn top_of_stack(&self, device: usize) -> usize {
        let mut top = device;
        loop {
            match at::<DeviceObject>(top).attached_device.load(Ordering::Relaxed) {
                0 => return top,
                above => top = above,
            }
        }
    }

    /// The device that requests about a file go to: the highest of its stack. 0, and NT-DEVICE broken, when there is
    /// no such file object.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    ///
    /// Source: DDI IoGetRelatedDeviceObject.
    #[doc(alias = "IoGetRelatedDeviceObject")]
    #[track_caller]
    pub fn related_device_object(&self, file: usize) -> usize {
        let _service = self.service(&routines::IO_GET_RELATED_DEVICE_OBJECT, [file as u64]);
        let known = matches!(self.objects.find(file), Some(Object::Body(_, "File")));
        let text = || Details::new(format!("{file:#x} is no file object (any more)")).params([file as u64, 0, 0]);
        if !self.rules.check(&NT_DEVICE, known, text) {
            return 0;
        }
        let device = at::<FileObject>(file).device_object.load(Ordering::Relaxed);
        if self.check_device(device) { self.top_of_stack(device) } else { 0 }
    }
}
