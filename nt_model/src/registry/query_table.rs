//! `RtlQueryRegistryValues`: a table of values to fetch.
//!
//! Source: wdm.h `RTL_QUERY_REGISTRY_TABLE` and the routine's page.

use super::{REG_DWORD, REG_SZ, RegistryValue};
use crate::callback;
use crate::kernel::Machine;
use crate::records::{UnicodeString, status, status::NtStatus};
use crate::routines;
use crate::shim::{self, In};
use crate::shims;

/// `RTL_QUERY_REGISTRY_TABLE`: 0x38 bytes, as words.
pub(crate) const TABLE_ENTRY_WORDS: usize = 7;

const SUBKEY: u32 = 0x01;
const TOPKEY: u32 = 0x02;
const REQUIRED: u32 = 0x04;
const NOVALUE: u32 = 0x08;
const DIRECT: u32 = 0x20;
const DELETE: u32 = 0x40;
const TYPECHECK: u32 = 0x100;

/// `RTL_REGISTRY_SERVICES`, `_CONTROL`, `_HANDLE`.
fn base_path(machine: &Machine, relative_to: u32, path: usize) -> Result<String, NtStatus> {
    const SYSTEM: &str = "\\Registry\\Machine\\System\\CurrentControlSet";
    if relative_to & 0x4000_0000 != 0 {
        // RTL_REGISTRY_HANDLE: the path is a handle.
        return machine.key_of(path as u64);
    }
    let path = String::from_utf16_lossy(&shim::read_wide_string(path));
    Ok(match relative_to & 0xFF {
        0 => path,
        1 => format!("{SYSTEM}\\Services\\{path}"),
        2 => format!("{SYSTEM}\\Control\\{path}"),
        3 => format!("\\Registry\\Machine\\Software\\Microsoft\\Windows NT\\CurrentVersion\\{path}"),
        4 => format!("\\Registry\\Machine\\Hardware\\DeviceMap\\{path}"),
        _ => return Err(status::INVALID_PARAMETER),
    })
}

#[derive(Debug)]
struct Entry {
    routine: usize,
    flags: u32,
    name: usize,
    context: usize,
    default_kind: u32,
    default: (usize, usize),
}

impl Entry {
    fn read(address: usize) -> Self {
        let words: In<[usize; TABLE_ENTRY_WORDS]> = shims::pointer(address);
        let [routine, flags, name, context, default_kind, data, length] = *words.get();
        // CAST: the 32-bit fields lie in the low halves of their words.
        Self {
            routine,
            flags: flags as u32,
            name,
            context,
            default_kind: default_kind as u32,
            default: (data, length as u32 as usize),
        }
    }

    fn is_end(&self) -> bool {
        self.routine == 0 && self.name == 0 && self.flags & (SUBKEY | DIRECT) == 0
    }

    fn name(&self) -> String {
        String::from_utf16_lossy(&shim::read_wide_string(self.name))
    }

    fn default_value(&self) -> Option<RegistryValue> {
        let kind = self.default_kind & 0x00FF_FFFF;
        if kind == 0 {
            return None;
        }
        let length = match (self.default.1, kind) {
            (0, REG_SZ) => 2 * (shim::read_wide_string(self.default.0).len() + 1),
            (length, _) => length,
        };
        Some(RegistryValue { kind, data: shim::read_bytes(self.default.0, length) })
    }
}

impl Machine {
    /// Serves `RtlQueryRegistryValues`.
    ///
    /// IRQL: PASSIVE_LEVEL.
    #[track_caller]
    pub(crate) fn query_registry_values(
        &self,
        relative_to: u32,
        path: usize,
        table: usize,
        context: usize,
    ) -> NtStatus {
        let arguments = [relative_to.into(), path as u64, table as u64, context as u64];
        let _service = self.service(&routines::RTL_QUERY_REGISTRY_VALUES, arguments);
        let base = match base_path(self, relative_to, path) {
            Ok(base) => base,
            Err(status) => return status,
        };
        if !self.registry.exists(&base) {
            return status::OBJECT_NAME_NOT_FOUND;
        }
        let mut key = base.clone();
        for at in (table..).step_by(8 * TABLE_ENTRY_WORDS) {
            let entry = Entry::read(at);
            if entry.is_end() {
                break;
            }
            if entry.flags & TOPKEY != 0 {
                key.clone_from(&base);
            }
            if entry.flags & SUBKEY != 0 {
                key = format!("{base}\\{}", entry.name());
                if !self.registry.exists(&key) && entry.flags & REQUIRED != 0 {
                    return status::OBJECT_NAME_NOT_FOUND;
                }
                continue;
            }
            let result = self.query_entry(&entry, &key, context);
            if result < 0 {
                return result;
            }
        }
        status::SUCCESS
    }

    fn query_entry(&self, entry: &Entry, key: &str, context: usize) -> NtStatus {
        if entry.flags & NOVALUE != 0 {
            return self.tell(entry, "", &RegistryValue { kind: 0, data: Vec::new() }, context);
        }
        let name = entry.name();
        let Some(value) = self.registry.get(key, &name).or_else(|| entry.default_value()) else {
            let missing = entry.flags & REQUIRED != 0;
            return if missing { status::OBJECT_NAME_NOT_FOUND } else { status::SUCCESS };
        };
        if entry.flags & DELETE != 0 {
            self.registry.delete_value(key, &name);
        }
        if entry.flags & DIRECT != 0 { self.store(entry, &value) } else { self.tell(entry, &name, &value, context) }
    }

    /// Calls the driver's query routine.
    fn tell(&self, entry: &Entry, name: &str, value: &RegistryValue, context: usize) -> NtStatus {
        if entry.routine == 0 {
            return status::SUCCESS;
        }
        let name: Vec<u16> = name.encode_utf16().chain([0]).collect();
        let arguments = [
            name.as_ptr().expose_provenance(),
            value.kind as usize,
            value.data.as_ptr().expose_provenance(),
            value.data.len(),
            context,
            entry.context,
        ];
        let answer = self.call_driver("registry query routine", || callback::invoke(entry.routine, arguments));
        // CAST: an NTSTATUS is the low half of the return register.
        answer.map_or(status::SYSTEM_SHUTDOWN, |status| status as NtStatus)
    }

    /// `RTL_QUERY_REGISTRY_DIRECT`: stores the value where the entry says.
    fn store(&self, entry: &Entry, value: &RegistryValue) -> NtStatus {
        let wanted = entry.default_kind >> 24;
        if entry.flags & TYPECHECK != 0 && wanted != value.kind {
            return status::OBJECT_TYPE_MISMATCH;
        }
        match value.kind {
            REG_SZ | super::REG_EXPAND_SZ | super::REG_MULTI_SZ => {
                let string: In<UnicodeString> = shims::pointer(entry.context);
                let string = *string.get();
                let used = value.data.len().saturating_sub(2);
                if string.buffer.is_null() || usize::from(string.maximum_length) < value.data.len() {
                    return status::BUFFER_TOO_SMALL;
                }
                shim::write_bytes(string.buffer.expose_provenance(), &value.data);
                // CAST: it fits in the maximum length, which is 16 bits.
                shim::write_bytes(entry.context, &(used as u16).to_le_bytes());
            }
            REG_DWORD => shim::write_bytes(entry.context, &value.data),
            // Others: up to four bytes as they are; larger ones behind a length, which is how the buffer came in.
            _ if value.data.len() <= 4 => shim::write_bytes(entry.context, &value.data),
            _ => {
                let size: In<i32> = shims::pointer(entry.context);
                let room = *size.get();
                if room >= 0 || room.unsigned_abs() as usize <= value.data.len() {
                    return status::BUFFER_TOO_SMALL;
                }
                shim::write_bytes(entry.context, &value.data);
            }
        }
        status::SUCCESS
    }
}
