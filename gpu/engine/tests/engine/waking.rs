//! A signal that wakes more queues than an engine wakes between two looks.

use crate::support::{Range, Rig, TestFence, TestHost, TestQueue};
use gpu_engine::engine::Step;
use gpu_engine::fence::{Park, ParkingLot, Woken};
use gpu_engine::mutation::Chosen;
use gpu_engine::node::Control;
use gpu_engine::word::{Ordering, Word};
use gpu_wire::packet::{self, Encoded};
use std::sync::{Arc, Mutex};

/// Queues that wait in the tests, and those that are woken at once.
const QUEUES: u64 = 300;
const AT_ONCE: u64 = 64;

/// Queues of node 1 that wait for value 1 of `fence`; then each stores 1 to its word of `done`.
pub fn waiters(rig: &mut Rig, fence: &TestFence, count: u64, done: Range) -> Vec<TestQueue> {
    let context = rig.context(1);
    let waiting: Vec<_> = (0..count)
        .map(|i| {
            let mut queue = rig.queue_of(&context, 1);
            let store = packet::Store { address: done.at(i * 8).0, value: 1 }.to_packet();
            queue.submit(&[Encoded::fence_wait(fence.current.va, 1), store]);
            rig.settle();
            queue
        })
        .collect();
    assert_eq!(fence.fence.parked.len(), count);
    waiting
}

/// How many of `count` queues have gone on.
fn gone_on(done: Range, count: u64) -> u64 {
    (0..count).map(|i| done.read(i * 8)).sum()
}

/// A queue whose signal, its last packet, has let the waiters go, and the first of them are awake.
fn signaled() -> (Rig, TestQueue, TestFence, Range, Vec<TestQueue>) {
    let mut rig = Rig::new();
    let (mut q, f, done) = (rig.queue(0, 0), rig.fence(), rig.map(1, false));
    let waiting = waiters(&mut rig, &f, QUEUES, done);
    q.submit(&[Encoded::fence_signal(f.current.va, 1)]);
    assert_eq!(rig.engines[0].step(), Step::Worked);
    assert_eq!((f.current.read(0), f.fence.parked.len()), (1, QUEUES - AT_ONCE));
    (rig, q, f, done, waiting)
}

#[test]
pub(crate) fn an_engine_that_is_held_wakes_them_all() {
    let (mut rig, _q, f, done, _waiting) = signaled();
    rig.gpu.command(0, Control::Hold);
    rig.settle_waiting();
    assert_eq!((f.fence.parked.len(), gone_on(done, QUEUES)), (0, QUEUES));
}

#[test]
fn a_queue_that_is_stopped_behind_its_signal_has_signaled() {
    let (mut rig, q, f, done, _waiting) = signaled();
    rig.gpu.destroy_queue(&q.queue);
    rig.settle();
    assert_eq!((f.fence.parked.len(), gone_on(done, QUEUES)), (0, QUEUES));
}

/// An engine that is asked to come off does, whatever is left to wake.
#[test]
fn a_suspension_is_answered_before_all_are_awake() {
    let (mut rig, q, f, done, _waiting) = signaled();
    rig.gpu.suspend(&q.queue.context, 7);
    rig.engines[0].step();
    assert!(!f.fence.parked.is_empty());
    assert!(!rig.drain().is_empty(), "the suspension was answered");
    rig.settle();
    assert_eq!((f.fence.parked.len(), gone_on(done, QUEUES)), (0, QUEUES));
}

/// Two signals one behind the other, of two fences: the second keeps the queues of the first.
#[test]
fn two_signals_wake_what_waits_for_each() {
    let mut rig = Rig::new();
    let (mut q, [f, g], [d, e]) = (rig.queue(0, 0), [rig.fence(), rig.fence()], [rig.map(1, false), rig.map(1, false)]);
    let _waiting = [waiters(&mut rig, &f, QUEUES, d), waiters(&mut rig, &g, QUEUES, e)];
    q.submit(&[Encoded::fence_signal(f.current.va, 1), Encoded::fence_signal(g.current.va, 1)]);
    assert_eq!(rig.engines[0].step(), Step::Worked);
    assert_eq!([&f, &g].map(|fence| fence.fence.parked.len()), [QUEUES - AT_ONCE; 2]);
    rig.settle();
    assert_eq!([d, e].map(|done| gone_on(done, QUEUES)), [QUEUES; 2]);
}

/// A wait that begins when the value has gone back is none of those that the signal lets go.
#[test]
fn a_wait_that_begins_behind_the_signal_reads_the_value() {
    let (mut rig, _q, f, done, _waiting) = signaled();
    f.current.word(0).store(0, Ordering::SeqCst);
    let own = rig.map(1, false);
    let mut late = rig.queue(1, 2);
    let store = packet::Store { address: own.va.0, value: 1 }.to_packet();
    late.submit(&[Encoded::fence_wait(f.current.va, 1), store]);
    for _ in 0..AT_ONCE * 2 {
        rig.engines[1].step();
    }
    assert_eq!(f.fence.parked.len(), QUEUES - AT_ONCE + 1);
    rig.settle();
    assert_eq!((own.read(0), f.fence.parked.len(), gone_on(done, QUEUES)), (0, 1, QUEUES));
}

/// The same where the value goes back between the store and the first look at what waits.
#[test]
pub fn a_wait_that_begins_behind_the_store_reads_the_value() {
    let mut rig = Rig::new();
    let (mut q, mut late, f) = (rig.queue(0, 0), rig.queue(1, 2), rig.fence());
    let (own, other) = (rig.map(1, false), rig.map(1, false));
    let store = |at: &Range, value| packet::Store { address: at.va.0, value }.to_packet();
    // Both engines have mapped what they need, but for the page that the hook stands at.
    q.submit(&[Encoded::fence_signal(f.current.va, 1)]);
    late.submit(&[Encoded::fence_wait(f.current.va, 1), store(&own, 1)]);
    rig.settle();
    late.submit(&[Encoded::fence_wait(f.current.va, 5), store(&own, 2)]);
    let second = Arc::new(Mutex::new(rig.engines.remove(1)));
    let (engine, current) = (second.clone(), f.current);
    *rig.gpu.host.on_map.lock().unwrap() = Some(Box::new(move || {
        current.word(0).store(0, Ordering::SeqCst);
        for _ in 0..4 {
            engine.lock().unwrap().step();
        }
    }));
    q.submit(&[Encoded::fence_signal(f.current.va, 5), store(&other, 1)]);
    for _ in 0..4 {
        rig.engines[0].step();
    }
    assert_eq!(other.read(0), 1);
    for _ in 0..4 {
        second.lock().unwrap().step();
    }
    assert_eq!((own.read(0), f.fence.parked.len()), (1, 1), "it waits for a value that was there before it");
}

/// Waits that begin behind a signal lie in front of those that it lets go, where they are for less. What is searched
/// behind them counts as queues that are woken, and each that was parked before is woken in the end.
#[test]
fn what_is_searched_behind_later_waits_counts() {
    const LATER: u64 = 60_000;
    let lot = ParkingLot::<TestHost, u64>::new();
    let park = |value, ticket| assert_eq!(lot.park(value, ticket, &ticket, &Chosen::none(), || true), Ok(Park::Parked));
    (0..QUEUES).for_each(|ticket| park(5, ticket));
    let Woken { mut woken, more: mut until, .. } = lot.wake_some(5, None, AT_ONCE as u32, |_, _| ());
    assert_eq!(u64::from(woken), AT_ONCE);
    (0..LATER).for_each(|i| park(1, QUEUES + i));
    while until.is_some() {
        let part = lot.wake_some(5, until, AT_ONCE as u32, |_, ticket| assert!(ticket < QUEUES));
        // One search may be of all that are parked; it is the last one, and the next one is another part's.
        assert!(part.woken <= 8, "{part:?} behind {LATER} later ones");
        assert!(part.woken > 0 || part.more.is_none(), "a part without progress");
        // The one that finds none has searched as much.
        assert!(u64::from(part.counted()) >= LATER / 64 || part.woken > 0, "{part:?} is charged too little");
        (woken, until) = (woken + part.woken, part.more);
    }
    assert_eq!((u64::from(woken), lot.len()), (QUEUES, LATER));
}

/// An agent that took a queue out of a wait and is late says so when the next wait of that queue is over too: it takes
/// nothing of that back.
#[test]
fn a_late_waker_takes_no_wake_back() {
    let mut rig = Rig::new();
    let (mut q, f, done) = (rig.queue(0, 0), rig.fence(), rig.map(1, false));
    let ticket = rig.gpu.next_ticket();
    q.submit(&[Encoded::fence_wait(f.current.va, 5), packet::Store { address: done.va.0, value: 1 }.to_packet()]);
    rig.settle();
    assert!(f.fence.parked.remove(ticket, || None));
    q.queue.wake(ticket, true, 1);
    q.queue.wake(ticket - 1, false, 1);
    rig.gpu.make_ready(&q.queue);
    rig.settle();
    assert_eq!(done.read(0), 1);
}

/// Queues that leave a fence's list do so wherever they stand in it, and the others are woken in the order of their
/// values.
#[test]
fn a_queue_is_found_in_its_fences_list_wherever_it_stands() {
    const QUEUES: u64 = 150;
    let mut rig = Rig::new();
    let (f, done) = (rig.fence(), rig.map(1, false));
    let context = rig.context(0);
    let mut queues: Vec<_> = (0..QUEUES).map(|_| rig.queue_of(&context, 0)).collect();
    rig.settle();
    for (number, queue) in (0..).zip(&mut queues) {
        // Values in no order.
        let value = 1 + number * 67 % QUEUES;
        let store = packet::Store { address: done.at(8 * number).0, value: 1 }.to_packet();
        queue.publish(&[Encoded::fence_wait(f.current.va, value), store]);
        rig.gpu.make_ready(&queue.queue);
    }
    rig.settle();
    assert_eq!(f.fence.parked.len(), QUEUES);
    let gone: Vec<u64> = (0..QUEUES).step_by(3).map(|number| number * 31 % QUEUES).collect();
    for (left, number) in (1..).zip(&gone) {
        rig.gpu.destroy_queue(&queues[*number as usize].queue);
        assert_eq!(f.fence.parked.len(), QUEUES - left, "queue {number} stays in the list");
    }
    let gpu = rig.gpu.clone();
    let signal = |value| {
        f.fence.signal_from_cpu(&f.current.word(0), value, &gpu.mutation, |queue, ticket| {
            queue.wake(ticket, true, 0);
            gpu.make_ready(&queue);
        })
    };
    signal(QUEUES / 2);
    rig.settle();
    let expected = |until: u64| (0..QUEUES).filter(move |number| number * 67 % QUEUES < until);
    let ran = || (0..QUEUES).filter(|number| done.read(8 * number) == 1).collect::<Vec<_>>();
    let stays = |number: &u64| !gone.contains(number);
    assert_eq!(ran(), expected(QUEUES / 2).filter(stays).collect::<Vec<_>>());
    signal(QUEUES);
    rig.settle();
    assert_eq!(ran(), expected(QUEUES).filter(stays).collect::<Vec<_>>());
    assert!(f.fence.parked.is_empty());
}

/// The engine is on the queue when it is destroyed: its wait begins behind that.
#[test]
fn a_wait_that_begins_while_its_queue_is_destroyed_leaves_its_fence() {
    let mut rig = Rig::new();
    let (mut q, f) = (rig.queue(0, 0), rig.fence());
    q.submit(&[Encoded::nop(8)]);
    rig.settle();
    let (gpu, queue) = (rig.gpu.clone(), q.queue.clone());
    *rig.gpu.host.on_map.lock().unwrap() = Some(Box::new(move || gpu.destroy_queue(&queue)));
    q.submit(&[Encoded::fence_wait(f.current.va, 1)]);
    rig.engines[0].step();
    assert!(rig.gpu.host.on_map.lock().unwrap().is_none() && !rig.gpu.is_on(&q.queue));
    assert_eq!(f.fence.parked.len(), 0);
}
