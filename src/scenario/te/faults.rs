//! Page faults that ask for a reset. The driver that is played asks for none: its flags are changed on their way.
#![expect(unsafe_code, reason = "records that the driver passes are changed")]

use super::super::db::{KernelQueue, Room, store};
use super::super::{Played, Raw, Scene, Setup, Stage, portable, same};
use super::hardware::{recovered, works};
use super::packets::submitted;
use super::{Hog, client, victim};
use crate::wrap::{machine, record, theirs};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::adapter::{Reason, Step, What};
use dxgkrnl_model::personality::Gate;
use gpu_wire::packet::{Copy, Encoded, Fill, TlbFlush};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use wddm_abi::DXGK_GENERAL_ERROR_CODE as Code;
use wddm_abi::DXGK_INTERRUPT_TYPE as Type;
use wddm_abi::DXGK_PAGE_FAULT_FLAGS as Flags;
use wddm_abi::{D3DKMT_DEVICEEXECUTION_STATE, DXGK_TDR_TYPE, DXGKARGCB_NOTIFY_INTERRUPT_DATA, HANDLE, win_extern};

/// An address at which nothing is.
pub(in super::super) const NOWHERE: u64 = 0x7FFF_0000_0000;

/// The flags that page faults get, by machine.
static ADDED: Mutex<BTreeMap<usize, i32>> = Mutex::new(BTreeMap::new());

crate::reaches! {
    asks: DxgkCbNotifyInterrupt = with_flags;
}

win_extern! {
    fn with_flags(adapter: HANDLE, data: *mut DXGKARGCB_NOTIFY_INTERRUPT_DATA) {
        let added = ADDED.lock().unwrap_or_else(PoisonError::into_inner).get(&machine()).copied().unwrap_or(0);
        // The packet or queue could not be determined.
        let unknown = added & Flags::DXGK_PAGE_FAULT_FENCE_INVALID.0 != 0;
        let told = record!(data);
        match told.InterruptType {
            Type::DXGK_INTERRUPT_DMA_PAGE_FAULTED => {
                let part = told.DmaPageFaulted_mut();
                part.PageFaultFlags.0 |= added;
                if unknown {
                    part.FaultedFenceId = 0;
                }
            }
            Type::DXGK_INTERRUPT_HWQUEUE_PAGE_FAULTED => {
                let part = told.HwQueuePageFaulted_mut();
                part.PageFaultFlags.0 |= added;
                if unknown {
                    part.FaultedFenceId = 0;
                }
            }
            _ => {}
        }
        theirs!(DxgkCbNotifyInterrupt(adapter, data));
    }
}

/// What a fault asks for, and what comes of it.
struct Wanted {
    what: &'static str,
    flags: i32,
    /// The reset is the adapter's.
    adapter: bool,
    reason: Reason,
    /// What the driver is told, and TdrReason.
    kind: DXGK_TDR_TYPE,
    /// Whether the OS knows which packet it was.
    known: bool,
}

fn wanted() -> [Wanted; 4] {
    let (engine, adapter) =
        (Flags::DXGK_PAGE_FAULT_ENGINE_RESET_REQUIRED.0, Flags::DXGK_PAGE_FAULT_ADAPTER_RESET_REQUIRED.0);
    let of_engine = |what, flags, known| Wanted {
        what,
        flags,
        adapter: false,
        reason: if known { Reason::Fault } else { Reason::UnknownFault },
        kind: DXGK_TDR_TYPE::DXGK_TDR_TYPE_ENGINE_PAGE_FAULT,
        known,
    };
    let of_adapter = |what, flags| Wanted {
        what,
        flags,
        adapter: true,
        reason: Reason::AdapterFault,
        kind: DXGK_TDR_TYPE::DXGK_TDR_TYPE_PAGE_FAULT,
        known: true,
    };
    [
        of_engine("an engine's reset", engine, true),
        of_engine(
            "an engine's reset, whose packet is not known",
            engine | Flags::DXGK_PAGE_FAULT_FENCE_INVALID.0,
            false,
        ),
        of_adapter("the adapter's reset", adapter),
        of_adapter("both, of which the adapter's is the larger", engine | adapter),
    ]
}

/// Lets the faults of a machine ask for a reset.
pub(in super::super) fn ask(scene: &Scene, flags: i32) {
    let number = scene.world.os.run(machine);
    ADDED.lock().unwrap_or_else(PoisonError::into_inner).insert(number, flags);
}

/// Page faults of packets, and of queues, that ask for a reset of the engine or of the adapter.
pub(super) fn resets(stage: &Stage) -> Played {
    let node = victim(stage);
    for wanted in wanted() {
        stage
            .play(Setup::default().resets(1).with_driver(asks), |scene| packet(scene, node, &wanted))
            .context(wanted.what)?;
    }
    begun(stage, 0, |scene, gate| packet_begun(scene, node, gate)).context("a packet that began behind the fault")?;
    if stage.rung() == 0 {
        return Ok(());
    }
    begun(stage, 1, queue_begun).context("a queue that runs behind the fault")?;
    for wanted in wanted() {
        let play = |scene: &Scene| queue(scene, &wanted);
        let setup = Setup::default().resets(1).with_driver(asks);
        stage.play(setup, play).with_context(|| format!("a queue, {}", wanted.what))?;
    }
    Ok(())
}

/// What user mode is told of a packet that faults: the address, whether it was written to, and what was wrong.
pub(super) fn told(stage: &Stage) -> Played {
    portable::case(stage, "TE-95", |_| Ok(()))?;
    let node = victim(stage);
    stage.play(Setup::default(), |scene| {
        let fault = |packet: &dyn Fn(u64) -> Encoded| {
            let raw = client(scene, "faults")?;
            let hog = Hog::new(scene, &raw, &[node])?;
            let fault = hog.faults_at(scene, node, packet(hog.code(0)))?;
            let code = fault.FaultErrorCode;
            ensure!(!code.IsDeviceSpecificCode(), "a code of the driver's own");
            Ok((fault.FaultedVirtualAddress, fault.PageFaultFlags, code.GeneralErrorCode()))
        };
        let (page, bad) = (Code::DXGK_GENERAL_ERROR_PAGE_FAULT, Code::DXGK_GENERAL_ERROR_INVALID_INSTRUCTION);
        let store = fault(&|_| store(NOWHERE, 1))?;
        same("a store", store, (NOWHERE, Flags::DXGK_PAGE_FAULT_WRITE, page))?;
        let load = fault(&|there| Copy { source: NOWHERE, destination: there, length: 8 }.to_packet())?;
        same("a load", load, (NOWHERE, Flags(0), page))?;
        let flush = fault(&|_| TlbFlush { process: 0, start: NOWHERE, end: NOWHERE }.to_packet())?;
        same("what user mode may not do", flush, (0, Flags(0), bad))
    })
}

fn packet(scene: &Scene, node: u32, wanted: &Wanted) -> Played {
    let (raw, other) = (client(scene, "faults")?, client(scene, "beside")?);
    let (hog, beside) = (Hog::new(scene, &raw, &[node])?, Hog::new(scene, &other, &[node])?);
    ask(scene, wanted.flags);
    hog.stray(node, 0, NOWHERE)?;
    is_recovered(scene, What::PacketEngine { node }, wanted)?;
    let state = hog.state()?;
    // A packet that the OS could not be told of is the one that the reset aborts.
    let lost = if wanted.known {
        D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_ERROR_DMAPAGEFAULT
    } else {
        D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_HUNG
    };
    same("the device that faulted", state, lost)?;
    same("the device beside it", beside.is_active()?, !wanted.adapter)?;
    goes_on(scene, &other, node)
}

fn queue(scene: &Scene, wanted: &Wanted) -> Played {
    let (raw, other) = (client(scene, "faults")?, client(scene, "beside")?);
    let (room, beside) = (Room::new(&raw)?, Room::new(&other)?);
    let faulty = KernelQueue::new(scene, &room, room.context(0)?)?;
    let _there = KernelQueue::new(scene, &beside, beside.context(0)?)?;
    ask(scene, wanted.flags);
    let fill = Fill { address: NOWHERE, length: 8, pattern: 0, reserved: 0 }.to_packet();
    faulty.submit(&room, 0, &[fill], 1)?;
    // The record names the queue in any case.
    let reason = if wanted.adapter { wanted.reason } else { Reason::Fault };
    is_recovered(scene, What::HwEngine { node: 0 }, &Wanted { reason, ..*wanted })?;
    room.lost_by_page_fault(scene)?;
    same("the device beside it", beside.is_active()?, !wanted.adapter)?;
    ask(scene, 0);
    works(scene)
}

/// Plays what runs between a fault that asks for the engine's reset, and the reset, which waits at the gate.
fn begun(stage: &Stage, preempts: u32, play: impl Fn(&Scene, &Gate) -> Played) -> Played {
    let gate = Gate::default();
    // The packets are with the driver at once, until they end; a process that hangs an engine once is blocked.
    let setup = Setup::default().resets(1).setting("PreemptInBuffers", preempts).with_driver(asks);
    let setup = setup.windows(|windows| {
        (windows.preemption.in_ordinary_use, windows.tdr.process_limit) = (false, 0);
        windows.gates.reset = Some(gate.clone());
    });
    stage.play(setup, |scene| play(scene, &gate))
}

fn packet_begun(scene: &Scene, node: u32, gate: &Gate) -> Played {
    let raws = [client(scene, "first")?, client(scene, "faults")?, client(scene, "behind")?];
    let hogs = raws.iter().map(|raw| Hog::new(scene, raw, &[node])).collect::<Result<Vec<_>>>()?;
    let [first, faulty, behind] = hogs.as_slice() else { return Ok(()) };
    first.spin(node, 0)?;
    first.begins(scene, 0)?;
    let given = || scene.adapter().packet_journal(node).iter().filter_map(submitted).count();
    let before = given();
    ask(scene, Flags::DXGK_PAGE_FAULT_ENGINE_RESET_REQUIRED.0);
    faulty.stray(node, 0, NOWHERE)?;
    behind.spin(node, 0)?;
    scene.until("three packets with the driver", || Ok(given() == before + 2))?;
    first.end(0)?;
    scene.until("the preparation of the reset", || Ok(gate.came() == 1))?;
    behind.begins(scene, 0)?;
    gate.let_through();
    let recovery = recovered(scene, 1)?.remove(0);
    ensure!(recovery.has(|step| *step == Step::DevicesLost(1)), "{recovery}");
    blames(faulty.state()?, behind.state()?, &raws[2])?;
    same("the first device", first.is_active()? && first.has_ended(0)?, true)?;
    goes_on(scene, &raws[0], node)
}

fn queue_begun(scene: &Scene, gate: &Gate) -> Played {
    let (raw, other) = (client(scene, "faults")?, client(scene, "behind")?);
    let (room, behind) = (Room::new(&raw)?, Room::new(&other)?);
    let faulty = KernelQueue::new(scene, &room, room.context(0)?)?;
    let next = KernelQueue::new(scene, &behind, behind.context(0)?)?;
    next.spin(&behind, 0, None, 1)?;
    next.runs(scene, &other)?;
    ask(scene, Flags::DXGK_PAGE_FAULT_ENGINE_RESET_REQUIRED.0);
    let fill = Fill { address: NOWHERE, length: 8, pattern: 0, reserved: 0 }.to_packet();
    faulty.submit(&room, 0, &[fill], 1)?;
    scene.until("the preparation of the reset", || Ok(gate.came() == 1))?;
    next.runs(scene, &other)?;
    gate.let_through();
    let recovery = recovered(scene, 1)?.remove(0);
    ensure!(recovery.has(|step| *step == Step::DevicesLost(1)), "{recovery}");
    blames(room.state()?, behind.state()?, &other)?;
    ask(scene, 0);
    works(scene)
}

/// The device whose work faulted is in error for that. The one whose work the reset has cut off is lost with it and
/// must be made anew, and its process has hung nothing.
fn blames(faulted: D3DKMT_DEVICEEXECUTION_STATE, behind: D3DKMT_DEVICEEXECUTION_STATE, other: &Raw) -> Played {
    let page_fault = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_ERROR_DMAPAGEFAULT;
    same("the device that faulted", faulted, page_fault)?;
    same("the device that ran", behind, D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_RESET)?;
    same("its process is blocked", other.process.is_blocked(), false)
}

/// One recovery, of the engine or of the adapter, for the reason that the fault gives.
fn is_recovered(scene: &Scene, engine: What, wanted: &Wanted) -> Played {
    let recovery = recovered(scene, 1)?.remove(0);
    let what = if wanted.adapter { What::Adapter } else { engine };
    same("what", (recovery.what, recovery.reason), (what, wanted.reason))?;
    same("TdrReason", recovery.reason.tdr_reason(), wanted.kind.0)?;
    let code = if wanted.adapter { 0x117 } else { 0x141 };
    ensure!(recovery.has(|step| *step == Step::DebugInfo(code)), "{recovery}");
    let asked = scene.adapter().debug_blobs();
    let asked: Vec<_> = asked.iter().map(|blob| (blob.reason, blob.kind)).collect();
    same("what the driver was asked", asked, vec![(code, wanted.kind)])?;
    // Nothing has timed out: no preemption was tried.
    ensure!(!recovery.has(|step| matches!(step, Step::PreemptionTried(_) | Step::TimeoutDetected)), "{recovery}");
    Ok(())
}

/// A process's packet runs on the node, and work on the others.
fn goes_on(scene: &Scene, raw: &Raw, node: u32) -> Played {
    ask(scene, 0);
    let hog = Hog::new(scene, raw, &[node])?;
    hog.short(node, 0)?;
    scene.until("a packet behind the reset", || hog.has_ended(0))?;
    works(scene)
}
