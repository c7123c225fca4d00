//! Sentences of the article on native fences that only the engine's own state can show.

use crate::support::{Rig, TestFence, TestHost};
use gpu_engine::fence::{Fence, Park, ParkingLot, store_current, update_monitored};
use gpu_engine::mutation::Chosen;
use gpu_engine::notice::Notice;
use gpu_engine::shared::Shared;
use gpu_engine::word::{Ordering, Word};
use gpu_wire::packet::Encoded;
use gpu_wire::pte;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// "CurrentValue … 64-bit atomic": a reader sees one of the values that were signaled, while the high half changes as
/// well. There are more readers than processors, so the thread that stores is stopped at every place in its loop.
#[test]
fn a_value_is_never_seen_torn() {
    const VALUES: [u64; 2] = [0x0000_0000_FFFF_FFFF, 0x0000_0001_0000_0000];
    let mut rig = Rig::new();
    let fence = rig.fence();
    let mut queue = rig.queue(0, 0);
    let ended = AtomicBool::new(false);
    let read = || {
        let (word, mut torn) = (fence.current.word(0), None);
        while !ended.load(Ordering::Relaxed) {
            let value = word.load(Ordering::Relaxed);
            if value != 0 && !VALUES.contains(&value) {
                torn = Some(value);
            }
        }
        torn
    };
    let seen = std::thread::scope(|threads| {
        let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        let readers: Vec<_> = (0..processors + 2).map(|_| threads.spawn(read)).collect();
        queue.submit(&VALUES.map(|value| Encoded::fence_signal(fence.current.va, value)));
        rig.settle();
        // What the engine stores by, often enough to be stopped between two halves.
        let word = fence.current.word(0);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(1) {
            for round in 0..100_000 {
                store_current(&word, VALUES[round % 2]);
            }
        }
        ended.store(true, Ordering::Relaxed);
        readers.into_iter().find_map(|reader| reader.join().unwrap())
    });
    assert_eq!(seen, None);
}

/// "The GPU … interrupts when CurrentValue passes MonitoredValue": where MonitoredValue cannot be read, an interrupt
/// too many is allowed and one too few is not.
#[test]
fn a_monitored_value_that_cannot_be_read_interrupts() {
    let mut rig = Rig::new();
    let fence = rig.fence();
    let process = rig.process.clone();
    let table = rig.leaf_table(&rig.context.clone(), fence.monitored.va);
    rig.entry(table, pte::index(fence.monitored.va, 0)).store(0, Ordering::SeqCst);
    rig.gpu.flush(process.number, 0, 0);
    rig.settle();
    let mut queue = rig.queue(0, 0);
    queue.submit(&[Encoded::fence_signal(fence.current.va, 1)]);
    rig.settle();
    assert_eq!(rig.drain(), [(0, Notice::FenceSignaled { fence: fence.fence.slot, queue: queue.queue.slot })]);
}

/// A fence whose engines compare with a shadow.
fn shadowed(rig: &mut Rig) -> TestFence {
    let mut fence = rig.fence();
    rig.process.fences.close(fence.current.va);
    fence.fence = Shared::try_new(Fence::new(fence.fence.slot, true)).unwrap();
    rig.process.fences.open(fence.current.va, fence.monitored.va, &fence.fence).unwrap();
    fence
}

/// "The engine compares the new CurrentValue with the shadow of MonitoredValue, and signals the context management
/// processor if it is greater": below the shadow that processor hears nothing, whatever the OS's word says by then.
#[test]
fn an_engine_compares_with_its_shadow() {
    let mut rig = Rig::new();
    let fence = shadowed(&mut rig);
    let mut queue = rig.queue(0, 0);
    let due = update_monitored(&fence.monitored.word(0), fence.fence.shadow.as_ref(), 10, &Chosen::none());
    assert!(!due);
    // Not an update: the shadow stays.
    fence.monitored.word(0).store(0, Ordering::SeqCst);
    queue.submit(&[Encoded::fence_signal(fence.current.va, 10)]);
    rig.settle();
    assert_eq!(rig.drain(), []);
    queue.submit(&[Encoded::fence_signal(fence.current.va, 11)]);
    rig.settle();
    assert_eq!(rig.drain().len(), 1);
}

/// "The processor updates MonitoredValue and the shadow, and reads CurrentValue again": a signal that came before the
/// update makes the interrupt due.
#[test]
fn an_update_finds_what_an_engine_signaled_before_it() {
    let mut rig = Rig::new();
    let fence = shadowed(&mut rig);
    let mut queue = rig.queue(0, 0);
    let update =
        |value| update_monitored(&fence.monitored.word(0), fence.fence.shadow.as_ref(), value, &Chosen::none());
    assert!(!update(u64::MAX));
    queue.submit(&[Encoded::fence_signal(fence.current.va, 5)]);
    rig.settle();
    assert_eq!((rig.drain(), update(5), update(4)), (vec![], false, true));
}

/// What asks for a look at every fence while notices are taken is reported with them.
#[test]
fn a_scan_that_is_asked_for_among_notices_is_reported_with_them() {
    let mut rig = Rig::new();
    let fence = rig.fence();
    fence.monitored.word(0).store(0, Ordering::SeqCst);
    let mut queue = rig.queue(0, 0);
    queue.submit(&[Encoded::fence_signal(fence.current.va, 1)]);
    rig.settle();
    let mut said = Vec::new();
    rig.gpu.drain(0, |notice| {
        if said.is_empty() {
            rig.gpu.pretend_fence_overflow(0);
        }
        said.push(notice);
    });
    assert_eq!(said.last(), Some(&Notice::FencesSignaled));
}

/// Queues wait for one fence with values of their own: each signal lets exactly those go that it reaches, in order of
/// value, whichever others have left in between.
#[test]
fn queues_parked_on_one_fence_leave_in_order_of_value() {
    for seed in 1..=400_u64 {
        let mut state = seed;
        let mut next = |below: u64| {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            (state >> 33) % below
        };
        let lot = ParkingLot::<TestHost, u64>::new();
        // Value and ticket of those that wait, by the plain reading.
        let mut waiting = Vec::new();
        for ticket in 1..=40 {
            let value = 1 + next(60);
            assert_eq!(lot.park(value, ticket, &value, &Chosen::none(), || true), Ok(Park::Parked));
            waiting.push((value, ticket));
            if next(4) == 0 {
                let gone = waiting.swap_remove(next(waiting.len() as u64) as usize);
                assert!(lot.remove(gone.1, || None));
            }
        }
        waiting.sort_unstable();
        for current in (0..=60).step_by(7) {
            let mut left = Vec::new();
            lot.wake(current, |value, ticket| left.push((value, ticket)));
            let values: Vec<_> = left.iter().map(|(value, _)| *value).collect();
            assert!(values.is_sorted(), "seed {seed}: {values:?}");
            left.sort_unstable();
            let reached = waiting.partition_point(|(value, _)| *value <= current);
            assert_eq!(left, waiting.drain(..reached).collect::<Vec<_>>(), "seed {seed} at {current}");
            assert_eq!(lot.len(), waiting.len() as u64);
        }
    }
}
