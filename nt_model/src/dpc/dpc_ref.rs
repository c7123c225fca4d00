//! Queued DPCs, which lie in driver memory, and the entry of native ones.
#![expect(unsafe_code, reason = "the queue refers to records in driver memory; a native DPC gets itself as context")]

use std::sync::atomic::Ordering;

use super::NativeDpc;
use crate::records::KDPC;

/// A DPC in a queue.
#[derive(Debug)]
pub(crate) struct DpcRef(*const KDPC);

// SAFETY: the record consists of atomics; sharing a pointer to it is sharing a `&KDPC`.
unsafe impl Send for DpcRef {}
// SAFETY: as above.
unsafe impl Sync for DpcRef {}

impl DpcRef {
    pub(super) fn new(dpc: &KDPC) -> Self {
        Self(dpc)
    }

    /// A DPC by the address that a driver stored in a timer; `None` for 0.
    pub(crate) fn from_address(address: usize) -> Option<Self> {
        (address != 0).then(|| Self(core::ptr::with_exposed_provenance(address)))
    }

    pub(crate) fn address(&self) -> usize {
        self.0.addr()
    }

    pub(crate) fn get(&self) -> &KDPC {
        // SAFETY: a queued DPC must stay in memory until it has run or was removed (KeInsertQueueDpc); freeing pool
        // that contains one is caught and forgets it.
        unsafe { &*self.0 }
    }

    pub(super) fn routine(&self) -> usize {
        self.get().routine.load(Ordering::Relaxed)
    }

    /// Routine and arguments of a DPC that is about to run; from here on it may be queued again.
    pub(super) fn take(&self) -> (usize, [usize; 4]) {
        let dpc = self.get();
        let arguments = [
            self.0.addr(),
            dpc.context.load(Ordering::Relaxed),
            dpc.argument1.load(Ordering::Relaxed),
            dpc.argument2.load(Ordering::Relaxed),
        ];
        let routine = dpc.routine.load(Ordering::Relaxed);
        dpc.data.store(0, Ordering::Release);
        (routine, arguments)
    }
}

unsafe extern "win64" fn run_native(_dpc: usize, context: usize, argument1: usize, argument2: usize) {
    let native: *const NativeDpc = core::ptr::with_exposed_provenance(context);
    // SAFETY: `Dpc::new` passed the address of its boxed `NativeDpc` as context, and a DPC must outlive its queueing.
    let native = unsafe { &*native };
    (native.routine)(argument1, argument2);
}

/// The address of the function through which native DPCs are called.
pub(super) fn native_entry() -> usize {
    run_native as *const () as usize
}
