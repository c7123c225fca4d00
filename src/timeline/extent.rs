//! Which times a page shows: all of them, or the part where most happens.

use super::{SpanKind, Timeline};
use serde::Serialize;

/// Ranges of time in microseconds, each from and to; a duration.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Extent {
    /// From the first event to the last one.
    pub duration: f64,
    /// Everything, with a margin.
    pub whole: [f64; 2],
    /// The shortest range with four fifths of the beginnings and ends of execution, with a margin. The page opens on
    /// it: most of a run with a hang is the wait for the timeout.
    pub busy: [f64; 2],
}

impl Extent {
    /// The ranges of `timeline`. A timeline of fewer than two executions has no busy part but the whole.
    pub fn of(timeline: &Timeline) -> Self {
        let spans = || timeline.lanes.iter().flat_map(|lane| &lane.spans);
        let marks = timeline.lanes.iter().flat_map(|lane| &lane.marks).map(|mark| mark.at);
        let (first, last) = spans()
            .flat_map(|span| [span.from, span.to])
            .chain(marks)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(first, last), at| (first.min(at), last.max(at)));
        let (first, last) = if first <= last { (first, last) } else { (0.0, 1.0) };
        let (duration, whole) = (last - first, padded([first, last], 0.015));
        let mut moments: Vec<f64> =
            spans().filter(|span| span.kind == SpanKind::Run).flat_map(|span| [span.from, span.to]).collect();
        moments.sort_by(f64::total_cmp);
        if moments.len() < 4 {
            return Self { duration, whole, busy: whole };
        }
        let most = moments.len() * 4 / 5;
        let ranges = moments.iter().zip(moments.iter().skip(most)).map(|(from, to)| [*from, *to]);
        let shortest = ranges.min_by(|a, b| (a[1] - a[0]).total_cmp(&(b[1] - b[0])));
        Self { duration, whole, busy: shortest.map_or(whole, |range| padded(range, 0.04)) }
    }
}

/// `range` with `part` of its length more at either end, and half a microsecond at least.
fn padded([from, to]: [f64; 2], part: f64) -> [f64; 2] {
    let margin = ((to - from) * part).max(0.5);
    [from - margin, to + margin]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{Lane, Span};

    fn lane(spans: &[(SpanKind, f64, f64)]) -> Timeline {
        let spans = spans.iter().map(|(kind, from, to)| Span {
            kind: *kind,
            from: *from,
            to: *to,
            label: String::new(),
            detail: String::new(),
        });
        let lane = Lane { spans: spans.collect(), ..Lane::default() };
        Timeline { lanes: vec![lane], ..Timeline::default() }
    }

    #[test]
    fn the_busy_part_leaves_a_hang_out() {
        let mut spans: Vec<_> =
            (0..10).map(|i| (SpanKind::Run, f64::from(i) * 10.0, f64::from(i) * 10.0 + 8.0)).collect();
        spans.push((SpanKind::Hang, 100.0, 4_000_000.0));
        spans.push((SpanKind::Run, 4_000_000.0, 4_000_010.0));
        let extent = Extent::of(&lane(&spans));
        assert_eq!(extent.whole.map(f64::round), [-60_000.0, 4_060_010.0]);
        assert!(extent.busy[0] >= -5.0 && extent.busy[1] <= 110.0, "{extent:?}");
    }

    #[test]
    fn a_timeline_of_little_is_shown_whole() {
        let nothing = Extent::of(&Timeline::default());
        assert_eq!((nothing.whole, nothing.busy), ([-0.5, 1.5], [-0.5, 1.5]));
        let one = Extent::of(&lane(&[(SpanKind::Run, 10.0, 20.0)]));
        assert_eq!((one.whole, one.busy), ([9.5, 20.5], [9.5, 20.5]));
    }
}
