//! The thread around an engine.
//!
//! It steps while there is work. With a doorbell connected and nothing to do it looks again at once for a while, then
//! about once a millisecond: RAM does not say that it was written. With nothing connected it sleeps on its event. What
//! is shorter than a tick of the OS's clock is a wait for its high-resolution timer, which keeps the clock at its
//! finest for as long as it lasts.

use crate::adapter::{EngineHost, Gpu};
use crate::irql::Passive;
use crate::platform::{Event, Platform, Timer};
use gpu_engine::engine::{Engine, Step};
use gpu_engine::shared::Shared;

/// Looks at doorbells in a row before the thread starts to let others run.
const SPINS: u32 = 2_000;
/// A pause, in units of 100 ns: what an idle queue's first submission waits, and an engine that waits for others. The
/// timer adds up to a millisecond.
const PAUSE: u64 = 5_000;

/// Runs the engine until it is stopped.
pub fn run<P: Platform>(
    irql: &Passive,
    platform: &P,
    gpu: &Shared<Gpu<P>>,
    mut engine: Engine<EngineHost<P>>,
    node: usize,
    timer: &P::Timer,
) {
    gpu.host.begin(node);
    let wake = gpu.host.wake(node);
    let mut idle = 0u32;
    loop {
        let step = engine.step();
        gpu.host.answers().announce();
        match step {
            Step::Worked => idle = 0,
            Step::Waiting | Step::Held => {
                timer.wait(irql, wake, PAUSE);
            }
            Step::Stopped => return,
            Step::Idle { connected: false } => {
                if engine.prepare_sleep() {
                    wake.wait(None);
                }
            }
            Step::Idle { connected: true } => {
                idle = idle.saturating_add(1);
                if idle < SPINS {
                    platform.relax();
                } else if engine.prepare_sleep() {
                    // A kick (a wake from another engine, a flush) ends the pause; a ring does not.
                    timer.wait(irql, wake, PAUSE);
                }
            }
        }
    }
}
