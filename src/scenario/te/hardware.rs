//! Hardware-scheduled nodes, and what is asked of every kind of node.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use super::super::client::{Client, endless};
use super::super::db::{ABORT, RETRY, RingQueue, Room, raw, store};
use super::super::stage::PATIENCE;
use super::super::{Played, Raw, Scene, Setup, Stage, portable, same};
use super::hog::Loop;
use super::named::{Made, contexts, notes};
use super::{client, stubborn};
use crate::wrap::{machine, own, theirs};
use anyhow::{Context, ensure};
use dxgkrnl_model::adapter::{Reason, Recovery, Step, What};
use dxgkrnl_model::personality::{Gate, SECOND};
use gpu_wire::packet::Indirect;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use umd_core::ffi::types::FP_QUEUE_KERNEL_MODE;
use wddm_abi::ntstatus::{STATUS_SUCCESS, STATUS_UNSUCCESSFUL};
use wddm_abi::{
    D3DKMT_ESCAPE, D3DKMT_ESCAPETYPE, D3DKMT_TDRDBGCTRL_ESCAPE, D3DKMT_TDRDBGCTRLTYPE, DXGK_INTERRUPT_TYPE as Type,
    NTSTATUS,
};

/// State ACTIVE, as the user-mode driver's number.
pub(in super::super) const ACTIVE: u32 = 1;

/// Recoveries that are over.
fn over(scene: &Scene) -> Vec<Recovery> {
    scene.adapter().recoveries().into_iter().filter(|one| one.is_over).collect()
}

/// Waits until so many recoveries are over; they are returned.
pub(in super::super) fn recovered(scene: &Scene, count: usize) -> anyhow::Result<Vec<Recovery>> {
    scene.until("the recovery", || Ok(over(scene).len() >= count))?;
    Ok(over(scene))
}

/// Forces a reset as user mode can: of a node's engine, or of the adapter.
pub(crate) fn force(raw: &Raw, node: Option<u32>) -> NTSTATUS {
    let control = match node {
        Some(_) => D3DKMT_TDRDBGCTRLTYPE::D3DKMT_TDRDBGCTRLTYPE_ENGINETDR,
        None => D3DKMT_TDRDBGCTRLTYPE::D3DKMT_TDRDBGCTRLTYPE_FORCETDR,
    };
    escape(raw, control, node.unwrap_or(0))
}

/// Disables the conditions on resets, their number among them.
pub(crate) fn unconditional(raw: &Raw) -> NTSTATUS {
    escape(raw, D3DKMT_TDRDBGCTRLTYPE::D3DKMT_TDRDBGCTRLTYPE_UNCONDITIONAL, 0)
}

fn escape(raw: &Raw, control: D3DKMT_TDRDBGCTRLTYPE, node: u32) -> NTSTATUS {
    let mut data = D3DKMT_TDRDBGCTRL_ESCAPE::zeroed();
    data.TdrControl = control;
    data.set_NodeOrdinal(node);
    let mut record = D3DKMT_ESCAPE::zeroed();
    record.hAdapter = raw.adapter;
    record.Type = D3DKMT_ESCAPETYPE::D3DKMT_ESCAPE_TDRDBGCTRL;
    record.pPrivateDriverData = (&raw mut data).cast();
    // CAST: 8.
    record.PrivateDriverDataSize = size_of_val(&data) as u32;
    raw.call(raw.thunks.D3DKMTEscape, &mut record)
}

/// A process that may force resets.
pub(in super::super) fn controller(scene: &Scene) -> anyhow::Result<Raw> {
    let raw = client(scene, "controls")?;
    raw.process.trust();
    Ok(raw)
}

/// A kernel-mode queue hangs its engine; another process's work on that engine comes behind the reset.
pub(super) fn engine(stage: &Stage) -> Played {
    stage.play(stubborn().resets(1), |scene| {
        let (hangs, works) = (Client::open(scene, "hangs")?, Client::open(scene, "works")?);
        let kernel = |rig: &Client, node| rig.device.queue(node, 64 << 10, FP_QUEUE_KERNEL_MODE, 0);
        let (hog, same_node, other) = (kernel(&hangs, 0)?, kernel(&works, 0)?, kernel(&works, 1)?);
        let (run, page) = (Loop::new(&hangs)?, works.page()?);
        hog.run(|list| list.indirect(run.address, run.length))?;
        run.begins(scene)?;
        same_node.run(|list| list.store(page.at(0), 1))?;
        other.run(|list| list.store(page.at(1), 2))?;
        page.until(scene, "work of the other engine", 1, 2)?;
        scene.until("the loss of the device that hangs", || Ok(hangs.device.state()?.execution != ACTIVE))?;
        page.until(scene, "work behind the reset", 0, 1)?;
        same_node.wait(0, PATIENCE)?;
        same("the device beside it", works.device.state()?.execution, ACTIVE)?;
        let recovery = recovered(scene, 1)?.remove(0);
        same("what", (recovery.what, recovery.reason), (What::HwEngine { node: 0 }, Reason::Suspension))?;
        let steps = [
            Step::TimeoutDetected,
            Step::DebugInfo(0x141),
            Step::ResetHwEngine(STATUS_SUCCESS, 1),
            Step::InterruptsEnabled,
            Step::ResumeHwEngine(STATUS_SUCCESS),
            Step::DevicesLost(1),
        ];
        ensure!(recovery.steps == steps, "{recovery}");
        let order = ["DxgkDdiCollectDbgInfo2", "DxgkDdiResetHwEngine", "DxgkDdiResumeHwEngine"];
        same("calls", scene.journal(&order).as_slice(), order.as_slice())
    })
}

/// A user-mode queue hangs: its doorbell says so, everybody else's works, and what is made anew works.
pub(super) fn user_mode(stage: &Stage) -> Played {
    stage.play(stubborn().resets(1), |scene| {
        let hangs = raw(scene)?;
        let room = Room::new(&hangs)?;
        let (bad, beside) =
            (RingQueue::connected(scene, &room, 0, 65536)?, RingQueue::connected(scene, &room, 1, 65536)?);
        let works = Client::open(scene, "works")?;
        let (queue, page) = (works.queue(0)?, works.page()?);
        let memory = room.memory(scene, 4096)?;
        let jump = Indirect { address: memory.gpu, length: 24 }.to_packet();
        memory.write(&hangs, 0, jump.as_bytes())?;
        bad.submit(&[jump])?;
        scene.until("the loss of the device that hangs", || Ok(!room.is_active()?))?;
        // All that the device has is told, by the status that a doorbell's user reads.
        for (what, queue) in [("the queue that hung", &bad), ("its device's other queue", &beside)] {
            scene.until(what, || Ok(queue.status()? == ABORT))?;
            ensure!(queue.connect().is_err(), "{what} connected again");
        }
        queue.run(|list| list.store(page.at(0), 3))?;
        page.until(scene, "another process's work", 0, 3)?;
        same("its device", works.device.state()?.execution, ACTIVE)?;
        // A device that is made now works.
        let next = Room::new(&hangs)?;
        let memory = next.memory(scene, 4096)?;
        let again = RingQueue::connected(scene, &next, 0, 65536)?;
        again.submit_through(&[store(memory.gpu, 9)])?;
        scene.until("work of a new queue", || Ok(hangs.load(memory.cpu)? == 9))
    })
}

/// The driver says that its engine hangs: the OS does not wait for another TdrDelay, and the engine's doorbells go
/// first.
pub(super) fn told(stage: &Stage) -> Played {
    let setup = stubborn().setting("ReportHangs", 50).setting("IdleMilliseconds", 0).resets(1);
    stage.play(setup.windows(|windows| windows.tdr.delay = 3 * SECOND), |scene| {
        let hangs = raw(scene)?;
        let room = Room::new(&hangs)?;
        let bad = RingQueue::connected(scene, &room, 0, 65536)?;
        let works = raw(scene)?;
        let other = Room::new(&works)?;
        let good = RingQueue::connected(scene, &other, 0, 65536)?;
        let memory = room.memory(scene, 4096)?;
        let jump = Indirect { address: memory.gpu, length: 24 }.to_packet();
        memory.write(&hangs, 0, jump.as_bytes())?;
        bad.submit(&[jump])?;
        scene.until("the loss of the device that hangs", || Ok(!room.is_active()?))?;
        let recovery = recovered(scene, 1)?.remove(0);
        same("the reason", recovery.reason, Reason::Hung)?;
        let first = recovery.steps.first();
        ensure!(matches!(first, Some(Step::DoorbellsDisconnected(2..))), "{recovery}");
        same("the doorbell of the queue that hung", bad.status()?, ABORT)?;
        // The other queue of the engine connects again and goes on.
        same("the doorbell beside it", good.status()?, RETRY)?;
        let place = other.memory(scene, 4096)?;
        good.submit_through(&[store(place.gpu, 4)])?;
        scene.until("its work", || Ok(works.load(place.cpu)? == 4))
    })?;
    // Without doorbells the same is told by another interrupt.
    let setup = stubborn().setting("ReportHangs", 50).setting("MaxRung", 1).resets(1);
    stage.play(setup.windows(|windows| windows.tdr.delay = 3 * SECOND), |scene| {
        let rig = Client::open(scene, "hangs")?;
        let queue = rig.device.queue(0, 64 << 10, FP_QUEUE_KERNEL_MODE, 0)?;
        let (_memory, address, length) = endless(&rig.device)?;
        queue.run(|list| list.indirect(address, length))?;
        scene.until("the loss of the device that hangs", || Ok(rig.device.state()?.execution != ACTIVE))?;
        same("the reason", recovered(scene, 1)?.remove(0).reason, Reason::Asked)
    })
}

/// A bad opcode, a bad length and a bad address, each in a buffer of a process of its own, beside work of others.
pub(super) fn bad_packets(stage: &Stage) -> Played {
    portable::case(stage, "TE-19", |scene| same("recoveries", scene.adapter().recoveries().len(), 0))
}

/// A queue that waits for longer than TdrDelay.
pub(super) fn waiting(stage: &Stage) -> Played {
    stage.play(stubborn(), |scene| {
        portable::part(scene, "TE-20")?;
        same("recoveries", scene.adapter().recoveries().len(), 0)
    })
}

/// Resets that user mode forces, of each node while it is busy, and of the adapter; work goes on behind each.
pub(super) fn forced(stage: &Stage) -> Played {
    let packets = stage.rung() == 0;
    stage.play(Setup::default().windows(|w| w.tdr.test_mode = false), |scene| {
        let control = controller(scene)?;
        same("without TdrTestMode", force(&control, None), wddm_abi::ntstatus::STATUS_NOT_SUPPORTED)?;
        same("recoveries", scene.adapter().recoveries().len(), 0)
    })?;
    // On the lowest rung every node has packets: a hog is the one whose device is lost. What comes off by itself may be
    // off at the moment of the reset, which then takes nothing along.
    stage.play(Setup::default().resets(4).setting("PreemptInBuffers", 0), |scene| {
        let (control, stranger) = (controller(scene)?, client(scene, "may not")?);
        same("a process that may not", force(&stranger, None), wddm_abi::ntstatus::STATUS_ACCESS_DENIED)?;
        same("a node that is not there", force(&control, Some(9)), wddm_abi::ntstatus::STATUS_INVALID_PARAMETER)?;
        for node in [0, 1, 2] {
            let hog = Client::open(scene, "busy")?;
            let kernel = if packets || node == 2 { FP_QUEUE_KERNEL_MODE } else { 0 };
            let run = Loop::new(&hog)?;
            let raw = client(scene, "on the paging node")?;
            let paging = super::Hog::new(scene, &raw, &[2])?;
            let queue = hog.device.queue(node % 2, 64 << 10, kernel, 0)?;
            if node == 2 {
                paging.spin(2, 0)?;
                paging.begins(scene, 0)?;
            } else {
                queue.run(|list| list.indirect(run.address, run.length))?;
                run.begins(scene)?;
            }
            same("the escape", force(&control, Some(node)), STATUS_SUCCESS).with_context(|| format!("node {node}"))?;
            let last = recovered(scene, node as usize + 1)?.pop().context("a recovery")?;
            same("the reason", last.reason, Reason::ForcedEngine)?;
            let reset = |step: &Step| {
                matches!(step, Step::ResetEngine(STATUS_SUCCESS, _) | Step::ResetHwEngine(STATUS_SUCCESS, 1))
            };
            ensure!(last.has(reset), "{last}");
            // A preemption in the ordinary course is not what the reset is for.
            let timeout = |step: &Step| matches!(step, Step::PreemptionTried(_) | Step::TimeoutDetected);
            ensure!(!last.has(timeout), "{last}");
            works(scene).with_context(|| format!("behind the reset of node {node}"))?;
        }
        same("the escape for the adapter", force(&control, None), STATUS_SUCCESS)?;
        let last = recovered(scene, 4)?.pop().context("a recovery")?;
        same("what", (last.what, last.reason, last.reason.tdr_reason()), (What::Adapter, Reason::Forced, 1))?;
        works(scene).context("behind the adapter's reset")
    })?;
    if packets { Ok(()) } else { idle_behind(stage).context("an idle engine behind the adapter's reset") }
}

/// The adapter's reset takes a queue off its engine in the middle of its work. The reset of that engine behind it,
/// which has nothing to do, takes nothing: what the adapter's took is not named again.
fn idle_behind(stage: &Stage) -> Played {
    stage.play(Setup::default().resets(2).setting("PreemptInBuffers", 0), |scene| {
        let (control, raw) = (controller(scene)?, client(scene, "busy")?);
        let _spinner = super::held::Spinner::new(scene, &raw)?;
        same("the escape for the adapter", force(&control, None), STATUS_SUCCESS)?;
        recovered(scene, 1)?;
        let named = scene.callbacks("DxgkCbInvalidateHwContext");
        same("the escape", force(&control, Some(0)), STATUS_SUCCESS)?;
        let last = recovered(scene, 2)?.pop().context("a recovery")?;
        ensure!(last.has(|step| *step == Step::ResetHwEngine(STATUS_SUCCESS, 0)), "{last}");
        same("contexts that were named", scene.callbacks("DxgkCbInvalidateHwContext"), named)?;
        works(scene)
    })
}

/// A new process works on both ordinary nodes.
pub(in super::super) fn works(scene: &Scene) -> Played {
    let rig = Client::open(scene, "after")?;
    let page = rig.page()?;
    for node in 0..2 {
        let queue = rig.queue(node)?;
        queue.run(|list| list.store(page.at(node.into()), 6))?;
        page.until(scene, "work behind a reset", node.into(), 6)?;
    }
    Ok(())
}

/// Submits to node 0 until the device of `rig` is lost.
pub(super) fn feed_until_lost(scene: &Scene, rig: &Client) -> Played {
    let queue = rig.queue(0)?;
    scene.until("the engine's last answer", || {
        let lost = rig.device.state()?.execution != ACTIVE;
        // Refused once the device is lost.
        let _ = queue.run(|list| (0..200).try_for_each(|_| list.nop(8)));
        Ok(lost)
    })
}

/// An engine stops answering: its reset fails, the adapter's gives its node another engine.
pub(super) fn wedged(stage: &Stage) -> Played {
    // Far behind what starts and first clients need.
    const AT: u32 = 4000;
    let setup = Setup::default().quick_tdr().setting("FaultWedgeAt", AT).resets(2);
    stage.play(setup, |scene| {
        let rig = Client::open(scene, "hangs")?;
        feed_until_lost(scene, &rig)?;
        let all = recovered(scene, 2)?;
        let failed = |step: &Step| match step {
            Step::ResetEngine(status, _) | Step::ResetHwEngine(status, _) => !status.is_success(),
            _ => false,
        };
        ensure!(all[0].has(failed), "{}", all[0]);
        same("then", (all[1].what, all[1].reason), (What::Adapter, Reason::Promoted))?;
        same("TdrReason", all[1].reason.tdr_reason(), 9)?;
        works(scene)
    })
}

crate::decorate! {
    /// The engine cannot be resumed.
    not_resumed: DxgkDdiResumeHwEngine(_adapter: wddm_abi::HANDLE, _args: *mut wddm_abi::DXGKARG_RESUMEHWENGINE) -> NTSTATUS {
        STATUS_UNSUCCESSFUL
    }

    /// The first reset of an engine fails.
    not_reset_at_first: DxgkDdiResetHwEngine(
        adapter: wddm_abi::HANDLE,
        args: *mut wddm_abi::DXGKARG_RESETHWENGINE,
    ) -> NTSTATUS {
        let is_first = FAILED.lock().unwrap_or_else(PoisonError::into_inner).insert(machine());
        if is_first { STATUS_UNSUCCESSFUL } else { own!(DxgkDdiResetHwEngine(adapter, args)) }
    }
}

/// Machines on which the reset of an engine has failed.
static FAILED: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

crate::reaches! {
    hears_interrupts: DxgkCbNotifyInterrupt = as_it_is;
}

wddm_abi::win_extern! {
    fn as_it_is(adapter: wddm_abi::HANDLE, data: *mut wddm_abi::DXGKARGCB_NOTIFY_INTERRUPT_DATA) {
        theirs!(DxgkCbNotifyInterrupt(adapter, data));
    }
}

/// What a driver may say of a hardware-scheduled engine.
const KINDS: [Type; 7] = [
    Type::DXGK_INTERRUPT_MONITORED_FENCE_SIGNALED,
    Type::DXGK_INTERRUPT_NATIVE_FENCE_SIGNALED,
    Type::DXGK_INTERRUPT_HWQUEUE_PAGE_FAULTED,
    Type::DXGK_INTERRUPT_SUSPEND_CONTEXT_COMPLETED,
    Type::DXGK_INTERRUPT_GPU_ENGINE_TIMEOUT,
    Type::DXGK_INTERRUPT_GPU_ENGINE_STATE_CHANGE,
    Type::DXGK_INTERRUPT_SCHEDULING_LOG_INTERRUPT,
];

/// At the device's level: an interrupt of node 0, for the suspension of `late` where it is one for that.
fn interrupts(kind: Type, late: Made) {
    let mut data = wddm_abi::DXGKARGCB_NOTIFY_INTERRUPT_DATA::zeroed();
    data.InterruptType = kind;
    match kind {
        Type::DXGK_INTERRUPT_SUSPEND_CONTEXT_COMPLETED => {
            let part = data.SuspendContextCompleted_mut();
            part.hContext = core::ptr::with_exposed_provenance_mut(late.os);
            part.ContextSuspendFence = late.suspension;
        }
        Type::DXGK_INTERRUPT_GPU_ENGINE_STATE_CHANGE => {
            data.EngineStateChange_mut().NewState = wddm_abi::DXGK_ENGINE_STATE::DXGK_ENGINE_STATE_HUNG;
        }
        _ => {}
    }
    let device = crate::wrap::interface().DeviceHandle;
    theirs!(DxgkCbNotifyInterrupt(device, &raw mut data));
    theirs!(DxgkCbQueueDpc(device));
}

fn hang_a_queue(scene: &Scene) -> Played {
    let rig = Client::open(scene, "hangs")?;
    let queue = rig.device.queue(0, 64 << 10, FP_QUEUE_KERNEL_MODE, 0)?;
    let (_memory, address, length) = endless(&rig.device)?;
    queue.run(|list| list.indirect(address, length))?;
    scene.until("the loss of the device that hangs", || Ok(rig.device.state()?.execution != ACTIVE))
}

/// The driver interrupts for the engine while that is quiet, for whatever it may: what it would do is done here, at the
/// device's level. Nothing comes of it, neither another reset nor the end of a suspension.
pub(super) fn early_interrupt(stage: &Stage) -> Played {
    KINDS.into_iter().try_for_each(|kind| early(stage, kind).with_context(|| format!("{kind:?}")))
}

fn hears_and_notes(table: &mut wddm_abi::DRIVER_INITIALIZATION_DATA) {
    hears_interrupts(table);
    notes(table);
}

fn early(stage: &Stage, kind: Type) -> Played {
    let gate = Gate::default();
    let setup = stubborn().resets(1).with_driver(hears_and_notes).breaks(&["DXG-INT-AFTER-RESET"]);
    stage.play(setup.windows(|windows| windows.gates.quiet = Some(gate.clone())), |scene| {
        std::thread::scope(|scope| -> Played {
            let hang = scope.spawn(|| hang_a_queue(scene));
            let came = scene.until("the reset", || Ok(gate.came() == 1));
            let late = contexts(scene, 0).into_iter().rev().find(|one| one.suspension != 0);
            let interrupted = late.and_then(|late| {
                let f = || interrupts(kind, late);
                scene.world.os.hold_interrupts(scene.adapter(), f)
            });
            gate.let_through();
            hang.join().map_err(|_| anyhow::anyhow!("a panic"))??;
            interrupted.context("no context is suspended, or no interrupt connected")?;
            came
        })?;
        let recovery = recovered(scene, 1)?.remove(0);
        ensure!(recovery.has(|step| *step == Step::ResetHwEngine(STATUS_SUCCESS, 1)), "{recovery}");
        let found = super::violation(scene, "DXG-INT-AFTER-RESET")?;
        same("bug check", (found.code, found.params[0]), (0x119, 0x10))
    })
}

/// The first reset of a hardware-scheduled engine fails, and takes the adapter. Behind that the node is looked after as
/// before: the next one is found, and its reset succeeds.
pub(super) fn no_reset(stage: &Stage) -> Played {
    stage.play(stubborn().resets(3).with_driver(not_reset_at_first), |scene| {
        scene.world.os.run(|| FAILED.lock().unwrap_or_else(PoisonError::into_inner).remove(&machine()));
        hang_a_queue(scene)?;
        let all = recovered(scene, 2)?;
        ensure!(all[0].has(|step| *step == Step::ResetHwEngine(STATUS_UNSUCCESSFUL, 0)), "{}", all[0]);
        same("then", (all[1].what, all[1].reason), (What::Adapter, Reason::Promoted))?;
        works(scene)?;
        hang_a_queue(scene)?;
        let next = recovered(scene, 3)?.remove(2);
        same("the next", (next.what, next.reason), (What::HwEngine { node: 0 }, Reason::Suspension))?;
        ensure!(next.has(|step| *step == Step::ResetHwEngine(STATUS_SUCCESS, 1)), "{next}");
        works(scene)
    })
}

pub(super) fn no_resume(stage: &Stage) -> Played {
    stage.play(stubborn().resets(2).with_driver(not_resumed), |scene| {
        hang_a_queue(scene)?;
        let all = recovered(scene, 2)?;
        ensure!(all[0].has(|step| *step == Step::ResumeHwEngine(STATUS_UNSUCCESSFUL)), "{}", all[0]);
        same("then", (all[1].what, all[1].reason), (What::Adapter, Reason::Promoted))?;
        works(scene)
    })
}
