//! The thread around an engine.
//!
//! It steps while there is work. With nothing to do it looks again at once for a while. Then, while nobody would
//! announce a ring, it looks after pauses that grow: RAM does not say that it was written. One that has found nothing
//! for `IdleMilliseconds` has its doorbells let go ([`crate::let_go`]); with nothing left to look at, it sleeps on its
//! event. What is shorter than a tick of the OS's clock is a wait for its high-resolution timer, which keeps the clock
//! at its finest for as long as it lasts.

use crate::adapter::{EngineHost, Gpu};
use crate::duty::Duty;
use crate::irql::Passive;
use crate::platform::{Event, Platform, ThisThread, Timer};
use crate::power;
use crate::standing::Standing;
use gpu_engine::engine::{Engine, Step, Watched};
use gpu_engine::host::Host;
use gpu_engine::mutation::Mutation;
use gpu_engine::shared::Shared;
use gpu_wire::NODE_PAGING;

/// Looks without a pause between them, right behind work: what goes on at once goes on some 20 ns earlier.
const AT_ONCE: u32 = 64;
/// Looks in a row before the thread starts to let others run.
const SPINS: u32 = 2_000;
/// The same where whatever brings work would wake the engine: the time in which another engine or the OS goes on from a
/// fence, as a rule.
const SPINS_AWAKE: u32 = 500;
/// Looks after pauses of one length; the next are twice as long.
const LOOKS: u32 = 16;
/// How often a pause is doubled at most while doorbells are connected: to 4 ms.
const DOORBELLS: u32 = 3;
/// The same where only write pointers are watched, of queues that the OS has disconnected: to half a second. The time
/// in which the OS rotates their pages, as a rule, is over long before: a watch begins with the shortest pause.
const WRITE_POINTERS: u32 = 10;
/// A pause, in units of 100 ns: what an idle queue's first submission waits, and an engine that waits for others. The
/// timer adds up to a millisecond.
const PAUSE: u64 = 5_000;

/// How long an engine waits in a pause for what it is asked for and cannot serve yet, in units of 100 ns.
const ASKED_ON: u64 = 1_000;

/// Returns whether the engine of `node` asks for F1 when it has slept for long enough.
fn asks_for_f1<P: Platform>(standing: &Standing, gpu: &Gpu<P>, node: usize) -> bool {
    standing.until_f1 != 0 && node != NODE_PAGING.0 as usize && !gpu.host.power().is_in_f1(node)
}

/// Runs the engine until it is stopped.
pub fn run<P: Platform>(
    irql: &Passive,
    platform: &P,
    gpu: &Shared<Gpu<P>>,
    mut engine: Engine<EngineHost<P>>,
    node: usize,
    timer: &P::Timer,
    standing: &Standing,
) {
    gpu.host.begin(node);
    if let Some(me) = platform.this_thread(irql) {
        me.set_priority(irql, standing.priority);
    }
    // By the GPU clock, which is read at each look, and mostly costs no call.
    let mut duty = standing.periods(gpu.host.clock_frequency()).map(|periods| Duty::new(periods, gpu.host.clock()));
    let wake = gpu.host.wake(node);
    let mut rest = Rest::default();
    loop {
        let mut looks_on = false;
        if gpu.host.power().is_owed(node) {
            if gpu.mutation.is(Mutation::CompletesEarly) {
                timer.wait(irql, wake, PAUSE);
            }
            looks_on = !complete_f1(irql, gpu, &mut engine, node);
        }
        let step = gpu.host.keeper().during(node, || match looks_on {
            // There are write pointers left, for another last look. What the looks have found may have no end, and the
            // OS waits.
            true => engine.attend().unwrap_or(Step::Worked),
            false => engine.step(),
        });
        match step {
            Step::Idle(_) => gpu.host.answers().announce_soon(),
            _ => gpu.host.answers().announce(),
        }
        match step {
            Step::Worked => {
                rest = Rest::default();
                let pause = duty.as_mut().and_then(|duty| duty.worked(gpu.host.clock()));
                let Some(pause) = pause else { continue };
                rest_for(irql, gpu, &mut engine, timer, node, pause);
            }
            Step::Waiting | Step::Held => {
                timer.wait(irql, wake, PAUSE);
            }
            Step::Stopped => {
                // A device that stops owes nothing.
                if gpu.host.power().is_owed(node) {
                    complete_f1(irql, gpu, &mut engine, node);
                }
                // An engine that was replaced may have taken a wake of the new one's, which sleeps without a timer.
                wake.set();
                return;
            }
            Step::Idle(watched) => {
                rest.looks = rest.looks.saturating_add(1);
                let spins = if watched == Watched::Nothing { SPINS_AWAKE } else { SPINS };
                rest.sees(engine.watching_changes(), spins);
                if rest.looks < spins {
                    if rest.looks > AT_ONCE {
                        platform.relax();
                    }
                    continue;
                }
                if watched == Watched::Doorbells
                    && let Some(patience) = standing.patience
                    && let Some(idle) = rest.asks(platform.clock(), patience)
                {
                    gpu.host.idle().ask(node, idle);
                }
                let asks = watched != Watched::Doorbells && !rest.has_asked && asks_for_f1(standing, gpu, node);
                if asks && watched == Watched::WritePointers {
                    // It does not sleep, and the OS may have no reason to say that the pages are rotated: in F1 they
                    // are.
                    rest.slept |= rest.has_watched(platform.clock(), standing.until_f1_ticks);
                }
                if asks && rest.slept && gpu.host.power().may_ask() {
                    rest.slept = false;
                    // CAST: a small enumerator.
                    engine.report_state(power::TO_F1.0 as u32);
                    rest.has_asked = true;
                    continue;
                }
                gpu.host.answers().announce();
                // Behind the mark that it sleeps: what owes the OS an answer from here on kicks it.
                let prepared = engine.prepare_sleep() && !gpu.host.power().is_owed(node);
                rest.refused = if prepared { 0 } else { rest.refused.saturating_add(1) };
                if !prepared && rest.refused <= SPINS {
                    continue;
                }
                if !prepared {
                    // What it cannot take in for want of memory comes again: others run until then.
                    timer.wait(irql, wake, PAUSE);
                } else if asks && watched == Watched::Nothing {
                    rest.slept = !timer.wait(irql, wake, standing.until_f1);
                } else if watched == Watched::Nothing {
                    gpu.host.keeper().sleeping(node, || {
                        wake.wait(None);
                    });
                } else {
                    // A kick (a wake from another engine, a flush) ends the pause; a ring does not.
                    timer.wait(irql, wake, rest.pause(spins, watched));
                }
            }
        }
        if let Some(duty) = &mut duty
            && !gpu.mutation.is(Mutation::RestsAreWork)
        {
            duty.waited(gpu.host.clock());
        }
    }
}

/// A pause of the engine of `node`, in units of 100 ns, in which it gives no turn. What others ask for is served
/// meanwhile; what the engine is told to be ends the pause.
fn rest_for<P: Platform>(
    irql: &Passive,
    gpu: &Gpu<P>,
    engine: &mut Engine<EngineHost<P>>,
    timer: &P::Timer,
    node: usize,
    pause: u64,
) {
    let frequency = gpu.host.clock_frequency().max(1);
    let (begun, mut left) = (gpu.host.clock(), pause);
    let mut looks = 0;
    while left != 0 {
        let is_asked = !engine.prepare_pause();
        looks = if is_asked { looks + 1 } else { 0 };
        let is_over = match is_asked {
            true if looks < SPINS_AWAKE => false,
            true => {
                // What cannot be served yet is asked for on and on: others run in between.
                timer.wait(irql, gpu.host.wake(node), left.min(ASKED_ON));
                false
            }
            false => !timer.wait(irql, gpu.host.wake(node), left),
        };
        if is_over || gpu.host.keeper().during(node, || engine.attend()).is_some() {
            return;
        }
        gpu.host.answers().announce();
        let passed = gpu.host.clock().saturating_sub(begun);
        left = pause.saturating_sub(passed.saturating_mul(10_000_000) / frequency);
    }
}

/// The OS has told the engine F1, every doorbell of its node was disconnected, and its page rotated: looks once more at
/// what is watched, and says that it is in F1. Returns whether it has; if not, the engine makes a step first, and looks
/// on.
fn complete_f1<P: Platform>(irql: &Passive, gpu: &Gpu<P>, engine: &mut Engine<EngineHost<P>>, node: usize) -> bool {
    if !engine.last_look() {
        return false;
    }
    if gpu.host.power().pays(node) && !gpu.mutation.is(Mutation::CompletesEarly) {
        gpu.host.complete_f_state(irql, node);
    }
    true
}

/// What an engine does between its last work and its next.
#[derive(Default)]
struct Rest {
    /// Looks that found nothing.
    looks: u32,
    /// How often the list of watched write pointers has changed.
    watching: u64,
    /// How often in a row there was something to do that no step did.
    refused: u32,
    /// The clock at the first look behind the last of a row; 0 before that.
    since: u64,
    /// The clock when the doorbells were last asked to be let go.
    asked: u64,
    /// The clock at the first look at write pointers alone; 0 before that.
    alone: u64,
    /// It has slept, or looked at write pointers alone, for as long as it must before it asks for F1.
    slept: bool,
    /// It has asked for F1.
    has_asked: bool,
}

impl Rest {
    /// A look at `now`. For how many ticks the engine has been idle, where its doorbells are to be let go: once in each
    /// `patience`.
    fn asks(&mut self, now: u64, patience: u64) -> Option<u64> {
        if self.since == 0 {
            (self.since, self.asked) = (now, now);
        }
        let due = now.saturating_sub(self.asked) >= patience;
        due.then(|| {
            self.asked = now;
            now.saturating_sub(self.since)
        })
    }

    /// A look, `now`, that had write pointers alone to look at. Returns whether it has been so for `ticks`.
    fn has_watched(&mut self, now: u64, ticks: u64) -> bool {
        if self.alone == 0 {
            self.alone = now;
        }
        now.saturating_sub(self.alone) >= ticks
    }

    /// The engine has seen `changes` of the list of watched write pointers. Where one is new, the pauses grow from the
    /// shortest again: a ring in the time in which the OS rotates a page is seen soon.
    fn sees(&mut self, changes: u64, spins: u32) {
        if core::mem::replace(&mut self.watching, changes) != changes {
            self.looks = self.looks.min(spins);
        }
    }

    /// The pause until the next look, in units of 100 ns.
    fn pause(&self, spins: u32, watched: Watched) -> u64 {
        let most = if watched == Watched::Doorbells { DOORBELLS } else { WRITE_POINTERS };
        PAUSE << (self.looks.saturating_sub(spins) / LOOKS).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_begin_anew_with_a_new_watch() {
        let mut rest = Rest { looks: 100_000, ..Rest::default() };
        assert_eq!(rest.pause(SPINS, Watched::WritePointers), PAUSE << WRITE_POINTERS);
        assert_eq!(rest.pause(SPINS, Watched::Doorbells), PAUSE << DOORBELLS);
        rest.sees(0, SPINS);
        assert_eq!(rest.pause(SPINS, Watched::WritePointers), PAUSE << WRITE_POINTERS, "nothing has changed");
        for changes in [1, 2] {
            rest.looks = 100_000;
            rest.sees(changes, SPINS);
            assert_eq!(rest.pause(SPINS, Watched::WritePointers), PAUSE, "a watch has begun");
        }
    }

    #[test]
    fn an_idle_engine_asks_once_in_each_patience() {
        let mut rest = Rest::default();
        let asked = [100, 150, 200, 250, 300].map(|now| rest.asks(now, 100));
        assert_eq!(asked, [None, None, Some(100), None, Some(200)]);
    }
}
