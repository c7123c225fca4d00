//! Native fences: one object, one part per adapter that knows it, one per device that has it open.
//!
//! The current value may be where two adapters see it; the monitored value and who waits there belong to an adapter. So a
//! [`NativeFence`] holds value and waiters, [`FenceOnAdapter`] what one driver knows, [`LocalFence`] what one device has.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use nt_model::Machine;
use wddm_abi::{
    D3DDDI_NATIVEFENCE_TYPE, DXGKARG_CLOSENATIVEFENCE, DXGKARG_CREATENATIVEFENCE, DXGKARG_DESTROYNATIVEFENCE,
    DXGKARG_OPENNATIVEFENCE, NTSTATUS, ntstatus,
};

use super::Waiters;
use super::storage::{Addresses, Slot};
use crate::adapter::Adapter;
use crate::ddi::{self, call_ddi};
use crate::device::Device;
use crate::handle::{KernelHandle, KernelObject};
use crate::rules::fence::{NF_DESTROY, NF_HANDLE, NF_WRITE_AFTER};
use crate::sync::{Lock, Rank, Signal};

/// Bytes of private data in creating and opening.
pub(crate) const PRIVATE_SIZE: usize = 64;

/// What user mode asks for.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) kind: D3DDDI_NATIVEFENCE_TYPE,
    pub(crate) initial: u64,
    pub(crate) shared: bool,
    pub(crate) cross_adapter: bool,
    /// Private data; changed by the driver.
    pub(crate) private: [u8; PRIVATE_SIZE],
}

/// A fence.
#[derive(Debug)]
pub(crate) struct NativeFence {
    slot: Slot,
    cross_adapter: bool,
    shared: bool,
    waiters: Waiters,
    adapters: Lock<Vec<Arc<FenceOnAdapter>>>,
    /// Its device is lost: every wait is over, now and later.
    always: AtomicBool,
    /// The current value when that happened.
    dead: Lock<Option<u64>>,
    opens: Lock<u32>,
}

/// What one driver knows of a fence.
#[derive(Debug)]
pub(crate) struct FenceOnAdapter {
    fence: Weak<NativeFence>,
    adapter: Arc<Adapter>,
    handle: KernelHandle,
    driver: AtomicUsize,
    /// The monitored value that the driver was last told.
    pub(super) monitored: AtomicU64,
    /// It is being destroyed: no update begins any more.
    closing: AtomicBool,
    /// Updates of the current value that are in the driver.
    updates: AtomicU32,
    /// One of them has ended.
    quiet: Signal,
}

/// A fence in a device.
#[derive(Debug)]
pub(crate) struct LocalFence {
    device: Arc<Device>,
    fence: Arc<NativeFence>,
    on: Arc<FenceOnAdapter>,
    handle: KernelHandle,
    driver: AtomicUsize,
    addresses: Addresses,
    destroyed: AtomicBool,
}

impl NativeFence {
    /// The current value.
    pub(crate) fn value(&self) -> u64 {
        crate::raw::load(self.slot.current())
    }

    /// Whether a wait for `value` is over.
    pub(crate) fn has_reached(&self, value: u64) -> bool {
        self.always.load(Ordering::Acquire) || self.value() >= value
    }

    pub(crate) fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    pub(crate) fn slot(&self) -> &Slot {
        &self.slot
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    /// Whether its device was lost.
    pub(crate) fn is_always_signaled(&self) -> bool {
        self.always.load(Ordering::Acquire)
    }

    /// Every adapter that knows it.
    pub(crate) fn adapters(&self) -> Vec<Arc<FenceOnAdapter>> {
        self.adapters.lock().clone()
    }

    /// What the monitored value has to be: one less than the least value that is waited for, all ones when none is, and 0
    /// for the life of a cross-adapter fence.
    pub(crate) fn wanted_monitored(&self) -> u64 {
        if self.cross_adapter {
            return 0;
        }
        self.waiters.least().map_or(u64::MAX, |least| least.saturating_sub(1))
    }

    /// Who waits has changed: drivers are told, then the value is looked at again, until both agree.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn waiters_changed(&self, kernel: &Machine) {
        loop {
            super::update::set_monitored(self);
            if !self.release_waiters(kernel) {
                return;
            }
        }
    }

    /// Ends waits whose value is reached, and lets drivers know who is left.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn rescan(&self, kernel: &Machine) {
        if self.release_waiters(kernel) {
            self.waiters_changed(kernel);
        }
    }

    fn release_waiters(&self, kernel: &Machine) -> bool {
        let always = self.always.load(Ordering::Acquire);
        let slow = self.slow_resample();
        let value = self.value();
        for _ in 0..slow {
            kernel.yield_point(nt_model::sched::YieldPoint::Service);
        }
        self.waiters.release(kernel, |wanted| always || wanted <= value)
    }

    fn slow_resample(&self) -> u32 {
        self.adapters.lock().first().map_or(0, |on| on.adapter.personality().faults.slow_resample)
    }

    /// Signals it from the CPU: each driver writes the value and looks who waits on its GPU.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    ///
    /// # Errors
    /// What the driver returned.
    pub(crate) fn signal_from_cpu(&self, kernel: &Machine, value: u64) -> Result<(), NTSTATUS> {
        let result = super::update::set_current(self, value);
        self.rescan(kernel);
        result
    }

    /// Its device is lost: drivers are told with AlwaysSignaled, every wait ends.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn make_always_signaled(&self, kernel: &Machine) {
        if !self.always.swap(true, Ordering::AcqRel) {
            super::update::set_always_signaled(self);
            self.rescan(kernel);
        }
    }

    /// The value that an always-signaled fence has from now on.
    pub(super) fn note_dead_value(&self, value: u64) {
        *self.dead.lock() = Some(value);
    }

    fn judge_dead_value(&self, adapter: &Adapter) {
        if let Some(dead) = *self.dead.lock() {
            let now = self.value();
            adapter.rules().check(&NF_WRITE_AFTER, now == dead, || {
                format!("an always-signaled fence changed from {dead:#x} to {now:#x}")
            });
        }
    }

    /// One open less; with the last the drivers destroy it and the storage is given back.
    fn close(&self) {
        let last = {
            let mut opens = self.opens.lock();
            *opens = opens.saturating_sub(1);
            *opens == 0
        };
        if !last {
            return;
        }
        let adapters = std::mem::take(&mut *self.adapters.lock());
        for on in &adapters {
            on.destroy();
        }
        if let Some(on) = adapters.first() {
            self.judge_dead_value(&on.adapter);
            self.waiters.release(on.adapter.kernel(), |_| true);
            self.slot.release(&on.adapter);
        }
    }
}

impl FenceOnAdapter {
    pub(crate) fn adapter(&self) -> &Arc<Adapter> {
        &self.adapter
    }

    /// The driver's handle, as a number; 0 once it is destroyed.
    pub(crate) fn driver_handle(&self) -> usize {
        self.driver.load(Ordering::Acquire)
    }

    /// Whether the driver has not been told to destroy it.
    pub(crate) fn is_alive(&self) -> bool {
        self.driver_handle() != 0
    }

    /// `hGlobalNativeFence`, as the driver puts it into interrupt arrays.
    pub(crate) fn handle(&self) -> u64 {
        self.handle.value()
    }

    /// Ends waits whose value is reached.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn rescan(&self, kernel: &Machine) {
        if let Some(fence) = self.fence.upgrade() {
            fence.rescan(kernel);
        }
    }

    pub(crate) fn fence(&self) -> Option<Arc<NativeFence>> {
        self.fence.upgrade()
    }

    fn create(adapter: &Arc<Adapter>, fence: &Arc<NativeFence>, request: &mut Request) -> Result<Arc<Self>, NTSTATUS> {
        let handle = KernelHandle::reserve();
        let mut arguments = DXGKARG_CREATENATIVEFENCE::zeroed();
        arguments.hGlobalNativeFence = handle.raw();
        arguments.Type = request.kind;
        let (current, monitored) = fence.slot.system();
        arguments.CurrentValueSystemProcessGpuVa = current;
        arguments.MonitoredValueSystemProcessGpuVa = monitored;
        arguments.pPrivateDriverData = request.private;
        let (context, pointer) = (adapter.context(), &raw mut arguments);
        let status = ddi::status(call_ddi!(adapter, DxgkDdiCreateNativeFence(context, pointer)));
        if !status.is_success() {
            return Err(status);
        }
        request.private = arguments.pPrivateDriverData;
        let made = arguments.hGlobalNativeFence;
        judge_handle(adapter, "DxgkDdiCreateNativeFence", made.expose_provenance(), &handle);
        let on = Arc::new(Self {
            fence: Arc::downgrade(fence),
            adapter: adapter.clone(),
            handle,
            driver: AtomicUsize::new(made.expose_provenance()),
            monitored: AtomicU64::new(u64::MAX),
            closing: AtomicBool::new(false),
            updates: AtomicU32::new(0),
            quiet: Signal::new(),
        });
        on.handle.bind(KernelObject::Fence(Arc::downgrade(&on)));
        adapter.add_native_fence(&on);
        Ok(on)
    }

    /// Whether the driver may be told new values: it has the fence, and is not about to lose it.
    pub(super) fn is_open(&self) -> bool {
        self.is_alive() && !self.closing.load(Ordering::SeqCst)
    }

    /// Begins an update of the current value. False: the fence is being destroyed.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(super) fn begin_update(&self) -> bool {
        self.updates.fetch_add(1, Ordering::SeqCst);
        let open = self.is_open();
        if !open {
            self.end_update();
        }
        open
    }

    /// Ends one.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(super) fn end_update(&self) {
        self.updates.fetch_sub(1, Ordering::SeqCst);
        if self.closing.load(Ordering::SeqCst) {
            self.quiet.notify(self.adapter.kernel());
        }
    }

    fn destroy(&self) {
        let driver = self.driver.load(Ordering::Acquire);
        if driver == 0 || self.closing.swap(true, Ordering::SeqCst) {
            return;
        }
        // Updates of monitored values run under the interrupt's lock: none is under way behind this.
        let _ = crate::interrupt::synchronize(&self.adapter, || ());
        self.quiet.wait_for(self.adapter.kernel(), None, || (self.updates.load(Ordering::SeqCst) == 0).then_some(()));
        let mut arguments = DXGKARG_DESTROYNATIVEFENCE::zeroed();
        arguments.hGlobalNativeFence = core::ptr::with_exposed_provenance_mut(driver);
        let pointer = &raw mut arguments;
        let status = ddi::status(call_ddi!(self.adapter, DxgkDdiDestroyNativeFence(pointer)));
        // The driver may report it until the call has returned, not after.
        self.driver.store(0, Ordering::Release);
        judge_destroy(&self.adapter, "DxgkDdiDestroyNativeFence", status);
    }
}

fn judge_handle(adapter: &Adapter, ddi: &str, made: usize, ours: &KernelHandle) {
    let fine = made != 0 && made as u64 != ours.value();
    adapter.rules().check(&NF_HANDLE, fine, || format!("{ddi} left {made:#x}"));
}

fn judge_destroy(adapter: &Adapter, ddi: &str, status: NTSTATUS) {
    let fine = status.is_success() || status == ntstatus::STATUS_SYSTEM_SHUTDOWN;
    adapter.rules().check(&NF_DESTROY, fine, || format!("{ddi}: {status:?}"));
}

impl LocalFence {
    /// Makes a fence and opens it in a device.
    ///
    /// # Errors
    /// What the driver returned; STATUS_NO_MEMORY.
    pub(crate) fn create(device: &Arc<Device>, request: &mut Request) -> Result<Arc<Self>, NTSTATUS> {
        let part = device.process();
        let slot = part.fences.allocate(part, request.shared)?;
        crate::raw::store(slot.current(), request.initial);
        let first = if request.cross_adapter { 0 } else { u64::MAX };
        crate::raw::store(slot.monitored(), first);
        let fence = Arc::new(NativeFence {
            slot,
            cross_adapter: request.cross_adapter,
            shared: request.shared,
            waiters: Waiters::new(),
            adapters: Lock::new(Rank::Registry, Vec::new()),
            always: AtomicBool::new(false),
            dead: Lock::new(Rank::Log, None),
            opens: Lock::new(Rank::Log, 0),
        });
        let on = match FenceOnAdapter::create(device.adapter(), &fence, request) {
            Ok(on) => on,
            Err(status) => {
                fence.slot.release(device.adapter());
                return Err(status);
            }
        };
        on.monitored.store(first, Ordering::Release);
        fence.adapters.lock().push(on);
        let opened = Self::open(device, &fence, &mut request.private);
        if opened.is_err() {
            *fence.opens.lock() += 1;
            fence.close();
        }
        opened
    }

    /// Opens a fence in a device.
    ///
    /// # Errors
    /// What the driver returned; STATUS_NO_MEMORY; STATUS_NOT_SUPPORTED on another adapter than the fence's.
    pub(crate) fn open(
        device: &Arc<Device>,
        fence: &Arc<NativeFence>,
        private: &mut [u8; PRIVATE_SIZE],
    ) -> Result<Arc<Self>, NTSTATUS> {
        let adapter = device.adapter();
        let on = fence.adapters().into_iter().find(|on| Arc::ptr_eq(on.adapter(), adapter));
        let on = on.ok_or(ntstatus::STATUS_NOT_SUPPORTED)?;
        let part = device.process();
        let addresses = part.fences.show(part, &fence.slot)?;
        let handle = KernelHandle::reserve();
        let mut arguments = DXGKARG_OPENNATIVEFENCE::zeroed();
        arguments.hGlobalNativeFence = core::ptr::with_exposed_provenance_mut(on.driver_handle());
        arguments.hLocalNativeFence = handle.raw();
        arguments.hDevice = core::ptr::with_exposed_provenance_mut(device.driver_handle());
        arguments.CurrentValueGpuVa = addresses.current;
        arguments.MonitoredValueGpuVa = addresses.monitored;
        let extended = adapter.personality().build.open_native_fence_size() == size_of_val(&arguments);
        if extended {
            arguments.pPrivateDriverData = *private;
        }
        let mut shown = OpenRecord::new(adapter.personality().build.open_native_fence_size(), &arguments);
        let (context, pointer) = (adapter.context(), shown.pointer());
        let status = ddi::status(call_ddi!(adapter, DxgkDdiOpenNativeFence(context, pointer)));
        if !status.is_success() {
            part.fences.hide(part, &fence.slot);
            return Err(status);
        }
        let answer = shown.record();
        if extended {
            *private = answer.pPrivateDriverData;
        }
        let made = answer.hLocalNativeFence.expose_provenance();
        judge_handle(adapter, "DxgkDdiOpenNativeFence", made, &handle);
        *fence.opens.lock() += 1;
        let local = Arc::new(Self {
            device: device.clone(),
            fence: fence.clone(),
            on,
            handle,
            driver: AtomicUsize::new(made),
            addresses,
            destroyed: AtomicBool::new(false),
        });
        local.handle.bind(KernelObject::LocalFence(Arc::downgrade(&local)));
        device.add_fence(&local);
        Ok(local)
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(crate) fn fence(&self) -> &Arc<NativeFence> {
        &self.fence
    }

    /// The part of the device's adapter.
    pub(crate) fn on(&self) -> &Arc<FenceOnAdapter> {
        &self.on
    }

    /// Where the device's process sees it.
    pub(crate) fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// The driver's handle, as a number.
    pub(crate) fn driver_handle(&self) -> usize {
        self.driver.load(Ordering::Acquire)
    }

    /// The handle is gone. A second call does nothing.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn destroy(&self) {
        if self.destroyed.swap(true, Ordering::AcqRel) {
            return;
        }
        let adapter = self.device.adapter();
        let mut arguments = DXGKARG_CLOSENATIVEFENCE::zeroed();
        arguments.hLocalNativeFence = core::ptr::with_exposed_provenance_mut(self.driver_handle());
        let (context, pointer) = (adapter.context(), &raw mut arguments);
        let status = ddi::status(call_ddi!(adapter, DxgkDdiCloseNativeFence(context, pointer)));
        judge_destroy(adapter, "DxgkDdiCloseNativeFence", status);
        self.fence.close();
        self.device.process().fences.hide(self.device.process(), &self.fence.slot);
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
