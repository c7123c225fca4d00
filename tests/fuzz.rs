//! Some seconds of each fuzzer: `thunks native`, `thunks image`. The seeds of the corpus come first, then those from 1
//! on, so that what is done is the same each time, if not in which order. Each must reach what it is there for.
//!
//! `./x fuzz NAME --seconds N` goes on for longer.

use fencepost::fuzz::{FUZZERS, Fuzzer, Plan, find, run};
use fencepost::world::{Form, Images};
use gpu_engine::mutation::Mutation;
use libtest_mimic::{Arguments, Failed, Trial};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// How long each is played, linked in and as an image.
const LINKED_IN: Duration = Duration::from_secs(8);
/// As above.
const IMAGE: Duration = Duration::from_secs(4);

/// What each fuzzer reaches at least, even on a busy machine: what begins with these words, so often.
const REACHES: &[(&str, &[(&str, u64)])] = &[
    (
        "engine",
        &[
            ("victim: submissions", 100),
            ("engines: log_entries", 100),
            ("engines: waits_parked", 10),
            ("engines: flushes", 100),
            ("engines: resets", 10),
            ("faults: Address", 5),
            ("faults: BadWritePointer", 1),
            ("faults: NotPermitted", 1),
        ],
    ),
    (
        "thunks",
        &[
            ("victim: submissions", 100),
            ("D3DKMTCreateHwQueue: STATUS_SUCCESS", 5),
            ("D3DKMTCreateHwQueue: STATUS_INVALID_PARAMETER", 5),
            ("D3DKMTCreateDoorbell: STATUS_INVALID_PARAMETER", 5),
            ("D3DKMTCreateNativeFence: STATUS_SUCCESS", 5),
            ("D3DKMTEscape: STATUS_SUCCESS", 5),
        ],
    ),
    (
        "rings",
        &[
            ("victim: submissions", 100),
            ("devices: lost", 5),
            ("faults reported: ", 5),
            ("packets written: INDIRECT", 10),
        ],
    ),
    (
        "doorbells",
        &[
            ("victim: submissions", 100),
            ("create: STATUS_SUCCESS", 50),
            ("connect: STATUS_SUCCESS", 50),
            ("destroy: STATUS_SUCCESS", 50),
            ("doorbells: disconnected by the OS", 20),
        ],
    ),
    ("interrupts", &[("victim: submissions", 100), ("storm: interrupts", 200)]),
];

fn play(fuzzer: &Fuzzer, form: &Form, length: Duration) -> Result<(), Failed> {
    let plan = Plan { form: form.clone(), first: 1, alone: false, length, mutation: 0 };
    let outcome = run(fuzzer, &plan).map_err(|error| format!("{error:#}"))?;
    let coverage = &outcome.coverage;
    if let Some((seed, finding)) = outcome.finding {
        return Err(format!("seed {seed} (./x fuzz {} --seed {seed}): {finding}\n{coverage}", fuzzer.name).into());
    }
    let (_, least) = REACHES.iter().find(|(name, _)| *name == fuzzer.name).ok_or("it does not say what it reaches")?;
    for (what, times) in *least {
        let reached = coverage.reached(what);
        if reached < *times {
            return Err(format!("{what}: {reached} times, not {times}\n{coverage}").into());
        }
    }
    Ok(())
}

/// What the fuzzer of the GPU finds when the GPU does a step wrong, so that it can find something at all.
const FINDS: &[(Mutation, &str)] = &[(Mutation::WritesDeadFence, "0xffffffffffffffff became ")];

/// Plays on until the mistake is found.
fn finds(mutation: Mutation, words: &str) -> Result<(), Failed> {
    let fuzzer = find("engine").ok_or("no such fuzzer")?;
    let length = Duration::from_secs(30);
    // CAST: the number of the mutation.
    let plan = Plan { form: Form::Native, first: 1, alone: false, length, mutation: mutation as u32 };
    let outcome = run(fuzzer, &plan).map_err(|error| format!("{error:#}"))?;
    match outcome.finding {
        Some((_, finding)) if finding.contains(words) => Ok(()),
        Some((_, finding)) => Err(format!("found: {finding}, not: {words}").into()),
        None => Err(format!("{} rounds held", outcome.rounds).into()),
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Each has more threads than the machine has processors.
    arguments.test_threads = Some(1);
    let images = Images::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("out"));
    let image = images.map(|images| Form::Image(Arc::new(images))).ok();
    let mut trials = Vec::new();
    for fuzzer in FUZZERS {
        trials.push(Trial::test(format!("{} native", fuzzer.name), || play(fuzzer, &Form::Native, LINKED_IN)));
        if fuzzer.has_driver {
            let form = image.clone();
            let trial = Trial::test(format!("{} image", fuzzer.name), move || match &form {
                Some(form) => play(fuzzer, form, IMAGE),
                None => Err("out/ has no images: ./x image builds them".into()),
            });
            trials.push(trial.with_ignored_flag(image.is_none()));
        }
    }
    for (mutation, words) in FINDS {
        trials.push(Trial::test(format!("engine finds {}", mutation.name()), || finds(*mutation, words)));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
