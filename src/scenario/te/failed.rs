//! Resets of packet engines that fail.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use super::super::client::Client;
use super::super::db::{KernelQueue, Room};
use super::super::{Played, Setup, Stage, same};
use super::hardware::{feed_until_lost, recovered, works};
use super::named::{last_of, notes};
use super::{Hog, client, is_lost, stubborn, victim};
use crate::wrap::{copy, own, record};
use anyhow::{Context, ensure};
use dxgkrnl_model::adapter::{Reason, Step, What};
use gpu_wire::debug_blob::{SIGNATURE, kind, sections};
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_UNSUCCESSFUL};
use wddm_abi::{
    D3DKMT_DEVICEEXECUTION_STATE, DRIVER_INITIALIZATION_DATA, DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT, DXGK_TDR_TYPE,
    DXGKARG_COLLECTDBGINFO, DXGKARG_COLLECTDBGINFO2, DXGKARG_RESETENGINE, DXGKARG_RESETHWENGINE, HANDLE, NTSTATUS,
};

crate::decorate! {
    /// The hardware cannot reset the node.
    cannot: DxgkDdiResetEngine(_adapter: HANDLE, _args: *mut DXGKARG_RESETENGINE) -> NTSTATUS {
        STATUS_UNSUCCESSFUL
    }

    /// The same of a node that schedules in hardware.
    cannot_reset_queues: DxgkDdiResetHwEngine(_adapter: HANDLE, _args: *mut DXGKARG_RESETHWENGINE) -> NTSTATUS {
        STATUS_UNSUCCESSFUL
    }

    /// Fails otherwise than the driver does where a reset that fails moves the ids of its node.
    watched: DxgkDdiResetEngine(adapter: HANDLE, args: *mut DXGKARG_RESETENGINE) -> NTSTATUS {
        let before = ids(adapter, record!(args).NodeOrdinal);
        let status = own!(DxgkDdiResetEngine(adapter, args));
        let after = ids(adapter, record!(args).NodeOrdinal);
        if status.is_success() || (before.is_some() && before == after) { status } else { STATUS_INVALID_PARAMETER }
    }
}

crate::decorate! {
    /// Takes another context for the one that timed out: the last of the node that was made.
    names_last: DxgkDdiCollectDbgInfo2(adapter: HANDLE, args: *mut DXGKARG_COLLECTDBGINFO2) -> NTSTATUS {
        let status = own!(DxgkDdiCollectDbgInfo2(adapter, args));
        let asked = copy!(args);
        let payload = asked.TdrPayload.cast::<DXGK_TDR_PAYLOAD_ENGINE_TIMEOUT>();
        let of_engine = asked.TdrType == DXGK_TDR_TYPE::DXGK_TDR_TYPE_ENGINE_TIMEOUT;
        if of_engine && !payload.is_null() {
            let payload = record!(payload);
            if let Some(last) = last_of(payload.NodeOrdinal) {
                payload.hContext = core::ptr::with_exposed_provenance_mut(last);
            }
        }
        status
    }
}

/// The reset fails, and the driver has named the context of a packet that waits: that one's device has hung.
fn by_name(stage: &Stage, node: u32) -> Played {
    let driver = |table: &mut DRIVER_INITIALIZATION_DATA| {
        notes(table);
        cannot(table);
        names_last(table);
    };
    let setup = stubborn().resets(2).with_driver(driver).windows(|windows| {
        (windows.preemption.in_ordinary_use, windows.preemption.in_flight) = (false, 4);
    });
    stage.play(setup, |scene| {
        let raws = [client(scene, "runs")?, client(scene, "waits")?];
        let hogs = [Hog::new(scene, &raws[0], &[node])?, Hog::new(scene, &raws[1], &[node])?];
        hogs[0].spin(node, 0)?;
        hogs[0].begins(scene, 0)?;
        hogs[1].short(node, 0)?;
        recovered(scene, 2)?;
        for hog in &hogs {
            is_lost(scene, hog)?;
        }
        same("the device that is named", hogs[1].state()?, D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_HUNG)?;
        same("the other", hogs[0].state()?, D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_RESET)
    })
}

/// What the driver says of a node: last completed and last submitted fence, running fence and whether there is one,
/// packets that wait, and the fence that was reported last.
fn ids(adapter: HANDLE, node: u32) -> Option<[u64; 6]> {
    let mut buffer = [0_u8; 0x4000];
    let mut args = DXGKARG_COLLECTDBGINFO::zeroed();
    (args.Reason, args.pBuffer, args.BufferSize) = (0x141, buffer.as_mut_ptr().cast(), buffer.len());
    let status = own!(DxgkDdiCollectDbgInfo(adapter, &raw const args));
    let mut all = sections(buffer.strip_prefix(&SIGNATURE)?);
    let found = all.find(|section| section.kind == kind::NODE && section.word(0) == u64::from(node))?;
    status.is_success().then(|| core::array::from_fn(|at| found.word(4 + at)))
}

/// The node cannot be reset, and an engine that stopped answering: no id moves, and the adapter is reset.
pub(super) fn escalates(stage: &Stage) -> Played {
    let node = victim(stage);
    stage.play(stubborn().with_driver(cannot).resets(2), |scene| {
        let (raw, beside) = (client(scene, "hangs")?, client(scene, "beside")?);
        let (hog, beside) = (Hog::new(scene, &raw, &[node])?, Hog::new(scene, &beside, &[node])?);
        hog.spin(node, 0)?;
        is_lost(scene, &hog)?;
        let all = recovered(scene, 2)?;
        ensure!(all[0].has(|step| *step == Step::ResetEngine(STATUS_UNSUCCESSFUL, 0)), "{}", all[0]);
        same("the engine's last step", all[0].steps.len(), 8)?;
        same("then", (all[1].what, all[1].reason), (What::Adapter, Reason::Promoted))?;
        same("TdrReason", all[1].reason.tdr_reason(), 9)?;
        ensure!(!beside.is_active()?, "a device outlived the adapter's reset");
        same("resets of engines", scene.calls("DxgkDdiResetEngine"), 1)?;
        works(scene)
    })?;
    by_name(stage, node).context("another context is named")?;
    if stage.rung() != 0 {
        return hardware_scheduled(stage).context("a node that schedules in hardware");
    }
    // Far behind what starts and first clients need.
    let setup = Setup::default().quick_tdr().setting("FaultWedgeAt", 4000).with_driver(watched).resets(2);
    stage.play(setup, |scene| {
        let rig = Client::open(scene, "hangs")?;
        feed_until_lost(scene, &rig)?;
        let all = recovered(scene, 2)?;
        let failed = |step: &Step| matches!(step, Step::ResetEngine(status, _) if !status.is_success());
        let moved = |step: &Step| matches!(step, Step::ResetEngine(STATUS_INVALID_PARAMETER, _));
        ensure!(all[0].has(failed) && !all[0].has(moved), "a reset that failed has moved ids: {}", all[0]);
        works(scene)
    })
}

/// The reset of a node that schedules in hardware fails: of the devices that the adapter's loses, the one that hangs is
/// told from the others.
fn hardware_scheduled(stage: &Stage) -> Played {
    stage.play(stubborn().resets(2).with_driver(cannot_reset_queues), |scene| {
        let (hangs, beside) = (client(scene, "hangs")?, client(scene, "beside")?);
        let (room, other) = (Room::new(&hangs)?, Room::new(&beside)?);
        let queue = KernelQueue::new(scene, &room, room.context(0)?)?;
        queue.spin(&room, 0, None, 1)?;
        let all = recovered(scene, 2)?;
        ensure!(all[0].has(|step| *step == Step::ResetHwEngine(STATUS_UNSUCCESSFUL, 0)), "{}", all[0]);
        same("then", (all[1].what, all[1].reason), (What::Adapter, Reason::Promoted))?;
        scene.until("the loss of the devices", || Ok(!room.is_active()? && !other.is_active()?))?;
        same("the device that hangs", room.state()?, D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_HUNG)?;
        same("the other", other.state()?, D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_RESET)?;
        works(scene)
    })
}
