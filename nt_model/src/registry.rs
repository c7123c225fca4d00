//! The registry: keys and values of one machine, in memory.
//!
//! Paths are those of the kernel (`\Registry\Machine\System\…`), compared without case. Creating a key creates the keys
//! above it. Values keep their raw bytes, so that a driver sees whatever a test put there, wrong types included.

mod key_services;
mod query_table;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::RwLock;

use crate::kernel::Machine;
pub(crate) use key_services::ValueInformation;

/// `REG_SZ`.
pub const REG_SZ: u32 = 1;
/// `REG_EXPAND_SZ`.
pub const REG_EXPAND_SZ: u32 = 2;
/// `REG_BINARY`.
pub const REG_BINARY: u32 = 3;
/// `REG_DWORD`.
pub const REG_DWORD: u32 = 4;
/// `REG_MULTI_SZ`.
pub const REG_MULTI_SZ: u32 = 7;
/// `REG_QWORD`.
pub const REG_QWORD: u32 = 11;

/// A value's data and type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryValue {
    /// `REG_*`.
    pub kind: u32,
    /// The bytes, as drivers get them.
    pub data: Vec<u8>,
}

impl RegistryValue {
    /// A `REG_DWORD`.
    pub fn dword(value: u32) -> Self {
        Self { kind: REG_DWORD, data: value.to_le_bytes().to_vec() }
    }

    /// A `REG_QWORD`.
    pub fn qword(value: u64) -> Self {
        Self { kind: REG_QWORD, data: value.to_le_bytes().to_vec() }
    }

    /// A terminated `REG_SZ`.
    pub fn string(value: &str) -> Self {
        let units = value.encode_utf16().chain([0]);
        Self { kind: REG_SZ, data: units.flat_map(u16::to_le_bytes).collect() }
    }

    /// A `REG_BINARY`.
    pub fn binary(value: &[u8]) -> Self {
        Self { kind: REG_BINARY, data: value.to_vec() }
    }

    /// As a number, if it is a `REG_DWORD` or `REG_QWORD`.
    pub fn number(&self) -> Option<u64> {
        match (self.kind, self.data.len()) {
            (REG_DWORD, 4) => Some(u32::from_le_bytes(self.data[..].try_into().ok()?).into()),
            (REG_QWORD, 8) => Some(u64::from_le_bytes(self.data[..].try_into().ok()?)),
            _ => None,
        }
    }

    /// As text, if it is a string.
    pub fn text(&self) -> Option<String> {
        if !matches!(self.kind, REG_SZ | REG_EXPAND_SZ) {
            return None;
        }
        let units: Vec<_> = self.data.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        Some(String::from_utf16_lossy(&units).trim_end_matches('\0').to_owned())
    }
}

#[derive(Debug, Default)]
struct Key {
    /// Last component with its case.
    name: String,
    /// By lower-case name: name with its case, and value.
    values: BTreeMap<String, (String, RegistryValue)>,
}

/// The registry of one machine.
#[derive(Debug, Default)]
pub struct Registry {
    keys: RwLock<BTreeMap<String, Key>>,
    /// Where `IoOpenDeviceRegistryKey` leads, by device object.
    devices: RwLock<HashMap<usize, DeviceKeys>>,
}

/// Paths of the two keys of a device.
#[derive(Clone, Debug)]
struct DeviceKeys {
    hardware: Arc<str>,
    software: Arc<str>,
}

fn normal(path: &str) -> String {
    path.trim_end_matches('\\').to_lowercase()
}

impl Registry {
    /// Creates a key and those above it. False: it was there.
    pub fn create(&self, path: &str) -> bool {
        let mut keys = self.keys.write();
        let mut created = false;
        let path = path.trim_end_matches('\\');
        let ends = path.char_indices().skip(1).filter(|(_, c)| *c == '\\').map(|(at, _)| at);
        for end in ends.chain([path.len()]) {
            let prefix = &path[..end];
            let name = prefix.rsplit('\\').next().unwrap_or_default().to_owned();
            keys.entry(prefix.to_lowercase()).or_insert_with(|| {
                created = end == path.len();
                Key { name, values: BTreeMap::new() }
            });
        }
        created
    }

    /// Whether a key exists.
    pub fn exists(&self, path: &str) -> bool {
        self.keys.read().contains_key(&normal(path))
    }

    /// Deletes a key without subkeys. False: it does not exist or has some.
    pub fn delete(&self, path: &str) -> bool {
        let path = normal(path);
        let mut keys = self.keys.write();
        let below = format!("{path}\\");
        if keys.range(below.clone()..).next().is_some_and(|(key, _)| key.starts_with(&below)) {
            return false;
        }
        keys.remove(&path).is_some()
    }

    /// Sets a value, creating the key.
    pub fn set(&self, path: &str, name: &str, value: RegistryValue) {
        self.create(path);
        if let Some(key) = self.keys.write().get_mut(&normal(path)) {
            key.values.insert(name.to_lowercase(), (name.to_owned(), value));
        }
    }

    /// A value.
    pub fn get(&self, path: &str, name: &str) -> Option<RegistryValue> {
        let keys = self.keys.read();
        keys.get(&normal(path))?.values.get(&name.to_lowercase()).map(|(_, value)| value.clone())
    }

    /// Deletes a value. False: it does not exist.
    pub fn delete_value(&self, path: &str, name: &str) -> bool {
        let mut keys = self.keys.write();
        keys.get_mut(&normal(path)).is_some_and(|key| key.values.remove(&name.to_lowercase()).is_some())
    }

    /// Names and values of a key.
    pub fn values(&self, path: &str) -> Vec<(String, RegistryValue)> {
        let keys = self.keys.read();
        keys.get(&normal(path)).map(|key| key.values.values().cloned().collect()).unwrap_or_default()
    }

    /// Names of the keys right below a key.
    pub fn subkeys(&self, path: &str) -> Vec<String> {
        let below = format!("{}\\", normal(path));
        let keys = self.keys.read();
        keys.range(below.clone()..)
            .take_while(|(key, _)| key.starts_with(&below))
            .filter(|(key, _)| !key[below.len()..].contains('\\'))
            .map(|(_, key)| key.name.clone())
            .collect()
    }

    /// Says where `IoOpenDeviceRegistryKey` of a device leads: to `path` for the hardware key, to its subkey `Driver`
    /// for the software key.
    pub fn set_device_key(&self, device: usize, path: &str) {
        self.set_device_keys(device, path, &format!("{path}\\Driver"));
    }

    /// Says where the hardware key and the software key of a device are, and creates both. `device`: address of its
    /// object.
    pub fn set_device_keys(&self, device: usize, hardware: &str, software: &str) {
        self.create(hardware);
        self.create(software);
        self.devices.write().insert(device, DeviceKeys { hardware: hardware.into(), software: software.into() });
    }

    /// Path of a device's hardware key. Unless it was set before, the device gets both keys at a path of its own.
    pub fn hardware_key(&self, device: usize) -> Arc<str> {
        self.device_keys(device).hardware
    }

    /// Path of a device's software key. Unless it was set before, the device gets both keys at a path of its own.
    pub fn software_key(&self, device: usize) -> Arc<str> {
        self.device_keys(device).software
    }

    fn device_keys(&self, device: usize) -> DeviceKeys {
        let known = self.devices.read().get(&device).cloned();
        known.unwrap_or_else(|| {
            let path = format!("\\Registry\\Machine\\System\\CurrentControlSet\\Enum\\Model\\Device\\{device:x}");
            self.set_device_key(device, &path);
            DeviceKeys { software: format!("{path}\\Driver").into(), hardware: path.into() }
        })
    }
}

impl Machine {
    /// The registry.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }
}
