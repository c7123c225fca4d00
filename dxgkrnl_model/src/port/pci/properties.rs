//! What the Plug and Play manager tells a driver of the device.
//!
//! Chosen: a root-enumerated device has the hardware ID `ROOT\DISPLAY`: which one an INF gave it, the model does not
//! know.

use nt_model::io::properties::{self, DeviceProperty};

use super::{CONFIG_SPACE, Device, DeviceKind, PCI_BUS};
use crate::port::compute::DeviceClass;

/// `INTERFACE_TYPE`, PNPBus.
const PNP_BUS: u32 = 15;
/// `DEVICE_INSTALL_STATE`, InstallStateInstalled.
const INSTALLED: u32 = 0;
/// Of a number that the bus does not have.
const NO_NUMBER: u32 = u32::MAX;

/// The setup class: name and GUID.
///
/// Source: *System-Defined Device Setup Classes Available to Vendors*.
fn class(class: DeviceClass) -> (&'static str, &'static str) {
    match class {
        DeviceClass::Display => ("Display", "{4d36e968-e325-11ce-bfc1-08002be10318}"),
        DeviceClass::ComputeAccelerator => ("ComputeAccelerator", "{f01a9d53-3ff6-48d2-9f97-c8a7004be10c}"),
    }
}

/// Hardware and compatible IDs of a PCI function, from the most specific one down.
///
/// Source: *Identifiers for PCI Devices*.
fn pci_ids() -> [Vec<String>; 2] {
    let word = |at| CONFIG_SPACE.iter().find(|(offset, _)| *offset == at).map_or(0, |(_, word)| *word);
    let (id, class, subsystem) = (word(0), word(8), word(0x2C));
    let (vendor, device, revision) = (id & 0xFFFF, id >> 16, class & 0xFF);
    let function = format!("PCI\\VEN_{vendor:04X}&DEV_{device:04X}");
    let (whole, short) = (class >> 8, class >> 16);
    let hardware = vec![
        format!("{function}&SUBSYS_{subsystem:08X}&REV_{revision:02X}"),
        format!("{function}&SUBSYS_{subsystem:08X}"),
        format!("{function}&CC_{whole:06X}"),
        format!("{function}&CC_{short:04X}"),
    ];
    let compatible = vec![
        format!("{function}&REV_{revision:02X}"),
        function.clone(),
        format!("PCI\\VEN_{vendor:04X}&CC_{whole:06X}"),
        format!("PCI\\VEN_{vendor:04X}&CC_{short:04X}"),
        format!("PCI\\VEN_{vendor:04X}"),
        format!("PCI\\CC_{whole:06X}"),
        format!("PCI\\CC_{short:04X}"),
    ];
    [hardware, compatible]
}

impl Device {
    /// The properties of the device. `key`: the path of its software key.
    pub(crate) fn properties(&self, setup: Option<DeviceClass>, key: &str) -> Vec<DeviceProperty> {
        use DeviceProperty::{Number, Text, Texts};
        let (class_name, guid) = class(setup.unwrap_or(DeviceClass::Display));
        let on_pci = self.config.kind == DeviceKind::Edu;
        let (bus, enumerator) = if on_pci { (PCI_BUS.cast_unsigned(), "PCI") } else { (PNP_BUS, "ROOT") };
        // The software key's name is relative to that of all classes.
        let driver_key = key.rsplit_once("\\Class\\").map_or(key, |(_, name)| name);
        // CAST: below 256. Device number in the high word, function number 0.
        let index = self.index as u32;
        let mut properties = vec![
            Text(properties::DEVICE_DESCRIPTION, "Model adapter".to_owned()),
            Text(properties::CLASS_NAME, class_name.to_owned()),
            Text(properties::CLASS_GUID, guid.to_owned()),
            Text(properties::DRIVER_KEY_NAME, driver_key.to_owned()),
            Text(properties::PHYSICAL_DEVICE_OBJECT_NAME, format!("\\Device\\Model{:04}", self.index)),
            Text(properties::ENUMERATOR_NAME, enumerator.to_owned()),
            Number(properties::LEGACY_BUS_TYPE, bus),
            Number(properties::BUS_NUMBER, 0),
            Number(properties::ADDRESS, if on_pci { index << 16 } else { NO_NUMBER }),
            Number(properties::UI_NUMBER, NO_NUMBER),
            Number(properties::INSTALL_STATE, INSTALLED),
        ];
        if on_pci {
            let [hardware, compatible] = pci_ids();
            properties.push(Texts(properties::HARDWARE_ID, hardware));
            properties.push(Texts(properties::COMPATIBLE_IDS, compatible));
        } else {
            properties.push(Texts(properties::HARDWARE_ID, vec!["ROOT\\DISPLAY".to_owned()]));
        }
        properties
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_functions_ids_are_those_of_its_configuration_space() {
        let [hardware, compatible] = pci_ids();
        assert_eq!(hardware[0], "PCI\\VEN_1234&DEV_11E8&SUBSYS_11001AF4&REV_10");
        assert_eq!(hardware[3], "PCI\\VEN_1234&DEV_11E8&CC_00FF");
        assert_eq!(compatible[1], "PCI\\VEN_1234&DEV_11E8");
    }
}
