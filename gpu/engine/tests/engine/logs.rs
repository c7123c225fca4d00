//! Fence logs.

use crate::support::{MUTATION, Rig, log, log_entry, log_position};
use gpu_engine::fence_log::{Barriers, Entry, Position, Target, append};
use gpu_engine::host::Lock;
use gpu_engine::mutation::Chosen;
use gpu_engine::notice::Notice;
use gpu_engine::word::{Ordering, Word};
use gpu_wire::doorbell::Model;
use gpu_wire::packet::{self, Encoded, log_operation::*};
use std::cell::RefCell;

#[test]
fn log_overrun_counts_and_never_leaves_the_buffer() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let f = rig.fence();
    for v in 0..200u64 {
        q.submit(&[Encoded::fence_signal(f.current.va, v), log(SIGNAL_EXECUTED, v, u32::MAX)]);
        rig.settle();
    }
    assert_eq!(log_position(q.signals), (200 % 84, 2));
    assert_eq!(q.queue.signals.with(|l| (l.written, l.hint_misses)), (200, 200));
    let mut last = 0;
    for v in 168..200u64 {
        let [value, _, observed, end] = log_entry(q.signals, v % 84);
        assert_eq!((value, observed), (v, 0));
        assert!(end >= last);
        last = end;
    }
}

#[test]
pub(crate) fn a_recreated_log_gets_every_later_entry() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let f = rig.fence();
    q.submit(&[Encoded::fence_signal(f.current.va, 1), log(SIGNAL_EXECUTED, 1, 0)]);
    rig.settle();
    let fresh = rig.map(1, false).bytes;
    q.queue.signals.with(|l| l.set(fresh, 84)).unwrap();
    q.submit(&[Encoded::fence_signal(f.current.va, 2), log(SIGNAL_EXECUTED, 2, 0)]);
    rig.settle();
    assert_eq!((log_position(q.signals), log_position(fresh)), ((1, 0), (1, 0)));
    assert_eq!(log_entry(fresh, 0)[0], 2);
    assert!(q.queue.signals.with(|l| l.set(fresh, 0)).is_err());
    assert!(q.queue.signals.with(|l| l.set(fresh, 85)).is_err());
}

#[test]
fn an_interrupt_names_a_queue_only_if_its_log_tells() {
    let mut rig = Rig::with(Model::Dedicated, true);
    let mut q = rig.queue(0, 0);
    let f = rig.fence();
    f.monitored.word(0).store(0, Ordering::SeqCst);
    let signal = |value| packet::Fence { fence: f.current.va.0, value }.to_packet();
    q.submit(&[signal(1), log(SIGNAL_EXECUTED, 1, 0)]);
    rig.settle();
    assert_eq!(rig.drain(), [(0, Notice::FenceSignaled { fence: f.fence.slot, queue: q.queue.slot })]);
    q.submit(&[signal(2)]);
    rig.settle();
    assert_eq!(rig.drain(), [(0, Notice::FencesSignaled)]);
    // A logged one does not hide one that is not.
    q.submit(&[signal(3), log(SIGNAL_EXECUTED, 3, 1), signal(4)]);
    rig.settle();
    assert!(rig.drain().contains(&(0, Notice::FencesSignaled)));
}

/// Wherever a queue's turn ends, no interrupt is ahead of the entry of its signal. The size of the work before the
/// signals places the end of the turn.
#[test]
fn a_signal_and_its_entry_stay_together() {
    let mut turns = 0;
    for kilobytes in (3400..=3700).step_by(2) {
        let mut rig = Rig::with(Model::Dedicated, true);
        let (mut a, mut b) = (rig.queue(0, 0), rig.queue(0, 1));
        let (f, m) = (rig.fence(), rig.map(1024, false));
        f.monitored.word(0).store(0, Ordering::SeqCst);
        rig.settle();
        let fill = packet::Fill { address: m.va.0, length: kilobytes * 1024, pattern: 0, reserved: 0 }.to_packet();
        let mut list = vec![fill];
        for value in 1..=8 {
            list.extend([Encoded::fence_signal(f.current.va, value), log(SIGNAL_EXECUTED, value, u32::MAX)]);
        }
        a.publish(&list);
        b.publish(&[Encoded::nop(8)]);
        a.ring();
        b.ring();
        for _ in 0..6 {
            rig.engines[0].step();
            let (current, (entries, _)) = (f.current.read(0), log_position(a.signals));
            for (_, notice) in rig.drain() {
                assert_eq!(u64::from(entries), current, "{kilobytes} KiB: {notice:?}");
            }
            turns += u64::from((1..8).contains(&current));
        }
        assert_eq!(log_position(a.signals), (8, 0));
    }
    assert!(turns > 3, "no turn ended between two signals");
}

/// A queue that has no log is not named by the interrupt: the OS would look for the signal where it is not.
#[test]
fn a_queue_without_a_log_is_not_named() {
    let mut rig = Rig::with(Model::Dedicated, true);
    let mut q = rig.queue(0, 0);
    q.queue.signals.with(gpu_engine::fence_log::Log::clear);
    let f = rig.fence();
    f.monitored.word(0).store(0, Ordering::SeqCst);
    q.submit(&[Encoded::fence_signal(f.current.va, 1), log(SIGNAL_EXECUTED, 1, 0)]);
    rig.settle();
    assert_eq!(rig.drain(), [(0, Notice::FencesSignaled)]);
    assert_eq!(rig.gpu.nodes[0].counters.read().log_entries, 0);
}

/// The end of a wait is when its value came, not when its queue had the engine again.
#[test]
fn a_wait_ends_when_its_value_comes() {
    let mut rig = Rig::new();
    let (mut a, mut b) = (rig.queue(0, 0), rig.queue(0, 1));
    let (f, m) = (rig.fence(), rig.map(1, false));
    a.submit(&[Encoded::fence_wait(f.current.va, 1), log(WAIT_UNBLOCKED, 1, 0)]);
    rig.settle();
    let now = |rig: &mut Rig, q: &mut crate::support::TestQueue, at: u64| {
        q.submit(&[packet::Timestamp { address: m.at(at).0 }.to_packet()]);
        rig.settle();
    };
    now(&mut rig, &mut b, 0);
    b.submit(&[Encoded::fence_signal(f.current.va, 1), packet::Timestamp { address: m.at(8).0 }.to_packet()]);
    rig.settle();
    let [value, _, observed, end] = log_entry(a.waits, 0);
    let (before, behind) = (m.read(0), m.read(8));
    assert!(value == 1 && observed < before, "{observed} {before}");
    assert!((before..behind).contains(&end), "{before} {end} {behind}");
}

/// A word that notes its number when it is written.
struct Noted<'n>(usize, &'n RefCell<Vec<usize>>);

impl Word for Noted<'_> {
    fn load(&self, _order: Ordering) -> u64 {
        0
    }
    fn store(&self, _value: u64, _order: Ordering) {
        self.1.borrow_mut().push(self.0);
    }
    fn fence(_order: Ordering) {}
}

/// "Write the log entry; write the index": in this order with either number of barriers, although with one of them
/// nothing that the OS does can tell.
#[test]
pub(crate) fn the_index_is_written_behind_the_entry() {
    const POSITION: usize = 4;
    let entry = Entry { value: 5, handle: 1, operation: 0, observed: 0, end: 12 };
    let mutation = Chosen::none();
    mutation.set(MUTATION.get());
    for barriers in [Barriers::Two, Barriers::OneInUpdate] {
        let stores = RefCell::new(Vec::new());
        let words: [Noted<'_>; 5] = std::array::from_fn(|number| Noted(number, &stores));
        let [a, b, c, d, position] = &words;
        append(&Target { position, entry: [a, b, c, d] }, &entry, Position { index: 1, wraps: 0 }, barriers, &mutation);
        assert_eq!(stores.take(), [0, 1, 2, 3, POSITION]);
    }
}

/// A queue's logs are two, and what is done to all of them (flushed in an update, taken away) is done to either.
#[test]
fn all_logs_of_a_queue_are_its_waits_and_its_signals() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let f = rig.fence();
    let both = |value| {
        let signal = [Encoded::fence_signal(f.current.va, value), log(SIGNAL_EXECUTED, value, u32::MAX)];
        let wait = [Encoded::fence_wait(f.current.va, value), log(WAIT_UNBLOCKED, value, u32::MAX)];
        [signal, wait].concat()
    };
    q.submit(&both(1));
    rig.settle();
    let positions = |waits, signals| [log_position(waits), log_position(signals)];
    assert_eq!(positions(q.waits, q.signals), [(1, 0); 2]);
    for log in q.queue.logs() {
        log.with(gpu_engine::fence_log::Log::clear);
    }
    q.submit(&both(2));
    rig.settle();
    assert_eq!((f.current.read(0), positions(q.waits, q.signals)), (2, [(1, 0); 2]));
}

/// Signals that follow each other in a burst have one time. Those behind an operation, and those of another burst, have
/// times of their own.
#[test]
fn signals_that_do_not_follow_each_other_have_times_of_their_own() {
    let mut rig = Rig::new();
    let (mut q, f, m) = (rig.queue(0, 0), rig.fence(), rig.map(1, false));
    let logged = |value| [Encoded::fence_signal(f.current.va, value), log(SIGNAL_EXECUTED, value, 0)];
    let fill = packet::Fill { address: m.va.0, length: 64, pattern: 1, reserved: 0 }.to_packet();
    let mut list: Vec<_> = logged(1).into_iter().chain(logged(2)).collect();
    list.push(fill);
    list.extend(logged(3));
    q.submit(&list);
    rig.settle();
    let ends: Vec<_> = (0..3).map(|i| log_entry(q.signals, i)[3]).collect();
    assert!(ends[0] == ends[1] && ends[1] < ends[2], "{ends:?}");
}

/// The same of signals that are too far apart for one burst.
#[test]
fn signals_of_two_bursts_have_two_times() {
    const SIGNALS: u64 = 80;
    let mut rig = Rig::new();
    let (mut q, f, code) = (rig.queue(0, 0), rig.fence(), rig.map(2, false));
    let logged = |value| [Encoded::fence_signal(f.current.va, value), log(SIGNAL_EXECUTED, value, 0)];
    let packets: Vec<u8> = (1..=SIGNALS).flat_map(logged).flat_map(|packet| packet.as_bytes().to_vec()).collect();
    assert!(packets.len() > 4096, "more than a burst");
    code.bytes.write(&packets);
    q.submit(&[packet::Indirect { address: code.va.0, length: packets.len() as u64 }.to_packet()]);
    rig.settle();
    assert_eq!((q.fault(), f.current.read(0)), (None, SIGNALS));
    let ends = [0, 1, SIGNALS - 1].map(|i| log_entry(q.signals, i)[3]);
    assert!(ends[0] == ends[1] && ends[1] < ends[2], "{ends:?}");
}

/// The times in a log do not go back, although a clock that is read on different processors may.
#[test]
fn the_times_in_a_log_do_not_go_back() {
    let mut rig = Rig::new();
    let (mut q, f) = (rig.queue(0, 0), rig.fence());
    for (value, clock) in [(1, 1000), (2, 500), (3, 2000)] {
        rig.gpu.host.clock.store(clock, Ordering::SeqCst);
        q.submit(&[Encoded::fence_signal(f.current.va, value), log(SIGNAL_EXECUTED, value, 0)]);
        rig.settle();
    }
    let ends: Vec<_> = (0..3).map(|i| log_entry(q.signals, i)[3]).collect();
    assert!(ends.is_sorted() && ends[0] < ends[2], "{ends:?}");
}
