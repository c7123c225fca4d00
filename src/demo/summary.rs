//! The demo's result: the JSON object, and numbers for the screen and the timeline.

use super::play::{Lane, Played};
use portable_cases::demo::play::SUBMITS;
use serde::Serialize;
use std::collections::BTreeMap;

/// The JSON object. Names are a contract: they stay.
#[derive(Serialize)]
#[expect(missing_docs, reason = "the names are described in the README")]
pub struct Summary {
    pub schema: u32,
    pub mode: &'static str,
    pub windows: String,
    pub settings: BTreeMap<String, u64>,
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
    pub interrupts_suppressed: Option<u64>,
    pub signals: Option<u64>,
    pub resets: u64,
    pub processes: u32,
    pub process_kind: &'static str,
    pub messages_hot: u64,
    pub doorbells_taken_hot: u64,
    pub picture: String,
    pub timeline: String,
    pub trace: String,
    pub picture_sha256: String,
    pub picture_right: bool,
    pub device_state_hung: String,
    pub device_state_other: String,
    pub seconds: f64,
}

/// Submissions of all queues, by the model: with doorbells the sum of the queues' last-queued words, which count from
/// 1; without them the calls that submitted command buffers.
pub fn submissions(played: &Played) -> u64 {
    if !played.doorbells {
        return SUBMITS.iter().filter_map(|name| played.report.counts.thunks.get(name)).sum();
    }
    played.lanes.iter().map(|lane| queued(played, lane)).sum()
}

/// Submissions of one queue: its last-queued word as the model read it; 0 for a queue that the model does not know.
pub fn queued(played: &Played, lane: &Lane) -> u64 {
    let its = |(process, handle, _): &&(u64, u32, u64)| (*process, *handle) == (lane.process, lane.handle);
    played.queued.iter().find(its).map_or(0, |(_, _, value)| *value)
}

/// Signals of native fences that were executed, by the fence logs that the model read. `None` without doorbells:
/// nothing is logged then.
pub fn signals(played: &Played) -> Option<u64> {
    let logged = || played.report.log.iter().filter(|entry| !entry.is_wait_log).count() as u64;
    played.doorbells.then(logged)
}

/// How often the driver told the device to interrupt. The model is the device, and counts writes to its register.
pub fn interrupts(played: &Played) -> u64 {
    played.report.adapters.iter().map(|adapter| adapter.raises).sum()
}

/// Signals without an interrupt of their own: those that were logged, less the fences that interrupts named, less the
/// interrupts of native fences that named none, each of which counts as one for a signal. `None` without doorbells.
///
/// An interrupt that is for monitored fences as well, as all are with `SingleFenceInterrupt`, says of no native fence
/// that it was signaled, and takes nothing off.
pub fn interrupts_suppressed(played: &Played) -> Option<u64> {
    let adapters = played.report.adapters.iter();
    let interrupted: u64 = adapters.map(|adapter| adapter.fences_named + adapter.fences_unnamed).sum();
    Some(signals(played)?.saturating_sub(interrupted))
}

/// The same with no regard to interrupts that named no fence: a driver may ask the OS to look although nothing was
/// signaled.
fn most_suppressed(played: &Played) -> u64 {
    let named: u64 = played.report.adapters.iter().map(|adapter| adapter.fences_named).sum();
    signals(played).unwrap_or(0).saturating_sub(named)
}

/// Where the counts of the driver and the user-mode driver differ from the model's, a sentence each.
///
/// The model does not see stores to doorbells, which go to memory between user mode and the GPU. It knows only that
/// there is one per submission, and one more at most for each connection.
pub fn disagreements(played: &Played) -> Vec<String> {
    let gpu = &played.gpu;
    let connects = played.report.counts.doorbell_connects;
    let mut found = Vec::new();
    let mut compare = |what: &str, theirs: u64, ours: u64| {
        if theirs != ours {
            found.push(format!("{what}: the driver counted {theirs}, the model {ours}"));
        }
    };
    compare("interrupts", gpu.interrupts_raised, interrupts(played));
    let Some(signals) = signals(played) else {
        // No signal is logged. One command list may be several command buffers, each a call.
        compare("submissions", played.submit_calls, submissions(played));
        return found;
    };
    let own: u64 = played.lanes.iter().map(|lane| lane.counters.submissions).sum();
    let (rings, least) = (rings(played), submissions(played));
    compare("submissions", own, submissions(played));
    compare("signals", gpu.signals, signals);
    // The driver counts each signal as one that wants an interrupt or as one that wants none. Several that want one may
    // share it.
    compare("signals with and without an interrupt", gpu.interrupts_wanted + gpu.interrupts_suppressed, signals);
    // The CPU waited for none of these fences, so each signal wants no interrupt.
    let (theirs, needless, most) = (gpu.interrupts_suppressed, played.unmonitored, most_suppressed(played));
    if !(needless..=most).contains(&theirs) {
        found.push(format!("interrupts suppressed: the driver counted {theirs}, the model {needless} to {most}"));
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

/// What the interrupts reported, most often first: an interrupt may report several things, or what another one did.
pub fn reported(played: &Played) -> String {
    let mut kinds = BTreeMap::<String, u64>::new();
    for (kind, count) in played.report.adapters.iter().flat_map(|adapter| &adapter.kinds) {
        let name = format!("{kind:?}");
        let words = name.trim_start_matches("DXGK_INTERRUPT_").to_lowercase().replace('_', " ");
        *kinds.entry(words).or_default() += count;
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    kinds.iter().map(|(words, count)| format!("{count} {words}")).collect::<Vec<_>>().join(", ")
}

/// What is worth showing, with names: without doorbells no signals, which nothing counted.
pub fn counts(played: &Played) -> Vec<(String, String)> {
    let resets = played.report.counts.resets;
    let adapters = played.report.adapter_resets();
    [
        ("submissions", Some(submissions(played))),
        ("doorbell rings", Some(rings(played))),
        ("thunk calls while submitting", Some(hot(played))),
        ("messages while submitting", played.separate.then_some(played.messages_hot)),
        ("doorbells taken away meanwhile", (played.taken_hot != 0).then_some(played.taken_hot)),
        ("native fence signals", signals(played)),
        ("interrupts", Some(interrupts(played))),
        ("interrupts suppressed", interrupts_suppressed(played)),
        ("engine resets", Some(resets.saturating_sub(adapters))),
        ("adapter resets", (adapters != 0).then_some(adapters)),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.to_owned(), value?.to_string())))
    .collect()
}
