//! Engines come off anywhere, and look up often: inside of command buffers, inside of operations, whatever the packets
//! are (TE-07, DB-35).

use crate::packet_mode::packet_of;
use crate::scheduling_logs::named;
use crate::support::{Range, Rig, TestQueue};
use gpu_engine::context::Suspend;
use gpu_engine::engine::Step;
use gpu_engine::node::{Control, Phase};
use gpu_engine::notice::Notice;
use gpu_engine::word::{Ordering, Word};
use gpu_wire::packet::{self, Encoded, FaultKind};
use gpu_wire::pte::Place;
use gpu_wire::{GpuVa, PAGE_SIZE};

/// Bytes that an engine may move between two looks.
pub(crate) const BOUND: u64 = gpu_engine::engine::BETWEEN_LOOKS;

/// A command buffer that stores 1 to `to` and begins anew, for ever.
pub(crate) fn endless(rig: &mut Rig, to: GpuVa) -> Encoded {
    let code = rig.map(1, false);
    let store = packet::Store { address: to.0, value: 1 }.to_packet();
    let length = (store.as_bytes().len() + 24) as u64;
    let jump = packet::Indirect { address: code.va.0, length }.to_packet();
    code.bytes.write(store.as_bytes());
    code.bytes.part(store.as_bytes().len() as u64, u64::MAX).write(jump.as_bytes());
    jump
}

fn step(rig: &mut Rig, node: usize, times: u32) {
    for _ in 0..times {
        rig.engines[node].step();
    }
}

#[test]
fn an_endless_command_buffer_comes_off_and_goes_on() {
    let mut rig = Rig::new();
    let (mut hog, m) = (rig.queue(0, 0), rig.map(1, false));
    let jump = endless(&mut rig, m.va);
    hog.submit(&[jump]);
    let gpu = rig.gpu.clone();
    std::thread::scope(|s| {
        s.spawn(|| while rig.engines[0].step() != Step::Held {});
        while m.read(0) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(gpu.suspend(&hog.queue.context, 7), Suspend::Pending);
        while gpu.nodes[0].mailbox.is_empty() {
            std::thread::yield_now();
        }
        gpu.command(0, Control::Hold);
    });
    gpu.command(0, Control::Run);
    assert!(gpu.nodes[0].take_interrupted().is_none(), "a context that is off is lost");
    assert_eq!(rig.drain(), [(0, Notice::ContextSuspended { context: hog.queue.context.slot, fence: 7 })]);
    m.word(0).store(0, Ordering::SeqCst);
    step(&mut rig, 0, 20);
    assert_eq!(m.read(0), 0, "it runs although it is suspended");
    assert!(hog.queue.context.resume());
    gpu.make_ready(&hog.queue);
    std::thread::scope(|s| {
        s.spawn(|| while rig.engines[0].step() != Step::Held {});
        while m.read(0) == 0 {
            std::thread::yield_now();
        }
        gpu.command(0, Control::Hold);
    });
    assert_eq!(hog.fault(), None);
}

#[test]
fn an_endless_command_buffer_leaves_its_node_to_others() {
    let mut rig = Rig::new();
    let (mut hog, mut good, m) = (rig.queue(0, 0), rig.queue(0, 1), rig.map(1, false));
    let jump = endless(&mut rig, m.va);
    hog.submit(&[jump]);
    let gpu = rig.gpu.clone();
    std::thread::scope(|s| {
        s.spawn(|| while rig.engines[0].step() != Step::Held {});
        for value in 1..=50 {
            // The doorbell rings in the middle of the other's turn.
            good.submit(&[packet::Store { address: m.at(8).0, value }.to_packet()]);
            while m.read(8) != value {
                std::thread::yield_now();
            }
        }
        gpu.command(0, Control::Hold);
    });
}

/// What a command buffer jumps to and from is kept while the engine is away: each packet is executed once.
#[test]
fn an_indirect_returns_behind_itself_after_it_came_off() {
    let mut rig = Rig::new();
    let (mut q, mut other) = (rig.queue(0, 0), rig.queue(0, 1));
    let (code, m, big) = (rig.map(1, false), rig.map(1, false), rig.map(1024, false));
    let fill = |pattern, length| packet::Fill { address: big.va.0, length, pattern, reserved: 0 }.to_packet();
    let copy = packet::CopyRect {
        source: m.at(0).0,
        destination: m.at(8).0,
        source_pitch: 8,
        destination_pitch: 8,
        row_bytes: 8,
        rows: 1,
    };
    // In the buffer: a fill that takes more than a turn, then a word from 0 to 8 of `m`.
    let mut at = 0;
    for packet in [fill(7, 1024 * PAGE_SIZE), copy.to_packet(), fill(9, 1024 * PAGE_SIZE)] {
        code.bytes.part(at, u64::MAX).write(packet.as_bytes());
        at += packet.as_bytes().len() as u64;
    }
    let store = |to, value| packet::Store { address: m.at(to).0, value }.to_packet();
    let jump = packet::Indirect { address: code.va.0, length: at }.to_packet();
    q.publish(&[store(0, 3), jump, store(0, 5), store(16, 6)]);
    other.publish(&[Encoded::nop(8)]);
    q.ring();
    other.ring();
    let mut turns = 0;
    while m.read(16) == 0 {
        other.submit(&[Encoded::nop(8)]);
        rig.engines[0].step();
        turns += 1;
        assert!(turns < 1_000);
    }
    assert_eq!((m.read(0), m.read(8), m.read(16)), (5, 3, 6));
    assert_eq!(big.read(0), 0x0000_0009_0000_0009);
    let counters = rig.gpu.nodes[0].counters.read();
    assert_eq!((counters.indirects, counters.bytes), (1, 2 * 1024 * PAGE_SIZE + 8));
    assert!(turns > 3, "it never came off: {turns}");
}

#[test]
fn packets_and_queues_take_turns() {
    let mut rig = Rig::new();
    let (mut q, m) = (rig.queue(0, 0), rig.map(1, false));
    let jump = endless(&mut rig, m.va);
    let hog = packet_of(&mut rig, 1, false, &[jump]);
    rig.gpu.nodes[0].packets.with(|queue| queue.submit(hog, &rig.gpu.mutation)).unwrap();
    q.submit(&[packet::Store { address: m.at(8).0, value: 5 }.to_packet()]);
    step(&mut rig, 0, 2);
    assert_eq!((m.read(0), m.read(8)), (1, 5), "an endless packet has the engine for itself");
    // And the other way round.
    let mut rig = Rig::new();
    let (mut hog, m) = (rig.queue(0, 0), rig.map(1, false));
    let jump = endless(&mut rig, m.va);
    hog.submit(&[jump]);
    let packet = packet_of(&mut rig, 1, false, &[packet::Store { address: m.at(8).0, value: 5 }.to_packet()]);
    let gpu = rig.gpu.clone();
    std::thread::scope(|s| {
        s.spawn(|| while rig.engines[0].step() != Step::Held {});
        while m.read(0) == 0 {
            std::thread::yield_now();
        }
        gpu.nodes[0].packets.with(|queue| queue.submit(packet, &gpu.mutation)).unwrap();
        while m.read(8) == 0 || gpu.nodes[0].mailbox.is_empty() {
            std::thread::yield_now();
        }
        gpu.command(0, Control::Hold);
    });
    assert_eq!(rig.drain(), [(0, Notice::PacketCompleted { fence: 1 })]);
}

/// Maps `pages` pages of which no two lie next to each other in the host, so that each is a window of its own.
pub(crate) fn scattered(rig: &mut Rig, pages: u64, stride: u64, at: u64) -> GpuVa {
    let space = rig.context.clone();
    for i in 0..pages {
        let frame = rig.frame();
        rig.frame();
        rig.map_at(&space, GpuVa(at + i * stride), Place::System(frame), false);
    }
    GpuVa(at)
}

/// What an engine did for one operation.
struct Done {
    /// The most work between two looks, as the engine counts it.
    most: u64,
    /// Steps, between which it looks up.
    steps: u64,
    /// Mappings that the host was asked for.
    maps: u64,
}

/// Runs `packets` on a fresh machine.
fn done(packets: impl FnOnce(&mut Rig) -> Vec<Encoded>) -> Done {
    let mut rig = Rig::new();
    let mut q: TestQueue = rig.queue(0, 0);
    let packets = packets(&mut rig);
    // The ring is mapped, which has looks of its own.
    q.submit(&[Encoded::nop(8)]);
    rig.settle();
    let asked = rig.gpu.host.asked.lock().unwrap().len() as u64;
    assert!((16 << 10..=BOUND).contains(&rig.gpu.nodes[0].counters.most_between_looks.swap(0, Ordering::Relaxed)));
    q.submit(&packets);
    rig.settle();
    assert_eq!(q.fault(), None::<FaultKind>);
    let counters = rig.gpu.nodes[0].counters.read();
    let maps = rig.gpu.host.asked.lock().unwrap().len() as u64 - asked;
    Done { most: counters.most_between_looks, steps: counters.steps, maps }
}

/// Rows of one byte between two looks, at most: each counts as 512 bytes.
const ROWS: u64 = 260;
/// Mappings between two looks, at most: each counts as 50 KiB, and a translation that misses may come last.
const MAPS: u64 = BOUND / (50 << 10);

/// Each kind of packet at its worst: as many runs, rows, pages and mappings as it can have. What the engine counts is
/// checked against what the test itself knows of rows and the host of mappings.
#[test]
fn the_engine_looks_up_often_enough_whatever_the_packet_says() {
    const FAR: u64 = 0x40_0000_0000;
    let rect = |from: GpuVa, to: GpuVa, pitch, row_bytes, rows| {
        let (source, destination) = (from.0, to.0);
        packet::CopyRect { source, destination, source_pitch: pitch, destination_pitch: pitch, row_bytes, rows }
            .to_packet()
    };
    let stride = 512 * PAGE_SIZE;
    // With the rows of each.
    let cases: [(&str, Done, u64); 7] = [
        (
            "FILL | large, mapped in one piece",
            done(|rig| {
                let big: Range = rig.map(2048, false);
                let length = 2048 * PAGE_SIZE;
                vec![packet::Fill { address: big.va.0, length, pattern: 1, reserved: 0 }.to_packet()]
            }),
            1,
        ),
        (
            "FILL | each page a window of its own",
            done(|rig| {
                let at = scattered(rig, 256, PAGE_SIZE, FAR);
                vec![packet::Fill { address: at.0, length: 256 * PAGE_SIZE, pattern: 1, reserved: 0 }.to_packet()]
            }),
            1,
        ),
        (
            "COPY | each page of either side a window of its own",
            done(|rig| {
                let (a, b) = (scattered(rig, 256, PAGE_SIZE, FAR), scattered(rig, 256, PAGE_SIZE, 2 * FAR));
                vec![packet::Copy { source: a.0 + 8, destination: b.0, length: 255 * PAGE_SIZE }.to_packet()]
            }),
            1,
        ),
        (
            "COPY_RECT | rows of one byte",
            done(|rig| {
                let (a, b) = (rig.map(64, false), rig.map(64, false));
                vec![rect(a.va, b.va, 1, 1, 200_000)]
            }),
            200_000,
        ),
        (
            "COPY_RECT | each row behind a page table of its own",
            done(|rig| {
                let (a, b) = (scattered(rig, 64, stride, FAR), scattered(rig, 64, stride, 2 * FAR));
                vec![rect(a, b, stride as u32, 1, 64)]
            }),
            64,
        ),
        (
            "FILTER_RECT | one pixel wide",
            done(|rig| {
                let (a, b) = (rig.map(64, false), rig.map(64, false));
                vec![filter(a.va, b.va, 1, 60_000, 4)]
            }),
            // Three rows are read for each that is written.
            240_000,
        ),
        (
            "FILTER_RECT | each row behind page tables of its own",
            done(|rig| {
                let (a, b) = (scattered(rig, 64, stride, FAR), scattered(rig, 64, stride, 2 * FAR));
                vec![filter(a, b, 1, 64, stride as u32)]
            }),
            64,
        ),
    ];
    let table = include_str!("../../README.md");
    for (kind, Done { most, steps, maps }, rows) in cases {
        let row = format!("{kind} | {},{:03} |", most / 1000, most % 1000);
        assert!(table.contains(&row), "README.md, \"How often an engine looks up\": wanted is {row}");
        assert!((16 << 10..=BOUND).contains(&most), "{kind}: {most} between two looks");
        assert!(rows <= steps * ROWS, "{kind}: {rows} rows in {steps} steps");
        assert!(maps <= (steps + 1) * MAPS, "{kind}: {maps} mappings in {steps} steps");
    }
}

fn filter(from: GpuVa, to: GpuVa, width: u32, height: u32, pitch: u32) -> Encoded {
    packet::FilterRect {
        source: from.0,
        destination: to.0,
        source_pitch: pitch,
        destination_pitch: pitch,
        image_width: width,
        image_height: height,
        x: 0,
        y: 0,
        width,
        height,
        coefficients: [0, 0, 0, 0, 1, 0, 0, 0, 0],
        bias: 0,
        shift: 0,
        reserved: 0,
    }
    .to_packet()
}

/// Unmapping interrupts every processor: an engine that has much mapped answers a hold in between, and acknowledges the
/// flush when all is unmapped.
#[test]
fn a_hold_is_answered_while_much_is_unmapped() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let at = scattered(&mut rig, 4_096, PAGE_SIZE, 0x40_0000_0000);
    q.submit(&[packet::Fill { address: at.0, length: 4_096 * PAGE_SIZE, pattern: 1, reserved: 0 }.to_packet()]);
    rig.settle();
    let before = rig.gpu.host.mappings.load(Ordering::Relaxed);
    // All but the few that are let go of for others beforehand.
    assert!(before > 4_090, "{before}");
    let flush = rig.gpu.flush(rig.process.number, 0, 0);
    rig.gpu.command(0, Control::Hold);
    rig.engines[0].step();
    assert_eq!(rig.gpu.nodes[0].phase(), Phase::Held);
    assert!(!rig.gpu.flush_done(flush) && rig.gpu.host.mappings.load(Ordering::Relaxed) > before - 20);
    let mut steps = 0;
    while rig.engines[0].step() == Step::Worked {
        steps += 1;
    }
    rig.settle();
    assert!(rig.gpu.flush_done(flush) && steps > 200, "{steps}");
    assert_eq!(rig.gpu.host.mappings.load(Ordering::Relaxed), 0);
}

/// Runs the engine of node 0 until `condition` holds; returns whether it did within some seconds. What runs without an
/// end is held then.
pub(crate) fn holds_while_it_runs(rig: &mut Rig, mut condition: impl FnMut() -> bool) -> bool {
    let gpu = rig.gpu.clone();
    std::thread::scope(|s| {
        s.spawn(|| while rig.engines[0].step() != Step::Held {});
        let begun = std::time::Instant::now();
        let mut held = condition();
        while !held && begun.elapsed() < std::time::Duration::from_secs(5) {
            std::thread::yield_now();
            held = condition();
        }
        gpu.command(0, Control::Hold);
        held
    })
}

/// A command buffer without an end leaves its turn where an interrupt is owed that could not be raised.
#[test]
fn an_endless_command_buffer_does_not_keep_an_interrupt_back() {
    let mut rig = Rig::new();
    let (mut hog, m, f) = (rig.queue(0, 0), rig.map(1, false), rig.fence());
    f.monitored.word(0).store(0, Ordering::SeqCst);
    let jump = endless(&mut rig, m.va);
    rig.gpu.host.refuse_interrupts.store(true, Ordering::SeqCst);
    hog.submit(&[Encoded::fence_signal(f.current.va, 1), jump]);
    let gpu = rig.gpu.clone();
    let raised = holds_while_it_runs(&mut rig, || {
        // Once it runs, interrupts can be raised again.
        if m.read(0) == 1 {
            gpu.host.refuse_interrupts.store(false, Ordering::SeqCst);
        }
        gpu.host.interrupts.load(Ordering::SeqCst) == 1
    });
    assert!(raised);
}

/// The same where notices wait for room in the mailbox.
#[test]
fn an_endless_command_buffer_does_not_keep_notices_back() {
    let contexts = gpu_engine::notice::CAPACITY + 20;
    let mut rig = Rig::new();
    let (mut hog, m) = (rig.queue(0, 0), rig.map(1, false));
    let others: Vec<_> = (0..contexts).map(|_| rig.context(0)).collect();
    let jump = endless(&mut rig, m.va);
    hog.submit(&[jump]);
    let gpu = rig.gpu.clone();
    for (context, fence) in others.iter().zip(1..) {
        assert_eq!(gpu.suspend(context, fence), Suspend::Pending);
    }
    let mut told = 0;
    let all = holds_while_it_runs(&mut rig, || {
        // The interrupt routine comes when it runs already, and again.
        if m.read(0) == 1 {
            gpu.drain(0, |_| told += 1);
        }
        told == contexts
    });
    assert!(all, "{told} of {contexts}");
}

/// A DDI may wait for a flush that the engine serves in the middle of its turn: the host is told of it there.
#[test]
fn an_endless_command_buffer_does_not_keep_the_answer_to_a_flush_back() {
    let mut rig = Rig::new();
    let (mut hog, m) = (rig.queue(0, 0), rig.map(1, false));
    let jump = endless(&mut rig, m.va);
    hog.submit(&[jump]);
    let (gpu, flushes) = (rig.gpu.clone(), rig.gpu.host.flushes.clone());
    let mut posted = None;
    let told = holds_while_it_runs(&mut rig, || {
        if posted.is_none() && m.read(0) == 1 {
            posted = Some(flushes.load(Ordering::Relaxed));
            gpu.flush(u64::MAX, 0, 0);
        }
        posted.is_some_and(|before| flushes.load(Ordering::Relaxed) > before)
    });
    assert!(told);
}

/// The same of a doorbell that rings, and of a queue whose doorbell the OS has disconnected, so that the engine looks
/// at its write pointer itself.
#[test]
fn an_endless_command_buffer_does_not_keep_other_queues_back() {
    for watched in [false, true] {
        let mut rig = Rig::new();
        let (mut hog, m, n) = (rig.queue(0, 0), rig.map(1, false), rig.map(1, false));
        let mut other = rig.queue(0, 1);
        rig.settle();
        if watched {
            rig.gpu.doorbells.disconnect(1);
            rig.gpu.watch_pointer(&other.queue, 1);
        }
        let jump = endless(&mut rig, m.va);
        hog.submit(&[jump]);
        let mut work = vec![packet::Store { address: n.va.0, value: 9 }.to_packet()];
        let ran = holds_while_it_runs(&mut rig, || {
            // Once the command buffer runs.
            if m.read(0) == 1 && !work.is_empty() {
                other.publish(&std::mem::take(&mut work));
                if !watched {
                    other.ring();
                }
            }
            n.read(0) == 9
        });
        assert!(ran, "watched: {watched}");
    }
}

/// A command buffer of `count` signals of `fence` that have no LOGs.
fn signals(rig: &mut Rig, fence: GpuVa, count: u64) -> Encoded {
    let code = rig.map((count * 24).div_ceil(PAGE_SIZE), false);
    for i in 0..count {
        let signal = Encoded::fence_signal(fence, i + 1);
        code.bytes.part(i * 24, u64::MAX).write(signal.as_bytes());
    }
    packet::Indirect { address: code.va.0, length: count * 24 }.to_packet()
}

/// Behind a signal the stream stays for one packet, which may be its LOG. Signals that have none leave the engine to
/// others all the same.
#[test]
fn a_stream_of_signals_leaves_the_engine_to_others() {
    const SIGNALS: u64 = 100_000;
    let mut rig = Rig::new();
    let (mut hog, mut other, m, f) = (rig.queue(0, 0), rig.queue(0, 1), rig.map(1, false), rig.fence());
    let jump = signals(&mut rig, f.current.va, SIGNALS);
    hog.submit(&[jump]);
    other.submit(&[packet::Store { address: m.va.0, value: 1 }.to_packet()]);
    let packets = |rig: &Rig| rig.gpu.nodes[0].counters.read().packets;
    let mut most = 0;
    while m.read(0) == 0 {
        let before = packets(&rig);
        rig.engines[0].step();
        most = most.max(packets(&rig) - before);
    }
    assert!(most < 10_000, "{most} packets in one turn while another queue waits");
    rig.settle();
    assert_eq!(f.current.read(0), SIGNALS, "it goes on, and each signal is executed");
}

/// The same of a suspension.
#[test]
fn a_stream_of_signals_is_suspended() {
    const SIGNALS: u64 = 500_000;
    let mut rig = Rig::new();
    let (mut hog, f) = (rig.queue(0, 0), rig.fence());
    let jump = signals(&mut rig, f.current.va, SIGNALS);
    hog.submit(&[jump]);
    let gpu = rig.gpu.clone();
    let (mut asked, context) = (false, hog.queue.context.clone());
    let off = holds_while_it_runs(&mut rig, || {
        if f.current.read(0) != 0 && !asked {
            asked = true;
            assert_eq!(gpu.suspend(&context, 7), Suspend::Pending);
        }
        !gpu.nodes[0].mailbox.is_empty()
    });
    let done = f.current.read(0);
    assert!(off && done < SIGNALS, "{done} signals before it was off");
    assert_eq!(rig.drain(), [(0, Notice::ContextSuspended { context: hog.queue.context.slot, fence: 7 })]);
}

/// The same where the entry of the scheduling log that raises an interrupt is written behind the engine's look: when
/// the queue that then runs became ready.
#[test]
fn an_endless_command_buffer_does_not_keep_the_scheduling_logs_interrupt_back() {
    let mut rig = Rig::new();
    let (mut hog, m) = (named(&mut rig, 0, 0xA0), rig.map(1, false));
    let log = rig.map(1, false).bytes;
    let jump = endless(&mut rig, m.va);
    // The queue is found by its doorbell: it is not the one that ran last.
    let mut other = rig.queue(0, 1);
    other.submit(&[Encoded::nop(8)]);
    rig.settle();
    rig.gpu.nodes[0].scheduling.set(log, 100, 0).unwrap();
    hog.submit(&[jump]);
    let gpu = rig.gpu.clone();
    let raised = holds_while_it_runs(&mut rig, || m.read(0) == 1 && gpu.host.interrupts.load(Ordering::SeqCst) == 1);
    assert!(raised);
}
