//! gdi32's `D3DKMT` functions and kernel32's events, as `umd_core` wants them.
//!
//! What Windows has had since hardware scheduling is imported. What came with 24H2, or is obsolete, is looked up when
//! an adapter is opened: a missing import would keep the image from loading at all. A missing function of 24H2 means
//! kernel-mode submission; a missing obsolete one is not needed. gdi32 is loaded already, since the imports name it.
#![expect(unsafe_code, reason = "foreign functions")]

use crate::etw;
use core::ffi::c_void;
use core::mem::transmute;
use core::ptr;
use umd_core::thunks::{EventWait, NtHandle, Padded, Thunks};
use umd_core::tracing::Event;
use wddm_abi::ntstatus::STATUS_PROCEDURE_NOT_FOUND;
use wddm_abi::{D3DKMT_HANDLE, HANDLE, NTSTATUS, OBJECT_ATTRIBUTES};

#[link(name = "kernel32", kind = "raw-dylib")]
unsafe extern "system" {
    fn GetModuleHandleA(name: *const u8) -> HANDLE;
    fn GetProcAddress(module: HANDLE, name: *const u8) -> *const c_void;
    fn CreateEventA(security: *const c_void, manual_reset: i32, initially_set: i32, name: *const u8) -> HANDLE;
    fn SetEvent(event: HANDLE) -> i32;
    fn WaitForSingleObject(handle: HANDLE, milliseconds: u32) -> u32;
    fn CloseHandle(handle: HANDLE) -> i32;
    fn QueryPerformanceCounter(count: *mut i64) -> i32;
    fn QueryPerformanceFrequency(frequency: *mut i64) -> i32;
    safe fn GetCurrentThreadId() -> u32;
}

const WAIT_OBJECT_0: u32 = 0;
const WAIT_TIMEOUT: u32 = 0x102;

/// A function of one record.
type Thunk = unsafe extern "system" fn(*mut c_void) -> NTSTATUS;

/// The address of an export of gdi32, by its zero-terminated name; null when there is none.
fn find(name: &[u8]) -> *const c_void {
    debug_assert!(name.ends_with(&[0]));
    // SAFETY: a zero-terminated name.
    let module = unsafe { GetModuleHandleA(c"gdi32.dll".as_ptr().cast()) };
    if module.is_null() {
        return ptr::null();
    }
    // SAFETY: a loaded module's handle, and a zero-terminated name.
    unsafe { GetProcAddress(module, name.as_ptr()) }
}

macro_rules! define {
    ($($method:ident, $id:ident, $export:ident, $record:ident, $presence:ident, $bytes:literal;)*) => {
        define! { @imports [] $($export $presence)* }

        /// The thunks of this process.
        pub struct Gdi32 {
            optional: Optional,
        }

        define! { @optional [] $($export $presence)* }

        // SAFETY: the functions are the operating system's, which maps what it returns until the object is destroyed,
        // and writes to its arguments only (possibly more than the record, hence the padding: umd_core::thunks).
        unsafe impl Thunks for Gdi32 {
            fn attach() -> Self {
                Self { optional: Optional::find() }
            }

            $(
                fn $method(
                    &self,
                    argument: &mut Padded<wddm_abi::$record, { $bytes - size_of::<wddm_abi::$record>() }>,
                ) -> NTSTATUS {
                    define!(@call self, argument, $export, $presence)
                }
            )*

            fn share_objects(
                &self,
                objects: &[D3DKMT_HANDLE],
                attributes: &mut OBJECT_ATTRIBUTES,
                access: u32,
            ) -> (NTSTATUS, Option<NtHandle>) {
                let mut handle = ptr::null_mut();
                // CAST: one object.
                let count = objects.len() as u32;
                // SAFETY: `count` handles, attributes and a result, all live.
                let status = unsafe { D3DKMTShareObjects(count, objects.as_ptr(), attributes, access, &raw mut handle) };
                (status, NtHandle::from_raw(handle))
            }

            fn has_export(&self, name: &str) -> bool {
                let mut bytes = [0; 96];
                let Some(place) = bytes.get_mut(..name.len()) else { return false };
                place.copy_from_slice(name.as_bytes());
                // One more zero is left, since the names are shorter than 95 bytes.
                name.len() < 95 && !find(&bytes).is_null()
            }

            fn create_event(&self) -> Option<NtHandle> {
                // SAFETY: no security attributes and no name; auto-reset, not set.
                NtHandle::from_raw(unsafe { CreateEventA(ptr::null(), 0, 0, ptr::null()) })
            }

            fn set_event(&self, event: NtHandle) {
                // SAFETY: any handle value may be passed; one that is no event is refused.
                unsafe { SetEvent(event.as_raw()) };
            }

            fn wait_event(&self, event: NtHandle, milliseconds: u32) -> EventWait {
                // SAFETY: any handle value may be passed; one that cannot be waited for is refused.
                match unsafe { WaitForSingleObject(event.as_raw(), milliseconds) } {
                    WAIT_OBJECT_0 => EventWait::Set,
                    WAIT_TIMEOUT => EventWait::Timeout,
                    _ => EventWait::Failed,
                }
            }

            fn close_handle(&self, handle: NtHandle) {
                // SAFETY: any handle value may be passed; one that is not open is refused.
                unsafe { CloseHandle(handle.as_raw()) };
            }

            fn timestamp(&self) -> u64 {
                let mut count = 0;
                // SAFETY: a live result.
                unsafe { QueryPerformanceCounter(&raw mut count) };
                count.cast_unsigned()
            }

            fn timestamp_frequency(&self) -> u64 {
                let mut frequency = 0;
                // SAFETY: a live result.
                unsafe { QueryPerformanceFrequency(&raw mut frequency) };
                // "The result will never be zero" since Windows XP.
                frequency.cast_unsigned().max(1)
            }

            fn trace(&self, event: impl FnOnce() -> Event) {
                if etw::is_on() {
                    etw::write(&event());
                }
            }

            fn is_traced(&self) -> bool {
                etw::is_on()
            }

            fn thread_id() -> u32 {
                GetCurrentThreadId()
            }
        }
    };

    (@call $self:ident, $argument:ident, $export:ident, required) => {
        // SAFETY: the record of this function, with more behind it than any known form has; its pointers are live
        // (`umd_core::thunks`).
        unsafe { $export($argument.as_mut_ptr().cast()) }
    };
    (@call $self:ident, $argument:ident, $export:ident, fallback) => {
        define!(@call $self, $argument, $export, optional)
    };
    (@call $self:ident, $argument:ident, $export:ident, optional) => {
        match $self.optional.$export {
            // SAFETY: as for the imports; the address is that of the export with this name.
            Some(thunk) => unsafe { thunk($argument.as_mut_ptr().cast()) },
            None => STATUS_PROCEDURE_NOT_FOUND,
        }
    };

    (@imports [$($export:ident)*] $next:ident required $($rest:tt)*) => {
        define! { @imports [$($export)* $next] $($rest)* }
    };
    (@imports [$($export:ident)*] $next:ident fallback $($rest:tt)*) => {
        define! { @imports [$($export)*] $($rest)* }
    };
    (@imports [$($export:ident)*] $next:ident optional $($rest:tt)*) => {
        define! { @imports [$($export)*] $($rest)* }
    };
    (@imports [$($export:ident)*]) => {
        #[link(name = "gdi32", kind = "raw-dylib")]
        unsafe extern "system" {
            $(fn $export(argument: *mut c_void) -> NTSTATUS;)*
            fn D3DKMTShareObjects(
                count: u32,
                objects: *const D3DKMT_HANDLE,
                attributes: *mut OBJECT_ATTRIBUTES,
                access: u32,
                nt_handle: *mut HANDLE,
            ) -> NTSTATUS;
        }
    };

    (@optional [$($export:ident)*] $next:ident fallback $($rest:tt)*) => {
        define! { @optional [$($export)* $next] $($rest)* }
    };
    (@optional [$($export:ident)*] $next:ident optional $($rest:tt)*) => {
        define! { @optional [$($export)* $next] $($rest)* }
    };
    (@optional [$($export:ident)*] $next:ident required $($rest:tt)*) => {
        define! { @optional [$($export)*] $($rest)* }
    };
    (@optional [$($export:ident)*]) => {
        /// Addresses of the functions that 24H2 added and of the obsolete ones; `None` for one that gdi32 does not
        /// export.
        struct Optional {
            $($export: Option<Thunk>,)*
        }

        impl Optional {
            fn find() -> Self {
                Self {
                    $($export: {
                        let address = find(concat!(stringify!($export), "\0").as_bytes());
                        // SAFETY: null, or the address of the export with this name, which takes its record's address.
                        unsafe { transmute::<*const c_void, Option<Thunk>>(address) }
                    },)*
                }
            }
        }
    };
}

umd_core::for_each_thunk!(define);
