//! Adapters and devices.

use super::super::os::World;
use super::{read, write};
use core::ffi::c_void;
use umd_core::thunks::Padded;
use wddm_abi::ntstatus::{STATUS_INVALID_HANDLE, STATUS_INVALID_PARAMETER, STATUS_SUCCESS};
use wddm_abi::{
    D3DKMT_DEVICEEXECUTION_STATE, D3DKMT_DEVICEPAGEFAULT_STATE, D3DKMT_DEVICESTATE_TYPE, D3DKMT_NODEMETADATA,
    D3DKMT_QUERY_DEVICE_IDS, D3DKMT_WDDM_2_7_CAPS, D3DKMT_WDDM_3_1_CAPS, DXGK_NODEMETADATA_FLAGS,
    KMTQUERYADAPTERINFOTYPE, NTSTATUS, Plain,
};

fn query(world: &World, handle: u32, kind: KMTQUERYADAPTERINFOTYPE, to: *mut c_void, size: u32) -> NTSTATUS {
    let Some(adapter) = world.adapters.get(handle as usize / 0x10_0000 - 1) else { return STATUS_INVALID_HANDLE };
    match kind {
        KMTQUERYADAPTERINFOTYPE::KMTQAITYPE_UMDRIVERPRIVATE => match adapter.info {
            Some(info) => write(to, &info.bytes()[..size as usize]),
            None => panic!("a private query reaches another driver"),
        },
        KMTQUERYADAPTERINFOTYPE::KMTQAITYPE_PHYSICALADAPTERDEVICEIDS => {
            let mut ids = D3DKMT_QUERY_DEVICE_IDS::zeroed();
            // QEMU's `edu` function is ours; its standard VGA has the same vendor, and another driver.
            ids.DeviceIds.VendorID = 0x1234;
            ids.DeviceIds.DeviceID = if adapter.info.is_some() { 0x11E8 } else { 0x1111 };
            write(to, ids.as_bytes());
        }
        KMTQUERYADAPTERINFOTYPE::KMTQAITYPE_WDDM_2_7_CAPS => {
            write(to, D3DKMT_WDDM_2_7_CAPS::zeroed().with_HwSchEnabled(adapter.scheduling).as_bytes());
        }
        KMTQUERYADAPTERINFOTYPE::KMTQAITYPE_WDDM_3_1_CAPS => {
            write(to, D3DKMT_WDDM_3_1_CAPS::zeroed().with_NativeGpuFenceSupported(adapter.native_fences).as_bytes());
        }
        KMTQUERYADAPTERINFOTYPE::KMTQAITYPE_NODEMETADATA => {
            let mut metadata: D3DKMT_NODEMETADATA = read(to.cast());
            let scheduled = metadata.NodeOrdinalAndAdapterIndex < 2 && adapter.scheduling;
            let rung = adapter.info.map_or(0, |info| info.rung);
            metadata.NodeData.Flags = DXGK_NODEMETADATA_FLAGS::zeroed()
                .with_ContextSchedulingSupported(scheduled)
                .with_UserModeSubmission(scheduled && rung == 3);
            write(to, metadata.as_bytes());
        }
        _ => return STATUS_INVALID_PARAMETER,
    }
    STATUS_SUCCESS
}

/// Stores every adapter in a list with room for `room`, none if there is no list; how many, or how many there may be.
fn list(world: &mut World, room: u32, to: *mut wddm_abi::D3DKMT_ADAPTERINFO) -> u32 {
    if to.is_null() {
        return 16;
    }
    assert!(room >= 16);
    for (n, adapter) in world.adapters.clone().iter().enumerate() {
        let handle = world.open_adapter(n);
        let mut info = wddm_abi::D3DKMT_ADAPTERINFO::zeroed();
        info.hAdapter = handle;
        info.AdapterLuid.LowPart = adapter.luid;
        write(to.wrapping_add(n).cast(), info.as_bytes());
    }
    world.adapters.len() as u32
}

pub fn enum_adapters2(world: &mut World, a: &mut Padded<wddm_abi::D3DKMT_ENUMADAPTERS2, 0>) -> NTSTATUS {
    a.NumAdapters = list(world, a.NumAdapters, a.pAdapters);
    STATUS_SUCCESS
}

pub fn enum_adapters3(world: &mut World, a: &mut Padded<wddm_abi::D3DKMT_ENUMADAPTERS3, 0>) -> NTSTATUS {
    assert!(a.Filter.IncludeComputeOnly(), "a compute-only adapter would not be found");
    a.NumAdapters = list(world, a.NumAdapters, a.pAdapters);
    STATUS_SUCCESS
}

pub fn open_adapter_from_luid(world: &mut World, a: &mut Padded<wddm_abi::D3DKMT_OPENADAPTERFROMLUID, 0>) -> NTSTATUS {
    let Some(n) = world.adapters.iter().position(|adapter| adapter.luid == a.AdapterLuid.LowPart) else {
        return STATUS_INVALID_PARAMETER;
    };
    a.hAdapter = world.open_adapter(n);
    STATUS_SUCCESS
}

pub fn query_adapter_info(world: &mut World, a: &mut Padded<wddm_abi::D3DKMT_QUERYADAPTERINFO, 0>) -> NTSTATUS {
    query(world, a.hAdapter, a.Type, a.pPrivateDriverData, a.PrivateDriverDataSize)
}

pub fn close_adapter(world: &mut World, a: &mut Padded<wddm_abi::D3DKMT_CLOSEADAPTER, 0>) -> NTSTATUS {
    world.destroy(a.hAdapter, "adapter");
    STATUS_SUCCESS
}

pub fn create_device(world: &mut World, a: &mut Padded<wddm_abi::D3DKMT_CREATEDEVICE, 0>) -> NTSTATUS {
    a.hDevice = world.create("device");
    STATUS_SUCCESS
}

pub fn destroy_device(world: &mut World, a: &mut Padded<wddm_abi::D3DKMT_DESTROYDEVICE, 0>) -> NTSTATUS {
    world.destroy(a.hDevice, "device");
    STATUS_SUCCESS
}

pub fn get_device_state(world: &mut World, a: &mut Padded<wddm_abi::D3DKMT_GETDEVICESTATE, 0>) -> NTSTATUS {
    if a.StateType == D3DKMT_DEVICESTATE_TYPE::D3DKMT_DEVICESTATE_PAGE_FAULT {
        let mut fault = D3DKMT_DEVICEPAGEFAULT_STATE::zeroed();
        fault.FaultedVirtualAddress = 0xdead_0000;
        a.set_PageFaultState(fault);
    } else {
        let state: D3DKMT_DEVICEEXECUTION_STATE = world.state;
        a.set_ExecutionState(state);
    }
    STATUS_SUCCESS
}
