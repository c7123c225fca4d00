//! What the driver adds to the dump of a bug check: its debug blobs, as `KbCallbackSecondaryDumpData`. WinDbg lists the
//! data by its tag with `.enumtag`; `fencepost decode` finds the blobs in the dump's file.
//!
//! Microsoft promises the call for a bug check alone ("when the system issues a bug check"), with every other processor
//! stopped, which is what the routine relies on. That a live dump, which is written while the system runs on, calls it
//! as well is on no page of theirs, nor that it does not: what a live dump of a time-out has of this driver is what
//! `DxgkDdiCollectDbgInfo` answers.
//!
//! Source: *Writing a Bug Check Callback Routine*, "Implementing a KbCallbackSecondaryDumpData Callback Routine";
//! `KBUGCHECK_SECONDARY_DUMP_DATA`; `KBUGCHECK_CALLBACK_REASON`, KbCallbackSecondaryDumpData; *Kernel Live Dump Code
//! Reference*, which speaks of secondary data and of no callback.

#![expect(
    unsafe_code,
    reason = "a record that the kernel keeps, and a routine that it calls with nothing else running"
)]

use super::Nt;
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr;
use wdk_sys::_KBUGCHECK_CALLBACK_REASON::KbCallbackSecondaryDumpData;
use wdk_sys::GUID;
use wdk_sys::KBUGCHECK_CALLBACK_REASON;
use wdk_sys::KBUGCHECK_REASON_CALLBACK_RECORD;
use wdk_sys::KBUGCHECK_SECONDARY_DUMP_DATA;
use wdk_sys::ULONG;
use wdk_sys::ntddk::KeDeregisterBugCheckReasonCallback;
use wdk_sys::ntddk::KeRegisterBugCheckReasonCallback;

/// {b1c7d7f2-6d0c-4f5e-9c0a-2f7a6f1d9e44}, of this driver alone: what the data is tagged with.
const TAG: GUID =
    GUID { Data1: 0xB1C7_D7F2, Data2: 0x6D0C, Data3: 0x4F5E, Data4: [0x9C, 0x0A, 0x2F, 0x7A, 0x6F, 0x1D, 0x9E, 0x44] };
/// Who has registered the callback, for the kernel's own records.
const COMPONENT: &[u8] = b"fencepost\0";
/// Bytes of the buffer, for the blobs of up to four adapters. It is part of the image, which is never paged out.
const BUFFER: usize = 32 * 1024;

/// A record as KeInitializeCallbackRecord leaves it: `BufferEmpty`.
// SAFETY: the record is integers and pointers, for which zeros are values.
const EMPTY: KBUGCHECK_REASON_CALLBACK_RECORD = unsafe { core::mem::zeroed() };

/// What the kernel and the routine use; nothing else touches it.
struct Kept<T>(UnsafeCell<T>);

// SAFETY: the record is the kernel's between `register` and `unregister`, and the buffer is the routine's, which runs
// while nothing else does.
unsafe impl<T> Sync for Kept<T> {}

static RECORD: Kept<KBUGCHECK_REASON_CALLBACK_RECORD> = Kept(UnsafeCell::new(EMPTY));
static DATA: Kept<[u8; BUFFER]> = Kept(UnsafeCell::new([0; BUFFER]));

/// Registers the callback. That it cannot is no reason not to start: a dump has no blobs then. Any IRQL.
pub fn register() {
    // SAFETY: the record is a static that is registered once, in DriverEntry; `routine` is part of the image, which is
    // there until `unregister`; the component is a constant with a terminator, which the kernel reads only.
    let _registered = unsafe {
        KeRegisterBugCheckReasonCallback(
            RECORD.0.get(),
            Some(routine),
            KbCallbackSecondaryDumpData,
            COMPONENT.as_ptr().cast_mut(),
        )
    };
}

/// Takes the callback away; does nothing where there is none. Any IRQL.
pub fn unregister() {
    // SAFETY: the record that `register` has given, or one that was never registered, which is refused.
    let _removed = unsafe { KeDeregisterBugCheckReasonCallback(RECORD.0.get()) };
}

/// `KBUGCHECK_REASON_CALLBACK_ROUTINE`, `HIGH_LEVEL`; no other processor runs. Asked for the size and for the data, it
/// gives both.
unsafe extern "C" fn routine(
    _reason: KBUGCHECK_CALLBACK_REASON,
    _record: *mut KBUGCHECK_REASON_CALLBACK_RECORD,
    data: *mut c_void,
    length: ULONG,
) {
    // CAST: some dozens of bytes.
    if data.is_null() || (length as usize) < size_of::<KBUGCHECK_SECONDARY_DUMP_DATA>() {
        return;
    }
    // SAFETY: the kernel's record, as long as it says, for the call.
    let data = unsafe { &mut *data.cast::<KBUGCHECK_SECONDARY_DUMP_DATA>() };
    // SAFETY: nothing else runs, so nothing else uses the buffer.
    let whole = unsafe { &mut *DATA.0.get() };
    // CAST: 32 bits.
    let allowed = BUFFER.min(data.MaximumAllowed as usize);
    // Both calls get the blobs of this moment: the parts that the adapters share are as large as is allowed.
    let buffer = whole.get_mut(..allowed).unwrap_or_default();
    // What an earlier call left, of an adapter that is not listed any more, goes into no dump.
    buffer.fill(0);
    // SAFETY: the adapters of this image are on its one platform; nothing is freed, since nothing else runs.
    let used = unsafe { kmd_core::debug::collect_all::<Nt>(buffer) };
    // CAST: at most BUFFER.
    let used = used as u32;
    data.Guid = TAG;
    data.OutBuffer = if used == 0 { ptr::null_mut() } else { buffer.as_mut_ptr().cast() };
    data.OutBufferLength = used;
}
