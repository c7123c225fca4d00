//! `D3DKMT*` without the user-mode driver: for what a well-behaved one would never do, and for what it hides.
//!
//! Every call is made inside the process, and returns the function's own status.
#![expect(unsafe_code, reason = "records go to functions by pointer, and user memory is touched by address")]

mod process;
mod sharing;

pub use process::THIS_PROCESS;
pub use sharing::{ALL, READ, duplicate, duplicate_number};

use anyhow::{Context, Result};
use dxgkrnl_model::process::Process;
use dxgkrnl_model::thunks::Thunks;
use nt_model::{AccessViolation, Event, Machine, try_user};
use std::sync::Arc;
use std::time::Duration;
use wddm_abi::{
    D3DDDI_NATIVEFENCE_TYPE, D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS, D3DDDI_SYNCHRONIZATIONOBJECT_TYPE,
    D3DDDI_WAITFORSYNCHRONIZATIONOBJECTFROMCPU_FLAGS, D3DDDICB_SIGNALFLAGS, D3DKMT_CREATEDEVICE,
    D3DKMT_CREATENATIVEFENCE, D3DKMT_CREATESYNCHRONIZATIONOBJECT2, D3DKMT_DESTROYDEVICE,
    D3DKMT_DESTROYSYNCHRONIZATIONOBJECT, D3DKMT_DEVICEEXECUTION_STATE, D3DKMT_DEVICESTATE_TYPE, D3DKMT_GETDEVICESTATE,
    D3DKMT_HANDLE, D3DKMT_OPENADAPTERFROMLUID, D3DKMT_OPENNATIVEFENCEFROMNTHANDLE, D3DKMT_OPENNTHANDLEFROMNAME,
    D3DKMT_OPENSYNCOBJECTNTHANDLEFROMNAME, D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU, D3DKMT_SUBMITCOMMAND,
    D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU, HANDLE, LUID, NTSTATUS, OBJECT_ATTRIBUTES, UNICODE_STRING, winfn,
};

/// A function of one record, whichever way it takes it.
pub trait Thunk<T> {
    /// Calls it.
    ///
    /// # Safety
    /// `record` is one of its kind, or what the function must refuse; what it points to is live.
    unsafe fn call(self, record: *mut T) -> NTSTATUS;
}

impl<T> Thunk<T> for winfn!(fn(*mut T) -> NTSTATUS) {
    unsafe fn call(self, record: *mut T) -> NTSTATUS {
        // SAFETY: the caller's promise.
        unsafe { self(record) }
    }
}

impl<T> Thunk<T> for winfn!(fn(*const T) -> NTSTATUS) {
    unsafe fn call(self, record: *mut T) -> NTSTATUS {
        // SAFETY: the caller's promise.
        unsafe { self(record) }
    }
}

/// A call that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the call returned {0:?}")]
pub struct Denied(pub NTSTATUS);

/// A process that has opened an adapter.
pub struct Raw {
    /// The process.
    pub process: Arc<Process>,
    /// gdi32.
    pub thunks: Thunks,
    /// The adapter.
    pub adapter: D3DKMT_HANDLE,
}

/// A fence, as it was created or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeFence {
    /// The process's handle.
    pub handle: D3DKMT_HANDLE,
    /// Where the process reads CurrentValue; 0: nowhere.
    pub cpu: usize,
    /// Where the GPU has CurrentValue.
    pub gpu: u64,
    /// Where the GPU has MonitoredValue; 0 for a monitored fence.
    pub monitored: u64,
}

impl Raw {
    /// Opens the adapter with `luid` in `process`.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(process: &Arc<Process>, luid: LUID) -> Result<Self> {
        let mut raw = Self { process: process.clone(), thunks: Thunks::new(), adapter: 0 };
        let mut record = D3DKMT_OPENADAPTERFROMLUID::zeroed();
        record.AdapterLuid = luid;
        raw.ok(raw.thunks.D3DKMTOpenAdapterFromLuid, &mut record).context("D3DKMTOpenAdapterFromLuid")?;
        raw.adapter = record.hAdapter;
        Ok(raw)
    }

    /// Calls `thunk` with `record`. Pointers in it must be live, or such as the function must refuse.
    pub fn call<T>(&self, thunk: impl Thunk<T>, record: &mut T) -> NTSTATUS {
        let _inside = self.process.enter();
        // SAFETY: the model's function, and a record of its type; cases pass pointers to their own locals.
        unsafe { thunk.call(record) }
    }

    /// As [`Self::call`], with no record at all.
    pub fn call_null<T>(&self, thunk: impl Thunk<T>) -> NTSTATUS {
        let _inside = self.process.enter();
        // SAFETY: the function must refuse it.
        unsafe { thunk.call(std::ptr::null_mut()) }
    }

    /// As [`Self::call`].
    ///
    /// # Errors
    /// Any status that is not a success.
    pub fn ok<T>(&self, thunk: impl Thunk<T>, record: &mut T) -> Result<(), Denied> {
        let status = self.call(thunk, record);
        if status.is_success() { Ok(()) } else { Err(Denied(status)) }
    }

    /// Submits a command buffer to a packet context ([`Room::packet_context`](super::Room::packet_context)).
    ///
    /// # Errors
    /// The function's status.
    pub fn submit_command(&self, context: D3DKMT_HANDLE, commands: u64, length: u32) -> Result<(), Denied> {
        let mut record = D3DKMT_SUBMITCOMMAND::zeroed();
        (record.Commands, record.CommandLength) = (commands, length);
        (record.BroadcastContextCount, record.BroadcastContext[0]) = (1, context);
        self.ok(self.thunks.D3DKMTSubmitCommand, &mut record)
    }

    /// The execution state of a device.
    ///
    /// # Errors
    /// The function's status.
    pub fn execution_state(&self, device: D3DKMT_HANDLE) -> Result<D3DKMT_DEVICEEXECUTION_STATE, Denied> {
        let mut record = D3DKMT_GETDEVICESTATE::zeroed();
        record.hDevice = device;
        record.StateType = D3DKMT_DEVICESTATE_TYPE::D3DKMT_DEVICESTATE_EXECUTION;
        self.ok(self.thunks.D3DKMTGetDeviceState, &mut record)?;
        Ok(record.ExecutionState())
    }

    /// Creates a device.
    ///
    /// # Errors
    /// The function's status.
    pub fn device(&self) -> Result<D3DKMT_HANDLE, Denied> {
        let mut record = D3DKMT_CREATEDEVICE::zeroed();
        record.set_hAdapter(self.adapter);
        self.ok(self.thunks.D3DKMTCreateDevice, &mut record)?;
        Ok(record.hDevice)
    }

    /// Destroys a device.
    ///
    /// # Errors
    /// The function's status.
    pub fn destroy_device(&self, device: D3DKMT_HANDLE) -> Result<(), Denied> {
        let mut record = D3DKMT_DESTROYDEVICE::zeroed();
        record.hDevice = device;
        self.ok(self.thunks.D3DKMTDestroyDevice, &mut record)
    }

    /// A record that asks for a native fence of the default type.
    pub fn native_fence_record(device: D3DKMT_HANDLE, initial: u64) -> D3DKMT_CREATENATIVEFENCE {
        let mut record = D3DKMT_CREATENATIVEFENCE::zeroed();
        record.hDevice = device;
        record.Info.InitialFenceValue = initial;
        record.Info.Type = D3DDDI_NATIVEFENCE_TYPE::D3DDDI_NATIVEFENCE_TYPE_DEFAULT;
        record
    }

    /// Creates a native fence from a record.
    ///
    /// # Errors
    /// The function's status.
    pub fn create_native_fence(&self, record: &mut D3DKMT_CREATENATIVEFENCE) -> Result<NativeFence, Denied> {
        self.ok(self.thunks.D3DKMTCreateNativeFence, record)?;
        let mapping = &record.Info.NativeFenceMapping;
        Ok(NativeFence {
            handle: record.hSyncObject,
            cpu: mapping.CurrentValueCpuVa.expose_provenance(),
            gpu: mapping.CurrentValueGpuVa,
            monitored: mapping.MonitoredValueGpuVa,
        })
    }

    /// Creates a native fence of the default type.
    ///
    /// # Errors
    /// The function's status.
    pub fn native_fence(&self, device: D3DKMT_HANDLE, initial: u64) -> Result<NativeFence, Denied> {
        self.create_native_fence(&mut Self::native_fence_record(device, initial))
    }

    /// Creates a native fence that can be shared by NT handle.
    ///
    /// # Errors
    /// The function's status.
    pub fn shared_native_fence(&self, device: D3DKMT_HANDLE, initial: u64) -> Result<NativeFence, Denied> {
        let mut record = Self::native_fence_record(device, initial);
        record.Info.Flags.set_Shared(true);
        record.Info.Flags.set_NtSecuritySharing(true);
        self.create_native_fence(&mut record)
    }

    /// Creates a monitored fence; `shared`: by NT handle.
    ///
    /// # Errors
    /// The function's status.
    pub fn monitored_fence(&self, device: D3DKMT_HANDLE, initial: u64, shared: bool) -> Result<NativeFence, Denied> {
        let mut flags = D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS::zeroed();
        flags.set_Shared(shared);
        flags.set_NtSecuritySharing(shared);
        self.flagged_fence(device, initial, flags, 0)
    }

    /// Creates a monitored fence with these flags; `affinity`: for these physical adapters.
    ///
    /// # Errors
    /// The function's status.
    pub fn flagged_fence(
        &self,
        device: D3DKMT_HANDLE,
        initial: u64,
        flags: D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS,
        affinity: u32,
    ) -> Result<NativeFence, Denied> {
        let mut record = D3DKMT_CREATESYNCHRONIZATIONOBJECT2::zeroed();
        record.hDevice = device;
        record.Info.Type = D3DDDI_SYNCHRONIZATIONOBJECT_TYPE::D3DDDI_MONITORED_FENCE;
        record.Info.Flags = flags;
        record.Info.MonitoredFence_mut().InitialFenceValue = initial;
        record.Info.MonitoredFence_mut().EngineAffinity = affinity;
        self.ok(self.thunks.D3DKMTCreateSynchronizationObject2, &mut record)?;
        let info = record.Info.MonitoredFence();
        Ok(NativeFence {
            handle: record.hSyncObject,
            cpu: info.FenceValueCPUVirtualAddress.expose_provenance(),
            gpu: info.FenceValueGPUVirtualAddress,
            monitored: 0,
        })
    }

    /// Destroys a fence of either kind.
    ///
    /// # Errors
    /// The function's status.
    pub fn destroy_fence(&self, handle: D3DKMT_HANDLE) -> Result<(), Denied> {
        let mut record = D3DKMT_DESTROYSYNCHRONIZATIONOBJECT::zeroed();
        record.hSyncObject = handle;
        self.ok(self.thunks.D3DKMTDestroySynchronizationObject, &mut record)
    }

    /// Shares an object with `access` rights; an NT handle of this process, which every process may open here.
    ///
    /// # Errors
    /// The function's status.
    pub fn share(&self, object: D3DKMT_HANDLE, access: u32) -> Result<HANDLE, Denied> {
        self.share_as(object, access, Attributes::none())
    }

    /// [`share`](Self::share) with the name and flags of these attributes.
    ///
    /// # Errors
    /// The function's status.
    pub fn share_as(&self, object: D3DKMT_HANDLE, access: u32, attributes: Attributes) -> Result<HANDLE, Denied> {
        let mut handle = std::ptr::null_mut();
        let _inside = self.process.enter();
        let share = self.thunks.D3DKMTShareObjects;
        let status = attributes.with(|attributes| {
            // SAFETY: one handle, attributes and a place for the result, all live.
            unsafe { share(1, &raw const object, attributes, access, &raw mut handle) }
        });
        if status.is_success() { Ok(handle) } else { Err(Denied(status)) }
    }

    /// An NT handle to the shared fence with the name of these attributes.
    ///
    /// # Errors
    /// The function's status.
    pub fn fence_by_name(&self, access: u32, attributes: Attributes) -> Result<HANDLE, Denied> {
        attributes.with(|attributes| {
            let mut record = D3DKMT_OPENSYNCOBJECTNTHANDLEFROMNAME::zeroed();
            (record.dwDesiredAccess, record.pObjAttrib) = (access, attributes);
            self.ok(self.thunks.D3DKMTOpenSyncObjectNtHandleFromName, &mut record)?;
            Ok(record.hNtHandle)
        })
    }

    /// An NT handle to the shared resource with the name of these attributes.
    ///
    /// # Errors
    /// The function's status.
    pub fn resource_by_name(&self, access: u32, attributes: Attributes) -> Result<HANDLE, Denied> {
        attributes.with(|attributes| {
            let mut record = D3DKMT_OPENNTHANDLEFROMNAME::zeroed();
            (record.dwDesiredAccess, record.pObjAttrib) = (access, attributes);
            self.ok(self.thunks.D3DKMTOpenNtHandleFromName, &mut record)?;
            Ok(record.hNtHandle)
        })
    }

    /// Opens a native fence; see [`NativeFence`].
    ///
    /// # Errors
    /// The function's status.
    pub fn open_native_fence(&self, device: D3DKMT_HANDLE, nt_handle: HANDLE) -> Result<NativeFence, Denied> {
        let mut record = D3DKMT_OPENNATIVEFENCEFROMNTHANDLE::zeroed();
        record.hNtHandle = nt_handle;
        record.hDevice = device;
        record.Flags.set_Shared(true);
        record.Flags.set_NtSecuritySharing(true);
        self.ok(self.thunks.D3DKMTOpenNativeFenceFromNtHandle, &mut record)?;
        let mapping = &record.NativeFenceMapping;
        Ok(NativeFence {
            handle: record.hSyncObject,
            cpu: mapping.CurrentValueCpuVa.expose_provenance(),
            gpu: mapping.CurrentValueGpuVa,
            monitored: mapping.MonitoredValueGpuVa,
        })
    }

    /// Waits from the CPU for `waits` (fence, value); with an event, returns at once. Without one, blocks.
    ///
    /// # Errors
    /// The function's status.
    pub fn wait_cpu(
        &self,
        device: D3DKMT_HANDLE,
        waits: &[(D3DKMT_HANDLE, u64)],
        any: bool,
        event: Option<HANDLE>,
    ) -> Result<(), Denied> {
        let handles: Vec<_> = waits.iter().map(|(handle, _)| *handle).collect();
        let values: Vec<_> = waits.iter().map(|(_, value)| *value).collect();
        let mut record = D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU::zeroed();
        record.hDevice = device;
        // CAST: a handful.
        record.ObjectCount = waits.len() as u32;
        record.ObjectHandleArray = handles.as_ptr();
        record.FenceValueArray = values.as_ptr();
        record.hAsyncEvent = event.unwrap_or(std::ptr::null_mut());
        record.Flags = D3DDDI_WAITFORSYNCHRONIZATIONOBJECTFROMCPU_FLAGS::zeroed().with_WaitAny(any);
        self.ok(self.thunks.D3DKMTWaitForSynchronizationObjectFromCpu, &mut record)
    }

    /// Signals fences from the CPU.
    ///
    /// # Errors
    /// The function's status.
    pub fn signal_cpu(&self, device: D3DKMT_HANDLE, signals: &[(D3DKMT_HANDLE, u64)]) -> Result<(), Denied> {
        self.signal_cpu_with(device, signals, D3DDDICB_SIGNALFLAGS::zeroed())
    }

    /// Signals a fence from the CPU, also to a value below its own (`AllowFenceRewind`).
    ///
    /// # Errors
    /// The function's status.
    pub fn rewind_cpu(&self, device: D3DKMT_HANDLE, fence: D3DKMT_HANDLE, value: u64) -> Result<(), Denied> {
        self.signal_cpu_with(device, &[(fence, value)], D3DDDICB_SIGNALFLAGS::zeroed().with_AllowFenceRewind(true))
    }

    fn signal_cpu_with(
        &self,
        device: D3DKMT_HANDLE,
        signals: &[(D3DKMT_HANDLE, u64)],
        flags: D3DDDICB_SIGNALFLAGS,
    ) -> Result<(), Denied> {
        let handles: Vec<_> = signals.iter().map(|(handle, _)| *handle).collect();
        let values: Vec<_> = signals.iter().map(|(_, value)| *value).collect();
        let mut record = D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU::zeroed();
        record.hDevice = device;
        // CAST: a handful.
        record.ObjectCount = signals.len() as u32;
        record.ObjectHandleArray = handles.as_ptr();
        record.FenceValueArray = values.as_ptr();
        record.Flags = flags;
        self.ok(self.thunks.D3DKMTSignalSynchronizationObjectFromCpu, &mut record)
    }

    /// A new auto-reset event of the process, and its handle.
    pub fn event(&self) -> (Arc<Event>, HANDLE) {
        let event = Arc::new(Event::synchronization(false));
        let handle = self.process.nt().insert_handle(event.clone());
        (event, std::ptr::with_exposed_provenance_mut(handle as usize))
    }

    /// Closes an NT handle of the process.
    pub fn close(&self, handle: HANDLE) {
        drop(self.process.nt().close_handle(handle.expose_provenance() as u64));
    }

    /// Waits for an event; whether it was set in time.
    pub fn wait_event(&self, event: &Event, limit: Duration) -> bool {
        let _inside = self.process.enter();
        // CAST: seconds at most.
        let ticks = -((limit.as_nanos() / 100) as i64);
        Machine::with_current(|machine| machine.is_some_and(|m| m.wait_for_event(event, Some(ticks)) == 0))
    }

    /// Loads 8 bytes as user mode.
    ///
    /// # Errors
    /// The access violation.
    pub fn load(&self, address: usize) -> Result<u64, AccessViolation> {
        let _inside = self.process.enter();
        let pointer: *const u64 = std::ptr::with_exposed_provenance(address);
        // SAFETY: an address of the process; a fault is caught and returned.
        try_user(|| unsafe { pointer.read_volatile() })
    }

    /// Stores 8 bytes as user mode.
    ///
    /// # Errors
    /// The access violation.
    pub fn store(&self, address: usize, value: u64) -> Result<(), AccessViolation> {
        let _inside = self.process.enter();
        let pointer: *mut u64 = std::ptr::with_exposed_provenance_mut(address);
        // SAFETY: as above.
        try_user(|| unsafe { pointer.write_volatile(value) })
    }
}

/// `OBJECT_ATTRIBUTES`: a name and flags (`OBJ_*`).
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// The object's name; none for an object without.
    pub name: Option<&'a str>,
    /// `OBJ_CASE_INSENSITIVE` (0x40) and others.
    pub flags: u32,
    /// `Length`: 48, unless a call is to be refused.
    pub length: u32,
}

impl<'a> Attributes<'a> {
    /// Without a name.
    pub fn none() -> Self {
        // CAST: 48.
        Self { name: None, flags: 0, length: size_of::<OBJECT_ATTRIBUTES>() as u32 }
    }

    /// With a name.
    pub fn named(name: &'a str) -> Self {
        Self { name: Some(name), ..Self::none() }
    }

    /// Calls `f` with the record, which lives that long.
    fn with<R>(self, f: impl FnOnce(*mut OBJECT_ATTRIBUTES) -> R) -> R {
        let mut units: Vec<u16> = self.name.unwrap_or_default().encode_utf16().collect();
        let mut name = UNICODE_STRING::zeroed();
        // CAST: names of cases are short.
        (name.Length, name.MaximumLength) = ((units.len() * 2) as u16, (units.len() * 2) as u16);
        name.Buffer = units.as_mut_ptr();
        let mut record = OBJECT_ATTRIBUTES::zeroed();
        (record.Length, record.Attributes) = (self.length, self.flags);
        if self.name.is_some() {
            record.ObjectName = &raw mut name;
        }
        f(&raw mut record)
    }
}
