//! Native fences: a fence is one [`NativeFence`], with one [`FenceOnAdapter`] for each adapter that knows it and one
//! [`LocalFence`] for each device that has it open.
//!
//! The current value may be where two adapters see it; the monitored value belongs to an adapter. So a [`NativeFence`]
//! holds value and waiters, [`FenceOnAdapter`] what one driver knows, [`LocalFence`] what one device has. An NT handle
//! holds the fence on the adapter of the device that shared it ([`KeptFence`]). A driver is told to destroy its
//! fence when the last device of its adapter has closed it and no NT handle holds it there; the [`NativeFence`] ends
//! with its last [`FenceOnAdapter`].
//!
//! A cross-adapter fence of an adapter without native fences is a monitored one there, a [`FenceState`] with the same
//! current value: its twin.
//!
//! | file | holds |
//! |---|---|
//! | `native.rs` | the fence: value, waiters, its driver fences |
//! | `driver_fence.rs` | [`FenceOnAdapter`] |
//! | `local.rs` | [`LocalFence`], [`KeptFence`] |
//! | `cross.rs` | further adapters, and the twin |

mod cross;
mod driver_fence;
mod local;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use nt_model::Machine;
use wddm_abi::{D3DDDI_NATIVEFENCE_TYPE, NTSTATUS, ntstatus};

use super::Waiters;
use super::monitored::FenceState;
use crate::memory::fence::storage::{Pages, Sharing, Slot};
use crate::port::ddi;
use crate::port::handle::{DriverHandle, KernelHandle, KernelObject};
use crate::port::miniport::Miniport;
use crate::port::personality::Personality;
use crate::port::rules::fence::{NF_DESTROY, NF_HANDLE, NF_WRITE_AFTER};
use crate::port::sync::{Gate, Lock, Rank, Signal};

pub(crate) use local::{KeptFence, LocalFence};

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
    /// What the OS asks a driver for, so that it knows a fence for several adapters that was made on another one.
    fn of_the_os() -> Self {
        Self {
            kind: D3DDDI_NATIVEFENCE_TYPE::D3DDDI_NATIVEFENCE_TYPE_DEFAULT,
            initial: 0,
            shared: true,
            cross_adapter: true,
            private: [0; PRIVATE_SIZE],
        }
    }

    fn pages(&self) -> Pages {
        let sharing = match (self.cross_adapter, self.shared) {
            (true, _) => Sharing::Common,
            (_, true) => Sharing::Alone,
            _ => Sharing::Packed,
        };
        Pages { sharing, intra_gpu: self.is_intra_gpu() }
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
    driver_fences: Lock<Vec<Arc<FenceOnAdapter>>>,
    /// Its device is lost: every wait is over, now and later.
    always: AtomicBool,
    /// The current value when that happened.
    dead: Lock<Option<u64>>,
    /// The same fence on adapters without native fences.
    twin: Lock<Weak<FenceState>>,
    /// The value that every adapter was last told of.
    told: AtomicU64,
    /// The value of which the CPU is telling every adapter; the same as `told` otherwise.
    telling: AtomicU64,
    /// Its monitored value was, or is to be, another than all ones.
    was_monitored: AtomicBool,
    /// Held exclusively by the thread that makes a [`FenceOnAdapter`] of it.
    making: Gate,
}

impl KernelObject for FenceOnAdapter {
    const KIND: &'static str = "native fence";
}

/// What one driver knows of a fence.
#[derive(Debug)]
pub(crate) struct FenceOnAdapter {
    fence: Weak<NativeFence>,
    adapter: Arc<Miniport>,
    slot: Slot,
    /// Devices that have it open, and NT handles; `None` once it is destroyed.
    opens: Lock<Option<u32>>,
    handle: KernelHandle<FenceOnAdapter>,
    driver: DriverHandle,
    /// The monitored value that the driver was last told.
    pub(super) monitored: AtomicU64,
    /// It is being destroyed: no update begins any more.
    closing: AtomicBool,
    /// Updates of the current value that are in the driver.
    updates: AtomicU32,
    /// One of them has ended.
    quiet: Signal,
}
impl NativeFence {
    fn new(slot: Slot, request: &Request) -> Arc<Self> {
        let first = if request.cross_adapter { 0 } else { u64::MAX };
        // Where the CPU does not see it, it is all ones from the start.
        if let Some(monitored) = slot.monitored() {
            crate::port::raw::store(monitored, first);
        }
        Arc::new(Self {
            told: AtomicU64::new(slot.current().map_or(0, crate::port::raw::load)),
            telling: AtomicU64::new(slot.current().map_or(0, crate::port::raw::load)),
            slot,
            was_monitored: AtomicBool::new(request.cross_adapter),
            cross_adapter: request.cross_adapter,
            intra_gpu: request.is_intra_gpu(),
            shared: request.shared,
            waiters: Waiters::new(),
            driver_fences: Lock::new(Rank::Registry, Vec::new()),
            always: AtomicBool::new(false),
            dead: Lock::new(Rank::Leaf, None),
            twin: Lock::new(Rank::Leaf, Weak::new()),
            making: Gate::new(),
        })
    }

    /// The current value. 0 where the CPU does not see it: nobody waits for such a fence from there.
    pub(crate) fn value(&self) -> u64 {
        self.slot.current().map_or(0, crate::port::raw::load)
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

    /// Whether its monitored value was ever another than all ones.
    pub(crate) fn was_monitored(&self) -> bool {
        self.was_monitored.load(Ordering::Acquire)
    }

    /// Its monitored value is going to be `value`.
    pub(super) fn note_monitored(&self, value: u64) {
        if value != u64::MAX {
            self.was_monitored.store(true, Ordering::Release);
        }
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

    /// One [`FenceOnAdapter`] for each adapter that knows the fence.
    pub(crate) fn driver_fences(&self) -> Vec<Arc<FenceOnAdapter>> {
        self.driver_fences.lock().clone()
    }

    /// What the monitored value has to be: one less than the least value that is waited for, all ones when none is, and
    /// 0 for the life of a cross-adapter fence.
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
            super::update::set_monitored(&[self]);
            let trusts = self.first_personality(|personality| personality.faults.trusts_updates);
            if trusts == Some(true) || !self.release_waiters(kernel) {
                return;
            }
        }
    }

    /// Ends waits whose value is reached, and lets drivers know who is left. True: there were some.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn rescan(&self, kernel: &Machine) -> bool {
        let some = self.release_waiters(kernel);
        if some {
            self.waiters_changed(kernel);
        }
        some
    }

    /// A log says that it was signaled with `value`: ends waits up to that value, whatever its value is now. True:
    /// there were some.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn logged(&self, kernel: &Machine, value: u64) -> bool {
        let some = self.waiters.release(kernel, |wanted| wanted <= value) != 0;
        if some {
            self.waiters_changed(kernel);
        }
        some
    }

    fn release_waiters(&self, kernel: &Machine) -> bool {
        let always = self.always.load(Ordering::Acquire);
        let slow = self.first_personality(|personality| personality.faults.slow_resample).unwrap_or(0);
        let value = self.value();
        for _ in 0..slow {
            kernel.yield_point(nt_model::sched::YieldPoint::Service);
        }
        self.waiters.release(kernel, |wanted| always || wanted <= value) != 0
    }

    /// A choice of the Windows that it is on; `None` once no driver knows it.
    fn first_personality<T>(&self, choice: impl FnOnce(&Personality) -> T) -> Option<T> {
        self.driver_fences.lock().first().map(|driver_fence| choice(driver_fence.adapter.personality()))
    }

    /// Signals it from the CPU, for somebody on `from`: that driver writes the value, each looks who waits on its GPU.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    ///
    /// # Errors
    /// What the driver returned.
    pub(crate) fn signal_from_cpu(&self, kernel: &Machine, value: u64, from: &Miniport) -> Result<(), NTSTATUS> {
        let result = super::update::set_current(from, &[(self, value)]);
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

    fn judge_dead_value(&self, adapter: &Miniport) {
        if let Some(dead) = *self.dead.lock() {
            let now = self.value();
            adapter.rules().check(&NF_WRITE_AFTER, now == dead, || {
                format!("an always-signaled fence changed from {dead:#x} to {now:#x}")
            });
        }
    }

    /// The [`FenceOnAdapter`] on `adapter`, opened once more. A cross-adapter fence gets one where it had none.
    ///
    /// # Errors
    /// What the driver returned; STATUS_NO_MEMORY; STATUS_NOT_SUPPORTED on another adapter than the fence's, unless it
    /// is a cross-adapter one; STATUS_INVALID_HANDLE once the fence has ended.
    fn driver_fence_on(self: &Arc<Self>, adapter: &Arc<Miniport>) -> Result<Arc<FenceOnAdapter>, NTSTATUS> {
        let _making = self.making.exclusive(adapter.kernel());
        let driver_fences = self.driver_fences();
        if let Some(driver_fence) = driver_fences
            .iter()
            .find(|driver_fence| Arc::ptr_eq(driver_fence.adapter(), adapter) && driver_fence.open())
        {
            return Ok(driver_fence.clone());
        }
        if driver_fences.is_empty() {
            return Err(ntstatus::STATUS_INVALID_HANDLE);
        }
        if !self.cross_adapter || !adapter.known_caps().has_native_fences() {
            return Err(ntstatus::STATUS_NOT_SUPPORTED);
        }
        self.make_driver_fence(adapter)
    }

    /// Takes back one open of `driver_fence`. After the last the driver destroys the fence, and its storage is given
    /// back.
    fn close(&self, driver_fence: &Arc<FenceOnAdapter>) {
        let last = {
            let mut opens = driver_fence.opens.lock();
            *opens = opens.and_then(|opens| opens.checked_sub(1)).filter(|opens| *opens != 0);
            opens.is_none()
        };
        if last {
            self.drop_driver_fence(driver_fence);
        }
    }

    fn drop_driver_fence(&self, driver_fence: &Arc<FenceOnAdapter>) {
        let (known, left) = {
            let mut driver_fences = self.driver_fences.lock();
            let before = driver_fences.len();
            driver_fences.retain(|other| !Arc::ptr_eq(other, driver_fence));
            (driver_fences.len() != before, driver_fences.len())
        };
        if !known {
            return;
        }
        driver_fence.destroy();
        self.judge_dead_value(&driver_fence.adapter);
        if left == 0 {
            // A wait that comes too late ends at once.
            self.always.store(true, Ordering::Release);
            self.waiters.release(driver_fence.adapter.kernel(), |_| true);
        }
        driver_fence.slot.release(&driver_fence.adapter);
    }
}

fn judge_handle<T>(adapter: &Miniport, ddi: &str, made: usize, ours: &KernelHandle<T>) {
    let fine = made != 0 && made as u64 != ours.value();
    adapter.rules().check(&NF_HANDLE, fine, || format!("{ddi} left {made:#x}"));
}

fn judge_destroy(adapter: &Miniport, ddi: &str, status: NTSTATUS) {
    let fine = ddi::succeeded(status);
    adapter.rules().check(&NF_DESTROY, fine, || format!("{ddi}: {status:?}"));
}
