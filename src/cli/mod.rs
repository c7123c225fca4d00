//! Commands: arguments, what is printed, exit statuses.
//!
//! 0: all held. 1: something did not. 2: the command could not be carried out: wrong usage, a file that is missing or
//! cannot be written.

mod bench;
mod check;
mod client;
mod decode;
mod demo;
mod dump;
mod fuzz;
mod gpu;
mod inf;
mod package;
mod scenario;
mod soak;
mod tdr;
mod wine;

use anyhow::Result;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use dxgkrnl_model::personality::{Personality, Windows};
use fencepost::check::Outcome;
use fencepost::scenario::Scenario;
use fencepost::setting::{Assignment, companions, each_once, of_ours};
use fencepost::world::{Form, Images};
use kmd_core::setting_values::Part;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// A WDDM display miniport driver whose GPU is software, and a model of Dxgkrnl that runs it on Linux.
#[derive(Parser)]
#[command(name = "fencepost", version, max_term_width = 120)]
struct Arguments {
    /// Check the arguments, and say "images" where the command runs the image files: `./x` builds them only then
    #[arg(long, hide = true)]
    only_check: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Arguments),
    Scenario(scenario::Arguments),
    Check(check::Arguments),
    Bench(bench::Arguments),
    Decode(decode::Arguments),
    Inf(inf::Arguments),
    Package(package::Arguments),
    Soak(soak::Arguments),
    Fuzz(fuzz::Arguments),
    Gpu(gpu::Arguments),
    Tdr(tdr::Arguments),
    Wine(wine::Arguments),
    #[command(hide = true)]
    Client(client::Arguments),
}

impl Command {
    /// Checks what can be checked before anything is built, and before it is carried out. Returns whether the command
    /// runs the image files.
    fn check(&self) -> Result<bool> {
        match self {
            Self::Demo(arguments) => arguments.check(),
            Self::Scenario(arguments) => arguments.check(),
            Self::Check(arguments) => arguments.check(),
            Self::Bench(arguments) => arguments.check(),
            Self::Decode(_) | Self::Inf(_) | Self::Client(_) => Ok(false),
            Self::Package(arguments) => arguments.check(),
            Self::Soak(arguments) => arguments.check(),
            Self::Fuzz(arguments) => arguments.check(),
            Self::Gpu(arguments) => arguments.check(),
            Self::Tdr(arguments) => arguments.check(),
            Self::Wine(arguments) => arguments.check(),
        }
    }

    /// Carries it out. Returns whether everything held.
    fn run(&self) -> Result<Outcome> {
        let held = match self {
            Self::Check(arguments) => return check::run(arguments),
            Self::Demo(arguments) => demo::run(arguments),
            Self::Scenario(arguments) => scenario::run(arguments),
            Self::Bench(arguments) => bench::run(arguments),
            Self::Decode(arguments) => decode::run(arguments),
            Self::Inf(arguments) => inf::run(arguments),
            Self::Package(arguments) => package::run(arguments),
            Self::Soak(arguments) => soak::run(arguments),
            Self::Fuzz(arguments) => fuzz::run(arguments),
            Self::Gpu(arguments) => gpu::run(arguments),
            Self::Tdr(arguments) => tdr::run(arguments),
            Self::Wine(arguments) => wine::run(arguments),
            Self::Client(arguments) => client::run(arguments),
        };
        held.map(|held| if held { Outcome::Held } else { Outcome::Broken })
    }
}

/// Which form of the driver runs.
#[derive(Args)]
struct Mode {
    /// Run the same code linked into this program, instead of the image files
    #[arg(long, conflicts_with = "image")]
    native: bool,
    /// Run out/fencepost.sys and out/fencepost_umd.dll (the default)
    #[arg(long)]
    image: bool,
}

/// Which member of the family of Windows the model plays.
#[derive(Args)]
struct Family {
    /// A member of the family of Windows: a number that draws one, or the name of a reading of the documents, as
    /// docs/choices.md lists them, or row-1, row-2, …: a row of the set in which each two readings meet. This driver
    /// works under pte-bytes with --setting PteByteAddresses=1 alone
    #[arg(long, value_name = "SEED|NAME|row-N", default_value = "default")]
    windows: Windows,
}

/// Values under the driver's registry key.
#[derive(Args)]
struct Settings {
    /// A value under the driver's registry key: docs/settings.md names them; may be given several times
    #[arg(long = "setting", value_name = "NAME=NUMBER", value_parser = of_ours)]
    settings: Vec<Assignment>,
}

impl Settings {
    /// The values, each name once.
    fn checked(&self) -> Result<&[Assignment]> {
        checked(&self.settings)
    }
}

/// Says which settings inject a fault, and which would but do nothing under this Windows, since it runs no code that is
/// signed for tests. The default of each injects none.
fn say_faults(windows: Windows, settings: &[Assignment]) {
    let of = |name: &str| fencepost::setting::find(name).filter(|setting| setting.part == Part::Fault);
    let injects = |name: &str, value| of(name).is_some_and(|setting| setting.default != value);
    let mut personality = Personality::default();
    windows.apply(&mut personality);
    let faults = settings.iter().filter(|(name, value)| injects(name, *value));
    let (done, ignored): (Vec<_>, Vec<_>) = faults
        .partition(|(name, _)| personality.test_signing || of(name).is_some_and(|of| !of.name.starts_with("Fault")));
    let told = |faults: Vec<&Assignment>| {
        faults.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(", ")
    };
    if !done.is_empty() {
        println!("faults that are injected: {}", told(done));
    }
    if !ignored.is_empty() {
        println!("faults that the driver ignores, since this Windows has no test signing: {}", told(ignored));
    }
}

/// Says under which Windows a run is, where it is not the default.
fn say_windows(windows: Windows) {
    if windows != Windows::Default {
        println!("Windows: {windows}");
    }
}

/// Says under which Windows and with which settings a run begins, where it is not the default.
fn say_what_is_played(windows: Windows, settings: &[Assignment]) {
    say_windows(windows);
    if !settings.is_empty() {
        let settings: Vec<_> = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        println!("settings: {}", settings.join(", "));
    }
}

/// Says which settings this Windows asks of the driver that were not given: for a run that failed.
fn advise(windows: Windows, settings: &[Assignment]) {
    for (reading, name, value) in companions(windows) {
        let is_given = |(given, number): &Assignment| given.eq_ignore_ascii_case(name) && *number == value;
        if !settings.iter().any(is_given) {
            println!("this driver works under the reading {reading} with --setting {name}={value} alone");
        }
    }
}

/// `settings`, each name once.
fn checked(settings: &[Assignment]) -> Result<&[Assignment]> {
    each_once(settings).map_err(anyhow::Error::msg)?;
    Ok(settings)
}

impl Mode {
    fn form(&self) -> Result<Form> {
        if self.native { Ok(Form::Native) } else { Ok(Form::Image(Arc::new(Images::read(&image_folder())?))) }
    }
}

/// Where the images are: `FENCEPOST_OUT`, which `./x` sets, else `out` in the working directory.
fn image_folder() -> PathBuf {
    std::env::var_os("FENCEPOST_OUT").map_or_else(|| PathBuf::from("out"), PathBuf::from)
}

/// The exit status of a program whose reader went away, as of one that SIGPIPE ends.
const READER_GONE: i32 = 141;

/// Ends the process where standard output takes nothing: `println!` panics then. In silence when it has no reader any
/// more (`./x demo | head`), else with a sentence, as for any file that cannot be written.
fn end_without_output() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload_as_str().unwrap_or_default();
        if let Some(why) = text.strip_prefix("failed printing to stdout: ") {
            if why.contains("Broken pipe") {
                std::process::exit(READER_GONE);
            }
            eprintln!("fencepost: cannot write to standard output: {why}");
            std::process::exit(2);
        }
        usual(panic);
    }));
}

/// Plays cases of another crate, as `fencepost scenario` plays those of this one, and takes the same arguments: NAME
/// (all cases if none is given), `--native`, `--list`, `--repeat N` and so on. The exit status is that of `fencepost`.
///
/// A case that has clients in processes of their own needs the program `fencepost` beside this one, or one folder up.
pub fn play_cases(cases: &'static [Scenario]) -> ExitCode {
    end_without_output();
    let ids: String = cases.iter().map(|case| format!("\n  {:6} {}", case.id, case.title)).collect();
    let command =
        Own::command().about("Plays conformance cases, all if none is named").after_help(format!("Cases:{ids}"));
    let Own { arguments } = match Own::from_arg_matches(&command.get_matches()) {
        Ok(own) => own,
        Err(error) => error.exit(),
    };
    let held = arguments.check_of(cases).and_then(|_| scenario::run_of(&arguments, cases));
    exit(held.map(|held| if held { Outcome::Held } else { Outcome::Broken }))
}

/// The arguments of a program that plays its own cases.
#[derive(Parser)]
#[command(version, max_term_width = 120)]
struct Own {
    #[command(flatten)]
    arguments: scenario::Arguments,
}

/// Carries out what the arguments say.
pub fn main() -> ExitCode {
    end_without_output();
    let Arguments { only_check, command } = Arguments::parse();
    let done = command.check().and_then(|images| match only_check {
        true => {
            if images {
                println!("images");
            }
            Ok(Outcome::Held)
        }
        false => command.run(),
    });
    exit(done)
}

/// The exit status, and what is said of an error.
fn exit(done: Result<Outcome>) -> ExitCode {
    match done {
        Ok(Outcome::Held) => ExitCode::SUCCESS,
        Ok(Outcome::Broken) => ExitCode::from(1),
        Ok(Outcome::NotJudged) => ExitCode::from(3),
        Err(error) => {
            eprintln!("fencepost: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// [`check_writable`] for what `--json` names, if it is given.
fn check_json(path: Option<&PathBuf>) -> Result<()> {
    path.map_or(Ok(()), |path| check_writable(path))
}

/// Makes sure that a file can be written where `path` says, before a long run.
fn check_writable(path: &Path) -> Result<()> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    anyhow::ensure!(!path.is_dir(), "cannot write {}: it is a folder", path.display());
    tempfile::tempfile_in(folder)
        .map(drop)
        .map_err(|error| anyhow::anyhow!("cannot write into {}: {error}", folder.display()))
}

/// Writes a JSON object, whole or not at all.
fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    fencepost::demo::picture::write_whole(path, &text)
}
