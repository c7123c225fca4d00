//! Waiting for a fence on the CPU: look, spin a little, then let the OS wait.
//!
//! Three ways to wait in the kernel, all by `D3DKMTWaitForSynchronizationObjectFromCpu`: blocking (no event, no bound);
//! with an event of our own and a bound; with the caller's event, returning at once.
//!
//! Assumes:
//! - With `hAsyncEvent` NULL the call returns when the value is reached, or fails. With an event it returns at once and
//!   the event is set when the value is reached, at once if it was. Source:
//!   `D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU`.
//! - The event may be set before the value can be seen: then the UMD reads the value again, and waits again. Source:
//!   none in the documents; a public user-mode driver does so.
//! - The OS holds its own reference to the event: one whose wait timed out may be closed. Source: none found; it is
//!   what a kernel does with a handle that it keeps beyond a call.
//! - When a device is lost, the fences that it would have signaled are signaled with their largest value, unless
//!   NoSignalMaxValueOnTdr says otherwise. So `u64::MAX` is a reason to look at the device, not a result. Source:
//!   `D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS`, NoSignalMaxValueOnTdr.
#![forbid(unsafe_code)]

use crate::error::UmdError;
use crate::fence_value::FenceValue;
use crate::mutation::Mutation;
use crate::thunks::{EventWait, NtHandle, Os, Padded, Thunks};
use core::hint::spin_loop;
use wddm_abi::{D3DKMT_HANDLE, D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU};

/// How often a fence is read before the OS is asked: a few microseconds, several times what a short submission takes.
const SPINS: u32 = 2000;

/// A fence that a CPU thread can wait for.
#[derive(Clone, Copy)]
pub(crate) struct Object {
    /// Device that the handle belongs to.
    pub device: D3DKMT_HANDLE,
    /// The fence.
    pub handle: D3DKMT_HANDLE,
    /// Its current value, read-only here.
    pub value: FenceValue,
}

/// How long to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeout {
    nanoseconds: u64,
}

impl Timeout {
    /// Not at all: a look.
    pub const ZERO: Self = Self { nanoseconds: 0 };
    /// As long as it takes.
    pub const INFINITE: Self = Self { nanoseconds: u64::MAX };

    /// `nanoseconds`; `u64::MAX` is for ever.
    pub const fn from_nanoseconds(nanoseconds: u64) -> Self {
        Self { nanoseconds }
    }

    /// Whether there is no bound.
    pub const fn is_infinite(self) -> bool {
        self.nanoseconds == u64::MAX
    }
}

/// A point in time, by the performance counter.
#[derive(Clone, Copy)]
pub(crate) struct Deadline {
    at: Option<u64>,
}

impl Deadline {
    /// `timeout` from now.
    pub fn after<T: Thunks>(os: &Os<T>, timeout: Timeout) -> Self {
        if timeout.is_infinite() {
            return Self { at: None };
        }
        let ticks = u128::from(timeout.nanoseconds) * u128::from(os.thunks().timestamp_frequency()) / 1_000_000_000;
        // CAST: clamped to 64 bits.
        let ticks = ticks.min(u128::from(u64::MAX)) as u64;
        Self { at: Some(os.thunks().timestamp().saturating_add(ticks)) }
    }

    /// Milliseconds left, at most `slice`, rounded up; `None` when time is up.
    pub fn slice<T: Thunks>(self, os: &Os<T>, slice: u32) -> Option<u32> {
        let Some(at) = self.at else { return Some(slice) };
        let left = at.saturating_sub(os.thunks().timestamp());
        if left == 0 {
            return None;
        }
        let milliseconds = (u128::from(left) * 1000).div_ceil(u128::from(os.thunks().timestamp_frequency()));
        // CAST: at most `slice`.
        Some(milliseconds.min(u128::from(slice)) as u32)
    }
}

/// Reads the fence until it reached `value` or patience ends. Whether it did.
pub(crate) fn poll(fence: FenceValue, value: u64) -> bool {
    for _ in 0..SPINS {
        if fence.has_reached(value) {
            return true;
        }
        spin_loop();
    }
    false
}

/// Waits for `value`: reads the fence, then asks the OS, blocking in it when there is no bound.
///
/// # Errors
/// [`UmdError::Timeout`], [`UmdError::Thunk`], [`UmdError::NoMemory`].
pub(crate) fn blocking<T: Thunks>(os: &Os<T>, object: Object, value: u64, timeout: Timeout) -> Result<(), UmdError> {
    if object.value.has_reached(value) {
        return Ok(());
    }
    if timeout == Timeout::ZERO {
        return Err(UmdError::Timeout);
    }
    if poll(object.value, value) {
        return Ok(());
    }
    if timeout.is_infinite() {
        return wait_from_cpu(os, object, value, None);
    }
    sliced(os, object, value, timeout, || Ok(()))
}

/// How long to wait between two looks at the device's health. TIMEOUT: a queue whose loss nobody signals is noticed
/// within this time.
const SLICE_MILLISECONDS: u32 = 500;

/// Waits for `value` with an event; `check` is asked every [`SLICE_MILLISECONDS`] whether waiting still makes sense.
///
/// # Errors
/// Those of [`blocking`], and what `check` returns.
pub(crate) fn sliced<T: Thunks>(
    os: &Os<T>,
    object: Object,
    value: u64,
    timeout: Timeout,
    mut check: impl FnMut() -> Result<(), UmdError>,
) -> Result<(), UmdError> {
    if object.value.has_reached(value) {
        return Ok(());
    }
    if timeout == Timeout::ZERO {
        return Err(UmdError::Timeout);
    }
    if poll(object.value, value) {
        return Ok(());
    }
    let deadline = Deadline::after(os, timeout);
    let event = os.create_event()?;
    let result = wait_from_cpu(os, object, value, Some(event)).and_then(|()| {
        loop {
            let Some(milliseconds) = deadline.slice(os, SLICE_MILLISECONDS) else { return Err(UmdError::Timeout) };
            let set = os.wait_event(event, milliseconds) == EventWait::Set;
            if object.value.has_reached(value) || (set && os.mutation.is(Mutation::TrustsEvents)) {
                return Ok(());
            }
            check()?;
            if set {
                // Early: the value is about to come. A system that is early each time does not get a call per look.
                if poll(object.value, value) {
                    return Ok(());
                }
                wait_from_cpu(os, object, value, Some(event))?;
            }
        }
    });
    os.thunks().close_handle(event);
    result
}

/// `D3DKMTWaitForSynchronizationObjectFromCpu` for one fence: blocks without an event, returns at once with one.
///
/// # Errors
/// [`UmdError::Thunk`].
pub(crate) fn wait_from_cpu<T: Thunks>(
    os: &Os<T>,
    object: Object,
    value: u64,
    event: Option<NtHandle>,
) -> Result<(), UmdError> {
    let mut argument = Padded::new(D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU {
        hDevice: object.device,
        ObjectCount: 1,
        ObjectHandleArray: &raw const object.handle,
        FenceValueArray: &raw const value,
        hAsyncEvent: event.map_or(core::ptr::null_mut(), NtHandle::as_raw),
        ..D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU::zeroed()
    });
    os.wait_for_synchronization_object_from_cpu(&mut argument)?;
    Ok(())
}
