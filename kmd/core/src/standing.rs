//! How the threads of engines have the processors: their priority, their share, and when they let go of what they hold.

use crate::duty::Periods;
use crate::plan::Plan;
use crate::platform::Platform;
use crate::settings::Settings;

/// The lowest real-time priority (`LOW_REALTIME_PRIORITY`).
const REAL_TIME: u32 = 16;

/// How an engine's thread has the processors.
#[derive(Clone, Copy)]
pub struct Standing {
    /// Its priority, 1 to 31.
    pub(crate) priority: u32,
    /// Percent of the time that engines may have the processors; `None`: no limit.
    pub(crate) share: Option<u32>,
    /// For how many ticks of the clock it must be idle to have its doorbells let go; `None`: it never has.
    pub(crate) patience: Option<u64>,
    /// For how long it must sleep to ask for F1, in units of 100 ns; 0: it never asks.
    pub(crate) until_f1: u64,
    /// The same in ticks of the clock.
    pub(crate) until_f1_ticks: u64,
}

impl Standing {
    /// By the plan and the settings. The number of processors is no reason for having no limit: another adapter has
    /// engines as well, and a thread that is bound to a processor has no other.
    pub fn new<P: Platform>(platform: &P, plan: &Plan, settings: &Settings) -> Self {
        let priority = settings.engine_priority;
        let is_limited = priority >= REAL_TIME && settings.engine_share < 100;
        let share = is_limited.then_some(settings.engine_share);
        let idle = u64::from(settings.idle_milliseconds);
        let patience = (idle != 0).then(|| idle * platform.clock_frequency() / 1000);
        // An OS without user-mode submission does not know the interrupt.
        let asks = settings.power_components && plan.user_mode_submission();
        let until_f1 = if asks { idle * 10 * 10_000 } else { 0 };
        let until_f1_ticks = patience.unwrap_or(0).saturating_mul(10);
        Self { priority, share, patience, until_f1, until_f1_ticks }
    }

    /// The periods, by a clock of so many ticks a second, in whose last parts engines pause; `None`: they do not.
    pub(crate) fn periods(&self, frequency: u64) -> Option<Periods> {
        self.share.map(|share| Periods::new(frequency, share))
    }
}
