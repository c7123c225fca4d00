//! The timeline in the JSON form of the Trace Event Format, which Perfetto opens.

use super::{MarkKind, SpanKind, Timeline};
use serde_json::{Value, json};

/// The trace as one JSON value.
pub fn perfetto(timeline: &Timeline) -> Value {
    let mut events = Vec::new();
    let mut groups: Vec<&str> = Vec::new();
    let mut process = Vec::new();
    for (thread, lane) in timeline.lanes.iter().enumerate() {
        let pid = groups.iter().position(|g| *g == lane.group).unwrap_or_else(|| {
            groups.push(&lane.group);
            let pid = groups.len() - 1;
            events.push(json!({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": lane.group}}));
            pid
        });
        process.push(pid);
        events.push(json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": thread, "args": {"name": lane.name}}));
        for span in &lane.spans {
            let category = match span.kind {
                SpanKind::Run => "run",
                SpanKind::Wait => "wait",
                SpanKind::Ready => "ready",
                SpanKind::Hang => "hang",
                SpanKind::Cpu => "cpu",
                SpanKind::Lost => "lost",
            };
            events.push(json!({
                "ph": "X", "name": span.label, "cat": category, "pid": pid, "tid": thread,
                "ts": span.from, "dur": span.to - span.from, "args": {"detail": span.detail},
            }));
        }
        for mark in &lane.marks {
            let name = match mark.kind {
                MarkKind::Queued => "queued",
                MarkKind::Signal => "signal",
                MarkKind::Interrupt => "interrupt",
                MarkKind::Wake => "wake",
                MarkKind::Reset => "reset",
            };
            events.push(json!({
                "ph": "i", "s": "t", "name": name, "pid": pid, "tid": thread, "ts": mark.at, "args": {"detail": mark.detail},
            }));
        }
    }
    for (id, link) in timeline.links.iter().enumerate() {
        for (phase, lane, at) in [("s", link.from_lane, link.from), ("f", link.to_lane, link.to)] {
            let mut event = json!({
                "ph": phase, "id": id, "name": "fence", "cat": "fence", "pid": process.get(lane), "tid": lane, "ts": at,
            });
            if phase == "f" {
                event["bp"] = json!("e");
            }
            events.push(event);
        }
    }
    json!({"displayTimeUnit": "ns", "traceEvents": events, "otherData": {"title": timeline.title}})
}

#[cfg(test)]
mod tests {
    use crate::timeline::sample;

    #[test]
    fn every_lane_is_named_and_every_link_has_two_ends() {
        let trace = super::perfetto(&sample::timeline());
        let events = trace["traceEvents"].as_array().unwrap();
        let count = |ph: &str| events.iter().filter(|e| e["ph"] == ph).count();
        assert_eq!(count("s"), count("f"));
        assert_eq!(events.iter().filter(|e| e["name"] == "thread_name").count(), 3);
        assert_eq!(events.iter().filter(|e| e["name"] == "process_name").count(), 2);
        assert!(events.iter().all(|e| e["pid"].is_u64()));
        assert_eq!(events.iter().filter(|e| e["cat"] == "lost" && e["name"] == "7 events lost").count(), 1);
    }
}
