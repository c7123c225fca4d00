//! Stops of an adapter with an engine that never answers.

use super::super::client::Client;
use super::super::{Played, Scene, Setup, Stage, same};
use super::hardware::{feed_until_lost, recovered, works};
use crate::decode::decode;
use anyhow::Context;
use dxgkrnl_model::personality::SECOND;

/// The packet at which the engine stops answering: far behind what starts and first clients need.
const AT: u32 = 4000;

/// An engine that stops answering. An idle one keeps its doorbell: a destruction that meets the callback of one that
/// does not is another case's.
fn setup() -> Setup {
    Setup::default().quick_tdr().setting("FaultWedgeAt", AT).setting("IdleMilliseconds", 0)
}

/// An engine that never answers, with resets before the stop or during it: the stop and the unload, like every other
/// call, end within TdrDdiDelay, and the next start begins anew.
pub(super) fn ends(stage: &Stage) -> Played {
    for (what, before) in [("the resets are during the stop", false), ("a reset has replaced the engine", true)] {
        let setup = setup().resets(2);
        // Long enough for a busy machine: nothing else is late.
        let setup = setup.windows(|w| (w.tdr.delay, w.police_ddi) = (SECOND, w.tdr.ddi_delay));
        stage.play(setup, |scene| wedged(scene, before)).context(what)?;
    }
    if stage.rung() == 0 {
        // Without timeouts Windows waits for packets for ever.
        return Ok(());
    }
    // Without timeouts no engine is replaced, the suspension is not answered, and memory that the engine had mapped is
    // freed all the same.
    let setup = setup().breaks(&["DXG-SUSPEND-ACK"]);
    let setup = setup.windows(|w| (w.tdr.enabled, w.police_ddi) = (false, w.tdr.ddi_delay));
    stage.play(setup, |scene| wedged(scene, false)).context("nothing looks for timeouts")
}

/// Whether a line of a debug blob in words says that an engine does not answer.
fn is_silent(line: &str) -> bool {
    let mut words = line.split_whitespace();
    (words.next(), words.next()) == (Some("answers"), Some("no"))
}

fn wedged(scene: &Scene, before: bool) -> Played {
    let rig = Client::open(scene, "hangs")?;
    let queue = rig.queue(0)?;
    if before {
        feed_until_lost(scene, &rig)?;
        recovered(scene, 2)?;
        works(scene)?;
    } else {
        for _ in 0..AT.div_ceil(100) {
            queue.run(|list| (0..100).try_for_each(|_| list.nop(8)))?;
        }
        // The driver tells it to debuggers.
        scene.until("the engine's last answer", || {
            scene.world.os.collect_debug_info(scene.adapter());
            Ok(decode(&scene.adapter().debug_info())?.text.lines().any(is_silent))
        })?;
    }
    scene.world.os.stop_adapter(scene.adapter());
    same("calls of StopDevice", scene.calls("DxgkDdiStopDevice"), 1)?;
    drop((queue, rig));
    scene.world.os.restart_adapter(scene.adapter())?;
    works(scene)
}
