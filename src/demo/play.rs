//! The demo over the model: the portable one (`portable_cases::demo`), and what the model saw meanwhile.

use super::actor::Actor;
use super::counters::{self, EscapeCounters};
use super::picture::Picture;
use crate::scenario::Raw;
use crate::world::World;
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::report::Report;
use portable_cases::demo::parts::Told;
use portable_cases::demo::play::{self, Moment};
use std::sync::Arc;
use std::time::Duration;
use umd_core::ffi::types::{FpQueueCounters, FpTraceEvent};
use wddm_abi::{D3DKMT_DEVICEEXECUTION_STATE, LUID};

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
    /// What the processes say that does not fit.
    pub said_wrong: Vec<String>,
    /// Whether the endless buffer was to hang its engine.
    pub hangs: bool,
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

/// Plays on a machine whose adapter has `luid`. `separate`: the processes are Linux processes of their own. `hangs`:
/// the driver does not take an endless buffer off its engine. `say` gets a line per step.
///
/// # Errors
/// What the drivers refuse, and states that are not the documented ones.
pub fn play(
    world: &World,
    luid: LUID,
    photo: &Picture,
    separate: bool,
    hangs: bool,
    say: &dyn Fn(&str),
) -> Result<Played> {
    // The timeline is to show every operation.
    world.os.set_fence_tracing(true);
    let (mut a, mut b) = (Actor::start(world, "A", separate)?, Actor::start(world, "B", separate)?);
    let observer = Raw::open(&Arc::new(world.os.create_process("observer")), luid)?;
    let mut hot = None;
    let (mut messages_hot, mut taken_hot) = (0, 0);
    let messages = |actors: [&Actor; 2]| actors.iter().map(|actor| actor.messages()).sum::<u64>();
    let accounts = play::play(&mut a, &mut b, photo, hangs, &mut |moment, made, actors| match moment {
        Moment::Ready => {
            let kind = if made.monitored { "monitored" } else { "native" };
            let with = if made.doorbells { "with doorbells" } else { "that the kernel submits to" };
            say(&format!("two processes, three queues {with}, a shared {kind} fence"));
            hot = Some(world.os.hot_window());
            messages_hot = messages(actors);
        }
        Moment::Queued => {
            messages_hot = messages(actors) - messages_hot;
            taken_hot = world.os.report().counts.doorbell_disconnects;
            hot = None;
            say("all work is queued; node 0 now runs a command buffer that jumps to itself");
        }
        Moment::Whole => {
            let report = world.os.report();
            match report.counts.resets {
                0 => say("nothing was reset, and process B has its picture"),
                1 if report.adapter_resets() == 0 => say("node 0 was reset, and process B has its picture"),
                1 => say("the adapter was reset where an engine was to be, and process B has its picture"),
                resets => say(&format!("process B has its picture, after {resets} resets where one was due")),
            }
        }
        Moment::Over if hangs => say("process A made a new device, and works again"),
        Moment::Over => say("process A ended its command buffer, and made a second device"),
    })?;
    let said_wrong = accounts.complaints();
    let picture = accounts.picture(photo);
    let (hung_state, other_state) = (accounts.hung_state(), accounts.other_state());
    let play::Accounts { made, a: of_a, b: of_b, .. } = accounts;
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
    ensure!(fences.len() == 4, "four fences: {fences:?}");
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
        said_wrong,
        hangs,
        picture,
        lanes,
        fences,
        gpu,
        report,
        hung_state,
        other_state,
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
