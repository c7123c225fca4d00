//! Long work, hangs, suspension, doorbells.

use crate::support::{Range, Rig, TestQueue};
use gpu_engine::context::Suspend;
use gpu_engine::engine::{Step, Watched};
use gpu_engine::node::Control;
use gpu_engine::notice::Notice;
use gpu_engine::queue::{Queue, State};
use gpu_engine::shared::Shared;
use gpu_engine::word::{Ordering, Word};
use gpu_wire::doorbell::Model;
use gpu_wire::packet::{self};
use gpu_wire::pte;
use gpu_wire::{GpuVa, PAGE_SIZE};

/// A queue in an endless INDIRECT loop, and its neighbour on the same node.
fn hang(rig: &mut Rig) -> (TestQueue, TestQueue) {
    let (mut bad, good) = (rig.queue(0, 0), rig.queue(0, 1));
    let code = rig.map(1, false);
    let jump = packet::Indirect { address: code.va.0, length: 24 }.to_packet();
    code.bytes.write(jump.as_bytes());
    bad.submit(&[jump]);
    (bad, good)
}

#[test]
fn an_endless_loop_ends_in_a_reset_that_names_it_alone() {
    let mut rig = Rig::without_preemption();
    let (bad, mut good) = hang(&mut rig);
    let m = rig.map(1, false);
    good.submit(&[packet::Store { address: m.va.0, value: 3 }.to_packet()]);
    let gpu = rig.gpu.clone();
    std::thread::scope(|s| {
        s.spawn(|| while rig.engines[0].step() != Step::Held {});
        while gpu.nodes[0].counters.read().indirects < 1_000 {
            std::thread::yield_now();
        }
        gpu.command(0, Control::Hold);
    });
    let interrupted = gpu.nodes[0].take_interrupted().unwrap();
    assert_eq!(interrupted.slot, bad.queue.slot);
    assert_eq!(bad.queue.state(), State::Stopped);
    assert_eq!(rig.engines[0].step(), Step::Held);
    assert!(rig.drain().is_empty());
    gpu.command(0, Control::Run);
    rig.settle();
    assert_eq!(m.read(0), 3);
    good.submit(&[packet::Store { address: m.va.0, value: 4 }.to_packet()]);
    rig.settle();
    assert_eq!(m.read(0), 4);
}

#[test]
fn an_endless_loop_keeps_nobody_else_from_being_suspended() {
    let mut rig = Rig::without_preemption();
    let (bad, good) = hang(&mut rig);
    let gpu = rig.gpu.clone();
    std::thread::scope(|s| {
        s.spawn(|| while rig.engines[0].step() != Step::Held {});
        while gpu.nodes[0].counters.read().indirects < 1_000 {
            std::thread::yield_now();
        }
        assert_eq!(gpu.suspend(&bad.queue.context, 1), Suspend::Pending);
        assert_eq!(gpu.suspend(&good.queue.context, 2), Suspend::Pending);
        while gpu.nodes[0].mailbox.is_empty() || !gpu.nodes[0].board.now().1 {
            std::thread::yield_now();
        }
        gpu.command(0, Control::Hold);
    });
    assert_eq!(rig.drain(), [(0, Notice::ContextSuspended { context: good.queue.context.slot, fence: 2 })]);
    assert!(!gpu.nodes[0].board.now().1, "debug information says that what has come off cannot");
}

/// Queues that were made ready and destroyed stand in the list until the engine comes round; another queue has its
/// place there all the same.
#[test]
fn destroyed_queues_and_contexts_leave_room_for_others() {
    let mut rig = Rig::new();
    let mut victim = rig.queue(0, 1);
    let m = rig.map(1, false);
    rig.settle();
    let context = rig.context(0);
    let gpu = rig.gpu.clone();
    for _ in 0..64 {
        let slot = gpu.slots.allocate(0xA000).unwrap();
        let member = gpu.admit(0).unwrap();
        let queue = Queue::new(member, slot, context.clone(), false, GpuVa(0x1000), true).unwrap();
        let queue = Shared::try_new(queue).unwrap();
        gpu.make_ready(&queue);
        gpu.destroy_queue(&queue);
        gpu.slots.kill(slot);
        gpu.slots.free(slot);
        let other = rig.context(0);
        gpu.suspend(&other, 1);
        other.lose();
    }
    victim.submit(&[packet::Store { address: m.va.0, value: 3 }.to_packet()]);
    gpu.make_ready(&victim.queue);
    assert_eq!(gpu.suspend(&rig.context(0), 7), Suspend::Pending);
    rig.settle();
    assert_eq!(m.read(0), 3);
    let said = rig.drain();
    assert!(said.iter().any(|(_, n)| matches!(n, Notice::ContextSuspended { fence: 7, .. })), "{said:?}");
}

#[test]
fn suspension_is_answered_once_and_only_for_the_newest_request() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let m = rig.map(1, false);
    let gpu = rig.gpu.clone();
    assert_eq!(gpu.suspend(&q.queue.context, 1), Suspend::Pending);
    assert!(q.queue.context.resume());
    assert_eq!(gpu.suspend(&q.queue.context, 2), Suspend::Pending);
    rig.settle();
    assert_eq!(rig.drain(), [(0, Notice::ContextSuspended { context: q.queue.context.slot, fence: 2 })]);
    assert_eq!(gpu.suspend(&q.queue.context, 3), Suspend::Already);
    q.submit(&[packet::Store { address: m.va.0, value: 1 }.to_packet()]);
    rig.settle();
    assert_eq!(m.read(0), 0);
    q.queue.context.resume();
    gpu.make_ready(&q.queue);
    rig.settle();
    assert_eq!(m.read(0), 1);
}

#[test]
fn a_long_fill_gives_way_and_goes_on() {
    let mut rig = Rig::new();
    let mut q = rig.queue(1, 0);
    let a = rig.map(1000, false);
    let n = 1000 * PAGE_SIZE;
    q.submit(&[packet::Fill { address: a.va.0, length: n, pattern: 0x5555_5555, reserved: 0 }.to_packet()]);
    let gpu = rig.gpu.clone();
    assert_eq!(gpu.suspend(&q.queue.context, 1), Suspend::Pending);
    rig.settle();
    assert_eq!(rig.drain().len(), 1);
    q.queue.context.resume();
    gpu.make_ready(&q.queue);
    rig.settle();
    assert_eq!((a.read(0), a.read(n - 8)), (0x5555_5555_5555_5555, 0x5555_5555_5555_5555));
}

#[test]
fn global_doorbell_rings_reach_every_queue() {
    let mut rig = Rig::with(Model::Global, false);
    let (mut a, mut b) = (rig.queue(0, 0), rig.queue(1, 0));
    let m = rig.map(1, false);
    rig.settle();
    // Both ring before anyone looks: the second value covers the first.
    a.submit(&[packet::Store { address: m.va.0, value: 1 }.to_packet()]);
    b.submit(&[packet::Store { address: m.at(8).0, value: 2 }.to_packet()]);
    rig.settle();
    assert_eq!((m.read(0), m.read(8)), (1, 2));
    // The same value twice, with a look in between, is two rings.
    a.publish(&[packet::Store { address: m.va.0, value: 3 }.to_packet()]);
    b.ring();
    rig.settle();
    assert_eq!(m.read(0), 3);
}

/// A connection that comes late finds that its doorbell is being destroyed and takes itself back. The queue's next
/// doorbell stays connected, whatever the order was.
#[test]
fn the_late_end_of_a_global_connection_leaves_its_successor() {
    for successor_first in [false, true] {
        let mut rig = Rig::with(Model::Global, false);
        let mut q = rig.queue(0, 0);
        let m = rig.map(1, false);
        let gpu = rig.gpu.clone();
        gpu.global.disconnect(q.queue.slot.pack());
        for doorbell in if successor_first { [2, 1] } else { [1, 2] } {
            gpu.global.connect(&q.queue, doorbell, true).unwrap();
        }
        gpu.global.disconnect(1);
        rig.settle();
        q.submit(&[packet::Store { address: m.va.0, value: 1 }.to_packet()]);
        rig.settle();
        assert_eq!(m.read(0), 1, "the successor is connected");
        gpu.global.disconnect(2);
        q.submit(&[packet::Store { address: m.va.0, value: 2 }.to_packet()]);
        rig.settle();
        assert_eq!(m.read(0), 1, "nothing is");
    }
}

/// The same of the watch: a call about a doorbell that is gone does not end the watch of its successor's queue.
#[test]
fn a_late_call_about_a_doorbell_leaves_the_watch_of_its_successor() {
    let mut rig = Rig::new();
    let (mut q, m) = watched_after_disconnection(&mut rig);
    let gpu = rig.gpu.clone();
    gpu.watch_pointer(&q.queue, 2);
    gpu.stop_watching(&q.queue, 1);
    rig.engines[0].step();
    q.publish(&[packet::Store { address: m.va.0, value: 1 }.to_packet()]);
    rig.engines[0].step();
    rig.engines[0].step();
    assert_eq!(m.read(0), 1);
    gpu.stop_watching(&q.queue, 2);
    rig.settle();
    q.publish(&[packet::Store { address: m.va.0, value: 2 }.to_packet()]);
    rig.settle();
    assert_eq!(m.read(0), 1);
}

/// A queue whose doorbell was taken away and whose write pointer the engine looks at itself, and memory to write to.
fn watched_after_disconnection(rig: &mut Rig) -> (TestQueue, Range) {
    let q = rig.queue(0, 0);
    let m = rig.map(1, false);
    rig.settle();
    rig.gpu.doorbells.disconnect(0);
    rig.gpu.watch_pointer(&q.queue, 1);
    (q, m)
}

#[test]
fn a_disconnected_queue_is_watched_until_the_page_was_rotated() {
    let mut rig = Rig::new();
    let (mut q, m) = watched_after_disconnection(&mut rig);
    let gpu = rig.gpu.clone();
    // The ring lands in the old page, at which no engine looks any more; the write pointer is seen all the same.
    q.publish(&[packet::Store { address: m.va.0, value: 1 }.to_packet()]);
    rig.engines[0].step();
    rig.engines[0].step();
    assert_eq!(m.read(0), 1);
    gpu.stop_watching(&q.queue, 1);
    rig.settle();
    q.publish(&[packet::Store { address: m.va.0, value: 2 }.to_packet()]);
    rig.settle();
    assert_eq!(m.read(0), 1);
    gpu.doorbells.connect(2, &q.queue, true);
    gpu.make_ready(&q.queue);
    rig.settle();
    assert_eq!(m.read(0), 2);
}

/// The OS disconnects between an engine's last look and its sleep: the engine does not sleep over the new watch.
#[test]
fn an_engine_does_not_sleep_over_a_watch_that_it_has_not_seen() {
    let mut rig = Rig::new();
    let q = rig.queue(0, 0);
    rig.settle();
    let gpu = rig.gpu.clone();
    gpu.doorbells.disconnect(0);
    assert_eq!(rig.engines[0].step(), Step::Idle(Watched::Nothing));
    gpu.watch_pointer(&q.queue, 1);
    assert!(!rig.engines[0].prepare_sleep());
    assert_eq!(rig.engines[0].step(), Step::Idle(Watched::WritePointers));
    // It has seen it: between its looks it may pause.
    assert!(rig.engines[0].prepare_sleep());
    gpu.stop_watching(&q.queue, 1);
    rig.settle();
    assert_eq!(rig.engines[0].step(), Step::Idle(Watched::Nothing));
    assert!(rig.engines[0].prepare_sleep());
}

/// The OS has rotated the pages of every doorbell of a node: work that is published is run, what comes later is not,
/// and the engine may sleep. While a reset holds it, it looks at nothing, and watches on.
#[test]
fn with_every_page_rotated_nothing_is_watched() {
    let mut rig = Rig::new();
    let (mut q, m) = watched_after_disconnection(&mut rig);
    rig.settle();
    q.publish(&[packet::Store { address: m.va.0, value: 1 }.to_packet()]);
    assert!(rig.engines[1].last_look());
    assert_eq!(m.read(0), 0, "another node's");
    rig.gpu.command(0, Control::Hold);
    rig.engines[0].step();
    assert!(rig.engines[0].last_look());
    rig.gpu.command(0, Control::Run);
    assert_eq!(rig.engines[0].step(), Step::Worked, "it is watched still");
    assert_eq!(m.read(0), 1);
    q.publish(&[packet::Store { address: m.va.0, value: 2 }.to_packet()]);
    assert!(rig.engines[0].last_look());
    rig.settle();
    assert_eq!((m.read(0), rig.engines[0].step()), (2, Step::Idle(Watched::Nothing)));
    q.publish(&[packet::Store { address: m.va.0, value: 3 }.to_packet()]);
    rig.settle();
    assert_eq!(m.read(0), 2, "no engine looks there any more");
}

/// An engine looks for no rings of a doorbell that is announced, in either model; what is announced runs.
#[test]
fn an_announced_doorbell_is_not_looked_at() {
    for model in [Model::Dedicated, Model::Global] {
        let mut rig = Rig::with(model, false);
        let mut q = rig.queue(0, 0);
        let m = rig.map(1, false);
        let gpu = rig.gpu.clone();
        rig.settle();
        // The rig has connected it under the slot's number in the global model.
        let place = if model == Model::Global { q.queue.slot.pack() as usize } else { 0 };
        assert_eq!(rig.engines[0].step(), Step::Idle(Watched::Doorbells));
        gpu.connect(place, &q.queue, false).unwrap();
        rig.settle();
        assert_eq!(rig.engines[0].step(), Step::Idle(Watched::Nothing));
        q.publish(&[packet::Store { address: m.va.0, value: 1 }.to_packet()]);
        gpu.make_ready(&q.queue);
        rig.settle();
        assert_eq!(m.read(0), 1);
        gpu.connect(place, &q.queue, true).unwrap();
        rig.settle();
        assert_eq!(rig.engines[0].step(), Step::Idle(Watched::Doorbells));
        gpu.disconnect(place);
        rig.settle();
        assert_eq!(rig.engines[0].step(), Step::Idle(Watched::Nothing));
    }
}

/// User mode may free the ring of a disconnected queue: the engine finds nothing there and looks no more, so that it
/// can sleep. A connection makes it look again.
#[test]
fn a_disconnected_queue_without_a_ring_is_not_watched_for_ever() {
    let mut rig = Rig::new();
    let (mut q, m) = watched_after_disconnection(&mut rig);
    let gpu = rig.gpu.clone();
    // It is watched, and not run for nothing: a thread that polls may rest.
    assert_eq!([(); 4].map(|()| rig.engines[0].step()), [Step::Idle(Watched::WritePointers); 4]);
    let table = rig.leaf_table(&rig.context.clone(), q.control.va);
    let entry = rig.entry(table, pte::index(q.control.va, 0));
    let mapped = entry.load(Ordering::SeqCst);
    entry.store(0, Ordering::SeqCst);
    let n = gpu.flush(rig.process.number, 0, 0);
    rig.settle();
    assert!(gpu.flush_done(n));
    assert_eq!(rig.engines[0].step(), Step::Idle(Watched::Nothing));
    assert!(rig.engines[0].prepare_sleep());
    assert_eq!((q.queue.state(), rig.drain()), (State::Active, Vec::new()), "nothing of this is a fault");
    entry.store(mapped, Ordering::SeqCst);
    q.publish(&[packet::Store { address: m.va.0, value: 1 }.to_packet()]);
    gpu.doorbells.connect(0, &q.queue, true);
    gpu.make_ready(&q.queue);
    rig.settle();
    assert_eq!(m.read(0), 1);
}

/// A doorbell's page that changes hands holds nothing of what its last user wrote, wherever in the page.
#[test]
fn a_page_that_changes_hands_is_wiped() {
    let mut rig = Rig::new();
    let first = rig.queue(0, 0);
    for offset in [8, 64, PAGE_SIZE - 8] {
        first.doorbell_page.word(offset).unwrap().store(0x5EC2E7, Ordering::SeqCst);
    }
    rig.settle();
    rig.gpu.doorbells.disconnect(0);
    let second = rig.queue(0, 0);
    for offset in (0..PAGE_SIZE).step_by(8) {
        assert_eq!(second.doorbell_page.word(offset).unwrap().load(Ordering::SeqCst), 0, "offset {offset}");
    }
}
