//! Who is blamed for a hang of a hardware-scheduled engine, and who is not.

use super::super::db::{KernelQueue, Room};
use super::super::{Played, Scene, Setup, Stage, same};
use super::hardware::recovered;
use super::held::Spinner;
use super::{client, stubborn};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::adapter::{Reason, Step, What};
use dxgkrnl_model::personality::{Gate, SECOND};
use dxgkrnl_model::report::AdapterReport;
use wddm_abi::D3DKMT_DEVICEEXECUTION_STATE;
use wddm_abi::ntstatus::STATUS_SUCCESS;

/// Contexts behind the one that hangs, each of a process of its own.
const INNOCENTS: usize = 3;

/// Contexts that answer were probed and run on; the one that hangs alone is lost.
pub(super) fn probed(stage: &Stage) -> Played {
    stage.play(stubborn().resets(1), |scene| {
        let raws = (0..INNOCENTS).map(|_| client(scene, "behind")).collect::<Result<Vec<_>>>()?;
        let mut behind = Vec::new();
        for raw in &raws {
            let room = Room::new(raw)?;
            let queue = KernelQueue::new(scene, &room, room.context(0)?)?;
            // It has run before.
            queue.submit(&room, 0, &[], 1)?;
            scene.until("work before the hang", || Ok(queue.value(raw)? == 1))?;
            behind.push((room, queue));
        }
        let guilty = client(scene, "hangs")?;
        let hog = Spinner::new(scene, &guilty)?;
        behind.iter().try_for_each(|(room, queue)| queue.submit(room, 1, &[], 2))?;
        scene.until("the loss of the device that hangs", || Ok(!hog.room.is_active()?))?;
        for (raw, (room, queue)) in raws.iter().zip(&behind) {
            scene.until("work behind the hang", || Ok(queue.value(raw)? == 2))?;
            same("its device", room.is_active()?, true)?;
        }
        let recovery = recovered(scene, 1)?.remove(0);
        same("what", (recovery.what, recovery.reason), (What::HwEngine { node: 0 }, Reason::Suspension))?;
        let one = recovery.has(|step| *step == Step::ResetHwEngine(STATUS_SUCCESS, 1));
        ensure!(one && recovery.has(|step| *step == Step::DevicesLost(1)), "{recovery}");
        // Each was late, was asked, and answered.
        let probes = probes(scene)?;
        ensure!(probes >= INNOCENTS as u64, "{probes} probes of contexts that answered");
        Ok(())
    })
}

/// Contexts that were probed and found alive.
fn probes(scene: &Scene) -> Result<u64> {
    Ok(told(scene)?.innocent_probes)
}

/// What the model tells of the adapter.
fn told(scene: &Scene) -> Result<AdapterReport> {
    let luid = scene.adapter().luid_number();
    let report = scene.world.os.report();
    report.adapters.into_iter().find(|adapter| adapter.luid == luid).context("the adapter's report")
}

/// A context is late, and lets the engine go before the reset: the reset finds nothing, and nothing is lost.
pub(super) fn let_go(stage: &Stage) -> Played {
    let gate = Gate::default();
    let setup: Setup = stubborn().resets(1).windows(|windows| windows.gates.reset = Some(gate.clone()));
    stage.play(setup, |scene| {
        let late = client(scene, "late")?;
        let hog = Spinner::new(scene, &late)?;
        scene.until("the preparation of the reset", || Ok(gate.came() == 1))?;
        hog.queue.stop(&late, 0, 1)?;
        scene.until("the end of the buffer", || Ok(hog.queue.value(&late)? == 1))?;
        // The engine is off the context by then, and has said so.
        std::thread::park_timeout(std::time::Duration::from_millis(60));
        gate.let_through();
        let recovery = recovered(scene, 1)?.remove(0);
        same("what", (recovery.what, recovery.reason), (What::HwEngine { node: 0 }, Reason::Suspension))?;
        let nothing = recovery.has(|step| *step == Step::ResetHwEngine(STATUS_SUCCESS, 0));
        ensure!(nothing && recovery.has(|step| *step == Step::DevicesLost(0)), "{recovery}");
        same("its device", hog.room.is_active()?, true)?;
        // It goes on.
        hog.queue.submit(&hog.room, 1, &[], 2)?;
        scene.until("more work of it", || Ok(hog.queue.value(&late)? == 2))?;
        same("its device", hog.room.is_active()?, true)
    })
}

/// A context is late, and lets the engine go while its reset is prepared: what the engine runs by then, of another
/// process, began behind that. Its device is reset, and has hung nothing.
pub(super) fn runs_behind(stage: &Stage) -> Played {
    let gate = Gate::default();
    // Time enough, on a loaded host too, to hand something in between the suspension and the reset.
    let setup = stubborn().resets(1).windows(|windows| {
        windows.tdr.delay = 3 * SECOND;
        windows.gates.reset = Some(gate.clone());
    });
    stage.play(setup, |scene| {
        let (late, next) = (client(scene, "late")?, client(scene, "next")?);
        let room = Room::new(&next)?;
        let queue = KernelQueue::new(scene, &room, room.context(0)?)?;
        let hog = Spinner::new(scene, &late)?;
        scene.until("the suspension of the one that hangs", || Ok(told(scene)?.suspending == 1))?;
        // Nothing of the node is handed in from the reset on, and the next one is asked later than the first.
        let before = scene.calls("DxgkDdiSubmitCommandToHwQueue");
        queue.spin(&room, 0, None, 1)?;
        scene.until("the buffer with the driver", || Ok(scene.calls("DxgkDdiSubmitCommandToHwQueue") > before))?;
        scene.until("the preparation of the reset", || Ok(gate.came() == 1))?;
        hog.queue.stop(&late, 0, 1)?;
        queue.runs(scene, &next)?;
        gate.let_through();
        let recovery = recovered(scene, 1)?.remove(0);
        same("what", (recovery.what, recovery.reason), (What::HwEngine { node: 0 }, Reason::Suspension))?;
        let one = recovery.has(|step| *step == Step::ResetHwEngine(STATUS_SUCCESS, 1));
        ensure!(one && recovery.has(|step| *step == Step::DevicesLost(1)), "{recovery}");
        same("the device that was late", hog.room.is_active()?, true)?;
        same("the device that ran", room.state()?, D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_RESET)
    })
}

/// A context is late, and lets the engine go before its reset begins: there is none.
pub(super) fn lets_go_in_time(stage: &Stage) -> Played {
    let gate = Gate::default();
    stage.play(stubborn().windows(|windows| windows.gates.engine = Some(gate.clone())), |scene| {
        let late = client(scene, "late")?;
        let hog = Spinner::new(scene, &late)?;
        scene.until("the wish for a reset", || Ok(gate.came() == 1))?;
        hog.queue.stop(&late, 0, 1)?;
        scene.until("the end of the buffer", || Ok(hog.queue.value(&late)? == 1))?;
        scene.until("the acknowledgement", || Ok(told(scene)?.suspending == 0))?;
        // What the watch finds later, on a host that was slow meanwhile, does not wait for the case.
        gate.open(true);
        hog.queue.submit(&hog.room, 1, &[], 2)?;
        scene.until("more work of it", || Ok(hog.queue.value(&late)? == 2))?;
        same("its device", hog.room.is_active()?, true)?;
        same("resets of engines", scene.calls("DxgkDdiResetHwEngine"), 0)?;
        same("recoveries", scene.adapter().recoveries().len(), 0)
    })
}
