//! Settings that break the GPU on purpose, on a machine that is not one for tests.

use crate::scenario::rig::{Rig, until_idle};
use crate::scenario::te::hardware::{ACTIVE, controller, force, recovered, works};
use crate::scenario::{Played, Scene, Setup, Stage, same};
use anyhow::{Context, ensure};
use kmd_core::setting_values::{Setting, Values};
use kmd_core::settings::Settings;
use wddm_abi::ntstatus::STATUS_SUCCESS;

/// The packet that would be broken: one that a new client submits.
const EARLY: u32 = 40;

/// Each such setting does nothing without test signing, and the driver says so.
pub(super) fn faults(stage: &Stage) -> Played {
    let all = || Settings::TABLE.iter().filter(|setting| setting.name.starts_with("Fault"));
    ensure!(all().count() >= 5, "there are {} such settings", all().count());
    for setting in all().filter(|setting| !stage.sets(setting.name)) {
        let setup = Setup::default().setting(setting.name, value(setting)).resets(1);
        let setup = setup.windows(|windows| windows.test_signing = false);
        stage.play(setup, |scene| is_dead(scene, setting)).context(setting.name)?;
    }
    Ok(())
}

/// A value that a client would notice.
fn value(setting: &Setting) -> u32 {
    match (setting.name, setting.values) {
        // Every interrupt fails.
        ("FaultInterrupts", _) => u32::MAX,
        (_, Values::Between(..)) => 1,
        _ => EARLY,
    }
}

/// A client's packets run, and nothing is reset but what user mode forces, which takes no longer than it does.
fn is_dead(scene: &Scene, setting: &Setting) -> Played {
    let printed = scene.world.os.kernel().debug_messages().join("");
    let wanted = format!("{} is ignored without test signing", setting.name);
    ensure!(printed.contains(&wanted), "the driver does not say that it ignores the setting");
    let rig = Rig::open(scene, "works")?;
    let queue = rig.queue(0)?;
    for _ in 0..4 {
        queue.run(|list| (0..EARLY).try_for_each(|_| list.nop(8)))?;
    }
    until_idle(scene, &queue)?;
    same("its device", rig.device.state()?.execution, ACTIVE)?;
    same("resets", scene.adapter().recoveries().len(), 0)?;
    let control = controller(scene)?;
    same("the escape", force(&control, None), STATUS_SUCCESS)?;
    same("resets", recovered(scene, 1)?.len(), 1)?;
    works(scene)
}
