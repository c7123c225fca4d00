//! Every conformance case, with the driver linked in and with the images that ship: `NF-01 native`, `NF-01 image`. With
//! the images each case is played once more where contexts are made by the obsolete call, with the compute-only form of
//! the driver, and on each lower rung from its lowest on; linked in, under one of the readings of the documents
//! (`fencepost soak readings` plays the whole product). Cases about fences and logs are played once more as on other
//! hardware: `NF-01 native, shadow and one barrier`. The demo is played, too.
//!
//! `./x test --test scenarios -- NF` plays a group.

use dxgkrnl_model::personality::Windows;
use dxgkrnl_model::personality::family::READINGS;
use fencepost::demo::audit::hold;
use fencepost::scenario::{LIMIT, Scenario, Stage, Status, all, lowest, render_only, run};
use fencepost::world::{Form, Images};
use libtest_mimic::{Arguments, Failed, Trial};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

fn play(case: &'static Scenario, stage: &Stage) -> Result<(), Failed> {
    let outcomes = run(&[case], stage, LIMIT, &|_| ());
    match outcomes.first() {
        Some(outcome) if outcome.status == Status::Pass => Ok(()),
        Some(outcome) => Err(outcome.reason.as_str().into()),
        None => Err("it was not played".into()),
    }
}

/// Groups in which it makes a difference how a GPU keeps fences and logs.
const OF_FENCES: [&str; 5] = ["NF", "WS", "MR", "LB", "XA"];

/// Shadow state between engines and context management processor, and one of the barriers in
/// `DxgkDdiUpdateNativeFenceLogs`.
fn otherwise() -> Stage {
    Stage::new(Form::Native, 1).with_setting("ShadowMonitoredValue", 1).with_setting("LogBarriers", 1)
}

/// The stages that a case is played on with the images: what follows its name, Windows, a setting.
fn of_images(case: &Scenario) -> Vec<(String, Windows, (&'static str, u32))> {
    let mut stages = vec![
        (String::new(), Windows::Default, ("MaxRung", 3)),
        (", obsolete contexts".to_owned(), "obsolete-contexts".parse().expect("a reading"), ("MaxRung", 3)),
    ];
    let rungs = (0..3).filter(|rung| lowest(case.id).0 <= *rung);
    stages.retain(|(_, windows, _)| !Stage::new(Form::Native, 1).with_windows(*windows).is_pointless(case.id));
    stages.extend(rungs.map(|rung| (format!(", rung {rung}"), Windows::Default, ("MaxRung", rung))));
    if render_only(case.id).is_none() {
        stages.push((", compute only".to_owned(), Windows::Default, ("ComputeOnly", 1)));
    }
    stages
}

/// The reading that a case is played under, of those that seeds draw: one that the case's id alone chooses, so that it
/// stays when cases are added, or the next one under which the case can be played; `None` if it can be under none.
fn reading_of(case: &Scenario) -> Option<usize> {
    let drawn: Vec<_> = (0..READINGS.len()).filter(|at| READINGS[*at].drawn).collect();
    // FNV-1a, of 32 bits.
    let hash = case.id.bytes().fold(0x811C_9DC5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let native = Stage::new(Form::Native, 1);
    let playable = |at: &usize| !native.clone().with_windows(Windows::Reading(*at)).is_pointless(case.id);
    // CAST: below the number of readings.
    drawn.iter().copied().cycle().skip(hash as usize % drawn.len()).take(drawn.len()).find(playable)
}

/// The demos: with the images on each rung, and where contexts are made by the obsolete call; linked in, under each
/// reading that seeds draw.
fn demos(image: Option<&Form>) -> Vec<Trial> {
    let demo = |name: String, form: Option<Form>, windows: Windows, (setting, value): (&'static str, u64)| {
        let missing = form.is_none();
        let trial = Trial::test(format!("demo {name}"), move || match &form {
            Some(form) => {
                hold(form, windows, &[(setting.to_owned(), value)]).map_err(|error| format!("{error:#}").into())
            }
            None => Err("out/ has no images: ./x image builds them".into()),
        });
        trial.with_ignored_flag(missing)
    };
    let mut trials = Vec::new();
    for rung in 0..=3 {
        trials.push(demo(format!("image, rung {rung}"), image.cloned(), Windows::Default, ("MaxRung", rung)));
    }
    let obsolete = "obsolete-contexts".parse().expect("a reading");
    trials.push(demo("image, obsolete contexts".to_owned(), image.cloned(), obsolete, ("MaxRung", 3)));
    trials.push(demo("image, compute only".to_owned(), image.cloned(), Windows::Default, ("ComputeOnly", 1)));
    for (at, reading) in READINGS.iter().enumerate().filter(|(_, reading)| reading.drawn) {
        // The soak plays it on each rung.
        trials.push(demo(
            format!("native, {}", reading.name),
            Some(Form::Native),
            Windows::Reading(at),
            ("MaxRung", 3),
        ));
    }
    trials
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Most of a case is waiting.
    arguments.test_threads = arguments.test_threads.or(Some(4));
    let images = Images::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("out"));
    let image = images.map(|images| Form::Image(Arc::new(images)));
    let mut trials = Vec::new();
    for case in all() {
        let native = Stage::new(Form::Native, 1);
        if let Some(at) = reading_of(case) {
            let under = native.clone().with_windows(Windows::Reading(at));
            let name = format!("{} native, {}", case.id, READINGS[at].name);
            trials.push(Trial::test(name, move || play(case, &under)));
        }
        trials.push(Trial::test(format!("{} native", case.id), move || play(case, &native)));
        if OF_FENCES.contains(&case.group()) {
            let name = format!("{} native, shadow and one barrier", case.id);
            trials.push(Trial::test(name, move || play(case, &otherwise())));
        }
        for (what, windows, (name, value)) in of_images(case) {
            let form = image.as_ref().ok().cloned();
            let missing = form.is_none();
            let trial = Trial::test(format!("{} image{what}", case.id), move || match &form {
                Some(form) => play(case, &Stage::new(form.clone(), 1).with_windows(windows).with_setting(name, value)),
                None => Err("out/ has no images: ./x image builds them".into()),
            });
            // `./x test` builds the images first; plain `cargo test` can do without.
            trials.push(trial.with_ignored_flag(missing));
        }
    }
    trials.extend(demos(image.as_ref().ok()));
    libtest_mimic::run(&arguments, trials).exit_code()
}
