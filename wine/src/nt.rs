//! What of the kernel the stand-in uses itself, as safe calls. All of it is Wine's own.

#![expect(unsafe_code, reason = "calls the kernel's routines")]

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr;
use core::ptr::NonNull;
use wdk_sys::_EVENT_TYPE::NotificationEvent;
use wdk_sys::_KWAIT_REASON::Executive;
use wdk_sys::_MODE::KernelMode;
use wdk_sys::ntddk::{
    IofCompleteRequest, KeClearEvent, KeDelayExecutionThread, KeInitializeEvent, KeSetEvent, KeWaitForSingleObject,
    MmGetSystemRoutineAddress, PsCreateSystemThread, PsTerminateSystemThread, ZwAllocateVirtualMemory, ZwClose,
    ZwFreeVirtualMemory,
};
use wdk_sys::{
    IO_NO_INCREMENT, KEVENT, LARGE_INTEGER, MEM_COMMIT, MEM_RELEASE, MEM_RESERVE, NT_SUCCESS, NTSTATUS, PAGE_READWRITE,
    PIRP, STATUS_SUCCESS, THREAD_ALL_ACCESS, UNICODE_STRING,
};

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// The pseudo handle of the calling process, which under Wine is the one that all drivers of a group live in.
const THIS_PROCESS: *mut c_void = ptr::without_provenance_mut(usize::MAX);

/// The characters of `text` in `units`, which has room for them, as a counted string that is valid as long as `units`.
pub fn text(units: &mut [u16], text: &str) -> UNICODE_STRING {
    let mut length = 0;
    for (to, from) in units.iter_mut().zip(text.encode_utf16()) {
        *to = from;
        length += 2;
    }
    UNICODE_STRING { Length: length, MaximumLength: length, Buffer: units.as_mut_ptr() }
}

/// Returns whether the counted string ends with `end`, whatever the case of its letters is.
///
/// # Safety
/// `string` is NULL, or points at a string whose buffer is valid for the call.
pub unsafe fn ends_with(string: *const UNICODE_STRING, end: &str) -> bool {
    // SAFETY: the caller's promise.
    let Some(string) = (unsafe { string.as_ref() }) else { return false };
    if string.Buffer.is_null() {
        return false;
    }
    // SAFETY: `Length` bytes of the buffer are characters (the caller's promise).
    let units = unsafe { core::slice::from_raw_parts(string.Buffer, usize::from(string.Length) / 2) };
    let lower = |unit: u16| u8::try_from(unit).map_or(0, |byte| byte.to_ascii_lowercase());
    let Some(at) = units.len().checked_sub(end.len()) else { return false };
    units[at..].iter().map(|unit| lower(*unit)).eq(end.bytes().map(|byte| byte.to_ascii_lowercase()))
}

/// The address of an export of Wine's ntoskrnl that no header of the WDK declares; `None` where there is none.
pub fn routine(name: &str) -> Option<NonNull<c_void>> {
    let mut units = [0; 64];
    let mut name = text(&mut units, name);
    // SAFETY: the name lives across the call; under Wine there is no IRQL.
    NonNull::new(unsafe { MmGetSystemRoutineAddress(&raw mut name) })
}

/// Zeroed pages at addresses of their own.
pub fn allocate_pages(count: usize) -> Option<NonNull<u8>> {
    let (mut base, mut bytes) = (ptr::null_mut(), (count * PAGE) as _);
    let kind = MEM_COMMIT | MEM_RESERVE;
    // SAFETY: the place and the size are on this stack; the process is the caller's own.
    let status =
        unsafe { ZwAllocateVirtualMemory(THIS_PROCESS, &raw mut base, 0, &raw mut bytes, kind, PAGE_READWRITE) };
    if NT_SUCCESS(status) { NonNull::new(base.cast()) } else { None }
}

/// Gives back what [`allocate_pages`] gave.
///
/// # Safety
/// `base` came from there, is given back once, and is not used any more.
pub unsafe fn free_pages(base: *mut c_void) {
    let (mut base, mut bytes) = (base, 0);
    // SAFETY: the caller's promise; size 0 frees the whole of it.
    let _status = unsafe { ZwFreeVirtualMemory(THIS_PROCESS, &raw mut base, &raw mut bytes, MEM_RELEASE) };
}

/// Changes what may be done with the page of `at`, `rights` being a `PAGE_` constant. Returns whether it could.
pub fn protect(at: *mut c_void, rights: u32) -> bool {
    type Protect = unsafe extern "system" fn(*mut c_void, *mut *mut c_void, *mut usize, u32, *mut u32) -> NTSTATUS;
    let Some(found) = routine("ZwProtectVirtualMemory") else { return false };
    // SAFETY: the routine of that name, which has this type in every Windows.
    let protect = unsafe { core::mem::transmute::<*mut c_void, Protect>(found.as_ptr()) };
    let (mut base, mut bytes, mut before) = (at, 1, 0);
    // SAFETY: the places are on this stack; a page of an image or of ours, whose users are the caller's concern.
    let status = unsafe { protect(THIS_PROCESS, &raw mut base, &raw mut bytes, rights, &raw mut before) };
    NT_SUCCESS(status)
}

/// Blocks the calling thread for about a millisecond.
pub fn pause() {
    let mut interval = LARGE_INTEGER { QuadPart: -10_000 };
    // SAFETY: the interval is on this stack.
    let _status = unsafe { KeDelayExecutionThread(KernelMode as i8, 0, &raw mut interval) };
}

/// Waits until `condition` holds, for `milliseconds` at most by its own count of pauses. Returns whether it held.
pub fn until(milliseconds: u32, mut condition: impl FnMut() -> bool) -> bool {
    for _ in 0..milliseconds {
        if condition() {
            return true;
        }
        pause();
    }
    condition()
}

/// A notification event, in a static: it does not move.
pub struct Event(UnsafeCell<MaybeUninit<KEVENT>>);

// SAFETY: a dispatcher object is made to be used by every thread; the kernel synchronizes.
unsafe impl Sync for Event {}

impl Event {
    /// One that is not to be used before [`reset`](Self::reset).
    pub const fn new() -> Self {
        Self(UnsafeCell::new(MaybeUninit::zeroed()))
    }

    fn as_ptr(&self) -> *mut KEVENT {
        self.0.get().cast()
    }

    /// Makes it an event that is not set. Nobody waits for it.
    pub fn reset(&self) {
        // SAFETY: memory of the right size that does not move.
        unsafe { KeInitializeEvent(self.as_ptr(), NotificationEvent, 0) };
    }

    /// Sets it.
    pub fn set(&self) {
        // SAFETY: an initialised event.
        let _before = unsafe { KeSetEvent(self.as_ptr(), 0, 0) };
    }

    /// Waits for `milliseconds` at most, and clears it. Returns whether it was set.
    pub fn wait(&self, milliseconds: i64) -> bool {
        let mut due = LARGE_INTEGER { QuadPart: -milliseconds * 10_000 };
        let event = self.as_ptr();
        // SAFETY: an initialised event; the time is on this stack.
        let status = unsafe { KeWaitForSingleObject(event.cast(), Executive, KernelMode as i8, 0, &raw mut due) };
        // SAFETY: as above.
        unsafe { KeClearEvent(event) };
        status == STATUS_SUCCESS
    }
}

/// Starts a system thread. Returns whether it could.
pub fn spawn(body: fn()) -> bool {
    let mut handle = ptr::null_mut();
    // SAFETY: `run` takes a pointer to a function of ours, which is part of the image.
    let status = unsafe {
        PsCreateSystemThread(
            &raw mut handle,
            THREAD_ALL_ACCESS,
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null_mut(),
            Some(run),
            body as *mut c_void,
        )
    };
    if !NT_SUCCESS(status) {
        return false;
    }
    // SAFETY: our handle, closed once.
    let _status = unsafe { ZwClose(handle) };
    true
}

/// A thread.
///
/// # Safety
/// `body` is a `fn()`.
unsafe extern "C" fn run(body: *mut c_void) {
    // SAFETY: `spawn` made it of such a function.
    let body = unsafe { core::mem::transmute::<*mut c_void, fn()>(body) };
    body();
    // SAFETY: a system thread ends itself, holding nothing.
    let _status = unsafe { PsTerminateSystemThread(STATUS_SUCCESS) };
}

/// Completes a request with `status`, and returns that.
///
/// # Safety
/// `irp` is the caller's to complete, and not used any more.
pub unsafe fn complete(irp: PIRP, status: NTSTATUS) -> NTSTATUS {
    // SAFETY: the caller's promise; nothing is read.
    let place = unsafe { &raw mut (*irp).IoStatus.__bindgen_anon_1.Status };
    // SAFETY: as above.
    unsafe { place.write(status) };
    // SAFETY: the caller's promise. CAST: 0.
    unsafe { IofCompleteRequest(irp, IO_NO_INCREMENT as i8) };
    status
}
