//! Very many deaths at drawn moments: of Linux processes by SIGKILL, and of processes that live in this one.

use super::{Held, Neighbour, setup};
use crate::client::Refused;
use crate::fuzz::dice::Dice;
use crate::scenario::db::{RingQueue, Room, raw};
use crate::scenario::raw::Raw;
use crate::scenario::{Denied, Played, Scene, Stage};
use anyhow::Context;
use dxgkrnl_model::process::End;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wddm_abi::{D3DKMT_NOTIFY_WORK_SUBMISSION, NTSTATUS, ntstatus};

/// How many deaths.
#[derive(Clone, Copy, Debug)]
pub struct Deaths {
    /// Linux processes that SIGKILL ends.
    pub killed: u64,
    /// Processes in this one that are terminated while a thread is inside a call.
    pub terminated: u64,
    /// What the moments are drawn from.
    pub seed: u64,
}

/// So many threads that make and destroy everything have done so in one of their lives at least.
const ENOUGH: u64 = 100;

/// Pages that pools may keep: much less than one process's for every death.
const KEPT: u64 = 128;

/// Lets some microseconds pass.
fn pass(microseconds: u64) {
    let end = Instant::now() + Duration::from_micros(microseconds);
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// One client makes and destroys everything, until it is killed.
fn kill(scene: &Scene, dice: &mut Dice) -> Played {
    let client = scene.world.separate("churn")?;
    client.expect("round")?;
    pass(dice.below(10_000));
    client.kill();
    Ok(())
}

/// Makes and destroys everything by calls alone, until one is refused. No store to memory that the process's end takes
/// away: this is one Linux process, in which others have such addresses next.
fn churn(scene: &Scene, raw: &Raw, rounds: &AtomicU64) -> Played {
    let with_doorbells = scene.adapter().caps().is_some_and(|caps| caps.has_user_mode_submission());
    loop {
        let room = Room::new(raw)?;
        let fence = raw.monitored_fence(room.device, 0, false)?;
        raw.signal_cpu(room.device, &[(fence.handle, 1)])?;
        if with_doorbells {
            let queue = RingQueue::connected(scene, &room, 0, 4096)?;
            let mut record = D3DKMT_NOTIFY_WORK_SUBMISSION::zeroed();
            record.hDoorbell = queue.bell.handle;
            raw.ok(raw.thunks.D3DKMTNotifyWorkSubmission, &mut record)?;
        } else {
            room.memory(scene, 4096)?;
        }
        raw.destroy_device(room.device)?;
        rounds.fetch_add(1, Ordering::Relaxed);
    }
}

/// What calls of a process that is being ended are refused with; or those of a device that is lost by that
/// ([`Scene::status_of_lost`]).
const ENDS: [NTSTATUS; 3] =
    [ntstatus::STATUS_INVALID_PARAMETER, ntstatus::STATUS_PROCESS_IS_TERMINATING, ntstatus::STATUS_INVALID_HANDLE];

/// One process in this Linux process is terminated while its thread makes and destroys everything.
fn terminate(scene: &Scene, dice: &mut Dice, rounds: &AtomicU64) -> Played {
    let raw = raw(scene)?;
    let process = raw.process.clone();
    let churned = std::thread::scope(|threads| {
        let thread = threads.spawn(|| churn(scene, &raw, rounds));
        // Most end while something is made the first time; some behind that, while it is destroyed, or made again.
        if dice.below(8) == 0 {
            let before = rounds.load(Ordering::Relaxed);
            while rounds.load(Ordering::Relaxed) == before && !thread.is_finished() {
                std::thread::yield_now();
            }
        }
        pass(dice.below(4_000));
        process.finish(End::Terminated);
        thread.join().map_err(|_| anyhow::anyhow!("a panic"))
    })?;
    let Err(refusal) = churned else { return Err(anyhow::anyhow!("it made and destroyed everything for ever")) };
    let status = refusal.downcast_ref::<Denied>().map(|denied| denied.0);
    let status = status.or_else(|| refusal.downcast_ref::<Refused>().map(|refused| refused.status));
    // Or it has found what was its memory gone.
    let is_gone = refusal.chain().any(|cause| cause.to_string().contains("access violation"));
    let is_known = status.is_some_and(|status| ENDS.contains(&status) || status == scene.status_of_lost());
    anyhow::ensure!(is_known || is_gone, "what ended it was {refusal:#}");
    anyhow::ensure!(process.open_handles() == 0, "handles outlive their process");
    let refused = raw.device().err().map(|denied| denied.0);
    let known = [ntstatus::STATUS_INVALID_PARAMETER, ntstatus::STATUS_PROCESS_IS_TERMINATING];
    anyhow::ensure!(refused.is_some_and(|status| known.contains(&status)), "a process that has ended: {refused:?}");
    Ok(())
}

/// Plays so many deaths on a machine of its own: the neighbour's results are right, and everything is as before.
///
/// # Errors
/// What was wrong.
pub fn play(stage: &Stage, deaths: Deaths) -> Played {
    let (mut happened, rounds) = (0_u64, AtomicU64::new(0));
    let played = stage.play(setup(), |scene| {
        let mut dice = Dice::new(deaths.seed);
        let mut neighbour = Neighbour::new(scene, 0)?;
        neighbour.job(scene)?;
        let (mut killed, mut terminated) = (deaths.killed, deaths.terminated);
        let mut before = None;
        while killed + terminated != 0 {
            if dice.below(killed + terminated) < killed {
                kill(scene, &mut dice)?;
                killed -= 1;
            } else {
                terminate(scene, &mut dice, &rounds)?;
                terminated -= 1;
            }
            happened += 1;
            neighbour.job(scene)?;
            // The first few let pools grow.
            if happened == 5 {
                before = Some(Held::now(scene)?);
            }
        }
        let rounds = rounds.load(Ordering::Relaxed);
        anyhow::ensure!(deaths.terminated < ENOUGH || rounds != 0, "no process has made and destroyed anything");
        before.map_or(Ok(()), |before| before.until_again(scene, KEPT))
    });
    played.with_context(|| format!("seed {}, after {happened} deaths", deaths.seed))
}

/// What the suite plays of it: with the stages of a test, a hundred processes killed and a thousand terminated.
pub(super) fn part(stage: &Stage) -> Played {
    play(stage, Deaths { killed: 20, terminated: 200, seed: stage.seed() })
}
