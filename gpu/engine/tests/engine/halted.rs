//! An adapter that was stopped: nothing is translated any more, paging buffers complete, other work faults.
//!
//! Source: `DxgkDdiBuildPagingBuffer`, Return value (an operation that cannot be carried out may not fail).

use crate::packet_mode::packet_of;
use crate::support::Rig;
use gpu_engine::notice::Notice;
use gpu_engine::word::{Ordering, Word};
use gpu_wire::packet::{self, Encoded, FaultKind};
use gpu_wire::pte::{self, Pte};
use gpu_wire::ring;

fn is_stopped(notice: &Notice) -> bool {
    match notice {
        Notice::QueueFaulted { fault, progress, .. } => fault.kind == FaultKind::AdapterStopped && *progress == 0,
        Notice::PacketFaulted { fault, .. } => fault.kind == FaultKind::AdapterStopped,
        _ => false,
    }
}

#[test]
fn a_queue_faults_and_nothing_of_it_is_read_or_written() {
    let mut rig = Rig::new();
    let mut busy = rig.queue(0, 0);
    let (m, fence) = (rig.map(1, false), rig.fence());
    let store = |value| packet::Store { address: m.va.0, value }.to_packet();
    busy.submit(&[store(1)]);
    rig.settle();
    assert!(rig.drain().is_empty());
    // In the middle of a wait, and with work behind it.
    busy.submit(&[Encoded::fence_wait(fence.current.va, 5), store(2)]);
    rig.settle();
    let flush = rig.gpu.halt();
    rig.settle();
    assert!(rig.gpu.flush_done(flush));
    assert_eq!(rig.gpu.host.mappings.load(std::sync::atomic::Ordering::Relaxed), 0, "engines let go of every page");
    fence.current.word(0).store(5, Ordering::SeqCst);
    rig.gpu.make_ready(&busy.queue);
    rig.settle();
    let reported = rig.drain();
    assert!(matches!(&reported[..], [(0, notice)] if is_stopped(notice)), "{reported:?}");
    assert_eq!((m.read(0), busy.control.read(ring::FAULT_KIND as u64)), (1, 0));
    assert_eq!(rig.gpu.host.mappings.load(std::sync::atomic::Ordering::Relaxed), 0);
    // An engine with nothing to do sleeps.
    rig.settle();
    assert!(rig.engines.iter_mut().all(gpu_engine::engine::Engine::prepare_sleep));
}

/// A write pointer that is watched is looked at no more: not by the engine's rounds, and not by a last look.
#[test]
fn nothing_is_mapped_for_write_pointers() {
    let mut rig = Rig::new();
    let mut queue = rig.queue(0, 0);
    queue.submit(&[Encoded::nop(8)]);
    rig.settle();
    rig.gpu.doorbells.disconnect(0);
    rig.gpu.watch_pointer(&queue.queue, 1);
    rig.settle();
    rig.gpu.halt();
    let another = rig.queue(0, 1);
    for doorbell in 2..5 {
        rig.settle();
        rig.gpu.watch_pointer(&another.queue, doorbell);
        rig.settle();
        assert!(rig.engines[0].prepare_sleep(), "it looks for ever at what it does not look at");
        assert!(rig.engines[0].last_look());
        assert_eq!(rig.gpu.host.mappings.load(std::sync::atomic::Ordering::Relaxed), 0);
    }
}

#[test]
fn paging_buffers_complete_without_running_and_other_packets_fault() {
    let mut rig = Rig::new();
    let m = rig.map(1, false);
    let table = rig.leaf_table(&rig.context.clone(), m.va);
    let entry = rig.entry(table, pte::index(m.va, 0)).load(Ordering::SeqCst);
    let write = Encoded::table_write(Pte::table(table).unwrap(), pte::index(m.va, 0), [Pte::INVALID]);
    let paging = packet_of(&mut rig, 1, true, &[write]);
    let store = packet::Store { address: m.va.0, value: 1 }.to_packet();
    let user = packet_of(&mut rig, 2, false, &[store]);
    let empty = packet_of(&mut rig, 3, true, &[]);
    // What the driver refused, which the OS has forgotten.
    let mut refused = packet_of(&mut rig, 4, false, &[]);
    refused.silent = true;
    rig.gpu.halt();
    for packet in [paging, user, empty, refused] {
        rig.gpu.nodes[2].packets.with(|queue| queue.submit(packet, &rig.gpu.mutation)).unwrap();
    }
    rig.gpu.wake(2);
    rig.settle();
    let reported: Vec<_> = rig.drain().into_iter().map(|(_, notice)| notice).collect();
    assert_eq!(
        (&reported[0], &reported[2]),
        (&Notice::PacketCompleted { fence: 1 }, &Notice::PacketCompleted { fence: 3 })
    );
    assert!(is_stopped(&reported[1]) && reported.len() == 3, "{reported:?}");
    assert_eq!(rig.entry(table, pte::index(m.va, 0)).load(Ordering::SeqCst), entry);
    assert_eq!(m.read(0), 0);
}
