//! Waking: the CPU by a signal, an engine by a doorbell.

use super::statistics::{Better, Figure, Taken, Target};
use super::{Bed, Benchmark, Measured, PATIENCE, RING, Resident, limits};
use crate::bench::processors::{on_either, pause};
use crate::client::{Fence, List, Queue};
use anyhow::{Result, bail, ensure};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const WAKE: Figure = Figure {
    name: "cpu-wake",
    about: "from the signal by interrupt and DPC until the waiting thread runs; beside a futex wake",
    unit: "ns",
    limit: "futex wake",
    better: Better::Lower,
    target: Target::None,
};

const FIRST: &[Figure] = &[
    Figure {
        name: "first-doorbell",
        about: "a doorbell rung after 20 ms without work, until its signal is seen; beside a futex wake",
        target: Target::Fixed(1.2, 4.0),
        ..WAKE
    },
    Figure { name: "first-doorbell-1ms", about: "the same after 1 ms", ..WAKE },
    Figure { name: "idle-doorbell", about: "the same after 10 ms", ..WAKE },
    Figure { name: "first-doorbell-100ms", about: "the same after 100 ms", ..WAKE },
];

/// Milliseconds without work, and doorbells in a round, by figure.
const IDLE: [(u64, usize); 4] = [(20, 15), (1, 25), (10, 15), (100, 3)];

pub(super) const BENCHMARKS: &[Benchmark] =
    &[Benchmark { figures: &[WAKE], run: cpu_wake }, Benchmark { figures: FIRST, run: first_doorbell }];

/// Long enough for engine and waiter to sleep.
const SLEEPY: Duration = Duration::from_millis(1);
/// Wakes beyond those wanted, in place of those that were over before the signal was seen.
const SPARE: u64 = 500;
/// How often the threads are started anew, and so placed, where no wake could be measured.
const PLACEMENTS: u32 = 4;

fn cpu_wake(bed: &Bed) -> Result<Vec<Measured>> {
    let process = Resident::new(bed, "bench")?;
    let queue = process.device.queue(0, RING, 0, 0)?;
    let fence = process.device.fence(0, 0)?;
    let (wakes, _) = bed.options.effort.of((50, 0));
    let mut value = 0;
    bed.measure(&WAKE, || {
        bed.rest();
        let limit = limits::futex_wake(bed.pair.engine, SLEEPY, wakes)?;
        for _ in 0..PLACEMENTS {
            let first = value + 1;
            value = first + wakes as u64 + SPARE;
            let times = woken(bed, &process, (&queue, &fence), (first, value), wakes)?;
            if !times.is_empty() {
                return Ok(Taken::new(times, limit));
            }
        }
        bail!("every wake was over before its signal was seen: the threads share a processor");
    })
}

/// Nanoseconds of at most `wakes` wakes by the values `first` to `last` of a fence: of those alone whose signal was
/// seen before the waiter ran.
fn woken(
    bed: &Bed,
    process: &Resident,
    (queue, fence): (&Queue, &Fence),
    (first, last): (u64, u64),
    wakes: usize,
) -> Result<Vec<f64>> {
    let epoch = Instant::now();
    // CAST: nanoseconds of a run.
    let now = || epoch.elapsed().as_nanos() as u64;
    let user = &process.user.process;
    let (woken_at, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let wait = || {
        let _inside = user.enter();
        for turn in first..=last {
            if fence.wait(turn, Some(PATIENCE)).is_err() {
                failed.store(true, Ordering::Release);
                return;
            }
            woken_at.store(now(), Ordering::Release);
        }
    };
    let signal = |turn| {
        pause(SLEEPY);
        woken_at.store(0, Ordering::Release);
        queue.run(|list| list.signal(fence, turn))?;
        while fence.value()? < turn && !failed.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        let signaled = now();
        while woken_at.load(Ordering::Acquire) == 0 && !failed.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        // Who looks here was kept from it where the waiter ran before: the time from the signal is not known.
        let time = woken_at.load(Ordering::Acquire).saturating_sub(signaled);
        Ok((time != 0).then_some(time as f64))
    };
    // The kernel chooses where the waiter runs, as in any process: the engine, and who looks here, are awake.
    let times = on_either(bed.pair, || {
        std::thread::scope(|scope| {
            scope.spawn(wait);
            let times = (first..last).map(signal).filter_map(Result::transpose).take(wakes).collect::<Result<Vec<_>>>();
            // The waiter's last turn.
            queue.run(|list| list.signal(fence, last))?;
            times
        })
    })??;
    ensure!(!failed.load(Ordering::Acquire), "a wait failed");
    Ok(times)
}

fn first_doorbell(bed: &Bed) -> Result<Vec<Measured>> {
    let process = Resident::new(bed, "bench")?;
    let queue = process.device.queue(0, RING, 0, 0)?;
    let fence = process.device.fence(0, 0)?;
    let mut doorbell = Doorbell { queue: &queue, fence: &fence, list: queue.list()?, value: 0 };
    let rounds = bed.rounds(|| {
        let figure = |(milliseconds, times): (u64, usize)| {
            let (times, _) = bed.options.effort.of((times, 0));
            let idle = Duration::from_millis(milliseconds);
            bed.rest();
            let limit = limits::futex_wake(bed.pair.engine, idle, times)?;
            doorbell.ring_after(idle)?;
            let value = (0..times).map(|_| doorbell.ring_after(idle)).collect::<Result<_>>()?;
            Ok(Taken::new(value, limit))
        };
        IDLE.into_iter().map(figure).collect()
    })?;
    Ok((0..).zip(FIRST).map(|(at, figure)| rounds.measured(at, figure)).collect())
}

/// A queue whose doorbell is rung now and then.
struct Doorbell<'a> {
    queue: &'a Queue,
    fence: &'a Fence,
    list: List,
    value: u64,
}

impl Doorbell<'_> {
    /// Nanoseconds from a submission, when nothing was submitted for `idle`, until its signal is seen.
    fn ring_after(&mut self, idle: Duration) -> Result<f64> {
        self.value += 1;
        self.list.reset()?;
        self.list.signal(self.fence, self.value)?;
        pause(idle);
        let begun = Instant::now();
        self.queue.submit(&mut self.list)?;
        while self.fence.value()? < self.value {
            ensure!(begun.elapsed() < PATIENCE, "the engine does not wake");
        }
        Ok(begun.elapsed().as_nanos() as f64)
    }
}
