//! Room for packets, and packets that are refused.

use crate::packet_mode::packet_of;
use crate::support::Rig;
use gpu_engine::address_space::EVERY_SPACE;
use gpu_engine::host::Lock;
use gpu_engine::notice::Notice;
use std::sync::atomic::Ordering;

#[test]
fn packets_have_room_beforehand_and_after_a_preemption() {
    let mut rig = Rig::new();
    rig.gpu.nodes[2].packets.with(|q| q.make_room(1000)).unwrap();
    for round in 0..3u32 {
        for fence in 1..=1000 {
            let packet = packet_of(&mut rig, round * 1000 + fence, true, &[]);
            rig.gpu.nodes[2].packets.with(|q| q.submit(packet)).unwrap();
        }
        assert_eq!(rig.gpu.nodes[2].packets.with(|q| q.len()), 1000);
        // What a preemption gives away is replaced by what was made for it.
        let mut gone = rig.gpu.nodes[2].packets.with(|q| q.preempt(round * 1000 + 1000));
        assert!(gone.capacity() >= 1000);
        gone.clear();
        rig.gpu.nodes[2].packets.with(|q| {
            q.give_back(gone);
            assert!(q.is_preempting());
        });
    }
}

#[test]
fn a_packet_that_is_not_kept_counts_as_completed_behind_the_others() {
    let mut rig = Rig::new();
    for fence in [1, 2] {
        let packet = packet_of(&mut rig, fence, true, &[]);
        rig.gpu.nodes[2].packets.with(|q| q.submit(packet)).unwrap();
    }
    rig.gpu.nodes[2].packets.with(|q| (q.refuse(3), q.refuse(4)));
    assert_eq!(rig.gpu.nodes[2].packets.with(|q| q.fences()), (0, 4));
    rig.gpu.wake(2);
    rig.settle();
    let completed = [1, 2].map(|fence| (2, Notice::PacketCompleted { fence }));
    assert_eq!(rig.drain(), completed);
    assert_eq!(rig.gpu.nodes[2].packets.with(|q| q.fences()), (4, 4));
    // With nothing before it, it does at once.
    rig.gpu.nodes[2].packets.with(|q| q.refuse(5));
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
    let n = rig.gpu.flush(EVERY_SPACE, 0x1000, 0x2000);
    rig.settle();
    assert!(rig.gpu.flush_done(n));
    assert_eq!(rig.gpu.host.mappings.load(Ordering::Relaxed), 0);
}
