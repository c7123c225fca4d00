//! Packets of a ring: what they do, and where they lie.

use crate::support::Rig;
use gpu_engine::word::{Ordering, Word};
use gpu_wire::packet::{self, Encoded};
use gpu_wire::{GpuVa, PAGE_SIZE};

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
    // Behind its last turn an engine looks at the write pointer itself for a while.
    rig.cool();
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

/// A producer that keeps the ring fed must get its space back all the same.
#[test]
fn the_read_pointer_follows_while_there_is_more_to_do() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let m = rig.map(1, false);
    let size = q.geometry.size();
    // The last packet of an almost full ring reads the read pointer as the GPU sees it.
    let store = packet::Store { address: m.va.0, value: 1 }.to_packet();
    let mut packets = vec![store; (size * 3 / 4 / store.as_bytes().len() as u64) as usize];
    let read = GpuVa(q.control.va.0 + gpu_wire::ring::READ_POINTER as u64);
    // Not a COPY, which may belong to the stretch of the stores.
    let (source, destination) = (read.0, m.at(8).0);
    let row = packet::CopyRect { source, destination, source_pitch: 8, destination_pitch: 8, row_bytes: 8, rows: 1 };
    packets.push(row.to_packet());
    q.submit(&packets);
    rig.settle();
    let seen = m.read(8);
    assert!(seen >= size / 2 && seen < q.wp, "{seen} of {}", q.wp);
}

/// What faults is not retired, and neither is what stands behind it; everything before is.
#[test]
fn the_read_pointer_stays_at_the_packet_that_faults() {
    let mut rig = Rig::new();
    let mut q = rig.queue(0, 0);
    let m = rig.map(1, false);
    let store = packet::Store { address: m.va.0, value: 1 }.to_packet();
    let step = store.as_bytes().len() as u64;
    // The packet at which the read pointer would move faults.
    let before = (q.geometry.size() / 8).div_ceil(step);
    for extra in 0..3 {
        let start = q.wp;
        let mut packets = vec![store; (before + extra) as usize];
        packets.push(packet::Store { address: 0xdead_0000, value: 1 }.to_packet());
        packets.push(store);
        q.submit(&packets);
        rig.settle();
        assert_eq!(q.read_pointer() - start, (before + extra) * step);
        q = rig.queue(0, 0);
    }
}

/// A command buffer is read anew behind an operation, which may have written it, and behind a wait, before whose end
/// another agent may have.
#[test]
fn a_command_buffer_that_is_written_while_it_runs_is_read_anew() {
    // The copy may be one that goes with others, where its pages are in the lookaside buffer.
    for (by_wait, is_warm) in [(false, false), (false, true), (true, false)] {
        let mut rig = Rig::new();
        let (mut q, code, m, source, f) =
            (rig.queue(0, 0), rig.map(1, false), rig.map(1, false), rig.map(1, false), rig.fence());
        let store = |value| packet::Store { address: m.va.0, value }.to_packet();
        source.bytes.write(store(2).as_bytes());
        let first = match by_wait {
            true => Encoded::fence_wait(f.current.va, 1),
            false => packet::Copy { source: source.va.0, destination: 0, length: 24 }.to_packet(),
        };
        let behind = first.as_bytes().len() as u64;
        let first = match by_wait {
            true => first,
            false => packet::Copy { source: source.va.0, destination: code.at(behind).0, length: 24 }.to_packet(),
        };
        code.bytes.write(first.as_bytes());
        code.bytes.part(behind, u64::MAX).write(store(1).as_bytes());
        let nop = Encoded::nop(8);
        code.bytes.part(2048, u64::MAX).write(nop.as_bytes());
        let jump = |offset, length| packet::Indirect { address: code.at(offset).0, length }.to_packet();
        // What is executed is mapped from here on; the fence is not.
        q.submit(&[jump(2048, nop.as_bytes().len() as u64), store(0)]);
        if is_warm {
            let warms = packet::Copy { source: source.va.0, destination: code.at(3072).0, length: 8 }.to_packet();
            q.submit(&[warms]);
        }
        rig.settle();
        if by_wait {
            let (bytes, written) = (code.bytes.part(behind, 24), store(2));
            *rig.gpu.host.on_map.lock().unwrap() = Some(Box::new(move || {
                bytes.write(written.as_bytes());
                f.current.word(0).store(1, Ordering::SeqCst);
            }));
        }
        q.submit(&[jump(0, behind + 24)]);
        rig.settle();
        assert_eq!((q.fault(), m.read(0)), (None, 2), "behind a wait: {by_wait}, warm: {is_warm}");
    }
}

/// A loop is read anew where it begins anew: another agent ends it, though its copy is one that goes with others.
#[test]
fn a_loop_whose_jump_is_taken_away_ends() {
    let mut rig = Rig::new();
    let (mut q, code, m) = (rig.queue(0, 0), rig.map(1, false), rig.map(1, false));
    let copy = packet::Copy { source: m.va.0, destination: m.at(8).0, length: 8 }.to_packet();
    let at = copy.as_bytes().len() as u64;
    let jump = |length| packet::Indirect { address: code.va.0, length }.to_packet();
    let length = at + jump(0).as_bytes().len() as u64;
    code.bytes.write(copy.as_bytes());
    code.bytes.part(at, u64::MAX).write(jump(length).as_bytes());
    q.submit(&[jump(length)]);
    let gpu = rig.gpu.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while gpu.nodes[0].counters.read().indirects < 100 {
                std::thread::yield_now();
            }
            code.bytes.part(at, 8).write(&Encoded::nop(24).as_bytes()[..8]);
        });
        rig.settle();
    });
    assert_eq!((q.fault(), q.read_pointer()), (None, q.wp));
}
