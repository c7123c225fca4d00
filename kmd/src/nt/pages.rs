//! Pages of our own: the local segment and the doorbells.

use core::ffi::c_void;
use core::ptr;
use gpu_engine::NoMemory;
use gpu_engine::memory::Span;
use gpu_wire::PAGE_SIZE;
use kmd_core::irql::Passive;
use kmd_core::platform::Pages;
use wdk_sys::_MEMORY_CACHING_TYPE::MmCached;
use wdk_sys::_MM_PAGE_PRIORITY::NormalPagePriority;
use wdk_sys::_MODE::KernelMode;
use wdk_sys::LARGE_INTEGER;
use wdk_sys::MEMORY_CACHING_TYPE;
use wdk_sys::MM_ALLOCATE_FULLY_REQUIRED;
use wdk_sys::PMDL;
use wdk_sys::ntddk::ExFreePool;
use wdk_sys::ntddk::MmAllocatePagesForMdlEx;
use wdk_sys::ntddk::MmFreePagesFromMdl;
use wdk_sys::ntddk::MmMapLockedPagesSpecifyCache;
use wdk_sys::ntddk::MmUnmapLockedPages;

/// `MdlMappingNoExecute` of wdm.h, for the priority argument.
const NO_EXECUTE: i32 = 0x4000_0000;

/// `MdlMappingNoWrite` of wdm.h, for the same.
pub const NO_WRITE: i32 = 0x8000_0000_u32.cast_signed();

/// Maps the pages of `mdl` for the kernel, not executable, with cache type `cache`, and without right to write if
/// `rights` is [`NO_WRITE`]. Returns NULL where no addresses are to be had. Up to `DISPATCH_LEVEL`.
///
/// # Safety
/// `mdl` is an MDL of locked pages that it does not map yet; the caller unmaps them.
pub unsafe fn map_mdl(mdl: PMDL, cache: MEMORY_CACHING_TYPE, rights: i32) -> *mut c_void {
    let priority = NormalPagePriority | NO_EXECUTE | rights;
    // CAST: an enumerator, 0.
    // SAFETY: the caller's promise; a failure is returned, not a bug check.
    unsafe { MmMapLockedPagesSpecifyCache(mdl, KernelMode as i8, cache, ptr::null_mut(), 0, priority) }
}

/// Zeroed pages from the page allocator, mapped for the kernel.
pub struct NonPagedPages {
    mdl: PMDL,
    base: *mut c_void,
    bytes: u64,
}

// SAFETY: pages and their MDL belong to no thread.
unsafe impl Send for NonPagedPages {}
// SAFETY: as above; nobody writes the fields.
unsafe impl Sync for NonPagedPages {}

impl NonPagedPages {
    pub fn allocate(_irql: &Passive, count: u64) -> Result<Self, NoMemory> {
        let bytes = count.checked_mul(PAGE_SIZE).ok_or(NoMemory)?;
        let (zero, highest) = (LARGE_INTEGER { QuadPart: 0 }, LARGE_INTEGER { QuadPart: i64::MAX });
        // CAST: the kernel is 64-bit.
        // SAFETY: PASSIVE_LEVEL (the token); any physical pages will do. They come zeroed, for want of a flag that says
        // not to.
        let mdl = unsafe {
            MmAllocatePagesForMdlEx(zero, highest, zero, bytes as usize as _, MmCached, MM_ALLOCATE_FULLY_REQUIRED)
        };
        if mdl.is_null() {
            return Err(NoMemory);
        }
        let mut pages = Self { mdl, base: ptr::null_mut(), bytes };
        // SAFETY: the MDL describes locked pages that are not mapped.
        pages.base = unsafe { map_mdl(mdl, MmCached, 0) };
        if pages.base.is_null() { Err(NoMemory) } else { Ok(pages) }
    }
}

impl Drop for NonPagedPages {
    fn drop(&mut self) {
        if !self.base.is_null() {
            // SAFETY: our mapping of this MDL, removed once; `span` says that it is not used any more.
            unsafe { MmUnmapLockedPages(self.base, self.mdl) };
        }
        // SAFETY: pages that MmAllocatePagesForMdlEx gave, freed once.
        unsafe { MmFreePagesFromMdl(self.mdl) };
        // SAFETY: the MDL itself is the caller's to free (wdm.h, MmFreePagesFromMdl).
        unsafe { ExFreePool(self.mdl.cast()) };
    }
}

// SAFETY: mapped read-write, page-aligned and whole pages until dropped, with nothing else in them.
unsafe impl Pages for NonPagedPages {
    fn span(&self) -> Span<'static> {
        // SAFETY: `bytes` are mapped at `base` until the value is dropped; the span's owner is dropped first (the
        // order of fields in `Started`).
        unsafe { Span::new(self.base.cast(), self.bytes) }
    }
}
