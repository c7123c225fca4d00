//! `fencepost demo`: the portable demo on this Windows machine, with this program's own processes.

use super::program::say_driver;
use anyhow::{Context, Result, bail};
use clap::Args;
use portable_cases::System as _;
use portable_cases::arguments::{setting, write_json};
use portable_cases::demo::Picture;
use portable_cases::demo::parts::{Told, part};
use portable_cases::demo::play::{Accounts, Moment, play};
use portable_cases::escape::{self, EscapeCounters, EscapeStart};
use portable_cases::machine::Machine;
use portable_cases::windows::actor::{Actor, Lines, rehearsal, rehearse};
use portable_cases::windows::{Windows, user_mode_driver};
use serde::Serialize;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Without it nothing hangs.
const HANGS: &str = "PreemptInBuffers";
/// The hidden command of a process of the demo.
pub const PART: &str = "demo-part";

/// Two processes work on a picture, through doorbells and native fences where the driver has them; one hangs its
/// engine, and the other's picture becomes complete
#[derive(Args)]
pub struct Arguments {
    /// The picture to work on, instead of the one that this program carries
    #[arg(long, value_name = "IN.png")]
    png: Option<PathBuf>,
    /// Write the resulting picture to this file
    #[arg(long, value_name = "FILE.png")]
    picture: Option<PathBuf>,
    /// The user-mode driver (without this: that beside this program, else out/fencepost_umd.dll)
    #[arg(long, value_name = "FILE")]
    umd: Option<PathBuf>,
    /// What the driver has under its registry key, where that is not the default. With PreemptInBuffers=0 process A
    /// hangs its engine, which Windows then resets; without it nothing hangs, and A ends its command buffer itself
    #[arg(long = "setting", value_name = "NAME=NUMBER", value_parser = setting)]
    pub settings: Vec<(String, u32)>,
    /// Write the counts to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Start the two processes and hand a handle from one to the other, without any adapter
    #[arg(long, hide = true)]
    rehearse: bool,
}

/// A process of the demo, which `fencepost demo` starts
#[derive(Args)]
pub struct Part {
    name: String,
    #[arg(long)]
    umd: Option<PathBuf>,
    #[arg(long)]
    rehearse: bool,
}

/// Plays process A or B.
pub fn role(arguments: &Part) -> Result<()> {
    let name = &*arguments.name;
    let played = if arguments.rehearse {
        rehearse(name, &Lines)
    } else {
        let windows = Windows::new(&user_mode_driver(arguments.umd.as_deref()), Duration::from_secs(2), Vec::new())?;
        part(name, &Lines, &|| windows.open())
    };
    played.with_context(|| format!("process {name}"))
}

#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    mode: &'static str,
    machine: &'a Machine,
    rung: u32,
    max_rung: u32,
    hangs: bool,
    processes: u32,
    doorbells: bool,
    native_fences: bool,
    submissions: u64,
    doorbell_rings: u64,
    submit_calls: u64,
    signals: u64,
    interrupts: u64,
    interrupts_suppressed: u64,
    resets: u64,
    device_state_hung: String,
    device_state_other: String,
    picture_right: bool,
    complaints: Vec<String>,
    seconds: f64,
}

/// Starts the two processes.
fn actors(more: &[&OsStr]) -> Result<(Actor, Actor)> {
    let start = |name: &'static str| Actor::start(name, &[&[OsStr::new(PART), OsStr::new(name)], more].concat());
    Ok((start("A")?, start("B")?))
}

/// Plays what the arguments ask for. Returns whether everything held.
pub fn run(arguments: &Arguments, machine: &Machine) -> Result<bool> {
    if arguments.rehearse {
        let (a, b) = actors(&[OsStr::new("--rehearse")])?;
        rehearsal(a, b)?;
        println!("two processes, and a handle from one to the other");
        return Ok(true);
    }
    let photo = match &arguments.png {
        Some(path) => Picture::load(path)?,
        None => Picture::coffee()?,
    };
    if let Some(what) = machine.missing() {
        bail!("nothing is played: {what}");
    }
    let umd = user_mode_driver(arguments.umd.as_deref());
    let windows = Windows::new(&umd, Duration::from_secs(2), arguments.settings.clone())?;
    let observer = windows.process("observer", false)?;
    let (start, before) = say_driver(&windows)?;
    let hangs = windows.setting(HANGS) == Some(0);
    if !hangs {
        println!(
            "nothing will hang: the driver takes endless work off ({HANGS} in the registry, and --setting, make it not)"
        );
    }
    let begun = Instant::now();
    let (mut a, mut b) = actors(&[OsStr::new("--umd"), umd.as_os_str()])?;
    let accounts = play(&mut a, &mut b, &photo, hangs, &mut |moment, made, _| {
        let with = if made.doorbells { "with doorbells" } else { "that the kernel submits to" };
        let kind = if made.monitored { "monitored" } else { "native" };
        let text = match moment {
            Moment::Ready => format!("two processes, three queues {with}, a shared {kind} fence"),
            Moment::Queued => "all work is queued; node 0 now runs a command buffer that jumps to itself".to_owned(),
            Moment::Whole => "process B has its picture".to_owned(),
            Moment::Over if hangs => "process A lost its device, made a new one, and works again".to_owned(),
            Moment::Over => "process A ended its command buffer, and made a second device".to_owned(),
        };
        println!("[{:5.2} s] {text}", begun.elapsed().as_secs_f64());
    })?;
    let (_, after) = escape::said(&*observer)?;
    a.ends()?;
    b.ends()?;
    let report = report(&accounts, machine, &start, [&before, &after], &photo, begun.elapsed());
    if let Some(path) = &arguments.picture {
        let picture = accounts.picture(&photo).encode()?;
        std::fs::write(path, picture).with_context(|| format!("cannot write {}", path.display()))?;
    }
    show(&report);
    if let Some(path) = &arguments.json {
        write_json(path, &report)?;
    }
    Ok(report.picture_right && report.complaints.is_empty())
}

fn report<'a>(
    accounts: &Accounts,
    machine: &'a Machine,
    start: &EscapeStart,
    [before, after]: [&EscapeCounters; 2],
    photo: &Picture,
    took: Duration,
) -> Report<'a> {
    let lanes = || accounts.a.lanes.iter().chain(&accounts.b.lanes).map(Told::counters);
    // Others may use the adapter meanwhile; and a reset of the adapter begins the counts anew.
    let counted = |of: fn(&EscapeCounters) -> u64| of(after).saturating_sub(of(before));
    let mut complaints = accounts.complaints();
    let picture_right = accounts.is_right(photo);
    if !picture_right {
        complaints.push("the picture is not that of a plain computation".to_owned());
    }
    let resets = counted(|count| count.resets);
    if accounts.hangs && resets == 0 {
        complaints.push("an engine hung, and the driver counted no reset".to_owned());
    }
    Report {
        schema: 1,
        mode: "windows",
        machine,
        rung: start.rung,
        max_rung: start.max_rung,
        hangs: accounts.hangs,
        processes: 2,
        doorbells: accounts.made.doorbells,
        native_fences: !accounts.made.monitored,
        submissions: lanes().map(|count| count.submissions).sum(),
        doorbell_rings: lanes().map(|count| count.rings).sum(),
        submit_calls: accounts.a.submit_calls + accounts.b.submit_calls,
        signals: counted(|count| count.signals),
        interrupts: counted(|count| count.interrupts_raised),
        interrupts_suppressed: counted(|count| count.interrupts_suppressed),
        resets,
        device_state_hung: format!("{:?}", accounts.hung_state()),
        device_state_other: format!("{:?}", accounts.other_state()),
        picture_right,
        complaints,
        seconds: took.as_secs_f64(),
    }
}

fn show(report: &Report<'_>) {
    let counts = [
        ("submissions", report.submissions),
        ("doorbell rings", report.doorbell_rings),
        ("calls that submit", report.submit_calls),
        ("native fence signals", report.signals),
        ("interrupts", report.interrupts),
        ("interrupts suppressed", report.interrupts_suppressed),
        ("resets", report.resets),
    ];
    for (name, count) in counts {
        println!("  {name:30}{count:>8}");
    }
    println!("  process A's device behind its endless buffer: {}", report.device_state_hung);
    println!("  process B's device at the end:                {}", report.device_state_other);
    if report.picture_right {
        println!("  the picture is right: equal to a plain computation of the same thing");
    }
    for complaint in &report.complaints {
        println!("  NOT RIGHT: {complaint}");
    }
}
