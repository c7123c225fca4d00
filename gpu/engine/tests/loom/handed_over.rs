//! What one agent leaves for another: a queue's execution state (`Handover`, READY-1), the packets of a ring (the
//! engine's side of RING-1), and the queues that a signal wakes in parts (PARK-1).

use crate::{LoomHost, W, caught, check, chosen, word};
use gpu_engine::fence::{self, Park, ParkingLot, Woken};
use gpu_engine::mutation::Mutation;
use gpu_engine::publication;
use gpu_engine::shared::Handover;
use gpu_engine::word::{Ordering, Word};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;

fn plain(value: u64) -> W {
    W(AtomicU64::new(value))
}

/// Two engines take the state in turn, and each goes on where it finds it.
fn state_moves(mutation: u32) {
    let cell = Arc::new(Handover::<W, W>::new(Box::new(plain(0)), plain));
    let turn = move |cell: &Handover<W, W>| {
        let Some(state) = cell.take() else { return 0 };
        state.store(state.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        cell.put(state, &chosen(mutation));
        1
    };
    let other = {
        let cell = cell.clone();
        loom::thread::spawn(move || turn(&cell))
    };
    let turns = turn(&cell) + turn(&cell) + other.join().expect("no panic");
    let state = cell.take().expect("it was put back");
    assert_eq!(state.load(Ordering::Relaxed), turns, "a turn went on from before another");
    assert!(cell.take().is_none(), "it is in two places");
}

#[test]
fn ready_1_a_state_goes_on_where_it_came_off() {
    check(|| state_moves(0));
}

#[test]
fn ready_1_a_state_needs_the_release() {
    caught(Mutation::HandsOverUnordered, state_moves);
}

/// User mode writes a packet and publishes it, twice; the engine reads what is published, as a fetch does.
fn ring_1(mutation: u32) {
    let (ring, pointer) = ([word(0), word(0)], word(0));
    let user = {
        let (ring, pointer) = (ring.clone(), pointer.clone());
        loom::thread::spawn(move || {
            for (place, packet) in ring.iter().enumerate() {
                packet.store(42, Ordering::Relaxed);
                pointer.store(place as u64 + 1, Ordering::Release);
            }
        })
    };
    let published = publication::write_pointer(&*pointer, &chosen(mutation));
    for packet in &ring[..published as usize] {
        assert_eq!(packet.load(Ordering::Relaxed), 42, "the engine executes what lay there before");
    }
    user.join().expect("no panic");
}

#[test]
fn ring_1_what_is_published_is_written() {
    check(|| ring_1(0));
}

#[test]
fn ring_1_needs_the_acquire_of_the_engine() {
    caught(Mutation::ReadsRingUnordered, ring_1);
}

/// A signal that wakes one queue at a time, as an engine does with many, against a queue that parks; another is parked
/// already, so that the signal comes to the list, whose lock is as good as its barrier.
fn in_parts(mutation: u32) {
    let current = word(0);
    let lot = Arc::new(ParkingLot::<LoomHost, u32>::new());
    assert_eq!(lot.park(4, 1, &7, &chosen(0), || true), Ok(Park::Parked));
    let signal = {
        let (current, lot) = (current.clone(), lot.clone());
        loom::thread::spawn(move || {
            fence::store_current(&*current, 5);
            fence::resolve::<W>(&chosen(mutation));
            let (mut woken, mut until) = (0, None);
            loop {
                let Woken { woken: count, more, .. } = lot.wake_some(5, until, 1, |_, _| ());
                assert!(count <= 1, "more than were asked for");
                woken += count;
                if more.is_none() {
                    return woken;
                }
                until = more;
            }
        })
    };
    let parked = lot.park(5, 2, &8, &chosen(mutation), || current.load(Ordering::Acquire) < 5);
    let woken = signal.join().expect("no panic");
    let expected = if parked == Ok(Park::Parked) { 2 } else { 1 };
    assert_eq!(woken, expected, "a queue sleeps for ever, or would run twice");
    assert!(lot.is_empty());
}

#[test]
fn park_1_a_signal_in_parts_wakes_all() {
    check(|| in_parts(0));
}

#[test]
fn park_1_a_signal_in_parts_needs_the_second_look() {
    caught(Mutation::NoParkRecheck, in_parts);
}
