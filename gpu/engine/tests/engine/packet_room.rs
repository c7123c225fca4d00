//! Room for packets, and packets that are refused.

use crate::packet_mode::packet_of;
use crate::support::Rig;
use gpu_engine::address_space::EVERY_PROCESS;
use gpu_engine::notice::Notice;
use gpu_engine::packet_node::{PacketQueue, ROOM};
use std::sync::atomic::Ordering;

/// Both deques have room: the one that takes packets, and the one that takes its place.
#[test]
fn packets_have_room_beforehand_and_after_a_preemption_or_a_reset() {
    let mut rig = Rig::new();
    let gpu = rig.gpu.clone();
    let queue = &gpu.nodes[2].packets;
    let room = PacketQueue::room(1000).unwrap();
    let old = queue.with(|q| q.have_room(room));
    assert!(old.iter().all(|deque| deque.capacity() >= ROOM && deque.capacity() < 1000));
    for round in 0..4u32 {
        let take = |round: u32| {
            let mut gone = queue.with(|q| if round.is_multiple_of(2) { q.preempt(round) } else { q.reset().1 });
            let room = gone.capacity();
            gone.clear();
            queue.with(|q| q.give_back(gone));
            room
        };
        // Nothing was submitted yet: what came back is what was made, of either deque.
        assert!(take(round) >= 1000 && take(round) >= 1000);
        for fence in 1..=1000 {
            let packet = packet_of(&mut rig, round * 1000 + fence, true, &[]);
            queue.with(|q| q.submit(packet, &gpu.mutation)).unwrap();
        }
        assert_eq!(queue.with(|q| q.len()), 1000);
        assert!(take(round) < 2000, "a deque grew");
    }
}

/// Refused packets between others count as completed as soon as those before them are.
#[test]
fn refused_packets_between_others_count_as_completed_in_their_places() {
    let mut rig = Rig::new();
    let gpu = rig.gpu.clone();
    let queue = &gpu.nodes[2].packets;
    let submit = |rig: &mut Rig, fence| {
        let packet = packet_of(rig, fence, true, &[]);
        queue.with(|q| q.submit(packet, &gpu.mutation)).unwrap();
    };
    submit(&mut rig, 1);
    queue.with(|q| q.refuse(2, &gpu.mutation));
    submit(&mut rig, 3);
    queue.with(|q| q.refuse(4, &gpu.mutation));
    assert_eq!(queue.with(|q| q.fences()), (0, 4));
    gpu.wake(2);
    rig.settle();
    assert_eq!((rig.drain().len(), queue.with(|q| q.fences())), (2, (4, 4)));
    submit(&mut rig, 5);
    queue.with(|q| q.refuse(6, &gpu.mutation));
    submit(&mut rig, 7);
    let (aborted, gone) = queue.with(|q| q.reset());
    // None of them ran: the OS gets back what waited, and 6 behind it is not completed before it.
    assert_eq!((aborted, gone.len(), queue.with(|q| q.fences())), (4, 2, (4, 7)));
    submit(&mut rig, 8);
    queue.with(|q| q.refuse(9, &gpu.mutation));
    let gone = queue.with(|q| q.preempt(10));
    assert_eq!(gone.len(), 1);
    gpu.ask_preempt(2);
    rig.settle();
    // What was dropped is not completed, nor what was refused behind it.
    assert_eq!(queue.with(|q| q.fences()), (4, 9));
    assert_eq!(rig.drain(), [(2, Notice::PacketPreempted { request: 10, completed: 4 })]);
}

#[test]
pub(crate) fn a_packet_that_is_not_kept_counts_as_completed_behind_the_others() {
    let mut rig = Rig::new();
    let gpu = rig.gpu.clone();
    for fence in [1, 2] {
        let packet = packet_of(&mut rig, fence, true, &[]);
        rig.gpu.nodes[2].packets.with(|q| q.submit(packet, &rig.gpu.mutation)).unwrap();
    }
    rig.gpu.nodes[2].packets.with(|q| (q.refuse(3, &gpu.mutation), q.refuse(4, &gpu.mutation)));
    assert_eq!(rig.gpu.nodes[2].packets.with(|q| q.fences()), (0, 4));
    rig.gpu.wake(2);
    rig.settle();
    let completed = [1, 2].map(|fence| (2, Notice::PacketCompleted { fence }));
    assert_eq!(rig.drain(), completed);
    assert_eq!(rig.gpu.nodes[2].packets.with(|q| q.fences()), (4, 4));
    // A refused packet with nothing before it counts as completed at once.
    rig.gpu.nodes[2].packets.with(|q| q.refuse(5, &gpu.mutation));
    assert_eq!(rig.gpu.nodes[2].packets.with(|q| q.fences()), (5, 5));
}

#[test]
fn a_flush_of_every_space_leaves_no_mapping_of_any() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let m = rig.map(3, false);
    q.submit(&[gpu_wire::packet::Store { address: m.va.0, value: 1 }.to_packet()]);
    rig.settle();
    assert_ne!(rig.gpu.host.mappings.load(Ordering::Relaxed), 0);
    q.queue.bind(None);
    let n = rig.gpu.flush(EVERY_PROCESS, 0x1000, 0x2000);
    rig.settle();
    assert!(rig.gpu.flush_done(n));
    assert_eq!(rig.gpu.host.mappings.load(Ordering::Relaxed), 0);
}
