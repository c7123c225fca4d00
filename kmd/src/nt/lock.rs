//! A spin lock that raises to `DISPATCH_LEVEL`.

use core::cell::UnsafeCell;
use gpu_engine::host::Lock;
use wdk_sys::KIRQL;
use wdk_sys::KSPIN_LOCK;
use wdk_sys::ntddk::KeAcquireSpinLockRaiseToDpc;
use wdk_sys::ntddk::KeReleaseSpinLock;

/// `KSPIN_LOCK` and what it guards.
///
/// IRQL: `with` at up to `DISPATCH_LEVEL`; never from the interrupt routine. Lives in non-paged memory: every object of
/// the driver does.
pub struct SpinLock<T> {
    /// A zeroed word is an initialised lock (wdm.h, KeInitializeSpinLock).
    lock: UnsafeCell<KSPIN_LOCK>,
    value: UnsafeCell<T>,
}

// SAFETY: the value goes with the lock, and may be sent.
unsafe impl<T: Send> Send for SpinLock<T> {}
// SAFETY: the value is only reached with the lock held.
unsafe impl<T: Send> Sync for SpinLock<T> {}

/// Releases at the end of the section.
struct Held<'a, T> {
    lock: &'a SpinLock<T>,
    before: KIRQL,
}

impl<T: Send> Lock<T> for SpinLock<T> {
    fn new(value: T) -> Self {
        Self { lock: UnsafeCell::new(0), value: UnsafeCell::new(value) }
    }

    #[expect(clippy::disallowed_methods, reason = "this is the lock type")]
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: an initialised lock that does not move while it is borrowed; at most DISPATCH_LEVEL, by the trait's
        // rule.
        let before = unsafe { KeAcquireSpinLockRaiseToDpc(self.lock.get()) };
        let held = Held { lock: self, before };
        // SAFETY: the lock is held, so this is the only reference; it ends with `f`, before the release.
        let result = f(unsafe { &mut *held.lock.value.get() });
        drop(held);
        result
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        // SAFETY: this processor holds the lock, acquired at `before`.
        unsafe { KeReleaseSpinLock(self.lock.lock.get(), self.before) };
    }
}
