//! Local memory that loses its content in a reset of the adapter.

use crate::scenario::client::Client;
use crate::scenario::db::{ABORT, RingQueue, Room, raw};
use crate::scenario::rp::{SIZE, fill};
use crate::scenario::te::hardware::{ACTIVE, controller, force, recovered, works};
use crate::scenario::{Played, Scene, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::adapter::Step;
use dxgkrnl_model::personality::LostBy;
use wddm_abi::ntstatus::STATUS_SUCCESS;

/// What is in local memory.
pub(super) const WORD: u32 = 0x5AA5_1234;
/// Pages of a block of the driver's local memory.
const BLOCK: usize = 1024;

/// Pages of the driver's local memory that are full of [`WORD`].
pub(super) fn pages_of_words(scene: &Scene) -> Result<usize> {
    let wanted = WORD.to_le_bytes().repeat(1024);
    let mut count = 0;
    for block in scene.world.os.kernel().page_objects().iter().filter(|object| object.pages() == BLOCK) {
        let mut bytes = vec![0; BLOCK * 4096];
        block.read(0, &mut bytes)?;
        count += bytes.as_chunks::<4096>().0.iter().filter(|page| **page == *wanted).count();
    }
    Ok(count)
}

fn lose(stage: &Stage, setup: Setup, is_lost: bool) -> Played {
    stage.play(setup.resets(1).setting("LocalSegmentSize", 16 << 20), |scene| {
        let (control, rig, other) = (controller(scene)?, Client::open(scene, "owner")?, raw(scene)?);
        let local = fill(&rig.device, WORD)?;
        let pages = pages_of_words(scene)?;
        // CAST: few.
        same("pages of local memory", pages, (SIZE / 4096) as usize)?;
        let fence = rig.fence(5, stage.rung() >= 2)?;
        let room = Room::new(&other)?;
        let bell = (stage.rung() == 3).then(|| RingQueue::connected(scene, &room, 1, 65536)).transpose()?;
        let anew = scene.evaluations("DXG-PAGING-ANEW");
        same("the escape", force(&control, None), STATUS_SUCCESS)?;
        let recovery = recovered(scene, 1)?.remove(0);
        let told = recovery.steps.iter().position(|step| matches!(step, Step::Evicted(1..)));
        let told = told.with_context(|| format!("nothing was evicted: {recovery}"))?;
        same("behind it", recovery.steps.get(told + 1), Some(&Step::RestartFromTimeout(STATUS_SUCCESS)))?;
        ensure!(scene.evaluations("DXG-PAGING-LOST") != 0, "the driver was not told");
        same("pages with what was there", pages_of_words(scene)?, if is_lost { 0 } else { pages })?;
        scene.until("the device's loss", || Ok(rig.device.state()?.execution != ACTIVE))?;
        scene.until("the fence's last value", || Ok(rig.value(&fence)? == u64::MAX))?;
        if let Some(bell) = &bell {
            scene.until("ABORT", || Ok(bell.status()? == ABORT))?;
        }
        // The same process, whose address space goes on, and another.
        let next = rig.adapter.device()?;
        fill(&next, !WORD).context("behind the reset")?;
        ensure!(scene.evaluations("DXG-PAGING-ANEW") >= anew + 2, "page tables did not begin anew");
        drop(local);
        works(scene)
    })
}

pub(super) fn memory(stage: &Stage) -> Played {
    let by = |lost_by| Setup::default().windows(move |windows| windows.lost_by = lost_by);
    lose(stage, by(LostBy::Place), false).context("nothing is lost")?;
    for lost_by in [LostBy::Place, LostBy::Address] {
        let setup = by(lost_by).setting("FaultLoseMemory", 1);
        lose(stage, setup, true).with_context(|| format!("{lost_by:?}"))?;
    }
    let setup = Setup::default().setting("FaultLoseMemory", 1).setting("PageTableUpdateMode", 0);
    lose(stage, setup, true).context("tables that the processor writes")?;
    let setup = Setup::default().setting("FaultLoseMemory", 1).windows(|windows| windows.test_signing = false);
    lose(stage, setup, false).context("without test signing")?;
    let setup = Setup::default().setting("FaultLoseMemory", 1).windows(|windows| windows.test_signing = false);
    stage.play(setup, |scene| {
        let printed = scene.world.os.kernel().debug_messages().join("");
        ensure!(printed.contains("FaultLoseMemory is ignored"), "the driver does not say that it ignores the setting");
        Ok(())
    })
}
