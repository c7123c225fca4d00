//! Who sees the storage of fences: the processes of an adapter.

use std::sync::Arc;

use wddm_abi::{NTSTATUS, ntstatus};

use super::monitored::View;
use crate::memory::fence::storage::{FencePages, Pages, Sharing, Slot, address_limits};
use crate::memory::va::Protection;
use crate::objects::process::ProcessAdapter;
use crate::port::personality::Build;
use crate::port::sync::{Lock, Rank};

/// Where a process sees the pages.
#[derive(Debug)]
struct FenceView {
    current: View,
    monitored: View,
}

impl FenceView {
    fn create(gpu_process: &Arc<ProcessAdapter>, pages: &FencePages) -> Result<Self, NTSTATUS> {
        let wanted = address_limits(gpu_process.adapter());
        let user = if pages.kind().intra_gpu { None } else { pages.current.object() };
        let current = View::create(gpu_process, pages.current.content(Protection::READ_WRITE), user, &wanted, true)?;
        match View::create(gpu_process, pages.monitored.content(Protection::READ_ONLY), None, &wanted, true) {
            Ok(monitored) => Ok(Self { current, monitored }),
            Err(status) => {
                current.remove(gpu_process);
                Err(status)
            }
        }
    }

    fn remove(&self, gpu_process: &Arc<ProcessAdapter>) {
        self.current.remove(gpu_process);
        self.monitored.remove(gpu_process);
    }
}

/// Addresses of one fence.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Addresses {
    /// User address of the current value; 0: user mode does not see it.
    pub(crate) user: usize,
    pub(crate) current: u64,
    pub(crate) monitored: u64,
}

#[derive(Debug)]
struct Shown {
    pages: Arc<FencePages>,
    view: FenceView,
    users: u32,
}

impl Shown {
    /// Packed pages of the process itself, as opposed to a shared fence's.
    fn is_packed(&self) -> bool {
        self.pages.kind().sharing == Sharing::Packed
    }
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
    pub(crate) fn allocate(&self, gpu_process: &Arc<ProcessAdapter>, kind: Pages) -> Result<Slot, NTSTATUS> {
        let adapter = gpu_process.adapter();
        let padding = adapter.personality().build == Build::W28000;
        // CAST: at most a page, by DXG-NATIVE-FENCE-CAPS.
        let stride = (adapter.known_caps().fence_stride(padding) as usize).clamp(8, nt_model::PAGE_SIZE);
        let stride = stride.next_multiple_of(8);
        if kind.sharing != Sharing::Packed {
            let pages = FencePages::create(adapter, nt_model::PAGE_SIZE, kind, None)?;
            return Ok(Slot { pages, offset: 0 });
        }
        let known = self.shown.lock().iter().filter(|shown| shown.pages.kind() == kind).find_map(|shown| {
            let offset = shown.pages.take(adapter)?;
            Some((shown.pages.clone(), offset))
        });
        if let Some((pages, offset)) = known {
            return Ok(Slot { pages, offset });
        }
        let pages = FencePages::create(adapter, stride, kind, None)?;
        let view = FenceView::create(gpu_process, &pages)?;
        let offset = pages.take(adapter).ok_or(ntstatus::STATUS_NO_MEMORY)?;
        self.shown.lock().push(Shown { pages: pages.clone(), view, users: 0 });
        Ok(Slot { pages, offset })
    }

    /// Shows a fence to the process.
    ///
    /// # Errors
    /// STATUS_NO_MEMORY, or what paging ended with.
    pub(crate) fn show(&self, gpu_process: &Arc<ProcessAdapter>, slot: &Slot) -> Result<Addresses, NTSTATUS> {
        if let Some(addresses) = self.addresses(slot) {
            return Ok(addresses);
        }
        let view = FenceView::create(gpu_process, &slot.pages)?;
        self.shown.lock().push(Shown { pages: slot.pages.clone(), view, users: 0 });
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

    /// Undoes one [`show`](Self::show). Packed pages in system memory stay for the next fence, those of a segment are
    /// given back.
    pub(crate) fn hide(&self, gpu_process: &Arc<ProcessAdapter>, slot: &Slot) {
        let gone = {
            let mut shown = self.shown.lock();
            let Some(at) = shown.iter().position(|shown| Arc::ptr_eq(&shown.pages, &slot.pages)) else { return };
            shown[at].users = shown[at].users.saturating_sub(1);
            let last = shown[at].users == 0 && (!shown[at].is_packed() || shown[at].pages.is_spent());
            last.then(|| shown.swap_remove(at))
        };
        if let Some(gone) = gone {
            Self::take_down(gpu_process, &gone);
        }
    }

    fn take_down(gpu_process: &Arc<ProcessAdapter>, gone: &Shown) {
        if gone.is_packed() {
            gone.pages.judge_all(gpu_process.adapter());
        }
        gone.view.remove(gpu_process);
        if gone.is_packed() {
            gone.pages.hide(gpu_process.adapter());
        }
    }

    /// The process leaves the adapter.
    pub(crate) fn release(&self, gpu_process: &Arc<ProcessAdapter>) {
        let all = std::mem::take(&mut *self.shown.lock());
        for shown in all {
            Self::take_down(gpu_process, &shown);
        }
    }
}
