//! Every conformance case, with the driver linked in and with the images that ship: `NF-01 native, …`, `NF-01 image`.
//! Linked in, it is played under a row of the pairwise covering set of the readings of the documents (`fencepost soak
//! readings` plays all rows, and each reading by itself), and a case about fences and logs as on other hardware. With
//! the images it is played on the highest rung, on its lowest one, and on one of these, which its name chooses: the
//! rungs between, and the compute-only form of the driver where contexts are made by the obsolete call. `WHOLE=1 ./x
//! test --test scenarios` plays each of them. Of cases of many rounds all are played once, with the images; elsewhere a
//! part. The demo is played, too. Where all were played, every rule was reached with the images but those that
//! `src/scenario/unreached.rs` names.
//!
//! `./x test --test scenarios -- NF` plays a group.

use dxgkrnl_model::personality::covering::rows;
use dxgkrnl_model::personality::family::READINGS;
use dxgkrnl_model::personality::{Personality, Windows};
use fencepost::demo::audit::hold;
use fencepost::scenario::{LIMIT, Scenario, Stage, Status, UNREACHED, all, lowest, render_only, run, why_unreached};
use fencepost::world::{Form, Images};
use libtest_mimic::{Arguments, Failed, Trial};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

/// The rules that cases have reached with the images.
static REACHED: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());

fn play(case: &'static Scenario, stage: &Stage) -> Result<(), Failed> {
    let outcomes = run(&[case], stage, LIMIT, &|_| ());
    if !stage.is_native() {
        let mut reached = REACHED.lock().unwrap_or_else(PoisonError::into_inner);
        reached.extend(outcomes.iter().flat_map(|outcome| &outcome.reached));
    }
    match outcomes.first() {
        Some(outcome) if outcome.status == Status::Pass => Ok(()),
        Some(outcome) => Err(outcome.reason.as_str().into()),
        None => Err("it was not played".into()),
    }
}

/// Groups in which it makes a difference how a GPU keeps fences and logs.
const OF_FENCES: [&str; 5] = ["NF", "WS", "MR", "LB", "XA"];

/// A stage that a case is played on with the images.
struct OfImages {
    /// What follows the case's name.
    what: String,
    windows: Windows,
    setting: (&'static str, u32),
    /// Whether a part of many rounds will do.
    part: bool,
}

/// The stages of a case: the highest rung, its lowest one, and one of the others, which its name chooses; `WHOLE` in
/// the environment: all.
fn of_images(case: &Scenario) -> Vec<OfImages> {
    let stage = |what: &str, windows, setting, part| OfImages { what: what.to_owned(), windows, setting, part };
    let mut stages = vec![stage("", Windows::Default, ("MaxRung", 3), false)];
    let obsolete: Windows = "obsolete-contexts".parse().expect("a reading");
    let made_so = !Stage::new(Form::Native, 1).with_windows(obsolete).is_pointless(case.id);
    let compute = ("ComputeOnly", 1);
    let mut others = Vec::new();
    others.extend(match (made_so, render_only(case.id).is_none()) {
        (true, true) => Some(stage(", compute only, obsolete contexts", obsolete, compute, true)),
        (true, false) => Some(stage(", obsolete contexts", obsolete, ("MaxRung", 3), true)),
        (false, true) => Some(stage(", compute only", Windows::Default, compute, true)),
        (false, false) => None,
    });
    let mut rungs =
        (lowest(case.id).0..3).map(|rung| stage(&format!(", rung {rung}"), Windows::Default, ("MaxRung", rung), true));
    stages.extend(rungs.next());
    others.extend(rungs);
    if std::env::var_os("WHOLE").is_some() {
        stages.extend(others);
    } else {
        stages.extend(others.into_iter().max_by_key(|stage| chance(case.id, &stage.what)));
    }
    stages
}

/// The stage that a case is played on with the driver linked in, and what follows its name.
fn of_native(case: &Scenario) -> (String, Stage) {
    let (mut what, mut stage) = (String::new(), Stage::new(Form::Native, 1).in_part());
    if let Some(at) = row_of(case) {
        what = format!(", row {}", at + 1);
        stage = stage.with_windows(Windows::Row(at));
    }
    if OF_FENCES.contains(&case.group()) {
        what.push_str(", shadow and one barrier");
        // Shadow state between engines and context management processor, and one of the barriers in
        // `DxgkDdiUpdateNativeFenceLogs`.
        stage = stage.with_setting("ShadowMonitoredValue", 1).with_setting("LogBarriers", 1);
    }
    (what, stage)
}

/// The row of the covering set that a case is played under; `None` if none leaves it anything. The case's name and the
/// row's number alone choose it: it stays when cases are added. What a row is, is another when readings are added.
fn row_of(case: &Scenario) -> Option<usize> {
    let native = Stage::new(Form::Native, 1);
    let playable = |at: &usize| !native.clone().with_windows(Windows::Row(*at)).is_pointless(case.id);
    (0..rows().len()).filter(playable).max_by_key(|at| chance(case.id, &format!("row {}", at + 1)))
}

/// A number that two names give: FNV-1a, and a step that spreads what differs in few bits.
fn chance(one: &str, other: &str) -> u64 {
    let bytes = one.bytes().chain([b' ']).chain(other.bytes());
    let hash =
        bytes.fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
    (hash ^ (hash >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Seeds of the demo.
const DEMO_SEEDS: std::ops::RangeInclusive<u64> = 1..=6;

/// Returns whether this reading makes a difference under one of the demo's seeds. Of those that set the same thing the
/// first that is drawn counts.
fn is_in_a_seed(name: &str) -> bool {
    let under = |seed, without: &[&str]| {
        let mut personality = Personality::default();
        Windows::Seed(seed).apply_without(&mut personality, without);
        format!("{personality:?}")
    };
    DEMO_SEEDS.into_iter().any(|seed| under(seed, &[]) != under(seed, &[name]))
}

/// The demos: with the images on each rung, where contexts are made by the obsolete call, and where nothing hangs;
/// linked in, under readings that seeds draw, and under each that no seed has.
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
    trials.push(demo("image, no hang".to_owned(), image.cloned(), Windows::Default, ("PreemptInBuffers", 1)));
    // The soak plays each reading for itself, and on each rung.
    let native = |name, windows| demo(format!("native, {name}"), Some(Form::Native), windows, ("MaxRung", 3));
    trials.extend(DEMO_SEEDS.map(|seed| native(format!("seed {seed}"), Windows::Seed(seed))));
    for (at, reading) in READINGS.iter().enumerate().filter(|(_, reading)| reading.drawn) {
        if !is_in_a_seed(reading.name) {
            trials.push(native(reading.name.to_owned(), Windows::Reading(at)));
        }
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
        let (what, stage) = of_native(case);
        trials.push(Trial::test(format!("{} native{what}", case.id), move || play(case, &stage)));
        for OfImages { what, windows, setting: (name, value), part } in of_images(case) {
            let form = image.as_ref().ok().cloned();
            let missing = form.is_none();
            let trial = Trial::test(format!("{} image{what}", case.id), move || match &form {
                Some(form) => {
                    let stage = Stage::new(form.clone(), 1).with_windows(windows).with_setting(name, value);
                    play(case, &if part { stage.in_part() } else { stage })
                }
                None => Err("out/ has no images: ./x image builds them".into()),
            });
            // `./x test` builds the images first; plain `cargo test` can do without.
            trials.push(trial.with_ignored_flag(missing));
        }
    }
    trials.extend(demos(image.as_ref().ok()));
    let conclusion = libtest_mimic::run(&arguments, trials);
    let is_whole = arguments.filter.is_none() && arguments.skip.is_empty() && !arguments.list && !arguments.ignored;
    if is_whole && image.is_ok() && !conclusion.has_failed() {
        let wrong = wrongly_reached();
        if !wrong.is_empty() {
            eprintln!("src/scenario/unreached.rs is not what was seen:\n{}", wrong.join("\n"));
            return ExitCode::FAILURE;
        }
    }
    conclusion.exit_code()
}

/// What the table of rules that no case reaches says otherwise than the plays with the images, a line each.
fn wrongly_reached() -> Vec<String> {
    let reached = REACHED.lock().unwrap_or_else(PoisonError::into_inner);
    let rules: Vec<_> = fencepost::check::index().iter().map(|rule| rule.id).collect();
    let names = UNREACHED.iter().map(|(name, _)| *name);
    let unknown = names.filter(|name| !rules.contains(name)).map(|name| format!("{name} is no rule"));
    let wrong = |rule: &&str| match (reached.contains(rule), why_unreached(rule)) {
        (true, Some(_)) => Some(format!("{rule} is reached")),
        (false, None) => Some(format!("{rule} is not reached by any case")),
        _ => None,
    };
    unknown.chain(rules.iter().filter_map(wrong)).collect()
}
