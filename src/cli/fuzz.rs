//! `fuzz`: hostile processes beside a good one, for as long as is asked for.

use super::{Mode, say_what_is_played};
use anyhow::{Result, ensure};
use clap::Args;
use dxgkrnl_model::personality::Windows;
use fencepost::fuzz::{FUZZERS, Fuzzer, Plan, find, run as play};
use fencepost::world::Form;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Hostile processes beside a good one, which must not notice: random input from a seed, on real threads
///
/// The seeds of tests/corpus come first, then others. The seed decides what each thread does; the threads are real, so
/// a finding is played again by --seed as often as it takes. What the model finds broken counts, but for what a client
/// can break by itself.
#[derive(Args)]
#[command(name = "fuzz")]
pub struct Arguments {
    /// One of them (--list names them)
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// Name them, and play nothing
    #[arg(long)]
    list: bool,
    /// How long to go on
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seconds: u64,
    /// Play the rounds of this seed alone, again and again
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    mode: Mode,
}

impl Arguments {
    /// The fuzzer that is named, if one is.
    fn fuzzer(&self) -> Result<Option<&'static Fuzzer>> {
        let Some(name) = self.name.as_deref() else { return Ok(None) };
        let fuzzer = find(name);
        ensure!(fuzzer.is_some(), "no fuzzer is called '{name}'; --list names them");
        Ok(fuzzer)
    }

    /// Checks the arguments. Returns whether the image files run.
    pub fn check(&self) -> Result<bool> {
        Ok(self.fuzzer()?.is_some_and(|fuzzer| fuzzer.has_driver) && !self.list && !self.mode.native)
    }
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    let name = arguments.name.as_deref();
    let fuzzer = arguments.fuzzer()?;
    if arguments.list {
        for fuzzer in FUZZERS.iter().filter(|fuzzer| name.is_none_or(|name| name == fuzzer.name)) {
            println!("{:12}{}", fuzzer.name, fuzzer.about);
        }
        return Ok(true);
    }
    let Some(fuzzer) = fuzzer else { return Ok(true) };
    // The GPU by itself is the same code in either mode.
    let form = if fuzzer.has_driver { arguments.mode.form()? } else { Form::Native };
    say_what_is_played(Windows::Default, &[]);
    // Another one each time; microseconds are as good as any.
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() % 1_000_000_000);
    // CAST: below a thousand million.
    let first = arguments.seed.unwrap_or(clock as u64);
    println!("{}, {} mode, {} s, seeds from {first}", fuzzer.name, form.mode(), arguments.seconds);
    let length = Duration::from_secs(arguments.seconds);
    let mode = form.mode();
    let plan = Plan { form, first, alone: arguments.seed.is_some(), length, mutation: 0 };
    let outcome = play(fuzzer, &plan)?;
    println!("{}", outcome.coverage);
    println!("{} rounds held", outcome.rounds);
    if let Some((seed, finding)) = &outcome.finding {
        println!("the round of seed {seed} found: {finding}");
        let form = if fuzzer.has_driver && mode == "native" { " --native" } else { "" };
        println!("again: ./x fuzz {}{form} --seed {seed}", fuzzer.name);
    }
    Ok(outcome.finding.is_none())
}
