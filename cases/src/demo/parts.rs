//! What the demo's two processes do, each by itself: over the model in a Linux process of its own, or on a thread of
//! the machine's; on Windows in a process of its own. They and the director (`play.rs`) say lines of JSON to each
//! other.

use super::play::SUBMITS;
use super::recipe::{EMBOSS, LINE_COLOR, lines, tiles};
use crate::client::{Adapter, Allocation, Device, Fence, Queue, Refused};
use anyhow::{Context, Result, ensure};
use gpu_wire::packet::Encoded;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use umd_core::ffi::types::{
    FP_KIND_LOCAL, FP_KIND_SYSTEM, FP_MODE_USER, FpCopyRect, FpFilterRect, FpQueueCounters, FpTraceEvent,
};
use wddm_abi::D3DKMT_DEVICEEXECUTION_STATE;
use wddm_abi::ntstatus::STATUS_DEVICE_REMOVED;

/// Bytes of a ring.
const RING: u64 = 256 << 10;
/// Operations that a queue remembers.
const TRACE: u32 = 4096;
/// How long anything may take: a reset after the default timeouts takes 6 s.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(60));

/// A process's line to the director.
pub trait Talk {
    /// Says a line.
    ///
    /// # Errors
    /// When no machine listens.
    fn say(&self, line: &str) -> Result<()>;

    /// Waits for a line.
    ///
    /// # Errors
    /// When none comes.
    fn hear(&self) -> Result<String>;

    /// The performance counter.
    fn clock(&self) -> u64;
}

/// Opens the adapter in the process that plays a part.
pub type Open<'a> = &'a dyn Fn() -> Result<Adapter, Refused>;

fn tell(talk: &dyn Talk, value: &impl Serialize) -> Result<()> {
    talk.say(&serde_json::to_string(value)?)
}

fn told<T: DeserializeOwned>(talk: &dyn Talk) -> Result<T> {
    let line = talk.hear()?;
    serde_json::from_str(&line).with_context(|| format!("the director says {line:.80?}"))
}

/// Waits until the director says that a step is due.
fn due(talk: &dyn Talk) -> Result<()> {
    told::<()>(talk)
}

/// The picture's size, and what a process begins with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// Pixels in a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// The photo, for process A.
    pub pixels: Vec<u8>,
    /// What process A shares, for process B: handles in the process that reads this.
    pub shares: [u64; 3],
    /// The driver does not take A's endless buffer off: it hangs its engine. Otherwise A ends the buffer.
    pub hangs: bool,
}

impl Task {
    fn pitch(&self) -> u32 {
        self.width * 4
    }

    fn bytes(&self) -> u64 {
        u64::from(self.height) * u64::from(self.pitch())
    }

    fn pixels_long(&self) -> usize {
        // CAST: a picture's size, which fits this machine.
        self.bytes() as usize
    }
}

/// What process A has made.
#[derive(Debug, Serialize, Deserialize)]
pub struct Made {
    /// NT handles: photo, canvas, fence.
    pub shares: [u64; 3],
    /// Its queue has a doorbell.
    pub doorbells: bool,
    /// Its fence is a monitored one.
    pub monitored: bool,
    /// The driver's rung.
    pub rung: u32,
}

/// Plays process A or B.
///
/// # Errors
/// What the part comes to.
pub fn part(name: &str, talk: &dyn Talk, open: Open<'_>) -> Result<()> {
    if name == "A" { a(talk, open) } else { b(talk, open) }
}

/// A queue at the end.
#[derive(Debug, Serialize, Deserialize)]
pub struct Told {
    /// Its node.
    pub node: u32,
    /// Its handle.
    pub handle: u32,
    /// Its progress fence's.
    pub progress_fence: u32,
    /// What the user-mode driver remembers of it: kind, fence, value, recorded, queued, progress.
    trace: Vec<[u64; 6]>,
    /// Submissions, rings, reconnects, notifies, stalls.
    counters: [u64; 5],
}

impl Told {
    fn of(queue: &Queue, role: &str) -> Result<Self> {
        let info = queue.info()?;
        let (trace, lost) = queue.trace()?;
        ensure!(lost == 0, "{lost} events of {role} were lost");
        let event = |e: FpTraceEvent| [e.kind.into(), e.fence.into(), e.value, e.recorded, e.queued, e.progress];
        let c = queue.counters()?;
        Ok(Self {
            node: info.node,
            handle: info.handle,
            progress_fence: info.progress_fence,
            trace: trace.into_iter().map(event).collect(),
            counters: [c.submissions, c.rings, c.reconnects, c.notifies, c.stalls],
        })
    }

    /// What the user-mode driver remembers of it.
    pub fn trace(&self) -> Vec<FpTraceEvent> {
        let event = |[kind, fence, value, recorded, queued, progress]: &[u64; 6]| FpTraceEvent {
            // CAST: they were 32 bits.
            kind: *kind as u32,
            fence: *fence as u32,
            value: *value,
            recorded: *recorded,
            queued: *queued,
            progress: *progress,
        };
        self.trace.iter().map(event).collect()
    }

    /// What it counted.
    pub fn counters(&self) -> FpQueueCounters {
        let [submissions, rings, reconnects, notifies, stalls] = self.counters;
        FpQueueCounters { size: 0, reserved: 0, submissions, rings, reconnects, notifies, stalls }
    }
}

/// What a process says at its end.
#[derive(Debug, Serialize, Deserialize)]
pub struct Account {
    /// Its queues.
    pub lanes: Vec<Told>,
    /// Handles of its fences.
    pub fences: Vec<u32>,
    /// Their last values.
    pub values: Vec<u64>,
    /// Calls that submitted a command buffer to the kernel.
    pub submit_calls: u64,
    /// Its device's state.
    pub state: i32,
    /// The picture, of process B.
    pub pixels: Vec<u8>,
    /// When process B's thread began to wait for the picture and when it woke, by the performance counter.
    pub cpu_wait: (u64, u64),
}

fn submit_calls(adapter: &Adapter) -> Result<u64> {
    let calls = adapter.thunk_calls()?;
    Ok(calls.iter().filter(|(name, ..)| SUBMITS.contains(&name.as_str())).map(|(_, calls, _)| calls).sum())
}

/// The first submission connects the doorbell; from there on nothing needs the kernel.
fn connect(queue: &Queue) -> Result<()> {
    queue.run(|list| list.nop(16))?;
    Ok(queue.wait(0, PATIENCE)?)
}

/// Process A: embosses the picture on node 0, tile by tile, then hangs it, or ends what would; and starts over.
///
/// # Errors
/// What the driver refuses, and states that are not the documented ones.
pub fn a(talk: &dyn Talk, open: Open<'_>) -> Result<()> {
    let task: Task = told(talk)?;
    let adapter = open()?;
    let device = adapter.device()?;
    let photo = device.allocate_shared(FP_KIND_SYSTEM, task.bytes())?;
    let canvas = device.allocate_shared(FP_KIND_LOCAL, task.bytes())?;
    photo.write(0, &task.pixels)?;
    let emboss = device.queue(0, RING, 0, TRACE)?;
    let ready = device.shared_fence(0)?;
    let doorbells = emboss.info()?.mode == FP_MODE_USER;
    let shares = [photo.share()?, canvas.share()?, ready.share()?];
    tell(talk, &Made { shares, doorbells, monitored: ready.is_monitored()?, rung: adapter.info()?.rung })?;
    due(talk)?;
    let endless = endless_buffer(&device, &emboss)?;
    connect(&emboss)?;
    tell(talk, &())?;
    due(talk)?;
    emboss_tiles(&emboss, photo.gpu_va()?, canvas.gpu_va()?, &ready, &task)?;
    tell(talk, &())?;
    due(talk)?;
    emboss.run(|list| list.indirect(endless.gpu_va()?, endless_length(&emboss, &endless)?))?;
    tell(talk, &())?;
    due(talk)?;
    let state = if task.hangs { lost(&device, &emboss)? } else { ended(&device, &emboss, &endless)? };
    start_over(&adapter)?;
    tell(talk, &())?;
    due(talk)?;
    let lanes = vec![Told::of(&emboss, "emboss")?];
    let fences = vec![ready.info()?.handle];
    let submit_calls = submit_calls(&adapter)?;
    // Its fence says nothing any more: its device is in error, which signals whatever waits for it.
    let (values, pixels) = (Vec::new(), Vec::new());
    tell(talk, &Account { lanes, fences, values, submit_calls, state: state.0, pixels, cpu_wait: (0, 0) })?;
    due(talk)
}

/// What B has of A's, and its own.
struct Opened {
    photo: Allocation,
    canvas: Allocation,
    result: Allocation,
    tile_ready: Fence,
    composed: Fence,
    done: Fence,
}

/// Process B: composes the tiles on node 1, and draws lines on node 0.
///
/// # Errors
/// As [`a`].
pub fn b(talk: &dyn Talk, open: Open<'_>) -> Result<()> {
    let task: Task = told(talk)?;
    let adapter = open()?;
    let device = adapter.device()?;
    let [photo, canvas, ready] = task.shares;
    let at = Opened {
        photo: device.open_allocation(photo)?,
        canvas: device.open_allocation(canvas)?,
        result: device.allocate(FP_KIND_SYSTEM, task.bytes(), 0)?,
        tile_ready: device.open_fence(ready, false)?,
        composed: device.fence(0, 0)?,
        done: device.fence(0, 0)?,
    };
    let compose = device.queue(1, RING, 0, TRACE)?;
    let draw = device.queue(0, RING, 0, TRACE)?;
    connect(&compose)?;
    connect(&draw)?;
    tell(talk, &())?;
    due(talk)?;
    compose_tiles(&compose, &at, &task)?;
    tell(talk, &())?;
    due(talk)?;
    draw_lines(&draw, &at, &task)?;
    tell(talk, &())?;
    due(talk)?;
    let waiting = talk.clock();
    at.done.wait(1, PATIENCE).context("process B waits for its picture")?;
    let cpu_wait = (waiting, talk.clock());
    tell(talk, &())?;
    due(talk)?;
    let mut pixels = vec![0; task.pixels_long()];
    at.result.read(0, &mut pixels)?;
    let lanes = vec![Told::of(&compose, "compose")?, Told::of(&draw, "lines")?];
    let fences = vec![at.tile_ready.info()?.handle, at.composed.info()?.handle, at.done.info()?.handle];
    let values = vec![at.composed.value()?, at.done.value()?];
    let (submit_calls, state) = (submit_calls(&adapter)?, execution(&device)?.0);
    tell(talk, &Account { lanes, fences, values, submit_calls, state, pixels, cpu_wait })?;
    due(talk)
}

fn emboss_tiles(queue: &Queue, source: u64, destination: u64, ready: &Fence, photo: &Task) -> Result<()> {
    for (number, tile) in (1..).zip(tiles(photo.width, photo.height)) {
        queue.run(|list| {
            list.filter_rect(FpFilterRect {
                size: 0,
                source_pitch: photo.pitch(),
                destination_pitch: photo.pitch(),
                image_width: photo.width,
                image_height: photo.height,
                x: tile.x,
                y: tile.y,
                width: tile.width,
                height: tile.height,
                coefficients: EMBOSS,
                bias: 0,
                shift: 0,
                reserved: 0,
                reserved2: 0,
                source,
                destination,
            })?;
            list.signal(ready, number)
        })?;
    }
    Ok(())
}

fn compose_tiles(queue: &Queue, at: &Opened, photo: &Task) -> Result<()> {
    let all = tiles(photo.width, photo.height);
    let (original, embossed, result) = (at.photo.gpu_va()?, at.canvas.gpu_va()?, at.result.gpu_va()?);
    let last = all.len() as u64;
    for (number, tile) in (1..).zip(&all) {
        let offset = u64::from(tile.y) * u64::from(photo.pitch()) + u64::from(tile.x) * 4;
        queue.run(|list| {
            list.wait(&at.tile_ready, number)?;
            list.copy_rect(FpCopyRect {
                size: 0,
                row_bytes: tile.width * 4,
                rows: tile.height,
                source_pitch: photo.pitch(),
                destination_pitch: photo.pitch(),
                reserved: 0,
                source: offset + if tile.embossed { embossed } else { original },
                destination: offset + result,
            })?;
            if number == last { list.signal(&at.composed, 1) } else { Ok(()) }
        })?;
    }
    Ok(())
}

fn draw_lines(queue: &Queue, at: &Opened, photo: &Task) -> Result<()> {
    let result = at.result.gpu_va()?;
    let all = lines(photo.width, photo.height);
    let chunks: Vec<_> = all.chunks(256).collect();
    queue.run(|list| list.wait(&at.composed, 1))?;
    for chunk in chunks {
        queue.run(|list| {
            for (first, count) in chunk {
                list.fill(result + u64::from(*first) * 4, u64::from(*count) * 4, LINE_COLOR)?;
            }
            Ok(())
        })?;
    }
    queue.run(|list| list.signal(&at.done, 1))?;
    Ok(())
}

/// Bytes of the jump.
fn endless_length(queue: &Queue, endless: &Allocation) -> crate::client::Result<u64> {
    let mut list = queue.list()?;
    list.indirect(endless.gpu_va()?, 8)?;
    Ok(list.bytes()?.len() as u64)
}

/// A command buffer that is nothing but a jump to itself.
fn endless_buffer(device: &Device, queue: &Queue) -> Result<Allocation> {
    let buffer = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
    let mut list = queue.list()?;
    list.indirect(buffer.gpu_va()?, endless_length(queue, &buffer)?)?;
    buffer.write(0, &list.bytes()?)?;
    Ok(buffer)
}

fn execution(device: &Device) -> Result<D3DKMT_DEVICEEXECUTION_STATE> {
    // CAST: an enumerator's number.
    Ok(D3DKMT_DEVICEEXECUTION_STATE(device.state()?.execution as i32))
}

/// The process that hung learns of it.
fn lost(device: &Device, queue: &Queue) -> Result<D3DKMT_DEVICEEXECUTION_STATE> {
    let waited = queue.wait(0, PATIENCE);
    let error = waited.err().context("process A's endless command buffer ended by itself")?;
    ensure!(error.status == STATUS_DEVICE_REMOVED, "process A's wait: {error}");
    execution(device)
}

/// The process whose buffer hung nothing ends it: its jump becomes nothing.
fn ended(device: &Device, queue: &Queue, endless: &Allocation) -> Result<D3DKMT_DEVICEEXECUTION_STATE> {
    // Still there: it has run beside all of B's work.
    let (done, submitted) = queue.progress()?;
    ensure!(done < submitted, "process A's endless command buffer ended by itself");
    let length = u32::try_from(endless_length(queue, endless)?)?;
    // The first word of a packet says what it is: one store, since an engine reads meanwhile.
    endless.write(0, &Encoded::nop(length).as_bytes()[..8])?;
    queue.wait(0, PATIENCE).context("process A ends its command buffer")?;
    execution(device)
}

/// The process that hung makes a new device.
fn start_over(adapter: &Adapter) -> Result<()> {
    let device = adapter.device()?;
    let queue = device.queue(0, RING, 0, 0)?;
    let memory = device.allocate(FP_KIND_SYSTEM, 4096, 0)?;
    let at = memory.gpu_va()?;
    queue.run(|list| list.store(at, 0x600D))?;
    queue.wait(0, PATIENCE).context("process A's second device")?;
    ensure!(memory.read_u64(0)? == 0x600D, "process A's second device stored something else");
    Ok(())
}
