//! IRQL, spin locks, DPCs, timers, clocks, processors.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::callback;
use crate::records::{KDPC, KTIMER, LockQueueHandle};
use crate::routines;
use crate::sched::TICKS_PER_SECOND;
use crate::shim::{In, Out};
use crate::shims;

shims! {
    pub(crate) table SYNC;

    fn KeGetCurrentIrql(m) -> u8 {
        m.irql()
    }

    fn KfRaiseIrql(m, new: u8) -> u8 {
        m.raise_irql(new)
    }

    fn KeLowerIrql(m, new: u8) {
        m.lower_irql(new);
    }

    fn KfLowerIrql(m, new: u8) {
        m.lower_irql(new);
    }

    fn KeRaiseIrqlToDpcLevel(m) -> u8 {
        m.raise_irql(routines::DISPATCH_LEVEL)
    }

    fn KeInitializeSpinLock(_m, word: Out<u64>) {
        word.set(0);
    }

    fn KeAcquireSpinLockRaiseToDpc(m, word: In<AtomicU64>) -> u8 {
        m.acquire_spin_lock(word.get())
    }

    fn KeReleaseSpinLock(m, word: In<AtomicU64>, old: u8) {
        m.release_spin_lock(word.get(), old);
    }

    fn KeAcquireSpinLockAtDpcLevel(m, word: In<AtomicU64>) {
        m.acquire_spin_lock_at_dpc(word.get());
    }

    fn KeReleaseSpinLockFromDpcLevel(m, word: In<AtomicU64>) {
        m.release_spin_lock_from_dpc(word.get());
    }

    fn KeTryToAcquireSpinLockAtDpcLevel(m, word: In<AtomicU64>) -> u8 {
        m.try_acquire_spin_lock_at_dpc(word.get()).into()
    }

    fn KeTestSpinLock(m, word: In<AtomicU64>) -> u8 {
        m.test_spin_lock(word.get()).into()
    }

    fn KeAcquireInStackQueuedSpinLock(m, word: In<AtomicU64>, handle: In<LockQueueHandle>) {
        m.acquire_queued_lock(word.get(), handle.get(), true);
    }

    fn KeReleaseInStackQueuedSpinLock(m, handle: In<LockQueueHandle>) {
        let word = shims::pointer(handle.get().lock.load(Ordering::Relaxed));
        m.release_queued_lock(word.get(), handle.get(), true);
    }

    fn KeAcquireInStackQueuedSpinLockAtDpcLevel(m, word: In<AtomicU64>, handle: In<LockQueueHandle>) {
        m.acquire_queued_lock(word.get(), handle.get(), false);
    }

    fn KeReleaseInStackQueuedSpinLockFromDpcLevel(m, handle: In<LockQueueHandle>) {
        let word = shims::pointer(handle.get().lock.load(Ordering::Relaxed));
        m.release_queued_lock(word.get(), handle.get(), false);
    }

    fn ExAcquireSpinLockExclusive(m, word: In<AtomicU32>) -> u8 {
        m.acquire_ex_spin_lock(word.get(), true)
    }

    fn ExReleaseSpinLockExclusive(m, word: In<AtomicU32>, old: u8) {
        m.release_ex_spin_lock(word.get(), true, old);
    }

    fn ExAcquireSpinLockShared(m, word: In<AtomicU32>) -> u8 {
        m.acquire_ex_spin_lock(word.get(), false)
    }

    fn ExReleaseSpinLockShared(m, word: In<AtomicU32>, old: u8) {
        m.release_ex_spin_lock(word.get(), false, old);
    }

    fn KeInitializeDpc(m, dpc: In<KDPC>, routine: usize, context: usize) {
        m.initialize_dpc(dpc.get(), routine, context, false);
    }

    fn KeInitializeThreadedDpc(m, dpc: In<KDPC>, routine: usize, context: usize) {
        m.initialize_dpc(dpc.get(), routine, context, true);
    }

    fn KeInsertQueueDpc(m, dpc: In<KDPC>, argument1: usize, argument2: usize) -> u8 {
        m.insert_queue_dpc(dpc.get(), argument1, argument2).into()
    }

    fn KeRemoveQueueDpc(m, dpc: In<KDPC>) -> u8 {
        m.remove_queue_dpc(dpc.get()).into()
    }

    // Importance and target are kept in the record, and change nothing: where DPCs run is `DpcDelivery`.
    fn KeSetImportanceDpc(_m, dpc: In<KDPC>, importance: u32) {
        // CAST: one of four small numbers.
        dpc.get().importance.store(importance as u8, Ordering::Relaxed);
    }

    fn KeSetTargetProcessorDpc(_m, dpc: In<KDPC>, processor: u8) {
        dpc.get().number.store(u16::from(processor) + 1, Ordering::Relaxed);
    }

    fn KeSetTargetProcessorDpcEx(_m, dpc: In<KDPC>, processor: In<u32>) -> i32 {
        // PROCESSOR_NUMBER: group in the low 16 bits, number in the next byte. CAST: that byte.
        dpc.get().number.store(u16::from((*processor.get() >> 16) as u8) + 1, Ordering::Relaxed);
        0
    }

    fn KeFlushQueuedDpcs(m) {
        m.flush_queued_dpcs();
    }

    fn KeInitializeTimer(m, timer: In<KTIMER>) {
        m.initialize_timer(timer.get(), false);
    }

    fn KeInitializeTimerEx(m, timer: In<KTIMER>, kind: u32) {
        m.initialize_timer(timer.get(), kind != 0);
    }

    fn KeSetTimer(m, timer: In<KTIMER>, due: i64, dpc: In<KDPC>) -> u8 {
        m.set_timer(timer.get(), due, 0, dpc.get_opt()).into()
    }

    fn KeSetTimerEx(m, timer: In<KTIMER>, due: i64, period: u32, dpc: In<KDPC>) -> u8 {
        m.set_timer(timer.get(), due, period, dpc.get_opt()).into()
    }

    fn KeSetCoalescableTimer(m, timer: In<KTIMER>, due: i64, period: u32, _tolerable: u32, dpc: In<KDPC>) -> u8 {
        m.set_timer(timer.get(), due, period, dpc.get_opt()).into()
    }

    fn KeCancelTimer(m, timer: In<KTIMER>) -> u8 {
        m.cancel_timer(timer.get()).into()
    }

    fn KeReadStateTimer(m, timer: In<KTIMER>) -> u8 {
        m.read_timer(timer.get()).into()
    }

    fn KeQueryPerformanceCounter(m, frequency: Out<u64>) -> u64 {
        frequency.set_opt(TICKS_PER_SECOND);
        m.query_performance_counter()
    }

    fn KeQueryInterruptTime(m) -> u64 {
        m.query_interrupt_time(false)
    }

    fn KeQueryUnbiasedInterruptTime(m) -> u64 {
        m.query_interrupt_time(false)
    }

    fn KeQueryInterruptTimePrecise(m, counter: Out<u64>) -> u64 {
        counter.set_opt(m.query_performance_counter());
        m.query_interrupt_time(true)
    }

    fn KeQuerySystemTime(m, time: Out<u64>) {
        time.set(m.query_system_time(false));
    }

    fn KeQuerySystemTimePrecise(m, time: Out<u64>) {
        time.set(m.query_system_time(true));
    }

    fn KeQueryTickCount(m, count: Out<u64>) {
        count.set(m.query_tick_count());
    }

    fn KeQueryTimeIncrement(m) -> u32 {
        // CAST: 156,250, or what a test says.
        m.config().clock.tick as u32
    }

    fn ExSetTimerResolution(m, desired: u32, sets: u8) -> u32 {
        m.set_timer_resolution(desired, sets != 0)
    }

    fn KeStallExecutionProcessor(m, microseconds: u32) {
        m.stall_execution(microseconds);
    }

    fn KeQueryActiveProcessorCount(m, affinity: Out<u64>) -> u32 {
        let count = m.config().processors;
        affinity.set_opt((1 << count.min(63)) - 1);
        count
    }

    fn KeQueryActiveProcessorCountEx(m, _group: u16) -> u32 {
        m.config().processors
    }

    fn KeQueryMaximumProcessorCount(m) -> u32 {
        m.config().processors
    }

    fn KeQueryMaximumProcessorCountEx(m, _group: u16) -> u32 {
        m.config().processors
    }

    fn KeQueryActiveProcessors(m) -> u64 {
        (1 << m.config().processors.min(63)) - 1
    }

    fn KeQueryActiveGroupCount(_m) -> u16 {
        1
    }

    fn KeGetCurrentProcessorNumberEx(m, number: Out<u32>) -> u32 {
        let processor = m.current_processor();
        number.set_opt(processor << 16);
        processor
    }

    // Affinities are accepted and change nothing.
    fn KeSetSystemAffinityThreadEx(m, _affinity: u64) -> u64 {
        let _service = m.service(&routines::KE_SET_SYSTEM_AFFINITY_THREAD_EX, []);
        0
    }

    fn KeRevertToUserAffinityThreadEx(m, _affinity: u64) {
        let _service = m.service(&routines::KE_REVERT_TO_USER_AFFINITY_THREAD_EX, []);
    }

    // Runs the function here, as if this were the only processor.
    fn KeIpiGenericCall(m, function: usize, context: usize) -> usize {
        let _service = m.service(&routines::KE_IPI_GENERIC_CALL, [function as u64, context as u64]);
        let old = m.irql();
        m.set_irql(routines::IPI_LEVEL);
        let result = m.call_driver("IPI broadcast function", || callback::invoke(function, [context]));
        m.set_irql(old);
        result.unwrap_or(0)
    }
}
