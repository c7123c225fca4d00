//! For whoever stands for another part of the kernel (`dxgkrnl_model`): pages that it keeps resident, pages in one run,
//! and what the machine has.

use std::sync::Arc;

use super::page_object::{CacheType, PageKind, PageObject, PageRequest};
use super::physical::HIGHEST_ADDRESS;
use crate::cpu::Site;
use crate::kernel::Machine;

/// What pages are, beyond their number and kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageTraits {
    /// Their frames are consecutive.
    pub contiguous: bool,
    /// Their cache type. `None`: that of their first mapping.
    pub cache: Option<CacheType>,
    /// A driver that maps them may only read them: another mapping breaks NT-MAP-WRITE.
    pub read_only: bool,
}

impl Machine {
    /// Keeps page `index` of `object` in memory, as a memory manager does for a device that uses it. Nests.
    ///
    /// # Panics
    /// When the object has no such page.
    pub fn pin_page(&self, object: &PageObject, index: usize) {
        object.lock_page(index);
    }

    /// Undoes one [`pin_page`](Self::pin_page). Returns `false` when the page was not pinned.
    ///
    /// # Panics
    /// When the object has no such page.
    pub fn unpin_page(&self, object: &PageObject, index: usize) -> bool {
        object.unlock_page(index)
    }

    /// [`allocate_pages`](Self::allocate_pages) with consecutive page frames.
    pub fn allocate_contiguous_pages(&self, pages: usize, kind: PageKind, tag: u32) -> Option<Arc<PageObject>> {
        self.allocate_pages_of(pages, kind, tag, &PageTraits { contiguous: true, ..PageTraits::default() })
    }

    /// [`allocate_pages`](Self::allocate_pages) with traits.
    pub fn allocate_pages_of(
        &self,
        pages: usize,
        kind: PageKind,
        tag: u32,
        traits: &PageTraits,
    ) -> Option<Arc<PageObject>> {
        self.memory.physical.allocate(&PageRequest {
            pages,
            kind,
            contiguous: traits.contiguous,
            highest: u64::MAX,
            lowest: 0,
            cache: traits.cache,
            read_only: traits.read_only,
            tag,
            site: Site::here(),
            fixed: None,
        })
    }

    /// The highest physical address that a page of RAM can have.
    pub fn highest_physical_address(&self) -> u64 {
        HIGHEST_ADDRESS
    }

    /// Bytes of RAM that the machine has.
    pub fn installed_memory(&self) -> u64 {
        self.config().ram
    }
}

#[cfg(test)]
mod tests {
    use crate::PageKind;
    use crate::kernel::Kernel;

    #[test]
    fn a_pinned_page_is_resident_until_unpinned_as_often() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let Some(object) = kernel.allocate_pages(2, PageKind::User, 0) else { panic!("no memory") };
        kernel.pin_page(&object, 1);
        kernel.pin_page(&object, 1);
        assert!(!object.is_page_resident(0) && object.is_page_resident(1));
        assert!(kernel.unpin_page(&object, 1) && object.is_page_resident(1));
        assert!(kernel.unpin_page(&object, 1) && !object.is_page_resident(1));
        assert!(!kernel.unpin_page(&object, 1));
    }

    #[test]
    fn contiguous_pages_follow_each_other() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let frames = kernel.allocate_contiguous_pages(20, PageKind::System, 0).map(|object| object.frames());
        let frames = frames.unwrap_or_default();
        assert!(frames.len() == 20 && frames.windows(2).all(|pair| pair[1] == pair[0] + 1));
        assert!(frames.iter().all(|frame| frame * 4096 < kernel.highest_physical_address()));
    }
}
