//! The demo's result: the JSON object, and numbers for the screen and the timeline.

use super::play::{Lane, Played};
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

/// Submissions of all queues: the model's number, since each queue's last-queued word counts them from 1; without doorbells the
/// calls that submitted command buffers.
pub fn submissions(played: &Played) -> u64 {
    if !played.doorbells {
        let calls = |name| played.report.counts.thunks.get(name).copied().unwrap_or(0);
        return calls("D3DKMTSubmitCommand") + calls("D3DKMTSubmitCommandToHwQueue");
    }
    played.lanes.iter().map(|lane| queued(played, lane)).sum()
}

/// Submissions of a queue, as the model read them.
pub fn queued(played: &Played, lane: &Lane) -> u64 {
    let its = |(process, handle, _): &&(u64, u32, u64)| (*process, *handle) == (lane.process, lane.handle);
    played.queued.iter().find(its).map_or(0, |(_, _, value)| *value)
}

/// Signals of native fences: those that the logs, which the model read, say to have been executed.
pub fn signals(played: &Played) -> u64 {
    played.report.log.iter().filter(|entry| !entry.is_wait_log).count() as u64
}

/// How often the device was told to interrupt: the model is the device.
pub fn interrupts(played: &Played) -> u64 {
    played.report.adapters.iter().map(|adapter| adapter.raises).sum()
}

/// Signals for which no interrupt named a fence: the model got them by the log only.
pub fn interrupts_suppressed(played: &Played) -> u64 {
    let named: u64 = played.report.adapters.iter().map(|adapter| adapter.fences_named).sum();
    signals(played).saturating_sub(named)
}

/// What the driver and the user-mode driver have counted, where it is not what the model has.
///
/// The stores to doorbells are in memory that nobody but user mode and the GPU sees: the model only knows that there is one per
/// submission, and one more at most for each connection.
pub fn disagreements(played: &Played) -> Vec<String> {
    let gpu = &played.gpu;
    let connects = played.report.counts.doorbell_connects;
    if !played.doorbells {
        // One list may be several buffers, and nothing is logged.
        return if gpu.interrupts_raised == interrupts(played) {
            Vec::new()
        } else {
            vec![format!("interrupts: the driver counted {}, the model {}", gpu.interrupts_raised, interrupts(played))]
        };
    }
    let own: u64 = played.lanes.iter().map(|lane| lane.counters.submissions).sum();
    let (rings, least) = (rings(played), submissions(played));
    let mut found = Vec::new();
    let mut compare = |what: &str, theirs: u64, ours: u64| {
        if theirs != ours {
            found.push(format!("{what}: the driver counted {theirs}, the model {ours}"));
        }
    };
    compare("submissions", own, submissions(played));
    compare("interrupts", gpu.interrupts_raised, interrupts(played));
    compare("signals", gpu.signals, signals(played));
    // Each signal wants an interrupt or none; of those that want one, several of one fence share it.
    compare(
        "signals with and without an interrupt",
        gpu.interrupts_wanted + gpu.interrupts_suppressed,
        signals(played),
    );
    if gpu.interrupts_suppressed > interrupts_suppressed(played) {
        let (theirs, ours) = (gpu.interrupts_suppressed, interrupts_suppressed(played));
        found.push(format!("interrupts suppressed: the driver counted {theirs}, the model at most {ours}"));
    }
    if !(least..=least + connects).contains(&rings) {
        found.push(format!("doorbell rings: {rings} for {least} submissions and {connects} connections"));
    }
    found
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
        ("native fence signals", signals(played)),
        ("interrupts", interrupts(played)),
        ("interrupts suppressed", interrupts_suppressed(played)),
        ("engine resets", resets),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.to_string()))
    .collect()
}
