//! Whether what the GPU logged is what was queued: every wait and signal of a named fence once, every progress value in order.

use super::picture::Picture;
use super::play::{Lane, Played, play};
use super::recipe;
use super::summary::disagreements;
use crate::setting::{self, Assignment};
use crate::world::{Form, World};
use anyhow::{Result, ensure};
use dxgkrnl_model::personality::{Personality, Windows};
use std::collections::BTreeMap;
use umd_core::ffi::types::FP_TRACE_WAIT_QUEUED;

/// Plays the demo on this Windows with these settings, without a picture to look at.
///
/// # Errors
/// What does not hold: in the work, in the picture, in the numbers, or by the model's rules.
pub fn hold(form: &Form, windows: Windows, settings: &[Assignment]) -> Result<()> {
    let photo = Picture::coffee()?;
    let mut personality = Personality::collecting();
    windows.apply(&mut personality);
    let world = World::boot(form, personality)?;
    let adapter = world.adapter(setting::adapter(settings))?;
    let played = play(&world, adapter.luid(), &photo, &|_| ());
    drop(adapter);
    world.os.shut_down();
    let broken: Vec<_> = world.os.report().broken().map(|rule| rule.rule.name).collect();
    ensure!(broken.is_empty(), "{} broken", broken.join(", "));
    let played = played?;
    ensure!(played.picture == recipe::expected(&photo), "the picture is wrong");
    let complaints = complaints(&played);
    ensure!(complaints.is_empty(), "{}", complaints.join("; "));
    Ok(())
}

/// What does not fit, in words.
pub fn complaints(played: &Played) -> Vec<String> {
    let mut found = disagreements(played);
    // Without doorbells each submission is a call.
    for (thunk, times) in played.report.counts.hot_thunks.iter().filter(|_| played.doorbells) {
        found.push(format!("{thunk} was called {times} times while work was submitted"));
    }
    if played.report.counts.resets != 1 {
        found.push(format!("{} engines or adapters were reset, not 1", played.report.counts.resets));
    }
    if played.gpu.backwards != 0 {
        found.push(format!("{} signals took a fence back", played.gpu.backwards));
    }
    for (name, value, wanted) in &played.values {
        if value != wanted {
            found.push(format!("'{name}' ends at {value}, not {wanted}"));
        }
    }
    // Queues without doorbells have no logs.
    for lane in played.lanes.iter().filter(|_| played.doorbells) {
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
