//! A ring that replaces another one: what is published in the old one runs first, waits included, and the new one
//! begins at position 0. While the queue has no doorbell, nothing of its ring is touched.

use crate::looks::resting;
use crate::preemption::{endless, holds_while_it_runs};
use crate::support::{Range, Rig, TestQueue};
use gpu_engine::queue::{Binding, State};
use gpu_engine::rings::RINGS;
use gpu_engine::word::{Ordering, Word};
use gpu_wire::GpuVa;
use gpu_wire::packet::{self, Encoded, FenceLogged};
use gpu_wire::ring::READ_POINTER;

fn store(at: GpuVa, value: u64) -> Encoded {
    packet::Store { address: at.0, value }.to_packet()
}

/// The control page of a ring that was replaced, and its write pointer.
struct Old(Range, u64);

impl Old {
    fn is_done(&self) -> bool {
        self.0.read(READ_POINTER as u64) == self.1
    }
}

/// Another ring for `queue`, which writes to it from then on.
fn another(rig: &mut Rig, queue: &mut TestQueue) -> (Binding, Old) {
    let old = Old(queue.control, queue.wp);
    (queue.ring, queue.control, queue.wp) = (rig.map(1, false), rig.map(1, false), 0);
    (Binding { ring: queue.ring.va, control: queue.control.va, geometry: queue.geometry }, old)
}

/// The old ring has a wait that is not met, and work behind it.
#[test]
pub(crate) fn the_old_ring_runs_to_its_end_before_the_new_one_begins_at_zero() {
    let mut rig = Rig::new();
    let (mut q, mut signals) = (rig.queue(0, 0), rig.queue(1, 1));
    let (f, m) = (rig.fence(), rig.map(1, false));
    q.submit(&[store(m.at(8), 1)]);
    rig.settle();
    q.submit(&[Encoded::fence_wait(f.current.va, 1), store(m.va, 1)]);
    rig.settle();
    assert_eq!(f.fence.parked.len(), 1);
    let (binding, old) = another(&mut rig, &mut q);
    q.queue.set_aside();
    rig.gpu.make_ready(&q.queue);
    rig.settle();
    assert!(q.queue.resize(binding));
    rig.gpu.make_ready(&q.queue);
    q.submit(&[store(m.at(16), 1), store(m.va, 2)]);
    rig.settle();
    assert_eq!((m.read(0), m.read(16), f.fence.parked.len()), (0, 0, 1), "the wait of the old ring is forgotten");
    signals.submit(&[Encoded::fence_signal(f.current.va, 1)]);
    rig.settle();
    assert_eq!((m.read(0), m.read(16)), (2, 1));
    assert!(old.is_done() && q.read_pointer() == q.wp);
    assert_eq!(q.queue.state(), State::Active);
}

/// A wait that is met while the queue has no doorbell, and work behind it.
#[test]
pub(crate) fn nothing_runs_while_a_ring_is_set_aside() {
    let mut rig = Rig::new();
    let (mut q, mut signals) = (rig.queue(0, 0), rig.queue(1, 1));
    let (f, m) = (rig.fence(), rig.map(1, false));
    q.submit(&[Encoded::fence_wait(f.current.va, 1), store(m.va, 1)]);
    rig.settle();
    let before = q.read_pointer();
    q.queue.set_aside();
    signals.submit(&[Encoded::fence_signal(f.current.va, 1)]);
    q.ring();
    rig.settle();
    assert_eq!((m.read(0), q.read_pointer()), (0, before), "a ring without a doorbell is executed");
    let (binding, old) = another(&mut rig, &mut q);
    assert!(q.queue.resize(binding));
    rig.gpu.make_ready(&q.queue);
    q.publish(&[store(m.va, 2)]);
    rig.settle();
    assert!(m.read(0) == 2 && old.is_done() && q.read_pointer() == q.wp);
}

/// User mode frees the old ring when its read pointer says that all is done: the engine may not have left it yet.
#[test]
fn a_ring_that_is_done_may_go_before_the_engine_leaves_it() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let m = rig.map(1, false);
    q.submit(&[store(m.va, 1)]);
    rig.settle();
    let (binding, old) = another(&mut rig, &mut q);
    assert!(old.is_done() && q.queue.resize(binding));
    let table = rig.leaf_table(&rig.context.clone(), old.0.va);
    rig.entry(table, gpu_wire::pte::index(old.0.va, 0)).store(0, Ordering::SeqCst);
    rig.gpu.flush(rig.process.number, 0, 0);
    rig.gpu.make_ready(&q.queue);
    q.submit(&[store(m.va, 2)]);
    rig.settle();
    assert_eq!((m.read(0), q.queue.state(), q.read_pointer()), (2, State::Active, q.wp));
}

/// An engine that rests between its looks at write pointers takes what it has seen for all that there is, until it is
/// rung. Behind its look user mode publishes more in the old ring, and then replaces that: who rings the new one rings
/// for both.
#[test]
pub(crate) fn what_is_published_in_front_of_another_ring_runs_where_the_engine_rests() {
    let (mut rig, mut q, value) = resting();
    let (f, m) = (rig.fence(), rig.map(1, false));
    let mut waits = rig.queue(1, 1);
    waits.submit(&[Encoded::fence_wait(f.current.va, 1), store(m.at(16), 1)]);
    rig.settle();
    // So many that it rests on. Where the ring has no more, the last lets the other queue go, by the clock.
    let signals = (1..=8).map(|n| Encoded::fence_signal(q.queue.progress, value + n));
    let logged = FenceLogged { fence: f.current.va.0, value: 1, fence_handle: 0x40, index_hint: 0 }.to_packet();
    q.submit(&signals.chain([logged]).collect::<Vec<_>>());
    let seen = q.wp;
    q.publish(&[store(m.va, 1)]);
    let (binding, old) = another(&mut rig, &mut q);
    let (pointer, queue, end) = (old.0, q.queue.clone(), old.1);
    pointer.word(0).store(seen, Ordering::SeqCst);
    // Behind the signal the clock is read for its entry first.
    let mut readings = 0;
    *rig.gpu.host.on_clock.lock().unwrap() = Some(Box::new(move || {
        readings += f.current.read(0);
        if readings == 2 {
            pointer.word(0).store(end, Ordering::SeqCst);
            assert!(queue.resize(binding));
        }
    }));
    rig.settle();
    assert_eq!(old.0.read(0), end, "the clock was not read");
    q.submit(&[store(m.at(8), 1)]);
    rig.gpu.make_ready(&q.queue);
    rig.settle();
    assert_eq!((m.read(0), m.read(8), m.read(16)), (1, 1, 1), "what was published in the old ring is lost");
    assert!(old.is_done());
}

/// The old ring was never looked at: its work was published, and not rung.
#[test]
fn rings_that_no_turn_has_seen_run_in_their_order() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let m = rig.map(1, false);
    rig.settle();
    let (mut last, mut olds) = (0, Vec::new());
    for _ in 1..RINGS {
        last += 1;
        // Each stands on the one before.
        q.publish(&[store(m.at(8 * last), last), store(m.va, last)]);
        let (binding, old) = another(&mut rig, &mut q);
        assert!(q.queue.resize(binding));
        olds.push(old);
    }
    let binding = q.queue.binding().unwrap();
    assert!(!q.queue.resize(binding), "more rings than there are places");
    q.publish(&[store(m.va, last + 1)]);
    rig.gpu.make_ready(&q.queue);
    rig.settle();
    assert_eq!(m.read(0), last + 1);
    assert!((1..=last).all(|at| m.read(8 * at) == at));
    assert!(olds.iter().all(Old::is_done));
}

/// A doorbell without the flag begins anew.
#[test]
fn a_ring_that_replaces_none_forgets_what_was_set_aside() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let (f, m) = (rig.fence(), rig.map(1, false));
    q.submit(&[Encoded::fence_wait(f.current.va, 1), store(m.va, 1)]);
    rig.settle();
    q.queue.set_aside();
    let (binding, _) = another(&mut rig, &mut q);
    q.queue.bind(Some(binding));
    q.submit(&[store(m.va, 2)]);
    rig.gpu.make_ready(&q.queue);
    rig.settle();
    assert_eq!((m.read(0), f.fence.parked.len()), (2, 0));
}

/// User mode may say of a queue's first ring that it replaces another one.
#[test]
fn a_first_ring_that_replaces_none_is_executed() {
    let mut rig = Rig::new();
    let (mut q, m) = (rig.queue(0, 0), rig.map(1, false));
    q.queue.bind(None);
    rig.settle();
    let binding = Binding { ring: q.ring.va, control: q.control.va, geometry: q.geometry };
    assert!(q.queue.resize(binding));
    rig.gpu.make_ready(&q.queue);
    q.submit(&[store(m.va, 1)]);
    rig.settle();
    assert_eq!((m.read(0), q.read_pointer()), (1, q.wp));
    // The ring that replaces it is executed behind it.
    let (next, old) = another(&mut rig, &mut q);
    assert!(q.queue.resize(next));
    rig.gpu.make_ready(&q.queue);
    q.submit(&[store(m.va, 2)]);
    rig.settle();
    assert!(m.read(0) == 2 && old.is_done() && q.read_pointer() == q.wp);
}

/// The doorbell is destroyed in the middle of a buffer that never ends: the engine leaves the ring at its next look,
/// and user mode may use it anew from position 0.
#[test]
fn the_engine_leaves_a_ring_that_is_set_aside() {
    for preempts in [true, false] {
        let mut rig = if preempts { Rig::new() } else { Rig::without_preemption() };
        let (mut q, m) = (rig.queue(0, 0), rig.map(1, false));
        let jump = endless(&mut rig, m.va);
        q.submit(&[store(m.at(8), 1), jump]);
        let (gpu, queue, control) = (rig.gpu.clone(), q.queue.clone(), q.control);
        let mut is_set_aside = false;
        let left = holds_while_it_runs(&mut rig, || {
            if m.read(0) != 1 {
                return false;
            }
            if !is_set_aside {
                queue.set_aside();
                is_set_aside = true;
            }
            !gpu.is_on(&queue) || queue.is_off_rings()
        });
        assert!(left, "it is in the ring still");
        control.word(0).store(0, Ordering::SeqCst);
        control.word(READ_POINTER as u64).store(7, Ordering::SeqCst);
        rig.settle();
        assert_eq!(control.read(READ_POINTER as u64), 7, "the read pointer of a ring that is gone is stored");
    }
}
