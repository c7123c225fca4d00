//! Resets at random points of a running load.

use super::super::rig::Rig;
use super::super::{Played, Scene, Setup, Stage, same};
use super::hardware::{ACTIVE, controller, force, unconditional};
use super::hog::Loop;
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::adapter::{Reason, Step, What};
use std::time::{Duration, Instant};
use wddm_abi::ntstatus::STATUS_SUCCESS;

/// Resets of a storm: of engines, and of the adapter.
#[derive(Clone, Copy, Debug)]
pub struct Storm {
    /// Of engines.
    pub engines: u64,
    /// Of the adapter.
    pub adapters: u64,
    /// What the points are drawn from.
    pub seed: u64,
    /// Whether the engines come off command buffers. Then one may be between two turns of the queue that it is about to
    /// run on when its reset comes, which takes nothing along: the contexts to invalidate are those that were running,
    /// and this one has lost nothing. Seldom, and never where they do not.
    ///
    /// Source: `DxgkDdiResetHwEngine`, Remarks.
    pub preempts: bool,
}

/// xorshift.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// A process that hammers an engine, and one beside it.
struct Load {
    rig: Rig,
    queue: crate::client::Queue,
    page: super::super::rig::Page,
    value: u64,
}

impl Load {
    fn new(scene: &Scene, node: u32) -> Result<Self> {
        let rig = Rig::open(scene, "load")?;
        let (queue, page) = (rig.queue(node)?, rig.page()?);
        Ok(Self { rig, queue, page, value: 0 })
    }

    fn is_lost(&self) -> Result<bool> {
        Ok(self.rig.device.state()?.execution != ACTIVE)
    }

    /// A job: its value arrives, or its device is lost.
    fn job(&mut self, scene: &Scene) -> Result<bool> {
        self.value += 1;
        if self.queue.run(|list| list.store(self.page.at(0), self.value)).is_err() {
            ensure!(self.is_lost()?, "work is refused of a device that is active");
            return Ok(false);
        }
        let mut lost = false;
        scene.until("a job's result, or the loss of its device", || {
            lost = self.is_lost()?;
            Ok(lost || self.page.word(0)? == self.value)
        })?;
        Ok(!lost)
    }
}

/// Whether the last recovery found nothing on a hardware-scheduled engine.
fn cut_nothing_off(scene: &Scene) -> bool {
    let all = scene.adapter().recoveries();
    all.last().is_some_and(|last| last.has(|step| *step == Step::ResetHwEngine(STATUS_SUCCESS, 0)))
}

/// Plays a storm on a machine of its own: every innocent job's result is right, and nothing is left behind.
///
/// # Errors
/// What was wrong.
pub fn play(stage: &Stage, storm: Storm) -> Played {
    // An engine that is reset while nothing runs on it does not count on packet nodes: those are forced while busy.
    let setup = Setup::default().windows(|windows| windows.tdr.process_limit = u32::MAX);
    let mut happened = 0;
    let setup = setup.resets(storm.engines + storm.adapters).setting("PreemptInBuffers", storm.preempts.into());
    stage
        .play(setup, |scene| {
            let control = controller(scene)?;
            same("the escape", unconditional(&control), STATUS_SUCCESS)?;
            let mut dice = Dice(storm.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
            let mut beside = Load::new(scene, 1)?;
            let (mut left, mut jobs, mut missed) = ([storm.engines, storm.adapters], 0_u64, 0);
            while left.iter().sum::<u64>() > 0 {
                let adapter = dice.below(left[0] + left[1]) >= left[0];
                // A victim that runs until it is reset, on engine 0, with jobs behind it and beside it.
                let victim = Load::new(scene, 0)?;
                let run = Loop::new(&victim.rig)?;
                victim.queue.run(|list| list.indirect(run.address, run.length))?;
                run.begins(scene)?;
                for _ in 0..dice.below(3) {
                    jobs += u64::from(beside.job(scene)?);
                }
                let wait = Instant::now() + Duration::from_micros(dice.below(300));
                while Instant::now() < wait {
                    std::hint::spin_loop();
                }
                same("the escape", force(&control, (!adapter).then_some(0)), STATUS_SUCCESS)?;
                happened += 1;
                if !adapter && cut_nothing_off(scene) {
                    missed += 1;
                    let most = if storm.preempts { 1 + storm.engines / 20 } else { 0 };
                    ensure!(missed <= most, "{missed} resets cut nothing off");
                    run.end()?;
                    victim.queue.wait(0, super::super::stage::PATIENCE).context("the victim that lost nothing")?;
                } else {
                    scene.until("the loss of the device that ran", || victim.is_lost()).context("the victim")?;
                }
                if adapter {
                    ensure!(beside.is_lost()?, "a device outlived the adapter's reset");
                    beside = Load::new(scene, 1)?;
                }
                ensure!(!beside.is_lost()?, "an innocent device is lost with an engine that it has no work on");
                ensure!(beside.job(scene)?, "an innocent job's device is lost");
                jobs += 1;
                left[usize::from(adapter)] -= 1;
            }
            ensure!(jobs >= storm.engines + storm.adapters, "{jobs} jobs");
            let all = scene.adapter().recoveries();
            let adapters = all.iter().filter(|one| one.what == What::Adapter).count() as u64;
            same("adapter resets", adapters, storm.adapters)?;
            ensure!(all.iter().all(|one| one.is_over && [Reason::Forced, Reason::ForcedEngine].contains(&one.reason)));
            let emptied = all.iter().filter(|one| one.has(|step| *step == Step::Emptied)).count();
            same("engine resets that found nothing", emptied, 0)
        })
        .with_context(|| format!("seed {}, after {happened} resets", storm.seed))
}

/// A hundred, by the stage's seed: half of them of engines that come off command buffers.
pub(super) fn hundred(stage: &Stage) -> Played {
    let storm = |preempts| Storm { engines: 45, adapters: 5, seed: stage.seed(), preempts };
    play(stage, storm(true)).context("engines that come off")?;
    play(stage, storm(false)).context("engines that do not")
}
