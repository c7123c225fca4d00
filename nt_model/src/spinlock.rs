//! Spin locks, and who holds which.
//!
//! The lock word is the driver's own and behaves as on Windows: 0 is free. While it is held the word contains the
//! owning thread's object address with bit 0 set, so recursion and foreign releases are seen without a table. Each
//! thread lists what it holds; from that the model builds, per machine, the order in which locks follow each other, and
//! reports the first cycle.
//!
//! Uncontended acquire and release are a compare-and-swap, a store and a few thread-local accesses.

mod order;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::arch;
use crate::cpu::{self, HeldLock};
use crate::kernel::Machine;
use crate::records::{LockQueueHandle, SpinLockWord};
use crate::routines::{self, DISPATCH_LEVEL, HIGH_LEVEL, Routine};
use crate::rules::Details;
use crate::rules_nt::{
    NT_IRQL_LOWER_LOCKED, NT_SPIN_KIND, NT_SPIN_NOT_OWNED, NT_SPIN_OLD_IRQL, NT_SPIN_ORDER, NT_SPIN_RECURSIVE,
    NT_SPIN_STUCK,
};
use crate::sched::YieldPoint;
use crate::thread::Thread;
pub(crate) use order::LockOrder;
use order::cache;

/// Exclusive owner of an `EX_SPIN_LOCK`.
const EX_EXCLUSIVE: u32 = 0x8000_0000;

fn key(word: &SpinLockWord) -> usize {
    core::ptr::from_ref(word).addr()
}

fn details(word: usize, text: String) -> Details {
    Details::new(text).params([word as u64, 0, 0])
}

impl Machine {
    /// Raises to DISPATCH_LEVEL and takes `word`. Returns the level before.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "KeAcquireSpinLockRaiseToDpc")]
    #[doc(alias = "KeAcquireSpinLock")]
    #[track_caller]
    #[inline]
    pub fn acquire_spin_lock(&self, word: &SpinLockWord) -> u8 {
        let _service = self.service(&routines::KE_ACQUIRE_SPIN_LOCK_RAISE_TO_DPC, [key(word) as u64]);
        let old = cpu::with(|cpu| cpu.irql.get());
        if old < DISPATCH_LEVEL {
            cpu::with(|cpu| cpu.irql.set(DISPATCH_LEVEL));
        }
        self.take_word(word);
        old
    }

    /// Releases `word` and goes back to `old_irql`, then runs what waited for that.
    ///
    /// IRQL: DISPATCH_LEVEL.
    #[doc(alias = "KeReleaseSpinLock")]
    #[track_caller]
    #[inline]
    pub fn release_spin_lock(&self, word: &SpinLockWord, old_irql: u8) {
        let _service = self.service(&routines::KE_RELEASE_SPIN_LOCK, [key(word) as u64, old_irql.into()]);
        self.drop_word(word);
        self.return_to(old_irql);
    }

    /// Takes `word` at the current level.
    ///
    /// IRQL: at least DISPATCH_LEVEL.
    #[doc(alias = "KeAcquireSpinLockAtDpcLevel")]
    #[track_caller]
    #[inline]
    pub fn acquire_spin_lock_at_dpc(&self, word: &SpinLockWord) {
        let _service = self.service(&routines::KE_ACQUIRE_SPIN_LOCK_AT_DPC_LEVEL, [key(word) as u64]);
        self.take_word(word);
    }

    /// Releases `word` and stays at the current level.
    ///
    /// IRQL: at least DISPATCH_LEVEL.
    #[doc(alias = "KeReleaseSpinLockFromDpcLevel")]
    #[track_caller]
    #[inline]
    pub fn release_spin_lock_from_dpc(&self, word: &SpinLockWord) {
        let _service = self.service(&routines::KE_RELEASE_SPIN_LOCK_FROM_DPC_LEVEL, [key(word) as u64]);
        self.drop_word(word);
    }

    /// Does `work` with `word` taken and interrupts off: what `ExInterlockedInsertHeadList` and its kin are made of.
    ///
    /// IRQL: any.
    pub(crate) fn with_interrupts_off<T>(&self, word: &SpinLockWord, work: impl FnOnce() -> T) -> T {
        let old = cpu::with(|cpu| cpu.irql.replace(HIGH_LEVEL));
        self.take_word(word);
        let result = work();
        self.drop_word(word);
        if old < HIGH_LEVEL {
            self.set_irql(old);
        }
        result
    }

    /// Takes `word` if it is free.
    ///
    /// IRQL: at least DISPATCH_LEVEL.
    #[doc(alias = "KeTryToAcquireSpinLockAtDpcLevel")]
    #[track_caller]
    pub fn try_acquire_spin_lock_at_dpc(&self, word: &SpinLockWord) -> bool {
        let _service = self.service(&routines::KE_TRY_TO_ACQUIRE_SPIN_LOCK_AT_DPC_LEVEL, [key(word) as u64]);
        let taken = word.compare_exchange(0, self.own_mark(), Ordering::Acquire, Ordering::Relaxed).is_ok();
        if taken {
            self.note_held(key(word));
        }
        taken
    }

    /// Whether `word` is free.
    ///
    /// IRQL: any.
    #[doc(alias = "KeTestSpinLock")]
    #[track_caller]
    pub fn test_spin_lock(&self, word: &SpinLockWord) -> bool {
        let _service = self.service(&routines::KE_TEST_SPIN_LOCK, [key(word) as u64]);
        word.load(Ordering::Acquire) == 0
    }

    /// Takes the queued lock `word`, remembering the old level in `handle`. `raise`: raise to DISPATCH_LEVEL first.
    #[doc(alias = "KeAcquireInStackQueuedSpinLock")]
    #[track_caller]
    pub fn acquire_queued_lock(&self, word: &SpinLockWord, handle: &LockQueueHandle, raise: bool) {
        let routine: &'static Routine = if raise {
            &routines::KE_ACQUIRE_IN_STACK_QUEUED_SPIN_LOCK
        } else {
            &routines::KE_ACQUIRE_IN_STACK_QUEUED_SPIN_LOCK_AT_DPC_LEVEL
        };
        let _service = self.service(routine, [key(word) as u64, core::ptr::from_ref(handle).addr() as u64]);
        let old = cpu::with(|cpu| cpu.irql.get());
        if raise && old < DISPATCH_LEVEL {
            cpu::with(|cpu| cpu.irql.set(DISPATCH_LEVEL));
        }
        self.take_word(word);
        handle.lock.store(key(word), Ordering::Relaxed);
        handle.old_irql.store(old, Ordering::Relaxed);
    }

    /// Releases the queued lock `word`, which `handle` was used to take. `lower`: go back to the level in it.
    #[doc(alias = "KeReleaseInStackQueuedSpinLock")]
    #[track_caller]
    pub fn release_queued_lock(&self, word: &SpinLockWord, handle: &LockQueueHandle, lower: bool) {
        let routine: &'static Routine = if lower {
            &routines::KE_RELEASE_IN_STACK_QUEUED_SPIN_LOCK
        } else {
            &routines::KE_RELEASE_IN_STACK_QUEUED_SPIN_LOCK_FROM_DPC_LEVEL
        };
        let _service = self.service(routine, [core::ptr::from_ref(handle).addr() as u64]);
        self.drop_word(word);
        if lower {
            self.return_to(handle.old_irql.load(Ordering::Relaxed));
        }
    }

    /// Raises to DISPATCH_LEVEL and takes a reader-writer spin lock. Returns the level before.
    #[doc(alias = "ExAcquireSpinLockExclusive")]
    #[doc(alias = "ExAcquireSpinLockShared")]
    #[track_caller]
    pub fn acquire_ex_spin_lock(&self, word: &std::sync::atomic::AtomicU32, exclusive: bool) -> u8 {
        let routine: &'static Routine =
            if exclusive { &routines::EX_ACQUIRE_SPIN_LOCK_EXCLUSIVE } else { &routines::EX_ACQUIRE_SPIN_LOCK_SHARED };
        let at = core::ptr::from_ref(word).addr();
        let _service = self.service(routine, [at as u64]);
        let old = cpu::with(|cpu| cpu.irql.get());
        if old < DISPATCH_LEVEL {
            cpu::with(|cpu| cpu.irql.set(DISPATCH_LEVEL));
        }
        let recursive = exclusive && cpu::with(|cpu| cpu.held().any(|lock| lock.word == at));
        if !self.rules.check(&NT_SPIN_RECURSIVE, !recursive, || details(at, format!("{at:#x} is held already"))) {
            return old;
        }
        let mut round = 0;
        let claim = |value: u32| match (exclusive, value) {
            (true, 0) => Some(EX_EXCLUSIVE),
            (false, value) if value & EX_EXCLUSIVE == 0 => Some(value + 1),
            _ => None,
        };
        while word.fetch_update(Ordering::Acquire, Ordering::Relaxed, claim).is_err() {
            if !self.spin_once(at, &mut round) {
                break;
            }
        }
        self.note_held(at);
        old
    }

    /// Releases a reader-writer spin lock and goes back to `old_irql`.
    #[doc(alias = "ExReleaseSpinLockExclusive")]
    #[doc(alias = "ExReleaseSpinLockShared")]
    #[track_caller]
    pub fn release_ex_spin_lock(&self, word: &std::sync::atomic::AtomicU32, exclusive: bool, old_irql: u8) {
        let routine: &'static Routine =
            if exclusive { &routines::EX_RELEASE_SPIN_LOCK_EXCLUSIVE } else { &routines::EX_RELEASE_SPIN_LOCK_SHARED };
        let at = core::ptr::from_ref(word).addr();
        let _service = self.service(routine, [at as u64, old_irql.into()]);
        let held = cpu::with(|cpu| cpu.remove_held(at));
        if self.rules.check(&NT_SPIN_NOT_OWNED, held, || details(at, format!("{at:#x} is not held by this thread"))) {
            if exclusive {
                word.store(0, Ordering::Release);
            } else {
                word.fetch_sub(1, Ordering::Release);
            }
            self.after_release(at);
        }
        self.return_to(old_irql);
    }

    /// What the calling thread writes into a lock word.
    #[inline]
    fn own_mark(&self) -> u64 {
        cpu::with(|cpu| cpu.thread().map_or(1, |thread| thread.address() as u64 | 1))
    }

    #[inline]
    pub(crate) fn take_word(&self, word: &SpinLockWord) {
        let mark = self.own_mark();
        self.rules.count(&NT_SPIN_RECURSIVE);
        if word.compare_exchange(0, mark, Ordering::Acquire, Ordering::Relaxed).is_err() && !self.contend(word, mark) {
            return;
        }
        self.note_held(key(word));
    }

    /// The word was not free. True once it is taken; false when it never will be.
    #[cold]
    fn contend(&self, word: &SpinLockWord, mark: u64) -> bool {
        let at = key(word);
        let mut round = 0;
        loop {
            let value = word.load(Ordering::Relaxed);
            if value == mark {
                self.rules.broken(&NT_SPIN_RECURSIVE, details(at, format!("the lock at {at:#x} is held already")));
                return false;
            }
            let is_mark = value == 0 || value & 1 == 1;
            let text = || details(at, format!("the lock word at {at:#x} is {value:#x}, which no lock routine wrote"));
            if !self.rules.check(&NT_SPIN_KIND, is_mark, text) {
                word.store(mark, Ordering::Relaxed);
                return true;
            }
            if value == 0 && word.compare_exchange(0, mark, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return true;
            }
            if !self.spin_once(at, &mut round) {
                word.store(mark, Ordering::Relaxed);
                return true;
            }
        }
    }

    /// One more look at a taken lock. False: give up and steal it, the machine has stopped or the lock is stuck.
    fn spin_once(&self, word: usize, round: &mut u32) -> bool {
        thread_local! {
            static SINCE: Cell<u64> = const { Cell::new(0) };
        }
        if self.rules.is_stopped() {
            self.leave_image();
            self.in_stopped_machine();
            return false;
        }
        if *round == 0 {
            SINCE.set(self.now());
        } else if round.is_multiple_of(64) {
            let limit = self.config().spin_limit;
            let waited = self.now().saturating_sub(SINCE.get());
            let text = || details(word, format!("the lock at {word:#x} was not to be had for {} ms", waited / 10_000));
            if !self.rules.check(&NT_SPIN_STUCK, waited < limit, text) {
                return false;
            }
        }
        self.with_current_thread(|thread: &Thread| self.sched.spin(&thread.slot, word, *round));
        *round += 1;
        true
    }

    #[inline]
    fn note_held(&self, word: usize) {
        cpu::with(|cpu| {
            if self.config().lock_order && cpu.held_count() != 0 {
                self.note_order(word);
            }
            let site = match cpu.shim_frame() {
                0 => 0,
                frame => arch::return_address(frame),
            };
            cpu.push_held(HeldLock { word, site });
            if cpu.interposed.get() {
                self.yield_point(YieldPoint::Lock);
            }
        });
    }

    #[inline]
    pub(crate) fn drop_word(&self, word: &SpinLockWord) {
        let at = key(word);
        let mark = self.own_mark();
        let value = word.load(Ordering::Relaxed);
        let held = self.rules.check(&NT_SPIN_NOT_OWNED, value == mark, || {
            let (param1, who) = if value == 0 { (0x1007, "nobody") } else { (0x1004, "another thread") };
            details(at, format!("the lock at {at:#x} is held by {who}")).param1(param1)
        });
        if held {
            cpu::with(|cpu| cpu.remove_held(at));
            word.store(0, Ordering::Release);
            self.after_release(at);
        }
    }

    #[inline]
    fn after_release(&self, word: usize) {
        if cpu::with(|cpu| cpu.interposed.get()) {
            self.sched.released(word);
            self.yield_point(YieldPoint::Lock);
        }
    }

    /// Lowers after a release.
    #[inline]
    fn return_to(&self, old_irql: u8) {
        let holds = self.rules.check(&NT_SPIN_OLD_IRQL, old_irql <= DISPATCH_LEVEL, || {
            Details::new(format!("the level to go back to is {old_irql}"))
        });
        if !holds {
            return;
        }
        let (held, current) = cpu::with(|cpu| (cpu.held_count(), cpu.irql.get()));
        self.rules.check(&NT_IRQL_LOWER_LOCKED, held == 0 || old_irql >= DISPATCH_LEVEL, || {
            Details::new(format!("a release lowers to {old_irql} with {held} spin locks still held"))
        });
        if old_irql < current {
            self.set_irql(old_irql);
        }
    }

    fn note_order(&self, word: usize) {
        let epoch = self.lock_order.epoch.load(Ordering::Relaxed);
        let held: Vec<HeldLock> = cpu::with(|cpu| {
            let known = |lock: &HeldLock| cache::is_known(epoch, lock.word, word);
            cpu.held().filter(|lock| !known(lock)).collect()
        });
        self.rules.count(&NT_SPIN_ORDER);
        for lock in held {
            let cycle = self.lock_order.add(lock, word);
            cache::set_known(epoch, lock.word, word);
            if let Some(path) = cycle {
                let path: Vec<_> = path.iter().map(|word| format!("{word:#x}")).collect();
                let site = cpu::with(|cpu| cpu::locate(cpu, lock.site));
                self.rules.broken(
                    &NT_SPIN_ORDER,
                    details(
                        word,
                        format!(
                            "{word:#x} is taken while {:#x} (taken at {site}) is held, but elsewhere the order is {}",
                            lock.word,
                            path.join(" then ")
                        ),
                    ),
                );
            }
        }
    }

    /// Forgets the order in which a lock was taken, when a lock that does not lie in pool is given back: a later lock
    /// at the same address has an order of its own.
    pub fn forget_spin_lock(&self, word: &SpinLockWord) {
        self.forget_locks(&(key(word)..key(word) + size_of::<SpinLockWord>()));
    }

    /// Memory that may contain lock words is given back: forget their order.
    pub(crate) fn forget_locks(&self, range: &Range<usize>) {
        self.lock_order.forget(range);
    }
}
