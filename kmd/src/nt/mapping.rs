//! A kernel mapping of pages that the page tables name: an MDL that we fill in ourselves.
//!
//! Why it is done so: `docs/decisions/0003-mapping-system-pages.md`.

use super::pages::{NO_WRITE, map_mdl};
use super::reserve::ReservedMapping;
use core::ffi::c_void;
use core::ptr;
use gpu_engine::host::Unmapped;
use gpu_engine::memory::Mapping;
use gpu_wire::PAGE_SIZE;
use wdk_sys::_MEMORY_CACHING_TYPE::{MmCached, MmHardwareCoherentCached, MmNotMapped};
use wdk_sys::LARGE_INTEGER;
use wdk_sys::MDL_PAGES_LOCKED;
use wdk_sys::MEMORY_CACHING_TYPE;
use wdk_sys::NT_SUCCESS;
use wdk_sys::PMDL;
use wdk_sys::ntddk::IoAllocateMdl;
use wdk_sys::ntddk::IoFreeMdl;
use wdk_sys::ntddk::MmGetCacheAttribute;
use wdk_sys::ntddk::MmGetPhysicalAddress;
use wdk_sys::ntddk::MmUnmapLockedPages;

/// Most pages of one mapping: 2 MiB, one leaf table.
const MOST: usize = 512;

/// The cache type of the page of memory at a physical address; `None` when no memory is there. Pages that have none yet
/// get the one that a mapping asks for, and we ask for cached ones.
fn type_of(physical: u64) -> Option<MEMORY_CACHING_TYPE> {
    // CAST: an address of at most 52 bits.
    let address = LARGE_INTEGER { QuadPart: physical as i64 };
    let mut found = MmCached;
    // SAFETY: at most DISPATCH_LEVEL; the answer goes to this stack.
    let status = unsafe { MmGetCacheAttribute(address, &raw mut found) };
    NT_SUCCESS(status).then_some(if found == MmNotMapped { MmCached } else { found })
}

/// Whether the processor keeps its order for pages of this type.
pub fn is_ordered(cache: MEMORY_CACHING_TYPE) -> bool {
    cache == MmCached || cache == MmHardwareCoherentCached
}

/// [`Platform::is_cached`](kmd_core::platform::Platform::is_cached).
pub fn is_cached(address: *const u8) -> bool {
    // SAFETY: any IRQL; an address that is not mapped gives 0.
    let physical = unsafe { MmGetPhysicalAddress(address.cast_mut().cast()) };
    // SAFETY: every variant of the union is the same 64 bits.
    // CAST: a physical address is not negative.
    type_of(unsafe { physical.QuadPart } as u64).is_some_and(is_ordered)
}

/// The first of `frames` that have one cache type, `most` of them at most, and that type: the pages' type counts,
/// whatever is asked for.
pub fn alike(frames: &[u64], most: usize) -> Result<(&[u64], MEMORY_CACHING_TYPE), Unmapped> {
    let of = |frame: &u64| type_of(frame * PAGE_SIZE);
    let cache = frames.first().and_then(of).ok_or(Unmapped::NotMemory)?;
    let alike = frames.iter().take(most).take_while(|frame| of(frame) == Some(cache)).count();
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

/// A mapping by an MDL from the OS.
pub struct OwnMapping {
    mdl: PMDL,
    base: *mut c_void,
    bytes: u64,
    ordered: bool,
}

// SAFETY: a kernel mapping and its MDL belong to no thread.
unsafe impl Send for OwnMapping {}

impl OwnMapping {
    /// Maps the first of `frames` that are [`alike`], [`MOST`] of them at most.
    pub fn map(frames: &[u64], write: bool) -> Result<Self, Unmapped> {
        let (frames, cache) = alike(frames, MOST)?;
        let bytes = frames.len() as u64 * PAGE_SIZE;
        // CAST: at most 2 MiB.
        // SAFETY: at most DISPATCH_LEVEL; a page-aligned (zero) address, so that the MDL has room for exactly these
        // frames.
        let mdl = unsafe { IoAllocateMdl(ptr::null_mut(), bytes as u32, 0, 0, ptr::null_mut()) };
        if mdl.is_null() {
            return Err(Unmapped::NoMemory);
        }
        // SAFETY: the frame numbers follow the header (MmGetMdlPfnArray).
        let to = unsafe { mdl.add(1) }.cast::<u64>();
        // SAFETY: IoAllocateMdl made room for one number per page, and the MDL is ours alone.
        unsafe { ptr::copy_nonoverlapping(frames.as_ptr(), to, frames.len()) };
        // CAST: 2.
        // SAFETY: the MDL is ours alone. The pages are locked: Dxgkrnl keeps what a valid page table entry names in
        // memory until the entry is made invalid, and the engine drops its mappings before that is reported done.
        unsafe { (*mdl).MdlFlags |= MDL_PAGES_LOCKED as i16 };
        let mut mapping = Self { mdl, base: ptr::null_mut(), bytes, ordered: is_ordered(cache) };
        let rights = if write { 0 } else { NO_WRITE };
        // SAFETY: an MDL of locked pages that are not mapped by it.
        mapping.base = unsafe { map_mdl(mdl, cache, rights) };
        if mapping.base.is_null() { Err(Unmapped::NoMemory) } else { Ok(mapping) }
    }
}

impl Drop for OwnMapping {
    fn drop(&mut self) {
        if !self.base.is_null() {
            // SAFETY: our mapping of this MDL, removed once.
            unsafe { MmUnmapLockedPages(self.base, self.mdl) };
        }
        // We said so in `map`, and we take it back: nothing was locked by this MDL, and an MDL of locked pages must not
        // be freed.
        // CAST: 2.
        // SAFETY: the MDL is ours alone.
        unsafe { (*self.mdl).MdlFlags &= !(MDL_PAGES_LOCKED as i16) };
        // SAFETY: our MDL, freed once.
        unsafe { IoFreeMdl(self.mdl) };
    }
}

// SAFETY: mapped as asked for, at a page boundary, until dropped; base and length never change.
unsafe impl Mapping for OwnMapping {
    fn base(&self) -> *mut u8 {
        self.base.cast()
    }
    fn len(&self) -> u64 {
        self.bytes
    }
    fn is_ordered(&self) -> bool {
        self.ordered
    }
}
