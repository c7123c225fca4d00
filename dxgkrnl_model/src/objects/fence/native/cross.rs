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

    /// Call after `fences` were signaled on the adapter `on`. Notifies each other adapter of the cross-adapter fences
    /// that it knows, in one call of its driver, and ends satisfied waits. Returns whether any wait has ended.
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

    /// Does what [`signaled_on`](Self::signaled_on) does for those of `fences` whose value other adapters have not been
    /// told yet, and ends satisfied waits for the others. Returns whether any wait has ended.
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

    /// Notes that every adapter knows `value`.
    fn all_know(&self, value: u64) {
        self.told.store(value, Ordering::SeqCst);
        self.telling.store(value, Ordering::SeqCst);
    }

    /// Call before the CPU signals `value` and tells every driver: a look at the fence meanwhile does not tell them
    /// again.
    pub(in crate::objects::fence) fn tells(&self, value: u64) {
        self.telling.store(value, Ordering::SeqCst);
    }

    /// Call after the CPU signaled `value` and told every driver.
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

    /// Returns the same fence for adapters without native fences, and makes it if there is none. `None`: the current
    /// value is not in system memory, so no other adapter can open the fence.
    pub(crate) fn twin(self: &Arc<Self>) -> Option<Arc<FenceState>> {
        let made = FenceState::over(self.slot.current_page()?);
        let mut twin = self.twin.lock();
        if let Some(known) = twin.upgrade() {
            return Some(known);
        }
        *twin = Arc::downgrade(&made);
        Some(made)
    }

    /// Returns the native fence with the value of the monitored fence `twin`, opened on `adapter`, which is not the
    /// monitored fence's own. Makes the native fence if there is none.
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
                // The known fence ended meanwhile: a new one is made below.
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

    /// Returns whether `state` is the twin of this fence.
    pub(in crate::objects::fence) fn is_twin(&self, state: &Arc<FenceState>) -> bool {
        core::ptr::eq(self.twin.lock().as_ptr(), Arc::as_ptr(state))
    }

    /// Call after the twin's value, which is this fence's, was written: notifies every adapter, and ends satisfied
    /// waits.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    pub(in crate::objects::fence) fn twin_signaled(&self, kernel: &Machine) {
        self.all_know(self.value());
        crate::objects::fence::update::notify(&[self], None);
        self.rescan(kernel);
    }
}
