//! Native fences: one object, one part per adapter that knows it, one per device that has it open.
//!
//! The current value may be where two adapters see it; the monitored value belongs to an adapter. So a [`NativeFence`] holds
//! value and waiters, [`FenceOnAdapter`] what one driver knows, [`LocalFence`] what one device has. An NT handle holds the
//! fence on the adapter of the device that shared it ([`Held`]). A driver is told to destroy its part when the last device of
//! its adapter has closed it and no NT handle holds it there; the fence ends with its last part.
//!
//! A cross-adapter fence of an adapter without native fences is a monitored one there, a [`FenceState`] with the same current
//! value: its twin.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use nt_model::Machine;
use wddm_abi::{
    D3DDDI_NATIVEFENCE_TYPE, DXGKARG_CLOSENATIVEFENCE, DXGKARG_CREATENATIVEFENCE, DXGKARG_DESTROYNATIVEFENCE,
    DXGKARG_OPENNATIVEFENCE, NTSTATUS, ntstatus,
};

use super::Waiters;
use super::monitored::{FenceState, Passed};
use super::storage::{Addresses, Pages, Slot};
use crate::adapter::Adapter;
use crate::ddi::{self, call_ddi};
use crate::device::Device;
use crate::handle::{KernelHandle, KernelObject};
use crate::rules::fence::{NF_DESTROY, NF_HANDLE, NF_WRITE_AFTER};
use crate::sync::{Gate, Lock, Rank, Signal};

/// What whoever made a fence may do.
pub(crate) const FULL_ACCESS: u32 = u32::MAX;
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

impl Request {
    fn pages(&self) -> Pages {
        match (self.cross_adapter, self.is_intra_gpu(), self.shared) {
            (true, ..) => Pages::Common,
            (_, true, _) => Pages::IntraGpu,
            (_, _, true) => Pages::Alone,
            _ => Pages::Packed,
        }
    }

    fn is_intra_gpu(&self) -> bool {
        self.kind == D3DDDI_NATIVEFENCE_TYPE::D3DDDI_NATIVEFENCE_TYPE_INTRA_GPU
    }
}

/// A fence.
#[derive(Debug)]
pub(crate) struct NativeFence {
    /// Where it was made.
    slot: Slot,
    cross_adapter: bool,
    intra_gpu: bool,
    shared: bool,
    waiters: Waiters,
    adapters: Lock<Vec<Arc<FenceOnAdapter>>>,
    /// Its device is lost: every wait is over, now and later.
    always: AtomicBool,
    /// The current value when that happened.
    dead: Lock<Option<u64>>,
    /// The same fence on adapters without native fences.
    twin: Lock<Weak<FenceState>>,
    /// The value that every adapter was last told of.
    told: AtomicU64,
    /// Whoever makes a part of it.
    making: Gate,
}

/// What one driver knows of a fence.
#[derive(Debug)]
pub(crate) struct FenceOnAdapter {
    fence: Weak<NativeFence>,
    adapter: Arc<Adapter>,
    slot: Slot,
    /// Devices that have it open, and NT handles; `None` once it is destroyed.
    opens: Lock<Option<u32>>,
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
    /// What the NT handle that it was opened by allows.
    access: u32,
    destroyed: AtomicBool,
}

impl NativeFence {
    fn new(slot: Slot, request: &Request) -> Arc<Self> {
        let first = if request.cross_adapter { 0 } else { u64::MAX };
        crate::raw::store(slot.monitored(), first);
        Arc::new(Self {
            told: AtomicU64::new(crate::raw::load(slot.current())),
            slot,
            cross_adapter: request.cross_adapter,
            intra_gpu: request.is_intra_gpu(),
            shared: request.shared,
            waiters: Waiters::new(),
            adapters: Lock::new(Rank::Registry, Vec::new()),
            always: AtomicBool::new(false),
            dead: Lock::new(Rank::Log, None),
            twin: Lock::new(Rank::Log, Weak::new()),
            making: Gate::new(),
        })
    }

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

    /// Whether user mode has no way to it but the GPU's.
    pub(crate) fn is_intra_gpu(&self) -> bool {
        self.intra_gpu
    }

    /// Whether several adapters may know it.
    pub(crate) fn is_cross_adapter(&self) -> bool {
        self.cross_adapter
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

    /// Signals it from the CPU, for somebody on `from`: that driver writes the value, each looks who waits on its GPU.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    ///
    /// # Errors
    /// What the driver returned.
    pub(crate) fn signal_from_cpu(&self, kernel: &Machine, value: u64, from: &Adapter) -> Result<(), NTSTATUS> {
        let result = super::update::set_current(self, value, from);
        self.rescan(kernel);
        result
    }

    /// Its device is lost: drivers are told with AlwaysSignaled, every wait ends.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn make_always_signaled(&self, kernel: &Machine) {
        if !self.always.swap(true, Ordering::AcqRel) {
            super::update::set_always_signaled(self);
            self.rescan_twin(kernel);
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

    /// The part on `adapter`, opened once more. A cross-adapter fence gets one where it had none.
    ///
    /// # Errors
    /// What the driver returned; STATUS_NO_MEMORY; STATUS_NOT_SUPPORTED on another adapter than the fence's, unless it is a
    /// cross-adapter one; STATUS_INVALID_HANDLE once the fence has ended.
    fn part_on(self: &Arc<Self>, adapter: &Arc<Adapter>) -> Result<Arc<FenceOnAdapter>, NTSTATUS> {
        let _making = self.making.exclusive(adapter.kernel());
        let parts = self.adapters();
        if let Some(part) = parts.iter().find(|part| Arc::ptr_eq(part.adapter(), adapter) && part.open()) {
            return Ok(part.clone());
        }
        if parts.is_empty() {
            return Err(ntstatus::STATUS_INVALID_HANDLE);
        }
        if !self.cross_adapter || !adapter.known_caps().has_native_fences() {
            return Err(ntstatus::STATUS_NOT_SUPPORTED);
        }
        self.make_part(adapter)
    }

    /// A part on an adapter whose driver does not know the fence.
    ///
    /// Chosen: its private data are zeros; those of the opening go to `DxgkDdiOpenNativeFence`.
    fn make_part(self: &Arc<Self>, adapter: &Arc<Adapter>) -> Result<Arc<FenceOnAdapter>, NTSTATUS> {
        let slot = Slot::beside(adapter, self.slot.current_page())?;
        crate::raw::store(slot.monitored(), 0);
        let mut request = Request {
            kind: D3DDDI_NATIVEFENCE_TYPE::D3DDDI_NATIVEFENCE_TYPE_DEFAULT,
            initial: 0,
            shared: true,
            cross_adapter: true,
            private: [0; PRIVATE_SIZE],
        };
        let made = FenceOnAdapter::create(adapter, self, &slot, &mut request).inspect_err(|_| slot.release(adapter))?;
        self.adapters.lock().push(made.clone());
        Ok(made)
    }

    /// One open of a part less; with the last its driver destroys it and the storage is given back.
    fn close(&self, part: &Arc<FenceOnAdapter>) {
        let last = {
            let mut opens = part.opens.lock();
            *opens = opens.and_then(|opens| opens.checked_sub(1)).filter(|opens| *opens != 0);
            opens.is_none()
        };
        if last {
            self.drop_part(part);
        }
    }

    fn drop_part(&self, part: &Arc<FenceOnAdapter>) {
        let (known, left) = {
            let mut adapters = self.adapters.lock();
            let before = adapters.len();
            adapters.retain(|other| !Arc::ptr_eq(other, part));
            (adapters.len() != before, adapters.len())
        };
        if !known {
            return;
        }
        part.destroy();
        self.judge_dead_value(&part.adapter);
        if left == 0 {
            // A wait that comes too late ends at once.
            self.always.store(true, Ordering::Release);
            self.waiters.release(part.adapter.kernel(), |_| true);
        }
        part.slot.release(&part.adapter);
    }

    /// It was signalled on `on`'s adapter: waits end, and the other adapters hear of it.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn signaled_on(&self, kernel: &Machine, on: &Adapter) {
        if self.cross_adapter {
            self.told.store(self.value(), Ordering::SeqCst);
            super::update::notify(self, Some(on));
            self.rescan_twin(kernel);
        }
        self.rescan(kernel);
    }

    /// As [`signaled_on`](Self::signaled_on), if nobody has passed this value on yet.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn looked_at_on(&self, kernel: &Machine, on: &Adapter) {
        if self.cross_adapter && self.told.load(Ordering::SeqCst) != self.value() {
            self.signaled_on(kernel, on);
        } else {
            self.rescan(kernel);
        }
    }

    /// The CPU signalled `value`, and every driver has been told.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(super) fn told(&self, kernel: &Machine, value: u64) {
        if self.cross_adapter {
            self.told.store(value, Ordering::SeqCst);
            self.rescan_twin(kernel);
        }
    }

    fn rescan_twin(&self, kernel: &Machine) {
        let twin = self.twin.lock().upgrade();
        if let Some(twin) = twin {
            twin.rescan(kernel);
        }
    }

    /// The same fence for adapters without native fences, made when there is none.
    pub(crate) fn twin(self: &Arc<Self>) -> Arc<FenceState> {
        let made = FenceState::over(self.slot.current_page(), self.as_passed());
        let mut twin = self.twin.lock();
        if let Some(known) = twin.upgrade() {
            return known;
        }
        *twin = Arc::downgrade(&made);
        made
    }

    /// The native fence with the value of a monitored one, on an adapter other than that one's.
    ///
    /// # Errors
    /// As [`LocalFence::open`].
    fn over(adapter: &Arc<Adapter>, twin: &Arc<FenceState>) -> Result<(Arc<Self>, Arc<FenceOnAdapter>), NTSTATUS> {
        let is_it = |fence: &Arc<Self>| core::ptr::eq(fence.twin.lock().as_ptr(), Arc::as_ptr(twin));
        let _making = twin.making.exclusive(adapter.kernel());
        let adapters = adapter.shared().adapters();
        let mut known = adapters.iter().flat_map(|other| other.native_fences()).filter_map(|on| on.fence());
        if let Some(known) = known.find(is_it) {
            match known.part_on(adapter) {
                // It ended meanwhile: another one follows.
                Err(ntstatus::STATUS_INVALID_HANDLE) => (),
                part => return part.map(|part| (known, part)),
            }
        }
        let slot = Slot::beside(adapter, twin.page())?;
        let mut request = Request {
            kind: D3DDDI_NATIVEFENCE_TYPE::D3DDDI_NATIVEFENCE_TYPE_DEFAULT,
            initial: 0,
            shared: true,
            cross_adapter: true,
            private: [0; PRIVATE_SIZE],
        };
        let fence = Self::new(slot, &request);
        let part = FenceOnAdapter::create(adapter, &fence, &fence.slot, &mut request);
        let part = part.inspect_err(|_| fence.slot.release(adapter))?;
        fence.adapters.lock().push(part.clone());
        *fence.twin.lock() = Arc::downgrade(twin);
        twin.set_native(fence.as_passed());
        Ok((fence, part))
    }

    fn as_passed(self: &Arc<Self>) -> Weak<dyn Passed> {
        let this: Weak<Self> = Arc::downgrade(self);
        this
    }
}

/// Its twin's value, which is this one's, was written: every adapter hears of it, and waits end.
impl Passed for NativeFence {
    fn signaled(&self, kernel: &Machine) {
        self.told.store(self.value(), Ordering::SeqCst);
        super::update::notify(self, None);
        self.rescan(kernel);
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

    pub(crate) fn fence(&self) -> Option<Arc<NativeFence>> {
        self.fence.upgrade()
    }

    /// Its place.
    pub(crate) fn slot(&self) -> &Slot {
        &self.slot
    }

    /// Opens it once more. False: it is destroyed, or about to be.
    fn open(&self) -> bool {
        let mut opens = self.opens.lock();
        *opens = opens.map(|opens| opens + 1);
        opens.is_some()
    }

    /// Its adapter is being stopped: the driver destroys it, whoever holds it.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn forsake(self: &Arc<Self>) {
        *self.opens.lock() = None;
        if let Some(fence) = self.fence() {
            fence.drop_part(self);
        }
    }

    /// Tells the driver of a fence; it is open once.
    fn create(
        adapter: &Arc<Adapter>,
        fence: &Arc<NativeFence>,
        slot: &Slot,
        request: &mut Request,
    ) -> Result<Arc<Self>, NTSTATUS> {
        let handle = KernelHandle::reserve();
        let mut arguments = DXGKARG_CREATENATIVEFENCE::zeroed();
        arguments.Reserved.fill(adapter.personality().faults.reserved);
        arguments.hGlobalNativeFence = handle.raw();
        arguments.Type = request.kind;
        let (current, monitored) = slot.system();
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
            slot: slot.clone(),
            opens: Lock::new(Rank::Log, Some(1)),
            handle,
            driver: AtomicUsize::new(made.expose_provenance()),
            monitored: AtomicU64::new(crate::raw::load(slot.monitored())),
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
        arguments.Reserved.fill(self.adapter.personality().faults.reserved);
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
        let slot = part.fences.allocate(part, request.pages())?;
        crate::raw::store(slot.current(), request.initial);
        let fence = NativeFence::new(slot, request);
        let on = FenceOnAdapter::create(device.adapter(), &fence, &fence.slot, request);
        let on = on.inspect_err(|_| fence.slot.release(device.adapter()))?;
        fence.adapters.lock().push(on.clone());
        Self::open_part(device, &fence, on, &mut request.private, FULL_ACCESS)
    }

    /// Opens a fence in a device, as an NT handle allows.
    ///
    /// # Errors
    /// What the driver returned; STATUS_NO_MEMORY; as [`NativeFence::part_on`].
    pub(crate) fn open(
        device: &Arc<Device>,
        fence: &Arc<NativeFence>,
        private: &mut [u8; PRIVATE_SIZE],
        access: u32,
    ) -> Result<Arc<Self>, NTSTATUS> {
        let on = fence.part_on(device.adapter())?;
        Self::open_part(device, fence, on, private, access)
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
        let (fence, on) = NativeFence::over(device.adapter(), state)?;
        Self::open_part(device, &fence, on, private, access)
    }

    /// Opens a part that has been counted.
    fn open_part(
        device: &Arc<Device>,
        fence: &Arc<NativeFence>,
        on: Arc<FenceOnAdapter>,
        private: &mut [u8; PRIVATE_SIZE],
        access: u32,
    ) -> Result<Arc<Self>, NTSTATUS> {
        let opened = Self::open_counted(device, fence, &on, private, access);
        if opened.is_err() {
            fence.close(&on);
        }
        opened
    }

    fn open_counted(
        device: &Arc<Device>,
        fence: &Arc<NativeFence>,
        on: &Arc<FenceOnAdapter>,
        private: &mut [u8; PRIVATE_SIZE],
        access: u32,
    ) -> Result<Arc<Self>, NTSTATUS> {
        let adapter = device.adapter();
        let part = device.process();
        let addresses = part.fences.show(part, &on.slot)?;
        let handle = KernelHandle::reserve();
        let mut arguments = DXGKARG_OPENNATIVEFENCE::zeroed();
        arguments.hGlobalNativeFence = core::ptr::with_exposed_provenance_mut(on.driver_handle());
        arguments.hLocalNativeFence = handle.raw();
        arguments.hDevice = core::ptr::with_exposed_provenance_mut(device.driver_handle());
        arguments.CurrentValueGpuVa = addresses.current;
        arguments.MonitoredValueGpuVa = addresses.monitored;
        arguments.Reserved.fill(adapter.personality().faults.reserved);
        let extended = adapter.personality().build.open_native_fence_size() == size_of_val(&arguments);
        if extended {
            arguments.pPrivateDriverData = *private;
        }
        let mut shown = OpenRecord::new(adapter.personality().build.open_native_fence_size(), &arguments);
        let (context, pointer) = (adapter.context(), shown.pointer());
        let status = ddi::status(call_ddi!(adapter, DxgkDdiOpenNativeFence(context, pointer)));
        if !status.is_success() {
            part.fences.hide(part, &on.slot);
            return Err(status);
        }
        let answer = shown.record();
        if extended {
            *private = answer.pPrivateDriverData;
        }
        let made = answer.hLocalNativeFence.expose_provenance();
        judge_handle(adapter, "DxgkDdiOpenNativeFence", made, &handle);
        let local = Arc::new(Self {
            device: device.clone(),
            fence: fence.clone(),
            on: on.clone(),
            handle,
            driver: AtomicUsize::new(made),
            addresses,
            access,
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

    /// What the NT handle that it was opened by allows.
    pub(crate) fn access(&self) -> u32 {
        self.access
    }

    /// Whether that is this right, too.
    pub(crate) fn allows(&self, right: u32) -> bool {
        self.access & right == right
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
        arguments.Reserved.fill(adapter.personality().faults.reserved);
        let (context, pointer) = (adapter.context(), &raw mut arguments);
        let status = ddi::status(call_ddi!(adapter, DxgkDdiCloseNativeFence(context, pointer)));
        judge_destroy(adapter, "DxgkDdiCloseNativeFence", status);
        self.fence.close(&self.on);
        self.device.process().fences.hide(self.device.process(), &self.on.slot);
    }
}

/// What an NT handle holds of a fence.
#[derive(Debug)]
pub(crate) struct Held {
    fence: Arc<NativeFence>,
    on: Arc<FenceOnAdapter>,
}

impl Held {
    /// Holds what a device has open. `None`: it is being destroyed.
    pub(crate) fn new(local: &LocalFence) -> Option<Self> {
        local.on.open().then(|| Self { fence: local.fence.clone(), on: local.on.clone() })
    }

    pub(crate) fn fence(&self) -> &Arc<NativeFence> {
        &self.fence
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _inside = self.on.adapter.kernel().enter();
        self.fence.close(&self.on);
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
