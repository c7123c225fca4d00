//! Whether Windows runs code that is signed for tests.
//!
//! Microsoft documents the question for user mode (`NtQuerySystemInformation`, SystemCodeIntegrityInformation). The
//! kernel's twin of the function is in no header of the WDK and may go, so it is found by its name; a Windows without
//! it, or one that refuses the question, counts as one that runs no such code.

use core::ffi::c_void;
use core::ptr;
use kmd_core::irql::Passive;
use wdk_sys::NT_SUCCESS;
use wdk_sys::NTSTATUS;
use wdk_sys::UNICODE_STRING;
use wdk_sys::ntddk::MmGetSystemRoutineAddress;

/// `ZwQuerySystemInformation(SystemInformationClass, SystemInformation, SystemInformationLength, ReturnLength)`.
type QuerySystemInformation = unsafe extern "system" fn(i32, *mut c_void, u32, *mut u32) -> NTSTATUS;

/// The function's name.
const NAME: &[u8; 24] = b"ZwQuerySystemInformation";
/// `SystemCodeIntegrityInformation`.
const CODE_INTEGRITY: i32 = 103;
/// `CODEINTEGRITY_OPTION_TESTSIGN`.
const TESTSIGN: u32 = 2;

/// `SYSTEM_CODEINTEGRITY_INFORMATION`.
#[repr(C)]
struct Information {
    length: u32,
    options: u32,
}

/// Returns whether Windows allows code with test signatures. Source: `NtQuerySystemInformation`.
pub fn is_for_tests(_irql: &Passive) -> bool {
    let mut units = NAME.map(u16::from);
    // CAST: 48 bytes.
    let bytes = size_of_val(&units) as u16;
    let mut name = UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: units.as_mut_ptr() };
    // SAFETY: PASSIVE_LEVEL (the token); the name lives across the call.
    let routine = unsafe { MmGetSystemRoutineAddress(&raw mut name) };
    if routine.is_null() {
        return false;
    }
    // SAFETY: the kernel's function of that name, which has this type since Windows NT.
    let query = unsafe { core::mem::transmute::<*mut c_void, QuerySystemInformation>(routine) };
    // CAST: 8 bytes.
    let mut information = Information { length: size_of::<Information>() as u32, options: 0 };
    // SAFETY: PASSIVE_LEVEL (the token); a record of that class and size, which lives across the call; no length is
    // asked for.
    let status = unsafe {
        query(CODE_INTEGRITY, (&raw mut information).cast(), size_of::<Information>() as u32, ptr::null_mut())
    };
    NT_SUCCESS(status) && information.options & TESTSIGN != 0
}
