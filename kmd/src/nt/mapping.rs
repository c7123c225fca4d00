//! A kernel mapping of pages that the page tables name: an MDL that we fill in ourselves.
//!
//! Why it is done so: `docs/decisions/0003-mapping-system-pages.md`.

use super::pages::NO_EXECUTE;
use core::ffi::c_void;
use core::ptr;
use gpu_engine::NoMemory;
use gpu_engine::memory::Mapping;
use gpu_wire::PAGE_SIZE;
use wdk_sys::_MEMORY_CACHING_TYPE::MmCached;
use wdk_sys::_MM_PAGE_PRIORITY::NormalPagePriority;
use wdk_sys::_MODE::KernelMode;
use wdk_sys::MDL_PAGES_LOCKED;
use wdk_sys::PMDL;
use wdk_sys::ntddk::IoAllocateMdl;
use wdk_sys::ntddk::IoFreeMdl;
use wdk_sys::ntddk::MmMapLockedPagesSpecifyCache;
use wdk_sys::ntddk::MmUnmapLockedPages;

/// Most pages of one mapping: 2 MiB, one leaf table.
const MOST: usize = 512;

/// The mapping.
pub struct FrameMapping {
    mdl: PMDL,
    base: *mut c_void,
    bytes: u64,
}

// SAFETY: a kernel mapping and its MDL belong to no thread.
unsafe impl Send for FrameMapping {}

impl FrameMapping {
    /// Maps the first [`MOST`] of `frames`.
    pub fn map(frames: &[u64]) -> Result<Self, NoMemory> {
        let frames = frames.get(..frames.len().min(MOST)).unwrap_or_default();
        if frames.is_empty() {
            return Err(NoMemory);
        }
        let bytes = frames.len() as u64 * PAGE_SIZE;
        // CAST: at most 2 MiB.
        // SAFETY: at most DISPATCH_LEVEL; a page-aligned (zero) address, so that the MDL has room for exactly these frames.
        let mdl = unsafe { IoAllocateMdl(ptr::null_mut(), bytes as u32, 0, 0, ptr::null_mut()) };
        if mdl.is_null() {
            return Err(NoMemory);
        }
        // SAFETY: the frame numbers follow the header (MmGetMdlPfnArray).
        let to = unsafe { mdl.add(1) }.cast::<u64>();
        // SAFETY: IoAllocateMdl made room for one number per page, and the MDL is ours alone.
        unsafe { ptr::copy_nonoverlapping(frames.as_ptr(), to, frames.len()) };
        // CAST: 2.
        // SAFETY: the MDL is ours alone. The pages are locked: Dxgkrnl keeps what a valid page table entry names in memory
        // until the entry is made invalid, and the engine drops its mappings before that is reported done.
        unsafe { (*mdl).MdlFlags |= MDL_PAGES_LOCKED as i16 };
        let mut mapping = Self { mdl, base: ptr::null_mut(), bytes };
        // CAST: an enumerator, 0.
        // SAFETY: an MDL of locked pages; at most DISPATCH_LEVEL for a kernel mapping; a failure is returned, not a bug
        // check.
        mapping.base = unsafe {
            MmMapLockedPagesSpecifyCache(
                mdl,
                KernelMode as i8,
                MmCached,
                ptr::null_mut(),
                0,
                NormalPagePriority | NO_EXECUTE,
            )
        };
        if mapping.base.is_null() { Err(NoMemory) } else { Ok(mapping) }
    }
}

impl Drop for FrameMapping {
    fn drop(&mut self) {
        if !self.base.is_null() {
            // SAFETY: our mapping of this MDL, removed once.
            unsafe { MmUnmapLockedPages(self.base, self.mdl) };
        }
        // We said so in `map`, and we take it back: nothing was locked by this MDL, and an MDL of locked pages must not be
        // freed.
        // CAST: 2.
        // SAFETY: the MDL is ours alone.
        unsafe { (*self.mdl).MdlFlags &= !(MDL_PAGES_LOCKED as i16) };
        // SAFETY: our MDL, freed once.
        unsafe { IoFreeMdl(self.mdl) };
    }
}

// SAFETY: mapped read-write at a page boundary until dropped; base and length never change.
unsafe impl Mapping for FrameMapping {
    fn base(&self) -> *mut u8 {
        self.base.cast()
    }
    fn len(&self) -> u64 {
        self.bytes
    }
}
