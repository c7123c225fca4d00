//! Submissions that go through the kernel: packets, and hardware queues without doorbells.

use super::hot::Submissions;
use super::limits::ring::bare_ring;
use super::path::stream;
use super::statistics::{Better, Figure, Taken, Target};
use super::{Bed, Benchmark, Measured, Resident};
use anyhow::Result;

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

pub(super) const BENCHMARKS: &[Benchmark] = &[
    Benchmark { figures: &[PACKETS], run: |bed| submissions(bed, 0, &PACKETS) },
    Benchmark { figures: &[QUEUES], run: |bed| submissions(bed, 1, &QUEUES) },
];

fn submissions(bed: &Bed, rung: u64, figure: &Figure) -> Result<Vec<Measured>> {
    let bed = bed.on_rung(rung, &[])?;
    let measured = {
        let process = Resident::new(&bed, "bench")?;
        let memory = process.device.allocate(umd_core::ffi::types::FP_KIND_SYSTEM, 4096, 0)?;
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
