//! Records that grew under the names of their functions, in a later kit.

use crate::scenario::db::{CONNECTED, NOTIFY, RingQueue, Room, raw};
use crate::scenario::{Played, Raw, Scenario, Scene, Setup, Stage, same};
use anyhow::{Context, Result, bail, ensure};
use dxgkrnl_model::personality::Build;
use dxgkrnl_model::report::{UserFault, UserMistake};
use nt_model::{PAGE_SIZE, Rights};
use std::collections::BTreeSet;
use wddm_abi::ntstatus::{STATUS_ACCESS_VIOLATION, STATUS_INVALID_PARAMETER, STATUS_SUCCESS};
use wddm_abi::{D3DKMT_CONNECT_DOORBELL, D3DKMT_NOTIFY_WORK_SUBMISSION, Plain, kit_28000};

pub(super) const CASE: Scenario = Scenario {
    id: "ST-90",
    title: "on the 28000 line the calls of doorbells read and write 88 and 72 bytes: a caller with 8 is told, and named",
    source: "d3dkmthk.h of the SDK 10.0.28000: D3DKMT_CONNECT_DOORBELL, D3DKMT_NOTIFY_WORK_SUBMISSION",
    play: grown,
};

/// The end of a page of the process, behind which it has nothing, now and later.
pub(crate) fn edge(scene: &Scene, raw: &Raw) -> Result<usize> {
    let kernel = scene.world.os.kernel();
    let process = raw.process.nt();
    let mut pages = BTreeSet::new();
    for _ in 0..256 {
        let page = kernel.allocate_user(process, 1).context("a page")?;
        pages.insert(page);
        let neighbour =
            [page, page - PAGE_SIZE].into_iter().find(|at| pages.contains(at) && pages.contains(&(at + PAGE_SIZE)));
        if let Some(first) = neighbour {
            // What a process gives up stays its own, and is not mapped.
            kernel.free_user(process, first + PAGE_SIZE).context("giving the second back")?;
            return Ok(first + PAGE_SIZE);
        }
    }
    bail!("no two pages lie beside each other")
}

/// Puts a record in front of the edge; its address.
fn put(raw: &Raw, edge: usize, record: &impl Plain) -> Result<usize> {
    let bytes = record.as_bytes();
    let at = edge - bytes.len();
    for (index, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
        raw.store(at + index * 8, u64::from_le_bytes(*word))?;
    }
    Ok(at)
}

fn grown(stage: &Stage) -> Played {
    for build in [Build::W28000, Build::W26100Update] {
        let newer = build.has_queue_doorbells();
        let setup = Setup::default().windows(|windows| windows.build = build);
        let setup = if newer { setup.client_errs() } else { setup };
        let play = |scene: &Scene| {
            let raw = raw(scene)?;
            let room = Room::new(&raw)?;
            let edge = edge(scene, &raw)?;
            let queue = RingQueue::new(scene, &room, 0, 4096)?;
            let (connect, notify) = (raw.thunks.D3DKMTConnectDoorbell, raw.thunks.D3DKMTNotifyWorkSubmission);
            let mut short = D3DKMT_CONNECT_DOORBELL::zeroed();
            // Of the 28000 line it is the queue that is named.
            short.hDoorbell = if newer { queue.queue.handle } else { queue.bell.handle };
            let wanted = if newer { STATUS_ACCESS_VIOLATION } else { STATUS_SUCCESS };
            same("8 bytes, to connect", raw.call_at(connect, put(&raw, edge, &short)?), wanted)?;
            let mut short = D3DKMT_NOTIFY_WORK_SUBMISSION::zeroed();
            short.hDoorbell = if newer { queue.queue.handle } else { queue.bell.handle };
            same("8 bytes, to notify", raw.call_at(notify, put(&raw, edge, &short)?), wanted)?;
            same("connections", scene.calls("DxgkDdiConnectDoorbell"), u64::from(!newer))?;
            if !newer {
                return same("faults of user mode", scene.world.os.report().user_faults, vec![]);
            }
            let process = raw.process.nt().id();
            let fault = |thunk, bytes| UserFault { process, mistake: UserMistake::ShortRecord { thunk, bytes } };
            let faults = vec![fault("D3DKMTConnectDoorbell", 88), fault("D3DKMTNotifyWorkSubmission", 72)];
            same("faults of user mode", scene.world.os.report().user_faults, faults.clone())?;
            // Records of that line, in the same place.
            let mut record = kit_28000::D3DKMT_CONNECT_DOORBELL::zeroed();
            record.hHwQueue = queue.bell.handle;
            let at = put(&raw, edge, &record)?;
            same("a doorbell's handle", raw.call_at(connect, at), STATUS_INVALID_PARAMETER)?;
            record.hHwQueue = queue.queue.handle;
            record.Reserved[63] = 1;
            let at = put(&raw, edge, &record)?;
            same("a reserved byte", raw.call_at(connect, at), STATUS_INVALID_PARAMETER)?;
            record.Reserved[63] = 0;
            let at = put(&raw, edge, &record)?;
            same("88 bytes, to connect", raw.call_at(connect, at), STATUS_SUCCESS)?;
            same("the mapping", (raw.load(at + 8)?, raw.load(at + 16)?), (queue.bell.doorbell as u64, 0))?;
            ensure!(matches!(queue.status()?, CONNECTED | NOTIFY), "the doorbell is not connected");
            let mut record = kit_28000::D3DKMT_NOTIFY_WORK_SUBMISSION::zeroed();
            record.hHwQueue = queue.queue.handle;
            same("72 bytes, to notify", raw.call_at(notify, put(&raw, edge, &record)?), STATUS_SUCCESS)?;
            // Whole records that may only be read: they are stored as well, and are not short.
            let kernel = scene.world.os.kernel();
            let read_only = kernel.allocate_user(raw.process.nt(), 1).context("a page")?;
            let end = read_only + PAGE_SIZE;
            let at = put(&raw, end, &record)?;
            kernel.protect_user(raw.process.nt(), read_only, Rights::Read).context("a page that may be read")?;
            same("72 bytes that are read-only", raw.call_at(notify, at), STATUS_ACCESS_VIOLATION)?;
            kernel.protect_user(raw.process.nt(), read_only, Rights::ReadWrite).context("a page as before")?;
            let mut record = kit_28000::D3DKMT_CONNECT_DOORBELL::zeroed();
            record.hHwQueue = queue.queue.handle;
            let at = put(&raw, end, &record)?;
            kernel.protect_user(raw.process.nt(), read_only, Rights::Read).context("a page that may be read")?;
            same("88 bytes that are read-only", raw.call_at(connect, at), STATUS_ACCESS_VIOLATION)?;
            let progress = queue.submit_through(&[])?;
            queue.wait(scene, progress)?;
            // The user-mode driver does not make these calls here.
            same("its mode", super::work(scene)?.0, umd_core::ffi::types::FP_MODE_KERNEL)?;
            same("faults of user mode", scene.world.os.report().user_faults, faults)
        };
        stage.play(setup, play).with_context(|| format!("{build:?}"))?;
    }
    Ok(())
}
