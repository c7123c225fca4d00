//! `check`: the model's verdict on any driver.

use super::dump::Dump;
use super::{Family, advise, check_json, checked, say_what_is_played, write_json};
use anyhow::{Context, Result};
use clap::Args;
use dxgkrnl_model::personality::Windows;
use fencepost::check::{Checked, Listed, Outcome, Reach, Terms, check, index, is_ours};
use fencepost::setting::{Assignment, of_any, of_ours};
use nt_model::Severity;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// Load any WDDM display miniport driver (x86-64), start it, use it, stop it, and judge it by Microsoft's published
/// rules
///
/// A broken rule is an error (Windows refuses the driver, bug-checks, or relies on it), a warning (a document asks for
/// it, and drivers that do otherwise were seen to run on Windows) or a note. Errors alone count.
///
/// Exit status: 0 no rule is broken, and a process has opened the adapter; 1 a rule is broken, or the start was refused
/// as Windows refuses it; 2 wrong usage, or no driver's file; 3 not judged: the driver did not start, or wants what the
/// model lacks, or something demanded was not reached.
#[derive(Args)]
#[command(name = "check")]
pub struct Arguments {
    /// The driver
    #[arg(value_name = "DRIVER.sys", required_unless_present = "list")]
    driver: Option<PathBuf>,
    /// List the rules: name, what a breach weighs, what is demanded, by which document
    #[arg(long, conflicts_with_all = ["driver", "settings", "require", "deadline", "past_refusals", "dump"])]
    list: bool,
    /// A value under the driver's registry key, by a name that is the driver's own; may be given several times. For a
    /// driver whose version resource says fencepost.sys, one of docs/settings.md, and checked as such
    #[arg(long = "setting", value_name = "NAME=NUMBER", value_parser = of_any)]
    settings: Vec<Assignment>,
    #[command(flatten)]
    family: Family,
    #[command(flatten)]
    dump: Dump,
    /// What must be reached for a verdict, besides that a process has opened the adapter; may be given several times
    #[arg(long, value_name = "STEP,...", value_delimiter = ',')]
    require: Vec<Reach>,
    /// How long a function of the driver may take before it counts as one that never returns, which breaks NT-RETURN
    /// and ends the check
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    deadline: u64,
    /// Go on where Windows refuses the start, as far as the model can, to see what there is behind that; the verdict is
    /// that of the refusal all the same
    #[arg(long)]
    past_refusals: bool,
    /// Write the verdicts to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Show what was done with the driver
    #[arg(long)]
    verbose: bool,
}

#[derive(Serialize)]
struct Report {
    schema: u32,
    mode: &'static str,
    driver: String,
    /// As `--windows` takes it; empty for the default.
    windows: String,
    /// As `--setting` takes them.
    settings: Vec<String>,
    #[serde(flatten)]
    checked: Checked,
}

impl Arguments {
    /// Checks the arguments. Returns whether the driver is ours, by its name, and so one that `./x` builds.
    pub fn check(&self) -> Result<bool> {
        checked(&self.settings)?;
        check_json(self.json.as_ref())?;
        self.dump.check()?;
        Ok(self.driver.as_ref().and_then(|path| path.file_name()).is_some_and(|name| name == "fencepost.sys"))
    }
}

/// What `--list` writes.
#[derive(Serialize)]
struct Index {
    schema: u32,
    rules: Vec<Listed>,
}

/// The rules.
fn list(json: Option<&PathBuf>) -> Result<Outcome> {
    let rules = index();
    for Listed { id, severity, title, source, .. } in &rules {
        println!("{id} ({severity})\n      {title}\n      {source}");
    }
    println!("{} rules", rules.len());
    if let Some(to) = json {
        write_json(to, &Index { schema: 1, rules })?;
    }
    Ok(Outcome::Held)
}

pub fn run(arguments: &Arguments) -> Result<Outcome> {
    let settings = checked(&arguments.settings)?;
    let Some(path) = &arguments.driver else { return list(arguments.json.as_ref()) };
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let ours = is_ours(&bytes);
    if ours {
        for (name, value) in settings {
            of_ours(&format!("{name}={value}")).map_err(anyhow::Error::msg)?;
        }
    }
    say_what_is_played(arguments.family.windows, settings);
    let recorder = arguments.dump.recorder();
    let checked = recorder.listening(|| {
        let say = |line: &str| println!("{line}");
        let deadline = Duration::from_secs(arguments.deadline);
        let (windows, demanded) = (arguments.family.windows, &arguments.require[..]);
        check(
            &name,
            bytes,
            &Terms { settings, windows, demanded, deadline, past_refusals: arguments.past_refusals },
            &say,
        )
    })?;
    // What was asked at a start is what a failed one is understood by.
    let started = checked.reached.contains(&Reach::Open);
    if arguments.verbose || !started {
        for step in &checked.steps {
            println!("      {step}");
        }
    }
    let count = |status| checked.rules.iter().filter(|rule| rule.status == status).count();
    let (held, not_reached) = (count("held"), count("not reached"));
    let broken = |severity: Severity| {
        checked.rules.iter().filter(move |rule| rule.status == "broken" && rule.severity == severity.name())
    };
    let weights = [Severity::Error, Severity::Warning, Severity::Note];
    for rule in weights.into_iter().flat_map(broken) {
        println!("{}", rule.detail);
        if rule.count > 1 {
            println!("    count   {}; the first is shown", rule.count);
        }
    }
    let outcome = checked.outcome;
    let failed = outcome != Outcome::Held;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let symbols = path.with_extension("pdb");
    if failed && !symbols.is_file() {
        println!("no {} beside the driver: a debugger finds no symbols for the dump", symbols.display());
    }
    if failed && ours && name != "fencepost.sys" {
        println!("in the dump the driver is fencepost.sys, as its service is: copy file and symbols under that name");
    }
    arguments.dump.write_with(&recorder, &stem, failed, &[path.clone(), symbols])?;
    if ours && failed {
        advise(arguments.family.windows, settings);
    }
    if !checked.never_called.is_empty() {
        let (silent, all) = (checked.never_called.len(), checked.registered);
        println!("never called, {silent} of the {all} functions that the driver has registered:");
        let mut line = String::from("   ");
        for name in &checked.never_called {
            if line.len() + name.len() > 118 {
                println!("{line}");
                line = String::from("   ");
            }
            line.push(' ');
            line.push_str(name);
        }
        println!("{line}");
    }
    if let Some(why) = &checked.would_refuse {
        println!("would be refused: {why}");
    }
    for why in &checked.unjudged {
        println!("not judged: {why}");
    }
    let [errors, warnings, notes] = weights.map(|severity| broken(severity).count());
    let others = match (warnings, notes) {
        (0, 0) => String::new(),
        (warnings, notes) => format!(", {warnings} with a warning, {notes} with a note"),
    };
    println!("{outcome}: {held} rules held, {errors} broken{others}, {not_reached} not reached: {}", path.display());
    if !arguments.verbose && started {
        println!("--verbose shows what was done with the driver; a rule is not reached where nothing called for it");
    }
    if let Some(to) = &arguments.json {
        let windows = match arguments.family.windows {
            Windows::Default => String::new(),
            other => other.to_string(),
        };
        let report = Report {
            schema: 1,
            mode: "image",
            driver: path.display().to_string(),
            windows,
            settings: settings.iter().map(|(name, value)| format!("{name}={value}")).collect(),
            checked,
        };
        write_json(to, &report)?;
    }
    Ok(outcome)
}
