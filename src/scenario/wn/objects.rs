//! Handles, allocations, resources, fences.

use crate::scenario::db::{Room, raw};
use crate::scenario::raw::{ALL, Attributes};
use crate::scenario::{Denied, Played, Raw, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use gpu_wire::private::{AllocationData, MAGIC, allocation_kind};
use std::time::Duration;
use wddm_abi::ntstatus::{
    STATUS_ACCESS_DENIED, STATUS_INVALID_HANDLE, STATUS_INVALID_PARAMETER, STATUS_NO_MEMORY,
    STATUS_OBJECT_NAME_COLLISION, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_OBJECT_TYPE_MISMATCH, STATUS_SUCCESS,
};
use wddm_abi::{
    D3DDDI_ALLOCATIONINFO2, D3DDDI_OPENALLOCATIONINFO2, D3DDDI_SYNCHRONIZATIONOBJECT_TYPE, D3DKMT_CREATEALLOCATION,
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2, D3DKMT_DESTROYALLOCATION2, D3DKMT_HANDLE, D3DKMT_OPENRESOURCEFROMNTHANDLE,
    D3DKMT_QUERYRESOURCEINFOFROMNTHANDLE, HANDLE, NTSTATUS,
};

/// The runtime's data of a resource.
const RUNTIME: [u8; 12] = *b"runtime data";
/// Sizes of the driver's data, of each allocation.
const PRIVATE: usize = size_of::<AllocationData>();

/// A resource: its handle, its allocations' handles, and what came back in `hGlobalShare`.
pub(super) struct Made {
    pub(super) resource: D3DKMT_HANDLE,
    pub(super) allocations: [D3DKMT_HANDLE; 2],
    global: D3DKMT_HANDLE,
}

/// Makes a resource of two allocations; `change` has the last word on the record.
pub(super) fn resource(
    raw: &Raw,
    device: D3DKMT_HANDLE,
    change: impl FnOnce(&mut D3DKMT_CREATEALLOCATION),
) -> Result<Made, Denied> {
    let mut data = [AllocationData { magic: MAGIC, kind: allocation_kind::SYSTEM, size: 4096, reserved: 0 }; 2];
    let mut infos = [D3DDDI_ALLOCATIONINFO2::zeroed(); 2];
    for (info, data) in infos.iter_mut().zip(&mut data) {
        info.pPrivateDriverData = core::ptr::from_mut(data).cast();
        // CAST: 24.
        info.PrivateDriverDataSize = PRIVATE as u32;
    }
    let mut record = D3DKMT_CREATEALLOCATION::zeroed();
    (record.hDevice, record.NumAllocations, record.hGlobalShare) = (device, 2, 0xDEAD_BEEF);
    record.set_pAllocationInfo2(infos.as_mut_ptr());
    record.Flags.set_CreateResource(true);
    // CAST: 12.
    (record.pPrivateRuntimeData, record.PrivateRuntimeDataSize) = (RUNTIME.as_ptr().cast(), RUNTIME.len() as u32);
    change(&mut record);
    raw.ok(raw.thunks.D3DKMTCreateAllocation2, &mut record)?;
    let allocations = infos.map(|info| info.hAllocation);
    Ok(Made { resource: record.hResource, allocations, global: record.hGlobalShare })
}

pub(super) fn shared(record: &mut D3DKMT_CREATEALLOCATION) {
    record.Flags.set_CreateShared(true);
    record.Flags.set_NtSecuritySharing(true);
}

pub(super) fn handles(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let device = raw.device().context("device")?;
        let mut last = device;
        ensure!(device & 0x3F == 0 && device >> 30 != 0, "a local handle has other bits: {device:#x}");
        for round in 0..200 {
            let next = match round % 3 {
                0 => raw.device().context("device")?,
                1 => raw.monitored_fence(device, 0, false).context("fence")?.handle,
                _ => Room::new(&raw)?.paging_object,
            };
            ensure!(next > last && (next - last).is_multiple_of(0x40), "{next:#x} comes behind {last:#x}");
            // A paging queue's fence comes behind a device, and in front of the queue.
            let passed = if round % 3 == 2 { 0x80 } else { 0x40 };
            same("the distance of two handles", next - last, passed)?;
            match round % 3 {
                0 => raw.destroy_device(next).context("destroy")?,
                1 => raw.destroy_fence(next).context("destroy")?,
                _ => (),
            }
            last = if round % 3 == 2 { next + 0x40 } else { next };
        }
        Ok(())
    })
}

pub(super) fn order(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let device = raw.device().context("device")?;
        for change in [|_: &mut D3DKMT_CREATEALLOCATION| (), shared] {
            let made = resource(&raw, device, change).context("resource")?;
            let behind = made.allocations.map(|allocation| allocation.wrapping_sub(made.resource));
            same("the allocations' handles behind the resource's", behind, [0x40, 0x80])?;
            same("hGlobalShare", made.global, 0)?;
        }
        Ok(())
    })
}

pub(super) fn nothing(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let device = raw.device().context("device")?;
        for create in [false, true] {
            let made = resource(&raw, device, |record| {
                record.hResource = 0x4000_FF40;
                record.Flags.set_CreateResource(create);
            });
            same("a resource that there is not", made.map(|_| ()), Err(Denied(STATUS_INVALID_HANDLE)))?;
        }
        let mut record = D3DKMT_DESTROYALLOCATION2::zeroed();
        record.hDevice = device;
        same("nothing to destroy", raw.call(raw.thunks.D3DKMTDestroyAllocation2, &mut record), STATUS_SUCCESS)
    })
}

pub(super) fn not_shared(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let device = raw.device().context("device")?;
        let made = resource(&raw, device, |_| ()).context("resource")?;
        same("one that was not", raw.share(made.resource, ALL).map(|_| ()), Err(Denied(STATUS_INVALID_PARAMETER)))?;
        let made = resource(&raw, device, shared).context("resource")?;
        raw.share(made.resource, ALL).context("one that was made to be shared")?;
        let alone = raw.share(made.allocations[0], ALL).map(|_| ());
        same("an allocation", alone, Err(Denied(STATUS_INVALID_PARAMETER)))
    })
}

/// Opens a shared resource, with rooms for the runtime's data and for the allocations' of so many bytes; `infos`: with
/// room for what is opened.
fn open(raw: &Raw, device: D3DKMT_HANDLE, nt_handle: HANDLE, [runtime, driver]: [usize; 2], infos: bool) -> NTSTATUS {
    let mut data = [0_u8; 256];
    let mut opened = [D3DDDI_OPENALLOCATIONINFO2::zeroed(); 2];
    let mut record = D3DKMT_OPENRESOURCEFROMNTHANDLE::zeroed();
    (record.hDevice, record.hNtHandle, record.NumAllocations) = (device, nt_handle, 2);
    if infos {
        record.pOpenAllocationInfo2 = opened.as_mut_ptr();
    }
    let (first, second) = data.split_at_mut(128);
    // CAST: a few bytes.
    (record.pPrivateRuntimeData, record.PrivateRuntimeDataSize) = (first.as_mut_ptr().cast(), runtime as u32);
    record.pTotalPrivateDriverDataBuffer = second.as_mut_ptr().cast();
    record.TotalPrivateDriverDataBufferSize = driver as u32;
    raw.call(raw.thunks.D3DKMTOpenResourceFromNtHandle, &mut record)
}

pub(super) fn opened(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let device = raw.device().context("device")?;
        let made = resource(&raw, device, shared).context("resource")?;
        let nt_handle = raw.share(made.resource, ALL).context("share")?;
        for room in [0, RUNTIME.len() + 20] {
            let mut data = [0x5A_u8; 64];
            let mut record = D3DKMT_QUERYRESOURCEINFOFROMNTHANDLE::zeroed();
            (record.hDevice, record.hNtHandle) = (device, nt_handle);
            // CAST: below 64.
            (record.pPrivateRuntimeData, record.PrivateRuntimeDataSize) = (data.as_mut_ptr().cast(), room as u32);
            let status = raw.call(raw.thunks.D3DKMTQueryResourceInfoFromNtHandle, &mut record);
            same("the query", status, STATUS_SUCCESS)?;
            let sizes = [record.PrivateRuntimeDataSize, record.TotalPrivateDriverDataSize, record.NumAllocations];
            // CAST: as above.
            same("what it tells", sizes, [RUNTIME.len() as u32, 2 * PRIVATE as u32, 2])?;
            ensure!(data == [0x5A; 64], "the query has written data");
        }
        let handles = raw.process.open_handles();
        let [runtime, driver] = [RUNTIME.len(), 2 * PRIVATE];
        for (rooms, infos, answer) in [
            ([runtime + 1, driver], true, STATUS_INVALID_PARAMETER),
            ([runtime - 1, driver], true, STATUS_INVALID_PARAMETER),
            ([runtime, driver - 1], true, STATUS_NO_MEMORY),
            ([runtime, driver], false, STATUS_INVALID_PARAMETER),
        ] {
            same("an opening with other sizes", open(&raw, device, nt_handle, rooms, infos), answer)?;
            same("what a refused opening has left open", raw.process.open_handles(), handles)?;
        }
        same("an opening", open(&raw, device, nt_handle, [runtime, driver], true), STATUS_SUCCESS)?;
        same("what it has opened", raw.process.open_handles(), handles + 3)
    })
}

/// Signals a fence from the CPU.
fn signal(raw: &Raw, device: D3DKMT_HANDLE, fence: D3DKMT_HANDLE, value: u64, rewinds: bool) -> NTSTATUS {
    let signaled =
        if rewinds { raw.rewind_cpu(device, fence, value) } else { raw.signal_cpu(device, &[(fence, value)]) };
    signaled.map_or_else(|Denied(status)| status, |()| STATUS_SUCCESS)
}

pub(super) fn rewound(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let device = raw.device().context("device")?;
        let fence = raw.monitored_fence(device, 0, false).context("fence")?;
        let value = || raw.load(fence.cpu);
        same("5", signal(&raw, device, fence.handle, 5, false), STATUS_SUCCESS)?;
        same("5 again", signal(&raw, device, fence.handle, 5, false), STATUS_SUCCESS)?;
        same("back to 4", signal(&raw, device, fence.handle, 4, false), STATUS_INVALID_PARAMETER)?;
        same("the value", value()?, 5)?;
        // Of several none is signaled where one would go back.
        let (two, to) = ([raw.monitored_fence(device, 0, false).context("fence")?.handle, fence.handle], [9, 1]);
        let both = [(two[0], to[0]), (two[1], to[1])];
        same("two at once", raw.signal_cpu(device, &both), Err(Denied(STATUS_INVALID_PARAMETER)))?;
        same("the one that would not", signal(&raw, device, two[0], 1, false), STATUS_SUCCESS)?;
        same("back to 3, as allowed", signal(&raw, device, fence.handle, 3, true), STATUS_SUCCESS)?;
        same("the value", value()?, 3)?;
        let (event, handle) = raw.event();
        raw.wait_cpu(device, &[(fence.handle, 5)], false, Some(handle)).context("wait")?;
        ensure!(!raw.wait_event(&event, Duration::from_millis(20)), "a wait for the old value is over");
        same("5", signal(&raw, device, fence.handle, 5, false), STATUS_SUCCESS)?;
        ensure!(raw.wait_event(&event, Duration::from_secs(20)), "the wait for 5 did not end");
        raw.close(handle);
        Ok(())
    })
}

pub(super) fn typeless(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let device = raw.device().context("device")?;
        for kind in [0, 8, 100, -1] {
            let mut record = D3DKMT_CREATESYNCHRONIZATIONOBJECT2::zeroed();
            record.hDevice = device;
            record.Info.Type = D3DDDI_SYNCHRONIZATIONOBJECT_TYPE(kind);
            let status = raw.call(raw.thunks.D3DKMTCreateSynchronizationObject2, &mut record);
            same("an object of no type", (kind, status), (kind, STATUS_INVALID_PARAMETER))?;
        }
        Ok(())
    })
}

/// `OBJ_CASE_INSENSITIVE`.
const ANY_CASE: u32 = 0x40;

/// A shared object that is made again and again, and how it is opened by its name.
struct Nameable<'a> {
    raw: &'a Raw,
    handle: D3DKMT_HANDLE,
    open: fn(&Raw, u32, Attributes) -> Result<HANDLE, Denied>,
    open_other_kind: fn(&Raw, u32, Attributes) -> Result<HANDLE, Denied>,
}

impl Nameable<'_> {
    /// What names do, of fences as of resources. `used` uses an NT handle of the other process.
    fn played(&self, other: &Raw, name: &str, used: &dyn Fn(HANDLE) -> Played) -> Played {
        let Self { raw, handle, open, open_other_kind } = *self;
        let named = Attributes::named(name);
        same("a name that nothing has", open(other, ALL, named), Err(Denied(STATUS_OBJECT_NAME_NOT_FOUND)))?;
        let first = raw.share_as(handle, ALL, named).context("share")?;
        let again = raw.share_as(handle, ALL, named);
        same("the name a second time", again, Err(Denied(STATUS_OBJECT_NAME_COLLISION)))?;
        same("without a name", open(other, ALL, Attributes::none()), Err(Denied(STATUS_INVALID_PARAMETER)))?;
        let short = Attributes { length: 40, ..named };
        same("a record of another size", open(other, ALL, short), Err(Denied(STATUS_INVALID_PARAMETER)))?;
        same("without any right", open(other, 0, named), Err(Denied(STATUS_ACCESS_DENIED)))?;
        same("as another kind", open_other_kind(other, ALL, named), Err(Denied(STATUS_OBJECT_TYPE_MISMATCH)))?;
        let capitals = name.to_uppercase();
        let wrong = Attributes::named(&capitals);
        same("in capitals", open(other, ALL, wrong), Err(Denied(STATUS_OBJECT_NAME_NOT_FOUND)))?;
        let second = open(other, ALL, Attributes { flags: ANY_CASE, ..wrong }).context("in any case")?;
        // The name lives as long as an NT handle, of whichever process.
        raw.close(first);
        let third = open(other, ALL, named).context("by the second handle's name")?;
        used(third)?;
        other.close(second);
        other.close(third);
        same("behind the last handle", open(other, ALL, named), Err(Denied(STATUS_OBJECT_NAME_NOT_FOUND)))?;
        // What was opened lives on, and can be shared by that name again.
        let last = raw.share_as(handle, ALL, named).context("the same name again")?;
        used(open(other, ALL, named).context("open again")?)?;
        raw.close(last);
        Ok(())
    }
}

pub(super) fn named(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let (raw, other) = (raw(scene)?, raw(scene)?);
        let (device, others) = (raw.device()?, other.device()?);
        let resource = resource(&raw, device, shared).context("resource")?;
        let sizes = [RUNTIME.len(), 2 * PRIVATE];
        let open = |handle| same("open", open(&other, others, handle, sizes, true), STATUS_SUCCESS);
        Nameable {
            raw: &raw,
            handle: resource.resource,
            open: Raw::resource_by_name,
            open_other_kind: Raw::fence_by_name,
        }
        .played(&other, "a resource", &open)?;
        let monitored = raw.monitored_fence(device, 3, true).context("monitored fence")?;
        let open = |handle| -> Played {
            let fence = other.open_monitored_fence(others, handle).context("open the monitored fence")?;
            same("its value", other.load(fence.cpu)?, 3)
        };
        let fence =
            |handle| Nameable { raw: &raw, handle, open: Raw::fence_by_name, open_other_kind: Raw::resource_by_name };
        fence(monitored.handle).played(&other, "a monitored fence", &open)?;
        if !scene.adapter().caps().context("caps")?.has_native_fences() {
            return Ok(());
        }
        let native = raw.shared_native_fence(device, 5).context("native fence")?;
        let open = |handle| -> Played {
            let fence = other.open_native_fence(others, handle).context("open the native fence")?;
            same("its value", other.load(fence.cpu)?, 5)
        };
        fence(native.handle).played(&other, "a native fence", &open)
    })
}
