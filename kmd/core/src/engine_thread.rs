//! The thread around an engine.
//!
//! It steps while there is work. With a doorbell connected and nothing to do it looks again at once for a while, then
//! less and less often: RAM does not say that it was written. With nothing connected it sleeps on its event.

use crate::adapter::{EngineHost, Gpu};
use crate::irql::Passive;
use crate::platform::{Event, Platform};
use gpu_engine::engine::{Engine, Step};
use gpu_engine::shared::Shared;

/// Looks at doorbells in a row before the thread starts to let others run.
const SPINS: u32 = 2_000;
/// First pause, in units of 100 ns.
const FIRST_PAUSE: u64 = 500;
/// Longest pause while a doorbell is connected, in units of 100 ns: what an idle queue costs, and its first submission
/// waits.
const LONGEST_PAUSE: u64 = 10_000;

/// Runs the engine until it is stopped.
pub fn run<P: Platform>(
    irql: &Passive,
    platform: &P,
    gpu: &Shared<Gpu<P>>,
    mut engine: Engine<EngineHost<P>>,
    node: usize,
) {
    let wake = gpu.host.wake(node);
    let mut idle = 0u32;
    let mut pause = FIRST_PAUSE;
    loop {
        match engine.step() {
            Step::Worked => {
                idle = 0;
                pause = FIRST_PAUSE;
            }
            Step::Waiting => {
                wake.wait(Some(FIRST_PAUSE));
            }
            Step::Held => {
                wake.wait(Some(LONGEST_PAUSE));
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
                } else {
                    // A kick (a wake from another engine, a flush) ends the pause; a ring does not.
                    if engine.prepare_sleep() {
                        wake.wait(Some(pause));
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
        let _ = irql;
    }
}
