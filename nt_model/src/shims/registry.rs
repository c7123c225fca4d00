//! The registry.

use crate::kernel::Machine;
use crate::records::{ObjectAttributes, UnicodeString, status, status::NtStatus};
use crate::registry::{RegistryValue, ValueInformation};
use crate::shim::{self, In, Out};
use crate::shims;
use crate::shims::io::name;

/// Name and root handle in object attributes.
pub(crate) fn attributes(m: &Machine, attributes: In<ObjectAttributes>) -> (u64, String) {
    let attributes = *attributes.get();
    (attributes.root_directory, name(m, shims::pointer(attributes.object_name.expose_provenance())))
}

/// Copies a record as far as there is room: `STATUS_BUFFER_TOO_SMALL` when not even its fixed part fits,
/// `STATUS_BUFFER_OVERFLOW` when the rest was cut.
fn copy_record(record: &[u8], fixed: usize, buffer: usize, length: u32, needed: Out<u32>) -> NtStatus {
    let length = length as usize;
    // CAST: registry values are far below 4 GiB.
    needed.set_opt(record.len() as u32);
    if length < fixed {
        return status::BUFFER_TOO_SMALL;
    }
    shim::write_bytes(buffer, &record[..record.len().min(length)]);
    if length < record.len() { status::BUFFER_OVERFLOW } else { status::SUCCESS }
}

shims! {
    pub(crate) table REGISTRY;

    fn ZwOpenKey(m, key: Out<u64>, _access: u32, object: In<ObjectAttributes>) -> NtStatus {
        let (root, path) = attributes(m, object);
        match m.open_key(root, &path) {
            Ok(handle) => {
                key.set(handle);
                status::SUCCESS
            }
            Err(status) => status,
        }
    }

    fn ZwOpenKeyEx(m, key: Out<u64>, _access: u32, object: In<ObjectAttributes>, _options: u32) -> NtStatus {
        let (root, path) = attributes(m, object);
        match m.open_key(root, &path) {
            Ok(handle) => {
                key.set(handle);
                status::SUCCESS
            }
            Err(status) => status,
        }
    }

    fn ZwCreateKey(
        m, key: Out<u64>, _access: u32, object: In<ObjectAttributes>, _title: u32, _class: usize, _options: u32,
        disposition: Out<u32>,
    ) -> NtStatus {
        let (root, path) = attributes(m, object);
        match m.create_key(root, &path) {
            Ok((handle, created)) => {
                key.set(handle);
                // REG_CREATED_NEW_KEY, REG_OPENED_EXISTING_KEY.
                disposition.set_opt(if created { 1 } else { 2 });
                status::SUCCESS
            }
            Err(status) => status,
        }
    }

    fn ZwQueryValueKey(
        m, key: u64, value_name: In<UnicodeString>, class: u32, buffer: usize, length: u32, needed: Out<u32>,
    ) -> NtStatus {
        let value_name = name(m, value_name);
        let Some(class) = ValueInformation::from_raw(class) else { return status::INVALID_INFO_CLASS };
        match m.query_value(key, &value_name) {
            Ok(value) => {
                let (record, fixed) = class.encode(&value_name, &value);
                copy_record(&record, fixed, buffer, length, needed)
            }
            Err(status) => status,
        }
    }

    fn ZwSetValueKey(
        m, key: u64, value_name: In<UnicodeString>, _title: u32, kind: u32, data: usize, bytes: u32,
    ) -> NtStatus {
        let value = RegistryValue { kind, data: shim::read_bytes(data, bytes as usize) };
        m.set_value(key, &name(m, value_name), value).err().unwrap_or(status::SUCCESS)
    }

    fn ZwEnumerateKey(m, key: u64, index: u32, class: u32, buffer: usize, length: u32, needed: Out<u32>) -> NtStatus {
        // KEY_BASIC_INFORMATION: last write time, title index, name length, name.
        if class != 0 {
            return status::INVALID_INFO_CLASS;
        }
        match m.enumerate_key(key, index as usize) {
            Ok(name) => {
                let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
                let mut record = vec![0; 12];
                // CAST: key names are at most 255 characters.
                record.extend((name.len() as u32).to_le_bytes());
                record.extend(name);
                copy_record(&record, 16, buffer, length, needed)
            }
            Err(status) => status,
        }
    }

    fn ZwEnumerateValueKey(
        m, key: u64, index: u32, class: u32, buffer: usize, length: u32, needed: Out<u32>,
    ) -> NtStatus {
        let Some(class) = ValueInformation::from_raw(class) else { return status::INVALID_INFO_CLASS };
        let path = match m.key_of(key) {
            Ok(path) => path,
            Err(status) => return status,
        };
        match m.registry().values(&path).into_iter().nth(index as usize) {
            Some((name, value)) => {
                let (record, fixed) = class.encode(&name, &value);
                copy_record(&record, fixed, buffer, length, needed)
            }
            None => status::NO_MORE_ENTRIES,
        }
    }

    fn ZwDeleteKey(m, key: u64) -> NtStatus {
        m.delete_key(key).err().unwrap_or(status::SUCCESS)
    }

    fn ZwDeleteValueKey(m, key: u64, value_name: In<UnicodeString>) -> NtStatus {
        match m.key_of(key) {
            Ok(path) if m.registry().delete_value(&path, &name(m, value_name)) => status::SUCCESS,
            Ok(_) => status::OBJECT_NAME_NOT_FOUND,
            Err(status) => status,
        }
    }

    fn ZwFlushKey(_m, _key: u64) -> NtStatus {
        status::SUCCESS
    }

    fn IoOpenDeviceRegistryKey(m, device: usize, kind: u32, _access: u32, key: Out<u64>) -> NtStatus {
        // PLUGPLAY_REGKEY_DEVICE is 1, PLUGPLAY_REGKEY_DRIVER 2.
        key.set(m.open_device_key(device, kind & 2 != 0));
        status::SUCCESS
    }

    fn RtlQueryRegistryValues(
        m, relative_to: u32, path: usize, table: usize, context: usize, _environment: usize,
    ) -> NtStatus {
        m.query_registry_values(relative_to, path, table, context)
    }

    fn RtlQueryRegistryValuesEx(
        m, relative_to: u32, path: usize, table: usize, context: usize, _environment: usize,
    ) -> NtStatus {
        m.query_registry_values(relative_to, path, table, context)
    }

    fn RtlWriteRegistryValue(
        m, relative_to: u32, path: usize, value_name: usize, kind: u32, data: usize, bytes: u32,
    ) -> NtStatus {
        let path = String::from_utf16_lossy(&shim::read_wide_string(path));
        let base = match relative_to & 0xFF {
            1 => format!("\\Registry\\Machine\\System\\CurrentControlSet\\Services\\{path}"),
            _ => path,
        };
        let value_name = String::from_utf16_lossy(&shim::read_wide_string(value_name));
        m.registry().set(&base, &value_name, RegistryValue { kind, data: shim::read_bytes(data, bytes as usize) });
        status::SUCCESS
    }

    // The named service's device must have been registered; there is no file to load from.
    fn ZwLoadDriver(m, service: In<UnicodeString>) -> NtStatus {
        let _service = m.service(&crate::routines::ZW_LOAD_DRIVER, [service.address() as u64]);
        let path = name(m, service);
        let known = path.rsplit('\\').next().is_some_and(|service| m.is_service_known(service));
        if known { status::SUCCESS } else { status::OBJECT_NAME_NOT_FOUND }
    }

    fn ZwUnloadDriver(m, service: In<UnicodeString>) -> NtStatus {
        let _service = m.service(&crate::routines::ZW_UNLOAD_DRIVER, [service.address() as u64]);
        status::SUCCESS
    }
}
