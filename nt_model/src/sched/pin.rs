//! Keeps the calling thread on one processor.
#![expect(unsafe_code, reason = "sched_setaffinity has no safe wrapper")]

/// Pins the calling thread to the processor it is on, or to `processor`. Handing over between threads on one processor
/// costs half of what it costs across two. Failure is ignored: this is about speed only.
pub(crate) fn pin_to(processor: usize) {
    let mut set = std::mem::MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: a zeroed `cpu_set_t` is the empty set.
    let set = unsafe { set.assume_init_mut() };
    // SAFETY: `processor` is below CPU_SETSIZE (1024), checked by the remainder.
    unsafe { libc::CPU_SET(processor % 1024, set) };
    // SAFETY: 0 is the calling thread; the size is that of the set.
    let _ = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set) };
}

/// The processor that the calling thread is on.
pub(crate) fn current() -> usize {
    // SAFETY: no arguments, no effect.
    let cpu = unsafe { libc::sched_getcpu() };
    usize::try_from(cpu).unwrap_or(0)
}
