//! The stand-in's report, read and judged.

use serde::Serialize;
use std::collections::BTreeSet;

/// Every step, in its order; one that the report lacks is a failure.
pub const STEPS: &[&str] = &[
    "stand-in",
    "handshake",
    "DxgkInitialize",
    "DxgkDdiAddDevice",
    "DxgkDdiStartDevice",
    "DRIVERCAPS",
    "node metadata",
    "QUERYSEGMENT4",
    "GPUMMUCAPS",
    "page-table levels",
    "DxgkDdiCreateProcess",
    "DxgkDdiCreateDevice",
    "page tables",
    "DxgkDdiCreateContext",
    "DxgkDdiSetRootPageTable",
    "second process",
    "paging buffer",
    "DxgkDdiSubmitCommandVirtual",
    "DMA_COMPLETED",
    "MONITORED_FENCE_SIGNALED",
    "DPC",
    "memory",
    "tables by the engine",
    "take down",
    "DxgkDdiStopDevice",
    "DxgkDdiRemoveDevice",
    "DxgkDdiUnload",
    "balance",
];

/// What became of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It held.
    Pass,
    /// It did not.
    Fail,
    /// It was not reached.
    Missing,
}

/// A step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Step {
    /// One of [`STEPS`]; some are there several times.
    pub name: String,
    /// What became of it.
    pub status: Status,
    /// What was seen.
    pub detail: String,
}

/// Whose a service is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Whose {
    /// Wine's.
    Wine,
    /// Wine's, which says of itself that it is a stub.
    Stub,
    /// The stand-in's.
    Filled,
}

/// A kernel service that the driver imports.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Service {
    /// The import.
    pub name: String,
    /// Whose it is.
    pub whose: Whose,
    /// How often the driver called it.
    pub calls: u64,
    /// Of a filled one: what Wine has in its place. Empty otherwise.
    pub why: String,
}

/// What a run came to.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Played {
    /// `wine --version`.
    pub wine: String,
    /// SHA-256 of the driver's file.
    pub driver_sha256: String,
    /// Whether every step held, and nothing else went wrong.
    pub held: bool,
    /// The steps.
    pub steps: Vec<Step>,
    /// The services, in the order of the import table.
    pub services: Vec<Service>,
    /// What else went wrong.
    pub complaints: Vec<String>,
    /// How long it took.
    pub seconds: f64,
}

impl Played {
    /// How many services are `whose`, and how many of those were called.
    pub fn count(&self, whose: Whose) -> (usize, usize) {
        let of = || self.services.iter().filter(|service| service.whose == whose);
        (of().count(), of().filter(|service| service.calls != 0).count())
    }

    /// The first step that did not hold.
    pub fn first_failure(&self) -> Option<&Step> {
        self.steps.iter().find(|step| step.status != Status::Pass)
    }
}

/// Returns whether the run with the started adapter is over: by the report, or since Wine's process broke off, by its
/// `log`.
pub fn is_over(text: &str, log: &str) -> bool {
    text.lines().any(|line| line.starts_with("run\t") || line.starts_with("failed\tpanic")) || log.lines().any(is_grave)
}

/// What a report says. `log` is what Wine said of itself meanwhile.
pub fn judge(
    text: &str,
    log: &str,
    mut complaints: Vec<String>,
    wine: String,
    driver_sha256: String,
    seconds: f64,
) -> Played {
    let stubs: BTreeSet<&str> = log.lines().filter_map(stub).collect();
    let mut steps = Vec::new();
    let mut services = Vec::new();
    for line in text.lines() {
        let parts: Vec<_> = line.split('\t').collect();
        match parts[..] {
            ["step", name, verdict, detail] => {
                let status = if verdict == "ok" { Status::Pass } else { Status::Fail };
                steps.push(Step { name: name.to_owned(), status, detail: detail.to_owned() });
            }
            ["service", name, whose, calls, why] => {
                let whose = match whose {
                    "filled" => Whose::Filled,
                    _ if stubs.contains(name) => Whose::Stub,
                    _ => Whose::Wine,
                };
                let calls = calls.parse().unwrap_or_default();
                services.push(Service { name: name.to_owned(), whose, calls, why: why.to_owned() });
            }
            ["failed", what] => complaints.push(what.to_owned()),
            _ => {}
        }
    }
    for (at, name) in STEPS.iter().enumerate() {
        if !steps.iter().any(|step| step.name == *name) {
            let missing = Step { name: (*name).to_owned(), status: Status::Missing, detail: "not reached".to_owned() };
            // Behind the last of those before it.
            let before = |step: &Step| STEPS[..at].contains(&step.name.as_str());
            let place = steps.iter().rposition(before).map_or(0, |last| last + 1);
            steps.insert(place, missing);
        }
    }
    complaints.extend(log.lines().filter(|line| is_grave(line)).map(|line| format!("Wine: {line}")));
    let held = complaints.is_empty() && !services.is_empty() && steps.iter().all(|step| step.status == Status::Pass);
    Played { wine, driver_sha256, held, steps, services, complaints, seconds }
}

/// The kernel routine that a line of Wine's calls a stub, or something that it does not do.
fn stub(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(":fixme:ntoskrnl:")?;
    rest.split([' ', '(']).next()
}

/// Returns whether a line of Wine's says that the process of the drivers broke off.
fn is_grave(line: &str) -> bool {
    line.contains("err:ntoskrnl:KeBugCheckEx") || line.contains("wine: Unhandled") || line.contains("wine: Call from")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(text: &str, log: &str) -> Played {
        judge(text, log, Vec::new(), String::new(), String::new(), 0.0)
    }

    fn whole() -> String {
        let steps: String = STEPS.iter().map(|name| format!("step\t{name}\tok\tseen\n")).collect();
        steps + "service\tKeSetEvent\twine\t3\t\nservice\tExSetTimer\tfilled\t0\tWine has none\nend\n"
    }

    #[test]
    fn a_whole_report_holds() {
        let played = judged(&whole(), "0168:fixme:ntoskrnl:KeSetEvent (1 2)\n");
        assert!(played.held && played.first_failure().is_none(), "{played:?}");
        assert_eq!(played.count(Whose::Stub), (1, 1));
        assert_eq!(played.count(Whose::Filled), (1, 0));
    }

    /// Each step that is taken out is missed by its name, at its place; one that failed is a failure.
    #[test]
    fn a_missing_step_is_named() {
        for name in STEPS {
            let text = whole().replace(&format!("step\t{name}\tok\tseen\n"), "");
            let played = judged(&text, "");
            assert!(!played.held, "without {name}");
            let first = played.first_failure().map(|step| (step.name.as_str(), step.status));
            assert_eq!(first, Some((*name, Status::Missing)));
            let names: Vec<_> = played.steps.iter().map(|step| step.name.as_str()).collect();
            assert_eq!(names, STEPS);
            let text = whole().replace(&format!("step\t{name}\tok"), &format!("step\t{name}\tfailed"));
            assert!(!judged(&text, "").held, "{name} failed");
        }
    }

    #[test]
    fn what_else_goes_wrong_is_a_complaint() {
        assert!(!judged(&(whole() + "failed\tsomething\n"), "").held);
        assert!(!judged(&whole(), "0024:err:ntoskrnl:KeBugCheckEx 1e 0 0 0 0\n").held);
        assert!(!judged("", "").held);
    }
}
