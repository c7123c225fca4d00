//! The device without power: D3 while the system works or stands by, and hibernation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use nt_model::Machine;

use crate::port::miniport::Miniport;
use crate::port::sync::{Admission, Gate, Lock, Rank};
use crate::port::worker::Worker;

/// Gives the power back, and what was taken for it.
pub(crate) type Wake = Box<dyn FnOnce(&Arc<Miniport>) + Send>;

/// Whether the device sleeps, and what gives the power back.
pub(crate) struct Sleep {
    /// The thread that changes it has it alone; threads that need the device awake share it.
    gate: Gate,
    asleep: Lock<Option<Wake>>,
    /// No work runs, and the model looks for no timeouts.
    rests: AtomicBool,
    /// How many threads have work rest for something else than sleep.
    rested: AtomicU32,
    /// Shared by the watch for timeouts, which suspends and resumes contexts, too.
    watching: Gate,
}

impl std::fmt::Debug for Sleep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sleep").field("rests", &self.rests()).finish_non_exhaustive()
    }
}

impl Sleep {
    pub(super) fn new() -> Self {
        Self {
            gate: Gate::new(),
            asleep: Lock::new(Rank::Leaf, None),
            rests: AtomicBool::new(false),
            rested: AtomicU32::new(0),
            watching: Gate::new(),
        }
    }

    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.lock().is_some()
    }

    /// Returns whether no work is to run: the device goes to sleep, sleeps, or wakes up, or [rests](Self::rest). Paging
    /// may.
    pub(crate) fn rests(&self) -> bool {
        self.rests.load(Ordering::Acquire) || self.rested.load(Ordering::Acquire) != 0
    }

    /// Hands in no packets and looks for no timeouts while `f` runs, though the device has its power.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn rest(&self, adapter: &Arc<Miniport>, f: impl FnOnce()) {
        self.rested.fetch_add(1, Ordering::AcqRel);
        drop(self.watching.exclusive(adapter.kernel()));
        f();
        self.rested.fetch_sub(1, Ordering::AcqRel);
        Worker::of(adapter).kick(adapter);
    }

    /// Forgets everything: the adapter stops.
    pub(super) fn clear(&self) {
        let asleep = self.asleep.lock().take();
        self.rests.store(false, Ordering::Release);
        drop(asleep);
    }

    /// Takes the power from a device that is awake. `take` does that, and returns what gives it back.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn begin(&self, adapter: &Arc<Miniport>, take: impl FnOnce() -> Wake) {
        let _alone = self.gate.exclusive(adapter.kernel());
        if self.asleep.lock().is_some() {
            return;
        }
        self.rests.store(true, Ordering::Release);
        drop(self.watching.exclusive(adapter.kernel()));
        let wake = take();
        *self.asleep.lock() = Some(wake);
    }

    /// Gives the power back, where it was taken.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn end(&self, adapter: &Arc<Miniport>) {
        let _alone = self.gate.exclusive(adapter.kernel());
        let Some(wake) = self.asleep.lock().take() else { return };
        wake(adapter);
        self.rests.store(false, Ordering::Release);
        Worker::of(adapter).kick(adapter);
    }

    /// Admits the thread that looks for timeouts; `None`: nothing runs.
    pub(crate) fn watch<'a>(&'a self, kernel: &'a Machine) -> Option<Admission<'a>> {
        let admission = self.watching.shared(kernel);
        (!self.rests()).then_some(admission)
    }

    /// Wakes the device if it sleeps, and keeps it awake until the guard is dropped.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn stay_awake<'a>(&'a self, adapter: &'a Arc<Miniport>) -> Admission<'a> {
        loop {
            let awake = self.gate.shared(adapter.kernel());
            if self.asleep.lock().is_none() {
                return awake;
            }
            drop(awake);
            self.end(adapter);
        }
    }
}
