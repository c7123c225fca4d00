//! The I/O manager: drivers, devices, and requests to them.
//!
//! A loaded image becomes a driver by [`Machine::start_driver`], which gives it a `DRIVER_OBJECT` and calls its entry
//! point, and ends by [`Machine::unload_driver`]. Devices are `DEVICE_OBJECT`s in pool, found by name. A device can
//! also be native: [`Machine::register_device`] puts a closure behind a name, which is how `\Device\DxgKrnl` answers
//! displib's handshake.

mod driver_object;
mod file;
pub mod properties;
mod request;
#[cfg(test)]
mod tests;
pub(crate) mod work_item;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::kernel::Machine;
use crate::memory::Memory;
use crate::object::Object;
use crate::pool::PoolUse;
use crate::records::{status, status::NtStatus};
use crate::records_io::DeviceObject;
use crate::routines;
use crate::rules::Details;
use crate::rules_nt::NT_DEVICE;
use crate::sched::Ticks;
use crate::shim::In;
use crate::shims;
pub use driver_object::{Driver, StartError, service_key};
pub use properties::DeviceProperty;
pub use request::IoRequest;
pub(crate) use request::{ControlRequest, IrpRecord, Transfer, refuse};

const DEVICE_TAG: u32 = u32::from_le_bytes(*b"Devi");
const FILE_TAG: u32 = u32::from_le_bytes(*b"File");
/// `DO_DEVICE_INITIALIZING`.
pub(crate) const DO_DEVICE_INITIALIZING: u32 = 0x80;

type Handler = Arc<dyn Fn(&IoRequest) -> NtStatus + Send + Sync>;

/// A device as the table knows it.
#[derive(Clone)]
pub(crate) struct DeviceRecord {
    /// Lower case, empty for none.
    name: String,
    /// The driver object's address; 0 for a native device.
    pub(crate) driver: usize,
    handler: Option<Handler>,
    /// When it can be opened, by the machine's clock; its service is known before that.
    appears: Ticks,
}

impl fmt::Debug for DeviceRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceRecord").field("name", &self.name).field("driver", &self.driver).finish_non_exhaustive()
    }
}

/// Drivers, devices and requests of one machine.
#[derive(Debug, Default)]
pub(crate) struct Io {
    pub(crate) drivers: Mutex<Vec<Arc<Driver>>>,
    pub(crate) devices: Mutex<HashMap<usize, DeviceRecord>>,
    links: Mutex<HashMap<String, String>>,
    /// File objects that `ZwCreateFile` has made.
    opened: Mutex<HashSet<usize>>,
    /// What is known of physical device objects.
    properties: Mutex<HashMap<usize, Vec<DeviceProperty>>>,
    pub(crate) irps: Mutex<HashMap<usize, IrpRecord>>,
    pub(crate) work: work_item::WorkItems,
}

/// A record at an address that this model allocated or a driver passed.
pub(crate) fn at<T: crate::shim::Plain>(address: usize) -> &'static T {
    let pointer: In<T> = shims::pointer(address);
    pointer.get()
}

impl Machine {
    /// Puts a native device behind `name` (`\Device\DxgKrnl`). Requests to it go to `handler`, on the requesting
    /// thread; what it returns completes them.
    ///
    /// Returns `false` when the name is taken or there is no memory.
    pub fn register_device(
        &self,
        name: &str,
        handler: impl Fn(&IoRequest) -> NtStatus + Send + Sync + 'static,
    ) -> bool {
        self.new_device(name, 0, 0, 0, 0, Some(Arc::new(handler))).is_ok()
    }

    /// Lets a device be opened only when `after` has passed from now on. `ZwLoadDriver` finds its service before that:
    /// a driver's image may be loaded before it has made its device.
    pub fn delay_device(&self, name: &str, after: Ticks) {
        let appears = self.now() + after;
        let mut devices = self.io.devices.lock();
        let named = devices.values_mut().filter(|device| device.name.eq_ignore_ascii_case(name));
        named.for_each(|device| device.appears = appears);
    }

    /// Returns whether a device can be opened by now.
    pub(crate) fn has_appeared(&self, device: usize) -> bool {
        let appears = self.io.devices.lock().get(&device).map_or(0, |device| device.appears);
        self.now() >= appears
    }

    fn new_device(
        &self,
        name: &str,
        driver: usize,
        extension: u32,
        device_type: u32,
        characteristics: u32,
        handler: Option<Handler>,
    ) -> Result<usize, NtStatus> {
        let name = name.to_lowercase();
        if !name.is_empty() && self.io.devices.lock().values().any(|device| device.name == name) {
            return Err(status::OBJECT_NAME_COLLISION);
        }
        let header = size_of::<DeviceObject>();
        let bytes = header + extension as usize;
        let address = allocate(&self.memory, self, bytes, DEVICE_TAG, "a device object")?;
        let device: &DeviceObject = at(address);
        device.kind.store(3, Ordering::Relaxed);
        // CAST: as Windows does; the field is 16 bits.
        device.size.store(bytes as u16, Ordering::Relaxed);
        device.reference_count.store(0, Ordering::Relaxed);
        device.driver_object.store(driver, Ordering::Relaxed);
        device.flags.store(DO_DEVICE_INITIALIZING, Ordering::Relaxed);
        device.characteristics.store(characteristics, Ordering::Relaxed);
        device.device_type.store(device_type, Ordering::Relaxed);
        device.stack_size.store(1, Ordering::Relaxed);
        if extension != 0 {
            device.device_extension.store(address + header, Ordering::Relaxed);
        }
        self.objects.insert_running(Object::Body(address, "Device"));
        self.io.devices.lock().insert(address, DeviceRecord { name, driver, handler, appears: 0 });
        Ok(address)
    }

    /// Creates a device of a driver. Returns its address.
    ///
    /// IRQL: PASSIVE_LEVEL (by the header, at most APC_LEVEL).
    ///
    /// # Errors
    /// `STATUS_OBJECT_NAME_COLLISION`, `STATUS_INSUFFICIENT_RESOURCES`, `STATUS_INVALID_PARAMETER` (no such driver).
    #[doc(alias = "IoCreateDevice")]
    #[track_caller]
    pub fn create_device(
        &self,
        driver: usize,
        extension: u32,
        name: &str,
        device_type: u32,
        characteristics: u32,
    ) -> Result<usize, NtStatus> {
        let arguments = [driver as u64, extension.into(), 0, device_type.into(), characteristics.into()];
        let _service = self.service(&routines::IO_CREATE_DEVICE, arguments);
        let Some(owner) = self.driver_at(driver) else { return Err(status::INVALID_PARAMETER) };
        if self.memory.must_fail() {
            return Err(status::INSUFFICIENT_RESOURCES);
        }
        let device = self.new_device(name, driver, extension, device_type, characteristics, None)?;
        let first = &owner.object().device_object;
        at::<DeviceObject>(device).next_device.store(first.load(Ordering::Relaxed), Ordering::Relaxed);
        first.store(device, Ordering::Relaxed);
        Ok(device)
    }

    /// Deletes a device.
    ///
    /// IRQL: at most APC_LEVEL.
    #[doc(alias = "IoDeleteDevice")]
    #[track_caller]
    pub fn delete_device(&self, device: usize) {
        let _service = self.service(&routines::IO_DELETE_DEVICE, [device as u64]);
        if !self.check_device(device) {
            return;
        }
        let record = self.io.devices.lock().remove(&device);
        if let Some(owner) = record.and_then(|record| self.driver_at(record.driver)) {
            unlink(owner.object(), device);
        }
        self.objects.release_running(device);
        self.release_pool(device);
    }

    /// A device that exists, or NT-DEVICE broken.
    pub(crate) fn check_device(&self, device: usize) -> bool {
        let known = self.io.devices.lock().contains_key(&device);
        self.rules.check(&NT_DEVICE, known, || {
            Details::new(format!("{device:#x} is no device object (any more)")).params([device as u64, 0, 0])
        })
    }

    /// Whether `ZwLoadDriver` finds a service: a started driver, or a registered device of that name.
    pub(crate) fn is_service_known(&self, service: &str) -> bool {
        let device = format!("\\device\\{}", service.to_lowercase());
        self.find_device(&device).is_some()
            || self.io.drivers.lock().iter().any(|driver| driver.service().eq_ignore_ascii_case(service))
    }

    /// Makes `link` another name of `target`.
    ///
    /// # Errors
    /// `STATUS_OBJECT_NAME_COLLISION`.
    #[doc(alias = "IoCreateSymbolicLink")]
    #[track_caller]
    pub fn create_symbolic_link(&self, link: &str, target: &str) -> Result<(), NtStatus> {
        let _service = self.service(&routines::IO_CREATE_SYMBOLIC_LINK, []);
        let mut links = self.io.links.lock();
        if links.contains_key(&link.to_lowercase()) {
            return Err(status::OBJECT_NAME_COLLISION);
        }
        links.insert(link.to_lowercase(), target.to_lowercase());
        Ok(())
    }

    /// Removes a link.
    ///
    /// # Errors
    /// `STATUS_OBJECT_NAME_NOT_FOUND`.
    #[doc(alias = "IoDeleteSymbolicLink")]
    #[track_caller]
    pub fn delete_symbolic_link(&self, link: &str) -> Result<(), NtStatus> {
        let _service = self.service(&routines::IO_DELETE_SYMBOLIC_LINK, []);
        self.io.links.lock().remove(&link.to_lowercase()).map(drop).ok_or(status::OBJECT_NAME_NOT_FOUND)
    }

    /// The device behind a name, links followed.
    pub fn find_device(&self, name: &str) -> Option<usize> {
        let mut name = name.to_lowercase();
        for _ in 0..8 {
            match self.io.links.lock().get(&name) {
                Some(target) => name = target.clone(),
                None => break,
            }
        }
        let devices = self.io.devices.lock();
        devices.iter().find(|(_, device)| !device.name.is_empty() && device.name == name).map(|(address, _)| *address)
    }

    /// Opens a device by name: file object and device object, the file object with one reference.
    ///
    /// IRQL: PASSIVE_LEVEL.
    ///
    /// # Errors
    /// `STATUS_OBJECT_NAME_NOT_FOUND`, `STATUS_INSUFFICIENT_RESOURCES`.
    #[doc(alias = "IoGetDeviceObjectPointer")]
    #[track_caller]
    pub fn device_object_pointer(&self, name: &str) -> Result<(usize, usize), NtStatus> {
        let _service = self.service(&routines::IO_GET_DEVICE_OBJECT_POINTER, []);
        let device = self.find_device(name).filter(|device| self.has_appeared(*device));
        let device = device.ok_or(status::OBJECT_NAME_NOT_FOUND)?;
        Ok((self.new_file(device)?, device))
    }

    /// Attaches `source` on top of the stack that `target` is in. Returns the device that it lies on.
    #[doc(alias = "IoAttachDeviceToDeviceStack")]
    #[track_caller]
    pub fn attach_device(&self, source: usize, target: usize) -> usize {
        let _service = self.service(&routines::IO_ATTACH_DEVICE_TO_DEVICE_STACK, [source as u64, target as u64]);
        if !self.check_device(source) || !self.check_device(target) {
            return 0;
        }
        let mut top = target;
        loop {
            match at::<DeviceObject>(top).attached_device.load(Ordering::Relaxed) {
                0 => break,
                above => top = above,
            }
        }
        let below: &DeviceObject = at(top);
        below.attached_device.store(source, Ordering::Relaxed);
        let stack = below.stack_size.load(Ordering::Relaxed).saturating_add(1);
        at::<DeviceObject>(source).stack_size.store(stack, Ordering::Relaxed);
        top
    }

    /// Detaches whatever lies on `target`.
    #[doc(alias = "IoDetachDevice")]
    #[track_caller]
    pub fn detach_device(&self, target: usize) {
        let _service = self.service(&routines::IO_DETACH_DEVICE, [target as u64]);
        if self.check_device(target) {
            at::<DeviceObject>(target).attached_device.store(0, Ordering::Relaxed);
        }
    }
}

/// Zeroed non-paged memory that a service hands to the driver.
pub(crate) fn allocate(
    memory: &Memory,
    machine: &Machine,
    bytes: usize,
    tag: u32,
    what: &'static str,
) -> Result<usize, NtStatus> {
    machine.pool.allocate(memory, bytes, tag, false, 0, PoolUse::Service(what)).ok_or(status::INSUFFICIENT_RESOURCES)
}

/// Takes a device out of its driver's chain.
fn unlink(driver: &crate::records_io::DriverObject, device: usize) {
    let next = at::<DeviceObject>(device).next_device.load(Ordering::Relaxed);
    let mut link = &driver.device_object;
    loop {
        match link.load(Ordering::Relaxed) {
            0 => return,
            found if found == device => return link.store(next, Ordering::Relaxed),
            other => link = &at::<DeviceObject>(other).next_device,
        }
    }
}
