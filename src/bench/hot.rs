//! The hot path: doorbell, execution, fence.

use super::{Bed, Benchmark, Measured, Resident, compare, limits};
use crate::client::{Fence, Queue};
use anyhow::Result;
use std::hint::spin_loop;
use std::time::{Duration, Instant};
use umd_core::ffi::types::FP_KIND_SYSTEM;

pub(super) const BENCHMARKS: &[Benchmark] = &[
    Benchmark {
        name: "doorbell-round-trip",
        about: "ring, and the fence value is seen by the CPU; beside a cache line's way to another core and back",
        run: round_trip,
    },
    Benchmark {
        name: "submissions",
        about: "submissions of one STORE each, doorbell for each; beside a bare ring of 64-byte packets",
        run: streaming,
    },
    Benchmark {
        name: "engine-hop",
        about: "signal on one engine, wait met on the other; beside a cache line's way to another core",
        run: engine_hop,
    },
    Benchmark {
        name: "process-hop",
        about: "the same between queues of two processes, by a shared fence",
        run: process_hop,
    },
];

const RING: u64 = 1 << 20;
const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

fn round_trip(bed: &Bed) -> Result<Measured> {
    const TURNS: u32 = 20_000;
    let process = Resident::new(bed, "bench")?;
    let queue = process.device.queue(0, RING, 0, 0)?;
    let mut list = queue.list()?;
    list.nop(16)?;
    compare(
        ("doorbell-round-trip", "ns", "cache-line round trip"),
        || Ok(limits::ping_pong()),
        || {
            let begun = Instant::now();
            for _ in 0..TURNS {
                let value = queue.submit(&mut list)?;
                while queue.progress()?.0 < value {
                    spin_loop();
                }
            }
            Ok(begun.elapsed().as_nanos() as f64 / f64::from(TURNS))
        },
    )
}

fn streaming(bed: &Bed) -> Result<Measured> {
    const TURNS: u32 = 100_000;
    let process = Resident::new(bed, "bench")?;
    let queue = process.device.queue(0, RING, 0, 0)?;
    let memory = process.device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
    let mut list = queue.list()?;
    list.store(memory.gpu_va()?, 1)?;
    compare(
        ("submissions", "1/s", "bare ring"),
        || Ok(limits::bare_ring()),
        || {
            let begun = Instant::now();
            let mut last = 0;
            for _ in 0..TURNS {
                last = queue.submit(&mut list)?;
            }
            while queue.progress()?.0 < last {
                spin_loop();
            }
            Ok(f64::from(TURNS) / begun.elapsed().as_secs_f64())
        },
    )
}

fn engine_hop(bed: &Bed) -> Result<Measured> {
    let process = Resident::new(bed, "bench")?;
    let (one, two) = (process.device.queue(0, RING, 0, 0)?, process.device.queue(1, RING, 0, 0)?);
    let fence = process.device.fence(0, 0)?;
    hop("engine-hop", (&one, &fence), (&two, &fence))
}

fn process_hop(bed: &Bed) -> Result<Measured> {
    let other = bed.world.process("other")?;
    let other_device = other.open()?.device()?;
    let two = other_device.queue(1, RING, 0, 0)?;
    let process = Resident::new(bed, "bench")?;
    let one = process.device.queue(0, RING, 0, 0)?;
    let fence = process.device.shared_fence(0)?;
    let opened = other_device.open_fence(other.receive(&process.user, fence.share()?)?, false)?;
    hop("process-hop", (&one, &fence), (&two, &opened))
}

/// Two queues signal and wait in turns; each has a handle of the same fence, whose value is 0.
fn hop(name: &'static str, one: (&Queue, &Fence), two: (&Queue, &Fence)) -> Result<Measured> {
    /// Hops in a submission.
    const HOPS: u64 = 100;
    const BATCHES: u64 = 20;
    let mut value = 0;
    compare(
        (name, "ns", "cache line one way"),
        || Ok(limits::ping_pong() / 2.0),
        || {
            let begun = Instant::now();
            for _ in 0..BATCHES {
                let start = value;
                let (queue, fence) = two;
                queue.run(|list| {
                    for hop in (1..=HOPS).step_by(2) {
                        list.wait(fence, start + hop)?;
                        list.signal(fence, start + hop + 1)?;
                    }
                    Ok(())
                })?;
                let (queue, fence) = one;
                queue.run(|list| {
                    for hop in (1..=HOPS).step_by(2) {
                        list.signal(fence, start + hop)?;
                        list.wait(fence, start + hop + 1)?;
                    }
                    Ok(())
                })?;
                value += HOPS;
                // Asleep: a third thread that spins would take a core from an engine, where there are two.
                fence.wait(value, PATIENCE)?;
            }
            Ok(begun.elapsed().as_nanos() as f64 / (BATCHES * HOPS) as f64)
        },
    )
}
