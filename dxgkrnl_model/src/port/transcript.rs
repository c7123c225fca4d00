//! The order of a start, as a text that can be replayed, and what was answered at each step.

use std::fmt;

/// The order that 24H2 was seen to follow.
pub const START_26100: &str = include_str!("../../transcripts/start_26100.txt");

/// The interfaces of displays that a transcript may name: `I2C` is `GUID_DEVINTERFACE_I2C`.
pub(crate) const DISPLAY_INTERFACES: [&str; 5] = ["I2C", "OPM", "OPM_2_JTP", "OPM_2", "OPM_3"];

/// When a query is made and whether a start rests on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// A failure ends the start.
    Required,
    /// A failure is tolerated, and told of: authors of drivers saw a start without.
    Expected,
    /// A failure is tolerated.
    Optional,
    /// The type says nothing of a render-only adapter; `Personality::refusals_end_start` says whether a failure ends
    /// the start.
    Nothing,
    /// Made and required for GpuMmu adapters.
    Mmu,
    /// Made and required when native fences are advertised.
    NativeFence,
    /// Made and required when a node has user-mode submission.
    UserMode,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    AddDevice,
    Query {
        name: String,
        size: usize,
        need: Need,
    },
    StartDevice,
    Children,
    Features,
    Nodes,
    PowerComponents,
    Segments,
    PageTableLevels,
    PhysicalAdapter,
    /// Of [`DISPLAY_INTERFACES`].
    QueryInterfaces(Vec<String>),
    QueryInterfaceProbe,
    QueryUnknown,
    Judge,
    SystemDevice,
    PriorityBands,
}

/// A line of a transcript that says nothing the model understands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the start transcript: {text:?}")]
pub struct BadTranscript {
    /// From 1.
    pub line: usize,
    /// The line.
    pub text: String,
}

/// Reads a transcript.
pub(crate) fn parse(text: &str) -> Result<Vec<Step>, BadTranscript> {
    let mut steps = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let code = line.split('#').next().unwrap_or_default();
        let words: Vec<_> = code.split_whitespace().collect();
        if words.is_empty() {
            continue;
        }
        let step = parse_step(&words).ok_or_else(|| BadTranscript { line: number + 1, text: line.to_owned() })?;
        steps.push(step);
    }
    Ok(steps)
}

fn parse_step(words: &[&str]) -> Option<Step> {
    Some(match *words {
        ["add-device"] => Step::AddDevice,
        ["start-device"] => Step::StartDevice,
        ["children"] => Step::Children,
        ["features"] => Step::Features,
        ["nodes"] => Step::Nodes,
        ["power-components"] => Step::PowerComponents,
        ["segments"] => Step::Segments,
        ["page-table-levels"] => Step::PageTableLevels,
        ["physical-adapter"] => Step::PhysicalAdapter,
        ["query-interfaces", ref names @ ..] if !names.is_empty() => {
            let known = |name: &&str| DISPLAY_INTERFACES.contains(name).then(|| (*name).to_owned());
            Step::QueryInterfaces(names.iter().map(known).collect::<Option<_>>()?)
        }
        ["query-interface-probe"] => Step::QueryInterfaceProbe,
        ["query-unknown"] => Step::QueryUnknown,
        ["judge"] => Step::Judge,
        ["system-device"] => Step::SystemDevice,
        ["priority-bands"] => Step::PriorityBands,
        ["query", name, size, need] => {
            let need = match need {
                "required" => Need::Required,
                "expected" => Need::Expected,
                "optional" => Need::Optional,
                "nothing" => Need::Nothing,
                "mmu" => Need::Mmu,
                "native-fence" => Need::NativeFence,
                "user-mode" => Need::UserMode,
                _ => return None,
            };
            Step::Query { name: name.to_owned(), size: size.parse().ok()?, need }
        }
        _ => return None,
    })
}

/// What happened at a step: for the report and for comparing with a real machine's trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What was asked.
    pub step: String,
    /// What came back.
    pub answer: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}", self.step, self.answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_transcript_is_understood() {
        let steps = parse(START_26100).unwrap_or_default();
        assert_eq!(steps.first(), Some(&Step::AddDevice));
        assert!(steps.contains(&Step::Query { name: "DRIVERCAPS".into(), size: 592, need: Need::Required }));
        assert_eq!(steps.last(), Some(&Step::PriorityBands));
    }

    #[test]
    fn a_bad_line_is_named() {
        let none = parse("query-interfaces I2C FROB");
        assert_eq!(none, Err(BadTranscript { line: 1, text: "query-interfaces I2C FROB".into() }));
        let error = parse("add-device\n\nquery DRIVERCAPS many required\n");
        assert_eq!(error, Err(BadTranscript { line: 3, text: "query DRIVERCAPS many required".into() }));
    }
}
