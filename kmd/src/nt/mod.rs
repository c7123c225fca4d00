//! The kernel routines behind [`Platform`].

pub mod bug_check;
pub mod etw;
mod event;
mod lock;
mod mapping;
mod pages;
mod registry;
mod reserve;
mod signing;
mod thread;
mod timer;

use alloc::boxed::Box;
use core::fmt::Arguments;
use core::ptr;
use core::sync::atomic::AtomicU64;
use event::SynchronizationEvent;
use gpu_engine::NoMemory;
use gpu_engine::host::Unmapped;
use kmd_core::irql::Passive;
use kmd_core::platform::Body;
use kmd_core::platform::Platform;
use kmd_core::platform::SettingsKey;
use kmd_core::platform::TICK;
use kmd_core::tracing::Event;
use lock::SpinLock;
use mapping::FrameMapping;
use mapping::OwnMapping;
use pages::NonPagedPages;
use reserve::Reserve;
use thread::SystemThread;
use thread::ThisSystemThread;
use timer::FineTimer;
use wdk_sys::_MODE::KernelMode;
use wdk_sys::LARGE_INTEGER;
use wdk_sys::ntddk::KeDelayExecutionThread;
use wdk_sys::ntddk::KeFlushQueuedDpcs;
use wdk_sys::ntddk::KeQueryPerformanceCounter;
use wdk_sys::ntddk::PsGetCurrentThreadId;

/// NT.
#[derive(Clone, Copy)]
pub struct Nt;

/// So many clock interrupts from now, as NT's timeouts say it: negative.
fn relative(ticks: u32) -> LARGE_INTEGER {
    LARGE_INTEGER { QuadPart: -(i64::from(ticks) * TICK.cast_signed()) }
}

impl Platform for Nt {
    type Lock<T: Send> = SpinLock<T>;
    type Word = AtomicU64;
    type Mapping = FrameMapping;
    type Event = SynchronizationEvent;
    type Timer = FineTimer;
    type ThisThread = ThisSystemThread;
    type Thread = SystemThread;
    type Pages = NonPagedPages;
    type Reserve = Reserve;

    fn current() -> Self {
        Self
    }

    fn word(value: u64) -> AtomicU64 {
        AtomicU64::new(value)
    }

    fn event(&self, _irql: &Passive) -> Result<SynchronizationEvent, NoMemory> {
        SynchronizationEvent::new()
    }

    fn timer(&self, irql: &Passive) -> Result<FineTimer, NoMemory> {
        FineTimer::new(irql)
    }

    fn spawn(&self, irql: &Passive, body: Body) -> Result<SystemThread, NoMemory> {
        SystemThread::start(irql, body)
    }

    fn this_thread(&self, irql: &Passive) -> Option<ThisSystemThread> {
        ThisSystemThread::new(irql)
    }

    fn join(&self, irql: &Passive, thread: SystemThread) {
        thread.join(irql);
    }

    fn allocate_pages(&self, irql: &Passive, count: u64) -> Result<NonPagedPages, NoMemory> {
        NonPagedPages::allocate(irql, count)
    }

    fn map_system(&self, frames: &[u64], write: bool) -> Result<FrameMapping, Unmapped> {
        OwnMapping::map(frames, write).map(FrameMapping::Own)
    }

    fn reserve(&self, irql: &Passive, places: usize) -> Result<Reserve, NoMemory> {
        Reserve::new(irql, places)
    }

    fn map_reserved(&self, reserve: &Reserve, frames: &[u64], write: bool) -> Result<FrameMapping, Unmapped> {
        reserve.map(frames, write).map(FrameMapping::Reserved)
    }

    fn thread(&self) -> usize {
        // SAFETY: any level; a number, not a handle.
        unsafe { PsGetCurrentThreadId() }.addr()
    }

    fn is_cached(&self, address: *const u8) -> bool {
        mapping::is_cached(address)
    }

    fn clock(&self) -> u64 {
        // SAFETY: any IRQL; the frequency is optional.
        let now = unsafe { KeQueryPerformanceCounter(ptr::null_mut()) };
        // SAFETY: every variant of the union is the same 64 bits. CAST: the counter is not negative.
        unsafe { now.QuadPart as u64 }
    }

    fn clock_frequency(&self) -> u64 {
        let mut frequency = LARGE_INTEGER::default();
        // SAFETY: any IRQL; the frequency goes to this stack, which is resident.
        let _now = unsafe { KeQueryPerformanceCounter(&raw mut frequency) };
        // SAFETY: every variant of the union is the same 64 bits. CAST: a frequency is positive.
        unsafe { frequency.QuadPart as u64 }
    }

    fn delay(&self, _irql: &Passive) {
        let mut interval = relative(1);
        // CAST: an enumerator, 0.
        // SAFETY: PASSIVE_LEVEL (the token); the interval is on this stack.
        let _status = unsafe { KeDelayExecutionThread(KernelMode as i8, 0, &raw mut interval) };
    }

    fn flush_dpcs(&self, _irql: &Passive) {
        // SAFETY: PASSIVE_LEVEL (the token); no lock is held there.
        unsafe { KeFlushQueuedDpcs() };
    }

    fn relax(&self) {
        core::hint::spin_loop();
    }

    fn is_test_signing(&self, irql: &Passive) -> bool {
        signing::is_for_tests(irql)
    }

    fn setting(&self, irql: &Passive, key: SettingsKey<'_>, name: &str) -> Option<u64> {
        registry::number(irql, key, name)
    }

    fn set_number(&self, irql: &Passive, path: &[u16], name: &str, value: u64) -> bool {
        registry::set_number(irql, path, name, value)
    }

    fn trace(&self, event: impl FnOnce() -> Event) {
        if etw::is_on() {
            etw::write(&event());
        }
    }

    fn is_traced(&self) -> bool {
        etw::is_on()
    }

    fn print(&self, line: Arguments<'_>) {
        wdk::print!("{line}");
    }
}

/// A box, or a refusal: the driver never asks the allocator for what it cannot do without.
fn try_box<T>(value: T) -> Result<Box<T>, NoMemory> {
    gpu_engine::shared::try_box(value)
}
