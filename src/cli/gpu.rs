//! `gpu`: what a monitor shows of the adapter.

use super::{Family, Mode, Settings, check_json, say_faults, write_json};
use anyhow::{Context, Result};
use clap::Args;
use dxgkrnl_model::personality::Personality;
use fencepost::demo::picture::Picture;
use fencepost::demo::run::run as demo;
use fencepost::monitor::{Look, Monitor};
use fencepost::setting::adapter_of_ours;
use fencepost::world::World;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a monitor shows of the adapter: name, driver model, engines and memory, and which process has how much of them
#[derive(Args)]
#[command(name = "gpu")]
pub struct Arguments {
    #[command(flatten)]
    mode: Mode,
    /// Play the demo beside it, and show the adapter again and again until that is over
    #[arg(long)]
    watch: bool,
    /// Milliseconds between two looks, with --watch
    #[arg(long, value_name = "N", default_value_t = 250, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    every: u64,
    #[command(flatten)]
    family: Family,
    #[command(flatten)]
    settings: Settings,
    /// Write the last look to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Arguments {
    /// Checks the arguments. Returns whether the image files run.
    pub fn check(&self) -> Result<bool> {
        self.settings.checked()?;
        check_json(self.json.as_ref())?;
        Ok(!self.mode.native)
    }
}

/// What is shown of so many bytes.
fn bytes(count: u64) -> String {
    // CAST: rounded, for a person.
    let mebibytes = count as f64 / f64::from(1 << 20);
    if count == 0 || mebibytes >= 100.0 { format!("{mebibytes:.0} MiB") } else { format!("{mebibytes:.1} MiB") }
}

/// What part of the time between two looks something ran; of all of the time where there was none before.
fn percent(now: u64, before: u64, passed: Duration) -> f64 {
    // CAST: for a person.
    let ran = now.saturating_sub(before) as f64 / 10_000_000.0;
    100.0 * ran / passed.as_secs_f64().max(1e-6)
}

/// Prints a look. `before`: the one before it, and how long ago that was.
fn show(look: &Look, before: Option<(&Look, Duration)>) {
    let name = if look.name.is_empty() { "an adapter without a name" } else { &look.name };
    let timeouts = if look.timeouts == 1 { "1 timeout".to_owned() } else { format!("{} timeouts", look.timeouts) };
    println!("{name}, WDDM {}.{}, {timeouts}", look.wddm / 1000, look.wddm / 100 % 10);
    for segment in &look.segments {
        let kind = if segment.is_aperture { "shared" } else { "dedicated" };
        println!("  memory   {kind:18} {} of {}", bytes(segment.resident), bytes(segment.limit));
    }
    for (node, engine) in look.engines.iter().enumerate() {
        // CAST: for a person.
        let seconds = engine.running_time as f64 / 10_000_000.0;
        let had = before.map(|(old, passed)| (old.engines.get(node).map_or(0, |old| old.running_time), passed));
        let part = had.map(|(had, passed)| format!("{:5.1} %, ", percent(engine.running_time, had, passed)));
        let switches = engine.context_switches;
        println!("  engine {node} {:18} {}{seconds:.3} s in {switches} turns", engine.name, part.unwrap_or_default());
    }
    for process in &look.processes {
        let old = before
            .and_then(|(old, passed)| old.processes.iter().find(|old| old.id == process.id).map(|old| (old, passed)));
        let engines: Vec<_> = process
            .running_time
            .iter()
            .enumerate()
            .map(|(node, now)| match old {
                Some((old, passed)) => {
                    let had = old.running_time.get(node).copied().unwrap_or(0);
                    format!("{node}: {:.1} %", percent(*now, had, passed))
                }
                // CAST: for a person.
                None => format!("{node}: {:.3} s", *now as f64 / 10_000_000.0),
            })
            .collect();
        let (dedicated, shared) = (bytes(process.dedicated), bytes(process.shared));
        let (name, id) = (&process.name, process.id);
        println!(
            "  process  {:18} {dedicated} dedicated, {shared} shared; engine {}",
            format!("{name} ({id})"),
            engines.join(", ")
        );
    }
}

/// Looks again and again on a thread of its own, until it is told to end.
struct Watch {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    fn begin(monitor: Monitor, every: Duration, last: &Arc<Mutex<Option<Result<Look>>>>) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let (is_over, last) = (ends.clone(), last.clone());
        let thread = std::thread::spawn(move || {
            let mut before: Option<(Look, Instant)> = None;
            loop {
                let over = is_over.load(Ordering::Acquire);
                let look = monitor.look();
                let now = Instant::now();
                if let Ok(look) = &look {
                    show(look, before.as_ref().map(|(old, at)| (old, now - *at)));
                    println!();
                    before = Some((look.clone(), now));
                }
                let failed = look.is_err();
                *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(look);
                if over || failed {
                    return;
                }
                std::thread::park_timeout(every);
            }
        });
        Self { ends, thread: Some(thread) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic was printed.
            let _ended = thread.join();
        }
    }
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    let settings = arguments.settings.checked()?;
    let form = arguments.mode.form()?;
    say_faults(arguments.family.windows, settings);
    let (look, held) = if arguments.watch {
        let last = Arc::default();
        let every = Duration::from_millis(arguments.every);
        let started = |world: &World, adapter: &_| match Monitor::open(&world.os, adapter) {
            Ok(monitor) => Some(Watch::begin(monitor, every, &last)),
            Err(error) => {
                *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Err(error));
                None
            }
        };
        let windows = arguments.family.windows;
        let ended = demo(&form, windows, settings, &Picture::coffee()?, true, started, &|said| println!("{said}\n"))?;
        let look = last.lock().unwrap_or_else(PoisonError::into_inner).take().context("no look was taken")?;
        for breach in &ended.breaches {
            eprintln!("{breach}");
        }
        ended.played.context("the demo's work was not done")?;
        (look?, ended.broken.is_empty())
    } else {
        let mut personality = Personality::collecting();
        arguments.family.windows.apply(&mut personality);
        let world = World::boot_with(&form, personality, settings)?;
        let adapter = world.adapter(adapter_of_ours(settings))?;
        let look = Monitor::open(&world.os, &adapter).and_then(|monitor| monitor.look());
        drop(adapter);
        world.os.shut_down();
        let look = look?;
        show(&look, None);
        let broken = world.os.report().broken().count();
        (look, broken == 0)
    };
    if let Some(path) = &arguments.json {
        write_json(path, &look)?;
    }
    Ok(held)
}
