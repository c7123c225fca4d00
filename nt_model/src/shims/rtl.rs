//! Strings, version, and other small run-time routines.

use crate::records::{AnsiString, UnicodeString, status, status::NtStatus};
use crate::routines;
use crate::shim::{self, In, Out};
use crate::shims;

const POOL_TAG: u32 = u32::from_le_bytes(*b"Strg");

fn fold(unit: u16) -> u16 {
    // ASCII and Latin-1: what driver names are made of.
    match unit {
        0x61..=0x7A | 0xE0..=0xF6 | 0xF8..=0xFE => unit - 0x20,
        _ => unit,
    }
}

fn compare(left: &[u16], right: &[u16], no_case: bool) -> i32 {
    let fold = |unit: &u16| if no_case { fold(*unit) } else { *unit };
    // CAST: -1, 0 or 1.
    left.iter().map(fold).cmp(right.iter().map(fold)) as i32
}

/// Stores characters in a string's buffer, terminated where there is room. Returns how many fit.
fn store(target: In<UnicodeString>, units: &[u16]) -> usize {
    let string = *target.get();
    let room = usize::from(string.maximum_length) / 2;
    let count = units.len().min(room);
    let mut bytes: Vec<u8> = units[..count].iter().copied().flat_map(u16::to_le_bytes).collect();
    if count < room {
        bytes.extend([0, 0]);
    }
    shim::write_bytes(string.buffer.expose_provenance(), &bytes);
    // CAST: at most the maximum length, which is 16 bits.
    shim::write_bytes(target.address(), &((2 * count) as u16).to_le_bytes());
    count
}

/// A UTF-16 string in pool, described by `target`.
fn allocate(m: &crate::kernel::Machine, target: Out<UnicodeString>, units: &[u16]) -> NtStatus {
    let bytes = 2 * (units.len() + 1);
    let Some(address) = m.allocate_pool(crate::pool::POOL_FLAG_PAGED, bytes, POOL_TAG) else {
        return status::INSUFFICIENT_RESOURCES;
    };
    let data: Vec<u8> = units.iter().copied().chain([0]).flat_map(u16::to_le_bytes).collect();
    shim::write_bytes(address, &data);
    target.set(UnicodeString {
        // CAST: the callers' strings are at most 64 KiB.
        length: (bytes - 2) as u16,
        maximum_length: bytes as u16,
        buffer: core::ptr::with_exposed_provenance_mut(address),
    });
    status::SUCCESS
}

shims! {
    pub(crate) table RTL;

    fn RtlInitUnicodeString(_m, target: Out<UnicodeString>, source: In<u16>) {
        let units = if source.is_null() { 0 } else { shim::read_wide_string(source.address()).len() };
        // CAST: cut as Windows cuts it.
        let length = (2 * units).min(0xFFFC) as u16;
        let maximum_length = if source.is_null() { 0 } else { length + 2 };
        target.set(UnicodeString {
            length,
            maximum_length,
            buffer: core::ptr::with_exposed_provenance_mut(source.address()),
        });
    }

    fn RtlInitAnsiString(_m, target: Out<AnsiString>, source: In<u8>) {
        let bytes = if source.is_null() { 0 } else { shim::read_c_string(source.address()).len() };
        // CAST: cut as Windows cuts it.
        let length = bytes.min(0xFFFE) as u16;
        let maximum_length = if source.is_null() { 0 } else { length + 1 };
        target.set(AnsiString {
            length,
            maximum_length,
            buffer: core::ptr::with_exposed_provenance_mut(source.address()),
        });
    }

    fn RtlCopyUnicodeString(_m, target: In<UnicodeString>, source: In<UnicodeString>) {
        let units = source.get_opt().map(UnicodeString::units).unwrap_or_default();
        store(target, &units);
    }

    fn RtlAppendUnicodeStringToString(_m, target: In<UnicodeString>, source: In<UnicodeString>) -> NtStatus {
        let mut units = target.get().units();
        units.extend(source.get().units());
        if 2 * units.len() > usize::from(target.get().maximum_length) {
            return status::BUFFER_TOO_SMALL;
        }
        store(target, &units);
        status::SUCCESS
    }

    fn RtlAppendUnicodeToString(_m, target: In<UnicodeString>, source: In<u16>) -> NtStatus {
        let mut units = target.get().units();
        if !source.is_null() {
            units.extend(shim::read_wide_string(source.address()));
        }
        if 2 * units.len() > usize::from(target.get().maximum_length) {
            return status::BUFFER_TOO_SMALL;
        }
        store(target, &units);
        status::SUCCESS
    }

    fn RtlCompareUnicodeString(_m, left: In<UnicodeString>, right: In<UnicodeString>, no_case: u8) -> i32 {
        compare(&left.get().units(), &right.get().units(), no_case != 0)
    }

    fn RtlEqualUnicodeString(_m, left: In<UnicodeString>, right: In<UnicodeString>, no_case: u8) -> u8 {
        (compare(&left.get().units(), &right.get().units(), no_case != 0) == 0).into()
    }

    fn RtlPrefixUnicodeString(_m, left: In<UnicodeString>, right: In<UnicodeString>, no_case: u8) -> u8 {
        let (left, right) = (left.get().units(), right.get().units());
        let prefix = right.get(..left.len());
        prefix.is_some_and(|prefix| compare(&left, prefix, no_case != 0) == 0).into()
    }

    fn RtlUpcaseUnicodeChar(_m, unit: u16) -> u16 {
        fold(unit)
    }

    fn RtlAnsiStringToUnicodeString(
        m, target: In<UnicodeString>, source: In<AnsiString>, allocates: u8,
    ) -> NtStatus {
        let units: Vec<u16> = source.get().bytes().into_iter().map(u16::from).collect();
        if allocates != 0 {
            return allocate(m, shim::out_from_address(target.address()), &units);
        }
        let fits = 2 * units.len() <= usize::from(target.get().maximum_length);
        store(target, &units);
        if fits { status::SUCCESS } else { status::BUFFER_OVERFLOW }
    }

    fn RtlUnicodeStringToAnsiString(
        m, target: In<AnsiString>, source: In<UnicodeString>, allocates: u8,
    ) -> NtStatus {
        let narrow = |unit: u16| u8::try_from(unit).unwrap_or(b'?');
        let mut bytes: Vec<u8> = source.get().units().into_iter().map(narrow).collect();
        let length = bytes.len();
        bytes.push(0);
        let mut string = *target.get();
        if allocates != 0 {
            let Some(address) = m.allocate_pool(crate::pool::POOL_FLAG_PAGED, bytes.len(), POOL_TAG) else {
                return status::INSUFFICIENT_RESOURCES;
            };
            string.buffer = core::ptr::with_exposed_provenance_mut(address);
            // CAST: a UNICODE_STRING has at most 32,767 characters.
            string.maximum_length = bytes.len() as u16;
        } else if bytes.len() > usize::from(string.maximum_length) {
            return status::BUFFER_OVERFLOW;
        }
        shim::write_bytes(string.buffer.expose_provenance(), &bytes);
        // CAST: as above.
        string.length = length as u16;
        shim::out_from_address(target.address()).set(string);
        status::SUCCESS
    }

    fn RtlFreeUnicodeString(m, string: In<UnicodeString>) {
        let buffer = string.get().buffer.expose_provenance();
        if buffer != 0 {
            m.free_pool(buffer, Some(POOL_TAG));
        }
        let empty = UnicodeString { length: 0, maximum_length: 0, buffer: core::ptr::null_mut() };
        shim::out_from_address(string.address()).set(empty);
    }

    fn RtlFreeAnsiString(m, string: In<AnsiString>) {
        let buffer = string.get().buffer.expose_provenance();
        if buffer != 0 {
            m.free_pool(buffer, Some(POOL_TAG));
        }
        let empty = AnsiString { length: 0, maximum_length: 0, buffer: core::ptr::null_mut() };
        shim::out_from_address(string.address()).set(empty);
    }

    fn RtlIntegerToUnicodeString(m, value: u32, base: u32, target: In<UnicodeString>) -> NtStatus {
        let _service = m.service(&routines::RTL_INTEGER_TO_UNICODE_STRING, [value.into(), base.into()]);
        let text = match base {
            0 | 10 => value.to_string(),
            2 => format!("{value:b}"),
            8 => format!("{value:o}"),
            16 => format!("{value:X}"),
            _ => return status::INVALID_PARAMETER,
        };
        let units: Vec<u16> = text.encode_utf16().collect();
        if 2 * units.len() > usize::from(target.get().maximum_length) {
            return status::BUFFER_OVERFLOW;
        }
        store(target, &units);
        status::SUCCESS
    }

    // RTL_OSVERSIONINFOW: size, major, minor, build, platform, service pack text. Windows 11 24H2.
    fn RtlGetVersion(m, information: In<u32>) -> NtStatus {
        let _service = m.service(&routines::RTL_GET_VERSION, [information.address() as u64]);
        let words: [u32; 4] = [10, 0, 26100, 2];
        let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        shim::write_bytes(information.address() + 4, &bytes);
        status::SUCCESS
    }

    fn PsGetVersion(_m, major: Out<u32>, minor: Out<u32>, build: Out<u32>, _text: usize) -> u8 {
        major.set_opt(10);
        minor.set_opt(0);
        build.set_opt(26100);
        0
    }

    fn RtlIsNtDdiVersionAvailable(_m, version: u32) -> u8 {
        // NTDDI_WIN11_GE, 24H2.
        (version <= 0x0A00_0010).into()
    }

    fn RtlRandomEx(_m, seed: In<std::sync::atomic::AtomicU32>) -> u32 {
        let next = |x: u32| x.wrapping_mul(0x7FFF_FFED).wrapping_add(0x7FFF_FFC3) % 0x7FFF_FFFF;
        let old = seed.get().fetch_update(
            std::sync::atomic::Ordering::Relaxed,
            std::sync::atomic::Ordering::Relaxed,
            |x| Some(next(x)),
        );
        next(old.unwrap_or(0))
    }

    // CM_PARTIAL_RESOURCE_DESCRIPTOR: Type, ShareDisposition, Flags, Start at 4, Length at 12. Memory beyond 4 GiB has
    // its length in units of 2^8, 2^16 or 2^32 bytes, as its flags say.
    fn RtlCmDecodeMemIoResource(_m, descriptor: usize, start: Out<u64>) -> u64 {
        const PORT: u8 = 1;
        const MEMORY: u8 = 3;
        const LARGE_MEMORY: u8 = 7;
        let bytes = shim::read_bytes(descriptor, 20);
        let number = |at: usize, size: usize| shim::number(&bytes[at..at + size]);
        let shift = match (bytes[0], number(2, 2) & 0xE00) {
            (PORT | MEMORY, _) => 0,
            (LARGE_MEMORY, 0x200) => 8,
            (LARGE_MEMORY, 0x400) => 16,
            (LARGE_MEMORY, 0x800) => 32,
            _ => return 0,
        };
        start.set_opt(number(4, 8));
        number(12, 4) << shift
    }

    fn RtlLookupFunctionEntry(_m, _pc: usize, _base: usize, _history: usize) -> usize {
        0
    }

    fn RtlCaptureStackBackTrace(_m, _skip: u32, _count: u32, _frames: usize, _hash: usize) -> u16 {
        0
    }
}
