//! The timeline of a demo: fence logs as the OS read them, joined with what user mode queued when.

use super::play::{Lane as Queue, Played};
use crate::timeline::{Lane, Link, Mark, MarkKind, Span, SpanKind, Timeline};
use dxgkrnl_model::report::{Report, TimedRecord};
use umd_core::ffi::types::FP_TRACE_WAIT_QUEUED;

/// Ticks of the performance counter in a microsecond.
const TICKS: f64 = 10.0;
/// In a second.
const FREQUENCY: u64 = 10_000_000;

/// What lanes are drawn from.
#[derive(Debug)]
pub struct Source<'a> {
    report: &'a Report,
    /// Log entries, on the CPU's clock.
    records: Vec<TimedRecord>,
    fences: &'a [(u64, u32, &'static str)],
    begin: u64,
}

impl<'a> Source<'a> {
    /// `report`: what the OS read; `fences`: their names, by process and handle; `begin`: performance counter at the
    /// left end.
    pub fn new(report: &'a Report, fences: &'a [(u64, u32, &'static str)], begin: u64) -> Self {
        Self { report, records: report.timeline(FREQUENCY), fences, begin }
    }
}

/// Draws it.
pub fn timeline(played: &Played, mode: &str) -> Timeline {
    let begin = played.lanes.iter().flat_map(|lane| &lane.trace).map(|event| event.recorded).min().unwrap_or(0);
    let source = Source::new(&played.report, &played.fences, begin);
    let at = |cpu: u64| source.at(cpu);
    let mut lanes: Vec<Lane> = played.lanes.iter().map(|queue| source.lane(queue)).collect();
    let nodes: Vec<_> = played.lanes.iter().map(|queue| queue.node).collect();
    part_by_hangs(&mut lanes, &nodes);
    let (from, to) = (at(played.cpu_wait.0), at(played.cpu_wait.1));
    lanes.push(Lane {
        group: "process B".into(),
        name: "thread".into(),
        color: 1,
        spans: vec![Span {
            kind: SpanKind::Cpu,
            from,
            to,
            label: "waits for the picture".into(),
            detail: "D3DKMTWaitForSynchronizationObjectFromCpu".into(),
        }],
        marks: vec![Mark { kind: MarkKind::Wake, at: to, detail: "done = 1 wakes the thread".into() }],
    });
    Timeline {
        title: "Fencepost: a picture through two engines".into(),
        subtitle: format!(
            "Two processes, two engines, one hang; {mode} mode. From the native fence logs as the model of Dxgkrnl read them."
        ),
        counts: super::summary::counts(played),
        links: links(played, &source),
        lanes,
    }
}

/// Work that ended behind a reset of its engine ran behind it: until then the engine was the hung queue's. `nodes`:
/// those of the lanes.
fn part_by_hangs(lanes: &mut [Lane], nodes: &[u32]) {
    let hangs: Vec<_> = lanes
        .iter()
        .zip(nodes)
        .flat_map(|(lane, node)| lane.spans.iter().map(move |span| (*node, span)))
        .filter(|(_, span)| span.kind == SpanKind::Hang)
        .map(|(node, span)| (node, span.to))
        .collect();
    for (lane, its) in lanes.iter_mut().zip(nodes) {
        for (_, reset) in hangs.iter().filter(|(node, _)| node == its) {
            let mut waits = Vec::new();
            let ended_behind = |span: &&mut Span| span.kind == SpanKind::Run && span.from < *reset && *reset < span.to;
            for span in lane.spans.iter_mut().filter(ended_behind) {
                let detail = "another queue of the engine hung".to_owned();
                let from = std::mem::replace(&mut span.from, *reset);
                waits.push(Span { kind: SpanKind::Ready, from, to: *reset, label: String::new(), detail });
            }
            lane.spans.extend(waits);
        }
        lane.spans.sort_by(|x, y| x.from.total_cmp(&y.from));
    }
}

impl Source<'_> {
    fn at(&self, cpu: u64) -> f64 {
        (cpu as f64 - self.begin as f64) / TICKS
    }

    fn fence_name(&self, process: u64, handle: u32) -> String {
        let known = self.fences.iter().find(|(p, h, _)| *p == process && *h == handle);
        known.map_or_else(|| "progress".to_owned(), |(_, _, name)| (*name).to_owned())
    }

    fn ticks_per_gpu_tick(&self) -> f64 {
        let frequency = self.report.calibrations.last().map_or(1, |calibration| calibration.frequency.max(1));
        TICKS * 1e6 / frequency as f64
    }

    /// The row of one queue: its logs, what was lost of them, and the user-mode driver's events.
    pub fn lane(&self, queue: &Queue) -> Lane {
        let mine = |timed: &&TimedRecord| timed.record.process == queue.process && timed.record.queue == queue.handle;
        let mut mine: Vec<_> = self.records.iter().filter(mine).collect();
        mine.sort_by_key(|timed| (timed.record.end, !timed.record.is_wait_log));
        let (mut spans, mut marks) = (Vec::new(), Vec::new());
        let gaps = self.gaps(queue);
        // The end of what came before: work is drawn from there to the signal that it ends with.
        let mut before: Option<f64> = None;
        for timed in &mine {
            let record = &timed.record;
            let end = self.at(timed.cpu_end);
            let name = self.fence_name(record.process, record.fence);
            let text = format!("{name} = {}", record.value);
            // Nobody knows what the work behind a gap began with.
            let known = before.filter(|before| !gaps.iter().any(|gap| gap.to > *before && gap.from < end));
            if record.is_wait_log {
                if record.observed != 0 && record.observed < record.end {
                    let length = (record.end - record.observed) as f64 * self.ticks_per_gpu_tick() / TICKS;
                    let detail = format!("waited for {text}");
                    spans.push(Span { kind: SpanKind::Wait, from: end - length, to: end, label: name, detail });
                }
            } else {
                let from = known.unwrap_or(end - 1.0).min(end);
                let label = match name.as_str() {
                    "progress" => String::new(),
                    "tile ready" => format!("tile {}", record.value),
                    name => name.to_owned(),
                };
                spans.push(Span { kind: SpanKind::Run, from, to: end, label, detail: format!("work up to {text}") });
                marks.push(Mark { kind: MarkKind::Signal, at: end, detail: text });
            }
            before = Some(end);
        }
        spans.extend(gaps);
        let reset = self.report.events.iter().find(|event| event.text.contains("engine reset"));
        if queue.role == "emboss"
            && let (Some(from), Some(to)) = (before, reset.map(|event| self.at(event.cpu)))
        {
            let detail = "a command buffer that jumps to itself".to_owned();
            spans.push(Span { kind: SpanKind::Hang, from, to, label: "endless command buffer".into(), detail });
            marks.push(Mark { kind: MarkKind::Reset, at: to, detail: "DxgkDdiResetHwEngine".into() });
        }
        for event in &queue.trace {
            let what = if event.kind == FP_TRACE_WAIT_QUEUED { "wait for" } else { "signal of" };
            let name = self.fence_name(queue.process, event.fence);
            let detail = format!("queued: {what} {name} = {}", event.value);
            marks.push(Mark { kind: MarkKind::Queued, at: self.at(event.queued), detail });
        }
        spans.sort_by(|x, y| x.from.total_cmp(&y.from));
        marks.sort_by(|x, y| x.at.total_cmp(&y.at));
        Lane {
            group: queue.who.into(),
            name: format!("{} on node {}", queue.role, queue.node),
            color: usize::from(queue.who.ends_with('B')),
            spans,
            marks,
        }
    }

    /// Where entries of the queue's logs were lost.
    fn gaps(&self, queue: &Queue) -> Vec<Span> {
        let losses = self.report.lost_events(FREQUENCY).into_iter();
        let mine = losses.filter(|timed| timed.loss.process == queue.process && timed.loss.queue == queue.handle);
        mine.map(|timed| {
            let what = if timed.loss.is_wait_log { "waits" } else { "signals" };
            Span {
                kind: SpanKind::Lost,
                from: self.at(timed.cpu_after),
                to: self.at(timed.cpu_before),
                label: format!("{} events lost", timed.loss.lost),
                detail: format!("the log of {what} was overwritten before it was read"),
            }
        })
        .collect()
    }
}

/// From each signal to the waits for that value of the same fence in another queue.
fn links(played: &Played, source: &Source<'_>) -> Vec<Link> {
    let records = &source.records;
    let lane = |timed: &TimedRecord| {
        let record = &timed.record;
        played.lanes.iter().position(|queue| queue.process == record.process && queue.handle == record.queue)
    };
    let name = |timed: &TimedRecord| source.fence_name(timed.record.process, timed.record.fence);
    let mut links = Vec::new();
    for wait in records.iter().filter(|timed| timed.record.is_wait_log) {
        let origin = records.iter().find(|signal| {
            !signal.record.is_wait_log && name(signal) == name(wait) && signal.record.value >= wait.record.value
        });
        if let Some(signal) = origin
            && let (Some(from_lane), Some(to_lane)) = (lane(signal), lane(wait))
        {
            let detail = format!("{} = {}", name(wait), wait.record.value);
            links.push(Link {
                from_lane,
                from: source.at(signal.cpu_end),
                to_lane,
                to: source.at(wait.cpu_end),
                detail,
            });
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_ended_behind_a_reset_waited_for_its_engine() {
        let span = |kind, from, to| Span { kind, from, to, label: String::new(), detail: String::new() };
        let lane = |spans| Lane { spans, ..Lane::default() };
        let mut lanes = [
            lane(vec![span(SpanKind::Hang, 10.0, 90.0)]),
            lane(vec![span(SpanKind::Run, 1.0, 5.0), span(SpanKind::Run, 5.0, 100.0)]),
            lane(vec![span(SpanKind::Run, 5.0, 100.0)]),
        ];
        part_by_hangs(&mut lanes, &[0, 0, 1]);
        let drawn = |lane: &Lane| lane.spans.iter().map(|s| (s.kind, s.from, s.to)).collect::<Vec<_>>();
        let ran = |from, to| (SpanKind::Run, from, to);
        assert_eq!(drawn(&lanes[1]), [ran(1.0, 5.0), (SpanKind::Ready, 5.0, 90.0), ran(90.0, 100.0)]);
        assert_eq!(drawn(&lanes[2]), [ran(5.0, 100.0)], "the other engine's");
    }
}
