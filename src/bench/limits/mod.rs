//! What this machine can do: the bounds that benchmarks stand beside.
//!
//! Waits look without PAUSE, since that costs up to a line's way itself; a limit is what is hard to reach.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | a line's way, a futex's wake |
//! | `ring.rs` | a bare ring |
//! | `uring.rs` | io_uring whose submissions the kernel polls for |
//! | `memory.rs` | memset, memcpy, non-temporal stores |

pub(super) mod memory;
pub(super) mod ring;
pub(super) mod uring;

use super::processors::{self, Pair, pause};
use super::statistics::median;
use super::{Effort, PATIENCE};
use anyhow::{Context, Result, ensure};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A word on a cache line of its own, and its neighbour left free: processors fetch lines in pairs.
#[repr(align(128))]
#[derive(Default)]
pub(super) struct Line(pub AtomicU64);

/// Looks at `word` until it is `value` or more.
fn until(word: &AtomicU64, value: u64) {
    while word.load(Ordering::Acquire) < value {}
}

/// Runs `other` on the engine's processor while `f` runs here.
fn beside<R>(pair: Pair, other: impl FnOnce() + Send, f: impl FnOnce() -> R) -> Result<R> {
    let (up, failed) = (AtomicBool::new(false), AtomicBool::new(false));
    let other = || {
        let pinned = processors::pin(None, pair.engine);
        failed.store(pinned.is_err(), Ordering::Release);
        up.store(true, Ordering::Release);
        if pinned.is_ok() {
            other();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(other);
        while !up.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        ensure!(!failed.load(Ordering::Acquire), "a thread cannot be put on processor {}", pair.engine);
        Ok(f())
    })
}

/// Lines that a figure is taken over. Where a line lives between the processors depends on its address, and with it its
/// way, which differs by half.
const PLACES: usize = 16;

/// Pairs of lines, one for each direction.
fn places() -> Vec<[Line; 2]> {
    (0..PLACES).map(|_| Default::default()).collect()
}

/// Nanoseconds of a cache line's way to the other processor and back: the mean over lines, of each the median of short
/// runs, so that it stands where other work takes a processor away now and then.
pub(super) fn line(pair: Pair, effort: Effort) -> Result<f64> {
    const BATCH: u64 = 64;
    let batches = effort.count(20, 3);
    let (lines, turns) = (places(), batches * BATCH);
    let echo = || {
        for [there, back] in &lines {
            for turn in 1..=turns {
                until(&there.0, turn);
                back.0.store(turn, Ordering::Release);
            }
        }
    };
    let way = |[there, back]: &[Line; 2]| {
        let mut turn = 0;
        let batch = |_| {
            let begun = Instant::now();
            for _ in 0..BATCH {
                turn += 1;
                there.0.store(turn, Ordering::Release);
                until(&back.0, turn);
            }
            begun.elapsed().as_nanos() as f64 / BATCH as f64
        };
        median(&(0..batches).map(batch).collect::<Vec<_>>())
    };
    beside(pair, echo, || lines.iter().map(way).sum::<f64>() / PLACES as f64)
}

/// Nanoseconds from a futex wake to the woken thread's first instruction, once it has slept for `idle`, `times` times.
/// The caller looks for it meanwhile; `sleeper` is the processor on which the other thread sleeps.
pub(super) fn futex_wake(sleeper: usize, idle: Duration, times: usize) -> Result<Vec<f64>> {
    let epoch = Instant::now();
    let (woken_at, go, stop) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
    // CAST: nanoseconds of a run.
    let now = || epoch.elapsed().as_nanos() as u64;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| -> Result<()> {
            processors::pin(None, sleeper)?;
            while !stop.load(Ordering::Acquire) {
                while !go.swap(false, Ordering::AcqRel) && !stop.load(Ordering::Acquire) {
                    std::thread::park();
                }
                woken_at.store(now(), Ordering::Release);
            }
            Ok(())
        });
        let wake = |_| {
            pause(idle);
            woken_at.store(0, Ordering::Release);
            let begun = now();
            go.store(true, Ordering::Release);
            thread.thread().unpark();
            let patience = Instant::now() + PATIENCE;
            while woken_at.load(Ordering::Acquire) == 0 {
                ensure!(Instant::now() < patience, "a futex did not wake its thread");
            }
            Ok(woken_at.load(Ordering::Acquire).saturating_sub(begun) as f64)
        };
        let woken = (0..times).map(wake).collect::<Result<Vec<_>>>();
        stop.store(true, Ordering::Release);
        thread.thread().unpark();
        thread.join().ok().context("the sleeping thread ended")??;
        woken
    })
}
