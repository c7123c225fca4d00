//! Resets of packet engines that fail.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use super::super::rig::Rig;
use super::super::{Played, Setup, Stage, same};
use super::hardware::{feed_until_lost, recovered, works};
use super::{Hog, client, is_lost, stubborn, victim};
use crate::wrap::{own, record};
use anyhow::ensure;
use dxgkrnl_model::adapter::{Reason, Step, What};
use gpu_wire::debug_blob::{SIGNATURE, kind, sections};
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_UNSUCCESSFUL};
use wddm_abi::{DXGKARG_COLLECTDBGINFO, DXGKARG_RESETENGINE, HANDLE, NTSTATUS};

crate::decorate! {
    /// The hardware cannot reset the node.
    cannot: DxgkDdiResetEngine(_adapter: HANDLE, _args: *mut DXGKARG_RESETENGINE) -> NTSTATUS {
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
    if stage.rung() != 0 {
        return Ok(());
    }
    // Far behind what starts and first clients need.
    let setup = Setup::default().quick_tdr().setting("FaultWedgeAt", 4000).with_driver(watched).resets(2);
    stage.play(setup, |scene| {
        let rig = Rig::open(scene, "hangs")?;
        feed_until_lost(scene, &rig)?;
        let all = recovered(scene, 2)?;
        let failed = |step: &Step| matches!(step, Step::ResetEngine(status, _) if !status.is_success());
        let moved = |step: &Step| matches!(step, Step::ResetEngine(STATUS_INVALID_PARAMETER, _));
        ensure!(all[0].has(failed) && !all[0].has(moved), "a reset that failed has moved ids: {}", all[0]);
        works(scene)
    })
}
