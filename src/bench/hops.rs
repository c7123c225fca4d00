//! From a queue to a queue: one signals what the other waits for, in turns.
//!
//! Timed by TIMESTAMP packets around thousands of hops in one submission: who submitted sleeps meanwhile, and what its
//! wake costs is none of a hop's.

use super::statistics::{Better, Figure, Taken, Target};
use super::{Bed, Benchmark, Measured, PATIENCE, RING, Resident};
use crate::client::{Allocation, Fence, Queue};
use anyhow::{Result, ensure};
use std::time::{Duration, Instant};
use umd_core::ffi::types::FP_KIND_SYSTEM;

const HOP: Figure =
    Figure { name: "", about: "", unit: "ns", limit: "line one way", better: Better::Lower, target: Target::None };

const ENGINES: Figure = Figure {
    name: "engine-hop",
    about: "signal on one engine, wait met on the other, 4,000 in a list; beside a cache line's way",
    target: Target::Fixed(2.5, 8.0),
    ..HOP
};
const QUEUES: Figure = Figure { name: "queue-hop", about: "the same between two queues of one engine", ..HOP };
const PROCESSES: Figure = Figure {
    name: "process-hop",
    about: "the same between engines and queues of two processes, by a shared fence",
    ..HOP
};

pub(super) const BENCHMARKS: &[Benchmark] = &[
    Benchmark { figures: &[ENGINES], run: engine_hop },
    Benchmark { figures: &[QUEUES], run: queue_hop },
    Benchmark { figures: &[PROCESSES], run: process_hop },
];

/// Hops in a submission that are timed; even.
const HOPS: u64 = 4000;
/// Hops before these, until both engines are at it; even.
const BEFORE: u64 = 200;

/// A queue, and its process's handle of the fence.
type Side<'a> = (&'a Queue, &'a Fence);

fn engine_hop(bed: &Bed) -> Result<Vec<Measured>> {
    let process = Resident::new(bed, "bench")?;
    let (one, two) = (process.device.queue(0, RING, 0, 0)?, process.device.queue(1, RING, 0, 0)?);
    let fence = process.device.fence(0, 0)?;
    bed.place([bed.pair.engine, bed.pair.producer])?;
    hop(bed, &ENGINES, &process, (&one, &fence), (&two, &fence))
}

fn queue_hop(bed: &Bed) -> Result<Vec<Measured>> {
    let process = Resident::new(bed, "bench")?;
    let (one, two) = (process.device.queue(0, RING, 0, 0)?, process.device.queue(0, RING, 0, 0)?);
    let fence = process.device.fence(0, 0)?;
    hop(bed, &QUEUES, &process, (&one, &fence), (&two, &fence))
}

fn process_hop(bed: &Bed) -> Result<Vec<Measured>> {
    let other = bed.world.process("other")?;
    let other_device = other.open()?.device()?;
    let two = other_device.queue(1, RING, 0, 0)?;
    let process = Resident::new(bed, "bench")?;
    let one = process.device.queue(0, RING, 0, 0)?;
    let fence = process.device.shared_fence(0)?;
    let opened = other_device.open_fence(other.receive(&process.user, fence.share()?)?, false)?;
    bed.place([bed.pair.engine, bed.pair.producer])?;
    hop(bed, &PROCESSES, &process, (&one, &fence), (&two, &opened))
}

/// Two queues signal and wait in turns for a fence whose value is 0.
fn hop(bed: &Bed, figure: &Figure, process: &Resident, one: Side<'_>, two: Side<'_>) -> Result<Vec<Measured>> {
    let clock = Clock::new(process, one.0)?;
    let effort = bed.options.effort;
    let (samples, _) = effort.of((5, 0));
    let hops = effort.count(HOPS, 40);
    let mut value = 0;
    bed.measure(figure, || {
        let limit = bed.line()? / 2.0;
        let values = (0..samples).map(|_| {
            let nanoseconds = turns(&clock, one, two, value, hops)?;
            value += BEFORE + hops;
            Ok(nanoseconds / hops as f64)
        });
        Ok(Taken::new(values.collect::<Result<_>>()?, vec![limit]))
    })
}

/// Nanoseconds of `hops` hops, from the fence's value `start` on.
fn turns(clock: &Clock, one: Side<'_>, two: Side<'_>, start: u64, hops: u64) -> Result<f64> {
    let begun = Instant::now();
    let end = start + BEFORE + hops;
    let (queue, fence) = two;
    queue.run(|list| {
        for value in (start + 1..=end).step_by(2) {
            list.wait(fence, value)?;
            list.signal(fence, value + 1)?;
        }
        Ok(())
    })?;
    let (queue, fence) = one;
    queue.run(|list| {
        for value in (start + 1..=end).step_by(2) {
            if value == start + BEFORE + 1 {
                list.timestamp(clock.address)?;
            }
            list.signal(fence, value)?;
            list.wait(fence, value + 1)?;
        }
        list.timestamp(clock.address + 8)
    })?;
    // Asleep: a third thread that looks would take a processor from an engine, where there are two.
    queue.wait(0, Some(PATIENCE))?;
    let passed = clock.between()?;
    ensure!(passed <= begun.elapsed().as_nanos() as f64, "the GPU's clock says more than has passed");
    Ok(passed)
}

/// The GPU's clock, held against the CPU's.
struct Clock {
    memory: Allocation,
    /// Of two timestamps.
    address: u64,
    /// Ticks per second.
    frequency: f64,
}

impl Clock {
    fn new(process: &Resident, queue: &Queue) -> Result<Self> {
        const TIME: Duration = Duration::from_millis(40);
        let memory = process.device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
        let address = memory.gpu_va()?;
        let frequency = process.adapter.info()?.gpu_clock_frequency as f64;
        let clock = Self { memory, address, frequency };
        let stamp = |at: u64| -> Result<(Instant, Instant)> {
            let before = Instant::now();
            queue.run(|list| list.timestamp(address + at))?;
            queue.wait(0, Some(PATIENCE))?;
            Ok((before, Instant::now()))
        };
        let (first, then) = (stamp(0)?, Instant::now());
        super::processors::pause(TIME);
        let last = stamp(8)?;
        let passed = clock.between()?;
        // From the end of the first to the begin of the last at least, and from begin to end at most; a hundredth of
        // that is between two oscillators.
        let least = (last.0 - first.1).as_nanos() as f64 * 0.99;
        let most = (last.1 - first.0).as_nanos() as f64 * 1.01;
        ensure!((least..=most).contains(&passed), "the GPU's clock says {passed} ns of {:?}", then.elapsed());
        Ok(clock)
    }

    /// Nanoseconds between the two timestamps.
    fn between(&self) -> Result<f64> {
        let (first, last) = (self.memory.read_u64(0)?, self.memory.read_u64(8)?);
        ensure!(first < last, "the GPU's clock says {first}, then {last}");
        Ok((last - first) as f64 * 1e9 / self.frequency)
    }
}
