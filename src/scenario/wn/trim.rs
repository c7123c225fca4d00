//! Callbacks by which a process hears that it is to evict memory.
#![expect(unsafe_code, reason = "a callback follows the pointers that it was registered with")]

use crate::scenario::db::{Room, raw};
use crate::scenario::{Denied, Played, Raw, Setup, Stage, same};
use anyhow::{Context, Result};
use dxgkrnl_model::initiative::Trim;
use gpu_wire::private::allocation_kind;
use std::sync::{Mutex, PoisonError};
use wddm_abi::ntstatus::STATUS_INVALID_PARAMETER;
use wddm_abi::{
    D3DKMT_ALLOCATIONRESIDENCYSTATUS as Status, D3DKMT_HANDLE, D3DKMT_QUERYALLOCATIONRESIDENCY,
    D3DKMT_REGISTERTRIMNOTIFICATION, D3DKMT_TRIMNOTIFICATION, D3DKMT_UNREGISTERTRIMNOTIFICATION, LUID,
    PFND3DKMT_TRIMNOTIFICATIONCALLBACK, win_extern,
};

/// What a callback of a device works on.
struct Heard<'a> {
    room: &'a Room<'a>,
    /// What it evicts when it is over its budget.
    allocation: D3DKMT_HANDLE,
    /// Flags, and how many bytes, as they came.
    notices: Mutex<Vec<(u32, u64)>>,
}

impl Heard<'_> {
    fn take(&self) -> Vec<(u32, u64)> {
        std::mem::take(&mut self.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

win_extern! {
    fn hears(notice: *mut D3DKMT_TRIMNOTIFICATION) {
        // SAFETY: the OS passes a record that is valid for the call.
        let notice = unsafe { notice.read() };
        let heard: *const Heard<'_> = notice.Context.cast_const().cast();
        // SAFETY: the case registers its own local, which lives until it has unregistered it.
        let heard = unsafe { &*heard };
        let seen = (notice.Flags.Value, notice.NumBytesToTrim);
        heard.notices.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
        if notice.Flags.TrimToBudget() {
            // A callback calls the OS.
            let _evicted = heard.room.evict(heard.allocation);
        }
    }

    fn faults(notice: *mut D3DKMT_TRIMNOTIFICATION) {
        // SAFETY: nothing lies there in any process: the load faults, and the model leaves the callback where it is.
        let word = unsafe { core::ptr::without_provenance::<u64>(8).read_volatile() };
        // SAFETY: never reached.
        unsafe { (*notice).NumBytesToTrim = word };
    }
}

/// Registers a callback; its handle.
fn register(
    raw: &Raw,
    device: D3DKMT_HANDLE,
    luid: LUID,
    callback: PFND3DKMT_TRIMNOTIFICATIONCALLBACK,
    heard: Option<&Heard<'_>>,
) -> Result<usize, Denied> {
    let mut record = D3DKMT_REGISTERTRIMNOTIFICATION::zeroed();
    (record.hDevice, record.AdapterLuid, record.Callback) = (device, luid, callback);
    record.Context = heard.map_or(core::ptr::null_mut(), |heard| core::ptr::from_ref(heard).cast_mut().cast());
    raw.ok(raw.thunks.D3DKMTRegisterTrimNotification, &mut record)?;
    Ok(record.Handle.expose_provenance())
}

fn unregister(raw: &Raw, handle: usize, callback: PFND3DKMT_TRIMNOTIFICATIONCALLBACK) -> Result<(), Denied> {
    let mut record = D3DKMT_UNREGISTERTRIMNOTIFICATION::zeroed();
    (record.Handle, record.Callback) = (core::ptr::with_exposed_provenance_mut(handle), callback);
    raw.ok(raw.thunks.D3DKMTUnregisterTrimNotification, &mut record)
}

fn is_resident(room: &Room<'_>, allocation: D3DKMT_HANDLE) -> Result<bool> {
    let (mut record, mut found) = (D3DKMT_QUERYALLOCATIONRESIDENCY::zeroed(), Status(0));
    (record.hDevice, record.AllocationCount) = (room.device, 1);
    (record.phAllocationList, record.pResidencyStatus) = (&raw const allocation, &raw mut found);
    room.raw.ok(room.raw.thunks.D3DKMTQueryAllocationResidency, &mut record)?;
    Ok(found != Status::D3DKMT_ALLOCATIONRESIDENCYSTATUS_NOTRESIDENT)
}

const INVALID: Denied = Denied(STATUS_INVALID_PARAMETER);

pub(super) fn trimmed(stage: &Stage) -> Played {
    stage.play(Setup::default().adapters(2), |scene| {
        let (raw, other) = (raw(scene)?, raw(scene)?);
        let (room, luid) = (Room::new(&raw)?, scene.adapter().luid());
        let allocation = room.create(allocation_kind::LOCAL, 0x1_0000)?;
        room.make_resident(scene, allocation)?;
        let [first, second] = [0; 2].map(|_| Heard { room: &room, allocation, notices: Mutex::default() });
        let one = register(&raw, room.device, luid, Some(hears), Some(&first)).context("register")?;
        let os = &scene.world.os;
        let trim = |what| os.trim(scene.adapter(), &raw.process, what);
        for (what, seen) in [(Trim::Periodic, (1, 0)), (Trim::RestartPeriodic, (2, 0))] {
            same("callbacks that returned", trim(what), 1)?;
            same("what one has heard", first.take(), vec![seen])?;
        }
        same("whether it is resident", is_resident(&room, allocation)?, true)?;
        let two = register(&raw, room.device, luid, Some(hears), Some(&second)).context("register another")?;
        same("both", trim(Trim::PeriodicToBudget(0x1_2000)), 2)?;
        same("what both have heard", (first.take(), second.take()), (vec![(5, 0x1_2000)], vec![(5, 0x1_2000)]))?;
        scene.until("it is evicted", || Ok(!is_resident(&room, allocation)?))?;
        // Another process, and another adapter, are not asked.
        same("another process", os.trim(scene.adapter(), &other.process, Trim::Periodic), 0)?;
        let elsewhere = os.adapters().get(1).cloned().context("a second adapter")?;
        same("another adapter", os.trim(&elsewhere, &raw.process, Trim::Periodic), 0)?;
        same("nobody has heard", (first.take(), second.take()), (vec![], vec![]))?;
        for (what, device, luid, callback) in [
            ("no device", 0, luid, Some(hears as _)),
            ("another adapter", room.device, elsewhere.luid(), Some(hears as _)),
            ("no callback", room.device, luid, None),
        ] {
            let callback: PFND3DKMT_TRIMNOTIFICATIONCALLBACK = callback;
            same(what, register(&raw, device, luid, callback, Some(&first)), Err(INVALID))?;
        }
        // The other process has an adapter alone, and no handle of the device's number.
        let theirs = register(&other, room.device, luid, Some(hears), Some(&first));
        same("another process's device", theirs, Err(INVALID))?;
        same("NULL", raw.call_null(raw.thunks.D3DKMTRegisterTrimNotification), STATUS_INVALID_PARAMETER)?;
        same("NULL", raw.call_null(raw.thunks.D3DKMTUnregisterTrimNotification), STATUS_INVALID_PARAMETER)?;
        same("another callback", unregister(&raw, one, Some(faults)), Err(INVALID))?;
        same("another process's", unregister(&other, one, Some(hears)), Err(INVALID))?;
        same("no handle", unregister(&raw, one + 1, Some(hears)), Err(INVALID))?;
        unregister(&raw, one, Some(hears)).context("unregister")?;
        same("a second time", unregister(&raw, one, Some(hears)), Err(INVALID))?;
        let bad = register(&raw, room.device, luid, Some(faults), None).context("one that faults")?;
        same("what is left", trim(Trim::Periodic), 1)?;
        same("what is left has heard", (first.take(), second.take()), (vec![], vec![(1, 0)]))?;
        unregister(&raw, bad, Some(faults))?;
        same("to a budget", trim(Trim::ToBudget(1)), 1)?;
        same("what it has heard", second.take(), vec![(4, 1)])?;
        // What is registered goes with its device.
        let short = raw.device()?;
        let gone = register(&raw, short, luid, Some(hears), Some(&first))?;
        raw.destroy_device(short)?;
        same("behind the device", trim(Trim::Periodic), 1)?;
        same("who has heard", (first.take(), second.take()), (vec![], vec![(1, 0)]))?;
        same("its callback", unregister(&raw, gone, Some(hears)), Err(INVALID))?;
        unregister(&raw, two, Some(hears)).context("unregister the other")
    })
}
