//! `tdr`: the kit's jobs about timeouts.

use super::{Family, Mode, Settings, advise, check_writable, faults, write_json};
use anyhow::{Context, Result};
use clap::Args;
use fencepost::scenario::{LIMIT, Outcome, Stage, Status, all, lowest, run as play};
use fencepost::tdr::{JOBS, Job, REQUIREMENT, RUNGS, cases, find, list};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The jobs of Microsoft's kit about timeouts, by the cases that play them, on the rungs 0 and 3
#[derive(Args)]
#[command(name = "tdr")]
pub struct Arguments {
    /// The name of a job, short or whole (without one: all)
    #[arg(value_name = "JOB")]
    name: Option<String>,
    /// List the jobs with their criteria and cases, and play nothing
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    mode: Mode,
    /// Seed of the cases that draw random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    family: Family,
    #[command(flatten)]
    settings: Settings,
    /// Write the results to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Serialize)]
struct Verdict {
    id: &'static str,
    name: &'static str,
    criterion: &'static str,
    source: &'static str,
    /// The kit's jobs that it stands for.
    kit: &'static [&'static str],
    /// What the kit's page says of when they pass.
    published: &'static str,
    rung: u8,
    status: Status,
    results: Vec<Outcome>,
}

#[derive(Serialize)]
struct Report {
    schema: u32,
    mode: &'static str,
    requirement: &'static str,
    seed: u64,
    windows: String,
    settings: BTreeMap<String, u64>,
    results: Vec<Verdict>,
}

impl Arguments {
    /// The jobs that are named.
    fn jobs(&self) -> Result<Vec<&'static Job>> {
        let Some(name) = &self.name else { return Ok(JOBS.iter().collect()) };
        Ok(vec![find(name).with_context(|| format!("no job is called '{name}'; --list shows them"))?])
    }

    /// Checks the arguments. Returns whether the image files run.
    pub fn check(&self) -> Result<bool> {
        self.settings.checked()?;
        self.jobs()?;
        Ok(!self.list && !self.mode.native)
    }
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    let settings = arguments.settings.checked()?;
    let jobs = arguments.jobs()?;
    if arguments.list {
        print!("{REQUIREMENT}\n\n{}", list(&jobs));
        return Ok(true);
    }
    if let Some(path) = &arguments.json {
        check_writable(path)?;
    }
    let form = arguments.mode.form()?;
    let wished = settings.iter().find(|(name, _)| name.eq_ignore_ascii_case("MaxRung"));
    let rungs = wished.map_or(RUNGS.to_vec(), |(_, rung)| u8::try_from(*rung).into_iter().collect());
    println!("{REQUIREMENT}");
    let mut verdicts = Vec::new();
    for rung in rungs {
        let stage = Stage::new(form.clone(), arguments.seed).whole().with_windows(arguments.family.windows);
        let stage = stage.with_settings(&[("MaxRung".to_owned(), u64::from(rung))]).with_settings(settings);
        for job in &jobs {
            let asked = |id: &str| cases(job.id).contains(&id) && u64::from(rung) >= u64::from(lowest(id).0);
            let played: Vec<_> = all().filter(|case| asked(case.id)).collect();
            let results = play(&played, &stage, LIMIT, &|_| ());
            let status = verdict(&results);
            let mark = match status {
                Status::Pass => "pass",
                Status::Fail => "FAIL",
                Status::Skip => "skip",
            };
            println!("{mark}  rung {rung}  {:14}{}", job.id, job.name);
            for outcome in results.iter().filter(|outcome| outcome.status != Status::Pass) {
                println!("      {}: {}", outcome.id, outcome.reason);
            }
            for case in cases(job.id).iter().filter(|id| u64::from(rung) < u64::from(lowest(id).0)) {
                println!("      {case}: not played on this rung; needs rung {}", lowest(case).0);
            }
            let Job { id, name, criterion, source, kit, published, .. } = **job;
            verdicts.push(Verdict { id, name, criterion, source, kit, published, rung, status, results });
        }
    }
    let count = |status| verdicts.iter().filter(|verdict| verdict.status == status).count();
    let (passed, failed, skipped) = (count(Status::Pass), count(Status::Fail), count(Status::Skip));
    if let Some(faults) = faults(settings) {
        println!("faults that are injected: {faults}");
    }
    if failed != 0 {
        advise(arguments.family.windows, settings);
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped, {} mode", form.mode());
    if let Some(path) = &arguments.json {
        let (seed, windows) = (arguments.seed, arguments.family.windows.to_string());
        let (mode, requirement) = (form.mode(), REQUIREMENT);
        let settings = settings.iter().cloned().collect();
        write_json(path, &Report { schema: 1, mode, requirement, seed, windows, settings, results: verdicts })?;
    }
    Ok(failed == 0)
}

/// A job fails with any of its cases, and is skipped where none was played.
fn verdict(results: &[Outcome]) -> Status {
    let is = |status| move |outcome: &Outcome| outcome.status == status;
    if results.iter().any(is(Status::Fail)) {
        Status::Fail
    } else if results.iter().any(is(Status::Pass)) {
        Status::Pass
    } else {
        Status::Skip
    }
}
