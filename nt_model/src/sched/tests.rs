use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;

use super::*;
use crate::dispatcher::Event;
use crate::dpc::Dpc;
use crate::kernel::{Kernel, KernelConfig};
use crate::records::{KTIMER, status};
use crate::rules_nt::NT_DEADLOCK;
use crate::sched::{TICKS_PER_MS, TICKS_PER_SECOND};

fn kernel(scheduler: &Arc<SeededScheduler>) -> Kernel {
    Kernel::new(KernelConfig { scheduler: Some(scheduler.clone()), ..KernelConfig::collecting() })
}

fn seeded(seed: u64) -> Arc<SeededScheduler> {
    SeededScheduler::new(SeededOptions { one_in: 2, ..SeededOptions::new(seed) })
}

/// Two threads add to a counter ten times each, reading and writing it in two steps. Returns the sum.
fn racing_counter(scheduler: &Arc<SeededScheduler>) -> u64 {
    let kernel = kernel(scheduler);
    let _in = kernel.enter();
    let count = Arc::new(AtomicU64::new(0));
    let threads = [0, 1].map(|_| {
        let (machine, count) = (kernel.arc(), count.clone());
        kernel.spawn_system_thread("adder", move || {
            for _ in 0..10 {
                let value = count.load(Ordering::Relaxed);
                machine.yield_point(YieldPoint::Custom(1));
                count.store(value + 1, Ordering::Relaxed);
            }
        })
    });
    for thread in threads {
        kernel.wait_for_object(thread.header(), None);
    }
    count.load(Ordering::Relaxed)
}

#[test]
fn a_seed_decides_everything() {
    let mut sums = BTreeSet::new();
    for seed in 0..20 {
        let (first, second) = (seeded(seed), seeded(seed));
        let sum = racing_counter(&first);
        assert_eq!(sum, racing_counter(&second));
        assert_eq!(first.decisions(), second.decisions());
        assert!(!first.decisions().is_empty());
        sums.insert(sum);
    }
    assert!(sums.len() > 3, "different seeds, different interleavings: {sums:?}");
    assert!(sums.iter().any(|sum| *sum < 20), "a lost update is found");
}

#[test]
fn recorded_decisions_are_followed() {
    let original = seeded(3);
    let sum = racing_counter(&original);
    let replay = SeededScheduler::replay(original.decisions());
    assert_eq!(racing_counter(&replay), sum);
    assert_eq!(replay.decisions(), original.decisions());
}

#[test]
fn an_hour_passes_at_once() {
    let scheduler = seeded(1);
    let kernel = kernel(&scheduler);
    let _in = kernel.enter();
    let before = kernel.now();
    // CAST: a small constant.
    kernel.delay_execution(-(3600 * TICKS_PER_SECOND as i64));
    assert!(kernel.now() - before >= 3600 * TICKS_PER_SECOND);
    let event = Event::notification(false);
    assert_eq!(kernel.wait_for_event(&event, Some(-10_000)), status::TIMEOUT);
}

#[test]
fn timers_and_their_dpcs_run_in_virtual_time() {
    let scheduler = seeded(2);
    let kernel = kernel(&scheduler);
    let _in = kernel.enter();
    let ticks = Arc::new(AtomicU64::new(0));
    let count = ticks.clone();
    let dpc = Dpc::new(&kernel, move |_, _| _ = count.fetch_add(1, Ordering::Relaxed));
    let timer = Box::new(KTIMER::default());
    kernel.initialize_timer(&timer, false);
    // Once per tick of the clock at most, and otherwise as often as asked for.
    for (period, expected) in [(1, 64), (20, 50)] {
        kernel.set_timer(&timer, -10_000, period, Some(dpc.as_kdpc()));
        let start = kernel.now();
        // CAST: a small constant.
        kernel.delay_execution(-(1000 * TICKS_PER_MS as i64));
        kernel.cancel_timer(&timer);
        let seen = ticks.swap(0, Ordering::Relaxed);
        let time = (kernel.now() - start) / TICKS_PER_MS;
        assert!(seen.abs_diff(expected) <= 2, "every {period} ms: {seen} in {time} ms");
    }
    assert!(kernel.rules.violations().is_empty());
}

#[test]
fn a_spin_lock_is_handed_on() {
    for seed in 0..10 {
        let scheduler = seeded(seed);
        let kernel = kernel(&scheduler);
        let _in = kernel.enter();
        let lock = Arc::new(AtomicU64::new(0));
        let inside = Arc::new(AtomicU64::new(0));
        let threads = [0, 1, 2].map(|_| {
            let (machine, lock, inside) = (kernel.arc(), lock.clone(), inside.clone());
            kernel.spawn_system_thread("locker", move || {
                for _ in 0..20 {
                    let old = machine.acquire_spin_lock(&lock);
                    assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                    machine.yield_point(YieldPoint::Custom(0));
                    inside.fetch_sub(1, Ordering::Relaxed);
                    machine.release_spin_lock(&lock, old);
                }
            })
        });
        for thread in threads {
            assert_eq!(kernel.wait_for_object(thread.header(), None), status::SUCCESS);
        }
        assert!(kernel.rules.violations().is_empty(), "{:?}", kernel.rules.violations());
    }
}

#[test]
fn a_deadlock_is_named_and_everybody_wakes() {
    let scheduler = seeded(5);
    let kernel = kernel(&scheduler);
    let _in = kernel.enter();
    let events = Arc::new([Event::notification(false), Event::notification(false)]);
    let threads = [0, 1].map(|at: usize| {
        let (machine, events) = (kernel.arc(), events.clone());
        kernel.spawn_system_thread("waiter", move || {
            // Each waits for what only the other would set after its own wait.
            machine.wait_for_event(&events[at], None);
            machine.set_event(events[1 - at].as_kevent(), false);
        })
    });
    // The wait ends because the machine stopped, or because the thread was unwound first.
    kernel.wait_for_object(threads[0].header(), None);
    assert!(kernel.rules.was_broken(&NT_DEADLOCK));
    while !threads.iter().all(|thread| thread.has_ended()) {
        std::thread::yield_now();
    }
}

/// Prints how fast schedules are explored. Run with `--ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn cost_of_exploration() {
    const SCHEDULES: u64 = 2_000;
    let start = std::time::Instant::now();
    let (mut steps, mut switches) = (0, 0);
    for seed in 0..SCHEDULES {
        let scheduler = seeded(seed);
        racing_counter(&scheduler);
        steps += scheduler.steps();
        switches += scheduler.decisions().len() as u64;
    }
    let elapsed = start.elapsed();
    println!(
        "{SCHEDULES} schedules in {elapsed:?}: {steps} steps, {switches} switches, {} ns a switch",
        elapsed.as_nanos() as u64 / switches
    );
}
