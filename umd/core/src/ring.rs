//! Stage 2 of 8: the producer's side of a ring.
//!
//! The write pointer is a count of bytes that only grows. Space from the published write pointer on belongs to this
//! side, as far as the engine's read pointer allows; no engine sees what is written there until the write pointer is
//! published ([`crate::publish`]).
//!
//! | word | written by | read by |
//! |---|---|---|
//! | bytes from WP to RP + size | user mode | nobody |
//! | WP | user mode | engine |
//! | RP | engine | user mode, Acquire: the engine has copied out what lies before it (RING-1) |
//!
//! RP is the only thing that says that space is free. The progress fence does not: the engine stores its value before
//! it is done with the packet that signals it.
#![forbid(unsafe_code)]

use crate::allocation::{Allocation, Create, Kind};
use crate::device::Device;
use crate::error::{RingFault, UmdError};
use crate::memory::{MappedWord, Pages};
use crate::mutation::{Chosen, Mutation};
use crate::thunks::{Thunk, Thunks};
use crate::word::{Ordering, Word};
use alloc::sync::Arc;
use gpu_wire::ring::{
    ALIGN, CONTROL_SIZE, FAULT_ADDRESS, FAULT_KIND, FAULT_POSITION, Geometry, READ_POINTER, WRITE_POINTER,
};

/// How far ahead of the write pointer lines are asked for, in bytes.
const AHEAD: u64 = 512;
/// Bytes of a cache line.
const LINE: u64 = 64;

/// Pointers of the producer: no memory, only arithmetic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Producer {
    geometry: Geometry,
    /// Where the next packet goes: the write pointer, once it is published.
    position: u64,
    /// The newest read pointer that was seen and believed.
    read: u64,
}

impl Producer {
    /// At the start of an empty ring.
    pub const fn new(geometry: Geometry) -> Self {
        Self { geometry, position: 0, read: 0 }
    }

    /// The ring's shape.
    pub const fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Where the next packet goes.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Bytes that may be written.
    pub const fn free(&self) -> u64 {
        self.geometry.free(self.position, self.read)
    }

    /// Takes note of a read pointer. One that runs backwards or ahead of the write pointer is not believed.
    pub fn observe(&mut self, read: u64) {
        if read >= self.read && read <= self.position {
            self.read = read;
        }
    }

    /// Takes `len` bytes, a multiple of 8; where they start. `None` when they are not free.
    pub fn reserve(&mut self, len: u64, mutation: &Chosen) -> Option<u64> {
        let fits = len <= self.free() || mutation.is(Mutation::OverrunsRing);
        if !fits || !len.is_multiple_of(ALIGN) {
            return None;
        }
        let at = self.position;
        self.position = at.checked_add(len)?;
        Some(at)
    }
}

/// A ring and its control page, resident, mapped and locked.
pub struct Ring<T: Thunks> {
    ring: Allocation<T>,
    control: Allocation<T>,
    pages: Pages,
    control_pages: Pages,
    write_pointer: MappedWord,
    read_pointer: MappedWord,
    /// The producer's pointers.
    pub producer: Producer,
}

impl<T: Thunks> Ring<T> {
    /// Creates a ring of `size` bytes, a power of two. Not resident when `evicted`.
    ///
    /// # Errors
    /// [`UmdError::InvalidArgument`] for a size that is none; those of [`Allocation::create`].
    pub fn create(device: &Arc<Device<T>>, size: u64, evicted: bool) -> Result<Self, UmdError> {
        let geometry = Geometry::new(size).map_err(|_| UmdError::InvalidArgument("ring size"))?;
        let create = |size| {
            let create = Create { size, kind: Kind::System, shared: false, read_only: false };
            if evicted { Allocation::create_evicted(device, create) } else { Allocation::create(device, create) }
        };
        let ring = create(size)?;
        let control = create(CONTROL_SIZE)?;
        let bad = UmdError::BadReply { thunk: Thunk::Lock2 };
        let (Some(pages), Some(control_pages)) = (ring.pages(), control.pages()) else { return Err(bad) };
        // CAST: offsets in a page.
        let word = |offset: usize| control_pages.word(offset as u64).ok_or(bad);
        let (write_pointer, read_pointer) = (word(WRITE_POINTER)?, word(READ_POINTER)?);
        // New memory is zero; nobody else has the pages yet. Said again, since everything rests on it.
        write_pointer.store(0, Ordering::Relaxed);
        read_pointer.store(0, Ordering::Relaxed);
        let producer = Producer::new(geometry);
        Ok(Self { ring, control, pages, control_pages, write_pointer, read_pointer, producer })
    }

    /// Makes both allocations resident, for a ring that was created evicted.
    ///
    /// # Errors
    /// [`UmdError::Thunk`].
    pub(crate) fn make_resident(&self) -> Result<(), UmdError> {
        self.ring.make_resident()?;
        self.control.make_resident()
    }

    /// The ring's allocation.
    pub fn allocation(&self) -> &Allocation<T> {
        &self.ring
    }

    /// The control page's allocation.
    pub fn control(&self) -> &Allocation<T> {
        &self.control
    }

    /// The published write pointer's word.
    pub(crate) fn write_pointer(&self) -> &MappedWord {
        &self.write_pointer
    }

    /// Looks at the read pointer; bytes that are free now.
    pub fn look(&mut self) -> u64 {
        // ORDERING[RING-1]: Acquire pairs with the engine's Release: it has copied out what lies before, so the bytes
        // that are written next cannot change what it executes.
        self.producer.observe(self.read_pointer.load(Ordering::Acquire));
        self.producer.free()
    }

    /// Writes packets at a position that [`Producer::reserve`] gave. `bytes` is a multiple of 8 long.
    pub fn write(&self, position: u64, bytes: &[u8]) {
        // CAST: usize is 64 bits wide.
        let spans = self.producer.geometry.spans(position, bytes.len() as u64);
        let (first, second) = bytes.split_at(spans.first_len as usize);
        // Spans lie inside the ring, and the mapping is as long as the ring.
        let inside = self.pages.write_packets(spans.first, first) && self.pages.write_packets(0, second);
        assert!(inside, "ring mapping shorter than the ring");
    }

    /// `len` bytes were written at `position`: asks for as many of those that are written soon, for writing. The
    /// engine's processor has read those lines a round of the ring ago. Without this, each store to one waits until
    /// they are taken from it, and so does each submission, by its full fence.
    pub fn claim_ahead(&self, position: u64, len: u64) {
        let len = len.min(AHEAD);
        if self.producer.free() < AHEAD + len {
            return;
        }
        let from = position.wrapping_add(AHEAD);
        for at in (from / LINE..from.wrapping_add(len).div_ceil(LINE)).map(|line| line.wrapping_mul(LINE)) {
            self.pages.claim(self.producer.geometry.spans(at, ALIGN).first);
        }
    }

    /// What the engine reported before it stopped the queue.
    pub fn fault(&self) -> Option<RingFault> {
        // CAST: offsets in a page.
        let word = |offset: usize| self.control_pages.word(offset as u64).map(|w| w.load(Ordering::Acquire));
        let kind = word(FAULT_KIND).filter(|kind| *kind != 0)?;
        // CAST: kinds are small; what user mode forged is cut.
        Some(RingFault { kind: kind as u32, position: word(FAULT_POSITION)?, address: word(FAULT_ADDRESS)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::vec;
    use std::vec::Vec;

    const SIZE: u64 = 4096;

    fn producer() -> Producer {
        Producer::new(Geometry::new(SIZE).unwrap())
    }

    #[test]
    fn space_comes_back_only_through_the_read_pointer() {
        let none = Chosen::none();
        let mut p = producer();
        assert_eq!(p.reserve(SIZE, &none), Some(0));
        assert_eq!(p.reserve(8, &none), None);
        p.observe(16);
        assert_eq!((p.free(), p.reserve(24, &none), p.reserve(16, &none)), (16, None, Some(SIZE)));
    }

    #[test]
    fn read_pointers_that_cannot_be_are_not_believed() {
        let none = Chosen::none();
        let mut p = producer();
        p.reserve(64, &none).unwrap();
        p.observe(72);
        p.observe(u64::MAX);
        assert_eq!(p.free(), SIZE - 64);
        p.observe(64);
        p.observe(8);
        assert_eq!(p.free(), SIZE);
    }

    #[test]
    fn an_overrunning_producer_is_the_mutant() {
        let mutation = Chosen::none();
        mutation.set(Mutation::OverrunsRing as u32);
        let mut p = producer();
        p.reserve(SIZE, &mutation).unwrap();
        assert_eq!(p.reserve(8, &mutation), Some(SIZE));
        assert_eq!(p.free(), 0);
    }

    /// What a ring of bytes and a consumer see of a producer.
    struct Model {
        bytes: Vec<u8>,
        expected: VecDeque<u8>,
        consumed: u64,
        next: u8,
    }

    proptest! {
        /// Every byte comes out once, in order, whatever the lengths and whenever the consumer runs.
        #[test]
        fn bytes_come_out_as_they_went_in(steps in proptest::collection::vec((0u64..700, 0u64..5000), 1..200)) {
            let none = Chosen::none();
            let mut p = producer();
            let mut model = Model { bytes: vec![0; SIZE as usize], expected: VecDeque::new(), consumed: 0, next: 0 };
            for (words, consume) in steps {
                let len = words * 8;
                if let Some(at) = p.reserve(len, &none) {
                    let spans = p.geometry().spans(at, len);
                    for i in 0..len {
                        model.next = model.next.wrapping_add(1);
                        let offset = if i < spans.first_len { spans.first + i } else { i - spans.first_len };
                        model.bytes[offset as usize] = model.next;
                        model.expected.push_back(model.next);
                    }
                } else {
                    prop_assert!(len > p.free());
                }
                let available = p.geometry().pending(p.position(), model.consumed).unwrap();
                for _ in 0..consume.min(available) / 8 * 8 {
                    let got = model.bytes[(model.consumed % SIZE) as usize];
                    prop_assert_eq!(Some(got), model.expected.pop_front());
                    model.consumed += 1;
                }
                p.observe(model.consumed);
            }
        }
    }
}
