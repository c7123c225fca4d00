//! Long packets while each call of the driver is timed: the variants of the kit's jobs that are called PoliceDdi.

use super::super::client::Client;
use super::super::{Played, Setup, Stage, same};
use super::hardware::{feed_until_lost, recovered, works};
use super::{Hog, client, is_lost, packet_resets, stubborn, victim};
use anyhow::{Context, ensure};
use dxgkrnl_model::adapter::{Reason, What};
use dxgkrnl_model::personality::MS;

/// What the kit's name for such a variant is about: a limit for each call of the driver. It is not published.
const LIMIT: u64 = 250 * MS;
/// The same beside other cases, on a machine whose threads may have to wait for a processor.
const BESIDE_OTHERS: u64 = 8 * LIMIT;

/// A long packet that comes off and one that is reset: no call of the driver takes long, those of the reset among them.
/// An engine that never answers is what the driver waits for, for longer than that limit (`kmd/core/src/reset.rs`:
/// `PATIENCE`, with the reason): that call takes less than TdrDdiDelay, which is the documents' limit for it.
pub(super) fn long(stage: &Stage) -> Played {
    let node = victim(stage);
    let limit = if stage.is_whole() { LIMIT } else { BESIDE_OTHERS };
    let setup = Setup::default().quick_tdr().setting("PreemptInBuffers", 1);
    let setup = setup.windows(|windows| windows.police_ddi = limit);
    stage
        .play(setup, |scene| {
            let raw = client(scene, "long")?;
            let hog = Hog::new(scene, &raw, &[node])?;
            hog.spin(node, 0)?;
            hog.begins(scene, 0)?;
            // The time is what it is about: three TdrDelays.
            std::thread::park_timeout(std::time::Duration::from_millis(600));
            hog.end(0)?;
            scene.until("the end of the long packet", || hog.has_ended(0))?;
            ensure!(hog.is_active()?, "the device is lost");
            same("resets", packet_resets(scene).len(), 0)
        })
        .context("a packet that comes off")?;
    let setup = stubborn().resets(1).windows(|windows| windows.police_ddi = limit);
    stage
        .play(setup, |scene| {
            let raw = client(scene, "long")?;
            let hog = Hog::new(scene, &raw, &[node])?;
            hog.spin(node, 0)?;
            is_lost(scene, &hog)?;
            recovered(scene, 1)?;
            works(scene)
        })
        .context("a packet that is reset")?;
    // Far behind what starts and first clients need.
    let setup = Setup::default().quick_tdr().setting("FaultWedgeAt", 4000).resets(2);
    let setup = setup.windows(|windows| windows.police_ddi = windows.tdr.ddi_delay);
    stage
        .play(setup, |scene| {
            feed_until_lost(scene, &Client::open(scene, "hangs")?)?;
            let all = recovered(scene, 2)?;
            same("then", (all[1].what, all[1].reason), (What::Adapter, Reason::Promoted))?;
            works(scene)
        })
        .context("an engine that never answers")
}
