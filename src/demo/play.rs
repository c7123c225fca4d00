//! What happens in the demo: two processes, two engines, a hang.
//!
//! Process A embosses the picture on node 0, tile by tile, and signals a fence that process B opened. B composes the
//! tiles on node 1 and draws lines on node 0, where meanwhile a command buffer of A's jumps to itself for ever. Node 0
//! is reset, A's device is in error, and B's picture becomes complete.

use super::counters::{self, EscapeCounters};
use super::picture::Picture;
use super::recipe::{EMBOSS, LINE_COLOR, lines, tiles};
use crate::client::{Adapter, Allocation, Device, Fence, Queue};
use crate::world::{User, World};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::report::Report;
use std::time::Duration;
use umd_core::ffi::types::{
    FP_KIND_LOCAL, FP_KIND_SYSTEM, FP_MODE_USER, FpCopyRect, FpFilterRect, FpQueueCounters, FpTraceEvent,
};
use wddm_abi::ntstatus::STATUS_DEVICE_REMOVED;
use wddm_abi::{D3DKMT_DEVICEEXECUTION_STATE, LUID};

/// Bytes of a ring.
const RING: u64 = 256 << 10;
/// Operations that a queue remembers.
const TRACE: u32 = 4096;
/// How long anything may take: a reset after the default timeouts takes 6 s.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(60));

/// The calls that submit a command buffer to the kernel.
pub const SUBMITS: [&str; 2] = ["D3DKMTSubmitCommand", "D3DKMTSubmitCommandToHwQueue"];

/// A queue, for the timeline.
pub struct Lane {
    /// Identifier of its process.
    pub process: u64,
    /// Which process.
    pub who: &'static str,
    /// What it does.
    pub role: &'static str,
    /// Its node.
    pub node: u32,
    /// User mode's handle.
    pub handle: u32,
    /// User mode's handle of the progress fence.
    pub progress_fence: u32,
    /// What the user-mode driver remembers.
    pub trace: Vec<FpTraceEvent>,
    /// What it counted.
    pub counters: FpQueueCounters,
}

/// What came of it.
pub struct Played {
    /// The picture.
    pub picture: Picture,
    /// The queues.
    pub lanes: Vec<Lane>,
    /// Whether work went through doorbells. On rungs below 3 it goes through the kernel, and fence logs are empty.
    pub doorbells: bool,
    /// Names of fences, by process and handle.
    pub fences: Vec<(u64, u32, &'static str)>,
    /// Last values of fences: name, value, what it must be.
    pub values: Vec<(&'static str, u64, u64)>,
    /// The last-queued word of each queue, as the model read it: process, handle of the queue, value.
    pub queued: Vec<(u64, u32, u64)>,
    /// How many of the signals in the report's log are of fences that the CPU has never waited for.
    pub unmonitored: u64,
    /// The user-mode driver's own count of calls that submitted a command buffer to the kernel, in both processes.
    pub submit_calls: u64,
    /// The engines' counters.
    pub gpu: EscapeCounters,
    /// The model's report.
    pub report: Report,
    /// State of A's device after the hang.
    pub hung_state: D3DKMT_DEVICEEXECUTION_STATE,
    /// State of B's device at the end.
    pub other_state: D3DKMT_DEVICEEXECUTION_STATE,
    /// When B's thread began to wait for the picture and when it woke, by the performance counter.
    pub cpu_wait: (u64, u64),
}

struct Upload {
    photo: Allocation,
    canvas: Allocation,
}

/// Plays on a machine whose adapter has `luid`. `say` gets a line per step.
///
/// # Errors
/// What the drivers refuse, and states that are not the documented ones.
pub fn play(world: &World, luid: LUID, photo: &Picture, say: &dyn Fn(&str)) -> Result<Played> {
    let (a, b) = (world.process("A")?, world.process("B")?);
    let (adapter_a, adapter_b) = (a.open()?, b.open()?);
    let (device_a, device_b) = (adapter_a.device()?, adapter_b.device()?);
    let upload = upload(&device_a, photo)?;
    // The timeline is to show every operation.
    world.os.set_fence_tracing(true);
    let emboss = device_a.queue(0, RING, 0, TRACE)?;
    let tile_ready = device_a.shared_fence(0)?;
    let at_b = Opened::new((&a, &b), &device_b, &upload, &tile_ready, photo)?;
    let compose = device_b.queue(1, RING, 0, TRACE)?;
    let draw = device_b.queue(0, RING, 0, TRACE)?;
    let endless = endless_buffer(&device_a, &emboss)?;
    let doorbells = emboss.info()?.mode == FP_MODE_USER;
    let kind = if tile_ready.is_monitored()? { "monitored" } else { "native" };
    let with = if doorbells { "with doorbells" } else { "that the kernel submits to" };
    say(&format!("two processes, three queues {with}, a shared {kind} fence"));

    for queue in [&emboss, &compose, &draw] {
        // The first submission connects the doorbell; from here on nothing needs the kernel.
        queue.run(|list| list.nop(16))?;
        queue.wait(0, PATIENCE)?;
    }
    let hot = world.os.hot_window();
    emboss_tiles(&emboss, &upload, &tile_ready, photo)?;
    compose_tiles(&compose, &at_b, photo)?;
    emboss.run(|list| list.indirect(endless.gpu_va()?, endless_length(&emboss, &endless)?))?;
    draw_lines(&draw, &at_b, photo)?;
    drop(hot);
    say("all work is queued; node 0 now runs a command buffer that jumps to itself");

    let clock = || world.os.kernel().query_performance_counter();
    let waiting = clock();
    at_b.done.wait(1, PATIENCE).context("process B waits for its picture")?;
    let woken = clock();
    match world.os.report().counts.resets {
        1 => say("node 0 was reset, and process B has its picture"),
        resets => say(&format!("process B has its picture, after {resets} resets where one was due")),
    }

    let hung_state = lost(&device_a, &emboss)?;
    let other_state = execution(&device_b)?;
    let mut pixels = vec![0; photo.pixels.len()];
    at_b.result.read(0, &mut pixels)?;
    start_over(&adapter_a)?;
    say("process A made a new device, and works again");

    let lane = |user: &User, queue: &Queue, who, role| -> Result<Lane> {
        let info = queue.info()?;
        let (trace, lost) = queue.trace()?;
        ensure!(lost == 0, "{lost} events of {role} were lost");
        let process = user.process.nt().id();
        Ok(Lane {
            process,
            who,
            role,
            node: info.node,
            handle: info.handle,
            progress_fence: info.progress_fence,
            trace,
            counters: queue.counters()?,
        })
    };
    let lanes = vec![
        lane(&a, &emboss, "process A", "emboss")?,
        lane(&b, &compose, "process B", "compose")?,
        lane(&b, &draw, "process B", "lines")?,
    ];
    let (ia, ib) = (a.process.nt().id(), b.process.nt().id());
    let fences = vec![
        (ia, tile_ready.info()?.handle, "tile ready"),
        (ib, at_b.tile_ready.info()?.handle, "tile ready"),
        (ib, at_b.composed.info()?.handle, "composed"),
        (ib, at_b.done.info()?.handle, "done"),
    ];
    // A's fence says nothing any more: its device is in error, which signals whatever waits for it.
    let values = vec![("composed", at_b.composed.value()?, 1), ("done", at_b.done.value()?, 1)];
    let (gpu, report) = at_rest(world, &a, luid)?;
    let signals = report.log.iter().filter(|entry| !entry.is_wait_log);
    let unmonitored = signals.filter(|entry| world.os.was_monitored(entry.process, entry.fence) == Some(false));
    let unmonitored = unmonitored.count() as u64;
    let mut submit_calls = 0;
    for (name, calls, _) in adapter_a.thunk_calls()?.into_iter().chain(adapter_b.thunk_calls()?) {
        if SUBMITS.contains(&name.as_str()) {
            submit_calls += calls;
        }
    }
    let adapters = world.os.adapters();
    let queued = adapters.iter().flat_map(|adapter| world.os.queued_values(adapter)).collect();
    Ok(Played {
        queued,
        submit_calls,
        unmonitored,
        doorbells,
        values,
        picture: Picture { pixels, ..photo.clone() },
        lanes,
        fences,
        gpu,
        report,
        hung_state,
        other_state,
        cpu_wait: (waiting, woken),
    })
}

/// Returns the driver's counters and the model's report of the same moment, when nothing is going on any more. The
/// driver counts an interrupt after it has raised it, and the interrupt may have woken this thread before the count: so
/// a difference is looked at again, 500 times at most, a millisecond apart.
fn at_rest(world: &World, user: &User, luid: LUID) -> Result<(EscapeCounters, Report)> {
    let raises = |report: &Report| report.adapters.iter().map(|adapter| adapter.raises).sum::<u64>();
    for _ in 0..500 {
        let before = counters::read(user, luid)?;
        let report = world.os.report();
        let after = counters::read(user, luid)?;
        if before == after && after.interrupts_raised == raises(&report) {
            return Ok((after, report));
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    Ok((counters::read(user, luid)?, world.os.report()))
}

fn upload(device: &Device, photo: &Picture) -> Result<Upload> {
    let bytes = photo.pixels.len() as u64;
    let upload = Upload {
        photo: device.allocate_shared(FP_KIND_SYSTEM, bytes)?,
        canvas: device.allocate_shared(FP_KIND_LOCAL, bytes)?,
    };
    upload.photo.write(0, &photo.pixels)?;
    Ok(upload)
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

impl Opened {
    fn new((a, b): (&User, &User), device: &Device, upload: &Upload, ready: &Fence, photo: &Picture) -> Result<Self> {
        Ok(Self {
            photo: device.open_allocation(b.receive(a, upload.photo.share()?)?)?,
            canvas: device.open_allocation(b.receive(a, upload.canvas.share()?)?)?,
            result: device.allocate(FP_KIND_SYSTEM, photo.pixels.len() as u64, 0)?,
            tile_ready: device.open_fence(b.receive(a, ready.share()?)?, false)?,
            composed: device.fence(0, 0)?,
            done: device.fence(0, 0)?,
        })
    }
}

fn emboss_tiles(queue: &Queue, upload: &Upload, ready: &Fence, photo: &Picture) -> Result<()> {
    let (source, destination) = (upload.photo.gpu_va()?, upload.canvas.gpu_va()?);
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

fn compose_tiles(queue: &Queue, at: &Opened, photo: &Picture) -> Result<()> {
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

fn draw_lines(queue: &Queue, at: &Opened, photo: &Picture) -> Result<()> {
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
