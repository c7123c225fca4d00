//! `bench`: benchmarks, each beside its limit.

use super::{Mode, Settings, check_writable, write_json};
use anyhow::{Result, ensure};
use clap::Args;
use fencepost::bench::{Bed, Measured, all};
use serde::Serialize;
use std::path::PathBuf;

/// Benchmarks, each beside its limit, measured in the same run
#[derive(Args)]
#[command(name = "bench")]
pub struct Arguments {
    /// One of them (--list names them); all without
    name: Option<String>,
    /// Name them, and measure nothing
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    mode: Mode,
    #[command(flatten)]
    settings: Settings,
    /// Write the results to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    schema: u32,
    mode: &'static str,
    results: Vec<Measured>,
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    let settings = arguments.settings.checked()?;
    let wanted = |name: &str| arguments.name.as_deref().is_none_or(|wanted| wanted == name);
    let chosen: Vec<_> = all().filter(|benchmark| wanted(benchmark.name)).collect();
    ensure!(
        !chosen.is_empty(),
        "no benchmark is called '{}'; --list names them",
        arguments.name.as_deref().unwrap_or("")
    );
    if arguments.list {
        for benchmark in chosen {
            println!("{:24}{}", benchmark.name, benchmark.about);
        }
        return Ok(true);
    }
    if let Some(path) = &arguments.json {
        check_writable(path)?;
    }
    let form = arguments.mode.form()?;
    let mut results = Vec::new();
    println!("{:24}{:>14} {:20}{:>14}  {:24}{:>8}{:>8}", "", "value", "", "limit", "", "ratio", "spread");
    for benchmark in chosen {
        let measured = {
            let bed = Bed::new(&form, settings)?;
            let measured = (benchmark.run)(&bed)?;
            bed.world.os.shut_down();
            measured
        };
        println!(
            "{:24}{:>14} {:20}{:>14}  {:24}{:>8.2}{:>7.0}%",
            measured.name,
            rounded(measured.value),
            measured.unit,
            rounded(measured.limit_value),
            measured.limit,
            measured.ratio,
            measured.spread
        );
        results.push(measured);
    }
    if let Some(path) = &arguments.json {
        write_json(path, &Report { schema: 1, mode: form.mode(), results })?;
    }
    Ok(true)
}

/// Three digits or so.
fn rounded(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 => format!("{:.2} M", value / 1e6),
        v if v >= 1e4 => format!("{:.1} k", value / 1e3),
        v if v >= 100.0 || v == 0.0 => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}
