//! Processes of their own: the user-mode driver in another Linux process, its exit, its death at any moment.

use super::{Played, Scenario, Setup, Stage, same};
use anyhow::ensure;

/// The section that says how processes end.
const END: &str = "User-mode work submission, Process termination";

pub(super) const CASES: &[Scenario] = &[Scenario {
    id: "PT-01",
    title: "a process of its own submits through a doorbell without a message, and exits",
    source: END,
    play: exits,
}];

/// A machine whose processes may be Linux processes.
fn setup() -> Setup {
    Setup::default().windows(|windows| windows.separate_processes = true)
}

fn exits(stage: &Stage) -> Played {
    stage.play(setup(), |scene| {
        let mut client = scene.world.separate("submit")?;
        client.expect("connected")?;
        let before = (client.messages(), scene.world.os.counts().thunks);
        client.say("go")?;
        client.expect("memory 101, rings 101")?;
        same("messages and thunks", (client.messages(), scene.world.os.counts().thunks), before)?;
        client.say("end")?;
        let process = client.process().clone();
        ensure!(client.exit()?.success(), "the client failed");
        same("open handles", (process.open_handles(), process.nt().open_handles()), (0, 0))
    })
}
