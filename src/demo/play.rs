//! What happens in the demo: two processes, two engines, a hang.
//!
//! Process A embosses the picture on node 0, tile by tile, and signals a fence that process B opened. B composes the
//! tiles on node 1 and draws lines on node 0, where meanwhile a command buffer of A's jumps to itself for ever. Node 0
//! is reset, A's device is in error, and B's picture becomes complete.
//!
//! What each does is in `parts.rs`; here is who does it when.

use super::actor::Actor;
use super::counters::{self, EscapeCounters};
use super::parts::{Account, Made, Task, Told};
use super::picture::Picture;
use crate::scenario::Raw;
use crate::world::World;
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::report::Report;
use std::sync::Arc;
use std::time::Duration;
use umd_core::ffi::types::{FpQueueCounters, FpTraceEvent};
use wddm_abi::{D3DKMT_DEVICEEXECUTION_STATE, LUID};

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
    /// Whether the processes were Linux processes of their own.
    pub separate: bool,
    /// Messages between those and the machine while work was submitted.
    pub messages_hot: u64,
    /// Doorbells that were taken away until then, as an idle engine does, and a reset: a message each.
    pub taken_hot: u64,
    /// When B's thread began to wait for the picture and when it woke, by the performance counter.
    pub cpu_wait: (u64, u64),
}

/// Plays on a machine whose adapter has `luid`. `separate`: the processes are Linux processes of their own. `say` gets
/// a line per step.
///
/// # Errors
/// What the drivers refuse, and states that are not the documented ones.
pub fn play(world: &World, luid: LUID, photo: &Picture, separate: bool, say: &dyn Fn(&str)) -> Result<Played> {
    // The timeline is to show every operation.
    world.os.set_fence_tracing(true);
    let (mut a, mut b) = (Actor::start(world, "A", separate)?, Actor::start(world, "B", separate)?);
    let observer = Raw::open(&Arc::new(world.os.create_process("observer")), luid)?;
    let (width, height) = (photo.width, photo.height);
    a.tell(&Task { width, height, pixels: photo.pixels.clone(), shares: [0; 3] })?;
    let made: Made = a.told()?;
    let mut shares = made.shares;
    for handle in &mut shares {
        *handle = b.receive(&a, *handle)?;
    }
    b.tell(&Task { width, height, pixels: Vec::new(), shares })?;
    b.done()?;
    a.does()?;
    let kind = if made.monitored { "monitored" } else { "native" };
    let with = if made.doorbells { "with doorbells" } else { "that the kernel submits to" };
    say(&format!("two processes, three queues {with}, a shared {kind} fence"));

    let messages = |a: &Actor, b: &Actor| a.messages() + b.messages();
    let taken = || world.os.report().counts.doorbell_disconnects;
    let (hot, before) = (world.os.hot_window(), messages(&a, &b));
    a.does()?;
    b.does()?;
    a.does()?;
    b.does()?;
    let (messages_hot, taken_hot) = (messages(&a, &b) - before, taken());
    drop(hot);
    say("all work is queued; node 0 now runs a command buffer that jumps to itself");

    b.does()?;
    let report = world.os.report();
    match report.counts.resets {
        1 if report.adapter_resets() == 0 => say("node 0 was reset, and process B has its picture"),
        1 => say("the adapter was reset where an engine was to be, and process B has its picture"),
        resets => say(&format!("process B has its picture, after {resets} resets where one was due")),
    }
    a.does()?;
    say("process A made a new device, and works again");

    let (of_a, of_b): (Account, Account) = (a.asked()?, b.asked()?);
    let (ia, ib) = (a.id(), b.id());
    let [emboss, compose, lines] = [of_a.lanes.first(), of_b.lanes.first(), of_b.lanes.get(1)];
    let lane = |told: Option<&Told>, process, who, role| -> Result<Lane> {
        let told = told.with_context(|| format!("{who} says nothing of {role}"))?;
        let (trace, counters) = (told.trace(), told.counters());
        let (node, handle, progress_fence) = (told.node, told.handle, told.progress_fence);
        Ok(Lane { process, who, role, node, handle, progress_fence, trace, counters })
    };
    let lanes = vec![
        lane(emboss, ia, "process A", "emboss")?,
        lane(compose, ib, "process B", "compose")?,
        lane(lines, ib, "process B", "lines")?,
    ];
    let ready = of_a.fences.iter().map(|fence| (ia, *fence, "tile ready"));
    let others = of_b.fences.iter().zip(["tile ready", "composed", "done"]).map(|(fence, name)| (ib, *fence, name));
    let fences: Vec<_> = ready.chain(others).collect();
    ensure!(fences.len() == 4 && of_b.values.len() == 2, "four fences: {fences:?}");
    let values = ["composed", "done"].into_iter().zip(&of_b.values).map(|(name, value)| (name, *value, 1)).collect();
    let (gpu, report) = at_rest(world, &observer)?;
    let signals = report.log.iter().filter(|entry| !entry.is_wait_log);
    let unmonitored = signals.filter(|entry| world.os.was_monitored(entry.process, entry.fence) == Some(false));
    let unmonitored = unmonitored.count() as u64;
    let adapters = world.os.adapters();
    let queued = adapters.iter().flat_map(|adapter| world.os.queued_values(adapter)).collect();
    a.ends()?;
    b.ends()?;
    Ok(Played {
        queued,
        submit_calls: of_a.submit_calls + of_b.submit_calls,
        unmonitored,
        doorbells: made.doorbells,
        values,
        picture: Picture { pixels: of_b.pixels, ..photo.clone() },
        lanes,
        fences,
        gpu,
        report,
        hung_state: D3DKMT_DEVICEEXECUTION_STATE(of_a.state),
        other_state: D3DKMT_DEVICEEXECUTION_STATE(of_b.state),
        separate,
        messages_hot,
        taken_hot,
        cpu_wait: of_b.cpu_wait,
    })
}

/// Returns the driver's counters and the model's report of the same moment, when nothing is going on any more. The
/// driver counts an interrupt after it has raised it, and the interrupt may have woken this thread before the count: so
/// a difference is looked at again, 500 times at most, a millisecond apart.
fn at_rest(world: &World, observer: &Raw) -> Result<(EscapeCounters, Report)> {
    let raises = |report: &Report| report.adapters.iter().map(|adapter| adapter.raises).sum::<u64>();
    for _ in 0..500 {
        let before = counters::read_by(observer)?;
        let report = world.os.report();
        let after = counters::read_by(observer)?;
        if before == after && after.interrupts_raised == raises(&report) {
            return Ok((after, report));
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    Ok((counters::read_by(observer)?, world.os.report()))
}
