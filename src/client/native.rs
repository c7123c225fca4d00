//! gdi32 and kernel32 for the user-mode driver that is linked in: the model's entry points, and events of the process
//! that the calling thread is in.

use dxgkrnl_model::thunks::{address, is_exported};
use nt_model::{Event, Machine};
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use umd_core::thunks::{EventWait, NtHandle, Padded, Thunks};
use wddm_abi::ntstatus::STATUS_PROCEDURE_NOT_FOUND;
use wddm_abi::{D3DKMT_HANDLE, HANDLE, NTSTATUS, OBJECT_ATTRIBUTES, winfn};

/// A function of one record.
type Thunk = winfn!(fn(*mut c_void) -> NTSTATUS);
/// `D3DKMTShareObjects`.
type Share = winfn!(fn(u32, *const D3DKMT_HANDLE, *mut OBJECT_ATTRIBUTES, u32, *mut HANDLE) -> NTSTATUS);

/// The machine that the calling thread is in.
///
/// # Panics
/// When it is in none: the user-mode driver runs inside a process only.
#[track_caller]
fn machine<R>(f: impl FnOnce(&Machine) -> R) -> R {
    // PANIC: documented; `Client` enters the process around every call.
    Machine::with_current(|machine| f(machine.expect("user mode runs inside a process")))
}

fn event(m: &Machine, handle: NtHandle) -> Option<Arc<Event>> {
    m.current_process().handle::<Event>(handle.0)
}

macro_rules! define {
    ($($method:ident, $id:ident, $export:ident, $record:ident, $presence:ident, $bytes:literal;)*) => {
        /// The entry points, as the user-mode driver wants them.
        pub struct NativeThunks {
            $($method: Option<Thunk>,)*
            share: Option<Share>,
        }

        // SAFETY: the functions are the model's, which maps what it returns until the object is destroyed, and writes
        // to its arguments and what they name only.
        unsafe impl Thunks for NativeThunks {
            fn attach() -> Self {
                Self {
                    $($method: {
                        let at = ptr::with_exposed_provenance::<c_void>(address(stringify!($export)));
                        // SAFETY: null, or the address of the entry point with this name, which takes its record's
                        // address.
                        unsafe { std::mem::transmute::<*const c_void, Option<Thunk>>(at) }
                    },)*
                    share: {
                        let at = ptr::with_exposed_provenance::<c_void>(address("D3DKMTShareObjects"));
                        // SAFETY: null, or the address of that function, whose arguments are these.
                        unsafe { std::mem::transmute::<*const c_void, Option<Share>>(at) }
                    },
                }
            }

            $(
                fn $method(
                    &self,
                    argument: &mut Padded<wddm_abi::$record, { $bytes - size_of::<wddm_abi::$record>() }>,
                ) -> NTSTATUS {
                    let Some(thunk) = self.$method else { return STATUS_PROCEDURE_NOT_FOUND };
                    // SAFETY: the record of this function, with more behind it than any known form has.
                    unsafe { thunk(argument.as_mut_ptr().cast()) }
                }
            )*

            fn share_objects(
                &self,
                objects: &[D3DKMT_HANDLE],
                attributes: &mut OBJECT_ATTRIBUTES,
                access: u32,
            ) -> (NTSTATUS, Option<NtHandle>) {
                let Some(share) = self.share else { return (STATUS_PROCEDURE_NOT_FOUND, None) };
                let mut handle = ptr::null_mut();
                // CAST: a handful of objects.
                let count = objects.len() as u32;
                // SAFETY: `count` handles, attributes and a result, all live.
                let status = unsafe { share(count, objects.as_ptr(), attributes, access, &raw mut handle) };
                (status, NtHandle::from_raw(handle))
            }

            fn has_export(&self, name: &str) -> bool {
                machine(|m| is_exported(m, name))
            }

            fn create_event(&self) -> Option<NtHandle> {
                let event = Arc::new(Event::synchronization(false));
                Some(NtHandle(machine(|m| m.current_process().insert_handle(event))))
            }

            fn set_event(&self, handle: NtHandle) {
                machine(|m| event(m, handle).map(|event| m.set_event(event.as_kevent(), false)));
            }

            fn wait_event(&self, handle: NtHandle, milliseconds: u32) -> EventWait {
                let timeout = (milliseconds != u32::MAX).then(|| -i64::from(milliseconds) * 10_000);
                let waited = machine(|m| event(m, handle).map(|event| m.wait_for_event(&event, timeout)));
                match waited {
                    Some(0) => EventWait::Set,
                    Some(0x102) => EventWait::Timeout,
                    _ => EventWait::Failed,
                }
            }

            fn close_handle(&self, handle: NtHandle) {
                let closed = machine(|m| m.current_process().close_handle(handle.0));
                drop(closed);
            }

            fn timestamp(&self) -> u64 {
                machine(Machine::query_performance_counter)
            }

            fn timestamp_frequency(&self) -> u64 {
                machine(Machine::performance_frequency).max(1)
            }

            fn thread_id() -> u32 {
                // CAST: thread numbers count from 1.
                machine(Machine::current_thread_id) as u32
            }
        }
    };
}

umd_core::for_each_thunk!(define);
