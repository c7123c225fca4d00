//! Whether what the GPU logged is what was queued: every wait and signal of a named fence once, every progress value in
//! order.

use super::picture::Picture;
use super::play::{Lane, Played};
use super::run::run;
use super::summary::disagreements;
use crate::setting::Assignment;
use crate::world::Form;
use anyhow::{Result, bail, ensure};
use dxgkrnl_model::personality::Windows;
use portable_cases::demo::recipe;
use std::collections::BTreeMap;
use umd_core::ffi::types::FP_TRACE_WAIT_QUEUED;

const CONNECT: &str = "D3DKMTConnectDoorbell";
const NOTIFY: &str = "D3DKMTNotifyWorkSubmission";

/// Where two pictures of one size differ, in words; `None`: nowhere.
fn difference(got: &Picture, want: &Picture) -> Option<String> {
    let pixels = got.pixels.chunks(4).zip(want.pixels.chunks(4));
    let wrong: Vec<_> = pixels.enumerate().filter(|(_, (got, want))| got != want).collect();
    let place = |at: usize| (at % want.width as usize, at / want.width as usize);
    let (first, (got, want)) = wrong.first()?;
    let last = wrong.last().map(|(at, _)| place(*at));
    let count = wrong.len();
    Some(format!("{count} pixels, from {:?} ({got:?} for {want:?}) to {last:?}", place(*first)))
}

/// Plays the demo with the built-in photo on this Windows, with these settings, and writes no files.
///
/// # Errors
/// A rule of the model is broken, the work was not done, the picture is wrong, or [`complaints`] has something to say.
pub fn hold(form: &Form, windows: Windows, settings: &[Assignment]) -> Result<()> {
    let photo = Picture::coffee()?;
    let ended = run(form, windows, settings, &photo, true, |_, _| (), &|_| ())?;
    ensure!(ended.broken.is_empty(), "{} broken", ended.broken.join(", "));
    let complaints = ended.complaints();
    let played = ended.played?;
    if let Some(wrong) = difference(&played.picture, &recipe::expected(&photo)) {
        let resets = played.report.counts.resets;
        bail!("the picture is wrong: {wrong}; {resets} resets; {}", complaints.join("; "));
    }
    ensure!(complaints.is_empty(), "{}", complaints.join("; "));
    Ok(())
}

/// What does not fit, a sentence each: numbers of driver and model that differ, calls into the kernel while work went
/// through doorbells, resets other than the one that the hang costs, fences that went back, what the processes say that
/// does not fit, logs that do not have what was queued. Empty when all is right.
pub fn complaints(played: &Played) -> Vec<String> {
    let mut found = disagreements(played);
    // Without doorbells each submission is a call into the kernel, so calls are no complaint.
    if played.doorbells {
        calls(played, &mut found);
    }
    let due = u64::from(played.hangs);
    if played.report.counts.resets != due {
        found.push(format!("{} engines or adapters were reset, not {due}", played.report.counts.resets));
    }
    if played.gpu.backwards != 0 {
        found.push(format!("{} signals took a fence back", played.gpu.backwards));
    }
    found.extend(played.said_wrong.iter().cloned());
    // Queues without doorbells have no logs.
    for lane in played.lanes.iter().filter(|_| played.doorbells) {
        let hung = played.hangs && lane.role == "emboss";
        compare(played, lane, hung, &mut found);
    }
    found
}

/// Calls and messages while work was submitted. There are none, unless the host kept a process from its processor for
/// so long that an idle engine let go of its doorbell. Then it connects once, and announces what it submits if that is
/// what the OS asks of it. Each doorbell that goes, each connection and each call is a message.
fn calls(played: &Played, found: &mut Vec<String>) {
    let thunks = &played.report.counts.hot_thunks;
    let times = |thunk: &str| thunks.get(thunk).copied().unwrap_or(0);
    let connects = times(CONNECT).min(played.taken_hot);
    let submissions = played.lanes.iter().map(|lane| lane.counters.submissions).sum();
    let announced = if connects == 0 { 0 } else { times(NOTIFY).min(submissions) };
    for (thunk, times) in thunks {
        let allowed = match *thunk {
            CONNECT => connects,
            NOTIFY => announced,
            _ => 0,
        };
        if *times > allowed {
            let taken = played.taken_hot;
            found.push(format!(
                "{thunk} was called {times} times while work was submitted, and {taken} doorbells taken away"
            ));
        }
    }
    if played.messages_hot > played.taken_hot + 2 * connects + announced {
        let (sent, taken) = (played.messages_hot, played.taken_hot);
        found.push(format!("{sent} messages were sent while work was submitted, and {taken} doorbells taken away"));
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::summary::{interrupts_suppressed, signals};
    use gpu_wire::private::EscapeCounters;

    /// Makes one counter wrong.
    type Spoil = fn(&mut EscapeCounters);

    /// One number that the driver or the user-mode driver counted wrong is one complaint.
    #[test]
    fn a_wrong_count_is_a_complaint() -> Result<()> {
        let photo = Picture::coffee()?;
        let ended = run(&Form::Native, Windows::Default, &[], &photo, false, |_, _| (), &|_| ())?;
        let mut played = ended.played?;
        assert_eq!(complaints(&played), [""; 0]);
        let counters: [(&str, Spoil); 6] = [
            ("interrupts:", |gpu| gpu.interrupts_raised += 1),
            ("signals:", |gpu| gpu.signals += 1),
            ("signals with and without", |gpu| gpu.interrupts_wanted += 1),
            ("signals took a fence back", |gpu| gpu.backwards += 1),
            ("interrupts suppressed:", |gpu| (gpu.interrupts_wanted, gpu.interrupts_suppressed) = (gpu.signals, 0)),
            ("interrupts suppressed:", |gpu| (gpu.interrupts_wanted, gpu.interrupts_suppressed) = (0, gpu.signals)),
        ];
        let right = played.gpu;
        for (text, spoil) in counters {
            spoil(&mut played.gpu);
            let said = complaints(&played);
            assert!(said.len() == 1 && said[0].contains(text), "{text}: {said:?}");
            played.gpu = right;
        }
        played.lanes[0].counters.submissions += 1;
        assert!(complaints(&played).iter().any(|said| said.starts_with("submissions:")));
        played.lanes[0].counters.submissions -= 1;
        played.lanes[0].counters.rings += 1_000_000;
        assert!(complaints(&played).iter().any(|said| said.starts_with("doorbell rings:")));
        played.lanes[0].counters.rings -= 1_000_000;
        played.report.counts.hot_thunks.insert("D3DKMTEscape", 1);
        assert!(complaints(&played).iter().any(|said| said.contains("D3DKMTEscape was called 1 times")));
        played.report.counts.hot_thunks.clear();
        played.messages_hot = 1;
        let sent = "1 messages were sent while work was submitted, and 0 doorbells taken away";
        assert_eq!(complaints(&played), [sent]);
        played.taken_hot = 1;
        assert_eq!(complaints(&played), [""; 0]);
        // An announcement without a connection, and one behind it: three messages more, of which one goes to a call.
        played.report.counts.hot_thunks.insert(NOTIFY, 1);
        let said = complaints(&played);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("D3DKMTNotifyWorkSubmission was called 1 times"), "{said:?}");
        played.report.counts.hot_thunks.insert(CONNECT, 1);
        played.messages_hot = 4;
        assert_eq!(complaints(&played), [""; 0]);
        played.messages_hot = 5;
        assert_eq!(complaints(&played), ["5 messages were sent while work was submitted, and 1 doorbells taken away"]);
        played.messages_hot = 4;
        played.report.counts.hot_thunks.insert(CONNECT, 2);
        assert!(complaints(&played)[0].starts_with("D3DKMTConnectDoorbell was called 2 times"));
        played.report.counts.hot_thunks.clear();
        (played.messages_hot, played.taken_hot) = (0, 0);
        assert_eq!(complaints(&played), [""; 0]);
        Ok(())
    }

    /// Below rung 3 the calls that submit are counted by both sides.
    #[test]
    fn a_wrong_count_of_calls_is_a_complaint() -> Result<()> {
        let photo = Picture::coffee()?;
        for rung in 0..3 {
            let settings = [("MaxRung".to_owned(), rung)];
            let mut played =
                run(&Form::Native, Windows::Default, &settings, &photo, false, |_, _| (), &|_| ())?.played?;
            assert_eq!(complaints(&played), [""; 0], "rung {rung}");
            played.submit_calls -= 1;
            let said = complaints(&played);
            assert!(said.len() == 1 && said[0].starts_with("submissions:"), "rung {rung}: {said:?}");
        }
        Ok(())
    }

    /// Interrupts that name no fence are interrupts all the same: they take as much off as those that name one.
    #[test]
    fn an_interrupt_that_names_no_fence_suppresses_none() -> Result<()> {
        let photo = Picture::coffee()?;
        for names in [["NullFenceArray", "OptimizedInterrupt"], ["OptimizedInterrupt", "ShadowMonitoredValue"]] {
            let settings = names.map(|name| (name.to_owned(), 1));
            let mut played =
                run(&Form::Native, Windows::Default, &settings, &photo, false, |_, _| (), &|_| ())?.played?;
            assert_eq!(complaints(&played), [""; 0], "{names:?}");
            let counts = (signals(&played), interrupts_suppressed(&played));
            assert!(counts.1 < counts.0, "{names:?}: {counts:?}");
            (played.gpu.interrupts_wanted, played.gpu.interrupts_suppressed) = (played.gpu.signals, 0);
            assert_eq!(complaints(&played).len(), 1, "{names:?}");
        }
        Ok(())
    }
}
