//! Queues on their way to an engine: a list that any thread adds to and the engine empties, without a lock.
//!
//! ORDERING[READY-1]: an agent that makes a queue ready publishes its work, marks the queue, and puts it here
//! (Release); the engine takes the list (Acquire), clears the mark, and looks. The mark says that the queue stands here
//! or in the engine's own list, so it stands in one place only, and its link is free for that.
#![expect(unsafe_code, reason = "a list through its members, so that adding to it allocates nothing")]

use crate::shared::Shared;
use crate::word::{Exchange, Ordering, Word};
use core::marker::PhantomData;
use core::ptr;

/// What can stand in [`Arrivals`].
pub trait Linked {
    /// The link's word.
    type Word: Exchange;

    /// The link: the address of the member behind it, or 0. While the member is in no list its value means nothing.
    fn link(&self) -> &Self::Word;
}

/// Members on their way, the newest first.
pub struct Arrivals<T: Linked> {
    /// The address of the newest, or 0.
    newest: T::Word,
    _members: PhantomData<Shared<T>>,
}

/// The member at `address`.
///
/// # Safety
/// `address` was put in a list by [`Arrivals::add`] and was not taken back.
unsafe fn member<'m, T>(address: u64) -> &'m T {
    // CAST: usize is 64 bits wide.
    let raw = ptr::with_exposed_provenance::<T>(address as usize);
    // SAFETY: the list holds a reference that keeps the member alive (the caller's promise).
    unsafe { &*raw }
}

impl<T: Linked> Arrivals<T> {
    /// Empty; `word` makes the word.
    pub fn new(word: impl Fn(u64) -> T::Word) -> Self {
        Self { newest: word(0), _members: PhantomData }
    }

    /// Adds a member that stands in no list. Any IRQL; allocates nothing and waits for nothing but the exchanges of
    /// other threads.
    pub fn add(&self, item: Shared<T>) {
        // ORDERING[READY-1]: Release: the link, and what the agent published, are seen by the engine.
        self.add_by(item, Ordering::AcqRel);
    }

    /// As [`Self::add`], by an exchange of that order: for the test that weakens it.
    #[doc(hidden)]
    pub fn add_by(&self, item: Shared<T>, order: Ordering) {
        // CAST: usize is 64 bits wide.
        let address = Shared::into_raw(item).expose_provenance() as u64;
        // SAFETY: just given away, and taken back behind the exchange below at the earliest.
        let link = unsafe { member::<T>(address) }.link();
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            link.store(newest, Ordering::Relaxed);
            match self.newest.compare_exchange(newest, address, order) {
                Ok(_) => return,
                Err(now) => newest = now,
            }
        }
    }

    /// Returns whether there is none. A hint.
    pub fn is_empty(&self) -> bool {
        self.newest.load(Ordering::Relaxed) == 0
    }

    /// Takes all that have arrived. One thread at a time.
    pub fn take(&self) -> Taken<T> {
        // ORDERING[READY-1]: Acquire pairs with `add`.
        Taken { newest: self.newest.swap(0, Ordering::AcqRel), next: 0, _members: PhantomData }
    }
}

impl<T: Linked> Drop for Arrivals<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// Members that were taken. They come out in the order in which they arrived, once all of them are turned around.
pub struct Taken<T: Linked> {
    /// The address of the newest that is not turned around, or 0.
    newest: u64,
    /// The address of the oldest that is, or 0.
    next: u64,
    _members: PhantomData<Shared<T>>,
}

impl<T: Linked> Taken<T> {
    /// None.
    pub const fn none() -> Self {
        Self { newest: 0, next: 0, _members: PhantomData }
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.newest == 0 && self.next == 0
    }

    /// Turns around up to `limit` members. Returns how many it turned.
    pub fn turn_around(&mut self, limit: usize) -> usize {
        let mut turned = 0;
        while self.newest != 0 && turned < limit {
            // SAFETY: an address of the list that the exchange took over whole.
            let link = unsafe { member::<T>(self.newest) }.link();
            let behind = link.load(Ordering::Relaxed);
            link.store(self.next, Ordering::Relaxed);
            (self.next, self.newest) = (self.newest, behind);
            turned += 1;
        }
        turned
    }
}

impl<T: Linked> Iterator for Taken<T> {
    type Item = Shared<T>;

    fn next(&mut self) -> Option<Shared<T>> {
        self.turn_around(usize::MAX);
        if self.next == 0 {
            return None;
        }
        // CAST: usize is 64 bits wide.
        let raw = ptr::with_exposed_provenance::<T>(self.next as usize);
        // SAFETY: an address of the list that is this value's; the link is read before the reference is given out.
        self.next = unsafe { member::<T>(self.next) }.link().load(Ordering::Relaxed);
        // SAFETY: the address came from `into_raw` in `add`, and each is taken back once.
        Some(unsafe { Shared::from_raw(raw) })
    }
}

impl<T: Linked> Drop for Taken<T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}
