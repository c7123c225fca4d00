//! Fencepost's driver linked natively over the NT model: the same objects and the same table as in `fencepost.sys`,
//! with [`nt_model`]'s services where the image has NT's. Debuggers, sanitizers and the schedule explorer see into it.
//!
//! ```
//! let table = kmd_native::table();
//! assert_eq!(table.Version, kmd_ddi::VERSION);
//! assert!(table.DxgkDdiStartDevice.is_some());
//! ```

mod entry;
mod lock;
mod memory;
mod reserve;
mod thread;

pub use entry::{SERVICE_KEY, entry_table, table};

use gpu_engine::NoMemory;
use gpu_engine::host::Unmapped;
use gpu_engine::memory::SharedWord;
use gpu_engine::word::{Exchange, Ordering, Word};
use kmd_core::irql::Passive;
use kmd_core::platform::{Body, Event, Platform, SettingsKey, TICK, ThisThread, Timer};
use kmd_core::tracing::Event as TraceEvent;
use lock::SpinLock;
use memory::{FrameMapping, NonPagedPages, OwnMapping};
use nt_model::Machine;
use nt_model::timer::{EX_TIMER_HIGH_RESOLUTION, ExTimer};
use reserve::Reserve;
use std::fmt::Arguments;
use std::sync::atomic::AtomicU64;
use thread::SystemThread;

/// The machine that the calling thread is in.
#[derive(Clone, Copy)]
pub struct Native;

/// # Panics
/// When the calling thread has not entered a machine: driver code runs nowhere else.
#[track_caller]
fn machine<R>(f: impl FnOnce(&Machine) -> R) -> R {
    // A service of the kernel is a barrier, or as good as one.
    #[cfg(feature = "explore")]
    SharedWord::fence(Ordering::SeqCst);
    unordered(f)
}

/// The same for what orders nothing: the clock.
///
/// # Panics
/// As [`machine`].
#[track_caller]
fn unordered<R>(f: impl FnOnce(&Machine) -> R) -> R {
    // PANIC: documented.
    Machine::with_current(|machine| f(machine.expect("driver code runs inside a machine")))
}

/// So many clock interrupts from now, as NT's timeouts say it: negative.
fn relative(ticks: u32) -> i64 {
    -(i64::from(ticks) * TICK.cast_signed())
}

/// A word of the driver's own. The schedule explorer sees accesses to it as it sees those to shared pages.
pub struct NativeWord(AtomicU64);

impl NativeWord {
    fn shared(&self) -> SharedWord<'_> {
        SharedWord::from(&self.0)
    }
}

impl Word for NativeWord {
    fn load(&self, order: Ordering) -> u64 {
        self.shared().load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.shared().store(value, order);
    }
    fn fence(order: Ordering) {
        SharedWord::fence(order);
    }
}

impl Exchange for NativeWord {
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.shared().swap(value, order)
    }
    fn compare_exchange(&self, current: u64, new: u64, order: Ordering) -> Result<u64, u64> {
        self.shared().compare_exchange(current, new, order)
    }
}

/// A synchronization event.
pub struct SynchronizationEvent(nt_model::Event);

impl Event for SynchronizationEvent {
    fn set(&self) {
        machine(|m| m.set_event(self.0.as_kevent(), false));
    }

    fn wait(&self, ticks: Option<u32>) -> bool {
        machine(|m| m.wait_by_clock(&self.0.as_kevent().header, ticks.map(relative))) == 0
    }
}

/// A high-resolution timer, by which its thread waits: it has no callback.
pub struct FineTimer(ExTimer);

impl Timer<SynchronizationEvent> for FineTimer {
    fn wait(&self, _irql: &Passive, event: &SynchronizationEvent, units: u64) -> bool {
        machine(|m| {
            m.set_ex_timer(self.0, -i64::try_from(units.max(1)).unwrap_or(i64::MAX), 0);
            let objects = [&event.0.as_kevent().header, self.0.header()];
            let was_set = m.wait_for_objects_by_clock(&objects, false, None) == 0;
            if was_set {
                m.cancel_ex_timer(self.0);
            }
            was_set
        })
    }
}

impl Drop for FineTimer {
    fn drop(&mut self) {
        machine(|m| m.delete_ex_timer(self.0, true, true));
    }
}

/// The calling thread.
pub struct ThisNativeThread;

impl ThisThread for ThisNativeThread {
    fn set_priority(&self, _irql: &Passive, priority: u32) {
        // CAST: at most 31.
        machine(|m| m.set_own_priority(priority as i32));
    }
}

impl Platform for Native {
    type Lock<T: Send> = SpinLock<T>;
    type Word = NativeWord;
    type Mapping = FrameMapping;
    type Event = SynchronizationEvent;
    type Timer = FineTimer;
    type ThisThread = ThisNativeThread;
    type Thread = SystemThread;
    type Pages = NonPagedPages;
    type Reserve = Reserve;

    fn current() -> Self {
        Self
    }

    fn word(value: u64) -> NativeWord {
        NativeWord(AtomicU64::new(value))
    }

    fn event(&self, _irql: &Passive) -> Result<SynchronizationEvent, NoMemory> {
        Ok(SynchronizationEvent(nt_model::Event::synchronization(false)))
    }

    fn timer(&self, _irql: &Passive) -> Result<FineTimer, NoMemory> {
        machine(|m| m.allocate_ex_timer(0, 0, EX_TIMER_HIGH_RESOLUTION)).map(FineTimer).ok_or(NoMemory)
    }

    fn spawn(&self, _irql: &Passive, body: Body) -> Result<SystemThread, NoMemory> {
        Ok(SystemThread::start(body))
    }

    fn this_thread(&self, _irql: &Passive) -> Option<ThisNativeThread> {
        Some(ThisNativeThread)
    }

    fn join(&self, _irql: &Passive, thread: SystemThread) {
        thread.join();
    }

    fn allocate_pages(&self, _irql: &Passive, count: u64) -> Result<NonPagedPages, NoMemory> {
        NonPagedPages::allocate(count)
    }

    fn map_system(&self, frames: &[u64], write: bool) -> Result<FrameMapping, Unmapped> {
        OwnMapping::map(frames, write).map(FrameMapping::Own)
    }

    fn reserve(&self, _irql: &Passive, places: usize) -> Result<Reserve, NoMemory> {
        Reserve::new(places)
    }

    fn map_reserved(&self, reserve: &Reserve, frames: &[u64], write: bool) -> Result<FrameMapping, Unmapped> {
        reserve.map(frames, write).map(FrameMapping::Reserved)
    }

    fn thread(&self) -> usize {
        // CAST: numbers from 1.
        unordered(Machine::current_thread_id) as usize
    }

    fn is_cached(&self, address: *const u8) -> bool {
        let physical = machine(|m| m.physical_address(address.addr()));
        machine(|m| m.cache_attribute(physical)).is_some_and(|cache| cache == nt_model::CacheType::Cached)
    }

    fn clock(&self) -> u64 {
        unordered(Machine::query_performance_counter)
    }

    fn clock_frequency(&self) -> u64 {
        machine(Machine::performance_frequency)
    }

    fn delay(&self, _irql: &Passive) {
        machine(|m| m.delay_by_clock(relative(1)));
    }

    fn flush_dpcs(&self, _irql: &Passive) {
        machine(|m| m.flush_queued_dpcs());
    }

    fn relax(&self) {
        // With the seeded scheduler somebody else must get a turn; with the real one this costs one load.
        machine(|m| m.yield_point(nt_model::sched::YieldPoint::Custom(0)));
        std::hint::spin_loop();
    }

    fn is_test_signing(&self, _irql: &Passive) -> bool {
        machine(|m| m.config().test_signing) == Some(true)
    }

    fn setting(&self, _irql: &Passive, key: SettingsKey<'_>, name: &str) -> Option<u64> {
        machine(|m| {
            let path = match key {
                SettingsKey::Path(path) => String::from_utf16(path).ok()?,
                SettingsKey::Device(device) => m.registry().software_key(device.addr()).to_string(),
            };
            m.registry().get(&path, name)?.number()
        })
    }

    fn set_number(&self, _irql: &Passive, path: &[u16], name: &str, value: u64) -> bool {
        let Ok(path) = String::from_utf16(path) else { return false };
        machine(|m| m.registry().set(&path, name, nt_model::registry::RegistryValue::qword(value)));
        true
    }

    // The provider is the image's: events in the encoding of Windows are written by a crate that does so there alone.
    fn trace(&self, _event: impl FnOnce() -> TraceEvent) {}

    fn is_traced(&self) -> bool {
        false
    }

    fn print(&self, line: Arguments<'_>) {
        machine(|m| m.debug_print(&line.to_string()));
    }
}
