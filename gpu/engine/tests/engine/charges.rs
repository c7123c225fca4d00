//! What work counts for, besides the bytes that it moves: an engine that charges less looks up less often. Each charge
//! is compared with what the test knows, or what the host has seen.

use crate::packet_mode::packet_of;
use crate::preemption::{BOUND, scattered};
use crate::support::Rig;
use crate::waking::waiters;
use gpu_engine::queue::Binding;
use gpu_engine::word::Ordering;
use gpu_wire::doorbell::Model;
use gpu_wire::packet::{self, Encoded};
use gpu_wire::pte::{Place, Pte};
use gpu_wire::{GpuVa, PAGE_SIZE};

/// What a mapping counts for, and what giving one up does.
const MAP: u64 = 50 << 10;
/// What an entry of a page table counts for that a walk reads.
const READ: u64 = 64;
/// What an entry counts for that a packet writes.
const WRITE: u64 = 8;
/// What a queue counts for that a signal wakes.
const WAKE: u64 = 1 << 10;
/// Where no other test range lies.
const FAR: u64 = 0x40_0000_0000;

/// Forgets the most work between two looks of `node`.
fn forget(rig: &Rig, node: usize) {
    rig.gpu.nodes[node].counters.most_between_looks.store(0, Ordering::Relaxed);
}

fn most(rig: &Rig, node: usize) -> u64 {
    rig.gpu.nodes[node].counters.read().most_between_looks
}

/// Mappings that the host was asked for, and those that are alive.
fn mappings(rig: &Rig) -> (u64, u64) {
    (rig.gpu.host.asked.lock().unwrap().len() as u64, rig.gpu.host.mappings.load(Ordering::Relaxed))
}

/// The most work between two looks of an engine that executes `packet` as a paging packet.
fn of_paging(packet: impl FnOnce(Pte) -> Encoded) -> u64 {
    let mut rig = Rig::new();
    let table = Pte::table(Place::System(rig.frame())).unwrap();
    let packet = packet(table);
    // The first one has the tables mapped that the second one needs.
    for fence in 1..=2 {
        let submission = packet_of(&mut rig, fence, true, std::slice::from_ref(&packet));
        forget(&rig, 2);
        rig.gpu.nodes[2].packets.with(|queue| queue.submit(submission, &rig.gpu.mutation)).unwrap();
        rig.settle();
        assert_eq!(rig.drain().len(), 1);
    }
    most(&rig, 2)
}

#[test]
fn a_table_write_is_charged_by_its_entries() {
    let write = |count| of_paging(|table| Encoded::table_write(table, 0, vec![Pte::INVALID; count]));
    let repeat = |count| of_paging(|table| Encoded::table_repeat(table, 0, count, Pte::INVALID));
    assert_eq!(write(29) - write(1), 28 * WRITE);
    assert_eq!(repeat(512) - repeat(1), 511 * WRITE);
}

/// A walk reads an entry at each of four levels; a mapping of several pages reads one more for each.
#[test]
fn a_walk_is_charged_by_the_entries_that_it_reads() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    // Page 0 has the tables mapped that the others need.
    let m = rig.map(64, false);
    let store = |at| packet::Store { address: m.at(at).0, value: 1 }.to_packet();
    q.submit(&[store(0)]);
    rig.settle();
    let mut charged = |packet| {
        forget(&rig, 0);
        let before = mappings(&rig).0;
        q.submit(&[packet]);
        rig.settle();
        let maps = mappings(&rig).0 - before;
        // The list of the region's windows was searched.
        (maps, (most(&rig, 0) - maps * MAP) / READ)
    };
    assert_eq!(charged(store(2 * PAGE_SIZE)), (1, 4));
    let copy = packet::CopyRect {
        source: m.at(4 * PAGE_SIZE).0,
        destination: m.at(0).0,
        source_pitch: 16 * PAGE_SIZE as u32,
        destination_pitch: 8,
        row_bytes: 8,
        rows: 1,
    };
    // One row that is read from one page: the run of 512 bytes is 8 times an entry.
    assert_eq!(charged(copy.to_packet()), (1, 4 + 8));
    // 16 pages that are mapped at once, and 16 bytes of each page that are 64 KiB, or 1024 times an entry.
    let length = 16 * PAGE_SIZE;
    let fill = packet::Fill { address: m.at(16 * PAGE_SIZE).0, length, pattern: 1, reserved: 0 }.to_packet();
    assert_eq!(charged(fill), (1, 4 + 15 + length / READ));
}

/// The looks at a wait that is not met, before the queue is parked.
#[test]
fn looks_in_front_of_parking_are_charged() {
    let mut rig = Rig::new();
    let (mut q, f) = (rig.queue(0, 0), rig.fence());
    q.submit(&[Encoded::fence_wait(f.current.va, 0)]);
    rig.settle();
    forget(&rig, 0);
    q.submit(&[Encoded::fence_wait(f.current.va, 1)]);
    rig.engines[0].step();
    rig.engines[0].step();
    // Of some two microseconds, at 10 GB/s.
    let most = most(&rig, 0);
    assert!((20 << 10..40 << 10).contains(&most), "{most}");
}

/// They end where others need the engine: a packet that came, or a round of the global doorbell that it takes part in.
#[test]
fn looks_in_front_of_parking_end_where_others_need_the_engine() {
    for (model, comes) in
        [(Model::Dedicated, false), (Model::Dedicated, true), (Model::Global, false), (Model::Global, true)]
    {
        let mut rig = Rig::with(model, false);
        let (mut q, f) = (rig.queue(0, 0), rig.fence());
        // More than are looked at in one part.
        let context = rig.context(1);
        let others: Vec<_> =
            (0..if model == Model::Global { 200 } else { 0 }).map(|_| rig.queue_of(&context, 0)).collect();
        q.publish(&[Encoded::fence_wait(f.current.va, 0)]);
        rig.settle();
        q.publish(&[Encoded::fence_wait(f.current.va, 1)]);
        let packet = packet_of(&mut rig, 1, false, &[Encoded::nop(8)]);
        let (gpu, mut looker, mut happens) = (rig.gpu.clone(), rig.engines.remove(1), Some(packet));
        // The wait has begun when it takes its time.
        *rig.gpu.host.on_clock.lock().unwrap() = Some(Box::new(move || {
            let Some(packet) = happens.take_if(|_| comes) else { return };
            match model {
                Model::Dedicated => gpu.nodes[0].packets.with(|q| q.submit(packet, &gpu.mutation)).unwrap(),
                Model::Global => {
                    others[0].ring();
                    looker.step();
                }
            }
        }));
        rig.gpu.make_ready(&q.queue);
        forget(&rig, 0);
        rig.engines[0].step();
        assert_eq!((most(&rig, 0) < 5 << 10, f.fence.parked.len()), (comes, 1), "{model:?}: {}", most(&rig, 0));
    }
}

/// An engine whose windows are all in use gives one up for each that it maps. Unmapping counts as mapping does.
#[test]
fn a_window_that_gives_way_to_another_is_charged() {
    const PAGES: u64 = 4200;
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let space = rig.context.clone();
    let frame = rig.frame();
    let va = |page| GpuVa(FAR + page * PAGE_SIZE);
    for page in 0..=PAGES {
        rig.map_at(&space, va(page), Place::System(frame), false);
    }
    let store = |page| packet::Store { address: va(page).0, value: 1 }.to_packet();
    let code = rig.map(PAGES * store(0).as_bytes().len() as u64 / PAGE_SIZE + 1, false);
    let bytes: Vec<u8> = (0..PAGES).flat_map(|page| store(page).as_bytes().to_vec()).collect();
    code.bytes.write(&bytes);
    q.submit(&[packet::Indirect { address: code.va.0, length: bytes.len() as u64 }.to_packet()]);
    rig.settle();
    assert_eq!(mappings(&rig).1, 4096, "all windows are in use");
    // The ring may have lost its windows.
    q.submit(&[Encoded::nop(8)]);
    rig.settle();
    forget(&rig, 0);
    let before = mappings(&rig);
    q.submit(&[store(PAGES)]);
    rig.settle();
    let after = mappings(&rig);
    let maps = after.0 - before.0;
    let unmaps = maps - (after.1 - before.1);
    assert!(maps >= 1 && unmaps == maps, "{maps} mapped, {unmaps} given up");
    assert_eq!(most(&rig, 0) / MAP, maps + unmaps);
}

/// What a flush dooms is unmapped two windows at a look, also in the middle of an operation, and each is charged.
#[test]
fn what_a_flush_unmaps_is_charged() {
    const ROWS: u64 = 800;
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    // Each row in a window of its own: whole pages lie between two of them.
    let at = scattered(&mut rig, 2 * ROWS, 2 * PAGE_SIZE, FAR);
    let m = rig.map(2, false);
    let rows = |first: u64| {
        packet::CopyRect {
            source: m.va.0,
            destination: at.0 + first * 2 * PAGE_SIZE,
            source_pitch: 8,
            destination_pitch: 2 * PAGE_SIZE as u32,
            row_bytes: 8,
            rows: ROWS as u32,
        }
        .to_packet()
    };
    q.submit(&[rows(0)]);
    rig.settle();
    // An engine with nothing else to do.
    forget(&rig, 0);
    let before = mappings(&rig).1;
    let number = rig.gpu.flush(rig.process.number, 0, 0);
    for looks in 1..=5 {
        rig.engines[0].step();
        assert_eq!(before - mappings(&rig).1, 2 * looks);
    }
    let unmapped = most(&rig, 0);
    assert!((2 * MAP..3 * MAP).contains(&unmapped), "{unmapped} for two windows");
    // One that maps as much again.
    let steps = rig.gpu.nodes[0].counters.read().steps;
    let asked = mappings(&rig).0;
    q.submit(&[rows(ROWS)]);
    while q.read_pointer() != q.wp {
        rig.engines[0].step();
    }
    let steps = rig.gpu.nodes[0].counters.read().steps - steps;
    let maps = mappings(&rig).0 - asked;
    assert!(maps >= ROWS && maps <= 2 * steps, "{maps} mapped in {steps} steps, each of which unmaps two");
    rig.settle();
    assert!(rig.gpu.flush_done(number));
    assert!(most(&rig, 0) <= BOUND, "{} between two looks", most(&rig, 0));
}

/// A packet whose ring and operands are mapped nowhere yet has a look between the two.
#[test]
fn a_packet_behind_a_cold_ring_is_not_charged_with_it() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let space = rig.context.clone();
    let frame = rig.frame();
    rig.map_at(&space, GpuVa(2 * FAR), Place::System(frame), false);
    q.submit(&[packet::Store { address: 2 * FAR, value: 1 }.to_packet()]);
    rig.settle();
    assert_eq!(q.fault(), None);
    assert!(mappings(&rig).0 >= 9, "not all was mapped by that");
    assert!(most(&rig, 0) <= BOUND, "{} between two looks", most(&rig, 0));
}

/// A ring whose control page, buffers and fences lie far apart takes the engine several looks to map, and none of them
/// is too long.
#[test]
fn a_ring_far_from_its_control_page_is_within_the_bound() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let space = rig.context.clone();
    let far = |i: u64| i << 40;
    let (ring, control) = (rig.frame_of(q.ring), rig.frame_of(q.control));
    rig.map_at(&space, GpuVa(far(1)), Place::System(ring), false);
    rig.map_at(&space, GpuVa(far(2)), Place::System(control), false);
    for i in 3..8 {
        let frame = rig.frame();
        rig.map_at(&space, GpuVa(far(i)), Place::System(frame), false);
    }
    q.queue.bind(Some(Binding { ring: GpuVa(far(1)), control: GpuVa(far(2)), geometry: q.geometry }));
    rig.settle();
    rig.gpu.flush(rig.process.number, 0, 0);
    rig.settle();
    assert_eq!(mappings(&rig).1, 0);
    forget(&rig, 0);
    let before = mappings(&rig).0;
    let copy = |from, to| packet::Copy { source: far(from), destination: far(to), length: 4096 }.to_packet();
    q.submit(&[copy(3, 4), packet::Store { address: far(5), value: 7 }.to_packet(), copy(5, 6), copy(6, 7)]);
    rig.settle();
    assert_eq!((q.fault(), q.read_pointer()), (None, q.wp));
    assert!(mappings(&rig).0 - before >= 7 * 4, "not all was mapped by that");
    assert!((128 << 10..=BOUND).contains(&most(&rig, 0)), "{} between two looks", most(&rig, 0));
}

/// A signal that lets many queues go wakes 64 of them between two looks.
#[test]
pub(crate) fn a_signal_is_charged_by_the_queues_that_it_wakes() {
    const QUEUES: u64 = 300;
    let mut rig = Rig::new();
    let (mut q, f, done) = (rig.queue(0, 0), rig.fence(), rig.map(1, false));
    let _waiting = waiters(&mut rig, &f, QUEUES, done);
    // A signal that wakes no queue, so that everything is mapped.
    q.submit(&[Encoded::fence_signal(f.current.va, 0)]);
    rig.settle();
    forget(&rig, 0);
    q.submit(&[Encoded::fence_signal(f.current.va, 1)]);
    rig.settle();
    let most = most(&rig, 0);
    assert!((64 * WAKE..64 * WAKE + MAP).contains(&most), "{most} between two looks");
    assert_eq!(f.fence.parked.len(), 0);
    assert_eq!((0..QUEUES).map(|i| done.read(i * 8)).sum::<u64>(), QUEUES);
}
