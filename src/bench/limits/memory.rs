//! The best that a processor does with memory: the C library's memset and memcpy, and stores past the caches.
#![expect(unsafe_code, reason = "bytes that the GPU may write, too, are reached by address")]

use crate::client::Allocation;
use anyhow::{Result, ensure};
use std::arch::x86_64::{__m128i, _mm_load_si128, _mm_set1_epi8, _mm_sfence, _mm_stream_si128};
use std::hint::black_box;

/// Bytes of a store past the caches.
const STORE: usize = size_of::<__m128i>();

/// An allocation's bytes, as the process has them mapped: the same pages that the engine works on.
pub(in crate::bench) struct Bytes<'a> {
    at: *mut u8,
    length: usize,
    _of: &'a Allocation,
}

impl<'a> Bytes<'a> {
    /// The bytes of `of`.
    ///
    /// # Errors
    /// When the process has no address for them.
    pub fn new(of: &'a Allocation) -> Result<Self> {
        let info = of.info()?;
        let (at, length) = (info.cpu.cast::<u8>(), usize::try_from(info.bytes)?);
        ensure!(!at.is_null() && at.addr().is_multiple_of(STORE), "the process has no address for the allocation");
        Ok(Self { at, length: length / STORE * STORE, _of: of })
    }

    /// The C library's fill.
    pub fn memset(&mut self, value: u8) {
        // SAFETY: the allocation's own bytes, which no engine is told to touch meanwhile.
        unsafe { black_box(self.at).write_bytes(black_box(value), self.length) };
    }

    /// The C library's copy, of as much as both have.
    pub fn memcpy(&mut self, from: &Self) {
        let length = black_box(self.length.min(from.length));
        // SAFETY: two allocations, and what both have.
        unsafe { self.at.copy_from_nonoverlapping(black_box(from.at), length) };
    }

    /// A fill past the caches.
    pub fn stream_set(&mut self, value: i8) {
        // SAFETY: every x86-64 processor has SSE2.
        let pattern = unsafe { _mm_set1_epi8(black_box(value)) };
        for offset in (0..self.length).step_by(STORE) {
            // SAFETY: inside the allocation.
            let to = unsafe { self.at.add(offset) };
            // SAFETY: aligned, and inside the allocation; the fence is below.
            unsafe { _mm_stream_si128(to.cast(), pattern) };
        }
        // SAFETY: every x86-64 processor has SSE.
        unsafe { _mm_sfence() };
    }

    /// A copy past the caches, of as much as both have.
    pub fn stream_copy(&mut self, from: &Self) {
        for offset in (0..self.length.min(from.length)).step_by(STORE) {
            // SAFETY: inside the source.
            let source = unsafe { from.at.add(offset) };
            // SAFETY: inside the target.
            let target = unsafe { self.at.add(offset) };
            // SAFETY: aligned, and inside the source.
            let bytes = unsafe { _mm_load_si128(source.cast()) };
            // SAFETY: aligned, and inside the target; the fence is below.
            unsafe { _mm_stream_si128(target.cast(), bytes) };
        }
        // SAFETY: every x86-64 processor has SSE.
        unsafe { _mm_sfence() };
    }
}
