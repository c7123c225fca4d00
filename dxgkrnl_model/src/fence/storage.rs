//! Where the values of native fences are.
//!
//! A fence has two 64-bit values. `CurrentValue`: written by GPU and driver, read by everybody; user mode has a read-only
//! mapping. `MonitoredValue`: written by the driver on behalf of Dxgkrnl, read by the GPU; user mode has no mapping, the GPU
//! a read-only one. Fences of one process are packed into pages at the distance that the driver's caps name; a fence that
//! can be shared has two pages of its own, since a page that another process maps shows everything in it.
//!
//! All adapters that know a cross-adapter fence share the page of its current value; each has a page of its own for the
//! monitored one. An intra-GPU fence is not shown to user mode at all, and so has pages of its own, too.
//!
//! Source: article native-gpu-fence-objects, native GPU fence storage, cross-adapter native fences; DDI page
//! DXGK_NATIVE_FENCE_CAPS.
//!
//! Chosen: intra-GPU fences are in system memory as well ("may still be demoted to system memory").

use std::collections::VecDeque;
use std::sync::Arc;

use wddm_abi::{NTSTATUS, ntstatus};

use super::monitored::View;
use crate::adapter::Adapter;
use crate::memory::pages::Page;
use crate::memory::residency::status_of;
use crate::memory::va::{PAGE, Protection, Wanted};
use crate::personality::Build;
use crate::process::ProcessAdapter;
use crate::rules::fence::NF_WRITE_AFTER;
use crate::sync::{Lock, Rank};

/// A page of current values and one of monitored values.
#[derive(Debug)]
pub(crate) struct FencePages {
    pub(crate) current: Arc<Page>,
    pub(crate) monitored: Page,
    kind: Pages,
    /// Where the paging process sees them; 0 where it does not.
    system: (u64, u64),
    free: Lock<Vec<usize>>,
    /// Places of destroyed fences, oldest first: they hold [`SENTINEL`] until they are used again.
    retired: Lock<VecDeque<usize>>,
}

/// Whose pages they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// Those of all fences of a process that cannot be shared.
    Packed,
    /// One shared fence's.
    Alone,
    /// One cross-adapter fence's: the current value is another's, too.
    Common,
    /// One intra-GPU fence's: user mode sees neither.
    IntraGpu,
}

/// What is in the place of a destroyed fence.
const SENTINEL: u64 = 0xFE9C_EDEA_D000_0001;

impl FencePages {
    /// Pages for fences `stride` bytes apart; `current`: the page of an existing current value.
    ///
    /// # Errors
    /// STATUS_NO_MEMORY, or what paging ended with.
    fn create(
        adapter: &Arc<Adapter>,
        stride: usize,
        kind: Pages,
        current: Option<Arc<Page>>,
    ) -> Result<Arc<Self>, NTSTATUS> {
        let manager = adapter.memory.manager().ok_or(ntstatus::STATUS_DEVICE_REMOVED)?;
        let page = || manager.pool.allocate_alone().ok_or(ntstatus::STATUS_NO_MEMORY);
        let current = current.map_or_else(|| page().map(Arc::new), Ok)?;
        let monitored = page()?;
        let mut system = (0, 0);
        if manager.caps.native_fence.is_some_and(|caps| caps.MapToGpuSystemProcess != 0) {
            let frames = (current.frame(), monitored.frame());
            let mapped = manager.run_on_worker(adapter, move |adapter, manager| {
                let one = manager.map_for_system(adapter, vec![frames.0], Protection::READ_WRITE, true)?;
                let two = manager.map_for_system(adapter, vec![frames.1], Protection::READ_WRITE, true)?;
                Ok((one, two))
            });
            system = mapped.ok_or(ntstatus::STATUS_SYSTEM_SHUTDOWN)?.map_err(status_of)?;
        }
        let slots = nt_model::PAGE_SIZE / stride;
        let free = Lock::new(Rank::Log, (0..slots).rev().map(|slot| slot * stride).collect());
        let retired = Lock::new(Rank::Log, VecDeque::new());
        Ok(Arc::new(Self { current, monitored, kind, system, free, retired }))
    }

    /// The pages that belong to nobody else.
    fn own(&self) -> impl Iterator<Item = &Page> {
        let current = (self.kind != Pages::Common).then_some(&*self.current);
        current.into_iter().chain([&self.monitored])
    }

    /// A free place: one that was never used, or the one that was given back first.
    fn take(&self, adapter: &Adapter) -> Option<usize> {
        let fresh = self.free.lock().pop();
        fresh.or_else(|| {
            let offset = self.retired.lock().pop_front()?;
            self.judge(adapter, offset);
            Some(offset)
        })
    }

    fn retire(&self, offset: usize) {
        for page in self.own() {
            crate::raw::store(page.address() + offset, SENTINEL);
        }
        self.retired.lock().push_back(offset);
    }

    /// Whether anybody wrote to the place of a destroyed fence; it is cleared.
    fn judge(&self, adapter: &Adapter, offset: usize) {
        for page in self.own() {
            let address = page.address() + offset;
            let found = crate::raw::word(address).swap(0, std::sync::atomic::Ordering::SeqCst);
            adapter.rules().check(&NF_WRITE_AFTER, found == SENTINEL, || {
                format!("{found:#x} was written to the storage of a destroyed fence")
            });
        }
    }

    /// Looks at every place that was given back.
    fn judge_all(&self, adapter: &Adapter) {
        let retired: Vec<_> = std::mem::take(&mut *self.retired.lock()).into();
        for offset in retired {
            self.judge(adapter, offset);
        }
    }

    /// Takes the mappings of the paging process away.
    fn hide(&self, adapter: &Arc<Adapter>) {
        let (current, monitored) = self.system;
        if current == 0 {
            return;
        }
        let Some(manager) = adapter.memory.manager() else { return };
        manager.run_on_worker(adapter, move |adapter, manager| {
            manager.unmap_for_system(adapter, current, 1);
            manager.unmap_for_system(adapter, monitored, 1);
        });
    }
}

/// Where a process sees the pages.
#[derive(Debug)]
pub(crate) struct FenceView {
    current: View,
    monitored: View,
}

impl FenceView {
    fn create(part: &Arc<ProcessAdapter>, pages: &FencePages) -> Result<Self, NTSTATUS> {
        let caps = part.adapter().known_caps();
        let limits = caps.native_fence.map_or((0, 0), |caps| (caps.MinimumAddress, caps.MaximumAddress));
        let wanted = Wanted { size: PAGE, alignment: PAGE, minimum: limits.0, maximum: limits.1, ..Wanted::default() };
        let user = pages.kind != Pages::IntraGpu;
        let current = View::create(part, &pages.current, user, Protection::READ_WRITE, &wanted, true)?;
        match View::create(part, &pages.monitored, false, Protection::READ_ONLY, &wanted, true) {
            Ok(monitored) => Ok(Self { current, monitored }),
            Err(status) => {
                current.remove(part);
                Err(status)
            }
        }
    }

    fn remove(&self, part: &Arc<ProcessAdapter>) {
        self.current.remove(part);
        self.monitored.remove(part);
    }
}

/// The place of one fence in its pages.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pages: Arc<FencePages>,
    offset: usize,
}

/// Addresses of one fence.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Addresses {
    /// User address of the current value; 0: user mode does not see it.
    pub(crate) user: usize,
    pub(crate) current: u64,
    pub(crate) monitored: u64,
}

impl Slot {
    /// A place whose current value is in `current`, which others have, too.
    ///
    /// # Errors
    /// STATUS_NO_MEMORY, or what paging ended with.
    pub(crate) fn beside(adapter: &Arc<Adapter>, current: &Arc<Page>) -> Result<Self, NTSTATUS> {
        let pages = FencePages::create(adapter, nt_model::PAGE_SIZE, Pages::Common, Some(current.clone()))?;
        Ok(Self { pages, offset: 0 })
    }

    /// The page of the current value.
    pub(crate) fn current_page(&self) -> &Arc<Page> {
        &self.pages.current
    }

    /// Kernel address of the current value; the model's own.
    pub(crate) fn current(&self) -> usize {
        self.pages.current.address() + self.offset
    }

    /// Kernel address of the monitored value; the model's own.
    pub(crate) fn monitored(&self) -> usize {
        self.pages.monitored.address() + self.offset
    }

    /// The pages, and the offset in both.
    pub(crate) fn place(&self) -> (&Arc<FencePages>, usize) {
        (&self.pages, self.offset)
    }

    /// Addresses in the paging process; 0 where it has none.
    pub(crate) fn system(&self) -> (u64, u64) {
        let at = |base: u64| if base == 0 { 0 } else { base + self.offset as u64 };
        (at(self.pages.system.0), at(self.pages.system.1))
    }

    /// The fence is gone: the place may be used again.
    pub(crate) fn release(&self, adapter: &Arc<Adapter>) {
        self.pages.retire(self.offset);
        if self.pages.kind != Pages::Packed {
            self.pages.hide(adapter);
            self.pages.judge_all(adapter);
        }
    }
}

#[derive(Debug)]
struct Shown {
    pages: Arc<FencePages>,
    view: FenceView,
    /// Packed pages of the process itself, as opposed to a shared fence's.
    packed: bool,
    users: u32,
}

/// The fences of one process on one adapter: packed pages, and views of them and of shared ones.
#[derive(Debug)]
pub(crate) struct FenceStorage {
    shown: Lock<Vec<Shown>>,
}

impl FenceStorage {
    pub(crate) fn new() -> Self {
        Self { shown: Lock::new(Rank::Registry, Vec::new()) }
    }

    /// A place for a new fence.
    ///
    /// # Errors
    /// STATUS_NO_MEMORY, or what paging ended with.
    pub(crate) fn allocate(&self, part: &Arc<ProcessAdapter>, kind: Pages) -> Result<Slot, NTSTATUS> {
        let adapter = part.adapter();
        let padding = adapter.personality().build == Build::W28000;
        // CAST: at most a page, by DXG-NATIVE-FENCE-CAPS.
        let stride = (adapter.known_caps().fence_stride(padding) as usize).clamp(8, nt_model::PAGE_SIZE);
        let stride = stride.next_multiple_of(8);
        if kind != Pages::Packed {
            let pages = FencePages::create(adapter, nt_model::PAGE_SIZE, kind, None)?;
            return Ok(Slot { pages, offset: 0 });
        }
        let known = self.shown.lock().iter().filter(|shown| shown.packed).find_map(|shown| {
            let offset = shown.pages.take(adapter)?;
            Some((shown.pages.clone(), offset))
        });
        if let Some((pages, offset)) = known {
            return Ok(Slot { pages, offset });
        }
        let pages = FencePages::create(adapter, stride, kind, None)?;
        let view = FenceView::create(part, &pages)?;
        let offset = pages.take(adapter).ok_or(ntstatus::STATUS_NO_MEMORY)?;
        self.shown.lock().push(Shown { pages: pages.clone(), view, packed: true, users: 0 });
        Ok(Slot { pages, offset })
    }

    /// Shows a fence to the process.
    ///
    /// # Errors
    /// STATUS_NO_MEMORY, or what paging ended with.
    pub(crate) fn show(&self, part: &Arc<ProcessAdapter>, slot: &Slot) -> Result<Addresses, NTSTATUS> {
        if let Some(addresses) = self.addresses(slot) {
            return Ok(addresses);
        }
        let view = FenceView::create(part, &slot.pages)?;
        self.shown.lock().push(Shown { pages: slot.pages.clone(), view, packed: false, users: 0 });
        Ok(self.addresses(slot).unwrap_or_default())
    }

    fn addresses(&self, slot: &Slot) -> Option<Addresses> {
        let mut shown = self.shown.lock();
        let found = shown.iter_mut().find(|shown| Arc::ptr_eq(&shown.pages, &slot.pages))?;
        found.users += 1;
        Some(Addresses {
            user: if found.view.current.user == 0 { 0 } else { found.view.current.user + slot.offset },
            current: found.view.current.gpu + slot.offset as u64,
            monitored: found.view.monitored.gpu + slot.offset as u64,
        })
    }

    /// Undoes one [`show`](Self::show).
    pub(crate) fn hide(&self, part: &Arc<ProcessAdapter>, slot: &Slot) {
        let gone = {
            let mut shown = self.shown.lock();
            let Some(at) = shown.iter().position(|shown| Arc::ptr_eq(&shown.pages, &slot.pages)) else { return };
            shown[at].users = shown[at].users.saturating_sub(1);
            let last = shown[at].users == 0 && !shown[at].packed;
            last.then(|| shown.swap_remove(at))
        };
        if let Some(gone) = gone {
            gone.view.remove(part);
        }
    }

    /// The process leaves the adapter.
    pub(crate) fn release(&self, part: &Arc<ProcessAdapter>) {
        let all = std::mem::take(&mut *self.shown.lock());
        for shown in all {
            shown.pages.judge_all(part.adapter());
            shown.view.remove(part);
            if shown.packed {
                shown.pages.hide(part.adapter());
            }
        }
    }
}
