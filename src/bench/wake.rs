//! Waking the CPU, and not waking it.

use super::{Bed, Benchmark, Measured, Resident, compare, limits, quantile};
use crate::demo::counters;
use anyhow::{Context, Result};
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(super) const BENCHMARKS: &[Benchmark] = &[
    Benchmark {
        name: "cpu-wake",
        about: "doorbell, signal, interrupt, DPC, and the waiting thread runs; beside a futex wake",
        run: cpu_wake,
    },
    Benchmark {
        name: "interrupts-no-waiter",
        about: "interrupts per million signals that nobody waits for; beside none",
        run: interrupts_without_waiter,
    },
    Benchmark {
        name: "interrupts-one-waiter",
        about: "interrupts per million signals of which one has a waiter; beside one",
        run: interrupts_with_waiter,
    },
];

const RING: u64 = 1 << 20;
const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

fn cpu_wake(bed: &Bed) -> Result<Measured> {
    const TURNS: u64 = 50;
    let user = bed.world.process("bench")?;
    let device = user.open()?.device()?;
    let queue = device.queue(0, RING, 0, 0)?;
    let fence = device.fence(0, 0)?;
    let epoch = Instant::now();
    let mut value = 0;
    compare(
        ("cpu-wake", "ns", "futex wake"),
        || Ok(limits::futex_wake()),
        || {
            let woken_at = AtomicU64::new(0);
            let failed = AtomicBool::new(false);
            let first = value + 1;
            value += TURNS;
            let mut times = Vec::new();
            std::thread::scope(|scope| -> Result<()> {
                scope.spawn(|| {
                    for turn in first..first + TURNS {
                        if fence.wait(turn, PATIENCE).is_err() {
                            failed.store(true, Ordering::Release);
                            return;
                        }
                        // CAST: nanoseconds of a run.
                        woken_at.store(epoch.elapsed().as_nanos() as u64, Ordering::Release);
                    }
                });
                for turn in first..first + TURNS {
                    // Long enough for the other thread to sleep.
                    std::thread::park_timeout(Duration::from_millis(1));
                    woken_at.store(0, Ordering::Release);
                    let mut list = queue.list()?;
                    list.signal(&fence, turn)?;
                    let begun = epoch.elapsed().as_nanos() as u64;
                    queue.submit(&mut list)?;
                    while woken_at.load(Ordering::Acquire) == 0 && !failed.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                    times.push(woken_at.load(Ordering::Acquire).saturating_sub(begun) as f64);
                }
                Ok(())
            })?;
            anyhow::ensure!(!failed.load(Ordering::Acquire), "a wait failed");
            Ok(quantile(&mut times, 0.5))
        },
    )
}

/// Signals that are counted.
const SIGNALS: u64 = 1_000_000;
/// Signals in a submission.
const AT_ONCE: u64 = 500;

/// Interrupts of [`SIGNALS`] signals; `waiter`: a thread waits for one in the middle.
fn interrupts(bed: &Bed, waiter: bool) -> Result<f64> {
    let process = Resident::new(bed, "bench")?;
    let queue = process.device.queue(0, RING, 0, 0)?;
    let fence = process.device.fence(0, 0)?;
    let before = counters::read(&process.user, bed.luid).context("counters")?;
    let signal_all = || -> Result<()> {
        for first in (0..SIGNALS).step_by(AT_ONCE as usize) {
            let last =
                queue.run(|list| (first + 1..=first + AT_ONCE).try_for_each(|value| list.signal(&fence, value)))?;
            // Never so far ahead that the ring is full: waiting for room would be a wait like any other.
            while queue.progress()?.0 + 4 < last {
                spin_loop();
            }
        }
        while fence.value()? < SIGNALS {
            spin_loop();
        }
        Ok(())
    };
    if waiter {
        let raw = crate::scenario::Raw::open(&process.user.process, bed.luid)?;
        let device = raw.device()?;
        let (event, handle) = raw.event();
        raw.wait_cpu(device, &[(fence.info()?.handle, SIGNALS / 2)], false, Some(handle))?;
        signal_all()?;
        anyhow::ensure!(raw.wait_event(&event, Duration::from_secs(20)), "the waiter was not woken");
        raw.close(handle);
        raw.destroy_device(device)?;
    } else {
        signal_all()?;
    }
    let after = counters::read(&process.user, bed.luid).context("counters")?;
    let signals = (after.signals - before.signals) as f64;
    // CAST: a count. Per million: the submissions' own progress values are signals as well.
    Ok((after.interrupts_raised - before.interrupts_raised) as f64 * 1e6 / signals.max(1.0)
        * (signals / SIGNALS as f64))
}

fn interrupts_without_waiter(bed: &Bed) -> Result<Measured> {
    let value = interrupts(bed, false)?;
    Ok(Measured {
        name: "interrupts-no-waiter",
        value,
        unit: "1/million signals",
        limit: "none",
        limit_value: 0.0,
        ratio: value,
        spread: 0.0,
    })
}

fn interrupts_with_waiter(bed: &Bed) -> Result<Measured> {
    let value = interrupts(bed, true)?;
    Ok(Measured {
        name: "interrupts-one-waiter",
        value,
        unit: "1/million signals",
        limit: "one",
        limit_value: 1.0,
        ratio: value,
        spread: 0.0,
    })
}
