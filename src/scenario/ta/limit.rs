//! How often an adapter may be reset, and a process hang.

use super::stuck::stopped;
use crate::scenario::client::Client;
use crate::scenario::db::raw;
use crate::scenario::rp::fill;
use crate::scenario::te::failed::cannot;
use crate::scenario::te::hardware::{controller, force, recovered, unconditional, works};
use crate::scenario::te::{Hog, client, stubborn};
use crate::scenario::{Denied, Played, Raw, Scene, Setup, Stage, same};
use anyhow::{Context, ensure};
use dxgkrnl_model::adapter::{Reason, Step, What};
use dxgkrnl_model::personality::{MS, TdrSettings};
use std::time::Duration;
use wddm_abi::ntstatus::{STATUS_ACCESS_DENIED, STATUS_SUCCESS};

/// What is in local memory.
const WORD: u32 = 0x5AA5_4321;

/// More resets than may be, as many as may be, and any number without the condition.
pub(super) fn resets(stage: &Stage) -> Played {
    // Six within the time: the system stops at the sixth.
    let setup = Setup::default().resets(6).breaks(&["DXG-TDR-LIMIT"]);
    stage.play(setup, |scene| {
        let control = controller(scene)?;
        for _ in 0..6 {
            let _the_last_stops_the_system = force(&control, None);
        }
        let all = scene.world.os.kernel().rules.violations();
        let found = all.iter().find(|one| one.rule.name == "DXG-TDR-LIMIT").context("no violation")?;
        stopped(found, 6)?;
        ensure!(scene.world.os.kernel().rules.is_stopped(), "the machine runs on");
        Ok(())
    })?;
    // Five, and ten without the condition.
    for (count, unlimited) in [(5, false), (10, true)] {
        stage.play(Setup::default().resets(count), |scene| {
            let control = controller(scene)?;
            if unlimited {
                same("the escape", unconditional(&control), STATUS_SUCCESS)?;
            }
            for _ in 0..count {
                same("the escape", force(&control, None), STATUS_SUCCESS)?;
            }
            works(scene)
        })?;
    }
    // Any number that lie further apart than the time.
    stage
        .play(Setup::default().resets(7).windows(|windows| windows.tdr.limit_time = 20 * MS), |scene| {
            let control = controller(scene)?;
            for _ in 0..7 {
                same("the escape", force(&control, None), STATUS_SUCCESS)?;
                std::thread::park_timeout(Duration::from_millis(40));
            }
            works(scene)
        })
        .context("resets far apart")?;
    // The compute-only form resets engines whatever the setting says, since its guidelines demand it.
    if stage.setting("ComputeOnly") == Some(1) {
        return Ok(());
    }
    blocked_first(stage).context("one process hangs again and again")
}

/// A process hangs the adapter again and again, with a driver that cannot reset engines: it is blocked before the
/// system stops, and does so no more. It takes another process to stop the system.
fn blocked_first(stage: &Stage) -> Played {
    let node = if stage.rung() == 0 { 0 } else { 2 };
    let limits = TdrSettings::default();
    let most = u64::from(limits.limit_count);
    let setup = Setup::default().quick_tdr().setting("PerEngineTdr", 0).resets(most + 1).breaks(&["DXG-TDR-LIMIT"]);
    stage.play(setup.setting("PreemptInBuffers", 0), |scene| {
        let violated = |scene: &Scene| {
            let all = scene.world.os.kernel().rules.violations();
            all.into_iter().find(|one| one.rule.name == "DXG-TDR-LIMIT")
        };
        let hang = |process: &Raw| -> Played {
            let hog = Hog::new(scene, process, &[node])?;
            hog.spin(node, 0)?;
            // Behind the stop every call is refused.
            let is_lost = || !hog.is_active().unwrap_or(false);
            scene.until("the loss of the device", || Ok(violated(scene).is_some() || is_lost()))
        };
        let again = raw(scene)?;
        let mut hangs = 0;
        while !again.process.is_blocked() {
            hang(&again).with_context(|| format!("hang {hangs}"))?;
            hangs += 1;
            ensure!(hangs <= most && violated(scene).is_none(), "the system stopped before the process was blocked");
            recovered(scene, 2 * usize::try_from(hangs)?)?;
        }
        same("a device of the blocked process", again.device(), Err(Denied(STATUS_ACCESS_DENIED)))?;
        ensure!(has_0x142(scene), "0x142 is not reported");
        works(scene).context("behind the block")?;
        // Other processes' hangs count for the adapter all the same.
        for _ in hangs..=most {
            let other = raw(scene)?;
            hang(&other)?;
            ensure!(!other.process.is_blocked(), "a process is blocked for others' hangs");
        }
        scene.until("the stop", || Ok(violated(scene).is_some()))?;
        stopped(&violated(scene).context("no violation")?, most + 1)
    })
}

/// Whether 0x142 was reported.
fn has_0x142(scene: &Scene) -> bool {
    scene.world.os.report().events.iter().any(|event| event.text.contains("0x142"))
}

/// One process after another hangs an engine that cannot be reset; each reset of the adapter takes the content of local
/// memory along.
pub(super) fn again(stage: &Stage) -> Played {
    let node = if stage.rung() == 0 { 0 } else { 2 };
    let most = TdrSettings::default().limit_count;
    let setup = stubborn().with_driver(cannot).breaks(&["DXG-TDR-LIMIT"]);
    let setup = setup.setting("FaultLoseMemory", 1).setting("LocalSegmentSize", 16 << 20);
    // The reset of the engine fails each time, and the adapter's follows.
    stage.play(setup.resets(2 * u64::from(most + 1)), |scene| {
        let rig = Client::open(scene, "feeds")?;
        let _there = fill(&rig.device, WORD)?;
        for _ in 0..=most {
            let process = client(scene, "hangs")?;
            let hog = Hog::new(scene, &process, &[node])?;
            hog.spin(node, 0)?;
            // Behind the stop every call is refused.
            let is_stopped = || scene.world.os.kernel().rules.is_stopped();
            scene.until("the loss of the device", || Ok(is_stopped() || !hog.is_active().unwrap_or(false)))?;
        }
        let all = scene.world.os.kernel().rules.violations();
        stopped(all.iter().find(|one| one.rule.name == "DXG-TDR-LIMIT").context("no violation")?, u64::from(most) + 1)?;
        let all = scene.adapter().recoveries();
        // The one behind them is the one that stops the system, wherever it is by then.
        let resets: Vec<_> = all.iter().filter(|one| one.what == What::Adapter).take(most as usize).collect();
        same("resets of the adapter", resets.len(), most as usize)?;
        let lost = |step: &Step| matches!(step, Step::Evicted(1..));
        ensure!(resets.first().is_some_and(|first| first.has(lost)), "nothing was lost with the first reset");
        for reset in &resets {
            ensure!(reset.is_over, "{reset}");
            same("the reason", (reset.reason, reset.reason.tdr_reason()), (Reason::Promoted, 9))?;
        }
        Ok(())
    })
}

/// A process hangs as often as it may, and once more.
pub(super) fn processes(stage: &Stage) -> Played {
    const LIMIT: u32 = 2;
    let node = if stage.rung() == 0 { 0 } else { 2 };
    let setup = Setup::default().quick_tdr().setting("PreemptInBuffers", 0).resets(u64::from(LIMIT) + 1);
    stage.play(setup.windows(|windows| windows.tdr.process_limit = LIMIT), |scene| {
        let process = raw(scene)?;
        for round in 0..=LIMIT {
            ensure!(!process.process.is_blocked(), "blocked after {round} hangs");
            let hog = Hog::new(scene, &process, &[node])?;
            hog.spin(node, 0)?;
            scene.until("the loss of the device", || Ok(!hog.is_active()?))?;
        }
        scene.until("the block", || Ok(process.process.is_blocked()))?;
        let blocked = |event: &str| event.contains("0x142");
        let report = scene.world.os.report();
        ensure!(report.events.iter().any(|event| blocked(&event.text)), "0x142 is not reported");
        same("a device of the blocked process", process.device(), Err(Denied(STATUS_ACCESS_DENIED)))?;
        // The application is started again: another process.
        let again = raw(scene)?;
        let hog = Hog::new(scene, &again, &[node])?;
        hog.short(node, 0)?;
        scene.until("work of the process that was started again", || hog.has_ended(0))?;
        works(scene)
    })?;
    // Hangs that lie further apart than TdrLimitTime do not add up: each takes longer than that.
    let setup = Setup::default().quick_tdr().setting("PreemptInBuffers", 0).resets(3);
    let setup = setup.windows(|windows| (windows.tdr.process_limit, windows.tdr.limit_time) = (1, 20 * MS));
    stage
        .play(setup, |scene| {
            let process = raw(scene)?;
            for round in 0..3 {
                let hog = Hog::new(scene, &process, &[node])?;
                hog.spin(node, 0)?;
                scene.until("the loss of the device", || Ok(!hog.is_active()?))?;
                recovered(scene, round + 1)?;
            }
            same("the process is blocked", process.process.is_blocked(), false)?;
            works(scene)
        })
        .context("hangs far apart")
}
