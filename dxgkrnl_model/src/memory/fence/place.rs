//! Pages of fence values: in system memory, or in a local segment of the GPU.
//!
//! A page in a segment that the CPU does not see is filled by the paging engine when it is made, and nothing of ours
//! looks at it after. It stays where it is until it is given back: fences are no allocations, so nothing that is
//! evicted or paged in moves them.
//!
//! Source: article native-gpu-fence-objects, physical memory storage; DDI page D3DKMDT_FENCESTORAGESURFACEDATA,
//! Remarks.
//!
//! Chosen: the fill names no allocation, since the driver was asked for segments only and has made none.

use std::sync::{Arc, Weak};

use nt_model::PageObject;

use crate::memory::pages::Page;
use crate::memory::space::Content;
use crate::memory::va::{PAGE, Protection};
use crate::memory::{Manager, VidMm};
use crate::port::miniport::Miniport;

/// Part of a memory object: a page that can be mapped.
pub(crate) type ObjectPage = (Arc<PageObject>, usize);

/// A page of fence values.
#[derive(Debug)]
pub(crate) enum ValuePage {
    System(Arc<Page>),
    Local(LocalPage),
}

/// A page of a local segment. It is given back when the value is dropped.
#[derive(Debug)]
pub(crate) struct LocalPage {
    manager: Weak<Manager>,
    segment: u32,
    offset: u64,
    /// By which the GPU names it.
    address: u64,
    /// Where the model sees it, and the memory that it is: in segments that the CPU sees.
    seen: Option<(usize, ObjectPage)>,
}

impl LocalPage {
    /// A page of the first of `segments` that has room, each 64-bit word of it `word` (both halves alike). `None`: none
    /// has, or paging failed.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn allocate(adapter: &Arc<Miniport>, segments: &[u32], word: u64) -> Option<Self> {
        let manager = VidMm::of(adapter).manager()?;
        let room = |id: &u32| manager.allocate_in_segment(*id, PAGE, PAGE, false).map(|(at, offset)| (*id, at, offset));
        let (segment, address, offset) = segments.iter().find_map(room)?;
        let kernel = manager.kernel_address(adapter, segment, offset);
        let object = manager.cpu_frame(segment, offset).and_then(|frame| adapter.kernel().page_of_frame(frame));
        let page = Self { manager: Arc::downgrade(&manager), segment, offset, address, seen: kernel.zip(object) };
        match page.seen {
            Some((kernel, _)) => {
                crate::port::raw::copy_to(kernel, word.to_le_bytes().repeat(PAGE as usize / 8).as_slice())
            }
            None => manager
                .run_on_worker(adapter, move |adapter, manager| {
                    // CAST: the low half, which is the high one.
                    manager.fill_segment(adapter, (segment, address), PAGE, 0, word as u32)
                })?
                .ok()?,
        }
        manager.value_pages.lock().insert((segment, address));
        Some(page)
    }
}

impl Drop for LocalPage {
    fn drop(&mut self) {
        if let Some(manager) = self.manager.upgrade() {
            manager.value_pages.lock().remove(&(self.segment, self.address));
            manager.free_in_segment(self.segment, self.offset);
        }
    }
}

impl ValuePage {
    /// The page, if it is in system memory.
    pub(crate) fn system(&self) -> Option<&Arc<Page>> {
        match self {
            Self::System(page) => Some(page),
            Self::Local(_) => None,
        }
    }

    /// Its segment; 0: system memory.
    pub(crate) fn segment(&self) -> u32 {
        match self {
            Self::System(_) => 0,
            Self::Local(page) => page.segment,
        }
    }

    /// Where the model sees it. `None`: the CPU does not.
    pub(crate) fn address(&self) -> Option<usize> {
        match self {
            Self::System(page) => Some(page.address()),
            Self::Local(page) => page.seen.as_ref().map(|(address, _)| *address),
        }
    }

    /// What a mapping for the CPU maps. `None`: the CPU does not see it.
    pub(crate) fn object(&self) -> Option<ObjectPage> {
        match self {
            Self::System(page) => {
                let (object, index) = page.object();
                Some((object.clone(), index))
            }
            Self::Local(page) => page.seen.as_ref().map(|(_, object)| object.clone()),
        }
    }

    /// Content of the page table entry that shows it.
    pub(crate) fn content(&self, protection: Protection) -> Content {
        match self {
            Self::System(page) => page.content(protection),
            Self::Local(page) => Content::Pages { segment: page.segment, addresses: vec![page.address], protection },
        }
    }
}
