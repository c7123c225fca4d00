//! Moments at which the model waits for a test.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nt_model::Machine;
use nt_model::sched::Ticks;

use super::SECOND;

/// How long the model waits at most: a test that has failed lets nobody through.
const LIMIT: Ticks = 30 * SECOND;

/// A gate at which the model stops once per passage until a test lets it through: whatever takes its time there on a
/// real machine does so here for exactly as long as the test wants. Clones are one gate.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// How often the model has come.
    came: AtomicU64,
    /// How often it may go on.
    lets: AtomicU64,
    /// The model passes, and is not counted.
    is_open: AtomicBool,
    /// How often a driver has come at a level at which nothing may wait.
    above: AtomicU64,
    /// The level at which it came last.
    level: AtomicU64,
}

impl Gate {
    /// The gate lets the model pass from now on, threads that wait at it included; with `false` it stops the model
    /// again, as a new one does.
    pub fn open(&self, open: bool) {
        self.inner.is_open.store(open, Ordering::Release);
    }

    /// How often the model has come to the gate.
    pub fn came(&self) -> u64 {
        self.inner.came.load(Ordering::Acquire)
    }

    /// How often the driver has called a callback that is to be held ([`Gates::callback`]) above PASSIVE_LEVEL, where
    /// nothing may wait: such calls are not held.
    pub fn passed_above(&self) -> u64 {
        self.inner.above.load(Ordering::Acquire)
    }

    /// Why the gate, at which `callback` was to be held, held none of its `calls`; `None`: it did, or was open.
    pub fn why_held_nothing(&self, callback: &str, calls: u64) -> Option<String> {
        let (above, level) = (self.passed_above(), self.inner.level.load(Ordering::Acquire));
        if self.came() != 0 {
            return None;
        }
        if above != 0 {
            return Some(format!(
                "{callback} was to be held: it came {above} times, last at IRQL {level}, and nothing may wait above \
                 PASSIVE_LEVEL"
            ));
        }
        (calls == 0).then(|| format!("{callback} was to be held, and no driver has called it"))
    }

    /// A driver comes at `level`, at which nothing may wait.
    pub(crate) fn pass_above(&self, level: u8) {
        if !self.inner.is_open.load(Ordering::Acquire) {
            self.inner.level.store(level.into(), Ordering::Release);
            self.inner.above.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Lets the model through once: now, or when it comes.
    pub fn let_through(&self) {
        self.inner.lets.fetch_add(1, Ordering::AcqRel);
    }

    /// The model comes, and goes on when it may.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn pass(&self, kernel: &Machine) {
        self.pass_meanwhile(kernel, || ());
    }

    /// As [`pass`](Self::pass), and does something again and again while it may not go on.
    pub(crate) fn pass_meanwhile(&self, kernel: &Machine, meanwhile: impl Fn()) {
        if self.inner.is_open.load(Ordering::Acquire) {
            return;
        }
        let number = self.inner.came.fetch_add(1, Ordering::AcqRel) + 1;
        let deadline = kernel.now() + LIMIT;
        let may = || self.inner.is_open.load(Ordering::Acquire) || self.inner.lets.load(Ordering::Acquire) >= number;
        while !may() && kernel.now() < deadline && !kernel.rules.is_stopped() {
            meanwhile();
            // Half a millisecond.
            kernel.delay_execution(-5_000);
        }
    }
}

/// The gates of a Windows; where there is none the model goes on at once.
#[derive(Clone, Debug, Default)]
pub struct Gates {
    /// Between the wish to reset an engine that schedules in hardware and the moment in which what is late is looked at
    /// again.
    pub engine: Option<Gate>,
    /// Between the detection of a timeout and the moment from which on the engine's interrupts are ignored.
    pub snapshot: Option<Gate>,
    /// Between that moment and `DxgkDdiResetEngine` or `DxgkDdiResetHwEngine`.
    pub reset: Option<Gate>,
    /// Between `DxgkDdiResetHwEngine` and the moment from which on the engine may interrupt again.
    pub quiet: Option<Gate>,
    /// Between the decision that a packet node gets a buffer and the call that hands it in.
    pub submit: Option<Gate>,
    /// Between the disconnections of an engine's doorbells and the word that its component goes to F1.
    pub f1: Option<Gate>,
    /// Behind that word, before a doorbell that was connected meanwhile brings the component back.
    pub f0: Option<Gate>,
    /// Before the reset of the adapter that an engine's has become waits for its turn.
    pub promotion: Option<Gate>,
    /// Between `DxgkDdiResetFromTimeout` and `DxgkDdiRestartFromTimeout`.
    pub restart: Option<Gate>,
    /// In calls of this callback that the driver makes at PASSIVE_LEVEL, before Dxgkrnl does anything: by its name in
    /// `DXGKRNL_INTERFACE`. Calls above PASSIVE_LEVEL go on at once and are counted ([`Gate::passed_above`]).
    pub callback: Option<(&'static str, Gate)>,
}
