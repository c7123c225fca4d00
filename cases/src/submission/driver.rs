//! Cases by the user-mode driver.

use crate::client::{Device, Refused};
use crate::jobs::{ACTIVE, is_over, until};
use crate::room::same;
use crate::{Process, System};
use anyhow::{Result, anyhow, ensure};
use std::sync::Mutex;
use umd_core::ffi::types::{FP_KIND_SYSTEM, FP_MODE_KERNEL, FP_MODE_USER, FP_QUEUE_KERNEL_MODE, FP_SUBMIT_DO_NOT_WAIT};
use wddm_abi::NTSTATUS;
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_IO_TIMEOUT, STATUS_NOT_SUPPORTED};

/// Plays with a device of a process of its own.
fn inside(system: &dyn System, play: impl FnOnce(&dyn Process, &Device) -> Result<()>) -> Result<()> {
    let process = system.process("client", false)?;
    let device = process.adapter().device()?;
    play(&*process, &device)
}

/// A call must be refused with a status.
fn refused<T>(what: &str, result: std::result::Result<T, Refused>, want: NTSTATUS) -> Result<()> {
    match result {
        Ok(_) => anyhow::bail!("{what}: succeeded, instead of {want:?}"),
        Err(refused) => same(what, refused.status, want),
    }
}

pub fn five_steps(system: &dyn System) -> Result<()> {
    inside(system, |_, device| {
        let queue = device.queue(0, 64 << 10, 0, 0)?;
        let memory = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
        let at = memory.gpu_va()?;
        let progress = queue.run(|list| list.store(at, 0xC0FFEE))?;
        queue.wait(progress, Some(system.patience()))?;
        same("memory", memory.read_u64(0)?, 0xC0FFEE)?;
        same("progress", queue.progress()?, (progress, progress))?;
        same("rings", queue.counters()?.rings, 1)
    })
}

pub fn full(system: &dyn System) -> Result<()> {
    const ROUNDS: u64 = 200;
    inside(system, |_, device| {
        let queue = device.queue(0, 4096, 0, 0)?;
        let gate = device.fence(0, 0)?;
        let memory = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
        let at = memory.gpu_va()?;
        queue.run(|list| list.wait(&gate, 1))?;
        let mut taken = 0;
        let last = loop {
            let mut list = queue.list()?;
            list.store(at + taken * 8, taken + 1)?;
            match queue.submit_with(&mut list, FP_SUBMIT_DO_NOT_WAIT) {
                Ok(_) => taken += 1,
                error => break error,
            }
            ensure!(taken < ROUNDS, "a ring of 4 KiB took {taken} submissions");
        };
        refused("into a full ring", last, STATUS_IO_TIMEOUT)?;
        ensure!(taken > 10, "{taken} submissions filled the ring");
        same("progress", queue.progress()?, (0, taken + 1))?;
        let (before, begun) = (system.fence_waits(), std::time::Instant::now());
        std::thread::scope(|scope| {
            let producer = scope.spawn(|| -> Result<()> {
                for index in taken..ROUNDS {
                    queue.run(|list| list.store(at + index * 8, index + 1))?;
                }
                Ok(())
            });
            // A producer that has looked long enough waits for the progress fence. Where the system does not say so, it
            // has some time to.
            let stalls = || match system.fence_waits() {
                Some(now) => Some(now) > before,
                None => begun.elapsed() > std::time::Duration::from_millis(20),
            };
            until("a stall", system.patience(), || Ok(stalls() || producer.is_finished()))?;
            ensure!(!producer.is_finished(), "the ring took everything");
            gate.signal(1)?;
            producer.join().map_err(|_| anyhow!("the producer panicked"))?
        })?;
        queue.wait(0, Some(system.patience()))?;
        ensure!(queue.counters()?.stalls >= 1, "nothing stalled");
        for index in 0..ROUNDS {
            same("memory", memory.read_u64(index * 8)?, index + 1)?;
        }
        Ok(())
    })
}

pub fn threads(system: &dyn System) -> Result<()> {
    const THREADS: u64 = 8;
    const EACH: u64 = 60;
    inside(system, |_, device| {
        let queue = device.queue(0, 4096, 0, 0)?;
        let memory = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
        let at = memory.gpu_va()?;
        let lock = Mutex::new(());
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (queue, lock) = (&queue, &lock);
                    scope.spawn(move || -> Result<()> {
                        for index in 0..EACH {
                            let slot = thread * EACH + index;
                            let mut list = queue.list()?;
                            list.store(at + slot * 8, slot + 1)?;
                            let _turn = lock.lock().map_err(|_| anyhow!("a thread panicked"))?;
                            queue.submit(&mut list)?;
                        }
                        Ok(())
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a panic"))?)
        })?;
        queue.wait(0, Some(system.patience()))?;
        same("progress", queue.progress()?, (THREADS * EACH, THREADS * EACH))?;
        for slot in 0..THREADS * EACH {
            same("memory", memory.read_u64(slot * 8)?, slot + 1)?;
        }
        Ok(())
    })
}

pub fn mixed(system: &dyn System) -> Result<()> {
    inside(system, |_, device| {
        let patience = Some(system.patience());
        let kernel = device.queue(0, 4096, FP_QUEUE_KERNEL_MODE, 0)?;
        let user_mode = device.queue(0, 4096, 0, 0)?;
        same("modes", (kernel.info()?.mode, user_mode.info()?.mode), (FP_MODE_KERNEL, FP_MODE_USER))?;
        let memory = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
        let at = memory.gpu_va()?;
        for round in 1..=30 {
            kernel.run(|list| list.store(at, round))?;
            user_mode.run(|list| list.store(at + 8, round))?;
            if round % 10 == 0 {
                kernel.wait(0, patience)?;
                user_mode.wait(0, patience)?;
                same("memory", (memory.read_u64(0)?, memory.read_u64(8)?), (round, round))?;
            }
        }
        // One that waits does not hold the other up.
        let gate = device.fence(0, 0)?;
        kernel.run(|list| list.wait(&gate, 1))?;
        let progress = user_mode.run(|list| list.nop(8))?;
        user_mode.wait(progress, patience)?;
        user_mode.run(|list| list.signal(&gate, 1))?;
        Ok(kernel.wait(0, patience)?)
    })
}

pub fn together(system: &dyn System) -> Result<()> {
    const LISTS: u64 = 12;
    inside(system, |_, device| {
        let patience = Some(system.patience());
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
            lists.collect::<Result<Vec<_>>>()
        };
        let mut lists = record(1..1 + LISTS)?;
        same("the submission", queue.submit_lists(&mut lists, 0)?, 1)?;
        queue.wait(1, patience)?;
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
        Ok(queue.wait(0, patience)?)
    })
}

pub fn resize(system: &dyn System) -> Result<()> {
    const SIZES: [u64; 4] = [4096, 65536, 8192, 16384];
    inside(system, |_, device| {
        let patience = Some(system.patience());
        let queue = device.queue(0, 4096, 0, 0)?;
        let memory = device.allocate(FP_KIND_SYSTEM, 65536, 0)?;
        let (at, gate) = (memory.gpu_va()?, device.fence(0, 0)?);
        // Each submission counts on from the one before, so that none is lost, comes twice or changes places.
        let mut count = 0;
        let mut submit = |times: u64| -> Result<()> {
            for _ in 0..times {
                count += 1;
                let mut list = queue.list()?;
                list.copy(at, at + 8 * count, 8)?;
                list.store(at, count)?;
                queue.submit(&mut list)?;
            }
            Ok(())
        };
        for round in 0..60 {
            submit(50)?;
            let resize = || queue.resize(SIZES[round % SIZES.len()]);
            while let Err(error) = resize() {
                refused::<()>("a resize", Err(error), STATUS_IO_TIMEOUT)?;
                queue.wait(0, patience)?;
            }
        }
        submit(50)?;
        queue.wait(0, patience)?;
        for value in 1..=60 * 50 + 50 {
            same("what was there before", memory.read_u64(8 * value)?, value - 1)?;
        }
        same("progress", queue.progress()?, (3050, 3050))?;
        // Behind a wait: two rings are kept, and no more.
        queue.run(|list| list.wait(&gate, 1))?;
        for value in [1, 2] {
            queue.run(|list| list.store(at, value))?;
            queue.resize(8192)?;
        }
        queue.run(|list| list.store(at, 3))?;
        refused("a third resize behind a wait", queue.resize(4096), STATUS_IO_TIMEOUT)?;
        refused("no size of a ring", queue.resize(5000), STATUS_INVALID_PARAMETER)?;
        same("progress", queue.progress()?, (3050, 3054))?;
        gate.signal(1)?;
        queue.wait(0, patience)?;
        same("the last store", memory.read_u64(0)?, 3)?;
        queue.resize(4096)?;
        queue.run(|list| list.store(at, 4))?;
        queue.wait(0, patience)?;
        same("the last store", memory.read_u64(0)?, 4)?;
        let kernel = device.queue(0, 4096, FP_QUEUE_KERNEL_MODE, 0)?;
        refused("of a kernel-mode queue", kernel.resize(8192), STATUS_NOT_SUPPORTED)
    })
}

/// Where nothing is mapped.
const NOWHERE: u64 = 0x7F00_0000_0000;

pub fn recreated(system: &dyn System) -> Result<()> {
    let patience = Some(system.patience());
    let process = system.process("client", false)?;
    let adapter = process.adapter();
    let device = adapter.device()?;
    let (queue, memory) = (device.queue(0, 4096, 0, 0)?, device.allocate(FP_KIND_SYSTEM, 4096, 0)?);
    let (at, mode) = (memory.gpu_va()?, queue.info()?.mode);
    // Through the kernel: on rung 3 another way than the queue's own.
    let kernel = if mode == FP_MODE_USER { FP_MODE_KERNEL } else { mode };
    let mut stored = 0;
    for (flags, want, times) in [(0, mode, 3), (FP_QUEUE_KERNEL_MODE, kernel, 4), (0, mode, 200)] {
        refused("an unknown flag", queue.recreate(1 << 31), STATUS_INVALID_PARAMETER)?;
        queue.recreate(flags)?;
        same("how it submits", queue.info()?.mode, want)?;
        same("progress of a queue that is made anew", queue.progress()?, (0, 0))?;
        for number in 1..=times {
            stored += 1;
            same("a progress value", queue.run(|list| list.store(at, stored))?, number)?;
        }
        queue.wait(0, patience)?;
        same("progress", queue.progress()?, (times, times))?;
        same("memory", memory.read_u64(0)?, stored)?;
    }
    let bad = adapter.device()?;
    let (lost, beside) = (bad.queue(0, 4096, 0, 0)?, bad.queue(0, 4096, FP_QUEUE_KERNEL_MODE, 0)?);
    // Where the end of a list is a call of its own, that may find the device lost.
    let _refused = lost.run(|list| list.store(NOWHERE, 1));
    until("the loss of the device", system.patience(), || Ok(bad.state()?.execution != ACTIVE))?;
    for queue in [&lost, &beside] {
        is_over(queue, system.patience())?;
    }
    // The device beside it is as it was; and there is another in its place.
    queue.recreate(0)?;
    for device in [&device, &adapter.device()?] {
        let next = device.queue(0, 4096, 0, 0)?;
        let page = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
        let to = page.gpu_va()?;
        next.run(|list| list.store(to, 5))?;
        next.wait(0, patience)?;
        same("memory", page.read_u64(0)?, 5)?;
    }
    Ok(())
}

pub fn cpu_waits(system: &dyn System) -> Result<()> {
    inside(system, |_, device| {
        let (queue, gate, fence) = (device.queue(0, 4096, 0, 0)?, device.fence(0, 0)?, device.fence(0, 0)?);
        queue.run(|list| {
            list.wait(&gate, 1)?;
            list.signal(&fence, 9)
        })?;
        refused("a wait for what is not signaled", fence.wait(9, Some(std::time::Duration::ZERO)), STATUS_IO_TIMEOUT)?;
        let patience = Some(system.patience());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| fence.wait(9, patience));
            std::thread::park_timeout(std::time::Duration::from_millis(20));
            ensure!(!waits.is_finished(), "the wait ended before the signal");
            gate.signal(1)?;
            Ok(waits.join().map_err(|_| anyhow!("a panic"))??)
        })?;
        same("value", fence.value()?, 9)
    })
}

pub fn gpu_waits(system: &dyn System) -> Result<()> {
    inside(system, |_, device| {
        let (queue, fence) = (device.queue(0, 4096, 0, 0)?, device.fence(0, 0)?);
        let memory = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
        let at = memory.gpu_va()?;
        queue.run(|list| {
            list.wait(&fence, 5)?;
            list.store(at, 1)
        })?;
        for value in [1, 4] {
            fence.signal(value)?;
            std::thread::park_timeout(std::time::Duration::from_millis(5));
            same("what is stored before the wait is met", memory.read_u64(0)?, 0)?;
        }
        fence.signal(5)?;
        queue.wait(0, Some(system.patience()))?;
        until("what stands behind the wait", system.patience(), || Ok(memory.read_u64(0)? == 1))
    })
}
