//! Shared pages: the only door to memory that the GPU, the OS or another process reads and writes at the same time.
//!
//! Addresses come from thunks (`D3DKMTLock2`, `D3DKMTCreateDoorbell`, `D3DKMTCreateHwQueue`, …).
//! [`crate::thunks::Thunks`] promises that they stay mapped until the object they belong to is destroyed; so a
//! [`MappedWord`] or [`Pages`] is a private field of the structure that destroys that object, beside its handle, and
//! copies of it never outlive the structure.
//!
//! Words are read and written by 64-bit atomics, bulk bytes by raw copies; no `&[u8]` on a shared page ever exists.
//! Packets are short, so they are written as words: a call of `memmove`, which the image imports, costs more than the
//! copy.
#![expect(unsafe_code, reason = "raw access to shared pages is concentrated here")]

pub(crate) mod lock;

use crate::word::{Ordering, Word, machine_fence};
use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;

/// A 64-bit word in a page of the OS.
#[derive(Clone, Copy, Debug)]
pub struct MappedWord(NonNull<AtomicU64>);

// SAFETY: the address of a word that every thread may access, atomically only.
unsafe impl Send for MappedWord {}
// SAFETY: as above; a MappedWord has no state of its own.
unsafe impl Sync for MappedWord {}

impl MappedWord {
    /// The word at `at`, as a thunk returned it; `None` when it is null or misaligned.
    pub(crate) fn new(at: *mut c_void) -> Option<Self> {
        let word = NonNull::new(at.cast::<AtomicU64>())?;
        word.addr().get().is_multiple_of(8).then_some(Self(word))
    }

    /// Its address.
    pub fn address(self) -> u64 {
        // CAST: usize is 64 bits wide.
        self.0.addr().get() as u64
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: aligned and not null (checked in `new`), mapped while the owner of this value lives (module), and
        // everyone accesses it atomically.
        unsafe { self.0.as_ref() }
    }
}

impl Word for MappedWord {
    /// Many of these words are mapped read-only. Relaxed loads of 8 bytes are the ones that Rust guarantees there, so a
    /// stronger order is a fence behind one.
    fn load(&self, order: Ordering) -> u64 {
        let value = self.word().load(Ordering::Relaxed);
        if order != Ordering::Relaxed {
            machine_fence(order);
        }
        value
    }

    fn store(&self, value: u64, order: Ordering) {
        self.word().store(value, order);
        #[cfg(feature = "explore")]
        hooks::stored();
    }

    fn fence(order: Ordering) {
        machine_fence(order);
    }
}

#[cfg(feature = "explore")]
pub mod hooks {
    //! Where the schedule explorer lets others run between two stores of user mode.
    use core::sync::atomic::{AtomicPtr, Ordering};

    /// What the explorer implements.
    pub struct Hooks {
        /// This thread has stored a word.
        pub stored: fn(),
    }

    static INSTALLED: AtomicPtr<Hooks> = AtomicPtr::new(core::ptr::null_mut());

    /// Installs hooks for the whole process.
    pub fn install(hooks: &'static Hooks) {
        INSTALLED.store(core::ptr::from_ref(hooks).cast_mut(), Ordering::Release);
    }

    pub(super) fn stored() {
        let raw = INSTALLED.load(Ordering::Acquire);
        // SAFETY: only install stores here, and it stores a &'static.
        if let Some(hooks) = unsafe { raw.as_ref() } {
            (hooks.stored)();
        }
    }
}

/// Most bytes that [`Pages::write_packets`] stores word by word. Above, a copy in one go is faster.
const SHORT: usize = 256;

/// The CPU's mapping of an allocation.
#[derive(Clone, Copy, Debug)]
pub struct Pages {
    base: NonNull<u8>,
    len: u64,
}

// SAFETY: the address of memory that every thread may access, atomically or as raw bytes.
unsafe impl Send for Pages {}
// SAFETY: as above; Pages has no state of its own.
unsafe impl Sync for Pages {}

impl Pages {
    /// The `len` bytes at `at`, as a thunk returned it; `None` when it is null or not at a page boundary.
    pub(crate) fn new(at: *mut c_void, len: u64) -> Option<Self> {
        let base = NonNull::new(at.cast::<u8>())?;
        // CAST: a page is 4096 bytes.
        base.addr().get().is_multiple_of(gpu_wire::PAGE_SIZE as usize).then_some(Self { base, len })
    }

    /// First byte.
    pub fn base(self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Bytes.
    pub fn len(self) -> u64 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Whether `len` bytes from `offset` lie inside.
    fn holds(self, offset: u64, len: usize) -> bool {
        // CAST: usize is 64 bits wide.
        offset.checked_add(len as u64).is_some_and(|end| end <= self.len)
    }

    /// Copies `from` to `offset`; `false`, and nothing copied, when it does not fit.
    pub fn write(self, offset: u64, from: &[u8]) -> bool {
        // SAFETY: a slice is readable for its length.
        unsafe { self.write_from(offset, from.as_ptr(), from.len()) }
    }

    /// Copies packets to `offset`, which is a multiple of 8, as their length is: in whole words where they are short.
    /// `false`, and nothing copied, when they do not fit or something is no multiple of 8.
    pub fn write_packets(self, offset: u64, from: &[u8]) -> bool {
        let (words, rest) = from.as_chunks::<8>();
        if !rest.is_empty() || !offset.is_multiple_of(8) || !self.holds(offset, from.len()) {
            return false;
        }
        if from.len() > SHORT {
            return self.write(offset, from);
        }
        // CAST: inside the mapping, so it fits usize.
        let to = self.base.as_ptr().wrapping_add(offset as usize).cast::<AtomicU64>();
        for (at, word) in words.iter().enumerate() {
            // SAFETY: `from` fits behind the offset (checked), so the word lies inside the mapping; the base is at a
            // page boundary and the offset a multiple of 8, so it is aligned; everyone accesses it atomically or as
            // raw bytes.
            let to = unsafe { &*to.wrapping_add(at) };
            to.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
        true
    }

    /// Asks for the cache line at `offset` for writing, and does not wait for it; outside of the mapping nothing
    /// happens.
    ///
    /// Source: the processor requirements of Windows 8.1 and later name PREFETCHW; processors without it take it for a
    /// no-operation.
    pub fn claim(self, offset: u64) {
        if !self.holds(offset, 1) {
            return;
        }
        #[cfg(target_arch = "x86_64")]
        {
            // CAST: inside the mapping, so it fits usize.
            let at = self.base.as_ptr().wrapping_add(offset as usize);
            // SAFETY: a hint, which touches no memory and never faults, whatever the address.
            unsafe { core::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags)) };
        }
    }

    /// Copies bytes from `offset` to `to`; `false`, and nothing copied, when there are not so many.
    pub fn read(self, offset: u64, to: &mut [u8]) -> bool {
        // SAFETY: a slice is writable for its length.
        unsafe { self.read_to(offset, to.as_mut_ptr(), to.len()) }
    }

    /// Copies `len` bytes to `offset`; `false`, and nothing copied, when they do not fit.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes. It may lie in shared pages, these included.
    pub unsafe fn write_from(self, offset: u64, from: *const u8, len: usize) -> bool {
        if !self.holds(offset, len) {
            return false;
        }
        // CAST: inside the mapping, so it fits usize.
        // SAFETY: offset is at most the mapping's length (checked), so the pointer stays inside or one past it.
        let to = unsafe { self.base.as_ptr().add(offset as usize) };
        // SAFETY: len bytes are mapped writable at `to` (checked) and readable at `from`; `copy` allows overlap.
        unsafe { core::ptr::copy(from, to, len) };
        true
    }

    /// Copies `len` bytes from `offset`; `false`, and nothing copied, when there are not so many.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes. It may lie in shared pages, these included.
    pub unsafe fn read_to(self, offset: u64, to: *mut u8, len: usize) -> bool {
        if !self.holds(offset, len) {
            return false;
        }
        // CAST: inside the mapping, so it fits usize.
        // SAFETY: offset is at most the mapping's length (checked), so the pointer stays inside or one past it.
        let from = unsafe { self.base.as_ptr().add(offset as usize) };
        // SAFETY: len bytes are mapped at `from` (checked) and writable at `to`; `copy` allows overlap.
        unsafe { core::ptr::copy(from, to, len) };
        true
    }

    /// The word at `offset`; `None` when it does not lie inside or is not aligned.
    pub fn word(self, offset: u64) -> Option<MappedWord> {
        if !self.holds(offset, 8) {
            return None;
        }
        // CAST: inside the mapping, so it fits usize.
        MappedWord::new(self.base.as_ptr().wrapping_add(offset as usize).cast())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::boxed::Box;

    #[repr(align(4096))]
    struct Page([u8; 4096]);

    #[test]
    fn accesses_outside_the_mapping_are_refused() {
        let mut page = Box::new(Page([0; 4096]));
        let pages = Pages::new(page.0.as_mut_ptr().cast(), 4096).unwrap();
        assert!(pages.write(4090, &[1; 6]) && !pages.write(4091, &[1; 6]) && !pages.write(u64::MAX, &[1]));
        let mut got = [0; 6];
        assert!(pages.read(4090, &mut got) && got == [1; 6] && !pages.read(4095, &mut got));
        assert!(pages.word(4088).is_some() && pages.word(4089).is_none() && pages.word(4096).is_none());
    }

    #[test]
    fn packets_land_as_they_are_whatever_their_length() {
        for len in (0..=2 * SHORT).step_by(8) {
            let mut page = Box::new(Page([0xee; 4096]));
            let pages = Pages::new(page.0.as_mut_ptr().cast(), 4096).unwrap();
            let from: std::vec::Vec<u8> = (1..=len).map(|at| at as u8).collect();
            assert!(pages.write_packets(24, &from));
            let mut got = [0; 4096];
            assert!(pages.read(0, &mut got));
            assert!(got[..24].iter().chain(&got[24 + len..]).all(|byte| *byte == 0xee) && got[24..24 + len] == from);
        }
    }

    #[test]
    fn packets_that_do_not_fit_are_refused() {
        let mut page = Box::new(Page([0; 4096]));
        let pages = Pages::new(page.0.as_mut_ptr().cast(), 4096).unwrap();
        assert!(pages.write_packets(4080, &[1; 16]) && !pages.write_packets(4088, &[1; 16]));
        assert!(!pages.write_packets(4, &[1; 8]) && !pages.write_packets(0, &[1; 12]));
        assert!(!pages.write_packets(4096 - 256, &[1; 264]) && !pages.write_packets(u64::MAX - 7, &[1; 8]));
        assert!(pages.write_packets(4096, &[]));
    }

    #[test]
    fn null_and_misaligned_addresses_are_refused() {
        let mut page = Box::new(Page([0; 4096]));
        let base: *mut c_void = page.0.as_mut_ptr().cast();
        assert!(Pages::new(core::ptr::null_mut(), 4096).is_none() && MappedWord::new(core::ptr::null_mut()).is_none());
        assert!(Pages::new(base.wrapping_byte_add(8), 4088).is_none());
        assert!(MappedWord::new(base.wrapping_byte_add(4)).is_none());
        let word = MappedWord::new(base.wrapping_byte_add(8)).unwrap();
        word.store(7, Ordering::Release);
        assert_eq!(word.load(Ordering::Acquire), 7);
        assert_eq!(word.address(), base.addr() as u64 + 8);
    }
}
