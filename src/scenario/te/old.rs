//! What the driver has to say of packets and engines when the adapter is reset, or a packet engine, and does not say
//! behind the reset.

use super::super::{Played, Raw, Scene, Setup, Stage, same};
use super::hardware::{controller, force, recovered, works};
use super::held::{Said, Spinner, deaf_until_engine, deaf_until_reset, hears_driver, listen, said, set_deaf, unheard};
use super::storm::counter;
use super::{Hog, client, victim};
use anyhow::{Context, ensure};
use dxgkrnl_model::adapter::{PacketEvent, Reason, Step, What};
use dxgkrnl_model::personality::{Gate, SECOND};
use gpu_wire::packet::Fill;
use std::time::Duration;
use wddm_abi::ntstatus::STATUS_SUCCESS;

/// Long enough for an engine to look very many times.
const SOON: Duration = Duration::from_millis(60);
/// Milliseconds after which an engine that does not come off says that it hangs, and long enough for that.
const HANGS: u32 = 50;
const SAYS: Duration = Duration::from_millis(250);

/// The answer to a preemption, a packet's fault, and the word that an engine hangs: the driver hears no interrupt
/// before the adapter's reset, and says nothing of them behind it.
pub(super) fn notices(stage: &Stage) -> Played {
    let node = victim(stage);
    let usual = || setup().setting("PreemptInBuffers", 1);
    stage.play(usual(), |scene| answer(scene, node)).context("the answer to a preemption")?;
    stage.play(usual(), |scene| fault(scene, node)).context("a packet's fault")?;
    let hung = || setup().setting("PreemptInBuffers", 0).setting("ReportHangs", HANGS);
    stage.play(hung(), |scene| packet_hang(scene, node)).context("a packet engine hangs")?;
    if stage.rung() == 0 {
        return Ok(());
    }
    stage.play(hung(), queue_hang).context("a hardware-scheduled engine hangs")
}

/// The first reset is the one that user mode forces.
fn setup() -> Setup {
    let setup = Setup::default().resets(1).setting("IdleMilliseconds", 0).windows(|w| w.tdr.delay = 5 * SECOND);
    setup.with_driver(deaf_until_reset).breaks(&["NT-INT-STORM", "DXG-ISR-DISMISS"])
}

/// A packet engine does not come off for a preemption, and says that it hangs; the driver hears that interrupt again
/// behind the engine's own reset, and says nothing of it. What waited behind comes back and runs.
pub(super) fn packet_engine(stage: &Stage) -> Played {
    let node = victim(stage);
    let setup = Setup::default().resets(1).setting("IdleMilliseconds", 0).windows(|w| w.tdr.delay = 5 * SECOND);
    let setup = setup.with_driver(deaf_until_engine).breaks(&["NT-INT-STORM", "DXG-ISR-DISMISS"]);
    stage.play(setup.setting("PreemptInBuffers", 0).setting("ReportHangs", HANGS), |scene| {
        let (control, raws) = (controller(scene)?, [client(scene, "hangs")?, client(scene, "waits")?]);
        let hogs = two(scene, &raws, node)?;
        scene.until("a preemption", || Ok(unanswered(scene, node).is_some()))?;
        std::thread::park_timeout(SAYS);
        unheard(scene)?;
        same("what was said", said(scene), vec![])?;
        same("the escape", force(&control, Some(node)), STATUS_SUCCESS)?;
        let recovery = recovered(scene, 1)?.remove(0);
        same("what", (recovery.what, recovery.reason), (What::PacketEngine { node }, Reason::ForcedEngine))?;
        super::is_lost(scene, &hogs[0])?;
        hogs[1].begins(scene, 0)?;
        hogs[1].end(0)?;
        scene.until("the packet that waited", || hogs[1].has_ended(0))?;
        works(scene)?;
        ensure!(!said(scene).contains(&Said::Hung), "behind the reset: {:?}", said(scene));
        same("its device", hogs[1].is_active()?, true)?;
        same("recoveries", scene.adapter().recoveries().len(), 1)
    })
}

/// A packet that has counted comes off in its middle for a preemption, whose answer no interrupt brings before the
/// engine is reset: the reset finds nothing that runs, and the packet comes back as one that had not begun. It goes on
/// where it was: it counts once.
pub(super) fn taken_off(stage: &Stage) -> Played {
    let node = victim(stage);
    let setup = Setup::default().resets(1).setting("IdleMilliseconds", 0).windows(|w| w.tdr.delay = 5 * SECOND);
    let setup = setup.with_driver(deaf_until_engine).breaks(&["NT-INT-STORM", "DXG-ISR-DISMISS"]);
    stage.play(setup.setting("PreemptInBuffers", 1), |scene| {
        let (control, raws) = (controller(scene)?, [client(scene, "counts")?, client(scene, "waits")?]);
        let hogs = [Hog::new(scene, &raws[0], &[node])?, Hog::new(scene, &raws[1], &[node])?];
        hogs[0].count_and_spin(node, 0)?;
        hogs[0].begins(scene, 1)?;
        let before = counter(scene, node, "taken off")?;
        deafen(scene);
        hogs[1].spin(node, 0)?;
        scene.until("the preemption of the packet", || Ok(counter(scene, node, "taken off")? > before))?;
        unheard(scene)?;
        same("what was said", said(scene), vec![])?;
        same("the escape", force(&control, Some(node)), STATUS_SUCCESS)?;
        let recovery = recovered(scene, 1)?.remove(0);
        same("what", (recovery.what, recovery.reason), (What::PacketEngine { node }, Reason::ForcedEngine))?;
        hogs[1].end(0)?;
        hogs[0].end(1)?;
        scene.until("the packet behind it", || hogs[1].has_ended(0))?;
        scene.until("the packet that was taken off", || hogs[0].has_ended(1))?;
        same("how often it has counted", hogs[0].counted()?, 1)?;
        for hog in &hogs {
            same("its device", hog.is_active()?, true)?;
        }
        works(scene)
    })
}

/// A packet engine does not come off for a preemption, and says that it hangs long before TdrDelay is over: it is reset
/// for that, once, and no timeout is detected. What waited behind comes back and runs.
pub(super) fn says(stage: &Stage) -> Played {
    let node = victim(stage);
    let setup = Setup::default().resets(1).setting("IdleMilliseconds", 0).windows(|w| w.tdr.delay = 30 * SECOND);
    let gate = Gate::default();
    let setup = setup.with_driver(hears_driver).windows(|windows| windows.gates.reset = Some(gate.clone()));
    stage.play(setup.setting("PreemptInBuffers", 0).setting("ReportHangs", HANGS), |scene| {
        listen(scene);
        let raws = [client(scene, "hangs")?, client(scene, "waits")?];
        let hogs = [Hog::new(scene, &raws[0], &[node])?, Hog::new(scene, &raws[1], &[node])?];
        hogs[0].spin(node, 0)?;
        hogs[0].begins(scene, 0)?;
        hogs[1].spin(node, 0)?;
        let came = scene.until("the preparation", || Ok(gate.came() == 1));
        // The engine looks hundreds of times meanwhile, and has said it.
        std::thread::park_timeout(SOON);
        let hung = said(scene).iter().filter(|said| **said == Said::Hung).count();
        gate.open(true);
        came?;
        same("how often the driver said that the engine hangs", hung, 1)?;
        let recovery = recovered(scene, 1)?.remove(0);
        same("what", (recovery.what, recovery.reason), (What::PacketEngine { node }, Reason::Asked))?;
        same("its TdrReason", recovery.reason.tdr_reason(), 6)?;
        let detected = |step: &Step| matches!(step, Step::PreemptionTried(_) | Step::TimeoutDetected);
        ensure!(!recovery.has(detected), "{recovery}");
        super::is_lost(scene, &hogs[0])?;
        hogs[1].begins(scene, 0)?;
        hogs[1].end(0)?;
        scene.until("the packet that waited", || hogs[1].has_ended(0))?;
        works(scene)?;
        same("its device", hogs[1].is_active()?, true)?;
        same("recoveries", scene.adapter().recoveries().len(), 1)
    })
}

/// The driver hears nothing any more, until the adapter's reset.
fn deafen(scene: &Scene) {
    scene.world.os.run(|| set_deaf(true));
    listen(scene);
}

/// Resets the adapter, and has work done. What the driver has said since it was deafened.
fn reset(scene: &Scene, control: &Raw) -> anyhow::Result<Vec<Said>> {
    unheard(scene)?;
    same("what was said", said(scene), vec![])?;
    same("the escape", force(control, None), STATUS_SUCCESS)?;
    let recovery = recovered(scene, 1)?.remove(0);
    same("what", (recovery.what, recovery.reason), (What::Adapter, Reason::Forced))?;
    works(scene)?;
    same("recoveries", scene.adapter().recoveries().len(), 1)?;
    Ok(said(scene))
}

/// The preemption of the node that was asked for last, where its answer is not known.
fn unanswered(scene: &Scene, node: u32) -> Option<u32> {
    let journal = scene.adapter().packet_journal(node);
    journal.iter().rev().find_map(|event| match event {
        PacketEvent::Preempting { request } => Some(Some(*request)),
        PacketEvent::Preempted { .. } => Some(None),
        _ => None,
    })?
}

/// Two processes' packets on a node: one runs for ever, and is preempted for the other one.
fn two<'a>(scene: &Scene, raws: &'a [Raw; 2], node: u32) -> anyhow::Result<[Hog<'a>; 2]> {
    let hogs = [Hog::new(scene, &raws[0], &[node])?, Hog::new(scene, &raws[1], &[node])?];
    hogs[0].spin(node, 0)?;
    hogs[0].begins(scene, 0)?;
    deafen(scene);
    hogs[1].spin(node, 0)?;
    Ok(hogs)
}

fn answer(scene: &Scene, node: u32) -> Played {
    let (control, raws) = (controller(scene)?, [client(scene, "runs")?, client(scene, "waits")?]);
    let before = counter(scene, node, "taken off")?;
    let _hogs = two(scene, &raws, node)?;
    scene.until("a preemption", || Ok(unanswered(scene, node).is_some()))?;
    scene.until("the packet to come off", || Ok(counter(scene, node, "taken off")? > before))?;
    let asked = unanswered(scene, node).context("the preemption was answered")?;
    let said = reset(scene, &control)?;
    ensure!(!said.contains(&Said::Preempted(node, asked)), "behind the reset: {said:?}");
    Ok(())
}

fn fault(scene: &Scene, node: u32) -> Played {
    let (control, raw) = (controller(scene)?, client(scene, "faults")?);
    let hog = Hog::new(scene, &raw, &[node])?;
    let nowhere = Fill { address: 0x7FFF_0000_0000, length: 8, pattern: 0, reserved: 0 }.to_packet();
    hog.spin_before(node, 0, &[nowhere])?;
    hog.begins(scene, 0)?;
    let last = super::packets::last_submitted(&scene.adapter().packet_journal(node))?;
    let before = counter(scene, node, "faults")?;
    deafen(scene);
    hog.end(0)?;
    scene.until("the fault", || Ok(counter(scene, node, "faults")? > before))?;
    let said = reset(scene, &control)?;
    ensure!(!said.contains(&Said::Faulted(node, last)), "behind the reset: {said:?}");
    Ok(())
}

fn packet_hang(scene: &Scene, node: u32) -> Played {
    let (control, raws) = (controller(scene)?, [client(scene, "hangs")?, client(scene, "waits")?]);
    let _hogs = two(scene, &raws, node)?;
    scene.until("a preemption", || Ok(unanswered(scene, node).is_some()))?;
    std::thread::park_timeout(SAYS);
    let said = reset(scene, &control)?;
    ensure!(!said.contains(&Said::Hung), "behind the reset: {said:?}");
    Ok(())
}

fn queue_hang(scene: &Scene) -> Played {
    let (control, raw) = (controller(scene)?, client(scene, "hangs")?);
    let _spinner = Spinner::new(scene, &raw)?;
    deafen(scene);
    let begun = scene.world.os.begin_suspension(scene.adapter(), &raw.process);
    same("suspensions under way", begun.pending, 1)?;
    std::thread::park_timeout(SAYS);
    let said = reset(scene, &control)?;
    ensure!(!said.contains(&Said::Hung), "behind the reset: {said:?}");
    Ok(())
}
