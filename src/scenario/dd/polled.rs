//! A monitor that looks all the time.

use super::super::te::{Hog, client, stubborn, victim};
use super::super::{Played, Stage, same};
use dxgkrnl_model::personality::{Gate, MS};
use std::time::Duration;

/// Questions that must come at each step: more than were under way at its beginning.
const MORE: u64 = 10;
/// Many times what lies between two questions.
const WHILE: Duration = Duration::from_millis(50);

pub(super) fn polled(stage: &Stage) -> Played {
    let node = victim(stage);
    let gate = Gate::default();
    let setup = stubborn().resets(1).windows(|windows| {
        (windows.polls, windows.gates.reset) = (Some(MS), Some(gate.clone()));
    });
    stage.play(setup, |scene| {
        let asked = || scene.calls("DxgkDdiQueryAdapterInfo");
        let go_on = |what: &str| {
            let before = asked();
            scene.until(what, || Ok(asked() > before + MORE))
        };
        go_on("questions beside nothing")?;
        let raw = client(scene, "hangs")?;
        let hog = Hog::new(scene, &raw, &[node])?;
        hog.spin(node, 0)?;
        scene.until("the preparation of the reset", || Ok(gate.came() == 1))?;
        go_on("questions while the reset is prepared")?;
        gate.let_through();
        scene.until("the loss of the device", || Ok(!hog.is_active()?))?;
        go_on("questions behind the reset")?;
        scene.world.os.stop_adapter(scene.adapter());
        let before = asked();
        std::thread::park_timeout(WHILE);
        same("questions behind the stop", asked(), before)?;
        scene.world.os.restart_adapter(scene.adapter())?;
        go_on("questions behind the next start")
    })
}
