//! Imports that the model has no service for.
#![expect(unsafe_code, reason = "the stubs' common handler is a naked function")]

use core::arch::naked_asm;
use std::fmt;

use super::link::{Import, Symbol};
use super::pe::ImageKind;
use crate::cpu;
use crate::routines;
use crate::rules::Details;
use crate::rules_nt::NT_IMPORT;

/// Bytes of code per stub.
pub(super) const STUB_BYTES: usize = 32;

/// A missing import.
#[derive(Debug)]
pub(crate) struct MissingImport {
    dll: String,
    symbol: Symbol,
}

impl MissingImport {
    pub(super) fn new(import: &Import) -> Self {
        Self { dll: import.dll.clone(), symbol: import.symbol.clone() }
    }
}

impl fmt::Display for MissingImport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}!{}", self.dll, self.symbol)
    }
}

/// Functions of the C library that ntoskrnl.exe exports beside its documented routines.
const KERNEL_C_LIBRARY: &[&str] = &[
    "__C_specific_handler",
    "__chkstk",
    "_fltused",
    "_itoa",
    "_itow",
    "_purecall",
    "_snprintf",
    "_snprintf_s",
    "_snwprintf",
    "_snwprintf_s",
    "_stricmp",
    "_strlwr",
    "_strnicmp",
    "_strnset",
    "_strrev",
    "_strset",
    "_strupr",
    "_swprintf",
    "_ultow",
    "_vsnprintf",
    "_vsnprintf_s",
    "_vsnwprintf",
    "_vsnwprintf_s",
    "_wcsicmp",
    "_wcslwr",
    "_wcsnicmp",
    "_wcsnset",
    "_wcsrev",
    "_wcsupr",
    "_wtoi",
    "_wtol",
    "atoi",
    "atol",
    "bsearch",
    "isdigit",
    "islower",
    "isprint",
    "isspace",
    "isupper",
    "isxdigit",
    "iswctype",
    "longjmp",
    "mbstowcs",
    "memchr",
    "memcmp",
    "memcpy",
    "memcpy_s",
    "memmove",
    "memmove_s",
    "memset",
    "qsort",
    "rand",
    "setjmp",
    "sprintf",
    "sprintf_s",
    "srand",
    "strcat",
    "strcat_s",
    "strchr",
    "strcmp",
    "strcpy",
    "strcpy_s",
    "strlen",
    "strncat",
    "strncat_s",
    "strncmp",
    "strncpy",
    "strncpy_s",
    "strnlen",
    "strrchr",
    "strspn",
    "strstr",
    "strtok_s",
    "swprintf",
    "swprintf_s",
    "tolower",
    "toupper",
    "towlower",
    "towupper",
    "vsprintf",
    "vsprintf_s",
    "vswprintf_s",
    "wcscat",
    "wcscat_s",
    "wcschr",
    "wcscmp",
    "wcscpy",
    "wcscpy_s",
    "wcscspn",
    "wcslen",
    "wcsncat",
    "wcsncmp",
    "wcsncpy",
    "wcsncpy_s",
    "wcsnlen",
    "wcsrchr",
    "wcsspn",
    "wcsstr",
    "wcstombs",
    "wcstoul",
];

/// Whether Windows is known to have what is imported.
pub(super) fn is_known(kind: ImageKind, import: &Import) -> bool {
    let Symbol::Name(name) = &import.symbol else { return false };
    match kind {
        ImageKind::Kernel => {
            let kernel = matches!(import.dll.as_str(), "ntoskrnl.exe" | "hal.dll" | "ntoskrnl.lib" | "ntkrnlpa.exe");
            kernel && (routines::is_known_export(name) || KERNEL_C_LIBRARY.contains(&name.as_str()))
        }
        // No list of user-mode exports is kept: what a DLL of the system exports is taken to exist.
        ImageKind::User => import.dll.ends_with(".dll"),
    }
}

/// The code of a stub: `mov r10, record; mov r11, handler; jmp r11`.
pub(super) fn stub(record: &MissingImport) -> [u8; STUB_BYTES] {
    let record = core::ptr::from_ref(record).expose_provenance() as u64;
    let handler = (missing_import as *const ()).addr() as u64;
    let mut code = [0xCC; STUB_BYTES];
    code[..2].copy_from_slice(&[0x49, 0xBA]);
    code[2..10].copy_from_slice(&record.to_le_bytes());
    code[10..12].copy_from_slice(&[0x49, 0xBB]);
    code[12..20].copy_from_slice(&handler.to_le_bytes());
    code[20..23].copy_from_slice(&[0x41, 0xFF, 0xE3]);
    code
}

#[unsafe(naked)]
unsafe extern "win64" fn missing_import() {
    naked_asm!(
        "mov rax, qword ptr [rip + __nt_model_shim_frame@GOTTPOFF]",
        "mov qword ptr fs:[rax], rsp",
        "mov rcx, r10",
        "jmp {inner}",
        inner = sym report,
    )
}

unsafe extern "win64" fn report(record: *const MissingImport) -> usize {
    let outer = cpu::with(|cpu| cpu.enter_shim());
    // SAFETY: the stub passes the address of the record that its image owns; the image is loaded, its code runs.
    let record = unsafe { &*record };
    // User-mode code: its process crashes.
    if cpu::with(|cpu| cpu.jump.get().is_null() && !cpu.guard.get().is_null()) {
        eprintln!("nt_model: {record} was called; the model lacks it");
        crate::trap::leave_guarded(0);
    }
    cpu::with(|cpu| match cpu.machine() {
        Some(machine) => {
            let caller = cpu::locate(cpu, crate::arch::return_address(cpu.shim_frame()));
            machine.fatal(&NT_IMPORT, Details::new(format!("{record} was called from {caller}; the model lacks it")))
        }
        None => eprintln!("nt_model: {record} was called outside any kernel"),
    });
    cpu::with(|cpu| cpu.leave_shim(outer));
    // STATUS_NOT_IMPLEMENTED.
    0xC000_0002
}
