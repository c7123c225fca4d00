//! `soak`: runs of hours, for which `./x test` plays a part.

use super::{Mode, Settings, say_faults};
use anyhow::{Result, bail, ensure};
use clap::{Args, ValueEnum};
use dxgkrnl_model::personality::Windows;
use dxgkrnl_model::personality::covering::rows;
use dxgkrnl_model::personality::family::READINGS;
use fencepost::demo::audit::hold;
use fencepost::scenario::{Deaths, LIMIT, Stage, Status, Storm, all, crowd, deaths, run as play, storm};
use fencepost::setting::{Assignment, companions};
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Instant;

/// Long runs: the whole of what the tests play a part of
#[derive(Args)]
#[command(name = "soak")]
pub struct Arguments {
    /// What is played
    name: Name,
    #[command(flatten)]
    mode: Mode,
    /// Rungs, from the lowest: 0 packets, 1 hardware queues, 2 native fences, 3 doorbells; `crowd` is on rung 3 alone
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = rung, default_values_t = [0, 1, 2, 3])]
    rung: Vec<u32>,
    /// How many seeds draw, from 1 on: of `readings` a member of the family of Windows, beside the default, each row
    /// and each reading by itself; of `resets` and `kill` the moments; of `crowd` how often it is played
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(0..=100_000))]
    seeds: u64,
    #[command(flatten)]
    settings: Settings,
}

/// Which long run.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    /// The demo and the conformance cases, on each rung under each reading of the documents that leaves them something
    /// to play
    Readings,
    /// A thousand resets, nine hundred of engines and a hundred of the adapter, at random points of a running load, on
    /// each rung from each seed
    Resets,
    /// A thousand client processes that SIGKILL ends at random moments, and ten thousand that are terminated inside
    /// calls, shared out among the rungs and seeds
    Kill,
    /// A thousand queues, a hundred submissions each, from eight threads on four doorbells, from each seed, on rung 3
    Crowd,
}

/// The storm that is played from a seed: every other one with engines that do not come off command buffers.
const fn storm_of(seed: u64) -> Storm {
    Storm { engines: 900, adapters: 100, seed, preempts: seed % 2 == 1 }
}

/// Parses a rung.
fn rung(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(rung @ 0..=3) => Ok(rung),
        _ => Err("a rung is 0 packets, 1 hardware queues, 2 native fences or 3 doorbells".to_owned()),
    }
}

impl Arguments {
    /// Checks the arguments. Returns whether the image files run.
    pub fn check(&self) -> Result<bool> {
        for (at, rung) in self.rung.iter().enumerate() {
            ensure!(!self.rung[..at].contains(rung), "rung {rung} is given twice");
        }
        wanted(self)?;
        ensure!(self.seeds != 0 || self.name == Name::Readings, "no seed is left to play");
        Ok(!self.mode.native)
    }
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    arguments.check()?;
    match arguments.name {
        Name::Readings => readings(arguments),
        Name::Resets => resets(arguments),
        Name::Kill => kill(arguments),
        Name::Crowd => many(arguments),
    }
}

/// Readings under which the driver stays below a rung, by their names: the highest that is played. The doorbell calls
/// of the 28000 line are others, so the user-mode driver submits through the kernel there.
const HIGHEST: &[(&str, u32)] = &[("w28000", 2)];

/// Whether there is something to see of this Windows on a rung.
fn is_reached(rung: u32, windows: Windows) -> bool {
    let readings = windows.readings();
    HIGHEST.iter().all(|(name, highest)| rung <= *highest || !readings.iter().any(|reading| reading.name == *name))
}

/// What is played with: the rung, what this Windows needs, and what the caller wants.
fn settings(rung: u32, windows: Windows, wanted: &[Assignment]) -> Vec<Assignment> {
    let needed = companions(windows).map(|(_, setting, value)| (setting.to_owned(), value));
    std::iter::once(("MaxRung".to_owned(), rung.into())).chain(needed).chain(wanted.iter().cloned()).collect()
}

/// The settings that the caller wants, each name once, and none that the rounds set.
fn wanted(arguments: &Arguments) -> Result<&[Assignment]> {
    let wanted = arguments.settings.checked()?;
    let rounds = |name: &str| match name {
        "MaxRung" => Some("--rung"),
        "PteByteAddresses" => Some("the reading pte-bytes"),
        _ => None,
    };
    for (name, _) in wanted {
        if let Some(what) = rounds(name) {
            let alone = if arguments.name == Name::Crowd && name == "MaxRung" {
                ", and a crowd is on rung 3 alone"
            } else {
                ""
            };
            bail!("soak sets {name} in each round: {what} decides{alone}");
        }
    }
    Ok(wanted)
}

fn readings(arguments: &Arguments) -> Result<bool> {
    let wanted = wanted(arguments)?;
    let form = arguments.mode.form()?;
    let named = (0..READINGS.len()).map(Windows::Reading);
    let rows = (0..rows().len()).map(Windows::Row);
    let drawn = (1..=arguments.seeds).map(Windows::Seed);
    let members: Vec<_> = std::iter::once(Windows::Default).chain(named).chain(rows).chain(drawn).collect();
    let cases: Vec<_> = all().collect();
    let rungs = arguments.rung.iter().copied();
    let played_on = |rung: u32| members.iter().filter(move |windows| is_reached(rung, **windows));
    let rounds: Vec<_> = rungs.flat_map(|rung| played_on(rung).map(move |windows| (rung, windows))).collect();
    println!("{} rounds of the demo and {} cases, {} mode", rounds.len(), cases.len(), form.mode());
    say_faults(Windows::Default, wanted);
    // CAST: thousands.
    let bar = ProgressBar::new((rounds.len() * cases.len()) as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {eta} {msg}") {
        bar.set_style(style);
    }
    let (mut played, mut failed) = (0, 0);
    for (rung, windows) in &rounds {
        let begun = Instant::now();
        let before = (played, failed);
        let settings = settings(*rung, **windows, wanted);
        let stage = Stage::new(form.clone(), 1).with_windows(**windows).with_settings(&settings);
        let results = play(&cases, &stage, LIMIT, &|outcome| {
            bar.inc(1);
            bar.set_message(outcome.id);
        });
        if let Err(error) = hold(&form, **windows, &settings) {
            failed += 1;
            bar.suspend(|| println!("FAIL  demo on rung {rung}, Windows {windows}: {error:#}"));
        }
        played += 1 + results.iter().filter(|outcome| outcome.status != Status::Skip).count();
        for outcome in results.iter().filter(|outcome| outcome.status == Status::Fail) {
            failed += 1;
            bar.suspend(|| println!("FAIL  {} on rung {rung}, Windows {windows}: {}", outcome.id, outcome.reason));
        }
        let (seconds, failures) = (begun.elapsed().as_secs(), failed - before.1);
        let count = played - before.0;
        bar.suspend(|| println!("rung {rung}, {windows}: {count} played, {failures} failed, {seconds} s"));
    }
    bar.finish_and_clear();
    println!("{} passed, {failed} failed, {} mode, {} rounds", played - failed, form.mode(), rounds.len());
    Ok(failed == 0)
}

fn resets(arguments: &Arguments) -> Result<bool> {
    storms(arguments, &arguments.rung, &|stage| {
        let Storm { engines, adapters, .. } = storm_of(stage.seed());
        (format!("{engines} + {adapters} resets"), storm(stage, storm_of(stage.seed())))
    })
}

/// How many processes die in all.
const DEATHS: Deaths = Deaths { killed: 1_000, terminated: 10_000, seed: 0 };

fn kill(arguments: &Arguments) -> Result<bool> {
    // CAST: four rungs at most.
    let rounds = (arguments.rung.len() as u64 * arguments.seeds).max(1);
    storms(arguments, &arguments.rung, &|stage| {
        let (killed, terminated) = (DEATHS.killed.div_ceil(rounds), DEATHS.terminated.div_ceil(rounds));
        let what = format!("{killed} killed + {terminated} terminated");
        (what, deaths(stage, Deaths { killed, terminated, seed: stage.seed() }))
    })
}

/// Queues, and submissions of each.
const CROWD: (usize, usize) = (1_000, 100);

fn many(arguments: &Arguments) -> Result<bool> {
    // Without --rung it has all of them.
    let is_left_out = arguments.rung == [0, 1, 2, 3];
    ensure!(
        is_left_out || arguments.rung == [3],
        "a crowd needs doorbells, which are on rung 3 alone: give --rung 3, or none"
    );
    storms(arguments, &[3], &|stage| {
        let (queues, times) = CROWD;
        (format!("{queues} queues x {times}"), crowd(stage, queues, times))
    })
}

/// Plays a storm on each rung from each seed; `play` returns what it was and how it went.
fn storms(arguments: &Arguments, rungs: &[u32], play: &dyn Fn(&Stage) -> (String, Result<()>)) -> Result<bool> {
    let wanted = wanted(arguments)?;
    let form = arguments.mode.form()?;
    let (mut passed, mut failed) = (0, 0);
    for rung in rungs {
        for seed in 1..=arguments.seeds {
            let begun = Instant::now();
            eprintln!("rung {rung}, seed {seed} of {} begins", arguments.seeds);
            let settings = settings(*rung, Windows::Default, wanted);
            let stage = Stage::new(form.clone(), seed).with_settings(&settings);
            let (what, played) = play(&stage);
            let told = match played {
                Ok(()) => {
                    passed += 1;
                    "pass".to_owned()
                }
                Err(error) => {
                    failed += 1;
                    format!("FAIL {error:#}")
                }
            };
            let seconds = begun.elapsed().as_secs();
            println!("rung {rung}, seed {seed}: {what}, {seconds} s: {told}");
        }
    }
    println!("{passed} passed, {failed} failed, {} mode", form.mode());
    Ok(failed == 0)
}
