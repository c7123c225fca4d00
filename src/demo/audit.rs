//! Whether what the GPU logged is what was queued: every wait and signal of a named fence once, every progress value in order.

use super::play::{Lane, Played};
use super::summary::disagreements;
use std::collections::BTreeMap;
use umd_core::ffi::types::FP_TRACE_WAIT_QUEUED;

/// What does not fit, in words.
pub fn complaints(played: &Played) -> Vec<String> {
    let mut found = disagreements(played);
    for (thunk, times) in &played.report.counts.hot_thunks {
        found.push(format!("{thunk} was called {times} times while work was submitted"));
    }
    if played.gpu.backwards != 0 {
        found.push(format!("{} signals took a fence back", played.gpu.backwards));
    }
    for (name, value, wanted) in &played.values {
        if value != wanted {
            found.push(format!("'{name}' ends at {value}, not {wanted}"));
        }
    }
    for lane in &played.lanes {
        let hung = lane.role == "emboss";
        compare(played, lane, hung, &mut found);
    }
    found
}

/// Operation, fence, value: how often.
type Operations = BTreeMap<(bool, u32, u64), i64>;

fn compare(played: &Played, lane: &Lane, hung: bool, found: &mut Vec<String>) {
    let known =
        |handle: u32| played.fences.iter().any(|(process, fence, _)| *process == lane.process && *fence == handle);
    let mut operations = Operations::new();
    for event in lane.trace.iter().filter(|event| known(event.fence)) {
        *operations.entry((event.kind == FP_TRACE_WAIT_QUEUED, event.fence, event.value)).or_default() += 1;
    }
    let mine =
        |record: &&dxgkrnl_model::report::LogRecord| record.process == lane.process && record.queue == lane.handle;
    let mut progress = 0;
    for record in played.report.log.iter().filter(mine) {
        if known(record.fence) {
            *operations.entry((record.is_wait_log, record.fence, record.value)).or_default() -= 1;
        } else if record.fence == lane.progress_fence && !record.is_wait_log {
            if record.value != progress + 1 {
                found.push(format!("{}, {}: progress {} after {progress}", lane.who, lane.role, record.value));
            }
            progress = record.value;
        } else {
            found.push(format!("{}, {}: a log entry for the unknown fence {:#x}", lane.who, lane.role, record.fence));
        }
    }
    for ((is_wait, fence, value), count) in operations.into_iter().filter(|(_, count)| *count != 0) {
        let what = if is_wait { "wait for" } else { "signal of" };
        let how = if count > 0 { "queued and not logged" } else { "logged and not queued" };
        found.push(format!("{}, {}: a {what} {value} of fence {fence:#x} was {how}", lane.who, lane.role));
    }
    let wanted = if hung { lane.counters.submissions - 1 } else { lane.counters.submissions };
    if progress != wanted {
        found.push(format!("{}, {}: {wanted} submissions should be done, {progress} are logged", lane.who, lane.role));
    }
}
