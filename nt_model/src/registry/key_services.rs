//! `ZwOpenKey` and its kin.

use super::RegistryValue;
use crate::kernel::Machine;
use crate::object::Object;
use crate::records::{status, status::NtStatus};
use crate::routines;

/// What `ZwQueryValueKey` is to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueInformation {
    /// `KEY_VALUE_BASIC_INFORMATION`.
    Basic,
    /// `KEY_VALUE_FULL_INFORMATION`.
    Full,
    /// `KEY_VALUE_PARTIAL_INFORMATION`.
    Partial,
}

impl ValueInformation {
    pub(crate) fn from_raw(raw: u32) -> Option<Self> {
        Some(match raw {
            0 => Self::Basic,
            1 => Self::Full,
            2 => Self::Partial,
            _ => return None,
        })
    }

    /// The record, and how many of its bytes are fixed.
    pub(crate) fn encode(self, name: &str, value: &RegistryValue) -> (Vec<u8>, usize) {
        let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        // CAST: lengths in a registry record are 32 bits.
        let (name_length, data_length) = (name.len() as u32, value.data.len() as u32);
        let mut bytes = vec![0; 4];
        bytes.extend(value.kind.to_le_bytes());
        match self {
            Self::Basic => {
                bytes.extend(name_length.to_le_bytes());
                bytes.extend(name);
                (bytes, 12)
            }
            Self::Full => {
                let offset = (20 + name_length).next_multiple_of(8);
                bytes.extend(offset.to_le_bytes());
                bytes.extend(data_length.to_le_bytes());
                bytes.extend(name_length.to_le_bytes());
                bytes.extend(name);
                bytes.resize(offset as usize, 0);
                bytes.extend(&value.data);
                (bytes, 20)
            }
            Self::Partial => {
                bytes.extend(data_length.to_le_bytes());
                bytes.extend(&value.data);
                (bytes, 12)
            }
        }
    }
}

impl Machine {
    /// Opens a key. `root`: handle of the key that `path` is relative to, or 0.
    ///
    /// IRQL: PASSIVE_LEVEL.
    ///
    /// # Errors
    /// `STATUS_OBJECT_NAME_NOT_FOUND`, `STATUS_INVALID_HANDLE`.
    #[doc(alias = "ZwOpenKey")]
    #[track_caller]
    pub fn open_key(&self, root: u64, path: &str) -> Result<u64, NtStatus> {
        let _service = self.service(&routines::ZW_OPEN_KEY, [0, 0, 0]);
        let path = self.key_path(root, path)?;
        if !self.registry.exists(&path) {
            return Err(status::OBJECT_NAME_NOT_FOUND);
        }
        Ok(self.open_handle(Object::Key(path.into())))
    }

    /// Opens or creates a key. Returns the handle and whether it was created.
    ///
    /// IRQL: PASSIVE_LEVEL.
    ///
    /// # Errors
    /// `STATUS_INVALID_HANDLE`.
    #[doc(alias = "ZwCreateKey")]
    #[track_caller]
    pub fn create_key(&self, root: u64, path: &str) -> Result<(u64, bool), NtStatus> {
        let _service = self.service(&routines::ZW_CREATE_KEY, [0, 0, 0]);
        let path = self.key_path(root, path)?;
        let created = self.registry.create(&path);
        Ok((self.open_handle(Object::Key(path.into())), created))
    }

    fn key_path(&self, root: u64, path: &str) -> Result<String, NtStatus> {
        if root == 0 {
            return Ok(path.to_owned());
        }
        let root = self.key_of(root)?;
        Ok(format!("{root}\\{}", path.trim_start_matches('\\')))
    }

    /// Path of the key behind a handle.
    pub(crate) fn key_of(&self, handle: u64) -> Result<String, NtStatus> {
        match self.object_of_handle(handle) {
            Some(Object::Key(path)) => Ok(path.to_string()),
            Some(_) => Err(status::OBJECT_TYPE_MISMATCH),
            None => Err(status::INVALID_HANDLE),
        }
    }

    /// A value of an open key.
    ///
    /// IRQL: PASSIVE_LEVEL.
    ///
    /// # Errors
    /// `STATUS_OBJECT_NAME_NOT_FOUND`, `STATUS_INVALID_HANDLE`.
    #[doc(alias = "ZwQueryValueKey")]
    #[track_caller]
    pub fn query_value(&self, key: u64, name: &str) -> Result<RegistryValue, NtStatus> {
        let _service = self.service(&routines::ZW_QUERY_VALUE_KEY, [key, 0, 0, 0, 0, 0]);
        self.registry.get(&self.key_of(key)?, name).ok_or(status::OBJECT_NAME_NOT_FOUND)
    }

    /// Sets a value of an open key.
    ///
    /// IRQL: PASSIVE_LEVEL.
    ///
    /// # Errors
    /// `STATUS_INVALID_HANDLE`.
    #[doc(alias = "ZwSetValueKey")]
    #[track_caller]
    pub fn set_value(&self, key: u64, name: &str, value: RegistryValue) -> Result<(), NtStatus> {
        let _service = self.service(&routines::ZW_SET_VALUE_KEY, [key, 0, 0, value.kind.into(), 0, 0]);
        self.registry.set(&self.key_of(key)?, name, value);
        Ok(())
    }

    /// Name of subkey number `index`.
    ///
    /// IRQL: PASSIVE_LEVEL.
    ///
    /// # Errors
    /// `STATUS_NO_MORE_ENTRIES`, `STATUS_INVALID_HANDLE`.
    #[doc(alias = "ZwEnumerateKey")]
    #[track_caller]
    pub fn enumerate_key(&self, key: u64, index: usize) -> Result<String, NtStatus> {
        let _service = self.service(&routines::ZW_ENUMERATE_KEY, [key, index as u64, 0, 0, 0, 0]);
        self.registry.subkeys(&self.key_of(key)?).into_iter().nth(index).ok_or(status::NO_MORE_ENTRIES)
    }

    /// Deletes an open key.
    ///
    /// IRQL: PASSIVE_LEVEL.
    ///
    /// # Errors
    /// `STATUS_ACCESS_DENIED` when it has subkeys, `STATUS_INVALID_HANDLE`.
    #[doc(alias = "ZwDeleteKey")]
    #[track_caller]
    pub fn delete_key(&self, key: u64) -> Result<(), NtStatus> {
        let _service = self.service(&routines::ZW_DELETE_KEY, [key]);
        if self.registry.delete(&self.key_of(key)?) { Ok(()) } else { Err(status::ACCESS_DENIED) }
    }

    /// Opens a device's hardware key, or its software key.
    ///
    /// IRQL: PASSIVE_LEVEL.
    #[doc(alias = "IoOpenDeviceRegistryKey")]
    #[track_caller]
    pub fn open_device_key(&self, device: usize, software: bool) -> u64 {
        let _service = self.service(&routines::IO_OPEN_DEVICE_REGISTRY_KEY, [device as u64, software.into()]);
        let path = if software { self.registry.software_key(device) } else { self.registry.hardware_key(device) };
        self.registry.create(&path);
        self.open_handle(Object::Key(path))
    }
}
