//! A timeline of queues: what a page and a trace are drawn from.
//!
//! Times are microseconds of the GPU clock since the first event. Nothing here knows a driver or a model.

mod extent;
mod page;
mod perfetto;

use serde::Serialize;

pub use extent::Extent;
pub use page::page;
pub use perfetto::perfetto;

/// All that is shown.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Timeline {
    /// Heading.
    pub title: String,
    /// Line below it.
    pub subtitle: String,
    /// Numbers worth showing beside the picture, with their names.
    pub counts: Vec<(String, String)>,
    /// Rows, top to bottom; rows of one group stand together.
    pub lanes: Vec<Lane>,
    /// What caused what.
    pub links: Vec<Link>,
}

/// A row.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Lane {
    /// Process or engine.
    pub group: String,
    /// Queue.
    pub name: String,
    /// Which of the palette's colors: one per process.
    pub color: usize,
    /// Stretches of time, in order.
    pub spans: Vec<Span>,
    /// Moments, in order.
    pub marks: Vec<Mark>,
}

/// What a stretch of time was spent with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SpanKind {
    /// The queue's packets executed.
    Run,
    /// The queue waited for a fence.
    Wait,
    /// The queue had work, and its engine was another's.
    Ready,
    /// The queue did not get on, until its engine was reset.
    Hang,
    /// A thread of the CPU waited.
    Cpu,
    /// What the queue did meanwhile was overwritten in its log before it was read.
    Lost,
}

/// A stretch of time.
#[derive(Clone, Debug, Serialize)]
pub struct Span {
    /// Kind.
    pub kind: SpanKind,
    /// Start.
    pub from: f64,
    /// End.
    pub to: f64,
    /// Short text, inside.
    pub label: String,
    /// Longer text, on demand.
    pub detail: String,
}

/// What happened at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MarkKind {
    /// User mode queued an operation.
    Queued,
    /// A fence was signaled.
    Signal,
    /// The OS was interrupted.
    Interrupt,
    /// A thread of the CPU woke.
    Wake,
    /// An engine was reset.
    Reset,
}

/// A moment.
#[derive(Clone, Debug, Serialize)]
pub struct Mark {
    /// Kind.
    pub kind: MarkKind,
    /// When.
    pub at: f64,
    /// Text, on demand.
    pub detail: String,
}

/// From a signal to the wait that it ended.
#[derive(Clone, Debug, Serialize)]
pub struct Link {
    /// Index of the lane of the signal.
    pub from_lane: usize,
    /// When.
    pub from: f64,
    /// Index of the lane of the wait.
    pub to_lane: usize,
    /// When.
    pub to: f64,
    /// Text, on demand.
    pub detail: String,
}

#[cfg(test)]
pub(crate) mod sample {
    use super::*;

    /// Two processes, a hang, a reset.
    pub(crate) fn timeline() -> Timeline {
        let span = |kind, from, to, label: &str| Span {
            kind,
            from,
            to,
            label: label.into(),
            detail: format!("{label} & <b>"),
        };
        let run = |i: u32| span(SpanKind::Run, f64::from(i) * 40.0, f64::from(i) * 40.0 + 25.0, &format!("tile {i}"));
        let signal =
            |i: u32| Mark { kind: MarkKind::Signal, at: f64::from(i) * 40.0 + 25.0, detail: format!("ready = {i}") };
        let a = Lane {
            group: "A: emboss".into(),
            name: "queue 1 on node 0 (compute)".into(),
            color: 0,
            spans: (0..20)
                .map(run)
                .chain([
                    span(SpanKind::Lost, 785.0, 815.0, "7 events lost"),
                    span(SpanKind::Hang, 820.0, 2900.0, "endless command buffer"),
                ])
                .collect(),
            marks: (0..20)
                .map(signal)
                .chain([Mark { kind: MarkKind::Reset, at: 2900.0, detail: "ResetHwEngine".into() }])
                .collect(),
        };
        let b = Lane {
            group: "B: chessboard".into(),
            name: "queue 1 on node 1 (copy)".into(),
            color: 1,
            spans: (0..20)
                .flat_map(|i| {
                    let t = f64::from(i) * 40.0;
                    [span(SpanKind::Wait, t - 8.0, t + 26.0, "wait"), span(SpanKind::Run, t + 26.0, t + 31.0, "copy")]
                })
                .collect(),
            marks: (0..20)
                .map(|i| Mark { kind: MarkKind::Queued, at: f64::from(i) * 2.0, detail: "queued".into() })
                .collect(),
        };
        let cpu = Lane {
            group: "B: chessboard".into(),
            name: "thread".into(),
            color: 1,
            spans: vec![span(SpanKind::Cpu, 60.0, 3000.0, "waits for the picture")],
            marks: vec![Mark { kind: MarkKind::Wake, at: 3000.0, detail: "woken".into() }],
        };
        let links = (0..20)
            .map(|i| {
                let t = f64::from(i) * 40.0;
                Link { from_lane: 0, from: t + 25.0, to_lane: 1, to: t + 26.0, detail: format!("ready = {i}") }
            })
            .collect();
        Timeline {
            title: "Fencepost: a picture through two engines".into(),
            subtitle: "sample".into(),
            counts: vec![("submissions".into(), "63".into()), ("thunk calls while working".into(), "0".into())],
            lanes: vec![a, b, cpu],
            links,
        }
    }
}
