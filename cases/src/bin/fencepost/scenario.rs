//! `fencepost scenario`: the portable conformance cases on this Windows machine.

use super::program::say_driver;
use anyhow::{Result, bail};
use clap::Args;
use portable_cases::arguments::{list, setting, write_json};
use portable_cases::escape::EscapeStart;
use portable_cases::machine::Machine;
use portable_cases::submission::{CASES, Case, find};
use portable_cases::windows::{Windows, user_mode_driver};
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Conformance cases that calls of user mode can play, on this machine's adapter
#[derive(Args)]
pub struct Arguments {
    /// The id of a case, or the letters that a group's ids begin with (without one: all)
    name: Option<String>,
    /// List the cases, and play nothing
    #[arg(long)]
    pub list: bool,
    /// The user-mode driver (without this: that beside this program, else out/fencepost_umd.dll)
    #[arg(long, value_name = "FILE")]
    umd: Option<PathBuf>,
    /// What the driver has under its registry key, where that is not the default. A case that needs another value
    /// is skipped, and says so
    #[arg(long = "setting", value_name = "NAME=NUMBER", value_parser = setting)]
    pub settings: Vec<(String, u32)>,
    /// Write the results to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Serialize)]
struct Verdict {
    id: &'static str,
    title: &'static str,
    source: &'static str,
    status: &'static str,
    reason: String,
    ms: u128,
}

#[derive(Serialize)]
struct Report {
    schema: u32,
    mode: &'static str,
    rung: u32,
    results: Vec<Verdict>,
}

/// The cases that a name asks for.
fn chosen(name: Option<&str>) -> Result<Vec<&'static Case>> {
    let Some(name) = name else { return Ok(CASES.iter().collect()) };
    if let Some(case) = find(name) {
        return Ok(vec![case]);
    }
    let group = format!("{}-", name.to_ascii_uppercase());
    let cases: Vec<_> = CASES.iter().filter(|case| case.id.starts_with(&group)).collect();
    anyhow::ensure!(!cases.is_empty(), "no case and no group is called '{name}'; --list shows them");
    Ok(cases)
}

/// Plays what the arguments ask for. Returns whether everything held.
pub fn run(arguments: Arguments, machine: &Machine) -> Result<bool> {
    let cases = chosen(arguments.name.as_deref())?;
    if arguments.list {
        for Case { id, title, source, rung, needs, .. } in cases {
            let needs = needs.map_or(String::new(), |(name, value)| format!(", with {name}={value}"));
            list(&format!("{id} {title}\n      from rung {rung} on{needs}; {source}"));
        }
        return Ok(true);
    }
    let delay = Duration::from_secs(2);
    if let Some(what) = machine.missing() {
        bail!("nothing is played: {what}");
    }
    let windows = Windows::new(&user_mode_driver(arguments.umd.as_deref()), delay, arguments.settings)?;
    let (EscapeStart { rung, .. }, _) = say_driver(&windows)?;
    let mut results = Vec::new();
    for case in cases {
        let begun = Instant::now();
        let (status, reason) = match case.lacks(&windows, rung) {
            Some(why) => ("skip", why),
            None => match (case.play)(&windows) {
                Ok(()) => ("pass", String::new()),
                Err(error) => ("FAIL", format!("{error:#}")),
            },
        };
        let Case { id, title, source, .. } = *case;
        println!("{status}  {id}  {title}");
        if !reason.is_empty() {
            println!("      {reason}");
        }
        results.push(Verdict { id, title, source, status, reason, ms: begun.elapsed().as_millis() });
    }
    let held = results.iter().all(|verdict| verdict.status != "FAIL");
    if let Some(path) = &arguments.json {
        let report = Report { schema: 1, mode: "windows", rung, results };
        write_json(path, &report)?;
    }
    Ok(held)
}
