//! Several lists in one submission.

use crate::scenario::stage::PATIENCE;
use crate::scenario::{Played, Scenario, Setup, Stage, refused, same};
use anyhow::ensure;
use umd_core::ffi::types::{FP_KIND_SYSTEM, FP_SUBMIT_DO_NOT_WAIT};
use wddm_abi::ntstatus::STATUS_IO_TIMEOUT;

pub(super) const CASES: &[Scenario] = &[Scenario {
    id: "DB-48",
    title: "several lists in one submission: one doorbell, one progress value, all or none",
    source: "User-mode work submission, HW queue progress fence changes",
    play: together,
}];

fn together(stage: &Stage) -> Played {
    const LISTS: u64 = 12;
    stage.play(Setup::default(), |scene| {
        let user = scene.process("client")?;
        let device = user.open()?.device()?;
        let queue = device.queue(0, 4096, 0, 0)?;
        let memory = device.allocate(FP_KIND_SYSTEM, 65536, 0)?;
        let (at, gate) = (memory.gpu_va()?, device.fence(0, 0)?);
        let record = |values: std::ops::Range<u64>| {
            let lists = values.map(|value| {
                let mut list = queue.list()?;
                list.copy(at, at + 8 * value, 8)?;
                list.store(at, value)?;
                list.signal(&gate, value)?;
                Ok(list)
            });
            lists.collect::<anyhow::Result<Vec<_>>>()
        };
        let mut lists = record(1..1 + LISTS)?;
        same("the submission", queue.submit_lists(&mut lists, 0)?, 1)?;
        queue.wait(1, PATIENCE)?;
        // Each copies what the one before it has stored.
        for value in 1..=LISTS {
            same("what was there before", memory.read_u64(8 * value)?, value - 1)?;
        }
        let counters = queue.counters()?;
        same("submissions, doorbells", (counters.submissions, counters.rings), (1, 1))?;
        same("signals", gate.value()?, LISTS)?;
        // A ring that is full of what waits takes all of them or none.
        queue.run(|list| list.wait(&gate, 1000))?;
        let mut many = record(1100..1130)?;
        let (mut taken, first) = (2, memory.read_u64(0)?);
        let full = loop {
            match queue.submit_lists(&mut many, FP_SUBMIT_DO_NOT_WAIT) {
                Ok(progress) => taken = progress,
                error => break error,
            }
            ensure!(taken < 50, "a ring of 4 KiB took {taken} submissions");
        };
        refused("into a full ring", full, STATUS_IO_TIMEOUT)?;
        same("progress", queue.progress()?, (1, taken))?;
        same("memory", memory.read_u64(0)?, first)?;
        gate.signal(1000)?;
        queue.wait(0, PATIENCE)?;
        Ok(())
    })
}
