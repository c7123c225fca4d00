//! The watchdog: a thread of its own, which looks how long the driver keeps the scheduler.
//!
//! The worker looks for what makes no progress, and calls the driver itself: while the driver keeps it, no thread would
//! look. So the watchdog knows of each call that the worker makes, and of each call of the scheduler class, behind
//! which the worker waits. One that stays in the driver for TdrDelay and TdrDdiDelay is bug check 0x116.
//!
//! Chosen: no page says what Windows does where its scheduler itself is kept. Nothing makes progress then, which is
//! found after TdrDelay; the reset of the adapter that follows gives threads TdrDdiDelay to leave the driver.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use nt_model::routines::DISPATCH_LEVEL;
use nt_model::sched::Ticks;
use nt_model::{Machine, Thread};
use wddm_abi::ntstatus::STATUS_SUCCESS;

use super::Miniport;
use crate::port::ddi::{At, Ddi, Level};
use crate::port::personality::MS;
use crate::port::rules::tdr::TDR_DDI_DELAY;
use crate::port::sync::{Lock, Rank, Signal};

thread_local! {
    /// Whether the thread is the worker of an adapter.
    static WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Notes that the calling thread is a worker from here on.
pub(crate) fn note_worker() {
    WORKER.set(true);
}

/// A call of the driver.
#[derive(Clone, Copy, Debug)]
struct Call {
    number: u64,
    ddi: &'static str,
    begun: Ticks,
}

#[derive(Debug, Default)]
struct State {
    /// Calls that are under way, in the order in which they began.
    calls: Vec<Call>,
    /// How many there were.
    count: u64,
    /// The watchdog waits for a call to begin.
    rests: bool,
}

/// The watchdog of an adapter.
#[derive(Debug)]
pub(crate) struct Watchdog {
    state: Lock<State>,
    changed: Signal,
    stopping: AtomicBool,
    thread: Lock<Option<Arc<Thread>>>,
}

/// A call is looked after while this lives.
#[derive(Debug)]
#[must_use = "the watchdog forgets the call once this is dropped"]
pub(crate) struct Watched<'a> {
    watchdog: &'a Watchdog,
    number: u64,
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.watchdog.state.lock().calls.retain(|call| call.number != self.number);
    }
}

impl Watchdog {
    pub(super) fn new() -> Self {
        Self {
            state: Lock::new(Rank::Leaf, State::default()),
            changed: Signal::new(),
            stopping: AtomicBool::new(false),
            thread: Lock::new(Rank::Leaf, None),
        }
    }

    /// Begins to look after calls of an adapter's driver.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn start(&self, adapter: &Arc<Miniport>) {
        if !adapter.personality().tdr.enabled {
            return;
        }
        self.stopping.store(false, Ordering::Release);
        let weak = Arc::downgrade(adapter);
        let thread = adapter.kernel().spawn_system_thread("VidSch watchdog", move || watch(&weak));
        *self.thread.lock() = Some(thread);
    }

    /// Ends that. The worker has ended.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn stop(&self, kernel: &Machine) {
        self.stopping.store(true, Ordering::Release);
        self.changed.notify(kernel);
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            kernel.wait_for_object(thread.header(), None);
        }
    }

    /// A call of `ddi` begins on the calling thread. `None`: others look after it.
    pub(crate) fn begin(&self, kernel: &Machine, ddi: &'static Ddi) -> Option<Watched<'_>> {
        let resets = matches!(ddi.name, "DxgkDdiResetFromTimeout" | "DxgkDdiRestartFromTimeout");
        let kept = ddi.level == Level::Scheduler || resets || WORKER.get();
        if !kept || ddi.at == At::Caller || kernel.irql() > DISPATCH_LEVEL {
            return None;
        }
        let begun = kernel.now();
        let (number, rested) = {
            let mut state = self.state.lock();
            state.count += 1;
            let number = state.count;
            state.calls.push(Call { number, ddi: ddi.name, begun });
            (number, std::mem::take(&mut state.rests))
        };
        if rested {
            self.changed.notify(kernel);
        }
        Some(Watched { watchdog: self, number })
    }

    /// The call that began first. `None`: there is none, and the watchdog rests from here on.
    fn first(&self) -> Option<Call> {
        let mut state = self.state.lock();
        let first = state.calls.first().copied();
        state.rests = first.is_none();
        first
    }
}

/// Returns whether the calling thread is a scheduler's worker.
pub(crate) fn is_worker() -> bool {
    WORKER.get()
}

fn watch(weak: &Weak<Miniport>) {
    // Until when the watchdog does not look at all: so it is woken once in that time, however many calls there are.
    let mut until = 0;
    loop {
        let Some(adapter) = weak.upgrade() else { return };
        let (watchdog, kernel, settings) = (&adapter.watchdog, adapter.kernel(), adapter.personality().tdr);
        let stops = || watchdog.stopping.load(Ordering::Acquire).then_some(());
        watchdog.changed.wait_for(kernel, Some(until), stops);
        let first = watchdog.first();
        if first.is_none() {
            let wakes = || stops().or_else(|| (!watchdog.state.lock().rests).then_some(()));
            watchdog.changed.wait_for(kernel, None, wakes);
        }
        if stops().is_some() || kernel.rules.is_stopped() {
            return;
        }
        let (now, limit) = (kernel.now(), settings.delay + settings.ddi_delay);
        until = first.map_or(now, |call| call.begun) + limit;
        let late = first.filter(|_| now >= until);
        adapter.rules().count(&TDR_DDI_DELAY);
        if let Some(Call { ddi, begun, .. }) = late {
            let text = format!("{ddi} has not come back for {} ms, and the scheduler waits for it", (now - begun) / MS);
            adapter.rules().broken_fatally(&TDR_DDI_DELAY, adapter.bug_check_details(text, STATUS_SUCCESS, 1));
            return;
        }
    }
}
