//! What processes reserve: video memory, and GPU virtual addresses.

use crate::monitor::Monitor;
use crate::scenario::db::raw;
use crate::scenario::{Denied, Played, Raw, Setup, Stage, same};
use anyhow::{Context, ensure};
use dxgkrnl_model::process::ProcessRights;
use std::ptr::{null_mut, without_provenance_mut};
use wddm_abi::ntstatus::{
    STATUS_ACCESS_DENIED, STATUS_INVALID_HANDLE, STATUS_INVALID_PARAMETER, STATUS_NO_MEMORY, STATUS_SUCCESS,
};
use wddm_abi::{
    D3DDDI_RESERVEGPUVIRTUALADDRESS, D3DKMT_CHANGEVIDEOMEMORYRESERVATION, D3DKMT_FREEGPUVIRTUALADDRESS, D3DKMT_HANDLE,
    D3DKMT_MEMORY_SEGMENT_GROUP as Group, HANDLE, NTSTATUS,
};

const LOCAL: Group = Group::D3DKMT_MEMORY_SEGMENT_GROUP_LOCAL;
const SYSTEM: Group = Group::D3DKMT_MEMORY_SEGMENT_GROUP_NON_LOCAL;

/// Reserves memory for a process.
fn reserve(raw: &Raw, process: HANDLE, group: Group, bytes: u64) -> NTSTATUS {
    let mut record = D3DKMT_CHANGEVIDEOMEMORYRESERVATION::zeroed();
    (record.hProcess, record.hAdapter) = (process, raw.adapter);
    (record.MemorySegmentGroup, record.Reservation) = (group, bytes);
    raw.call(raw.thunks.D3DKMTChangeVideoMemoryReservation, &mut record)
}

pub(super) fn memory(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let monitor = Monitor::open(&scene.world.os, scene.adapter())?;
        let raw = raw(scene)?;
        let rights = |query, set| {
            // CAST: a handle's number.
            without_provenance_mut(monitor.process().open_process(&raw.process, ProcessRights { query, set }) as usize)
        };
        let told = |group| monitor.memory(rights(true, false), group).context("memory");
        let most = [told(LOCAL)?, told(SYSTEM)?].map(|memory| memory.AvailableForReservation);
        ensure!(most[0] != 0 && most[1] != 0, "nothing can be reserved");
        for (group, other, most) in [(LOCAL, SYSTEM, most[0]), (SYSTEM, LOCAL, most[1])] {
            same("at first", told(group)?.CurrentReservation, 0)?;
            for bytes in [4096, most, 0, 1] {
                same("a reservation", reserve(&raw, null_mut(), group, bytes), STATUS_SUCCESS)?;
                same("what is told", told(group)?.CurrentReservation, bytes)?;
            }
            let before = told(other)?.CurrentReservation;
            for bytes in [most + 1, u64::MAX] {
                same("too much", reserve(&raw, null_mut(), group, bytes), STATUS_INVALID_PARAMETER)?;
            }
            let kept = (told(group)?.CurrentReservation, told(other)?.CurrentReservation);
            same("nothing has changed", kept, (1, before))?;
        }
        let theirs = |raw: &Raw, process| reserve(raw, process, LOCAL, 7);
        let of_monitor = {
            let other = scene.raw("another")?;
            // CAST: a handle's number.
            let open = |query, set| other.process.open_process(&raw.process, ProcessRights { query, set }) as usize;
            same("another's", theirs(&other, without_provenance_mut(open(false, true))), STATUS_SUCCESS)?;
            theirs(&other, without_provenance_mut(open(true, false)))
        };
        same("what another has reserved", told(LOCAL)?.CurrentReservation, 7)?;
        same("without PROCESS_SET_INFORMATION", of_monitor, STATUS_ACCESS_DENIED)?;
        same("no process", theirs(&raw, without_provenance_mut(0xDEAD_BEEC)), STATUS_INVALID_HANDLE)?;
        for group in [-1, 2] {
            same("no group", reserve(&raw, null_mut(), Group(group), 0), STATUS_INVALID_PARAMETER)?;
        }
        let mut record = D3DKMT_CHANGEVIDEOMEMORYRESERVATION::zeroed();
        (record.hAdapter, record.PhysicalAdapterIndex) = (raw.adapter, 1);
        let call = raw.thunks.D3DKMTChangeVideoMemoryReservation;
        same("no physical adapter", raw.call(call, &mut record), STATUS_INVALID_PARAMETER)?;
        (record.hAdapter, record.PhysicalAdapterIndex) = (0, 0);
        same("no adapter", raw.call(call, &mut record), STATUS_INVALID_PARAMETER)?;
        same("NULL", raw.call_null(call), STATUS_INVALID_PARAMETER)
    })
}

/// Where addresses are asked for: the base, the limits.
type Where = (u64, u64, u64);

/// Reserves `size` bytes of addresses.
fn addresses(raw: &Raw, adapter: D3DKMT_HANDLE, (base, minimum, maximum): Where, size: u64) -> Result<u64, Denied> {
    let mut record = D3DDDI_RESERVEGPUVIRTUALADDRESS::zeroed();
    record.set_hAdapter(adapter);
    (record.BaseAddress, record.MinimumAddress, record.MaximumAddress) = (base, minimum, maximum);
    record.Size = size;
    raw.ok(raw.thunks.D3DKMTReserveGpuVirtualAddress, &mut record)?;
    Ok(record.VirtualAddress)
}

pub(super) fn ranges(stage: &Stage) -> Played {
    const UNIT: u64 = 0x1_0000;
    const HIGH: u64 = 0x40_0000_0000;
    stage.play(Setup::default(), |scene| {
        let (raw, other) = (raw(scene)?, raw(scene)?);
        let at = |places, size| addresses(&raw, raw.adapter, places, size);
        let low = at((0, 0, 0), UNIT).context("anywhere")?;
        ensure!(low.is_multiple_of(UNIT), "{low:#x}");
        // With a base the limits are not looked at, whatever they are.
        same("at a base", at((HIGH, HIGH + 8, 16), 2 * UNIT), Ok(HIGH))?;
        for (what, base, size) in [
            ("the same", HIGH, UNIT),
            ("its second half", HIGH + UNIT, UNIT),
            ("over its start", HIGH - UNIT, 2 * UNIT),
        ] {
            same(what, at((base, 0, 0), size), Err(Denied(STATUS_NO_MEMORY)))?;
        }
        same("behind it", at((HIGH + 2 * UNIT, 0, 0), UNIT), Ok(HIGH + 2 * UNIT))?;
        same("the first within limits", at((0, HIGH, HIGH + 8 * UNIT), UNIT), Ok(HIGH + 3 * UNIT))?;
        same("no room within limits", at((0, HIGH, HIGH + 4 * UNIT), UNIT), Err(Denied(STATUS_NO_MEMORY)))?;
        same("limits that cross", at((0, HIGH, UNIT), UNIT), Err(Denied(STATUS_NO_MEMORY)))?;
        same("beyond all addresses", at((0, 0, 0), 1 << 62), Err(Denied(STATUS_NO_MEMORY)))?;
        for (what, places, size) in [
            ("no bytes", (0, 0, 0), 0),
            ("half a unit", (0, 0, 0), UNIT / 2),
            ("a base within a unit", (HIGH + 4096, 0, 0), UNIT),
            ("a minimum within a unit", (0, 4096, 0), UNIT),
            ("a maximum within a unit", (0, 0, HIGH + 4096), UNIT),
        ] {
            same(what, at(places, size), Err(Denied(STATUS_INVALID_PARAMETER)))?;
        }
        for adapter in [0, 0x4000_FF40, raw.device()?] {
            let reserved = addresses(&raw, adapter, (0, 0, 0), UNIT);
            same("no adapter", reserved, Err(Denied(STATUS_INVALID_PARAMETER)))?;
        }
        // Each process has addresses of its own.
        same("another process", addresses(&other, other.adapter, (HIGH, 0, 0), UNIT), Ok(HIGH))?;
        let mut record = D3DKMT_FREEGPUVIRTUALADDRESS::zeroed();
        (record.hAdapter, record.BaseAddress, record.Size) = (raw.adapter, HIGH, 2 * UNIT);
        raw.ok(raw.thunks.D3DKMTFreeGpuVirtualAddress, &mut record).context("free")?;
        same("where it was", at((HIGH, 0, 0), UNIT), Ok(HIGH))
    })
}
