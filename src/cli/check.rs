//! `check`: the model's verdict on any driver.

use super::dump::Dump;
use super::{Family, advise, check_json, checked, say_what_is_played, write_json};
use anyhow::{Context, Result};
use clap::Args;
use dxgkrnl_model::personality::Windows;
use fencepost::check::{Verdict, check, is_ours};
use fencepost::setting::{Assignment, of_any, of_ours};
use serde::Serialize;
use std::path::PathBuf;

/// Load any WDDM display miniport driver (x86-64), start it, use it, stop it, and judge it by Microsoft's published
/// rules
#[derive(Args)]
#[command(name = "check")]
pub struct Arguments {
    /// The driver
    #[arg(value_name = "DRIVER.sys")]
    driver: PathBuf,
    /// A value under the driver's registry key, by a name that is the driver's own; may be given several times. For a
    /// driver whose version resource says fencepost.sys, one of docs/settings.md, and checked as such
    #[arg(long = "setting", value_name = "NAME=NUMBER", value_parser = of_any)]
    settings: Vec<Assignment>,
    #[command(flatten)]
    family: Family,
    #[command(flatten)]
    dump: Dump,
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
    rules: Vec<Verdict>,
    steps: Vec<String>,
}

impl Arguments {
    /// Checks the arguments. Returns whether the driver is ours, by its name, and so one that `./x` builds.
    pub fn check(&self) -> Result<bool> {
        checked(&self.settings)?;
        check_json(self.json.as_ref())?;
        self.dump.check()?;
        Ok(self.driver.file_name().is_some_and(|name| name == "fencepost.sys"))
    }
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    let settings = checked(&arguments.settings)?;
    let path = &arguments.driver;
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
    let checked = recorder.listening(|| check(&name, bytes, settings, arguments.family.windows))?;
    if arguments.verbose {
        for step in &checked.steps {
            println!("      {step}");
        }
    }
    let count = |status| checked.rules.iter().filter(|rule| rule.status == status).count();
    let (held, broken, not_reached) = (count("held"), count("broken"), count("not reached"));
    for rule in checked.rules.iter().filter(|rule| rule.status == "broken") {
        println!("{}", rule.detail);
    }
    if checked.steps.iter().any(|step| step.contains("does not")) {
        for step in checked.steps.iter().filter(|step| step.contains("does not")) {
            println!("{step}");
        }
    }
    let failed = broken != 0 || checked.steps.iter().any(|step| step.contains("does not"));
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    arguments.dump.write_with(&recorder, &stem, failed, &[path.clone(), path.with_extension("pdb")])?;
    if ours && failed {
        advise(arguments.family.windows, settings);
    }
    println!("{held} rules held, {broken} broken, {not_reached} not reached: {}", path.display());
    if !arguments.verbose {
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
            rules: checked.rules,
            steps: checked.steps,
        };
        write_json(to, &report)?;
    }
    Ok(!failed)
}
