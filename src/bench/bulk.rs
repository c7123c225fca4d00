//! Bulk work: bytes per second of fills and copies, beside the best that the engine's processor does with the same
//! pages: how far memory is depends on the processor.

use super::limits::memory::Bytes;
use super::processors::Pinned;
use super::statistics::{Better, Figure, Taken, Target, median};
use super::{Bed, Benchmark, Measured, RING, Resident, finish};
use crate::client::{Allocation, List, Queue};
use anyhow::{Result, ensure};
use std::time::Instant;
use umd_core::ffi::types::FP_KIND_SYSTEM;

const FILL: Figure = Figure {
    name: "",
    about: "FILL of as much, many in a list; beside the best of memset and non-temporal stores",
    unit: "GB/s",
    limit: "best of two fills",
    better: Better::Higher,
    target: Target::Fixed(0.95, 0.7),
};
const COPY: Figure = Figure {
    about: "COPY of as much, many in a list; beside the best of memcpy and non-temporal stores",
    limit: "best of two copies",
    ..FILL
};
/// At 4 KiB the packet counts as much as its work.
const SMALL: Target = Target::Fixed(0.95, 0.3);
const MEMSET: Figure = Figure {
    name: "fill",
    about: "FILL of 64 MiB; beside memset of as much",
    limit: "memset",
    target: Target::None,
    ..FILL
};
const MEMCPY: Figure = Figure {
    name: "copy",
    about: "COPY of 64 MiB; beside memcpy of as much",
    limit: "memcpy",
    target: Target::None,
    ..COPY
};

/// Bytes, by benchmark of either kind.
const SIZES: [usize; 5] = [4 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20];

const FILLS: [&[Figure]; SIZES.len()] = [
    &[Figure { name: "fill-4k", target: SMALL, ..FILL }],
    &[Figure { name: "fill-64k", ..FILL }],
    &[Figure { name: "fill-1m", ..FILL }],
    &[Figure { name: "fill-8m", ..FILL }],
    &[Figure { name: "fill-64m", ..FILL }, MEMSET],
];
const COPIES: [&[Figure]; SIZES.len()] = [
    &[Figure { name: "copy-4k", target: SMALL, ..COPY }],
    &[Figure { name: "copy-64k", ..COPY }],
    &[Figure { name: "copy-1m", ..COPY }],
    &[Figure { name: "copy-8m", ..COPY }],
    &[Figure { name: "copy-64m", ..COPY }, MEMCPY],
];

pub(super) const BENCHMARKS: &[Benchmark] = &[
    Benchmark { figures: FILLS[0], run: fill::<0> },
    Benchmark { figures: FILLS[1], run: fill::<1> },
    Benchmark { figures: FILLS[2], run: fill::<2> },
    Benchmark { figures: FILLS[3], run: fill::<3> },
    Benchmark { figures: FILLS[4], run: fill::<4> },
    Benchmark { figures: COPIES[0], run: copy::<0> },
    Benchmark { figures: COPIES[1], run: copy::<1> },
    Benchmark { figures: COPIES[2], run: copy::<2> },
    Benchmark { figures: COPIES[3], run: copy::<3> },
    Benchmark { figures: COPIES[4], run: copy::<4> },
];

/// How often a sample does what is measured, and samples of a round. A sample lasts so long, 0.3 ms or more, that one
/// submission's round trip is no part of it that counts.
const COUNTS: [(usize, usize); SIZES.len()] = [(1024, 15), (256, 15), (32, 9), (8, 5), (2, 3)];

/// Samples of `times` repetitions of `work` on `bytes`, in GB/s; once before for nothing: caches have the bytes then.
fn samples((times, samples): (usize, usize), bytes: usize, mut work: impl FnMut()) -> Vec<f64> {
    work();
    let sample = |_| {
        let begun = Instant::now();
        for _ in 0..times {
            work();
        }
        (times * bytes) as f64 / begun.elapsed().as_secs_f64() / 1e9
    };
    (0..samples).map(sample).collect()
}

/// The same of a list that has the work `times` times.
fn submitted((times, samples): (usize, usize), bytes: usize, queue: &Queue, list: &mut List) -> Result<Vec<f64>> {
    let once = queue.submit(list)?;
    finish(queue, once)?;
    let sample = |_| {
        let begun = Instant::now();
        let value = queue.submit(list)?;
        finish(queue, value)?;
        Ok((times * bytes) as f64 / begun.elapsed().as_secs_f64() / 1e9)
    };
    (0..samples).map(sample).collect()
}

/// The better of two ways.
fn best<'a>(one: &'a Vec<f64>, other: &'a Vec<f64>) -> &'a Vec<f64> {
    if median(one) >= median(other) { one } else { other }
}

/// Fails unless the allocation's last bytes are `byte`: work that is not done is fast.
fn ends_with(memory: &Allocation, bytes: usize, byte: u8) -> Result<()> {
    let last = memory.read_u64(bytes as u64 - 8)?;
    ensure!(last == u64::from_le_bytes([byte; 8]), "the last bytes are {last:x}");
    Ok(())
}

fn fill<const INDEX: usize>(bed: &Bed) -> Result<Vec<Measured>> {
    const BYTE: u8 = 0x5A;
    let bytes = SIZES[INDEX];
    let process = Resident::new(bed, "bench")?;
    let queue = process.device.queue(0, RING, 0, 0)?;
    let memory = process.device.allocate(FP_KIND_SYSTEM, bytes as u64, 0)?;
    let counts = bed.options.effort.of(COUNTS[INDEX]);
    let (mut list, address) = (queue.list()?, memory.gpu_va()?);
    for _ in 0..counts.0 {
        list.fill(address, bytes as u64, u32::from_le_bytes([BYTE; 4]))?;
    }
    let mut pages = Bytes::new(&memory)?;
    let rounds = bed.rounds(|| {
        bed.rest();
        let (set, streamed) = {
            let _there = Pinned::to(bed.pair.engine)?;
            (samples(counts, bytes, || pages.memset(1)), samples(counts, bytes, || pages.stream_set(2)))
        };
        let value = submitted(counts, bytes, &queue, &mut list)?;
        ends_with(&memory, bytes, BYTE)?;
        Ok(vec![Taken::new(value.clone(), best(&set, &streamed).clone()), Taken::new(value, set)])
    })?;
    Ok((0..).zip(FILLS[INDEX]).map(|(at, figure)| rounds.measured(at, figure)).collect())
}

fn copy<const INDEX: usize>(bed: &Bed) -> Result<Vec<Measured>> {
    const BYTE: u8 = 0xA5;
    let bytes = SIZES[INDEX];
    let process = Resident::new(bed, "bench")?;
    let queue = process.device.queue(1, RING, 0, 0)?;
    let from = process.device.allocate(FP_KIND_SYSTEM, bytes as u64, 0)?;
    let to = process.device.allocate(FP_KIND_SYSTEM, bytes as u64, 0)?;
    let counts = bed.options.effort.of(COUNTS[INDEX]);
    let mut list = queue.list()?;
    for _ in 0..counts.0 {
        list.copy(from.gpu_va()?, to.gpu_va()?, bytes as u64)?;
    }
    let (mut source, mut target) = (Bytes::new(&from)?, Bytes::new(&to)?);
    source.memset(BYTE);
    let rounds = bed.rounds(|| {
        bed.rest();
        let (copied, streamed) = {
            let _there = Pinned::to(bed.pair.engine)?;
            (samples(counts, bytes, || target.memcpy(&source)), samples(counts, bytes, || target.stream_copy(&source)))
        };
        target.memset(0);
        let value = submitted(counts, bytes, &queue, &mut list)?;
        ends_with(&to, bytes, BYTE)?;
        Ok(vec![Taken::new(value.clone(), best(&copied, &streamed).clone()), Taken::new(value, copied)])
    })?;
    Ok((0..).zip(COPIES[INDEX]).map(|(at, figure)| rounds.measured(at, figure)).collect())
}
