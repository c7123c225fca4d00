//! What Dxgkrnl provides: `DXGKRNL_INTERFACE`, and the feature interface.
//!
//! The table is copied at start, no more of it than `Size` says; a member beyond that is absent. Every call out of this
//! driver into Dxgkrnl is in this file.
#![expect(unsafe_code, reason = "calls through Dxgkrnl's function pointers")]

use crate::irql::{AtMostDispatch, Dirql, Passive};
use crate::status::{Error, Result};
use core::ffi::c_void;
use gpu_engine::shared::Shared;
use wddm_abi::{
    D3DDDI_DOORBELLSTATUS, DXGK_DEVICE_INFO, DXGK_FEATURE_ID, DXGK_FEATURE_INTERFACE, DXGK_HANDLE_TYPE, DXGK_SERVICES,
    DXGKARGCB_DISCONNECTDOORBELL, DXGKARGCB_FEATURE_NATIVEFENCE_CAPS_1, DXGKARGCB_GETHANDLEDATA,
    DXGKARGCB_INVALIDATEHWCONTEXT, DXGKARGCB_ISFEATUREENABLED2, DXGKARGCB_NOTIFY_INTERRUPT_DATA,
    DXGKARGCB_QUERYFEATUREINTERFACE, DXGKCBINT_FEATURE_NATIVEFENCE_1, DXGKRNL_INTERFACE, HANDLE, INTERFACE,
    MEMORY_CACHING_TYPE, PHYSICAL_ADDRESS, PKSYNCHRONIZE_ROUTINE,
};

/// Dxgkrnl, for one adapter from start to stop. The table lies on the heap, once for all who use it.
#[derive(Clone)]
pub struct Dxgkrnl {
    table: Shared<DXGKRNL_INTERFACE>,
}

// SAFETY: the table is function pointers and a handle; Dxgkrnl's callbacks may be called from any thread.
unsafe impl Send for Dxgkrnl {}
// SAFETY: as above.
unsafe impl Sync for Dxgkrnl {}

/// What the OS says of a feature.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FeatureState {
    /// The OS enabled it.
    pub enabled: bool,
    /// Negotiated version.
    pub version: u16,
}

fn absent<T>(member: Option<T>) -> Result<T> {
    member.ok_or(Error::NotSupported)
}

fn check(status: wddm_abi::NTSTATUS) -> Result<()> {
    if status.is_success() { Ok(()) } else { Err(Error::Callback(status)) }
}

impl Dxgkrnl {
    /// Copies the interface.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    ///
    /// # Safety
    /// `table` points at an interface of at least `Size` bytes, whose functions stay callable until the device is
    /// stopped.
    #[inline(never)]
    pub unsafe fn copy(table: *const DXGKRNL_INTERFACE) -> Result<Self> {
        let mut copy = DXGKRNL_INTERFACE::zeroed();
        // SAFETY: Size is the first member, which every version has.
        let size = unsafe { table.cast::<u32>().read() } as usize;
        let n = size.min(size_of::<DXGKRNL_INTERFACE>());
        // SAFETY: `n` bytes are readable at `table` (the caller's promise) and writable in the local copy; a member
        // that is not copied stays zero, which is None.
        unsafe { core::ptr::copy_nonoverlapping(table.cast::<u8>(), (&raw mut copy).cast::<u8>(), n) };
        Ok(Self { table: Shared::try_new(copy)? })
    }

    /// `DeviceHandle`.
    pub fn device(&self) -> HANDLE {
        self.table.DeviceHandle
    }

    /// Bytes of the interface that the OS gave.
    pub fn size(&self) -> u32 {
        self.table.Size
    }

    /// Whether `DxgkCbDisconnectDoorbell` is there, without which doorbells cannot be victimised.
    pub fn has_disconnect_doorbell(&self) -> bool {
        self.table.DxgkCbDisconnectDoorbell.is_some()
    }

    /// Reports an interrupt.
    pub fn notify_interrupt(&self, _irql: &Dirql, data: &mut DXGKARGCB_NOTIFY_INTERRUPT_DATA) {
        if let Some(f) = self.table.DxgkCbNotifyInterrupt {
            // SAFETY: device interrupt level (the token); the data is ours and lives across the call.
            unsafe { f(self.table.DeviceHandle, data) };
        }
    }

    /// Queues the DPC. That one is queued already is no failure.
    pub fn queue_dpc(&self) {
        if let Some(f) = self.table.DxgkCbQueueDpc {
            // SAFETY: callable at any IRQL; the handle is the one that came with the table.
            let _queued = unsafe { f(self.table.DeviceHandle) };
        }
    }

    /// The DPC half of what was reported.
    pub fn notify_dpc(&self, _irql: &impl AtMostDispatch) {
        if let Some(f) = self.table.DxgkCbNotifyDpc {
            // SAFETY: at most DISPATCH_LEVEL (the token).
            unsafe { f(self.table.DeviceHandle) };
        }
    }

    /// Runs `routine` at the device's interrupt level, exclusive with the interrupt routine. Whether it ran.
    pub(crate) fn synchronize(&self, routine: PKSYNCHRONIZE_ROUTINE, context: *mut c_void) -> bool {
        let Some(f) = self.table.DxgkCbSynchronizeExecution else { return false };
        let mut returned = 0;
        // SAFETY: `routine` accepts `context` (`interrupt` pairs the two as `Routines` says); message 0
        // is the only one this device has.
        let status = unsafe { f(self.table.DeviceHandle, routine, context, 0, &raw mut returned) };
        status.is_success()
    }

    /// `DXGK_DEVICE_INFO` of the device.
    ///
    /// # Errors
    /// The callback's.
    pub fn device_information(&self, _irql: &Passive) -> Result<DXGK_DEVICE_INFO> {
        let f = absent(self.table.DxgkCbGetDeviceInformation)?;
        let mut info = DXGK_DEVICE_INFO::zeroed();
        // SAFETY: PASSIVE_LEVEL (the token); the record is ours.
        check(unsafe { f(self.table.DeviceHandle, &raw mut info) })?;
        Ok(info)
    }

    /// `HighestPhysicalAddress` as it is now, for an engine's thread that holds no lock: such a thread is at
    /// PASSIVE_LEVEL.
    pub(crate) fn highest_physical_address(&self) -> Option<u64> {
        // SAFETY: engines map pages on their threads and outside of lock sections (`Host::map_system`).
        let irql = unsafe { Passive::assume() };
        // CAST: a physical address is not negative.
        self.device_information(&irql).ok().map(|info| info.HighestPhysicalAddress.QuadPart as u64)
    }

    /// Maps device registers.
    ///
    /// # Errors
    /// The callback's.
    pub fn map_registers(&self, _irql: &Passive, physical: i64, length: u32) -> Result<*mut c_void> {
        let f = absent(self.table.DxgkCbMapMemory)?;
        let address = PHYSICAL_ADDRESS { QuadPart: physical };
        let mut va = core::ptr::null_mut();
        let uncached = MEMORY_CACHING_TYPE::MmNonCached;
        // SAFETY: PASSIVE_LEVEL (the token); a memory resource of this device, not in I/O space, for kernel mode.
        check(unsafe { f(self.table.DeviceHandle, address, length, 0, 0, uncached, &raw mut va) })?;
        Ok(va)
    }

    /// Unmaps them.
    pub(crate) fn unmap_registers(&self, _irql: &Passive, va: *mut c_void) {
        if let Some(f) = self.table.DxgkCbUnmapMemory {
            // SAFETY: `va` came from map_registers and is given back once (registers.rs).
            let _status = unsafe { f(self.table.DeviceHandle, va) };
        }
    }

    /// The OS's side of the feature interface, if it has one. `adapter` goes into `hAdapter` of its functions: the
    /// article passes `DeviceHandle`, the page of DXGKCB_QUERYFEATUREINTERFACE names the miniport's context.
    pub fn features(&self, _irql: &Passive, adapter: HANDLE) -> Option<Features> {
        let f = self.table.DxgkCbQueryServices?;
        let mut table = DXGK_FEATURE_INTERFACE::zeroed();
        // CAST: 48 bytes.
        table.Size = size_of::<DXGK_FEATURE_INTERFACE>() as u16;
        table.Version = wddm_abi::DXGK_FEATURE_INTERFACE_VERSION_1 as u16;
        let raw = (&raw mut table).cast::<INTERFACE>();
        // SAFETY: PASSIVE_LEVEL (the token); the record begins as an INTERFACE does and says its size.
        let status = unsafe { f(self.table.DeviceHandle, DXGK_SERVICES::DxgkServicesFeature, raw) };
        if !status.is_success() {
            return None;
        }
        Some(Features { table, device: adapter })
    }

    /// Asks the OS to take a doorbell from user mode. When this returns, the page is rotated: the physical doorbell is
    /// free.
    ///
    /// # Errors
    /// The callback's.
    pub fn disconnect_doorbell(
        &self,
        _irql: &Passive,
        queue: HANDLE,
        doorbell: HANDLE,
        reason: D3DDDI_DOORBELLSTATUS,
    ) -> Result<()> {
        let f = absent(self.table.DxgkCbDisconnectDoorbell)?;
        let mut args = DXGKARGCB_DISCONNECTDOORBELL::zeroed();
        args.hHwQueue = queue;
        args.hDoorbell = doorbell;
        args.DisconnectReason = reason;
        // SAFETY: PASSIVE_LEVEL (the token); the record is ours.
        check(unsafe { f(&raw mut args) })
    }

    /// Returns whether the driver can say when a power component has reached its F-state.
    pub(crate) fn has_complete_f_state(&self) -> bool {
        self.table.DxgkCbCompleteFStateTransition.is_some()
    }

    /// Power component `component` has reached the F-state that it was told. The flag of the component says that this
    /// call comes, once for each.
    pub(crate) fn complete_f_state(&self, _irql: &impl AtMostDispatch, component: u32) {
        if let Some(f) = self.table.DxgkCbCompleteFStateTransition {
            // SAFETY: at most DISPATCH_LEVEL (the token); the handle is the one that came with the table.
            unsafe { f(self.table.DeviceHandle, component) };
        }
    }

    /// What the driver called the allocation with this `D3DKMT_HANDLE` of the current process; NULL for none. For the
    /// DDIs that pass such a handle.
    /// Source: DXGKCB_GETHANDLEDATA (`PASSIVE_LEVEL`; the handle that `DxgkDdiCreateAllocation` gave).
    pub fn allocation(&self, _irql: &Passive, handle: u32) -> HANDLE {
        let Some(f) = self.table.DxgkCbGetHandleData else { return core::ptr::null_mut() };
        let mut args = DXGKARGCB_GETHANDLEDATA::zeroed();
        args.hObject = handle;
        args.Type = DXGK_HANDLE_TYPE::DXGK_HANDLE_ALLOCATION;
        // SAFETY: PASSIVE_LEVEL (the token); the record is ours.
        unsafe { f(&raw const args) }
    }

    /// Tells the OS that a context's state is lost.
    ///
    /// # Errors
    /// The callback's.
    pub fn invalidate_hw_context(&self, _irql: &Passive, context: HANDLE) -> Result<()> {
        let f = absent(self.table.DxgkCbInvalidateHwContext)?;
        let mut args = DXGKARGCB_INVALIDATEHWCONTEXT::zeroed();
        args.hAdapter = self.table.DeviceHandle;
        args.hHwContext = context;
        // SAFETY: PASSIVE_LEVEL (the token); the record is ours.
        check(unsafe { f(&raw const args) })
    }
}

/// The OS's side of the feature interface.
pub struct Features {
    table: DXGK_FEATURE_INTERFACE,
    device: HANDLE,
}

impl Features {
    /// What the OS says of a feature; not enabled when it does not know it.
    pub fn state(&self, _irql: &Passive, feature: DXGK_FEATURE_ID) -> FeatureState {
        let Some(f) = self.table.IsFeatureEnabled else { return FeatureState::default() };
        let mut args = DXGKARGCB_ISFEATUREENABLED2::zeroed();
        args.FeatureId = feature;
        // SAFETY: PASSIVE_LEVEL (the token); the record is ours.
        let status = unsafe { f(self.device, &raw mut args) };
        if !status.is_success() {
            return FeatureState::default();
        }
        FeatureState { enabled: args.Result.Enabled(), version: args.Result.Version }
    }

    /// The OS's native fence capabilities, for a negotiated version 1.
    ///
    /// # Errors
    /// The callback's: the documents say that a negotiated version always has an interface.
    pub fn native_fence_caps(&self, _irql: &Passive, version: u16) -> Result<DXGKARGCB_FEATURE_NATIVEFENCE_CAPS_1> {
        let f = absent(self.table.QueryFeatureInterface)?;
        let mut interface = DXGKCBINT_FEATURE_NATIVEFENCE_1::zeroed();
        let mut args = DXGKARGCB_QUERYFEATUREINTERFACE::zeroed();
        args.FeatureId = DXGK_FEATURE_ID::DXGK_FEATURE_NATIVE_FENCE;
        args.Version = version;
        // CAST: 8 bytes.
        args.InterfaceSize = size_of::<DXGKCBINT_FEATURE_NATIVEFENCE_1>() as u16;
        args.Interface = (&raw mut interface).cast();
        // SAFETY: PASSIVE_LEVEL (the token); the record and the interface it points at are ours.
        check(unsafe { f(self.device, &raw mut args) })?;
        let get = absent(interface.GetOSCaps)?;
        let mut caps = DXGKARGCB_FEATURE_NATIVEFENCE_CAPS_1::zeroed();
        // SAFETY: the function came with the interface; the record is ours.
        check(unsafe { get(&raw mut caps) })?;
        Ok(caps)
    }
}

impl Drop for Features {
    fn drop(&mut self) {
        if let Some(f) = self.table.InterfaceDereference {
            // SAFETY: gives back the reference that the query took.
            unsafe { f(self.table.Context) };
        }
    }
}
