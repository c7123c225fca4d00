//! `wine`: the second opinion.

use super::{Settings, check_json, image_folder, write_json};
use anyhow::Result;
use clap::Args;
use fencepost::wine::{Places, Played, Status, Whose, play};
use serde::Serialize;
use std::path::PathBuf;

/// The shipped driver under Wine, with a stand-in for Dxgkrnl: handshake, start, one paging buffer, unload
///
/// Each step is shown, and each kernel service that the driver imports: Wine's, or filled in by the stand-in, and how
/// often it was called. docs/wine.md says what that shows, and what it does not.
#[derive(Args)]
#[command(name = "wine")]
pub struct Arguments {
    /// Write what was seen to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    mode: &'static str,
    driver: String,
    settings: Vec<String>,
    #[serde(flatten)]
    played: &'a Played,
}

impl Arguments {
    /// Checks the arguments. Returns whether the image files run.
    pub fn check(&self) -> Result<bool> {
        self.settings.checked()?;
        check_json(self.json.as_ref())?;
        Ok(true)
    }
}

/// The folder of Wine's prefix: `FENCEPOST_WINE`, which `./x` sets, else `target/wine` in the working directory.
fn folder() -> PathBuf {
    std::env::var_os("FENCEPOST_WINE").map_or_else(|| PathBuf::from("target/wine"), PathBuf::from)
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    let settings = arguments.settings.checked()?;
    let images = image_folder();
    let places =
        Places { driver: images.join("fencepost.sys"), stand_in: images.join("wine/dxgkrnl.sys"), folder: folder() };
    let played = play(&places, settings)?;
    show(&played);
    if !played.held {
        println!("what Wine and the driver said meanwhile: {}", places.folder.join("wine.log").display());
    }
    if let Some(path) = &arguments.json {
        let settings = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let driver = places.driver.display().to_string();
        write_json(path, &Report { schema: 1, mode: "wine", driver, settings, played: &played })?;
    }
    Ok(played.held)
}

fn show(played: &Played) {
    println!("{}, driver {}", played.wine, played.driver_sha256);
    for step in &played.steps {
        let status = match step.status {
            Status::Pass => "ok",
            Status::Fail => "FAILED",
            Status::Missing => "MISSING",
        };
        println!("  {status:8}{:28}{}", step.name, step.detail);
    }
    println!("kernel services that the driver imports, and how often it called each:");
    for service in &played.services {
        let whose = match service.whose {
            Whose::Wine => "Wine's",
            Whose::Stub => "Wine's, which calls itself a stub",
            Whose::Filled => "filled",
        };
        let why = if service.why.is_empty() { String::new() } else { format!(": {}", service.why) };
        println!("  {:6}  {:36}{whose}{why}", service.calls, service.name);
    }
    for complaint in &played.complaints {
        println!("NOT RIGHT: {complaint}");
    }
    println!("{}", verdict(played));
}

/// What held, in one line.
fn verdict(played: &Played) -> String {
    let ((filled, filled_called), (stubs, _), (wines, wines_called)) =
        (played.count(Whose::Filled), played.count(Whose::Stub), played.count(Whose::Wine));
    let services = format!(
        "{} services: {wines} Wine's ({wines_called} called), {stubs} Wine's stubs, {filled} filled in ({filled_called} \
         called)",
        played.services.len()
    );
    match played.first_failure() {
        None if played.held => format!(
            "held: {} steps, from the handshake to the unload, and one paging buffer's work in memory; {services}; {:.1} s",
            played.steps.len(),
            played.seconds
        ),
        Some(step) => format!("not held, first at '{}'; {services}; {:.1} s", step.name, played.seconds),
        None => format!("not held; {services}; {:.1} s", played.seconds),
    }
}
