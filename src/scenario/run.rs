//! Selection, running, the JSON file.

use super::forms::render_only;
use super::stage::Skipped;
use super::{Scenario, Stage, all, lowest};
use dxgkrnl_model::adapter::{Recovery, What};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Cases that are played at once where the caller has no other wish. Most of a case's time is waiting.
pub const AT_ONCE: usize = 4;

/// The time that a case may take where the caller has no other wish: many times what the slowest takes on a busy
/// machine of two processors.
pub const LIMIT: Duration = Duration::from_secs(600);

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
    /// The numbers that the case has noted ([`Stage::note`]), by name.
    pub numbers: BTreeMap<&'static str, u64>,
    /// What was reset, machine by machine, in the order in which it began.
    pub recoveries: Vec<Recovered>,
    /// Names of the rules that its machines have reached.
    #[serde(skip)]
    pub reached: BTreeSet<&'static str>,
}

/// A recovery, in a case's result.
#[derive(Clone, Debug, Serialize)]
pub struct Recovered {
    /// What was reset: `packet engine`, `engine` (of a node that the hardware schedules) or `adapter`.
    pub what: &'static str,
    /// The engine's node.
    pub node: Option<u32>,
    /// Why.
    pub reason: String,
    /// `TdrReason`, as `!analyze` shows it.
    pub tdr_reason: i32,
    /// The steps, in their order, with what they carry.
    pub steps: Vec<String>,
    /// Whether it was over when the machine was shut down.
    pub is_over: bool,
}

impl From<&Recovery> for Recovered {
    fn from(recovery: &Recovery) -> Self {
        let (what, node) = match recovery.what {
            What::PacketEngine { node } => ("packet engine", Some(node)),
            What::HwEngine { node } => ("engine", Some(node)),
            What::Adapter => ("adapter", None),
        };
        Self {
            what,
            node,
            reason: format!("{:?}", recovery.reason),
            tdr_reason: recovery.reason.tdr_reason(),
            steps: recovery.steps.iter().map(|step| format!("{step:?}")).collect(),
            is_over: recovery.is_over,
        }
    }
}

impl Outcome {
    /// The result of a case that was not played.
    fn skipped(case: &Scenario, reason: String) -> Self {
        Self {
            id: case.id,
            group: case.group(),
            status: Status::Skip,
            reason,
            ms: 0,
            numbers: BTreeMap::new(),
            recoveries: Vec::new(),
            reached: BTreeSet::new(),
        }
    }
}

/// The cases that `selector` names: an id, a group, or `all`. Letters of either case.
pub fn select(selector: &str) -> Vec<&'static Scenario> {
    select_of(all(), selector)
}

/// [`select`], among cases of another crate.
pub fn select_of(cases: impl IntoIterator<Item = &'static Scenario>, selector: &str) -> Vec<&'static Scenario> {
    let same = |name: &str| name.eq_ignore_ascii_case(selector);
    let is_named = |case: &&Scenario| selector.eq_ignore_ascii_case("all") || same(case.id) || same(case.group());
    cases.into_iter().filter(is_named).collect()
}

/// The list of `cases`, three lines each: id and title; source; lowest rung and why.
pub fn list(cases: &[&Scenario]) -> String {
    let line = |case: &Scenario| {
        let (rung, why) = lowest(case.id);
        format!("{:6} {}\n      {}\n      from rung {rung} on: {why}\n", case.id, case.title, case.source)
    };
    cases.iter().copied().map(line).collect()
}

/// Plays `cases` on `stage` and calls `done` after each, in the order in which they end. A case that has not ended
/// after `limit` fails; its threads are left as they are until the process ends.
pub fn run(
    cases: &[&'static Scenario],
    stage: &Stage,
    limit: Duration,
    done: &(dyn Fn(&Outcome) + Sync),
) -> Vec<Outcome> {
    run_at_once(AT_ONCE, cases, stage, limit, done)
}

/// [`run`], so many cases at once.
pub fn run_at_once(
    at_once: usize,
    cases: &[&'static Scenario],
    stage: &Stage,
    limit: Duration,
    done: &(dyn Fn(&Outcome) + Sync),
) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(vec![None; cases.len()]);
    std::thread::scope(|scope| {
        for _ in 0..at_once.min(cases.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(index) else { break };
                    let outcome = play(case, stage, limit);
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

fn play(case: &'static Scenario, stage: &Stage, limit: Duration) -> Outcome {
    let (rung, why) = lowest(case.id);
    if rung > stage.rung() {
        let reason = format!("needs rung {rung}: {why}");
        return Outcome::skipped(case, reason);
    }
    if let Some(why) = render_only(case.id).filter(|_| stage.setting("ComputeOnly") == Some(1)) {
        let reason = format!("of the render-only form: {why}");
        return Outcome::skipped(case, reason);
    }
    if let Some(reason) = stage.why_pointless(case.id) {
        return Outcome::skipped(case, reason);
    }
    let begun = Instant::now();
    let (ended, end) = channel();
    let own = stage.for_case(case.id);
    let kept = own.clone();
    let recorder = stage.dumps().map(|dumps| Arc::new(dumps.recorder()));
    let listening = recorder.clone();
    let thread = std::thread::Builder::new().name(case.id.to_owned()).spawn(move || {
        // The receiver is gone when the limit has passed.
        let _ = ended.send(catch_unwind(AssertUnwindSafe(|| match listening {
            Some(recorder) => recorder.listening(|| (case.play)(&own)),
            None => (case.play)(&own),
        })));
    });
    let mut skipped = false;
    let reason = match (thread, end.recv_timeout(limit)) {
        (Err(error), _) => Some(format!("no thread: {error}")),
        (_, Ok(Ok(Ok(())))) => None,
        (_, Ok(Ok(Err(error)))) => {
            skipped = error.is::<Skipped>();
            Some(format!("{error:#}"))
        }
        (_, Ok(Err(panic))) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Some(format!("a panic: {}", text.unwrap_or_default()))
        }
        (_, Err(RecvTimeoutError::Timeout)) => Some(format!("it did not end within {} s (--limit)", limit.as_secs())),
        (_, Err(RecvTimeoutError::Disconnected)) => Some("its thread ended without a result".to_owned()),
    };
    if let (Some(dumps), Some(recorder)) = (stage.dumps(), recorder) {
        dumps.ended(case.id, reason.is_none() || skipped, recorder);
    }
    Outcome {
        id: case.id,
        group: case.group(),
        status: match reason {
            None => Status::Pass,
            Some(_) if skipped => Status::Skip,
            Some(_) => Status::Fail,
        },
        reason: reason.unwrap_or_default(),
        // CAST: milliseconds of a run.
        ms: begun.elapsed().as_millis() as u64,
        numbers: kept.numbers(),
        recoveries: kept.recoveries().iter().map(Recovered::from).collect(),
        reached: kept.reached(),
    }
}
