//! Resets: engine and adapter. Source: `DxgkDdiResetHwEngine`, `DxgkDdiResumeHwEngine`, `DxgkDdiResetEngine`,
//! `DxgkDdiQueryDependentEngineGroup`, `DxgkDdiQueryEngineStatus`; *TDR changes in Windows 8 and later*.
//!
//! The engine thread lets go of what runs and says so ([`Phase::Held`]). One that does not answer within [`PATIENCE`]
//! fails the reset, and the OS goes one step up the ladder.

use crate::adapter::Started;
use crate::gone;
use crate::irql::Passive;
use crate::nodes;
use crate::platform::Platform;
use crate::start;
use crate::status::{self, Error, Result};
use crate::tracing::Event;
use core::sync::atomic::Ordering;
use gpu_engine::mutation::Mutation;
use gpu_engine::node::{Control, Phase};
use gpu_engine::notice::Notice;
use gpu_engine::packet_node::PacketQueue;
use gpu_wire::NodeOrdinal;

/// How long an engine may take to let go, in units of 100 ns. TIMEOUT: half a second; it looks every 50 µs of work.
///
/// Only an engine that does not answer takes that long, and its reset fails behind it. The documents' limit for a call
/// of the driver is [`TDR_DDI_DELAY`], of which this is a tenth. The kit's jobs that are called PoliceDdi are known to
/// have a limit of 250 ms, which no page publishes; they reset engines that answer, which is over in less than a
/// millisecond (TE-76). This is longer than that limit because a thread of an engine that would answer may have to wait
/// for a processor: with 200 ms, resets failed on machines that were busy.
const PATIENCE: u64 = 5_000_000;

/// How long a thread may be in the driver while the OS recovers it, in units of 100 ns, where the registry says nothing
/// else. Source: *Testing and debugging TDR during driver development*, `TdrDdiDelay`.
const TDR_DDI_DELAY: u64 = 50_000_000;

const _: () = assert!(PATIENCE <= TDR_DDI_DELAY / 10, "what waits for engines ends long before the bug check");

fn hold<P: Platform>(irql: &Passive, started: &Started<P>, node: NodeOrdinal) -> Result<()> {
    if node.index() >= started.gpu.nodes.len() {
        return Err(Error::InvalidParameter);
    }
    started.gpu.command(node.index(), Control::Hold);
    let engine = &started.gpu.nodes[node.index()];
    let holds = || engine.phase() != Phase::Running;
    if !started.gpu.host.answers().wait(irql, &started.platform, Some(PATIENCE), holds) {
        return Err(Error::Timeout);
    }
    // An interrupt routine that began before the engine was told may still be about to report for it.
    crate::interrupt::leave(irql, started);
    let keeps = started.gpu.mutation.is(Mutation::ReportsOldHang);
    engine.mailbox.forget(|notice| !keeps && notice == Notice::EngineHung);
    Ok(())
}

/// Resets a hardware-scheduled engine: it stays stopped until [`resume_hw_engine`]. The context whose work was cut off
/// is reported lost; the others have lost nothing.
///
/// # Errors
/// [`Error::InvalidParameter`] for a node that does not exist; [`Error::Timeout`] when the engine does not answer; a
/// callback's.
pub fn reset_hw_engine<P: Platform>(irql: &Passive, started: &Started<P>, node: NodeOrdinal) -> Result<()> {
    let reset = hold(irql, started, node).and_then(|()| lose_interrupted(irql, started, node));
    tell(started, "DxgkDdiResetHwEngine", node.0, &reset.map(|()| 0));
    reset
}

/// Reports the context lost whose queue the reset took off the engine in the middle of its work, if there is one.
///
/// # Errors
/// The callback's.
fn lose_interrupted<P: Platform>(irql: &Passive, started: &Started<P>, node: NodeOrdinal) -> Result<()> {
    let Some(queue) = started.gpu.nodes[node.index()].take_interrupted() else { return Ok(()) };
    let lost = queue.context.slot;
    queue.context.lose();
    let keeps = started.gpu.mutation.is(Mutation::ReportsLostSuspension);
    started.gpu.nodes[node.index()].mailbox.forget(|notice| !keeps && notice.is_suspension_of(lost));
    match started.gpu.slots.handle(lost) {
        Some(handle) => started.dxgkrnl.invalidate_hw_context(irql, core::ptr::without_provenance_mut(handle as usize)),
        None => Ok(()),
    }
}

/// Lets a reset engine go on with every context that was not lost.
///
/// # Errors
/// [`Error::InvalidParameter`] for a node that does not exist.
pub fn resume_hw_engine<P: Platform>(irql: &Passive, started: &Started<P>, node: NodeOrdinal) -> Result<()> {
    let resumed = resume(irql, started, node);
    tell(started, "DxgkDdiResumeHwEngine", node.0, &resumed.map(|()| 0));
    resumed
}

fn resume<P: Platform>(_irql: &Passive, started: &Started<P>, node: NodeOrdinal) -> Result<()> {
    if node.index() >= started.gpu.nodes.len() {
        return Err(Error::InvalidParameter);
    }
    started.gpu.command(node.index(), Control::Run);
    // What could not be reported while the engine was held.
    raise_again(started, node, Mutation::ResumeRaisesNothing);
    Ok(())
}

/// Resets a packet node: returns the last aborted fence id once the queue is empty and the node ready.
///
/// # Errors
/// As for [`reset_hw_engine`].
pub fn reset_engine<P: Platform>(irql: &Passive, started: &Started<P>, node: NodeOrdinal) -> Result<u32> {
    let reset = reset_packets(irql, started, node);
    tell(started, "DxgkDdiResetEngine", node.0, &reset);
    reset
}

fn reset_packets<P: Platform>(irql: &Passive, started: &Started<P>, node: NodeOrdinal) -> Result<u32> {
    hold(irql, started, node)?;
    let packets = &started.gpu.nodes[node.index()].packets;
    let (aborted, mut gone) = packets.with(PacketQueue::reset);
    started.gpu.nodes[node.index()].note_engine_reset(&started.gpu.mutation);
    // A node that takes packets may be hardware-scheduled as well: what a queue lost is told, too.
    // An OS that cannot be told has the reset all the same: what was aborted is its answer.
    let _told = lose_interrupted(irql, started, node);
    let keeps = started.gpu.mutation.is(Mutation::KeepsAborted);
    started.gpu.nodes[node.index()].mailbox.forget(|notice| !keeps && notice.is_of_packets());
    gone.clear();
    packets.with(|queue| queue.give_back(gone));
    started.gpu.command(node.index(), Control::Run);
    // An interrupt that came while the engine was held has reported nothing of it. What it was raised for and is not
    // over, a fence's signal, is raised again.
    raise_again(started, node, Mutation::ResetRaisesNothing);
    // The OS takes this packet, and those before it, as completed from this answer on.
    reported(started, node, aborted);
    Ok(aborted)
}

/// Stores what `DxgkDdiQueryCurrentFence` answers for `node` from now on.
fn reported<P: Platform>(started: &Started<P>, node: NodeOrdinal, fence: u32) {
    if let Some(last) = started.reported.get(node.index()) {
        last.store(fence, Ordering::Release);
    }
}

/// Nodes that a reset of `node` takes down with it: itself. The engines share nothing.
///
/// # Errors
/// [`Error::InvalidParameter`] for a node that does not exist.
pub fn dependent_nodes<P: Platform>(started: &Started<P>, node: NodeOrdinal) -> Result<u64> {
    if node.index() >= started.gpu.nodes.len() { Err(Error::InvalidParameter) } else { Ok(1 << node.0) }
}

/// Returns whether the engine makes progress, as far as it was asked to: it has not stopped answering, and owes no
/// answer to a preemption while it has packets. A preemption of a node without packets is answered by the next step.
///
/// Source: `DXGK_ENGINESTATUS`, Responsive.
///
/// # Errors
/// [`Error::InvalidParameter`] for a node that does not exist.
pub fn is_responsive<P: Platform>(started: &Started<P>, node: NodeOrdinal) -> Result<bool> {
    let node = started.gpu.nodes.get(node.index()).ok_or(Error::InvalidParameter)?;
    Ok(!node.is_wedged() && !node.packets.with(|p| p.is_preempting() && p.is_busy()))
}

/// Adapter reset, first half: everything stops. Must succeed, and returns when every engine has let go: the OS frees
/// what they worked on. An engine looks up every 50 µs of work, so that this is soon where its thread runs.
pub fn reset_adapter<P: Platform>(irql: &Passive, started: &Started<P>) {
    for node in nodes::ordinals() {
        started.gpu.command(node.index(), Control::Hold);
        gone::held(irql, started, node);
        if started.gpu.nodes[node.index()].is_wedged() && start::replace_engine(irql, started, node.index()).is_ok() {
            gone::held(irql, started, node);
        }
        // An interrupt routine that began before the engine was told may still be about to report for it.
        crate::interrupt::leave(irql, started);
        drop(started.gpu.nodes[node.index()].take_interrupted().inspect(|queue| queue.context.lose()));
        started.gpu.nodes[node.index()].forget_suspensions();
        let packets = &started.gpu.nodes[node.index()].packets;
        let mut gone = packets.with(|queue| queue.reset_adapter(&started.gpu.mutation));
        // Every context is lost, and no fault or suspension of one is of interest. Signals of fences are.
        let keeps = |mutation| started.gpu.mutation.is(mutation);
        started.gpu.nodes[node.index()].mailbox.forget(|notice| match notice {
            Notice::ContextSuspended { .. } => !keeps(Mutation::ReportsSuspensionsOfLost),
            Notice::PacketPreempted { .. } => !keeps(Mutation::KeepsLostAnswer),
            Notice::PacketFaulted { .. } => !keeps(Mutation::KeepsLostFault),
            Notice::EngineHung => !keeps(Mutation::KeepsLostHang),
            notice if notice.is_of_packets() => !keeps(Mutation::KeepsLost),
            notice => matches!(notice, Notice::QueueFaulted { .. }),
        });
        gone.clear();
        let (completed, _) = packets.with(|queue| {
            queue.give_back(gone);
            queue.fences()
        });
        // The OS takes everything that was submitted as completed.
        reported(started, node, completed);
    }
    // Also those of which nothing ran: the OS has put their devices in error, and frees what they work on.
    started.gpu.lose_all();
    if started.settings.fault_lose_memory {
        // Every engine holds, or touches nothing.
        started.gpu.host.lose_memory();
    }
    tell(started, "DxgkDdiResetFromTimeout", u32::MAX, &Ok(0));
}

/// Adapter reset, second half: everything runs again.
pub fn restart_adapter<P: Platform>(_irql: &Passive, started: &Started<P>) {
    for node in nodes::ordinals() {
        started.gpu.command(node.index(), Control::Run);
        raise_again(started, node, Mutation::RestartRaisesNothing);
    }
    tell(started, "DxgkDdiRestartFromTimeout", u32::MAX, &Ok(0));
}

/// An interrupt for what an engine that was held has raised and not reported; not with the mutation that leaves it out.
fn raise_again<P: Platform>(started: &Started<P>, node: NodeOrdinal, without: Mutation) {
    if !started.gpu.mutation.is(without) {
        started.gpu.raise_again(node.index());
    }
}

/// Tells a trace of a DDI that resets or resumes `node`, or the adapter ([`u32::MAX`]).
fn tell<P: Platform>(started: &Started<P>, ddi: &'static str, node: u32, result: &Result<u32>) {
    started.platform.trace(|| Event::Reset {
        ddi,
        node,
        last_aborted: result.unwrap_or_default(),
        status: status::of(result.map(drop)),
    });
}
