//! What an idle GPU takes of the processors.

use super::processors::{pause, threads};
use super::statistics::{Better, Figure, Target, counted};
use super::{Bed, Benchmark, Measured, Resident, finish};
use crate::client::Queue;
use anyhow::Result;
use rustix::thread::gettid;
use std::time::{Duration, Instant};

/// Queues that have worked, and have nothing to do.
const QUEUES: u32 = 64;

const IDLE: Figure = Figure {
    name: "idle-cpu",
    about: "what all threads of driver and model run in a second without work, with 64 queues; beside none",
    unit: "ms/s",
    limit: "none",
    better: Better::Lower,
    target: Target::Fixed(0.0, 1.0),
};

const RUNG_ONCE: Figure = Figure {
    name: "idle-cpu-rung-once",
    about: "the same in the first second behind one submission on each of the 64 queues",
    unit: "ms/s",
    limit: "none",
    better: Better::Lower,
    target: Target::None,
};

pub(super) const BENCHMARKS: &[Benchmark] =
    &[Benchmark { figures: &[IDLE], run: idle }, Benchmark { figures: &[RUNG_ONCE], run: rung_once }];

fn idle(bed: &Bed) -> Result<Vec<Measured>> {
    let process = Resident::new(bed, "bench")?;
    let _queues = worked(&process, 50)?;
    // Long enough to fall asleep.
    let (settle, second) = (bed.options.effort.count(500, 10), bed.options.effort.count(500, 20));
    pause(Duration::from_millis(settle));
    let sample = |_| taken(bed, Duration::from_millis(second));
    let samples = (0..bed.options.rounds).map(sample).collect::<Result<Vec<_>>>()?;
    Ok(vec![counted(&IDLE, &samples, 0.0)])
}

fn rung_once(bed: &Bed) -> Result<Vec<Measured>> {
    let second = Duration::from_millis(bed.options.effort.count(1000, 20));
    let sample = |_| {
        let process = Resident::new(bed, "bench")?;
        let _queues = worked(&process, 1)?;
        taken(bed, second)
    };
    let samples = (0..bed.options.rounds).map(sample).collect::<Result<Vec<_>>>()?;
    Ok(vec![counted(&RUNG_ONCE, &samples, 0.0)])
}

/// As many queues as there are physical doorbells by default, on both nodes, each behind `submissions` of its own.
fn worked(process: &Resident, submissions: u32) -> Result<Vec<Queue>> {
    let create = |number| process.device.queue(number % 2, 4096, 0, 0);
    let queues = (0..QUEUES).map(create).collect::<Result<Vec<_>, _>>()?;
    for queue in &queues {
        for _ in 0..submissions {
            let value = queue.run(|list| list.nop(16))?;
            finish(queue, value)?;
        }
    }
    Ok(queues)
}

/// What the threads of driver and model run in the time `lasts` from now on, in milliseconds per second.
fn taken(bed: &Bed, lasts: Duration) -> Result<f64> {
    let ran = || -> Result<u64> {
        let own = gettid().as_raw_pid();
        let all = threads()?.into_iter();
        Ok(all.filter(|(thread, _)| *thread != own && !bed.known.contains_key(thread)).map(|(_, ran)| ran).sum())
    };
    let (begun, before) = (Instant::now(), ran()?);
    pause(lasts);
    // Nanoseconds per nanosecond, in thousandths.
    Ok(ran()?.saturating_sub(before) as f64 / begun.elapsed().as_nanos() as f64 * 1e3)
}
