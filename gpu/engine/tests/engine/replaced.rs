//! An engine that stopped answering was given up, and its node has another one: the old one comes back late.

use crate::packet_mode::packet_of;
use crate::support::Rig;
use gpu_engine::engine::{Engine, Step};
use gpu_engine::word::Ordering;
use gpu_wire::packet::{self, Encoded};
use gpu_wire::pte::{self, Pte};

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
    let successor = Engine::successor(rig.gpu.clone(), 0).expect("memory");
    node.supersede();
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

/// What an engine in a paging buffer had mapped is gone when it stops answering: behind that, flushes count it as done.
#[test]
fn an_engine_that_stops_answering_amid_page_tables_keeps_none_mapped() {
    let mut rig = Rig::new();
    let m = rig.map(1, false);
    let table = Pte::table(rig.leaf_table(&rig.context.clone(), m.va)).unwrap();
    let write = Encoded::table_write(table, pte::index(m.va, 0), [Pte::INVALID]);
    rig.gpu.faults.wedge_at.store(2, Ordering::Relaxed);
    rig.gpu.faults.arm();
    let p = packet_of(&mut rig, 1, true, &[write, write]);
    let node = &rig.gpu.clone().nodes[2];
    node.packets.with(|q| q.submit(p, &rig.gpu.mutation)).unwrap();
    for _ in 0..20 {
        rig.engines[2].step();
    }
    assert!(node.is_wedged());
    assert_eq!(rig.gpu.host.mappings.load(Ordering::Relaxed), 0);
    // Another engine has the node. The old one ends at whatever it is asked for.
    let successor = Engine::successor(rig.gpu.clone(), 2).expect("memory");
    node.supersede();
    let flushed = rig.gpu.flush(rig.process.number, 0, 0);
    let mut old = std::mem::replace(&mut rig.engines[2], successor);
    assert_eq!(old.attend(), Some(Step::Stopped));
    rig.gpu.lose_all();
    rig.settle();
    assert!(rig.gpu.flush_done(flushed));
}

/// What was flushed stays so, whoever has the node.
#[test]
fn a_successor_takes_no_acknowledgement_back() {
    let mut rig = Rig::new();
    for _ in 0..4 {
        rig.gpu.flush(rig.process.number, 0, 0);
    }
    let number = rig.gpu.flush(rig.process.number, 0, 0);
    rig.settle();
    assert!(rig.gpu.flush_done(number));
    rig.engines[0] = Engine::successor(rig.gpu.clone(), 0).expect("memory");
    rig.gpu.nodes[0].supersede();
    for _ in 0..4 {
        rig.gpu.flush(rig.process.number, 0, 0);
        rig.engines[0].step();
        assert!(rig.gpu.flush_done(number), "a flush that was over is under way again");
    }
}
