//! Selection, running, the JSON file.

use super::{Scenario, Stage, all, lowest};
use serde::Serialize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Cases that are played at once. Most of a case's time is waiting.
const AT_ONCE: usize = 4;

/// How a case ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Everything held.
    Pass,
    /// Something did not.
    Fail,
    /// It was not played.
    Skip,
}

/// The result of a case.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Its id.
    pub id: &'static str,
    /// Its group.
    pub group: &'static str,
    /// How it ended.
    pub status: Status,
    /// Why, unless it passed.
    pub reason: String,
    /// How long it took, in milliseconds.
    pub ms: u64,
}

/// The cases that `selector` names: an id, a group, or `all`. Letters of either case.
pub fn select(selector: &str) -> Vec<&'static Scenario> {
    let same = |name: &str| name.eq_ignore_ascii_case(selector);
    all().filter(|case| selector.eq_ignore_ascii_case("all") || same(case.id) || same(case.group())).collect()
}

/// The list of cases: id, title, source, lowest rung and why.
pub fn list() -> String {
    let line = |case: &Scenario| {
        let (rung, why) = lowest(case.id);
        format!("{:6}{}\n      {}\n      from rung {rung} on: {why}\n", case.id, case.title, case.source)
    };
    all().map(line).collect()
}

/// Plays `cases` on `stage` and calls `done` after each, in the order in which they end.
pub fn run(cases: &[&'static Scenario], stage: &Stage, done: &(dyn Fn(&Outcome) + Sync)) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(vec![None; cases.len()]);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(cases.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(index) else { break };
                    let outcome = play(case, stage);
                    done(&outcome);
                    if let Ok(mut results) = results.lock() {
                        results[index] = Some(outcome);
                    }
                }
            });
        }
    });
    results.into_inner().unwrap_or_default().into_iter().flatten().collect()
}

fn play(case: &'static Scenario, stage: &Stage) -> Outcome {
    let (rung, why) = lowest(case.id);
    if rung > stage.rung() {
        let reason = format!("needs rung {rung}: {why}");
        return Outcome { id: case.id, group: case.group(), status: Status::Skip, reason, ms: 0 };
    }
    if stage.is_pointless(case.id) {
        let reason = "it says nothing under this reading (readings.rs)".to_owned();
        return Outcome { id: case.id, group: case.group(), status: Status::Skip, reason, ms: 0 };
    }
    let begun = Instant::now();
    let played = catch_unwind(AssertUnwindSafe(|| (case.play)(&stage.for_case(case.id))));
    let reason = match played {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("{error:#}")),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Some(format!("a panic: {}", text.unwrap_or_default()))
        }
    };
    Outcome {
        id: case.id,
        group: case.group(),
        status: if reason.is_none() { Status::Pass } else { Status::Fail },
        reason: reason.unwrap_or_default(),
        // CAST: milliseconds of a run.
        ms: begun.elapsed().as_millis() as u64,
    }
}
