//! Pages of the system: page tables, fences, logs, buffers. Never swapped, mapped for the kernel at all times.
//!
//! Pages that user mode may see are objects of one page, so that a process gets that page's memory file and nothing
//! else; others come in slabs.

use std::fmt;
use std::sync::Arc;

use nt_model::{CacheType, Kernel, PageKind, PageObject, PageTraits};

use super::space::Content;
use super::va::{PAGE, Protection};
use crate::port::sync::{Lock, Rank};

/// Pages of a slab.
const SLAB: usize = 64;

struct Slab {
    kernel: Kernel,
    object: Arc<PageObject>,
    address: usize,
    free: Lock<Vec<usize>>,
}

impl fmt::Debug for Slab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slab").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Slab {
    fn new(kernel: &Kernel, pages: usize, traits: &PageTraits) -> Option<Arc<Self>> {
        let object = kernel.allocate_pages_of(pages, PageKind::System, 0, traits)?;
        let Some(address) = kernel.map_for_model(&object) else {
            kernel.free_pages(&object);
            return None;
        };
        let free = Lock::new(Rank::Leaf, (0..pages).rev().collect());
        Some(Arc::new(Self { kernel: kernel.clone(), object, address, free }))
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        self.kernel.unmap_for_model(self.address);
        self.kernel.free_pages(&self.object);
    }
}

/// A page. It is given back when the value is dropped.
#[derive(Debug)]
pub(crate) struct Page {
    slab: Arc<Slab>,
    index: usize,
}

impl Page {
    /// Kernel address.
    pub(crate) fn address(&self) -> usize {
        self.slab.address + self.index * nt_model::PAGE_SIZE
    }

    /// Page frame number.
    pub(crate) fn frame(&self) -> u64 {
        self.slab.object.frame(self.index)
    }

    /// The object that it is part of, and its index there.
    pub(crate) fn object(&self) -> (&Arc<PageObject>, usize) {
        (&self.slab.object, self.index)
    }

    /// Content of the page table entry that shows it.
    pub(crate) fn content(&self, protection: Protection) -> Content {
        Content::Pages { segment: 0, addresses: vec![self.frame() * PAGE], protection }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.slab.free.lock().push(self.index);
    }
}

/// Where pages come from.
#[derive(Debug)]
pub(crate) struct PagePool {
    kernel: Kernel,
    traits: PageTraits,
    slabs: Lock<Vec<Arc<Slab>>>,
}

impl PagePool {
    /// A pool without pages. `contiguous`: pages of one slab follow each other physically. `cache`: their type; without
    /// one, that of their first mapping.
    pub(crate) fn new(kernel: &Kernel, contiguous: bool, cache: Option<CacheType>) -> Self {
        let traits = PageTraits { contiguous, cache, read_only: false };
        Self { kernel: kernel.clone(), traits, slabs: Lock::new(Rank::Registry, Vec::new()) }
    }

    /// A zeroed page that user mode never sees.
    pub(crate) fn allocate(&self) -> Option<Page> {
        let found = self.slabs.lock().iter().find_map(take);
        let page = match found {
            Some(page) => page,
            None => {
                let slab = Slab::new(&self.kernel, SLAB, &self.traits)?;
                let page = take(&slab)?;
                self.slabs.lock().push(slab);
                page
            }
        };
        crate::port::raw::copy_to(page.address(), &[0; nt_model::PAGE_SIZE]);
        Some(page)
    }

    /// A zeroed page with an object of its own.
    pub(crate) fn allocate_alone(&self) -> Option<Page> {
        take(&Slab::new(&self.kernel, 1, &PageTraits { contiguous: false, ..self.traits })?)
    }

    /// [`allocate_alone`](Self::allocate_alone), of a page that the GPU may only read.
    pub(crate) fn allocate_for_reading(&self) -> Option<Page> {
        take(&Slab::new(&self.kernel, 1, &PageTraits { contiguous: false, read_only: true, ..self.traits })?)
    }

    /// Zeroed pages that follow each other physically and at kernel addresses, as one: address and frame are the first
    /// page's.
    pub(crate) fn allocate_run(&self, pages: usize) -> Option<Page> {
        take(&Slab::new(&self.kernel, pages, &PageTraits { contiguous: true, ..self.traits })?)
    }

    /// Zeroed pages that follow each other at kernel addresses: the first one's address is the block's.
    pub(crate) fn allocate_block(&self, pages: usize) -> Option<Block> {
        let slab = Slab::new(&self.kernel, pages, &self.traits)?;
        Some(Block { slab })
    }
}

fn take(slab: &Arc<Slab>) -> Option<Page> {
    let index = slab.free.lock().pop()?;
    Some(Page { slab: slab.clone(), index })
}

/// Several pages at consecutive kernel addresses.
#[derive(Debug)]
pub(crate) struct Block {
    slab: Arc<Slab>,
}

impl Block {
    /// Kernel address.
    pub(crate) fn address(&self) -> usize {
        self.slab.address
    }

    /// Its pages.
    pub(crate) fn object(&self) -> &Arc<PageObject> {
        &self.slab.object
    }

    /// Its length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.slab.object.pages() * nt_model::PAGE_SIZE
    }
}

/// The type by which pages are mapped: their own, else `wanted`.
pub(crate) fn cache_of(object: &PageObject, wanted: CacheType) -> CacheType {
    object.cache().unwrap_or(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_zeroed_and_reused() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let pool = PagePool::new(&kernel, false, None);
        let Some(page) = pool.allocate() else { panic!("no memory") };
        let (frame, address) = (page.frame(), page.address());
        crate::port::raw::store(address, 7);
        drop(page);
        let Some(page) = pool.allocate() else { panic!("no memory") };
        assert_eq!((page.frame(), page.address()), (frame, address));
        assert_eq!(crate::port::raw::load(address), 0);
        let alone = pool.allocate_alone().map(|page| page.object().0.pages());
        assert_eq!(alone, Some(1));
    }
}
