//! Thunks that make and destroy fences.

use wddm_abi::{
    D3DDDI_NATIVEFENCE_TYPE, D3DDDI_SYNCHRONIZATIONOBJECT_TYPE, D3DKMT_CREATENATIVEFENCE,
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2, D3DKMT_DESTROYSYNCHRONIZATIONOBJECT, ntstatus,
};

use super::device::device;
use super::{DONE, INVALID, thunks};
use crate::objects::fence::monitored::{self, Behaviour, MonitoredFence, are_for_monitored, is_sound};
use crate::objects::fence::native::{LocalFence, Request};
use crate::objects::process::UserObject;
use crate::port::handle::HandleType;

/// Fills what user mode gets of a native fence.
pub(super) fn show(mapping: &mut wddm_abi::D3DDDI_NATIVEFENCEMAPPING, fence: &LocalFence) {
    let addresses = fence.addresses();
    mapping.CurrentValueCpuVa = core::ptr::with_exposed_provenance_mut(addresses.user);
    mapping.CurrentValueGpuVa = addresses.current;
    mapping.MonitoredValueGpuVa = addresses.monitored;
}

/// Returns whether an `EngineAffinity` names the first physical adapter or none in particular: there are no linked
/// adapters.
pub(super) fn is_one_adapter(affinity: u32) -> bool {
    affinity & !1 == 0
}

thunks! {
    /// Fences.
    table THUNKS;

    fn D3DKMTCreateSynchronizationObject2(call, record: D3DKMT_CREATESYNCHRONIZATIONOBJECT2) {
        let device = device(call, record.hDevice)?;
        let limit = D3DDDI_SYNCHRONIZATIONOBJECT_TYPE::D3DDDI_SYNCHRONIZATION_TYPE_LIMIT;
        if !(1..limit.0).contains(&record.Info.Type.0) {
            return Err(INVALID);
        }
        if record.Info.Type != D3DDDI_SYNCHRONIZATIONOBJECT_TYPE::D3DDDI_MONITORED_FENCE {
            return Err(ntstatus::STATUS_NOT_SUPPORTED);
        }
        let behaviour = Behaviour::of(record.Info.Flags).ok_or(INVALID)?;
        let wanted = record.Info.MonitoredFence();
        if !is_one_adapter(wanted.EngineAffinity) {
            return Err(INVALID);
        }
        let request = monitored::Request { initial: wanted.InitialFenceValue, behaviour };
        let fence = MonitoredFence::create(&device, request)?;
        let member = record.Info.MonitoredFence_mut();
        member.FenceValueCPUVirtualAddress = core::ptr::with_exposed_provenance_mut(fence.view().user);
        member.FenceValueGPUVirtualAddress = fence.view().gpu;
        record.hSyncObject = call.insert(UserObject::Monitored(fence))?;
        DONE
    }

    fn D3DKMTCreateNativeFence(call, record: D3DKMT_CREATENATIVEFENCE) {
        let device = device(call, record.hDevice)?;
        let adapter = device.adapter();
        let info = &record.Info;
        let known = matches!(
            info.Type,
            D3DDDI_NATIVEFENCE_TYPE::D3DDDI_NATIVEFENCE_TYPE_DEFAULT | D3DDDI_NATIVEFENCE_TYPE::D3DDDI_NATIVEFENCE_TYPE_INTRA_GPU
        );
        let clean = record.Flags.Value == 0 && record.Reserved == [0; 28] && info.Reserved == [0; 28];
        if !known || !clean || !is_sound(info.Flags) || are_for_monitored(info.Flags) || !is_one_adapter(info.EngineAffinity) {
            return Err(INVALID);
        }
        let intra = info.Type == D3DDDI_NATIVEFENCE_TYPE::D3DDDI_NATIVEFENCE_TYPE_INTRA_GPU;
        if intra && info.Flags.CrossAdapter() {
            return Err(INVALID);
        }
        let personality = adapter.personality();
        let offered = personality.native_fence_os_caps.intra_gpu || personality.faults.unchecked_fence_types;
        if !adapter.known_caps().has_native_fences() || (intra && !offered) {
            return Err(ntstatus::STATUS_NOT_SUPPORTED);
        }
        let mut request = Request {
            kind: info.Type,
            initial: info.InitialFenceValue,
            shared: info.Flags.Shared(),
            cross_adapter: info.Flags.CrossAdapter(),
            private: record.PrivateDriverData,
        };
        let fence = LocalFence::create(&device, &mut request)?;
        record.PrivateDriverData = request.private;
        show(&mut record.Info.NativeFenceMapping, &fence);
        record.hSyncObject = call.insert(UserObject::Native(fence))?;
        DONE
    }

    fn D3DKMTDestroySynchronizationObject(call, record: D3DKMT_DESTROYSYNCHRONIZATIONOBJECT) {
        let handle = record.hSyncObject;
        // The fence of a queue or paging queue goes with it.
        if call.process.owns_fence(handle) {
            return Err(INVALID);
        }
        // Its device is not destroyed before it.
        if let Some(fence) = call.process.native_fence(handle) {
            call.uses_device(fence.device())?;
        } else if let Some(fence) = call.process.monitored_fence(handle)
            && let Some(device) = fence.device()
        {
            call.uses_device(device)?;
        }
        if let Some(UserObject::Native(fence)) = call.process.remove(handle, HandleType::NativeFence) {
            fence.destroy();
            return DONE;
        }
        match call.process.remove(handle, HandleType::SyncObject) {
            Some(UserObject::Monitored(fence)) => {
                fence.destroy();
                DONE
            }
            _ => Err(INVALID),
        }
    }
}
