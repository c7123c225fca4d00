//! Packets that are carried out together, and the queue whose write pointer is looked at: what shows of either is what
//! would show without.

use crate::support::{Range, Rig, TestFence, TestQueue, log_entry, log_position};
use gpu_engine::counters::Totals;
use gpu_engine::notice::Notice;
use gpu_engine::queue::State;
use gpu_engine::word::{Ordering, Word};
use gpu_wire::packet::{self, Encoded, FaultKind, FenceLogged, Progress};
use gpu_wire::{GpuVa, PAGE_SIZE};

/// A queue whose progress fence is open, and a page. What the engine stores to is in its lookaside buffer: else the
/// packets are no stretch.
pub fn queue(rig: &mut Rig) -> (TestQueue, TestFence, Range) {
    let (fence, m) = (rig.fence(), rig.map(1, false));
    let context = rig.context(0);
    let mut queue = rig.queue_on(&context, 0, Some(fence.current));
    queue.submit(&[store(m.va, 0), Encoded::fence_signal(fence.current.va, 0)]);
    rig.settle();
    (queue, fence, m)
}

/// What node 0 has counted since `before`.
fn counted(rig: &Rig, before: &Totals) -> (u64, u64, u64) {
    let now = rig.gpu.nodes[0].counters.read();
    (now.signals - before.signals, now.packets - before.packets, now.log_entries - before.log_entries)
}

pub fn store(at: GpuVa, value: u64) -> Encoded {
    packet::Store { address: at.0, value }.to_packet()
}

pub fn progress(value: u64) -> Encoded {
    Progress { value, fence_handle: 0x40, index_hint: value as u32 - 1 }.to_packet()
}

/// Each signal has its entry, in order, with a time that is not before the one in front of it; the value is the last;
/// and the interrupt is one.
#[test]
fn each_signal_of_a_stretch_has_its_entry() {
    const SIGNALS: u64 = 40;
    let mut rig = Rig::new();
    let (mut queue, fence, m) = queue(&mut rig);
    let before = rig.gpu.nodes[0].counters.read();
    fence.monitored.word(0).store(0, Ordering::SeqCst);
    let packets: Vec<_> = (1..=SIGNALS).flat_map(|value| [store(m.va, value), progress(value)]).collect();
    queue.submit(&packets);
    rig.settle();
    assert_eq!((fence.current.read(0), m.read(0)), (SIGNALS, SIGNALS));
    assert_eq!(log_position(queue.signals), (SIGNALS as u32, 0));
    let entries: Vec<_> = (0..SIGNALS).map(|at| log_entry(queue.signals, at)).collect();
    assert!(entries.iter().zip(1..).all(|(entry, value)| entry[0] == value && entry[1] == 0x40 && entry[2] == 0));
    assert!(entries.windows(2).all(|two| two[0][3] <= two[1][3]) && entries[0][3] != 0);
    assert_eq!(rig.drain(), [(0, Notice::FenceSignaled { fence: fence.fence.slot, queue: queue.queue.slot })]);
    assert_eq!(counted(&rig, &before), (SIGNALS, 2 * SIGNALS, SIGNALS));
    assert_eq!(queue.queue.packets.load(Ordering::Relaxed), 2 + 2 * SIGNALS);
    assert_eq!(queue.read_pointer(), queue.wp);
}

/// A STORE to the word of the fence comes between two values.
#[test]
pub(crate) fn a_store_to_a_fences_word_comes_behind_the_signals_before_it() {
    let mut rig = Rig::new();
    let (mut queue, fence, m) = queue(&mut rig);
    queue.submit(&[store(m.va, 1), progress(5), store(fence.current.va, 3)]);
    rig.settle();
    assert_eq!((fence.current.read(0), m.read(0)), (3, 1));
}

fn fill(at: GpuVa, length: u64, pattern: u32) -> Encoded {
    packet::Fill { address: at.0, length, pattern, reserved: 0 }.to_packet()
}

fn copy(source: GpuVa, destination: GpuVa, length: u64) -> Encoded {
    packet::Copy { source: source.0, destination: destination.0, length }.to_packet()
}

/// Short fills and copies of a stretch see what came before them, a signal's value included, and are seen by what comes
/// behind; what they move is charged, so that a stretch of them is no longer than a step.
#[test]
fn short_fills_and_copies_stand_in_their_places() {
    let mut rig = Rig::new();
    let (mut queue, fence, m) = queue(&mut rig);
    let before = rig.gpu.nodes[0].counters.read();
    queue.submit(&[
        store(m.at(8), 3),
        copy(m.at(8), m.at(16), 8),
        progress(1),
        copy(fence.current.va, m.at(24), 8),
        store(m.at(32), 9),
        fill(m.at(32), 8, 0x0101_0101),
        fill(m.at(40), 0, 1),
        copy(m.at(32), m.at(48), 8),
        progress(2),
    ]);
    rig.settle();
    assert_eq!([16, 24, 32, 40, 48].map(|at| m.read(at)), [3, 1, 0x0101_0101_0101_0101, 0, 0x0101_0101_0101_0101]);
    assert_eq!((fence.current.read(0), queue.read_pointer()), (2, queue.wp));
    let now = rig.gpu.nodes[0].counters.read();
    assert_eq!((now.bytes - before.bytes, now.steps - before.steps, now.packets - before.packets), (32, 5, 9));
    // A fill of the fence's own word comes behind the signal's value.
    queue.submit(&[progress(3), fill(fence.current.va, 8, 5)]);
    rig.settle();
    assert_eq!(fence.current.read(0), 0x5_0000_0005);
    let bound = crate::preemption::BOUND;
    rig.gpu.nodes[0].counters.most_between_looks.store(0, Ordering::Relaxed);
    queue.submit(&vec![fill(m.va, PAGE_SIZE, 7); 120]);
    rig.settle();
    let most = rig.gpu.nodes[0].counters.read().most_between_looks;
    assert!((64 << 10..=bound).contains(&most) && m.read(4088) == 0x7_0000_0007, "{most} between two looks");
}

/// What is wrong with a fill or copy that could be one of a stretch is the fault of it; what is in front of it is done.
#[test]
fn a_short_operation_that_is_wrong_is_a_fault_in_its_place() {
    for at in 0..4 {
        let mut rig = Rig::new();
        let (mut queue, _, m) = queue(&mut rig);
        let (wrong, kind) = [
            (packet::Fill { address: m.va.0, length: 8, pattern: 1, reserved: 1 }.to_packet(), FaultKind::BadOperand),
            (copy(m.at(8), m.at(12), 8), FaultKind::BadOperand),
            (fill(m.at(2), 8, 1), FaultKind::BadOperand),
            (fill(m.at(4088), 4096, 1), FaultKind::Address),
        ][at];
        queue.submit(&[fill(m.at(64), 8, 5), wrong, store(m.at(72), 1)]);
        rig.settle();
        assert_eq!((queue.fault(), m.read(64), m.read(72)), (Some(kind), 0x5_0000_0005, 0));
    }
}

/// A page that may only be read is written by no operation of a stretch.
#[test]
fn short_operations_keep_to_the_rights_of_a_page() {
    let mut rig = Rig::new();
    let (mut queue, _, m) = queue(&mut rig);
    let read_only = rig.map(1, true);
    queue.submit(&[copy(read_only.va, m.at(8), 8), copy(read_only.va, m.at(16), 8)]);
    rig.settle();
    assert_eq!(queue.fault(), None);
    queue.submit(&[fill(read_only.va, 8, 1)]);
    rig.settle();
    assert_eq!((queue.fault(), read_only.read(0)), (Some(FaultKind::Address), 0));
}

/// What waits for a value in the middle of a stretch is woken by the value at its end.
#[test]
fn a_stretch_wakes_what_waits_for_its_middle() {
    let mut rig = Rig::new();
    let (mut queue, fence, m) = queue(&mut rig);
    let mut waits = rig.queue(1, 1);
    waits.submit(&[Encoded::fence_wait(fence.current.va, 2), store(m.va, 1)]);
    rig.settle();
    assert_eq!(m.read(0), 0);
    queue.submit(&[progress(1), progress(2), progress(3)]);
    rig.settle();
    assert_eq!((m.read(0), fence.current.read(0)), (1, 3));
}

/// Signals in front of a packet that faults are made, and the fault is that packet's.
#[test]
fn signals_in_front_of_a_fault_are_made() {
    let mut rig = Rig::new();
    let (mut queue, fence, _) = queue(&mut rig);
    let m = rig.map(1, true);
    fence.monitored.word(0).store(0, Ordering::SeqCst);
    let packets = [progress(1), progress(2), store(m.va, 1), progress(3)];
    queue.submit(&packets);
    rig.settle();
    assert_eq!((fence.current.read(0), queue.fault()), (2, Some(FaultKind::Address)));
    assert_eq!(queue.control.read(gpu_wire::ring::FAULT_POSITION as u64), 2 * 24 + 48);
    assert_eq!(log_position(queue.signals), (2, 0));
    assert_eq!(rig.drain().len(), 2, "the signal, and the fault");
}

/// Values that go down are stored one after the other, and counted; another fence's signal ends a stretch.
#[test]
fn a_stretch_is_of_one_fence_whose_values_rise() {
    let mut rig = Rig::new();
    let (mut queue, fence, _) = queue(&mut rig);
    let other = rig.fence();
    let signal = |fence: &TestFence, value| {
        FenceLogged { fence: fence.current.va.0, value, fence_handle: 0x50, index_hint: 0 }.to_packet()
    };
    queue.submit(&[signal(&fence, 5), signal(&fence, 7), signal(&fence, 6), signal(&other, 9), signal(&fence, 8)]);
    rig.settle();
    assert_eq!((fence.current.read(0), other.current.read(0)), (8, 9));
    let values: Vec<_> = (0..5).map(|at| log_entry(queue.signals, at)[0]).collect();
    assert_eq!(values, [5, 7, 6, 9, 8]);
    assert_eq!(rig.gpu.nodes[0].counters.read().backwards, 1);
}

/// A device that was lost in the middle: nothing is stored behind its fence's last value.
#[test]
fn a_stretch_stores_nothing_to_a_fence_that_is_always_signaled() {
    let mut rig = Rig::new();
    let (mut queue, fence, _) = queue(&mut rig);
    fence.fence.set_always_signaled(Some((&fence.current.word(0), u64::MAX)), |_, _| {});
    queue.submit(&[progress(1), progress(2)]);
    rig.settle();
    assert_eq!((fence.current.read(0), queue.read_pointer()), (u64::MAX, queue.wp));
}

/// A stretch goes on behind the end of the copy, around the end of the ring, and in a command buffer.
#[test]
fn stretches_end_with_what_was_copied_and_lose_nothing() {
    let mut rig = Rig::new();
    let (mut queue, fence, m) = queue(&mut rig);
    let code = rig.map(3, false);
    let mut value = 0;
    for _ in 0..40 {
        let packets = (0..60).flat_map(|_| {
            value += 1;
            [store(m.va, value), progress(value)]
        });
        queue.submit(&packets.collect::<Vec<_>>());
        rig.settle();
        assert_eq!((fence.current.read(0), m.read(0), queue.read_pointer()), (value, value, queue.wp));
    }
    // 170 packets of 24 bytes, one of which lies in two pages.
    for at in 0..340 {
        value += 1;
        code.bytes.part(at * 24, u64::MAX).write(progress(value).as_bytes());
    }
    queue.submit(&[packet::Indirect { address: code.va.0, length: 340 * 24 }.to_packet(), store(m.at(8), value)]);
    rig.settle();
    assert_eq!((fence.current.read(0), m.read(8)), (value, value));
    const { assert!(340 * 24 > PAGE_SIZE) };
}

/// Work that is published behind the last look of a turn is found, rung or not, and what rings while another queue is
/// looked at is found, too.
#[test]
fn no_ring_is_lost_beside_the_queue_that_is_looked_at() {
    let mut rig = Rig::new();
    let (mut hot, fence, m) = queue(&mut rig);
    let mut other = rig.queue(0, 1);
    rig.settle();
    for value in 1..=3000_u64 {
        hot.submit(&[progress(value)]);
        if value.is_multiple_of(7) {
            other.submit(&[store(m.va, value)]);
        }
        if value.is_multiple_of(500) {
            rig.cool();
        }
        rig.settle();
        assert_eq!((fence.current.read(0), m.read(0)), (value, value / 7 * 7), "{value}");
    }
}

/// The ring of a queue that ran last is seen in the middle of another's endless work.
#[test]
fn a_ring_of_the_queue_that_was_looked_at_ends_the_turn_of_another() {
    let mut rig = Rig::new();
    let (mut hot, fence, m) = queue(&mut rig);
    let mut hog = rig.queue(0, 1);
    let jump = crate::preemption::endless(&mut rig, m.va);
    rig.settle();
    hot.submit(&[progress(1)]);
    rig.settle();
    hog.submit(&[jump]);
    let mut rung = false;
    let ran = crate::preemption::holds_while_it_runs(&mut rig, || {
        if m.read(0) == 1 && !rung {
            hot.submit(&[progress(2)]);
            rung = true;
        }
        fence.current.read(0) == 2
    });
    assert!(ran);
}

/// The engine lets go of a queue whose doorbell changes hands, whose ring is unmapped, or that is destroyed.
#[test]
fn a_queue_that_is_looked_at_may_go() {
    let mut rig = Rig::new();
    let (mut hot, fence, m) = queue(&mut rig);
    hot.submit(&[progress(1)]);
    rig.settle();
    // Its doorbell is another's: what is published is not looked at any more.
    let mut next = rig.queue(0, 0);
    hot.publish(&[progress(2)]);
    next.submit(&[store(m.va, 1)]);
    rig.settle();
    assert_eq!((fence.current.read(0), m.read(0)), (1, 1));
    // Its pages are gone when the while is over: what it rang was served, and the queue is left alone.
    next.submit(&[store(m.va, 2)]);
    rig.settle();
    rig.cool();
    unmap(&mut rig, &next);
    rig.cool();
    assert_eq!((m.read(0), next.queue.state()), (2, State::Active));
}

/// A ring that is taken away within the while is not looked at; the queue, whose doorbell is connected, has done wrong.
#[test]
fn pages_that_go_while_they_are_looked_at_are_the_queues_fault() {
    let mut rig = Rig::new();
    let (mut hot, fence, _) = queue(&mut rig);
    hot.submit(&[progress(1)]);
    rig.settle();
    unmap(&mut rig, &hot);
    hot.submit(&[progress(2)]);
    rig.settle();
    assert_eq!((fence.current.read(0), hot.queue.state()), (1, State::Stopped));
}

/// Takes the control page of `queue` out of its address space, as a paging operation does.
fn unmap(rig: &mut Rig, queue: &TestQueue) {
    let space = rig.context.clone();
    let table = rig.leaf_table(&space, queue.control.va);
    rig.entry(table, gpu_wire::pte::index(queue.control.va, 0)).store(0, Ordering::SeqCst);
    rig.gpu.flush(rig.process.number, 0, 0);
    rig.settle();
}

/// A fill stands between a wait and a signal: the signal's time is read behind the fill, and is not that of the wait's
/// entry.
#[test]
fn a_signal_behind_a_warm_fill_has_a_time_of_its_own() {
    let mut rig = Rig::new();
    let (mut queue, fence, m) = queue(&mut rig);
    let waited = packet::log_operation::WAIT_UNBLOCKED;
    queue.submit(&[
        Encoded::fence_wait(fence.current.va, 0),
        crate::support::log(waited, 0, 0),
        fill(m.va, 4096, 7),
        progress(1),
    ]);
    rig.settle();
    let (waited, signaled) = (log_entry(queue.waits, 0)[3], log_entry(queue.signals, 0)[3]);
    assert!(signaled > waited && waited != 0, "{signaled} behind {waited}");
}
