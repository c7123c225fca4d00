//! Packets of the kernel-mode path, and paging.

use crate::preemption::endless;
use crate::support::Rig;
use gpu_engine::engine::Step;
use gpu_engine::node::Control;
use gpu_engine::notice::Notice;
use gpu_engine::packet_node::{PacketQueue, PacketSubmission};
use gpu_engine::word::{Ordering, Word};
use gpu_wire::GpuVa;
use gpu_wire::packet::{self, Encoded, Privilege};
use gpu_wire::pte::{self, Place, Pte};

pub(crate) fn packet_of(
    rig: &mut Rig,
    fence: u32,
    paging: bool,
    packets: &[Encoded],
) -> PacketSubmission<crate::support::TestHost> {
    let context = if paging { rig.paging_context.clone() } else { rig.context.clone() };
    let code = rig.map(1, false);
    if paging {
        let Place::System(frame) = rig_frame(rig, code.va) else { panic!() };
        rig.map_at(&context, code.va, Place::System(frame), false);
    }
    let bytes: Vec<u8> = packets.iter().flat_map(|p| p.as_bytes().to_vec()).collect();
    code.bytes.write(&bytes);
    let privilege = if paging { Privilege::Paging } else { Privilege::User };
    let (address, length) = (code.va, bytes.len() as u64);
    PacketSubmission { fence, context, privilege, address, length, silent: false, resumes: false }
}

/// The page that the process's first address space has at `va`.
pub(crate) fn rig_frame(rig: &mut Rig, va: GpuVa) -> Place {
    let table = rig.leaf_table(&rig.context.clone(), va);
    Pte(rig.entry(table, pte::index(va, 0)).load(Ordering::SeqCst)).as_leaf().unwrap().place
}

#[test]
fn packets_complete_in_order_and_preemption_names_the_last_completed() {
    let mut rig = Rig::new();
    let m = rig.map(1, false);
    let gpu = rig.gpu.clone();
    for fence in 1..=3u32 {
        let store = packet::Store { address: m.va.0, value: fence.into() }.to_packet();
        let p = packet_of(&mut rig, fence, false, &[store]);
        gpu.nodes[2].packets.with(|q| q.submit(p, &gpu.mutation)).unwrap();
    }
    rig.settle();
    let fences: Vec<_> = (1..=3).map(|fence| (2, Notice::PacketCompleted { fence })).collect();
    assert_eq!(rig.drain(), fences);
    let p = packet_of(&mut rig, 4, false, &[Encoded::nop(8)]);
    gpu.nodes[2].packets.with(|q| q.submit(p, &gpu.mutation)).unwrap();
    let dropped = gpu.nodes[2].packets.with(|q| q.preempt(9));
    assert_eq!(dropped.len(), 1);
    gpu.command(2, Control::Run);
    rig.settle();
    assert_eq!(rig.drain(), [(2, Notice::PacketPreempted { request: 9, completed: 3 })]);
    assert_eq!(gpu.nodes[2].packets.with(|q| q.fences()), (3, 4));
}

#[test]
pub(crate) fn paging_packets_change_translations_only_after_every_engine_let_go() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let m = rig.map(1, false);
    let other = rig.map(1, false);
    q.submit(&[packet::Store { address: m.va.0, value: 1 }.to_packet()]);
    rig.settle();
    let table = rig.leaf_table(&rig.context.clone(), m.va);
    let target = rig_frame(&mut rig, other.va);
    let write =
        Encoded::table_write(Pte::table(table).unwrap(), pte::index(m.va, 0), [Pte::leaf(target, false).unwrap()]);
    // The end is the address of the last page: the documents do not say whether it is inside.
    let flush = packet::TlbFlush { process: rig.process.number, start: m.va.0, end: m.va.0 };
    let p = packet_of(&mut rig, 1, true, &[write, flush.to_packet()]);
    rig.gpu.nodes[2].packets.with(|q| q.submit(p, &rig.gpu.mutation)).unwrap();
    for _ in 0..20 {
        rig.engines[2].step();
    }
    // The other engines have not looked: not complete.
    assert!(rig.drain().is_empty());
    rig.settle();
    assert_eq!(rig.drain(), [(2, Notice::PacketCompleted { fence: 1 })]);
    q.submit(&[packet::Store { address: m.va.0, value: 2 }.to_packet()]);
    rig.settle();
    assert_eq!((m.read(0), other.read(0)), (1, 2));
}

/// An engine that pauses until another has served a flush is woken by that.
#[test]
fn an_engine_that_waits_for_a_flush_is_woken() {
    let mut rig = Rig::new();
    let m = rig.map(1, false);
    let flush = packet::TlbFlush { process: rig.process.number, start: m.va.0, end: m.va.0 };
    let p = packet_of(&mut rig, 1, true, &[flush.to_packet()]);
    rig.gpu.nodes[2].packets.with(|q| q.submit(p, &rig.gpu.mutation)).unwrap();
    for _ in 0..20 {
        rig.engines[2].step();
    }
    let kicks = rig.gpu.host.kicks.clone();
    for node in [0, 1] {
        let before = kicks.load(Ordering::Relaxed);
        rig.engines[node].step();
        assert!(kicks.load(Ordering::Relaxed) > before, "engine {node} wakes nobody");
        // It looks, and pauses again until the last has served the flush.
        rig.engines[2].step();
    }
    rig.settle();
    assert_eq!(rig.drain(), [(2, Notice::PacketCompleted { fence: 1 })]);
}

#[test]
fn flushing_everything_leaves_no_mapping() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let m = rig.map(3, false);
    q.submit(&[packet::Store { address: m.va.0, value: 1 }.to_packet()]);
    rig.settle();
    assert_ne!(rig.gpu.host.mappings.load(Ordering::Relaxed), 0);
    q.queue.bind(None);
    let n = rig.gpu.flush(rig.process.number, 0, 0);
    rig.settle();
    assert!(rig.gpu.flush_done(n));
    assert_eq!(rig.gpu.host.mappings.load(Ordering::Relaxed), 0);
}

/// Source: `DXGKARGCB_NOTIFY_INTERRUPT_DATA`, LastCompletedFenceId; the OS's first id is nowhere documented.
#[test]
fn a_preemption_before_anything_completed_names_the_id_before_the_first() {
    let mut rig = Rig::new();
    let gpu = rig.gpu.clone();
    let p = packet_of(&mut rig, 0x101, false, &[Encoded::nop(8)]);
    gpu.nodes[2].packets.with(|q| q.submit(p, &gpu.mutation)).unwrap();
    let dropped = gpu.nodes[2].packets.with(|q| q.preempt(0x102));
    assert_eq!(dropped.len(), 1);
    gpu.command(2, Control::Run);
    rig.settle();
    assert_eq!(rig.drain(), [(2, Notice::PacketPreempted { request: 0x102, completed: 0x100 })]);
}

/// The reset of an engine finds a packet that runs: that is the last completed one from then on, and the next
/// preemption names it.
#[test]
fn the_preemption_behind_a_reset_names_what_it_has_aborted() {
    let mut rig = Rig::new();
    let gpu = rig.gpu.clone();
    let m = rig.map(1, false);
    let hangs = endless(&mut rig, m.va);
    let (first, hangs) = (packet_of(&mut rig, 5, false, &[Encoded::nop(8)]), packet_of(&mut rig, 6, false, &[hangs]));
    for packet in [first, hangs] {
        gpu.nodes[0].packets.with(|q| q.submit(packet, &gpu.mutation)).unwrap();
    }
    gpu.wake(0);
    std::thread::scope(|s| {
        s.spawn(|| while rig.engines[0].step() != Step::Held {});
        while m.read(0) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(gpu.nodes[0].packets.shown().running, Some(6));
        gpu.command(0, Control::Hold);
    });
    assert_eq!(rig.drain(), [(0, Notice::PacketCompleted { fence: 5 })]);
    let (aborted, gone) = gpu.nodes[0].packets.with(PacketQueue::reset);
    gpu.nodes[0].packets.with(|q| q.give_back(gone));
    gpu.command(0, Control::Run);
    assert_eq!(aborted, 6);
    gpu.nodes[0].packets.with(|q| assert!(q.preempt(7).is_empty()));
    gpu.ask_preempt(0);
    rig.settle();
    assert_eq!(rig.drain(), [(0, Notice::PacketPreempted { request: 7, completed: 6 })]);
}

/// Of a node that never had a packet: the OS has given no id before the request's own.
#[test]
fn a_preemption_before_any_packet_names_the_id_before_its_own() {
    let mut rig = Rig::new();
    let gpu = rig.gpu.clone();
    let preempt = |request| {
        assert!(gpu.nodes[2].packets.with(|q| q.preempt(request)).is_empty());
        gpu.ask_preempt(2);
    };
    preempt(0x101);
    rig.settle();
    assert_eq!(rig.drain(), [(2, Notice::PacketPreempted { request: 0x101, completed: 0x100 })]);
    // Nor does a packet behind it make the request one that has completed.
    let p = packet_of(&mut rig, 0x102, false, &[Encoded::nop(8)]);
    gpu.nodes[2].packets.with(|q| q.submit(p, &gpu.mutation)).unwrap();
    assert_eq!(gpu.nodes[2].packets.with(|q| q.preempt(0x103)).len(), 1);
    gpu.ask_preempt(2);
    rig.settle();
    assert_eq!(rig.drain(), [(2, Notice::PacketPreempted { request: 0x103, completed: 0x100 })]);
}

/// A flush is acknowledged when nothing is mapped any more: a page table that the running packet has written, too.
#[test]
fn a_flush_amid_a_paging_packet_leaves_no_table_mapped() {
    let mut rig = Rig::new();
    let m = rig.map(1, false);
    let table = rig.leaf_table(&rig.context.clone(), m.va);
    let write = Encoded::table_write(Pte::table(table).unwrap(), pte::index(m.va, 0), [Pte::INVALID]);
    let flush = packet::TlbFlush { process: rig.process.number, start: m.va.0, end: m.va.0 };
    let p = packet_of(&mut rig, 1, true, &[write, flush.to_packet()]);
    rig.gpu.nodes[2].packets.with(|q| q.submit(p, &rig.gpu.mutation)).unwrap();
    for _ in 0..20 {
        rig.engines[2].step();
    }
    // It waits for the other engines. More flushes come, of all that it has mapped.
    rig.gpu.flush(rig.paging_context.space.process.number, 0, 0);
    let number = rig.gpu.flush(rig.process.number, 0, 0);
    for _ in 0..20 {
        rig.engines[2].step();
    }
    assert!(!rig.gpu.flush_done(number), "the others have not looked");
    assert_eq!(rig.gpu.host.mappings.load(Ordering::Relaxed), 0);
    rig.settle();
    assert_eq!(rig.drain(), [(2, Notice::PacketCompleted { fence: 1 })]);
}
