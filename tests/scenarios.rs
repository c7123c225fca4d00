//! Every conformance case, with the driver linked in and with the images that ship: `NF-01 native`, `NF-01 image`. Those that are about
//! fences and logs once more as on other hardware: `NF-01 native, shadow and one barrier`.
//!
//! `./x test --test scenarios -- NF` plays a group.

use fencepost::scenario::{Scenario, Stage, Status, all, run};
use fencepost::world::{Form, Images};
use libtest_mimic::{Arguments, Failed, Trial};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

fn play(case: &'static Scenario, form: &Form) -> Result<(), Failed> {
    let outcomes = run(&[case], &Stage::new(form.clone(), 1), &|_| ());
    match outcomes.first() {
        Some(outcome) if outcome.status == Status::Pass => Ok(()),
        Some(outcome) => Err(outcome.reason.as_str().into()),
        None => Err("it was not played".into()),
    }
}

/// Groups in which it makes a difference how a GPU keeps fences and logs.
const OF_FENCES: [&str; 5] = ["NF", "WS", "MR", "LB", "XA"];

/// Shadow state between engines and context management processor, and one of the barriers in `DxgkDdiUpdateNativeFenceLogs`.
fn play_otherwise(case: &'static Scenario) -> Result<(), Failed> {
    let stage = Stage::new(Form::Native, 1).with_setting("ShadowMonitoredValue", 1).with_setting("LogBarriers", 1);
    (case.play)(&stage).map_err(|error| format!("{error:#}").into())
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Most of a case is waiting.
    arguments.test_threads = arguments.test_threads.or(Some(4));
    let images = Images::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("out"));
    let image = images.map(|images| Form::Image(Arc::new(images)));
    let mut trials = Vec::new();
    for case in all() {
        trials.push(Trial::test(format!("{} native", case.id), move || play(case, &Form::Native)));
        if OF_FENCES.contains(&case.group()) {
            let name = format!("{} native, shadow and one barrier", case.id);
            trials.push(Trial::test(name, move || play_otherwise(case)));
        }
        let form = image.as_ref().ok().cloned();
        let missing = form.is_none();
        let trial = Trial::test(format!("{} image", case.id), move || match &form {
            Some(form) => play(case, form),
            None => Err("out/ has no images: ./x image builds them".into()),
        });
        // `./x test` builds the images first; plain `cargo test` can do without.
        trials.push(trial.with_ignored_flag(missing));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
