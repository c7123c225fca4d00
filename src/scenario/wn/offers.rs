//! What VidMm may do with allocations, and the first forms of functions that have a second.

use super::objects::{Made, resource};
use crate::scenario::db::{Room, raw};
use crate::scenario::{Denied, Played, Raw, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::personality::Residency;
use gpu_wire::private::{AllocationData, MAGIC, allocation_kind};
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_SUCCESS};
use wddm_abi::{
    D3DDDI_ALLOCATIONINFO, D3DDDI_RECLAIM_RESULT, D3DKMT_ALLOCATIONRESIDENCYSTATUS as Status, D3DKMT_CREATEALLOCATION,
    D3DKMT_DESTROYALLOCATION, D3DKMT_ENUMADAPTERS, D3DKMT_GETALLOCATIONPRIORITY, D3DKMT_HANDLE, D3DKMT_INVALIDATECACHE,
    D3DKMT_OFFER_PRIORITY, D3DKMT_OFFERALLOCATIONS, D3DKMT_QUERYALLOCATIONRESIDENCY, D3DKMT_QUERYCLOCKCALIBRATION,
    D3DKMT_RECLAIMALLOCATIONS, D3DKMT_RECLAIMALLOCATIONS2, D3DKMT_SETALLOCATIONPRIORITY, NTSTATUS,
};

/// `D3DDDI_ALLOCATIONPRIORITY_LOW`; [`HIGH`] is `_HIGH`.
const LOW: u32 = 0x5000_0000;
/// See [`LOW`].
const HIGH: u32 = 0xA000_0000;

/// What is asked about: the allocations of a resource, or a list.
#[derive(Clone, Copy)]
enum Of<'a> {
    Resource(D3DKMT_HANDLE),
    List(&'a [D3DKMT_HANDLE]),
}

impl Of<'_> {
    /// The resource, the list, its length.
    fn members(self) -> (D3DKMT_HANDLE, *const D3DKMT_HANDLE, u32) {
        match self {
            Self::Resource(resource) => (resource, core::ptr::null(), 0),
            // CAST: a few.
            Self::List(list) => (0, list.as_ptr(), list.len() as u32),
        }
    }
}

fn set_priorities(raw: &Raw, device: D3DKMT_HANDLE, of: Of<'_>, priorities: &[u32]) -> NTSTATUS {
    let mut record = D3DKMT_SETALLOCATIONPRIORITY::zeroed();
    record.hDevice = device;
    (record.hResource, record.phAllocationList, record.AllocationCount) = of.members();
    record.pPriorities = priorities.as_ptr();
    raw.call(raw.thunks.D3DKMTSetAllocationPriority, &mut record)
}

fn priorities<const N: usize>(raw: &Raw, device: D3DKMT_HANDLE, of: Of<'_>) -> Result<[u32; N], Denied> {
    let (mut record, mut found) = (D3DKMT_GETALLOCATIONPRIORITY::zeroed(), [0; N]);
    record.hDevice = device;
    (record.hResource, record.phAllocationList, record.AllocationCount) = of.members();
    record.pPriorities = found.as_mut_ptr();
    raw.ok(raw.thunks.D3DKMTGetAllocationPriority, &mut record)?;
    Ok(found)
}

fn residency<const N: usize>(raw: &Raw, device: D3DKMT_HANDLE, of: Of<'_>) -> Result<[Status; N], Denied> {
    let (mut record, mut found) = (D3DKMT_QUERYALLOCATIONRESIDENCY::zeroed(), [Status(0); N]);
    record.hDevice = device;
    (record.hResource, record.phAllocationList, record.AllocationCount) = of.members();
    record.pResidencyStatus = found.as_mut_ptr();
    raw.ok(raw.thunks.D3DKMTQueryAllocationResidency, &mut record)?;
    Ok(found)
}

fn offer(raw: &Raw, device: D3DKMT_HANDLE, list: &[D3DKMT_HANDLE], priority: i32) -> NTSTATUS {
    let mut record = D3DKMT_OFFERALLOCATIONS::zeroed();
    (record.hDevice, record.HandleList, record.Priority) = (device, list.as_ptr(), D3DKMT_OFFER_PRIORITY(priority));
    // CAST: a few.
    record.NumAllocations = list.len() as u32;
    raw.call(raw.thunks.D3DKMTOfferAllocations, &mut record)
}

/// Reclaims by the first form, and then, offered again, by the second. Returns what each says of the first allocation.
fn reclaim(raw: &Raw, room: &Room<'_>, list: &[D3DKMT_HANDLE]) -> Result<(i32, D3DDDI_RECLAIM_RESULT)> {
    let mut discarded = vec![7; list.len()];
    let mut record = D3DKMT_RECLAIMALLOCATIONS::zeroed();
    (record.hDevice, record.HandleList) = (room.device, list.as_ptr());
    // CAST: a few.
    (record.NumAllocations, record.pDiscarded) = (list.len() as u32, discarded.as_mut_ptr());
    raw.ok(raw.thunks.D3DKMTReclaimAllocations, &mut record)?;
    same("offered again", offer(raw, room.device, list, 2), STATUS_SUCCESS)?;
    let mut results = vec![D3DDDI_RECLAIM_RESULT(7); list.len()];
    let mut second = D3DKMT_RECLAIMALLOCATIONS2::zeroed();
    // CAST: a few.
    (second.hPagingQueue, second.NumAllocations) = (room.paging(), list.len() as u32);
    (second.HandleList, second.PagingFenceValue) = (list.as_ptr(), 7);
    second.set_pResults(results.as_mut_ptr());
    raw.ok(raw.thunks.D3DKMTReclaimAllocations2, &mut second)?;
    same("the fence to wait for", second.PagingFenceValue, 0)?;
    Ok((discarded[0], results[0]))
}

pub(super) fn offered(stage: &Stage) -> Played {
    for short in [false, true] {
        let setup = Setup::default().windows(move |windows| {
            windows.user_mode.residency = if short { Residency::OverBudget } else { Residency::Pending };
        });
        stage.play(setup, |scene| {
            let raw = raw(scene)?;
            let room = Room::new(&raw)?;
            let Made { resource: whole, allocations: pair, .. } = resource(&raw, room.device, |_| ())?;
            let alone = room.create(allocation_kind::LOCAL, 0x1_0000)?;
            priority(&raw, room.device, whole, &pair)?;
            let nowhere = Status::D3DKMT_ALLOCATIONRESIDENCYSTATUS_NOTRESIDENT;
            same("before", residency(&raw, room.device, Of::List(&[alone, pair[0]]))?, [nowhere; 2])?;
            room.make_resident(scene, alone)?;
            let local = Status::D3DKMT_ALLOCATIONRESIDENCYSTATUS_RESIDENTINGPUMEMORY;
            same("local memory", residency(&raw, room.device, Of::List(&[alone, pair[0]]))?, [local, nowhere])?;
            room.make_resident(scene, pair[0])?;
            let system = Status::D3DKMT_ALLOCATIONRESIDENCYSTATUS_RESIDENTINSHAREDMEMORY;
            same("the halves", residency(&raw, room.device, Of::List(&pair))?, [system, nowhere])?;
            same("as its worst", residency(&raw, room.device, Of::Resource(whole))?, [nowhere])?;
            same("an offer", offer(&raw, room.device, &pair[1..], 1), STATUS_SUCCESS)?;
            for priority in [0, 5] {
                let refused = offer(&raw, room.device, &pair[1..], priority);
                same("a priority that there is not", refused, STATUS_INVALID_PARAMETER)?;
            }
            let gone = reclaim(&raw, &room, &pair[1..])?;
            let lost = D3DDDI_RECLAIM_RESULT::D3DDDI_RECLAIM_RESULT_DISCARDED;
            let fine = D3DDDI_RECLAIM_RESULT::D3DDDI_RECLAIM_RESULT_OK;
            same("what is resident nowhere", gone, if short { (1, lost) } else { (0, fine) })?;
            same("another offer", offer(&raw, room.device, &[alone], 3), STATUS_SUCCESS)?;
            same("what is resident", reclaim(&raw, &room, &[alone])?, (0, fine))?;
            let mut cache = D3DKMT_INVALIDATECACHE::zeroed();
            (cache.hDevice, cache.hAllocation, cache.Length) = (room.device, alone, 0x1_0000);
            raw.ok(raw.thunks.D3DKMTInvalidateCache, &mut cache)?;
            cache.Offset = 1;
            let beyond = raw.call(raw.thunks.D3DKMTInvalidateCache, &mut cache);
            same("beyond its end", beyond, STATUS_INVALID_PARAMETER)
        })?;
    }
    Ok(())
}

fn priority(raw: &Raw, device: D3DKMT_HANDLE, whole: D3DKMT_HANDLE, pair: &[D3DKMT_HANDLE; 2]) -> Played {
    let [first] = priorities(raw, device, Of::Resource(whole))?;
    ensure!(first != 0, "the driver's priority is 0");
    same("two", set_priorities(raw, device, Of::List(pair), &[LOW, HIGH]), STATUS_SUCCESS)?;
    same("each has its own", priorities(raw, device, Of::List(pair))?, [LOW, HIGH])?;
    same("one for all", set_priorities(raw, device, Of::Resource(whole), &[HIGH]), STATUS_SUCCESS)?;
    same("both have it", priorities(raw, device, Of::List(pair))?, [HIGH, HIGH])?;
    let odd = set_priorities(raw, device, Of::List(pair), &[LOW, HIGH + 1]);
    same("one that the page does not list", odd, STATUS_INVALID_PARAMETER)?;
    same("nothing has changed", priorities(raw, device, Of::List(pair))?, [HIGH, HIGH])
}

pub(super) fn first_forms(stage: &Stage) -> Played {
    stage.play(Setup::default(), |scene| {
        let raw = raw(scene)?;
        let device = raw.device().context("device")?;
        let mut data = [AllocationData { magic: MAGIC, kind: allocation_kind::SYSTEM, size: 4096, reserved: 0 }; 2];
        let mut infos = [D3DDDI_ALLOCATIONINFO::zeroed(); 2];
        for (info, data) in infos.iter_mut().zip(&mut data) {
            info.pPrivateDriverData = core::ptr::from_mut(data).cast();
            // CAST: 24.
            info.PrivateDriverDataSize = size_of::<AllocationData>() as u32;
        }
        let mut record = D3DKMT_CREATEALLOCATION::zeroed();
        (record.hDevice, record.NumAllocations) = (device, 2);
        record.set_pAllocationInfo(infos.as_mut_ptr());
        raw.ok(raw.thunks.D3DKMTCreateAllocation, &mut record).context("D3DKMTCreateAllocation")?;
        let made = infos.map(|info| info.hAllocation);
        ensure!(made[0] != 0 && made[1] == made[0] + 0x40, "{made:x?}");
        let mut gone = D3DKMT_DESTROYALLOCATION::zeroed();
        (gone.hDevice, gone.phAllocationList, gone.AllocationCount) = (device, made.as_ptr(), 2);
        raw.ok(raw.thunks.D3DKMTDestroyAllocation, &mut gone).context("D3DKMTDestroyAllocation")?;
        let again = raw.call(raw.thunks.D3DKMTDestroyAllocation, &mut gone);
        same("a second time", again, STATUS_INVALID_PARAMETER)?;
        let mut all = D3DKMT_ENUMADAPTERS::zeroed();
        raw.ok(raw.thunks.D3DKMTEnumAdapters, &mut all).context("D3DKMTEnumAdapters")?;
        let wanted = scene.adapter().luid();
        // CAST: 16 at most.
        let mut listed = all.Adapters[..all.NumAdapters as usize].iter();
        let same_luid = |info: &&wddm_abi::D3DKMT_ADAPTERINFO| {
            (info.AdapterLuid.LowPart, info.AdapterLuid.HighPart) == (wanted.LowPart, wanted.HighPart)
        };
        ensure!(listed.find(same_luid).is_some_and(|info| info.hAdapter != 0), "the adapter is not among them");
        let clock = |node: u32| {
            let mut record = D3DKMT_QUERYCLOCKCALIBRATION::zeroed();
            (record.hAdapter, record.NodeOrdinal) = (raw.adapter, node);
            let status = raw.call(raw.thunks.D3DKMTQueryClockCalibration, &mut record);
            let data = record.ClockData;
            (status, data.GpuFrequency, data.GpuClockCounter)
        };
        let ((status, frequency, first), second) = (clock(0), clock(0));
        ensure!(status == STATUS_SUCCESS && frequency != 0 && second.2 > first, "{status:?}, {frequency}, {second:?}");
        same("a node that there is not", clock(9), (STATUS_INVALID_PARAMETER, 0, 0))
    })
}
