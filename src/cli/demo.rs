//! `demo`: the driver at work.

use super::{Family, Mode, Settings, check_writable, write_json};
use anyhow::{Context, Result};
use clap::Args;
use dxgkrnl_model::adapter::Adapter;
use dxgkrnl_model::personality::Personality;
use fencepost::demo::picture::{Picture, write_whole};
use fencepost::demo::play::{Played, play};
use fencepost::demo::summary::{Summary, counts, hot, interrupts, interrupts_suppressed, rings, signals, submissions};
use fencepost::demo::{audit, history, recipe};
use fencepost::setting;
use fencepost::timeline::{page, perfetto};
use fencepost::world::{Form, World, hex};
use sha2::{Digest, Sha256};
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
    /// Where the resulting picture, timeline.html and trace.json go
    #[arg(long, value_name = "DIR", default_value = "out/demo")]
    out: PathBuf,
    /// Write the counts to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    family: Family,
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    let photo = match &arguments.png {
        Some(path) => Picture::load(path)?,
        None => Picture::coffee()?,
    };
    std::fs::create_dir_all(&arguments.out)
        .with_context(|| format!("cannot write into {}", arguments.out.display()))?;
    for name in ["picture.png", "timeline.html", "trace.json"] {
        check_writable(&arguments.out.join(name))?;
    }
    if let Some(path) = &arguments.json {
        check_writable(path)?;
    }
    let form = arguments.mode.form()?;
    let begun = Instant::now();
    let say = |text: &str| println!("[{:5.2} s] {text}", begun.elapsed().as_secs_f64());
    let mut personality = Personality::collecting();
    arguments.family.windows.apply(&mut personality);
    let world = World::boot(&form, personality)?;
    let adapter = world.adapter(setting::adapter(&arguments.settings.settings))?;
    say(&format!("{} started: WDDM 3.2, three nodes, {}", driver_name(&form), rung(&adapter)));
    let played = play(&world, adapter.luid(), &photo, &say);
    drop(adapter);
    world.os.shut_down();
    let report = world.os.report();
    let broken: Vec<_> = report.broken().map(|rule| rule.rule.name).collect();
    for violation in world.os.kernel().rules.violations().iter().take(5) {
        eprintln!("{violation}");
    }
    let played = match played {
        Ok(played) => played,
        Err(error) => {
            println!("the work was not done: {error:#}");
            return Ok(false);
        }
    };
    let seconds = begun.elapsed().as_secs_f64();
    let right = played.picture == recipe::expected(&photo);
    let picture = played.picture.encode()?;
    let places = write_all(&arguments.out, &played, &form, &picture)?;
    let rules_run = report.rules.iter().filter(|rule| rule.evaluations != 0).count();
    let complaints = audit::complaints(&played);
    show(&played, right, rules_run, &broken, &places);
    for complaint in &complaints {
        println!("  NOT RIGHT: {complaint}");
    }
    if let Some(path) = &arguments.json {
        write_json(path, &summary(&form, &played, right, rules_run, broken.len(), &picture, &places, seconds))?;
    }
    Ok(right && complaints.is_empty() && broken.is_empty())
}

/// What the driver and this Windows agreed on.
fn rung(adapter: &Adapter) -> &'static str {
    let Some(caps) = adapter.caps() else { return "nothing" };
    match (caps.has_hardware_scheduling(), caps.has_native_fences(), caps.has_user_mode_submission()) {
        (_, _, true) => "user-mode submission",
        (_, true, _) => "native fences without user-mode submission",
        (true, ..) => "hardware queues without native fences",
        _ => "packets",
    }
}

fn driver_name(form: &Form) -> String {
    match form {
        Form::Image(images) => images.driver.path.display().to_string(),
        Form::Native | Form::Decorated(_) => "the driver, linked in,".to_owned(),
    }
}

/// Where the three files are.
struct Places {
    picture: PathBuf,
    timeline: PathBuf,
    trace: PathBuf,
}

fn write_all(folder: &Path, played: &Played, form: &Form, picture: &[u8]) -> Result<Places> {
    let places = Places {
        picture: folder.join("picture.png"),
        timeline: folder.join("timeline.html"),
        trace: folder.join("trace.json"),
    };
    let timeline = history::timeline(played, form.mode());
    write_whole(&places.picture, picture)?;
    write_whole(&places.timeline, page(&timeline).as_bytes())?;
    write_whole(&places.trace, serde_json::to_string(&perfetto(&timeline))?.as_bytes())?;
    Ok(places)
}

fn show(played: &Played, right: bool, rules_run: usize, broken: &[&str], places: &Places) {
    println!();
    for (name, value) in counts(played) {
        println!("  {name:30}{value:>8}");
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
    println!("  {}\n  {}\n  {}", places.picture.display(), places.timeline.display(), places.trace.display());
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
        Form::Native | Form::Decorated(_) => String::new(),
    };
    Summary {
        schema: 1,
        mode: form.mode(),
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
        process_kind: "in-process client, each with its own image of the user-mode driver",
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
