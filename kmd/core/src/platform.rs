//! What the driver needs from the kernel that it runs on: NT (`kmd`), or the NT model (`kmd_native`).

use crate::irql::Passive;
use crate::tracing::Event as TraceEvent;
use alloc::boxed::Box;
use core::fmt::Arguments;
use gpu_engine::NoMemory;
use gpu_engine::host::{Lock, Unmapped};
use gpu_engine::memory::{Mapping, Span};
use gpu_engine::word::Exchange;
use wddm_abi::DEVICE_OBJECT;

/// The usual time between two clock interrupts, in units of 100 ns: time-outs end at such interrupts. What is shorter
/// ends at the next one, or at once; only a [`Timer`] has less.
///
/// Source: *Timer accuracy* (windows-driver-docs kernel/timer-accuracy).
pub const TICK: u64 = 156_250;

/// Pages of a mapping at reserved addresses, at most: 64 KiB.
pub const RESERVED_PAGES: usize = 16;

/// A dispatcher object that wakes one waiter per set (a synchronization event).
pub trait Event: Send + Sync + 'static {
    /// Sets it. Up to `DISPATCH_LEVEL`.
    fn set(&self);
    /// Waits until it is set, or until about `ticks` clock interrupts have come; `None` for ever. Whether it was set.
    /// `PASSIVE_LEVEL`, no lock held.
    fn wait(&self, ticks: Option<u32>) -> bool;
}

/// A high-resolution timer, for waits that are shorter than a tick. It belongs to one thread. Dropping it, at
/// `PASSIVE_LEVEL`, deletes it.
///
/// Source: `ExAllocateTimer`; *High-resolution timers* (windows-driver-docs kernel/high-resolution-timers).
pub trait Timer<E>: Send + 'static {
    /// Waits until `event` is set, or until about `units` of 100 ns have passed, to within a millisecond or so. Whether
    /// the event was set. No lock is held.
    fn wait(&self, irql: &Passive, event: &E, units: u64) -> bool;
}

/// The thread that has asked for it, by which it is the same thread's to use.
pub trait ThisThread {
    /// Gives the thread a priority from 1 to 31, from 16 on a real-time priority. Source: `KeSetPriorityThread`.
    fn set_priority(&self, irql: &Passive, priority: u32);
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
    /// A timer for short waits.
    type Timer: Timer<Self::Event>;
    /// A thread that asks for itself.
    type ThisThread: ThisThread;
    /// A system thread; dropping it does not end it.
    type Thread: Send + Sync + 'static;
    /// Pages.
    type Pages: Pages;
    /// Addresses that are kept for mappings where there are no others.
    type Reserve: Send + Sync + 'static;

    /// The kernel that the calling thread runs on: where AddDevice gets its platform.
    fn current() -> Self;

    /// A word that holds `value`.
    fn word(value: u64) -> Self::Word;

    /// An event that is not set. It lives in non-paged memory and does not move.
    ///
    /// # Errors
    /// [`NoMemory`].
    fn event(&self, irql: &Passive) -> Result<Self::Event, NoMemory>;

    /// A timer that is not set.
    ///
    /// # Errors
    /// [`NoMemory`].
    fn timer(&self, irql: &Passive) -> Result<Self::Timer, NoMemory>;

    /// Starts a system thread at `PASSIVE_LEVEL`.
    ///
    /// # Errors
    /// [`NoMemory`], whatever the kernel's reason.
    fn spawn(&self, irql: &Passive, body: Body) -> Result<Self::Thread, NoMemory>;

    /// The calling thread, which [`spawn`](Self::spawn) has made; `None` where the kernel does not give it out.
    fn this_thread(&self, irql: &Passive) -> Option<Self::ThisThread>;

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

    /// Addresses for `places` mappings of up to [`RESERVED_PAGES`] pages each, and what mapping there needs. Dropped at
    /// `PASSIVE_LEVEL`, the mappings included.
    ///
    /// # Errors
    /// [`NoMemory`].
    fn reserve(&self, irql: &Passive, places: usize) -> Result<Self::Reserve, NoMemory>;

    /// [`map_system`](Self::map_system) at a free place of `reserve`: takes no memory, and maps as many pages as a
    /// place has room for. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    /// [`Unmapped`]; [`Unmapped::NoMemory`] when no place is free.
    fn map_reserved(&self, reserve: &Self::Reserve, frames: &[u64], write: bool) -> Result<Self::Mapping, Unmapped>;

    /// The number of the calling thread, which no other has while it lives. Any IRQL.
    fn thread(&self) -> usize;

    /// Whether the page at `address` is cached: an address at which the OS has mapped system memory for us. `false`
    /// where the kernel does not say: then fences are taken. Up to `DISPATCH_LEVEL`.
    fn is_cached(&self, address: *const u8) -> bool;

    /// The performance counter. Any IRQL.
    fn clock(&self) -> u64;

    /// Ticks per second of [`Self::clock`].
    fn clock_frequency(&self) -> u64;

    /// Lets others run for a tick of the clock, or up to two.
    fn delay(&self, irql: &Passive);

    /// Returns when every DPC that was queued at the call has ended, on every processor. Source: KeFlushQueuedDpcs.
    fn flush_dpcs(&self, irql: &Passive);

    /// A pause in a spin loop. Any IRQL.
    fn relax(&self);

    /// Returns whether the kernel runs code that is signed for tests. `false` where it does not say.
    fn is_test_signing(&self, irql: &Passive) -> bool;

    /// The DWORD or QWORD value `name` under `key`; `None` when there is none, or one of another type.
    fn setting(&self, irql: &Passive, key: SettingsKey<'_>, name: &str) -> Option<u64>;

    /// Sets the QWORD value `name` under the key with this path, UTF-16. Returns whether it could.
    fn set_number(&self, irql: &Passive, path: &[u16], name: &str, value: u64) -> bool;

    /// Writes the event to the traces that have the driver's provider on; where there is none, `event` is not called.
    /// Any IRQL.
    fn trace(&self, event: impl FnOnce() -> TraceEvent);

    /// Returns whether a trace has the driver's provider on. Any IRQL, and cheap.
    fn is_traced(&self) -> bool;

    /// A line for the debugger.
    fn print(&self, line: Arguments<'_>);
}

/// Looks in a row before a thread lets others run between two.
const LOOKS: u32 = 256;

/// Asks `done` some times in a row and then once a tick, for `patience` units of 100 ns or, with `None`, for as long as
/// it takes. Returns whether `done` said so in time. For what is over soon as a rule, and that nobody announces.
pub fn until<P: Platform>(irql: &Passive, platform: &P, patience: Option<u64>, mut done: impl FnMut() -> bool) -> bool {
    let deadline = deadline(platform, patience);
    let mut looks = 0;
    loop {
        if done() {
            return true;
        }
        if is_over(platform, deadline) {
            return false;
        }
        if looks < LOOKS {
            looks += 1;
            platform.relax();
        } else {
            platform.delay(irql);
        }
    }
}

/// The counter's value `patience` units of 100 ns from now; `None` for `None`. The counter and not a number of pauses:
/// the OS rounds these.
pub(crate) fn deadline<P: Platform>(platform: &P, patience: Option<u64>) -> Option<u64> {
    let ticks = |units: u64| u128::from(units) * u128::from(platform.clock_frequency()) / 10_000_000;
    // CAST: clamped to 64 bits.
    let ticks = patience.map(|units| ticks(units).min(u128::from(u64::MAX)) as u64);
    ticks.map(|ticks| platform.clock().saturating_add(ticks))
}

/// Returns whether that value of the counter has passed.
pub(crate) fn is_over<P: Platform>(platform: &P, deadline: Option<u64>) -> bool {
    deadline.is_some_and(|deadline| platform.clock() > deadline)
}
