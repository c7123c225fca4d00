//! Work that is taken off its engine: preemptions, suspensions, resets.
//!
//! They are asked for while a process submits, so that work may be with the driver. One that completes its work at once
//! has none then: it is asked all the same, and the report says that nothing was there to be taken off.

use super::Reach;
use super::run::Run;
use super::work::{Notes, Work};
use crate::scenario::Raw;
use dxgkrnl_model::adapter::{Adapter, Recovery, Step, What};
use dxgkrnl_model::process::Process;
use std::sync::Arc;
use wddm_abi::{D3DKMT_HANDLE, NTSTATUS};

/// Buffers that are submitted before an engine is asked.
const MANY: u32 = 16;
/// How often an engine is asked in the hope that work is with it.
const ATTEMPTS: u32 = 8;

/// A process with a device.
struct Client {
    process: Arc<Process>,
    raw: Raw,
    device: D3DKMT_HANDLE,
    /// A monitored fence of value 1.
    fence: Option<D3DKMT_HANDLE>,
}

impl Client {
    fn new(notes: &Notes<'_>, adapter: &Adapter) -> Option<Self> {
        let process = Arc::new(notes.run.os().create_process(notes.round));
        let raw = notes.tell("open the adapter", Raw::open(&process, adapter.luid()))?;
        let device = notes.tell("create a device", raw.device().map_err(Into::into))?;
        let fence = raw.monitored_fence(device, 1, false).ok().map(|fence| fence.handle);
        Some(Self { process, raw, device, fence })
    }

    fn work(&self, notes: &Notes<'_>, node: u32, in_hardware: bool) -> Option<Work<'_>> {
        Work::begin(&self.raw, self.device, node, in_hardware, self.fence.map(|fence| (fence, 1)), notes)
    }
}

/// Nodes of an adapter: number, and whether it is scheduled in hardware.
fn nodes(adapter: &Adapter) -> Vec<(u32, bool)> {
    let caps = adapter.caps().unwrap_or_default();
    (0..).zip(&caps.nodes).map(|(node, info)| (node, info.is_hardware_scheduled())).collect()
}

/// Has packets preempted, and hardware contexts suspended and resumed, and demands that their work ends all the same.
pub(super) fn preempt(run: &Run, adapter: &Arc<Adapter>) {
    let notes = Notes { run, round: "preempted" };
    let aware = adapter.caps().is_some_and(|caps| caps.driver.SchedulingCaps.PreemptionAware());
    for (node, in_hardware) in nodes(adapter) {
        if !in_hardware && !aware {
            notes.lack(Reach::Preemption, "the driver does not claim preemption (SchedulingCaps.PreemptionAware)");
            continue;
        }
        let answered = match in_hardware {
            true => suspended(&notes, adapter, node),
            false => preempted(&notes, adapter, node),
        };
        match answered {
            Some(true) => notes.reach(Reach::Preemption),
            Some(false) => notes.lack(Reach::Preemption, &format!("node {node} has given no answer")),
            None => notes.lack(Reach::Preemption, &format!("node {node} takes no work that could be taken off")),
        }
    }
}

/// Returns whether a packet node has answered, and its work has ended behind that. `None`: it has no work.
fn preempted(notes: &Notes<'_>, adapter: &Arc<Adapter>, node: u32) -> Option<bool> {
    let client = Client::new(notes, adapter)?;
    let mut work = client.work(notes, node, false)?;
    let before = adapter.packet_preemptions(node);
    let (mut asked, mut back) = (0, 0);
    while asked < ATTEMPTS && back == 0 {
        asked += 1;
        notes.tell_failure("submit command buffers", (0..MANY).try_for_each(|_| work.submit()))?;
        if !notes.run.os().preempt(adapter, node) {
            break;
        }
        back = adapter.packet_preemptions(node).back - before.back;
    }
    let answers = adapter.packet_preemptions(node).answers - before.answers;
    let had = match back {
        0 => "none of which had work: the driver completes it too soon".to_owned(),
        _ => format!("{back} packets came back"),
    };
    notes.say(&format!("preempt node {node}"), &format!("asked {asked} times, {answers} answers; {had}"));
    let ended = notes.tell("wait for the end of all of it", work.end(notes));
    Some(answers > 0 && ended == Some(true))
}

/// Returns whether the context of a queue was suspended and resumed, and its work has ended behind that. `None`: it has
/// no work.
fn suspended(notes: &Notes<'_>, adapter: &Arc<Adapter>, node: u32) -> Option<bool> {
    let client = Client::new(notes, adapter)?;
    let mut work = client.work(notes, node, true)?;
    notes.tell_failure("submit command buffers", (0..MANY).try_for_each(|_| work.submit()))?;
    let os = notes.run.os();
    let acknowledged = os.suspend(adapter, &client.process);
    os.resume(adapter, &client.process);
    let said = if acknowledged { "acknowledged" } else { "not acknowledged" };
    notes.say(&format!("suspend and resume its context on node {node}"), said);
    let ended = notes.tell("wait for the end of all of it", work.end(notes));
    Some(acknowledged && ended == Some(true))
}

/// Has each engine reset, and then the adapter, and demands that there is work again behind each.
pub(super) fn reset(run: &Run, adapter: &Arc<Adapter>) {
    let notes = Notes { run, round: "reset" };
    let per_engine = adapter.caps().is_some_and(|caps| caps.has_engine_reset());
    for (node, in_hardware) in nodes(adapter) {
        if !per_engine && !in_hardware {
            notes.say(
                &format!("reset the engine of node {node}"),
                "not reached: the driver has no resets of engines (SupportPerEngineTDR)",
            );
            continue;
        }
        if !is_engine_reset(&notes, adapter, node, in_hardware) {
            return notes
                .lack(Reach::Reset, &format!("the engine of node {node} was not reset, or has no work behind that"));
        }
    }
    // Work is there where the driver has not completed it by then.
    let client = Client::new(&notes, adapter);
    let works: Vec<_> = match &client {
        Some(client) => {
            nodes(adapter).into_iter().filter_map(|(node, hardware)| client.work(&notes, node, hardware)).collect()
        }
        None => Vec::new(),
    };
    for mut work in works {
        let _late = (0..MANY).try_for_each(|_| work.submit());
    }
    let known = adapter.recoveries().len();
    run.os().reset_adapter(adapter);
    let recovery = adapter.recoveries().into_iter().skip(known).find(|recovery| recovery.what == What::Adapter);
    let (is_reset, said) = outcome(recovery.as_ref(), |step| match step {
        Step::ResetFromTimeout(status) => Some(("DxgkDdiResetFromTimeout", *status)),
        Step::RestartFromTimeout(status) => Some(("DxgkDdiRestartFromTimeout", *status)),
        _ => None,
    });
    notes.say("reset the adapter", &said);
    drop(client);
    if !is_reset {
        return notes.lack(Reach::Reset, "the adapter was not reset");
    }
    if works_again(run, adapter, None) {
        notes.reach(Reach::Reset);
    } else {
        notes.lack(Reach::Reset, "not every node has work done behind the adapter's reset");
    }
}

/// Returns whether the engine of a node was reset, and works again.
fn is_engine_reset(notes: &Notes<'_>, adapter: &Arc<Adapter>, node: u32, in_hardware: bool) -> bool {
    let client = Client::new(notes, adapter);
    let mut work = client.as_ref().and_then(|client| client.work(notes, node, in_hardware));
    let what = if in_hardware { What::HwEngine { node } } else { What::PacketEngine { node } };
    let mut packets = 0;
    let mut done = None;
    for attempt in 0..=ATTEMPTS {
        if let Some(work) = &mut work {
            let _late = (0..MANY).try_for_each(|_| work.submit());
        }
        let known = adapter.recoveries().len();
        notes.run.os().reset_engine(adapter, node, attempt == ATTEMPTS);
        let recovery = adapter.recoveries().into_iter().skip(known).find(|recovery| recovery.what == what);
        let found = recovery.filter(|one| !one.has(|step| matches!(step, Step::Emptied)));
        if let Some(recovery) = found {
            let count = |step: &Step| if let Step::Snapshot { packets, .. } = step { Some(*packets) } else { None };
            packets = recovery.steps.iter().find_map(count).unwrap_or(0);
            done = Some(recovery);
            break;
        }
    }
    let (is_reset, said) = outcome(done.as_ref(), |step| match step {
        Step::ResetEngine(status, _) => Some(("DxgkDdiResetEngine", *status)),
        Step::ResetHwEngine(status, _) => Some(("DxgkDdiResetHwEngine", *status)),
        Step::ResumeHwEngine(status) => Some(("DxgkDdiResumeHwEngine", *status)),
        _ => None,
    });
    let had = match (in_hardware, packets) {
        (true, _) => String::new(),
        (false, 0) => ", which had no packet: the driver completes them too soon".to_owned(),
        (false, packets) => format!(", which had {packets} packets"),
    };
    notes.say(&format!("reset the engine of node {node}{had}"), &said);
    drop(client);
    is_reset && works_again(notes.run, adapter, Some(node))
}

/// What came of a recovery: whether every call that `of` knows succeeded, of which there is one, and in words.
fn outcome(recovery: Option<&Recovery>, of: impl Fn(&Step) -> Option<(&'static str, NTSTATUS)>) -> (bool, String) {
    let steps = recovery.map(|recovery| recovery.steps.as_slice()).unwrap_or_default();
    let calls: Vec<_> = steps.iter().filter_map(of).collect();
    match calls.iter().find(|(_, status)| !status.is_success()) {
        Some((ddi, status)) => (false, format!("{ddi} returned {status:?}")),
        None if calls.is_empty() => (false, "it has not come to that".to_owned()),
        None => (true, "done".to_owned()),
    }
}

/// Returns whether a process that begins behind a reset has its work done on each node that had work done before: on
/// this one, or on all. What a driver still reports from before the reset comes while it waits.
fn works_again(run: &Run, adapter: &Arc<Adapter>, only: Option<u32>) -> bool {
    let notes = Notes { run, round: "later" };
    let mut worked = run.seen().worked.clone();
    worked.retain(|node| only.is_none_or(|only| only == *node));
    if worked.is_empty() {
        return true;
    }
    let Some(client) = Client::new(&notes, adapter) else { return false };
    let mut here = nodes(adapter).into_iter().filter(|(node, _)| worked.contains(node));
    here.all(|(node, in_hardware)| {
        client.work(&notes, node, in_hardware).is_some_and(|mut work| work.is_done(1, &notes))
    })
}
