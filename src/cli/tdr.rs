//! `tdr`: the kit's jobs about timeouts.

use super::{Family, Mode, Settings, advise, check_json, say_faults, say_windows, write_json};
use anyhow::{Context, Result};
use clap::Args;
use fencepost::scenario::{LIMIT, Outcome, Stage, Status, all, lowest, run as play};
use fencepost::tdr::{JOBS, Job, REQUIREMENT, RUNGS, cases, find, list};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The jobs of Microsoft's kit about timeouts, by the cases that play them, on the rungs 0 and 3
#[derive(Args)]
#[command(name = "tdr", after_help = names())]
pub struct Arguments {
    /// The name of a job, short or whole (without one: all); the short ones are below
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
    /// Write the results, or with --list the jobs, to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The jobs by their names, for the help.
fn names() -> String {
    let line = |job: &Job| {
        let id = if job.portable.is_ok() { job.id.to_owned() } else { format!("{} *", job.id) };
        format!("\n  {id:15}{}", job.name)
    };
    let why = "\n\n* has no part that runs on Windows, too (`cargo make tdr`): --list says why".to_owned();
    std::iter::once("Jobs:".to_owned()).chain(JOBS.iter().map(line)).chain([why]).collect()
}

/// What is known of a job.
#[derive(Serialize)]
struct About {
    id: &'static str,
    name: &'static str,
    criterion: &'static str,
    source: &'static str,
    /// The kit's jobs that it stands for.
    kit: &'static [&'static str],
    /// What the kit's page says of when they pass.
    published: &'static str,
    /// Why no part of it runs on Windows, too; nothing where one does.
    over_the_model_alone: Option<&'static str>,
}

impl About {
    fn of(job: &Job) -> Self {
        let Job { id, name, criterion, source, kit, published, portable } = *job;
        Self { id, name, criterion, source, kit, published, over_the_model_alone: portable.err() }
    }
}

#[derive(Serialize)]
struct Verdict {
    #[serde(flatten)]
    about: About,
    rung: u8,
    status: Ruling,
    /// Its cases that need a higher rung.
    not_played: Vec<&'static str>,
    results: Vec<Outcome>,
}

/// How a job ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Ruling {
    /// Every case that was to be played passed.
    Pass,
    /// Some passed, and others were skipped.
    Partial,
    /// A case failed.
    Fail,
    /// No case was played.
    Skip,
}

impl Ruling {
    fn mark(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Partial => "partial",
            Self::Fail => "FAIL",
            Self::Skip => "skip",
        }
    }
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

/// What `--list` writes.
#[derive(Serialize)]
struct List {
    schema: u32,
    requirement: &'static str,
    jobs: Vec<Listed>,
}

#[derive(Serialize)]
struct Listed {
    #[serde(flatten)]
    about: About,
    cases: &'static [&'static str],
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
        check_json(self.json.as_ref())?;
        self.jobs()?;
        Ok(!self.list && !self.mode.native)
    }
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    let settings = arguments.settings.checked()?;
    let jobs = arguments.jobs()?;
    if arguments.list {
        print!("{REQUIREMENT}\n\n{}", list(&jobs));
        if let Some(path) = &arguments.json {
            let jobs = jobs.iter().map(|job| Listed { about: About::of(job), cases: cases(job.id) }).collect();
            write_json(path, &List { schema: 1, requirement: REQUIREMENT, jobs })?;
        }
        return Ok(true);
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
            println!("{:7}  rung {rung}  {:14}{}", status.mark(), job.id, job.name);
            for outcome in results.iter().filter(|outcome| outcome.status != Status::Pass) {
                println!("      {}: {}", outcome.id, outcome.reason);
            }
            let is_higher = |id: &&str| u64::from(rung) < u64::from(lowest(id).0);
            let not_played: Vec<_> = cases(job.id).iter().copied().filter(is_higher).collect();
            for case in &not_played {
                println!("      {case}: not played on this rung; needs rung {}", lowest(case).0);
            }
            verdicts.push(Verdict { about: About::of(job), rung, status, not_played, results });
        }
    }
    let count = |status| verdicts.iter().filter(|verdict| verdict.status == status).count();
    let (passed, partial) = (count(Ruling::Pass), count(Ruling::Partial));
    let (failed, skipped) = (count(Ruling::Fail), count(Ruling::Skip));
    say_windows(arguments.family.windows);
    say_faults(arguments.family.windows, settings);
    if failed != 0 {
        advise(arguments.family.windows, settings);
    }
    println!("{passed} passed, {partial} partial, {failed} failed, {skipped} skipped, {} mode", form.mode());
    if let Some(path) = &arguments.json {
        let (seed, windows) = (arguments.seed, arguments.family.windows.to_string());
        let (mode, requirement) = (form.mode(), REQUIREMENT);
        let settings = settings.iter().cloned().collect();
        write_json(path, &Report { schema: 1, mode, requirement, seed, windows, settings, results: verdicts })?;
    }
    Ok(failed == 0)
}

/// A job fails with any of its cases, and is skipped where none was played; with cases that passed and others that were
/// skipped it is neither.
fn verdict(results: &[Outcome]) -> Ruling {
    let any = |status| results.iter().any(|outcome| outcome.status == status);
    match (any(Status::Fail), any(Status::Pass), any(Status::Skip)) {
        (true, ..) => Ruling::Fail,
        (_, true, true) => Ruling::Partial,
        (_, true, false) => Ruling::Pass,
        _ => Ruling::Skip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_with_cases_that_were_skipped_does_not_pass() {
        use Status::{Fail, Pass, Skip};
        let of = |all: &[Status]| {
            let outcome = |status: &Status| Outcome {
                id: "",
                group: "",
                status: *status,
                reason: String::new(),
                ms: 0,
                numbers: std::collections::BTreeMap::new(),
                recoveries: Vec::new(),
                reached: std::collections::BTreeSet::new(),
            };
            verdict(&all.iter().map(outcome).collect::<Vec<_>>())
        };
        assert_eq!(of(&[Pass, Pass]), Ruling::Pass);
        assert_eq!(of(&[Pass, Skip]), Ruling::Partial);
        assert_eq!(of(&[Pass, Skip, Fail]), Ruling::Fail);
        assert_eq!((of(&[Skip]), of(&[])), (Ruling::Skip, Ruling::Skip));
    }
}
