//! An engine of which another context is taken off than the one that it runs.

use super::super::client::Client;
use super::super::db::Room;
use super::super::{Played, Setup, Stage, same};
use super::client;
use super::hog::Loop;
use dxgkrnl_model::personality::SECOND;
use dxgkrnl_model::process::End;
use std::time::Duration;

/// Four times as long as ReportHangs.
const LONG: Duration = Duration::from_millis(200);

/// A command buffer is long, and its engine cannot come off amid it; a process beside it is ended. Its context is off
/// at once, and nobody has asked the other one anything: the driver tells of no hang, however long that is.
pub(super) fn context(stage: &Stage) -> Played {
    let setup = Setup::default().setting("PreemptInBuffers", 0).setting("ReportHangs", 50);
    stage.play(setup.windows(|windows| windows.tdr.delay = 60 * SECOND), |scene| {
        let (works, ends) = (Client::open(scene, "works")?, client(scene, "is ended")?);
        let (queue, page) = (works.queue(0)?, works.page()?);
        let run = Loop::new(&works)?;
        let room = Room::new(&ends)?;
        room.context(0)?;
        queue.run(|list| {
            list.indirect(run.address, run.length)?;
            list.store(page.at(0), 1)
        })?;
        run.begins(scene)?;
        let before = scene.calls("DxgkDdiSuspendContext");
        ends.process.finish(End::Terminated);
        same("suspensions", scene.calls("DxgkDdiSuspendContext"), before + 1)?;
        std::thread::park_timeout(LONG);
        run.end()?;
        page.until(scene, "the end of the long command buffer", 0, 1)?;
        same("resets", scene.adapter().recoveries().len(), 0)?;
        same("the device that works", works.device.state()?.execution, 1)
    })
}
