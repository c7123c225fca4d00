//! What the engine asks its host to map.

use crate::preemption::scattered;
use crate::support::{Range, Rig, TestFence, log, log_position};
use gpu_engine::context::Suspend;
use gpu_engine::engine::Step;
use gpu_engine::word::{Ordering, Word};
use gpu_wire::packet::{self, Encoded, FaultKind, log_operation::SIGNAL_EXECUTED};
use gpu_wire::pte::Place;
use gpu_wire::{GpuVa, PAGE_SIZE};

/// What was asked for since the last time.
fn asked(rig: &Rig) -> Vec<(Vec<u64>, bool)> {
    std::mem::take(&mut *rig.gpu.host.asked.lock().unwrap())
}

/// The requests that name a page of `range`. The host's pages lie in the order of their frames, from frame 0 on.
fn of_range(rig: &Rig, range: Range, requests: &[(Vec<u64>, bool)]) -> Vec<(usize, bool)> {
    let first = rig.frame_of(range);
    let pages = first..first + range.bytes.len() / PAGE_SIZE;
    let named = requests.iter().filter(|(frames, _)| frames.iter().any(|frame| pages.contains(frame)));
    named.map(|(frames, write)| (frames.len(), *write)).collect()
}

#[test]
pub fn a_mapping_covers_what_was_asked_for() {
    let mut rig = Rig::new();
    let mut queue = rig.queue(0, 0);
    let memory = rig.map(4, false);
    // Behind the last page stands an entry that names no memory, which no access touches.
    let space = rig.context.clone();
    rig.map_at(&space, memory.at(4 * PAGE_SIZE), Place::System(1 << 30), false);
    queue.submit(&[packet::Store { address: memory.at(PAGE_SIZE + 8).0, value: 7 }.to_packet()]);
    rig.settle();
    assert_eq!((memory.read(PAGE_SIZE + 8), of_range(&rig, memory, &asked(&rig))), (7, vec![(1, true)]));
    let fill =
        packet::Fill { address: memory.at(2 * PAGE_SIZE + 64).0, length: PAGE_SIZE + 128, pattern: !0, reserved: 0 };
    queue.submit(&[fill.to_packet()]);
    rig.settle();
    assert_eq!(memory.read(3 * PAGE_SIZE + 184), !0);
    assert_eq!((memory.read(3 * PAGE_SIZE + 192), of_range(&rig, memory, &asked(&rig))), (0, vec![(2, true)]));
}

#[test]
pub fn what_is_only_read_is_mapped_for_reading() {
    let mut rig = Rig::new();
    let mut queue = rig.queue(0, 0);
    let TestFence { current, monitored, .. } = rig.fence();
    queue.submit(&[Encoded::fence_signal(current.va, 1)]);
    rig.settle();
    let requests = asked(&rig);
    assert_eq!(of_range(&rig, current, &requests), [(1, true)]);
    assert_eq!(of_range(&rig, monitored, &requests), [(1, false)]);
    let place = rig.context.space.root().map(|root| root.place);
    let Some(Place::System(root)) = place else { panic!("{place:?}") };
    assert!(requests.contains(&(vec![root], false)), "a walk reads tables");
}

#[test]
fn a_page_that_is_no_memory_is_a_fault_of_its_queue() {
    let mut rig = Rig::new();
    let mut queue = rig.queue(0, 0);
    let memory = rig.map(1, false);
    let space = rig.context.clone();
    rig.map_at(&space, memory.va, Place::System(1 << 30), false);
    queue.submit(&[packet::Store { address: memory.va.0, value: 7 }.to_packet()]);
    rig.settle();
    assert_eq!(queue.fault(), Some(FaultKind::Address));
    assert_eq!(rig.gpu.nodes[0].counters.read().refused, 1);
}

#[test]
fn what_is_not_cached_is_counted_and_works() {
    let mut rig = Rig::new();
    rig.gpu.host.uncached.store(true, Ordering::Relaxed);
    let mut queue = rig.queue(0, 0);
    let (memory, fence) = (rig.map(2, false), rig.fence());
    let copy = packet::Copy { source: memory.va.0, destination: memory.at(PAGE_SIZE).0, length: 16 };
    queue.submit(&[
        packet::Store { address: memory.va.0, value: 5 }.to_packet(),
        copy.to_packet(),
        Encoded::fence_signal(GpuVa(fence.current.va.0), 3),
    ]);
    rig.settle();
    assert_eq!((memory.read(PAGE_SIZE), fence.current.word(0).load(Ordering::Acquire)), (5, 3));
    let counted = rig.gpu.nodes[0].counters.read();
    assert!(counted.uncached > 4 && counted.refused == 0, "{counted:?}");
}

/// Every kind of packet that is no paging packet, from the ring and from a command buffer, and a kernel-mode queue with
/// null rendering. One request to map fails for want of memory, another one in each round: everything runs as if none
/// had, once, and in order.
#[test]
fn want_of_memory_is_nobodys_fault() {
    let mut round = 0;
    loop {
        let mut rig = Rig::new();
        let (mut queue, mut other) = (rig.queue(0, 0), rig.queue(1, 1));
        let (memory, buffer, fence, gate) = (rig.map(6, false), rig.map(2, false), rig.fence(), rig.fence());
        *rig.gpu.host.until_failure.lock().unwrap() = Some(round);
        let body = [
            packet::Store { address: memory.at(8).0, value: 2 }.to_packet(),
            packet::Fill { address: memory.at(PAGE_SIZE).0, length: 2 * PAGE_SIZE, pattern: 3, reserved: 0 }
                .to_packet(),
            packet::Copy {
                source: memory.at(PAGE_SIZE).0,
                destination: memory.at(3 * PAGE_SIZE).0,
                length: 2 * PAGE_SIZE,
            }
            .to_packet(),
            Encoded::fence_wait(gate.current.va, 1),
            Encoded::fence_signal(fence.current.va, 1),
            log(SIGNAL_EXECUTED, 1, 0),
        ];
        let bytes: Vec<u8> = body.iter().flat_map(|packet| packet.as_bytes().to_vec()).collect();
        // Over a page's end.
        let at = PAGE_SIZE - 64;
        buffer.bytes.part(at, u64::MAX).write(&bytes);
        queue.submit(&[
            packet::Store { address: memory.va.0, value: 1 }.to_packet(),
            packet::Indirect { address: buffer.at(at).0, length: bytes.len() as u64 }.to_packet(),
            packet::Store { address: memory.at(5 * PAGE_SIZE).0, value: 4 }.to_packet(),
        ]);
        rig.settle();
        other.submit(&[Encoded::fence_signal(gate.current.va, 1)]);
        rig.settle();
        let failed = rig.gpu.host.until_failure.lock().unwrap().is_none();
        assert_eq!((queue.fault(), other.fault()), (None, None), "round {round}");
        let words = [0, 8, PAGE_SIZE, 3 * PAGE_SIZE, 5 * PAGE_SIZE - 8, 5 * PAGE_SIZE].map(|at| memory.read(at));
        assert_eq!(words, [1, 2, 0x3_0000_0003, 0x3_0000_0003, 0x3_0000_0003, 4], "round {round}");
        assert_eq!(fence.current.read(0), 1, "round {round}");
        assert_eq!(log_position(queue.signals), (1, 0), "round {round}");
        assert_eq!(rig.gpu.nodes[0].counters.read().indirects, 1, "round {round}");
        let starved = rig.gpu.nodes[0].counters.read().starved + rig.gpu.nodes[1].counters.read().starved;
        assert!(starved <= 1, "round {round}: {starved}");
        if !failed {
            assert!(round > 20, "{round} requests to map");
            return;
        }
        round += 1;
    }
}

/// A queue that finds no memory leaves its engine to those that need none: the engine pauses when every queue that is
/// ready has had a turn.
#[test]
fn want_of_memory_is_no_pause_for_others() {
    let mut rig = Rig::new();
    let context = rig.context(0);
    let (mut starved, mut other) = (rig.queue_of(&context, 0), rig.queue_of(&context, 1));
    for queue in [&mut starved, &mut other] {
        queue.submit(&[Encoded::nop(8)]);
    }
    rig.settle();
    // What was in vain before does not count behind a turn that came to something.
    for time in 1..=3 {
        rig.cool();
        let m = rig.map(1, false);
        starved.submit(&[packet::Store { address: m.at(0).0, value: 1 }.to_packet()]);
        other.submit(&[Encoded::nop(8)]);
        *rig.gpu.host.until_failure.lock().unwrap() = Some(0);
        let step = rig.engines[0].step();
        assert_eq!((step, rig.gpu.nodes[0].counters.read().starved), (Step::Worked, time));
        rig.settle();
        assert_eq!((m.read(0), other.read_pointer()), (1, other.wp));
    }
    // It is alone now.
    let another = rig.map(1, false);
    starved.submit(&[packet::Store { address: another.at(0).0, value: 1 }.to_packet()]);
    *rig.gpu.host.until_failure.lock().unwrap() = Some(0);
    assert_eq!(rig.engines[0].step(), Step::Waiting);
}

/// A run of pages ends where the rights change: what is mapped for a writable page lets nothing be stored to a
/// read-only one behind it, nor is a writable page refused behind a read-only one.
#[test]
fn a_run_of_pages_has_one_right() {
    for read_only in [0, 1] {
        let mut rig = Rig::new();
        let mut queue = rig.queue(0, 0);
        let memory = rig.map(2, false);
        let (space, frame) = (rig.context.clone(), rig.frame_of(memory));
        rig.map_at(&space, memory.at(read_only * PAGE_SIZE), Place::System(frame + read_only), true);
        let copy = packet::Copy { source: memory.va.0, destination: rig.map(2, false).va.0, length: 2 * PAGE_SIZE };
        let store = |page| packet::Store { address: memory.at(page * PAGE_SIZE).0, value: 7 }.to_packet();
        queue.submit(&[copy.to_packet(), store(1 - read_only)]);
        rig.settle();
        assert_eq!((queue.fault(), memory.read((1 - read_only) * PAGE_SIZE)), (None, 7), "page {read_only}");
        let fill = packet::Fill { address: memory.va.0, length: 2 * PAGE_SIZE, pattern: !0, reserved: 0 };
        queue.submit(&[fill.to_packet(), store(read_only)]);
        rig.settle();
        assert_eq!(
            (queue.fault(), memory.read(read_only * PAGE_SIZE)),
            (Some(FaultKind::Address), 0),
            "page {read_only}"
        );
    }
}

/// A flush takes each translation of its range, also where the same mapping shows pages before or behind it.
#[test]
fn a_flush_takes_a_page_in_the_middle_of_what_is_mapped() {
    const PAGES: u64 = 4;
    for page in 0..PAGES {
        let mut rig = Rig::new();
        let (mut queue, memory) = (rig.queue(0, 0), rig.map(PAGES, false));
        let fill = packet::Fill { address: memory.va.0, length: PAGES * PAGE_SIZE, pattern: 1, reserved: 0 };
        queue.submit(&[fill.to_packet()]);
        rig.settle();
        let shown = asked(&rig).iter().filter(|(frames, _)| frames.len() as u64 == PAGES).count();
        assert_eq!(shown, 1, "the pages are one mapping");
        let (space, other, at) = (rig.context.clone(), rig.map(1, false), memory.at(page * PAGE_SIZE));
        rig.map_at(&space, at, Place::System(rig.frame_of(other)), false);
        let flush = rig.gpu.flush(rig.process.number, at.0, at.0 + PAGE_SIZE - 1);
        rig.settle();
        assert!(rig.gpu.flush_done(flush));
        queue.submit(&[packet::Store { address: at.0, value: 7 }.to_packet()]);
        rig.settle();
        assert_eq!((memory.read(page * PAGE_SIZE), other.read(0)), (0x1_0000_0001, 7), "page {page}");
    }
}

/// However many pages the packets touch, an engine has no more than so many mapped.
#[test]
fn an_engine_keeps_no_more_than_so_many_windows() {
    let mut rig = Rig::new();
    let mut queue = rig.queue(0, 0);
    for round in 0..30 {
        let stores: Vec<_> =
            (0..150).map(|_| packet::Store { address: rig.map(1, false).va.0, value: round }.to_packet()).collect();
        queue.submit(&stores);
        rig.settle();
    }
    let mapped = rig.gpu.host.mappings.load(Ordering::Relaxed);
    assert_eq!(queue.fault(), None);
    assert!(mapped <= 4096 + 64, "{mapped} mappings");
}

/// An engine with room for no more mappings than a packet needs goes on, whatever lies in the way: it unmaps all that
/// it has, and not only as much as between two looks, before it tries again (DD-19).
#[test]
fn an_engine_with_few_places_for_mappings_gets_through() {
    for places in [14, 24] {
        let mut rig = Rig::new();
        let mut q = rig.queue(0, 0);
        rig.settle();
        rig.gpu.host.places.store(rig.gpu.host.mappings.load(Ordering::Relaxed) + places, Ordering::Relaxed);
        let stores = (0..40).map(|number| {
            let page = rig.map(1, false);
            (page, packet::Store { address: page.va.0, value: number }.to_packet())
        });
        let (pages, stores): (Vec<_>, Vec<_>) = stores.unzip();
        let copy = packet::Copy { source: pages[1].va.0, destination: pages[0].at(8).0, length: 8 }.to_packet();
        q.submit(&[&stores[..], &[copy]].concat());
        for _ in 0..20_000 {
            rig.engines[0].step();
        }
        assert_eq!(q.read_pointer(), q.wp, "with {places} places");
        assert!((0..).zip(&pages).all(|(number, page)| page.read(0) == number) && pages[0].read(8) == 1);
    }
}

/// A flush comes while the engine still unmaps what another one has doomed, and has mapped page tables anew meanwhile:
/// nothing stays mapped behind it, and no place is given to two windows.
#[test]
fn a_flush_behind_an_unfinished_one_leaves_nothing_mapped() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let m = rig.map(1, false);
    let at = scattered(&mut rig, 200, PAGE_SIZE, 0x40_0000_0000);
    q.submit(&[packet::Fill { address: at.0, length: 200 * PAGE_SIZE, pattern: 1, reserved: 0 }.to_packet()]);
    rig.settle();
    let mapped = |rig: &Rig| rig.gpu.host.mappings.load(Ordering::Relaxed);
    rig.gpu.flush(rig.process.number, 0, 0);
    rig.engines[0].step();
    q.submit(&[packet::Store { address: m.va.0, value: 1 }.to_packet()]);
    while m.read(0) == 0 {
        rig.engines[0].step();
    }
    assert!(mapped(&rig) > 100, "the first flush is not done");
    let flush = rig.gpu.flush(rig.process.number, 0, 0);
    rig.settle();
    assert!(rig.gpu.flush_done(flush));
    assert_eq!(mapped(&rig), 0);
    // Pages that take the places of tables are taken for none.
    let pages: Vec<_> = (0..300).map(|_| rig.map(1, false)).collect();
    for some in pages.chunks(100) {
        let store = |page: &Range| packet::Store { address: page.va.0, value: 7 }.to_packet();
        q.submit(&some.iter().map(store).collect::<Vec<_>>());
        rig.settle();
    }
    assert_eq!((q.fault(), pages.iter().filter(|page| page.read(0) != 7).count()), (None, 0));
}

/// The context is suspended, the doorbell disconnected, and the translations of its process are flushed, as before the
/// OS evicts what a ring lies in: then nothing of that process is mapped, and nothing is until the context is resumed.
#[test]
pub fn nothing_is_mapped_of_a_ring_that_may_be_evicted() {
    let mut rig = Rig::new();
    let mut queue = rig.queue(0, 0);
    let memory = rig.map(64, false);
    let live = |rig: &Rig| rig.gpu.host.mappings.load(Ordering::Relaxed);
    let fill = packet::Fill { address: memory.va.0, length: 64 * PAGE_SIZE, pattern: !0, reserved: 0 };
    queue.submit(&[fill.to_packet()]);
    rig.settle();
    assert!(live(&rig) > 2, "ring, control words and memory are mapped");
    assert_eq!(rig.gpu.suspend(&queue.queue.context, 1), Suspend::Pending);
    rig.settle();
    rig.gpu.doorbells.disconnect(0);
    let number = rig.gpu.flush(rig.process.number, 0, 0);
    while !rig.gpu.flush_done(number) {
        for engine in &mut rig.engines {
            engine.step();
        }
    }
    assert_eq!(live(&rig), 0, "windows are left when the flush is done");
    queue.submit(&[fill.to_packet()]);
    rig.gpu.make_ready(&queue.queue);
    rig.settle();
    assert_eq!(live(&rig), 0, "a suspended context has something mapped");
    queue.queue.context.resume();
    rig.gpu.make_ready(&queue.queue);
    rig.settle();
    assert!(live(&rig) > 2);
}
