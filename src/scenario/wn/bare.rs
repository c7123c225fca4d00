//! Fences that are opened without a device, and the scheduling priorities of processes.

use super::objects;
use crate::scenario::db::{denied, raw};
use crate::scenario::raw::{ALL, READ, THIS_PROCESS, duplicate};
use crate::scenario::{Denied, Played, Raw, Setup, Stage, patience, same};
use anyhow::{Context, ensure};
use dxgkrnl_model::process::ProcessRights;
use std::ptr::{null_mut, without_provenance_mut};
use std::time::Duration;
use wddm_abi::ntstatus::{
    STATUS_ACCESS_DENIED, STATUS_ACCESS_VIOLATION, STATUS_INVALID_HANDLE, STATUS_INVALID_PARAMETER,
    STATUS_PRIVILEGE_NOT_HELD, STATUS_SUCCESS,
};
use wddm_abi::{D3DKMT_HANDLE, D3DKMT_OPENSYNCOBJECTFROMNTHANDLE, HANDLE};

/// Opens a fence by an NT handle of the process's.
fn open(raw: &Raw, nt_handle: HANDLE) -> Result<D3DKMT_HANDLE, Denied> {
    let mut record = D3DKMT_OPENSYNCOBJECTFROMNTHANDLE::zeroed();
    record.hNtHandle = nt_handle;
    raw.ok(raw.thunks.D3DKMTOpenSyncObjectFromNtHandle, &mut record)?;
    Ok(record.hSyncObject)
}

pub(super) fn without_device(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let (raw, other) = (raw(scene)?, raw(scene)?);
        let device = raw.device()?;
        let fence = raw.monitored_fence(device, 3, true).context("fence")?;
        let given = |access| duplicate(raw.share(fence.handle, access)?, &raw.process, &other.process);
        // The process has no device here.
        let opened = open(&other, given(ALL)?).context("open")?;
        let theirs = other.device()?;
        let (event, handle) = other.event();
        other.wait_cpu(theirs, &[(opened, 5)], false, Some(handle)).context("a wait")?;
        ensure!(!other.wait_event(&event, Duration::from_millis(20)), "a wait for 5 is over at 3");
        raw.signal_cpu(device, &[(fence.handle, 5)]).context("the maker's signal")?;
        ensure!(other.wait_event(&event, patience()), "the wait for 5 did not end");
        other.signal_cpu(theirs, &[(opened, 9)]).context("the opener's signal")?;
        same("the value", raw.load(fence.cpu)?, 9)?;
        let back = other.signal_cpu(theirs, &[(opened, 8)]);
        denied("a signal that goes back", back, STATUS_INVALID_PARAMETER)?;
        let reader = open(&other, given(READ)?).context("open to read")?;
        denied("without the right to signal", other.signal_cpu(theirs, &[(reader, 10)]), STATUS_ACCESS_DENIED)?;
        denied("without the right to read", open(&other, given(ALL & !READ)?), STATUS_ACCESS_DENIED)?;
        // It lives on without its maker's handle, and can be shared again.
        raw.destroy_fence(fence.handle).context("destroy")?;
        other.destroy_device(theirs)?;
        let again = open(&other, other.share(opened, ALL).context("share again")?).context("open again")?;
        let theirs = other.device()?;
        other.wait_cpu(theirs, &[(again, 9), (opened, 9)], false, None).context("its value")?;
        for handle in [opened, reader, again] {
            other.destroy_fence(handle).context("destroy what was opened")?;
            denied("a second time", other.destroy_fence(handle), STATUS_INVALID_PARAMETER)?;
        }
        same("NULL", other.call_null(other.thunks.D3DKMTOpenSyncObjectFromNtHandle), STATUS_INVALID_PARAMETER)?;
        for nowhere in [null_mut(), without_provenance_mut(0xDEAD_BEEC), handle] {
            denied("a handle of no shared object", open(&other, nowhere), STATUS_INVALID_HANDLE)?;
        }
        let resource = objects::resource(&raw, device, objects::shared).context("resource")?.resource;
        denied("a resource", open(&raw, raw.share(resource, ALL)?), STATUS_INVALID_PARAMETER)?;
        if scene.adapter().caps().context("caps")?.has_native_fences() {
            let native = raw.shared_native_fence(device, 0)?.handle;
            denied("a native fence", open(&raw, raw.share(native, ALL)?), STATUS_INVALID_PARAMETER)?;
        }
        Ok(())
    })
}

pub(super) fn classes(stage: &Stage) -> Played {
    const NORMAL: i32 = 2;
    stage.play(Setup::default(), |scene| {
        let (raw, other) = (raw(scene)?, raw(scene)?);
        same("at first", raw.class(THIS_PROCESS), Ok(NORMAL))?;
        for class in 0..=3 {
            same("a priority", raw.set_class(THIS_PROCESS, class), STATUS_SUCCESS)?;
            same("what was set", raw.class(THIS_PROCESS), Ok(class))?;
        }
        same("another process's", other.class(THIS_PROCESS), Ok(NORMAL))?;
        for class in [-1, 6, i32::MAX, i32::MIN] {
            same("no priority", raw.set_class(THIS_PROCESS, class), STATUS_INVALID_PARAMETER)?;
        }
        for class in [4, 5] {
            same("without the privilege", raw.set_class(THIS_PROCESS, class), STATUS_PRIVILEGE_NOT_HELD)?;
        }
        same("nothing has changed", raw.class(THIS_PROCESS), Ok(3))?;
        let handle = |query, set| {
            // CAST: a handle's number.
            without_provenance_mut(raw.process.open_process(&other.process, ProcessRights { query, set }) as usize)
        };
        same("another's", raw.set_class(handle(false, true), 1), STATUS_SUCCESS)?;
        same("what it has", raw.class(handle(true, false)), Ok(1))?;
        same("without PROCESS_SET_INFORMATION", raw.set_class(handle(true, false), 0), STATUS_ACCESS_DENIED)?;
        denied("without PROCESS_QUERY_INFORMATION", raw.class(handle(false, true)), STATUS_ACCESS_DENIED)?;
        for nowhere in [null_mut(), without_provenance_mut(0xDEAD_BEEC)] {
            same("no process", raw.set_class(nowhere, 1), STATUS_INVALID_HANDLE)?;
            denied("no process", raw.class(nowhere), STATUS_INVALID_HANDLE)?;
        }
        same("NULL", raw.class_at(THIS_PROCESS, null_mut()), STATUS_INVALID_PARAMETER)?;
        let kernel = without_provenance_mut(0xFFFF_8000_0000_0000);
        same("nowhere to store it", raw.class_at(THIS_PROCESS, kernel), STATUS_ACCESS_VIOLATION)?;
        raw.process.trust();
        for class in [5, 4] {
            same("with the privilege", raw.set_class(THIS_PROCESS, class), STATUS_SUCCESS)?;
            same("what was set", raw.class(THIS_PROCESS), Ok(class))?;
        }
        Ok(())
    })
}
