//! The engine alone: the shipped engine's code with plain locks, a plain clock and memory that is always mapped, on a
//! thread that does nothing else. What the driver has around it, as the model runs it, is the rest of a figure.

use super::limits::Line;
use super::path::Path;
use super::processors::{self, Pair};
use super::support::{Rig, TestQueue};
use super::{PATIENCE, RING};
use anyhow::{Context, Result, ensure};
use gpu_engine::queue::Binding;
use gpu_engine::word::Word;
use gpu_wire::PAGE_SIZE;
use gpu_wire::doorbell::{self, Token};
use gpu_wire::packet::{Encoded, HEADER_SIZE, Progress, Store};
use gpu_wire::ring::Geometry;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Instant;

/// The producer's side of an engine's queue: the five steps of a submission, without a user-mode driver.
pub(super) struct Alone {
    queue: TestQueue,
    token: Token,
    /// Packets of a submission; the value of its end, and the index of its log entry, are stamped.
    packets: Vec<u8>,
    /// Where the end begins.
    tail: usize,
    last_queued: Line,
    status: Line,
    pushed: u64,
    read: u64,
}

impl Alone {
    /// Runs `f` with an engine that steps on the other processor. A submission is a STORE with `stores`, else a NOP.
    pub fn with<R>(pair: Pair, stores: bool, f: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        let mut rig = Rig::new();
        let mut alone = Self::new(&mut rig, stores)?;
        let mut engine = rig.engines.swap_remove(0);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| -> Result<()> {
                processors::pin(None, pair.engine)?;
                while !stop.load(Ordering::Relaxed) {
                    engine.step();
                }
                Ok(())
            });
            let result = f(&mut alone);
            stop.store(true, Ordering::Relaxed);
            thread.join().ok().context("the engine's thread ended")??;
            result
        })
    }

    fn new(rig: &mut Rig, stores: bool) -> Result<Self> {
        let target = rig.map(1, false);
        let fence = rig.fence();
        let context = rig.context(0);
        let mut queue = rig.queue_on(&context, 0, Some(fence.current));
        queue.ring = rig.map(RING / PAGE_SIZE, false);
        queue.geometry = Geometry::new(RING).ok().context("a ring")?;
        let (ring, control, geometry) = (queue.ring.va, queue.control.va, queue.geometry);
        queue.queue.bind(Some(Binding { ring, control, geometry }));
        let work = if stores { Store { address: target.va.0, value: 1 }.to_packet() } else { Encoded::nop(16) };
        let mut packets = work.as_bytes().to_vec();
        packets.resize(16.max(packets.len()), 0);
        let tail = packets.len();
        packets.extend_from_slice(Progress { value: 0, fence_handle: 0x40, index_hint: 0 }.to_packet().as_bytes());
        let token = gpu_engine::gpu::token(queue.queue.slot);
        let (last_queued, status) = (Line::default(), Line::default());
        Ok(Self { queue, token, packets, tail, last_queued, status, pushed: 0, read: 0 })
    }

    fn stamp(&mut self) {
        let (value, hint) = (self.pushed.to_le_bytes(), ((self.pushed - 1) as u32).to_le_bytes());
        let mut put = |at: usize, bytes: &[u8]| self.packets[self.tail + at..][..bytes.len()].copy_from_slice(bytes);
        put(HEADER_SIZE + offset_of!(Progress, value), &value);
        put(HEADER_SIZE + offset_of!(Progress, index_hint), &hint);
    }
}

impl Path for Alone {
    fn push(&mut self) -> Result<()> {
        self.pushed += 1;
        self.stamp();
        let (queue, length) = (&mut self.queue, self.packets.len() as u64);
        while queue.wp + length > self.read + RING {
            self.read = queue.read_pointer();
        }
        let spans = queue.geometry.spans(queue.wp, length);
        let (first, second) = self.packets.split_at(spans.first_len as usize);
        queue.ring.bytes.part(spans.first, u64::MAX).write(first);
        if !second.is_empty() {
            queue.ring.bytes.write(second);
        }
        queue.wp += length;
        self.last_queued.0.store(self.pushed, Ordering::Release);
        queue.control.word(0).store(queue.wp, Ordering::Release);
        let rung = queue.doorbell_page.word(0).context("a doorbell")?;
        rung.store(doorbell::value(self.token, queue.wp), Ordering::Release);
        fence(Ordering::SeqCst);
        std::hint::black_box(self.status.0.load(Ordering::Relaxed));
        Ok(())
    }

    fn drain(&mut self) -> Result<()> {
        let mut looks = 0_u32;
        let mut since = None;
        while self.queue.progress.word(0).load(Ordering::Acquire) < self.pushed {
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(1 << 20) {
                let late = since.get_or_insert_with(Instant::now).elapsed() > PATIENCE;
                ensure!(!late, "the engine alone does not go on: {:?}", self.queue.fault());
            }
        }
        Ok(())
    }
}
