//! Engines that a reset of another one takes along, as hardware may have them: the driver that is played has none.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use super::super::{Played, Stage, same};
use super::{Hog, client, is_lost, packet_resets, stubborn};
use crate::wrap::{own, record};
use anyhow::{Context, ensure};
use dxgkrnl_model::adapter::{PacketEvent, Reason, Step, What};
use dxgkrnl_model::personality::{Gate, SECOND};
use wddm_abi::{DXGKARG_QUERYDEPENDENTENGINEGROUP, HANDLE, NTSTATUS};

/// The nodes of an engine.
const ALL: u64 = 0b111;
/// The node that hangs; one that depends and is stuck as well; one that depends and answers.
const HANGS: u32 = 1;
const STUCK: u32 = 0;
const ANSWERS: u32 = 2;

crate::decorate! {
    /// Every engine depends on every other.
    all_depend: DxgkDdiQueryDependentEngineGroup(
        adapter: HANDLE,
        args: *mut DXGKARG_QUERYDEPENDENTENGINEGROUP,
    ) -> NTSTATUS {
        let status = own!(DxgkDdiQueryDependentEngineGroup(adapter, args));
        record!(args).DependentNodeOrdinalMask = ALL;
        status
    }
}

/// Where the packet lies that is submitted while the reset is prepared.
const LATER: u64 = 1;

/// A node hangs on which all others depend: they are preempted, the one that does not answer is reset behind it, and
/// the other goes on, and gets nothing in between.
pub(super) fn group(stage: &Stage) -> Played {
    if stage.rung() != 0 {
        return hardware_scheduled(stage);
    }
    all_stuck(stage).context("none of the others answers")?;
    let gate = Gate::default();
    let setup = stubborn().resets(2).with_driver(all_depend).windows(|windows| {
        windows.tdr.dependents_delay = SECOND;
        windows.gates.reset = Some(gate.clone());
    });
    stage.play(setup, |scene| {
        let raws = [client(scene, "hangs")?, client(scene, "is stuck")?, client(scene, "answers")?];
        let (hangs, stuck) = (Hog::new(scene, &raws[0], &[HANGS])?, Hog::new(scene, &raws[1], &[STUCK])?);
        let answers = Hog::new(scene, &raws[2], &[ANSWERS])?;
        let asked = |node| {
            let is_request = |event: &PacketEvent| matches!(event, PacketEvent::Preempting { .. });
            Ok(scene.adapter().packet_journal(node).iter().any(is_request))
        };
        hangs.spin(HANGS, 0)?;
        // The others begin later, so that it is this node's timeout that is detected first.
        scene.until("the preemption of the node that hangs", || asked(HANGS))?;
        stuck.spin(STUCK, 0)?;
        let before = scene.adapter().packet_journal(ANSWERS).len();
        answers.spin(ANSWERS, 0)?;
        scene.until("the preemption of a node that depends", || {
            let journal = scene.adapter().packet_journal(ANSWERS);
            Ok(journal[before..].iter().any(|event| matches!(event, PacketEvent::Preempting { .. })))
        })?;
        // It waits in the OS: a node that is being preempted gets nothing.
        answers.short(ANSWERS, LATER)?;
        answers.end(0)?;
        // Before the model comes to the gate it hands over work beside the reset.
        scene.until("the reset of the node that hangs", || Ok(gate.came() == 1))?;
        let journal = scene.adapter().packet_journal(ANSWERS);
        let answer = journal.iter().rposition(|event| matches!(event, PacketEvent::Preempted { .. }));
        let behind = &journal[answer.context("the answer of the node that depends")?..];
        let is_handed = |event: &PacketEvent| matches!(event, PacketEvent::Submitted { paging: false, .. });
        ensure!(!behind.iter().any(is_handed), "a packet in the middle of the reset: {behind:?}");
        gate.open(true);
        is_lost(scene, &hangs)?;
        is_lost(scene, &stuck)?;
        scene.until("the packet of the node that answers", || answers.has_ended(0))?;
        scene.until("the packet behind it", || answers.has_ended(LATER))?;
        scene.until("the recoveries", || Ok(packet_resets(scene).iter().filter(|one| one.is_over).count() == 2))?;
        let all = packet_resets(scene);
        let (first, second) = (all.first().context("a recovery")?, all.get(1).context("another")?);
        same("first", (first.what, first.reason), (What::PacketEngine { node: HANGS }, Reason::Preemption))?;
        same("then", (second.what, second.reason), (What::PacketEngine { node: STUCK }, Reason::Dependent))?;
        same("its TdrReason", second.reason.tdr_reason(), 6)?;
        let answered = |step: &Step| *step == Step::DependentIdle(ANSWERS);
        ensure!(first.has(|step| *step == Step::Dependents(ALL)) && first.has(answered), "{first}");
        ensure!(!first.has(|step| *step == Step::DependentIdle(STUCK)), "{first}");
        // The question comes with every reset.
        let order = ["DxgkDdiQueryDependentEngineGroup", "DxgkDdiResetEngine"];
        same("calls", scene.journal(&order).as_slice(), [order, order].concat().as_slice())?;
        ensure!(answers.is_active()?, "the device on the node that answers is lost");
        // Each node takes packets.
        let raw = client(scene, "behind")?;
        let behind = Hog::new(scene, &raw, &[HANGS, STUCK, ANSWERS])?;
        for (slot, node) in (0..).zip([HANGS, STUCK, ANSWERS]) {
            behind.short(node, slot)?;
            scene.until("a packet behind the resets", || behind.has_ended(slot))?;
        }
        Ok(())
    })
}

/// None of the others answers: each is reset behind the one that hangs.
fn all_stuck(stage: &Stage) -> Played {
    let setup = stubborn().resets(3).with_driver(all_depend);
    stage.play(setup, |scene| {
        let raws = [client(scene, "hangs")?, client(scene, "is stuck")?, client(scene, "is stuck, too")?];
        let nodes = [HANGS, STUCK, ANSWERS];
        let make = |(raw, node): (_, u32)| Hog::new(scene, raw, &[node]);
        let hogs = raws.iter().zip(nodes).map(make).collect::<anyhow::Result<Vec<_>>>()?;
        for (hog, node) in hogs.iter().zip(nodes) {
            hog.spin(node, 0)?;
        }
        for hog in &hogs {
            is_lost(scene, hog)?;
        }
        scene.until("the recoveries", || Ok(packet_resets(scene).iter().filter(|one| one.is_over).count() == 3))?;
        // Whichever was found first: the timeouts are equally long.
        let reasons: Vec<_> = packet_resets(scene).iter().map(|one| one.reason).collect();
        same("why", reasons.as_slice(), &[Reason::Preemption, Reason::Dependent, Reason::Dependent])
    })
}

/// Where the others are scheduled by the hardware their contexts are suspended for the time of the reset, and go on.
fn hardware_scheduled(stage: &Stage) -> Played {
    stage.play(stubborn().resets(1).with_driver(all_depend), |scene| {
        let raw = client(scene, "hangs")?;
        let hog = Hog::new(scene, &raw, &[ANSWERS])?;
        let works = super::super::client::Client::open(scene, "works")?;
        let (queue, page) = (works.queue(0)?, works.page()?);
        hog.spin(ANSWERS, 0)?;
        is_lost(scene, &hog)?;
        let recovery = super::only_reset(scene)?;
        ensure!(recovery.has(|step| *step == Step::Dependents(ALL)), "{recovery}");
        for other in [STUCK, HANGS] {
            ensure!(recovery.has(|step| *step == Step::DependentIdle(other)), "node {other}: {recovery}");
        }
        // They are resumed for the reset's end: nothing is queued for which the scheduler would look at them.
        let resumes = || scene.calls("DxgkDdiResumeContext") == scene.calls("DxgkDdiSuspendContext");
        scene.until("the resumption of what was suspended for the reset", || Ok(resumes()))?;
        queue.run(|list| list.store(page.at(0), 3))?;
        page.until(scene, "work of a node that depends", 0, 3)
    })
}
