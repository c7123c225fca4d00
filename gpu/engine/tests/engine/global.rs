//! A ring of the global doorbell has every connected queue looked at: in parts, between which the engines look up, by
//! whichever engine is there, and without an end to ringing that could keep it from coming to one.

use crate::preemption::BOUND;
use crate::support::{Range, Rig, TestQueue};
use gpu_engine::engine::Step;
use gpu_engine::node::Control;
use gpu_engine::word::{Ordering, Word};
use gpu_wire::GpuVa;
use gpu_wire::doorbell::Model;
use gpu_wire::packet;

/// Connected queues of `node`, idle, and each with the store of its number to the word at `to` published, not rung.
fn published(rig: &mut Rig, node: usize, count: u64, to: GpuVa) -> Vec<TestQueue> {
    let context = rig.context(node);
    let mut queues: Vec<_> = (0..count).map(|_| rig.queue_of(&context, 0)).collect();
    rig.settle();
    for (number, queue) in (1..).zip(&mut queues) {
        queue.publish(&[packet::Store { address: to.0 + 8 * number, value: number }.to_packet()]);
    }
    queues
}

/// How many of `count` such queues have run.
fn done(to: &Range, count: u64) -> usize {
    (1..=count).filter(|number| to.read(8 * number) == *number).count()
}

fn most(rig: &Rig) -> u64 {
    rig.gpu.nodes[0].counters.read().most_between_looks
}

/// One ring brings a thousand queues: 64 are made ready between two looks, the one that rang first.
#[test]
fn a_ring_has_the_connected_queues_looked_at_by_and_by() {
    const QUEUES: u64 = 1_000;
    let mut rig = Rig::with(Model::Global, false);
    let m = rig.map(2, false);
    let queues = published(&mut rig, 0, QUEUES, m.va);
    let counters = &rig.gpu.nodes[0].counters;
    counters.most_between_looks.store(0, Ordering::Relaxed);
    queues[500].ring();
    while done(&m, QUEUES) == 0 {
        rig.engines[0].step();
        assert!(!rig.engines[0].prepare_sleep(), "it sleeps amid a round");
    }
    assert_eq!((m.read(8 * 501), done(&m, QUEUES)), (501, 1), "the queue that rang comes first");
    rig.settle();
    assert_eq!(done(&m, QUEUES), QUEUES as usize);
    assert!(most(&rig) <= BOUND, "{} between two looks", most(&rig));
    assert!(rig.engines[0].prepare_sleep());
}

/// An engine takes the ring and is held by a reset before the round is over: the other one goes on with it.
#[test]
fn a_held_engine_keeps_no_ring_from_the_others() {
    let mut rig = Rig::with(Model::Global, false);
    let m = rig.map(2, false);
    // Those of node 1 are connected first: the round comes to them last.
    let theirs = published(&mut rig, 1, 100, m.va);
    let own = rig.map(4, false);
    let _mine = published(&mut rig, 0, 300, own.va);
    assert!(rig.engines[1].prepare_sleep());
    let kicks = rig.gpu.host.kicks.load(Ordering::Relaxed);
    // No queue has that number, so that none comes first.
    rig.gpu.doorbells.page(0).unwrap().word(0).unwrap().store(0xFFFF, Ordering::SeqCst);
    rig.engines[0].step();
    assert_eq!(done(&m, 100), 0);
    assert!(rig.gpu.host.kicks.load(Ordering::Relaxed) > kicks, "the other engine is woken");
    rig.gpu.command(0, Control::Hold);
    while rig.engines[0].step() != Step::Held {}
    while matches!(rig.engines[1].step(), Step::Worked) {}
    assert_eq!(done(&m, 100), 100);
    assert_eq!(rig.gpu.nodes[0].control(), Control::Hold);
    drop(theirs);
}

/// User mode that rings without an end keeps no queue from being looked at; and what is disconnected meanwhile makes
/// the round pass none by.
#[test]
fn ringing_without_an_end_leaves_no_queue_out() {
    const QUEUES: u64 = 400;
    let mut rig = Rig::with(Model::Global, false);
    let m = rig.map(2, false);
    let queues = published(&mut rig, 0, QUEUES, m.va);
    let gone: Vec<_> = queues.iter().step_by(7).map(|queue| queue.queue.slot.pack()).collect();
    let mut steps = 0;
    while done(&m, QUEUES) + gone.len() < QUEUES as usize {
        queues[399].ring();
        if let Some(place) = gone.get(steps) {
            rig.gpu.global.disconnect(*place);
        }
        rig.engines[0].step();
        steps += 1;
        assert!(steps < 2_000, "{} of {QUEUES} ran", done(&m, QUEUES));
    }
}
