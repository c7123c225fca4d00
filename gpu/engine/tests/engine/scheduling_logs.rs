//! The scheduling log: which context was idle, ready or running, and when.

use crate::support::{Rig, TestQueue};
use gpu_engine::memory::Span;
use gpu_engine::notice::Notice;
use gpu_engine::scheduling_log::{ContextState, ENTRY_SIZE, HEADER_SIZE};
use gpu_engine::word::{Ordering, Word};
use gpu_wire::packet;

const IDLE: u32 = ContextState::Idle as u32;
const RUNNING: u32 = ContextState::Running as u32;
const READY: u32 = ContextState::Ready as u32;

/// A queue on node 0 whose context has the driver's handle `handle`, which entries name.
pub(crate) fn named(rig: &mut Rig, doorbell: usize, handle: u64) -> TestQueue {
    let queue = rig.queue(0, doorbell);
    rig.gpu.slots.set_driver_handle(queue.queue.context.slot, handle);
    queue
}

/// Handle and state of every entry of a log that has not wrapped. Asserts that times do not go backwards.
fn entries(log: Span<'static>) -> Vec<(u64, u32)> {
    let load = |offset| log.word(offset).unwrap().load(Ordering::Acquire);
    let count = load(0);
    let at = |index| HEADER_SIZE + index * ENTRY_SIZE;
    assert!((1..count).all(|index| load(at(index - 1)) <= load(at(index))));
    // CAST: a state.
    (0..count).map(|index| (load(at(index) + 16), load(at(index) + 24) as u32)).collect()
}

fn store(rig: &mut Rig) -> gpu_wire::packet::Encoded {
    let m = rig.map(1, false);
    packet::Store { address: m.va.0, value: 1 }.to_packet()
}

#[test]
fn a_turn_that_runs_something_is_written_and_no_other() {
    let mut rig = Rig::new();
    let (mut a, mut b) = (named(&mut rig, 0, 0xA0), named(&mut rig, 1, 0xB0));
    let (log, work) = (rig.map(1, false).bytes, store(&mut rig));
    rig.gpu.nodes[0].scheduling.set(log, 100, u32::MAX).unwrap();
    // The ring has nothing published: the doorbell makes the queue ready, and its turn begins nothing.
    a.ring();
    rig.settle();
    let before = entries(log);
    assert!(before.iter().all(|(_, state)| *state != RUNNING), "{before:?}");
    a.submit(&[work, work]);
    rig.settle();
    b.submit(&[work]);
    rig.settle();
    let turn = |handle| [(handle, READY), (handle, RUNNING), (handle, IDLE)];
    assert_eq!(entries(log)[before.len()..], [turn(0xA0), turn(0xB0)].concat());
}

/// The queue that ran last is found by its write pointer, and runs at once: it was ready before it ran all the same.
#[test]
fn a_context_that_is_found_at_once_was_ready() {
    let mut rig = Rig::new();
    let mut a = named(&mut rig, 0, 0xA0);
    let (log, work) = (rig.map(1, false).bytes, store(&mut rig));
    a.submit(&[work]);
    rig.engines[0].step();
    rig.gpu.nodes[0].scheduling.set(log, 100, u32::MAX).unwrap();
    a.publish(&[work]);
    rig.settle();
    assert_eq!(entries(log), [(0xA0, READY), (0xA0, RUNNING), (0xA0, IDLE)]);
}

/// The same while another queue waits for its turn.
#[test]
fn a_context_that_is_found_at_once_beside_others_was_ready() {
    let mut rig = Rig::new();
    let (mut a, mut b) = (named(&mut rig, 0, 0xA0), named(&mut rig, 1, 0xB0));
    let (log, work) = (rig.map(1, false).bytes, store(&mut rig));
    a.submit(&[work]);
    rig.engines[0].step();
    rig.gpu.nodes[0].scheduling.set(log, 100, u32::MAX).unwrap();
    a.publish(&[work]);
    b.submit(&[work]);
    rig.settle();
    let mut of_a = entries(log);
    of_a.retain(|(handle, _)| *handle == 0xA0);
    assert_eq!(of_a, [(0xA0, READY), (0xA0, RUNNING), (0xA0, IDLE)]);
}

/// A queue is ready from the moment at which it is made so, also where its engine sleeps.
#[test]
fn a_queue_that_is_made_ready_for_a_sleeping_engine_is_ready_at_once() {
    let mut rig = Rig::new();
    let mut a = named(&mut rig, 0, 0xA0);
    let (log, work) = (rig.map(1, false).bytes, store(&mut rig));
    rig.settle();
    rig.cool();
    rig.gpu.nodes[0].scheduling.set(log, 100, u32::MAX).unwrap();
    a.publish(&[work]);
    assert!(rig.engines[0].prepare_sleep());
    rig.gpu.make_ready(&a.queue);
    assert_eq!(entries(log), [(0xA0, READY)]);
}

/// The entry that interrupts is the first of two that are written together.
#[test]
fn the_entry_that_interrupts_takes_no_other_along() {
    let mut rig = Rig::new();
    let mut a = named(&mut rig, 0, 0xA0);
    let (log, fence) = (rig.map(1, false).bytes, rig.fence());
    let (fence, index_hint) = (fence.current.va.0, u32::MAX);
    let signal = |value| packet::FenceLogged { fence, value, fence_handle: 0x40, index_hint }.to_packet();
    a.submit(&[signal(1)]);
    rig.engines[0].step();
    rig.gpu.nodes[0].scheduling.set(log, 100, 1).unwrap();
    a.publish(&[signal(2)]);
    rig.settle();
    assert_eq!(entries(log), [(0xA0, READY), (0xA0, RUNNING), (0xA0, IDLE)]);
    assert_eq!(rig.drain(), [(0, Notice::SchedulingLog)]);
}

#[test]
fn a_context_that_waits_has_work_and_does_not_run() {
    let mut rig = Rig::new();
    let mut a = named(&mut rig, 0, 0xA0);
    let (log, fence) = (rig.map(1, false).bytes, rig.fence());
    rig.gpu.nodes[0].scheduling.set(log, 100, u32::MAX).unwrap();
    a.submit(&[packet::Encoded::fence_wait(fence.current.va, 5)]);
    rig.settle();
    assert_eq!(entries(log), [(0xA0, READY), (0xA0, RUNNING), (0xA0, READY)]);
    // Destroying the queue takes the context's pending work away.
    rig.gpu.destroy_queue(&a.queue);
    rig.settle();
    assert_eq!(entries(log)[3..], [(0xA0, IDLE)]);
}

/// Work that a queue was made ready for is no work of its context any more once the queue is destroyed, although the
/// engine has not come to it: when it does, the context may have no name.
#[test]
fn a_context_is_idle_when_the_queue_is_destroyed_that_was_ready() {
    let mut rig = Rig::new();
    let a = named(&mut rig, 0, 0xA0);
    let log = rig.map(1, false).bytes;
    rig.settle();
    rig.cool();
    rig.gpu.nodes[0].scheduling.set(log, 100, u32::MAX).unwrap();
    rig.gpu.make_ready(&a.queue);
    rig.gpu.destroy_queue(&a.queue);
    assert_eq!(entries(log), [(0xA0, READY), (0xA0, IDLE)]);
    rig.settle();
    assert_eq!(entries(log).len(), 2);
}

#[test]
fn the_named_entry_interrupts_and_a_replaced_log_is_left_alone() {
    let mut rig = Rig::new();
    let mut a = named(&mut rig, 0, 0xA0);
    let (first, second, work) = (rig.map(1, false).bytes, rig.map(1, false).bytes, store(&mut rig));
    let scheduling = |rig: &Rig, log, entries, interrupt| rig.gpu.nodes[0].scheduling.set(log, entries, interrupt);
    assert!(scheduling(&rig, first, 0, 0).is_err() && scheduling(&rig, first, 128, 0).is_err());
    scheduling(&rig, first, 2, 1).unwrap();
    a.submit(&[work]);
    rig.settle();
    assert_eq!(rig.drain(), [(0, Notice::SchedulingLog)]);
    let position = |log: Span<'static>| log.word(0).unwrap().load(Ordering::Acquire);
    assert_eq!(position(first), 1 << 32 | 1, "three entries in a log of two");
    scheduling(&rig, second, 100, u32::MAX).unwrap();
    let held: Vec<u64> = (0..12).map(|word| first.word(word * 8).unwrap().load(Ordering::Acquire)).collect();
    a.submit(&[work]);
    rig.settle();
    assert_eq!(entries(second), [(0xA0, READY), (0xA0, RUNNING), (0xA0, IDLE)]);
    let now: Vec<u64> = (0..12).map(|word| first.word(word * 8).unwrap().load(Ordering::Acquire)).collect();
    assert_eq!(held, now);
    rig.gpu.nodes[0].scheduling.clear();
    a.submit(&[work]);
    rig.settle();
    assert_eq!((position(second), rig.drain()), (3, Vec::new()));
}

/// What was noted of a context before the log was taken away counts no more: it may have changed unseen.
#[test]
fn a_log_behind_none_starts_with_idle_contexts() {
    let mut rig = Rig::new();
    let mut a = named(&mut rig, 0, 0xA0);
    let (first, second, fence, work) = (rig.map(1, false).bytes, rig.map(1, false).bytes, rig.fence(), store(&mut rig));
    rig.gpu.nodes[0].scheduling.set(first, 100, u32::MAX).unwrap();
    a.submit(&[packet::Encoded::fence_wait(fence.current.va, 5)]);
    rig.settle();
    assert_eq!(entries(first).last(), Some(&(0xA0, READY)));
    rig.gpu.nodes[0].scheduling.clear();
    // The wait is met while nothing is written, and the context idle.
    let gpu = rig.gpu.clone();
    fence.fence.signal_from_cpu(&fence.current.word(0), 5, &gpu.mutation, |queue, ticket| {
        queue.wake(ticket, true, 0);
        gpu.make_ready(&queue);
    });
    rig.settle();
    rig.gpu.nodes[0].scheduling.set(second, 100, u32::MAX).unwrap();
    a.submit(&[work]);
    rig.settle();
    assert_eq!(entries(second), [(0xA0, READY), (0xA0, RUNNING), (0xA0, IDLE)]);
    assert_eq!(entries(first).len(), 3);
}

/// A log that is set again goes on where its header stands, which only an index behind its end changes, and contexts
/// stay what they were.
#[test]
fn a_log_that_is_set_again_goes_on_where_it_stands() {
    let mut rig = Rig::new();
    let (mut a, mut b) = (named(&mut rig, 0, 0xA0), named(&mut rig, 1, 0xB0));
    let (log, fence, work) = (rig.map(1, false).bytes, rig.fence(), store(&mut rig));
    rig.gpu.nodes[0].scheduling.set(log, 100, u32::MAX).unwrap();
    a.submit(&[packet::Encoded::fence_wait(fence.current.va, 5)]);
    rig.settle();
    let first = entries(log);
    assert_eq!(first, [(0xA0, READY), (0xA0, RUNNING), (0xA0, READY)]);
    rig.gpu.nodes[0].scheduling.set(log, 100, u32::MAX).unwrap();
    b.submit(&[work]);
    rig.settle();
    rig.gpu.destroy_queue(&a.queue);
    let turn = [(0xB0, READY), (0xB0, RUNNING), (0xB0, IDLE)];
    assert_eq!(entries(log), [&first[..], &turn[..], &[(0xA0, IDLE)]].concat());
    // Seven entries stand there: the next one is the first again, and the wraparounds count on.
    let position = log.word(0).unwrap();
    position.store(3 << 32 | 7, Ordering::Release);
    rig.gpu.nodes[0].scheduling.set(log, 4, u32::MAX).unwrap();
    b.submit(&[work]);
    rig.settle();
    assert_eq!(position.load(Ordering::Acquire), 3 << 32 | 3);
    let states =
        [0, 1, 2].map(|index| log.word(HEADER_SIZE + index * ENTRY_SIZE + 24).unwrap().load(Ordering::Acquire));
    assert_eq!(states, [READY, RUNNING, IDLE].map(u64::from));
}
