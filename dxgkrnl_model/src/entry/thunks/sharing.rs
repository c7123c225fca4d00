//! Thunks that share objects by NT handles.

use std::sync::Arc;

use nt_model::{Machine, shims};
use wddm_abi::{
    D3DDDI_OPENALLOCATIONINFO2, D3DKMT_OPENNATIVEFENCEFROMNTHANDLE, D3DKMT_OPENNTHANDLEFROMNAME,
    D3DKMT_OPENRESOURCEFROMNTHANDLE, D3DKMT_OPENSYNCOBJECTFROMNTHANDLE, D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2,
    D3DKMT_OPENSYNCOBJECTNTHANDLEFROMNAME, D3DKMT_QUERYRESOURCEINFOFROMNTHANDLE, HANDLE, NTSTATUS, OBJECT_ATTRIBUTES,
    Plain, UNICODE_STRING, ntstatus,
};

use super::device::device;
use super::fence::is_one_adapter;
use super::{Call, DONE, INVALID, Outcome, capture, thunks};
use crate::memory::allocation::{self, Resource};
use crate::objects::device::Device;
use crate::objects::fence::monitored::{Behaviour, FenceState, MonitoredFence, are_for_monitored};
use crate::objects::fence::native::{KeptFence, LocalFence};
use crate::objects::open_allocation::KeptResource;
use crate::objects::process::UserObject;
use crate::objects::sharing::{Body, Name, Names, SharedObject};

/// `STANDARD_RIGHTS_READ` of winnt.h.
const STANDARD_RIGHTS_READ: u32 = 0x0002_0000;

/// What an NT handle leads to.
fn shared(call: &Call, handle: HANDLE) -> Result<Arc<SharedObject>, NTSTATUS> {
    let number = handle.expose_provenance() as u64;
    call.process.nt().handle::<SharedObject>(number).ok_or(ntstatus::STATUS_INVALID_HANDLE)
}

fn shared_resource(call: &Call, handle: HANDLE) -> Result<Arc<Resource>, NTSTATUS> {
    match &*shared(call, handle)?.body {
        Body::Resource(resource) => Ok(resource.resource().clone()),
        _ => Err(INVALID),
    }
}

/// A monitored fence is opened as a native one on another adapter than its own, if it is for several and that one has
/// them.
fn is_foreign(state: &FenceState, device: &Device) -> bool {
    state.is_for(device.adapter())
        && !state.is_at_home(device.adapter())
        && device.adapter().known_caps().has_native_fences()
}

/// What an NT handle allows, if that is anything.
fn readable(access: u32) -> Result<u32, NTSTATUS> {
    if access & STANDARD_RIGHTS_READ == 0 { Err(ntstatus::STATUS_ACCESS_DENIED) } else { Ok(access) }
}

/// Whether a fence may be opened with these flags: see [`crate::port::personality::UserMode::bare_opening`].
fn takes_flags(device: &Device, flags: &[u8]) -> Result<(), NTSTATUS> {
    let bare = device.adapter().personality().user_mode.bare_opening;
    if bare && flags.iter().any(|byte| *byte != 0) { Err(INVALID) } else { Ok(()) }
}

thunks! {
    /// Opening shared objects.
    table THUNKS;

    fn D3DKMTOpenNativeFenceFromNtHandle(call, record: D3DKMT_OPENNATIVEFENCEFROMNTHANDLE) {
        let device = device(call, record.hDevice)?;
        if record.Reserved != [0; 32] || record.Flags.Reserved() != 0 || record.Flags.Reserved0() {
            return Err(INVALID);
        }
        // As at the fence's creation.
        if are_for_monitored(record.Flags) || !is_one_adapter(record.EngineAffinity) {
            return Err(INVALID);
        }
        takes_flags(&device, record.Flags.as_bytes())?;
        let private = &mut record.PrivateDriverData;
        let shared = shared(call, record.hNtHandle)?;
        let local = match &*shared.body {
            Body::Native(held) => LocalFence::open(&device, held.fence(), private, readable(shared.access)?)?,
            Body::Monitored(state) if is_foreign(state, &device) => {
                LocalFence::open_monitored(&device, state, private, readable(shared.access)?)?
            }
            _ => return Err(INVALID),
        };
        super::fence::show(&mut record.NativeFenceMapping, &local);
        record.hSyncObject = call.insert(UserObject::Native(local))?;
        DONE
    }

    fn D3DKMTOpenSyncObjectFromNtHandle2(call, record: D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2) {
        let device = device(call, record.hDevice)?;
        takes_flags(&device, record.Flags.as_bytes())?;
        let has_native = device.adapter().known_caps().has_native_fences();
        let shared = shared(call, record.hNtHandle)?;
        let state = match &*shared.body {
            Body::Monitored(state) if state.is_for(device.adapter()) => state.clone(),
            Body::Native(held) if held.fence().is_cross_adapter() && !has_native => {
                // Chosen: GPUs that store 32 bits cannot signal its 64.
                if !device.adapter().known_caps().has_64_bit_atomics() {
                    return Err(ntstatus::STATUS_NOT_SUPPORTED);
                }
                held.fence().twin().ok_or(INVALID)?
            }
            _ => return Err(INVALID),
        };
        let behaviour = Behaviour::of(record.Flags).ok_or(INVALID)?;
        let fence = MonitoredFence::open(&device, &state, readable(shared.access)?, behaviour.shared())?;
        let member = record.MonitoredFence_mut();
        member.FenceValueCPUVirtualAddress = core::ptr::with_exposed_provenance_mut(fence.view().user);
        member.FenceValueGPUVirtualAddress = fence.view().gpu;
        record.hSyncObject = call.insert(UserObject::Monitored(fence))?;
        DONE
    }

    // Without a device there is neither an address of a monitored fence nor a native one. Source: DDI page
    // D3DKMT_OPENSYNCOBJECTFROMNTHANDLE; Wine's tests of D3DKMT, which run on Windows (a device is not asked for).
    // Chosen: for the waits and signals of the OS, a monitored fence is opened all the same.
    fn D3DKMTOpenSyncObjectFromNtHandle(call, record: D3DKMT_OPENSYNCOBJECTFROMNTHANDLE) {
        let shared = shared(call, record.hNtHandle)?;
        let Body::Monitored(state) = &*shared.body else { return Err(INVALID) };
        let access = readable(shared.access)?;
        let home = call.shared.adapters().into_iter().find(|adapter| state.is_at_home(adapter));
        let adapter = home.filter(|adapter| adapter.is_started()).ok_or(ntstatus::STATUS_DEVICE_REMOVED)?;
        let fence = MonitoredFence::open_bare(&adapter, state, access);
        record.hSyncObject = call.insert(UserObject::Monitored(fence))?;
        DONE
    }

    fn D3DKMTOpenSyncObjectNtHandleFromName(call, record: D3DKMT_OPENSYNCOBJECTNTHANDLEFROMNAME) {
        let attributes = record.pObjAttrib.expose_provenance();
        let is_fence = |body: &Body| !matches!(body, Body::Resource(_));
        record.hNtHandle = by_name(call, attributes, record.dwDesiredAccess, is_fence)?;
        DONE
    }

    fn D3DKMTOpenNtHandleFromName(call, record: D3DKMT_OPENNTHANDLEFROMNAME) {
        let attributes = record.pObjAttrib.expose_provenance();
        let is_resource = |body: &Body| matches!(body, Body::Resource(_));
        record.hNtHandle = by_name(call, attributes, record.dwDesiredAccess, is_resource)?;
        DONE
    }

    fn D3DKMTQueryResourceInfoFromNtHandle(call, record: D3DKMT_QUERYRESOURCEINFOFROMNTHANDLE) {
        device(call, record.hDevice)?;
        let resource = shared_resource(call, record.hNtHandle)?;
        let allocations = resource.allocations.lock().clone();
        let total: usize = allocations.iter().map(|allocation| allocation.private.len()).sum();
        // The buffer for the runtime's data is not looked at. Source: Wine's tests of D3DKMT, which run on Windows.
        // CAST: sizes that came from 32-bit members.
        record.PrivateRuntimeDataSize = resource.runtime.len() as u32;
        record.TotalPrivateDriverDataSize = total as u32;
        record.ResourcePrivateDriverDataSize = resource.private.len() as u32;
        record.NumAllocations = allocations.len() as u32;
        DONE
    }

    fn D3DKMTOpenResourceFromNtHandle(call, record: D3DKMT_OPENRESOURCEFROMNTHANDLE) {
        open_resource(call, record)
    }
}

/// `OBJ_CASE_INSENSITIVE` of ntdef.h.
const OBJ_CASE_INSENSITIVE: u32 = 0x40;

/// The name that `OBJECT_ATTRIBUTES` at this address have; none without attributes, or without a name in them.
///
/// Source: ntdef.h. Chosen, as of other calls of NT: a length that is not that of the structure, and half a code unit,
/// are STATUS_INVALID_PARAMETER.
fn name_at(address: usize) -> Result<Option<Name>, NTSTATUS> {
    if address == 0 {
        return Ok(None);
    }
    let attributes: OBJECT_ATTRIBUTES = capture::read(address)?;
    if attributes.Length as usize != size_of::<OBJECT_ATTRIBUTES>() {
        return Err(INVALID);
    }
    let name = attributes.ObjectName.expose_provenance();
    if name == 0 {
        return Ok(None);
    }
    let name: UNICODE_STRING = capture::read(name)?;
    if !name.Length.is_multiple_of(2) {
        return Err(INVALID);
    }
    let units: Vec<u16> = capture::array(name.Buffer.cast_const(), u32::from(name.Length / 2))?;
    let text = String::from_utf16_lossy(&units);
    let any_case = attributes.Attributes & OBJ_CASE_INSENSITIVE != 0;
    Ok((!text.is_empty()).then_some(Name { text, any_case }))
}

/// A new NT handle to the object of a name.
///
/// Source: Wine's tests of D3DKMT, which run on Windows: without attributes STATUS_INVALID_PARAMETER, of a name that
/// nothing has STATUS_OBJECT_NAME_NOT_FOUND, without any right STATUS_ACCESS_DENIED. Chosen: in this order; an object
/// that is of another kind is STATUS_OBJECT_TYPE_MISMATCH.
fn by_name(call: &Call, attributes: usize, access: u32, fits: impl Fn(&Body) -> bool) -> Result<HANDLE, NTSTATUS> {
    let name = name_at(attributes)?.ok_or(INVALID)?;
    let body = Names::of(&call.shared).find(&name).ok_or(ntstatus::STATUS_OBJECT_NAME_NOT_FOUND)?;
    if access == 0 {
        return Err(ntstatus::STATUS_ACCESS_DENIED);
    }
    if !fits(&body) {
        return Err(ntstatus::STATUS_OBJECT_TYPE_MISMATCH);
    }
    let number = call.process.nt().insert_handle(Arc::new(SharedObject { body, access }));
    // CAST: a handle's number.
    Ok(core::ptr::with_exposed_provenance_mut(number as usize))
}

fn open_resource(call: &Call, record: &mut D3DKMT_OPENRESOURCEFROMNTHANDLE) -> Outcome {
    let device = device(call, record.hDevice)?;
    let resource = shared_resource(call, record.hNtHandle)?;
    let allocations = resource.allocations.lock().clone();
    let same_adapter = |allocation: &Arc<allocation::Allocation>| Arc::ptr_eq(allocation.adapter(), device.adapter());
    if !allocations.iter().all(same_adapter) {
        return Err(ntstatus::STATUS_NOT_SUPPORTED);
    }
    if record.NumAllocations as usize != allocations.len() {
        return Err(INVALID);
    }
    let total: usize = allocations.iter().map(|allocation| allocation.private.len()).sum();
    // Source: Wine's tests of D3DKMT, which run on Windows: the size of the runtime's data is exact; of too short a
    // buffer for the driver's they expect STATUS_NO_MEMORY. Chosen: for the resource's as for the allocations'.
    if record.PrivateRuntimeDataSize as usize != resource.runtime.len() {
        return Err(INVALID);
    }
    let room = [
        (record.TotalPrivateDriverDataBufferSize as usize, total),
        (record.ResourcePrivateDriverDataSize as usize, resource.private.len()),
    ];
    if room.iter().any(|(room, needed)| room < needed) {
        return Err(ntstatus::STATUS_NO_MEMORY);
    }
    let opened = crate::objects::open_allocation::open(&call.process, &device, &allocations, Some(&resource), false)?;
    // What is refused from here on leaves no handle behind.
    opened.allocations.iter().chain([&opened.resource]).for_each(|handle| call.makes(*handle));
    capture::store(record.pPrivateRuntimeData.expose_provenance(), &resource.runtime)?;
    capture::store(record.pResourcePrivateDriverData.expose_provenance(), &resource.private)?;
    let mut at = record.pTotalPrivateDriverDataBuffer.expose_provenance();
    for (index, (allocation, handle)) in allocations.iter().zip(&opened.allocations).enumerate() {
        capture::store(at, &allocation.private)?;
        let mut info = D3DDDI_OPENALLOCATIONINFO2::zeroed();
        info.hAllocation = *handle;
        info.pPrivateDriverData = core::ptr::with_exposed_provenance(at);
        // CAST: it came from a 32-bit member.
        info.PrivateDriverDataSize = allocation.private.len() as u32;
        let place = record.pOpenAllocationInfo2.expose_provenance() + index * size_of_val(&info);
        capture::store(place, info.as_bytes())?;
        at += allocation.private.len();
    }
    // CAST: as above.
    record.TotalPrivateDriverDataBufferSize = total as u32;
    record.hResource = opened.resource;
    record.hKeyedMutex = 0;
    record.hSyncObject = 0;
    DONE
}

/// `D3DKMTShareObjects`. What was opened is shared again with the rights that it was opened with, at most.
fn share(call: &Call, wanted: &Wanted) -> Outcome {
    let &Wanted { count, handles, attributes, access, result } = wanted;
    if count != 1 {
        return Err(INVALID);
    }
    let handle: u32 = capture::read(handles)?;
    let native = call.process.native_fence(handle).filter(|fence| fence.fence().is_shared());
    let monitored = call.process.monitored_fence(handle).filter(|fence| fence.is_shared());
    // Source: Wine's tests of D3DKMT, which run on Windows: what was not made to be shared cannot be.
    let resource = call.process.resource(handle).filter(|resource| resource.resource().shared);
    let (body, access) = match (native, monitored, resource) {
        (Some(fence), ..) => (Body::Native(KeptFence::new(&fence).ok_or(INVALID)?), access & fence.access()),
        (_, Some(fence), _) => (Body::Monitored(fence.state().clone()), access & fence.access()),
        (_, _, Some(resource)) => (Body::Resource(KeptResource::new(resource.resource())), access),
        _ => return Err(INVALID),
    };
    let body = Arc::new(body);
    if let Some(name) = name_at(attributes)? {
        Names::of(&call.shared).give(&name, &body)?;
    }
    let number = call.process.nt().insert_handle(Arc::new(SharedObject { body, access }));
    capture::write(result, &number)?;
    DONE
}

/// The arguments of `D3DKMTShareObjects`, in their order.
struct Wanted {
    count: u32,
    handles: usize,
    attributes: usize,
    access: u32,
    result: usize,
}

fn run_share(machine: &Machine, wanted: &Wanted) -> NTSTATUS {
    super::enter(machine, "D3DKMTShareObjects", |call| share(call, wanted))
}

shims! {
    /// Sharing.
    pub(super) table SHARE;

    fn D3DKMTShareObjects(machine, count: u32, handles: usize, attributes: usize, access: u32, result: usize) -> NTSTATUS {
        run_share(machine, &Wanted { count, handles, attributes, access, result })
    }
}
