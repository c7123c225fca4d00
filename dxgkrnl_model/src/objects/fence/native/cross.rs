//! What only cross-adapter fences do: a [`FenceOnAdapter`] on each further adapter, and the twin on adapters without
//! native fences.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nt_model::Machine;
use wddm_abi::{NTSTATUS, ntstatus};

use super::{FenceOnAdapter, NativeFence, Request};
use crate::memory::fence::storage::Slot;
use crate::objects::fence::monitored::FenceState;
use crate::port::miniport::Miniport;

impl NativeFence {
    /// Makes the [`FenceOnAdapter`] on an adapter whose driver does not know the fence.
    ///
    /// Chosen: its private data are zeros; those of the opening go to `DxgkDdiOpenNativeFence`.
    pub(super) fn make_driver_fence(
        self: &Arc<Self>,
        adapter: &Arc<Miniport>,
    ) -> Result<Arc<FenceOnAdapter>, NTSTATUS> {
        // A cross-adapter fence is shared, and so in system memory.
        let page = self.slot.current_page().ok_or(ntstatus::STATUS_NOT_SUPPORTED)?;
        let slot = Slot::beside(adapter, page)?;
        if let Some(monitored) = slot.monitored() {
            crate::port::raw::store(monitored, 0);
        }
        let mut request = Request::of_the_os();
        let made = FenceOnAdapter::create(adapter, self, &slot, &mut request).inspect_err(|_| slot.release(adapter))?;
        self.driver_fences.lock().push(made.clone());
        Ok(made)
    }

    /// They were signalled on this adapter: the others hear of those that they know, in one call of each driver, and
    /// waits end. True: some have.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn signaled_on(kernel: &Machine, on: &Miniport, fences: &[Arc<Self>]) -> bool {
        let cross: Vec<_> = fences.iter().filter(|fence| fence.cross_adapter).map(|fence| &**fence).collect();
        for fence in &cross {
            fence.all_know(fence.value());
        }
        crate::objects::fence::update::notify(&cross, Some(on));
        for fence in cross {
            fence.rescan_twin(kernel);
        }
        fences.iter().fold(false, |ended, fence| fence.rescan(kernel) | ended)
    }

    /// As [`signaled_on`](Self::signaled_on) for those whose value no adapter has passed on yet; waits for the others
    /// end, too.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(crate) fn looked_at_on(kernel: &Machine, on: &Miniport, fences: Vec<Arc<Self>>) -> bool {
        let is_news = |fence: &Arc<Self>| {
            let value = fence.value();
            let known = [&fence.told, &fence.telling].iter().any(|known| known.load(Ordering::SeqCst) == value);
            fence.cross_adapter && !known
        };
        let (news, others): (Vec<_>, Vec<_>) = fences.into_iter().partition(is_news);
        let ended = Self::signaled_on(kernel, on, &news);
        others.iter().fold(ended, |ended, fence| fence.rescan(kernel) | ended)
    }

    /// Every adapter knows this value.
    fn all_know(&self, value: u64) {
        self.told.store(value, Ordering::SeqCst);
        self.telling.store(value, Ordering::SeqCst);
    }

    /// The CPU is about to signal `value`, and to tell every driver: no look at the fence meanwhile does so once more.
    pub(in crate::objects::fence) fn tells(&self, value: u64) {
        self.telling.store(value, Ordering::SeqCst);
    }

    /// The CPU signalled `value`, and every driver has been told.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(in crate::objects::fence) fn told(&self, kernel: &Machine, value: u64) {
        if self.cross_adapter {
            self.all_know(value);
            self.rescan_twin(kernel);
        }
    }

    pub(super) fn rescan_twin(&self, kernel: &Machine) {
        let twin = self.twin.lock().upgrade();
        if let Some(twin) = twin {
            twin.rescan(kernel);
        }
    }

    /// The same fence for adapters without native fences, made when there is none. `None`: it is not in system memory,
    /// and so for no other adapter.
    pub(crate) fn twin(self: &Arc<Self>) -> Option<Arc<FenceState>> {
        let made = FenceState::over(self.slot.current_page()?);
        let mut twin = self.twin.lock();
        if let Some(known) = twin.upgrade() {
            return Some(known);
        }
        *twin = Arc::downgrade(&made);
        Some(made)
    }

    /// The native fence with the value of a monitored one, on an adapter other than that one's.
    ///
    /// # Errors
    /// As [`super::LocalFence::open`].
    pub(super) fn over(
        adapter: &Arc<Miniport>,
        twin: &Arc<FenceState>,
    ) -> Result<(Arc<Self>, Arc<FenceOnAdapter>), NTSTATUS> {
        let _making = twin.making.exclusive(adapter.kernel());
        if let Some(known) = twin.native(adapter.kernel()) {
            match known.driver_fence_on(adapter) {
                // It ended meanwhile: another one follows.
                Err(ntstatus::STATUS_INVALID_HANDLE) => (),
                driver_fence => return driver_fence.map(|driver_fence| (known, driver_fence)),
            }
        }
        let slot = Slot::beside(adapter, twin.page())?;
        let mut request = Request::of_the_os();
        let fence = Self::new(slot, &request);
        let driver_fence = FenceOnAdapter::create(adapter, &fence, &fence.slot, &mut request);
        let driver_fence = driver_fence.inspect_err(|_| fence.slot.release(adapter))?;
        fence.driver_fences.lock().push(driver_fence.clone());
        *fence.twin.lock() = Arc::downgrade(twin);
        Ok((fence, driver_fence))
    }

    /// Whether this monitored fence has its value.
    pub(in crate::objects::fence) fn is_twin(&self, state: &Arc<FenceState>) -> bool {
        core::ptr::eq(self.twin.lock().as_ptr(), Arc::as_ptr(state))
    }

    /// Its twin's value, which is this one's, was written: every adapter hears of it, and waits end.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(in crate::objects::fence) fn twin_signaled(&self, kernel: &Machine) {
        self.all_know(self.value());
        crate::objects::fence::update::notify(&[self], None);
        self.rescan(kernel);
    }
}
