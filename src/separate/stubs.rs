//! gdi32 and kernel32 of a client: what goes to the machine as a message.
//!
//! The time, the heap and the modules stay in the client.
#![expect(unsafe_code, reason = "the user-mode driver's trait of entry points is unsafe to implement")]

use super::client::ask;
use super::wire::Kind;
use nt_model::{Kernel, Machine, shims};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use umd_core::thunks::{EventWait, NtHandle, Padded, Thunks};
use wddm_abi::exports::D3DKMT_EXPORTS;
use wddm_abi::{D3DKMT_HANDLE, HANDLE, NTSTATUS, OBJECT_ATTRIBUTES};

/// What a user-mode driver from before doorbells has never heard of: it neither looks for these functions nor calls
/// one.
const DOORBELLS: [&str; 4] =
    ["D3DKMTCreateDoorbell", "D3DKMTConnectDoorbell", "D3DKMTDestroyDoorbell", "D3DKMTNotifyWorkSubmission"];

/// Whether the user-mode driver of this process is from before doorbells.
static IS_OLDER: AtomicBool = AtomicBool::new(false);

/// This process has a user-mode driver from before doorbells. Called before that is loaded.
pub fn be_older() {
    IS_OLDER.store(true, Ordering::Release);
}

/// Returns whether gdi32 has this export, for the user-mode driver of this process.
fn has_export(name: &str) -> bool {
    let is_known = !IS_OLDER.load(Ordering::Acquire) || !DOORBELLS.contains(&name);
    is_known && ask(Kind::HasExport, &[], name) != 0
}

/// Calls gdi32's function of this name in the machine.
fn thunk(name: &str, words: &[u64]) -> NTSTATUS {
    // CAST: the low half is the status.
    NTSTATUS((ask(Kind::Thunk, words, name) as u32).cast_signed())
}

/// The client's machine, which the calling thread has entered.
///
/// # Panics
/// When it has not: the user-mode driver runs inside its process only.
#[track_caller]
fn here<R>(f: impl FnOnce(&Machine) -> R) -> R {
    // PANIC: documented.
    Machine::with_current(|machine| f(machine.expect("user mode runs inside a process")))
}

macro_rules! define {
    ($($method:ident, $id:ident, $export:ident, $record:ident, $presence:ident, $bytes:literal;)*) => {
        /// The entry points, as the user-mode driver that is linked in wants them.
        pub struct Stubs;

        // SAFETY: the machine maps what it returns until the object is destroyed, and writes to the arguments and what
        // they name only.
        unsafe impl Thunks for Stubs {
            fn attach() -> Self {
                Self
            }

            $(
                fn $method(
                    &self,
                    argument: &mut Padded<wddm_abi::$record, { $bytes - size_of::<wddm_abi::$record>() }>,
                ) -> NTSTATUS {
                    let at: *mut c_void = argument.as_mut_ptr().cast();
                    thunk(stringify!($export), &[at.expose_provenance() as u64])
                }
            )*

            fn share_objects(
                &self,
                objects: &[D3DKMT_HANDLE],
                attributes: &mut OBJECT_ATTRIBUTES,
                access: u32,
            ) -> (NTSTATUS, Option<NtHandle>) {
                let mut handle: HANDLE = ptr::null_mut();
                let words = [
                    objects.len() as u64,
                    objects.as_ptr().expose_provenance() as u64,
                    ptr::from_mut(attributes).expose_provenance() as u64,
                    access.into(),
                    (&raw mut handle).expose_provenance() as u64,
                ];
                let status = thunk("D3DKMTShareObjects", &words);
                // SAFETY: our own variable, which the machine may have stored to.
                (status, NtHandle::from_raw(unsafe { (&raw const handle).read_volatile() }))
            }

            fn has_export(&self, name: &str) -> bool {
                has_export(name)
            }

            fn create_event(&self) -> Option<NtHandle> {
                Some(ask(Kind::CreateEvent, &[0, 0], "")).filter(|handle| *handle != 0).map(NtHandle)
            }

            fn set_event(&self, handle: NtHandle) {
                ask(Kind::SetEvent, &[handle.0], "");
            }

            fn wait_event(&self, handle: NtHandle, milliseconds: u32) -> EventWait {
                match ask(Kind::WaitEvent, &[handle.0, milliseconds.into()], "") {
                    0 => EventWait::Set,
                    0x102 => EventWait::Timeout,
                    _ => EventWait::Failed,
                }
            }

            fn close_handle(&self, handle: NtHandle) {
                ask(Kind::CloseHandle, &[handle.0], "");
            }

            fn timestamp(&self) -> u64 {
                here(Machine::query_performance_counter)
            }

            fn timestamp_frequency(&self) -> u64 {
                here(Machine::performance_frequency).max(1)
            }

            fn thread_id() -> u32 {
                // CAST: thread numbers count from 1.
                here(Machine::current_thread_id) as u32
            }
        }

        shims! {
            /// gdi32, for the file.
            table GDI32;
            $(fn $export(_m, argument: u64) -> NTSTATUS {
                thunk(stringify!($export), &[argument])
            })*
        }
    };
}

umd_core::for_each_thunk!(define);

shims! {
    /// gdi32's functions beside that list: one that the user-mode driver only looks for, and one with more arguments.
    table BESIDE;
    fn D3DKMTCreateHwQueueForUserModeSubmission(_m, argument: u64) -> NTSTATUS {
        thunk("D3DKMTCreateHwQueueForUserModeSubmission", &[argument])
    }

    fn D3DKMTShareObjects(_m, count: u64, objects: u64, attributes: u64, access: u64, handle: u64) -> NTSTATUS {
        thunk("D3DKMTShareObjects", &[count & 0xFFFF_FFFF, objects, attributes, access & 0xFFFF_FFFF, handle])
    }
}

shims! {
    /// kernel32's handles are the machine's.
    table KERNEL32;

    fn CreateEventA(_m, _security: u64, manual: u32, set: u32, _name: u64) -> u64 {
        ask(Kind::CreateEvent, &[manual.into(), set.into()], "")
    }

    fn CreateEventW(_m, _security: u64, manual: u32, set: u32, _name: u64) -> u64 {
        ask(Kind::CreateEvent, &[manual.into(), set.into()], "")
    }

    // CAST: a BOOL.
    fn SetEvent(_m, handle: u64) -> u32 {
        ask(Kind::SetEvent, &[handle], "") as u32
    }

    // CAST: a BOOL.
    fn ResetEvent(_m, handle: u64) -> u32 {
        ask(Kind::ResetEvent, &[handle], "") as u32
    }

    // CAST: kernel32's 32-bit results.
    fn WaitForSingleObject(_m, handle: u64, milliseconds: u32) -> u32 {
        ask(Kind::WaitEvent, &[handle, milliseconds.into()], "") as u32
    }

    // CAST: a BOOL.
    fn CloseHandle(_m, handle: u64) -> u32 {
        ask(Kind::CloseHandle, &[handle], "") as u32
    }
}

/// Lets the user-mode driver's file import them: of gdi32, what the machine's has.
pub fn register(kernel: &Kernel) {
    for entry in GDI32.iter().chain(BESIDE).filter(|entry| has_export(entry.name)) {
        kernel.register_import("gdi32.dll", entry.name, entry.address);
        let api_set = D3DKMT_EXPORTS.iter().find(|export| export.name == entry.name).and_then(|export| export.api_set);
        if let Some(api_set) = api_set {
            kernel.register_import(api_set, entry.name, entry.address);
        }
    }
    for entry in KERNEL32 {
        kernel.register_import("kernel32.dll", entry.name, entry.address);
    }
}
