//! What an idle GPU takes of the processors.

use super::processors::{pause, threads};
use super::statistics::{Better, Figure, Target, counted};
use super::{Bed, Benchmark, Measured, Resident, finish};
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

pub(super) const BENCHMARKS: &[Benchmark] = &[Benchmark { figures: &[IDLE], run: idle }];

fn idle(bed: &Bed) -> Result<Vec<Measured>> {
    let process = Resident::new(bed, "bench")?;
    // As many as there are physical doorbells by default, on both nodes.
    let create = |number| process.device.queue(number % 2, 4096, 0, 0);
    let queues = (0..QUEUES).map(create).collect::<Result<Vec<_>, _>>()?;
    for queue in &queues {
        for _ in 0..50 {
            let value = queue.run(|list| list.nop(16))?;
            finish(queue, value)?;
        }
    }
    // Long enough to fall asleep.
    let (settle, second) = (bed.options.effort.count(500, 10), bed.options.effort.count(500, 20));
    pause(Duration::from_millis(settle));
    let ran = || -> Result<u64> {
        let own = gettid().as_raw_pid();
        let all = threads()?.into_iter();
        Ok(all.filter(|(thread, _)| *thread != own && !bed.known.contains_key(thread)).map(|(_, ran)| ran).sum())
    };
    let sample = |_| {
        let (begun, before) = (Instant::now(), ran()?);
        pause(Duration::from_millis(second));
        // Nanoseconds per nanosecond, in thousandths.
        Ok(ran()?.saturating_sub(before) as f64 / begun.elapsed().as_nanos() as f64 * 1e3)
    };
    let samples = (0..bed.options.rounds).map(sample).collect::<Result<Vec<_>>>()?;
    Ok(vec![counted(&IDLE, &samples, 0.0)])
}
