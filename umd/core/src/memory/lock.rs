//! Locks without a C runtime: a count with an auto-reset event, and a cell for a few instructions.
//!
//! The image imports no lock of the system, so that the model needs to offer none; events it needs anyway.

use crate::error::UmdError;
use crate::thunks::{EventWait, NtHandle, Os, Thunks};
use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// How often a taken lock is looked at before its event is waited for.
const SPINS: u32 = 200;

/// A value that one thread at a time uses. Not reentrant.
///
/// `count` is the number of threads that hold or wait for the lock; a thread that lets go while others wait sets the
/// event, which hands the lock to one of them.
pub(crate) struct Lock<V> {
    count: AtomicU32,
    event: NtHandle,
    value: UnsafeCell<V>,
}

// SAFETY: the value moves between threads and is used by one at a time: V: Send suffices.
unsafe impl<V: Send> Send for Lock<V> {}
// SAFETY: as above; &Lock gives &mut V to one thread at a time.
unsafe impl<V: Send> Sync for Lock<V> {}

impl<V> Lock<V> {
    /// An unlocked value.
    ///
    /// # Errors
    /// [`UmdError::NoMemory`]: there is no event to be had.
    pub fn new<T: Thunks>(os: &Os<T>, value: V) -> Result<Self, UmdError> {
        Ok(Self { count: AtomicU32::new(0), event: os.create_event()?, value: UnsafeCell::new(value) })
    }

    /// Uses the value while nobody else does.
    pub fn with<T: Thunks, R>(&self, os: &Os<T>, use_it: impl FnOnce(&mut V) -> R) -> R {
        self.acquire(os);
        // SAFETY: this thread holds the lock until `release`, so nobody else has a reference to the value.
        let value = unsafe { &mut *self.value.get() };
        let result = use_it(value);
        self.release(os);
        result
    }

    /// Closes the event. The lock must not be used afterwards; called when its owner is dropped.
    pub fn close<T: Thunks>(&self, os: &Os<T>) {
        os.thunks().close_handle(self.event);
    }

    fn acquire<T: Thunks>(&self, os: &Os<T>) {
        for _ in 0..SPINS {
            // ORDERING: Acquire pairs with the Release of `release`: what the last holder wrote is seen.
            if self.count.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return;
            }
            spin_loop();
        }
        if self.count.fetch_add(1, Ordering::Acquire) == 0 {
            return;
        }
        // Handed over by `release`. A wait that fails or returns for another reason changes nothing about that.
        while os.wait_event(self.event, u32::MAX) != EventWait::Set {
            spin_loop();
        }
        // ORDERING: Acquire pairs with the Release of the holder that set the event; its store is in this word's
        // history.
        self.count.load(Ordering::Acquire);
    }

    fn release<T: Thunks>(&self, os: &Os<T>) {
        if self.count.fetch_sub(1, Ordering::Release) > 1 {
            os.thunks().set_event(self.event);
        }
    }
}

/// A value under a spin lock. [`SpinCell::with`] is for a few instructions only: no call, no wait, nothing that can
/// take long.
pub(crate) struct SpinCell<V> {
    busy: AtomicBool,
    value: UnsafeCell<V>,
}

// SAFETY: the value moves between threads and is used by one at a time: V: Send suffices.
unsafe impl<V: Send> Sync for SpinCell<V> {}

impl<V> SpinCell<V> {
    /// Holds `value`.
    pub const fn new(value: V) -> Self {
        Self { busy: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Uses the value while nobody else does.
    pub fn with<R>(&self, use_it: impl FnOnce(&mut V) -> R) -> R {
        while !self.acquire() {
            spin_loop();
        }
        self.use_and_release(use_it)
    }

    /// Uses the value, unless somebody else does. However long: nobody waits for it.
    pub fn try_with<R>(&self, use_it: impl FnOnce(&mut V) -> R) -> Option<R> {
        self.acquire().then(|| self.use_and_release(use_it))
    }

    /// The value until the guard is dropped, unless another thread uses it, or this one does. However long: nobody
    /// waits for it.
    pub fn try_lock(&self) -> Option<SpinGuard<'_, V>> {
        self.acquire().then(|| SpinGuard { cell: self, value: PhantomData })
    }

    fn acquire(&self) -> bool {
        // ORDERING: Acquire pairs with the Release of `use_and_release`: what the last user wrote is seen.
        self.busy.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// After `acquire` succeeded.
    fn use_and_release<R>(&self, use_it: impl FnOnce(&mut V) -> R) -> R {
        use_it(&mut SpinGuard { cell: self, value: PhantomData })
    }
}

/// The value of a [`SpinCell`], until this is dropped. There is one at a time: whoever made `busy` true has it.
pub(crate) struct SpinGuard<'a, V> {
    cell: &'a SpinCell<V>,
    /// Threads may have the guard as they may have the reference that it stands for.
    value: PhantomData<&'a mut V>,
}

impl<V> Deref for SpinGuard<'_, V> {
    type Target = V;

    fn deref(&self) -> &V {
        // SAFETY: this guard has the cell, so nobody else has a reference to the value.
        unsafe { &*self.cell.value.get() }
    }
}

impl<V> DerefMut for SpinGuard<'_, V> {
    fn deref_mut(&mut self) -> &mut V {
        // SAFETY: as above, and `&mut self` keeps other references through this guard away.
        unsafe { &mut *self.cell.value.get() }
    }
}

impl<V> Drop for SpinGuard<'_, V> {
    fn drop(&mut self) {
        // ORDERING: Release pairs with the Acquire of `acquire`: the next user sees what this one wrote.
        self.cell.busy.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_that_is_used_is_not_had_twice() {
        let cell = SpinCell::new(1);
        let mut guard = cell.try_lock().unwrap();
        *guard += 1;
        assert!(cell.try_lock().is_none() && cell.try_with(|value| *value).is_none());
        drop(guard);
        assert_eq!(cell.try_with(|value| cell.try_lock().map_or(*value, |_| 0)), Some(2));
        assert_eq!(cell.with(|value| *value), 2);
    }
}
