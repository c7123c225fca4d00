//! `bench`: benchmarks, each beside its limit.

use super::{Mode, Settings, check_json, write_json};
use anyhow::{Result, ensure};
use clap::Args;
use fencepost::bench::{Benchmark, Effort, Figure, Measured, Options, Verdict, all, load_average, play};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

/// Benchmarks, each beside its limit, measured in the same rounds
///
/// Who submits and who executes run on two processors. Before and behind each round a cache line's way to the other
/// processor and back is measured; rounds in which it moved by more than a tenth do not count. `ratio` is value by
/// limit, the median of the rounds that count; `goal` and `must` are what it should and must be; `line` is the way
/// there and back, near below 200 ns; `load` is what other work took of the processors, in processors.
#[derive(Args)]
#[command(name = "bench", after_help = names())]
pub struct Arguments {
    /// One of them (--list names them); all without
    name: Option<String>,
    /// Name them, and measure nothing
    #[arg(long)]
    list: bool,
    /// Rounds that count, per benchmark, 9 without and 1 with --quick; up to three times as many are played
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// As little as yields numbers: shows that everything works, not how fast it is
    #[arg(long)]
    quick: bool,
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
    rounds: usize,
    quick: bool,
    settings: BTreeMap<String, u64>,
    load_average: Option<f64>,
    seconds: f64,
    results: Vec<Measured>,
    /// Figures that could not be had, with why.
    failed: BTreeMap<&'static str, String>,
}

/// The figures' names; `--list` has a line for each.
fn names() -> String {
    let names: Vec<_> = all().flat_map(|benchmark| benchmark.figures).map(|figure| figure.name).collect();
    format!("Benchmarks (--list explains them): {}", names.join(", "))
}

fn line(figure: &Figure) -> String {
    format!("{:22}{}", figure.name, figure.about)
}

impl Arguments {
    /// Returns whether the figure is wanted.
    fn wants(&self, name: &str) -> bool {
        self.name.as_deref().is_none_or(|wanted| wanted == name)
    }

    /// The benchmarks that are named.
    fn chosen(&self) -> Result<Vec<&'static Benchmark>> {
        let has_wanted = |benchmark: &&Benchmark| benchmark.figures.iter().any(|figure| self.wants(figure.name));
        let chosen: Vec<_> = all().filter(has_wanted).collect();
        let name = self.name.as_deref().unwrap_or("");
        ensure!(!chosen.is_empty(), "no benchmark is called '{name}'; --list names them");
        Ok(chosen)
    }

    /// Checks the arguments. Returns whether the image files run.
    pub fn check(&self) -> Result<bool> {
        self.settings.checked()?;
        self.chosen()?;
        check_json(self.json.as_ref())?;
        Ok(!self.list && !self.mode.native)
    }
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    let settings = arguments.settings.checked()?;
    let wanted = |name: &str| arguments.wants(name);
    let chosen = arguments.chosen()?;
    if arguments.list {
        for figure in chosen.iter().flat_map(|benchmark| benchmark.figures).filter(|figure| wanted(figure.name)) {
            println!("{}", line(figure));
        }
        return Ok(true);
    }
    let form = arguments.mode.form()?;
    let (effort, rounds) = if arguments.quick { (Effort::Quick, 1) } else { (Effort::Full, Options::ROUNDS) };
    let options = Options { rounds: arguments.rounds.map_or(rounds, |rounds| rounds as usize), effort };
    let (begun, load_average) = (Instant::now(), load_average());
    let (mut results, mut failed) = (Vec::new(), BTreeMap::new());
    for benchmark in chosen {
        let measured = match play(benchmark, &form, settings, options) {
            Ok(measured) => measured,
            // One that fails takes no other's figures along.
            Err(error) => {
                for figure in benchmark.figures.iter().filter(|figure| wanted(figure.name)) {
                    println!("{:21} failed: {error:#}", figure.name);
                    failed.insert(figure.name, format!("{error:#}"));
                }
                continue;
            }
        };
        for measured in measured.into_iter().filter(|measured| wanted(measured.name)) {
            if results.is_empty() {
                println!(
                    "load {} before",
                    load_average.map_or_else(|| "unknown".to_owned(), |load| format!("{load:.2}"))
                );
                println!("{}", columns(COLUMNS.map(|(name, _)| name)));
            }
            println!("{}", row(&measured));
            results.push(measured);
        }
    }
    ensure!(
        !results.is_empty() || !failed.is_empty(),
        "'{}' stands beside io_uring, which this kernel does not have, or not for this process",
        arguments.name.as_deref().unwrap_or("")
    );
    let seconds = begun.elapsed().as_secs_f64();
    println!("{}", closing(&results, seconds, effort));
    let is_whole = failed.is_empty();
    if let Some(path) = &arguments.json {
        let (mode, rounds) = (form.mode(), options.rounds);
        let quick = arguments.quick;
        let settings = settings.iter().cloned().collect();
        write_json(path, &Report { schema: 1, mode, rounds, quick, settings, load_average, seconds, results, failed })?;
    }
    Ok(is_whole)
}

/// The line below the table.
fn closing(results: &[Measured], seconds: f64, effort: Effort) -> String {
    let of = |verdict| results.iter().filter(|measured| measured.verdict == verdict).count();
    let (missed, unsteady) = (of(Verdict::Missed), of(Verdict::Unsteady));
    let figures = if results.len() == 1 { "1 figure".to_owned() } else { format!("{} figures", results.len()) };
    let quick = if effort == Effort::Quick { "; as few samples as can be: that it works, not how fast" } else { "" };
    format!("{figures} in {seconds:.0} s; {missed} missed, {unsteady} unsteady{quick}")
}

/// Columns: left of their text where the number is negative.
const COLUMNS: [(&str, i8); 15] = [
    ("name", -21),
    ("value", 8),
    ("p99", 8),
    ("", -6),
    ("limit", 8),
    ("p99", 8),
    ("", -19),
    ("ratio", 7),
    ("goal", 6),
    ("must", 6),
    ("verdict", -9),
    ("spread", 7),
    ("line", -9),
    ("load", 5),
    ("rounds", -8),
];

/// A line of the table.
fn columns<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut line = String::new();
    for (text, (_, width)) in texts.into_iter().zip(COLUMNS) {
        let columns = usize::from(width.unsigned_abs());
        line += &if width < 0 { format!(" {text:columns$}") } else { format!("{text:>columns$}") };
    }
    line.trim().to_owned()
}

fn row(measured: &Measured) -> String {
    let mark = |mark: Option<f64>| mark.map_or_else(String::new, |mark| format!("{mark}"));
    let line = measured.line_ns.zip(measured.regime);
    columns([
        measured.name,
        &rounded(measured.value),
        &rounded(measured.p99),
        // A long unit has no column; it stands in the name, too.
        if measured.unit.len() > 6 { "" } else { measured.unit },
        &rounded(measured.limit_value),
        &rounded(measured.limit_p99),
        measured.limit,
        &format!("{:.2}", measured.ratio),
        &mark(measured.goal),
        &mark(measured.at_least),
        measured.verdict.name(),
        &format!("{:.0}%", measured.spread),
        &line.map_or_else(String::new, |(line, regime)| format!("{line:.0} {}", regime.name())),
        &measured.load.map_or_else(String::new, |load| format!("{load:.1}")),
        &format!("{}/{}", measured.rounds_kept, measured.rounds_kept + measured.rounds_dropped),
    ])
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
