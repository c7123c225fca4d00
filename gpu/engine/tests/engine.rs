//! The engine, stepped by hand: packets, fences, logs, faults, suspension, reset, paging.

mod support;

use gpu_engine::context::Suspend;
use gpu_engine::engine::Step;
use gpu_engine::fault::Fault;
use gpu_engine::host::Lock;
use gpu_engine::node::Control;
use gpu_engine::notice::Notice;
use gpu_engine::packet_node::PacketSubmission;
use gpu_engine::queue::State;
use gpu_engine::word::{Ordering, Word};
use gpu_wire::doorbell::Model;
use gpu_wire::packet::{self, Encoded, FaultKind, log_operation::*};
use gpu_wire::pte::{self, Place, Pte};
use gpu_wire::{GpuVa, PAGE_SIZE};
use support::{Rig, log, log_entry, log_position};

#[test]
fn stores_and_timestamps_reach_memory() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let m = rig.map(1, false);
    q.submit(&[
        packet::Store { address: m.va.0, value: 0x1122_3344_5566_7788 }.to_packet(),
        Encoded::store32(m.at(8), 0xaabb_ccdd),
        packet::Timestamp { address: m.at(16).0 }.to_packet(),
    ]);
    rig.settle();
    assert_eq!((m.read(0), m.read(8)), (0x1122_3344_5566_7788, 0xaabb_ccdd));
    assert_ne!(m.read(16), 0);
    assert_eq!(q.read_pointer(), q.wp);
}

#[test]
fn nothing_runs_before_the_doorbell_rings_or_after_it_rang_once() {
    let mut rig = Rig::new();
    let mut q = rig.queue(1, 0);
    let m = rig.map(1, false);
    rig.settle();
    q.publish(&[packet::Store { address: m.va.0, value: 1 }.to_packet()]);
    rig.settle();
    assert_eq!(m.read(0), 0);
    q.ring();
    rig.settle();
    assert_eq!(m.read(0), 1);
    q.ring();
    rig.settle();
    assert_eq!(q.queue.packets.load(Ordering::Relaxed), 1);
}

#[test]
fn packets_wrap_around_the_ring_end() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let m = rig.map(1, false);
    for i in 0..1000u64 {
        q.submit(&[packet::Store { address: m.at(i % 64 * 8).0, value: i }.to_packet()]);
        rig.settle();
        assert_eq!(m.read(i % 64 * 8), i);
    }
    assert_eq!(q.read_pointer(), 24_000);
}

#[test]
fn fills_and_copies_cross_windows_and_segments() {
    let mut rig = Rig::new();
    let mut q = rig.queue(1, 0);
    let a = rig.map(700, false);
    let b = rig.map_local(3, 700);
    let n = 700 * PAGE_SIZE;
    q.submit(&[
        packet::Fill { address: a.va.0, length: n, pattern: 0x0403_0201, reserved: 0 }.to_packet(),
        packet::Copy { source: a.at(4).0, destination: b.va.0, length: n - 4 }.to_packet(),
    ]);
    rig.settle();
    for at in [0, 8, 2 << 20, n - 16] {
        assert_eq!(a.read(at), 0x0403_0201_0403_0201, "at {at:#x}");
        assert_eq!(b.read(at), 0x0403_0201_0403_0201, "at {at:#x}");
    }
    assert_eq!(b.read(n - 8), 0x0403_0201);
}

#[test]
fn rectangles_copy_row_by_row() {
    let mut rig = Rig::new();
    let mut q = rig.queue(1, 0);
    let (a, b) = (rig.map(1, false), rig.map(1, false));
    for i in 0..512 {
        a.word(i * 8).store(i, Ordering::Relaxed);
    }
    let rect = packet::CopyRect {
        source: a.va.0,
        destination: b.at(8).0,
        source_pitch: 64,
        destination_pitch: 32,
        row_bytes: 16,
        rows: 3,
    };
    q.submit(&[rect.to_packet()]);
    rig.settle();
    let got: Vec<u64> = (0..12).map(|i| b.read(i * 8)).collect();
    assert_eq!(got, [0, 0, 1, 0, 0, 8, 9, 0, 0, 16, 17, 0]);
}

fn filtered(image: &[[u8; 4]], w: usize, h: usize, p: &packet::FilterRect) -> Vec<[u8; 4]> {
    // The textbook form, pixel by pixel.
    let mut out = vec![[0; 4]; w * h];
    let at = |x: i64, y: i64| image[y.clamp(0, h as i64 - 1) as usize * w + x.clamp(0, w as i64 - 1) as usize];
    for y in p.y as usize..(p.y + p.height) as usize {
        for x in p.x as usize..(p.x + p.width) as usize {
            let mut pixel = at(x as i64, y as i64);
            for (c, v) in pixel.iter_mut().enumerate().take(3) {
                let mut sum = 0i64;
                for dy in -1..=1i64 {
                    for dx in -1..=1i64 {
                        let k = p.coefficients[((dy + 1) * 3 + dx + 1) as usize];
                        sum += i64::from(k) * i64::from(at(x as i64 + dx, y as i64 + dy)[c]);
                    }
                }
                *v = ((sum >> p.shift) + i64::from(p.bias)).clamp(0, 255) as u8;
            }
            out[y * w + x] = pixel;
        }
    }
    out
}

#[test]
fn the_filter_equals_the_textbook() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let (a, b) = (rig.map(40, false), rig.map(40, false));
    for (w, h, x, y, rw, rh) in
        [(150u32, 9u32, 0, 0, 150, 9), (150, 9, 3, 2, 130, 5), (1, 1, 0, 0, 1, 1), (65, 3, 64, 0, 1, 3)]
    {
        let mut seed = 12345u32;
        let image: Vec<[u8; 4]> = (0..w * h)
            .map(|_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                seed.to_le_bytes()
            })
            .collect();
        a.bytes.write(image.as_flattened());
        b.bytes.fill(0);
        let p = packet::FilterRect {
            source: a.va.0,
            destination: b.va.0,
            source_pitch: w * 4,
            destination_pitch: w * 4,
            image_width: w,
            image_height: h,
            x,
            y,
            width: rw,
            height: rh,
            coefficients: [-1, -2, -1, -2, 28, -2, -1, -2, -1],
            bias: 3,
            shift: 4,
            reserved: 0,
        };
        q.submit(&[p.to_packet()]);
        rig.settle();
        let mut got = vec![[0u8; 4]; (w * h) as usize];
        b.bytes.read(got.as_flattened_mut());
        assert_eq!(got, filtered(&image, w as usize, h as usize, &p), "{w}x{h}");
    }
}

#[test]
fn a_signal_without_waiters_interrupts_nobody() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let f = rig.fence();
    let signals: Vec<_> = (1..=40).map(|v| Encoded::fence_signal(f.current.va, v)).collect();
    q.submit(&signals);
    rig.settle();
    assert_eq!(f.current.read(0), 40);
    assert_eq!(rig.interrupts(), 0);
    assert_eq!(rig.gpu.totals().interrupts_suppressed, 40);
}

#[test]
fn a_monitored_value_below_the_signal_interrupts_with_the_fence() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let f = rig.fence();
    f.monitored.word(0).store(41, Ordering::SeqCst);
    q.submit(&[Encoded::fence_signal(f.current.va, 41), log(SIGNAL_EXECUTED, 41, 0)]);
    rig.settle();
    assert_eq!(rig.interrupts(), 0);
    q.submit(&[Encoded::fence_signal(f.current.va, 42), log(SIGNAL_EXECUTED, 42, 1)]);
    rig.settle();
    assert_eq!(rig.interrupts(), 1);
    assert_eq!(rig.drain(), [(0, Notice::FenceSignaled { fence: f.fence.slot, queue: q.queue.slot })]);
    assert_eq!(log_position(q.signals), (2, 0));
    assert_eq!(log_entry(q.signals, 1)[..3], [42, 0x40, 0]);
}

#[test]
fn a_missing_log_never_loses_the_wake() {
    for tail in [vec![], vec![Encoded::nop(8)], vec![Encoded::new(0x77, 0, &[])]] {
        let mut rig = Rig::new();
        let mut q = rig.queue(0, 0);
        let f = rig.fence();
        f.monitored.word(0).store(0, Ordering::SeqCst);
        let mut packets = vec![Encoded::fence_signal(f.current.va, 1)];
        packets.extend(tail);
        q.submit(&packets);
        rig.settle();
        assert!(rig.interrupts() >= 1);
        assert!(rig.drain().contains(&(0, Notice::FenceSignaled { fence: f.fence.slot, queue: q.queue.slot })));
    }
}

#[test]
fn a_plain_store_to_the_fence_notifies_nobody() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let f = rig.fence();
    f.monitored.word(0).store(0, Ordering::SeqCst);
    q.submit(&[packet::Store { address: f.current.va.0, value: 9 }.to_packet()]);
    rig.settle();
    assert_eq!((f.current.read(0), rig.interrupts()), (9, 0));
}

#[test]
fn the_monitored_value_is_read_only_to_the_gpu() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let f = rig.fence();
    let m = rig.map(1, false);
    q.submit(&[
        packet::Copy { source: f.monitored.va.0, destination: m.va.0, length: 8 }.to_packet(),
        packet::Store { address: f.monitored.va.0, value: 9 }.to_packet(),
    ]);
    rig.settle();
    assert_eq!(m.read(0), u64::MAX);
    assert_eq!(f.monitored.read(0), u64::MAX);
    assert_eq!(q.fault(), Some(FaultKind::Address));
}

#[test]
fn queues_wait_for_each_other_without_the_cpu() {
    let mut rig = Rig::new();
    let (mut a, mut b) = (rig.queue(0, 0), rig.queue(1, 1));
    let f = rig.fence();
    let m = rig.map(1, false);
    a.submit(&[
        Encoded::fence_wait(f.current.va, 5),
        log(WAIT_UNBLOCKED, 5, 0),
        packet::Store { address: m.va.0, value: 1 }.to_packet(),
    ]);
    rig.settle();
    assert_eq!((m.read(0), f.fence.parked.len()), (0, 1));
    b.submit(&[Encoded::fence_signal(f.current.va, 4)]);
    rig.settle();
    assert_eq!(m.read(0), 0);
    b.submit(&[Encoded::fence_signal(f.current.va, 6)]);
    rig.settle();
    assert_eq!((m.read(0), f.fence.parked.len(), rig.interrupts()), (1, 0, 0));
    let [value, handle_op, observed, end] = log_entry(a.waits, 0);
    assert_eq!((value, handle_op), (5, 0x40 | u64::from(WAIT_UNBLOCKED) << 32));
    assert!(observed != 0 && observed < end);
}

#[test]
fn a_met_wait_goes_on_and_logs_one_time() {
    let mut rig = Rig::new();
    let mut a = rig.queue(0, 0);
    let f = rig.fence();
    f.current.word(0).store(7, Ordering::SeqCst);
    a.submit(&[Encoded::fence_wait(f.current.va, 7), log(WAIT_UNBLOCKED, 7, 0)]);
    rig.settle();
    let [_, _, observed, end] = log_entry(a.waits, 0);
    assert_eq!(observed, end);
    assert_ne!(end, 0);
}

#[test]
fn a_value_that_was_reached_and_taken_back_still_lets_the_waiter_go() {
    let mut rig = Rig::new();
    let (mut a, mut b) = (rig.queue(0, 0), rig.queue(1, 1));
    let f = rig.fence();
    let m = rig.map(1, false);
    a.submit(&[Encoded::fence_wait(f.current.va, 5), packet::Store { address: m.va.0, value: 1 }.to_packet()]);
    rig.settle();
    b.submit(&[Encoded::fence_signal(f.current.va, 9), Encoded::fence_signal(f.current.va, 2)]);
    rig.settle();
    assert_eq!((m.read(0), f.current.read(0)), (1, 2));
    assert_eq!(rig.gpu.totals().backwards, 1);
}

#[test]
fn the_cpu_signals_and_wakes_parked_queues_in_order_of_value() {
    let mut rig = Rig::new();
    let f = rig.fence();
    let m = rig.map(1, false);
    let mut queues: Vec<_> = (0..4).map(|i| rig.queue(0, i)).collect();
    for (i, q) in queues.iter_mut().enumerate() {
        let value = [7, 3, 9, 5][i];
        q.submit(&[
            Encoded::fence_wait(f.current.va, value),
            packet::Store { address: m.at(i as u64 * 8).0, value }.to_packet(),
        ]);
    }
    rig.settle();
    let gpu = rig.gpu.clone();
    let woken = f.fence.signal_from_cpu(&f.current.word(0), 6, &gpu.mutation, |q, ticket| {
        q.wake(ticket, true);
        gpu.make_ready(&q);
    });
    assert_eq!(woken, 2);
    rig.settle();
    assert_eq!([0, 8, 16, 24].map(|o| m.read(o)), [0, 3, 0, 5]);
    // NotificationOnly: somebody else wrote the value; everyone looks for himself.
    f.current.word(0).store(8, Ordering::SeqCst);
    f.fence.parked.wake_all(|q, ticket| {
        q.wake(ticket, false);
        gpu.make_ready(&q);
    });
    rig.settle();
    assert_eq!([0, 8, 16, 24].map(|o| m.read(o)), [7, 3, 0, 5]);
    assert_eq!(f.fence.parked.len(), 1);
}

#[test]
fn an_always_signaled_fence_passes_waits_and_drops_signals() {
    let mut rig = Rig::new();
    let mut a = rig.queue(0, 0);
    let f = rig.fence();
    let m = rig.map(1, false);
    a.submit(&[Encoded::fence_wait(f.current.va, 5), packet::Store { address: m.va.0, value: 1 }.to_packet()]);
    rig.settle();
    let gpu = rig.gpu.clone();
    f.fence.set_always_signaled(|q, ticket| {
        q.wake(ticket, true);
        gpu.make_ready(&q);
    });
    rig.settle();
    assert_eq!(m.read(0), 1);
    a.submit(&[
        Encoded::fence_signal(f.current.va, 77),
        Encoded::fence_wait(f.current.va, u64::MAX),
        packet::Store { address: m.va.0, value: 2 }.to_packet(),
    ]);
    rig.settle();
    assert_eq!((f.current.read(0), m.read(0)), (0, 2));
}

#[test]
fn bad_packets_fault_their_queue_and_nothing_else() {
    let cases: Vec<(Vec<Encoded>, FaultKind)> = vec![
        (vec![Encoded::new(0x55, 0, &[])], FaultKind::BadOpcode),
        (vec![Encoded::new(packet::opcode::STORE, 0, &[0; 8])], FaultKind::BadLength),
        (vec![packet::Store { address: 0x7777_0000_0000, value: 0 }.to_packet()], FaultKind::Address),
        (vec![packet::Store { address: 4, value: 0 }.to_packet()], FaultKind::BadOperand),
        (vec![packet::Store { address: 1 << 50, value: 0 }.to_packet()], FaultKind::BadOperand),
        (vec![packet::TlbFlush { space: 1, start: 0, end: 0 }.to_packet()], FaultKind::NotPermitted),
        (vec![Encoded::fence_signal(GpuVa(0x10_0000), 1)], FaultKind::UnknownFence),
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
        let [(0, Notice::QueueFaulted { queue, fault: Fault { kind: k, .. }, progress: 1 })] = notices[..] else {
            panic!("{notices:?}")
        };
        assert_eq!((queue, k), (bad.queue.slot, kind));
    }
}

#[test]
fn hostile_write_pointers_fault_their_queue() {
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
    let table = rig.leaf_table(&rig.process.clone(), q.ring.va);
    rig.entry(table, pte::index(q.ring.va, 0)).store(0, Ordering::SeqCst);
    let n = rig.gpu.flush(rig.process.space.id, 0, 0);
    rig.settle();
    assert!(rig.gpu.flush_done(n));
    q.submit(&[Encoded::nop(8)]);
    rig.settle();
    let notices = rig.drain();
    let [(0, Notice::QueueFaulted { fault, .. })] = notices[..] else { panic!("{notices:?}") };
    assert_eq!(fault, Fault::address(q.ring.va, false));
}

#[test]
fn an_interrupt_that_cannot_be_raised_is_asked_for_again() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let f = rig.fence();
    f.monitored.word(0).store(0, Ordering::SeqCst);
    rig.gpu.host.refuse_interrupts.store(true, Ordering::SeqCst);
    q.submit(&[Encoded::fence_signal(f.current.va, 1)]);
    for _ in 0..10 {
        rig.engines[0].step();
    }
    assert_eq!(rig.interrupts(), 0);
    rig.gpu.host.refuse_interrupts.store(false, Ordering::SeqCst);
    assert_eq!(rig.engines[0].step(), Step::Idle { connected: true });
    assert_eq!(rig.interrupts(), 1);
    assert_eq!(rig.drain().len(), 1);
}

#[test]
fn an_overflowing_mailbox_asks_for_a_scan_of_everything() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let fences: Vec<_> = (0..300).map(|_| rig.fence()).collect();
    for chunk in fences.chunks(100) {
        for f in chunk {
            f.monitored.word(0).store(0, Ordering::SeqCst);
        }
        let signals: Vec<_> = chunk.iter().map(|f| Encoded::fence_signal(f.current.va, 1)).collect();
        q.submit(&signals);
        rig.settle();
    }
    let notices = rig.drain();
    assert_eq!(notices.len(), 257);
    assert_eq!(notices[256], (0, Notice::FencesSignaled));
    // And afterwards every fence can be named again.
    q.submit(&[Encoded::fence_signal(fences[299].current.va, 2)]);
    rig.settle();
    assert_eq!(rig.drain(), [(0, Notice::FenceSignaled { fence: fences[299].fence.slot, queue: q.queue.slot })]);
}

#[test]
fn a_killed_slot_names_nothing() {
    let mut rig = Rig::new();
    let f = rig.fence();
    assert!(rig.gpu.slots.handle(f.fence.slot).is_some());
    rig.gpu.slots.kill(f.fence.slot);
    assert_eq!(rig.gpu.slots.handle(f.fence.slot), None);
    rig.gpu.slots.free(f.fence.slot);
    let reused = rig.gpu.slots.allocate(5).unwrap();
    assert_eq!(reused.index, f.fence.slot.index);
    assert_ne!(reused.generation, f.fence.slot.generation);
    assert_eq!((rig.gpu.slots.handle(f.fence.slot), rig.gpu.slots.handle(reused)), (None, Some(5)));
}

#[test]
fn command_buffers_return_to_the_ring_and_replace_each_other() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let (m, code) = (rig.map(1, false), rig.map(1, false));
    let write = |at: u64, packets: &[Encoded]| {
        let bytes: Vec<u8> = packets.iter().flat_map(|p| p.as_bytes().to_vec()).collect();
        code.bytes.part(at, u64::MAX).write(&bytes);
        bytes.len() as u64
    };
    let store = |i: u64| packet::Store { address: m.at(i * 8).0, value: i + 1 }.to_packet();
    let second = write(1024, &[store(1)]);
    let jump = packet::Indirect { address: code.at(1024).0, length: second }.to_packet();
    let first = write(0, &[store(0), jump, store(7)]);
    q.submit(&[packet::Indirect { address: code.va.0, length: first }.to_packet(), store(2)]);
    rig.settle();
    assert_eq!([0, 1, 2, 7].map(|i| m.read(i * 8)), [1, 2, 3, 0]);
}

/// A queue in an endless INDIRECT loop, and its neighbour on the same node.
fn hang(rig: &mut Rig) -> (support::TestQueue, support::TestQueue) {
    let (mut bad, good) = (rig.queue(0, 0), rig.queue(0, 1));
    let code = rig.map(1, false);
    let jump = packet::Indirect { address: code.va.0, length: 24 }.to_packet();
    code.bytes.write(jump.as_bytes());
    bad.submit(&[jump]);
    (bad, good)
}

#[test]
fn an_endless_loop_ends_in_a_reset_that_names_it_alone() {
    let mut rig = Rig::new();
    let (bad, mut good) = hang(&mut rig);
    let m = rig.map(1, false);
    good.submit(&[packet::Store { address: m.va.0, value: 3 }.to_packet()]);
    let gpu = rig.gpu.clone();
    std::thread::scope(|s| {
        s.spawn(|| while rig.engines[0].step() != Step::Held {});
        while gpu.nodes[0].counters.read().indirects < 1_000 {
            std::thread::yield_now();
        }
        gpu.command(0, Control::Hold);
    });
    let interrupted = gpu.nodes[0].take_interrupted().unwrap();
    assert_eq!(interrupted.slot, bad.queue.slot);
    assert_eq!(bad.queue.state(), State::Stopped);
    assert_eq!(rig.engines[0].step(), Step::Held);
    assert!(rig.drain().is_empty());
    gpu.command(0, Control::Run);
    rig.settle();
    assert_eq!(m.read(0), 3);
    good.submit(&[packet::Store { address: m.va.0, value: 4 }.to_packet()]);
    rig.settle();
    assert_eq!(m.read(0), 4);
}

#[test]
fn an_endless_loop_keeps_nobody_else_from_being_suspended() {
    let mut rig = Rig::new();
    let (bad, good) = hang(&mut rig);
    let gpu = rig.gpu.clone();
    std::thread::scope(|s| {
        s.spawn(|| while rig.engines[0].step() != Step::Held {});
        while gpu.nodes[0].counters.read().indirects < 1_000 {
            std::thread::yield_now();
        }
        assert_eq!(gpu.suspend(&bad.queue.context, 1), Suspend::Pending);
        assert_eq!(gpu.suspend(&good.queue.context, 2), Suspend::Pending);
        while gpu.nodes[0].mailbox.is_empty() {
            std::thread::yield_now();
        }
        gpu.command(0, Control::Hold);
    });
    assert_eq!(rig.drain(), [(0, Notice::ContextSuspended { context: good.queue.context.slot, fence: 2 })]);
}

#[test]
fn suspension_is_answered_once_and_only_for_the_newest_request() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let m = rig.map(1, false);
    let gpu = rig.gpu.clone();
    assert_eq!(gpu.suspend(&q.queue.context, 1), Suspend::Pending);
    assert!(q.queue.context.resume());
    assert_eq!(gpu.suspend(&q.queue.context, 2), Suspend::Pending);
    rig.settle();
    assert_eq!(rig.drain(), [(0, Notice::ContextSuspended { context: q.queue.context.slot, fence: 2 })]);
    assert_eq!(gpu.suspend(&q.queue.context, 3), Suspend::Already);
    q.submit(&[packet::Store { address: m.va.0, value: 1 }.to_packet()]);
    rig.settle();
    assert_eq!(m.read(0), 0);
    q.queue.context.resume();
    gpu.make_ready(&q.queue);
    rig.settle();
    assert_eq!(m.read(0), 1);
}

#[test]
fn a_long_fill_gives_way_and_goes_on() {
    let mut rig = Rig::new();
    let mut q = rig.queue(1, 0);
    let a = rig.map(1000, false);
    let n = 1000 * PAGE_SIZE;
    q.submit(&[packet::Fill { address: a.va.0, length: n, pattern: 0x5555_5555, reserved: 0 }.to_packet()]);
    let gpu = rig.gpu.clone();
    assert_eq!(gpu.suspend(&q.queue.context, 1), Suspend::Pending);
    rig.settle();
    assert_eq!(rig.drain().len(), 1);
    q.queue.context.resume();
    gpu.make_ready(&q.queue);
    rig.settle();
    assert_eq!((a.read(0), a.read(n - 8)), (0x5555_5555_5555_5555, 0x5555_5555_5555_5555));
}

#[test]
fn global_doorbell_rings_reach_every_queue() {
    let mut rig = Rig::with(Model::Global, false);
    let (mut a, mut b) = (rig.queue(0, 0), rig.queue(1, 0));
    let m = rig.map(1, false);
    rig.settle();
    // Both ring before anyone looks: the second value covers the first.
    a.submit(&[packet::Store { address: m.va.0, value: 1 }.to_packet()]);
    b.submit(&[packet::Store { address: m.at(8).0, value: 2 }.to_packet()]);
    rig.settle();
    assert_eq!((m.read(0), m.read(8)), (1, 2));
    // The same value twice, with a look in between, is two rings.
    a.publish(&[packet::Store { address: m.va.0, value: 3 }.to_packet()]);
    b.ring();
    rig.settle();
    assert_eq!(m.read(0), 3);
}

fn packet_of(rig: &mut Rig, fence: u32, paging: bool, packets: &[Encoded]) -> PacketSubmission<support::TestHost> {
    let process = if paging { rig.paging.clone() } else { rig.process.clone() };
    let code = rig.map(1, false);
    if paging {
        let Place::System(frame) = rig_frame(rig, code.va) else { panic!() };
        rig.map_at(&process, code.va, Place::System(frame), false);
    }
    let bytes: Vec<u8> = packets.iter().flat_map(|p| p.as_bytes().to_vec()).collect();
    code.bytes.write(&bytes);
    PacketSubmission { fence, process, address: code.va, length: bytes.len() as u64, silent: false }
}

fn rig_frame(rig: &mut Rig, va: GpuVa) -> Place {
    let table = rig.leaf_table(&rig.process.clone(), va);
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
        gpu.nodes[2].packets.with(|q| q.submit(p)).unwrap();
    }
    rig.settle();
    let fences: Vec<_> = (1..=3).map(|fence| (2, Notice::PacketCompleted { fence })).collect();
    assert_eq!(rig.drain(), fences);
    let p = packet_of(&mut rig, 4, false, &[Encoded::nop(8)]);
    gpu.nodes[2].packets.with(|q| q.submit(p)).unwrap();
    let dropped = gpu.nodes[2].packets.with(|q| q.preempt(9));
    assert_eq!(dropped.len(), 1);
    gpu.command(2, Control::Run);
    rig.settle();
    assert_eq!(rig.drain(), [(2, Notice::PacketPreempted { request: 9, completed: 3 })]);
    assert_eq!(gpu.nodes[2].packets.with(|q| q.fences()), (3, 4));
}

#[test]
fn paging_packets_change_translations_only_after_every_engine_let_go() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let m = rig.map(1, false);
    let other = rig.map(1, false);
    q.submit(&[packet::Store { address: m.va.0, value: 1 }.to_packet()]);
    rig.settle();
    let table = rig.leaf_table(&rig.process.clone(), m.va);
    let target = rig_frame(&mut rig, other.va);
    let write =
        Encoded::table_write(Pte::table(table).unwrap(), pte::index(m.va, 0), &[Pte::leaf(target, false).unwrap()]);
    let flush = packet::TlbFlush { space: rig.process.space.id, start: m.va.0, end: m.va.0 + PAGE_SIZE };
    let p = packet_of(&mut rig, 1, true, &[write, flush.to_packet()]);
    rig.gpu.nodes[2].packets.with(|q| q.submit(p)).unwrap();
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

#[test]
fn flushing_everything_leaves_no_mapping() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let m = rig.map(3, false);
    q.submit(&[packet::Store { address: m.va.0, value: 1 }.to_packet()]);
    rig.settle();
    assert_ne!(rig.gpu.host.mappings.load(Ordering::Relaxed), 0);
    q.queue.bind(None);
    let n = rig.gpu.flush(rig.process.space.id, 0, 0);
    rig.settle();
    assert!(rig.gpu.flush_done(n));
    assert_eq!(rig.gpu.host.mappings.load(Ordering::Relaxed), 0);
}

#[test]
fn a_disconnected_queue_is_watched_until_the_page_was_rotated() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let m = rig.map(1, false);
    rig.settle();
    let gpu = rig.gpu.clone();
    gpu.doorbells.disconnect(0);
    gpu.scan(&q.queue);
    // The ring lands in the old page, which nobody reads any more; the write pointer is seen all the same.
    q.publish(&[packet::Store { address: m.va.0, value: 1 }.to_packet()]);
    rig.engines[0].step();
    rig.engines[0].step();
    assert_eq!(m.read(0), 1);
    gpu.stop_scanning(&q.queue);
    rig.settle();
    q.publish(&[packet::Store { address: m.va.0, value: 2 }.to_packet()]);
    rig.settle();
    assert_eq!(m.read(0), 1);
    gpu.doorbells.connect(2, &q.queue);
    gpu.make_ready(&q.queue);
    rig.settle();
    assert_eq!(m.read(0), 2);
}

#[test]
fn log_overrun_counts_and_never_leaves_the_buffer() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let f = rig.fence();
    for v in 0..200u64 {
        q.submit(&[Encoded::fence_signal(f.current.va, v), log(SIGNAL_EXECUTED, v, u32::MAX)]);
        rig.settle();
    }
    assert_eq!(log_position(q.signals), (200 % 84, 2));
    assert_eq!(q.queue.signals.with(|l| (l.written, l.hint_misses)), (200, 200));
    let mut last = 0;
    for v in 168..200u64 {
        let [value, _, observed, end] = log_entry(q.signals, v % 84);
        assert_eq!((value, observed), (v, 0));
        assert!(end >= last);
        last = end;
    }
}

#[test]
fn a_recreated_log_gets_every_later_entry() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let f = rig.fence();
    q.submit(&[Encoded::fence_signal(f.current.va, 1), log(SIGNAL_EXECUTED, 1, 0)]);
    rig.settle();
    let fresh = rig.map(1, false).bytes;
    q.queue.signals.with(|l| l.set(fresh, 84, &rig.gpu.mutation)).unwrap();
    q.submit(&[Encoded::fence_signal(f.current.va, 2), log(SIGNAL_EXECUTED, 2, 0)]);
    rig.settle();
    assert_eq!((log_position(q.signals), log_position(fresh)), ((1, 0), (1, 0)));
    assert_eq!(log_entry(fresh, 0)[0], 2);
    assert!(q.queue.signals.with(|l| l.set(fresh, 0, &rig.gpu.mutation)).is_err());
    assert!(q.queue.signals.with(|l| l.set(fresh, 85, &rig.gpu.mutation)).is_err());
}

#[test]
fn an_interrupt_names_a_queue_only_if_its_log_tells() {
    let mut rig = Rig::with(Model::Dedicated, true);
    let mut q = rig.queue(0, 0);
    let f = rig.fence();
    f.monitored.word(0).store(0, Ordering::SeqCst);
    let signal = |value| packet::Fence { fence: f.current.va.0, value }.to_packet();
    q.submit(&[signal(1), log(SIGNAL_EXECUTED, 1, 0)]);
    rig.settle();
    assert_eq!(rig.drain(), [(0, Notice::FenceSignaled { fence: f.fence.slot, queue: q.queue.slot })]);
    q.submit(&[signal(2)]);
    rig.settle();
    assert_eq!(rig.drain(), [(0, Notice::FencesSignaled)]);
    // A logged one does not hide one that is not.
    q.submit(&[signal(3), log(SIGNAL_EXECUTED, 3, 1), signal(4)]);
    rig.settle();
    assert!(rig.drain().contains(&(0, Notice::FencesSignaled)));
}

#[test]
fn a_corrupted_packet_faults_whatever_it_is() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let m = rig.map(1, false);
    rig.gpu.faults.corrupt_packet.store(2, Ordering::Relaxed);
    rig.gpu.faults.arm();
    let store = |i: u64| packet::Store { address: m.at(i * 8).0, value: 0x100 }.to_packet();
    q.submit(&[store(0), store(1), store(2)]);
    rig.settle();
    assert_eq!([0, 8, 16].map(|o| m.read(o)), [0x100, 0, 0]);
    assert!(matches!(rig.drain()[..], [(0, Notice::QueueFaulted { .. })]));
}

#[test]
fn a_fence_that_no_engine_signals_is_reported_by_a_node_that_is_not_held() {
    let mut rig = Rig::new();
    assert_eq!(rig.gpu.speaker(), Some(0));
    rig.gpu.command(0, Control::Hold);
    assert_eq!(rig.gpu.speaker(), Some(1));
    rig.gpu.command(1, Control::Hold);
    rig.gpu.command(2, Control::Hold);
    rig.settle();
    // Nobody may speak: it is reported when the first one is resumed, and once.
    assert_eq!(rig.gpu.speaker(), None);
    assert_eq!(rig.interrupts(), 0);
    for node in 0..3 {
        rig.gpu.command(node, Control::Run);
        rig.gpu.raise_again(node);
    }
    rig.settle();
    assert_eq!(rig.interrupts(), 1);
    assert_eq!(rig.drain(), [(0, Notice::FencesSignaled)]);
}

/// Each of these tests fails with the mutation that it is there for.
#[cfg(feature = "mutants")]
#[test]
fn what_is_left_out_is_noticed() {
    use gpu_engine::mutation::Mutation;
    let rows: &[(Mutation, fn())] = &[
        (Mutation::FlushNotWaited, paging_packets_change_translations_only_after_every_engine_let_go),
        (Mutation::DropOnOverflow, an_overflowing_mailbox_asks_for_a_scan_of_everything),
        (Mutation::ReportsWhileHeld, a_fence_that_no_engine_signals_is_reported_by_a_node_that_is_not_held),
        (Mutation::WritesDeadFence, an_always_signaled_fence_passes_waits_and_drops_signals),
        (Mutation::NoWakeFromCpu, the_cpu_signals_and_wakes_parked_queues_in_order_of_value),
        (Mutation::LogKeepsOldBuffer, a_recreated_log_gets_every_later_entry),
    ];
    for (mutation, test) in rows {
        test();
        support::MUTATION.set(*mutation as u32);
        let outcome = std::panic::catch_unwind(test);
        support::MUTATION.set(0);
        assert!(outcome.is_err(), "{} was not noticed", mutation.name());
    }
}
