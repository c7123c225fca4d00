//! What is in the registry of an adapter and of its driver's service.

use nt_model::io::service_key;
use nt_model::registry::{REG_BINARY, REG_DWORD, REG_EXPAND_SZ, REG_MULTI_SZ, REG_QWORD, REG_SZ, RegistryValue};
use wddm_abi::{
    D3DDDI_QUERYREGISTRY_INFO, D3DDDI_QUERYREGISTRY_STATUS, D3DDDI_QUERYREGISTRY_TYPE, D3DKMT_DRIVER_DESCRIPTION,
    D3DKMT_PNP_KEY_TYPE, D3DKMT_QUERY_PHYSICAL_ADAPTER_PNP_KEY, NTSTATUS, Plain, ntstatus,
};

use super::super::{DONE, INVALID, Outcome, capture};
use super::{give, taken};
use crate::port::miniport::Miniport;

/// Values of the adapter's key, as strings.
fn registry_strings(adapter: &Miniport, name: &str) -> Vec<String> {
    let value = adapter.kernel().registry().get(&adapter.object.key(), name);
    let Some(value) = value else { return Vec::new() };
    let units: Vec<_> = value.data.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
    units.split(|unit| *unit == 0).filter(|string| !string.is_empty()).map(String::from_utf16_lossy).collect()
}

/// 260 characters of a string.
fn wide(text: &str) -> Vec<u8> {
    let mut units: Vec<u16> = text.encode_utf16().take(259).collect();
    units.resize(260, 0);
    units.into_iter().flat_map(u16::to_le_bytes).collect()
}

/// The library of a version of Direct3D: `UserModeDriverName` is a list by version: Direct3D 9, 10, 11, 12.
pub(super) fn driver_name(adapter: &Miniport, address: usize, size: usize) -> Outcome {
    let version = super::taken::<u32>(address, size)? as usize;
    let name = registry_strings(adapter, "UserModeDriverName").into_iter().nth(version).ok_or(INVALID)?;
    let answer = wide(&name);
    if size < 4 + answer.len() {
        return Err(INVALID);
    }
    capture::store(address + 4, &answer)?;
    DONE
}

/// Strings about the hardware, each of 260 characters.
pub(super) fn info(adapter: &Miniport, address: usize, size: usize) -> Outcome {
    let names = [
        "HardwareInformation.AdapterString",
        "HardwareInformation.BiosString",
        "HardwareInformation.DacType",
        "HardwareInformation.ChipType",
    ];
    let answer: Vec<_> = names
        .iter()
        .flat_map(|name| wide(&registry_strings(adapter, name).first().cloned().unwrap_or_default()))
        .collect();
    if size < answer.len() {
        return Err(INVALID);
    }
    capture::store(address, &answer)?;
    DONE
}

/// A value of the registry, or a path.
///
/// Source: DDI pages D3DDDI_QUERYREGISTRY_INFO, D3DDDI_QUERYREGISTRY_TYPE, D3DDDI_QUERYREGISTRY_STATUS,
/// D3DDDI_QUERYREGISTRY_FLAGS. Chosen, since they do not say: of what is not there, or is of another type, the call
/// answers STATUS_OBJECT_NAME_NOT_FOUND, of wrong arguments STATUS_INVALID_PARAMETER, with `Status` FAIL both times;
/// reserved flags are refused; a path's size counts its NUL.
pub(super) fn value(adapter: &Miniport, address: usize, size: usize) -> Outcome {
    use D3DDDI_QUERYREGISTRY_STATUS as Status;
    let mut record: D3DDDI_QUERYREGISTRY_INFO = taken(address, size)?;
    let found = match found(adapter, &record) {
        Ok(found) => found,
        Err(status) => {
            record.Status = Status::D3DDDI_QUERYREGISTRY_STATUS_FAIL;
            capture::write(address, &record)?;
            return Err(status);
        }
    };
    // CAST: what a registry holds.
    record.OutputValueSize = found.len() as u32;
    let output = core::mem::offset_of!(D3DDDI_QUERYREGISTRY_INFO, u0);
    let fits = found.len() <= size - output;
    record.Status = if fits {
        Status::D3DDDI_QUERYREGISTRY_STATUS_SUCCESS
    } else {
        Status::D3DDDI_QUERYREGISTRY_STATUS_BUFFER_OVERFLOW
    };
    capture::store(address, &record.as_bytes()[..output])?;
    if fits {
        capture::store(address + output, &found)?;
    }
    DONE
}

/// The bytes that a record asks for.
fn found(adapter: &Miniport, record: &D3DDDI_QUERYREGISTRY_INFO) -> Result<Vec<u8>, NTSTATUS> {
    use D3DDDI_QUERYREGISTRY_TYPE as Kind;
    let flags = record.QueryFlags;
    if record.PhysicalAdapterIndex >= adapter.known_caps().engines() || flags.MutableValue() || flags.Reserved() != 0 {
        return Err(INVALID);
    }
    let service = adapter.driver().service();
    let path = |path: String| RegistryValue::string(&path).data;
    match record.QueryType {
        Kind::D3DDDI_QUERYREGISTRY_SERVICEKEY => named(adapter, &service_key(service), record),
        Kind::D3DDDI_QUERYREGISTRY_ADAPTERKEY => named(adapter, &adapter.object.key(), record),
        _ if record.ValueType != 0 || flags.TranslatePath() => Err(INVALID),
        Kind::D3DDDI_QUERYREGISTRY_DRIVERSTOREPATH => Ok(path(store(service))),
        Kind::D3DDDI_QUERYREGISTRY_DRIVERIMAGEPATH => Ok(path(format!("{}\\{service}.sys", store(service)))),
        _ => Err(INVALID),
    }
}

/// The folder of a driver package. Chosen: the number that Windows makes of the INF is 0.
fn store(service: &str) -> String {
    format!(r"C:\Windows\System32\DriverStore\FileRepository\{service}.inf_amd64_0000000000000000")
}

/// A value below a key: its name may have keys in front of it.
fn named(adapter: &Miniport, key: &str, record: &D3DDDI_QUERYREGISTRY_INFO) -> Result<Vec<u8>, NTSTATUS> {
    let kinds = [REG_SZ, REG_EXPAND_SZ, REG_BINARY, REG_DWORD, REG_MULTI_SZ, REG_QWORD];
    let strings = [REG_SZ, REG_EXPAND_SZ, REG_MULTI_SZ];
    let translates = record.QueryFlags.TranslatePath();
    if !kinds.contains(&record.ValueType) || (translates && !strings.contains(&record.ValueType)) {
        return Err(INVALID);
    }
    let length = record.ValueName.iter().position(|unit| *unit == 0).ok_or(INVALID)?;
    let name = String::from_utf16_lossy(&record.ValueName[..length]);
    let (below, name) = name.rsplit_once('\\').map_or((None, name.as_str()), |(below, name)| (Some(below), name));
    let key = below.map_or_else(|| key.to_owned(), |below| format!("{key}\\{below}"));
    let value = adapter.kernel().registry().get(&key, name).filter(|value| value.kind == record.ValueType);
    value.map(|value| value.data).ok_or(ntstatus::STATUS_OBJECT_NAME_NOT_FOUND)
}

/// The device's name, as it was installed. Chosen: without `DriverDesc` it is empty.
pub(super) fn description(adapter: &Miniport, address: usize, size: usize) -> Outcome {
    let mut answer = D3DKMT_DRIVER_DESCRIPTION::zeroed();
    let text = registry_strings(adapter, "DriverDesc").into_iter().next().unwrap_or_default();
    let room = answer.DriverDescription.len() - 1;
    for (to, unit) in answer.DriverDescription[..room].iter_mut().zip(text.encode_utf16()) {
        *to = unit;
    }
    give(address, size, &answer)
}

/// The version of the package, four numbers of 16 bits. Chosen: `DriverVersion`, which installation takes from the INF,
/// stands for the versions of both drivers' files, which Windows asks of the driver's author to be the same.
///
/// # Errors
///
/// `STATUS_OBJECT_NAME_NOT_FOUND` where no version was installed.
pub(super) fn package_version(adapter: &Miniport) -> Result<u64, NTSTATUS> {
    let text = registry_strings(adapter, "DriverVersion").into_iter().next().unwrap_or_default();
    let numbers: Option<Vec<u16>> = text.split('.').map(|number| number.parse().ok()).collect();
    let numbers = numbers.filter(|numbers| numbers.len() == 4).ok_or(ntstatus::STATUS_OBJECT_NAME_NOT_FOUND)?;
    Ok(numbers.into_iter().fold(0, |version, number| version << 16 | u64::from(number)))
}

/// The path of one of the device's keys.
///
/// Source: DDI page D3DKMT_QUERY_PHYSICAL_ADAPTER_PNP_KEY. Chosen: too little room is STATUS_BUFFER_TOO_SMALL, and the
/// number of characters is told then, too.
pub(super) fn key(adapter: &Miniport, address: usize, size: usize) -> Outcome {
    let record: D3DKMT_QUERY_PHYSICAL_ADAPTER_PNP_KEY = taken(address, size)?;
    if record.PhysicalAdapterIndex >= adapter.known_caps().engines() {
        return Err(INVALID);
    }
    let path = match record.PnPKeyType {
        D3DKMT_PNP_KEY_TYPE::D3DKMT_PNP_KEY_HARDWARE => adapter.object.hardware_key(),
        D3DKMT_PNP_KEY_TYPE::D3DKMT_PNP_KEY_SOFTWARE => adapter.object.key(),
        _ => return Err(INVALID),
    };
    let text = RegistryValue::string(&path).data;
    // CAST: a path of a hundred characters.
    let count = (text.len() / 2) as u32;
    let (destination, room) = (record.pDest.expose_provenance(), record.pCchDest.expose_provenance());
    let most = capture::read::<u32>(room)?;
    capture::write(room, &count)?;
    if most < count {
        return Err(ntstatus::STATUS_BUFFER_TOO_SMALL);
    }
    capture::store(destination, &text)?;
    DONE
}
