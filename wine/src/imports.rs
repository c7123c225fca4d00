//! The import table of the driver under test: which services are filled in, and how often each is called.
//!
//! Every import goes through a stub of a few instructions that counts the call and goes on to Wine's routine, or to
//! [`fill`]'s. The table is changed in the loaded image alone; the file stays as it is.

#![expect(unsafe_code, reason = "reads and changes the import table of a loaded image")]

use crate::fill;
use crate::log::report;
use crate::nt;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use wdk_sys::{HANDLE, PAGE_EXECUTE_READWRITE, PAGE_READONLY, PAGE_READWRITE};
use wdk_sys::{PIMAGE_INFO, PUNICODE_STRING};

/// The file name of the driver under test.
const DRIVER: &str = r"\fencepost.sys";
/// Most imports.
const MOST: usize = 128;

/// A counting stub, in executable memory: `lock inc qword [rip - 24]`, `jmp [rip - 22]`.
#[repr(C)]
struct Stub {
    calls: AtomicU64,
    target: *const c_void,
    code: [u8; 16],
}

/// The code of a [`Stub`]; both displacements are from the instruction's end to the members before the code.
const CODE: [u8; 16] = [0xF0, 0x48, 0xFF, 0x05, 0xE8, 0xFF, 0xFF, 0xFF, 0xFF, 0x25, 0xEA, 0xFF, 0xFF, 0xFF, 0xCC, 0xCC];

/// Where the image of the driver under test is; NULL before it is loaded.
static IMAGE: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
/// How many imports it has.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A loaded image.
#[derive(Clone, Copy)]
struct Image(*const u8);

/// An import: its name, and where its address is kept.
struct Import {
    name: &'static str,
    slot: *mut *const c_void,
}

impl Image {
    /// The word at an offset.
    fn word(self, at: usize) -> usize {
        let place = self.0.wrapping_add(at).cast::<u32>();
        // SAFETY: an offset that the image's own headers name, within the image.
        let word = unsafe { place.read_unaligned() };
        // CAST: widening.
        word as usize
    }

    /// The characters at an offset, up to a zero.
    fn name(self, at: usize) -> &'static str {
        let first = self.0.wrapping_add(at);
        // SAFETY: the offset of a name that the image's import table has; names end with a zero, within the image.
        let byte = |i: usize| unsafe { first.wrapping_add(i).read() };
        let length = (0..).take_while(|i| byte(*i) != 0).count();
        // SAFETY: so many bytes were just read; the image stays loaded until the driver's DxgkDdiUnload has returned.
        let bytes = unsafe { core::slice::from_raw_parts(first, length) };
        core::str::from_utf8(bytes).unwrap_or("?")
    }

    /// Calls `f` for every import by name. Source: the PE format (import directory table, import lookup table).
    fn imports(self, mut f: impl FnMut(Import)) {
        let optional_header = self.word(0x3C) + 24;
        let mut descriptor = self.word(optional_header + 112 + 8);
        while descriptor != 0 && self.word(descriptor + 12) != 0 {
            let (mut name, mut slot) = (self.word(descriptor), self.word(descriptor + 16));
            while self.word(name) != 0 {
                let is_ordinal = self.word(name + 4) >> 31 != 0;
                // The slot that belongs to the name.
                let place = self.0.wrapping_add(slot).cast_mut().cast();
                if !is_ordinal {
                    f(Import { name: self.name(self.word(name) + 2), slot: place });
                }
                (name, slot) = (name + 8, slot + 8);
            }
            descriptor += 20;
        }
    }
}

/// `PLOAD_IMAGE_NOTIFY_ROUTINE`: Wine calls it between the load of an image and its DriverEntry.
///
/// # Safety
/// Called by Wine.
pub unsafe extern "C" fn loaded(name: PUNICODE_STRING, _process: HANDLE, info: PIMAGE_INFO) {
    // SAFETY: Wine's string, valid for the call.
    if !unsafe { nt::ends_with(name, DRIVER) } {
        return;
    }
    // SAFETY: Wine's record, valid for the call.
    let base = unsafe { (*info).ImageBase };
    let Some(stubs) = nt::allocate_pages((MOST * size_of::<Stub>()).div_ceil(nt::PAGE)) else {
        report!("failed\tno memory for the stubs of the imports");
        return;
    };
    let stubs = stubs.cast::<Stub>();
    let image = Image(base.cast());
    let mut count = 0;
    image.imports(|import| {
        if count < MOST {
            // SAFETY: the place has room for MOST stubs.
            let stub = unsafe { stubs.add(count) };
            // SAFETY: the slot of an import, which the loader has filled.
            let wines = unsafe { import.slot.read() };
            let target = fill::of(import.name).map_or(wines, |filled| filled.ours);
            // SAFETY: our memory, which nobody else knows yet.
            unsafe { stub.write(Stub { calls: AtomicU64::new(0), target, code: CODE }) };
            // SAFETY: a member of that stub.
            let code = unsafe { &raw const (*stub.as_ptr()).code };
            nt::protect(import.slot.cast(), PAGE_READWRITE);
            // SAFETY: the slot of an import, which may be written now. No code of the image runs yet.
            unsafe { import.slot.write(code.cast()) };
            nt::protect(import.slot.cast(), PAGE_READONLY);
        }
        count += 1;
    });
    const { assert!(MOST * size_of::<Stub>() == nt::PAGE, "the stubs are one page") };
    // Counts are data beside code: the page stays writable.
    nt::protect(stubs.as_ptr().cast(), PAGE_EXECUTE_READWRITE);
    if count > MOST {
        report!("failed\t{count} imports, and {MOST} have room");
    }
    COUNT.store(count.min(MOST), Ordering::Release);
    IMAGE.store(base.cast(), Ordering::Release);
    report!("loaded\tat {base:?}, {count} imports");
}

/// Reports every import: whose it is, and how often it was called. While the image is loaded.
pub fn report_services() {
    each(|name, calls| match fill::of(name) {
        Some(filled) => report!("service\t{name}\tfilled\t{calls}\t{}", filled.why),
        None => report!("service\t{name}\twine\t{calls}\t"),
    });
}

/// How often the driver has called the import so far; 0 for one that it does not have. While the image is loaded.
pub fn calls_of(name: &str) -> u64 {
    let mut found = 0;
    each(|other, calls| {
        if other == name {
            found = calls;
        }
    });
    found
}

fn each(mut f: impl FnMut(&str, u64)) {
    let base = IMAGE.load(Ordering::Acquire);
    if base.is_null() {
        return;
    }
    let mut left = COUNT.load(Ordering::Acquire);
    Image(base).imports(|import| {
        if left != 0 {
            left -= 1;
            // SAFETY: `loaded` put the address of a stub's code there.
            let code = unsafe { import.slot.read() };
            let stub = code.wrapping_byte_sub(core::mem::offset_of!(Stub, code)).cast::<Stub>();
            // SAFETY: as above: the stub that the code is a member of, which is never freed.
            let calls = unsafe { &(*stub).calls };
            f(import.name, calls.load(Ordering::Relaxed));
        }
    });
}
