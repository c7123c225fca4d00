//! RESET-1, WAKE-1, READY-1, GONE-1 and the slots' room: an engine against resets, sleep and destruction.

use crate::{LoomHost, W, caught, check, chosen, word};
use gpu_engine::handshake::{Control, Handshake, Phase, Turn};
use gpu_engine::mutation::Mutation;
use gpu_engine::outbox::{self, Scan};
use gpu_engine::slots::SlotTable;
use gpu_engine::wake::{Mark, Sleep};
use gpu_engine::word::{Ordering, Word};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;

/// An engine that works until it is told to hold, against the reset that waits for it and then reads memory.
fn reset_1(mutation: u32) {
    let memory = word(0);
    let handshake = Arc::new(Handshake::new(|v| W(AtomicU64::new(v))));
    let mutation = chosen(mutation);
    let engine = {
        let (memory, handshake) = (memory.clone(), handshake.clone());
        loom::thread::spawn(move || {
            let mut stores = 0;
            while stores < 2 && handshake.told() == Control::Run {
                stores += 1;
                memory.store(stores, Ordering::Relaxed);
            }
            handshake.say(Phase::Held, &mutation);
            stores
        })
    };
    handshake.tell(Control::Hold);
    if handshake.phase() == Phase::Held {
        let seen = memory.load(Ordering::Relaxed);
        assert_eq!(engine.join().unwrap(), seen, "a store of what the reset declared dead");
    } else {
        engine.join().unwrap();
    }
}

#[test]
fn reset_1_a_held_engine_stores_nothing() {
    check(|| reset_1(0));
}

#[test]
fn reset_1_needs_the_release() {
    caught(Mutation::HoldsRelaxed, reset_1);
}

/// An engine that held goes on, while a second reset tells it to hold.
fn reset_again(mutation: u32) {
    let memory = word(0);
    let handshake = Arc::new(Handshake::new(|v| W(AtomicU64::new(v))));
    let mutation = chosen(mutation);
    handshake.say(Phase::Held, &mutation);
    let engine = {
        let (memory, handshake) = (memory.clone(), handshake.clone());
        loom::thread::spawn(move || {
            // It was told to run; the second hold comes now or later.
            if handshake.told() == Control::Run && handshake.run(&mutation) {
                memory.store(1, Ordering::Relaxed);
                handshake.say(Phase::Held, &mutation);
            }
        })
    };
    handshake.tell(Control::Hold);
    if handshake.phase() == Phase::Held {
        let seen = memory.load(Ordering::Relaxed);
        engine.join().unwrap();
        assert_eq!(memory.load(Ordering::Relaxed), seen, "a store after the engine was believed to hold");
    } else {
        engine.join().unwrap();
    }
}

#[test]
fn reset_1_a_second_reset_is_not_answered_from_before() {
    check(|| reset_again(0));
}

#[test]
fn reset_1_needs_the_second_look() {
    caught(Mutation::RunsUnasked, reset_again);
}

/// Work is added while the engine goes to sleep.
fn wake_1(mutation: u32) {
    let work = word(0);
    let sleep = Arc::new(Sleep::new(|v| W(AtomicU64::new(v))));
    let mutation = chosen(mutation);
    let engine = {
        let (work, sleep) = (work.clone(), sleep.clone());
        loom::thread::spawn(move || {
            sleep.prepare(&mutation);
            // The last look, as `Core::prepare_sleep` does.
            work.load(Ordering::Relaxed) != 0
        })
    };
    work.store(1, Ordering::Relaxed);
    let kicked = sleep.must_kick();
    assert!(engine.join().unwrap() || kicked, "the engine sleeps on its work");
}

#[test]
fn wake_1_no_work_is_slept_on() {
    check(|| wake_1(0));
}

#[test]
fn wake_1_needs_the_barrier_of_the_engine() {
    caught(Mutation::NoSleepBarrier, wake_1);
}

/// A queue that stands in the ready list, more work is published, and the engine takes the queue out of the list and
/// looks.
fn ready_1(mutation: u32) {
    let work = word(0);
    let mark = Arc::new(Mark::new(|v| W(AtomicU64::new(v))));
    let mutation = chosen(mutation);
    assert!(mark.set());
    let engine = {
        let (work, mark) = (work.clone(), mark.clone());
        loom::thread::spawn(move || {
            mark.clear(&mutation);
            work.load(Ordering::Acquire) != 0
        })
    };
    work.store(1, Ordering::Release);
    let listed = mark.set();
    assert!(engine.join().unwrap() || listed, "the queue stays behind with work in it");
}

#[test]
fn ready_1_no_work_stays_behind() {
    check(|| ready_1(0));
}

#[test]
fn ready_1_needs_the_exchange() {
    caught(Mutation::ClearsReadyByStore, ready_1);
}

/// A shadow update that finds every node held, against the resumption of one.
fn reset_1_report(mutation: u32) {
    let new = |v| W(AtomicU64::new(v));
    let (held, later) = (Arc::new(Handshake::new(new)), Arc::new(Scan::new(new)));
    let mutation = chosen(mutation);
    held.tell(Control::Hold);
    let resume = {
        let (held, later) = (held.clone(), later.clone());
        loom::thread::spawn(move || {
            held.tell(Control::Run);
            // The look of `Gpu::raise_again`.
            !later.is_empty()
        })
    };
    let free = || (held.told() == Control::Run).then_some(0);
    let speaks = outbox::speaker(free, Some(&*later), &mutation).is_some();
    assert!(resume.join().unwrap() || speaks, "a fence is reported by nobody");
}

#[test]
fn reset_1_what_waits_for_a_resumption_is_reported() {
    check(|| reset_1_report(0));
}

#[test]
fn reset_1_a_report_needs_its_second_look_fenced() {
    caught(Mutation::SpeaksUnfenced, reset_1_report);
}

/// A thread that was given a new slot makes room for it while another thread gives back slots that are newer.
#[test]
fn slots_find_their_way_back_whoever_makes_room_first() {
    check(|| {
        let table: Arc<SlotTable<LoomHost>> = Arc::new(SlotTable::new().expect("memory"));
        let other = {
            let table = table.clone();
            loom::thread::spawn(move || {
                let slots = [1, 2].map(|handle| table.allocate(handle).expect("memory"));
                for slot in slots {
                    table.kill(slot);
                    table.free(slot);
                }
            })
        };
        let mine = table.allocate(3).expect("memory");
        other.join().expect("no panic");
        assert_eq!(table.handle(mine), Some(3));
        table.kill(mine);
        table.free(mine);
        // As many as were there at once, at most: none was lost.
        let again = [4, 5].map(|handle| table.allocate(handle).expect("memory").index);
        assert!(again.iter().all(|index| *index < 3) && again[0] != again[1], "{again:?}");
    });
}

/// An engine that gives a queue its turn, against a thread that destroys the queue and then frees its memory.
fn gone_1(mutation: u32) {
    const QUEUE: u64 = 7;
    let (memory, destroyed) = (word(0), word(0));
    let turn = Arc::new(Turn::new(|v| W(AtomicU64::new(v))));
    let mutation = chosen(mutation);
    let engine = {
        let (memory, destroyed, turn) = (memory.clone(), destroyed.clone(), turn.clone());
        loom::thread::spawn(move || {
            turn.begin(QUEUE, &mutation);
            if destroyed.load(Ordering::Acquire) == 0 {
                memory.store(1, Ordering::Relaxed);
            }
            turn.end();
        })
    };
    destroyed.store(1, Ordering::Release);
    if !turn.is(QUEUE) {
        // Nothing is stored from here on: what is there now stays.
        let seen = memory.load(Ordering::Relaxed);
        engine.join().unwrap();
        assert_eq!(memory.load(Ordering::Relaxed), seen, "a store to what was freed");
    } else {
        engine.join().unwrap();
    }
}

#[test]
fn gone_1_nothing_of_a_destroyed_queue_is_touched() {
    check(|| gone_1(0));
}

#[test]
fn gone_1_needs_the_barrier() {
    caught(Mutation::NoTurnBarrier, gone_1);
}
