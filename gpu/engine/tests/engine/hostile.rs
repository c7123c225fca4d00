//! What a process can do at the seams: rings that go while a queue waits, devices that are lost in the middle of a
//! signal, resets between two packets, want of memory twice in a row.

use crate::packet_mode::packet_of;
use crate::support::{Rig, log, log_position};
use gpu_engine::address_space::{Root, Roots};
use gpu_engine::context::{Context, Process};
use gpu_engine::engine::Step;
use gpu_engine::fence::Fence;
use gpu_engine::fence_table::FenceTable;
use gpu_engine::node::Control;
use gpu_engine::notice::{CAPACITY, Notice};
use gpu_engine::packet_node::PacketQueue;
use gpu_engine::queue::{Binding, State};
use gpu_engine::schedule::Turns;
use gpu_engine::shared::Shared;
use gpu_engine::word::{Ordering, Word};
use gpu_wire::doorbell::Model;
use gpu_wire::packet::{self, Encoded, FaultKind, Privilege, log_operation::*};

#[test]
fn a_ring_that_goes_takes_its_wait_out_of_the_fence() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let f = rig.fence();
    for _ in 0..3 {
        q.publish(&[Encoded::fence_wait(f.current.va, u64::MAX)]);
        rig.gpu.make_ready(&q.queue);
        rig.settle();
        assert_eq!(f.fence.parked.len(), 1);
        q.queue.bind(None);
        rig.gpu.make_ready(&q.queue);
        rig.settle();
        assert_eq!(f.fence.parked.len(), 0, "the wait stays behind");
        q.wp = 0;
        q.control.word(0).store(0, Ordering::SeqCst);
        q.queue.bind(Some(Binding { ring: q.ring.va, control: q.control.va, geometry: q.geometry }));
    }
}

/// The device is lost between the look whether it is, and the store.
#[test]
fn nothing_is_stored_behind_the_last_value_of_a_lost_device() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let f = rig.fence();
    // The ring and the tables are mapped from here on, and the next mapping is that of CurrentValue.
    q.submit(&[Encoded::nop(8), packet::Store { address: q.progress.va.0, value: 0 }.to_packet()]);
    rig.settle();
    let (fence, word) = (f.fence.clone(), f.current.word(0));
    q.publish(&[Encoded::fence_signal(f.current.va, 5)]);
    q.ring();
    let lost = move || fence.set_always_signaled(Some((&word, u64::MAX)), |_, _| ());
    *rig.gpu.host.on_map.lock().unwrap() = Some(Box::new(lost));
    rig.settle();
    assert_eq!(f.current.read(0), u64::MAX);
}

/// Where the OS wakes by the log, an interrupt follows each entry that a waiter may need, also where a reset came
/// between the signal and its entry.
#[test]
fn an_entry_that_a_reset_parted_from_its_signal_has_an_interrupt_behind_it() {
    let mut rig = Rig::with(Model::Dedicated, true);
    let mut q = rig.queue(0, 0);
    let f = rig.fence();
    f.monitored.word(0).store(0, Ordering::SeqCst);
    rig.settle();
    let gpu = rig.gpu.clone();
    // The store of the value asks for a mapping: then the engine is told to hold.
    *rig.gpu.host.on_map.lock().unwrap() = Some(Box::new(move || gpu.command(0, Control::Hold)));
    q.submit(&[Encoded::fence_signal(f.current.va, 1), log(SIGNAL_EXECUTED, 1, 0)]);
    while rig.engines[0].step() != Step::Held {}
    rig.gpu.command(0, Control::Run);
    rig.settle();
    assert_eq!((f.current.read(0), log_position(q.signals)), (1, (1, 0)));
    let said = rig.drain();
    let named = Notice::FenceSignaled { fence: f.fence.slot, queue: q.queue.slot };
    assert_eq!(said.iter().filter(|(_, notice)| *notice == named).count(), 1, "{said:?}");
}

/// Notices that found no room in the mailbox are over with the others.
#[test]
fn a_reset_forgets_what_the_engine_had_still_to_report_of_packets() {
    let mut rig = Rig::new();
    let gpu = rig.gpu.clone();
    for _ in 0..CAPACITY {
        assert!(gpu.nodes[0].mailbox.push(Notice::SchedulingLog));
    }
    let packet = packet_of(&mut rig, 1, false, &[Encoded::nop(8)]);
    gpu.nodes[0].packets.with(|q| q.submit(packet, &gpu.mutation)).unwrap();
    while rig.engines[0].step() == Step::Worked {}
    gpu.command(0, Control::Hold);
    while rig.engines[0].step() != Step::Held {}
    let (_, gone) = gpu.nodes[0].packets.with(PacketQueue::reset);
    drop(gone);
    gpu.nodes[0].mailbox.forget(Notice::is_of_packets);
    gpu.command(0, Control::Run);
    for _ in 0..2 {
        rig.settle_waiting();
        let said = rig.drain();
        assert!(said.iter().all(|(_, notice)| !notice.is_of_packets()), "{said:?}");
    }
}

/// A reset of a hardware-scheduled engine that a packet hangs ends the packet, says so, and packets run again.
#[test]
fn a_packet_that_a_reset_of_queues_cuts_off_is_reported_and_others_follow() {
    let mut rig = Rig::new();
    let gpu = rig.gpu.clone();
    let code = rig.map(1, false);
    let jump = packet::Indirect { address: code.va.0, length: 24 }.to_packet();
    code.bytes.write(jump.as_bytes());
    let endless = packet_of(&mut rig, 1, false, &[jump]);
    gpu.nodes[0].packets.with(|q| q.submit(endless, &gpu.mutation)).unwrap();
    std::thread::scope(|s| {
        s.spawn(|| while rig.engines[0].step() != Step::Held {});
        while gpu.nodes[0].counters.read().indirects < 1_000 {
            std::thread::yield_now();
        }
        // A preemption that was asked for is answered behind it.
        gpu.nodes[0].packets.with(|q| q.preempt(9));
        gpu.command(0, Control::Hold);
    });
    gpu.command(0, Control::Run);
    rig.settle();
    let said = rig.drain();
    let [(0, Notice::PacketFaulted { fence: 1, .. }), (0, answer)] = said[..] else { panic!("{said:?}") };
    assert_eq!(answer, Notice::PacketPreempted { request: 9, completed: 1 });
    let next = packet_of(&mut rig, 2, false, &[Encoded::nop(8)]);
    gpu.nodes[0].packets.with(|q| q.submit(next, &gpu.mutation)).unwrap();
    rig.settle();
    assert_eq!(rig.drain(), [(0, Notice::PacketCompleted { fence: 2 })]);
}

/// The read pointer reaches user mode although the host lacks memory twice in a row.
#[test]
fn the_read_pointer_is_stored_in_the_end() {
    for round in 0..12 {
        let mut rig = Rig::new();
        let mut q = rig.queue(0, 0);
        let (m, f) = (rig.map(1, false), rig.fence());
        *rig.gpu.host.until_failure.lock().unwrap() = Some(round);
        let gpu = rig.gpu.clone();
        let again = move || *gpu.host.until_failure.lock().unwrap() = Some(0);
        *rig.gpu.host.on_failure.lock().unwrap() = Some(Box::new(again));
        q.submit(&[packet::Store { address: m.va.0, value: 1 }.to_packet(), Encoded::fence_wait(f.current.va, 1)]);
        rig.settle();
        assert_eq!((q.fault(), m.read(0), q.read_pointer()), (None, 1, 24), "round {round}");
    }
}

/// Two processes may have different fences at one address: each signals its own, whoever did so last on the engine.
#[test]
fn a_fence_is_looked_up_in_the_process_that_names_it() {
    let mut rig = Rig::new();
    let f = rig.fence();
    f.monitored.word(0).store(0, Ordering::SeqCst);
    let mut one = rig.queue(0, 0);
    let gpu = rig.gpu.clone();
    let process = Process {
        number: gpu.new_space_id(),
        slot: gpu.slots.allocate(0x2000).unwrap(),
        roots: Roots::new(),
        fences: FenceTable::new(),
        privilege: Privilege::User,
        turns: Turns::default(),
    };
    let process = Shared::try_new(process).unwrap();
    let theirs = gpu.slots.allocate(0xF00F).unwrap();
    let fence = Shared::try_new(Fence::new(theirs, false)).unwrap();
    process.fences.open(f.current.va, f.monitored.va, &fence).unwrap();
    let slot = gpu.slots.allocate(0xC00C).unwrap();
    let context = Context::new(gpu.admit(0).unwrap(), slot, 0, process);
    context.space.set_root(rig.context.space.root(), gpu.new_space_id());
    let mut two = rig.queue_of(&Shared::try_new(context).unwrap(), 1);
    for (value, ours) in [(1, true), (2, false), (3, true), (4, false)] {
        let (queue, slot) = if ours { (&mut one, f.fence.slot) } else { (&mut two, theirs) };
        queue.submit(&[Encoded::fence_signal(f.current.va, value)]);
        let said = Notice::FenceSignaled { fence: slot, queue: queue.queue.slot };
        rig.settle();
        assert_eq!(rig.drain(), [(0, said)], "value {value}");
    }
}

/// A fence that was closed is none, although the engine has used it a moment ago.
#[test]
fn a_closed_fence_is_unknown_at_once() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let f = rig.fence();
    q.submit(&[Encoded::fence_signal(f.current.va, 1)]);
    rig.settle();
    rig.process.fences.close(f.current.va);
    q.submit(&[Encoded::fence_signal(f.current.va, 2)]);
    rig.settle();
    assert_eq!((q.fault(), f.current.read(0)), (Some(FaultKind::UnknownFence), 1));
}

/// The root table has as many entries as the OS says. What stands behind them is not read.
#[test]
fn a_root_ends_where_the_os_says() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let m = rig.map(1, false);
    q.submit(&[packet::Store { address: m.va.0, value: 1 }.to_packet()]);
    rig.settle();
    assert_eq!((q.fault(), m.read(0)), (None, 1));
    let root = rig.context.space.root().unwrap();
    q.queue.context.space.set_root(Some(Root { entries: 0, ..root }), rig.gpu.new_space_id());
    q.submit(&[packet::Store { address: m.va.0, value: 2 }.to_packet()]);
    rig.settle();
    assert_eq!((q.queue.state(), m.read(0)), (State::Stopped, 1));
}
