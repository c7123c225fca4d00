//! What an engine stops doing: it answers no suspension that was taken back or that a reset has ended, watches no queue
//! that is gone, keeps nothing mapped when memory runs short, runs nothing while its reports have no room, and leaves a
//! queue that never ends for others.

use crate::packet_mode::packet_of;
use crate::support::{Rig, TestHost};
use gpu_engine::context::Suspend;
use gpu_engine::engine::{Step, Watched};
use gpu_engine::node::Control;
use gpu_engine::notice::{CAPACITY, Notice};
use gpu_engine::packet_node::PacketQueue;
use gpu_engine::queue::{Queue, Submission};
use gpu_engine::shared::Shared;
use gpu_engine::word::Ordering;
use gpu_wire::GpuVa;
use gpu_wire::packet::{self, Encoded};

/// Leaves no room in the mailbox of node 0.
fn fill_mailbox(rig: &Rig) {
    for _ in 0..CAPACITY {
        assert!(rig.gpu.nodes[0].mailbox.push(Notice::SchedulingLog));
    }
}

/// A context of node 0 is suspended, and the engine has no room for the answer.
fn suspended_without_room(rig: &mut Rig) {
    let q = rig.queue(0, 0);
    rig.settle();
    fill_mailbox(rig);
    assert_eq!(rig.gpu.suspend(&q.queue.context, 1), Suspend::Pending);
    rig.engines[0].step();
}

/// Has the engine of node 0 hold, for its own reset or for that of the adapter.
fn hold(rig: &mut Rig, is_adapter_reset: bool) {
    let gpu = rig.gpu.clone();
    gpu.command(0, Control::Hold);
    while rig.engines[0].step() != Step::Held {}
    if is_adapter_reset {
        gpu.lose_all();
    }
}

fn has_suspension(rig: &Rig) -> bool {
    rig.drain().iter().any(|(_, notice)| matches!(notice, Notice::ContextSuspended { .. }))
}

#[test]
pub fn a_suspension_that_was_taken_back_is_not_answered() {
    let mut rig = Rig::new();
    let q = rig.queue(0, 0);
    rig.settle();
    assert_eq!(rig.gpu.suspend(&q.queue.context, 1), Suspend::Pending);
    assert!(q.queue.context.resume());
    rig.settle();
    assert_eq!(rig.drain(), []);
}

/// The answer to a suspension finds no room, the context is resumed and hangs its engine, and a reset takes it.
#[test]
pub fn a_suspension_of_a_context_that_a_reset_takes_is_not_answered() {
    let mut rig = Rig::without_preemption();
    let mut q = rig.queue(0, 0);
    rig.settle();
    fill_mailbox(&rig);
    assert_eq!(rig.gpu.suspend(&q.queue.context, 1), Suspend::Pending);
    rig.engines[0].step();
    assert!(q.queue.context.resume());
    let code = rig.map(1, false);
    let jump = packet::Indirect { address: code.va.0, length: 24 }.to_packet();
    code.bytes.write(jump.as_bytes());
    q.submit(&[jump]);
    let gpu = rig.gpu.clone();
    std::thread::scope(|s| {
        s.spawn(|| while rig.engines[0].step() != Step::Held {});
        while gpu.nodes[0].counters.read().indirects < 1_000 {
            std::thread::yield_now();
        }
        gpu.command(0, Control::Hold);
    });
    assert!(gpu.nodes[0].take_interrupted().is_some(), "the reset took nothing");
    // It has room now.
    assert!(!has_suspension(&rig));
    gpu.command(0, Control::Run);
    rig.settle();
    assert!(!has_suspension(&rig));
}

/// An adapter reset loses every context: the answer to a suspension that found no room is over.
#[test]
pub fn a_suspension_is_not_answered_behind_an_adapter_reset() {
    for is_adapter_reset in [true, false] {
        let mut rig = Rig::new();
        let gpu = rig.gpu.clone();
        suspended_without_room(&mut rig);
        hold(&mut rig, is_adapter_reset);
        rig.drain();
        gpu.command(0, Control::Run);
        rig.settle();
        // A reset of the engine alone loses no context that is off it.
        assert_eq!(has_suspension(&rig), !is_adapter_reset);
    }
}

/// The reset of an engine is given up, since the engine is late. It comes to hold all the same, with answers for which
/// there was no room, and the reset of the adapter follows: nothing of before is reported behind that.
#[test]
pub fn what_an_engine_held_with_is_over_when_the_adapters_reset_follows() {
    for follows in [true, false] {
        let mut rig = Rig::new();
        let gpu = rig.gpu.clone();
        suspended_without_room(&mut rig);
        hold(&mut rig, false);
        if follows {
            gpu.command(0, Control::Hold);
            assert_eq!(rig.engines[0].step(), Step::Held);
            gpu.lose_all();
        }
        rig.drain();
        gpu.command(0, Control::Run);
        rig.settle();
        assert_eq!(has_suspension(&rig), !follows);
    }
}

/// Packets end, and the mailbox has no room for that. A reset of either kind ends them: the OS counts their fences by
/// itself, and hears of none behind it. What is no packet's is reported.
#[test]
pub fn ends_of_packets_that_had_no_room_are_over_with_a_reset() {
    for is_adapter_reset in [false, true] {
        let mut rig = Rig::new();
        let gpu = rig.gpu.clone();
        let q = rig.queue(0, 0);
        rig.settle();
        fill_mailbox(&rig);
        assert_eq!(gpu.suspend(&q.queue.context, 1), Suspend::Pending);
        for fence in 1..=3 {
            let packet = packet_of(&mut rig, fence, false, &[Encoded::nop(8)]);
            gpu.nodes[0].packets.with(|q| q.submit(packet, &gpu.mutation)).unwrap();
        }
        rig.settle_waiting();
        assert_eq!(gpu.nodes[0].packets.with(|q| q.fences()), (3, 3));
        hold(&mut rig, is_adapter_reset);
        let (aborted, gone) = gpu.nodes[0].packets.with(PacketQueue::reset);
        assert_eq!((aborted, gone.len()), (3, 0));
        // There is room now.
        assert!(rig.drain().iter().all(|(_, notice)| *notice == Notice::SchedulingLog));
        gpu.command(0, Control::Run);
        rig.settle();
        let told: Vec<_> = rig.drain().into_iter().map(|(_, notice)| notice).collect();
        let suspended = Notice::ContextSuspended { context: q.queue.context.slot, fence: 1 };
        assert_eq!(told, if is_adapter_reset { vec![] } else { vec![suspended] });
    }
}

/// However many contexts a node has, the suspensions of all of them may be asked for at once. Those that neither the
/// mailbox nor the engine's list has room for are acknowledged later, and the engine does not sleep before.
#[test]
fn every_context_of_a_node_may_be_suspended_at_once() {
    for count in [40, CAPACITY + 20, CAPACITY + 200] {
        let mut rig = Rig::new();
        let contexts: Vec<_> = (0..count).map(|_| rig.context(0)).collect();
        for (context, fence) in contexts.iter().zip(1..) {
            assert_eq!(rig.gpu.suspend(context, fence), Suspend::Pending);
        }
        let mut told = Vec::new();
        while told.len() < count {
            rig.settle_waiting();
            let now = rig.drain();
            assert!(!now.is_empty(), "{} of {count}", told.len());
            told.extend(now.into_iter().map(|(_, notice)| notice));
            assert_eq!(told.len() == count, rig.engines[0].prepare_sleep(), "{} of {count}", told.len());
        }
        for (context, fence) in contexts.iter().zip(1..) {
            let notice = Notice::ContextSuspended { context: context.slot, fence };
            assert!(told.contains(&notice), "fence {fence}");
        }
    }
}

/// The OS destroys a queue whose doorbell it has disconnected, without a word about the page: the engine looks at its
/// write pointer no more, and may sleep.
#[test]
pub fn a_destroyed_queue_is_not_watched() {
    let mut rig = Rig::new();
    let q = rig.queue(0, 0);
    rig.settle();
    rig.gpu.doorbells.disconnect(0);
    rig.gpu.watch_pointer(&q.queue, 1);
    assert_eq!(rig.engines[0].step(), Step::Idle(Watched::WritePointers));
    rig.gpu.destroy_queue(&q.queue);
    rig.settle();
    assert_eq!(rig.engines[0].step(), Step::Idle(Watched::Nothing));
}

/// An engine that is refused a mapping gives back all that it has, so that others may map.
#[test]
pub fn an_engine_that_is_short_of_memory_keeps_nothing_mapped() {
    const PAGES: u64 = 40;
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let stores: Vec<_> =
        (0..PAGES).map(|_| packet::Store { address: rig.map(1, false).va.0, value: 1 }.to_packet()).collect();
    q.submit(&stores);
    rig.settle();
    let mappings = || rig.gpu.host.mappings.load(Ordering::Relaxed);
    assert!(mappings() >= PAGES, "{} mappings", mappings());
    let last = rig.map(1, false);
    *rig.gpu.host.until_failure.lock().unwrap() = Some(0);
    q.submit(&[packet::Store { address: last.va.0, value: 7 }.to_packet()]);
    rig.settle();
    let mapped = rig.gpu.host.mappings.load(Ordering::Relaxed);
    assert_eq!((last.read(0), rig.gpu.nodes[0].counters.read().starved), (7, 1));
    assert!(mapped < PAGES / 2, "{mapped} mappings");
}

/// Packets complete while the interrupt routine does not come: what waits for room in the mailbox stays below a bound,
/// the rest of the packets wait, and nothing is lost.
#[test]
pub fn an_engine_whose_reports_have_no_room_runs_nothing() {
    // More than may wait, and fewer than there is memory for.
    const PACKETS: u32 = 72;
    let mut rig = Rig::new();
    let gpu = rig.gpu.clone();
    fill_mailbox(&rig);
    for fence in 1..=PACKETS {
        let packet = packet_of(&mut rig, fence, false, &[Encoded::nop(8)]);
        gpu.nodes[0].packets.with(|q| q.submit(packet, &gpu.mutation)).unwrap();
    }
    rig.settle_waiting();
    assert!(gpu.nodes[0].packets.with(|q| q.len()) > 0, "packets run whose ends cannot be reported");
    let mut ended = Vec::new();
    for _ in 0..2 {
        ended.extend(rig.drain().into_iter().filter_map(|(_, notice)| match notice {
            Notice::PacketCompleted { fence } => Some(fence),
            _ => None,
        }));
        rig.settle_waiting();
    }
    ended.extend(rig.drain().into_iter().map(|(_, notice)| match notice {
        Notice::PacketCompleted { fence } => fence,
        other => panic!("{other:?}"),
    }));
    assert_eq!(ended, (1..=PACKETS).collect::<Vec<_>>());
}

/// A kernel-mode queue of context `context`, with `buffers` buffers of `packets` in it.
fn kernel_queue(rig: &mut Rig, packets: &[Encoded], buffers: u64) -> Shared<Queue<TestHost>> {
    let (context, progress) = (rig.context(0), rig.map(1, false));
    let (member, slot) = (rig.gpu.admit(0).unwrap(), rig.gpu.slots.allocate(0xA000).unwrap());
    let queue = Shared::try_new(Queue::new(member, slot, context, false, progress.va, true).unwrap()).unwrap();
    let code = rig.map(1, false);
    let bytes: Vec<u8> = packets.iter().flat_map(|packet| packet.as_bytes().to_vec()).collect();
    code.bytes.write(&bytes);
    for progress in 1..=buffers {
        let submission = Submission { address: code.va, length: bytes.len() as u64, progress, null: false };
        assert!(queue.submit(submission));
    }
    rig.gpu.make_ready(&queue);
    queue
}

/// A kernel-mode queue that has several command buffers comes off between two of them, while another queue waits.
#[test]
pub fn a_kernel_queue_leaves_its_engine_between_two_buffers() {
    let mut rig = Rig::new();
    let (count, other) = (rig.map(1, false), rig.map(1, false));
    let store = |address: GpuVa, value| packet::Store { address: address.0, value }.to_packet();
    let queue = kernel_queue(&mut rig, &[store(count.va, 1)], 8);
    let waits = kernel_queue(&mut rig, &[store(other.va, 1)], 1);
    // Two turns: one of each queue.
    rig.engines[0].step();
    rig.engines[0].step();
    assert_eq!((count.read(0), other.read(0)), (1, 1));
    let consumed = queue.consumed.load(Ordering::Relaxed);
    assert!(consumed < 8, "{consumed} buffers in one turn");
    rig.settle();
    assert_eq!((queue.consumed.load(Ordering::Relaxed), waits.consumed.load(Ordering::Relaxed)), (8, 1));
}
