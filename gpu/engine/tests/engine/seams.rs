//! What is taken away or changed while it is in use: fences that a queue waits for, their pages, rings and logs in the
//! middle of a burst, doorbells that name no queue.

use crate::preemption::scattered;
use crate::stretches::{progress, queue, store};
use crate::support::{Rig, TestFence, log, log_position};
use gpu_engine::host::Lock;
use gpu_engine::notice::Notice;
use gpu_engine::queue::{Binding, State};
use gpu_engine::word::{Ordering, Word};
use gpu_wire::doorbell::Model;
use gpu_wire::packet::{self, Encoded, FaultKind, log_operation::SIGNAL_EXECUTED};
use gpu_wire::pte::{self, Place};
use gpu_wire::ring::Geometry;
use gpu_wire::{GpuVa, PAGE_SIZE};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

fn signal_from_cpu(rig: &Rig, fence: &TestFence, value: u64) -> u32 {
    let gpu = rig.gpu.clone();
    fence.fence.signal_from_cpu(&fence.current.word(0), value, &gpu.mutation, |q, ticket| {
        q.wake(ticket, true, 0);
        gpu.make_ready(&q);
    })
}

/// A fence that is closed while a queue waits for it lets the queue go all the same, and one that is opened at its
/// address meanwhile does not.
#[test]
fn a_fence_that_is_closed_while_a_queue_waits_lets_it_go() {
    let mut rig = Rig::new();
    let (mut q, mut other) = (rig.queue(0, 0), rig.queue(1, 1));
    let (f, second, m) = (rig.fence(), rig.fence(), rig.map(1, false));
    q.submit(&[Encoded::fence_wait(f.current.va, 5), store(m.at(0), 1)]);
    rig.settle();
    rig.process.fences.close(f.current.va);
    rig.process.fences.open(f.current.va, second.monitored.va, &second.fence).unwrap();
    other.submit(&[Encoded::fence_signal(f.current.va, 4), Encoded::fence_signal(f.current.va, 5)]);
    rig.settle();
    // It waits for the fence, and not for what lies at its address.
    assert_eq!((f.fence.parked.len(), m.read(0)), (1, 0));
    assert_eq!(signal_from_cpu(&rig, &f, 5), 1);
    rig.settle();
    assert_eq!((f.fence.parked.len(), m.read(0), q.fault(), q.read_pointer()), (0, 1, None, q.wp));
}

/// The page of the value goes while a queue waits: the waiter that a signal lets go needs it no more, and one that must
/// look for itself is at fault, alone.
#[test]
fn a_value_that_is_unmapped_while_a_queue_waits() {
    for looks_itself in [false, true] {
        let mut rig = Rig::new();
        let (mut q, mut good, f) = (rig.queue(0, 0), rig.queue(0, 1), rig.fence());
        let m = rig.map(1, false);
        q.submit(&[Encoded::fence_wait(f.current.va, 5), store(m.at(0), 1)]);
        rig.settle();
        let table = rig.leaf_table(&rig.context.clone(), f.current.va);
        rig.entry(table, pte::index(f.current.va, 0)).store(0, Ordering::SeqCst);
        rig.gpu.flush(rig.process.number, f.current.va.0, f.current.va.0);
        rig.settle();
        if looks_itself {
            let gpu = rig.gpu.clone();
            f.fence.parked.look_again(|q, ticket| {
                q.wake(ticket, false, 0);
                gpu.make_ready(&q);
            });
        } else {
            signal_from_cpu(&rig, &f, 5);
        }
        good.submit(&[store(m.at(8), 1)]);
        rig.settle();
        let fault = looks_itself.then_some(FaultKind::Address);
        assert_eq!((q.fault(), m.read(0), m.read(8)), (fault, u64::from(!looks_itself), 1));
        assert_eq!(f.fence.parked.len(), 0);
    }
}

/// The page of the value moves while a queue waits: the queue that looks for itself sees the new page.
#[test]
fn a_value_that_moves_while_a_queue_waits_is_found_again() {
    let mut rig = Rig::new();
    let (mut q, f, m) = (rig.queue(0, 0), rig.fence(), rig.map(1, false));
    q.submit(&[Encoded::fence_wait(f.current.va, 5), store(m.at(0), 1)]);
    rig.settle();
    let there = rig.map(1, false);
    let frame = rig.frame_of(there);
    rig.map_at(&rig.context.clone(), f.current.va, Place::System(frame), false);
    rig.gpu.flush(rig.process.number, f.current.va.0, f.current.va.0);
    rig.settle();
    there.word(0).store(5, Ordering::SeqCst);
    let gpu = rig.gpu.clone();
    f.fence.parked.look_again(|q, ticket| {
        q.wake(ticket, false, 0);
        gpu.make_ready(&q);
    });
    rig.settle();
    assert_eq!((q.fault(), m.read(0), f.current.read(0)), (None, 1, 0));
}

/// Flushes of everything without an end, one at each mapping that the engine makes, keep no stream from its end, and
/// what waits is woken.
#[test]
fn flushes_at_each_mapping_keep_no_stream_from_its_end() {
    let mut rig = Rig::new();
    let (mut q, mut waits, f) = (rig.queue(0, 0), rig.queue(1, 1), rig.fence());
    let m = rig.map(1, false);
    waits.submit(&[Encoded::fence_wait(f.current.va, 1), store(m.at(0), 1)]);
    rig.settle();
    let gpu = rig.gpu.clone();
    let left = Arc::new(AtomicU64::new(2_000));
    *rig.gpu.host.on_each_map.lock().unwrap() = Some(Box::new(move || {
        if left.load(Ordering::Relaxed) > 0 {
            left.fetch_sub(1, Ordering::Relaxed);
            gpu.flush(u64::MAX, 0, 0);
        }
    }));
    let at = scattered(&mut rig, 60, PAGE_SIZE, 0x40_0000_0000);
    let fill = packet::Fill { address: at.0, length: 60 * PAGE_SIZE, pattern: 3, reserved: 0 }.to_packet();
    q.submit(&[fill, Encoded::fence_signal(f.current.va, 1), store(m.at(8), 1)]);
    rig.settle();
    assert_eq!((m.read(0), m.read(8), q.fault()), (1, 1, None));
    assert!(rig.gpu.host.mappings.load(Ordering::Relaxed) > 0);
    let last = rig.gpu.flush(u64::MAX, 0, 0);
    rig.settle();
    assert!(rig.gpu.flush_done(last));
}

/// Values at the edges: 0 is met always, the highest by itself alone, and a value behind it that is less wakes no
/// queue.
#[test]
fn values_at_the_edges() {
    let mut rig = Rig::new();
    let (mut q, mut waits, f) = (rig.queue(0, 0), rig.queue(1, 1), rig.fence());
    let m = rig.map(1, false);
    waits.submit(&[
        Encoded::fence_wait(f.current.va, 0),
        store(m.at(0), 1),
        Encoded::fence_wait(f.current.va, u64::MAX),
        store(m.at(8), 1),
    ]);
    rig.settle();
    assert_eq!((m.read(0), m.read(8)), (1, 0));
    let signal = |value| Encoded::fence_signal(f.current.va, value);
    q.submit(&[signal(u64::MAX - 1)]);
    rig.settle();
    assert_eq!(m.read(8), 0);
    q.submit(&[signal(u64::MAX), signal(0)]);
    rig.settle();
    assert_eq!((m.read(8), f.current.read(0), f.fence.parked.len()), (1, 0, 0));
}

/// Write pointers that go back, and those that are no multiple of 8, while packets are under way.
#[test]
fn a_write_pointer_that_goes_back_amid_a_burst() {
    for wrong in [0, 8, 25, 28, u64::MAX] {
        let mut rig = Rig::new();
        let (mut q, mut good) = (rig.queue(0, 0), rig.queue(0, 1));
        let (m, page) = (rig.map(1, false), rig.map(1, false));
        let control = q.control;
        // When the engine maps the page, it is in the middle of what it has read.
        q.submit(&[Encoded::nop(8)]);
        rig.settle();
        *rig.gpu.host.on_map.lock().unwrap() = Some(Box::new(move || control.word(0).store(wrong, Ordering::SeqCst)));
        q.submit(&[store(page.va, 1), store(page.at(8), 2)]);
        rig.settle();
        good.submit(&[store(m.va, 1)]);
        rig.settle();
        assert_eq!((page.read(0), page.read(8), m.read(0)), (1, 2, 1));
        assert_eq!((q.fault(), q.queue.state()), (Some(FaultKind::BadWritePointer), State::Stopped), "{wrong}");
    }
}

/// A ring that is replaced by a larger one while its command buffer is amid an operation: nothing more of the old one
/// runs, and the new one does from its beginning.
#[test]
fn a_ring_that_is_replaced_amid_an_operation() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let (m, ring, control) = (rig.map(1, false), rig.map(2, false), rig.map(1, false));
    let at = scattered(&mut rig, 40, PAGE_SIZE, 0x40_0000_0000);
    let fill = packet::Fill { address: at.0, length: 40 * PAGE_SIZE, pattern: 3, reserved: 0 }.to_packet();
    let packet = store(m.at(8), 2);
    ring.bytes.write(packet.as_bytes());
    control.word(0).store(packet.as_bytes().len() as u64, Ordering::SeqCst);
    let geometry = Geometry::new(8192).unwrap();
    q.submit(&[fill, store(m.at(0), 1)]);
    let (queue, other) = (q.queue.clone(), Binding { ring: ring.va, control: control.va, geometry });
    let mut maps = 0;
    // In the middle of the fill.
    *rig.gpu.host.on_each_map.lock().unwrap() = Some(Box::new(move || {
        maps += 1;
        if maps == 20 {
            queue.bind(Some(other));
        }
    }));
    rig.settle();
    rig.gpu.make_ready(&q.queue);
    rig.settle();
    assert_eq!((m.read(8), control.read(gpu_wire::ring::READ_POINTER as u64)), (2, 24));
}

/// The log of signals goes in the middle of a burst, where interrupts name queues: the OS is asked to look at
/// everything, whichever signal has no entry.
#[test]
fn a_log_that_goes_amid_a_burst_has_everything_looked_at() {
    for gone in 1..6 {
        let mut rig = Rig::with(Model::Dedicated, true);
        let (mut q, f, _) = queue(&mut rig);
        rig.drain();
        f.monitored.word(0).store(0, Ordering::SeqCst);
        let (signals, mut reads) = (q.queue.clone(), 0);
        *rig.gpu.host.on_clock.lock().unwrap() = Some(Box::new(move || {
            reads += 1;
            if reads == gone {
                signals.signals.with(|log| log.clear());
            }
        }));
        for value in 1..=3 {
            q.submit(&[
                progress(2 * value - 1),
                Encoded::fence_signal(f.current.va, 2 * value),
                log(SIGNAL_EXECUTED, 2 * value, 0),
            ]);
            rig.settle();
        }
        let (entries, _) = log_position(q.signals);
        let said = rig.drain();
        let all = said.contains(&(0, Notice::FencesSignaled));
        assert!(entries == 6 || all, "{gone}: {entries} entries, {said:?}");
        assert_eq!(f.current.read(0), 6);
    }
}

/// Rings of the global doorbell that name no queue, or one that is gone, reach those that are connected.
#[test]
fn global_rings_that_name_no_queue_reach_every_queue() {
    let mut rig = Rig::with(Model::Global, false);
    let (mut q, gone, m) = (rig.queue(0, 0), rig.queue(0, 0), rig.map(1, false));
    let token = gpu_engine::gpu::token(gone.queue.slot);
    let page = q.doorbell_page;
    rig.gpu.destroy_queue(&gone.queue);
    rig.gpu.slots.free(gone.queue.slot);
    rig.settle();
    for (number, value) in [(1, u64::MAX), (2, 1), (3, gpu_wire::doorbell::value(token, 0)), (4, 1 << 63)] {
        q.publish(&[store(m.va, number)]);
        page.word(0).unwrap().store(value, Ordering::Release);
        rig.settle();
        assert_eq!(m.read(0), number, "{value:#x}");
    }
}

/// A queue that is destroyed while it finds no memory keeps no other from a turn, and nothing of it stays.
#[test]
fn a_queue_that_is_destroyed_for_want_of_memory() {
    let mut rig = Rig::new();
    let (mut q, mut good, m) = (rig.queue(0, 0), rig.queue(0, 1), rig.map(1, false));
    for queue in [&mut q, &mut good] {
        queue.submit(&[store(m.va, 0)]);
    }
    rig.settle();
    rig.cool();
    let far = rig.map(1, false);
    q.submit(&[store(far.va, 1)]);
    rig.gpu.host.places.store(0, Ordering::Relaxed);
    for _ in 0..20 {
        rig.engines[0].step();
    }
    rig.gpu.destroy_queue(&q.queue);
    good.submit(&[store(m.va, 5)]);
    rig.gpu.host.places.store(u64::MAX, Ordering::Relaxed);
    rig.settle();
    assert_eq!((far.read(0), m.read(0), q.queue.state()), (0, 5, State::Destroyed));
    assert!(rig.engines[0].prepare_sleep());
}

/// Fills and copies over the ring itself and over its control page, cold and warm: the packets that were read stand,
/// and the queue comes to an end, one or the other way, and no other is touched.
#[test]
fn operations_over_the_ring_and_its_control_page() {
    for warm in [false, true] {
        for over_control in [false, true] {
            let mut rig = Rig::new();
            let (mut q, mut good, m) = (rig.queue(0, 0), rig.queue(0, 1), rig.map(1, false));
            let to = if over_control { q.control.va } else { q.ring.va };
            if warm {
                q.submit(&[store(GpuVa(q.ring.va.0 + 4088), 0), store(q.control.at(4088), 0), store(m.va, 0)]);
                rig.settle();
            }
            let fill = packet::Fill { address: to.0, length: PAGE_SIZE, pattern: u32::MAX, reserved: 0 }.to_packet();
            q.submit(&[fill, store(m.at(0), 1)]);
            rig.settle();
            good.submit(&[store(m.at(8), 1)]);
            rig.settle();
            assert_eq!(m.read(8), 1);
            if over_control {
                assert_eq!((q.queue.state(), m.read(0)), (State::Stopped, 1), "warm {warm}");
            }
        }
    }
}
