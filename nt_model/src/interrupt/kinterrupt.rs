//! Interrupt objects (`KINTERRUPT`), for drivers that connect their interrupts themselves. A display miniport does not:
//! Dxgkrnl connects for it.
//!
//! A device's line is made known under the vector of its translated resource ([`Machine::assign_interrupt`]).

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Interrupt, InterruptLine};
use crate::callback;
use crate::io::allocate;
use crate::kernel::Machine;
use crate::pool::PoolUse;
use crate::records::{status, status::NtStatus};
use crate::routines::{self, HIGH_LEVEL, Routine};
use crate::rules::Details;
use crate::rules_nt::NT_INT_CONNECT;

const TAG: u32 = u32::from_le_bytes(*b"Intr");
/// Size of the opaque record.
const BYTES: usize = 0x118;
/// What the pool calls it.
pub(crate) const KINTERRUPT: &str = "an interrupt object";

/// The header says HIGH_LEVEL here, which stands for the device's level.
static KE_RELEASE_INTERRUPT_SPIN_LOCK: Routine =
    Routine::limited("KeReleaseInterruptSpinLock", &["Interrupt", "OldIrql"], 3, HIGH_LEVEL);

/// Lines by vector, and connected objects by address.
#[derive(Debug, Default)]
pub(crate) struct InterruptObjects {
    vectors: Mutex<HashMap<u32, Arc<InterruptLine>>>,
    connected: Mutex<HashMap<usize, Arc<Interrupt>>>,
}

/// What a driver passes to connect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectRequest {
    pub(crate) vector: u32,
    pub(crate) level: u8,
    pub(crate) routine: usize,
    pub(crate) context: usize,
}

impl Machine {
    /// Makes `line` the one behind `vector`, which a driver finds in its translated resources.
    pub fn assign_interrupt(&self, vector: u32, line: &Arc<InterruptLine>) {
        self.interrupts.objects.vectors.lock().insert(vector, line.clone());
    }

    /// Connects `routine(Interrupt, ServiceContext)` (`KSERVICE_ROUTINE`). Returns the object's address.
    #[track_caller]
    pub(crate) fn connect_interrupt_object(&self, request: &ConnectRequest) -> Result<usize, NtStatus> {
        let _service = self.service(&routines::IO_CONNECT_INTERRUPT_EX, [request.vector.into()]);
        let line = self.interrupts.objects.vectors.lock().get(&request.vector).cloned();
        let text = || format!("vector {:#x} belongs to no device", request.vector);
        self.rules.check(&NT_INT_CONNECT, line.is_some(), text);
        let line = line.ok_or(status::INVALID_PARAMETER)?;
        if self.memory.must_fail() {
            return Err(status::INSUFFICIENT_RESOURCES);
        }
        let object = allocate(&self.memory, self, BYTES, TAG, KINTERRUPT)?;
        let machine = self.arc();
        let ConnectRequest { routine, context, level, .. } = *request;
        let connected = self.connect_interrupt(&line, level, move |_| {
            let claimed = machine.call_interrupt_routine("interrupt routine", || {
                // CAST: a BOOLEAN is the low byte of the return register.
                callback::invoke(routine, [object, context]) as u8 != 0
            });
            claimed.unwrap_or(false)
        });
        match connected {
            Some(interrupt) => {
                self.interrupts.objects.connected.lock().insert(object, interrupt);
                Ok(object)
            }
            None => {
                self.release_pool(object);
                Err(status::INVALID_PARAMETER)
            }
        }
    }

    /// The connected interrupt behind an object, or NT-INT-CONNECT broken.
    fn interrupt_object(&self, object: usize) -> Option<Arc<Interrupt>> {
        let found = self.interrupts.objects.connected.lock().get(&object).cloned();
        self.rules.check(&NT_INT_CONNECT, found.is_some(), || {
            Details::new(format!("{object:#x} is no connected interrupt object")).params([object as u64, 0, 0])
        });
        found
    }

    #[track_caller]
    pub(crate) fn disconnect_interrupt_object(&self, object: usize) {
        let _service = self.service(&routines::IO_DISCONNECT_INTERRUPT, [object as u64]);
        let Some(interrupt) = self.interrupt_object(object) else { return };
        self.interrupts.objects.connected.lock().remove(&object);
        self.disconnect_interrupt(&interrupt);
        debug_assert_eq!(self.pool.used_as(object), Some(PoolUse::Service(KINTERRUPT)));
        self.release_pool(object);
    }

    /// `KeSynchronizeExecution` of an interrupt object.
    #[track_caller]
    pub(crate) fn synchronize_object(&self, object: usize, routine: usize, context: usize) -> bool {
        let Some(interrupt) = self.interrupt_object(object) else { return false };
        // CAST: a BOOLEAN is the low byte of the return register.
        let run = || self.call_driver("synchronize routine", || callback::invoke(routine, [context]) as u8 != 0);
        self.synchronize(&interrupt, run).unwrap_or(false)
    }

    /// Raises to the device's level and takes the interrupt's lock. Returns the level before.
    #[track_caller]
    pub(crate) fn acquire_interrupt_lock(&self, object: usize) -> u8 {
        let _service = self.service(&routines::KE_ACQUIRE_INTERRUPT_SPIN_LOCK, [object as u64]);
        let old = self.irql();
        if let Some(interrupt) = self.interrupt_object(object) {
            self.set_irql(old.max(interrupt.level));
            self.take_word(&interrupt.lock);
        }
        old
    }

    /// Releases the interrupt's lock and goes back to `old`.
    #[track_caller]
    pub(crate) fn release_interrupt_lock(&self, object: usize, old: u8) {
        let _service = self.service(&KE_RELEASE_INTERRUPT_SPIN_LOCK, [object as u64, old.into()]);
        if let Some(interrupt) = self.interrupt_object(object) {
            self.drop_word(&interrupt.lock);
            self.set_irql(old.min(self.irql()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::Trigger;
    use crate::kernel::Kernel;
    use crate::shims;
    use std::sync::atomic::{AtomicUsize, Ordering};

    shims! {
        table ROUTINES;

        fn CountingService(m, _object: usize, count: crate::In<AtomicUsize>) -> u8 {
            assert_eq!(m.irql(), 7);
            count.get().fetch_add(1, Ordering::Relaxed);
            1
        }

        fn Synchronized(m, count: crate::In<AtomicUsize>) -> u8 {
            assert_eq!(m.irql(), 7);
            count.get().fetch_add(100, Ordering::Relaxed);
            1
        }
    }

    #[test]
    fn a_driver_connects_synchronizes_and_disconnects() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let line = InterruptLine::new("test", Trigger::Message, 0);
        kernel.assign_interrupt(0x31, &line);
        let count = AtomicUsize::new(0);
        let context = core::ptr::from_ref(&count).expose_provenance();
        let request = ConnectRequest { vector: 0x31, level: 7, routine: ROUTINES[0].address.get(), context };
        let object = kernel.connect_interrupt_object(&request).unwrap_or_default();
        kernel.signal_interrupt(&line);
        assert!(kernel.synchronize_object(object, ROUTINES[1].address.get(), context));
        assert_eq!(count.load(Ordering::Relaxed), 101);
        let old = kernel.acquire_interrupt_lock(object);
        assert_eq!((old, kernel.irql()), (0, 7));
        kernel.signal_interrupt(&line);
        assert_eq!(count.load(Ordering::Relaxed), 101, "it waits for the level");
        kernel.release_interrupt_lock(object, old);
        assert_eq!((count.load(Ordering::Relaxed), kernel.irql()), (102, 0));
        kernel.disconnect_interrupt_object(object);
        assert!(kernel.rules.violations().is_empty(), "{:?}", kernel.rules.violations());
        kernel.disconnect_interrupt_object(object);
        assert!(kernel.rules.was_broken(&NT_INT_CONNECT));
    }
}
