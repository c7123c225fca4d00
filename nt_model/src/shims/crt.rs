//! The C library functions that ntoskrnl.exe exports, and their Rtl names.
//!
//! These run without a service record: no IRQL limit, no yield point, just the work. A fault in one of them is still
//! the driver's: it is called from driver code.
#![expect(unsafe_code, reason = "C string functions work on raw memory that driver code vouches for")]

use core::ffi::c_void;

use crate::cpu;
use crate::shim::{CodeAddress, ShimEntry};

macro_rules! crt {
    ($($name:literal = $function:ident;)*) => {
        /// Thunks that leave the caller's frame where the trap handler finds it.
        mod thunks {
            $(
                #[unsafe(naked)]
                pub(super) unsafe extern "win64" fn $function() {
                    core::arch::naked_asm!(
                        "mov rax, qword ptr [rip + __nt_model_shim_frame@GOTTPOFF]",
                        "mov qword ptr fs:[rax], rsp",
                        "jmp {inner}",
                        inner = sym super::$function,
                    )
                }
            )*
        }

        pub(crate) static CRT: &[ShimEntry] =
            &[$(ShimEntry { name: $name, address: CodeAddress(thunks::$function as *const ()) }),*];
    };
}

crt! {
    "memcpy" = copy;
    "memmove" = move_memory;
    "memset" = set;
    "RtlFillMemory" = fill;
    "RtlZeroMemory" = zero;
    "memcmp" = compare;
    "RtlCompareMemory" = equal_bytes;
    "strlen" = string_length;
    "wcslen" = wide_length;
    "strcmp" = string_compare;
    "strncmp" = string_compare_n;
    "wcscmp" = wide_compare;
    "_wcsicmp" = wide_compare_no_case;
    "wcsncpy" = wide_copy_n;
    "strncpy" = string_copy_n;
    "__C_specific_handler" = no_exception_handler;
    "_purecall" = pure_call;
}

/// Other names of the same functions.
pub(crate) static CRT_ALIASES: &[ShimEntry] = &[
    ShimEntry { name: "RtlCopyMemory", address: CodeAddress(thunks::copy as *const ()) },
    ShimEntry { name: "RtlMoveMemory", address: CodeAddress(thunks::move_memory as *const ()) },
];

/// Keeps the faulting address attributed to the driver that called.
fn enter() -> usize {
    cpu::with(|cpu| cpu.enter_shim())
}

unsafe extern "win64" fn copy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    // SAFETY: the driver vouches for both ranges, as it does to memcpy; overlap is the driver's bug, and harmless here.
    unsafe { libc::memmove(to.cast(), from.cast::<c_void>(), bytes) };
    to
}

unsafe extern "win64" fn move_memory(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    // SAFETY: the driver vouches for both ranges.
    unsafe { libc::memmove(to.cast(), from.cast::<c_void>(), bytes) };
    to
}

unsafe extern "win64" fn set(to: *mut u8, value: i32, bytes: usize) -> *mut u8 {
    // SAFETY: the driver vouches for the range.
    unsafe { libc::memset(to.cast(), value, bytes) };
    to
}

unsafe extern "win64" fn fill(to: *mut u8, bytes: usize, value: u8) {
    // SAFETY: the driver vouches for the range.
    unsafe { to.write_bytes(value, bytes) };
}

unsafe extern "win64" fn zero(to: *mut u8, bytes: usize) {
    // SAFETY: the driver vouches for the range.
    unsafe { to.write_bytes(0, bytes) };
}

unsafe extern "win64" fn compare(left: *const u8, right: *const u8, bytes: usize) -> i32 {
    // SAFETY: the driver vouches for both ranges.
    unsafe { libc::memcmp(left.cast(), right.cast(), bytes) }
}

/// How many bytes at the beginning agree.
unsafe extern "win64" fn equal_bytes(left: *const u8, right: *const u8, bytes: usize) -> usize {
    // SAFETY: the driver vouches for both ranges.
    let left = unsafe { core::slice::from_raw_parts(left, bytes) };
    // SAFETY: as above.
    let right = unsafe { core::slice::from_raw_parts(right, bytes) };
    left.iter().zip(right).take_while(|(a, b)| a == b).count()
}

unsafe extern "win64" fn string_length(text: *const u8) -> usize {
    // SAFETY: the driver vouches for a terminated string.
    unsafe { libc::strlen(text.cast()) }
}

unsafe extern "win64" fn string_compare(left: *const u8, right: *const u8) -> i32 {
    // SAFETY: the driver vouches for two terminated strings.
    unsafe { libc::strcmp(left.cast(), right.cast()) }
}

unsafe extern "win64" fn string_compare_n(left: *const u8, right: *const u8, count: usize) -> i32 {
    // SAFETY: the driver vouches for two strings, terminated or of `count` bytes.
    unsafe { libc::strncmp(left.cast(), right.cast(), count) }
}

unsafe extern "win64" fn string_copy_n(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    // SAFETY: the driver vouches for `count` bytes at `to` and a string at `from`.
    unsafe { libc::strncpy(to.cast(), from.cast(), count) };
    to
}

/// The units of a terminated UTF-16 string.
///
/// # Safety
/// `text` must be terminated.
unsafe fn units(text: *const u16) -> impl Iterator<Item = u16> {
    (0..)
        .map(move |at| {
            let unit = text.wrapping_add(at);
            // SAFETY: the caller's promise: units up to the terminator are readable, and no further one is read.
            unsafe { unit.read_unaligned() }
        })
        .take_while(|unit| *unit != 0)
}

unsafe extern "win64" fn wide_length(text: *const u16) -> usize {
    // SAFETY: the driver vouches for a terminated string.
    unsafe { units(text) }.count()
}

unsafe extern "win64" fn wide_compare(left: *const u16, right: *const u16) -> i32 {
    // SAFETY: the driver vouches for two terminated strings.
    let left = unsafe { units(left) };
    // SAFETY: as above.
    let right = unsafe { units(right) };
    // CAST: -1, 0 or 1.
    left.cmp(right) as i32
}

unsafe extern "win64" fn wide_compare_no_case(left: *const u16, right: *const u16) -> i32 {
    let lower = |unit: u16| u8::try_from(unit).map_or(unit, |byte| byte.to_ascii_lowercase().into());
    // SAFETY: the driver vouches for two terminated strings.
    let left = unsafe { units(left) };
    // SAFETY: as above.
    let right = unsafe { units(right) };
    // CAST: -1, 0 or 1.
    left.map(lower).cmp(right.map(lower)) as i32
}

unsafe extern "win64" fn wide_copy_n(to: *mut u16, from: *const u16, count: usize) -> *mut u16 {
    // SAFETY: the driver vouches for a terminated string, or one of `count` units.
    let text: Vec<u16> = unsafe { units(from) }.take(count).collect();
    for at in 0..count {
        let unit = text.get(at).copied().unwrap_or(0);
        let place = to.wrapping_add(at);
        // SAFETY: the driver vouches for `count` units at `to`.
        unsafe { place.write_unaligned(unit) };
    }
    to
}

/// Structured exceptions are not modelled; nothing raises one, so nobody calls this.
unsafe extern "win64" fn no_exception_handler() -> i32 {
    // ExceptionContinueSearch.
    1
}

unsafe extern "win64" fn pure_call() {
    let outer = enter();
    crate::kernel::Machine::with_current(|machine| {
        if let Some(machine) = machine {
            machine.fatal(&crate::rules_nt::NT_EXCEPTION, "a pure virtual function was called");
        }
    });
    cpu::with(|cpu| cpu.leave_shim(outer));
}
