//! What a case needs of the machine.
#![expect(unsafe_code, reason = "records go to functions of gdi32 by pointer")]

use crate::apart::Act;
use crate::client::Adapter;
use anyhow::Result;
use std::ffi::c_void;
use std::time::Duration;
use wddm_abi::NTSTATUS;

/// A machine with the adapter.
pub trait System {
    /// A process that has opened the adapter by the user-mode driver. `trusted`: it may force resets, as an elevated
    /// one may. A system that makes no processes returns the calling one each time; then the cases have devices of
    /// their own in it.
    ///
    /// # Errors
    /// When the adapter cannot be opened.
    fn process(&self, name: &str, trusted: bool) -> Result<Box<dyn Process>>;

    /// Has another process play `act` with these numbers, and waits for its end.
    ///
    /// # Errors
    /// When the process cannot be started, or the act fails.
    fn apart(&self, act: &'static Act, numbers: &[u64]) -> Result<()>;

    /// `TdrDelay`: for how long work may keep an engine before it is a timeout.
    fn tdr_delay(&self) -> Duration;

    /// A value that the driver has under its registry key (`docs/settings.md`); `None`: it has its default.
    fn setting(&self, name: &str) -> Option<u32>;

    /// How many waits for fences have been asked of the OS so far; `None`: the system does not say.
    fn fence_waits(&self) -> Option<u64> {
        None
    }

    /// Long enough for anything that must happen on this system.
    fn patience(&self) -> Duration {
        self.tdr_delay() * 10 + Duration::from_secs(20)
    }
}

/// A process.
pub trait Process {
    /// The adapter, by the user-mode driver.
    fn adapter(&self) -> &Adapter;

    /// Calls the function of gdi32 with this name; `STATUS_PROCEDURE_NOT_FOUND` where there is none.
    ///
    /// # Safety
    /// `record` is the function's record, live and as long as the function takes it to be.
    unsafe fn thunk(&self, name: &'static str, record: *mut c_void) -> NTSTATUS;

    /// Loads 8 bytes of the process's memory.
    ///
    /// # Errors
    /// Where nothing is; a system that cannot tell ends the process instead.
    fn load(&self, address: usize) -> Result<u64>;

    /// Stores 8 bytes to the process's memory.
    ///
    /// # Errors
    /// Where nothing is, or what may only be read; a system that cannot tell ends the process instead.
    fn store(&self, address: usize, value: u64) -> Result<()>;

    /// Returns whether gdi32 exports the function with this name.
    fn exports(&self, name: &str) -> bool;

    /// A new auto-reset event: its handle.
    ///
    /// # Errors
    /// When there is none to be had.
    fn event(&self) -> Result<u64>;

    /// Waits for an event. Returns whether it was set in time.
    fn wait_event(&self, event: u64, limit: Duration) -> bool;

    /// Closes an event.
    fn close(&self, event: u64);
}

/// Calls a function of gdi32 whose record is `T`.
///
/// # Errors
/// The status, if it is no success.
pub fn call<T: wddm_abi::Plain>(process: &dyn Process, name: &'static str, record: &mut T) -> Result<()> {
    let status = status(process, name, record);
    anyhow::ensure!(status.is_success(), "{name} returned {status:?}");
    Ok(())
}

/// As [`call`], with the status that the function returns.
pub fn status<T: wddm_abi::Plain>(process: &dyn Process, name: &'static str, record: &mut T) -> NTSTATUS {
    let at: *mut T = record;
    // SAFETY: a live record of the type that the caller names the function by.
    unsafe { process.thunk(name, at.cast()) }
}
