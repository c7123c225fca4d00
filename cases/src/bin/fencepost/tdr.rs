//! `fencepost tdr`: the jobs about timeouts on this Windows machine.

use super::program::say_driver;
use anyhow::{Context, Result, bail};
use clap::Args;
use portable_cases::arguments::{list, setting, write_json};
use portable_cases::escape::EscapeStart;
use portable_cases::jobs::{JOBS, Job, REQUIREMENT, TooBusy, find};
use portable_cases::machine::Machine;
use portable_cases::windows::{Windows, user_mode_driver};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The portable jobs of Microsoft's kit about timeouts, on this machine's adapter
#[derive(Args)]
pub struct Arguments {
    /// The short name of a job (without one: all that have a portable part)
    name: Option<String>,
    /// List the jobs with their criteria, and play nothing
    #[arg(long)]
    pub list: bool,
    /// Play the jobs that ask Windows for resets, too: of an engine, and of the adapter, whose every user loses its
    /// devices. For machines of a laboratory; the prompt must be an elevated one
    #[arg(long)]
    force_resets: bool,
    /// The user-mode driver (without this: that beside this program, else out/fencepost_umd.dll)
    #[arg(long, value_name = "FILE")]
    umd: Option<PathBuf>,
    /// TdrDelay, as the registry has it
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    tdr_delay: u64,
    /// What the driver has under its registry key, where that is not the default. A job that needs another value is
    /// skipped, and says so
    #[arg(long = "setting", value_name = "NAME=NUMBER", value_parser = setting)]
    pub settings: Vec<(String, u32)>,
    /// Write the results to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Serialize)]
struct Verdict {
    id: &'static str,
    name: &'static str,
    criterion: &'static str,
    source: &'static str,
    kit: &'static [&'static str],
    published: &'static str,
    status: &'static str,
    reason: String,
    ms: u128,
}

#[derive(Serialize)]
struct Report {
    schema: u32,
    mode: &'static str,
    requirement: &'static str,
    rung: u32,
    tdr_delay: u64,
    settings: BTreeMap<String, u32>,
    results: Vec<Verdict>,
}

/// What a job came to: a word, and why.
fn played(job: &Job, windows: &Windows, forces: bool) -> (&'static str, String) {
    let part = match job.portable {
        Ok(part) => part,
        Err(why) => return ("skip", format!("over the model alone (./x tdr): {why}")),
    };
    if part.forces && !forces {
        return ("skip", "it asks for resets: --force-resets".to_owned());
    }
    if let Some(why) = part.lacks(windows) {
        return ("skip", why);
    }
    match (part.play)(windows) {
        Ok(()) => ("pass", String::new()),
        Err(error) if error.is::<TooBusy>() => ("skip", error.to_string()),
        Err(error) => ("FAIL", format!("{error:#}")),
    }
}

/// Plays what the arguments ask for. Returns whether everything held.
pub fn run(arguments: Arguments, machine: &Machine) -> Result<bool> {
    let jobs: Vec<&Job> = match &arguments.name {
        Some(name) => vec![find(name).with_context(|| format!("no job is called '{name}'; --list shows them"))?],
        None => JOBS.iter().collect(),
    };
    list(REQUIREMENT);
    if arguments.list {
        for Job { id, name, criterion, source, kit, published, portable } in jobs {
            let part = portable.map_or("over the model alone", |_| "portable");
            list(&format!("{id:14}{name} ({part})\n      {criterion}\n      {source}"));
            portable.err().iter().for_each(|why| list(&format!("      over the model alone: {why}")));
            kit.iter().for_each(|name| list(&format!("      kit: {name}")));
            list(&format!("      published: {published}"));
        }
        return Ok(true);
    }
    let mut settings = arguments.settings.clone();
    if !settings.iter().any(|(name, _)| name.eq_ignore_ascii_case("PreemptInBuffers")) {
        settings.push(("PreemptInBuffers".to_owned(), 1));
    }
    let delay = Duration::from_secs(arguments.tdr_delay);
    if let Some(what) = machine.missing() {
        bail!("nothing is played: {what}");
    }
    let windows = Windows::new(&user_mode_driver(arguments.umd.as_deref()), delay, settings.clone())?;
    let (EscapeStart { rung, .. }, _) = say_driver(&windows)?;
    let mut results = Vec::new();
    for job in jobs {
        let begun = Instant::now();
        let (status, reason) = played(job, &windows, arguments.force_resets);
        println!("{status}  {}", job.name);
        if !reason.is_empty() {
            println!("      {reason}");
        }
        let Job { id, name, criterion, source, kit, published, .. } = *job;
        let ms = begun.elapsed().as_millis();
        results.push(Verdict { id, name, criterion, source, kit, published, status, reason, ms });
    }
    let held = results.iter().all(|verdict| verdict.status != "FAIL");
    if let Some(path) = &arguments.json {
        let (requirement, settings) = (REQUIREMENT, settings.into_iter().collect());
        let tdr_delay = arguments.tdr_delay;
        let report = Report { schema: 1, mode: "windows", requirement, rung, tdr_delay, settings, results };
        write_json(path, &report)?;
    }
    Ok(held)
}
