//! Everything that blocks, and the clock: one door, so that a deterministic scheduler can stand in for the real one.
//!
//! No other module of this crate sleeps, parks, spins or reads a clock. What waits calls [`Scheduler::park`] with its
//! [`Slot`]; what ends a wait calls [`Scheduler::unpark`]; a contended spin lock calls [`Scheduler::spin`]; time comes
//! from [`Scheduler::now`]. Services, lock operations and driver entries announce themselves by a *yield point*, which
//! costs one thread-local load when no scheduler listens.
//!
//! - [`RealScheduler`] (the default) is operating-system threads and the monotonic clock.
//! - [`PatientScheduler`](patient::PatientScheduler) is the same with a clock that stands still while the host does.
//! - [`SeededScheduler`](seeded::SeededScheduler) lets one thread run at a time and picks the next at each yield point
//!   from a seed; its clock is virtual and moves when every thread waits.

pub mod patient;
pub mod seeded;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// 100-nanosecond units since the machine was started: the unit of every NT time.
pub type Ticks = u64;

/// Ticks in a second; also the frequency of the performance counter.
pub const TICKS_PER_SECOND: u64 = 10_000_000;
/// Ticks in a millisecond.
pub const TICKS_PER_MS: u64 = 10_000;

/// Why a thread offers to be switched away from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum YieldPoint {
    /// A kernel service is about to run.
    Service,
    /// A lock was taken or released.
    Lock,
    /// A driver entry point is about to be called, or has returned.
    Driver,
    /// A device register is about to be touched.
    Register,
    /// Whatever a user of the model wants to mark.
    Custom(u32),
}

/// One thread as the scheduler sees it.
pub struct Slot {
    id: u64,
    token: AtomicBool,
    os: OnceLock<std::thread::Thread>,
    /// For the scheduler's own use.
    pub tag: AtomicU64,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Slot {
    /// A slot for thread number `id`, to be bound by that thread.
    pub fn new(id: u64) -> Self {
        Self { id, token: AtomicBool::new(false), os: OnceLock::new(), tag: AtomicU64::new(0) }
    }

    /// The thread's number in its machine.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Called once by the thread whose slot this is.
    pub(crate) fn bind(&self) {
        self.os.get_or_init(std::thread::current);
    }

    /// Takes the wake-up token if there is one.
    #[inline]
    pub(crate) fn take_token(&self) -> bool {
        self.token.swap(false, Ordering::Acquire)
    }

    /// Leaves a wake-up token and wakes the operating system's thread.
    #[inline]
    pub(crate) fn wake(&self) {
        self.token.store(true, Ordering::Release);
        if let Some(os) = self.os.get() {
            os.unpark();
        }
    }

    /// Waits for a token, at most until `until`.
    pub(crate) fn wait_token(&self, until: Option<Instant>) -> bool {
        loop {
            if self.take_token() {
                return true;
            }
            match until {
                None => std::thread::park(),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return self.take_token();
                    }
                    std::thread::park_timeout(left);
                }
            }
        }
    }
}

/// See [`Scheduler::set_on_deadlock`].
pub type DeadlockHook = Box<dyn Fn(String) + Send + Sync>;

/// Who runs when, and what time it is.
///
/// A *token* belongs to each slot: [`unpark`](Self::unpark) leaves one, [`park`](Self::park) takes it or waits for it.
/// A park may return without a token; callers look again at what they wait for.
pub trait Scheduler: Send + Sync + fmt::Debug {
    /// Time since the machine was started.
    fn now(&self) -> Ticks;

    /// What the performance counter counts, which goes on with the processor's time-stamp counter whatever the clock
    /// does.
    fn counter(&self) -> Ticks {
        self.now()
    }

    /// Whether [`yield_point`](Self::yield_point) does anything. Asked once per thread.
    fn interposes(&self) -> bool {
        false
    }

    /// A thread was made that will [`attach`](Self::attach) itself.
    fn announce(&self, _slot: &Arc<Slot>) {}

    /// The calling thread begins to run model or driver code as `slot`. Returns when it may run.
    fn attach(&self, _slot: &Arc<Slot>) {}

    /// The calling thread stops running model or driver code.
    fn detach(&self, _slot: &Slot) {}

    /// The calling thread could be switched away from here.
    fn yield_point(&self, _slot: &Slot, _at: YieldPoint) {}

    /// Waits for a token of `slot` (the calling thread's), at most until `deadline`. True: a token was taken.
    fn park(&self, slot: &Slot, deadline: Option<Ticks>) -> bool;

    /// Gives `slot` a token. Never blocks.
    fn unpark(&self, slot: &Slot);

    /// The calling thread has looked at lock word `word` for the `round`th time and it is still taken.
    fn spin(&self, slot: &Slot, word: usize, round: u32);

    /// The lock word was released.
    fn released(&self, _word: usize) {}

    /// What to call when every thread waits for another one and no deadline is set; the text names them. A scheduler
    /// that cannot know calls it never.
    fn set_on_deadlock(&self, _hook: DeadlockHook) {}

    /// Busy waiting for `ticks`.
    fn stall(&self, slot: &Slot, ticks: Ticks);
}

/// Operating-system threads and the monotonic clock.
#[derive(Debug)]
pub struct RealScheduler {
    boot: Instant,
}

impl RealScheduler {
    /// Time begins now.
    pub fn new() -> Self {
        Self::since(Instant::now())
    }

    /// Time began then.
    pub fn since(boot: Instant) -> Self {
        Self { boot }
    }
}

impl Default for RealScheduler {
    fn default() -> Self {
        Self::new()
    }
}

impl Scheduler for RealScheduler {
    #[inline]
    fn now(&self) -> Ticks {
        // In two parts: a division of 128 bits would cost more than reading the clock.
        let elapsed = self.boot.elapsed();
        elapsed.as_secs() * TICKS_PER_SECOND + u64::from(elapsed.subsec_nanos() / 100)
    }

    fn park(&self, slot: &Slot, deadline: Option<Ticks>) -> bool {
        let until = deadline.and_then(|ticks| {
            let nanos = Duration::from_micros(ticks / 10) + Duration::from_nanos(ticks % 10 * 100);
            self.boot.checked_add(nanos)
        });
        slot.wait_token(until)
    }

    fn unpark(&self, slot: &Slot) {
        slot.wake();
    }

    #[expect(clippy::disallowed_methods, reason = "the owner of a spin lock leaves no event to wait for")]
    fn spin(&self, _slot: &Slot, _word: usize, round: u32) {
        // A few looks first: the owner is usually on another processor and about to release. Then give way, since a
        // modelled processor may well be an operating-system thread that is not running.
        match round {
            0..64 => std::hint::spin_loop(),
            64..4096 => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(50)),
        }
    }

    fn stall(&self, _slot: &Slot, ticks: Ticks) {
        let until = self.now() + ticks;
        while self.now() < until {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_left_before_parking_is_found() {
        let sched = RealScheduler::new();
        let slot = Slot::new(1);
        slot.bind();
        sched.unpark(&slot);
        assert!(sched.park(&slot, None));
    }

    #[test]
    fn a_deadline_ends_a_park_and_not_before() {
        let schedulers: [&dyn Scheduler; 2] = [&RealScheduler::new(), &patient::PatientScheduler::new()];
        for sched in schedulers {
            let slot = Slot::new(1);
            slot.bind();
            let deadline = sched.now() + 2 * TICKS_PER_MS;
            assert!(!sched.park(&slot, Some(deadline)));
            assert!(sched.now() >= deadline, "{sched:?}");
        }
    }

    #[test]
    fn another_thread_ends_a_park() {
        let sched = Arc::new(RealScheduler::new());
        let slot = Arc::new(Slot::new(1));
        slot.bind();
        let (other_sched, other_slot) = (sched.clone(), slot.clone());
        let waker = std::thread::spawn(move || other_sched.unpark(&other_slot));
        assert!(sched.park(&slot, None));
        assert!(waker.join().is_ok());
    }
}
