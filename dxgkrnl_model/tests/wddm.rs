//! The model against a driver that is right, and against the same driver with one thing wrong at a time.
#![expect(unsafe_code, reason = "a driver and its clients follow pointers")]

mod client;
mod mutants;
mod tour;
mod toy;

use toy::Options;
use tour::{Ended, Stage, run, windows};

fn assert_clean(ended: &Ended, what: &str) {
    for violation in &ended.violations {
        println!("{violation}");
    }
    println!("{}", ended.report);
    println!("errors: {:#?}", ended.errors);
    assert_eq!(ended.stopped, None, "{what}");
    assert!(ended.errors.is_empty(), "{what}: {:?}", ended.errors);
    assert!(ended.broken.is_empty(), "{what} breaks {:?}", ended.broken);
}

fn options(stage: Stage) -> Options {
    Options { engine_reset: stage != Stage::AdapterHang, ..Options::default() }
}

#[test]
fn a_right_driver_breaks_no_rule() {
    for stage in Stage::ALL {
        println!("==== {stage:?}");
        let ended = run(options(stage), stage, windows());
        assert_clean(&ended, &format!("{stage:?}"));
        let counts = ended.toy.map(|toy| toy.counts.lock().unwrap_or_else(|error| error.into_inner()).clone());
        println!("{counts:?}");
    }
}

#[test]
#[ignore = "discovery"]
fn discover() {
    let list = std::fs::read_to_string("/tmp/mutants.txt").unwrap();
    let only = std::env::var("ONLY").ok();
    for name in list.lines().filter(|name| only.as_deref().is_none_or(|only| only == *name)) {
        let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
        let mut line = String::new();
        for stage in Stage::ALL {
            if std::env::var("STAGE").is_ok_and(|only| only != format!("{stage:?}")) { continue; }
            let begun = std::time::Instant::now();
            let ended = std::panic::catch_unwind(|| run(Options { mutant: name, ..options(stage) }, stage, windows()));
            match ended {
                Ok(ended) => {
                    if only.is_some() { for v in &ended.violations { println!("{v}"); } println!("{:?} {:?}", ended.stopped, ended.errors); }
                    if !ended.broken.is_empty() { line += &format!(" {stage:?}={:?}({}ms)", ended.broken, begun.elapsed().as_millis()); } }
                Err(_) => line += &format!(" {stage:?}=PANIC"),
            }
        }
        println!("{name}:{line}");
    }
}
