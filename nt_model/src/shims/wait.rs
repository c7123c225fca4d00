//! Events, semaphores, mutexes, fast mutexes, waits.

use std::sync::atomic::Ordering;

use crate::records::{DispatcherHeader, FastMutex, KEVENT, KMUTANT, KSEMAPHORE, status, status::NtStatus};
use crate::routines::{self, APC_LEVEL};
use crate::shim::In;
use crate::shims;
use crate::thread::Thread;

shims! {
    pub(crate) table WAIT;

    fn KeInitializeEvent(m, event: In<KEVENT>, kind: u32, state: u8) {
        m.initialize_event(event.get(), kind != 0, state != 0);
    }

    fn KeSetEvent(m, event: In<KEVENT>, _increment: i32, wait: u8) -> i32 {
        m.set_event(event.get(), wait != 0).into()
    }

    fn KePulseEvent(m, event: In<KEVENT>, _increment: i32, _wait: u8) -> i32 {
        m.pulse_event(event.get()).into()
    }

    fn KeResetEvent(m, event: In<KEVENT>) -> i32 {
        m.reset_event(event.get()).into()
    }

    fn KeClearEvent(m, event: In<KEVENT>) {
        m.reset_event(event.get());
    }

    fn KeReadStateEvent(m, event: In<KEVENT>) -> i32 {
        m.read_event(event.get()).into()
    }

    fn KeInitializeSemaphore(m, semaphore: In<KSEMAPHORE>, count: i32, limit: i32) {
        m.initialize_semaphore(semaphore.get(), count, limit);
    }

    fn KeReleaseSemaphore(m, semaphore: In<KSEMAPHORE>, _increment: i32, adjustment: i32, wait: u8) -> i32 {
        m.release_semaphore(semaphore.get(), adjustment, wait != 0)
    }

    fn KeReadStateSemaphore(m, semaphore: In<KSEMAPHORE>) -> i32 {
        let _service = m.service(&routines::KE_READ_STATE_SEMAPHORE, [semaphore.address() as u64]);
        semaphore.get().header.signal_state.load(Ordering::SeqCst)
    }

    fn KeInitializeMutex(m, mutex: In<KMUTANT>, _level: u32) {
        m.initialize_mutex(mutex.get());
    }

    fn KeReleaseMutex(m, mutex: In<KMUTANT>, wait: u8) -> i32 {
        m.release_mutex(mutex.get(), wait != 0)
    }

    fn KeReadStateMutex(m, mutex: In<KMUTANT>) -> i32 {
        let _service = m.service(&routines::KE_READ_STATE_MUTEX, [mutex.address() as u64]);
        mutex.get().header.signal_state.load(Ordering::SeqCst)
    }

    // Alertable and user-mode waits wait like any other: no APCs are modelled.
    fn KeWaitForSingleObject(
        m, object: In<DispatcherHeader>, _reason: u32, _mode: u8, _alertable: u8, timeout: In<i64>,
    ) -> NtStatus {
        m.wait_by_clock(object.get(), timeout.get_opt().copied())
    }

    fn KeWaitForMultipleObjects(
        m, count: u32, objects: In<In<DispatcherHeader>>, kind: u32, _reason: u32, _mode: u8, _alertable: u8,
        timeout: In<i64>, _blocks: usize,
    ) -> NtStatus {
        let count = (count as usize).min(crate::dispatcher::MAXIMUM_WAIT_OBJECTS + 1);
        let list = crate::shim::read_bytes(objects.address(), count * 8);
        let objects: Vec<&DispatcherHeader> = list
            .chunks_exact(8)
            .map(|chunk| usize::from_le_bytes(chunk.try_into().unwrap_or_default()))
            .map(|address| shims::pointer::<DispatcherHeader>(address).get())
            .collect();
        // WaitAll is 0, WaitAny 1.
        m.wait_for_objects_by_clock(&objects, kind == 0, timeout.get_opt().copied())
    }

    fn KeDelayExecutionThread(m, _mode: u8, _alertable: u8, interval: In<i64>) -> NtStatus {
        m.delay_by_clock(*interval.get())
    }

    // No APCs are modelled, so there are none to hold off.
    fn KeEnterCriticalRegion(m) {
        let _service = m.service(&routines::KE_ENTER_CRITICAL_REGION, []);
    }

    fn KeLeaveCriticalRegion(m) {
        let _service = m.service(&routines::KE_LEAVE_CRITICAL_REGION, []);
    }

    fn KeEnterGuardedRegion(m) {
        let _service = m.service(&routines::KE_ENTER_CRITICAL_REGION, []);
    }

    fn KeLeaveGuardedRegion(m) {
        let _service = m.service(&routines::KE_LEAVE_CRITICAL_REGION, []);
    }

    fn KeAreApcsDisabled(m) -> u8 {
        (m.irql() >= APC_LEVEL).into()
    }

    fn ExInitializeFastMutex(m, mutex: In<FastMutex>) {
        let mutex = mutex.get();
        mutex.count.store(1, Ordering::Relaxed);
        mutex.owner.store(0, Ordering::Relaxed);
        mutex.contention.store(0, Ordering::Relaxed);
        m.initialize_event(&mutex.event, true, false);
    }

    fn ExAcquireFastMutex(m, mutex: In<FastMutex>) {
        let _service = m.service(&routines::EX_ACQUIRE_FAST_MUTEX, [mutex.address() as u64]);
        let mutex = mutex.get();
        let old = m.irql();
        while mutex.count.compare_exchange(1, 0, Ordering::Acquire, Ordering::Relaxed).is_err() {
            mutex.contention.fetch_add(1, Ordering::Relaxed);
            // One millisecond: a wake-up between look and wait is found then.
            if m.wait_for_object(&mutex.event.header, Some(-10_000)) == status::SYSTEM_SHUTDOWN {
                break;
            }
        }
        m.set_irql(APC_LEVEL.max(old));
        mutex.owner.store(m.with_current_thread(Thread::address), Ordering::Relaxed);
        mutex.old_irql.store(old.into(), Ordering::Relaxed);
    }

    fn ExTryToAcquireFastMutex(m, mutex: In<FastMutex>) -> u8 {
        let _service = m.service(&routines::EX_TRY_TO_ACQUIRE_FAST_MUTEX, [mutex.address() as u64]);
        let mutex = mutex.get();
        let taken = mutex.count.compare_exchange(1, 0, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if taken {
            let old = m.irql();
            m.set_irql(APC_LEVEL.max(old));
            mutex.owner.store(m.with_current_thread(Thread::address), Ordering::Relaxed);
            mutex.old_irql.store(old.into(), Ordering::Relaxed);
        }
        taken.into()
    }

    fn ExReleaseFastMutex(m, mutex: In<FastMutex>) {
        let _service = m.service(&routines::EX_RELEASE_FAST_MUTEX, [mutex.address() as u64]);
        let mutex = mutex.get();
        let me = m.with_current_thread(Thread::address);
        let owner = mutex.owner.load(Ordering::Relaxed);
        m.rules.check(&crate::rules_nt::NT_MUTEX_NOT_OWNED, owner == me, || {
            format!("the fast mutex is owned by {owner:#x}, not by {me:#x}")
        });
        // CAST: an IRQL.
        let old = mutex.old_irql.load(Ordering::Relaxed) as u8;
        mutex.owner.store(0, Ordering::Relaxed);
        mutex.count.store(1, Ordering::Release);
        m.set_event(&mutex.event, false);
        m.set_irql(old.min(m.irql()));
    }
}
