//! What a service costs. `cargo bench -p nt_model` prints one line per measurement; `cargo test --benches` runs each
//! once.
#![expect(unsafe_code, reason = "calls the win64 shims as an image does")]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use nt_model::mmio::Registers;
use nt_model::sched::YieldPoint;
use nt_model::sched::seeded::{SeededOptions, SeededScheduler};
use nt_model::{CacheType, Dpc, Event, InterruptLine, Kernel, KernelConfig, Trigger};

type Shim1 = unsafe extern "win64" fn(usize) -> usize;
type Shim3 = unsafe extern "win64" fn(usize, usize, usize) -> usize;

fn shim(kernel: &Kernel, name: &str) -> *const () {
    let address = kernel.system_routine(name).unwrap_or_else(|| panic!("{name}"));
    core::ptr::with_exposed_provenance(address)
}

/// Best of several runs, in nanoseconds per call.
fn measure(name: &str, count: u32, mut f: impl FnMut()) {
    let quick = std::env::args().all(|argument| argument != "--bench");
    let (rounds, count) = if quick { (1, 1) } else { (7, count) };
    let mut best = f64::INFINITY;
    for _ in 0..rounds {
        let start = Instant::now();
        for _ in 0..count {
            f();
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(count));
    }
    println!("{name:52} {best:10.1} ns");
}

struct Silent;

impl Registers for Silent {
    fn read(&self, _: u64, _: u8) -> u64 {
        0
    }

    fn write(&self, _: u64, _: u8, _: u64) {}
}

fn main() {
    let kernel = Kernel::new(KernelConfig::default());
    let _in = kernel.enter();
    services(&kernel);
    shims(&kernel);
    devices(&kernel);
    seeded();
    println!("rules evaluated: {}", kernel.rules.rules_run());
    assert!(kernel.rules.violations().is_empty());
}

fn services(kernel: &Kernel) {
    let lock = AtomicU64::new(0);
    measure("acquire and release a spin lock (native)", 1_000_000, || {
        let old = kernel.acquire_spin_lock(&lock);
        kernel.release_spin_lock(&lock, old);
    });
    let other = AtomicU64::new(0);
    measure("two nested spin locks, order checked (native)", 1_000_000, || {
        let old = kernel.acquire_spin_lock(&lock);
        kernel.acquire_spin_lock_at_dpc(&other);
        kernel.release_spin_lock_from_dpc(&other);
        kernel.release_spin_lock(&lock, old);
    });
    measure("query_performance_counter (native)", 1_000_000, || _ = black_box(kernel.query_performance_counter()));
    let set = Event::notification(true);
    measure("set an event that is set (native)", 1_000_000, || _ = kernel.set_event(set.as_kevent(), false));
    let event = Event::synchronization(false);
    measure("set an event and wait for it (native)", 1_000_000, || {
        kernel.set_event(event.as_kevent(), false);
        kernel.wait_for_event(&event, None);
    });
    let dpc = Dpc::new(kernel, |_, _| ());
    measure("queue a DPC that runs inline", 300_000, || _ = kernel.insert_queue_dpc(dpc.as_kdpc(), 0, 0));
    measure("allocate and free 64 bytes of pool", 300_000, || {
        let address = kernel.allocate_pool(0x40, 64, 1).unwrap_or_default();
        kernel.free_pool(address, Some(1));
    });
    measure("call_driver (empty)", 1_000_000, || _ = kernel.call_driver("Empty", || ()));
    measure("yield point without a scheduler", 10_000_000, || kernel.yield_point(YieldPoint::Custom(0)));
    measure("enter and leave the kernel", 1_000_000, || drop(kernel.enter()));
    measure("create, map, unmap and free one page", 3_000, || {
        let pages = kernel.allocate_pages(1, nt_model::PageKind::System, 0).unwrap_or_else(|| panic!("a page"));
        let at = kernel.map_for_model(&pages).unwrap_or_default();
        kernel.unmap_for_model(at);
        kernel.free_pages(&pages);
    });
}

fn shims(kernel: &Kernel) {
    // SAFETY: `KLOCK* -> KIRQL`.
    let acquire = unsafe { core::mem::transmute::<*const (), Shim1>(shim(kernel, "KeAcquireSpinLockRaiseToDpc")) };
    // SAFETY: `(KLOCK*, KIRQL)`; the third argument is ignored.
    let release = unsafe { core::mem::transmute::<*const (), Shim3>(shim(kernel, "KeReleaseSpinLock")) };
    let lock = AtomicU64::new(0);
    let at = core::ptr::from_ref(&lock).expose_provenance();
    measure("acquire and release a spin lock (shims)", 1_000_000, || {
        // SAFETY: the lock lives; the level is the one that the acquire returned (PASSIVE_LEVEL).
        unsafe { acquire(at) };
        // SAFETY: as above.
        unsafe { release(at, 0, 0) };
    });
    // SAFETY: `LARGE_INTEGER KeQueryPerformanceCounter(PLARGE_INTEGER)`.
    let counter = unsafe { core::mem::transmute::<*const (), Shim1>(shim(kernel, "KeQueryPerformanceCounter")) };
    // SAFETY: a null frequency pointer is allowed.
    measure("KeQueryPerformanceCounter (shim)", 1_000_000, || _ = black_box(unsafe { counter(0) }));
    // SAFETY: `(KEVENT*, increment, wait)`.
    let set_event = unsafe { core::mem::transmute::<*const (), Shim3>(shim(kernel, "KeSetEvent")) };
    let event = Event::notification(true);
    let at = core::ptr::from_ref(event.as_kevent()).expose_provenance();
    // SAFETY: the event lives.
    measure("KeSetEvent on a set event (shim)", 1_000_000, || _ = unsafe { set_event(at, 0, 0) });
    // SAFETY: `(target, source, bytes)`.
    let copy = unsafe { core::mem::transmute::<*const (), Shim3>(shim(kernel, "memcpy")) };
    let (source, mut target) = (vec![1_u8; 4096], vec![0_u8; 4096]);
    let (from, to) = (source.as_ptr().expose_provenance(), target.as_mut_ptr().expose_provenance());
    for bytes in [16, 256, 4096] {
        // SAFETY: both buffers have 4,096 bytes.
        measure(&format!("memcpy of {bytes} bytes (shim)"), 1_000_000, || _ = unsafe { copy(to, from, bytes) });
    }
}

fn devices(kernel: &Kernel) {
    const BASE: u64 = 0xE000_0000;
    assert!(kernel.add_device_registers("silent", BASE, 0x1000, Silent).is_ok());
    let at = kernel.map_io_space(BASE, 0x1000, CacheType::NonCached).unwrap_or_default();
    let register: *mut u32 = core::ptr::with_exposed_provenance_mut(at);
    // SAFETY: the mapped register page; every access is emulated.
    measure("load from a device register", 50_000, || _ = unsafe { register.read_volatile() });
    // SAFETY: as above.
    measure("store to a device register", 50_000, || unsafe { register.write_volatile(1) });
    let line = InterruptLine::new("bench", Trigger::Message, 0);
    let handled = Arc::new(AtomicU64::new(0));
    let count = handled.clone();
    let _interrupt = kernel.connect_interrupt(&line, 5, move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        true
    });
    measure("raise an interrupt, delivered inline", 300_000, || kernel.signal_interrupt(&line));
}

/// Switches between two threads under the seeded scheduler.
fn seeded() {
    let options = SeededOptions { one_in: 1, ..SeededOptions::new(7) };
    let scheduler = SeededScheduler::new(options);
    let kernel = Kernel::new(KernelConfig { scheduler: Some(scheduler.clone()), ..KernelConfig::default() });
    let _in = kernel.enter();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (machine, end) = (kernel.clone(), stop.clone());
    let thread = kernel.spawn_system_thread("other", move || {
        while !end.load(Ordering::Relaxed) {
            machine.yield_point(YieldPoint::Custom(1));
        }
    });
    measure("seeded scheduler: yield to another thread and back", 30_000, || kernel.yield_point(YieldPoint::Custom(2)));
    stop.store(true, Ordering::Relaxed);
    kernel.wait_for_object(thread.header(), None);
    measure("seeded scheduler: yield point, nobody else", 300_000, || kernel.yield_point(YieldPoint::Custom(2)));
}
