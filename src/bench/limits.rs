//! What this machine can do: the bounds that benchmarks stand beside.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A word on a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Line(AtomicU64);

/// Nanoseconds of a cache line's way to another core and back.
pub fn ping_pong() -> f64 {
    const TURNS: u64 = 100_000;
    let (there, back) = (Line::default(), Line::default());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 1..=TURNS {
                until(&there.0, turn);
                back.0.store(turn, Ordering::Release);
            }
        });
        let begun = Instant::now();
        for turn in 1..=TURNS {
            there.0.store(turn, Ordering::Release);
            until(&back.0, turn);
        }
        begun.elapsed().as_nanos() as f64 / TURNS as f64
    })
}

fn until(word: &AtomicU64, value: u64) {
    while word.load(Ordering::Acquire) < value {
        spin_loop();
    }
}

/// Packets per second through a bare ring of 64-byte packets, with a doorbell store for each.
pub fn bare_ring() -> f64 {
    const PACKETS: u64 = 1_000_000;
    const SLOTS: u64 = 1024;
    let ring: Vec<[AtomicU64; 8]> = (0..SLOTS).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect();
    let (written, read, doorbell) = (Line::default(), Line::default(), Line::default());
    let slot = |n: u64| &ring[(n % SLOTS) as usize];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut next = 0;
            while next < PACKETS {
                until(&doorbell.0, next + 1);
                let end = written.0.load(Ordering::Acquire);
                while next < end {
                    let sum: u64 = slot(next).iter().map(|word| word.load(Ordering::Relaxed)).sum();
                    std::hint::black_box(sum);
                    next += 1;
                }
                read.0.store(next, Ordering::Release);
            }
        });
        let begun = Instant::now();
        for n in 0..PACKETS {
            if n >= SLOTS {
                until(&read.0, n - SLOTS + 1);
            }
            for word in slot(n) {
                word.store(n, Ordering::Relaxed);
            }
            written.0.store(n + 1, Ordering::Release);
            doorbell.0.store(n + 1, Ordering::Release);
        }
        until(&read.0, PACKETS);
        PACKETS as f64 / begun.elapsed().as_secs_f64()
    })
}

/// Bytes per second of `memset` over `buffer`.
pub fn memset(buffer: &mut [u8]) -> f64 {
    let begun = Instant::now();
    buffer.fill(std::hint::black_box(0x5A));
    std::hint::black_box(&mut *buffer);
    buffer.len() as f64 / begun.elapsed().as_secs_f64()
}

/// Bytes per second of `memcpy`.
pub fn memcpy(from: &[u8], to: &mut [u8]) -> f64 {
    let begun = Instant::now();
    to.copy_from_slice(std::hint::black_box(from));
    std::hint::black_box(&mut *to);
    from.len() as f64 / begun.elapsed().as_secs_f64()
}

/// Nanoseconds from a futex wake to the woken thread's first instruction.
pub fn futex_wake() -> f64 {
    const TURNS: u32 = 50;
    let epoch = Instant::now();
    let (woken_at, go, stop) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                while !go.swap(false, Ordering::AcqRel) && !stop.load(Ordering::Acquire) {
                    std::thread::park();
                }
                // CAST: nanoseconds of a run.
                woken_at.store(epoch.elapsed().as_nanos() as u64, Ordering::Release);
            }
        });
        let mut times = Vec::new();
        for _ in 0..TURNS {
            std::thread::park_timeout(Duration::from_millis(1));
            woken_at.store(0, Ordering::Release);
            let begun = epoch.elapsed().as_nanos() as u64;
            go.store(true, Ordering::Release);
            sleeper.thread().unpark();
            while woken_at.load(Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            times.push(woken_at.load(Ordering::Acquire).saturating_sub(begun) as f64);
        }
        stop.store(true, Ordering::Release);
        sleeper.thread().unpark();
        super::quantile(&mut times, 0.5)
    })
}
