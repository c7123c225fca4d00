//! What cases of several groups use, beside [`Raw`], [`Room`] and [`Client`]: `mod.rs` says which is for what.

use super::client::Page;
use super::db::Memory;
use super::stage::PATIENCE;
use super::{Played, Room, Scene};
use crate::client::{Allocation, Device, Fence, Queue};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::initiative::LogBuffer;
use dxgkrnl_model::report::LogRecord;
use gpu_wire::packet::{Copy, Encoded, Log};
use std::time::Instant;
use umd_core::ffi::types::FP_KIND_SYSTEM;

/// Memory in which every execution moves a mark by one word.
pub struct ExecutionCount {
    a: Memory,
    b: Memory,
}

impl ExecutionCount {
    /// The mark at 0.
    ///
    /// # Errors
    /// When a step fails.
    pub fn new(scene: &Scene, room: &Room<'_>) -> anyhow::Result<Self> {
        let (a, b) = (room.memory(scene, 4096)?, room.memory(scene, 4096)?);
        room.raw.store(a.cpu, 1)?;
        Ok(Self { a, b })
    }

    /// What moves it.
    pub fn packets(&self) -> [Encoded; 2] {
        let there = Copy { source: self.a.gpu, destination: self.b.gpu + 8, length: 4088 };
        let back = Copy { source: self.b.gpu, destination: self.a.gpu, length: 4096 };
        [there.to_packet(), back.to_packet()]
    }

    /// Where it is.
    ///
    /// # Errors
    /// When a step fails.
    pub fn get(&self, room: &Room<'_>) -> anyhow::Result<usize> {
        for word in 0..512 {
            if room.raw.load(self.a.cpu + word * 8)? != 0 {
                return Ok(word);
            }
        }
        anyhow::bail!("the mark is gone")
    }
}

/// Queues a wait with a mark on either side; returns when the first mark is there: the wait has begun, or is about to.
///
/// # Errors
/// When a step fails.
pub fn begin_wait(scene: &Scene, queue: &Queue, fence: &Fence, value: u64, page: &Page, mark: u64) -> Played {
    queue.run(|list| {
        list.store(page.at(0), mark)?;
        list.wait(fence, value)?;
        list.store(page.at(1), mark)
    })?;
    page.until(scene, "the mark before the wait", 0, mark)
}

/// The entries that name `fence`, of waits or of signals.
pub fn native_fence_log_records(scene: &Scene, fence: u32, is_wait_log: bool) -> Vec<LogRecord> {
    let log = scene.world.os.report().log;
    log.into_iter().filter(|record| record.fence == fence && record.is_wait_log == is_wait_log).collect()
}

/// The log buffers of the queue with this handle: waits, signals.
///
/// # Errors
/// When a step fails.
pub fn native_fence_logs(scene: &Scene, queue: u32) -> anyhow::Result<[LogBuffer; 2]> {
    let all = scene.world.os.fence_logs(scene.adapter());
    let find = |waits: bool| all.iter().find(|log| log.queue == queue && log.is_wait_log == waits).copied();
    Ok([find(true).context("a log of waits")?, find(false).context("a log of signals")?])
}

/// A packet that writes an entry of a native fence log: for the fence with `handle`, with an operation of
/// `gpu_wire::packet::log_operation`.
pub fn native_fence_log_packet(handle: u32, operation: u32, value: u64, index_hint: u32) -> Encoded {
    Log { fence_handle: handle, operation, value, index_hint, reserved: 0 }.to_packet()
}

/// A queue on node 0 and memory that the CPU sees.
pub struct GpuReader {
    /// The queue on node 0.
    pub queue: Queue,
    /// The memory.
    pub memory: Allocation,
}

impl GpuReader {
    /// Makes both.
    ///
    /// # Errors
    /// When a step fails.
    pub fn new(device: &Device) -> Result<Self> {
        Ok(Self { queue: device.queue(0, 64 << 10, 0, 0)?, memory: device.allocate(FP_KIND_SYSTEM, 4096, 0)? })
    }

    /// What the GPU finds at `va`. No CPU wait, whose end would move a MonitoredValue some time later.
    ///
    /// # Errors
    /// When a step fails.
    pub fn read(&self, va: u64) -> Result<u64> {
        let at = self.memory.gpu_va()?;
        let progress = self.queue.run(|list| {
            list.store(at, 0xBAD)?;
            list.copy(va, at, 8)
        })?;
        let end = Instant::now() + PATIENCE.unwrap_or_default();
        while self.queue.progress()?.0 < progress {
            ensure!(Instant::now() < end, "the copy from {va:#x} did not end");
            std::thread::yield_now();
        }
        Ok(self.memory.read_u64(0)?)
    }
}
