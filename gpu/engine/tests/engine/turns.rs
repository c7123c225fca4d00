//! Who has the next turn, and for how long: bands of priority, in them processes before queues, and in a process its
//! contexts by priority; quanta, and grace periods (DB-35).

use crate::preemption::endless;
use crate::support::{Rig, TestQueue};
use gpu_engine::context::{Context, Process, Properties};
use gpu_engine::engine::{Engine, Step};
use gpu_engine::fence_table::FenceTable;
use gpu_engine::gpu::Gpu;
use gpu_engine::queue::Queue;
use gpu_engine::schedule::{Times, Turns};
use gpu_engine::shared::Shared;
use gpu_engine::trace::Event;
use gpu_engine::word::{Ordering, Word};
use gpu_wire::packet::{self, Encoded, Privilege};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

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

/// A context of that band, with nothing else of its own.
fn in_band(band: u32) -> Properties {
    Properties { band, level: 0, priority: 0, quantum: 0, grace_same: 0, grace_lower: 0 }
}

/// Whose the last turn of node 0 was: the place of the queue in `queues`.
pub(crate) fn last_owner(rig: &Rig, queues: &[&TestQueue]) -> usize {
    let slot = |queue: &TestQueue| queue.queue.slot.pack() & ((1 << 56) - 1);
    let last = rig.gpu.nodes[0].trace.last().filter(|(_, event, _)| *event == Event::Run).last();
    let (_, _, argument) = last.unwrap();
    queues.iter().position(|queue| slot(queue) == argument).unwrap()
}

/// Whose the next `turns` turns of node 0 are, the oldest first.
pub(crate) fn owners(rig: &mut Rig, turns: usize, queues: &[&TestQueue]) -> Vec<usize> {
    let turn = |_| {
        rig.engines[0].step();
        last_owner(rig, queues)
    };
    (0..turns).map(turn).collect()
}

/// How many turns in a row each has, without the first and the last row.
fn rows(owners: &[usize]) -> Vec<usize> {
    let rows: Vec<_> = owners.chunk_by(|a, b| a == b).map(<[usize]>::len).collect();
    rows[1..rows.len() - 1].to_vec()
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
            assert!(
                context.set_properties(&rig.gpu.policy, &in_band(band))
                    && !context.set_properties(&rig.gpu.policy, &in_band(4))
            );
            context
        });
        rig.gpu.policy.set_share(share);
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
        assert!(context.set_properties(&rig.gpu.policy, &in_band(band)));
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

/// A machine whose clock goes on by 100 µs at each reading, and what stores for ever.
fn timed() -> (Rig, Encoded) {
    let mut rig = Rig::new();
    rig.gpu.host.tick.store(1_000, Ordering::Relaxed);
    let m = rig.map(1, false);
    let jump = endless(&mut rig, m.va);
    (rig, jump)
}

/// 1 ms, in ticks.
const MS: u64 = 10_000;

/// A process has the engine for its quantum while another of the band waits, however many queues either has; so long
/// has a context among those of its process.
#[test]
fn processes_and_contexts_have_their_quanta() {
    for (quantum, turns) in [(0, 1..=1), (2 * MS, 20..=20), (6 * MS, 60..=60)] {
        let (mut rig, jump) = timed();
        rig.gpu.policy.set_times(1, Times { quantum, process_grace: 0, grace: 0 });
        let (many, other) = (rig.context(0), stranger(&rig));
        let queues: Vec<_> = [&many, &many, &other].map(|context| greedy(&mut rig, context, &jump)).into();
        let owners = owners(&mut rig, 1_000, &queues.iter().collect::<Vec<_>>());
        // The two queues of one process are one.
        let processes: Vec<_> = owners.iter().map(|queue| queue / 2).collect();
        let rows = rows(&processes);
        assert!(rows.len() > 10 && rows.iter().all(|row| turns.contains(row)), "{quantum}: {rows:?}");
        let [first, second] = [0, 1].map(|queue| owners.iter().filter(|owner| **owner == queue).count());
        assert!(first.abs_diff(second) <= 60, "{quantum}: {first} and {second} turns of one process");
        let (mut rig, jump) = timed();
        let contexts = [rig.context(0), rig.context(0)];
        for context in &contexts {
            assert!(context.set_properties(&rig.gpu.policy, &Properties { quantum, ..in_band(1) }));
        }
        let queues = contexts.map(|context| greedy(&mut rig, &context, &jump));
        // The process is alone: its own quantum takes no time from another.
        let owners = owners_of(&mut rig, 1_000, &queues);
        let rows = self::rows(&owners);
        assert!(rows.len() > 10 && rows.iter().all(|row| turns.contains(row)), "{quantum}: {rows:?}");
    }
}

fn owners_of(rig: &mut Rig, turns: usize, queues: &[TestQueue]) -> Vec<usize> {
    owners(rig, turns, &queues.iter().collect::<Vec<_>>())
}

/// `queue` becomes ready in the middle of the next turn, when the engine maps something, and the clock has gone on by
/// `ticks`. Returns where the time at which it does will be.
fn arrives(rig: &Rig, queue: &TestQueue, ticks: u64) -> Arc<AtomicU64> {
    let at = Arc::new(AtomicU64::new(0));
    arrives_at(rig.gpu.clone(), ready(rig, queue), ticks, 1, at.clone());
    at
}

/// What brings a queue to its engine.
type Comes = Box<dyn FnOnce() + Send>;

/// `queue` is made ready.
fn ready(rig: &Rig, queue: &TestQueue) -> Comes {
    let (gpu, queue) = (rig.gpu.clone(), queue.queue.clone());
    Box::new(move || {
        gpu.make_ready(&queue);
    })
}

/// Its doorbell rings.
fn ring(_: &Rig, queue: &TestQueue) -> Comes {
    let (page, value) = queue.bell();
    Box::new(move || page.word(0).unwrap().store(value, Ordering::Release))
}

/// What `comes` does happens when the engine maps the page with the number `page` that it may write to, from 1 on.
fn arrives_at(gpu: Shared<Gpu<Host>>, comes: Comes, ticks: u64, page: u32, at: Arc<AtomicU64>) {
    let host = gpu.clone();
    *host.host.on_map.lock().unwrap() = Some(Box::new(move || {
        let writes = gpu.host.asked.lock().unwrap().last().is_some_and(|(_, write)| *write);
        let left = page - u32::from(writes);
        if left != 0 {
            return arrives_at(gpu, comes, ticks, left, at);
        }
        let now = gpu.host.clock.fetch_add(ticks, Ordering::Relaxed) + ticks;
        at.store(now, Ordering::Relaxed);
        comes();
    }));
}

/// A queue of `context` that is ready at the call of [`arrives`], with `packets` in its ring.
fn late(rig: &mut Rig, context: &Shared<Context<Host>>, packets: &[Encoded]) -> TestQueue {
    let mut queue = rig.queue_of(context, 1);
    rig.settle();
    queue.publish(packets);
    queue
}

/// Time for which no other waits is none of a quantum: one that has had the engine alone has its quantum still.
#[test]
fn a_quantum_is_time_for_which_others_wait() {
    let (mut rig, jump) = timed();
    rig.gpu.policy.set_times(1, Times { quantum: 4 * MS, process_grace: 0, grace: 0 });
    let [first, second] = [rig.context(0), stranger(&rig)];
    let second = late(&mut rig, &second, core::slice::from_ref(&jump));
    let first = greedy(&mut rig, &first, &jump);
    arrives(&rig, &second, 100 * MS);
    let turns = owners(&mut rig, 60, &[&first, &second]);
    let row = turns.iter().take_while(|owner| **owner == 0).count();
    assert!((38..=42).contains(&row), "{turns:?}");
}

/// Among the contexts of a process the higher priority goes first for as long as it has work, and a change counts from
/// the next turn on; other processes have their turns all the same. What is beyond -7 to 7 counts as these.
#[test]
fn priorities_in_a_process_are_followed() {
    let (mut rig, jump) = timed();
    let contexts = [rig.context(0), rig.context(0), stranger(&rig)];
    let gpu = rig.gpu.clone();
    let prioritize = |context: &Context<Host>, priority| {
        assert!(context.set_properties(&gpu.policy, &Properties { priority, ..in_band(1) }));
    };
    prioritize(&contexts[0], -1);
    prioritize(&contexts[1], 6);
    prioritize(&contexts[2], -7);
    let queues = [0, 1, 2].map(|at| greedy(&mut rig, &contexts[at], &jump));
    owners_of(&mut rig, 5, &queues);
    let turns = owners_of(&mut rig, 60, &queues);
    let count = |of: usize, turns: &[usize]| turns.iter().filter(|owner| **owner == of).count();
    assert_eq!([0, 1, 2].map(|of| count(of, &turns)), [0, 30, 30]);
    prioritize(&contexts[0], 100);
    owners_of(&mut rig, 5, &queues);
    let turns = owners_of(&mut rig, 60, &queues);
    assert_eq!([0, 1, 2].map(|of| count(of, &turns)), [30, 0, 30]);
    prioritize(&contexts[1], i32::MAX);
    owners_of(&mut rig, 5, &queues);
    let turns = owners_of(&mut rig, 60, &queues);
    assert_eq!([0, 1, 2].map(|of| count(of, &turns)), [15, 15, 30], "both have the highest");
}

/// In the real-time band a higher level goes before a lower one, of whatever process; in any other, levels mean
/// nothing.
#[test]
fn levels_of_the_real_time_band_are_followed() {
    for (band, expected) in [(3, [0, 0, 60]), (2, [20, 20, 20])] {
        let (mut rig, jump) = timed();
        let contexts = [rig.context(0), stranger(&rig), stranger(&rig)];
        for (context, level) in contexts.iter().zip([3, 0, 17]) {
            assert!(context.set_properties(&rig.gpu.policy, &Properties { level, ..in_band(band) }));
        }
        let queues = contexts.map(|context| greedy(&mut rig, &context, &jump));
        owners_of(&mut rig, 5, &queues);
        let turns = owners_of(&mut rig, 60, &queues);
        let count = |of: usize| turns.iter().filter(|owner| **owner == of).count();
        assert_eq!([0, 1, 2].map(count), expected, "band {band}");
    }
}

/// `high` becomes ready in the middle of the first turn of `low`. For how long `low` has the engine from then on, by
/// the clock.
fn until_preempted(rig: &mut Rig, high: &TestQueue, low: &TestQueue) -> u64 {
    let comes = ready(rig, high);
    until_preempted_by(rig, comes, high, low)
}

/// The same, when it comes otherwise.
fn until_preempted_by(rig: &mut Rig, comes: Comes, high: &TestQueue, low: &TestQueue) -> u64 {
    // Behind control page, ring and command buffer: in the midst of it.
    let arrived = Arc::new(AtomicU64::new(0));
    arrives_at(rig.gpu.clone(), comes, 0, 4, arrived.clone());
    for _ in 0..1_000 {
        if owners(rig, 1, &[high, low]) == [0] {
            return rig.gpu.host.clock.load(Ordering::Relaxed) - arrived.load(Ordering::Relaxed);
        }
    }
    panic!("it is never preempted");
}

/// A doorbell is looked at between two turns: what it cuts off amid its work has its grace period all the same.
#[test]
fn what_a_ring_cuts_off_has_its_grace_period() {
    const GRACE: u64 = 5 * MS;
    for (grace, least, most) in [(0, 0, MS), (GRACE, GRACE, GRACE + MS)] {
        for is_higher in [true, false] {
            let (mut rig, jump) = timed();
            rig.gpu.policy.set_times(1, Times { quantum: 0, process_grace: grace, grace: 0 });
            rig.gpu.policy.set_times(2, Times { quantum: 0, process_grace: 0, grace });
            let (coming, context) = (stranger(&rig), rig.context(0));
            assert!(coming.set_properties(&rig.gpu.policy, &in_band(if is_higher { 2 } else { 1 })));
            let coming = late(&mut rig, &coming, &[Encoded::nop(8)]);
            let cut_off = greedy(&mut rig, &context, &jump);
            let comes = ring(&rig, &coming);
            let took = until_preempted_by(&mut rig, comes, &coming, &cut_off);
            assert!((least..=most).contains(&took), "higher {is_higher}: {took} for a grace period of {grace}");
        }
    }
}

/// An engine that takes another's place counts the turns of processes anew: one that the other served for long has its
/// share all the same.
#[test]
fn a_successor_serves_processes_that_were_served_before() {
    let mut rig = Rig::new();
    let m = rig.map(1, false);
    let jump = endless(&mut rig, m.va);
    let (long, short) = (rig.context(0), stranger(&rig));
    let mut first = rig.queue_of(&long, 0);
    for _ in 0..500 {
        first.submit(&[Encoded::nop(8)]);
        rig.settle();
    }
    rig.engines[0] = Engine::successor(rig.gpu.clone(), 0).unwrap();
    rig.gpu.nodes[0].supersede();
    let queues = [greedy(&mut rig, &long, &jump), greedy(&mut rig, &short, &jump)];
    turns_of(&mut rig, 5, &queues[0].queue);
    let turns = turns_of(&mut rig, 60, &queues[0].queue);
    assert!((28..=32).contains(&turns), "{turns} of 60 turns");
}

/// Places in line are given anew where they change: not for another node's contexts, nor for properties that say
/// nothing of places, or nothing new.
#[test]
fn places_in_line_are_given_anew_where_they_change() {
    let (mut rig, jump) = timed();
    let contexts = [0; 40].map(|node| rig.context(node));
    let queues = contexts.each_ref().map(|context| greedy(&mut rig, context, &jump));
    let elsewhere = rig.context(1);
    turns_of(&mut rig, 50, &queues[0].queue);
    let packets = || queues.iter().map(|queue| queue.queue.packets.load(Ordering::Relaxed)).sum::<u64>();
    // With so many queues to put in line a step gives none a turn.
    let mut has_turn = |context: &Context<Host>, properties: Properties| {
        assert!(context.set_properties(&rig.gpu.policy, &properties));
        let before = packets();
        rig.engines[0].step();
        packets() != before
    };
    assert!(has_turn(&elsewhere, Properties { priority: 3, ..in_band(1) }));
    assert!(has_turn(&contexts[0], Properties { quantum: 1, grace_same: 1, grace_lower: 1, ..in_band(1) }));
    assert!(!has_turn(&contexts[0], Properties { priority: 1, ..in_band(1) }));
}

/// A stream that is between two packets of its ring has come to an end: whoever it gives way to runs at once, and not
/// behind a grace period in which nobody runs.
#[test]
fn a_stream_between_two_packets_has_no_grace_period() {
    let (mut rig, _) = timed();
    rig.gpu.policy.set_times(2, Times { quantum: 0, process_grace: 0, grace: 1_000 * MS });
    let (focus, normal) = (rig.context(0), stranger(&rig));
    assert!(focus.set_properties(&rig.gpu.policy, &in_band(2)));
    let high = late(&mut rig, &focus, &[Encoded::nop(8)]);
    let mut low = rig.queue_of(&normal, 0);
    let m = rig.map(1, false);
    let arrived = Arc::new(AtomicU64::new(0));
    // It arrives while the first packet is executed. No two of these are executed between two looks.
    arrives_at(rig.gpu.clone(), ready(&rig, &high), 0, 1, arrived.clone());
    low.submit(&vec![packet::Timestamp { address: m.va.0 }.to_packet(); 100]);
    let mut turns = 0;
    while high.queue.packets.load(Ordering::Relaxed) == 0 {
        rig.engines[0].step();
        turns += 1;
        assert!(turns < 10, "nobody runs");
    }
    assert_ne!(arrived.load(Ordering::Relaxed), 0);
    assert!(low.queue.packets.load(Ordering::Relaxed) < 100, "it never gave way");
    rig.settle();
    assert_eq!(low.queue.packets.load(Ordering::Relaxed), 100);
}

/// What must give way to a higher band, a process or a context has the grace period of that to come to an end; then it
/// comes off wherever it is. It has none where it is between two command buffers.
#[test]
fn what_gives_way_has_its_grace_period() {
    const GRACE: u64 = 5 * MS;
    let band = |grace| Times { quantum: 0, process_grace: 0, grace };
    for (grace, least, most) in [(0, 0, MS), (GRACE, GRACE, GRACE + MS)] {
        // A band.
        let (mut rig, jump) = timed();
        rig.gpu.policy.set_times(2, band(grace));
        let (focus, normal) = (rig.context(0), stranger(&rig));
        assert!(focus.set_properties(&rig.gpu.policy, &in_band(2)));
        let high = late(&mut rig, &focus, &[Encoded::nop(8)]);
        let low = greedy(&mut rig, &normal, &jump);
        let took = until_preempted(&mut rig, &high, &low);
        assert!((least..=most).contains(&took), "{took} for a grace period of {grace} of the band");
        // A higher priority in a process.
        let (mut rig, jump) = timed();
        let [lower, higher] = [rig.context(0), rig.context(0)];
        assert!(higher.set_properties(&rig.gpu.policy, &Properties { priority: 1, grace_lower: grace, ..in_band(1) }));
        let high = late(&mut rig, &higher, &[Encoded::nop(8)]);
        let low = greedy(&mut rig, &lower, &jump);
        let took = until_preempted(&mut rig, &high, &low);
        assert!((least..=most).contains(&took), "{took} for a grace period of {grace} of a lower priority");
        // A higher level of the real-time band.
        let (mut rig, jump) = timed();
        rig.gpu.policy.set_times(3, Times { quantum: 100 * MS, process_grace: grace, grace: 0 });
        let [lower, higher] = [rig.context(0), stranger(&rig)];
        assert!(lower.set_properties(&rig.gpu.policy, &in_band(3)));
        assert!(higher.set_properties(&rig.gpu.policy, &Properties { level: 1, ..in_band(3) }));
        let high = late(&mut rig, &higher, &[Encoded::nop(8)]);
        let low = greedy(&mut rig, &lower, &jump);
        let took = until_preempted(&mut rig, &high, &low);
        assert!((least..=most).contains(&took), "{took} for a grace period of {grace} of a lower level");
        // Another process, and another context, behind the quantum.
        for is_process in [true, false] {
            const QUANTUM: u64 = 3 * MS;
            let (mut rig, jump) = timed();
            rig.gpu.policy.set_times(1, Times { quantum: QUANTUM, process_grace: grace, grace: 0 });
            let other = if is_process { stranger(&rig) } else { rig.context(0) };
            let contexts = [rig.context(0), other];
            let properties = Properties { quantum: QUANTUM, grace_same: grace, ..in_band(1) };
            for context in &contexts {
                assert!(context.set_properties(&rig.gpu.policy, &properties));
            }
            let other = late(&mut rig, &contexts[1], &[Encoded::nop(8)]);
            let first = greedy(&mut rig, &contexts[0], &jump);
            let took = until_preempted(&mut rig, &other, &first);
            // A part of the time passes between the turns, in which no queue has the engine.
            let expected = QUANTUM + least..=2 * QUANTUM + most;
            assert!(expected.contains(&took), "process {is_process}: {took} for a grace period of {grace}");
        }
        // Without a quantum there is one turn in front of it.
        for is_process in [true, false] {
            let (mut rig, jump) = timed();
            rig.gpu.policy.set_times(1, Times { quantum: 0, process_grace: grace, grace: 0 });
            let other = if is_process { stranger(&rig) } else { rig.context(0) };
            let contexts = [rig.context(0), other];
            for context in &contexts {
                assert!(context.set_properties(&rig.gpu.policy, &Properties { grace_same: grace, ..in_band(1) }));
            }
            let queues = contexts.map(|context| greedy(&mut rig, &context, &jump));
            let rows = rows(&owners_of(&mut rig, 300, &queues));
            // The time passes in one more turn: while it is waited for, the clock is looked at before each packet.
            let expected = if grace == 0 { 1..=1 } else { 2..=2 };
            assert!(rows.iter().all(|row| expected.contains(row)), "process {is_process}: {rows:?}");
        }
    }
    // A ring of packets, without a command buffer, comes off at once.
    let (mut rig, _) = timed();
    rig.gpu.policy.set_times(2, band(GRACE));
    let (focus, normal) = (rig.context(0), stranger(&rig));
    assert!(focus.set_properties(&rig.gpu.policy, &in_band(2)));
    let mut low = rig.queue_of(&normal, 0);
    let (high, to) = (late(&mut rig, &focus, &[Encoded::nop(8)]), rig.map(2, false));
    // When the first store maps its page.
    arrives(&rig, &high, 0);
    low.submit(&[0, 4096].map(|at| gpu_wire::packet::Store { address: to.at(at).0, value: 1 }.to_packet()));
    rig.engines[0].step();
    assert_eq!((to.read(0), to.read(4096)), (1, 0));
}

/// A turn that the normal band has by its share is whole, whatever comes meanwhile.
#[test]
fn a_turn_by_share_is_not_cut_short() {
    let (mut rig, jump) = timed();
    rig.gpu.policy.set_share(50);
    let [idle, normal, focus] = [0, 1, 2].map(|band| {
        let context = rig.context(0);
        assert!(context.set_properties(&rig.gpu.policy, &in_band(band)));
        context
    });
    let idle = late(&mut rig, &idle, &[Encoded::nop(8)]);
    let [normal, focus] = [normal, focus].map(|context| greedy(&mut rig, &context, &jump));
    assert_eq!(owners(&mut rig, 1, &[&normal, &focus]), [1]);
    arrives(&rig, &idle, 0);
    let packets = |rig: &Rig| rig.gpu.nodes[0].counters.read().packets;
    let before = packets(&rig);
    assert_eq!(owners(&mut rig, 1, &[&normal, &focus]), [0]);
    assert!(packets(&rig) - before > 3_000, "{} packets", packets(&rig) - before);
}

/// The normal band has had a turn by its share. When its queue then rings and is the only one, its turn is none by
/// share: what becomes ready in a higher band has the engine at once.
#[test]
fn a_turn_of_the_queue_that_rang_alone_is_not_by_share() {
    let (mut rig, jump) = timed();
    rig.gpu.policy.set_share(50);
    let [normal, focus] = [1, 2].map(|band| {
        let context = rig.context(0);
        assert!(context.set_properties(&rig.gpu.policy, &in_band(band)));
        context
    });
    let to = rig.map(1, false);
    let mut low = rig.queue_of(&normal, 1);
    rig.settle();
    let high = greedy(&mut rig, &focus, &jump);
    low.submit(&[Encoded::nop(8)]);
    while owners(&mut rig, 1, &[&low, &high]) != [0] {}
    rig.gpu.suspend(&focus, 1);
    // The suspended queue leaves the list, and the other one is looked at.
    rig.engines[0].step();
    rig.engines[0].step();
    assert!(focus.resume());
    arrives(&rig, &high, 0);
    let store = gpu_wire::packet::Store { address: to.va.0, value: 1 }.to_packet();
    low.submit(&[store, jump]);
    let packets = |rig: &Rig| rig.gpu.nodes[0].counters.read().packets;
    let before = packets(&rig);
    assert_eq!(owners(&mut rig, 1, &[&low, &high]), [0]);
    let ran = packets(&rig) - before;
    assert!((1..50).contains(&ran), "{ran} packets of the lower band");
    assert_eq!(owners(&mut rig, 1, &[&low, &high]), [1]);
}

/// Where two queues wait for one to give way, it has the shorter of their grace periods, whichever came first.
#[test]
fn the_shorter_of_two_grace_periods_counts() {
    const LONG: u64 = 40 * MS;
    const SHORT: u64 = 4 * MS;
    for (first, second) in [(LONG, SHORT), (SHORT, LONG)] {
        let (mut rig, jump) = timed();
        // The second one has the higher band.
        let [first, second] = [(2, first), (3, second)].map(|(band, grace)| {
            rig.gpu.policy.set_times(band, Times { quantum: 0, process_grace: 0, grace });
            let context = stranger(&rig);
            // CAST: a band.
            assert!(context.set_properties(&rig.gpu.policy, &in_band(band as u32)));
            late(&mut rig, &context, &[Encoded::nop(8)])
        });
        // A command buffer that stores to two pages, and then for ever. Ring and buffer are mapped already.
        let (to, code) = (rig.map(2, false), rig.map(1, false));
        let store = |at| gpu_wire::packet::Store { address: to.at(at).0, value: 1 }.to_packet();
        let packets = [Encoded::nop(8), store(0), store(4096), jump];
        let bytes: Vec<u8> = packets.iter().flat_map(|packet| packet.as_bytes().to_vec()).collect();
        code.bytes.write(&bytes);
        let part = |from: u64, to: u64| {
            gpu_wire::packet::Indirect { address: code.va.0 + from, length: to - from }.to_packet()
        };
        let normal = stranger(&rig);
        let mut low = rig.queue_of(&normal, 0);
        low.submit(&[part(0, 8)]);
        rig.settle();
        low.publish(&[part(8, bytes.len() as u64)]);
        rig.gpu.make_ready(&low.queue);
        // The first one comes when the first page is mapped, the second one at the next.
        let (gpu, one, other) = (rig.gpu.clone(), first.queue.clone(), second.queue.clone());
        let begun = Arc::new(AtomicU64::new(0));
        let arrived = begun.clone();
        *rig.gpu.host.on_map.lock().unwrap() = Some(Box::new(move || {
            arrived.store(gpu.host.clock.load(Ordering::Relaxed), Ordering::Relaxed);
            gpu.make_ready(&one);
            let host = gpu.clone();
            let next = Box::new(move || {
                gpu.make_ready(&other);
            });
            *host.host.on_map.lock().unwrap() = Some(next);
        }));
        let mut took = 0;
        while owners(&mut rig, 1, &[&low, &first, &second]) == [0] {
            took = rig.gpu.host.clock.load(Ordering::Relaxed) - begun.load(Ordering::Relaxed);
        }
        assert!((SHORT..=2 * SHORT).contains(&took), "{took}");
    }
}

/// Priorities change while many queues are ready: each has its place anew, some between two looks, and none is lost.
#[test]
fn new_places_in_line_are_given_in_parts() {
    const QUEUES: u64 = 1_000;
    let mut rig = Rig::new();
    let context = rig.context(0);
    let queues: Vec<_> = (0..QUEUES).map(|_| rig.queue_of(&context, 0)).collect();
    rig.settle();
    queues.iter().for_each(|queue| rig.gpu.make_ready(&queue.queue));
    // Taken in, and few of them have had a turn.
    let mut steps = 0;
    while steps < QUEUES / 8 {
        rig.engines[0].step();
        steps += 1;
    }
    let most = |rig: &Rig| rig.gpu.nodes[0].counters.most_between_looks.swap(0, Ordering::Relaxed);
    most(&rig);
    for band in [2, 0, 1] {
        assert!(context.set_properties(&rig.gpu.policy, &in_band(band)));
        rig.engines[0].step();
        assert!(!rig.engines[0].prepare_sleep());
        rig.settle();
        queues.iter().for_each(|queue| rig.gpu.make_ready(&queue.queue));
        (0..QUEUES / 16).for_each(|_| assert_ne!(rig.engines[0].step(), Step::Stopped));
    }
    let most = most(&rig);
    assert!((32 * 1024..=crate::preemption::BOUND).contains(&most), "{most} between two looks");
}
