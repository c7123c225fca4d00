//! Calls whose record lies in user memory that others may change meanwhile.
#![expect(unsafe_code, reason = "functions are called with addresses of user memory")]

use crate::scenario::Raw;
use crate::scenario::raw::Thunk;
use dxgkrnl_model::thunks::address;
use std::ptr;
use wddm_abi::{NTSTATUS, winfn};

impl Raw {
    /// Calls `thunk` with the record at `at`, an address of the process.
    pub(in crate::scenario) fn call_at<T>(&self, thunk: impl Thunk<T>, at: usize) -> NTSTATUS {
        let _inside = self.process.enter();
        // SAFETY: the function reads and writes user memory guarded; pointers in it are user mode's.
        unsafe { thunk.call(ptr::with_exposed_provenance_mut(at)) }
    }

    /// Calls the function with this name, which takes one record, with the bytes at `at`.
    ///
    /// # Panics
    /// When there is no such function.
    pub(crate) fn call_by_name(&self, name: &str, at: usize) -> NTSTATUS {
        let function: *const () = ptr::with_exposed_provenance(address(name));
        assert!(!function.is_null(), "{name}");
        // SAFETY: an entry point of gdi32, which takes its record's address.
        let function = unsafe { std::mem::transmute::<*const (), winfn!(fn(*mut u8) -> NTSTATUS)>(function) };
        let _inside = self.process.enter();
        // SAFETY: as in `call_at`.
        unsafe { function(ptr::with_exposed_provenance_mut(at)) }
    }
}
