//! A loaded image as a driver: its object, its entry point, its end.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::callback;
use crate::driver::{Abandoned, EntryStack};
use crate::image::Image;
use crate::kernel::Machine;
use crate::records::status::NtStatus;
use crate::records_io::{DriverExtension, DriverObject};
use crate::rules::Details;
use crate::rules_nt::NT_DRIVER_ENTRY;
use crate::shims::io::invalid_request_address;

/// A driver that was started.
pub struct Driver {
    image: Arc<Image>,
    object: Box<DriverObject>,
    extension: Box<DriverExtension>,
    service: String,
    /// Characters that the object's names point to.
    names: [Box<[u16]>; 3],
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "driver {} ({})", self.service, self.image.name())
    }
}

/// Why a driver did not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// `DriverEntry` failed.
    #[error("DriverEntry returned {0:#010x}")]
    Status(NtStatus),
    /// The machine stopped while it ran.
    #[error(transparent)]
    Abandoned(#[from] Abandoned),
    /// The image has no entry point.
    #[error("the image has no entry point")]
    NoEntry,
}

impl Driver {
    /// The image.
    pub fn image(&self) -> &Arc<Image> {
        &self.image
    }

    /// The `DRIVER_OBJECT`.
    pub fn object(&self) -> &DriverObject {
        &self.object
    }

    /// Its address, as the driver knows it.
    pub fn address(&self) -> usize {
        core::ptr::from_ref(&*self.object).expose_provenance()
    }

    /// Name of its service.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// `AddDevice`, if the driver set it.
    pub fn add_device(&self) -> Option<usize> {
        let address = self.extension.add_device.load(Ordering::Relaxed);
        (address != 0).then_some(address)
    }
}

impl Machine {
    pub(crate) fn driver_at(&self, address: usize) -> Option<Arc<Driver>> {
        self.io.drivers.lock().iter().find(|driver| driver.address() == address).cloned()
    }

    /// Gives `image` a driver object and calls `DriverEntry(DriverObject, RegistryPath)` at PASSIVE_LEVEL.
    ///
    /// The registry path is `\Registry\Machine\System\CurrentControlSet\Services\<service>`; the key is created.
    ///
    /// # Errors
    /// [`StartError`]. After a failure the caller unloads the image.
    ///
    /// # Panics
    /// When the calling thread is not inside this machine.
    pub fn start_driver(&self, image: &Arc<Image>, service: &str) -> Result<Arc<Driver>, StartError> {
        let entry = image.entry_point().ok_or(StartError::NoEntry)?;
        let driver = Arc::new(self.new_driver(image, service, entry));
        self.io.drivers.lock().push(driver.clone());
        self.registry.create(&service_key(service));
        let path = super::request::NamedString::new(&driver.names[1]);
        let arguments = [driver.address(), path.address()];
        let result = self.call_driver_on(EntryStack::Own, "DriverEntry", || callback::invoke(entry, arguments));
        // CAST: an NTSTATUS is the low half of the return register.
        let result = result.map(|status| status as NtStatus);
        match result {
            Ok(status) if status >= 0 => Ok(driver),
            failed => {
                self.io.drivers.lock().retain(|other| !Arc::ptr_eq(other, &driver));
                Err(failed.map_or_else(StartError::Abandoned, StartError::Status))
            }
        }
    }

    fn new_driver(&self, image: &Arc<Image>, service: &str, entry: usize) -> Driver {
        let units = |text: String| text.encode_utf16().collect::<Box<[u16]>>();
        let names = [units(format!("\\Driver\\{service}")), units(service_key(service)), units(service.to_owned())];
        let object = Box::new(DriverObject::default());
        let extension = Box::new(DriverExtension::default());
        object.kind.store(4, Ordering::Relaxed);
        object.size.store(0x150, Ordering::Relaxed);
        object.driver_start.store(image.base(), Ordering::Relaxed);
        // CAST: image sizes are 32 bits.
        object.driver_size.store(image.size() as u32, Ordering::Relaxed);
        object.driver_init.store(entry, Ordering::Relaxed);
        object.driver_extension.store(core::ptr::from_ref(&*extension).expose_provenance(), Ordering::Relaxed);
        for function in &object.major_function {
            function.store(invalid_request_address(), Ordering::Relaxed);
        }
        super::request::set_string(&object.driver_name, &names[0]);
        super::request::set_string(&extension.service_key_name, &names[2]);
        Driver { image: image.clone(), object, extension, service: service.to_owned(), names }
    }

    /// Calls the driver's unload routine, checks that it left nothing behind, and unloads the image.
    ///
    /// # Errors
    /// [`Abandoned`] when the machine has stopped; the image then stays mapped.
    pub fn unload_driver(&self, driver: &Arc<Driver>) -> Result<(), Abandoned> {
        let unload = driver.object.driver_unload.load(Ordering::Relaxed);
        self.rules.check(&NT_DRIVER_ENTRY, unload != 0, || {
            Details::new(format!("{} has no unload routine", driver.image.name()))
        });
        if unload != 0 {
            let arguments = [driver.address()];
            self.call_driver_on(EntryStack::Own, "DriverUnload", || callback::invoke(unload, arguments))?;
        }
        let devices = driver.object.device_object.load(Ordering::Relaxed);
        self.rules.check(&NT_DRIVER_ENTRY, devices == 0, || {
            Details::new(format!("{} left the device object {devices:#x}", driver.image.name()))
        });
        self.io.drivers.lock().retain(|other| !Arc::ptr_eq(other, driver));
        self.unload_image(&driver.image);
        Ok(())
    }
}

/// Path of a service's registry key.
pub fn service_key(service: &str) -> String {
    format!("\\Registry\\Machine\\System\\CurrentControlSet\\Services\\{service}")
}
