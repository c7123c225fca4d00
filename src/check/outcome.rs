//! What a verdict is, and what must be reached for one.

use clap::ValueEnum;
use serde::Serialize;
use std::fmt;
use wddm_abi::NTSTATUS;

/// What a check comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// No rule is broken, and all that was demanded was reached.
    Held,
    /// A rule is broken, or the start was refused as Windows refuses it.
    Broken,
    /// No rule is broken, and the model cannot tell: it lacks something that the driver wants, the driver did not
    /// start, or something that was demanded was not reached.
    NotJudged,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Held => "held",
            Self::Broken => "broken",
            Self::NotJudged => "not judged",
        })
    }
}

/// What of a driver a check may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// A process has opened the adapter: always demanded
    Open,
    /// The driver has made a device for a process
    Device,
    /// The driver has made a context for a process, without private data
    Context,
    /// The driver has made an allocation for a process, from its own private data of a cross-adapter resource
    Allocation,
    /// A command buffer of a process was with the driver, and has ended
    Submit,
    /// The driver has built paging buffers
    Paging,
    /// The driver has answered a preemption, or acknowledged a suspension, and the work has ended behind it
    Preemption,
    /// The adapter was reset, and each engine where the driver resets them, and there was work behind that
    Reset,
}

impl Reach {
    fn title(self) -> &'static str {
        match self {
            Self::Open => "no process could open the adapter",
            Self::Device => "no device was made for a process",
            Self::Context => "no context was made for a process",
            Self::Allocation => "no allocation was made for a process",
            Self::Submit => "no command buffer of a process has run",
            Self::Paging => "the driver has built no paging buffer",
            Self::Preemption => "no preemption was answered, and no suspension acknowledged",
            Self::Reset => "no reset has gone well",
        }
    }
}

/// What keeps the model from judging, which is not counted against the driver.
#[derive(Debug)]
pub(super) enum Gap {
    /// So many imports are unknown.
    Imports(usize),
    /// The driver did not load, and why.
    Load(String),
    /// The driver is a display-only one.
    DisplayOnly,
    /// The driver has no GPU virtual addresses.
    Physical,
    /// What the driver asks of the memory manager, and the model's does not keep to.
    Memory(&'static str),
    /// The driver refused its start.
    Start {
        /// The function or query.
        step: String,
        /// What it returned.
        status: NTSTATUS,
    },
}

impl Gap {
    fn title(&self) -> String {
        match self {
            Self::Imports(count) => format!("it imports {count} services that the model does not know"),
            Self::Load(why) => format!("it does not load: {why}"),
            Self::DisplayOnly => "it is a display-only driver, by its handshake: it is started and stopped, and its \
                displays, modes and presents are not judged"
                .to_owned(),
            Self::Physical => "it has no GPU virtual addresses (GpuMmuSupported): it is started and stopped, and its \
                processes, allocation lists, submission and paging by physical addresses are not judged"
                .to_owned(),
            Self::Memory(cap) => {
                format!("it sets {cap} of DXGK_GPUMMUCAPS, to which the model's memory manager does not keep")
            }
            Self::Start { step, status } => {
                format!("it refuses its start, perhaps for hardware that the model lacks: {step} returned {status:?}")
            }
        }
    }
}

/// Rules that say what the model lacks, and nothing that the driver has done wrong; and what to say of each.
const LACKING: [(&str, &str); 2] = [
    ("NT-IMPORT", "it calls a service that the model lacks"),
    ("NT-HANDLED", "a fault inside __try: structured exceptions are not modelled, and nothing behind it was seen"),
];

/// Returns whether the rule says what the model lacks, so that the driver is not to blame for it.
pub(super) fn is_lacking(rule: &str) -> bool {
    LACKING.iter().any(|(lacking, _)| *lacking == rule)
}

/// The verdict, and why it is none or what it leaves out, a sentence each. `broken`: the names of the rules that were
/// broken, in the order in which they were: what follows one that says what the model lacks may follow from that, and
/// is not counted. `refused`: the start was refused as Windows refuses it. `lacks`: why something was not reached,
/// where more is known than that.
pub(super) fn judge(
    broken: &[&str],
    refused: bool,
    gaps: &[Gap],
    reached: &[Reach],
    lacks: &[(Reach, String)],
    demanded: &[Reach],
) -> (Outcome, Vec<String>) {
    let mut unjudged: Vec<_> = gaps.iter().map(Gap::title).collect();
    let lack = |name: &&str| LACKING.iter().find(|(rule, _)| rule == name).map(|(_, why)| (*why).to_owned());
    let lacking = broken.iter().position(|name| lack(name).is_some());
    unjudged.extend(lacking.and_then(|at| lack(&broken[at])));
    // Of a driver that is used all the same, what was not reached is said, too.
    if gaps.iter().all(|gap| matches!(gap, Gap::Memory(_))) && !refused {
        let all = Reach::value_variants().iter().filter(|step| **step == Reach::Open || demanded.contains(step));
        let why = |step: &Reach| match lacks.iter().find(|(lacking, _)| lacking == step) {
            Some((_, why)) => format!("{}: {why}", step.title()),
            None => step.title().to_owned(),
        };
        unjudged.extend(all.filter(|step| !reached.contains(step)).map(why));
    }
    let counted = &broken[..lacking.unwrap_or(broken.len())];
    let outcome = match !counted.is_empty() || refused && lacking.is_none() {
        true => Outcome::Broken,
        false if unjudged.is_empty() => Outcome::Held,
        false => Outcome::NotJudged,
    };
    (outcome, unjudged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_needs_what_is_demanded() {
        let judged =
            |broken: &[&str], reached: &[Reach], demanded: &[Reach]| judge(broken, false, &[], reached, &[], demanded);
        assert_eq!(judged(&[], &[Reach::Open], &[]), (Outcome::Held, Vec::new()));
        let (outcome, why) = judged(&[], &[], &[]);
        assert_eq!((outcome, why.len()), (Outcome::NotJudged, 1));
        let (outcome, why) = judged(&[], &[Reach::Open, Reach::Device], &[Reach::Device, Reach::Submit, Reach::Paging]);
        assert_eq!(outcome, Outcome::NotJudged);
        assert_eq!(why, [Reach::Submit.title(), Reach::Paging.title()]);
        let lacks = [(Reach::Preemption, "none is claimed".to_owned())];
        let (_, why) = judge(&[], false, &[], &[Reach::Open], &lacks, &[Reach::Preemption, Reach::Reset]);
        let first = "no preemption was answered, and no suspension acknowledged: none is claimed";
        assert_eq!(why, [first, Reach::Reset.title()]);
        // What is broken is broken, however little was reached.
        assert_eq!(judged(&["A"], &[], &[]).0, Outcome::Broken);
    }

    #[test]
    fn what_the_model_lacks_is_not_the_drivers_fault() {
        let judged = |broken: &[&str], refused| judge(broken, refused, &[], &[Reach::Open], &[], &[]).0;
        for (lacking, why) in LACKING {
            assert_eq!(judged(&[lacking], false), Outcome::NotJudged);
            assert_eq!(judged(&[lacking, "A"], false), Outcome::NotJudged);
            assert_eq!(judged(&[lacking], true), Outcome::NotJudged);
            assert_eq!(judged(&["A", lacking], false), Outcome::Broken);
            let (_, said) = judge(&[lacking], false, &[], &[Reach::Open], &[], &[]);
            assert_eq!(said, [why]);
        }
        assert_eq!(judged(&[], true), Outcome::Broken);
        let start = Gap::Start { step: "DxgkDdiStartDevice".to_owned(), status: NTSTATUS(-1) };
        let (outcome, why) = judge(&[], false, &[start], &[], &[], &[Reach::Submit]);
        assert_eq!((outcome, why.len()), (Outcome::NotJudged, 1), "{why:?}");
    }
}
