//! Monitored fences of WDDM 2.0: a 64-bit value in a page that the CPU reads and the GPU writes.
//!
//! Chosen: each has a page of its own, read-only for the process's CPU and writable for its GPU address space. A signal
//! from the CPU stores the value by the OS and tells no driver; `DXGK_INTERRUPT_MONITORED_FENCE_SIGNALED` makes the OS look
//! at every one on the adapter. One that was made for several adapters is opened as a native fence where those are
//! ([`super::native`]); it has one value, and a signal is passed on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use nt_model::{CacheType, Machine, Rights, UserMapping};
use wddm_abi::{NTSTATUS, ntstatus};

use super::Waiters;
use super::native::{FULL_ACCESS, NativeFence};
use super::place::ObjectPage;
use crate::adapter::Adapter;
use crate::device::Device;
use crate::memory::page_table::Purpose;
use crate::memory::pages::Page;
use crate::memory::residency::status_of;
use crate::memory::space::Content;
use crate::memory::va::{PAGE, Protection, Use, Wanted};
use crate::process::{ProcessAdapter, ProcessInner};
use crate::sync::Gate;

/// The value and who waits for it.
#[derive(Debug)]
pub(crate) struct FenceState {
    page: Arc<Page>,
    waiters: Waiters,
    /// Handles that name it.
    open: AtomicU32,
    /// LUID of the adapter that it was made on; 0 for the twin of a native fence.
    home: u64,
    cross_adapter: bool,
    /// The value that the native one was last told of.
    told: AtomicU64,
    /// Whoever makes the native one.
    pub(super) making: Gate,
}

impl FenceState {
    fn new(adapter: &Arc<Adapter>, page: Page, initial: u64, cross_adapter: bool) -> Arc<Self> {
        crate::raw::store(page.address(), initial);
        Arc::new(Self {
            page: Arc::new(page),
            waiters: Waiters::new(),
            open: AtomicU32::new(0),
            home: adapter.luid_number(),
            cross_adapter,
            told: AtomicU64::new(initial),
            making: Gate::new(),
        })
    }

    /// A native fence as a monitored one.
    pub(crate) fn over(page: &Arc<Page>) -> Arc<Self> {
        Arc::new(Self {
            page: page.clone(),
            waiters: Waiters::new(),
            open: AtomicU32::new(0),
            home: 0,
            cross_adapter: true,
            told: AtomicU64::new(crate::raw::load(page.address())),
            making: Gate::new(),
        })
    }

    /// The page of the value.
    pub(crate) fn page(&self) -> &Arc<Page> {
        &self.page
    }

    /// The native fence with the same value, if there is one.
    pub(super) fn native(self: &Arc<Self>, kernel: &Machine) -> Option<Arc<NativeFence>> {
        let shared = if self.cross_adapter { crate::os::shared_of(kernel)? } else { return None };
        let parts = shared.adapters().into_iter().flat_map(|adapter| adapter.native_fences());
        parts.filter_map(|part| part.fence()).find(|fence| fence.is_twin(self))
    }

    /// Whether a device of `adapter` may open it: as a monitored fence where it was made, on others as what they have, if it
    /// was made for several adapters.
    pub(crate) fn is_for(&self, adapter: &Arc<Adapter>) -> bool {
        self.cross_adapter || self.is_at_home(adapter)
    }

    /// Whether it was made on `adapter`.
    pub(crate) fn is_at_home(&self, adapter: &Arc<Adapter>) -> bool {
        self.home == adapter.luid_number()
    }

    /// The GPU of an adapter may have signalled it: waits end, and the native fence's adapters hear of it.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    fn looked_at(self: &Arc<Self>, kernel: &Machine) {
        self.rescan(kernel);
        let value = self.value();
        if self.told.swap(value, Ordering::SeqCst) != value
            && let Some(native) = self.native(kernel)
        {
            native.twin_signaled(kernel);
        }
    }

    /// The value now.
    pub(crate) fn value(&self) -> u64 {
        crate::raw::load(self.page.address())
    }

    /// The page that holds it, at its start.
    pub(crate) fn frame(&self) -> u64 {
        self.page.frame()
    }

    /// Kernel address of the value.
    pub(crate) fn address(&self) -> usize {
        self.page.address()
    }

    pub(crate) fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    /// Stores a value and ends waits.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn signal(self: &Arc<Self>, kernel: &Machine, value: u64) {
        crate::raw::store(self.page.address(), value);
        self.rescan(kernel);
        self.told.store(value, Ordering::SeqCst);
        if let Some(native) = self.native(kernel) {
            native.twin_signaled(kernel);
        }
    }

    /// Ends waits whose value is reached.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn rescan(&self, kernel: &Machine) {
        let value = self.value();
        self.waiters.release(kernel, |wanted| wanted <= value);
    }
}

/// A monitored fence in a process.
#[derive(Debug)]
pub(crate) struct MonitoredFence {
    device: Arc<Device>,
    state: Arc<FenceState>,
    view: View,
    shared: AtomicBool,
    /// `NoSignalMaxValueOnTdr`.
    stays_on_loss: AtomicBool,
    /// What the NT handle that it was opened by allows.
    access: u32,
    destroyed: AtomicBool,
}

/// Where a process and its GPU see a page.
#[derive(Debug, Default)]
pub(crate) struct View {
    /// User address of the page.
    pub(crate) user: usize,
    /// GPU virtual address of the page.
    pub(crate) gpu: u64,
}

impl View {
    /// Shows a page: `content` to the GPU, `user` read-only to user mode.
    ///
    /// IRQL: PASSIVE_LEVEL.
    ///
    /// # Errors
    /// STATUS_NO_MEMORY, or what paging ended with.
    pub(crate) fn create(
        part: &Arc<ProcessAdapter>,
        content: Content,
        user: Option<ObjectPage>,
        wanted: &Wanted,
        native_fence: bool,
    ) -> Result<Self, NTSTATUS> {
        let adapter = part.adapter();
        let manager = adapter.memory.manager().ok_or(ntstatus::STATUS_DEVICE_REMOVED)?;
        let gpu = part.address_space().insert(wanted, Use::System).ok_or(ntstatus::STATUS_NO_MEMORY)?;
        let purpose = Purpose { native_fence, ..Purpose::default() };
        let this = part.clone();
        let shown = manager.run_on_worker(adapter, move |adapter, manager| {
            this.set_entries(adapter, manager, gpu, 1, &content, purpose)
        });
        let mut view = Self { user: 0, gpu };
        match shown {
            Some(Ok(())) => (),
            Some(Err(error)) => {
                view.remove(part);
                return Err(status_of(error));
            }
            None => return Err(ntstatus::STATUS_SYSTEM_SHUTDOWN),
        }
        if let Some((process, (object, first))) = part.process().zip(user) {
            let mapping = UserMapping { object, first, pages: 1, rights: Rights::Read, cache: CacheType::Cached };
            match adapter.kernel().map_user(process.nt(), &mapping, None) {
                Ok(address) => view.user = address,
                Err(_) => {
                    view.remove(part);
                    return Err(ntstatus::STATUS_NO_MEMORY);
                }
            }
        }
        Ok(view)
    }

    /// Takes both away.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn remove(&self, part: &Arc<ProcessAdapter>) {
        if self.user != 0
            && let Some(process) = part.process()
        {
            let _ = part.adapter().kernel().unmap_user(process.nt(), self.user);
        }
        let (this, gpu) = (part.clone(), self.gpu);
        let Some(manager) = part.adapter().memory.manager() else { return };
        manager.run_on_worker(part.adapter(), move |adapter, manager| {
            let _ = this.set_entries(adapter, manager, gpu, 1, &Content::None, Purpose::default());
            this.address_space().with_ranges(|ranges| ranges.remove(gpu, 0));
        });
    }
}

impl MonitoredFence {
    /// Makes a fence.
    ///
    /// # Errors
    /// STATUS_NO_MEMORY.
    pub(crate) fn create(
        process: &Arc<ProcessInner>,
        device: &Arc<Device>,
        initial: u64,
    ) -> Result<Arc<Self>, NTSTATUS> {
        Self::create_for(process, device, initial, false)
    }

    /// As [`create`](Self::create); `cross_adapter`: for several adapters.
    ///
    /// # Errors
    /// STATUS_NO_MEMORY.
    pub(crate) fn create_for(
        process: &Arc<ProcessInner>,
        device: &Arc<Device>,
        initial: u64,
        cross_adapter: bool,
    ) -> Result<Arc<Self>, NTSTATUS> {
        let manager = device.adapter().memory.manager().ok_or(ntstatus::STATUS_DEVICE_REMOVED)?;
        let page = manager.pool.allocate_alone().ok_or(ntstatus::STATUS_NO_MEMORY)?;
        let state = FenceState::new(device.adapter(), page, initial, cross_adapter);
        Self::open(process, device, &state, FULL_ACCESS)
    }

    /// Shows an existing fence to a process, as an NT handle allows.
    ///
    /// # Errors
    /// STATUS_NO_MEMORY.
    pub(crate) fn open(
        _process: &Arc<ProcessInner>,
        device: &Arc<Device>,
        state: &Arc<FenceState>,
        access: u32,
    ) -> Result<Arc<Self>, NTSTATUS> {
        let wanted = Wanted { size: PAGE, alignment: PAGE, ..Wanted::default() };
        let (object, index) = state.page.object();
        let user = Some((object.clone(), index));
        let view = View::create(device.process(), state.page.content(Protection::READ_WRITE), user, &wanted, false)?;
        device.adapter().add_monitored_fence(state);
        state.open.fetch_add(1, Ordering::AcqRel);
        let fence = Arc::new(Self {
            device: device.clone(),
            state: state.clone(),
            view,
            shared: AtomicBool::new(false),
            stays_on_loss: AtomicBool::new(false),
            access,
            destroyed: AtomicBool::new(false),
        });
        device.add_monitored_fence(&fence);
        Ok(fence)
    }

    /// Its device is lost: it is signalled to the largest value, unless whoever made it said not to.
    ///
    /// Source: `D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS::NoSignalMaxValueOnTdr`. Chosen: for every error state of the device,
    /// not for resets alone.
    pub(crate) fn device_lost(&self, kernel: &Machine) {
        if !self.stays_on_loss.load(Ordering::Acquire) && !self.destroyed.load(Ordering::Acquire) {
            self.state.signal(kernel, u64::MAX);
        }
    }

    /// `NoSignalMaxValueOnTdr`.
    pub(crate) fn set_stays_on_loss(&self, stays: bool) {
        self.stays_on_loss.store(stays, Ordering::Release);
    }

    /// What the NT handle that it was opened by allows.
    pub(crate) fn access(&self) -> u32 {
        self.access
    }

    /// Whether that is this right, too.
    pub(crate) fn allows(&self, right: u32) -> bool {
        self.access & right == right
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(crate) fn state(&self) -> &Arc<FenceState> {
        &self.state
    }

    /// It was made to be shared, or not.
    pub(crate) fn set_shared(&self, shared: bool) {
        self.shared.store(shared, Ordering::Release);
    }

    /// Whether it was made to be shared.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Acquire)
    }

    /// Where it is seen.
    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    /// The handle is gone. A second call does nothing.
    pub(crate) fn destroy(&self) {
        if !self.destroyed.swap(true, Ordering::AcqRel) {
            self.view.remove(self.device.process());
            // Whoever still waits for it waits in vain.
            if self.state.open.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.state.waiters.release(self.device.adapter().kernel(), |_| true);
            }
        }
    }
}

/// Looks at every monitored fence of an adapter.
///
/// IRQL: at most DISPATCH_LEVEL.
pub(crate) fn scan(adapter: &Adapter) {
    for fence in adapter.monitored_fences() {
        fence.looked_at(adapter.kernel());
    }
}
