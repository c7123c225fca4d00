//! What the OS does for the GPU by itself: frames, page tables, processes, queues, and resets.

use super::host::{FRAMES, FuzzHost, WORDS};
use anyhow::{Result, anyhow, bail};
use gpu_engine::NoMemory;
use gpu_engine::address_space::{Root, Roots};
use gpu_engine::context::{Context, Process};
use gpu_engine::fence_table::FenceTable;
use gpu_engine::gpu::Gpu;
use gpu_engine::host::Lock;
use gpu_engine::node::{Control, Phase};
use gpu_engine::packet_context::PacketContext;
use gpu_engine::queue::{Binding, ParkedFence, Queue};
use gpu_engine::schedule::Turns;
use gpu_engine::shared::Shared;
use gpu_wire::doorbell::Model;
use gpu_wire::packet::Privilege;
use gpu_wire::pte::{self, Place, Pte};
use gpu_wire::ring::Geometry;
use gpu_wire::{GpuVa, PAGE_SIZE};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a ring.
pub const RING: u64 = 4096;

/// Entries of a queue's logs, and the bytes that they and their header take.
const LOG_ENTRIES: u32 = 40;
/// As above.
pub const LOG_BYTES: u64 = 40 + 40 * 48;

/// What a log's page holds behind the log.
pub const BEHIND_LOG: u64 = 0x0106_0106;

/// How long an engine may take to hold, or to serve a flush, on a machine that does other things.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Memory is always there here.
pub fn made<T>(made: Result<T, NoMemory>) -> Result<T> {
    made.map_err(|_| anyhow!("no memory"))
}

/// A process with one set of page tables for all its contexts.
pub struct Owner {
    /// The process.
    pub process: Shared<Process<FuzzHost>>,
    /// The address space of its packets.
    pub context: Shared<PacketContext<FuzzHost>>,
    root: Root,
}

/// An address, and the frame that is there.
pub type At = (u64, u64);

/// Memory for one queue at a time.
#[derive(Clone, Copy)]
pub struct Seat {
    /// Address and frame of the ring.
    pub ring: (u64, u64),
    /// The same of the control page.
    pub control: (u64, u64),
    /// Frames of the logs.
    pub logs: [u64; 2],
}

/// A queue in a context of its own.
pub struct Made {
    /// The queue.
    pub queue: Shared<Queue<FuzzHost>>,
    /// Its doorbell's number; `None` for a kernel-mode queue.
    pub doorbell: Option<usize>,
    /// Bytes written to its ring.
    pub written: u64,
    /// Turns in which its context could not run.
    pub stuck: u32,
}

/// The OS.
pub struct Os {
    /// The GPU.
    pub gpu: Shared<Gpu<FuzzHost>>,
    next_frame: u64,
    next_va: u64,
    /// By frame, whether the hostile process or the engines on its behalf may write it.
    pub open: Vec<bool>,
}

impl Os {
    /// For a GPU whose doorbells are the frames up to `first`.
    pub fn new(gpu: Shared<Gpu<FuzzHost>>, first: u64) -> Self {
        // CAST: below the number of frames.
        let open = (0..FRAMES).map(|frame| frame < first).collect();
        Self { gpu, next_frame: first, next_va: 0x20_0000, open }
    }

    /// Frames that were given out.
    pub fn frames(&self) -> u64 {
        self.next_frame
    }

    /// `count` frames side by side.
    pub fn take(&mut self, count: u64, open: bool) -> u64 {
        let first = self.next_frame;
        self.next_frame += count;
        assert!(self.next_frame <= FRAMES, "the round needs more frames");
        // CAST: below the number of frames.
        (first..first + count).for_each(|frame| self.open[frame as usize] = open);
        first
    }

    /// A word of system memory.
    pub fn word(&self, frame: u64, index: u64) -> &AtomicU64 {
        self.gpu.host.system.word(frame, index)
    }

    /// A process.
    pub fn process(&mut self) -> Result<Owner> {
        let slot = made(self.gpu.slots.allocate(0x1000))?;
        let (number, fences, roots) = (self.gpu.new_space_id(), FenceTable::new(), Roots::new());
        let process = made(Shared::try_new(Process {
            number,
            slot,
            roots,
            fences,
            privilege: Privilege::User,
            turns: Turns::default(),
        }))?;
        let root = Root { place: Place::System(self.take(1, false)), entries: pte::ENTRIES };
        let context = made(Shared::try_new(made(PacketContext::new(process.clone(), 0x77))?))?;
        context.space.set_root(Some(root), self.gpu.new_space_id());
        Ok(Owner { process, context, root })
    }

    /// The leaf entry of an address, with the tables that it needs.
    pub fn leaf(&mut self, owner: &Owner, va: u64) -> &AtomicU64 {
        let mut place = owner.root.place;
        for level in (0..pte::LEVELS).rev() {
            let Place::System(frame) = place else { unreachable!("tables are in system memory") };
            let index = u64::from(pte::index(GpuVa(va), level));
            if level == 0 {
                return self.word(frame, index);
            }
            let entry = Pte(self.word(frame, index).load(Ordering::SeqCst));
            place = entry.as_table().unwrap_or_else(|| {
                let next = Place::System(self.take(1, false));
                let entry = Pte::table(next).unwrap_or(Pte::INVALID);
                self.word(frame, index).store(entry.0, Ordering::SeqCst);
                next
            });
        }
        unreachable!("level 0 returns")
    }

    /// Maps `place` at `va`.
    pub fn map_at(&mut self, owner: &Owner, va: u64, place: Place, read_only: bool) {
        let entry = Pte::leaf(place, read_only).unwrap_or(Pte::INVALID);
        self.leaf(owner, va).store(entry.0, Ordering::SeqCst);
    }

    /// New frames at a new address, with a page unmapped behind them: address and first frame.
    pub fn map(&mut self, owner: &Owner, pages: u64, read_only: bool, open: bool) -> (u64, u64) {
        let (va, first) = (self.next_va, self.take(pages, open));
        self.next_va += (pages + 1) * PAGE_SIZE;
        for page in 0..pages {
            self.map_at(owner, va + page * PAGE_SIZE, Place::System(first + page), read_only);
        }
        (va, first)
    }

    /// Memory for a queue.
    pub fn seat(&mut self, owner: &Owner) -> Seat {
        let (ring, control) = (self.map(owner, 1, false, true), self.map(owner, 1, false, true));
        let logs = [self.take(1, true), self.take(1, true)];
        for frame in logs {
            (LOG_BYTES / 8..WORDS).for_each(|word| self.word(frame, word).store(BEHIND_LOG, Ordering::SeqCst));
        }
        Seat { ring, control, logs }
    }

    /// A fence of `owner`, and the places of its two values.
    pub fn fence(&mut self, owner: &Owner, shadow: bool) -> Result<(Shared<ParkedFence<FuzzHost>>, At, At)> {
        // The OS writes the second value.
        let (current, monitored) = (self.map(owner, 1, false, true), self.map(owner, 1, true, true));
        self.word(monitored.1, 0).store(u64::MAX, Ordering::SeqCst);
        let fence = made(Shared::try_new(ParkedFence::new(made(self.gpu.slots.allocate(0xF000))?, shadow)))?;
        let opened = owner.process.fences.open(GpuVa(current.0), GpuVa(monitored.0), &fence);
        opened.map_err(|_| anyhow!("the fence cannot be opened"))?;
        Ok((fence, current, monitored))
    }

    /// A queue on `node` in a context of its own, connected to `doorbell`.
    pub fn queue(&mut self, owner: &Owner, seat: &Seat, node: usize, doorbell: Option<usize>) -> Result<Made> {
        let gpu = &self.gpu;
        let context =
            Context::new(made(gpu.admit(node))?, made(gpu.slots.allocate(0xC000))?, node, owner.process.clone());
        context.space.set_root(Some(owner.root), gpu.new_space_id());
        let context = made(Shared::try_new(context))?;
        let (member, slot) = (made(gpu.admit(node))?, made(gpu.slots.allocate(0xA000))?);
        let progress = GpuVa(seat.control.0 + 512);
        let queue = made(Queue::new(member, slot, context, doorbell.is_some(), progress, true))?;
        let queue = made(Shared::try_new(queue))?;
        for (log, frame) in [(&queue.waits, seat.logs[0]), (&queue.signals, seat.logs[1])] {
            let page = gpu.host.system.span(frame, 1).part(0, LOG_BYTES);
            let set = log.with(|log| log.set(page, LOG_ENTRIES));
            set.map_err(|_| anyhow!("the log is not taken"))?;
        }
        if let Some(doorbell) = doorbell {
            self.word(seat.control.1, 0).store(0, Ordering::SeqCst);
            let geometry = Geometry::new(RING).map_err(|_| anyhow!("no ring"))?;
            queue.bind(Some(Binding { ring: GpuVa(seat.ring.0), control: GpuVa(seat.control.0), geometry }));
            match gpu.doorbells.model {
                Model::Dedicated => gpu.doorbells.connect(doorbell, &queue, true),
                Model::Global => made(gpu.global.connect(&queue, slot.pack(), true))?,
            }
        }
        gpu.make_ready(&queue);
        Ok(Made { queue, doorbell, written: 0, stuck: 0 })
    }

    /// Destroys a queue and its context.
    pub fn destroy(&self, made: &Made) {
        let (gpu, queue) = (&self.gpu, &made.queue);
        gpu.destroy_queue(queue);
        if let (Some(doorbell), Model::Dedicated) = (made.doorbell, gpu.doorbells.model) {
            drop(gpu.doorbells.disconnect(doorbell));
        }
        queue.bind(None);
        queue.waits.with(|log| log.clear());
        queue.signals.with(|log| log.clear());
        queue.context.lose();
        for slot in [queue.slot, queue.context.slot] {
            gpu.slots.kill(slot);
            gpu.slots.free(slot);
        }
    }

    /// Resets an engine; the queue whose work was cut off, which is lost.
    pub fn reset(&self, node: usize, stop: &AtomicBool) -> Result<Option<Shared<Queue<FuzzHost>>>> {
        self.gpu.command(node, Control::Hold);
        self.wait(stop, &format!("node {node} does not hold"), || self.gpu.nodes[node].phase() == Phase::Held)?;
        let cut = self.gpu.nodes[node].take_interrupted().inspect(|queue| queue.context.lose());
        self.gpu.command(node, Control::Run);
        self.gpu.raise_again(node);
        Ok(cut)
    }

    /// Waits until `ready`, [`PATIENCE`] at most.
    pub fn wait(&self, stop: &AtomicBool, what: &str, ready: impl Fn() -> bool) -> Result<()> {
        let begun = Instant::now();
        while !ready() {
            if stop.load(Ordering::Acquire) {
                bail!("an engine's thread ended by itself");
            }
            if begun.elapsed() > PATIENCE {
                bail!("{what}, for {} s", PATIENCE.as_secs());
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}
