//! What the driver needs from the kernel that it runs on: NT (`kmd`), or the NT model (`kmd_native`).

use crate::irql::Passive;
use alloc::boxed::Box;
use core::fmt::Arguments;
use gpu_engine::NoMemory;
use gpu_engine::host::{Lock, Unmapped};
use gpu_engine::memory::{Mapping, Span};
use gpu_engine::word::Exchange;
use wddm_abi::DEVICE_OBJECT;

/// A dispatcher object that wakes one waiter per set (a synchronization event).
pub trait Event: Send + Sync + 'static {
    /// Sets it. Up to `DISPATCH_LEVEL`.
    fn set(&self);
    /// Waits until it is set, at most `timeout` units of 100 ns; `None` for ever. Whether it was set. `PASSIVE_LEVEL`,
    /// no lock held.
    fn wait(&self, timeout: Option<u64>) -> bool;
}

/// Non-paged pages that stay where they are, mapped readable and writable, until dropped.
///
/// # Safety
/// `span()` covers memory that stays mapped and page-aligned until the value is dropped, and that holds nothing but
/// these pages (they are mapped to user mode).
#[expect(unsafe_code, reason = "a promise about memory")]
pub unsafe trait Pages: Send + Sync + 'static {
    /// The pages.
    fn span(&self) -> Span<'static>;
}

/// The registry key of a device's settings, its software key, named in one of two ways.
///
/// Source: `DXGK_DEVICE_INFO` (DeviceRegistryPath is the path of the software key); `IoOpenDeviceRegistryKey`.
#[derive(Clone, Copy, Debug)]
pub enum SettingsKey<'a> {
    /// The key's path, UTF-16; known from StartDevice on.
    Path(&'a [u16]),
    /// The device's physical device object; AddDevice gets it.
    Device(*mut DEVICE_OBJECT),
}

/// What a system thread runs.
pub type Body = Box<dyn FnOnce(&Passive) + Send>;

/// The kernel.
pub trait Platform: Clone + Send + Sync + Sized + 'static {
    /// A spin lock that raises to `DISPATCH_LEVEL`.
    type Lock<T: Send>: Lock<T>;
    /// A word of our own that several processors use.
    type Word: Exchange + Send + Sync;
    /// A mapping of system pages.
    type Mapping: Mapping;
    /// An event.
    type Event: Event;
    /// A system thread; dropping it does not end it.
    type Thread: Send + Sync + 'static;
    /// Pages.
    type Pages: Pages;

    /// The kernel that the calling thread runs on: where AddDevice gets its platform.
    fn current() -> Self;

    /// A word that holds `value`.
    fn word(value: u64) -> Self::Word;

    /// An event that is not set. It lives in non-paged memory and does not move.
    ///
    /// # Errors
    /// [`NoMemory`].
    fn event(&self, irql: &Passive) -> Result<Self::Event, NoMemory>;

    /// Starts a system thread at `PASSIVE_LEVEL`.
    ///
    /// # Errors
    /// [`NoMemory`], whatever the kernel's reason.
    fn spawn(&self, irql: &Passive, body: Body) -> Result<Self::Thread, NoMemory>;

    /// Waits until the thread has ended.
    fn join(&self, irql: &Passive, thread: Self::Thread);

    /// `count` fresh zeroed pages, contiguous in kernel addresses.
    ///
    /// # Errors
    /// [`NoMemory`].
    fn allocate_pages(&self, irql: &Passive, count: u64) -> Result<Self::Pages, NoMemory>;

    /// Maps locked system pages by frame number, all with the cache type that they have; see
    /// [`gpu_engine::host::Host::map_system`].
    ///
    /// # Errors
    /// [`Unmapped`].
    fn map_system(&self, frames: &[u64], write: bool) -> Result<Self::Mapping, Unmapped>;

    /// Whether the page at `address` is cached: an address at which the OS has mapped system memory for us. `false`
    /// where the kernel does not say: then fences are taken. Up to `DISPATCH_LEVEL`.
    fn is_cached(&self, address: *const u8) -> bool;

    /// The performance counter, which is the GPU clock. Any IRQL.
    fn clock(&self) -> u64;

    /// Ticks per second of [`Self::clock`].
    fn clock_frequency(&self) -> u64;

    /// Lets others run for about `units` of 100 ns.
    fn delay(&self, irql: &Passive, units: u64);

    /// Returns when every DPC that was queued at the call has ended, on every processor. Source: KeFlushQueuedDpcs.
    fn flush_dpcs(&self, irql: &Passive);

    /// A pause in a spin loop. Any IRQL.
    fn relax(&self);

    /// The DWORD or QWORD value `name` under `key`; `None` when there is none, or one of another type.
    fn setting(&self, irql: &Passive, key: SettingsKey<'_>, name: &str) -> Option<u64>;

    /// Sets the QWORD value `name` under the key with this path, UTF-16. Returns whether it could.
    fn set_number(&self, irql: &Passive, path: &[u16], name: &str, value: u64) -> bool;

    /// A line for the debugger.
    fn print(&self, line: Arguments<'_>);
}

/// Asks `done` every `look` units of 100 ns, for `patience` such units or, with `None`, for as long as it takes. Lets
/// other threads run in between. Returns whether `done` said so in time.
pub fn until<P: Platform>(
    irql: &Passive,
    platform: &P,
    patience: Option<u64>,
    look: u64,
    mut done: impl FnMut() -> bool,
) -> bool {
    // The counter and not the number of looks: an OS may round a pause up to a tick of its timer.
    let ticks = |units: u64| u128::from(units) * u128::from(platform.clock_frequency()) / 10_000_000;
    // CAST: clamped to 64 bits.
    let ticks = patience.map(|units| ticks(units).min(u128::from(u64::MAX)) as u64);
    let deadline = ticks.map(|ticks| platform.clock().saturating_add(ticks));
    loop {
        if done() {
            return true;
        }
        if deadline.is_some_and(|deadline| platform.clock() > deadline) {
            return false;
        }
        platform.delay(irql, look);
    }
}
