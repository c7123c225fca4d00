//! Numbers in the registry.

use core::mem::size_of_val;
use core::ptr;
use kmd_core::irql::Passive;
use kmd_core::platform::SettingsKey;
use wdk_sys::_KEY_VALUE_INFORMATION_CLASS::KeyValuePartialInformation;
use wdk_sys::HANDLE;
use wdk_sys::KEY_QUERY_VALUE;
use wdk_sys::KEY_SET_VALUE;
use wdk_sys::NT_SUCCESS;
use wdk_sys::OBJ_CASE_INSENSITIVE;
use wdk_sys::OBJ_KERNEL_HANDLE;
use wdk_sys::OBJECT_ATTRIBUTES;
use wdk_sys::PDEVICE_OBJECT;
use wdk_sys::PLUGPLAY_REGKEY_DRIVER;
use wdk_sys::REG_DWORD;
use wdk_sys::REG_QWORD;
use wdk_sys::UNICODE_STRING;
use wdk_sys::ntddk::IoOpenDeviceRegistryKey;
use wdk_sys::ntddk::ZwClose;
use wdk_sys::ntddk::ZwOpenKey;
use wdk_sys::ntddk::ZwQueryValueKey;
use wdk_sys::ntddk::ZwSetValueKey;

/// Longest name of a value.
const LONGEST_NAME: usize = 64;

/// `KEY_VALUE_PARTIAL_INFORMATION` with room for a QWORD.
#[repr(C, align(8))]
#[derive(Default)]
struct Information {
    title_index: u32,
    kind: u32,
    length: u32,
    data: [u8; 8],
}

/// A DWORD or QWORD; `None` when it is absent or of another type.
pub fn number(_irql: &Passive, key: SettingsKey<'_>, name: &str) -> Option<u64> {
    let key = match key {
        SettingsKey::Path(path) => Key::open(path, KEY_QUERY_VALUE),
        SettingsKey::Device(device) => Key::of_device(device.cast()),
    }?;
    let name = Name::of(name);
    let mut name = name.string()?;
    let mut information = Information::default();
    let mut written = 0;
    // CAST: 24 bytes.
    // SAFETY: PASSIVE_LEVEL (the token); an open key, a name and a buffer that live across the call.
    let status = unsafe {
        ZwQueryValueKey(
            key.0,
            &raw mut name,
            KeyValuePartialInformation,
            (&raw mut information).cast(),
            size_of_val(&information) as u32,
            &raw mut written,
        )
    };
    if !NT_SUCCESS(status) {
        return None;
    }
    let [a, b, c, d, ..] = information.data;
    match (information.kind, information.length) {
        (REG_DWORD, 4) => Some(u32::from_le_bytes([a, b, c, d]).into()),
        (REG_QWORD, 8) => Some(u64::from_le_bytes(information.data)),
        _ => None,
    }
}

/// Sets a QWORD. Returns whether it could.
pub fn set_number(_irql: &Passive, path: &[u16], name: &str, value: u64) -> bool {
    let name = Name::of(name);
    let (Some(key), Some(mut name)) = (Key::open(path, KEY_SET_VALUE), name.string()) else { return false };
    let mut data = value.to_le_bytes();
    // CAST: 8 bytes.
    // SAFETY: PASSIVE_LEVEL (the token); an open key, a name and a buffer that live across the call.
    let status = unsafe {
        ZwSetValueKey(key.0, &raw mut name, 0, REG_QWORD, data.as_mut_ptr().cast(), size_of_val(&data) as u32)
    };
    NT_SUCCESS(status)
}

/// The name of a value.
struct Name {
    units: [u16; LONGEST_NAME],
    length: usize,
}

impl Name {
    /// `text`, cut off behind [`LONGEST_NAME`] units.
    fn of(text: &str) -> Self {
        let mut name = Self { units: [0; LONGEST_NAME], length: 0 };
        for (to, from) in name.units.iter_mut().zip(text.encode_utf16()) {
            *to = from;
            name.length += 1;
        }
        name
    }

    fn string(&self) -> Option<UNICODE_STRING> {
        unicode_string(self.units.get(..self.length)?)
    }
}

struct Key(HANDLE);

impl Key {
    fn open(path: &[u16], access: u32) -> Option<Self> {
        let mut path = unicode_string(path)?;
        // CAST: 48 bytes.
        let mut attributes = OBJECT_ATTRIBUTES {
            Length: size_of::<OBJECT_ATTRIBUTES>() as u32,
            ObjectName: &raw mut path,
            Attributes: OBJ_KERNEL_HANDLE | OBJ_CASE_INSENSITIVE,
            ..OBJECT_ATTRIBUTES::default()
        };
        let mut key: HANDLE = ptr::null_mut();
        // SAFETY: PASSIVE_LEVEL (the caller's token); everything that is pointed at lives across the call.
        let status = unsafe { ZwOpenKey(&raw mut key, access, &raw mut attributes) };
        // Lazily: a key that is not open must not be dropped.
        NT_SUCCESS(status).then(|| Self(key))
    }

    /// The software key of a device.
    fn of_device(device: PDEVICE_OBJECT) -> Option<Self> {
        let mut key: HANDLE = ptr::null_mut();
        // SAFETY: PASSIVE_LEVEL (the caller's token); the physical device object that AddDevice got, during that call.
        let status = unsafe { IoOpenDeviceRegistryKey(device, PLUGPLAY_REGKEY_DRIVER, KEY_QUERY_VALUE, &raw mut key) };
        // Lazily: a key that is not open must not be dropped.
        NT_SUCCESS(status).then(|| Self(key))
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: our handle, closed once.
        let _status = unsafe { ZwClose(self.0) };
    }
}

/// A counted string; `None` when it is longer than such a string can be.
fn unicode_string(text: &[u16]) -> Option<UNICODE_STRING> {
    let bytes = u16::try_from(size_of_val(text)).ok()?;
    // Nothing writes through the buffer of a name that is passed in.
    Some(UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: text.as_ptr().cast_mut() })
}
