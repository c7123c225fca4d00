//! Many queues: what each of them submits, and what one more costs.

use super::statistics::{Better, Figure, Rounds, Taken, Target};
use super::{Bed, Benchmark, Effort, Measured, Resident, finish};
use crate::client::{List, Queue};
use anyhow::Result;
use std::time::Instant;

const ONE: Figure = Figure {
    name: "queues-1",
    about: "submissions of one NOP, a doorbell for each, by one queue; beside one queue",
    unit: "1/s",
    limit: "one queue",
    better: Better::Higher,
    target: Target::None,
};

const CROWDS: &[Figure] = &[
    ONE,
    Figure { name: "queues-16", about: "the same by 16 queues in turns", ..ONE },
    Figure { name: "queues-64", about: "the same by 64 queues in turns, as many as there are doorbells", ..ONE },
    Figure { name: "queues-256", about: "the same by 256 queues in turns, which take each other's doorbells", ..ONE },
    Figure { name: "queues-1024", about: "the same by 1,024 queues in turns", ..ONE },
    Figure { name: "queues-1024-global", about: "the same on one global doorbell", ..ONE },
];

/// Queues of each figure but the last, which has as many as the one before.
const COUNTS: [usize; 5] = [1, 16, 64, 256, 1024];

const QUEUE: Figure = Figure {
    name: "queue-beside-512",
    about: "a queue created and destroyed where there are 512; beside where there is none",
    unit: "ns",
    limit: "no other queue",
    better: Better::Lower,
    target: Target::Fixed(1.2, 2.0),
};
const FENCE: Figure = Figure {
    name: "fence-beside-4096",
    about: "a native fence created and destroyed where there are 4,096; beside where there is none",
    limit: "no other fence",
    ..QUEUE
};

pub(super) const BENCHMARKS: &[Benchmark] = &[
    Benchmark { figures: CROWDS, run: crowds },
    Benchmark { figures: &[QUEUE], run: one_more_queue },
    Benchmark { figures: &[FENCE], run: one_more_fence },
];

/// Bytes of a ring.
const RING: u64 = 4096;

/// A queue and what is submitted to it.
struct Member {
    queue: Queue,
    list: List,
    last: u64,
}

impl Member {
    fn new(process: &Resident) -> Result<Self> {
        let queue = process.device.queue(0, RING, 0, 0)?;
        let mut list = queue.list()?;
        list.nop(16)?;
        Ok(Self { queue, list, last: 0 })
    }
}

/// Submissions per second, by `queues` in turns, each `times` times.
fn rate(queues: &mut [Member], times: usize) -> Result<f64> {
    let begun = Instant::now();
    for _ in 0..times {
        for member in &mut *queues {
            member.last = member.queue.submit(&mut member.list)?;
        }
    }
    queues.iter().try_for_each(|member| finish(&member.queue, member.last))?;
    Ok((queues.len() * times) as f64 / begun.elapsed().as_secs_f64())
}

/// Samples of `queues` in turns: as many submissions each, about.
fn samples(bed: &Bed, queues: &mut [Member]) -> Result<Vec<f64>> {
    let (samples, length) = bed.options.effort.of((2, 2048));
    rate(queues, 1)?;
    (0..samples).map(|_| rate(queues, length.div_ceil(queues.len()))).collect()
}

fn crowds(bed: &Bed) -> Result<Vec<Measured>> {
    let most = bed.options.effort.count(1024, 80) as usize;
    let crowd = |bed: &Bed| -> Result<(Resident, Vec<Member>)> {
        let process = Resident::new(bed, "bench")?;
        let queues = (0..most).map(|_| Member::new(&process)).collect::<Result<_>>()?;
        Ok((process, queues))
    };
    let mut measured = {
        let (_process, mut queues) = crowd(bed)?;
        let rounds = bed.rounds(|| {
            let limit = samples(bed, &mut queues[..1])?;
            let figure = |count: usize| Ok(Taken::new(samples(bed, &mut queues[..count.min(most)])?, limit.clone()));
            COUNTS.into_iter().map(figure).collect()
        })?;
        named(&rounds, &CROWDS[..COUNTS.len()])
    };
    let global = bed.on_rung(3, &[("DoorbellModel", 1)])?;
    {
        let (_process, mut queues) = crowd(&global)?;
        let figure = &CROWDS[COUNTS.len()];
        measured.extend(global.measure(figure, || {
            let limit = samples(&global, &mut queues[..1])?;
            Ok(Taken::new(samples(&global, &mut queues)?, limit))
        })?);
    }
    global.world.os.shut_down();
    Ok(measured)
}

fn named(rounds: &Rounds, figures: &'static [Figure]) -> Vec<Measured> {
    (0..).zip(figures).map(|(at, figure)| rounds.measured(at, figure)).collect()
}

/// Nanoseconds of making and destroying one.
fn timed<T>(effort: Effort, make: impl Fn() -> Result<T>) -> Result<Vec<f64>> {
    let (times, _) = effort.of((100, 0));
    (0..times)
        .map(|_| {
            let begun = Instant::now();
            drop(make()?);
            Ok(begun.elapsed().as_nanos() as f64)
        })
        .collect()
}

/// One more of what `make` makes, beside `count` of them.
fn one_more<T>(bed: &Bed, figure: &'static Figure, count: u64, make: impl Fn() -> Result<T>) -> Result<Vec<Measured>> {
    bed.measure(figure, || {
        let limit = timed(bed.options.effort, &make)?;
        let others: Vec<T> = (0..count).map(|_| make()).collect::<Result<_>>()?;
        let value = timed(bed.options.effort, &make)?;
        drop(others);
        Ok(Taken::new(value, limit))
    })
}

fn one_more_queue(bed: &Bed) -> Result<Vec<Measured>> {
    let process = Resident::new(bed, "bench")?;
    one_more(bed, &QUEUE, bed.options.effort.count(512, 20), || Ok(process.device.queue(0, RING, 0, 0)?))
}

fn one_more_fence(bed: &Bed) -> Result<Vec<Measured>> {
    let process = Resident::new(bed, "bench")?;
    one_more(bed, &FENCE, bed.options.effort.count(4096, 50), || Ok(process.device.fence(0, 0)?))
}
