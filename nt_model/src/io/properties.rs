//! What the Plug and Play manager knows of a device.

use crate::kernel::Machine;
use crate::records::{status, status::NtStatus};
use crate::routines;

/// A property of a device, by its number in `DEVICE_REGISTRY_PROPERTY`, and its value.
///
/// Source: DDI DEVICE_REGISTRY_PROPERTY; the forms, DDI IoGetDeviceProperty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceProperty {
    /// A text.
    Text(u32, String),
    /// Several texts (`REG_MULTI_SZ`).
    Texts(u32, Vec<String>),
    /// A number of 32 bits.
    Number(u32, u32),
    /// A record.
    Bytes(u32, Vec<u8>),
}

/// `DevicePropertyDeviceDescription`.
pub const DEVICE_DESCRIPTION: u32 = 0;
/// `DevicePropertyHardwareID`.
pub const HARDWARE_ID: u32 = 1;
/// `DevicePropertyCompatibleIDs`.
pub const COMPATIBLE_IDS: u32 = 2;
/// `DevicePropertyClassName`.
pub const CLASS_NAME: u32 = 5;
/// `DevicePropertyClassGuid`.
pub const CLASS_GUID: u32 = 6;
/// `DevicePropertyDriverKeyName`.
pub const DRIVER_KEY_NAME: u32 = 7;
/// `DevicePropertyPhysicalDeviceObjectName`.
pub const PHYSICAL_DEVICE_OBJECT_NAME: u32 = 11;
/// `DevicePropertyLegacyBusType`.
pub const LEGACY_BUS_TYPE: u32 = 13;
/// `DevicePropertyBusNumber`.
pub const BUS_NUMBER: u32 = 14;
/// `DevicePropertyEnumeratorName`.
pub const ENUMERATOR_NAME: u32 = 15;
/// `DevicePropertyAddress`.
pub const ADDRESS: u32 = 16;
/// `DevicePropertyUINumber`.
pub const UI_NUMBER: u32 = 17;
/// `DevicePropertyInstallState`.
pub const INSTALL_STATE: u32 = 18;

/// The last of them, `DevicePropertyContainerID`.
const LAST: u32 = 22;

impl DeviceProperty {
    fn number(&self) -> u32 {
        match self {
            Self::Text(number, _) | Self::Texts(number, _) | Self::Number(number, _) | Self::Bytes(number, _) => {
                *number
            }
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let wide = |text: &String| text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect::<Vec<_>>();
        match self {
            Self::Text(_, text) => wide(text),
            Self::Texts(_, texts) => texts.iter().flat_map(wide).chain([0, 0]).collect(),
            Self::Number(_, number) => number.to_le_bytes().to_vec(),
            Self::Bytes(_, bytes) => bytes.clone(),
        }
    }
}

impl Machine {
    /// Says what is known of a physical device object. `device`: its address.
    pub fn set_device_properties(&self, device: usize, properties: Vec<DeviceProperty>) {
        self.io.properties.lock().insert(device, properties);
    }

    /// A property of a device, as its bytes.
    ///
    /// IRQL: PASSIVE_LEVEL.
    ///
    /// # Errors
    /// `STATUS_INVALID_PARAMETER_2`: no such property; `STATUS_INVALID_DEVICE_REQUEST`: nothing is known of the device;
    /// `STATUS_OBJECT_NAME_NOT_FOUND`: this device has none.
    ///
    /// Source: DDI IoGetDeviceProperty. Chosen: the status of a property that a device does not have, of which the page
    /// is silent.
    #[doc(alias = "IoGetDeviceProperty")]
    #[track_caller]
    pub fn device_property(&self, device: usize, property: u32) -> Result<Vec<u8>, NtStatus> {
        let _service = self.service(&routines::IO_GET_DEVICE_PROPERTY, [device as u64, property.into()]);
        if property > LAST {
            return Err(status::INVALID_PARAMETER_2);
        }
        let properties = self.io.properties.lock();
        let known = properties.get(&device).ok_or(status::INVALID_DEVICE_REQUEST)?;
        let found = known.iter().find(|known| known.number() == property).ok_or(status::OBJECT_NAME_NOT_FOUND)?;
        Ok(found.bytes())
    }
}
