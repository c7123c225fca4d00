//! Arguments of thunks: a record and the zeros behind it.
#![forbid(unsafe_code)]

use core::ops::{Deref, DerefMut};
use core::ptr;

/// A record followed by `TAIL` bytes of zeros, aligned to 8.
///
/// A later system may know a longer form of the record under the same export name. It then finds zeros where it expects
/// members, and what it writes there lands here and is ignored.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct Padded<T, const TAIL: usize> {
    record: T,
    tail: [u8; TAIL],
}

impl<T, const TAIL: usize> Padded<T, TAIL> {
    /// The record with zeros behind it.
    pub(crate) fn new(record: T) -> Self {
        const { assert!(align_of::<T>() <= 8) };
        Self { record, tail: [0; TAIL] }
    }

    /// Puts something behind the record, as a buffer of just the record's size would have there.
    pub(crate) fn spoil(&mut self) {
        self.tail.fill(0xa5);
    }

    /// The record's address. All of `self` may be read and written through it, not only the record.
    pub fn as_mut_ptr(&mut self) -> *mut T {
        ptr::from_mut(self).cast()
    }

    /// What lies behind the record: zeros before the call.
    pub fn tail(&self) -> &[u8] {
        &self.tail
    }

    /// What lies behind the record, for a system that writes there.
    pub fn tail_mut(&mut self) -> &mut [u8] {
        &mut self.tail
    }

    /// Bytes of record and zeros.
    pub const fn bytes(&self) -> usize {
        size_of::<T>() + TAIL
    }
}

impl<T, const TAIL: usize> Deref for Padded<T, TAIL> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.record
    }
}

impl<T, const TAIL: usize> DerefMut for Padded<T, TAIL> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.record
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wddm_abi::D3DKMT_CONNECT_DOORBELL;

    #[test]
    fn the_record_comes_first_and_the_tail_directly_behind_it() {
        let mut argument =
            Padded::<_, 80>::new(D3DKMT_CONNECT_DOORBELL { hDoorbell: 7, ..D3DKMT_CONNECT_DOORBELL::zeroed() });
        assert_eq!(argument.bytes(), crate::thunks::CONNECT_DOORBELL_BYTES);
        assert!(size_of_val(&argument) >= argument.bytes());
        let start = argument.as_mut_ptr().addr();
        assert_eq!(argument.tail().as_ptr().addr() - start, size_of::<D3DKMT_CONNECT_DOORBELL>());
        assert!(argument.tail().iter().all(|b| *b == 0));
        assert!(start.is_multiple_of(8));
    }
}
