//! A spin lock of the model's around a value.
#![expect(unsafe_code, reason = "a value behind a lock that is not std's")]

use crate::machine;
use gpu_engine::host::Lock;
use nt_model::Machine;
use nt_model::records::SpinLockWord;
use std::cell::UnsafeCell;

/// `KSPIN_LOCK` and what it guards.
pub struct SpinLock<T> {
    /// In a box: the model knows a lock by its address.
    word: Box<SpinLockWord>,
    value: UnsafeCell<T>,
}

// SAFETY: the value goes with the lock, and may be sent.
unsafe impl<T: Send> Send for SpinLock<T> {}
// SAFETY: the value is only reached with the lock held.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> Drop for SpinLock<T> {
    fn drop(&mut self) {
        Machine::with_current(|machine| {
            if let Some(machine) = machine {
                machine.forget_spin_lock(&self.word);
            }
        });
    }
}

/// Releases at the end of the section, also when the section unwinds.
struct Held<'a> {
    word: &'a SpinLockWord,
    before: u8,
}

impl<T: Send> Lock<T> for SpinLock<T> {
    fn new(value: T) -> Self {
        Self { word: Box::default(), value: UnsafeCell::new(value) }
    }

    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let before = machine(|m| m.acquire_spin_lock(&self.word));
        let _held = Held { word: &self.word, before };
        // SAFETY: the lock is held, so this is the only reference; it ends before the release.
        f(unsafe { &mut *self.value.get() })
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        machine(|m| m.release_spin_lock(self.word, self.before));
    }
}
