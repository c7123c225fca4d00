//! The value of a monitored fence: 64 bits, or 32 of which the OS makes 64.
//!
//! Where the driver sets `No64BitAtomics`, what lies at the fence's addresses has 32 bits: the low half of the value.
//! The OS knows the value that was signaled last, and takes what it reads for the value nearest to that one. So no
//! signal and no wait that is not over may be further than `UINT_MAX / 2` away from it.
//!
//! Source: article context-monitoring, monitored fence creation; DDI pages DXGK_VIDSCHCAPS, `No64BitAtomics`, and
//! D3DDDI_SYNCHRONIZATIONOBJECTINFO2 ("either a 32 bit or a 64 bit underlying value").
//!
//! Chosen: the value that was signaled last is the one that the OS saw last, by a signal of its own or by looking.
//! Values are the nearest one in either direction, since a fence may go backwards. The four bytes behind a 32-bit value
//! belong to no fence; they hold [`BEHIND`], so that a read of 64 bits gives nonsense.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::memory::pages::Page;
use crate::port::sync::{Lock, Rank};

/// How far values may be apart: `UINT_MAX / 2`.
const REACH: u64 = (u32::MAX / 2) as u64;
/// What lies behind a 32-bit value.
const BEHIND: u32 = 0x5A5A_5A5A;

/// A value at the start of a page.
#[derive(Debug)]
pub(super) struct Value {
    page: Arc<Page>,
    /// The value that was signaled last, for a value of 32 bits; `None` for 64.
    last: Option<Lock<u64>>,
}

impl Value {
    /// Makes a value of 64 bits, or of 32 if `narrow`.
    pub(super) fn new(page: Arc<Page>, initial: u64, narrow: bool) -> Self {
        let value = Self { page, last: narrow.then(|| Lock::new(Rank::Leaf, initial)) };
        if narrow {
            crate::port::raw::store(value.address(), u64::from(BEHIND) << 32);
        }
        value.store(initial);
        value
    }

    /// The 64-bit value that a page has already.
    pub(super) fn existing(page: Arc<Page>) -> Self {
        Self { page, last: None }
    }

    /// The page that holds the value, at its start.
    pub(super) fn page(&self) -> &Arc<Page> {
        &self.page
    }

    /// Kernel address of the value.
    pub(super) fn address(&self) -> usize {
        self.page.address()
    }

    /// Returns whether the value has 32 bits.
    pub(super) fn is_narrow(&self) -> bool {
        self.last.is_some()
    }

    /// Returns the value now.
    pub(super) fn load(&self) -> u64 {
        let Some(last) = &self.last else { return crate::port::raw::load(self.address()) };
        let mut last = last.lock();
        // CAST: the low half.
        *last = nearest(*last, crate::port::raw::load(self.address()) as u32);
        *last
    }

    /// Stores a value.
    pub(super) fn store(&self, value: u64) {
        let Some(last) = &self.last else { return crate::port::raw::store(self.address(), value) };
        let mut last = last.lock();
        // The half behind it is not touched; the GPU may store to the low half meanwhile.
        let low = |word: u64| Some((word & !u64::from(u32::MAX)) | (value & u64::from(u32::MAX)));
        let _ = crate::port::raw::word(self.address()).fetch_update(Ordering::SeqCst, Ordering::SeqCst, low);
        *last = value;
    }

    /// Returns whether a signal of `value` is allowed.
    pub(super) fn takes_signal(&self, value: u64) -> bool {
        !self.is_narrow() || self.load().abs_diff(value) <= REACH
    }

    /// Returns whether a wait for `value` is allowed. A wait whose value is reached is always allowed.
    pub(super) fn takes_wait(&self, value: u64) -> bool {
        !self.is_narrow() || value.saturating_sub(self.load()) <= REACH
    }
}

/// The value with these low 32 bits that is nearest to `last`.
fn nearest(last: u64, low: u32) -> u64 {
    // CAST: the low half; the difference as a signed number is the way from one to the other.
    let way = low.wrapping_sub(last as u32).cast_signed();
    last.wrapping_add_signed(way.into())
}

#[cfg(test)]
mod tests {
    use super::{REACH, nearest};

    #[test]
    fn the_nearest_value_wraps_in_both_directions() {
        assert_eq!(nearest(5, 9), 9);
        assert_eq!(nearest(9, 5), 5);
        assert_eq!(nearest(0xFFFF_FFF0, 3), 0x1_0000_0003);
        assert_eq!(nearest(0x1_0000_0003, 0xFFFF_FFF0), 0xFFFF_FFF0);
        assert_eq!(nearest(u64::MAX, u32::MAX), u64::MAX);
        for last in [0_u64, 7, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, 0x12_3456_789A] {
            assert_eq!(nearest(last, (last + REACH) as u32), last + REACH, "{last:#x}");
            let back = last.saturating_sub(REACH);
            assert_eq!(nearest(last, back as u32), back, "{last:#x}");
        }
    }
}
