//! What a machine of a case was seen to do, as facts that can be compared between two machines: which functions were
//! called, in which order, with which small arguments, and what was answered. Nothing of it is an address, a time, or
//! the number of a thread.

use super::stage::Scene;
use dxgkrnl_model::adapter::{Adapter, DdiCall};
use dxgkrnl_model::personality::Personality;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What one machine was seen to do.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The Windows that it ran.
    pub personality: Personality,
    /// Facts: sentences that are true of it.
    pub facts: BTreeSet<String>,
}

/// Numbers from here on are handles, addresses, and fences that count.
const NUMBERS: u64 = 0x1_0000;

impl Seen {
    /// What the adapters of a machine did, before the machine is shut down.
    pub(super) fn of(personality: &Personality, scene: &Scene) -> Self {
        let mut facts = BTreeSet::new();
        scene.adapters.iter().for_each(|adapter| add(adapter, &mut facts));
        let report = scene.world.os.report();
        let kinds = report.adapters.iter().flat_map(|adapter| &adapter.kinds);
        facts.extend(kinds.map(|(kind, _)| format!("{kind:?} is reported")));
        let components: u32 = report.adapters.iter().map(|adapter| adapter.power_transitions).sum();
        facts.insert(format!("{components} transitions of power components"));
        let counts = &report.counts;
        let some = [
            ("scans of all fences", counts.fence_scans),
            ("scans for a log", counts.log_scans),
            ("scans of monitored fences", counts.monitored_scans),
            ("releases by a buffer's end", counts.completion_releases),
            ("overruns of logs", counts.log_overruns),
            ("full lists of notifications", report.adapters.iter().map(|adapter| adapter.overflows).sum()),
        ];
        facts.extend(some.iter().filter(|(_, count)| *count != 0).map(|(what, _)| format!("there are {what}")));
        for ((thunk, status), count) in &counts.answers {
            facts.insert(format!("{thunk} answers {status:?}"));
            facts.insert(format!("{thunk} answers {status:?}, {count} times"));
        }
        facts.extend(report.broken().map(|rule| format!("{} is broken", rule.rule.name)));
        facts.extend(report.advice.iter().map(|advice| format!("advice: {advice}")));
        Self { personality: personality.clone(), facts }
    }

    /// A machine whose adapter did not start.
    pub(super) fn refused(personality: &Personality, why: &str) -> Self {
        Self { personality: personality.clone(), facts: BTreeSet::from([format!("an adapter does not start: {why}")]) }
    }

    /// Adds what came with the end of the machine.
    pub(super) fn end(&mut self, adapters: &[Arc<Adapter>]) {
        adapters.iter().for_each(|adapter| add(adapter, &mut self.facts));
    }
}

/// What one adapter did.
fn add(adapter: &Adapter, facts: &mut BTreeSet<String>) {
    let lines = adapter.transcript();
    facts.extend(lines.iter().map(|line| format!("at the start: {line}")));
    for (names, what) in [(adapter.ddi_calls(), "is called"), (adapter.callback_calls(), "is called by the driver")] {
        for (name, count) in names {
            facts.insert(format!("{name} {what}"));
            facts.insert(format!("{name} {what} {count} times"));
        }
    }
    let journal = adapter.ddi_journal();
    facts.extend(journal.iter().flat_map(arguments));
    for pair in journal.windows(2) {
        facts.insert(format!("{} comes right behind {}", pair[1].name, pair[0].name));
        if let [Some(before), Some(then)] = [pair[0].get("Operation"), pair[1].get("Operation")] {
            facts.insert(format!("paging operation {then} comes right behind {before}"));
        }
    }
    let mut flags: BTreeMap<(&str, u64), usize> = BTreeMap::new();
    for (name, value) in journal.iter().filter_map(|call| call.get("Flags").map(|value| (call.name, value))) {
        *flags.entry((name, value)).or_default() += 1;
    }
    facts.extend(flags.iter().map(|((name, value), count)| format!("{name} has Flags {value} {count} times")));
    // A ring is named by the handle that page table entries are for, or by another.
    let allocations: BTreeSet<_> = journal.iter().filter_map(|call| call.get("hAllocation")).collect();
    for ring in journal.iter().filter_map(|call| call.get("hRingBuffer")) {
        let known = if allocations.contains(&ring) { "an allocation" } else { "no allocation" };
        facts.insert(format!("{known} is named as a ring"));
    }
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    let mut last: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, call) in journal.iter().enumerate() {
        first.entry(call.name).or_insert(at);
        last.insert(call.name, at);
    }
    for (what, places) in [("first", first), ("last", last)] {
        for (one, at) in &places {
            let behind = places.iter().filter(|(_, other)| at < other);
            facts.extend(behind.map(|(other, _)| format!("the {what} {one} comes before the {what} {other}")));
        }
    }
}

/// Members of a call's arguments: of numbers the value, of handles whether there is one, of ranges how long they are.
fn arguments(call: &DdiCall) -> Vec<String> {
    let name = call.name;
    let of = call.get("Operation").map(|operation| format!(" of operation {operation}")).unwrap_or_default();
    let member = |(member, value): &(&'static str, u64)| match value {
        0..NUMBERS => format!("{name}{of} has {member} {value}"),
        _ if *value > u64::from(u32::MAX) => format!("{name}{of} has a wide {member}"),
        _ => format!("{name}{of} has a {member}"),
    };
    let mut all: Vec<String> = call.members().iter().map(member).collect();
    if let (Some(start), Some(end)) = (call.get("StartVirtualAddress"), call.get("EndVirtualAddress")) {
        all.push(format!("{name}{of} ends at {} in a page", end % 4096));
        all.push(format!("{name}{of} has {} bytes", end.wrapping_sub(start)));
    }
    all
}
