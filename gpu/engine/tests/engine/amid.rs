//! What a stream is in the middle of: rows longer than a step, signals of two fences in one burst, logs behind a
//! stretch, queues that are left to wake.

use crate::stretches::{progress, queue, store};
use crate::support::{Rig, TestQueue, log};
use gpu_engine::word::{Ordering, Word};
use gpu_wire::PAGE_SIZE;
use gpu_wire::packet::{self, Encoded, FaultKind, log_operation};
use gpu_wire::pte::Place;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Steps that are more than enough.
const STEPS: usize = 100;

/// Steps the engine of node 0 until the queue has read all of its ring.
fn run(rig: &mut Rig, queue: &TestQueue) {
    for _ in 0..STEPS {
        rig.engines[0].step();
        if queue.read_pointer() == queue.wp {
            return;
        }
    }
    panic!("it does not end: fault {:?}", queue.fault());
}

/// A row that takes several steps goes on where it was.
#[test]
fn a_row_that_is_longer_than_a_step_comes_to_its_end() {
    const ROW: u32 = 512 << 10;
    let mut rig = Rig::new();
    let mut queue = rig.queue(0, 0);
    let (from, to) = (rig.map(260, false), rig.map(260, false));
    from.bytes.part(0, 2 * u64::from(ROW)).fill(0x5A5A_5A5A);
    let copy = packet::CopyRect {
        source: from.va.0,
        destination: to.va.0,
        source_pitch: ROW,
        destination_pitch: ROW,
        row_bytes: ROW,
        rows: 2,
    };
    queue.submit(&[copy.to_packet()]);
    run(&mut rig, &queue);
    assert_eq!(to.read(2 * u64::from(ROW) - 8), 0x5A5A_5A5A_5A5A_5A5A);
}

/// So does a row of pixels.
#[test]
fn a_row_of_pixels_that_is_longer_than_a_step_comes_to_its_end() {
    const WIDTH: u32 = 16_384;
    let mut rig = Rig::new();
    let mut queue = rig.queue(0, 0);
    let (from, to) = (rig.map(40, false), rig.map(40, false));
    let filter = packet::FilterRect {
        source: from.va.0,
        destination: to.va.0,
        source_pitch: 4 * WIDTH,
        destination_pitch: 4 * WIDTH,
        image_width: WIDTH,
        image_height: 2,
        x: 0,
        y: 0,
        width: WIDTH,
        height: 2,
        coefficients: [1; 9],
        bias: 5,
        shift: 3,
        reserved: 0,
    };
    queue.submit(&[filter.to_packet()]);
    run(&mut rig, &queue);
    assert_eq!(to.read(u64::from(8 * WIDTH) - 8) & 0xFF_FFFF, 0x05_0505);
}

/// Signals of two fences in one burst wake the waiters of each.
#[test]
fn signals_of_two_fences_in_a_burst_wake_what_waits_for_each() {
    let mut rig = Rig::new();
    let (mut queue, own, m) = queue(&mut rig);
    let other = rig.fence();
    queue.submit(&[store(other.current.va, 0)]);
    rig.settle();
    let mut waiting = [rig.queue(1, 1), rig.queue(1, 2)];
    waiting[0].submit(&[Encoded::fence_wait(own.current.va, 1), store(m.at(16), 9)]);
    waiting[1].submit(&[Encoded::fence_wait(other.current.va, 1), store(m.at(24), 9)]);
    rig.settle();
    let logged = packet::FenceLogged { fence: other.current.va.0, value: 1, fence_handle: 4, index_hint: 1 };
    queue.submit(&[logged.to_packet(), progress(1), progress(2)]);
    rig.settle();
    assert_eq!((m.read(16), m.read(24)), (9, 9));
    assert_eq!((own.current.read(0), other.current.read(0)), (2, 1));
}

/// A fence is closed, and another opened at its address, between two signals of a burst: the first one has its
/// consequences.
#[test]
pub(crate) fn signals_of_two_fences_at_one_address_wake_what_waits_for_each() {
    for fused in [false, true] {
        let mut rig = Rig::new();
        let (mut q, first, done) = (rig.queue(0, 0), rig.fence(), rig.map(1, false));
        let other = rig.fence();
        q.submit(&[store(done.at(8), 0), store(first.current.va, 0)]);
        rig.settle();
        let mut waiting = rig.queue(1, 1);
        waiting.submit(&[Encoded::fence_wait(first.current.va, 5), store(done.at(0), 9)]);
        rig.settle();
        assert_eq!(first.fence.parked.len(), 1);
        let at = first.current.va;
        let (process, second, monitored) = (rig.process.clone(), other.fence.clone(), other.monitored.va);
        let mut swapped = false;
        *rig.gpu.host.on_clock.lock().unwrap() = Some(Box::new(move || {
            if first.current.read(0) == 5 && !core::mem::replace(&mut swapped, true) {
                process.fences.close(at);
                process.fences.open(at, monitored, &second).unwrap();
            }
        }));
        let last = match fused {
            true => packet::FenceLogged { fence: at.0, value: 6, fence_handle: 4, index_hint: 1 }.to_packet(),
            false => Encoded::fence_signal(at, 6),
        };
        q.submit(&[Encoded::fence_signal(at, 5), log(log_operation::SIGNAL_EXECUTED, 5, 0), last]);
        rig.settle();
        assert_eq!((first.current.read(0), first.fence.parked.len(), done.read(0)), (6, 0, 9), "fused {fused}");
    }
}

/// What waits for a signal does not wait for the rest of its burst, where that takes a while.
#[test]
pub(crate) fn a_signal_wakes_in_front_of_the_second_cold_page() {
    let mut rig = Rig::new();
    let (mut q, f) = (rig.queue(0, 0), rig.fence());
    let pages: Vec<_> = (0..50).map(|_| rig.map(1, false)).collect();
    let mut waiting = rig.queue(1, 1);
    waiting.submit(&[Encoded::fence_wait(f.current.va, 1)]);
    rig.settle();
    assert_eq!(f.fence.parked.len(), 1);
    let stores = pages.iter().map(|page| store(page.at(0), 7));
    let packets: Vec<_> = [Encoded::fence_signal(f.current.va, 1)].into_iter().chain(stores).collect();
    let (parked, seen, first) = (f.fence.clone(), Arc::new(AtomicU64::new(u64::MAX)), pages[0]);
    let (late, last) = (seen.clone(), pages[2]);
    // The third of the pages is being mapped when the first two are written.
    let watch = move || {
        if (first.read(0), last.read(0), late.load(Ordering::Relaxed)) == (7, 0, u64::MAX) {
            late.store(parked.parked.len(), Ordering::Relaxed);
        }
    };
    *rig.gpu.host.on_each_map.lock().unwrap() = Some(Box::new(watch));
    q.submit(&packets);
    rig.settle();
    assert_eq!(seen.load(Ordering::Relaxed), 0);
}

/// A LOG behind a stretch does not belong to what came before the stretch.
#[test]
fn a_log_behind_other_packets_is_a_fault() {
    for operation in [log_operation::SIGNAL_EXECUTED, log_operation::WAIT_UNBLOCKED] {
        for between in 0..3 {
            let mut rig = Rig::new();
            let (mut queue, fence, m) = queue(&mut rig);
            let between = match between {
                0 => progress(1),
                1 => store(m.va, 1),
                _ => Encoded::nop(8),
            };
            let log = packet::Log { value: 1, fence_handle: 0, operation, index_hint: 0, reserved: 0 };
            queue.submit(&[Encoded::fence_wait(fence.current.va, 0), between, log.to_packet()]);
            rig.settle();
            assert_eq!(queue.fault(), Some(FaultKind::BadLog), "operation {operation}");
        }
    }
}

/// No stream goes on to a wait before all queues of its signal are awake.
#[test]
fn a_wait_behind_a_signal_begins_when_all_are_awake() {
    let mut rig = Rig::new();
    let (mut queue, fence, m) = queue(&mut rig);
    let context = rig.context(1);
    let mut waiting = Vec::new();
    for _ in 0..400 {
        let mut waits = rig.queue_of(&context, 1);
        waits.publish(&[Encoded::fence_wait(fence.current.va, 1)]);
        rig.gpu.make_ready(&waits.queue);
        waiting.push(waits);
    }
    rig.settle();
    assert_eq!(fence.fence.parked.len(), 400);
    let other = rig.fence();
    queue.submit(&[progress(1), Encoded::fence_wait(other.current.va, 1), store(m.va, 1)]);
    for _ in 0..STEPS {
        rig.engines[0].step();
        if !other.fence.parked.is_empty() {
            break;
        }
    }
    assert_eq!((fence.fence.parked.len(), other.fence.parked.len()), (0, 1));
}

/// A step of an operation ends for want of memory, or since the engine must look up: what it has done is not done
/// again.
#[test]
fn what_a_step_has_written_is_not_written_again() {
    const PAGES: u64 = 40;
    const MARK: u64 = 0x1234_5678_9ABC_DEF0;
    for without_memory in [false, true] {
        let mut rig = Rig::new();
        let mut q = rig.queue(0, 0);
        let at = crate::preemption::scattered(&mut rig, PAGES, PAGE_SIZE, 0x40_0000_0000);
        // Its first word is written by the first step; the engine maps the other pages behind it.
        q.submit(&[store(at, 0)]);
        rig.settle();
        let frame = rig.gpu.host.asked.lock().unwrap().last().unwrap().0[0];
        let word = rig.entry(Place::System(frame), 0);
        *rig.gpu.host.on_map.lock().unwrap() = Some(Box::new(move || word.store(MARK, Ordering::SeqCst)));
        *rig.gpu.host.until_failure.lock().unwrap() = without_memory.then_some(1);
        let length = PAGES * PAGE_SIZE;
        q.submit(&[packet::Fill { address: at.0, length, pattern: 7, reserved: 0 }.to_packet()]);
        rig.settle();
        let word = rig.entry(Place::System(frame), 0).load(Ordering::SeqCst);
        assert_eq!((q.fault(), word), (None, MARK), "without memory: {without_memory}");
    }
}
