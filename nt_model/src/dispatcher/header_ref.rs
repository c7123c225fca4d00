//! A dispatcher object that somebody waits for, reachable from the side that signals another one.
#![expect(unsafe_code, reason = "waiters refer to objects in driver memory for as long as they wait")]

use crate::records::DispatcherHeader;

/// Refers to an object in driver memory. Made only by a wait that has not returned.
#[derive(Debug)]
pub(super) struct HeaderRef(*const DispatcherHeader);

// SAFETY: the record consists of atomics; sharing a pointer to it between threads is sharing a `&DispatcherHeader`.
unsafe impl Send for HeaderRef {}
// SAFETY: as above.
unsafe impl Sync for HeaderRef {}

impl HeaderRef {
    pub(super) fn new(header: &DispatcherHeader) -> Self {
        Self(header)
    }

    pub(super) fn get(&self) -> &DispatcherHeader {
        // SAFETY: the waiter borrows the object until its wait returns, and it removes its wait block (with this
        // reference) under the dispatcher lock before that; `get` is called under that lock only.
        unsafe { &*self.0 }
    }

    pub(super) fn address(&self) -> usize {
        self.0.addr()
    }
}
