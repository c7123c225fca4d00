//! `soak`: long runs.

use super::Mode;
use anyhow::Result;
use clap::{Args, ValueEnum};
use dxgkrnl_model::personality::Windows;
use dxgkrnl_model::personality::family::READINGS;
use fencepost::demo::audit::hold;
use fencepost::scenario::{Stage, Status, all, run as play};
use indicatif::{ProgressBar, ProgressStyle};

/// Long runs: what CI plays a slice of, whole
#[derive(Args)]
#[command(name = "soak")]
pub struct Arguments {
    /// What is played
    name: Name,
    #[command(flatten)]
    mode: Mode,
    /// Rungs, from the lowest: 0 packets, 1 hardware queues, 2 native fences, 3 doorbells
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [0, 1, 2, 3])]
    rung: Vec<u32>,
    /// Members of the family drawn by these many seeds, beside each reading by its name
    #[arg(long, value_name = "N", default_value_t = 4)]
    seeds: u64,
}

/// The long runs.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    /// The demo and every conformance case, on every rung under every reading of the documents that seeds draw
    Readings,
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    match arguments.name {
        Name::Readings => readings(arguments),
    }
}

fn readings(arguments: &Arguments) -> Result<bool> {
    let form = arguments.mode.form()?;
    let named = (0..READINGS.len()).filter(|at| READINGS[*at].drawn).map(Windows::Reading);
    let members: Vec<_> =
        std::iter::once(Windows::Default).chain(named).chain((1..=arguments.seeds).map(Windows::Seed)).collect();
    let cases: Vec<_> = all().collect();
    let rounds = members.len() * arguments.rung.len();
    // CAST: thousands.
    let bar = ProgressBar::new((rounds * cases.len()) as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {eta} {msg}") {
        bar.set_style(style);
    }
    let (mut played, mut failed) = (0, 0);
    for rung in &arguments.rung {
        for windows in &members {
            let stage = Stage::new(form.clone(), 1).with_windows(*windows).with_setting("MaxRung", *rung);
            let results = play(&cases, &stage, &|outcome| {
                bar.inc(1);
                bar.set_message(outcome.id);
            });
            if let Err(error) = hold(&form, *windows, &[("MaxRung".to_owned(), (*rung).into())]) {
                failed += 1;
                bar.suspend(|| println!("FAIL  demo on rung {rung}, Windows {windows}: {error:#}"));
            }
            played += 1 + results.iter().filter(|outcome| outcome.status != Status::Skip).count();
            for outcome in results.iter().filter(|outcome| outcome.status == Status::Fail) {
                failed += 1;
                bar.suspend(|| println!("FAIL  {} on rung {rung}, Windows {windows}: {}", outcome.id, outcome.reason));
            }
        }
    }
    bar.finish_and_clear();
    println!("{} passed, {failed} failed, {} mode, {rounds} rounds", played - failed, form.mode());
    Ok(failed == 0)
}
