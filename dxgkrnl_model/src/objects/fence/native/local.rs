//! A fence in a device, and what an NT handle holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wddm_abi::{DXGKARG_CLOSENATIVEFENCE, DXGKARG_OPENNATIVEFENCE, NTSTATUS};

use super::{FULL_ACCESS, FenceOnAdapter, NativeFence, PRIVATE_SIZE, Request, judge_destroy, judge_handle};
use crate::objects::device::Device;
use crate::objects::fence::monitored::FenceState;
use crate::objects::fence::shown::Addresses;
use crate::port::ddi::{self, call_ddi};
use crate::port::handle::{DriverHandle, KernelHandle, KernelObject};

/// A fence in a device.
#[derive(Debug)]
pub(crate) struct LocalFence {
    device: Arc<Device>,
    fence: Arc<NativeFence>,
    driver_fence: Arc<FenceOnAdapter>,
    handle: KernelHandle<LocalFence>,
    driver: DriverHandle,
    addresses: Addresses,
    /// The access rights of the NT handle that the fence was opened by.
    access: u32,
    destroyed: AtomicBool,
}
impl KernelObject for LocalFence {
    const KIND: &'static str = "local native fence";
}

impl LocalFence {
    /// Makes a fence and opens it in a device.
    ///
    /// # Errors
    /// What the driver returned; STATUS_NO_MEMORY.
    pub(crate) fn create(device: &Arc<Device>, request: &mut Request) -> Result<Arc<Self>, NTSTATUS> {
        Self::create_for_queue(device, request, true)
    }

    /// Makes a fence for a queue's progress. `opened`: the driver is told at once that the fence is open in the device;
    /// otherwise [`open_in_driver`](Self::open_in_driver) may tell it later.
    ///
    /// # Errors
    /// What the driver returned; STATUS_NO_MEMORY.
    pub(crate) fn create_for_queue(
        device: &Arc<Device>,
        request: &mut Request,
        opened: bool,
    ) -> Result<Arc<Self>, NTSTATUS> {
        let gpu_process = device.process();
        let slot = gpu_process.fences.allocate(gpu_process, request.pages())?;
        // In memory that the CPU does not see, user mode has the GPU store it: see D3DKMDT_FENCESTORAGESURFACEDATA,
        // Remarks.
        if let Some(current) = slot.current() {
            crate::port::raw::store(current, request.initial);
        }
        let fence = NativeFence::new(slot, request);
        let driver_fence = FenceOnAdapter::create(device.adapter(), &fence, &fence.slot, request);
        let driver_fence = driver_fence.inspect_err(|_| fence.slot.release(device.adapter()))?;
        fence.driver_fences.lock().push(driver_fence.clone());
        Self::open_driver_fence(device, &fence, driver_fence, &mut request.private, FULL_ACCESS, opened)
    }

    /// Opens a fence in a device, as an NT handle allows.
    ///
    /// # Errors
    /// What the driver returned; STATUS_NO_MEMORY; as [`NativeFence::driver_fence_on`].
    pub(crate) fn open(
        device: &Arc<Device>,
        fence: &Arc<NativeFence>,
        private: &mut [u8; PRIVATE_SIZE],
        access: u32,
    ) -> Result<Arc<Self>, NTSTATUS> {
        let driver_fence = fence.driver_fence_on(device.adapter())?;
        Self::open_driver_fence(device, fence, driver_fence, private, access, true)
    }

    /// Opens a monitored fence of another adapter as a native one.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn open_monitored(
        device: &Arc<Device>,
        state: &Arc<FenceState>,
        private: &mut [u8; PRIVATE_SIZE],
        access: u32,
    ) -> Result<Arc<Self>, NTSTATUS> {
        let (fence, driver_fence) = NativeFence::over(device.adapter(), state)?;
        Self::open_driver_fence(device, &fence, driver_fence, private, access, true)
    }

    /// Opens a [`FenceOnAdapter`] whose `opens` counts this open already. `tell`: `DxgkDdiOpenNativeFence` is called.
    fn open_driver_fence(
        device: &Arc<Device>,
        fence: &Arc<NativeFence>,
        driver_fence: Arc<FenceOnAdapter>,
        private: &mut [u8; PRIVATE_SIZE],
        access: u32,
        tell: bool,
    ) -> Result<Arc<Self>, NTSTATUS> {
        let local = Self::open_counted(device, fence, &driver_fence, access).and_then(|local| {
            if tell {
                local
                    .open_in_driver(private)
                    .inspect_err(|_| device.process().fences.hide(device.process(), &driver_fence.slot))?;
            }
            device.add_fence(&local);
            Ok(local)
        });
        if local.is_err() {
            fence.close(&driver_fence);
        }
        local
    }

    fn open_counted(
        device: &Arc<Device>,
        fence: &Arc<NativeFence>,
        driver_fence: &Arc<FenceOnAdapter>,
        access: u32,
    ) -> Result<Arc<Self>, NTSTATUS> {
        let gpu_process = device.process();
        let addresses = gpu_process.fences.show(gpu_process, &driver_fence.slot)?;
        let local = Arc::new(Self {
            device: device.clone(),
            fence: fence.clone(),
            driver_fence: driver_fence.clone(),
            handle: KernelHandle::reserve(),
            driver: DriverHandle::none(),
            addresses,
            access,
            destroyed: AtomicBool::new(false),
        });
        local.handle.bind(&local);
        Ok(local)
    }

    /// Tells the driver that the fence is open in the device (`DxgkDdiOpenNativeFence`), and keeps the handle that it
    /// gives.
    ///
    /// # Errors
    /// What the driver returned.
    pub(crate) fn open_in_driver(&self, private: &mut [u8; PRIVATE_SIZE]) -> Result<(), NTSTATUS> {
        let adapter = self.device.adapter();
        let mut arguments = DXGKARG_OPENNATIVEFENCE::zeroed();
        arguments.hGlobalNativeFence = crate::port::handle::of_driver(self.driver_fence.driver_handle());
        arguments.hLocalNativeFence = self.handle.raw();
        arguments.hDevice = crate::port::handle::of_driver(self.device.driver_handle());
        arguments.CurrentValueGpuVa = self.addresses.current;
        arguments.MonitoredValueGpuVa = self.addresses.monitored;
        arguments.Reserved.fill(adapter.personality().faults.reserved);
        arguments.Flags.Value = adapter.personality().faults.reserved_flags(0);
        let extended = adapter.personality().build.open_native_fence_size() == size_of_val(&arguments);
        if extended {
            arguments.pPrivateDriverData = *private;
        }
        let mut shown = OpenRecord::new(adapter.personality().build.open_native_fence_size(), &arguments);
        let (context, pointer) = (adapter.context(), shown.pointer());
        let status = ddi::status(call_ddi!(adapter, DxgkDdiOpenNativeFence(context, pointer)));
        if !status.is_success() {
            return Err(status);
        }
        let answer = shown.record();
        if extended {
            *private = answer.pPrivateDriverData;
        }
        let made = answer.hLocalNativeFence;
        judge_handle(adapter, "DxgkDdiOpenNativeFence", made.expose_provenance(), &self.handle);
        self.driver.set(made);
        Ok(())
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(crate) fn fence(&self) -> &Arc<NativeFence> {
        &self.fence
    }

    /// The fence as the driver of the device's adapter knows it.
    pub(crate) fn driver_fence(&self) -> &Arc<FenceOnAdapter> {
        &self.driver_fence
    }

    /// Returns the access rights of the NT handle that the fence was opened by.
    pub(crate) fn access(&self) -> u32 {
        self.access
    }

    /// Returns whether the fence was opened with `right`.
    pub(crate) fn allows(&self, right: u32) -> bool {
        self.access & right == right
    }

    /// The addresses at which the device's process sees the fence's values.
    pub(crate) fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// The driver's handle, as a number; 0 when the driver was not told that the fence is open.
    pub(crate) fn driver_handle(&self) -> usize {
        self.driver.number()
    }

    /// Call when the handle is gone: closes the fence in the driver. A second call does nothing.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn destroy(&self) {
        if self.destroyed.swap(true, Ordering::AcqRel) {
            return;
        }
        let adapter = self.device.adapter();
        if self.driver_handle() != 0 {
            let mut arguments = DXGKARG_CLOSENATIVEFENCE::zeroed();
            arguments.hLocalNativeFence = self.driver.raw();
            arguments.Reserved.fill(adapter.personality().faults.reserved);
            arguments.Flags.Value = adapter.personality().faults.reserved_flags(0);
            let (context, pointer) = (adapter.context(), &raw mut arguments);
            let status = ddi::status(call_ddi!(adapter, DxgkDdiCloseNativeFence(context, pointer)));
            judge_destroy(adapter, "DxgkDdiCloseNativeFence", status);
        }
        self.fence.close(&self.driver_fence);
        self.device.process().fences.hide(self.device.process(), &self.driver_fence.slot);
    }
}

/// What an NT handle holds of a fence.
#[derive(Debug)]
pub(crate) struct KeptFence {
    fence: Arc<NativeFence>,
    driver_fence: Arc<FenceOnAdapter>,
}

impl KeptFence {
    /// Holds the fence that a device has open. `None`: the fence is being destroyed.
    pub(crate) fn new(local: &LocalFence) -> Option<Self> {
        local.driver_fence.open().then(|| Self { fence: local.fence.clone(), driver_fence: local.driver_fence.clone() })
    }

    pub(crate) fn fence(&self) -> &Arc<NativeFence> {
        &self.fence
    }
}

impl Drop for KeptFence {
    fn drop(&mut self) {
        let _inside = self.driver_fence.adapter.kernel().enter();
        self.fence.close(&self.driver_fence);
    }
}

/// `DXGKARG_OPENNATIVEFENCE` with as many bytes as the build has, and a pattern behind them.
#[repr(C, align(8))]
#[derive(Debug)]
struct OpenRecord {
    bytes: [u8; size_of::<DXGKARG_OPENNATIVEFENCE>()],
}

impl OpenRecord {
    fn new(size: usize, arguments: &DXGKARG_OPENNATIVEFENCE) -> Self {
        use wddm_abi::Plain;
        let mut bytes = [0xD5; size_of::<DXGKARG_OPENNATIVEFENCE>()];
        bytes[..size].copy_from_slice(&arguments.as_bytes()[..size]);
        Self { bytes }
    }

    fn pointer(&mut self) -> *mut DXGKARG_OPENNATIVEFENCE {
        self.bytes.as_mut_ptr().cast()
    }

    fn record(&self) -> DXGKARG_OPENNATIVEFENCE {
        use wddm_abi::Plain;
        DXGKARG_OPENNATIVEFENCE::from_bytes(&self.bytes).unwrap_or_else(DXGKARG_OPENNATIVEFENCE::zeroed)
    }
}
