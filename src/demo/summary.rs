//! The demo's result: the JSON object, and numbers for the screen and the timeline.

use super::play::Played;
use serde::Serialize;

/// The JSON object. Names are a contract: they stay.
#[derive(Serialize)]
#[expect(missing_docs, reason = "the names are described in the README")]
pub struct Summary {
    pub schema: u32,
    pub mode: &'static str,
    pub driver: String,
    pub umd: String,
    pub driver_sha256: String,
    pub umd_sha256: String,
    pub wddm: &'static str,
    pub rules_run: usize,
    pub rules_broken: usize,
    pub submissions: u64,
    pub doorbell_rings: u64,
    pub thunk_calls_hot: u64,
    pub interrupts: u64,
    pub interrupts_suppressed: u64,
    pub signals: u64,
    pub resets: u64,
    pub processes: u32,
    pub process_kind: &'static str,
    pub picture: String,
    pub timeline: String,
    pub trace: String,
    pub picture_sha256: String,
    pub picture_right: bool,
    pub device_state_hung: String,
    pub device_state_other: String,
    pub seconds: f64,
}

/// Submissions of all queues.
pub fn submissions(played: &Played) -> u64 {
    played.lanes.iter().map(|lane| lane.counters.submissions).sum()
}

/// Doorbell stores of all queues.
pub fn rings(played: &Played) -> u64 {
    played.lanes.iter().map(|lane| lane.counters.rings).sum()
}

/// Thunk calls while work was submitted.
pub fn hot(played: &Played) -> u64 {
    played.report.counts.hot_thunks.values().sum()
}

/// What is worth showing, with names.
pub fn counts(played: &Played) -> Vec<(String, String)> {
    let resets = played.report.counts.resets;
    [
        ("submissions", submissions(played)),
        ("doorbell rings", rings(played)),
        ("thunk calls while submitting", hot(played)),
        ("native fence signals", played.gpu.signals),
        ("interrupts", played.gpu.interrupts_raised),
        ("interrupts suppressed", played.gpu.interrupts_suppressed),
        ("engine resets", resets),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.to_string()))
    .collect()
}
