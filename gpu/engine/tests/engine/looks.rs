//! What others bring an engine between two of its looks is bounded: queues that arrive, flushes, and write pointers
//! that are watched. The engine looks up meanwhile, and nothing of it is lost.

use crate::preemption::BOUND;
use crate::support::{Rig, TestQueue};
use gpu_engine::arrivals::{Arrivals, Linked};
use gpu_engine::engine::{Step, Watched};
use gpu_engine::queue::Binding;
use gpu_engine::shared::Shared;
use gpu_engine::word::{Ordering, Word};
use gpu_wire::packet::{self, Encoded};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

fn most(rig: &Rig) -> u64 {
    rig.gpu.nodes[0].counters.read().most_between_looks
}

fn forget(rig: &Rig) {
    rig.gpu.nodes[0].counters.most_between_looks.store(0, Ordering::Relaxed);
}

/// Queues of node 0 whose doorbell is gone; each is to store its number to the word at `to`.
fn queues(rig: &mut Rig, count: u64, to: gpu_wire::GpuVa) -> Vec<TestQueue> {
    let context = rig.context(0);
    let mut queues: Vec<_> = (0..count).map(|_| rig.queue_of(&context, 0)).collect();
    rig.gpu.doorbells.disconnect(0);
    rig.settle();
    // Their control pages are mapped no more.
    rig.gpu.flush(rig.process.number, 0, 0);
    rig.settle();
    for (number, queue) in (1..).zip(&mut queues) {
        queue.publish(&[packet::Store { address: to.0, value: number }.to_packet()]);
    }
    queues
}

/// Many queues become ready at once: the engine takes in 32 between two looks, and they run in the order in which they
/// came.
#[test]
fn queues_that_arrive_at_once_are_taken_in_by_and_by() {
    const QUEUES: u64 = 1_000;
    let mut rig = Rig::new();
    let m = rig.map(1, false);
    let queues = queues(&mut rig, QUEUES, m.va);
    assert_eq!(m.read(0), 0);
    for queue in &queues {
        rig.gpu.make_ready(&queue.queue);
    }
    forget(&rig);
    // Turned around first, 32 at each step; then taken in.
    for _ in 0..QUEUES / 32 {
        rig.engines[0].step();
        assert_eq!(m.read(0), 0, "none runs before the one that came first is known");
    }
    assert!(!rig.engines[0].prepare_sleep());
    let mut last = 0;
    while last != QUEUES {
        rig.engines[0].step();
        let now = m.read(0);
        assert!(now == last || now == last + 1, "{now} behind {last}");
        last = now;
    }
    assert!(most(&rig) <= BOUND, "{} between two looks", most(&rig));
    rig.settle();
    assert!(rig.engines[0].prepare_sleep());
}

/// A member of a list of arrivals that counts its end.
struct Member {
    link: AtomicU64,
    ends: Arc<AtomicU64>,
}

impl Linked for Member {
    type Word = AtomicU64;

    fn link(&self) -> &AtomicU64 {
        &self.link
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.ends.fetch_add(1, Ordering::Relaxed);
    }
}

/// What was taken and not taken in ends with what holds it, turned around or not.
#[test]
fn what_is_being_taken_in_is_let_go() {
    for turned in [0, 3, 10, 20] {
        let ends = Arc::new(AtomicU64::new(0));
        let arrivals = Arrivals::new(AtomicU64::new);
        for _ in 0..10 {
            arrivals.add(Shared::try_new(Member { link: AtomicU64::new(0), ends: ends.clone() }).unwrap());
        }
        let mut taken = arrivals.take();
        assert_eq!((taken.turn_around(turned), ends.load(Ordering::Relaxed)), (turned.min(10), 0));
        drop(taken);
        assert_eq!(ends.load(Ordering::Relaxed), 10);
    }
}

/// Of many flushes an engine serves one between two looks, in their order; each is a search, and is charged.
#[test]
fn flushes_are_served_by_and_by() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let m = rig.map(600, false);
    // Each page in a window of its own.
    let store = |page: u64| packet::Store { address: m.at(page * 4096).0, value: 1 }.to_packet();
    let stores: Vec<_> = (0..600).map(store).collect();
    for some in stores.chunks(100) {
        q.submit(some);
        rig.settle();
    }
    let mapped = rig.gpu.host.mappings.load(Ordering::Relaxed);
    assert!(mapped >= 600);
    // Of a process that has nothing mapped: each is a search that finds nothing.
    let process = rig.gpu.new_space_id();
    let flushes: Vec<_> = (0..7).map(|_| rig.gpu.flush(process, 0, 0)).collect();
    let served = |rig: &Rig| flushes.iter().filter(|number| rig.gpu.flush_done(**number)).count();
    forget(&rig);
    for served_by_now in 1..=7 {
        assert!(!rig.engines[0].prepare_sleep());
        for engine in &mut rig.engines {
            engine.step();
        }
        assert_eq!(served(&rig), served_by_now);
    }
    // 16 bytes for each window.
    assert!(most(&rig) >= 16 * 600, "{} for a search", most(&rig));
    assert_eq!(rig.gpu.host.mappings.load(Ordering::Relaxed), mapped);
}

/// With many write pointers to watch the engine looks up behind each 64, or behind fewer where it must map their pages,
/// and goes on where it was.
#[test]
fn an_engine_that_watches_many_write_pointers_looks_up() {
    const QUEUES: u64 = 200;
    let mut rig = Rig::new();
    let m = rig.map(1, false);
    let queues = queues(&mut rig, QUEUES, m.va);
    for (number, queue) in (1..).zip(&queues) {
        rig.gpu.watch_pointer(&queue.queue, number);
    }
    // The control pages are mapped by the first looks, which the request comes in the middle of.
    let gpu = rig.gpu.clone();
    *rig.gpu.host.on_map.lock().unwrap() = Some(Box::new(move || {
        gpu.flush(gpu.new_space_id(), 0, 0);
    }));
    let asked = |rig: &Rig| rig.gpu.host.asked.lock().unwrap().len();
    let before = asked(&rig);
    forget(&rig);
    // It takes the list over first, 64 at a time, and does not sleep meanwhile.
    for _ in 0..QUEUES / 64 {
        assert_eq!(rig.engines[0].step(), Step::Worked);
        assert!(asked(&rig) == before && !rig.engines[0].prepare_sleep());
    }
    rig.engines[0].step();
    let looked = asked(&rig) - before;
    assert!((1..=8).contains(&looked), "{looked} pages were mapped before the engine looked up");
    assert!(!rig.engines[0].prepare_sleep(), "it sleeps amid a round");
    rig.settle();
    // Now the pages are mapped, and nothing is published.
    for _ in 0..4 {
        rig.engines[0].step();
    }
    let most = most(&rig);
    assert!((64 << 10..=BOUND).contains(&most), "{most} between two looks");
    let consumed = |queue: &TestQueue| queue.queue.consumed.load(Ordering::Relaxed) == queue.wp;
    assert!(queues.iter().all(consumed), "every one of them was looked at");
}

/// The list changes while the engine takes it over: none that stays in it is left out, and none that a last look has
/// found is looked at again.
#[test]
fn a_list_that_changes_while_it_is_taken_over_is_taken_whole() {
    const QUEUES: u64 = 200;
    let mut rig = Rig::new();
    let m = rig.map(1, false);
    let queues = queues(&mut rig, QUEUES, m.va);
    let consumed = |queue: &TestQueue| queue.queue.consumed.load(Ordering::Relaxed) == queue.wp;
    for (number, queue) in (1..).zip(&queues[..150]) {
        rig.gpu.watch_pointer(&queue.queue, number);
    }
    rig.engines[0].step();
    // From the front and the end, and new ones; the engine has the last 64.
    let gone: Vec<usize> = (0..10).flat_map(|n| [n * 2, 149 - n * 3]).collect();
    for number in &gone {
        rig.gpu.nodes[0].forget_watched(&queues[*number].queue);
    }
    for (number, queue) in (151..).zip(&queues[150..]) {
        rig.gpu.watch_pointer(&queue.queue, number);
    }
    rig.settle();
    let left: Vec<_> = (0..queues.len()).filter(|n| !gone.contains(n) && !consumed(&queues[*n])).collect();
    assert_eq!(left, [0; 0]);
}

/// Behind the last look the engine looks at no write pointer that it was about to take over.
#[test]
fn nothing_is_looked_at_behind_the_last_look() {
    const QUEUES: u64 = 150;
    let mut rig = Rig::new();
    let m = rig.map(1, false);
    let mut queues = queues(&mut rig, QUEUES, m.va);
    for queue in &queues {
        rig.gpu.make_ready(&queue.queue);
    }
    rig.settle();
    for (number, queue) in (1..).zip(&queues) {
        rig.gpu.watch_pointer(&queue.queue, number);
    }
    rig.engines[0].step();
    while !rig.engines[0].last_look() {
        // As the thread does.
        let _nothing_is_asked = rig.engines[0].attend();
    }
    let value = QUEUES + 1;
    for queue in &mut queues {
        queue.publish(&[packet::Store { address: m.va.0, value }.to_packet()]);
    }
    rig.settle();
    assert!(m.read(0) != value, "what was published behind the last look is found");
    assert!(rig.engines[0].prepare_sleep());
}

/// The last look finds no memory to map a control page: the queue has a turn, in which it can be told.
#[test]
fn a_last_look_without_memory_is_taken_in_a_turn() {
    let mut rig = Rig::new();
    let m = rig.map(1, false);
    let queues = queues(&mut rig, 1, m.va);
    rig.gpu.watch_pointer(&queues[0].queue, 1);
    *rig.gpu.host.until_failure.lock().unwrap() = Some(0);
    assert!(rig.engines[0].last_look());
    assert_eq!(m.read(0), 0);
    rig.settle();
    assert_eq!(m.read(0), 1);
}

/// What the OS waits for is the look of the engine that the node has now.
#[test]
fn an_engine_that_was_replaced_takes_no_last_look() {
    let mut rig = Rig::new();
    assert!(rig.engines[0].last_look());
    rig.gpu.nodes[0].supersede();
    assert!(!rig.engines[0].last_look() && rig.engines[1].last_look());
}

/// A last look at many write pointers, whose pages must be mapped, comes in parts: none is longer than a step, and each
/// queue is looked at.
#[test]
fn a_last_look_is_no_longer_than_a_step() {
    const QUEUES: u64 = 200;
    let mut rig = Rig::new();
    let m = rig.map(1, false);
    let queues = queues(&mut rig, QUEUES, m.va);
    for (number, queue) in (1..).zip(&queues) {
        rig.gpu.watch_pointer(&queue.queue, number);
    }
    forget(&rig);
    let mut parts = 1;
    while !rig.engines[0].last_look() {
        parts += 1;
        assert!(parts < 1_000);
    }
    assert!(parts > 3, "{parts} parts");
    assert!(rig.engines[0].last_look(), "nothing is watched behind it");
    rig.settle();
    assert!(most(&rig) <= BOUND, "{} between two looks", most(&rig));
    let consumed = |queue: &TestQueue| queue.queue.consumed.load(Ordering::Relaxed) == queue.wp;
    assert!(queues.iter().all(consumed), "every one of them was looked at");
}

/// Where the pages of write pointers must be mapped for a round of looks, each step is work until that is over, though
/// none of them finds any.
#[test]
fn a_round_of_looks_is_work_until_it_is_over() {
    const QUEUES: u64 = 20;
    let mut rig = Rig::new();
    let m = rig.map(1, false);
    let queues = queues(&mut rig, QUEUES, m.va);
    for (number, queue) in (1..).zip(&queues) {
        queue.control.word(0).store(0, Ordering::Release);
        rig.gpu.watch_pointer(&queue.queue, number);
    }
    let asked = |rig: &Rig| rig.gpu.host.asked.lock().unwrap().len() as u64;
    let (before, mut steps) = (asked(&rig), 0);
    while rig.engines[0].step() == Step::Worked {
        steps += 1;
    }
    assert!(asked(&rig) - before >= QUEUES && steps >= 3, "{} pages in {steps} steps", asked(&rig) - before);
}

/// A queue whose first ring was consumed gets a second one, of which nothing is published: a look finds no work in it.
/// What is published in it then is found, though it is as much as was consumed of the first, and by a last look too.
#[test]
fn the_position_in_a_ring_that_is_gone_says_nothing_of_the_next() {
    for last_look in [false, true] {
        let mut rig = Rig::new();
        let m = rig.map(1, false);
        let mut queue = queues(&mut rig, 1, m.va).remove(0);
        rig.gpu.make_ready(&queue.queue);
        rig.settle();
        assert_eq!((m.read(0), queue.read_pointer()), (1, queue.wp));
        let (ring, control) = (rig.map(1, false), rig.map(1, false));
        queue.queue.bind(None);
        rig.settle();
        queue.queue.bind(Some(Binding { ring: ring.va, control: control.va, geometry: queue.geometry }));
        rig.gpu.watch_pointer(&queue.queue, 1);
        // Before the engine has looked at the new one, or behind that.
        while !last_look && rig.engines[0].step() != Step::Idle(Watched::WritePointers) {}
        for _ in 0..if last_look { 0 } else { 4 } {
            assert_eq!(rig.engines[0].step(), Step::Idle(Watched::WritePointers));
        }
        (queue.ring, queue.control, queue.wp) = (ring, control, 0);
        queue.publish(&[packet::Store { address: m.va.0, value: 5 }.to_packet()]);
        if last_look {
            assert!(rig.engines[0].last_look());
        }
        rig.settle();
        assert_eq!((m.read(0), queue.read_pointer()), (5, queue.wp));
    }
}

/// A watched queue gets another ring: the engine looks at the write pointer of that from then on.
#[test]
fn the_write_pointer_of_a_new_ring_is_watched() {
    let mut rig = Rig::new();
    let m = rig.map(1, false);
    let queue = queues(&mut rig, 1, m.va).remove(0);
    // Nothing is published: the packet lies in the ring.
    queue.control.word(0).store(0, Ordering::Release);
    rig.gpu.watch_pointer(&queue.queue, 1);
    rig.settle();
    let control = rig.map(1, false);
    queue.queue.bind(Some(Binding { ring: queue.ring.va, control: control.va, geometry: queue.geometry }));
    rig.settle();
    assert_eq!(m.read(0), 0);
    control.word(0).store(queue.wp, Ordering::Release);
    rig.settle();
    assert_eq!(m.read(0), 1);
}

#[test]
fn nothing_of_a_nop_is_charged_as_more_than_it_is() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    q.submit(&[Encoded::nop(8)]);
    rig.settle();
    forget(&rig);
    q.submit(&(0..400).map(|_| Encoded::nop(8)).collect::<Vec<_>>());
    rig.settle();
    let most = most(&rig);
    assert!((256 * 200..=BOUND).contains(&most), "{most} for the packets of a stretch");
}

/// An engine that rests between looks at write pointers, the queue for whose sake it does, and that one's progress.
pub(crate) fn resting() -> (Rig, TestQueue, u64) {
    let mut rig = Rig::with_fine_clock();
    let mut busy = rig.queue(0, 0);
    rig.settle();
    let mut value = 0;
    while !rig.engines[0].is_resting() {
        assert!(value < 10_000, "the engine never rests");
        // A submission is a signal of the progress fence.
        let some: Vec<_> = (1..=8).map(|n| Encoded::fence_signal(busy.queue.progress, value + n)).collect();
        value += 8;
        busy.submit(&some);
        while busy.read_pointer() != busy.wp {
            rig.engines[0].step();
        }
    }
    (rig, busy, value)
}

/// The engine rests between looks at write pointers, and that of another queue cannot be mapped before the engine looks
/// up: the queue's turn is not over until the pointer was looked at.
#[test]
fn a_cold_write_pointer_is_looked_at_where_the_engine_rests() {
    let (mut rig, _busy, _) = resting();
    // Both pages of it are cold, and so are their tables.
    rig.gpu.doorbells.disconnect(0);
    let mut cold = rig.queue(0, 1);
    rig.gpu.doorbells.disconnect(1);
    let m = rig.map(1, false);
    cold.publish(&[packet::Store { address: m.va.0, value: 1 }.to_packet()]);
    rig.gpu.flush(rig.process.number, 0, 0);
    rig.gpu.make_ready(&cold.queue);
    rig.settle();
    assert_eq!(m.read(0), 1);
}
