//! Submissions that go through the kernel: packets, and hardware queues without doorbells.

use super::hot::Submissions;
use super::limits::ring::bare_ring;
use super::path::{stream, trips};
use super::statistics::{Better, Figure, Taken, Target};
use super::{Bed, Benchmark, Measured, Resident};
use anyhow::Result;
use umd_core::ffi::types::{FP_KIND_SYSTEM, FP_QUEUE_KERNEL_MODE};

const PACKETS: Figure = Figure {
    name: "packets",
    about: "submissions of one STORE by packets, on rung 0; beside a bare ring of 64-byte packets",
    unit: "1/s",
    limit: "bare ring",
    better: Better::Higher,
    target: Target::None,
};
const QUEUES: Figure =
    Figure { name: "hardware-queues", about: "the same by hardware queues and the kernel, on rung 1", ..PACKETS };

const TRIP: Figure = Figure {
    name: "kernel-round-trip",
    about: "a submission through the kernel, until it is done; beside one by doorbell of the same driver",
    unit: "ns",
    limit: "by doorbell",
    better: Better::Lower,
    target: Target::None,
};
const STREAM: Figure = Figure {
    name: "kernel-streaming",
    about: "submissions of one STORE through the kernel; beside those by doorbell of the same driver",
    limit: "by doorbell",
    ..PACKETS
};

pub(super) const BENCHMARKS: &[Benchmark] = &[
    Benchmark { figures: &[TRIP, STREAM], run: beside_doorbells },
    Benchmark { figures: &[PACKETS], run: |bed| submissions(bed, 0, &PACKETS) },
    Benchmark { figures: &[QUEUES], run: |bed| submissions(bed, 1, &QUEUES) },
];

fn submissions(bed: &Bed, rung: u64, figure: &Figure) -> Result<Vec<Measured>> {
    let bed = bed.on_rung(rung, &[])?;
    let measured = {
        let process = Resident::new(&bed, "bench")?;
        let memory = process.device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
        let address = memory.gpu_va()?;
        let mut queues = Submissions::queues(&process, |list| list.store(address, 1))?;
        bed.measure(figure, || {
            queues.rotate_left(1);
            bed.rest();
            let bare = bare_ring(bed.pair, |ring| stream(ring, bed.options.effort))?;
            Ok(Taken::new(stream(&mut queues[0], bed.options.effort)?, bare))
        })?
    };
    bed.world.os.shut_down();
    Ok(measured)
}

/// Both kinds of queues on one machine, on rung 3.
fn beside_doorbells(bed: &Bed) -> Result<Vec<Measured>> {
    let process = Resident::new(bed, "bench")?;
    let memory = process.device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
    let address = memory.gpu_va()?;
    let queues = |flags| Submissions::queues_with(&process, flags, |list| list.store(address, 1));
    let (mut kernel, mut user) = (queues(FP_QUEUE_KERNEL_MODE)?, queues(0)?);
    let effort = bed.options.effort;
    let rounds = bed.rounds(|| {
        kernel.rotate_left(1);
        user.rotate_left(1);
        bed.rest();
        let (limit, limit_tail) = trips(&mut user[0], effort)?;
        bed.rest();
        let (value, value_tail) = trips(&mut kernel[0], effort)?;
        bed.rest();
        let streamed = stream(&mut user[0], effort)?;
        bed.rest();
        let through = stream(&mut kernel[0], effort)?;
        Ok(vec![Taken { value, value_tail, limit, limit_tail }, Taken::new(through, streamed)])
    })?;
    Ok(vec![rounds.measured(0, &TRIP), rounds.measured(1, &STREAM)])
}
