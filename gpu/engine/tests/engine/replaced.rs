//! An engine that stopped answering was given up, and its node has another one: the old one comes back late.

use crate::support::Rig;
use gpu_engine::engine::{Engine, Step};
use gpu_engine::word::Ordering;
use gpu_wire::packet;

/// The old engine is in the middle of a queue's work when it stops. It comes back beside its successor, before and
/// behind the successor's work.
#[test]
pub fn an_engine_that_was_given_up_touches_nothing_when_it_comes_back() {
    let mut rig = Rig::new();
    let mut stuck = rig.queue(0, 0);
    let m = rig.map(1, false);
    let store = |offset, value| packet::Store { address: m.at(offset).0, value }.to_packet();
    rig.gpu.faults.wedge_at.store(2, Ordering::Relaxed);
    rig.gpu.faults.arm();
    stuck.submit(&(1..=8).map(|value| store(0, value)).collect::<Vec<_>>());
    let node = &rig.gpu.clone().nodes[0];
    for _ in 0..100 {
        rig.engines[0].step();
    }
    assert!(node.is_wedged());
    let (before, read) = (m.read(0), stuck.read_pointer());
    assert!(before < 8, "{before}");
    // As in the adapter's reset: another engine, and every context from before is lost.
    node.supersede();
    let successor = Engine::successor(rig.gpu.clone(), 0).expect("memory");
    let mut old = std::mem::replace(&mut rig.engines[0], successor);
    rig.gpu.lose_all();
    assert!(!node.is_wedged());
    rig.gpu.faults.release.store(true, Ordering::Release);
    let phase = node.phase();
    let mut comes_back = |rig: &Rig, when: &str| {
        let interrupts = rig.interrupts();
        let flushed = rig.gpu.flush(rig.process.number, 0, 0);
        for _ in 0..100 {
            assert!(matches!(old.step(), Step::Stopped), "{when}");
        }
        assert!(!rig.gpu.flush_done(flushed), "{when}: a flush is served");
        assert_eq!((m.read(0), stuck.read_pointer(), stuck.fault()), (before, read, None), "{when}");
        assert_eq!((node.phase(), node.is_wedged()), (phase, false), "{when}");
        assert_eq!(rig.interrupts(), interrupts, "{when}");
    };
    comes_back(&rig, "before the successor has done anything");
    // The successor has the node.
    let context = rig.context(0);
    rig.gpu.take_in(&context);
    let mut works = rig.queue_of(&context, 1);
    works.submit(&[store(8, 9)]);
    rig.settle();
    assert_eq!((m.read(0), m.read(8)), (before, 9));
    comes_back(&rig, "behind the successor's work");
}
