//! Memory that a process has already, as an allocation.
#![expect(unsafe_code, reason = "functions of the driver's table are called and given records")]

use super::idle::wait_for_idle;
use crate::scenario::db::{Memory, Room, denied, raw};
use crate::scenario::raw::ALL;
use crate::scenario::{Denied, Played, Raw, Scene, Setup, Stage, duplicate, same};
use crate::wrap::own;
use anyhow::{Context, Result, ensure};
use gpu_wire::packet::{Copy, Store};
use gpu_wire::private::{AllocationData, MAGIC, allocation_kind};
use nt_model::{MapError, PAGE_SIZE, Rights};
use wddm_abi::ntstatus::{
    STATUS_ACCESS_VIOLATION, STATUS_INVALID_HANDLE, STATUS_INVALID_PARAMETER, STATUS_NO_MEMORY, STATUS_NOT_SUPPORTED,
    STATUS_SUCCESS,
};
use wddm_abi::{
    D3DDDI_ALLOCATIONINFO2, D3DDDI_OPENALLOCATIONINFO2, D3DKMDT_GDISURFACETYPE, D3DKMDT_STANDARDALLOCATION_TYPE,
    D3DKMT_CREATEALLOCATION, D3DKMT_CREATESTANDARDALLOCATION as Standard, D3DKMT_HANDLE, D3DKMT_LOCK2,
    D3DKMT_OPENRESOURCEFROMNTHANDLE, D3DKMT_STANDARDALLOCATIONTYPE as Type, DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA,
    HANDLE, NTSTATUS,
};

/// The driver's function that is asked.
const ASKED: &str = "DxgkDdiGetStandardAllocationDriverData";
/// Sizes of the driver's data.
const PRIVATE: usize = size_of::<AllocationData>();
const PAGE: u64 = PAGE_SIZE as u64;

crate::decorate! {
    /// Describes heaps and surfaces that adapters share, as system memory of the driver's.
    serves: DxgkDdiGetStandardAllocationDriverData(
        adapter: HANDLE, args: *mut DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA,
    ) -> NTSTATUS {
        let record = crate::record!(args);
        if record.StandardAllocationType != D3DKMDT_STANDARDALLOCATION_TYPE::D3DKMDT_STANDARDALLOCATION_GDISURFACE {
            return own!(DxgkDdiGetStandardAllocationDriverData(adapter, args));
        }
        let surface = crate::record!(record.pCreateGdiSurfaceData());
        if surface.Type != D3DKMDT_GDISURFACETYPE::D3DKMDT_GDISURFACE_TEXTURE_CROSSADAPTER {
            return STATUS_NO_MEMORY;
        }
        // CAST: 24.
        (record.AllocationPrivateDriverDataSize, record.ResourcePrivateDriverDataSize) = (PRIVATE as u32, 0);
        if !record.pAllocationPrivateDriverData.is_null() {
            surface.Pitch = if surface.Format.0 == 0 { surface.Width } else { 4 * surface.Width };
            let size = u64::from(surface.Pitch) * u64::from(surface.Height);
            let data = AllocationData { magic: MAGIC, kind: allocation_kind::SYSTEM, size, reserved: 0 };
            let to: *mut AllocationData = record.pAllocationPrivateDriverData.cast();
            // SAFETY: memory of the size that was asked for, which need not be aligned.
            unsafe { to.write_unaligned(data) };
        }
        STATUS_SUCCESS
    }
}

/// What is asked for.
#[derive(Clone, Copy)]
struct Wanted {
    at: usize,
    bytes: u64,
    kind: Type,
}

impl Wanted {
    fn heap(at: usize, bytes: u64) -> Self {
        Self { at, bytes, kind: Type::D3DKMT_STANDARDALLOCATIONTYPE_EXISTINGHEAP }
    }

    /// Makes the allocation; `change` has the last word on the records. Its handle, and its resource's.
    fn create(
        self,
        raw: &Raw,
        device: D3DKMT_HANDLE,
        change: impl FnOnce(&mut D3DKMT_CREATEALLOCATION, &mut Standard, &mut D3DDDI_ALLOCATIONINFO2),
    ) -> Result<(D3DKMT_HANDLE, D3DKMT_HANDLE), Denied> {
        let mut standard = Standard::zeroed();
        standard.Type = self.kind;
        // CAST: D3DKMT_SIZE_T has 64 bits here.
        standard.ExistingHeapData_mut().Size = self.bytes as _;
        let mut info = D3DDDI_ALLOCATIONINFO2::zeroed();
        info.set_pSystemMem(core::ptr::with_exposed_provenance(self.at));
        let mut record = D3DKMT_CREATEALLOCATION::zeroed();
        (record.hDevice, record.NumAllocations) = (device, 1);
        record.Flags.set_StandardAllocation(true);
        record.Flags.set_ExistingSysMem(true);
        change(&mut record, &mut standard, &mut info);
        record.set_pStandardAllocation(&raw mut standard);
        record.set_pAllocationInfo2(&raw mut info);
        raw.ok(raw.thunks.D3DKMTCreateAllocation2, &mut record)?;
        Ok((info.hAllocation, record.hResource))
    }
}

/// Everything that is refused before the driver is asked.
fn refused(scene: &Scene, raw: &Raw, room: &Room<'_>) -> Played {
    let (kernel, process) = (scene.world.os.kernel(), raw.process.nt());
    let own = kernel.allocate_user(process, 4).context("memory")?;
    let heap = Wanted::heap(own, 2 * PAGE);
    let (asked, handles) = (scene.calls(ASKED), raw.process.open_handles());
    let is = |what: &str, wanted: Wanted, status| denied(what, wanted.create(raw, room.device, |_, _, _| ()), status);
    for (what, at, bytes) in [
        ("NULL", 0, PAGE),
        ("an address within a page", own + 8, PAGE),
        ("no bytes", own, 0),
        ("half a page", own, PAGE / 2),
        ("more than there is", own, 5 * PAGE),
        ("more than there is, from its end", own + 3 * PAGE_SIZE, 2 * PAGE),
        ("beyond all addresses", own, !(PAGE - 1)),
    ] {
        let status = if bytes > 1 << 30 { STATUS_NO_MEMORY } else { STATUS_INVALID_PARAMETER };
        is(what, Wanted::heap(at, bytes), status)?;
    }
    is("nothing of the process's", Wanted::heap(PAGE_SIZE, PAGE), STATUS_ACCESS_VIOLATION)?;
    let read_only = kernel.allocate_user(process, 1).context("memory")?;
    kernel.protect_user(process, read_only, Rights::Read)?;
    is("memory to read", Wanted::heap(read_only, PAGE), STATUS_ACCESS_VIOLATION)?;
    let other = scene.raw("another")?;
    let theirs = kernel.allocate_user(other.process.nt(), 1).context("memory")?;
    is("another process's", Wanted::heap(theirs, PAGE), STATUS_ACCESS_VIOLATION)?;
    let locked = room.memory(scene, PAGE)?;
    is("an allocation's", Wanted::heap(locked.cpu, PAGE), STATUS_INVALID_PARAMETER)?;
    for number in [-1, 0, 3, i32::MAX] {
        is("no type", Wanted { kind: Type(number), ..heap }, STATUS_INVALID_PARAMETER)?;
    }
    let store = Wanted { kind: Type::D3DKMT_STANDARDALLOCATIONTYPE_INTERNALBACKINGSTORE, ..heap };
    is("a backing store of memory that is there", store, STATUS_INVALID_PARAMETER)?;
    type Change = fn(&mut D3DKMT_CREATEALLOCATION, &mut Standard, &mut D3DDDI_ALLOCATIONINFO2);
    let changes: &[(&str, Change, NTSTATUS)] = &[
        ("neither", |record, _, _| record.Flags.set_ExistingSysMem(false), STATUS_INVALID_PARAMETER),
        ("both", |record, _, _| record.Flags.set_ExistingSection(true), STATUS_INVALID_PARAMETER),
        (
            "a section",
            |record, _, _| {
                record.Flags.set_ExistingSysMem(false);
                record.Flags.set_ExistingSection(true);
            },
            STATUS_NOT_SUPPORTED,
        ),
        ("none that is standard", |record, _, _| record.Flags.set_StandardAllocation(false), STATUS_INVALID_PARAMETER),
        ("two", |record, _, _| record.NumAllocations = 2, STATUS_INVALID_PARAMETER),
        ("none", |record, _, _| record.NumAllocations = 0, STATUS_INVALID_PARAMETER),
        ("a resource that there is not", |record, _, _| record.hResource = 0x4000_FF40, STATUS_INVALID_HANDLE),
        ("cross-adapter, not shared", |record, _, _| record.Flags.set_CrossAdapter(true), STATUS_INVALID_PARAMETER),
        ("shared, no resource", |record, _, _| record.Flags.set_CreateShared(true), STATUS_INVALID_PARAMETER),
        ("reserved flags", |_, standard, _| standard.Flags.Value = 1, STATUS_INVALID_PARAMETER),
        ("private data", |record, _, _| record.PrivateDriverDataSize = 8, STATUS_INVALID_PARAMETER),
        ("data of the runtime", |record, _, _| record.PrivateRuntimeDataSize = 8, STATUS_INVALID_PARAMETER),
        ("private data of it", |_, _, info| info.PrivateDriverDataSize = 8, STATUS_INVALID_PARAMETER),
        ("no device", |record, _, _| record.hDevice = 0, STATUS_INVALID_PARAMETER),
    ];
    for (what, change, status) in changes {
        denied(what, heap.create(raw, room.device, change), *status)?;
    }
    same("what is refused leaves nothing behind", raw.process.open_handles(), handles + 1)?;
    same("questions to the driver", scene.calls(ASKED), asked)?;
    kernel.free_user(process, own).context("memory of no allocation")
}

/// Where a process has an allocation locked.
fn lock(raw: &Raw, device: D3DKMT_HANDLE, allocation: D3DKMT_HANDLE) -> Result<usize, Denied> {
    let mut lock = D3DKMT_LOCK2::zeroed();
    (lock.hDevice, lock.hAllocation) = (device, allocation);
    raw.ok(raw.thunks.D3DKMTLock2, &mut lock)?;
    Ok(lock.pData.expose_provenance())
}

/// Has the GPU carry out packets, and waits until it has.
fn run(
    raw: &Raw,
    room: &Room<'_>,
    context: D3DKMT_HANDLE,
    code: &Memory,
    packets: &[gpu_wire::packet::Encoded],
) -> Played {
    let bytes: Vec<u8> = packets.iter().flat_map(|packet| packet.as_bytes().to_vec()).collect();
    code.write(raw, 0, &bytes)?;
    // CAST: a few packets.
    raw.submit_command(context, code.gpu, bytes.len() as u32).context("submit")?;
    same("idle", wait_for_idle(raw, room.device), STATUS_SUCCESS)
}

/// A heap of three pages amid five of the process's.
fn used(scene: &Scene, raw: &Raw, room: &Room<'_>) -> Played {
    let (kernel, process) = (scene.world.os.kernel(), raw.process.nt());
    let all = kernel.allocate_user(process, 5).context("memory")?;
    let heap = all + PAGE_SIZE;
    raw.store(heap + 16, 0x77)?;
    let (handle, resource) = Wanted::heap(heap, 3 * PAGE).create(raw, room.device, |_, _, _| ()).context("a heap")?;
    same("a resource", resource, 0)?;
    same("memory that is an allocation", kernel.free_user(process, all), Err(MapError::InUse))?;
    let code = room.memory(scene, PAGE)?;
    let context = room.packet_context(2).context("context")?;
    for round in 1..=2 {
        room.make_resident(scene, handle)?;
        let gpu = room.map(scene, handle, 0)?;
        let last = gpu + 2 * PAGE;
        let stores = [
            Store { address: gpu + 8, value: round }.to_packet(),
            Store { address: last + 8, value: round + 10 }.to_packet(),
            Copy { source: gpu + 16, destination: code.gpu + 2048, length: 8 }.to_packet(),
        ];
        run(raw, room, context, &code, &stores)?;
        same("the first page", raw.load(heap + 8)?, round)?;
        same("the last page", raw.load(heap + 2 * PAGE_SIZE + 8)?, round + 10)?;
        same("what the GPU has read", raw.load(code.cpu + 2048)?, 0x77)?;
        ensure!(raw.load(all + 8)? == 0 && raw.load(all + 4 * PAGE_SIZE + 8)? == 0, "memory beside it was written");
        let locked = lock(raw, room.device, handle).context("lock")?;
        ensure!(locked != heap, "locked where it is");
        same("what is locked", raw.load(locked + 8)?, round)?;
        room.evict(handle)?;
        same("behind the eviction", raw.load(heap + 8)?, round)?;
    }
    // A second allocation of the same memory.
    let (second, _) = Wanted::heap(heap, PAGE).create(raw, room.device, |_, _, _| ()).context("the same memory")?;
    room.destroy(handle).context("destroy")?;
    same("memory that is another allocation", kernel.free_user(process, all), Err(MapError::InUse))?;
    room.destroy(second).context("destroy the second")?;
    kernel.free_user(process, all).context("memory that is no allocation any more")
}

/// A heap that is shared, of a process that ends before the other one.
fn shared(scene: &Scene) -> Played {
    let (raw, other) = (scene.raw("maker")?, scene.raw("opener")?);
    let (device, theirs) = (raw.device()?, other.device()?);
    let heap = scene.world.os.kernel().allocate_user(raw.process.nt(), 1).context("memory")?;
    raw.store(heap + 8, 0x5EED)?;
    let made = Wanted::heap(heap, PAGE).create(&raw, device, |record, _, _| {
        record.Flags.set_CreateResource(true);
        record.Flags.set_CreateShared(true);
        record.Flags.set_NtSecuritySharing(true);
        record.Flags.set_CrossAdapter(true);
    });
    let (allocation, resource) = made.context("a shared heap")?;
    ensure!(resource != 0 && allocation > resource, "{allocation:#x} of {resource:#x}");
    let given = duplicate(raw.share(resource, ALL)?, &raw.process, &other.process)?;
    let (mut data, mut infos) = ([0_u8; PRIVATE], [D3DDDI_OPENALLOCATIONINFO2::zeroed()]);
    let mut record = D3DKMT_OPENRESOURCEFROMNTHANDLE::zeroed();
    (record.hDevice, record.hNtHandle, record.NumAllocations) = (theirs, given, 1);
    record.pOpenAllocationInfo2 = infos.as_mut_ptr();
    record.pTotalPrivateDriverDataBuffer = data.as_mut_ptr().cast();
    // CAST: 24.
    record.TotalPrivateDriverDataBufferSize = PRIVATE as u32;
    other.ok(other.thunks.D3DKMTOpenResourceFromNtHandle, &mut record).context("open")?;
    let described = AllocationData::read(&data).context("the driver's data")?;
    same("what the driver has said", (described.magic, described.size), (MAGIC, PAGE))?;
    // The maker ends.
    drop(raw);
    let seen = lock(&other, theirs, infos[0].hAllocation);
    if scene.adapter().personality().user_mode.creator_locks {
        let refused = Err(Denied(STATUS_INVALID_PARAMETER));
        return same("a lock by whoever has not made it", seen.map(|_| ()), refused);
    }
    let seen = seen.context("lock")?;
    same("what the maker stored", other.load(seen + 8)?, 0x5EED)
}

pub(super) fn existing(stage: &Stage) -> Played {
    stage.play(Setup::default().setting("MaxRung", 0), |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        refused(scene, &raw, &room)?;
        // This driver reports no CrossAdapterResource: it is not asked.
        let own = scene.world.os.kernel().allocate_user(raw.process.nt(), 1).context("memory")?;
        let asked = scene.calls(ASKED);
        let heap = Wanted::heap(own, PAGE).create(&raw, room.device, |_, _, _| ());
        denied("a heap of a driver that serves none", heap, STATUS_NOT_SUPPORTED)?;
        same("questions to the driver", scene.calls(ASKED), asked)?;
        scene.world.os.kernel().free_user(raw.process.nt(), own).context("memory that was refused")
    })?;
    let setup = Setup::default().setting("MaxRung", 0).setting("CrossAdapterResource", 1).with_driver(serves);
    stage.play(setup, |scene| {
        let raw = raw(scene)?;
        let room = Room::new(&raw)?;
        refused(scene, &raw, &room)?;
        let asked = scene.calls(ASKED);
        used(scene, &raw, &room)?;
        same("questions to the driver, for sizes and for data", scene.calls(ASKED), asked + 4)?;
        shared(scene)
    })
}
