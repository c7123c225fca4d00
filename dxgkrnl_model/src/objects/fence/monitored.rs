//! Monitored fences of WDDM 2.0: a value in a page that the CPU reads and the GPU writes.
//!
//! Chosen: each has a page of its own, read-only for the process's CPU and writable for its GPU address space. A signal
//! from the CPU stores the value by the OS and tells no driver. A cross-adapter monitored fence is opened as a native
//! fence on adapters that have those ([`super::native`]): both have one value, and a signal of either reaches both.
//!
//! | file | holds |
//! |---|---|
//! | `monitored.rs` | [`FenceState`]; [`MonitoredFence`], a process's handle of one |
//! | `behaviour.rs` | flags |
//! | `value.rs` | the value, of 64 bits or 32 |
//! | `view.rs` | [`View`] |
//! | `scan.rs` | when fences are looked at |

mod behaviour;
pub(crate) mod scan;
mod value;
mod view;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use nt_model::{CacheType, Machine, Rights};
use wddm_abi::{NTSTATUS, ntstatus};

use super::native::{FULL_ACCESS, NativeFence};
use super::{Wait, Waiters};
use crate::memory::VidMm;
use crate::memory::pages::Page;
use crate::memory::va::{PAGE, Wanted};
use crate::objects::device::Device;
use crate::objects::fence::native::FenceOnAdapter;
use crate::port::alive::make_room;
use crate::port::miniport::Miniport;
use crate::port::sync::{Gate, Lock, Rank};
pub(crate) use behaviour::{Behaviour, are_for_monitored, is_sound};
use value::Value;
pub(crate) use view::View;
use view::{ForGpu, ForUser};

/// A monitored fence's value and its waiters.
#[derive(Debug)]
pub(crate) struct FenceState {
    value: Value,
    waiters: Waiters,
    /// How many handles name the fence.
    open: AtomicU32,
    /// LUID of the adapter that the fence was made on; 0 for the twin of a native fence.
    home: u64,
    cross_adapter: bool,
    /// No GPU has an address of the value.
    hidden: bool,
    /// The fence is that of a paging queue, and the paging engine has an address of the value.
    paging: AtomicBool,
    /// Events are set before the OS stores the value that they wait for.
    event_first: bool,
    /// The value that the native fence with the same value was last told of.
    told: AtomicU64,
    /// Held exclusively by the thread that makes the native fence with the same value.
    pub(super) making: Gate,
}

/// Monitored fences that were made or opened on an adapter.
#[derive(Debug)]
struct MonitoredFences(Lock<Vec<Weak<FenceState>>>);

impl Default for MonitoredFences {
    fn default() -> Self {
        Self(Lock::new(Rank::Registry, Vec::new()))
    }
}

impl FenceState {
    /// Live monitored fences of an adapter.
    pub(crate) fn all_of(adapter: &Miniport) -> Vec<Arc<Self>> {
        let MonitoredFences(list) = adapter.extension();
        list.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Adds the fence to those of an adapter.
    fn enter(self: &Arc<Self>, adapter: &Miniport) {
        let MonitoredFences(list) = adapter.extension();
        let mut list = list.lock();
        make_room(&mut list);
        if !list.iter().any(|other| core::ptr::eq(other.as_ptr(), Arc::as_ptr(self))) {
            list.push(Arc::downgrade(self));
        }
    }

    fn new(adapter: &Arc<Miniport>, page: Page, initial: u64, behaviour: Behaviour) -> Arc<Self> {
        let hidden = behaviour.gpu_protection().is_none();
        let narrow = !hidden && !adapter.known_caps().has_64_bit_atomics();
        Arc::new(Self {
            value: Value::new(Arc::new(page), initial, narrow),
            waiters: Waiters::new(),
            open: AtomicU32::new(0),
            home: adapter.luid_number(),
            cross_adapter: behaviour.is_cross_adapter(),
            hidden,
            paging: AtomicBool::new(false),
            event_first: adapter.personality().user_mode.event_before_value,
            told: AtomicU64::new(initial),
            making: Gate::new(),
        })
    }

    /// Makes the monitored fence over the value of a native one, which is in `page`.
    pub(crate) fn over(page: &Arc<Page>) -> Arc<Self> {
        let value = Value::existing(page.clone());
        Arc::new(Self {
            event_first: false,
            told: AtomicU64::new(value.load()),
            value,
            waiters: Waiters::new(),
            open: AtomicU32::new(0),
            home: 0,
            cross_adapter: true,
            hidden: false,
            paging: AtomicBool::new(false),
            making: Gate::new(),
        })
    }

    /// The page of the value.
    pub(crate) fn page(&self) -> &Arc<Page> {
        self.value.page()
    }

    /// The native fence with the same value, if there is one.
    pub(super) fn native(self: &Arc<Self>, kernel: &Machine) -> Option<Arc<NativeFence>> {
        let shared = if self.cross_adapter { crate::port::shared::shared_of(kernel)? } else { return None };
        let driver_fences = shared.adapters().into_iter().flat_map(|adapter| FenceOnAdapter::all_of(&adapter));
        driver_fences.filter_map(|driver_fence| driver_fence.fence()).find(|fence| fence.is_twin(self))
    }

    /// Returns whether a device of `adapter` may open the fence: on the adapter where it was made always; on others if
    /// it is a cross-adapter fence, as the kind of fence that they have.
    ///
    /// Chosen: not on an adapter whose GPU stores values of another width.
    pub(crate) fn is_for(&self, adapter: &Arc<Miniport>) -> bool {
        let same_width = self.hidden || self.value.is_narrow() != adapter.known_caps().has_64_bit_atomics();
        self.is_at_home(adapter) || (self.cross_adapter && same_width)
    }

    /// Returns whether the fence was made on `adapter`.
    pub(crate) fn is_at_home(&self, adapter: &Arc<Miniport>) -> bool {
        self.home == adapter.luid_number()
    }

    /// Returns whether the fence is that of a paging queue that the paging engine signals.
    fn is_paging(&self) -> bool {
        self.paging.load(Ordering::Acquire)
    }

    /// Call when the paging engine has got an address of the value.
    pub(crate) fn set_paging(&self) {
        self.paging.store(true, Ordering::Release);
    }

    /// Call when a GPU may have signaled the fence: ends satisfied waits, and tells the native fence with the same
    /// value of a new one. Returns how many waiters were released.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    fn looked_at(self: &Arc<Self>, kernel: &Machine) -> usize {
        let ended = self.release_reached(kernel);
        let value = self.value();
        if self.told.swap(value, Ordering::SeqCst) != value
            && let Some(native) = self.native(kernel)
        {
            native.twin_signaled(kernel);
        }
        ended
    }

    /// Does what [`looked_at`](Self::looked_at) does if it can have an effect: when the fence has waiters, when it is a
    /// cross-adapter fence, or when its value has 32 bits, which the OS must follow. Returns 0 otherwise.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    fn looked_at_if_awaited(self: &Arc<Self>, kernel: &Machine) -> usize {
        let awaited = self.waiters.least().is_some() || self.cross_adapter || self.value.is_narrow();
        if awaited { self.looked_at(kernel) } else { 0 }
    }

    /// Returns the value now.
    pub(crate) fn value(&self) -> u64 {
        self.value.load()
    }

    /// Returns whether a signal of `value` is allowed: a value of 32 bits must not be too far from the last one.
    pub(crate) fn takes_signal(&self, value: u64) -> bool {
        self.value.takes_signal(value)
    }

    /// Returns whether a wait for `value` is allowed: a value of 32 bits must not be too far above the last one.
    pub(crate) fn takes_wait(&self, value: u64) -> bool {
        self.value.takes_wait(value)
    }

    /// The page frame that holds the value, at its start.
    pub(crate) fn frame(&self) -> u64 {
        self.page().frame()
    }

    /// Kernel address of the value.
    pub(crate) fn address(&self) -> usize {
        self.value.address()
    }

    pub(crate) fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    /// Stores a value and ends waits.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn signal(self: &Arc<Self>, kernel: &Machine, value: u64) {
        if self.event_first {
            self.waiters.set_events(kernel, value);
        }
        self.value.store(value);
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
        self.release_reached(kernel);
    }

    fn release_reached(&self, kernel: &Machine) -> usize {
        let value = self.value();
        self.waiters.release(kernel, |wanted| wanted <= value)
    }
}

/// What a monitored fence is to be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Request {
    pub(crate) initial: u64,
    pub(crate) behaviour: Behaviour,
}

/// How the CPU sees a value: write-back where devices are coherent with it, uncached elsewhere.
fn cache_type(adapter: &Miniport) -> CacheType {
    if adapter.personality().io_coherent { CacheType::Cached } else { CacheType::NonCached }
}

/// What user mode may do with a value: read it, and what the GPU may do where the GPU uses the CPU's address.
///
/// Source: article context-monitoring, table of what creation returns: adapters with IoMmu "should use this address for
/// GPU access", which "is mapped as read-write in this case", and not the GPU virtual address. Chosen: the GPU virtual
/// address is 0 then.
fn user_rights(adapter: &Miniport, behaviour: Behaviour) -> Rights {
    let gpu_stores = adapter.known_caps().is_io_mmu() && behaviour.lets_gpu_signal();
    if gpu_stores { Rights::ReadWrite } else { Rights::Read }
}

/// A monitored fence in a process.
#[derive(Debug)]
pub(crate) struct MonitoredFence {
    adapter: Arc<Miniport>,
    /// The device that opened the fence; `None`: it was opened without a device.
    device: Option<Arc<Device>>,
    state: Arc<FenceState>,
    view: View,
    behaviour: Behaviour,
    /// The access rights of the NT handle that the fence was opened by.
    access: u32,
    /// Waits on the CPU that were made with this handle.
    waits: Lock<Vec<Weak<Wait>>>,
    destroyed: AtomicBool,
}

impl MonitoredFence {
    /// Makes a fence.
    ///
    /// # Errors
    /// STATUS_NO_MEMORY.
    pub(crate) fn create(device: &Arc<Device>, request: Request) -> Result<Arc<Self>, NTSTATUS> {
        let manager = VidMm::of(device.adapter()).manager().ok_or(ntstatus::STATUS_DEVICE_REMOVED)?;
        let page = manager.pool.allocate_alone().ok_or(ntstatus::STATUS_NO_MEMORY)?;
        let state = FenceState::new(device.adapter(), page, request.initial, request.behaviour);
        Self::open(device, &state, FULL_ACCESS, request.behaviour)
    }

    /// Shows an existing fence to a process, as an NT handle allows.
    ///
    /// # Errors
    /// STATUS_NO_MEMORY.
    pub(crate) fn open(
        device: &Arc<Device>,
        state: &Arc<FenceState>,
        access: u32,
        behaviour: Behaviour,
    ) -> Result<Arc<Self>, NTSTATUS> {
        let behaviour = behaviour.hidden_from_gpu(state.hidden);
        let wanted = Wanted { size: PAGE, alignment: PAGE, ..Wanted::default() };
        let (object, index) = state.page().object();
        let (cache, rights) = (cache_type(device.adapter()), user_rights(device.adapter(), behaviour));
        let user = ForUser { page: (object.clone(), index), cache, rights };
        let protection = behaviour.gpu_protection().filter(|_| !device.adapter().known_caps().is_io_mmu());
        let gpu = protection.map(|protection| {
            let content = state.page().content(protection);
            ForGpu { content, wanted: &wanted, native_fence: false }
        });
        let view = View::show(device.process(), Some(user), gpu)?;
        let fence = Self::opened(device.adapter(), state, access, behaviour, (Some(device.clone()), view));
        device.add_monitored_fence(&fence);
        Ok(fence)
    }

    /// Opens an existing fence without a device, on `adapter`, where it was made: neither the CPU nor a GPU sees its
    /// value by this handle, which the OS waits for and signals.
    pub(crate) fn open_bare(adapter: &Arc<Miniport>, state: &Arc<FenceState>, access: u32) -> Arc<Self> {
        let behaviour = Behaviour::default().shared().hidden_from_gpu(true);
        Self::opened(adapter, state, access, behaviour, (None, View::default()))
    }

    fn opened(
        adapter: &Arc<Miniport>,
        state: &Arc<FenceState>,
        access: u32,
        behaviour: Behaviour,
        (device, view): (Option<Arc<Device>>, View),
    ) -> Arc<Self> {
        state.enter(adapter);
        state.open.fetch_add(1, Ordering::AcqRel);
        Arc::new(Self {
            adapter: adapter.clone(),
            device,
            state: state.clone(),
            view,
            behaviour,
            access,
            waits: Lock::new(Rank::Registry, Vec::new()),
            destroyed: AtomicBool::new(false),
        })
    }

    /// Call when the fence's device is lost: signals the largest value, unless the fence's flags forbid it.
    ///
    /// Source: `D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS::NoSignalMaxValueOnTdr`. Chosen: for every error state of the
    /// device, not for resets alone.
    pub(crate) fn device_lost(&self, kernel: &Machine) {
        if self.behaviour.ends_with_device() && !self.destroyed.load(Ordering::Acquire) {
            self.state.signal(kernel, u64::MAX);
        }
    }

    /// Returns the access rights of the NT handle that the fence was opened by.
    pub(crate) fn access(&self) -> u32 {
        self.access
    }

    /// Returns whether the fence was opened with `right` and its flags permit it.
    pub(crate) fn allows(&self, right: u32) -> bool {
        self.access & right == right && self.behaviour.allows(right)
    }

    /// Returns whether commands on the GPU may have signaled the fence at this handle's GPU address.
    fn may_be_signaled_by_gpu(&self) -> bool {
        self.behaviour.lets_gpu_signal() && !self.destroyed.load(Ordering::Acquire)
    }

    /// The device that opened the fence, unless it was opened without one.
    pub(crate) fn device(&self) -> Option<&Arc<Device>> {
        self.device.as_ref()
    }

    pub(crate) fn state(&self) -> &Arc<FenceState> {
        &self.state
    }

    /// Returns whether the fence was made to be shared.
    pub(crate) fn is_shared(&self) -> bool {
        self.behaviour.is_shared()
    }

    /// The addresses at which the process sees the value.
    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    /// Notes a wait on the CPU that was made with this handle.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn add_cpu_wait(&self, wait: &Arc<Wait>) {
        {
            let mut waits = self.waits.lock();
            make_room(&mut waits);
            waits.push(Arc::downgrade(wait));
        }
        if self.destroyed.load(Ordering::Acquire) {
            self.let_waiters_go();
        }
    }

    /// Releases the waits that were made with this handle from this fence, unless the flags let them stay.
    fn let_waiters_go(&self) {
        if self.behaviour.waiters_stay() {
            return;
        }
        let waits = std::mem::take(&mut *self.waits.lock());
        for wait in waits.iter().filter_map(Weak::upgrade) {
            self.state.waiters.release_wait(self.adapter.kernel(), &wait);
        }
    }

    /// Call when the handle is gone. A second call does nothing.
    ///
    /// Source: `D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS::UnwaitCpuWaitersOnlyOnDestroy`: by default CPU waiters are released
    /// when "a local sync object is destroyed", though others have the fence open. Chosen: the waits made with this
    /// handle are released; queues that wait on a GPU go on waiting until the last handle is gone.
    pub(crate) fn destroy(&self) {
        if !self.destroyed.swap(true, Ordering::AcqRel) {
            if let Some(device) = &self.device {
                self.view.remove(device.process());
            }
            self.let_waiters_go();
            // Nothing can signal the fence any more: the waits that are left end.
            if self.state.open.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.state.waiters.release(self.adapter.kernel(), |_| true);
            }
        }
    }
}
