//! The allocator: the process heap of kernel32.
//!
//! HeapAlloc aligns to 16 bytes on 64-bit Windows and takes no alignment. A layout that wants more gets a larger block,
//! and the block's own address is kept in the eight bytes before the aligned one.
//!
//! Source: "HeapAlloc function (heapapi.h)" and its page on alignment (MEMORY_ALLOCATION_ALIGNMENT, 16 on 64-bit
//! Windows).

#![expect(unsafe_code, reason = "GlobalAlloc is an unsafe trait over foreign functions")]

use core::alloc::GlobalAlloc;
use core::alloc::Layout;
use core::ffi::c_void;
use core::ptr;

/// What HeapAlloc gives without being asked.
const HEAP_ALIGNMENT: usize = 16;
/// HeapAlloc's flag: the block reads as zeros.
const HEAP_ZERO_MEMORY: u32 = 8;

#[link(name = "kernel32", kind = "raw-dylib")]
unsafe extern "system" {
    safe fn GetProcessHeap() -> *mut c_void;
    fn HeapAlloc(heap: *mut c_void, flags: u32, size: usize) -> *mut c_void;
    fn HeapReAlloc(heap: *mut c_void, flags: u32, block: *mut c_void, size: usize) -> *mut c_void;
    fn HeapFree(heap: *mut c_void, flags: u32, block: *mut c_void) -> i32;
}

struct ProcessHeap;

#[global_allocator]
static HEAP: ProcessHeap = ProcessHeap;

/// A block of `layout`, or null.
fn allocate(flags: u32, layout: Layout) -> *mut u8 {
    let heap = GetProcessHeap();
    if layout.align() <= HEAP_ALIGNMENT {
        // SAFETY: `heap` is the process heap, which lives as long as the process and serialises its callers.
        return unsafe { HeapAlloc(heap, flags, layout.size()) }.cast();
    }
    let Some(size) = layout.size().checked_add(layout.align()) else { return ptr::null_mut() };
    // SAFETY: as above.
    let block: *mut u8 = unsafe { HeapAlloc(heap, flags, size) }.cast();
    if block.is_null() {
        return block;
    }
    // 16..=align: the block is aligned to 16 and `align` is a larger power of two, so there is always room for the
    // word.
    let gap = layout.align() - (block.addr() & (layout.align() - 1));
    // SAFETY: `gap <= align`, and the block is `align` bytes longer than what was asked for.
    let aligned = unsafe { block.add(gap) };
    // SAFETY: `gap >= 16`, so the word before it lies within the block.
    let word = unsafe { aligned.cast::<*mut u8>().sub(1) };
    // SAFETY: `aligned` is a multiple of 32 at least, so the word is aligned; nobody else has the block yet.
    unsafe { word.write(block) };
    aligned
}

/// What HeapAlloc returned for the block at `pointer`.
///
/// # Safety
/// `pointer` came from [`allocate`] with the same alignment.
unsafe fn heap_block(pointer: *mut u8, layout: Layout) -> *mut u8 {
    if layout.align() <= HEAP_ALIGNMENT {
        return pointer;
    }
    // SAFETY: there is a word before every over-aligned block, within the heap's block.
    let word = unsafe { pointer.cast::<*mut u8>().sub(1) };
    // SAFETY: `allocate` wrote it.
    unsafe { word.read() }
}

// SAFETY: blocks come from the process heap, which is thread-safe; sizes and alignments are those of the layouts;
// nothing here panics.
unsafe impl GlobalAlloc for ProcessHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocate(0, layout)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // The word before an over-aligned block is outside what the caller sees.
        allocate(HEAP_ZERO_MEMORY, layout)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller passes what `alloc` returned for this layout.
        let block = unsafe { heap_block(pointer, layout) };
        // SAFETY: `block` came from HeapAlloc on this heap and is freed once. HeapFree cannot fail on such a block.
        unsafe { HeapFree(GetProcessHeap(), 0, block.cast()) };
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if layout.align() <= HEAP_ALIGNMENT {
            // SAFETY: `pointer` came from HeapAlloc on this heap; on failure it stays valid, as GlobalAlloc wants.
            return unsafe { HeapReAlloc(GetProcessHeap(), 0, pointer.cast(), new_size) }.cast();
        }
        // HeapReAlloc may move the block to an address whose gap differs, so an over-aligned one is copied.
        let Ok(new_layout) = Layout::from_size_align(new_size, layout.align()) else { return ptr::null_mut() };
        let new = allocate(0, new_layout);
        if !new.is_null() {
            // SAFETY: two distinct live blocks, each at least as long as the smaller size.
            unsafe { ptr::copy_nonoverlapping(pointer, new, layout.size().min(new_size)) };
            // SAFETY: the caller passes what `alloc` returned for this layout, and gives it up.
            unsafe { self.dealloc(pointer, layout) };
        }
        new
    }
}
