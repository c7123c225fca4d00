//! FENCE-1, PARK-1, LOG-1: signals, waits and their log entries.

use crate::{LoomHost, LoomLock, Steps, W, caught, check, chosen, word};
use gpu_engine::NoMemory;
use gpu_engine::consequences::draw;
use gpu_engine::fence::{self, Park, ParkingLot};
use gpu_engine::fence_log::{self, Barriers, Entry, Position, Target};
use gpu_engine::host::Lock;
use gpu_engine::mutation::{Chosen, Mutation};
use gpu_engine::notice::{Mailbox, Notice};
use gpu_engine::slots::SlotId;
use gpu_engine::word::{Ordering, Word};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;

/// Draws the consequences of the signal 5 as an engine does. Whether it interrupts.
fn drawn(
    log: impl FnMut(),
    wake: impl FnMut(),
    monitored: &W,
    shadow: Option<&fence::Shadow<W>>,
    mutation: &Chosen,
) -> bool {
    let mut steps = Steps(log, wake, || fence::wants_interrupt(monitored, 5));
    draw::<W, W>(&mut steps, 5, shadow, mutation).interrupts
}

/// A signal of 5 against a CPU waiter for 5 that is being added: the OS lowers MonitoredValue to 4, then reads
/// CurrentValue. MR-01.
fn fence_1(mutation: u32) {
    let (current, monitored) = (word(0), word(u64::MAX));
    let mutation = chosen(mutation);
    let engine = {
        let (current, monitored, mutation) = (current.clone(), monitored.clone(), mutation.clone());
        loom::thread::spawn(move || {
            if mutation.is(Mutation::NotifyBeforeValue) {
                let wants = drawn(|| (), || (), &monitored, None, &mutation);
                fence::store_current(&*current, 5);
                return wants;
            }
            fence::store_current(&*current, 5);
            drawn(|| (), || (), &monitored, None, &mutation)
        })
    };
    fence::store_monitored(&*monitored, 4, &mutation);
    let seen = current.load(Ordering::Acquire);
    let interrupted = engine.join().unwrap();
    assert!(seen >= 5 || interrupted, "the wake is lost");
}

#[test]
fn fence_1_no_wake_is_lost() {
    check(|| fence_1(0));
}

#[test]
fn fence_1_needs_the_barrier_of_the_signal() {
    caught(Mutation::NoSignalBarrier, fence_1);
}

#[test]
fn fence_1_needs_the_barrier_of_the_update() {
    caught(Mutation::NoMonitoredBarrier, fence_1);
}

#[test]
fn fence_1_needs_the_value_before_the_decision() {
    caught(Mutation::NotifyBeforeValue, fence_1);
}

/// An engine that signals 5 with shadow state: it signals the context management processor, which decides. Whether it
/// interrupts.
fn signal_by_shadow(shadow: &fence::Shadow<W>, monitored: &W, mutation: &Chosen) -> bool {
    shadow.signaled(5);
    drawn(|| (), || (), monitored, Some(shadow), mutation)
}

/// The same with the shadow state: the OS re-reads nothing, the context management processor does. `changes`: the
/// MonitoredValues that the OS writes meanwhile; the last is that of a waiter for 5.
fn fence_1_with_shadow(mutation: u32, changes: &[u64]) {
    let shadow = Arc::new(fence::Shadow::new(|v| W(AtomicU64::new(v))));
    let monitored = word(u64::MAX);
    let mutation = chosen(mutation);
    let engine = {
        let (shadow, monitored, mutation) = (shadow.clone(), monitored.clone(), mutation.clone());
        loom::thread::spawn(move || signal_by_shadow(&shadow, &monitored, &mutation))
    };
    let update = |value| fence::update_monitored(&*monitored, Some(&*shadow), value, &mutation);
    let due = changes.iter().fold(false, |_, value| update(*value));
    assert!(engine.join().unwrap() || due, "the wake is lost");
}

fn fence_1_shadow(mutation: u32) {
    fence_1_with_shadow(mutation, &[4]);
}

/// A waiter leaves and comes back: the shadow may be older than the OS's word, or the word than the shadow.
fn fence_1_shadow_moves(mutation: u32) {
    fence_1_with_shadow(mutation, &[u64::MAX, 4]);
}

#[test]
fn fence_1_holds_with_the_shadow_too() {
    check(|| fence_1_shadow(0));
    check(|| fence_1_shadow_moves(0));
}

#[test]
fn fence_1_the_shadow_needs_the_word_before_it() {
    caught(Mutation::ShadowFirst, fence_1_shadow);
}

#[test]
fn fence_1_the_shadow_needs_its_second_look() {
    caught(Mutation::ShadowNotRechecked, fence_1_shadow);
}

#[test]
fn fence_1_the_shadow_needs_both_barriers() {
    caught(Mutation::NoSignalBarrier, fence_1_shadow);
    caught(Mutation::NoMonitoredBarrier, fence_1_shadow);
}

/// Two signals of one fence with the shadow state: the second one's agent has seen the first value. A waiter for 6
/// comes meanwhile.
fn fence_1_shadow_of_two(mutation: u32) {
    let fence = Arc::new(fence::Fence::<LoomHost, u32>::new(SlotId::unpack(0), true));
    let (current, monitored) = (word(0), word(u64::MAX));
    let mutation = chosen(mutation);
    let signal = |value: u64| {
        let (fence, current, monitored, mutation) =
            (fence.clone(), current.clone(), monitored.clone(), mutation.clone());
        move || {
            if value > 5 && current.load(Ordering::Acquire) < value - 1 {
                return None;
            }
            fence.store(&*current, value, &mutation);
            let mut steps = Steps(|| (), || (), || fence::wants_interrupt(&*monitored, value));
            Some(draw::<W, W>(&mut steps, value, fence.shadow.as_ref(), &mutation).interrupts)
        }
    };
    let (first, second) = (loom::thread::spawn(signal(5)), loom::thread::spawn(signal(6)));
    let due = fence::update_monitored(&*monitored, fence.shadow.as_ref(), 5, &mutation);
    let (first, second) = (first.join().unwrap(), second.join().unwrap());
    let told = due || first == Some(true) || second == Some(true);
    assert!(second.is_none() || told, "the wake is lost");
}

#[test]
fn fence_1_the_shadow_keeps_the_last_of_two_signals() {
    check(|| fence_1_shadow_of_two(0));
}

#[test]
fn fence_1_the_shadow_is_stored_with_the_value() {
    caught(Mutation::StoresUnlocked, fence_1_shadow_of_two);
}

/// A queue that parks for 5 against a signal of 5.
fn park_1(mutation: u32) {
    let current = word(0);
    let lot = Arc::new(ParkingLot::<LoomHost, u32>::new());
    let mutation = chosen(mutation);
    let signal = {
        let (current, lot, mutation) = (current.clone(), lot.clone(), mutation.clone());
        loom::thread::spawn(move || {
            fence::store_current(&*current, 5);
            let mut woken = 0;
            drawn(|| (), || woken = lot.wake(5, |_, _| ()), &word(u64::MAX), None, &mutation);
            woken == 1
        })
    };
    let parked = lot.park(5, 1, &7, &mutation, || current.load(Ordering::Acquire) < 5);
    let woken = signal.join().unwrap();
    match parked {
        Ok(Park::Parked) => assert!(woken, "the queue sleeps for ever"),
        Ok(Park::Met) => assert!(!woken, "the queue would run twice"),
        Err(NoMemory) => unreachable!(),
    }
    assert!(lot.is_empty());
}

#[test]
fn park_1_no_queue_sleeps_for_ever_or_runs_twice() {
    check(|| park_1(0));
}

#[test]
fn park_1_needs_the_second_look() {
    caught(Mutation::NoParkRecheck, park_1);
}

#[test]
fn park_1_needs_the_barrier_of_the_signal() {
    caught(Mutation::NoSignalBarrier, park_1);
}

/// A queue that parks for 5 against a signal of 5 from the CPU.
fn park_1_from_cpu(mutation: u32) {
    let current = word(0);
    let lot = Arc::new(ParkingLot::<LoomHost, u32>::new());
    let mutation = chosen(mutation);
    let signal = {
        let (current, lot, mutation) = (current.clone(), lot.clone(), mutation.clone());
        loom::thread::spawn(move || {
            fence::store_current(&*current, 5);
            fence::resolve_and_wake::<W, _, _>(&lot, 5, &mutation, |_, _| ()) == 1
        })
    };
    let parked = lot.park(5, 1, &7, &mutation, || current.load(Ordering::Acquire) < 5);
    let woken = signal.join().expect("no panic");
    assert_eq!(parked, Ok(if woken { Park::Parked } else { Park::Met }), "it sleeps for ever, or would run twice");
    assert!(lot.is_empty());
}

#[test]
fn park_1_holds_for_signals_from_the_cpu() {
    check(|| park_1_from_cpu(0));
}

#[test]
fn park_1_from_the_cpu_needs_the_barrier() {
    caught(Mutation::NoSignalBarrier, park_1_from_cpu);
}

/// What a queue wrote before it signaled is there for an agent that sees the value. WS-18.
#[test]
fn a_value_brings_what_was_written_before_it() {
    check(|| {
        let (data, current) = (word(0), word(0));
        let waiter = {
            let (data, current) = (data.clone(), current.clone());
            loom::thread::spawn(move || {
                if current.load(Ordering::Acquire) == 5 {
                    assert_eq!(data.load(Ordering::Relaxed), 1);
                }
            })
        };
        data.store(1, Ordering::Relaxed);
        fence::store_current(&*current, 5);
        waiter.join().expect("no panic");
    });
}

/// A queue that parks for 5 against another agent's store of 5 and the notice of it, or against the fence's end.
fn park_1_notice(ends: bool) {
    let current = word(0);
    let lot = Arc::new(ParkingLot::<LoomHost, u32>::new());
    let notice = {
        let (current, lot) = (current.clone(), lot.clone());
        loom::thread::spawn(move || {
            if ends {
                lot.end()
            } else {
                current.store(5, Ordering::Relaxed)
            }
            lot.look_again(|_, _| ()) == 1
        })
    };
    let parked = lot.park(5, 1, &7, &Chosen::none(), || current.load(Ordering::Acquire) < 5);
    let woken = notice.join().unwrap();
    assert_eq!(parked, Ok(if woken { Park::Parked } else { Park::Met }));
    assert!(lot.is_empty());
}

#[test]
fn park_1_a_notice_and_the_end_are_seen() {
    check(|| park_1_notice(false));
    check(|| park_1_notice(true));
}

const ENTRY: Entry = Entry { value: 5, handle: 0x4000_0001, operation: 0, observed: 11, end: 12 };

/// The engine appends an entry; the OS, whom no interrupt brought, reads the position and, if it counts the entry,
/// calls `DxgkDdiUpdateNativeFenceLogs` in the variant that needs it, and reads the entry. LB-02, LB-06.
fn log_1(mutation: u32, barriers: Barriers) {
    // The log that the entry is in, and the queue's other one.
    log_1_in(mutation, barriers, 0);
}

fn log_1_in(mutation: u32, barriers: Barriers, which: usize) {
    let position = word(0);
    let logs = [(); 2].map(|()| Arc::new(LoomLock::new(())));
    let log = logs[which].clone();
    let entry: Arc<[W; 4]> = Arc::new(std::array::from_fn(|_| W(AtomicU64::new(0))));
    let mutation = chosen(mutation);
    let engine = {
        let (position, entry, mutation) = (position.clone(), entry.clone(), mutation.clone());
        loom::thread::spawn(move || {
            let target = Target { position: &*position, entry: std::array::from_fn(|i| &entry[i]) };
            // As `Log::write` is called: under the log's lock.
            let append = || fence_log::append(&target, &ENTRY, Position { index: 1, wraps: 0 }, barriers, &mutation);
            drawn(|| log.with(|()| append()), || (), &word(u64::MAX), None, &mutation);
        })
    };
    let at = Position::unpack(position.load(match barriers {
        Barriers::Two => Ordering::Acquire,
        Barriers::OneInUpdate => Ordering::Relaxed,
    }));
    if barriers == Barriers::OneInUpdate {
        fence_log::flush([&*logs[0], &*logs[1]], &mutation);
    }
    if at.index == 1 {
        assert_eq!(entry[0].load(Ordering::Relaxed), 5, "the value of a counted entry");
        assert_eq!(entry[1].load(Ordering::Relaxed), 0x4000_0001, "the handle of a counted entry");
        assert_eq!(entry[3].load(Ordering::Relaxed), 12, "the end timestamp of a counted entry");
    }
    engine.join().unwrap();
}

#[test]
fn log_1_a_counted_entry_is_whole() {
    check(|| log_1(0, Barriers::Two));
    check(|| log_1(0, Barriers::OneInUpdate));
}

/// The flush is of both logs of a queue.
#[test]
fn log_1_with_one_barrier_the_flush_is_of_both_logs() {
    for which in 0..2 {
        check(move || log_1_in(0, Barriers::OneInUpdate, which));
    }
}

#[test]
fn log_1_with_one_barrier_needs_the_flush() {
    caught(Mutation::NoLogBarrier, |m| log_1(m, Barriers::OneInUpdate));
}

/// Nothing orders entry and index in that variant, so the other order is none of its bugs.
#[test]
fn log_1_with_one_barrier_the_flush_is_all_it_takes() {
    check(|| log_1(Mutation::IndexBeforeEntry as u32, Barriers::OneInUpdate));
}

#[test]
fn log_1_needs_the_entry_before_the_index() {
    caught(Mutation::IndexBeforeEntry, |m| log_1(m, Barriers::Two));
}

/// LOG-1 and FENCE-1 together: the interrupted CPU finds the entry. Both barrier variants.
fn log_then_interrupt(mutation: u32, barriers: Barriers) {
    let (current, monitored, position) = (word(0), word(4), word(0));
    let entry: Arc<[W; 4]> = Arc::new(std::array::from_fn(|_| W(AtomicU64::new(0))));
    let mailbox = Arc::new(Mailbox::new(2, |v| W(AtomicU64::new(v))).unwrap());
    let log = Arc::new(LoomLock::new(()));
    let mutation = chosen(mutation);
    let engine = {
        let (position, entry, mailbox, mutation) = (position.clone(), entry.clone(), mailbox.clone(), mutation.clone());
        let log = log.clone();
        loom::thread::spawn(move || {
            let target = Target { position: &*position, entry: std::array::from_fn(|i| &entry[i]) };
            let next = Position { index: 1, wraps: 0 };
            let append = || log.with(|()| fence_log::append(&target, &ENTRY, next, barriers, &mutation));
            fence::store_current(&*current, 5);
            let early = mutation.is(Mutation::NotifyBeforeValue);
            let log = || {
                if !early {
                    append();
                }
            };
            if drawn(log, || (), &monitored, None, &mutation) {
                mailbox.push(Notice::FencesSignaled);
                mailbox.request();
            }
            if early {
                append();
            }
        })
    };
    let mut notices = 0;
    mailbox.drain(&mutation, |_| notices += 1);
    if notices == 1 {
        fence_log::flush([&*log, &LoomLock::new(())], &mutation);
        let at = Position::unpack(position.load(Ordering::Acquire));
        assert_eq!(at.index, 1, "the interrupt came before its entry");
        assert_eq!(entry[0].load(Ordering::Relaxed), 5);
    }
    engine.join().unwrap();
}

#[test]
fn log_1_the_entry_is_there_when_the_interrupt_is() {
    check(|| log_then_interrupt(0, Barriers::Two));
    check(|| log_then_interrupt(0, Barriers::OneInUpdate));
}

#[test]
fn log_1_needs_the_entry_before_the_notification() {
    caught(Mutation::NotifyBeforeValue, |m| log_then_interrupt(m, Barriers::Two));
}

/// LOG-1 and FENCE-1 together, the other way round: a signal that did not interrupt is counted in the log by the time
/// that the OS, which has lowered MonitoredValue, looks there. Both barrier variants.
fn log_without_interrupt(mutation: u32, barriers: Barriers) {
    let (current, monitored, position) = (word(0), word(u64::MAX), word(0));
    let mutation = chosen(mutation);
    let engine = {
        let (monitored, position, mutation) = (monitored.clone(), position.clone(), mutation.clone());
        loom::thread::spawn(move || {
            let entry: [W; 4] = std::array::from_fn(|_| W(AtomicU64::new(0)));
            let target = Target { position: &*position, entry: entry.each_ref() };
            fence::store_current(&*current, 5);
            let append = || fence_log::append(&target, &ENTRY, Position { index: 1, wraps: 0 }, barriers, &mutation);
            drawn(append, || (), &monitored, None, &mutation)
        })
    };
    fence::store_monitored(&*monitored, 4, &mutation);
    let counted = Position::unpack(position.load(Ordering::Relaxed)).index == 1;
    let interrupted = engine.join().unwrap();
    assert!(counted || interrupted, "the entry is not counted, and no interrupt comes");
}

#[test]
fn log_1_a_signal_that_did_not_interrupt_is_counted() {
    check(|| log_without_interrupt(0, Barriers::Two));
    check(|| log_without_interrupt(0, Barriers::OneInUpdate));
}

#[test]
fn log_1_needs_the_barrier_behind_the_index() {
    caught(Mutation::NoSignalBarrier, |m| log_without_interrupt(m, Barriers::Two));
    caught(Mutation::NoSignalBarrier, |m| log_without_interrupt(m, Barriers::OneInUpdate));
}
