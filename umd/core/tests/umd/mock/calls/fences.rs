//! Fences.

use super::super::os::{Fence, Waiter, World};
use super::{address, read};
use gpu_wire::GpuVa;
use gpu_wire::private::{FENCE_REPLY_OFFSET, FenceReply, MAGIC};
use umd_core::thunks::{NtHandle, Padded};
use wddm_abi::NTSTATUS;
use wddm_abi::ntstatus::{STATUS_INVALID_HANDLE, STATUS_SUCCESS};

pub fn create_native_fence(world: &mut World, a: &mut Padded<wddm_abi::D3DKMT_CREATENATIVEFENCE, 0>) -> NTSTATUS {
    if a.Info.Flags.Shared() != a.Info.Flags.NtSecuritySharing() {
        world.complain("a native fence shared without NtSecuritySharing");
    }
    let handle = world.new_fence(true, a.Info.InitialFenceValue, a.Info.Flags.NtSecuritySharing());
    let fence = world.fences.get_mut(&handle).unwrap();
    let reply = FenceReply { index: handle, generation: 0, magic: MAGIC, opens: 0 };
    a.PrivateDriverData[FENCE_REPLY_OFFSET..].copy_from_slice(reply.bytes());
    fence.private_data = a.PrivateDriverData;
    a.Info.NativeFenceMapping.CurrentValueCpuVa = address(fence.word);
    a.Info.NativeFenceMapping.CurrentValueGpuVa = fence.gpu_va.0;
    a.Info.NativeFenceMapping.MonitoredValueGpuVa = fence.gpu_va.0 + 8;
    a.hSyncObject = handle;
    STATUS_SUCCESS
}

pub fn open_native_fence_from_nt_handle(
    world: &mut World,
    a: &mut Padded<wddm_abi::D3DKMT_OPENNATIVEFENCEFROMNTHANDLE, 0>,
) -> NTSTATUS {
    let original = world.shared.get(&(a.hNtHandle.addr() as u64)).and_then(|h| world.fences.get(h)).cloned();
    let Some(original) = original else { return STATUS_INVALID_HANDLE };
    let handle = world.create("fence");
    a.NativeFenceMapping.CurrentValueCpuVa = address(original.word);
    a.NativeFenceMapping.CurrentValueGpuVa = original.gpu_va.0;
    a.PrivateDriverData = original.private_data;
    a.hSyncObject = handle;
    // The same storage: found by address under the creator's handle.
    world.fences.insert(handle, Fence { gpu_va: GpuVa(0), ..original });
    STATUS_SUCCESS
}

pub fn create_synchronization_object2(
    world: &mut World,
    a: &mut Padded<wddm_abi::D3DKMT_CREATESYNCHRONIZATIONOBJECT2, 0>,
) -> NTSTATUS {
    let initial = a.Info.MonitoredFence().InitialFenceValue;
    let handle = world.new_fence(false, initial, a.Info.Flags.NtSecuritySharing());
    let fence = &world.fences[&handle];
    a.hSyncObject = handle;
    a.Info.MonitoredFence_mut().FenceValueCPUVirtualAddress = address(fence.word);
    a.Info.MonitoredFence_mut().FenceValueGPUVirtualAddress = fence.gpu_va.0;
    STATUS_SUCCESS
}

pub fn open_sync_object_from_nt_handle2(
    world: &mut World,
    a: &mut Padded<wddm_abi::D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2, 0>,
) -> NTSTATUS {
    let original = world.shared.get(&(a.hNtHandle.addr() as u64)).and_then(|h| world.fences.get(h)).cloned();
    let Some(original) = original else { return STATUS_INVALID_HANDLE };
    let handle = world.create("fence");
    a.hSyncObject = handle;
    a.MonitoredFence_mut().FenceValueCPUVirtualAddress = address(original.word);
    a.MonitoredFence_mut().FenceValueGPUVirtualAddress = original.gpu_va.0;
    world.fences.insert(handle, Fence { gpu_va: GpuVa(0), ..original });
    STATUS_SUCCESS
}

pub fn destroy_synchronization_object(
    world: &mut World,
    a: &mut Padded<wddm_abi::D3DKMT_DESTROYSYNCHRONIZATIONOBJECT, 0>,
) -> NTSTATUS {
    world.destroy(a.hSyncObject, "fence");
    world.fences.remove(&a.hSyncObject);
    STATUS_SUCCESS
}

/// A blocking wait that the GPU does not meet is a hang, which the mock ends with a complaint.
pub fn wait_for_synchronization_object_from_cpu(
    world: &mut World,
    a: &mut Padded<wddm_abi::D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU, 0>,
) -> NTSTATUS {
    assert_eq!(a.ObjectCount, 1);
    let (fence, value) = (read(a.ObjectHandleArray), read(a.FenceValueArray));
    if let Some((paging, promised)) = world.paging
        && paging == fence
    {
        world.signal(paging, promised);
        return STATUS_SUCCESS;
    }
    world.run();
    let met = world.value(fence) >= value;
    let early = world.early_events > 0;
    world.early_events = world.early_events.saturating_sub(1);
    match NtHandle::from_raw(a.hAsyncEvent) {
        Some(event) if early => world.set(event.0),
        Some(event) if met => world.set(event.0),
        Some(event) => world.waiters.push(Waiter { fence, value, event: event.0 }),
        None if met => {}
        None => world.complain(format!("blocked for ever on fence {fence:#x} for {value}")),
    }
    STATUS_SUCCESS
}

pub fn signal_synchronization_object_from_cpu(
    world: &mut World,
    a: &mut Padded<wddm_abi::D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU, 0>,
) -> NTSTATUS {
    assert_eq!(a.ObjectCount, 1);
    let (fence, value) = (read(a.ObjectHandleArray), read(a.FenceValueArray));
    world.signal(fence, value);
    STATUS_SUCCESS
}
