//! Paging and allocations.

use super::super::os::{Block, Memory, World};
use super::{address, read, write};
use gpu_wire::private::{AllocationData, MAGIC};
use umd_core::thunks::Padded;
use wddm_abi::ntstatus::{
    STATUS_INVALID_HANDLE, STATUS_INVALID_PARAMETER, STATUS_NO_MEMORY, STATUS_PENDING, STATUS_SUCCESS,
};
use wddm_abi::{NTSTATUS, Plain};

pub fn create_paging_queue(world: &mut World, a: &mut Padded<wddm_abi::D3DKMT_CREATEPAGINGQUEUE, 0>) -> NTSTATUS {
    a.hPagingQueue = world.create("paging queue");
    a.hSyncObject = world.new_fence(false, 0, false);
    // It goes with the queue, not by itself.
    let fence = a.hSyncObject;
    world.open.remove(&fence);
    a.FenceValueCPUVirtualAddress = address(world.fences[&fence].word);
    world.paging = Some((fence, 0));
    STATUS_SUCCESS
}

pub fn destroy_paging_queue(world: &mut World, a: &mut Padded<wddm_abi::D3DDDI_DESTROYPAGINGQUEUE, 0>) -> NTSTATUS {
    world.destroy(a.hPagingQueue, "paging queue");
    STATUS_SUCCESS
}

pub fn create_allocation2(world: &mut World, a: &mut Padded<wddm_abi::D3DKMT_CREATEALLOCATION, 0>) -> NTSTATUS {
    let mut info: wddm_abi::D3DDDI_ALLOCATIONINFO2 = read(a.pAllocationInfo2());
    let data: [u8; 24] = read(info.pPrivateDriverData.cast());
    let Some(data) = AllocationData::read(&data).filter(|d| d.magic == MAGIC && info.PrivateDriverDataSize == 24)
    else {
        return STATUS_INVALID_PARAMETER;
    };
    if a.Flags.CreateShared() && !a.Flags.CreateResource() {
        return STATUS_INVALID_PARAMETER;
    }
    info.hAllocation = world.create("allocation");
    if a.Flags.CreateResource() {
        a.hResource = world.create("resource");
    }
    let memory = Memory {
        block: Block::new(data.size),
        data,
        gpu_va: None,
        resident: false,
        locked: false,
        resource: a.hResource,
        shared_by_handle: a.Flags.NtSecuritySharing(),
    };
    world.memory.insert(info.hAllocation, memory);
    write(a.pAllocationInfo2().cast(), info.as_bytes());
    STATUS_SUCCESS
}

pub fn destroy_allocation2(world: &mut World, a: &mut Padded<wddm_abi::D3DKMT_DESTROYALLOCATION2, 0>) -> NTSTATUS {
    let gone: Vec<u32> = if a.hResource != 0 {
        world.destroy(a.hResource, "resource");
        world.memory.iter().filter(|(_, m)| m.resource == a.hResource).map(|(h, _)| *h).collect()
    } else {
        assert_eq!(a.AllocationCount, 1);
        vec![read(a.phAllocationList)]
    };
    for handle in gone {
        world.destroy(handle, "allocation");
        if world.memory.remove(&handle).is_some_and(|memory| memory.locked) {
            world.complain("destroyed while locked");
        }
    }
    STATUS_SUCCESS
}

pub fn make_resident(world: &mut World, a: &mut Padded<wddm_abi::D3DDDI_MAKERESIDENT, 0>) -> NTSTATUS {
    let asked = a.NumAllocations as usize;
    world.residency.push(asked);
    let over = world.over_budget && !a.Flags.CantTrimFurther();
    let done = if over { asked / 2 } else { asked };
    for at in 0..done {
        let handle = read(a.AllocationList.wrapping_add(at));
        let Some(memory) = world.memory.get_mut(&handle) else { return STATUS_INVALID_PARAMETER };
        memory.resident = true;
    }
    let pending = world.paging_pending;
    if let Some((_, promised)) = &mut world.paging
        && pending
    {
        *promised += 1;
        a.PagingFenceValue = *promised;
    }
    if over {
        a.NumAllocations = done as u32;
        a.NumBytesToTrim = 4096;
        return STATUS_NO_MEMORY;
    }
    if pending { STATUS_PENDING } else { STATUS_SUCCESS }
}

pub fn map_gpu_virtual_address(
    world: &mut World,
    a: &mut Padded<wddm_abi::D3DDDI_MAPGPUVIRTUALADDRESS, 0>,
) -> NTSTATUS {
    let va = world.map(a.SizeInPages * 4096);
    let Some(memory) = world.memory.get_mut(&a.hAllocation) else { return STATUS_INVALID_PARAMETER };
    assert_eq!(a.SizeInPages * 4096, memory.block.len);
    memory.gpu_va = Some(va);
    a.VirtualAddress = va.0;
    let pending = world.paging_pending;
    if let Some((_, promised)) = &mut world.paging
        && pending
    {
        *promised += 1;
        a.PagingFenceValue = *promised;
        return STATUS_PENDING;
    }
    STATUS_SUCCESS
}

pub fn lock2(world: &mut World, a: &mut Padded<wddm_abi::D3DKMT_LOCK2, 0>) -> NTSTATUS {
    let Some(memory) = world.memory.get_mut(&a.hAllocation) else { return STATUS_INVALID_PARAMETER };
    memory.locked = true;
    a.pData = memory.block.base.cast();
    STATUS_SUCCESS
}

pub fn unlock2(world: &mut World, a: &mut Padded<wddm_abi::D3DKMT_UNLOCK2, 0>) -> NTSTATUS {
    match world.memory.get_mut(&a.hAllocation) {
        Some(memory) if memory.locked => memory.locked = false,
        _ => world.complain("unlocked what was not locked"),
    }
    STATUS_SUCCESS
}

pub fn query_resource_info_from_nt_handle(
    world: &mut World,
    a: &mut Padded<wddm_abi::D3DKMT_QUERYRESOURCEINFOFROMNTHANDLE, 0>,
) -> NTSTATUS {
    let handle = a.hNtHandle.addr() as u64;
    if !world.shared.contains_key(&handle) {
        return STATUS_INVALID_HANDLE;
    }
    a.NumAllocations = 1;
    a.TotalPrivateDriverDataSize = 24;
    STATUS_SUCCESS
}

pub fn open_resource_from_nt_handle(
    world: &mut World,
    a: &mut Padded<wddm_abi::D3DKMT_OPENRESOURCEFROMNTHANDLE, 0>,
) -> NTSTATUS {
    let resource = world.shared.get(&(a.hNtHandle.addr() as u64)).copied();
    let original = world.memory.values().find(|m| Some(m.resource) == resource).cloned();
    let Some(original) = original else { return STATUS_INVALID_HANDLE };
    let handle = world.create("allocation");
    a.hResource = world.create("resource");
    let opened = Memory { gpu_va: None, resident: false, locked: false, resource: a.hResource, ..original };
    write(a.pTotalPrivateDriverDataBuffer, opened.data.bytes());
    world.memory.insert(handle, opened);
    let mut info = wddm_abi::D3DDDI_OPENALLOCATIONINFO2::zeroed();
    info.hAllocation = handle;
    write(a.pOpenAllocationInfo2.cast(), info.as_bytes());
    STATUS_SUCCESS
}
