//! Stage 2 of 8: ring geometry and the control page.
//!
//! A ring is a power of two of bytes in an allocation of the process. Packets are multiples of 8 bytes and may wrap:
//! byte `i` of the stream lies at offset `i & (size - 1)`. Both pointers are monotonic 64-bit *byte counts*; they never
//! wrap.
//!
//! | word of the control page | offset | written by | read by |
//! |---|---|---|---|
//! | write pointer (WP) | 0 | user mode, Release, after the packets | engine, Acquire |
//! | read pointer (RP) | 64 | engine, Release, after a packet retired | user mode, Acquire, for free space |
//! | fault report | 128 | engine, once, behind RP's last store | user mode, for a message; never trusted by anyone |
//!
//! The engine keeps its own copy of RP and never reads it back, so a store of user mode to it harms only the process's
//! own idea of free space. Ordering contract RING-1: ARCHITECTURE.md.

/// Offset of the published write pointer in the control page. The article assumes 0.
pub const WRITE_POINTER: usize = 0;
/// Offset of the read pointer in the control page.
pub const READ_POINTER: usize = 64;
/// Offset of the fault report: a [`crate::packet::FaultKind`] number, 0 while there is none.
pub const FAULT_KIND: usize = 128;
/// Offset of the stream position of the faulting packet.
pub const FAULT_POSITION: usize = 136;
/// Offset of the faulting GPU address, 0 where the fault is not of an address.
pub const FAULT_ADDRESS: usize = 144;
/// Bytes of a control page.
pub const CONTROL_SIZE: u64 = 4096;

/// Smallest ring, in bytes.
pub const MIN_SIZE: u64 = 4096;
/// Largest ring, in bytes.
pub const MAX_SIZE: u64 = 16 << 20;
/// Every packet and both pointers are multiples of this many bytes.
pub const ALIGN: u64 = 8;

/// Why a ring cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GeometryError {
    /// Not a power of two.
    NotPowerOfTwo,
    /// Below [`MIN_SIZE`] or above [`MAX_SIZE`].
    SizeOutOfRange,
}

/// The size of a ring, proved to be a power of two within bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    size: u64,
}

/// Why a published write pointer cannot be true. Each ends in a fault of that queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PointerError {
    /// Not a multiple of [`ALIGN`].
    Misaligned,
    /// Below what was already consumed.
    Backwards,
    /// More than the ring's size ahead of what was consumed.
    TooFar,
}

/// One or two spans of the ring that hold a run of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spans {
    /// Offset of the first span in the ring, in bytes.
    pub first: u64,
    /// Bytes in the first span.
    pub first_len: u64,
    /// Bytes in the second span, which starts at offset 0.
    pub second_len: u64,
}

impl Geometry {
    /// A geometry of `size` bytes.
    ///
    /// # Errors
    /// [`GeometryError`] when the size is no power of two or out of range.
    pub const fn new(size: u64) -> Result<Self, GeometryError> {
        if !size.is_power_of_two() {
            return Err(GeometryError::NotPowerOfTwo);
        }
        if size < MIN_SIZE || size > MAX_SIZE {
            return Err(GeometryError::SizeOutOfRange);
        }
        Ok(Self { size })
    }

    /// Bytes in the ring.
    pub const fn size(self) -> u64 {
        self.size
    }

    /// Bytes that user mode may still write: none when the pointers contradict each other.
    pub const fn free(self, write_pointer: u64, read_pointer: u64) -> u64 {
        match write_pointer.checked_sub(read_pointer) {
            Some(used) if used <= self.size => self.size - used,
            _ => 0,
        }
    }

    /// What lies unconsumed when user mode has published `write_pointer` and the engine has consumed `consumed`, in
    /// bytes.
    ///
    /// # Errors
    /// [`PointerError`] when no honest producer could have published that value.
    pub const fn pending(self, write_pointer: u64, consumed: u64) -> Result<u64, PointerError> {
        if !write_pointer.is_multiple_of(ALIGN) {
            return Err(PointerError::Misaligned);
        }
        match write_pointer.checked_sub(consumed) {
            None => Err(PointerError::Backwards),
            Some(n) if n > self.size => Err(PointerError::TooFar),
            Some(n) => Ok(n),
        }
    }

    /// Where `len` bytes of the stream from `position` lie. `len` must not exceed the ring's size; longer is clipped.
    pub const fn spans(self, position: u64, len: u64) -> Spans {
        let len = if len > self.size { self.size } else { len };
        let first = position & (self.size - 1);
        let room = self.size - first;
        let first_len = if len < room { len } else { room };
        Spans { first, first_len, second_len: len - first_len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING: Geometry = match Geometry::new(4096) {
        Ok(g) => g,
        Err(_) => panic!("4096 is a ring"),
    };

    #[test]
    fn sizes_out_of_range_or_not_power_of_two_are_refused() {
        assert_eq!(Geometry::new(0), Err(GeometryError::NotPowerOfTwo));
        assert_eq!(Geometry::new(5000), Err(GeometryError::NotPowerOfTwo));
        assert_eq!(Geometry::new(2048), Err(GeometryError::SizeOutOfRange));
        assert_eq!(Geometry::new(MAX_SIZE * 2), Err(GeometryError::SizeOutOfRange));
        assert_eq!([MIN_SIZE, MAX_SIZE].map(|size| Geometry::new(size).unwrap().size()), [MIN_SIZE, MAX_SIZE]);
        assert_eq!(Geometry::new(u64::MAX), Err(GeometryError::NotPowerOfTwo));
    }

    #[test]
    fn hostile_write_pointers_are_named() {
        assert_eq!(RING.pending(4, 0), Err(PointerError::Misaligned));
        assert_eq!(RING.pending(8, 16), Err(PointerError::Backwards));
        assert_eq!(RING.pending(4096 + 8, 0), Err(PointerError::TooFar));
        assert_eq!(RING.pending(4096, 0), Ok(4096));
        assert_eq!(RING.pending(u64::MAX - 7, u64::MAX - 15), Ok(8));
    }

    #[test]
    fn a_run_across_the_end_has_two_spans() {
        assert_eq!(RING.spans(4096 * 7 + 4088, 24), Spans { first: 4088, first_len: 8, second_len: 16 });
        assert_eq!(RING.spans(0, 4096), Spans { first: 0, first_len: 4096, second_len: 0 });
        assert_eq!(RING.spans(8, 4096), Spans { first: 8, first_len: 4088, second_len: 8 });
    }

    proptest::proptest! {
        #[test]
        fn spans_cover_the_run_and_stay_inside(position: u64, len in 0u64..5000) {
            let s = RING.spans(position, len);
            proptest::prop_assert!(s.first + s.first_len <= RING.size());
            proptest::prop_assert!(s.second_len <= s.first);
            proptest::prop_assert_eq!(s.first_len + s.second_len, len.min(RING.size()));
        }
    }
}
