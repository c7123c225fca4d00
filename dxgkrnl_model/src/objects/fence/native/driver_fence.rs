//! What one driver knows of a fence.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use wddm_abi::{DXGKARG_CREATENATIVEFENCE, DXGKARG_DESTROYNATIVEFENCE, NTSTATUS};

use super::{FenceOnAdapter, NativeFence, Request, judge_destroy, judge_handle};
use crate::memory::fence::storage::Slot;
use crate::port::alive::make_room;
use crate::port::ddi::{self, call_ddi};
use crate::port::handle::{DriverHandle, KernelHandle};
use crate::port::miniport::Miniport;
use crate::port::sync::{Lock, Rank, Signal};

/// Native fences that a driver knows.
#[derive(Debug)]
struct NativeFences {
    list: Lock<Vec<Weak<FenceOnAdapter>>>,
    /// The driver's handle of the one that was destroyed last.
    dead: AtomicUsize,
}

impl Default for NativeFences {
    fn default() -> Self {
        Self { list: Lock::new(Rank::Registry, Vec::new()), dead: AtomicUsize::new(0) }
    }
}

impl FenceOnAdapter {
    /// Live native fences of an adapter.
    pub(crate) fn all_of(adapter: &Miniport) -> Vec<Arc<Self>> {
        let NativeFences { list, .. } = adapter.extension();
        list.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// The driver's handle of the fence that it destroyed last, or 0.
    pub(crate) fn dead_of(adapter: &Miniport) -> usize {
        let NativeFences { dead, .. } = adapter.extension();
        dead.load(Ordering::Relaxed)
    }

    /// Enters it among those of its adapter.
    fn enter(self: &Arc<Self>) {
        let NativeFences { list, .. } = self.adapter.extension();
        let mut list = list.lock();
        make_room(&mut list);
        list.push(Arc::downgrade(self));
    }

    pub(crate) fn adapter(&self) -> &Arc<Miniport> {
        &self.adapter
    }

    /// The driver's handle, as a number; 0 once it is destroyed.
    pub(crate) fn driver_handle(&self) -> usize {
        self.driver.number()
    }

    /// Whether the driver has not been told to destroy it.
    pub(crate) fn is_alive(&self) -> bool {
        self.driver.is_alive()
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
    pub(super) fn open(&self) -> bool {
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
            fence.drop_driver_fence(self);
        }
    }

    /// Tells the driver of a fence; it is open once.
    pub(super) fn create(
        adapter: &Arc<Miniport>,
        fence: &Arc<NativeFence>,
        slot: &Slot,
        request: &mut Request,
    ) -> Result<Arc<Self>, NTSTATUS> {
        let handle = KernelHandle::reserve();
        let mut arguments = DXGKARG_CREATENATIVEFENCE::zeroed();
        arguments.Reserved.fill(adapter.personality().faults.reserved);
        arguments.Flags.Value = adapter.personality().faults.reserved_flags(0);
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
        let driver_fence = Arc::new(Self {
            fence: Arc::downgrade(fence),
            adapter: adapter.clone(),
            slot: slot.clone(),
            opens: Lock::new(Rank::Leaf, Some(1)),
            handle,
            driver: DriverHandle::new(made),
            monitored: AtomicU64::new(slot.monitored().map_or(u64::MAX, crate::port::raw::load)),
            closing: AtomicBool::new(false),
            updates: AtomicU32::new(0),
            quiet: Signal::new(),
        });
        driver_fence.handle.bind(&driver_fence);
        driver_fence.enter();
        Ok(driver_fence)
    }

    /// Whether the driver may be told new values: it has the fence, and is not about to lose it.
    pub(in crate::objects::fence) fn is_open(&self) -> bool {
        self.is_alive() && !self.closing.load(Ordering::SeqCst)
    }

    /// Begins an update of the current value. False: the fence is being destroyed.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(in crate::objects::fence) fn begin_update(&self) -> bool {
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
    pub(in crate::objects::fence) fn end_update(&self) {
        self.updates.fetch_sub(1, Ordering::SeqCst);
        if self.closing.load(Ordering::SeqCst) {
            self.quiet.notify(self.adapter.kernel());
        }
    }

    pub(super) fn destroy(&self) {
        let driver = self.driver.number();
        if driver == 0 || self.closing.swap(true, Ordering::SeqCst) {
            return;
        }
        // Updates of monitored values run under the interrupt's lock: none is under way behind this.
        let _ = crate::port::section::synchronize(&self.adapter, || ());
        self.quiet.wait_for(self.adapter.kernel(), None, || (self.updates.load(Ordering::SeqCst) == 0).then_some(()));
        let mut arguments = DXGKARG_DESTROYNATIVEFENCE::zeroed();
        arguments.hGlobalNativeFence = crate::port::handle::of_driver(driver);
        arguments.Reserved.fill(self.adapter.personality().faults.reserved);
        arguments.Flags.Value = self.adapter.personality().faults.reserved_flags(0);
        let pointer = &raw mut arguments;
        let status = ddi::status(call_ddi!(self.adapter, DxgkDdiDestroyNativeFence(pointer)));
        // The driver may report it until the call has returned, not after.
        self.driver.clear();
        let NativeFences { dead, .. } = self.adapter.extension();
        dead.store(driver, Ordering::Relaxed);
        judge_destroy(&self.adapter, "DxgkDdiDestroyNativeFence", status);
    }
}
