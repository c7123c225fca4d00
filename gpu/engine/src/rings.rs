//! The rings of a user-mode queue: the one in which its engine is, and those to which it goes on.
//!
//! A ring that replaces another one (`ResizeRingBufferOperation`) stands behind it: the engine executes what is
//! published in the old one, waits included, and begins the new one at position 0. In between, while the queue has no
//! doorbell, its ring is set aside: nothing of it is read, written or executed, and nothing of it is forgotten.

use crate::exec::Binding;

/// Rings that a queue has at a time: one that is executed, and others that replace it one after the other.
pub const RINGS: usize = 4;

/// Rings of a queue, in the order in which they are executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rings {
    list: [Option<Binding>; RINGS],
    /// The number of the first one. Another ring in its place has another number.
    number: u64,
    /// The queue has no doorbell.
    is_aside: bool,
}

/// The ring in which the engine is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct First {
    pub binding: Option<Binding>,
    pub number: u64,
    pub is_aside: bool,
}

impl Rings {
    /// None.
    pub const fn new() -> Self {
        Self { list: [None; RINGS], number: 0, is_aside: false }
    }

    /// The first one.
    pub fn first(&self) -> First {
        let [binding, ..] = self.list;
        First { binding, number: self.number, is_aside: self.is_aside }
    }

    /// Replaces all of them.
    pub fn replace(&mut self, binding: Option<Binding>) {
        *self = Self { list: [None; RINGS], number: self.number + 1, is_aside: false };
        let [first, ..] = &mut self.list;
        *first = binding;
    }

    /// The queue has no doorbell any more.
    pub fn set_aside(&mut self) {
        self.is_aside = true;
    }

    /// Adds one behind the others, to which the engine goes back; without any, it is the first. Returns `false`, and
    /// does nothing, where there is no room.
    pub fn add(&mut self, binding: Binding) -> bool {
        let is_first = self.first().binding.is_none();
        let Some(place) = self.list.iter_mut().find(|place| place.is_none()) else { return false };
        *place = Some(binding);
        self.number += u64::from(is_first);
        self.is_aside = false;
        true
    }

    /// Takes the last one out again, where another one stands before it: the engine has not gone to it. Returns whether
    /// it was there.
    pub fn take_back(&mut self) -> bool {
        let [_, rest @ ..] = &mut self.list;
        match rest.iter_mut().rev().find(|place| place.is_some()) {
            Some(last) => {
                *last = None;
                true
            }
            None => false,
        }
    }

    /// Returns whether a ring stands behind the first.
    pub fn has_next(&self) -> bool {
        let [_, rest @ ..] = &self.list;
        !self.is_aside && rest.iter().any(Option::is_some)
    }

    /// Takes the first one out, where its number is `number` and another one stands behind it.
    pub fn leave(&mut self, number: u64) -> bool {
        if self.number != number || !self.has_next() {
            return false;
        }
        self.list.rotate_left(1);
        let [.., last] = &mut self.list;
        *last = None;
        self.number += 1;
        true
    }
}
