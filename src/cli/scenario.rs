//! `scenario`: conformance cases.

use super::dump::{Dump, NO_IMAGES};
use super::{Family, Mode, Settings, advise, check_json, say_faults, say_windows, write_json};
use anyhow::{Result, bail, ensure};
use clap::{Args, value_parser};
use fencepost::dump::OfCases;
use fencepost::scenario::{
    AT_ONCE, GROUPS, LIMIT, Outcome, Scenario, Stage, Status, all, list, run_at_once, select_of, why_unreached,
};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Conformance cases, against the shipped images or the same code linked in
#[derive(Args)]
#[command(name = "scenario", after_help = groups())]
pub struct Arguments {
    /// An id (NF-01), a group (NF), or all
    name: Option<String>,
    /// List ids, titles and sources of the cases that NAME selects (without NAME: of all), and play nothing
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    mode: Mode,
    /// Seed of the cases that draw random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Time that a case may take; one that has not ended by then fails
    #[arg(long, value_name = "SECONDS", default_value_t = LIMIT.as_secs())]
    #[arg(value_parser = value_parser!(u64).range(1..))]
    limit: u64,
    /// Play each case so many times
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = value_parser!(u32).range(1..=100_000))]
    repeat: u32,
    /// Play so many cases at once
    #[arg(long, value_name = "N", default_value_t = AT_ONCE as u32)]
    #[arg(value_parser = value_parser!(u32).range(1..=64))]
    jobs: u32,
    #[command(flatten)]
    family: Family,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    dump: Dump,
    /// Write the results, or with --list the cases, to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    schema: u32,
    mode: &'static str,
    seed: u64,
    windows: String,
    settings: BTreeMap<String, u64>,
    results: Vec<Outcome>,
    /// By each rule that was reached, the cases that did.
    rules: BTreeMap<&'static str, BTreeSet<&'static str>>,
    /// The rules that none of the cases has reached.
    rules_not_reached: Vec<NotReached>,
}

/// A rule that was not reached.
#[derive(Serialize)]
struct NotReached {
    rule: &'static str,
    /// Why no case of all reaches it; empty where some does, and was not among those that were played.
    why: &'static str,
}

/// By each rule that was reached, the cases that did.
fn rules(results: &[Outcome]) -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let mut rules = BTreeMap::<_, BTreeSet<_>>::new();
    for outcome in results {
        for rule in &outcome.reached {
            rules.entry(*rule).or_default().insert(outcome.id);
        }
    }
    rules
}

/// A line for each play that is to be seen: all, or of cases that were played several times those that did not pass,
/// and a line for each case.
fn say(cases: &[&Scenario], results: &[Outcome], repeat: u32) {
    for outcome in results {
        let mark = match outcome.status {
            Status::Pass if repeat != 1 => continue,
            Status::Pass => "pass",
            Status::Fail => "FAIL",
            Status::Skip => "skip",
        };
        let title = cases.iter().find(|case| case.id == outcome.id).map_or("", |case| case.title);
        println!("{mark}  {:6} {title} ({} ms)", outcome.id, outcome.ms);
        if outcome.status != Status::Pass {
            println!("      {}", outcome.reason);
        }
        if !outcome.numbers.is_empty() {
            let numbers: Vec<_> = outcome.numbers.iter().map(|(name, value)| format!("{name}={value}")).collect();
            println!("      {}", numbers.join(" "));
        }
    }
    for case in cases.iter().filter(|_| repeat != 1) {
        let plays: Vec<_> = results.iter().filter(|outcome| outcome.id == case.id).collect();
        let passed = plays.iter().filter(|outcome| outcome.status == Status::Pass).count();
        let times = plays.iter().map(|outcome| outcome.ms);
        let (least, most) = (times.clone().min().unwrap_or(0), times.max().unwrap_or(0));
        println!("{:6} {passed} of {} passed ({least} to {most} ms)", case.id, plays.len());
        let names: BTreeSet<_> = plays.iter().flat_map(|outcome| outcome.numbers.keys()).collect();
        for name in names {
            let values = plays.iter().filter_map(|outcome| outcome.numbers.get(name));
            let (least, most) = (values.clone().min().unwrap_or(&0), values.max().unwrap_or(&0));
            println!("      {name}={least} to {most}");
        }
    }
}

/// What `--list` writes.
#[derive(Serialize)]
struct List {
    schema: u32,
    cases: Vec<Listed>,
}

#[derive(Serialize)]
struct Listed {
    id: &'static str,
    title: &'static str,
    source: &'static str,
}

/// The groups, a line each.
fn groups() -> String {
    let lines =
        GROUPS.iter().map(|group| format!("\n  {}  {:3} cases  {}", group.name, group.cases().count(), group.title));
    format!("Groups:{}", lines.collect::<String>())
}

impl Arguments {
    /// Those of `all` that are named.
    fn cases(&self, all: impl IntoIterator<Item = &'static Scenario>) -> Result<Vec<&'static Scenario>> {
        let name = self.name.as_deref().unwrap_or("all");
        let cases = select_of(all, name);
        ensure!(
            !cases.is_empty(),
            "no case and no group is called '{name}': it is one id, one group, or all; --list shows them"
        );
        Ok(cases)
    }

    /// Checks the arguments. Returns whether the image files run.
    pub fn check(&self) -> Result<bool> {
        check_json(self.json.as_ref())?;
        if self.name.is_none() && !self.list {
            bail!("say what to play: an id (NF-01), a group, or all\n{}", groups());
        }
        self.check_of(all())
    }

    /// [`check`](Self::check), for cases of another crate.
    pub fn check_of(&self, all: impl IntoIterator<Item = &'static Scenario>) -> Result<bool> {
        self.settings.checked()?;
        check_json(self.json.as_ref())?;
        let cases = self.cases(all)?;
        self.dump.check()?;
        if self.dump.path().is_some() {
            ensure!(!self.mode.native, NO_IMAGES);
            ensure!(
                cases.len() == 1 && self.repeat == 1,
                "--dump is of one play: name a case by its id, without --repeat"
            );
        }
        Ok(!self.list && !self.mode.native)
    }
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    run_of(arguments, all())
}

/// [`run`], for cases of another crate.
pub fn run_of(arguments: &Arguments, all: impl IntoIterator<Item = &'static Scenario>) -> Result<bool> {
    let settings = arguments.settings.checked()?;
    let cases = arguments.cases(all)?;
    if arguments.list {
        print!("{}", list(&cases));
        if let Some(path) = &arguments.json {
            let cases = cases.iter().map(|case| Listed { id: case.id, title: case.title, source: case.source });
            write_json(path, &List { schema: 1, cases: cases.collect() })?;
        }
        return Ok(true);
    }
    let form = arguments.mode.form()?;
    // CAST: hundreds.
    let bar = ProgressBar::new(cases.len() as u64 * u64::from(arguments.repeat));
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    let stage = Stage::new(form.clone(), arguments.seed).with_windows(arguments.family.windows);
    let dumps = Arc::new(OfCases::new(arguments.dump.path().is_some()));
    let stage = stage.with_settings(settings);
    let stage = if arguments.mode.native { stage } else { stage.with_dumps(&dumps) };
    let plays: Vec<_> = cases.iter().copied().flat_map(|case| (0..arguments.repeat).map(move |_| case)).collect();
    let limit = Duration::from_secs(arguments.limit);
    let results = run_at_once(arguments.jobs as usize, &plays, &stage, limit, &|outcome| {
        bar.inc(1);
        bar.set_message(outcome.id);
    });
    bar.finish_and_clear();
    let count = |status| results.iter().filter(|outcome| outcome.status == status).count();
    let (passed, failed, skipped) = (count(Status::Pass), count(Status::Fail), count(Status::Skip));
    say(&cases, &results, arguments.repeat);
    for (id, recorder) in dumps.take() {
        arguments.dump.write(&recorder, id, true)?;
    }
    say_windows(arguments.family.windows);
    say_faults(arguments.family.windows, settings);
    if failed != 0 {
        advise(arguments.family.windows, settings);
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped, {} mode", form.mode());
    if let Some(path) = &arguments.json {
        let (seed, windows) = (arguments.seed, arguments.family.windows.to_string());
        let settings = settings.iter().cloned().collect();
        let rules = rules(&results);
        let all = fencepost::check::index();
        let not_reached = all.iter().filter(|rule| !rules.contains_key(rule.id));
        let why = |rule| NotReached { rule, why: why_unreached(rule).unwrap_or_default() };
        let rules_not_reached = not_reached.map(|rule| why(rule.id)).collect();
        let mode = form.mode();
        write_json(path, &Report { schema: 1, mode, seed, windows, settings, results, rules, rules_not_reached })?;
    }
    Ok(failed == 0)
}
