//! `demo`: the driver at work.

use super::dump::{Dump, NO_IMAGES};
use super::{Family, Mode, Settings, advise, check_json, check_writable, say_faults, say_what_is_played, write_json};
use anyhow::{Context, Result, ensure};
use clap::Args;
use dxgkrnl_model::adapter::Adapter;
use fencepost::demo::history;
use fencepost::demo::picture::{Picture, write_whole};
use fencepost::demo::play::Played;
use fencepost::demo::run::run as play;
use fencepost::demo::summary::{
    Summary, counts, hot, interrupts, interrupts_suppressed, reported, rings, signals, submissions,
};
use fencepost::timeline::{page, perfetto};
use fencepost::world::{Form, World, hex};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Two processes work on a picture through doorbells and native fences, one hangs, its engine is reset
#[derive(Args)]
#[command(name = "demo")]
pub struct Arguments {
    #[command(flatten)]
    mode: Mode,
    /// The picture to work on, instead of the one that ships
    #[arg(long, value_name = "IN.png")]
    png: Option<PathBuf>,
    /// Where the resulting picture, timeline.html, trace.json and debug.bin (for decode) go
    #[arg(long, value_name = "DIR", default_value = "out/demo")]
    out: PathBuf,
    /// Write the counts to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    dump: Dump,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    family: Family,
}

impl Arguments {
    /// Checks the arguments. Returns whether the image files run.
    pub fn check(&self) -> Result<bool> {
        self.settings.checked()?;
        check_json(self.json.as_ref())?;
        self.dump.check()?;
        ensure!(!self.mode.native || self.dump.path().is_none(), NO_IMAGES);
        Ok(!self.mode.native)
    }
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    let settings = arguments.settings.checked()?;
    let photo = match &arguments.png {
        Some(path) => Picture::load(path)?,
        None => Picture::coffee()?,
    };
    std::fs::create_dir_all(&arguments.out)
        .with_context(|| format!("cannot write into {}", arguments.out.display()))?;
    let results = ["picture.png", "timeline.html", "trace.json", "debug.bin"].map(|name| arguments.out.join(name));
    for path in results.iter().chain(&arguments.json) {
        check_writable(path)?;
        let same =
            |input: &PathBuf| input.canonicalize().ok().zip(path.canonicalize().ok()).is_some_and(|(a, b)| a == b);
        ensure!(!arguments.png.as_ref().is_some_and(same), "{} is the picture to work on", path.display());
    }
    let form = arguments.mode.form()?;
    // What an earlier run left is not taken for the result of one that fails. Links, pipes and devices stay.
    let is_file = |path: &&PathBuf| std::fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
    for path in results.iter().chain(&arguments.json).filter(is_file) {
        std::fs::remove_file(path).with_context(|| format!("cannot replace {}", path.display()))?;
    }
    say_what_is_played(arguments.family.windows, settings);
    say_faults(arguments.family.windows, settings);
    let begun = Instant::now();
    let say = |text: &str| println!("[{:5.2} s] {text}", begun.elapsed().as_secs_f64());
    let started = |_: &World, adapter: &Adapter| {
        say(&format!("{} started: WDDM 3.2, three nodes; granted: {}", driver_name(&form), rung(adapter)));
    };
    let recorder = arguments.dump.recorder();
    let ended = recorder.listening(|| play(&form, arguments.family.windows, settings, &photo, true, started, &say))?;
    for breach in &ended.breaches {
        eprintln!("{breach}");
    }
    let (right, complaints) = (ended.is_right(&photo), ended.complaints());
    let (rules_run, broken, debug_info) = (ended.rules_run, ended.broken, ended.debug_info);
    let played = match ended.played {
        Ok(played) => played,
        Err(error) => {
            println!("the work was not done: {error:#}");
            arguments.dump.write(&recorder, "demo", !arguments.mode.native)?;
            advise(arguments.family.windows, settings);
            return Ok(false);
        }
    };
    let seconds = begun.elapsed().as_secs_f64();
    let picture = played.picture.encode()?;
    let places = write_all(&arguments.out, &played, &form, &picture, &debug_info)?;
    show(&played, right, rules_run, &broken, &places);
    for complaint in &complaints {
        println!("  NOT RIGHT: {complaint}");
    }
    if let Some(path) = &arguments.json {
        let summary = Summary {
            windows: arguments.family.windows.to_string(),
            settings: settings.iter().cloned().collect(),
            ..summary(&form, &played, right, rules_run, broken.len(), &picture, &places, seconds)
        };
        write_json(path, &summary)?;
    }
    let holds = right && complaints.is_empty() && broken.is_empty();
    arguments.dump.write(&recorder, "demo", !holds && !arguments.mode.native)?;
    if !holds {
        advise(arguments.family.windows, settings);
    }
    Ok(holds)
}

/// The rung that the driver and this Windows agreed on, in words.
fn rung(adapter: &Adapter) -> &'static str {
    let Some(caps) = adapter.caps() else { return "nothing" };
    match (caps.has_hardware_scheduling(), caps.has_native_fences(), caps.has_user_mode_submission()) {
        (_, _, true) if adapter.personality().build.has_queue_doorbells() => {
            "user-mode submission, by doorbell calls of this build that the user-mode driver does not know: it submits \
             through the kernel"
        }
        (_, _, true) => "user-mode submission",
        (_, true, _) => "native fences without user-mode submission",
        (true, ..) => "hardware queues without native fences",
        _ => "packets",
    }
}

fn driver_name(form: &Form) -> String {
    match form {
        Form::Image(images) => images.driver.path.display().to_string(),
        _ => "the driver, linked in,".to_owned(),
    }
}

/// Where the three files are.
struct Places {
    picture: PathBuf,
    timeline: PathBuf,
    trace: PathBuf,
    debug_info: PathBuf,
}

fn write_all(folder: &Path, played: &Played, form: &Form, picture: &[u8], debug_info: &[u8]) -> Result<Places> {
    let places = Places {
        picture: folder.join("picture.png"),
        timeline: folder.join("timeline.html"),
        trace: folder.join("trace.json"),
        debug_info: folder.join("debug.bin"),
    };
    let timeline = history::timeline(played, form.mode());
    write_whole(&places.picture, picture)?;
    write_whole(&places.timeline, page(&timeline).as_bytes())?;
    write_whole(&places.trace, serde_json::to_string(&perfetto(&timeline))?.as_bytes())?;
    write_whole(&places.debug_info, debug_info)?;
    Ok(places)
}

fn show(played: &Played, right: bool, rules_run: usize, broken: &[&str], places: &Places) {
    println!();
    for (name, value) in counts(played) {
        println!("  {name:30}{value:>8}");
        if name == "interrupts" {
            println!("    reported: {}", reported(played));
        }
    }
    println!("  {:30}{rules_run:>8}", "rules checked");
    println!("  {:30}{:>8}{}", "rules broken", broken.len(), if broken.is_empty() { "" } else { ":" });
    for rule in broken {
        println!("    {rule}");
    }
    println!();
    println!("  process A's device after the hang: {:?}", played.hung_state);
    println!("  process B's device at the end:     {:?}", played.other_state);
    let verdict = if right { "right: equal to a plain computation of the same thing" } else { "WRONG" };
    println!("  the picture is {verdict}");
    println!();
    for place in [&places.picture, &places.timeline, &places.trace, &places.debug_info] {
        println!("  {}", place.display());
    }
}

#[expect(clippy::too_many_arguments, reason = "one object out of everything that was measured")]
fn summary(
    form: &Form,
    played: &Played,
    right: bool,
    rules_run: usize,
    rules_broken: usize,
    picture: &[u8],
    places: &Places,
    seconds: f64,
) -> Summary {
    let file = |f: &dyn Fn(&fencepost::world::Images) -> String| match form {
        Form::Image(images) => f(images),
        _ => String::new(),
    };
    Summary {
        schema: 1,
        mode: form.mode(),
        windows: String::new(),
        settings: BTreeMap::new(),
        driver: file(&|images| images.driver.path.display().to_string()),
        umd: file(&|images| images.umd.path.display().to_string()),
        driver_sha256: file(&|images| images.driver.sha256()),
        umd_sha256: file(&|images| images.umd.sha256()),
        wddm: "3.2",
        rules_run,
        rules_broken,
        submissions: submissions(played),
        doorbell_rings: rings(played),
        thunk_calls_hot: hot(played),
        interrupts: interrupts(played),
        interrupts_suppressed: interrupts_suppressed(played),
        signals: signals(played),
        resets: played.report.counts.resets,
        processes: 2,
        process_kind: if played.separate { "Linux process of its own" } else { "thread of the machine's process" },
        messages_hot: played.messages_hot,
        doorbells_taken_hot: played.taken_hot,
        picture: places.picture.display().to_string(),
        timeline: places.timeline.display().to_string(),
        trace: places.trace.display().to_string(),
        picture_sha256: hex(&Sha256::digest(picture)),
        picture_right: right,
        device_state_hung: format!("{:?}", played.hung_state),
        device_state_other: format!("{:?}", played.other_state),
        seconds,
    }
}
