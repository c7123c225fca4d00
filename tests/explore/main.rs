//! Many schedules of one race: the CPU begins, gives up and ends waits, and destroys fences, while engines signal.
//!
//! Each boot runs on the model's seeded scheduler: one thread at a time, the next one drawn from a seed, virtual time.
//! Engines have store buffers besides: what they store to shared words is seen by others only after a barrier, a
//! service of the kernel or when the buffer is full, as on a processor with total store order. A signal stores its
//! value under a spin lock, whose release is such a service; so that the barrier behind it is missing does not show
//! here, and loom is the test of that. A round is a schedule of its own; its waiters must wake in time, and virtual
//! time tells, since it moves on when every thread waits.
//!
//! Other boots ring behind pauses about as long as an idle engine keeps its doorbells, or have the packets of two
//! processes preempted as often as the engine answers (TE-41).
//!
//! A failure names its seed. `EXPLORE_SEED=n` plays that boot alone, step for step the same; `EXPLORE_ROUNDS=n` sets
//! how many rounds are played in all.

mod explorer;
mod stale;

use anyhow::{Context, Result, ensure};
use explorer::{Of, Race};
use fencepost::world::{Decorator, Form};
use gpu_engine::mutation::Mutation;
use libtest_mimic::{Arguments, Failed, Trial};
use std::collections::HashSet;
use std::process::ExitCode;
use umd_core::mutation::Mutation as UserModeMutation;

/// Rounds in all.
const ROUNDS: u64 = 105_000;
/// Rounds of a boot.
const EACH: u64 = 1500;

/// The driver's settings that change what happens between a signal and its interrupt.
const FORMS: [&[(&str, u32)]; 5] = [
    &[],
    &[("ShadowMonitoredValue", 1)],
    &[("LogBarriers", 1)],
    &[("OptimizedInterrupt", 1)],
    &[("ShadowMonitoredValue", 1), ("NullFenceArray", 1)],
];

/// Shadow state alone.
const SHADOW: &[(&str, u32)] = FORMS[1];

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The form that a seed's boot has.
fn form(seed: u64) -> &'static [(&'static str, u32)] {
    // CAST: below their number.
    FORMS[(seed % FORMS.len() as u64) as usize]
}

fn boot(seed: u64, rounds: u64, settings: &[(&str, u32)]) -> Result<explorer::Path> {
    play(&Race { seed, rounds, settings, form: Form::Native, trusts: false, of: Of::Waits })
}

fn play(race: &Race<'_>) -> Result<explorer::Path> {
    let Race { seed, rounds, .. } = race;
    race.play().with_context(|| format!("EXPLORE_SEED={seed} EXPLORE_ROUNDS={rounds} plays it again"))
}

/// Nothing is lost in any schedule, and no two rounds took the same one.
fn nothing_is_lost() -> Result<(), Failed> {
    let rounds = variable("EXPLORE_ROUNDS");
    let mut paths = HashSet::new();
    let mut played = 0;
    if let Some(seed) = variable("EXPLORE_SEED") {
        let path = boot(seed, rounds.unwrap_or(EACH), form(seed)).map_err(|error| format!("{error:#}"))?;
        println!("{} rounds, {} steps", path.rounds.len(), path.steps);
        return Ok(());
    }
    let rounds = rounds.unwrap_or(ROUNDS);
    let (mut seed, mut steps) = (1, 0);
    while played < rounds {
        let path = boot(seed, EACH.min(rounds - played), form(seed)).map_err(|error| format!("{error:#}"))?;
        played += path.rounds.len() as u64;
        steps += path.steps;
        paths.extend(path.rounds);
        seed += 1;
    }
    println!("{played} rounds on {} schedules, {} boots, {steps} steps", paths.len(), seed - 1);
    // A hash of each round's path: a few rounds with few decisions may agree.
    if paths.len() as u64 * 20 < played * 19 {
        return Err(format!("{played} rounds took {} schedules only", paths.len()).into());
    }
    Ok(())
}

/// With a step left out, some schedule loses a wake or breaks a rule.
fn found(mutation: Mutation) -> Result<(), Failed> {
    found_in(mutation, &[], false)
}

/// The same with shadow state. `trusts`: the OS does not look behind an update of MonitoredValue, which would find what
/// the update did not.
fn found_in_shadow(mutation: Mutation, trusts: bool) -> Result<(), Failed> {
    found_in(mutation, SHADOW, trusts)
}

fn found_in(mutation: Mutation, settings: &[(&str, u32)], trusts: bool) -> Result<(), Failed> {
    // CAST: its number.
    let settings = [settings, &[("Mutant", mutation as u32)]].concat();
    for seed in 1..=40 {
        let race = Race { seed, rounds: EACH, settings: &settings, form: Form::Native, trusts, of: Of::Waits };
        if let Err(error) = play(&race) {
            println!("{} with seed {seed}: {error:#}", mutation.name());
            return Ok(());
        }
    }
    Err(format!("{} was not noticed", mutation.name()).into())
}

/// With shadow state nothing is lost where the OS does not look behind an update.
fn shadow_needs_no_second_look_of_the_os() -> Result<(), Failed> {
    for seed in 1..=10 {
        let race = Race { seed, rounds: EACH, settings: SHADOW, form: Form::Native, trusts: true, of: Of::Waits };
        play(&race).map_err(|error| format!("{error:#}"))?;
    }
    Ok(())
}

/// Boots in which engines let their doorbells go, and how many rounds each plays.
const PAUSES: (u64, u64) = (24, 100);

/// The settings of such a boot: an engine lets go after a millisecond; in either doorbell model, with power components
/// or without.
fn lets_go(seed: u64, mutation: u32) -> Vec<(&'static str, u32)> {
    // CAST: 0 or 1.
    let (model, components) = ((seed % 2) as u32, (seed / 2 % 2) as u32);
    vec![("IdleMilliseconds", 1), ("DoorbellModel", model), ("PowerComponents", components), ("Mutant", mutation)]
}

fn boot_with_pauses(seed: u64, mutation: u32) -> Result<explorer::Path> {
    let settings = lets_go(seed, mutation);
    let form = Form::Native;
    play(&Race { seed, rounds: PAUSES.1, settings: &settings, form, trusts: false, of: Of::Pauses })
}

/// Nothing that is rung is lost while doorbells go, in any schedule.
fn no_ring_is_lost() -> Result<(), Failed> {
    let mut steps = 0;
    let seeds = variable("EXPLORE_SEED").map_or(1..=PAUSES.0, |seed| seed..=seed);
    for seed in seeds {
        steps += boot_with_pauses(seed, 0).map_err(|error| format!("{error:#}"))?.steps;
    }
    println!("{} boots, {steps} steps", PAUSES.0);
    Ok(())
}

/// With a step of letting go left out, some schedule loses what is rung.
fn found_with_pauses(mutation: Mutation) -> Result<(), Failed> {
    for seed in 1..=2 * PAUSES.0 {
        // CAST: its number.
        if let Err(error) = boot_with_pauses(seed, mutation as u32) {
            println!("{} with seed {seed}: {error:#}", mutation.name());
            return Ok(());
        }
    }
    Err(format!("{} was not noticed", mutation.name()).into())
}

/// Boots in which engines look between the stores of a submission, and how many rounds each plays.
const SUBMISSIONS: (u64, u64) = (12, 200);

fn boot_with_submissions(seed: u64, mutation: u32) -> Result<explorer::Path> {
    let form = if mutation == 0 { Form::Native } else { Form::UserModeMutant(mutation) };
    play(&Race { seed, rounds: SUBMISSIONS.1, settings: &[], form, trusts: false, of: Of::Submissions })
}

/// No engine finds what user mode has not told that it has queued, in any schedule.
fn no_fetch_is_ahead() -> Result<(), Failed> {
    let (mut steps, mut paths) = (0, HashSet::new());
    let seeds = variable("EXPLORE_SEED").map_or(1..=SUBMISSIONS.0, |seed| seed..=seed);
    for seed in seeds {
        let path = boot_with_submissions(seed, 0).map_err(|error| format!("{error:#}"))?;
        steps += path.steps;
        paths.extend(path.rounds);
    }
    println!("{} schedules, {steps} steps", paths.len());
    Ok(())
}

/// With the steps of a submission in another order, or without one, an engine finds something that is not told.
fn found_with_submissions(mutation: UserModeMutation) -> Result<(), Failed> {
    for seed in 1..=2 * SUBMISSIONS.0 {
        // CAST: its number.
        if let Err(error) = boot_with_submissions(seed, mutation as u32) {
            let error = format!("{error:#}");
            println!("{} with seed {seed}: {error}", mutation.name());
            return if error.contains("is queued") { Ok(()) } else { Err(error.into()) };
        }
    }
    Err(format!("{} was not noticed", mutation.name()).into())
}

/// Boots with packets that are preempted, and how many rounds each plays.
const PREEMPTIONS: (u64, u64) = (12, 100);

fn boot_with_preemptions(seed: u64, mutation: u32) -> Result<explorer::Path> {
    let settings = [("MaxRung", 0), ("Mutant", mutation)];
    let (rounds, form) = (PREEMPTIONS.1, Form::Native);
    play(&Race { seed, rounds, settings: &settings, form, trusts: false, of: Of::Preemptions })
}

/// No schedule of packets and preemptions has the driver name a fence that is not over, and each packet ends.
fn no_answer_is_wrong() -> Result<(), Failed> {
    let (mut steps, mut paths) = (0, HashSet::new());
    let seeds = variable("EXPLORE_SEED").map_or(1..=PREEMPTIONS.0, |seed| seed..=seed);
    for seed in seeds {
        let path = boot_with_preemptions(seed, 0).map_err(|error| format!("{error:#}"))?;
        steps += path.steps;
        paths.extend(path.rounds);
    }
    println!("{} schedules, {steps} steps", paths.len());
    Ok(())
}

/// With a wrong count of what is over, some schedule shows it.
fn found_with_preemptions(mutation: Mutation) -> Result<(), Failed> {
    for seed in 1..=2 * PREEMPTIONS.0 {
        // CAST: its number.
        if let Err(error) = boot_with_preemptions(seed, mutation as u32) {
            println!("{} with seed {seed}: {error:#}", mutation.name());
            return Ok(());
        }
    }
    Err(format!("{} was not noticed", mutation.name()).into())
}

/// With a function in front of the driver's table, some schedule breaks a rule, the one with this name.
fn found_at_table(decorate: Decorator, rule: &str) -> Result<(), Failed> {
    for seed in 1..=40 {
        let form = Form::Decorated(decorate);
        let race = Race { seed, rounds: EACH, settings: &[], form, trusts: false, of: Of::Waits };
        if let Err(error) = play(&race) {
            let error = format!("{error:#}");
            println!("seed {seed}: {error}");
            return if error.contains(rule) { Ok(()) } else { Err(format!("'{rule}' is not in {error}").into()) };
        }
    }
    Err("it was not noticed".into())
}

/// Two boots of one seed take one path, so that a failure can be played again.
fn a_seed_decides() -> Result<()> {
    let [first, second] = [boot(7, 40, FORMS[0])?, boot(7, 40, FORMS[0])?];
    ensure!(first.rounds == second.rounds && first.steps == second.steps, "two runs of one seed differ");
    let other = boot(8, 40, FORMS[0])?;
    ensure!(first.rounds != other.rounds, "two seeds agree");
    Ok(())
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // The hooks belong to the process, and each boot keeps one processor busy.
    arguments.test_threads = arguments.test_threads.or(Some(2));
    explorer::install();
    let trials = vec![
        Trial::test("no schedule loses a wake", nothing_is_lost),
        Trial::test("StaleHandleInInterrupt: a schedule names a dead fence", || {
            found_at_table(stale::handle_in_interrupt, "DXG-INT-NATIVE-FENCE")
        }),
        Trial::test("a section that does not exclude the interrupt routine: a schedule names a dead fence", || {
            found_at_table(stale::unlocked_section, "DXG-INT-NATIVE-FENCE")
        }),
        Trial::test("AcknowledgesLate: a schedule loses a wake", || found(Mutation::AcknowledgesLate)),
        Trial::test("NotesUnserved: a schedule loses a ring", || found(Mutation::NotesUnserved)),
        Trial::test("shadow: no schedule loses a wake where the OS does not look again", || {
            shadow_needs_no_second_look_of_the_os()
        }),
        Trial::test(
            "shadow: a schedule loses a wake with ShadowNotRechecked, where the OS does not look again",
            || found_in_shadow(Mutation::ShadowNotRechecked, true),
        ),
        Trial::test("shadow: a schedule loses a wake with ShadowFirst, where the OS does not look again", || {
            found_in_shadow(Mutation::ShadowFirst, true)
        }),
        Trial::test("no schedule loses a ring while doorbells go", no_ring_is_lost),
        Trial::test("NoLastLook: a schedule loses a ring", || found_with_pauses(Mutation::NoLastLook)),
        Trial::test("no schedule names a fence that is not over for a preemption", no_answer_is_wrong),
        Trial::test("CountsTakenOff: a schedule counts a packet as completed that has not ended", || {
            found_with_preemptions(Mutation::CountsTakenOff)
        }),
        Trial::test("no fetch is ahead of the last queued value", no_fetch_is_ahead),
        Trial::test("PublishBeforeLastQueued: a fetch is ahead of the last queued value", || {
            found_with_submissions(UserModeMutation::PublishBeforeLastQueued)
        }),
        Trial::test("TellsNothing: a fetch is ahead of the last queued value", || {
            found_with_submissions(UserModeMutation::TellsNothing)
        }),
        Trial::test("a seed decides the schedule", || a_seed_decides().map_err(|error| format!("{error:#}").into())),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}
