//! The physical device object of an adapter, and the keys of the registry that belong to it.

use wddm_abi::UNICODE_STRING;

/// Where the software key of display adapters is.
const CLASS_KEY: &str =
    "\\Registry\\Machine\\System\\CurrentControlSet\\Control\\Class\\{4d36e968-e325-11ce-bfc1-08002be10318}";

/// The registry key under which the model puts the hardware keys of devices.
const ENUM_KEY: &str = "\\Registry\\Machine\\System\\CurrentControlSet\\Enum\\PCI\\Model";

/// The physical device object that stands for an adapter's function on the bus. Drivers see its address and never what
/// is behind it.
#[derive(Debug)]
pub(crate) struct DeviceObject {
    /// Characters of the device's registry path, kept in place for the driver's pointer.
    path: Vec<u16>,
    object: Box<[u64; 64]>,
}

impl DeviceObject {
    /// That of the device with this number on the machine.
    pub(crate) fn new(index: usize) -> Self {
        Self { path: format!("{CLASS_KEY}\\{index:04}").encode_utf16().collect(), object: Box::new([0; 64]) }
    }

    /// The adapter's software key.
    pub(crate) fn key(&self) -> String {
        String::from_utf16_lossy(&self.path)
    }

    /// The software key, as `DeviceRegistryPath` has it. The characters live as long as the object.
    pub(crate) fn path(&self) -> UNICODE_STRING {
        // CAST: a path of a hundred characters.
        let length = (self.path.len() * 2) as u16;
        let mut path = UNICODE_STRING::zeroed();
        path.Length = length;
        path.MaximumLength = length;
        path.Buffer = self.path.as_ptr().cast_mut();
        path
    }

    /// Registry path of the device's hardware key (`Device Parameters`).
    pub(crate) fn hardware_key(&self) -> String {
        format!("{ENUM_KEY}\\{:x}\\Device Parameters", self.address())
    }

    /// Its address.
    pub(crate) fn address(&self) -> usize {
        core::ptr::from_ref(&*self.object).expose_provenance()
    }
}
