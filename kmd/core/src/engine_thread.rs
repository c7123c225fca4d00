//! The thread around an engine.
//!
//! It steps while there is work. With a doorbell connected and nothing to do it looks again at once for a while, then
//! about once a millisecond: RAM does not say that it was written. With nothing connected it sleeps on its event. What
//! is shorter than a tick of the OS's clock is a wait for its high-resolution timer, which keeps the clock at its
//! finest for as long as it lasts.

use crate::adapter::{EngineHost, Gpu};
use crate::duty::{Duty, Periods};
use crate::irql::Passive;
use crate::platform::{Event, Platform, ThisThread, Timer};
use crate::settings::Settings;
use gpu_engine::engine::{Engine, Step};
use gpu_engine::shared::Shared;
use gpu_wire::NODE_COUNT;

/// Looks at doorbells in a row before the thread starts to let others run.
const SPINS: u32 = 2_000;
/// A pause, in units of 100 ns: what an idle queue's first submission waits, and an engine that waits for others. The
/// timer adds up to a millisecond.
const PAUSE: u64 = 5_000;

/// The lowest real-time priority (`LOW_REALTIME_PRIORITY`).
const REAL_TIME: u32 = 16;

/// How an engine's thread has the processors.
#[derive(Clone, Copy)]
pub struct Standing {
    /// Its priority, 1 to 31.
    pub(crate) priority: u32,
    /// The periods in whose last parts it pauses; `None`: it does not.
    pub(crate) periods: Option<Periods>,
}

impl Standing {
    /// By the settings. Where the machine has more processors than there are engines, others have a processor whatever
    /// the engines do, and these have no limit.
    pub fn new<P: Platform>(irql: &Passive, platform: &P, settings: &Settings) -> Self {
        let priority = settings.engine_priority;
        let limited = priority >= REAL_TIME && platform.processors(irql) as usize <= NODE_COUNT;
        let periods = limited.then(|| Periods::new(platform.clock_frequency(), settings.engine_share));
        Self { priority, periods }
    }
}

/// Runs the engine until it is stopped.
pub fn run<P: Platform>(
    irql: &Passive,
    platform: &P,
    gpu: &Shared<Gpu<P>>,
    mut engine: Engine<EngineHost<P>>,
    node: usize,
    timer: &P::Timer,
    standing: Standing,
) {
    gpu.host.begin(node);
    if let Some(me) = platform.this_thread(irql) {
        me.set_priority(irql, standing.priority);
    }
    let mut duty = standing.periods.map(|periods| Duty::new(periods, platform.clock()));
    let wake = gpu.host.wake(node);
    let mut idle = 0u32;
    loop {
        let step = gpu.host.keeper().during(node, || engine.step());
        gpu.host.answers().announce();
        match step {
            Step::Worked => {
                idle = 0;
                let pause = duty.as_mut().and_then(|duty| duty.worked(platform.clock()));
                let Some(pause) = pause else { continue };
                // What the engine is told to be ends the pause, and nothing else.
                timer.wait(irql, wake, pause);
            }
            Step::Waiting | Step::Held => {
                timer.wait(irql, wake, PAUSE);
            }
            Step::Stopped => return,
            Step::Idle { connected: false } => {
                if engine.prepare_sleep() {
                    gpu.host.keeper().sleeping(node, || {
                        wake.wait(None);
                    });
                }
            }
            Step::Idle { connected: true } => {
                idle = idle.saturating_add(1);
                if idle < SPINS {
                    platform.relax();
                    continue;
                }
                if engine.prepare_sleep() {
                    // A kick (a wake from another engine, a flush) ends the pause; a ring does not.
                    timer.wait(irql, wake, PAUSE);
                }
            }
        }
        if let Some(duty) = &mut duty {
            duty.waited(platform.clock());
        }
    }
}
