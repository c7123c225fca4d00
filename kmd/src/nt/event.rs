//! A synchronization event.

use super::relative;
use super::try_box;
use alloc::boxed::Box;
use core::cell::UnsafeCell;
use core::ptr;
use gpu_engine::NoMemory;
use kmd_core::platform::Event;
use wdk_sys::_EVENT_TYPE::SynchronizationEvent as SynchronizationType;
use wdk_sys::_KWAIT_REASON::Executive;
use wdk_sys::_MODE::KernelMode;
use wdk_sys::KEVENT;
use wdk_sys::STATUS_SUCCESS;
use wdk_sys::ntddk::KeInitializeEvent;
use wdk_sys::ntddk::KeSetEvent;
use wdk_sys::ntddk::KeWaitForSingleObject;

/// `KEVENT`, in a box: its wait list points at itself, so it must not move.
pub struct SynchronizationEvent(Box<UnsafeCell<KEVENT>>);

// SAFETY: a dispatcher object is made to be used by every thread.
unsafe impl Send for SynchronizationEvent {}
// SAFETY: as above; the kernel synchronizes.
unsafe impl Sync for SynchronizationEvent {}

impl SynchronizationEvent {
    /// The record. It lives, and stays where it is, as long as the value.
    pub fn as_ptr(&self) -> *mut KEVENT {
        self.0.get()
    }

    pub fn new() -> Result<Self, NoMemory> {
        let event = Self(try_box(UnsafeCell::new(KEVENT::default()))?);
        // SAFETY: pool memory of the right size, which stays where it is.
        unsafe { KeInitializeEvent(event.0.get(), SynchronizationType, 0) };
        Ok(event)
    }
}

impl Event for SynchronizationEvent {
    fn set(&self) {
        // SAFETY: an initialised event; at most DISPATCH_LEVEL, and Wait is FALSE.
        let _before = unsafe { KeSetEvent(self.0.get(), 0, 0) };
    }

    fn wait(&self, ticks: Option<u32>) -> bool {
        let mut interval = ticks.map(relative);
        let interval = interval.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
        // TIMEOUT: the caller's; engines wait without one only while nothing is connected, and the agent that adds work
        // sets the event (WAKE-1).
        // CAST: an enumerator, 0.
        // SAFETY: an initialised event; PASSIVE_LEVEL by the trait's rule; the interval is on this stack.
        let status = unsafe { KeWaitForSingleObject(self.0.get().cast(), Executive, KernelMode as i8, 0, interval) };
        status == STATUS_SUCCESS
    }
}
