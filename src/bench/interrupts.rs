//! Interrupts: none for what nobody waits for.

use super::statistics::{Better, Figure, Target, counted};
use super::{Bed, Benchmark, Measured, PATIENCE, RING, Resident};
use anyhow::Result;
use std::hint::spin_loop;
use wddm_abi::DXGK_INTERRUPT_TYPE;

const COUNT: Figure = Figure {
    name: "interrupts-no-waiter",
    about: "interrupts per million signals that nobody waits for; beside none",
    unit: "1/million signals",
    limit: "none",
    better: Better::Lower,
    target: Target::None,
};
const ONE: Figure = Figure {
    name: "interrupts-one-waiter",
    about: "interrupts per million signals of which one has a waiter; beside one",
    limit: "one",
    ..COUNT
};

pub(super) const BENCHMARKS: &[Benchmark] =
    &[Benchmark { figures: &[COUNT], run: without_waiter }, Benchmark { figures: &[ONE], run: with_waiter }];

/// Signals in a submission.
const AT_ONCE: u64 = 500;

/// Fence interrupts per million signals; `waiter`: a thread waits for one in the middle, and the count is not scaled.
fn interrupts(bed: &Bed, waiter: bool) -> Result<f64> {
    let signals = bed.options.effort.count(1_000_000, 5000);
    let process = Resident::new(bed, "bench")?;
    let queue = process.device.queue(0, RING, 0, 0)?;
    let fence = process.device.fence(0, 0)?;
    // Other work interrupts, too: memory for the lists is mapped by the paging node.
    let raised = || -> u64 {
        let kind = DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_NATIVE_FENCE_SIGNALED;
        bed.world.os.report().adapters.iter().filter_map(|adapter| adapter.kinds.get(&kind)).sum()
    };
    let before = raised();
    let signal_all = || -> Result<()> {
        for first in (0..signals).step_by(AT_ONCE as usize) {
            let last =
                queue.run(|list| (first + 1..=first + AT_ONCE).try_for_each(|value| list.signal(&fence, value)))?;
            // Never so far ahead that the ring is full: waiting for room would be a wait like any other.
            while queue.progress()?.0 + 4 < last {
                spin_loop();
            }
        }
        while fence.value()? < signals {
            spin_loop();
        }
        Ok(())
    };
    if waiter {
        let raw = crate::scenario::Raw::open(&process.user.process, bed.luid)?;
        let device = raw.device()?;
        let (event, handle) = raw.event();
        raw.wait_cpu(device, &[(fence.info()?.handle, signals / 2)], false, Some(handle))?;
        signal_all()?;
        anyhow::ensure!(raw.wait_event(&event, PATIENCE), "the waiter was not woken");
        raw.close(handle);
        raw.destroy_device(device)?;
    } else {
        signal_all()?;
    }
    let raised = (raised() - before) as f64;
    // An interrupt of a waiter is one, however many signals there are.
    Ok(if waiter { raised } else { raised * 1e6 / signals as f64 })
}

fn without_waiter(bed: &Bed) -> Result<Vec<Measured>> {
    Ok(vec![counted(&COUNT, &[interrupts(bed, false)?], 0.0)])
}

fn with_waiter(bed: &Bed) -> Result<Vec<Measured>> {
    Ok(vec![counted(&ONE, &[interrupts(bed, true)?], 1.0)])
}
