//! Handles that drivers make.

use std::sync::atomic::{AtomicUsize, Ordering};

use wddm_abi::HANDLE;

/// A driver's handle of an object from its number.
pub(crate) fn of_driver(number: usize) -> HANDLE {
    core::ptr::with_exposed_provenance_mut(number)
}

/// The handle that a driver made of an object: its own pointer or number, which the model hands back and never follows.
/// 0: the driver has no such object yet, or no more.
#[derive(Debug)]
pub(crate) struct DriverHandle(AtomicUsize);

impl DriverHandle {
    /// No handle yet.
    pub(crate) const fn none() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// What the driver answered.
    pub(crate) fn new(made: HANDLE) -> Self {
        Self(AtomicUsize::new(made.expose_provenance()))
    }

    /// What the driver answered, as a number.
    pub(crate) const fn of_number(made: usize) -> Self {
        Self(AtomicUsize::new(made))
    }

    /// Keeps what the driver answered.
    pub(crate) fn set(&self, made: HANDLE) {
        self.0.store(made.expose_provenance(), Ordering::Release);
    }

    /// The handle as a number.
    pub(crate) fn number(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    /// The handle as DDIs take it.
    pub(crate) fn raw(&self) -> HANDLE {
        of_driver(self.number())
    }

    /// Whether the driver has the object.
    pub(crate) fn is_alive(&self) -> bool {
        self.number() != 0
    }

    /// Takes the handle, for the call that destroys the object. `None`: it was taken before, or never was one.
    pub(crate) fn take(&self) -> Option<usize> {
        let number = self.0.swap(0, Ordering::AcqRel);
        (number != 0).then_some(number)
    }

    /// The object is gone: its driver destroyed it.
    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Release);
    }
}
