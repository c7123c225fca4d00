//! Locks of the hot path, where packets are stores and signals of one fence: none in an idle turn, none for a packet,
//! and each log's once in a burst.

use crate::support::{Range, Rig, TestQueue, sections};
use gpu_wire::packet::{Encoded, Progress, Store};

/// A queue whose progress fence is open, on a node with a scheduling log, and what it stores to.
fn logged() -> (Rig, TestQueue, Range) {
    let mut rig = Rig::new();
    let (target, fence, context) = (rig.map(1, false), rig.fence(), rig.context(0));
    rig.gpu.slots.set_driver_handle(context.slot, 0xA0);
    let queue = rig.queue_on(&context, 0, Some(fence.current));
    let log = rig.map(1, false).bytes;
    rig.gpu.nodes[0].scheduling.set(log, 100, u32::MAX).unwrap();
    (rig, queue, target)
}

/// Submissions number `from` up to `to`: a STORE each, and its end.
fn submissions(target: &Range, from: u64, to: u64) -> Vec<Encoded> {
    let store = Store { address: target.va.0, value: 1 }.to_packet();
    let end = |value| Progress { value, fence_handle: 0x40, index_hint: 0 }.to_packet();
    (from..to).flat_map(|value| [store, end(value)]).collect()
}

#[test]
fn an_idle_turn_takes_no_lock() {
    let (mut rig, mut queue, target) = logged();
    queue.submit(&submissions(&target, 1, 2));
    rig.settle();
    for _ in 0..2_000 {
        assert_eq!(sections(|| _ = rig.engines[0].step()), 0);
    }
    // Nor does one that watches a write pointer.
    rig.gpu.watch_pointer(&queue.queue, 1);
    rig.gpu.doorbells.disconnect(0);
    rig.settle();
    assert_eq!(sections(|| _ = rig.engines[0].step()), 0);
}

/// The fence's, since the stored value is its last or is none; the fence log's, and the scheduling log's, which says
/// that the context ran and runs no more.
#[test]
fn a_burst_takes_three_locks_and_no_submission_takes_any() {
    let (mut rig, mut queue, target) = logged();
    queue.submit(&submissions(&target, 1, 2));
    rig.settle();
    let mut next = 2;
    // Where a stream goes on, bursts grow from 512 bytes, some ten submissions, to 4 KiB.
    for (count, most) in [(1, 3), (1, 3), (2, 3), (10, 3), (20, 5), (80, 9)] {
        queue.submit(&submissions(&target, next, next + count));
        next += count;
        let taken = sections(|| {
            while queue.progress.read(0) != next - 1 {
                rig.engines[0].step();
            }
        });
        assert!((3..=most).contains(&taken), "{taken} locks for {count} submissions");
    }
}
