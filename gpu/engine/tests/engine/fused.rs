//! Packets that carry their log entry: what they do is what the operation and the LOG behind it do.

use crate::packet_mode::packet_of;
use crate::support::{Rig, TestQueue, log, log_entry, log_position};
use gpu_engine::notice::Notice;
use gpu_engine::queue::State;
use gpu_engine::word::{Ordering, Word};
use gpu_wire::doorbell::Model;
use gpu_wire::packet::log_operation::{SIGNAL_EXECUTED, WAIT_UNBLOCKED};
use gpu_wire::packet::{Encoded, FaultKind, FenceLogged, Indirect, Progress};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What is told of a queue that has waited for 1 and signaled 2 and 3: its logs, the fence, the notices.
type Told = (Vec<[u64; 2]>, Vec<[u64; 2]>, u64, usize);

/// Plays the same with packets of either kind.
fn told(fused: bool, names_queues: bool) -> Told {
    let mut rig = Rig::with(Model::Dedicated, names_queues);
    let mut q = rig.queue(0, 0);
    let f = rig.fence();
    f.monitored.word(0).store(1, Ordering::SeqCst);
    f.current.word(0).store(1, Ordering::SeqCst);
    let logged = |value, index_hint| FenceLogged { fence: f.current.va.0, value, fence_handle: 0x40, index_hint };
    let packets = match fused {
        true => vec![Encoded::fence_wait_logged(logged(1, 0)), logged(2, 0).to_packet(), logged(3, 1).to_packet()],
        false => vec![
            Encoded::fence_wait(f.current.va, 1),
            log(WAIT_UNBLOCKED, 1, 0),
            Encoded::fence_signal(f.current.va, 2),
            log(SIGNAL_EXECUTED, 2, 0),
            Encoded::fence_signal(f.current.va, 3),
            log(SIGNAL_EXECUTED, 3, 1),
        ],
    };
    q.submit(&packets);
    rig.settle();
    assert_eq!(q.queue.state(), State::Active);
    let entries = |log, count: u32| (0..count).map(|i| [0, 1].map(|word| log_entry(log, i.into())[word])).collect();
    let (waits, signals) = (log_position(q.waits).0, log_position(q.signals).0);
    (entries(q.waits, waits), entries(q.signals, signals), f.current.read(0), rig.drain().len())
}

#[test]
fn both_forms_do_the_same() {
    for names_queues in [false, true] {
        let told = [true, false].map(|fused| told(fused, names_queues));
        assert_eq!(told[0], told[1]);
        assert_eq!((told[0].0.len(), told[0].1.len(), told[0].2), (1, 2, 3));
    }
}

/// A wait that is not met parks the queue; its entry is written when it is over, with the times of both ends.
#[test]
fn the_entry_of_a_wait_comes_when_it_is_over() {
    let mut rig = Rig::new();
    let (mut waiter, mut signaler) = (rig.queue(0, 0), rig.queue(1, 1));
    let f = rig.fence();
    let wait = FenceLogged { fence: f.current.va.0, value: 5, fence_handle: 0x40, index_hint: 0 };
    waiter
        .submit(&[Encoded::fence_wait_logged(wait), Progress { value: 1, fence_handle: 7, index_hint: 0 }.to_packet()]);
    rig.settle();
    assert_eq!((log_position(waiter.waits), log_position(waiter.signals)), ((0, 0), (0, 0)));
    signaler.submit(&[FenceLogged { value: 5, ..wait }.to_packet()]);
    rig.settle();
    let [value, _, observed, end] = log_entry(waiter.waits, 0);
    assert_eq!((value, log_position(waiter.waits)), (5, (1, 0)));
    assert!(observed != 0 && observed < end, "seen at {observed}, over at {end}");
    assert_eq!((waiter.progress.read(0), log_entry(waiter.signals, 0)[0]), (1, 1));
}

/// Wherever the turn ends, no interrupt is ahead of the entry in the same packet.
#[test]
pub(crate) fn no_interrupt_is_ahead_of_its_own_entry() {
    let mut rig = Rig::with(Model::Dedicated, true);
    let mut q = rig.queue(0, 0);
    let f = rig.fence();
    f.monitored.word(0).store(0, Ordering::SeqCst);
    rig.settle();
    for value in 1..=20 {
        q.submit(&[FenceLogged { fence: f.current.va.0, value, fence_handle: 0x40, index_hint: 0 }.to_packet()]);
        rig.settle();
        let named = Notice::FenceSignaled { fence: f.fence.slot, queue: q.queue.slot };
        assert_eq!(rig.drain(), [(0, named)], "the log that the interrupt names tells of the signal");
        assert_eq!(log_position(q.signals).0, value as u32);
    }
}

/// The values of a progress fence that its queue's log lacks at the moment of an interrupt for it, at most, for a
/// signal of each of `values` and its LOG behind `before` packets. No native fence is open at its address. `happens`
/// when the engine maps the fence, in the middle of the first signal.
fn lacks(before: usize, values: u32, happens: impl FnOnce(&Rig, &TestQueue)) -> u64 {
    let mut rig = Rig::new();
    let (mut q, code) = (rig.queue(0, 0), rig.map(12, false));
    let (progress, signals, gpu) = (q.progress, q.signals, rig.gpu.clone());
    let most = Arc::new(AtomicU64::new(0));
    let lacks = most.clone();
    *rig.gpu.host.on_interrupt.lock().unwrap() = Some(Box::new(move || {
        gpu.drain(0, |notice| {
            if matches!(notice, Notice::FencesSignaled) {
                let lacking = progress.read(0) - u64::from(log_position(signals).0);
                lacks.fetch_max(lacking, Ordering::SeqCst);
            }
        });
    }));
    let mut packets = vec![Encoded::nop(8); before];
    for value in 1..=values {
        packets.push(Encoded::fence_signal(q.queue.progress, value.into()));
        packets.push(log(SIGNAL_EXECUTED, value.into(), value - 1));
    }
    let bytes: Vec<u8> = packets.iter().flat_map(|packet| packet.as_bytes().to_vec()).collect();
    // All but the fence is mapped.
    q.submit(&[Indirect { address: code.va.0, length: 8 }.to_packet()]);
    code.bytes.write(Encoded::nop(8).as_bytes());
    rig.settle();
    code.bytes.write(&bytes);
    happens(&rig, &q);
    q.submit(&[Indirect { address: code.va.0, length: bytes.len() as u64 }.to_packet()]);
    rig.settle();
    assert!(q.queue.context.resume());
    rig.gpu.make_ready(&q.queue);
    rig.settle();
    let told = (q.progress.read(0), u64::from(log_position(q.signals).0), q.fault());
    assert_eq!(told, (values.into(), values.into(), None));
    assert!(rig.interrupts() > 0);
    most.load(Ordering::SeqCst)
}

/// The same of a progress fence that was never opened: wherever the turn ends and whatever asks for the engine, its LOG
/// is written before the interrupt that the signal brings about.
#[test]
pub(crate) fn no_interrupt_is_ahead_of_the_log_of_a_plain_signal() {
    // A turn is some 4096 packets long, less what was mapped.
    for before in (0..3).chain(3950..3990) {
        assert_eq!(lacks(before, 3, |_, _| ()), 0, "behind {before} packets");
    }
    let suspended = lacks(0, 2, |rig, q| {
        let (gpu, context) = (rig.gpu.clone(), q.queue.context.clone());
        *rig.gpu.host.on_map.lock().unwrap() = Some(Box::new(move || {
            gpu.suspend(&context, 1);
        }));
    });
    assert_eq!(suspended, 0, "with a suspension");
}

/// A queue that begins to wait behind a signal of its progress fence has told of the signal before: the answer of who
/// is told ends the wait before the queue parks, and finds the entry.
#[test]
fn what_was_signaled_is_told_before_a_wait_begins() {
    let mut rig = Rig::new();
    let (mut q, f) = (rig.queue(0, 0), rig.fence());
    q.submit(&[Encoded::fence_signal(q.queue.progress, 0), Encoded::fence_wait(f.current.va, 0)]);
    rig.settle();
    let before = rig.gpu.nodes[0].counters.read();
    let (signals, entries) = (q.signals, Arc::new(AtomicU64::new(0)));
    let seen = entries.clone();
    *rig.gpu.host.on_interrupt.lock().unwrap() = Some(Box::new(move || {
        seen.store(log_position(signals).0.into(), Ordering::SeqCst);
        f.current.word(0).store(1, Ordering::SeqCst);
    }));
    rig.drain();
    q.submit(&[
        Encoded::fence_signal(q.queue.progress, 1),
        log(SIGNAL_EXECUTED, 1, 0),
        Encoded::fence_wait(f.current.va, 1),
    ]);
    rig.settle();
    let after = rig.gpu.nodes[0].counters.read();
    assert_eq!((after.waits_parked - before.waits_parked, after.waits_met - before.waits_met), (0, 1));
    assert_eq!((entries.load(Ordering::SeqCst), q.read_pointer()), (1, q.wp));
}

/// A fence that is none, and an address that is not aligned: no entry is written.
#[test]
fn what_faults_leaves_no_entry() {
    for fence in [0x7000_0000, 4] {
        let mut rig = Rig::new();
        let mut q = rig.queue(0, 0);
        rig.settle();
        q.submit(&[FenceLogged { fence, value: 1, fence_handle: 0x40, index_hint: 0 }.to_packet()]);
        rig.settle();
        assert_eq!((q.queue.state(), log_position(q.signals)), (State::Stopped, (0, 0)));
        let notices = rig.drain();
        let faulted = |notice: &(usize, Notice)| match notice.1 {
            Notice::QueueFaulted { fault, .. } => matches!(fault.kind, FaultKind::UnknownFence | FaultKind::BadOperand),
            _ => false,
        };
        assert!(notices.iter().any(faulted), "{notices:?}");
    }
}

/// A packet of the OS has no queue, and so neither logs nor a progress fence: it faults, and nothing is stored.
#[test]
fn a_packet_of_the_os_has_no_entries() {
    for (packet, kind) in [(0, FaultKind::BadLog), (1, FaultKind::BadLog), (2, FaultKind::NotPermitted)] {
        let mut rig = Rig::new();
        let f = rig.fence();
        let body = FenceLogged { fence: f.current.va.0, value: 1, fence_handle: 0x40, index_hint: 0 };
        let packets = [
            body.to_packet(),
            Encoded::fence_wait_logged(body),
            Progress { value: 1, fence_handle: 0x40, index_hint: 0 }.to_packet(),
        ];
        let submission = packet_of(&mut rig, 1, false, &packets[packet..=packet]);
        rig.gpu.nodes[2].packets.with(|queue| queue.submit(submission, &rig.gpu.mutation)).unwrap();
        rig.settle();
        let notices = rig.drain();
        let faulted = |notice: &(usize, Notice)| match notice.1 {
            Notice::PacketFaulted { fence: 1, fault, .. } => fault.kind == kind,
            _ => false,
        };
        assert!(notices.iter().any(faulted), "{notices:?}");
        assert_eq!(f.current.read(0), 0);
    }
}
