//! The value of a fence where the CPU reads it: 64 bits, or the low 32 of a monitored fence on an adapter whose engines
//! write no more in one piece.
//!
//! Of a 32-bit value this process makes the 64-bit one that is nearest to a value that it knows: the one that it waits
//! for, the one that it submitted last, the one that it saw last. The OS allows no wait or signal further than
//! `UINT_MAX / 2` from the last signal, so the nearest one is right.
//!
//! Source: *Context monitoring*, "Monitored fence creation"; `D3DDDI_SYNCHRONIZATIONOBJECTINFO2`: with No64BitAtomics
//! the address points to a 32-bit value.
//!
//! Assumes:
//! - What lies in the four bytes behind a 32-bit value means nothing. Source: none; they are not part of the
//!   value.
#![forbid(unsafe_code)]

use crate::memory::MappedWord;
use crate::word::{Ordering, Word};
use core::ffi::c_void;

/// A fence's value, read-only here.
#[derive(Clone, Copy, Debug)]
pub struct FenceValue {
    word: MappedWord,
    narrow: bool,
}

impl FenceValue {
    /// The value at `at`, as a thunk returned it; `None` when that is null or misaligned. `narrow`: of 32 bits.
    pub(crate) fn new(at: *mut c_void, narrow: bool) -> Option<Self> {
        MappedWord::new(at).map(|word| Self { word, narrow })
    }

    /// Its address.
    pub fn address(self) -> u64 {
        self.word.address()
    }

    /// The value now, given one that is near. What the GPU wrote before it is seen.
    pub fn near(self, known: u64) -> u64 {
        let word = self.word.load(Ordering::Acquire);
        if self.narrow { nearest(known, word) } else { word }
    }

    /// Whether it is at least `value`, which somebody may wait for.
    pub fn has_reached(self, value: u64) -> bool {
        self.near(value) >= value
    }

    /// Whether it may be the largest value there is, which a lost device leaves: a reason to look at the device.
    pub fn may_be_lost(self) -> bool {
        let word = self.word.load(Ordering::Acquire);
        // CAST: the low half.
        if self.narrow { word as u32 == u32::MAX } else { word == u64::MAX }
    }
}

/// The value nearest to `known` that has the low half of `word`.
fn nearest(known: u64, word: u64) -> u64 {
    // CAST: the low halves; their difference as a signed number is the way from one to the other.
    let way = (word as u32).wrapping_sub(known as u32).cast_signed();
    known.wrapping_add_signed(way.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU64;

    fn value(word: &AtomicU64, narrow: bool) -> FenceValue {
        FenceValue::new(word.as_ptr().cast(), narrow).unwrap()
    }

    #[test]
    fn all_64_bits_of_a_wide_value_count() {
        let word = AtomicU64::new(0x5_0000_0003);
        let value = value(&word, false);
        assert_eq!((value.near(0), value.near(9)), (0x5_0000_0003, 0x5_0000_0003));
        assert!(value.has_reached(0x5_0000_0003) && !value.has_reached(0x5_0000_0004) && !value.may_be_lost());
    }

    #[test]
    fn a_narrow_value_is_the_one_nearest_to_what_is_known() {
        let word = AtomicU64::new(0xABAB_ABAB_0000_0003);
        let value = value(&word, true);
        for (known, want) in [(0, 3), (0xFFFF_FFF0, 0x1_0000_0003), (0x1_8000_0002, 0x1_0000_0003)] {
            assert_eq!(value.near(known), want, "{known:#x}");
        }
        assert!(
            value.has_reached(0x1_0000_0003) && !value.has_reached(0x1_0000_0004) && !value.has_reached(0x1_7FFF_FFFF)
        );
        assert!(!value.may_be_lost());
        word.store(0xABAB_ABAB_FFFF_FFFF, core::sync::atomic::Ordering::Relaxed);
        assert!(value.may_be_lost());
    }
}
