//! Waking the CPU, and not waking it.

use super::{Bed, Benchmark, Measured, Resident, compare, limits, quantile};
use anyhow::Result;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wddm_abi::DXGK_INTERRUPT_TYPE;

pub(super) const BENCHMARKS: &[Benchmark] = &[
    Benchmark {
        name: "cpu-wake",
        about: "from the signal by interrupt and DPC until the waiting thread runs; beside a futex wake",
        run: cpu_wake,
    },
    Benchmark {
        name: "idle-doorbell",
        about: "a doorbell rung when the engine has been idle, until its signal is seen; beside a futex wake",
        run: idle_doorbell,
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

/// Long enough for engine and waiter to sleep.
const IDLE: Duration = Duration::from_millis(1);

/// Turns of a round.
const TURNS: u64 = 50;

fn cpu_wake(bed: &Bed) -> Result<Measured> {
    let process = Resident::new(bed, "bench")?;
    let queue = process.device.queue(0, RING, 0, 0)?;
    let fence = process.device.fence(0, 0)?;
    let epoch = Instant::now();
    // CAST: nanoseconds of a run.
    let now = || epoch.elapsed().as_nanos() as u64;
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
                    let _inside = process.user.process.enter();
                    for turn in first..first + TURNS {
                        if fence.wait(turn, PATIENCE).is_err() {
                            failed.store(true, Ordering::Release);
                            return;
                        }
                        woken_at.store(now(), Ordering::Release);
                    }
                });
                for turn in first..first + TURNS {
                    std::thread::park_timeout(IDLE);
                    woken_at.store(0, Ordering::Release);
                    queue.run(|list| list.signal(&fence, turn))?;
                    while fence.value()? < turn && !failed.load(Ordering::Acquire) {
                        spin_loop();
                    }
                    let signaled = now();
                    while woken_at.load(Ordering::Acquire) == 0 && !failed.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                    times.push(woken_at.load(Ordering::Acquire).saturating_sub(signaled) as f64);
                }
                Ok(())
            })?;
            anyhow::ensure!(!failed.load(Ordering::Acquire), "a wait failed");
            Ok(quantile(&mut times, 0.5))
        },
    )
}

fn idle_doorbell(bed: &Bed) -> Result<Measured> {
    let process = Resident::new(bed, "bench")?;
    let queue = process.device.queue(0, RING, 0, 0)?;
    let fence = process.device.fence(0, 0)?;
    let mut value = 0;
    compare(
        ("idle-doorbell", "ns", "futex wake"),
        || Ok(limits::futex_wake()),
        || {
            let mut times = Vec::new();
            for _ in 0..TURNS {
                std::thread::park_timeout(10 * IDLE);
                value += 1;
                let begun = Instant::now();
                queue.run(|list| list.signal(&fence, value))?;
                while fence.value()? < value {
                    spin_loop();
                }
                times.push(begun.elapsed().as_nanos() as f64);
            }
            Ok(quantile(&mut times, 0.5))
        },
    )
}

/// Signals that are counted.
const SIGNALS: u64 = 1_000_000;
/// Signals in a submission.
const AT_ONCE: u64 = 500;

/// Fence interrupts of [`SIGNALS`] signals; `waiter`: a thread waits for one in the middle.
fn interrupts(bed: &Bed, waiter: bool) -> Result<f64> {
    let process = Resident::new(bed, "bench")?;
    let queue = process.device.queue(0, RING, 0, 0)?;
    let fence = process.device.fence(0, 0)?;
    // Other work interrupts, too: memory for the lists is mapped by the paging node.
    let raised = || -> u64 {
        let kind = DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_NATIVE_FENCE_SIGNALED;
        bed.world.os.report().adapters.iter().filter_map(|adapter| adapter.kinds.get(&kind)).sum()
    };
    let before = raised();
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
    Ok((raised() - before) as f64 * 1e6 / SIGNALS as f64)
}

fn interrupts_without_waiter(bed: &Bed) -> Result<Measured> {
    Ok(counted("interrupts-no-waiter", interrupts(bed, false)?, "none", 0.0))
}

fn interrupts_with_waiter(bed: &Bed) -> Result<Measured> {
    Ok(counted("interrupts-one-waiter", interrupts(bed, true)?, "one", 1.0))
}

/// A count. Where none is due, the ratio is the count.
fn counted(name: &'static str, value: f64, limit: &'static str, limit_value: f64) -> Measured {
    Measured { name, value, unit: "1/million signals", limit, limit_value, ratio: value, spread: 0.0 }
}
