//! Filling and copying memory, by the instructions that fit the length.
//!
//! Short pieces go through the compiler's own functions; longer ones by string instructions, which the processor turns
//! into whole cache lines; and pieces of a fill or copy that is larger than most of the last cache by stores that pass
//! the caches by, since what they wrote would only drive out what is used. What counts is the length of the *whole*
//! operation, which comes here in parts, between which the engine looks up.
//!
//! On other processors than x86-64, and under Miri, everything is the compiler's.
#![expect(unsafe_code, reason = "string instructions and non-temporal stores")]

#[cfg(all(target_arch = "x86_64", not(miri)))]
use core::arch::x86_64 as arch;
use core::sync::atomic::{AtomicU64, Ordering};

/// Bytes from which on a piece is worth the start of a string instruction.
const STRING: usize = 512;

/// Bytes of an operation from which on it passes the caches by: three quarters of the last cache, or of [`USUAL_CACHE`]
/// where that is less. 0: not known yet.
static LARGE: AtomicU64 = AtomicU64::new(0);

/// The last cache where the processor does not say, and the most that counts: a larger one is shared by many
/// processors, and what one of them fills it with is not what it finds there later. (On a guest that was told of
/// 480 MiB, a fill of 64 MiB was four times as fast past the caches.)
const USUAL_CACHE: u64 = 32 << 20;

/// Returns whether an operation of `all` bytes passes the caches by.
fn is_large(all: u64) -> bool {
    let mut large = LARGE.load(Ordering::Relaxed);
    if large == 0 {
        large = last_cache().clamp(1 << 20, USUAL_CACHE) / 4 * 3;
        LARGE.store(large, Ordering::Relaxed);
    }
    all >= large
}

/// Bytes of the last cache.
///
/// Source: Intel SDM volume 2, CPUID leaf 4; AMD64 APM volume 3, function 8000_001Dh: the same registers.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn last_cache() -> u64 {
    let leaves = [(0, 4), (0x8000_0000, 0x8000_001D)];
    let mut most = 0;
    for (first, leaf) in leaves {
        if arch::__cpuid(first).eax < leaf {
            continue;
        }
        for index in 0..8 {
            let found = arch::__cpuid_count(leaf, index);
            if found.eax & 0x1F == 0 {
                break;
            }
            let (ways, parts, line) = (found.ebx >> 22, found.ebx >> 12 & 0x3FF, found.ebx & 0xFFF);
            let factors = [ways, parts, line, found.ecx].map(|n| u64::from(n) + 1);
            most = most.max(factors.iter().fold(1, |size: u64, n| size.saturating_mul(*n)));
        }
    }
    if most == 0 { USUAL_CACHE } else { most }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn last_cache() -> u64 {
    USUAL_CACHE
}

/// Fills `len` bytes at `to` with `pattern`, whose first byte falls on the first one, as a part of a fill of `all`
/// bytes.
///
/// # Safety
/// The bytes are mapped writable, and no Rust reference covers them.
pub unsafe fn fill(to: *mut u8, len: usize, pattern: u32, all: u64) {
    let (mut at, mut left) = (to, len);
    if left >= STRING {
        // SAFETY: the caller's promise, for the whole words of it.
        let done = unsafe { fill_words(at, left, pattern, is_large(all)) };
        at = at.wrapping_add(done);
        left -= done;
    }
    let bytes = pattern.to_le_bytes();
    let mut chunk = [0; 64];
    for word in chunk.chunks_exact_mut(4) {
        word.copy_from_slice(&bytes);
    }
    while left != 0 {
        let n = left.min(chunk.len());
        // SAFETY: the caller's promise: n of the bytes that are left; the chunk is ours.
        unsafe { core::ptr::copy_nonoverlapping(chunk.as_ptr(), at, n) };
        at = at.wrapping_add(n);
        left -= n;
    }
}

/// Fills the whole 32-bit words of `len` bytes, and returns how many bytes they have.
///
/// # Safety
/// As for [`fill`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "sse2")]
unsafe fn fill_words(to: *mut u8, len: usize, pattern: u32, large: bool) -> usize {
    let words = len / 4;
    if large && to.addr().is_multiple_of(4) {
        // Whole words up to the first block that is aligned, fewer than four.
        let head = to.align_offset(16).min(len) / 4 * 4;
        for word in (0..head).step_by(4) {
            // SAFETY: a whole word inside of the caller's bytes, aligned to 4.
            unsafe { to.wrapping_add(word).cast::<u32>().write(pattern) };
        }
        // CAST: the pattern's bits.
        let block = arch::_mm_set1_epi32(pattern as i32);
        let (first, blocks) = (to.wrapping_add(head), (len - head) / 16);
        for index in 0..blocks {
            // SAFETY: aligned to 16, and block `index` lies inside of the caller's bytes.
            unsafe { arch::_mm_stream_si128(first.cast::<arch::__m128i>().wrapping_add(index), block) };
        }
        arch::_mm_sfence();
        return head + blocks * 16;
    }
    // SAFETY: stores `words` words from `to` on, all inside of the caller's bytes; the direction flag is clear, as the
    // ABI has it.
    unsafe {
        core::arch::asm!("rep stosd", inout("rcx") words => _, inout("rdi") to => _, in("eax") pattern,
            options(nostack, preserves_flags));
    }
    words * 4
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn fill_words(_to: *mut u8, _len: usize, _pattern: u32, _large: bool) -> usize {
    0
}

/// Copies `len` bytes, as a part of a copy of `all` bytes. Where the two overlap, the bytes are unspecified.
///
/// # Safety
/// `from` is mapped readable and `to` writable for `len` bytes, and no Rust reference covers them.
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize, all: u64) {
    if len < STRING || from.addr().abs_diff(to.addr()) < len {
        // SAFETY: the caller's promise; `copy` allows overlap.
        unsafe { core::ptr::copy(from, to, len) };
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { copy_apart(from, to, len, is_large(all)) };
}

/// Copies between bytes that do not overlap.
///
/// # Safety
/// As for [`copy`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "sse2")]
unsafe fn copy_apart(from: *const u8, to: *mut u8, len: usize, large: bool) {
    let mut done = 0;
    if large {
        // Up to the first block that is aligned.
        done = to.align_offset(16).min(len);
        // SAFETY: inside of both ranges, which do not overlap.
        unsafe { core::ptr::copy_nonoverlapping(from, to, done) };
        let (from, to, blocks) = (from.wrapping_add(done), to.wrapping_add(done), (len - done) / 16);
        for index in 0..blocks {
            // SAFETY: block `index` lies inside of the caller's bytes; the load needs no alignment.
            let block = unsafe { arch::_mm_loadu_si128(from.cast::<arch::__m128i>().wrapping_add(index)) };
            // SAFETY: aligned to 16, and inside of the caller's bytes.
            unsafe { arch::_mm_stream_si128(to.cast::<arch::__m128i>().wrapping_add(index), block) };
        }
        arch::_mm_sfence();
        done += blocks * 16;
    }
    let (from, to, left) = (from.wrapping_add(done), to.wrapping_add(done), len - done);
    // SAFETY: copies the `left` bytes behind `done`, inside of the caller's bytes; the direction flag is clear, as the
    // ABI has it.
    unsafe {
        core::arch::asm!("rep movsb", inout("rcx") left => _, inout("rsi") from => _, inout("rdi") to => _,
            options(nostack, preserves_flags));
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn copy_apart(from: *const u8, to: *mut u8, len: usize, _large: bool) {
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy(from, to, len) };
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::vec;

    /// Every way, at every alignment, and nothing beside the bytes.
    #[test]
    fn fills_and_copies_are_exact_whatever_their_length() {
        for all in [0, u64::MAX] {
            for len in [0, 1, 3, 4, 15, 16, 63, 511, 512, 513, 1000, 4096, 5003] {
                for at in [16, 20, 24, 32] {
                    let mut to = vec![0xEE_u8; 6000];
                    let start = to.as_ptr().align_offset(16) + at;
                    // SAFETY: inside of the vector.
                    unsafe { fill(to.as_mut_ptr().wrapping_add(start), len, 0x0403_0201, all) };
                    let from: std::vec::Vec<u8> = (0..6000).map(|n| n as u8).collect();
                    let mut copied = vec![0xEE_u8; 6000];
                    let base = copied.as_ptr().align_offset(16) + at;
                    // SAFETY: inside of both vectors.
                    unsafe { copy(from.as_ptr().wrapping_add(7), copied.as_mut_ptr().wrapping_add(base), len, all) };
                    for i in 0..6000 {
                        let fills = (start..start + len).contains(&i);
                        assert_eq!(to[i], if fills { ((i - start) % 4) as u8 + 1 } else { 0xEE }, "{all} {len} {at}");
                        let copies = (base..base + len).contains(&i);
                        assert_eq!(copied[i], if copies { from[i - base + 7] } else { 0xEE }, "{all} {len} {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_processor_has_a_last_cache() {
        assert!(last_cache() >= 1 << 18, "{}", last_cache());
    }
}
