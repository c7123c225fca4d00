//! Where the values of native fences are.
//!
//! A fence has two 64-bit values. `CurrentValue`: written by GPU and driver, read by all; user mode has a
//! read-only mapping. `MonitoredValue`: written by the driver on behalf of Dxgkrnl, read by the GPU; user mode has no
//! mapping, the GPU a read-only one. Fences of one process are packed into pages at the distance that the driver's caps
//! name; a fence that can be shared has two pages of its own, since a page that another process maps shows everything
//! in it.
//!
//! All adapters that know a cross-adapter fence share the page of its current value; each has a page of its own for the
//! monitored one. Intra-GPU fences are shown to the GPU only and packed apart from others.
//!
//! What may be in local memory, if the OS supports it and the driver has named segments
//! ([`crate::memory::fence::segments`]): both values of an intra-GPU fence, the monitored one of others. Fences that
//! can be shared are in system memory always, and so are fences for which the segments have no room.
//!
//! | file | holds |
//! |---|---|
//! | `storage.rs` | [`FencePages`], [`Slot`] |
//! | `place.rs` | a page in system or local memory |
//!
//! Which processes see the pages is said by [`FenceStorage`](crate::objects::fence::shown::FenceStorage).
//!
//! Source: article native-gpu-fence-objects, native GPU fence storage, cross-adapter native fences; DDI pages
//! DXGK_NATIVE_FENCE_CAPS, D3DKMDT_FENCESTORAGESURFACEDATA; D3DKMTCreateNativeFence, Remarks.
//!
//! Chosen: "may still be demoted to system memory" happens when the storage is made, never to a fence that exists.

use std::collections::VecDeque;
use std::sync::Arc;

use wddm_abi::{NTSTATUS, ntstatus};

use crate::memory::VidMm;
use crate::memory::fence::kept::Kept;
use crate::memory::fence::place::{LocalPage, ValuePage};
use crate::memory::page_table::Purpose;
use crate::memory::pages::Page;
use crate::memory::residency::status_of;
use crate::memory::va::{PAGE, Protection, Wanted};
use crate::port::miniport::Miniport;
use crate::port::rules::fence::NF_WRITE_AFTER;
use crate::port::sync::{Lock, Rank};

/// A page of current values and one of monitored values.
#[derive(Debug)]
pub(crate) struct FencePages {
    pub(crate) current: ValuePage,
    pub(crate) monitored: ValuePage,
    kind: Pages,
    /// GPU addresses of the two pages in the paging process; 0 where it does not see them.
    system: (u64, u64),
    /// Bytes from one place to the next.
    stride: usize,
    free: Lock<Vec<usize>>,
    /// Places of destroyed fences, oldest first: they hold [`SENTINEL`] until they are used again.
    retired: Lock<VecDeque<usize>>,
}

/// How many fences share a pair of pages, and of which kind the fences are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    pub(crate) sharing: Sharing,
    /// The fences are intra-GPU fences: user mode's CPU sees neither page.
    pub(crate) intra_gpu: bool,
}

/// Which fences have their values in a pair of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// All fences of a process that cannot be shared.
    Packed,
    /// One shared fence.
    Alone,
    /// One cross-adapter fence: other adapters share the page of its current value.
    Common,
}

/// What is in the place of a destroyed fence.
const SENTINEL: u64 = 0xFE9C_EDEA_D000_0001;

/// Where the caps let fences be mapped.
pub(crate) fn address_limits(adapter: &Miniport) -> Wanted {
    let limits = adapter.known_caps().native_fence.map_or((0, 0), |caps| (caps.MinimumAddress, caps.MaximumAddress));
    Wanted { size: PAGE, alignment: PAGE, minimum: limits.0, maximum: limits.1, ..Wanted::default() }
}

impl FencePages {
    /// Pages for fences `stride` bytes apart; `current`: the page of an existing current value.
    ///
    /// # Errors
    /// STATUS_NO_MEMORY, or what paging ended with.
    pub(crate) fn create(
        adapter: &Arc<Miniport>,
        stride: usize,
        kind: Pages,
        current: Option<Arc<Page>>,
    ) -> Result<Arc<Self>, NTSTATUS> {
        let manager = VidMm::of(adapter).manager().ok_or(ntstatus::STATUS_DEVICE_REMOVED)?;
        let segments = &manager.fence_segments;
        let none: &[u32] = &[];
        let (for_current, for_monitored) = match (kind.sharing, kind.intra_gpu) {
            (Sharing::Packed, true) => (segments.intra_current.as_slice(), segments.intra_monitored.as_slice()),
            (Sharing::Packed, false) => (none, segments.default_monitored.as_slice()),
            _ => (none, none),
        };
        let for_system = manager.caps.native_fence.is_some_and(|caps| caps.MapToGpuSystemProcess != 0);
        // Monitored values are shown to the GPU for reading, except in the paging process.
        let page = |segments, word, read_only: bool| match LocalPage::allocate(adapter, segments, word) {
            Some(page) => Ok(ValuePage::Local(page)),
            None => if read_only { manager.pool.allocate_for_reading() } else { manager.pool.allocate_alone() }
                .map(|page| ValuePage::System(Arc::new(page)))
                .ok_or(ntstatus::STATUS_NO_MEMORY),
        };
        let current = current.map_or_else(|| page(for_current, 0, false), |page| Ok(ValuePage::System(page)))?;
        let monitored = page(for_monitored, u64::MAX, !for_system)?;
        let mut system = (0, 0);
        if for_system {
            let contents = [&current, &monitored].map(|page| page.content(Protection::READ_WRITE));
            let wanted = address_limits(adapter);
            let mapped = manager.run_on_worker(adapter, move |adapter, manager| {
                let purpose = Purpose { native_fence: true, ..Purpose::default() };
                let [current, monitored] = contents;
                let one = manager.show_to_system(adapter, current, &wanted, purpose)?;
                let two = manager.show_to_system(adapter, monitored, &wanted, purpose);
                if two.is_err() {
                    manager.unmap_for_system(adapter, one, 1);
                }
                Ok((one, two?))
            });
            system = mapped.ok_or(ntstatus::STATUS_SYSTEM_SHUTDOWN)?.map_err(status_of)?;
        }
        let slots = nt_model::PAGE_SIZE / stride;
        let free = Lock::new(Rank::Leaf, (0..slots).rev().map(|slot| slot * stride).collect());
        let retired = Lock::new(Rank::Leaf, VecDeque::new());
        Ok(Arc::new(Self { current, monitored, kind, system, stride, free, retired }))
    }

    /// How many fences share the pages, and of which kind the fences are.
    pub(crate) fn kind(&self) -> Pages {
        self.kind
    }

    /// Returns whether the pages occupy a segment although no fence is in them.
    pub(crate) fn is_spent(&self) -> bool {
        let local = self.current.segment() != 0 || self.monitored.segment() != 0;
        let fresh = self.free.lock().len();
        local && fresh + self.retired.lock().len() == nt_model::PAGE_SIZE / self.stride
    }

    /// Kernel addresses of those of the pages that this pair alone has and that the CPU sees.
    fn own(&self) -> impl Iterator<Item = usize> {
        let current = (self.kind.sharing != Sharing::Common).then_some(&self.current);
        current.into_iter().chain([&self.monitored]).filter_map(ValuePage::address)
    }

    /// A free place: one that was never used, or the one that was given back first.
    pub(crate) fn take(&self, adapter: &Miniport) -> Option<usize> {
        let fresh = self.free.lock().pop();
        fresh.or_else(|| {
            let offset = self.retired.lock().pop_front()?;
            self.judge(adapter, offset);
            Some(offset)
        })
    }

    fn retire(&self, offset: usize) {
        for page in self.own() {
            crate::port::raw::store(page + offset, SENTINEL);
        }
        self.retired.lock().push_back(offset);
    }

    /// Judges that nothing was written to the place of a destroyed fence, and clears the place.
    fn judge(&self, adapter: &Miniport, offset: usize) {
        for page in self.own() {
            let found = crate::port::raw::word(page + offset).swap(0, std::sync::atomic::Ordering::SeqCst);
            adapter.rules().check(&NF_WRITE_AFTER, found == SENTINEL, || {
                format!("{found:#x} was written to the storage of a destroyed fence")
            });
        }
    }

    /// Judges every place that was given back.
    pub(crate) fn judge_all(&self, adapter: &Miniport) {
        let retired: Vec<_> = self.retired.lock().iter().copied().collect();
        for offset in retired {
            self.judge(adapter, offset);
        }
        self.retired.lock().clear();
    }

    /// Takes the mappings of the paging process away.
    pub(crate) fn hide(&self, adapter: &Arc<Miniport>) {
        let (current, monitored) = self.system;
        if current == 0 {
            return;
        }
        let Some(manager) = VidMm::of(adapter).manager() else { return };
        manager.run_on_worker(adapter, move |adapter, manager| {
            manager.unmap_for_system(adapter, current, 1);
            manager.unmap_for_system(adapter, monitored, 1);
        });
    }
}

/// The place of one fence in its pages.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) pages: Arc<FencePages>,
    pub(crate) offset: usize,
}

impl Slot {
    /// Makes a place whose current value is in `current`, a page that other adapters' places share.
    ///
    /// # Errors
    /// STATUS_NO_MEMORY, or what paging ended with.
    pub(crate) fn beside(adapter: &Arc<Miniport>, current: &Arc<Page>) -> Result<Self, NTSTATUS> {
        let kind = Pages { sharing: Sharing::Common, intra_gpu: false };
        let pages = FencePages::create(adapter, nt_model::PAGE_SIZE, kind, Some(current.clone()))?;
        Ok(Self { pages, offset: 0 })
    }

    /// The page of the current value, which is in system memory if the fence can be shared.
    pub(crate) fn current_page(&self) -> Option<&Arc<Page>> {
        self.pages.current.system()
    }

    /// Kernel address of the current value; the model's own. `None`: the CPU does not see it.
    pub(crate) fn current(&self) -> Option<usize> {
        Some(self.pages.current.address()? + self.offset)
    }

    /// Kernel address of the monitored value; the model's own. `None`: the CPU does not see it.
    pub(crate) fn monitored(&self) -> Option<usize> {
        Some(self.pages.monitored.address()? + self.offset)
    }

    /// Segments of both values; 0: system memory.
    pub(crate) fn segments(&self) -> (u32, u32) {
        (self.pages.current.segment(), self.pages.monitored.segment())
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
    pub(crate) fn release(&self, adapter: &Arc<Miniport>) {
        self.pages.retire(self.offset);
        if self.pages.kind.sharing != Sharing::Packed {
            self.pages.hide(adapter);
            Kept::of(adapter).keep(adapter, &self.pages);
        }
    }
}
