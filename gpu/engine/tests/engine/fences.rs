//! Native fences: signals, waits, and what the CPU is told.

use crate::support::{Rig, log, log_entry, log_position};
use gpu_engine::engine::{Step, Watched};
use gpu_engine::node::Control;
use gpu_engine::notice::Notice;
use gpu_engine::queue::State;
use gpu_engine::word::{Ordering, Word};
use gpu_wire::doorbell::Model;
use gpu_wire::packet::{self, Encoded, FaultKind, log_operation::*};
use gpu_wire::pte;

#[test]
fn a_signal_without_waiters_interrupts_nobody() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let f = rig.fence();
    let signals: Vec<_> = (1..=40).map(|v| Encoded::fence_signal(f.current.va, v)).collect();
    q.submit(&signals);
    rig.settle();
    assert_eq!(f.current.read(0), 40);
    assert_eq!(rig.interrupts(), 0);
    assert_eq!(rig.gpu.totals().interrupts_suppressed, 40);
}

#[test]
fn a_monitored_value_below_the_signal_interrupts_with_the_fence() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let f = rig.fence();
    f.monitored.word(0).store(41, Ordering::SeqCst);
    q.submit(&[Encoded::fence_signal(f.current.va, 41), log(SIGNAL_EXECUTED, 41, 0)]);
    rig.settle();
    assert_eq!(rig.interrupts(), 0);
    q.submit(&[Encoded::fence_signal(f.current.va, 42), log(SIGNAL_EXECUTED, 42, 1)]);
    rig.settle();
    assert_eq!(rig.interrupts(), 1);
    assert_eq!(rig.drain(), [(0, Notice::FenceSignaled { fence: f.fence.slot, queue: q.queue.slot })]);
    assert_eq!(log_position(q.signals), (2, 0));
    assert_eq!(log_entry(q.signals, 1)[..3], [42, 0x40, 0]);
}

#[test]
fn a_missing_log_never_loses_the_wake() {
    for tail in [vec![], vec![Encoded::nop(8)], vec![Encoded::new(0x77, 0, &[])]] {
        let mut rig = Rig::new();
        let mut q = rig.queue(0, 0);
        let f = rig.fence();
        f.monitored.word(0).store(0, Ordering::SeqCst);
        let mut packets = vec![Encoded::fence_signal(f.current.va, 1)];
        packets.extend(tail);
        q.submit(&packets);
        rig.settle();
        assert!(rig.interrupts() >= 1);
        assert!(rig.drain().contains(&(0, Notice::FenceSignaled { fence: f.fence.slot, queue: q.queue.slot })));
    }
}

/// Signals of one fence share an interrupt. Where one of them has no entry in the log that the interrupt names, the OS
/// is asked to look at every fence.
#[test]
fn signals_that_share_an_interrupt_have_an_entry_each_or_everything_is_looked_at() {
    for logged in [[true, true], [false, true], [true, false], [false, false]] {
        let mut rig = Rig::with(Model::Dedicated, true);
        let (mut q, f) = (rig.queue(0, 0), rig.fence());
        f.monitored.word(0).store(0, Ordering::SeqCst);
        let packets = logged.into_iter().zip(1..).flat_map(|(logged, value)| {
            let entry = logged.then(|| log(SIGNAL_EXECUTED, value, 0));
            core::iter::once(Encoded::fence_signal(f.current.va, value)).chain(entry)
        });
        q.submit(&packets.collect::<Vec<_>>());
        rig.settle();
        let everything = rig.drain().contains(&(0, Notice::FencesSignaled));
        assert_eq!(everything, logged != [true, true], "{logged:?}");
    }
}

#[test]
fn a_plain_store_to_the_fence_notifies_nobody() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let f = rig.fence();
    f.monitored.word(0).store(0, Ordering::SeqCst);
    q.submit(&[packet::Store { address: f.current.va.0, value: 9 }.to_packet()]);
    rig.settle();
    assert_eq!((f.current.read(0), rig.interrupts()), (9, 0));
}

#[test]
fn the_monitored_value_is_read_only_to_the_gpu() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let f = rig.fence();
    let m = rig.map(1, false);
    q.submit(&[
        packet::Copy { source: f.monitored.va.0, destination: m.va.0, length: 8 }.to_packet(),
        packet::Store { address: f.monitored.va.0, value: 9 }.to_packet(),
    ]);
    rig.settle();
    assert_eq!(m.read(0), u64::MAX);
    assert_eq!(f.monitored.read(0), u64::MAX);
    assert_eq!(q.fault(), Some(FaultKind::Address));
}

#[test]
fn queues_wait_for_each_other_without_the_cpu() {
    let mut rig = Rig::new();
    let (mut a, mut b) = (rig.queue(0, 0), rig.queue(1, 1));
    let f = rig.fence();
    let m = rig.map(1, false);
    a.submit(&[
        Encoded::fence_wait(f.current.va, 5),
        log(WAIT_UNBLOCKED, 5, 0),
        packet::Store { address: m.va.0, value: 1 }.to_packet(),
    ]);
    rig.settle();
    assert_eq!((m.read(0), f.fence.parked.len()), (0, 1));
    // A wait that is not met is not retired.
    assert_eq!(a.read_pointer(), 0);
    b.submit(&[Encoded::fence_signal(f.current.va, 4)]);
    rig.settle();
    assert_eq!(m.read(0), 0);
    b.submit(&[Encoded::fence_signal(f.current.va, 6)]);
    rig.settle();
    assert_eq!((m.read(0), f.fence.parked.len(), rig.interrupts()), (1, 0, 0));
    assert_eq!(a.read_pointer(), a.wp);
    let [value, handle_op, observed, end] = log_entry(a.waits, 0);
    assert_eq!((value, handle_op), (5, 0x40 | u64::from(WAIT_UNBLOCKED) << 32));
    assert!(observed != 0 && observed < end);
}

#[test]
fn a_met_wait_goes_on_and_logs_one_time() {
    let mut rig = Rig::new();
    let mut a = rig.queue(0, 0);
    let f = rig.fence();
    f.current.word(0).store(7, Ordering::SeqCst);
    a.submit(&[Encoded::fence_wait(f.current.va, 7), log(WAIT_UNBLOCKED, 7, 0)]);
    rig.settle();
    let [_, _, observed, end] = log_entry(a.waits, 0);
    assert_eq!(observed, end);
    assert_ne!(end, 0);
}

#[test]
fn a_value_that_was_reached_and_taken_back_still_lets_the_waiter_go() {
    let mut rig = Rig::new();
    let (mut a, mut b) = (rig.queue(0, 0), rig.queue(1, 1));
    let f = rig.fence();
    let m = rig.map(1, false);
    a.submit(&[Encoded::fence_wait(f.current.va, 5), packet::Store { address: m.va.0, value: 1 }.to_packet()]);
    rig.settle();
    b.submit(&[Encoded::fence_signal(f.current.va, 9), Encoded::fence_signal(f.current.va, 2)]);
    rig.settle();
    assert_eq!((m.read(0), f.current.read(0)), (1, 2));
    assert_eq!(rig.gpu.totals().backwards, 1);
}

#[test]
pub(crate) fn the_cpu_signals_and_wakes_parked_queues_in_order_of_value() {
    let mut rig = Rig::new();
    let f = rig.fence();
    let m = rig.map(1, false);
    let mut queues: Vec<_> = (0..4).map(|i| rig.queue(0, i)).collect();
    for (i, q) in queues.iter_mut().enumerate() {
        let value = [7, 3, 9, 5][i];
        q.submit(&[
            Encoded::fence_wait(f.current.va, value),
            packet::Store { address: m.at(i as u64 * 8).0, value }.to_packet(),
        ]);
    }
    rig.settle();
    let gpu = rig.gpu.clone();
    let woken = f.fence.signal_from_cpu(&f.current.word(0), 6, &gpu.mutation, |q, ticket| {
        q.wake(ticket, true, 0);
        gpu.make_ready(&q);
    });
    assert_eq!(woken, 2);
    rig.settle();
    assert_eq!([0, 8, 16, 24].map(|o| m.read(o)), [0, 3, 0, 5]);
    // NotificationOnly: another adapter wrote the value; each queue looks for itself.
    f.current.word(0).store(8, Ordering::SeqCst);
    f.fence.parked.look_again(|q, ticket| {
        q.wake(ticket, false, 0);
        gpu.make_ready(&q);
    });
    rig.settle();
    assert_eq!([0, 8, 16, 24].map(|o| m.read(o)), [7, 3, 0, 5]);
    assert_eq!(f.fence.parked.len(), 1);
}

#[test]
pub(crate) fn an_always_signaled_fence_passes_waits_and_drops_signals() {
    let mut rig = Rig::new();
    let mut a = rig.queue(0, 0);
    let f = rig.fence();
    let m = rig.map(1, false);
    a.submit(&[Encoded::fence_wait(f.current.va, 5), packet::Store { address: m.va.0, value: 1 }.to_packet()]);
    rig.settle();
    let gpu = rig.gpu.clone();
    f.fence.set_always_signaled(Some((&f.current.word(0), 9)), |q, ticket| {
        q.wake(ticket, true, 0);
        gpu.make_ready(&q);
    });
    rig.settle();
    assert_eq!((f.current.read(0), m.read(0)), (9, 1));
    // From here on the value stays, also when the CPU signals, or says once more that the fence is dead.
    let woken = f.fence.signal_from_cpu(&f.current.word(0), 88, &gpu.mutation, |_, _| ());
    f.fence.set_always_signaled(Some((&f.current.word(0), 99)), |_, _| ());
    assert_eq!((woken, f.current.read(0)), (0, 9));
    a.submit(&[
        Encoded::fence_signal(f.current.va, 77),
        Encoded::fence_wait(f.current.va, u64::MAX),
        packet::Store { address: m.va.0, value: 2 }.to_packet(),
    ]);
    rig.settle();
    assert_eq!((f.current.read(0), m.read(0)), (9, 2));
}

#[test]
pub(crate) fn an_interrupt_that_cannot_be_raised_is_asked_for_again() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let f = rig.fence();
    f.monitored.word(0).store(0, Ordering::SeqCst);
    rig.gpu.host.refuse_interrupts.store(true, Ordering::SeqCst);
    q.submit(&[Encoded::fence_signal(f.current.va, 1)]);
    for _ in 0..10 {
        rig.engines[0].step();
    }
    assert_eq!(rig.interrupts(), 0);
    rig.gpu.host.refuse_interrupts.store(false, Ordering::SeqCst);
    assert_eq!(rig.engines[0].step(), Step::Idle(Watched::Doorbells));
    assert_eq!(rig.interrupts(), 1);
    assert_eq!(rig.drain().len(), 1);
}

#[test]
pub(crate) fn an_overflowing_mailbox_asks_for_a_scan_of_everything() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let fences: Vec<_> = (0..300).map(|_| rig.fence()).collect();
    for chunk in fences.chunks(100) {
        for f in chunk {
            f.monitored.word(0).store(0, Ordering::SeqCst);
        }
        let signals: Vec<_> = chunk.iter().map(|f| Encoded::fence_signal(f.current.va, 1)).collect();
        q.submit(&signals);
        rig.settle();
    }
    let notices = rig.drain();
    assert_eq!(notices.len(), 257);
    assert_eq!(notices[256], (0, Notice::FencesSignaled));
    // And afterwards every fence can be named again.
    q.submit(&[Encoded::fence_signal(fences[299].current.va, 2)]);
    rig.settle();
    assert_eq!(rig.drain(), [(0, Notice::FenceSignaled { fence: fences[299].fence.slot, queue: q.queue.slot })]);
}

#[test]
fn a_killed_slot_names_nothing() {
    let mut rig = Rig::new();
    let f = rig.fence();
    assert!(rig.gpu.slots.handle(f.fence.slot).is_some());
    rig.gpu.slots.kill(f.fence.slot);
    assert_eq!(rig.gpu.slots.handle(f.fence.slot), None);
    rig.gpu.slots.free(f.fence.slot);
    let reused = rig.gpu.slots.allocate(5).unwrap();
    assert_eq!(reused.index, f.fence.slot.index);
    assert_ne!(reused.generation, f.fence.slot.generation);
    assert_eq!((rig.gpu.slots.handle(f.fence.slot), rig.gpu.slots.handle(reused)), (None, Some(5)));
}

#[test]
pub(crate) fn a_fence_that_no_engine_signals_is_reported_by_a_node_that_is_not_held() {
    let mut rig = Rig::new();
    assert_eq!(rig.gpu.speaker(), Some(0));
    rig.gpu.command(0, Control::Hold);
    assert_eq!(rig.gpu.speaker(), Some(1));
    rig.gpu.command(1, Control::Hold);
    rig.gpu.command(2, Control::Hold);
    rig.settle();
    // No node may be named: it is reported when the first one is resumed, and once.
    assert_eq!(rig.gpu.speaker(), None);
    assert_eq!(rig.interrupts(), 0);
    for node in 0..3 {
        rig.gpu.command(node, Control::Run);
        rig.gpu.raise_again(node);
    }
    rig.settle();
    assert_eq!(rig.interrupts(), 1);
    assert_eq!(rig.drain(), [(0, Notice::FencesSignaled)]);
}

/// A process that may only wait for a shared fence has its CurrentValue mapped read-only. Its signal faults, and lets
/// no queue of another process go.
#[test]
fn a_signal_that_faults_wakes_nobody() {
    let mut rig = Rig::new();
    let (fence, m) = (rig.fence(), rig.map(1, false));
    let mut waits = rig.queue(0, 0);
    waits.submit(&[Encoded::fence_wait(fence.current.va, 5), packet::Store { address: m.va.0, value: 3 }.to_packet()]);
    rig.settle();
    let process = rig.process.clone();
    let table = rig.leaf_table(&rig.context.clone(), fence.current.va);
    let entry = rig.entry(table, pte::index(fence.current.va, 0));
    let writable = entry.load(Ordering::SeqCst);
    let place = pte::Pte(writable).as_leaf().expect("a leaf").place;
    entry.store(pte::Pte::leaf(place, true).expect("an entry").0, Ordering::SeqCst);
    rig.gpu.flush(process.number, 0, 0);
    rig.settle();
    let mut signals = rig.queue(0, 1);
    signals.submit(&[Encoded::fence_signal(fence.current.va, u64::MAX)]);
    rig.settle();
    assert_eq!(signals.queue.state(), State::Stopped);
    assert_eq!((fence.current.read(0), m.read(0), fence.fence.parked.len()), (0, 0, 1));
}
