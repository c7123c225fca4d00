//! Bulk work: bytes per second.

use super::{Bed, Benchmark, Measured, Resident, compare, limits};
use crate::client::Queue;
use anyhow::Result;
use std::hint::spin_loop;
use std::time::Instant;
use umd_core::ffi::types::FP_KIND_SYSTEM;

pub(super) const BENCHMARKS: &[Benchmark] = &[
    Benchmark { name: "fill", about: "FILL of 64 MiB; beside memset of as much", run: fill },
    Benchmark { name: "copy", about: "COPY of 64 MiB; beside memcpy of as much", run: copy },
];

const BYTES: usize = 64 << 20;

/// Submits and waits by polling; bytes per second in GB.
fn timed(queue: &Queue, list: &mut crate::client::List) -> Result<f64> {
    let begun = Instant::now();
    let value = queue.submit(list)?;
    while queue.progress()?.0 < value {
        spin_loop();
    }
    Ok(BYTES as f64 / begun.elapsed().as_secs_f64() / 1e9)
}

fn fill(bed: &Bed) -> Result<Measured> {
    let process = Resident::new(bed, "bench")?;
    let queue = process.device.queue(0, 64 << 10, 0, 0)?;
    let memory = process.device.allocate(FP_KIND_SYSTEM, BYTES as u64, 0)?;
    let mut list = queue.list()?;
    list.fill(memory.gpu_va()?, BYTES as u64, 0x5A5A_5A5A)?;
    let mut host = vec![0; BYTES];
    compare(("fill", "GB/s", "memset"), || Ok(limits::memset(&mut host) / 1e9), || timed(&queue, &mut list))
}

fn copy(bed: &Bed) -> Result<Measured> {
    let process = Resident::new(bed, "bench")?;
    let queue = process.device.queue(1, 64 << 10, 0, 0)?;
    let from = process.device.allocate(FP_KIND_SYSTEM, BYTES as u64, 0)?;
    let to = process.device.allocate(FP_KIND_SYSTEM, BYTES as u64, 0)?;
    let mut list = queue.list()?;
    list.copy(from.gpu_va()?, to.gpu_va()?, BYTES as u64)?;
    let (source, mut target) = (vec![1; BYTES], vec![0; BYTES]);
    let limit = || Ok(limits::memcpy(&source, &mut target) / 1e9);
    compare(("copy", "GB/s", "memcpy"), limit, || timed(&queue, &mut list))
}
