//! Timers: one service thread is the clock interrupt of the machine.
//!
//! It parks until the earliest due time, signals the timers that are due and queues their DPCs (which run on it, or on
//! the DPC thread, as [`DpcDelivery`](crate::DpcDelivery) says). It starts with the first timer that is set. Timers
//! expire at clock interrupts ([`ClockOptions`](crate::time::ClockOptions)).

mod ex_timer;
mod timer_ref;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::cpu::Site;
use crate::dispatcher::init_header;
use crate::dpc::DpcRef;
use crate::kernel::Machine;
use crate::records::{KDPC, KTIMER, OBJECT_TIMER_NOTIFICATION, OBJECT_TIMER_SYNCHRONIZATION};
use crate::routines;
use crate::rules::Details;
use crate::rules_nt::NT_OBJECT_IN_USE;
use crate::sched::{TICKS_PER_MS, Ticks};
use crate::thread::{Thread, ThreadKind};
use timer_ref::TimerRef;

pub use ex_timer::{EX_TIMER_HIGH_RESOLUTION, EX_TIMER_NO_WAKE, EX_TIMER_NOTIFICATION, ExTimer};

const TIMERS: &[u8] = &[OBJECT_TIMER_NOTIFICATION, OBJECT_TIMER_SYNCHRONIZATION];

struct SetTimer {
    timer: TimerRef,
    /// Distinguishes this setting from earlier ones that are still in the heap.
    generation: u64,
    set_by: Site,
    /// Whether it is a high-resolution timer.
    fine: bool,
    /// When it would expire next if the clock had no ticks: periods are counted by this.
    nominal: Ticks,
}

/// How a timer is set.
struct Arming {
    due: Ticks,
    /// In milliseconds; 0: once.
    period: u32,
    /// Address of the DPC to queue, or 0.
    dpc: usize,
    fine: bool,
}

#[derive(Default)]
struct State {
    set: HashMap<usize, SetTimer>,
    due: BinaryHeap<Reverse<(Ticks, u64, usize)>>,
    last_generation: u64,
    service: Option<Arc<Thread>>,
}

/// The timers of one machine.
#[derive(Default)]
pub(crate) struct Timers {
    state: Mutex<State>,
    count: AtomicUsize,
    closed: AtomicBool,
}

impl Timers {
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Addresses of set timers within `range`.
    pub(crate) fn set_in(&self, range: &Range<usize>) -> Vec<usize> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        self.state.lock().set.keys().copied().filter(|address| range.contains(address)).collect()
    }

    /// Every set timer and who set it.
    pub(crate) fn set(&self) -> Vec<(usize, Site)> {
        self.state.lock().set.iter().map(|(address, timer)| (*address, timer.set_by)).collect()
    }

    /// Forgets the timer at `address` without touching it: its memory is gone.
    pub(crate) fn forget(&self, address: usize) {
        if self.state.lock().set.remove(&address).is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn key(timer: &KTIMER) -> usize {
    core::ptr::from_ref(timer).addr()
}

impl Machine {
    /// Makes `timer` a timer that is not set.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "KeInitializeTimer")]
    #[doc(alias = "KeInitializeTimerEx")]
    #[track_caller]
    pub fn initialize_timer(&self, timer: &KTIMER, synchronization: bool) {
        let _service = self.service(&routines::KE_INITIALIZE_TIMER_EX, [key(timer) as u64, synchronization.into()]);
        let set = self.timers.set_in(&(key(timer)..key(timer) + 1));
        self.rules.check(&NT_OBJECT_IN_USE, set.is_empty(), || {
            Details::new(format!("the timer at {:#x} is set", key(timer))).params([key(timer) as u64, 0, 0])
        });
        self.check_not_waited(&timer.header);
        let kind = if synchronization { OBJECT_TIMER_SYNCHRONIZATION } else { OBJECT_TIMER_NOTIFICATION };
        init_header(&timer.header, kind, 16, 0);
        timer.dpc.store(0, Ordering::Relaxed);
        timer.period.store(0, Ordering::Relaxed);
    }

    /// Sets `timer` to expire at `due` (NT time: negative relative, positive absolute) and then every `period`
    /// milliseconds (0: once), each time signalling it and queueing `dpc`. Returns whether it was set before.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "KeSetTimer")]
    #[doc(alias = "KeSetTimerEx")]
    #[track_caller]
    pub fn set_timer(&self, timer: &KTIMER, due: i64, period: u32, dpc: Option<&KDPC>) -> bool {
        let dpc = dpc.map_or(0, |dpc| core::ptr::from_ref(dpc).expose_provenance());
        // CAST: printed only.
        let arguments = [key(timer) as u64, due as u64, period.into(), dpc as u64];
        let _service = self.service(&routines::KE_SET_TIMER_EX, arguments);
        if !self.check_kind(&routines::KE_SET_TIMER_EX, &timer.header, TIMERS) {
            return false;
        }
        self.arm_timer(timer, Arming { due: self.end_of_wait(due), period, dpc, fine: false })
    }

    #[track_caller]
    fn arm_timer(&self, timer: &KTIMER, Arming { due, period, dpc, fine }: Arming) -> bool {
        timer.header.signal_state.store(0, Ordering::SeqCst);
        timer.due_time.store(due, Ordering::Relaxed);
        timer.dpc.store(dpc, Ordering::Relaxed);
        timer.period.store(period, Ordering::Relaxed);
        timer.header.reserved.store(1, Ordering::Relaxed);
        let set_by = Site::here();
        let (was_set, service, is_next) = {
            let mut state = self.timers.state.lock();
            state.last_generation += 1;
            let generation = state.last_generation;
            let setting = SetTimer { timer: TimerRef::new(timer), generation, set_by, fine, nominal: due };
            let was_set = state.set.insert(key(timer), setting).is_some();
            let is_next = state.due.peek().is_none_or(|Reverse((next, ..))| due < *next);
            state.due.push(Reverse((due, generation, key(timer))));
            (was_set, state.service.clone(), is_next)
        };
        if !was_set {
            self.timers.count.fetch_add(1, Ordering::Relaxed);
        }
        let service = service.unwrap_or_else(|| self.start_clock());
        if is_next {
            self.sched.unpark(&service.slot);
        }
        was_set
    }

    /// Stops `timer`. Returns whether it was set. Its DPC may still be queued or running.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "KeCancelTimer")]
    #[track_caller]
    pub fn cancel_timer(&self, timer: &KTIMER) -> bool {
        let _service = self.service(&routines::KE_CANCEL_TIMER, [key(timer) as u64]);
        if !self.check_kind(&routines::KE_CANCEL_TIMER, &timer.header, TIMERS) {
            return false;
        }
        let was_set = self.timers.state.lock().set.remove(&key(timer)).is_some();
        if was_set {
            self.timers.count.fetch_sub(1, Ordering::Relaxed);
            timer.header.reserved.store(0, Ordering::Relaxed);
        }
        was_set
    }

    /// Whether `timer` is signalled.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "KeReadStateTimer")]
    #[track_caller]
    pub fn read_timer(&self, timer: &KTIMER) -> bool {
        let _service = self.service(&routines::KE_READ_STATE_TIMER, [key(timer) as u64]);
        timer.header.signal_state.load(Ordering::SeqCst) > 0
    }

    fn start_clock(&self) -> Arc<Thread> {
        let machine = self.arc();
        let thread = self.start_thread("clock", ThreadKind::Service, 0, move || machine.serve_clock());
        self.timers.state.lock().service.get_or_insert(thread).clone()
    }

    fn serve_clock(&self) {
        let slot = self.with_current_thread(|thread| thread.slot.clone());
        while !self.timers.closed.load(Ordering::Acquire) && !self.rules.is_stopped() {
            let next = self.expire_timers();
            if next.is_none_or(|next| next > self.now()) {
                self.sched.park(&slot, next);
            }
        }
    }

    /// Expires what is due; returns when the next one is.
    fn expire_timers(&self) -> Option<Ticks> {
        loop {
            let now = self.now();
            let dpc = {
                let mut state = self.timers.state.lock();
                let Reverse((due, generation, address)) = *state.due.peek()?;
                if due > now {
                    return Some(due);
                }
                state.due.pop();
                let Some(setting) = state.set.get(&address) else { continue };
                if setting.generation != generation {
                    continue;
                }
                self.expire(&mut state, address, due)
            };
            if let Some(dpc) = dpc {
                self.queue_dpc(dpc.get(), 0, 0);
            }
        }
    }

    /// Signals one timer. The table's lock is held, so that a cancel after this finds it not set.
    fn expire(&self, state: &mut State, address: usize, due: Ticks) -> Option<DpcRef> {
        let mut setting = state.set.remove(&address)?;
        let timer = setting.timer.get();
        let dpc = DpcRef::from_address(timer.dpc.load(Ordering::Relaxed));
        let period = timer.period.load(Ordering::Relaxed);
        if period == 0 {
            self.timers.count.fetch_sub(1, Ordering::Relaxed);
            timer.header.reserved.store(0, Ordering::Relaxed);
        }
        self.signal_object(&timer.header, 1);
        if period != 0 {
            setting.nominal += u64::from(period) * TICKS_PER_MS;
            // Once per tick at most.
            let next = self.config().clock.interrupt_at(setting.nominal.max(due + 1));
            let next = if setting.fine { setting.nominal } else { next };
            timer.due_time.store(next, Ordering::Relaxed);
            state.due.push(Reverse((next, setting.generation, address)));
            state.set.insert(address, setting);
        }
        dpc
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dpc::Dpc;
    use crate::kernel::Kernel;
    use crate::rules_nt::NT_OBJECT_KIND;

    const MS: i64 = -10_000;

    #[test]
    fn a_timer_signals_and_runs_its_dpc() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let timer = Box::new(KTIMER::default());
        kernel.initialize_timer(&timer, false);
        let ran = Arc::new(AtomicBool::new(false));
        let flag = ran.clone();
        let dpc = Dpc::new(&kernel, move |_, _| flag.store(true, Ordering::Release));
        assert!(!kernel.set_timer(&timer, MS, 0, Some(dpc.as_kdpc())));
        assert_eq!(kernel.wait_for_object(&timer.header, None), 0);
        while !ran.load(Ordering::Acquire) {
            kernel.delay_execution(MS);
        }
        assert!(kernel.read_timer(&timer) && !kernel.cancel_timer(&timer));
        assert!(kernel.rules.violations().is_empty());
    }

    #[test]
    fn a_cancelled_timer_does_not_expire() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let timer = Box::new(KTIMER::default());
        kernel.initialize_timer(&timer, false);
        kernel.set_timer(&timer, 50 * MS, 0, None);
        assert!(kernel.set_timer(&timer, 20 * MS, 0, None), "it was set");
        assert!(kernel.cancel_timer(&timer));
        assert_eq!(kernel.wait_for_object(&timer.header, Some(60 * MS)), crate::records::status::TIMEOUT);
    }

    #[test]
    fn a_periodic_timer_expires_again() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let timer = Box::new(KTIMER::default());
        kernel.initialize_timer(&timer, true);
        kernel.set_timer(&timer, MS, 1, None);
        for _ in 0..3 {
            assert_eq!(kernel.wait_for_object(&timer.header, None), 0);
        }
        assert!(kernel.cancel_timer(&timer));
    }

    #[test]
    fn a_timer_that_was_never_initialised_is_caught() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let timer = Box::new(KTIMER::default());
        assert!(!kernel.set_timer(&timer, MS, 0, None));
        assert!(kernel.rules.was_broken(&NT_OBJECT_KIND));
    }

    #[test]
    fn initialising_a_set_timer_is_caught() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let timer = Box::new(KTIMER::default());
        kernel.initialize_timer(&timer, false);
        kernel.set_timer(&timer, 1000 * MS, 0, None);
        kernel.initialize_timer(&timer, false);
        assert!(kernel.rules.was_broken(&NT_OBJECT_IN_USE));
        kernel.cancel_timer(&timer);
    }
}
