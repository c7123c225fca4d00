//! Stage 5 of 8: the only door to backing pages.
//!
//! Everything here is memory that other agents (user mode, other engines, the OS) read and write at the same time. It
//! is reached by 64-bit and 32-bit atomics and by bulk copies through raw pointers; no `&[u8]` on it ever exists. The
//! bytes that a bulk copy reads from a page that user mode writes meanwhile are unspecified, and treated so by
//! everyone.
#![expect(unsafe_code, reason = "raw access to shared pages is concentrated here")]

use crate::bulk;
use crate::word::{Exchange, Ordering, Word, machine_fence};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// A host mapping of pages. Dropping it unmaps.
///
/// # Safety
/// `base()..base() + len()` is mapped readable, and writable if it was asked for so, page-aligned, until the value is
/// dropped, and `base` and `len` never change. Nothing holds a Rust reference into the pages.
pub unsafe trait Mapping: Send + 'static {
    /// First byte.
    fn base(&self) -> *mut u8;
    /// Bytes mapped, a multiple of the page size, at least one page.
    fn len(&self) -> u64;
    /// Whether nothing is mapped. Never true.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Whether the pages are cached, so that the processor keeps its order for them: see [`Span::unordered`].
    fn is_ordered(&self) -> bool {
        true
    }
}

/// Bytes somewhere in mapped memory, valid as long as `'m`: the borrow of what keeps the mapping alive.
#[derive(Clone, Copy)]
pub struct Span<'m> {
    base: *mut u8,
    len: u64,
    ordered: bool,
    _mapping: PhantomData<&'m ()>,
}

// SAFETY: a span is an address of memory that every thread may access, atomically or as raw bytes.
unsafe impl Send for Span<'_> {}
// SAFETY: as above; a span has no state of its own.
unsafe impl Sync for Span<'_> {}

impl<'m> Span<'m> {
    /// The `len` bytes at `base`.
    ///
    /// # Safety
    /// The bytes are mapped readable, and writable if anything is stored through the span, for all of `'m`; nothing
    /// holds a Rust reference into them.
    pub unsafe fn new(base: *mut u8, len: u64) -> Self {
        Self { base, len, ordered: true, _mapping: PhantomData }
    }

    /// The same bytes as memory that is not cached, which the orders of this crate do not rest on: x86 lets stores to
    /// write-combined pages pass each other and other stores, whatever the order of the access says, and until a full
    /// fence or a locked instruction no other processor need see them. So what is stored there by words with Release,
    /// or in bulk, is fenced off on both sides; entries that are stored Relaxed are followed by a word with Release or
    /// by [`Self::settle`].
    ///
    /// Source: Intel SDM volume 3, memory types (write combining); the page of MmMapLockedPagesSpecifyCache (the pages'
    /// cache type counts, not the one that a mapping asks for).
    #[must_use]
    pub fn unordered(self) -> Self {
        Self { ordered: false, ..self }
    }

    /// Whether the pages are cached.
    pub fn is_ordered(self) -> bool {
        self.ordered
    }

    /// Lets what this thread has stored be seen before anything that it stores from now on.
    pub fn settle(self) {
        if !self.ordered {
            SharedWord::fence(Ordering::SeqCst);
        }
    }

    /// Bytes.
    pub fn len(self) -> u64 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Where it starts, for someone who maps it elsewhere.
    pub fn as_ptr(self) -> *mut u8 {
        self.base
    }

    /// The part from `offset`, at most `len` bytes; empty beyond the end.
    pub fn part(self, offset: u64, len: u64) -> Self {
        let offset = offset.min(self.len);
        // SAFETY: offset is at most len, so the pointer stays inside or one past the mapped bytes.
        let base = unsafe { self.base.add(offset as usize) };
        Self { base, len: len.min(self.len - offset), ..self }
    }

    /// The 64-bit word at `offset`; `None` when it does not lie inside or is not aligned.
    pub fn word(self, offset: u64) -> Option<SharedWord<'m>> {
        let end = offset.checked_add(8)?;
        // Checked just below, before the pointer is used.
        let at = self.base.wrapping_add(offset as usize);
        if end > self.len || !at.addr().is_multiple_of(8) {
            return None;
        }
        // SAFETY: 8 aligned bytes inside the span, mapped for 'm; everyone accesses them atomically or as raw bytes.
        Some(SharedWord { word: unsafe { AtomicU64::from_ptr(at.cast()) }, ordered: self.ordered })
    }

    /// Stores 4 bytes at `offset`; `false` when they do not lie inside or are not aligned.
    pub fn store_u32(self, offset: u64, value: u32) -> bool {
        drain();
        let at = self.base.wrapping_add(offset as usize);
        if offset.checked_add(4).is_none_or(|end| end > self.len) || !at.addr().is_multiple_of(4) {
            return false;
        }
        // SAFETY: 4 aligned bytes inside the span, mapped for 'm.
        let word = unsafe { AtomicU32::from_ptr(at.cast()) };
        self.settle();
        word.store(value, Ordering::Release);
        self.settle();
        true
    }

    /// Copies the span's first bytes into `to`, as many as both have; the count.
    pub fn read(self, to: &mut [u8]) -> usize {
        let n = to.len().min(self.len as usize);
        #[cfg(feature = "explore")]
        if let Some(h) = hooks::get() {
            (h.read)(self.base, n);
        }
        // Each byte is read once, by an atomic load: the compiler reads nothing again from memory that others write.
        let (mut at, to) = (self.base, to.get_mut(..n).unwrap_or_default());
        let (head, rest) = to.split_at_mut(at.align_offset(8).min(n));
        at = read_bytes(at, head);
        let (words, tail) = rest.as_chunks_mut::<8>();
        for word in words {
            // SAFETY: at is aligned to 8, and 8 bytes from there on are inside the span, mapped for 'm.
            *word = unsafe { AtomicU64::from_ptr(at.cast()) }.load(Ordering::Relaxed).to_ne_bytes();
            at = at.wrapping_add(8);
        }
        read_bytes(at, tail);
        n
    }

    /// Copies `from` to the span's first bytes, as many as both have; the count.
    pub fn write(self, from: &[u8]) -> usize {
        drain();
        let n = from.len().min(self.len as usize);
        // SAFETY: n bytes are mapped writable at base for 'm; `from` is Rust memory, which no span covers.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), self.base, n) };
        self.settle();
        n
    }

    /// Copies bytes between spans, as many as both have; the count. Overlapping host ranges (two GPU addresses of one
    /// page) give unspecified bytes, nothing worse.
    pub fn copy_from(self, from: Span<'_>) -> u64 {
        self.copy_part(from, self.len)
    }

    /// As [`Self::copy_from`], as a part of a copy of `all` bytes.
    pub fn copy_part(self, from: Span<'_>, all: u64) -> u64 {
        drain();
        let n = self.len.min(from.len);
        // SAFETY: both spans are mapped for n bytes, and no reference is into either.
        unsafe { bulk::copy(from.base, self.base, n as usize, all) };
        self.settle();
        n
    }

    /// Fills the whole span with a 32-bit pattern whose first byte falls on the span's first byte.
    pub fn fill(self, pattern: u32) {
        self.fill_part(pattern, self.len);
    }

    /// As [`Self::fill`], as a part of a fill of `all` bytes.
    pub fn fill_part(self, pattern: u32, all: u64) {
        drain();
        // SAFETY: len bytes are mapped writable for 'm, and no reference is into them.
        unsafe { bulk::fill(self.base, self.len as usize, pattern, all) };
        self.settle();
    }
}

/// Reads the bytes at `at`, which lie inside a span, one at a time. Returns where they end.
fn read_bytes(mut at: *mut u8, to: &mut [u8]) -> *mut u8 {
    for byte in to {
        // SAFETY: the caller gives as many bytes as the span has from `at` on, mapped as long as it lives.
        *byte = unsafe { AtomicU8::from_ptr(at) }.load(Ordering::Relaxed);
        at = at.wrapping_add(1);
    }
    at
}

/// Pages that a translation leads to: mapped for this window alone, or a part of the local segment.
pub enum Window<M: Mapping> {
    /// System pages; unmapped when the window is dropped.
    System(M),
    /// Pages of the local segment.
    Local(Span<'static>),
}

impl<M: Mapping> Window<M> {
    /// The window's bytes.
    pub fn span(&self) -> Span<'_> {
        match self {
            Self::System(mapping) => {
                // SAFETY: Mapping's contract: mapped while the mapping lives, and the span borrows it. Windows of pages
                // that were asked for without writing are of entries that `Tlb::translate` refuses to write to, and of
                // tables that are only walked.
                let span = unsafe { Span::new(mapping.base(), mapping.len()) };
                if mapping.is_ordered() { span } else { span.unordered() }
            }
            Self::Local(span) => *span,
        }
    }
}

/// A 64-bit word in a shared page.
#[derive(Clone, Copy)]
pub struct SharedWord<'m> {
    word: &'m AtomicU64,
    /// As [`Span::is_ordered`].
    ordered: bool,
}

impl<'m> SharedWord<'m> {
    /// A word in memory of our own, seen as if it were shared.
    pub fn of(word: &'m AtomicU64) -> Self {
        Self { word, ordered: true }
    }

    /// The word at `at`, for the duration `'m`.
    ///
    /// # Safety
    /// `at` is 8-byte aligned and mapped readable and writable for all of `'m`, and everyone accesses it atomically or
    /// as raw bytes.
    pub unsafe fn from_ptr(at: *mut u64) -> Self {
        // SAFETY: the caller's promise is from_ptr's.
        Self { word: unsafe { AtomicU64::from_ptr(at) }, ordered: true }
    }

    /// The same word, reached with fences: in a page that is not cached, or of which nothing says whether it is. See
    /// [`Span::unordered`].
    #[must_use]
    pub fn unordered(self) -> Self {
        Self { ordered: false, ..self }
    }
}

impl<'m> From<&'m AtomicU64> for SharedWord<'m> {
    /// A word of our own, reached like one in a shared page.
    fn from(word: &'m AtomicU64) -> Self {
        Self::of(word)
    }
}

/// Returns whether a schedule explorer watches this process: each access is a step there, and loops that look for a
/// while are left out.
#[inline(always)]
pub(crate) fn is_explored() -> bool {
    #[cfg(feature = "explore")]
    return hooks::get().is_some();
    #[cfg(not(feature = "explore"))]
    false
}

#[cfg(feature = "explore")]
pub mod hooks {
    //! Where the schedule explorer takes over the access to shared words.
    use core::sync::atomic::{AtomicPtr, Ordering};

    /// What the explorer implements. Addresses are host addresses of aligned words.
    pub struct Hooks {
        /// Loads the word; `None`: not exploring on this thread.
        pub load: fn(*const u64, Ordering) -> Option<u64>,
        /// Stores the word; `false`: not exploring on this thread.
        pub store: fn(*mut u64, u64, Ordering) -> bool,
        /// This thread is about to read these bytes.
        pub read: fn(*const u8, usize),
        /// A full barrier of this thread.
        pub fence: fn(Ordering),
    }

    static INSTALLED: AtomicPtr<Hooks> = AtomicPtr::new(core::ptr::null_mut());

    /// Installs hooks for the whole process.
    pub fn install(hooks: &'static Hooks) {
        INSTALLED.store(core::ptr::from_ref(hooks).cast_mut(), Ordering::Release);
    }

    pub(super) fn get() -> Option<&'static Hooks> {
        let raw = INSTALLED.load(Ordering::Acquire);
        // SAFETY: only install stores here, and it stores a &'static.
        unsafe { raw.as_ref() }
    }
}

impl Word for SharedWord<'_> {
    fn load(&self, order: Ordering) -> u64 {
        #[cfg(feature = "explore")]
        if let Some(v) = hooks::get().and_then(|h| (h.load)(self.word.as_ptr(), order)) {
            return v;
        }
        let value = self.word.load(order);
        if !self.ordered && order != Ordering::Relaxed {
            Self::fence(Ordering::SeqCst);
        }
        value
    }
    fn store(&self, value: u64, order: Ordering) {
        #[cfg(feature = "explore")]
        if hooks::get().is_some_and(|h| (h.store)(self.word.as_ptr(), value, order)) {
            return;
        }
        if self.ordered || order == Ordering::Relaxed {
            return self.word.store(value, order);
        }
        Self::fence(Ordering::SeqCst);
        self.word.store(value, order);
        Self::fence(Ordering::SeqCst);
    }
    fn fence(order: Ordering) {
        #[cfg(feature = "explore")]
        if let Some(h) = hooks::get() {
            (h.fence)(order);
        }
        machine_fence(order);
    }
}

impl Exchange for SharedWord<'_> {
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        drain();
        self.word.swap(value, order)
    }
    fn compare_exchange(&self, current: u64, new: u64, order: Ordering) -> Result<u64, u64> {
        drain();
        self.word.compare_exchange(current, new, order, Ordering::Acquire)
    }
}

/// Bulk stores and read-modify-writes drain the store buffer on the machines that the explorer models.
fn drain() {
    #[cfg(feature = "explore")]
    if let Some(h) = hooks::get() {
        (h.fence)(Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::vec;
    use std::vec::Vec;

    fn span(bytes: &mut Vec<u64>) -> Span<'_> {
        let len = bytes.len() as u64 * 8;
        // SAFETY: the vector outlives the span, which borrows it mutably.
        unsafe { Span::new(bytes.as_mut_ptr().cast(), len) }
    }

    #[test]
    fn words_outside_or_misaligned_are_refused() {
        let mut m = vec![0u64; 4];
        let s = span(&mut m);
        assert!(s.word(24).is_some());
        assert!(s.word(25).is_none() && s.word(32).is_none() && s.word(u64::MAX).is_none());
        assert!(!s.store_u32(30, 1) && !s.store_u32(32, 1) && s.store_u32(28, 1));
    }

    #[test]
    fn fills_keep_the_pattern_in_phase() {
        for len in [4u64, 8, 252, 256, 4096, 4100, 12_288, 40_000] {
            let mut m = vec![0u64; 6000];
            span(&mut m).part(4, len).fill(0x0403_0201);
            let bytes: Vec<u8> = m.iter().flat_map(|w| w.to_le_bytes()).collect();
            assert_eq!(&bytes[..4], &[0; 4]);
            for (i, b) in bytes[4..4 + len as usize].iter().enumerate() {
                assert_eq!(*b, (i % 4) as u8 + 1, "byte {i} of {len}");
            }
            assert_eq!(&bytes[4 + len as usize..4 + len as usize + 4], &[0; 4]);
        }
    }

    #[test]
    fn what_is_not_cached_stays_so_in_its_parts_and_holds_the_same() {
        let mut m = vec![0u64; 4];
        let s = span(&mut m);
        assert!(s.is_ordered() && s.part(8, 8).is_ordered());
        let s = s.unordered().part(8, 16);
        assert!(!s.is_ordered());
        let word = s.word(8).unwrap();
        assert!(!word.ordered);
        word.store(7, Ordering::Release);
        s.write(&[1; 4]);
        assert_eq!((word.load(Ordering::Acquire), s.word(0).unwrap().load(Ordering::Relaxed)), (7, 0x0101_0101));
    }

    #[test]
    fn parts_never_leave_the_span() {
        let mut m = vec![7u64; 2];
        let s = span(&mut m);
        assert_eq!(s.part(8, 100).len(), 8);
        assert_eq!(s.part(100, 1).len(), 0);
        let mut out = [0u8; 32];
        assert_eq!(s.read(&mut out), 16);
    }
}
