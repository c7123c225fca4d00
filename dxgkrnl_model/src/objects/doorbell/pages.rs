//! The pages that user mode sees of doorbells: dummy pages behind each address that leads to no physical doorbell, as
//! many as a doorbell has, and slots of statuses and of last-queued values. They belong to a process on an adapter.

use std::sync::Arc;

use nt_model::{CacheType, PAGE_SIZE, Rights, UserMapping};
use wddm_abi::{NTSTATUS, ntstatus};

use crate::memory::VidMm;
use crate::memory::pages::{Block, Page, cache_of};
use crate::objects::process::ProcessAdapter;
use crate::port::sync::{Lock, Rank};

/// A page of 64-bit slots that user mode sees.
#[derive(Debug)]
struct Slots {
    page: Page,
    user: usize,
    free: Vec<usize>,
}

#[derive(Debug, Default)]
struct Pages {
    /// One for each size that doorbells have.
    dummies: Vec<Arc<Block>>,
    status: Vec<Slots>,
    queued: Vec<Slots>,
}

/// The doorbell pages of one process on one adapter.
#[derive(Debug)]
pub(crate) struct DoorbellPages {
    pages: Lock<Pages>,
}

/// A slot: its number among the pages, kernel and user address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) kernel: usize,
    pub(super) user: usize,
}

impl DoorbellPages {
    pub(crate) fn new() -> Self {
        Self { pages: Lock::new(Rank::Registry, Pages::default()) }
    }

    pub(super) fn slot(&self, gpu_process: &ProcessAdapter, status: bool) -> Option<Slot> {
        let take = |pages: &mut Pages| {
            let list = if status { &mut pages.status } else { &mut pages.queued };
            list.iter_mut().find_map(|slots| {
                let offset = slots.free.pop()?;
                Some(Slot { kernel: slots.page.address() + offset, user: slots.user + offset })
            })
        };
        if let Some(slot) = take(&mut self.pages.lock()) {
            return Some(slot);
        }
        let manager = VidMm::of(gpu_process.adapter()).manager()?;
        let page = manager.pool.allocate_alone()?;
        let rights = if status { Rights::Read } else { Rights::ReadWrite };
        let (object, first) = page.object();
        let mapping =
            UserMapping { object: object.clone(), first, pages: 1, rights, cache: cache_of(object, CacheType::Cached) };
        let user = gpu_process.adapter().kernel().map_user(gpu_process.process()?.nt(), &mapping, None).ok()?;
        let slots = Slots { page, user, free: (0..PAGE_SIZE / 8).rev().map(|slot| slot * 8).collect() };
        let mut pages = self.pages.lock();
        if status {
            pages.status.push(slots)
        } else {
            pages.queued.push(slots)
        }
        take(&mut pages)
    }

    pub(super) fn release_slot(&self, slot: Slot, status: bool) {
        let mut pages = self.pages.lock();
        let list = if status { &mut pages.status } else { &mut pages.queued };
        let owner = list.iter_mut().find(|slots| slots.page.address() == slot.kernel & !(PAGE_SIZE - 1));
        if let Some(slots) = owner {
            slots.free.push(slot.kernel & (PAGE_SIZE - 1));
        }
    }

    /// Dummy pages for doorbells of so many pages: a block of that size, since a process of its own is handed whole
    /// objects.
    fn dummy(&self, gpu_process: &ProcessAdapter, pages: usize) -> Option<Arc<Block>> {
        let fits = |dummy: &&Arc<Block>| dummy.object().pages() == pages;
        let known = self.pages.lock().dummies.iter().find(fits).cloned();
        known.or_else(|| {
            let made = Arc::new(VidMm::of(gpu_process.adapter()).manager()?.pool.allocate_block(pages)?);
            self.pages.lock().dummies.push(made.clone());
            Some(made)
        })
    }

    /// The process leaves the adapter.
    pub(crate) fn release(&self, gpu_process: &ProcessAdapter) {
        let pages = std::mem::take(&mut *self.pages.lock());
        for slots in pages.status.iter().chain(&pages.queued) {
            gpu_process.take_from_user(slots.user);
        }
    }
}

/// One user address of a doorbell.
#[derive(Debug)]
pub(super) struct Exposed {
    pub(super) user: usize,
    pub(super) pages: usize,
    dummy: Arc<Block>,
}

/// What is behind an address while no physical doorbell is.
pub(super) fn dummy_mapping(exposed: &Exposed) -> UserMapping {
    UserMapping {
        object: exposed.dummy.object().clone(),
        first: 0,
        pages: exposed.pages,
        rights: Rights::ReadWrite,
        cache: cache_of(exposed.dummy.object(), CacheType::Cached),
    }
}

/// A user address that leads to the dummy page.
fn expose(gpu_process: &Arc<ProcessAdapter>, pages: usize) -> Result<Exposed, NTSTATUS> {
    let none = ntstatus::STATUS_NO_MEMORY;
    let dummy = gpu_process.doorbells.dummy(gpu_process, pages).ok_or(none)?;
    let mut exposed = Exposed { user: 0, pages, dummy };
    let process = gpu_process.process().ok_or(none)?;
    let mapped = gpu_process.adapter().kernel().map_user(process.nt(), &dummy_mapping(&exposed), None);
    exposed.user = mapped.map_err(|_| none)?;
    Ok(exposed)
}

/// All that user mode sees of a doorbell.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) primary: Exposed,
    pub(super) secondary: Option<Exposed>,
    pub(super) status_slot: Slot,
    pub(super) queued_slot: Slot,
}

impl Shown {
    /// Addresses of so many pages, a secondary one if wanted, that lead to dummy pages; and the two slots.
    ///
    /// # Errors
    /// STATUS_NO_MEMORY: nothing is left of it.
    pub(super) fn new(
        gpu_process: &Arc<ProcessAdapter>,
        primary: usize,
        secondary: Option<usize>,
    ) -> Result<Self, NTSTATUS> {
        let mut begun = Begun { gpu_process, users: Vec::new(), slots: Vec::new() };
        let shown = Self {
            primary: begun.expose(primary)?,
            secondary: secondary.map(|pages| begun.expose(pages)).transpose()?,
            status_slot: begun.slot(true)?,
            queued_slot: begun.slot(false)?,
        };
        (begun.users, begun.slots) = (Vec::new(), Vec::new());
        Ok(shown)
    }
}

/// What there is of a [`Shown`] so far: it is taken back when this is dropped.
struct Begun<'a> {
    gpu_process: &'a Arc<ProcessAdapter>,
    users: Vec<usize>,
    /// Each, and whether it is one of a status.
    slots: Vec<(Slot, bool)>,
}

impl Begun<'_> {
    fn expose(&mut self, pages: usize) -> Result<Exposed, NTSTATUS> {
        let exposed = expose(self.gpu_process, pages)?;
        self.users.push(exposed.user);
        Ok(exposed)
    }

    fn slot(&mut self, status: bool) -> Result<Slot, NTSTATUS> {
        let slot = self.gpu_process.doorbells.slot(self.gpu_process, status).ok_or(ntstatus::STATUS_NO_MEMORY)?;
        self.slots.push((slot, status));
        Ok(slot)
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.users.iter().for_each(|user| self.gpu_process.take_from_user(*user));
        self.slots.iter().for_each(|(slot, status)| self.gpu_process.doorbells.release_slot(*slot, *status));
    }
}
