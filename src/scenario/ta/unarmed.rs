//! Settings that break the GPU on purpose, on a machine that is not one for tests.

use super::lost::{WORD, pages_of_words};
use crate::decode::decode;
use crate::scenario::client::{Client, until_idle};
use crate::scenario::rp::fill;
use crate::scenario::te::hardware::{ACTIVE, controller, force, recovered, works};
use crate::scenario::{Played, Scene, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use kmd_core::setting_values::{Setting, Values};
use kmd_core::settings::Settings;
use wddm_abi::ntstatus::STATUS_SUCCESS;

/// The packet that would be broken: one that a new client submits.
const EARLY: u32 = 40;

/// Each such setting does nothing without test signing, and the driver says so.
pub(super) fn faults(stage: &Stage) -> Played {
    let all = || Settings::TABLE.iter().filter(|setting| setting.name.starts_with("Fault"));
    ensure!(all().count() >= 4, "there are {} such settings", all().count());
    for setting in all().filter(|setting| !stage.sets(setting.name)) {
        let setup =
            Setup::default().setting(setting.name, value(setting)).setting("LocalSegmentSize", 16 << 20).resets(1);
        let setup = setup.windows(|windows| windows.test_signing = false);
        stage.play(setup, |scene| is_dead(scene, setting)).context(setting.name)?;
    }
    Ok(())
}

/// A value that a client would notice.
fn value(setting: &Setting) -> u32 {
    match (setting.name, setting.values) {
        (_, Values::Between(..)) => 1,
        _ => EARLY,
    }
}

/// How many requests for an interrupt have failed, as the driver counts them.
fn failed_interrupts(scene: &Scene) -> Result<u64> {
    scene.world.os.collect_debug_info(scene.adapter());
    let text = decode(&scene.adapter().debug_info())?.text;
    let counts = text.lines().filter_map(|line| line.trim_start().strip_prefix("interrupts failed"));
    counts.map(|count| Ok(count.trim().parse::<u64>()?)).sum()
}

/// A client's packets run, each interrupt comes, nothing is reset but what user mode forces, and that takes no memory's
/// content along.
fn is_dead(scene: &Scene, setting: &Setting) -> Played {
    let printed = scene.world.os.kernel().debug_messages().join("");
    let wanted = format!("{} is ignored without test signing", setting.name);
    ensure!(printed.contains(&wanted), "the driver does not say that it ignores the setting");
    let rig = Client::open(scene, "works")?;
    let local = fill(&rig.device, WORD)?;
    let queue = rig.queue(0)?;
    for _ in 0..4 {
        queue.run(|list| (0..EARLY).try_for_each(|_| list.nop(8)))?;
    }
    until_idle(scene, &queue)?;
    same("its device", rig.device.state()?.execution, ACTIVE)?;
    same("interrupts that failed", failed_interrupts(scene)?, 0)?;
    let pages = pages_of_words(scene)?;
    ensure!(pages != 0, "nothing is in local memory");
    same("resets", scene.adapter().recoveries().len(), 0)?;
    let control = controller(scene)?;
    same("the escape", force(&control, None), STATUS_SUCCESS)?;
    same("resets", recovered(scene, 1)?.len(), 1)?;
    same("pages with what was there", pages_of_words(scene)?, pages)?;
    drop(local);
    works(scene)
}
