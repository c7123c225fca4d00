//! PARK-1 and DEAD-1, with the functions that the driver calls for the CPU: `Fence::signal_from_cpu` and
//! `Fence::set_always_signaled`.

use crate::{LoomHost, W, caught, check, chosen, word};
use gpu_engine::fence::{Fence, Park};
use gpu_engine::mutation::Mutation;
use gpu_engine::slots::SlotId;
use gpu_engine::word::{Ordering, Word};
use loom::sync::Arc;

type Queues = Arc<Fence<LoomHost, u64>>;

fn fence() -> Queues {
    Arc::new(Fence::new(SlotId { index: 0, generation: 1 }, false))
}

/// A queue that parks for 5 against an agent that makes the wait true: `makes_true` returns how many it woke.
fn parks(mutation: u32, makes_true: fn(&Queues, &W, u32) -> u32) {
    let (current, fence) = (word(0), fence());
    let agent = {
        let (current, fence) = (current.clone(), fence.clone());
        loom::thread::spawn(move || makes_true(&fence, &current, mutation) == 1)
    };
    let parked = fence.parked.park(5, 1, &7, &chosen(mutation), || current.load(Ordering::Acquire) < 5);
    let woken = agent.join().expect("no panic");
    assert_eq!(parked, Ok(if woken { Park::Parked } else { Park::Met }), "it sleeps for ever, or would run twice");
    assert!(fence.parked.is_empty());
}

fn against_a_signal(mutation: u32) {
    parks(mutation, |fence, current, mutation| fence.signal_from_cpu(current, 5, &chosen(mutation), |_, _| ()));
}

/// The device is lost; its last value is below what the queue waits for, or none is stored.
fn against_the_end(mutation: u32) {
    parks(mutation, |fence, current, _| {
        let woken = std::cell::Cell::new(0);
        fence.set_always_signaled(Some((current, 1)), |_, _| woken.set(woken.get() + 1));
        woken.get()
    });
}

#[test]
fn park_1_a_signal_from_the_cpu_wakes_who_waits() {
    check(|| against_a_signal(0));
}

#[test]
fn park_1_a_signal_from_the_cpu_needs_the_second_look() {
    caught(Mutation::NoParkRecheck, against_a_signal);
}

#[test]
fn park_1_a_signal_from_the_cpu_needs_the_barrier() {
    caught(Mutation::NoSignalBarrier, against_a_signal);
}

#[test]
fn park_1_the_end_of_a_fence_wakes_who_waits() {
    check(|| against_the_end(0));
}

#[test]
fn park_1_the_end_of_a_fence_needs_the_second_look() {
    caught(Mutation::NoParkRecheck, against_the_end);
}

/// A signal from the CPU against the end of the fence's device: its last value stays.
fn last_value(mutation: u32) {
    let (current, fence) = (word(0), fence());
    let signal = {
        let (current, fence) = (current.clone(), fence.clone());
        loom::thread::spawn(move || fence.signal_from_cpu(&*current, 5, &chosen(mutation), |_, _| ()))
    };
    fence.set_always_signaled(Some((&*current, u64::MAX)), |_, _| ());
    let _woken = signal.join().expect("no panic");
    assert_eq!(current.load(Ordering::Acquire), u64::MAX);
}

#[test]
fn dead_1_no_signal_of_the_cpu_is_stored_behind_the_last_value() {
    check(|| last_value(0));
}

#[test]
fn dead_1_needs_the_look_whether_the_fence_is_dead() {
    caught(Mutation::WritesDeadFence, last_value);
}
