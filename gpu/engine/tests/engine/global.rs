//! A ring of the global doorbell has every connected queue looked at: in parts, between which the engines look up, by
//! whichever engine is there, and without an end to ringing that could keep it from coming to one.

use crate::preemption::{BOUND, endless};
use crate::support::{Range, Rig, TestQueue};
use crate::turns::{last_owner, owners};
use gpu_engine::context::Properties;
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
    }
    assert_eq!((m.read(8 * 501), done(&m, QUEUES)), (501, 1), "the queue that rang comes first");
    rig.settle();
    assert_eq!(done(&m, QUEUES), QUEUES as usize);
    assert!(most(&rig) <= BOUND, "{} between two looks", most(&rig));
    assert!(rig.engines[0].prepare_sleep());
}

/// An engine that looks for rings sleeps amid no round, whosever queues are left in it; one that looks for none takes
/// no part, and sleeps.
#[test]
fn no_engine_that_looks_for_rings_sleeps_amid_a_round() {
    let mut rig = Rig::with(Model::Global, false);
    let m = rig.map(2, false);
    let _mine = published(&mut rig, 0, 1, m.va);
    let theirs = rig.map(4, false);
    let queues = published(&mut rig, 1, 200, theirs.va);
    queues[7].ring();
    rig.engines[0].step();
    assert!(!rig.engines[0].prepare_sleep(), "it sleeps amid a round");
    assert!(rig.engines[2].prepare_sleep(), "the paging engine waits for rings");
    rig.settle();
    assert_eq!((done(&m, 1), done(&theirs, 200)), (1, 200));
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
    rig.gpu.doorbells.pages(0).unwrap().word(0).unwrap().store(0xFFFF, Ordering::SeqCst);
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

/// What is published behind the place that a round has come to, and rung, is found by the next one.
#[test]
pub(crate) fn a_ring_during_a_round_begins_another() {
    const QUEUES: u64 = 1_000;
    let mut rig = Rig::with(Model::Global, false);
    let m = rig.map(2, false);
    let mut queues = published(&mut rig, 0, QUEUES, m.va);
    // No queue has that number, so that none comes first but the last that was connected.
    let ring = |rig: &Rig| rig.gpu.doorbells.pages(0).unwrap().word(0).unwrap().store(0xFFFF, Ordering::SeqCst);
    ring(&rig);
    while done(&m, QUEUES) == 0 {
        rig.engines[0].step();
    }
    assert_eq!((m.read(8 * QUEUES), done(&m, QUEUES)), (QUEUES, 1), "the round begins at the end");
    queues[999].publish(&[packet::Store { address: m.at(0).0, value: 7 }.to_packet()]);
    ring(&rig);
    rig.settle();
    assert_eq!((m.read(0), done(&m, QUEUES)), (7, QUEUES as usize));
}

/// What is disconnected during a round has it pass none by that stays: some at a time, and more at once than the round
/// has looked at, so that the list ends in front of the place that the round has come to.
#[test]
fn a_round_passes_no_queue_by_while_others_go() {
    const QUEUES: u64 = 400;
    for at_once in [20, 80] {
        let mut rig = Rig::with(Model::Global, false);
        let m = rig.map(2, false);
        let queues = published(&mut rig, 0, QUEUES, m.va);
        // From the front, which the round comes to last, and from the end, which it begins with.
        let gone: Vec<u64> = (0..40).flat_map(|number| [number * 3, QUEUES - 1 - number * 2]).collect();
        queues[250].ring();
        for part in gone.chunks(at_once) {
            rig.engines[0].step();
            for number in part {
                rig.gpu.global.disconnect(queues[*number as usize].queue.slot.pack());
            }
        }
        rig.settle();
        let is_left_out = |number: &u64| !gone.contains(number) && m.read(8 * (number + 1)) != number + 1;
        assert_eq!((0..QUEUES).filter(is_left_out).collect::<Vec<_>>(), [0; 0], "{at_once} at once");
    }
}

/// User mode that rings without an end keeps no queue from being looked at, and takes no more of another's turn than a
/// part of a round in front of it.
#[test]
pub(crate) fn ringing_without_an_end_leaves_no_queue_out() {
    const QUEUES: u64 = 400;
    let mut rig = Rig::with(Model::Global, false);
    let m = rig.map(2, false);
    let queues = published(&mut rig, 0, QUEUES, m.va);
    let mut steps = 0;
    while done(&m, QUEUES) < QUEUES as usize {
        queues[399].ring();
        rig.engines[0].step();
        steps += 1;
        assert!(steps < 2_000, "{} of {QUEUES} ran", done(&m, QUEUES));
    }
    assert!(most(&rig) <= BOUND, "{} between two looks", most(&rig));
}

/// Queues of several contexts that always have work, and that one ring brings, have the engine one after the other, as
/// often as each other and in one order: round robin.
#[test]
pub(crate) fn queues_that_always_have_work_have_turns_one_after_the_other() {
    const CONTEXTS: usize = 3;
    const QUEUES: usize = 2 * CONTEXTS;
    let mut rig = Rig::with(Model::Global, false);
    let m = rig.map(1, false);
    let jump = endless(&mut rig, m.va);
    let mut queues = Vec::new();
    for _ in 0..CONTEXTS {
        let context = rig.context(0);
        // A quantum that is over with each turn.
        let turns = Properties { band: 1, level: 0, priority: 0, quantum: 1, grace_same: 0, grace_lower: 0 };
        assert!(context.set_properties(&rig.gpu.policy, &turns));
        queues.extend([rig.queue_of(&context, 0), rig.queue_of(&context, 0)]);
    }
    rig.settle();
    queues.iter_mut().for_each(|queue| queue.publish(core::slice::from_ref(&jump)));
    queues[4].ring();
    // Until one has had the first turn.
    while m.read(0) == 0 {
        rig.engines[0].step();
    }
    let queues: Vec<_> = queues.iter().collect();
    let mut turns = vec![last_owner(&rig, &queues)];
    turns.extend(owners(&mut rig, 20 * QUEUES - 1, &queues));
    let (round, rest) = turns.split_at(QUEUES);
    assert_eq!((0..QUEUES).find(|queue| !round.contains(queue)), None, "each has a turn in the first round: {round:?}");
    assert_eq!(rest.chunks(QUEUES).find(|next| *next != round), None, "the order is that of the first round");
}
