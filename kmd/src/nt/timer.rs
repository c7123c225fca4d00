//! A high-resolution timer without a callback: its thread waits for the object itself.

use super::event::SynchronizationEvent;
use core::ptr;
use core::ptr::NonNull;
use gpu_engine::NoMemory;
use kmd_core::irql::Passive;
use kmd_core::platform::Timer;
use wdk_sys::_EX_TIMER;
use wdk_sys::_KWAIT_REASON::Executive;
use wdk_sys::_MODE::KernelMode;
use wdk_sys::_WAIT_TYPE::WaitAny;
use wdk_sys::EX_TIMER_HIGH_RESOLUTION;
use wdk_sys::EXT_DELETE_PARAMETERS;
use wdk_sys::PVOID;
use wdk_sys::STATUS_SUCCESS;
use wdk_sys::ntddk::ExAllocateTimer;
use wdk_sys::ntddk::ExCancelTimer;
use wdk_sys::ntddk::ExDeleteTimer;
use wdk_sys::ntddk::ExSetTimer;
use wdk_sys::ntddk::KeWaitForMultipleObjects;

/// A synchronization timer of the system's.
pub struct FineTimer(NonNull<_EX_TIMER>);

// SAFETY: a timer object belongs to no thread.
unsafe impl Send for FineTimer {}

impl FineTimer {
    pub fn new(_irql: &Passive) -> Result<Self, NoMemory> {
        // SAFETY: at most DISPATCH_LEVEL; callback and context are optional.
        let timer = unsafe { ExAllocateTimer(None, ptr::null_mut(), EX_TIMER_HIGH_RESOLUTION) };
        NonNull::new(timer).map(Self).ok_or(NoMemory)
    }
}

impl Timer<SynchronizationEvent> for FineTimer {
    fn wait(&self, _irql: &Passive, event: &SynchronizationEvent, units: u64) -> bool {
        // A high-resolution timer takes relative times only, which are negative.
        let due = -i64::try_from(units.max(1)).unwrap_or(i64::MAX);
        // SAFETY: our timer; at most DISPATCH_LEVEL; it expires once, and the parameters are optional.
        let _was_set = unsafe { ExSetTimer(self.0.as_ptr(), due, 0, ptr::null_mut()) };
        let mut objects: [PVOID; 2] = [event.as_ptr().cast(), self.0.as_ptr().cast()];
        // TIMEOUT: the timer's.
        // CAST: small constants.
        // SAFETY: an initialised event and a timer that is set; PASSIVE_LEVEL (the token). Up to three objects need no
        // wait blocks.
        let status = unsafe {
            KeWaitForMultipleObjects(
                objects.len() as u32,
                objects.as_mut_ptr(),
                WaitAny,
                Executive,
                KernelMode as i8,
                0,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        // STATUS_WAIT_0: the event.
        let was_set = status == STATUS_SUCCESS;
        if was_set {
            // SAFETY: our timer; the parameters must be NULL.
            let _cancelled = unsafe { ExCancelTimer(self.0.as_ptr(), ptr::null_mut()) };
        }
        was_set
    }
}

impl Drop for FineTimer {
    fn drop(&mut self) {
        // As ExInitializeDeleteTimerParameters leaves them: no callback.
        let mut parameters = EXT_DELETE_PARAMETERS::default();
        // With Cancel and Wait: nothing of the timer is under way when this returns.
        // SAFETY: our timer, deleted once, at PASSIVE_LEVEL by the trait's rule; the parameters are on this stack.
        let _cancelled = unsafe { ExDeleteTimer(self.0.as_ptr(), 1, 1, &raw mut parameters) };
    }
}
