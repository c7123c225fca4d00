//! Pages and mappings, by the services that the image uses too.
#![expect(unsafe_code, reason = "promises about the model's mappings")]

use crate::machine;
use crate::reserve::ReservedMapping;
use gpu_engine::NoMemory;
use gpu_engine::host::Unmapped;
use gpu_engine::memory::{Mapping, Span};
use gpu_wire::PAGE_SIZE;
use kmd_core::platform::Pages;
use nt_model::memory::MapRequest;
use nt_model::records::MDL_PAGES_LOCKED;
use nt_model::{CacheType, Mdl};
use std::sync::atomic::Ordering;

/// Most pages of one mapping: 2 MiB, one leaf table.
const MOST: usize = 512;

/// An MDL of locked pages, mapped for the kernel.
struct Mapped {
    mdl: Mdl,
    base: usize,
    bytes: u64,
}

impl Mapped {
    fn new(mdl: Mdl, bytes: u64, request: &MapRequest) -> Option<Self> {
        let base = machine(|m| m.map_locked_pages(mdl, request))?;
        Some(Self { mdl, base, bytes })
    }

    fn pointer(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.base)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        machine(|m| m.unmap_locked_pages(self.base, self.mdl));
    }
}

/// Zeroed pages from the page allocator.
pub struct NonPagedPages {
    mapped: Option<Mapped>,
    mdl: Mdl,
}

impl NonPagedPages {
    pub(crate) fn allocate(count: u64) -> Result<Self, NoMemory> {
        let bytes = count.checked_mul(PAGE_SIZE).ok_or(NoMemory)?;
        // CAST: i64::MAX is positive; the machine is 64-bit.
        let limits = 0..=i64::MAX as u64;
        let mdl = machine(|m| m.allocate_pages_for_mdl(limits, bytes as usize, CacheType::Cached, true));
        let mut pages = Self { mapped: None, mdl: mdl.ok_or(NoMemory)? };
        pages.mapped = Some(Mapped::new(pages.mdl, bytes, &MapRequest::default()).ok_or(NoMemory)?);
        Ok(pages)
    }
}

impl Drop for NonPagedPages {
    fn drop(&mut self) {
        drop(self.mapped.take());
        machine(|m| m.free_pages_from_mdl(self.mdl));
        machine(|m| m.free_pool(self.mdl.address(), None));
    }
}

// SAFETY: mapped read-write, page-aligned and whole pages until dropped, with nothing else in them.
unsafe impl Pages for NonPagedPages {
    fn span(&self) -> Span<'static> {
        let (base, bytes) = self.mapped.as_ref().map_or((std::ptr::null_mut(), 0), |m| (m.pointer(), m.bytes));
        // SAFETY: `bytes` are mapped at `base` until the value is dropped; the span's owner is dropped first (the
        // order of fields in `Started`).
        unsafe { Span::new(base, bytes) }
    }
}

/// The first of `frames` that have one cache type, `most` of them at most, and that type.
pub(crate) fn alike(frames: &[u64], most: usize) -> Result<(&[u64], CacheType), Unmapped> {
    let type_of = |frame: &u64| machine(|m| m.cache_attribute(frame * PAGE_SIZE));
    let cache = frames.first().and_then(type_of).ok_or(Unmapped::NotMemory)?;
    let alike = frames.iter().take(most).take_while(|frame| type_of(frame) == Some(cache)).count();
    Ok((frames.get(..alike).unwrap_or_default(), cache))
}

/// A kernel mapping of pages that the page tables name.
pub enum FrameMapping {
    /// At addresses of its own.
    Own(OwnMapping),
    /// At reserved addresses.
    Reserved(ReservedMapping),
}

// SAFETY: as those of the mapping that it is.
unsafe impl Mapping for FrameMapping {
    fn base(&self) -> *mut u8 {
        match self {
            Self::Own(own) => own.base(),
            Self::Reserved(reserved) => reserved.base(),
        }
    }
    fn len(&self) -> u64 {
        match self {
            Self::Own(own) => own.len(),
            Self::Reserved(reserved) => reserved.len(),
        }
    }
    fn is_ordered(&self) -> bool {
        match self {
            Self::Own(own) => own.is_ordered(),
            Self::Reserved(reserved) => reserved.is_ordered(),
        }
    }
}

/// A mapping by an MDL that we fill in ourselves.
pub struct OwnMapping {
    mapped: Option<Mapped>,
    mdl: Mdl,
    cached: bool,
}

impl OwnMapping {
    pub(crate) fn map(frames: &[u64], write: bool) -> Result<Self, Unmapped> {
        let (frames, cache) = alike(frames, MOST)?;
        let bytes = frames.len() as u64 * PAGE_SIZE;
        // CAST: at most 2 MiB.
        let mdl = machine(|m| m.allocate_mdl(0, bytes as usize)).ok_or(NoMemory)?;
        mdl.set_frames(frames);
        mdl.header().flags.fetch_or(MDL_PAGES_LOCKED, Ordering::Relaxed);
        let mut mapping = Self { mapped: None, mdl, cached: cache == CacheType::Cached };
        let request = MapRequest { cache, read_only: !write, ..MapRequest::default() };
        mapping.mapped = Some(Mapped::new(mdl, bytes, &request).ok_or(NoMemory)?);
        Ok(mapping)
    }
}

impl Drop for OwnMapping {
    fn drop(&mut self) {
        drop(self.mapped.take());
        // We said so, and we take it back: nothing was locked by this MDL, and an MDL of locked pages must not be
        // freed.
        self.mdl.header().flags.fetch_and(!MDL_PAGES_LOCKED, Ordering::Relaxed);
        machine(|m| m.free_mdl(self.mdl));
    }
}

// SAFETY: mapped as asked for, at a page boundary, until dropped; base and length never change.
unsafe impl Mapping for OwnMapping {
    fn base(&self) -> *mut u8 {
        self.mapped.as_ref().map_or(std::ptr::null_mut(), Mapped::pointer)
    }
    fn len(&self) -> u64 {
        self.mapped.as_ref().map_or(0, |m| m.bytes)
    }
    fn is_ordered(&self) -> bool {
        self.cached
    }
}
