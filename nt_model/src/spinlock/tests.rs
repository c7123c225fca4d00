use super::*;
use crate::kernel::{Kernel, KernelConfig};
use crate::rules_nt::NT_IRQL;
use crate::sched::TICKS_PER_MS;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

fn word() -> SpinLockWord {
    SpinLockWord::new(0)
}

#[test]
fn a_lock_excludes() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let lock = Arc::new(word());
    let count = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (inside, lock, count) = (kernel.clone(), lock.clone(), count.clone());
            kernel.spawn_system_thread("adder", move || {
                for _ in 0..500 {
                    let old = inside.acquire_spin_lock(&lock);
                    let value = count.load(Ordering::Relaxed);
                    std::hint::spin_loop();
                    count.store(value + 1, Ordering::Relaxed);
                    inside.release_spin_lock(&lock, old);
                }
            })
        })
        .collect();
    for thread in threads {
        kernel.wait_for_object(thread.header(), None);
    }
    assert_eq!(count.load(Ordering::Relaxed), 2000);
    assert_eq!(lock.load(Ordering::Relaxed), 0);
    assert!(kernel.rules.violations().is_empty());
}

#[test]
fn taking_a_lock_twice_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let lock = word();
    let old = kernel.acquire_spin_lock(&lock);
    kernel.acquire_spin_lock(&lock);
    assert!(kernel.rules.was_broken(&NT_SPIN_RECURSIVE));
    kernel.release_spin_lock(&lock, old);
    assert_eq!(lock.load(Ordering::Relaxed), 0);
}

#[test]
fn releasing_a_free_lock_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let lock = word();
    kernel.raise_irql(DISPATCH_LEVEL);
    kernel.release_spin_lock(&lock, 0);
    let violation = &kernel.rules.violations()[0];
    assert_eq!((violation.rule.name, violation.params[0]), (NT_SPIN_NOT_OWNED.name, 0x1007));
}

#[test]
fn releasing_at_passive_level_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let lock = word();
    kernel.acquire_spin_lock(&lock);
    kernel.lower_irql(0);
    assert!(kernel.rules.was_broken(&NT_IRQL_LOWER_LOCKED));
    kernel.release_spin_lock(&lock, 0);
    assert!(kernel.rules.was_broken(&NT_IRQL));
}

#[test]
fn acquiring_at_dpc_level_from_passive_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let lock = word();
    kernel.acquire_spin_lock_at_dpc(&lock);
    assert_eq!(kernel.rules.violations()[0].params[0], 0x40);
    kernel.release_spin_lock_from_dpc(&lock);
}

#[test]
fn an_impossible_old_level_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let lock = word();
    kernel.acquire_spin_lock(&lock);
    kernel.release_spin_lock(&lock, 0xCC);
    assert!(kernel.rules.was_broken(&NT_SPIN_OLD_IRQL));
}

#[test]
fn two_orders_are_caught_once() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let (a, b) = (word(), word());
    let both = |first: &SpinLockWord, second: &SpinLockWord| {
        let old = kernel.acquire_spin_lock(first);
        kernel.acquire_spin_lock_at_dpc(second);
        kernel.release_spin_lock_from_dpc(second);
        kernel.release_spin_lock(first, old);
    };
    both(&a, &b);
    both(&a, &b);
    assert!(kernel.rules.violations().is_empty());
    both(&b, &a);
    both(&b, &a);
    assert_eq!(kernel.rules.violations().len(), 1);
    assert!(kernel.rules.was_broken(&NT_SPIN_ORDER));
}

#[test]
fn a_lock_word_with_garbage_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let lock = SpinLockWord::new(0xCDCD_CDC0);
    let old = kernel.acquire_spin_lock(&lock);
    assert!(kernel.rules.was_broken(&NT_SPIN_KIND));
    kernel.release_spin_lock(&lock, old);
}

#[test]
fn a_stuck_lock_is_caught() {
    let kernel = Kernel::new(KernelConfig { spin_limit: TICKS_PER_MS, ..KernelConfig::collecting() });
    let _in = kernel.enter();
    let lock = SpinLockWord::new(0x1001);
    let old = kernel.acquire_spin_lock(&lock);
    assert!(kernel.rules.was_broken(&NT_SPIN_STUCK));
    kernel.release_spin_lock(&lock, old);
}

#[test]
fn shared_holders_share_and_an_exclusive_one_does_not() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let lock = std::sync::atomic::AtomicU32::new(0);
    let first = kernel.acquire_ex_spin_lock(&lock, false);
    let second = kernel.acquire_ex_spin_lock(&lock, false);
    assert_eq!(lock.load(Ordering::Relaxed), 2);
    kernel.release_ex_spin_lock(&lock, false, second);
    kernel.release_ex_spin_lock(&lock, false, first);
    let old = kernel.acquire_ex_spin_lock(&lock, true);
    kernel.release_ex_spin_lock(&lock, true, old);
    assert!(kernel.rules.violations().is_empty());
    assert_eq!(kernel.irql(), 0);
}

#[test]
fn a_queued_lock_remembers_the_level() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let (lock, handle) = (word(), LockQueueHandle::default());
    kernel.acquire_queued_lock(&lock, &handle, true);
    assert_eq!(kernel.irql(), DISPATCH_LEVEL);
    kernel.release_queued_lock(&lock, &handle, true);
    assert_eq!((kernel.irql(), lock.load(Ordering::Relaxed)), (0, 0));
}
