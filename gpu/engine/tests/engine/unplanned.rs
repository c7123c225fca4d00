//! Sequences that no plan has: values that go back within a stretch, rings that publish or write themselves, packets
//! that come back to other tables, more flushes than the board holds, ids that wrap.

use crate::packet_mode::{packet_of, rig_frame};
use crate::preemption::endless;
use crate::stretches::{progress, queue as warm, store};
use crate::support::{Rig, TestHost};
use gpu_engine::engine::Step;
use gpu_engine::node::Control;
use gpu_engine::notice::{CAPACITY, Notice};
use gpu_engine::packet_context::Resets;
use gpu_engine::packet_node::{PacketQueue, PacketSubmission};
use gpu_engine::queue::{Binding, State};
use gpu_engine::word::{Ordering, Word};
use gpu_wire::packet::{self, Encoded, FaultKind, FenceLogged};
use gpu_wire::pte::{self, Pte};
use gpu_wire::{GpuVa, PAGE_SIZE};

/// A value that is reached and taken back within one stretch lets its waiter go.
#[test]
fn a_value_taken_back_in_a_stretch_wakes() {
    for (own, first) in [(false, 10), (true, 10)] {
        let mut rig = Rig::new();
        let (mut a, f, _) = warm(&mut rig);
        let mut b = rig.queue(0, 1);
        let m = rig.map(1, false);
        b.submit(&[Encoded::fence_wait(f.current.va, 10), store(m.va, 1)]);
        rig.settle();
        assert_eq!((f.fence.parked.len(), m.read(0)), (1, 0));
        let signal =
            |value| FenceLogged { fence: f.current.va.0, value, fence_handle: 0x50, index_hint: 0 }.to_packet();
        if own {
            a.submit(&[progress(first), progress(5)]);
        } else {
            a.submit(&[signal(first), signal(5)]);
        }
        rig.settle();
        assert_eq!((f.fence.parked.len(), m.read(0), f.current.read(0)), (0, 1, 5), "own {own}");
    }
}

/// A ring that publishes itself packet by packet, and in the end beyond its end.
#[test]
fn a_ring_that_publishes_itself() {
    let mut rig = Rig::new();
    let (mut a, mut b) = (rig.queue(0, 0), rig.queue(0, 1));
    let m = rig.map(1, false);
    let count = 100u64;
    // Packet k publishes packet k + 1; the last one publishes what cannot be.
    for k in 0..count {
        let wp = if k == count - 1 { 1 << 40 } else { (k + 2) * 24 };
        let p = store(a.control.va, wp);
        a.ring.bytes.part(k * 24, u64::MAX).write(p.as_bytes());
    }
    a.control.word(0).store(24, Ordering::SeqCst);
    a.ring();
    b.submit(&[store(m.va, 1)]);
    rig.settle();
    assert_eq!(m.read(0), 1);
    assert_eq!((a.fault(), a.queue.packets.load(Ordering::Relaxed)), (Some(FaultKind::BadWritePointer), count));
    a.wp = 0;
}

fn preempt(rig: &Rig, request: u32) {
    let queue = &rig.gpu.nodes[0].packets;
    let mut back = queue.with(|queue| queue.preempt(request));
    rig.gpu.ask_preempt(0);
    back.clear();
    queue.with(|queue| queue.give_back(back));
}

fn submit(rig: &Rig, packet: PacketSubmission<TestHost>) {
    rig.gpu.nodes[0].packets.with(|queue| queue.submit(packet, &rig.gpu.mutation)).unwrap();
}

/// A packet that stores 1, fills for several turns, stores 9; taken off in its middle.
fn taken_off(rig: &mut Rig) -> (PacketSubmission<TestHost>, crate::support::Range) {
    const BIG: u64 = 1024;
    let (mut other, m, big) = (rig.queue(0, 1), rig.map(1, false), rig.map(BIG, false));
    let fill = packet::Fill { address: big.va.0, length: BIG * PAGE_SIZE, pattern: 7, reserved: 0 }.to_packet();
    let first = packet_of(rig, 1, false, &[store(m.va, 1), fill, fill, store(m.at(24), 9)]);
    let kept = PacketSubmission { context: first.context.clone(), ..first };
    submit(rig, first);
    other.submit(&[Encoded::nop(8)]);
    rig.engines[0].step();
    assert_eq!((m.read(0), m.read(24)), (1, 0));
    preempt(rig, 2);
    rig.settle();
    assert_eq!(rig.drain(), [(0, Notice::PacketPreempted { request: 2, completed: 0 })]);
    (kept, m)
}

/// Between taking off and coming back the page of the command buffer is another's: what comes back reads nothing
/// of the old one, and where nothing is mapped it is a fault.
#[test]
fn a_packet_comes_back_to_other_tables() {
    for unmapped in [false, true] {
        let mut rig = Rig::new();
        let (kept, m) = taken_off(&mut rig);
        let evil = rig.map(1, false);
        let bytes: Vec<u8> = (0..12).flat_map(|_| store(evil.va, 5).as_bytes().to_vec()).collect();
        evil.bytes.part(64, u64::MAX).write(&bytes);
        let table = rig.leaf_table(&rig.context.clone(), kept.address);
        let entry = rig.entry(table, pte::index(kept.address, 0));
        let place = rig_frame(&mut rig, evil.va);
        let new = if unmapped { Pte::INVALID } else { Pte::leaf(place, false).unwrap() };
        entry.store(new.0, Ordering::SeqCst);
        let flush = rig.gpu.flush(rig.process.number, 0, 0);
        rig.settle();
        assert!(rig.gpu.flush_done(flush));
        let resumes = kept.context.claim(true, kept.address, kept.length, Resets::default());
        assert!(resumes);
        submit(&rig, PacketSubmission { fence: 3, context: kept.context.clone(), resumes, ..kept });
        rig.settle();
        let said = rig.drain();
        assert_eq!(m.read(24), 0, "the old page was read");
        match unmapped {
            true => assert!(matches!(said[..], [(0, Notice::PacketFaulted { fence: 3, .. })]), "{said:?}"),
            false => assert!(said.len() == 1, "{said:?}"),
        }
    }
}

/// A reset that finds nothing to end behind a packet that was taken off names nothing that has not completed, and
/// neither does the preemption behind it.
#[test]
fn a_reset_behind_a_taken_off_packet() {
    let mut rig = Rig::new();
    let (kept, m) = taken_off(&mut rig);
    let gpu = rig.gpu.clone();
    gpu.command(0, Control::Hold);
    while rig.engines[0].step() != Step::Held {}
    let (aborted, gone) = gpu.nodes[0].packets.with(PacketQueue::reset);
    assert!(gone.is_empty());
    gpu.nodes[0].packets.with(|q| q.give_back(gone));
    gpu.command(0, Control::Run);
    rig.settle();
    assert_eq!((aborted, gpu.nodes[0].packets.with(|q| q.fences().0)), (0, 0));
    let resumes = kept.context.claim(true, kept.address, kept.length, Resets::default());
    submit(&rig, PacketSubmission { fence: 3, context: kept.context.clone(), resumes, ..kept });
    preempt(&rig, 4);
    rig.settle();
    assert_eq!(rig.drain(), [(0, Notice::PacketPreempted { request: 4, completed: 0 })]);
    let resumes = kept.context.claim(true, kept.address, kept.length, Resets::default());
    submit(&rig, PacketSubmission { fence: 5, context: kept.context.clone(), resumes, ..kept });
    rig.settle();
    assert_eq!((rig.drain(), m.read(24)), (vec![(0, Notice::PacketCompleted { fence: 5 })], 9));
}

/// What overflows: no panic, a fault of its queue, and nothing is written.
#[test]
fn addresses_and_lengths_at_the_edges() {
    let tops =
        [0, 4, 8, PAGE_SIZE - 8, (1 << 47) - 8, 1 << 47, (1 << 48) - PAGE_SIZE, (1 << 48) - 8, 1 << 48, u64::MAX - 7];
    let lengths = [0, 4, 8, PAGE_SIZE, 1 << 32, (1 << 48) - 8, 1 << 63, u64::MAX - 7, u64::MAX - 3, u64::MAX];
    let edge = [0, 1, 4, u32::MAX - 3, u32::MAX];
    for at in tops {
        for length in lengths {
            let mut list = vec![
                packet::Fill { address: at, length, pattern: 7, reserved: 0 }.to_packet(),
                packet::Copy { source: at, destination: 0x10_0000, length }.to_packet(),
                packet::Copy { source: 0x10_0000, destination: at, length }.to_packet(),
                packet::Indirect { address: at, length }.to_packet(),
                Encoded::fence_wait(GpuVa(at), length),
                Encoded::fence_signal(GpuVa(at), length),
                packet::MonitoredSignal { address: at, value: length }.to_packet(),
                packet::Timestamp { address: at }.to_packet(),
                packet::TlbFlush { process: length, start: at, end: length }.to_packet(),
            ];
            for pitch in edge {
                for rows in edge {
                    let body = packet::CopyRect {
                        source: at,
                        destination: 0x10_0000,
                        source_pitch: pitch,
                        destination_pitch: u32::MAX,
                        row_bytes: pitch,
                        rows,
                    };
                    list.push(body.to_packet());
                    list.push(packet::CopyRect { source: 0x10_0000, destination: at, ..body }.to_packet());
                }
            }
            let mut rig = Rig::new();
            let mut good = rig.queue(0, 1);
            let m = rig.map(1, false);
            for p in &list {
                let mut q = rig.queue(0, 0);
                q.submit(&[*p]);
                rig.settle();
                if q.fault().is_none() {
                    assert!(q.queue.state() == State::Active && q.read_pointer() == q.wp, "{at:#x} {length:#x}");
                }
                q.queue.bind(None);
                rig.gpu.destroy_queue(&q.queue);
                rig.gpu.doorbells.disconnect(0);
                rig.settle();
            }
            good.submit(&[store(m.va, 1)]);
            rig.settle();
            assert_eq!(m.read(0), 1);
        }
    }
}

/// An engine that said it hangs where the mailbox had no room says nothing of it behind the reset.
#[test]
fn a_hang_without_room_is_not_told_behind_the_reset() {
    let mut rig = Rig::without_preemption();
    let gpu = rig.gpu.clone();
    gpu.hang_after.store(1, Ordering::Relaxed);
    let mut q = rig.queue(0, 0);
    let to = rig.map(1, false).va;
    let jump = endless(&mut rig, to);
    rig.settle();
    for _ in 0..CAPACITY {
        assert!(gpu.nodes[0].mailbox.push(Notice::SchedulingLog));
    }
    q.submit(&[jump]);
    let mut held = false;
    std::thread::scope(|s| {
        s.spawn(|| {
            while rig.engines[0].step() != Step::Held {}
            held = true;
        });
        while gpu.nodes[0].counters.read().indirects < 1_000 {
            std::thread::yield_now();
        }
        let context = q.queue.context.clone();
        gpu.suspend(&context, 5);
        let now = gpu.nodes[0].counters.read().indirects;
        while gpu.nodes[0].counters.read().indirects < now + 5_000 {
            std::thread::yield_now();
        }
        gpu.command(0, Control::Hold);
    });
    assert!(held);
    drop(gpu.nodes[0].take_interrupted());
    gpu.nodes[0].mailbox.forget(|notice| notice == Notice::EngineHung);
    gpu.command(0, Control::Run);
    for _ in 0..3 {
        rig.settle_waiting();
        let said = rig.drain();
        assert!(said.iter().all(|(_, notice)| *notice != Notice::EngineHung), "told of a hang that is over");
    }
}

/// The driver would have the engine pause, which stays in its command buffer: the OS has asked nothing, and hears of no
/// hang.
#[test]
fn an_engine_that_cannot_rest_does_not_hang() {
    let mut rig = Rig::without_preemption();
    let gpu = rig.gpu.clone();
    gpu.hang_after.store(1, Ordering::Relaxed);
    let mut q = rig.queue(0, 0);
    let to = rig.map(1, false).va;
    let jump = endless(&mut rig, to);
    q.submit(&[jump]);
    std::thread::scope(|s| {
        s.spawn(|| while rig.engines[0].step() != Step::Held {});
        let mut next = 1_000;
        for _ in 0..20 {
            while gpu.nodes[0].counters.read().indirects < next {
                std::thread::yield_now();
            }
            gpu.ask_rest(0);
            next = gpu.nodes[0].counters.read().indirects + 1_000;
        }
        gpu.command(0, Control::Hold);
    });
    assert_eq!(rig.drain(), []);
}

/// The OS takes another context off, which is off at once: what runs was asked nothing, and is no hang.
#[test]
fn an_engine_that_another_context_leaves_does_not_hang() {
    let mut rig = Rig::without_preemption();
    let gpu = rig.gpu.clone();
    gpu.hang_after.store(1, Ordering::Relaxed);
    let (mut q, other) = (rig.queue(0, 0), rig.context(0));
    let to = rig.map(1, false).va;
    let jump = endless(&mut rig, to);
    q.submit(&[jump]);
    std::thread::scope(|s| {
        s.spawn(|| while rig.engines[0].step() != Step::Held {});
        let runs_for = |times| {
            let end = gpu.nodes[0].counters.read().indirects + times;
            while gpu.nodes[0].counters.read().indirects < end {
                std::thread::yield_now();
            }
        };
        runs_for(1_000);
        gpu.suspend(&other, 5);
        while gpu.nodes[0].mailbox.is_empty() {
            std::thread::yield_now();
        }
        runs_for(20_000);
        gpu.command(0, Control::Hold);
    });
    assert_eq!(rig.drain(), [(0, Notice::ContextSuspended { context: other.slot, fence: 5 })]);
}

/// An operation writes, by another address of the same page, the ring that it lies in.
#[test]
fn a_ring_written_by_another_address() {
    let mut rig = Rig::new();
    let (mut q, f, m) = warm(&mut rig);
    let alias = GpuVa(0x4000_0000);
    let place = rig_frame(&mut rig, q.ring.va);
    rig.map_at(&rig.context.clone(), alias, place, false);
    q.submit(&[packet::Fill { address: alias.0 + 3000, length: 8, pattern: 0, reserved: 0 }.to_packet()]);
    rig.settle();
    let at = q.wp;
    let fill = packet::Fill { address: alias.0 + at + 32, length: 200, pattern: 0xFFFF_FFFF, reserved: 0 }.to_packet();
    q.submit(&[fill, store(m.va, 3), progress(1), store(m.at(8), 4)]);
    rig.settle();
    match q.fault() {
        None => assert_eq!((m.read(0), m.read(8), f.current.read(0), q.read_pointer()), (3, 4, 1, q.wp)),
        Some(kind) => assert!(matches!(kind, FaultKind::BadOpcode | FaultKind::BadLength | FaultKind::BadFlags)),
    }
}

/// Two queues that take a value forth and back while a third waits for each: all come to an end.
#[test]
fn a_value_that_goes_forth_and_back() {
    let mut rig = Rig::new();
    let f = rig.fence();
    let (mut up, mut down, mut waits) = (rig.queue(0, 0), rig.queue(1, 1), rig.queue(2, 2));
    let mut ends = Vec::new();
    for q in [&mut up, &mut down, &mut waits] {
        ends.push(q.queue.clone());
    }
    let signal = |value| Encoded::fence_signal(f.current.va, value);
    for _ in 0..40 {
        waits.submit(&[Encoded::fence_wait(f.current.va, 7)]);
        rig.engines[2].step();
        up.submit(&[signal(7), signal(3)]);
        down.submit(&[signal(0)]);
        rig.settle();
        assert_eq!(waits.read_pointer(), waits.wp, "the waiter has seen nothing");
    }
    let ring = Binding { ring: waits.ring.va, control: waits.control.va, geometry: waits.geometry };
    waits.queue.bind(Some(ring));
    assert_eq!(f.fence.parked.len(), 0);
}

/// One flush more than the board holds, and the first is the one that counts.
#[test]
fn the_first_of_too_many_flushes() {
    for more in [63, 64, 65, 66] {
        let mut rig = Rig::new();
        let mut q = rig.queue(0, 0);
        let m = rig.map(1, false);
        q.submit(&[store(m.va, 1)]);
        rig.settle();
        q.queue.bind(None);
        let frame = rig.frame_of(m);
        let before = rig.gpu.host.mappings.load(Ordering::Relaxed);
        let _first = rig.gpu.flush(rig.process.number, m.va.0, m.va.0 + 1);
        let mut last = 0;
        for _ in 0..more {
            last = rig.gpu.flush(u64::MAX - 1, 0x7000_0000, 0x7000_1000);
        }
        rig.settle();
        assert!(rig.gpu.flush_done(last));
        let after = rig.gpu.host.mappings.load(Ordering::Relaxed);
        assert!(after < before, "{more}: frame {frame:#x} is mapped still");
    }
}

/// Ids that wrap.
#[test]
fn fence_ids_wrap() {
    let mut rig = Rig::new();
    let gpu = rig.gpu.clone();
    for fence in [u32::MAX - 1, u32::MAX, 0, 1] {
        let p = packet_of(&mut rig, fence, false, &[Encoded::nop(8)]);
        submit(&rig, p);
    }
    assert_eq!(gpu.nodes[0].packets.with(|q| q.fences()), (u32::MAX - 2, 1));
    rig.settle();
    rig.drain();
    let p = packet_of(&mut rig, 2, false, &[Encoded::nop(8)]);
    submit(&rig, p);
    gpu.command(0, Control::Hold);
    while rig.engines[0].step() != Step::Held {}
    gpu.nodes[0].packets.with(|q| q.reset_adapter(&gpu.mutation)).clear();
    assert_eq!(gpu.nodes[0].packets.with(|q| q.fences()), (2, 2));
}
