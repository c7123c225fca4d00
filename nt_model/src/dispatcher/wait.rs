//! Waiting: for one object, for several, for time to pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use super::header_ref::HeaderRef;
use super::{Event, MAXIMUM_WAIT_OBJECTS, UNSATISFIED, WAITABLE, WaitBlock, address_of};
use crate::cpu;
use crate::kernel::Machine;
use crate::records::{DispatcherHeader, status, status::NtStatus};
use crate::routines::{self, DISPATCH_LEVEL, Routine};
use crate::rules::Details;
use crate::rules_nt::{NT_OBJECT_KIND, NT_WAIT_LOCKED};
use crate::sched::Ticks;
use crate::thread::Thread;

impl Machine {
    /// Waits for one object. `timeout` as NT gives it: `None` for ever, negative relative, positive absolute system
    /// time, in 100 ns; 0 only looks. Ends when it says, whatever the clock of the machine: for the model itself and
    /// for tests. A driver's wait is [`wait_by_clock`](Self::wait_by_clock).
    ///
    /// IRQL: at most APC_LEVEL; at most DISPATCH_LEVEL with a timeout of 0. Returns `STATUS_SYSTEM_SHUTDOWN` when the
    /// machine has stopped.
    #[track_caller]
    pub fn wait_for_object(&self, object: &DispatcherHeader, timeout: Option<i64>) -> NtStatus {
        self.wait_for_one(object, timeout, timeout.map(|timeout| self.deadline(timeout)))
    }

    /// [`wait_for_object`](Self::wait_for_object) as a driver calls it: a time-out ends at a clock interrupt
    /// ([`ClockOptions`](crate::time::ClockOptions)).
    ///
    /// IRQL: as [`wait_for_object`](Self::wait_for_object).
    #[doc(alias = "KeWaitForSingleObject")]
    #[track_caller]
    pub fn wait_by_clock(&self, object: &DispatcherHeader, timeout: Option<i64>) -> NtStatus {
        self.wait_for_one(object, timeout, timeout.map(|timeout| self.end_of_wait(timeout)))
    }

    #[track_caller]
    fn wait_for_one(&self, object: &DispatcherHeader, timeout: Option<i64>, deadline: Option<Ticks>) -> NtStatus {
        // CAST: printed only.
        let arguments = [address_of(object) as u64, 0, 0, 0, timeout.unwrap_or(i64::MAX) as u64];
        let _service = self.service(&routines::KE_WAIT_FOR_SINGLE_OBJECT, arguments);
        self.wait(&routines::KE_WAIT_FOR_SINGLE_OBJECT, &[object], false, (timeout == Some(0), deadline))
    }

    /// [`wait_for_object`](Self::wait_for_object) for an event of native code.
    #[track_caller]
    pub fn wait_for_event(&self, event: &Event, timeout: Option<i64>) -> NtStatus {
        self.wait_for_object(&event.as_kevent().header, timeout)
    }

    /// Waits for one of several objects, or for all of them at once. The time-out ends when it says, as that of
    /// [`wait_for_object`](Self::wait_for_object).
    ///
    /// IRQL: as [`wait_for_object`](Self::wait_for_object).
    #[track_caller]
    pub fn wait_for_objects(&self, objects: &[&DispatcherHeader], all: bool, timeout: Option<i64>) -> NtStatus {
        self.wait_for_several(objects, all, timeout, timeout.map(|timeout| self.deadline(timeout)))
    }

    /// [`wait_for_objects`](Self::wait_for_objects) as a driver calls it: a time-out ends at a clock interrupt.
    ///
    /// IRQL: as [`wait_for_object`](Self::wait_for_object).
    #[doc(alias = "KeWaitForMultipleObjects")]
    #[track_caller]
    pub fn wait_for_objects_by_clock(
        &self,
        objects: &[&DispatcherHeader],
        all: bool,
        timeout: Option<i64>,
    ) -> NtStatus {
        self.wait_for_several(objects, all, timeout, timeout.map(|timeout| self.end_of_wait(timeout)))
    }

    #[track_caller]
    fn wait_for_several(
        &self,
        objects: &[&DispatcherHeader],
        all: bool,
        timeout: Option<i64>,
        deadline: Option<Ticks>,
    ) -> NtStatus {
        // CAST: printed only.
        let arguments = [objects.len() as u64, 0, u64::from(!all), 0, 0, timeout.unwrap_or(i64::MAX) as u64];
        let _service = self.service(&routines::KE_WAIT_FOR_MULTIPLE_OBJECTS, arguments);
        if objects.is_empty() || objects.len() > MAXIMUM_WAIT_OBJECTS {
            self.rules.broken(&NT_OBJECT_KIND, format!("a wait for {} objects", objects.len()));
            return status::INVALID_PARAMETER;
        }
        self.wait(&routines::KE_WAIT_FOR_MULTIPLE_OBJECTS, objects, all, (timeout == Some(0), deadline))
    }

    /// Waits until `deadline`, `None` for ever. `looks`: does not wait at all.
    fn wait(
        &self,
        routine: &'static Routine,
        objects: &[&DispatcherHeader],
        all: bool,
        (looks, deadline): (bool, Option<Ticks>),
    ) -> NtStatus {
        self.check_irql_when(routine, usize::from(!looks));
        let held = cpu::with(|cpu| cpu.held_count());
        self.rules
            .check(&NT_WAIT_LOCKED, held == 0 || looks, || Details::new(format!("a wait with {held} spin locks held")));
        for object in objects {
            if !self.check_kind(routine, object, WAITABLE) {
                return status::INVALID_PARAMETER;
            }
        }
        let me = self.with_current_thread(Thread::address);
        let block = {
            let mut waits = self.dispatcher.waits.lock();
            if let Some(result) = waits.try_satisfy(objects, all, me) {
                return result;
            }
            // A wait that breaks the IRQL rule must not block a "processor".
            if looks || self.irql() >= DISPATCH_LEVEL {
                return status::TIMEOUT;
            }
            let slot = self.with_current_thread(|thread| {
                thread.waits.fetch_add(1, Ordering::Relaxed);
                thread.slot.clone()
            });
            let block = Arc::new(WaitBlock {
                slot,
                thread: me,
                objects: objects.iter().map(|header| HeaderRef::new(header)).collect(),
                all,
                result: AtomicI32::new(UNSATISFIED),
            });
            waits.add(&block);
            self.dispatcher.waiting.fetch_add(1, Ordering::Relaxed);
            block
        };
        let result = self.block(&block, deadline);
        self.dispatcher.waits.lock().remove(&block);
        self.dispatcher.waiting.fetch_sub(1, Ordering::Relaxed);
        if result == status::SYSTEM_SHUTDOWN {
            self.in_stopped_machine();
        }
        result
    }

    /// Parks until the block is satisfied, the deadline has passed or the machine has stopped.
    fn block(&self, block: &Arc<WaitBlock>, deadline: Option<Ticks>) -> NtStatus {
        loop {
            if self.rules.is_stopped() {
                return status::SYSTEM_SHUTDOWN;
            }
            self.sched.park(&block.slot, deadline);
            let result = block.result.load(Ordering::Acquire);
            if result != UNSATISFIED {
                return result;
            }
            if deadline.is_some_and(|deadline| self.now() >= deadline) {
                // Whoever signals does so under the lock: look once more under it, then nobody can satisfy us.
                let mut waits = self.dispatcher.waits.lock();
                waits.remove(block);
                let result = block.result.load(Ordering::Acquire);
                return if result == UNSATISFIED { status::TIMEOUT } else { result };
            }
        }
    }

    /// Machine time that an NT timeout names.
    pub(crate) fn deadline(&self, timeout: i64) -> Ticks {
        if timeout <= 0 {
            return self.now().saturating_add(timeout.unsigned_abs());
        }
        timeout.unsigned_abs().saturating_sub(crate::time::BOOT_SYSTEM_TIME)
    }

    /// Sleeps for as long as `interval` says: for the model itself and for tests. A driver's sleep is
    /// [`delay_by_clock`](Self::delay_by_clock).
    ///
    /// IRQL: at most APC_LEVEL.
    #[track_caller]
    pub fn delay_execution(&self, interval: i64) -> NtStatus {
        self.delay(interval, self.deadline(interval))
    }

    /// Sleeps until the first clock interrupt behind `interval`, as a driver that calls the service does
    /// ([`ClockOptions`](crate::time::ClockOptions)).
    ///
    /// IRQL: at most APC_LEVEL.
    #[doc(alias = "KeDelayExecutionThread")]
    #[track_caller]
    pub fn delay_by_clock(&self, interval: i64) -> NtStatus {
        self.delay(interval, self.end_of_delay(interval))
    }

    #[track_caller]
    fn delay(&self, interval: i64, deadline: Ticks) -> NtStatus {
        // CAST: printed only.
        let _service = self.service(&routines::KE_DELAY_EXECUTION_THREAD, [0, 0, interval as u64]);
        let held = cpu::with(|cpu| cpu.held_count());
        self.rules.check(&NT_WAIT_LOCKED, held == 0, || format!("a delay with {held} spin locks held"));
        if self.irql() < DISPATCH_LEVEL {
            self.sleep_until(deadline);
        }
        status::SUCCESS
    }

    /// Parks the calling thread until `deadline` or until the machine stops.
    pub(crate) fn sleep_until(&self, deadline: Ticks) {
        let slot = self.with_current_thread(|thread| thread.slot.clone());
        while self.now() < deadline && !self.rules.is_stopped() {
            self.sched.park(&slot, Some(deadline));
        }
    }
}
