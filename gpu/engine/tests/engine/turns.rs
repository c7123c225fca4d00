//! Who has the next turn: bands of priority, and in them processes before queues.

use crate::preemption::endless;
use crate::support::{Rig, TestQueue};
use gpu_engine::context::{Context, Process};
use gpu_engine::fence_table::FenceTable;
use gpu_engine::queue::Queue;
use gpu_engine::schedule::Turns;
use gpu_engine::shared::Shared;
use gpu_engine::trace::Event;
use gpu_wire::packet::{Encoded, Privilege};

type Host = crate::support::TestHost;

/// A context of a further process, in the same address space.
fn stranger(rig: &Rig) -> Shared<Context<Host>> {
    let gpu = &rig.gpu;
    let process = Process {
        number: gpu.new_space_id(),
        slot: gpu.slots.allocate(0x2000).unwrap(),
        roots: gpu_engine::address_space::Roots::new(),
        fences: FenceTable::new(),
        privilege: Privilege::User,
        turns: Turns::default(),
    };
    let slot = gpu.slots.allocate(0xC00C).unwrap();
    let context = Context::new(gpu.admit(0).unwrap(), slot, 0, Shared::try_new(process).unwrap());
    context.space.set_root(rig.context.space.root(), gpu.new_space_id());
    Shared::try_new(context).unwrap()
}

/// A queue of `context` that never has enough. Its doorbell is disconnected: it is ready once and for all.
fn greedy(rig: &mut Rig, context: &Shared<Context<Host>>, jump: &Encoded) -> TestQueue {
    let mut queue = rig.queue_of(context, 0);
    queue.submit(core::slice::from_ref(jump));
    queue
}

/// How many of the next `turns` turns of node 0 `queue` has.
fn turns_of(rig: &mut Rig, turns: usize, queue: &Queue<Host>) -> usize {
    for _ in 0..turns {
        rig.engines[0].step();
    }
    let runs: Vec<_> = rig.gpu.nodes[0].trace.last().filter(|(_, event, _)| *event == Event::Run).collect();
    let slot = queue.slot.pack() & ((1 << 56) - 1);
    runs.iter().rev().take(turns).filter(|(_, _, argument)| *argument == slot).count()
}

#[test]
fn processes_have_turns_before_their_queues() {
    let mut rig = Rig::new();
    let m = rig.map(1, false);
    let jump = endless(&mut rig, m.va);
    let many = rig.context(0);
    let _greedy: Vec<_> = (0..5).map(|_| greedy(&mut rig, &many, &jump)).collect();
    let other = stranger(&rig);
    let one = greedy(&mut rig, &other, &jump);
    turns_of(&mut rig, 20, &one.queue);
    let turns = turns_of(&mut rig, 60, &one.queue);
    assert!((28..=32).contains(&turns), "{turns} of 60 turns for one of two processes");
}

#[test]
fn a_higher_band_leaves_the_normal_one_its_share_and_the_idle_one_nothing() {
    for (share, expected) in [(10, 8..=12), (50, 45..=55), (0, 0..=1)] {
        let mut rig = Rig::new();
        let m = rig.map(1, false);
        let jump = endless(&mut rig, m.va);
        let contexts = [0, 1, 2].map(|band| {
            let context = rig.context(0);
            assert!(context.set_band(band) && !context.set_band(4));
            context
        });
        rig.gpu.set_normal_share(share);
        let [idle, normal, focus] = contexts.map(|context| greedy(&mut rig, &context, &jump));
        turns_of(&mut rig, 5, &focus.queue);
        let normals = turns_of(&mut rig, 100, &normal.queue);
        assert!(expected.contains(&normals), "{normals} of 100 turns, with a share of {share}");
        assert_eq!(turns_of(&mut rig, 50, &idle.queue), 0);
        assert!(turns_of(&mut rig, 20, &focus.queue) >= 10);
    }
}

/// A process that comes later has its share from then on, and not what it would have had.
#[test]
fn a_process_that_comes_late_does_not_catch_up() {
    let mut rig = Rig::new();
    let m = rig.map(1, false);
    let jump = endless(&mut rig, m.va);
    let contexts = [rig.context(0), stranger(&rig)];
    let queues = contexts.map(|context| greedy(&mut rig, &context, &jump));
    turns_of(&mut rig, 400, &queues[0].queue);
    let late = stranger(&rig);
    let _late = greedy(&mut rig, &late, &jump);
    let turns = turns_of(&mut rig, 60, &queues[0].queue);
    assert!((18..=22).contains(&turns), "{turns} of 60 turns for one of the two processes that were there");
}

/// What becomes ready in a higher band has the engine at once, and not at the end of a lower one's turn.
#[test]
fn a_higher_band_does_not_wait_for_the_end_of_a_turn() {
    let mut rig = Rig::new();
    let m = rig.map(1, false);
    let jump = endless(&mut rig, m.va);
    let [low, high] = [1, 2].map(|band| {
        let context = rig.context(0);
        assert!(context.set_band(band));
        context
    });
    let mut high = rig.queue_of(&high, 1);
    rig.settle();
    high.publish(&[Encoded::nop(8)]);
    let _low = greedy(&mut rig, &low, &jump);
    let gpu = rig.gpu.clone();
    let ready = high.queue.clone();
    *rig.gpu.host.on_map.lock().unwrap() = Some(Box::new(move || {
        gpu.make_ready(&ready);
    }));
    let packets = || rig.gpu.nodes[0].counters.read().packets;
    let before = packets();
    rig.engines[0].step();
    let ran = packets() - before;
    assert!((1..50).contains(&ran), "{ran} packets of the lower band");
}
