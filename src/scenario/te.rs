//! Group TE: engines that hang, and their reset.
//!
//! | file | holds |
//! |---|---|
//! | `te.rs` | what the cases share |
//! | `te/cases.rs` | the cases, each with its source |
//! | `te/hog.rs` | a client whose packets run until it ends them |
//! | `te/packets.rs` | packet nodes: the calling sequence, what is aborted, what comes back |
//! | `te/halves.rs` | what may come between two steps of a recovery |
//! | `te/late.rs` | packets that end between the snapshot and the reset |
//! | `te/long.rs` | packets that take long, and preemption |
//! | `te/unaffected.rs` | packets that a reset does not affect |
//! | `te/paging.rs` | resets that take a paging packet along, and ids of paging packets |
//! | `te/wrong.rs` | drivers that answer wrongly: what the model says |
//! | `te/hardware.rs` | hardware-scheduled nodes |
//! | `te/failed.rs` | resets of packet engines that fail |
//! | `te/stopped.rs` | stops with an engine that never answers |
//! | `te/debug.rs` | debug information |
//! | `te/blob.rs` | every queue and fence in the debug blob |
//! | `te/blame.rs` | contexts that are late, and those behind a hang |
//! | `te/faulted.rs` | a queue's fault that an adapter's reset ends |
//! | `te/held.rs` | what was raised before a reset |
//! | `te/notices.rs` | notices of a hang that is being recovered from |
//! | `te/dependents.rs` | engines that a reset takes along |
//! | `te/faults.rs` | page faults that ask for a reset |
//! | `te/answers.rs` | what the driver answers about a node |
//! | `te/replaced.rs` | memory that runs out where a node gets another engine |
//! | `te/private.rs` | private data of packets that come back |
//! | `te/policed.rs` | long packets while each call is timed |
//! | `te/behind.rs` | what stands behind a packet that is lost |
//! | `te/unasked.rs` | an engine of which another context is taken off |
//! | `te/snapshot.rs` | what waits for the device's level in a recovery |
//! | `te/amid.rs` | hangs while the OS does something else |
//! | `te/owed.rs` | the answer to a preemption that is owed while the device loses its power |
//! | `te/alone.rs` | recoveries that are wanted at once |
//! | `te/old.rs` | notices that the adapter's reset ends |
//! | `te/cancelled.rs` | packets of a lost device that never got to the driver |
//! | `te/unsaid.rs` | an engine that stops for a reason that the driver does not know |
//! | `te/storm.rs` | resets at random points |

mod alone;
mod amid;
mod answers;
mod behind;
mod blame;
mod blob;
mod cancelled;
mod cases;
mod debug;
mod dependents;
pub(super) mod failed;
mod faulted;
pub(super) mod faults;
mod halves;
pub(super) mod hardware;
pub(super) mod held;
pub(super) mod hog;
pub(super) mod in_time;
mod late;
mod long;
mod named;
mod notices;
mod old;
mod owed;
mod packets;
mod paging;
mod policed;
mod private;
mod replaced;
mod slips;
mod snapshot;
mod stopped;
pub(super) mod storm;
mod unaffected;
mod unasked;
mod unsaid;
mod wrong;

pub(super) use cases::CASES;
pub use hog::Hog;
pub(super) use hog::Loop;

use super::{Played, Raw, Scene, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::adapter::{Recovery, Step, What};
use nt_model::rules::Violation;

/// Packet nodes of a stage's rung: all three on the lowest, the paging node's above.
fn packet_nodes(stage: &Stage) -> &'static [u32] {
    if stage.rung() == 0 { &[0, 1, 2] } else { &[2] }
}

/// The packet node that a stage's cases hang: on the lowest rung one that does not page.
pub(super) fn victim(stage: &Stage) -> u32 {
    packet_nodes(stage)[0]
}

/// Time-outs of a tenth, and engines that do not come off command buffers.
pub(super) fn stubborn() -> Setup {
    Setup::default().quick_tdr().setting("PreemptInBuffers", 0)
}

/// A process that has opened the first adapter.
pub(super) fn client(scene: &Scene, name: &str) -> Result<Raw> {
    Raw::open(&std::sync::Arc::new(scene.world.os.create_process(name)), scene.adapter().luid())
}

/// The recoveries of packet engines.
fn packet_resets(scene: &Scene) -> Vec<Recovery> {
    scene.adapter().recoveries().into_iter().filter(|one| matches!(one.what, What::PacketEngine { .. })).collect()
}

/// The only recovery of a packet engine that there was, once it is over.
fn only_reset(scene: &Scene) -> Result<Recovery> {
    scene.until("the end of the recovery", || Ok(packet_resets(scene).iter().all(|one| one.is_over)))?;
    let mut all = packet_resets(scene);
    same("resets of packet engines", all.len(), 1)?;
    all.pop().context("a recovery")
}

/// The last aborted fence of a recovery.
fn aborted(recovery: &Recovery) -> Result<u32> {
    let found = recovery.steps.iter().find_map(|step| match step {
        Step::ResetEngine(_, aborted) => Some(*aborted),
        _ => None,
    });
    found.with_context(|| format!("no DxgkDdiResetEngine: {recovery}"))
}

/// The violation of a rule, which must be the only one of that rule.
fn violation(scene: &Scene, rule: &str) -> Result<Violation> {
    let all = scene.world.os.kernel().rules.violations();
    let mut found: Vec<_> = all.into_iter().filter(|violation| violation.rule.name == rule).collect();
    ensure!(!found.is_empty(), "{rule} was not broken");
    Ok(found.remove(0))
}

/// Waits until a hog's device is in error.
fn is_lost(scene: &Scene, hog: &Hog<'_>) -> Played {
    scene.until("the loss of the device that hangs", || Ok(!hog.is_active()?))
}
