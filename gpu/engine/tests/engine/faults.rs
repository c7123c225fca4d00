//! What user mode can do wrong.

use crate::support::{Rig, log};
use gpu_engine::fault::Fault;
use gpu_engine::notice::Notice;
use gpu_engine::queue::State;
use gpu_engine::word::{Ordering, Word};
use gpu_wire::GpuVa;
use gpu_wire::packet::{self, Encoded, FaultKind, log_operation::*};
use gpu_wire::pte::{self};

#[test]
fn bad_packets_fault_their_queue_and_nothing_else() {
    let cases: Vec<(Vec<Encoded>, FaultKind)> = vec![
        (vec![Encoded::new(0x55, 0, &[])], FaultKind::BadOpcode),
        (vec![Encoded::new(packet::opcode::STORE, 0, &[0; 8])], FaultKind::BadLength),
        (vec![packet::Store { address: 0x7777_0000_0000, value: 0 }.to_packet()], FaultKind::Address),
        (vec![packet::Store { address: 4, value: 0 }.to_packet()], FaultKind::BadOperand),
        (vec![packet::Store { address: 1 << 50, value: 0 }.to_packet()], FaultKind::BadOperand),
        (vec![packet::TlbFlush { process: 1, start: 0, end: 0 }.to_packet()], FaultKind::NotPermitted),
        (vec![Encoded::fence_signal(GpuVa(0x10_0000), 1)], FaultKind::UnknownFence),
        (vec![Encoded::fence_wait(GpuVa(0x10_0000), 1)], FaultKind::UnknownFence),
        (vec![log(SIGNAL_EXECUTED, 1, 0)], FaultKind::BadLog),
        (vec![packet::Indirect { address: 8, length: 4 }.to_packet()], FaultKind::BadOperand),
        (vec![packet::Indirect { address: 8, length: u64::MAX }.to_packet()], FaultKind::BadOperand),
        (vec![packet::Fill { address: 0, length: !3, pattern: 0, reserved: 0 }.to_packet()], FaultKind::BadOperand),
        (vec![packet::Copy { source: 0, destination: 4, length: 64 }.to_packet()], FaultKind::BadOperand),
    ];
    for (packets, kind) in cases {
        let mut rig = Rig::new();
        let (mut bad, mut good) = (rig.queue(0, 0), rig.queue(0, 1));
        let m = rig.map(1, false);
        bad.submit(&packets);
        bad.submit(&[packet::Store { address: m.va.0, value: 1 }.to_packet()]);
        good.submit(&[packet::Store { address: m.at(8).0, value: 2 }.to_packet()]);
        rig.settle();
        assert_eq!(bad.fault(), Some(kind));
        assert_eq!(bad.queue.state(), State::Stopped);
        assert_eq!((m.read(0), m.read(8)), (0, 2), "{kind:?}");
        let notices = rig.drain();
        let [(0, Notice::QueueFaulted { queue, fault: Fault { kind: k, .. }, progress: 0 })] = notices[..] else {
            panic!("{notices:?}")
        };
        assert_eq!((queue, k), (bad.queue.slot, kind));
    }
}

#[test]
pub(crate) fn hostile_write_pointers_fault_their_queue() {
    for wp in [4, 4096 + 8, u64::MAX, 1 << 63] {
        let mut rig = Rig::new();
        let mut q = rig.queue(0, 0);
        q.publish(&[Encoded::nop(8)]);
        q.control.word(0).store(wp, Ordering::SeqCst);
        q.ring();
        rig.settle();
        assert_eq!(q.fault(), Some(FaultKind::BadWritePointer), "{wp:#x}");
    }
}

#[test]
fn a_ring_that_is_unmapped_faults_with_its_address() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    rig.settle();
    let table = rig.leaf_table(&rig.context.clone(), q.ring.va);
    rig.entry(table, pte::index(q.ring.va, 0)).store(0, Ordering::SeqCst);
    let n = rig.gpu.flush(rig.process.number, 0, 0);
    rig.settle();
    assert!(rig.gpu.flush_done(n));
    q.submit(&[Encoded::nop(8)]);
    rig.settle();
    let notices = rig.drain();
    let [(0, Notice::QueueFaulted { fault, .. })] = notices[..] else { panic!("{notices:?}") };
    assert_eq!(fault, Fault::address(q.ring.va, false));
}

#[test]
fn a_corrupted_packet_faults_whatever_it_is() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let m = rig.map(1, false);
    // What is mapped by the first packet is not in the way: one that is executed again would count twice.
    q.submit(&[packet::Store { address: m.at(24).0, value: 1 }.to_packet()]);
    rig.settle();
    rig.gpu.faults.corrupt_packet.store(2, Ordering::Relaxed);
    rig.gpu.faults.arm();
    let store = |i: u64| packet::Store { address: m.at(i * 8).0, value: 0x100 }.to_packet();
    q.submit(&[store(0), store(1), store(2)]);
    rig.settle();
    assert_eq!([0, 8, 16].map(|o| m.read(o)), [0x100, 0, 0]);
    assert!(matches!(rig.drain()[..], [(0, Notice::QueueFaulted { .. })]));
}
