//! An engine that stops for a reason that the driver does not know.

use super::super::client::Client;
use super::super::stuck::Stuck;
use super::super::{Played, Setup, Stage, same};
use super::hardware::{recovered, works};
use super::{Hog, client, is_lost, stubborn, victim};
use crate::decode::decode;
use anyhow::{Context, ensure};
use dxgkrnl_model::adapter::{Reason, Step, What};
use dxgkrnl_model::personality::SECOND;
use nt_model::sched::Ticks;
use std::time::Duration;

/// Longer than the driver waits for an engine whose reset it is asked for, and shorter than TdrDdiDelay.
const LONG: Duration = Duration::from_millis(1500);
/// TdrDdiDelay: a busy machine may keep the thread that lets the engine go, and those behind it, for long.
const DDI_DELAY: Ticks = 30 * SECOND;

/// An engine's thread stays in the kernel, in the middle of a packet. The engine's reset fails; that of the adapter
/// does not return before the engine has let go, since the OS frees behind it what the engine has mapped. Then work
/// goes on, on the same engine. Nor does a stop return before.
pub(super) fn stuck(stage: &Stage) -> Played {
    reset(stage)?;
    if stage.rung() == 0 {
        // Without timeouts Windows waits for packets for ever.
        return Ok(());
    }
    stop(stage).context("a stop, where nothing looks for timeouts")
}

/// The same engine, hardware-scheduled, and no reset: the stop does not return before it has let go.
fn stop(stage: &Stage) -> Played {
    let setup = Setup::default().quick_tdr();
    let setup = setup.windows(|windows| (windows.tdr.enabled, windows.tdr.ddi_delay) = (false, DDI_DELAY));
    stage.play(setup, |scene| {
        let rig = Client::open(scene, "hangs")?;
        let (queue, page) = (rig.queue(0)?, rig.page()?);
        let stuck = Stuck::new(scene);
        queue.run(|list| list.store(page.at(0), 1))?;
        scene.until("the end of the engine's answers", || Ok(stuck.has_come()))?;
        std::thread::scope(|scope| -> Played {
            let stop = scope.spawn(|| scene.world.os.stop_adapter(scene.adapter()));
            std::thread::park_timeout(LONG);
            let over = stop.is_finished();
            stuck.let_go();
            stop.join().map_err(|_| anyhow::anyhow!("a panic"))?;
            ensure!(!over, "the stop is over, and an engine has not let go");
            same("calls of StopDevice", scene.calls("DxgkDdiStopDevice"), 1)
        })?;
        drop((queue, page, rig));
        scene.world.os.restart_adapter(scene.adapter())?;
        works(scene)
    })
}

fn reset(stage: &Stage) -> Played {
    let node = victim(stage);
    let setup = stubborn().resets(2).windows(|windows| windows.tdr.ddi_delay = DDI_DELAY);
    stage.play(setup, |scene| {
        let raw = client(scene, "hangs")?;
        let hog = Hog::with_much(scene, &raw, &[node], 1 << 20)?;
        let stuck = Stuck::new(scene);
        hog.count(node, 0)?;
        scene.until("the end of the engine's answers", || Ok(stuck.has_come()))?;
        scene.until("the adapter's reset", || Ok(scene.calls("DxgkDdiResetFromTimeout") == 1))?;
        std::thread::park_timeout(LONG);
        let is_over = |step: &Step| matches!(step, Step::ResetFromTimeout(_));
        let over = scene.adapter().recoveries().iter().any(|recovery| recovery.has(is_over));
        ensure!(!over, "the adapter's reset is over, and an engine has not let go");
        // It is no engine that the driver has given up: that one touches nothing.
        scene.world.os.collect_debug_info(scene.adapter());
        let text = decode(&scene.adapter().debug_info())?.text;
        let is_silent = |line: &str| line.split_whitespace().eq(["answers", "no"]);
        ensure!(!text.lines().any(is_silent), "the driver says that an engine is stuck");
        stuck.let_go();
        let all = recovered(scene, 2)?;
        let failed = |step: &Step| matches!(step, Step::ResetEngine(status, _) if !status.is_success());
        ensure!(all[0].what == What::PacketEngine { node } && all[0].has(failed), "{}", all[0]);
        same("then", (all[1].what, all[1].reason), (What::Adapter, Reason::Promoted))?;
        is_lost(scene, &hog)?;
        let next = client(scene, "behind")?;
        let behind = Hog::new(scene, &next, &[node])?;
        behind.short(node, 0)?;
        scene.until("a packet behind the reset", || behind.has_ended(0))?;
        works(scene)
    })
}
