//! Packet nodes: the calling sequence, what is aborted, what comes back.

use super::super::client::Client;
use super::super::{Played, Scene, Setup, Stage, same};
use super::in_time::{Watch, in_time};
use super::{Hog, aborted, client, is_lost, only_reset, packet_nodes, packet_resets, stubborn, victim};
use anyhow::{Context, ensure};
use dxgkrnl_model::adapter::{PacketEvent, Reason, Step, What};
use dxgkrnl_model::personality::{Affinity, SECOND};
use std::mem::discriminant;
use umd_core::ffi::types::FP_QUEUE_KERNEL_MODE;
use wddm_abi::D3DKMT_DEVICEEXECUTION_STATE;
use wddm_abi::ntstatus::STATUS_SUCCESS;

/// Each node hangs in turn.
pub(super) fn masks(stage: &Stage) -> Played {
    let nodes = packet_nodes(stage);
    stage.play(stubborn().resets(nodes.len() as u64), |scene| {
        for (round, node) in nodes.iter().enumerate() {
            let raw = client(scene, "hangs")?;
            let hog = Hog::new(scene, &raw, &[*node])?;
            hog.spin(*node, 0)?;
            is_lost(scene, &hog).with_context(|| format!("node {node}"))?;
            let all = packet_resets(scene);
            let last = all.get(round).context("a reset")?;
            same("what was reset", last.what, What::PacketEngine { node: *node })?;
            let asked = last.has(|step| *step == Step::Dependents(1 << node));
            ensure!(asked, "node {node} was not asked about, or its answer is not its own bit alone: {last}");
        }
        same("questions", scene.calls("DxgkDdiQueryDependentEngineGroup"), nodes.len() as u64)
    })
}

/// A packet that never ends, and work of another process on each node meanwhile.
pub(super) fn spin(stage: &Stage) -> Played {
    let node = victim(stage);
    let play = |scene: &Scene, watch: &Watch| {
        let (raw, works) = (client(scene, "hangs")?, Client::open(scene, "works")?);
        let hog = Hog::new(scene, &raw, &[node])?;
        let page = works.page()?;
        // On other nodes work goes on while the node hangs; on the node's own it comes behind the reset.
        let queues: Vec<_> =
            (0..2).map(|node| works.device.queue(node, 64 << 10, FP_QUEUE_KERNEL_MODE, 0)).collect::<Result<_, _>>()?;
        watch.begin();
        hog.spin(node, 0)?;
        hog.begins(scene, 0)?;
        for (other, queue) in (0..).zip(&queues).filter(|(other, _)| *other != node) {
            for value in 1..=20 {
                queue.run(|list| list.store(page.at(other.into()), value))?;
                page.until(scene, "work beside a node that hangs", other.into(), value)?;
            }
        }
        watch.end();
        ensure!(packet_resets(scene).is_empty(), "the reset was there before the others' work");
        for (other, queue) in (0_u32..).zip(&queues) {
            queue.run(|list| list.store(page.at(other.into()), 77))?;
        }
        is_lost(scene, &hog)?;
        let hung = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_HUNG;
        same("the device that hung", hog.state()?, hung)?;
        for other in 0..2 {
            page.until(scene, "work behind the reset", other, 77)?;
        }
        same("the device beside it", works.device.state()?.execution, 1)?;
        same("adapter resets", scene.calls("DxgkDdiResetFromTimeout"), 0)?;
        let recovery = only_reset(scene)?;
        same("the reason", recovery.reason, Reason::Preemption)?;
        same("TdrReason", recovery.reason.tdr_reason(), 6)?;
        let aborted = aborted(&recovery)?;
        let want = [
            Step::PreemptionTried(0),
            Step::TimeoutDetected,
            Step::Snapshot { completed: 0, submitted: 0, packets: 0 },
            Step::DpcsFlushed,
            Step::Dependents(1 << node),
            Step::EngineStatus(false),
            Step::DebugInfo(0x141),
            Step::ResetEngine(STATUS_SUCCESS, aborted),
            Step::InterruptsEnabled,
            Step::DevicesLost(1),
            Step::GivenBack { paging: 0, render: 0 },
        ];
        let kinds = |steps: &[Step]| steps.iter().map(discriminant).collect::<Vec<_>>();
        ensure!(kinds(&recovery.steps) == kinds(&want), "{recovery}");
        for step in [&want[4], &want[5], &want[6], &want[7], &want[9]] {
            ensure!(recovery.steps.contains(step), "no {step:?}: {recovery}");
        }
        // The driver was called in that order, and the preemption before all of it.
        let order = [
            "DxgkDdiPreemptCommand",
            "DxgkDdiQueryDependentEngineGroup",
            "DxgkDdiQueryEngineStatus",
            "DxgkDdiCollectDbgInfo2",
            "DxgkDdiResetEngine",
        ];
        let mut called = scene.journal(&order);
        called.dedup();
        let behind = called.len().saturating_sub(order.len());
        ensure!(called[behind..] == order, "{called:?}");
        Ok(())
    };
    in_time(stage, || stubborn().resets(1), play)
}

/// Three packets of three processes: the second hangs.
pub(super) fn second_of_three(stage: &Stage) -> Played {
    let node = victim(stage);
    // Nothing is preempted before the timeout: the three are with the driver at once.
    let setup = || stubborn().windows(|windows| windows.preemption.slice = (20 * SECOND, 20 * SECOND)).resets(1);
    in_time(stage, setup, |scene, watch| {
        let raws = [client(scene, "first")?, client(scene, "hangs")?, client(scene, "third")?];
        let hogs: Vec<_> = raws.iter().map(|raw| Hog::new(scene, raw, &[node])).collect::<Result<_, _>>()?;
        watch.begin();
        hogs[0].spin(node, 0)?;
        hogs[0].begins(scene, 0)?;
        let first = last_submitted(&scene.adapter().packet_journal(node))?;
        let given = || scene.adapter().packet_journal(node).iter().filter_map(submitted).count();
        let before = given();
        hogs[1].spin(node, 0)?;
        hogs[2].short(node, 0)?;
        scene.until("three packets with the driver", || Ok(given() == before + 2))?;
        hogs[0].end(0)?;
        watch.end();
        is_lost(scene, &hogs[1])?;
        let recovery = only_reset(scene)?;
        let aborted = aborted(&recovery)?;
        ensure!(recovery.has(|step| *step == Step::GivenBack { paging: 0, render: 1 }), "{recovery}");
        scene.until("the third packet", || hogs[2].has_ended(0))?;
        let journal = scene.adapter().packet_journal(node);
        let ids: Vec<_> = journal.iter().filter_map(submitted).collect();
        let at = ids.iter().position(|(id, ..)| *id == aborted).context("the aborted packet")?;
        ensure!(aborted != first, "the first packet is the aborted one");
        // Behind the aborted packet: the third, under the id that it had, and under a new one, which is no
        // preemption's.
        let (third, again) = (ids.get(at + 1).context("the third")?, ids.last().context("a packet")?);
        ensure!(again.0 != third.0 && !again.1 && !again.2, "{ids:x?}, aborted {aborted:#x}");
        let used = ids.iter().filter(|(id, ..)| *id == again.0).count();
        same("packets under the new id", used, 1)?;
        ensure!(hogs[0].is_active()? && hogs[2].is_active()?, "an innocent device is lost");
        ensure!(hogs[0].has_ended(0)?, "the first packet's result is gone");
        Ok(())
    })
}

/// Id, whether it is a paging packet, and whether it comes back behind a preemption.
pub(super) fn submitted(event: &PacketEvent) -> Option<(u32, bool, bool)> {
    match *event {
        PacketEvent::Submitted { id, paging, again } => Some((id, paging, again)),
        _ => None,
    }
}

pub(super) fn last_submitted(journal: &[PacketEvent]) -> anyhow::Result<u32> {
    journal.iter().rev().find_map(submitted).map(|(id, ..)| id).context("a packet was submitted")
}

/// The engine's bit, of contexts that user mode makes with either number, and of the system's.
pub(super) fn affinity(stage: &Stage) -> Played {
    let play = |affinity: Affinity, want: &[u32]| {
        stage.play(Setup::default().windows(|windows| windows.affinity = affinity), |scene| {
            let rig = Client::open(scene, "client")?;
            rig.queue(0)?.run(|list| list.nop(16))?;
            let room = super::super::db::Room::new(&rig.raw)?;
            for affinity in [0, 1] {
                let mut record = wddm_abi::D3DKMT_CREATECONTEXTVIRTUAL::zeroed();
                (record.hDevice, record.NodeOrdinal, record.EngineAffinity) = (room.device, 2, affinity);
                rig.raw.ok(rig.raw.thunks.D3DKMTCreateContextVirtual, &mut record)?;
            }
            let seen: Vec<_> = scene.adapter().affinities().into_iter().collect();
            same("EngineAffinity of contexts", seen.as_slice(), want)
        })
    };
    play(Affinity::Bit, &[1])?;
    play(Affinity::Passed, &[0, 1])
}
