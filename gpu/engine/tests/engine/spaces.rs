//! Address spaces: the root page table is a context's. Copies of page table entries, and flushes.
//!
//! Source: `DxgkDdiSetRootPageTable`; *Tile resources*.

use crate::packet_mode::{packet_of, rig_frame};
use crate::support::{Rig, TestHost};
use gpu_engine::notice::Notice;
use gpu_engine::packet_context::PacketContext;
use gpu_engine::packet_node::PacketSubmission;
use gpu_engine::shared::Shared;
use gpu_engine::word::{Ordering, Word};
use gpu_wire::GpuVa;
use gpu_wire::packet::{self, Encoded, FaultKind, OWN_PROCESS, Privilege, TableCopy};
use gpu_wire::pte::{self, Place};

/// Where the companion space shows what it shows.
const SHOWN: GpuVa = GpuVa(0x7000_0000);

/// Runs `packets` on the paging node in `space`, and returns what is reported of it.
fn run(rig: &mut Rig, context: &Shared<PacketContext<TestHost>>, paging: bool, packets: &[Encoded]) -> Notice {
    let made = packet_of(rig, 1, false, packets);
    let frame = rig_frame(rig, made.address);
    rig.map_at(context, made.address, frame, false);
    let privilege = if paging { Privilege::Paging } else { Privilege::User };
    let packet = PacketSubmission { context: context.clone(), privilege, ..made };
    rig.gpu.nodes[2].packets.with(|queue| queue.submit(packet, &rig.gpu.mutation)).unwrap();
    rig.settle();
    let reported = rig.drain();
    assert_eq!(reported.len(), 1, "{reported:?}");
    reported[0].1
}

const DONE: Notice = Notice::PacketCompleted { fence: 1 };

#[test]
fn two_contexts_of_a_process_have_two_roots() {
    let mut rig = Rig::new();
    let (mine, other) = (rig.map(1, false), rig.map(1, false));
    let companion = rig.another_context();
    let frame = Place::System(rig.frame_of(other));
    rig.map_at(&companion, mine.va, frame, false);
    let store = |value| packet::Store { address: mine.va.0, value }.to_packet();
    let space = rig.context.clone();
    assert_eq!(run(&mut rig, &space, false, &[store(1)]), DONE);
    assert_eq!(run(&mut rig, &companion, false, &[store(2)]), DONE);
    assert_eq!(run(&mut rig, &space, false, &[store(3)]), DONE);
    assert_eq!((mine.read(0), other.read(0)), (3, 2));
}

/// A translation is of its address space alone, also where the page cache keeps both spaces' pages in one place.
#[test]
fn a_page_of_one_space_is_not_found_in_another() {
    let mut rig = Rig::new();
    let (mine, space) = (rig.map(1, false), rig.context.clone());
    // The cache has 64 places; two numbers in a row that are a multiple of it apart share one.
    let spaces: Vec<_> = (0..130).map(|_| rig.another_context()).collect();
    let store = |value| packet::Store { address: mine.va.0, value }.to_packet();
    assert_eq!(run(&mut rig, &space, false, &[store(1)]), DONE);
    for (other, value) in spaces.iter().zip(2..) {
        let theirs = rig.map(1, false);
        let frame = Place::System(rig.frame_of(theirs));
        rig.map_at(other, mine.va, frame, false);
        assert_eq!(run(&mut rig, other, false, &[store(value)]), DONE);
        assert_eq!((mine.read(0), theirs.read(0)), (value - 1, value));
        assert_eq!(run(&mut rig, &space, false, &[store(value)]), DONE);
        assert_eq!((mine.read(0), theirs.read(0)), (value, value));
    }
}

#[test]
fn a_moved_root_takes_its_context_along_and_no_other() {
    let mut rig = Rig::new();
    let (before, after) = (rig.map(1, false), rig.map(1, false));
    let space = rig.context.clone();
    let second = Shared::try_new(PacketContext::new(rig.process.clone(), 0x79).unwrap()).unwrap();
    let fresh = rig.gpu.new_space_id();
    assert!(!second.space.set_root(space.space.root(), fresh), "the first root of a context empties no address space");
    assert_eq!(second.space.id(), space.space.id(), "contexts with one root share its translations");
    let moved = rig.another_context();
    let frame = Place::System(rig.frame_of(after));
    rig.map_at(&moved, before.va, frame, false);
    let store = |value| packet::Store { address: before.va.0, value }.to_packet();
    assert_eq!(run(&mut rig, &second, false, &[store(1)]), DONE);
    let fresh = rig.gpu.new_space_id();
    assert!(!second.space.set_root(moved.space.root(), fresh), "another context has the old root still");
    assert_eq!(run(&mut rig, &second, false, &[store(2)]), DONE);
    assert_eq!(run(&mut rig, &space, false, &[store(3)]), DONE);
    assert_eq!((before.read(0), after.read(0)), (3, 2));
    let (old, root) = (space.space.id(), space.space.root());
    assert!(space.space.set_root(None, 0), "no context has the old root any more");
    // Another tree may lie at the same place later.
    assert!(!space.space.set_root(root, rig.gpu.new_space_id()));
    assert_ne!(space.space.id(), old);
}

#[test]
fn more_roots_than_a_process_shares_are_kept_apart() {
    let mut rig = Rig::new();
    let pages: Vec<_> = (0..9).map(|_| rig.map(1, false)).collect();
    let spaces: Vec<_> = (0..9).map(|_| rig.another_context()).collect();
    for (space, page) in spaces.iter().zip(&pages) {
        let frame = Place::System(rig.frame_of(*page));
        rig.map_at(space, SHOWN, frame, false);
    }
    for (number, space) in (1..).zip(&spaces) {
        let store = packet::Store { address: SHOWN.0, value: number }.to_packet();
        assert_eq!(run(&mut rig, space, false, &[store]), DONE);
    }
    for (number, page) in (1..).zip(&pages) {
        assert_eq!(page.read(0), number);
    }
}

/// A table of the process's first address space, as the companion's shows it at [`SHOWN`].
fn shown(rig: &mut Rig, companion: &Shared<PacketContext<TestHost>>, va: GpuVa) {
    let table = rig.leaf_table(&rig.context.clone(), va);
    rig.map_at(companion, SHOWN, table, false);
}

fn copy(source: u32, destination: u32, count: u32) -> TableCopy {
    let entry = |index: u32| SHOWN.0 + u64::from(index) * 8;
    TableCopy { source: entry(source), destination: entry(destination), count, reserved: 0 }
}

#[test]
fn entries_are_copied_and_their_translations_go() {
    let mut rig = Rig::new();
    let (from, to) = (rig.map(2, false), rig.map(2, false));
    let (companion, space) = (rig.another_context(), rig.context.clone());
    shown(&mut rig, &companion, from.va);
    let store = |value| packet::Store { address: to.va.0, value }.to_packet();
    assert_eq!(run(&mut rig, &space, false, &[store(1)]), DONE);
    let (source, destination) = (pte::index(from.va, 0), pte::index(to.va, 0));
    let flush = packet::TlbFlush { process: OWN_PROCESS, start: 0, end: 0 }.to_packet();
    let ended = run(&mut rig, &companion, true, &[copy(source, destination, 2).to_packet(), flush]);
    assert_eq!(ended, DONE);
    assert_eq!(run(&mut rig, &space, false, &[store(2)]), DONE);
    assert_eq!((from.read(0), to.read(0)), (2, 1));
    // An empty entry over a mapping: nothing is reached.
    assert_eq!(run(&mut rig, &companion, true, &[copy(source + 2, destination, 1).to_packet(), flush]), DONE);
    let lost = run(&mut rig, &space, false, &[store(3)]);
    assert!(matches!(lost, Notice::PacketFaulted { fault, .. } if fault.kind == FaultKind::Address), "{lost:?}");
    assert_eq!((from.read(0), to.read(0)), (2, 1));
}

#[test]
fn entries_that_overlap_are_copied_as_if_all_were_read_first() {
    for (source, destination) in [(100, 101), (101, 100), (100, 100), (100, 103)] {
        let mut rig = Rig::new();
        let page = rig.map(1, false);
        let companion = rig.another_context();
        shown(&mut rig, &companion, page.va);
        let table = rig.leaf_table(&rig.context.clone(), page.va);
        for index in 0..8 {
            rig.entry(table, 100 + index).store(u64::from(index) << 12, Ordering::SeqCst);
        }
        assert_eq!(run(&mut rig, &companion, true, &[copy(source, destination, 5).to_packet()]), DONE);
        for index in 0..5 {
            let got = rig.entry(table, destination + index).load(Ordering::SeqCst);
            assert_eq!(got, u64::from(source - 100 + index) << 12, "{source} to {destination}, {index}");
        }
    }
}

#[test]
fn copies_that_leave_a_table_are_faults_and_so_are_those_of_user_mode() {
    let mut rig = Rig::new();
    let page = rig.map(1, false);
    let companion = rig.another_context();
    shown(&mut rig, &companion, page.va);
    let odd = TableCopy { source: SHOWN.0 + 4, ..copy(0, 8, 1) };
    let reserved = TableCopy { reserved: 1, ..copy(0, 8, 1) };
    let wrong = [copy(510, 0, 3), copy(0, 510, 3), copy(0, 0, 513), copy(0, 0, u32::MAX), copy(0, 8, 0), odd, reserved];
    for packet in wrong {
        let lost = run(&mut rig, &companion, true, &[packet.to_packet()]);
        assert!(matches!(lost, Notice::PacketFaulted { fault, .. } if fault.kind == FaultKind::BadOperand), "{lost:?}");
    }
    let lost = run(&mut rig, &companion, false, &[copy(0, 8, 1).to_packet()]);
    assert!(matches!(lost, Notice::PacketFaulted { fault, .. } if fault.kind == FaultKind::NotPermitted), "{lost:?}");
    let beyond = TableCopy { destination: SHOWN.0 + 4096, ..copy(0, 0, 1) };
    let lost = run(&mut rig, &companion, true, &[beyond.to_packet()]);
    assert!(matches!(lost, Notice::PacketFaulted { fault, .. } if fault.kind == FaultKind::Address), "{lost:?}");
}
