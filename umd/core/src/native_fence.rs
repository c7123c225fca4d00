//! Native fences: 64-bit values in the OS's memory that engines wait for and signal by GPU address, without a round
//! trip through the CPU.
//!
//! CurrentValue is read-only to this process's CPU (poll it), writable by the GPU through FENCE_SIGNAL, and by the OS
//! for a CPU signal. MonitoredValue has no CPU mapping here.
//!
//! 64 bytes of private data go to the KMD at creation and come back: the first 48 are the caller's and unchanged, the
//! last 16 are the KMD's [`FenceReply`].
//!
//! Assumes:
//! - `NativeFenceMapping` of Create and Open has this process's addresses; opened on another device of the same
//!   process, they are those of the creator. Source: `D3DKMTOpenNativeFenceFromNTHandle`, Remarks.
//! - Only the default type is supported by 24H2. Source: `D3DKMTCreateNativeFence`, Remarks.
//! - EngineAffinity 0 maps it on the only physical adapter. Source: `D3DDDI_SYNCHRONIZATIONOBJECTINFO2`,
//!   MonitoredFence: "Zero means … all physical adapters"; the native fence pages do not say otherwise.
#![forbid(unsafe_code)]

use crate::device::Device;
use crate::error::{UmdError, Unsupported};
use crate::sync_object::{Kind, Sharing, SyncObject, opening, sharing};
use crate::thunks::{NtHandle, Padded, Thunk, Thunks};
use alloc::sync::Arc;
use core::ops::Deref;
use gpu_wire::GpuVa;
use gpu_wire::private::{FENCE_REPLY_OFFSET, FenceReply, MAGIC};
use wddm_abi::{
    D3DDDI_NATIVEFENCE_TYPE, D3DDDI_NATIVEFENCEINFO, D3DDDI_NATIVEFENCEMAPPING, D3DKMT_CREATENATIVEFENCE,
    D3DKMT_HANDLE, D3DKMT_OPENNATIVEFENCEFROMNTHANDLE,
};

/// Bytes of private data that are the caller's.
pub const USER_DATA: usize = FENCE_REPLY_OFFSET;
/// Bytes of private data.
pub const PRIVATE_DATA: usize = 64;

/// A native fence, open in this process.
pub struct NativeFence<T: Thunks> {
    object: SyncObject<T>,
    gpu_va: GpuVa,
    monitored_va: GpuVa,
    private_data: [u8; PRIVATE_DATA],
}

impl<T: Thunks> NativeFence<T> {
    /// Creates a fence with `initial` as its value, which others may open as `shared` says.
    ///
    /// # Errors
    /// [`UmdError::NotSupported`] without native fences; [`UmdError::Thunk`]; [`UmdError::BadReply`].
    pub fn create(
        device: &Arc<Device<T>>,
        initial: u64,
        shared: impl Into<Sharing>,
        user_data: &[u8; USER_DATA],
    ) -> Result<Self, UmdError> {
        if !device.adapter().has_native_fences() {
            return Err(UmdError::NotSupported(Unsupported::NativeFences));
        }
        let shared = shared.into();
        let mut argument = Padded::new(D3DKMT_CREATENATIVEFENCE {
            hDevice: device.handle(),
            Info: D3DDDI_NATIVEFENCEINFO {
                InitialFenceValue: initial,
                Type: D3DDDI_NATIVEFENCE_TYPE::D3DDDI_NATIVEFENCE_TYPE_DEFAULT,
                Flags: sharing(device, shared),
                ..D3DDDI_NATIVEFENCEINFO::zeroed()
            },
            ..D3DKMT_CREATENATIVEFENCE::zeroed()
        });
        argument.PrivateDriverData[..USER_DATA].copy_from_slice(user_data);
        device.os().create_native_fence(&mut argument)?;
        let opened = Opened {
            handle: argument.hSyncObject,
            mapping: argument.Info.NativeFenceMapping,
            private_data: argument.PrivateDriverData,
        };
        Self::from_opened(device, opened, shared != Sharing::None, Thunk::CreateNativeFence)
    }

    /// Opens what another process (or another device of this one) shared.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn open(device: &Arc<Device<T>>, handle: NtHandle) -> Result<Self, UmdError> {
        if !device.adapter().has_native_fences() {
            return Err(UmdError::NotSupported(Unsupported::NativeFences));
        }
        let mut argument = Padded::new(D3DKMT_OPENNATIVEFENCEFROMNTHANDLE {
            hNtHandle: handle.as_raw(),
            hDevice: device.handle(),
            Flags: opening(device),
            ..D3DKMT_OPENNATIVEFENCEFROMNTHANDLE::zeroed()
        });
        device.os().open_native_fence_from_nt_handle(&mut argument)?;
        let opened = Opened {
            handle: argument.hSyncObject,
            mapping: argument.NativeFenceMapping,
            private_data: argument.PrivateDriverData,
        };
        Self::from_opened(device, opened, true, Thunk::OpenNativeFenceFromNtHandle)
    }

    fn from_opened(device: &Arc<Device<T>>, opened: Opened, shared: bool, thunk: Thunk) -> Result<Self, UmdError> {
        let Opened { handle, mapping, private_data } = opened;
        // From here on dropping destroys it.
        let object = SyncObject::new(
            device,
            handle,
            mapping.CurrentValueCpuVa,
            Kind { shared, narrow: false, known: 0 },
            thunk,
        )?;
        let gpu_va = GpuVa(mapping.CurrentValueGpuVa);
        if gpu_va.0 == 0 || !gpu_va.is_aligned(8) || !gpu_va.is_canonical() {
            return Err(UmdError::BadReply { thunk });
        }
        device.settle_fence()?;
        Ok(Self { object, gpu_va, monitored_va: GpuVa(mapping.MonitoredValueGpuVa), private_data })
    }

    /// Where engines find CurrentValue, in this process's GPU address space.
    pub fn gpu_va(&self) -> GpuVa {
        self.gpu_va
    }

    /// Where engines find MonitoredValue. Read-only to them.
    pub fn monitored_va(&self) -> GpuVa {
        self.monitored_va
    }

    /// The private data as they came back.
    pub fn private_data(&self) -> &[u8; PRIVATE_DATA] {
        &self.private_data
    }

    /// What the KMD says about the fence; `None` when it said nothing (a fence opened on 2024-10 builds comes without).
    pub fn reply(&self) -> Option<FenceReply> {
        FenceReply::read(self.private_data.get(FENCE_REPLY_OFFSET..)?).filter(|reply| reply.magic == MAGIC)
    }
}

/// What Create and Open return alike.
struct Opened {
    handle: D3DKMT_HANDLE,
    mapping: D3DDDI_NATIVEFENCEMAPPING,
    private_data: [u8; PRIVATE_DATA],
}

impl<T: Thunks> Deref for NativeFence<T> {
    type Target = SyncObject<T>;
    fn deref(&self) -> &SyncObject<T> {
        &self.object
    }
}
