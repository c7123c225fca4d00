//! The report: a file of lines, which `./x wine` reads. A line is a kind, a tab, and what the kind says.

#![expect(unsafe_code, reason = "writes a file by the kernel's routines")]

use crate::nt::text;
use core::fmt::{self, Write};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use wdk_sys::ntddk::{ZwCreateFile, ZwWriteFile};
use wdk_sys::{
    FILE_APPEND_DATA, FILE_ATTRIBUTE_NORMAL, FILE_NON_DIRECTORY_FILE, FILE_OPEN_IF, FILE_SHARE_READ, FILE_SHARE_WRITE,
    FILE_SYNCHRONOUS_IO_NONALERT, IO_STATUS_BLOCK, NT_SUCCESS, OBJ_CASE_INSENSITIVE, OBJECT_ATTRIBUTES, SYNCHRONIZE,
};

/// Where the report goes; the folder is made by who starts the service.
const FILE: &str = r"\??\C:\fencepost\report.txt";
/// Bytes of a line; what is longer is cut.
const LINE: usize = 512;

/// The open file; NULL before [`open`].
static HANDLE: AtomicPtr<core::ffi::c_void> = AtomicPtr::new(ptr::null_mut());

/// A line that is being written.
struct Line {
    bytes: [u8; LINE],
    used: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // One place is left for the line's end.
        let room = LINE - 1 - self.used;
        let part = text.as_bytes().get(..room).unwrap_or(text.as_bytes());
        self.bytes[self.used..self.used + part.len()].copy_from_slice(part);
        self.used += part.len();
        Ok(())
    }
}

/// Opens the report, or what an earlier service has made of it. `PASSIVE_LEVEL`. Returns whether it could.
pub fn open() -> bool {
    if !HANDLE.load(Ordering::Acquire).is_null() {
        return true;
    }
    let mut units = [0; FILE.len()];
    let mut name = text(&mut units, FILE);
    // CAST: 48 bytes.
    let mut attributes = OBJECT_ATTRIBUTES {
        Length: size_of::<OBJECT_ATTRIBUTES>() as u32,
        ObjectName: &raw mut name,
        Attributes: OBJ_CASE_INSENSITIVE,
        ..OBJECT_ATTRIBUTES::default()
    };
    let mut handle = ptr::null_mut();
    let mut block = IO_STATUS_BLOCK::default();
    // SAFETY: PASSIVE_LEVEL (the caller's promise); everything that is pointed at lives across the call.
    let status = unsafe {
        ZwCreateFile(
            &raw mut handle,
            FILE_APPEND_DATA | SYNCHRONIZE,
            &raw mut attributes,
            &raw mut block,
            ptr::null_mut(),
            FILE_ATTRIBUTE_NORMAL,
            FILE_SHARE_READ | FILE_SHARE_WRITE,
            FILE_OPEN_IF,
            FILE_SYNCHRONOUS_IO_NONALERT | FILE_NON_DIRECTORY_FILE,
            ptr::null_mut(),
            0,
        )
    };
    if NT_SUCCESS(status) {
        HANDLE.store(handle, Ordering::Release);
    }
    NT_SUCCESS(status)
}

/// Writes a line. `PASSIVE_LEVEL`; lines of several threads do not mix.
pub fn line(what: fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; LINE], used: 0 };
    let _written = line.write_fmt(what);
    line.bytes[line.used] = b'\n';
    let mut block = IO_STATUS_BLOCK::default();
    // CAST: at most 512.
    // SAFETY: an open file, or NULL, which is refused; the bytes live across the call, which waits.
    let _status = unsafe {
        ZwWriteFile(
            HANDLE.load(Ordering::Acquire),
            ptr::null_mut(),
            None,
            ptr::null_mut(),
            &raw mut block,
            line.bytes.as_mut_ptr().cast(),
            (line.used + 1) as u32,
            ptr::null_mut(),
            ptr::null_mut(),
        )
    };
}

/// Writes a line of the report.
macro_rules! report {
    ($($what:tt)*) => { $crate::log::line(format_args!($($what)*)) };
}
pub(crate) use report;
