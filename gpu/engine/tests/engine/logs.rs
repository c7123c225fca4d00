//! Fence logs.

use crate::support::{Rig, log, log_entry, log_position};
use gpu_engine::host::Lock;
use gpu_engine::notice::Notice;
use gpu_engine::word::{Ordering, Word};
use gpu_wire::doorbell::Model;
use gpu_wire::packet::{self, Encoded, log_operation::*};

#[test]
fn log_overrun_counts_and_never_leaves_the_buffer() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let f = rig.fence();
    for v in 0..200u64 {
        q.submit(&[Encoded::fence_signal(f.current.va, v), log(SIGNAL_EXECUTED, v, u32::MAX)]);
        rig.settle();
    }
    assert_eq!(log_position(q.signals), (200 % 84, 2));
    assert_eq!(q.queue.signals.with(|l| (l.written, l.hint_misses)), (200, 200));
    let mut last = 0;
    for v in 168..200u64 {
        let [value, _, observed, end] = log_entry(q.signals, v % 84);
        assert_eq!((value, observed), (v, 0));
        assert!(end >= last);
        last = end;
    }
}

#[test]
pub(crate) fn a_recreated_log_gets_every_later_entry() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let f = rig.fence();
    q.submit(&[Encoded::fence_signal(f.current.va, 1), log(SIGNAL_EXECUTED, 1, 0)]);
    rig.settle();
    let fresh = rig.map(1, false).bytes;
    q.queue.signals.with(|l| l.set(fresh, 84, &rig.gpu.mutation)).unwrap();
    q.submit(&[Encoded::fence_signal(f.current.va, 2), log(SIGNAL_EXECUTED, 2, 0)]);
    rig.settle();
    assert_eq!((log_position(q.signals), log_position(fresh)), ((1, 0), (1, 0)));
    assert_eq!(log_entry(fresh, 0)[0], 2);
    assert!(q.queue.signals.with(|l| l.set(fresh, 0, &rig.gpu.mutation)).is_err());
    assert!(q.queue.signals.with(|l| l.set(fresh, 85, &rig.gpu.mutation)).is_err());
}

#[test]
fn an_interrupt_names_a_queue_only_if_its_log_tells() {
    let mut rig = Rig::with(Model::Dedicated, true);
    let mut q = rig.queue(0, 0);
    let f = rig.fence();
    f.monitored.word(0).store(0, Ordering::SeqCst);
    let signal = |value| packet::Fence { fence: f.current.va.0, value }.to_packet();
    q.submit(&[signal(1), log(SIGNAL_EXECUTED, 1, 0)]);
    rig.settle();
    assert_eq!(rig.drain(), [(0, Notice::FenceSignaled { fence: f.fence.slot, queue: q.queue.slot })]);
    q.submit(&[signal(2)]);
    rig.settle();
    assert_eq!(rig.drain(), [(0, Notice::FencesSignaled)]);
    // A logged one does not hide one that is not.
    q.submit(&[signal(3), log(SIGNAL_EXECUTED, 3, 1), signal(4)]);
    rig.settle();
    assert!(rig.drain().contains(&(0, Notice::FencesSignaled)));
}
